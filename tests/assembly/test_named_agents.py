"""The seven agent cases of the reference (contained-trees 14.4), word for word."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.verification import Verification
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.providers.scripted import Scripted
from actors.store.store import Store

LIMITS = Containment(10, 4, 3, 1_000_000)
P4 = Policy.default().layer("parent").allow_read("*").allow_write("*").allow_exec("*")
P5 = Policy.default().layer("parent").allow_read("*").deny_read("secret.txt").allow_write("*")
Call = tuple[str, dict[str, Any]]


def contract(root: Path, file: str, needle: str, steps: int, *agents: AgentDef) -> TaskContract:
    roster = Agents()
    for agent in agents:
        roster = roster.with_agent(agent)
    made = TaskContract.workspace("do the task", root, Verification.workspace_file_contains(file, needle))
    return made.with_max_steps(steps).with_agents(roster)


def spawn(file: str, needle: str, agent: str = "", goal: str = "do your part") -> Call:
    arguments = {"goal": goal, "verify_file": file, "verify_contains": needle, "agent": agent, "max_steps": 2}
    return ("spawn_agent", arguments)


def write(path: str, content: str) -> Call:
    return ("write_file", {"path": path, "content": content})


async def run(
    task: TaskContract, answers: Sequence[Sequence[Call]], policy: Policy | None = None
) -> tuple[Store, Scripted, RunResult]:
    store, provider = Store.memory(), Scripted([list(answer) for answer in answers])
    result = await run_tree(task, provider, store, policy or Policy.permissive(), ApproveAll(), LIMITS)
    assert result.leaks.empty
    return store, provider, result


def models(store: Store, result: RunResult) -> list[str]:
    runs = [result.run_id, *store.children(result.run_id)]
    return [call.model for run_id in runs for call in store.provider_calls(run_id) if call.model is not None]


def child_events(store: Store, result: RunResult) -> list[Any]:
    return [event for child in store.children(result.run_id) for event in store.events(child)]


async def test_A1_each_named_agent_runs_on_its_own_model(tmp_path: Path) -> None:
    task = contract(
        tmp_path,
        "done.txt",
        "done",
        6,
        AgentDef("searcher").with_model("cheap-model"),
        AgentDef("author").with_model("strong-model"),
    )
    store, _, result = await run(
        task,
        [
            [spawn("found.txt", "found", "searcher")],
            [write("found.txt", "found")],
            [spawn("done.txt", "done", "author")],
            [write("done.txt", "done")],
        ],
    )
    assert set(models(store, result)) == {"cheap-model", "strong-model", "configured-model"}
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.success, 2)


async def test_A2_an_unused_definition_changes_no_model(tmp_path: Path) -> None:
    task = contract(tmp_path, "out.txt", "ok", 4, AgentDef("unused").with_model("other-model"))
    store, provider, result = await run(task, [[spawn("out.txt", "ok")], [write("out.txt", "ok")]])
    assert set(models(store, result)) == {"configured-model"}
    assert [request.model for request in provider.requests] == [None] * len(provider.requests)
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.success, 1)


async def test_A3_a_role_is_added_to_the_framing_and_only_for_the_child(tmp_path: Path) -> None:
    role = "You look for things and never give up."
    task = contract(tmp_path, "out.txt", "ok", 4, AgentDef("searcher").with_role(role))
    _, provider, result = await run(task, [[spawn("out.txt", "ok", "searcher")], [write("out.txt", "ok")]])
    systems = [request.system for request in provider.requests]
    assert any(role in text and "sub-agent" in text for text in systems)
    assert role not in systems[0]
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.success, 1)


async def test_A4_a_definition_narrows_what_its_agent_may_write(tmp_path: Path) -> None:
    task = contract(tmp_path, "never.txt", "never", 4, AgentDef("reader").with_deny_write())
    store, _, result = await run(
        task, [[spawn("child.txt", "written", "reader")], [write("child.txt", "written")]], P4
    )
    assert not (tmp_path / "child.txt").exists()
    events = child_events(store, result)
    assert {event.kind for event in events} == {"refusal"}
    assert (events[0].act, events[0].layer) == ("write", "child")
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.step_cap_reached, 4)
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and (record.outcome, record.steps) == ("step_cap_reached", 2)


async def test_A4_control_without_the_definition_the_child_writes(tmp_path: Path) -> None:
    task = contract(tmp_path, "never.txt", "never", 4)
    await run(task, [[spawn("child.txt", "written")], [write("child.txt", "written")]], P4)
    assert (tmp_path / "child.txt").read_text() == "written"


async def test_A5_a_definition_restores_nothing_that_the_parent_denies(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    task = contract(tmp_path, "never.txt", "never", 4, AgentDef("worker").with_role("You work."))
    store, provider, result = await run(
        task, [[spawn("out.txt", "ok", "worker")], [("read_file", {"path": "secret.txt"})]], P5
    )
    assert any(event.kind == "refusal" and "secret.txt" in event.target for event in child_events(store, result))
    assert all("canary" not in repr(request) for request in provider.requests)
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.step_cap_reached, 4)


async def test_A6_an_unknown_name_makes_no_child_and_lists_the_known_ones(tmp_path: Path) -> None:
    task = contract(tmp_path, "out.txt", "ok", 3, AgentDef("searcher"))
    store, _, result = await run(task, [[spawn("out.txt", "ok", "Searcher")]])
    assert store.children(result.run_id) == []
    results = [step.result for step in store.steps(result.run_id)]
    assert any("no agent named" in text for text in results)
    assert any("searcher" in text for text in results)
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.step_cap_reached, 3)


async def test_A7_a_spawn_is_one_row_with_the_name_and_the_goal(tmp_path: Path) -> None:
    task = contract(tmp_path, "out.txt", "ok", 4, AgentDef("searcher"))
    store, _, result = await run(
        task, [[spawn("out.txt", "ok", "searcher", goal="look for it")], [write("out.txt", "ok")]]
    )
    [event] = [each for each in store.agent_events(result.run_id) if each.kind == "spawn"]
    assert "searcher" in event.detail and "look for it" in event.detail
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.success, 1)


@pytest.mark.parametrize("name", ["with_allow_write", "allow_write", "allow_read"])
def test_a_definition_has_no_way_to_allow(name: str) -> None:
    assert not hasattr(AgentDef("x"), name)
