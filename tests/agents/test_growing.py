"""Sums that are kept are those that would be counted anew, and cost what changed."""

import copy
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.growing import MOST_MEASURES, Growing, added_up
from actors.agents.model_input import estimate_of
from actors.agents.ports import (
    AssistantTurn,
    CompletionRequest,
    Provider,
    ResultsTurn,
    ToolCall,
    ToolSpec,
    Turn,
    UserTurn,
)
from actors.agents.routing import request_bytes
from actors.providers.estimates import raw_prompt_tokens

TEXTS = st.text("a\u00e9\u20ac\U0001f600\ud800", max_size=4)
TURNS: st.SearchStrategy[Turn] = st.one_of(
    st.builds(UserTurn, TEXTS),
    st.builds(AssistantTurn, st.none() | TEXTS, st.lists(st.builds(ToolCall, TEXTS, TEXTS), max_size=2).map(tuple)),
    st.builds(ResultsTurn, st.lists(TEXTS, max_size=3).map(tuple)),
)
# A new turn, or another one in the place of an old one.
CHANGES = st.lists(st.tuples(st.none() | st.integers(0, 5), TURNS), min_size=1, max_size=12)


class Nobody:
    name = "nobody"


NOBODY: Provider = Nobody()  # type: ignore[assignment]


@given(CHANGES, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_request_of_a_run_costs_the_same_as_one_that_knows_nothing(
    changes: list[tuple[int | None, Turn]], asked: list[bool]
) -> None:
    grown: Growing[Turn] = Growing()
    turns: list[Turn] = []
    for (place, turn), ask in zip(changes, asked, strict=False):
        if place is not None and place < len(turns):
            turns[place] = turn
            grown.put(place, turn)
        else:
            turns.append(turn)
            grown.append(turn)
        assert grown.items() == tuple(turns)
        if ask:
            known = CompletionRequest("s", grown.items(), (ToolSpec("t", "d", {}),), grown=grown)
            plain = CompletionRequest("s", tuple(turns), (ToolSpec("t", "d", {}),))
            assert known == plain and hash(known.turns) == hash(plain.turns)
            for cost in (raw_prompt_tokens, request_bytes, lambda request: estimate_of(NOBODY, request)):
                assert cost(known) == cost(plain)  # type: ignore[operator]


def test_each_item_is_measured_once() -> None:
    measured: list[str] = []

    def size(item: str) -> int:
        measured.append(item)
        return len(item)

    grown: Growing[str] = Growing()
    for item in ("one", "two", "three"):
        grown.append(item)
        assert added_up(size, grown.items(), grown) == sum(map(len, grown.items()))
    assert measured == ["one", "two", "three"]
    grown.put(0, grown.items()[0])
    grown.put(2, "3")
    assert added_up(size, grown.items(), grown) == 7
    assert measured == ["one", "two", "three", "3"]


def test_items_that_are_not_the_latest_are_counted_themselves() -> None:
    grown: Growing[str] = Growing()
    grown.append("one")
    before = grown.items()
    assert grown.items() is before and added_up(len, before, grown) == 3
    grown.append("three")
    assert added_up(len, before, grown) == 3
    assert added_up(len, ["three"], grown) == 5
    assert added_up(len, ("a", "b"), grown) == 2
    assert added_up(len, grown.items(), grown) == 8


def test_a_copy_of_a_request_takes_nothing_of_the_run_along() -> None:
    grown: Growing[Turn] = Growing()
    grown.append(UserTurn("go"))
    request = CompletionRequest("s", grown.items(), grown=grown)
    again = copy.deepcopy(request)
    assert again == request and again.grown is None
    assert "grown" not in repr(request)


def test_measures_that_are_made_for_each_request_are_not_kept() -> None:
    grown: Growing[str] = Growing()
    grown.append("one")
    for factor in range(3 * MOST_MEASURES):
        assert grown.total(lambda item, factor=factor: factor * len(item)) == 3 * factor  # type: ignore[misc]
    assert len(grown._sums) == MOST_MEASURES


def test_chains_of_more_kinds_than_are_kept_are_made_anew() -> None:
    def extend(states: list[str], fresh: Sequence[str]) -> None:
        states.extend(fresh)

    grown: Growing[str] = Growing()
    grown.append("one")
    for kind in range(3 * MOST_MEASURES):
        assert grown.chain(kind, extend) == ["one"]
    assert len(grown._chains) == MOST_MEASURES
