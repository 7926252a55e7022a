"""The repository of a workspace during one call of a git tool: judged, found, and behind the boundary of its agent.

Every git tool is judged as the command that a model would have given to `exec`, so a
rule about `git commit*` holds for both. What is then really run differs: settings that
name programs are off, and no command that runs others by itself is used.
"""

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import attrs
import trio

from actors.agents.contract import ExecSandbox
from actors.agents.entry_text import clean
from actors.agents.ports import ToolContext
from actors.tools.git_program import Git, filter_names, went_well
from actors.tools.git_repository import is_there, whole_repository
from actors.tools.leftovers import has_proc, living, writers
from actors.tools.output import one_line
from actors.tools.paths import Workspace, shown
from actors.tools.process import Finished, Status
from actors.tools.sandbox import boundary
from actors.tools.sandbox_grants import is_below

# What is only looked through; more of it is said to be more.
LISTED_BYTES: Final = 4_000_000
MOST_SHOWN: Final = 200
# How long a lock that a cut git has left is looked after.
LOCK_SECONDS: Final = 2.0
_NOTHING: Final[Mapping[str, str]] = {}
_READING: Final = {"GIT_OPTIONAL_LOCKS": "0"}
_NAMES: Final = {"core.quotePath": "true", "i18n.logOutputEncoding": "UTF-8", "i18n.commitEncoding": "UTF-8"}


@attrs.frozen
class Repository:
    """A repository that is open for one call. ``off`` are the settings that are not taken from it."""

    workspace: Workspace
    at: str
    off: Mapping[str, str]
    _git: Git

    async def ask(
        self,
        what: str,
        *arguments: str,
        off: Mapping[str, str] = _NOTHING,
        more: Mapping[str, str] = _NOTHING,
        **options: Any,
    ) -> Finished:
        """Run what can be run twice without harm; its complaints are not in its output.

        Cancellation: as `Git.run`.

        Raises:
            ToolFailed: it did not go well; says ``what``.
        """
        settings, given = {**self.off, **_NAMES, **off}, {**_READING, **more}
        return await self._git.lines(what, *arguments, at=self.at, off=settings, more=given, **options)

    async def change(self, what: str, *arguments: str, again: bool = False, **options: Any) -> Finished:
        """Run what changes the repository; ``again`` says that a process ran it which is gone: its lock may be there.

        Cancellation: it was done, or not; no process of it is left.

        Raises:
            ToolFailed: it did not go well; says ``what``.
        """
        lock = f"{self.at}/index.lock"
        if again and is_there(lock):
            await _unlocked(lock)
        free = not is_there(lock)
        cut = True
        try:
            finished = await self._git.run(*arguments, at=self.at, off={**self.off, **_NAMES}, **options)
            cut = finished.status is not Status.exited
        finally:
            # Git takes its own lock away, unless it was cut; one that it met, before or meanwhile, is somebody else's.
            if cut and free and is_there(lock):
                with trio.move_on_after(LOCK_SECONDS, shield=True):
                    await _unlocked(lock)
        if not went_well(finished):
            raise self._git.failed(what, finished)
        return finished

    async def commit_at(self, name: str) -> str | None:
        """Give the commit that a ref names; None where there is none.

        Cancellation: as `Git.run`.

        Raises:
            ToolFailed: git cannot say.
        """
        wanted = ("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}")
        finished = await self._git.run(
            *wanted, at=self.at, off=self.off, more=_READING, stderr=subprocess.DEVNULL
        )
        if not went_well(finished) and (finished.status, finished.code) != (Status.exited, 1):
            raise self._git.failed(f"{name} cannot be read", finished)
        return finished.output.strip() or None

    @property
    def filters(self) -> set[str]:
        """Name the filters of files that its settings name; none of them is run."""
        return filter_names(self.off)


async def _unlocked(lock: str) -> None:
    """Take away a lock that can be nobody's: none has it open, and no git lives that could have closed it meanwhile.

    One that waits for an editor has. While any git runs here, the lock stays.

    Cancellation: it stays.
    """
    if has_proc() and not await writers(lock) and not await living("git"):
        with suppress(OSError):
            os.unlink(lock)


@asynccontextmanager
async def opened_repository(context: ToolContext) -> AsyncIterator[Repository]:
    """Open the repository of a workspace for one call.

    Cancellation: no process of git is left.

    Raises:
        ToolFailed: there is none that lies here as a whole, or the boundary cannot be held.
    """
    workspace = Workspace(context.root)
    at = whole_repository(workspace)
    async with boundary(context.confinement, workspace.root) as around:
        git = Git(around, workspace.root, context.exec_timeout, context.report_leaked)
        yield Repository(workspace, at, await git.filters_off(at), git)


def named(workspace: Workspace, path: str) -> str:
    """Find what a path means to git: a link is the link itself, and not what it leads to.

    Raises:
        ToolFailed: it leads out of the workspace.
    """
    relative = workspace.resolve(path)
    above, _, last = path.rstrip("/").rpartition("/")
    if last in ("", ".", "..") or path.endswith("/"):
        return relative
    folder = workspace.resolve(above or ("/" if path.startswith("/") else "."))
    place = last if folder == "." else f"{folder}/{last}"
    return place if is_link(workspace, place) else relative


def is_link(workspace: Workspace, relative: str) -> bool:
    """Tell whether a link lies at a path."""
    try:
        return stat.S_ISLNK(os.lstat(f"{workspace.root}/{relative}").st_mode)
    except (OSError, ValueError):
        return False


def only(paths: Sequence[str]) -> list[str]:
    """Tell git to look at these and at what is below them, as they are spelled; none mean all."""
    return [] if "." in paths else [f":(top,literal){path}" for path in paths]


def split_readable(
    context: ToolContext, paths: Sequence[str], allowed: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Split paths in those that the agent may read, and those that it may not; ``allowed`` were judged before.

    The store of the run is in neither: commands have nothing to do with it, and it is no work.
    """
    may: list[str] = []
    may_not: list[str] = []
    root, store = os.path.realpath(context.root), context.confinement.hidden
    for path in paths:
        if any(is_below(f"{root}/{path}", place) for place in store):
            continue
        (may if path in allowed or context.may_read(clean(path)) else may_not).append(path)
    return may, may_not


def kept_out(number: int, what: str = "files") -> list[str]:
    """Say how many were left out."""
    return [f"[{number} {what} were left out: the policy does not let them be read]"] if number else []


def asked_note(context: ToolContext, paths: Sequence[str]) -> list[str]:
    """Say of what a human let be read, and no rule, that git may see nothing of it as it is now."""
    asked = [shown(path) for path in paths if not context.may_read(clean(path))]
    if not asked or context.confinement.mode is ExecSandbox.full_access:
        return []
    return [f"[a rule asks about {', '.join(asked)}: behind a boundary that is closed to commands, git too]"]


def filters_note(repository: Repository) -> list[str]:
    """Say that files which are kept through a filter look changed."""
    if not repository.filters:
        return []
    names = ", ".join(sorted(one_line(name) for name in repository.filters))
    return [f"[filters are programs, and off here ({names}): files that go through one may look changed]"]
