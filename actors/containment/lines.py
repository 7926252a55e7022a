"""In which order agents that have never started get a slot. Pure.

The place is taken in the step of the spawn, so the order is that of the spawns,
whatever the scheduler does with their tasks. Leaving costs the same from
anywhere in a line: a halt takes a million agents out of one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter
from typing import Any, Protocol


class QueueOrder(StrEnum):
    """In which order children that wait for a slot get one; stored values."""

    fifo = "fifo"
    # Parents take turns.
    fair = "fair"


class Line(Protocol):
    """A line of agents; whoever is in it is in it once."""

    # How many stand in it.
    size: int

    def add(self, agent: Any) -> None:
        """Put an agent at the end."""
        ...

    def head(self) -> Any:
        """Show who is next, without taking it out. The line must not be empty."""
        ...

    def discard(self, agent: Any) -> bool:
        """Take an agent out, wherever it stands; tell whether it was there. Its parent's turn stays."""
        ...

    def served(self, agent: Any) -> None:
        """Take the head out, because it got a slot: its parent's turn is over."""
        ...

    def promote(self, agent: Any) -> bool:
        """Put an agent that stands in the line before all others; tell whether it was there."""
        ...


class FifoLine:
    """First come, first served, over the whole tree."""

    def __init__(self) -> None:
        self.size = 0
        self._agents: OrderedDict[Any, None] = OrderedDict()

    def add(self, agent: Any) -> None:
        """Put an agent at the end."""
        self._agents[agent] = None
        self.size += 1

    def head(self) -> Any:
        """Show who is next."""
        return next(iter(self._agents))

    def discard(self, agent: Any) -> bool:
        """Take an agent out; tell whether it was there."""
        if agent not in self._agents:
            return False
        del self._agents[agent]
        self.size -= 1
        return True

    def served(self, agent: Any) -> None:
        """Take the head out."""
        self.discard(agent)

    def promote(self, agent: Any) -> bool:
        """Put an agent before all others; tell whether it was there."""
        if agent not in self._agents:
            return False
        self._agents.move_to_end(agent, last=False)
        return True


class FairLine:
    """Parents take turns; among the children of one parent, first come, first served.

    ``parent_of`` says whose turn an agent uses up. A parent that comes anew stands
    behind all who are there.
    """

    def __init__(self, parent_of: Callable[[Any], Any] = attrgetter("parent")) -> None:
        self.size = 0
        self._parent_of = parent_of
        self._promoted = FifoLine()
        self._turns: OrderedDict[Any, FifoLine] = OrderedDict()

    def add(self, agent: Any) -> None:
        """Put an agent at the end of its parent's children."""
        parent = self._parent_of(agent)
        own = self._turns.get(parent)
        if own is None:
            own = self._turns[parent] = FifoLine()
        own.add(agent)
        self.size += 1

    def head(self) -> Any:
        """Show who is next."""
        if self._promoted.size:
            return self._promoted.head()
        return next(iter(self._turns.values())).head()

    def discard(self, agent: Any) -> bool:
        """Take an agent out; tell whether it was there."""
        if not self._promoted.discard(agent) and not self._take_out(agent):
            return False
        self.size -= 1
        return True

    def served(self, agent: Any) -> None:
        """Take the head out; its parent goes behind the others. A promoted agent used nobody's turn."""
        by_turn = not self._promoted.size
        self.discard(agent)
        parent = self._parent_of(agent)
        if by_turn and parent in self._turns:
            self._turns.move_to_end(parent)

    def promote(self, agent: Any) -> bool:
        """Put an agent before all others, also before those promoted earlier; tell whether it was there."""
        if not self._promoted.promote(agent):
            if not self._take_out(agent):
                return False
            self._promoted.add(agent)
            self._promoted.promote(agent)
        return True

    def _take_out(self, agent: Any) -> bool:
        parent = self._parent_of(agent)
        own = self._turns.get(parent)
        if own is None or not own.discard(agent):
            return False
        if not own.size:
            # Nothing is kept of a parent without children in line.
            del self._turns[parent]
        return True


LINES: dict[QueueOrder, Callable[[], Line]] = {QueueOrder.fifo: FifoLine, QueueOrder.fair: FairLine}
