"""Giving the slot back for a wait, and taking it again before going on."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import trio

from actors.agents.live_states import WaitFor
from actors.containment.slots import RETURNING, WAITING, WORKING
from actors.errors import WouldDeadlock

if TYPE_CHECKING:
    from actors.agents.agent import Agent


class Waiting:
    """The block in which an agent holds no slot.

    ``what`` it waits for, and ``until`` when (on trio's clock, None: unknown), is shown to
    whoever looks at the tree.
    """

    __slots__ = ("_agent", "_newer", "_older", "begun", "until", "what")

    def __init__(self, agent: Agent, what: WaitFor = WaitFor.other, until: float | None = None) -> None:
        self._agent = agent
        self.what = what
        self.until = until
        self.begun = False
        # The waits of one agent that last, several when it has several tasks: each knows its neighbours in time.
        self._older: Waiting | None = None
        self._newer: Waiting | None = None

    def begin(self) -> None:
        """Give the slot back, unless another wait of this agent has."""
        agent = self._agent
        self.begun = True
        agent._waits += 1
        agent.since = agent.tree.now()
        self._older = agent.latest_wait
        if self._older is not None:
            self._older._newer = self
        agent.latest_wait = self
        if agent.seat is WORKING:
            agent.tree.slots.give_back(agent)

    async def end(self) -> None:
        """Take the slot again, if this is the last wait.

        Cancellation: no slot is held.

        Raises:
            WouldDeadlock: all slots are held by agents that wait for this one, perhaps
                through others. It gets none, and its work is cancelled.
        """
        if not self.end_nowait():
            await self.end_in_line()

    def end_nowait(self) -> bool:
        """Take the slot again if this is the last wait and a slot is free; tell whether nothing is left to wait for.

        If something is, `end_in_line` follows.
        """
        agent = self._agent
        agent._waits -= 1
        agent.since = agent.tree.now()
        self._unlink()
        if agent._waits:
            return True
        if agent.seat is WAITING:
            # Who was cut while it waited is on its way out: it stands in no line, perhaps behind the one who stops it.
            return agent.tree.slots.take_again_nowait(agent) or agent.scope.cancel_called
        return agent.seat is not RETURNING

    async def end_in_line(self) -> None:
        """Stand in line for the slot.

        Cancellation: no slot is held.

        Raises:
            WouldDeadlock: as `end`.
        """
        if self._agent.seat is WAITING:
            await self._come_back()
        else:
            # Another task of the behaviour stands in line for the same slot; nobody works until it is served.
            await self._behind()

    def _unlink(self) -> None:
        older, newer = self._older, self._newer
        if older is not None:
            older._newer = newer
        if newer is not None:
            newer._older = older
        else:
            self._agent.latest_wait = older
        self._older = self._newer = None

    async def _come_back(self) -> None:
        """Stand in line, whatever cancels this block: a local time-out must not put an agent to work without a slot.

        The agent's own stop breaks the shield; then it is on its way out and works no more.
        """
        agent = self._agent
        if agent.task is trio.lowlevel.current_task():
            self._stand_marked()
        with trio.CancelScope(shield=True) as scope:
            agent.shield = scope
            try:
                await agent.tree.slots.take_again(agent)
            finally:
                agent.tree.slots.unmark(agent)
                agent.shield = None
                agent.since = agent.tree.now()
                behind, agent.behind = agent.behind, None
                if behind is not None:
                    behind.set()
        # Another task of the behaviour began to wait while this one stood in line.
        if agent._waits and agent.holds_slot:
            agent.tree.slots.give_back(agent)

    def _stand_marked(self) -> None:
        """Mark the agent's own task as one that waits for a slot. What other tasks of it do is not looked at.

        Raises:
            WouldDeadlock: every holder of a slot waits for this agent, perhaps through others.
        """
        agent = self._agent
        slots = agent.tree.slots
        try:
            agent.host.waits.check(agent, slots, what=slots.waited_for)
        except WouldDeadlock as error:
            # It may clean up, and that is all: also if it catches this, it must not go on without a slot.
            agent.scope.cancel(reason=str(error))
            raise
        slots.mark(agent)

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
        if error is None and self._agent.scope.cancel_called:
            await self.leave_cut()

    async def leave_cut(self) -> None:
        """Meet the cancel of an agent that was stopped while it stood in line, if it was.

        It must not go on without a slot, not even to its next checkpoint.

        Cancellation: that is what it looks for.
        """
        if not self._agent.holds_slot:
            await trio.lowlevel.checkpoint_if_cancelled()
