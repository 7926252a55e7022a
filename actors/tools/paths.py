"""The path guard: what a model names is found without ever leaving the workspace.

What would be got wrong:

- A path is not a text to compare. It is walked, one part at a time, on open
  directory descriptors and without following; a link is read, and its target
  walked in the same way from where the link lies. What leads above the root is
  refused, and the refusal is the same whether or not anything is out there.
- Judging and opening are two moments, with a human's answer perhaps hours long
  between them. So `resolve` gives a path without any link in it, the policy is
  asked about that, and opening walks it again and follows nothing at all: what
  was turned into a link meanwhile is refused, not followed.
- A root may lie in another agent's workspace, below `.worktrees`. From there on its own
  path is walked without following too: whoever works above could put a link there.
- A command that the agent runs is not bound by this; only the sandbox can do that.

This needs the ``*at`` calls of POSIX.
"""

import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from actors.agents.entry_text import bounded, clean
from actors.agents.platform_names import HERE, Platform, path_problem
from actors.agents.worktrees import FOLDER
from actors.errors import ToolFailed

MOST_CHARACTERS: Final = 4_096
MOST_LINKS: Final = 40
# Links may multiply the parts of a path; forty long ones end here.
MOST_STEPS: Final = 1_000

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNENCODABLE: Final = re.compile("[\ud800-\udfff]")
# A directory that may be entered but not listed can be walked through too, where the system can say so.
_WALK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def shown(path: str) -> str:
    """Write a path for a message: clean, quoted, and not endless."""
    return f'"{bounded(_CONTROL.sub("?", clean(path)), 200)}"'


@contextmanager
def failing(path: str) -> Iterator[None]:
    """Turn every error of the system into one the model can read."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(f"{shown(path)}: {(error.strerror or str(error)).lower()}") from error


def _nothing(name: str) -> None:
    """Stand where a test swaps files between a look and an opening."""


class Workspace:
    """One directory that no path leads out of.

    ``between`` is called with a name after it was looked at and before it is
    opened; tests swap it there. ``platform`` says which names are refused.

    Example::

        workspace = Workspace("/srv/task")
        relative = workspace.resolve("notes/../a.txt")   # "a.txt"
        with workspace.parent(relative) as (descriptor, name):
            ...

    Raises:
        ToolFailed: the way to a work tree was turned into a link. And from every method, whatever the path;
            nothing is left open. Directories that ``create`` made stay, even when a deeper one could not be made.
    """

    def __init__(self, root: str, between: Callable[[str], None] = _nothing, platform: Platform = HERE) -> None:
        base, inside = _split_root(root)
        self._base = os.path.realpath(base)
        self._inside = inside
        self.root = "/".join((self._base.rstrip("/"), *inside)) if inside else self._base
        self.between = between
        self._platform = platform
        if inside and os.path.realpath(self.root) != self.root:
            # A command is started in it by its name.
            raise ToolFailed(f"the work tree {shown(root)} is a link by now, and links are not followed there")
        # Absolute paths and links may name the root as the operator did, or as it really is.
        self._prefixes = {self.root, os.path.abspath(root)}

    def resolve(self, path: str) -> str:
        """Find what a path means; give it relative to the root, without links, ``.`` for the root itself.

        What does not exist yet is resolved too, as far as it exists.
        """
        problem = _problem(path) or path_problem(path, self._platform)
        if problem is not None:
            raise ToolFailed(f"path {shown(path)} {problem}")
        with failing(path):
            found = "/".join(self._names(path)) or "."
        if found != ".":
            problem = _problem(found) or path_problem(found, self._platform)
            if problem is not None:
                # A link inside led there. The rules of a policy and the records are texts.
                raise ToolFailed(f"{shown(path)} leads to a name that {problem}")
        return found

    def _names(self, path: str) -> list[str]:
        pending = deque(self._parts(path, path))
        place = _Place(self, path)
        links = 0
        try:
            for _ in range(MOST_STEPS):
                if not pending:
                    return place.names
                part = pending.popleft()
                target = None if part == ".." else place.link(part)
                if part == "..":
                    place.up()
                elif target is None:
                    place.down(part)
                else:
                    links += 1
                    if links > MOST_LINKS:
                        raise ToolFailed(f"{shown(path)}: goes through more than {MOST_LINKS} links")
                    parts = self._parts(target, path)
                    if target.startswith("/"):
                        place.restart()
                    pending.extendleft(reversed(parts))
        finally:
            place.close()
        raise ToolFailed(f"{shown(path)}: has more than {MOST_STEPS} parts on its way")

    def _parts(self, path: str, asked: str) -> list[str]:
        """Split a path or a link's target; of an absolute one only what follows the root."""
        if path.startswith("/"):
            path = "/" + path.lstrip("/")
            for prefix in self._prefixes:
                if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                    path = path[len(prefix) :]
                    break
            else:
                raise outside(asked)
        return [part for part in path.split("/") if part not in ("", ".")]

    @contextmanager
    def parent(self, relative: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the directory of a resolved path, following nothing; give its descriptor and the last name.

        ``create`` makes the missing directories. Without it a missing one raises
        FileNotFoundError, which is the only error that is not a `ToolFailed`.
        """
        *names, last = _split(relative)
        descriptor = self.descend(names, create=create)
        try:
            yield descriptor, last
        finally:
            os.close(descriptor)

    @contextmanager
    def directory(self, relative: str) -> Iterator[int]:
        """Open a resolved directory for listing, following nothing."""
        names = [] if relative == "." else _split(relative)
        with failing(relative):
            above = self.descend(names[:-1])
            try:
                if names:
                    self.between(names[-1])
                descriptor = os.open(names[-1] if names else ".", _LIST, dir_fd=above)
            finally:
                os.close(above)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def descend(self, names: list[str], *, create: bool = False) -> int:
        """Walk down plain names, following nothing; the caller closes the descriptor."""
        descriptor = self._open_root()
        for name in names:
            try:
                below = self._enter(descriptor, name, create)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise ToolFailed(f"{shown('/'.join(names))}: {shown(name)} is not a directory") from error
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _open_root(self) -> int:
        try:
            descriptor = os.open(self._base, _WALK)
            for name in self._inside:
                above = descriptor
                try:
                    descriptor = self._enter(above, name, create=False)
                finally:
                    os.close(above)
        except OSError as error:
            raise ToolFailed(f"the workspace cannot be opened: {error.strerror}") from error
        return descriptor

    def _enter(self, descriptor: int, name: str, create: bool) -> int:
        if create:
            try:
                os.mkdir(name, dir_fd=descriptor)
            except FileExistsError:
                pass
        self.between(name)
        return os.open(name, _WALK, dir_fd=descriptor)


class _Place:
    """Where a walk stands: names from the root down, none of them a link, and a descriptor where one exists."""

    def __init__(self, workspace: Workspace, asked: str) -> None:
        self._workspace = workspace
        self._asked = asked
        self.names: list[str] = []
        self._on_file = False
        self._descriptor: int | None = workspace.descend([])

    def link(self, name: str) -> str | None:
        """Give where a link leads, None when it is no link or nothing at all."""
        if self._descriptor is None or self._on_file:
            return None
        try:
            if not stat.S_ISLNK(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode):
                return None
            return os.readlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None

    def down(self, name: str) -> None:
        """Go to a name that is no link; it need not exist."""
        self._needs_directory()
        self.names.append(name)
        if self._descriptor is None:
            return
        above, self._descriptor = self._descriptor, None
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                self._workspace.between(name)
                self._descriptor = os.open(name, _WALK, dir_fd=above)
            else:
                self._on_file = True
        except FileNotFoundError:
            pass
        finally:
            os.close(above)

    def up(self) -> None:
        """Go to the directory above, never above the root."""
        self._needs_directory()
        if not self.names:
            raise outside(self._asked)
        # Not by opening "..": a directory that was moved away meanwhile would lead elsewhere.
        self._stand(self.names[:-1])

    def restart(self) -> None:
        """Go to the root."""
        self._stand([])

    def _stand(self, names: list[str]) -> None:
        self.close()
        self.names = names
        try:
            self._descriptor = self._workspace.descend(names)
        except FileNotFoundError:
            self._descriptor = None

    def _needs_directory(self) -> None:
        if self._on_file:
            raise ToolFailed(f"{shown(self._asked)}: {shown('/'.join(self.names))} is not a directory")

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _split_root(root: str) -> tuple[str, list[str]]:
    """Split the path of a work tree where its folder begins; what is above is the operator's, and may hold links."""
    whole = os.path.abspath(root)
    base, mark, rest = whole.partition(f"/{FOLDER}/")
    return (base or "/", [FOLDER, *rest.split("/")]) if mark else (whole, [])


def outside(path: str) -> ToolFailed:
    """Make the refusal of a path that leads out; it tells nothing about what is out there."""
    return ToolFailed(f"{shown(path)} leads out of the workspace; name a path inside it, relative to it")


def _problem(path: str) -> str | None:
    if not path:
        return 'must not be empty; the workspace itself is "."'
    if len(path) > MOST_CHARACTERS:
        return f"has {len(path)} characters; at most {MOST_CHARACTERS} are allowed"
    if _CONTROL.search(path):
        return "holds a control character"
    if _UNENCODABLE.search(path):
        return "holds a character that no file name can have"
    return None


def _split(relative: str) -> list[str]:
    """Split a resolved path. What is not resolved is a mistake of ours."""
    if relative == ".":
        raise ToolFailed("the workspace itself is a directory; name a file in it")
    names = relative.split("/")
    assert not {"", ".", ".."} & set(names), relative
    return names
