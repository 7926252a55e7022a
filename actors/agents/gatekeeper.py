"""What a tool may use during one call: the policy stands between it and every act.

What the policy denies is refused; what it says ask about goes to the approver,
while the agent holds no slot. Every refusal and decision is a row, and never
holds contents.

A question is a row before it leaves, and so is its answer: a process that ends
meanwhile loses neither, and the first answer is the one that counts, whoever
gave it. What a yes made the tree remember is not asked again (`remembered.py`);
a question that was asked keeps its own answer all the same. An answer may change
the call (`rewriting.py`): then the tool is left, and begun again with that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from actors.agents.belongings import Belongings
from actors.agents.call_journal import Journal, Work, call_key
from actors.agents.confinement import Confinement
from actors.agents.confining import confinement_of
from actors.agents.contract import Identity
from actors.agents.edits import Edit
from actors.agents.entry_text import bounded, clean
from actors.agents.exec_judging import Judged, judge_command
from actors.agents.judging import FileText, Kept
from actors.agents.policy import Decision, Effect, Policy
from actors.agents.ports import Act, ActRefused, ApprovalRequest, Observation, Refusal, ToolCall
from actors.agents.questions import Question, tell_decided
from actors.agents.remembered import LAYER, Memory
from actors.agents.rewriting import CallRewritten, Rewriting, changed_keys
from actors.agents.rows import ApprovalApplied, ApprovalAsked, Edited, PolicyEvent, SnapshotKept, WriteIntended

if TYPE_CHECKING:
    from actors.agents.loop import Loop
    from actors.agents.reading_beside import Beside


# Characters of what is to be written that a pending question keeps for whoever decides.
CONTENT_CHARS = 8_000
# Parts of one line that a refusal names.
MOST_PARTS = 5


def _of_parts(asked: Sequence[Judged], line: str) -> dict[str, list[str]]:
    """Name the parts of a line that had it asked about, where the line itself had a rule."""
    parts = list(dict.fromkeys(each.target for each in asked))
    return {} if line in parts else {"parts": [bounded(clean(each), 200) for each in parts[:MOST_PARTS]]}


class CallContext:
    """What a tool may use during one call: the gatekeeper of policy and approver."""

    def __init__(
        self,
        loop: Loop,
        step: int,
        policy: Policy | None = None,
        *,
        work: Work | None = None,
        ordinal: int = 0,
        call: ToolCall | None = None,
    ) -> None:
        self._loop = loop
        self._step = step
        self._policy = loop.job.policy if policy is None else policy
        self._work = work
        self._ordinal = ordinal
        self._rewriting = Rewriting(call or ToolCall("", ""))
        # Questions so far. What a process before this one was told to run is run, and not what the model asked for.
        self._asked = self._claims = self._hear() if self._again else 0
        self.journal: Journal | None = None
        # Set for a read that runs beside others: it writes and asks in its turn, or ends and is run again.
        self.beside: Beside | None = None
        # How files change, by the target that it was noted for.
        self._edits: dict[str, Edit] = {}

    @property
    def call(self) -> ToolCall:
        """Give the call as it stands: as the model asked for it, or as an answer changed it."""
        return self._rewriting.call

    @property
    def rewritten(self) -> bool:
        """Tell whether an answer changed the call, and it was not begun again."""
        return self._rewriting.pending

    async def begin(self) -> ToolCall:
        """Give the call as it is to be run; also again, when an answer has changed it.

        Cancellation: as `Loop.stand`; the call must not start.
        """
        claims, self._claims = self._claims, 0
        if claims:
            # Whoever was told may have ended before it could say that it heard.
            await self._tell_heard()
            await self._loop.stand(ApprovalApplied(f"{self.key}.{claims}"))
        return self._rewriting.begin()

    async def _tell_heard(self) -> None:
        """Tell of the answer that changed this call while no process ran it: it is not asked again.

        Cancellation: it is told or not; the call must not start.
        """
        if self._rewriting.last is None or self._rewriting.last[0].applied:
            return
        answer, before = self._rewriting.last
        await tell_decided(
            self._loop, self._step, answer, changed=changed_keys(before.arguments, self.call.arguments)
        )

    def telling(self, seen: Observation) -> Observation:
        """Give what the call came to; the model reads what was changed in it, if anything was."""
        return self._rewriting.telling(seen)

    def _hear(self) -> int:
        loop = self._loop
        return self._rewriting.hear(loop.recorder.store.answers(loop.agent.run_id, self._step, self._ordinal))

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

    @property
    def check_writes(self) -> bool:
        """Tell whether a file that was written is to be looked at by the checker of its language."""
        return self._loop.contract.check_writes

    @property
    def commit_identity(self) -> Identity:
        """Give who commits."""
        return self._loop.contract.commit_identity

    @property
    def confinement(self) -> Confinement:
        """Give what is to stand around the commands of this call."""
        turn = None if self.beside is None else self.beside.its_turn
        return confinement_of(self._loop, self._policy, self._step, self._ordinal, turn)

    @property
    def belongings(self) -> Belongings:
        """Give what tools keep for this agent from one call to the next."""
        return self._loop.belongings

    @property
    def key(self) -> str:
        """Name this call by durable facts: the same in every process that runs it. An idempotency key."""
        return call_key(self._loop.agent.run_id, self._step, self._ordinal)

    async def intend(self, target: str, after: str, *, changes: bool, edit: Edit | None = None) -> bool:
        """Note what a write is about to make of ``target``; tell whether it had been noted by a process before.

        ``after`` is the digest of the bytes that will stand there, ``changes`` whether others stand there now.
        What was noted first counts: True means that this very write may have been done already, and that it
        changed something then.

        Cancellation: as `Loop.stand`; nothing may be written.
        """
        loop = self._loop
        if self.beside is not None:
            await self.beside.alone()
        target = self._told(target)
        if edit is not None:
            edit = edit.without_secrets(loop.recorder.redactor.hide)
            if changes:
                self._edits[target] = edit
        if not loop.recorder.durable:
            return False
        place = (loop.agent.run_id, self._step, self._ordinal)
        known = loop.recorder.store.write_intent(*place, target) if self._again else None
        if known is not None:
            ours = known.after == after and known.changes
            if ours and not changes and edit is not None:
                # Nobody but the process before this one saw what had stood there.
                self._edits[target] = known.edit
            return ours
        # What this step has done so far stands with it.
        done = [] if self._work is None else self._work.unstored(loop.agent.run_id)
        lines = attrs.astuple(edit or Edit())
        await loop.stand(*done, WriteIntended(*place, target, after, changes, *lines))
        return False

    def wrote(self, target: str, now: str) -> bool:
        """Tell whether a process before this one meant to leave exactly ``now`` (a digest) at ``target``."""
        if not self._again:
            return False
        target = self._told(target)
        known = self._loop.recorder.store.write_intent(self._loop.agent.run_id, self._step, self._ordinal, target)
        if known is None or known.after != now or not known.changes:
            return False
        if known.edit.lines_added is not None:
            # What git keeps is no text, and counts no lines.
            self._edits[target] = known.edit
        return True

    def _told(self, target: str) -> str:
        """Write a target as it is stored: a link may lead to a file that is named by a credential."""
        return self._loop.recorder.redactor.hide(clean(target))

    def keep_edits(self, seen: Observation) -> None:
        """Have what the call changed in files written with its result, if it changed anything."""
        if self._work is None or not (self._edits and seen.changed):
            return
        run_id = self._loop.agent.run_id
        self._work.edits[self._ordinal] = tuple(
            Edited(run_id, self._step, self._ordinal, self.call.name, path, *attrs.astuple(edit))
            for path, edit in self._edits.items()
        )

    async def touch(self, target: str, look: Callable[[], FileText]) -> None:
        """Keep what a file holds before this agent first changes it, if somebody may review the work.

        What may not be read is not kept: it would go to the reviewer.

        Cancellation: as `Loop.stand`; nothing may be written.
        """
        loop = self._loop
        run_id = loop.agent.run_id
        if self.beside is not None:
            await self.beside.alone()
        if loop.services.reviewer is None or loop.recorder.store.has_snapshot(run_id, target):
            return
        before = look() if self.may_read(target) else FileText(Kept.unkept, "the policy does not let it be read")
        if loop.recorder.redactor.hide(before.text) != before.text:
            before = FileText(Kept.unkept, "it held a credential, and its text is not kept")
        await loop.stand(SnapshotKept(run_id, self._step, target, before.text, before.state))

    @property
    def _again(self) -> bool:
        return self._work is not None and self._work.again

    def report_leaked(self, processes: Sequence[int]) -> None:
        """Name processes that did not die in time."""
        self._loop.agent.tree.leaked_processes.extend(processes)

    def may_read(self, target: str) -> bool:
        """Tell whether reading is allowed without asking; ask counts as no, unless a rule is remembered for it."""
        effect = self._policy.explain(Act.read, target).effect
        return effect is Effect.allow or (
            effect is Effect.ask and self._memory.match(Act.read, target) is not None
        )

    async def authorise(self, act: Act, target: str, *more: str, content: str = "", edit: Edit | None = None) -> None:
        """Ask the policy, and the approver where it says ask; the agent holds no slot meanwhile.

        With ``more`` targets all must be allowed: one act seen in several ways, the last
        of which says most. The approver is asked once, about that one.

        Cancellation: nothing was decided.

        Raises:
            ActRefused: the row and the event are written.
        """
        self._insist_on_the_call()
        if self.beside is not None:
            await self.beside.before(act)
        if not more and self._policy.explain(act, target).effect is Effect.allow:
            # Nearly every act of nearly every run: it costs a look and nothing else.
            self._let_go()
            return
        seen = [(each, self._policy.explain(act, each)) for each in (target, *more)]
        if self.beside is not None:
            await self.beside.its_turn()
        for each, decision in seen:
            if decision.effect is Effect.deny:
                await self._refuse(act, each, decision, "denied by policy", "policy")
        asked = [Judged(each, decision) for each, decision in seen if decision.effect is not Effect.allow]
        if asked:
            known = self._memory.covers(act, asked)
            await self._ask(act, seen[-1][0], content, asked[-1].decision, known, self._hunk_of(edit))
        self._let_go()

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> None:
        """Ask the policy for commands and for the files that they are joined with, all before any of them runs.

        Cancellation: nothing was decided.

        Raises:
            ActRefused: the row and the event are written. A deny of one is a deny of all, and nobody was asked then.
        """
        self._insist_on_the_call()
        if self.beside is not None:
            # Also where all is allowed: what stands around a command is looked for just before it starts.
            await self.beside.its_turn()
        judged = [(argv, judge_command(self._policy, argv)) for argv in commands]
        seen = [each for _, several in judged for each in several]
        files = [
            (act, Judged(target, self._policy.explain(act, target)))
            for act, targets in ((Act.read, reads), (Act.write, writes))
            for target in dict.fromkeys(targets)
        ]
        for act, each in [*((Act.exec, one) for one in seen), *files]:
            if each.decision.effect is Effect.deny:
                within = {} if each.target == line else {"line": bounded(clean(line), 2_000)}
                await self._refuse(act, each.target, each.decision, "denied by policy", "policy", **within)
        asked = [each for each in seen if each.decision.effect is Effect.ask]
        if asked:
            known = self._memory.covers_commands(self._policy, judged)
            await self._ask(Act.exec, line, "", asked[-1].decision, known, None, **_of_parts(asked, line))
        for act, each in files:
            if each.decision.effect is Effect.ask:
                # What will stand there is not known yet; where it comes from is.
                await self._ask(act, each.target, line, each.decision, self._memory.match(act, each.target))
        self._let_go()

    def _insist_on_the_call(self) -> None:
        """Refuse to hear of a call that was changed: its tool took the news for something else."""
        if self._rewriting.pending:
            raise CallRewritten

    def _let_go(self) -> None:
        """Note that the tool goes on from asking: when it asks again, it may have acted in between."""
        if self.journal is not None:
            self.journal.let_go = True

    @property
    def _memory(self) -> Memory:
        return self._loop.agent.tree.remembered

    async def _ask(
        self,
        act: Act,
        target: str,
        content: str,
        decision: Decision,
        known: Decision | None,
        hunk: str | None = None,
        **more: Any,
    ) -> None:
        """Ask, unless ``known``, a remembered rule, is the answer to a question that nobody asked before.

        ``hunk`` is only shown: what is asked for is the same with another. ``more`` is told with a refusal.
        """
        loop = self._loop
        if self._rewriting.covers(act, target, content):
            await self._note("decision", act, target, decision, "approved", "approver")
            return
        by, tool = (decision.rule, decision.layer), self.call.name
        request = ApprovalRequest(act, target, content, loop.contract.goal, loop.agent.path, *by, tool, hunk)
        row = self._row(request)
        if known is not None and loop.recorder.store.approval(row.request_id) is None:
            await self._note("decision", act, target, known, "approved", LAYER)
            return
        if self.beside is not None:
            await self.beside.alone()
        approval = await Question(loop, request, row, self._work, self.journal).answer()
        if not approval.approved:
            await self._refuse(act, target, decision, approval.reason or "denied", "approver", **more)
        if approval.modified is not None:
            # Nobody allowed what was asked for: the changed call is judged by itself.
            self._hear()
            self._rewriting.pending = True
            raise CallRewritten
        await self._note("decision", act, target, decision, "approved", "approver")

    def _hunk_of(self, edit: Edit | None) -> str | None:
        return None if edit is None else edit.without_secrets(self._loop.recorder.redactor.hide).hunk

    def _row(self, request: ApprovalRequest) -> ApprovalAsked:
        """Give the row of a question: the one that a process before this one asked, if it was the very same.

        Another policy asks other questions, and a file that was changed meanwhile is another content. So the
        number alone does not make it the same question.
        """
        while True:
            self._asked += 1
            row = self._numbered(request)
            known = self._loop.recorder.store.approval(row.request_id)
            if known is None or (known.act, known.target, known.content) == (row.act, row.target, row.content):
                return row

    def _numbered(self, request: ApprovalRequest) -> ApprovalAsked:
        loop, call = self._loop, self._rewriting.call
        return ApprovalAsked(
            f"{self.key}.{self._asked}",
            loop.agent.tree.run_id,
            loop.agent.run_id,
            self._step,
            self._ordinal,
            self._asked,
            request.act,
            bounded(clean(request.target), 2_000),
            bounded(clean(request.content), CONTENT_CHARS),
            call.name,
            call.arguments,
            request.goal,
            request.rule,
            request.layer,
        )

    async def _refuse(
        self, act: Act, target: str, decision: Decision, reason: str, source: str, **more: Any
    ) -> NoReturn:
        await self._note("refusal", act, target, decision, "denied", source, reason, **more)
        raise ActRefused(Refusal(act, clean(target), decision.rule, decision.layer, reason))

    async def _note(
        self,
        kind: str,
        act: Act,
        target: str,
        decision: Decision,
        verdict: str,
        source: str,
        reason: str = "",
        **more: Any,
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
                **more,
            }
            rows.append(recorder.event(agent.path, agent.depth, "refused", facts))
        await recorder.append(*rows)
