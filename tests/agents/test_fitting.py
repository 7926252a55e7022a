"""What a model reads of a long run is what would be fitted anew, and costs what changed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.fitting import STUB_CHARS, TRANSCRIPT_CHARS, Fitting
from actors.agents.ports import AssistantTurn, ResultsTurn, ToolCall, Turn, UserTurn
from actors.testing.effort import count_calls

STUB_MOST = STUB_CHARS + 100
SIZES = st.lists(st.sampled_from([0, 1, 7, 199, 200, 201, 999, 4_000]), max_size=4)


def stubbed(text: str) -> str:
    return text if len(text) <= 200 else (
        f"{text[:200]}\n[{len(text) - 200} more characters of this older result left out; ask again if needed]"
    )  # fmt: skip


def fitted(turns: Sequence[Turn], budget: int = TRANSCRIPT_CHARS) -> tuple[Turn, ...]:
    """Fit a whole transcript anew: the model beside."""
    kept: list[Turn] = []
    for turn in reversed(turns):
        if isinstance(turn, ResultsTurn):
            size = sum(map(len, turn.texts))
            if size > budget:
                turn = ResultsTurn(tuple(map(stubbed, turn.texts)))
                size = sum(map(len, turn.texts))
            budget = max(budget - size, 0)
        kept.append(turn)
    return tuple(reversed(kept))


def step(number: int, sizes: Sequence[int]) -> list[Turn]:
    answer = AssistantTurn(f"step {number}", tuple(ToolCall("read") for _ in sizes))
    return [answer, ResultsTurn(tuple(chr(97 + number % 26) * size for size in sizes)) if sizes else UserTurn("go on")]


@st.composite
def transcripts(draw: st.DrawFn) -> tuple[Turn, ...]:
    steps = [step(number, sizes) for number, sizes in enumerate(draw(st.lists(SIZES, max_size=12)))]
    return (UserTurn("the goal"), *(turn for turns in steps for turn in turns))


@given(st.lists(st.tuples(SIZES, st.integers(0, 3), st.integers(0, 2)), max_size=16), st.integers(0, 10_000))
def test_fitting_from_request_to_request_is_fitting_anew(
    steps: list[tuple[list[int], int, int]], budget: int
) -> None:
    turns: list[Turn] = [UserTurn("the goal")]
    growing = Fitting(turns, budget)
    for number, (sizes, late, asked) in enumerate(steps):
        for _ in range(late):
            # A report that came late; also behind what was asked with already.
            last = turns[-1]
            if isinstance(last, ResultsTurn):
                turns[-1] = ResultsTurn((*last.texts[:-1], last.texts[-1] + "x" * 90))
            else:
                turns[-1] = UserTurn(growing.last.text + "x")  # type: ignore[union-attr, operator]
            growing.put_last(turns[-1])
        for _ in range(asked):
            assert growing.turns() == fitted(turns, budget)
        for turn in step(number, sizes):
            turns.append(turn)
            growing.append(turn)
        assert growing.last is turns[-1]
    assert growing.turns() == fitted(turns, budget)


def test_an_older_result_comes_back_whole_when_a_newer_one_became_a_stub() -> None:
    growing = Fitting([UserTurn("go"), *step(0, [500]), *step(1, [900])], 1_000)
    assert len(growing.turns()[2].texts[0]) < 500  # type: ignore[union-attr]
    growing.append(ResultsTurn(("x" * 200,)))
    assert [len(turn.texts[0]) for turn in growing.turns() if isinstance(turn, ResultsTurn)] == [500, 273, 200]


@given(transcripts(), st.integers(0, 10_000))
def test_fitting_shortens_results_and_takes_nothing_away(turns: tuple[Turn, ...], budget: int) -> None:
    short = Fitting(turns, budget).turns()
    assert len(short) == len(turns)
    for before, after in zip(turns, short, strict=True):
        if not isinstance(before, ResultsTurn):
            assert after == before
            continue
        assert isinstance(after, ResultsTurn)
        assert len(after.texts) == len(before.texts)
        for whole, kept in zip(before.texts, after.texts, strict=True):
            assert kept == whole or (kept.startswith(whole[:STUB_CHARS]) and "left out" in kept)


@given(transcripts(), st.integers(0, 10_000))
def test_what_is_over_the_budget_is_stubs_only(turns: tuple[Turn, ...], budget: int) -> None:
    results = [turn for turn in Fitting(turns, budget).turns() if isinstance(turn, ResultsTurn)]
    stubs = sum(min(len(text), STUB_MOST) for turn in results for text in turn.texts)
    assert sum(len(text) for turn in results for text in turn.texts) <= budget + stubs


@given(transcripts())
def test_the_newest_results_stay_whole_when_they_fit(turns: tuple[Turn, ...]) -> None:
    last = max((place for place, turn in enumerate(turns) if isinstance(turn, ResultsTurn)), default=None)
    if last is not None:
        newest = turns[last]
        assert isinstance(newest, ResultsTurn)
        assert Fitting(turns, sum(map(len, newest.texts))).turns()[last] == newest


def test_a_short_transcript_is_sent_as_it_is() -> None:
    turns = (UserTurn("goal"), AssistantTurn(None, (ToolCall("read"),)), ResultsTurn(("x" * TRANSCRIPT_CHARS,)))
    assert Fitting(turns).turns() == turns


@pytest.mark.parametrize("sizes", [[20], [4_000], [12_000] * 3, [0], []])
def test_a_step_late_in_a_run_costs_no_more_than_one_before(sizes: list[int]) -> None:
    growing = Fitting([UserTurn("go")], 20_000)

    def take(steps: int) -> int:
        with count_calls() as calls:
            for number in range(steps):
                for turn in step(number, sizes):
                    growing.append(turn)
                growing.turns()
        return calls.made

    # The budget is full in each, if anything can fill it.
    take(1_100)
    early = take(100)
    take(2_000)
    # The collector calls whoever asked to hear of it.
    assert take(100) < 1.1 * early
