"""What one job of a library cost: wall time and CPU time of all its threads and processes."""

import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence

import attrs


@attrs.frozen
class Bill:
    """Seconds for ``n`` operations."""

    n: int
    wall: float
    cpu: float

    @property
    def each(self) -> tuple[float, float]:
        """Give microseconds of wall and of CPU for one operation."""
        return self.wall / self.n * 1e6, self.cpu / self.n * 1e6


# A job does one round; ``quick`` makes it small.
Job = Callable[[bool], Bill]


class Clock:
    """Wall and CPU time since it was made. CPU counts every thread, and those child processes that were reaped.

    It begins once all that lives counts as old, for ours and for theirs: see `harness.begin`.
    """

    def __init__(self) -> None:
        gc.collect()
        self._wall, self._cpu = time.perf_counter(), _cpu()

    def bill(self, n: int) -> Bill:
        """Give the bill for what was done since."""
        return Bill(n, time.perf_counter() - self._wall, _cpu() - self._cpu)


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def median(bills: Sequence[Bill]) -> Bill:
    """Give the median of wall and that of CPU, each by itself."""
    wall, cpu = (statistics.median(getattr(bill, part) for bill in bills) for part in ("wall", "cpu"))
    return Bill(bills[0].n, wall, cpu)


def take_turns(rounds: int, *jobs: Callable[[], Bill]) -> list[Bill]:
    """Let jobs take turns, so that a slow moment of the machine meets all; give the median of each.

    The first turn only warms up.
    """
    turns = [[job() for job in jobs] for _ in range(rounds + 1)]
    return [median([turn[number] for turn in turns[1:]]) for number in range(len(jobs))]
