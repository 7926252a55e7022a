"""The tools of git in whole runs: in a child's own work tree, with somebody who is asked, and cut by the end of a process."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Approval, ApprovalRequest, Observation, ToolContext
from actors.agents.roster import AgentDef, Agents
from actors.agents.verification import Verification
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.dying_store import Death
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench, finished
from actors.tools.git_change import GitAdd, GitBranch, GitCommit
from actors.tools.sandbox import detect
from actors.tools.toolbox import builtin_tools

LIMITS = Containment(10, 4, 3, 1_000_000)
SECRET = "sk-canary-of-git-0123456789abcdef"


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def begin(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    (root / "code.txt").write_text("old\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


async def run(root: Path, script: list[Any], policy: Policy, approver: Any, **contract: Any) -> tuple[Store, str]:
    store = Store.memory()
    task = TaskContract.workspace("root", root, Verification.none(), **contract)
    result = await run_tree(task, Scripted(script), store, policy, approver, LIMITS)
    return store, result.run_id


async def test_a_child_commits_in_its_own_work_tree_with_the_tools_of_git(tmp_path: Path) -> None:
    root = begin(tmp_path / "work")
    before = git(root, "for-each-ref", "refs/heads"), git(root, "status", "--porcelain")
    spawn = ("spawn_agent", {"goal": "write", "agent": "author", "verify": {"kind": "none"}, "max_steps": 9})
    calls = [
        ("write_file", {"path": "code.txt", "content": "new\n"}),
        ("git_diff", {}),
        ("git_add", {"paths": ["."]}),
        ("git_commit", {"message": "by the child"}),
        ("git_log", {}),
    ]
    agents = Agents([AgentDef("author").with_worktree()])
    store, run_id = await run(root, [[spawn], calls, [], []], Policy.permissive(), ApproveAll(), agents=agents)
    [child] = store.children(run_id)
    record = store.run(child)
    assert record is not None
    tree = Path(record.root)
    told = [each.text for each in store.observations(child)]
    assert "+new" in told[1] and f"on actors/{tree.name}: by the child" in told[3], told
    assert [line.split(": ")[1].partition(" (")[0] for line in told[4].splitlines()] == ["by the child", "begin"]
    assert (git(root, "for-each-ref", "refs/heads"), git(root, "status", "--porcelain")) == before
    git(root, "fetch", "-q", "--no-tags", str(tree.relative_to(root)), f"actors/{tree.name}:fetched")
    assert git(root, "show", "fetched:code.txt") == "new" and git(root, "fsck", "--strict", "--no-dangling") == ""


async def test_what_a_rule_asks_about_is_closed_to_git_behind_a_boundary_and_that_is_said(tmp_path: Path) -> None:
    if detect().bubblewrap is None and not (detect().landlock and detect().namespaces):
        pytest.skip("nothing here hides a file")
    root = begin(tmp_path / "work")
    (root / "code.txt").write_text("changed\n")
    policy = Policy.permissive().layer("operator").ask_read("code.txt")
    calls = [("git_diff", {"path": "code.txt"}), ("git_add", {"paths": ["code.txt"]})]
    store, run_id = await run(root, [calls, []], policy, ApproveAll(), exec_sandbox=ExecSandbox.workspace_write)
    told = [each.text for each in store.observations(run_id)][:2]
    assert all('a rule asks about "code.txt"' in text and "closed to commands" in text for text in told), told
    assert git(root, "diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize("mode", [ExecSandbox.workspace_write, ExecSandbox.read_only, ExecSandbox.full_access])
async def test_what_is_denied_is_left_out_behind_each_boundary(tmp_path: Path, mode: ExecSandbox) -> None:
    root = begin(tmp_path / "work")
    for name in (".env", "open.txt"):
        (root / name).write_text(f"{SECRET}\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "both")
    for name in (".env", "open.txt", "code.txt"):
        (root / name).write_text("changed\n")
    policy = Policy.permissive().layer("operator").deny_read(".env")
    calls = [("git_status", {}), ("git_diff", {}), ("git_add", {"paths": ["."]}), ("git_diff", {"staged": True})]
    store, run_id = await run(root, [calls, []], policy, ApproveAll(), exec_sandbox=mode)
    told = [each.text for each in store.observations(run_id)][:4]
    assert all(".env" not in text for text in told), told
    assert [" M open.txt" in told[0], "+changed" in told[1], "1 files were left out" in told[1]] == [True] * 3, told
    done = "git add failed" in told[2] if mode is ExecSandbox.read_only else "+changed" in told[3]
    assert done and ".env" not in git(root, "diff", "--cached", "--name-only"), told


@attrs.define
class Asked:
    seen: list[ApprovalRequest] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.seen.append(request)
        await trio.lowlevel.checkpoint()
        return Approval("secret" not in request.target, "not that")


async def test_somebody_is_asked_about_the_command_and_about_each_file_that_was_named(tmp_path: Path) -> None:
    root = begin(tmp_path / "work")
    for name in ("a.txt", "b.txt", "c.txt"):
        (root / name).write_text("x\n")
    policy = Policy.permissive().layer("operator").ask_exec("git commit*").ask_exec("git add*")
    policy = policy.ask_read("a.txt").ask_read("c.txt")
    asked = Asked()
    calls = [
        ("git_add", {"paths": ["a.txt"]}),
        ("git_add", {"paths": ["."]}),
        ("git_commit", {"message": "it's done"}),
        ("git_commit", {"message": "a secret"}),
    ]
    # What a rule asks about is closed to commands behind a boundary.
    store, run_id = await run(root, [calls, []], policy, asked, exec_sandbox=ExecSandbox.full_access)
    assert [each.target for each in asked.seen] == [
        "git add -- a.txt", "a.txt", "git add -- .", "git commit -m 'it'\"'\"'s done'", "git commit -m 'a secret'",
    ]  # fmt: skip
    assert git(root, "log", "--format=%s") == "it's done\nbegin"
    told = [each.text for each in store.observations(run_id)]
    # What was asked about is not taken along by its directory, unless somebody said so of it.
    assert "b.txt" in told[1] and "c.txt" not in told[1] and "1 files were left out" in told[1]
    assert "not that" in told[3] and git(root, "status", "--porcelain") == "?? c.txt"


async def test_the_value_of_a_credential_in_a_repository_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    root = begin(tmp_path / "work")
    git(root, "commit", "-q", "--allow-empty", "-m", f"with {SECRET}")
    git(root, "branch", "-m", SECRET)
    (root / "code.txt").write_text(f"{SECRET}\n")
    (root / SECRET).write_text("x\n")
    calls = [("git_status", {}), ("git_diff", {}), ("git_log", {}), ("git_add", {"paths": ["."]})]
    calls.append(("git_commit", {"message": "done"}))
    async with Store.open(tmp_path / "runs.db") as store:
        contract = TaskContract.workspace("root", root, Verification.none())
        script = Scripted([calls, []])
        result = await run_tree(contract, script, store, Policy.permissive(), ApproveAll(), LIMITS)
        told = [each.text for each in store.observations(result.run_id)][: len(calls)]
    assert len(told) == 5 and all(SECRET not in text for text in told)
    assert sum("[secret]" in text for text in told) == 5, told
    kept = b"".join(file.read_bytes() for file in sorted(tmp_path.glob("runs.db*")))  # noqa: ASYNC240
    assert SECRET.encode() not in kept


# ── the end of a process ────────────────────────────────────────────────────

STORY: dict[str, Any] = {
    "root": [
        [call("write_file", path="a.txt", content="one"), call("git_add", paths=["."]), call("git_commit", message="same")],
        [call("write_file", path="b.txt", content="two"), call("git_add", paths=["."]), call("git_commit", message="same")],
        [call("git_branch", name="made")],
        "done",
    ]
}


def ended(root: Path) -> tuple[str, str, str]:
    log = git(root, "log", "--format=%s", "--name-only").replace("\n\n", "\n")
    return log, git(root, "branch", "--format=%(refname:short)"), git(root, "status", "--porcelain")


THE_END = ("same\nb.txt\nsame\na.txt\nbegin\ncode.txt", "made\nmain", "")


@pytest.mark.parametrize("after", [False, True])
async def test_a_process_may_end_at_any_commit_and_nothing_is_committed_twice(tmp_path: Path, after: bool) -> None:
    for at in range(1 + after, 60, 2):
        bench = Bench(tmp_path / f"{at}", STORY)
        begin(bench.work)
        death = Death(at, after=after)
        await bench.begin(death=death)
        if not death.dead:
            break
        if not bench.stands:
            continue
        assert finished(await bench.go_on()), at
        assert ended(bench.work) == THE_END, at
        bench.check()
    assert at > 10


@attrs.define
class Cut:
    """A tool after whose work the process ends, before anybody hears of it: the first time, in one step."""

    inner: Any
    step: int
    bench: Any = None
    done: bool = False

    @property
    def spec(self) -> Any:
        return self.inner.spec

    read_only = False
    recovery = "replayable"
    notes_writes = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        seen: Observation = await self.inner.run(arguments, context)
        if not self.done and f"#{self.step}." in context.key:
            self.done = True
            self.bench.kill()
            await trio.sleep_forever()
        return seen


CUTS = [(GitAdd, 1), (GitCommit, 1), (GitAdd, 2), (GitCommit, 2), (GitBranch, 3)]


@pytest.mark.parametrize(("kind", "step"), CUTS, ids=[f"{kind.spec.name} {step}" for kind, step in CUTS])
async def test_what_was_done_before_its_record_is_not_done_again(tmp_path: Path, kind: Any, step: int) -> None:
    cut = Cut(kind(), step)
    tools = tuple(cut if tool.spec.name == kind.spec.name else tool for tool in builtin_tools())
    bench = Bench(tmp_path, STORY, tools=tools)
    cut.bench = bench
    begin(bench.work)
    assert await bench.begin(death=Death()) is None and cut.done
    # Somebody works on meanwhile: what this call made is not the last commit any more.
    if (kind, step) == (GitCommit, 1):
        git(bench.work, "commit", "-q", "--allow-empty", "-m", "by another")
    assert finished(await bench.go_on())
    log, *rest = ended(bench.work)
    assert (log.replace("by another\n", ""), *rest) == THE_END
    # And the model is told what it would have been told then.
    told = [text.split(" ")[0] for text in bench.told()]
    assert told[:7] == ["wrote", "staged", "committed", "wrote", "staged", "committed", "made"], bench.told()
    bench.check()


@pytest.mark.parametrize("repository", [True, False])
async def test_the_tools_of_git_are_offered_where_a_repository_lies_in_the_workspace(
    tmp_path: Path, repository: bool
) -> None:
    root = tmp_path / "work"
    if repository:
        begin(root)
    else:
        root.mkdir()
    # A named agent may keep one in either: it is a tool that there is.
    looker = Agents([AgentDef("looker", "you look").with_tools("git_status")])
    task, model = TaskContract.workspace("root", root, Verification.none(), agents=looker), Scripted([[]])
    await run_tree(task, model, Store.memory(), Policy.permissive(), ApproveAll(), LIMITS)
    offered = {spec.name for spec in model.requests[0].tools}
    git_tools = {tool.spec.name for tool in builtin_tools() if tool.spec.name.startswith("git_")}
    assert len(git_tools) == 6 and offered & git_tools == (git_tools if repository else set())


async def test_the_store_of_a_run_that_lies_in_its_workspace_is_neither_told_of_nor_staged(tmp_path: Path) -> None:
    root = begin(tmp_path / "work")
    (root / "more.txt").write_text("more\n")
    calls = [("git_status", {}), ("git_add", {"paths": ["."]}), ("git_commit", {"message": "more"})]
    task = TaskContract.workspace("root", root, Verification.none())
    async with Store.open(root / "runs.db") as store:
        result = await run_tree(task, Scripted([calls, []]), store, Policy.permissive(), ApproveAll(), LIMITS)
        told = [each.text for each in store.observations(result.run_id)]
    assert "more.txt" in told[0] and "runs.db" not in told[0] and "left out" not in told[0]
    assert git(root, "show", "--name-only", "--format=%s") == "more\n\nmore.txt"
