"""Files are read whole or not, written whole or not, and edited in exactly one place."""

import os
import resource
import stat

import pytest

from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, ObservationKind
from actors.agents.prompt import ENTRY_CHARS
from actors.errors import ToolFailed
from actors.tools import whole_files
from actors.tools.edit_file import EditFile, edited
from actors.tools.list_dir import MOST_SHOWN, ListDir
from actors.tools.read_file import BUILT_IN_CEILING, ReadFile
from actors.tools.single_file import SingleFile
from actors.tools.write_file import WriteFile

TEN = "".join(f"line {number}\n" for number in range(1, 11))


async def refused(tool, arguments, context) -> str:
    with pytest.raises(ToolFailed) as caught:
        await tool.run(arguments, context)
    return str(caught.value)


# ── reading ─────────────────────────────────────────────────────────────────


async def test_a_file_is_read_whole_and_the_policy_asked_about_where_it_really_is(root, context):
    (root / "sub").mkdir()
    (root / "sub" / "a.txt").write_text("one\ntwo")
    (root / "link").symlink_to("sub/a.txt")
    seen = await ReadFile().run({"path": "link"}, context)
    assert (seen.kind, seen.target, seen.text, seen.changed) == (ObservationKind.read, "sub/a.txt", "one\ntwo", False)
    assert context.asked == [(Act.read, "sub/a.txt")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 3, "limit": 2}, "[lines 3 to 4 of 10]\nline 3\nline 4\n"),
        ({"offset": 9}, "[lines 9 to 10 of 10]\nline 9\nline 10\n"),
        ({"limit": 1}, "[lines 1 to 1 of 10]\nline 1\n"),
        ({"offset": 10, "limit": 99}, "[lines 10 to 10 of 10]\nline 10\n"),
        ({"offset": None, "limit": None}, TEN),
    ],
)
async def test_a_range_says_which_lines_of_how_many_it_is(root, context, arguments, text):
    (root / "a.txt").write_text(TEN)
    assert (await ReadFile().run({"path": "a.txt", **arguments}, context)).text == text


async def test_a_range_beyond_the_end_is_refused_and_names_the_end(root, context):
    (root / "a.txt").write_text(TEN)
    assert (
        await refused(ReadFile(), {"path": "a.txt", "offset": 11}, context)
        == '"a.txt" has 10 lines; there is no line 11'
    )


async def test_a_missing_file_reads_empty_with_a_note_and_an_empty_one_says_so(root, context):
    (root / "empty").write_text("")
    assert (await ReadFile().run({"path": "no/such"}, context)).text == '["no/such" does not exist; it reads empty]'
    assert (await ReadFile().run({"path": "empty"}, context)).text == '["empty" is empty]\n'


async def test_a_file_too_large_is_refused_with_its_size_the_ceiling_whose_it_is_and_a_remedy(root, context):
    (root / "a.txt").write_text("é" * 79 + "\n")
    context.max_read_chars = 80
    assert len((await ReadFile().run({"path": "a.txt"}, context)).text) == 80
    (root / "a.txt").write_text(TEN * 2)
    said = await refused(ReadFile(), {"path": "a.txt"}, context)
    assert said == (
        '"a.txt" has 142 characters in 20 lines; one read gives at most 80 characters (max_read_chars of the contract). '
        "Read fewer lines at a time with offset and limit, or search it with grep"
    )
    said = await refused(ReadFile(), {"path": "a.txt", "offset": 1, "limit": 12}, context)
    assert said.startswith('"a.txt" has 20 lines; the 12 asked for have 85 characters; one read gives at most 80')
    assert (await ReadFile().run({"path": "a.txt", "offset": 1, "limit": 11}, context)).text.startswith(
        "[lines 1 to 11"
    )


async def test_the_built_in_ceiling_stays_below_the_cut_of_the_loop_and_none_can_raise_it(root, context):
    assert BUILT_IN_CEILING < ENTRY_CHARS
    context.max_read_chars = 10 * BUILT_IN_CEILING
    (root / "fits.txt").write_text("x" * BUILT_IN_CEILING)
    assert len((await ReadFile().run({"path": "fits.txt"}, context)).text) == BUILT_IN_CEILING
    (root / "large.txt").write_text("x" * (BUILT_IN_CEILING + 1))
    said = await refused(ReadFile(), {"path": "large.txt"}, context)
    assert f"at most {BUILT_IN_CEILING} characters (the built-in ceiling of one result). This is one line" in said


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF\x02\x01", "an ELF program"),
        ("hello".encode("utf-16"), "UTF-16 text"),
        ("hello".encode("utf-32"), "UTF-32 text"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"%PDF-1.7", "a PDF document"),
        (b"abc\x00def", "a binary file"),
    ],
)
async def test_what_is_no_text_is_named_and_not_shown_as_empty(root, context, data, kind):
    (root / "odd").write_bytes(data)
    said = await refused(ReadFile(), {"path": "odd"}, context)
    assert said == f'"odd" is {kind} of {len(data)} bytes, not empty; read_file reads UTF-8 text'


async def test_bytes_that_are_no_text_are_replaced_and_said(root, context):
    (root / "latin").write_bytes(b"caf\xe9\n")
    (root / "honest").write_text("caf\ufffd\n")
    note = "[some bytes are no UTF-8 text, or NUL; they are shown as \ufffd]\n"
    assert (await ReadFile().run({"path": "latin"}, context)).text == f"{note}caf\ufffd\n"
    assert (await ReadFile().run({"path": "honest"}, context)).text == "caf\ufffd\n"


async def test_a_directory_or_a_pipe_is_refused_at_once(root, context):
    (root / "sub").mkdir()
    os.mkfifo(root / "pipe")
    assert await refused(ReadFile(), {"path": "sub"}, context) == '"sub" is a directory; list_dir shows what is in it'
    assert await refused(ReadFile(), {"path": "pipe"}, context) == '"pipe" is no regular file'


async def test_a_file_that_becomes_a_link_while_a_human_thinks_is_not_read(root, context):
    (root / "a.txt").write_text("inside")

    def swap() -> None:
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to("../secret/key.txt")

    assert (await ReadFile().run({"path": "a.txt"}, context)).text == "inside"
    context.meanwhile = swap
    assert await refused(ReadFile(), {"path": "a.txt"}, context) == (
        '"a.txt" was turned into a link meanwhile; it is not followed'
    )
    assert (root / "a.txt").read_text() == "canary\n", "the link was in place"


# ── writing ─────────────────────────────────────────────────────────────────


async def test_a_write_makes_directories_and_says_what_it_did(root, context):
    seen = await WriteFile().run({"path": "new/deep/a.txt", "content": "one\ntwö"}, context)
    assert (seen.kind, seen.target, seen.changed) == (ObservationKind.write, "new/deep/a.txt", True)
    assert seen.text == 'wrote "new/deep/a.txt" (8 bytes, 2 lines)'
    assert (root / "new" / "deep" / "a.txt").read_text() == "one\ntwö"
    assert (context.asked, context.contents) == ([(Act.write, "new/deep/a.txt")], ["one\ntwö"])


async def test_only_changed_bytes_count_as_a_change(root, context):
    (root / "a.txt").write_text("same\n")
    before = (root / "a.txt").stat().st_ino
    same = await WriteFile().run({"path": "a.txt", "content": "same\n"}, context)
    assert (same.changed, same.text) == (False, '"a.txt" has this content already (5 bytes, 1 line); unchanged')
    assert (root / "a.txt").stat().st_ino == before
    assert (await WriteFile().run({"path": "a.txt", "content": "Same\n"}, context)).changed
    assert (await WriteFile().run({"path": "a.txt", "content": ""}, context)).changed


async def test_a_write_keeps_the_rights_leaves_nothing_beside_and_readers_see_old_or_new(root, context):
    path = root / "run.sh"
    path.write_text("old")
    path.chmod(0o750)
    with path.open() as reader:
        await WriteFile().run({"path": "run.sh", "content": "new"}, context)
        assert reader.read() == "old"
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o750)
    assert os.listdir(root) == ["run.sh"]


async def test_a_write_through_a_link_inside_changes_what_it_points_to(root, context):
    (root / "real.txt").write_text("old")
    (root / "link.txt").symlink_to("real.txt")
    await WriteFile().run({"path": "link.txt", "content": "new"}, context)
    assert (root / "link.txt").is_symlink()
    assert (root / "real.txt").read_text() == "new"


async def test_a_denied_write_makes_nothing_not_even_a_directory(root, context):
    context.policy = Policy.permissive().layer("op").deny_write("new/*")
    with pytest.raises(ActRefused):
        await WriteFile().run({"path": "new/a.txt", "content": "x"}, context)
    assert os.listdir(root) == []
    await WriteFile().run({"path": "other/a.txt", "content": "x"}, context)
    assert os.listdir(root) == ["other"]


async def test_a_failing_write_leaves_the_old_file_and_nothing_else(root, context):
    (root / "a.txt").write_text("old")
    (root / "sub").mkdir()
    assert "is a directory" in await refused(WriteFile(), {"path": "sub", "content": "x"}, context)
    assert "is not a directory" in await refused(WriteFile(), {"path": "a.txt/b", "content": "x"}, context)
    assert "too long" in await refused(WriteFile(), {"path": "x" * 256, "content": "x"}, context)
    assert "at 1" in await refused(WriteFile(), {"path": "a.txt", "content": "x\ud800"}, context)
    assert "name a file in it" in await refused(WriteFile(), {"path": ".", "content": "x"}, context)
    assert (root / "a.txt").read_text() == "old"
    assert sorted(os.listdir(root)) == ["a.txt", "sub"]


async def test_a_write_that_breaks_off_half_way_leaves_the_old_file_and_nothing_beside(root, context):
    (root / "a.txt").write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        said = await refused(WriteFile(), {"path": "a.txt", "content": "x" * 200}, context)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == '"a.txt": file too large'
    assert ((root / "a.txt").read_text(), os.listdir(root)) == ("old", ["a.txt"])
    assert (await WriteFile().run({"path": "a.txt", "content": "x" * 200}, context)).changed


async def test_the_longest_name_can_be_written(root, context):
    assert (await WriteFile().run({"path": "x" * 255, "content": "y"}, context)).changed


async def test_a_directory_that_becomes_a_link_while_a_human_thinks_is_not_written_through(root, context):
    (root / "sub").mkdir()

    def swap() -> None:
        os.rename(root / "sub", root / "moved")
        (root / "sub").symlink_to("../secret")

    context.meanwhile = swap
    said = await refused(WriteFile(), {"path": "sub/key.txt", "content": "x"}, context)
    assert said == '"sub": "sub" is not a directory'
    assert (root / "sub" / "key.txt").read_text() == "canary\n"


async def test_single_file_work_writes_the_file_of_the_operator_and_no_other(root, context):
    tool = SingleFile(root / "out.txt")
    assert set(tool.spec.parameters["properties"]) == {"content"}
    seen = await tool.run({"content": "done\n"}, context)
    assert (seen.target, seen.changed, (root / "out.txt").read_text()) == ("out.txt", True, "done\n")
    assert not (await tool.run({"content": "done\n"}, context)).changed
    assert "path" in await refused(tool, {"content": "x", "path": "other.txt"}, context)


async def test_the_operators_own_link_is_followed_in_single_file_work(root, context):
    (root / "link.txt").symlink_to("real.txt")
    await SingleFile(root / "link.txt").run({"content": "x"}, context)
    assert ((root / "real.txt").read_text(), (root / "link.txt").is_symlink()) == ("x", True)


# ── editing ─────────────────────────────────────────────────────────────────


async def test_a_write_does_not_hand_on_the_right_to_run_as_somebody_else(root, context):
    # As the system does at a write into the file itself. Made by root, it would be a program of root with an agent's bytes.
    path = root / "a.txt"
    path.write_text("old")
    path.chmod(0o6755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6755, "the control"
    await WriteFile().run({"path": "a.txt", "content": "new"}, context)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    path.chmod(0o4755)
    await EditFile().run({"path": "a.txt", "search": "new", "replace": "newer"}, context)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("newer", 0o755)


@pytest.mark.parametrize("path", [".git/config", ".git", ".git/hooks/pre-commit", "sub/.git/config", "sub/.GIT/config", ".git/new/x"])
async def test_what_belongs_to_git_is_not_written_as_a_file(root, context, path):
    for tool, more in ((WriteFile(), {"content": "x"}), (EditFile(), {"search": "a", "replace": "b"})):
        with pytest.raises(ToolFailed, match="belongs to git"):
            await tool.run({"path": path, **more}, context)
    assert not (root / ".git").exists() and context.asked == []
    # What only begins like it is a file like others.
    for own in (".gitignore", ".github/x.yml", "a.git"):
        assert (await WriteFile().run({"path": own, "content": "x"}, context)).changed


async def test_an_edit_replaces_the_one_passage_and_asks_for_both_rights(root, context):
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\nthree")
    seen = await EditFile().run({"path": "a.txt", "search": "two", "replace": "2"}, context)
    assert (seen.changed, (root / "a.txt").read_bytes()) == (True, b"one\r\n2\r\nthree")
    assert context.asked == [(Act.read, "a.txt"), (Act.write, "a.txt")]
    assert context.contents == ["", "one\r\n2\r\nthree"]
    assert not (await EditFile().run({"path": "a.txt", "search": "one", "replace": "one"}, context)).changed


@pytest.mark.parametrize(
    ("text", "search", "said"),
    [
        ("abc", "", "search must not be empty"),
        ("abc", "x", "search does not occur in the file; read the file"),
        ("a\r\nb", "a\nb", "the lines of this file end in CR LF"),
        ("aba aba", "aba", "occurs more than once"),
        ("aaa", "aa", "occurs more than once"),
    ],
)
def test_an_edit_that_does_not_fit_exactly_once_is_refused(text, search, said):
    with pytest.raises(ToolFailed, match=said):
        edited(text, search, "new")


async def test_a_refused_edit_leaves_the_file_alone(root, context):
    (root / "a.txt").write_text("aa")
    (root / "latin").write_bytes(b"caf\xe9")
    for arguments, said in [
        ({"path": "a.txt", "search": "a", "replace": "b"}, '"a.txt": search occurs more than once'),
        ({"path": "a.txt", "search": "", "replace": "b"}, "length >= 1"),
        ({"path": "no.txt", "search": "a", "replace": "b"}, '"no.txt" does not exist; write_file makes files'),
        ({"path": "latin", "search": "caf", "replace": "b"}, '"latin" is no UTF-8 text (byte 3)'),
    ]:
        assert said in await refused(EditFile(), arguments, context)
    assert (root / "a.txt").read_text() == "aa"
    assert (root / "latin").read_bytes() == b"caf\xe9"
    assert sorted(os.listdir(root)) == ["a.txt", "latin"]


async def test_an_edit_does_not_undo_what_somebody_wrote_meanwhile(root, context):
    (root / "a.txt").write_text("one two")

    def interfere() -> None:
        if context.asked[-1][0] is Act.write:
            (root / "a.txt").write_text("one two three")

    context.meanwhile = interfere
    said = await refused(EditFile(), {"path": "a.txt", "search": "two", "replace": "2"}, context)
    assert said == '"a.txt" was changed by somebody else meanwhile; read it again'
    assert (root / "a.txt").read_text() == "one two three"


async def test_an_edit_of_what_may_not_be_read_tells_nothing_of_it(root, context):
    (root / "a.key").write_text("canary")
    context.policy = Policy.permissive().layer("op").deny_read("*.key")
    said = []
    for search in ("canary", "nothing"):
        with pytest.raises(ActRefused) as caught:
            await EditFile().run({"path": "a.key", "search": search, "replace": "x"}, context)
        said.append(str(caught.value))
    assert said[0] == said[1]


# ── listing ─────────────────────────────────────────────────────────────────


async def test_a_directory_is_listed_one_level_in_order_with_kinds(root, context):
    (root / "b.txt").write_text("")
    (root / "a" / "below").mkdir(parents=True)
    (root / "out").symlink_to("../secret")
    (root / "two\nlines").write_text("")
    seen = await ListDir().run({}, context)
    assert seen.text == "a/\nb.txt\nout@\ntwo?lines"
    assert context.asked == [(Act.read, ".")]
    assert (await ListDir().run({"path": "a"}, context)).text == "below/"
    assert (await ListDir().run({"path": "a/below"}, context)).text == '["a/below" is an empty directory]'


async def test_a_long_listing_is_cut_and_states_the_true_total(root, context):
    for place in range(MOST_SHOWN):
        (root / f"{place:04}").write_text("")
    assert len((await ListDir().run({}, context)).text.splitlines()) == MOST_SHOWN
    for place in range(MOST_SHOWN, MOST_SHOWN + 7):
        (root / f"{place:04}").write_text("")
    lines = (await ListDir().run({}, context)).text.splitlines()
    assert lines[-2:] == ["0199", "[200 of 207 entries shown; find looks for names]"]


async def test_what_may_not_be_read_is_counted_and_not_named(root, context):
    (root / "sub").mkdir()
    for name in ("a.txt", "b.key", "c.key"):
        (root / "sub" / name).write_text("")
    context.policy = Policy.permissive().layer("op").deny_read("sub/*.key")
    seen = await ListDir().run({"path": "sub"}, context)
    assert seen.text == "a.txt\n[2 entries were left out: the policy does not let them be read]"


async def test_what_is_no_directory_or_lies_outside_is_not_listed(root, context):
    (root / "a.txt").write_text("")
    (root / "out").symlink_to("../secret")
    assert '"a.txt": not a directory' in await refused(ListDir(), {"path": "a.txt"}, context)
    assert "leads out of the workspace" in await refused(ListDir(), {"path": "out"}, context)
    assert '"no": no such file' in await refused(ListDir(), {"path": "no"}, context)


async def test_what_a_killed_process_left_beside_a_file_is_taken_away_by_the_same_call(root, context, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(whole_files.os, "replace", killed)
    with monkeypatch.context() as dead:
        # A process that is killed cleans nothing up.
        dead.setattr(whole_files.os, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            await WriteFile().run({"path": "a.txt", "content": "one"}, context)
    left = [file.name for file in root.iterdir() if file.suffix == ".tmp"]
    assert len(left) == 1
    monkeypatch.undo()
    # Also when somebody else has written the same meanwhile, and nothing is to be done.
    (root / "a.txt").write_text("one")
    await WriteFile().run({"path": "a.txt", "content": "one"}, context)
    assert not (root / left[0]).exists()


# ── arguments ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (ReadFile(), {}, "read_file: Object missing required field `path`. It takes: path (string), offset (integer"),
        (ReadFile(), {"path": 7}, "Expected `str`, got `int`"),
        (ReadFile(), {"path": None}, "Expected `str`, got `null`"),
        (ReadFile(), {"path": "a", "offset": "1"}, "got `str`"),
        (ReadFile(), {"path": "a", "offset": True}, "got `bool`"),
        (ReadFile(), {"path": "a", "offset": 1.0}, "got `float`"),
        (ReadFile(), {"path": "a", "offset": 0}, "Expected `int` >= 1"),
        (ReadFile(), {"path": "a", "colour": 1}, "unknown field `colour`"),
        (WriteFile(), {"path": "a"}, "missing required field `content`"),
        (ListDir(), {"path": ["a"]}, "got `array`"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_with_what_is_wanted(context, tool, arguments, said):
    told = await refused(tool, arguments, context)
    assert said in told
    assert "It takes: " in told
    assert context.asked == []


async def test_a_number_beyond_all_lines_is_no_accident(root, context):
    (root / "a.txt").write_text(TEN)
    assert "there is no line 1" in await refused(ReadFile(), {"path": "a.txt", "offset": 10**30}, context)
