"""Every knob of the operator reaches every child, and nothing that is said on the way down can loosen it.

Each field of the records stands in a class here. A field that is new and stands in
none fails the first test, so nobody can forget to say what it means for children.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.acted_on import ACTED_ON
from actors.agents.contract import (
    Compaction,
    ContextBudget,
    ExecCaps,
    ExecSandbox,
    Identity,
    MemoryCaps,
    PauseScope,
    Prompt,
    PromptKind,
    RetryPolicy,
    StallPolicy,
    TaskContract,
)
from actors.agents.loop import Job
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.agents.roster import AgentDef, Agents
from actors.agents.routing import Routing
from actors.agents.rows import StepDone
from actors.agents.spawning import _PROPERTIES, child_contract, child_policy, child_tools, read_spawn
from actors.agents.verification import Verification
from actors.containment.lines import QueueOrder
from actors.containment.prices import OnUnknownPrice
from actors.testing.dying_store import Death
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench

LIVE = object()

# What a child has of its own: it was asked for by the call, within what the operator defined.
CHILDS_OWN = {"goal", "verify", "max_steps"}
# Where it works: where its parent does, or in a work tree inside of that.
PLACE = {"root", "file"}
# Its parent's, or what a definition of the operator's roster says: a request to a model, no boundary.
DEFINED = {"effort"}
# Its parent's to the letter, at any depth, with a value that is not the default.
AS_IT_IS: dict[str, Any] = {
    "constraints": ("be kind",),
    "prompt": Prompt(PromptKind.preset, "careful"),
    "instructions": ("use tabs",),
    "conversational": False,
    "max_duration": 7.0,
    "max_tokens": 77,
    "max_output_tokens": 99,
    "max_retries": 1,
    "retry": RetryPolicy(0.1, 0.2),
    "stall": StallPolicy(2, 0),
    "context": ContextBudget(9_000, 0.3, 1_000),
    "compaction": Compaction(0.5, 3),
    "max_read_chars": 500,
    "max_wait_secs": 3.0,
    "memory": MemoryCaps(2, 100),
    "exec_timeout": 5.0,
    "lease_ttl": 60.0,
    "spawn_background_after": 4.0,
    "detached_spawns": False,
    "exec_sandbox": ExecSandbox.read_only,
    "exec_caps": ExecCaps(1, 2**30, 64, 9.0),
    "mcp": (LIVE,),
    "lsp": (LIVE,),
    "browser": LIVE,
    "tools": LIVE,
    "skills": Path("skills"),
    "plugins": (LIVE,),
    "agents": Agents((AgentDef("reader").with_deny_write(),)),
    "responder": LIVE,
    "plan_gate": LIVE,
    "reviewer": LIVE,
    "tool_hooks": LIVE,
    "routing": Routing(escalate_after=2, escalate_to="strong", downshift_under=100, downshift_to="small"),
    "web": LIVE,
    "images": (LIVE,),
    "commit_identity": Identity("a", "a@b.invalid"),
    "check_writes": True,
    "max_parallel_reads": 1,
    # Of the tree: only the root's is ever read, and no child holds another one.
    "pause_scope": PauseScope.tree,
    "queue_order": QueueOrder.fair,
    "on_unknown_price": OnUnknownPrice.tokens_only,
}
# What a definition says, and how that can only narrow: of the policy, of the tools, of where it writes.
OF_DEFINITIONS = {
    "deny_write": "policy",
    "deny_net": "policy",
    "tools": "tools",
    "worktree": "place",
    "max_steps": "its own steps, which count against the ceilings of the tree",
    "model": "a request, priced before it is sent",
    "effort": "a request",
    "name": "a name",
    "role": "a text for the model",
    "description": "a text for the model",
}
# What a call says.
OF_CALLS = {
    "goal": "a text", "verify_file": "a criterion", "verify_contains": "a criterion", "verify": "a criterion",
    "agent": "a name of the roster", "deny_write": "policy", "deny_net": "policy", "max_steps": "its own steps",
    "wait": "when its report is read", "background_after_secs": "when its report is read, under a ceiling",
}  # fmt: skip
# What a job holds besides the contract.
OF_JOBS = {
    "contract": "as above", "policy": "contained", "services": "of the tree", "definition": "as above",
    "in_tree": "off where spawning is no tool that it keeps", "trusted_gate": "off: a model wrote it",
    "opening": "empty", "tools": "those of the parent, or fewer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "classed"),
    [
        (TaskContract, [*CHILDS_OWN, *PLACE, *DEFINED, *AS_IT_IS]),
        (AgentDef, [*OF_DEFINITIONS]),
        (Job, [*OF_JOBS]),
    ],
)
def test_every_field_says_what_it_means_for_children(record: type, classed: list[str]) -> None:
    assert sorted(field.name for field in attrs.fields(record)) == sorted(classed)


def test_every_argument_of_a_spawn_says_what_it_means_and_none_gives_anything() -> None:
    assert set(_PROPERTIES) == set(OF_CALLS)
    assert not [name for name in _PROPERTIES if "allow" in name or name in AS_IT_IS]


def parent(tmp: str = "work") -> TaskContract:
    return TaskContract.workspace("root", tmp, Verification.none(), **AS_IT_IS, effort="low", max_steps=3)


DEFINITIONS = [
    None,
    AgentDef("plain"),
    AgentDef("full", "You may do all: exec_timeout = 900, sandbox = full_access", "m", 50, "high", True, True, True, ("exec",)),
]
CALLS: list[dict[str, Any]] = [
    {},
    {"max_steps": 500, "deny_write": ["a"], "wait": False},
    {"background_after_secs": 9_000, "deny_net": ["*"], "verify": {"kind": "command", "argv": ["true"]}},
]


@pytest.mark.parametrize("name", AS_IT_IS)
def test_a_knob_reaches_children_at_any_depth_as_it_is(name: str) -> None:
    assert AS_IT_IS[name] != getattr(TaskContract.workspace("root", "work"), name), "must differ from the default"
    contract = parent()
    for definition in DEFINITIONS:
        for arguments in CALLS:
            roster = Agents(() if definition is None else (definition,))
            agent = {} if definition is None else {"agent": definition.name}
            ask = read_spawn({"goal": "g", "verify": {"kind": "none"}, **arguments, **agent}, roster)
            contract = child_contract(contract, ask)
            assert getattr(contract, name) == AS_IT_IS[name]


def test_a_knob_that_is_acted_on_is_in_a_class_that_binds() -> None:
    assert set(AS_IT_IS) | CHILDS_OWN | PLACE | DEFINED >= ACTED_ON


TOOLS = ("read_file", "write_file", "exec", "spawn_agent")
KEPT = st.none() | st.lists(st.sampled_from([*TOOLS, "unknown"]), max_size=4).map(tuple)
ASKS = st.builds(
    lambda write, net, tools, globs: (AgentDef("a", deny_write=write, deny_net=net, tools=tools), globs),
    st.booleans(), st.booleans(), KEPT, st.lists(st.sampled_from(["a", "b/*", "*.py"]), max_size=2),
)  # fmt: skip


@given(st.lists(ASKS, max_size=5))
def test_no_line_of_children_ever_holds_a_right_or_a_tool_that_the_one_above_has_not(asks: list[Any]) -> None:
    policy = Policy.default().layer("operator").allow_write("b/*").deny_read("b/secret").allow_net("h")
    tools: frozenset[str] | None = frozenset(TOOLS)
    targets = [(Act.read, "b/secret"), (Act.write, "a"), (Act.write, "b/x"), (Act.write, "c.py"), (Act.net, "h:443")]
    order = [Effect.allow, Effect.ask, Effect.deny]
    for definition, globs in asks:
        arguments = {"goal": "g", "verify": {"kind": "none"}, "agent": "a", "deny_write": globs}
        ask = read_spawn(arguments, Agents((definition,)))
        below, kept = child_policy(policy, ask), child_tools(tools, ask)
        for act, target in targets:
            assert order.index(below.explain(act, target).effect) >= order.index(policy.explain(act, target).effect)
        assert tools is not None and kept is not None and kept <= tools
        policy, tools = below, kept


# ── in a run, and over a restart ────────────────────────────────────────────


ACTED = sorted(set(AS_IT_IS) & ACTED_ON - {"exec_sandbox", "exec_caps", "agents"})


@pytest.mark.parametrize("dies", [False, True])
async def test_children_are_stored_with_every_knob_of_the_root_also_after_a_restart(tmp_path: Path, dies: bool) -> None:
    knobs = {name: AS_IT_IS[name] for name in ACTED} | {"max_duration": 600.0, "max_tokens": 50_000}
    roster = Agents((AgentDef("reader").with_deny_write(),))
    spawn: Callable[..., Any] = lambda goal, **more: call(  # noqa: E731
        "spawn_agent", goal=goal, verify={"kind": "none"}, max_steps=90, **more
    )
    answers: dict[str, Any] = {
        "root": [[call("list_dir", path=".")], [spawn("below", agent="reader", wait=False)], "done"],
        "below": [[spawn("deep", background_after_secs=1_000)], [call("write_file", path="a", content="x")], "ok"],
        "deep": [[call("write_file", path="b", content="x")], "ok"],
    }
    contract = TaskContract.workspace("root", tmp_path / "work", Verification.none(), max_steps=9, agents=roster, **knobs)
    bench = Bench(tmp_path, answers, contract=contract)
    bench.work.mkdir(exist_ok=True)

    def first(rows: Any) -> bool:
        return any(isinstance(row, StepDone) and row.step == 1 for row in rows)

    ran = await bench.begin(death=Death(when=first, after=True) if dies else None)
    if dies:
        assert ran is None
        assert await bench.go_on() is not None
    stored = {path: json.loads(each.contract or "") for path, each in bench.agents().items()}
    assert set(stored) == {"root", "root/2.1", "root/2.1/1.1"}
    for name in [*AS_IT_IS, "effort"]:
        if name in stored["root"]:
            assert [each[name] for each in stored.values()] == [stored["root"][name]] * 3, name
    assert not (bench.work / "a").exists() and not (bench.work / "b").exists()
    bench.check()


async def test_a_child_that_was_cut_goes_on_with_the_knobs_that_it_had(tmp_path: Path) -> None:
    contract = TaskContract.workspace(
        "root", tmp_path / "work", Verification.none(), max_read_chars=3, exec_timeout=1.0, max_steps=9
    )
    answers: dict[str, Any] = {
        "root": [[call("spawn_agent", goal="child", verify={"kind": "none"}, max_steps=5, deny_write=["*"])], "done"],
        "child": [
            [call("list_dir", path=".")],
            [call("read_file", path="long.txt"), call("exec", argv=["sleep", "20"]), call("write_file", path="a", content="")],
            "ok",
        ],
    }
    bench = Bench(tmp_path, answers, contract=contract)
    (bench.work / "long.txt").write_text("canary" * 50)

    def of_child(rows: Any) -> bool:
        return any(isinstance(row, StepDone) and "/" in row.run_id for row in rows)

    assert await bench.begin(death=Death(when=of_child, after=True)) is None
    assert await bench.go_on() is not None
    told = repr(bench.requests("child")[-1].turns)
    assert "canarycan" not in told and "timed out after 1 s" in told and "denied by policy" in told
    assert not (bench.work / "a").exists()
    bench.check()
