"""What is said of a run, from its store alone: the same object during, after, and from another process."""

from __future__ import annotations

import json
from typing import Any

from actors.store.readers import Reader
from actors.store.records import RunRecord

NO_LEAKS: dict[str, list[Any]] = {"tasks": [], "slots": [], "reservations": [], "processes": []}


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
        "leaks": NO_LEAKS if leaks is None else leaks,
        "resumable": root.status == "paused",
        "store": reader.file,
    }


def show_report(reader: Reader, run_id: str) -> dict[str, Any]:
    """Give the object that ``show --json`` prints: the run's, and one entry for each agent."""
    return {**run_report(reader, run_id), "agents": [agent_entry(agent) for agent in reader.agents(run_id)]}


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
    return {
        # The root's own row holds what all below it used too.
        "input_tokens": root.input_tokens or 0,
        "output_tokens": root.output_tokens or 0,
        "cached_input_tokens": root.cached_input_tokens or 0,
        "turns": sum(agent.steps or 0 for agent in agents),
        "microdollars": 0 if ledger is None else ledger.spent_microdollars,
        "estimated": any(agent.estimated for agent in agents),
    }


def _tree(reader: Reader, run_id: str, agents: list[RunRecord]) -> dict[str, Any]:
    ledger = reader.ledger(run_id)
    if ledger is None:
        # The totals are written at the end; of a live run only the agents are counted.
        return {"agents": len(agents)}
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
