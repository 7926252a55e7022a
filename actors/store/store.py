"""The two stores: a file that outlives the process, and one in memory.

Both keep to `actors.agents.ports.RunStore` and can be read as `readers.py` says.
A file needs its block, because its writer is a task that must end in order:

    async with Store.open("runs.db") as store:
        ...

A store in memory needs none: it has no task and no thread, and writes within
the call. What is appended to it is written with the next commit or before the
next read, so the two behave alike.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import trio

from actors.agents.rows import ApprovalDecided, Row
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.store import owners
from actors.store.batch import Commit, Item, Order, put_each, put_together
from actors.store.connections import DEFAULT_PATH, connect_memory, connect_reader, connect_writer
from actors.store.fence import Fence
from actors.store.leases import DEFAULT_TTL_SECONDS, Owner
from actors.store.readers import Reader
from actors.store.row_codec import WRITES, storable
from actors.store.storage_errors import Fault, concerns_rows, translated
from actors.store.writer import LINGER_ROWS, Writer, refused

log = logging.getLogger("actors.store")

Connect = Callable[[Path, str], sqlite3.Connection]


class Store(Reader):
    """Where everything is written. Make one with `Store.open` or `Store.memory`.

    ``durable`` tells whether it outlives the process; ``file`` names it.
    """

    durable: ClassVar[bool]
    # The trees that this process drives through this store.
    driven: set[str]

    @staticmethod
    def open(
        path: str | PathLike[str] = DEFAULT_PATH, *, synchronous: str = "NORMAL", connect: Connect = connect_writer
    ) -> FileStore:
        """Name a file to be opened by ``async with``; it is made when it is not there.

        ``synchronous`` NORMAL survives a killed process, FULL also a power cut.
        ``connect`` opens what is written through, in a thread, from the two.
        Entering the block raises what `actors.store.connections.connect_writer` raises.
        """
        return FileStore(Path(path), synchronous, connect)

    @staticmethod
    def memory() -> MemoryStore:
        """Make a store in memory, ready at once."""
        return MemoryStore()

    @abstractmethod
    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit, waiting only while the queue is full.

        Never raises for a store that has failed: the rows are lost, which the log
        tells, and the next commit raises.

        Checkpoint: only when full.
        Cancellation: either all rows were left or none.
        """

    @abstractmethod
    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit, in the running step, also when the queue is full."""

    @abstractmethod
    async def commit(self, *rows: Row) -> None:
        """Write rows in one transaction, after all rows left before, and wait until it stands.

        Without rows it waits for what was left before.

        Checkpoint: always.
        Cancellation: the rows are written or not, all or none.

        Raises:
            StoreError: nothing of this call was written. Of kind fenced when the
                lease of a tree that the rows are about was lost.
        """

    @abstractmethod
    async def decide(self, decision: ApprovalDecided) -> bool:
        """Decide a question, from whichever process; tell whether this is the decision that counts.

        False: it was decided before, or was never asked; `approval` tells which. Nothing was changed then.

        Checkpoint: always.
        Cancellation: it is decided or not, and may still be decided later.

        Raises:
            StoreError: it could not be written.
        """

    # ── leases ──────────────────────────────────────────────────────────────

    @abstractmethod
    async def take(self, tree_id: str, *, ttl_seconds: float = DEFAULT_TTL_SECONDS) -> int:
        """Take the lease of a tree, so that no other process drives it, and give its generation.

        From now on each transaction looks whether it is still held. Renew it well
        within ``ttl_seconds``. It is taken when it is free, ours, not renewed in
        time, or its owner is known to be dead. Who holds it keeps its generation
        when it takes it again: two drivers within one store are not told apart.

        Checkpoint: always.
        Cancellation: it was taken, or not, or will be; `release` it in any case.

        Raises:
            RunConflict: somebody else holds it. Nothing was written.
            StoreError: it could not be taken. Of kind fenced when it was lost
                before, and not released since.
        """

    @abstractmethod
    async def renew(self, tree_id: str) -> None:
        """Say that the tree is still driven from here.

        Checkpoint: always.
        Cancellation: renewed or not.

        Raises:
            StoreError: of kind fenced: the lease is not held any more, and rows of
                the tree are not written. Of kind busy: try again.
        """

    @abstractmethod
    async def release(self, tree_id: str) -> None:
        """Give the lease of a tree back, after all rows left before were written.

        A lease that is lost, or was never held, is not touched, and that is no
        error. Leaving the block of a store releases what it holds.

        Checkpoint: always.
        Cancellation: released, or not, or will be.

        Raises:
            StoreError: it could not be written; the lease lapses by itself.
        """

    @abstractmethod
    def lease_lost(self, tree_id: str) -> bool:
        """Whether the lease of a tree was taken from this store, as far as it has noticed by writing."""


class FileStore(Store):
    """A store in a file. Leaving its block writes what was left and closes it.

    Leaving raises StoreError when something could not be written and nothing
    else was raised.
    """

    durable = True

    def __init__(self, path: Path, synchronous: str, connect: Connect = connect_writer) -> None:
        self.file = str(path)
        self.driven = set()
        self._path = path
        self._synchronous = synchronous
        self._connect = connect
        self._writer: Writer | None = None
        self._left = False
        self._connection: sqlite3.Connection
        self._owner: Owner
        self._reader: FileReader | None = None
        self._manager: AbstractAsyncContextManager[trio.Nursery]
        self._nursery: trio.Nursery

    @property
    def writer(self) -> Writer:
        """Give the writer, with its counts.

        Raises:
            StoreError: the block was not entered.
        """
        if self._writer is None:
            raise self._closed()
        return self._writer

    def _closed(self) -> StoreError:
        return StoreError(StoreErrorKind.other, self.file, "the store is not open: use it within `async with`")

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit; see `Store.append`.

        Cancellation: either all rows were left or none.
        """
        writer = self.writer
        if writer.full:
            await writer.wait_room()
        writer.append(rows)

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit; see `Store.append_nowait`."""
        self.writer.append(rows)

    async def commit(self, *rows: Row) -> None:
        """Write rows and wait until they stand; see `Store.commit`.

        Cancellation: the rows are written or not, all or none.
        """
        await self.writer.commit(rows)

    async def decide(self, decision: ApprovalDecided) -> bool:
        """Decide a question, from whichever process; see `Store.decide`.

        Cancellation: it is decided or not, and may still be decided later.
        """
        return bool(await self.writer.obey(Order(lambda connection: _decide(connection, decision), lambda _: None)))

    def select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and give all its rows. Sees what is committed, by whichever process."""
        if self._writer is None or self._left:
            raise self._closed()
        if self._reader is None:
            self._reader = FileReader(connect_reader(self._path), self.file)
        return self._reader.select(sql, values)

    async def take(self, tree_id: str, *, ttl_seconds: float = DEFAULT_TTL_SECONDS) -> int:
        """Take the lease of a tree; see `Store.take`.

        Cancellation: it was taken, or not, or will be; `release` it in any case.
        """
        writer = self.writer
        return await writer.obey(writer.fence.taking(tree_id, ttl_seconds))

    async def renew(self, tree_id: str) -> None:
        """Say that the tree is still driven from here; see `Store.renew`.

        Cancellation: renewed or not.
        """
        await self.writer.obey(self.writer.fence.renewing(tree_id))

    async def release(self, tree_id: str) -> None:
        """Give the lease of a tree back; see `Store.release`.

        Cancellation: released, or not, or will be.
        """
        await self.writer.obey(self.writer.fence.releasing(tree_id))

    def lease_lost(self, tree_id: str) -> bool:
        """Whether the lease of a tree was taken from this store; see `Store.lease_lost`."""
        return self.writer.fence.lost(tree_id)

    def _open(self) -> tuple[sqlite3.Connection, Owner]:
        """Open the file and say who has it open; both may wait for another program."""
        connection = self._connect(self._path, self._synchronous)
        # From now on the writer waits for a lock, in its task, where a wait blocks nobody.
        connection.execute("PRAGMA busy_timeout = 0")
        return connection, owners.enter()

    async def __aenter__(self) -> FileStore:
        if self._writer is not None:
            raise StoreError(StoreErrorKind.other, self.file, "this store was opened before: make another one")
        self._connection, self._owner = await trio.to_thread.run_sync(self._open)
        self._writer = Writer(self._connection, self.file, Fence(self._owner, self.file))
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._writer.run, name=f"writer of {self.file}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writer = self._writer
        assert writer is not None
        if writer.fault is None and (held := writer.fence.held):
            # Nobody waits for it: when it cannot be written, the closed store counts as dead all the same.
            writer.leave(writer.fence.releasing(*held))
        fault = await writer.close()
        owners.leave(self._owner)
        self._left = True
        with trio.CancelScope(shield=True):
            # The writer's task has done its work; it leaves within a turn, and then the nursery has no one to cancel.
            while self._nursery.child_tasks:
                await trio.lowlevel.checkpoint()
            if self._reader is not None:
                self._reader.close()
            with contextlib.suppress(sqlite3.Error):
                await trio.to_thread.run_sync(self._connection.close)
        # The error of the block goes on by itself: through the nursery it would come out in a group.
        await self._manager.__aexit__(None, None, None)
        if fault is not None and error is None:
            raise fault.error()


class MemoryStore(Store):
    """A store in memory. Usable at once, also as a block, and still after it."""

    durable = False
    file = ":memory:"

    def __init__(self) -> None:
        self.driven = set()
        self._connection = connect_memory()
        self._left: list[Item] = []
        self._rows = 0
        self.lost = 0

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit or read; never waits.

        Cancellation: the rows were left.
        """
        self.append_nowait(*rows)

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit or read."""
        self._left.append(rows)
        self._rows += len(rows)
        if self._rows >= LINGER_ROWS:
            self._flush()

    async def commit(self, *rows: Row) -> None:
        """Write rows; see `Store.commit`.

        Cancellation: the rows were not written.
        """
        await trio.lowlevel.checkpoint()
        item = Commit(rows)
        self._left.append(item)
        self._flush()
        if item.fault is not None:
            raise item.fault.error()

    async def decide(self, decision: ApprovalDecided) -> bool:
        """Decide a question; see `Store.decide`.

        Cancellation: nothing was decided.
        """
        await trio.lowlevel.checkpoint()
        self._flush()
        with translated(self.file):
            return bool(_decide(self._connection, decision))

    async def take(self, tree_id: str, *, ttl_seconds: float = DEFAULT_TTL_SECONDS) -> int:
        """Give generation 0: nobody else can reach this store.

        Cancellation: nothing was changed.
        """
        await trio.lowlevel.checkpoint()
        return 0

    async def renew(self, tree_id: str) -> None:
        """Do nothing: there is no lease.

        Cancellation: nothing was changed.
        """
        await trio.lowlevel.checkpoint()

    async def release(self, tree_id: str) -> None:
        """Do nothing: there is no lease.

        Cancellation: nothing was changed.
        """
        await trio.lowlevel.checkpoint()

    def lease_lost(self, tree_id: str) -> bool:
        """Tell that no lease was ever lost."""
        return False

    def select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and give all its rows. Sees all that was left."""
        self._flush()
        with translated(self.file):
            return self._connection.execute(sql, values).fetchall()

    def _flush(self) -> None:
        items, self._left, self._rows = self._left, [], 0
        if not items:
            return
        with translated(self.file):
            for item, fault in _write(self._connection, items):
                if isinstance(item, Commit):
                    item.fault = fault
                else:
                    self.lost += len(item)
                    log.error("%s", refused(item, fault))

    async def __aenter__(self) -> MemoryStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush()


def _decide(connection: sqlite3.Connection, decision: ApprovalDecided) -> int:
    """Write a decision unless one stands; give how many rows it changed."""
    (write,) = WRITES[ApprovalDecided]
    return connection.execute(write.sql, storable(write.values(decision))).rowcount


def _write(connection: sqlite3.Connection, items: list[Item]) -> list[tuple[Item, Fault]]:
    """Write all items in one transaction, and give those that could not be written."""
    faults: list[tuple[Item, Fault]] = []
    try:
        connection.execute("BEGIN")
        for _ in put_together(connection, items):
            pass
    except Exception as error:
        connection.execute("ROLLBACK")
        if not concerns_rows(error):
            raise
        connection.execute("BEGIN")
        for _ in put_each(connection, items, MemoryStore.file, faults):
            pass
    connection.execute("COMMIT")
    return faults


class FileReader(Reader):
    """A store's file, opened for reading. Make it with `open_reader`."""

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        self.file = file
        self._connection = connection

    def select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and give all its rows. Sees what is committed, by whichever process."""
        with translated(self.file):
            return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close the connection. Closing again does nothing."""
        self._connection.close()


@contextmanager
def open_reader(path: str | PathLike[str]) -> Iterator[FileReader]:
    """Open a store's file for reading. Works beside live runs, and never makes a file.

    Raises:
        ConfigError: there is no such file.
        StoreError: it cannot be read, or is no store.
    """
    file = Path(path)
    if not file.exists():
        raise ConfigError(("store", f"{file} does not exist: run something first, or name the file with --store"))
    reader = FileReader(connect_reader(file), str(file))
    try:
        yield reader
    finally:
        reader.close()
