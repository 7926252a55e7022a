"""The repository of a workspace during one call of a git tool: judged, found, and behind the boundary of its agent.

Every git tool is judged as the command that a model would have given to `exec`, so a
rule about `git commit*` holds for both. What is then really run differs: settings that
name programs are off, and no command that runs others by itself is used.
"""

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import attrs
import trio

from actors.agents.contract import ExecSandbox
from actors.agents.entry_text import clean
from actors.agents.ports import ToolContext
from actors.errors import ToolFailed
from actors.tools.git_program import READING, Git, filter_names, went_well
from actors.tools.git_repository import closed_note, is_there, unlisted_below, whole_repository
from actors.tools.leftovers import has_proc, living, writers
from actors.tools.output import one_line
from actors.tools.paths import Workspace, shown
from actors.tools.process import Finished, Status
from actors.tools.sandbox import boundary
from actors.tools.sandbox_grants import is_below

# What is only looked through; more of it is said to be more.
LISTED_BYTES: Final = 4_000_000
MOST_SHOWN: Final = 200
# More of it is read where nobody waits for that.
AT_ONCE: Final = 100_000
T = TypeVar("T")
# How long a lock is looked after, one that a cut git has left or that somebody else holds.
LOCK_SECONDS: Final = 2.0
_PAUSE: Final = 0.02
_NOTHING: Final[Mapping[str, str]] = {}
_NAMES: Final = {"core.quotePath": "true", "i18n.logOutputEncoding": "UTF-8", "i18n.commitEncoding": "UTF-8"}
# After so many paths everybody else gets a turn; judging one may take many rules.
_SLICE: Final = 200


@attrs.frozen
class Repository:
    """A repository that is open for one call. ``off`` are the settings that are not taken from it.

    ``unlisted`` counts the directories that cannot be listed, of those that were asked about.
    """

    workspace: Workspace
    at: str
    off: Mapping[str, str]
    _git: Git
    unlisted: int = 0

    async def ask(
        self, what: str, *arguments: str, off: Mapping[str, str] = _NOTHING, **options: Any
    ) -> Finished:
        """Run what can be run twice without harm; its complaints are not in its output.

        Cancellation: as `Git.run`.

        Raises:
            ToolFailed: it did not go well; says ``what``.
        """
        return await self._git.lines(what, *arguments, at=self.at, off={**self.off, **_NAMES, **off}, **options)

    async def change(
        self, what: str, *arguments: str, again: bool = False, off: Mapping[str, str] = _NOTHING, **options: Any
    ) -> Finished:
        """Run what changes the repository; ``again`` says that a process ran it which is gone: its lock may be there.

        Cancellation: it was done, or not; no process of it is left.

        Raises:
            ToolFailed: it did not go well; says ``what``.
        """
        lock = f"{self.at}/index.lock"
        if again and is_there(lock):
            await _unlocked(lock)
        with trio.move_on_after(LOCK_SECONDS):
            # Of a person, or of a command, that may be about to end. Refs have locks of their own.
            while arguments[0] == "update-index" and is_there(lock):  # noqa: ASYNC110  # another process tells nobody
                await trio.sleep(_PAUSE)
        free = not is_there(lock)
        cut = True
        try:
            finished = await self._git.run(*arguments, at=self.at, off={**self.off, **_NAMES, **off}, **options)
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
            *wanted, at=self.at, off=self.off, more=READING, stderr=subprocess.DEVNULL
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
async def opened_repository(
    context: ToolContext, reads: Sequence[str] = (), *, changes: bool = False
) -> AsyncIterator[Repository]:
    """Open the repository of a workspace for one call; ``reads`` are the paths below which git looks at files.

    Of the calls of this process that change one repository there is one at a time: each looks first at what is
    there, and git refuses to change what another one is changing.

    Cancellation: no process of git is left.

    Raises:
        ToolFailed: there is none that lies here as a whole, git would wait at what is no file, or the boundary
            cannot be held.
    """
    workspace = Workspace(context.root)
    at = await trio.to_thread.run_sync(whole_repository, workspace)
    unlisted = await trio.to_thread.run_sync(unlisted_below, workspace, reads) if reads else 0
    async with AsyncExitStack() as held:
        if changes:
            await held.enter_async_context(_turn(at, context.exec_timeout))
        around = await held.enter_async_context(boundary(context.confinement, workspace.root))
        git = Git(around, workspace.root, context.exec_timeout, context.report_leaked)
        try:
            off = await git.filters_off(at)
        except ToolFailed as error:
            raise ToolFailed(f"{error}{closed_note(context.confinement.policy, '.git/HEAD')}") from None
        yield Repository(workspace, at, off, git, unlisted)


_turns: trio.lowlevel.RunVar["WeakValueDictionary[str, trio.Lock]"] = trio.lowlevel.RunVar("actors.tools.git_opened")


@asynccontextmanager
async def _turn(at: str, seconds: float) -> AsyncIterator[None]:
    """Wait until no other call changes the repository ``at``.

    Cancellation: nobody else is kept waiting.

    Raises:
        ToolFailed: others took longer than a call may.
    """
    try:
        known = _turns.get()
    except LookupError:
        known = WeakValueDictionary()
        _turns.set(known)
    lock = known.get(at)
    if lock is None:
        lock = known[at] = trio.Lock()
    with trio.move_on_after(seconds) as waiting:
        await lock.acquire()
    if waiting.cancelled_caught:
        raise ToolFailed("other agents are changing the repository of the workspace all the time; try again later")
    try:
        yield
    finally:
        lock.release()


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


async def split_readable(
    context: ToolContext, paths: Sequence[str], allowed: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Split paths in those that the agent may read, and those that it may not; ``allowed`` were judged before.

    The store of the run is in neither: commands have nothing to do with it, and it is no work. Gives way now and then.

    Cancellation: nothing changed.
    """
    may: list[str] = []
    may_not: list[str] = []
    root, store = _real(context.root), context.confinement.hidden
    given = frozenset(allowed)
    for place, path in enumerate(paths):
        if place % _SLICE == _SLICE - 1:
            await trio.lowlevel.checkpoint()
        if any(is_below(f"{root}/{path}", place) for place in store):
            continue
        (may if path in given or context.may_read(clean(path)) else may_not).append(path)
    return may, may_not


def _real(path: str) -> str:
    return os.path.realpath(path)


async def read_by(read: Callable[[str], T], output: str) -> T:
    """Read what git printed; in a thread where that takes a while.

    Cancellation: nothing changed.
    """
    return read(output) if len(output) <= AT_ONCE else await trio.to_thread.run_sync(read, output)


def kept_out(number: int, what: str = "files") -> list[str]:
    """Say how many were left out."""
    return [f"[{number} {what} were left out: the policy does not let them be read]"] if number else []


def unlisted_note(repository: Repository) -> list[str]:
    """Say how many directories git could not look into."""
    number = repository.unlisted
    return [f"[{number} directories were left out: they cannot be listed]"] if number else []


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
