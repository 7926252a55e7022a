"""Ctrl-C while there is nothing to undo: one line, exit code 130, at once.

Left alone, Python raises KeyboardInterrupt wherever it happens to be: inside an
import, a destructor, the end of the interpreter. Nobody can catch it in all of
them. So while modules are loaded, and in commands that only read, the handler
ends the process itself. A run takes its signals over (`running.py`).

This is loaded before anything else, so it must stay small and import little.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPPED = 130

_before: list[Any] = []


def stop_at_once() -> None:
    """Let Ctrl-C end the process. A handler that somebody else has set stays, and so does a SIGINT that is ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    try:
        _before.append(signal.signal(signal.SIGINT, _stop))
    except ValueError:
        # Not the main thread: no signal ever arrives here.
        pass


def give_back() -> None:
    """Undo the last `stop_at_once`."""
    if _before:
        signal.signal(signal.SIGINT, _before.pop())


@contextmanager
def raised() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt for as long as the block, where there is something to undo after all."""
    if not _before or signal.getsignal(signal.SIGINT) is not _stop:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _stop)


def nothing_left() -> None:
    """Ignore Ctrl-C: the end has been told, and the interpreter only closes itself."""
    if _before:
        _before.clear()
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stop(_number: int, _frame: object) -> None:
    try:
        os.write(2, b"stopped\n")
    except OSError:
        pass
    os._exit(STOPPED)
