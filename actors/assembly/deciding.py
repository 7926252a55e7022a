"""An operator's answer to a question, judged before it is written down."""

from __future__ import annotations

import os
from collections.abc import Iterable

import attrs

from actors.agents.ports import Approval, Tool, ToolCall
from actors.agents.questions import decision_row
from actors.agents.rewriting import to_text
from actors.agents.roster import Agents
from actors.agents.rows import ApprovalDecided
from actors.agents.secret_values import Redactor
from actors.agents.spawning import spawn_spec
from actors.errors import ConfigError
from actors.store.readers import Reader
from actors.tools.toolbox import builtin_tools


def operator_row(
    reader: Reader, request_id: str, answer: Approval, tools: Iterable[Tool] | None = None
) -> ApprovalDecided:
    """Give the row of an operator's answer. ``tools`` are the run's; None for the built-in ones.

    Raises:
        ConfigError: the arguments that come with it are none for the tool that asks. Of a tool that nobody
            here knows only that they are an object is looked at.
        StoreError: the file cannot be read.
    """
    redactor = Redactor.of(os.environ)
    modified = _modified(reader, request_id, answer, tools, redactor)
    return decision_row(request_id, attrs.evolve(answer, reason=redactor.hide(answer.reason)), "operator", modified)


def _modified(
    reader: Reader, request_id: str, answer: Approval, tools: Iterable[Tool] | None, redactor: Redactor
) -> str | None:
    asked = reader.question(request_id)
    if asked is None or not answer.approved or answer.modified is None:
        return None
    specs = [spawn_spec(Agents()), *(tool.spec for tool in (builtin_tools() if tools is None else tools))]
    spec = next((each for each in specs if each.name == asked.tool), None)
    try:
        return to_text(answer.modified, ToolCall(asked.tool, asked.arguments), spec, redactor)
    except ValueError as error:
        raise ConfigError(("arguments", str(error))) from None
