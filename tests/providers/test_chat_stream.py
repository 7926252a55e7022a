"""A streamed answer is whole or an error, and each call in it comes once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import Completion, ToolCall
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.chat_stream import StreamDecoder
from actors.providers.chat_wire import decode_completion
from actors.testing.model_script import Answer, SaidCall, make_reply

END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


def delta(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"delta": fields, "finish_reason": None}]}


def piece(arguments: str | None, *, name: str | None = None, **others: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **others}


def read(*chunks: Any) -> Completion:
    decoder = StreamDecoder()
    for chunk in chunks:
        decoder.feed(chunk if isinstance(chunk, str) else json.dumps(chunk))
    return decoder.finish()


def calls_of(*entries: Any) -> tuple[ToolCall, ...]:
    return read(*(delta(tool_calls=[entry]) for entry in entries), END, "[DONE]").calls


def failure_of(*chunks: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        read(*chunks)
    return caught.value


def test_usage_in_a_last_chunk_without_choices_counts():
    completion = read(delta(role="assistant"), delta(content="he"), delta(content="y"), END, USAGE, "[DONE]")
    assert completion == Completion("hey", usage=Usage(5, 3), model="m", finish_reason="stop")


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="half a sen")],
        [delta(content="all of it"), END],
        [delta(content="no reason"), "[DONE]"],
        [],
        ["[DONE]"],
        [END, "[DONE]"],
    ],
)
def test_a_stream_without_reason_or_end_mark_or_anything_at_all_is_malformed(chunks):
    assert failure_of(*chunks).kind is ProviderErrorKind.malformed


def test_a_broken_stream_tells_the_usage_it_had():
    assert failure_of(delta(content="a"), END, USAGE).usage == Usage(5, 3)
    assert failure_of(USAGE, {"error": {"code": 503, "message": "gone"}}).usage == Usage(5, 3)
    assert failure_of(USAGE, "{nonsense").usage == Usage(5, 3)


def test_an_error_in_the_middle_is_that_error():
    error = failure_of(delta(content="a"), {"error": {"code": 529, "message": "overloaded"}})
    assert (error.kind, error.status) == (ProviderErrorKind.server, 529)


@pytest.mark.parametrize(
    "chunk",
    [
        "nonsense",
        [],
        {"choices": ["a"]},
        {"choices": {"a": 1}},
        delta(content=5),
        delta(tool_calls={}),
        {"choices": [{"delta": 1}]},
    ],
)
def test_garbage_in_the_middle_is_malformed(chunk):
    assert failure_of(delta(content="a"), chunk, END, "[DONE]").kind is ProviderErrorKind.malformed


def test_pieces_of_two_calls_find_their_own():
    assert calls_of(
        piece('{"a"', name="x", index=0, id="i"),
        piece('{"b"', name="y", index=1, id="i"),
        piece(": 1}", index=0),
        piece(": 2}", index=1),
    ) == (ToolCall("x", '{"a": 1}'), ToolCall("y", '{"b": 2}'))


def test_bad_ids_lose_no_call():
    said = [("", "a"), ("x", "b"), ("x", "c")]
    entries = [piece("{}", name=name, index=index, id=id) for index, (id, name) in enumerate(said)]
    assert calls_of(*entries) == (ToolCall("a"), ToolCall("b"), ToolCall("c"))


def test_a_call_told_again_at_the_end_is_one_call():
    whole = piece('{"a": 1}', name="x", index=0)
    chunks = [delta(tool_calls=[piece('{"a": 1}', name="x", index=0)]), delta(tool_calls=[whole])]
    last = {"choices": [{"message": {"tool_calls": [whole]}, "delta": {}, "finish_reason": "tool_calls"}]}
    assert read(*chunks, last, "[DONE]").calls == (ToolCall("x", '{"a": 1}'),)


def test_calls_without_an_index_or_all_with_the_same_one_are_told_apart():
    assert calls_of(piece('{"a":', name="x"), piece("1}"), piece("{}", name="y")) == (
        ToolCall("x", '{"a":1}'),
        ToolCall("y", "{}"),
    )
    assert calls_of(piece('{"a":1}', name="x", index=0), piece('{"a":2}', name="x", index=0)) == (
        ToolCall("x", '{"a":1}'),
        ToolCall("x", '{"a":2}'),
    )


def test_a_call_that_begins_without_a_name_is_malformed():
    assert failure_of(delta(tool_calls=[piece("{}", index=0)])).kind is ProviderErrorKind.malformed


def test_halves_of_a_character_in_two_chunks_become_one():
    halves = (delta(content="\ud83c"), delta(content="\udf78"))
    completion = read(*halves, END, "[DONE]")
    assert completion.text == "\U0001f378"


def test_nothing_after_the_end_mark_counts():
    assert read(delta(content="a"), END, "[DONE]", delta(content="b")).text == "a"


@given(
    text=st.none() | st.text(max_size=20),
    calls=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["{}", '{"x": 1}'])), max_size=4),
)
def test_a_stream_says_what_the_answer_in_one_piece_says(text, calls):
    answer = Answer(text=text, calls=tuple(SaidCall(name, arguments, "same") for name, arguments in calls))
    whole = decode_completion(b"".join(make_reply(answer, {"model": "m"}, 10, 1).pieces))
    request = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    events = b"".join(make_reply(answer, request, 10, 1).pieces).decode().split("\n\n")
    streamed = read(*(event.removeprefix("data: ") for event in events if event))
    assert (streamed.text or None, streamed.calls) == (whole.text or None, whole.calls)
    assert (streamed.usage, streamed.finish_reason) == (whole.usage, whole.finish_reason)
