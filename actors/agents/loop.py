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
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

import attrs
import trio

from actors.agents.agent import COMMIT_SECONDS, About, Agent, AgentLimits
from actors.agents.contract import TaskContract
from actors.agents.entry_text import bounded, clean
from actors.agents.gatekeeper import CallContext
from actors.agents.live_states import WaitFor
from actors.agents.loop_children import Children, failed
from actors.agents.model_input import clean_call, estimate_of, read_arguments
from actors.agents.outcomes import Outcome, OutcomeKind
from actors.agents.policy import Effect, Policy
from actors.agents.ports import (
    Act,
    ActRefused,
    AssistantTurn,
    Completion,
    CompletionRequest,
    Observation,
    ObservationKind,
    ResultsTurn,
    ToolCall,
    ToolSpec,
    Turn,
    UserTurn,
)
from actors.agents.prompt import CUT, ENTRY_CHARS, QUIET, Framing, first_turn, fitted, system_text
from actors.agents.recording import Recorder, ending, settled_row
from actors.agents.retrying import retry_delay
from actors.agents.roster import AgentDef
from actors.agents.rows import (
    AgentEvent,
    AttemptMade,
    GateTried,
    Settled,
)
from actors.agents.services import Services
from actors.agents.spawning import NAME as SPAWN
from actors.agents.stall import Signature, StallState, look
from actors.agents.step_rows import answer_row, attempt_row, calls_text, draw_row, step_facts, step_rows
from actors.agents.turns import UNFINISHED, Event, Phase, StepFacts, advance, after_step
from actors.agents.verification import CriterionKind
from actors.containment.ledger_state import Draw, Quote, Reservation, Settlement
from actors.containment.usage import Usage
from actors.errors import (
    BudgetExceeded,
    ProviderError,
    ProviderErrorKind,
    StoreError,
    StoreErrorKind,
    ToolFailed,
)

log = logging.getLogger("actors.loop")

SAID_CHARS = 8_000
# An answer that was cut at its limit is asked to go on so often; then what there is counts.
CUT_RETRIES = 1


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

    @property
    def model(self) -> str | None:
        """Name the model to ask for; None asks for the provider's own."""
        return None if self.definition is None else self.definition.model

    @property
    def priced_model(self) -> str | None:
        """Name the model whose price counts."""
        return self.model or getattr(self.services.provider, "default_model", None)

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
    return await Loop(agent, job).run()


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
        self._tools = {tool.spec.name: tool for tool in job.services.tools}
        self._specs = self._offered()
        self._system = system_text(self._framing())
        self._turns: list[Turn] = [first_turn(self.contract.goal, self.contract.verify.describe(), job.opening)]
        self._stall = StallState()
        self._cuts = 0
        self._children = Children(self, work_on)

    def _offered(self) -> tuple[ToolSpec, ...]:
        return self.services.offered(self.contract.agents if self.job.in_tree else None)

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
        outcome = await self._authorise_provider() if self.agent.parent is None else None
        while outcome is None:
            outcome = await self._step()
        self.agent.outcome = outcome
        return self.agent.said

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
        spent = self.agent.own_tokens + self.agent.own_overrun
        late = self._fold_late(number)
        answer = await self._ask(number)
        if isinstance(answer, Outcome):
            return answer
        observations = await self._run_calls(number, answer)
        used = self.agent.own_tokens + self.agent.own_overrun - spent
        note = self._look_for_stall(answer, (*late, *observations))
        await self._store_step(number, answer, (*late, *observations), used)
        self._fold(answer, observations, note)
        return await self._judge(number, answer, note is STALLED)

    async def cut(self) -> NoReturn:
        """Wait to be cut: the tree is latched, and its supervisor ends everybody in one order.

        Cancellation: that is what it waits for.
        """
        async with self.agent.waiting():
            await trio.sleep_forever()
        raise AssertionError("sleeping for ever has ended")

    # ── asking ──────────────────────────────────────────────────────────────

    async def _ask(self, step: int) -> Completion | Outcome:
        attempt = 0
        while True:
            attempt += 1
            await self._keep_pace()
            got = await self._attempt(step, attempt)
            if not isinstance(got, ProviderError):
                return got
            delay = self._delay_before_retry(got, attempt)
            if delay is None:
                # Whether a later run may try again stays known.
                return self._end(OutcomeKind.escalated, retryable=got.retryable, message=bounded(str(got), 2_000))
            self._move(Event.failed_for_now)
            await self.recorder.emit(self.agent, "retry", step=step, attempt=attempt, seconds=delay, why=got.kind)
            async with self.agent.waiting(WaitFor.rate):
                await trio.sleep(delay)
            self._move(Event.wait_over)

    async def _keep_pace(self) -> None:
        """Wait while the provider has asked everybody to: one 429 slows all siblings."""
        wait = self.services.pace.wait_needed(self.services.provider.name, trio.current_time())
        if wait > 0:
            async with self.agent.waiting(WaitFor.rate):
                await trio.sleep(wait)

    def _delay_before_retry(self, error: ProviderError, attempt: int) -> float | None:
        """Give the seconds until the next attempt; None when there is none."""
        if not error.retryable or attempt > self.contract.max_retries:
            return None
        retry = self.contract.retry
        delay = retry_delay(
            attempt, base=retry.base, max=retry.max, retry_after=error.retry_after, jitter=self.services.chance()
        )
        now = trio.current_time()
        if error.kind is ProviderErrorKind.rate_limited:
            self.services.pace.note(self.services.provider.name, now + delay)
        limit = self.contract.max_duration
        started = self.agent.started_at
        # It never sleeps past its own time: then it escalates instead.
        if limit is not None and started is not None and now + delay >= started + limit:
            return None
        return delay

    async def _attempt(self, step: int, attempt: int) -> Completion | ProviderError | Outcome:
        request = self._request()
        try:
            held = await self._ledger.reserve(self._quote(request), note=(self._run_id, step, attempt))
        except BudgetExceeded as refusal:
            return self._end(OutcomeKind.cost_budget_exceeded, message=str(refusal))
        if isinstance(held, Draw):
            await self.cut()
        if held.output_tokens != request.max_output_tokens:
            request = attrs.evolve(request, max_output_tokens=held.output_tokens)
        began = trio.current_time()
        try:
            completion = await self.services.provider.complete(request)
        except ProviderError as error:
            await self._attempt_failed(step, attempt, held, error, began)
            return error
        except BaseException as error:
            # Cancelled or a bug: whether it was billed is unknown, so it is charged in full.
            self._attempt_lost(step, attempt, held, error, began)
            raise
        return await self._answered(step, attempt, held, completion, began)

    def _request(self) -> CompletionRequest:
        return CompletionRequest(
            self._system, fitted(self._turns), self._specs, self.job.model, self.contract.max_output_tokens
        )

    def _quote(self, request: CompletionRequest) -> Quote:
        estimate = estimate_of(self.services.provider, request)
        price = self.services.prices.get(self.job.priced_model)
        if price is None:
            return Quote(
                estimate.prompt_tokens, estimate.output_tokens, estimate.minimal_output, priced=not self._needs_price
            )
        return price.quote(estimate.prompt_tokens, estimate.output_tokens, estimate.minimal_output)

    @property
    def _needs_price(self) -> bool:
        return self.agent.tree.limits.max_total_cost is not None

    def _cost(self, usage: Usage | None, served: str | None) -> int:
        price = self.services.prices.get(served) or self.services.prices.get(self.job.priced_model)
        return 0 if price is None or usage is None else price.cost(usage)

    async def _attempt_failed(
        self, step: int, attempt: int, held: Reservation, error: ProviderError, began: float
    ) -> None:
        usage = error.usage if isinstance(error.usage, Usage) else None
        settlement = self._ledger.settle_nowait(held, usage, self._cost(usage, None))
        row = self._attempt_row(step, attempt, usage, began, failure=error.kind, detail=bounded(str(error), 500))
        await self._stand(row, *self._closing_rows(step, held, settlement))
        if settlement.draw is Draw.halted:
            await self.cut()

    def _attempt_lost(self, step: int, attempt: int, held: Reservation, error: BaseException, began: float) -> None:
        settlement = self._ledger.settle_nowait(held, None)
        failure = "cancelled" if isinstance(error, trio.Cancelled) else "error"
        row = self._attempt_row(step, attempt, None, began, failure=failure, detail=type(error).__name__)
        try:
            self.recorder.store.append_nowait(row, *self._closing_rows(step, held, settlement))
        except StoreError as lost:
            log.warning("%s: a call that was cut could not be written down: %s", self.agent.path, lost)

    async def _answered(
        self, step: int, attempt: int, held: Reservation, completion: Completion, began: float
    ) -> Completion:
        cost = self._cost(completion.usage, completion.model)
        settlement = self._ledger.settle_nowait(held, completion.usage, cost)
        text = None if completion.text is None else clean(completion.text)
        calls = tuple(clean_call(call) for call in completion.calls)
        if text != completion.text or calls != completion.calls:
            completion = attrs.evolve(completion, text=text, calls=calls)
        rows: list[Any] = [
            self._attempt_row(step, attempt, completion.usage, began, completion=completion),
            *self._closing_rows(step, held, settlement),
            answer_row(self._run_id, step, completion),
        ]
        if text:
            self.agent.said = bounded(text, SAID_CHARS)
            rows.append(AgentEvent(self._run_id, step, "said", self.agent.said))
        facts = {"step": step, "tokens": settlement.tokens, "remaining": self._ledger.remaining_tokens}
        if settlement.overrun_tokens or settlement.estimated:
            facts |= {"overrun": settlement.overrun_tokens, "estimated": settlement.estimated}
        rows.append(self.recorder.event(self.agent.path, self.agent.depth, "spend_draw", facts))
        await self._stand(*rows)
        self._move(Event.answer_stored)
        if settlement.draw is Draw.halted:
            await self.cut()
        return completion

    # ── rows ────────────────────────────────────────────────────────────────

    async def _stand(self, *rows: Any) -> None:
        """Commit rows although the agent is being stopped. While nobody stops it, only the store bounds the wait.

        Cancellation: shielded, from then on for `COMMIT_SECONDS` at most.
        """
        if not self.recorder.durable:
            # Nothing outlives the process, so nothing has to stand before something else; whoever reads sees the rows.
            self.recorder.store.append_nowait(*rows)
            return
        with self.agent.committing_shield() as shield:
            await self.recorder.store.commit(*rows)
        if shield.cancelled_caught:
            raise StoreError(StoreErrorKind.busy, "the store", f"did not commit within {COMMIT_SECONDS:g} s")

    def _attempt_row(self, step: int, attempt: int, usage: Usage | None, began: float, **more: Any) -> AttemptMade:
        seconds = trio.current_time() - began
        provider, asked = self.services.provider.name, self.job.model
        return attempt_row(self._run_id, step, attempt, usage, seconds, provider=provider, asked=asked, **more)

    def _closing_rows(self, step: int, held: Reservation, settlement: Settlement) -> tuple[Settled, AgentEvent]:
        """Give the rows that close a reservation: what became of it, and what was drawn."""
        draw = draw_row(self._run_id, step, settlement, self._ledger.remaining_tokens)
        return settled_row(self._run_id, held, settlement), draw

    async def _store_step(self, step: int, answer: Completion, observations: Sequence[Observation], used: int) -> None:
        rows = step_rows(self._run_id, step, answer, observations, used, self._ledger.remaining_tokens)
        facts = step_facts(step, answer, observations, used)
        await self._stand(*rows, self.recorder.event(self.agent.path, self.agent.depth, "step", facts))
        self.agent.steps = step
        self._children.step_stored()
        self._move(Event.step_stored)

    # ── folding and judging ─────────────────────────────────────────────────

    def _look_for_stall(self, answer: Completion, observations: Sequence[Observation]) -> str | None:
        """Look for circles; return a note for the model, or `STALLED`. Single-file work only repeats, and is let be."""
        if self.contract.is_single_file:
            return None
        seen = Signature(calls_text(answer), any(each.changed for each in observations))
        policy = self.contract.stall
        verdict = look(self._stall, seen, window=policy.window, max_replans=policy.max_replans)
        self._stall = verdict.state
        return STALLED if verdict.stalled else verdict.note

    def _fold(self, answer: Completion, observations: Sequence[Observation], note: str | None) -> None:
        """Add the step to what the model will read next."""
        self._turns.append(AssistantTurn(answer.text, answer.calls))
        texts = [each.text for each in observations]
        if note is not None and texts:
            texts[-1] = f"{texts[-1]}\n\n{note}"
        if answer.calls:
            self._turns.append(ResultsTurn(tuple(texts)))
        else:
            cut = answer.finish_reason in UNFINISHED
            self._turns.append(UserTurn(CUT if cut else QUIET))

    def _fold_late(self, step: int) -> list[Observation]:
        """Add the reports of children that ended in the background to the last that the model reads."""
        late = self._children.fold(step)
        for seen in late:
            last = self._turns[-1]
            if isinstance(last, ResultsTurn):
                self._turns[-1] = ResultsTurn((*last.texts[:-1], f"{last.texts[-1]}\n\n{seen.text}"))
            else:
                assert isinstance(last, UserTurn), "a step ends with what the model reads next"
                self._turns[-1] = attrs.evolve(last, text=f"{last.text}\n\n{seen.text}")
        return late

    async def _judge(self, step: int, answer: Completion, stalled: bool) -> Outcome | None:
        unfinished = answer.finish_reason in UNFINISHED and self._cuts < CUT_RETRIES
        self._cuts = self._cuts + 1 if unfinished and not answer.calls else 0
        facts = StepFacts(
            quiet=not answer.calls,
            has_criterion=self.contract.verify.kind is not CriterionKind.none,
            stalled=stalled,
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
        if facts.has_criterion and await self._passes(step):
            return self._end(OutcomeKind.success)
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
            return f"no progress in {self.contract.stall.window} steps, after {self._stall.replans} new plans"
        return ""

    async def _passes(self, step: int) -> bool:
        contract, policy = self.contract, self.job.policy

        def may_read(target: str) -> bool:
            return policy.explain(Act.read, target).effect is Effect.allow

        def may_exec(argv: Sequence[str]) -> bool:
            if self.job.trusted_gate:
                # The operator wrote this very command.
                return True
            targets = (argv[0], shlex.join(argv))
            return all(policy.explain(Act.exec, target).effect is Effect.allow for target in targets)

        got = await self.services.verify(
            contract.verify,
            root=str(contract.root or contract.file.parent),
            file=str(contract.file) if contract.is_single_file else None,
            exec_timeout=contract.exec_timeout,
            may_read=may_read,
            may_exec=may_exec,
        )
        detail = clean(got.detail)
        facts = {"step": step, "verdict": got.verdict, "detail": detail}
        await self.recorder.store.append(
            GateTried(self._run_id, step, got.phase, got.verdict, detail),
            self.recorder.event(self.agent.path, self.agent.depth, "gate", facts),
        )
        return got.verdict == "passed"

    # ── calls ───────────────────────────────────────────────────────────────

    async def _run_calls(self, step: int, answer: Completion) -> list[Observation]:
        """Run the calls of an answer in order, then its spawns beside each other; results stand in call order."""
        self._move(Event.calls_begin)
        calls = answer.calls
        results: list[Observation | None] = [None] * len(calls)
        spawns: list[int] = []
        # An answer without a call has nothing to be admitted.
        admitted, cap = await self.agent.tree.ledger.admit_tool_calls(len(calls)) if calls else (0, None)
        for place, call in enumerate(calls):
            if place >= admitted:
                await self.recorder.emit(self.agent, "refused", step=step, axis="tool_calls", text=str(cap))
                results[place] = failed(call.name, f"not run: {cap}")
            elif call.name == SPAWN and self.job.in_tree:
                spawns.append(place)
            else:
                results[place] = await self._run_tool(step, place, call)
        self._move(Event.calls_over)
        await self._children.run(step, calls, spawns, results)
        if not calls:
            return [Observation(ObservationKind.message, "", answer.text or "(no tool call)")]
        return [self._capped(each) for each in results if each is not None]

    def _capped(self, seen: Observation) -> Observation:
        """Make an observation safe and bounded: the one place where that is done."""
        return attrs.evolve(seen, target=clean(seen.target), text=bounded(clean(seen.text), ENTRY_CHARS))

    async def _run_tool(self, step: int, place: int, call: ToolCall) -> Observation:
        await self.recorder.emit(self.agent, "tool_call", step=step, ordinal=place + 1, tool=clean(call.name)[:200])
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(spec.name for spec in self._specs)
            return failed(call.name, f"there is no tool {call.name!r}; the tools are: {known}")
        try:
            arguments = read_arguments(call, tool.spec)
            seen = await tool.run(arguments, CallContext(self, step))
        except (ToolFailed, ActRefused) as error:
            return failed(call.name, str(error))
        except StoreError:
            # What cannot be written down must not go on.
            raise
        except Exception as error:
            # A bug in a tool is its caller's bad luck, never the end of the run.
            log.warning("%s: tool %s raised", self.agent.path, call.name, exc_info=True)
            return failed(call.name, f"the tool failed: {type(error).__name__}: {error}")
        if not isinstance(seen, Observation):
            return failed(call.name, f"the tool failed: it gave back {type(seen).__name__} and no observation")
        return seen

    # ── the provider's endpoint ─────────────────────────────────────────────

    async def _authorise_provider(self) -> Outcome | None:
        """Ask the policy for the provider's host, once, before anything is sent.

        A layer that allows it is merged in, so that deny-by-default still reaches
        the model; an explicit deny still wins.
        """
        endpoint = getattr(self.services.provider, "endpoint", None)
        if endpoint is None:
            return None
        opened = self.job.policy.merge(Policy.permissive().layer("provider").allow_net(endpoint))
        try:
            await CallContext(self, 0, opened).authorise(Act.net, endpoint)
        except ActRefused as error:
            return self._end(OutcomeKind.refused, message=str(error))
        return None


# The mark of a step after which the agent is stalled; compared by identity.
STALLED = "stalled"
