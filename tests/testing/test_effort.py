"""Effort that is counted, and effort that runs away."""

import gc
import sys

import pytest

from actors.testing.effort import count_calls, does_not_run_away


def calls(count: int) -> int:
    with count_calls() as counted:
        for _ in range(count):
            len("")
    return counted.made


def test_calls_are_counted_the_same_each_time_and_those_outside_are_not():
    assert calls(1_000) - calls(100) == 900
    assert calls(100) == calls(100)


def test_a_profiler_that_was_set_is_set_again():
    def before(*_: object) -> None:
        pass

    sys.setprofile(before)
    try:
        with pytest.raises(KeyError), count_calls():
            raise KeyError
        assert sys.getprofile() is before
    finally:
        sys.setprofile(None)


def test_what_runs_away_fails_and_what_does_not_passes():
    with does_not_run_away():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(AssertionError, match="of CPU"), does_not_run_away(0.0):
        sum(range(10_000))
    assert gc.isenabled()


def test_an_error_in_the_block_goes_on_as_it_is():
    with pytest.raises(KeyError), does_not_run_away(0.0):
        raise KeyError
    assert gc.isenabled()
