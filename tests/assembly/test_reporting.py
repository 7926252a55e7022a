"""What is said of a run from its store: figures of one scope, and what was denied, bounded."""

from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.rows import AttemptMade, GateTried, Observed, PolicyEvent, Reserved, RunStarted, Settled
from actors.assembly.reporting import (
    MOST_DENIED,
    DeniedGroup,
    FailedCall,
    check_detail,
    denied_groups,
    failed_calls,
    last_checks,
    root_steps,
    run_report,
    show_report,
)
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.errors import ConfigError
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import Store

LIMITS = Containment(10, 4, 3, 100_000)
COUNTS = ("input_tokens", "output_tokens", "cached_input_tokens")


def spawn(goal: str) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}})


def say(*calls: Any, when: str, usage: Usage, text: str = "done") -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, when=when, usage=usage, text=text)


def started(store: Store, *paths: str) -> None:
    for path in paths:
        run_id = "t" + path.removeprefix("root")
        store.append_nowait(RunStarted(run_id, "t", path, path.count("/"), "t" if "/" in path else None, "goal"))


async def test_the_usage_of_an_agent_is_its_own_and_that_of_its_subtree_stands_beside_it(tmp_path: Path) -> None:
    store = Store.memory()
    answers = [
        say(spawn("middle"), when="top", usage=Usage(100, 10)),
        say(spawn("leaf"), spawn("leaf"), when="middle", usage=Usage(20, 2)),
        say(when="leaf", usage=Usage(3, 1)),
        say(when="leaf", usage=Usage(4, 1)),
        say(when="middle", usage=Usage(50, 5)),
        say(when="top", usage=Usage(1_000, 100)),
    ]
    contract = TaskContract.workspace("top", tmp_path)
    ran = await run_tree(contract, Scripted(answers), store, Policy.permissive(), ApproveAll(), LIMITS)
    shown = show_report(store, ran.run_id)
    agents = {agent["path"]: agent for agent in shown["agents"]}
    assert [agents[path]["usage"]["input_tokens"] for path in ("root", "root/1.1")] == [1_100, 70]
    assert sorted(agents[f"root/1.1/1.{n}"]["usage"]["input_tokens"] for n in (1, 2)) == [3, 4]
    # One scope: what an agent used is what it was charged for.
    assert all(
        each["usage"]["input_tokens"] + each["usage"]["output_tokens"] == each["usage"]["spent_tokens"]
        for each in agents.values()
    )
    assert agents["root/1.1"]["subtree_usage"]["input_tokens"] == 77
    whole = agents["root"]["subtree_usage"]
    assert {name: whole[name] for name in COUNTS} == {name: shown["usage"][name] for name in COUNTS}
    assert whole["spent_tokens"] == shown["tree"]["spent_tokens"] == 1_296


async def test_a_live_agent_is_shown_with_what_it_has_used_so_far() -> None:
    store = Store.memory()
    started(store, "root", "root/1.1")
    for run_id, tokens in (("t", 7), ("t/1.1", 40)):
        store.append_nowait(
            Reserved(run_id, 1, 1, tokens, 100, 0),
            AttemptMade(run_id, 1, 1, "p", None, "m", tokens, 1, tokens + 1, 2, None, None, None, 5, None, "stop", None),
            Settled(run_id, tokens, tokens + 1, 9, 0, 0, True),
        )
    root, child = show_report(store, "t")["agents"]
    assert root["usage"] == {
        "input_tokens": 7,
        "output_tokens": 1,
        "cached_input_tokens": 2,
        "spent_tokens": 8,
        "microdollars": 9,
        "estimated": True,
    }
    assert root["subtree_usage"]["input_tokens"] == 47 and child["usage"] == child["subtree_usage"]


async def test_what_was_denied_is_listed_bounded_and_counted_in_full() -> None:
    store = Store.memory()
    started(store, "root", "root/1.1")
    for number in range(MOST_DENIED + 50):
        store.append_nowait(PolicyEvent("t", 1, "refusal", "write", f"f{number}", None, None, "denied", "approver"))
    store.append_nowait(
        PolicyEvent("t/1.1", 1, "refusal", "exec", "rm", "deny exec rm", "operator", "denied", "policy"),
        PolicyEvent("t", 2, "decision", "net", "host:1", None, None, "approved", "approver"),
    )
    tree = run_report(store, "t")["tree"]
    assert (tree["denials"], len(tree["denied"])) == (MOST_DENIED + 51, MOST_DENIED)
    assert tree["denied"][0] == {
        "path": "root",
        "act": "write",
        "target": "f0",
        "rule": None,
        "layer": None,
        "decision": "denied",
        "source": "approver",
    }
    assert denied_groups(store, "t") == [
        DeniedGroup("write", None, None, "approver", MOST_DENIED + 50, ("f0", "f1", "f2")),
        DeniedGroup("exec", "deny exec rm", "operator", "policy", 1, ("rm",)),
    ]


async def test_a_denied_act_is_told_with_the_path_of_its_agent() -> None:
    store = Store.memory()
    started(store, "root", "root/1.1")
    store.append_nowait(PolicyEvent("t/1.1", 1, "refusal", "read", "x" * 5_000, "r", "l", "denied", "policy"))
    [denied] = run_report(store, "t")["tree"]["denied"]
    assert denied["path"] == "root/1.1" and len(denied["target"]) == 500


async def test_the_last_check_of_a_criterion_counts_and_each_can_be_asked_for() -> None:
    store = Store.memory()
    started(store, "root", "root/1.1")
    store.append_nowait(GateTried("t", 1, "command", "errored", "no such program"))
    store.append_nowait(GateTried("t", 2, "command", "failed", "exit code 1"))
    assert run_report(store, "t")["criterion"] == {"verdict": "failed", "detail": "exit code 1", "attempts": 2}
    assert list(last_checks(store, "t")) == ["t"]
    assert [agent["criterion"] is None for agent in show_report(store, "t")["agents"]] == [False, True]
    assert [check_detail(store, "t", step) for step in (1, 2, 3)] == ["no such program", "exit code 1", None]


async def test_failed_calls_are_those_of_one_step_in_call_order() -> None:
    store = Store.memory()
    started(store, "root")
    for step, ordinal, kind, target in ((1, 2, "error", "b"), (1, 1, "error", "a"), (1, 3, "tool", "c"), (2, 1, "error", "d")):
        store.append_nowait(Observed("t", step, ordinal, kind, target, f"{target} went wrong"))
    assert failed_calls(store, "t", 1) == [FailedCall("a", "a went wrong"), FailedCall("b", "b went wrong")]
    assert root_steps(store) == {"t": 0}


@pytest.mark.parametrize("prices", [PriceTable(), PriceTable.from_dict({"other": {"input": "1", "output": "1"}})])
async def test_the_model_without_a_price_is_named(tmp_path: Path, prices: PriceTable) -> None:
    limits = Containment(10, 4, 3, 100_000, max_total_cost=9)
    contract = TaskContract.workspace("top", tmp_path)
    provider = Scripted([], model="dear-model")
    with pytest.raises(ConfigError, match="dear-model"):
        await run_tree(contract, provider, None, Policy.permissive(), ApproveAll(), limits, prices=prices)
