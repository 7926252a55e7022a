"""Reads of one answer beside each other, told as if they had run one after the other.

Whoever looks at the run (the model, the store, an observer, a resume) cannot
tell it from one that read serially, but by the time it took:

- Results are taken up in the order of the calls, whichever came first, and each
  call is told of (`tool_call`) when those before it are over.
- A read that has something to write (a refusal, what stood around a command)
  or to ask ends the run before itself, unless those before it are over: it and
  what was begun after it is cancelled and forgotten, and run again, one by one.
  So rows and events stand in the order of the calls.
- A question is asked by nobody in a crowd: what was begun after it ends first,
  and is run again after the answer. That may change what may be read, and it may
  take days.

No read ever waits for its turn: it may hold what those before it need. All of it
is work of one agent, under its one slot, in a nursery that ends with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from actors.agents.call_journal import Work
from actors.agents.calling import announce, call_tool, capped
from actors.agents.entry_text import clean
from actors.agents.gatekeeper import CallContext
from actors.agents.ports import Act, ActRefused, Observation, Refusal, Tool, ToolCall
from actors.agents.read_runs import read_runs

if TYPE_CHECKING:
    from actors.agents.loop import Loop

# What a call that only reads does not do; one that does is taken for what it does, and not for what it says.
_CHANGES = frozenset({Act.write, Act.spawn})


class Beside:
    """One read among others: what its context asks before it does more than read."""

    def __init__(self, run: _Run, place: int, ordinal: int, call: ToolCall, tool: Tool) -> None:
        self.place = place
        self.ordinal = ordinal
        self.call = call
        self.tool = tool
        self.scope = trio.CancelScope()
        # Those before it are over and told of.
        self.has_turn = False
        self.over = trio.Event()
        self.seen: Observation | None = None
        self.failed: Exception | None = None
        self._run = run

    async def its_turn(self) -> None:
        """Go on only if the calls before this one are over and told of; else the call ends here, to be run again.

        Checkpoint: only if it ends here.
        Cancellation: nothing of this call was written.

        Raises:
            ActRefused: it ends here, and no cancel reaches the tool. Nobody hears of it.
        """
        if self.has_turn:
            return
        self._run.end_before(self.place)
        await trio.lowlevel.checkpoint_if_cancelled()
        raise ActRefused(Refusal(Act.read, clean(self.call.name), reason="dropped, to be run again"))

    async def alone(self) -> None:
        """Wait until this call is the only one: those before it are over, and those after it have yet to be run.

        Cancellation: as `its_turn`; those after it run again in any case.

        Raises:
            ActRefused: as `its_turn`.
        """
        await self.its_turn()
        await self._run.end_after(self.place)

    async def before(self, act: Act) -> None:
        """Let the call do an act, alone if it is no reading.

        Cancellation: as `its_turn`.

        Raises:
            ActRefused: as `its_turn`.
        """
        if act in _CHANGES:
            await self.alone()


class _Run:
    """The reads of one run, as they begin and end. Made for one run, and used once."""

    def __init__(self, loop: Loop, work: Work, places: range, nursery: trio.Nursery) -> None:
        self._loop = loop
        self._work = work
        self._nursery = nursery
        calls = [(number + 1, work.answer.calls[number]) for number in places]
        self._reads = [
            Beside(self, place, ordinal, call, loop.tools[call.name]) for place, (ordinal, call) in enumerate(calls)
        ]
        self._begun: list[Beside] = []
        self._running = 0
        # One that was begun and has not had its first turn of the event loop: it begins the next one.
        self._on_its_way = False
        # So many are taken up; what comes after them is run by somebody else.
        self._end = len(calls)

    def begin_next(self) -> None:
        """Begin one more read, if there is one that may begin. Each begins the one after it: so they begin in order."""
        if self._on_its_way or self._running >= self._loop.contract.max_parallel_reads:
            return
        if len(self._begun) < self._end:
            read = self._reads[len(self._begun)]
            self._running += 1
            self._on_its_way = True
            self._begun.append(read)
            self._nursery.start_soon(self._read, read)

    def end_before(self, place: int) -> None:
        """End the run before a read: nobody takes up what it and those after it come to."""
        self._end = min(self._end, place)
        for each in self._begun[place:]:
            each.scope.cancel(reason="reads beside each other have ended before its turn")

    async def end_after(self, place: int) -> None:
        """Let nothing of the run go on behind a read, and wait until nothing does.

        Cancellation: nothing more begins; what runs was told to end.
        """
        self.end_before(place + 1)
        for each in self._begun[place + 1 :]:
            await each.over.wait()

    async def _read(self, read: Beside) -> None:
        self._on_its_way = False
        self.begin_next()
        try:
            loop, work = self._loop, self._work
            context = CallContext(loop, work.step, work=work, ordinal=read.ordinal, call=read.call)
            context.beside = read
            with read.scope:
                read.seen = await call_tool(loop, read.tool, context)
        except Exception as error:
            # Raised by whoever takes the results up, in its turn, and through no nursery.
            read.failed = error
        finally:
            self._running -= 1
            read.over.set()
        self.begin_next()

    async def take_up(self) -> Exception | None:
        """Take the results up in order, up to where the run ends; give what a read could not make an observation of.

        Cancellation: what was taken up is in ``work.done``.
        """
        for read in self._reads:
            if read.place >= self._end:
                break
            try:
                await announce(self._loop, self._work, read.ordinal, read.call)
            except Exception as error:
                return error
            if read.place >= self._end:
                # It had to ask meanwhile. It was told of, and is not again when it is run.
                break
            read.has_turn = True
            await read.over.wait()
            if read.failed is not None:
                return read.failed
            assert read.seen is not None, "only what comes after the end of the run is cancelled"
            self._work.done[read.ordinal] = capped(self._loop, read.seen)
        return None


def runs_of(loop: Loop, work: Work) -> Mapping[int, range]:
    """Give the runs of an answer. What a process before this one began has none: it is run again one by one."""
    most = 1 if work.again else loop.contract.max_parallel_reads
    return read_runs(work.answer.calls, loop.tools, admitted=work.admitted, most=most)


async def read_beside(loop: Loop, work: Work, places: range) -> None:
    """Run reads beside each other, as many at a time as the contract allows, and put their results in ``work.done``.

    Those from one on that had to ask are not there, and have yet to be run.

    Cancellation: none of them runs any more; what was taken up is in ``work.done``.

    Raises:
        StoreError: what cannot be written down does not go on.
    """
    await announce(loop, work, places.start + 1, work.answer.calls[places.start])
    if loop.recorder.durable and work.acted and (done := work.unstored(loop.agent.run_id)):
        # Something was done before, so what stands is not read again after it.
        await loop.stand(*done)
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        run = _Run(loop, work, places, nursery)
        run.begin_next()
        try:
            failed = await run.take_up()
        finally:
            run.end_before(0)
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
