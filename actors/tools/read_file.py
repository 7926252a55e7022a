"""The tool `read_file`: a file whole, or a range of its lines, or a refusal; never a part that looks whole.

The ceiling is the smaller of what the contract sets and what one result may
hold, so that the cut of the loop never goes through a file.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import attrs
import msgspec
import trio

from actors.agents.entry_text import clean as clean_text
from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.agents.prompt import ENTRY_CHARS
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.output import SNIFFED, clean, foreign_kind
from actors.tools.paths import Workspace, shown
from actors.tools.whole_files import opened

# Room for the line above the text.
BUILT_IN_CEILING: Final = ENTRY_CHARS - 400
# A range is found by counting lines from the start; so far and no further.
MOST_SCANNED: Final = 64 * 1024 * 1024
_CHUNK: Final = 256 * 1024


class ReadFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `read_file` takes."""

    path: Annotated[str, msgspec.Meta(description="the file, relative to the workspace")]
    offset: Annotated[int, msgspec.Meta(ge=1, description="first line, counted from 1")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, description="how many lines")] | None = None


@attrs.frozen
class Ceiling:
    """The most characters of one read, and the name of who set it."""

    characters: int
    name: str

    @classmethod
    def of(cls, context: ToolContext) -> "Ceiling":
        """Take the smaller of the contract's ceiling and our own."""
        own = context.max_read_chars
        if own is not None and own < BUILT_IN_CEILING:
            return cls(own, "max_read_chars of the contract")
        return cls(BUILT_IN_CEILING, "the built-in ceiling of one result")


@attrs.define
class _Scan:
    """What was seen on the way through a file. ``kept`` is given up when it grows beyond any use."""

    kept: list[bytes]
    lines: int = 0
    bytes: int = 0
    asked_lines: int = 0
    asked_bytes: int = 0


class ReadFile:
    """Reads text files. See the file's docstring."""

    spec = spec_for(
        "read_file",
        "Read a text file, whole or a range of lines. A file that is too large is refused; read it in ranges then.",
        ReadFileArguments,
    )
    read_only = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Read; a missing file reads empty, with a note.

        Cancellation: nothing is left open.
        """
        asked = taken(ReadFileArguments, arguments, self.spec)
        workspace = Workspace(context.root)
        relative = workspace.resolve(asked.path)
        await context.authorise(Act.read, relative)
        with opened(workspace, relative) as descriptor:
            if descriptor is None:
                said = f"[{shown(relative)} does not exist; it reads empty]"
                return Observation(ObservationKind.read, relative, said)
            kind = foreign_kind(os.pread(descriptor, SNIFFED, 0))
            size = os.fstat(descriptor).st_size
            if kind is not None:
                raise ToolFailed(f"{shown(relative)} is {kind} of {size} bytes, not empty; read_file reads UTF-8 text")
            ceiling = Ceiling.of(context)
            whole = asked.offset is None and asked.limit is None
            if size > MOST_SCANNED:
                raise ToolFailed(
                    f"{shown(relative)} has {size} bytes; lines are looked for in up to {MOST_SCANNED} bytes. "
                    "Search it with grep, or cut a part out with exec"
                )
            scan = await _scan(descriptor, asked.offset or 1, asked.limit, ceiling.characters)
        return Observation(ObservationKind.read, relative, _text(relative, asked, scan, ceiling, whole))


async def _scan(descriptor: int, offset: int, limit: int | None, ceiling: int) -> _Scan:
    """Go through a file once. In pieces: a long one must not hold up everybody else."""
    scan = _Scan([])
    end = None if limit is None else offset + limit
    with open(descriptor, "rb", closefd=False) as handle:  # noqa: ASYNC230  # it is open already; this only buffers
        # A file that grows faster than it is read ends here too.
        while scan.bytes <= MOST_SCANNED and (lines := handle.readlines(_CHUNK)):
            for line in lines:
                scan.lines += 1
                scan.bytes += len(line)
                if scan.lines >= offset and (end is None or scan.lines < end):
                    scan.asked_lines += 1
                    scan.asked_bytes += len(line)
                    # No character of UTF-8 takes more than four bytes: beyond that it cannot fit.
                    if scan.asked_bytes <= 4 * ceiling + 4:
                        scan.kept.append(line)
            await trio.lowlevel.checkpoint()
    return scan


def _text(relative: str, asked: ReadFileArguments, scan: _Scan, ceiling: Ceiling, whole: bool) -> str:
    data = b"".join(scan.kept)
    text = clean(data)
    complete = len(data) == scan.asked_bytes
    if not complete or len(text) > ceiling.characters:
        size = f"{len(text)} characters" if complete else f"{scan.asked_bytes} bytes"
        raise ToolFailed(_too_large(relative, size, scan, ceiling, whole))
    if not whole and scan.asked_lines == 0 and scan.lines > 0:
        raise ToolFailed(f"{shown(relative)} has {scan.lines} lines; there is no line {asked.offset}")
    notes = []
    if scan.bytes == 0:
        notes.append(f"{shown(relative)} is empty")
    elif not whole:
        first = asked.offset or 1
        notes.append(f"lines {first} to {first + scan.asked_lines - 1} of {scan.lines}")
    if not _is_exact(data, text):
        notes.append("some bytes are no UTF-8 text, or NUL; they are shown as \ufffd")
    return f"[{'; '.join(notes)}]\n{text}" if notes else text


def _is_exact(data: bytes, text: str) -> bool:
    return clean_text(text).encode("utf-8", "replace") == data


def _too_large(relative: str, size: str, scan: _Scan, ceiling: Ceiling, whole: bool) -> str:
    what = "has" if whole else f"has {scan.lines} lines; the {scan.asked_lines} asked for have"
    lines = f" in {scan.lines} lines" if whole else ""
    if scan.asked_lines == 1:
        remedy = "This is one line: search it with grep, or cut a part out with exec"
    else:
        remedy = "Read fewer lines at a time with offset and limit, or search it with grep"
    return (
        f"{shown(relative)} {what} {size}{lines}; one read gives at most {ceiling.characters} characters "
        f"({ceiling.name}). {remedy}"
    )
