"""One file on an open directory: read as a whole, or replaced as a whole.

A replacement is written beside the file and renamed over it, so whoever reads
sees the old bytes or the new ones. A rename never follows a link. It is safe
against a killed process; against a power cut it is not (nothing is synced).

What a killed process left beside a file is named after the call that wrote it,
so that the same call, run again, takes it away: no other call may, and a file
that nobody takes away would be read by the next search.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from actors.errors import ToolFailed
from actors.tools.paths import Workspace, failing, shown

_BASE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextmanager
def opened(workspace: Workspace, relative: str) -> Iterator[int | None]:
    """Open a regular file at a resolved path for reading; give None when there is none.

    Raises:
        ToolFailed: it is a directory or a device, it may not be read, or it was swapped for a link.
    """
    with failing(relative):
        try:
            with workspace.parent(relative) as (above, name):
                descriptor = open_regular(above, name, os.O_RDONLY, workspace.between)
        except FileNotFoundError:
            descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_regular(above: int, name: str, flags: int, between: Callable[[str], None]) -> int | None:
    """Open a regular file in a directory without following; None when there is none."""
    try:
        # Looked at before it is opened: opening a device may do something.
        _need_regular(name, os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
        between(name)
        descriptor = os.open(name, flags | _BASE, dir_fd=above)
    except FileNotFoundError:
        return None
    try:
        _need_regular(name, os.fstat(descriptor).st_mode)
    except ToolFailed:
        os.close(descriptor)
        raise
    return descriptor


def _need_regular(name: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise ToolFailed(f"{shown(name)} is a directory; list_dir shows what is in it")
    if stat.S_ISLNK(mode):
        raise ToolFailed(f"{shown(name)} was turned into a link meanwhile; it is not followed")
    raise ToolFailed(f"{shown(name)} is no regular file")


def read_bytes(descriptor: int, most: int) -> bytes | None:
    """Read an open file whole, None when it holds more than ``most`` bytes."""
    if os.fstat(descriptor).st_size > most:
        return None
    parts: list[bytes] = []
    left = most + 1
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts) if left > 0 else None


def digest(data: bytes) -> str:
    """Name bytes by what they are."""
    return hashlib.sha256(data).hexdigest()


def holds(workspace: Workspace, relative: str, data: bytes) -> bool:
    """Tell whether a file holds exactly ``data`` now.

    Raises:
        ToolFailed: as `opened`.
    """
    with opened(workspace, relative) as descriptor:
        return descriptor is not None and read_bytes(descriptor, len(data)) == data


def replace_bytes(
    above: int, name: str, data: bytes, between: Callable[[str], None], *, key: str, expected: bytes | None = None
) -> bool:
    """Make ``data`` the content of a file in an open directory; tell whether a byte changed.

    With ``expected`` the file must still hold exactly that. Rights and owner of an
    existing file are kept. On any error the file is as it was. ``key`` is the call's
    (`ToolContext.key`): what a killed process left of this very call is taken away.

    Raises:
        ToolFailed: it is no regular file, or holds something else than expected.
        OSError: the system refused; a file that may not be written is not replaced either.
    """
    beside = _beside(name, key)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=above)
    present = open_regular(above, name, os.O_RDWR, between)
    if present is None:
        if expected is not None:
            raise ToolFailed(f"{shown(name)} was removed meanwhile; look again")
        _swap_in(above, name, beside, data, None)
        return True
    try:
        found = os.fstat(present)
        if expected is not None and read_bytes(present, len(expected)) != expected:
            raise ToolFailed(f"{shown(name)} was changed by somebody else meanwhile; read it again")
        os.lseek(present, 0, os.SEEK_SET)
        if found.st_size == len(data) and read_bytes(present, len(data)) == data:
            return False
    finally:
        os.close(present)
    _swap_in(above, name, beside, data, found)
    return True


def _beside(name: str, key: str) -> str:
    # Short: the real one may be as long as names can be.
    return f".{digest(f'{key} {name}'.encode(errors='surrogatepass'))[:16]}.tmp"


def _swap_in(above: int, name: str, beside: str, data: bytes, found: os.stat_result | None) -> None:
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BASE, 0o666, dir_fd=above)
    try:
        try:
            _write_all(descriptor, data)
            if found is not None:
                _keep_rights(descriptor, found)
        finally:
            os.close(descriptor)
        os.replace(beside, name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        os.unlink(beside, dir_fd=above)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _keep_rights(descriptor: int, found: os.stat_result) -> None:
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        try:
            os.fchown(descriptor, found.st_uid, found.st_gid)
        except PermissionError:
            # Only root may give files away; the file is ours then, as with any editor.
            pass
    # Not the right to run as its owner or group: it was given for other bytes, and the system takes it at a write too.
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
