"""Finding files by name and lines by pattern.

Both walk in a worker thread, over a bounded number of files. A pattern can take
for ever on one line (Python's engine backtracks, and holds the interpreter
meanwhile), so lines are searched in a process of their own, which is killed
when its time is over. It is given the text and opens nothing itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import translate
from typing import Any, Final, TypeVar

import attrs
import trio

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext, ToolSpec
from actors.errors import ToolFailed
from actors.tools.arguments import TEXT, only, optional_text, schema, text
from actors.tools.paths import Located, listed, locate, read_bytes
from actors.tools.process import Status, run

T = TypeVar("T")
SKIPPED: Final = frozenset({".git", "target", "node_modules"})
HITS: Final = 50
MOST_FILES: Final = 50_000
FILE_BYTES: Final = 2_000_000
LINE_CHARS: Final = 2_000
SECONDS: Final = 10.0
# What one search holds in memory at most.
CORPUS_CHARS: Final = 50_000_000


@attrs.define
class _Found:
    """What a search came to. ``total`` counts past the limit; ``kept_out`` what the policy does not let be read."""

    lines: list[str] = attrs.Factory(list)
    total: int = 0
    kept_out: int = 0
    cut: bool = False

    def add(self, line: str) -> None:
        self.total += 1
        if len(self.lines) < HITS:
            self.lines.append(line)

    def said(self, what: str) -> str:
        notes = []
        if self.total > len(self.lines):
            notes.append(f"[{len(self.lines)} of {self.total} {what}]")
        if self.kept_out:
            notes.append(f"[{self.kept_out} files were left out: the policy does not let them be read]")
        if self.cut:
            notes.append(f"[stopped after {MOST_FILES:,} files or {SECONDS:g} s: search in a smaller part]")
        return "\n".join((*self.lines, *notes)) or f"No {what}."


def _walk(root: str, found: _Found, until: float) -> Iterator[str]:
    """Give the files of a workspace in order, following no link."""
    waiting = ["."]
    count = 0
    while waiting:
        folder = waiting.pop()
        try:
            with listed(Located(root, folder)) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
                below = []
                for entry in inside:
                    relative = entry.name if folder == "." else f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED:
                            below.append(relative)
                    elif entry.is_file(follow_symlinks=False):
                        count += 1
                        if count > MOST_FILES or time.monotonic() > until:
                            found.cut = True
                            return
                        yield relative
        except ToolFailed:
            # A directory that vanished or may not be opened holds nothing to find.
            continue
        waiting.extend(reversed(below))


async def _in_thread(work: Callable[[float], T]) -> T:
    with trio.move_on_after(SECONDS + 1):
        return await trio.to_thread.run_sync(work, time.monotonic() + SECONDS, abandon_on_cancel=True)
    raise ToolFailed(f"the search took longer than {SECONDS:g} s; use a simpler pattern or a smaller part")


class Find:
    """Finds files by name."""

    read_only = True
    spec = ToolSpec("find", "Find files of the workspace whose name fits a glob.", schema({"name_glob": TEXT}))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Find. Cancellation: nothing changed."""
        only(arguments, "name_glob")
        glob = text(arguments, "name_glob")
        await context.authorise(Act.read, ".")
        fits = re.compile(translate(glob)).match

        def work(until: float) -> _Found:
            found = _Found()
            for relative in _walk(context.root, found, until):
                if fits(os.path.basename(relative)) or fits(relative):
                    if context.may_read(relative):
                        found.add(relative)
                    else:
                        found.kept_out += 1
            return found

        return Observation(ObservationKind.find, glob, (await _in_thread(work)).said("files"))


class Grep:
    """Finds lines by a regular expression."""

    read_only = True
    spec = ToolSpec(
        "grep",
        "Find lines that fit a Python regular expression, in all files or those whose path fits `path_glob`.",
        schema({"pattern": TEXT}, {"path_glob": TEXT}),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Search. Cancellation: nothing changed; a thread in the middle of a file ends by itself."""
        only(arguments, "pattern", "path_glob")
        pattern, glob = text(arguments, "pattern"), optional_text(arguments, "path_glob")
        try:
            fits = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolFailed(f"the pattern is no regular expression: {error}") from None
        await context.authorise(Act.read, ".")
        chosen = re.compile(translate(glob)).match if glob else None

        def gather(until: float) -> tuple[_Found, bytes]:
            found = _Found()
            texts: list[list[str]] = []
            size = 0
            for relative in _walk(context.root, found, until):
                if chosen is not None and not (chosen(relative) or chosen(os.path.basename(relative))):
                    continue
                if not context.may_read(relative):
                    found.kept_out += 1
                elif (content := _text_of(context.root, relative)) is not None:
                    size += len(content)
                    if size > CORPUS_CHARS:
                        found.cut = True
                        break
                    texts.append([relative, content])
            return found, json.dumps([fits.pattern, HITS, LINE_CHARS, texts]).encode()

        found, corpus = await _in_thread(gather)
        done = await run([sys.executable, "-I", "-S", "-c", _WORKER], cwd="/", timeout=SECONDS, stdin=corpus)
        if done.status is Status.timed_out:
            raise ToolFailed(f"the pattern took longer than {SECONDS:g} s; use a simpler one")
        if done.status is not Status.exited or done.code != 0:
            raise ToolFailed("the search failed; use a simpler pattern")
        found.total, found.lines = json.loads(done.output)
        return Observation(ObservationKind.grep, pattern, found.said("lines"))


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


def _text_of(root: str, relative: str) -> str | None:
    """Read a file to be searched; None for what holds no text, is too large, or is gone."""
    try:
        raw = read_bytes(locate(root, relative), FILE_BYTES)
    except ToolFailed:
        return None
    if raw is None or len(raw) > FILE_BYTES or b"\x00" in raw:
        return None
    return raw.decode("utf-8", "replace")
