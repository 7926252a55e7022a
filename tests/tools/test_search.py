"""What is found is in order, readable by the policy, inside the workspace; and what is missing is said."""

import json
import os
import re
import subprocess
import sys

import pytest
import trio

from actors.agents.policy import Policy
from actors.agents.ports import ObservationKind
from actors.errors import ToolFailed
from actors.testing.effort import does_not_run_away
from actors.tools.paths import Workspace
from actors.tools.process import Finished, Status
from actors.tools.search import _WORKER, AT_ONCE, FILE_BYTES, HITS, LINE_CHARS, Find, Grep, fits
from actors.tools.walking import marks, walk


@pytest.fixture
def filled(root):
    for path, text in {
        "b.py": "import os\nneedle = 1\n",
        "a.py": "needle\n",
        "sub/c.py": "x\ry\nthe needle\r\n",
        "sub/deep/d.txt": "needle",
        ".git/config": "needle",
        "target/out.py": "needle",
        "node_modules/lib.py": "needle",
        "sub/target/out.py": "needle",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    return root


async def test_find_gives_files_in_order_without_what_is_built_or_stored_beside(filled, context):
    seen = await Find().run({"name_glob": "*.py"}, context)
    assert (seen.kind, seen.target, seen.text) == (ObservationKind.find, "*.py", "a.py\nb.py\nsub/c.py")
    assert (await Find().run({"name_glob": "d.*"}, context)).text == "sub/deep/d.txt"
    assert (await Find().run({"name_glob": "sub/*"}, context)).text == "sub/c.py\nsub/deep/d.txt"
    assert (await Find().run({"name_glob": "*.rs"}, context)).text == "[no files]"


@pytest.mark.parametrize(
    ("glob", "path", "does"),
    [
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/a.py", True),
        ("src/**/*.py", "lib/a.py", False),
        ("a?.py", "x/ab.py", True),
        ("a?.py", "x/abc.py", False),
        ("[ab].py", "b.py", True),
        ("[[]x", "[x", True),
        ("[z-a]", "z", False),
        ("a\\b", "a\\b", True),
    ],
)
def test_a_glob_fits_a_whole_path_or_its_last_name(glob, path, does):
    assert fits(glob)(path) is does


def test_a_hostile_glob_takes_no_time():
    with does_not_run_away():
        assert not fits("*a" * 200 + "b")("a" * 2_000)


async def test_more_files_than_are_shown_are_counted(root, context):
    for place in range(HITS + 3):
        (root / f"{place:03}.txt").write_text("x")
    lines = (await Find().run({"name_glob": "*"}, context)).text.splitlines()
    assert lines[HITS - 1 :] == ["049.txt", "[50 of 53 files shown]"]


async def test_what_the_policy_does_not_let_be_read_is_not_found_but_counted(filled, context):
    context.policy = Policy.permissive().layer("op").deny_read("sub/*").ask_read("a.py")
    notes = "[3 files were left out: the policy does not let them be read]"
    assert (await Find().run({"name_glob": "*"}, context)).text == f"b.py\n{notes}"
    assert (await Grep().run({"pattern": "needle"}, context)).text == f"b.py:2: needle = 1\n{notes}"


async def test_a_search_of_a_workspace_that_may_not_be_read_finds_nothing_and_says_so(filled, context):
    context.policy = Policy.permissive().layer("op").deny_read("*")
    for tool, arguments in ((Find(), {"name_glob": "*"}), (Grep(), {"pattern": "x"})):
        said = (await tool.run(arguments, context)).text
        assert "a.py" not in said and "left out" in said


async def test_no_search_goes_through_a_link(filled, context):
    os.symlink("/", filled / "everything")
    os.symlink("../secret", filled / "out")
    os.symlink("../secret/key.txt", filled / "key.txt")
    assert "canary" in (filled / "key.txt").read_text()
    assert (await Grep().run({"pattern": "canary"}, context)).text == "[no lines]"
    found = (await Find().run({"name_glob": "*"}, context)).text
    assert "passwd" not in found and "out/" not in found


# ── lines ───────────────────────────────────────────────────────────────────


async def test_grep_gives_path_number_and_line_in_order(filled, context):
    seen = await Grep().run({"pattern": "need.e"}, context)
    assert (seen.kind, seen.target, seen.changed) == (ObservationKind.grep, "need.e", False)
    assert seen.text == "a.py:1: needle\nb.py:2: needle = 1\nsub/c.py:2: the needle\nsub/deep/d.txt:1: needle"
    assert (await Grep().run({"pattern": "needle$", "path_glob": "*.py"}, context)).text == (
        "a.py:1: needle\nsub/c.py:2: the needle"
    )
    assert (await Grep().run({"pattern": "needle", "path_glob": None}, context)).text == seen.text


async def test_numbers_of_lines_are_those_of_read_file(root, context):
    (root / "a.txt").write_bytes("one\x0c\u2028\x85\r\x1ctwo\nneedle".encode())
    assert (await Grep().run({"pattern": "needle"}, context)).text == "a.txt:2: needle"


async def test_more_lines_than_are_shown_are_counted(root, context):
    (root / "a.txt").write_text("hit\n" * (HITS + 9))
    lines = (await Grep().run({"pattern": "hit"}, context)).text.splitlines()
    assert lines[HITS - 1 :] == ["a.txt:50: hit", "[50 of 59 lines shown]"]


async def test_what_was_not_searched_is_said(root, context):
    (root / "binary").write_bytes(b"needle\x00")
    (root / "large").write_bytes(b"needle\n" * (FILE_BYTES // 7 + 1))
    (root / "long").write_text("x" * LINE_CHARS + "needle\n" + "needle" + "x" * LINE_CHARS)
    lines = (await Grep().run({"pattern": "needle"}, context)).text.splitlines()
    assert lines[0].startswith("long:2: needlexxx") and len(lines[0]) < 300
    assert lines[1:] == [
        "[2 files were not searched: no text, or larger than 2000000 bytes]",
        "[2 lines were searched in their first 2000 characters only]",
    ]


async def test_a_hit_in_a_long_line_is_shown_where_it_is(root, context):
    (root / "a.txt").write_text("x" * 1_000 + "needle" + "y" * 900)
    shown = (await Grep().run({"pattern": "needle"}, context)).text
    assert "xneedley" in shown and shown.startswith("a.txt:1: ...x") and shown.endswith("y...")


async def test_text_that_is_no_utf8_is_searched_and_hostile_names_stay_on_a_line(root, context):
    (root / "odd\nname").write_bytes(b"caf\xe9 needle")
    assert (await Grep().run({"pattern": "needle"}, context)).text == "odd?name:1: caf\ufffd needle"


async def test_many_wide_hits_are_answered_whole(root, context):
    (root / "a.txt").write_text(("🍸" * 300 + "\n") * 60)
    lines = (await Grep().run({"pattern": "🍸"}, context)).text.splitlines()
    assert lines[-1] == "[50 of 60 lines shown]"
    assert len(lines) == HITS + 1


async def test_a_pattern_that_never_ends_is_cut_and_nothing_is_left_of_it(root, context):
    (root / "a.txt").write_text("a" * 60 + "b")
    assert (await Grep(seconds=5).run({"pattern": "(a+)b$"}, context)).text.startswith("a.txt:1:")
    others = 0

    async def others_go_on() -> None:
        nonlocal others
        while True:
            await trio.sleep(0.01)
            others += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others_go_on)
        with pytest.raises(ToolFailed, match=r"took longer than 0\.3 s; use a simpler pattern"):
            await Grep(seconds=0.3).run({"pattern": "(a+)+$"}, context)
        nursery.cancel_scope.cancel()
    assert others > 5, "it holds nobody up meanwhile"
    assert context.leaked == []


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(?P<x>a)(?P<x>b)", "a**"])
async def test_a_pattern_that_is_none_is_refused_with_the_reason(root, context, pattern):
    (root / "a.txt").write_text("plain")
    with pytest.raises(ToolFailed, match="the pattern is no regular expression: "):
        await Grep().run({"pattern": pattern}, context)


async def test_a_pattern_that_python_only_warns_about_is_searched(root, context):
    (root / "a.txt").write_text("plain")
    with pytest.warns(FutureWarning):
        re.compile("[[a]")
    assert (await Grep().run({"pattern": "[[a]"}, context)).text == "a.txt:1: plain"


async def test_a_pattern_has_a_length(context):
    with pytest.raises(ToolFailed, match="length <= 1000"):
        await Grep().run({"pattern": "a" * 1_001}, context)


# ── the walk ────────────────────────────────────────────────────────────────


async def test_a_walk_that_is_too_long_says_that_it_is_not_all(filled):
    whole = await walk(Workspace(str(filled)))
    assert whole.complete
    names = [entry.relative for entry in whole.entries]
    assert names == sorted(names)
    assert ".git" in names and ".git/config" not in names
    short = await walk(Workspace(str(filled)), most=len(names) - 1)
    assert (short.complete, len(short.entries)) == (False, len(names) - 1)
    assert (await walk(Workspace(str(filled)), most=len(names))).complete


async def test_marks_tell_whether_something_changed(filled):
    workspace = Workspace(str(filled))
    before = await marks(workspace, 100)
    assert await marks(workspace, 100) == before
    (filled / "sub" / "c.py").write_text("other")
    assert await marks(workspace, 100) != before
    assert await marks(workspace, 3) is None
    assert await marks(Workspace(str(filled / "gone")), 100) is None


@pytest.mark.parametrize("tool", ["find", "grep"])
async def test_a_directory_that_cannot_be_listed_is_counted_and_said(root, context, monkeypatch, tool):
    (root / "shut").mkdir()
    (root / "shut" / "a.txt").write_text("needle\n")
    (root / "b.txt").write_text("needle\n")

    def between(name: str) -> None:
        if name == "shut":
            (root / "shut").rename(root / "moved")
            (root / "shut").symlink_to("../secret")

    monkeypatch.setattr("actors.tools.search.Workspace", lambda at: Workspace(at, between))
    asked = {"name_glob": "*.txt"} if tool == "find" else {"pattern": "needle|canary"}
    seen = await (Find() if tool == "find" else Grep()).run(asked, context)
    assert "b.txt" in seen.text and "key.txt" not in seen.text and "canary" not in seen.text
    assert "[1 directories were left out: they cannot be listed]" in seen.text


def test_a_searcher_whose_run_was_killed_ends_by_itself() -> None:
    text = b"a" * 60 + b"b"
    question = json.dumps(["(a+)+$", 5, 100, 100, 1]).encode() + b"\n" + json.dumps(["a.txt", len(text)]).encode() + b"\n"
    # Nobody ends it: it has a second of the processor, and no more.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _WORKER], input=question + text, capture_output=True, timeout=60
    )
    assert done.returncode < 0 and done.stdout == b""


async def test_searches_of_one_agent_beside_each_other_are_few_and_their_time_begins_with_them(
    filled, context, monkeypatch, autojump_clock
):
    running, peak, began = 0, 0, []

    async def search(argv, **options):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        began.append(options["timeout"])
        # As long as it may take: whoever waits for it must not be charged for that.
        await trio.sleep(options["timeout"])
        running -= 1
        return Finished(Status.exited, 0, "[0, 0, []]", 0, 0.0)

    monkeypatch.setattr("actors.tools.search.run_confined", search)
    tool, seen = Grep(), []

    async def one():
        seen.append((await tool.run({"pattern": "x"}, context)).text)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert (peak, len(began), seen) == (AT_ONCE, 10, ["[no lines]"] * 10)
