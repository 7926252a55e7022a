"""A spawn as the model asks for it: zeros mean unset, and nothing grants."""

from pathlib import Path
from typing import Any

import pytest

from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.agents.roster import AgentDef, Agents
from actors.agents.spawning import (
    DEFAULT_MAX_STEPS,
    SpawnAsk,
    child_contract,
    child_policy,
    read_spawn,
    report,
    spawn_spec,
)
from actors.agents.verification import CriterionKind, Verification
from actors.errors import ToolFailed

ROSTER = Agents().with_agent(AgentDef("searcher")).with_agent(AgentDef("author").with_max_steps(3))
PAIR = {"verify_file": "a.txt", "verify_contains": "x"}


def ask(**arguments: Any) -> SpawnAsk:
    return read_spawn({"goal": "look", **arguments}, ROSTER)


def test_zero_filled_arguments_mean_not_given() -> None:
    filled = ask(**PAIR, verify={}, agent="", deny_write=[], deny_net=[], max_steps=0)
    assert filled == ask(**PAIR)
    assert (filled.definition, filled.deny_write, filled.deny_net, filled.max_steps) == (None, (), (), None)


def test_nulls_mean_not_given() -> None:
    nulls = dict.fromkeys(("agent", "deny_write", "deny_net", "max_steps", "verify"))
    assert ask(**PAIR, **nulls) == ask(**PAIR)


def test_none_as_a_criterion_is_said_openly() -> None:
    assert ask(verify={"kind": "none"}, verify_file="", verify_contains="").verify.kind is CriterionKind.none


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({**PAIR, "goal": ""}, "needs a goal"),
        ({**PAIR, "goal": " \n"}, "needs a goal"),
        ({**PAIR, "goal": 7}, "goal must be a text"),
        ({}, "needs a criterion"),
        ({"verify_file": "a.txt", "verify_contains": ""}, "needs a criterion"),
        ({"verify_file": "", "verify_contains": "x"}, "needs a criterion"),
        ({**PAIR, "verify": {"kind": "none"}}, "not both"),
        ({"verify": "none"}, "must be an object"),
        ({"verify": {"kind": "no such"}}, "verify"),
        ({**PAIR, "agent": "Searcher"}, "known agents: author, searcher"),
        ({**PAIR, "agent": 1}, "agent must be a text"),
        ({**PAIR, "max_steps": -1}, "from 1 to"),
        ({**PAIR, "max_steps": True}, "whole number"),
        ({**PAIR, "max_steps": 10**30}, "from 1 to"),
        ({**PAIR, "max_steps": 1.5}, "whole number"),
        ({**PAIR, "max_steps": "3"}, "whole number"),
        ({**PAIR, "deny_write": "a"}, "list of texts"),
        ({**PAIR, "deny_net": [""]}, "list of texts"),
        ({**PAIR, "deny_net": [1]}, "list of texts"),
        ({**PAIR, "allow_write": ["*"]}, "no argument 'allow_write'"),
        ({**PAIR, "max_tokens": 5}, "no argument 'max_tokens'"),
    ],
)
def test_a_request_that_cannot_be_used_is_told_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        ask(**arguments)
    assert words in str(failed.value) and "\n" not in str(failed.value)


def test_no_argument_of_the_tool_grants() -> None:
    properties = spawn_spec(ROSTER).parameters["properties"]
    assert not any("allow" in name or "budget" in name or "tokens" in name for name in properties)


def test_the_description_carries_the_catalogue_of_the_roster() -> None:
    assert "searcher" in spawn_spec(ROSTER).description
    assert "Named agents" not in spawn_spec(Agents()).description


@pytest.mark.parametrize(("agent", "asked", "steps"), [("", 0, DEFAULT_MAX_STEPS), ("", 7, 7), ("author", 7, 3)])
def test_the_step_cap_of_the_definition_beats_the_one_of_the_call(agent: str, asked: int, steps: int) -> None:
    parent = TaskContract.workspace("all", "ws").with_max_steps(99)
    assert child_contract(parent, ask(**PAIR, agent=agent, max_steps=asked)).max_steps == steps


def test_a_child_inherits_every_knob_of_the_operator() -> None:
    parent = TaskContract.workspace(
        "all", "ws", exec_timeout=3, max_read_chars=9, max_tokens=77, max_retries=0, constraints=("c",),
        stall=StallPolicy(0), max_duration=5, max_output_tokens=11,
    )  # fmt: skip
    child = child_contract(parent, ask(**PAIR))
    assert child == TaskContract.workspace(
        "look", "ws", Verification.workspace_file_contains("a.txt", "x"), exec_timeout=3, max_read_chars=9,
        max_tokens=77, max_retries=0, constraints=("c",), stall=StallPolicy(0), max_duration=5, max_output_tokens=11,
        max_steps=DEFAULT_MAX_STEPS,
    )  # fmt: skip
    assert child.root == Path("ws")


def test_a_child_policy_only_adds_denies() -> None:
    parent = Policy.default().layer("p").allow_write("*").deny_read("secret")
    child = child_policy(parent, ask(**PAIR, deny_write=["docs/*"], deny_net=["*"]))
    assert child.explain(Act.write, "src/a").effect is Effect.allow
    denied = child.explain(Act.write, "docs/a")
    assert (denied.effect, denied.layer) == (Effect.deny, "child")
    assert child.explain(Act.net, "host:1").effect is Effect.deny
    assert child.explain(Act.read, "secret").effect is Effect.deny


def test_the_report_names_the_agent_by_its_path_and_marks_what_is_partial() -> None:
    whole = report("root/1.1", "g", "success", 2, 30, "found it", None)
    assert whole == "Sub-agent root/1.1 ended: success after 2 steps, 30 tokens.\nGoal: g\nIt said:\nfound it"
    cut = report("root/1.1", "g", "step_cap_reached", 2, 30, "half", None)
    assert "It said (partial):\nhalf" in cut
    failed = report("root/1.1", "g", "failed", 0, 0, None, "HTTP 404")
    assert "Cause: HTTP 404" in failed and failed.endswith("It said nothing.")
