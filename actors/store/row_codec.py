"""Which row becomes which statements. Pure: records in, SQL and values out.

The columns are read off the row classes, so a field that is added there needs
only a column of the same name in `schema.py`.

Rows of one batch are sorted into *lanes*, one for what is inserted into a table
and one for what changes it, and each lane is written in a few long statements.
Inside a lane the order of writing is kept. Between lanes it does not matter,
because a row is always inserted before it is changed, and insert lanes go
first. Only the summary of a run reads another table: it goes as a change, behind
the change of its run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import attrs

from actors.agents.rows import (
    AgentEvent,
    AnswerGiven,
    ApprovalApplied,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalDeferred,
    AttemptBegun,
    AttemptClosed,
    AttemptMade,
    CallDone,
    Drawn,
    Edited,
    EventSeen,
    GateTried,
    HaltLifted,
    Inherited,
    LedgerTotals,
    LiveEnded,
    LiveSeen,
    Observed,
    Pinned,
    PolicyEvent,
    PolicyInForce,
    QueueEntered,
    QueueLeft,
    Reserved,
    Row,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStatus,
    SandboxUsed,
    Settled,
    SnapshotKept,
    Spawned,
    SpentLater,
    StepDone,
    TreeHalted,
    WriteIntended,
)
from actors.containment.amounts import LARGEST

NOW: Final = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
PAUSED: Final = "paused"

Values = tuple[Any, ...]


@attrs.frozen
class Write:
    """One statement that a row becomes; ``when`` leaves it out for some rows."""

    table: str
    sql: str
    values: Callable[[Any], Values]
    changes: bool = False
    when: Callable[[Any], bool] | None = None


@attrs.frozen
class Statement:
    """One statement with the values of each of its rows, in order."""

    sql: str
    rows: list[Values]


def _names(row: type, *without: str) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(row) if field.name not in without)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _insert(
    table: str,
    columns: Sequence[str],
    *,
    verb: str = "INSERT",
    fixed: Mapping[str, str] | None = None,
    values: Callable[[Any], Values] | None = None,
    when: Callable[[Any], bool] | None = None,
    changes: bool = False,
) -> Write:
    """Insert ``columns`` from the fields of the same name, and the expressions in ``fixed``."""
    fixed = {"at": NOW} if fixed is None else fixed
    marks = ", ".join([*("?" for _ in columns), *fixed.values()])
    sql = f"{verb} INTO {table} ({_quoted([*columns, *fixed])}) VALUES ({marks})"
    return Write(table, sql, values or attrgetter(*columns), changes, when)


def _kept(number: int | None) -> int | None:
    """Give a number as far as SQLite can hold it; what is left of no ceiling can be more."""
    return number if number is None or number <= LARGEST else LARGEST


def _agent_event(row: AgentEvent) -> Values:
    return row.run_id, row.step, row.kind, row.detail, row.child_run_id, row.tokens, _kept(row.remaining)


def _step(row: StepDone) -> Values:
    remaining = _kept(row.remaining_tokens)
    return row.run_id, row.step, row.decision, row.result, row.tool_call, row.tokens, remaining, row.digest


def _halt(row: TreeHalted) -> Values:
    figures = (None if figure is None else float(figure) for figure in (row.limit, row.used, row.requested))
    return row.tree_id, row.kind, row.by, row.path, row.reason, *figures


def _tree(row: LiveEnded | HaltLifted) -> Values:
    return (row.tree_id,)


def _run(row: RunResumed | RunFinished) -> Values:
    return (row.run_id,)


def _request(row: ApprovalDeferred | ApprovalApplied) -> Values:
    return (row.request_id,)


def _has_policy(row: RunStarted) -> bool:
    return row.policy is not None


def _has_terminal(row: RunFinished) -> bool:
    return row.terminal is not None


def _really_ended(row: RunFinished) -> bool:
    return row.status != PAUSED


def _finish() -> Write:
    changed = _names(RunFinished, "run_id", "terminal")
    sets = ", ".join(f"{name} = ?" for name in changed)
    # A paused run is not finished: it goes on, and its time is not over.
    sql = f"UPDATE runs SET {sets}, finished_at = CASE ? WHEN '{PAUSED}' THEN NULL ELSE {NOW} END WHERE run_id = ?"
    return Write("runs", sql, attrgetter(*changed, "status", "run_id"), changes=True)


def _summary() -> Write:
    # The run says when it ended, so that the two never differ; the run is changed first.
    ended = "(SELECT finished_at FROM runs WHERE run_id = ?)"
    fields = attrgetter("run_id", "outcome", "success", "steps", "spent_tokens", "duration_ms", "run_id")
    fixed = {"finished_at": ended}
    return _insert("run_outcomes", _OUTCOME, fixed=fixed, values=fields, when=_really_ended, changes=True)


_SETTLE = (
    "UPDATE reservations SET used_tokens = ?, used_microdollars = ?, overrun_tokens = ?, overrun_microdollars = ?,"
    f" state = CASE ? WHEN 0 THEN 'settled' ELSE 'estimated' END, settled_at = {NOW}"
    " WHERE run_id = ? AND reservation = ? AND state = 'open'"
)
_SETTLED = ("tokens", "microdollars", "overrun_tokens", "overrun_microdollars", "estimated", "run_id", "reservation")
_PLACE = ("parent_run_id", "step", "ordinal")
_OUTCOME = ("run_id", "outcome", "success", "steps", "tokens", "duration_ms")

_SPEND_MORE = (
    # Of an agent without an end, which has no figures yet, they stay unknown.
    "UPDATE runs SET spent_tokens = spent_tokens + ?, spent_microdollars = spent_microdollars + ?,"
    " overrun_tokens = overrun_tokens + ? WHERE run_id = ?"
)
_SPENT_MORE = ("tokens", "microdollars", "overrun_tokens", "run_id")

_PAUSE_OVER = ", ".join(f"{name} = NULL" for name in ("outcome", "detail", "success", "steps", "error"))

# An attempt that is closed as to be done again is begun again under the same key.
_BEGUN = ("run_id", "step", "ordinal", "tool", "arguments", "key")
_BEGIN = (
    f"INSERT INTO tool_attempts ({_quoted(_BEGUN)}, attempt, started_at) VALUES (?, ?, ?, ?, ?, ?, 1, {NOW})"
    f" ON CONFLICT (run_id, step, ordinal) DO UPDATE SET attempt = attempt + 1, started_at = {NOW},"
    # Whoever was asked may have changed what it is called with.
    " completed_at = NULL, resolution = NULL, arguments = excluded.arguments"
)

_FORGET_HUNK = "UPDATE write_intents SET hunk = NULL WHERE run_id = ? AND step = ? AND ordinal = ? AND target = ?"

_CLOSE_CALLS = (
    f"UPDATE tool_attempts SET resolution = 'lost', completed_at = {NOW} WHERE run_id = ? AND resolution IS NULL"
)
_CLOSE_QUESTIONS = (
    "UPDATE pending_approvals SET decision = 'denied', reason = 'whoever asked has ended', decided_by = 'runtime',"
    f" decided_at = {NOW} WHERE run_id = ? AND decision IS NULL"
)

WRITES: Final[Mapping[type, tuple[Write, ...]]] = {
    RunStarted: (
        _insert("runs", _names(RunStarted, "policy"), fixed={"status": "'running'", "started_at": NOW}),
        _insert("run_policies", ("run_id", "policy"), fixed={}, when=_has_policy),
    ),
    RunStatus: (
        Write(
            "runs",
            # What was decided stays so: a pause says nothing about it.
            "UPDATE runs SET status = ?, decided = COALESCE(?, decided) WHERE run_id = ?",
            attrgetter("status", "decided", "run_id"),
            changes=True,
        ),
    ),
    RunResumed: (
        # Its pause is over, and nothing of it is shown as if it were its end.
        Write("runs", f"UPDATE runs SET status = 'running', {_PAUSE_OVER} WHERE run_id = ?", _run, changes=True),
        _insert("checkpoint_events", _names(RunResumed), fixed={"kind": "'resume'", "at": NOW}),
    ),
    PolicyInForce: (_insert("run_policies", _names(PolicyInForce), verb="INSERT OR REPLACE", fixed={}),),
    HaltLifted: (Write("halts", "DELETE FROM halts WHERE tree_id = ?", _tree, changes=True),),
    Inherited: (_insert("inherited", _names(Inherited), fixed={}),),
    Drawn: (_insert("draws", _names(Drawn)),),
    # What stands is the same result: a call has one.
    CallDone: (_insert("call_results", _names(CallDone), verb="INSERT OR IGNORE", fixed={}),),
    WriteIntended: (_insert("write_intents", _names(WriteIntended), verb="INSERT OR IGNORE", fixed={}),),
    Edited: (
        # A call changes a file once, however often it is run.
        _insert("edits", _names(Edited), verb="INSERT OR IGNORE"),
        # Once is enough: with its result the call is over, and nobody asks what it meant to do.
        Write("write_intents", _FORGET_HUNK, attrgetter("run_id", "step", "ordinal", "path"), changes=True),
    ),
    # As a change: one that is begun again stands behind its closing, also within a batch.
    AttemptBegun: (Write("tool_attempts", _BEGIN, attrgetter(*_BEGUN), changes=True),),
    AttemptClosed: (
        Write(
            "tool_attempts",
            f"UPDATE tool_attempts SET resolution = ?, completed_at = {NOW}"
            " WHERE run_id = ? AND step = ? AND ordinal = ? AND resolution IS NULL",
            attrgetter("resolution", "run_id", "step", "ordinal"),
            changes=True,
        ),
    ),
    # The same question, asked again after a crash, is the row that stands.
    ApprovalAsked: (
        _insert("pending_approvals", _names(ApprovalAsked), verb="INSERT OR IGNORE", fixed={"asked_at": NOW}),
    ),
    ApprovalDeferred: (
        Write(
            "pending_approvals",
            "UPDATE pending_approvals SET deferred = 1 WHERE request_id = ? AND decision IS NULL",
            _request,
            changes=True,
        ),
    ),
    ApprovalDecided: (
        Write(
            "pending_approvals",
            f"UPDATE pending_approvals SET decision = ?, reason = ?, decided_by = ?, remembered = ?,"
            f" modified = ?, decided_at = {NOW}"
            " WHERE request_id = ? AND decision IS NULL",
            attrgetter("decision", "reason", "by", "remembered", "modified", "request_id"),
            changes=True,
        ),
    ),
    ApprovalApplied: (
        Write(
            "pending_approvals",
            f"UPDATE pending_approvals SET applied_at = {NOW} WHERE request_id = ? AND applied_at IS NULL",
            _request,
            changes=True,
        ),
    ),
    RunFinished: (
        _finish(),
        _summary(),
        _insert("terminals", ("run_id", "terminal"), when=_has_terminal),
        # Nobody is left who could go on with what a human says of it.
        Write("tool_attempts", _CLOSE_CALLS, _run, changes=True, when=_really_ended),
        Write("pending_approvals", _CLOSE_QUESTIONS, _run, changes=True, when=_really_ended),
    ),
    AttemptMade: (_insert("provider_calls", _names(AttemptMade)),),
    Reserved: (_insert("reservations", _names(Reserved), fixed={"state": "'open'", "reserved_at": NOW}),),
    Settled: (Write("reservations", _SETTLE, attrgetter(*_SETTLED), changes=True),),
    # The last write of a step wins: a step that is done again has a new answer.
    AnswerGiven: (_insert("step_turns", _names(AnswerGiven), verb="INSERT OR REPLACE"),),
    StepDone: (
        _insert("steps", _names(StepDone), values=_step),
        _insert("checkpoint_events", ("run_id", "step"), fixed={"kind": "'checkpoint'", "at": NOW}),
    ),
    Observed: (_insert("ledger_observations", _names(Observed), fixed={}),),
    PolicyEvent: (_insert("policy_events", _names(PolicyEvent)),),
    SandboxUsed: (_insert("sandbox_events", _names(SandboxUsed)),),
    AgentEvent: (_insert("agent_events", _names(AgentEvent), values=_agent_event),),
    Spawned: (_insert("spawns", _names(Spawned)),),
    # A replayed step queues its child again: the wait that stands is the same one.
    QueueEntered: (_insert("agent_queue", _names(QueueEntered), verb="INSERT OR IGNORE", fixed={"queued_at": NOW}),),
    QueueLeft: (
        Write(
            "agent_queue",
            "DELETE FROM agent_queue WHERE parent_run_id = ? AND step = ? AND ordinal = ?",
            attrgetter(*_PLACE),
            changes=True,
        ),
    ),
    GateTried: (_insert("gate_attempts", _names(GateTried)),),
    # What stood at the start is what stood first, whoever looks again.
    Pinned: (_insert("check_pins", _names(Pinned), verb="INSERT OR IGNORE"),),
    SnapshotKept: (_insert("snapshots", _names(SnapshotKept), verb="INSERT OR IGNORE"),),
    SpentLater: (
        Write("runs", _SPEND_MORE, attrgetter(*_SPENT_MORE), changes=True),
        Write(
            "run_outcomes",
            "UPDATE run_outcomes SET tokens = tokens + ? WHERE run_id = ?",
            attrgetter("tokens", "run_id"),
            changes=True,
        ),
    ),
    # The first halt of a tree is the one that counts, until it is lifted: one lane for both.
    TreeHalted: (_insert("halts", _names(TreeHalted), verb="INSERT OR IGNORE", values=_halt, changes=True),),
    LedgerTotals: (_insert("ledger", _names(LedgerTotals), verb="INSERT OR REPLACE"),),
    EventSeen: (_insert("run_events", _names(EventSeen)),),
    LiveSeen: (_insert("live", _names(LiveSeen), verb="INSERT OR REPLACE", fixed={"taken_at": NOW}),),
    LiveEnded: (Write("live", "DELETE FROM live WHERE tree_id = ?", _tree, changes=True),),
}


def arrange(items: Iterable[Iterable[Row]]) -> list[Statement]:
    """Turn the rows of a batch into as few statements as their order allows."""
    inserts: dict[str, list[Statement]] = {}
    changes: dict[str, list[Statement]] = {}
    for rows in items:
        for row in rows:
            for write in WRITES[type(row)]:
                if write.when is not None and not write.when(row):
                    continue
                lanes = changes if write.changes else inserts
                lane = lanes.get(write.table)
                if lane is None:
                    lanes[write.table] = [Statement(write.sql, [write.values(row)])]
                elif lane[-1].sql == write.sql:
                    lane[-1].rows.append(write.values(row))
                else:
                    lane.append(Statement(write.sql, [write.values(row)]))
    return [statement for lanes in (inserts, changes) for lane in lanes.values() for statement in lane]


def storable(values: Values) -> Values:
    """Give values that SQLite can hold, for a row that it could not: whole numbers clamped, broken text mended."""
    return tuple(_storable(value) for value in values)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        # A lone surrogate has no encoding; a pair of them is one character.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int):
        return max(min(value, LARGEST), -LARGEST - 1)
    return value
