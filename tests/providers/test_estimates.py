"""The worst case grows with every part of a request, and drift only raises it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import AssistantTurn, CompletionRequest, ResultsTurn, ToolCall, ToolSpec, UserTurn
from actors.providers.estimates import MESSAGE_MARGIN, MOST_DRIFT, Drift, raw_prompt_tokens


def test_bytes_are_divided_by_three_and_every_message_has_a_margin():
    assert raw_prompt_tokens(CompletionRequest("abc", (UserTurn("abcd"),))) == 3 + 2 * MESSAGE_MARGIN
    assert raw_prompt_tokens(CompletionRequest("", (UserTurn("é" * 3),))) == 2 + 2 * MESSAGE_MARGIN


def test_calls_results_and_tools_count():
    turns = (UserTurn("a"), AssistantTurn("b", (ToolCall("c", "{}"),)), ResultsTurn(("d" * 30,)))
    bare = raw_prompt_tokens(CompletionRequest("", turns))
    with_tool = raw_prompt_tokens(CompletionRequest("", turns, (ToolSpec("t", "d" * 30, {"type": "object"}),)))
    assert bare == -(-(1 + 1 + 1 + 2 + 30) // 3) + 5 * MESSAGE_MARGIN
    assert with_tool > bare + 10


def test_a_lone_surrogate_is_counted_and_breaks_nothing():
    assert raw_prompt_tokens(CompletionRequest("", (UserTurn("\ud800"),))) == 1 + 2 * MESSAGE_MARGIN


@given(reports=st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**6)), min_size=1, max_size=5))
def test_drift_covers_every_report_it_has_seen_and_never_lowers(reports):
    drift, before = Drift(), 1.0
    for raw, reported in reports:
        drift.note(raw, reported)
        assert before <= drift.ratio <= MOST_DRIFT
        assert drift.ratio == MOST_DRIFT or math.ceil(raw * drift.ratio) >= reported
        before = drift.ratio


def test_the_estimate_is_raised_by_the_drift_and_holds_the_whole_output():
    request = CompletionRequest("abc", (UserTurn("abcd"),), max_output_tokens=70)
    drift = Drift()
    drift.note(100, 150)
    assert drift.estimate(request).prompt_tokens == 29
    assert drift.estimate(request).output_tokens == 70
    assert drift.estimate(request).minimal == 30
