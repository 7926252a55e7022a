"""What git prints, read; and what may be given to it. Pure.

Names are read in the form in which git quotes them (`core.quotePath`): one line each,
whatever bytes they hold. A name that is no UTF-8 keeps its bytes as surrogate escapes.
"""

import re
from collections.abc import Collection
from typing import Final

import attrs

MOST_BRANCH: Final = 100
MOST_MESSAGE: Final = 2_000
# Before a commit in the listing of `recent_commits`; a message that holds one is never one of ours.
COMMIT_MARK: Final = "\x01"
COMMIT_FORMAT: Final = "%x01%H%n%P%n%T%n%B"

_ESCAPES: Final = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED: Final = re.compile(r"\\([0-7]{3}|[abtnvfr\"\\])|([^\\])", re.DOTALL)
_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
# What git itself refuses in a name, and what could be taken for something else.
_NOT_IN_BRANCH: Final = re.compile(r"\.\.|//|/\.|\.lock(/|$)|[./]$|(^|/)-")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FIELDS: Final = {"1": 8, "2": 9, "u": 10}


@attrs.frozen
class Change:
    """One path that differs: ``code`` has a letter for what is staged and one for what is not."""

    code: str
    path: str


@attrs.frozen
class StatusReport:
    """What `git status` says. ``head`` is a commit, None where nothing is committed; ``branch`` None on none."""

    branch: str | None = None
    head: str | None = None
    ahead: str = ""
    changes: tuple[Change, ...] = ()


@attrs.frozen
class Commit:
    """One commit: its name, those before it, its files as a whole, and what was said."""

    name: str
    parents: str
    tree: str
    message: str


def unquoted(text: str) -> str:
    """Read a name as git prints it."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    parts = bytearray()
    for escape, plain in _QUOTED.findall(text[1:-1]):
        if plain:
            parts += plain.encode("utf-8", "surrogateescape")
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            parts.append(int(escape, 8) & 0xFF)
    return parts.decode("utf-8", "surrogateescape")


def names_of(output: str) -> list[str]:
    """Read a list of names, each of them once, in order."""
    return list(dict.fromkeys(unquoted(line) for line in output.split("\n") if line))


def status_of(output: str) -> StatusReport:
    """Read `git status --porcelain=v2 --branch`."""
    report = StatusReport()
    changes = []
    for line in output.split("\n"):
        kind, _, rest = line.partition(" ")
        if kind == "#":
            report = _headed(report, rest)
        elif kind == "?":
            changes.append(Change("??", unquoted(rest)))
        elif kind in _FIELDS:
            fields = rest.split(" ", _FIELDS[kind] - 1)
            if len(fields) == _FIELDS[kind]:
                changes.append(Change(fields[0].replace(".", " "), unquoted(fields[-1])))
    return attrs.evolve(report, changes=tuple(changes))


def _headed(report: StatusReport, rest: str) -> StatusReport:
    key, _, value = rest.partition(" ")
    if key == "branch.oid" and value != "(initial)":
        return attrs.evolve(report, head=value)
    if key == "branch.head" and value != "(detached)":
        return attrs.evolve(report, branch=value)
    if key == "branch.ab":
        return attrs.evolve(report, ahead=value)
    return report


def where(report: StatusReport) -> str:
    """Say on which branch one is, and how far it is from the one that it follows."""
    branch = "on no branch" if report.branch is None else f"on {report.branch}"
    head = "nothing is committed yet" if report.head is None else f"at {report.head[:12]}"
    figures = report.ahead.split()
    apart = f"; {figures[0][1:]} ahead, {figures[1][1:]} behind" if len(figures) == 2 else ""
    return f"{branch}, {head}{apart}"


def commits_of(output: str) -> list[Commit]:
    """Read a listing in `COMMIT_FORMAT`."""
    found = []
    for text in output.split(COMMIT_MARK)[1:]:
        lines = text.split("\n", 3)
        if len(lines) == 4:
            found.append(Commit(lines[0], lines[1], lines[2], lines[3].rstrip()))
    return found


# Words of git for an attribute that names nothing.
NO_FILTER: Final = ("set", "unset", "unspecified")


def filtered_by(output: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Read from `git check-attr filter` which paths go through a filter, and which.

    ``names`` are those that the settings of the repository describe. One that they do not is
    described elsewhere, by the settings of a person: git-lfs usually is. One that is called by a word of
    `NO_FILTER` is not seen here.
    """
    found = []
    for line in output.split("\n"):
        path, mark, name = line.rpartition(": filter: ")
        if mark and (name in names or name not in NO_FILTER):
            found.append((unquoted(path), name))
    return found


def branch_problem(name: str) -> str | None:
    """Say why this is no name for a new branch; None when it is one."""
    if len(name) > MOST_BRANCH:
        return f"has {len(name)} characters; at most {MOST_BRANCH} are allowed"
    if not _BRANCH.fullmatch(name) or _NOT_IN_BRANCH.search(name) or name == "HEAD":
        return "is no name for a branch; use letters, digits and . _ - / between them"
    if name.startswith("actors/"):
        return "is no name for a branch; those below actors/ are of work trees"
    return None


def message_problem(message: str) -> str | None:
    """Say why this cannot be said of a commit; None when it can."""
    if not message.strip():
        return "must not be empty"
    if len(message) > MOST_MESSAGE:
        return f"has {len(message)} characters; at most {MOST_MESSAGE} are allowed"
    if _CONTROL.search(message):
        return "holds a control character"
    if not message.isascii() and any("\ud800" <= letter <= "\udfff" for letter in message):
        return "holds a character that no text can have"
    return None
