"""The children that one agent's model asks for: started in order, waited for beside each other, folded in call order.

A child that the model went on without is folded in at the start of a later step,
in the order of the spawns. An agent that ends first waits for its children all
the same: the tree sees to that, and their reports are stored with its end.

A step that is done again adopts the children it made: the key is the place of
the call, so two equal goals are two children. One that had ended is not begun
again, and its report reads as it would have.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from actors.agents.agent import Agent
from actors.agents.background import FormerChild, background_of, observation_of, report_observation
from actors.agents.call_journal import Work
from actors.agents.calling import failed
from actors.agents.coming_back import ComeBack, Way, decide, works_on
from actors.agents.entry_text import bounded, clean
from actors.agents.gatekeeper import CallContext
from actors.agents.live_states import WaitFor
from actors.agents.model_input import read_arguments
from actors.agents.past import PastAgent, PastChild
from actors.agents.ports import Act, ActRefused, Observation, ObservationKind, ToolCall
from actors.agents.prompt import ENTRY_CHARS
from actors.agents.rewriting import CallRewritten
from actors.agents.roster import Agents
from actors.agents.rows import AgentEvent, Spawned
from actors.agents.spawning import NAME as SPAWN
from actors.agents.spawning import SpawnAsk, check_review, child_contract, child_policy, child_tools, read_spawn
from actors.agents.worktrees import in_own_worktree, in_same_worktree
from actors.containment.prices import OnUnknownPrice
from actors.errors import SpawnRefusal, StoreError, ToolFailed, UnknownPrice
from actors.halts import RESUMABLE

if TYPE_CHECKING:
    from actors.agents.loop import Job, Loop

log = logging.getLogger("actors.loop")


@attrs.frozen
class _Made:
    """A child of this step: how it comes back, and when it was made, on trio's clock."""

    child: Agent | FormerChild
    back: ComeBack
    at: float
    goal: str
    # Hears what the parent is told, and adds what was changed in its call.
    telling: Callable[[Observation], Observation]


class Children:
    """The children of one loop. ``work_on`` is the behaviour that every LLM agent has."""

    def __init__(self, loop: Loop, work_on: Callable[..., Awaitable[Any]]) -> None:
        self._loop = loop
        self._agent = loop.agent
        self._work_on = work_on
        # Children of calls whose step a process before this one did not finish, by step and ordinal.
        self._past: dict[tuple[int, int], PastChild] = {}

    async def adopt(self, past: PastAgent) -> None:
        """Take in again what works on, or has ended unread, beside the committed steps; remember the other children.

        Cancellation: what was taken in is stopped by whoever stops this agent.
        """
        for each in past.children:
            if each.step > past.last_step:
                self._past[each.step, each.ordinal] = each
            elif not each.reported:
                child = await self._adopted(each)
                background_of(self._agent).let_go(child, None, each.step)

    async def _adopted(self, past: PastChild) -> Agent | FormerChild:
        if past.end is not None:
            end = past.end
            # As any child that has ended: what it used is handed up.
            self._agent.add_below(end.usage, end.turns)
            seen = report_observation(past.path, past.goal, end.outcome, end.steps, end.tokens, end.said, end.error)
            return FormerChild(past.path, end.outcome, seen)
        ask, _ = self._read(ToolCall(SPAWN, past.arguments), self._roster(past))
        job = await in_same_worktree(self._loop, self._job_for(ask), past.step, past.ordinal)
        return await self._agent.adopt_agent(
            self._work_on, (job,), job.limits(), place=(past.step, past.ordinal), about=job.about()
        )

    def fold(self, step: int) -> list[Observation]:
        """Take the reports of those that ended in the background, in the order of their spawns."""
        background = self._agent.background
        return [] if background is None else [observation_of(child) for child in background.collect(step)]

    def late_stored(self) -> None:
        """Hear that what was folded in stands in the store."""
        if self._agent.background is not None:
            self._agent.background.stored()

    async def run(self, work: Work, places: Sequence[int], results: list[Observation | None]) -> None:
        """Carry out the spawns among the calls of an answer, at ``places``, and put what came of them into ``results``.

        Cancellation: children that were made are stopped by whoever stops this agent.
        """
        children: dict[int, _Made] = {}
        step = work.step
        for place in places:
            if (step, place + 1) not in self._past:
                await self._loop.recorder.emit(self._agent, "tool_call", step=step, ordinal=place + 1, tool=SPAWN)
            made = await self._try(work, place + 1, work.answer.calls[place])
            if isinstance(made, _Made):
                children[place] = made
            else:
                results[place] = _bounded(made)
        if not children:
            return
        if any(made.back.way is not Way.detach for made in children.values()):
            async with self._agent.waiting(WaitFor.child, _last_clock(children.values())):
                for made in children.values():
                    await _wait_for(made)
        halt = self._agent.tree.ledger.halted
        if halt is not None and halt.kind in RESUMABLE:
            # The children were stopped to go on later: this step stays open, so that a resume finds them again.
            await self._loop.cut()
        for place, made in children.items():
            results[place] = self._came_back(made, step)

    def _came_back(self, made: _Made, step: int) -> Observation:
        child, back = made.child, made.back
        # Told to go on without it, an agent does so even if the child was quick: what it reads is then the same.
        if back.way is Way.detach or child.exit is None:
            background_of(self._agent).let_go(child, back.after, step)
            # A report is what is of the kind child: whoever goes on from the store tells by it what was read.
            told = works_on(child.path, made.goal, back)
            return _bounded(made.telling(Observation(ObservationKind.message, child.path, told, changed=True)))
        seen = _bounded(made.telling(observation_of(child)))
        return attrs.evolve(seen, text=f"{seen.text}\n{back.note}") if back.note else seen

    async def _try(self, work: Work, ordinal: int, asked: ToolCall) -> _Made | Observation:
        context = CallContext(self._loop, work.step, work=work, ordinal=ordinal, call=asked)
        made = None
        while made is None:
            call = await context.begin()
            made = await self._try_once(work.step, ordinal, call, context)
        return context.telling(made) if isinstance(made, Observation) else made

    async def _try_once(
        self, step: int, ordinal: int, call: ToolCall, context: CallContext
    ) -> _Made | Observation | None:
        """Make the child of a call; None when an approver changed the call, so that it is to be begun again."""
        try:
            return await self._spawn(step, ordinal, call, context)
        except CallRewritten:
            return None
        except (ToolFailed, ActRefused) as error:
            return failed(SPAWN, str(error))
        except SpawnRefusal as refusal:
            halt = self._agent.tree.ledger.halted
            if halt is not None and halt.kind in RESUMABLE:
                # Said only because the run is stopped to go on later: the step stays open, and a resume spawns.
                await self._loop.cut()
            return failed(SPAWN, f"no sub-agent was started: {refusal}. Adapt: do this part yourself, or end.")
        except StoreError:
            raise
        except Exception as error:
            # Whoever is asked about a spawn may fail; the children that were begun go on.
            log.warning("%s: a spawn failed\n%s", self._agent.path, self._loop.recorder.told(error))
            text = self._loop.recorder.redactor.hide(f"{type(error).__name__}: {error}")
            return failed(SPAWN, f"the spawn failed: {text}")

    async def _spawn(self, step: int, ordinal: int, call: ToolCall, context: CallContext) -> _Made:
        past = self._past.pop((step, ordinal), None)
        ask, back = self._read(call, self._roster(past))
        if past is not None:
            return _Made(await self._adopted(past), back, trio.current_time(), ask.goal, context.telling)
        check_review(ask, self._loop.services.reviewer, self._loop.services.provider)
        name = "agent" if ask.definition is None else ask.definition.name
        await context.authorise(Act.spawn, name)
        job = self._job_for(ask)
        await self._check_price(job, step)
        job = await in_own_worktree(self._loop, job, context, step, ordinal)
        child = await self._agent.spawn_agent(
            self._work_on, (job,), job.limits(), place=(step, ordinal), about=job.about()
        )
        made = _Made(child, back, trio.current_time(), ask.goal, context.telling)
        await self._record(step, ordinal, ask, call, child)
        return made

    def _roster(self, past: PastChild | None) -> Agents:
        """Give the named agents that a call may mean: of a child that was made before, the one that it was then."""
        if past is None or past.definition is None:
            return self._loop.contract.agents
        return Agents((past.definition,))

    def _read(self, call: ToolCall, roster: Agents) -> tuple[SpawnAsk, ComeBack]:
        contract = self._loop.contract
        arguments = read_arguments(call, self._loop.services.offered(contract.agents)[-1])
        ask = read_spawn(arguments, roster)
        back = decide(
            wait=ask.wait,
            after=ask.background_after,
            ceiling=contract.spawn_background_after,
            detached_spawns=contract.detached_spawns,
        )
        return ask, back

    def _job_for(self, ask: SpawnAsk) -> Job:
        parent = self._loop.job
        tools = child_tools(parent.tools, ask)
        return attrs.evolve(
            parent,
            contract=child_contract(parent.contract, ask),
            policy=child_policy(parent.policy, ask),
            definition=ask.definition,
            in_tree=tools is None or SPAWN in tools,
            trusted_gate=False,
            opening="",
            tools=tools,
        )

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
        stored = None if ask.definition is None else json.dumps({"name": name, **ask.definition.to_dict()})
        detail = f"{child.path} {name or 'agent'}: {ask.goal}"
        facts = {"step": step, "child": child.path, "agent": name, "goal": bounded(ask.goal, 500)}
        await recorder.append(
            AgentEvent(run_id, step, "spawn", detail, child.run_id),
            recorder.event(agent.path, agent.depth, "spawned", facts),
            Spawned(run_id, step, ordinal, child.run_id, ask.goal, stored, call.arguments),
            AgentEvent(run_id, step, "spawn_args", call.arguments, child.run_id),
        )


def _last_clock(children: Iterable[_Made]) -> float | None:
    """Give when the last child is let go that is waited for by the clock; None when none is."""
    return max((made.at + made.back.after for made in children if made.back.after is not None), default=None)


async def _wait_for(made: _Made) -> None:
    """Wait for a child as long as its way says; one that is let go is not disturbed."""
    child = made.child
    if isinstance(child, FormerChild):
        return
    if made.back.way is Way.wait:
        await child.wait_ended()
    elif made.back.after is not None:
        with trio.CancelScope(deadline=made.at + made.back.after):
            await child.wait_ended()


def _bounded(seen: Observation) -> Observation:
    """Make an observation safe and bounded; a report is that already."""
    return attrs.evolve(seen, target=clean(seen.target), text=bounded(clean(seen.text), ENTRY_CHARS))
