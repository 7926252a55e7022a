"""The judged cannot change its judge: attacks that make a failing check pass, each with a control that shows it would."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.judging import Pins, pinned_by
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.assembly import running
from actors.assembly.reopening import reopen
from actors.assembly.running import RunResult, run_tree, run_with
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.records import GateRecord
from actors.store.store import Store
from actors.testing.dying_store import Death
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench
from actors.tools.protected import WorkspaceFiles

LIMITS = Containment(10, 4, 2, 10**6)
# A check that reads its tests and a file of settings, and fails while nobody touches them.
CHECK = """
import pathlib, runpy
rules = runpy.run_path("conftest.py") if pathlib.Path("conftest.py").exists() else {}
for test in sorted(pathlib.Path("tests").glob("test_*.py")):
    if test.name in rules.get("SKIP", ()):
        continue
    runpy.run_path(str(test))
"""
FAILING = "assert open('src.txt').read() == 'right', 'src.txt is wrong'\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "test_src.py").write_text(FAILING)
    (root / "check.py").write_text(CHECK)
    (root / "src.txt").write_text("wrong")
    return root


def criterion(protect: bool, argv: tuple[str, ...] = (sys.executable, "check.py")) -> Verification:
    return Verification.command(argv, protect=["tests/*", "conftest.py", "check.py"] if protect else [])


def sh(line: str) -> tuple[str, dict[str, Any]]:
    return call("exec", argv=["sh", "-c", line])


async def ran(work: Path, verify: Verification, *calls: Any, store: Store | None = None) -> tuple[RunResult, list[GateRecord]]:
    kept = Store.memory() if store is None else store
    contract = TaskContract.workspace("make the check pass", work, verify).with_max_steps(len(calls))
    model = Scripted([[each] for each in calls])
    result = await run_with(contract, model, kept, Policy.permissive(), ApproveAll())
    return result, kept.gate_attempts(result.run_id)


ATTACKS = {
    "the test is edited": [call("edit_file", path="tests/test_src.py", search="right", replace="wrong")],
    "the test is written anew": [call("write_file", path="tests/test_src.py", content="")],
    "the test is deleted": [sh("rm tests/test_src.py")],
    "the test is renamed": [sh("mv tests/test_src.py tests/src_test.py")],
    "all tests are moved away": [sh("mv tests old; mkdir tests")],
    "the tests become a link": [sh("mkdir mine; mv tests old; ln -s mine tests")],
    "settings are added": [call("write_file", path="conftest.py", content="SKIP = ['test_src.py']\n")],
    "the check is edited": [call("write_file", path="check.py", content="")],
    "the check becomes a link": [sh("echo > ok.py; ln -sf ok.py check.py")],
    "a test ends the check": [call("write_file", path="tests/test_a.py", content="raise SystemExit(0)\n")],
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_AB150_an_attack_on_the_check_gets_no_verdict(work: Path, name: str) -> None:
    result, gates = await ran(work, criterion(protect=True), *ATTACKS[name])
    assert result.outcome.kind is OutcomeKind.step_cap_reached
    assert [gate.verdict for gate in gates] == ["errored"]
    assert gates[0].detail.startswith("what the check depends on is not as it was at the start: ")


@pytest.mark.parametrize("name", ATTACKS)
async def test_AB150_the_control_every_attack_works_without_protection(work: Path, name: str) -> None:
    result, gates = await ran(work, criterion(protect=False), *ATTACKS[name])
    assert result.outcome.kind is OutcomeKind.success and gates[-1].verdict == "passed"


async def test_a_check_that_is_not_the_one_of_the_start_is_not_even_run(work: Path) -> None:
    attack = call("write_file", path="check.py", content="open('ran', 'w')\n")
    await ran(work, criterion(protect=True), attack)
    assert not (work / "ran").exists()
    await ran(work, criterion(protect=True), call("list_dir", path="."))
    assert (work / "ran").exists(), "the control: for a run that begins now, it is the check"


async def test_honest_work_passes(work: Path) -> None:
    honest = [
        sh(f"{sys.executable} check.py || true"),
        call("write_file", path="notes/new.py", content="x"),
        call("write_file", path="src.txt", content="right"),
    ]
    result, gates = await ran(work, criterion(protect=True), *honest)
    assert result.outcome.kind is OutcomeKind.success
    assert [gate.verdict for gate in gates] == ["failed", "failed", "passed"]
    assert "src.txt is wrong" in gates[0].detail, "what the check printed is kept"


async def test_what_was_put_back_counts_again(work: Path) -> None:
    spoil, mend = (
        call("edit_file", path="tests/test_src.py", search=a, replace=b) for a, b in (("right", "rite"), ("rite", "right"))
    )
    _, gates = await ran(work, criterion(protect=True), spoil, mend, call("write_file", path="src.txt", content="right"))
    assert [gate.verdict for gate in gates] == ["errored", "failed", "passed"]


async def test_a_check_that_changes_its_own_judge_while_it_runs_gets_no_verdict(work: Path) -> None:
    """The code under test runs inside the check: what it does to the tests is seen behind it."""
    (work / "tests" / "test_src.py").write_text("import runpy\nrunpy.run_path('src.py')\n")
    evil = "open('tests/test_src.py', 'w').write('')\nraise SystemExit(0)\n"
    _, gates = await ran(work, criterion(protect=True), call("write_file", path="src.py", content=evil))
    assert gates[-1].verdict == "errored" and "tests/test_src.py (changed)" in gates[-1].detail


SWAPS = {
    "a file is put beside and back": ("mv tests/t.sh kept; echo exit 0 > tests/t.sh", "mv -f kept tests/t.sh"),
    "a file is written over and back": ("cp -p tests/t.sh kept; echo exit 0 > tests/t.sh", "cat kept > tests/t.sh; touch -r kept tests/t.sh"),
    "a link leads elsewhere and back": ("echo exit 0 > kept; rm tests/t.sh; ln -s ../kept tests/t.sh", "ln -sf ../real.sh tests/t.sh"),
    "a folder is moved away and back": ("mv tests kept; mkdir tests; echo exit 0 > tests/t.sh", "rm -r tests; mv kept tests"),
}


@pytest.mark.parametrize("attack", SWAPS)
@pytest.mark.parametrize("protect", [True, False])
async def test_a_judge_that_is_another_only_while_it_judges_gives_no_verdict(work: Path, attack: str, protect: bool) -> None:
    """What is under test runs in the check, and commands in the background run beside it: all is put back behind it."""
    swap, back = SWAPS[attack]
    (work / "real.sh").write_text("exit 1\n")
    if "link" in attack:
        (work / "tests" / "t.sh").symlink_to("../real.sh")
    else:
        (work / "tests" / "t.sh").write_text("exit 1\n")
    line = "sh before.sh; sh tests/t.sh; code=$?; sh after.sh; exit $code"
    verify = Verification.command(["sh", "-c", line], protect=["tests/*"] if protect else [])
    plants = sh(f"echo {shlex.quote(swap)} > before.sh; echo {shlex.quote(back)} > after.sh")
    _, gates = await ran(work, verify, plants)
    assert (work / "tests" / "t.sh").read_text() == "exit 1\n", "all is as it was"
    assert gates[0].verdict == ("errored" if protect else "passed"), "the control: nobody looks"
    assert not protect or "was touched while it ran: tests/" in gates[0].detail


async def test_a_check_may_make_files_beside_its_judge(work: Path) -> None:
    verify = Verification.command(["sh", "-c", "touch tests/out; rm tests/out; mkdir -p tests/cache"], protect=["tests/*.py"])
    _, gates = await ran(work, verify, call("list_dir", path="."))
    assert [gate.verdict for gate in gates] == ["passed"]


class Blind(WorkspaceFiles):
    """Notes that there is a check, and nothing that it depends on: the control."""

    async def pin(self, criterion: Verification, root: str) -> Pins:
        await trio.lowlevel.checkpoint()
        return Pins(pinned_by(criterion) or "")


@pytest.mark.parametrize("guarded", [True, False])
async def test_AB150_a_program_of_its_own_put_first_in_path(work: Path, monkeypatch: Any, guarded: bool) -> None:
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    attack = sh("mkdir -p bin; printf '#!/bin/sh\\nexit 0\\n' > bin/false; chmod +x bin/false")
    if not guarded:
        monkeypatch.setattr(running, "FILES", Blind())
    # Without any glob: the check's own program is its judge in any case.
    result, gates = await ran(work, criterion(protect=False, argv=("false",)), attack)
    if guarded:
        assert result.outcome.kind is OutcomeKind.step_cap_reached
        assert gates[0].verdict == "errored" and "program false (changed)" in gates[0].detail
    else:
        assert result.outcome.kind is OutcomeKind.success


async def test_AB150_the_checks_own_program_in_the_workspace_is_protected_without_a_glob(work: Path) -> None:
    judge = work / "judge.sh"
    judge.write_text("#!/bin/sh\nexit 1\n")
    judge.chmod(0o755)
    attack = call("write_file", path="judge.sh", content="#!/bin/sh\nexit 0\n")
    _, gates = await ran(work, Verification.command(["./judge.sh"]), attack)
    assert gates[0].verdict == "errored" and "program ./judge.sh (changed)" in gates[0].detail
    # The control: the file does pass now, for somebody who begins here.
    _, gates = await ran(work, Verification.command(["./judge.sh"]), call("list_dir", path="."))
    assert gates[0].verdict == "passed"


async def test_a_program_that_is_itself_the_work_is_judged(work: Path) -> None:
    make = sh("printf '#!/bin/sh\\nexit 0\\n' > made.sh; chmod +x made.sh")
    result, _ = await ran(work, Verification.command(["./made.sh"]), make)
    assert result.outcome.kind is OutcomeKind.success


async def test_sitecustomize_through_an_environment_of_the_agents_own_does_not_reach_the_check(work: Path) -> None:
    """What an agent sets for its command ends with it; the control is the command itself."""
    evil = call("write_file", path="lib/sitecustomize.py", content="import os\nos._exit(0)\n")
    attack = call("exec", argv=["env", f"PYTHONPATH={work / 'lib'}", sys.executable, "check.py"])
    store = Store.memory()
    result, gates = await ran(work, criterion(protect=True), evil, attack, store=store)
    assert [gate.verdict for gate in gates] == ["failed", "failed"]
    assert store.observations(result.run_id)[-1].text.startswith("[exit code 0]"), "the control"


# ── the start ───────────────────────────────────────────────────────────────


async def test_more_than_can_be_looked_at_is_told_before_anything_starts(work: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(running, "FILES", WorkspaceFiles(most_files=1))
    (work / "tests" / "test_b.py").write_text("")
    store, model = Store.memory(), Scripted([])
    contract = TaskContract.workspace("g", work, criterion(protect=True))
    with pytest.raises(ConfigError, match="more than 1 files are protected; write narrower globs"):
        await run_with(contract, model, store, Policy.permissive(), ApproveAll())
    assert store.runs() == [] and model.calls == 0


@pytest.mark.parametrize("glob", ["tests", "TESTS/*", "*.pyx", "/etc/*", "test/test_src.py"])
async def test_a_glob_that_protects_nothing_is_told_before_anything_starts(work: Path, glob: str) -> None:
    store, model = Store.memory(), Scripted([])
    contract = TaskContract.workspace("g", work, Verification.command(["true"], protect=["tests/*", glob]))
    with pytest.raises(ConfigError) as refused:
        await run_with(contract, model, store, Policy.permissive(), ApproveAll())
    assert [place for place, _text in refused.value.problems] == ["contract.verify.protect"]
    assert store.runs() == [] and model.calls == 0


async def test_a_path_that_must_not_come_into_being_is_said_at_the_start(work: Path, caplog: Any) -> None:
    _, gates = await ran(work, criterion(protect=True), *ATTACKS["settings are added"])
    assert "conftest.py (new)" in gates[0].detail
    [said] = [record.getMessage() for record in caplog.records if record.name == "actors.task"]
    assert said == "contract.verify.protect: conftest.py is not there, and must not be made"


async def test_a_child_whose_globs_protect_nothing_ends_before_it_begins(work: Path) -> None:
    verify = {"kind": "command", "argv": ["true"], "protect": ["tests"]}
    result, store = await tree_of(work, answers_of([call("list_dir", path=".")] * 3, verify), Verification.none())
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and (record.outcome, record.steps) == ("failed", 0)
    assert store.gate_attempts(child) == [] and store.provider_calls(child) == []
    told = store.observations(result.run_id)[0].text
    assert '"tests" names a directory, and protects no file in it; write "tests/*"' in told


@pytest.mark.parametrize("denied", [True, False])
async def test_a_childs_globs_do_not_tell_the_names_of_files_that_it_may_not_read(work: Path, denied: bool) -> None:
    """A model could ask letter by letter, and would read whether there is such a file, or such a directory."""
    (work / "hidden").mkdir()
    (work / "hidden" / "secret.txt").write_text("")
    policy = Policy.permissive().layer("o")
    told = []
    for glob in ("hidden/s*", "hidden/q*", "hid*"):
        verify = {"kind": "command", "argv": ["true"], "protect": [glob]}
        given = policy.deny_read("hidden/*") if denied else policy
        child = answers_of([call("list_dir", path=".")], verify)
        result, store = await tree_of(work, child, Verification.none(), given)
        told.append(store.observations(result.run_id)[0].text.replace(glob, "GLOB"))
    said = ["matches no file that may be read" in text for text in told]
    assert said == ([True] * 3 if denied else [False, True, False])
    assert told[0] == told[1] or not denied


@pytest.mark.parametrize("changed", [False, True])
async def test_a_reopened_run_is_refused_globs_that_protect_nothing(tmp_path: Path, work: Path, changed: bool) -> None:
    bench = bench_of(tmp_path, work, protect=True)
    result = await bench.begin()
    assert result is not None
    async with Store.open(bench.file) as store:
        verify = Verification.command(["true"], protect=["tests"]) if changed else criterion(protect=True)
        contract = TaskContract.workspace("root", work, verify).with_max_steps(5)
        model = Scripted([[call("list_dir", path=".")]])
        going = reopen(result.run_id, model, store, approver=ApproveAll(), contract=contract)
        if not changed:
            assert (await going).run_id != result.run_id, "the control"
            return
        with pytest.raises(ConfigError, match="names a directory"):
            await going
        assert len(store.runs()) == 1 and model.calls == 0


# ── a second process ────────────────────────────────────────────────────────


def bench_of(tmp_path: Path, work: Path, protect: bool) -> Bench:
    answers = {
        "root": [
            [call("write_file", path="tests/test_src.py", content="")],
            [call("list_dir", path=".")],
            [call("list_dir", path="tests")],
        ]
    }
    contract = TaskContract.workspace("root", work, criterion(protect)).with_max_steps(3)
    return Bench(tmp_path, answers, contract=contract)


def wrote(rows: Any) -> bool:
    return any(type(row).__name__ == "StepDone" for row in rows)


@pytest.mark.parametrize("protect", [True, False])
async def test_a_resume_compares_with_what_stood_there_first(tmp_path: Path, work: Path, protect: bool) -> None:
    bench = bench_of(tmp_path, work, protect)
    # It ends when the test is written and the step does not stand yet.
    assert await bench.begin(death=Death(when=wrote)) is None
    assert (work / "tests" / "test_src.py").read_text() == ""
    result = await bench.go_on()
    assert result is not None
    with_guard, without = OutcomeKind.step_cap_reached, OutcomeKind.success
    assert result.outcome.kind is (with_guard if protect else without)
    verdicts = set(bench.sql("SELECT verdict FROM gate_attempts"))
    assert verdicts == ({"errored"} if protect else {"passed"})
    bench.check()


async def test_a_child_that_has_worked_goes_on_though_a_link_leads_its_check_out_by_now(tmp_path: Path, work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    os.symlink("a/b", work / "l")
    verify = {"kind": "workspace_file_contains", "file": "l/../../later.txt", "needle": "ok"}
    answers = {
        "root": [[spawn("child", verify=verify, max_steps=3)], "done"],
        "child": [[call("list_dir", path=".")], [sh("rm l; ln -s a l")], [call("list_dir", path=".")]],
    }
    contract = TaskContract.workspace("root", work, Verification.none()).with_max_steps(3)
    bench = Bench(tmp_path, answers, contract=contract)
    assert await bench.begin(death=Death(when=lambda rows: wrote(rows) and (work / "l").readlink() == Path("a"))) is None
    assert await bench.go_on() is not None
    assert bench.sql("SELECT outcome FROM runs WHERE goal = 'child'") == ["step_cap_reached"]
    assert bench.sql("SELECT verdict FROM gate_attempts")[-1] == "errored"


async def test_what_was_noted_and_cannot_be_read_is_no_permission(tmp_path: Path, work: Path) -> None:
    bench = bench_of(tmp_path, work, protect=True)
    await bench.begin(death=Death(when=wrote))
    bench.sql("UPDATE check_pins SET pins = '{'")
    result = await bench.go_on()
    assert result is not None and result.outcome.kind is OutcomeKind.step_cap_reached
    assert set(bench.sql("SELECT verdict FROM gate_attempts")) == {"errored"}


@pytest.mark.parametrize("changed", [False, True])
async def test_a_reopened_run_is_held_against_the_files_of_the_first(tmp_path: Path, work: Path, changed: bool) -> None:
    bench = bench_of(tmp_path, work, protect=True)
    result = await bench.begin()
    assert result is not None and result.outcome.kind is OutcomeKind.step_cap_reached
    async with Store.open(bench.file) as store:
        verify = criterion(protect=True)
        if changed:
            # The operator who names another check names another judge.
            verify = Verification.command([sys.executable, "check.py"], protect=["check.py"])
        contract = TaskContract.workspace("root", work, verify).with_max_steps(5)
        more = await reopen(
            result.run_id, Scripted([[call("list_dir", path=".")]]), store, approver=ApproveAll(), contract=contract
        )
        verdicts = [gate.verdict for gate in store.gate_attempts(more.run_id)]
    assert verdicts[0] == ("passed" if changed else "errored")


# ── children ────────────────────────────────────────────────────────────────


async def tree_of(work: Path, answers: list[ScriptedAnswer], verify: Verification, policy: Policy | None = None) -> Any:
    store = Store.memory()
    contract = TaskContract.workspace("the root", work, verify).with_max_steps(3)
    result = await run_tree(contract, Scripted(answers), store, policy or Policy.permissive(), ApproveAll(), LIMITS)
    return result, store


def answers_of(child: list[Any], verify: dict[str, Any]) -> list[ScriptedAnswer]:
    asked = spawn("the child", verify=verify, max_steps=len(child))
    return [
        ScriptedAnswer(when="the root", calls=(asked,)),
        *(ScriptedAnswer(when="the child", calls=(each,)) for each in child),
        ScriptedAnswer(when="the root", text="done"),
    ]


async def test_a_childs_work_on_the_parents_check_is_seen_at_the_parent(work: Path) -> None:
    attack = ATTACKS["the test is edited"]
    result, store = await tree_of(work, answers_of(attack, {"kind": "none"}), criterion(protect=True))
    assert {gate.verdict for gate in store.gate_attempts(result.run_id)} == {"errored"}
    result, _ = await tree_of(work, answers_of([call("list_dir", path=".")], {"kind": "none"}), criterion(protect=False))
    assert result.outcome.kind is OutcomeKind.success, "the control"


async def test_a_child_is_held_against_the_files_of_its_own_start(work: Path) -> None:
    verify = {"kind": "command", "argv": [sys.executable, "check.py"], "protect": ["tests/*"]}
    result, store = await tree_of(work, answers_of(ATTACKS["the test is edited"], verify), Verification.none())
    [child] = store.children(result.run_id)
    assert [gate.verdict for gate in store.gate_attempts(child)] == ["errored"]
    # The parent edits first: for a child that begins then, these are the files.
    answers = answers_of([call("list_dir", path=".")], verify)
    (work / "tests" / "test_src.py").write_text("")
    result, store = await tree_of(work, answers, Verification.none())
    [child] = store.children(result.run_id)
    assert [gate.verdict for gate in store.gate_attempts(child)] == ["passed"]


async def test_a_childs_globs_that_no_policy_would_take_are_refused_and_cost_nothing(work: Path) -> None:
    verify = {"kind": "command", "argv": ["true"], "protect": ["a/../b"]}
    result, store = await tree_of(work, answers_of([call("list_dir", path=".")], verify), Verification.none())
    assert store.children(result.run_id) == []
    assert "can match nothing" in store.observations(result.run_id)[0].text


@pytest.mark.parametrize("file", ["../x.py", "/etc/x.py", "tests/../../x.py", "{work}/../x.py"])
@pytest.mark.parametrize("kind", ["contains", "compiles"])
async def test_a_child_whose_check_names_a_file_outside_the_workspace_ends_before_it_begins(
    work: Path, file: str, kind: str
) -> None:
    (work.parent / "x.py").write_text("ok")
    named = file.format(work=work)
    contains = {"kind": "workspace_file_contains", "file": named, "needle": "ok"}
    verify = contains if kind == "contains" else {"kind": "each_compiles", "files": ["check.py", named]}
    result, store = await tree_of(work, answers_of([call("list_dir", path=".")] * 3, verify), Verification.none())
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and (record.outcome, record.steps) == ("failed", 0)
    assert store.gate_attempts(child) == [] and store.provider_calls(child) == []
    told = store.observations(result.run_id)[0].text
    key = "verify.file" if kind == "contains" else "verify.files[1]"
    assert f"{key}: " in told and "leads out of the workspace; name a path inside it" in told


@pytest.mark.parametrize("file", ["later.txt", "./a/../later.txt", "{work}/later.txt", "there/later.txt", "l/../../later.txt"])
async def test_a_child_works_on_a_file_inside_however_its_check_names_it(work: Path, file: str) -> None:
    (work / "a" / "b").mkdir(parents=True)
    os.symlink("a/b", work / "l")
    os.symlink("/nowhere", work / "there")
    verify = {"kind": "workspace_file_contains", "file": file.format(work=work), "needle": "ok"}
    made = [sh("printf ok > later.txt")]
    result, store = await tree_of(work, answers_of(made, verify), Verification.none())
    [child] = store.children(result.run_id)
    # What only a link leads out may be mended yet.
    wanted = "errored" if file.startswith("there/") else "passed"
    assert [gate.verdict for gate in store.gate_attempts(child)] == [wanted]


async def test_a_childs_check_runs_by_the_childs_own_rights(work: Path) -> None:
    """The operator's own command needs no rule; a model's does, and ask counts as no."""
    for policy in (Policy.permissive().layer("o").ask_exec("*"), Policy.permissive().layer("o").deny_exec("touch*")):
        verify = {"kind": "command", "argv": ["touch", "made"]}
        result, store = await tree_of(work, answers_of([call("list_dir", path=".")], verify), Verification.none(), policy)
        [child] = store.children(result.run_id)
        assert [gate.verdict for gate in store.gate_attempts(child)] == ["errored"]
        assert not (work / "made").exists()
    result, store = await tree_of(work, answers_of([call("list_dir", path=".")], verify), Verification.none())
    assert (work / "made").exists(), "the control"
    (work / "made").unlink()
    operators = Verification.command(["touch", "made"])
    policy = Policy.permissive().layer("o").deny_exec("touch*")
    await tree_of(work, [ScriptedAnswer(calls=(call("list_dir", path="."),))], operators, policy)
    assert (work / "made").exists()


@pytest.mark.parametrize("rule", ["deny", "ask"])
async def test_a_childs_files_are_compiled_by_the_childs_own_rights(work: Path, rule: str) -> None:
    (work / "secret.py").write_text("x = ")
    layer = Policy.permissive().layer("o")
    policy = layer.deny_read("secret*") if rule == "deny" else layer.ask_read("secret*")
    verify = {"kind": "each_compiles", "files": ["secret.py"]}
    for given, verdict in ((policy, "errored"), (None, "failed")):
        result, store = await tree_of(work, answers_of([call("list_dir", path=".")], verify), Verification.none(), given)
        [child] = store.children(result.run_id)
        assert [gate.verdict for gate in store.gate_attempts(child)] == [verdict]


# ── stored contracts ────────────────────────────────────────────────────────


async def test_an_empty_needle_in_a_stored_contract_passes_no_gate(tmp_path: Path, work: Path) -> None:
    verify = Verification.workspace_file_contains("src.txt", "right")
    contract = TaskContract.workspace("root", work, verify).with_max_steps(3)
    bench = Bench(tmp_path, {"root": [[call("list_dir", path=".")]] * 3}, contract=contract)
    await bench.begin(death=Death(when=wrote, after=True))
    bench.sql("UPDATE runs SET contract = replace(contract, '\"needle\":\"right\"', '\"needle\":\"\"')")
    assert bench.sql("SELECT 1 FROM runs WHERE contract LIKE '%\"needle\":\"\"%'") == [1]
    with pytest.raises(ConfigError, match=r"contract\.verify\.needle"):
        await bench.go_on()


async def test_AB147_only_the_checks_own_end_counts(work: Path) -> None:
    """A job that the check leaves behind ends well, and says nothing; nor does one that the agent ran before."""
    leaves = Verification.command(["sh", "-c", "(sleep 0.2; exit 0) & exit 1"])
    result, gates = await ran(work, leaves, call("exec", argv=["true"]))
    assert gates[0].verdict == "failed" and gates[0].detail.startswith("exit code 1")
    assert result.outcome.kind is OutcomeKind.step_cap_reached
