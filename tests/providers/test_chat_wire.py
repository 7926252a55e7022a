"""The chat format: what is sent always pairs, and what comes back is never assumed."""

import json
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import AssistantTurn, CompletionRequest, ResultsTurn, ToolCall, ToolSpec, Turn, UserTurn
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.chat_wire import (
    EMPTY_RESULT,
    MOST_TOKENS,
    NO_RESULT,
    call_id,
    decode_completion,
    encode_request,
    read_usage,
    wire_messages,
)
from actors.testing.model_script import conversation_problem


def body_of(*turns: Turn, system: str = "be brief", tools: tuple[ToolSpec, ...] = (), **options: Any) -> dict[str, Any]:
    return json.loads(encode_request(CompletionRequest(system, turns, tools, max_output_tokens=50), **options))


def answer_of(message: Any, **others: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], **others}).encode()


def failure_of(body: bytes) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decode_completion(body)
    return caught.value


# ── encode ──────────────────────────────────────────────────────────────────


def test_a_whole_conversation_is_sent_as_the_format_wants_it():
    spec = ToolSpec("read_file", "reads", types.MappingProxyType({"type": "object", "properties": {}}))
    turns = (
        UserTurn("go"),
        AssistantTurn("first", (ToolCall("read_file", '{"path": "a"}'), ToolCall("read_file", '{"path": "b"}'))),
        ResultsTurn(("A", "")),
        AssistantTurn(None, (ToolCall("read_file", "{}"),)),
        ResultsTurn(("C",)),
    )
    call = {"type": "function"}
    assert body_of(*turns, tools=(spec,), model="m") == {
        "model": "m",
        "max_tokens": 50,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "first",
                "tool_calls": [
                    call | {"id": "c00000000", "function": {"name": "read_file", "arguments": '{"path": "a"}'}},
                    call | {"id": "c00000001", "function": {"name": "read_file", "arguments": '{"path": "b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c00000000", "content": "A"},
            {"role": "tool", "tool_call_id": "c00000001", "content": EMPTY_RESULT},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call | {"id": "c00000002", "function": {"name": "read_file", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c00000002", "content": "C"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read_file",
                    "description": "reads",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


def test_ids_are_nine_letters_and_digits_and_never_repeat():
    ids = [call_id(position) for position in range(5000)]
    assert len(set(ids)) == 5000
    assert all(len(id) == 9 and id.isalnum() for id in [*ids, call_id(36**8 - 1)])


def test_orphan_results_and_empty_messages_are_not_sent():
    messages = wire_messages(" ", [ResultsTurn(("nobody asked",)), UserTurn("a"), AssistantTurn("  "), UserTurn("b")])
    assert messages == [{"role": "user", "content": "a\n\nb"}]


def test_a_call_without_a_result_gets_one_and_a_result_too_many_is_dropped():
    calls = (ToolCall("x"), ToolCall("y"))
    short = wire_messages("", [UserTurn("a"), AssistantTurn(None, calls), ResultsTurn(("one",))])
    long = wire_messages("", [UserTurn("a"), AssistantTurn(None, calls), ResultsTurn(("one", "two", "three"))])
    none = wire_messages("", [UserTurn("a"), AssistantTurn(None, calls), UserTurn("b")])
    assert [message["content"] for message in short[2:]] == ["one", NO_RESULT]
    assert [message["content"] for message in long[2:]] == ["one", "two"]
    assert [message["content"] for message in none[2:]] == [NO_RESULT, NO_RESULT, "b"]
    last = wire_messages("", [UserTurn("a"), AssistantTurn(None, calls)])
    assert [message["content"] for message in last[2:]] == [NO_RESULT, NO_RESULT]


def test_what_a_model_invented_before_is_sent_back_in_a_form_that_endpoints_take():
    calls = (ToolCall("files.read all!", '{"a":'), ToolCall("", ""), ToolCall("ok", "[1]"))
    sent = wire_messages("", [UserTurn("a"), AssistantTurn(None, calls)])[1]["tool_calls"]
    assert [call["function"] for call in sent] == [
        {"name": "files_read_all_", "arguments": '{"malformed_arguments": "{\\"a\\":"}'},
        {"name": "unnamed", "arguments": "{}"},
        {"name": "ok", "arguments": '{"malformed_arguments": "[1]"}'},
    ]


def test_a_lone_surrogate_is_sent_as_the_replacement_character():
    parameters = {"description": "\ud800", "required": ["\udfff"]}
    body = body_of(UserTurn("x\ud800y"), tools=(ToolSpec("t", "", types.MappingProxyType(parameters)),))
    assert body["messages"][1]["content"] == "x\ufffdy"
    assert body["tools"][0]["function"]["parameters"] == {"description": "\ufffd", "required": ["\ufffd"]}


def test_a_request_model_wins_and_without_any_none_is_sent():
    turns = (UserTurn("a"),)
    own = json.loads(encode_request(CompletionRequest("", turns, model="mine"), model="configured"))
    assert own["model"] == "mine"
    assert body_of(*turns, model="configured")["model"] == "configured"
    assert "model" not in body_of(*turns)


def test_a_streamed_request_asks_for_usage():
    body = body_of(UserTurn("a"), stream=True, limit_field="max_completion_tokens")
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_completion_tokens"] == 50
    assert "max_tokens" not in body


@pytest.mark.parametrize(
    ("tools", "says"),
    [((ToolSpec("a b", "", {}),), "'a b'"), ((ToolSpec("a", "", {}), ToolSpec("a", "", {})), "one name: a")],
)
def test_a_tool_that_cannot_be_expressed_is_refused_and_not_dropped(tools, says):
    with pytest.raises(ProviderError, match=says) as caught:
        body_of(UserTurn("a"), tools=tools)
    assert caught.value.kind is ProviderErrorKind.request


def test_an_empty_request_is_refused():
    with pytest.raises(ProviderError, match="no message"):
        body_of(UserTurn(" "), system="")


texts = st.text(alphabet="a \n\ud800é", max_size=3)
calls = st.lists(st.builds(ToolCall, st.sampled_from(["", "a", "a b"]), st.sampled_from(["", "{", "{}"])), max_size=3)
turns = st.lists(
    st.builds(UserTurn, texts)
    | st.builds(AssistantTurn, st.none() | texts, calls.map(tuple))
    | st.builds(ResultsTurn, st.lists(texts, max_size=4).map(tuple)),
    max_size=8,
)


@given(turns=turns)
def test_any_history_between_two_user_turns_is_one_a_strict_endpoint_takes(turns):
    request = CompletionRequest("s", (UserTurn("begin"), *turns, UserTurn("go on")))
    encoded = encode_request(request)
    assert conversation_problem(json.loads(encoded)["messages"]) is None
    assert encode_request(request) == encoded


# ── decode ──────────────────────────────────────────────────────────────────


def test_three_calls_with_bad_ids_stay_three_calls():
    raw = [
        {"id": id, "function": {"name": name, "arguments": f'{{"n": "{name}"}}'}}
        for id, name in [("", "a"), ("x", "b"), ("x", "c")]
    ]
    completion = decode_completion(answer_of({"content": None, "tool_calls": raw}, model="m"))
    assert completion.calls == tuple(ToolCall(name, f'{{"n": "{name}"}}') for name in "abc")
    assert (completion.text, completion.model, completion.finish_reason) == (None, "m", "stop")
    assert completion.usage is None


def test_arguments_come_as_text_as_an_object_or_not_at_all():
    functions = [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}, {"name": "c", "arguments": "  "}]
    raw = [{"function": function} for function in [*functions, {"name": "d", "arguments": '{"a":'}]]
    arguments = [call.arguments for call in decode_completion(answer_of({"tool_calls": raw})).calls]
    assert arguments == ['{"x": 1}', "{}", "{}", '{"a":']


def test_empty_text_and_no_text_are_different_facts():
    assert decode_completion(answer_of({"content": ""})).text == ""
    assert decode_completion(answer_of({"content": None})).text is None


def test_text_in_parts_and_a_refusal_are_read():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert decode_completion(answer_of({"content": parts})).text == "ab"
    assert decode_completion(answer_of({"content": None, "refusal": "no"})).text == "no"


def test_reasoning_does_not_enter_the_answer():
    assert decode_completion(answer_of({"content": "a", "reasoning_content": "hm"})).text == "a"


def test_escaped_pairs_become_one_character_and_lone_halves_the_replacement():
    call = {"function": {"name": "t\udfff", "arguments": "{}"}}
    completion = decode_completion(answer_of({"content": "\ud83c\udf78 \ud800", "tool_calls": [call]}))
    assert completion.text == "\U0001f378 \ufffd"
    assert completion.calls[0].name == "t\ufffd"
    assert decode_completion(answer_of({"content": "x"}).replace(b'"x"', b'"\x97"')).text == "\ufffd"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        b'{"choices": [{"mess',
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [null]}',
        b'{"choices": [{"message": {}}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": "a", "tool_calls": {}}}]}',
        b'{"choices": [{"message": {"content": "a", "tool_calls": [{"id": "x"}]}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "a", "arguments": 5}}]}}]}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_garbage_is_malformed_and_never_an_answer_without_calls(body):
    error = failure_of(body)
    assert error.kind is ProviderErrorKind.malformed
    assert len(str(error)) < 500


def test_a_malformed_answer_still_tells_what_it_cost():
    body = b'{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}'
    assert failure_of(body).usage == Usage(7, 2)


def test_an_error_object_inside_a_success_is_that_error():
    limited = failure_of(b'{"error": {"code": 429, "message": "slow down"}}')
    unnamed = failure_of(b'{"error": {"code": "oops", "message": "broken"}}')
    assert (limited.kind, limited.status) == (ProviderErrorKind.rate_limited, 429)
    assert (unnamed.kind, unnamed.status) == (ProviderErrorKind.malformed, None)
    assert "slow down" in str(limited)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.text(max_size=3) | st.integers(), st.lists).map(json.dumps))
def test_no_body_makes_anything_but_a_completion_or_a_typed_error(body):
    raw = body if isinstance(body, bytes) else b'{"choices": [{"message": {"content": %s}}]}' % body.encode()
    try:
        completion = decode_completion(raw)
    except ProviderError as error:
        assert error.kind is ProviderErrorKind.malformed
    else:
        assert completion.usage is None
        assert completion.calls == ()


# ── usage ───────────────────────────────────────────────────────────────────


def test_all_counts_of_a_report_are_taken():
    raw = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 125,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    usage = read_usage(raw)
    assert usage == Usage(100, 20, 125, 60, 10, 8)
    assert usage.tokens == 125


def test_zero_as_reported_stays_zero():
    assert read_usage({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}) == Usage()


@pytest.mark.parametrize("bad", [-1, None, True, 1.0, "5", MOST_TOKENS + 1, 10**30, [], {}])
@pytest.mark.parametrize("key", ["prompt_tokens", "completion_tokens", "total_tokens"])
def test_a_count_that_cannot_be_is_unknown_and_not_zero(key, bad):
    raw = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2} | {key: bad}
    if key == "total_tokens" and bad is None:
        assert read_usage(raw) == Usage(1, 1, 0)
    else:
        assert read_usage(raw) is None


@pytest.mark.parametrize("raw", [None, {}, [], 5, {"prompt_tokens": 1}, {"total_tokens": 9}])
def test_half_a_report_is_none(raw):
    assert read_usage(raw) is None


@pytest.mark.parametrize("details", [None, [], {"cached_tokens": -5}, {"cached_tokens": "many"}])
def test_parts_that_cannot_be_are_left_out(details):
    assert read_usage({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": details}) == Usage(9, 1)


def test_a_part_is_never_more_than_its_whole():
    raw = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1000}}
    assert read_usage(raw) == Usage(9, 1, cache_read_tokens=9)


def test_an_effort_is_sent_as_the_endpoints_word_for_it_and_none_is_not_sent():
    turns = (UserTurn("go"),)
    assert json.loads(encode_request(CompletionRequest("", turns, effort="high")))["reasoning_effort"] == "high"
    assert "reasoning_effort" not in json.loads(encode_request(CompletionRequest("", turns)))
