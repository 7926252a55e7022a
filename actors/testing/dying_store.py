"""A store in a file whose process ends at a moment of your choice, without a second process.

    death = Death(at=7)                       # the seventh commit does not happen, and nothing after it
    async with open_dying_store(path, death) as store:
        ...                                   # run a tree; what it does from then on is not written
    async with Store.open(path) as store:
        ...                                   # resume it

What was appended and not committed yet is lost with the process, or kept
(``keep_appended``), as luck would have it. The tree is told by a failed commit,
and stops; nothing of that is written either. It costs milliseconds where a
process that is killed costs a start; what only a real kill shows, a real kill
must show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from actors.agents.rows import ApprovalDecided, Row, StepDone
from actors.errors import StoreError, StoreErrorKind
from actors.store.store import FileStore


@attrs.define
class Death:
    """When a process ends, and whether it has.

    ``at`` is the commit that it ends at, from 1; ``when`` tells by the rows of a commit
    instead. ``after``: that commit still stands. ``seen`` counts the commits.
    """

    at: int | None = None
    when: Callable[[Sequence[Row]], bool] | None = None
    after: bool = False
    keep_appended: bool = False
    seen: int = attrs.field(default=0, init=False)
    dead: bool = attrs.field(default=False, init=False)

    def meets(self, rows: Sequence[Row]) -> bool:
        """Count a commit, and tell whether the process ends at it."""
        self.seen += 1
        return self.seen == self.at or (self.when is not None and self.when(rows))


def holds(kind: type[Any], where: Callable[[Any], bool] = lambda _: True) -> Callable[[Sequence[Row]], bool]:
    """Meet a commit that has such a row; for `Death.when`."""
    return lambda rows: any(isinstance(row, kind) and where(row) for row in rows)


def holds_step(agent: str, number: int) -> Callable[[Sequence[Row]], bool]:
    """Meet the commit of a step; ``agent`` is what the run id ends with, empty for the root."""

    def meets(row: StepDone) -> bool:
        return row.step == number and (row.run_id.endswith(agent) if agent else "/" not in row.run_id)

    return holds(StepDone, meets)


class DyingStore(FileStore):
    """See the file's docstring. Make it with `open_dying_store`."""

    def __init__(self, path: Path, death: Death) -> None:
        super().__init__(path, "NORMAL")
        self.death = death
        self._waiting: list[Row] = []

    def die(self) -> None:
        """End the process here: nothing is written from now on. The tree is told by its next commit."""
        if not self.death.dead:
            self.death.dead = True
            if self.death.keep_appended:
                self._pass_on()

    def _pass_on(self) -> None:
        left, self._waiting = self._waiting, []
        super().append_nowait(*left)

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit.

        Cancellation: the rows were left.
        """
        self.append_nowait(*rows)

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit; they are lost if the process ends before it."""
        if not self.death.dead:
            self._waiting += rows

    async def commit(self, *rows: Row) -> None:
        """Write rows with all that was left before, unless the process has ended.

        Cancellation: the rows are written or not, all or none.
        """
        ends = self._meets(rows)
        left, self._waiting = self._waiting, []
        await super().commit(*left, *rows)
        if ends:
            raise self._gone()

    async def decide(self, row: ApprovalDecided) -> bool:
        """Decide a question, unless the process has ended.

        Cancellation: it was decided or not.
        """
        ends = self._meets((row,))
        self._pass_on()
        won = await super().decide(row)
        if ends:
            raise self._gone()
        return won

    def _meets(self, rows: Sequence[Row]) -> bool:
        if self.death.dead:
            raise self._gone()
        ends = self.death.meets(rows)
        if ends and not self.death.after:
            self.die()
            raise self._gone()
        if ends:
            self.death.dead = True
        return ends

    async def release(self, tree_id: str) -> None:
        """Give the lease back, as a dead owner's is free.

        Cancellation: released, or not, or will be.
        """
        self._pass_on()
        await super().release(tree_id)

    def _gone(self) -> StoreError:
        return StoreError(StoreErrorKind.other, self.file, "the process has ended")

    async def __aexit__(self, *how: Any) -> None:
        self._pass_on()
        await super().__aexit__(*how)


def open_dying_store(path: str | PathLike[str], death: Death) -> DyingStore:
    """Name a file whose store ends as ``death`` says; use it as `Store.open`."""
    return DyingStore(Path(path), death)
