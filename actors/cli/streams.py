"""The three standard streams of a command, whatever state they are in.

A stream that is closed is a stream nobody wants: what is written there is
dropped, and the command ends with its own exit code. The same holds when the
reader of a pipe has gone. Every other failure of standard output (a full disk)
means that a result was lost that somebody waits for: one line says so, and a
command that would have ended with 0 ends with 1. A run is never cut because
of what became of its output.
"""

from __future__ import annotations

import io
import os
import sys
from types import TracebackType
from typing import Any, TextIO


class Outlet(io.FileIO):
    """The file below a stream. It keeps the first failure, and drops what comes after it."""

    fault: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, or drop; never raises for what became of the other side."""
        if self.fault is None:
            try:
                written: int = super().write(data)
                return written
            except OSError as error:
                self.fault = error
        return memoryview(data).nbytes


class Streams:
    """Standard streams that end no program. For the time of a block they take the place of those in `sys`."""

    def __init__(self) -> None:
        self._before: tuple[Any, Any, Any] = (None, None, None)
        self._outlet: Outlet | None = None

    def __enter__(self) -> Streams:
        _fill_gaps()
        self._before = (sys.stdin, sys.stdout, sys.stderr)
        if sys.stdin is None:
            sys.stdin = open(0, closefd=False)
        sys.stdout, self._outlet = _lenient(sys.stdout, 1)
        sys.stderr, _ = _lenient(sys.stderr, 2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _, sys.stdout, sys.stderr = (now if old is None else old for now, old in zip(_now(), self._before, strict=True))

    def judged(self, code: int) -> int:
        """Give the exit code: ``code``, or 1 when that was 0 and a result that somebody waits for is lost."""
        sys.stdout.flush()
        fault = None if self._outlet is None else self._outlet.fault
        if fault is None or isinstance(fault, BrokenPipeError):
            return code
        print(f"error: standard output: {fault.strerror}; the result could not be written", file=sys.stderr)
        return code or 1


def unheard() -> bool:
    """Tell whether what is printed is dropped by now, so that who only prints may end.

    It is known of what was flushed.
    """
    outlet = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(outlet, Outlet) and outlet.fault is not None


def _now() -> tuple[Any, Any, Any]:
    return (sys.stdin, sys.stdout, sys.stderr)


def _fill_gaps() -> None:
    """Open what is closed: else the next file that is opened becomes standard output, and is written over."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given, so it is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lenient(stream: TextIO | None, number: int) -> tuple[Any, Outlet | None]:
    """Give a stream that never raises; one that is not the file ``number`` (a test captures it) stays as it is."""
    if stream is not None and not _is_file(stream, number):
        return stream, None
    outlet = Outlet(number, "w", closefd=False)
    encoding = "utf-8"
    if stream is not None:
        encoding = stream.encoding
        try:
            stream.flush()
        except OSError:
            pass
    # A terminal that cannot show a letter shows a question mark.
    text = io.TextIOWrapper(
        io.BufferedWriter(outlet), encoding, errors="replace", line_buffering=number == 2 or outlet.isatty()
    )
    return text, outlet


def _is_file(stream: TextIO, number: int) -> bool:
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
    except (OSError, ValueError):
        return False
