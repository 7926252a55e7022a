from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.edits import Edit, Intent
from actors.agents.rows import (
    AgentEvent,
    AnswerGiven,
    ApprovalApplied,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalDeferred,
    AttemptBegun,
    AttemptClosed,
    AttemptMade,
    CallDone,
    Drawn,
    Edited,
    EventSeen,
    GateTried,
    HaltLifted,
    Inherited,
    LedgerTotals,
    LiveEnded,
    LiveSeen,
    Observed,
    Pinned,
    PolicyEvent,
    PolicyInForce,
    QueueEntered,
    QueueLeft,
    Reserved,
    Row,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStatus,
    SandboxUsed,
    Settled,
    SnapshotKept,
    Spawned,
    SpentLater,
    StepDone,
    TreeHalted,
    WriteIntended,
)
from actors.containment.amounts import LARGEST, UNLIMITED
from actors.store.fence import _TAKE
from actors.store.row_codec import WRITES
from actors.store.schema import TABLES
from actors.store.store import MemoryStore, Store

RUN = "tree1"

STARTED = RunStarted(
    RUN, RUN, "root", 0, None, "the goal", "f.txt", "scripted", "small", '{"goal":1}', '{"max":2}', '{"allow":3}', "/w",
    "the file", "tree", "tree0", '{"provider":4}',
)  # fmt: skip
FINISHED = RunFinished(
    RUN, "completed", "success", '{"kind":"success"}', '{"kind":"done"}', True, 3, 10, 20, 5, 30, 40, 6, False, 700,
    "said", "why",
)  # fmt: skip
ASKED = ApprovalAsked(
    f"{RUN}#1.2.0", RUN, RUN, 1, 2, 3, "exec", "rm", "rm a.txt", "exec", '{"argv":[]}', "the goal", "rm *", "run",
)  # fmt: skip
DECIDED = ApprovalDecided(ASKED.request_id, "denied", "not now", "operator", '[{"act": "exec", "glob": "rm*"}]', '{"argv":[]}')
BEGUN = AttemptBegun(RUN, 1, 2, "pay", '{"who":"x"}', f"{RUN}#1.2")
PAUSED = attrs.evolve(FINISHED, status="paused", outcome="interrupted", terminal=None, success=False)

# One row of every class with every field filled, and the table that holds it word for word.
SAMPLES: dict[type, tuple[Row, str]] = {
    RunStarted: (attrs.evolve(STARTED, parent_run_id="tree0"), "runs"),
    RunStatus: (RunStatus(RUN, "draining", '{"kind":"success"}'), "runs"),
    RunResumed: (RunResumed(RUN, 3, "by hand"), "checkpoint_events"),
    PolicyInForce: (PolicyInForce(RUN, '{"deny":3}'), "run_policies"),
    HaltLifted: (HaltLifted(RUN), "halts"),
    Inherited: (Inherited(RUN, "tree0", 1, 2, 3, 4, 5, 6, 7, 8.5, 9), "inherited"),
    Drawn: (Drawn(RUN, 1, 2, 3, 4), "draws"),
    CallDone: (CallDone(RUN, 1, 2, "write", "a.txt", "written", True), "call_results"),
    WriteIntended: (WriteIntended(RUN, 1, 2, "a.txt", "sha256:0", True, 3, 1, "@@"), "write_intents"),
    Edited: (Edited(RUN, 1, 2, "edit_file", "a.txt", 3, 1, "@@"), "edits"),
    AttemptBegun: (BEGUN, "tool_attempts"),
    AttemptClosed: (AttemptClosed(RUN, 1, 2, "done"), "tool_attempts"),
    ApprovalAsked: (ASKED, "pending_approvals"),
    ApprovalDeferred: (ApprovalDeferred(ASKED.request_id), "pending_approvals"),
    ApprovalDecided: (DECIDED, "pending_approvals"),
    ApprovalApplied: (ApprovalApplied(ASKED.request_id), "pending_approvals"),
    RunFinished: (FINISHED, "runs"),
    AttemptMade: (
        AttemptMade(RUN, 1, 2, "p", "asked", "served", 1, 2, 3, 4, 5, 6, 7, 80, 9, "stop", "timeout", "why", "review"),
        "provider_calls",
    ),
    Reserved: (Reserved(RUN, 1, 2, 7, 500, 60), "reservations"),
    Settled: (Settled(RUN, 7, 300, 40, 5, 6, False), "reservations"),
    AnswerGiven: (AnswerGiven(RUN, 1, "text", '[["write_file","{}"]]', "stop", 1), "step_turns"),
    StepDone: (StepDone(RUN, 1, "go on", "wrote it", "write_file:{}", 30, 900, "sha256:1"), "steps"),
    Observed: (Observed(RUN, 1, 2, "write", "a.txt", "written", True), "ledger_observations"),
    PolicyEvent: (PolicyEvent(RUN, 1, "refusal", "write", "x", "*", "child", "deny", "rule"), "policy_events"),
    SandboxUsed: (SandboxUsed(RUN, 1, 2, "read_only", "landlock", "denied", '["x"]'), "sandbox_events"),
    AgentEvent: (AgentEvent(RUN, 1, "spawn", "searcher: look", RUN + "/1.1", 5, 6), "agent_events"),
    Spawned: (Spawned(RUN, 1, 2, RUN + "/1.2", "look", "searcher", "{}"), "spawns"),
    QueueEntered: (QueueEntered(RUN, 1, 2, "look", 1), "agent_queue"),
    QueueLeft: (QueueLeft(RUN, 1, 2), "agent_queue"),
    GateTried: (GateTried(RUN, 3, "command", "failed", "exit 1"), "gate_attempts"),
    Pinned: (Pinned(RUN, "[]"), "check_pins"),
    SnapshotKept: (SnapshotKept(RUN, 1, "a.txt", "old", "text"), "snapshots"),
    SpentLater: (SpentLater(RUN, 5, 6, 7), "runs"),
    TreeHalted: (TreeHalted(RUN, "tokens", "root/1", "root", "too much", 100.0, 90.0, 20.0), "halts"),
    LedgerTotals: (LedgerTotals(RUN, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, '{"depth":1}'), "ledger"),
    EventSeen: (EventSeen(RUN, RUN + "/1", '{"kind":"started"}'), "run_events"),
    LiveSeen: (LiveSeen(RUN, '{"agents":[]}'), "live"),
    LiveEnded: (LiveEnded(RUN), "live"),
}
# These change a row that is there.
NOT_WORD_FOR_WORD = {
    RunStatus, RunFinished, HaltLifted, Settled, QueueLeft, LiveEnded, SpentLater,
    AttemptClosed, ApprovalDeferred, ApprovalDecided, ApprovalApplied,
}  # fmt: skip
WORD_FOR_WORD = [kind for kind in SAMPLES if kind not in NOT_WORD_FOR_WORD]


def named(store: Store, table: str) -> list[dict[str, Any]]:
    names = [row[1] for row in store.select(f"PRAGMA table_info({table})")]
    return [dict(zip(names, row, strict=True)) for row in store.select(f"SELECT * FROM {table}")]


def only(store: Store, table: str) -> dict[str, Any]:
    (row,) = named(store, table)
    return row


def holding(*rows: Row) -> MemoryStore:
    store = Store.memory()
    store.append_nowait(*rows)
    return store


def test_every_class_of_row_has_a_sample_and_a_place_in_the_store():
    assert set(get_args(Row)) == set(SAMPLES) == set(WRITES)
    for row, _ in SAMPLES.values():
        assert None not in attrs.asdict(row).values(), row  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", WORD_FOR_WORD, ids=lambda kind: kind.__name__)
def test_every_field_of_a_row_comes_back_from_its_column(kind: type):
    row, table = SAMPLES[kind]
    stored = only(holding(row), table)
    told = attrs.asdict(row)  # type: ignore[arg-type]
    if kind is RunStarted:
        assert holding(row).policy(RUN) == told.pop("policy")
    assert {name: stored[name] for name in told} == told


@pytest.mark.parametrize("kind", WORD_FOR_WORD, ids=lambda kind: kind.__name__)
def test_a_row_without_its_optional_fields_comes_back_with_nulls(kind: type):
    row, table = SAMPLES[kind]
    optional = {field.name: None for field in attrs.fields(kind) if isinstance(None, get_args(field.type) or (str,))}
    sparse = attrs.evolve(row, **optional)  # type: ignore[type-var]
    stored = only(holding(sparse), table)
    assert {name: stored[name] for name in optional if name in stored} == {n: None for n in optional if n in stored}


def test_an_end_fills_the_run_its_summary_and_its_terminal():
    store = holding(STARTED, FINISHED)
    run = store.run(RUN)
    assert run is not None
    told = attrs.asdict(FINISHED)
    assert store.terminal(RUN) == told.pop("terminal")
    assert {name: getattr(run, name) for name in told} == told
    summary = store.outcome(RUN)
    assert summary is not None
    assert (summary.outcome, summary.success, summary.steps, summary.tokens) == ("success", True, 3, 30)
    assert summary.duration_ms == 700
    assert run.finished_at == summary.finished_at


def test_a_run_and_its_summary_tell_the_same_end_however_long_the_batch():
    # Enough rows that writing them takes longer than the millisecond that a time counts.
    runs = [f"{RUN}/1.{number}" for number in range(3_000)]
    started = [attrs.evolve(STARTED, run_id=run) for run in runs]
    store = holding(*started, *(attrs.evolve(FINISHED, run_id=run) for run in runs))
    query = "SELECT runs.finished_at = run_outcomes.finished_at FROM runs JOIN run_outcomes USING (run_id)"
    assert store.select(query) == [(1,)] * len(runs)


def test_a_pause_leaves_no_summary_no_terminal_and_no_end():
    store = holding(STARTED, PAUSED)
    run = store.run(RUN)
    assert run is not None
    assert (run.status, run.outcome, run.finished_at, run.spent_tokens) == ("paused", "interrupted", None, 30)
    assert store.outcome(RUN) is None
    assert store.terminal(RUN) is None
    store.append_nowait(RunStatus(RUN, "running"), FINISHED)
    assert store.terminal(RUN) == '{"kind":"done"}'
    assert store.agents(RUN)[0].status == "completed"


def test_a_status_replaces_the_one_before_and_what_was_decided_stays():
    store = holding(STARTED, RunStatus(RUN, "draining", '{"kind":"success"}'))
    assert (store.agents(RUN)[0].status, only(store, "runs")["decided"]) == ("draining", '{"kind":"success"}')
    store.append_nowait(RunStatus(RUN, "paused"))
    assert (store.agents(RUN)[0].status, only(store, "runs")["decided"]) == ("paused", '{"kind":"success"}')


def test_a_run_that_goes_on_shows_nothing_of_its_pause_and_keeps_its_spend():
    store = holding(STARTED, StepDone(RUN, 3, "go on", "", "", 1), PAUSED, RunResumed(RUN, 3))
    run = store.run(RUN)
    assert run is not None
    assert (run.status, run.outcome, run.detail, run.success, run.steps, run.error) == ("running", *[None] * 5)
    assert run.spent_tokens == 30
    points = [(each["step"], each["kind"]) for each in named(store, "checkpoint_events")]
    assert points == [(3, "checkpoint"), (3, "resume")]


def test_the_policy_in_force_replaces_the_one_of_the_start():
    store = holding(STARTED, PolicyInForce(RUN, '{"deny":3}'))
    assert store.policy(RUN) == '{"deny":3}'
    assert len(named(store, "run_policies")) == 1


def test_the_first_result_and_the_first_intent_of_a_call_stand():
    done, intended = SAMPLES[CallDone][0], SAMPLES[WriteIntended][0]
    store = holding(done, intended)
    store.append_nowait(attrs.evolve(done, text="again"), attrs.evolve(intended, after="again"))  # type: ignore[type-var]
    assert only(store, "call_results")["text"] == "written"
    assert store.write_intent(RUN, 1, 2, "a.txt") == Intent("sha256:0", True, Edit(3, 1, "@@"))
    assert store.lost == 0


def test_one_call_leaves_one_edit_of_a_file_and_its_hunk_stands_once():
    edited = SAMPLES[Edited][0]
    store = holding(SAMPLES[WriteIntended][0], edited)
    store.append_nowait(attrs.evolve(edited, hunk="again"), attrs.evolve(edited, path="b.txt"))  # type: ignore[type-var]
    assert [(each.path, each.hunk) for each in store.edits(RUN)] == [("a.txt", "@@"), ("b.txt", "@@")]
    assert store.write_intent(RUN, 1, 2, "a.txt") == Intent("sha256:0", True, Edit(3, 1, None))
    assert store.lost == 0


def in_batches(rows: list[Row], batches: int) -> MemoryStore:
    store, size = Store.memory(), len(rows) // batches
    for start in range(0, len(rows), size):
        store.append_nowait(*rows[start : start + size])
        store.now()
    return store


@pytest.mark.parametrize("batches", [1, 3], ids=["in one batch", "one by one"])
def test_an_attempt_that_is_begun_again_is_open_again_and_closed_once(batches: int):
    store = in_batches([BEGUN, AttemptClosed(RUN, 1, 2, "retry"), BEGUN], batches)
    assert [(each.key, each.attempt, each.resolution) for each in store.open_attempts(RUN)] == [(BEGUN.key, 2, None)]
    store.append_nowait(AttemptClosed(RUN, 1, 2, "done"), AttemptClosed(RUN, 1, 2, "aborted"))
    attempt = store.attempt(RUN, 1, 2)
    assert attempt is not None and attempt.completed_at is not None
    assert (store.open_attempts(RUN), attempt.resolution) == ([], "done")


def test_the_first_decision_counts_and_is_applied_once():
    store = holding(ASKED, attrs.evolve(ASKED, content="asked again"), ApprovalDeferred(ASKED.request_id))
    state = store.approval(ASKED.request_id)
    assert state is not None
    assert (state.deferred, state.decision, state.by, state.content) == (True, None, None, "rm a.txt")
    store.append_nowait(DECIDED, attrs.evolve(DECIDED, decision="approved", by="attached"))
    store.append_nowait(ApprovalApplied(ASKED.request_id))
    state = store.approval(ASKED.request_id)
    assert state is not None
    assert (state.decision, state.reason, state.by) == ("denied", "not now", "operator")
    applied = only(store, "pending_approvals")["applied_at"]
    assert applied is not None and store.approvals(RUN) == []
    while store.age(applied) <= 0:
        # Until another time would be told.
        pass
    store.append_nowait(ApprovalApplied(ASKED.request_id))
    assert only(store, "pending_approvals")["applied_at"] == applied


def test_a_question_that_was_decided_cannot_be_put_off():
    store = holding(ASKED, DECIDED, ApprovalDeferred(ASKED.request_id))
    assert only(store, "pending_approvals")["deferred"] is None


def test_an_end_leaves_no_open_question_and_no_open_attempt_and_a_pause_leaves_both():
    other = attrs.evolve(ASKED, request_id=f"{RUN}#1.1.0")
    store = holding(STARTED, ASKED, other, attrs.evolve(DECIDED, request_id=other.request_id), BEGUN, PAUSED)
    assert len(store.approvals(RUN)) == len(store.open_attempts(RUN)) == 1
    store.append_nowait(FINISHED)
    assert (store.approvals(RUN), store.open_attempts(RUN)) == ([], [])
    by = {each.request_id: (each.decision, each.decided_by) for each in store.approvals(RUN, all=True)}
    assert by == {ASKED.request_id: ("denied", "runtime"), other.request_id: ("denied", "operator")}
    attempt = store.attempt(RUN, 1, 2)
    assert attempt is not None and attempt.resolution == "lost"


@pytest.mark.parametrize(("estimated", "state"), [(False, "settled"), (True, "estimated")])
def test_a_settlement_closes_its_reservation_once(estimated: bool, state: str):
    settled = Settled(RUN, 7, 300, 40, 5, 6, estimated)
    store = holding(Reserved(RUN, 1, 2, 7, 500, 60), Reserved(RUN, 1, 3, 8, 500, 60), settled)
    store.append_nowait(Settled(RUN, 7, 1, 1, 1, 1, estimated))
    first, second = store.reservations(RUN)
    assert (first.state, first.tokens, first.used_tokens, first.used_microdollars) == (state, 500, 300, 40)
    assert (first.overrun_tokens, first.overrun_microdollars, second.state) == (5, 6, "open")
    assert first.settled_at is not None
    assert second.used_tokens is None


def test_leaving_the_queue_takes_the_row_away_and_entering_twice_keeps_one():
    store = holding(QueueEntered(RUN, 1, 2, "look", 1), QueueEntered(RUN, 1, 2, "look", 1))
    assert [(waiting.step, waiting.ordinal, waiting.goal) for waiting in store.queued(RUN)] == [(1, 2, "look")]
    store.append_nowait(QueueLeft(RUN, 1, 2))
    assert store.queued(RUN) == []
    assert holding(QueueEntered(RUN, 1, 2, "look", 1), QueueLeft(RUN, 1, 2)).queued(RUN) == []


def test_the_first_halt_of_a_tree_stands():
    store = holding(
        TreeHalted(RUN, "tokens", "root", "root", "", 1_500, 1_500, 20),
        TreeHalted(RUN, "cancel", "operator", "root", "late", None, None, None),
    )
    halt = store.halt(RUN)
    assert halt is not None
    assert (halt.kind, halt.limit, halt.used, halt.requested) == ("tokens", 1_500, 1_500, 20)
    assert str(halt.limit) == "1500"


@pytest.mark.parametrize("batches", [1, 3], ids=["in one batch", "one by one"])
def test_a_halt_that_is_lifted_makes_room_for_the_next_one(batches: int):
    halt = TreeHalted(RUN, "interrupt", "operator", "root", "", None, None, None)
    store = in_batches([halt, HaltLifted(RUN), attrs.evolve(halt, kind="cancel")], batches)
    found = store.halt(RUN)
    assert found is not None and found.kind == "cancel"
    store.append_nowait(HaltLifted(RUN))
    assert store.halt(RUN) is None


def test_the_totals_of_a_tree_are_replaced():
    totals = SAMPLES[LedgerTotals][0]
    store = holding(totals, attrs.evolve(totals, spent_tokens=99))  # type: ignore[type-var]
    ledger = store.ledger(RUN)
    assert ledger is not None
    assert ledger.spent_tokens == 99


def test_a_live_tree_has_one_row_until_it_ends():
    store = holding(LiveSeen(RUN, "1"), LiveSeen("other", "2"), LiveSeen(RUN, "3"))
    live = store.live(RUN)
    assert live is not None and live.snapshot == "3" and 0 <= store.age(live.taken_at) < 60
    store.append_nowait(LiveSeen(RUN, "4"), LiveEnded(RUN))
    assert store.live(RUN) is None and store.live("other") is not None


def test_the_last_answer_of_a_step_wins_and_null_is_not_empty():
    store = holding(AnswerGiven(RUN, 1, "old", "[]", None), AnswerGiven(RUN, 1, None, "[]", "stop"))
    store.append_nowait(AnswerGiven(RUN, 2, "", "[]", "stop"))
    assert [(turn.step, turn.text, turn.finish_reason) for turn in store.turns(RUN)] == [
        (1, None, "stop"),
        (2, "", "stop"),
    ]


def test_what_is_left_of_no_ceiling_is_stored_as_the_largest_number():
    store = holding(
        AgentEvent(RUN, 0, "budget_draw", "ok", None, 5, UNLIMITED),
        StepDone(RUN, 1, "go on", "", "", 5, UNLIMITED),
        TreeHalted(RUN, "tokens", "root", "root", "", UNLIMITED, 5, 5),
    )
    assert [event.remaining for event in store.agent_events(RUN)] == [LARGEST]
    assert [step.remaining_tokens for step in store.steps(RUN)] == [LARGEST]
    assert store.lost == 0


def test_text_that_has_no_encoding_is_mended_and_loses_no_other_row():
    store = holding(EventSeen(RUN, RUN, "before"))
    store.append_nowait(Observed(RUN, 1, 1, "tool", "t", "a\ud800b\ud83d\ude00"), EventSeen(RUN, RUN, "after"))
    assert [seen.text for seen in store.observations(RUN)] == ["a\ufffdb\U0001f600"]
    assert [event.event for event in store.trace(RUN)] == ["before", "after"]
    assert store.lost == 0


def test_text_with_a_nul_comes_back_whole():
    assert holding(Observed(RUN, 1, 1, "tool", "t", "a\0b")).observations(RUN)[0].text == "a\0b"


def test_every_column_of_a_table_is_fed_or_stamped_or_left_for_later():
    fed = {table.name: set(table.columns) for table in TABLES}
    later = {"id", "turn_kind"}
    for writes in WRITES.values():
        for write in writes:
            fed[write.table] -= {column for column in fed[write.table] if column in write.sql}
    # Leases are no rows: they are written by orders of their own.
    fed["run_leases"] -= {column for column in fed["run_leases"] if column in _TAKE}
    assert {column for columns in fed.values() for column in columns} <= later | {"detail"}


AGENTS = ["a", "b", "c"]


def _life(agent: str) -> list[Row]:
    return [
        QueueEntered(RUN, 0, AGENTS.index(agent), "goal", 1),
        QueueLeft(RUN, 0, AGENTS.index(agent)),
        RunStarted(agent, RUN, "root/" + agent, 1, RUN, "goal"),
        Reserved(agent, 1, 1, AGENTS.index(agent), 10, 0),
        EventSeen(RUN, agent, "one"),
        Settled(agent, AGENTS.index(agent), 5, 0, 0, 0, False),
        AnswerGiven(agent, 1, "first", "[]", None),
        AnswerGiven(agent, 1, "second", "[]", None),
        RunStatus(agent, "draining"),
        EventSeen(RUN, agent, "two"),
        RunStatus(agent, "running", '{"kind":"success"}'),
        CallDone(agent, 2, 1, "tool", "x", "first", True),
        CallDone(agent, 2, 1, "tool", "x", "second", True),
        attrs.evolve(BEGUN, run_id=agent),
        AttemptClosed(agent, 1, 2, "asking"),
        attrs.evolve(ASKED, request_id=agent, run_id=agent),
        ApprovalDeferred(agent),
        attrs.evolve(DECIDED, request_id=agent, decision="approved"),
        ApprovalApplied(agent),
        attrs.evolve(BEGUN, run_id=agent),
        RunResumed(agent, 1),
        Drawn(agent, 1, 2, 3, 4),
        attrs.evolve(FINISHED, run_id=agent),
    ]


def _contents(store: Store) -> list[Any]:
    stamps = {"at", "started_at", "finished_at", "queued_at", "reserved_at", "settled_at", "asked_at", "decided_at",
              "applied_at", "completed_at"}  # fmt: skip
    tables = [sorted(str({k: v for k, v in row.items() if k not in stamps | {"id"}}) for row in named(store, t.name))
              for t in TABLES]  # fmt: skip
    return [*tables, [event.event for event in store.trace(RUN)]]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(AGENTS), max_size=69), st.integers(1, 20))
def test_a_batch_leaves_the_same_as_writing_row_by_row(turns: list[str], size: int):
    lives = {agent: iter(_life(agent)) for agent in AGENTS}
    rows = [row for agent in turns if (row := next(lives[agent], None)) is not None]
    batched, single = Store.memory(), Store.memory()
    for start in range(0, len(rows), size):
        batched.append_nowait(*rows[start : start + size])
        batched.now()
    for row in rows:
        single.append_nowait(row)
        single.now()
    assert batched.lost == single.lost == 0
    assert _contents(batched) == _contents(single)


@pytest.mark.parametrize(
    ("rows", "read"),
    [
        (
            [AttemptMade(RUN, 1, n, "p", None, None, *[None] * 7, 1, None, None, None) for n in range(9)],
            "provider_calls",
        ),
        ([Observed(RUN, 1, n, "tool", str(n), "") for n in range(9)], "observations"),
        ([GateTried(RUN, n, "command", "failed", "") for n in range(9)], "gate_attempts"),
        ([PolicyEvent(RUN, n, "refusal", "read", "x", None, None) for n in range(9)], "events"),
        ([AgentEvent(RUN, n, "spawn", "") for n in range(9)], "agent_events"),
        ([StepDone(RUN, n, "go on", "", "", 1) for n in range(9)], "steps"),
        ([StepDone(RUN, n, "go on", "", "", 1) for n in range(9)], "checkpoints"),
        ([Spawned(RUN, 1, n, f"{RUN}/1.{n}", "", None, "") for n in range(9)], "spawns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_are_read_in_the_order_they_were_written(rows: list[Row], read: str):
    records = getattr(holding(*rows), read)(RUN)
    keys = ("attempt", "ordinal", "step")
    key = next(key for key in keys if len({getattr(record, key, 0) for record in records}) > 1)
    assert [getattr(record, key) for record in records] == list(range(9))
