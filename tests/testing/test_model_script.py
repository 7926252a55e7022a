"""What the scripted endpoint says, bills and refuses."""

import json
from typing import Any

import pytest

from actors.errors import ConfigError
from actors.testing.model_script import Answer, Fault, SaidCall, conversation_problem, make_reply, read_answers


def reply_of(answer: Answer, request: dict[str, Any] | None = None) -> dict[str, Any]:
    return json.loads(b"".join(make_reply(answer, request or {}, 40, 1).pieces))


def test_what_is_told_is_billed_and_reported():
    answer = Answer(text="x", prompt_tokens=100, completion_tokens=20, cached_tokens=60, reasoning_tokens=5)
    assert reply_of(answer)["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    bill = make_reply(answer, {}, 40, 1).bill
    assert (bill.prompt_tokens, bill.completion_tokens) == (100, 20)


def test_the_output_limit_is_honoured_in_text_bill_and_reason():
    reply = reply_of(Answer(text="x" * 400, completion_tokens=100), {"max_tokens": 30})
    assert reply["usage"]["completion_tokens"] == 30
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["message"]["content"] == "x" * 120


def test_an_endpoint_may_ignore_the_output_limit():
    reply = reply_of(Answer(text="x", completion_tokens=100, ignore_max_tokens=True), {"max_tokens": 30})
    assert reply["usage"]["completion_tokens"] == 100
    assert reply["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("usage", [None, -1, {"prompt_tokens": -5}, {"prompt_tokens": 10**30}])
def test_a_report_may_be_anything_while_the_bill_stays(usage):
    answer = Answer(text="x", prompt_tokens=7, completion_tokens=2, usage=usage)
    assert reply_of(answer)["usage"] == usage
    assert make_reply(answer, {}, 40, 1).bill.prompt_tokens == 7
    assert "usage" not in reply_of(Answer(text="x", report_usage=False))


@pytest.mark.parametrize(("answer", "billed"), [(Answer(status=429), 0), (Answer(fault=Fault.drop), 0)])
def test_what_never_ran_bills_nothing(answer, billed):
    bill = make_reply(answer, {}, 40, 1).bill
    assert bill.prompt_tokens + bill.completion_tokens == billed


@pytest.mark.parametrize("fault", [Fault.hang, Fault.stall, Fault.cut, Fault.no_end, Fault.malformed])
def test_what_ran_bills_in_full_even_when_nobody_reads_it(fault):
    bill = make_reply(Answer(text="x", prompt_tokens=7, completion_tokens=2, fault=fault), {}, 40, 1).bill
    assert (bill.prompt_tokens, bill.completion_tokens) == (7, 2)


def test_usage_stands_in_a_stream_only_when_it_was_asked_for():
    plain = make_reply(Answer(text="x"), {"stream": True}, 40, 1).pieces
    asked = make_reply(Answer(text="x"), {"stream": True, "stream_options": {"include_usage": True}}, 40, 1).pieces
    assert len(asked) == len(plain) + 1
    last = json.loads(asked[-2].removeprefix(b"data: "))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 1
    assert plain[-1] == asked[-1] == b"data: [DONE]\n\n"


# ── the strict endpoint ─────────────────────────────────────────────────────


def call(id: Any, name: str = "t", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(*calls: Any, content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str, content: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


USER = {"role": "user", "content": "go"}
ASSISTANT = {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "s"}, USER, ASSISTANT, USER],
        [USER, said(call("a"), call("b")), result("b"), result("a")],
        [USER, said(call("a")), result("a"), said(call("b")), result("b"), USER],
    ],
)
def test_a_conversation_that_pairs_and_alternates_is_taken(messages):
    assert conversation_problem(messages) is None


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "no messages"),
        ("x", "no messages"),
        ([5], "unknown role None"),
        ([ASSISTANT], "assistant cannot follow start"),
        ([USER, USER], "user cannot follow user"),
        ([USER, ASSISTANT], "the last message is the assistant's"),
        ([USER, ASSISTANT, ASSISTANT], "assistant cannot follow assistant"),
        ([USER, {"role": "system", "content": "s"}], "system cannot follow user"),
        ([{"role": "user", "content": " "}], "the message is empty"),
        ([USER, said()], "the message is empty"),
        ([USER, result("a")], "no call waits for it"),
        ([USER, said(call("a"))], "have no result"),
        ([USER, said(call("a")), USER], "have no result"),
        ([USER, said(call("a")), result("a"), result("a")], "no call waits for it"),
        ([USER, said(call("a"), call("a"))], "was used before"),
        ([USER, said(call(""))], "is empty or was used before"),
        ([USER, said(call("a")), result("a"), said(call("a"))], "was used before"),
        ([USER, said(call("a")), result("a", "")], "the result is empty"),
        ([USER, said(call("a", name="a b"))], "no proper name"),
        ([USER, said(call("a", arguments='{"x":'))], "no JSON object"),
        ([USER, said(call("a", arguments="[]"))], "no JSON object"),
    ],
)
def test_a_strict_endpoint_says_what_is_wrong(messages, says):
    problem = conversation_problem(messages)
    assert problem is not None
    assert says in problem


# ── script files ────────────────────────────────────────────────────────────


def test_a_script_file_reaches_every_field():
    text = json.dumps(
        [
            {"text": "a", "calls": [["t", {"x": 1}], ["t", "{", ""]], "prompt_tokens": 5, "usage": None, "when": "w"},
            {"status": 429, "headers": {"retry-after": "1"}, "fault": "cut", "delay": 0.5},
        ]
    )
    assert read_answers(text, "script") == [
        Answer(
            text="a",
            calls=(SaidCall("t", '{"x": 1}'), SaidCall("t", "{", "")),
            prompt_tokens=5,
            usage=None,
            when="w",
        ),
        Answer(status=429, headers=(("retry-after", "1"),), fault=Fault.cut, delay=0.5),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"txt": 1}]', "s[0].txt: is unknown"),
        ('[{"fault": "odd"}]', "s[0].fault: must be one of none, hang"),
        ('[{"status": 99}]', "s[0].status: must be an HTTP status"),
        ('[{"calls": [["a"]]}]', "s[0].calls[0]: must be [name, arguments]"),
        ('[{"calls": [["a", {}, 5]]}]', "s[0].calls[0]: name and id must be texts"),
        ('[{"headers": []}]', "s[0].headers: must be an object"),
    ],
)
def test_a_script_file_that_is_wrong_is_refused_with_its_place(text, says):
    with pytest.raises(ConfigError) as caught:
        read_answers(text, "s")
    assert says in str(caught.value)
