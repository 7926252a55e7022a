"""The tree's ledger as one agent sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors.agents.live_states import WaitFor
from actors.agents.recording import settled_row
from actors.agents.waiting import Waiting
from actors.containment.amounts import whole
from actors.containment.ledger import Ledger
from actors.containment.ledger_state import Draw, LedgerSnapshot, Quote, Reservation, Settlement
from actors.containment.usage import Usage
from actors.errors import BudgetExceeded, Stopping
from actors.halts import Halt
from actors.runtime.actor import Call
from actors.runtime.wait_graph import Wait

if TYPE_CHECKING:
    from actors.agents.agent import Agent


class _Line(Waiting):
    """The wait of an agent that stands in line for what others hold of the budget."""

    __slots__ = ("_alone", "_call", "_stands")

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent, WaitFor.money)
        # The ledger may decide in its own task, so whose task asks is looked at here.
        self._alone = agent.task is trio.lowlevel.current_task()
        self._stands: Wait | None = None
        self._call: Call

    def begin_with(self, call: Call) -> None:
        """Stand in the wait-for graph until ``call`` is answered, and give the slot back.

        Raises:
            WouldDeadlock: everybody who holds any of it waits for this agent.
        """
        agent = self._agent
        self._call = call
        what = "what is held of the budget by"
        self._stands = agent.host.waits.begin(
            agent, self._holders, what=what, any_of=True, alone=self._alone, lends=True
        )
        self.begin()

    def _holders(self) -> tuple[Agent, ...]:
        # Once it is answered it waits for nobody, though its task runs only later.
        return tuple(self._agent.tree.holders) if self._call.waiting else ()

    async def end(self) -> None:
        """Leave the graph, and take the slot again.

        Cancellation: no slot is held.
        """
        if self._stands is not None:
            self._agent.host.waits.end(self._stands)
        await super().end()


class AgentLedger:
    """The tree's ledger as one agent sees it: every draw is in its name, and its own cap is looked at first.

    Reading is sync; changing is awaited.
    """

    __slots__ = ("_agent", "_ledger")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._ledger: Ledger = agent.tree.ledger

    @property
    def spent_tokens(self) -> int:
        """Count what the tree has spent."""
        return self._ledger.spent_tokens

    @property
    def reserved_tokens(self) -> int:
        """Count what the tree's open reservations hold."""
        return self._ledger.reserved_tokens

    @property
    def overrun_tokens(self) -> int:
        """Count what was billed and did not fit."""
        return self._ledger.overrun_tokens

    @property
    def spent_microdollars(self) -> int:
        """Count the money that the tree has spent."""
        return self._ledger.spent_microdollars

    @property
    def remaining_tokens(self) -> int:
        """Give what the tree has left, never below 0."""
        return self._ledger.remaining_tokens

    @property
    def agents(self) -> int:
        """Count the agents that ever existed in the tree."""
        return self._ledger.agents

    @property
    def halted(self) -> Halt | None:
        """Give the halt that latched the tree."""
        return self._ledger.halted

    @property
    def own_remaining(self) -> int | None:
        """Give what the agent's own cap leaves; None without one."""
        agent = self._agent
        cap = agent.limits.max_tokens
        if cap is None:
            return None
        return max(cap - agent.own_tokens - self._ledger.state.held_by(agent.path), 0)

    def _own_left(self) -> int | None:
        """Give what the agent's cap leaves of what it has spent; the ledger knows what it holds."""
        cap = self._agent.limits.max_tokens
        return None if cap is None else max(cap - self._agent.own_tokens, 0)

    def effective_token_budget(self, own: int | None = None) -> int:
        """Give the least of ``own``, the agent's own cap less its spend, and what the tree has left."""
        caps = [cap for cap in (own, self.own_remaining) if cap is not None]
        return self._ledger.effective_token_budget(min(caps) if caps else None)

    def snapshot(self) -> LedgerSnapshot:
        """Give all totals of the tree."""
        return self._ledger.snapshot()

    async def draw_tokens(self, tokens: int, microdollars: int = 0) -> Draw:
        """Draw plain spend. ``halted``: it did not fit, and the whole tree is being stopped.

        Checkpoint: always.
        Cancellation: nothing was drawn.

        Raises:
            BudgetExceeded: the agent's own cap says no; nothing was drawn and nothing latches.
        """
        whole("tokens", tokens)
        agent = self._agent
        cap = agent.limits.max_tokens
        used = agent.own_tokens + self._ledger.state.held_by(agent.path)
        if cap is not None and used + tokens > cap:
            raise BudgetExceeded("tokens", cap, used, tokens)
        # Counted before the wait, so that two tasks of one behaviour cannot both fit; taken back if it was not drawn.
        agent.own_tokens += tokens
        try:
            draw = await self._ledger.draw_tokens(tokens, microdollars, by=agent.path)
        except BaseException:
            agent.own_tokens -= tokens
            raise
        if draw is Draw.ok:
            agent.own_microdollars += microdollars
        else:
            agent.own_tokens -= tokens
            agent.own_overrun += tokens
        return draw

    async def reserve(self, tokens: int | Quote, microdollars: int = 0, *, note: object = None) -> Reservation | Draw:
        """Hold the worst case of a call; waits without a slot while others hold what is left.

        Cancellation: nothing is held.

        Raises:
            BudgetExceeded: the agent's own cap has no room for the minimal request.
            WouldDeadlock: what is held can never come back, as all who hold it wait for this agent.
            Stopping: the agent's work is over, and nobody would close what is held in its name.
        """
        agent = self._agent
        if agent.over:
            raise Stopping(f"the work of {agent.path} is over; nothing is reserved in its name")
        wait = _Line(agent)
        try:
            held = await self._ledger.reserve(
                tokens,
                microdollars,
                by=agent.path,
                own_left=self._own_left,
                note=(agent.run_id, 0, 0) if note is None else note,
                on_wait=wait.begin_with,
            )
            if isinstance(held, Reservation):
                if agent.over:
                    # It ended while a task of somebody else waited in its name. Nothing was sent.
                    settlement = self._ledger.settle_nowait(held, 0)
                    if agent.tree.recorder is not None:
                        agent.tree.recorder.append_nowait(settled_row(agent.run_id, held, settlement))
                    raise Stopping(f"the work of {agent.path} is over; nothing is reserved in its name")
                agent.held = agent.held or {}
                agent.held[held.id] = held
                agent.tree.holders[agent] = None
        except BudgetExceeded as refusal:
            # The ledger knows what is left; the agent knows its cap and what it has used.
            cap = agent.limits.max_tokens or 0
            raise BudgetExceeded(refusal.axis, cap, agent.own_tokens, refusal.requested) from None
        finally:
            if wait.begun:
                await wait.end()
        return held

    async def settle(self, reservation: Reservation, usage: Usage | int | None, microdollars: int = 0) -> Settlement:
        """Close a reservation with what was used; None when nobody knows.

        Cancellation: the reservation is still open; the agent's end closes it as estimated.
        """
        settlement = await self._ledger.settle(reservation, usage, microdollars)
        self._count(reservation, settlement, usage)
        agent = self._agent
        if agent.tree.recorder is not None:
            agent.tree.recorder.append_nowait(settled_row(agent.run_id, reservation, settlement))
        return settlement

    def settle_nowait(self, reservation: Reservation, usage: Usage | int | None, microdollars: int = 0) -> Settlement:
        """Close a reservation in the running step, for clean-up."""
        settlement = self._ledger.settle_nowait(reservation, usage, microdollars)
        self._count(reservation, settlement, usage)
        return settlement

    def _count(self, reservation: Reservation, settlement: Settlement, usage: Usage | int | None) -> None:
        """Add a settlement to the agent's own account."""
        agent = self._agent
        if agent.held is not None:
            agent.held.pop(reservation.id, None)
            if not agent.held:
                agent.tree.holders.pop(agent, None)
        agent.own_tokens += settlement.tokens
        agent.own_microdollars += settlement.microdollars
        agent.own_overrun += settlement.overrun_tokens
        agent.estimated = agent.estimated or settlement.estimated
        if isinstance(usage, Usage):
            agent.add_usage(usage)
