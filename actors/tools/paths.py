"""The path guard: nothing a model names leads out of the workspace.

A path is walked component by component on open directory descriptors, and no
component is ever followed by the kernel: a link is read, and walked again from
the root in its place. What is opened at the end is opened on the descriptor of
its directory, without following, so a link that is swapped in after the check
leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from actors.errors import ToolFailed

# Links in one path; more is a circle.
MOST_LINKS: Final = 40
MOST_CHARACTERS: Final = 4096

_DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE: Final = frozenset({errno.ENOENT})


def nothing_between() -> None:
    """Stand between the check and the opening; a test swaps a link in here."""


# The seam between looking at a path and opening it.
between: Callable[[], None] = nothing_between


@attrs.frozen
class Located:
    """A path that lies in the workspace. ``relative`` has no links, ``.`` or ``..`` left in it; the root is ``.``."""

    root: str
    relative: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Give the components below the root."""
        return () if self.relative == "." else tuple(self.relative.split("/"))


def locate(root: str, path: str) -> Located:
    """Resolve a path that a model named, without leaving ``root``.

    The target need not exist; then what exists of the way has been walked.

    Raises:
        ToolFailed: it leaves the workspace, or is no path.
    """
    waiting = list(reversed(_split(root, path)))
    walked: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            if not walked:
                raise ToolFailed(f"{path!r} leads out of the workspace")
            walked.pop()
            continue
        target = _link_at(root, walked, part)
        if target is None:
            walked.append(part)
            continue
        links += 1
        if links > MOST_LINKS:
            raise ToolFailed(f"{path!r} goes through too many links")
        if target.startswith("/"):
            walked = []
            if not (target == root or target.startswith(root.rstrip("/") + "/")):
                raise ToolFailed(f"{path!r} leads out of the workspace by a link")
        waiting.extend(reversed(_split(root, target)))
    return Located(root, "/".join(walked) or ".")


def _split(root: str, path: str) -> list[str]:
    if not path or len(path) > MOST_CHARACTERS:
        raise ToolFailed("a path must be a text of 1 to 4096 characters")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise ToolFailed("a path must not hold control characters")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ToolFailed("a path must be valid text") from None
    if path.startswith("/"):
        inside = root.rstrip("/")
        if path != inside and not path.startswith(inside + "/"):
            raise ToolFailed(f"{path!r} lies outside the workspace; use a path relative to it")
        path = path[len(inside) :]
    return [part for part in path.split("/") if part not in ("", ".")]


def _link_at(root: str, walked: list[str], part: str) -> str | None:
    """Read the link at a place, None when there is no link or nothing at all."""
    try:
        with _opened_dir(root, walked) as folder:
            if not stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                return None
            return os.readlink(part, dir_fd=folder)
    except OSError as error:
        # What is not there yet has no links; a file in the middle is told by whoever opens it.
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise ToolFailed(f"{'/'.join((*walked, part))}: {error.strerror}") from None


@contextmanager
def _opened_dir(root: str, parts: list[str] | tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """Open a directory below the root, component by component, following nothing.

    Raises:
        OSError: it is not there, no directory, or a link was swapped in.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                try:
                    os.mkdir(part, dir_fd=folder)
                except FileExistsError:
                    pass
            below = os.open(part, _DIR_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def folder_of(place: Located, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory that holds a place; give its descriptor and the last name.

    Raises:
        ToolFailed: it is the root itself, or its directory cannot be opened.
    """
    if not place.parts:
        raise ToolFailed("the workspace itself is a directory")
    between()
    try:
        with _opened_dir(place.root, place.parts[:-1], make=make) as folder:
            yield folder, place.parts[-1]
    except OSError as error:
        raise failed(place.relative, error) from None


def open_read(place: Located) -> int | None:
    """Open a file for reading; None when there is nothing. The caller closes it.

    Raises:
        ToolFailed: it is no regular file, or a link was swapped in.
    """
    try:
        with folder_of(place) as (folder, name):
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except ToolFailed as error:
        if isinstance(error.__context__, OSError) and error.__context__.errno in _GONE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ToolFailed(f"{place.relative} is not a file")
    return handle


def read_bytes(place: Located, limit: int) -> bytes | None:
    """Read at most ``limit`` + 1 bytes of a file; None when there is nothing.

    Raises:
        ToolFailed: it cannot be read.
    """
    handle = open_read(place)
    if handle is None:
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(limit + 1)


def size_of(place: Located) -> int:
    """Give the size of a file in bytes; 0 when there is nothing."""
    handle = open_read(place)
    if handle is None:
        return 0
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def replace(place: Located, content: bytes) -> None:
    """Put a whole file in place in one step, with missing directories; keep the mode of the one that was there.

    Raises:
        ToolFailed: it cannot be written; what was there is as it was.
    """
    with folder_of(place, make=True) as (folder, name):
        mode = _mode_of(folder, name)
        temporary = f".{name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(content)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise


def _mode_of(folder: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailed(f"{name} is a directory")
    return stat.S_IMODE(found.st_mode)


@contextmanager
def listed(place: Located) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a directory and list it, following nothing.

    Raises:
        ToolFailed: it is no directory, or not there.
    """
    between()
    try:
        with _opened_dir(place.root, place.parts) as folder, os.scandir(folder) as entries:
            yield entries
    except OSError as error:
        raise failed(place.relative, error) from None


def failed(relative: str, error: OSError) -> ToolFailed:
    """Say what is wrong with a path, in a line that a model can act on."""
    if error.errno == errno.ELOOP:
        return ToolFailed(f"{relative}: a link stands where none was; it is not followed")
    return ToolFailed(f"{relative}: {error.strerror}")
