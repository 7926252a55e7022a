"""One question to a human or a program, and its answer, which outlive the process that asked.

The question is a row before it leaves. Who is asked and whoever else may decide
(another process, an operator) answer the same row: the first answer stands, and
the agent acts on the row and on nothing else. An agent whose question was put
off is parked: it holds no slot, its siblings go on, and it stays parked, over
restarts too, until its own row is decided.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors.agents.call_journal import Journal, Work
from actors.agents.entry_text import bounded, clean
from actors.agents.live_states import WaitFor
from actors.agents.ports import Approval, ApprovalRequest, ApprovalState, Defer, ToolCall
from actors.agents.remembered import after, to_text
from actors.agents.rewriting import changed_keys, parsed, rewritten
from actors.agents.rewriting import to_text as arguments_text
from actors.agents.rows import ApprovalApplied, ApprovalAsked, ApprovalDecided, ApprovalDeferred
from actors.errors import StoreError

if TYPE_CHECKING:
    from actors.agents.loop import Loop

log = logging.getLogger("actors.loop")

# How often a row is looked at that another process may decide, in seconds.
LOOK_SECONDS = 0.2
REASON_CHARS = 2_000


UNREADABLE: Final = "what its approver changed the call to cannot be read"
TOO_LATE: Final = "its approver changed a call that may have acted already, which is too late"


def decision_row(request_id: str, answer: Approval, by: str, modified: str | None = None) -> ApprovalDecided:
    """Give the row of an answer. The model reads the reason, whoever gave it; rules go with a yes only.

    ``modified`` are the arguments that came with a yes, as `rewriting.to_text` writes them.
    """
    rules = to_text(answer.remember) if answer.approved else None
    reason = bounded(clean(answer.reason), REASON_CHARS)
    return ApprovalDecided(request_id, "approved" if answer.approved else "denied", reason, by, rules, modified)


async def tell_decided(loop: Loop, step: int, answer: ApprovalState, approved: bool = True, **more: Any) -> None:
    """Tell what a question came to, and whose the answer is.

    Cancellation: it is told or not.
    """
    facts = {"step": step, "act": answer.act, "target": answer.target, "approved": approved, "by": answer.by, **more}
    await loop.recorder.emit(loop.agent, "approval_decided", **facts)


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

        With ``modified`` the call is to be begun again with that; an intent that stands is one to do so.

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
        if approved and state.modified is not None:
            return await self._with_other_arguments(state)
        await self._tell(state, approved)
        if approved:
            await self._claim()
        return Approval(approved, state.reason)

    async def _with_other_arguments(self, state: ApprovalState) -> Approval:
        assert state.modified is not None
        call = rewritten(ToolCall(self._row.tool, self._row.arguments), state)
        late = self._journal is not None and self._journal.let_go
        if call is None or late:
            # It was no yes to what the model asked for, so nothing is done.
            await self._tell(state, approved=False)
            return Approval(False, TOO_LATE if late else UNREADABLE)
        await self._tell(state, approved=True, changed=changed_keys(self._row.arguments, state.modified))
        if self._journal is not None:
            self._journal.rewrite(call)
        await self._claim()
        return Approval(True, state.reason, modified=parsed(state.modified))

    async def _tell(self, state: ApprovalState, approved: bool, **more: Any) -> None:
        about = attrs.evolve(state, act=self._row.act, target=self._row.target)
        await tell_decided(self._loop, self._row.step, about, approved, **more)

    async def _claim(self) -> None:
        """Claim the act before the effect; the intent stands again if there is one."""
        again = [] if self._journal is None else [self._journal.begun()]
        await self._loop.stand(ApprovalApplied(self._row.request_id), *again)

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
        modified = self._modified(got)
        said = attrs.evolve(got, reason=self._loop.recorder.redactor.hide(got.reason))
        await self._loop.stand(decision_row(self._row.request_id, said, "approver", modified))

    def _modified(self, got: Approval) -> str | None:
        """Give the arguments that came with a yes as they are stored.

        Raises:
            ValueError: they are none for this tool.
        """
        if not got.approved or got.modified is None:
            return None
        loop, call = self._loop, ToolCall(self._row.tool, self._row.arguments)
        specs = loop.services.offered(loop.contract.agents)
        spec = next((each for each in specs if each.name == call.name), None)
        return arguments_text(got.modified, call, spec, loop.recorder.redactor)

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
