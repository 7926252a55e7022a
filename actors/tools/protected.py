"""The files that a check depends on: found by globs, named by what they hold, compared by whoever judges.

What would be got wrong:

- A name is not a file. A link that is protected is noted with where it leads and
  what stands there; a directory put in the place of another has other files in it.
- The program of a check is found as the system will find it, through PATH, and
  one that the worker puts in front of it is another program. What lies in
  directories of PATH inside the workspace is noted as well.
- A program named by its path that is not there yet is the work to be judged, not
  its judge: it is not noted. One looked for in PATH is noted as missing.
- A glob that matches no file protects nothing, and nobody would notice. Only a plain
  path may be of a file that is not there, and must not come into being.
- Byte code that Python keeps beside its sources is left out, and a check that
  protects files is run so that Python neither reads nor writes any.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Final

import trio

from actors.agents.entry_text import bounded, clean
from actors.agents.globs import path_names
from actors.agents.judging import (
    MISSING,
    FileText,
    Kept,
    Pin,
    Pins,
    Stamp,
    glob_set,
    is_plain,
    pinned_by,
    unmatched,
)
from actors.agents.verification import CommandPasses, Verification
from actors.agents.worktrees import FOLDER
from actors.errors import ConfigError, ToolFailed
from actors.tools.named_files import files_outside
from actors.tools.output import foreign_kind
from actors.tools.paths import Workspace, shown
from actors.tools.process import environment
from actors.tools.whole_files import digest, opened, read_bytes

# They are read before and after each evaluation: a glob that means more is a mistake.
MOST_FILES: Final = 4_096
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_SEEN: Final = 100_000
MOST_TEXT: Final = 1024 * 1024
_SLICE: Final = 500
# Programs that name the program they are for in their first line, which may name another.
MOST_INTERPRETERS: Final = 4


class WorkspaceFiles:
    """Looks at the files of a workspace for a judge. Keeps to `actors.agents.ports.JudgedFiles`."""

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES, most_seen: int = MOST_SEEN) -> None:
        self._most = (most_files, most_bytes, most_seen)

    async def pin(self, criterion: Verification, root: str) -> Pins:
        """Look at what a check depends on; for a kind that depends on nothing, only at where the files are it names.

        Cancellation: nothing is left open.

        Raises:
            ConfigError: it is too much, or it cannot be read.
        """
        of = pinned_by(criterion)
        if of is None:
            return Pins("", outside=files_outside(criterion, root))
        assert isinstance(criterion, CommandPasses), "only commands depend on files"
        try:
            looking = _Looking(Workspace(root).root, *self._most)
            if criterion.protect:
                await looking.protect(criterion.protect)
            looking.programs_of(criterion.argv[0])
        except _TooMuch as error:
            raise ConfigError(("contract.verify.protect", f"{error}; write narrower globs")) from None
        except (OSError, ToolFailed) as error:
            raise ConfigError(("contract.verify.protect", f"a file cannot be looked at: {error}")) from None
        useless, to_come = looking.without_files(criterion.protect)
        found = looking.files, looking.programs
        return Pins(of, *found, stamps=looking.stamps, useless=useless, to_come=to_come)

    def text_of(self, root: str, path: str) -> FileText:
        """Read a file of a workspace, as far as it is text of at most 1 MiB."""
        try:
            workspace = Workspace(root)
        except ToolFailed as error:
            return _unkept(error)
        return text_at(workspace, path)


def _unkept(error: Exception) -> FileText:
    return FileText(Kept.unkept, bounded(clean(str(error)), 300))


def text_at(workspace: Workspace, relative: str) -> FileText:
    """Read a file at a resolved path, as far as it is text of at most 1 MiB; never raises for what it finds."""
    try:
        with opened(workspace, relative) as descriptor:
            if descriptor is None:
                return FileText(Kept.absent)
            raw = read_bytes(descriptor, MOST_TEXT)
    except (OSError, ToolFailed) as error:
        return _unkept(error)
    if raw is None:
        return FileText(Kept.unkept, f"it holds more than {MOST_TEXT} bytes")
    kind = foreign_kind(raw)
    if kind is not None:
        return FileText(Kept.unkept, f"it is {kind}")
    try:
        return FileText(Kept.text, raw.decode())
    except UnicodeDecodeError:
        return FileText(Kept.unkept, "it is no UTF-8 text")


class _TooMuch(Exception):
    """More is protected than can be looked at."""


class _Looking:
    """One look at a workspace, and what it has found so far."""

    def __init__(self, root: str, most_files: int, most_bytes: int, most_seen: int) -> None:
        self._root = root
        self._most_files, self._left, self._most_seen = most_files, most_bytes, most_seen
        self._most_bytes = most_bytes
        self.files: dict[str, Pin] = {}
        self.programs: dict[str, Pin] = {}
        self.stamps: dict[str, Stamp] = {}
        # Files that a glob matches, and the folders that one without a file may mean.
        self._matched: list[str] = []
        self._folders: list[str] = []

    # ── protected files ─────────────────────────────────────────────────────

    async def protect(self, globs: tuple[str, ...]) -> None:
        """Note every file that a glob matches.

        Cancellation: nothing is left open.
        """
        wanted = glob_set(globs)
        for place, relative in enumerate(self._entries()):
            if place % _SLICE == 0:
                await trio.lowlevel.checkpoint()
            if wanted.first(path_names(relative)) is not None:
                self._note_file(relative)
                if len(self.files) > self._most_files:
                    raise _TooMuch(f"more than {self._most_files} files are protected")

    def _note_file(self, relative: str) -> None:
        place = f"{self._root}/{relative}"
        self.files[_told(relative)] = Pin(self._digest(place))
        self._stamp_folders(relative)
        # A link to a directory is an entry too, and what is behind it may match nothing.
        if not os.path.isdir(place):
            self._matched.append(relative)

    def _entries(self) -> Iterator[str]:
        """Give every entry that is no directory; through links to directories too, but never in a circle.

        The directories that lie on the way to each are carried along, and not on the stack of calls: whoever
        works here may nest them as deep as he likes.
        """
        pending: list[tuple[str, tuple[str, ...]]] = [("", (self._root,))]
        seen = 0
        while pending:
            here, way = pending.pop()
            with os.scandir(way[-1]) as entries:
                for entry in entries:
                    seen += 1
                    if seen > self._most_seen:
                        raise _TooMuch(f"the workspace has more than {self._most_seen} entries to look at")
                    relative = f"{here}/{entry.name}" if here else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != ".git" and relative != FOLDER:
                            self._folders.append(relative)
                            pending.append((relative, (*way, entry.path)))
                        continue
                    if not _is_byte_code(relative):
                        yield relative
                    if entry.is_symlink() and entry.is_dir():
                        self._folders.append(relative)
                        target = os.path.realpath(entry.path)
                        if self._inside(target) and target not in way:
                            pending.append((relative, (*way, target)))

    def without_files(self, globs: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Give why globs that match no file are useless, and the plain paths that may be of files to come."""
        left = unmatched(globs, self._matched)
        wanted = glob_set(left)
        meant = [each for each in self._folders if wanted.first(path_names(each)) is not None]
        told = {glob: self._useless(glob, meant) for glob in left}
        useless = {glob: why for glob, why in told.items() if why is not None}
        return useless, tuple(glob for glob in told if glob not in useless)

    def _useless(self, glob: str, folders: list[str]) -> str | None:
        wanted, quoted = glob_set([glob]), shown(glob)
        is_folder = any(wanted.first(path_names(folder)) is not None for folder in folders)
        if is_folder or os.path.isdir(f"{self._root}/{glob}"):
            return f"{quoted} names a directory, and protects no file in it; write {shown(f'{glob}/*')}"
        if not is_plain(glob):
            return f"{quoted} matches no file; correct it, or write the path of the file that must not be made"
        above = os.path.dirname(glob)
        if above and not any(glob_set([above]).first(path_names(folder)[:1]) == 0 for folder in self._folders):
            return f"{quoted} matches no file, and there is no directory {shown(above)}; correct it"
        return None

    def _inside(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip("/") + "/")

    def _digest(self, path: str) -> str:
        """Name what stands at a path: a link by where it leads and what is there."""
        try:
            found = os.lstat(path)
            led = ""
            if stat.S_ISLNK(found.st_mode):
                led = f"link to {os.readlink(path)}: "
                self.stamps[f"{_told(os.path.relpath(path, self._root))} (link)"] = _stamp(found)
                found = os.stat(path)
        except FileNotFoundError:
            return f"{led}{MISSING}"
        if not stat.S_ISREG(found.st_mode):
            return f"{led}kind {stat.S_IFMT(found.st_mode):o}"
        return led + self._content(path)

    def _stamp_folders(self, relative: str) -> None:
        """Note the folders on the way to a file: another could be put in the place of one for a while."""
        folder = os.path.dirname(relative)
        while folder and (name := f"{_told(folder)}/") not in self.stamps:
            self.stamps[name] = _stamp(os.stat(f"{self._root}/{folder}"), is_folder=True)
            folder = os.path.dirname(folder)

    def _content(self, path: str) -> str:
        summed = hashlib.sha256()
        # Not to be held up by what was put there since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, 1 << 20):
                self._left -= len(part)
                if self._left < 0:
                    raise _TooMuch(f"the protected files hold more than {self._most_bytes} bytes")
                summed.update(part)
            self.stamps[_told(os.path.relpath(path, self._root))] = _stamp(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        return summed.hexdigest()

    # ── programs ────────────────────────────────────────────────────────────

    def programs_of(self, program: str) -> None:
        """Note the program of a check, what its first line names, and programs that could be put in front of others."""
        if "/" in program:
            place = os.path.join(self._root, program)
            if os.path.isfile(place):
                self._note(program, place)
            return
        folders = [os.path.join(self._root, each) for each in os.get_exec_path(environment())]
        found = _first(program, folders)
        if found is None:
            self.programs[f"program {program}"] = Pin(MISSING)
        else:
            self._note(program, found)
        for number, folder in enumerate(folders, 1):
            if self._inside(os.path.realpath(folder)):
                self._note_folder(folder, folders[number:])

    def _note(self, program: str, place: str, depth: int = 0) -> None:
        told = self._of_program(place)
        outside = not self._inside(os.path.realpath(place)) and not self._inside(place)
        self.programs[f"program {program}"] = Pin(f"{place}: {told}", outside=outside)
        if told and depth < MOST_INTERPRETERS:
            named = _interpreter(place)
            # One without a root is looked for from where the check is started.
            real = None if named is None else os.path.join(self._root, named)
            if named is not None and real is not None and os.path.isfile(real):
                self._note(clean(named), real, depth + 1)

    def _of_program(self, place: str) -> str:
        """Name what a program is where it lies in the workspace; outside it is none of the worker's."""
        real = os.path.realpath(place)
        return self._digest(real) if self._inside(real) else "" if real == place else f"link to {real}"

    def _note_folder(self, folder: str, behind: list[str]) -> None:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        for name in names:
            place = f"{folder.rstrip('/')}/{name}"
            if not _is_program(place):
                continue
            at = _told(os.path.relpath(place, self._root))
            self.programs[at] = Pin(self._of_program(place), _first(name, behind) is not None)
            if len(self.programs) > self._most_files:
                raise _TooMuch(f"PATH names a directory of the workspace with more than {self._most_files} programs")


def _told(relative: str) -> str:
    """Write a path as a text that no other path has; a name that is no text is told apart by its bytes."""
    shown = clean(relative)
    return shown if shown == relative else f"{shown} ({digest(os.fsencode(relative))[:12]})"


def _stamp(found: os.stat_result, *, is_folder: bool = False) -> Stamp:
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, is_folder)


def _is_byte_code(relative: str) -> bool:
    return relative.endswith(".pyc") and "__pycache__" in relative.split("/")[:-1]


def _is_program(place: str) -> bool:
    return os.path.isfile(place) and os.access(place, os.X_OK)


def _first(program: str, folders: list[str]) -> str | None:
    places = (f"{folder.rstrip('/')}/{program}" for folder in folders)
    return next((place for place in places if _is_program(place)), None)


def _interpreter(place: str) -> str | None:
    """Give the program that the first line of a script names by its path."""
    try:
        with open(place, "rb") as file:
            line = file.readline(512)
    except OSError:
        return None
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None
