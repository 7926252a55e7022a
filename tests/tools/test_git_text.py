"""What git prints is read as it was meant, and what it would refuse is refused before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.tools.git_text import (
    Change,
    branch_problem,
    commits_of,
    filtered_by,
    message_problem,
    names_of,
    status_of,
    unquoted,
    where,
)


def quoted(data: bytes) -> str:
    """Quote as git does with core.quotePath, too simple to be wrong."""
    letters = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
    parts = [
        f"\\{letters[each]}" if each in letters else chr(each) if 32 <= each < 127 else f"\\{each:03o}" for each in data
    ]
    text = "".join(parts)
    return text if text == data.decode("latin-1") else f'"{text}"'


@given(st.binary(min_size=1, max_size=30).filter(lambda data: 0 not in data))
def test_a_name_of_any_bytes_is_read_as_it_is(data: bytes) -> None:
    # Git quotes what begins with a quote, so nothing plain is mistaken for quoted.
    assert unquoted(quoted(data)).encode("utf-8", "surrogateescape") == data


def test_names_are_read_one_a_line_and_once_each() -> None:
    assert names_of('a b.txt\n"new\\nline"\n"\\303\\251.txt"\na b.txt\n') == ["a b.txt", "new\nline", "é.txt"]


STATUS = """# branch.oid 1234567890abcdef1234567890abcdef12345678
# branch.head main
# branch.upstream origin/main
# branch.ab +2 -1
1 .M N... 100644 100644 100644 aaaa bbbb a b.txt
1 A. N... 000000 100644 100644 0000 bbbb "new\\nline"
u UU N... 100644 100644 100644 100644 a b c merged.txt
? untracked.txt
"""


def test_a_status_tells_the_branch_and_each_change() -> None:
    report = status_of(STATUS)
    assert where(report) == "on main, at 1234567890ab; 2 ahead, 1 behind"
    assert report.changes == (
        Change(" M", "a b.txt"),
        Change("A ", "new\nline"),
        Change("UU", "merged.txt"),
        Change("??", "untracked.txt"),
    )


def test_a_status_of_nothing_committed_or_of_no_branch_says_so() -> None:
    assert where(status_of("# branch.oid (initial)\n# branch.head main\n")) == "on main, nothing is committed yet"
    assert where(status_of("# branch.oid abc\n# branch.head (detached)\n")) == "on no branch, at abc"


def test_a_status_that_is_cut_is_read_as_far_as_it_goes() -> None:
    cut = "? a.txt\n[... 12 bytes left out ...]\n1 .M N... 1006\n? b.txt\n"
    assert [change.path for change in status_of(cut).changes] == ["a.txt", "b.txt"]


def test_commits_are_read_with_the_whole_of_their_words() -> None:
    listed = "\x01abc\np1 p2\nttt\nsubject\n\nbody\n\n\x01def\n\nuuu\nfirst\n"
    [second, first] = commits_of(listed)
    assert (second.name, second.parents, second.tree, second.message) == ("abc", "p1 p2", "ttt", "subject\n\nbody")
    assert (first.name, first.parents, first.message) == ("def", "", "first")


def test_every_filter_counts_and_what_names_none_does_not() -> None:
    told = 'a.bin: filter: lfs\nb.txt: filter: unspecified\n"odd: filter: x": filter: own\nc: filter: unset\nd: filter: set\n'
    assert filtered_by(told, []) == [("a.bin", "lfs"), ("odd: filter: x", "own")]
    # One may be called so.
    assert filtered_by(told, ["unset"])[-1] == ("c", "unset")


@pytest.mark.parametrize("name", ["main", "fix/a-b_c.d", "v1.0", "a" * 100])
def test_plain_names_are_names_of_branches(name: str) -> None:
    assert branch_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "-f", "--force", "a b", "a..b", "a//b", "a/", "/a", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "HEAD", "a~1",
        "a^", "a:b", "a@{1}", "a\n", "a*", "é", "a" * 101, "actors/x", "a/-b", "a\\b", "a[b",
    ],
)  # fmt: skip
def test_all_else_is_none(name: str) -> None:
    assert branch_problem(name) is not None


@pytest.mark.parametrize("message", ["", " \n", "a\x1b[31m", "a\x00b", "a" * 2_001, "a\rb", "\ud800"])
def test_what_cannot_be_said_of_a_commit(message: str) -> None:
    assert message_problem(message) is not None
    assert message_problem("subject\n\n\tbody: é") is None
