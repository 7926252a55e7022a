"""The one writer of a file: a task that commits whatever is queued, in one transaction.

While one batch is being written in a worker thread the next one gathers, so a
thousand agents that commit at once cost a few transactions. Everybody's rows
of one call land together or not at all; a call that breaks a constraint fails
alone.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import outcome
import trio

from actors.agents.rows import Row
from actors.errors import StoreError, StoreErrorKind
from actors.store.row_codec import statements
from actors.store.storage_errors import told

# Rows that may wait for the writer before an append waits for it.
QUEUE_ROWS: Final = 10_000
CLOSE_SECONDS: Final = 5.0


class _Item:
    """The rows of one call, and the task that waits for them, if one does."""

    __slots__ = ("rows", "task")

    def __init__(self, rows: Sequence[Row], task: trio.lowlevel.Task | None) -> None:
        self.rows = rows
        self.task = task


def write(connection: sqlite3.Connection, batch: Sequence[Row]) -> None:
    """Write rows in the transaction that is open."""
    for sql, values in statements(batch):
        if len(values) == 1:
            connection.execute(sql, values[0])
        else:
            connection.executemany(sql, values)


def commit_now(connection: sqlite3.Connection, file: str, rows: Sequence[Row]) -> None:
    """Write rows in one transaction, in the running step.

    Raises:
        StoreError: nothing was written.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
        write(connection, rows)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(connection)
        raise told(error, file) from error


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            # A broken file rolls back by itself when it is next opened; the first error is the one to tell.
            return


class Writer:
    """The queue and its task. ``run`` must be running for anything to be written."""

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        self._connection = connection
        self._file = file
        self._queue: deque[_Item] = deque()
        self._rows = 0
        self._parked: trio.lowlevel.Task | None = None
        self._waiting: deque[trio.lowlevel.Task] = deque()
        self._closing = False
        self._open: list[Row] | None = None
        self.transactions = 0
        self.written = 0
        # Set when rows that nobody waited for could not be written: from then on the record has a hole.
        self.broken: StoreError | None = None

    # ── leaving rows ────────────────────────────────────────────────────────

    def put_nowait(self, rows: Sequence[Row]) -> None:
        """Leave rows for the next commit.

        Raises:
            StoreError: rows were lost before, or the store is closed.
        """
        self._check()
        # Neighbouring rows that nobody waits for share one item: it costs one append.
        if self._open is None:
            self._open = []
            self._queue.append(_Item(self._open, None))
        self._open.extend(rows)
        self._rows += len(rows)
        self._wake()

    async def put(self, rows: Sequence[Row]) -> None:
        """Leave rows for the next commit, waiting only while the queue is full.

        Cancellation: no row was left.
        """
        while self._rows >= QUEUE_ROWS and not self._closing:
            await self._wait_for_room()
        self.put_nowait(rows)

    async def commit(self, rows: Sequence[Row]) -> None:
        """Leave rows and wait until they stand.

        Cancellation: the rows are written all the same, or none of them.

        Raises:
            StoreError: nothing of this call was written.
        """
        self._check()
        item = _Item(rows, trio.lowlevel.current_task())
        self._open = None
        self._queue.append(item)
        self._rows += len(rows)
        self._wake()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            item.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _check(self) -> None:
        if self.broken is not None:
            raise StoreError(self.broken.kind, self._file, "rows could not be written before this") from self.broken
        if self._closing:
            raise StoreError(StoreErrorKind.other, self._file, "the store is closed")

    async def _wait_for_room(self) -> None:
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        if self._parked is not None:
            parked, self._parked = self._parked, None
            trio.lowlevel.reschedule(parked)

    # ── writing ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Write what is queued until told to close, and then the rest.

        Cancellation: what was queued and not written is lost, and its waiters get an error.
        """
        try:
            while self._queue or not self._closing:
                if not self._queue:
                    await self._park()
                    continue
                batch, self._queue, self._open = list(self._queue), deque(), None
                self._rows = 0
                while self._waiting:
                    trio.lowlevel.reschedule(self._waiting.popleft())
                self._tell(batch, await trio.to_thread.run_sync(self._write_batch, batch))
        finally:
            self._closing = True
            lost = StoreError(StoreErrorKind.other, self._file, "the store was closed before this was written")
            self._tell(list(self._queue), [lost] * len(self._queue))
            self._queue.clear()
            while self._waiting:
                trio.lowlevel.reschedule(self._waiting.popleft())

    async def _park(self) -> None:
        self._parked = trio.lowlevel.current_task()

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _tell(self, batch: list[_Item], errors: list[StoreError | None]) -> None:
        for item, error in zip(batch, errors, strict=True):
            task, item.task = item.task, None
            if error is not None and task is None and self.broken is None:
                self.broken = error
            if task is not None:
                trio.lowlevel.reschedule(task, outcome.Value(None) if error is None else outcome.Error(error))

    def _write_batch(self, batch: list[_Item]) -> list[StoreError | None]:
        """Write a batch in one transaction; one by one only if that fails. Runs in a worker thread."""
        try:
            commit_now(self._connection, self._file, [row for item in batch for row in item.rows])
        except StoreError as error:
            if error.kind is not StoreErrorKind.constraint:
                return [error] * len(batch)
            return [self._write_one(item) for item in batch]
        self.transactions += 1
        self.written += sum(len(item.rows) for item in batch)
        return [None] * len(batch)

    def _write_one(self, item: _Item) -> StoreError | None:
        try:
            commit_now(self._connection, self._file, item.rows)
        except StoreError as error:
            return error
        self.transactions += 1
        self.written += len(item.rows)
        return None

    def close(self) -> None:
        """Take no more rows; `run` writes what is queued and returns."""
        self._closing = True
        self._wake()
