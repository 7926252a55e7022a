"""`actors resume` and `actors reopen`: a run goes on from its store alone, under its own id or as a new one.

What is not of the boundary may be given anew with a task file: where answers come
from, what they cost, who is asked, the policy. Contract and boundary never come
from there. Only `reopen` changes them, value by value, because whoever calls it
sets each by hand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from actors.agents.contract import TaskContract
from actors.agents.outcomes import TABLE, After, exit_code
from actors.agents.policy import Policy
from actors.agents.ports import Approver, Provider
from actors.agents.reviewing import REVIEW
from actors.agents.tree import Tree
from actors.assembly.provider_spec import PATHS, ProviderKind, ProviderSpec, provider_of
from actors.assembly.reopening import reopen
from actors.assembly.resuming import (
    ended_result,
    has_ended,
    resume_from_stored_policy,
    resume_with,
    stored_containment,
    stored_contract,
)
from actors.assembly.running import RunResult
from actors.assembly.stored_task import Means, answered_goals, stored_means
from actors.assembly.task_document import overridden
from actors.assembly.task_file import Task, read_task
from actors.assembly.task_keys import with_places
from actors.cli.again import command
from actors.cli.live import Progress
from actors.cli.notices import Notices
from actors.cli.pictures import console
from actors.cli.running import Shown, Start, Watch, approver_for, options_of, run_stoppable, tell, with_store
from actors.cli.viewing import looked_at, reading
from actors.containment.limits import Containment
from actors.errors import ConfigError, RunConflict, unknown_key
from actors.store.drivers import Driving, driver_of
from actors.store.readers import Reader
from actors.store.records import RunRecord
from actors.store.store import Store

# Tables of a task that a reopening may set; a policy has rules and no single values.
SET = ("contract", "containment", "provider", "prices", "run", "reviewer")
OF_FILES = "cannot be set value by value here; bring another with --task TASK.toml"
UNCHANGED = "the contract and the boundary of the task file are not those of the run; these stay as they were"


@attrs.frozen
class Given:
    """What a command brings besides the run: a task file, values to set, and a file to record into."""

    task: str | None = None
    overrides: tuple[str, ...] = ()
    record: str | None = None


@attrs.frozen
class _Found:
    """A run as it stands in the store, and what it goes on with."""

    record: RunRecord
    means: Means
    policy: Policy | None
    answered: tuple[str, ...]
    reviewed: tuple[str, ...]
    note: str = ""
    contract: TaskContract | None = None
    containment: Containment | None = None


# ── resume ──────────────────────────────────────────────────────────────────


def resume_run(run: str, store_path: str, given: Given, shown: Shown) -> int:
    """Go on with a run, or tell the end of one that has ended; return the exit code."""
    with reading(store_path) as reader:
        record = _record(reader, run)
        if has_ended(record):
            return _tell_end(reader, record, shown)
        stored_contract(record)
        _refuse_live(reader, record)
        found = _found(reader, record, given)

    def starter(store: Store, provider: Provider, reviewer: Provider | None) -> Start:
        async def start(progress: Progress, terminal: Approver, on_open: Callable[[Tree], None]) -> RunResult:
            options = {**options_of(found.means, progress, on_open), "reviewer": reviewer}
            approver = approver_for(found.means.run, terminal)
            if found.policy is not None:
                return await resume_with(record.run_id, provider, store, found.policy, approver, **options)
            return await resume_from_stored_policy(record.run_id, provider, store, approver, **options)

        return start

    return _go_on(found, store_path, shown, starter)


def _tell_end(reader: Reader, record: RunRecord, shown: Shown) -> int:
    result = ended_result(reader, record)
    tell(reader, result, shown, looked_at(reader, record.run_id))
    after = TABLE[result.outcome.kind].after
    if not (shown.json or shown.stream_json or shown.quiet or result.outcome.success):
        again = command("reopen", record.run_id, "--store", reader.file)
        what = " --set KEY=VALUE with a larger cap" if after is After.larger_cap else ""
        text = f"It has ended, and nothing was asked. To go on as a new run: {again}{what}"
        console(stderr=True).print(text, markup=False, soft_wrap=True)
    return exit_code(result.outcome)


# ── reopen ──────────────────────────────────────────────────────────────────


def reopen_run(run: str, store_path: str, given: Given, shown: Shown) -> int:
    """Go on from a run that has ended, as a new run; return the exit code."""
    with reading(store_path) as reader:
        record = _record(reader, run)
        if not has_ended(record):
            again = command("resume", record.run_id, "--store", reader.file)
            raise ConfigError(("run", f"{record.run_id} has no end yet; it goes on under its id: {again}"))
        stored_contract(record)
        found = _found(reader, record, given)

    def starter(store: Store, provider: Provider, reviewer: Provider | None) -> Start:
        async def start(progress: Progress, terminal: Approver, on_open: Callable[[Tree], None]) -> RunResult:
            return await reopen(
                record.run_id,
                provider,
                store,
                approver=approver_for(found.means.run, terminal),
                contract=found.contract,
                containment=found.containment,
                policy=found.policy,
                task=found.means.text(),
                reviewer=reviewer,
                **options_of(found.means, progress, on_open),
            )

        return start

    return _go_on(found, store_path, shown, starter)


# ── both ────────────────────────────────────────────────────────────────────


def _record(reader: Reader, run: str) -> RunRecord:
    record = reader.run(reader.resolve(run))
    assert record is not None, "it was resolved"
    return record


def _refuse_live(reader: Reader, record: RunRecord) -> None:
    """Tell at once that somebody drives it; the lease itself is only taken by whoever goes on."""
    driver = driver_of(reader, record.run_id)
    if driver.driving is Driving.live:
        raise RunConflict(record.run_id, driver.who, None)


def _found(reader: Reader, record: RunRecord, given: Given) -> _Found:
    """Read what a run goes on with: what is stored, what a task file says instead, and what is set by hand."""
    with Notices():
        task = None if given.task is None else read_task(given.task)
    plain = stored_means(record) if task is None else _means_of(task).to_dict()
    contract, containment = stored_contract(record), stored_containment(record)
    if given.overrides:
        written = contract.to_dict()
        if contract.root is not None:
            # It stands there for the root, which may be set.
            del written["file"]
        document = {"contract": written, "containment": containment.to_dict(), **plain}
        contract, containment, means = _overridden(document, given.overrides)
    else:
        means = Means.from_dict(plain)
    if given.record is not None:
        means = attrs.evolve(means, provider=attrs.evolve(means.provider, record=os.path.abspath(given.record)))
    note = UNCHANGED if task is not None and _differs(task, record) else ""
    answered = _answered(reader, record.run_id, means.provider, None)
    reviewed = _answered(reader, record.run_id, means.reviewer, REVIEW)
    policy = None if task is None else task.policy
    return _Found(record, means, policy, answered, reviewed, note, contract, containment)


def _answered(reader: Reader, run_id: str, spec: ProviderSpec | None, purpose: str | None) -> tuple[str, ...]:
    """Give the tasks that were answered, to a script; whoever else answers needs none of them read."""
    scripted = spec is not None and spec.kind is ProviderKind.scripted
    return tuple(answered_goals(reader, run_id, purpose)) if scripted else ()


def _means_of(task: Task) -> Means:
    return Means(task.provider, task.prices, task.run, task.reviewer)


def _differs(task: Task, record: RunRecord) -> bool:
    bounded = record.entry != "run"
    boundary = stored_containment(record) if bounded else None
    return task.contract != stored_contract(record) or task.containment != boundary


def _overridden(document: dict[str, Any], overrides: Sequence[str]) -> tuple[TaskContract, Containment, Means]:
    """Set values over those of a run.

    Raises:
        ConfigError: every problem, with the path of its key.
    """
    before = Means.from_dict(document)
    overridden(document, overrides)
    problems = [(key, OF_FILES if key == "policy" else unknown_key(key, SET)) for key in document if key not in SET]
    try:
        if problems:
            raise ConfigError(*problems)
        contract = TaskContract.from_dict(document["contract"])
        containment = Containment.from_dict(document["containment"])
        means = Means.from_dict(document)
    except ConfigError as error:
        raise ConfigError(*(with_places(problem, document) for problem in error.problems)) from None
    reviewer = None if means.reviewer is None else _placed(means.reviewer, before.reviewer)
    return contract, containment, attrs.evolve(
        means, provider=_placed(means.provider, before.provider), reviewer=reviewer
    )


def _placed(spec: ProviderSpec, before: ProviderSpec | None) -> ProviderSpec:
    """Give paths that were set by hand from the folder we are in; those of the run stay as they are."""
    now = {name: getattr(spec, name) for name in PATHS}
    placed = {name: os.path.abspath(path) for name, path in now.items() if path and path != getattr(before, name, None)}
    return attrs.evolve(spec, **placed)


def _go_on(
    found: _Found, store_path: str, shown: Shown, starter: Callable[[Store, Provider, Provider | None], Start]
) -> int:
    means, reviewer = found.means, None
    provider = provider_of(means.provider, going_on=True, answered=found.answered)
    if means.reviewer is not None:
        reviewer = provider_of(means.reviewer, going_on=True, answered=found.reviewed)
    models = (provider, reviewer)

    async def work(watch: Watch) -> int:
        if found.note:
            watch.progress.say(found.note)
        return await with_store(models, store_path, watch, lambda store: starter(store, provider, reviewer))

    return run_stoppable(shown, work)
