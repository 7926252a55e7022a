"""What a run came to, and how two accounts of the same run differ when one of them was cut.

Everything an agent was told, did and said must be the same. Only two things may
be more than in the run that nobody cut: a request whose answer was lost is sent
again, and what was held for it is charged in full and marked as estimated.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from actors.assembly.running import RunResult
from actors.store.audit import audit
from actors.store.audit_findings import Verdict
from actors.store.store import Store
from actors.testing.crash_stage import Stage
from actors.testing.goal_model import without_figures

MOST_TOLD: Final = 20
MOST_CHARS: Final = 300


@attrs.frozen
class Account:
    """One run at its end.

    ``told`` holds all that must be equal: by kind and place, as text. ``requests`` and
    ``billed`` are the model's own count; ``counted`` and ``estimated`` are the ledger's,
    ``lost`` the attempts that it says were lost. ``wrong`` is what is wrong whatever
    the other run did.
    """

    told: Mapping[str, str]
    effects: Mapping[str, int]
    requests: Mapping[str, int]
    billed: int
    counted: int
    estimated: int
    lost: int
    wrong: tuple[str, ...]


def account_of(stage: Stage, store: Store, result: RunResult) -> Account:
    """Gather what a run that has ended came to."""
    tree = result.run_id
    told = dict(_told(store, tree))
    told |= {f"file {name}": text for name, text in _files(stage.workspace)}
    told |= {f"git {name}": text for name, text in _commits(stage.workspace)}
    of_tree = "run_id IN (SELECT run_id FROM runs WHERE tree_id = ?)"
    spent = "COALESCE(SUM(used_tokens + overrun_tokens), 0)"
    [[counted]] = store.select(f"SELECT {spent} FROM reservations WHERE {of_tree} AND state = 'settled'", (tree,))
    [[estimated]] = store.select(f"SELECT {spent} FROM reservations WHERE {of_tree} AND state = 'estimated'", (tree,))
    lost = "SELECT COUNT(*) FROM provider_calls WHERE failure IN ('lost', 'cancelled') AND "
    [[attempts]] = store.select(lost + of_tree, (tree,))
    return Account(
        told,
        dict(stage.effects()),
        dict(stage.requests()),
        stage.billed(),
        counted,
        estimated,
        attempts,
        tuple(_wrong(store, result, counted + estimated)),
    )


def _told(store: Store, tree: str) -> Iterator[tuple[str, str]]:
    ledger = store.ledger(tree)
    if ledger is not None:
        yield "counted", f"{ledger.agents} agents, {ledger.tool_calls} tool calls, {ledger.refusals} refused"
    for agent in store.agents(tree):
        terminal = store.terminal(agent.run_id)
        yield f"{agent.path} end", f"{agent.status} {agent.outcome} {_said(agent.said)}"
        yield f"{agent.path} terminal", "none" if terminal is None else _terminal(terminal)
        yield f"{agent.path} goal", agent.goal
        for turn in store.turns(agent.run_id):
            yield f"{agent.path} {turn.step} answer", f"{turn.text} {turn.calls}"
        for seen in store.observations(agent.run_id):
            text = f"{seen.kind} {seen.target} {without_figures(seen.text or '')} {seen.changed}"
            yield f"{agent.path} {seen.step}.{seen.ordinal} result", text
        for gate in store.gate_attempts(agent.run_id):
            yield f"{agent.path} {gate.step} gate", f"{gate.phase} {gate.verdict}"
        for spawn in store.spawns(agent.run_id):
            child = spawn.child_run_id.removeprefix(tree)
            yield f"{agent.path} {spawn.step}.{spawn.ordinal} spawn", f"{child} {spawn.goal}"


def _said(text: str | None) -> str:
    return "(nothing)" if text is None else text


def _terminal(wire: str) -> str:
    """Give a terminal without its figures: what was drawn is held against the model's own count instead."""
    return json.dumps(_without_usage(json.loads(wire)), sort_keys=True)


def _without_usage(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_usage(inner) for key, inner in value.items() if key != "usage"}
    return [_without_usage(inner) for inner in value] if isinstance(value, list) else value


def _files(workspace: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(workspace.rglob("*")):
        relative = file.relative_to(workspace)
        # What git keeps is full of times; what was committed is not.
        if file.is_file() and relative.parts[0] != ".git":
            yield str(relative), file.read_bytes().decode(errors="backslashreplace")


def _commits(workspace: Path) -> Iterator[tuple[str, str]]:
    """Tell what a repository in the workspace came to: each commit by its files and words, and what is staged."""
    if not (workspace / ".git").is_dir():
        return
    for what in (["log", "--all", "--format=%T %B"], ["for-each-ref", "--format=%(refname)"], ["ls-files", "--stage"]):
        done = subprocess.run(["git", *what], cwd=workspace, capture_output=True, check=False)
        yield what[0], done.stdout.decode(errors="backslashreplace")


def _wrong(store: Store, result: RunResult, spent: int) -> Iterator[str]:
    """Name what may not be in any run."""
    tree = result.run_id
    found = audit(store, tree)
    yield from (f"audit: {each}" for each in found.violations)
    if found.verdict is not Verdict.ok and not found.violations:
        yield f"audit: {found.verdict}: {', '.join(map(str, found.missing))}"
    if not result.leaks.empty:
        yield f"leaks: {result.leaks}"
    roots = [each.run_id for each in store.runs()]
    if roots != [tree]:
        yield f"{len(roots)} runs were begun"
    ledger = store.ledger(tree)
    told = None if ledger is None else ledger.spent_tokens + ledger.overrun_tokens
    if told != spent:
        yield f"the ledger tells {told} tokens, its reservations {spent}"


def differences(whole: Account, cut: Account) -> list[str]:
    """List what is wrong with a run that was cut, held against the one that was not; empty when nothing is."""
    found = [*cut.wrong, *_unequal(whole.told, cut.told)]
    for key in sorted({*whole.effects, *cut.effects}):
        once, now = whole.effects.get(key, 0), cut.effects.get(key, 0)
        if once != now:
            found.append(f"effect {key}: done {now} times instead of {once}")
    again = 0
    for key in sorted({*whole.requests, *cut.requests}):
        once, now = whole.requests.get(key, 0), cut.requests.get(key, 0)
        again += max(now - once, 0)
        if not once or now < once:
            found.append(f"request {key}: sent {now} times instead of {once}")
    if again > cut.lost:
        found.append(f"{again} requests were sent again, and {cut.lost} attempts are marked as lost")
    if not cut.counted <= cut.billed <= cut.counted + cut.estimated:
        found.append(f"the model billed {cut.billed} tokens; counted are {cut.counted}, and {cut.estimated} estimated")
    return found


def _unequal(whole: Mapping[str, str], cut: Mapping[str, str]) -> list[str]:
    found = []
    for key in sorted({*whole, *cut}):
        once, now = whole.get(key), cut.get(key)
        if once != now:
            found.append(f"{key}: {_shown(now)} instead of {_shown(once)}")
    return found


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text[:MOST_CHARS])
