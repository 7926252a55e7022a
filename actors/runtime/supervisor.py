"""The supervisor: one actor that starts, watches and stops its children.

`plan.py` decides; this file carries out, one order after the other. Ends of
children, notes and requests come through one mailbox and are served by one
loop, so there are no races inside.

    nursery of the supervisor
      ├ task of each child ( its wrapper records one end and leaves a message )
      └ scope ( the loop )

It is stopped in two ways. Its own supervisor *asks*: then it stops its children
in order, each with its grace. A halt *cuts* leaf first: then it starts nothing
more, its children end, and it ends when the last has.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import attrs
import trio

from actors.errors import AlreadyRegistered, MailboxClosed, WouldDeadlock
from actors.runtime.actor import Actor, Asked, Call
from actors.runtime.between import Between, KeepsName
from actors.runtime.child import Child, Owner, Startable, Starter
from actors.runtime.exits import Exit, Reason, root_cause
from actors.runtime.mailbox import NOTHING
from actors.runtime.notes import Notes
from actors.runtime.plan import Answer, Exhausted, Finish, Note, Order, Report, Start, Status, Stop, Why, Word
from actors.runtime.restart import Restart, Verdict, verdict
from actors.runtime.specs import Brutal, ChildSpec, Strategy, shown
from actors.runtime.starting import Ignore, TaskStatus, starts_ready, wants_status
from actors.runtime.supervise import Supervise, planned
from actors.runtime.supervise import supervise as supervise
from actors.runtime.supervised_task import Task
from actors.runtime.supervisor_ref import (
    Counting,
    DeleteChild,
    GetSpec,
    Listing,
    Reconfigure,
    RestartChild,
    StartChild,
    TerminateChild,
    Which,
)
from actors.runtime.supervisor_ref import SupervisorRef as SupervisorRef

log = logging.getLogger("actors.supervisor")

# Notes to itself are looked at after so many messages, however many more wait.
PATIENCE: Final = 64


@attrs.frozen(eq=False)
class _Begun:
    ref: Any
    extra: Any


class _Mark:
    """Why a start was given up."""


_GIVEN_UP: Final = _Mark()
_TOO_SLOW: Final = _Mark()
_STOPPED: Final = _Mark()


@attrs.frozen(eq=False)
class _Left:
    """What comes through the mailbox besides requests: a child has ended."""

    child: Child


class Supervisor(KeepsName, Actor[Any]):
    """The shell around a plan. Its ``name`` is registered while it runs."""

    __slots__ = ("_between", "_by_key", "_done", "_names", "_notes", "_of", "_reviving", "_starter", "handle", "name", "plan", "supervise")  # noqa: E501

    def __init__(
        self, path: str, parent: Child | None, host: Owner, supervise: Supervise, name: str | None = None
    ) -> None:
        super().__init__(path, parent, host, self._never, may_parent=True)
        self.supervise = supervise
        self.plan = planned(path, supervise, trio.current_time)
        self.name = name
        # Which key and incarnation a task is, and the way back; kept for live tasks only.
        self._of: dict[Child, tuple[Hashable, int]] = {}
        self._by_key: dict[Hashable, Child] = {}
        # Ended incarnations of named actors, and of those whose messages are kept, until it is known what follows.
        self._between = Between(self.plan, host.registry)
        self._notes = Notes(self.plan, host.deadlines, self.mailbox.wake)
        # Children that a group restart stops, to start them again.
        self._reviving: tuple[Hashable, ...] = ()
        # The start under way; a stop does not wait for it.
        self._starter: Starter | None = None
        self._done: Finish | None = None
        self._names = 0
        self.handle = SupervisorRef(self, self)

    def _never(self, message: Any, call: Call | None) -> Any:
        raise AssertionError("a supervisor has a loop of its own")

    def handle_at_once(self, call: Call) -> bool:
        """Start what is ready by being started in the asker's step, below a dynamic one; all else waits for others."""
        message = call.message
        if type(message) is not StartChild or not self.plan.flags.dynamic or not self.mailbox.idle or self._notes:
            return False
        spec = message.spec
        if spec is None or spec.name is not None or self.ending or self.task is None or not starts_ready(spec.start):
            return False
        call.at_once = True
        # The child is to see the context of its supervisor, whose task is parked.
        call.answer(self.task.context.run(self._start_plain, message))
        call.at_once = False
        return True

    def _start_plain(self, message: StartChild) -> Answer:
        order = self.plan.start_child(message.spec, message.args)
        if isinstance(order, Answer):
            return order
        spec = self.plan.children[order.key].spec
        run = self.plan.begins(order.key)
        path = self._path_of(spec)
        try:
            child = self._make(path, spec)
        except BaseException as error:
            # What is no `Exception` ends the whole tree, and not whoever happened to ask.
            child = Exit(path, Reason.error, trio.current_time(), cause=error, raised=error)
            self.host.panic(self, error)
        if isinstance(child, Exit):
            self.plan.start_failed(order.key, order.why, child, trio.current_time())
            return Answer(Word.error, reason=child)
        if isinstance(child, Ignore):
            self.plan.ignored(order.key)
            return Answer(Word.ignored)
        self._take_in(order.key, run, child)
        ref = ref_of(child)
        self.plan.started(order.key, order.why, ref, trio.current_time())
        return Answer(Word.ok, ref)

    # ── its life ────────────────────────────────────────────────────────────

    async def work(self) -> None:
        """Start all children, then serve what comes until it ends.

        Cancellation: its children have ended before.
        """
        if self.name is not None:
            self.host.registry.register(self.name, self.handle)
        try:
            await self._carry(self.plan.boot())
            if self._done is None and not self.ending:
                self.mark_ready()
            await self._serve()
        except trio.Cancelled:
            raise
        except BaseException:
            # A fault of its own: nobody is left to decide about its children, so they end first.
            self.plan.stopping = True
            with trio.CancelScope(shield=True):
                await self._stop(tuple(self._by_key))
            raise

    async def _serve(self) -> None:
        served = 0
        while self._done is None:
            if self.asked is not None and not self.plan.stopping:
                await self._carry(self.plan.stop(self.asked.why))
                continue
            message = NOTHING if self._notes and served >= PATIENCE else self.mailbox.take()
            if message is not NOTHING:
                served += 1
                await self._take(message)
            elif self._notes:
                served = 0
                # Whoever waits for this loop gets a turn between two attempts.
                await trio.lowlevel.checkpoint()
                await self._carry(self.plan.note_due(*self._notes.take()))
            else:
                served = 0
                await self.mailbox.wait()

    async def _take(self, message: Any) -> None:
        if self.stopping:
            # Halted: nothing is started or given up any more, and ends are only noted.
            self.plan.stopping = True
        if type(message) is _Left:
            await self._heard(message.child)
        elif type(message) is Call:
            if message.waiting:
                await self._answer(message)
        else:
            log.warning("%s: dropped a message it does not know: %r", self.path, message)

    async def _heard(self, child: Child) -> None:
        place = self._of.pop(child, None)
        if place is None or child.exit is None:
            return
        key, run = place
        if self._by_key.get(key) is child:
            del self._by_key[key]
        self._between.keep(key, child)
        await self._carry(self.plan.ended(key, run, child.exit, trio.current_time()))

    def _child_left(self, child: Child) -> None:
        if child in self._of:
            with suppress(MailboxClosed):
                self.mailbox.put_system(_Left(child))
        super()._child_left(child)

    def request_stop(self, why: object) -> None:
        """Ask it to stop its children in order and to end; a start under way is given up."""
        if self.asked is None and self.exit is None:
            self.asked = Asked(trio.current_time(), why)
            self.mailbox.wake()
            if self._starter is not None:
                self._starter.resolve(ready=False, extra=_STOPPED)

    @property
    def ending(self) -> bool:
        """Whether it starts nothing more."""
        return self.stopping or self.asked is not None or self.plan.stopping

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        end = super()._exit(reason, raised, lost)
        done = self._done
        if done is None or reason is not Reason.normal:
            return end
        cause = done.payload.cause.cause if isinstance(done.payload, Exhausted) else None
        return attrs.evolve(end, reason=done.reason, payload=done.payload, cause=cause)

    async def _guarded(self) -> tuple[Reason, BaseException | None, BaseException | None]:
        over = await super()._guarded()
        if self._nursery is not None and self._nursery.child_tasks and not self.children:
            # Only tasks that were given up, and named, are left. Who waits for this one must not wait for them.
            self.record(attrs.evolve(self._exit(*over), left=False))
        return over

    def ended(self, exit: Exit) -> None:
        """Report ends that nobody had time to look at, free the name, and forget what waits."""
        self.plan.stopping = True
        unread = []
        while (message := self.mailbox.take()) is not NOTHING:
            if type(message) is not _Left:
                unread.append(message)
            elif (place := self._of.pop(message.child, None)) is not None:
                assert message.child.exit is not None
                self._report_all(self.plan.ended(*place, message.child.exit, trio.current_time()))
        self.mailbox.put_back(unread)
        self._notes.drop_all()
        self._between.drop_all()
        self.give_back_name(self.handle, exit)
        super().ended(exit)

    # ── between two incarnations ────────────────────────────────────────────

    def restarts_of(self, child: Child) -> int:
        """Count how often a child had been started again when this incarnation of it began."""
        place = self._of.get(child)
        kept = None if place is None else self.plan.children.get(place[0])
        # While a restart is under way it is not counted yet.
        return 0 if kept is None else kept.restarts + (kept.status is Status.restarting)

    def brings_back(self, child: Child, exit: Exit) -> bool:
        """Whether a child that ends so is most likely started again; asked in the step of its end."""
        place = self._of.get(child)
        kept = None if place is None else self.plan.children.get(place[0])
        if kept is None or self.ending or kept.run != place[1] or kept.status is Status.idle:  # type: ignore[index]
            return False
        if kept.status is Status.restarting:
            # However the attempt ended, it is made again; one that ignored is let go when that is known.
            return True
        if kept.key in self._reviving:
            return kept.spec.restart is not Restart.temporary
        return verdict(kept.spec.restart, exit.reason) is Verdict.restart

    # ── carrying out ────────────────────────────────────────────────────────

    async def _carry(self, orders: list[Order]) -> None:
        await self._carry_out(orders)
        self._tidy()

    def _tidy(self) -> None:
        self._notes.sweep()
        if self._between:
            self._between.sweep()

    async def _carry_out(self, orders: list[Order]) -> None:
        left = deque(orders)
        while left:
            if self.stopping:
                # Halted: whatever was planned, nothing starts any more; the stop comes from outside, leaf first.
                self.plan.stopping = True
                self._report_all([order for order in left if type(order) is Report])
                return
            order = left.popleft()
            if self.plan.stopping and type(order) in (Stop, Finish):
                await self._turn_away()
            if type(order) is Start:
                if self.ending:
                    # Asked to stop meanwhile: no further attempt.
                    return
                failed = await self._start(order)
                if failed is not None:
                    left = deque(failed)
            elif type(order) is Stop:
                self._reviving = () if self.plan.stopping else order.keys
                await self._stop(order.keys)
                self._reviving = ()
            elif type(order) is Report:
                self._report(order)
            elif type(order) is Note:
                self._notes.leave(order)
            elif type(order) is Finish:
                self._done = order

    async def _turn_away(self) -> None:
        """Answer what waits, as nothing of it will be done; ends that are heard now are only noted."""
        while (message := self.mailbox.take()) is not NOTHING:
            if type(message) is Call:
                message.answer(Answer(Word.stopping))
            else:
                await self._take(message)

    def _report_all(self, orders: list[Order]) -> None:
        for report in orders:
            assert isinstance(report, Report), "what is being stopped gives nothing else to do"
            self._report(report)

    def _report(self, report: Report) -> None:
        if self.supervise.on_report is None:
            said = report.end.blame()
            log.error("%s: %s: child %r: %s %s", self.path, report.topic, report.child, said, report.detail)
            return
        try:
            self.supervise.on_report(self.path, report)
        except Exception:
            log.exception("%s: whoever hears reports failed", self.path)

    def restarts_due(self) -> dict[str, float]:
        """Give the children that have ended and wait for their restart, with its time; needs no cooperation."""
        return {f"{self.path}/{self.plan.children[key].spec.id}": at for key, at in self._notes.times().items()}

    # ── starting ────────────────────────────────────────────────────────────

    async def _start(self, order: Start) -> list[Order] | None:
        """Start one child; give the orders that follow a failure, None when there was none."""
        kept = self.plan.children.get(order.key)
        if kept is None:
            return None
        run = self.plan.begins(order.key)
        # Nobody is started after this one, so a plain function need not have run to count as ready.
        alone = self.plan.flags.dynamic or (order.why is Why.restart and self.plan.reach is Strategy.one_for_one)
        result = await self._begin(order.key, run, kept.spec, alone=alone)
        if isinstance(result, Exit):
            if self.ending:
                return self.plan.cut(order.key, result)
            return self.plan.start_failed(order.key, order.why, result, trio.current_time())
        if isinstance(result, Ignore):
            self.plan.ignored(order.key)
        else:
            self.plan.started(order.key, order.why, result.ref, trio.current_time())
        return None

    async def _begin(
        self, key: Hashable, run: int, spec: ChildSpec, call: Call | None = None, *, alone: bool = False
    ) -> _Begun | Ignore | Exit:
        path = self._path_of(spec)
        child = self._make(path, spec)
        if not isinstance(child, Child):
            return child
        if alone and spec.name is None and isinstance(child, Task) and not child.says_ready:
            self._between.ready(key, spec, child)
            self._take_in(key, run, child)
            return _Begun(child.ref, None)
        starter = child.starter = self._starter = Starter()
        self._between.hand_on(key, child)
        self._take_in(key, run, child)
        if call is not None:
            # A caller that gives up wants no child.
            call.on_abort = partial(starter.resolve, ready=False, extra=_GIVEN_UP)
        timeout = None
        if spec.start_timeout is not None:
            at = trio.current_time() + spec.start_timeout
            timeout = self.host.deadlines.at(at, partial(starter.resolve, ready=False, extra=_TOO_SLOW))
        # Over in the step in which the child is ready, and not only when this task runs: the child may ask at once.
        with self._waiting(lambda: () if starter.over else (child,), "the start of"):
            await starter.wait()
        if timeout is not None:
            timeout.cancel()
        child.starter = self._starter = None
        if starter.ready:
            self._between.ready(key, spec, child)
            return _Begun(ref_of(child), starter.extra)
        return await self._not_begun(key, child, starter)

    def _take_in(self, key: Hashable, run: int, child: Child) -> None:
        """Run a child, and know it by its task and by its key."""
        assert self._nursery is not None
        self._of[child] = (key, run)
        self._by_key[key] = child
        self.adopt(child, self._nursery)

    async def _not_begun(self, key: Hashable, child: Child, starter: Starter) -> Ignore | Exit:
        if child.exit is None:
            if not isinstance(child, Supervisor):
                # It listens to nobody yet. A supervisor gives up its own start in order.
                child.order_stop(self._why)
            await self._stop_tasks([child], self._why)
        assert child.exit is not None
        self._of.pop(child, None)
        self._by_key.pop(key, None)
        self._between.keep(key, child)
        if isinstance(starter.extra, Ignore):
            return starter.extra
        if starter.extra is _TOO_SLOW:
            slow = trio.TooSlowError(f"{child.path} was not ready in time")
            own = child.exit.lost if child.exit.cause is None else child.exit.cause
            return attrs.evolve(child.exit, reason=Reason.error, cause=slow, lost=own)
        if child.exit.reason is Reason.normal and not isinstance(child, Supervisor):
            if isinstance(child.value, Ignore):
                return child.value
            text = f"{child.path} ended before it was ready"
            return attrs.evolve(child.exit, reason=Reason.error, cause=RuntimeError(text))
        return child.exit

    @property
    def _why(self) -> object:
        return None if self.asked is None else self.asked.why

    def _path_of(self, spec: ChildSpec) -> str:
        if not self.plan.flags.dynamic:
            return f"{self.path}/{spec.id}"
        self._names += 1
        return f"{self.path}/{self._names}"

    def _make(self, path: str, spec: ChildSpec) -> Child | Ignore | Exit:
        more: dict[str, Any] = {}
        status = TaskStatus() if wants_status(spec.start) else None
        if status is not None:
            more["task_status"] = status
        try:
            made = spec.start(*self.supervise.extra, *spec.args, **more)
            # Looked for by name: a check against a protocol costs as much as all the rest.
            if not inspect.iscoroutine(made) and hasattr(made, "as_child") and not inspect.isclass(made):
                return cast(Startable, made).as_child(path, self, self.host, spec)
        except Exception as error:
            return Exit(path, Reason.error, trio.current_time(), cause=root_cause(error), raised=error)
        if isinstance(made, Ignore):
            return made
        if inspect.iscoroutine(made):
            child: Child = Task(path, self, self.host, made, says_ready=status is not None, name=spec.name)
            if status is not None:
                status.child = child
            return child
        if isinstance(made, Supervise):
            return Supervisor(path, self, self.host, made.below(self.supervise), spec.name)
        value = TypeError(f"start gave {shown(made)}, which is no coroutine, behaviour or supervisor")
        return Exit(path, Reason.bad_return, trio.current_time(), cause=value)

    # ── stopping ────────────────────────────────────────────────────────────

    async def _stop(self, keys: tuple[Hashable, ...]) -> None:
        children = {key: self._by_key[key] for key in keys if key in self._by_key}
        await self._stop_tasks(list(children.values()), self._why)
        for key, child in children.items():
            self._of.pop(child, None)
            self._by_key.pop(key, None)
            assert child.exit is not None
            # Until the orders are carried out: a group restart starts it again.
            self._between.keep(key, child)
            self._report_all(self.plan.stopped(key, child.exit))

    async def _stop_tasks(self, children: list[Child], why: object) -> None:
        graces = [(child, self._grace_of(child)) for child in children]
        for child in children:
            # Their ends are waited for here, so no message about them is needed; who may leave something
            # for a next incarnation looks itself up at its end.
            if self.plan.flags.dynamic or (isinstance(child, Task) and child.name is None):
                self._of.pop(child, None)
        with self._waiting(children, "the end of"):
            await self.host.stop_children(graces, why)

    @contextmanager
    def _waiting(self, children: Sequence[Child] | Callable[[], Sequence[Child]], what: str) -> Iterator[None]:
        """Stand in the wait-for graph while this loop waits for children, so that one that asks back is told."""
        wait = None
        # What would close a cycle here is bounded by a grace all the same; only a request of a child is refused.
        with suppress(WouldDeadlock):
            wait = self.host.waits.begin(self, children, what=what, any_of=False)
        try:
            yield
        finally:
            if wait is not None:
                self.host.waits.end(wait)

    def _grace_of(self, child: Child) -> float | None:
        place = self._of.get(child)
        kept = None if place is None else self.plan.children.get(place[0])
        if kept is None:
            return None
        return None if kept.spec.grace is Brutal.brutal else float(kept.spec.grace)

    # ── requests ────────────────────────────────────────────────────────────

    async def _answer(self, call: Call) -> None:
        handler = _REQUESTS.get(type(call.message))
        if handler is None:
            log.warning("%s: dropped a request it does not know: %r", self.path, call.message)
            call.fail(TypeError(f"{self.path} is a supervisor and does not know {shown(call.message)}"))
            return
        try:
            answer = handler(self, call.message, call)
            if inspect.isawaitable(answer):
                answer = await answer
            self._tidy()
        except Exception as error:
            call.fail(error)
            return
        call.answer(answer)

    async def _start_child(self, message: StartChild, call: Call) -> Answer:
        ordered = self.plan.start_child(message.spec, message.args)
        return ordered if isinstance(ordered, Answer) else await self._by_hand(ordered, call)

    async def _restart_child(self, message: RestartChild, call: Call) -> Answer:
        ordered = self.plan.restart_child(message.id)
        return ordered if isinstance(ordered, Answer) else await self._by_hand(ordered, call)

    async def _by_hand(self, order: Start, call: Call) -> Answer:
        key = order.key
        run = self.plan.begins(key)
        result = await self._begin(key, run, self.plan.children[key].spec, call)
        if isinstance(result, Exit) and (self.ending or not call.waiting):
            # Nobody reads the reason, so an error of its own is reported.
            self._report_all(self.plan.cut(key, result, order.why))
            return Answer(Word.stopping)
        if isinstance(result, Exit):
            self.plan.start_failed(key, order.why, result, trio.current_time())
            if isinstance(result.cause, AlreadyRegistered):
                return Answer(Word.already_started, result.cause.ref, reason=result)
            return Answer(Word.error, reason=result)
        if isinstance(result, Ignore):
            self.plan.ignored(key)
            return Answer(Word.ignored)
        self.plan.started(key, order.why, result.ref, trio.current_time())
        if not call.waiting:
            # The caller gave up in the very moment in which the child got ready.
            await self._stop((key,))
            if order.why is Why.by_hand and key in self.plan.children:
                self.plan.delete_child(key)
        return Answer(Word.ok, result.ref, result.extra)

    async def _terminate_child(self, message: TerminateChild, _call: Call) -> Answer:
        ordered = self.plan.terminate_child(message.which)
        if isinstance(ordered, Answer):
            return ordered
        # A child that waits for its own end is told so, and nothing is stopped.
        for key in ordered.keys:
            self.host.waits.check(self, self._by_key[key], what="the end of")
        await self._stop(ordered.keys)
        return Answer(Word.ok)


_REQUESTS: dict[type, Callable[[Supervisor, Any, Call], Any]] = {
    StartChild: Supervisor._start_child,
    TerminateChild: Supervisor._terminate_child,
    RestartChild: Supervisor._restart_child,
    # What only reads or changes the plan is its own affair.
    DeleteChild: lambda supervisor, message, _call: supervisor.plan.delete_child(message.id),
    Which: lambda supervisor, message, _call: supervisor.plan.which(message.id),
    GetSpec: lambda supervisor, message, _call: supervisor.plan.spec_of(message.id),
    Listing: lambda supervisor, _message, _call: supervisor.plan.listed(),
    Counting: lambda supervisor, _message, _call: supervisor.plan.count(),
    Reconfigure: lambda supervisor, message, _call: supervisor.plan.reconfigure(message.flags, message.specs),
}


def ref_of(child: Child) -> Any:
    """Give the handle of one incarnation of a child."""
    if isinstance(child, Supervisor):
        return child.handle
    return child.ref if isinstance(child, (Actor, Task)) else child
