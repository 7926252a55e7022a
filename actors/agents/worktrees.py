"""Work trees of children: where each lies, and that a child never starts without the one it was to have.

The path is made of durable facts only (who asks, in which step, with which call, for
what), so a resume finds the same tree again, and two children never share one. It
lies in the workspace of the parent, below a folder that searches pass by.

Whatever keeps a tree from being made keeps its child from being made: it would work
in its parent's files, which is what the operator did not want.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from actors.agents.confining import confinement_of
from actors.agents.contract import Identity
from actors.agents.globs import TREES
from actors.agents.ports import Act
from actors.errors import ToolFailed

if TYPE_CHECKING:
    from actors.agents.confinement import Confinement
    from actors.agents.gatekeeper import CallContext
    from actors.agents.loop import Job, Loop

log = logging.getLogger("actors.worktrees")

# Where they lie in a workspace.
FOLDER: Final = TREES
# A name must be one that every file system and every ref can have.
MOST_SLUG: Final = 32
MOST_PARENT: Final = 60
_DIGEST: Final = 12
DEFAULT_WHO: Final = Identity()


@attrs.frozen
class WorktreePlace:
    """Where the work tree of one child lies: ``path`` from its parent's root, and the branch it is on."""

    name: str

    @property
    def path(self) -> str:
        """Give the path from the root of the parent."""
        return f"{FOLDER}/{self.name}"

    @property
    def branch(self) -> str:
        """Name the branch."""
        return f"actors/{self.name}"


class Worktrees(Protocol):
    """Makes work trees."""

    async def make(
        self, root: str, place: WorktreePlace, *, timeout: float, confinement: Confinement, who: Identity = DEFAULT_WHO
    ) -> str:
        """Make the work tree of ``place`` in the repository at ``root``, or take what lies there; give its path.

        ``who`` commits there, also by commands.

        Cancellation: it may be made or half made; the next call with the same place completes it.

        Raises:
            ToolFailed: it cannot be made; says why. Nothing is removed.
        """
        ...


def place_of(run_id: str, step: int, ordinal: int, goal: str, agent: str) -> WorktreePlace:
    """Derive where the work tree of a call's child lies: the same in every process."""
    slug = re.sub(r"[^a-z0-9]+", "-", agent.lower())[:MOST_SLUG].strip("-") or "agent"
    parent = re.sub(r"[^A-Za-z0-9]+", "-", run_id).strip("-")
    if len(parent) > MOST_PARENT:
        parent = f"{parent[: MOST_PARENT - _DIGEST - 1]}-{_digested(run_id)}"
    return WorktreePlace(f"{slug}-{parent}-{step}.{ordinal}-{_digested(f'{run_id} {step}.{ordinal} {goal}')}")


def _digested(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]


async def in_own_worktree(loop: Loop, job: Job, context: CallContext, step: int, ordinal: int) -> Job:
    """Give the job of a new child in a work tree of its own, if its definition wants that; else as it is.

    The parent's policy is asked for the write first.

    Cancellation: the tree may be made; the same call finds it again.

    Raises:
        ActRefused: the policy, or whoever it asks, does not let it be written.
        ToolFailed: it cannot be made.
    """
    place = _wanted(loop, job, step, ordinal)
    if place is None:
        return job
    await context.authorise(Act.write, place.path)
    return _moved(job, await _make(loop, place, context.confinement))


async def in_same_worktree(loop: Loop, job: Job, step: int, ordinal: int) -> Job:
    """Give the job of a child that began before, in the work tree that it has.

    One that is gone is made again, from what was fetched of it or what it began with. Where that fails the
    child goes on without its files: it is told so by every tool, and never works in its parent's.

    Cancellation: as `in_own_worktree`.
    """
    place = _wanted(loop, job, step, ordinal)
    if place is None:
        return job
    path = f"{os.path.realpath(str(loop.contract.root))}/{place.path}"  # noqa: ASYNC240
    if not os.path.lexists(path):  # noqa: ASYNC240
        try:
            await _make(loop, place, confinement_of(loop, loop.job.policy, step, ordinal))
        except ToolFailed as error:
            log.warning("%s: the work tree %s is gone: %s", loop.agent.path, place.path, error)
    return _moved(job, path)


def _wanted(loop: Loop, job: Job, step: int, ordinal: int) -> WorktreePlace | None:
    definition = job.definition
    if definition is None or not definition.worktree:
        return None
    return place_of(loop.agent.run_id, step, ordinal, job.contract.goal, definition.name)


async def _make(loop: Loop, place: WorktreePlace, confinement: Confinement) -> str:
    maker = loop.services.worktrees
    if maker is None:
        raise ToolFailed("no work tree can be made here")
    contract = loop.contract
    return await maker.make(
        str(contract.root),
        place,
        timeout=contract.exec_timeout,
        confinement=confinement,
        who=contract.commit_identity,
    )


def _moved(job: Job, path: str) -> Job:
    return attrs.evolve(job, contract=attrs.evolve(job.contract, root=Path(path)))
