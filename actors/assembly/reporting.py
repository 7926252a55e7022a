"""What is said of a run, from its store alone: the same object during, after, and from another process."""

from __future__ import annotations

import json
from typing import Any, Final

from actors.store.readers import Reader
from actors.store.records import RunRecord


def run_report(reader: Reader, run_id: str, leaks: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    """Give the object that ``run --json`` prints. Of a live run, outcome and terminal are null."""
    root = reader.run(run_id)
    assert root is not None, "the caller resolved the id"
    agents = reader.agents(run_id)
    halt = reader.halt(run_id)
    terminal = reader.terminal(run_id)
    detail = None if root.detail is None else json.loads(root.detail)
    return {
        "run_id": run_id,
        "status": root.status,
        "outcome": detail,
        "terminal": None if terminal is None else json.loads(terminal),
        "usage": _usage(root, agents, reader),
        "tree": _tree(reader, run_id, agents),
        "halt": None if halt is None else {"kind": halt.kind, "path": halt.path, "by": halt.by, "at": halt.at},
        # What a process still held is only known while it lives.
        "leaks": leaks,
        "resumable": root.status == "paused",
        "store": reader.file,
    }


def show_report(reader: Reader, run_id: str) -> dict[str, Any]:
    """Give the object that ``show --json`` prints: the run's, and one entry for each agent."""
    return {**run_report(reader, run_id), "agents": [agent_entry(agent) for agent in reader.agents(run_id)]}


def _tree_so_far(reader: Reader, tree_id: str, agents: list[RunRecord]) -> dict[str, Any]:
    """Add up the rows of a run that has no totals yet; what no row tells is null, since absent is not zero."""
    sums = (
        "count(*), sum(used_tokens), sum(overrun_tokens), sum(used_microdollars),"
        " sum(CASE state WHEN 'open' THEN tokens END)"
    )
    [(calls, spent, overrun, money, held)] = reader.select(
        f"SELECT {sums} FROM reservations WHERE {_OF_TREE}", [tree_id]
    )
    return {
        "agents": len(agents),
        "peak_working": None,
        "calls": calls,
        "tool_calls": None,
        "spent_tokens": spent or 0,
        "overrun_tokens": overrun or 0,
        "reserved_tokens": held or 0,
        "spent_microdollars": money or 0,
        "unpriced_calls": None,
        "refusals": _refusals_so_far(reader, tree_id),
    }


def _refusals_so_far(reader: Reader, tree_id: str) -> dict[str, int]:
    counted = f"SELECT detail, count(*) FROM agent_events WHERE kind = 'spawn_refused' AND {_OF_TREE} GROUP BY detail"
    return {str(cap): int(count) for cap, count in reader.select(counted, [tree_id])}


def agent_entry(agent: RunRecord) -> dict[str, Any]:
    """Give one agent as plain data."""
    return {
        "path": agent.path,
        "parent": agent.path.rpartition("/")[0] or None,
        "depth": agent.depth,
        "status": agent.status,
        "outcome": agent.outcome,
        "goal": agent.goal,
        "steps": agent.steps,
        "error": agent.error,
        "usage": {
            "input_tokens": agent.input_tokens or 0,
            "output_tokens": agent.output_tokens or 0,
            "cached_input_tokens": agent.cached_input_tokens or 0,
            "spent_tokens": agent.spent_tokens or 0,
            "microdollars": agent.spent_microdollars or 0,
            "estimated": bool(agent.estimated),
        },
    }


def _usage(root: RunRecord, agents: list[RunRecord], reader: Reader) -> dict[str, Any]:
    ledger = reader.ledger(root.run_id)
    if ledger is None:
        return _usage_so_far(root.run_id, reader)
    return {
        # The root's own row holds what all below it used too.
        "input_tokens": root.input_tokens or 0,
        "output_tokens": root.output_tokens or 0,
        "cached_input_tokens": root.cached_input_tokens or 0,
        "turns": sum(agent.steps or 0 for agent in agents),
        "microdollars": ledger.spent_microdollars,
        "estimated": any(agent.estimated for agent in agents),
    }


_OF_TREE: Final = "run_id IN (SELECT run_id FROM runs WHERE tree_id = ?)"


def _usage_so_far(tree_id: str, reader: Reader) -> dict[str, Any]:
    """Add up what a run that is live, or was killed, has written so far."""
    tokens = "sum(prompt_tokens), sum(completion_tokens), sum(cache_read_tokens)"
    [(prompt, completion, cached)] = reader.select(f"SELECT {tokens} FROM provider_calls WHERE {_OF_TREE}", [tree_id])
    [(steps,)] = reader.select(f"SELECT count(*) FROM steps WHERE {_OF_TREE}", [tree_id])
    held = "sum(used_microdollars), max(state = 'estimated')"
    [(money, estimated)] = reader.select(f"SELECT {held} FROM reservations WHERE {_OF_TREE}", [tree_id])
    return {
        "input_tokens": prompt or 0,
        "output_tokens": completion or 0,
        "cached_input_tokens": cached or 0,
        "turns": steps,
        "microdollars": money or 0,
        "estimated": bool(estimated),
    }


def _tree(reader: Reader, run_id: str, agents: list[RunRecord]) -> dict[str, Any]:
    ledger = reader.ledger(run_id)
    if ledger is None:
        return _tree_so_far(reader, run_id, agents)
    return {
        "agents": ledger.agents,
        "peak_working": ledger.peak_working,
        "calls": ledger.calls,
        "tool_calls": ledger.tool_calls,
        "spent_tokens": ledger.spent_tokens,
        "overrun_tokens": ledger.overrun_tokens,
        "reserved_tokens": ledger.reserved_tokens,
        "spent_microdollars": ledger.spent_microdollars,
        "unpriced_calls": ledger.unpriced_calls,
        "refusals": json.loads(ledger.refusals),
    }
