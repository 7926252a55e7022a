"""Who held the loop: a thread that names the actor whose step let nobody else run.

There is no pre-emption: 100 ms of computing in one step stop the whole tree for
100 ms. Nobody inside the loop can see it while it lasts, so a plain thread looks.

    async with lag_watchdog(limit=0.1):
        await tree.run(root)

The loop itself keeps the figures, by an instrument that stores the running task
and the time before each step. So a stall is measured exactly, and told also when
the thread could not look because the step kept the interpreter to itself; then
only the frames are missing. Measured, it costs half a microsecond a step and as
much a turn of the loop. A crowd of many short steps is no stall.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

import attrs
import trio

from actors.runtime.child import CURRENT

log = logging.getLogger("actors.watchdog")

# Looks per limit: a stall that is a little longer than the limit is seen before it is over.
LOOKS: Final = 4
# A stall that goes on is told before its end, when it has lasted so many limits.
STILL_GOING: Final = 10
# Reports that are kept.
MOST_REPORTS: Final = 100
MOST_FRAMES: Final = 5
# How long leaving the block waits for a thread that is in somebody's ``on_lag``.
JOIN_SECONDS: Final = 0.2


@attrs.frozen
class Lag:
    """One stall of the loop.

    ``path`` is the actor whose task ran, None for a task of nobody; ``task`` is that
    task's name. ``frames`` are where the loop's thread was while it lasted, the
    innermost first; empty when nobody could look. ``over`` is False when it was told
    before its end: then ``seconds`` is how long it had lasted.
    """

    path: str | None
    task: str
    seconds: float
    frames: tuple[str, ...]
    over: bool

    def __str__(self) -> str:
        """Say it in one line."""
        who = self.path or f"the task {self.task}"
        held = "held" if self.over else "has been holding"
        where = f"; it was at {' < '.join(self.frames)}" if self.frames else ""
        return f"{who} {held} the loop for {self.seconds:.2f} s, and nobody else could run{where}"


OnLag = Callable[[Lag], None]


def warn(lag: Lag) -> None:
    """Log a stall as a warning."""
    log.warning("%s", lag)


class Watchdog:
    """What the block of `lag_watchdog` is given: the stalls so far."""

    def __init__(self, limit: float, on_lag: OnLag) -> None:
        self._steps = _Steps(limit)
        self._limit = limit
        self._on_lag = on_lag
        self._reports: deque[Lag] = deque(maxlen=MOST_REPORTS)
        self._loop = threading.get_ident()
        self._stop = threading.Event()
        # The stall that is looked at, by the time it began: where it was, and whether it was told.
        self._seen = 0.0
        self._frames: tuple[str, ...] = ()
        self._told = False
        self.count = 0
        self.thread = threading.Thread(target=self._watch, name="actors lag watchdog", daemon=True)

    @property
    def reports(self) -> tuple[Lag, ...]:
        """Give the latest stalls, the oldest first."""
        return tuple(self._reports)

    # ── in the loop's thread ────────────────────────────────────────────────

    def start(self) -> None:
        """Begin to look."""
        trio.lowlevel.add_instrument(self._steps)
        self.thread.start()

    def stop(self) -> None:
        """Look no more; what is over by now is still told."""
        trio.lowlevel.remove_instrument(self._steps)
        self._steps.leave()
        self._stop.set()
        self.thread.join(JOIN_SECONDS)
        if self.thread.is_alive():
            log.warning("on_lag has not returned; its thread ends when it does")

    # ── in the thread that looks ────────────────────────────────────────────

    def _watch(self) -> None:
        while not self._stop.wait(self._limit / LOOKS):
            self._look()
        self._tell_ended()

    def _look(self) -> None:
        self._tell_ended()
        began, task = self._steps.began, self._steps.task
        held = time.perf_counter() - began
        if task is None or held < self._limit or self._steps.began != began:
            return
        if began != self._seen:
            frames = _frames(self._loop)
            # The step may have ended meanwhile: then these are the frames of another one.
            if self._steps.began != began:
                return
            self._seen, self._frames, self._told = began, frames, False
        if not self._told and held >= STILL_GOING * self._limit:
            self._told = True
            self._tell(Lag(_path(task), task.name, held, self._frames, over=False))

    def _tell_ended(self) -> None:
        while self._steps.ended:
            stall = self._steps.ended.popleft()
            seen = stall.began == self._seen
            if not (seen and self._told):
                frames = self._frames if seen else ()
                self._tell(Lag(stall.path, stall.task, stall.seconds, frames, over=True))

    def _tell(self, lag: Lag) -> None:
        self.count += 1
        self._reports.append(lag)
        try:
            self._on_lag(lag)
        except Exception:
            log.exception("on_lag failed")


@attrs.frozen
class _Stall:
    """A step that was too long, as the loop measured it."""

    path: str | None
    task: str
    began: float
    seconds: float


class _Steps(trio.abc.Instrument):
    """The marker of the running step. Called for every step of every task, so it does as little as can be."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.task: trio.lowlevel.Task | None = None
        self.began = time.perf_counter()
        # The thread takes them out; it may be kept from running, so they are bounded.
        self.ended: deque[_Stall] = deque(maxlen=MOST_REPORTS)

    def before_task_step(self, task: trio.lowlevel.Task, _now: Callable[[], float] = time.perf_counter) -> None:
        now = _now()
        if now - self.began >= self._limit:
            self._overdue(now)
        # In this order: who reads the same time before and after the task has read both of one step,
        # or a time that has only begun.
        self.began = now
        self.task = task

    def before_io_wait(self, timeout: float) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the last step of a turn: nobody holds the loop while it waits, which the missing task tells."""
        now = time.perf_counter()
        if now - self.began >= self._limit:
            self._overdue(now)
        self.task = None
        self.began = now

    def _overdue(self, now: float) -> None:
        task = self.task
        if task is not None:
            self.ended.append(_Stall(_path(task), task.name, self.began, now - self.began))


def _path(task: trio.lowlevel.Task) -> str | None:
    child = task.context.get(CURRENT)
    return None if child is None else child.path


def _frames(thread: int) -> tuple[str, ...]:
    """Give where a thread is, the innermost frame first, down to the step of trio that runs it."""
    shown: list[str] = []
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and len(shown) < MOST_FRAMES:
        code = frame.f_code
        if code.co_filename == trio.run.__code__.co_filename:
            break
        shown.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return tuple(shown)


@asynccontextmanager
async def lag_watchdog(*, limit: float = 0.1, on_lag: OnLag = warn) -> AsyncIterator[Watchdog]:
    """Report whoever holds the loop for ``limit`` seconds or more, once for each stall, for as long as the block.

    ``on_lag`` is called in the watchdog's thread, at the end of a stall, or earlier when
    it lasts: it must not touch trio. By default a warning is logged.

    Cancellation: nobody looks any more.

    Raises:
        ValueError: ``limit`` is no time.
    """
    if type(limit) not in (int, float) or not math.isfinite(limit) or limit <= 0:
        raise ValueError(f"limit must be a finite number of seconds above 0, not {limit!r}")
    watchdog = Watchdog(limit, on_lag)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
