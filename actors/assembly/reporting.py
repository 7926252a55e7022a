"""What is said of a run, from its store alone: the same object during, after, and from another process.

Figures of one object are of one scope, and its key names it: the run's ``usage``
and ``tree`` are of the whole tree, an agent's ``usage`` is its own alone, and its
``subtree_usage`` is its own with that of all below it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from actors.agents.entry_text import bounded
from actors.agents.remembered import LAYER as REMEMBERED
from actors.assembly.agent_usage import LIVE, OF_TREE, Used, own_usage, with_descendants
from actors.assembly.child_trees import TreeState, child_trees
from actors.assembly.edited_files import edit_sums
from actors.assembly.inbox import waiting
from actors.errors import StoreError, StoreErrorKind
from actors.ids import ROOT
from actors.store.drivers import Driving, driver_of
from actors.store.readers import Reader
from actors.store.records import RunRecord
from actors.store.storage_errors import readable
from actors.tools.sandbox_grants import ASKED_BY_DEFAULT
from actors.tools.todo_write import NAME as TODO_WRITE

# Acts that a report names one by one; the count beside them says how many there were.
MOST_DENIED: Final = 100
# Kinds of what commands were not held by; files that change their names make many.
MOST_UNHELD: Final = 20
TEXT_CHARS: Final = 500
# A live run writes its row more often than this.
OLD_SECONDS: Final = 5.0
# Targets that a group of denied acts names.
FEW_TARGETS: Final = 3

_DENIED: Final = f"FROM policy_events WHERE kind = 'refusal' AND {OF_TREE}"


@attrs.frozen
class DeniedGroup:
    """Denied acts with the same reason. ``targets`` are the first few; the rule and layer of a default are None."""

    act: str
    rule: str | None
    layer: str | None
    source: str | None
    count: int
    targets: tuple[str, ...]


@attrs.frozen
class FailedCall:
    """A call whose observation is an error: a tool that is not there, a refusal, or a tool that failed."""

    tool: str
    text: str


@attrs.frozen
class RememberedAct:
    """An act that nobody was asked about, because an earlier yes brought a rule for it along."""

    act: str
    target: str
    rule: str


@attrs.frozen
class LastCheck:
    """The latest evaluation of an agent's criterion. ``attempts`` counts all of them."""

    verdict: str
    detail: str
    attempts: int


def run_report(
    reader: Reader,
    run_id: str,
    leaks: dict[str, list[Any]] | None = None,
    states: Mapping[str, TreeState] | None = None,
) -> dict[str, Any]:
    """Give the object that ``run --json`` prints. Of a live run, outcome and terminal are null.

    ``states`` are those of the work trees that somebody looked at, by the path of the agent.
    """
    root = reader.run(run_id)
    if root is None:
        # The caller resolved the id by the rows of its agents.
        raise StoreError(StoreErrorKind.corrupt, reader.file, f"there are agents of {run_id}, and no such run")
    agents = reader.agents(run_id)
    halt = reader.halt(run_id)
    terminal = reader.terminal(run_id)
    with readable(reader.file, f"the end of {run_id}"):
        detail = None if root.detail is None else dict(json.loads(root.detail))
        wire = None if terminal is None else json.loads(terminal)
    return {
        "run_id": run_id,
        "status": root.status,
        "silent_seconds": silences(reader, run_id).get(run_id),
        # Its status stays what it was: nobody was left to write another.
        "killed": bool(lost_runs(reader, run_id)),
        "outcome": detail,
        "terminal": wire,
        "usage": _usage(root, agents, reader),
        "tree": {**_tree(reader, run_id, agents), **_denied(reader, run_id)},
        "edits": edit_sums(reader, run_id),
        "not_held": unheld_groups(reader, run_id),
        "worktrees": [{"agent": each.agent, **each.as_object()} for each in child_trees(agents, states or {})],
        "criterion": _criterion(last_checks(reader, run_id).get(run_id)),
        "halt": None if halt is None else {"kind": halt.kind, "path": halt.path, "by": halt.by, "at": halt.at},
        # What a process still held is only known while it lives.
        "leaks": leaks,
        "resumable": is_resumable(reader, root),
        "waiting": [each.id for each in waiting(reader, run_id)],
        "reopened_from": root.reopened_from,
        "reopened_as": reopened_as(reader, run_id),
        "inherited": _inherited(reader, run_id),
        "store": reader.file,
    }


def is_resumable(reader: Reader, root: RunRecord) -> bool:
    """Tell whether a run can go on now: it has no end, was given a contract, and nobody drives it."""
    if root.contract is None or root.status not in ("paused", *LIVE):
        return False
    driving = driver_of(reader, root.run_id).driving
    if root.status == "paused" or driving is not Driving.unknown:
        return driving is not Driving.live
    # An older version wrote it, which kept no lease: only its silence tells.
    return bool(silences(reader, root.run_id))


def lost_runs(reader: Reader, tree_id: str | None = None) -> set[str]:
    """Give the runs, all or the one, that have no end and whose process is known to be gone."""
    sql = "SELECT run_id FROM runs WHERE parent_run_id IS NULL AND status IN (?, ?) AND ? IN (run_id, '')"
    gone = (Driving.gone, Driving.nobody)
    live = reader.select(sql, [*LIVE, tree_id or ""])
    return {run_id for (run_id,) in live if driver_of(reader, run_id).driving in gone}


def reopened_as(reader: Reader, run_id: str) -> str | None:
    """Name the run that goes on from this one; None when there is none."""
    if not reader.knows("runs", "reopened_from"):
        return None
    found = reader.select("SELECT run_id FROM runs WHERE reopened_from = ?", (run_id,))
    return found[0][0] if found else None


def _inherited(reader: Reader, tree_id: str) -> dict[str, Any] | None:
    if not reader.columns("inherited"):
        return None
    names = ("spent_tokens", "spent_microdollars", "overrun_tokens", "agents", "calls")
    found = reader.select(f"SELECT {', '.join(names)} FROM inherited WHERE tree_id = ?", (tree_id,))
    return dict(zip(names, found[0], strict=True)) if found else None


def show_report(reader: Reader, run_id: str, states: Mapping[str, TreeState] | None = None) -> dict[str, Any]:
    """Give the object that ``show --json`` prints: the run's, and one entry for each agent."""
    agents, checks = reader.agents(run_id), last_checks(reader, run_id)
    own = own_usage(reader, run_id, agents)
    whole = with_descendants(agents, own)
    trees = {each.agent: each.as_object() for each in child_trees(agents, states or {})}
    entries = [
        _agent_entry(each, own[each.path], whole[each.path], checks.get(each.run_id))
        | {"worktree": trees.get(each.path)}
        for each in agents
    ]
    return {**run_report(reader, run_id, states=states), "agents": entries}


def silences(reader: Reader, tree_id: str | None = None) -> dict[str, float]:
    """Give for how many seconds nothing was heard of the runs that have no end, by id; those heard of are left out.

    A process that is killed writes no end: its run stays as it last stood. Where no lease tells more (see
    `lost_runs`), only this tells it from a live one.
    """
    found = {}
    live = "SELECT run_id, started_at FROM runs WHERE parent_run_id IS NULL AND status IN (?, ?) AND ? IN (run_id, '')"
    for run_id, started_at in reader.select(live, [*LIVE, tree_id or ""]):
        row = reader.live(run_id)
        age = reader.age(started_at if row is None else row.taken_at)
        if age is not None and age > OLD_SECONDS:
            found[run_id] = round(age, 3)
    return found


def denied_groups(reader: Reader, tree_id: str) -> list[DeniedGroup]:
    """Count the denied acts of a tree by act, rule and layer, the most frequent first."""
    counted = f"SELECT act, rule, layer, source, count(*) {_DENIED} GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, min(id)"
    first = (
        f"SELECT substr(target, 1, {TEXT_CHARS}) {_DENIED} AND act IS ? AND rule IS ? AND layer IS ? AND source IS ?"
        f" GROUP BY 1 ORDER BY min(id) LIMIT {FEW_TARGETS}"
    )
    groups = []
    for act, rule, layer, source, count in reader.select(counted, [tree_id]):
        targets = tuple(target for (target,) in reader.select(first, [tree_id, act, rule, layer, source]))
        groups.append(DeniedGroup(act, rule, layer, source, count, targets))
    return groups


def unheld_groups(reader: Reader, tree_id: str) -> list[dict[str, Any]]:
    """Count the commands and checks of a tree that were not held by all of their boundary, by what was not held."""
    if not reader.knows("sandbox_events", "not_held"):
        return []
    short = f"{OF_TREE} AND (backend = 'none' OR net = 'not_held' OR not_held <> '[]')"
    sql = f"SELECT mode, backend, net, not_held, count(*) FROM sandbox_events WHERE {short} GROUP BY 1, 2, 3, 4"
    with readable(reader.file, f"what stood around the commands of {tree_id}"):
        return [
            {"mode": mode, "backend": backend, "net": net, "not_held": json.loads(not_held), "commands": commands}
            for mode, backend, net, not_held, commands in reader.select(f"{sql} ORDER BY min(id)", [tree_id])
        ][:MOST_UNHELD]


def denied_what_commands_may(reader: Reader, tree_id: str) -> bool:
    """Tell whether an agent was denied a write that a default asks about, while its commands could write."""
    asked = f"SELECT count(*) {_DENIED} AND act = 'write' AND source = 'approver' AND rule IS NULL"
    ran = f"SELECT count(*) FROM sandbox_events WHERE {OF_TREE} AND ordinal IS NOT NULL AND instr(not_held, ?)"
    [(denied,)], [(commands,)] = reader.select(asked, [tree_id]), reader.select(ran, [tree_id, ASKED_BY_DEFAULT])
    return bool(denied and commands)


def last_checks(reader: Reader, tree_id: str) -> dict[str, LastCheck]:
    """Give the latest evaluation of each agent's criterion, by run id."""
    # With max() SQLite gives the other columns of the very row that has it.
    latest = f"SELECT run_id, verdict, detail, count(*), max(id) FROM gate_attempts WHERE {OF_TREE} GROUP BY run_id"
    return {
        run_id: LastCheck(verdict, bounded(detail or "", TEXT_CHARS), attempts)
        for run_id, verdict, detail, attempts, _ in reader.select(latest, [tree_id])
    }


def check_detail(reader: Reader, run_id: str, step: int) -> str | None:
    """Give what the evaluation of a criterion after one step had to say; None when there was none."""
    sql = f"SELECT substr(detail, 1, {TEXT_CHARS}) FROM gate_attempts WHERE run_id = ? AND step = ? ORDER BY id DESC"
    found = reader.select(f"{sql} LIMIT 1", [run_id, step])
    return found[0][0] if found else None


def failed_calls(reader: Reader, run_id: str, step: int) -> list[FailedCall]:
    """List the calls of one step that failed, in call order."""
    sql = f"SELECT target, substr(text, 1, {TEXT_CHARS}) FROM ledger_observations WHERE run_id = ? AND step = ?"
    return [FailedCall(*row) for row in reader.select(f"{sql} AND kind = 'error' ORDER BY ordinal, id", [run_id, step])]


def remembered_acts(reader: Reader, run_id: str, step: int) -> list[RememberedAct]:
    """List the acts of one step that a remembered rule answered for."""
    sql = f"SELECT act, substr(target, 1, {TEXT_CHARS}), rule FROM policy_events WHERE run_id = ? AND step = ?"
    rows = reader.select(f"{sql} AND source = ? ORDER BY id", [run_id, step, REMEMBERED])
    return [RememberedAct(*row) for row in rows]


def noted_todo(reader: Reader, run_id: str, step: int) -> str | None:
    """Give the list of what is to be done that an agent noted in one step, one item a line; None when it noted none."""
    sql = f"SELECT substr(text, 1, {TEXT_CHARS}) FROM ledger_observations WHERE run_id = ? AND step = ?"
    last = "AND kind = 'tool' AND target = ? ORDER BY ordinal DESC, id DESC LIMIT 1"
    rows = reader.select(f"{sql} {last}", [run_id, step, TODO_WRITE])
    return str(rows[0][0]) if rows else None


def root_steps(reader: Reader) -> dict[str, int]:
    """Give the whole steps of every root, by run id; of a live one those that stand so far."""
    so_far = "(SELECT count(*) FROM steps WHERE steps.run_id = runs.run_id)"
    sql = f"SELECT run_id, coalesce(steps, {so_far}) FROM runs WHERE parent_run_id IS NULL"
    return {run_id: steps for run_id, steps in reader.select(sql)}  # noqa: C416  # dict() of rows is not typed


def _denied(reader: Reader, tree_id: str) -> dict[str, Any]:
    names = ("path", "act", "target", "rule", "layer", "decision", "source")
    columns = f"act, substr(target, 1, {TEXT_CHARS}), rule, layer, decision, source"
    listed = f"SELECT run_id, {columns} {_DENIED} ORDER BY id LIMIT {MOST_DENIED}"
    [(count,)] = reader.select(f"SELECT count(*) {_DENIED}", [tree_id])
    rows = [(_path_of(run_id, tree_id), *rest) for run_id, *rest in reader.select(listed, [tree_id])]
    return {"denials": count, "denied": [dict(zip(names, row, strict=True)) for row in rows]}


def _path_of(run_id: str, tree_id: str) -> str:
    return ROOT + run_id.removeprefix(tree_id)


def _criterion(check: LastCheck | None) -> dict[str, Any] | None:
    return None if check is None else attrs.asdict(check)


def _tree_so_far(reader: Reader, tree_id: str, agents: list[RunRecord]) -> dict[str, Any]:
    """Add up the rows of a run that has no totals yet; what no row tells is null, since absent is not zero."""
    sums = (
        "count(*), sum(used_tokens), sum(overrun_tokens), sum(used_microdollars),"
        " sum(CASE state WHEN 'open' THEN tokens END)"
    )
    [(calls, spent, overrun, money, held)] = reader.select(
        f"SELECT {sums} FROM reservations WHERE {OF_TREE}", [tree_id]
    )
    had = _inherited(reader, tree_id) or {}
    return {
        "agents": len(agents) + had.get("agents", 0),
        "peak_working": None,
        "calls": calls + had.get("calls", 0),
        "tool_calls": None,
        "spent_tokens": (spent or 0) + had.get("spent_tokens", 0),
        "overrun_tokens": (overrun or 0) + had.get("overrun_tokens", 0),
        "reserved_tokens": held or 0,
        "spent_microdollars": (money or 0) + had.get("spent_microdollars", 0),
        "unpriced_calls": None,
        "refusals": _refusals_so_far(reader, tree_id),
    }


def _refusals_so_far(reader: Reader, tree_id: str) -> dict[str, int]:
    counted = f"SELECT detail, count(*) FROM agent_events WHERE kind = 'spawn_refused' AND {OF_TREE} GROUP BY detail"
    return {str(cap): int(count) for cap, count in reader.select(counted, [tree_id])}


def _agent_entry(agent: RunRecord, own: Used, whole: Used, check: LastCheck | None) -> dict[str, Any]:
    return {
        "path": agent.path,
        "parent": agent.parent,
        "depth": agent.depth,
        "status": agent.status,
        "outcome": agent.outcome,
        "goal": agent.goal,
        "steps": agent.steps,
        "error": agent.error,
        "criterion": _criterion(check),
        "usage": attrs.asdict(own),
        "subtree_usage": attrs.asdict(whole),
    }


def _usage(root: RunRecord, agents: list[RunRecord], reader: Reader) -> dict[str, Any]:
    ledger = None if root.status in LIVE else reader.ledger(root.run_id)
    if ledger is None:
        return _usage_so_far(root.run_id, reader)
    before = _inherited(reader, root.run_id) or {}
    return {
        # The root's own row holds what all below it used too.
        "input_tokens": root.input_tokens or 0,
        "output_tokens": root.output_tokens or 0,
        "cached_input_tokens": root.cached_input_tokens or 0,
        "turns": sum(agent.steps or 0 for agent in agents),
        # The totals hold what a reopened run took over; this is what the run itself used.
        "microdollars": ledger.spent_microdollars - before.get("spent_microdollars", 0),
        "estimated": any(agent.estimated for agent in agents),
    }


def _usage_so_far(tree_id: str, reader: Reader) -> dict[str, Any]:
    """Add up what a run that is live, or was killed, has written so far."""
    tokens = "sum(prompt_tokens), sum(completion_tokens), sum(cache_read_tokens)"
    [(prompt, completion, cached)] = reader.select(f"SELECT {tokens} FROM provider_calls WHERE {OF_TREE}", [tree_id])
    [(steps,)] = reader.select(f"SELECT count(*) FROM steps WHERE {OF_TREE}", [tree_id])
    held = "sum(used_microdollars), max(state = 'estimated')"
    [(money, estimated)] = reader.select(f"SELECT {held} FROM reservations WHERE {OF_TREE}", [tree_id])
    return {
        "input_tokens": prompt or 0,
        "output_tokens": completion or 0,
        "cached_input_tokens": cached or 0,
        "turns": steps,
        "microdollars": money or 0,
        "estimated": bool(estimated),
    }


def _tree(reader: Reader, run_id: str, agents: list[RunRecord]) -> dict[str, Any]:
    # A run that goes on after a pause still has the totals of that pause.
    ledger = None if agents[0].status in LIVE else reader.ledger(run_id)
    if ledger is None:
        return _tree_so_far(reader, run_id, agents)
    with readable(reader.file, f"the totals of {run_id}"):
        refusals = dict(json.loads(ledger.refusals))
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
        "refusals": refusals,
    }
