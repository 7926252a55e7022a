"""The one place that starts processes.

No shell. A command runs in a session of its own, with an environment that is an
allow-list, and nothing it started outlives the call: not a grandchild in the
background, not one that left its session or lost its parent. Each carries a mark
in its environment, by which whatever is left is found in /proc and killed; where
there is no /proc, the process group is killed.

Output is read until the command ends and a short grace after it, never until
the end of the file: an orphan that holds the pipe must not hold the call.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs
import trio

from actors.tools.output import Capture

# Enough to find programs, write in the right language and keep temporary files; never a key or a token.
ALLOWED_ENVIRONMENT: Final = (
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
)
MARK: Final = "ACTORS_COMMAND"
OUTPUT_BYTES: Final = 200_000
# After the command has ended, what is still in the pipe is read for so long.
GRACE_SECONDS: Final = 0.2
# A killed process is gone at once, unless the kernel holds it.
KILL_SECONDS: Final = 2.0
_PROC: Final = Path("/proc")


class Status(StrEnum):
    """How a command ended."""

    exited = "exited"
    signalled = "signalled"
    timed_out = "timed_out"
    not_found = "not_found"
    not_started = "not_started"


@attrs.frozen
class Finished:
    """A command that is over. ``code`` is the exit code or the signal's number, None when there is neither.

    ``output`` is standard output and error together, head and tail kept;
    ``left_out`` counts the bytes between them. ``leaked`` names processes that
    did not die of SIGKILL in time.
    """

    status: Status
    code: int | None
    output: str
    left_out: int
    seconds: float
    leaked: tuple[int, ...] = ()


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give the environment of a command: what is allowed of ours, and ``extra``."""
    kept = {name: value for name, value in os.environ.items() if name in ALLOWED_ENVIRONMENT or name.startswith("LC_")}
    return {**kept, **(extra or {})}


async def run(
    argv: Sequence[str],
    *,
    cwd: str,
    timeout: float,
    stdin: bytes = b"",
    limit: int = OUTPUT_BYTES,
    extra: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end, or to ``timeout`` seconds.

    When this returns or raises, every process that the command started is gone
    (or named in ``leaked``), and what was printed until then is in the result.

    Cancellation: as above; nothing is returned.
    """
    began = trio.current_time()
    mark = secrets.token_hex(8)
    try:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**environment(extra), MARK: mark},
            start_new_session=True,
        )
    except OSError as error:
        return _not_started(argv[0], error)
    except (ValueError, UnicodeEncodeError) as error:
        return Finished(Status.not_started, None, f"{argv[0]!r} cannot be started: {error}", 0, 0.0)
    capture = Capture(limit)
    timed_out = False
    leaked: tuple[int, ...] = ()
    try:
        with trio.move_on_after(timeout) as scope:
            await _talk(process, stdin, capture)
        timed_out = scope.cancelled_caught
    finally:
        with trio.CancelScope(shield=True):
            leaked = await _end(process, mark)
    return _finished(process, timed_out, capture, trio.current_time() - began, leaked)


def _not_started(program: str, error: OSError) -> Finished:
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not (error.filename and os.path.isdir(str(error.filename))):
        return Finished(Status.not_found, None, f"{program!r} is unavailable: there is no such program here", 0, 0.0)
    return Finished(Status.not_started, None, f"{program!r} cannot be started: {error.strerror}", 0, 0.0)


def _finished(
    process: trio.Process, timed_out: bool, capture: Capture, seconds: float, leaked: tuple[int, ...]
) -> Finished:
    code = process.returncode
    text = capture.text()
    if timed_out:
        return Finished(Status.timed_out, None, text, capture.left_out, seconds, leaked)
    assert code is not None
    status, number = (Status.exited, code) if code >= 0 else (Status.signalled, -code)
    return Finished(status, number, text, capture.left_out, seconds, leaked)


async def _talk(process: trio.Process, stdin: bytes, capture: Capture) -> None:
    """Feed and read until the command has ended and its last words are in."""
    over = trio.Event()

    async def read() -> None:
        assert process.stdout is not None
        try:
            async for data in process.stdout:
                capture.feed(bytes(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            over.set()

    async def feed() -> None:
        assert process.stdin is not None
        try:
            await process.stdin.send_all(stdin)
            await process.stdin.aclose()
        except trio.BrokenResourceError:
            # It does not want to read the rest; that is its right.
            return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        if stdin:
            nursery.start_soon(feed)
        await process.wait()
        with trio.move_on_after(GRACE_SECONDS):
            await over.wait()
        nursery.cancel_scope.cancel()


async def _end(process: trio.Process, mark: str) -> tuple[int, ...]:
    """Kill and reap all that is left, and give the ids of what did not die."""
    if process.returncode is None:
        # The leader is not reaped yet, so its id still names this group and no other.
        _kill_group(process.pid)
    with trio.move_on_after(KILL_SECONDS):
        await process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            await pipe.aclose()
    if not _PROC.is_dir():
        _kill_group(process.pid)
        return ()
    with trio.move_on_after(KILL_SECONDS):
        # A process that is forked while we look is found in the next round.
        while marked := _marked(mark):
            for number in marked:
                _kill(number)
            await trio.sleep(0.005)
    return tuple(_marked(mark))


def _kill_group(number: int) -> None:
    try:
        os.killpg(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _marked(mark: str) -> list[int]:
    """Find the live processes that carry a mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir(_PROC):
        if not name.isdigit():
            continue
        try:
            # A process that is dead and not reaped has no environment any more.
            if wanted in (_PROC / name / "environ").read_bytes().split(b"\x00"):
                found.append(int(name))
        except OSError:
            continue
    return found
