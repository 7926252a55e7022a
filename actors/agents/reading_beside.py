"""Reads of one answer beside each other, told as if they had run one after the other.

Whoever looks at the run (the model, the store, an observer, a resume) cannot
tell it from one that read serially, but by the time it took:

- Results are taken up in the order of the calls, whichever came first, and each
  call is told of (`tool_call`) when those before it are over.
- A read that has something to write (a refusal, what stood around a command)
  waits until it is its turn, so rows and events stand in the order of the calls.
- A question is asked by nobody in a crowd. Whoever has one waits for its turn,
  and what was begun after it is cancelled, its results are forgotten, and it is
  run again after the answer, one by one: an answer may change what may be read,
  and it may take days.

Reads begin in the order of the calls, so the first that is not over always
runs, and those that wait for their turn wait for something that moves. All of it
is work of one agent, under its one slot, in a nursery that ends with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def __init__(self, run: _Run, ordinal: int, call: ToolCall, tool: Tool) -> None:
        self.ordinal = ordinal
        self.call = call
        self.tool = tool
        self.scope = trio.CancelScope()
        self.turn = trio.Event()
        self.over = trio.Event()
        self.seen: Observation | None = None
        self.failed: Exception | None = None
        self._dropped = False
        self._run = run

    def drop(self) -> None:
        """End it, as far as it has not had its turn: nobody hears what it comes to."""
        self.scope.cancel(reason="reads beside each other have ended before its turn")
        if not self.turn.is_set():
            # A tool may wait for its turn where no cancel reaches it.
            self._dropped = True
            self.turn.set()

    async def its_turn(self) -> None:
        """Wait until the calls before this one are over and told of.

        Checkpoint: only if they are not.
        Cancellation: nothing of this call was written.

        Raises:
            ActRefused: its turn never comes.
        """
        if not self.turn.is_set():
            await self.turn.wait()
        if self._dropped:
            raise ActRefused(Refusal(Act.read, clean(self.call.name), reason="dropped, to be run again"))

    async def alone(self) -> None:
        """Wait until this call is the only one: those before it are over, and those after it have yet to be run.

        Cancellation: as `its_turn`; those after it run again in any case.
        """
        await self.its_turn()
        await self._run.end_after(self)

    async def before(self, act: Act) -> None:
        """Wait until the call may do an act.

        Cancellation: as `its_turn`.
        """
        if act in _CHANGES:
            await self.alone()


class _Run:
    """The reads of one run, as they begin and end. Made for one run, and used once."""

    def __init__(self, loop: Loop, work: Work, places: range, nursery: trio.Nursery) -> None:
        self._loop = loop
        self._work = work
        self._nursery = nursery
        calls = [(place + 1, work.answer.calls[place]) for place in places]
        self._reads = [Beside(self, ordinal, call, loop.tools[call.name]) for ordinal, call in calls]
        self._waiting: Iterator[Beside] = iter(self._reads)
        self._begun: list[Beside] = []
        self._running = 0
        # One that was begun and has not had its first turn of the event loop: it begins the next one.
        self._on_its_way = False
        # The one that ended the run early; what comes after it was not run.
        self._last: Beside | None = None

    def begin_next(self) -> None:
        """Begin one more read, if there is one that may begin. Each begins the one after it: so they begin in order."""
        if self._on_its_way or self._last is not None or self._running >= self._loop.contract.max_parallel_reads:
            return
        read = next(self._waiting, None)
        if read is not None:
            self._running += 1
            self._on_its_way = True
            self._begun.append(read)
            self._nursery.start_soon(self._read, read)

    async def end_after(self, read: Beside) -> None:
        """Let nothing of the run go on behind ``read``, and wait until nothing does.

        Cancellation: nothing more begins; what runs was told to end.
        """
        self._last = self._last or read
        behind = [each for each in self._begun if each.ordinal > read.ordinal]
        for each in behind:
            each.drop()
        for each in behind:
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

    def drop_rest(self) -> None:
        """End what nobody will take up."""
        for each in self._begun:
            if not each.over.is_set():
                each.drop()

    async def take_up(self) -> Exception | None:
        """Take the results up in order, up to where the run ends; give what a read could not make an observation of.

        Cancellation: what was taken up is in ``work.done``.
        """
        for read in self._reads:
            try:
                await announce(self._loop, self._work, read.ordinal, read.call)
            except Exception as error:
                return error
            read.turn.set()
            await read.over.wait()
            if read.failed is not None:
                return read.failed
            assert read.seen is not None, "only what comes after a question is cancelled"
            self._work.done[read.ordinal] = capped(self._loop, read.seen)
            if read is self._last:
                break
        return None


def runs_of(loop: Loop, work: Work) -> Mapping[int, range]:
    """Give the runs of an answer. What a process before this one began has none: it is run again one by one."""
    most = 1 if work.again else loop.contract.max_parallel_reads
    return read_runs(work.answer.calls, loop.tools, admitted=work.admitted, most=most)


async def read_beside(loop: Loop, work: Work, places: range) -> None:
    """Run reads beside each other, as many at a time as the contract allows, and put their results in ``work.done``.

    Those that come after one that had to ask are not there, and have yet to be run.

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
            run.drop_rest()
            nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
