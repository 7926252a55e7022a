"""Which repository is the one of a workspace: the one that lies whole in its own directory `.git`, or none.

A repository can say that it is another one (`.git` as a file, `commondir`, `alternates`,
links): its files would be brought in here, or written there. So git is never left to
look for one, above the workspace least of all; it is told where this one lies.

A work tree that the runtime made (`worktrees.py`) borrows the objects of the repository
above, and says so with one line that is known.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final

from actors.agents.worktrees import FOLDER
from actors.errors import ToolFailed
from actors.tools.paths import Workspace, shown
from actors.tools.whole_files import opened, read_bytes

# What a work tree borrows objects from, as seen from its own.
BORROWED: Final = b"../../../../.git/objects\n"
ALTERNATES: Final = "objects/info/alternates"
MOST_REFS: Final = 50_000
_ELSEWHERE: Final = ("commondir", "objects/info/http-alternates")
_OF_LINKS: Final = ("refs", "logs", "info")


def whole_repository(workspace: Workspace) -> str:
    """Give where the repository of a workspace lies.

    Raises:
        ToolFailed: it has none, or one that does not lie in it as a whole.
    """
    git_dir = f"{workspace.root}/.git"
    try:
        found = os.lstat(git_dir)
    except OSError:
        raise ToolFailed("the workspace is not the top of a git repository") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ToolFailed("the repository of the workspace lies elsewhere (its .git is no directory)")
    borrows = is_there(f"{git_dir}/{ALTERNATES}") and not _is_ours(workspace)
    for name in (*_ELSEWHERE, *([ALTERNATES] if borrows else [])):
        if is_there(f"{git_dir}/{name}"):
            raise ToolFailed(f"the repository of the workspace has files that lie elsewhere (.git/{name})")
    link = next(_links(git_dir), None)
    if link is not None:
        raise ToolFailed(f"the repository of the workspace has files that lie elsewhere ({shown(link)} is a link)")
    return git_dir


def is_there(path: str) -> bool:
    """Tell whether something lies at a path, be it a link that leads nowhere."""
    return os.path.lexists(path)


def _is_ours(workspace: Workspace) -> bool:
    """Tell whether this is a work tree of a workspace above, which borrows from there and from nowhere else."""
    if os.path.basename(os.path.dirname(workspace.root)) != FOLDER:
        return False
    with opened(workspace, f".git/{ALTERNATES}") as descriptor:
        return descriptor is not None and read_bytes(descriptor, len(BORROWED)) == BORROWED


def _links(git_dir: str) -> Iterator[str]:
    """Find the links through which files of others would be this one's: of refs, logs, settings and objects."""
    # Hooks and the like are not looked at: nothing of them is run or written.
    pending = [entry for entry in _entries(git_dir) if not entry.is_dir(follow_symlinks=False)]
    pending += [entry for entry in _entries(git_dir) if entry.name in _OF_LINKS]
    # What cannot be listed holds nothing for git either.
    for entry in [each for each in _entries(git_dir) if each.name == "objects"]:
        pending += [entry] if entry.is_symlink() else _entries(entry.path)
    left = MOST_REFS
    while pending:
        entry = pending.pop()
        if entry.is_symlink():
            yield f".git{entry.path.removeprefix(git_dir)}"
        elif entry.is_dir(follow_symlinks=False):
            below = _entries(entry.path)
            if entry.path.startswith(f"{git_dir}/objects/"):
                # Nothing lies deeper: these may be very many, and only links among them matter.
                below = [each for each in below if each.is_symlink()]
            left -= len(below)
            if left < 0:
                raise ToolFailed("the repository of the workspace has too many refs to be looked through")
            pending += below


def _entries(place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as listed:
            return list(listed)
    except OSError:
        return []
