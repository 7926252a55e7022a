"""A workspace to work in, and a context that judges by a real policy and writes down what it was asked."""

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest

from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, ActRefused, Refusal


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

    async def authorise(self, act: Act, target: str, *more: str, content: str = "") -> None:
        self.contents.append(content)
        for each in (target, *more):
            self.asked.append((act, each))
            self.meanwhile()
            decision = self.policy.explain(act, each)
            if decision.effect is not Effect.allow:
                raise ActRefused(Refusal(act, each, decision.rule, decision.layer))

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
