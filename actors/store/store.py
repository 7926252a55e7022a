"""The store that a tree is given: a writer and a reader of one file, or a database in memory.

    async with Store.open("runs.db") as store:
        ...
    store = Store.memory()      # commits inline, without a thread or a context
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from actors.agents.rows import Row
from actors.errors import ConfigError
from actors.store.readers import Reader
from actors.store.schema import MEMORY, connect, connect_reader
from actors.store.writer import CLOSE_SECONDS, Writer, commit_now


class Store(Reader):
    """Where everything about a tree is written, and read back. Make it with `open` or `memory`.

    Reads are sync: they take the file as it is committed, from any process, also
    while a run is live. ``durable`` tells whether a killed process leaves its runs.
    """

    def __init__(self, connection: sqlite3.Connection, reader: sqlite3.Connection, file: str) -> None:
        super().__init__(reader, file)
        self._write_connection = connection
        self._writer: Writer | None = None

    @property
    def durable(self) -> bool:
        """Whether the rows survive the process."""
        return self.file != MEMORY

    @classmethod
    def memory(cls) -> Store:
        """Make a store in memory, ready at once. It goes with the object."""
        connection = connect(MEMORY).conn
        return cls(connection, connection, MEMORY)

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path, *, synchronous: str = "NORMAL") -> AsyncIterator[Store]:
        """Open a file for as long as the block; missing folders are made.

        ``synchronous`` is NORMAL (safe against a killed process) or FULL (against a
        power cut too). Leaving the block writes what is queued, for at most 5 s.

        Cancellation: what was queued is written all the same.

        Raises:
            StoreError: it cannot be opened, is no database, or is of a newer format; names the file.
        """
        file = str(path)
        connection = connect(file, synchronous=synchronous).conn
        reader: sqlite3.Connection | None = None
        try:
            reader = connect_reader(file)
            store = cls(connection, reader, file)
            store._writer = Writer(connection, file)
            async with _running(store._writer):
                yield store
        finally:
            if reader is not None:
                reader.close()
            connection.close()

    # ── writing ─────────────────────────────────────────────────────────────

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit, waiting only while the queue is full.

        Checkpoint: only if the queue is full.
        Cancellation: no row was left.

        Raises:
            StoreError: rows could not be written before this, or the store is closed.
        """
        if self._writer is None:
            commit_now(self._write_connection, self.file, rows)
        else:
            await self._writer.put(rows)

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit, in the running step, even when the queue is full.

        Raises:
            StoreError: rows could not be written before this, or the store is closed.
        """
        if self._writer is None:
            commit_now(self._write_connection, self.file, rows)
        else:
            self._writer.put_nowait(rows)

    async def commit(self, *rows: Row) -> None:
        """Write rows in one transaction and wait until it stands.

        Cancellation: the rows are written all the same, or none of them.

        Raises:
            StoreError: nothing of this call was written.
        """
        if self._writer is None:
            commit_now(self._write_connection, self.file, rows)
        else:
            await self._writer.commit(rows)

    @property
    def transactions(self) -> int:
        """Count the transactions that the writer of a file has made."""
        return 0 if self._writer is None else self._writer.transactions


@asynccontextmanager
async def _running(writer: Writer) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope(shield=True)

        async def shielded() -> None:
            with scope:
                await writer.run()

        nursery.start_soon(shielded, name="store writer")
        try:
            yield
        finally:
            writer.close()
            scope.deadline = trio.current_time() + CLOSE_SECONDS


@contextmanager
def open_reader(path: str | Path) -> Iterator[Reader]:
    """Open an existing file for reading only; never makes one.

    Raises:
        ConfigError: there is no such file.
        StoreError: it is no database of ours, or of a newer format.
    """
    if not Path(path).is_file():
        raise ConfigError((str(path), "there is no store here; name one with --store"))
    connection = connect_reader(str(path))
    try:
        yield Reader(connection, str(path))
    finally:
        connection.close()
