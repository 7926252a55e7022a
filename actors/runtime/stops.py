"""What a stop tells: who was asked when, ended when, and how.

A stop never pretends. trio has no kill: a task that swallows its cancel goes
on, and then the receipt names it.
"""

from enum import StrEnum

import attrs


class How(StrEnum):
    """How a task left."""

    clean = "clean"
    killed = "killed"
    did_not_end = "did not end"


@attrs.frozen
class Stopped:
    """One line of a receipt. Times are seconds on trio's clock; ``ended_at`` is None if it did not end."""

    path: str
    asked_at: float
    ended_at: float | None
    how: How


@attrs.frozen
class AbandonedThread:
    """One worker thread that goes on without the actor that called: who that was, what it runs, and since when."""

    path: str
    function: str
    since: float

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.function}, called by {self.path}"


@attrs.frozen
class StopReceipt:
    """The answer to a stop: one line for each task that was alive when it was asked, in the order they ended.

    ``threads`` are worker threads that one of them abandoned, and that go on.
    """

    asked_at: float
    ended_at: float
    stopped: tuple[Stopped, ...] = ()
    threads: tuple[AbandonedThread, ...] = ()

    @property
    def not_ended(self) -> tuple[str, ...]:
        """Name the tasks that did not end."""
        return tuple(line.path for line in self.stopped if line.how is How.did_not_end)

    @property
    def complete(self) -> bool:
        """Whether every task has ended; a thread that goes on belongs to none of them any more."""
        return not self.not_ended
