"""The tools `git_status`, `git_diff` and `git_log`: what differs, and what was committed.

What the policy does not let be read is not named and not shown, only counted: what was
committed of a file says as much of it as the file itself.

Submodules are left out: to look into one, git runs itself there, with settings that
nobody has looked at.
"""

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.git_opened import (
    LISTED_BYTES,
    MOST_SHOWN,
    Repository,
    asked_note,
    filters_note,
    kept_out,
    named,
    only,
    opened_repository,
    read_by,
    split_readable,
    unlisted_note,
)
from actors.tools.git_text import names_of, status_of, where
from actors.tools.output import one_line
from actors.tools.paths import Workspace

# So many names are told to git as ones to leave out.
MOST_LEFT_OUT: Final = 1_000
COMMITS: Final = 20
_PLAIN: Final = ("--no-renames", "--ignore-submodules=all")
_DIFF: Final = (*_PLAIN, "--no-ext-diff", "--no-textconv", "--no-color")
# No signature is looked at: that is done by a program which settings name.
_LOG: Final = ("--no-show-signature", "--no-mailmap", "--no-color", "--format=%h %cs %an: %s%d")


class GitStatusArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_status` takes: nothing."""


class GitStatus:
    """Tells what differs."""

    read_only = True
    spec = spec_for("git_status", "List what differs from the last commit.", GitStatusArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Look; nothing is written, not even what git remembers of files.

        Cancellation: nothing changed, and no process is left.
        """
        taken(GitStatusArguments, arguments, self.spec)
        argv = ["git", "status"]
        await context.authorise_commands([argv], shlex.join(argv))
        async with opened_repository(context, ["."]) as repository:
            wanted = ("--porcelain=v2", "--branch", "--untracked-files=all", *_PLAIN)
            listed = await repository.ask("git status failed", "status", *wanted, limit=LISTED_BYTES)
            notes = [*unlisted_note(repository), *filters_note(repository)]
        # A name that is cut is another one.
        whole = listed.output if not listed.left_out else listed.output.partition("\n[... ")[0].rpartition("\n")[0]
        report = await read_by(status_of, whole)
        may, may_not = await split_readable(context, [change.path for change in report.changes])
        seen = set(may)
        shown = [f"{change.code} {one_line(change.path)}" for change in report.changes if change.path in seen]
        lines = [one_line(where(report)), *(shown[:MOST_SHOWN] or ["[nothing differs]"])]
        if listed.left_out:
            lines.append("[there are more changes than are looked through]")
        elif len(shown) > MOST_SHOWN:
            lines.append(f"[{MOST_SHOWN} of {len(shown)} changes shown]")
        lines += kept_out(len(may_not))
        return Observation(ObservationKind.tool, "git status", "\n".join((*lines, *notes)))


class GitDiffArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_diff` takes."""

    path: Annotated[str, msgspec.Meta(description="only this file or directory")] | None = None
    staged: Annotated[bool, msgspec.Meta(description="what is staged, in place of what is not")] | None = None


class GitDiff:
    """Shows how the lines of files differ."""

    read_only = True
    spec = spec_for("git_diff", "Show the lines that differ; files git does not know are not in it.", GitDiffArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Show.

        Cancellation: nothing changed, and no process is left.
        """
        asked = taken(GitDiffArguments, arguments, self.spec)
        path = None if asked.path is None else named(Workspace(context.root), asked.path)
        staged = ["--cached"] if asked.staged else []
        argv = ["git", "diff", *staged, *([] if path is None else ["--", path])]
        line = shlex.join(argv)
        await context.authorise_commands([argv], line, reads=[] if path is None else [path])
        async with opened_repository(context, [path or "."]) as repository:
            notes = filters_note(repository)
            try:
                text, denied = await _differences(repository, context, staged, path)
            except ToolFailed as error:
                raise ToolFailed("\n".join((str(error), *asked_note(context, [path] if path else [])))) from None
        said = "\n".join((*([text] if text else []), *kept_out(denied), *notes))
        return Observation(ObservationKind.tool, line, said or "[nothing differs]")


async def _differences(
    repository: Repository, context: ToolContext, staged: list[str], path: str | None
) -> tuple[str, int]:
    """Give what differs of the files that may be read, and how many others differ, or may.

    Cancellation: nothing changed.

    Raises:
        ToolFailed: git fails, or it is too much to judge.
    """
    named_paths = [] if path is None else [path]
    places = only(named_paths)
    # Without a look into any file: behind a boundary those that are denied cannot be opened.
    names = ["diff", *staged, *_DIFF] if staged else ["diff-files", "--ignore-submodules=all"]
    listed = await repository.ask("git diff failed", *names, "--name-only", "--", *places, limit=LISTED_BYTES)
    may, may_not = await split_readable(context, await read_by(names_of, listed.output), named_paths)
    if listed.left_out or len(may_not) > MOST_LEFT_OUT:
        raise ToolFailed("git diff: too many files differ to judge each of them; name a path")
    if not may:
        return "", len(may_not)
    # Names of files become those of directories meanwhile: so these are left out, and not the others named.
    out = [f":(exclude,top,literal){each}" for each in may_not]
    readable = {"core.quotePath": "false"}
    shown = await repository.ask("git diff failed", "diff", *staged, *_DIFF, "--", *places, *out, off=readable)
    return shown.output.rstrip("\n"), len(may_not)


class GitLogArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_log` takes."""

    count: Annotated[int, msgspec.Meta(ge=1, le=200, description="the most commits; 20 when left out")] | None = None


class GitLog:
    """Lists commits."""

    read_only = True
    spec = spec_for("git_log", "List the last commits, the newest first.", GitLogArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """List.

        Cancellation: nothing changed, and no process is left.
        """
        count = taken(GitLogArguments, arguments, self.spec).count or COMMITS
        argv = ["git", "log", "-n", str(count)]
        line = shlex.join(argv)
        await context.authorise_commands([argv], line)
        async with opened_repository(context) as repository:
            if await repository.commit_at("HEAD") is None:
                return Observation(ObservationKind.tool, line, "[nothing is committed yet]")
            listed = await repository.ask("git log failed", "log", f"-{count}", *_LOG, "HEAD", "--")
        return Observation(ObservationKind.tool, line, listed.output.rstrip("\n"))
