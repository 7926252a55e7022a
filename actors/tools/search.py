"""Finding files by name and lines by pattern.

A pattern can take for ever on one line (Python's engine backtracks, and holds
the interpreter meanwhile), so patterns are compiled and lines are searched in a
process of their own, which is killed when its time is over. It is given the
text, and stands apart from the workspace, behind the boundary of the agent.

Both searches follow no link, and leave out what the policy does not let be
read. Whatever was left out is counted and said: a short list must not look whole.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Annotated, Any, Final

import attrs
import msgspec
import trio

from actors.agents.confinement import unrecorded
from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.output import clean, one_line
from actors.tools.paths import Workspace
from actors.tools.process import Status
from actors.tools.sandbox import run_confined
from actors.tools.sandbox_places import STARTER
from actors.tools.walking import Entry, walk
from actors.tools.whole_files import opened, read_bytes

HITS: Final = 50
FILE_BYTES: Final = 2_000_000
LINE_CHARS: Final = 2_000
SHOWN_CHARS: Final = 240
SECONDS: Final = 10.0
# What one search holds in memory at most.
CORPUS_BYTES: Final = 50_000_000
# Searches that one agent may have at a time. Each holds a text, and its time is measured on a clock that goes on
# while others compute: so the rest wait, before theirs begins.
AT_ONCE: Final = 4
# Fifty lines and fifty names, each character written as an escape: never cut.
_ANSWER_BYTES: Final = 8_000_000
# After so many entries everybody else gets a turn; judging one may take many rules.
_SLICE: Final = 200


class _Searches:
    """The searches of one agent that run beside each other."""

    def __init__(self) -> None:
        self.limiter = trio.CapacityLimiter(AT_ONCE)

    async def give_up(self) -> tuple[int, ...]:
        """Do nothing: a search ends with its call.

        Cancellation: never.
        """
        return ()


@attrs.define
class _Found:
    """What a search came to. ``total`` counts past the limit; the rest counts what is missing from it."""

    lines: list[str] = attrs.Factory(list)
    total: int = 0
    kept_out: int = 0
    no_text: int = 0
    cut_lines: int = 0
    unlisted: int = 0
    whole: bool = True

    def said(self, what: str) -> str:
        """Write what was found, and all that may be missing."""
        notes = []
        if self.total > len(self.lines):
            notes.append(f"[{len(self.lines)} of {self.total} {what} shown]")
        if self.kept_out:
            notes.append(f"[{self.kept_out} files were left out: the policy does not let them be read]")
        if self.no_text:
            notes.append(f"[{self.no_text} files were not searched: no text, or larger than {FILE_BYTES} bytes]")
        if self.unlisted:
            notes.append(f"[{self.unlisted} directories were left out: they cannot be listed]")
        if self.cut_lines:
            notes.append(f"[{self.cut_lines} lines were searched in their first {LINE_CHARS} characters only]")
        if not self.whole:
            notes.append("[the workspace is too large to be searched whole: search in a smaller part]")
        return "\n".join((*(self.lines or [f"[no {what}]"]), *notes))


def fits(glob: str) -> Callable[[str], bool]:
    """Judge a path by a glob on the whole of it or on its last name. ``*`` passes slashes; ``**/`` may be nothing."""
    matches = [re.compile(translate(each)).match for each in {glob, glob.replace("**/", "")}]
    return lambda relative: any(match(relative) or match(os.path.basename(relative)) for match in matches)


class FindArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `find` takes."""

    name_glob: Annotated[str, msgspec.Meta(min_length=1, max_length=500, description="a glob, such as *.py")]


class Find:
    """Finds files by name."""

    read_only = True
    spec = spec_for("find", "Find files of the workspace whose name or path fits a glob.", FindArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Find.

        Cancellation: nothing changed, and nothing is left open.
        """
        glob = taken(FindArguments, arguments, self.spec).name_glob
        fitting = fits(glob)
        seen = await walk(Workspace(context.root))
        found = _Found(whole=seen.complete, unlisted=seen.unlisted)
        for place, entry in enumerate(seen.entries):
            if place % _SLICE == 0:
                await trio.lowlevel.checkpoint()
            if entry.is_directory or not fitting(entry.relative):
                continue
            if not context.may_read(clean(entry.relative)):
                found.kept_out += 1
                continue
            found.total += 1
            if len(found.lines) < HITS:
                found.lines.append(one_line(entry.relative))
        return Observation(ObservationKind.find, glob, found.said("files"))


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `grep` takes."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, description="a Python regular expression")]
    path_glob: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=500, description="only files whose name or path fits it")]
        | None
    ) = None


class Grep:
    """Finds lines by a regular expression. ``seconds`` bounds the searching itself."""

    read_only = True
    spec = spec_for("grep", "Find the lines that fit a regular expression.", GrepArguments)

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Search.

        Cancellation: nothing changed, and the searching process is gone.
        """
        asked = taken(GrepArguments, arguments, self.spec)
        async with context.belongings.keep(_Searches, _Searches).limiter:
            return await self._search(asked, context)

    async def _search(self, asked: GrepArguments, context: ToolContext) -> Observation:
        found, texts = await _gather(context, asked)
        # Whoever is killed cannot end its searcher: so that ends by itself.
        most_seconds = math.ceil(self._seconds) + 1
        question = json.dumps([asked.pattern, HITS, LINE_CHARS, SHOWN_CHARS, most_seconds]).encode() + b"\n"
        done = await run_confined(
            [STARTER, "-I", "-S", "-W", "ignore", "-c", _WORKER],
            cwd="/",
            timeout=self._seconds,
            # Whatever applies is the same as for commands, of which each is written down.
            confinement=attrs.evolve(context.confinement, apart_from=context.root, record=unrecorded),
            stdin=question + b"".join(texts),
            limit=_ANSWER_BYTES,
        )
        context.report_leaked(done.leaked)
        if done.hit is not None:
            raise ToolFailed(f"the search reached the cap {done.hit}; use a simpler pattern or a path_glob")
        if done.status is Status.timed_out:
            raise ToolFailed(f"the search took longer than {self._seconds:g} s; use a simpler pattern or a path_glob")
        if done.status is not Status.exited or done.code != 0:
            raise ToolFailed(f"the search failed; use a simpler pattern. {done.output[-300:]}")
        answer = json.loads(done.output)
        if isinstance(answer, str):
            raise ToolFailed(f"the pattern is no regular expression: {answer}")
        found.total, found.cut_lines, found.lines = answer
        return Observation(ObservationKind.grep, asked.pattern, found.said("lines"))


# Kept free of imports of this package: it starts in 15 ms and knows nothing but the text it is given.
# The question is a line; each file a line with its name and size, and its bytes.
_WORKER: Final = """
import json, re, sys
stdin = sys.stdin.buffer
pattern, most, width, shown, seconds = json.loads(stdin.readline())
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
except (ImportError, ValueError, OSError):
    pass
def answer(value):
    sys.stdout.write(json.dumps(value))
    sys.exit()
try:
    search = re.compile(pattern).search
except (re.error, RecursionError, OverflowError, MemoryError) as error:
    answer(str(error) or type(error).__name__)
total, cut, lines = 0, 0, []
while head := stdin.readline():
    name, size = json.loads(head)
    texts = stdin.read(size).decode("utf-8", "replace").split("\\n")
    for number, line in enumerate(texts[:-1] if texts[-1] == "" else texts, 1):
        line = line.removesuffix("\\r")
        cut += len(line) > width
        hit = search(line[:width])
        if hit:
            total += 1
            if len(lines) < most:
                begin = max(hit.start() - shown // 4, 0) if len(line) > shown else 0
                end = begin + shown
                piece = ("..." if begin else "") + line[begin:end] + ("..." if end < len(line) else "")
                lines.append(f"{name}:{number}: {piece}")
answer([total, cut, lines])
"""


async def _gather(context: ToolContext, asked: GrepArguments) -> tuple[_Found, list[bytes]]:
    """Read what is to be searched, within the policy and the bounds."""
    workspace = Workspace(context.root)
    fitting = fits(asked.path_glob or "*")
    seen = await walk(workspace)
    found = _Found(whole=seen.complete, unlisted=seen.unlisted)
    texts: list[bytes] = []
    size = 0
    for place, entry in enumerate(seen.entries):
        if place % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        if not _is_file(entry) or not fitting(entry.relative):
            continue
        if not context.may_read(clean(entry.relative)):
            found.kept_out += 1
            continue
        content = _text_of(workspace, entry.relative)
        if content is None:
            found.no_text += 1
            continue
        size += len(content)
        if size > CORPUS_BYTES:
            found.whole = False
            break
        texts += (json.dumps([one_line(entry.relative), len(content)]).encode() + b"\n", content)
        await trio.lowlevel.checkpoint()
    return found, texts


def _is_file(entry: Entry) -> bool:
    return not entry.is_directory and not entry.is_link


def _text_of(workspace: Workspace, relative: str) -> bytes | None:
    """Read a file to be searched; None for what holds no text, is too large, or is gone."""
    try:
        with opened(workspace, relative) as descriptor:
            raw = None if descriptor is None else read_bytes(descriptor, FILE_BYTES)
    except ToolFailed:
        return None
    return None if raw is None or b"\x00" in raw else raw
