"""A step asks for effects or ends its run, and no document says both."""

import json
from collections.abc import Callable, Iterator
from typing import Any

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
    StepDisposition,
    TerminalStep,
    ToolRequest,
    decode_disposition,
    encode_disposition,
)
from actors.agents.strict_json import CodecRefused
from actors.agents.terminals import CancellationReason, CancelledTerminal, UsageReport

U = '"usage":{"input_tokens":"1","output_tokens":"1","turns":1}'
CANCELLED = CancelledTerminal(CancellationReason.user, UsageReport(1, 1, 1))
MILESTONE = Effect("op:step:1:effect:0", "in-1", EvaluateMilestone("contract", "phase"))
ALL_KINDS = (
    Effect("op:step:1:effect:0", "in-1", CallProvider("m")),
    Effect("op:step:1:effect:1", "in-1", ExecuteTools((ToolRequest("c1", "read", {"a": 1}), ToolRequest("c2", "x")))),
    Effect("op:step:1:effect:2", "in-1", SpawnTasks(("t1", "t2"))),
    Effect("op:step:1:effect:3", "in-1", EvaluateMilestone("c", "p")),
)


def test_a_step_with_an_effect_is_no_end() -> None:
    step = EffectsStep((MILESTONE,))
    assert step.terminal is None
    assert step.effects == (MILESTONE,)
    assert step.is_terminal is False


def test_a_step_that_ends_the_run_asks_for_nothing() -> None:
    step = TerminalStep(CANCELLED)
    assert step.terminal is CANCELLED
    assert step.effects == ()
    assert step.is_terminal is True


@pytest.mark.parametrize(
    ("step", "wire"),
    [
        (EffectsStep(), '{"kind":"effects"}'),
        (
            EffectsStep((MILESTONE,)),
            '{"kind":"effects","effects":[{"effect_id":"op:step:1:effect:0","causation_input_id":"in-1",'
            '"effect":{"kind":"evaluate_milestone","request":{"contract_id":"contract","phase_id":"phase"}}}]}',
        ),
        (
            EffectsStep((Effect("e", "i", CallProvider()),)),
            '{"kind":"effects","effects":[{"effect_id":"e","causation_input_id":"i","effect":{"kind":"call_provider"}}]}',
        ),
        (TerminalStep(CANCELLED), '{"kind":"terminal","terminal":{"kind":"cancelled","reason":"user",%s}}' % U),
    ],
)
def test_a_step_has_this_wire_form(step: StepDisposition, wire: str) -> None:
    assert encode_disposition(step) == wire
    assert decode_disposition(wire) == step
    assert decode_disposition(wire.encode()) == step


def test_effects_of_different_kinds_keep_their_order() -> None:
    for effects in (ALL_KINDS, ALL_KINDS[::-1]):
        step = EffectsStep(effects)
        assert decode_disposition(encode_disposition(step)) == step
        wire = json.loads(encode_disposition(step))
        assert [one["effect_id"] for one in wire["effects"]] == [one.effect_id for one in effects]


def test_an_empty_list_of_effects_is_a_quiet_step() -> None:
    assert decode_disposition('{"kind":"effects","effects":[]}') == EffectsStep()


def one(effect: str) -> str:
    return '{"kind":"effects","effects":[{"effect_id":"e","causation_input_id":"i","effect":%s}]}' % effect


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        # As it is published:
        (
            '{"kind":"terminal","terminal":{"kind":"cancelled","reason":"user","usage":'
            '{"input_tokens":"1","output_tokens":"1","turns":1}},"effects":[]}',
            "unknown_field",
        ),
        ('{"kind":"effects","terminal":null}', "unknown_field"),
        ('{"kind":"effects","effects":[],"terminal":{"kind":"cancelled","reason":"user",%s}}' % U, "unknown_field"),
        ('{"kind":"terminal"}', "missing_field"),
        ('{"kind":"terminal","terminal":null}', "type_mismatch"),
        ('{"kind":"terminal","terminal":["cancelled","user"]}', "type_mismatch"),
        ('{"kind":"terminal","terminal":{"kind":"done",%s}}' % U, "unknown_variant"),
        ('{"kind":"terminal","terminal":{"kind":"cancelled","reason":"user",%s,"now_ms":"1"}}' % U, "unknown_field"),
        ('{"kind":"both"}', "unknown_variant"),
        ('{"effects":[]}', "missing_field"),
        ("[]", "type_mismatch"),
        ("{", "malformed_json"),
        ('{"kind":"effects","effects":null}', "type_mismatch"),
        ('{"kind":"effects","effects":{}}', "type_mismatch"),
        ('{"kind":"effects","effects":[["e","i",{"kind":"call_provider"}]]}', "type_mismatch"),
        ('{"kind":"effects","effects":[{"effect_id":"e","causation_input_id":"i"}]}', "missing_field"),
        (one('{"kind":"fly"}'), "unknown_variant"),
        (one('{"request":{}}'), "missing_field"),
        (one('"call_provider"'), "type_mismatch"),
        (one('{"kind":"call_provider","model":7}'), "type_mismatch"),
        (one('{"kind":"call_provider","calls":[]}'), "unknown_field"),
        (one('{"kind":"execute_tools"}'), "missing_field"),
        (one('{"kind":"execute_tools","calls":[{"call_id":"","name":"x"}]}'), "invalid_scalar"),
        (one('{"kind":"spawn_tasks","tasks":"t"}'), "type_mismatch"),
        (one('{"kind":"spawn_tasks","tasks":["t",1]}'), "type_mismatch"),
        (one('{"kind":"evaluate_milestone"}'), "missing_field"),
        (one('{"kind":"evaluate_milestone","request":{"contract_id":"c"}}'), "missing_field"),
        (one('{"kind":"evaluate_milestone","request":{"contract_id":"c","phase_id":""}}'), "invalid_scalar"),
        (one('{"kind":"evaluate_milestone","request":{"contract_id":"c","phase_id":"p","x":1}}'), "unknown_field"),
        (one('{"kind":"evaluate_milestone","contract_id":"c","phase_id":"p"}'), "unknown_field"),
    ],
)
def test_what_is_not_exactly_a_step_is_refused_with_its_kind(document: str, kind: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        decode_disposition(document)
    assert caught.value.kind == kind


def test_a_refusal_names_the_place_also_deep_inside() -> None:
    with pytest.raises(CodecRefused) as caught:
        decode_disposition(one('{"kind":"execute_tools","calls":[{"call_id":"c","name":"n","arguments":{"a":1e999}}]}'))
    assert caught.value.path == "effects[0].effect.calls[0].arguments.a"


@pytest.mark.parametrize(
    "second",
    [
        Effect("other", "in-1", EvaluateMilestone("c", "p2")),
        Effect(MILESTONE.effect_id, "in-1", CallProvider()),
    ],
)
def test_a_kind_or_an_id_stands_once_in_a_step(second: Effect) -> None:
    with pytest.raises(ValueError, match=r"effects\[1\]"):
        EffectsStep((MILESTONE, second))
    parts = [json.loads(encode_disposition(EffectsStep((effect,))))["effects"][0] for effect in (MILESTONE, second)]
    with pytest.raises(CodecRefused) as caught:
        decode_disposition(json.dumps({"kind": "effects", "effects": parts}))
    # Well formed, but not allowed: hosts handle it differently.
    assert (caught.value.kind, caught.value.path) == ("policy_violation", "effects[1]")


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("effect_id", lambda: Effect("", "i", CallProvider())),
        ("causation_input_id", lambda: Effect("e", "a\n", CallProvider())),
        ("model", lambda: CallProvider("\ud800")),
        ("call_id", lambda: ToolRequest("", "x")),
        ("arguments", lambda: ToolRequest("c", "x", float("inf"))),
        ("tasks", lambda: SpawnTasks(("t", ""))),
        ("phase_id", lambda: EvaluateMilestone("c", "")),
    ],
)
def test_an_effect_that_could_not_be_read_back_is_not_made(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=field):
        make()


# ── properties ──────────────────────────────────────────────────────────────

ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=10)
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
requests = st.builds(ToolRequest, ids, text, st.none() | st.integers(-5, 5) | st.lists(text, max_size=2))
bodies = st.one_of(
    st.builds(CallProvider, st.none() | text),
    st.builds(ExecuteTools, st.lists(requests, max_size=2)),
    st.builds(SpawnTasks, st.lists(ids, max_size=2)),
    st.builds(EvaluateMilestone, ids, ids),
)
effects = st.lists(
    st.builds(Effect, ids, ids, bodies),
    max_size=4,
    unique_by=(lambda effect: effect.effect_id, lambda effect: effect.effect.kind),
)
steps = st.builds(EffectsStep, effects) | st.just(TerminalStep(CANCELLED))


@given(steps)
def test_any_step_comes_back(step: StepDisposition) -> None:
    encoded = encode_disposition(step)
    assert decode_disposition(encoded) == step
    assert encode_disposition(decode_disposition(encoded)) == encoded


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


@given(steps, st.data())
def test_one_key_too_many_at_any_depth_is_refused(step: StepDisposition, data: st.DataObject) -> None:
    document = json.loads(encode_disposition(step))
    target = data.draw(st.sampled_from(list(objects(document))))
    target["surprise"] = None
    with pytest.raises(CodecRefused) as caught:
        decode_disposition(json.dumps(document))
    assert caught.value.kind == "unknown_field"


@given(effects)
def test_a_step_with_both_is_refused_whichever_it_claims_to_be(asked: list[Effect]) -> None:
    listed = json.loads(encode_disposition(EffectsStep(asked))).get("effects", [])
    both = {**json.loads(encode_disposition(TerminalStep(CANCELLED))), "effects": listed}
    for kind in ("terminal", "effects"):
        with pytest.raises(CodecRefused) as caught:
            decode_disposition(json.dumps({**both, "kind": kind}))
        assert caught.value.kind == "unknown_field"
