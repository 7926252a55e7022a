"""A refusal names a remedy that can be had where it is read."""

import sqlite3
from pathlib import Path

import pytest

from actors.agents.approvals import ApproveAll, DeferAll
from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.assembly.resuming import resume_from_stored_policy, resume_with
from actors.assembly.running import run_with
from actors.assembly.task_file import validate_task
from actors.errors import ConfigError
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.tools import sandbox
from actors.tools.sandbox_plan import Capabilities

WRITES = [("write_file", {"path": "a.txt", "content": "x"})]


async def paused(store: Store, root: Path, mode: ExecSandbox | None = None) -> str:
    contract = TaskContract.workspace("work", root, exec_sandbox=mode).with_max_steps(2)
    ran = await run_with(contract, Scripted([WRITES]), store, Policy.default(), DeferAll())
    assert ran.outcome.kind is OutcomeKind.awaiting_approval
    return ran.run_id


async def test_a_resume_where_its_mode_cannot_be_held_says_that_the_mode_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    mode = ExecSandbox.workspace_write
    if sandbox.sandbox_problem(mode, Policy.default(), str(root)) is not None:
        pytest.skip("nothing here holds a boundary")
    async with Store.open(str(tmp_path / "runs.db")) as store:
        run_id = await paused(store, root, mode)
        monkeypatch.setattr(sandbox, "detect", Capabilities)
        with pytest.raises(ConfigError, match="only a new run can have another mode than workspace_write; this one"):
            await resume_with(run_id, Scripted([]), store, Policy.default(), ApproveAll())


async def test_a_run_without_its_policy_is_told_of_the_option_of_the_command_line(tmp_path: Path) -> None:
    async with Store.open(str(tmp_path / "runs.db")) as store:
        run_id = await paused(store, tmp_path)
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("DELETE FROM run_policies")
    connection.close()
    async with Store.open(str(tmp_path / "runs.db")) as store:
        with pytest.raises(ConfigError, match=r"give one, by --task with a task file that has \[policy\]"):
            await resume_from_stored_policy(run_id, Scripted([]), store, ApproveAll())


def test_the_key_that_lifts_the_ban_on_reviewing_oneself_is_named_whole(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(
        '[contract]\ngoal = "x"\nroot = "."\n[contract.verify]\nkind = "review"\nrubric = "kind"\n'
        '[provider]\nkind = "compatible"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    [(place, text)] = validate_task(tmp_path / "task.toml")
    assert place == "reviewer" and text.endswith(" or contract.verify.allow_self_review = true")
