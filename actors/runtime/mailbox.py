"""A deque and one parked reader.

Putting wakes the reader only when it is parked, so a batch of messages costs
one wake. The system lane is looked at before every single message, is never
bounded, dropped or delayed: it carries stops, halts and ends, and there is one
end for each start.
"""

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import attrs
import outcome
import trio

from actors.errors import MailboxClosed, MailboxFull

M = TypeVar("M")


class Overflow(Enum):
    """What happens to a user message when the mailbox is full."""

    # A tell is refused, a send waits for room in the order of coming.
    wait = "wait"
    fail = "fail"
    drop_newest = "drop_newest"
    drop_oldest = "drop_oldest"


class Nothing(Enum):
    """The mark for an empty mailbox; a message may be None."""

    nothing = "nothing"


NOTHING: Final = Nothing.nothing
DEFAULT_BOUND: Final = 1024


@attrs.frozen
class MailboxStatistics:
    """Counts since the mailbox was made; ``length`` and ``peak`` are of the user lane."""

    length: int
    peak: int
    taken: int
    dropped: int
    waiting: int


class Mailbox(Generic[M]):
    """Two lanes, each first in, first out. One reader at a time.

    ``on_drop`` hears of each message that will never be read.
    """

    __slots__ = ("_bound", "_closed", "_dropped", "_on_drop", "_overflow", "_peak", "_reader", "_system", "_taken", "_user", "_waiting", "paused")  # noqa: E501

    def __init__(
        self,
        bound: int = DEFAULT_BOUND,
        overflow: Overflow = Overflow.wait,
        on_drop: Callable[[M], None] | None = None,
    ) -> None:
        if type(bound) is not int or bound < 1:
            raise ValueError(f"a mailbox needs a bound of at least 1, not {bound!r}")
        self._bound = bound
        self._overflow = overflow
        self._on_drop = on_drop
        self._user: deque[M] = deque()
        self._system: deque[M] = deque()
        # Who waits for room: a sender's task, or None for an ask, which is parked for its answer instead.
        # With the call that hears of the room that was made, if somebody wants to.
        self._waiting: deque[tuple[trio.lowlevel.Task | None, M, Callable[[], None] | None]] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._closed = False
        # While it is set, only the system lane is read.
        self.paused = False
        self._peak = self._taken = self._dropped = 0

    def __len__(self) -> int:
        return len(self._user)

    @property
    def closed(self) -> bool:
        """Whether no message can be left any more."""
        return self._closed

    @property
    def idle(self) -> bool:
        """Whether the reader is parked, nothing is there to be read, and nobody waits for room."""
        return self._reader is not None and not (self._system or self._user or self._waiting or self.paused)

    @property
    def has_room(self) -> bool:
        """Whether a user message can be left without waiting."""
        return len(self._user) < self._bound and not self._waiting

    def statistics(self) -> MailboxStatistics:
        """Count what went through; needs nobody's cooperation."""
        return MailboxStatistics(len(self._user), self._peak, self._taken, self._dropped, len(self._waiting))

    def put_system(self, message: M) -> None:
        """Leave a message in the system lane: always possible while the mailbox is open.

        Raises:
            MailboxClosed: the reader has ended.
        """
        if self._closed:
            raise MailboxClosed("the mailbox is closed")
        self._system.append(message)
        self._wake()

    def put_nowait(self, message: M) -> None:
        """Leave a message without waiting.

        Raises:
            MailboxFull: there is no room, and the policy is wait or fail.
            MailboxClosed: the reader has ended.
        """
        if self._closed:
            raise MailboxClosed("the mailbox is closed")
        # Whoever waits came first; going past them would break the order of one sender.
        if len(self._user) >= self._bound or self._waiting:
            self._overflowed(message)
            return
        self._keep(message)

    def _keep(self, message: M) -> None:
        self._user.append(message)
        if len(self._user) > self._peak:
            self._peak = len(self._user)
        self._wake()

    def _overflowed(self, message: M) -> None:
        if self._overflow is Overflow.drop_newest:
            self._drop(message)
        elif self._overflow is Overflow.drop_oldest:
            self._drop(self._user.popleft())
            self._keep(message)
        else:
            raise MailboxFull(f"the mailbox holds {len(self._user)} of {self._bound} messages")

    def _drop(self, message: M) -> None:
        self._dropped += 1
        if self._on_drop is not None:
            self._on_drop(message)

    async def put(self, message: M, on_room: Callable[[], None] | None = None) -> None:
        """Leave a message, waiting while the mailbox is full and the policy is wait.

        ``on_room`` is called in the step that ends such a wait by making room; the
        waiting task runs only later.

        Checkpoint: always.
        Cancellation: the message was not left; it is safe to try again.

        Raises:
            MailboxFull: there is no room, and the policy is fail.
            MailboxClosed: the reader ended, perhaps while this was waiting.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        full = len(self._user) >= self._bound or self._waiting
        if not full or self._closed or self._overflow is not Overflow.wait:
            self.put_nowait(message)
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        entry = (trio.lowlevel.current_task(), message, on_room)
        self._waiting.append(entry)

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._waiting.remove(entry)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def put_or_line_up(self, message: M) -> Callable[[], None] | None:
        """Leave a message, or stand in line for room without a task that waits.

        Returns None when it was left, else a call that leaves the line.

        Raises:
            MailboxFull: there is no room, and the policy is fail.
            MailboxClosed: the reader has ended.
        """
        full = len(self._user) >= self._bound or self._waiting
        if not full or self._closed or self._overflow is not Overflow.wait:
            self.put_nowait(message)
            return None
        entry = (None, message, None)
        self._waiting.append(entry)

        def leave() -> None:
            # It may have been moved in meanwhile; then its reader passes over it.
            if entry in self._waiting:
                self._waiting.remove(entry)

        return leave

    def take(self) -> M | Nothing:
        """Take the next message, the system lane first; `NOTHING` when both are empty."""
        if self._system:
            self._taken += 1
            return self._system.popleft()
        if not self._user or self.paused:
            return NOTHING
        self._taken += 1
        message = self._user.popleft()
        if self._waiting:
            task, waited, on_room = self._waiting.popleft()
            self._user.append(waited)
            if on_room is not None:
                on_room()
            if task is not None:
                trio.lowlevel.reschedule(task)
        return message

    async def wait(self) -> None:
        """Wait until there is something to take.

        Checkpoint: only if the mailbox is empty.
        Cancellation: nothing was taken.
        """
        if self._system or (self._user and not self.paused):
            return
        if self._reader is not None:
            raise RuntimeError("a mailbox has one reader, and somebody is reading already")
        self._reader = trio.lowlevel.current_task()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def get(self) -> M:
        """Take the next message, waiting for one.

        Cancellation: nothing was taken.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.wait()
        message = self.take()
        assert message is not NOTHING
        return message

    def put_back(self, messages: Iterable[M]) -> None:
        """Put messages at the front of the user lane, in their order; they were taken from it, so no bound applies."""
        self._user.extendleft(reversed(list(messages)))
        self._peak = max(self._peak, len(self._user))
        self._wake()

    def close(self) -> list[M]:
        """Take no more messages; refuse waiting senders; return what was never read, asks in line for room too.

        The system lane's come first. Idempotent.
        """
        self._closed = True
        # An ask that stands in line is unread too; a sender that waits is told, and may try elsewhere.
        left = [*self._system, *self._user, *(message for task, message, _ in self._waiting if task is None)]
        self._system.clear()
        self._user.clear()
        while self._waiting:
            task, _, _ = self._waiting.popleft()
            if task is not None:
                closed = MailboxClosed("the mailbox closed while waiting for room")
                trio.lowlevel.reschedule(task, outcome.Error(closed))
        return left

    def wake(self) -> None:
        """Let the reader look again, though nothing was left for it."""
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)
