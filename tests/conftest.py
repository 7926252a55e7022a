"""What holds for the whole test session."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No example is held to a clock, here or on a machine of CI: a busy one would fail what is right.
settings.register_profile("untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell that starts the session in the background has it ignore Ctrl-C, and each program that a test
# starts would inherit that: the tests that press Ctrl-C need what a terminal gives.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def ctrl_c_stays() -> Iterator[None]:
    """Undo what a command that was called in this process leaves: at its end it ignores Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
