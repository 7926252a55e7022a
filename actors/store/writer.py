"""One writer for each file: what many tasks commit together is one transaction.

Whoever appends leaves rows in a queue and goes on. Whoever commits leaves rows
and waits until they stand. The writer takes all there is, writes it in one
transaction, and wakes everybody whose rows are in it.

Only COMMIT, which waits for the disk, runs in a thread. A lock of another
process is waited for at BEGIN, by sleeping in the writer's task; whoever has it
needs nobody else's for the COMMIT (`Writer._begin`). The rows themselves are put
in by the writer's task too, a few hundred between two checkpoints. In a thread each row would have to win the
interpreter's lock back several times from a busy event loop, 5 ms each:
measured, 2,000 rows took 38 s that way, and take 4 ms this way.

First in each transaction the fence is looked at: rows of a tree that another
process has taken over are left out. Taking, renewing and releasing a lease are
orders; they wait in the same queue, so that it is certain which rows are
written under a lease and which are not.

A store that cannot write has failed for good, unless it was only busy: what
comes later is not written, so that a file always holds the beginning of what
happened and never a later part without it. Whoever commits is told so.
"""

import contextlib
import logging
import math
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from actors.errors import ActorsError, StoreErrorKind
from actors.store.batch import Awaited, Commit, Item, Order, Queued, Rows, put_each, put_together, rows_of
from actors.store.fence import Fence
from actors.store.storage_errors import Fault, concerns_rows, fault_of, kind_of

log = logging.getLogger("actors.store")

BOUND: Final = 10_000
# Appended rows wait this long for a commit to ride on, unless there are many.
LINGER_SECONDS: Final = 0.02
LINGER_ROWS: Final = 1_000
BUSY_SECONDS: Final = 15.0
FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.1
CLOSE_SECONDS: Final = 5.0


class Writer:
    """The queue of one file and the task that empties it.

    ``transactions`` counts what was committed, ``lost`` the appended rows that
    were never written. ``fault`` is why no more rows are taken, None while they are.
    ``fence`` holds the leases.
    """

    def __init__(self, connection: sqlite3.Connection, file: str, fence: Fence) -> None:
        self.fence = fence
        self.transactions = 0
        self.lost = 0
        self.fault: Fault | None = None
        self._connection = connection
        self._file = file
        self._items: deque[Queued] = deque()
        self._rows = 0
        self._orders = 0
        # Shared by the commits that will be taken together: those behind the last order.
        self._done = trio.Event()
        self._room = trio.lowlevel.ParkingLot()
        self._arrived = trio.Event()
        self._urgent = trio.Event()
        self._closing = False
        # When a lock is waited for no longer, whoever waits.
        self._latest = math.inf
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
        item = Commit(rows, self._done)
        self._items.append(item)
        self._rows += len(rows)
        self._arrived.set()
        self._urgent.set()
        await item.done.wait()
        if item.fault is not None:
            raise item.fault.error()

    async def obey(self, order: Order) -> int:
        """Leave an order behind all rows before, wait until it stands, and give its answer.

        Checkpoint: always.
        Cancellation: it is carried out or not, and may still be carried out later.

        Raises:
            ActorsError: what the order raised; it changed nothing.
            StoreError: it could not be carried out.
        """
        if self.fault is not None:
            await trio.lowlevel.checkpoint()
            raise self.fault.error()
        self.leave(order)
        await order.done.wait()
        if order.refusal is not None:
            raise order.refusal
        if order.fault is not None:
            raise order.fault.error()
        return order.answer

    def leave(self, order: Order) -> None:
        """Leave an order behind all rows before, without waiting for it. The writer has not failed."""
        self._items.append(order)
        self._orders += 1
        self._done = trio.Event()
        self._arrived.set()
        self._urgent.set()

    # ── the task ────────────────────────────────────────────────────────────

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Write until it is closed.

        Cancellation: shielded; `close` ends it.
        """
        try:
            with self._scope:
                while await self._work():
                    if isinstance(self._items[0], Order):
                        await self._carry_out(self._take_order())
                    else:
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
        """Take all items there are, up to the first order."""
        # The orders are left out by the condition, which a type cannot see.
        items: list[Any] = []
        if self._orders:
            while not isinstance(self._items[0], Order):
                items.append(self._items.popleft())
            self._rows -= sum(len(rows_of(item)) for item in items)
        else:
            items.extend(self._items)
            self._items.clear()
            self._rows = 0
            self._done = trio.Event()
        self._calm()
        self._room.unpark_all()
        return items

    def _take_order(self) -> Order:
        order = self._items.popleft()
        assert isinstance(order, Order)
        self._orders -= 1
        self._calm()
        return order

    def _calm(self) -> None:
        # Not while something waits behind what was taken: it may be a commit.
        if not self._items and not self._closing:
            self._urgent = trio.Event()

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
            fenced = self.fence.look(self._connection, items)
            for _ in put_together(self._connection, without(items, fenced)):
                await trio.lowlevel.checkpoint()
        self._leave_out(fenced)

    async def _one_by_one(self, items: list[Item]) -> None:
        """Write each item by itself, in one transaction: some cannot be written, and the others must be."""
        faults: list[tuple[Item, Fault]] = []
        async with self._transaction():
            fenced = self.fence.look(self._connection, items)
            for _ in put_each(self._connection, without(items, fenced), self._file, faults):
                await trio.lowlevel.checkpoint()
        self._leave_out(fenced)
        self._leave_out(faults)
        for item, fault in faults:
            if not isinstance(item, Commit):
                log.error("%s", refused(item, fault))

    def _leave_out(self, faults: list[tuple[Item, Fault]]) -> None:
        """Tell whoever waits for items that were not written; count those for which nobody waits."""
        for item, fault in faults:
            if isinstance(item, Commit):
                item.fault = fault
            else:
                self.lost += len(item)

    async def _carry_out(self, order: Order) -> None:
        try:
            async with self._transaction():
                answer = self._act(order)
            if order.fault is None:
                order.answer = answer
                order.after(answer)
        except ActorsError as error:
            order.refusal = error
        except sqlite3.Error as error:
            self._not_done(order, fault_of(error, self._file))
        except BaseException:
            self._items.appendleft(order)
            self._orders += 1
            raise
        order.done.set()

    def _act(self, order: Order) -> int:
        """Do what an order says. When its own values are at fault it fails alone: what it did not finish is undone."""
        self._connection.execute("SAVEPOINT act")
        try:
            answer = order.act(self._connection)
        except Exception as error:
            if isinstance(error, ActorsError) or not concerns_rows(error):
                raise
            order.fault = fault_of(error, self._file)
            self._connection.execute("ROLLBACK TO act")
            answer = 0
        self._connection.execute("RELEASE act")
        return answer

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
        # Here and not in SQLite: its own waiting would need a thread for each transaction, and could not be cancelled.
        # There is nothing else to wait for: with a log, the writing lock is all that a transaction needs, and the
        # checkpoint behind a COMMIT that finds a reader in its way leaves the rest to a later one.
        patience = trio.current_time() + BUSY_SECONDS
        pause, told = FIRST_PAUSE, False
        while True:
            try:
                # Immediate: a transaction that reads first and writes later can be refused without any waiting.
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if kind_of(error) is not StoreErrorKind.busy or trio.current_time() >= min(patience, self._latest):
                    raise
                if not told and pause >= LONGEST_PAUSE:
                    told = True
                    log.warning("%s is held by another process; still waiting", self._file)
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _in_thread(self, action: Callable[[], Any]) -> None:
        await trio.to_thread.run_sync(action, limiter=self._thread)

    # ── failing ─────────────────────────────────────────────────────────────

    def _not_done(self, order: Order, fault: Fault) -> None:
        order.fault = fault
        # No row is missing from the file, so who waits may try again.
        if fault.kind is not StoreErrorKind.busy:
            self._fail(fault)

    def _not_written(self, items: list[Item], fault: Fault) -> None:
        for item in items:
            if isinstance(item, Commit):
                item.fault = fault
                item.done.set()
        # What was appended is still to be written, in its order; who waited for a commit may try again.
        self._put_back([item for item in items if not isinstance(item, Commit)])
        self._refuse_orders(fault)
        if fault.kind is not StoreErrorKind.busy or self._closing or self._rows >= BOUND:
            self._fail(fault)

    def _refuse_orders(self, fault: Fault) -> None:
        """Let nobody wait behind rows that are tried again while the file is held: who ordered may try again."""
        if not self._orders:
            return
        for item in self._items:
            if isinstance(item, Order):
                item.fault = fault
                item.done.set()
        self._items = deque(item for item in self._items if not isinstance(item, Order))
        self._orders = 0

    def _fail(self, fault: Fault) -> None:
        """Take no more rows: a later one may not stand where an earlier one is missing."""
        if self.fault is None:
            self.fault = fault
            log.error("%s: nothing more is written: %s", self._file, fault.message)
        for item in self._items:
            if isinstance(item, Awaited):
                item.fault = fault
                item.done.set()
            else:
                self.lost += len(item)
        self._items.clear()
        self._rows = 0
        self._orders = 0
        self._room.unpark_all()

    def _lose(self, rows: Rows) -> None:
        if not self.lost:
            log.error("%s: rows come after it has failed or was closed; they are lost", self._file)
        self.lost += len(rows)

    # ── closing ─────────────────────────────────────────────────────────────

    async def close(self) -> Fault | None:
        """Write what was left, end the task, and give the fault that kept rows from the file.

        Cancellation: shielded; takes `CLOSE_SECONDS` for all that waits for another
        process, and as long again for all that is to be written.
        """
        self._closing = True
        self._latest = trio.current_time() + CLOSE_SECONDS
        self._arrived.set()
        self._urgent.set()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(2 * CLOSE_SECONDS) as waited:
                await self._ended.wait()
            if waited.cancelled_caught:
                self._scope.cancel()
                await self._ended.wait()
        fault = self.fault
        if fault is None:
            self.fault = Fault(StoreErrorKind.other, self._file, "the store is closed")
        return fault


def without(items: list[Item], left_out: list[tuple[Item, Fault]]) -> list[Item]:
    """Give ``items`` in order, but for those that are left out."""
    if not left_out:
        return items
    # By identity: two equal appends are two items.
    ids = {id(item) for item, _ in left_out}
    return [item for item in items if id(item) not in ids]


def refused(rows: Rows, fault: Fault) -> str:
    """Say which appended rows could not be written, and why; never what is in them."""
    names = ", ".join(type(row).__name__ for row in rows)
    return f"{fault.file}: appended rows cannot be written ({names}): {fault.message}"
