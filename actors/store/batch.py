"""Putting a batch of rows into the open transaction: all together, or each by itself.

Both ways are generators that stop every few hundred rows, so that a task can
let others run; whoever does not care runs them through. Who began the
transaction commits it or rolls it back.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import trio

from actors.agents.rows import Row
from actors.store.row_codec import arrange, storable
from actors.store.storage_errors import Fault, concerns_rows, fault_of

# Rows between two stops: about half a millisecond.
CHUNK: Final = 250

Rows = tuple[Row, ...]


class Commit:
    """Rows that somebody waits for. ``fault`` says why they were not written."""

    __slots__ = ("done", "fault", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.done = trio.Event()
        self.fault: Fault | None = None


# Appended rows are queued as they are: nobody waits for them, and making no object for them keeps them cheap.
Item = Rows | Commit


def rows_of(item: Item) -> Rows:
    """Give the rows of an item of the queue."""
    return item.rows if isinstance(item, Commit) else item


def put_together(connection: sqlite3.Connection, items: Sequence[Item]) -> Iterator[None]:
    """Put the rows of all items in, in few statements; the first row that cannot be written ends it."""
    written = 0
    for statement in arrange(rows_of(item) for item in items):
        for start in range(0, len(statement.rows), CHUNK):
            chunk = statement.rows[start : start + CHUNK]
            connection.executemany(statement.sql, chunk)
            written += len(chunk)
            if written >= CHUNK:
                written = 0
                yield


def put_each(
    connection: sqlite3.Connection, items: Sequence[Item], file: str, faults: list[tuple[Item, Fault]]
) -> Iterator[None]:
    """Put each item in by itself; those that cannot be written are left out whole and added to ``faults``."""
    for number, item in enumerate(items, 1):
        try:
            _put_one(connection, rows_of(item))
        except Exception as error:
            if not concerns_rows(error):
                raise
            faults.append((item, fault_of(error, file)))
        if number % CHUNK == 0:
            yield


def _put_one(connection: sqlite3.Connection, rows: Rows) -> None:
    connection.execute("SAVEPOINT item")
    try:
        for row in rows:
            for statement in arrange([(row,)]):
                for values in statement.rows:
                    _put_mended(connection, statement.sql, values)
    except BaseException:
        # Some errors end the whole transaction, and the savepoint with it.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO item")
            connection.execute("RELEASE item")
        raise
    connection.execute("RELEASE item")


def _put_mended(connection: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> None:
    try:
        connection.execute(sql, values)
    except (UnicodeEncodeError, OverflowError):
        connection.execute(sql, storable(values))
