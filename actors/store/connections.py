"""Opening SQLite: the same pragmas on every connection, and never somebody else's file.

All of this is sync and may wait for a lock of another process; call it in a
thread where that matters.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from sqlite_utils import Database

from actors.errors import ActorsError, ConfigError, StoreError, StoreErrorKind
from actors.store.schema import APPLICATION_ID, FORMAT, TABLES, Table
from actors.store.storage_errors import fault_of, kind_of

DEFAULT_PATH: Final = Path(".actors") / "runs.db"
BUSY_MILLISECONDS: Final = 5_000
OPEN_SECONDS: Final = 10.0
OPEN_PAUSE: Final = 0.02
# One page, of the smallest size that there is.
SMALLEST_BYTES: Final = 512
SYNCHRONOUS: Final = ("NORMAL", "FULL")
# What SQLite says where it may make no file beside the one that it opens.
_NO_LOG: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

T = TypeVar("T")


def connect_writer(path: Path, synchronous: str = "NORMAL") -> sqlite3.Connection:
    """Open ``path`` for writing and make it a store if it is new.

    Only the directory of the default path is made. NORMAL survives a killed
    process, FULL also a power cut.

    Raises:
        ConfigError: ``synchronous`` is no such word.
        StoreError: the file cannot be used; nothing in it was changed.
    """
    if synchronous not in SYNCHRONOUS:
        raise ConfigError(("synchronous", f"must be NORMAL or FULL, not {synchronous!r}"))
    return _opened(path, "rwc", synchronous, _make_store)


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open ``path`` for reading only; never makes it.

    It is opened like a writer that is told to refuse all writing: so it can also
    recover the log of a process that was killed. A file that may not be written, in a
    folder that may not be either, is read as it stands.

    Raises:
        StoreError: it is missing, or no store of ours.
    """
    try:
        return _opened(path, "rw", "NORMAL", _only_read)
    except StoreError as error:
        cause = error.__cause__
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF not in _NO_LOG or os.path.lexists(f"{path}-wal"):
            raise
    # Where this process may make no log, and there is none, nobody writes: the file holds all there is.
    return _opened(path, "ro&immutable=1", "NORMAL", _only_read)


def connect_memory() -> sqlite3.Connection:
    """Open a store that lives as long as its connection."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _set_pragmas(connection, "NORMAL")
    _make_store(connection, ":memory:")
    return connection


def _opened(
    path: Path, mode: str, synchronous: str, prepare: Callable[[sqlite3.Connection, str], None]
) -> sqlite3.Connection:
    _look_at(path, mode)
    connection = None
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
        )
        made = connection
        _patiently(lambda: _set_pragmas(made, synchronous))
        _patiently(lambda: prepare(made, str(path)))
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise fault_of(error, str(path)).error() from error
        raise
    return connection


def _look_at(path: Path, mode: str) -> None:
    """Say clearly what SQLite would only call unable to open."""
    try:
        if path.is_dir():
            raise _unusable(path, "is a directory, and a store is a file")
        if mode == "rwc" and path == DEFAULT_PATH:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.is_dir():
            raise _unusable(path, f"cannot be opened: the directory {path.parent} does not exist")
        # Never open the file here: closing it drops the locks that SQLite holds on it for this very process, and
        # whoever looks at it next, from another one, would take away the log below a live run.
        if path.exists() and 0 < path.stat().st_size < SMALLEST_BYTES:
            # SQLite takes a file of a few bytes for an empty one, and would write over it.
            raise StoreError(StoreErrorKind.corrupt, str(path), "is not a database")
    except OSError as error:
        raise _unusable(path, f"cannot be opened: {error.strerror or error}") from error


def _unusable(path: Path, text: str) -> StoreError:
    return StoreError(StoreErrorKind.other, str(path), text)


def _patiently(action: Callable[[], T]) -> T:
    """Do ``action``, again while another process holds the file; switching to WAL does not wait by itself."""
    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if kind_of(error) is not StoreErrorKind.busy or time.monotonic() >= deadline:
                raise
            time.sleep(OPEN_PAUSE)


def _set_pragmas(connection: sqlite3.Connection, synchronous: str) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_store(connection: sqlite3.Connection, file: str) -> bool:
    """Tell a store from a new file.

    Raises:
        StoreError: it is neither, or its format is newer than we know.
    """
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if application == APPLICATION_ID:
        if version > FORMAT:
            raise StoreError(
                StoreErrorKind.format, file, f"has format {version}, and this version knows {FORMAT}: use a newer one"
            )
        return True
    if application or version or _pragma(connection, "schema_version"):
        raise StoreError(StoreErrorKind.format, file, "is a database of another program: name another file")
    return False


def _only_read(connection: sqlite3.Connection, file: str) -> None:
    if not _is_store(connection, file):
        raise StoreError(StoreErrorKind.format, file, "is no store: nothing was ever written to it")
    connection.execute("PRAGMA query_only = ON")


def _make_store(connection: sqlite3.Connection, file: str) -> None:
    """Add what is missing, in one transaction, so that two processes never see half of it."""
    _is_store(connection, file)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode not in ("wal", "memory"):
        raise StoreError(StoreErrorKind.other, file, f"lies where SQLite cannot keep a log beside it ({mode})")
    database = Database(connection, execute_plugins=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, now that nobody else can change it.
        _is_store(connection, file)
        for table in TABLES:
            _make_table(database, table)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except (sqlite3.Error, ActorsError):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _make_table(database: Database, table: Table) -> None:
    made = database.table(table.name)
    if not made.exists():
        made.create(
            dict(table.columns),
            pk=table.key[0] if len(table.key) == 1 else table.key,
            not_null=table.never_null,
        )
    else:
        known = made.columns_dict
        for name, kind in table.columns.items():
            if name not in known:
                made.add_column(name, kind)
    for index in table.indexes:
        if index.where is None:
            made.create_index(index.columns, unique=index.unique, if_not_exists=True)
        else:
            name = f"idx_{table.name}_{'_'.join(index.columns)}_some"
            unique = "UNIQUE " if index.unique else ""
            columns = ", ".join(f'"{column}"' for column in index.columns)
            database.execute(
                f"CREATE {unique}INDEX IF NOT EXISTS {name} ON {table.name} ({columns}) WHERE {index.where}"
            )
