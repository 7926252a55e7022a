"""Actors for tests: what they do is what they are sent."""

from typing import Any

import trio

from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour


class Slow(Behaviour):
    """Each message takes so many seconds; keeps what it saw, and raises errors."""

    async def init(self) -> None:
        """Begin with nothing seen.

        Cancellation: nothing was begun.
        """
        self.seen: list[Any] = []

    async def receive(self, message: Any, call: Call | None) -> Any:
        """Take the time of a message, and answer with it.

        Cancellation: it was seen, and is not answered.
        """
        self.seen.append(message)
        if isinstance(message, Exception):
            raise message
        await trio.sleep(message if isinstance(message, (int, float)) else 0)
        return message


class Hears(Behaviour):
    """Keeps the messages it gets; raises errors, and runs what can be called."""

    async def init(self) -> None:
        """Begin with nothing heard.

        Cancellation: nothing was begun.
        """
        self.heard: list[Any] = []

    def receive(self, message: Any, call: Call | None) -> Any:
        """Do what the message is."""
        if isinstance(message, Exception):
            raise message
        if callable(message):
            return message(self)
        self.heard.append(message)
        return None


class HearsEnds(Hears):
    """Hears of ends as messages, too."""

    trap_ends = True
