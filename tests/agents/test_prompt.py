"""What a model is told is bounded, and every call keeps its result."""

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import AssistantTurn, ResultsTurn, ToolCall, Turn, UserTurn
from actors.agents.prompt import STUB_CHARS, TRANSCRIPT_CHARS, Framing, first_turn, fitted, system_text

STUB_MOST = STUB_CHARS + 100


@st.composite
def transcripts(draw: st.DrawFn) -> tuple[Turn, ...]:
    turns: list[Turn] = [UserTurn("the goal")]
    for number in range(draw(st.integers(0, 12))):
        sizes = draw(st.lists(st.sampled_from([0, 1, 199, 200, 201, 999, 4_000]), max_size=4))
        turns.append(AssistantTurn(f"step {number}", tuple(ToolCall("read") for _ in sizes)))
        turns.append(ResultsTurn(tuple("x" * size for size in sizes)) if sizes else UserTurn("go on"))
    return tuple(turns)


@given(transcripts(), st.integers(0, 10_000))
def test_fitting_shortens_results_and_takes_nothing_away(turns: tuple[Turn, ...], budget: int) -> None:
    short = fitted(turns, budget)
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
    results = [turn for turn in fitted(turns, budget) if isinstance(turn, ResultsTurn)]
    stubs = sum(min(len(text), STUB_MOST) for turn in results for text in turn.texts)
    assert sum(len(text) for turn in results for text in turn.texts) <= budget + stubs


@given(transcripts())
def test_the_newest_results_stay_whole_when_they_fit(turns: tuple[Turn, ...]) -> None:
    last = max((place for place, turn in enumerate(turns) if isinstance(turn, ResultsTurn)), default=None)
    if last is not None:
        newest = turns[last]
        assert isinstance(newest, ResultsTurn)
        assert fitted(turns, sum(map(len, newest.texts)))[last] == newest


def test_a_short_transcript_is_sent_as_it_is() -> None:
    turns = (UserTurn("goal"), AssistantTurn(None, (ToolCall("read"),)), ResultsTurn(("x" * TRANSCRIPT_CHARS,)))
    assert fitted(turns) == turns


def test_equal_framings_give_equal_bytes_in_one_order() -> None:
    framing = Framing("ROLE", tree=True, constraints=("keep the tests", "use no network"))
    text = system_text(framing)
    assert text == system_text(Framing("ROLE", tree=True, constraints=("keep the tests", "use no network")))
    places = [text.index(part) for part in ("ROLE", "workspace", "spawn_agent", "Constraints:", "call no tool")]
    assert places == sorted(places)
    assert "- keep the tests\n- use no network" in text


def test_only_a_tree_hears_of_sub_agents() -> None:
    assert "spawn_agent" not in system_text(Framing())
    assert "one file" in system_text(Framing(single_file=True))


def test_the_first_turn_names_the_criterion_if_there_is_one() -> None:
    assert first_turn("do it", "").text == "do it"
    assert first_turn("do it", "a.txt contains x").text.endswith("done when: a.txt contains x")
