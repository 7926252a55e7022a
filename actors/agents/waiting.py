"""Giving the slot back for a wait, and taking it again before going on."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import trio

from actors.containment.slots import Seat

if TYPE_CHECKING:
    from actors.agents.agent import Agent


class Waiting:
    """The block in which an agent holds no slot."""

    __slots__ = ("_agent", "begun")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.begun = False

    def begin(self) -> None:
        """Give the slot back, unless another wait of this agent has."""
        agent = self._agent
        self.begun = True
        agent._waits += 1
        if agent.seat is Seat.working:
            agent.tree.slots.give_back(agent)

    async def end(self) -> None:
        """Take the slot again, if this is the last wait.

        Cancellation: no slot is held.
        """
        agent = self._agent
        agent._waits -= 1
        if agent._waits:
            return
        if agent.seat is Seat.waiting:
            if not agent.tree.slots.take_again_nowait(agent):
                await self._come_back()
        elif agent.seat is Seat.returning:
            # Another task of the behaviour stands in line for the same slot; nobody works until it is served.
            await self._behind()

    async def _come_back(self) -> None:
        """Stand in line, whatever cancels this block: a local time-out must not put an agent to work without a slot.

        The agent's own stop breaks the shield; then it is on its way out and works no more.
        """
        agent = self._agent
        with trio.CancelScope(shield=True) as scope:
            agent.shield = scope
            try:
                await agent.tree.slots.take_again(agent)
            finally:
                agent.shield = None
                behind, agent.behind = agent.behind, None
                if behind is not None:
                    behind.set()
        # Another task of the behaviour began to wait while this one stood in line.
        if agent._waits and agent.holds_slot:
            agent.tree.slots.give_back(agent)

    async def _behind(self) -> None:
        agent = self._agent
        if agent.behind is None:
            agent.behind = trio.Event()
        with trio.CancelScope(shield=True):
            # Ends when the task in line is served or the agent is stopped, since that one is.
            await agent.behind.wait()

    async def __aenter__(self) -> None:
        self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()
