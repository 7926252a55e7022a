"""The one place that starts processes.

No shell. A command runs in a session of its own, with an environment that is an
allow-list, and nothing it started outlives the call: not a grandchild in the
background, not one that left its session or lost its parent (`leftovers.py`
finds them; how a command ends stands in `process_end.py`).
"""

import errno
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs
import trio

from actors.agents.entry_text import bounded, clean
from actors.agents.secret_values import is_secret_name
from actors.tools.leftovers import MARK, new_mark
from actors.tools.output import Capture
from actors.tools.process_end import Printed, end_started, wait_unreaped

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
OUTPUT_BYTES: Final = 200_000


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
    ``left_out`` counts the bytes between them. For a command that did not start
    it says why. ``leaked`` names processes that did not die of SIGKILL in time,
    ``hit`` the cap that ended it.
    """

    status: Status
    code: int | None
    output: str
    left_out: int
    seconds: float
    leaked: tuple[int, ...] = ()
    hit: str | None = None


@attrs.frozen
class Through:
    """Another program that a command is started through, what it needs, and what it adds to the environment."""

    argv: Sequence[str]
    pass_fds: tuple[int, ...]
    env: Mapping[str, str]


def environment() -> dict[str, str]:
    """Give the environment of a command: what is allowed of ours, and of PATH the places that are the same anywhere."""
    given = {
        name: value
        for name, value in os.environ.items()
        # Whoever may send only LC_* to a machine sends keys under such names too.
        if name in ALLOWED_ENVIRONMENT or (name.startswith("LC_") and not is_secret_name(name))
    }
    if "PATH" in given:
        # A command starts in the workspace: a place that is relative, or empty, would be one where agents write.
        given["PATH"] = os.pathsep.join(filter(os.path.isabs, given["PATH"].split(os.pathsep)))
        if not given["PATH"]:
            # Empty it would name the workspace; left out it is the system's own.
            del given["PATH"]
    return given


async def start(
    argv: Sequence[str],
    *,
    cwd: str,
    mark: str,
    stdin: int,
    stdout: int,
    stderr: int,
    more: Mapping[str, str] | None = None,
    through: Through | None = None,
) -> trio.Process:
    """Start a command in a session of its own. ``more`` is added to its environment; ``through`` starts it for us.

    Cancellation: it was not started.

    Raises:
        OSError, ValueError: it cannot be started; `not_started` says why.
    """
    return await trio.lowlevel.open_process(
        list(argv if through is None else through.argv),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env={**environment(), **(more or {}), **({} if through is None else through.env), MARK: mark},
        pass_fds=() if through is None else through.pass_fds,
        start_new_session=True,
    )


async def run(
    argv: Sequence[str],
    *,
    cwd: str,
    timeout: float,
    stdin: bytes = b"",
    limit: int = OUTPUT_BYTES,
    more: Mapping[str, str] | None = None,
    through: Through | None = None,
    stderr: int = subprocess.STDOUT,
) -> Finished:
    """Run a command to its end, or to ``timeout`` seconds. ``more`` is added to its environment.

    ``through`` starts it in our place. ``stderr`` DEVNULL keeps what it complains of out of its output.

    When this returns or raises, every process that the command started is gone
    (or named in ``leaked``), and what was printed until then is in the result.
    That takes up to 5 seconds more when something does not die.

    Cancellation: as above; nothing is returned.
    """
    began = trio.current_time()
    mark = new_mark(secrets.token_hex(8))
    try:
        process = await start(
            argv,
            cwd=cwd,
            mark=mark,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            more=more,
            through=through,
        )
    except (OSError, ValueError) as error:
        return not_started(argv[0], cwd, error)
    command = _Command(process, mark, Capture(limit))
    leaked: tuple[int, ...] = ()
    try:
        with trio.move_on_after(timeout):
            await command.talk(stdin)
    finally:
        with trio.CancelScope(shield=True):
            leaked = await command.end()
    return command.finished(trio.current_time() - began, leaked)


def not_started(program: str, cwd: str, error: Exception) -> Finished:
    """Say of a command why it did not start."""
    shown = f'"{bounded(clean(program), 200)}"'
    if not os.path.isdir(cwd):
        said = f"{shown} cannot be started: the directory it should run in is gone"
        return Finished(Status.not_started, None, said, 0, 0.0)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR) or (number == errno.EACCES and _is_nowhere(program)):
        said = f"{shown} is unavailable: there is no such program here, or what it names in its first line is missing"
        return Finished(Status.not_found, None, said, 0, 0.0)
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Finished(Status.not_started, None, f"{shown} cannot be started: {why}", 0, 0.0)


def _is_nowhere(program: str) -> bool:
    """Tell whether a plain name is in no place that we may look into: one that is closed says nothing of it."""
    if "/" in program:
        return False
    places = os.get_exec_path(environment())
    return not any(os.path.exists(os.path.join(place, program)) for place in places)


class _Command:
    """A process that was started, and what it has printed."""

    def __init__(self, process: trio.Process, mark: str, capture: Capture) -> None:
        assert process.stdout is not None
        self._process = process
        self._mark = mark
        self._capture = capture
        self._printed = Printed(process.stdout, capture.feed)
        self._ended = False

    async def talk(self, stdin: bytes) -> None:
        """Feed and read until the command has ended and its last words are in.

        Cancellation: what was read is kept.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._printed.read)
            if stdin:
                nursery.start_soon(self._feed, stdin)
            await wait_unreaped(self._process)
            self._ended = True
            await self._printed.wait_last_words()
            nursery.cancel_scope.cancel()

    async def _feed(self, stdin: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(stdin)
            await self._process.stdin.aclose()
        except trio.BrokenResourceError:
            # It does not want to read the rest; that is its right.
            return

    async def end(self) -> tuple[int, ...]:
        """Kill and reap all that is left, and give the numbers of what did not die.

        Cancellation: not while shielded, and it is bounded.
        """
        leaked = (*await end_started((self._process,), self._mark), *await self._printed.drain())
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                await pipe.aclose()
        return leaked

    def finished(self, seconds: float, leaked: tuple[int, ...]) -> Finished:
        """Say how it went."""
        text, left_out = self._capture.text(), self._capture.left_out
        code = self._process.returncode
        # What ended by itself did not time out, even if its last words came late.
        if not self._ended or code is None:
            return Finished(Status.timed_out, None, text, left_out, seconds, leaked)
        status, number = (Status.exited, code) if code >= 0 else (Status.signalled, -code)
        return Finished(status, number, text, left_out, seconds, leaked)
