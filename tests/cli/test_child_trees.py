"""Whoever looks at a run finds the work of a child that had a tree of its own: place, branch, and the line that fetches it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.confinement import Confinement
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.rows import RunStarted
from actors.agents.verification import Verification
from actors.agents.worktrees import WorktreePlace
from actors.assembly import tree_states as tree_states_module
from actors.assembly.child_trees import ChildTree
from actors.assembly.reporting import run_report
from actors.assembly.running import run_tree
from actors.assembly.tree_states import tree_states
from actors.cli.next_steps import how_to_fetch, what_is_there
from actors.cli.viewing import show
from actors.containment.limits import Containment
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.goal_model import call
from actors.tools import sandbox
from actors.tools.sandbox_plan import Capabilities
from actors.tools.worktrees import GitWorktrees

AUTHOR = AgentDef("author").with_worktree()


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def spawned(goal: str, agent: str = "") -> tuple[str, dict[str, Any]]:
    return call("spawn_agent", goal=goal, agent=agent, verify={"kind": "none"}, max_steps=5)


async def begun(tmp_path: Path, root: Path) -> tuple[str, dict[str, Any]]:
    """Run a tree whose author works in a work tree; give its id and its report."""
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
    return result.run_id, report


def repository(root: Path) -> Path:
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("1\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


def test_the_line_that_is_shown_brings_the_branch_of_the_child(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "my work")
    run_id, report = trio.run(begun, tmp_path, root)
    [tree] = [each for each in (root / ".worktrees").iterdir() if each.is_dir()]
    (tree / "a.txt").write_text("2\n")
    git(tree, "commit", "-q", "-a", "-m", "two")
    git(tree, "tag", "a-name-of-the-child")
    show(run_id, str(tmp_path / "runs.db"), True)
    shown = json.loads(capsys.readouterr().out)
    own = [(each["path"], each["worktree"]) for each in shown["agents"] if each["worktree"] is not None]
    [(path, place)] = own
    assert place["path"] == str(tree) and place["branch"] == f"actors/{tree.name}"
    assert shown["worktrees"] == [{"agent": path, **place}]
    # Nobody has looked in the report that a run gives of itself.
    assert report["worktrees"] == [{"agent": path, **place, "commits": None, "uncommitted": None, "elsewhere": None}]
    assert (place["ended"], place["commits"], place["uncommitted"], place["elsewhere"]) == (True, 1, False, False)
    show(run_id, str(tmp_path / "runs.db"), False)
    lines = capsys.readouterr().out.splitlines()
    # The command stands alone, as it is typed.
    said = f"The work of {path} is on the branch {place['branch']} in {tree}: 1 commit. It is fetched with:"
    assert lines[-2:] == [said, f"  {place['fetch']}"]
    assert "actors/" not in git(root, "branch", "--list")
    subprocess.run(["sh", "-c", place["fetch"]], cwd=tmp_path, capture_output=True, check=True)
    assert place["branch"] in git(root, "branch", "--list")
    assert git(root, "tag") == "", "names that a child gave do not come along"
    shutil.rmtree(tree)
    show(run_id, str(tmp_path / "runs.db"), False)
    assert f"in {tree}, on the branch {place['branch']}, is gone" in capsys.readouterr().out


async def made(root: Path) -> tuple[Path, ChildTree]:
    place = WorktreePlace("agent-x")
    path = await GitWorktrees().make(str(root), place, timeout=20, confinement=Confinement())
    return Path(path), ChildTree("root/1", path, place.branch, str(root))


async def said_of(tree: ChildTree) -> str:
    return what_is_there(attrs.evolve(tree, state=(await tree_states([tree])).get(tree.agent)))


async def test_what_is_not_committed_is_said_before_anybody_removes_it(tmp_path: Path) -> None:
    path, tree = await made(repository(tmp_path / "work"))
    assert await said_of(tree) == f"root/1 committed nothing, and left nothing in {path} that git would tell of"
    (path / "new.txt").write_text("new")
    nothing = "root/1 committed nothing: its files are in"
    assert (await said_of(tree)).startswith(f"{nothing} {path}, changed and not committed")
    git(path, "add", ".")
    assert (await said_of(tree)).startswith(nothing)
    git(path, "commit", "-q", "-m", "new")
    assert (await said_of(tree)).endswith(f"in {path}: 1 commit. It is fetched with:")
    (path / "a.txt").write_text("other")
    assert "1 commit, and changes that are not committed" in await said_of(tree)
    git(path, "checkout", "-q", "-b", "other")
    git(path, "commit", "-q", "-a", "-m", "other")
    assert f"commits of it are there too that are not on the branch {tree.branch}" in await said_of(tree)
    assert "it has not ended, so this may be half of it" in what_is_there(attrs.evolve(tree, ended=False))


async def test_commits_that_are_on_no_fetched_branch_are_told_wherever_they_stand(tmp_path: Path) -> None:
    path, tree = await made(repository(tmp_path / "work"))
    lost = f"What root/1 committed in {path} is not on the branch {tree.branch}"
    (path / "a.txt").write_text("put away")
    git(path, "stash", "-q")
    assert (await said_of(tree)).startswith(lost)
    git(path, "stash", "drop", "-q")
    assert (await said_of(tree)).startswith("root/1 committed nothing, and left nothing")
    git(path, "checkout", "-q", "-b", "other")
    git(path, "commit", "-q", "--allow-empty", "-m", "other")
    assert (await said_of(tree)).startswith(lost)
    git(path, "checkout", "-q", tree.branch)
    said = await said_of(tree)
    assert said.startswith(lost) and "before you remove it" in said and "fetched with" not in said


async def test_a_tree_whose_settings_name_a_pipe_takes_no_time_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_states_module, "SECONDS", 8.0)
    root = repository(tmp_path / "work")
    stuck, tree = await made(root)
    os.mkfifo(tmp_path / "pipe")
    git(stuck, "config", "include.path", str(tmp_path / "pipe"))
    place = WorktreePlace("agent-y")
    other = await GitWorktrees().make(str(root), place, timeout=20, confinement=Confinement())
    states = await tree_states([tree, ChildTree("root/2", other, place.branch, str(root))])
    assert list(states) == ["root/2"]


async def test_of_a_tree_that_holds_a_repository_of_its_own_nothing_is_taken_for_committed(tmp_path: Path) -> None:
    path, tree = await made(repository(tmp_path / "work"))
    repository(path / "inner")
    assert (await said_of(tree)).startswith("root/1 committed nothing: its files are in")
    git(path, "add", "inner")
    git(path, "commit", "-q", "-m", "inner")
    assert "commit or copy what is not committed before you remove it" in await said_of(tree)


async def test_a_machine_without_a_boundary_looks_as_its_git_tools_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tree = await made(repository(tmp_path / "work"))
    (path / "new.txt").write_text("new")

    async def nothing() -> Capabilities:
        await trio.lowlevel.checkpoint()
        return Capabilities()

    monkeypatch.setattr(sandbox, "_capabilities", nothing)
    assert (await said_of(tree)).startswith("root/1 committed nothing: its files are in")


async def test_a_look_at_a_work_tree_runs_nothing_that_its_settings_name(tmp_path: Path) -> None:
    path, tree = await made(repository(tmp_path / "work"))
    program, ran = path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    program.chmod(0o755)
    (path / ".gitattributes").write_text("*.txt filter=f diff=f\n")
    for key in ("core.fsmonitor", "filter.f.clean", "filter.f.process", "diff.f.textconv", "core.pager", "diff.external"):
        git(path, "config", key, str(program))
    (path / "a.txt").write_text("2\n")
    state = (await tree_states([tree]))["root/1"]
    assert state.uncommitted and not ran.exists()
    # Not even ours: nobody wrote its index anew.
    assert not (path / ".git" / "index.lock").exists()


async def test_what_cannot_be_looked_at_is_never_taken_for_committed(tmp_path: Path) -> None:
    root = repository(tmp_path / "work")
    path, tree = await made(root)
    git(root, "update-ref", "-d", "refs/actors-base/agent-x")
    assert await tree_states([tree]) == {}
    assert "commit or copy what is not committed before you remove it" in await said_of(tree)
    (path / ".git" / "HEAD").unlink()
    os.mkfifo(path / ".git" / "HEAD")
    assert await tree_states([tree]) == {}


async def test_of_many_trees_a_few_are_named_and_no_letter_of_a_path_moves_a_cursor() -> None:
    store = Store.memory()
    await store.commit(RunStarted("r", "r", "root", 0, None, "goal", root="/w\x1b"))
    for number in range(9):
        path, root = f"root/{number + 1}", f"/w\x1b/.worktrees/agent-{number}"
        await store.commit(RunStarted(f"r/{number + 1}", "r", path, 1, "r", "goal", root=root))
    lines = how_to_fetch(store, "r")
    assert len(lines) == 6 and "is gone" in lines[0] and lines[-1].startswith("4 more work trees: ")
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
