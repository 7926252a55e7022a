"""Going through a workspace: everything in it once, in order, never through a link.

The walk gives way after each directory, so it needs no thread: it can be
cancelled, and holds nobody up. It ends after `MOST_SEEN` entries and says so.
"""

import os
import stat
from typing import Final

import attrs
import trio

from actors.agents.entry_text import clean
from actors.agents.judging import FileText, Kept
from actors.agents.ports import ToolContext
from actors.agents.worktrees import FOLDER
from actors.errors import ToolFailed
from actors.tools.paths import Workspace

# Work trees of children are left out too: what they do there is theirs until it is merged.
SKIPPED_DIRECTORIES: Final = frozenset({".git", ".actors", "target", "node_modules", FOLDER})
MOST_SEEN: Final = 100_000
# Files that one command may be told to have changed.
MOST_NOTED: Final = 200
_SLICE: Final = 1_000


@attrs.frozen
class Entry:
    """One thing in the workspace; ``relative`` may hold surrogate escapes where a name is no UTF-8."""

    relative: str
    is_directory: bool
    is_link: bool


@attrs.frozen
class Walk:
    """Everything that was found, sorted by path, and whether that is all.

    ``unlisted`` counts directories that could not be looked into: they vanished, may
    not be read, or were turned into a link meanwhile.
    """

    entries: tuple[Entry, ...]
    complete: bool
    unlisted: int = 0


async def walk(workspace: Workspace, most: int = MOST_SEEN) -> Walk:
    """Go through the workspace, leaving out version control, build directories and work trees of children.

    What vanishes or cannot be listed on the way is passed over, and counted.

    Cancellation: nothing is left open.
    """
    found: list[Entry] = []
    unlisted = 0
    pending = ["."]
    while pending:
        here = pending.pop()
        try:
            with workspace.directory(here) as descriptor, os.scandir(descriptor) as entries:
                below = []
                for entry in entries:
                    below.append(_entry(here, entry))
                    if len(found) + len(below) > most:
                        return Walk(_sorted(found + below[:-1]), complete=False, unlisted=unlisted)
                    if len(below) % _SLICE == 0:
                        await trio.lowlevel.checkpoint()
        except (OSError, ToolFailed):
            # The root itself must be there; anything below may vanish under a walk.
            if here == ".":
                raise
            unlisted += 1
            continue
        found += below
        pending += [
            each.relative
            for each in below
            if each.is_directory and os.path.basename(each.relative) not in SKIPPED_DIRECTORIES
        ]
        await trio.lowlevel.checkpoint()
    return Walk(_sorted(found), complete=True, unlisted=unlisted)


def _entry(here: str, entry: "os.DirEntry[str]") -> Entry:
    relative = entry.name if here == "." else f"{here}/{entry.name}"
    return Entry(relative, entry.is_dir(follow_symlinks=False), entry.is_symlink())


def _sorted(found: list[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(found, key=lambda each: each.relative))


Marks = frozenset[tuple[str, int, int, int, int]]


async def note_changes(context: ToolContext, before: Marks | None, after: Marks | None) -> None:
    """Note for whoever reviews which files a command changed: what they held is gone, unless they were not there.

    Cancellation: some may not be noted.
    """
    if before is None or after is None:
        await context.touch(".", lambda: FileText(Kept.unkept, "a command ran here, and nobody could see its changes"))
        return
    had = {mark[0] for mark in before}
    changed = sorted({mark[0] for mark in before ^ after})
    if len(changed) > MOST_NOTED:
        text = f"a command changed {len(changed)} files here, and {MOST_NOTED} of them are named"
        await context.touch(".", lambda: FileText(Kept.unkept, text))
    for path in changed[:MOST_NOTED]:
        await context.touch(clean(path), _gone if path in had else _absent)


def _gone() -> FileText:
    return FileText(Kept.unkept, "a command changed it, and nobody had read it before")


def _absent() -> FileText:
    return FileText(Kept.absent)


async def marks(workspace: Workspace, most: int) -> Marks | None:
    """Take a mark of each file (path, size, times, number), to see later whether something changed.

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
            # A command can put the time of a change back, but not the time at which it did that.
            found.add((each.relative, mark.st_size, mark.st_mtime_ns, mark.st_ctime_ns, mark.st_ino))
    return frozenset(found) if seen.complete else None
