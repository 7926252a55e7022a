"""A diff is applied as it says, whole, in the one place that it fits; anything else is refused and named."""

import difflib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.errors import ToolFailed
from actors.testing.effort import does_not_run_away
from actors.tools import hunks
from actors.tools.hunks import MOST_CHARACTERS, MOST_HUNKS, Hunk, applied, parsed

NAMES = ("sub/a.py",)
TEN = "".join(f"line {number}\n" for number in range(1, 11))


def patched(text: str, patch: str, names: tuple[str, ...] = NAMES) -> str:
    return applied(text, parsed(patch, names))


def refusal(text: str, patch: str) -> str:
    with pytest.raises(ToolFailed) as caught:
        patched(text, patch)
    return str(caught.value)


# ── what fits ───────────────────────────────────────────────────────────────


def test_hunks_are_applied_where_their_lines_stand_and_not_where_their_numbers_say() -> None:
    patch = "@@ -90,2 +90,3 @@ def f():\n line 2\n-line 3\n+three\n+more\n@@ -1 +1 @@\n-line 9\n+nine\n"
    assert patched(TEN, patch) == TEN.replace("line 3", "three\nmore").replace("line 9", "nine")


@pytest.mark.parametrize(
    "head",
    [
        "--- a/sub/a.py\n+++ b/sub/a.py\n",
        "diff --git a/sub/a.py b/sub/a.py\nindex 123..456 100644\n--- a/sub/a.py\n+++ b/sub/a.py\n",
        "--- sub/a.py\t2026-01-01 00:00:00\n+++ ./sub/a.py\t2026-01-02 00:00:00\n",
        "\n",
        "",
    ],
)
def test_what_stands_above_the_first_hunk_may_name_this_file_or_be_left_out(head: str) -> None:
    assert patched("a\nb\n", head + "@@\n a\n-b\n+c\n") == "a\nc\n"


def test_every_hunk_is_looked_for_in_the_file_as_it_was() -> None:
    # The second would fit what the first puts there.
    assert "hunk 2 fits nowhere" in refusal("a\nb\n", "@@\n-a\n+new\n@@\n-new\n+newer\n")
    # What the first takes away still counts for the second: both stand there once.
    assert patched("a\nb\nc\n", "@@\n-c\n+b\n@@\n-b\n+B\n") == "a\nB\nb\n"


def test_lines_that_look_like_headers_are_lines_inside_a_hunk() -> None:
    text = "-- a/x\n++ b/x\n@@ z\n"
    patch = "@@ -1,3 +1,3 @@\n--- a/x\n ++ b/x\n @@ z\n+end\n"
    assert patched(text, patch) == "++ b/x\n@@ z\nend\n"
    assert patched("x\n", "@@ -1 +1,2 @@\n x\n+++ y\n") == "x\n++ y\n"
    assert patched("x\n", "@@\n x\n+++ y\n") == "x\n++ y\n"


def test_an_empty_line_of_context_may_have_lost_its_blank() -> None:
    assert patched("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n") == "a\n\nc\n"
    assert patched("a\n\nb\n", "@@\n a\n\n-b\n+c\n\n\n") == "a\n\nc\n"


def test_an_empty_file_takes_lines_and_a_file_may_become_empty() -> None:
    assert patched("", "@@ -0,0 +1,2 @@\n+a\n+b\n") == "a\nb\n"
    assert patched("", "@@\n+a\n\\ No newline at end of file\n") == "a"
    assert patched("a\n", "@@\n-a\n") == "" and patched("a", "@@\n-a\n") == ""


@pytest.mark.parametrize("odd", ["a\u2028b", "a\x0bb", "a\x1cb", "a\rb", "\ufeffa", "é\u0301"])
def test_a_line_ends_at_a_line_feed_and_nowhere_else(odd: str) -> None:
    assert patched(f"{odd}\nx\n", f"@@\n {odd}\n-x\n+y\n") == f"{odd}\ny\n"
    assert "fits nowhere" in refusal(f"{odd}\nx\n", f"@@\n {odd[1:]}\n-x\n+y\n")


# ── line ends ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", ["", "\r\n"])
def test_a_file_of_crlf_stays_one_whether_the_patch_has_them_or_not(end: str) -> None:
    text = f"a\r\nb\r\nc{end}"
    assert patched(text, "@@\n a\n-b\n+B\n+BB\n") == f"a\r\nB\r\nBB\r\nc{end}"
    assert patched(text, "@@\r\n a\r\n-b\r\n+B\r\n+BB\r\n") == f"a\r\nB\r\nBB\r\nc{end}"
    assert patched(text, "@@\n b\n-c\n+d\n") == f"a\r\nb\r\nd{end}"


def test_where_lines_end_in_different_ways_the_patch_says_each() -> None:
    text = "a\r\nb\nc\r\n"
    assert "fits nowhere" in refusal(text, "@@\n a\n-b\n+B\n")
    assert patched(text, "@@\n a\r\n-b\n+B\n") == "a\r\nB\nc\r\n"
    assert patched("a\r\r\nb\r\n", "@@\n-b\n+c\n") == "a\r\r\nc\r\n"


def test_a_last_line_without_end_stays_one_unless_the_patch_tells_of_it() -> None:
    mark = "\\ No newline at end of file\n"
    assert patched("a\nb", "@@\n a\n-b\n+c\n") == "a\nc"
    assert patched("a\nb", "@@\n b\n+c\n") == "a\nb\nc"
    assert patched("a\nb", f"@@\n a\n-b\n{mark}+c\n") == "a\nc\n"
    assert patched("a\nb", f"@@\n a\n-b\n{mark}+c\n{mark}") == "a\nc"
    assert patched("a\nb\n", f"@@\n a\n-b\n+c\n{mark}") == "a\nc"
    assert patched("a\nb", f"@@\n-a\n+A\n b\n{mark}") == "A\nb"
    assert patched("a\nb", f"@@\n a\n-b\n{mark}") == "a\n"


@pytest.mark.parametrize(
    ("text", "patch", "said"),
    [
        ("a\nb\n", "@@\n a\n-b\n\\ No newline at end of file\n+c\n", "wrong about the end of the file: it has a line end"),
        ("a\nb", "@@\n a\n-b\n+c\n\\ No newline\n", "wrong about the end of the file: it has no line end"),
        ("a\nb\n", "@@\n-a\n+c\n\\ No newline\n", "hunk 1 tells of the end of the file, and fits before it, at line 1"),
        ("a\nb\n", "@@\n\\ No newline\n a\n", "line 2 of the patch tells of the end of no line"),
        ("a\nb", "@@\n a\n\\ No newline\n-b\n+c\n", "line 4 of the patch follows a line that was said to be the end"),
    ],
)
def test_what_a_patch_says_of_the_end_must_be_true(text: str, patch: str, said: str) -> None:
    assert said in refusal(text, patch)


# ── what is refused ─────────────────────────────────────────────────────────


def test_a_hunk_that_fits_nowhere_names_the_line_that_differs_where_its_header_sees_it() -> None:
    assert refusal(TEN, "@@ -2,2 +2,2 @@\n line 2\n-line 4\n+x\n") == (
        'hunk 1 fits nowhere: line 3 of the file is "line 3", and not "line 4"; '
        "read the file, and copy its lines exactly"
    )
    assert "the file has 10 lines" in refusal(TEN, "@@ -10,2 +10 @@\n line 10\n-line 11\n")
    assert "hunk 2 fits nowhere; read" in refusal(TEN, "@@\n-line 1\n+x\n@@\n-nothing\n+y\n")
    # A part of a line is not the line.
    assert "fits nowhere" in refusal("abc\n", "@@\n-bc\n+d\n") and "fits nowhere" in refusal("abc\n", "@@\n-ab\n+d\n")
    assert "fits nowhere" in refusal("", "@@\n-a\n+b\n") and "fits nowhere" in refusal("", "@@\n-\n+b\n")


@pytest.mark.parametrize("header", ["@@ -1 +1 @@", "@@ -4 +4 @@", "@@"])
def test_a_hunk_that_fits_twice_is_refused_whatever_line_its_header_names(header: str) -> None:
    said = refusal("a\nb\nc\na\n", f"{header}\n-a\n+x\n")
    assert said == "hunk 1 fits in more than one place, at lines 1 and 4; take more of the lines around it"
    assert "at lines 1 and 2;" in refusal("a\na\na\n", "@@\n a\n-a\n+x\n"), "also where the two places share a line"


def test_lines_that_are_only_added_need_a_place() -> None:
    assert refusal("a\n", "@@ -1,0 +2 @@\n+b\n") == "hunk 1 has no line of the file; give the lines around what it adds"


def test_two_hunks_that_touch_the_same_lines_are_refused() -> None:
    assert "hunk 2 touches lines that another hunk touches" in refusal(TEN, "@@\n line 1\n-line 2\n@@\n line 2\n+x\n")


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("@@ -1,2 +1,1 @@\n-line 1\n", "line 1 of the patch announces 2 lines before and 1 after, and 1 and 0 follow"),
        ("@@ -1 +1 @@\n-line 1\n", "and 1 and 0 follow; correct it, or write only @@"),
        ("@@ -1 +1 @@\n-line 1\n+a\n+b\n", "line 4 of the patch should begin a hunk, with @@ or @@ -1,2 +1,3 @@, and is"),
        ("@@ -1,2 +1,2 @@\n-line 1\n+a\n@@ -5 +5 @@\n-line 5\n+b\n", "line 1 of the patch announces 2 lines before"),
        ("@@ -1 +1\n-line 1\n", 'line 1 of the patch should begin a hunk, with @@ or @@ -1,2 +1,3 @@, and is "@@ -1 +1"'),
        ("@@ -1,99999999999 +1 @@\n-line 1\n", "line 1 of the patch should begin a hunk"),
        ("@@\nline 1\n", 'line 2 of the patch should begin with a blank, "-", "+" or "@@", and is "line 1"'),
        ("*** Begin Patch\n@@\n-line 1\n", "line 1 of the patch is no part of a unified diff"),
        ("```diff\n@@\n-line 1\n", "line 1 of the patch is no part of a unified diff"),
        ("line 1\n", "line 1 of the patch is no part of a unified diff"),
        ("--- a/sub/a.py\n+++ b/sub/a.py\n", "the patch has no hunk"),
        ("\n\n", "the patch has no hunk"),
        ("--- /dev/null\n+++ b/sub/a.py\n@@ -0,0 +1 @@\n+x\n", "line 1 of the patch makes or removes a file"),
        ("--- a/sub/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n", "line 2 of the patch makes or removes a file"),
        ("--- a/sub/b.py\n+++ b/sub/a.py\n@@\n-line 1\n", 'line 1 of the patch names another file ("a/sub/b.py")'),
        ("--- a/sub/a.py\n+++ b/../sub/a.py\n@@\n-line 1\n", "line 2 of the patch names another file"),
        ("diff --git a/sub/a.py b/sub/b.py\nsimilarity index 9%\nrename from sub/a.py\n", "does more than change lines"),
        ("diff --git a/sub/a.py b/sub/a.py\nold mode 100644\nnew mode 100755\n", "line 2 of the patch does more than"),
        ("diff --git a/sub/a.py b/sub/a.py\nGIT binary patch\nliteral 0\n", "does more than change lines"),
        ("@@\n-line 1\n+x\n--- a/other\n+++ b/other\n@@\n-y\n", "a patch is of one file"),
        ("@@ -1 +1 @@\n-line 1\n+x\n--- a/other\n+++ b/other\n@@\n-y\n", "line 4 of the patch should begin a hunk"),
        ("@@\n-line 1\n+x\ndiff --git a/other b/other\n@@\n-y\n", "a patch is of one file"),
    ],
)  # fmt: skip
def test_what_is_no_diff_of_lines_of_this_file_is_refused_and_its_line_named(patch: str, said: str) -> None:
    assert said in refusal(TEN, patch)


def test_a_message_quotes_no_more_than_a_part_of_a_line_and_no_control_character() -> None:
    said = refusal(TEN, "@@\nx\x1b[2J" + "y" * 10_000)
    assert len(said) < 300 and "\x1b" not in said


def test_a_huge_patch_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more than 1000000 characters; split it" in refusal(TEN, "@@\n" + "+" * MOST_CHARACTERS)
    many = "".join(f"@@\n-{number}\n+x\n" for number in range(MOST_HUNKS + 1))
    assert f"more than {MOST_HUNKS} hunks; split it" in refusal(TEN, many)
    text = "".join(f"{number}\n" for number in range(MOST_HUNKS))
    assert patched(text, many[: many.rindex("@@")]) == "x\n" * MOST_HUNKS
    monkeypatch.setattr(hunks, "MOST_SEARCHED", 2 * len("a\nb\n"))
    assert patched("a\nb\n", "@@\n-a\n+x\n@@\n-b\n+y\n") == "x\ny\n"
    assert refusal("a\nb\nc\n", "@@\n-a\n+x\n@@\n-b\n+y\n") == (
        "2 hunks are too many for a file of 6 characters; split the patch"
    )
    monkeypatch.setattr(hunks, "MOST_CHARACTERS", 5)
    assert "more than 5 characters" in refusal(TEN, "@@\n-line 1\n")


# ── any text ────────────────────────────────────────────────────────────────

LINES = st.lists(st.sampled_from(["", "a", "b", "- c", "+d", " e", "@@", "-- f", "\\ g", "h\u2028"]), max_size=12)
TEXTS = st.builds(lambda lines, ended: "\n".join(lines) + ("\n" if ended and lines else ""), LINES, st.booleans())


def diff(before: str, after: str, context: int) -> str:
    """Make a diff as git writes it."""
    sides = [text.split("\n") for text in (before, after)]
    whole = [[line + "\n" for line in side[:-1]] + ([side[-1]] if side[-1] else []) for side in sides]
    lines = difflib.unified_diff(*whole, "a/sub/a.py", "b/sub/a.py", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@given(TEXTS, TEXTS)
@example("a\nb", "a\nb\n")
@example("", "a")
def test_a_diff_with_all_lines_around_it_makes_the_one_text_of_the_other(before: str, after: str) -> None:
    patch = diff(before, after, 99)
    if patch:
        assert patched(before, patch) == after
    if patch and "\n" in before:
        assert patched(before.replace("\n", "\r\n"), patch) == after.replace("\n", "\r\n")


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_a_diff_is_applied_truly_or_not_at_all(before: str, after: str, context: int) -> None:
    patch = diff(before, after, context)
    try:
        assert not patch or patched(before, patch) == after
    except ToolFailed as error:
        assert "more than one place" in str(error) or "no line of the file" in str(error)


@given(st.text(st.sampled_from("@ -+\\\n\r1,ab/"), max_size=60), TEXTS)
def test_nothing_but_a_refusal_comes_of_any_text(patch: str, text: str) -> None:
    try:
        assert isinstance(patched(text, patch), str)
    except ToolFailed as error:
        assert str(error)


def test_a_hunk_may_be_made_without_a_patch() -> None:
    assert applied("a\nb\n", [Hunk(("a",), ("c", "d"))]) == "c\nd\nb\n"


@pytest.mark.parametrize("patch", ["\n" * 100_000 + "@@\n+x", "@@\n" + "+\n" * 100_000])
def test_reading_a_patch_takes_time_as_it_has_lines_and_no_more(patch: str) -> None:
    with does_not_run_away():
        assert len(parsed(patch, NAMES)) == 1


def test_a_long_patch_that_is_none_is_refused_as_soon() -> None:
    with does_not_run_away(), pytest.raises(ToolFailed, match="line 100002 of the patch"):
        parsed("@@\n" + "\n" * 100_000 + "x", NAMES)
