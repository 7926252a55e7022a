"""What a command left behind: finding it in /proc, and ending it.

A process can leave its group, its session and its parent, each by one call, and
it can start another one with an empty environment. So a process belongs to a
command when any of these holds: it is in the session of the command, it
descends from it, it carries the command's mark in its environment, or it can
still write to the command's output. Who sheds all four at once is not found;
only a sandbox would hold it.

Where there is no /proc, only the process group is ended.
"""

import os
import re
import signal
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

MARK: Final = "ACTORS_COMMAND"
# A killed process is gone at once, unless the kernel holds it.
KILL_SECONDS: Final = 2.0
_PAUSE: Final = 0.003
_MOST_DESCENDANTS: Final = 10_000
_PROC: Final = Path("/proc")
_MARKED: Final = re.compile(rb"(?:^|\x00)" + MARK.encode() + rb"=([^\x00]*)")

T = TypeVar("T")


def new_mark(token: str) -> str:
    """Make the mark of a command. It begins with our own, if we are somebody's command ourselves.

    So whoever ends us finds also what we started, even when we were killed first.
    """
    outer = os.environ.get(MARK)
    return f"{outer}/{token}" if outer else token


@attrs.frozen
class Seen:
    """One process as it stood at one moment. ``dead`` ones wait to be reaped."""

    number: int
    parent: int
    session: int
    dead: bool
    mark: bytes

    def carries(self, mark: bytes) -> bool:
        """Whether it was started by the command with this mark, or by one that such a command runs."""
        return self.mark == mark or self.mark.startswith(mark + b"/")


def has_proc() -> bool:
    """Tell whether processes can be looked at here."""
    return (_PROC / "self" / "stat").exists()


def kill_group(leader: int) -> None:
    """Kill a process group, if there is one."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_all(numbers: Iterable[int]) -> None:
    """Kill processes; those that are gone, or are not ours to kill, are passed over."""
    for number in numbers:
        try:
            os.kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def descendants(leader: int) -> list[int]:
    """Find who descends from a process, now. After a kill nobody can be found so: orphans change their parent."""
    found: list[int] = []
    pending = [leader]
    while pending and len(found) < _MOST_DESCENDANTS:
        below = _children(pending.pop())
        found += below
        pending += below
    return found


def _children(number: int) -> list[int]:
    below: list[int] = []
    try:
        for task in (_PROC / str(number) / "task").iterdir():
            below += map(int, (task / "children").read_bytes().split())
    except OSError:
        # It ended meanwhile, or this kernel keeps no such list.
        pass
    return below


async def end(leaders: frozenset[int], mark: str, began_with: Iterable[int]) -> tuple[int, ...]:
    """Kill all of the commands that carry one mark until nothing of them lives; give those that would not die.

    ``began_with`` are processes that are known to belong to them. The leaders themselves
    must not be reaped yet: so long their numbers, and those of their sessions, are taken.

    Cancellation: what was found was killed; whether more is left is unknown.
    """
    known = set(began_with)
    # Before the first look, which takes a while.
    kill_all(known)
    living: set[int] = set()
    with trio.move_on_after(KILL_SECONDS):
        while True:
            table = await _census()
            living = _members(table, leaders, mark.encode(), known)
            if not living:
                break
            known |= living
            kill_all(living)
            # Who was forked while we looked is found in the next round.
            await trio.sleep(_PAUSE)
    return tuple(sorted(living))


def _members(table: tuple[Seen, ...], leaders: frozenset[int], mark: bytes, known: set[int]) -> set[int]:
    """Pick the living ones of a command. Dead ones that fell to us are reaped on the way."""
    living = set()
    for each in table:
        ours = each.number in known or each.session in leaders or each.carries(mark)
        if not ours or each.number in leaders:
            continue
        if not each.dead:
            living.add(each.number)
        elif each.parent == os.getpid():
            # We are process 1 of a container, or a subreaper: nobody else would.
            _reap(each.number)
    return living


def _reap(number: int) -> None:
    try:
        os.waitpid(number, os.WNOHANG)
    except ChildProcessError:
        return


async def writers(pipe: str) -> list[int]:
    """Find who can still write to a pipe or a file, given as /proc names it; never ourselves.

    Cancellation: nothing was found.
    """
    own = os.getpid()
    return await _in_thread(lambda: [number for number in _numbers() if number != own and _writes(number, pipe)])


async def living(program: str) -> list[int]:
    """Find the live processes of a program, by the name that the kernel has of it.

    Cancellation: nothing was found.
    """
    return await _in_thread(lambda: [number for number in _numbers() if _runs(number, program)])


def _runs(number: int, program: str) -> bool:
    try:
        name, _, rest = (_PROC / str(number) / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == program and rest.split()[:1] != ["Z"]


def _writes(number: int, pipe: str) -> bool:
    try:
        for handle in (_PROC / str(number) / "fd").iterdir():
            # The right to write on the link tells the direction: a fork of ours that
            # is about to start something else holds the other end for a moment.
            if os.readlink(handle) == pipe and os.lstat(handle).st_mode & 0o200:
                return True
    except OSError:
        pass
    return False


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


# ── one look at all processes, shared by all who asked before it began ─────


@attrs.define
class _Census:
    """The last look. With many commands ending at once, each would else look at the processes of all."""

    lock: trio.Lock = attrs.Factory(trio.Lock)
    tickets: Callable[[], int] = attrs.Factory(lambda: count().__next__)
    begun: int = -1
    table: tuple[Seen, ...] = ()


_shared: trio.lowlevel.RunVar[_Census] = trio.lowlevel.RunVar("actors.tools.leftovers")


async def _census() -> tuple[Seen, ...]:
    """Look at all processes, at a moment after this was called."""
    try:
        shared = _shared.get()
    except LookupError:
        shared = _Census()
        _shared.set(shared)
    asked = shared.tickets()
    async with shared.lock:
        if shared.begun < asked:
            begun = shared.tickets()
            shared.table = await _in_thread(_table)
            shared.begun = begun
        return shared.table


async def _in_thread(work: Callable[[], T]) -> T:
    # Abandoned when the time is over: reading about a process that the kernel holds may block for ever.
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))


def _table() -> tuple[Seen, ...]:
    return tuple(seen for number in _numbers() if (seen := _seen(number)) is not None)


def _seen(number: int) -> Seen | None:
    place = _PROC / str(number)
    try:
        # The name of the program stands in parentheses and may hold anything, parentheses too.
        state, parent, _, session, *_ = (place / "stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return None
    dead = state in (b"Z", b"X")
    return Seen(number, int(parent), int(session), dead, b"" if dead else _mark_of(place))


def _mark_of(place: Path) -> bytes:
    try:
        found = _MARKED.search((place / "environ").read_bytes())
    except OSError:
        # Of another user, a kernel thread, or gone.
        return b""
    return b"" if found is None else found[1]
