"""The tools of git, in a repository whose settings, files and place were made by an attacker.

The control of each case: git as somebody in the workspace would call it, in whose
environment nothing is off.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.tools.git_change import GitAdd, GitBranch, GitCommit
from actors.tools.git_look import GitDiff, GitLog, GitStatus

OUTSIDE = "canary-outside-the-workspace"
DENIED = "canary-denied-inside"
PROOF = "proof-that-it-ran"
WHO = ("-c", "user.name=t", "-c", "user.email=t@t.invalid")
TOOLS = {tool.spec.name: tool for tool in (GitStatus(), GitDiff(), GitLog(), GitAdd(), GitCommit(), GitBranch())}
Calls = Sequence[tuple[str, Mapping[str, Any]]]

STATUS: Calls = [("git_status", {})]
DIFF: Calls = [("git_diff", {}), ("git_diff", {"staged": True}), ("git_diff", {"path": "a.txt"})]
LOG: Calls = [("git_log", {})]
ADD: Calls = [("git_add", {"paths": ["a.txt"]}), ("git_add", {"paths": ["."]})]
COMMIT: Calls = [("git_commit", {"message": "by the agent"})]
BRANCH: Calls = [("git_branch", {"name": "made"})]
ALL: Calls = [*STATUS, *DIFF, *LOG, *ADD, *COMMIT, *BRANCH]


def git(root: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *WHO, *arguments], cwd=root, capture_output=True, text=True, check=check, timeout=30)
    return done.stdout + done.stderr


def settle(root: Path, **settings: str) -> None:
    for key, value in settings.items():
        git(root, "config", key.replace("__", "."), value)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no settings of whoever runs the tests make a control fail."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(world: Any) -> Any:
    """The workspace of the attacks as a repository, with a change, and a program that proves that it ran."""
    root = world.root
    git(root, "init", "-q", "-b", "main")
    evil = root / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch '{root}/{PROOF}'\ncat\nexit 0\n")
    evil.chmod(0o755)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "begin")
    (root / "a.txt").write_text("inside\nchanged\n")
    return world


async def told_by(world: Any, calls: Calls) -> str:
    return "\n".join([await world.call(TOOLS[name], arguments) for name, arguments in calls])


def ran(world: Any) -> bool:
    proof = world.root / PROOF
    there = os.path.lexists(proof)
    if there:
        proof.unlink()
    return there


# ── settings that name programs ─────────────────────────────────────────────


def _hooks(folder: str, *names: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        for name in names:
            hook = root / folder / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(f"#!/bin/sh\ntouch '{root}/{PROOF}'\n")
            hook.chmod(0o755)
        if folder != ".git/hooks":
            settle(root, core__hooksPath=folder)

    return plant


def _filter(setting: str, how: str = "") -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        (root / ".gitattributes").write_text("*.txt filter=x\n")
        if how == "included":
            (root / "more.cfg").write_text('[filter "x"]\n\tclean = ./evil.sh\n')
            settle(root, include__path="../more.cfg")
        else:
            settle(root, **{f"filter__x__{setting}": "./evil.sh"})

    return plant


def _driver(setting: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        (root / ".gitattributes").write_text("*.txt diff=x\n")
        settle(root, **{setting: "./evil.sh"})

    return plant


def _submodule(root: Path) -> None:
    inner = root / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "f").write_text("f")
    git(inner, "add", "f")
    git(inner, "commit", "-q", "-m", "inner")
    git(root, "add", "inner")
    git(root, "commit", "-q", "-m", "with a submodule")
    settle(inner, core__fsmonitor=f"{root}/evil.sh")
    (inner / "f").write_text("changed")


def _lazy(root: Path) -> None:
    """An object is missing, and a setting says which program has it."""
    name = git(root, "rev-parse", "HEAD:a.txt").strip()
    # It does not answer: whoever waits for it would wait for ever.
    (root / "far.sh").write_text(f"#!/bin/sh\ntouch '{root}/{PROOF}'\n")
    (root / "far.sh").chmod(0o755)
    settle(
        root, core__repositoryFormatVersion="1", extensions__partialClone="origin", remote__origin__promisor="true",
        remote__origin__url=f"ext::{root}/far.sh", protocol__ext__allow="always",
    )  # fmt: skip
    (root / ".git" / "objects" / name[:2] / name[2:]).unlink()


def _signed(root: Path) -> None:
    signer = root / "sign.sh"
    signer.write_text("#!/bin/sh\ncat >/dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'\n")
    signer.chmod(0o755)
    settle(root, gpg__program=str(signer))
    git(root, "commit", "-q", "--allow-empty", "-S", "-m", "signed")
    settle(root, gpg__program=f"{root}/evil.sh", log__showSignature="true")


def _set(**settings: str) -> Callable[[Path], None]:
    return lambda root: settle(root, **settings)


@attrs.frozen
class Program:
    name: str
    plant: Callable[[Path], None]
    control: tuple[tuple[str, ...], ...]
    calls: Calls


STAGE = ("add", "a.txt")
SAY = ("commit", "-q", "-m", "x", "-a")
PROGRAMS = [
    Program("a monitor of files, looked at", _set(core__fsmonitor="./evil.sh"), (("status",),), [*STATUS, *DIFF]),
    Program("a monitor of files, staged", _set(core__fsmonitor="./evil.sh"), (STAGE,), [*ADD, *COMMIT]),
    Program("a filter, staged", _filter("clean"), (STAGE,), ADD),
    Program("a filter, compared", _filter("clean"), (("diff",),), [*STATUS, *DIFF]),
    Program("a filter that stays", _filter("process"), (STAGE,), [*STATUS, *DIFF, *ADD]),
    Program("a filter of another file", _filter("clean", "included"), (STAGE,), [*STATUS, *DIFF, *ADD]),
    Program("what makes a text of a file", _driver("diff__x__textconv"), (("diff",),), DIFF),
    Program("what compares some files", _driver("diff__x__command"), (("diff",),), DIFF),
    Program("what compares all files", _set(diff__external="./evil.sh"), (("diff",),), DIFF),
    Program("a hook before a commit", _hooks(".git/hooks", "pre-commit", "commit-msg", "prepare-commit-msg"), (SAY,), ALL),
    Program("a hook after a commit", _hooks(".git/hooks", "post-commit"), (SAY,), ALL),
    Program("a hook elsewhere", _hooks("hooks", "pre-commit"), (SAY,), ALL),
    Program("a hook of refs", _hooks("hooks", "reference-transaction"), (("branch", "x"),), [*COMMIT, *BRANCH]),
    Program("a hook of the index", _hooks(".git/hooks", "post-index-change"), (STAGE,), [*STATUS, *DIFF, *ADD, *COMMIT]),
    Program("a signer", _set(commit__gpgSign="true", gpg__program="./evil.sh"), (SAY,), [*ADD, *COMMIT]),
    Program("who looks at signatures", _signed, (("log",),), LOG),
    Program("an editor", _set(core__editor="./evil.sh"), (("commit", "-a"),), [*ADD, *COMMIT]),
    Program("who has what is missing", _lazy, (("diff",),), [*STATUS, *DIFF, *LOG]),
    Program("a monitor of a submodule", _submodule, (("status",),), ALL),
    Program("a monitor of a submodule, compared", _submodule, (("diff",),), ALL),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.name)
async def test_attack_no_program_that_a_setting_names_is_run(repo: Any, program: Program) -> None:
    program.plant(repo.root)
    ran(repo)
    told = await told_by(repo, program.calls)
    assert not ran(repo), told
    git(repo.root, "reset", "-q", check=False)
    (repo.root / "a.txt").write_text("inside\nchanged again\n")
    ran(repo)
    for control in program.control:
        git(repo.root, *control, check=False)
    assert ran(repo), "the attack works where nothing is off"


async def test_attack_nothing_of_our_environment_reaches_git(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"{repo.root}/evil.sh")
    await told_by(repo, DIFF)
    assert not ran(repo)
    git(repo.root, "diff")
    assert ran(repo)


# ── files that may not be read ──────────────────────────────────────────────

READS: list[tuple[str, Calls, tuple[str, ...]]] = [
    ("all that differs", [("git_diff", {})], ("diff",)),
    ("all that is staged", [("git_diff", {"staged": True})], ("diff", "--cached")),
    ("the file itself", [("git_diff", {"path": ".env"})], ("diff", "--", ".env")),
    ("its directory", [("git_diff", {"path": "private"})], ("diff", "--", "private")),
    ("a link to it", [("git_diff", {"path": "./private_link/p.txt"})], ("diff", "--", "private/p.txt")),
    ("a pattern", [("git_diff", {"path": ".en?"})], ("diff", "--", ".en?")),
    ("another spelling", [("git_diff", {"path": ":(top).env"})], ("diff", "--", ":(top).env")),
    ("any case", [("git_diff", {"path": ":(icase).ENV"})], ("diff", "--", ":(icase).ENV")),
    ("all but another", [("git_diff", {"path": ":!a.txt"})], ("diff", "--", ":!a.txt")),
    ("an option", [("git_diff", {"path": "--"})], ("diff", "--")),
]


@pytest.mark.parametrize(("calls", "control"), [case[1:] for case in READS], ids=[case[0] for case in READS])
async def test_attack_nothing_of_a_denied_file_is_shown(repo: Any, calls: Calls, control: tuple[str, ...]) -> None:
    for name in (".env", "private/p.txt"):
        (repo.root / name).write_text(f"{DENIED}, changed\n")
    if "--cached" in control:
        git(repo.root, "add", "-A")
    told = await told_by(repo, calls)
    assert DENIED not in told
    assert DENIED in git(repo.root, *control)


@pytest.mark.parametrize("path", [".env", "private/p.txt", "private", ".", "private_link/p.txt"])
async def test_attack_nothing_of_a_denied_file_is_staged(repo: Any, path: str) -> None:
    for name in (".env", "private/p.txt"):
        (repo.root / name).write_text(f"{DENIED}, changed\n")
    await told_by(repo, [("git_add", {"paths": [path]})])
    staged = git(repo.root, "diff", "--cached")
    assert DENIED not in staged
    git(repo.root, "add", "--", path.replace("private_link", "private"))
    assert DENIED in git(repo.root, "diff", "--cached")


async def test_attack_a_file_in_place_of_a_directory_brings_nothing_along(repo: Any) -> None:
    """A name that may be read is that of a directory in one of the two, and what is denied lies below it."""
    git(repo.root, "mv", "private", "kept")
    git(repo.root, "commit", "-q", "-m", "moved")
    (repo.root / "private").write_text("a file\n")
    git(repo.root, "add", "-A")
    git(repo.root, "commit", "-q", "-m", "a file")
    (repo.root / "private").unlink()
    (repo.root / "private").mkdir()
    (repo.root / "private" / "p.txt").write_text(f"{DENIED}\n")
    git(repo.root, "add", "-A")
    told = await told_by(repo, [("git_diff", {"staged": True}), ("git_diff", {"path": "private", "staged": True})])
    assert DENIED not in told and "a file" in told
    assert DENIED in git(repo.root, "diff", "--cached", "--", "private")


# ── arguments that are options ──────────────────────────────────────────────


async def test_attack_a_path_is_no_option(repo: Any) -> None:
    option = f"--output={PROOF}"
    await told_by(repo, [("git_diff", {"path": option}), ("git_add", {"paths": [option]})])
    assert not ran(repo)
    git(repo.root, "diff", option)
    assert ran(repo)


# ── a repository that is another one ────────────────────────────────────────


@pytest.fixture
def other(world: Any) -> Path:
    """A repository of somebody else, beside the workspace."""
    root: Path = world.top / "secret"
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", OUTSIDE)
    return root


def _own(root: Path) -> None:
    git(root, "init", "-q", "-b", "main")


def _as_file(root: Path, other: Path) -> None:
    (root / ".git").write_text(f"gitdir: {other}/.git\n")


def _as_link(root: Path, other: Path) -> None:
    (root / ".git").symlink_to(other / ".git")


def _above(root: Path, other: Path) -> None:
    (root.parent / ".git").symlink_to(other / ".git")


def _common(root: Path, other: Path) -> None:
    _own(root)
    (root / ".git" / "commondir").write_text(f"{other}/.git\n")


def _borrowed(root: Path, other: Path) -> None:
    _own(root)
    (root / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    (root / ".git/refs/heads/main").write_text(git(other, "rev-parse", "HEAD"))


def _linked(*names: str) -> Callable[[Path, Path], None]:
    def plant(root: Path, other: Path) -> None:
        _own(root)
        for name in names:
            place = root / ".git" / name
            subprocess.run(["rm", "-rf", str(place)], check=True)
            place.symlink_to(other / ".git" / name)

    return plant


PLACES: dict[str, Callable[[Path, Path], None]] = {
    "named by a file": _as_file,
    "a link": _as_link,
    "above the workspace": _above,
    "said to be common": _common,
    "whose objects are borrowed": _borrowed,
    "whose refs and objects are linked": _linked("refs", "objects"),
    "whose branch and objects are linked": _linked("refs/heads/main", "objects"),
}


@pytest.mark.parametrize("plant", PLACES.values(), ids=PLACES)
async def test_attack_no_other_repository_is_read(world: Any, other: Path, plant: Callable[[Path, Path], None]) -> None:
    plant(world.root, other)
    world.begin()
    told = await told_by(world, ALL)
    assert OUTSIDE not in told and world.escapes(told) == []
    assert OUTSIDE in git(world.root, "log")


async def test_attack_the_files_of_a_repository_are_those_of_the_workspace(repo: Any) -> None:
    settle(repo.root, core__worktree=str(repo.top / "secret"))
    calls: Calls = [*STATUS, ("git_add", {"paths": ["key.txt"]}), ("git_add", {"paths": ["."]})]
    told = await told_by(repo, [*calls, ("git_diff", {"staged": True})])
    assert OUTSIDE not in told and "key.txt" not in git(repo.root, "ls-files", "--full-name", ":(top)")
    git(repo.top / "secret", f"--git-dir={repo.root}/.git", "add", "key.txt")
    assert OUTSIDE in git(repo.root, "diff", "--cached")


@pytest.mark.parametrize("name", ["logs/HEAD", "logs/refs/heads/main"])
async def test_attack_no_log_is_written_through_a_link(repo: Any, name: str) -> None:
    victim = repo.top / "workspacex" / "key.txt"
    (repo.root / ".git" / name).unlink()
    (repo.root / ".git" / name).symlink_to(victim)
    told = await told_by(repo, [*ADD, *COMMIT])
    assert "is a link" in told and repo.escapes(told) == []
    git(repo.root, "commit", "-q", "-a", "-m", "written outside")
    assert "written outside" in victim.read_text()


async def test_attack_the_index_is_not_written_through_a_link(repo: Any) -> None:
    victim = repo.top / "workspacex" / "index"
    (repo.root / ".git" / "index").rename(victim)
    (repo.root / ".git" / "index").symlink_to(victim)
    before = victim.read_bytes()
    assert "is a link" in await told_by(repo, ADD) and victim.read_bytes() == before
    git(repo.root, "add", "a.txt")
    assert victim.read_bytes() != before


# ── commands ────────────────────────────────────────────────────────────────

RULES = ["git", "git *", "*"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", TOOLS)
async def test_attack_a_rule_about_commands_holds_for_the_tools(repo: Any, name: str, rule: str) -> None:
    [arguments] = [dict(arguments) for tool, arguments in [*STATUS, DIFF[0], *LOG, ADD[0], *COMMIT, *BRANCH] if tool == name]
    before = git(repo.root, "status", "--porcelain=v2", "--branch") + git(repo.root, "branch")
    denied = attrs.evolve(repo.context, policy=repo.context.policy.deny_exec(rule))
    told = await attrs.evolve(repo, context=denied).call(TOOLS[name], arguments)
    assert told.startswith("refused: exec git")
    assert git(repo.root, "status", "--porcelain=v2", "--branch") + git(repo.root, "branch") == before
    if name == "git_commit":
        git(repo.root, "add", "-A")
    assert not (await repo.call(TOOLS[name], arguments)).startswith("refused")
