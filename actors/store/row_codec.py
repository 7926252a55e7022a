"""Which SQL writes which record. Pure: one table, read by the writer.

A record may need several statements; a statement may say that this record
needs none of it. `PLANS` names every class of `actors.agents.rows.Row`, and a
test holds the two together.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import attrs

from actors.agents import rows
from actors.store.schema import NOW

Values = tuple[Any, ...]


@attrs.frozen
class Statement:
    """One SQL statement and how to fill it. ``values`` gives None when the record needs none."""

    sql: str
    values: Callable[[Any], Values | None]


def _insert(table: str, columns: dict[str, str], *, verb: str = "INSERT", stamp: str | None = "at") -> Statement:
    """Insert a row; ``columns`` maps column to field."""
    names = [f'"{name}"' for name in columns]
    marks = ["?"] * len(columns)
    if stamp is not None:
        names.append(stamp)
        marks.append(NOW)
    sql = f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})"
    return Statement(sql, _getter(tuple(columns.values())))


def _getter(fields: tuple[str, ...]) -> Callable[[Any], Values]:
    if len(fields) == 1:
        only = attrgetter(fields[0])
        return lambda row: (only(row),)
    getter: Callable[[Any], Values] = attrgetter(*fields)
    return getter


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _unless(field: str, then: Statement) -> Statement:
    """Skip the statement when ``field`` is None."""

    def values(row: Any) -> Values | None:
        return None if getattr(row, field) is None else then.values(row)

    return Statement(then.sql, values)


def _update(sql: str, *fields: str) -> Statement:
    return Statement(sql, _getter(fields))


_STARTED = _insert(
    "runs",
    _same(
        "run_id",
        "tree_id",
        "path",
        "depth",
        "parent_run_id",
        "goal",
        "file",
        "provider",
        "model",
        "contract",
        "containment",
        "root",
    ),
    stamp="started_at",
)
_STARTED = Statement(
    _STARTED.sql.replace("(", "(status, ", 1).replace("VALUES (", "VALUES ('running', ", 1), _STARTED.values
)

_OUTCOME = _insert(
    "run_outcomes",
    _same(
        "run_id",
        "outcome",
        "detail",
        "success",
        "steps",
        "input_tokens",
        "output_tokens",
        "cached_input_tokens",
        "spent_tokens",
        "spent_microdollars",
        "overrun_tokens",
        "estimated",
        "duration_ms",
        "said",
        "error",
    ),
    # A run that was paused ends again later: its summary is replaced; its terminal never is.
    verb="INSERT OR REPLACE",
    stamp="finished_at",
)

PLANS: Final[dict[type, tuple[Statement, ...]]] = {
    rows.RunStarted: (
        _STARTED,
        _unless("policy", _insert("run_policies", _same("run_id", "policy"), verb="INSERT OR REPLACE")),
    ),
    rows.RunStatus: (_update("UPDATE runs SET status = ? WHERE run_id = ?", "status", "run_id"),),
    rows.RunFinished: (
        _unless("terminal", _insert("terminals", _same("run_id", "terminal"))),
        _OUTCOME,
        _update(
            f"UPDATE runs SET status = ?, outcome = ?, finished_at = {NOW} WHERE run_id = ?",
            "status",
            "outcome",
            "run_id",
        ),
    ),
    rows.AttemptMade: (
        _insert(
            "provider_calls",
            {
                **_same("run_id", "step", "attempt", "provider"),
                "asked": "model",
                "served": "served",
                "prompt": "prompt_tokens",
                "completion": "completion_tokens",
                "total": "total_tokens",
                "cache_read": "cache_read_tokens",
                "cache_write": "cache_write_tokens",
                "reasoning": "reasoning_tokens",
                **_same("server_tool_requests", "latency_ms"),
                "ttft_ms": "first_token_ms",
                **_same("finish_reason", "failure", "detail"),
            },
        ),
    ),
    rows.Reserved: (
        Statement(
            f"INSERT INTO reservations (run_id, reservation, step, attempt, tokens, microdollars, state, at)"
            f" VALUES (?, ?, ?, ?, ?, ?, 'open', {NOW})",
            _getter(("run_id", "reservation", "step", "attempt", "tokens", "microdollars")),
        ),
    ),
    rows.Settled: (
        Statement(
            "UPDATE reservations SET state = ?, used_tokens = ?, used_microdollars = ?, overrun_tokens = ?,"
            " overrun_microdollars = ? WHERE run_id = ? AND reservation = ?",
            lambda row: (
                "estimated" if row.estimated else "settled",
                row.tokens,
                row.microdollars,
                row.overrun_tokens,
                row.overrun_microdollars,
                row.run_id,
                row.reservation,
            ),
        ),
    ),
    # The last write of a step wins: a step that is replayed has one turn.
    rows.AnswerGiven: (
        _insert(
            "step_turns",
            _same("run_id", "step", "text", "calls", "finish_reason", "prompt_digest"),
            verb="INSERT OR REPLACE",
        ),
    ),
    rows.StepDone: (
        _insert("steps", _same("run_id", "step", "decision", "result", "tool_call", "tokens", "remaining_tokens")),
        Statement(
            f"INSERT INTO checkpoint_events (run_id, step, kind, at) VALUES (?, ?, 'checkpoint', {NOW})",
            _getter(("run_id", "step")),
        ),
    ),
    rows.Observed: (
        _insert(
            "ledger_observations",
            _same("run_id", "step", "ordinal", "kind", "target", "text"),
            verb="INSERT OR REPLACE",
            stamp=None,
        ),
    ),
    rows.PolicyEvent: (
        _insert(
            "policy_events",
            _same("run_id", "step", "kind", "act", "target", "rule", "layer", "decision", "source"),
        ),
    ),
    rows.AgentEvent: (
        _insert("agent_events", _same("run_id", "step", "kind", "detail", "child_run_id", "tokens", "remaining")),
    ),
    rows.Spawned: (
        _insert(
            "spawns", _same("parent_run_id", "step", "ordinal", "child_run_id", "goal", "definition", "arguments")
        ),
    ),
    rows.QueueEntered: (
        _insert(
            "agent_queue",
            _same("parent_run_id", "step", "ordinal", "goal", "depth"),
            verb="INSERT OR IGNORE",
            stamp="queued_at",
        ),
    ),
    rows.QueueLeft: (
        _update(
            "DELETE FROM agent_queue WHERE parent_run_id = ? AND step = ? AND ordinal = ?",
            "parent_run_id",
            "step",
            "ordinal",
        ),
    ),
    rows.GateTried: (_insert("gate_attempts", _same("run_id", "step", "phase", "verdict", "detail")),),
    # The first halt stands.
    rows.TreeHalted: (
        _insert(
            "halts",
            {**_same("tree_id", "kind", "by", "path", "reason"), "limit_": "limit", **_same("used", "requested")},
            verb="INSERT OR IGNORE",
        ),
    ),
    rows.LedgerTotals: (
        _insert(
            "ledger",
            _same(
                "tree_id",
                "spent_tokens",
                "spent_microdollars",
                "overrun_tokens",
                "overrun_microdollars",
                "reserved_tokens",
                "reserved_microdollars",
                "agents",
                "calls",
                "tool_calls",
                "unpriced_calls",
                "peak_working",
                "refusals",
            ),
            verb="INSERT OR REPLACE",
        ),
    ),
    rows.EventSeen: (_insert("run_events", _same("tree_id", "run_id", "event")),),
}


def statements(batch: Iterable[rows.Row]) -> Iterator[tuple[str, list[Values]]]:
    """Give the SQL of a batch, neighbours of one class together, in order."""
    for kind, group in groupby(batch, key=type):
        members = list(group)
        for statement in PLANS[kind]:
            values = [value for row in members if (value := statement.values(row)) is not None]
            if values:
                yield statement.sql, values
