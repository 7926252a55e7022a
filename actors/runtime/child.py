"""A supervised task, and the tree of them.

Every task of a tree runs in one wrapper, `Child._main`. The wrapper catches
every end inside the task itself, so no sibling is ever cancelled by accident,
and records it once as an `Exit`.

The work of a child runs in a scope that lies *inside* the nursery of its own
children:

    nursery of the parent
      └ task of the child:  nursery of its children ( scope ( work ) )

So cancelling a child's work never reaches into its children's tasks, and a
chain of 2,000 of them is never cancelled as nested scopes, which kills trio
itself. Stopping is leaf first all the same: a child that is told to stop is
cancelled when its last child has ended, by that child, in one sync step.

Scopes are made with the child, before its task first runs, so a stop between
start and first step is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import attrs
import trio

from actors.errors import ActorsError, Stopping
from actors.runtime.exits import Exit, Reason, first_of, root_cause, swallowed_by, text_of, without_cancelled

if TYPE_CHECKING:
    from actors.runtime.dead_letters import DeadLetters
    from actors.runtime.deadlines import Deadlines
    from actors.runtime.registry import Registry
    from actors.runtime.threads import Threads
    from actors.runtime.wait_graph import WaitGraph


# The members by themselves: looking one up in its Enum costs as much as a call, and every end passes here.
NORMAL: Final = Reason.normal
SHUTDOWN: Final = Reason.shutdown
KILLED: Final = Reason.killed

# The child whose work the running task belongs to. Tasks that the work starts inherit it.
CURRENT: ContextVar[Child | None] = ContextVar("actors.current", default=None)


class Starter:
    """Where a start waits: parked until the child is ready or has ended. Made by whoever starts it."""

    __slots__ = ("_task", "extra", "over", "ready")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self.over = False
        self.ready = False
        self.extra: Any = None

    def resolve(self, *, ready: bool, extra: Any = None) -> None:
        """Note what came of the start; the first note counts."""
        if self.over:
            return
        self.over, self.ready, self.extra = True, ready, extra
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait(self) -> None:
        """Wait until the start is over.

        Checkpoint: only if it is not.
        Cancellation: the child goes on.
        """
        if self.over:
            return
        self._task = trio.lowlevel.current_task()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class Owner(Protocol):
    """What a child needs of the host it runs under."""

    deadlines: Deadlines
    dead_letters: DeadLetters
    registry: Registry[Any]
    threads: Threads
    waits: WaitGraph
    # Where what goes on beside its tree runs.
    services: trio.Nursery

    def panic(self, child: Child, error: BaseException) -> None:
        """Take an exception that is no ``Exception``: the whole tree must end, and the host raises it."""
        ...

    def closing_failed(self, child: Child, error: BaseException) -> None:
        """Hear that the accounts of a child could not be closed."""
        ...

    async def stop_children(self, graces: Sequence[tuple[Child, float | None]], why: object) -> None:
        """Stop children, each within its grace. Cancellation: whoever was asked goes on ending."""
        ...

    def stray(self, child: Child, error: BaseException | None) -> None:
        """Hear that a task left after its end had been recorded as ``killed``, and what it raised."""
        ...


@attrs.frozen
class LinkedStop:
    """The why of a stop that a link ordered: the end of the other side."""

    exit: Exit

    def __str__(self) -> str:
        return f"linked to {self.exit}"


@runtime_checkable
class Startable(Protocol):
    """What a ``start`` may give besides a coroutine: something that makes its own kind of child."""

    def as_child(self, path: str, parent: Child, host: Any, spec: Any) -> Child:
        """Make the child that runs this."""
        ...


class Child:
    """One task under a supervisor. Subclasses give it work.

    ``may_parent`` decides whether it opens a nursery: what cannot have children
    costs half as much. ``exit`` is None while it lives.
    """

    __slots__ = ("__weakref__", "_closing_as", "_ended", "_killed", "_nursery", "_stop_at", "_stop_why", "awaits", "children", "exit", "host", "links", "may_parent", "parent", "path", "scope", "starter", "task", "value", "watchers")  # noqa: E501

    def __init__(self, path: str, parent: Child | None, host: Owner, *, may_parent: bool) -> None:
        self.path = path
        self.parent = parent
        self.host = host
        self.may_parent = may_parent
        self.scope = trio.CancelScope()
        # Order of insertion is the order of starting; ended children leave it at once.
        self.children: dict[Child, None] | None = None
        self.exit: Exit | None = None
        self.value: Any = None
        self._nursery: trio.Nursery | None = None
        # Tasks parked until the end; most children have one or none.
        self._ended: list[trio.lowlevel.Task] | None = None
        self._stop_at: float | None = None
        self._stop_why: object = None
        self._killed = False
        # Who waits for this one to be ready; most children are ready when they run.
        self.starter: Starter | None = None
        # The task of its work, while that runs.
        self.task: trio.lowlevel.Task | None = None
        # Whose end its own task waits for now; a mark for the wait-for graph.
        self.awaits: Child | None = None
        # Who is told of the end besides the parent: monitors and links. Sync; must not raise.
        self.watchers: dict[Callable[[Exit], None], None] | None = None
        # Whom it ends with, and the two watchers of each link.
        self.links: dict[Child, tuple[Callable[[Exit], None], Callable[[Exit], None]]] | None = None

    # ── what a subclass gives ───────────────────────────────────────────────

    async def work(self) -> Any:
        """Do what this child is for; its return value is the result.

        Cancellation: the child ends as ``shutdown``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no work")

    def is_echo(self, error: BaseException) -> bool:
        """Tell whether an error only repeats the stop that was ordered: then the end is a shutdown."""
        return False

    def resting(self) -> None:
        """Hear that the work is over while children may still run. Sync; must not raise."""

    @property
    def returns(self) -> bool:
        """Whether something of it, a name or messages, waits for its next incarnation."""
        return False

    def followed_by(self, child: Child) -> None:
        """Hear of the next incarnation, before that one runs. Sync; must not raise."""

    def let_go(self) -> None:
        """Hear that there is no next incarnation. Sync; must not raise."""

    def ended(self, exit: Exit) -> None:
        """Hear that everything is over, children included, just before the end is told on. Sync; must not raise."""

    def must_close(self) -> bool:
        """Tell whether there are accounts to close; whoever overrides `closing` says so here."""
        return False

    async def closing(self, exit: Exit) -> Exit | None:
        """Close accounts when work and children have ended; called under a shield that the host bounds.

        Give the end anew if it has become another one by that; the time is put into it afterwards.

        Cancellation: what was not closed stays for whoever reads the store.
        """
        return None

    # ── starting ────────────────────────────────────────────────────────────

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop, or has ended."""
        return self._stop_at is not None or self.exit is not None

    def start_child(self, child: Child) -> None:
        """Start ``child`` below this one, in the running step; no checkpoint.

        Raises:
            Stopping: its work is over, it is told to stop, or it can have no children. Nothing was started.
        """
        if self._nursery is None or self.stopping:
            raise Stopping(f"{self.path} is ending, or can have no children")
        self.adopt(child, self._nursery)

    def adopt(self, child: Child, nursery: trio.Nursery) -> None:
        """Run ``child`` in ``nursery`` as one of this one's children."""
        if self.children is None:
            self.children = {}
        nursery.start_soon(child._main, name=child.path)
        self.children[child] = None

    # ── the wrapper ─────────────────────────────────────────────────────────

    @trio.lowlevel.enable_ki_protection
    async def _main(self) -> None:
        reason, raised, lost = KILLED, None, None
        try:
            if self.may_parent:
                async with trio.open_nursery() as self._nursery:
                    reason, raised, lost = await self._guarded()
                    # Whoever else holds this one starts nothing below it any more, while its children go on.
                    self._nursery = None
                    self.resting()
            else:
                reason, raised, lost = await self._guarded()
                self.resting()
        finally:
            # Only a cancel of the whole host can arrive here as an exception; the end is recorded all the same.
            if self.exit is not None:
                self.host.stray(self, raised or lost)
            elif self.must_close():
                await self._close(self._exit(reason, raised, lost))
            else:
                self.record(self._exit(reason, raised, lost))

    async def _guarded(self) -> tuple[Reason, BaseException | None, BaseException | None]:
        raised: BaseException | None = None
        lost: BaseException | None = None
        CURRENT.set(self)
        self.task = trio.lowlevel.current_task()
        with self.scope:
            try:
                self.value = await self.work()
                return NORMAL, None, None
            except BaseException as error:
                raised = without_cancelled(error)
                if raised is None and self.scope.cancel_called:
                    lost = swallowed_by(error)
                    if isinstance(error, BaseExceptionGroup):
                        # The scope would split the group, and not every group can be split.
                        raise first_of(error) from None
                    raise
                if raised is None:
                    # Let through, it would cancel the parent's nursery, and with it every sibling.
                    raised = RuntimeError("a Cancelled that belongs to no scope of this task was raised")
                    raised.__cause__ = error
        if raised is None or (self._stop_at is not None and self.is_echo(raised)):
            return KILLED if self._killed else SHUTDOWN, None, lost
        if not isinstance(raised, Exception):
            self.host.panic(self, raised)
        return Reason.error, raised, None

    async def _close(self, exit: Exit) -> None:
        self._closing_as: Exit = exit
        try:
            exit = await self.closing(exit) or exit
        except Exception as error:
            # An end that cannot be closed is an end all the same: whoever waits for it must not wait for ever.
            self.host.closing_failed(self, error)
            exit = attrs.evolve(exit, lost=exit.lost or error)
        except BaseException as error:
            real = without_cancelled(error)
            if real is None:
                raise
            # Let through, it would end the host's own tasks, and nobody would be left to end the tree.
            self.host.panic(self, real)
            exit = attrs.evolve(exit, lost=exit.lost or real)
        finally:
            del self._closing_as
            if self.exit is None:
                self.record(attrs.evolve(exit, ended_at=trio.current_time()))
            else:
                self.host.stray(self, exit.raised or exit.lost)

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        cause = None if raised is None else root_cause(raised)
        why = self._stop_why
        if type(why) is LinkedStop and reason is SHUTDOWN:
            other = why.exit
            return Exit(
                self.path,
                other.reason,
                trio.current_time(),
                cause=other.cause,
                payload=other.payload,
                lost=lost,
                asked_at=self._stop_at,
            )
        return Exit(
            self.path,
            reason,
            trio.current_time(),
            cause=cause,
            raised=raised,
            payload=self._stop_why if reason in (SHUTDOWN, KILLED) else None,
            lost=lost,
            asked_at=self._stop_at,
        )

    def record(self, exit: Exit) -> None:
        """Record the end, once, and tell the parent and whoever waits."""
        if self.exit is not None:
            return
        self.exit = exit
        self.ended(exit)
        if self.starter is not None:
            self.starter.resolve(ready=False)
        if self._ended is not None:
            waiting, self._ended = self._ended, None
            for task in waiting:
                trio.lowlevel.reschedule(task)
        if self.parent is not None:
            self.parent._child_left(self)
        # No task of it is kept, nor who watched it: what has ended holds nothing.
        self.task = None
        if self.watchers is not None:
            watchers, self.watchers = self.watchers, None
            for watcher in watchers:
                watcher(exit)

    def watch(self, watcher: Callable[[Exit], None]) -> None:
        """Call ``watcher`` once with the end, in the step that records it; at once if it has ended."""
        if self.exit is not None:
            watcher(self.exit)
            return
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def linked_end(self, ended: Child, ref: Any, exit: Exit) -> None:
        """Hear of the end of something linked: whoever takes no messages ends as it did, unless it ended normally."""
        if exit.reason is not NORMAL:
            self.order_stop(LinkedStop(exit))

    def unwatch(self, watcher: Callable[[Exit], None]) -> None:
        """Forget a watcher; nothing happens if it was told already."""
        if self.watchers is not None:
            self.watchers.pop(watcher, None)

    def _child_left(self, child: Child) -> None:
        assert self.children is not None
        del self.children[child]
        if self._stop_at is not None and not self.children:
            self.cut()

    # ── waiting and stopping ────────────────────────────────────────────────

    async def wait_ended(self) -> Exit:
        """Wait until the end is recorded.

        Checkpoint: only if it has not ended.
        Cancellation: the child is not disturbed.
        """
        if self.exit is None:
            waiting = self._ended
            if waiting is None:
                waiting = self._ended = []
            task = trio.lowlevel.current_task()
            waiting.append(task)

            def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
                waiting.remove(task)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
            assert self.exit is not None
        return self.exit

    async def await_end_of(self, child: Child) -> Exit:
        """Wait, as this one's work, for the end of another one; whoever gives something back meanwhile does it here.

        Checkpoint: only if it has not ended.
        Cancellation: it is not disturbed.
        """
        return await child.wait_ended()

    def subtree(self) -> Iterator[Child]:
        """Walk this one and all that live below it, children before their parent, without recursion."""
        order: list[Child] = []
        stack: list[Child] = [self]
        while stack:
            node = stack.pop()
            order.append(node)
            if node.children:
                stack.extend(node.children)
        return reversed(order)

    def from_the_top(self) -> Iterator[Child]:
        """Walk this one and all that live below it, a parent before its children, in the order of starting."""
        stack: list[Child] = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.children:
                stack.extend(reversed(node.children))

    def order_stop(self, why: object) -> list[Child]:
        """Tell the whole subtree to stop, leaf first, in this very step; return who was asked.

        Leaves are cancelled now, each other one when its last child has ended.
        The first order counts; a later one changes nothing.
        """
        now = trio.current_time()
        if not self.children and self.exit is None and self._stop_at is None:
            # As below, for the many that have nobody under them.
            self._stop_at, self._stop_why = now, why
            self.cut()
            return [self]
        asked = []
        for node in self.subtree():
            if node.exit is not None:
                continue
            if node._stop_at is None:
                node._stop_at, node._stop_why = now, why
                asked.append(node)
            if not node.children:
                node.cut()
        return asked

    def request_stop(self, why: object) -> None:
        """Ask this one to stop, as its supervisor does before the grace: a plain task is cancelled, leaf first."""
        self.order_stop(why)

    def order_kill(self) -> None:
        """Cancel the work of all that is left below and here, leaf first, without waiting for anybody."""
        for node in self.subtree():
            if node.exit is None:
                node.kill()

    def kill(self) -> None:
        """Cancel the work of this one alone, and whatever the runtime shields of it."""
        self._killed = True
        if self._stop_at is None:
            self._stop_at = trio.current_time()
        self.cut()

    def mark_ready(self, extra: Any = None) -> None:
        """Tell whoever started this one that it can work now. Sync; a second call changes nothing."""
        if self.starter is not None:
            self.starter.resolve(ready=True, extra=extra)

    def abandon(self) -> list[Child]:
        """Record as killed everything that still lives here: it did not end. Leaf first; return who."""
        left = [node for node in self.subtree() if node.exit is None]
        for node in left:
            end = node._exit(Reason.killed, None, None)
            # Of one that is stuck in its clean-up it is known how its work ended.
            known = getattr(node, "_closing_as", end)
            node.record(attrs.evolve(end, cause=known.cause, raised=known.raised, lost=known.lost, left=False))
        return left

    def cut(self) -> None:
        """Cancel the work of this one alone. For supervisors."""
        why = self._stop_why
        self.scope.cancel(reason=None if why is None else text_of(why))


def refuse_own_stop(child: Child) -> None:
    """Raise if the running task belongs to ``child`` or to one below it: it would wait for its own end.

    Raises:
        ActorsError: nothing was stopped.
    """
    asking = above = CURRENT.get()
    while asking is not None and above is not None:
        if above is child:
            raise ActorsError(f"{asking.path} cannot wait for the stop of {child.path}, which is its own stop")
        above = above.parent
