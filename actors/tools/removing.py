"""Removing directories that commands have filled: iteratively, through handles, and never through a link.

What would be got wrong:

- A command can nest directories deeper than a recursion goes or a path may be long. So
  what lies in a directory is lifted up beside it, and nothing is ever looked at more
  than two levels down.
- A command can take its own rights to a directory away. They are given back here.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable
from itertools import count, islice
from typing import Final

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE: Final = 1_000


def _never() -> bool:
    return False


def remove_directory(path: str, most: int = sys.maxsize, is_late: Callable[[], bool] = _never) -> bool:
    """Remove a directory and all in it, at most so many entries, and none any more when it is late.

    Tells whether it is gone.
    """
    try:
        # Most commands leave nothing there.
        os.rmdir(path)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    try:
        _is_given(path)
        handle = os.open(path, _OPEN)
    except OSError:
        return False
    try:
        _Emptying(handle, most, is_late).run()
        os.rmdir(path)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


class _Emptying:
    """The emptying of one open directory."""

    def __init__(self, top: int, most: int, is_late: Callable[[], bool]) -> None:
        self._top = top
        self._left = most
        self._is_late = is_late
        self._numbers = count()

    def run(self) -> None:
        """Remove what can be removed, until nothing is left or nothing more goes.

        Raises:
            OSError: the directory cannot be listed.
        """
        while self._left > 0:
            names = self._names(self._top)
            gone = [self._is_gone(name, is_directory) for name, is_directory in names]
            # A pass in which nothing went would be followed by the same one.
            if not any(gone):
                return

    def _names(self, handle: int) -> list[tuple[str, bool]]:
        with os.scandir(handle) as entries:
            return [(each.name, each.is_dir(follow_symlinks=False)) for each in islice(entries, _AT_ONCE)]

    def _is_gone(self, name: str, is_directory: bool) -> bool:
        if not self._is_counted():
            return False
        try:
            if is_directory:
                return self._lifted(name)
            os.unlink(name, dir_fd=self._top)
        except OSError:
            return False
        return True

    def _is_counted(self) -> bool:
        """Take one entry from those that may be removed; tell whether there was one left."""
        if self._left <= 0 or self._is_late():
            self._left = 0
            return False
        self._left -= 1
        return True

    def _lifted(self, name: str) -> bool:
        """Remove a directory in the top one, when all in it is removed or lifted; tell whether anything went."""
        handle = self._entered(name)
        went = False
        try:
            while self._left > 0 and (below := self._names(handle)):
                done = [self._is_lifted(handle, each, is_directory) for each, is_directory in below]
                went = went or any(done)
                if not any(done):
                    break
        finally:
            os.close(handle)
        try:
            os.rmdir(name, dir_fd=self._top)
        except OSError:
            return went
        return True

    def _entered(self, name: str) -> int:
        try:
            return os.open(name, _OPEN, dir_fd=self._top)
        except PermissionError:
            if not _is_given(name, self._top):
                raise
        return os.open(name, _OPEN, dir_fd=self._top)

    def _is_lifted(self, handle: int, name: str, is_directory: bool) -> bool:
        if not self._is_counted():
            return False
        try:
            if is_directory:
                os.rename(name, f".lifted-{next(self._numbers)}", src_dir_fd=handle, dst_dir_fd=self._top)
            else:
                os.unlink(name, dir_fd=handle)
        except PermissionError:
            # Something may be taken out of neither, or put into the other.
            return _is_given(".", handle) or (is_directory and _is_given(name, handle))
        except OSError as error:
            # A name that is taken: the next number is another one.
            return is_directory and error.errno in (errno.EEXIST, errno.ENOTEMPTY)
        return True


def _is_given(name: str, above: int | None = None) -> bool:
    """Give all rights to a directory of ours back, and tell whether one was missing.

    A link is none, and nobody who could put one there lives any more.

    Raises:
        OSError: they cannot be given.
    """
    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
        return False
    os.chmod(name, stat.S_IRWXU, dir_fd=above)
    return True
