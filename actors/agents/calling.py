"""One call of a tool: run until it is over, with the arguments that its approver let stand.

Whatever a tool does, its call has one result. What it raises is told to the
model and ends nothing, but for a store that fails: what cannot be written down
must not go on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from actors.agents.call_journal import Work
from actors.agents.entry_text import bounded, clean
from actors.agents.gatekeeper import CallContext
from actors.agents.model_input import read_arguments
from actors.agents.ports import ActRefused, Observation, ObservationKind, Tool, ToolCall
from actors.agents.prompt import ENTRY_CHARS
from actors.agents.rewriting import CallRewritten
from actors.errors import StoreError, ToolFailed

if TYPE_CHECKING:
    from actors.agents.loop import Loop

log = logging.getLogger("actors.loop")


def failed(target: str, text: str) -> Observation:
    """Give an error that the model reads."""
    return Observation(ObservationKind.error, target, text)


def capped(loop: Loop, seen: Observation) -> Observation:
    """Make the observation of a tool safe and bounded. Once: cut again, it would lose how much was left out."""
    hide = loop.recorder.redactor.hide
    text = bounded(hide(clean(seen.text)), ENTRY_CHARS)
    return attrs.evolve(seen, target=bounded(hide(clean(seen.target)), ENTRY_CHARS), text=text)


async def announce(loop: Loop, work: Work, ordinal: int, call: ToolCall) -> None:
    """Tell that a call begins, once.

    Cancellation: it was told; its row may be missing.
    """
    if ordinal <= work.told:
        return
    work.told = ordinal
    facts = {"step": work.step, "ordinal": ordinal, "tool": clean(call.name)[:200]}
    await loop.recorder.emit(loop.agent, "tool_call", **facts)


async def call_tool(loop: Loop, tool: Tool, context: CallContext) -> Observation:
    """Run a call, from its start again whenever its approver changes it; that is said in the result.

    Cancellation: as the tool's.
    """
    seen = None
    while seen is None:
        seen = await _once(loop, tool, await context.begin(), context)
    context.keep_edits(seen)
    return context.telling(seen)


async def _once(loop: Loop, tool: Tool, call: ToolCall, context: CallContext) -> Observation | None:
    """Run a call; None when its approver changed it meanwhile."""
    try:
        arguments = read_arguments(call, tool.spec)
        seen = await tool.run(arguments, context)
    except CallRewritten:
        return None
    except StoreError:
        raise
    except Exception as error:
        if context.rewritten:
            # The tool took the news for a failure of its own.
            return None
        if isinstance(error, ToolFailed | ActRefused):
            return failed(call.name, str(error))
        # A bug in a tool is its caller's bad luck, never the end of the run.
        log.warning("%s: tool %s raised\n%s", loop.agent.path, call.name[:200], loop.recorder.told(error))
        return failed(call.name, f"the tool failed: {type(error).__name__}: {error}")
    if context.rewritten:
        return failed(call.name, "the tool failed: it went on with arguments that its approver had changed")
    if not isinstance(seen, Observation):
        return failed(call.name, f"the tool failed: it gave back {type(seen).__name__} and no observation")
    if seen.kind is ObservationKind.child:
        # Only the runtime reports of children: a resume tells by it who has been read.
        return attrs.evolve(seen, kind=ObservationKind.tool)
    return seen
