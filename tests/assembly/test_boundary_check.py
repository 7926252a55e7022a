"""What can never be checked is refused before anything starts, and what cannot be checked yet is said."""

import os
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.assembly import boundary_check
from actors.assembly.boundary_check import check_criterion, problems_here
from actors.assembly.running import run_with
from actors.errors import ConfigError
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.goal_model import call
from actors.tools import compiling
from actors.tools.protected import WorkspaceFiles
from actors.tools.sandbox import detect

FILES = WorkspaceFiles()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "x").write_text("ok")
    return tmp_path / "work"


@pytest.mark.parametrize("file", ["../x", "../work/../x", "a/../../x", "/etc/passwd", "{above}/x"])
@pytest.mark.parametrize("kind", ["contains", "compiles"])
async def test_a_file_outside_the_workspace_is_refused_before_the_start(work: Path, file: str, kind: str) -> None:
    named = file.format(above=work.parent) + (".py" if kind == "compiles" else "")
    contains = Verification.workspace_file_contains(named, "ok")
    verify = contains if kind == "contains" else Verification.each_compiles(["a.py", named])
    key = "contract.verify.file" if kind == "contains" else "contract.verify.files[1]"
    store, model = Store.memory(), Scripted([])
    with pytest.raises(ConfigError, match="leads out of the workspace; name a path inside it") as refused:
        await run_with(
            TaskContract.workspace("g", work, verify), model, store, Policy.permissive(), ApproveAll()
        )
    assert [place for place, _text in refused.value.problems] == [key]
    assert store.runs() == [] and model.calls == 0


async def test_a_file_that_nothing_compiles_is_refused_before_the_start(work: Path) -> None:
    verify = Verification.each_compiles(["a.py", "b.txt", "c.JS", "Makefile"])
    with pytest.raises(ConfigError, match=r"nothing here compiles it; what can be is \.py \.pyi \.js") as refused:
        await check_criterion(TaskContract.workspace("g", work, verify), Policy.permissive(), FILES)
    assert [place for place, _text in refused.value.problems] == ["contract.verify.files[1]", "contract.verify.files[3]"]


@pytest.mark.parametrize("file", ["x", "./x", "a/b/../../x", "{work}/x", "..x", "l/../x"])
async def test_a_file_inside_may_be_named_in_any_way(work: Path, file: str) -> None:
    (work / "a" / "b").mkdir(parents=True)
    os.symlink("a/b", work / "l")
    verify = Verification.workspace_file_contains(file.format(work=work), "ok")
    assert await check_criterion(TaskContract.workspace("g", work, verify), Policy.permissive(), FILES) == ()


async def test_a_path_that_only_a_link_leads_out_may_be_mended_while_the_run_goes_on(work: Path) -> None:
    os.symlink("/nowhere", work / "there")
    verify = Verification.workspace_file_contains("there/out.txt", "ok")
    assert await check_criterion(TaskContract.workspace("g", work, verify), Policy.permissive(), FILES) == ()


@pytest.mark.parametrize(
    ("verify", "place", "said"),
    [
        (Verification.command(["no-such-judge"]), "contract.verify.argv", "there is no program no-such-judge in PATH"),
        (Verification.command(["./made.sh"]), "contract.verify.argv", "there is no ./made.sh"),
        (Verification.command(["./a.lua"]), "contract.verify.argv", "./a.lua may not be executed"),
        (Verification.each_compiles(["a.lua", "b.py"]), "contract.verify.files", "luac is unavailable"),
        (Verification.workspace_file_contains(".env", "x"), "contract.verify.file", "the policy does not let .env be read"),
    ],
)
async def test_what_cannot_be_checked_yet_is_said_once_at_the_start(
    work: Path, monkeypatch: Any, caplog: Any, verify: Verification, place: str, said: str
) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda *_given, **_more: None)
    for name in ("a.lua", "b.py"):
        (work / name).write_text("x = 1\n")
    contract = TaskContract.workspace("g", work, verify).with_max_steps(2)
    store = Store.memory()
    model = Scripted([[call("list_dir", path=".")]] * 2)
    result = await run_with(contract, model, store, Policy.default(), ApproveAll())
    [told] = [record.getMessage() for record in caplog.records if record.name == "actors.task"]
    assert told.startswith(f"{place}: {said}") and "until that changes, the check is errored after each step" in told
    assert {gate.verdict for gate in store.gate_attempts(result.run_id)} == {"errored"}, "it is so"


@pytest.mark.parametrize("kind", ["command", "contains", "none"])
async def test_nothing_is_said_of_what_can_be_checked(work: Path, kind: str) -> None:
    verify = {
        "command": Verification.command(["true"]),
        "contains": Verification.workspace_file_contains("later.txt", "x"),
        "none": Verification.none(),
    }[kind]
    assert await problems_here(TaskContract.workspace("g", work, verify), Policy.default(), FILES) == ((), ())


async def test_all_that_a_run_would_be_refused_for_is_told_together(work: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(boundary_check, "sandbox_problem", lambda *_given: "cannot be held")
    contract = TaskContract.workspace("g", work, Verification.workspace_file_contains("../x", "ok")).with_exec_sandbox(
        ExecSandbox.read_only
    )
    problems, notes = await problems_here(contract, Policy.default(), FILES)
    assert [place for place, _text in problems] == ["contract.exec_sandbox", "contract.verify.file"] and notes == ()


@pytest.mark.skipif(not detect().landlock and detect().bubblewrap is None, reason="no sandbox can be had here")
async def test_more_closed_files_than_can_be_covered_are_refused_before_the_start_of_a_named_mode(work: Path) -> None:
    for number in range(1_001):
        (work / str(number)).mkdir()
        (work / str(number) / ".env").write_text("")
    contract = TaskContract.workspace("g", work, Verification.none()).with_exec_sandbox(ExecSandbox.workspace_write)
    store, model = Store.memory(), Scripted([])
    said = "1,001 denied files and directories above them, and 1,000 can be covered; deny the directories"
    with pytest.raises(ConfigError, match=said) as refused:
        await run_with(contract, model, store, Policy.default(), ApproveAll())
    assert [place for place, _text in refused.value.problems] == ["contract.exec_sandbox"]
    assert store.runs() == [] and model.calls == 0
    problems, _ = await problems_here(contract, Policy.default(), FILES)
    assert problems == refused.value.problems
    (work / "0" / ".env").unlink()
    assert await problems_here(contract, Policy.default(), FILES) == ((), ())
