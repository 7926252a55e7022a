"""What a stretch of code costs, in numbers that a busy machine does not move.

A test may not hold a clock to a figure: the machine next door moves it. What must grow as its input and no
faster is counted in calls. What must not run away (a pattern that tries every way, a text made to hurt) is
held to a bound far from both: many times what it needs, and far below what running away costs. How fast
something is belongs to the benchmarks.
"""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import attrs


@attrs.define
class Calls:
    """Calls that were made inside a `count_calls` block, of Python and of C; zero until the block has ended."""

    made: int = 0


@contextmanager
def count_calls() -> Iterator[Calls]:
    """Count the calls that this thread makes in the block, those of other tasks of its loop among them.

    A profiler that was set before is set again afterwards; it sees nothing of the block.
    """
    calls = Calls()
    made = 0

    def profile(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal made
        if event in ("call", "c_call"):
            made += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        calls.made = made


@contextmanager
def does_not_run_away(cpu_seconds: float = 10.0) -> Iterator[None]:
    """Fail when the block took more than `cpu_seconds` of this thread.

    The collector rests meanwhile: what a whole test session has left behind is not the block's to pay. Take
    a bound of ten times what the block needs or more.

    Raises:
        AssertionError: it took longer; told only when the block has ended.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield
        spent = time.thread_time() - began
    finally:
        if was_enabled:
            gc.enable()
    assert spent < cpu_seconds, f"took {spent:.1f} s of CPU; {cpu_seconds:g} s were many times what it needs"
