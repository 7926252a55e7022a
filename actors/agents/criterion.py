"""Whether an agent's criterion holds, asked of the verifier or of a reviewer, and written down.

The worker has no hand in it: what the check depends on must be what stood there
when the work began, before the check and after it. Whatever keeps a check from
being made makes its verdict errored, and never passed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio.lowlevel

from actors.agents.confinement import Confinement, SandboxApplied, unrecorded
from actors.agents.confining import files_of, sandbox_recorder
from actors.agents.contract import TaskContract
from actors.agents.entry_text import bounded, clean
from actors.agents.exec_judging import may_run
from actors.agents.judging import MOST_NAMED, Change, FileText, Kept, Pins, is_plain, pinned_by, unmatched
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, JudgedFiles, Provider, RunStore, Verifier
from actors.agents.review_text import read_review, review_request, same_model
from actors.agents.reviewing import LoopPayer, Payer
from actors.agents.rows import GateTried, Pinned
from actors.agents.secret_values import Redactor
from actors.agents.verification import CommandPasses, Review
from actors.errors import ConfigError

if TYPE_CHECKING:
    from actors.agents.loop import Loop

ERRORED = "errored"
UNREADABLE = FileText(Kept.unkept, "the policy does not let this file be read")


@attrs.frozen
class Case:
    """One agent's work after a step, with all that judging it takes. ``trusted``: the operator wrote the criterion.

    ``hide`` takes credentials out of what a check printed, and out of what a reviewer is sent.
    """

    run_id: str
    step: int
    contract: TaskContract
    policy: Policy
    store: RunStore
    trusted: bool
    verify: Verifier
    files: JudgedFiles | None
    reviewer: Provider | None
    record: Callable[[SandboxApplied], Awaitable[None]] = unrecorded
    hide: Callable[[str], str] = attrs.Factory(lambda: Redactor.of(os.environ).hide)

    @property
    def confinement(self) -> Confinement:
        """Give what stands around the command of a check: the same as around the agent's own."""
        hidden = files_of(self.store)
        return Confinement(
            self.contract.exec_sandbox, self.policy, self.contract.exec_caps, self.record, hidden=hidden
        )

    @property
    def root(self) -> str:
        """Give the directory that the work is in; of one file, where the operator's own link leads."""
        contract = self.contract
        return str(contract.root) if contract.root is not None else os.path.dirname(os.path.realpath(contract.file))

    def may_read(self, target: str) -> bool:
        """Tell whether the agent may read a file outright; ask counts as no."""
        return self.policy.explain(Act.read, target).effect is Effect.allow

    def may_exec(self, argv: Sequence[str]) -> bool:
        """Tell whether the agent may run a program outright."""
        # The operator wrote this very command, or it was judged as any of the agent's own.
        return self.trusted or may_run(self.policy, argv)


@attrs.frozen
class Judgement:
    """What a criterion came to. ``rows`` are what finding out cost, not written yet; ``facts`` tell of a review."""

    phase: str
    verdict: str
    detail: str = ""
    rows: Sequence[Any] = ()
    facts: dict[str, Any] | None = None
    halted: bool = False


async def passes(loop: Loop, step: int) -> bool:
    """Look whether the criterion holds after a step.

    Cancellation: nothing was decided; a review that was answered is written down with its verdict.
    """
    agent, recorder = loop.agent, loop.recorder
    got = await judge(case_of(loop, step), LoopPayer(loop, step))
    facts = {"step": step, "verdict": got.verdict, "detail": got.detail}
    rows = [*got.rows, GateTried(agent.run_id, step, got.phase, got.verdict, got.detail)]
    if got.facts is not None:
        rows.append(recorder.event(agent.path, agent.depth, "reviewed", {"step": step, **got.facts}))
    rows.append(recorder.event(agent.path, agent.depth, "gate", facts))
    if got.rows:
        await loop.stand(*rows)
    else:
        await recorder.append(*rows)
    if got.halted:
        await loop.cut()
    return got.verdict == "passed"


def case_of(loop: Loop, step: int) -> Case:
    """Give an agent's work after a step."""
    job, services = loop.job, loop.services
    return Case(
        loop.agent.run_id,
        step,
        job.contract,
        job.policy,
        loop.recorder.store,
        job.trusted_gate,
        services.verify,
        services.files,
        services.reviewer,
        sandbox_recorder(loop, step, None),
        loop.recorder.redactor.hide,
    )


async def judge(case: Case, payer: Payer) -> Judgement:
    """Find out whether a criterion holds.

    Cancellation: nothing was decided.
    """
    if isinstance(case.contract.verify, Review):
        return await _review(case, case.contract.verify, payer)
    before, changed = await _looked_at(case)
    if changed is not None:
        return Judgement("command", ERRORED, changed)
    contract = case.contract
    got = await case.verify(
        contract.verify,
        root=case.root,
        file=str(contract.file) if contract.is_single_file else None,
        exec_timeout=contract.exec_timeout,
        may_read=case.may_read,
        may_exec=case.may_exec,
        confinement=case.confinement,
    )
    after, changed = await _looked_at(case)
    changed = changed or before.touched_until(after)
    detail = clean(case.hide(got.detail))
    if changed is not None:
        return Judgement(got.phase, ERRORED, f"{changed}\n{detail}")
    return Judgement(got.phase, got.verdict, detail)


# ── what the check depends on ───────────────────────────────────────────────


async def note_dependencies(loop: Loop) -> None:
    """Note what the check of an agent depends on, before the agent does anything; what was noted first counts.

    Cancellation: nothing was noted.

    Raises:
        ConfigError: a model wrote the check, and globs that protect nothing or a file outside the workspace: its
            agent ends with that.
    """
    case = case_of(loop, 0)
    of, files = pinned_by(case.contract.verify), case.files
    if files is None or case.store.pins(case.run_id) is not None:
        return
    if of is None:
        await _look_outside(loop, case, files)
        return
    try:
        pins = await files.pin(case.contract.verify, case.root)
    except ConfigError as error:
        pins = Pins(of, problem=str(error))
    useless = _useless(case, pins)
    if useless and not case.trusted:
        raise ConfigError(*(("verify.protect", each) for each in useless[:MOST_NAMED]))
    if useless:
        # Looked at before the start; whoever took the files away since has no check.
        pins = Pins(of, problem="; ".join(useless[:MOST_NAMED]))
    await loop.recorder.append(Pinned(case.run_id, pins.to_json()))


async def _look_outside(loop: Loop, case: Case, files: JudgedFiles) -> None:
    """Refuse a model's check of files that lie outside the workspace, while the work has not begun."""
    past = loop.agent.past
    # The operator's is looked at before the start. Of work that goes on, a link on the way may be another by now.
    if case.trusted or (past is not None and past.last_step > 0):
        return
    outside = (await files.pin(case.contract.verify, case.root)).outside
    if outside:
        raise ConfigError(*((key, bounded(clean(why), 400)) for key, why in outside[:MOST_NAMED]))


def _useless(case: Case, pins: Pins) -> list[str]:
    """List why globs protect nothing. Of a model's, files that may not be read count for nothing.

    Else their names could be found out letter by letter.
    """
    criterion = case.contract.verify
    if case.trusted or not isinstance(criterion, CommandPasses):
        return list(pins.useless.values())
    wild = [glob for glob in criterion.protect if not is_plain(glob)]
    left = unmatched(wild, (path for path in pins.files if case.may_read(path)))
    text = "matches no file that may be read; correct it, or write the path of the file that must not be made"
    return [
        *(f'"{bounded(clean(glob), 200)}" {text}' for glob in left),
        *(why for glob, why in pins.useless.items() if is_plain(glob)),
    ]


async def _looked_at(case: Case) -> tuple[Pins, str | None]:
    """Look at a check's dependencies; say also what is not as it was noted, None when all is or it has none."""
    criterion, nothing = case.contract.verify, Pins("")
    if not isinstance(criterion, CommandPasses):
        return nothing, None
    files, stored = case.files, case.store.pins(case.run_id)
    if files is None or stored is None:
        return nothing, "nobody noted the protected files when the work began" if criterion.protect else None
    try:
        then = Pins.from_json(stored)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return nothing, "what was noted of the check's files cannot be read"
    if then.of != pinned_by(criterion):
        return nothing, "what was noted when the work began belongs to another check"
    try:
        now = await files.pin(criterion, case.root)
    except ConfigError as error:
        now = Pins(then.of, problem=str(error))
    return now, then.change_to(now)


# ── review ──────────────────────────────────────────────────────────────────


async def _review(case: Case, criterion: Review, payer: Payer) -> Judgement:
    reviewer = case.reviewer
    if reviewer is None or case.files is None:
        return Judgement("review", ERRORED, "there is no reviewer")
    changes = await _changes(case)
    contract = case.contract
    request = review_request(contract.goal, criterion.rubric, changes, contract.max_output_tokens)
    paid = await payer.ask(reviewer, request)
    if paid.answer is None:
        verdict, detail = ERRORED, paid.why
    elif (own := _own_review(case, criterion, paid.answer.model)) is not None:
        verdict, detail = ERRORED, own
    else:
        verdict, detail = read_review(paid.answer.text)
    model = None if paid.answer is None else paid.answer.model
    facts = {"verdict": verdict, "reviewer": reviewer.name, "model": model, "changes": len(changes)}
    return Judgement("review", verdict, clean(bounded(case.hide(detail), 4_000)), paid.rows, facts, paid.halted)


def _own_review(case: Case, criterion: Review, served: str | None) -> str | None:
    """Say that who answered is who did the work, under whatever name it was asked; None when it is another."""
    if served is None or criterion.allow_self_review:
        return None
    own = next((each for each in case.store.models(case.run_id) if each is not None and same_model(each, served)), None)
    return None if own is None else f"the reviewer answered as {served}, and {own} did the work: nobody reviews himself"


async def _changes(case: Case) -> list[Change]:
    """List what the agent and those below it changed in its workspace, as far as it may be read.

    Cancellation: nothing is left open.
    """
    files, found = case.files, []
    assert files is not None, "whoever asks has looked"
    for path, before in case.store.files_before(case.run_id).items():
        await trio.lowlevel.checkpoint()
        if not case.may_read(path):
            found.append(Change(path, UNREADABLE, UNREADABLE))
            continue
        after = files.text_of(case.root, path)
        if before != after or before.state is Kept.unkept:
            found.append(Change(path, _shown(case, before), _shown(case, after)))
    return found


def _shown(case: Case, text: FileText) -> FileText:
    return attrs.evolve(text, text=case.hide(text.text))
