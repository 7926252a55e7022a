"""Reading, writing, editing and listing files of the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext, ToolSpec
from actors.errors import ToolFailed
from actors.tools.arguments import COUNT, TEXT, only, optional_count, optional_text, schema, text
from actors.tools.paths import Located, listed, locate, read_bytes, replace, size_of

# The most characters of one read when the contract has no ceiling of its own.
READ_CHARS: Final = 100_000
# A file that is larger is not looked into.
READ_BYTES: Final = 4_000_000
LISTED: Final = 200


def content_of(place: Located) -> str | None:
    """Read a text file whole; None when there is nothing.

    Raises:
        ToolFailed: it is too large, or no text; says which.
    """
    raw = read_bytes(place, READ_BYTES)
    if raw is None:
        return None
    if len(raw) > READ_BYTES:
        raise ToolFailed(
            f"{place.relative} is too large: {size_of(place):,} bytes, and files are read up to {READ_BYTES:,}"
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolFailed(f"{place.relative} is UTF-16 text; only UTF-8 is read")
    if b"\x00" in raw:
        raise ToolFailed(f"{place.relative} is a binary file of {len(raw):,} bytes; it is not read as text")
    return raw.decode("utf-8", "replace")


class ReadFile:
    """Reads a file, whole or a range of lines."""

    read_only = True
    spec = ToolSpec(
        "read_file",
        "Read a text file of the workspace, whole or from line `offset` on, at most `limit` lines.",
        schema({"path": TEXT}, {"offset": COUNT, "limit": COUNT}),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Read. Cancellation: nothing changed."""
        only(arguments, "path", "offset", "limit")
        place = locate(context.root, text(arguments, "path"))
        offset, limit = optional_count(arguments, "offset"), optional_count(arguments, "limit")
        await context.authorise(Act.read, place.relative)
        content = content_of(place)
        if content is None:
            return _seen(place, f"{place.relative} does not exist; it reads as empty.")
        return _seen(place, _part(place, content, offset, limit, context.max_read_chars))


def _seen(place: Located, said: str) -> Observation:
    return Observation(ObservationKind.read, place.relative, said)


def _part(place: Located, content: str, offset: int | None, limit: int | None, own: int | None) -> str:
    lines = content.splitlines(keepends=True)
    first = (offset or 1) - 1
    if first > len(lines) or (first == len(lines) and first > 0):
        raise ToolFailed(f"{place.relative} has {len(lines)} lines; there is no line {first + 1}")
    part = "".join(lines[first : None if limit is None else first + limit])
    ceiling = READ_CHARS if own is None else own
    if len(part) > ceiling:
        which = "the built-in ceiling" if own is None else "the contract's max_read_chars"
        raise ToolFailed(
            f"that is {len(part):,} characters, and {which} is {ceiling:,}; "
            f"read fewer of the {len(lines)} lines with offset and limit"
        )
    return part


class WriteFile:
    """Puts a whole file in place."""

    read_only = False
    spec = ToolSpec(
        "write_file",
        "Write a whole file of the workspace; missing directories are made.",
        schema({"path": TEXT, "content": TEXT}),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Write. Cancellation: the file is as it was, or whole and new."""
        only(arguments, "path", "content")
        place = locate(context.root, text(arguments, "path"))
        content = text(arguments, "content", empty=True)
        await context.authorise(Act.write, place.relative, content=content)
        return put(place, content)


def put(place: Located, content: str) -> Observation:
    """Write a text, and say whether bytes changed."""
    raw = content.encode()
    before = read_bytes(place, max(len(raw), READ_BYTES))
    if before == raw:
        return Observation(ObservationKind.write, place.relative, f"{place.relative} is unchanged: it read so already.")
    replace(place, raw)
    how = "Created" if before is None else "Replaced"
    said = f"{how} {place.relative}: {len(raw):,} bytes."
    return Observation(ObservationKind.write, place.relative, said, changed=True)


class EditFile:
    """Replaces one place in a file."""

    read_only = False
    spec = ToolSpec(
        "edit_file",
        "Replace the one place in a file that reads `search`. It must occur exactly once.",
        schema({"path": TEXT, "search": TEXT, "replace": TEXT}),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Edit. Cancellation: the file is as it was, or whole and new."""
        only(arguments, "path", "search", "replace")
        place = locate(context.root, text(arguments, "path"))
        search, new = text(arguments, "search"), text(arguments, "replace", empty=True)
        await context.authorise(Act.write, place.relative, content=new)
        content = content_of(place)
        if content is None:
            raise ToolFailed(f"{place.relative} does not exist; write it with write_file")
        count = content.count(search)
        if count != 1:
            remedy = "give more of the text around it" if count else "read the file again"
            raise ToolFailed(f"`search` occurs {count} times in {place.relative}, not once: {remedy}")
        return put(place, content.replace(search, new))


class ListDir:
    """Lists one level of a directory."""

    read_only = True
    spec = ToolSpec("list_dir", "List one directory of the workspace, not what is below it.", schema({}, {"path": TEXT}))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """List. Cancellation: nothing changed."""
        only(arguments, "path")
        place = locate(context.root, optional_text(arguments, "path") or ".")
        await context.authorise(Act.read, place.relative)
        with listed(place) as entries:
            found = sorted(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in entries)
        lines = found[:LISTED]
        if len(found) > LISTED:
            lines.append(f"[{LISTED} of {len(found)} entries]")
        said = "\n".join(lines) or f"{place.relative} is empty."
        return Observation(ObservationKind.find, place.relative, said)
