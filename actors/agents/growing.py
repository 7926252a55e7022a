"""Items that mostly grow at the end, with sums and digests of them that cost the change and not the length. Pure.

Each request of a run holds all turns before it. Whoever adds something up over
them would work as long as the run is, in every step: ten thousand steps would
cost ten thousand times that.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs

T = TypeVar("T")
S = TypeVar("S")
Measure = Callable[[T], int]
# Whoever measures is made once; a measure that is made for each request would be kept for ever.
MOST_MEASURES: Final = 16


@attrs.define
class _Sum:
    """What a measure gives for each item, and all of it together."""

    each: list[int]
    total: int


class Growing(Generic[T]):
    """A list whose sums are kept. What it gave last is known by identity."""

    __slots__ = ("_chains", "_items", "_latest", "_sums")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._sums: dict[Measure[T], _Sum] = {}
        self._chains: dict[Hashable, list[Any]] = {}
        self._latest: tuple[T, ...] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of what is given with it counts for itself: None.
        return type(None), ()

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self._items.append(item)
        self._latest = None
        for measure, kept in self._sums.items():
            size = measure(item)
            kept.each.append(size)
            kept.total += size

    def put(self, place: int, item: T) -> None:
        """Put an item in the place of another one."""
        if self._items[place] is item:
            return
        self._items[place] = item
        self._latest = None
        for states in self._chains.values():
            del states[place:]
        for measure, kept in self._sums.items():
            size = measure(item)
            kept.total += size - kept.each[place]
            kept.each[place] = size

    def items(self) -> tuple[T, ...]:
        """Give all items; the very same tuple until something changes."""
        if self._latest is None:
            self._latest = tuple(self._items)
        return self._latest

    def has_just(self, items: Sequence[T]) -> bool:
        """Tell whether these are the very items that it gave last, and nothing has changed since."""
        return items is self._latest

    def total(self, measure: Measure[T]) -> int:
        """Give the sum of a measure, which must always give the same for an item; from now on it follows changes."""
        kept = self._sums.get(measure)
        if kept is None:
            each = list(map(measure, self._items))
            kept = _Sum(each, sum(each))
            if len(self._sums) < MOST_MEASURES:
                self._sums[measure] = kept
        return kept.total

    def chain(self, kind: Hashable, extend: Callable[[list[S], Sequence[T]], None]) -> list[S]:
        """Give a state for each item, made from those before it. From an item that changed on they are made anew.

        ``extend`` adds the states of the items that have none. The list is the very one that is kept: do not change it.
        """
        states = self._chains.get(kind)
        if states is None:
            states = []
            if len(self._chains) < MOST_MEASURES:
                self._chains[kind] = states
        extend(states, self._items[len(states) :])
        return states


def added_up(measure: Measure[T], items: Sequence[T], grown: Growing[T] | None) -> int:
    """Add a measure up over ``items``: from what is known, where ``grown`` is still of these very items."""
    if grown is not None and grown.has_just(items):
        return grown.total(measure)
    return sum(map(measure, items))
