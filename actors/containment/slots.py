"""How many agents work at once, counted on one `trio.CapacityLimiter`.

A slot covers work only: whoever waits gives it back, and takes it again to go
on. So the cap is the cap at every depth, and a cap of 1 never deadlocks.

The limiter's own queue is never used. Two queues stand before it: agents that
come back, and agents that have never started; only their heads ask, and those
who come back go first. A slot is granted in the step that frees it, so it
never passes through a state in which nobody and everybody may have it.

A new agent is lined up in the step that makes it, before its task runs: the
scheduler starts tasks in any order, and a later spawn must not overtake an
earlier one. So a slot may be granted to an agent whose task has not run yet.

Whoever stands in line is marked as waiting for these slots, and they say who
holds them: with that the wait-for graph finds a wait that no holder can ever
end. The marks cost nothing while slots are free.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

import attrs
import trio

from actors.containment.lines import LINES, QueueOrder


class Seat(Enum):
    """What an agent is to the slots."""

    # Made, and has never had a slot.
    fresh = "fresh"
    queued = "queued"
    working = "working"
    waiting = "waiting"
    # Its wait is over; it stands in line to go on.
    returning = "returning"
    done = "done"

    # Members are compared by identity; the hash of Enum is a call in Python, and this is the hot path.
    __hash__ = object.__hash__


# The members by themselves: looking one up in its Enum costs as much as a call, and this is the hot path.
FRESH: Final = Seat.fresh
QUEUED: Final = Seat.queued
WORKING: Final = Seat.working
WAITING: Final = Seat.waiting
RETURNING: Final = Seat.returning
DONE: Final = Seat.done

# What may follow what. An agent that is stopped goes to done from anywhere.
MOVES: dict[Seat, frozenset[Seat]] = {
    Seat.fresh: frozenset({Seat.queued, Seat.working, Seat.done}),
    Seat.queued: frozenset({Seat.working, Seat.done}),
    Seat.working: frozenset({Seat.waiting, Seat.done}),
    Seat.waiting: frozenset({Seat.returning, Seat.working, Seat.done}),
    Seat.returning: frozenset({Seat.working, Seat.waiting, Seat.done}),
    Seat.done: frozenset(),
}


class Borrower(Protocol):
    """Who may hold a slot: an agent. It is the borrower, not its task."""

    depth: int
    seat: Seat
    # What its own task waits for: a mark for the wait-for graph.
    awaits: Any


@attrs.frozen
class Tally:
    """How many agents of one depth are in which state; ``waiting`` includes those in line to go on."""

    working: int = 0
    waiting: int = 0
    queued: int = 0
    done: int = 0


# The column of a tally that a seat counts in; a fresh agent counts nowhere yet.
_COLUMN: dict[Seat, int] = {
    WORKING: 0,
    WAITING: 1,
    RETURNING: 1,
    QUEUED: 2,
    DONE: 3,
    FRESH: 4,
}


class Slots:
    """The slots of one tree.

    ``on_queue`` hears of an agent that enters the queue, ``on_admit`` of one that gets its first slot.
    """

    # How the wait-for graph words a wait for one of them; the name of a holder follows.
    waited_for: ClassVar[str] = "a slot held by"

    def __init__(self, max_concurrent: int, order: QueueOrder = QueueOrder.fifo) -> None:
        self.limiter = trio.CapacityLimiter(max_concurrent)
        # A list of columns for each depth that has occurred.
        self._counts: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
        self.peak_working = 0
        # As `out`, without asking the limiter each time.
        self._out = 0
        self.on_queue: Callable[[Any], None] | None = None
        self.on_admit: Callable[[Any], None] | None = None
        self._returning: OrderedDict[Borrower, trio.lowlevel.Task] = OrderedDict()
        self._fresh = LINES[order]()
        # Tasks of queued agents that have run as far as their slot.
        self._parked: dict[Borrower, trio.lowlevel.Task] = {}

    @property
    def out(self) -> int:
        """Count the slots that are held now."""
        return int(self.limiter.borrowed_tokens)

    @property
    def queued(self) -> int:
        """Count agents that have never had a slot and stand in line."""
        return self._fresh.size

    def total(self) -> Tally:
        """Add up the tallies of all depths."""
        return Tally(*(sum(counts[column] for counts in self._counts.values()) for column in range(4)))

    def tally(self, depth: int) -> Tally:
        """Count the agents of one depth."""
        return Tally(*self._counts.get(depth, (0, 0, 0, 0))[:4])

    def tallies(self) -> dict[int, Tally]:
        """Count the agents of each depth that has occurred."""
        return {depth: Tally(*counts[:4]) for depth, counts in sorted(self._counts.items())}

    async def enter(self, agent: Borrower) -> None:
        """Take the first slot of an agent, in the order of coming, behind all who come back.

        Checkpoint: only if it must wait.
        Cancellation: no slot is held, and the agent is out of the line.
        """
        if not self.line_up(agent):
            await self.wait_turn(agent)

    def line_up(self, agent: Borrower) -> bool:
        """Take the first slot of an agent if one is free and nobody stands in line, else a place in the line.

        Tells whether it has its slot; if not, its task calls `wait_turn`.
        """
        assert agent.seat is FRESH
        if not self._returning and not self._fresh.size and self._take(agent):
            return True
        self._move(agent, QUEUED)
        self._fresh.add(agent)
        # No cycle can be closed here: nobody waits yet for an agent that is being made.
        self.mark(agent)
        if self.on_queue is not None:
            self.on_queue(agent)
        return False

    async def wait_turn(self, agent: Borrower) -> None:
        """Wait until an agent that was lined up has its first slot.

        Checkpoint: only if it must wait.
        Cancellation: no slot is held, and the agent is out of the line.
        """
        if agent.seat is not QUEUED:
            return
        self._parked[agent] = trio.lowlevel.current_task()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            del self._parked[agent]
            self._fresh.discard(agent)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def promote(self, agent: Borrower) -> bool:
        """Put a queued agent before all others that have never started; tell whether it was queued."""
        return self._fresh.promote(agent)

    def give_back(self, agent: Borrower) -> None:
        """Give the slot back before a wait."""
        self._move(agent, WAITING)
        self._release(agent)

    async def take_again(self, agent: Borrower) -> None:
        """Take a slot again after a wait, before any agent that has never started.

        Checkpoint: only if it must wait.
        Cancellation: no slot is held, and the agent counts as waiting.
        """
        if self.take_again_nowait(agent):
            return
        self._move(agent, RETURNING)
        try:
            await self._stand(agent)
        except trio.Cancelled:
            self._move(agent, WAITING)
            raise

    def take_again_nowait(self, agent: Borrower) -> bool:
        """Take a slot again if one is free and nobody who came back earlier waits; tell whether it has it."""
        return not self._returning and self._take(agent)

    def leave(self, agent: Borrower) -> None:
        """Be done, from whatever state; a held slot is given back. Idempotent."""
        if agent.seat is DONE:
            return
        held = agent.seat is WORKING
        if agent.seat is QUEUED:
            self._fresh.discard(agent)
            self.unmark(agent)
        self._move(agent, DONE)
        if held:
            self._release(agent)

    # ── what the wait-for graph sees ────────────────────────────────────────

    @property
    def awaits(self) -> tuple[Any, ...] | None:
        """Give the agents of which one must give its slot back before anybody goes on; None while one is free."""
        if self._out < self.limiter.total_tokens:
            return None
        return tuple(self.limiter.statistics().borrowers)

    def mark(self, agent: Borrower) -> None:
        """Show the graph that the agent's own task waits for a slot."""
        agent.awaits = self

    def unmark(self, agent: Borrower) -> None:
        """Take the mark away, in the step of a grant: the agent's task runs only later. Idempotent."""
        if agent.awaits is self:
            agent.awaits = None

    # ── how ─────────────────────────────────────────────────────────────────

    def _take(self, agent: Borrower) -> bool:
        try:
            self.limiter.acquire_on_behalf_of_nowait(agent)
        except trio.WouldBlock:
            return False
        self._move(agent, WORKING)
        self._out += 1
        if self._out > self.peak_working:
            self.peak_working = self._out
        return True

    async def _stand(self, agent: Borrower) -> None:
        self._returning[agent] = trio.lowlevel.current_task()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            del self._returning[agent]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _release(self, agent: Borrower) -> None:
        self.limiter.release_on_behalf_of(agent)
        self._out -= 1
        while self._returning or self._fresh.size:
            if not (self._serve_returning() if self._returning else self._serve_fresh()):
                return

    def _serve_returning(self) -> bool:
        head = next(iter(self._returning))
        if not self._take(head):
            return False
        self.unmark(head)
        trio.lowlevel.reschedule(self._returning.pop(head))
        return True

    def _serve_fresh(self) -> bool:
        head = self._fresh.head()
        if not self._take(head):
            return False
        self.unmark(head)
        self._fresh.served(head)
        if self.on_admit is not None:
            self.on_admit(head)
        # None when its task has not come so far yet; it finds the slot when it does.
        task = self._parked.pop(head, None)
        if task is not None:
            trio.lowlevel.reschedule(task)
        return True

    def _move(self, agent: Borrower, seat: Seat) -> None:
        was = agent.seat
        assert seat in MOVES[was], f"an agent cannot go from {was} to {seat}"
        counts = self._counts[agent.depth]
        counts[_COLUMN[was]] -= 1
        counts[_COLUMN[seat]] += 1
        agent.seat = seat
