"""A child commits in its own work tree, behind the boundary, and touches nothing of its parent's repository."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecSandbox, Identity, TaskContract
from actors.agents.policy import Defaults, Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.verification import Verification
from actors.agents.worktrees import place_of
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.errors import ToolFailed
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.machines import Machine
from actors.tools import sandbox
from actors.tools.sandbox import detect
from actors.tools.worktrees import GitWorktrees

LIMITS = Containment(10, 4, 3, 1_000_000)
AUTHOR = AgentDef("author").with_worktree()
WRITE, FULL = ExecSandbox.workspace_write, ExecSandbox.full_access
POLICY = Policy.permissive()
CAN = detect()
BACKENDS = {
    "bubblewrap": (CAN, CAN.bubblewrap is not None),
    "namespaces": (attrs.evolve(CAN, bubblewrap=None), CAN.landlock >= 3 and CAN.namespaces),
    "users": (attrs.evolve(CAN, bubblewrap=None, root=False), CAN.landlock >= 3 and CAN.namespaces),
    "rules": (attrs.evolve(CAN, bubblewrap=None, namespaces=False), CAN.landlock >= 3 and CAN.seccomp),
}
holds = pytest.mark.skipif(not any(there for _, there in BACKENDS.values()), reason="nothing here holds a boundary")
COMMIT = "echo new > code.txt && git add . && git -c commit.gpgsign=false commit -qm 'by the child' && git log --oneline"




def git(root: Path, *arguments: str, check: bool = True) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=check)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.invalid")
    (root / "code.txt").write_text("old\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


def sh(line: str) -> tuple[str, dict[str, Any]]:
    return "exec", {"argv": ["sh", "-c", line]}


async def child_runs(root: Path, *calls: Any, mode: ExecSandbox = WRITE, **fields: Any) -> tuple[Path, str]:
    """Let a child in a work tree make calls; give its tree, and all that it was told."""
    contract = TaskContract.workspace("root", root, Verification.none(), agents=Agents([AUTHOR]), exec_sandbox=mode, **fields)
    spawn = ("spawn_agent", {"goal": "write it", "agent": "author", "verify": {"kind": "none"}, "max_steps": 9})
    store, provider = Store.memory(), Scripted([[spawn], list(calls), [], []])
    result = await run_tree(contract, provider, store, POLICY, ApproveAll(), LIMITS)
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None
    return Path(record.root), "\n".join(each.text for each in store.observations(child))


def repository(root: Path, without: Sequence[str] = ("refs/actors-base",)) -> dict[str, str]:
    """Give all that lies in a repository by digest, but what was made for a tree."""
    found = {}
    for each in sorted((root / ".git").rglob("*")):
        name = str(each.relative_to(root / ".git"))
        if each.is_file() and not name.startswith(tuple(without)):
            found[name] = f"{each.stat().st_mode} {hashlib.sha256(each.read_bytes()).hexdigest()}"
    return found


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_child_commits_behind_each_boundary_and_its_work_is_fetched(repo, monkeypatch, backend):
    can, there = BACKENDS[backend]
    if not there:
        pytest.skip(f"{backend} does not work here")
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    before = repository(repo)
    tree, told = await child_runs(repo, sh(COMMIT))
    assert "by the child" in told, told
    assert repository(repo) == before
    assert git(repo, "log", "--format=%s", "main") == "begin" and git(repo, "status", "--porcelain") == ""
    branch, place = f"actors/{tree.name}", str(tree.relative_to(repo))
    # It is no branch here until somebody fetches it: nobody merges the beginning of it in its place.
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    git(repo, "fetch", "-q", "--no-tags", place, f"{branch}:{branch}")
    git(repo, "merge", "-q", branch)
    assert (repo / "code.txt").read_text() == "new\n"
    # Not that of a person, whoever the repository above or this machine names.
    assert git(repo, "log", "-1", "--format=%s: %an <%ae>") == "by the child: agent <agent@actors.invalid>"
    # Nothing of the child's repository is needed any more.
    shutil.rmtree(tree)
    assert git(repo, "fsck", "--full", "--strict", "--no-dangling") == ""


async def test_a_child_commits_as_the_operator_says_by_commands_and_by_its_tools(repo, monkeypatch):
    home = repo.parent / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = A Person\nemail = person@example.invalid\n")
    monkeypatch.setenv("HOME", str(home))
    calls = [
        sh(COMMIT),
        ("write_file", {"path": "code.txt", "content": "newer\n"}),
        ("git_add", {"paths": ["code.txt"]}),
        ("git_commit", {"message": "by a tool"}),
    ]
    tree, told = await child_runs(repo, *calls, commit_identity=Identity("Bot", "bot@example.invalid"))
    assert "committed" in told, told
    said = git(tree, "log", "-2", "--format=%s: %an <%ae>, %cn <%ce>")
    who = "Bot <bot@example.invalid>, Bot <bot@example.invalid>"
    assert said.splitlines() == [f"by a tool: {who}", f"by the child: {who}"]


# ── what a child must not change ────────────────────────────────────────────


def _blob(root: Path) -> str:
    name = git(root, "rev-parse", "HEAD:code.txt")
    return f".git/objects/{name[:2]}/{name[2:]}"


FORGED = zlib.compress(b"blob 4\0bad\n")
ATTACKS = {
    "a hook": "printf '#!/bin/sh\\ntouch ran\\n' > {git}/hooks/post-checkout; chmod +x {git}/hooks/post-checkout",
    "a setting": "git config --file {git}/config core.fsmonitor /bin/false",
    "a setting by its rename": "cp {git}/config c; echo '[alias]x=!sh' >> c; mv -f c {git}/config",
    "a branch of others": "echo 0000 > {git}/refs/heads/main",
    "a branch by git": "git --git-dir={git} update-ref refs/heads/main HEAD~0; git --git-dir={git} branch planted",
    "the head": "echo ref: refs/heads/other > {git}/HEAD",
    "all refs": "echo '# pack-refs with: peeled' > {git}/packed-refs",
    "an object": "chmod u+w {git}/{object}; cp forged {git}/{object}",
    "an object removed": "rm -f {git}/{object}",
    "where objects are": "mkdir -p {git}/objects/info; echo /etc > {git}/objects/info/alternates",
    "a pack": "mkdir -p {git}/objects/pack; echo x > {git}/objects/pack/pack-0.idx",
    "what a commit is shown as": "mkdir -p {git}/refs/replace; echo x > {git}/refs/replace/y; echo x > {git}/shallow",
    "what is left out": "mkdir -p {git}/info; echo '*' >> {git}/info/exclude; echo '* filter=x' > {git}/info/attributes",
    "the index": "rm -f {git}/index",
    "a push": "git push -q {git} HEAD:refs/heads/planted",
    "a work tree of its own": "git --git-dir={git} worktree add -q --detach extra",
    "what keeps its beginning": "rm -rf {git}/refs/actors-base; git --git-dir={git} update-ref -d refs/actors-base/{name}",
    "who is passed by": "rm -f {git}/../.worktrees/.gitignore",
}


def _state(root: Path) -> dict[str, str]:
    return {**repository(root, ()), "ignore": str((root / ".worktrees/.gitignore").exists())}


async def attacked(root: Path, how: str, mode: ExecSandbox) -> tuple[dict[str, str], dict[str, str]]:
    tree = Path(await GitWorktrees().make(str(root), PLACE, timeout=60.0, confinement=Confinement(FULL)))
    (tree / "forged").write_bytes(FORGED)
    before = _state(root)
    line = how.format(git=shlex.quote(str(root / ".git")), object=_blob(root)[5:], name=PLACE.name)
    done = await sandbox.run_confined(
        ["sh", "-c", line], cwd=str(tree), timeout=60.0, confinement=Confinement(mode, POLICY)
    )
    assert done.code is not None, done.output
    return before, _state(root)


PLACE = place_of("run", 1, 1, "goal", "author")


@holds
@pytest.mark.parametrize("what", ATTACKS)
async def test_a_child_changes_nothing_of_the_repository_above(repo, what):
    before, after = await attacked(repo, ATTACKS[what], WRITE)
    assert before == after


@pytest.mark.parametrize("what", ATTACKS)
async def test_control_without_a_boundary_each_of_them_does(repo, what):
    before, after = await attacked(repo, ATTACKS[what], FULL)
    assert before != after


async def test_work_of_a_hostile_repository_is_fetched_and_runs_nothing(repo, tmp_path):
    """Whoever fetches trusts nothing of the child's settings; whoever runs git inside of the tree would."""
    ran = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho $0 $@ >> {ran}\n")
    evil.chmod(0o755)
    keys = ("core.fsmonitor", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook", "core.alternateRefsCommand")
    plant = [f"git config {key} {evil}" for key in keys]
    plant += ["git config filter.x.clean " + str(evil), "echo '* filter=x' > .gitattributes"]
    plant += [f"git config core.hooksPath {tmp_path}/hooks", f"git config alias.fetch '!{evil}'"]
    plant += ["git config extensions.partialClone evil", f"git config remote.evil.url 'ext::{evil} %S'"]
    plant += ["git config remote.evil.promisor true", "git config protocol.ext.allow always"]
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "pre-receive", "post-merge", "pre-auto-gc"):
        os.symlink(evil, hooks / name)
    tree, told = await child_runs(repo, sh(COMMIT), sh(" && ".join(plant)))
    assert "by the child" in told
    # Not of the fetch: what the child's own git ran behind its boundary.
    ran.unlink(missing_ok=True)
    branch = f"actors/{tree.name}"
    git(repo, "fetch", "-q", str(tree), f"{branch}:{branch}")
    git(repo, "merge", "-q", branch)
    assert git(repo, "log", "-1", "--format=%s") == "by the child" and not ran.exists()
    # Nor does more come in than was asked for.
    git(tree, "tag", "v1")
    git(repo, "fetch", "-q", "--no-tags", str(tree), f"{branch}:tagless")
    assert git(repo, "tag") == ""
    ran.unlink(missing_ok=True)
    # A tree that asks for an object that it has not: nobody is asked for it on its behalf.
    (tree / ".git/objects/info/alternates").unlink()
    assert git(repo, "fetch", "-q", str(tree), f"{branch}:again", check=False) == "" and not ran.exists()
    # The control: git in the tree itself runs what its settings name.
    git(tree, "status", check=False)
    assert ran.exists()


async def test_a_forged_object_of_a_child_does_not_come_in_under_a_name_that_is_there(repo):
    tree, _ = await child_runs(repo, sh(COMMIT))
    own = tree / _blob(repo)
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(FORGED)
    assert git(tree, "cat-file", "-p", "HEAD~1:code.txt", check=False) != "old", "the control: the child believes it"
    git(repo, "fetch", "-q", str(tree), f"actors/{tree.name}", check=False)
    assert git(repo, "cat-file", "-p", "main:code.txt") == "old" and git(repo, "fsck", "--full", "--no-dangling") == ""


# ── its check ───────────────────────────────────────────────────────────────


async def checked(root: Path, argv: Sequence[str], author: AgentDef, mode: ExecSandbox) -> str:
    """Let a child do nothing under a criterion; give how it ended."""
    contract = TaskContract.workspace("root", root, Verification.none(), agents=Agents([author]), exec_sandbox=mode)
    verify = {"kind": "command", "argv": list(argv)}
    spawn = ("spawn_agent", {"goal": "g", "agent": author.name, "verify": verify, "max_steps": 1})
    store = Store.memory()
    result = await run_tree(contract, Scripted([[spawn], [("list_dir", {})], []]), store, POLICY, ApproveAll(), LIMITS)
    [child] = store.children(result.run_id)
    record = store.run(child)
    assert record is not None and record.outcome is not None
    return record.outcome


CHECKS = {
    "above its tree": (["sh", "-c", "echo x > ../../planted"], AUTHOR),
    "the repository above": (["sh", "-c", "echo x > ../../.git/hooks/planted"], AUTHOR),
    "in its tree, where its definition denies that": (["sh", "-c", "echo x > planted"], AUTHOR.with_deny_write()),
}


@holds
@pytest.mark.parametrize("where", CHECKS)
async def test_the_check_of_a_child_stands_behind_the_childs_own_boundary(repo, where):
    argv, author = CHECKS[where]
    assert await checked(repo, argv, author, WRITE) == "step_cap_reached"
    assert not [each for each in repo.rglob("planted") if each.is_file()]
    # The control: without one the same check passes, and writes.
    assert await checked(repo, argv, author, FULL) == "success"
    assert [each for each in repo.rglob("planted") if each.is_file()]


@holds
async def test_a_check_may_commit_too(repo):
    assert await checked(repo, ["sh", "-c", COMMIT], AUTHOR, WRITE) == "success"
    assert git(repo, "log", "--format=%s") == "begin"


# ── what it is made of ──────────────────────────────────────────────────────


async def made(root: Path) -> Path:
    return Path(await GitWorktrees().make(str(root), PLACE, timeout=60.0, confinement=Confinement()))


@holds
async def test_git_stands_behind_the_boundary_of_the_agent_that_asks(repo):
    rows: list[tuple[str, str]] = []

    async def record(applied: SandboxApplied) -> None:
        rows.append((applied.mode, applied.net))

    with pytest.raises(ToolFailed, match=r"no work tree could be made .*cannot be kept"):
        around = Confinement(ExecSandbox.read_only, POLICY, record=record)
        await GitWorktrees().make(str(repo), PLACE, timeout=60.0, confinement=around)
    assert git(repo, "for-each-ref", "refs/actors-base") == "" and not (repo / PLACE.path).exists()
    closed = Confinement(WRITE, Policy.default().layer("op").deny_write(".git/*"), record=record)
    with pytest.raises(ToolFailed, match="no work tree could be made"):
        await GitWorktrees().make(str(repo), PLACE, timeout=60.0, confinement=closed)
    # One row for all that git is asked, and none where nothing is left to do.
    for _ in range(2):
        around = Confinement(WRITE, POLICY.layer("op").deny_net("*"), record=record)
        await GitWorktrees().make(str(repo), PLACE, timeout=60.0, confinement=around)
    assert rows == [("read_only", "open"), ("workspace_write", "denied"), ("workspace_write", "denied")]


async def test_what_it_borrows_stays_when_the_branch_above_goes_on_without_it(repo):
    tree = await made(repo)
    git(repo, "commit", "-q", "--amend", "-m", "another", "--date=2001-01-01T00:00:00")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert git(tree, "log", "--format=%s") == "begin" and git(tree, "fsck", "--full", "--no-dangling") == ""
    # The control: without the ref that keeps it, it is gone.
    git(repo, "update-ref", "-d", f"refs/actors-base/{PLACE.name}")
    git(repo, "gc", "-q", "--prune=now")
    assert git(tree, "log", "--format=%s", check=False) == ""


async def test_one_that_is_gone_begins_again_where_it_began_or_from_what_was_fetched(repo):
    tree = await made(repo)
    (repo / "code.txt").write_text("later\n")
    git(repo, "commit", "-q", "-a", "-m", "later")
    shutil.rmtree(tree)
    assert await made(repo) == tree and (tree / "code.txt").read_text() == "old\n"
    (tree / "code.txt").write_text("mine\n")
    git(tree, "commit", "-q", "-a", "-m", "mine")
    git(repo, "fetch", "-q", str(tree), f"actors/{tree.name}:actors/{tree.name}")
    shutil.rmtree(tree)
    assert await made(repo) == tree and (tree / "code.txt").read_text() == "mine\n"


@pytest.mark.parametrize("form", ["sha1", "sha256"])
async def test_every_form_of_names_and_a_history_that_is_cut_are_borrowed(tmp_path, form):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    git(whole, "init", "-q", "-b", "main", f"--object-format={form}")
    for text in ("one\n", "two\n", "three\n"):
        (whole / "code.txt").write_text(text)
        git(whole, "add", ".")
        git(whole, "commit", "-q", "-m", text.strip())
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{whole}", str(cut))
    tree = await made(cut)
    assert git(tree, "log", "--format=%s") == "three\ntwo" and git(tree, "status", "--porcelain") == ""
    assert git(tree, "rev-parse", "--show-object-format") == form


@pytest.mark.parametrize("at", ["empty", "init", "borrowed", "half"])
async def test_one_that_was_half_made_is_completed(repo, at):
    tree = repo / PLACE.path
    tree.mkdir(parents=True)
    if at != "empty":
        git(repo, "init", "-q", "--template=", str(tree))
    if at in ("borrowed", "half"):
        (tree / ".git/objects/info/alternates").write_text("../../../../.git/objects\n")
    if at == "half":
        (tree / "code.txt").write_text("ol")
        (tree / ".git/index.lock").touch()
        (tree / ".git/config").write_text("")
    assert await made(repo) == tree
    assert (tree / "code.txt").read_text() == "old\n" and git(tree, "status", "--porcelain") == ""


@pytest.mark.parametrize("planted", ["file", "link", "commondir", "alternates", "objects", "above", "full", "dir"])
async def test_what_lies_there_and_is_none_of_ours_is_not_taken(repo, tmp_path, planted):
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", str(other))
    tree = repo / PLACE.path
    tree.mkdir(parents=True)
    if planted == "file":
        (tree / ".git").write_text(f"gitdir: {other}/.git\n")
    elif planted == "link":
        (tree / ".git").symlink_to(other / ".git")
    elif planted == "full":
        (tree / "code.txt").write_text("x")
    elif planted == "dir":
        (tree / ".git").mkdir()
        (tree / ".git/index").write_text("x")
    else:
        git(repo, "init", "-q", "--template=", str(tree))
        if planted == "commondir":
            (tree / ".git/commondir").write_text(f"{other}/.git\n")
        elif planted == "alternates":
            (tree / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
        else:
            shutil.rmtree(tree / ".git/objects")
            (tree / ".git/objects").symlink_to((other if planted == "objects" else repo) / ".git/objects")
    said = {"objects": "leads out of the workspace", "above": "is not a directory"}.get(planted, "is there already and is no work tree")
    with pytest.raises(ToolFailed, match=f"no sub-agent was started: no work tree .*{said}"):
        await made(repo)
    assert not [each for each in (other, repo) if (each / ".git/objects/info/alternates").exists()]


async def test_filters_that_somebody_put_into_a_half_made_tree_are_not_run(repo, tmp_path):
    ran = tmp_path / "ran"
    tree = repo / PLACE.path
    git(repo, "init", "-q", "--template=", str(tree))
    (repo / ".gitignore").write_text(".worktrees\n")
    (repo / ".gitattributes").write_text("* filter=x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "more")
    for what in ("smudge", "process"):
        git(tree, "config", f"filter.x.{what}", f"touch {ran}; cat")
    git(tree, "config", "filter.x.required", "true")
    assert await made(repo) == tree and (tree / "code.txt").read_text() == "old\n" and not ran.exists()
    # The control: git alone runs them.
    (tree / "code.txt").unlink()
    git(tree, "checkout", "-q", "--", "code.txt", check=False)
    assert ran.exists()


@holds
async def test_what_keeps_git_from_its_files_is_named_with_its_rule_and_its_remedy(repo):
    closed = Policy((), Defaults(read="deny", write="allow", exec="allow")).layer("op").allow_read("*.txt")
    steps = [
        (closed, 'the default deny of read closes ".git/HEAD" to commands, and so to git: allow read ".git/*"'),
        (closed.allow_read(".git/*"), 'closes ".worktrees/.gitignore" to commands, and so to git: allow read ".worktrees/*"'),
        (Policy.permissive().layer("op").deny_read(".git/*"), 'the rule deny read ".git/*" of layer "op" closes ".git/HEAD"'),
    ]
    for policy, said in steps:
        with pytest.raises(ToolFailed, match=re.escape(said)):
            await GitWorktrees().make(str(repo), PLACE, timeout=60.0, confinement=Confinement(WRITE, policy))
    opened = closed.allow_read(".git/*").allow_read(".worktrees/*")
    await GitWorktrees().make(str(repo), PLACE, timeout=60.0, confinement=Confinement(WRITE, opened))
