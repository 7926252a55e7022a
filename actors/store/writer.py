"""One writer for each file: what many tasks commit together is one transaction.

Whoever appends leaves rows in a queue and goes on. Whoever commits leaves rows
and waits until they stand. The writer takes all there is, writes it in one
transaction, and wakes everybody whose rows are in it.

Only the two calls that wait for the disk or for another process (BEGIN and
COMMIT) run in a thread. The rows themselves are put in by the writer's task, a
few hundred between two checkpoints. In a thread each row would have to win the
interpreter's lock back several times from a busy event loop, 5 ms each:
measured, 2,000 rows took 38 s that way, and take 4 ms this way.

A store that cannot write has failed for good, unless it was only busy: what
comes later is not written, so that a file always holds the beginning of what
happened and never a later part without it. Whoever commits is told so.
"""

import contextlib
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from actors.errors import StoreErrorKind
from actors.store.batch import Commit, Item, Rows, put_each, put_together, rows_of
from actors.store.storage_errors import Fault, concerns_rows, fault_of, kind_of

log = logging.getLogger("actors.store")

BOUND: Final = 10_000
# Appended rows wait this long for a commit to ride on, unless there are many.
LINGER_SECONDS: Final = 0.02
LINGER_ROWS: Final = 1_000
BUSY_TRIES: Final = 3
CLOSE_SECONDS: Final = 5.0


class Writer:
    """The queue of one file and the task that empties it.

    ``transactions`` counts what was committed, ``lost`` the appended rows that
    were never written. ``fault`` is why no more rows are taken, None while they are.
    """

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        self.transactions = 0
        self.lost = 0
        self.fault: Fault | None = None
        self._connection = connection
        self._file = file
        self._items: deque[Item] = deque()
        self._rows = 0
        self._room = trio.lowlevel.ParkingLot()
        self._arrived = trio.Event()
        self._urgent = trio.Event()
        self._closing = False
        self._ended = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        # Its own thread: a store must not wait for threads that others have borrowed.
        self._thread = trio.CapacityLimiter(1)

    # ── leaving rows ────────────────────────────────────────────────────────

    @property
    def full(self) -> bool:
        """Whether an append has to wait."""
        return self._rows >= BOUND and self.fault is None

    async def wait_room(self) -> None:
        """Wait until rows may be appended.

        Checkpoint: only when full.
        Cancellation: nothing was left.
        """
        while self.full:
            await self._room.park()

    def append(self, rows: Rows) -> None:
        """Leave rows, whether or not there is room. Once it has failed or is closed they are dropped and counted."""
        if self.fault is not None:
            self._lose(rows)
            return
        self._items.append(rows)
        self._rows += len(rows)
        self._arrived.set()
        if self._rows >= LINGER_ROWS:
            self._urgent.set()

    async def commit(self, rows: Rows) -> None:
        """Leave rows and wait until they and all before them are written.

        Not held up by a full queue: each task waits here for its own rows, so
        there are never more of them than tasks.

        Checkpoint: always.
        Cancellation: the rows are written or not, all or none.

        Raises:
            StoreError: none of them was written.
        """
        if self.fault is not None:
            await trio.lowlevel.checkpoint()
            raise self.fault.error()
        item = Commit(rows)
        self._items.append(item)
        self._rows += len(rows)
        self._arrived.set()
        self._urgent.set()
        await item.done.wait()
        if item.fault is not None:
            raise item.fault.error()

    # ── the task ────────────────────────────────────────────────────────────

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Write until it is closed.

        Cancellation: shielded; `close` ends it.
        """
        try:
            with self._scope:
                while await self._work():
                    await self._write(self._take())
        except Exception as error:
            # A bug of ours: nobody may be left waiting for it.
            log.exception("%s: the writer crashed", self._file)
            self._fail(fault_of(error, self._file))
        finally:
            if self._items:
                self._fail(Fault(StoreErrorKind.other, self._file, "was closed before everything was written"))
            self._ended.set()

    async def _work(self) -> bool:
        """Wait until there is something to write; False when there will be nothing any more."""
        while not self._items:
            if self._closing or self.fault is not None:
                return False
            self._arrived = trio.Event()
            await self._arrived.wait()
        if not self._urgent.is_set():
            with trio.move_on_after(LINGER_SECONDS):
                await self._urgent.wait()
        return True

    def _take(self) -> list[Item]:
        items = list(self._items)
        self._items.clear()
        self._rows = 0
        if not self._closing:
            self._urgent = trio.Event()
        self._room.unpark_all()
        return items

    def _put_back(self, items: list[Item]) -> None:
        self._items.extendleft(reversed(items))
        self._rows += sum(len(rows_of(item)) for item in items)

    async def _write(self, items: list[Item]) -> None:
        try:
            try:
                await self._together(items)
            except Exception as error:
                if not concerns_rows(error):
                    raise
                await self._one_by_one(items)
        except sqlite3.Error as error:
            self._not_written(items, fault_of(error, self._file))
            return
        except BaseException:
            self._put_back(items)
            raise
        self.transactions += 1
        for item in items:
            if isinstance(item, Commit):
                item.done.set()

    async def _together(self, items: list[Item]) -> None:
        async with self._transaction():
            for _ in put_together(self._connection, items):
                await trio.lowlevel.checkpoint()

    async def _one_by_one(self, items: list[Item]) -> None:
        """Write each item by itself, in one transaction: some cannot be written, and the others must be."""
        faults: list[tuple[Item, Fault]] = []
        async with self._transaction():
            for _ in put_each(self._connection, items, self._file, faults):
                await trio.lowlevel.checkpoint()
        for item, fault in faults:
            if isinstance(item, Commit):
                item.fault = fault
            else:
                self.lost += len(item)
                log.error("%s", refused(item, fault))

    # ── transactions ────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        await self._begin()
        try:
            yield
            await self._in_thread(lambda: self._connection.execute("COMMIT"))
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise

    async def _begin(self) -> None:
        for left in reversed(range(BUSY_TRIES)):
            try:
                # Immediate: a transaction that reads first and writes later can be refused without any waiting.
                await self._in_thread(lambda: self._connection.execute("BEGIN IMMEDIATE"))
                return
            except sqlite3.OperationalError as error:
                if kind_of(error) is not StoreErrorKind.busy or not left or self._closing:
                    raise
                log.warning("%s is held by another process; still waiting", self._file)

    async def _in_thread(self, action: Callable[[], Any]) -> None:
        await trio.to_thread.run_sync(action, limiter=self._thread)

    # ── failing ─────────────────────────────────────────────────────────────

    def _not_written(self, items: list[Item], fault: Fault) -> None:
        for item in items:
            if isinstance(item, Commit):
                item.fault = fault
                item.done.set()
        # What was appended is still to be written, in its order; who waited for a commit may try again.
        self._put_back([item for item in items if not isinstance(item, Commit)])
        if fault.kind is not StoreErrorKind.busy or self._closing or self._rows >= BOUND:
            self._fail(fault)

    def _fail(self, fault: Fault) -> None:
        """Take no more rows: a later one may not stand where an earlier one is missing."""
        if self.fault is None:
            self.fault = fault
            log.error("%s: nothing more is written: %s", self._file, fault.message)
        for item in self._items:
            if isinstance(item, Commit):
                item.fault = fault
                item.done.set()
            else:
                self.lost += len(item)
        self._items.clear()
        self._rows = 0
        self._room.unpark_all()

    def _lose(self, rows: Rows) -> None:
        if not self.lost:
            log.error("%s: rows come after it has failed or was closed; they are lost", self._file)
        self.lost += len(rows)

    # ── closing ─────────────────────────────────────────────────────────────

    async def close(self) -> Fault | None:
        """Write what was left, end the task, and give the fault that kept rows from the file.

        Cancellation: shielded; takes `CLOSE_SECONDS` at most, and once more the
        busy timeout when another process holds the file all the while.
        """
        self._closing = True
        self._arrived.set()
        self._urgent.set()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(CLOSE_SECONDS) as waited:
                await self._ended.wait()
            if waited.cancelled_caught:
                self._scope.cancel()
                await self._ended.wait()
        fault = self.fault
        if fault is None:
            self.fault = Fault(StoreErrorKind.other, self._file, "the store is closed")
        return fault


def refused(rows: Rows, fault: Fault) -> str:
    """Say which appended rows could not be written, and why; never what is in them."""
    names = ", ".join(type(row).__name__ for row in rows)
    return f"{fault.file}: appended rows cannot be written ({names}): {fault.message}"
