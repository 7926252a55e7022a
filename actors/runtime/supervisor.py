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
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Final

import attrs
import trio

from actors.errors import ActorGone, GoneReason, MailboxClosed, WouldDeadlock
from actors.runtime.actor import LATER, Actor, Call
from actors.runtime.child import Child, Owner, Returning, Startable, Starter, refuse_own_stop
from actors.runtime.exits import Exit, Reason, root_cause
from actors.runtime.mailbox import NOTHING
from actors.runtime.plan import (
    Answer,
    Count,
    Exhausted,
    Finish,
    Listed,
    Note,
    Order,
    Plan,
    Report,
    Start,
    Status,
    Stop,
    Why,
    Word,
)
from actors.runtime.restart import Verdict, verdict
from actors.runtime.specs import Brutal, ChildSpec, Flags, check_specs, read_flags, read_spec
from actors.runtime.starting import IGNORE as IGNORE
from actors.runtime.starting import Ignore

log = logging.getLogger("actors.supervisor")

# Notes to itself are looked at after so many messages, however many more wait.
PATIENCE: Final = 64

@attrs.frozen(eq=False)
class Supervise:
    """A supervisor as a child: what the ``start`` of its spec returns.

    ``specs`` and ``flags`` are checked when this is made, so a fault is found before
    anything starts. ``config`` is called at each start of the supervisor instead of
    ``specs``, and gives a `Supervise`, or `IGNORE`.
    """

    specs: tuple[ChildSpec, ...]
    flags: Flags
    extra: tuple[Any, ...] = ()
    may_restart: Callable[[Hashable, float], str | None] | None = None
    chance: Callable[[], float] = random.random
    on_report: Callable[[str, Report], None] | None = None


def supervise(
    specs: Iterable[ChildSpec | Mapping[str, Any]] = (),
    flags: Flags | Mapping[str, Any] | None = None,
    *,
    extra: tuple[Any, ...] = (),
    may_restart: Callable[[Hashable, float], str | None] | None = None,
    chance: Callable[[], float] = random.random,
    on_report: Callable[[str, Report], None] | None = None,
) -> Supervise:
    """Describe a supervisor: children in the order of starting, and flags.

    ``extra`` are arguments that stand before each child's own (a dynamic supervisor).
    ``may_restart(id, now)`` gives a reason against a restart, or None. ``on_report``
    hears of each report with the path of the supervisor; without it they are logged.

    Raises:
        ConfigError: every fault of every spec and flag, with its place.
    """
    read = read_flags(flags)
    return Supervise(check_specs(specs, read), read, extra, may_restart, chance, on_report)


@attrs.frozen(eq=False)
class TaskRef:
    """The handle of one incarnation of a task."""

    _task: Task

    @property
    def path(self) -> str:
        """Name the task."""
        return self._task.path

    @property
    def exit(self) -> Exit | None:
        """Give the recorded end, None while it lives."""
        return self._task.exit

    async def wait(self) -> Exit:
        """Wait for the end, and give it.

        Cancellation: the task is not disturbed.
        """
        return await self._task.wait_ended()


class Task(Child):
    """A child whose work is one coroutine."""

    __slots__ = ("_coroutine", "_says_ready", "ref")

    def __init__(
        self, path: str, parent: Child | None, host: Owner, coroutine: Coroutine[Any, Any, Any], *, says_ready: bool
    ) -> None:
        super().__init__(path, parent, host, may_parent=False)
        self._coroutine: Coroutine[Any, Any, Any] | None = coroutine
        self.ref = TaskRef(self)
        # Whether the function tells by itself when it is ready, as trio's own convention has it.
        self._says_ready = says_ready

    async def work(self) -> Any:
        """Run the coroutine.

        Cancellation: the child ends as ``shutdown``.
        """
        coroutine, self._coroutine = self._coroutine, None
        assert coroutine is not None, "a task runs once"
        if not self._says_ready:
            self.mark_ready()
        return await coroutine

    def ended(self, exit: Exit) -> None:
        """Close a coroutine that never ran, so that Python does not complain of it."""
        if self._coroutine is not None:
            self._coroutine.close()


class TaskStatus:
    """What a function that asks for ``task_status`` is given; ``started`` tells that it is ready."""

    def __init__(self) -> None:
        self.child: Child | None = None

    def started(self, value: Any = None) -> None:
        """Tell that the function is ready; ``value`` goes to whoever started it."""
        assert self.child is not None
        self.child.mark_ready(value)


# ── what comes through the mailbox ──────────────────────────────────────────


@attrs.frozen(eq=False)
class _Begun:
    ref: Any
    extra: Any


class _Mark:
    """Why a start was given up."""


_GIVEN_UP: Final = _Mark()
_TOO_SLOW: Final = _Mark()


@attrs.frozen(eq=False)
class _Left:
    child: Child


@attrs.frozen(eq=False)
class _Asked:
    why: object


@attrs.frozen
class _StartChild:
    spec: ChildSpec


@attrs.frozen
class _TerminateChild:
    which: Any


@attrs.frozen
class _RestartChild:
    id: Any


@attrs.frozen
class _DeleteChild:
    id: Any


@attrs.frozen
class _Which:
    id: Any


@attrs.frozen
class _GetSpec:
    id: Any


class _Listing:
    pass


class _Counting:
    pass


@attrs.frozen
class _Reconfigure:
    flags: Flags | Mapping[str, Any] | None
    specs: Any


class Supervisor(Actor[Any]):
    """The shell around a plan."""

    __slots__ = ("_asked", "_between", "_by_child", "_done", "_due", "_names", "_notes", "_of", "handle", "plan", "supervise")

    def __init__(self, path: str, parent: Child | None, host: Owner, supervise: Supervise) -> None:
        super().__init__(path, parent, host, self._never, may_parent=True)
        more = {} if supervise.may_restart is None else {"may_restart": supervise.may_restart}
        self.supervise = supervise
        self.plan = Plan(path, supervise.flags, supervise.specs, chance=supervise.chance, **more)
        # Which key and incarnation a task is; kept for live tasks only.
        self._of: dict[Child, tuple[Hashable, int]] = {}
        self._by_child: dict[Hashable, Child] = {}
        # Ended incarnations of named actors, and of those whose messages are kept, until it is known what follows.
        self._between: dict[Hashable, Returning] = {}
        self._notes: deque[tuple[Hashable, int]] = deque()
        # When children are tried again that wait for it: the token of the note and the time, for whoever looks.
        self._due: dict[Hashable, tuple[int, float]] = {}
        self._asked: _Asked | None = None
        self._done: Finish | None = None
        self._names = 0
        self.handle = SupervisorRef(self)

    def _never(self, message: Any, call: Call | None) -> Any:
        raise AssertionError("a supervisor has a loop of its own")

    def handle_at_once(self, call: Call) -> bool:
        """Never: its requests wait for other tasks."""
        return False

    # ── its life ────────────────────────────────────────────────────────────

    async def work(self) -> None:
        """Start all children, then serve what comes until it ends.

        Cancellation: its children have ended before.
        """
        try:
            await self._carry(self.plan.boot())
            if self._done is None:
                self.mark_ready()
            await self._serve()
        except trio.Cancelled:
            raise
        except BaseException:
            # A fault of its own: nobody is left to decide about its children, so they end first.
            self.plan.stopping = True
            with trio.CancelScope(shield=True):
                await self._stop_tasks(list(self.children or ()), None)
            raise

    async def _serve(self) -> None:
        served = 0
        while self._done is None:
            if self._asked is not None and not self.plan.stopping:
                await self._carry(self.plan.stop(self._asked.why))
                continue
            message = NOTHING if self._notes and served >= PATIENCE else self.mailbox.take()
            if message is not NOTHING:
                served += 1
                await self._take(message)
            elif self._notes:
                served = 0
                # Whoever waits for this loop gets a turn between two attempts.
                await trio.lowlevel.checkpoint()
                await self._carry(self.plan.note_due(*self._notes.popleft()))
            else:
                served = 0
                await self.mailbox.wait()

    async def _take(self, message: Any) -> None:
        if type(message) is _Left:
            await self._heard(message.child)
        elif type(message) is Call:
            if message.waiting:
                await self._answer(message)
        elif type(message) is not _Asked:
            log.warning("%s: dropped a message it does not know: %r", self.path, message)

    async def _heard(self, child: Child) -> None:
        place = self._of.pop(child, None)
        if place is None or child.exit is None:
            return
        key, run = place
        if self._by_child.get(key) is child:
            del self._by_child[key]
        if isinstance(child, Returning) and child.returns:
            self._between[key] = child
        await self._carry(self.plan.ended(key, run, child.exit, trio.current_time()))

    def _child_left(self, child: Child) -> None:
        if child in self._of:
            with suppress(MailboxClosed):
                self.mailbox.put_system(_Left(child))
        super()._child_left(child)

    def request_stop(self, why: object) -> None:
        """Ask it to stop its children in order and to end."""
        if self._asked is None and self.exit is None:
            self._asked = _Asked(why)
            with suppress(MailboxClosed):
                self.mailbox.put_system(self._asked)

    @property
    def ending(self) -> bool:
        """Whether it starts nothing more."""
        return self.stopping or self._asked is not None or self.plan.stopping

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        end = super()._exit(reason, raised, lost)
        done = self._done
        if done is None or reason is not Reason.normal:
            return end
        cause = done.payload.cause.cause if isinstance(done.payload, Exhausted) else None
        return attrs.evolve(end, reason=done.reason, payload=done.payload, cause=cause)

    # ── between two incarnations ────────────────────────────────────────────

    def brings_back(self, child: Child, exit: Exit) -> bool:
        """Whether a child that ends so is most likely started again; asked in the step of its end."""
        place = self._of.get(child)
        kept = None if place is None else self.plan.children.get(place[0])
        if kept is None or self.ending or kept.run != place[1] or kept.status is Status.idle:  # type: ignore[index]
            return False
        return verdict(kept.spec.restart, exit.reason) is Verdict.restart

    def _let_go(self) -> None:
        """Free names and messages that were kept for an incarnation that does not come."""
        for key in list(self._between):
            kept = self.plan.children.get(key)
            if kept is None or kept.status is not Status.restarting:
                self._between.pop(key).let_go()

    # ── carrying out ────────────────────────────────────────────────────────

    async def _carry(self, orders: list[Order]) -> None:
        await self._carry_out(orders)
        if self._between:
            self._let_go()

    async def _carry_out(self, orders: list[Order]) -> None:
        left = deque(orders)
        while left:
            if self.stopping:
                # Halted: whatever was planned, nothing starts any more; the stop comes from outside, leaf first.
                self.plan.stopping = True
                return
            order = left.popleft()
            if type(order) is Start:
                if self._asked is not None:
                    # Asked to stop meanwhile: no further attempt.
                    return
                failed = await self._start(order)
                if failed is not None:
                    left = deque(failed)
            elif type(order) is Stop:
                await self._stop(order.keys)
            elif type(order) is Report:
                self._report(order)
            elif type(order) is Note:
                self._note(order)
            elif type(order) is Finish:
                self._done = order

    def _report(self, report: Report) -> None:
        if self.supervise.on_report is None:
            log.error("%s: %s: child %r: %s %s", self.path, report.topic, report.child, report.end, report.detail)
            return
        try:
            self.supervise.on_report(self.path, report)
        except Exception:
            log.exception("%s: whoever hears reports failed", self.path)

    def _note(self, note: Note) -> None:
        if note.seconds <= 0:
            self._notes.append((note.key, note.token))
            return
        at = trio.current_time() + note.seconds
        self._due[note.key] = (note.token, at)
        self.host.deadlines.at(at, partial(self._note_due, note))

    def restarts_due(self) -> dict[str, float]:
        """Give the children that have ended and wait for their restart, with its time; needs no cooperation."""
        due = {}
        for key, (token, at) in self._due.items():
            kept = self.plan.children.get(key)
            if kept is not None and kept.status is Status.restarting and kept.token == token:
                due[f"{self.path}/{kept.spec.id}"] = at
        return due

    def _note_due(self, note: Note) -> None:
        if self._due.get(note.key, (None,))[0] == note.token:
            del self._due[note.key]
        if self.exit is None:
            self._notes.append((note.key, note.token))
            self.mailbox.wake()

    # ── starting ────────────────────────────────────────────────────────────

    async def _start(self, order: Start, call: Call | None = None) -> list[Order] | None:
        """Start one child; give the orders that follow a failure, None when there was none."""
        kept = self.plan.children.get(order.key)
        if kept is None:
            return None
        run = self.plan.begins(order.key)
        result = await self._begin(order.key, run, kept.spec, call)
        if isinstance(result, Exit):
            if self.stopping:
                self.plan.stopping = True
                return []
            return self.plan.start_failed(order.key, order.why, result, trio.current_time())
        if isinstance(result, Ignore):
            self.plan.ignored(order.key)
        else:
            self.plan.started(order.key, order.why, result.ref, trio.current_time())
        return None

    async def _begin(self, key: Hashable, run: int, spec: ChildSpec, call: Call | None) -> _Begun | Ignore | Exit:
        path = self._path_of(spec)
        child = self._make(path, spec)
        if not isinstance(child, Child):
            return child
        starter = child.starter = Starter()
        assert self._nursery is not None
        former = self._between.get(key)
        if former is not None:
            former.followed_by(child)
        self._of[child] = (key, run)
        self._by_child[key] = child
        self.adopt(child, self._nursery)
        if call is not None:
            # A caller that gives up wants no child.
            call.on_abort = partial(starter.resolve, ready=False, extra=_GIVEN_UP)
        timeout = None
        if spec.start_timeout is not None:
            at = trio.current_time() + spec.start_timeout
            timeout = self.host.deadlines.at(at, partial(starter.resolve, ready=False, extra=_TOO_SLOW))
        with self._waiting([child], "the start of"):
            await starter.wait()
        if timeout is not None:
            timeout.cancel()
        child.starter = None
        if starter.ready:
            self._between.pop(key, None)
            return _Begun(ref_of(child), starter.extra)
        return await self._not_begun(key, child, starter)

    async def _not_begun(self, key: Hashable, child: Child, starter: Starter) -> Ignore | Exit:
        self._of.pop(child, None)
        self._by_child = {key: each for key, each in self._by_child.items() if each is not child}
        if child.exit is None:
            await self._stop_tasks([child], None)
        assert child.exit is not None
        if isinstance(child, Returning) and child.returns and key not in self._between:
            self._between[key] = child
        if isinstance(starter.extra, Ignore):
            return starter.extra
        if starter.extra in (_TOO_SLOW, _GIVEN_UP):
            slow = trio.TooSlowError(f"{child.path} was not ready in time")
            return attrs.evolve(child.exit, reason=Reason.error, cause=slow)
        if child.exit.reason is Reason.normal and not isinstance(child, Supervisor):
            text = f"{child.path} ended before it was ready"
            return attrs.evolve(child.exit, reason=Reason.error, cause=RuntimeError(text))
        return child.exit

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
        except Exception as error:
            return Exit(path, Reason.error, trio.current_time(), cause=root_cause(error), raised=error)
        if isinstance(made, Ignore):
            return made
        if inspect.iscoroutine(made):
            child: Child = Task(path, self, self.host, made, says_ready=status is not None)
            if status is not None:
                status.child = child
            return child
        if isinstance(made, Supervise):
            if made.on_report is None:
                made = attrs.evolve(made, on_report=self.supervise.on_report)
            return Supervisor(path, self, self.host, made)
        if isinstance(made, Startable):
            return made.as_child(path, self, self.host, spec)
        value = TypeError(f"start gave {made!r}, which is no coroutine, behaviour or supervisor")
        return Exit(path, Reason.bad_return, trio.current_time(), cause=value)

    # ── stopping ────────────────────────────────────────────────────────────

    async def _stop(self, keys: tuple[Hashable, ...]) -> None:
        children = {key: self._by_child[key] for key in keys if key in self._by_child}
        await self._stop_tasks(list(children.values()), self._asked)
        for key, child in children.items():
            self._of.pop(child, None)
            self._by_child.pop(key, None)
            assert child.exit is not None
            for report in self.plan.stopped(key, child.exit):
                assert isinstance(report, Report)
                self._report(report)

    async def _stop_tasks(self, children: list[Child], why: object) -> None:
        graces = [(child, self._grace_of(child)) for child in children]
        with self._waiting(children, "the end of"):
            await self.host.stop_children(graces, why)

    @contextmanager
    def _waiting(self, children: Sequence[Child], what: str) -> Iterator[None]:
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
            call.fail(TypeError(f"{self.path} is a supervisor and does not know {call.message!r}"))
            return
        try:
            answer = handler(self, call.message, call)
            if inspect.isawaitable(answer):
                answer = await answer
            if self._between:
                self._let_go()
        except Exception as error:
            call.fail(error)
            return
        if answer is not LATER:
            call.answer(answer)

    async def _start_child(self, message: _StartChild, call: Call) -> Answer:
        ordered = self.plan.start_child(message.spec)
        return ordered if isinstance(ordered, Answer) else await self._by_hand(ordered, call)

    async def _restart_child(self, message: _RestartChild, call: Call) -> Answer:
        ordered = self.plan.restart_child(message.id)
        return ordered if isinstance(ordered, Answer) else await self._by_hand(ordered, call)

    async def _by_hand(self, order: Start, call: Call) -> Answer:
        spec = self.plan.children[order.key].spec
        run = self.plan.begins(order.key)
        result = await self._begin(order.key, run, spec, call)
        if isinstance(result, Exit):
            self.plan.start_failed(order.key, order.why, result, trio.current_time())
            return Answer(Word.stopping) if self.ending else Answer(Word.error, reason=result)
        if isinstance(result, Ignore):
            self.plan.ignored(order.key)
            return Answer(Word.ignored)
        self.plan.started(order.key, order.why, result.ref, trio.current_time())
        if not call.waiting:
            # The caller gave up in the very moment in which the child got ready.
            await self._stop((order.key,))
            if order.why is Why.by_hand and order.key in self.plan.children:
                self.plan.delete_child(order.key)
        return Answer(Word.ok, result.ref, result.extra)

    async def _terminate_child(self, message: _TerminateChild, _call: Call) -> Answer:
        ordered = self.plan.terminate_child(message.which)
        if isinstance(ordered, Answer):
            return ordered
        # A child that waits for its own end is told so, and nothing is stopped.
        self.host.waits.end(
            self.host.waits.begin(self, [self._by_child[key] for key in ordered.keys], what="the end of", any_of=False)
        )
        await self._stop(ordered.keys)
        return Answer(Word.ok)

    def _delete_child(self, message: _DeleteChild, _call: Call) -> Answer:
        return self.plan.delete_child(message.id)

    def _which(self, message: _Which, _call: Call) -> Any:
        return self.plan.which(message.id) or Answer(Word.not_found)

    def _get_spec(self, message: _GetSpec, _call: Call) -> Any:
        kept = self.plan._found(message.id)
        return Answer(Word.not_found) if kept is None else kept.spec

    def _list(self, _message: _Listing, _call: Call) -> Any:
        return self.plan.listed()

    def _count(self, _message: _Counting, _call: Call) -> Any:
        return self.plan.count()

    def _reconfigure(self, message: _Reconfigure, _call: Call) -> Answer:
        flags = read_flags(message.flags) if message.flags is not None else self.plan.flags
        self.plan.reconfigure(flags, check_specs(message.specs, flags))
        return Answer(Word.ok)


_REQUESTS: dict[type, Callable[[Supervisor, Any, Call], Any]] = {
    _StartChild: Supervisor._start_child,
    _TerminateChild: Supervisor._terminate_child,
    _RestartChild: Supervisor._restart_child,
    _DeleteChild: Supervisor._delete_child,
    _Which: Supervisor._which,
    _GetSpec: Supervisor._get_spec,
    _Listing: Supervisor._list,
    _Counting: Supervisor._count,
    _Reconfigure: Supervisor._reconfigure,
}


def ref_of(child: Child) -> Any:
    """Give the handle of one incarnation of a child."""
    if isinstance(child, Supervisor):
        return child.handle
    return child.ref if isinstance(child, (Actor, Task)) else child


@lru_cache(maxsize=1024)
def _parameters(start: Callable[..., Any]) -> bool:
    try:
        return "task_status" in inspect.signature(start).parameters
    except (TypeError, ValueError):
        return False


def wants_status(start: Callable[..., Any]) -> bool:
    """Whether a start follows trio's convention and tells by itself when it is ready."""
    try:
        return _parameters(start)
    except TypeError:
        # What cannot be hashed is looked at each time.
        return _parameters.__wrapped__(start)


class SupervisorRef:
    """The handle of one incarnation of a supervisor: administration.

    Every request is served by the supervisor's own loop. Once it has ended, each
    fails at once with `ActorGone` (``noproc``); while it is ending, the answer is
    ``stopping`` at once.
    """

    __slots__ = ("_supervisor",)

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"SupervisorRef({self.path!r})"

    @property
    def path(self) -> str:
        """Name the supervisor."""
        return self._supervisor.path

    @property
    def exit(self) -> Exit | None:
        """Give the recorded end, None while it lives."""
        return self._supervisor.exit

    async def wait(self) -> Exit:
        """Wait for the end, and give it.

        Cancellation: the supervisor is not disturbed.
        """
        return await self._supervisor.wait_ended()

    async def start_child(self, spec: ChildSpec | Mapping[str, Any], *, timeout: float | None = None) -> Answer:
        """Start one more child, and wait until it is ready.

        Words: ``ok`` (with ``ref`` and ``extra``), ``ignored``, ``already_started`` (``ref``),
        ``already_present``, ``max_children``, ``error`` (``reason`` is the `Exit` of the attempt),
        ``stopping``.

        Cancellation: no child, no spec and no name is left of it.

        Raises:
            ConfigError: the spec is faulty; nothing was sent.
            trio.TooSlowError: not ready in time; nothing is left of it.
        """
        read = read_spec(spec, "child", self._supervisor.plan.flags)
        return await self._request(_StartChild(read), timeout)

    async def terminate_child(self, which: Any, *, timeout: float | None = None) -> Answer:
        """Stop a child: by id, or by ref below a dynamic supervisor. Its spec is kept unless it is temporary.

        Words: ``ok``, ``not_found``, ``stopping``.

        Cancellation: the stop goes on if it had begun.
        """
        return await self._request(_TerminateChild(which), timeout)

    async def restart_child(self, id: Hashable, *, timeout: float | None = None) -> Answer:
        """Start a kept child that does not run. Costs nothing.

        Words: ``ok``, ``ignored``, ``running``, ``restarting``, ``not_found``, ``error``, ``stopping``, ``refused``.

        Cancellation: as `start_child`; the spec is kept.
        """
        return await self._request(_RestartChild(id), timeout)

    async def delete_child(self, id: Hashable, *, timeout: float | None = None) -> Answer:
        """Forget the spec of a child that does not run.

        Words: ``ok``, ``running``, ``restarting``, ``not_found``, ``stopping``, ``refused``.

        Cancellation: done or not done.
        """
        return await self._request(_DeleteChild(id), timeout)

    async def which_child(self, id: Any, *, timeout: float | None = None) -> Listed | None:
        """Give one line of the listing, None for what is no child.

        Cancellation: nothing changed.
        """
        listed: Listed | None = await self._ask(_Which(id), timeout)
        return listed

    async def list_children(self, *, timeout: float | None = None) -> list[Listed]:
        """List the children, newest first.

        Cancellation: nothing changed.
        """
        listed: list[Listed] = await self._ask(_Listing(), timeout)
        return listed

    async def count_children(self, *, timeout: float | None = None) -> Count:
        """Count the children by kind.

        Cancellation: nothing changed.
        """
        counted: Count = await self._ask(_Counting(), timeout)
        return counted

    async def get_spec(self, id: Any, *, timeout: float | None = None) -> ChildSpec | None:
        """Give a kept spec with its defaults filled in, None for what is no child.

        Cancellation: nothing changed.
        """
        spec: ChildSpec | None = await self._ask(_GetSpec(id), timeout)
        return spec

    async def reconfigure(
        self,
        specs: Iterable[ChildSpec | Mapping[str, Any]] = (),
        flags: Flags | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Answer:
        """Take new flags and specs, which apply from their next use; nothing that runs is ended.

        A spec that is missing keeps its child; a new one is added and not started.

        Cancellation: taken or not, whole.

        Raises:
            ConfigError: any fault; the old configuration stays whole.
        """
        own = self._supervisor.plan.flags
        read = own if flags is None else read_flags(flags)
        return await self._request(_Reconfigure(read, check_specs(specs, read)), timeout)

    async def stop(self, why: object = None, *, grace: float = math.inf) -> Exit:
        """Ask it to stop its children in order and to end, and wait for that.

        After ``grace`` seconds what is left is killed, leaf first. What did not end is
        named in `stop_receipt`.

        Cancellation: the stop goes on.

        Raises:
            ActorGone: it had ended before.
            ActorsError: asked from inside; it would wait for itself. Nothing was stopped.
        """
        supervisor = self._supervisor
        if supervisor.exit is not None:
            raise ActorGone(GoneReason.noproc, self.path, supervisor.exit)
        refuse_own_stop(supervisor)
        with trio.CancelScope(shield=True):
            await supervisor.host.stop_children([(supervisor, grace)], why)
        assert supervisor.exit is not None
        return supervisor.exit

    async def _request(self, request: Any, timeout: float | None) -> Answer:
        answer: Answer = await self._ask(request, timeout)
        return answer

    async def _ask(self, request: Any, timeout: float | None) -> Any:
        supervisor = self._supervisor
        if supervisor.exit is None and supervisor.ending:
            await trio.lowlevel.checkpoint()
            if supervisor.exit is None:
                return Answer(Word.stopping)
        return await supervisor.ref.ask(request, timeout)
