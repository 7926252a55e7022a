"""Actors of your own: a class with ``init``, ``receive`` and ``terminate``.

    class Counter(Behaviour):
        async def init(self):
            self.count = 0

        def receive(self, message, call):
            self.count += message
            return self.count

    ChildSpec("counter", Counter, name="counter")

One message is handled at a time. ``receive`` may be a plain or an async method;
its return value is the answer of an ask, unless it is `LATER`. What it raises
ends the actor, and its supervisor decides what follows.

The order of an end: its children have ended -> ``terminate`` has run -> timers
are gone -> the name is free -> open asks are answered, unread messages are dead
letters -> the end is recorded -> supervisor, monitors and links are told.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs
import trio

from actors.errors import ActorGone, GoneReason, MailboxClosed
from actors.runtime.actor import BATCH, LATER, Actor, Asked, Call, Ref, begin_wait
from actors.runtime.behaviour_ref import BehaviourRef, Statistics
from actors.runtime.between import KeepsName
from actors.runtime.child import CURRENT, Child, Owner
from actors.runtime.dead_letters import Cause
from actors.runtime.deadlines import judged_timeout
from actors.runtime.exits import Exit, Reason, swallowed_by, without_cancelled
from actors.runtime.links import Down, Linked, Monitor, link, unlink
from actors.runtime.mailbox import NOTHING, Overflow
from actors.runtime.specs import ChildSpec, OnRestart
from actors.runtime.starting import Ignore
from actors.runtime.timers import Tick, Timer, seconds_of

# Messages that an actor may set aside.
STASH_BOUND: Final = 1024


class BadReturn(Exception):
    """A handler gave back what it must not."""


class StashFull(Exception):
    """More was set aside than the stash holds."""


class Behaviour:
    """Base of actors of your own. Made anew for each incarnation.

    Class attributes: ``trap_ends`` gives ends of links as `Linked` messages;
    ``terminate_seconds`` bounds ``terminate``.
    """

    trap_ends: ClassVar[bool] = False
    terminate_seconds: ClassVar[float] = 5.0
    # Set before ``init`` runs.
    me: Me

    async def init(self) -> Any:
        """Get ready; the next sibling starts when this has returned.

        What it returns goes to whoever started the child, as ``extra``; `IGNORE` means
        that it does not want to run. What it raises fails the start.

        Cancellation: the start was given up.
        """

    def receive(self, message: Any, call: Call | None) -> Any:
        """Handle one message; ``call`` is None for a tell. May be an async method."""
        raise NotImplementedError(f"{type(self).__name__} has no receive")

    async def terminate(self, exit: Exit) -> None:
        """Clean up after the last message, also when a handler raised; not after a kill.

        Cancellation: shielded, for ``terminate_seconds`` at most.
        """

    @classmethod
    def needs_no_init(cls) -> bool:
        """Whether it is ready by being made."""
        return cls.init is Behaviour.init

    def get_state(self) -> Any:
        """Give the state for whoever looks inside."""
        return {name: value for name, value in vars(self).items() if name != "me"}

    def replace_state(self, state: Any) -> None:
        """Take a state from whoever looked inside."""
        # Taken whole before anything of the old one is given up.
        fresh = {**dict(state), "me": self.me}
        vars(self).clear()
        vars(self).update(fresh)

    def as_child(self, path: str, parent: Child, host: Owner, spec: ChildSpec) -> BehaviourActor:
        """Make the child that runs this; called by the supervisor."""
        return BehaviourActor(path, parent, host, self, spec)


@attrs.frozen(eq=False)
class _Inspect:
    """A look inside, or a change, between two messages."""

    run: Callable[[], Any]


# Messages of the runtime itself, which no handler sees, and those it sees that come through the system lane.
_INTERNAL: Final = frozenset({_Inspect, Down, Linked, *Actor.system_messages})
# What has a message inside.
_WRAPPED: Final = frozenset({Call, Tick})


class BehaviourActor(KeepsName, Actor[Any]):
    """The child that runs a `Behaviour`."""

    __slots__ = ("_closing", "_current", "_ending", "_handled", "_restarts", "_since", "_timers", "behaviour", "carried", "former", "name", "spec", "stash", "stashed_now")  # noqa: E501

    system_messages = tuple(_INTERNAL)

    def __init__(self, path: str, parent: Child | None, host: Owner, behaviour: Behaviour, spec: ChildSpec) -> None:
        super().__init__(
            path, parent, host, self._sync, bound=spec.mailbox, overflow=Overflow(spec.overflow), may_parent=False
        )
        self._async = inspect.iscoroutinefunction(behaviour.receive)
        self.behaviour = behaviour
        self.spec = spec
        self.name = spec.name
        self.stash: list[Any] = []
        self.stashed_now = False
        # The incarnation whose unread messages this one takes over once it is ready.
        self.former: BehaviourActor | None = None
        self.ref: BehaviourRef = BehaviourRef(self)
        # What was left unread, for the next incarnation.
        self.carried: list[Any] = []
        self._timers: dict[Timer, None] = {}
        self._closing: trio.CancelScope | None = None
        self._current: Any = NOTHING
        self._handled = 0
        self._since = 0.0
        # Counted at the end: afterwards nobody can be asked any more.
        self._restarts: int
        self._ending: tuple[Reason, Any, BaseException | None] | None = None
        behaviour.me = Me(self)

    # ── its life ────────────────────────────────────────────────────────────

    async def work(self) -> None:
        """Take the name, get ready, handle messages until told to stop.

        Cancellation: the message in work is not handled again.
        """
        if self.name is not None:
            self.host.registry.register(self.name, self.ref)
        self._since = trio.current_time()
        extra = await self.behaviour.init()
        if isinstance(extra, Ignore):
            if self.starter is not None:
                self.starter.resolve(ready=False, extra=extra)
            return
        if self.former is not None:
            self._take_over(self.former)
            self.former = None
        self.mark_ready(extra)
        await self._serve()

    async def _serve(self) -> None:
        handled = 0
        take, receive = self.mailbox.take, self.behaviour.receive
        while self._ending is None:
            message = take()
            if message is NOTHING:
                handled = 0
                await self.mailbox.wait()
                continue
            if type(message) in _INTERNAL:
                if not await self._internal(message):
                    return
            elif self._async or type(message) in _WRAPPED:
                await self._one(message)
            else:
                self._current = message
                self._end(receive(message, None), None)
            handled += 1
            if handled >= BATCH:
                handled = 0
                await trio.lowlevel.checkpoint()

    async def _one(self, message: Any) -> None:
        call = message if type(message) is Call else None
        if call is not None and not call.waiting:
            return
        body = message if call is None else call.message
        if type(body) is Tick:
            body = body.timer.delivered()
        self._current = message
        if self._async:
            self._since = trio.current_time()
            value = await self.behaviour.receive(body, call)
            self._since = trio.current_time()
        else:
            # A plain method takes no time on the clock, so no times are noted.
            value = self.behaviour.receive(body, call)
        self._end(value, call)

    def _sync(self, body: Any, call: Call | None) -> Any:
        """Handle an ask in its caller's step."""
        self._current = call
        # What it sends meanwhile is its own, and not the asker's.
        asker = CURRENT.set(self)
        try:
            value = self.behaviour.receive(body, call)
        finally:
            CURRENT.reset(asker)
        self._end(value, call)
        return LATER

    def _end(self, value: Any, call: Call | None) -> None:
        self._handled += 1
        self._current = NOTHING
        if self.stashed_now:
            self.stashed_now = False
        elif value is LATER:
            if call is None:
                raise BadReturn("LATER answers nobody: the message was a tell")
        elif value is not None and (hasattr(value, "__await__") or hasattr(value, "__anext__")):
            if inspect.iscoroutine(value):
                value.close()
            gave = f"{type(self.behaviour).__name__}.receive gave {type(value).__name__}"
            raise BadReturn(f"{gave}, which nobody awaits; make it a plain async method")
        elif call is not None and not call.answer(value):
            self.late_answers += 1

    async def _internal(self, message: Any) -> bool:
        """Handle a message of the runtime; tell whether to go on."""
        if type(message) is _Inspect:
            message.run()
            return True
        if type(message) in (Down, Linked):
            if not (type(message) is Down and message.void):
                await self._one(message)
            return True
        if isinstance(message, Actor.crash_message):
            raise message.error
        return False

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        end = super()._exit(reason, raised, lost)
        if isinstance(raised, BadReturn):
            return attrs.evolve(end, reason=Reason.bad_return)
        if self._ending is not None and reason in (Reason.normal, Reason.shutdown):
            ending, payload, cause = self._ending
            return attrs.evolve(end, reason=ending, payload=payload, cause=cause, asked_at=None)
        return end

    def must_close(self) -> bool:
        """Tell whether the behaviour cleans up."""
        return type(self.behaviour).terminate is not Behaviour.terminate

    async def closing(self, exit: Exit) -> Exit | None:
        """Run ``terminate`` under a shield that ends with its time, or with a kill.

        Cancellation: shielded.
        """
        if self._killed:
            return None
        lost: BaseException | None = None
        seconds = self.behaviour.terminate_seconds
        with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds) as self._closing:
            try:
                await self.behaviour.terminate(exit)
            except BaseException as error:
                if without_cancelled(error) is None:
                    lost = swallowed_by(error)
                raise
        if self._killed and exit.clean:
            asked_at = self._stop_at if exit.asked_at is None else exit.asked_at
            exit = attrs.evolve(exit, reason=Reason.killed, asked_at=asked_at)
        elif self._closing.cancelled_caught and lost is None and not self._killed:
            lost = trio.TooSlowError(f"terminate did not end within {seconds:g} s")
        if lost is not None and exit.lost is not None:
            self.host.closing_failed(self, lost)
        return exit if lost is None or exit.lost is not None else attrs.evolve(exit, lost=lost)

    def kill(self) -> None:
        """Cancel the work, and the clean-up with it."""
        super().kill()
        if self._closing is not None:
            self._closing.cancel()

    def end_as(self, reason: Reason, payload: Any = None, cause: BaseException | None = None) -> None:
        """End in the running step with this reason, whatever is in work."""
        if self._ending is None and self.exit is None:
            self._ending = (reason, payload, cause)
            self.cut()

    def linked_end(self, ended: Child, ref: Any, exit: Exit) -> None:
        """Hear of the end of something linked: as a message, or by ending as it did."""
        if self.behaviour.trap_ends:
            self.mailbox.put_system(Linked(ref, exit))
        elif exit.reason is not Reason.normal:
            self.end_as(exit.reason, exit.payload, exit.cause)

    def ended(self, exit: Exit) -> None:
        """Give everything back, in the order the module's docstring gives."""
        for timer in list(self._timers):
            timer.cancel()
        self._restarts = self._counted_restarts()
        self.give_back_name(self.ref, exit)
        # What was set aside counts as unread, and came before the rest.
        self.mailbox.put_back(self.stash)
        self.stash = []
        if self.spec.messages is OnRestart.keep and self.may_come_back(exit):
            self.carried = self._unread()
            if self.former is not None:
                # It never got ready: all of it waits for the incarnation after this one.
                self.former.carried += self.carried
                self.carried = []
        super().ended(exit)

    def _unread(self) -> list[Any]:
        left = []
        for message in self.mailbox.close():
            if message is self._current:
                # Set aside by the handling that failed: the message at fault is not handled again.
                self.dead_letter(message, Cause.unread)
            elif type(message) is Call:
                message.leave()
                # Until the next incarnation is ready it is the supervisor that has to act.
                if self._goes_to(self.parent or self, message):
                    left.append(message)
            elif type(message) not in _INTERNAL and type(message) is not Tick:
                # A tick belongs to this incarnation, and never reaches the next.
                left.append(message)
        return left

    def _dropped(self, message: Any) -> None:
        if type(message) is Tick:
            message.timer.missed()
        else:
            super()._dropped(message)

    def dead_letter(self, message: Any, cause: Cause) -> None:
        """Count a message that nobody will handle; of a tick, the message it brings."""
        super().dead_letter(message.timer.delivered() if type(message) is Tick else message, cause)

    def _take_over(self, former: BehaviourActor) -> None:
        """Take the messages that a former incarnation left unread, in order; open asks stay open."""
        messages, former.carried = former.carried, []
        # Without asks that were given up meanwhile.
        left = []
        for message in messages:
            if type(message) is not Call:
                left.append(message)
            elif self._goes_to(self, message):
                message.join(self._calls)
                left.append(message)
        self.mailbox.put_back(left)

    def _goes_to(self, target: Child, call: Call) -> bool:
        """Turn an open ask to whoever has to act now; False when it is open no more."""
        if call.waiting and not call.turn_to(target):
            # The caller was told that it would wait for ever.
            self.dead_letter(call, Cause.unread)
        return call.waiting

    @property
    def returns(self) -> bool:
        """Whether a name or messages wait for a next incarnation."""
        return bool(self.carried) or super().returns

    def followed_by(self, child: Child) -> None:
        """Hand on what was left unread."""
        if isinstance(child, BehaviourActor):
            child.former = self

    def let_go(self) -> None:
        """Drop what was kept for a next incarnation: there is none."""
        super().let_go()
        self.drop_messages()

    def drop_messages(self) -> None:
        """Drop messages that no next incarnation takes; open asks are told so."""
        messages, self.carried = self.carried, []
        for message in messages:
            self.dead_letter(message, Cause.unread)
            if type(message) is Call:
                message.fail(ActorGone(GoneReason.stopped, self.path, self.exit))

    # ── looking inside ──────────────────────────────────────────────────────

    def statistics(self) -> Statistics:
        """Look at it from outside; needs nobody's cooperation."""
        state = "ended" if self.exit is not None else "stopping" if self.asked is not None else self._state()
        message = None if self._current is NOTHING else self._current
        body = message.message if type(message) is Call else message
        return Statistics(
            self.path,
            state,
            self._since,
            body,
            self._handled,
            self.mailbox.statistics(),
            len(self.stash),
            self.dead_letters,
            self.late_answers,
            self._counted_restarts() if self.exit is None else self._restarts,
        )

    def _counted_restarts(self) -> int:
        restarts_of = getattr(self.parent, "restarts_of", None)
        return 0 if restarts_of is None else int(restarts_of(self))

    def _state(self) -> str:
        if self.starter is not None and not self.starter.over:
            return "init"
        if self.mailbox.paused:
            return "suspended"
        return "waiting" if self._current is NOTHING else "working"

    async def between_messages(self, run: Callable[[], Any], timeout: float | None) -> Any:
        """Run ``run`` between two messages, in the system lane, and give what it gave.

        Cancellation: done or not done.
        """
        judged_timeout(timeout)
        if self.exit is not None:
            raise ActorGone(GoneReason.noproc, self.path, self.exit)
        await trio.lowlevel.checkpoint_if_cancelled()
        wait = begin_wait(self, "a look inside")
        call = Call(None, trio.lowlevel.current_task())
        if wait is not None:
            call.stand(wait, self.host.waits)

        def answer() -> None:
            if not call.waiting:
                return
            try:
                call.answer(run())
            except Exception as error:
                call.fail(error)

        try:
            self.mailbox.put_system(_Inspect(answer))
        except MailboxClosed:
            call.drop()
            raise ActorGone(GoneReason.noproc, self.path, self.exit) from None
        if timeout is not None:
            call.timeout = self.host.deadlines.at(trio.current_time() + timeout, call.time_out)
        call.join(self._calls)
        return await trio.lowlevel.wait_task_rescheduled(call.abort)


class Me:
    """What a behaviour knows of itself, and may do."""

    __slots__ = ("_actor",)

    def __init__(self, actor: BehaviourActor) -> None:
        self._actor = actor

    @property
    def ref(self) -> Ref[Any]:
        """Give the address of this incarnation."""
        return self._actor.ref

    @property
    def path(self) -> str:
        """Name this actor."""
        return self._actor.path

    def stop(self, payload: Any = None, *, reason: Reason = Reason.normal) -> None:
        """End after the message in work, as ``normal`` or ``shutdown``."""
        if reason not in (Reason.normal, Reason.shutdown):
            raise ValueError(f"an actor ends itself as normal or shutdown, not as {reason}")
        actor = self._actor
        actor._ending = actor._ending or (reason, payload, None)
        # Whoever asks from now on is told that it is stopping.
        actor.asked = actor.asked or Asked(trio.current_time(), payload)
        # An ask may have been handled in its caller's step, while the actor's own task is parked.
        actor.mailbox.wake()

    def whereis(self, name: str) -> Any:
        """Give the ref that has the name now, None when nobody has.

        Raises:
            NameRestarting: its actor is between two incarnations.
        """
        return self._actor.host.registry.whereis(name)

    def send_after(self, seconds: float, message: Any) -> Timer:
        """Leave a message in the own mailbox after so many seconds."""
        return Timer(self._actor, self._actor._timers, message, seconds_of(seconds), None)

    def send_every(self, seconds: float, message: Any) -> Timer:
        """Leave a message every so many seconds, at most one undelivered at a time."""
        every = seconds_of(seconds)
        if every <= 0:
            raise ValueError("a periodic timer needs seconds above 0")
        return Timer(self._actor, self._actor._timers, message, every, every)

    def stash(self) -> None:
        """Set the message in work aside; an ask stays open.

        Raises:
            StashFull: it holds `STASH_BOUND` messages.
        """
        actor = self._actor
        if actor._current is NOTHING or actor._closing is not None:
            raise RuntimeError("no message is in work")
        if actor.stashed_now:
            raise RuntimeError("this message was set aside already")
        if len(actor.stash) >= STASH_BOUND:
            # Asks whose callers have given up are passed over anyway.
            actor.stash = [each for each in actor.stash if type(each) is not Call or each.waiting]
        if len(actor.stash) >= STASH_BOUND:
            raise StashFull(f"the stash holds {STASH_BOUND} messages")
        actor.stash.append(actor._current)
        actor.stashed_now = True

    def unstash_all(self) -> None:
        """Put what was set aside back at the front of the mailbox, in order."""
        actor = self._actor
        messages, actor.stash = actor.stash, []
        actor.mailbox.put_back(messages)

    def monitor(self, ref: Any) -> Monitor:
        """Have one `Down` message when ``ref`` ends; at once, with ``noproc``, if it has."""
        return Monitor(self._actor, ref)

    def link(self, ref: Any) -> None:
        """Tie both ends together: an end other than ``normal`` ends the other side with the same reason.

        An actor with ``trap_ends`` gets a `Linked` message instead. Linking twice is
        linking once; a ref that has ended counts as ``noproc``.
        """
        link(self._actor, ref)

    def unlink(self, ref: Any) -> None:
        """Untie; nothing happens if there is no link."""
        unlink(self._actor, ref)
