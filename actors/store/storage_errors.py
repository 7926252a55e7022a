"""Errors of sqlite3, told in our own kinds. The library's types never leave the store."""

import sqlite3

from actors.errors import StoreError, StoreErrorKind

_BY_CODE = {
    sqlite3.SQLITE_BUSY: StoreErrorKind.busy,
    sqlite3.SQLITE_LOCKED: StoreErrorKind.busy,
    sqlite3.SQLITE_CONSTRAINT: StoreErrorKind.constraint,
    sqlite3.SQLITE_CORRUPT: StoreErrorKind.corrupt,
    sqlite3.SQLITE_NOTADB: StoreErrorKind.corrupt,
    sqlite3.SQLITE_FULL: StoreErrorKind.full,
}


def told(error: sqlite3.Error, file: str) -> StoreError:
    """Translate an error; the caller chains it with ``from``."""
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the primary code; the rest says more than anybody decides on.
    kind = StoreErrorKind.other if code is None else _BY_CODE.get(code & 0xFF, StoreErrorKind.other)
    return StoreError(kind, file, str(error))
