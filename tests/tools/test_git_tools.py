"""What the tools of git say and do, in a real repository."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecSandbox, Identity
from actors.agents.policy import Decision, Policy
from actors.agents.ports import Act, ActRefused, Observation
from actors.errors import ToolFailed
from actors.tools import git_repository
from actors.tools.git_change import MOST_PATHS, GitAdd, GitBranch, GitCommit
from actors.tools.git_look import GitDiff, GitLog, GitStatus
from actors.tools.git_opened import opened_repository, split_readable
from actors.tools.git_program import Git
from actors.tools.process import Finished, Status
from actors.tools.sandbox import SandboxUnavailable, detect
from actors.tools.whole_files import digest

TOOLS = {tool.spec.name: tool for tool in (GitStatus(), GitDiff(), GitLog(), GitAdd(), GitCommit(), GitBranch())}


def git(root: Path, *arguments: str, check: bool = True) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=check)
    return done.stdout.strip("\n")


@pytest.fixture
def repo(root: Path) -> Path:
    git(root, "init", "-q", "-b", "main")
    (root / "sub").mkdir()
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (root / name).write_text("one\ntwo\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "begin")
    return root


async def use(name: str, context: Any, /, **arguments: Any) -> Observation:
    return await TOOLS[name].run(arguments, context)


# ── looking ─────────────────────────────────────────────────────────────────


async def test_status_lists_what_differs_and_writes_nothing(repo, context):
    at = f"on main, at {git(repo, 'rev-parse', 'HEAD')[:12]}"
    assert (await use("git_status", context)).text == f"{at}\n[nothing differs]"
    (repo / "a.txt").write_text("changed\n")
    (repo / "b.txt").unlink()
    (repo / "new").mkdir()
    (repo / "new" / "line\nbreak").write_text("n")
    (repo / "sub" / "é.txt").write_text("n")
    git(repo, "add", "sub")
    os.utime(repo / "sub" / "c.txt")
    before = (repo / ".git" / "index").read_bytes()
    seen = await use("git_status", context)
    assert seen.text.splitlines() == [at, " M a.txt", " D b.txt", "A  sub/é.txt", "?? new/line?break"]
    assert not seen.changed and (repo / ".git" / "index").read_bytes() == before
    assert (Act.exec, "git status") in context.asked


async def test_status_counts_what_may_not_be_read_and_says_when_it_is_cut(repo, context):
    context.policy = Policy.permissive().layer("operator").deny_read("private/*")
    (repo / "private").mkdir()
    for number in range(3):
        (repo / "private" / f"{number}").write_text("x")
    for number in range(205):
        (repo / f"n{number:03}").write_text("x")
    text = (await use("git_status", context)).text
    assert "private" not in text
    assert text.endswith("[200 of 205 changes shown]\n[3 files were left out: the policy does not let them be read]")


async def test_diff_shows_what_is_not_staged_or_what_is(repo, context):
    assert (await use("git_diff", context)).text == "[nothing differs]"
    (repo / "a.txt").write_text("one\nchanged\n")
    (repo / "sub" / "c.txt").write_text("three\n")
    git(repo, "add", "sub")
    plain = (await use("git_diff", context)).text
    assert "-two\n+changed" in plain and "c.txt" not in plain
    staged = (await use("git_diff", context, staged=True)).text
    assert "+three" in staged and "a.txt" not in staged
    assert "+three" in (await use("git_diff", context, path="sub", staged=True)).text
    assert (await use("git_diff", context, path="b.txt")).text == "[nothing differs]"
    assert context.lines[-1] == "git diff -- b.txt" and (Act.read, "b.txt") in context.asked


async def test_diff_leaves_out_and_counts_what_may_not_be_read(repo, context):
    context.policy = Policy.permissive().layer("operator").deny_read("b.txt")
    for name in ("a.txt", "b.txt"):
        (repo / name).write_text("changed\n")
    text = (await use("git_diff", context)).text
    assert "a.txt" in text and "b.txt" not in text
    assert text.endswith("[1 files were left out: the policy does not let them be read]")
    with pytest.raises(ActRefused):
        await use("git_diff", context, path="b.txt")
    git(repo, "checkout", "-q", "a.txt")
    assert (await use("git_diff", context)).text == "[1 files were left out: the policy does not let them be read]"


async def test_a_diff_that_is_long_is_bounded(repo, context):
    (repo / "a.txt").write_text("".join(f"{number}\n" for number in range(100_000)))
    assert len((await use("git_diff", context)).text) < 210_000


async def test_log_lists_commits_the_newest_first(repo, context):
    for number in range(25):
        git(repo, "commit", "-q", "--allow-empty", "-m", f"number {number}")
    lines = (await use("git_log", context)).text.splitlines()
    assert len(lines) == 20 and lines[0].endswith("t: number 24 (HEAD -> main)")
    assert len((await use("git_log", context, count=200)).text.splitlines()) == 26
    for count in (0, 201):
        with pytest.raises(ToolFailed, match="count"):
            await use("git_log", context, count=count)


# ── changing ────────────────────────────────────────────────────────────────


async def test_whoever_the_operator_names_commits_and_nobody_else(repo, context, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A Person")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "person@example.invalid")
    git(repo, "config", "user.name", "A Person")
    context.commit_identity = Identity("Build Bot (2)", "bot+ci@example.invalid")
    (repo / "a.txt").write_text("changed\n")
    await use("git_add", context, paths=["a.txt"])
    await use("git_commit", context, message="Change it")
    who = "Build Bot (2) <bot+ci@example.invalid>"
    assert git(repo, "log", "-1", "--format=%an <%ae>|%cn <%ce>") == f"{who}|{who}"
    await use("git_branch", context, name="fix")
    assert who in (repo / ".git/logs/refs/heads/fix").read_text()


async def test_a_change_is_staged_committed_and_named(repo, context):
    (repo / "a.txt").write_text("changed\n")
    (repo / "b.txt").unlink()
    (repo / "odd \"name\n").write_text("x")
    seen = await use("git_add", context, paths=["."])
    assert seen.text == 'staged 3 files:\na.txt\nb.txt\nodd "name?' and seen.changed
    assert (await use("git_add", context, paths=["a.txt"])).text.startswith("[nothing to stage")
    first = git(repo, "rev-parse", "HEAD")
    seen = await use("git_commit", context, message="  Change it\n\nand say why\n")
    now = git(repo, "rev-parse", "HEAD")
    assert seen.text == f"committed {now[:12]} on main: Change it" and seen.changed
    assert git(repo, "log", "-1", "--format=%P|%an <%ae>|%cn|%B") == (
        f"{first}|agent <agent@actors.invalid>|agent|Change it\n\nand say why"
    )
    assert git(repo, "status", "--porcelain") == "" and git(repo, "fsck", "--strict") == ""
    with pytest.raises(ToolFailed, match="nothing is staged"):
        await use("git_commit", context, message="again")
    assert (await use("git_branch", context, name="fix/it")).text == f"made fix/it at {now[:12]}"
    again = await use("git_branch", context, name="fix/it")
    assert again.text == f"fix/it is there already, at {now[:12]}; unchanged" and not again.changed
    assert git(repo, "branch", "--format=%(refname:short) %(objectname)") == f"fix/it {now}\nmain {now}"
    assert git(repo, "symbolic-ref", "HEAD") == "refs/heads/main"


async def test_only_what_was_named_is_staged(repo, context):
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (repo / name).write_text("changed\n")
    await use("git_add", context, paths=["a.txt", "sub"])
    assert git(repo, "diff", "--cached", "--name-only") == "a.txt\nsub/c.txt"
    assert context.lines == ["git add -- a.txt sub"]


async def test_the_first_commit_of_a_repository_is_made(root, context):
    git(root, "init", "-q", "-b", "main")
    assert (await use("git_status", context)).text == "on main, nothing is committed yet\n[nothing differs]"
    assert (await use("git_log", context)).text == "[nothing is committed yet]"
    for name, arguments in (("git_commit", {"message": "x"}), ("git_branch", {"name": "x"})):
        with pytest.raises(ToolFailed, match=r"nothing is (staged|committed)"):
            await use(name, context, **arguments)
    (root / "a.txt").write_text("one\n")
    await use("git_add", context, paths=["a.txt"])
    assert "+one" in (await use("git_diff", context, staged=True)).text
    await use("git_commit", context, message="first")
    assert git(root, "log", "--format=%s") == "first"


async def test_no_branch_is_left_for_a_commit_that_is_on_none(repo, context):
    git(repo, "checkout", "-q", "--detach")
    (repo / "a.txt").write_text("changed\n")
    await use("git_add", context, paths=["a.txt"])
    main = git(repo, "rev-parse", "main")
    assert "on no branch: alone" in (await use("git_commit", context, message="alone")).text
    assert git(repo, "rev-parse", "main") == main != git(repo, "rev-parse", "HEAD")


async def test_a_denied_file_is_refused_by_its_name_and_left_out_of_its_directory(repo, context):
    context.policy = Policy.permissive().layer("operator").deny_read("sub/c.txt")
    for name in ("a.txt", "sub/c.txt", "sub/d.txt"):
        (repo / name).write_text("changed\n")
    with pytest.raises(ActRefused):
        await use("git_add", context, paths=["a.txt", "sub/c.txt"])
    assert git(repo, "diff", "--cached", "--name-only") == ""
    seen = await use("git_add", context, paths=["sub"])
    assert seen.text.endswith("sub/d.txt\n[1 files were left out: the policy does not let them be read]")
    assert git(repo, "diff", "--cached", "--name-only") == "sub/d.txt"


async def test_ignored_files_are_not_staged_and_repositories_inside_are_left_out(repo, context):
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "x.log").write_text("x")
    (repo / "inner").mkdir()
    git(repo / "inner", "init", "-q")
    assert (await use("git_add", context, paths=["x.log"])).text.startswith("[nothing to stage")
    seen = await use("git_add", context, paths=["."])
    assert seen.text.splitlines()[:2] == ["staged 1 files:", ".gitignore"] and "1 were left out" in seen.text
    assert git(repo, "diff", "--cached", "--name-only") == ".gitignore"


async def test_a_link_is_staged_as_a_link_and_a_file_takes_the_place_of_a_directory(repo, context):
    (repo / "link").symlink_to("a.txt")
    (repo / "sub" / "c.txt").unlink()
    (repo / "sub").rmdir()
    (repo / "sub").write_text("a file\n")
    await use("git_add", context, paths=["link", "sub"])
    assert git(repo, "ls-files", "-s").splitlines()[2].startswith("120000") and "sub/c.txt" not in git(repo, "ls-files")
    with pytest.raises(ToolFailed, match="out of the workspace"):
        await use("git_add", context, paths=["../secret/key.txt"])


async def test_a_file_that_goes_through_a_filter_is_refused(repo, context):
    git(repo, "config", "filter.big.clean", "touch ran; cat")
    (repo / ".gitattributes").write_text("*.bin filter=big\n")
    (repo / "x.bin").write_text("x")
    with pytest.raises(ToolFailed, match=r'"x\.bin" is kept through the filter "big"'):
        await use("git_add", context, paths=["."])
    assert git(repo, "diff", "--cached", "--name-only") == "" and not (repo / "ran").exists()
    assert "off here (big)" in (await use("git_status", context)).text
    assert (await use("git_add", context, paths=[".gitattributes"])).changed


@pytest.mark.parametrize("name", ["a\x0bb", "a\x0cb", "a\x1cb", "a\x85b", "a\u2028b", "a\u2029b", ""])
async def test_a_filter_is_off_also_under_a_name_that_looks_like_two_lines_or_like_nothing(repo, context, name):
    with (repo / ".git" / "config").open("a") as settings:
        settings.write(f'[filter "{name}"]\n\tclean = touch ran; cat\n')
    (repo / ".gitattributes").write_text(f"* filter={name}\n")
    (repo / "a.txt").write_text("changed\n")
    await use("git_status", context)
    await use("git_diff", context)
    with pytest.raises(ToolFailed, match="is kept through the filter"):
        await use("git_add", context, paths=["a.txt"])
    assert not (repo / "ran").exists()


async def test_a_lock_that_a_cut_command_left_is_taken_away_and_that_of_somebody_else_is_not(repo, context):
    (repo / "big.bin").write_bytes(os.urandom(80_000_000))
    (repo / "a.txt").write_text("changed\n")
    with pytest.raises(ToolFailed, match="git add failed"):
        await use("git_add", attrs.evolve(context, exec_timeout=0.4), paths=["big.bin"])
    assert not (repo / ".git" / "index.lock").exists()
    assert (await use("git_add", context, paths=["a.txt"])).changed
    (repo / ".git" / "index.lock").touch()
    (repo / "a.txt").write_text("again\n")
    with pytest.raises(ToolFailed, match=r"index\.lock"):
        await use("git_add", context, paths=["a.txt"])
    assert (repo / ".git" / "index.lock").exists()


@contextmanager
def held_by_somebody(lock: Path) -> Iterator[None]:
    with lock.open("w") as held, subprocess.Popen(["sleep", "60"], stdout=held) as holder:
        yield
        holder.kill()


async def test_a_call_that_a_process_which_is_gone_began_takes_its_lock_away_unless_somebody_holds_it(repo, context):
    lock = repo / ".git" / "index.lock"
    (repo / "a.txt").write_text("changed\n")
    again = attrs.evolve(context, noted=(digest(b"git add -- a.txt"), True))
    with held_by_somebody(lock), pytest.raises(ToolFailed, match=r"index\.lock"):
        await use("git_add", again, paths=["a.txt"])
    assert lock.exists()
    assert (await use("git_add", again, paths=["a.txt"])).text.startswith("staged 1 files") and not lock.exists()


@contextmanager
def git_that_waits(place: Path) -> Iterator[None]:
    """Have a live program called git, as one is that waits for its editor: its lock is closed meanwhile."""
    shutil.copy(shutil.which("sleep") or "", place / "git")
    with subprocess.Popen([place / "git", "60"]) as waiting:
        yield
        waiting.kill()


async def test_the_lock_of_a_git_that_waits_for_its_editor_stays(repo, context, tmp_path_factory):
    lock = repo / ".git" / "index.lock"
    (repo / "a.txt").write_text("changed\n")
    lock.touch()
    again = attrs.evolve(context, noted=(digest(b"git add -- a.txt"), True))
    with git_that_waits(tmp_path_factory.mktemp("bin")), pytest.raises(ToolFailed, match=r"index\.lock"):
        await use("git_add", again, paths=["a.txt"])
    assert lock.exists()


async def test_a_lock_that_somebody_took_meanwhile_stays(repo, context, monkeypatch):
    lock, run = repo / ".git" / "index.lock", Git.run

    async def later(git, *arguments, **options):
        if arguments[0] == "update-index":
            lock.touch()
        return await run(git, *arguments, **options)

    monkeypatch.setattr(Git, "run", later)
    (repo / "a.txt").write_text("changed\n")
    with pytest.raises(ToolFailed, match=r"index\.lock"):
        await use("git_add", context, paths=["a.txt"])
    assert lock.exists()


async def test_a_file_that_goes_through_a_filter_of_a_person_is_refused_too(repo, context):
    # As git-lfs is set up mostly: the repository's own settings say nothing of it.
    (repo / ".gitattributes").write_text("*.lfs filter=lfs diff=lfs\n*.txt -filter\n")
    (repo / "big.lfs").write_text("much\n")
    (repo / "a.txt").write_text("changed\n")
    with pytest.raises(ToolFailed, match=r"\"big\.lfs\" is kept through the filter \"lfs\""):
        await use("git_add", context, paths=["."])
    assert (await use("git_add", context, paths=["a.txt", ".gitattributes"])).changed


@pytest.mark.parametrize("word", ["set", "unset", "unspecified"])
async def test_a_filter_of_a_person_that_is_called_as_none_is_refused_and_none_is_not(repo, context, word):
    (repo / ".gitattributes").write_text(f"*.own filter={word}\n*.on filter\n*.off -filter\n*.not !filter\n")
    for name in ("x.on", "x.off", "x.not", "sub/x.plain"):
        (repo / name).write_text("x\n")
    assert (await use("git_add", context, paths=["."])).text.startswith("staged 5 files")
    (repo / "new/deep").mkdir(parents=True)
    (repo / "new/deep/x.own").write_text("much\n")
    with pytest.raises(ToolFailed, match=rf'"new/deep/x\.own" is kept through the filter "{word}"'):
        await use("git_add", context, paths=["."])
    assert "new" not in git(repo, "diff", "--cached", "--name-only") and not (repo / ".git/index.lock").exists()
    (repo / "sub/x.own").write_text("much\n")
    with pytest.raises(ToolFailed, match=rf'"sub/x\.own" is kept through the filter "{word}"'):
        await use("git_add", context, paths=["sub"])
    # One that is in it already too.
    git(repo, "add", "sub")
    (repo / "sub/x.own").write_text("more\n")
    with pytest.raises(ToolFailed, match=r'"sub/x\.own" is kept through the filter'):
        await use("git_add", context, paths=["sub/x.own"])


ODD = [
    ".git/HEAD", ".git/index", ".git/config", ".git/packed-refs", ".git/shallow", ".git/FETCH_HEAD", ".git/MERGE_HEAD",
    ".git/info/attributes", ".git/info/exclude", ".git/refs/heads/x", ".git/logs/HEAD", ".git/objects/info/alternates",
    ".git/objects/info/commit-graph", ".git/objects/pack/x.idx", ".git/objects/info/commit-graphs/commit-graph-chain",
    ".git/rebase-merge/head-name", ".git/sequencer/todo", ".gitattributes", ".gitignore", ".gitmodules", "sub/.gitattributes",
    "sub/deep/.gitignore", ".worktrees/.gitignore",
    # Below the top: git looks whether a directory is a repository of its own.
    "own/.git/HEAD", "own/.git/commondir", "own/.git/packed-refs", "own/.git/refs/heads/main", "own/deep/er/.git/HEAD",
    ".worktrees/x/.git/HEAD", ".worktrees/x/.gitignore", "sub/.worktrees/x/.git/HEAD",
]  # fmt: skip


@pytest.mark.parametrize("path", ODD)
@pytest.mark.parametrize("name", ["git_status", "git_diff", "git_add"])
async def test_a_pipe_in_place_of_what_git_reads_is_refused_at_once(repo, context, monkeypatch, name, path):
    async def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("git was run")

    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    (repo / path).unlink(missing_ok=True)
    os.mkfifo(repo / path)
    monkeypatch.setattr(Git, "run", never)
    monkeypatch.setattr(Git, "filters_off", never)
    with pytest.raises(ToolFailed, match=r"is no regular file|has files that lie elsewhere"):
        await use(name, context, **({"paths": ["."]} if name == "git_add" else {}))


@pytest.mark.parametrize(("told", "at"), [("gitdir: ../g\n", "sub/g/HEAD"), ("gitdir: {}/sub/g", "sub/g/commondir"), ("gitdir: ../g", "sub/c/HEAD")])
async def test_a_pipe_in_a_repository_that_a_file_names_is_refused_at_once(repo, context, told, at):
    (repo / "sub/d").mkdir()
    (repo / "sub/d/.git").write_text(told.format(repo))
    for place in ("sub/g", "sub/c"):
        (repo / place).mkdir()
    (repo / "sub/g/HEAD").write_text("ref: refs/heads/main\n")
    (repo / "sub/g/commondir").write_text("../c\n")
    (repo / at).unlink(missing_ok=True)
    os.mkfifo(repo / at)
    for name, paths in (("git_status", None), ("git_add", ["sub/d"]), ("git_add", ["."])):
        with pytest.raises(ToolFailed, match=rf"{at}\" is no regular file"):
            await use(name, context, **({"paths": paths} if paths else {}))
    # What a call has nothing to do with hinders it not.
    (repo / "a.txt").write_text("changed\n")
    assert (await use("git_add", context, paths=["a.txt"])).text == "staged 1 files:\na.txt"


async def test_a_repository_outside_in_which_git_would_wait_is_refused_and_not_named(repo, context, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    os.mkfifo(outside / "HEAD")
    (repo / "own").mkdir()
    (repo / "own/.git").write_text(f"gitdir: {outside}\n")
    with pytest.raises(ToolFailed, match=r"^\"own/\.git\" names a repository in which something is no regular file"):
        await use("git_status", context)


async def test_what_git_reads_above_of_what_is_named_is_looked_at_too(repo, context):
    (repo / "sub/deep/er").mkdir(parents=True)
    (repo / "sub/deep/er/x").write_text("x")
    os.mkfifo(repo / "sub/.gitignore")
    with pytest.raises(ToolFailed, match=r"sub/\.gitignore\" is no regular file"):
        await use("git_add", context, paths=["sub/deep/er"])


async def test_other_repositories_and_work_trees_that_are_passed_by_hinder_nothing(repo, context):
    git(repo, "init", "-q", "own")
    (repo / ".worktrees/x/.git").mkdir(parents=True)
    (repo / ".worktrees/.gitignore").write_text("*\n")
    os.mkfifo(repo / ".worktrees/x/.git/HEAD")
    (repo / "odd").mkdir()
    (repo / "odd/.git").write_bytes(b"gitdir: \0\xff\n")
    (repo / "link").symlink_to("sub", target_is_directory=True)
    seen = await use("git_status", context)
    assert "?? own/" in seen.text and "worktrees" not in seen.text


async def test_a_git_that_ran_out_of_time_is_not_run_once_more_to_hear_its_complaint(repo, context, monkeypatch):
    async with opened_repository(context) as repository:
        runs = []

        async def cut(_git: Git, *arguments: str, **_: Any) -> Finished:
            runs.append(arguments)
            return Finished(Status.timed_out, None, "secret-name\n", 0, 1.0)

        monkeypatch.setattr(Git, "run", cut)
        with pytest.raises(ToolFailed, match=r"^git status failed \(timed_out\)$"):
            await repository.ask("git status failed", "status")
    assert len(runs) == 1


async def test_a_socket_that_git_keeps_for_its_monitor_and_a_pipe_elsewhere_hinder_nothing(repo, context):
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.bind(str(repo / ".git/fsmonitor--daemon.ipc"))
    os.mkfifo(repo / "pipe")
    os.mkfifo(repo / ".git/hooks/pre-commit")
    (repo / "a.txt").write_text("changed\n")
    assert " M a.txt" in (await use("git_status", context)).text
    assert (await use("git_add", context, paths=["."])).text == "staged 1 files:\na.txt"


async def test_directories_that_cannot_be_listed_are_counted(repo, context, monkeypatch):
    real = os.scandir

    def shut(place: Any = ".") -> Any:
        if str(place).endswith("shut"):
            raise PermissionError(13, "Permission denied", place)
        return real(place)

    (repo / "sub/shut").mkdir()
    (repo / "sub/shut/x").write_text("x")
    (repo / "a.txt").write_text("changed\n")
    monkeypatch.setattr(git_repository.os, "scandir", shut)
    said = "[1 directories were left out: they cannot be listed]"
    assert said in (await use("git_add", context, paths=["."])).text
    assert said in (await use("git_status", context)).text
    assert said not in (await use("git_add", context, paths=["a.txt"])).text


async def test_agents_that_change_one_repository_at_once_take_turns(repo, context):
    """Git refuses to change an index that is being changed; nobody of us is refused, and nothing is lost."""
    async def work(agent: int) -> None:
        for number in range(3):
            name = f"f{agent}-{number}"
            (repo / name).write_text("x\n")
            own = attrs.evolve(context, key=f"run/{agent}#{number}")
            assert (await use("git_add", own, paths=[name])).changed
            with suppress_nothing_staged():
                await use("git_commit", own, message=name)

    async with trio.open_nursery() as nursery:
        for agent in range(3):
            nursery.start_soon(work, agent)
    assert git(repo, "status", "--porcelain") == ""
    assert len(git(repo, "ls-files").splitlines()) == 3 + 9
    assert not (repo / ".git/index.lock").exists() and git(repo, "fsck", "--no-dangling") == ""


@contextmanager
def suppress_nothing_staged() -> Iterator[None]:
    """Whoever shares an index may find that another one has committed what he staged."""
    try:
        yield
    except ToolFailed as error:
        assert "nothing is staged" in str(error)


async def test_a_lock_that_somebody_is_about_to_let_go_is_waited_for(repo, context):
    lock = repo / ".git/index.lock"
    lock.touch()
    (repo / "a.txt").write_text("changed\n")

    async def soon() -> None:
        await trio.sleep(0.2)
        lock.unlink()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(soon)
        assert (await use("git_add", context, paths=["a.txt"])).changed


async def test_whoever_waits_too_long_for_his_turn_is_told(repo, context):
    (repo / "a.txt").write_text("changed\n")

    async def other(task_status: trio.TaskStatus[None]) -> None:
        async with opened_repository(context, changes=True):
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(other)
        with pytest.raises(ToolFailed, match="other agents are changing the repository"):
            await use("git_add", attrs.evolve(context, exec_timeout=0.05), paths=["a.txt"])
        # Looking needs no turn.
        assert " M a.txt" in (await use("git_status", context)).text
        nursery.cancel_scope.cancel()
    assert (await use("git_add", context, paths=["a.txt"])).changed


async def test_many_paths_are_judged_while_others_go_on(context, monkeypatch):
    turns, judged = 0, 0
    explain = Policy.explain

    def counted(policy: Policy, act: Act, target: str) -> Decision:
        nonlocal judged
        judged += 1
        return explain(policy, act, target)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    context.policy = Policy.permissive().layer("operator").deny_read("*7")
    monkeypatch.setattr(Policy, "explain", counted)
    paths = [f"p{number}" for number in range(5_000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        may, may_not = await split_readable(context, paths)
        nursery.cancel_scope.cancel()
    assert (len(may), len(may_not), judged) == (4_500, 500, 5_000)
    assert turns >= 20


async def test_a_filter_whose_name_is_no_text_lets_no_git_run(repo, context):
    with (repo / ".git" / "config").open("ab") as settings:
        settings.write(b'[filter "a\xffb"]\n\tclean = touch ran; cat\n')
    (repo / ".gitattributes").write_bytes(b"* filter=a\xffb\n")
    (repo / "a.txt").write_text("changed\n")
    for tool, arguments in (("git_status", {}), ("git_diff", {}), ("git_add", {"paths": ["a.txt"]})):
        with pytest.raises(ToolFailed, match="a filter by what is no text"):
            await use(tool, context, **arguments)
    assert not (repo / "ran").exists()


@pytest.mark.parametrize("under_way", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"])
async def test_what_is_under_way_is_not_ended_by_a_commit(repo, context, under_way):
    (repo / "a.txt").write_text("changed\n")
    git(repo, "add", "a.txt")
    (repo / ".git" / under_way).mkdir() if "merge" in under_way else (repo / ".git" / under_way).write_text("x")
    with pytest.raises(ToolFailed, match=under_way):
        await use("git_commit", context, message="x")
    assert git(repo, "log", "--format=%s") == "begin"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("git_add", {"paths": []}, "paths"),
        ("git_add", {"paths": ["a"] * (MOST_PATHS + 1)}, "paths"),
        ("git_add", {"paths": ["a\nb"]}, "control character"),
        ("git_commit", {"message": " "}, "must not be empty"),
        ("git_commit", {"message": "a\x1b"}, "control character"),
        ("git_branch", {"name": "actors/x"}, "of work trees"),
        ("git_branch", {"name": "--force"}, "no name for a branch"),
        ("git_branch", {"name": "a" * 101}, "101 characters"),
        ("git_diff", {"path": ""}, "must not be empty"),
        ("git_status", {"path": "a"}, "git_status"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(repo, context, name, arguments, said):
    with pytest.raises(ToolFailed, match=said):
        await use(name, context, **arguments)
    assert not context.lines


async def test_a_name_in_the_way_of_a_branch_is_told_by_git(repo, context):
    await use("git_branch", context, name="a")
    with pytest.raises(ToolFailed, match=r"git branch failed.*refs/heads/a"):
        await use("git_branch", context, name="a/b")


# ── what a process that ended has done ──────────────────────────────────────


async def test_a_commit_that_this_call_made_before_is_found_also_below_later_ones(repo, context):
    (repo / "a.txt").write_text("changed\n")
    git(repo, "add", "a.txt")
    await use("git_commit", context, message="once")
    [(target, after, changes)] = context.intended
    assert (target, changes) == (".git/HEAD", True)
    made = git(repo, "rev-parse", "HEAD")
    again = attrs.evolve(context, noted=(after, True))
    assert (await use("git_commit", again, message="once")).text == f"committed {made[:12]} on main: once"
    # Somebody else has committed, and staged more, since.
    git(repo, "commit", "-q", "--allow-empty", "-m", "by another")
    (repo / "b.txt").write_text("not of this call\n")
    git(repo, "add", "b.txt")
    assert made[:12] in (await use("git_commit", again, message="once")).text
    assert git(repo, "log", "--format=%s") == "by another\nonce\nbegin"


async def test_a_commit_that_was_only_meant_is_made(repo, context):
    (repo / "a.txt").write_text("changed\n")
    git(repo, "add", "a.txt")
    tree, head = git(repo, "write-tree"), git(repo, "rev-parse", "HEAD")
    context.noted = (digest(f"{head}\n{tree}\nonce".encode()), True)
    seen = await use("git_commit", context, message="once")
    assert seen.changed and git(repo, "log", "--format=%s") == "once\nbegin"
    assert context.intended[0][1] == context.noted[0]


async def test_staging_and_naming_that_this_call_did_before_are_told_as_done(repo, context):
    (repo / "a.txt").write_text("changed\n")
    await use("git_add", context, paths=["a.txt"])
    await use("git_branch", context, name="x")
    for (_, after, _), name, arguments in zip(
        list(context.intended), ("git_add", "git_branch"), ({"paths": ["a.txt"]}, {"name": "x"}), strict=True
    ):
        again = await use(name, attrs.evolve(context, noted=(after, True)), **arguments)
        assert again.changed and again.text.startswith(("staged 1 files:\na.txt", "made x at"))


# ── where it lies, and what stands around it ────────────────────────────────


@pytest.mark.parametrize("name", TOOLS)
async def test_no_repository_above_is_found(root, context, name):
    git(root.parent, "init", "-q")
    arguments = {"git_add": {"paths": ["a"]}, "git_commit": {"message": "x"}, "git_branch": {"name": "x"}}
    with pytest.raises(ToolFailed, match="not the top of a git repository"):
        await use(name, context, **arguments.get(name, {}))


async def test_a_bare_repository_or_one_elsewhere_is_refused(root, context, tmp_path):
    git(root, "init", "-q", "--bare")
    with pytest.raises(ToolFailed, match="not the top of a git repository"):
        await use("git_status", context)
    (root / ".git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
    with pytest.raises(ToolFailed, match="lies elsewhere"):
        await use("git_status", context)


@pytest.mark.skipif(detect().bubblewrap is None and not detect().landlock, reason="nothing here holds a boundary")
async def test_the_boundary_of_the_agent_stands_around_git(repo, context):
    applied: list[SandboxApplied] = []

    async def record(what: SandboxApplied) -> None:
        applied.append(what)

    context.confinement = Confinement(ExecSandbox.read_only, record=record)
    (repo / "a.txt").write_text("changed\n")
    assert " M a.txt" in (await use("git_status", context)).text
    assert "+changed" in (await use("git_diff", context)).text
    with pytest.raises(ToolFailed, match="git add failed"):
        await use("git_add", context, paths=["a.txt"])
    assert git(repo, "diff", "--cached", "--name-only") == ""
    assert [each.mode for each in applied] == [ExecSandbox.read_only] * 3
    context.confinement = Confinement(ExecSandbox.workspace_write, record=record)
    await use("git_add", context, paths=["a.txt"])
    assert (await use("git_commit", context, message="inside")).changed


async def test_a_boundary_that_cannot_be_held_is_told_and_nothing_was_run(repo, context, monkeypatch):
    async def cannot(*_: Any) -> Any:
        raise SandboxUnavailable("the boundary cannot be held here")

    context.confinement = Confinement(ExecSandbox.full_access, record=cannot)
    with pytest.raises(ToolFailed, match="cannot be held"):
        await use("git_branch", context, name="x")
    assert git(repo, "branch", "--format=%(refname:short)") == "main"


async def test_git_that_is_missing_is_named(repo, context, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolFailed, match='"git" is unavailable'):
        await use("git_status", context)
