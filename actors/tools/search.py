"""Finding files by name and lines by pattern.

A pattern can take for ever on one line (Python's engine backtracks, and holds
the interpreter meanwhile), so lines are searched in a process of their own,
which is killed when its time is over. It is given the text and opens nothing
itself. Both searches follow no link, skip what the policy does not let be
read, and say how much that was.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Annotated, Any, Final

import attrs
import msgspec
import trio

from actors.agents.entry_text import clean
from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.paths import Workspace
from actors.tools.process import Status, run
from actors.tools.walking import walk
from actors.tools.whole_files import opened, read_bytes

HITS: Final = 50
FILE_BYTES: Final = 2_000_000
LINE_CHARS: Final = 2_000
SECONDS: Final = 10.0
# What one search holds in memory at most.
CORPUS_BYTES: Final = 50_000_000


@attrs.define
class _Found:
    """What a search came to. ``total`` counts past the limit."""

    lines: list[str] = attrs.Factory(list)
    total: int = 0
    kept_out: int = 0
    cut: bool = False

    def said(self, what: str) -> str:
        notes = []
        if self.total > len(self.lines):
            notes.append(f"[{len(self.lines)} of {self.total} {what}]")
        if self.kept_out:
            notes.append(f"[{self.kept_out} files were left out: the policy does not let them be read]")
        if self.cut:
            notes.append("[the workspace is too large to be searched whole: search in a smaller part]")
        return "\n".join((*self.lines, *notes)) or f"No {what}."


def _fits(glob: str) -> Callable[[str], bool]:
    match = re.compile(translate(glob)).match
    return lambda relative: bool(match(relative) or match(os.path.basename(relative)))


class FindArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `find` takes."""

    name_glob: Annotated[str, msgspec.Meta(min_length=1, description="a glob, such as *.py")]


class Find:
    """Finds files by name."""

    read_only = True
    spec = spec_for("find", "Find files of the workspace whose name or path fits a glob.", FindArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Find. Cancellation: nothing changed."""
        glob = taken(FindArguments, arguments, self.spec).name_glob
        await context.authorise(Act.read, ".")
        fits = _fits(glob)
        seen = await walk(Workspace(context.root))
        found = _Found(cut=not seen.complete)
        for entry in seen.entries:
            if entry.is_directory or not fits(entry.relative):
                continue
            if not context.may_read(clean(entry.relative)):
                found.kept_out += 1
                continue
            found.total += 1
            if len(found.lines) < HITS:
                found.lines.append(clean(entry.relative))
        return Observation(ObservationKind.find, glob, found.said("files"))


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `grep` takes."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, description="a Python regular expression")]
    path_glob: Annotated[str | None, msgspec.Meta(description="only files whose name or path fits this glob")] = None


class Grep:
    """Finds lines by a regular expression."""

    read_only = True
    spec = spec_for("grep", "Find the lines that fit a regular expression.", GrepArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Search. Cancellation: nothing changed, and the searching process is gone."""
        asked = taken(GrepArguments, arguments, self.spec)
        try:
            re.compile(asked.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolFailed(f"the pattern is no regular expression: {error}") from None
        await context.authorise(Act.read, ".")
        found, corpus = await _gather(context, asked)
        done = await run([sys.executable, "-I", "-S", "-c", _WORKER], cwd="/", timeout=SECONDS, stdin=corpus)
        if done.status is Status.timed_out:
            raise ToolFailed(f"the pattern took longer than {SECONDS:g} s; use a simpler one")
        if done.status is not Status.exited or done.code != 0:
            raise ToolFailed("the search failed; use a simpler pattern")
        found.total, found.lines = json.loads(done.output)
        return Observation(ObservationKind.grep, asked.pattern, found.said("lines"))


# Kept free of imports of this package: it starts in 15 ms and knows nothing but the text it is given.
_WORKER: Final = """
import json, re, sys
pattern, most, width, texts = json.loads(sys.stdin.buffer.read())
search, total, lines = re.compile(pattern).search, 0, []
for name, content in texts:
    for number, line in enumerate(content.splitlines(), 1):
        if search(line[:width]):
            total += 1
            if len(lines) < most:
                lines.append(f"{name}:{number}: {line[:width]}")
sys.stdout.write(json.dumps([total, lines]))
"""


async def _gather(context: ToolContext, asked: GrepArguments) -> tuple[_Found, bytes]:
    """Read what is to be searched, within the policy and the bounds."""
    workspace = Workspace(context.root)
    fits = _fits(asked.path_glob) if asked.path_glob else None
    seen = await walk(workspace)
    found = _Found(cut=not seen.complete)
    texts: list[list[str]] = []
    size = 0
    for entry in seen.entries:
        if entry.is_directory or entry.is_link or (fits is not None and not fits(entry.relative)):
            continue
        if not context.may_read(clean(entry.relative)):
            found.kept_out += 1
            continue
        content = _text_of(workspace, entry.relative)
        size += len(content or b"")
        if size > CORPUS_BYTES:
            found.cut = True
            break
        if content is not None:
            texts.append([clean(entry.relative), content.decode("utf-8", "replace")])
        await trio.lowlevel.checkpoint()
    return found, json.dumps([asked.pattern, HITS, LINE_CHARS, texts]).encode()


def _text_of(workspace: Workspace, relative: str) -> bytes | None:
    """Read a file to be searched; None for what holds no text, is too large, or is gone."""
    try:
        with opened(workspace, relative) as descriptor:
            raw = None if descriptor is None else read_bytes(descriptor, FILE_BYTES)
    except ToolFailed:
        return None
    return None if raw is None or b"\x00" in raw else raw
