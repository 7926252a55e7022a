"""Requests are known by what is in them, and lines of a recording come back as they were or not at all."""

import subprocess
import sys
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import (
    AssistantTurn,
    Completion,
    CompletionRequest,
    Estimate,
    ResultsTurn,
    ToolCall,
    ToolSpec,
    UserTurn,
)
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.exchange_codec import (
    BadLine,
    Exchange,
    Start,
    closest,
    decode_line,
    encode_line,
    fingerprint,
    what_differs,
)

TOOL = ToolSpec("probe", "look", {"type": "object", "properties": {"b": {}, "a": {}}})
CALLS = (ToolCall("probe", "{}"),)
ASKED = CompletionRequest(
    "system",
    (UserTurn("goal"), AssistantTurn(None, CALLS), ResultsTurn(("seen",))),
    (TOOL,),
    "m",
    100,
)

ANSWERS = st.builds(
    Completion,
    text=st.none() | st.text(max_size=8),
    calls=st.lists(st.builds(ToolCall, st.text(max_size=4), st.text(max_size=8)), max_size=3).map(tuple),
    usage=st.none() | st.builds(Usage, *[st.integers(0, 2**63 - 1)] * 7),
    model=st.none() | st.text(max_size=4),
    finish_reason=st.none() | st.text(max_size=4),
    first_token_seconds=st.none() | st.floats(0, 1e6),
)
ERRORS = st.builds(
    ProviderError,
    st.sampled_from(ProviderErrorKind),
    st.text(max_size=8),
    status=st.none() | st.integers(100, 599),
    retry_after=st.none() | st.floats(0, 1e6),
    usage=st.none() | st.builds(Usage, *[st.integers(0, 9)] * 7),
)


def exchange(came: Completion | ProviderError, asked: CompletionRequest = ASKED, **fields: Any) -> Exchange:
    return Exchange(1, fingerprint(asked), Estimate(5, 6, 2), None, came, **fields)


def facts(error: ProviderError) -> tuple[Any, ...]:
    return error.kind, error.message, error.status, error.retry_after, error.usage


# ── the key ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "other",
    [
        attrs.evolve(ASKED, system="System"),
        attrs.evolve(ASKED, turns=ASKED.turns[:2]),
        attrs.evolve(ASKED, turns=(*ASKED.turns[:2], ResultsTurn(("seen", "")))),
        attrs.evolve(ASKED, turns=(ASKED.turns[0], AssistantTurn("", CALLS), ASKED.turns[2])),
        attrs.evolve(ASKED, turns=(ASKED.turns[0], AssistantTurn(None, (ToolCall("probe", "{ }"),)), ASKED.turns[2])),
        # The same text in another kind of turn.
        attrs.evolve(ASKED, turns=(AssistantTurn("goal"), *ASKED.turns[1:])),
        attrs.evolve(ASKED, tools=()),
        attrs.evolve(ASKED, tools=(attrs.evolve(TOOL, description="Look"),)),
        attrs.evolve(ASKED, model=None),
        attrs.evolve(ASKED, model="n"),
        attrs.evolve(ASKED, max_output_tokens=99),
    ],
    ids=range(11),
)
def test_a_request_that_differs_in_anything_has_another_key(other: CompletionRequest) -> None:
    assert fingerprint(other).key != fingerprint(ASKED).key
    # Only the limit is no content: an estimate is found again after it was clamped.
    assert (fingerprint(other).content == fingerprint(ASKED).content) == (other.max_output_tokens == 99)


def test_a_key_does_not_depend_on_the_order_of_a_schema_or_on_the_class_of_its_mapping() -> None:
    turned = {"properties": MappingProxyType({"a": {}, "b": {}}), "type": "object"}
    same = attrs.evolve(ASKED, tools=(ToolSpec("probe", "look", MappingProxyType(turned)),))
    assert fingerprint(same) == fingerprint(ASKED)


def test_a_key_is_the_same_in_every_process_and_of_any_text() -> None:
    code = (
        "from actors.agents.ports import *; from actors.providers.exchange_codec import fingerprint\n"
        "print(fingerprint(CompletionRequest('\\ud800é', (UserTurn('\\x00'),))).key)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = fingerprint(CompletionRequest("\ud800é", (UserTurn("\x00"),)))
    assert other.stdout.strip() == here.key
    # Recordings that people keep must stay readable: this one is as old as the format.
    assert here.key == "5253f8f19845a6af504a70da96e92ae2"


# ── what differs ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"system": "other"}, ["the system text differs"]),
        ({"tools": ()}, ["the tools differ"]),
        ({"turns": (UserTurn("aim"), *ASKED.turns[1:])}, ["turn 1 of 3 differs (the runtime's text)"]),
        ({"turns": (*ASKED.turns[:2], ResultsTurn(("new",)))}, ["turn 3 of 3 differs (results of calls)"]),
        (
            {"turns": (ASKED.turns[0], AssistantTurn("x"), UserTurn("y"))},
            ["turn 2 of 3 differs (the model's own turn)"],
        ),
        ({"turns": ASKED.turns[:1]}, ["it has 1 turns and not 3"]),
        ({"model": None}, ["the model is None and not 'm'"]),
        ({"max_output_tokens": 7}, ["max_output_tokens is 7 and not 100"]),
        ({"effort": "high"}, ["the effort differs"]),
        ({}, []),
        (
            {"system": "other", "model": "n", "max_output_tokens": 7},
            ["the system text differs", "the model is 'n' and not 'm'"],
        ),
    ],
)
def test_what_differs_is_told_by_its_part(changed: dict[str, Any], told: list[str]) -> None:
    assert what_differs(fingerprint(attrs.evolve(ASKED, **changed)), fingerprint(ASKED)) == told


def line_of(found: tuple[int, Any] | None) -> int | None:
    return None if found is None else found[0]


def test_the_closest_request_shares_most_turns_then_most_parts() -> None:
    def at(line: int, **changed: Any) -> tuple[int, Any]:
        return line, fingerprint(attrs.evolve(ASKED, **changed))

    asked = fingerprint(ASKED)
    other_result = (*ASKED.turns[:2], ResultsTurn(("other",)))
    assert line_of(closest(asked, [at(1, turns=(UserTurn("x"),)), at(2, turns=other_result, system="s")])) == 2
    assert line_of(closest(asked, [at(1, turns=other_result, system="s"), at(2, turns=other_result)])) == 2
    assert line_of(closest(asked, [at(1, max_output_tokens=1), at(2, max_output_tokens=2)])) == 1
    assert closest(asked, []) is None


# ── lines ───────────────────────────────────────────────────────────────────


@given(came=ANSWERS)
def test_an_answer_comes_back_as_it_was(came: Completion) -> None:
    line = encode_line(exchange(came))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode_line(line) == exchange(came)


def test_no_text_is_not_an_empty_text_and_no_usage_is_not_zero() -> None:
    for came in (Completion(None), Completion(""), Completion("x", usage=Usage()), Completion("x", finish_reason="")):
        back = decode_line(encode_line(exchange(came)))
        assert isinstance(back, Exchange) and back.came == came


@given(error=ERRORS)
def test_an_error_comes_back_as_it_was(error: ProviderError) -> None:
    back = decode_line(encode_line(exchange(error)))
    assert isinstance(back, Exchange) and isinstance(back.came, ProviderError)
    assert facts(back.came) == facts(error)
    assert back.came is not error


def test_half_a_character_is_replaced_as_the_loop_does_it_and_the_rest_is_kept() -> None:
    back = decode_line(encode_line(exchange(Completion("a\ud800é", (ToolCall("t", "\udfff"),)))))
    assert isinstance(back, Exchange)
    assert back.came == Completion("a\ufffdé", (ToolCall("t", "\ufffd"),))


def test_of_a_request_only_digests_and_the_beginning_of_its_last_turn_are_written() -> None:
    asked = attrs.evolve(ASKED, system="SECRET-1", turns=(UserTurn("SECRET-2"), UserTurn("x" * 500 + "SECRET-3")))
    line = encode_line(exchange(Completion("a"), asked))
    assert b"SECRET" not in line and b"x" * 160 in line and b"x" * 161 not in line


LINE = encode_line(exchange(Completion("a")))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (LINE[:-20], "truncated"),
        (LINE.replace(b'"asked":1', b'"asked":-1'), "$.asked"),
        (LINE.replace(b'"asked":1', b'"asked":true'), "$.asked"),
        (LINE.replace(b'"asked":1', b'"asked":1,"more":2'), "more"),
        (LINE.replace(b'"calls":[]', b'"calls":[["a"]]'), "$.answer.calls[0]"),
        (LINE.replace(b'"key":"', b'"key":"X'), "$.key"),
        (LINE.replace(b'"line":"exchange"', b'"line":"other"'), "$.line"),
        (LINE.replace(b'"answer":', b'"error":null,"x":'), "x"),
        (LINE.replace(b',"answer":{"text":"a"', b',"answer":null,"was":{"text":"a"'), "was"),
        (LINE.split(b',"answer"')[0] + b"}\n", "an answer or an error"),
        (encode_line(Start("p", None, "1")).replace(b'"format":2', b'"format":3'), "format 3"),
        (b"[" * 100_000, ""),
        (b"\xff\n", ""),
        (b"\n", ""),
        (b"null\n", ""),
    ],
    ids=range(15),
)
def test_what_is_no_line_is_refused_with_its_place(line: bytes, why: str) -> None:
    with pytest.raises(BadLine) as caught:
        decode_line(line)
    assert why in str(caught.value)


def test_an_effort_is_part_of_what_a_request_is_known_by_and_none_changes_no_old_key():
    plain = CompletionRequest("s", (UserTurn("go"),))
    assert fingerprint(attrs.evolve(plain, effort="high")).key != fingerprint(plain).key
    # As recordings of before there was an effort have it.
    assert fingerprint(plain).key == "960c337d61ffba9d608cddc38235027f"
