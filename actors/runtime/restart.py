"""What the end of a child asks for, how often it may be had, and after which wait.

Pure: facts, ``now`` and chance in, a verdict out. Which siblings a restart
takes along is decided in the supervisor's plan.

Agents are temporary: a turn is not idempotent, and running it again costs
money.
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from actors.runtime.exits import Reason


class Restart(StrEnum):
    """How long a child is meant to live."""

    permanent = "permanent"
    transient = "transient"
    temporary = "temporary"


class Verdict(StrEnum):
    """What becomes of a child that has ended."""

    restart = "restart"
    # Its spec stays, and it can be started by hand.
    keep = "keep"
    forget = "forget"


ABNORMAL = frozenset(Reason) - {Reason.normal, Reason.shutdown}

VERDICTS: dict[Restart, dict[bool, Verdict]] = {
    # restart type: {ended clean: verdict}
    Restart.permanent: {True: Verdict.restart, False: Verdict.restart},
    Restart.transient: {True: Verdict.keep, False: Verdict.restart},
    Restart.temporary: {True: Verdict.forget, False: Verdict.forget},
}


def verdict(restart: Restart, reason: Reason) -> Verdict:
    """Decide what the end of one child asks for; only the class of the reason counts."""
    return VERDICTS[restart][reason not in ABNORMAL]


class Waits(Protocol):
    """How waits grow, in seconds; `specs.Backoff` is one. Written here, because specs are built on restart types."""

    @property
    def minimum(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def jitter(self) -> float: ...
    @property
    def reset_after(self) -> float: ...


class Window:
    """The restarts that were decided of late; times are seconds on trio's clock. A value: `spend` gives another one.

    The values share one list that only grows at its end, each seeing its own part, so
    a decision costs the same however many are in the window.
    """

    __slots__ = ("_end", "_log", "_start")

    def __init__(self, entries: Iterable[float] = ()) -> None:
        """Take the times, newest first."""
        self._log = [*entries][::-1]
        self._start, self._end = 0, len(self._log)

    @property
    def entries(self) -> tuple[float, ...]:
        """Give the times, newest first."""
        return tuple(self._log[self._start : self._end][::-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"Window({self.entries})"

    def spend(self, now: float, intensity: int, period: float) -> tuple["Window", bool]:
        """Count one decision to restart, and say whether it may be carried out.

        The edge is inside: what happened exactly ``period`` ago still counts. A
        refused decision is counted as well. Spend for each decision, also for
        each repeated attempt, not for each child that it starts.
        """
        log, start, end = self._log, self._start, self._end
        while start < end and now - log[start] > period:
            start += 1
        within = end - start < intensity
        # One more than allowed is enough to say no; more could be there only after the intensity was lowered.
        start = max(start, end - intensity)
        if end < len(log) or start > max(len(log) // 2, 16):
            # Another value has gone on from here, or most of the list is past.
            log, start, end = log[start:end], 0, end - start
        log.append(now)
        after = Window()
        after._log, after._start, after._end = log, start, end + 1
        return after, within


def delay_before(k: int, backoff: Waits | None, chance: float) -> float:
    """Give the seconds to wait before the ``k``-th restart in a row of one child.

    ``chance`` is the random share of the jitter, from 0 to 1. The jitter comes on
    top, so the wait may be longer than the maximum.
    """
    assert k >= 1, "restarts in a row are counted from 1"
    if backoff is None:
        return 0.0
    try:
        grown = math.ldexp(backoff.minimum, k - 1)
    except OverflowError:
        grown = math.inf
    return min(backoff.maximum, grown) * (1.0 + chance * backoff.jitter)


def next_in_row(k: int, ran_for: float, backoff: Waits | None) -> int:
    """Number the next restart of a child whose last was the ``k``-th in a row; 0 means that it never was restarted.

    Without a backoff there is no row: should one be set later, it begins with its minimum.
    """
    if backoff is None or ran_for >= backoff.reset_after:
        return 1
    return k + 1
