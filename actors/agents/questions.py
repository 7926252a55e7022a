"""One question to a human or a program, and its answer, which outlive the process that asked.

The question is a row before it leaves. Who is asked and whoever else may decide
(another process, an operator) answer the same row: the first answer stands, and
the agent acts on the row and on nothing else. An agent whose question was put
off is parked: it holds no slot, its siblings go on, and it stays parked, over
restarts too, until its own row is decided.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from actors.agents.call_journal import Journal, Work
from actors.agents.entry_text import bounded, clean
from actors.agents.live_states import WaitFor
from actors.agents.ports import Approval, ApprovalRequest, ApprovalState, Defer
from actors.agents.remembered import after, to_text
from actors.agents.rows import ApprovalApplied, ApprovalAsked, ApprovalDecided, ApprovalDeferred
from actors.errors import StoreError

if TYPE_CHECKING:
    from actors.agents.loop import Loop

log = logging.getLogger("actors.loop")

# How often a row is looked at that another process may decide, in seconds.
LOOK_SECONDS = 0.2
REASON_CHARS = 2_000


def decision_row(request_id: str, answer: Approval, by: str) -> ApprovalDecided:
    """Give the row of an answer. The model reads the reason, whoever gave it; rules go with a yes only."""
    rules = to_text(answer.remember) if answer.approved else None
    reason = bounded(clean(answer.reason), REASON_CHARS)
    return ApprovalDecided(request_id, "approved" if answer.approved else "denied", reason, by, rules)


class Question:
    """One question of one call. Made for one wait."""

    def __init__(
        self, loop: Loop, request: ApprovalRequest, row: ApprovalAsked, work: Work | None, journal: Journal | None
    ) -> None:
        self._loop = loop
        self._agent = loop.agent
        self._request = request
        self._row = row
        self._work = work
        self._journal = journal

    async def answer(self) -> Approval:
        """Ask, or find what was answered, and give it; the agent holds no slot meanwhile.

        Cancellation: the question stands, and a later process finds it.
        """
        facts = {"step": self._row.step, "act": self._row.act, "target": self._row.target}
        state = self._state()
        if state is None:
            await self._loop.recorder.emit(
                self._agent, "approval_requested", request=self._row.request_id, **facts
            )
        if state is None or state.decision is None:
            # Also when a process before this one has asked: a call that was begun again only asks, again.
            await self._loop.stand(*self._before())
            async with self._agent.waiting(WaitFor.human):
                state = await self._decided(deferred=state is not None and state.deferred)
        assert state.decision is not None
        approved = state.decision == "approved"
        if approved:
            tree = self._agent.tree
            tree.remembered = after(tree.remembered, state.remembered, log.warning)
        await self._loop.recorder.emit(
            self._agent, "approval_decided", step=self._row.step, act=self._row.act, approved=approved, by=state.by
        )
        if approved:
            # Claimed before the effect, and the intent stands again if there is one.
            again = [] if self._journal is None else [self._journal.begun()]
            await self._loop.stand(ApprovalApplied(self._row.request_id), *again)
        return Approval(approved, state.reason)

    def _before(self) -> list[Any]:
        """Give what must stand before the question leaves: what this step has done so far, and the question."""
        done: list[Any] = [] if self._work is None else self._work.unstored(self._agent.run_id)
        # While a tool asks for the first time, nothing can have happened.
        back = [] if self._journal is None else self._journal.asking()
        return [*done, *back, self._row]

    def _state(self) -> ApprovalState | None:
        return self._loop.recorder.store.approval(self._row.request_id)

    async def _decided(self, *, deferred: bool) -> ApprovalState:
        if not deferred:
            failed: Exception | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                try:
                    await self._ask()
                except Exception as error:
                    # Through the nursery it would come out in a group.
                    failed = error
                nursery.cancel_scope.cancel()
            if failed is not None:
                await self._failed(failed)
        state = self._state()
        if state is None or state.decision is None:
            state = await self._parked()
        return state

    async def _ask(self) -> None:
        got = await self._loop.services.approver.decide(self._request)
        if isinstance(got, Defer):
            await self._loop.stand(ApprovalDeferred(self._row.request_id))
            return
        await self._loop.stand(decision_row(self._row.request_id, got, "approver"))

    async def _failed(self, error: Exception) -> None:
        """Decide in place of an approver that raised: nobody allowed anything, and nobody waits for an answer."""
        if isinstance(error, StoreError):
            raise error
        recorder = self._loop.recorder
        log.warning("%s: the approver raised\n%s", self._agent.path, recorder.told(error))
        text = recorder.redactor.hide(f"the approver failed: {type(error).__name__}: {error}")
        await self._loop.stand(decision_row(self._row.request_id, Approval(False, text), "runtime"))

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Let the one who was asked go when somebody else has decided."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            state = self._state()
            if state is not None and state.decision is not None:
                scope.cancel()
                return

    async def _parked(self) -> ApprovalState:
        with self._agent.tree.parking(self._agent, self._row.request_id):
            while True:
                state = self._state()
                if state is not None and state.decision is not None:
                    return state
                await trio.sleep(LOOK_SECONDS)
