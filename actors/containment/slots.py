"""How many agents work at once, counted on one `trio.CapacityLimiter`.

A slot covers work only: whoever waits gives it back, and takes it again to go
on. So the cap is the cap at every depth, and a cap of 1 never deadlocks.

The limiter's own queue is never used. Two queues stand before it: agents that
come back, and agents that have never started; only their heads ask, and those
who come back go first. A slot is granted in the step that frees it, so it
never passes through a state in which nobody and everybody may have it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

import attrs
import trio


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


@attrs.frozen
class Tally:
    """How many agents of one depth are in which state; ``waiting`` includes those in line to go on."""

    working: int = 0
    waiting: int = 0
    queued: int = 0
    done: int = 0


# The column of a tally that a seat counts in; a fresh agent counts nowhere yet.
_COLUMN: dict[Seat, int] = {
    Seat.working: 0,
    Seat.waiting: 1,
    Seat.returning: 1,
    Seat.queued: 2,
    Seat.done: 3,
    Seat.fresh: 4,
}


class Slots:
    """The slots of one tree.

    ``on_change`` hears of an agent that enters the queue, or leaves it.
    """

    def __init__(self, max_concurrent: int) -> None:
        self.limiter = trio.CapacityLimiter(max_concurrent)
        self._counts: dict[int, list[int]] = {}
        self.peak_working = 0
        self.on_queue: Callable[[Any], None] | None = None
        self.on_admit: Callable[[Any], None] | None = None
        self._returning: deque[tuple[Borrower, trio.lowlevel.Task]] = deque()
        self._fresh: deque[tuple[Borrower, trio.lowlevel.Task]] = deque()

    @property
    def out(self) -> int:
        """Count the slots that are held now."""
        return int(self.limiter.borrowed_tokens)

    @property
    def queued(self) -> int:
        """Count agents that have never had a slot and stand in line."""
        return len(self._fresh)

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
        if not self.enter_nowait(agent):
            await self.stand_in_line(agent)

    def enter_nowait(self, agent: Borrower) -> bool:
        """Take the first slot of an agent if one is free and nobody stands in line; tell whether it has it."""
        assert agent.seat is Seat.fresh
        return not self._returning and not self._fresh and self._take(agent)

    async def stand_in_line(self, agent: Borrower) -> None:
        """Wait for the first slot of an agent.

        Cancellation: no slot is held, and the agent is out of the line.
        """
        self._move(agent, Seat.queued)
        if self.on_queue is not None:
            self.on_queue(agent)
        await self._stand(self._fresh, agent)

    def give_back(self, agent: Borrower) -> None:
        """Give the slot back before a wait."""
        self._move(agent, Seat.waiting)
        self._release(agent)

    async def take_again(self, agent: Borrower) -> None:
        """Take a slot again after a wait, before any agent that has never started.

        Checkpoint: only if it must wait.
        Cancellation: no slot is held, and the agent counts as waiting.
        """
        if self.take_again_nowait(agent):
            return
        self._move(agent, Seat.returning)
        try:
            await self._stand(self._returning, agent)
        except trio.Cancelled:
            self._move(agent, Seat.waiting)
            raise

    def take_again_nowait(self, agent: Borrower) -> bool:
        """Take a slot again if one is free and nobody who came back earlier waits; tell whether it has it."""
        return not self._returning and self._take(agent)

    def leave(self, agent: Borrower) -> None:
        """Be done, from whatever state; a held slot is given back. Idempotent."""
        if agent.seat is Seat.done:
            return
        held = agent.seat is Seat.working
        self._move(agent, Seat.done)
        if held:
            self._release(agent)

    # ── how ─────────────────────────────────────────────────────────────────

    def _take(self, agent: Borrower) -> bool:
        try:
            self.limiter.acquire_on_behalf_of_nowait(agent)
        except trio.WouldBlock:
            return False
        self._move(agent, Seat.working)
        out = self.out
        if out > self.peak_working:
            self.peak_working = out
        return True

    async def _stand(self, line: deque[tuple[Borrower, trio.lowlevel.Task]], agent: Borrower) -> None:
        entry = (agent, trio.lowlevel.current_task())
        line.append(entry)

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            line.remove(entry)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _release(self, agent: Borrower) -> None:
        self.limiter.release_on_behalf_of(agent)
        while self._returning or self._fresh:
            line = self._returning or self._fresh
            head, task = line[0]
            queued = head.seat is Seat.queued
            if not self._take(head):
                return
            line.popleft()
            if queued and self.on_admit is not None:
                self.on_admit(head)
            trio.lowlevel.reschedule(task)

    def _move(self, agent: Borrower, seat: Seat) -> None:
        was = agent.seat
        assert seat in MOVES[was], f"an agent cannot go from {was} to {seat}"
        counts = self._counts.get(agent.depth)
        if counts is None:
            counts = self._counts[agent.depth] = [0, 0, 0, 0, 0]
        counts[_COLUMN[was]] -= 1
        counts[_COLUMN[seat]] += 1
        agent.seat = seat
