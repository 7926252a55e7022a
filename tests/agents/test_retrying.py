"""Waits double up to a cap, obey the endpoint, and one refusal slows all siblings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.retrying import RateGate, retry_delay


def test_the_wait_doubles_up_to_the_cap():
    assert [retry_delay(retry, base=0.5, max=3.0) for retry in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_only_lengthens():
    assert retry_delay(1, base=2.0, max=10.0, jitter=0.25) == 2.5
    assert retry_delay(9, base=2.0, max=10.0, jitter=0.25) == 12.5


@pytest.mark.parametrize("asked", [0.0, 0.1, 59.8, 10_000.0])
def test_what_the_endpoint_asks_for_stands_even_above_the_cap(asked):
    assert retry_delay(3, base=1.0, max=5.0, retry_after=asked, jitter=1.0) == asked


@pytest.mark.parametrize("asked", [-1.0, float("nan"), float("inf")])
def test_a_wish_that_is_none_is_not_obeyed(asked):
    assert retry_delay(1, base=1.0, max=5.0, retry_after=asked) == 1.0


@given(retry=st.integers(1, 10**6), base=st.floats(0, 100), cap=st.floats(0, 1000), jitter=st.floats(0, 1))
def test_no_wait_is_below_zero_or_above_twice_the_cap(retry, base, cap, jitter):
    assert 0 <= retry_delay(retry, base=base, max=cap, jitter=jitter) <= 2 * cap


def test_one_refusal_closes_the_gate_for_all_of_one_provider():
    gate = RateGate()
    gate.note("a", 10.0)
    gate.note("a", 7.0)
    assert gate.wait_needed("a", 4.0) == 6.0
    assert gate.wait_needed("b", 4.0) == 0.0
    assert gate.wait_needed("a", 10.0) == 0.0


def test_a_gate_that_has_opened_can_close_again_and_keeps_nothing():
    gate = RateGate()
    gate.note("a", 1.0)
    assert gate.wait_needed("a", 2.0) == 0.0
    assert gate == RateGate()
    gate.note("a", 5.0)
    assert gate.wait_needed("a", 2.0) == 3.0
