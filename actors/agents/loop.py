"""One agent that works by asking a model: the turn table at work.

A step: reserve, ask, settle; commit the answer; run its calls in order, then
its spawns; commit the step; judge. The answer stands in the store before any
of its calls runs. Whoever waits (for a reservation, a back-off, a human, a
child) holds no slot.

When the tree is latched the agent does not decide how it ends: it waits to be
cut by the supervisor, so that everything stops in one order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NoReturn

import attrs
import trio

from actors.agents.about import About, AgentLimits
from actors.agents.agent import COMMIT_SECONDS, Agent
from actors.agents.belongings import Belongings
from actors.agents.call_journal import Journal, Work, acts_unnoted, is_replayable
from actors.agents.calling import announce, call_tool, capped, failed
from actors.agents.contract import TaskContract
from actors.agents.criterion import note_dependencies, passes
from actors.agents.entry_text import bounded
from actors.agents.gatekeeper import CallContext
from actors.agents.live_states import WaitFor
from actors.agents.loop_children import Children
from actors.agents.model_cost import cost_of, priced_model, quote_of
from actors.agents.model_input import clean_answer
from actors.agents.outcomes import Outcome, OutcomeKind
from actors.agents.past import PastAgent, PastAnswer
from actors.agents.policy import Policy
from actors.agents.ports import (
    Completion,
    CompletionRequest,
    Observation,
    ObservationKind,
    Provider,
    ToolCall,
)
from actors.agents.prompt import Framing, first_turn, system_text
from actors.agents.read_runs import NO_RUNS
from actors.agents.reading_beside import read_beside, runs_of
from actors.agents.recording import Recorder, ending, settled_row
from actors.agents.retrying import retry_delay
from actors.agents.reviewing import refused_endpoints
from actors.agents.roster import AgentDef
from actors.agents.routing import Routing, request_bytes, route
from actors.agents.rows import AgentEvent, AttemptMade, Settled
from actors.agents.services import Services
from actors.agents.spawning import NAME as SPAWN
from actors.agents.step_rows import (
    answer_row,
    attempt_row,
    digest_of,
    draw_row,
    observed_rows,
    step_facts,
    step_rows,
)
from actors.agents.transcript import Transcript
from actors.agents.turns import Event, Phase, StepFacts, advance, after_step
from actors.agents.verification import CriterionKind
from actors.containment.ledger_state import Draw, Reservation, Settlement
from actors.containment.usage import Usage
from actors.errors import (
    BudgetExceeded,
    ProviderError,
    ProviderErrorKind,
    StoreError,
    StoreErrorKind,
    ToolCallCap,
)

log = logging.getLogger("actors.loop")

SAID_CHARS = 8_000


@attrs.frozen
class Job:
    """What one agent is to do, and under what. ``trusted_gate``: the operator wrote the criterion."""

    contract: TaskContract
    policy: Policy
    services: Services
    definition: AgentDef | None = None
    in_tree: bool = True
    trusted_gate: bool = True
    # What the model reads after its task: the one file of single-file work, as it is at the start.
    opening: str = ""
    # Names of the tools it keeps; None for all.
    tools: frozenset[str] | None = None

    @property
    def model(self) -> str | None:
        """Name the model to ask for; None asks for the provider's own."""
        return None if self.definition is None else self.definition.model

    @property
    def priced_model(self) -> str | None:
        """Name the model whose price counts."""
        return priced_model(self.services.provider, self.model)

    def about(self) -> About:
        """Say what the store is told at the start."""
        contract = self.contract
        return About(
            contract.goal,
            str(contract.file) if contract.is_single_file else None,
            self.services.provider.name,
            self.model,
            self.services.contract_text(contract),
            self.services.policy_text(self.policy),
            None if contract.root is None else str(contract.root),
        )

    def limits(self) -> AgentLimits:
        """Give the agent's own limits."""
        leaf = not self.in_tree
        return AgentLimits(self.contract.max_tokens, self.contract.max_duration, leaf=leaf)


async def work_on(agent: Agent, job: Job) -> str | None:
    """Work on a job until it ends, and return the last text the model said. The behaviour of every LLM agent.

    Cancellation: what was answered is stored; an open call is charged in full and marked estimated.
    """
    loop = Loop(agent, job)
    try:
        return await loop.run()
    finally:
        if loop.belongings:
            # Each thing that is kept bounds its own end.
            with trio.CancelScope(shield=True):
                agent.tree.leaked_processes.extend(await loop.belongings.give_up())


class Loop:
    """One agent's loop. Made for one run, and used once."""

    def __init__(self, agent: Agent, job: Job) -> None:
        recorder = agent.tree.recorder
        assert recorder is not None, "an agent that asks a model writes down what it does"
        self.agent = agent
        self._run_id = agent.run_id
        self._ledger = agent.ledger
        self.job = job
        self.contract = job.contract
        self.services = job.services
        self.recorder: Recorder = recorder
        self._phase = Phase.ready
        tools = {tool.spec.name: tool for tool in job.services.tools}
        self.tools = {name: tool for name, tool in tools.items() if job.tools is None or name in job.tools}
        self._specs = self.services.offered(self.contract.agents if job.in_tree else None, job.tools)
        self._system = system_text(self._framing())
        self._transcript = Transcript(
            first_turn(self.contract.goal, self.contract.verify.describe(), job.opening),
            None if self.contract.is_single_file else self.contract.stall,
        )
        self._digest: str | None = None
        # What a process before this one left: an answer, how often the next one was asked for, what that
        # drew, and the verdict on the last step.
        self._pending: PastAnswer | None = None
        self._attempts = 0
        self._step_tokens = 0
        self._gate: str | None = None
        # The model that is asked, None for the provider's own; and the checks in a row that did not pass.
        self._model = job.model
        self._non_passes = 0
        self._children = Children(self, work_on)
        # What tools keep between calls; it is given up with the loop, and kept nowhere else.
        self.belongings = Belongings(agent.tree.host.services.start_soon)

    def _framing(self) -> Framing:
        definition = self.job.definition
        return Framing(
            role="" if definition is None else definition.role or "",
            tree=self.job.in_tree,
            single_file=self.contract.is_single_file,
            constraints=tuple(self.contract.constraints),
        )

    # ── the loop ────────────────────────────────────────────────────────────

    async def run(self) -> str | None:
        """Go step by step until there is an outcome.

        Cancellation: see `work_on`.
        """
        outcome = None
        if self.agent.parent is None and (refused := await refused_endpoints(self)) is not None:
            outcome = self._end(OutcomeKind.refused, message=refused)
        await note_dependencies(self)
        if self.agent.past is not None and outcome is None:
            outcome = await self._go_on(self.agent.past)
        # Kept by nobody from now on: the transcript holds what is needed of it.
        self.agent.past = None
        while outcome is None:
            outcome = await self._step()
        self.agent.outcome = outcome
        return self.agent.said

    async def _go_on(self, past: PastAgent) -> Outcome | None:
        """Begin where the process before ended: the turns, the stall window, the children that work on.

        A last step that was stored and perhaps not judged is judged again, from what is known.

        Cancellation: nothing was asked.
        """
        transcript, stalled = self._transcript, False
        self.belongings.remember(past.calls_run())
        judged, self._non_passes = past.judged, past.non_passes
        if past.routed is not None:
            self._model = past.routed or None
        for each in past.steps:
            answer = each.answer
            transcript.fold_late(each.late)
            stalled = transcript.fold(answer, each.late, each.seen)
            self._digest = each.digest
            if each.step == past.taken_over:
                self._transcript.begin_anew()
            if judged or each is not past.steps[-1]:
                transcript.unfinished(answer)
        await self._children.adopt(past)
        if past.decided is not None:
            # Its work was over, and only its children were not.
            self._move(Event.end)
            return past.decided
        self._pending, self._attempts, self._step_tokens = past.pending, past.attempts, past.step_tokens
        if judged or not past.steps:
            return None
        last = past.steps[-1]
        self._phase, self._gate = Phase.committed, last.gate
        return await self._judge(last.step, last.answer, stalled, denied=last.denied)

    def _move(self, event: Event) -> None:
        self._phase = advance(self._phase, event)

    def _end(self, kind: OutcomeKind, *, message: str = "", retryable: bool | None = None) -> Outcome:
        self._move(Event.end)
        return ending(self.agent, kind, message=message, retryable=retryable)

    async def _step(self) -> Outcome | None:
        number = self.agent.steps + 1
        if number > self.contract.max_steps:
            cap = self.contract.max_steps
            return self._end(OutcomeKind.step_cap_reached, message=f"{self.agent.steps} of {cap} allowed steps used")
        self._move(Event.ask)
        spent = self.agent.own_tokens + self.agent.own_overrun - self._step_tokens
        self._step_tokens = 0
        pending, self._pending = self._pending, None
        late = self._children.fold(number) if pending is None else list(pending.late)
        self._transcript.fold_late(late)
        if pending is None:
            asked = await self._ask(number, late)
            if isinstance(asked, Outcome):
                return asked
            work = asked
        else:
            # It was paid for by a process that is gone: its calls are run, and the model is asked nothing.
            work = Work(number, pending.answer, pending.admitted, pending.results, pending.aborted, again=True)
            self._move(Event.answer_stored)
        seen = await self._run_calls(work)
        used = self.agent.own_tokens + self.agent.own_overrun - spent
        await self._store_step(work, late, seen, used)
        stalled = self._transcript.fold(work.answer, late, seen)
        return await self._judge(number, work.answer, stalled, denied=work.denied)

    async def cut(self) -> NoReturn:
        """Wait to be cut: the tree is latched, and its supervisor ends everybody in one order.

        Cancellation: that is what it waits for.
        """
        async with self.agent.waiting():
            await trio.sleep_forever()
        raise AssertionError("sleeping for ever has ended")

    # ── asking ──────────────────────────────────────────────────────────────

    async def _ask(self, step: int, late: Sequence[Observation]) -> Work | Outcome:
        # A process that is gone may have asked before; only what failed in this one counts as a retry.
        before, self._attempts = self._attempts, 0
        attempt = before
        while True:
            attempt += 1
            await self.keep_pace(self.services.provider)
            got = await self._attempt(step, attempt, late)
            if not isinstance(got, ProviderError):
                return got
            delay = self.delay_before_retry(self.services.provider, got, attempt - before)
            if delay is None or self._over_own_time(delay):
                # Whether a later run may try again stays known.
                return self._end(OutcomeKind.escalated, retryable=got.retryable, message=bounded(str(got), 2_000))
            self._move(Event.failed_for_now)
            await self.recorder.emit(self.agent, "retry", step=step, attempt=attempt, seconds=delay, why=got.kind)
            async with self.agent.waiting(WaitFor.rate):
                await trio.sleep(delay)
            self._move(Event.wait_over)

    async def keep_pace(self, provider: Provider) -> None:
        """Wait while a provider has asked everybody to: one 429 slows all siblings.

        Cancellation: nothing was asked.
        """
        wait = self.services.pace.wait_needed(provider.name, trio.current_time())
        if wait > 0:
            async with self.agent.waiting(WaitFor.rate):
                await trio.sleep(wait)

    def delay_before_retry(self, provider: Provider, error: ProviderError, attempt: int) -> float | None:
        """Give the seconds until the next attempt; None when there is none."""
        if not error.retryable or attempt > self.contract.max_retries:
            return None
        retry = self.contract.retry
        delay = retry_delay(
            attempt, base=retry.base, max=retry.max, retry_after=error.retry_after, jitter=self.services.chance()
        )
        if error.kind is ProviderErrorKind.rate_limited:
            self.services.pace.note(provider.name, trio.current_time() + delay)
        return delay

    def _over_own_time(self, delay: float) -> bool:
        """Tell whether it would sleep past its own time: then it escalates instead."""
        limit, started = self.contract.max_duration, self.agent.started_at
        return limit is not None and started is not None and trio.current_time() + delay >= started + limit

    async def _attempt(self, step: int, attempt: int, late: Sequence[Observation]) -> Work | ProviderError | Outcome:
        try:
            held, request = await self.hold(self.services.provider, await self._request(step), step, attempt)
        except BudgetExceeded as refusal:
            return self._end(OutcomeKind.cost_budget_exceeded, message=str(refusal))
        began = trio.current_time()
        try:
            completion = await self.services.provider.complete(request)
        except ProviderError as failure:
            error = self.recorder.without_secrets(failure)
            await self._attempt_failed(step, attempt, held, error, began)
            return error
        except BaseException as error:
            # Cancelled or a bug: whether it was billed is unknown, so it is charged in full.
            self._attempt_lost(step, attempt, held, error, began)
            raise
        return await self._answered(step, attempt, held, completion, began, late)

    async def hold(
        self, provider: Provider, request: CompletionRequest, step: int, attempt: int
    ) -> tuple[Reservation, CompletionRequest]:
        """Hold what a request costs at most, and give it back with no more output than was held for.

        Cancellation: nothing is held.

        Raises:
            BudgetExceeded: the agent's own cap has no room for it; nothing is held.
        """
        needs_price = self.agent.tree.limits.max_total_cost is not None
        quote = quote_of(provider, request, self.services.prices, needs_price=needs_price)
        held = await self._ledger.reserve(quote, note=(self._run_id, step, attempt))
        if isinstance(held, Draw):
            await self.cut()
        if held.output_tokens != request.max_output_tokens:
            request = attrs.evolve(request, max_output_tokens=held.output_tokens)
        return held, request

    async def _request(self, step: int) -> CompletionRequest:
        read, contract = self._transcript.read, self.contract
        model, most = self.job.model, contract.max_output_tokens
        request = CompletionRequest(self._system, read.turns(), self._specs, model, most, contract.effort, read.sent)
        return request if contract.routing is None else await self._routed(contract.routing, request, step)

    async def _routed(self, routing: Routing, request: CompletionRequest, step: int) -> CompletionRequest:
        chosen, before = route(routing, request, self._non_passes), self._model
        self._model = chosen.model
        was, now = (priced_model(self.services.provider, each) for each in (before, chosen.model))
        if was != now:
            # Its row stands with the reservation, before the request leaves: whoever goes on does not tell it again.
            facts = {"step": step, "from": was, "to": now, "why": chosen.why}
            facts |= {"non_passes": self._non_passes, "bytes": request_bytes(request)}
            event = self.recorder.event(self.agent.path, self.agent.depth, "routed", facts)
            await self.recorder.append(AgentEvent(self._run_id, step, "routed", chosen.model or ""), event)
        return attrs.evolve(request, model=chosen.model)

    def _cost(self, usage: Usage | None, served: str | None) -> int:
        return cost_of(self.services.provider, usage, served, self.services.prices, self._model)

    async def _attempt_failed(
        self, step: int, attempt: int, held: Reservation, error: ProviderError, began: float
    ) -> None:
        usage = error.usage if isinstance(error.usage, Usage) else None
        settlement = self._ledger.settle_nowait(held, usage, self._cost(usage, None))
        row = self._attempt_row(step, attempt, usage, began, failure=error.kind, detail=bounded(str(error), 500))
        await self.stand(row, *self._closing_rows(step, held, settlement))
        if settlement.draw is Draw.halted:
            await self.cut()

    def _attempt_lost(self, step: int, attempt: int, held: Reservation, error: BaseException, began: float) -> None:
        settlement = self._ledger.settle_nowait(held, None)
        failure = "cancelled" if isinstance(error, trio.Cancelled) else "error"
        row = self._attempt_row(step, attempt, None, began, failure=failure, detail=type(error).__name__)
        self.recorder.append_nowait(row, *self._closing_rows(step, held, settlement))

    async def _answered(
        self,
        step: int,
        attempt: int,
        held: Reservation,
        completion: Completion,
        began: float,
        late: Sequence[Observation],
    ) -> Work:
        cost = self._cost(completion.usage, completion.model)
        settlement = self._ledger.settle_nowait(held, completion.usage, cost)
        completion = clean_answer(completion, self.recorder.redactor.hide)
        text, calls = completion.text, completion.calls
        # In this very step: a cancel must not come between the settlement and its rows.
        admitted = self.agent.tree.ledger.admit_tool_calls_nowait(len(calls)) if calls else 0
        rows: list[Any] = [
            self._attempt_row(step, attempt, completion.usage, began, completion=completion),
            *self._closing_rows(step, held, settlement),
            answer_row(self._run_id, step, completion, admitted),
            *observed_rows(self._run_id, step, late),
        ]
        if text:
            self.agent.said = bounded(text, SAID_CHARS)
            rows.append(AgentEvent(self._run_id, step, "said", self.agent.said))
        facts = {"step": step, "tokens": settlement.tokens, "remaining": self._ledger.remaining_tokens}
        if settlement.overrun_tokens or settlement.estimated:
            facts |= {"overrun": settlement.overrun_tokens, "estimated": settlement.estimated}
        rows.append(self.recorder.event(self.agent.path, self.agent.depth, "spend_draw", facts))
        await self.stand(*rows)
        self._children.late_stored()
        self._move(Event.answer_stored)
        if settlement.draw is Draw.halted:
            await self.cut()
        return Work(step, completion, admitted)

    # ── rows ────────────────────────────────────────────────────────────────

    async def stand(self, *rows: Any) -> None:
        """Commit rows although the agent is being stopped. While nobody stops it, only the store bounds the wait.

        Cancellation: shielded, from then on for `COMMIT_SECONDS` at most.
        """
        if not self.recorder.durable:
            # Nothing outlives the process, so nothing has to stand before something else; whoever reads sees the rows.
            self.recorder.append_nowait(*rows)
            return
        with self.agent.committing_shield() as shield:
            await self.recorder.commit(*rows)
        if shield.cancelled_caught:
            file = getattr(self.recorder.store, "file", "the store")
            late = StoreError(StoreErrorKind.busy, file, f"did not commit within {COMMIT_SECONDS:g} s")
            self.recorder.fail(late)
            raise late

    def _attempt_row(self, step: int, attempt: int, usage: Usage | None, began: float, **more: Any) -> AttemptMade:
        seconds = trio.current_time() - began
        provider, asked = self.services.provider.name, self._model
        return attempt_row(self._run_id, step, attempt, usage, seconds, provider=provider, asked=asked, **more)

    def _closing_rows(self, step: int, held: Reservation, settlement: Settlement) -> tuple[Settled, AgentEvent]:
        """Give the rows that close a reservation: what became of it, and what was drawn."""
        draw = draw_row(self._run_id, step, settlement, self._ledger.remaining_tokens)
        return settled_row(self._run_id, held, settlement), draw

    async def _store_step(
        self, work: Work, late: Sequence[Observation], seen: Sequence[Observation], used: int
    ) -> None:
        step, answer = work.step, work.answer
        self._digest = digest_of(self._digest, self._run_id, step, answer, used, (*late, *seen))
        rows = step_rows(
            self._run_id, step, answer, late, seen, used, self._ledger.remaining_tokens, self._digest
        )
        facts = step_facts(step, answer, (*late, *seen), used)
        rows += work.edited(list(work.edits))
        await self.stand(*rows, self.recorder.event(self.agent.path, self.agent.depth, "step", facts))
        self.agent.steps = step
        self._move(Event.step_stored)

    # ── folding and judging ─────────────────────────────────────────────────

    async def _judge(self, step: int, answer: Completion, stalled: bool, *, denied: bool = False) -> Outcome | None:
        unfinished = self._transcript.unfinished(answer)
        facts = StepFacts(
            quiet=not answer.calls,
            has_criterion=self.contract.verify.kind is not CriterionKind.none,
            stalled=stalled,
            denied=denied,
            tree_halted=self._ledger.halted is not None,
            own_tokens_over=self._over_own_cap(),
            paused_by_provider=unfinished,
        )
        kind = after_step(facts)
        if kind is OutcomeKind.budget_ceiling_reached:
            await self.cut()
        if kind is not None:
            if kind is OutcomeKind.stalled:
                await self.recorder.emit(self.agent, "stalled", step=step)
            return self._end(kind, message=self._why(kind))
        self._move(Event.judge)
        # Judged perhaps by a process that ended before it could say so.
        known, self._gate = self._gate, None
        if facts.has_criterion:
            if known == "passed" if known is not None else await passes(self, step):
                return self._end(OutcomeKind.success)
            self._non_passes += 1
        self._move(Event.go_on)
        return None

    def _over_own_cap(self) -> bool:
        """Tell whether more was used than the cap allows; exactly reaching it is allowed."""
        cap = self.contract.max_tokens
        return cap is not None and self.agent.own_tokens + self.agent.own_overrun > cap

    def _why(self, kind: OutcomeKind) -> str:
        if kind is OutcomeKind.cost_budget_exceeded:
            return f"{self.agent.own_tokens} of {self.contract.max_tokens} allowed tokens used"
        if kind is OutcomeKind.stalled:
            replans = self._transcript.window.replans
            return f"no progress in {self.contract.stall.window} steps, after {replans} new plans"
        if kind is OutcomeKind.denied:
            return "the operator aborted a call of which nobody knows whether it was done"
        return ""

    # ── calls ───────────────────────────────────────────────────────────────

    async def _run_calls(self, work: Work) -> list[Observation]:
        """Run the calls of an answer in order, reads beside reads, then its spawns; results stand in call order."""
        # Who was stopped while its answer was stored begins none of its calls.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._move(Event.calls_begin)
        calls = work.answer.calls
        results: list[Observation | None] = [None] * len(calls)
        spawns: list[int] = []
        runs = NO_RUNS if len(calls) < 2 else runs_of(self, work)
        for place, call in enumerate(calls):
            if place in runs:
                await read_beside(self, work, runs[place])
            if place >= work.admitted:
                cap = self._tool_call_cap()
                await self.recorder.emit(self.agent, "refused", step=work.step, axis="tool_calls", text=str(cap))
                results[place] = capped(self, failed(call.name, f"not run: {cap}"))
            elif call.name == SPAWN and self.job.in_tree:
                spawns.append(place)
            elif (known := work.done.get(place + 1)) is not None:
                results[place] = known
            else:
                results[place] = work.done[place + 1] = await self._run_tool(work, place + 1, call)
        self._move(Event.calls_over)
        if spawns and self.recorder.durable:
            # They ride with the first thing that a child writes, which is before it does anything.
            self.recorder.append_nowait(*work.unstored(self._run_id))
        await self._children.run(work, spawns, results)
        if not calls:
            return [Observation(ObservationKind.message, "", work.answer.text or "(no tool call)")]
        return [each for each in results if each is not None]

    def _tool_call_cap(self) -> ToolCallCap:
        limit = self.agent.tree.limits.max_total_tool_calls
        assert limit is not None, "without a ceiling every call is admitted"
        return ToolCallCap(limit, self.agent.tree.ledger.state.tool_calls)

    async def _run_tool(self, work: Work, ordinal: int, call: ToolCall) -> Observation:
        known = work.known.get(ordinal)
        if known is not None:
            return known
        context = CallContext(self, work.step, work=work, ordinal=ordinal, call=call)
        if ordinal in work.aborted:
            work.denied = True
            why = "the operator aborted this call; nobody knows whether it was done"
            return capped(self, context.telling(failed(call.name, why)))
        await announce(self, work, ordinal, call)
        tool = self.tools.get(call.name)
        if tool is None:
            names = ", ".join(spec.name for spec in self._specs)
            return capped(self, failed(call.name, f"there is no tool {call.name!r}; the tools are: {names}"))
        if not self.recorder.durable:
            return capped(self, await call_tool(self, tool, context))
        if is_replayable(tool):
            unnoted = acts_unnoted(tool)
            if (unnoted or work.acted) and (done := work.unstored(self._run_id)):
                await self.stand(*done)
            seen = capped(self, await call_tool(self, tool, context))
            work.acted = work.acted or unnoted
            return seen
        context.journal = Journal(self, work, ordinal, context.call)
        await context.journal.begin()
        seen = capped(self, await call_tool(self, tool, context))
        await context.journal.close(seen)
        return seen
