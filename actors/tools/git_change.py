"""The tools `git_add`, `git_commit` and `git_branch`: what is staged is named, committed, and given a name.

What would be got wrong:

- What is staged can be read from then on, whatever becomes of the rules for its file. So
  each file is judged, also those in a directory that was named, and git is then given
  exactly these names; it looks for none by itself.
- A process may end between a commit and the record of it. Before anything is done it is
  noted what will be (the commit before, the files, the words), and a call that is run
  again looks whether that stands already: nothing is committed twice, whatever time it is.
- A commit is made by commands that do only that, not by `git commit`: no hook, editor,
  signer or look into submodules belongs to them. A merge that is under way is not ended so.
- No branch but the one that the workspace is on ever moves, and no file of it changes.
"""

import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import trio

from actors.agents.contract import Identity
from actors.agents.entry_text import clean
from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.git_opened import (
    LISTED_BYTES,
    MOST_SHOWN,
    Repository,
    asked_note,
    kept_out,
    named,
    only,
    opened_repository,
    read_by,
    split_readable,
    unlisted_note,
)
from actors.tools.git_repository import is_there
from actors.tools.git_text import (
    COMMIT_FORMAT,
    NO_FILTER,
    Commit,
    branch_problem,
    commits_of,
    filtered_by,
    message_problem,
    names_of,
)
from actors.tools.output import one_line
from actors.tools.paths import Workspace, shown
from actors.tools.whole_files import digest

MOST_PATHS: Final = 100
# So far back a commit of this very call is looked for: others may have committed since.
LOOKED_BACK: Final = 20
_INDEX, _HEAD = ".git/index", ".git/HEAD"
_NOTHING: Final = ["[nothing to stage: no change, or only of ignored files]"]
_DIFFERS: Final = ("--modified", "--deleted", "--others", "--exclude-standard")
_ESCAPED: Final = re.compile(rb'[\x00-\x1f"\\]')
_FILTER_FAILED: Final = re.compile(rf"fatal: (?P<path>.*): clean filter '(?P<name>{'|'.join(NO_FILTER)})' failed")
_UNDER_WAY: Final = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


# ── staging ─────────────────────────────────────────────────────────────────


class GitAddArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_add` takes."""

    paths: Annotated[
        list[str], msgspec.Meta(min_length=1, max_length=MOST_PATHS, description="files and directories")
    ]


class GitAdd:
    """Stages files as they are now, removed ones too."""

    read_only = False
    recovery = "replayable"
    notes_writes = True
    spec = spec_for("git_add", "Stage files for the next commit, removed ones too.", GitAddArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Stage all that was named and may be read, or nothing.

        Cancellation: all or nothing of it is staged.
        """
        asked = taken(GitAddArguments, arguments, self.spec)
        workspace = Workspace(context.root)
        paths = list(dict.fromkeys(named(workspace, path) for path in asked.paths))
        argv = ["git", "add", "--", *paths]
        line = shlex.join(argv)
        await context.authorise_commands([argv], line, reads=paths)
        async with opened_repository(context, paths, changes=True) as repository:
            found, left_out = await _changed(repository, paths)
            may, may_not = await split_readable(context, found, paths)
            await _need_no_filter(repository, may)
            ours = await context.intend(_INDEX, digest(line.encode(errors="surrogatepass")), changes=bool(may))
            if may:
                await _stage(repository, may, asked_note(context, paths), again=ours)
            # Not what was done just now: a call that is run again says what it said before.
            staged = await _staged(repository, context, paths) if may or ours else _NOTHING
        lines = staged + kept_out(len(may_not))
        if left_out:
            lines.append(f"[{left_out} were left out: repositories of their own, or in place of a file]")
        lines += unlisted_note(repository)
        return Observation(ObservationKind.tool, line, "\n".join(lines), changed=bool(may) or ours)


async def _changed(repository: Repository, paths: Sequence[str]) -> tuple[list[str], int]:
    """List the files below these that differ from what is staged, and count the directories among them.

    Cancellation: nothing changed.

    Raises:
        ToolFailed: git fails, or there are too many.
    """
    listed = await repository.ask("git add failed", "ls-files", *_DIFFERS, "--", *only(paths), limit=LISTED_BYTES)
    if listed.left_out:
        raise ToolFailed("git add: too many files differ to judge each of them; name paths")
    names = await read_by(names_of, listed.output)
    files = await trio.to_thread.run_sync(_no_directories, repository.workspace, names)
    return files, len(names) - len(files)


def _no_directories(workspace: Workspace, names: Sequence[str]) -> list[str]:
    return [each for each in sorted(names) if not _is_directory(workspace, each)]


def _is_directory(workspace: Workspace, relative: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(f"{workspace.root}/{relative}").st_mode)
    except OSError:
        return False


async def _need_no_filter(repository: Repository, names: Sequence[str]) -> None:
    """Refuse to stage as it is what the project keeps in another form.

    Cancellation: nothing changed.

    Raises:
        ToolFailed: one of these files goes through a filter.
    """
    if not names:
        return
    given = b"".join(_as_line(each) for each in names)
    told = await repository.ask(
        "git add failed", "check-attr", "--stdin", "filter", stdin=given, limit=LISTED_BYTES
    )
    if told.left_out:
        raise ToolFailed("git add: too many files to judge each of them; name paths")
    found = await read_by(partial(filtered_by, names=repository.filters), told.output)
    for path, name in found:
        raise _kept_through(path, name)


def _kept_through(path: str, name: str) -> ToolFailed:
    why = f"is kept through the filter {shown(name)}, a program, and none is run here"
    return ToolFailed(f"{shown(path)} {why}; nothing was staged. Name other paths, or use exec for it")


def _as_line(name: str) -> bytes:
    """Write a name as git reads one in a list of lines."""
    return b'"' + _ESCAPED.sub(lambda found: b"\\%03o" % found[0][0], os.fsencode(name)) + b'"\n'


async def _stage(repository: Repository, paths: Sequence[str], notes: Sequence[str], *, again: bool) -> None:
    """Stage exactly these, all or none; ``notes`` may say why that fails, ``again`` that it was begun before.

    Cancellation: all or none.

    Raises:
        ToolFailed: none is staged.
    """
    names = b"".join(os.fsencode(each) + b"\0" for each in paths)
    how = ("--add", "--remove", "--replace", "-z", "--stdin")
    # A filter that is called as git says that there is none: only git itself can tell it from none, and fails then.
    needed = {f"filter.{word}.required": "true" for word in NO_FILTER if word not in repository.filters}
    try:
        await repository.change("git add failed", "update-index", *how, again=again, stdin=names, off=needed)
    except ToolFailed as error:
        filtered = _FILTER_FAILED.search(str(error))
        if filtered is not None:
            raise _kept_through(filtered["path"], filtered["name"]) from None
        raise ToolFailed("\n".join((str(error), *notes))) from None


async def _staged(repository: Repository, context: ToolContext, paths: Sequence[str]) -> list[str]:
    """Say what is staged below these paths.

    Cancellation: nothing changed.

    Raises:
        ToolFailed: git fails.
    """
    how = ("--cached", "--name-only", "--no-renames", "--ignore-submodules=all")
    listed = await repository.ask("git add failed", "diff", *how, "--", *only(paths), limit=LISTED_BYTES)
    names, _ = await split_readable(context, await read_by(names_of, listed.output), paths)
    more = [f"[{MOST_SHOWN} of {len(names)} shown]"] if len(names) > MOST_SHOWN else []
    return [f"staged {len(names)} files:", *(one_line(each) for each in names[:MOST_SHOWN]), *more]


# ── committing ──────────────────────────────────────────────────────────────


class GitCommitArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_commit` takes."""

    message: Annotated[str, msgspec.Meta(description="what the commit says")]


class GitCommit:
    """Commits what is staged."""

    read_only = False
    recovery = "replayable"
    notes_writes = True
    spec = spec_for("git_commit", "Commit what is staged.", GitCommitArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Commit; a commit that this call has made already is not made again.

        Cancellation: it is made or not; the same call, run again, finds it.
        """
        message = clean(taken(GitCommitArguments, arguments, self.spec).message).strip()
        problem = message_problem(message)
        if problem is not None:
            raise ToolFailed(f"git_commit: message {problem}")
        argv = ["git", "commit", "-m", message]
        line = shlex.join(argv)
        await context.authorise_commands([argv], line)
        async with opened_repository(context, changes=True) as repository:
            made = await _commit(repository, context, message)
            branch = await _branch(repository)
        said = f"committed {made[:12]} {branch}: {one_line(message.splitlines()[0])}"
        return Observation(ObservationKind.tool, line, said, changed=True)


async def _commit(repository: Repository, context: ToolContext, message: str) -> str:
    """Make the commit, or find the one that this call has made; give its name.

    Cancellation: as the tool.

    Raises:
        ToolFailed: nothing is staged, or git fails; nothing was committed.
    """
    head = await repository.commit_at("HEAD")
    recent = [] if head is None else await _recent(repository, head)
    for each in recent:
        if context.wrote(_HEAD, _digest_of(each)):
            return each.name
    for name in _UNDER_WAY:
        if is_there(f"{repository.at}/{name}"):
            raise ToolFailed(f"git commit: something else is under way (.git/{name}); end it with git itself")
    tree = (await repository.ask("git commit failed", "write-tree")).output.strip()
    staged = await repository.ask("git commit failed", "ls-files", "--cached", limit=100) if head is None else None
    if (recent and recent[0].tree == tree) or (staged is not None and not staged.output):
        raise ToolFailed("git commit: nothing is staged; git_add stages files")
    await context.intend(_HEAD, _digest_of(Commit("", head or "", tree, message)), changes=True)
    parents = [] if head is None else ["-p", head]
    how = ("--no-gpg-sign", *parents, "-F", "-", tree)
    said = f"{message}\n".encode()
    who = _named(context.commit_identity)
    written = await repository.ask("git commit failed", "commit-tree", *how, stdin=said, more=who)
    made = written.output.strip()
    subject = one_line(message.splitlines()[0])
    # Only from where it was looked at: somebody else may have committed since.
    moved = ("-m", f"commit: {subject}", "HEAD", made, head or "0" * len(tree))
    why = "git commit failed; if somebody else has committed meanwhile, call it again"
    await repository.change(why, "update-ref", *moved, more=who)
    return made


async def _recent(repository: Repository, head: str) -> list[Commit]:
    how = (f"-{LOOKED_BACK}", "--first-parent", "--no-show-signature", "--no-mailmap", f"--format={COMMIT_FORMAT}")
    listed = await repository.ask("git commit failed", "log", *how, head, "--")
    return commits_of(listed.output)


def _digest_of(commit: Commit) -> str:
    return digest(f"{commit.parents}\n{commit.tree}\n{commit.message}".encode(errors="surrogatepass"))


def _named(who: Identity) -> dict[str, str]:
    """Give the variables by which git knows who commits: never what the machine or the repository names."""
    author = {"GIT_AUTHOR_NAME": who.name, "GIT_AUTHOR_EMAIL": who.email}
    return author | {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.email}


async def _branch(repository: Repository) -> str:
    named_by = await repository.ask("git commit failed", "rev-parse", "--abbrev-ref", "HEAD")
    name = one_line(named_by.output.strip())
    return "on no branch" if name == "HEAD" else f"on {name}"


# ── naming ──────────────────────────────────────────────────────────────────


class GitBranchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `git_branch` takes."""

    name: Annotated[str, msgspec.Meta(description="the new branch")]


class GitBranch:
    """Makes a branch of the last commit; the workspace stays on the one that it is on."""

    read_only = False
    recovery = "replayable"
    notes_writes = True
    spec = spec_for("git_branch", "Make a branch at the last commit, without going to it.", GitBranchArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Make it; one that is there already stays as it is.

        Cancellation: it is made or not; the same call, run again, finds it.
        """
        name = taken(GitBranchArguments, arguments, self.spec).name
        problem = branch_problem(name)
        if problem is not None:
            raise ToolFailed(f"git_branch: {shown(name)} {problem}")
        argv = ["git", "branch", name]
        line = shlex.join(argv)
        await context.authorise_commands([argv], line)
        ref = f"refs/heads/{name}"
        async with opened_repository(context, changes=True) as repository:
            there, head = await repository.commit_at(ref), await repository.commit_at("HEAD")
            if there is not None:
                ours = context.wrote(f".git/{ref}", there)
                at = there[:12]
                said = f"made {name} at {at}" if ours else f"{name} is there already, at {at}; unchanged"
                return Observation(ObservationKind.tool, line, said, changed=ours)
            if head is None:
                raise ToolFailed("git branch: nothing is committed yet that it could name")
            await context.intend(f".git/{ref}", head, changes=True)
            made = ("-m", "branch: made by an agent", ref, head, "0" * len(head))
            await repository.change("git branch failed", "update-ref", *made, more=_named(context.commit_identity))
        return Observation(ObservationKind.tool, line, f"made {name} at {head[:12]}", changed=True)
