"""The faults of the test kit are those of SQLite, and are counted as they were asked to be."""

import sqlite3

import pytest

from actors.testing.faulty_store import FaultKind, Faults, Where


@pytest.mark.parametrize("kind", FaultKind)
def test_what_is_raised_is_what_sqlite_would_raise(kind: FaultKind) -> None:
    error = Faults(kind).error()
    assert isinstance(error, sqlite3.Error)
    assert error.sqlite_errorname.startswith({"io": "SQLITE_IOERR"}.get(kind, f"SQLITE_{kind.upper()}"))
    assert error.sqlite_errorcode & 0xFF == getattr(sqlite3, error.sqlite_errorname.removesuffix("_WRITE"))


def test_faults_count_only_what_they_are_asked_to_count() -> None:
    faults = Faults(FaultKind.full, at=2, where=Where.commit, times=1)
    met = [faults.meets(where) for where in (Where.begin, Where.commit, Where.rows, Where.commit, Where.commit)]
    assert met == [False, False, False, True, False]
    assert (faults.seen, faults.hits) == (3, 1)
    faults = Faults(FaultKind.full, at=1)
    assert faults.meets(Where.rows)
    faults.mend()
    assert not faults.meets(Where.rows)
