"""Work trees made with git, for children that are not to share their parent's files.

A work tree here is a repository of its own, which borrows the objects of the one
above (`alternates`) and has its own branch, index and settings. What git calls a
worktree would not do: to commit in one, its child had to be let write the objects,
the refs and the settings of its parent's repository, and could then change what
others have committed, or name a program there that somebody runs later. So a child
writes nothing outside its root, and whoever wants its work fetches it.

What would be got wrong:

- Whoever works in a workspace can write what lies in it, also the settings of its
  repository: `git_program.py` says what of them is switched off, and
  `git_repository.py` which repository is used at all.
- What is only borrowed must stay: a ref in the repository above keeps the commit
  that a tree began with, whatever happens to the branches there.
- A tree whose files did not all come out of git when a process ended looks like one
  in which somebody removed files. Its index is written last, and tells.
"""

import contextlib
import os
import re
import stat
from typing import Final

import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import Identity
from actors.agents.worktrees import DEFAULT_WHO, FOLDER, WorktreePlace
from actors.errors import ToolFailed
from actors.tools.git_program import Git
from actors.tools.git_repository import ALL_IGNORED, BORROWED, closed_note, is_there, whole_repository
from actors.tools.paths import Workspace, failing
from actors.tools.sandbox import boundary
from actors.tools.whole_files import opened, read_bytes, replace_bytes

# Refs below this keep what work trees began with. No branches: who merges one by its name must have fetched it.
KEPT: Final = "refs/actors-base"
MOST_SHALLOW: Final = 16_000_000
# Settings of the repository above that are facts of the work and name no program.
_SHARED: Final = re.compile(r"(core\.autocrlf|core\.eol) (.*)")
_FORM_AND_HEAD: Final = re.compile(r"^(?P<form>sha\w+)\n(?P<head>[0-9a-f]{40,64})$", re.MULTILINE)
_REF: Final = re.compile(r"^(refs/\S+) ([0-9a-f]{40,64})$", re.MULTILINE)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class GitWorktrees:
    """Makes work trees in the repository of a workspace. Keeps to `actors.agents.worktrees.Worktrees`."""

    async def make(
        self, root: str, place: WorktreePlace, *, timeout: float, confinement: Confinement, who: Identity = DEFAULT_WHO
    ) -> str:
        """Make a work tree at ``place`` from what is committed, or complete or take the one that lies there.

        Cancellation: as in the protocol; no process of git is left.

        Raises:
            ToolFailed: it cannot be made; says why.
        """
        making = _Making(Workspace(root), place, who)
        try:
            if await trio.to_thread.run_sync(making.is_made):
                return making.path
            # One for all of them: what it hides is looked for in the whole workspace.
            async with boundary(confinement, making.root) as around:
                await making.make(Git(around, making.root, timeout))
            return making.path
        except ToolFailed as error:
            # Behind the boundary git sees nothing of what the policy closes, and cannot say why.
            note = closed_note(confinement.policy, ".git/HEAD", f"{FOLDER}/.gitignore")
            raise ToolFailed(f"no sub-agent was started: no work tree could be made for it: {error}{note}") from None


class _Making:
    """One work tree to be.

    Attributes:
        root: where the workspace really lies.
        path: where the work tree will.
    """

    def __init__(self, workspace: Workspace, place: WorktreePlace, who: Identity) -> None:
        self._workspace = workspace
        self._place = place
        self._who = who
        self.root = workspace.root
        self.path = f"{self.root}/{place.path}"
        self._git_dir = f"{self.root}/.git"
        self._own = f"{self.path}/.git"

    def is_made(self) -> bool:
        """Tell whether it is made already.

        Raises:
            ToolFailed: there can be none here, or something else lies in its place.
        """
        self._need_repository()
        self._need_folder()
        self._need_ours()
        return is_there(f"{self._own}/index")

    async def make(self, git: Git) -> None:
        """Make it, also from what a process that ended began with: every step can be made twice.

        Cancellation: as `GitWorktrees.make`.

        Raises:
            ToolFailed: it cannot be made.
        """
        form, base = await self._base(git)
        await self._begin(git, form)
        await self._check_out(git, base)

    # ── what must hold ──────────────────────────────────────────────────────

    def _need_repository(self) -> None:
        if f"/{FOLDER}/" in f"{self.root}/":
            raise ToolFailed("the agent works in a work tree itself, and those of its children would lie in it")
        whole_repository(self._workspace)

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
                ignore.write(ALL_IGNORED)

    def _need_ours(self) -> None:
        """See that what lies in the place is a work tree of this repository, or begins to be one, or is nothing."""
        if not is_there(self.path):
            return
        try:
            begun = is_there(self._own)
            ours = stat.S_ISDIR(os.lstat(self._own).st_mode) if begun else not os.listdir(self.path)
        except OSError:
            ours = False
        if begun and ours:
            borrowed = self._read(f"{self._place.path}/.git/objects/info/alternates", len(BORROWED))
            ours = borrowed == BORROWED or (borrowed == b"" and not is_there(f"{self._own}/index"))
            ours = ours and not is_there(f"{self._own}/commondir")
        if not ours:
            raise ToolFailed(f"{self._place.path} is there already and is no work tree of this repository")

    def _read(self, relative: str, most: int) -> bytes | None:
        """Read a file of the workspace: nothing of one that is not there, None of one that is larger."""
        with opened(self._workspace, self._workspace.resolve(relative)) as descriptor:
            return b"" if descriptor is None else read_bytes(descriptor, most)

    def _write(self, relative: str, data: bytes) -> None:
        with failing(relative), self._workspace.parent(relative, create=True) as (above, name):
            replace_bytes(above, name, data, self._workspace.between, key=self._place.name)

    # ── the steps ───────────────────────────────────────────────────────────

    async def _base(self, git: Git) -> tuple[str, str]:
        """Give the form of the repository's names, and the commit to begin with, which is kept from now on."""
        why = "nothing is committed that it could begin with"
        told = await git.must(why, "rev-parse", "--show-object-format", "HEAD^{commit}", at=self._git_dir)
        # Warnings may stand around it.
        found = _FORM_AND_HEAD.search(told.output)
        if found is None:
            raise ToolFailed("what it could begin with cannot be read")
        kept, fetched = f"{KEPT}/{self._place.name}", f"refs/heads/{self._place.branch}"
        wanted = ("for-each-ref", "--format=%(refname) %(objectname)", kept, fetched)
        listed = await git.must("its branches cannot be read", *wanted, at=self._git_dir)
        known = dict(_REF.findall(listed.output))
        # What somebody fetched of a tree that is gone by now is further on than what it began with.
        base = known.get(fetched) or known.get(kept) or found["head"]
        if kept not in known:
            await git.must("what it begins with cannot be kept", "update-ref", kept, base, at=self._git_dir)
        return found["form"], base

    async def _begin(self, git: Git, form: str) -> None:
        """Make a repository without files, or complete one."""
        named = (f"--object-format={form}", f"--initial-branch={self._place.branch}", self.path)
        await git.must("git init failed", "init", "--quiet", "--template=", *named, at=None)
        self._write(f"{self._place.path}/.git/objects/info/alternates", BORROWED)
        shallow = self._read(".git/shallow", MOST_SHALLOW)
        if shallow is None:
            raise ToolFailed("its history is cut in too many places (.git/shallow)")
        if shallow:
            self._write(f"{self._place.path}/.git/shallow", shallow)
        # Not who commits above, nor on this machine: a person must not be blamed for what an agent did.
        settings = [("user.name", self._who.name), ("user.email", self._who.email)]
        wanted = r"^core\.(autocrlf|eol)$"
        listed = await git.run("config", "--local", "--get-regexp", wanted, at=self._git_dir)
        settings += [(known[1], known[2]) for each in listed.output.splitlines() if (known := _SHARED.fullmatch(each))]
        for key, value in settings:
            await git.must(f"{key} cannot be set", "config", "--local", key, value, at=self._own)

    async def _check_out(self, git: Git, base: str) -> None:
        # Of a process that ended: the child has not begun, so nobody works here.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._own}/index.lock")
        off = await git.filters_off(self._own)
        wanted = ("reset", "--hard", "--quiet", base)
        await git.must("its files could not be brought out", *wanted, at=self._own, work_tree=self.path, off=off)
