"""A look inside an actor of one's own, and changes to it from outside.

`statistics` is read from outside and needs nobody's cooperation. All else is run by
the actor itself between two messages; it travels in the system lane, so a full
mailbox does not delay it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

import attrs

from actors.runtime.actor import Ref
from actors.runtime.mailbox import Mailbox, MailboxStatistics


@attrs.frozen
class Statistics:
    """An actor from outside, without its cooperation. ``state`` is a word; times are seconds on trio's clock."""

    path: str
    state: str
    since: float
    message: object
    handled: int
    mailbox: MailboxStatistics
    stashed: int
    dead_letters: int
    late_answers: int
    # How often its supervisor had started this child again when this incarnation began.
    restarts: int


class Inside(Protocol):
    """What the ref needs of the actor behind it."""

    behaviour: Any

    def statistics(self) -> Statistics:
        """Count."""
        ...

    async def between_messages(self, run: Callable[[], Any], timeout: float | None) -> Any:
        """Run ``run`` between two messages. Cancellation: done or not done."""
        ...


class BehaviourRef(Ref[Any]):
    """The address of one incarnation of a behaviour, with a way to look inside.

    Looking and changing travel in the system lane: they work with a full mailbox, and
    are served between two messages.
    """

    @property
    def _inside(self) -> Inside:
        return cast(Inside, self._actor)

    def statistics(self) -> Statistics:  # type: ignore[override]
        """Look at it from outside; needs nobody's cooperation."""
        return self._inside.statistics()

    async def get_state(self, timeout: float | None = None) -> Any:
        """Give what the behaviour's ``get_state`` gives.

        Cancellation: nothing changed.

        Raises:
            ActorGone: it has ended.
            trio.TooSlowError: it did not come to it in time.
        """
        return await self._inside.between_messages(self._inside.behaviour.get_state, timeout)

    async def replace_state(self, state: Any, timeout: float | None = None) -> None:
        """Hand a state to the behaviour's ``replace_state``.

        Cancellation: replaced or not.

        Raises:
            ActorGone: it has ended.
            trio.TooSlowError: it did not come to it in time; unknown whether it will.
        """
        await self._inside.between_messages(partial(self._inside.behaviour.replace_state, state), timeout)

    async def suspend(self, timeout: float | None = None) -> None:
        """Handle only system messages from now on; a stop still works.

        Cancellation: suspended or not.
        """
        await self._inside.between_messages(partial(_pause, self._actor.mailbox, True), timeout)

    async def resume(self, timeout: float | None = None) -> None:
        """Handle messages again.

        Cancellation: resumed or not.
        """
        await self._inside.between_messages(partial(_pause, self._actor.mailbox, False), timeout)


def _pause(mailbox: Mailbox[Any], paused: bool) -> None:
    mailbox.paused = paused
