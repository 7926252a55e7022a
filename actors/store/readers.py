"""What can be read of a store, from any process, while runs are live.

Reads are sync: each is one short query on an index, in the order of
microseconds to a few milliseconds for a large tree, and no await means that
what a step reads cannot change within it. For a file they go over a connection
of their own that can write nothing, and see what is committed; for a store in
memory they see all that was left.

A run id is an agent's, a tree id its root's. An unknown id gives nothing, not
an error: only `Reader.resolve` tells people that they are wrong.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import attrs

from actors.agents.edits import Edit, Intent
from actors.agents.judging import FileText, Kept
from actors.agents.ports import ApprovalState
from actors.errors import ConfigError
from actors.store.records import (
    AgentEventRecord,
    ApprovalRecord,
    AttemptRecord,
    CheckpointRecord,
    EditRecord,
    EventRecord,
    GateRecord,
    HaltRecord,
    LedgerRecord,
    LiveRecord,
    ObservationRecord,
    OutcomeRecord,
    PolicyRecord,
    ProviderCallRecord,
    QueueRecord,
    ReservationRecord,
    RunRecord,
    RunSummary,
    SpawnRecord,
    StepRecord,
    TurnRecord,
)
from actors.store.row_codec import NOW
from actors.store.storage_errors import readable

R = TypeVar("R")

# How many matches an ambiguous prefix shows.
SHOWN: Final = 8
# SQLite takes a negative limit for none.
ALL: Final = -1
# The ids of a tree's agents: the root's is the tree's, the others' begin with it and a slash. See `bounds`.
OF_TREE: Final = "(run_id = ? OR (run_id > ? AND run_id < ?))"


def bounds(tree_id: str) -> tuple[str, str, str]:
    """Give the three values of `OF_TREE`."""
    return tree_id, f"{tree_id}/", f"{tree_id}0"


class Reader(ABC):
    """All that can be read; whoever has a connection inherits it. ``file`` names what is read."""

    file: str

    @abstractmethod
    def select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and give all its rows.

        Raises:
            StoreError: the file cannot be read.
        """

    def _records(self, record: type[R], table: str, rest: str, *values: Any) -> list[R]:
        known = self.columns(table)
        if not known:
            # A file that only an older version wrote lacks what was added since, and a reader adds nothing.
            return []
        rows = self.select(f"SELECT {_columns(record, known)} FROM {table} WHERE {rest}", values)
        return [record(*row) for row in rows]

    def columns(self, table: str) -> frozenset[str]:
        """Name the columns that the file has of a table; none when it has no such table."""
        seen: dict[str, frozenset[str]] = self.__dict__.setdefault("_tables", {})
        known = seen.get(table)
        if known is None:
            known = frozenset(row[1] for row in self.select(f"PRAGMA table_info({table})"))
            if known:
                seen[table] = known
        return known

    def _one(self, record: type[R], table: str, rest: str, *values: Any) -> R | None:
        found = self._records(record, table, rest, *values)
        return found[0] if found else None

    # ── runs and trees ──────────────────────────────────────────────────────

    def runs(self, limit: int | None = None) -> list[RunSummary]:
        """List the trees, newest first, ``limit`` of them at most."""
        rest = "parent_run_id IS NULL ORDER BY started_at DESC, rowid DESC LIMIT ?"
        return self._records(RunSummary, "runs", rest, ALL if limit is None else limit)

    def resolve(self, prefix: str) -> str:
        """Give the id of the one tree that ``prefix`` means: the beginning of its id, or of one of its agents'.

        Raises:
            ConfigError: it means none, or several; these are named.
        """
        # What cannot be printed is in no id, and may be in no encoding either.
        usable = prefix.isprintable() and prefix != ""
        found = self._beginning(prefix) if usable else []
        if not found:
            raise ConfigError(("run", f"no run begins with {prefix!r}: `actors list` shows all"))
        if len(found) > 1:
            names = ", ".join(found[:SHOWN]) + (" and more" if len(found) > SHOWN else "")
            raise ConfigError(("run", f"{prefix!r} begins several runs ({names}): give more of it"))
        return found[0]

    def _beginning(self, prefix: str) -> list[str]:
        below = "parent_run_id IS NOT NULL AND " if "/" in prefix else "parent_run_id IS NULL AND "
        sql = f"SELECT DISTINCT tree_id FROM runs WHERE {below} run_id >= ? AND run_id < ? ORDER BY tree_id LIMIT ?"
        found = [row[0] for row in self.select(sql, (prefix, prefix + "\U0010ffff", SHOWN + 1))]
        return [prefix] if prefix in found else found

    def run(self, run_id: str) -> RunRecord | None:
        """Give all that is stored of one agent's run itself."""
        return self._one(RunRecord, "runs", "run_id = ?", run_id)

    def policy(self, run_id: str) -> str | None:
        """Give the policy that a run was started with, as JSON."""
        return self._value("SELECT policy FROM run_policies WHERE run_id = ?", run_id)

    def agents(self, tree_id: str) -> list[RunRecord]:
        """List the agents of a tree: each parent before its children, these in the order of their calls."""
        return sorted(self._records(RunRecord, "runs", "tree_id = ?", tree_id), key=lambda agent: _place(agent.path))

    def children(self, run_id: str) -> list[str]:
        """List the run ids of an agent's children, in the order of their calls."""
        rows = self.select("SELECT run_id, path FROM runs WHERE parent_run_id = ?", (run_id,))
        return [child for child, _ in sorted(rows, key=lambda row: _place(row[1]))]

    def outcome(self, run_id: str) -> OutcomeRecord | None:
        """Give how a run really ended; None while it runs or is paused."""
        return self._one(OutcomeRecord, "run_outcomes", "run_id = ?", run_id)

    def terminal(self, run_id: str) -> str | None:
        """Give a run's terminal in its wire form, as JSON text; None when there is none."""
        return self._value("SELECT terminal FROM terminals WHERE run_id = ?", run_id)

    def halt(self, tree_id: str) -> HaltRecord | None:
        """Give the first halt of a tree."""
        return self._one(HaltRecord, "halts", "tree_id = ?", tree_id)

    def ledger(self, tree_id: str) -> LedgerRecord | None:
        """Give the totals of a tree as they were last written."""
        return self._one(LedgerRecord, "ledger", "tree_id = ?", tree_id)

    def trace(self, tree_id: str, after: int = 0, limit: int | None = None) -> list[EventRecord]:
        """List the events of a tree in the order of writing, those after ``after``, ``limit`` of them at most.

        The ``sequence`` of the last one is the next ``after``: asking again and again
        misses none and gives none twice, while the run is live.
        """
        rest = "tree_id = ? AND id > ? ORDER BY id LIMIT ?"
        return self._records(EventRecord, "run_events", rest, tree_id, after, ALL if limit is None else limit)

    def live(self, tree_id: str) -> LiveRecord | None:
        """Give a tree as its process last showed it; None when it is not live, or has not shown itself yet."""
        return self._one(LiveRecord, "live", "tree_id = ?", tree_id)

    # ── what waits for somebody ─────────────────────────────────────────────

    def approval(self, request_id: str) -> ApprovalState | None:
        """Tell how a question stands; None when it was never asked."""
        found = self.question(request_id)
        return None if found is None else _state(found)

    def question(self, request_id: str) -> ApprovalRecord | None:
        """Give a question whole; None when it was never asked."""
        return self._one(ApprovalRecord, "pending_approvals", "request_id = ?", request_id)

    def answers(self, run_id: str, step: int, ordinal: int) -> list[ApprovalState]:
        """Give how the questions of one call stand, in order."""
        rest = "run_id = ? AND step = ? AND ordinal = ? ORDER BY nth"
        found = self._records(ApprovalRecord, "pending_approvals", rest, run_id, step, ordinal)
        return [_state(each) for each in found]

    def remembered(self, tree_id: str) -> list[str]:
        """Give the rules that the approvals of a tree brought along, as they are stored, in order of decision."""
        if not self.knows("pending_approvals", "remembered"):
            return []
        sql = (
            "SELECT remembered FROM pending_approvals WHERE tree_id = ? AND decision = 'approved'"
            " AND remembered IS NOT NULL ORDER BY decided_at, request_id"
        )
        return [row[0] for row in self.select(sql, (tree_id,))]

    def approvals(self, tree_id: str | None = None, *, all: bool = False) -> list[ApprovalRecord]:
        """List the questions of a tree, or of all, that nobody has decided; with ``all`` the decided ones too."""
        open_only = "1" if all else "decision IS NULL"
        mine = "1" if tree_id is None else "tree_id = ?"
        values = () if tree_id is None else (tree_id,)
        rest = f"{open_only} AND {mine} ORDER BY asked_at, request_id"
        return self._records(ApprovalRecord, "pending_approvals", rest, *values)

    def open_attempts(self, tree_id: str) -> list[AttemptRecord]:
        """List the calls of a tree of which nobody knows whether they were done, oldest first."""
        rest = f"{OF_TREE} AND resolution IS NULL ORDER BY started_at, run_id, step, ordinal"
        return self._records(AttemptRecord, "tool_attempts", rest, *bounds(tree_id))

    def attempt(self, run_id: str, step: int, ordinal: int) -> AttemptRecord | None:
        """Give what is known of one call whose effect cannot be inspected."""
        rest = "run_id = ? AND step = ? AND ordinal = ?"
        return self._one(AttemptRecord, "tool_attempts", rest, run_id, step, ordinal)

    def write_intent(self, run_id: str, step: int, ordinal: int, target: str) -> Intent | None:
        """Give what a call meant to make of a file; None when it noted nothing."""
        sql = (
            "SELECT after, changes, lines_added, lines_removed, hunk FROM write_intents"
            " WHERE run_id = ? AND step = ? AND ordinal = ? AND target = ?"
        )
        rows = self.select(sql, (run_id, step, ordinal, target))
        return Intent(rows[0][0], bool(rows[0][1]), Edit(*rows[0][2:])) if rows else None

    def edits(self, run_id: str) -> list[EditRecord]:
        """Give the files that an agent's calls changed, in call order."""
        if not self.columns("edits"):
            return []
        return self._records(EditRecord, "edits", "run_id = ? ORDER BY step, ordinal, rowid", run_id)

    # ── what is judged ──────────────────────────────────────────────────────

    def pins(self, run_id: str) -> str | None:
        """Give what an agent's check depends on, as it stood at the agent's start; None when nothing was noted."""
        known = self.columns("check_pins")
        return self._value("SELECT pins FROM check_pins WHERE run_id = ?", run_id) if known else None

    def models(self, run_id: str) -> list[str | None]:
        """Name the models that worked in the tree of an agent, reviews left out; None for one without a name."""
        sql = (
            "SELECT DISTINCT COALESCE(c.served, c.asked) FROM provider_calls c JOIN runs r USING (run_id)"
            " WHERE r.tree_id = (SELECT tree_id FROM runs WHERE run_id = ?) AND c.purpose IS NULL AND c.failure IS NULL"
        )
        return [model for (model,) in self.select(sql, (run_id,))]

    def has_snapshot(self, run_id: str, path: str) -> bool:
        """Tell whether it is known what a file held before an agent first changed it."""
        sql = "SELECT 1 FROM snapshots WHERE run_id = ? AND path = ?"
        return bool(self.columns("snapshots") and self.select(sql, (run_id, path)))

    def files_before(self, run_id: str) -> dict[str, FileText]:
        """Give what the files of its workspace held before an agent, or one below it, first changed them."""
        if not self.columns("snapshots"):
            return {}
        sql = (
            "SELECT s.path, s.state, s.before FROM snapshots s JOIN runs r USING (run_id)"
            f" WHERE {OF_TREE.replace('run_id', 's.run_id')}"
            " AND r.root IS (SELECT root FROM runs WHERE run_id = ?) ORDER BY s.id DESC"
        )
        rows = self.select(sql, (*bounds(run_id), run_id))
        # The first of them is read last.
        return dict(sorted({path: FileText(Kept(state), before) for path, state, before in rows}.items()))

    def knows(self, table: str, column: str) -> bool:
        """Tell whether the file has a column; one that only an older version wrote may not."""
        return column in self.columns(table)

    # ── one agent ───────────────────────────────────────────────────────────

    def provider_calls(self, run_id: str) -> list[ProviderCallRecord]:
        """List every attempt at a provider, failed ones too."""
        return self._records(ProviderCallRecord, "provider_calls", "run_id = ? ORDER BY id", run_id)

    def reservations(self, run_id: str) -> list[ReservationRecord]:
        """List what was held for each attempt, and how it was settled."""
        return self._records(ReservationRecord, "reservations", "run_id = ? ORDER BY id", run_id)

    def turns(self, run_id: str) -> list[TurnRecord]:
        """List the assistant turns."""
        return self._records(TurnRecord, "step_turns", "run_id = ? ORDER BY step", run_id)

    def steps(self, run_id: str) -> list[StepRecord]:
        """List the whole steps."""
        return self._records(StepRecord, "steps", "run_id = ? ORDER BY step", run_id)

    def checkpoints(self, run_id: str) -> list[CheckpointRecord]:
        """List the marks between steps."""
        return self._records(CheckpointRecord, "checkpoint_events", "run_id = ? ORDER BY id", run_id)

    def observations(self, run_id: str) -> list[ObservationRecord]:
        """List the observations, step by step and in call order."""
        return self._records(ObservationRecord, "ledger_observations", "run_id = ? ORDER BY step, ordinal, id", run_id)

    def events(self, run_id: str) -> list[PolicyRecord]:
        """List the refusals and decisions of the policy."""
        return self._records(PolicyRecord, "policy_events", "run_id = ? ORDER BY id", run_id)

    def agent_events(self, run_id: str) -> list[AgentEventRecord]:
        """List what was between this agent and others: spawns, refused spawns, draws."""
        return self._records(AgentEventRecord, "agent_events", "run_id = ? ORDER BY id", run_id)

    def spawns(self, run_id: str) -> list[SpawnRecord]:
        """List the children that this agent's calls made."""
        return self._records(SpawnRecord, "spawns", "parent_run_id = ? ORDER BY step, ordinal", run_id)

    def queued(self, run_id: str) -> list[QueueRecord]:
        """List the children of this agent that wait for their first slot."""
        return self._records(QueueRecord, "agent_queue", "parent_run_id = ? ORDER BY step, ordinal", run_id)

    def gate_attempts(self, run_id: str) -> list[GateRecord]:
        """List the evaluations of this run's criterion."""
        return self._records(GateRecord, "gate_attempts", "run_id = ? ORDER BY id", run_id)

    # ── time ────────────────────────────────────────────────────────────────

    def tree_started(self, tree_id: str) -> float | None:
        """Give when the root of a tree started, in seconds since 1970 by the database's clock.

        Raises:
            StoreError: what is stored is no time.
        """
        stamp = self._value("SELECT started_at FROM runs WHERE run_id = ?", tree_id)
        with readable(self.file, f"the start of {tree_id}"):
            return None if stamp is None else _seconds(stamp)

    def now(self) -> float:
        """Give the time by the database's clock, in seconds since 1970."""
        return _seconds(self.select(f"SELECT {NOW}")[0][0])

    def age(self, stamp: str) -> float | None:
        """Give the seconds since a stamp of this store, by the clock that made it; None when it is no time."""
        try:
            return self.now() - _seconds(stamp)
        except (ValueError, TypeError):
            # Of many things that are listed, one is damaged: the others can still be told.
            return None

    def _value(self, sql: str, key: str) -> str | None:
        rows = self.select(sql, (key,))
        return rows[0][0] if rows else None


def _state(found: ApprovalRecord) -> ApprovalState:
    decided = found.deferred, found.decision, found.reason or "", found.decided_by
    about = found.act, found.target, found.content or ""
    # Whoever damages a file may leave the number out.
    came_with = found.remembered, found.modified, found.nth or 0
    return ApprovalState(*decided, *about, *came_with, found.applied_at is not None)


def _columns(record: type, known: frozenset[str]) -> str:
    """Name the columns of a record; one that the file does not have reads as null."""
    names = ("id" if field.name == "sequence" else field.name for field in attrs.fields(record))
    return ", ".join(f'"{name}"' if name in known else "NULL" for name in names)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _place(path: str) -> list[list[tuple[int, str]]]:
    """Give what sorts paths like a book's contents: 2 before 10, a parent before its children, numbers before names."""
    return [[_ordinal(number) for number in part.split(".")] for part in path.split("/")[1:]]


def _ordinal(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() else (sys.maxsize, text)
