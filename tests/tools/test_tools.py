"""The tools behind the path guard: what they do, what they refuse, and a control for each refusal."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.agents.belongings import Belongings
from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox, Identity
from actors.agents.edits import Edit
from actors.agents.ports import Act, ActRefused, Observation, ObservationKind, Refusal
from actors.agents.verification import Verification
from actors.errors import ToolFailed
from actors.tools.paths import Workspace
from actors.tools.search import Grep
from actors.tools.single_file import SingleFile
from actors.tools.toolbox import builtin_tools, tool_names
from actors.tools.verifying import evaluate
from actors.tools.whole_files import opened

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}


def _no_nursery(*_: object) -> None:
    raise AssertionError("nothing goes on beside these calls")


class Context:
    """Allows everything but what is in ``denied``, and notes what was asked."""

    def __init__(self, root: Path, denied: Sequence[str] = (), max_read_chars: int | None = None) -> None:
        self.root = str(root)
        self.exec_timeout = 5.0
        self.max_read_chars = max_read_chars
        self.asked: list[tuple[str, str]] = []
        self.leaked: list[int] = []
        self._denied = set(denied)
        self.key = "run#1.1"
        self.check_writes = False
        self.commit_identity = Identity()
        self.confinement = Confinement(ExecSandbox.full_access)
        self.belongings = Belongings(_no_nursery)

    async def intend(self, target: str, after: str, *, changes: bool, edit: Edit | None = None) -> bool:
        return False

    def wrote(self, target: str, now: str) -> bool:
        return False

    async def touch(self, target: str, look: object) -> None:
        pass

    async def authorise(self, act: Act, target: str, *more: str, content: str = "", edit: object = None) -> None:
        for each in (target, *more):
            self.asked.append((act.value, each))
            if each in self._denied:
                raise ActRefused(Refusal(act, each))

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> None:
        for argv in commands:
            await self.authorise(Act.exec, argv[0], *([line] if line != argv[0] else []))

    def may_read(self, target: str) -> bool:
        return target not in self._denied

    def report_leaked(self, processes: Sequence[int]) -> None:
        self.leaked.extend(processes)


async def use(name: str, context: Context, **arguments: Any) -> Observation:
    return await TOOLS[name].run(arguments, context)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    workspace = tmp_path / "work"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    (workspace / "sub" / "b.py").write_text("print('two')\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    return workspace


def test_the_names_are_those_of_the_registry() -> None:
    files = {"read_file", "write_file", "edit_file", "patch_file", "list_dir", "find", "grep"}
    commands = {"exec", "shell", "shell_start", "shell_poll", "shell_kill", "check"}
    git = {"git_status", "git_diff", "git_log", "git_add", "git_commit", "git_branch"}
    assert tool_names() == files | commands | git | {"todo_write"}
    for tool in TOOLS.values():
        assert tool.spec.parameters["additionalProperties"] is False and tool.spec.description


async def test_reads_whole_and_in_part(root: Path) -> None:
    context = Context(root)
    assert "one\ntwo\nthree" in (await use("read_file", context, path="a.txt")).text
    part = (await use("read_file", context, path="a.txt", offset=2, limit=1)).text
    assert "two" in part and "one" not in part and "three" not in part
    assert context.asked == [("read", "a.txt")] * 2
    missing = await use("read_file", context, path="none.txt")
    assert missing.kind is ObservationKind.read and "not exist" in missing.text


async def test_a_read_that_is_too_large_is_refused_with_the_figures_and_the_remedy(root: Path) -> None:
    (root / "long.txt").write_text("x" * 500 + "\n")
    with pytest.raises(ToolFailed) as caught:
        await use("read_file", Context(root, max_read_chars=100), path="long.txt")
    assert "100" in str(caught.value)
    assert "xxx" in (await use("read_file", Context(root, max_read_chars=1_000), path="long.txt")).text


@pytest.mark.parametrize("data", [b"\x00\x01", "text".encode("utf-16"), b"\x89PNG\r\n\x1a\n"])
async def test_a_file_that_is_no_text_is_named_as_such(root: Path, data: bytes) -> None:
    (root / "odd").write_bytes(data)
    with pytest.raises(ToolFailed):
        await use("read_file", Context(root), path="odd")


async def test_writes_make_directories_and_say_when_nothing_changed(root: Path) -> None:
    context = Context(root)
    first = await use("write_file", context, path="new/deep/c.txt", content="hello")
    assert first.changed and (root / "new" / "deep" / "c.txt").read_text() == "hello"
    again = await use("write_file", context, path="new/deep/c.txt", content="hello")
    assert not again.changed
    os.chmod(root / "new" / "deep" / "c.txt", 0o750)
    await use("write_file", context, path="new/deep/c.txt", content="other")
    assert (root / "new" / "deep" / "c.txt").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in (root / "new" / "deep").iterdir()) == ["c.txt"]


async def test_a_denied_write_changes_nothing(root: Path) -> None:
    with pytest.raises(ActRefused):
        await use("write_file", Context(root, ["a.txt"]), path="a.txt", content="x")
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_an_edit_fits_exactly_once(root: Path) -> None:
    context = Context(root)
    edited = await use("edit_file", context, path="a.txt", search="two", replace="2")
    assert edited.changed and (root / "a.txt").read_text() == "one\n2\nthree\n"
    for search in ("e", "none", ""):
        with pytest.raises(ToolFailed):
            await use("edit_file", context, path="a.txt", search=search, replace="x")
    assert (root / "a.txt").read_text() == "one\n2\nthree\n"


async def test_lists_finds_and_greps(root: Path) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.py").write_text("two")
    context = Context(root)
    assert "a.txt" in (await use("list_dir", context)).text
    found = (await use("find", context, name_glob="*.py")).text
    assert "sub/b.py" in found and "node_modules" not in found
    lines = (await use("grep", context, pattern="two")).text
    assert "a.txt:2: two" in lines and "sub/b.py:1:" in lines
    assert "a.txt" not in (await use("grep", context, pattern="two", path_glob="*.py")).text


async def test_a_search_leaves_out_what_may_not_be_read_and_says_so(root: Path) -> None:
    for name, arguments in (("find", {"name_glob": "*"}), ("grep", {"pattern": "two"})):
        said = (await use(name, Context(root, ["a.txt"]), **arguments)).text
        assert "a.txt" not in said and "1 files were left out" in said


async def test_many_hits_are_bounded_with_the_true_total(root: Path) -> None:
    (root / "many.txt").write_text("hit\n" * 500)
    said = (await use("grep", Context(root), pattern="hit")).text
    assert said.count("many.txt:") == 50 and "500" in said


async def test_a_pattern_that_backtracks_for_ever_is_ended(root: Path) -> None:
    (root / "trap.txt").write_text("a" * 60 + "!\n")
    with pytest.raises(ToolFailed, match="simpler"):
        await Grep(seconds=0.5).run({"pattern": "(a+)+$"}, Context(root))
    with pytest.raises(ToolFailed, match="regular expression"):
        await use("grep", Context(root), pattern="(")


OUTSIDE = [
    "../outside/secret.txt",
    "/etc/passwd",
    "sub/../../outside/secret.txt",
    "a\x00b",
    "a\nb",
    "",
    "link",
    "dirlink/secret.txt",
    "loop",
]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "list_dir"])
async def test_AB128_no_path_leads_out(root: Path, path: str, name: str) -> None:
    (root / "link").symlink_to(root.parent / "outside" / "secret.txt")
    (root / "dirlink").symlink_to("../outside")
    (root / "loop").symlink_to("loop")
    context = Context(root)
    more = {"write_file": {"content": "x"}, "edit_file": {"search": "secret", "replace": "x"}}.get(name, {})
    with pytest.raises(ToolFailed) as caught:
        await use(name, context, path=path, **more)
    assert "secret" not in str(caught.value).replace("secret.txt", "")
    assert context.asked == []
    assert (root.parent / "outside" / "secret.txt").read_text() == "secret"


async def test_control_a_link_that_stays_inside_is_followed_to_its_real_name(root: Path) -> None:
    (root / "inside").symlink_to("sub")
    context = Context(root)
    assert "two" in (await use("read_file", context, path="inside/b.py")).text
    assert "two" in (await use("read_file", context, path=str(root / "sub" / "b.py"))).text
    assert context.asked == [("read", "sub/b.py")] * 2


def test_a_link_that_is_swapped_in_after_the_check_leads_nowhere(root: Path) -> None:
    def swap(name: str) -> None:
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to(root.parent / "outside" / "secret.txt")

    workspace = Workspace(str(root), between=swap)
    with pytest.raises(ToolFailed), opened(workspace, workspace.resolve("a.txt")):
        raise AssertionError("the link was followed")
    # The same opening without the guard follows it.
    assert (root / "a.txt").read_text() == "secret"


@pytest.mark.parametrize("arguments", [{}, {"path": 1}, {"path": "a.txt", "x": 1}, {"path": ["a.txt"]}])
async def test_wrong_arguments_are_told_and_nothing_is_asked(root: Path, arguments: dict[str, Any]) -> None:
    context = Context(root)
    with pytest.raises(ToolFailed):
        await use("read_file", context, **arguments)
    assert context.asked == []


async def test_a_command_is_asked_about_twice_and_told_how_it_ended(root: Path) -> None:
    context = Context(root)
    seen = await use("exec", context, argv=[sys.executable, "-c", "print('hi'); raise SystemExit(4)"])
    assert "exit code 4" in seen.text and "hi" in seen.text
    assert [act for act, _ in context.asked] == ["exec", "exec"]
    assert context.asked[0][1] == sys.executable and context.asked[1][1].startswith(sys.executable + " -c")
    assert "unavailable" in (await use("exec", context, argv=["no-such-program"])).text
    with pytest.raises(ActRefused):
        await use("exec", Context(root, [sys.executable]), argv=[sys.executable, "-c", "open('x', 'w')"])
    assert not (root / "x").exists()


@pytest.mark.parametrize("argv", [[], "ls", [""], ["a\x00"], [1]])
async def test_no_argv_that_is_none_starts_anything(root: Path, argv: Any) -> None:
    context = Context(root)
    with pytest.raises(ToolFailed):
        await use("exec", context, argv=argv)
    assert context.asked == []


async def test_single_file_work_has_one_tool_that_takes_no_path(tmp_path: Path) -> None:
    file = tmp_path / "one.txt"
    tool = SingleFile(file)
    await tool.run({"content": "hello"}, Context(tmp_path))
    assert file.read_text() == "hello"
    with pytest.raises(ToolFailed):
        await tool.run({"content": "x", "path": "other"}, Context(tmp_path))


# ── verification ────────────────────────────────────────────────────────────


async def judged(root: Path, criterion: Verification, **more: Any) -> tuple[str, str]:
    options: dict[str, Any] = {
        "root": str(root),
        "file": None,
        "exec_timeout": 5.0,
        "may_read": lambda path: True,
        "may_exec": lambda argv: True,
    }
    verdict = await evaluate(criterion, **{**options, **more})
    return verdict.verdict, verdict.detail


async def test_a_file_of_the_workspace_contains(root: Path) -> None:
    assert (await judged(root, Verification.workspace_file_contains("a.txt", "two")))[0] == "passed"
    assert (await judged(root, Verification.workspace_file_contains("a.txt", "four")))[0] == "failed"
    assert (await judged(root, Verification.workspace_file_contains("none", "two")))[0] == "failed"


async def test_a_gate_is_no_oracle_for_what_may_not_be_read(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside" / "secret.txt")
    for path in ("../outside/secret.txt", "link", "/etc/passwd"):
        told = [
            await judged(root, Verification.workspace_file_contains(path, needle)) for needle in ("secret", "other")
        ]
        assert told[0] == told[1] and told[0][0] == "errored"
    denied = {"may_read": lambda path: False}
    told = [await judged(root, Verification.workspace_file_contains("a.txt", each), **denied) for each in ("two", "x")]
    assert told[0] == told[1] and told[0][0] == "errored"


async def test_the_one_file_contains_or_equals(root: Path) -> None:
    file = {"file": str(root / "a.txt")}
    assert (await judged(root, Verification.file_contains("two"), **file))[0] == "passed"
    assert (await judged(root, Verification.file_equals("one\ntwo\nthree\n"), **file))[0] == "passed"
    assert (await judged(root, Verification.file_equals("one"), **file))[0] == "failed"


@pytest.mark.parametrize(
    ("code", "expect", "verdict"),
    [
        ("raise SystemExit(0)", 0, "passed"),
        ("raise SystemExit(1)", 0, "failed"),
        ("raise SystemExit(3)", 3, "passed"),
        ("import os; os.kill(os.getpid(), 9)", 9, "failed"),
        ("import os; os.kill(os.getpid(), 9)", 137, "failed"),
        ("import time; time.sleep(60)", 0, "failed"),
    ],
)
async def test_AB146_a_command_passes_only_by_its_exit_code(root: Path, code: str, expect: int, verdict: str) -> None:
    criterion = Verification.command([sys.executable, "-c", code], expect)
    assert (await judged(root, criterion, exec_timeout=1.0))[0] == verdict


async def test_a_command_that_cannot_be_judged_is_errored_and_not_failed(root: Path) -> None:
    missing = await judged(root, Verification.command(["no-such-program"]))
    assert missing[0] == "errored" and "unavailable" in missing[1]
    refused = await judged(root, Verification.command([sys.executable]), may_exec=lambda argv: False)
    assert refused[0] == "errored" and "refused" in refused[1]


async def test_the_tail_of_a_check_is_kept(root: Path) -> None:
    code = "print('x' * 10_000 + 'the end'); raise SystemExit(1)"
    verdict, detail = await judged(root, Verification.command([sys.executable, "-c", code]))
    assert verdict == "failed" and detail.rstrip().endswith("the end") and len(detail) < 4_100
