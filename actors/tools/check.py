"""The tool `check`: whether the source files of the workspace compile, those changed last before all others.

Nothing of them is run: the checkers are those of the criterion `each_compiles`, behind
the same boundary. What is not looked at is counted and said: no finding must not look
like no fault.

Which files to look at is asked of the disk and of no memory: so it is right after a
resume, and for what a command or somebody else wrote.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec
import trio

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.compiling import CHECKERS, PYTHON, Look, checker_of, ending_of, programs_of
from actors.tools.output import clean
from actors.tools.paths import Workspace, shown
from actors.tools.walking import walk
from actors.tools.write_check import CHECK, refused_check

# One takes some 50 ms behind a boundary.
MOST_FILES: Final = 40
_KNOWN: Final = (*PYTHON, *CHECKERS)
_SLICE: Final = 200


class CheckArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `check` takes: nothing."""


@attrs.define
class _Sources:
    """The files that some checker is for, newest first, and what is missing from them."""

    files: list[str] = attrs.Factory(list)
    kept_out: int = 0
    unlisted: int = 0
    whole: bool = True
    # Endings that nothing looks at, and why.
    without: dict[str, str] = attrs.Factory(dict)

    def of(self, ending: str) -> list[str]:
        """Give the files with an ending."""
        return [file for file in self.files if ending_of(file) == ending]


class Check:
    """Looks whether files compile. See the file's docstring."""

    spec = spec_for(
        CHECK, f"Look whether the {MOST_FILES} source files changed last compile. Runs nothing of them.", CheckArguments
    )
    read_only = False
    recovery = "replayable"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Look.

        The policy is asked about ``check``, and about each checker that is a program of its own;
        a language whose checker is refused is left out. All together take no longer than one command may.

        Cancellation: nothing changed, and every checker is gone.
        """
        taken(CheckArguments, arguments, self.spec)
        await context.authorise(Act.exec, CHECK)
        sources = await _find(context)
        await _judge(context, sources)
        chosen = [file for file in sources.files if ending_of(file) not in sources.without]
        look = Look(context.root, context.exec_timeout, context.may_read, lambda _: True, context.confinement)
        said = {"passed": 0, "failed": 0, "errored": 0}
        lines = []
        with trio.move_on_after(context.exec_timeout) as scope:
            for file in chosen[:MOST_FILES]:
                verdict, detail = await look.at(file)
                said[verdict] += 1
                if verdict != "passed":
                    lines.append(f"{shown(file)} {detail}")
        context.report_leaked(look.leaked)
        looked = sum(said.values())
        if scope.cancelled_caught:
            lines.append(f"[{len(chosen[looked:])} files were not looked at: the {context.exec_timeout:g} s are over]")
        elif len(chosen) > MOST_FILES:
            lines.append(f"[{len(chosen) - MOST_FILES} more files were not looked at: they were changed before these]")
        return Observation(ObservationKind.tool, CHECK, "\n".join([_summary(said), *lines, *_missing(sources)]))


async def _find(context: ToolContext) -> _Sources:
    workspace = Workspace(context.root)
    seen = await walk(workspace)
    found = _Sources(whole=seen.complete, unlisted=seen.unlisted)
    times: dict[str, int] = {}
    for place, entry in enumerate(seen.entries):
        if place % _SLICE == 0:
            await trio.lowlevel.checkpoint()
        if entry.is_directory or entry.is_link or ending_of(entry.relative) not in _KNOWN:
            continue
        if not context.may_read(clean(entry.relative)):
            found.kept_out += 1
            continue
        try:
            with workspace.parent(entry.relative) as (above, name):
                mark = os.stat(name, dir_fd=above, follow_symlinks=False)
        except (OSError, ToolFailed):
            # Gone since.
            continue
        if stat.S_ISREG(mark.st_mode):
            # A command can put the time of a change back, but not the time at which it did that.
            times[entry.relative] = mark.st_ctime_ns
    found.files = sorted(times, key=lambda each: (-times[each], each))
    return found


async def _judge(context: ToolContext, sources: _Sources) -> None:
    """Find out which endings nothing looks at: no program is there for them, or it is refused."""
    known: dict[str, str | None] = {}
    for ending in dict.fromkeys(map(ending_of, sources.files)):
        try:
            checker_of(ending, context.root)
        except ToolFailed as error:
            sources.without[ending] = str(error)
            continue
        for argv in programs_of(ending):
            line = shlex.join(argv)
            if line not in known:
                known[line] = await refused_check(context, *argv)
            refused = known[line]
            if refused is not None:
                sources.without[ending] = refused


def _summary(said: Mapping[str, int]) -> str:
    count = sum(said.values())
    if not count:
        return "[no file was looked at]"
    counted = f"{said['passed']} compile, {said['failed']} do not, {said['errored']} are unknown"
    return f"[{count} files compile]" if said["passed"] == count else f"[{count} files looked at: {counted}]"


def _missing(sources: _Sources) -> list[str]:
    notes = [
        f"[{len(sources.of(ending))} files {ending} were not looked at: {why}]"
        for ending, why in sources.without.items()
    ]
    if not sources.files:
        notes.append(f"[there is no checker for what is here; there are some for {' '.join(_KNOWN)}]")
    if sources.kept_out:
        notes.append(f"[{sources.kept_out} files were left out: the policy does not let them be read]")
    if sources.unlisted:
        notes.append(f"[{sources.unlisted} directories were left out: they cannot be listed]")
    if not sources.whole:
        notes.append("[the workspace is too large to be looked through whole]")
    return notes
