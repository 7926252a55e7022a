"""What comes from outside becomes safe text of a bounded size, and what is missing is counted."""

from hypothesis import given
from hypothesis import strategies as st

from actors.tools.output import Capture, clean, foreign_kind, one_line

CHUNKS = st.lists(st.binary(max_size=12), max_size=12)


@given(CHUNKS, st.integers(0, 40))
def test_a_capture_keeps_head_and_tail_and_counts_the_rest(chunks, limit):
    capture = Capture(limit)
    for chunk in chunks:
        capture.feed(chunk)
    whole = b"".join(chunks)
    assert capture.left_out == max(len(whole) - limit, 0)
    if len(whole) <= limit:
        assert capture.text() == clean(whole)
    assert capture.text() == capture.text(), "asking changes nothing"


@given(st.text(alphabet="aé€🍸", max_size=60), st.integers(0, 40))
def test_the_cut_breaks_no_character_and_counts_what_it_drops(text, limit):
    data = text.encode()
    capture = Capture(limit)
    capture.feed(data)
    said = capture.text()
    assert "\ufffd" not in said
    if capture.left_out:
        head, _, rest = said.partition("\n[... ")
        lost, _, tail = rest.partition(" bytes left out ...]\n")
        assert text.startswith(head) and text.endswith(tail)
        assert len(head.encode()) + int(lost) + len(tail.encode()) == len(data)


def test_a_capture_of_much_holds_little():
    capture = Capture(1_000)
    for _ in range(100):
        capture.feed(b"x" * 100_000)
    assert capture.left_out == 10_000_000 - 1_000
    assert sum(len(held) for held in (capture._head, capture._tail)) < 200_000


@given(st.one_of(st.binary(), st.text(alphabet=st.characters(exclude_categories=()))))
def test_clean_text_can_be_encoded_and_holds_no_nul(raw):
    text = clean(raw)
    assert text.encode("utf-8").decode() == text
    assert "\0" not in text


def test_halves_of_a_character_are_joined_and_a_lone_one_is_replaced():
    assert clean("\ud83c\udf78") == "🍸"
    assert clean("a\ud83cb") == "a\ufffdb"
    assert clean(b"a\x97b") == "a\ufffdb"
    assert clean("plain") == "plain"


def test_a_name_stays_on_one_line():
    assert one_line("a\nb\r\x1b[2J\u2028c\udcff") == "a?b??[2J?c\ufffd"
    assert one_line("naïve file.txt") == "naïve file.txt"


def test_text_is_not_taken_for_something_else():
    for head in (b"", b"hello", "é".encode(), b"\xe9", b"PK"):
        assert foreign_kind(head) is None
    assert foreign_kind(b"\x1f\x8b\x08") == "a gzip archive"
