"""Terminals: four shapes, one slot, one total map, and a codec that takes nothing that is not exactly right."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.dispositions import (
    CallProvider,
    Effect,
    EffectsStep,
    EvaluateMilestone,
    ExecuteTools,
    SpawnTasks,
    TerminalStep,
    ToolRequest,
    decode_disposition,
    encode_disposition,
)
from actors.agents.outcomes import TABLE, FailureCode, Outcome, OutcomeKind, exit_code
from actors.agents.strict_json import CodecRefused, RefusalKind
from actors.agents.terminal_codec import decode_terminal, encode_terminal
from actors.agents.terminal_slot import TerminalSlot
from actors.agents.terminals import (
    U32_MAX,
    U64_MAX,
    AgentTerminal,
    CancellationReason,
    CancelledTerminal,
    FailedTerminal,
    KernelFailure,
    LoopResult,
    MessageCall,
    PaceAction,
    PaceDecision,
    ProviderMessage,
    Role,
    Terminal,
    TerminationReason,
    UsageReport,
    WorkflowOutcome,
    WorkflowStatus,
    WorkflowTerminal,
    terminal_for,
)
from actors.errors import ConfigError, TerminalAlreadyCommitted
from actors.halts import Halt, HaltKind

GOLDENS = [
    '{"kind":"agent","result":{"termination":"completed","final_message":{"role":"assistant","content":"Inventory is '
    'ready."},"turns_used":3},"usage":{"input_tokens":"9120","output_tokens":"640","turns":3,'
    '"cached_input_tokens":"4096"}}',
    '{"kind":"agent","result":{"termination":"completed","turns_used":2,"pace_decision":{"action":"sleep",'
    '"delay_ms":"90000","reason":"nothing new yet","coerced_from":"sleep 5ms (clamped)"}},'
    '"usage":{"input_tokens":"0","output_tokens":"0","turns":2}}',
    '{"kind":"workflow","outcome":{"workflow_id":"op-9:workflow:1","status":"failed","completed_nodes":["scan"],'
    '"failed_nodes":["merge","report"]},"usage":{"input_tokens":"3300","output_tokens":"410","turns":5}}',
    '{"kind":"cancelled","reason":"lease_lost","usage":{"input_tokens":"12","output_tokens":"0","turns":0}}',
    '{"kind":"failed","failure":{"code":"host_effect_failed","message":"call_provider: transport_exhausted"},'
    '"usage":{"input_tokens":"77","output_tokens":"1","turns":1}}',
    '{"kind":"failed","failure":{"code":"resource_exhausted"},"usage":{"input_tokens":"18446744073709551615",'
    '"output_tokens":"0","turns":4294967295}}',
]
U = '"usage":{"input_tokens":"1","output_tokens":"1","turns":1}'
VECTORS = [
    ('{"kind":"done",%s}' % U, "unknown_variant"),
    ('{"kind":"cancelled","reason":"timeout",%s}' % U, "unknown_variant"),
    ('{"kind":"cancelled","reason":"user"}', "missing_field"),
    ('{"kind":"cancelled","reason":"user","usage":{"input_tokens":1,"output_tokens":"1","turns":1}}', "invalid_scalar"),
    (
        '{"kind":"cancelled","reason":"user","usage":{"input_tokens":"007","output_tokens":"1","turns":1}}',
        "invalid_scalar",
    ),
    (
        '{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":true}}',
        "type_mismatch",
    ),
    (
        '{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":1.0}}',
        "type_mismatch",
    ),
    (
        '{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":1,"cost":"3"}}',
        "unknown_field",
    ),
    ('{"kind":"cancelled","reason":"user","usage":["1","1",1]}', "type_mismatch"),
    ('{"kind":"cancelled","reason":"user",%s,"duration_ms":"9"}' % U, "unknown_field"),
    ('{"kind":"agent","result":{"termination":"user_abort","turns_used":1},%s}' % U, "unknown_variant"),
    ('{"kind":"agent","result":{"termination":"completed","turns_used":1,"usage":{}},%s}' % U, "unknown_field"),
    ('{"kind":"workflow","outcome":{"workflow_id":"","status":"completed"},%s}' % U, "invalid_scalar"),
]
MORE = [
    ("[]", "type_mismatch"),
    ("{", "malformed_json"),
    ('{"kind":"cancelled","reason":"user",%s} x' % U, "malformed_json"),
    ('{"kind":"cancelled","kind":"cancelled","reason":"user",%s}' % U, "malformed_json"),
    ('{"kind":"cancelled","reason":NaN,%s}' % U, "malformed_json"),
    ('{"reason":"user",%s}' % U, "missing_field"),
    ('{"kind":7,"reason":"user",%s}' % U, "type_mismatch"),
    ('{"kind":"cancelled","reason":null,%s}' % U, "type_mismatch"),
    ('{"kind":"failed","failure":{"code":"resource_exhausted","message":null},%s}' % U, "type_mismatch"),
    ('{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":"1"}}', "type_mismatch"),
    ('{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":-1}}', "invalid_scalar"),
    (
        '{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":4294967296}}',
        "invalid_scalar",
    ),
    ('{"kind":"workflow","outcome":{"workflow_id":7,"status":"completed"},%s}' % U, "type_mismatch"),
    ('{"kind":"workflow","outcome":{"workflow_id":"a\\u0007","status":"completed"},%s}' % U, "invalid_scalar"),
    ('{"kind":"workflow","outcome":{"workflow_id":"%s","status":"completed"},%s}' % ("x" * 257, U), "invalid_scalar"),
    ("[" * 70 + "]" * 70, "depth_exceeded"),
    ("[" + ",".join("1" * 1030) + "]", "collection_too_large"),
    (" " * (2**20 + 1), "input_too_large"),
    ("\ud800", "malformed_json"),
]
U64_REFUSED = ["", "+1", "-1", " 1", "01", "1.0", "1e3", "\u0661", "18446744073709551616", True, 1, None, 1.0]


def one_of_each() -> list[Terminal]:
    usage = UsageReport(1, 2, 3, 4)
    said = ProviderMessage(Role.assistant, "x", (MessageCall("c1", "read", {"a": [1]}),), "t", 9)
    return [
        AgentTerminal(
            LoopResult(TerminationReason.completed, 3, said, PaceDecision(PaceAction.go_on, "", 5, "y")), usage
        ),
        WorkflowTerminal(WorkflowOutcome("w", WorkflowStatus.failed, ("a",), ("b",)), usage),
        CancelledTerminal(CancellationReason.user, usage),
        FailedTerminal(KernelFailure(FailureCode.host_effect_failed, "m"), usage),
    ]


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys(item)


@pytest.mark.parametrize("golden", GOLDENS)
def test_a_golden_comes_back_as_the_same_document(golden: str) -> None:
    again = encode_terminal(decode_terminal(golden))
    assert json.loads(again) == json.loads(golden)
    assert list(json.loads(again)) == list(json.loads(golden))


def test_the_goldens_cover_all_four_kinds() -> None:
    assert {decode_terminal(golden).kind for golden in GOLDENS} == {"agent", "workflow", "cancelled", "failed"}


@pytest.mark.parametrize(("document", "kind"), VECTORS + MORE)
def test_a_document_that_is_not_exactly_right_is_refused(document: str, kind: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        decode_terminal(document)
    assert caught.value.kind == kind


@pytest.mark.parametrize("value", U64_REFUSED)
def test_a_u64_is_a_plain_text_of_digits(value: Any) -> None:
    document = {"kind": "cancelled", "reason": "user", "usage": {"input_tokens": value, "output_tokens": "1", "turns": 1}}
    with pytest.raises(CodecRefused) as caught:
        decode_terminal(json.dumps(document))
    assert caught.value.kind is RefusalKind.invalid_scalar
    for fine in ("0", "18446744073709551615"):
        document["usage"]["input_tokens"] = fine  # type: ignore[index]
        assert decode_terminal(json.dumps(document)).usage.input_tokens == int(fine)


def test_an_explicit_null_for_an_optional_field_is_absent_and_dropped() -> None:
    usage = '"usage":{"input_tokens":"1","output_tokens":"1","turns":1,"cached_input_tokens":null}'
    terminal = decode_terminal('{"kind":"cancelled","reason":"user",%s}' % usage)
    assert terminal.usage.cached_input_tokens is None
    assert "cached_input_tokens" not in encode_terminal(terminal)


def test_each_kind_has_its_tag_and_one_usage_and_comes_back() -> None:
    banned = {
        "effect_id", "causation_input_id", "resolution", "now_ms", "observed_at_ms", "timestamp", "timestamp_ms",
        "started_at_ms", "completed_at_ms", "wall_clock_ms", "duration_ms", "usage_report", "budget_usage",
    }  # fmt: skip
    tags = set()
    for terminal in one_of_each():
        text = encode_terminal(terminal)
        found = list(keys(json.loads(text)))
        assert found.count("usage") == 1 and not banned & set(found)
        assert decode_terminal(text) == terminal
        tags.add(json.loads(text)["kind"])
    assert len(tags) == 4


def test_the_first_terminal_stands_whatever_comes_later() -> None:
    slot = TerminalSlot.empty()
    assert not slot.is_committed and slot.get() is None
    first, *others = one_of_each()
    assert slot.commit(first) is first and slot.is_committed
    for later in (first, *others):
        with pytest.raises(TerminalAlreadyCommitted) as caught:
            slot.commit(later)
        assert caught.value.committed is first and caught.value.rejected is later
        assert slot.get() is first
    with pytest.raises(TerminalAlreadyCommitted):
        TerminalSlot.holding(first).commit(first)


# ── steps ───────────────────────────────────────────────────────────────────

STEPS = [
    EffectsStep(),
    EffectsStep((Effect("op:step:1:effect:0", "in-1", EvaluateMilestone("c", "p")),)),
    EffectsStep(
        (
            Effect("e1", "i", CallProvider("m")),
            Effect("e2", "i", CallProvider()),
            Effect("e3", "i", ExecuteTools((ToolRequest("c1", "read", {"a": 1}), ToolRequest("c2", "x")))),
            Effect("e4", "i", SpawnTasks(("t1", "t2"))),
        )
    ),
    *(TerminalStep(terminal) for terminal in one_of_each()),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_comes_back(step: Any) -> None:
    assert decode_disposition(encode_disposition(step)) == step


def test_a_step_has_effects_or_a_terminal() -> None:
    milestone, terminal = STEPS[1], STEPS[3]
    assert (milestone.terminal, len(milestone.effects), milestone.is_terminal) == (None, 1, False)
    assert terminal.terminal is not None and terminal.effects == () and terminal.is_terminal
    wire = json.loads(encode_disposition(milestone))["effects"][0]["effect"]
    assert wire == {"kind": "evaluate_milestone", "request": {"contract_id": "c", "phase_id": "p"}}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ('{"kind":"terminal","terminal":{"kind":"cancelled","reason":"user",%s},"effects":[]}' % U, "unknown_field"),
        ('{"kind":"effects","effects":null}', "type_mismatch"),
        ('{"kind":"effects","effects":[{"effect_id":"e","causation_input_id":"i"}]}', "missing_field"),
        (
            '{"kind":"effects","effects":[{"effect_id":"e","causation_input_id":"i","effect":{"kind":"fly"}}]}',
            "unknown_variant",
        ),
        ('{"kind":"both"}', "unknown_variant"),
    ],
)
def test_a_wrong_step_is_refused(document: str, kind: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        decode_disposition(document)
    assert caught.value.kind == kind


# ── properties ──────────────────────────────────────────────────────────────

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
ids = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
u64 = st.integers(0, U64_MAX)
u32 = st.integers(0, U32_MAX)
json_values = st.recursive(
    st.booleans() | st.integers(-5, 5) | text, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
usages = st.builds(UsageReport, u64, u64, u32, st.none() | u64)
messages = st.builds(
    ProviderMessage,
    st.sampled_from(Role),
    text,
    st.lists(st.builds(MessageCall, ids, text, json_values), max_size=2).map(tuple),
    st.none() | ids,
    st.none() | u32,
)
paces = st.builds(PaceDecision, st.sampled_from(PaceAction), text, st.none() | u64, st.none() | text)
terminals = st.one_of(
    st.builds(
        AgentTerminal,
        st.builds(LoopResult, st.sampled_from(TerminationReason), u32, st.none() | messages, st.none() | paces),
        usages,
    ),
    st.builds(
        WorkflowTerminal,
        st.builds(
            WorkflowOutcome,
            ids,
            st.sampled_from(WorkflowStatus),
            st.lists(ids, max_size=3).map(tuple),
            st.lists(ids, max_size=3).map(tuple),
        ),
        usages,
    ),
    st.builds(CancelledTerminal, st.sampled_from(CancellationReason), usages),
    st.builds(FailedTerminal, st.builds(KernelFailure, st.sampled_from(FailureCode), text), usages),
)


@given(terminals)
def test_any_terminal_comes_back(terminal: Terminal) -> None:
    encoded = encode_terminal(terminal)
    assert decode_terminal(encoded) == terminal
    assert encode_terminal(decode_terminal(encoded)) == encoded


def objects(document: Any, inside_opaque: bool = False) -> Iterator[dict[str, Any]]:
    """Every object of a document but those in opaque values, which may hold any key."""
    if isinstance(document, dict) and not inside_opaque:
        yield document
        for key, value in document.items():
            yield from objects(value, key == "arguments")
    elif isinstance(document, list):
        for item in document:
            yield from objects(item, inside_opaque)


@given(terminals, st.data())
def test_one_key_too_many_at_any_depth_is_refused(terminal: Terminal, data: st.DataObject) -> None:
    document = json.loads(encode_terminal(terminal))
    target = data.draw(st.sampled_from(list(objects(document))))
    target["surprise"] = 1
    with pytest.raises(CodecRefused) as caught:
        decode_terminal(json.dumps(document))
    assert caught.value.kind is RefusalKind.unknown_field


@given(terminals, st.sampled_from(["input_tokens", "output_tokens"]))
def test_a_u64_as_a_number_is_refused(terminal: Terminal, field: str) -> None:
    document = json.loads(encode_terminal(terminal))
    document["usage"][field] = int(document["usage"][field])
    with pytest.raises(CodecRefused):
        decode_terminal(json.dumps(document))


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_no_input_makes_anything_but_a_terminal_or_a_refusal(raw: bytes | str) -> None:
    try:
        decode_terminal(raw)
    except CodecRefused as refused:
        assert str(refused)


@given(usages, usages)
def test_usage_is_held_at_its_maximum_and_says_so(one: UsageReport, other: UsageReport) -> None:
    total, held = one.plus(other)
    for field in attrs.fields(UsageReport):
        exact = (getattr(one, field.name) or 0) + (getattr(other, field.name) or 0)
        most = U32_MAX if field.name == "turns" else U64_MAX
        assert (getattr(total, field.name) or 0) == min(exact, most)
        assert held or exact <= most


# ── the map ─────────────────────────────────────────────────────────────────


def mapped(kind: OutcomeKind, *, root: bool = True, durable: bool = True, **more: Any) -> Any:
    outcome = Outcome(kind, steps=2, **more)
    return terminal_for(outcome, at_root=root, usage=UsageReport(), final_message="said", durable=durable)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (OutcomeKind.success, "completed"),
        (OutcomeKind.finished, "completed"),
        (OutcomeKind.step_cap_reached, "max_turns"),
        (OutcomeKind.time_budget_exceeded, "deadline"),
        (OutcomeKind.cost_budget_exceeded, "token_budget"),
        (OutcomeKind.stalled, "no_progress"),
    ],
)
def test_the_end_of_a_loop_is_an_agent_terminal(kind: OutcomeKind, reason: str) -> None:
    terminal = mapped(kind)
    assert isinstance(terminal, AgentTerminal)
    assert (terminal.result.termination, terminal.result.turns_used) == (reason, 2)


@pytest.mark.parametrize("ceiling", [HaltKind.tokens, HaltKind.cost, HaltKind.calls])
@pytest.mark.parametrize("root", [True, False])
def test_a_spent_ceiling_is_token_budget_everywhere(ceiling: HaltKind, root: bool) -> None:
    terminal = mapped(OutcomeKind.budget_ceiling_reached, root=root, ceiling=ceiling)
    assert terminal.result.termination is TerminationReason.token_budget


def test_the_trees_clock_is_the_roots_deadline_and_a_deadline_from_above_below_it() -> None:
    at_root = mapped(OutcomeKind.budget_ceiling_reached, ceiling=HaltKind.duration)
    assert at_root.result.termination is TerminationReason.deadline
    below = mapped(OutcomeKind.budget_ceiling_reached, root=False, ceiling=HaltKind.duration)
    assert below == CancelledTerminal(CancellationReason.deadline, UsageReport())


@pytest.mark.parametrize(
    ("halt", "reason"),
    [
        (HaltKind.cancel, "user"),
        (HaltKind.parent, "user"),
        (HaltKind.duration, "deadline"),
        (HaltKind.lease_lost, "lease_lost"),
    ],
)
def test_a_cancel_says_who(halt: HaltKind, reason: str) -> None:
    assert mapped(OutcomeKind.cancelled, halt=Halt(halt)).reason == reason


def test_an_interrupted_run_keeps_its_slot_empty_only_when_it_can_be_resumed() -> None:
    assert mapped(OutcomeKind.interrupted) is None
    assert mapped(OutcomeKind.interrupted, durable=False).reason is CancellationReason.host_shutdown


def test_the_map_is_total() -> None:
    for kind in OutcomeKind:
        for halt in (None, *HaltKind):
            for root in (True, False):
                for durable in (True, False):
                    more = {} if halt is None else {"halt": Halt(halt), "ceiling": halt}
                    terminal = mapped(kind, root=root, durable=durable, **more)
                    empty = Outcome(kind).is_pause and (durable or kind is not OutcomeKind.interrupted)
                    assert (terminal is None) == empty
                    if terminal is not None:
                        assert decode_terminal(encode_terminal(terminal)) == terminal


# ── outcomes ────────────────────────────────────────────────────────────────


def test_every_outcome_has_a_row_and_a_way_back() -> None:
    assert set(TABLE) == set(OutcomeKind)
    for kind in OutcomeKind:
        outcome = Outcome(
            kind,
            3,
            4,
            5,
            6,
            HaltKind.tokens,
            True,
            Halt(HaltKind.tokens, limit=9),
            "why",
            FailureCode.host_effect_failed,
            "r1",
        )
        assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome
        assert Outcome.from_json(Outcome(kind).to_json()) == Outcome(kind)


@pytest.mark.parametrize("plain", [{"kind": "won"}, {}, {"kind": "success", "x": 1}, {"kind": "failed", "halt": {}}])
def test_an_unknown_outcome_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Outcome.from_json(plain)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("success", 0),
        ("finished", 0),
        ("failed", 1),
        ("escalated", 1),
        ("cancelled", 1),
        ("budget_ceiling_reached", 3),
        ("step_cap_reached", 3),
        ("denied", 4),
        ("awaiting_answer", 5),
        ("stalled", 6),
        ("interrupted", 130),
    ],
)
def test_exit_codes_are_those_of_the_surface(kind: str, code: int) -> None:
    assert exit_code(Outcome(OutcomeKind(kind))) == code


def test_a_run_that_was_ended_by_sigterm_says_so() -> None:
    assert exit_code(Outcome(OutcomeKind.interrupted), signal=15) == 143
    assert exit_code(Outcome(OutcomeKind.interrupted), signal=2) == 130
