"""Messages that nobody will ever handle.

A sink that anything may put into from sync code, also at an actor's end, where
nothing may fail: it never raises, waits or grows. The ring keeps the newest
letters and so keeps their messages alive, but no more of them than it is long;
the counters count them all.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import attrs

log = logging.getLogger("actors.dead_letters")

DEFAULT_RING: Final = 256


class Cause(StrEnum):
    """Why a message was not handled."""

    # The target had ended before, or there never was one.
    noproc = "noproc"
    # The mailbox was full, and its policy gave the message up.
    dropped = "dropped"
    # The target ended while the sender waited for room.
    stopped = "stopped"
    # It lay in the mailbox or the stash when the target ended.
    unread = "unread"
    # A timer's tick that found the mailbox full.
    late_tick = "late_tick"
    # Whoever was to handle it had been taken away: a reply or a result nobody waits for.
    handler_gone = "handler_gone"


@attrs.frozen
class DeadLetter:
    """One message that was not handled.

    ``target`` and ``sender`` are paths; ``sender`` is None when it is no actor.
    ``at`` is in seconds on trio's clock. ``cost`` is what the message had cost to
    make, in the words of whoever sent it; None when nothing is known.
    """

    target: str
    sender: str | None
    message: object
    cause: Cause
    at: float
    cost: object = None

    def __str__(self) -> str:
        """Say it in one line. The message stays out: it may be long, or not meant for a log."""
        sender = f" from {self.sender}" if self.sender is not None else ""
        cost = f", cost {self.cost}" if self.cost is not None else ""
        return f"{type(self.message).__name__}{sender} to {self.target}: {self.cause}{cost}"


@attrs.frozen
class DeadLetterStatistics:
    """Counts since the sink was made.

    ``held`` letters are in the ring now; ``overwritten`` ones left it unseen,
    pushed out by newer ones. ``hook_failures`` counts hooks that raised.
    """

    total: int
    by_cause: Mapping[str, int]
    held: int
    overwritten: int
    hook_failures: int


class DeadLetters:
    """The sink of one tree.

    ``on_letter`` hears of each letter, in the step that made it; it must be quick
    and may be set at any time. A hook that raises is switched off (None), logged
    once and counted. Letters that a hook makes itself are kept and counted, but
    not handed to it: else a hook that tells an ended actor would never return.
    """

    def __init__(self, ring: int = DEFAULT_RING, on_letter: Callable[[DeadLetter], object] | None = None) -> None:
        if type(ring) is not int or ring < 1:
            raise ValueError(f"dead letters need a ring of at least 1, not {ring!r}")
        self.on_letter = on_letter
        self._ring: deque[DeadLetter] = deque(maxlen=ring)
        self._by_cause: Counter[str] = Counter()
        self._overwritten = 0
        self._hook_failures = 0
        self._in_hook = False

    def __len__(self) -> int:
        return len(self._ring)

    def put(self, letter: DeadLetter) -> None:
        """Keep and count a letter, and tell the hook. Never waits.

        Never raises, whatever the hook does; only what is no ``Exception`` (an
        order to end the program) goes through, and then the letter is kept.
        """
        if len(self._ring) == self._ring.maxlen:
            self._overwritten += 1
        self._ring.append(letter)
        self._by_cause[letter.cause] += 1
        hook = self.on_letter
        if hook is None or self._in_hook:
            return
        self._in_hook = True
        try:
            hook(letter)
        except Exception as error:
            self._switch_off(hook, error)
        finally:
            self._in_hook = False

    def _switch_off(self, hook: Callable[[DeadLetter], object], error: Exception) -> None:
        self._hook_failures += 1
        # It may have put another in its place before it failed.
        if self.on_letter is hook:
            self.on_letter = None
        try:
            log.error("the dead letter hook failed and is switched off", exc_info=error)
        except Exception:
            # A log that fails as well has nobody left to be told; the counter has it.
            pass

    def take_all(self) -> tuple[DeadLetter, ...]:
        """Take what the ring holds, the oldest first. The counters stay."""
        taken = tuple(self._ring)
        self._ring.clear()
        return taken

    def statistics(self) -> DeadLetterStatistics:
        """Count what came in; a picture of now that does not change."""
        return DeadLetterStatistics(
            total=self._by_cause.total(),
            by_cause=MappingProxyType({str(cause): count for cause, count in self._by_cause.items()}),
            held=len(self._ring),
            overwritten=self._overwritten,
            hook_failures=self._hook_failures,
        )
