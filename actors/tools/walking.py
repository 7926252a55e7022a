"""Going through a workspace: everything in it once, in order, never through a link.

The walk gives way after each directory, so it needs no thread: it can be
cancelled, and holds nobody up. It ends after `MOST_SEEN` entries and says so.
"""

import os
import stat
from typing import Final

import attrs
import trio

from actors.errors import ToolFailed
from actors.tools.paths import Workspace

SKIPPED_DIRECTORIES: Final = frozenset({".git", "target", "node_modules"})
MOST_SEEN: Final = 100_000
_SLICE: Final = 1_000


@attrs.frozen
class Entry:
    """One thing in the workspace; ``relative`` may hold surrogate escapes where a name is no UTF-8."""

    relative: str
    is_directory: bool
    is_link: bool


@attrs.frozen
class Walk:
    """Everything that was found, sorted by path, and whether that is all."""

    entries: tuple[Entry, ...]
    complete: bool


async def walk(workspace: Workspace, most: int = MOST_SEEN) -> Walk:
    """Go through the workspace, leaving out version control and build directories.

    What vanishes or cannot be listed on the way is passed over.

    Cancellation: nothing is left open.
    """
    found: list[Entry] = []
    pending = ["."]
    while pending:
        here = pending.pop()
        try:
            with workspace.directory(here) as descriptor, os.scandir(descriptor) as entries:
                below = []
                for entry in entries:
                    below.append(_entry(here, entry))
                    if len(found) + len(below) > most:
                        return Walk(_sorted(found + below[:-1]), complete=False)
                    if len(below) % _SLICE == 0:
                        await trio.lowlevel.checkpoint()
        except (OSError, ToolFailed):
            # The root itself must be there; anything below may vanish under a walk.
            if here == ".":
                raise
            continue
        found += below
        pending += [
            each.relative
            for each in below
            if each.is_directory and os.path.basename(each.relative) not in SKIPPED_DIRECTORIES
        ]
        await trio.lowlevel.checkpoint()
    return Walk(_sorted(found), complete=True)


def _entry(here: str, entry: "os.DirEntry[str]") -> Entry:
    relative = entry.name if here == "." else f"{here}/{entry.name}"
    return Entry(relative, entry.is_dir(follow_symlinks=False), entry.is_symlink())


def _sorted(found: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(found, key=lambda each: each.relative))


async def marks(workspace: Workspace, most: int) -> frozenset[tuple[str, int, int, int]] | None:
    """Take a mark of each file (path, size, time, number), to see later whether something changed.

    None when there are more than ``most`` entries, or the workspace is gone: then nobody knows.

    Cancellation: nothing is left open.
    """
    try:
        seen = await walk(workspace, most)
    except (OSError, ToolFailed):
        return None
    found = set()
    for place, each in enumerate(seen.entries):
        if place % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        try:
            mark = os.lstat(f"{workspace.root}/{each.relative}")
        except OSError:
            continue
        if not stat.S_ISDIR(mark.st_mode):
            found.add((each.relative, mark.st_size, mark.st_mtime_ns, mark.st_ino))
    return frozenset(found) if seen.complete else None
