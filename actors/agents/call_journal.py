"""Which calls of a step have run, for a process that ends in the middle of it.

Most tools may simply be run again: they only read, or the runtime can see what
they did. A tool whose effect cannot be inspected writes its intent down before
it starts and its result after, each in a commit of its own. An intent without
a result means that nobody knows: the operator decides.

Before something is done, the results of the step so far stand: what was run
before it is then not run again after it, and what was read before it is not
read again. They ride with whatever is written before the effect anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.agents.ports import Completion, Observation, Tool, ToolCall
from actors.agents.rows import AttemptBegun, AttemptClosed, CallDone, Edited

if TYPE_CHECKING:
    from actors.agents.loop import Loop

REPLAYABLE: Final = "replayable"


@attrs.define
class Work:
    """One answer whose calls are run. ``admitted``: so many of them, from the first on, may run.

    ``known`` are results of a process before this one, by the ordinal of the call;
    ``aborted`` are calls that the operator gave up. ``again``: calls may have run
    before. ``done`` fills with the results of this process, ``stored`` with the
    ordinals of those that stand in the store, and ``edits`` with the files that calls
    changed, until they are written with those results. ``acted``: one that does not stand is
    of a call that did something, and noted nothing before it did. ``told`` is the last
    call that was told of.
    """

    step: int
    answer: Completion
    admitted: int
    known: Mapping[int, Observation] = attrs.Factory(dict)
    aborted: frozenset[int] = frozenset()
    again: bool = False
    done: dict[int, Observation] = attrs.Factory(dict)
    stored: set[int] = attrs.Factory(set)
    edits: dict[int, tuple[Edited, ...]] = attrs.Factory(dict)
    denied: bool = False
    acted: bool = False
    told: int = 0

    def unstored(self, run_id: str) -> list[CallDone | Edited]:
        """Give the results that do not stand yet, as rows; they count as stored from now on."""
        fresh = [ordinal for ordinal in self.done if ordinal not in self.stored and ordinal not in self.known]
        self.stored.update(fresh)
        self.acted = False
        rows = [call_done(run_id, self.step, ordinal, self.done[ordinal]) for ordinal in fresh]
        return [*rows, *self.edited(fresh)]

    def edited(self, ordinals: Iterable[int]) -> list[Edited]:
        """Give what calls changed in files, as rows, to be written with their results; each is given once."""
        return [row for ordinal in ordinals for row in self.edits.pop(ordinal, ())]


def call_done(run_id: str, step: int, ordinal: int, seen: Observation) -> CallDone:
    """Give the row of one result."""
    return CallDone(run_id, step, ordinal, seen.kind, seen.target, seen.text, seen.changed)


def is_replayable(tool: Tool) -> bool:
    """Tell whether a call may be run again when nobody knows whether it ran. A tool says so by ``recovery``.

    By default what only reads is replayable, and nothing else is.
    """
    stated = getattr(tool, "recovery", None)
    return tool.read_only if stated is None else stated == REPLAYABLE


def acts_unnoted(tool: Tool) -> bool:
    """Tell whether a call may do something before the runtime has written down that it will."""
    return not tool.read_only and not getattr(tool, "notes_writes", False)


def call_key(run_id: str, step: int, ordinal: int) -> str:
    """Name a call by durable facts: the same call has the same key in every process. Also an idempotency key."""
    return f"{run_id}#{step}.{ordinal}"


class Journal:
    """The intent and the result of one call whose effect cannot be inspected."""

    def __init__(self, loop: Loop, work: Work, ordinal: int, call: ToolCall) -> None:
        self._loop = loop
        self._work = work
        self._ordinal = ordinal
        self._call = call
        self._place = (loop.agent.run_id, work.step, ordinal)
        # Whether the tool was let go on from asking: from then on it may have done something.
        self.let_go = False

    def rewrite(self, call: ToolCall) -> None:
        """Hear that the call was changed while its tool asked; from now on the intent is that one."""
        assert not self.let_go, "what may have been done is not changed"
        self._call = call

    def begun(self) -> AttemptBegun:
        """Give the row of the intent."""
        return AttemptBegun(*self._place, self._call.name, self._call.arguments, call_key(*self._place))

    def asking(self) -> list[AttemptClosed]:
        """Give the row that takes the intent back while the tool asks, as long as it cannot have done anything."""
        return [] if self.let_go else [AttemptClosed(*self._place, "asking")]

    async def begin(self) -> None:
        """Write the intent down behind what this step has done so far, and wait until it stands.

        Cancellation: as `Loop.stand`; the call must not start.
        """
        await self._loop.stand(*self._work.unstored(self._place[0]), self.begun())

    async def close(self, seen: Observation) -> None:
        """Write the result down, and wait until it stands.

        Cancellation: as `Loop.stand`.
        """
        edited = self._work.edited((self._ordinal,))
        rows: list[Any] = [call_done(*self._place, seen), *edited, AttemptClosed(*self._place, "done")]
        await self._loop.stand(*rows)
        self._work.stored.add(self._ordinal)
