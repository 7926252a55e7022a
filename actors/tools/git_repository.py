"""Which repository is the one of a workspace: the one that lies whole in its own directory `.git`, or none.

A repository can say that it is another one (`.git` as a file, `commondir`, `alternates`,
links): its files would be brought in here, or written there. So git is never left to
look for one, above the workspace least of all; it is told where this one lies.

Nor is git let open what is no file: a pipe in place of one would hold it until its time is over.

A work tree that the runtime made (`worktrees.py`) borrows the objects of the repository
above, and says so with one line that is known.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.agents.worktrees import FOLDER
from actors.errors import ToolFailed
from actors.tools.paths import Workspace, shown
from actors.tools.whole_files import opened, read_bytes

# What a work tree borrows objects from, as seen from its own.
BORROWED: Final = b"../../../../.git/objects\n"
ALTERNATES: Final = "objects/info/alternates"
MOST_REFS: Final = 50_000
_ELSEWHERE: Final = ("commondir", "objects/info/http-alternates")
# Directories whose files git reads or writes for us.
_READ_IN: Final = ("refs", "logs", "info", "reftable", "rebase-merge", "rebase-apply", "sequencer")
# Files of the work that git reads by itself, in each directory.
_READ_BY_GIT: Final = frozenset({".gitattributes", ".gitignore", ".gitmodules"})
# So many entries of a workspace are looked at for them; beyond, the time-out of the call holds.
MOST_LOOKED_AT: Final = 5_000
# Of those, so many of one repository that lies below.
_MOST_BELOW: Final = 1_000
_NAMES_ANOTHER: Final = b"gitdir: "
_LONGEST_PATH: Final = 4_096
# What is in the folder of work trees, so that git passes all of it by.
ALL_IGNORED: Final = "*\n"


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
    odd = next(_no_files(git_dir), None)
    if odd is not None:
        path = shown(f".git{odd.path.removeprefix(git_dir)}")
        if odd.is_symlink():
            raise ToolFailed(f"the repository of the workspace has files that lie elsewhere ({path} is a link)")
        raise ToolFailed(f"{path} is no regular file, and git is not let open it; remove it")
    return git_dir


def unlisted_below(workspace: Workspace, paths: Sequence[str] = (".",)) -> int:
    """See that what git reads of the work by itself are files, and count the directories that cannot be listed.

    That is also what it looks at to see whether a directory is a repository of its own.

    Raises:
        ToolFailed: one is none; a pipe would hold git until its time is over.
    """
    # A link is to git a file of its own kind.
    named = [os.path.normpath(f"{workspace.root}/{path}") for path in paths]
    pending = [place for place in named if place == workspace.root or not os.path.islink(place)]
    unlisted, left = 0, MOST_LOOKED_AT
    for place in {workspace.root, *(above for path in paths for above in _above(workspace, path))}:
        _need_files(workspace, [f"{place}/{name}" for name in _READ_BY_GIT])
        left -= _need_repository_of_files(workspace, place, left)
    while pending and left > 0:
        place = pending.pop()
        try:
            with os.scandir(place) as listed:
                entries = list(islice(listed, left))
        except NotADirectoryError:
            continue
        except PermissionError:
            unlisted += 1
            continue
        except OSError:
            # It vanished.
            continue
        left -= len(entries)
        _need_files(workspace, [each.path for each in entries if each.name in _READ_BY_GIT])
        left -= _need_repository_of_files(workspace, place, left)
        below = [each.path for each in entries if each.is_dir(follow_symlinks=False) and each.name != ".git"]
        # Of work trees git reads only that they are to be left out, where that is said.
        folders = [path for path in below if os.path.basename(path) == FOLDER]
        _need_files(workspace, [f"{path}/.gitignore" for path in folders])
        passed = {path for path in folders if _start_of(f"{path}/.gitignore") == ALL_IGNORED.encode()}
        pending += [path for path in below if path not in passed]
    return unlisted


def _above(workspace: Workspace, path: str) -> Iterator[str]:
    """Name the directories between the root and a path."""
    parts = os.path.normpath(path).split("/")[:-1]
    return (f"{workspace.root}/{'/'.join(parts[:size])}" for size in range(1, len(parts) + 1))


# ── repositories below the one of the workspace ─────────────────────────────


def _need_repository_of_files(workspace: Workspace, place: str, left: int) -> int:
    """See that git can look whether a directory below the root is a repository; give how many entries were looked at.

    Raises:
        ToolFailed: it would wait there.
    """
    git = f"{place}/.git"
    if place == workspace.root or not is_there(git):
        return 0
    seen = 0
    for git_dir in _repositories(git):
        odd, number = _first_odd(git_dir, min(left - seen, _MOST_BELOW))
        seen += number
        if odd is not None:
            odd, inside = os.path.normpath(odd), f"{workspace.root}/"
            # What lies elsewhere is not named: nobody asked whether it may be.
            where = odd if odd.startswith(inside) else git
            why = "is" if where == odd else "names a repository in which something is"
            named = shown(where.removeprefix(inside))
            raise ToolFailed(f"{named} {why} no regular file, and git is not let open it; remove it")
    return seen


def _repositories(git: str) -> Iterator[str]:
    """Give the directories that a `.git` is, or names: its own, and the one that it shares with others."""
    own = git
    if not os.path.isdir(git):
        told = _start_of(git)
        if not told.startswith(_NAMES_ANOTHER):
            return
        own = _from(os.path.dirname(git), told.removeprefix(_NAMES_ANOTHER))
    yield own
    shared = _start_of(f"{own}/commondir")
    if shared:
        yield _from(own, shared)


def _from(place: str, written: bytes) -> str:
    return os.path.join(place, os.fsdecode(written.rstrip(b"\r\n").partition(b"\0")[0]))


def _first_odd(git_dir: str, most: int) -> tuple[str | None, int]:
    """Find what is no file among what git reads of another repository to know where it stands; links are followed."""
    pending, seen = [git_dir], 0
    while pending and seen < most:
        place = pending.pop()
        for entry in _entries(place):
            seen += 1
            try:
                mode = entry.stat().st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                pending += [entry.path] if place != git_dir or entry.name in ("refs", "reftable") else []
            elif not stat.S_ISREG(mode) and not stat.S_ISSOCK(mode):
                return entry.path, seen
    return None, seen


def _start_of(path: str) -> bytes:
    """Read how a file begins, without waiting for anybody; nothing of what is no file, or cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        # Somebody may have put a pipe there meanwhile, which then says that nothing is in it.
        return os.read(descriptor, _LONGEST_PATH)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def closed_note(policy: Policy, *paths: str) -> str:
    """Say which rule or default keeps git, as a command, from what it needs, and what to write; nothing for none."""
    for path in paths:
        decision = policy.explain(Act.read, path)
        if decision.effect is not Effect.allow:
            by = f"the default {decision.effect} of read"
            if decision.rule is not None:
                by = f"the rule {decision.effect} read {shown(decision.rule)} of layer {shown(decision.layer or '')}"
            wanted = path.partition("/")[0]
            remedy = f'allow read "{wanted}/*"' if decision.rule is None else "take it back"
            return f"; {by} closes {shown(path)} to commands, and so to git: {remedy}"
    return ""


def _need_files(workspace: Workspace, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            mode = os.stat(path, follow_symlinks=False).st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
            relative = shown(path.removeprefix(f"{workspace.root}/"))
            raise ToolFailed(f"{relative} is no regular file, and git is not let open it; remove it")


def is_there(path: str) -> bool:
    """Tell whether something lies at a path, be it a link that leads nowhere."""
    return os.path.lexists(path)


def _is_ours(workspace: Workspace) -> bool:
    """Tell whether this is a work tree of a workspace above, which borrows from there and from nowhere else."""
    if os.path.basename(os.path.dirname(workspace.root)) != FOLDER:
        return False
    with opened(workspace, f".git/{ALTERNATES}") as descriptor:
        return descriptor is not None and read_bytes(descriptor, len(BORROWED)) == BORROWED


def _no_files(git_dir: str) -> Iterator[os.DirEntry[str]]:
    """Find what is no file where git reads or writes one: a link, through which it would be another's, or a pipe."""
    # Hooks and the like are not looked at: nothing of them is run or written.
    pending = [entry for entry in _entries(git_dir) if not entry.is_dir(follow_symlinks=False)]
    pending += [entry for entry in _entries(git_dir) if entry.name in _READ_IN]
    # What cannot be listed holds nothing for git either.
    for entry in [each for each in _entries(git_dir) if each.name == "objects"]:
        pending += [entry] if entry.is_symlink() else _entries(entry.path)
    left = MOST_REFS
    while pending:
        entry = pending.pop()
        if entry.is_dir(follow_symlinks=False):
            below = _entries(entry.path)
            if entry.path.startswith(f"{git_dir}/objects/"):
                # These may be very many, and nearly all are files.
                below = [each for each in below if not each.is_file(follow_symlinks=False)]
            left -= len(below)
            if left < 0:
                raise ToolFailed("the repository of the workspace has too many refs to be looked through")
            pending += below
        elif not entry.is_file(follow_symlinks=False) and (entry.is_symlink() or not _is_socket(entry)):
            yield entry


def _is_socket(entry: os.DirEntry[str]) -> bool:
    """Tell whether something is a socket, which nobody can open: git keeps one of its monitor there."""
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        # It vanished.
        return True


def _entries(place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as listed:
            return list(listed)
    except OSError:
        return []
