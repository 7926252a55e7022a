"""Going on with a run whose process ended, or that waited for somebody: under its own id, from what is stored.

In this order: is there such a run, and can it go on -> the lease -> has it
ended? then its end is told and nothing is asked -> calls of which nobody knows
whether they were done -> what was held for calls is charged in full -> the
ledger, the queue and every agent go on where they stood.

Nothing given here can widen what the run was given at its start: the boundary
is the stored one. A policy that is handed in is the operator's, and counts from
now on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.end_rows import ENDED
from actors.agents.leasing import driving
from actors.agents.outcomes import Outcome
from actors.agents.policy import Policy
from actors.agents.ports import Approval, Approver, Observer, Provider, Tool
from actors.agents.remembered import Memory, Remembered, restored
from actors.agents.rows import HaltLifted, PolicyInForce
from actors.agents.step_rows import lost_rows
from actors.agents.terminal_codec import decode_terminal
from actors.agents.terminals import Terminal
from actors.agents.tree import Leaks, Tree
from actors.assembly.boundary_check import check_boundary
from actors.assembly.deciding import operator_row
from actors.assembly.ended_by_halt import close_halted, pause_for_calls, peak_so_far
from actors.assembly.recovering import Recovery, recovery_rows
from actors.assembly.running import RunResult, check_run, drive, job_for
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.errors import ConfigError
from actors.halts import RESUMABLE, Halt, HaltKind
from actors.store.past_reader import StoredPast, open_reservations, refuse_damaged_figures, restored_ledger
from actors.store.readers import Reader
from actors.store.records import RunRecord
from actors.store.storage_errors import readable
from actors.store.store import Store

log = logging.getLogger("actors.resuming")


@attrs.frozen
class Decision:
    """A human's answer to one question. ``reason`` is read by the model when it is no.

    With a yes, ``remember`` are rules for the rest of the run, and ``modified`` are arguments for the
    call in place of its own, as those of `Approval`.
    """

    request_id: str
    approved: bool
    reason: str = ""
    remember: tuple[Remembered, ...] = ()
    modified: Mapping[str, Any] | None = attrs.field(default=None, hash=False)


@attrs.frozen
class _Wanted:
    """What a resume brings besides the run: a policy and who is asked, a decision, a recovery, and options."""

    policy: Policy | None
    approver: Approver
    decision: Decision | None = None
    recovery: Recovery | None = None
    observer: Observer | None = None
    prices: PriceTable | None = None
    cleanup_allowance: float = 5.0
    tools: tuple[Tool, ...] | None = None
    on_open: Callable[[Tree], None] | None = None
    reviewer: Provider | None = None


# ── entry points ────────────────────────────────────────────────────────────


async def resume(run_id: str, provider: Provider, store: Store, **options: Any) -> RunResult:
    """Go on with a run that was started without a policy. Takes the options of `run_tree`.

    A run that has ended is reported: nothing is asked and nothing is written.

    Cancellation: as `run`; it can be resumed again.

    Raises:
        ConfigError: there is no such run, or it is under a policy: use `resume_with`, or `resume_from_stored_policy`.
        RunConflict: another process drives it; nothing was written.
        StoreError: the store cannot be used.
    """
    record = root_record(store, run_id)
    if not has_ended(record):
        stored = stored_policy(store, record)
        if stored is not None and not stored.is_permissive:
            text = "is under a policy: resume it with one, or from the stored one"
            raise ConfigError(("run", f"{run_id} {text}"))
    return await _resume(store, record, provider, _Wanted(Policy.permissive(), ApproveAll(), **options))


async def resume_with(
    run_id: str, provider: Provider, store: Store, policy: Policy, approver: Approver, **options: Any
) -> RunResult:
    """Go on with a run under ``policy``, which is the one in force from now on. Takes the options of `run_tree`.

    Cancellation: as `resume`.

    Raises:
        ConfigError, RunConflict, StoreError: as `resume`.
    """
    return await _resume(store, root_record(store, run_id), provider, _Wanted(policy, approver, **options))


async def resume_from_stored_policy(
    run_id: str, provider: Provider, store: Store, approver: Approver, **options: Any
) -> RunResult:
    """Go on with a run under the policy that it was given. Takes the options of `run_tree`.

    Cancellation: as `resume`.

    Raises:
        ConfigError: nothing is stored to be under; a permissive policy is never invented. Or as `resume`.
        RunConflict, StoreError: as `resume`.
    """
    record = root_record(store, run_id)
    if not has_ended(record) and stored_policy(store, record) is None:
        text = "give one, by --task with a task file that has [policy] (in Python: resume_with)"
        raise ConfigError(("run", f"no policy is stored for {run_id}: {text}"))
    return await _resume(store, record, provider, _Wanted(None, approver, **options))


async def resume_tree(
    run_id: str, provider: Provider, store: Store, policy: Policy, approver: Approver, **options: Any
) -> RunResult:
    """Go on with a tree: every agent of it, from its last answer or step. As `resume_with`.

    Children that were queued are queued again, and those that worked beside their parents do so
    again before the parent's first step. The policy is the root's; a child's is narrowed from it as
    it was before.

    Cancellation: as `resume`.

    Raises:
        ConfigError: it is no tree, or as `resume`.
        RunConflict, StoreError: as `resume`.
    """
    return await _resume(store, _tree_root(store, run_id), provider, _Wanted(policy, approver, **options))


async def resume_tree_from_stored_policy(
    run_id: str, provider: Provider, store: Store, approver: Approver, **options: Any
) -> RunResult:
    """Go on with a tree under the policy that it was given. As `resume_tree`.

    Cancellation: as `resume`.

    Raises:
        ConfigError, RunConflict, StoreError: as `resume_from_stored_policy`.
    """
    record = _tree_root(store, run_id)
    return await resume_from_stored_policy(record.run_id, provider, store, approver, **options)


async def resume_with_decision(
    run_id: str,
    decision: Decision,
    provider: Provider,
    store: Store,
    approver: Approver,
    policy: Policy | None = None,
    **options: Any,
) -> RunResult:
    """Decide a question of a run, or of any agent of a tree (``run_id`` is the root's), and go on.

    The call that asked is run as it was stored, once, after it was judged again by
    the policy in force: a rule that denies it by now wins. ``policy`` None is the stored one.

    Cancellation: as `resume`; the decision stands if it was written.

    Raises:
        ConfigError: there is no such question, it belongs to another tree, it was decided before, or what it
            changes the call to is nothing that the tool takes.
        RunConflict: another process drives the run; the decision was not written.
        StoreError: as `resume`.
    """
    return await _resume(
        store, root_record(store, run_id), provider, _Wanted(policy, approver, decision=decision, **options)
    )


async def resume_with_recovery(
    run_id: str,
    recovery: Recovery,
    provider: Provider,
    store: Store,
    approver: Approver,
    policy: Policy | None = None,
    **options: Any,
) -> RunResult:
    """Say what is to become of a call of which nobody knows whether it was done, and go on.

    Other calls that are open in the same way pause the run again. ``policy`` None is the stored one.

    Cancellation: as `resume`; the decision stands if it was written.

    Raises:
        ConfigError: there is no such open call in this run.
        RunConflict, StoreError: as `resume`.
    """
    return await _resume(
        store, root_record(store, run_id), provider, _Wanted(policy, approver, recovery=recovery, **options)
    )


# ── what can go on ──────────────────────────────────────────────────────────


def root_record(store: Store, run_id: str) -> RunRecord:
    """Give the stored root of a run that can be gone on with.

    Raises:
        ConfigError: there is no such run, it is an agent of one, or the store ends with its process.
    """
    record = store.run(run_id)
    if record is None:
        raise ConfigError(("run", f"there is no run {run_id} in {store.file}"))
    if record.parent_run_id is not None:
        raise ConfigError(("run", f"{run_id} is an agent of {record.tree_id}: name that one"))
    if not store.durable:
        raise ConfigError(("store", "what is kept in memory ends with its process; a run in a file can be resumed"))
    return record


def _tree_root(store: Store, run_id: str) -> RunRecord:
    record = root_record(store, run_id)
    if record.entry == "run":
        raise ConfigError(("run", f"{run_id} is one agent and no tree: use resume_with"))
    return record


def has_ended(record: RunRecord) -> bool:
    """Tell whether a run has its end."""
    return record.status in ENDED


def stored_policy(store: Store, record: RunRecord) -> Policy | None:
    """Give the policy that is in force for a run; None when none is stored.

    Raises:
        ConfigError: it cannot be read.
    """
    text = store.policy(record.run_id)
    # What cannot be read is an error, and not no policy.
    return None if text is None else Policy.from_json(text, f"run_policies {record.run_id}")


def stored_contract(record: RunRecord) -> TaskContract:
    """Give the contract that a run was started with.

    Raises:
        ConfigError: it had none: its agents are functions of a program. Or it cannot be read.
    """
    if record.contract is None:
        text = "its agents are functions of a program; start it there again. Only contracts can be resumed"
        raise ConfigError(("run", f"{record.run_id}: {text}"))
    try:
        plain = json.loads(record.contract)
    except (ValueError, RecursionError) as error:
        raise ConfigError((f"contract of {record.run_id}", f"cannot be read: {error}")) from None
    return TaskContract.from_dict(plain, "contract")


def stored_containment(record: RunRecord) -> Containment:
    """Give the boundary that a run was started under.

    Raises:
        ConfigError: it cannot be read.
    """
    if type(record.containment) is not str:
        raise ConfigError((f"containment of {record.run_id}", "cannot be read: no text is stored"))
    return Containment.from_json(record.containment, f"containment of {record.run_id}")


def ended_result(store: Reader, record: RunRecord) -> RunResult:
    """Tell again how a run ended.

    Raises:
        StoreError: what is stored of its end cannot be read.
    """
    return RunResult(
        record.run_id,
        stored_outcome(store, record),
        _stored_terminal(store, record.run_id),
        stored_halt(store, record.run_id),
        Leaks(),
        record.said,
        stored_memory(store, record.run_id).rules,
    )


def stored_memory(store: Reader, tree_id: str) -> Memory:
    """Give what the approvals of a tree made it remember; what cannot be read of it counts for nothing.

    Raises:
        StoreError: the file cannot be read.
    """
    return restored(store.remembered(tree_id), log.warning)


def stored_outcome(store: Reader, record: RunRecord) -> Outcome:
    """Give how a run ended.

    Raises:
        StoreError: what is stored of it cannot be read.
    """
    with readable(store.file, f"the end of {record.run_id}"):
        # The loader refuses what is missing as it does what is no JSON.
        return Outcome.from_json(json.loads(record.detail))  # type: ignore[arg-type]


def _stored_terminal(store: Reader, run_id: str) -> Terminal | None:
    wire = store.terminal(run_id)
    with readable(store.file, f"the terminal of {run_id}"):
        return None if wire is None else decode_terminal(wire)


def stored_halt(store: Reader, tree_id: str) -> Halt | None:
    """Give what stopped a tree; None when nothing did.

    Raises:
        StoreError: what is stored of it cannot be read.
    """
    row = store.halt(tree_id)
    if row is None:
        return None
    with readable(store.file, f"the halt of {tree_id}"):
        return Halt(HaltKind(row.kind), row.by, 0.0, row.path, row.reason, row.limit, row.used, row.requested)


# ── going on ────────────────────────────────────────────────────────────────


async def _resume(store: Store, record: RunRecord, provider: Provider, wanted: _Wanted) -> RunResult:
    if has_ended(record) and (wanted.decision is not None or wanted.recovery is not None):
        raise ConfigError(("run", f"{record.run_id} has ended: nothing of it waits for a decision"))
    if has_ended(record):
        return ended_result(store, record)
    contract, limits = stored_contract(record), stored_containment(record)
    prices = PriceTable() if wanted.prices is None else wanted.prices
    check_run(contract, provider, limits, prices, wanted.reviewer)
    async with driving(store, record.run_id):
        return await _go_on(store, record, provider, wanted, contract, limits, prices)


async def _go_on(
    store: Store,
    record: RunRecord,
    provider: Provider,
    wanted: _Wanted,
    contract: TaskContract,
    limits: Containment,
    prices: PriceTable,
) -> RunResult:
    tree_id = record.run_id
    # Looked at again: whoever held the lease until now may have ended it.
    again = store.run(tree_id)
    assert again is not None
    if has_ended(again):
        return ended_result(store, again)
    # Before anything is written: what cannot be read is left as it is.
    halt = stored_halt(store, tree_id)
    refuse_damaged_figures(store, tree_id)
    store.tree_started(tree_id)
    await _note_decisions(store, tree_id, wanted)
    await store.commit(*_closing_rows(store, tree_id))
    unknown = store.open_attempts(tree_id)
    if unknown:
        figures = StoredPast(store, tree_id), tree_id, unknown, restored_ledger(store, tree_id, limits)
        outcome, told = pause_for_calls(store, *figures)
        await store.commit(*told)
        return RunResult(tree_id, outcome, None, None, Leaks(), again.said, stored_memory(store, tree_id).rules)
    policy = wanted.policy if wanted.policy is not None else stored_policy(store, record)
    if policy is None:
        raise ConfigError(("run", f"no policy is stored for {tree_id}: give one"))
    _check_boundary(contract, policy)
    rows: list[Any] = [PolicyInForce(tree_id, policy.to_json())]
    if halt is not None and halt.kind in RESUMABLE:
        rows.append(HaltLifted(tree_id))
    await store.commit(*rows)
    state = restored_ledger(store, tree_id, limits)
    past = StoredPast(store, tree_id)
    if halt is not None and halt.kind not in RESUMABLE:
        # It was being stopped for good: what is left is to say so, of every agent.
        await store.commit(*close_halted(store, past, tree_id, halt, state))
        closed = store.run(tree_id)
        assert closed is not None
        return ended_result(store, closed)
    job = job_for(
        contract, provider, policy, wanted.approver, prices, wanted.tools,
        in_tree=record.entry != "run", opening=record.opening or "", reviewer=wanted.reviewer,
    )  # fmt: skip
    tree = Tree(
        limits, store, wanted.observer, wanted.cleanup_allowance, state, tree_id, queue_order=contract.queue_order
    )
    tree.slots.peak_working = peak_so_far(store, tree_id)
    tree.remembered = stored_memory(store, tree_id)
    return await drive(tree, job, wanted.on_open, past)


def _check_boundary(contract: TaskContract, policy: Policy) -> None:
    """Check as at the start; what could be written then cannot be by now.

    Raises:
        ConfigError: the boundary cannot be held here.
    """
    try:
        check_boundary(contract, policy)
    except ConfigError as error:
        text = f"only a new run can have another mode than {contract.exec_sandbox}; this one goes on where that is held"
        raise ConfigError(*((place, f"{problem}. But {text}") for place, problem in error.problems)) from None


async def _note_decisions(store: Store, tree_id: str, wanted: _Wanted) -> None:
    """Write the operator's decisions down, now that nobody else drives the run.

    Raises:
        ConfigError: there is no such question or call here, or it was decided before; nothing was written.
    """
    decision = wanted.decision
    if decision is not None:
        await decided(store, tree_id, decision, wanted.tools)
    if wanted.recovery is not None:
        await store.commit(*recovery_rows(store, tree_id, wanted.recovery))


async def decided(store: Store, tree_id: str, decision: Decision, tools: Iterable[Tool] | None = None) -> None:
    """Write a decision on a question of a tree. ``tools`` are those of the run; None for the built-in ones.

    Cancellation: it was written or not.

    Raises:
        ConfigError: there is no such question here, it was decided before, or the arguments that come with it
            are none for the tool that asks; nothing was written.
    """
    known = store.approval(decision.request_id)
    if known is None or tree_id != decision.request_id.partition("#")[0].partition("/")[0]:
        raise ConfigError(("decision", f"{decision.request_id} is no question of this run"))
    answer = Approval(decision.approved, decision.reason, decision.remember, decision.modified)
    if not await store.decide(operator_row(store, decision.request_id, answer, tools)):
        raise ConfigError(("decision", f"{decision.request_id} was decided before"))


def _closing_rows(store: Store, tree_id: str) -> list[Any]:
    """Charge in full what was held when the process ended: whether it was billed is unknown."""
    return [row for held in open_reservations(store, tree_id) for row in lost_rows(*held)]
