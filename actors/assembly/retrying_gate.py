"""Judging a run again whose check could not be made: the criterion alone, on the files as they are now.

Only an attempt that errored is made again: a verdict that was reached stands.
Nothing is asked but a reviewer, if the criterion is a review; that is paid for from
what the run's ceilings leave. A run that has its end keeps it: the new attempt
stands in its trace. A run that can be resumed goes on from the new verdict.
"""

from __future__ import annotations

import os
from typing import Any

import attrs
import msgspec
import trio

from actors.agents.confinement import SandboxApplied
from actors.agents.confining import sandbox_facts, sandbox_row
from actors.agents.criterion import Case, Judgement, judge
from actors.agents.entry_text import bounded, clean
from actors.agents.leasing import driving
from actors.agents.model_cost import cost_of, quote_of
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, CompletionRequest, Provider
from actors.agents.recording import settled_row
from actors.agents.review_text import self_review_problem
from actors.agents.reviewing import REVIEW, Paid, cleaned, opened_to, review_row
from actors.agents.rows import EventSeen, GateTried, LedgerTotals, Reserved, SpentLater
from actors.agents.secret_values import Redactor
from actors.agents.step_rows import draw_row, lost_rows
from actors.agents.verification import Review
from actors.assembly.resuming import (
    has_ended,
    stored_containment,
    stored_contract,
    stored_halt,
    stored_memory,
    stored_policy,
)
from actors.assembly.running import FILES
from actors.containment.ledger_state import Draw, LedgerState, Reservation, Settlement
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.errors import BudgetExceeded, ConfigError, ProviderError
from actors.halts import RESUMABLE
from actors.store.past_reader import open_reservations, restored_ledger
from actors.store.records import GateRecord, RunRecord
from actors.store.store import Store
from actors.tools.verifying import evaluate

ERRORED = "errored"
# A failing store keeps a cancelled call for no longer.
LOST_SECONDS = 1.0


@attrs.frozen
class GateResult:
    """What a criterion came to when it was evaluated again. ``step`` is the one that was judged."""

    run_id: str
    step: int
    phase: str
    verdict: str
    detail: str


async def retry_gate(
    run_id: str,
    store: Store,
    *,
    reviewer: Provider | None = None,
    prices: PriceTable | None = None,
) -> GateResult:
    """Evaluate the criterion of a run, or of one agent of it, once more. Its last attempt must have errored.

    ``run_id`` may be any beginning of a run's id, also in that of one of its agents.

    Cancellation: no verdict was written; what a reviewer was sent is charged when the run is gone on with.

    Raises:
        ConfigError: there is no such run, it was never judged, its last attempt did not error, or nobody can review.
        RunConflict: a process drives the run.
        StoreError: the store cannot be used.
    """
    run_id = _whole(store, run_id)
    record, _ = _looked_at(store, run_id, reviewer)
    async with driving(store, record.tree_id):
        # Looked at again: whoever held the lease until now may have judged it, or gone on.
        record, case = _looked_at(store, run_id, reviewer)
        return await _judged(store, record, case, PriceTable() if prices is None else prices)


def _whole(store: Store, run_id: str) -> str:
    """Give the id that a shortened one means."""
    tree, slash, agent = run_id.partition("/")
    return store.resolve(tree) + slash + agent


def _looked_at(store: Store, run_id: str, reviewer: Provider | None) -> tuple[RunRecord, Case]:
    record = store.run(run_id)
    if record is None:
        raise ConfigError(("run", f"there is no run {run_id} in {store.file}"))
    step = _last_attempt(store, run_id).step
    return record, _case(store, record, step, reviewer)


def _last_attempt(store: Store, run_id: str) -> GateRecord:
    attempts = store.gate_attempts(run_id)
    if not attempts:
        raise ConfigError(("run", f"{run_id} was never judged: there is nothing to try again"))
    last = attempts[-1]
    if last.verdict != ERRORED:
        text = f"{run_id} was judged at step {last.step}: {last.verdict}; only an attempt that errored is made again"
        raise ConfigError(("run", text))
    return last


def _case(store: Store, record: RunRecord, step: int, reviewer: Provider | None) -> Case:
    contract = stored_contract(record)
    policy = Policy.permissive() if contract.is_single_file else stored_policy(store, record)
    if policy is None:
        raise ConfigError(("run", f"no policy is stored for {record.run_id}: what it may read nobody knows"))
    verify = contract.verify
    if isinstance(verify, Review):
        problem = "is missing, and the criterion is a review" if reviewer is None else None
        if reviewer is not None and not verify.allow_self_review:
            problem = self_review_problem(reviewer, None, store.models(record.run_id))
        problem = problem or _endpoint_problem(store, record, reviewer)
        if problem is not None:
            raise ConfigError(("reviewer", problem))
    trusted = record.parent_run_id is None

    async def around(applied: SandboxApplied) -> None:
        """Write down what stands around the command. Cancellation: all of it was left, or nothing."""
        facts = {**sandbox_facts(step, None, applied), "again": True}
        await store.append(sandbox_row(record.run_id, step, None, applied), _event(record, "sandbox", facts))

    return Case(record.run_id, step, contract, policy, store, trusted, evaluate, FILES, reviewer, around)


def _endpoint_problem(store: Store, record: RunRecord, reviewer: Provider | None) -> str | None:
    """Say why the reviewer's host may not be reached, as the tree's own policy has it; None when it may.

    Nobody is there to be asked, so an ask that no remembered rule answers counts as no.
    """
    root, endpoint = store.run(record.tree_id), getattr(reviewer, "endpoint", None)
    policy = None if root is None or endpoint is None else stored_policy(store, root)
    if policy is None or endpoint is None:
        return None
    decision = opened_to(policy, endpoint).explain(Act.net, endpoint)
    if decision.effect is Effect.ask and stored_memory(store, record.tree_id).match(Act.net, endpoint) is not None:
        return None
    said = {Effect.deny: "denies it", Effect.ask: "asks about it, and nobody is there to be asked"}.get(decision.effect)
    return said and f"{endpoint} may not be reached: the rule {decision.rule!r} of {decision.layer} {said}"


async def _judged(store: Store, record: RunRecord, case: Case, prices: PriceTable) -> GateResult:
    got = await judge(case, _Payer(store, record, case, prices))
    facts = {"step": case.step, "verdict": got.verdict, "detail": got.detail, "again": True}
    rows = [*got.rows, GateTried(case.run_id, case.step, got.phase, got.verdict, got.detail)]
    if got.facts is not None:
        rows.append(_event(record, "reviewed", {"step": case.step, **got.facts, "again": True}))
    rows.append(_event(record, "gate", facts))
    await store.commit(*rows)
    return _result(case, got)


def _result(case: Case, got: Judgement) -> GateResult:
    return GateResult(case.run_id, case.step, got.phase, got.verdict, got.detail)


def _event(record: RunRecord, kind: str, facts: dict[str, Any]) -> EventSeen:
    told = {"kind": kind, "run_id": record.run_id, "path": record.path, "depth": record.depth, **facts}
    return EventSeen(record.tree_id, record.run_id, msgspec.json.encode(told).decode())


class _Payer:
    """The tree pays, from what its ceilings leave; its totals and its agent's own figures say so."""

    def __init__(self, store: Store, record: RunRecord, case: Case, prices: PriceTable) -> None:
        self._store = store
        self._record = record
        self._case = case
        self._prices = prices
        self._limits = stored_containment(self._root())

    def _root(self) -> RunRecord:
        root = self._store.run(self._record.tree_id)
        assert root is not None, "an agent has its root"
        return root

    async def ask(self, reviewer: Provider, request: CompletionRequest) -> Paid:
        """Ask once.

        Cancellation: what was sent is charged in full, and marked estimated.
        """
        await self._close_lost()
        refusal = self._refusal()
        if refusal is not None:
            return Paid(None, refusal)
        record, limits = self._record, self._limits
        state = restored_ledger(self._store, record.tree_id, limits)
        needs_price = limits.max_total_cost is not None
        quote = quote_of(reviewer, request, self._prices, needs_price=needs_price)
        if needs_price and not quote.priced:
            return Paid(None, "no price is known for the reviewer's model, and a cost ceiling is set")
        cap = self._case.contract.max_tokens
        try:
            held = state.reserve(quote, by=record.path, own_tokens=None if cap is None else max(cap - self._used, 0))
        except BudgetExceeded as refused:
            return Paid(None, f"the review cannot be paid for: {refused}")
        if not isinstance(held, Reservation):
            return Paid(None, "the review does not fit under what the run's ceilings leave")
        attempt = self._attempts() + 1
        place = (record.run_id, self._case.step, attempt)
        await self._store.commit(Reserved(*place, held.id, held.tokens, held.microdollars, held.priced))
        began = trio.current_time()
        more: dict[str, Any]
        usage, served, answer, why = None, None, None, ""
        try:
            answer = cleaned(await reviewer.complete(attrs.evolve(request, max_output_tokens=held.output_tokens)))
            usage, served, more = answer.usage, answer.model, {"completion": answer}
        except ProviderError as error:
            usage = error.usage if isinstance(error.usage, Usage) else None
            why = _told(f"the reviewer failed: {bounded(clean(str(error)), 500)}")
            more = {"failure": error.kind, "detail": why}
        except Exception as error:
            # A bug of a reviewer says nothing about the work.
            why = _told(f"the reviewer failed: {type(error).__name__}: {bounded(clean(str(error)), 500)}")
            more = {"failure": "error", "detail": why}
        except BaseException:
            with trio.move_on_after(LOST_SECONDS, shield=True):
                await self._store.commit(*self._lost(*place, state.settle(held, None), held.id))
            raise
        made = review_row(*place, reviewer, usage, trio.current_time() - began, **more)
        cost = cost_of(reviewer, usage, served, self._prices)
        return Paid(answer, why, (made, *self._bill(state, held, usage, cost)))

    def _bill(self, state: LedgerState, held: Reservation, usage: Usage | None, cost: int) -> list[Any]:
        record = self._record
        done = state.settle(held, None if usage is None else usage.tokens, cost)
        return [
            settled_row(record.run_id, held, done),
            draw_row(record.run_id, self._case.step, done, state.remaining_tokens),
            *self._figures(record.run_id, done),
        ]

    def _figures(self, run_id: str, done: Settlement) -> list[Any]:
        """Give the rows that add what was spent to the figures of the agent and the tree."""
        tree_id = self._record.tree_id
        rows: list[Any] = [SpentLater(run_id, done.tokens, done.microdollars, done.overrun_tokens)]
        known = self._store.ledger(tree_id)
        if known is not None:
            told = attrs.asdict(known)
            del told["at"]
            told["spent_tokens"] += done.tokens
            told["spent_microdollars"] += done.microdollars
            told["overrun_tokens"] += done.overrun_tokens
            told["overrun_microdollars"] += done.overrun_microdollars
            told["calls"] += 1
            rows.append(LedgerTotals(tree_id, **told))
        return rows

    def _lost(self, run_id: str, step: int, attempt: int, done: Settlement, reservation: int) -> list[Any]:
        """Give the rows of a call of which nobody knows whether it was billed: it is charged in full."""
        rows = lost_rows(run_id, step, attempt, reservation, done.tokens, done.microdollars, REVIEW)
        return [*rows, *self._figures(run_id, done)]

    async def _close_lost(self) -> None:
        """Charge what a process that was killed while it tried again left open; of a run that goes on, a resume does.

        Cancellation: all that was closed stands.
        """
        if not has_ended(self._root()):
            return
        for run_id, step, attempt, number, tokens, money in open_reservations(self._store, self._record.tree_id):
            done = Settlement(Draw.ok, tokens, money, 0, 0, True)
            await self._store.commit(*self._lost(run_id, step, attempt, done, number))

    def _attempts(self) -> int:
        sql = "SELECT COALESCE(MAX(attempt), 0) FROM reservations WHERE run_id = ? AND step = ?"
        [[attempts]] = self._store.select(sql, (self._record.run_id, self._case.step))
        return int(attempts)

    def _refusal(self) -> str | None:
        """Say why nothing may be spent, None when it may."""
        store, tree_id = self._store, self._record.tree_id
        halt = stored_halt(store, tree_id)
        if halt is not None and halt.kind not in RESUMABLE:
            return f"the run was stopped ({halt.kind}), and nothing is spent in its name any more"
        if next(open_reservations(store, tree_id), None) is not None:
            return "calls of the run are not paid for yet: resume it first"
        limit, started = self._limits.max_total_duration, store.tree_started(tree_id)
        if limit is not None and started is not None and store.now() - started > limit:
            return f"the run's {limit:g} s are over"
        return None

    @property
    def _used(self) -> int:
        return (self._record.spent_tokens or 0) + (self._record.overrun_tokens or 0)


def _told(text: str) -> str:
    """Take credentials out of what a reviewer says of its failure."""
    return Redactor.of(os.environ).hide(text)
