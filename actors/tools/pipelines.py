"""A line of commands, run by our own pipes; no shell is asked.

What would be got wrong:

- Everything was judged before this is called. A redirection is opened when its
  command starts, perhaps minutes after it was judged, and follows no link then:
  what a command before it made of the path is refused and not followed.
- All commands of a line carry one mark and stay unreaped until the line is over;
  it ends as one command does (`process_end.py`).
- A program that is missing gives 127 and one that cannot be started 126, as in a
  shell, so that ``||`` can go on; a redirection that fails gives 1.
"""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

import attrs
import trio

from actors.agents.confinement import Confinement
from actors.agents.shell_line import Command, Join, Line, Pipeline, Redirect, Stream
from actors.errors import ToolFailed
from actors.tools.leftovers import new_mark
from actors.tools.output import Capture
from actors.tools.paths import Workspace, failing, shown
from actors.tools.process import OUTPUT_BYTES, Finished, Status, not_started, start
from actors.tools.process_end import Printed, end_started, wait_unreaped
from actors.tools.sandbox import Boundary, Channel, boundary
from actors.tools.whole_files import open_regular

# The one file outside the workspace that a redirection may name: it keeps nothing and tells nothing.
NOWHERE: Final = "/dev/null"


async def run_line(
    line: Line,
    workspace: Workspace,
    files: Mapping[str, str],
    *,
    timeout: float,
    confinement: Confinement,
    limit: int = OUTPUT_BYTES,
) -> Finished:
    """Run a line behind one boundary to its end, or to ``timeout`` seconds for all of it.

    ``files`` gives for each target of a redirection the path that was judged. When
    this returns or raises, every process of the line is gone, or named in ``leaked``.

    Cancellation: as above; nothing is returned.

    Raises:
        SandboxUnavailable: the boundary cannot be held; nothing was started.
    """
    began = trio.current_time()
    wall = confinement.caps.wall_seconds
    timeout = timeout if wall is None else min(timeout, wall)
    capture = Capture(limit)
    leaked: tuple[int, ...] = ()
    async with boundary(confinement, workspace.root) as around:
        running = LineRun(line, workspace, files, capture.feed, around)
        try:
            with trio.move_on_after(timeout):
                await running.run()
        finally:
            with trio.CancelScope(shield=True):
                leaked = await running.end()
    seconds = trio.current_time() - began
    if running.code is None:
        hit = "wall_seconds" if wall == timeout else running.hit
        return Finished(Status.timed_out, None, capture.text(), capture.left_out, seconds, leaked, hit)
    status = Status.exited if running.code >= 0 else Status.signalled
    return Finished(status, abs(running.code), capture.text(), capture.left_out, seconds, leaked, running.hit)


@attrs.frozen
class _Stage:
    """A command that was started. ``channel`` is where what stands between it and us speaks."""

    program: str
    process: trio.Process
    channel: Channel | None
    stderr: int


class LineRun:
    """One run of a line. Call `run` once, and `end` once after it, however it came out.

    Attributes:
        code: the exit code of the line, a signal's number below zero, None while it runs.
        hit: the last cap that ended a command of it, None when there was none.
        begun: set when the first pipeline was started, or could not be.
    """

    def __init__(
        self,
        line: Line,
        workspace: Workspace,
        files: Mapping[str, str],
        sink: Callable[[bytes], None],
        around: Boundary,
    ) -> None:
        self._line = line
        self._workspace = workspace
        self._files = files
        self._sink = sink
        self._around = around
        self._mark = new_mark(secrets.token_hex(8))
        self._started: list[trio.Process] = []
        # What the commands are behind; left when the line is over.
        self._blocks = ExitStack()
        # Copies of streams, each closed when its command has ended.
        self._copies: set[int] = set()
        ours, self._write_end = os.pipe()
        self._reader = trio.lowlevel.FdStream(ours)
        self._printed = Printed(self._reader, sink)
        self._closed = False
        self.code: int | None = None
        self.hit: str | None = None
        self.begun = trio.Event()

    # ── running ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Run to the end of the line, and read its last words.

        Cancellation: what was printed was given to the sink; `end` ends the rest.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._printed.read)
            code = 0
            for pipeline in self._line.pipelines:
                if _runs(pipeline.join, code):
                    code = await self._pipeline(pipeline)
            self.code = code
            self._close_write_end()
            await self._printed.wait_last_words()
            nursery.cancel_scope.cancel()

    async def _pipeline(self, pipeline: Pipeline) -> int:
        """Run commands beside each other; the last one tells how it went."""
        stages: list[_Stage | int] = []
        given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for place, command in enumerate(pipeline.commands, 1):
                if place == len(pipeline.commands):
                    stages.append(await self._start(command, given, self._write_end))
                    continue
                following, feeding = os.pipe()
                try:
                    stages.append(await self._start(command, given, feeding))
                finally:
                    os.close(feeding)
                    given, used = following, given
                    os.close(used)
        finally:
            os.close(given)
            self.begun.set()
        codes = [stage if isinstance(stage, int) else await self._code_of(stage) for stage in stages]
        return codes[-1]

    async def _start(self, command: Command, stdin: int, stdout: int) -> _Stage | int:
        """Start a command with its redirections; give its code if it cannot be started."""
        stderr = self._write_end
        opened: list[int] = []
        try:
            for redirect in command.redirects:
                if redirect.stream is Stream.errors_to_output:
                    stderr = stdout
                    continue
                try:
                    opened.append(self._open(redirect))
                except ToolFailed as error:
                    self._say(str(error), stderr)
                    return 1
                if redirect.stream is Stream.read:
                    stdin = opened[-1]
                elif redirect.stream is Stream.errors:
                    stderr = opened[-1]
                else:
                    stdout = opened[-1]
            try:
                return await self._begin(command.argv, stdin, stdout, stderr)
            except (OSError, ValueError) as error:
                return self._missing(not_started(command.argv[0], self._workspace.root, error), stderr)
        finally:
            for each in opened:
                os.close(each)

    async def _begin(self, argv: tuple[str, ...], stdin: int, stdout: int, stderr: int) -> _Stage:
        through, channel = self._blocks.enter_context(self._around.behind(argv))
        process = await start(
            argv,
            cwd=self._workspace.root,
            mark=self._mark,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            through=through,
        )
        self._started.append(process)
        if channel is not None and stderr != self._write_end:
            # It may turn out that the command did not start, and this is where it would have said so.
            stderr = os.dup(stderr)
            self._copies.add(stderr)
        return _Stage(argv[0], process, channel, stderr)

    def _missing(self, why: Finished, stderr: int) -> int:
        """Say that a command did not start, and give its code."""
        self._say(why.output, stderr)
        return 127 if why.status is Status.not_found else 126

    def _open(self, redirect: Redirect) -> int:
        """Open the file of a redirection, following nothing.

        Raises:
            ToolFailed: it is no regular file, has other names, was swapped for a link, or cannot be opened.
        """
        if redirect.target == NOWHERE:
            return os.open(NOWHERE, os.O_RDWR | os.O_CLOEXEC)
        relative = self._files[redirect.target]
        flags = os.O_RDONLY if redirect.stream is Stream.read else os.O_WRONLY
        if redirect.stream is Stream.append:
            flags |= os.O_APPEND
        with failing(relative):
            with self._workspace.parent(relative) as (above, name):
                return self._open_in(above, name, flags, truncate=redirect.stream in (Stream.write, Stream.errors))

    def _open_in(self, above: int, name: str, flags: int, *, truncate: bool) -> int:
        descriptor = open_regular(above, name, flags, self._workspace.between)
        if descriptor is None:
            if flags & os.O_ACCMODE == os.O_RDONLY:
                raise ToolFailed(f"{shown(name)}: there is no such file")
            self._workspace.between(name)
            # Made anew, or not at all: whatever came to stand there meanwhile was not judged.
            made = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, made, 0o666, dir_fd=above)
        try:
            if flags & os.O_ACCMODE != os.O_RDONLY and os.fstat(descriptor).st_nlink > 1:
                raise ToolFailed(f"{shown(name)} has other names, perhaps outside the workspace; write to a new file")
            if truncate:
                os.ftruncate(descriptor, 0)
            os.set_blocking(descriptor, True)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _say(self, text: str, stderr: int) -> None:
        """Say why a command does not run, where it would have said so itself."""
        said = f"{text}\n".encode(errors="replace")
        if stderr == self._write_end:
            self._sink(said)
        else:
            # A file, or a pipe that nobody has written to yet: there is room for it.
            os.write(stderr, said[:4_000])

    async def _code_of(self, stage: _Stage) -> int:
        """Wait for a command, and give its code, or its signal below zero."""
        try:
            unreaped = await wait_unreaped(stage.process)
            code = _code_unreaped(stage.process.pid) if unreaped else await stage.process.wait()
            if stage.channel is None:
                return code
            plain = Finished(Status.exited if code >= 0 else Status.signalled, abs(code), "", 0, 0.0)
            finished = self._around.told(stage.program, plain, stage.channel.read())
            self.hit = finished.hit or self.hit
            if finished.code is None:
                return self._missing(finished, stage.stderr)
            return finished.code if finished.status is Status.exited else -finished.code
        finally:
            if stage.stderr in self._copies:
                self._copies.remove(stage.stderr)
                os.close(stage.stderr)

    # ── ending ──────────────────────────────────────────────────────────────

    async def end(self) -> tuple[int, ...]:
        """Kill and reap all that is left, and give the numbers of what did not die.

        Cancellation: not while shielded, and it is bounded.
        """
        leaked = await end_started(self._started, self._mark)
        self._close_write_end()
        leaked = (*leaked, *await self._printed.drain())
        self.begun.set()
        await self._reader.aclose()
        self._blocks.close()
        while self._copies:
            os.close(self._copies.pop())
        return leaked

    def _close_write_end(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._write_end)


def _code_unreaped(number: int) -> int:
    """Look how a process ended that is not reaped yet; it has ended, so nothing waits."""
    seen = os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    assert seen is not None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


def _runs(join: Join, code: int) -> bool:
    """Tell whether a pipeline runs after what was before it."""
    if join is Join.if_passed:
        return code == 0
    return join is Join.then or code != 0


