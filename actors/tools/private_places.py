"""Private directories of commands: one for each boundary, locked by whoever made it, and cleared when he is gone.

What would be got wrong:

- A process that is killed removes nothing. A later one does, and must not take a
  directory away from one that lives. So whoever makes one holds a lock on it, which
  the kernel gives up with its process, whatever ends that; a number of a process
  could be somebody else's by then, or be counted in another namespace.
- A command sees its directory, and may open and lock what it sees. It can keep its own
  directory from being cleared in this way, and nothing else.
- The place for such directories is everybody's. Only what is ours is looked at, through
  a handle, and a link is passed by.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import attrs
import trio

from actors.tools.removing import remove_directory

PREFIX: Final = "actors-tmp-"
# Where nothing can be locked (some network file systems), nobody can tell whether its maker lives.
UNLOCKED: Final = "actors-unlocked-"
# So many names and directories are looked at, and so many entries of each removed, in one start, and no longer than
# so many seconds: a command waits for it. The next start goes on.
MOST_NAMES: Final = 20_000
MOST_LEFT: Final = 100
MOST_REMOVED: Final = 50_000
MOST_SECONDS: Final = 2.0
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_cleared: Final[set[str]] = set()


@attrs.frozen
class PrivatePlace:
    """A directory for one boundary; ``handle`` holds the lock, and is none where nothing can be locked."""

    path: str
    handle: int | None

    async def remove(self) -> None:
        """Remove it with all that is in it, and let the lock go.

        Cancellation: not while it is removed; what cannot be removed stays.
        """
        try:
            # Most commands leave nothing there.
            os.rmdir(self.path)
        except OSError:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(remove_directory, self.path)
        finally:
            if self.handle is not None:
                os.close(self.handle)


async def private_place() -> PrivatePlace:
    """Make one. The first in a place removes what processes left there that are gone, for two seconds at most.

    Cancellation: none was made. It is heard when nothing is removed any more.

    Raises:
        OSError: none can be made.
    """
    base = _base()
    if base not in _cleared:
        await trio.to_thread.run_sync(remove_left, base)
        _cleared.add(base)
    return _made(base)


def _base() -> str:
    return os.path.realpath(tempfile.gettempdir())


def _made(base: str) -> PrivatePlace:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=base)
        try:
            handle = os.open(path, _OPEN)
        except FileNotFoundError:
            # As below, before it could be opened.
            continue
        except OSError:
            os.rmdir(path)
            raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, handle):
                return PrivatePlace(path, handle)
        except BlockingIOError:
            # Somebody takes it for one that was left, in this very moment; an empty one is soon removed.
            pass
        except OSError:
            os.close(handle)
            os.rmdir(path)
            return PrivatePlace(tempfile.mkdtemp(prefix=UNLOCKED, dir=base), None)
        os.close(handle)


def _is_at(path: str, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def remove_left(base: str, now: Callable[[], float] = time.monotonic) -> None:
    """Remove the directories of processes that are gone, as far as that goes; what lives is left alone."""
    end = now() + MOST_SECONDS
    with_our_name = (name for name in _names(base) if name.startswith(PREFIX))
    for name in islice(with_our_name, MOST_LEFT):
        if now() >= end:
            return
        _remove_if_left(os.path.join(base, name), lambda: now() >= end)


def _names(base: str) -> Iterator[str]:
    try:
        with os.scandir(base) as entries:
            yield from [entry.name for entry in islice(entries, MOST_NAMES)]
    except OSError:
        return


def _remove_if_left(path: str, is_late: Callable[[], bool]) -> None:
    try:
        handle = os.open(path, _OPEN)
    except OSError:
        # A link, no directory, somebody else's, or gone.
        return
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):
            remove_directory(path, MOST_REMOVED, is_late)
    except OSError:
        # Its maker lives, or nothing can be locked here.
        return
    finally:
        os.close(handle)
