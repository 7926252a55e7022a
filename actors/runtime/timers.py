"""Timers of an actor: their ticks come through its mailbox, and they die with it."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from actors.errors import MailboxClosed, MailboxFull
from actors.runtime.actor import Actor
from actors.runtime.dead_letters import Cause
from actors.runtime.deadlines import Entry


@attrs.frozen(eq=False)
class Tick:
    """A tick as it lies in the mailbox."""

    timer: Timer


class Timer:
    """A timer of one incarnation: it dies with it. ``cancel`` it and no tick comes any more."""

    __slots__ = ("_actor", "_entry", "_every", "_message", "_timers", "_underway", "late")

    def __init__(
        self, actor: Actor[Any], timers: dict[Timer, None], message: Any, seconds: float, every: float | None
    ) -> None:
        self._actor = actor
        self._timers = timers
        self._message = message
        self._every = every
        # Whether a tick lies in the mailbox: there is at most one.
        self._underway = False
        # Ticks that found the mailbox full, or the one before still in it.
        self.late = 0
        self._entry: Entry = actor.host.deadlines.at(trio.current_time() + seconds, self._tick)
        timers[self] = None

    def cancel(self) -> None:
        """Send nothing more; a tick that lies in the mailbox already still comes."""
        self._entry.cancel()
        self._timers.pop(self, None)

    def delivered(self) -> Any:
        """Note that the tick is being handled, and give its message."""
        self._underway = False
        return self._message

    def missed(self) -> None:
        """Note that a tick was dropped by a full mailbox, at once or later."""
        self.late += 1
        self._actor.dead_letter(self.delivered(), Cause.late_tick)

    def _tick(self) -> None:
        actor = self._actor
        if self._every is None or actor.exit is not None:
            # Made by an actor whose task has not left though its end is recorded: it must not go on for ever.
            self._timers.pop(self, None)
        else:
            self._entry = actor.host.deadlines.at(self._next(self._every), self._tick)
        if self._underway:
            self.late += 1
            return
        # Set first: a policy may drop it in the very call.
        self._underway = True
        try:
            actor.mailbox.put_nowait(Tick(self))
        except (MailboxFull, MailboxClosed):
            self.missed()

    def _next(self, every: float) -> float:
        """Give the next time that is not past; those that were slept through are counted, not made up for."""
        passed = int(max(trio.current_time() - self._entry.at, 0.0) // every)
        self.late += passed
        return self._entry.at + (passed + 1) * every


def seconds_of(value: object) -> float:
    """Give a number of seconds as it is, if it is one.

    Raises:
        ValueError: it is none, negative or infinite.
    """
    if type(value) not in (int, float) or not 0 <= value < float("inf"):  # type: ignore[operator]
        raise ValueError(f"seconds must be a finite number from 0 on, not {value!r}")
    return float(value)  # type: ignore[arg-type]
