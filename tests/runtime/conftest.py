"""A stage for supervisors: children that do as a test tells them, and one log of what they did. A bench for actors."""

from collections import Counter
from collections.abc import Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from actors.runtime.child import Child
from actors.runtime.exits import Exit, Reason
from actors.runtime.named import Named
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.plan import Report
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec
from actors.runtime.starting import IGNORE
from actors.runtime.supervise import Supervise, supervise

ENDS: dict[str, Any] = {
    "normal": (Reason.normal, None),
    "shutdown": (Reason.shutdown, None),
    "shutdown(x)": (Reason.shutdown, "x"),
    "error": ValueError("x"),
    "killed": (Reason.killed, None),
}


@attrs.define
class Part:
    """What the children of one id do."""

    # Seconds that init takes, how many of the next starts fail or ignore after it, and how they fail.
    init: float = 0.0
    failures: float = 0
    ignores: int = 0
    error: BaseException = attrs.field(factory=lambda: ValueError("no start"))
    extra: Any = None
    # Never obeys a request to stop, or only after so many seconds.
    stubborn: bool = False
    slow: float = 0.0


class Player(Child):
    """One incarnation."""

    __slots__ = ("args", "id", "ready", "signal", "stage", "what")

    def __init__(self, path: str, parent: Child, host: Any, stage: "Stage", id: Hashable, args: tuple[Any, ...]) -> None:
        super().__init__(path, parent, host, may_parent=False)
        self.stage, self.id, self.args = stage, id, args
        self.signal, self.what, self.ready = trio.Event(), ENDS["normal"], False

    async def work(self) -> Any:
        part = self.stage.part(self.id)
        self.stage.attempts[self.id] += 1
        if part.init:
            await trio.sleep(part.init)
        if part.failures > 0:
            part.failures -= 1
            self.stage.log.append(f"fail({self.id})")
            raise part.error
        if part.ignores > 0:
            part.ignores -= 1
            return IGNORE if self.starter is None else self.starter.resolve(ready=False, extra=IGNORE)
        self.ready = True
        self.stage.live[self.id] = self
        self.stage.started.append((self.id, trio.current_time(), self.args))
        self.stage.log.append(f"start({self.id})")
        self.mark_ready(part.extra)
        await self.signal.wait()
        if isinstance(self.what, BaseException):
            raise self.what
        return None

    def _exit(self, reason: Reason, raised: Any, lost: Any) -> Exit:
        end = super()._exit(reason, raised, lost)
        if reason is Reason.normal and isinstance(self.what, tuple):
            return attrs.evolve(end, reason=self.what[0], payload=self.what[1])
        return end

    def request_stop(self, why: object) -> None:
        part = self.stage.part(self.id)
        self.stage.asked.append((self.id, trio.current_time()))
        if part.slow:
            self.host.deadlines.at(trio.current_time() + part.slow, partial(self.order_stop, why))
        elif not part.stubborn:
            self.order_stop(why)

    def ended(self, exit: Exit) -> None:
        if self.ready:
            self.stage.ends.append((self.id, trio.current_time(), exit))
            self.stage.log.append(f"stop({self.id}, {exit.reason})")


@attrs.frozen
class Play:
    """What the ``start`` of a spec returns."""

    stage: "Stage"
    id: Hashable
    args: tuple[Any, ...]

    def as_child(self, path: str, parent: Child, host: Any, spec: ChildSpec) -> Player:
        return Player(path, parent, host, self.stage, self.id, self.args)


class Stage:
    """The children by id, and everything they did, in its order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.reports: list[tuple[str, Report]] = []
        self.parts: dict[Hashable, Part] = {}
        # The incarnation of each id that was started last.
        self.live: dict[Hashable, Player] = {}
        self.attempts: Counter[Hashable] = Counter()
        self.started: list[tuple[Hashable, float, tuple[Any, ...]]] = []
        self.asked: list[tuple[Hashable, float]] = []
        self.ends: list[tuple[Hashable, float, Exit]] = []
        self.tree: SupervisionTree

    def part(self, id: Hashable) -> Part:
        return self.parts.setdefault(id, Part())

    def spec(self, id: Hashable, restart: str = "permanent", **more: Any) -> ChildSpec:
        def start(*args: Any) -> Play:
            return Play(self, id, args)

        return ChildSpec(id, start, restart=Restart(restart), **more)

    def specs(self, ids: str, **more: Any) -> list[ChildSpec]:
        return [self.spec(id, **more) for id in ids]

    def inner(self, id: Hashable, specs: Any, flags: Any = None, restart: str = "permanent", **more: Any) -> ChildSpec:
        """Describe a supervisor as a child; its start and its end stand in the log."""

        def start() -> Supervise:
            return supervise(specs, flags)

        return ChildSpec(id, start, restart=Restart(restart), type="supervisor", **more)

    def open(self, specs: Any = (), flags: Any = None, **more: Any) -> SupervisionTree:
        self.tree = open_supervisor(specs, flags, on_report=lambda path, it: self.reports.append((path, it)), **more)
        return self.tree

    async def end(self, id: Hashable, how: Any = "error") -> None:
        """Let the child end by itself, and its supervisor settle."""
        self.tell_to_end(id, how)
        await trio.testing.wait_all_tasks_blocked()

    def tell_to_end(self, id: Hashable, how: Any = "error") -> None:
        player = self.live[id]
        player.what = ENDS.get(how, how) if isinstance(how, str) else how
        player.signal.set()

    def new(self) -> list[str]:
        """Give what was logged since it was asked last."""
        log, self.log = self.log, []
        return log

    @property
    def topics(self) -> list[tuple[str, Hashable]]:
        return [(str(report.topic), report.child) for _, report in self.reports]


@pytest.fixture
def stage() -> Stage:
    return Stage()


class Bench:
    """A tree with its log and its reports."""

    def __init__(self, tree: SupervisionTree, top: Any, reports: list[Report]) -> None:
        self.tree, self.top, self.reports = tree, top, reports

    async def ref(self, id: str) -> Any:
        listed = await self.top.which_child(id)
        return listed.ref

    def named(self, name: str, **more: Any) -> Named:
        return Named(self.tree.host, name, **more)

    @property
    def letters(self) -> dict[str, int]:
        return dict(self.tree.host.dead_letters.statistics().by_cause)


@asynccontextmanager
async def open_bench(*specs: ChildSpec, intensity: int = 100, **flags: Any):
    reports: list[Report] = []
    tree = open_supervisor(
        specs, {"intensity": intensity, **flags}, on_report=lambda _path, report: reports.append(report)
    )
    async with tree as top:
        yield Bench(tree, top, reports)


@pytest.fixture
def bench() -> Any:
    """Give what opens a bench: ``async with bench(spec, spec) as b``."""
    return open_bench
