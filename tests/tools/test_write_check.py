"""A file that was written is looked at by the checker of its language where the operator wants it; it never fails a write."""

import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.agents.acted_on import unsupported_fields
from actors.agents.approvals import ApproveAll
from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Act, Approval, ApprovalRequest, Observation
from actors.agents.verification import Verification
from actors.assembly.running import run_with
from actors.assembly.task_file import read_task
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.tools import compiling, write_check
from actors.tools.toolbox import builtin_tools

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}
WRONG = "def f(:\n"


@pytest.fixture
def wanted(context: Any) -> Any:
    context.check_writes = True
    return context


async def ran(context: Any, name: str, **arguments: Any) -> Observation:
    return await TOOLS[name].run(arguments, context)


async def test_each_tool_that_writes_tells_whether_it_compiles(wanted: Any) -> None:
    seen = await ran(wanted, "write_file", path="a.py", content="x = 1\n")
    assert seen.text == 'wrote "a.py" (6 bytes, 1 line)\n[it compiles]' and seen.changed
    seen = await ran(wanted, "edit_file", path="a.py", search="x = 1", replace="x = (1")
    first, second = seen.text.split("\n")
    assert first == 'wrote "a.py" (7 bytes, 1 line)' and seen.changed
    assert second.startswith("[it does not compile (python): SyntaxError: '(' was never closed (a.py, line 1)")
    seen = await ran(wanted, "patch_file", path="a.py", patch="@@\n-x = (1\n+x = (1)\n")
    assert seen.text.endswith("\n[it compiles]")
    # Also of what stood there already: it is no better for that.
    (Path(wanted.root) / "b.py").write_text(WRONG)
    seen = await ran(wanted, "write_file", path="b.py", content=WRONG)
    assert "unchanged\n[it does not compile" in seen.text and not seen.changed


async def test_a_shell_script_is_judged_by_its_own_checker(wanted: Any) -> None:
    assert (await ran(wanted, "write_file", path="a.sh", content="echo ok\n")).text.endswith("[it compiles]")
    seen = await ran(wanted, "write_file", path="a.sh", content="if\n")
    assert "\n[it does not compile (sh): " in seen.text
    asked = [target for act, target in wanted.asked if act is Act.exec]
    assert asked == ["check", "sh", "sh -n"] * 2


async def test_without_the_knob_and_of_other_files_nothing_is_asked_run_or_said(context: Any) -> None:
    assert "\n" not in (await ran(context, "write_file", path="a.py", content=WRONG)).text
    context.check_writes = True
    assert "\n" not in (await ran(context, "write_file", path="a.txt", content=WRONG)).text
    assert not [act for act, _ in context.asked if act is Act.exec]


@pytest.mark.parametrize(
    ("name", "denied", "why"),
    [
        ("a.py", "check", "check is refused: denied by policy"),
        ("a.sh", "sh", "sh -n is refused: denied by policy"),
        ("a.sh", "check", "check is refused: denied by policy"),
    ],
)
async def test_what_the_policy_refuses_is_said_and_the_file_is_written(
    wanted: Any, name: str, denied: str, why: str
) -> None:
    wanted.policy = Policy.permissive().layer("operator").deny_exec(denied)
    seen = await ran(wanted, "write_file", path=name, content="ok\n")
    assert seen.text.endswith(f"\n[not checked: {why}]") and seen.changed
    assert (Path(wanted.root) / name).read_text() == "ok\n"


async def test_a_checker_that_is_missing_or_does_not_end_is_said(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda *_, **__: None)
    seen = await ran(wanted, "write_file", path="a.lua", content="x = 1\n")
    assert seen.text.endswith("\n[not checked: luac is unavailable]") and seen.changed
    monkeypatch.undo()
    wanted.exec_timeout = 0.05
    monkeypatch.setattr(compiling, "_PYTHON", "import time\ntime.sleep(60)\n")
    seen = await ran(wanted, "write_file", path="a.py", content="x = 1\n")
    assert "[it cannot be looked at: python ended with no answer after 0.05 s" in seen.text and seen.changed


async def test_the_checker_is_handed_what_was_written_and_not_what_stands_there_by_now(
    wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = write_check.WriteCheck.told

    async def swapped(self: Any, seen: Observation, data: bytes) -> Observation:
        (Path(wanted.root) / "a.py").write_text(WRONG)
        return await told(self, seen, data)

    monkeypatch.setattr(write_check.WriteCheck, "told", swapped)
    assert (await ran(wanted, "write_file", path="a.py", content="x = 1\n")).text.endswith("[it compiles]")


async def test_a_call_that_is_run_again_is_told_the_same(wanted: Any) -> None:
    await ran(wanted, "write_file", path="a.py", content="x = 1\n")
    edit = {"path": "a.py", "search": "1", "replace": "2"}
    once = await ran(wanted, "edit_file", **edit)
    _, after, changes = wanted.intended[-1]
    wanted.noted = (after, changes)
    assert await ran(wanted, "edit_file", **edit) == once


# ── in a run ────────────────────────────────────────────────────────────────


async def of_run(root: Path, policy: Policy, approver: Any, **more: Any) -> tuple[list[str], Store]:
    contract = TaskContract.workspace("g", root, Verification.none(), check_writes=True, **more)
    store = Store.memory()
    calls = [("write_file", {"path": "a.py", "content": "x = 1\n"})]
    result = await run_with(contract, Scripted([calls, []]), store, policy, approver)
    return [each.text for each in store.observations(result.run_id)], store


async def test_what_applied_is_recorded_with_the_ordinal_of_the_write(tmp_path: Path) -> None:
    told, store = await of_run(tmp_path, Policy.permissive(), ApproveAll(), exec_sandbox=ExecSandbox.full_access)
    assert told[0] == 'wrote "a.py" (6 bytes, 1 line)\n[it compiles]'
    assert store.select("select step, ordinal, mode from sandbox_events") == [(1, 1, "full_access")]


class Changes:
    """An approver that has something else written, once it is asked about the check."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.asked.append(f"{request.act} {request.target}")
        if len(self.asked) == 1:
            return Approval(True, modified={"path": "b.py", "content": "y = 2\n"})
        return Approval(True)


async def test_the_check_is_asked_about_before_anything_is_written(tmp_path: Path) -> None:
    approver = Changes()
    policy = Policy.permissive().layer("operator").ask_exec("check")
    told, store = await of_run(tmp_path, policy, approver)
    # Who changed the call has allowed what it is now.
    assert approver.asked == ["exec check"]
    [(why,)] = store.select("select content from pending_approvals")
    assert why == 'a look whether "a.py" compiles, which is about to be written'
    assert os.listdir(tmp_path) == ["b.py"]
    assert 'wrote "b.py"' in told[0] and "[it compiles]" in told[0]
    assert [each[0] for each in store.select("select path from edits")] == ["b.py"]


def test_the_knob_is_not_for_one_file() -> None:
    contract = TaskContract("g", "a.py", Verification.file_contains("x"), check_writes=True)
    [(place, text)] = unsupported_fields(contract)
    assert place == "contract.check_writes" and "root" in text
    [(place, text)] = unsupported_fields(attrs.evolve(contract, check_writes=False).with_commit_identity("a", "a@b"))
    assert place == "contract.commit_identity" and "root" in text


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], []),
        (['run.approve="deny"'], ["no rule allows exec 'check', and run.approve = \"deny\""]),
        (['policy.defaults.exec="deny"'], ["the policy denies exec 'check'"]),
        (['policy.defaults.exec="allow"', 'run.approve="deny"'], []),
        (['run.approve="deny"', "contract.check_writes=false"], []),
    ],
)
def test_a_task_file_under_which_nothing_would_be_checked_says_so(tmp_path: Path, more: list[str], told: list[str]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "script.json").write_text("[]")
    file = tmp_path / "task.toml"
    file.write_text(
        '[contract]\ngoal = "g"\nroot = "work"\ncheck_writes = true\n'
        '[provider]\nkind = "scripted"\nscript = "script.json"\n'
    )
    notes = read_task(file, more).notes
    assert [place for place, _ in notes] == ["contract.check_writes"] * len(told)
    assert all(why in text and "allow it by a rule" in text for (_, text), why in zip(notes, told, strict=True))
