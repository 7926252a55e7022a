"""What the parts log during a run, as people see it."""

import logging

import pytest

from actors.cli.notices import Notices
from actors.errors import StoreError, StoreErrorKind

FULL = StoreError(StoreErrorKind.full, "runs.db", "database or disk is full")


def log_all() -> None:
    logging.getLogger("actors.store").error("%s: nothing more is written: %s", "runs.db", "full")
    logging.getLogger("actors.tree").warning("an end could not be stored: %s", FULL)
    logging.getLogger("actors.store").warning("runs.db is held by another process; still waiting")
    logging.getLogger("actors.loop").warning("tool %s raised", "exec")
    logging.getLogger("actors.live").info("nobody reads this")


HEARD = "warning: runs.db is held by another process; still waiting\nwarning: tool exec raised\n"
HELD = "error: runs.db: nothing more is written: full\nwarning: an end could not be stored: runs.db: database or disk is full\n"


def test_what_is_logged_of_a_failed_store_is_not_told_beside_the_failure_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ExceptionGroup), Notices():
        log_all()
        raise ExceptionGroup("", [ExceptionGroup("", [FULL])])
    assert capsys.readouterr().err == HEARD


@pytest.mark.parametrize("error", [None, ValueError("another")])
def test_what_is_logged_of_a_failed_store_is_told_when_the_run_does_not_tell_it(
    capsys: pytest.CaptureFixture[str], error: Exception | None
) -> None:
    try:
        with Notices():
            log_all()
            assert capsys.readouterr().err == HEARD
            if error is not None:
                raise error
    except ValueError:
        pass
    assert capsys.readouterr().err == HELD
    assert not any(isinstance(each, Notices) for each in logging.getLogger("actors").handlers)
