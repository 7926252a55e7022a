"""What is worked out once for a turn or a tool, although many requests of a run hold it. Pure.

What belongs to all turns of a request together is in `growing`. Turns and tools
never change, so the object is the key: asking it for its text again, to compare
it, would cost as much as the work that is saved.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")


class PerTurn(Generic[T, V]):
    """A function of turns that works once for each object, and forgets with it what it found. It never finds None."""

    def __init__(self, work: Callable[[T], V]) -> None:
        self._work = work
        self._known: dict[int, V] = {}
        self._alive: dict[int, weakref.ref[T]] = {}

    def __call__(self, turn: T) -> V:
        key = id(turn)
        found = self._known.get(key)
        if found is None:
            # The entry goes before another object can have the id.
            self._alive[key] = weakref.ref(turn, lambda _: self._forget(key))
            found = self._known[key] = self._work(turn)
        return found

    def each(self, turns: Sequence[T]) -> list[V]:
        """Give what is found for each of many turns; in one sweep, as nearly all of them are known."""
        found = list(map(self._known.get, map(id, turns)))
        return [self(turn) if known is None else known for turn, known in zip(turns, found, strict=True)]

    def _forget(self, key: int) -> None:
        del self._alive[key]
        self._known.pop(key, None)
