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
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import trio

from actors.agents.rows import Row
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.store.batch import Commit, Item, put_each, put_together
from actors.store.connections import DEFAULT_PATH, connect_memory, connect_reader, connect_writer
from actors.store.readers import Reader
from actors.store.storage_errors import Fault, concerns_rows, translated
from actors.store.writer import LINGER_ROWS, Writer, refused

log = logging.getLogger("actors.store")


class Store(Reader):
    """Where everything is written. Make one with `Store.open` or `Store.memory`.

    ``durable`` tells whether it outlives the process; ``file`` names it.
    """

    durable: ClassVar[bool]

    @staticmethod
    def open(path: str | PathLike[str] = DEFAULT_PATH, *, synchronous: str = "NORMAL") -> FileStore:
        """Name a file to be opened by ``async with``; it is made when it is not there.

        ``synchronous`` NORMAL survives a killed process, FULL also a power cut.
        Entering the block raises what `actors.store.connections.connect_writer` raises.
        """
        return FileStore(Path(path), synchronous)

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
            StoreError: nothing of this call was written.
        """


class FileStore(Store):
    """A store in a file. Leaving its block writes what was left and closes it.

    Leaving raises StoreError when something could not be written and nothing
    else was raised.
    """

    durable = True

    def __init__(self, path: Path, synchronous: str) -> None:
        self.file = str(path)
        self._path = path
        self._synchronous = synchronous
        self._writer: Writer | None = None
        self._left = False
        self._connection: sqlite3.Connection
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

    def select(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one query and give all its rows. Sees what is committed, by whichever process."""
        if self._writer is None or self._left:
            raise self._closed()
        if self._reader is None:
            self._reader = FileReader(connect_reader(self._path), self.file)
        return self._reader.select(sql, values)

    async def __aenter__(self) -> FileStore:
        if self._writer is not None:
            raise StoreError(StoreErrorKind.other, self.file, "this store was opened before: make another one")
        self._connection = await trio.to_thread.run_sync(connect_writer, self._path, self._synchronous)
        self._writer = Writer(self._connection, self.file)
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._writer.run, name=f"writer of {self.file}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writer is not None
        fault = await self._writer.close()
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
