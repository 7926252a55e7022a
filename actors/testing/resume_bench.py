"""A workspace, a file of runs and a model's answers: each call that begins or resumes is a process of its own.

    bench = Bench(folder, {"root": [[call("exec", argv=["true"])], "done"]}, policy)
    await bench.begin(approver, Death(at=4))      # None: it ended at its fourth commit
    ran = await bench.go_on(approver)
    bench.check()                                 # the file says nothing that cannot be true
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Approver, CompletionRequest, ResultsTurn, Tool
from actors.agents.remembered import Remembered
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.recovering import Recovery
from actors.assembly.resuming import (
    Decision,
    resume_tree,
    resume_tree_from_stored_policy,
    resume_with_decision,
    resume_with_recovery,
)
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.errors import StoreError
from actors.halts import HaltKind
from actors.store.audit import audit
from actors.store.audit_findings import Verdict
from actors.store.records import ApprovalRecord, AttemptRecord, RunRecord
from actors.store.store import FileStore, Store, open_reader
from actors.testing.dying_store import Death, DyingStore, open_dying_store
from actors.testing.goal_model import GoalModel


@attrs.define
class Bench:
    """One run and its processes. ``models`` has one for each process; ``run_id`` is the last run's.

    ``dying`` is the store of the process that runs now, so that a tool can end it.
    """

    folder: Path
    answers: Mapping[str, Sequence[Any]]
    policy: Policy = attrs.Factory(Policy.permissive)
    approver: Approver = attrs.Factory(ApproveAll)
    tools: tuple[Tool, ...] | None = None
    limits: Containment = Containment(20, 4, 4, 100_000)
    contract: TaskContract | None = None
    before: Any = None
    run_id: str = ""
    tree: Tree | None = None
    store: FileStore | None = None
    models: list[GoalModel] = attrs.Factory(list)

    @property
    def file(self) -> Path:
        """Name the file of runs."""
        return self.folder / "runs.db"

    @property
    def work(self) -> Path:
        """Give the workspace."""
        made = self.folder / "work"
        made.mkdir(exist_ok=True, parents=True)
        return made

    # ── processes ───────────────────────────────────────────────────────────

    async def begin(self, approver: Approver | None = None, death: Death | None = None) -> RunResult | None:
        """Start the run; None when its process ended before it did.

        Cancellation: as `run_tree`.
        """
        task = self.contract or TaskContract.workspace("root", self.work, Verification.none()).with_max_steps(9)

        async def start(store: FileStore, model: GoalModel, **options: Any) -> RunResult:
            return await run_tree(task, model, store, self.policy, approver or self.approver, self.limits, **options)

        return await self._process(start, death)

    async def go_on(
        self, approver: Approver | None = None, death: Death | None = None, policy: Policy | None = None
    ) -> RunResult | None:
        """Resume the run, under the stored policy or ``policy``; None when its process ended before it did.

        Cancellation: as `resume_tree`.
        """

        async def resume(store: FileStore, model: GoalModel, **options: Any) -> RunResult:
            asked = approver or self.approver
            if policy is None:
                return await resume_tree_from_stored_policy(self.run_id, model, store, asked, **options)
            return await resume_tree(self.run_id, model, store, policy, asked, **options)

        return await self._process(resume, death)

    async def decide(
        self,
        request_id: str,
        approved: bool,
        reason: str = "",
        *,
        approver: Approver | None = None,
        policy: Policy | None = None,
        death: Death | None = None,
        remember: tuple[Remembered, ...] = (),
        modified: Mapping[str, Any] | None = None,
    ) -> RunResult | None:
        """Answer a question and resume the run.

        Cancellation: as `resume_with_decision`.
        """
        decision = Decision(request_id, approved, reason, remember, modified)

        async def resume(store: FileStore, model: GoalModel, **options: Any) -> RunResult:
            asked = approver or self.approver
            return await resume_with_decision(self.run_id, decision, model, store, asked, policy, **options)

        return await self._process(resume, death)

    async def recover(self, recovery: Recovery, death: Death | None = None) -> RunResult | None:
        """Say what became of a call and resume the run.

        Cancellation: as `resume_with_recovery`.
        """

        async def resume(store: FileStore, model: GoalModel, **options: Any) -> RunResult:
            return await resume_with_recovery(self.run_id, recovery, model, store, self.approver, **options)

        return await self._process(resume, death)

    async def _process(self, work: Any, death: Death | None) -> RunResult | None:
        model = GoalModel(self.answers, self.before)
        self.models.append(model)
        self.store = Store.open(self.file) if death is None else open_dying_store(self.file, death)
        try:
            async with self.store as store:
                result: RunResult = await work(store, model, tools=self.tools, on_open=self._opened)
                return None if death is not None and death.dead else result
        except StoreError:
            if death is None or not death.dead:
                raise
            return None

    def kill(self) -> None:
        """End the running process where it stands, by its `DyingStore`: nothing is written, and its tasks are gone."""
        assert isinstance(self.store, DyingStore) and self.tree is not None, "a process that dies runs"
        self.store.die()
        self.tree.halt_nowait(HaltKind.interrupt)

    def _opened(self, tree: Tree) -> None:
        self.tree = tree
        self.run_id = tree.run_id

    # ── what is left ────────────────────────────────────────────────────────

    @property
    def stands(self) -> bool:
        """Whether there is a run to go on with."""
        with open_reader(self.file) as reader:
            return reader.run(self.run_id) is not None

    def questions(self, *, all: bool = False) -> list[ApprovalRecord]:
        """List the open questions; with ``all`` the decided ones too."""
        with open_reader(self.file) as reader:
            return reader.approvals(self.run_id, all=all)

    def open_attempts(self) -> list[AttemptRecord]:
        """List the calls of which nobody knows whether they were done."""
        with open_reader(self.file) as reader:
            return reader.open_attempts(self.run_id)

    def agents(self) -> dict[str, RunRecord]:
        """Give the agents by their path."""
        with open_reader(self.file) as reader:
            return {each.path: each for each in reader.agents(self.run_id)}

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement on the file, and give the first column."""
        connection = sqlite3.connect(self.file)
        try:
            with connection:
                return [row[0] for row in connection.execute(statement, values)]
        finally:
            connection.close()

    @property
    def billed(self) -> int:
        """Count the tokens of all answers that all models gave."""
        return sum(model.billed for model in self.models)

    def requests(self, goal: str) -> list[CompletionRequest]:
        """List what was asked for one goal, by all processes in order."""
        return [
            each for model in self.models for each in model.requests if each.turns[0].text.startswith(goal)  # type: ignore[union-attr]
        ]

    def told(self, goal: str = "root") -> list[str]:
        """Give the results of calls that the last request for a goal holds."""
        turns = [turn for turn in self.requests(goal)[-1].turns if isinstance(turn, ResultsTurn)]
        return [text for turn in turns for text in turn.texts]

    def check(self) -> None:
        """Insist that the file says nothing that cannot be true."""
        with open_reader(self.file) as reader:
            found = audit(reader, self.run_id)
        assert found.verdict is Verdict.ok, [str(each) for each in (*found.violations, *found.missing)]


def finished(ran: RunResult | None) -> bool:
    """Tell whether a run came to its end, with its work done."""
    return ran is not None and ran.outcome.kind is OutcomeKind.finished and ran.terminal is not None
