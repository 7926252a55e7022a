"""The scope a tree lives under: shielded from outside, and ended in order.

Cancelling an outer scope over many nested nurseries kills trio (it builds the
reason of the cancel level by level). So the tree never sees the embedder's
cancel: it runs in a nursery under a shield, and a *sentinel* task outside the
shield turns the cancel into a halt. What follows is leaf first and bounded.

    nursery of the embedder
      └ host nursery ── body of the user's ``async with`` (not shielded)
           ├ sentinel (not shielded; sleeps for ever)
           └ shelter (shielded) ── services ── tree
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final

import trio

from actors.runtime.child import Child
from actors.runtime.dead_letters import DeadLetters
from actors.runtime.deadlines import Deadlines
from actors.runtime.exits import panic_in, text_of, without_cancelled
from actors.runtime.registry import Registry
from actors.runtime.stops import How, Stopped, StopReceipt
from actors.runtime.threads import Threads
from actors.runtime.wait_graph import Wait, WaitGraph

log = logging.getLogger("actors.host")

KILL_WAIT = 1.0
# A child that swallows its cancel in a hot loop stops a test clock: after so many turns real time counts as well.
KILL_TURNS = 1_000


class Host:
    """A shelter for one tree.

    ``on_outside`` is called in sync code when the world outside wants the tree to
    end: with ``"host"`` and the reason found in the cancel, or with the path of
    a child and what it raised. It must order the stop and not raise.

    Use it as ``async with host:``. Leaving waits until every task under the
    shelter has left, at most the clean-up allowance and the kill wait, except
    for a task that swallows its cancel: that one is waited for, and named in
    the log.
    """

    def __init__(self, on_outside: Callable[[str, str, BaseException | None], None]) -> None:
        self._on_outside = on_outside
        self.deadlines = Deadlines()
        self.dead_letters = DeadLetters()
        self.registry: Registry[Any] = Registry()
        self.waits: WaitGraph
        self.services: trio.Nursery
        self.nursery: trio.Nursery
        self.fatal: BaseException | None = None
        # Tasks that were given up and have not left; a late one leaves this table.
        self.abandoned: dict[Child, None] = {}
        self.threads = Threads()
        self._outer: trio.Nursery
        self._manager: AbstractAsyncContextManager[trio.Nursery]
        self._ready = trio.Event()
        self._leave = trio.Event()
        self._left = trio.Event()
        self._over = False

    # ── what children need ──────────────────────────────────────────────────

    def panic(self, child: Child, error: BaseException) -> None:
        """Take an exception that ends the whole tree; the first one is raised again by the host."""
        # What ends the tree comes out as itself, also when it went through nurseries of the child's own.
        error = panic_in(error)
        if self.fatal is None:
            self.fatal = error
        self._on_outside(child.path, f"{type(error).__name__}: {text_of(error)}".rstrip(": "), error)

    def closing_failed(self, child: Child, error: BaseException) -> None:
        """Note an end whose accounts could not be closed."""
        log.error("%s ended, and its accounts could not be closed: %s", child.path, text_of(error), exc_info=error)

    def stray(self, child: Child, error: BaseException | None = None) -> None:
        """Note a task that left long after it had been given up; its end stands, and what it raised is only logged."""
        self.abandoned.pop(child, None)
        if error is None:
            log.warning("%s has left after it was recorded as killed", child.path)
        else:
            log.error("%s has left after it was recorded as killed, and raised", child.path, exc_info=error)

    # ── life ────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Open the shelter.

        Cancellation: nothing is open; a cancel that comes while opening is seen by the sentinel.
        """
        self.waits = _waits_of_run()
        self._manager = trio.open_nursery()
        self._outer = await self._manager.__aenter__()
        self._outer.start_soon(self._shelter)
        # One turn of the scheduler: the shelter has no checkpoint before it is ready.
        with trio.CancelScope(shield=True):
            await self._ready.wait()
        self._outer.start_soon(self._sentinel)

    @trio.lowlevel.enable_ki_protection
    async def _shelter(self) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self.services:
                self.services.start_soon(self.deadlines.run)
                async with trio.open_nursery() as self.nursery:
                    self._ready.set()
                    await self._leave.wait()
                self._left.set()
                self.services.cancel_scope.cancel()

    async def _sentinel(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            # Whichever task the cancel reaches first, the tree hears of it: also when the body has begun to leave.
            if not self._over:
                self._on_outside("host", getattr(cancelled, "reason", None) or "the host scope was cancelled", None)
            raise

    async def close(
        self, finish: Callable[[], Awaitable[None]] | None = None, error: BaseException | None = None
    ) -> None:
        """Leave the shelter once the tree has ended; run ``finish`` after it, before services stop.

        ``error`` is what the block was left with: the embedder's cancel does not take its place.

        Cancellation: shielded; the tree must have been told to end.

        Raises:
            BaseException: what a child raised that ends the whole tree, also when the embedder cancelled it.
        """
        with trio.CancelScope(shield=True):
            if finish is not None:
                await finish()
            self._leave.set()
            await self._left.wait()
        self._over = True
        self._outer.cancel_scope.cancel()
        try:
            # The embedder's own cancel, if there is one, goes on from here.
            await self._manager.__aexit__(None, None, None)
        except BaseException as cancelled:
            if without_cancelled(cancelled) is not None:
                raise
            # The cancel is told again at the next checkpoint; an error that gave way to it would never be.
            if self.fatal is not None:
                raise self.fatal from None
            if error is None or without_cancelled(error) is None:
                raise

    # ── stopping ────────────────────────────────────────────────────────────

    async def wind_down(self, top: Child, why: object, allowance: float) -> StopReceipt:
        """Stop ``top`` and all below it, leaf first, and say how each ended.

        Asked tasks have ``allowance`` seconds to clean up; then what is left is
        cancelled without waiting for children, and after the kill wait what is
        still there is recorded as killed and named.

        Cancellation: shielded; takes at most the allowance and the kill wait.
        """
        asked_at = trio.current_time()
        # Also those that were asked before, by a stop that is under way.
        asked = [node for node in top.subtree() if node.exit is None]
        top.order_stop(why)
        with trio.CancelScope(shield=True):
            with trio.move_on_after(allowance):
                await top.wait_ended()
            late: set[Child] = set()
            if top.exit is None:
                late = {node for node in top.subtree() if node.exit is None}
                top.order_kill()
                await self._kill_wait([top])
        gone = set(top.abandon()) if top.exit is None else set()
        self.abandoned.update(dict.fromkeys(gone))
        lines = tuple(_line(node, asked_at, late, gone) for node in asked)
        return StopReceipt(asked_at, trio.current_time(), lines, self.threads.left_by(asked))

    async def stop_children(self, graces: Sequence[tuple[Child, float | None]], why: object) -> None:
        """Ask all to stop in this very step, give each its grace in seconds, then kill what is left.

        A grace of None asks nobody: the child is killed at once. Returns when all have
        ended; whoever is still there after the kill wait is recorded as killed, not left.

        Cancellation: whoever was asked goes on ending; nobody is killed.
        """
        asked_at = trio.current_time()
        for child, grace in graces:
            if child.exit is not None:
                continue
            if grace is None:
                child.order_kill()
            else:
                child.request_stop(why)
        late = [child for child, grace in graces if grace is None]
        waited: dict[float, list[Child]] = {}
        for child, grace in graces:
            if grace is not None:
                waited.setdefault(grace, []).append(child)
        for grace in sorted(waited):
            with trio.CancelScope(deadline=asked_at + grace):
                for child in waited[grace]:
                    await child.wait_ended()
            for child in waited[grace]:
                if child.exit is None:
                    child.order_kill()
                    late.append(child)
        late = [child for child in late if child.exit is None]
        if late:
            await self._kill_wait(late)
            for child in late:
                if child.exit is None:
                    self.abandoned.update(dict.fromkeys(child.abandon()))

    async def _kill_wait(self, tops: Sequence[Child]) -> None:
        with trio.move_on_after(KILL_WAIT) as scope:
            turns = _Turns(scope)
            trio.lowlevel.add_instrument(turns)
            try:
                for top in tops:
                    await top.wait_ended()
            finally:
                trio.lowlevel.remove_instrument(turns)

    def shelters(self, task: Any) -> bool:
        """Tell whether ``task`` runs under this shelter."""
        nursery = task.parent_nursery
        while nursery is not None:
            if nursery in (self.nursery, self.services):
                return True
            nursery = nursery.parent_task.parent_nursery
        return False

    async def __aenter__(self) -> Host:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(error=error)


class _Turns(trio.abc.Instrument):
    """End the kill wait when the loop has been turning all the while, whatever a test clock says."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope
        self._turns = 0
        self._began = time.monotonic()

    def before_io_wait(self, timeout: float) -> None:
        self._turns += 1
        if self._turns >= KILL_TURNS and time.monotonic() - self._began >= KILL_WAIT:
            self._scope.cancel()


# One graph for all trees of a run: an agent of one may ask an actor of another, which waits for an agent of the first.
_WAITS: Final[trio.lowlevel.RunVar[WaitGraph]] = trio.lowlevel.RunVar("actors.waits")


def _waits_of_run() -> WaitGraph:
    try:
        return _WAITS.get()
    except LookupError:
        graph = WaitGraph(_path_of, _marked, _works_beside)
        _WAITS.set(graph)
        return graph


def _marked(node: Any) -> Wait | None:
    """Give the wait that a node has by a mark of its own: for the end of a child, or for a limit's slot."""
    target = node.awaits
    if target is None:
        return None
    if type(target) is tuple:
        # A limit, and who holds all of it.
        return Wait(node, "", True, True, target)
    if node.scope.cancel_called:
        # It is on its way out, and waits no more.
        return None
    return Wait(node, "the end of" if isinstance(target, Child) else target.waited_for, False, True, (target,))


def _works_beside(node: Any) -> bool:
    """Tell whether the work of a node has tasks beside its own, which may give back what it holds."""
    task = node.task
    return task is not None and any(
        nursery is not node._nursery and nursery.child_tasks for nursery in task.child_nurseries
    )


def _path_of(node: Any) -> str:
    return str(getattr(node, "path", node))


def _line(node: Child, asked_at: float, late: set[Child], gone: set[Child]) -> Stopped:
    if node in gone or (node.exit is not None and not node.exit.left):
        return Stopped(node.path, asked_at, None, How.did_not_end)
    how = How.killed if node in late else How.clean
    return Stopped(node.path, asked_at, None if node.exit is None else node.exit.ended_at, how)
