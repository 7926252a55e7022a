"""Names in place of refs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from actors.errors import ActorGone, GoneReason, Refused
from actors.runtime.actor import Ref, begin_wait
from actors.runtime.child import CURRENT, Child, Owner
from actors.runtime.dead_letters import Cause, DeadLetter
from actors.runtime.deadlines import judged_timeout


class Named:
    """A name in place of a ref: each message goes to the incarnation that lives then.

    ``patient`` asks and sends wait, within their deadline, for one that is restarting;
    others are told at once. Only an actor takes messages: to leave one for a task or a
    supervisor is a `TypeError`, and `ref` gives the handle.
    """

    __slots__ = ("_host", "_patient", "name")

    def __init__(self, host: Owner, name: str, *, patient: bool = False) -> None:
        self._host = host
        self.name = name
        self._patient = patient

    async def ref(self, timeout: float | None = None) -> Any:
        """Give the ref that has the name: of a supervisor, say, to administer it.

        Cancellation: nothing is left behind.

        Raises:
            ActorGone: ``noproc`` when nobody has the name, ``restarting`` between two incarnations.
            trio.TooSlowError: it was not back in time.
            WouldDeadlock: whoever would bring it back waits for this actor, perhaps through others.
        """
        if judged_timeout(timeout) is None:
            return await self._somebody()
        assert timeout is not None
        with trio.fail_after(timeout):
            return await self._somebody()

    def tell(self, message: Any) -> None:
        """Leave a message; to a name that nobody has it is a dead letter.

        Raises:
            MailboxFull: there is no room, and the policy is wait or fail.
        """
        ref = self._now()
        if ref is None:
            self._lost(message)
        else:
            self._taker(ref).tell(message)

    async def send(self, message: Any) -> None:
        """Leave a message, waiting for room.

        To a name that nobody has, or nobody just now, it is a dead letter.

        Checkpoint: always.
        Cancellation: the message was not left.

        Raises:
            MailboxFull: there is no room, and the policy is fail.
            WouldDeadlock: the one with the full mailbox, or who would bring it back, waits for the sender.
        """
        ref = self._now()
        if ref is None and self._patient:
            ref = await self._host.registry.wait_back(self.name, self._stand)
        if ref is None:
            await trio.lowlevel.checkpoint_if_cancelled()
            self._lost(message)
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._taker(ref).send(message)

    async def ask(self, message: Any, timeout: float | None = None) -> Any:
        """Ask whoever has the name.

        Cancellation: as `Ref.ask`.

        Raises:
            ActorGone: ``noproc`` when nobody has the name, ``restarting`` between two incarnations.
            trio.TooSlowError: no answer in time.
            WouldDeadlock: the one who is asked, or would bring it back, waits for the asker, perhaps through others.
        """
        if judged_timeout(timeout) is None:
            return await self._ask(message)
        assert timeout is not None
        with trio.fail_after(timeout):
            return await self._ask(message)

    async def _ask(self, message: Any) -> Any:
        return await self._taker(await self._somebody()).ask(message)

    async def _somebody(self) -> Any:
        ref = await self._then()
        if ref is None:
            raise ActorGone(GoneReason.noproc, self.name)
        return ref

    def _taker(self, ref: Any) -> Ref[Any]:
        if isinstance(ref, Ref):
            return ref
        raise TypeError(f"{self.name!r} names {ref.path}, which takes no messages; use its handle: await ref()")

    def _now(self) -> Any:
        try:
            return self._host.registry.whereis(self.name)
        except Refused:
            return None

    async def _then(self) -> Any:
        try:
            return self._host.registry.whereis(self.name)
        except Refused:
            if self._patient:
                return await self._host.registry.wait_back(self.name, self._stand)
            raise ActorGone(GoneReason.restarting, self.name) from None

    def _stand(self, brings_back: Any) -> Callable[[], None] | None:
        """Stand in the wait-for graph while the name is away: it may be the waiter who keeps it from coming back."""
        wait = begin_wait(brings_back, f"the return of {self.name!r} by") if isinstance(brings_back, Child) else None
        return None if wait is None else partial(self._host.waits.end, wait)

    def _lost(self, message: Any) -> None:
        sender = CURRENT.get()
        path = None if sender is None else sender.path
        self._host.dead_letters.put(DeadLetter(self.name, path, message, Cause.noproc, trio.current_time()))
