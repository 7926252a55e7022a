"""A contract says what it is bound by, refuses what it cannot mean, and names what nothing acts on yet."""

import json
import math
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.acted_on import ACTED_ON, AGENT_ACTED_ON, unsupported_fields
from actors.agents.approvals import FixedResponder
from actors.agents.contract import (
    DEFAULT_EXEC_TIMEOUT,
    MAX_SKILLS,
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
from actors.agents.roster import AgentDef, Agents
from actors.agents.routing import Routing
from actors.agents.verification import Verification
from actors.containment.lines import QueueOrder
from actors.containment.prices import OnUnknownPrice
from actors.errors import ConfigError

DONE = Verification.workspace_file_contains("done.txt", "done")
ROSTER = Agents().with_agent(AgentDef("searcher").with_model("cheap").with_deny_write()).with_agent(AgentDef("author"))
LIVE = object()

# For each field a value that is not the default, and the builder that sets it.
OTHERS = {
    "goal": ("other", None),
    "file": ("other.txt", None),
    "verify": (DONE, lambda c, v: c.with_verification(v)),
    "root": ("elsewhere", None),
    "constraints": (("be kind",), lambda c, v: c.with_constraint(*v)),
    "prompt": (Prompt(PromptKind.preset, "careful"), lambda c, v: c.with_prompt(v)),
    "instructions": (("use tabs",), lambda c, v: c.with_instruction(*v)),
    "conversational": (False, lambda c, v: c.with_conversational(v)),
    "max_steps": (20, lambda c, v: c.with_max_steps(v)),
    "max_duration": (900.0, lambda c, v: c.with_time_budget(v)),
    "max_tokens": (200_000, lambda c, v: c.with_token_budget(v)),
    "max_output_tokens": (100, lambda c, v: c.with_max_output_tokens(v)),
    "max_retries": (0, lambda c, v: c.with_max_retries(v)),
    "retry": (RetryPolicy(1.0, 2.0), lambda c, v: c.with_retry_policy(v)),
    "stall": (StallPolicy(0), lambda c, v: c.with_stall_policy(v)),
    "context": (ContextBudget(floor=1), lambda c, v: c.with_context_budget(v)),
    "compaction": (Compaction(0.5), lambda c, v: c.with_compaction(v)),
    "max_read_chars": (10, lambda c, v: c.with_max_read_chars(v)),
    "max_wait_secs": (3.0, lambda c, v: c.with_max_wait(v)),
    "memory": (MemoryCaps(1, 1), lambda c, v: c.with_memory_caps(v)),
    "exec_timeout": (60.0, lambda c, v: c.with_exec_timeout(v)),
    "lease_ttl": (10.0, lambda c, v: c.with_lease_ttl(v)),
    "spawn_background_after": (1.0, lambda c, v: c.with_spawn_background_after(v)),
    "detached_spawns": (False, lambda c, v: c.with_detached_spawns(v)),
    "exec_sandbox": (ExecSandbox.read_only, lambda c, v: c.with_exec_sandbox(v)),
    "exec_caps": (ExecCaps(cpu_seconds=60), lambda c, v: c.with_exec_caps(v)),
    "mcp": ((LIVE,), lambda c, v: c.with_mcp(v)),
    "lsp": ((LIVE,), lambda c, v: c.with_lsp(v)),
    "browser": (LIVE, lambda c, v: c.with_browser(v)),
    "tools": (LIVE, lambda c, v: c.with_tools(v)),
    "skills": ("skills", lambda c, v: c.with_skills(v)),
    "plugins": ((LIVE,), lambda c, v: c.with_plugins(v)),
    "agents": (ROSTER, lambda c, v: c.with_agents(v)),
    "responder": (LIVE, lambda c, v: c.with_responder(v)),
    "plan_gate": (LIVE, lambda c, v: c.with_plan_gate(v)),
    "reviewer": (LIVE, lambda c, v: c.with_reviewer(v)),
    "tool_hooks": (LIVE, lambda c, v: c.with_tool_hooks(v)),
    "routing": (Routing(escalate_after=2, escalate_to="strong"), lambda c, v: c.with_routing(v)),
    "effort": ("high", lambda c, v: c.with_effort(v)),
    "web": (LIVE, lambda c, v: c.with_web(v)),
    "images": ((LIVE,), lambda c, v: c.with_images(v)),
    "commit_identity": (Identity("a", "b"), lambda c, v: c.with_commit_identity(v.name, v.email)),
    "check_writes": (True, lambda c, v: c.with_check_writes(v)),
    "max_parallel_reads": (1, lambda c, v: c.with_max_parallel_reads(v)),
    "pause_scope": (PauseScope.tree, lambda c, v: c.with_pause_scope(v)),
    "queue_order": (QueueOrder.fair, lambda c, v: c.with_queue_order(v)),
    "on_unknown_price": (OnUnknownPrice.tokens_only, lambda c, v: c.with_on_unknown_price(v)),
}
FIELDS = [field.name for field in attrs.fields(TaskContract)]
LIVES = [field.name for field in attrs.fields(TaskContract) if field.metadata["live"]]


@pytest.fixture
def workspace():
    return TaskContract.workspace("make it work", "repo")


def problems_of(plain):
    with pytest.raises(ConfigError) as refused:
        TaskContract.from_dict(plain)
    return refused.value.problems


# ── the two constructors, and the cases of the reference ────────────────────


def test_work_on_one_file_has_eight_steps_and_no_root():
    contract = TaskContract("say hello", "hello.txt", Verification.file_contains("hello"))
    assert (contract.max_steps, contract.root, contract.is_single_file) == (8, None, True)
    assert contract.file == Path("hello.txt")


def test_work_in_a_workspace_has_twelve_steps_and_needs_no_criterion(workspace):
    assert (workspace.max_steps, workspace.root, workspace.is_single_file) == (12, Path("repo"), False)
    assert workspace.verify == Verification.none()
    assert workspace.file == workspace.root
    assert workspace.with_verification(DONE) == TaskContract.workspace("make it work", Path("repo"), DONE)


def test_work_on_one_file_needs_a_criterion():
    with pytest.raises(TypeError, match="verify"):
        TaskContract("say hello", "hello.txt")


def test_the_defaults_are_those_of_the_reference(workspace):
    expected = {
        "constraints": (),
        "prompt": Prompt(PromptKind.builtin),
        "instructions": (),
        "conversational": None,
        "max_duration": None,
        "max_tokens": None,
        "max_output_tokens": 4_096,
        "max_retries": 2,
        "retry": RetryPolicy(0.5, 30.0),
        "stall": StallPolicy(3, 1),
        "context": ContextBudget(24_000, 0.5, 2_000),
        "compaction": Compaction(0.8, 8),
        "max_read_chars": None,
        "max_wait_secs": None,
        "memory": MemoryCaps(64, 16_000),
        "exec_timeout": 900.0,
        "lease_ttl": 1_800.0,
        "spawn_background_after": None,
        "detached_spawns": True,
        "exec_sandbox": None,
        "exec_caps": ExecCaps(None, None, None, None),
        "routing": None,
        "skills": None,
        "agents": Agents(),
        "effort": None,
        "check_writes": False,
        "max_parallel_reads": 10,
        "pause_scope": PauseScope.agent,
        "queue_order": QueueOrder.fifo,
        "on_unknown_price": OnUnknownPrice.refuse,
    }
    assert {name: getattr(workspace, name) for name in expected} == expected
    assert all(getattr(workspace, name) in (None, ()) for name in LIVES)
    others = {"goal", "file", "verify", "root", "max_steps", "commit_identity"}
    assert set(expected) | set(LIVES) | others == set(FIELDS)
    assert MemoryCaps().max_entry_chars == 2_000
    assert MAX_SKILLS == 64


def test_k1_the_three_bounds_are_set_apart(workspace):
    contract = (
        workspace.with_verification(Verification.command(argv=["cargo", "test"], expect_exit=0))
        .with_max_steps(20)
        .with_time_budget(900)
        .with_token_budget(200_000)
        .with_constraint("change no test")
    )
    assert contract.root is not None
    assert (contract.max_steps, contract.max_duration, contract.max_tokens) == (20, 900.0, 200_000)
    assert contract.constraints == ("change no test",)
    assert unsupported_fields(contract) == []


def test_k2_a_roster_keeps_its_agents_and_what_they_may_not(workspace):
    contract = workspace.with_agents(ROSTER)
    assert len(contract.agents) == 2
    assert contract.agents.get("searcher").deny_write is True


def test_k3_a_responder_is_set(workspace):
    responder = FixedResponder("yes")
    assert workspace.with_responder(responder).responder is responder


def test_k4_a_command_may_have_more_and_less_time_than_by_default(workspace):
    long, short = workspace.with_exec_timeout(2_400), workspace.with_exec_timeout(60)
    assert short.exec_timeout < DEFAULT_EXEC_TIMEOUT < long.exec_timeout


# ── builders and fields ─────────────────────────────────────────────────────


def test_every_field_is_tried_here():
    assert list(OTHERS) == FIELDS


@pytest.mark.parametrize("name", [name for name, (_value, build) in OTHERS.items() if build])
def test_every_builder_gives_a_changed_copy_and_every_keyword_the_same(name, workspace):
    value, build = OTHERS[name]
    changed = build(workspace, value)
    assert getattr(changed, name) != getattr(workspace, name)
    assert changed == TaskContract.workspace("make it work", "repo", **{name: value})


def test_builders_of_lists_add_where_the_reference_says_so(workspace):
    assert workspace.with_constraint("a").with_constraint("b").constraints == ("a", "b")
    assert workspace.with_instruction("a").with_instruction("b").instructions == ("a", "b")
    assert workspace.with_images(["a"]).with_images(["b"]).images == ("a", "b")
    assert workspace.with_mcp(["a"]).with_mcp(["b"]).mcp == ("b",)


def test_the_file_of_a_workspace_follows_its_root(workspace):
    moved = attrs.evolve(workspace, root="elsewhere")
    assert moved.file == moved.root == Path("elsewhere")


def test_who_commits_is_nobody_who_exists(workspace):
    assert workspace.commit_identity.email.endswith(".invalid")


def test_a_contract_cannot_be_changed(workspace):
    with pytest.raises(AttributeError):
        workspace.max_steps = 99


def test_meanings_of_never_are_one_compaction():
    never = [Compaction(share) for share in (1, 1.0, 7.5, -0.1, math.nan, math.inf)]
    assert all(each == Compaction(1.0) for each in never)
    assert Compaction(0).at_share == 0.0


def test_no_parallel_reads_means_one_at_a_time(workspace):
    assert workspace.with_max_parallel_reads(0).max_parallel_reads == 1


BAD = [
    ("goal", " "),
    ("goal", None),
    ("goal", "a\0b"),
    ("root", ""),
    ("root", 3),
    ("root", "a\0b"),
    ("verify", "none"),
    ("constraints", "be kind"),
    ("constraints", ["ok", ""]),
    ("instructions", [3]),
    ("conversational", 1),
    ("prompt", "careful"),
    ("max_steps", "12"),
    ("max_steps", True),
    ("max_steps", -1),
    ("max_steps", 2**63),
    ("max_steps", 12.0),
    ("max_duration", "900"),
    ("max_duration", math.nan),
    ("max_duration", math.inf),
    ("max_duration", -1),
    ("max_duration", True),
    ("max_duration", 10**400),
    ("max_tokens", -1),
    ("max_tokens", False),
    ("max_output_tokens", 0),
    ("max_retries", None),
    ("retry", 0.5),
    ("stall", None),
    ("max_read_chars", 0),
    ("exec_timeout", 0),
    ("exec_timeout", None),
    ("exec_timeout", "900"),
    ("lease_ttl", 0),
    ("detached_spawns", 1),
    ("exec_sandbox", "none"),
    ("mcp", "server"),
    ("skills", ""),
    ("agents", ["searcher"]),
    ("effort", "a\nb"),
    ("commit_identity", "me"),
    ("check_writes", 1),
    ("max_parallel_reads", -1),
    ("queue_order", "lifo"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_constructor_refuses_what_it_cannot_mean_by_the_name_of_the_field(name, value):
    fields = {"goal": "g", "root": "r", name: value}
    with pytest.raises(ValueError, match=rf"^{name} "):
        TaskContract(file="r", **{"verify": DONE, **fields})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RetryPolicy(base=-1), "base"),
        *((lambda bad=bad: Identity(bad, "a@b.invalid"), "name") for bad in ("", " ", "a\nb", "a <b", "x>", '."', 7)),
        *((lambda bad=bad: Identity("a", bad), "email") for bad in ("", "\t", "a@b>", "<>", "\x1b[m", "e" * 201)),
        (lambda: RetryPolicy(max=math.inf), "max"),
        (lambda: StallPolicy(window=True), "window"),
        (lambda: StallPolicy(max_replans=-1), "max_replans"),
        (lambda: ContextBudget(share=0), "share"),
        (lambda: ContextBudget(share=math.nan), "share"),
        (lambda: ContextBudget(max_tokens="1"), "max_tokens"),
        (lambda: Compaction(at_share="0.5"), "at_share"),
        (lambda: Compaction(keep_recent=1.0), "keep_recent"),
        (lambda: MemoryCaps(max_chars=-1), "max_chars"),
        (lambda: Identity("", "a@b"), "name"),
        (lambda: Identity("a\nb", "a@b"), "name"),
        (lambda: Identity("a", " "), "email"),
        (lambda: Prompt("loud"), "kind"),
        (lambda: Prompt("builtin", "more"), "text"),
        (lambda: Prompt("append", " "), "text"),
        (lambda: Prompt("preset", "loud"), "text"),
    ],
)
def test_a_part_refuses_what_it_cannot_mean_by_the_name_of_the_field(make, name):
    with pytest.raises(ValueError, match=rf"^{name} "):
        make()


# ── plain form ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in LIVES])
def test_the_plain_form_gives_back_an_equal_contract_through_json(name, workspace):
    contract = attrs.evolve(workspace, **{name: OTHERS[name][0]})
    text = json.dumps(contract.to_dict(), allow_nan=False)
    read = TaskContract.from_dict(json.loads(text))
    assert read == contract
    assert json.dumps(read.to_dict()) == text


def test_the_plain_form_of_work_on_one_file_gives_it_back():
    contract = TaskContract("g", "f.txt", Verification.file_equals("x"), max_steps=3)
    assert TaskContract.from_dict(contract.to_dict()) == contract


def test_a_task_file_gives_what_its_constructor_gives():
    plain = {"goal": "make the tests pass", "root": ".", "max_duration": 900, "retry": {"max": 5}}
    verify = Verification.command(["pytest", "-q"])
    retry = RetryPolicy(max=5.0)
    expected = TaskContract.workspace("make the tests pass", ".", verify, max_duration=900.0, retry=retry)
    assert TaskContract.from_dict({**plain, "verify": {"kind": "command", "argv": ["pytest", "-q"]}}) == expected
    assert TaskContract.from_dict(plain).verify == Verification.none()


@given(st.integers(0, 50), st.none() | st.integers(0, 9), st.none() | st.floats(0, 1e9), st.lists(st.just("c")))
def test_numbers_come_back_as_they_were(steps, tokens, seconds, constraints):
    contract = TaskContract.workspace(
        "g", "r", max_steps=steps, max_tokens=tokens, max_duration=seconds, constraints=constraints
    )
    assert TaskContract.from_dict(json.loads(json.dumps(contract.to_dict()))) == contract


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, value in BAD if name not in LIVES])
def test_a_reader_refuses_what_a_constructor_refuses(name, value):
    found = problems_of({"goal": "g", "root": "r", name: value})
    assert [path.split(".")[1] for path, _text in found] == [name]


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"goal": "g"}, "contract.root"),
        ({"goal": "g", "file": "f"}, "contract.verify"),
        ({"goal": "g", "root": "r", "file": "f"}, "contract.file"),
        ({"root": "r"}, "contract.goal"),
        ({"goal": "g", "root": "r", "verify": {"kind": "nothing"}}, "contract.verify.kind"),
        ({"goal": "g", "root": "r", "retry": {"bsae": 1}}, "contract.retry.bsae"),
        ({"goal": "g", "root": "r", "retry": 1}, "contract.retry"),
        ({"goal": "g", "root": "r", "prompt": {"kind": "preset", "text": "loud"}}, "contract.prompt"),
        ({"goal": "g", "root": "r", "agents": {"a": {"allow_net": True}}}, "contract.agents.a.allow_net"),
        ({"goal": "g", "root": "r", "mcp": [{"name": "s"}]}, "contract.mcp"),
        ({"goal": "g", "root": "r", "responder": "me"}, "contract.responder"),
        ([], "contract"),
    ],
)
def test_a_wrong_plain_form_is_refused_with_the_path_of_the_key(plain, path):
    assert [found for found, _text in problems_of(plain)] == [path]


def test_all_problems_are_told_and_not_only_the_first():
    plain = {"gaol": "g", "root": "r", "max_steps": "12", "stall": {"window": -1, "windwo": 1}, "max_tokens": True}
    assert dict(problems_of(plain)) == {
        "contract.gaol": "unknown key; did you mean goal?",
        "contract.goal": "is required",
        "contract.max_steps": "must be a whole number, not '12'",
        "contract.stall.windwo": "unknown key; did you mean window?",
        "contract.stall.window": "must be at least 0, and is -1",
        "contract.max_tokens": "must be a whole number, not True",
    }


@pytest.mark.parametrize("name", LIVES)
def test_objects_of_this_process_are_never_written_down_in_silence(name, workspace):
    assert name not in workspace.to_dict()
    with pytest.raises(ConfigError, match=rf"^contract\.{name}: "):
        attrs.evolve(workspace, **{name: OTHERS[name][0]}).to_dict()


@pytest.mark.parametrize("name", LIVES)
def test_an_absent_object_may_be_written_as_absent(name, workspace):
    assert TaskContract.from_dict({"goal": "make it work", "root": "repo", name: None}) == workspace


# ── what would be ignored ───────────────────────────────────────────────────


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_acted_on_or_named_when_it_is_set(name, workspace):
    contract = attrs.evolve(workspace, **{name: OTHERS[name][0]})
    found = dict(unsupported_fields(contract))
    assert set(found) == (set() if name in ACTED_ON else {f"contract.{name}"})
    assert all("remove it" in text for text in found.values())


def test_nothing_is_named_on_a_contract_of_defaults(workspace):
    assert unsupported_fields(workspace) == []
    assert unsupported_fields(TaskContract("g", "f", Verification.file_contains("x"))) == []
    assert set(FIELDS) >= ACTED_ON


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(AgentDef)])
def test_every_field_of_an_agent_is_acted_on_or_named_when_it_is_set(name, workspace):
    others = {
        "name": "other",
        "role": "You read.",
        "model": "cheap",
        "max_steps": 2,
        "effort": "high",
        "deny_write": True,
        "deny_net": True,
        "worktree": True,
        "tools": ("grep",),
        "description": "for reading",
    }
    agent = attrs.evolve(AgentDef("a"), **{name: others[name]})
    found = [path for path, _text in unsupported_fields(workspace.with_agents(Agents().with_agent(agent)))]
    assert found == ([] if name in AGENT_ACTED_ON else [f"contract.agents.a.{name}"])


@pytest.mark.parametrize(
    "verify",
    [
        Verification.document_contains("a", "b"),
        Verification.file_contains("x"),
        Verification.file_equals("x"),
    ],
    ids=lambda verify: verify.kind,
)
def test_a_criterion_that_cannot_be_judged_in_a_workspace_is_named(verify, workspace):
    found = unsupported_fields(workspace.with_verification(verify))
    assert [path for path, _text in found] == ["contract.verify.kind"]


def test_a_criterion_of_a_workspace_is_named_for_work_on_one_file():
    found = unsupported_fields(TaskContract("g", "f", DONE))
    assert [path for path, _text in found] == ["contract.verify.kind"]


def test_all_that_would_be_ignored_is_named_at_once(workspace):
    contract = workspace.with_skills("skills").with_web(LIVE).with_pause_scope(PauseScope.tree)
    assert [path for path, _text in unsupported_fields(contract)] == [
        "contract.skills",
        "contract.web",
        "contract.pause_scope",
    ]


def test_a_childs_contract_keeps_every_knob_and_is_judged_where_it_differs(tmp_path):
    parent = TaskContract.workspace("parent", tmp_path, max_tokens=7, constraints=("a",), exec_timeout=3.0)
    child = parent.for_child("child", Verification.workspace_file_contains("a", "b"), 5)
    assert (child.goal, child.max_steps, child.verify.kind) == ("child", 5, "workspace_file_contains")
    for field in attrs.fields(TaskContract):
        if field.name not in ("goal", "verify", "max_steps"):
            assert getattr(child, field.name) == getattr(parent, field.name), field.name
    for goal, steps in (("", 5), ("child", -1), ("child", True)):
        with pytest.raises(ValueError):
            parent.for_child(goal, Verification.none(), steps)
    # What is not judged again here is judged as ever elsewhere.
    with pytest.raises(ValueError):
        attrs.evolve(parent, max_retries=-1)
