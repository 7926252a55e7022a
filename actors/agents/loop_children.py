"""The children that one agent's model asks for: started in order, waited for beside each other, folded in call order.

A child that the model went on without is folded in at the start of a later step,
in the order of the spawns. An agent that ends first waits for its children all
the same: the tree sees to that, and their reports are stored with its end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from actors.agents.agent import Agent
from actors.agents.background import background_of, observation_of
from actors.agents.coming_back import ComeBack, Way, decide, works_on
from actors.agents.entry_text import bounded
from actors.agents.gatekeeper import CallContext
from actors.agents.live_states import WaitFor
from actors.agents.model_input import read_arguments
from actors.agents.ports import Act, ActRefused, Observation, ObservationKind, ToolCall
from actors.agents.rows import AgentEvent, Spawned
from actors.agents.spawning import NAME as SPAWN
from actors.agents.spawning import SpawnAsk, child_contract, child_policy, read_spawn
from actors.containment.prices import OnUnknownPrice
from actors.errors import SpawnRefusal, StoreError, ToolFailed, UnknownPrice
from actors.halts import HaltKind

if TYPE_CHECKING:
    from actors.agents.loop import Job, Loop

log = logging.getLogger("actors.loop")


@attrs.frozen
class _Made:
    """A child of this step: how it comes back, and when it was made, on trio's clock."""

    child: Agent
    back: ComeBack
    at: float


class Children:
    """The children of one loop. ``work_on`` is the behaviour that every LLM agent has."""

    def __init__(self, loop: Loop, work_on: Callable[..., Awaitable[Any]]) -> None:
        self._loop = loop
        self._agent = loop.agent
        self._work_on = work_on

    def fold(self, step: int) -> list[Observation]:
        """Take the reports of those that ended in the background, in the order of their spawns."""
        background = self._agent.background
        return [] if background is None else [observation_of(child) for child in background.collect(step)]

    def step_stored(self) -> None:
        """Hear that what was folded in stands in the store."""
        if self._agent.background is not None:
            self._agent.background.stored()

    async def run(
        self, step: int, calls: Sequence[ToolCall], places: Sequence[int], results: list[Observation | None]
    ) -> None:
        """Carry out the spawns among ``calls``, those at ``places``, and put what came of them into ``results``.

        Cancellation: children that were made are stopped by whoever stops this agent.
        """
        children: dict[int, _Made] = {}
        for place in places:
            await self._loop.recorder.emit(self._agent, "tool_call", step=step, ordinal=place + 1, tool=SPAWN)
            made = await self._try(step, place + 1, calls[place])
            if isinstance(made, _Made):
                children[place] = made
            else:
                results[place] = made
        if not children:
            return
        if any(made.back.way is not Way.detach for made in children.values()):
            async with self._agent.waiting(WaitFor.child):
                for made in children.values():
                    await _wait_for(made)
        halt = self._agent.tree.ledger.halted
        if halt is not None and halt.kind is HaltKind.interrupt:
            # The children were stopped to go on later: this step stays open, so that a resume finds them again.
            await self._loop.cut()
        for place, made in children.items():
            results[place] = self._came_back(made, step)

    def _came_back(self, made: _Made, step: int) -> Observation:
        child, back = made.child, made.back
        # Told to go on without it, an agent does so even if the child was quick: what it reads is then the same.
        if back.way is Way.detach or child.exit is None:
            background_of(self._agent).let_go(child, back.after, step)
            text = works_on(child.path, child.about.goal, back)
            return Observation(ObservationKind.child, child.path, text, changed=True)
        seen = observation_of(child)
        return attrs.evolve(seen, text=f"{seen.text}\n{back.note}") if back.note else seen

    async def _try(self, step: int, ordinal: int, call: ToolCall) -> _Made | Observation:
        try:
            return await self._spawn(step, ordinal, call)
        except (ToolFailed, ActRefused) as error:
            return failed(SPAWN, str(error))
        except SpawnRefusal as refusal:
            return failed(SPAWN, f"no sub-agent was started: {refusal}. Adapt: do this part yourself, or end.")
        except StoreError:
            raise
        except Exception as error:
            # Whoever is asked about a spawn may fail; the children that were begun go on.
            log.warning("%s: a spawn failed", self._agent.path, exc_info=True)
            return failed(SPAWN, f"the spawn failed: {type(error).__name__}: {error}")

    async def _spawn(self, step: int, ordinal: int, call: ToolCall) -> _Made:
        loop = self._loop
        contract, parent = loop.contract, loop.job
        arguments = read_arguments(call, parent.services.offered(contract.agents)[-1])
        ask = read_spawn(arguments, contract.agents)
        back = decide(
            wait=ask.wait,
            after=ask.background_after,
            ceiling=contract.spawn_background_after,
            detached_spawns=contract.detached_spawns,
        )
        name = "agent" if ask.definition is None else ask.definition.name
        await CallContext(loop, step).authorise(Act.spawn, name)
        job = attrs.evolve(
            parent,
            contract=child_contract(contract, ask),
            policy=child_policy(parent.policy, ask),
            definition=ask.definition,
            in_tree=True,
            trusted_gate=False,
            opening="",
        )
        await self._check_price(job, step)
        child = await self._agent.spawn_agent(
            self._work_on, (job,), job.limits(), place=(step, ordinal), about=job.about()
        )
        made = _Made(child, back, trio.current_time())
        await self._record(step, ordinal, ask, call, child)
        return made

    async def _check_price(self, job: Job, step: int) -> None:
        """Refuse a model without a price while a cost ceiling stands, before anything is counted."""
        tree = self._agent.tree
        unknown = tree.limits.max_total_cost is not None and job.services.prices.get(job.priced_model) is None
        if unknown and self._loop.contract.on_unknown_price == OnUnknownPrice.refuse:
            refusal = UnknownPrice(job.priced_model or "(the provider's own)")
            tree.ledger.state.count_refusal(refusal.cap)
            await tree.refused(self._agent, refusal, step)
            raise refusal

    async def _record(self, step: int, ordinal: int, ask: SpawnAsk, call: ToolCall, child: Agent) -> None:
        agent, recorder = self._agent, self._loop.recorder
        run_id = agent.run_id
        name = None if ask.definition is None else ask.definition.name
        stored = None if ask.definition is None else json.dumps(ask.definition.to_dict())
        detail = f"{child.path} {name or 'agent'}: {ask.goal}"
        facts = {"step": step, "child": child.path, "agent": name, "goal": bounded(ask.goal, 500)}
        await recorder.store.append(
            AgentEvent(run_id, step, "spawn", detail, child.run_id),
            recorder.event(agent.path, agent.depth, "spawned", facts),
            Spawned(run_id, step, ordinal, child.run_id, ask.goal, stored, call.arguments),
            AgentEvent(run_id, step, "spawn_args", call.arguments, child.run_id),
        )


async def _wait_for(made: _Made) -> None:
    """Wait for a child as long as its way says; one that is let go is not disturbed."""
    if made.back.way is Way.wait:
        await made.child.wait_ended()
    elif made.back.after is not None:
        with trio.CancelScope(deadline=made.at + made.back.after):
            await made.child.wait_ended()


def failed(target: str, text: str) -> Observation:
    """Give an error that the model reads."""
    return Observation(ObservationKind.error, target, text)
