"""What is committed in the work trees of children, and what is not: looked at before anybody removes one.

Whoever worked there wrote its settings, so git is run as its tools run it: with everything
off that settings could name, and behind the boundary, as far as this machine has one, which
lets nothing be changed. What cannot be looked at is unknown, and is never taken for committed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Defaults, Effect, Policy
from actors.assembly.child_trees import ChildTree, TreeState
from actors.errors import ToolFailed
from actors.tools.git_opened import LISTED_BYTES
from actors.tools.git_program import Git
from actors.tools.git_repository import unlisted_below, whole_repository
from actors.tools.paths import Workspace
from actors.tools.sandbox import SandboxUnavailable, boundary
from actors.tools.worktrees import KEPT

# Of a run with more of them, the rest is unknown.
MOST_LOOKED_AT: Final = 20
# For all of them together: somebody waits for the end of a run to be told.
SECONDS: Final = 10.0
_SHOWN: Final = 2_000
# As git lists a repository that stands in place of a file.
_OF_ITS_OWN: Final = re.compile(r"^160000 ", re.MULTILINE)
_LOOKING: Final = Policy((), Defaults(Effect.allow, Effect.deny, Effect.deny, Effect.deny, Effect.deny))


async def tree_states(trees: Sequence[ChildTree]) -> dict[str, TreeState]:
    """Look at work trees, and tell by the path of the agent what is committed there; those unknown are left out.

    Cancellation: nothing changed, and no process is left.
    """
    found: dict[str, TreeState] = {}
    looked_at = trees[:MOST_LOOKED_AT]
    for each in looked_at:
        # A share for each: settings of one may name a pipe, at which git waits.
        with trio.move_on_after(SECONDS / len(looked_at)), suppress(ToolFailed, OSError, ValueError):
            found[each.agent] = await _looked_at(each)
    return found


async def _looked_at(tree: ChildTree) -> TreeState:
    """Look at one, behind a boundary where there is one. Cancellation and errors: as `_state_of`."""
    try:
        return await _state_of(tree, ExecSandbox.read_only)
    except SandboxUnavailable:
        # As the git tools of an agent do it here.
        return await _state_of(tree, None)


async def _state_of(tree: ChildTree, mode: ExecSandbox | None) -> TreeState:
    """Look at one.

    Cancellation: as `tree_states`.

    Raises:
        ToolFailed, OSError: it cannot be looked at.
        ValueError: git says what nobody can read.
    """
    above, below = Workspace(tree.above), Workspace(tree.path)
    base_at = await trio.to_thread.run_sync(whole_repository, above)
    at = await trio.to_thread.run_sync(whole_repository, below)
    await trio.to_thread.run_sync(unlisted_below, below)
    # Around the workspace above: the objects that the tree borrows lie there.
    async with boundary(Confinement(mode, _LOOKING), above.root) as around:
        name = tree.path.rpartition("/")[2]
        kept = Git(around, above.root, SECONDS)
        base = await _line(kept, base_at, "rev-parse", "--verify", f"{KEPT}/{name}^{{commit}}")
        git = Git(around, below.root, SECONDS)
        off = await git.filters_off(at)
        staged = await git.lines("it cannot be read", "ls-files", "--stage", at=at, off=off, limit=LISTED_BYTES)
        if staged.left_out or _OF_ITS_OWN.search(staged.output):
            raise ToolFailed("a repository of its own may lie in it, which no fetch brings and nobody looks into")
        branch = f"refs/heads/{tree.branch}"
        tip = await _line(git, at, "rev-parse", "--verify", f"{branch}^{{commit}}", off=off)
        commits = await _line(git, at, "rev-list", "--count", tip, f"^{base}", off=off)
        # Work may stand on another branch than the one that is fetched, on none, or be put away (git stash).
        others = await _line(git, at, "rev-list", "--count", "HEAD", "--all", f"^{tip}", f"^{base}", off=off)
        wanted = ("--porcelain", "--untracked-files=normal", "--no-renames", "--ignore-submodules=all")
        differs = await _line(git, at, "status", *wanted, off=off)
    return TreeState(int(commits), uncommitted=bool(differs), elsewhere=int(others) > 0)


async def _line(git: Git, at: str, *arguments: str, off: dict[str, str] | None = None) -> str:
    told = await git.lines("it cannot be read", *arguments, at=at, off=off or {}, limit=_SHOWN)
    return told.output.strip()
