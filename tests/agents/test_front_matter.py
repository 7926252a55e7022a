"""The head of a Markdown file is read by the rules of YAML 1.2, and what is no plain key and value is refused."""


import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.front_matter import MOST_HEAD, read_front_matter
from actors.errors import ConfigError
from actors.testing.effort import does_not_run_away


def read(*lines, loose=False):
    return dict(read_front_matter("\n".join(("---", *lines, "---", "the text")), "a.md", loose=loose).values)


def wrong(*lines):
    with pytest.raises(ConfigError) as refused:
        read(*lines)
    [(place, text)] = refused.value.problems
    return place, text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"), ("yes", "yes"), ("no", "no"), ("12:30", "12:30"), ("010", 10), ("0o10", 8), ("0x1F", 31),
        ("1_000", "1_000"), ("+3", 3), ("1e3", 1000.0), (".5", 0.5), ("true", True), ("FALSE", False), ("tRue", "tRue"),
        ("~", None), ("null", None), ("", None), ("2026-01-01", "2026-01-01"), ("a b # c", "a b"), ("a#b", "a#b"),
        ("'it''s'", "it's"), ('"a\\n\\u00e4\\x41"', "a\näA"), ('"# no"', "# no"), ("'true'", "true"),
        ("[a, 'b, c', 3]", ("a", "b, c", 3)), ("[]", ()), ("[a,]", ("a",)), ("-x", "-x"), ("a:b", "a:b"), ("'a: b'", "a: b"),
    ],
)  # fmt: skip
def test_a_value_means_what_yaml_1_2_says(written, meant):
    value = read(f"key: {written}")["key"]
    assert (value, type(value)) == (meant, type(meant))


def test_lists_and_long_texts_are_read():
    assert read("a:", "  - x", "  # said", "", "  - 'y'", "b:", "- 1", "c: 2") == {"a": ("x", "y"), "b": (1,), "c": 2}
    assert read("a: |", "  one", "   two", "", "  three", "b: 1") == {"a": "one\n two\n\nthree\n", "b": 1}
    assert read("a: >-", "  one", "  two", "", "  three")["a"] == "one two\nthree"
    assert read("a: |-", "  # text")["a"] == "# text"


@pytest.mark.parametrize(
    ("lines", "line", "word"),
    [
        (("a: &x b",), 2, "anchor"), (("a: *x",), 2, "alias"), (("a: !!python/object b",), 2, "tag"),
        (("a: {b: c}",), 2, "table"), (("a:", "  b: c"), 3, "indented"), (("a: b", "a: c"), 3, "twice"),
        (("a: b: c",), 2, "colon"), (("a: b", "  c"), 3, "indented"), (("<<: x",), 2, "key"), (("- a",), 2, "key"),
        (("a: 'b",), 2, "quoted"), (('a: "b',), 2, "quoted"), (("a: 'b' c",), 2, "after its value"), (("a: [b",), 2, "]"),
        (("a: [[b]]",), 2, "lists in lists"), (("a:", "- [b]"), 3, "plain"), (("a:", "- - b"), 3, "plain"),
        (("a:", "- b", "  - c"), 4, "otherwise"), (("a: .inf",), 2, "finite"), (("a: 1e999",), 2, "large"),
        (("a: " + "9" * 5_000,), 2, "digits"), (('a: "\\q"',), 2, "escape"), (('a: "\\ud800"',), 2, "escape"),
        (("a: b\x00",), 2, "control"), (("a: \x1b[2J",), 2, "control"), (("a: b\u2028c: d",), 2, "control"),
        (("a: |2", "   b"), 2, "plain"), (("a: |", "   b", "  c"), 4, "less"), (("'a': b",), 2, "key"), (("? a",), 2, "key"),
        (tuple(f"k{n}: 1" for n in range(65)), 66, "more than"), (("a:", *(["- 1"] * 300)), 259, "more than"),
        (("a: [" + "1," * 300 + "]",), 2, "more than"), (("a:b",), 2, "key"),
    ],
)  # fmt: skip
def test_what_is_no_plain_key_and_value_is_refused_with_its_line(lines, line, word):
    place, text = wrong(*lines)
    assert place == f"a.md:{line}" and word in text


def test_a_head_that_never_closes_or_is_endless_is_refused():
    for text in ("---\na: b", "---\n" + "a: b\n" * MOST_HEAD + "---\n"):
        with pytest.raises(ConfigError, match=r"a\.md:1"):
            read_front_matter(text, "a.md")


def test_a_file_without_a_head_is_all_text():
    assert read_front_matter("hello\n---\na: b\n---\n", "a.md").body == "hello\n---\na: b\n---\n"
    front = read_front_matter("\ufeff---\r\na: b\r\n---\r\ntext\r\nmore", "a.md")
    assert (dict(front.values), front.body, front.lines) == ({"a": "b"}, "text\nmore", {"a": 2})


def test_files_of_other_tools_may_have_colons_in_their_texts():
    assert read("a: Use it when: x: y", loose=True)["a"] == "Use it when: x: y"


@given(st.text(alphabet="ab:-[]'\"|>#&*\\ \n\t0.", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        read_front_matter(f"---\n{text}\n---\n", "a.md")
    except ConfigError as error:
        assert all(place.startswith("a.md:") for place, _ in error.problems)


@pytest.mark.parametrize("bomb", ["[" * 8_000, "- " * 8_000, "'" * 8_001, '"' + "\\" * 8_000, ": " * 8_000, "a #" * 5_000])
def test_no_head_takes_long(bomb):
    refused = 0
    with does_not_run_away():
        for prefix in ("a: ", "a:\n- ", ""):
            try:
                read(f"{prefix}{bomb}")
            except ConfigError:
                refused += 1
    assert refused
