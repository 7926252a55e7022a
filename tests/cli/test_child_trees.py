"""Whoever looks at a run finds the work of a child that had a tree of its own: place, branch, and the line that fetches it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.rows import RunStarted
from actors.agents.verification import Verification
from actors.assembly.reporting import run_report
from actors.assembly.running import run_tree
from actors.cli.next_steps import how_to_fetch
from actors.cli.viewing import show
from actors.containment.limits import Containment
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.goal_model import call

AUTHOR = AgentDef("author").with_worktree()


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def spawned(goal: str, agent: str = "") -> tuple[str, dict[str, Any]]:
    return call("spawn_agent", goal=goal, agent=agent, verify={"kind": "none"}, max_steps=5)


async def test_the_line_that_is_shown_brings_the_branch_of_the_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "my work"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "begin")
    task = TaskContract.workspace("root", root, Verification.none(), max_steps=5, agents=Agents([AUTHOR]))
    # The author's own child works in the tree of its parent, and the plain one in the root's.
    answers = [
        [spawned("tree", "author"), spawned("plain")], [spawned("below")], [], [], [], [], [],
    ]  # fmt: skip
    async with Store.open(str(tmp_path / "runs.db")) as store:
        limits = Containment(10, 1, 3, 1_000_000)
        result = await run_tree(task, Scripted(answers), store, Policy.permissive(), ApproveAll(), limits)
        report = run_report(store, result.run_id)
        assert len(store.agents(result.run_id)) >= 3
    [tree] = [each for each in (root / ".worktrees").iterdir() if each.is_dir()]
    show(result.run_id, str(tmp_path / "runs.db"), True)
    shown = json.loads(capsys.readouterr().out)
    own = [(each["path"], each["worktree"]) for each in shown["agents"] if each["worktree"] is not None]
    [(path, place)] = own
    assert place["path"] == str(tree) and place["branch"] == f"actors/{tree.name}"
    assert shown["worktrees"] == report["worktrees"] == [{"agent": path, **place}]
    show(result.run_id, str(tmp_path / "runs.db"), False)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "fetch" in line]
    assert line == f"The work of {path} is on the branch {place['branch']} in {tree}; fetch it with: {place['fetch']}"
    assert "actors/" not in git(root, "branch", "--list")
    await trio.run_process(["sh", "-c", place["fetch"]], cwd=tmp_path, capture_stdout=True, capture_stderr=True)
    assert place["branch"] in git(root, "branch", "--list")
    shutil.rmtree(tree)
    show(result.run_id, str(tmp_path / "runs.db"), False)
    assert f"in {tree}, which is gone" in capsys.readouterr().out


async def test_of_many_trees_a_few_are_named_and_no_letter_of_a_path_moves_a_cursor() -> None:
    store = Store.memory()
    await store.commit(RunStarted("r", "r", "root", 0, None, "goal", root="/w\x1b"))
    for number in range(9):
        path, root = f"root/{number + 1}", f"/w\x1b/.worktrees/agent-{number}"
        await store.commit(RunStarted(f"r/{number + 1}", "r", path, 1, "r", "goal", root=root))
    lines = how_to_fetch(store, "r")
    assert len(lines) == 6 and lines[-1].startswith("4 more work trees: ")
    assert not any("\x1b" in line for line in lines)
    assert len(run_report(store, "r")["worktrees"]) == 9


async def test_a_run_that_was_started_in_a_work_tree_has_none_of_its_own() -> None:
    store = Store.memory()
    for row in (
        RunStarted("r", "r", "root", 0, None, "goal", root="/w/.worktrees/author-x"),
        RunStarted("r/1", "r", "root/1", 1, "r", "goal", root="/w/.worktrees/author-x"),
        RunStarted("r/2", "r", "root/2", 1, "r", "goal", root=None),
    ):
        await store.commit(row)
    assert how_to_fetch(store, "r") == [] and run_report(store, "r")["worktrees"] == []
