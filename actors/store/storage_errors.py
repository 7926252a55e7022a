"""SQLite's errors in our words. The library's own types stay inside this package."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import msgspec

from actors.agents.strict_json import CodecRefused
from actors.errors import StoreError, StoreErrorKind

# By primary result code, the lower byte of SQLite's extended ones.
_KINDS: Final = {
    sqlite3.SQLITE_BUSY: StoreErrorKind.busy,
    sqlite3.SQLITE_LOCKED: StoreErrorKind.busy,
    sqlite3.SQLITE_CONSTRAINT: StoreErrorKind.constraint,
    sqlite3.SQLITE_CORRUPT: StoreErrorKind.corrupt,
    sqlite3.SQLITE_NOTADB: StoreErrorKind.corrupt,
    sqlite3.SQLITE_FULL: StoreErrorKind.full,
}

# What a function of SQL says of a stored text that is none; it comes without a code of its own.
_NO_JSON: Final = "malformed JSON"

# What SQLite and its binding raise for values; the others are about the file.
_OF_ROWS: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


@attrs.frozen
class Fault:
    """What went wrong, to be raised to everyone whom it concerns: each gets an error of its own."""

    kind: StoreErrorKind
    file: str
    message: str
    cause: BaseException | None = None

    def error(self) -> StoreError:
        """Make the error to raise, with the library's own as its cause."""
        error = StoreError(self.kind, self.file, self.message)
        error.__cause__ = self.cause
        return error


def kind_of(error: BaseException) -> StoreErrorKind:
    """Name the kind of an error of SQLite; anything else is ``other``."""
    if isinstance(error, sqlite3.OperationalError) and str(error) == _NO_JSON:
        return StoreErrorKind.corrupt
    code = getattr(error, "sqlite_errorcode", None)
    return StoreErrorKind.other if code is None else _KINDS.get(code & 0xFF, StoreErrorKind.other)


def fault_of(error: BaseException, file: str) -> Fault:
    """Say in one line what an error means for ``file``."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, sqlite3.Error):
        text = f"{type(error).__name__}: {text}"
    return Fault(kind_of(error), file, text, error)


def concerns_rows(error: BaseException) -> bool:
    """Tell whether the rows are at fault, so that others may still be written; else the store is."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, Exception)
    return isinstance(error, _OF_ROWS)


@contextmanager
def translated(file: str) -> Iterator[None]:
    """Raise what SQLite raises as a `StoreError` that names ``file``."""
    try:
        yield
    except sqlite3.Error as error:
        raise fault_of(error, file).error() from error


# What reading a value raises that no version of ours wrote.
_DAMAGE: Final = (
    ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError,
    msgspec.MsgspecError, CodecRefused,
)  # fmt: skip


@contextmanager
def readable(file: str, what: str) -> Iterator[None]:
    """Raise what is raised for a stored value that cannot be what it is, as a `StoreError` that names the place.

    Wrap the reading of values alone: an error of what is done with them would pass for damage.
    """
    try:
        yield
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        told = f"what is stored of {what} cannot be read: {type(error).__name__}: {text}"
        raise StoreError(StoreErrorKind.corrupt, file, told) from error
