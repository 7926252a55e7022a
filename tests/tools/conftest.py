"""A workspace to work in, and a context that judges by a real policy and writes down what it was asked."""

import os
import secrets
import sys
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import attrs
import pytest

from actors.agents.belongings import Belongings
from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox, Identity
from actors.agents.edits import Edit
from actors.agents.exec_judging import judge_command
from actors.agents.judging import FileText
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, ActRefused, Refusal
from actors.tools.process import Finished
from actors.tools.sandbox import detect, run_confined
from actors.tools.sandbox_plan import Capabilities


def _no_nursery(*_: object) -> None:
    raise AssertionError("this test lets nothing outlive a call")


@attrs.define
class Context:
    """What a tool gets, with its questions on record. ``meanwhile`` runs where a human would think."""

    root: str
    exec_timeout: float = 5.0
    max_read_chars: int | None = None
    policy: Policy = attrs.Factory(Policy.permissive)
    asked: list[tuple[Act, str]] = attrs.Factory(list)
    contents: list[str] = attrs.Factory(list)
    leaked: list[int] = attrs.Factory(list)
    meanwhile: Callable[[], None] = lambda: None
    # What a process that is gone noted of this call: the digest, and whether bytes changed.
    noted: tuple[str, bool] | None = None
    intended: list[tuple[str, str, bool]] = attrs.Factory(list)
    key: str = "run#1.1"
    check_writes: bool = False
    commit_identity: Identity = Identity()
    # How files were about to change, by target.
    edits: dict[str, Edit | None] = attrs.Factory(dict)
    # The tests of the sandbox name another one; all others are about what happens without.
    confinement: Confinement = Confinement(ExecSandbox.full_access)
    lines: list[str] = attrs.Factory(list)
    belongings: Belongings = attrs.Factory(lambda: Belongings(_no_nursery))
    # What files held before they were first changed, when somebody may review.
    touched: dict[str, FileText] | None = None

    async def intend(self, target: str, after: str, *, changes: bool, edit: Edit | None = None) -> bool:
        self.intended.append((target, after, changes))
        self.edits[target] = edit
        return self.noted == (after, True)

    def wrote(self, target: str, now: str) -> bool:
        return self.noted == (now, True)

    async def touch(self, target: str, look: Callable[[], FileText]) -> None:
        # As where nobody reviews: it is not even looked at.
        if self.touched is not None:
            self.touched.setdefault(target, look())

    async def authorise(self, act: Act, target: str, *more: str, content: str = "", edit: object = None) -> None:
        self.contents.append(content)
        for each in (target, *more):
            self.asked.append((act, each))
            self.meanwhile()
            decision = self.policy.explain(act, each)
            if decision.effect is not Effect.allow:
                raise ActRefused(Refusal(act, each, decision.rule, decision.layer))

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> None:
        self.lines.append(line)
        seen = [(Act.exec, each.target, each.decision) for argv in commands for each in judge_command(self.policy, argv)]
        for act, targets in ((Act.read, reads), (Act.write, writes)):
            seen += [(act, target, self.policy.explain(act, target)) for target in targets]
        self.asked += [(act, target) for act, target, _ in seen]
        self.meanwhile()
        # The strictest one speaks, as in the real one; nobody here says yes to what is asked.
        for wanted in (Effect.deny, Effect.ask):
            for act, target, decision in seen:
                if decision.effect is wanted:
                    raise ActRefused(Refusal(act, target, decision.rule, decision.layer, f"{wanted} by policy"))

    def may_read(self, target: str) -> bool:
        return self.policy.explain(Act.read, target).effect is Effect.allow

    def report_leaked(self, processes: Sequence[int]) -> None:
        self.leaked += processes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace, with a secret file beside it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("canary\n")
    inside = tmp_path / "workspace"
    inside.mkdir()
    return inside


@pytest.fixture
def context(root: Path) -> Context:
    return Context(str(root))


@attrs.frozen
class Marker:
    """An argument that only processes of this test carry."""

    text: str

    def living(self) -> list[str]:
        """Give the command lines of the live processes that carry it."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    line = Path("/proc", name, "cmdline").read_bytes()
                except OSError:
                    continue
                if self.text.encode() in line:
                    found.append(line.replace(b"\0", b" ").decode())
        return found


@pytest.fixture
def marker() -> Marker:
    """A length of sleep that nobody else sleeps."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs /proc to see which processes live")
    return Marker(f"600.{secrets.randbelow(10**12):012d}")


# ── boundaries ──────────────────────────────────────────────────────────────


@pytest.fixture
def outside(root: Path) -> Path:
    """A directory beside the workspace, with a file that must stay as it is."""
    beside = root.parent / "outside"
    beside.mkdir()
    (beside / "victim").write_text("as it was")
    (beside / "victim").chmod(0o644)
    return beside


@pytest.fixture
def can(request: pytest.FixtureRequest) -> Capabilities:
    """This machine as if it had no other backend than the one that a test names."""
    has = detect()
    backends = {
        "namespaces": (has.landlock and has.namespaces, "needs landlock, and the right to make namespaces"),
        "users": (has.landlock and has.namespaces, "needs landlock, and the right to make namespaces"),
        "rules": (has.landlock and has.seccomp, "needs landlock, and a machine whose system calls we know"),
        "bubblewrap": (has.bubblewrap, "bubblewrap is not installed here, or does not work"),
    }
    there, why = backends[request.param]
    if not there:
        pytest.skip(why)
    if request.param == "bubblewrap":
        return has
    without = attrs.evolve(has, bubblewrap=None)
    if request.param == "users":
        return attrs.evolve(without, root=False, users=True)
    return attrs.evolve(without, namespaces=False) if request.param == "rules" else without


Runs = Callable[..., Awaitable[Finished]]


@pytest.fixture
def python() -> Runs:
    """What runs a program of Python behind a boundary."""

    async def python(code: str, root: Path, confinement: Confinement, can=None, timeout=20.0) -> Finished:
        program = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]
        return await run_confined(program, cwd=str(root), timeout=timeout, confinement=confinement, capabilities=can)

    return python


@pytest.fixture
def shell() -> Runs:
    """What runs a line of a shell behind a boundary."""

    async def shell(line: str, root: Path, confinement: Confinement, can=None, timeout=20.0) -> Finished:
        program = ["sh", "-c", line]
        return await run_confined(program, cwd=str(root), timeout=timeout, confinement=confinement, capabilities=can)

    return shell
