"""A workspace with a secret beside it and denied files inside, the tools of an agent, and a look at what got out.

The corpus is the cases of this folder whose test is named ``test_attack_...``: each
has a control. The last line of a run says how many there were.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from actors.agents.belongings import Belongings
from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox, Identity
from actors.agents.edits import Edit
from actors.agents.exec_judging import effect_of, judge_command, may_run
from actors.agents.judging import FileText
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, ActRefused, Refusal
from actors.agents.verification import Verification
from actors.errors import ToolFailed
from actors.tools.check import Check
from actors.tools.edit_file import EditFile
from actors.tools.exec import Exec
from actors.tools.list_dir import ListDir
from actors.tools.patch_file import PatchFile
from actors.tools.paths import Workspace
from actors.tools.read_file import ReadFile
from actors.tools.search import Find, Grep
from actors.tools.shell import Shell
from actors.tools.verifying import evaluate
from actors.tools.write_file import WriteFile

LEAST_CASES: Final = 150
OUTSIDE: Final = "canary-outside-the-workspace"
DENIED: Final = "canary-denied-inside"
WRITTEN: Final = "written-by-the-attack"
# A file that is not there until a command was run that should not have been.
PROOF: Final = "proof-that-it-ran"

_cases: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "attacks" in report.nodeid and "test_attack" in report.nodeid:
        _cases[report.nodeid] = report.outcome


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _cases:
        escapes = sum(outcome == "failed" for outcome in _cases.values())
        terminalreporter.write_line(f"attack corpus: {len(_cases)} cases, each with its control; escapes: {escapes}")


def the_policy() -> Policy:
    """Everything is allowed but what an operator would deny, so that nothing is refused for another reason."""
    policy = Policy.permissive().layer("operator")
    for glob in (".env", "private/*", "*.pem"):
        policy = policy.deny_read(glob).deny_write(glob)
    return policy.deny_exec("touch").deny_exec("touch *")


@attrs.define
class Context:
    """What a tool gets: the real policy, and nobody who says yes to what is asked."""

    root: str
    policy: Policy
    exec_timeout: float = 10.0
    max_read_chars: int | None = None
    key: str = "run#1.1"
    check_writes: bool = False
    commit_identity: Identity = Identity()
    meanwhile: Callable[[], None] = lambda: None
    confinement: Confinement = Confinement(ExecSandbox.full_access)
    belongings: Belongings = attrs.Factory(lambda: Belongings(lambda *_: None))

    async def intend(self, target: str, after: str, *, changes: bool, edit: Edit | None = None) -> bool:
        return False

    def wrote(self, target: str, now: str) -> bool:
        return False

    async def touch(self, target: str, look: Callable[[], FileText]) -> None:
        look()

    def may_read(self, target: str) -> bool:
        return self.policy.explain(Act.read, target).effect is Effect.allow

    def report_leaked(self, processes: Sequence[int]) -> None:
        assert not processes

    async def authorise(self, act: Act, target: str, *more: str, content: str = "", edit: object = None) -> None:
        for each in (target, *more):
            decision = self.policy.explain(act, each)
            if decision.effect is not Effect.allow:
                raise ActRefused(Refusal(act, each, decision.rule, decision.layer))
        self.meanwhile()

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> None:
        for argv in commands:
            judged = judge_command(self.policy, argv)
            if effect_of(judged) is not Effect.allow:
                raise ActRefused(Refusal(Act.exec, line, None, None))
        for act, targets in ((Act.read, reads), (Act.write, writes)):
            for target in targets:
                await self.authorise(act, target)
        self.meanwhile()


@attrs.define
class World:
    """The place of an attack. Each way in is a method that gives all that the agent is told."""

    top: Path
    root: Path
    context: Context
    _before: dict[str, str] = attrs.Factory(dict)

    async def read(self, path: str) -> str:
        return await self.call(ReadFile(), {"path": path})

    async def list(self, path: str) -> str:
        return await self.call(ListDir(), {"path": path})

    async def write(self, path: str) -> str:
        return await self.call(WriteFile(), {"path": path, "content": WRITTEN})

    async def edit(self, path: str) -> str:
        return await self.call(EditFile(), {"path": path, "search": "canary", "replace": WRITTEN})

    async def patch(self, path: str) -> str:
        """Whoever knows a line may replace it; and whoever is told that it fits knows it."""
        lines = (f"{OUTSIDE} = = {OUTSIDE}", f"{DENIED} = = {DENIED}", "canary inside")
        tries = [
            await self.call(PatchFile(), {"path": path, "patch": f"@@ -1 +1 @@\n-{line}\n+{WRITTEN}\n"}) for line in lines
        ]
        return "\n".join(tries)

    async def check(self) -> str:
        return await self.call(Check(), {})

    async def grep(self, glob: str) -> str:
        return await self.call(Grep(), {"pattern": "canary", "path_glob": glob})

    async def find(self, glob: str) -> str:
        return await self.call(Find(), {"name_glob": glob})

    async def redirect_in(self, path: str) -> str:
        return await self.shell(f"cat < '{path}'")

    async def redirect_out(self, path: str) -> str:
        return await self.shell(f"echo {WRITTEN} > '{path}'")

    async def append(self, path: str) -> str:
        return await self.shell(f"echo {WRITTEN} >> '{path}'")

    async def contains(self, path: str) -> str:
        """The oracle of a gate: it tells whether a file contains a text."""
        try:
            return await self.judged(Verification.workspace_file_contains(path, "canary"))
        except ValueError as error:
            return f"refused: {error}"

    async def compiles(self, path: str) -> str:
        return await self.judged(Verification.each_compiles((path,)))

    async def judged(self, criterion: Any) -> str:
        verdict = await evaluate(
            criterion, root=str(self.root), file=None, exec_timeout=10.0, may_read=self.context.may_read,
            may_exec=lambda argv: may_run(self.context.policy, argv), confinement=self.context.confinement,
        )  # fmt: skip
        return f"{verdict.verdict}: {verdict.detail}"

    async def exec(self, *argv: str) -> str:
        return await self.call(Exec(), {"argv": list(argv)})

    async def shell(self, line: str) -> str:
        return await self.call(Shell(), {"line": line})

    async def call(self, tool: Any, arguments: Mapping[str, Any]) -> str:
        try:
            seen = await tool.run(arguments, self.context)
        except (ToolFailed, ActRefused) as error:
            return f"refused: {error}"
        return f"{seen.target}\n{seen.text}"

    # ── what got out ────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Take the state that must not change."""
        self._before = self._state()

    def escapes(self, told: str = "") -> list[str]:
        """Name what got out: a secret that was told, a file that was changed or made, a command that was run."""
        found = [text for text in (OUTSIDE, DENIED) if text in told]
        now = self._state()
        found += [path for path in sorted({*self._before, *now}) if self._before.get(path) != now.get(path)]
        return found

    def _state(self) -> dict[str, str]:
        guarded = [self.top / "secret", self.top / "workspacex", self.root / "private"]
        files = [file for folder in guarded for file in folder.rglob("*")]
        files += [self.root / ".env", self.root / "server.pem", self.root / PROOF]
        return {str(file.relative_to(self.top)): _digest(file) for file in files if os.path.lexists(file)}


def _digest(file: Path) -> str:
    if file.is_symlink():
        return os.readlink(file)
    return "directory" if file.is_dir() else hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Make the place. Every link below is one that an agent could have made by a command, or a clone brought along."""
    root = tmp_path / "workspace"
    for folder in ("secret", "secret/deep", "workspacex", "workspace/sub/deep", "workspace/private"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("secret/key.txt", "secret/deep/key.txt", "secret/code.py", "workspacex/key.txt"):
        (tmp_path / file).write_text(f"{OUTSIDE} = = {OUTSIDE}\n")
    for file in (".env", "private/p.txt", "server.pem", "private/code.py"):
        (root / file).write_text(f"{DENIED} = = {DENIED}\n")
    (root / "a.txt").write_text("inside\n")
    (root / "sub" / "a.txt").write_text("inside\n")
    for name, target in {
        "out": "../secret", "out_abs": str(tmp_path / "secret"), "file": "../secret/key.txt",
        "file_abs": str(tmp_path / "secret" / "key.txt"), "chain": "chain2", "chain2": "sub/chain3",
        "sub/chain3": "../out/key.txt", "to_root": ".", "up": "..", "sub/far": "../../secret/key.txt",
        "code.py": "../secret/code.py", "proc": "/proc/self/root", "private_link": "private",
        "env_link": ".env", "sub/env_link": "../.env", "pem_link": "server.pem", "p_link": "sub/../private/p.txt",
    }.items():  # fmt: skip
        (root / name).symlink_to(target)
    place = World(tmp_path, root, Context(str(root), the_policy()))
    place.begin()
    return place


@contextlib.contextmanager
def swapping(world: World, module: str, name: str, target: str) -> Iterator[list[str]]:
    """Swap a name for a link at the named seam of the guard, between the look and the opening, in one tool's module."""
    done: list[str] = []

    def between(seen: str) -> None:
        if seen == Path(name).name and not done:
            done.append(seen)
            swap(world, name, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"actors.tools.{module}.Workspace", lambda root: Workspace(root, between))
        yield done


def swap(world: World, name: str, target: str) -> None:
    """Put a link where a file or a directory was."""
    if os.path.lexists(world.root / name):
        os.rename(world.root / name, world.root / "moved")
    os.symlink(target, world.root / name)


@pytest.fixture
def racing(world: World) -> Callable[[str, str, str], Any]:
    return lambda module, name, target: swapping(world, module, name, target)


@pytest.fixture
def swapped(world: World) -> Callable[[str, str], None]:
    return lambda name, target: swap(world, name, target)
