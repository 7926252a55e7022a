"""A unified diff of one file: read strictly, and applied whole or not at all. Pure.

What would be got wrong:

- Numbers in ``@@`` headers are what a model counts worst, so they do not say where a
  hunk goes: its lines do, and they must stand in the file exactly once. How many lines
  a header announces is held against what follows, though: a patch that was cut
  short would be applied in part. A bare ``@@`` announces nothing.
- Every hunk is looked for in the file as it was, so none of them fits into what another
  one put there, and two of them may not touch the same lines.
- A line ends at LF and nowhere else. In a file whose lines all end in CR LF, a patch
  without any CR means its lines so. Whether the last line has an end stays as it is,
  unless the patch tells of it (``\\ No newline at end of file``).
"""

import re
from collections.abc import Sequence
from typing import Final

import attrs

from actors.errors import ToolFailed
from actors.tools.output import one_line

MOST_CHARACTERS: Final = 1_000_000
MOST_HUNKS: Final = 100
# Each hunk may be looked for through the whole of a file, and nobody else works meanwhile: so much takes half a second.
MOST_SEARCHED: Final = 400_000_000
SHOWN: Final = 80

_HEADER: Final = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: .*)?")
_BARE: Final = re.compile(r"@@(?: @@)? *")
# What git writes above the names, and what of it would be more than a change of lines.
_PRELUDE: Final = ("diff --git ", "index ")
_BEYOND: Final = (
    "new file ", "deleted file ", "rename ", "copy ", "old mode ", "new mode ", "similarity ",
    "GIT binary patch", "Binary files ",
)  # fmt: skip
_NOWHERE: Final = "/dev/null"
_HEADLESS: Final = "; leave the lines --- and +++ out, path says which file it is"


@attrs.frozen
class Hunk:
    """One change: the lines that must stand there, and those that stand there afterwards.

    ``unended_before`` and ``unended_after`` say that the last of them is the end of the
    file and has no line end; ``line`` is where the header sees it, 0 when it does not say.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    line: int = 0
    unended_before: bool = False
    unended_after: bool = False


def parsed(patch: str, names: Sequence[str]) -> tuple[Hunk, ...]:
    """Read a patch of the file that has one of these ``names``.

    Raises:
        ToolFailed: it is no unified diff of this one file, does more than change lines, or is too large.
    """
    if len(patch) > MOST_CHARACTERS:
        raise ToolFailed(f"the patch has more than {MOST_CHARACTERS} characters; split it")
    lines = patch.split("\n")
    if lines[-1] == "":
        lines.pop()
    reading = _Reading(lines)
    reading.file_header(names)
    hunks: list[Hunk] = []
    while not reading.ended():
        if len(hunks) == MOST_HUNKS:
            raise ToolFailed(f"the patch has more than {MOST_HUNKS} hunks; split it")
        hunks.append(reading.hunk())
    if not hunks:
        raise ToolFailed('the patch has no hunk; one begins with a line "@@"')
    return tuple(hunks)


@attrs.define
class _Reading:
    """One patch, and the line that is read next."""

    _lines: list[str]
    _at: int = 0
    # Behind the last line that is not empty. Looked for once: it is asked at each line whether that was passed.
    _end: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._end = max((place for place, line in enumerate(self._lines, 1) if line), default=0)

    def ended(self) -> bool:
        """Tell whether only empty lines are left."""
        return self._at >= self._end

    def _wrong(self, problem: str) -> ToolFailed:
        return ToolFailed(f"line {self._at + 1} of the patch {problem}")

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._lines[place] if place < len(self._lines) else ""

    def file_header(self, names: Sequence[str]) -> None:
        """Go past what stands before the first hunk.

        Raises:
            ToolFailed: it is of another file, or makes, removes, renames or turns it into something else.
        """
        while not self.ended() and not self._peek().startswith("@@"):
            line = self._peek()
            if line.startswith(_BEYOND):
                raise self._wrong(f"does more than change lines ({_part(line)}); patch_file only changes lines")
            if line.startswith(("--- ", "+++ ")):
                self._name(line[4:], names)
            elif line and not line.startswith(_PRELUDE):
                raise self._wrong(f'is no part of a unified diff ({_part(line)}); a hunk begins with a line "@@"')
            self._at += 1

    def _name(self, written: str, names: Sequence[str]) -> None:
        # Behind a tab stands a time.
        name = written.split("\t", 1)[0].rstrip("\r ")
        if name == _NOWHERE:
            raise self._wrong("makes or removes a file; write_file makes files, and nothing here removes them")
        plain = {_plain(each) for each in names}
        if _plain(name) not in plain and not (name[:2] in ("a/", "b/") and _plain(name[2:]) in plain):
            raise self._wrong(f"names another file ({_part(name)}){_HEADLESS}")

    def hunk(self) -> Hunk:
        """Read one hunk.

        Raises:
            ToolFailed: it is malformed, or not as long as its header says.
        """
        header = self._peek().rstrip("\r")
        told = _HEADER.fullmatch(header)
        if told is None and _BARE.fullmatch(header) is None:
            raise self._wrong(f"should begin a hunk, with @@ or @@ -1,2 +1,3 @@, and is {_part(header)}{self._more()}")
        start = self._at
        self._at += 1
        if told is None:
            return self._body(0, None)
        wanted = tuple(1 if each is None else int(each) for each in (told[2], told[4]))
        hunk = self._body(int(told[1]), (wanted[0], wanted[1]))
        found = (len(hunk.before), len(hunk.after))
        if found != wanted:
            self._at = start
            raise self._wrong(
                f"announces {wanted[0]} lines before and {wanted[1]} after, and {found[0]} and {found[1]} follow; "
                "correct it, or write only @@"
            )
        return hunk

    def _more(self) -> str:
        other = self._peek().startswith(("--- ", "+++ ", "diff --git "))
        return "; a patch is of one file" if other else ""

    def _body(self, line: int, wanted: tuple[int, int] | None) -> Hunk:
        before: list[str] = []
        after: list[str] = []
        closed = [False, False]
        touched: tuple[int, ...] = ()
        while self._at < len(self._lines) and not self._peek().startswith("@@"):
            text = self._peek()
            full = wanted is not None and (len(before), len(after)) == wanted
            if text.startswith("\\"):
                for side in touched:
                    closed[side] = True
                if not touched:
                    raise self._wrong("tells of the end of no line")
                touched = ()
            elif full or (wanted is None and (self.ended() or self._is_next_file())):
                break
            else:
                sides = _SIDES.get(text[:1])
                if sides is None:
                    raise self._wrong(f'should begin with a blank, "-", "+" or "@@", and is {_part(text)}')
                touched = sides
                for side in touched:
                    if closed[side]:
                        raise self._wrong("follows a line that was said to be the end of the file")
                    (before, after)[side].append(text[1:])
            self._at += 1
        return Hunk(tuple(before), tuple(after), line, *closed)

    def _is_next_file(self) -> bool:
        return (
            self._peek().startswith("--- ") and self._peek(1).startswith("+++ ") and self._peek(2).startswith("@@")
        ) or self._peek().startswith("diff --git ")


# A line of context that is empty has often lost its blank.
_SIDES: Final = {" ": (0, 1), "": (0, 1), "-": (0,), "+": (1,)}


def _plain(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return name


def _part(line: str) -> str:
    line = one_line(line)
    return f'"{line if len(line) <= SHOWN else line[:SHOWN] + "..."}"'


@attrs.frozen
class _Placed:
    """A hunk, which one it is, and the lines of the file that it replaces: from ``first`` up to ``end``."""

    hunk: Hunk
    number: int
    first: int
    end: int


def applied(text: str, hunks: Sequence[Hunk]) -> str:
    """Apply all the hunks to a text.

    Raises:
        ToolFailed: one of them fits nowhere, or in more than one place, or two touch the same lines.
    """
    if len(text) * len(hunks) > MOST_SEARCHED:
        raise ToolFailed(f"{len(hunks)} hunks are too many for a file of {len(text)} characters; split the patch")
    if not _of_crlf(text) or any(line.endswith("\r") for each in hunks for line in (*each.before, *each.after)):
        return _applied(text, hunks)
    return _applied(text.replace("\r\n", "\n"), hunks).replace("\n", "\r\n")


def _of_crlf(text: str) -> bool:
    return "\n" in text and text.count("\n") == text.count("\r\n")


def _applied(text: str, hunks: Sequence[Hunk]) -> str:
    unended = bool(text) and not text.endswith("\n")
    lines = text.split("\n")
    if not unended:
        lines.pop()
    framed = "\n".join(("", *lines, ""))
    placed = sorted(
        (_place(framed, lines, number, hunk) for number, hunk in enumerate(hunks, 1)), key=lambda each: each.first
    )
    result: list[str] = []
    done = 0
    for each in placed:
        if each.first < done:
            raise ToolFailed(f"hunk {each.number} touches lines that another hunk touches; make one of them")
        unended = _ending(each, len(lines), unended)
        result += lines[done : each.first]
        result += each.hunk.after
        done = each.end
    result += lines[done:]
    return "\n".join(result) + ("" if unended or not result else "\n")


def _place(framed: str, lines: Sequence[str], number: int, hunk: Hunk) -> _Placed:
    """Find the one place of a hunk in a text that begins with a line end."""
    if not hunk.before:
        if lines:
            raise ToolFailed(f"hunk {number} has no line of the file; give the lines around what it adds")
        return _Placed(hunk, number, 0, 0)
    wanted = "\n".join(("", *hunk.before, ""))
    found = framed.find(wanted) if lines else -1
    if found < 0:
        near = _nearest(lines, hunk)
        raise ToolFailed(f"hunk {number} fits nowhere{near}; read the file, and copy its lines exactly")
    first = framed.count("\n", 0, found)
    again = framed.find(wanted, found + 1)
    if again >= 0:
        second = framed.count("\n", 0, again)
        raise ToolFailed(
            f"hunk {number} fits in more than one place, at lines {first + 1} and {second + 1}; "
            "take more of the lines around it"
        )
    return _Placed(hunk, number, first, first + len(hunk.before))


def _nearest(lines: Sequence[str], hunk: Hunk) -> str:
    """Say which line differs, where the header sees the hunk."""
    if hunk.line == 0:
        return ""
    for place, wanted in enumerate(hunk.before, hunk.line - 1):
        if place >= len(lines):
            return f": the file has {len(lines)} lines"
        if lines[place] != wanted:
            return f": line {place + 1} of the file is {_part(lines[place])}, and not {_part(wanted)}"
    return ""


def _ending(placed: _Placed, count: int, unended: bool) -> bool:
    """Tell whether the last line has no end once a hunk is applied."""
    hunk = placed.hunk
    if not (hunk.unended_before or hunk.unended_after):
        return unended
    if placed.end != count:
        where = f"before it, at line {placed.first + 1}"
        raise ToolFailed(f"hunk {placed.number} tells of the end of the file, and fits {where}")
    if hunk.unended_before != unended:
        has = "no line end" if unended else "a line end"
        raise ToolFailed(f"hunk {placed.number} is wrong about the end of the file: it has {has} there")
    return hunk.unended_after
