"""Every word of an outcome has a row, an exit code and a way back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.outcomes import MESSAGE_CHARS, TABLE, After, FailureCode, Outcome, OutcomeKind, exit_code
from actors.agents.strict_json import CodecRefused
from actors.halts import Halt, HaltKind

# Word, exit code, what may come after: written out, because scripts hold on to them.
ROWS = """
    success                 0  final
    finished                0  final
    step_cap_reached        3  larger_cap
    time_budget_exceeded    3  larger_cap
    cost_budget_exceeded    3  larger_cap
    budget_ceiling_reached  3  final
    stalled                 6  final
    escalated               1  final
    failed                  1  final
    refused                 4  final
    denied                  4  final
    cancelled               1  final
    interrupted           130  paused
    plan_rejected           4  final
    awaiting_approval       5  paused
    awaiting_answer         5  paused
    awaiting_plan           5  paused
    awaiting_recovery       5  paused
"""

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
AMOUNTS = st.integers(0, 2**63 - 1)
NUMBERS = st.none() | st.integers(0, 2**64) | st.floats(0, 1e9)
HALTS = st.builds(Halt, st.sampled_from(HaltKind), TEXTS, st.floats(0, 1e9), TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS)
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from(OutcomeKind),
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    st.none() | st.sampled_from(HaltKind),
    st.none() | st.booleans(),
    st.none() | HALTS,
    TEXTS,
    st.none() | st.sampled_from(FailureCode),
    st.none() | st.sampled_from(["approval:3", "q-1"]),
)


def test_every_word_has_the_row_that_is_written_here() -> None:
    written = {word: (int(code), after) for word, code, after in map(str.split, ROWS.strip().splitlines())}
    assert {kind.value: (exit_code(Outcome(kind)), TABLE[kind].after.value) for kind in OutcomeKind} == written
    assert set(TABLE) == set(OutcomeKind)


def test_an_outcome_is_exactly_one_of_final_paused_and_open_to_a_larger_cap() -> None:
    for kind in OutcomeKind:
        outcome = Outcome(kind)
        larger = TABLE[kind].after is After.larger_cap
        assert [outcome.is_final, outcome.is_pause, larger].count(True) == 1


def test_only_a_passed_criterion_and_a_finish_without_one_are_success() -> None:
    assert {kind for kind in OutcomeKind if Outcome(kind).success} == {OutcomeKind.success, OutcomeKind.finished}


@pytest.mark.parametrize(("signal", "code"), [(None, 130), (1, 129), (2, 130), (15, 143)])
def test_an_interrupted_run_tells_by_which_signal(signal: int | None, code: int) -> None:
    assert exit_code(Outcome(OutcomeKind.interrupted), signal=signal) == code


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.interrupted])
def test_a_signal_that_came_too_late_changes_no_exit_code(kind: OutcomeKind) -> None:
    assert exit_code(Outcome(kind), signal=15) == exit_code(Outcome(kind))


@given(OUTCOMES)
def test_every_outcome_that_is_written_has_a_way_back(outcome: Outcome) -> None:
    written = json.dumps(outcome.to_json(), allow_nan=False)
    assert Outcome.from_json(json.loads(written)) == outcome
    assert Outcome.from_json(json.loads(written)).to_json() == json.loads(written)


def test_the_plain_form_is_plain_and_leaves_out_what_is_absent() -> None:
    halt = Halt(HaltKind.tokens, "root/1", 2.5, limit=100, used=90, requested=20)
    outcome = Outcome(OutcomeKind.budget_ceiling_reached, 3, ceiling=HaltKind.tokens, halt=halt, retryable=False)
    plain = outcome.to_json()
    assert plain == {
        "kind": "budget_ceiling_reached",
        "steps": 3,
        "spent_tokens": 0,
        "overrun_tokens": 0,
        "spent_microdollars": 0,
        "ceiling": "tokens",
        "retryable": False,
        "halt": {
            "kind": "tokens", "by": "root/1", "at": 2.5, "path": "root", "reason": "",
            "limit": 100, "used": 90, "requested": 20,
        },
    }  # fmt: skip
    assert type(plain["kind"]) is type(plain["ceiling"]) is type(plain["halt"]["kind"]) is str


@pytest.mark.parametrize(
    ("plain", "kind", "path"),
    [
        ({}, "missing_field", "outcome.kind"),
        ([], "type_mismatch", "outcome"),
        ({"kind": "won"}, "unknown_variant", "outcome.kind"),
        ({"kind": "success", "score": 1}, "unknown_field", "outcome.score"),
        ({"kind": "success", "steps": True}, "type_mismatch", "outcome.steps"),
        ({"kind": "success", "steps": 1.0}, "type_mismatch", "outcome.steps"),
        ({"kind": "success", "spent_tokens": -1}, "invalid_scalar", "outcome.spent_tokens"),
        ({"kind": "success", "spent_microdollars": 2**63}, "invalid_scalar", "outcome.spent_microdollars"),
        ({"kind": "escalated", "retryable": 1}, "type_mismatch", "outcome.retryable"),
        ({"kind": "cancelled", "halt": {}}, "missing_field", "outcome.halt.kind"),
        ({"kind": "cancelled", "halt": {"kind": "fire"}}, "unknown_variant", "outcome.halt.kind"),
        ({"kind": "cancelled", "halt": {"kind": "cancel", "x": 1}}, "unknown_field", "outcome.halt.x"),
        ({"kind": "cancelled", "halt": {"kind": "cancel", "limit": True}}, "type_mismatch", "outcome.halt.limit"),
        ({"kind": "failed", "failure_code": "oops"}, "unknown_variant", "outcome.failure_code"),
        ({"kind": "awaiting_answer", "request": ""}, "invalid_scalar", "outcome.request"),
    ],
)
def test_what_is_not_exactly_an_outcome_is_refused_by_its_place(plain: Any, kind: str, path: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        Outcome.from_json(plain)
    assert (caught.value.kind, caught.value.path) == (kind, path)


@pytest.mark.parametrize("wrong", [-1, True, 1.0, "1"])
@pytest.mark.parametrize("field", ["steps", "spent_tokens", "overrun_tokens", "spent_microdollars"])
def test_an_outcome_counts_in_exact_whole_numbers(field: str, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=field):
        Outcome(OutcomeKind.finished, **{field: wrong})


def test_a_cause_is_bounded_and_can_always_be_written() -> None:
    assert Outcome(OutcomeKind.failed, message="x" * (MESSAGE_CHARS + 1)).message == "x" * MESSAGE_CHARS
    # A file name that is no UTF-8 comes into an error's text as lone surrogates.
    odd = Outcome(OutcomeKind.failed, message="no such file: a\udcff", halt=Halt(HaltKind.cancel, reason="b\udcff"))
    assert odd.message == "no such file: a?"
    assert odd.to_json()["halt"]["reason"] == "b?"
    assert json.dumps(odd.to_json(), ensure_ascii=False).encode()
