"""What is written of the agents of a tree that nobody drives: their ends when it was stopped for good, or a pause."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from actors.agents.end_rows import ENDED, end_terminal, finished_row
from actors.agents.outcomes import Outcome, OutcomeKind
from actors.agents.past import PastAgent
from actors.agents.recording import totals_row
from actors.agents.rows import RunFinished
from actors.containment.ledger_state import LedgerState
from actors.containment.usage import Usage
from actors.halts import Halt
from actors.store.past_reader import StoredPast
from actors.store.records import AttemptRecord, RunRecord
from actors.store.store import Store


@attrs.define
class _Below:
    """What has ended below an agent used."""

    usage: Usage = attrs.Factory(Usage)
    turns: int = 0

    def add(self, usage: Usage | None, turns: int) -> None:
        """Count one more."""
        if usage is not None:
            self.usage = self.usage + usage
        self.turns += turns


def close_halted(store: Store, past: StoredPast, tree_id: str, halt: Halt, state: LedgerState) -> list[Any]:
    """Give the ends of all agents that have none, a child before its parent, and the totals of the tree."""
    ceiling = halt.kind if halt.kind.is_ceiling else None
    kind = OutcomeKind.cancelled if ceiling is None else OutcomeKind.budget_ceiling_reached
    rows: list[Any] = []
    for record, agent, used in _open_agents(store, past, tree_id):
        outcome = attrs.evolve(_outcome(kind, agent, str(halt)), ceiling=ceiling, halt=halt)
        rows.append(_finished(record, agent, used, outcome))
    return [*rows, totals_row(tree_id, state.snapshot(), peak_so_far(store, tree_id))]


def pause_for_calls(
    store: Store, past: StoredPast, tree_id: str, unknown: Sequence[AttemptRecord], state: LedgerState
) -> tuple[Outcome, list[Any]]:
    """Give how a tree stands while a human is to say what became of calls: the root's outcome, and the rows of all.

    Nobody goes on meanwhile, also agents that made no such call.
    """
    calls = {each.run_id: each for each in reversed(unknown)}
    first = unknown[0]
    text = f"nobody knows whether {len(unknown)} calls were done, the first of them {first.tool}"
    rows: list[Any] = []
    outcome: Outcome | None = None
    for record, agent, used in _open_agents(store, past, tree_id):
        call = first if record.run_id == tree_id else calls.get(record.run_id)
        kind = OutcomeKind.interrupted if call is None else OutcomeKind.awaiting_recovery
        outcome = attrs.evolve(_outcome(kind, agent, text), request=None if call is None else call.key)
        rows.append(_finished(record, agent, used, outcome))
    assert outcome is not None, "the root comes last, and it is open"
    return outcome, [*rows, totals_row(tree_id, state.snapshot(), peak_so_far(store, tree_id))]


def peak_so_far(store: Store, tree_id: str) -> int:
    """Give the most agents that worked at once, as it was last told; 0 when it never was."""
    told = store.ledger(tree_id)
    return 0 if told is None else told.peak_working or 0


def _open_agents(store: Store, past: StoredPast, tree_id: str) -> Iterator[tuple[RunRecord, PastAgent, _Below]]:
    """Give the agents without an end, a child before its parent, each with what it and all below it used."""
    open_agents = [each for each in store.agents(tree_id) if each.status not in ENDED]
    below: dict[str | None, _Below] = {}
    for record in sorted(open_agents, key=lambda each: -each.depth):
        agent = past.agent(record.path) or PastAgent(record.path, 0.0)
        used = below.setdefault(record.run_id, _Below())
        for child in agent.children:
            if child.end is not None:
                used.add(child.end.usage, child.end.turns)
        used.add(agent.usage, agent.last_step)
        below.setdefault(record.parent_run_id, _Below()).add(used.usage, used.turns)
        yield record, agent, used


def _outcome(kind: OutcomeKind, agent: PastAgent, message: str) -> Outcome:
    return Outcome(
        kind,
        steps=agent.last_step,
        spent_tokens=agent.own_tokens,
        overrun_tokens=agent.own_overrun,
        spent_microdollars=agent.own_microdollars,
        message=message,
    )


def _finished(record: RunRecord, agent: PastAgent, used: _Below, outcome: Outcome) -> RunFinished:
    at_root = record.parent_run_id is None
    terminal = end_terminal(outcome, used.usage, used.turns, agent.said, at_root=at_root, durable=True)
    return finished_row(
        record.run_id, agent, outcome, terminal, steps=agent.last_step, usage=used.usage, seconds=agent.age
    )
