"""Work that is done once beside an actor, and ordered streams of it.

A task runs under a dynamic supervisor, is never started again, and gives its
result to whoever started it, once:

    task = await start_task(workers, resize, image)
    small = await task.result(timeout=5)

    async with stream(workers, resize, images, most=4) as results:
        async for done in results:      # in the order of ``images``
            ...

A linked task is stopped when the actor that started it ends, and the actor ends
when the task fails. An unlinked one leaves the actor a `Down` message, unless its
result is awaited first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from actors.errors import ChildFailed, ChildRefused
from actors.runtime.actor import waiting_for
from actors.runtime.behaviour import BehaviourActor
from actors.runtime.child import CURRENT, Child
from actors.runtime.deadlines import Entry, judged_timeout
from actors.runtime.exits import Exit, Reason
from actors.runtime.links import Monitor, child_of, link_task
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec
from actors.runtime.supervisor import SupervisorRef

R = TypeVar("R")
T = TypeVar("T")


class TaskHandle(Generic[R]):
    """One task: its ref, and its result."""

    def __init__(self, ref: Any, monitor: Monitor | None) -> None:
        self.ref = ref
        self._child = child_of(ref)
        self._monitor = monitor

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end and give what the function returned.

        After this no `Down` comes of the task, also if it took too long: then the task
        goes on, and its result reaches nobody.

        Cancellation: the task is not disturbed.

        Raises:
            ChildFailed: it ended abnormally or was stopped; the original exception is the cause.
            trio.TooSlowError: no end within ``timeout`` seconds.
            WouldDeadlock: the task waits for the one who awaits it, perhaps through others.
        """
        if self._monitor is not None:
            self._monitor.demonitor()
        judged_timeout(timeout)
        with waiting_for(self._child, "the result of"), trio.fail_after(math.inf if timeout is None else timeout):
            exit = await self._child.wait_ended()
        if exit.reason is not Reason.normal:
            raise ChildFailed(exit) from exit.cause
        value: R = self._child.value
        return value


async def start_task(
    supervisor: SupervisorRef, function: Callable[..., Awaitable[R]], *args: Any, linked: bool = True
) -> TaskHandle[R]:
    """Run ``function(*args)`` under a dynamic supervisor.

    Called by an actor, a ``linked`` task is stopped when the actor ends, however it ends,
    and the actor ends when the task fails; unlinked, the actor gets one `Down`. Called by
    any other task, the result alone tells.

    Cancellation: nothing was started.

    Raises:
        ChildRefused: the supervisor did not start it: ``max_children``, ``stopping`` or ``error``.
    """
    spec = ChildSpec(getattr(function, "__qualname__", "task"), function, args, Restart.temporary)
    answer = await supervisor.start_child(spec)
    if answer.ref is None:
        raise ChildRefused(supervisor.path, answer.word, answer.reason)
    starter = CURRENT.get()
    monitor = None
    # It may have ended already, as its supervisor may have answered some turns ago: then its true end is told.
    if starter is not None and linked:
        link_task(starter, answer.ref)
    elif isinstance(starter, BehaviourActor):
        monitor = Monitor(starter, answer.ref, known=True)
    return TaskHandle(answer.ref, monitor)


class OnTimeout(StrEnum):
    """What becomes of an item that takes too long."""

    # The whole stream fails with `trio.TooSlowError`; what runs is stopped.
    fail = "fail"
    # That item alone is stopped, and its result says so.
    kill = "kill"


@attrs.frozen
class Done(Generic[R]):
    """The result of one item: ``value``, or the ``exit`` of a task that gave none."""

    value: R | None
    exit: Exit
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.exit.reason is Reason.normal


@attrs.define(eq=False)
class _Item:
    child: Child
    limit: Entry | None = None
    timed_out: bool = False


class Stream(Generic[R]):
    """Results in the order of the items, at most ``most`` of which run at once. Make it with `stream`."""

    def __init__(
        self,
        supervisor: SupervisorRef,
        function: Callable[[Any], Awaitable[R]],
        items: Iterable[Any],
        most: int,
        timeout: float | None,
        on_timeout: OnTimeout,
    ) -> None:
        self._supervisor = supervisor
        self._function = function
        self._items = iter(items)
        self._most = most
        self._timeout = timeout
        self._on_timeout = on_timeout
        self._running: deque[_Item] = deque()
        self._exhausted = False
        # Taken from the items, and not started yet: a cancel may come in between.
        self._next: Any = _NONE

    async def __aenter__(self) -> Stream[R]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def __aiter__(self) -> Stream[R]:
        return self

    async def __anext__(self) -> Done[R]:
        """Give the result of the next item.

        Cancellation: the item goes on, and its result is given next time.

        Raises:
            ChildRefused: the supervisor takes no more children; what was begun is stopped.
            trio.TooSlowError: an item took too long, and the stream is to fail.
            WouldDeadlock: the item waits for the one who reads the stream, perhaps through others.
        """
        await self._fill()
        if not self._running:
            raise StopAsyncIteration
        first = self._running[0]
        with waiting_for(first.child, "the result of"):
            exit = await first.child.wait_ended()
        self._running.popleft()
        if first.limit is not None:
            first.limit.cancel()
        if first.timed_out and self._on_timeout is OnTimeout.fail:
            await self._stop()
            raise trio.TooSlowError(f"{first.child.path} took longer than {self._timeout:g} s")
        return Done(first.child.value if exit.reason is Reason.normal else None, exit, first.timed_out)

    async def _fill(self) -> None:
        while not self._exhausted and len(self._running) < self._most:
            try:
                if self._next is _NONE:
                    self._next = next(self._items)
            except StopIteration:
                self._exhausted = True
                return
            try:
                handle = await start_task(self._supervisor, self._function, self._next, linked=False)
            except ChildRefused:
                await self._stop()
                raise
            self._next = _NONE
            started = _Item(child_of(handle.ref))
            if handle._monitor is not None:
                # The result tells; a message beside it would tell twice.
                handle._monitor.demonitor()
            self._running.append(started)
            if self._timeout is not None:
                at = trio.current_time() + self._timeout
                started.limit = started.child.host.deadlines.at(at, partial(_out_of_time, started))

    async def _stop(self) -> None:
        """Stop what still runs, and wait for it."""
        self._exhausted = True
        for item in self._running:
            if item.limit is not None:
                item.limit.cancel()
        left = [item for item in self._running if item.child.exit is None]
        self._running.clear()
        if left:
            with trio.CancelScope(shield=True):
                graces = [(item.child, float(_GRACE)) for item in left]
                await left[0].child.host.stop_children(graces, "the stream was left")


_GRACE = 5.0
# No item was taken; an item may be None.
_NONE: Final = object()


def _out_of_time(item: _Item) -> None:
    if item.child.exit is None:
        item.timed_out = True
        item.child.order_kill()
        # Its end is waited for within the kill wait, by the host: whoever reads the stream may be elsewhere.
        host = item.child.host
        host.services.start_soon(host.stop_children, [(item.child, None)], None)


def stream(
    supervisor: SupervisorRef,
    function: Callable[[T], Awaitable[R]],
    items: Iterable[T],
    *,
    most: int,
    timeout: float | None = None,
    on_timeout: OnTimeout | str = OnTimeout.fail,
) -> Stream[R]:
    """Run ``function`` over ``items`` under a dynamic supervisor: ``async with stream(...) as results``.

    ``timeout`` in seconds counts for each item from its start. Leaving the block stops
    what still runs.
    """
    if type(most) is not int or most < 1:
        raise ValueError(f"most must be a whole number from 1 on, not {most!r}")
    if timeout is not None and not 0 <= timeout < float("inf"):
        raise ValueError(f"timeout must be a finite number of seconds from 0 on, not {timeout!r}")
    return Stream(supervisor, function, items, most, timeout, OnTimeout(on_timeout))
