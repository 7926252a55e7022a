"""What holds on to a child: its end, its result, and the ways to go on without it."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

from actors.agents.background import background_of
from actors.agents.outcomes import Outcome
from actors.containment.slots import QUEUED
from actors.errors import ChildFailed, Halted
from actors.halts import Halt, HaltKind
from actors.runtime.actor import waiting_for
from actors.runtime.child import CURRENT, NORMAL, Child, refuse_own_stop
from actors.runtime.exits import Exit
from actors.runtime.stops import StopReceipt

if TYPE_CHECKING:
    from actors.agents.agent import Agent

R = TypeVar("R")


class ChildHandle(Generic[R]):
    """What a parent holds of a child. It outlives the child."""

    __slots__ = ("_child",)

    def __init__(self, child: Agent) -> None:
        self._child = child

    @property
    def path(self) -> str:
        """Name the child."""
        return self._child.path

    @property
    def run_id(self) -> str:
        """Name the child's run in the store."""
        return self._child.run_id

    @property
    def done(self) -> bool:
        """Whether its end is recorded."""
        return self._child.exit is not None

    @property
    def outcome(self) -> Outcome | None:
        """Give its outcome once it has ended; None before, or when nothing recorded one."""
        return self._child.outcome if self.done else None

    @property
    def queued(self) -> bool:
        """Whether it waits for its first slot."""
        return self._child.seat is QUEUED

    def promote(self) -> bool:
        """Put a queued child before all others that have never started; tell whether it was queued."""
        return self._child.tree.slots.promote(self._child)

    async def exit(self) -> Exit:
        """Wait for the child's end and return it; never raises for what it did.

        The agent that awaits it, the parent or another one of the tree, holds no slot
        meanwhile. A task outside the tree holds none anyway.

        Checkpoint: only if the child still lives.
        Cancellation: the child is not disturbed.

        Raises:
            WouldDeadlock: the child waits for the one who awaits it, perhaps through others.
        """
        return self._child.exit or await self._end()

    def _end(self) -> Coroutine[Any, Any, Exit]:
        """Give the wait for the end, as it is for whoever waits."""
        child, waiter = self._child, CURRENT.get()
        if waiter is None:
            return child.wait_ended()
        # An agent gives its slot back meanwhile; an actor has none, and stands in the wait-for graph by an entry.
        return waiter.await_end_of(child) if isinstance(waiter, type(child)) else _awaited(child)

    async def exit_within(self, seconds: float) -> Exit | None:
        """Wait so long for the child's end; None when it has not ended: it works on, and the caller goes on.

        A parent finds it in `Agent.collect` then. As `exit` otherwise.

        Checkpoint: only if the child still lives.
        Cancellation: the child is not disturbed.
        """
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"seconds must be a finite number from 0 on, not {seconds!r}")
        with trio.move_on_after(seconds):
            await self.exit()
        if self._child.exit is None and CURRENT.get() is self._child.parent:
            self._let_go(seconds)
        return self._child.exit

    def detach(self) -> None:
        """Go on without the child: its parent finds it in `Agent.collect` when it has ended."""
        self._let_go(None)

    def _let_go(self, after: float | None) -> None:
        parent = cast("Agent", self._child.parent)
        background_of(parent).let_go(self._child, after)

    async def result(self) -> R:
        """Wait for the child's end and return what its behaviour returned.

        Checkpoint: only if the child still lives.
        Cancellation: the child is not disturbed.

        Raises:
            ChildFailed: it ended abnormally; the original exception is the cause.
            Halted: it was stopped before it had a result.
        """
        value: R = result_of(self._child, self._child.exit or await self._end())
        return value

    async def stop(self, reason: str = "") -> StopReceipt:
        """Stop the child and all below it, leaf first, and say how each ended.

        Cancellation: the stop goes on.

        Raises:
            ActorsError: an agent asks for its own stop, or for that of one above it, and
                would wait for itself. Nothing was stopped.
        """
        child = self._child
        assert child.parent is not None, "the root has no handle"
        refuse_own_stop(child)
        halt = Halt(HaltKind.parent, child.parent.path, trio.current_time(), child.path, reason)
        return await child.tree.stop_and_wait(child, halt)


async def _awaited(child: Child) -> Exit:
    with waiting_for(child, "the end of"):
        return await child.wait_ended()


def result_of(agent: Agent, exit: Exit) -> Any:
    """Give what the agent's behaviour returned, or raise why there is nothing.

    Raises:
        ChildFailed: it ended abnormally.
        Halted: it was stopped.
    """
    if exit.reason is NORMAL:
        return agent.value
    if isinstance(exit.payload, Halt):
        raise Halted(exit.payload)
    raise ChildFailed(exit) from exit.cause
