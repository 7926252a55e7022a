"""Names in place of refs."""

from typing import Any

import trio

from actors.errors import ActorGone, GoneReason, Refused
from actors.runtime.child import CURRENT, Owner
from actors.runtime.dead_letters import Cause, DeadLetter
from actors.runtime.deadlines import judged_timeout


class Named:
    """A name in place of a ref: each message goes to the incarnation that lives then.

    ``patient`` asks and sends wait, within their deadline, for one that is restarting;
    others are told at once.
    """

    __slots__ = ("_host", "_patient", "name")

    def __init__(self, host: Owner, name: str, *, patient: bool = False) -> None:
        self._host = host
        self.name = name
        self._patient = patient

    def tell(self, message: Any) -> None:
        """Leave a message; to a name that nobody has it is a dead letter.

        Raises:
            MailboxFull: there is no room, and the policy is wait or fail.
        """
        ref = self._now()
        if ref is None:
            self._lost(message)
        else:
            ref.tell(message)

    async def send(self, message: Any) -> None:
        """Leave a message, waiting for room.

        Cancellation: the message was not left.
        """
        ref = await self._then()
        if ref is None:
            self._lost(message)
            await trio.lowlevel.checkpoint()
        else:
            await ref.send(message)

    async def ask(self, message: Any, timeout: float | None = None) -> Any:
        """Ask whoever has the name.

        Cancellation: as `Ref.ask`.

        Raises:
            ActorGone: ``noproc`` when nobody has the name, ``restarting`` between two incarnations.
            trio.TooSlowError: no answer in time.
        """
        if judged_timeout(timeout) is None:
            return await self._ask(message)
        assert timeout is not None
        with trio.fail_after(timeout):
            return await self._ask(message)

    async def _ask(self, message: Any) -> Any:
        ref = await self._then()
        if ref is None:
            raise ActorGone(GoneReason.noproc, self.name)
        return await ref.ask(message)

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
                return await self._host.registry.wait_back(self.name)
            raise ActorGone(GoneReason.restarting, self.name) from None

    def _lost(self, message: Any) -> None:
        sender = CURRENT.get()
        path = None if sender is None else sender.path
        self._host.dead_letters.put(DeadLetter(self.name, path, message, Cause.noproc, trio.current_time()))
