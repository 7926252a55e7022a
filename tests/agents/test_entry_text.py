"""What comes in from outside can always be written down, and has a bound."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.entry_text import bounded, clean, clean_value, is_seen

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=40) | st.text(
    st.sampled_from("a\x00\ud83d\ude00é"), max_size=12
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(ANY_TEXT)
def test_cleaned_text_has_an_encoding_and_no_nul(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.encode().decode() == cleaned
    assert "\x00" not in cleaned
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_good_text_is_left_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_the_halves_of_one_character_are_joined() -> None:
    assert clean("a\ud83d\ude00b") == "a😀b"


@pytest.mark.parametrize("text", ["a b", "é", "漢字", "한국", "\u2764\ufe0f", "👩‍🚀".replace("\u200d", ""), ""])
def test_text_that_a_person_can_read_is_seen(text: str) -> None:
    assert is_seen(text)


@pytest.mark.parametrize("letter", "\n\t\x1b\x7f\u00a0\u00ad\u034f\u115f\u1160\u200b\u202e\u2028\u2800\u3164\uffa0\ufe00\ufeff\U000e0041\U000e0101")
def test_what_takes_no_room_or_looks_like_a_blank_is_not_seen(letter: str) -> None:
    assert not is_seen(f"a{letter}b")


def test_a_lone_half_becomes_a_replacement_character() -> None:
    assert clean("a\ud83db") == "a\ufffdb"
    assert clean("\x00") == "\ufffd"


@given(ANY_JSON)
def test_a_cleaned_value_can_be_written_anywhere(value: Any) -> None:
    cleaned = clean_value(value)
    json.dumps(cleaned, ensure_ascii=False).encode()
    assert clean_value(cleaned) == cleaned


@given(st.text(max_size=300), st.integers(1, 100))
def test_bounded_text_keeps_head_and_tail_and_says_what_is_missing(text: str, limit: int) -> None:
    short = bounded(text, limit)
    if len(text) <= limit:
        assert short == text
        return
    assert len(short) <= limit + 60
    assert f"[... {len(text) - limit} characters left out ...]" in short
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    assert short.startswith(text[:head]) and short.endswith(text[len(text) - tail :])
