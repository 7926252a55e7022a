"""What a call is named, what may be run again, and which results still have to be written."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.call_journal import Work, call_key, is_replayable
from actors.agents.ports import Completion, Observation, ObservationKind, ToolCall, ToolSpec
from actors.tools.toolbox import builtin_tools

SEEN = Observation(ObservationKind.tool, "t", "text")


@attrs.frozen
class Silent:
    """A tool that says nothing of recovery."""

    read_only: bool
    spec: ToolSpec = ToolSpec("t", "", {})

    async def run(self, arguments: Any, context: Any) -> Observation:
        return SEEN


@attrs.frozen
class Stating:
    """A tool that does."""

    read_only: bool
    recovery: str
    spec: ToolSpec = ToolSpec("t", "", {})

    async def run(self, arguments: Any, context: Any) -> Observation:
        return SEEN


def test_what_only_reads_may_be_run_again_and_nothing_else_that_says_nothing() -> None:
    assert is_replayable(Silent(True)) and not is_replayable(Silent(False))


def test_what_a_tool_states_counts_for_more_than_what_it_does() -> None:
    assert is_replayable(Stating(False, "replayable")) and not is_replayable(Stating(True, "indeterminate"))


@pytest.mark.parametrize("word", ["", "Replayable", "yes", "replayable "])
def test_a_word_that_nobody_knows_is_taken_for_the_careful_one(word: str) -> None:
    assert not is_replayable(Stating(False, word))


def test_all_builtin_tools_may_be_run_again_but_the_one_that_starts_what_stays() -> None:
    assert [tool.spec.name for tool in builtin_tools() if not is_replayable(tool)] == ["shell_start"]


PLACES = st.tuples(st.sampled_from(["r", "r/1.1", "r/11.1", "r/1.11"]), st.integers(1, 30), st.integers(1, 30))


@given(PLACES, PLACES)
def test_two_calls_have_one_key_exactly_when_they_are_the_same_call(
    one: tuple[str, int, int], other: tuple[str, int, int]
) -> None:
    assert (call_key(*one) == call_key(*other)) == (one == other)


@given(st.sets(st.integers(1, 5)), st.sets(st.integers(1, 5)), st.sets(st.integers(1, 5)))
def test_a_result_is_written_once_and_what_stood_before_is_not_written_again(
    known: set[int], stored: set[int], done: set[int]
) -> None:
    work = Work(1, Completion(None, (ToolCall("t"),) * 5), 5, known=dict.fromkeys(known, SEEN))
    work.stored.update(stored)
    work.done.update(dict.fromkeys(sorted(done), SEEN))
    first = [row.ordinal for row in work.unstored("r")]
    assert sorted(first) == sorted(done - known - stored)
    assert work.unstored("r") == []
