"""What a judge needs of the world besides a verdict: files as they stood at the start, and texts as they were. Pure.

The pins of a run are what its check depends on: the files that it protects, and
its own program where the worker could put another in its place. They are taken
once, when the run starts, and are durable: a resume compares with the first ones.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from actors.agents.entry_text import bounded, clean
from actors.agents.globs import GlobSet, path_glob, path_names
from actors.agents.verification import CommandPasses, Verification

# Paths that a verdict names of those that changed.
MOST_NAMED = 5
# What stands in place of a digest where nothing stood.
MISSING = "missing"


@attrs.frozen
class Pin:
    """What stood at one place. ``shadows``: a program of this name is found behind it, and would be run without it.

    ``outside``: it is a program that lies outside the workspace, where only the sandbox binds the worker.
    """

    digest: str
    shadows: bool = False
    outside: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether nothing stood there."""
        return self.digest == MISSING


@attrs.frozen
class Stamp:
    """When something was last changed: its number, the time of its content, and that of all else, in nanoseconds."""

    number: int
    content: int
    any: int
    is_folder: bool = False

    def is_moved_to(self, now: "Stamp") -> bool:
        """Tell whether something happened in between. To a folder: besides that names in it came and went."""
        if self.number != now.number or not self.is_folder:
            return self != now
        return self.any != now.any and now.any != now.content


@attrs.frozen
class Pins:
    """What a check depends on, by place. ``of`` is the check; ``problem`` says why it could not be looked at.

    ``programs`` are kept apart from ``files``: among them a new one changes something only
    where it is put before another. What follows ``problem`` is of this look alone and is not stored:
    ``stamps``; ``useless``, globs that protect nothing, and why; ``to_come``, plain paths that no file has; and
    ``outside``, the keys of files that lie outside the workspace, and why that is.
    """

    of: str
    files: Mapping[str, Pin] = attrs.Factory(dict)
    programs: Mapping[str, Pin] = attrs.Factory(dict)
    problem: str | None = None
    stamps: Mapping[str, Stamp] = attrs.field(factory=dict, eq=False)
    useless: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    to_come: tuple[str, ...] = attrs.field(default=(), eq=False)
    outside: tuple[tuple[str, str], ...] = attrs.field(default=(), eq=False)

    def to_json(self) -> str:
        """Give the text that is stored."""
        both = (self.files, self.programs)
        tables = ({at: [pin.digest, pin.shadows, pin.outside] for at, pin in each.items()} for each in both)
        return json.dumps([self.of, *tables, self.problem])

    @classmethod
    def from_json(cls, text: str) -> "Pins":
        """Read what was stored."""
        of, files, programs, problem = json.loads(text)
        return cls(of, _pins(files), _pins(programs), problem)

    def change_to(self, now: "Pins") -> str | None:
        """Say what is not as it was pinned, None when all is."""
        problem = self.problem or now.problem
        if problem is not None:
            return f"the files that the check depends on cannot be looked at: {problem}"
        changed = _changes(self.files, now.files, all_new=True) + _changes(self.programs, now.programs, all_new=False)
        if not changed:
            return None
        return f"what the check depends on is not as it was at the start: {_named(changed)}"

    def touched_until(self, now: "Pins") -> str | None:
        """Say what was touched between two looks although it is as it was, None when nothing was.

        What is put in the place of a judge while it judges, and taken away again, leaves only this.
        """
        both = self.stamps.keys() & now.stamps.keys()
        touched = sorted(at for at in both if self.stamps[at].is_moved_to(now.stamps[at]))
        return f"what the check depends on was touched while it ran: {_named(touched)}" if touched else None


def _named(places: list[str]) -> str:
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    return ", ".join(bounded(clean(each), 200) for each in places[:MOST_NAMED]) + more


def _pins(table: dict[str, list[Any]]) -> dict[str, Pin]:
    return {at: Pin(*pin) for at, pin in table.items()}


def _changes(then: Mapping[str, Pin], now: Mapping[str, Pin], *, all_new: bool) -> list[str]:
    found = []
    for at in sorted(then.keys() | now.keys()):
        if at not in now:
            found.append(f"{at} (deleted)")
        elif at not in then:
            if all_new or now[at].shadows:
                found.append(f"{at} (new)")
        elif then[at].digest != now[at].digest and not (then[at].is_missing and now[at].outside):
            # One that was not to be found and was installed outside since is nothing that the worker made.
            found.append(f"{at} (changed)")
    return found


def pinned_by(criterion: Verification) -> str | None:
    """Name the check whose files are pinned, None when it depends on none that could be."""
    if not isinstance(criterion, CommandPasses):
        return None
    return json.dumps([criterion.argv, criterion.protect])


def unmatched(globs: Sequence[str], paths: Iterable[str]) -> tuple[str, ...]:
    """Give the globs that none of some paths matches."""
    left = tuple(globs)
    wanted = glob_set(left)
    for path in paths:
        names = path_names(path)
        while (place := wanted.first(names)) is not None:
            left = left[:place] + left[place + 1 :]
            wanted = glob_set(left)
    return left


def glob_set(globs: Sequence[str]) -> GlobSet:
    """Put globs of paths together."""
    return GlobSet(tuple(path_glob(glob) for glob in globs))


def is_plain(glob: str) -> bool:
    """Tell whether a glob is the path of one file."""
    return "*" not in glob and "?" not in glob


class Kept(StrEnum):
    """What is known of a file; stored values."""

    text = "text"
    absent = "absent"
    unkept = "unkept"


@attrs.frozen
class FileText:
    """The text of a file at one moment; of one that was not kept, ``text`` says why."""

    state: Kept
    text: str = ""


@attrs.frozen
class Change:
    """A file that a run changed: what it held before, and what it holds now."""

    path: str
    before: FileText
    after: FileText
