"""Bounds are judged before parsing, and what is let through is plain JSON with every key once."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.agents.strict_json import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_ENTRIES,
    CodecRefused,
    RefusalKind,
    carriable,
    opaque,
    parse,
)
from actors.errors import Refused


def verdict(text: str | bytes) -> RefusalKind | None:
    try:
        parse(text)
    except CodecRefused as refused:
        return refused.kind
    return None


def nested(depth: int, left: str = "[", right: str = "]") -> str:
    return left * depth + right * depth


def test_there_are_ten_kinds_of_refusal() -> None:
    assert {kind.value for kind in RefusalKind} == {
        "input_too_large", "depth_exceeded", "collection_too_large", "malformed_json", "unknown_field",
        "unknown_variant", "missing_field", "invalid_scalar", "type_mismatch", "policy_violation",
    }  # fmt: skip


def test_a_refusal_names_its_kind_and_its_place() -> None:
    refused = CodecRefused(RefusalKind.missing_field, "usage.turns", "is required")
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.path) == ("missing_field", "usage.turns")
    assert str(refused) == "usage.turns: is required (missing_field)"


def test_nesting_ends_at_its_bound() -> None:
    assert verdict(nested(MOST_DEPTH)) is None
    assert verdict(nested(MOST_DEPTH + 1)) is RefusalKind.depth_exceeded
    assert verdict('{"a":' * MOST_DEPTH + "1" + "}" * MOST_DEPTH) is None
    assert verdict('{"a":' * (MOST_DEPTH + 1) + "1" + "}" * (MOST_DEPTH + 1)) is RefusalKind.depth_exceeded


def test_a_container_ends_at_its_bound_and_each_is_counted_for_itself() -> None:
    full = json.dumps(list(range(MOST_ENTRIES)))
    assert verdict(full) is None
    assert verdict(f"[{full},{full}]") is None
    assert verdict(json.dumps(list(range(MOST_ENTRIES + 1)))) is RefusalKind.collection_too_large
    assert verdict(json.dumps({str(n): n for n in range(MOST_ENTRIES)})) is None
    assert verdict(json.dumps({str(n): n for n in range(MOST_ENTRIES + 1)})) is RefusalKind.collection_too_large


def test_a_document_ends_at_its_bound_in_bytes_not_characters() -> None:
    assert verdict('"' + "a" * (MOST_BYTES - 2) + '"') is None
    assert verdict('"' + "a" * (MOST_BYTES - 1) + '"') is RefusalKind.input_too_large
    assert verdict('"' + "\N{EURO SIGN}" * (MOST_BYTES // 3) + '"') is RefusalKind.input_too_large


@pytest.mark.parametrize("tail", ["", "}", "nonsense", "\x00"])
def test_bounds_are_judged_before_the_text_is_parsed(tail: str) -> None:
    assert verdict("[" * 100_000 + tail) is RefusalKind.depth_exceeded
    assert verdict("[" + "0," * 2_000 + tail) is RefusalKind.collection_too_large
    assert verdict("x" * (MOST_BYTES + 1) + tail) is RefusalKind.input_too_large


def test_brackets_and_commas_in_strings_are_no_structure() -> None:
    for inside in ("[" * 200, "," * 2000, '\\"' + "[" * 200, "\\\\" * 3 + "{" * 200, "\\\\\\\"" + "[" * 200):
        assert verdict(f'["{inside}"]') is None
    # Behind an escaped backslash the quote ends the string.
    assert verdict('["\\\\",' + "[" * 200) is RefusalKind.depth_exceeded


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "]", "[}", "[1,]", '{"a":1,}', '{"a"}', "{a:1}", "'a'", "01", "+1", ".5", "1.", "0x1", "nul",
        "NaN", "Infinity", "-Infinity", "[NaN]", "1 2", "{} {}", "{}x", "\ufeff{}", '"\n"', '"a', '"\\x"', '"\\u12"',
        "\ud800", '"\udfff"', b"\xff", b'"\xed\xa0\x80"', b"{\x00}", "{}\x00",
    ],
)  # fmt: skip
def test_what_is_no_json_is_malformed(text: str | bytes) -> None:
    assert verdict(text) is RefusalKind.malformed_json


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '[{"b":{"a":1,"a":1}}]', '{"a":1,"b":2,"a":3}', '{"":1,"":1}']
)
def test_a_key_that_stands_twice_is_malformed(text: str) -> None:
    assert verdict(text) is RefusalKind.malformed_json


def test_a_number_of_thousands_of_digits_is_read_as_far_out_of_range() -> None:
    assert abs(parse("-" + "9" * 100_000)) > 2**64
    assert parse("18446744073709551615") == 2**64 - 1


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(plain)
def test_what_json_writes_is_read_as_it_was(value: Any) -> None:
    assert parse(json.dumps(value)) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value
    assert opaque(value, "x") == value


@given(st.text(st.sampled_from('{}[],:"\\a1 -.eE\ud800')) | st.binary(max_size=30))
@example('"\\ud800"')
def test_every_input_is_read_or_refused(raw: str | bytes) -> None:
    try:
        parse(raw)
    except CodecRefused as refused:
        assert str(refused).encode()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("\ud800", "invalid_scalar"),
        ({"\ud800": 1}, "invalid_scalar"),
        ([{"a": ["\udfff"]}], "invalid_scalar"),
        (float("inf"), "invalid_scalar"),
        ([float("nan")], "invalid_scalar"),
        (2**64, "invalid_scalar"),
        (-(2**63) - 1, "invalid_scalar"),
        ({"a": {1}}, "type_mismatch"),
        ((1, 2), "type_mismatch"),
        ({1: 2}, "type_mismatch"),
    ],
)
def test_opaque_json_is_refused_where_other_readers_would_lose_it(value: Any, kind: str) -> None:
    with pytest.raises(CodecRefused) as caught:
        opaque(value, "arguments")
    assert caught.value.kind == kind
    assert caught.value.path.startswith("arguments")


def test_only_lone_surrogates_are_replaced() -> None:
    assert carriable("a\ud800b\N{GRINNING FACE}\udfff") == "a?b\N{GRINNING FACE}?"
    assert carriable("plain\x00") == "plain\x00"
