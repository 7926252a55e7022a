"""What tools keep for one agent from one call to the next, and give up when its work is over.

A command in the background outlives the call that started it, and must not
outlive the agent. So it is kept here, and the loop gives everything up when it
ends, however it ends: also where the agent is restarted, for its next
incarnation is another loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar


class Keepsake(Protocol):
    """Something that is kept between calls."""

    async def give_up(self) -> tuple[int, ...]:
        """End all of it; give the numbers of processes that would not die.

        Cancellation: called under a shield; it must be bounded by itself.
        """
        ...


K = TypeVar("K", bound=Keepsake)


class Belongings:
    """What the tools of one agent keep. ``start_soon`` starts a task that may outlive a call.

    Such a task lives in a nursery of the tree, which waits for nobody: what started
    it ends it in `Keepsake.give_up`.
    """

    def __init__(self, start_soon: Callable[..., None]) -> None:
        self._start_soon = start_soon
        self._kept: dict[type, Any] = {}
        # Calls that a process before this one has run: tool, step, ordinal.
        self._before: set[tuple[str, int, int]] = set()

    def start_soon(self, behaviour: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task, which must let nothing out but its cancel."""
        self._start_soon(behaviour, *args)

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return bool(self._kept)

    def keep(self, kind: type[K], make: Callable[[], K]) -> K:
        """Give what is kept of a kind; the first time it is made."""
        kept: K | None = self._kept.get(kind)
        if kept is None:
            kept = self._kept[kind] = make()
        return kept

    def remember(self, calls: Iterable[tuple[str, int, int]]) -> None:
        """Take up which calls a process before this one has run: tool, step, ordinal."""
        self._before.update(calls)

    def ran_before(self, tool: str, step: int, ordinal: int) -> bool:
        """Tell whether a process that is gone ran this call, and it did not fail."""
        return (tool, step, ordinal) in self._before

    async def give_up(self) -> tuple[int, ...]:
        """End all that is kept; give the numbers of processes that would not die.

        Cancellation: call it under a shield; each thing kept bounds itself.
        """
        leaked: list[int] = []
        while self._kept:
            _, kept = self._kept.popitem()
            leaked += await kept.give_up()
        return tuple(leaked)
