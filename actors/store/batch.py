"""Putting a batch of rows into the open transaction: all together, or each by itself.

Between batches may stand an order, which has a transaction of its own.

Both ways are generators that stop every few hundred rows, so that a task can
let others run; whoever does not care runs them through. Who began the
transaction commits it or rolls it back.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import trio

from actors.agents.rows import Row
from actors.errors import ActorsError
from actors.store.leases import tree_of
from actors.store.row_codec import arrange, storable
from actors.store.storage_errors import Fault, concerns_rows, fault_of

# Rows between two stops: about half a millisecond.
CHUNK: Final = 250

Rows = tuple[Row, ...]


class Awaited:
    """Something that somebody waits for. ``fault`` says why it was not done."""

    __slots__ = ("done", "fault")

    def __init__(self, done: trio.Event | None = None) -> None:
        # All that is written in one transaction may share one.
        self.done = trio.Event() if done is None else done
        self.fault: Fault | None = None


class Commit(Awaited):
    """Rows that somebody waits for."""

    __slots__ = ("rows",)

    def __init__(self, rows: Rows, done: trio.Event | None = None) -> None:
        super().__init__(done)
        self.rows = rows


class Order(Awaited):
    """Something to do in a transaction of its own, behind the rows before it and ahead of those after.

    ``act`` does it and gives the ``answer``; ``after`` is told the answer once it
    stands. What ``act`` raises of ours goes to whoever waits, as ``refusal``, and
    nothing was written.
    """

    __slots__ = ("act", "after", "answer", "refusal")

    def __init__(self, act: Callable[[sqlite3.Connection], int], after: Callable[[int], None]) -> None:
        super().__init__()
        self.act = act
        self.after = after
        self.answer = 0
        self.refusal: ActorsError | None = None


# Appended rows are queued as they are: nobody waits for them, and making no object for them keeps them cheap.
Item = Rows | Commit
Queued = Item | Order


def rows_of(item: Item) -> Rows:
    """Give the rows of an item of the queue."""
    return item.rows if isinstance(item, Commit) else item


def trees_of(item: Item) -> set[str]:
    """Name the trees that an item has rows of; nearly always one."""
    return {tree_of(row) for row in rows_of(item)}


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
