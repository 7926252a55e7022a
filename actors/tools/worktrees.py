"""Work trees made with git, for children that are not to share their parent's files.

What would be got wrong:

- Whoever works in a workspace can write what lies in it, also the settings of its
  repository, and git runs programs that settings name: hooks, filters of files,
  monitors, transports. All of them are switched off, the filters by the names that
  the settings give them; and git runs behind the boundary of the agent that asks,
  like any other command of it.
- A repository can say that it is another one (`.git` as a file, `commondir`,
  `alternates`): its files would be brought in here. Only one that lies here whole
  is used, and git is told where it lies.
- A tree whose files did not all come out of git when a process ended looks like one
  in which somebody removed files. Its index is written last, and tells.
"""

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from typing import Final

from actors.agents.confinement import Confinement
from actors.agents.entry_text import bounded
from actors.agents.worktrees import FOLDER, WorktreePlace
from actors.errors import ToolFailed
from actors.tools.paths import Workspace
from actors.tools.process import Finished, Status
from actors.tools.sandbox import run_confined

MOST_FILTERS: Final = 64
SHOWN: Final = 500
_OFF: Final = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.sshCommand": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_FILTER: Final = re.compile(r"filter\.(?P<name>.+)\.(?:smudge|clean|process|required)", re.DOTALL)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GIT_FILE: Final = re.compile(r"gitdir: (?P<path>.+)\n?")


class GitWorktrees:
    """Makes work trees in the repository of a workspace. Keeps to `actors.agents.worktrees.Worktrees`."""

    async def make(self, root: str, place: WorktreePlace, *, timeout: float, confinement: Confinement) -> str:
        """Make a work tree at ``place`` from what is committed, or complete or take the one that lies there.

        Cancellation: as in the protocol; no process of git is left.

        Raises:
            ToolFailed: it cannot be made; says why.
        """
        making = _Making(Workspace(root), place, timeout, confinement)
        try:
            return await making.make()
        except ToolFailed as error:
            raise ToolFailed(f"no sub-agent was started: no work tree could be made for it: {error}") from None


class _Making:
    """One work tree to be."""

    def __init__(self, workspace: Workspace, place: WorktreePlace, timeout: float, confinement: Confinement) -> None:
        self._workspace = workspace
        self._root = workspace.root
        self._place = place
        self._timeout = timeout
        self._confinement = confinement
        self._git_dir = f"{self._root}/.git"
        self._path = f"{self._root}/{place.path}"
        self._off: dict[str, str] = dict(_OFF)

    async def make(self) -> str:
        """Make it.

        Cancellation: as `GitWorktrees.make`.

        Raises:
            ToolFailed: it cannot be made.
        """
        self._need_repository()
        self._need_folder()
        await self._switch_filters_off()
        if not _is_there(self._path):
            await self._add()
        own = self._own_git_dir()
        if not _is_there(f"{own}/index"):
            await self._check_out(own)
        return self._path

    # ── what must hold ──────────────────────────────────────────────────────

    def _need_repository(self) -> None:
        if f"/{FOLDER}/" in f"{self._root}/":
            raise ToolFailed("the agent works in a work tree itself, and those of its children would lie in it")
        try:
            found = os.lstat(self._git_dir)
        except OSError:
            raise ToolFailed("the workspace is not the top of a git repository") from None
        if not stat.S_ISDIR(found.st_mode):
            raise ToolFailed("the repository of the workspace lies elsewhere (its .git is no directory)")
        for name in ("commondir", "objects/info/alternates", "objects/info/http-alternates"):
            if os.path.lexists(f"{self._git_dir}/{name}"):
                raise ToolFailed(f"the repository of the workspace has files that lie elsewhere (.git/{name})")

    def _need_folder(self) -> None:
        """Make the folder of work trees, which git passes by, and see that nothing on the way is a link."""
        if self._workspace.resolve(self._place.path) != self._place.path:
            raise ToolFailed(f"{self._place.path} leads through a link")
        with self._workspace.parent(f"{FOLDER}/.gitignore", create=True) as (above, name):
            try:
                file = os.open(name, _NEW, 0o644, dir_fd=above)
            except FileExistsError:
                return
            except OSError as error:
                raise ToolFailed(f"{FOLDER} cannot be written: {error.strerror}") from None
            with os.fdopen(file, "w") as ignore:
                ignore.write("*\n")

    def _own_git_dir(self) -> str:
        """Give where git keeps what it knows of this tree; it must be one of this repository."""
        try:
            with open(os.open(f"{self._path}/.git", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                told = _GIT_FILE.fullmatch(os.fsdecode(file.read(8_192)))
        except OSError:
            told = None
        own = "" if told is None else told["path"]
        above, _, name = own.rpartition("/")
        if above != f"{self._git_dir}/worktrees" or name in ("", ".", "..") or os.path.islink(own):
            raise ToolFailed(f"{self._place.path} is there already and is no work tree of this repository")
        return own

    # ── git ─────────────────────────────────────────────────────────────────

    async def _switch_filters_off(self) -> None:
        listed = await self._git("config", "--list", "--name-only")
        self._need(listed, "its settings cannot be read")
        if listed.left_out:
            raise ToolFailed("its settings are too many to look through")
        names = {found["name"] for line in listed.output.splitlines() if (found := _FILTER.fullmatch(line))}
        if len(names) > MOST_FILTERS:
            raise ToolFailed(f"its settings name more than {MOST_FILTERS} filters")
        for name in names:
            self._off |= {f"filter.{name}.{what}": "" for what in ("smudge", "clean", "process")}
            self._off[f"filter.{name}.required"] = "false"

    async def _add(self) -> None:
        branch = self._place.branch
        known = await self._git("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
        # A branch that is there holds what a child did before its tree was taken away: nothing of it is thrown away.
        there = ("--force", self._path, branch)
        made = there if _went_well(known) else ("-b", branch, self._path, "HEAD")
        self._need(await self._git("worktree", "add", "--no-checkout", *made), "git worktree add failed")

    async def _check_out(self, own: str) -> None:
        # Of a process that ended: the child has not begun, so nobody works here.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{own}/index.lock")
        done = await self._git("reset", "--hard", "--quiet", git_dir=own, work_tree=self._path)
        self._need(done, "its files could not be brought out")

    async def _git(self, *arguments: str, git_dir: str | None = None, work_tree: str | None = None) -> Finished:
        more = {
            "GIT_DIR": git_dir or self._git_dir,
            "GIT_COMMON_DIR": self._git_dir,
            "GIT_WORK_TREE": work_tree or self._root,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
            **_as_environment(self._off),
        }
        argv = ["git", "--no-pager", *arguments]
        return await run_confined(
            argv, cwd=self._root, timeout=self._timeout, confinement=self._confinement, more=more
        )

    def _need(self, finished: Finished, what: str) -> None:
        if not _went_well(finished):
            told = bounded(finished.output.strip().replace(self._root, "."), SHOWN)
            how = "" if finished.status is Status.exited else f" ({finished.status})"
            raise ToolFailed(f"{what}{how}: {told}" if told else f"{what}{how}")


def _is_there(path: str) -> bool:
    return os.path.lexists(path)


def _went_well(finished: Finished) -> bool:
    return finished.status is Status.exited and finished.code == 0


def _as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Give settings as git takes them from its environment: they win over those of files."""
    more = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        more |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return more
