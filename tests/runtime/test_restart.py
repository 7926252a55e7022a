"""What an end asks for, how often, and after which wait."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.exits import Reason
from actors.runtime.restart import Restart, Verdict, Window, delay_before, next_in_row, verdict
from actors.runtime.specs import Backoff

CLEAN_ENDS = ["normal", "shutdown", "shutdown(x)"]
ABNORMAL_ENDS = ["error", "killed"]
TABLE = [
    (Restart.permanent, CLEAN_ENDS, Verdict.restart),
    (Restart.permanent, ABNORMAL_ENDS, Verdict.restart),
    (Restart.transient, CLEAN_ENDS, Verdict.keep),
    (Restart.transient, ABNORMAL_ENDS, Verdict.restart),
    (Restart.temporary, CLEAN_ENDS, Verdict.forget),
    (Restart.temporary, ABNORMAL_ENDS, Verdict.forget),
]
ROWS = [(restart, end, expected) for restart, ends, expected in TABLE for end in ends]


@pytest.mark.parametrize(
    ("restart", "end", "expected"), ROWS, ids=[f"B{n}-{restart}-{end}" for n, (restart, end, _) in enumerate(ROWS, 1)]
)
def test_B1_to_B15_the_type_and_the_class_of_the_end_decide(restart, end, expected):
    # What came with a shutdown does not count.
    assert verdict(restart, Reason(end.split("(")[0])) is expected


def test_every_reason_that_is_not_clean_counts_as_abnormal():
    asked = {reason: verdict(Restart.transient, reason) for reason in Reason}
    assert {reason for reason, given in asked.items() if given is Verdict.keep} == {Reason.normal, Reason.shutdown}
    assert set(asked.values()) == {Verdict.keep, Verdict.restart}


def decisions(times, intensity, period):
    window, said = Window(), []
    for now in times:
        window, may = window.spend(now, intensity, period)
        said.append(may)
    return said


# ── intensity ───────────────────────────────────────────────────────────────


def test_C1_with_three_in_five_seconds_the_fourth_crash_is_too_many():
    assert decisions([0.0, 1.0, 2.0, 3.0], 3, 5.0) == [True, True, True, False]


def test_C2_with_no_intensity_the_first_crash_is_too_many():
    assert decisions([7.0], 0, 5.0) == [False]


def test_C4_the_window_slides():
    assert decisions([2.1 * n for n in range(100)], 1, 1.0) == [True] * 100


@pytest.mark.parametrize(("after", "lives"), [(4.5, False), (5.0, False), (5.5, True)])
def test_C5_the_edge_of_the_window_is_inside(after, lives):
    assert decisions([0.0, after], 1, 5.0) == [True, lives]
    assert decisions([100.5, 100.5 + after], 1, 5.0) == [True, lives]


def test_C14_two_crashes_in_one_instant_are_two():
    assert decisions([3.0, 3.0], 1, 5.0) == [True, False]


def test_entries_that_have_left_the_window_are_trimmed():
    window, _ = Window((4.0, 2.0, 0.0)).spend(7.0, 5, 5.0)
    assert window == Window((7.0, 4.0, 2.0))
    window, _ = window.spend(1000.0, 5, 5.0)
    assert window == Window((1000.0,))


def test_a_window_that_is_spent_is_left_as_it_was():
    before = Window((1.0,))
    assert before.spend(2.0, 1, 5.0) == (Window((2.0, 1.0)), False)
    assert before == Window((1.0,))


def test_two_values_that_go_on_from_one_do_not_see_each_other():
    first, _ = Window().spend(1.0, 9, 100.0)
    one, _ = first.spend(2.0, 9, 100.0)
    other, _ = first.spend(3.0, 9, 100.0)
    assert (first.entries, one.entries, other.entries) == ((1.0,), (2.0, 1.0), (3.0, 1.0))


def test_a_window_keeps_no_list_of_what_is_past():
    window = Window()
    for now in range(10_000):
        window, may = window.spend(float(now), 50, 10.0)
        assert may
    assert len(window._log) <= 50 and len(window.entries) == 11


def test_M1_a_lowered_intensity_counts_what_was_restarted_before_it():
    window = Window((3.0, 2.0, 1.0, 0.0))
    assert window.spend(4.0, 1, 10.0) == (Window((4.0, 3.0)), False)
    assert window.spend(4.0, 5, 10.0)[1]


# Half seconds, so that sums are exact and the edge of the window is hit often.
STEPS = st.lists(st.integers(0, 8).map(lambda n: n / 2), min_size=1, max_size=40)


def times_of(steps):
    now, times = 0.0, []
    for step in steps:
        now += step
        times.append(now)
    return times


@given(STEPS, st.integers(0, 5), st.integers(1, 12).map(lambda n: n / 2))
def test_each_decision_is_that_of_a_list_that_forgets_nothing(steps, intensity, period):
    times = times_of(steps)
    window = Window()
    for n, now in enumerate(times):
        window, may = window.spend(now, intensity, period)
        inside = [t for t in times[: n + 1] if now - t <= period]
        assert may == (len(inside) <= intensity)
        assert len(window.entries) <= intensity + 1
        assert list(window.entries) == sorted(inside, reverse=True)[: intensity + 1]


@given(STEPS, st.integers(0, 5), st.integers(1, 12).map(lambda n: n / 2))
def test_INV_7_no_window_holds_more_restarts_than_the_intensity(steps, intensity, period):
    times = times_of(steps)
    said = decisions(times, intensity, period)
    granted = [t for t, may in zip(times, said, strict=True) if may]
    # The fullest windows begin at a restart.
    assert all(sum(first <= t <= first + period for t in granted) <= intensity for first in granted)


@given(STEPS, st.data())
def test_INV_7_holds_while_intensity_and_period_change(steps, data):
    window, granted = Window(), []
    for now in times_of(steps):
        intensity, period = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 6)) / 2
        window, may = window.spend(now, intensity, period)
        assert len(window.entries) <= intensity + 1
        if not may:
            break
        granted.append(now)
        # A shorter period may have forgotten what a longer one would count; never more is known than there was.
        assert set(window.entries) <= set(granted)
        assert len(window.entries) <= intensity


# ── waits ───────────────────────────────────────────────────────────────────


def test_waits_double_up_to_the_maximum():
    backoff = Backoff(minimum=0.5, maximum=5.0)
    assert [delay_before(k, backoff, 0.9) for k in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_without_a_backoff_nothing_waits():
    assert [delay_before(k, None, 0.5) for k in (1, 2, 10**9)] == [0.0, 0.0, 0.0]


def test_the_jitter_comes_on_top_also_of_the_maximum():
    backoff = Backoff(minimum=1.0, maximum=4.0, jitter=0.5)
    assert [delay_before(2, backoff, chance) for chance in (0.0, 0.5, 1.0)] == [2.0, 2.5, 3.0]
    assert delay_before(9, backoff, 1.0) == 6.0


@pytest.mark.parametrize("k", [1024, 2000, 10**6, 10**30])
def test_a_row_of_any_length_waits_the_maximum(k):
    assert delay_before(k, Backoff(minimum=0.001, maximum=30.0), 0.0) == 30.0


@given(
    st.integers(1, 60),
    st.integers(1, 8).map(lambda n: n / 4),
    st.integers(0, 40).map(float),
    st.integers(0, 4).map(lambda n: n / 4),
    st.integers(0, 4).map(lambda n: n / 4),
)
def test_a_wait_is_that_of_the_formula(k, minimum, more, jitter, chance):
    backoff = Backoff(minimum, minimum + more, jitter)
    assert delay_before(k, backoff, chance) == min(backoff.maximum, minimum * 2 ** (k - 1)) * (1 + chance * jitter)


def test_a_row_goes_on_until_the_child_has_run_long_enough():
    backoff = Backoff(minimum=1.0, maximum=8.0, reset_after=10.0)
    assert next_in_row(0, 0.0, backoff) == 1
    assert [next_in_row(3, ran_for, backoff) for ran_for in (0.0, 9.5, 10.0, 10.5)] == [4, 4, 1, 1]


def test_a_row_that_is_never_reset_only_grows():
    assert next_in_row(7, 10.0**9, Backoff(minimum=1.0, maximum=8.0, reset_after=math.inf)) == 8


def test_without_a_backoff_there_is_no_row():
    assert [next_in_row(k, 0.0, None) for k in (0, 1, 50)] == [1, 1, 1]
