"""What a tool may use during one call: the policy stands between it and every act.

What the policy denies is refused; what it says ask about goes to the approver,
while the agent holds no slot. Every refusal and decision is a row, and never
holds contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from actors.agents.entry_text import bounded, clean
from actors.agents.live_states import WaitFor
from actors.agents.policy import Decision, Effect, Policy
from actors.agents.ports import Act, ActRefused, Approval, ApprovalRequest, Refusal
from actors.agents.rows import PolicyEvent

if TYPE_CHECKING:
    from actors.agents.loop import Loop


class CallContext:
    """What a tool may use during one call: the gatekeeper of policy and approver."""

    def __init__(self, loop: Loop, step: int, policy: Policy | None = None) -> None:
        self._loop = loop
        self._step = step
        self._policy = loop.job.policy if policy is None else policy

    @property
    def root(self) -> str:
        """Give the workspace directory."""
        contract = self._loop.contract
        return str(contract.root or contract.file.parent)

    @property
    def exec_timeout(self) -> float:
        """Give the seconds that one command may take."""
        return self._loop.contract.exec_timeout

    @property
    def max_read_chars(self) -> int | None:
        """Give the most characters of one read."""
        return self._loop.contract.max_read_chars

    def report_leaked(self, processes: Sequence[int]) -> None:
        """Name processes that did not die in time."""
        self._loop.agent.tree.leaked_processes.extend(processes)

    def may_read(self, target: str) -> bool:
        """Tell whether reading is allowed outright; ask counts as no."""
        return self._policy.explain(Act.read, target).effect is Effect.allow

    async def authorise(self, act: Act, target: str, *more: str, content: str = "") -> None:
        """Ask the policy, and the approver where it says ask; the agent holds no slot meanwhile.

        With ``more`` targets all must be allowed: one act seen in several ways, the last
        of which says most. The approver is asked once, about that one.

        Cancellation: nothing was decided.

        Raises:
            ActRefused: the row and the event are written.
        """
        seen = [(each, self._policy.explain(act, each)) for each in (target, *more)]
        for each, decision in seen:
            if decision.effect is Effect.deny:
                await self._refuse(act, each, decision, "denied by policy", "policy")
        asked = [decision for _, decision in seen if decision.effect is not Effect.allow]
        if not asked:
            return
        target, decision = seen[-1][0], asked[-1]
        approval = await self._decide(act, target, content, decision)
        if not approval.approved:
            await self._refuse(act, target, decision, approval.reason or "denied", "approver")
        await self._note("decision", act, target, decision, "approved", "approver")

    async def _decide(self, act: Act, target: str, content: str, decision: Decision) -> Approval:
        loop = self._loop
        request = ApprovalRequest(
            act, target, content, loop.contract.goal, loop.agent.path, decision.rule, decision.layer
        )
        await loop.recorder.emit(loop.agent, "approval_requested", step=self._step, act=act, target=clean(target))
        async with loop.agent.waiting(WaitFor.human):
            approval = await loop.services.approver.decide(request)
        facts = {"step": self._step, "act": act, "approved": approval.approved}
        await loop.recorder.emit(loop.agent, "approval_decided", **facts)
        return approval

    async def _refuse(self, act: Act, target: str, decision: Decision, reason: str, source: str) -> NoReturn:
        await self._note("refusal", act, target, decision, "denied", source, reason)
        raise ActRefused(Refusal(act, clean(target), decision.rule, decision.layer, reason))

    async def _note(
        self, kind: str, act: Act, target: str, decision: Decision, verdict: str, source: str, reason: str = ""
    ) -> None:
        agent, recorder = self._loop.agent, self._loop.recorder
        target = bounded(clean(target), 2_000)
        row = PolicyEvent(
            agent.run_id, self._step, kind, act, target, decision.rule, decision.layer, verdict, source
        )
        rows: list[Any] = [row]
        if kind == "refusal":
            facts = {
                "step": self._step,
                "act": act,
                "target": target,
                "rule": decision.rule,
                "layer": decision.layer,
                "source": source,
                "reason": bounded(clean(reason), 500),
            }
            rows.append(recorder.event(agent.path, agent.depth, "refused", facts))
        await recorder.store.append(*rows)
