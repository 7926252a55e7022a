"""The boundary of commands in a run: asked for by name it holds or nothing starts, and what held is written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import ExecCaps, ExecSandbox, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import ToolCall
from actors.agents.verification import Verification
from actors.assembly.reopening import reopen
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.providers.scripted import Scripted, ScriptedAnswer
from actors.store.store import MemoryStore, Store
from actors.testing.machines import Machine
from actors.tools import sandbox
from actors.tools.sandbox import detect
from actors.tools.sandbox_plan import Capabilities

READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
CAN = detect()
HOLDS = CAN.bubblewrap is not None or (CAN.landlock >= 3 and (CAN.namespaces or CAN.seccomp))
holds = pytest.mark.skipif(not HOLDS, reason="nothing here holds a boundary")
BACKEND = "bubblewrap" if CAN.bubblewrap else "landlock"
LIMITS = Containment(4, 2, 2, 1_000_000)
POLICY = Policy.default().layer("operator").allow_exec("*").allow_write("*")




def sh(line: str) -> tuple[str, dict[str, Any]]:
    return "exec", {"argv": ["sh", "-c", line]}


def asked(line: str) -> ToolCall:
    name, arguments = sh(line)
    return ToolCall(name, json.dumps(arguments))


async def ran(
    root: Path, answers, store: Store | None = None, policy: Policy = POLICY, verify: Verification | None = None, **knobs
) -> tuple[RunResult, Scripted]:
    provider = Scripted(answers)
    contract = TaskContract.workspace("work", root, verify, **knobs)
    return await run_tree(contract, provider, store, policy, ApproveAll(), LIMITS), provider


def used(store: MemoryStore) -> list[tuple[Any, ...]]:
    return list(store.select("SELECT run_id, step, ordinal, mode, backend, net FROM sandbox_events ORDER BY id"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "workspace"
    inside.mkdir()
    return inside


@holds
async def test_what_applied_is_a_row_and_an_event_for_every_command_and_for_the_check(root):
    store = Store.memory()
    check = Verification.command(["test", "-e", "made"])
    result, _ = await ran(root, [[sh("true"), sh("echo x > made")]], store, verify=check, exec_sandbox=WRITE)
    assert result.outcome.kind is OutcomeKind.success
    run = result.run_id
    assert used(store) == [
        (run, 1, 1, "workspace_write", BACKEND, "denied"),
        (run, 1, 2, "workspace_write", BACKEND, "denied"),
        (run, 1, None, "workspace_write", BACKEND, "denied"),
    ]
    events = [json.loads(event) for (event,) in store.select("SELECT event FROM run_events ORDER BY id")]
    told = [event for event in events if event["kind"] == "sandbox"]
    assert [(each["ordinal"], each["backend"], each["net"]) for each in told] == [
        (1, BACKEND, "denied"),
        (2, BACKEND, "denied"),
        (None, BACKEND, "denied"),
    ]


@pytest.mark.parametrize("mode", [READ_ONLY, WRITE])
async def test_a_named_boundary_that_cannot_be_had_fails_before_anything_is_started(root, mode, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(Capabilities()))
    store = Store.memory()
    with pytest.raises(ConfigError) as refused:
        await ran(root, [[sh("echo x > made")]], store, exec_sandbox=mode)
    [(place, text)] = refused.value.problems
    assert place == "contract.exec_sandbox"
    assert f"{mode} cannot be held here" in text
    assert "install bubblewrap" in text
    assert store.select("SELECT * FROM runs") == []
    assert list(root.iterdir()) == []


async def test_a_network_that_must_be_denied_and_cannot_be_fails_a_named_boundary_too(root, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(Capabilities(landlock=7)))
    with pytest.raises(ConfigError, match="the policy denies the network, and landlock alone cannot"):
        await ran(root, [[sh("true")]], exec_sandbox=WRITE)


async def test_a_boundary_that_nobody_named_is_told_when_it_does_not_hold(root, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(Capabilities()))
    store = Store.memory()
    result, _ = await ran(root, [[sh("echo x > made")], ScriptedAnswer(text="done")], store)
    assert used(store) == [(result.run_id, 1, 1, "workspace_write", "none", "not_held")]
    [(not_held,)] = store.select("SELECT not_held FROM sandbox_events")
    assert json.loads(not_held) == ["workspace_write: neither bubblewrap nor landlock works"]
    assert (root / "made").exists()


async def test_full_access_is_recorded_as_no_boundary(root):
    store = Store.memory()
    result, _ = await ran(root, [[sh(f"echo x > {root.parent}/made")], ScriptedAnswer(text="done")], store, exec_sandbox=FULL)
    assert used(store) == [(result.run_id, 1, 1, "full_access", "none", "not_held")]
    [(not_held,)] = store.select("SELECT not_held FROM sandbox_events")
    assert json.loads(not_held) == ["full_access: no rule for files or the network binds a command"]
    assert (root.parent / "made").exists()


@holds
async def test_a_child_is_behind_its_parents_boundary_and_its_own_policy(root):
    store = Store.memory()
    outside = root.parent / "outside"
    answers = [
        [("spawn_agent", {"goal": "child", "deny_write": ["*"], "verify": {"kind": "none"}})],
        ScriptedAnswer(calls=(asked(f"echo x > {outside}"), asked("echo x > inside")), when="child"),
        ScriptedAnswer(text="child done", when="child"),
        [sh(f"echo x > {outside}"), sh("echo x > mine")],
        ScriptedAnswer(text="done"),
    ]
    policy = POLICY.allow_net("*")
    result, _ = await ran(root, answers, store, policy, exec_sandbox=WRITE)
    child = f"{result.run_id}/1.1"
    assert {row[0] for row in used(store)} == {result.run_id, child}
    assert {row[3:] for row in used(store)} == {("workspace_write", BACKEND, "open")}
    assert not outside.exists()
    assert [each.name for each in root.iterdir()] == ["mine"]


@holds
async def test_every_agent_below_has_the_mode_and_the_caps_of_the_root(root):
    parent = TaskContract.workspace("g", root, exec_sandbox=READ_ONLY, exec_caps=ExecCaps(cpu_seconds=3))
    child = parent.for_child("h", Verification.none(), 2)
    assert (child.exec_sandbox, child.exec_caps) == (READ_ONLY, ExecCaps(cpu_seconds=3))
    assert TaskContract.from_dict(child.to_dict()) == child


@holds
async def test_a_cap_that_ended_a_command_is_told_to_the_model(root):
    caps = ExecCaps(wall_seconds=0.3)
    _, provider = await ran(root, [[sh("sleep 60")], ScriptedAnswer(text="done")], exec_caps=caps)
    assert "the cap wall_seconds was reached" in str(provider.requests[-1].turns)


@holds
async def test_a_key_of_ours_is_nowhere_a_command_or_a_store_can_show_it(root, monkeypatch):
    monkeypatch.setenv("MODEL_API_KEY", "canary-of-a-key")
    store = Store.memory()
    line = "env; cat /proc/self/environ; cat /proc/*/environ 2>/dev/null; set"
    _, provider = await ran(root, [[sh(line)], ScriptedAnswer(text="done")], store, exec_sandbox=WRITE)
    assert "canary-of-a-key" not in str(provider.requests)
    for (table,) in store.select("SELECT name FROM sqlite_master WHERE type = 'table'"):
        assert "canary-of-a-key" not in str(store.select(f"SELECT * FROM {table}"))


async def test_a_reopening_asks_again_whether_the_boundary_holds(tmp_path, root, monkeypatch):
    if not HOLDS:
        pytest.skip("nothing here holds a boundary")
    async with Store.open(str(tmp_path / "runs.db")) as store:
        result, _ = await ran(root, [[sh("true")]] * 2, store, exec_sandbox=WRITE, max_steps=1)
        monkeypatch.setattr(sandbox, "detect", Machine(Capabilities()))
        with pytest.raises(ConfigError, match=r"contract\.exec_sandbox"):
            longer = TaskContract.workspace("work", root, exec_sandbox=WRITE, max_steps=3)
            await reopen(result.run_id, Scripted([]), store, approver=ApproveAll(), contract=longer)
        assert len(store.select("SELECT * FROM runs")) == 1


async def test_a_reopening_is_refused_when_more_is_closed_by_now_than_can_be_covered(tmp_path, root):
    if not HOLDS:
        pytest.skip("nothing here holds a boundary")
    async with Store.open(str(tmp_path / "runs.db")) as store:
        result, _ = await ran(root, [[sh("for n in $(seq 1001); do mkdir $n; : > $n/a.pem; done")]] * 2, store, max_steps=1)
        longer = TaskContract.workspace("work", root, exec_sandbox=WRITE, max_steps=3)
        with pytest.raises(ConfigError, match=r"contract\.exec_sandbox: .*1,001 denied files .* 1,000 can be covered"):
            await reopen(result.run_id, Scripted([]), store, approver=ApproveAll(), contract=longer)
        assert len(store.select("SELECT * FROM runs")) == 1


READING = "for file in ../runs.db* ../.actors/* ./.actors/*; do cat $file > /dev/null 2>&1 && echo read $file; done; true"


@holds
@pytest.mark.parametrize("policy", [POLICY, Policy.permissive()], ids=["default", "permissive"])
@pytest.mark.parametrize("kept", ["runs.db", ".actors/runs.db", "workspace/.actors/runs.db"])
async def test_no_command_and_no_check_reads_the_store_of_its_run(tmp_path, root, kept, policy):
    (tmp_path / kept).parent.mkdir(exist_ok=True)
    inside = kept.startswith("workspace")
    if inside and not (CAN.bubblewrap or CAN.namespaces):
        pytest.skip("rules alone hide nothing where commands write, and say so")
    # A shell finds out by reading, and the check fails where it could.
    check = Verification.command(["sh", "-c", f"test $( ({READING}) | wc -l) = 0"])
    script = [[sh(READING)], [sh("sqlite3 ../runs.db .dump; echo x >> ../runs.db; true")], ScriptedAnswer(text="done")]
    async with Store.open(str(tmp_path / kept)) as store:
        result, _ = await ran(root, script, store, policy, check, exec_sandbox=WRITE)
        assert [each.verdict for each in store.gate_attempts(result.run_id)] == ["passed"]
        told = "".join(each.text for each in store.observations(result.run_id))
    assert "read ." not in told and result.outcome.kind is OutcomeKind.success


async def test_control_a_command_without_a_boundary_reads_it(tmp_path, root):
    async with Store.open(str(tmp_path / "runs.db")) as store:
        result, _ = await ran(root, [[sh(READING)], ScriptedAnswer(text="done")], store, exec_sandbox=FULL)
        assert "read ../runs.db" in store.observations(result.run_id)[0].text
