"""Which calls of an answer run beside each other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import Observation, ObservationKind, Tool, ToolCall, ToolSpec
from actors.agents.read_runs import only_reads, read_runs
from actors.tools.single_file import SingleFile
from actors.tools.toolbox import builtin_tools


@attrs.frozen
class Fake:
    name: str
    read_only: bool
    recovery: str | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "", {})

    async def run(self, arguments: Any, context: Any) -> Observation:
        return Observation(ObservationKind.tool, "", "")


TOOLS: dict[str, Tool] = {
    each.name: each
    for each in (Fake("r", True), Fake("w", False), Fake("replayable", False, "replayable"), Fake("unsure", True, "indeterminate"))
}


def runs(names: list[str], most: int = 10, admitted: int = 99) -> Mapping[int, range]:
    return read_runs([ToolCall(name, "{}") for name in names], TOOLS, admitted=admitted, most=most)


def test_a_write_ends_a_run_and_one_read_alone_is_none() -> None:
    assert runs(["r", "r", "w", "r", "w", "r", "r", "r"]) == {0: range(2), 5: range(5, 8)}
    assert not runs(["r"]) and not runs([]) and not runs(["w", "r", "w"])


@pytest.mark.parametrize("name", ["w", "replayable", "unsure", "spawn_agent", "nobody"])
def test_whatever_may_do_more_than_read_ends_a_run(name: str) -> None:
    assert runs(["r", "r", name, "r", "r"]) == {0: range(2), 3: range(3, 5)}


def test_what_is_not_admitted_is_in_no_run() -> None:
    assert runs(["r"] * 5, admitted=3) == {0: range(3)}
    assert not runs(["r"] * 5, admitted=1) and not runs(["r"] * 5, admitted=0)


def test_one_at_a_time_is_no_run() -> None:
    assert not runs(["r"] * 5, most=1) and runs(["r"] * 5, most=2)


@given(st.lists(st.sampled_from([*TOOLS, "nobody"]), max_size=12), st.integers(0, 13))
def test_runs_are_the_longest_that_hold_reads_only(names: list[str], admitted: int) -> None:
    found = runs(names, admitted=admitted)
    reads = [place < admitted and only_reads(TOOLS.get(name)) for place, name in enumerate(names)]
    for begin, run in found.items():
        assert begin == run.start and len(run) > 1 and all(reads[run.start : run.stop])
        assert begin == 0 or not reads[begin - 1]
        assert run.stop == len(names) or not reads[run.stop]
    covered = {place for run in found.values() for place in run}
    alone = [place for place, read in enumerate(reads) if read and place not in covered]
    assert all(not any(reads[each - 1 : each][-1:] + reads[each + 1 : each + 2]) for each in alone)


def test_the_built_in_tools_that_read_run_beside_each_other_and_no_other() -> None:
    beside = {tool.spec.name for tool in builtin_tools() if only_reads(tool)}
    assert beside == {
        "read_file", "list_dir", "find", "grep", "shell_poll", "todo_write", "git_status", "git_diff", "git_log",
    }  # fmt: skip
    assert not only_reads(SingleFile(Path("a"))) and not only_reads(None)
