"""Blocking calls in worker threads, which nobody can cancel.

A thread goes on whatever happens to the actor that waits for it. So each call
says what a stop does: wait until the thread is done, or abandon it. Whoever
abandons pays with a thread that still runs, and that still holds its place among
the threads that trio lets run at once. It is counted and named until it is done,
and what it brings then reaches nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

import attrs
import trio

from actors.runtime.child import CURRENT, Child
from actors.runtime.stops import AbandonedThread

R = TypeVar("R")


class OnStop(StrEnum):
    """What a stop does about a call that blocks."""

    # The actor ends when the thread is done; after its grace and the kill wait it is named as not ended.
    wait = "wait"
    # The actor ends at once, and the thread goes on without it.
    abandon = "abandon"


@attrs.frozen
class ThreadCounts:
    """The threads of one tree, as they are at this moment.

    ``running`` are waited for, ``going_on`` were abandoned and are not done yet;
    ``abandoned`` were in all, and ``finished_late`` of them are done by now.
    """

    running: int
    going_on: tuple[AbandonedThread, ...]
    abandoned: int
    finished_late: int


@attrs.define(eq=False)
class _Call:
    """One call. Its three marks change under the lock alone, as the thread and the loop both set them."""

    begun: bool = False
    given_up: bool = False
    done: bool = False


class Threads:
    """The threads of one tree. ``statistics`` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: dict[_Call, AbandonedThread] = {}
        self._running = 0
        self._abandoned = 0
        self._finished_late = 0

    def statistics(self) -> ThreadCounts:
        """Count them."""
        with self._lock:
            return ThreadCounts(self._running, tuple(self._going_on.values()), self._abandoned, self._finished_late)

    def begin(self, call: _Call) -> bool:
        """Hear in the thread that it begins; tell whether anybody still wants what it does."""
        with self._lock:
            call.begun = not call.given_up
            self._running += call.begun
            return call.begun

    def end(self, call: _Call) -> None:
        """Hear in the thread that it is done."""
        with self._lock:
            call.done = True
            if self._going_on.pop(call, None) is None:
                self._running -= 1
            else:
                self._finished_late += 1

    def give_up(self, call: _Call, thread: AbandonedThread) -> None:
        """Hear in the loop that nobody waits for it any more; one that has not begun never does."""
        with self._lock:
            call.given_up = True
            if call.begun and not call.done:
                self._running -= 1
                self._abandoned += 1
                self._going_on[call] = thread

    def left_by(self, children: Iterable[Child]) -> tuple[AbandonedThread, ...]:
        """Give those that were abandoned by one of these, and go on."""
        if not self._going_on:
            return ()
        paths = {child.path for child in children}
        return tuple(thread for thread in self.statistics().going_on if thread.path in paths)


async def run_in_thread(
    function: Callable[..., R],
    *args: Any,
    on_stop: OnStop | str = OnStop.wait,
    limiter: trio.CapacityLimiter | None = None,
) -> R:
    """Run ``function(*args)`` in a worker thread, and give what it gives.

    ``on_stop`` says what a cancel does. ``limiter`` bounds how many run at once, by default
    trio's own 40 for the whole process; an abandoned thread counts until it is done.

    Checkpoint: always.
    Cancellation: with ``wait``, the thread is waited for and its result given; the cancel
    comes at the next checkpoint. With ``abandon``, unknown: the thread goes on, and its
    result or error reaches nobody. One that had not begun never runs.

    Raises:
        ValueError: ``on_stop`` is no such policy; nothing was started.
    """
    policy = OnStop(on_stop)
    caller = CURRENT.get()
    # Outside of a tree there is nobody to show it to.
    threads = Threads() if caller is None else caller.host.threads
    call = _Call()

    def in_thread() -> Any:
        if not threads.begin(call):
            return None
        try:
            return function(*args)
        finally:
            threads.end(call)

    try:
        abandon = policy is OnStop.abandon
        result: R = await trio.to_thread.run_sync(in_thread, abandon_on_cancel=abandon, limiter=limiter)
    except trio.Cancelled:
        path = "" if caller is None else caller.path
        name = getattr(function, "__qualname__", None) or type(function).__name__
        threads.give_up(call, AbandonedThread(path, name, trio.current_time()))
        raise
    return result
