"""A child that is to have a work tree works there and nowhere else, or there is no child."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.confinement import Confinement
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.rows import AnswerGiven, StepDone
from actors.agents.verification import Verification
from actors.agents.worktrees import place_of
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench
from actors.tools.worktrees import GitWorktrees

LIMITS = Containment(10, 4, 3, 1_000_000)
AUTHOR = AgentDef("author").with_worktree()
Call = tuple[str, dict[str, Any]]


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "code.txt").write_text("old\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


def task(root: Path, *agents: AgentDef, steps: int = 3) -> TaskContract:
    return TaskContract.workspace("root", root, Verification.none(), max_steps=steps, agents=Agents(agents))


def spawn(goal: str = "write it", agent: str = "author", **more: Any) -> Call:
    return ("spawn_agent", {"goal": goal, "agent": agent, "verify": {"kind": "none"}, "max_steps": 3, **more})


def write(path: str, content: str) -> Call:
    return ("write_file", {"path": path, "content": content})


async def run(
    contract: TaskContract, answers: list[Any], policy: Policy | None = None
) -> tuple[Store, Scripted, RunResult]:
    store, provider = Store.memory(), Scripted(answers)
    result = await run_tree(contract, provider, store, policy or Policy.permissive(), ApproveAll(), LIMITS)
    assert result.leaks.empty
    return store, provider, result


def trees(root: Path) -> list[Path]:
    folder = root / ".worktrees"
    return sorted(each for each in folder.iterdir() if each.is_dir()) if folder.exists() else []


def told(provider: Scripted) -> str:
    return repr(provider.requests)


async def test_a_child_works_in_its_own_tree_and_the_parents_files_stay(repo: Path) -> None:
    store, _, result = await run(task(repo, AUTHOR), [[spawn()], [write("code.txt", "new\n")], [], []])
    assert result.outcome.kind is OutcomeKind.finished
    assert (repo / "code.txt").read_text() == "old\n"
    [tree] = trees(repo)
    assert (tree / "code.txt").read_text() == "new\n"
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and record.root == str(tree)
    assert git(tree, "branch", "--show-current") == f"actors/{tree.name}"
    # It is no part of the work that the parent would commit.
    assert git(repo, "status", "--porcelain") == ""


async def test_control_without_a_tree_the_child_writes_its_parents_file(repo: Path) -> None:
    await run(task(repo, AgentDef("author")), [[spawn()], [write("code.txt", "new\n")], [], []])
    assert (repo / "code.txt").read_text() == "new\n" and trees(repo) == []


async def test_the_criterion_of_a_child_is_judged_in_its_tree(repo: Path) -> None:
    # The parent's file holds the text that the child's does not, and the other way round.
    (repo / "code.txt").write_text("mine\n")
    criterion: dict[str, Any] = {"verify": None, "verify_file": "code.txt", "verify_contains": "mine"}
    store, _, result = await run(task(repo, AUTHOR), [[spawn(**criterion)], [], [], [], []])
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and record.outcome == "step_cap_reached"
    command: dict[str, Any] = {"verify": {"kind": "command", "argv": ["grep", "-q", "theirs", "code.txt"]}}
    store, _, result = await run(task(repo, AUTHOR), [[spawn("again", **command)], [write("code.txt", "theirs\n")]])
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and record.outcome == "success"


async def test_two_children_of_one_answer_have_two_trees(repo: Path, tmp_path: Path) -> None:
    same = call("spawn_agent", **spawn("same")[1])
    answers: dict[str, Any] = {"root": [[same, same], "done"], "same": [[call("write_file", path="a.txt", content="a")], "ok"]}
    bench = Bench(tmp_path, answers, contract=task(repo, AUTHOR))
    assert await bench.begin() is not None
    assert [(tree / "a.txt").read_text() for tree in trees(repo)] == ["a", "a"]
    assert not (repo / "a.txt").exists()


def borrow_by_links(root: Path, other: Path, how: str) -> None:
    """Put links into a repository that make what another has committed its own."""
    ours, theirs = root / ".git", other / ".git"
    (ours / "HEAD").write_text("ref: refs/heads/theirs\n")
    if how == "refs":
        git(root, "fetch", "-q", str(other))
        shutil.rmtree(ours / "refs")
        (ours / "refs").symlink_to(theirs / "refs")
        (ours / "HEAD").write_text((theirs / "HEAD").read_text())
        return
    (ours / "refs/heads/theirs").write_text(git(other, "rev-parse", "HEAD") + "\n")
    if how == "objects":
        shutil.rmtree(ours / "objects")
        (ours / "objects").symlink_to(theirs / "objects")
    elif how == "pack":
        git(other, "repack", "-a", "-d", "-q")
        for each in (theirs / "objects/pack").iterdir():
            (ours / "objects/pack" / each.name).symlink_to(each)
    for each in (theirs / "objects").glob("??/*"):
        place = ours / "objects" / each.relative_to(theirs / "objects")
        if how == "fan" and not place.parent.is_symlink():
            place.parent.symlink_to(each.parent)
        elif how == "loose":
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(each)


@pytest.mark.parametrize("how", ["none", "file", "commondir", "alternates", "unborn", "below", "objects", "fan", "loose", "pack", "refs"])
async def test_without_a_repository_of_its_own_there_is_no_child_and_no_count(tmp_path: Path, how: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "secret.txt").write_text("canary")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "x")
    root = tmp_path / "work"
    root.mkdir()
    if how == "file":
        (root / ".git").write_text(f"gitdir: {other}/.git\n")
    elif how == "below":
        root = other / "below"
        root.mkdir()
    elif how != "none":
        git(root, "init", "-q")
        if how == "commondir":
            (root / ".git/commondir").write_text(f"{other}/.git\n")
        if how == "alternates":
            (root / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
            (root / ".git/refs/heads/master").write_text(git(other, "rev-parse", "HEAD") + "\n")
            (root / ".git/HEAD").write_text("ref: refs/heads/master\n")
        if how in ("objects", "fan", "loose", "pack", "refs"):
            borrow_by_links(root, other, how)
            # The control: git itself takes them as this repository's.
            assert git(root, "show", "HEAD:secret.txt") == "canary"
    store, provider, result = await run(task(root, AUTHOR), [[spawn()], [write("code.txt", "new")], []])
    assert store.children(result.run_id) == [] and "no work tree could be made" in told(provider)
    assert how != "file" or "its .git is no directory" in told(provider)
    [agents] = [row[0] for row in store.select("SELECT agents FROM ledger")]
    assert agents == 1
    # No fallback: the second answer was the parent's own, and nothing of the other repository came in.
    assert (root / "code.txt").read_text() == "new"
    assert not [each for each in root.rglob("secret.txt") if ".git" not in each.parts]


async def test_a_policy_that_lets_no_tree_be_written_makes_no_child(repo: Path) -> None:
    policy = Policy.permissive().layer("operator").deny_write(".worktrees/*")
    store, _, result = await run(task(repo, AUTHOR), [[spawn()], []], policy)
    assert store.children(result.run_id) == [] and trees(repo) == []
    assert [(each.act, each.rule) for each in store.events(result.run_id)] == [("write", ".worktrees/*")]


async def test_a_child_reads_and_writes_nothing_above_its_tree(repo: Path) -> None:
    (repo / "secret.txt").write_text("canary")
    absolute = str(repo / "secret.txt")
    answers = [
        [spawn()],
        [
            ("read_file", {"path": "../../secret.txt"}),
            ("read_file", {"path": absolute}),
            write("../../secret.txt", "x"),
            ("grep", {"pattern": "canar"}),
        ],
        [],
        [],
    ]
    _, provider, _ = await run(task(repo, AUTHOR), answers)
    assert "canary" not in told(provider) and told(provider).count("leads out of the workspace") == 3
    assert (repo / "secret.txt").read_text() == "canary"


async def test_searches_of_the_parent_pass_the_trees_of_its_children_by(repo: Path) -> None:
    answers = [[spawn()], [write("code.txt", "needle\n")], [], [("grep", {"pattern": "needle"})], []]
    _, provider, _ = await run(task(repo, AUTHOR), answers)
    assert "[no " in str(provider.requests[-1].turns[-1])


async def test_settings_of_the_repository_make_git_run_nothing(repo: Path, tmp_path: Path) -> None:
    marks = repo / "ran"
    program = repo / "evil.sh"
    program.write_text(f"#!/bin/sh\necho ran >> {marks}\ncat\n")
    program.chmod(0o755)
    (repo / ".gitattributes").write_text("*.txt filter=evil\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "more")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        place = repo / ".git/hooks" / hook
        place.write_text(f"#!/bin/sh\necho {hook} >> {marks}\n")
        place.chmod(0o755)
    for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor", "core.sshCommand"):
        git(repo, "config", key, str(program))
    git(repo, "config", "filter.evil.required", "true")
    marks.unlink(missing_ok=True)
    await run(task(repo, AUTHOR), [[spawn()], [], []])
    [tree] = trees(repo)
    assert (tree / "code.txt").read_text() == "old\n" and not marks.exists()
    # The control: git alone runs them.
    git(repo, "worktree", "add", "-q", str(tmp_path / "plain"), "HEAD")
    assert marks.exists()


async def test_a_link_in_the_place_of_a_tree_leads_its_child_nowhere(repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "code.txt").write_text("canary")

    class Swapping(Scripted):
        async def complete(self, request: Any) -> Any:
            if request.turns[0].text.startswith("write it") and trees(repo):
                [tree] = trees(repo)
                if not tree.is_symlink():
                    os.rename(tree, tmp_path / "moved")
                    tree.symlink_to(outside)
            return await super().complete(request)

    answers: list[Any] = [
        [spawn(verify={"kind": "command", "argv": ["touch", "judged"]})],
        [
            ("read_file", {"path": "code.txt"}),
            write("new.txt", "x"),
            ("exec", {"argv": ["sh", "-c", "cat code.txt; touch made"]}),
            ("list_dir", {}),
        ],
        [],
    ]
    store, provider = Store.memory(), Swapping(answers)
    await run_tree(task(repo, AUTHOR), provider, store, Policy.permissive(), ApproveAll(), LIMITS)
    assert "canary" not in told(provider) and "is a link by now" in told(provider)
    assert [each.name for each in outside.iterdir()] == ["code.txt"]


async def test_a_child_in_a_tree_cannot_give_its_own_children_one(repo: Path) -> None:
    answers = [[spawn("outer")], [spawn("inner")], [], []]
    store, provider, result = await run(task(repo, AUTHOR), answers)
    [child] = store.children(result.run_id)
    assert store.children(child) == [] and "works in a work tree itself" in told(provider)


async def test_a_child_of_a_child_in_a_tree_works_in_that_tree(repo: Path) -> None:
    answers = [[spawn("outer")], [spawn("inner", "")], [write("code.txt", "deep\n")], [], [], []]
    await run(task(repo, AUTHOR), answers)
    [tree] = trees(repo)
    assert (tree / "code.txt").read_text() == "deep\n" and (repo / "code.txt").read_text() == "old\n"


# ── over a restart ──────────────────────────────────────────────────────────


async def test_a_resumed_child_goes_on_in_the_tree_that_it_had(repo: Path, tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[call("spawn_agent", **spawn("child")[1])], "done"],
        "child": [[call("write_file", path="one.txt", content="1")], [call("write_file", path="two.txt", content="2")], "ok"],
    }
    bench = Bench(tmp_path, answers, contract=task(repo, AUTHOR, steps=9))
    death = Death(when=holds(StepDone, lambda row: "/" in row.run_id and row.step == 1), after=True)
    assert await bench.begin(death=death) is None
    [tree] = trees(repo)
    assert sorted(each.name for each in tree.glob("*.txt")) == ["code.txt", "one.txt"]
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert trees(repo) == [tree]
    assert sorted(each.name for each in tree.glob("*.txt")) == ["code.txt", "one.txt", "two.txt"]
    assert not (repo / "two.txt").exists()
    bench.check()


@pytest.mark.parametrize("again", [True, False])
async def test_a_tree_that_is_gone_is_made_again_or_the_child_works_nowhere(repo: Path, tmp_path: Path, again: bool) -> None:
    answers: dict[str, Any] = {
        "root": [[call("spawn_agent", **spawn("child")[1])], "done"],
        "child": [[call("list_dir")], [call("write_file", path="two.txt", content="2")], "ok"],
    }
    bench = Bench(tmp_path, answers, contract=task(repo, AUTHOR, steps=9))
    death = Death(when=holds(StepDone, lambda row: "/" in row.run_id and row.step == 1), after=True)
    assert await bench.begin(death=death) is None
    [tree] = trees(repo)
    os.rename(tree, tmp_path / "away")
    if not again:
        os.rename(repo / ".git", tmp_path / "gone")
    assert await bench.go_on() is not None
    assert not (repo / "two.txt").exists()
    assert [each / "two.txt" for each in trees(repo) if (each / "two.txt").exists()] == ([tree / "two.txt"] if again else [])
    bench.check()


async def test_a_tree_of_a_spawn_that_came_to_nothing_is_taken_by_the_next_attempt(repo: Path, tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[call("spawn_agent", **spawn("child")[1])], "done"], "child": ["ok"]}
    bench = Bench(tmp_path, answers, contract=task(repo, AUTHOR, steps=9))
    death = Death(when=holds(AnswerGiven), after=True)
    assert await bench.begin(death=death) is None and trees(repo) == []
    place = place_of(bench.run_id, 1, 1, "child", "author")
    made = Path(await GitWorktrees().make(str(repo), place, timeout=60.0, confinement=Confinement()))
    # As if the process had ended before the last file came out.
    (made / ".git/index").unlink()
    (made / ".git/index.lock").touch()
    (made / "code.txt").unlink()
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert trees(repo) == [made] and (made / "code.txt").read_text() == "old\n"
    assert bench.agents()["root/1.1"].root == str(made)
    bench.check()
