"""The tables, as data. Pure.

The schema only grows: a new table, a nullable column, an index. Whatever was
written by an older version is opened as it is, and what is missing is added.
``FORMAT`` moves only when that cannot hold; a file with a newer number is
refused.

Every stamp is text, UTC with milliseconds, made by the database's clock.
Tables without a key of their own count their rows in ``id``, so that the order
of writing can be read.
"""

from collections.abc import Mapping
from typing import Final

import attrs

FORMAT: Final = 1
# In the file's header, so that another program's database is never taken for ours: "actr".
APPLICATION_ID: Final = 0x61637472


@attrs.frozen
class Index:
    """An index; ``where`` makes it a partial one."""

    columns: tuple[str, ...]
    unique: bool = False
    where: str | None = None


@attrs.frozen
class Table:
    """One table. ``key`` is its primary key, ``required`` what is never null besides."""

    name: str
    columns: Mapping[str, type]
    key: tuple[str, ...] = ("id",)
    required: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()

    @property
    def never_null(self) -> frozenset[str]:
        """Give all columns that must hold something."""
        return frozenset((*self.key, *self.required)) - {"id"}


_RUN = {"run_id": str}
_STEP = {"run_id": str, "step": int}
_PLACE = {"parent_run_id": str, "step": int, "ordinal": int}
_BY_RUN = (Index(("run_id",)),)

TABLES: Final = (
    Table(
        "runs",
        {
            **_RUN,
            "tree_id": str,
            "path": str,
            "depth": int,
            "parent_run_id": str,
            "goal": str,
            "file": str,
            "provider": str,
            "model": str,
            "contract": str,
            "containment": str,
            "root": str,
            "turn_kind": str,
            "status": str,
            "outcome": str,
            "detail": str,
            "success": int,
            "steps": int,
            "input_tokens": int,
            "output_tokens": int,
            "cached_input_tokens": int,
            "spent_tokens": int,
            "spent_microdollars": int,
            "overrun_tokens": int,
            "estimated": int,
            "duration_ms": int,
            "said": str,
            "error": str,
            "decided": str,
            "opening": str,
            "entry": str,
            "reopened_from": str,
            "task": str,
            "started_at": str,
            "finished_at": str,
        },
        key=("run_id",),
        required=("tree_id", "path", "depth", "goal", "status", "started_at"),
        indexes=(Index(("tree_id",)), Index(("parent_run_id",))),
    ),
    Table("run_policies", {**_RUN, "policy": str}, key=("run_id",), required=("policy",)),
    Table(
        "run_outcomes",
        {
            **_RUN,
            "outcome": str,
            "success": int,
            "steps": int,
            "tokens": int,
            "duration_ms": int,
            "finished_at": str,
        },
        key=("run_id",),
        required=("outcome", "finished_at"),
    ),
    # The key is what makes a terminal unique: a second one for a run cannot be written.
    Table("terminals", {**_RUN, "terminal": str, "at": str}, key=("run_id",), required=("terminal", "at")),
    Table(
        "provider_calls",
        {
            "id": int,
            **_STEP,
            "attempt": int,
            "provider": str,
            "asked": str,
            "served": str,
            "prompt_tokens": int,
            "completion_tokens": int,
            "total_tokens": int,
            "cache_read_tokens": int,
            "cache_write_tokens": int,
            "reasoning_tokens": int,
            "server_tool_requests": int,
            "latency_ms": int,
            "first_token_ms": int,
            "finish_reason": str,
            "failure": str,
            "detail": str,
            "purpose": str,
            "at": str,
        },
        required=("run_id", "step", "attempt", "provider"),
        indexes=_BY_RUN,
    ),
    Table(
        "reservations",
        {
            "id": int,
            **_STEP,
            "attempt": int,
            "reservation": int,
            "tokens": int,
            "microdollars": int,
            "state": str,
            "used_tokens": int,
            "used_microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "priced": int,
            "reserved_at": str,
            "settled_at": str,
        },
        required=("run_id", "reservation", "tokens", "microdollars", "state"),
        # A ledger that is restored counts reservations anew, so only the open ones are unique.
        indexes=(Index(("run_id",)), Index(("run_id", "reservation"), unique=True, where="state = 'open'")),
    ),
    Table(
        "step_turns",
        {**_STEP, "text": str, "calls": str, "finish_reason": str, "admitted": int, "at": str},
        key=("run_id", "step"),
        required=("calls",),
    ),
    Table(
        "steps",
        {
            **_STEP,
            "decision": str,
            "result": str,
            "tool_call": str,
            "tokens": int,
            "remaining_tokens": int,
            "digest": str,
            "at": str,
        },
        key=("run_id", "step"),
        required=("decision", "result"),
    ),
    Table(
        "checkpoint_events",
        {"id": int, **_STEP, "kind": str, "detail": str, "at": str},
        required=("run_id", "step", "kind"),
        indexes=_BY_RUN,
    ),
    Table(
        "ledger_observations",
        {"id": int, **_STEP, "ordinal": int, "kind": str, "target": str, "text": str, "changed": int},
        required=("run_id", "step", "ordinal", "kind"),
        indexes=_BY_RUN,
    ),
    Table(
        "policy_events",
        {
            "id": int,
            **_STEP,
            "kind": str,
            "act": str,
            "target": str,
            "rule": str,
            "layer": str,
            "decision": str,
            "source": str,
            "at": str,
        },
        required=("run_id", "kind", "act", "target"),
        indexes=_BY_RUN,
    ),
    Table(
        "agent_events",
        {
            "id": int,
            **_STEP,
            "kind": str,
            "detail": str,
            "child_run_id": str,
            "tokens": int,
            "remaining": int,
            "at": str,
        },
        required=("run_id", "kind"),
        indexes=_BY_RUN,
    ),
    Table(
        "spawns",
        {
            "id": int,
            **_PLACE,
            "child_run_id": str,
            "goal": str,
            "definition": str,
            "arguments": str,
            "at": str,
        },
        required=("parent_run_id", "step", "ordinal", "child_run_id"),
        indexes=(Index(("parent_run_id", "step", "ordinal"), unique=True),),
    ),
    Table(
        "sandbox_events",
        {"id": int, **_STEP, "ordinal": int, "mode": str, "backend": str, "net": str, "not_held": str, "at": str},
        required=("run_id", "step", "mode", "backend", "net"),
        indexes=_BY_RUN,
    ),
    Table(
        "agent_queue",
        {**_PLACE, "goal": str, "depth": int, "queued_at": str},
        key=("parent_run_id", "step", "ordinal"),
    ),
    Table(
        "gate_attempts",
        {"id": int, **_STEP, "phase": str, "verdict": str, "detail": str, "at": str},
        required=("run_id", "step", "verdict"),
        indexes=_BY_RUN,
    ),
    # What the check of an agent depends on, as it stood when the agent began.
    Table("check_pins", {**_RUN, "pins": str, "at": str}, key=("run_id",), required=("pins",)),
    # What files held before an agent first changed them.
    Table(
        "snapshots",
        {"id": int, **_STEP, "path": str, "before": str, "state": str, "at": str},
        required=("run_id", "step", "path", "before", "state"),
        indexes=(Index(("run_id", "path"), unique=True),),
    ),
    Table(
        "halts",
        {
            "tree_id": str,
            "kind": str,
            "by": str,
            "path": str,
            "reason": str,
            "limit": float,
            "used": float,
            "requested": float,
            "at": str,
        },
        key=("tree_id",),
        required=("kind",),
    ),
    Table(
        "ledger",
        {
            "tree_id": str,
            "spent_tokens": int,
            "spent_microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "reserved_tokens": int,
            "reserved_microdollars": int,
            "agents": int,
            "calls": int,
            "tool_calls": int,
            "unpriced_calls": int,
            "peak_working": int,
            "refusals": str,
            "at": str,
        },
        key=("tree_id",),
    ),
    Table(
        "run_events",
        {"id": int, "tree_id": str, "run_id": str, "event": str, "at": str},
        required=("tree_id", "run_id", "event"),
        indexes=(Index(("tree_id",)),),
    ),
    # One row for each tree that is live now; a process that was killed leaves its own behind.
    Table(
        "live",
        {"tree_id": str, "snapshot": str, "taken_at": str},
        key=("tree_id",),
        required=("snapshot", "taken_at"),
    ),
    # One row for each tree that a process drives: no other process may.
    Table(
        "run_leases",
        {
            "tree_id": str,
            "owner": str,
            "host": str,
            "pid": int,
            "process_started": str,
            "generation": int,
            "acquired_at": str,
            "renewed_at": str,
            "ttl_seconds": float,
        },
        key=("tree_id",),
        required=("owner", "generation", "acquired_at", "renewed_at", "ttl_seconds"),
    ),
    Table(
        "draws",
        {
            "id": int,
            **_RUN,
            "tokens": int,
            "microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "at": str,
        },
        required=("run_id", "tokens", "microdollars", "overrun_tokens", "overrun_microdollars"),
        indexes=_BY_RUN,
    ),
    Table(
        "inherited",
        {
            "tree_id": str,
            "from_tree_id": str,
            "spent_tokens": int,
            "spent_microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "agents": int,
            "calls": int,
            "tool_calls": int,
            "seconds": float,
            "steps": int,
        },
        key=("tree_id",),
        required=("from_tree_id",),
    ),
    # Results of the calls of a step that is not whole yet, as far as they must not be run again.
    Table(
        "call_results",
        {**_STEP, "ordinal": int, "kind": str, "target": str, "text": str, "changed": int},
        key=("run_id", "step", "ordinal"),
        required=("kind", "target", "text"),
    ),
    # What calls were about to leave in files, so that one that is run again knows its own work.
    Table(
        "write_intents",
        {
            **_STEP,
            "ordinal": int,
            "target": str,
            "after": str,
            "changes": int,
            "lines_added": int,
            "lines_removed": int,
            "hunk": str,
        },
        key=("run_id", "step", "ordinal", "target"),
        required=("after", "changes"),
    ),
    # Files that calls changed.
    Table(
        "edits",
        {
            **_STEP,
            "ordinal": int,
            "tool": str,
            "path": str,
            "lines_added": int,
            "lines_removed": int,
            "hunk": str,
            "at": str,
        },
        key=("run_id", "step", "ordinal", "path"),
        required=("tool",),
    ),
    # Calls whose effect cannot be inspected. An open one means: nobody knows whether it happened.
    Table(
        "tool_attempts",
        {
            **_STEP,
            "ordinal": int,
            "tool": str,
            "arguments": str,
            "key": str,
            "attempt": int,
            "started_at": str,
            "completed_at": str,
            "resolution": str,
        },
        key=("run_id", "step", "ordinal"),
        required=("tool", "arguments", "key", "attempt", "started_at"),
        indexes=(Index(("run_id",), where="resolution IS NULL"),),
    ),
    Table(
        "pending_approvals",
        {
            "request_id": str,
            "tree_id": str,
            **_STEP,
            "ordinal": int,
            "nth": int,
            "act": str,
            "target": str,
            "content": str,
            "tool": str,
            "arguments": str,
            "goal": str,
            "rule": str,
            "layer": str,
            "deferred": int,
            "decision": str,
            "reason": str,
            "decided_by": str,
            "asked_at": str,
            "decided_at": str,
            "applied_at": str,
            # Rules that an approval brought along, as JSON.
            "remembered": str,
            # Arguments that run in place of the call's, as JSON.
            "modified": str,
        },
        key=("request_id",),
        required=("tree_id", "run_id", "step", "act", "target", "asked_at"),
        indexes=(Index(("tree_id",)), Index(("run_id",))),
    ),
)
