"""A supervision tree as a block in a trio program.

    async with open_supervisor([spec, spec]) as top:
        await top.start_child(...)

The block's body is the embedder's own code and runs beside the tree. When the
top supervisor gives up, or a child raises what is no ``Exception``, the body is
cancelled and the reason is raised from the block. A cancel from outside ends
the tree in order first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import TracebackType
from typing import Any

import trio

from actors.errors import ChildFailed, Halted, RestartsExhausted, StartFailed
from actors.halts import Halt, HaltKind
from actors.runtime.child import Starter
from actors.runtime.exits import Exit, Reason, named
from actors.runtime.host import Host
from actors.runtime.journal import Journal
from actors.runtime.plan import Exhausted, FailedToStart, Report
from actors.runtime.specs import ChildSpec, Flags
from actors.runtime.stops import StopReceipt
from actors.runtime.supervise import Supervise, supervise
from actors.runtime.supervisor import Supervisor
from actors.runtime.supervisor_ref import SupervisorRef, stop_with_receipt


class SupervisionTree:
    """What `open_supervisor` gives; use it as a block, once."""

    def __init__(self, described: Supervise, name: str, cleanup_allowance: float) -> None:
        self.host = Host(self._outside)
        self.top = Supervisor(name, None, self.host, described)
        self.cleanup_allowance = cleanup_allowance
        # The first halt, when the tree was ended from outside or by a panic.
        self.halt: Halt | None = None
        # How each node ended, once the tree was stopped or halted.
        self.receipt: StopReceipt | None = None
        self._body = trio.CancelScope()
        self._entered = False
        self._wound_down = trio.Event()

    async def __aenter__(self) -> SupervisorRef:
        await self.host.open()
        starter = self.top.starter = Starter()
        self.host.nursery.start_soon(self.top._main, name=self.top.path)
        try:
            await starter.wait()
        except trio.Cancelled as cancelled:
            await self.__aexit__(trio.Cancelled, cancelled, None)
            raise
        if not starter.ready:
            await self._close()
            raise self._failure() or self._unready()
        self.host.services.start_soon(self._watch)
        self._body.__enter__()
        self._entered = True
        return self.top.handle

    async def _watch(self) -> None:
        end = await self.top.wait_ended()
        if not end.clean:
            self._body.cancel(reason=str(end))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        given, swallowed = error, False
        if self._entered:
            try:
                swallowed = self._body.__exit__(kind, error, trace)
            except BaseException as left:
                # What the body raised beside its own cancel; the tree ends before it goes on.
                error = left
        if self.top.exit is None and self.halt is None:
            if error is None:
                await self._stop()
            else:
                self._latch(HaltKind.interrupt, "host", named(error))
        await self._close(None if swallowed else error)
        failure = self._failure()
        if failure is not None and failure is not error:
            raise failure
        if error is not None and not swallowed and error is not given:
            raise error
        return swallowed

    async def _stop(self) -> None:
        """Stop in order, each child with its grace, all within the clean-up allowance."""
        with trio.CancelScope(shield=True):
            self.receipt = await stop_with_receipt(self.top, self.cleanup_allowance, None)

    def _unready(self) -> BaseException:
        return RuntimeError("the supervisor ended before it was ready") if self.halt is None else Halted(self.halt)

    async def _close(self, error: BaseException | None = None) -> None:
        await self.host.close(self._finish, error)

    async def _finish(self) -> None:
        if self.halt is not None:
            await self._wound_down.wait()
        await self.top.wait_ended()

    def _outside(self, by: str, reason: str, _error: BaseException | None) -> None:
        self._latch(HaltKind.interrupt, by, reason)

    def _latch(self, kind: HaltKind, by: str, reason: str) -> None:
        # When the top has ended there is nothing to stop, and the services may be closed.
        if self.halt is None and self.top.exit is None:
            self.halt = Halt(kind, by, trio.current_time(), self.top.path, reason)
            # The stop comes from a task of its own; nothing starts between the record of the halt and that.
            for node in self.top.subtree():
                if isinstance(node, Supervisor):
                    node.plan.stopping = True
            self.host.services.start_soon(self._wind_down, self.halt)

    async def _wind_down(self, halt: Halt) -> None:
        self.receipt = await self.host.wind_down(self.top, halt, self.cleanup_allowance)
        self._wound_down.set()
        self._body.cancel(reason=str(halt))

    def _failure(self) -> BaseException | None:
        if self.host.fatal is not None:
            return self.host.fatal
        end = self.top.exit
        if end is None or (end.clean and not isinstance(end.payload, FailedToStart)):
            return None
        if end.reason is Reason.killed and self.receipt is not None:
            # It was stopped, and took longer than the allowance: the receipt names who did.
            return None
        failure: Exception
        if end.reason is Reason.restarts_exhausted and isinstance(end.payload, Exhausted):
            failure = RestartsExhausted(end.payload.cause, end.payload.path, end.blame())
            failure.__cause__ = _root(end.payload.cause)
        else:
            failure = StartFailed(end) if isinstance(end.payload, FailedToStart) else ChildFailed(end)
            failure.__cause__ = _root(end)
        return failure


def _root(end: Exit) -> BaseException | None:
    while isinstance(end.payload, FailedToStart):
        end = end.payload.end
    return end.cause


def open_supervisor(
    specs: Iterable[ChildSpec | Mapping[str, Any]] = (),
    flags: Flags | Mapping[str, Any] | None = None,
    *,
    name: str = "top",
    cleanup_allowance: float = 5.0,
    extra: tuple[Any, ...] = (),
    may_restart: Callable[[Hashable, float], str | None] | None = None,
    chance: Callable[[], float] = random.random,
    on_report: Callable[[str, Report], None] | None = None,
    journal: Journal | None = None,
) -> SupervisionTree:
    """Open a tree of supervised children: ``async with open_supervisor(specs) as top``.

    ``cleanup_allowance`` is in seconds and bounds everything that ends the tree. The
    other arguments are those of `supervise`.

    Leaving the block stops the children in order. Raises from the block:

    Raises:
        ConfigError: a fault of a spec or a flag; nothing was started.
        StartFailed: a child could not start; those before it were stopped in reverse.
        RestartsExhausted: the top supervisor gave up; the body was cancelled.
        ChildFailed: the top supervisor itself failed; its children were stopped.
    """
    if not math.isfinite(cleanup_allowance) or cleanup_allowance < 0:
        raise ValueError(f"cleanup_allowance must be a finite number of seconds, not {cleanup_allowance!r}")
    described = supervise(
        specs, flags, extra=extra, may_restart=may_restart, chance=chance, on_report=on_report, journal=journal
    )
    return SupervisionTree(described, name, cleanup_allowance)
