"""An agent that may begin again: one agent, one path, one run, several incarnations of its behaviour.

Between two of them everything the former held is closed: its reservations are
settled, its children are stopped, leaf first, and its slot is given back. The
next one is told how the former ended. The decision is pure (`restarting.py`);
the end that is recorded is the last one's.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from actors.agents.failure_classes import Failure, judge
from actors.agents.live_states import WaitFor
from actors.agents.restarting import BeginAgain, Former, History, RestartPolicy, SetAside, Why, plan
from actors.agents.rows import AgentEvent
from actors.errors import RestartsExhausted
from actors.halts import Halt, HaltKind
from actors.runtime.exits import Exit, Reason

if TYPE_CHECKING:
    from actors.agents.agent import Agent


class Incarnations:
    """The behaviour of an agent that may begin again. Made for one agent."""

    def __init__(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        policy: RestartPolicy,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if not isinstance(policy, RestartPolicy):
            raise TypeError(f"restart must be a RestartPolicy, not {policy!r}")
        self.__qualname__ = getattr(behaviour, "__qualname__", repr(behaviour))
        self._behaviour = behaviour
        self._policy = policy
        self._chance = chance
        self._history = History()

    async def __call__(self, agent: Agent, *args: Any) -> Any:
        """Run the behaviour until it has ended for good; return or raise what its last incarnation did.

        Cancellation: nothing begins again.

        Raises:
            RestartsExhausted: it failed once more than its budget allows; the last error is the cause.
        """
        while True:
            began = _Begun(agent)
            raised: Exception | None = None
            value: Any = None
            try:
                value = await self._behaviour(agent, *args)
            except Exception as error:
                raised = error
            began.ended_at = trio.current_time()
            failure = None if raised is None else judge(raised)
            following = self._decide(agent, failure, began)
            if isinstance(following, BeginAgain):
                self._history = following.history
                await self._between(agent, following.wait)
                # Asked in the very step in which it begins: nothing begins after a halt, or without money.
                if may_spend(agent):
                    self._begin_again(agent, began.former(failure), following.wait)
                    continue
                following = SetAside(Why.no_money)
            self._set_aside(agent, following.why, raised)
            if raised is None:
                return value
            raise raised

    def _decide(self, agent: Agent, failure: Failure | None, began: _Begun) -> BeginAgain | SetAside:
        if agent.stopping:
            return SetAside(Why.not_asked)
        now = trio.current_time()
        return plan(
            self._policy,
            self._history,
            failure,
            may_spend=may_spend(agent),
            ran_for=now - began.at,
            now=now,
            chance=self._chance(),
        )

    async def _between(self, agent: Agent, wait: float) -> None:
        """Close what the former held, and wait.

        Cancellation: it begins no more.
        """
        agent.close_held()
        async with agent.waiting(WaitFor.child):
            await self._stop_children(agent)
            async with agent.waiting(WaitFor.restart, trio.current_time() + wait):
                await trio.sleep(wait)
        if agent.stopping or agent.tree.ledger.halted is not None:
            # Its own stop is on its way; so that everything stops in one order, it is waited for.
            async with agent.waiting():
                await trio.sleep_forever()

    async def _stop_children(self, agent: Agent) -> None:
        while agent.children:
            child: Any = next(reversed(agent.children))
            halt = Halt(HaltKind.parent, agent.path, trio.current_time(), child.path, "its parent begins again")
            await agent.tree.stop_and_wait(child, halt)
        if agent.background is not None:
            agent.background.give_back()

    def _begin_again(self, agent: Agent, former: Former, wait: float) -> None:
        agent.former = former
        agent.outcome = None
        recorder = agent.tree.recorder
        if recorder is None:
            return
        number = former.incarnation + 1
        detail = f"{agent.path} incarnation {number} after {wait:g} s: {former.cause or former.reason}"
        facts = {"incarnation": number, "wait": wait, "reason": former.reason, "cause": former.cause}
        parent: Any = agent.parent
        recorder.append_nowait(
            AgentEvent(parent.run_id, agent.steps, "restart", detail, agent.run_id, former.spent_tokens),
            recorder.event(agent.path, agent.depth, "restarted", {**facts, "failure": former.failure}),
        )

    def _set_aside(self, agent: Agent, why: Why, raised: Exception | None) -> None:
        """Tell why it does not begin again, and halt the tree or raise where the reason asks for it."""
        cause = "" if raised is None else judge(raised).text
        recorder = agent.tree.recorder
        if recorder is not None and why is not Why.not_asked:
            facts = {"incarnation": agent.incarnation, "why": why, "cause": cause}
            recorder.append_nowait(recorder.event(agent.path, agent.depth, "not_restarted", facts))
        if why is Why.halt_tree:
            agent.tree.halt_nowait(HaltKind.policy, by=agent.path, reason=f"a refused key: {cause}")
        if why is Why.exhausted and raised is not None:
            end = Exit(agent.path, Reason.error, trio.current_time(), cause=raised, raised=raised)
            raise RestartsExhausted(end, (agent.path,)) from raised


class _Begun:
    """What an agent had used when an incarnation began."""

    def __init__(self, agent: Agent) -> None:
        self.at = self.ended_at = trio.current_time()
        self._agent = agent
        self._tokens = agent.own_tokens
        self._overrun = agent.own_overrun
        self._microdollars = agent.own_microdollars

    def former(self, failure: Failure | None) -> Former:
        """Sum it up for the next one."""
        agent = self._agent
        return Former(
            Reason.normal if failure is None else Reason.error,
            "" if failure is None else failure.text,
            None if failure is None else failure.kind,
            agent.incarnation,
            agent.own_tokens - self._tokens,
            agent.own_overrun - self._overrun,
            agent.own_microdollars - self._microdollars,
            self.ended_at,
        )


def may_spend(agent: Agent) -> bool:
    """Tell whether the ledger lets an agent begin again: no halt, and something unspent, for the tree and for it.

    What others hold of the rest comes back, or halts the tree; it refuses nobody.
    """
    ledger, cap = agent.tree.ledger, agent.limits.max_tokens
    if ledger.halted is not None or ledger.spent_tokens >= ledger.containment.max_total_tokens:
        return False
    return cap is None or agent.own_tokens + agent.own_overrun < cap
