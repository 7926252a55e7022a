"""Going on from a run that has its end: a new run, which names the old one and takes over all that it has used.

The old run stays as it is. Its root goes on under a new id: with its steps, its
last answer if the calls of that did not all run, and the reports of its children,
which have ended. So nothing is asked again and nothing is paid again; and what
was used counts against every ceiling, so nothing is given back either.

The beginning of the new run is written in one transaction, as that of a run
which was paused. From there on it is a resume, now and in any later process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs
import msgspec

from actors.agents.call_journal import call_key
from actors.agents.coming_back import only_says_works_on
from actors.agents.contract import TaskContract
from actors.agents.end_rows import ENDED
from actors.agents.leasing import driving
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Approver, ObservationKind, Provider
from actors.agents.rows import (
    AgentEvent,
    AnswerGiven,
    AttemptBegun,
    AttemptClosed,
    CallDone,
    EventSeen,
    Inherited,
    Observed,
    Pinned,
    RunStarted,
    RunStatus,
    SnapshotKept,
    Spawned,
    StepDone,
    WriteIntended,
)
from actors.agents.step_digest import step_digest
from actors.assembly.boundary_check import check_boundary, told_before
from actors.assembly.resuming import (
    has_ended,
    resume_from_stored_policy,
    root_record,
    stored_containment,
    stored_contract,
    stored_outcome,
    stored_policy,
)
from actors.assembly.running import FILES, RunResult, check_run
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.errors import ConfigError
from actors.halts import HaltKind
from actors.ids import new_run_id
from actors.store.past_reader import refuse_damaged_figures
from actors.store.records import LedgerRecord, RunRecord
from actors.store.storage_errors import readable
from actors.store.store import Store

# The cap that ended a run must be larger in the one that goes on from it, or that would end in the same way.
_OWN_CAPS: Final = {
    OutcomeKind.step_cap_reached: "max_steps",
    OutcomeKind.cost_budget_exceeded: "max_tokens",
    OutcomeKind.time_budget_exceeded: "max_duration",
}
# What an end closes that was still open.
LOST: Final = "lost"
_CEILINGS: Final = {
    HaltKind.tokens: "max_total_tokens",
    HaltKind.cost: "max_total_cost",
    HaltKind.calls: "max_total_calls",
    HaltKind.duration: "max_total_duration",
}


async def reopen(
    run_id: str,
    provider: Provider,
    store: Store,
    *,
    approver: Approver,
    contract: TaskContract | None = None,
    containment: Containment | None = None,
    policy: Policy | None = None,
    task: str | None = None,
    **options: Any,
) -> RunResult:
    """Go on from a run that has its end, as a new run. Takes the options of `run_tree`.

    ``contract``, ``containment`` and ``policy`` None are those of the old run. The contract keeps its
    goal and its place; only here, and only by whoever calls it, may a ceiling be raised.

    Cancellation: as `run`. The new run may have begun; it can be resumed.

    Raises:
        ConfigError: the run has no end (resume it), has reached its goal, was reopened before, or could not
            take one step under these limits. Nothing was written.
        RunConflict: another process reopens it right now.
        StoreError: the store cannot be used.
    """
    record = root_record(store, run_id)
    in_force = policy or stored_policy(store, record) or Policy.default()
    new = _New(
        store,
        record,
        _same_task(record, contract),
        _same_kind(record, containment),
        in_force,
        task if task is not None else record.task,
    )
    new.check()
    prices, reviewer = options.get("prices") or PriceTable(), options.get("reviewer")
    check_run(new.contract, provider, new.containment, prices, reviewer)
    check_boundary(new.contract, in_force)
    if new.contract.verify != stored_contract(record).verify:
        # Its judge is the one of now, and no longer that of the first start.
        await told_before(new.contract, in_force, FILES)
    await new.begin()
    return await resume_from_stored_policy(new.run_id, provider, store, approver, **options)


def _same_task(record: RunRecord, contract: TaskContract | None) -> TaskContract:
    before = stored_contract(record)
    if contract is None:
        return before
    for name in ("goal", "root", "file"):
        if getattr(contract, name) != getattr(before, name):
            text = "cannot change, because what was done so far belongs to it: start a new run"
            raise ConfigError((f"contract.{name}", text))
    return contract


def _same_kind(record: RunRecord, containment: Containment | None) -> Containment:
    before = stored_containment(record)
    if containment is None:
        return before
    if record.entry == "run" and containment != before:
        raise ConfigError(("containment", f"{record.run_id} is one agent and no tree: only its contract has limits"))
    return containment


class _New:
    """The run that goes on from another one, before it begins."""

    def __init__(
        self,
        store: Store,
        old: RunRecord,
        contract: TaskContract,
        containment: Containment,
        policy: Policy,
        task: str | None,
    ) -> None:
        self.run_id = new_run_id()
        self.contract = contract
        self.containment = containment
        self._store = store
        self._old = old
        self._policy = policy
        self._task = task

    # ── may it begin ────────────────────────────────────────────────────────

    def check(self) -> None:
        """Refuse what cannot go on.

        Raises:
            ConfigError: the first reason.
        """
        old = self._old
        if not has_ended(old):
            raise ConfigError(("run", f"{old.run_id} has no end yet: resume it"))
        if old.success:
            text = f"{old.run_id} has reached its goal ({old.outcome}): there is nothing to go on with"
            raise ConfigError(("run", text))
        self._check_successor()
        self._check_raised()
        self._check_left()

    def _check_successor(self) -> None:
        found = self._store.select("SELECT run_id, status FROM runs WHERE reopened_from = ?", (self._old.run_id,))
        for successor, status in found:
            remedy = "reopen" if status in ENDED else "resume"
            text = f"{self._old.run_id} was reopened as {successor}, which has its counters: {remedy} that one"
            raise ConfigError(("run", text))

    def _check_raised(self) -> None:
        """Look whether the cap that ended the old run is larger now."""
        ended = stored_outcome(self._store, self._old)
        kind = ended.kind
        if kind in _OWN_CAPS:
            name = _OWN_CAPS[kind]
            before, now = (getattr(each, name) for each in (stored_contract(self._old), self.contract))
            place = f"contract.{name}"
        elif kind is OutcomeKind.budget_ceiling_reached and ended.ceiling in _CEILINGS:
            name = _CEILINGS[ended.ceiling]
            before, now = (getattr(each, name) for each in (stored_containment(self._old), self.containment))
            place = f"containment.{name}"
        else:
            return
        if now is not None and before is not None and now <= before:
            raise ConfigError((place, f"ended the run at {before}: give more, or the new run would end there too"))

    def _check_left(self) -> None:
        """Look whether anything is left under each cap once it counts what was used."""
        used, contract, limits = self._used, self.contract, self.containment
        own = (self._old.spent_tokens or 0) + (self._old.overrun_tokens or 0)
        for place, limit, figure in (
            ("contract.max_steps", contract.max_steps, self._old.steps or 0),
            ("contract.max_tokens", contract.max_tokens, own),
            ("contract.max_duration", contract.max_duration, self._seconds),
            ("containment.max_total_tokens", limits.max_total_tokens, used.spent_tokens),
            ("containment.max_total_cost", limits.max_total_cost, used.spent_microdollars),
            ("containment.max_total_calls", limits.max_total_calls, used.calls),
            ("containment.max_total_duration", limits.max_total_duration, self._seconds),
        ):
            if limit is not None and figure >= limit:
                raise ConfigError((place, f"{figure:,} of {limit:,} are used, and what was used counts: give more"))

    @property
    def _used(self) -> LedgerRecord:
        totals = self._store.ledger(self._old.run_id)
        if totals is None:
            raise ConfigError(("run", f"no totals are stored of {self._old.run_id}, so what it used cannot be counted"))
        refuse_damaged_figures(self._store, self._old.run_id)
        return totals

    @property
    def _seconds(self) -> float:
        return (self._old.duration_ms or 0) / 1000

    # ── beginning ───────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Write the beginning of the new run, all of it or nothing. One process at a time, by the old run's lease.

        Cancellation: it was written or not.

        Raises:
            ConfigError: another process has reopened the run meanwhile.
            RunConflict: another process does so right now.
        """
        async with driving(self._store, self._old.run_id):
            self._check_successor()
            await self._store.commit(*self._rows())

    def _rows(self) -> list[Any]:
        old, new = self._old, self.run_id
        steps = list(self._step_rows())
        seen = (row for row in steps if isinstance(row, Observed) and row.kind == ObservationKind.child)
        told = {row.target for row in seen if not only_says_works_on(row.target, row.text)}
        about = {"run_id": new, "path": old.path, "depth": 0}
        facts = {"kind": "reopened", **about, "from": old.run_id, "step": self._last}
        rows: list[Any] = [
            self._start(),
            self._inherited(),
            RunStatus(new, "paused"),
            *steps,
            *self._open_rows(),
            *self._judged_rows(),
            *self._spawn_rows(told),
            EventSeen(new, new, msgspec.json.encode(facts).decode()),
        ]
        if old.said:
            rows.append(AgentEvent(new, self._last, "said", old.said))
        return rows

    def _start(self) -> RunStarted:
        old = self._old
        return RunStarted(
            self.run_id, self.run_id, old.path, 0, None, old.goal, old.file, old.provider, old.model,
            json.dumps(self._narrowed().to_dict()), self.containment.to_json(), self._policy.to_json(), old.root,
            old.opening, old.entry, old.run_id, self._task,
        )  # fmt: skip

    def _narrowed(self) -> TaskContract:
        """Take off the root's own cap what it has used: its account begins anew with the run."""
        cap = self.contract.max_tokens
        if cap is None:
            return self.contract
        own = (self._old.spent_tokens or 0) + (self._old.overrun_tokens or 0)
        return attrs.evolve(self.contract, max_tokens=cap - own)

    def _inherited(self) -> Inherited:
        used = self._used
        return Inherited(
            self.run_id,
            self._old.run_id,
            used.spent_tokens,
            used.spent_microdollars,
            used.overrun_tokens,
            used.overrun_microdollars,
            # The root is one of them, and goes on.
            max(used.agents - 1, 0),
            used.calls,
            # Those of the answers that are taken over are counted with these.
            max(used.tool_calls - self._taken_over_calls(), 0),
            self._seconds,
            self._last,
        )

    def _taken_over_calls(self) -> int:
        # All are read, also those whose count is known: what cannot be read is found before the new run is written.
        with readable(self._store.file, f"the answers of {self._old.run_id}"):
            turns = [(each.admitted, len(json.loads(each.calls))) for each in self._store.turns(self._old.run_id)]
        return sum(calls if admitted is None else admitted for admitted, calls in turns)

    # ── what the root did ───────────────────────────────────────────────────

    @property
    def _last(self) -> int:
        return self._old.steps or 0

    def _step_rows(self) -> Iterator[Any]:
        """Give the root's answers, observations and steps under the new id; the chain of digests is made anew."""
        old, new, digest = self._old.run_id, self.run_id, None
        seen: dict[int, list[Observed]] = {}
        for each in self._store.observations(old):
            seen.setdefault(each.step, []).append(
                Observed(new, each.step, each.ordinal, each.kind, each.target, each.text, each.changed)
            )
        steps = {each.step: each for each in self._store.steps(old)}
        for turn in self._store.turns(old):
            step, told = turn.step, seen.get(turn.step, [])
            done = steps.get(step)
            yield AnswerGiven(new, step, turn.text, turn.calls, turn.finish_reason, turn.admitted)
            if done is None:
                # What was read before this answer; what was stored with the end is reported again.
                told = self._read_before(step, told)
            yield from told
            if done is not None:
                facts = [(each.kind, each.target, each.text, each.changed) for each in told]
                digest = step_digest(
                    digest, new, step, turn.text, turn.calls, turn.finish_reason, done.tokens, facts
                )
                yield StepDone(
                    new, step, done.decision, done.result, done.tool_call, done.tokens, done.remaining_tokens, digest
                )

    def _read_before(self, step: int, told: list[Observed]) -> list[Observed]:
        sql = "SELECT event FROM run_events WHERE run_id = ? AND event LIKE '%\"child_collected\"%' ORDER BY id"
        rows = self._store.select(sql, (self._old.run_id,))
        with readable(self._store.file, f"the events of {self._old.run_id}"):
            events = [json.loads(event) for (event,) in rows]
            read = {each["child"] for each in events if each.get("step") == step and not each.get("drained")}
        kept = {each.target: each for each in told if each.target in read}
        return [attrs.evolve(each, ordinal=place) for place, each in enumerate(kept.values(), 1)]

    def _open_rows(self) -> Iterator[Any]:
        """Give what is known of the calls of an answer whose step is not whole."""
        old, new, step = self._old.run_id, self.run_id, self._last + 1
        places = (old, step)
        done = "SELECT ordinal, kind, target, text, changed FROM call_results WHERE run_id = ? AND step = ?"
        for ordinal, kind, target, text, changed in self._store.select(done, places):
            yield CallDone(new, step, ordinal, kind, target, text, bool(changed))
        meant = (
            "SELECT ordinal, target, after, changes, lines_added, lines_removed, hunk FROM write_intents"
            " WHERE run_id = ? AND step = ?"
        )
        for ordinal, target, after, changes, *edit in self._store.select(meant, places):
            yield WriteIntended(new, step, ordinal, target, after, bool(changes), *edit)
        begun = "SELECT ordinal, tool, arguments, resolution FROM tool_attempts WHERE run_id = ? AND step = ?"
        for ordinal, tool, arguments, resolution in self._store.select(begun, places):
            yield AttemptBegun(new, step, ordinal, tool, arguments, call_key(new, step, ordinal))
            # A call that was cut by the end of its run: nobody knows what became of it, so the operator says.
            if resolution not in (None, LOST):
                yield AttemptClosed(new, step, ordinal, resolution)

    def _judged_rows(self) -> Iterator[Any]:
        """Give what the check depends on, and what files held, as the old run found them: it may have changed them."""
        store, old, new = self._store, self._old.run_id, self.run_id
        pins = store.pins(old)
        if pins is not None and self.contract.verify == stored_contract(self._old).verify:
            yield Pinned(new, pins)
        for path, before in store.files_before(old).items():
            yield SnapshotKept(new, 0, path, before.text, before.state)

    def _spawn_rows(self, told: set[str]) -> Iterator[Spawned]:
        """Give the children whose reports the root has not read; they stay those of the old run, and have ended."""
        for each in self._store.spawns(self._old.run_id):
            child = self._store.run(each.child_run_id)
            if child is not None and (each.step > self._last or child.path not in told):
                yield Spawned(
                    self.run_id, each.step, each.ordinal, each.child_run_id, each.goal, each.definition, each.arguments
                )
