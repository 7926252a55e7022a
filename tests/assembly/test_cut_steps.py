"""A step that is cut between two of its calls goes on behind the last one: what was done and known is not done again."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    Act,
    Approval,
    ApprovalRequest,
    Defer,
    Observation,
    ObservationKind,
    ToolContext,
    ToolSpec,
)
from actors.assembly.recovering import Retry
from actors.testing.dying_store import Death
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench
from actors.tools.toolbox import builtin_tools

MARK = [sys.executable, "-c", "open('marks', 'a').write('x\\n')"]


@attrs.define
class Stop:
    """A tool that ends its process, the first time it is called."""

    name: str = "stop"
    read_only: bool = True
    recovery: str = "replayable"
    end: Callable[[], Any] | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "Stop.", {"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        end, self.end = self.end, None
        if end is not None:
            end()
            await trio.sleep_forever()
        return Observation(ObservationKind.tool, self.name, "went on")


def edit(search: str, replace: str) -> Any:
    return call("edit_file", path="a.txt", search=search, replace=replace)


async def cut(folder: Path, calls: list[Any], *, read_only: bool, below: list[Any] | None = None) -> Bench:
    """Run a step that ends its process in a call of it, and go on."""
    stop = Stop(read_only=read_only)
    answers: dict[str, Any] = {"root": [calls, "done"], "child": [*(below or ()), "child done"]}
    bench = Bench(folder, answers, tools=(*builtin_tools(), stop))
    (bench.work / "a.txt").write_text("x\n")

    stop.end = bench.kill
    assert await bench.begin(death=Death()) is None
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    bench.check()
    return bench


@pytest.mark.parametrize("read_only", [True, False])
async def test_two_edits_of_one_file_are_both_done_once(tmp_path: Path, read_only: bool) -> None:
    bench = await cut(tmp_path, [edit("x", "x y"), edit("x", "x z"), call("stop")], read_only=read_only)
    assert (bench.work / "a.txt").read_text() == "x z y\n"


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_patch_and_what_comes_after_it_are_done_once(tmp_path: Path, read_only: bool) -> None:
    # Applied twice it would add the line twice: its context still fits.
    patch = call("patch_file", path="a.txt", patch="@@ -1 +1,2 @@\n x\n+y\n")
    note = call("todo_write", items=[{"text": "patch it", "status": "done"}])
    bench = await cut(tmp_path, [patch, note, call("stop")], read_only=read_only)
    assert (bench.work / "a.txt").read_text() == "x\ny\n"
    assert "[x] patch it" in "".join(bench.told())
    bench = await cut(tmp_path / "more", [patch, edit("y", "z"), call("stop")], read_only=read_only)
    assert (bench.work / "a.txt").read_text() == "x\nz\n"


@pytest.mark.parametrize("read_only", [True, False])
async def test_an_edit_that_a_command_went_over_is_done_once_and_the_command_too(
    tmp_path: Path, read_only: bool
) -> None:
    more = [sys.executable, "-c", "open('a.txt', 'a').write('more\\n')"]
    bench = await cut(tmp_path, [edit("x", "x y"), call("exec", argv=more), call("stop")], read_only=read_only)
    assert (bench.work / "a.txt").read_text() == "x y\nmore\n"


async def test_what_was_read_before_a_write_stays_what_it_was(tmp_path: Path) -> None:
    calls = [call("read_file", path="a.txt"), edit("x", "x y"), call("stop")]
    bench = await cut(tmp_path, calls, read_only=True)
    assert "x y" not in bench.told()[0] and (bench.work / "a.txt").read_text() == "x y\n"


async def test_what_a_parent_wrote_before_its_child_began_is_not_written_over_the_childs_work(tmp_path: Path) -> None:
    calls = [call("write_file", path="a.txt", content="x\n"), edit("x", "x y"), spawn("child")]
    bench = await cut(tmp_path, calls, read_only=True, below=[[edit("y", "y z")], [call("stop")]])
    assert (bench.work / "a.txt").read_text() == "x y z\n"


async def test_a_read_before_a_call_that_nobody_can_inspect_stands_with_its_intent(tmp_path: Path) -> None:
    """The file is changed by others before the run goes on; what the agent read it has read."""
    stop = Stop(read_only=False, recovery="indeterminate")
    bench = Bench(
        tmp_path,
        {"root": [[call("read_file", path="a.txt"), call("stop")], "done"]},
        tools=(*builtin_tools(), stop),
    )
    (bench.work / "a.txt").write_text("x\n")

    stop.end = bench.kill
    assert await bench.begin(death=Death()) is None
    (bench.work / "a.txt").write_text("changed\n")
    [attempt] = bench.open_attempts()
    ran = await bench.recover(Retry(attempt.key))
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert "x" in bench.told()[0] and "changed" not in bench.told()[0]
    bench.check()


# ── a call that asks between two effects ────────────────────────────────────


@attrs.define
class Twice:
    """A tool that asks, acts, asks again and acts again; nobody can see what it did."""

    name: str = "twice"
    read_only: bool = False
    done: list[str] = attrs.Factory(list)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "Pay twice.", {"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        for each in ("one", "two"):
            await context.authorise(Act.exec, each)
            self.done.append(each)
        return Observation(ObservationKind.tool, self.name, "paid both", changed=True)


class FirstOnly:
    """An approver that allows the first and puts the second off."""

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        await trio.lowlevel.checkpoint()
        return Approval(True) if request.target == "one" else Defer()


@pytest.mark.parametrize("asked", ["*", "two"])
async def test_a_call_that_asks_again_after_it_may_have_acted_is_not_begun_again_by_itself(
    tmp_path: Path, asked: str
) -> None:
    """Also when the policy had allowed the first act without a question."""
    tool = Twice()
    policy = Policy.permissive().layer("operator").ask_exec(asked)
    bench = Bench(tmp_path, {"root": [[call("twice")], "done"]}, policy, FirstOnly(), (*builtin_tools(), tool))
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_approval and tool.done == ["one"]
    for _ in range(2):
        ran = await bench.go_on()
        assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_recovery
        assert tool.done == ["one"]
        bench.check()
