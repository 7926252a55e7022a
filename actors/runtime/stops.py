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
class StopReceipt:
    """The answer to a stop: one line for each task that was alive when it was asked, in the order they ended."""

    asked_at: float
    ended_at: float
    stopped: tuple[Stopped, ...] = ()

    @property
    def not_ended(self) -> tuple[str, ...]:
        """Name the tasks that did not end."""
        return tuple(line.path for line in self.stopped if line.how is How.did_not_end)

    @property
    def complete(self) -> bool:
        """Whether everything has ended."""
        return not self.not_ended
