"""Starting a command behind the boundary that its agent is under.

`sandbox_plan.py` decides, and `sandbox_places.py` looks which places there are; here is
what this machine can do (found out once, by doing it), and how a command is started.

What would be got wrong:

- The last thread that started a process may end long before that process, and a
  kernel that is told to kill with the parent means the thread. So a small program
  stands between us and every command (`sandbox_start.py`), and dies when we do.
- A boundary that could not be set up is no end of a command: the command was not
  started, and whoever judges by it must not take that for a verdict.
"""

import errno
import functools
import itertools
import marshal
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.errors import ToolFailed
from actors.tools.call_filter import LOCAL, OF_NAMESPACES, call_filter
from actors.tools.paths import Workspace
from actors.tools.private_places import private_place
from actors.tools.process import OUTPUT_BYTES, Finished, Status, Through, environment, not_started, run
from actors.tools.sandbox_grants import Grants
from actors.tools.sandbox_places import STARTER, names_in, plan_problem, planned
from actors.tools.sandbox_plan import (
    OF_FILES,
    SHARED_MEMORY_BYTES,
    SOCKET_PLACES,
    Backend,
    Capabilities,
    Net,
    Plan,
    bubblewrap_options,
    handled,
    landlock_rules,
    limits_of,
)

PROBE_SECONDS: Final = 10.0
# Looked in first: what somebody put early in the path is no reason to take it.
SYSTEM_PLACES: Final = ("/usr/bin", "/bin", "/run/current-system/sw/bin")
_BOOT: Final = (
    "import marshal, sys\n"
    "file = open(int(sys.argv[1]), 'rb')\n"
    "exec(marshal.load(file), {'__name__': '__main__', 'plan_file': file})\n"
)


class SandboxUnavailable(ToolFailed):
    """The boundary cannot be held here, and the command was not started."""


# ── what this machine can do ────────────────────────────────────────────────


@functools.cache
def detect() -> Capabilities:
    """Find out what this machine can do, by doing it; some 100 ms the first time, and remembered."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if sys.platform != "linux" or not sys.executable:
        return Capabilities(root=root)
    if not os.access(STARTER, os.X_OK):
        return Capabilities(root=root, closed=STARTER)
    version = _landlock_version()
    bare = Plan(ExecSandbox.read_only, Backend.landlock, Net.denied, Grants(()))
    only = Capabilities(landlock=version, root=root)
    filters = call_filter(platform.machine()) is not None
    seccomp = filters and version > 0 and _works(bare, attrs.evolve(only, seccomp=True))
    spaces = attrs.evolve(only, namespaces=True, seccomp=seccomp, users=True)
    # Root of a container may not make namespaces, but perhaps one of users to make them in.
    kinds = [attrs.evolve(spaces, users=False), spaces] if root else [spaces]
    spaced = attrs.evolve(bare, namespaces=True)
    with_spaces = next((each for each in kinds if version > 0 and _works(spaced, each)), None)
    if version > 0 and not seccomp and with_spaces is None and not _works(attrs.evolve(bare, net=Net.open), only):
        only = attrs.evolve(only, landlock=0)
    can = with_spaces or attrs.evolve(only, seccomp=seccomp)
    # One answer for both about users: the other one may have to stand in.
    return _with_bubblewrap(can, [with_spaces] if with_spaces else kinds, filters)


def _landlock_version() -> int:
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return 0
    # Make a ruleset of nothing: tells only the version.
    return max(int(call(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1))), 0)


def _works(plan: Plan, can: Capabilities) -> bool:
    """Set a boundary up around nothing, and tell whether that went well."""
    try:
        temporary = tempfile.gettempdir()
    except OSError:
        # Said when a command needs one; something that can be mounted does here.
        temporary = os.devnull
    record = _record(plan, can, [], "/", temporary, ExecCaps())
    with _started(record) as (through, channel):
        try:
            done = subprocess.run(
                through.argv,
                pass_fds=through.pass_fds,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        plain = Finished(Status.exited, done.returncode, "", 0, 0.0)
        told = _told(plan, "", "/", plain, channel.read())
        return (told.status, told.code) == (Status.exited, 0)


def _with_bubblewrap(can: Capabilities, kinds: Sequence[Capabilities], filters: bool) -> Capabilities:
    """Add the first bubblewrap that works; never one that is named from where we stand."""
    places = (place for place in (*SYSTEM_PLACES, *os.get_exec_path()) if os.path.isabs(place))
    programs = (shutil.which("bwrap", path=place) for place in places)
    plan = Plan(ExecSandbox.read_only, Backend.bubblewrap, Net.denied, Grants(()), namespaces=True)
    found = dict.fromkeys(os.path.realpath(each) for each in programs if each)
    for program, kind, sizes in itertools.product(found, kinds, (True, False)):
        for seccomp in (True, False) if filters else (False,):
            if _works(plan, attrs.evolve(kind, bubblewrap=program, seccomp=seccomp, sizes=sizes)):
                return attrs.evolve(can, bubblewrap=program, users=kind.users, seccomp=seccomp, sizes=sizes)
    return can


def sandbox_problem(mode: ExecSandbox | None, policy: Policy, root: str) -> str | None:
    """Say why the boundary of a run cannot be held here, and what to do; None when it can. Starts no command."""
    if mode in (None, ExecSandbox.full_access):
        return None
    return plan_problem(mode, policy, root, detect())


# ── starting ────────────────────────────────────────────────────────────────


@attrs.frozen
class Boundary:
    """What stands around the commands of one call; made by `boundary`, and good while that block lasts."""

    plan: Plan
    caps: ExecCaps
    cwd: str
    _can: Capabilities
    _temporary: str | None

    @contextmanager
    def behind(self, argv: Sequence[str]) -> Iterator[tuple[Through, "Channel"] | tuple[None, None]]:
        """Give what starts ``argv`` behind the boundary, and what it says; None where there is nothing to be behind.

        The block must last as long as the command: when it is left, whatever still runs is ended.

        Raises:
            OSError, ValueError: nothing can be started, or never this program.
        """
        if self._temporary is None:
            yield None, None
            return
        record = _record(self.plan, self._can, argv, self.cwd, self._temporary, self.caps)
        with _started(record, {"TMPDIR": self._temporary}) as started:
            yield started

    def told(self, program: str, finished: Finished, said: bytes) -> Finished:
        """Read from what a channel said what the end of a command alone does not tell."""
        return _told(self.plan, program, self.cwd, finished, said)


@asynccontextmanager
async def boundary(
    confinement: Confinement, cwd: str, capabilities: Capabilities | None = None
) -> AsyncIterator[Boundary]:
    """Set up what stands around commands in ``cwd``, record what applies, and clear it away at the end.

    Cancellation: nothing of it is left but what cannot be removed.

    Raises:
        SandboxUnavailable: it cannot be held; nothing was started.
    """
    can = await _capabilities() if capabilities is None else capabilities
    cwd = _real(cwd)
    try:
        plan = await planned(confinement, cwd, can)
    except OSError as error:
        raise SandboxUnavailable(f"the workspace cannot be looked at: {error.strerror}") from error
    if plan.problem is not None:
        raise SandboxUnavailable(plan.problem)
    await confinement.record(SandboxApplied(plan.mode, plan.backend, plan.net, plan.not_held))
    if plan.backend is Backend.none and not limits_of(confinement.caps):
        yield Boundary(plan, confinement.caps, cwd, can, None)
        return
    try:
        private = await private_place()
    except OSError as error:
        raise SandboxUnavailable(f"no private directory can be made: {error.strerror}") from error
    try:
        yield Boundary(plan, confinement.caps, cwd, can, private.path)
    finally:
        await private.remove()


def _real(path: str) -> str:
    try:
        return Workspace(path).root
    except ToolFailed as error:
        # A work tree that somebody above turned into a link: what it leads to is nobody's workspace.
        raise SandboxUnavailable(str(error)) from None


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)


async def run_confined(
    argv: Sequence[str],
    *,
    cwd: str,
    timeout: float,
    confinement: Confinement,
    stdin: bytes = b"",
    limit: int = OUTPUT_BYTES,
    more: Mapping[str, str] | None = None,
    capabilities: Capabilities | None = None,
) -> Finished:
    """Run a command behind the boundary that ``confinement`` asks for, as `run` does without one.

    What applied is recorded before the command starts.

    Cancellation: as `run`.

    Raises:
        SandboxUnavailable: the boundary cannot be held; nothing was started.
    """
    if not _is_directory(cwd):
        return not_started(argv[0], cwd, FileNotFoundError(errno.ENOENT, "gone"))
    async with boundary(confinement, cwd, capabilities) as around:
        return await run_behind(around, argv, timeout=timeout, stdin=stdin, limit=limit, more=more)


async def run_behind(
    around: Boundary,
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: bytes = b"",
    limit: int = OUTPUT_BYTES,
    more: Mapping[str, str] | None = None,
    stderr: int = subprocess.STDOUT,
) -> Finished:
    """Run one of several commands behind a boundary that is set up, where it was set up.

    Cancellation: as `run`.
    """
    cwd, wall = around.cwd, around.caps.wall_seconds
    timeout = timeout if wall is None else min(timeout, wall)
    with ExitStack() as opened:
        try:
            through, channel = opened.enter_context(around.behind(argv))
        except (OSError, ValueError) as error:
            # No descriptor left, a NUL in the line.
            return not_started(argv[0], cwd, error)
        finished = await run(
            argv, cwd=cwd, timeout=timeout, stdin=stdin, limit=limit, more=more, through=through, stderr=stderr
        )
        said = b"" if channel is None else channel.read()
    finished = around.told(argv[0], finished, said)
    return attrs.evolve(finished, hit=finished.hit or _hit(finished, around.caps, timeout))


def _hit(finished: Finished, caps: ExecCaps, timeout: float) -> str | None:
    """Name the cap that ended a command, where its end shows it."""
    if finished.status is Status.timed_out and caps.wall_seconds == timeout:
        return "wall_seconds"
    # SIGXCPU: nobody else sends it.
    ended_by_cpu = finished.status is Status.signalled and finished.code == 24
    return "cpu_seconds" if ended_by_cpu and caps.cpu_seconds is not None else None


async def _capabilities() -> Capabilities:
    # The first time it takes a while; from then on a thread would cost more than the answer.
    return detect() if detect.cache_info().currsize else await trio.to_thread.run_sync(detect)


def _told(plan: Plan, program: str, cwd: str, finished: Finished, said: bytes) -> Finished:
    """Read from the status pipe what the end alone does not tell."""
    began = plan.backend is not Backend.bubblewrap
    for line in said.decode("utf-8", "replace").splitlines():
        stage, _, rest = line.partition("\0")
        number, _, text = rest.partition("\0")
        if stage == "begun":
            began = True
        elif stage == "ended" and finished.code is not None:
            # Bubblewrap tells a signal as a code.
            status = Status.signalled if os.WIFSIGNALED(int(number)) else Status.exited
            finished = attrs.evolve(finished, status=status, code=abs(os.waitstatus_to_exitcode(int(number))))
        elif stage == "hit":
            finished = attrs.evolve(finished, hit=text)
        elif stage == "exec":
            return not_started(program, cwd, OSError(int(number), text) if int(number) else ValueError(text))
        elif stage == "setup":
            return Finished(Status.not_started, None, f"the sandbox could not be set up ({text})", 0, finished.seconds)
    if began or finished.status is not Status.exited:
        return finished
    why = f"the sandbox could not be set up ({finished.output.strip()[:500]})"
    return Finished(Status.not_started, None, why, 0, finished.seconds)


def _record(
    plan: Plan, can: Capabilities, argv: Sequence[str], cwd: str, temporary: str, caps: ExecCaps
) -> dict[str, Any]:
    """Write down for the program that starts a command what it is to do."""
    restricts = plan.backend is Backend.landlock
    namespaces = restricts and plan.namespaces
    covers = [*plan.grants.hidden, *(path for path in SOCKET_PLACES if os.path.exists(path))]
    behind = None
    if plan.backend is Backend.bubblewrap:
        full = attrs.evolve(plan, grants=attrs.evolve(plan.grants, hidden=tuple(covers)))
        behind = can.bubblewrap, bubblewrap_options(full, can, cwd=cwd, temporary=temporary, is_directory=os.path.isdir)
    rules = landlock_rules(plan, temporary, can.landlock, names_in) if restricts else ()
    cut = plan.backend is not Backend.none and plan.net is Net.denied
    families = None if not cut else OF_NAMESPACES if plan.namespaces else LOCAL
    filters = can.seccomp and plan.backend is not Backend.none
    filter = call_filter(platform.machine(), families) if filters else None
    return {
        "argv": [os.fsencode(part) for part in argv],
        "behind": behind,
        "programs": _programs(argv),
        "shared_memory": f"mode=1777,size={SHARED_MEMORY_BYTES}".encode() if os.path.isdir("/dev/shm") else b"",
        "cwd": os.fsencode(cwd),
        # Python sets the one, bubblewrap the other.
        "not_ours": {b"LC_CTYPE", b"PWD"} - {os.fsencode(name) for name in environment()},
        "limits": limits_of(caps),
        "memory": caps.memory_bytes or 0,
        "restricts": restricts,
        "namespaces": namespaces,
        "new_user": namespaces and can.users,
        "no_net": cut,
        "filter": filter or b"",
        "writable": [os.fsencode(path) for path in (*plan.grants.writable, temporary)],
        "held": [os.fsencode(path) for path in plan.grants.held],
        "protected": [os.fsencode(path) for path in plan.grants.protected],
        "hidden": [os.fsencode(path) for path in covers],
        "handled": handled(can.landlock) if restricts else (),
        "rules": [(os.fsencode(rule.path), rule.access, OF_FILES) for rule in rules],
        "inside": behind is not None,
    }


def _programs(argv: Sequence[str]) -> list[bytes]:
    """Give the places where a program may be, in the order in which they are tried."""
    if not argv:
        return []
    if any("\0" in part for part in argv):
        # As the kernel's own start says it; here it would be told of the path.
        raise ValueError("embedded null byte")
    if "/" in argv[0]:
        return [os.fsencode(argv[0])]
    return [os.fsencode(os.path.join(place, argv[0])) for place in os.get_exec_path(environment())]


@functools.cache
def _code() -> bytes:
    file = Path(__file__).with_name("sandbox_start.py")
    return marshal.dumps(compile(file.read_text(encoding="utf-8"), str(file), "exec"))


@attrs.frozen
class Channel:
    """The end of the status pipe that is ours."""

    handle: int

    def read(self) -> bytes:
        """Give what was said; called when whoever could say something has ended."""
        try:
            return os.read(self.handle, 65_536)
        except BlockingIOError:
            return b""


@contextmanager
def _started(record: dict[str, Any], env: dict[str, str] | None = None) -> Iterator[tuple[Through, Channel]]:
    """Open what the program between needs; when the block ends, so does what it still waits for."""
    handles: list[int] = []
    try:
        told, status = os.pipe()
        handles += (told, status)
        lifeline, held = os.pipe()
        handles += (lifeline, held)
        os.set_blocking(told, False)
        behind = record.pop("behind")
        file = _in_memory(_code() + marshal.dumps(record))
        handles.append(file)
        argv = [STARTER, "-I", "-S", "-c", _BOOT, *map(str, (file, status, lifeline))]
        passed = [file, status, lifeline]
        if behind is not None:
            program, options = behind
            # In a file: there may be more of them than a command line holds.
            given = _in_memory(b"".join(os.fsencode(word) + b"\0" for word in options))
            handles.append(given)
            passed.append(given)
            argv = [program, "--args", str(given), "--", *argv]
        yield Through(argv, tuple(passed), env or {}), Channel(told)
    finally:
        for handle in handles:
            os.close(handle)


def _in_memory(data: bytes) -> int:
    """Make a file that only its handle names, to be read from its start."""
    handle = os.memfd_create("actors-command")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.lseek(handle, 0, os.SEEK_SET)
    except BaseException:
        os.close(handle)
        raise
    return handle
