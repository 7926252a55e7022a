"""A store in a file whose SQLite fails when it is told to: full, locked, unreadable, damaged.

    faults = Faults(FaultKind.full, at=7)
    async with open_faulty_store(path, faults) as store:
        ...                          # the seventh statement finds the disk full, and every later one too
    assert faults.hits

What is raised is the library's own exception, with its result code, from the
writer's connection; readers are left alone. ``at`` counts from 1 over the
statements in ``where``, so a run that is repeated with 1, 2, 3 ... meets the fault
at each of its writes. A run without a fault tells how many there are: `Faults.seen`.

The same causes for real: `open_small_store` (a file that may not grow), `held`
(a lock of somebody else's), and `damage` (a page overwritten).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

import attrs

from actors.store.connections import connect_writer
from actors.store.store import FileStore


class FaultKind(StrEnum):
    """What SQLite finds."""

    full = "full"
    busy = "busy"
    io = "io"
    corrupt = "corrupt"


class Where(StrEnum):
    """The statements that are counted, and may fail."""

    begin = "begin"
    rows = "rows"
    commit = "commit"
    any = "any"


# The library's words and its result code; the extended one where SQLite gives one.
_RAISED: Final = {
    FaultKind.full: ("database or disk is full", sqlite3.SQLITE_FULL, "SQLITE_FULL"),
    FaultKind.busy: ("database is locked", sqlite3.SQLITE_BUSY, "SQLITE_BUSY"),
    FaultKind.io: ("disk I/O error", sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"),
    FaultKind.corrupt: ("database disk image is malformed", sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"),
}
# What is on the way to the disk is given up whole: SQLite ends the transaction by itself.
_ENDS_THE_TRANSACTION: Final = frozenset({FaultKind.full, FaultKind.io})


@attrs.define
class Faults:
    """When statements fail, and how often they did.

    ``at`` is the first that fails, counted from 1 over those in ``where``; None lets all
    pass. ``times`` is how many fail from then on, None all of them. ``seen`` counts
    what was counted, ``hits`` what failed.
    """

    kind: FaultKind = FaultKind.full
    at: int | None = None
    where: Where = Where.any
    times: int | None = None
    seen: int = attrs.field(default=0, init=False)
    hits: int = attrs.field(default=0, init=False)

    def mend(self) -> None:
        """Take the cause away: nothing fails from now on."""
        self.at = None

    def meets(self, where: Where) -> bool:
        """Count a statement, and tell whether it fails."""
        if self.where not in (Where.any, where):
            return False
        self.seen += 1
        if self.at is None or self.seen < self.at or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True

    def error(self) -> sqlite3.Error:
        """Make the library's error."""
        text, code, name = _RAISED[self.kind]
        family = sqlite3.DatabaseError if self.kind is FaultKind.corrupt else sqlite3.OperationalError
        error = family(text)
        error.sqlite_errorcode, error.sqlite_errorname = code, name
        return error


class WatchedConnection:
    """A connection as the writer uses one, with something before and after each statement."""

    def __init__(self, inner: sqlite3.Connection) -> None:
        self._inner = inner

    def before(self, sql: str) -> None:
        """Come to a statement. What is raised here is raised instead of running it."""

    def after(self, sql: str) -> None:
        """Leave a statement that was run."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._inner.in_transaction

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement."""
        self.before(sql)
        done = self._inner.execute(sql, values)
        self.after(sql)
        return done

    def executemany(self, sql: str, rows: Sequence[Any]) -> sqlite3.Cursor:
        """Run a statement for many rows."""
        self.before(sql)
        done = self._inner.executemany(sql, rows)
        self.after(sql)
        return done

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()


class FaultyConnection(WatchedConnection):
    """A connection with faults."""

    def __init__(self, inner: sqlite3.Connection, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    def before(self, sql: str) -> None:
        """Fail, or not; a statement for many rows fails before the first."""
        where = _where(sql)
        if where is not None and self._faults.meets(where):
            if self._faults.kind in _ENDS_THE_TRANSACTION and self._inner.in_transaction:
                self._inner.execute("ROLLBACK")
            raise self._faults.error()


def _where(sql: str) -> Where | None:
    """Say what a statement is; None for what is no write, or takes one back."""
    word = sql.split(None, 1)[0].upper()
    if word in ("BEGIN", "COMMIT"):
        return Where.begin if word == "BEGIN" else Where.commit
    return Where.rows if word in ("INSERT", "UPDATE", "DELETE", "REPLACE") else None


# ── the same for real ───────────────────────────────────────────────────────

Prepare = Callable[[sqlite3.Connection], sqlite3.Connection | WatchedConnection]


def open_prepared_store(path: str | PathLike[str], prepare: Prepare) -> FileStore:
    """Name a file whose writer uses what ``prepare`` makes of its connection."""

    def connect(file: Path, synchronous: str) -> sqlite3.Connection:
        # A watched one has all that the writer uses.
        return cast(sqlite3.Connection, prepare(connect_writer(file, synchronous)))

    return FileStore(Path(path), "NORMAL", connect)


def open_faulty_store(path: str | PathLike[str], faults: Faults) -> FileStore:
    """Name a file to be opened by ``async with``, as `Store.open` does; writing it meets ``faults``.

    Opening itself does not fail.
    """
    return open_prepared_store(path, lambda connection: FaultyConnection(connection, faults))


def open_small_store(path: str | PathLike[str], more_pages: int) -> FileStore:
    """Name a file that may grow by so many pages and is full then."""

    def prepare(connection: sqlite3.Connection) -> sqlite3.Connection:
        [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages + more_pages}")
        return connection

    return open_prepared_store(path, prepare)


@contextmanager
def held(path: str | PathLike[str]) -> Iterator[None]:
    """Hold the lock for writing as another program may, for the block."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        # Closing gives the lock back.
        connection.close()


def damage(path: str | PathLike[str], table: str) -> None:
    """Overwrite the first page of a table. Nobody may have the file open.

    Raises:
        LookupError: there is no such table.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Everything must be in the file itself, not in the log beside it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(size,)] = connection.execute("PRAGMA page_size").fetchall()
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    finally:
        connection.close()
    if not found:
        raise LookupError(f"{path} has no table {table}")
    with open(path, "r+b") as file:
        file.seek((found[0][0] - 1) * size)
        file.write(b"\xa5" * size)
