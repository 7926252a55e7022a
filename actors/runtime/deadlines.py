"""One heap and one task for all timeouts of a host.

A scope per timeout costs 15 microseconds and 600 bytes; an entry here costs
half a microsecond. Callbacks are sync, run in the heap's own task at their
time on trio's clock, and must not raise: they latch a halt, answer a call, or
order a stop.
"""

import heapq
import itertools
from collections.abc import Callable

import trio


def judged_timeout(timeout: object) -> float | None:
    """Give a timeout as it is: None, or seconds from 0 on.

    Raises:
        ValueError: it is neither; asked before anything is left, so nothing is.
    """
    if timeout is not None and (type(timeout) not in (int, float) or not timeout >= 0):  # type: ignore[operator]
        raise ValueError(f"a timeout must be seconds from 0 on, or None, not {timeout!r}")
    return timeout  # type: ignore[return-value]


class Entry:
    """One timeout that is set. ``cancel`` it and it never fires."""

    __slots__ = ("_callback", "at")

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback; the entry leaves the heap when its time comes or the heap is swept."""
        self._callback = None

    @property
    def live(self) -> bool:
        """Whether it may still fire."""
        return self._callback is not None

    def fire(self) -> None:
        """Run the callback unless it was cancelled; at most once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Deadlines:
    """The heap. ``run`` must be running for anything to fire."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
        self._count = itertools.count()
        self._scope: trio.CancelScope | None = None
        self._sweep_at = 64

    def __len__(self) -> int:
        return sum(entry.live for _, _, entry in self._heap)

    def at(self, when: float, callback: Callable[[], None]) -> Entry:
        """Call ``callback`` at ``when`` (seconds on trio's clock); at once if that is past."""
        assert when == when, "a time that is no number would never come, and hold up all others"
        entry = Entry(when, callback)
        heapq.heappush(self._heap, (when, next(self._count), entry))
        # Cancelled entries are dropped when they are half of a grown heap, so the heap stays as large as what is live.
        if len(self._heap) > self._sweep_at:
            self._heap = [item for item in self._heap if item[2].live]
            heapq.heapify(self._heap)
            self._sweep_at = max(64, 2 * len(self._heap))
        if self._scope is not None and when < self._scope.deadline:
            self._scope.deadline = when
        return entry

    async def run(self) -> None:
        """Fire what is due, for ever.

        Cancellation: ends it; what has not fired never will.
        """
        while True:
            now = trio.current_time()
            while self._heap and (self._heap[0][0] <= now or not self._heap[0][2].live):
                heapq.heappop(self._heap)[2].fire()
            with trio.CancelScope() as self._scope:
                self._scope.deadline = self._heap[0][0] if self._heap else float("inf")
                await trio.sleep_forever()
            self._scope = None
            # The scope swallowed its own deadline only; a cancel from outside went through.
