"""What a tree writes down, and whom it tells.

Rows are the truth; events are notifications of the same facts, for people and
programs that watch. A failing observer is dropped and reported, and never
touches the run.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from actors.agents.end_rows import end_terminal, finished_row
from actors.agents.entry_text import clean, clean_value
from actors.agents.outcomes import FailureCode, Outcome, OutcomeKind
from actors.agents.ports import Observer, RunStore
from actors.agents.rows import (
    AgentEvent,
    Drawn,
    EventSeen,
    LedgerTotals,
    QueueEntered,
    QueueLeft,
    Reserved,
    Row,
    RunFinished,
    Settled,
    TreeHalted,
)
from actors.agents.secret_values import Redactor
from actors.agents.terminal_slot import TerminalSlot
from actors.containment.ledger_state import Draw, LedgerSnapshot, Reservation, Settlement
from actors.containment.usage import Usage
from actors.errors import ProviderError, SpawnRefusal, StoreError
from actors.halts import RESUMABLE, Halt, HaltKind
from actors.ids import agent_run_id, depth_of
from actors.runtime.exits import Exit, Reason, errors_in, text_of

if TYPE_CHECKING:
    from actors.agents.agent import Agent

log = logging.getLogger("actors.recording")

MESSAGE_LIMIT = 2_000


class Recorder:
    """The pen of one tree. Also the ledger's port for rows."""

    def __init__(self, store: RunStore, observer: Observer | None, tree_id: str, durable: bool) -> None:
        self.store = store
        self.durable = durable
        self._observer = observer
        self._tree_id = tree_id
        # Texts that others made, of tools and of failures, go through it before they are kept or told.
        self.redactor = Redactor.of(os.environ)
        self.dropped_observer: str | None = None
        # The first failure of the store. From then on nothing is written: what stands is the beginning of what
        # happened, as if the process had been killed there, and a resume goes on from it.
        self.failed: StoreError | None = None
        self.on_failure: Callable[[StoreError], None] | None = None

    # ── the pen ─────────────────────────────────────────────────────────────

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit; once the store has failed they are dropped.

        Cancellation: either all rows were left or none.

        Raises:
            StoreError: they were not left, and nothing that comes later will be.
        """
        if self.failed is not None:
            return
        try:
            await self.store.append(*rows)
        except StoreError as error:
            self.fail(error)
            raise

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit, in the running step; once the store has failed they are dropped."""
        if self.failed is not None:
            return
        try:
            self.store.append_nowait(*rows)
        except StoreError as error:
            self.fail(error)

    async def commit(self, *rows: Row) -> None:
        """Write rows in one transaction, and wait until it stands.

        Cancellation: the rows are written or not, all or none.

        Raises:
            StoreError: nothing of this call was written, and nothing that comes later will be.
        """
        if self.failed is not None:
            raise StoreError(self.failed.kind, self.failed.file, "nothing is written since it failed") from self.failed
        try:
            await self.store.commit(*rows)
        except StoreError as error:
            self.fail(error)
            raise

    def fail(self, error: StoreError) -> None:
        """Put the pen down, and tell whoever stops the tree."""
        if self.failed is None:
            self.failed = error
            if self.on_failure is not None:
                self.on_failure(error)

    def without_secrets(self, error: ProviderError) -> ProviderError:
        """Take credentials out of what a provider says of its failure; ours do so themselves."""
        text = self.redactor.hide(error.message)
        if text == error.message:
            return error
        return ProviderError(error.kind, text, status=error.status, retry_after=error.retry_after, usage=error.usage)

    def told(self, error: BaseException) -> str:
        """Write an error with where it came from, for a log, without credentials."""
        return self.redactor.hide("".join(traceback.format_exception(error)))

    # ── events ──────────────────────────────────────────────────────────────

    def event(self, path: str, depth: int, kind: str, facts: Mapping[str, Any]) -> EventSeen:
        """Tell the observer, and give the row of the event."""
        run_id = agent_run_id(self._tree_id, path)
        told = {"kind": kind, "run_id": run_id, "path": path, "depth": depth, **facts}
        try:
            text = msgspec.json.encode(told)
        except UnicodeEncodeError:
            # Half a character from somewhere: it must not keep a halt or an end from being told.
            told = clean_value(told)
            text = msgspec.json.encode(told)
        if self._observer is not None:
            try:
                self._observer.event(told)
            except Exception as error:
                self.dropped_observer = self.redactor.hide(f"{type(error).__name__}: {text_of(error)}")
                self._observer = None
                log.warning("the observer failed and hears no more: %s", self.dropped_observer)
        return EventSeen(self._tree_id, run_id, text.decode())

    async def emit(self, agent: Agent, kind: str, **facts: Any) -> None:
        """Tell of something, and leave its row.

        Cancellation: it was told; its row may be missing.
        """
        await self.append(self.event(agent.path, agent.depth, kind, facts))

    # ── the ledger's port ───────────────────────────────────────────────────

    async def drawn(self, by: str, tokens: int, microdollars: int, draw: Draw, remaining: int) -> None:
        """Leave the rows of a draw.

        Cancellation: the draw stands; its rows may be missing.
        """
        run_id = agent_run_id(self._tree_id, by)
        amounts = (tokens, microdollars, 0, 0) if draw is Draw.ok else (0, 0, tokens, microdollars)
        facts = {"tokens": tokens, "remaining": remaining, "granted": draw is Draw.ok}
        await self.append(
            Drawn(run_id, *amounts),
            AgentEvent(run_id, 0, "budget_draw", draw.value, None, tokens, remaining),
            self.event(by, depth_of(by), "spend_draw", facts),
        )

    async def reserved(self, reservation: Reservation, note: object) -> None:
        """Write the row of a reservation, and wait until it stands.

        Cancellation: the caller settles the reservation.
        """
        assert isinstance(note, tuple), "agents note (run id, step, attempt)"
        run_id, step, attempt = note
        held = reservation
        row = Reserved(run_id, step, attempt, held.id, held.tokens, held.microdollars, held.priced)
        if self.durable:
            try:
                await self.commit(row)
            except BaseException:
                # Nothing was sent. Whether the row stands is unknown; if it does, it is closed at nothing.
                self.append_nowait(Settled(run_id, reservation.id, 0, 0, 0, 0, False))
                raise
        else:
            # A row that goes with the process need not stand before the request leaves.
            self.append_nowait(row)

    # ── agents ──────────────────────────────────────────────────────────────

    async def refused(self, agent: Agent, refusal: SpawnRefusal, step: int) -> None:
        """Leave the rows of a refused spawn, on the parent.

        Cancellation: the refusal stands; its rows may be missing.
        """
        await self.append(
            AgentEvent(agent.run_id, step, "spawn_refused", refusal.cap),
            self.event(agent.path, agent.depth, "spawn_refused", {"step": step, **refusal.facts()}),
        )

    def queued(self, row: QueueEntered, agent: Agent, fleet: Mapping[str, Any]) -> None:
        """Note an agent that must wait for its first slot."""
        self.append_nowait(row, self._fleet(agent, fleet))

    def left_queue(self, row: QueueLeft, agent: Agent, fleet: Mapping[str, Any]) -> None:
        """Note an agent that waits no more for its first slot."""
        self.append_nowait(row, self._fleet(agent, fleet))

    def _fleet(self, agent: Agent, fleet: Mapping[str, Any]) -> EventSeen:
        parent = agent.parent
        assert parent is not None
        return self.event(parent.path, agent.depth - 1, "fleet", {"tier": agent.depth, **fleet})

    async def finished(self, agent: Agent, exit: Exit) -> None:
        """Write how an agent ended: outcome, terminal, usage. The root's end waits until it stands.

        Cancellation: the row is missing, and a resume sees the agent as unfinished.
        """
        outcome = outcome_of(agent, exit)
        message = clean(self.redactor.hide(outcome.message))
        if message != outcome.message:
            outcome = attrs.evolve(outcome, message=message)
        agent.outcome = outcome
        row = self._finished_row(agent, exit, outcome)
        # An agent that was stopped in the queue never had a row; it has an end, so it gets one now.
        begun = () if agent.started_at is not None else agent.start_rows()
        facts: dict[str, Any] = {"outcome": outcome.kind, "steps": outcome.steps}
        if outcome.message:
            facts["cause"] = outcome.message
        event = self.event(agent.path, agent.depth, "finished", facts)
        if agent.parent is None:
            totals = agent.tree.totals_row()
            await self.commit(*begun, row, event, totals)
        else:
            await self.append(*begun, row, event)

    def _finished_row(self, agent: Agent, exit: Exit, outcome: Outcome) -> RunFinished:
        used, turns = agent.total_usage()
        usage, at_root = used or Usage(), agent.parent is None
        terminal = end_terminal(outcome, usage, turns, agent.said, at_root=at_root, durable=self.durable)
        slot = agent.terminal = TerminalSlot.empty()
        if terminal is not None:
            slot.commit(terminal)
        seconds = 0.0 if agent.started_at is None else exit.ended_at - agent.started_at
        error = None if exit.cause is None else self.redactor.hide(_bounded(str(exit)))
        return finished_row(
            agent.run_id, agent, outcome, terminal, steps=agent.steps, usage=usage, seconds=seconds, error=error
        )

    async def halted(self, halt: Halt) -> None:
        """Write the first halt, and wait until it stands.

        Cancellation: the halt stands in the ledger; its row may be missing.
        """
        facts = {"halt": halt.kind, "by": halt.by, "reason": halt.reason, "limit": halt.limit, "used": halt.used}
        row = TreeHalted(
            self._tree_id, halt.kind, halt.by, halt.path, halt.reason, halt.limit, halt.used, halt.requested
        )
        await self.commit(row, self.event("root", 0, "halted", facts))


def settled_row(run_id: str, reservation: Reservation, settlement: Settlement) -> Settled:
    """Give the row that closes a reservation."""
    return Settled(
        run_id,
        reservation.id,
        settlement.tokens,
        settlement.microdollars,
        settlement.overrun_tokens,
        settlement.overrun_microdollars,
        settlement.estimated,
    )


def totals_row(tree_id: str, ledger: LedgerSnapshot, peak_working: int) -> LedgerTotals:
    """Give the tree's totals as a row."""
    return LedgerTotals(
        tree_id,
        ledger.spent_tokens,
        ledger.spent_microdollars,
        ledger.overrun_tokens,
        ledger.overrun_microdollars,
        ledger.reserved_tokens,
        ledger.reserved_microdollars,
        ledger.agents,
        ledger.calls,
        ledger.tool_calls,
        ledger.unpriced_calls,
        peak_working,
        msgspec.json.encode(ledger.refusals).decode(),
    )


def ending(
    agent: Agent,
    kind: OutcomeKind,
    *,
    ceiling: HaltKind | None = None,
    halt: Halt | None = None,
    message: str = "",
    failure_code: FailureCode | None = None,
    retryable: bool | None = None,
    request: str | None = None,
) -> Outcome:
    """Name an end with the agent's own figures."""
    return Outcome(
        kind,
        steps=agent.steps,
        spent_tokens=agent.own_tokens,
        overrun_tokens=agent.own_overrun,
        spent_microdollars=agent.own_microdollars,
        ceiling=ceiling,
        retryable=retryable,
        halt=halt,
        message=message,
        failure_code=failure_code,
        request=request,
    )


def outcome_of(agent: Agent, exit: Exit) -> Outcome:
    """Name how an agent ended: what its loop said, or what its exit says."""
    if exit.reason is Reason.normal:
        halt = agent.tree.ledger.halted
        if agent.paused_below and agent.outcome is not None and halt is not None:
            # Its work is over, and a child's is not: whoever goes on waits for that one, and then it ends so.
            return _paused_outcome(agent, halt, _bounded(str(halt)))
        return agent.outcome or ending(agent, OutcomeKind.finished)
    if exit.reason is Reason.error and of_the_store(exit.cause):
        return ending(agent, OutcomeKind.interrupted, message=_bounded(str(exit.cause)))
    if exit.reason is Reason.error:
        # An Exception of a behaviour is the embedder's or the model's world; our own bugs are assertions.
        ours = isinstance(exit.cause, AssertionError)
        code = FailureCode.invariant_violated if ours else FailureCode.host_effect_failed
        return ending(agent, OutcomeKind.failed, failure_code=code, message=_bounded(str(exit)))
    halt = exit.payload if isinstance(exit.payload, Halt) else None
    return _halted_outcome(agent, halt)


def _halted_outcome(agent: Agent, halt: Halt | None) -> Outcome:
    if halt is None:
        return ending(agent, OutcomeKind.cancelled, message="stopped")
    text = _bounded(str(halt))
    if halt.kind in RESUMABLE:
        return _paused_outcome(agent, halt, text)
    if halt is agent.tree.ledger.halted and halt.kind.is_ceiling:
        return ending(agent, OutcomeKind.budget_ceiling_reached, ceiling=halt.kind, halt=halt, message=text)
    if halt.kind is HaltKind.duration and halt.path == agent.path:
        return ending(agent, OutcomeKind.time_budget_exceeded, halt=halt, message=text)
    return ending(agent, OutcomeKind.cancelled, halt=halt, message=text)


def _paused_outcome(agent: Agent, halt: Halt, text: str) -> Outcome:
    parked = agent.tree.paused_for
    if agent.path in parked:
        return ending(agent, OutcomeKind.awaiting_approval, halt=halt, message=text, request=parked[agent.path])
    if agent.parent is None and parked:
        # The whole tree waits for whoever decides these; the first is named, the message names all.
        return ending(agent, OutcomeKind.awaiting_approval, halt=halt, message=text, request=min(parked.values()))
    return ending(agent, OutcomeKind.interrupted, halt=halt, message=text)


def of_the_store(cause: BaseException | None) -> bool:
    """Tell whether an error is the store's, perhaps inside groups: then it says nothing about the agent."""
    return cause is not None and any(isinstance(error, StoreError) for error in errors_in(cause))


def _bounded(text: str) -> str:
    text = clean(text)
    return text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + " ..."
