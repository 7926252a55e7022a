"""An actor: one task that answers one message at a time.

``tell`` never waits, ``send`` waits for room, ``ask`` waits for the answer. The
answer goes into a one-shot slot that dies with the call, so a late answer can
reach nobody. An ask whose caller was cancelled before its message was looked
at is not handled at all: then the caller knows that nothing was done.

An actor whose handler is sync and that is idle (parked, nothing in its mailbox)
handles an ask in the asking task's own step. Nothing could come between: the
message would be the next one, and a sync handler lets nobody else run. It saves
two turns of the scheduler. What a handler raises still ends the actor, in the
actor's own task.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import attrs
import outcome
import trio

from actors.errors import ActorGone, GoneReason, MailboxClosed, WouldDeadlock
from actors.runtime.child import CURRENT, Child, Owner, refuse_own_stop
from actors.runtime.dead_letters import Cause, DeadLetter
from actors.runtime.deadlines import Entry, judged_timeout
from actors.runtime.exits import Exit, Reason
from actors.runtime.mailbox import DEFAULT_BOUND, NOTHING, Mailbox, MailboxStatistics, Overflow
from actors.runtime.wait_graph import Wait, WaitGraph

M = TypeVar("M")

# Yield after so many messages, so that one busy actor cannot starve the rest.
BATCH: Final = 64


class Later(Enum):
    """The mark a handler returns when the answer comes later, through the call."""

    later = "later"


LATER: Final = Later.later


class Call:
    """One ask: the slot its answer goes to. The first answer counts, and only while the caller waits."""

    __slots__ = ("_open", "_task", "at_once", "error", "message", "on_abort", "timeout", "value", "wait", "waits")

    def __init__(self, message: Any, task: trio.lowlevel.Task) -> None:
        self.message = message
        self._task: trio.lowlevel.Task | None = task
        self._open: dict[Call, None] | None = None
        # Set while the asking task itself runs the handler: then the answer is kept, as nobody is parked for it.
        self.at_once = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.timeout: Entry | None = None
        # The caller's wait in the wait-for graph. It ends in the step that answers: the caller's task runs only later.
        self.wait: Wait | None = None
        self.waits: WaitGraph
        # Called when the caller gives up; whoever answers later drops what it kept for the call.
        self.on_abort: Callable[[], None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether somebody still waits for the answer."""
        return self._task is not None

    def answer(self, value: Any) -> bool:
        """Answer the call; False when nobody waits any more or it was answered."""
        return self._resolve(value, None)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error; False when nobody waits any more or it was answered."""
        return self._resolve(None, error)

    def _resolve(self, value: Any, error: BaseException | None) -> bool:
        task, self._task = self._task, None
        if task is None:
            return False
        self._close()
        if self.at_once:
            self.value, self.error = value, error
        else:
            trio.lowlevel.reschedule(task, outcome.Value(value) if error is None else outcome.Error(error))
        return True

    def abort(self, _raise_cancel: Any) -> trio.lowlevel.Abort:
        """Give up: the caller was cancelled."""
        self._task = None
        self._close()
        if self.on_abort is not None:
            self.on_abort()
        return trio.lowlevel.Abort.SUCCEEDED

    def join(self, calls: dict[Call, None]) -> None:
        """Be among the open asks of an actor, so that its end answers this one."""
        self._open = calls
        calls[self] = None

    def leave(self) -> None:
        """Be among the open asks of no actor: a next incarnation is to answer."""
        if self._open is not None:
            self._open.pop(self, None)
            self._open = None

    def stand(self, wait: Wait, waits: WaitGraph) -> None:
        """Take the wait of the caller, to end it with the call."""
        self.wait, self.waits = wait, waits

    def turn_to(self, target: Child) -> bool:
        """Let the caller wait for another one; False when that could never end, and then it is told so."""
        wait = self.wait
        if wait is None:
            return True
        self.waits.end(wait)
        try:
            self.wait = self.waits.begin(wait.waiter, (target,), what=wait.what, any_of=False)
        except WouldDeadlock as error:
            self.fail(error)
            return False
        return True

    def drop(self) -> None:
        """Give up before anybody waits; does what a cancel does."""
        self.abort(None)

    def time_out(self) -> None:
        """Give up for the caller: its time is over."""
        if self.fail(trio.TooSlowError()) and self.on_abort is not None:
            self.on_abort()

    def _close(self) -> None:
        if self._open is not None:
            self._open.pop(self, None)
        if self.timeout is not None:
            self.timeout.cancel()
        if self.wait is not None:
            self.waits.end(self.wait)


class _Stop:
    """The system message that ends an actor after the message in work."""


_STOP: Final = _Stop()


@attrs.frozen(eq=False)
class _Crash:
    """The system message that an error of the handler, run in a caller's step, ends the actor by."""

    error: BaseException


@attrs.frozen
class Asked:
    """A stop that was asked for: when, on trio's clock, and why."""

    at: float
    why: object


class Actor(Child, Generic[M]):
    """A child whose work is to handle messages.

    ``receive(message, call)`` is a plain or an async function. ``call`` is None for
    a tell; for an ask the return value is the answer, unless it is `LATER`. An
    exception ends the actor, and is the answer of every open ask.
    """

    __slots__ = ("_async", "_at_once", "_calls", "_receive", "asked", "dead_letters", "late_answers", "mailbox", "ref")

    # Messages of the runtime itself, which are no letters; and the one that a handler's error comes back by.
    system_messages: ClassVar[tuple[type, ...]] = (_Stop, _Crash)
    crash_message: ClassVar[type[_Crash]] = _Crash

    def __init__(
        self,
        path: str,
        parent: Child | None,
        host: Owner,
        receive: Callable[[M, Call | None], Any],
        *,
        bound: int = DEFAULT_BOUND,
        overflow: Overflow = Overflow.wait,
        may_parent: bool = False,
    ) -> None:
        super().__init__(path, parent, host, may_parent=may_parent)
        self.mailbox: Mailbox[Any] = Mailbox(bound, overflow, self._dropped)
        self._receive = receive
        self._async = inspect.iscoroutinefunction(receive)
        # Asks that have no answer yet, so that an end answers them all.
        self._calls: dict[Call, None] = {}
        # Asks that were handled in their callers' steps since somebody last yielded.
        self._at_once = 0
        self.dead_letters = 0
        self.late_answers = 0
        # When and why its supervisor asked it to stop.
        self.asked: Asked | None = None
        # The address of this incarnation.
        self.ref: Ref[M] = Ref(self)

    async def work(self) -> None:
        """Handle messages until told to stop.

        Cancellation: the message in work is not handled again.
        """
        handled = 0
        take = self.mailbox.take
        while True:
            message = take()
            if message is NOTHING:
                handled = 0
                await self.mailbox.wait()
                continue
            if message is _STOP:
                return
            if type(message) is _Crash:
                raise message.error
            self._handle(message) if not self._async else await self._handle_async(message)
            handled += 1
            if handled >= BATCH:
                handled = 0
                await trio.lowlevel.checkpoint()

    def _handle(self, message: Any) -> None:
        if type(message) is not Call:
            self._receive(message, None)
            return
        if message.waiting:
            value = self._receive(message.message, message)
            if value is not LATER and not message.answer(value):
                self.late_answers += 1

    async def _handle_async(self, message: Any) -> None:
        if type(message) is not Call:
            await self._receive(message, None)
            return
        if message.waiting:
            value = await self._receive(message.message, message)
            if value is not LATER and not message.answer(value):
                self.late_answers += 1

    def handle_at_once(self, call: Call) -> bool:
        """Handle a call in its caller's step if nothing can come between; tell whether it was handled."""
        if self._async or not self.mailbox.idle:
            return False
        call.at_once = True
        try:
            value = self._receive(call.message, call)
        except BaseException as error:
            # The actor ends in its own task, and this call is answered there like all others that are open.
            self.mailbox.put_system(_Crash(error))
            value = LATER
        if value is not LATER:
            call.answer(value)
        call.at_once = False
        return True

    def must_yield(self) -> bool:
        """Count an ask that was handled in its caller's step; tell whether the caller must let others run."""
        self._at_once += 1
        if self._at_once < BATCH:
            return False
        self._at_once = 0
        return True

    def _dropped(self, message: Any) -> None:
        self.dead_letter(message, Cause.dropped)
        if type(message) is Call:
            message.fail(ActorGone(GoneReason.dropped, self.path))

    def dead_letter(self, message: Any, cause: Cause) -> None:
        """Count a message that nobody will handle, and put it into the tree's sink."""
        self.dead_letters += 1
        if type(message) is Call:
            message = message.message
        sender = CURRENT.get()
        path = None if sender is None or sender is self else sender.path
        self.host.dead_letters.put(DeadLetter(self.path, path, message, cause, trio.current_time()))

    def request_stop(self, why: object) -> None:
        """Ask it to end after the message in work; the end is a shutdown."""
        if self.exit is None and self.asked is None:
            self.asked = Asked(trio.current_time(), why)
            with suppress(MailboxClosed):
                self.mailbox.put_system(_STOP)

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        end = super()._exit(reason, raised, lost)
        if self.asked is None or self._stop_at is not None or reason is not Reason.normal:
            return end
        return attrs.evolve(end, reason=Reason.shutdown, payload=self.asked.why, asked_at=self.asked.at)

    def ended(self, exit: Exit) -> None:
        """Answer every open ask with the end, and count what was never read."""
        for message in self.mailbox.close():
            if type(message) not in self.system_messages:
                self.dead_letter(message, Cause.unread)
        reason = GoneReason.stopped if exit.clean else GoneReason.crashed
        for call in list(self._calls):
            gone = ActorGone(reason, self.path, exit)
            gone.__cause__ = exit.cause
            call.fail(gone)


@attrs.frozen(eq=False)
class Ref(Generic[M]):
    """The address of one incarnation of an actor. It outlives the actor, and then leads nowhere."""

    _actor: Actor[M]

    @property
    def path(self) -> str:
        """Name the actor."""
        return self._actor.path

    @property
    def exit(self) -> Exit | None:
        """Give the recorded end, None while it lives."""
        return self._actor.exit

    def tell(self, message: M) -> None:
        """Leave a message; never waits. To an ended actor it is a dead letter.

        Raises:
            MailboxFull: there is no room, and the policy is wait or fail.
        """
        try:
            self._actor.mailbox.put_nowait(message)
        except MailboxClosed:
            self._actor.dead_letter(message, Cause.noproc)

    async def send(self, message: M) -> None:
        """Leave a message, waiting for room. To an actor that has ended, or ends meanwhile, it is a dead letter.

        Checkpoint: always.
        Cancellation: the message was not left.

        Raises:
            MailboxFull: there is no room, and the policy is fail.
            WouldDeadlock: the one with the full mailbox waits for the sender.
        """
        actor = self._actor
        dead = actor.exit is not None
        wait = None if actor.mailbox.has_room else begin_wait(actor, "room in the mailbox of")
        stands = None if wait is None else partial(actor.host.waits.end, wait)
        try:
            await actor.mailbox.put(message, stands)
        except MailboxClosed:
            actor.dead_letter(message, Cause.noproc if dead else Cause.stopped)
        finally:
            if stands is not None:
                stands()

    async def ask(self, message: M, timeout: float | None = None) -> Any:
        """Leave a message and wait for the answer; ``timeout`` in seconds covers both.

        Checkpoint: looks for a cancel always; lets others run unless the actor was
            idle and answered at once, and then at least once in 64 asks.
        Cancellation: if the message had not been looked at it will not be; else
            what became of it is unknown, and the actor is not disturbed.

        Raises:
            ActorGone: it has ended, crashed while this waited (the cause is chained), or dropped the message.
            MailboxFull: there is no room, and the policy is fail.
            trio.TooSlowError: no answer in time; the outcome is unknown.
            WouldDeadlock: the one who is asked waits for the asker, perhaps through others.
            ValueError: the timeout is no number of seconds; nothing was left.
        """
        actor = self._actor
        if timeout is not None:
            judged_timeout(timeout)
        if actor.exit is not None:
            raise ActorGone(GoneReason.noproc, actor.path, actor.exit)
        if actor.asked is not None:
            raise ActorGone(GoneReason.stopping, actor.path)
        await trio.lowlevel.checkpoint_if_cancelled()
        call = Call(message, trio.lowlevel.current_task())
        if timeout is None and actor.handle_at_once(call):
            if not call.waiting:
                if actor.must_yield():
                    await trio.lowlevel.cancel_shielded_checkpoint()
                if call.error is not None:
                    raise call.error
                return call.value
            return await self._answered(call)
        # A full mailbox may drop it in this very step, when nobody is parked for the answer yet.
        call.at_once = True
        try:
            call.on_abort = actor.mailbox.put_or_line_up(call)
        except MailboxClosed:
            raise ActorGone(GoneReason.noproc, actor.path, actor.exit) from None
        if call.error is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            raise call.error
        call.at_once = False
        if timeout is not None:
            call.timeout = actor.host.deadlines.at(trio.current_time() + timeout, call.time_out)
        return await self._answered(call)

    async def _answered(self, call: Call) -> Any:
        actor = self._actor
        try:
            wait = begin_wait(actor, "an answer from")
        except WouldDeadlock:
            # The message may lie in the mailbox already; nobody waits for it, so it is passed over.
            call.drop()
            raise
        if wait is not None:
            call.stand(wait, actor.host.waits)
        call.join(actor._calls)
        return await trio.lowlevel.wait_task_rescheduled(call.abort)

    async def stop(self, why: object = None, *, grace: float = math.inf) -> Exit:
        """Ask the actor to end after the message in work, and wait until it has.

        After ``grace`` seconds it is killed. The end says how it went; whoever did not
        leave even then is recorded so.

        Cancellation: the request stands; nobody is killed.

        Raises:
            ActorGone: it had ended before.
            ActorsError: it asks for its own stop, and would wait for itself. Nothing was stopped.
            WouldDeadlock: the actor waits for the one who asks, perhaps through others. Nothing was stopped.
            ValueError: the grace is no number of seconds; the actor lives.
        """
        actor = self._actor
        if type(grace) not in (int, float) or not grace >= 0:
            raise ValueError(f"grace must be seconds from 0 on, not {grace!r}")
        if actor.exit is not None:
            raise ActorGone(GoneReason.noproc, self.path, actor.exit)
        refuse_own_stop(actor)
        with waiting_for(actor, "the end of"):
            await actor.host.stop_children([(actor, grace)], why)
        assert actor.exit is not None
        return actor.exit

    def statistics(self) -> MailboxStatistics:
        """Count what went through the mailbox."""
        return self._actor.mailbox.statistics()


def begin_wait(target: Child, what: str) -> Wait | None:
    """Enter the wait of the running actor for ``target``; None when the running task is no actor's own.

    Raises:
        WouldDeadlock: ``target`` waits for this actor, perhaps through others.
    """
    waiter = CURRENT.get()
    if waiter is None or waiter.task is not trio.lowlevel.current_task():
        return None
    return target.host.waits.begin(waiter, (target,), what=what, any_of=False)


@contextmanager
def waiting_for(target: Child, what: str) -> Iterator[None]:
    """Stand in the wait-for graph for as long as the block.

    Raises:
        WouldDeadlock: as `begin_wait`; the block was not entered.
    """
    wait = begin_wait(target, what)
    try:
        yield
    finally:
        if wait is not None:
            target.host.waits.end(wait)
