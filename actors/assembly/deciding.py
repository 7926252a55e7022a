"""An operator's answer to a question, judged before it is written down."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from actors.agents.policy import Policy
from actors.agents.ports import Act, Approval, Tool, ToolCall
from actors.agents.questions import decision_row
from actors.agents.remembered import uncovered
from actors.agents.rewriting import parsed, to_text
from actors.agents.roster import Agents
from actors.agents.rows import ApprovalDecided
from actors.agents.secret_values import Redactor
from actors.agents.shell_line import read_line
from actors.agents.spawning import spawn_spec
from actors.errors import ConfigError, ToolFailed
from actors.store.readers import Reader
from actors.store.records import ApprovalRecord
from actors.tools.exec import Exec
from actors.tools.toolbox import builtin_tools

# Characters of a target that are surely all of it.
MOST_TARGET: Final = 1_900
FEW: Final = 4


def operator_row(
    reader: Reader, request_id: str, answer: Approval, tools: Iterable[Tool] | None = None
) -> ApprovalDecided:
    """Give the row of an operator's answer. ``tools`` are the run's; None for the built-in ones.

    Raises:
        ConfigError: the arguments that come with it are none for the tool that asks; of a tool that nobody
            here knows only that they are an object is looked at. Or the rules that come with it leave
            something to be asked about again of the very act that they come with.
        StoreError: the file cannot be read.
    """
    redactor = Redactor.of(os.environ)
    _check_rules(reader, request_id, answer)
    modified = _modified(reader, request_id, answer, tools, redactor)
    return decision_row(request_id, attrs.evolve(answer, reason=redactor.hide(answer.reason)), "operator", modified)


def _check_rules(reader: Reader, request_id: str, answer: Approval) -> None:
    asked = reader.question(request_id)
    # With other arguments it is another act, and of a long one only the beginning is kept.
    if asked is None or not (answer.approved and answer.remember) or answer.modified is not None:
        return
    if len(asked.target) > MOST_TARGET:
        return
    policy = _policy(reader, asked.tree_id)
    left = uncovered(answer.remember, Act(asked.act), asked.target, _commands(asked), policy)
    if left:
        again = ", ".join(shlex.quote(each) for each in left[:FEW])
        given = ", ".join(shlex.quote(rule.glob) for rule in answer.remember[:FEW])
        text = f"{given} does not cover what is asked for: it would be asked again about {asked.act} {again}"
        raise ConfigError(("remember", f"{text}; write a rule that fits {'each' if len(left) > 1 else 'it'}, or none"))


def _policy(reader: Reader, tree_id: str) -> Policy:
    """Give the policy of a run; one that says nothing, where none can be read: then all must be covered."""
    text = reader.policy(tree_id)
    try:
        return Policy() if text is None else Policy.from_json(text)
    except ConfigError:
        return Policy()


def _commands(asked: ApprovalRecord) -> list[Sequence[str]]:
    """Give the commands of a call that asks to run some; of a tool that nobody here knows, none."""
    try:
        arguments = parsed(asked.arguments)
        if asked.tool == Exec.spec.name:
            return [arguments["argv"]]
        if "line" in arguments:
            return [command.argv for command in read_line(arguments["line"]).commands]
    except (ValueError, KeyError, TypeError, ToolFailed):
        pass
    return []


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
