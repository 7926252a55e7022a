"""The wire form of a terminal comes back as it was, and nothing that is not exactly right is taken."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.outcomes import FailureCode
from actors.agents.strict_json import U32_MAX, U64_MAX, CodecRefused, RefusalKind
from actors.agents.terminal_codec import decode_terminal, encode_terminal
from actors.agents.terminals import (
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
)

GOLDENS = [
    '{"kind":"agent","result":{"termination":"completed","final_message":{"role":"assistant",'
    '"content":"Inventory is ready."},"turns_used":3},'
    '"usage":{"input_tokens":"9120","output_tokens":"640","turns":3,"cached_input_tokens":"4096"}}',
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

# One a line: the document as it is published, and the kind of its refusal.
VECTORS = """
{"kind":"done","usage":{"input_tokens":"1","output_tokens":"1","turns":1}}                                    unknown_variant
{"kind":"cancelled","reason":"timeout","usage":{"input_tokens":"1","output_tokens":"1","turns":1}}             unknown_variant
{"kind":"cancelled","reason":"user"}                                                                           missing_field
{"kind":"cancelled","reason":"user","usage":{"input_tokens":1,"output_tokens":"1","turns":1}}                  invalid_scalar
{"kind":"cancelled","reason":"user","usage":{"input_tokens":"007","output_tokens":"1","turns":1}}              invalid_scalar
{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":true}}             type_mismatch
{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":1.0}}              type_mismatch
{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":1,"cost":"3"}}     unknown_field
{"kind":"cancelled","reason":"user","usage":["1","1",1]}                                                       type_mismatch
{"kind":"cancelled","reason":"user","usage":{"input_tokens":"1","output_tokens":"1","turns":1},"duration_ms":"9"}  unknown_field
{"kind":"agent","result":{"termination":"user_abort","turns_used":1},"usage":{"input_tokens":"1","output_tokens":"1","turns":1}}  unknown_variant
{"kind":"agent","result":{"termination":"completed","turns_used":1,"usage":{}},"usage":{"input_tokens":"1","output_tokens":"1","turns":1}}  unknown_field
{"kind":"workflow","outcome":{"workflow_id":"","status":"completed"},"usage":{"input_tokens":"1","output_tokens":"1","turns":1}}  invalid_scalar
"""
U = '"usage":{"input_tokens":"1","output_tokens":"1","turns":1}'
CANCELLED = '{"kind":"cancelled","reason":"user",%s}' % U
BANNED = {
    "effect_id", "causation_input_id", "resolution", "now_ms", "observed_at_ms", "timestamp", "timestamp_ms",
    "started_at_ms", "completed_at_ms", "wall_clock_ms", "duration_ms", "usage_report", "budget_usage",
}  # fmt: skip


def refusal(document: str | bytes | dict[str, Any]) -> CodecRefused:
    with pytest.raises(CodecRefused) as caught:
        decode_terminal(json.dumps(document) if isinstance(document, dict) else document)
    return caught.value


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys(item)


# ── goldens ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("golden", GOLDENS)
def test_a_golden_comes_back_as_the_same_document_in_the_same_order(golden: str) -> None:
    again = encode_terminal(decode_terminal(golden))
    assert json.loads(again) == json.loads(golden)
    assert again == golden
    assert encode_terminal(decode_terminal(golden.encode())) == golden


def test_the_goldens_cover_all_four_kinds() -> None:
    assert {decode_terminal(golden).kind for golden in GOLDENS} == {"agent", "workflow", "cancelled", "failed"}


def test_a_golden_is_the_record_that_it_says() -> None:
    assert decode_terminal(GOLDENS[0]) == AgentTerminal(
        LoopResult(TerminationReason.completed, 3, ProviderMessage(Role.assistant, "Inventory is ready.")),
        UsageReport(9120, 640, 3, 4096),
    )
    assert decode_terminal(GOLDENS[1]) == AgentTerminal(
        LoopResult(
            TerminationReason.completed,
            2,
            None,
            PaceDecision(PaceAction.sleep, "nothing new yet", 90_000, "sleep 5ms (clamped)"),
        ),
        UsageReport(0, 0, 2),
    )
    assert decode_terminal(GOLDENS[2]) == WorkflowTerminal(
        WorkflowOutcome("op-9:workflow:1", WorkflowStatus.failed, ("scan",), ("merge", "report")),
        UsageReport(3300, 410, 5),
    )
    assert decode_terminal(GOLDENS[5]) == FailedTerminal(
        KernelFailure(FailureCode.resource_exhausted), UsageReport(U64_MAX, 0, U32_MAX)
    )


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("line", VECTORS.strip().splitlines())
def test_a_published_vector_is_refused_with_its_kind(line: str) -> None:
    document, kind = line.rsplit(None, 1)
    assert refusal(document).kind == kind


def usage_of(**changed: Any) -> dict[str, Any]:
    usage = {"input_tokens": "1", "output_tokens": "1", "turns": 1, **changed}
    return {"kind": "cancelled", "reason": "user", "usage": usage}


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_input_tokens"])
@pytest.mark.parametrize(
    "wrong",
    [1, 1.0, True, False, "", "+1", "-1", " 1", "1 ", "01", "00", "1.0", "1e3", "1_0", "0x1", "\u0661", "\u00b2",
     "\ud800", str(U64_MAX + 1), "9" * 5_000],
)  # fmt: skip
def test_a_u64_is_a_plain_text_of_digits_within_its_range(field: str, wrong: Any) -> None:
    refused = refusal(usage_of(**{field: wrong}))
    assert (refused.kind, refused.path) == (RefusalKind.invalid_scalar, f"usage.{field}")


@pytest.mark.parametrize("wrong", [["1"], {"a": "1"}])
def test_a_container_in_place_of_a_u64_is_of_another_type(wrong: Any) -> None:
    assert refusal(usage_of(input_tokens=wrong)).kind is RefusalKind.type_mismatch


@pytest.mark.parametrize("right", ["0", str(U64_MAX)])
def test_both_ends_of_a_u64_are_taken(right: str) -> None:
    assert decode_terminal(json.dumps(usage_of(input_tokens=right))).usage.input_tokens == int(right)


@pytest.mark.parametrize("wrong", ["1", True, False, 1.0, 1.5, [], {}, None])
def test_a_u32_is_no_text_no_bool_and_no_float(wrong: Any) -> None:
    refused = refusal(usage_of(turns=wrong))
    assert (refused.kind, refused.path) == (RefusalKind.type_mismatch, "usage.turns")


@pytest.mark.parametrize("wrong", [-1, U32_MAX + 1, 2**64])
def test_a_u32_stays_within_its_range(wrong: int) -> None:
    assert refusal(usage_of(turns=wrong)).kind is RefusalKind.invalid_scalar


def test_a_u32_of_thousands_of_digits_is_out_of_range_and_no_crash() -> None:
    assert refusal(CANCELLED.replace('"turns":1', '"turns":' + "9" * 10_000)).kind is RefusalKind.invalid_scalar


RESULT = '{"kind":"agent","result":{"termination":"completed","turns_used":1,%s},' + U + "}"


@pytest.mark.parametrize(
    ("document", "kept"),
    [
        (CANCELLED.replace('"turns":1', '"turns":1,"cached_input_tokens":null'), CANCELLED),
        (RESULT % '"final_message":null,"pace_decision":null', RESULT.replace(",%s", "")),
        (
            RESULT % '"pace_decision":{"action":"stop","delay_ms":null,"reason":"","coerced_from":null}',
            RESULT % '"pace_decision":{"action":"stop","reason":""}',
        ),
        (
            RESULT % '"final_message":{"role":"tool","content":"","tool_call_id":null,"tokens":null,"tool_calls":[]}',
            '{"kind":"agent","result":{"termination":"completed","final_message":{"role":"tool","content":""},'
            '"turns_used":1},' + U + "}",
        ),
        (
            '{"kind":"failed","failure":{"code":"resource_exhausted","message":""},%s}' % U,
            '{"kind":"failed","failure":{"code":"resource_exhausted"},%s}' % U,
        ),
        (
            '{"kind":"workflow","outcome":{"workflow_id":"w","status":"completed","completed_nodes":[],'
            '"failed_nodes":[]},%s}' % U,
            '{"kind":"workflow","outcome":{"workflow_id":"w","status":"completed"},%s}' % U,
        ),
    ],
)
def test_what_is_null_or_empty_and_optional_is_absent_and_dropped(document: str, kept: str) -> None:
    assert encode_terminal(decode_terminal(document)) == encode_terminal(decode_terminal(kept))
    assert json.loads(encode_terminal(decode_terminal(document))) == json.loads(kept)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (CANCELLED.replace('"cancelled"', "null"), "kind"),
        (CANCELLED.replace('"user"', "null"), "reason"),
        ('{"kind":"cancelled","reason":"user","usage":null}', "usage"),
        (CANCELLED.replace('"input_tokens":"1"', '"input_tokens":null'), "usage.input_tokens"),
        (CANCELLED.replace('"turns":1', '"turns":null'), "usage.turns"),
        (f'{{"kind":"agent","result":null,{U}}}', "result"),
        ('{"kind":"failed","failure":{"code":"resource_exhausted","message":null},%s}' % U, "failure.message"),
        (
            '{"kind":"workflow","outcome":{"workflow_id":"w","status":"failed","failed_nodes":null},%s}' % U,
            "outcome.failed_nodes",
        ),
        (
            RESULT % '"final_message":{"role":"user","content":"","tool_calls":null}',
            "result.final_message.tool_calls",
        ),
        (RESULT % '"pace_decision":{"action":"stop","reason":null}', "result.pace_decision.reason"),
    ],
)
def test_null_is_refused_where_a_field_is_required_or_merely_omitted_when_empty(document: str, path: str) -> None:
    refused = refusal(document)
    assert (refused.kind, refused.path) == (RefusalKind.type_mismatch, path)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("", "invalid_scalar"),
        ("x" * 257, "invalid_scalar"),
        ("\u00e9" * 129, "invalid_scalar"),
        ("a\u0000", "invalid_scalar"),
        ("a\u007f", "invalid_scalar"),
        ("a\u0085", "invalid_scalar"),
        ("\ud800", "invalid_scalar"),
        (7, "type_mismatch"),
        (None, "type_mismatch"),
        (True, "type_mismatch"),
        (["w"], "type_mismatch"),
    ],
)
def test_an_id_is_a_short_text_without_control_characters(value: Any, kind: str) -> None:
    outcome = {"workflow_id": value, "status": "completed"}
    document = {"kind": "workflow", "outcome": outcome, "usage": usage_of()["usage"]}
    assert refusal(document).kind == kind
    for nodes in ("completed_nodes", "failed_nodes"):
        in_list = {"workflow_id": "w", "status": "completed", nodes: ["a", value]}
        refused = refusal({**document, "outcome": in_list})
        assert (refused.kind, refused.path) == (kind, f"outcome.{nodes}[1]")


def test_the_longest_id_is_taken() -> None:
    outcome = {"workflow_id": "\u00e9" * 128, "status": "completed"}
    terminal = decode_terminal(json.dumps({"kind": "workflow", "outcome": outcome, "usage": usage_of()["usage"]}))
    assert isinstance(terminal, WorkflowTerminal)
    assert terminal.outcome.workflow_id == "\u00e9" * 128


@pytest.mark.parametrize("document", ["[]", "null", "1", '"cancelled"', '["cancelled","user",["1","1",1]]'])
def test_only_an_object_is_a_terminal(document: str) -> None:
    assert refusal(document).kind is RefusalKind.type_mismatch


@pytest.mark.parametrize(
    "document",
    [
        "",
        CANCELLED + "x",
        CANCELLED + CANCELLED,
        CANCELLED[:-1],
        CANCELLED.replace('"turns":1', '"turns":NaN'),
        CANCELLED.replace('"turns":1', '"turns":Infinity'),
        CANCELLED.replace('"reason":"user"', '"reason":"user","reason":"user"'),
        CANCELLED.replace('"turns":1', '"turns":1,"turns":1'),
        CANCELLED.replace('"turns":1', '"turns":1,"tur\\u006es":1'),
    ],
)
def test_what_is_no_single_document_is_malformed(document: str) -> None:
    assert refusal(document).kind is RefusalKind.malformed_json


def test_opaque_arguments_take_the_rest_of_the_depth_and_no_more() -> None:
    def document(depth: int) -> str:
        arguments = "[" * depth + "]" * depth
        call = '{"call_id":"c","name":"n","arguments":%s}' % arguments
        return RESULT % ('"final_message":{"role":"user","content":"","tool_calls":[%s]}' % call)

    # The call itself lies five deep: terminal, result, message, list, call.
    terminal = decode_terminal(document(59))
    assert decode_terminal(encode_terminal(terminal)) == terminal
    assert refusal(document(60)).kind is RefusalKind.depth_exceeded


@pytest.mark.parametrize("number", ["1e999", "-1e999", str(2**64), "\"\\ud800\""])
def test_opaque_arguments_hold_only_what_every_reader_can_carry(number: str) -> None:
    call = '{"call_id":"c","name":"n","arguments":{"a":[%s]}}' % number
    refused = refusal(RESULT % ('"final_message":{"role":"user","content":"","tool_calls":[%s]}' % call))
    assert refused.kind is RefusalKind.invalid_scalar
    assert refused.path == "result.final_message.tool_calls[0].arguments.a[0]"


def test_a_lone_surrogate_in_a_key_is_refused_in_words_that_can_be_printed() -> None:
    refused = refusal(CANCELLED.replace('"reason"', '"\\ud800"'))
    assert refused.kind is RefusalKind.unknown_field
    assert str(refused).encode() == b"\\ud800: unknown field (unknown_field)"


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        # Each breaks a rule and the next one too; the earlier rule gives the verdict.
        ("[" * 70 + '"x', "depth_exceeded"),
        ('{"kind":"done","kind":"done"}', "malformed_json"),
        ('{"x":1}', "missing_field"),
        ('{"kind":"done","x":1}', "unknown_variant"),
        ('{"kind":"cancelled","x":1}', "unknown_field"),
        ('{"kind":"cancelled","reason":"timeout"}', "missing_field"),
        ('{"kind":"cancelled","reason":"timeout","usage":[]}', "unknown_variant"),
        ('{"kind":"cancelled","reason":"user","usage":{"x":1,"turns":true}}', "unknown_field"),
        ('{"kind":"cancelled","reason":"user","usage":{"input_tokens":1,"turns":true}}', "missing_field"),
        (
            '{"kind":"cancelled","reason":"user","usage":{"turns":true,"output_tokens":"1","input_tokens":1}}',
            "invalid_scalar",
        ),
        (
            '{"kind":"agent","usage":{"x":1},"result":{"termination":"completed","turns_used":"1"}}',
            "type_mismatch",
        ),
    ],
)
def test_the_order_of_verdicts_is_fixed(document: str, kind: str) -> None:
    assert refusal(document).kind == kind


# ── what a terminal carries ─────────────────────────────────────────────────


def one_of_each() -> list[Terminal]:
    usage = UsageReport(1, 2, 3, 4)
    call = MessageCall("c1", "read", {"a": [1, None, True, 0.5]})
    said = ProviderMessage(Role.assistant, "x", (call,), "t", 9)
    pace = PaceDecision(PaceAction.go_on, "", 5, "y")
    return [
        AgentTerminal(LoopResult(TerminationReason.completed, 3, said, pace), usage),
        WorkflowTerminal(WorkflowOutcome("w", WorkflowStatus.failed, ("a",), ("b",)), usage),
        CancelledTerminal(CancellationReason.user, usage),
        FailedTerminal(KernelFailure(FailureCode.host_effect_failed, "m"), usage),
    ]


def test_each_kind_has_its_own_tag_and_comes_back() -> None:
    tags = []
    for terminal in one_of_each():
        text = encode_terminal(terminal)
        assert decode_terminal(text) == terminal
        tags.append(json.loads(text)["kind"])
    assert tags == ["agent", "workflow", "cancelled", "failed"]


def test_no_kind_carries_an_effect_a_clock_or_a_second_usage() -> None:
    for terminal in one_of_each():
        document = json.loads(encode_terminal(terminal))
        found = list(keys(document))
        assert "usage" in document and found.count("usage") == 1
        assert not BANNED & set(found)


@pytest.mark.parametrize("key", sorted(BANNED))
def test_a_banned_key_is_refused_in_each_kind(key: str) -> None:
    for terminal in one_of_each():
        document = json.loads(encode_terminal(terminal))
        assert refusal({**document, key: "1"}).kind is RefusalKind.unknown_field


def test_keys_stand_in_the_order_of_the_records_with_the_kind_first() -> None:
    full = one_of_each()[0]
    assert list(keys(json.loads(encode_terminal(full)))) == [
        "kind",
        "result", "termination", "final_message",
        "role", "content", "tool_calls", "call_id", "name", "arguments", "a", "tool_call_id", "tokens",
        "turns_used", "pace_decision", "action", "delay_ms", "reason", "coerced_from",
        "usage", "input_tokens", "output_tokens", "turns", "cached_input_tokens",
    ]  # fmt: skip


# ── properties ──────────────────────────────────────────────────────────────

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
u64 = st.sampled_from([0, 1, 2**53 + 1, U64_MAX]) | st.integers(0, U64_MAX)
u32 = st.sampled_from([0, 1, U32_MAX]) | st.integers(0, U32_MAX)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
usages = st.builds(UsageReport, u64, u64, u32, st.none() | u64)
messages = st.builds(
    ProviderMessage,
    st.sampled_from(Role),
    text,
    st.lists(st.builds(MessageCall, ids, text, json_values), max_size=2),
    st.none() | ids,
    st.none() | u32,
)
paces = st.builds(PaceDecision, st.sampled_from(PaceAction), text, st.none() | u64, st.none() | text)
results = st.builds(LoopResult, st.sampled_from(TerminationReason), u32, st.none() | messages, st.none() | paces)
nodes = st.lists(ids, max_size=3)
outcomes = st.builds(WorkflowOutcome, ids, st.sampled_from(WorkflowStatus), nodes, nodes)
failures = st.builds(KernelFailure, st.sampled_from(FailureCode), text)
terminals = st.one_of(
    st.builds(AgentTerminal, results, usages),
    st.builds(WorkflowTerminal, outcomes, usages),
    st.builds(CancelledTerminal, st.sampled_from(CancellationReason), usages),
    st.builds(FailedTerminal, failures, usages),
)


@given(terminals)
def test_any_terminal_comes_back(terminal: Terminal) -> None:
    encoded = encode_terminal(terminal)
    assert decode_terminal(encoded) == terminal
    assert encode_terminal(decode_terminal(encoded.encode())) == encoded


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Give every object of a document but those in opaque values, which may hold any key."""
    if isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key != "arguments":
                yield from objects(inner)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


@given(terminals, text, st.data())
def test_one_key_too_many_at_any_depth_is_refused(terminal: Terminal, name: str, data: st.DataObject) -> None:
    document = json.loads(encode_terminal(terminal))
    target = data.draw(st.sampled_from(list(objects(document))))
    target["+" + name] = data.draw(st.sampled_from([None, 1, "", {}, []]))
    assert refusal(document).kind is RefusalKind.unknown_field


@given(terminals, st.data())
def test_one_required_key_too_few_is_refused(terminal: Terminal, data: st.DataObject) -> None:
    required = {
        "kind", "result", "outcome", "reason", "failure", "usage", "termination", "turns_used", "role", "content",
        "call_id", "name", "action", "workflow_id", "status", "code", "input_tokens", "output_tokens", "turns",
    }  # fmt: skip
    document = json.loads(encode_terminal(terminal))
    target = data.draw(st.sampled_from([one for one in objects(document) if required & set(one)]))
    del target[data.draw(st.sampled_from(sorted(required & set(target))))]
    assert refusal(document).kind is RefusalKind.missing_field


@given(terminals, st.data())
def test_any_u64_as_a_number_is_refused(terminal: Terminal, data: st.DataObject) -> None:
    wide = {"input_tokens", "output_tokens", "cached_input_tokens", "delay_ms"}
    document = json.loads(encode_terminal(terminal))
    places = [(one, key) for one in objects(document) for key in one if key in wide]
    target, key = data.draw(st.sampled_from(places))
    target[key] = int(target[key])
    refused = refusal(document)
    assert refused.kind is RefusalKind.invalid_scalar
    assert refused.path.endswith(key)


@given(terminals)
def test_no_banned_key_is_ever_written(terminal: Terminal) -> None:
    document = json.loads(encode_terminal(terminal))
    assert not BANNED & {key for one in objects(document) for key in one}


@given(terminals, st.data())
def test_a_terminal_that_is_cut_short_is_refused(terminal: Terminal, data: st.DataObject) -> None:
    raw = encode_terminal(terminal).encode()
    assert refusal(raw[: data.draw(st.integers(0, len(raw) - 1))]).kind is RefusalKind.malformed_json


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_other_input_is_refused_and_nothing_else_happens(raw: bytes | str) -> None:
    assert str(refusal(raw)).encode()
