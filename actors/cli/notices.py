"""What the parts log while a run goes on, on standard error.

A store that fails is logged where it fails, so that a program that embeds a tree
hears of it at once. Here the run itself ends with that failure, and tells it in
one line: what was logged about it is held back, and printed only if the run
ends otherwise.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType

from actors.cli.ending import leaves
from actors.errors import StoreError

STORE = "actors.store"


class Notices(logging.Handler):
    """Prints warnings of the parts for the time of a block; those of ``untold`` are told in another way."""

    def __init__(self, untold: str | None = None) -> None:
        super().__init__(logging.WARNING)
        self._untold = untold
        self._held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, or hold it back when it tells that a store has failed."""
        if record.name == self._untold:
            return
        try:
            text = f"{record.levelname.lower()}: {self.format(record)}"
        except Exception:
            # As every handler does it; the run goes on.
            self.handleError(record)
            return
        if _of_failed_store(record):
            self._held.append(text)
        else:
            print(text, file=sys.stderr)

    def __enter__(self) -> Notices:
        logging.getLogger("actors").addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("actors").removeHandler(self)
        if error is not None and any(isinstance(each, StoreError) for each in leaves(error)):
            return
        for text in self._held:
            print(text, file=sys.stderr)


def _of_failed_store(record: logging.LogRecord) -> bool:
    # A store that is only busy warns, and that is told at once: somebody has to let go of the file.
    if record.name == STORE and record.levelno >= logging.ERROR:
        return True
    return isinstance(record.args, tuple) and any(isinstance(each, StoreError) for each in record.args)
