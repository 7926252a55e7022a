"""What waits for a human: questions that nobody has answered, and calls of which nobody knows whether they were done.

Any process may look and any may decide. A question is decided by the first who
does, also while its run is live: its agent looks at the row. A call whose fate is
unknown belongs to a run that nobody drives, and is decided under its lease.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import attrs

from actors.agents.end_rows import ENDED
from actors.agents.entry_text import clean
from actors.agents.leasing import driving
from actors.agents.outcomes import OutcomeKind
from actors.agents.ports import Approval
from actors.agents.remembered import Remembered, from_text
from actors.agents.rewriting import parsed
from actors.assembly.deciding import operator_row
from actors.assembly.foreseeing import denied_call, foreseen_hunk
from actors.assembly.recovering import Recovery, recovery_rows
from actors.errors import ConfigError
from actors.ids import ROOT
from actors.store.drivers import Driving, driver_of
from actors.store.readers import Reader
from actors.store.records import ApprovalRecord
from actors.store.storage_errors import readable
from actors.store.store import Store


class Awaits(StrEnum):
    """What is wanted of the human."""

    approval = "approval"
    recovery = "recovery"


# What to use in place of a command that answers the one kind.
_ANSWERS: Final = {
    Awaits.approval: "nobody knows whether that call was done; use `actors recover`",
    Awaits.recovery: "it is a question; use `actors approve` or `actors deny`",
}


@attrs.frozen
class Waiting:
    """One thing that waits. ``run_id`` is the tree's, ``path`` the agent's; ``live``: a process drives the run now.

    ``tool`` and ``arguments`` are the whole call. Of a call to be recovered ``act`` is
    empty and ``target`` its tool; it has no rule and no content.
    """

    kind: Awaits
    id: str
    run_id: str
    path: str
    act: str
    target: str
    content: str
    tool: str
    arguments: str
    rule: str | None
    layer: str | None
    deferred: bool
    live: bool
    since: str


@attrs.frozen
class Verdict:
    """What became of a decision: ``won`` when it is the one that counts; the rest says what stands, and by whom.

    ``arguments`` run in place of those that were asked for; None when they are the same. ``remembered``
    are the rules that came with it.
    """

    won: bool
    decision: str
    by: str
    reason: str
    at: str
    arguments: str | None
    remembered: tuple[Remembered, ...] = ()


def waiting(reader: Reader, tree_id: str | None = None) -> list[Waiting]:
    """List what waits in all runs, or in one, oldest first.

    Raises:
        StoreError: the file, or what waits in one of its runs, cannot be read.
    """
    sql = "SELECT run_id FROM runs WHERE parent_run_id IS NULL AND status NOT IN (?, ?) AND ? IN (run_id, '')"
    trees = [row[0] for row in reader.select(sql, (*ENDED, tree_id or ""))]
    found: list[Waiting] = []
    for tree in trees:
        live = driver_of(reader, tree).driving is Driving.live
        with readable(reader.file, f"what waits in {tree}"):
            found += map(_sound, _questions(reader, tree, live))
            # An open attempt of a live run is only a call that runs.
            found += [] if live else map(_sound, _attempts(reader, tree))
    return sorted(found, key=lambda each: (each.since, each.id))


def answered_runs(reader: Reader) -> list[str]:
    """List the runs that were paused for an answer, have all of them, and that nobody goes on with, oldest first."""
    sql = "SELECT run_id FROM runs WHERE parent_run_id IS NULL AND status = 'paused' AND outcome = ?"
    found = reader.select(f"{sql} ORDER BY started_at", (OutcomeKind.awaiting_approval,))
    paused = [str(run_id) for (run_id,) in found]
    idle = [each for each in paused if driver_of(reader, each).driving is not Driving.live]
    return [each for each in idle if not waiting(reader, each)]


def hunk_of(reader: Reader, each: Waiting) -> str | None:
    """Give how the lines of a file would change by a call that waits; None where that is not known."""
    asked = reader.question(each.id) if each.kind is Awaits.approval else None
    return None if asked is None else foreseen_hunk(reader, asked)


def _sound(each: Waiting) -> Waiting:
    """Give it back. SQLite keeps bytes and numbers in any column; whoever decides must read all of what he decides."""
    for field in attrs.fields(Waiting):
        if not isinstance(value := getattr(each, field.name), str | bool | None):
            raise TypeError(f"{field.name} is {type(value).__name__}, and no text")
    return each


def _questions(reader: Reader, tree: str, live: bool) -> list[Waiting]:
    asked = reader.approvals(tree)
    ended = {each.run_id for each in reader.agents(tree) if each.status in ENDED} if asked else set()
    return [
        Waiting(
            Awaits.approval, each.request_id, tree, _path(each.run_id), each.act, each.target, each.content,
            each.tool, each.arguments, each.rule, each.layer, each.deferred, live, each.asked_at,
        )
        for each in asked
        if each.run_id not in ended
    ]  # fmt: skip


def _attempts(reader: Reader, tree: str) -> list[Waiting]:
    return [
        Waiting(
            Awaits.recovery, each.key, tree, _path(each.run_id), "", each.tool, "", each.tool, each.arguments,
            None, None, False, False, each.started_at,
        )
        for each in reader.open_attempts(tree)
    ]  # fmt: skip


def _path(run_id: str) -> str:
    tree = run_id.partition("/")[0]
    return ROOT + run_id[len(tree) :]


def find(reader: Reader, prefix: str, kind: Awaits) -> Waiting:
    """Give what waits under an id, of which the run's part may be shortened: ``2c#1.1.1``.

    Raises:
        ConfigError: nothing waits under it, and why as far as that is known.
        StoreError: the file cannot be read.
    """
    everything = waiting(reader)
    ours = [each for each in everything if each.kind is kind]
    found = [each for each in ours if each.id == prefix] or [each for each in ours if _means(prefix, each.id)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(each.id for each in found[:8])
        raise ConfigError(("id", f"{prefix!r} may be several ({names}): give more of it"))
    if any(prefix == each.id or _means(prefix, each.id) for each in everything):
        raise ConfigError(("id", f"{prefix!r} waits for another kind of answer: {_ANSWERS[kind]}"))
    raise ConfigError(("id", f"nothing waits under {prefix!r}: `actors inbox` shows what does"))


def decided_before(reader: Reader, prefix: str) -> tuple[ApprovalRecord, Verdict] | None:
    """Give a question that has its answer, and the answer; None when there is no such question."""
    for each in reader.approvals(all=True):
        if each.decision is not None and (each.request_id == prefix or _means(prefix, each.request_id)):
            return each, _verdict(each, won=False)
    return None


def _means(prefix: str, whole: str) -> bool:
    """Tell whether a shortened id means this one: the call must be named whole, the run only so that it is known."""
    run, mark, call = prefix.partition("#")
    tree, slash, path = run.partition("/")
    whole_run, _, whole_call = whole.partition("#")
    whole_tree, whole_slash, whole_path = whole_run.partition("/")
    same = (mark, call, slash, path) == ("#", whole_call, whole_slash, whole_path)
    return same and tree != "" and whole_tree.startswith(tree)


async def decide(
    store: Store,
    request_id: str,
    approved: bool,
    reason: str,
    remember: tuple[Remembered, ...] = (),
    arguments: Mapping[str, Any] | None = None,
) -> Verdict:
    """Decide a question, from whichever process; the first decision counts.

    ``remember`` goes with a yes only, and so do ``arguments``, which run in place of those that were asked for.

    Cancellation: it is decided or not.

    Raises:
        ConfigError: the arguments are none for the tool that asks, or the policy denies the call with them, or
            what is to be remembered does not cover what it asks for; nothing was decided.
        StoreError: it could not be written.
    """
    answer = Approval(approved, reason, remember, arguments)
    row = operator_row(store, request_id, answer)
    if approved and arguments is not None:
        _refuse_denied(store, request_id, arguments)
    won = await store.decide(row)
    [stands] = [each for each in store.approvals(all=True) if each.request_id == request_id]
    return _verdict(stands, won=won)


def _refuse_denied(reader: Reader, request_id: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments with which the call would not be done: the question would be spent for nothing.

    Raises:
        ConfigError: they are; says why.
    """
    asked = reader.question(request_id)
    # As they would be stored and run: half a character is none there.
    as_stored = parsed(clean(json.dumps(dict(arguments), ensure_ascii=False)))
    why = None if asked is None else denied_call(reader, asked, as_stored)
    if why is not None:
        raise ConfigError(("arguments", why))


def _verdict(record: ApprovalRecord, *, won: bool) -> Verdict:
    said = record.decision or "", record.decided_by or "", record.reason or "", record.decided_at or ""
    rules: tuple[Remembered, ...] = ()
    with suppress(ValueError, TypeError, RecursionError):
        # What cannot be read is remembered by no run either.
        rules = from_text(record.remembered)
    return Verdict(won, *said, record.modified, rules)


async def recover(store: Store, tree_id: str, recovery: Recovery) -> None:
    """Say what is to become of a call of which nobody knows whether it was done. The run goes on by a resume.

    Cancellation: it was written or not.

    Raises:
        ConfigError: there is no such call, or somebody else has decided.
        RunConflict: a process drives the run.
        StoreError: it could not be written.
    """
    async with driving(store, tree_id):
        # Looked at under the lease: whoever decided before has written it.
        await store.commit(*recovery_rows(store, tree_id, recovery))
