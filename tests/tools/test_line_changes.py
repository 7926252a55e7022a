"""How the lines of a file change: right for every two contents, short for edits as people make them, and never dear."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.agents.edits import MOST_HUNK_CHARS, Edit
from actors.testing.effort import count_calls
from actors.tools import line_changes
from actors.tools.hunks import applied, parsed
from actors.tools.line_changes import MOST_BYTES, MOST_EFFORT, MOST_LINES, edit_of

_HEADER = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n")
CONTENTS = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "é\n"]), max_size=14).map("".join)
ENDS = st.sampled_from(["", "", "a", "z"])


def by_numbers(before: str, hunk: str) -> str:
    """Apply a hunk by its numbers alone, as a program does that is too simple to be wrong."""
    old = before.split("\n")
    old = [line + "\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    new: list[str] = []
    done = 0
    lines = hunk.split("\n")[:-1]
    for place, line in enumerate(lines):
        if header := _HEADER.fullmatch(line + "\n"):
            start, count = int(header[1]), int(header[2])
            first = start - 1 if count else start
            new += old[done:first]
            done = first
            assert len(new) == (int(header[3]) - 1 if int(header[4]) else int(header[3]))
            continue
        if line.startswith("\\"):
            continue
        unended = place + 1 < len(lines) and lines[place + 1].startswith("\\")
        text = line[1:] + ("" if unended else "\n")
        if line[0] in " -":
            assert old[done] == text
            done += 1
        if line[0] in " +":
            new.append(text)
    return "".join(new + old[done:])


@given(CONTENTS, ENDS, CONTENTS, ENDS)
@example("a\n", "a", "a\n", "a")
@example("a\n", "", "a\na\n", "")
@example("a\n" * 9, "", "a\n" * 8, "a")
def test_a_hunk_makes_the_one_of_the_other_and_its_lines_are_those_that_are_counted(
    old: str, old_end: str, new: str, new_end: str
) -> None:
    before, after = old + old_end, new + new_end
    edit = edit_of(before.encode(), after.encode())
    assert edit.hunk is not None
    assert by_numbers(before, edit.hunk) == after
    told = edit.hunk.split("\n")
    assert edit.lines_added == sum(line.startswith("+") for line in told)
    assert edit.lines_removed == sum(line.startswith("-") for line in told)
    assert (edit.hunk == "") == (before == after)
    # Each change stands with at most three lines around it: no run of more than six in between.
    marks = "".join(line[:1] for line in told if not line.startswith("\\"))
    assert not re.search(r"@ {4}|[-+] {7}|[-+] {4}(?:@|$)", marks)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_patch_file_takes_every_hunk_of_a_text_whose_lines_differ(kept: list[int], data: st.DataObject) -> None:
    before = [f"line {place} is {each}\n" for place, each in enumerate(kept)]
    after = [line if data.draw(st.booleans()) else f"{line[:-1]}!\n" for line in before]
    hunk = edit_of("".join(before).encode(), "".join(after).encode()).hunk
    if hunk:
        assert applied("".join(before), parsed(hunk, ("f",))) == "".join(after)


def test_an_edit_in_a_long_file_is_told_with_the_lines_around_it_only() -> None:
    lines = [f"{place}\n" for place in range(1_000)]
    changed = [*lines[:500], "new\n", "more\n", *lines[501:]]
    edit = edit_of("".join(lines).encode(), "".join(changed).encode())
    body = " 497\n 498\n 499\n-500\n+new\n+more\n 501\n 502\n 503\n"
    assert edit == Edit(2, 1, f"@@ -498,7 +498,8 @@\n{body}")


def test_edits_at_both_ends_of_a_source_as_people_write_it_are_told_as_they_are() -> None:
    """A fifth of its lines are alike, as blanks and brackets are."""
    lines = [f"    line {place}\n" if place % 5 else "\n" for place in range(5_000)]
    changed = ["# new\n", *lines[:2_000], *lines[2_001:], "# last\n"]
    edit = edit_of("".join(lines).encode(), "".join(changed).encode())
    assert (edit.lines_added, edit.lines_removed) == (2, 1)
    assert edit.hunk is not None and edit.hunk.count("@@ -") == 3 and len(edit.hunk.splitlines()) < 30
    assert by_numbers("".join(lines), edit.hunk) == "".join(changed)


def test_a_new_file_and_an_emptied_one() -> None:
    assert edit_of(None, b"a\nb") == Edit(2, 0, "@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n")
    assert edit_of(b"a\n", b"") == Edit(0, 1, "@@ -1,1 +0,0 @@\n-a\n")
    assert edit_of(None, b"") == Edit(0, 0, "")


@pytest.mark.parametrize("data", [b"\xff\n", b"a\0b\n", "ü\n".encode("latin-1"), b"\xed\xa0\x80\n"])
def test_what_is_no_text_has_its_lines_counted_and_no_hunk(data: bytes) -> None:
    assert edit_of(b"a\n", data) == Edit(1, 1, None)
    assert edit_of(data, b"a\n") == Edit(1, 1, None)


def test_a_hunk_that_is_too_long_is_not_kept_and_one_that_just_fits_is() -> None:
    head = len("@@ -0,0 +1,1 @@\n+\n")
    fits = "x" * (MOST_HUNK_CHARS - head)
    assert len(edit_of(None, f"{fits}\n".encode()).hunk or "") == MOST_HUNK_CHARS
    assert edit_of(None, f"{fits}x\n".encode()) == Edit(1, 0, None)


def test_a_file_that_is_too_large_is_not_looked_at() -> None:
    assert edit_of(b"a\n", b"b" * (MOST_BYTES + 1)) == Edit() == edit_of(b"b" * (MOST_BYTES + 1), b"a\n")


def test_more_lines_than_are_compared_count_as_replaced() -> None:
    before, after = b"x\n" + b"a\n" * MOST_LINES + b"y\n", b"z\n" + b"a\n" * MOST_LINES
    assert edit_of(before, after) == Edit(MOST_LINES + 1, MOST_LINES + 2)
    # What is equal at the ends is none of them.
    assert edit_of(before, before + b"z\n").lines_added == 1


HOSTILE = {
    "one line": ("x\n", "x\nx\n"),
    "two lines, turned": ("x\ny\n", "y\nx\nz\n"),
    "a few lines": ("a\nb\nc\n", "c\nb\na\n"),
    "blanks": ("\n\n{0}\n", "{0}\n\n\n\n"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_texts_that_are_made_to_be_dear_cost_no_more_than_their_length(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effort inside is bounded by a budget, which is counted here; all else is counted in calls."""
    spent: list[int] = []
    search = line_changes.SequenceMatcher.find_longest_match

    def counting(self: line_changes._Matcher, alo: int, ahi: int, blo: int, bhi: int) -> object:
        spent.append(self._costs[ahi] - self._costs[alo])
        return search(self, alo, ahi, blo, bhi)

    monkeypatch.setattr(line_changes.SequenceMatcher, "find_longest_match", counting)
    calls = []
    for count in (2_000, 20_000):
        spent.clear()
        before, after = (
            "".join(each.format(place) for place in range(count)).encode() for each in HOSTILE[kind]
        )
        with count_calls() as made:
            edit = edit_of(before, b"begin\n" + after + b"end\n")
        assert sum(spent) <= MOST_EFFORT
        calls.append(made.made)
        lines = before.count(b"\n"), after.count(b"\n") + 2
        assert edit.lines_added is not None and edit.lines_removed is not None
        assert edit.lines_added - edit.lines_removed == lines[1] - lines[0]
    assert calls[1] < 15 * calls[0] + MOST_EFFORT, calls


def test_what_is_left_when_the_effort_is_used_up_counts_as_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = b"1\na\n2\nb\n3\n", b"1\nb\n2\na\n3\n"
    assert edit_of(before, after).lines_added == 2
    monkeypatch.setattr(line_changes, "MOST_EFFORT", 0)
    edit = edit_of(before, after)
    assert (edit.lines_added, edit.lines_removed) == (3, 3)
    assert edit.hunk is not None and by_numbers(before.decode(), edit.hunk) == after.decode()


def test_a_hunk_whose_lines_went_with_a_credential_is_not_kept() -> None:
    edit = edit_of(b"key one\nkey two\nx\n", b"key one\nkey two\ny\n")
    assert edit.hunk is not None
    assert edit.without_secrets(lambda text: text.replace("one", "[secret]")).hunk == edit.hunk.replace("one", "[secret]")
    assert edit.without_secrets(lambda text: text.replace("one\n key two", "[secret]")) == Edit(1, 1, None)
