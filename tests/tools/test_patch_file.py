"""A patch is applied to one file that is there, by the rules of `edit_file`, or the file stays as it is."""

import os
import stat

import pytest

from actors.agents.judging import FileText, Kept
from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, ObservationKind
from actors.errors import ToolFailed
from actors.tools import edit_file
from actors.tools.patch_file import PatchFile
from actors.tools.whole_files import digest

PATCH = "--- a/sub/a.txt\n+++ b/sub/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -5 +5,2 @@\n five\n+six\n"
BEFORE, AFTER = "one\ntwo\nthree\nfour\nfive\n", "one\n2\nthree\nfour\nfive\nsix\n"


@pytest.fixture
def file(root):
    (root / "sub").mkdir()
    path = root / "sub" / "a.txt"
    path.write_text(BEFORE)
    return path


async def run(context, patch=PATCH, path="sub/a.txt"):
    return await PatchFile().run({"path": path, "patch": patch}, context)


async def refused(context, patch=PATCH, path="sub/a.txt") -> str:
    with pytest.raises(ToolFailed) as caught:
        await run(context, patch, path)
    return str(caught.value)


async def test_a_patch_asks_for_both_rights_shows_what_will_stand_there_and_is_written_in_one_step(file, root, context):
    context.touched = {}
    (root / "link").symlink_to("sub/a.txt")
    file.chmod(0o4750)
    seen = await run(context, path="link")
    assert (seen.kind, seen.target, seen.changed) == (ObservationKind.write, "sub/a.txt", True)
    assert seen.text == f'wrote "sub/a.txt" ({len(AFTER)} bytes, 6 lines)' and file.read_text() == AFTER
    assert context.asked == [(Act.read, "sub/a.txt"), (Act.write, "sub/a.txt")] and context.contents == ["", AFTER]
    assert context.intended == [("sub/a.txt", digest(AFTER.encode()), True)]
    assert context.touched == {"sub/a.txt": FileText(Kept.text, BEFORE)}
    assert stat.S_IMODE(file.stat().st_mode) == 0o750, "rights are kept, but the one to run as somebody else"
    assert os.listdir(root / "sub") == ["a.txt"]


async def test_a_patch_whose_last_hunk_does_not_fit_changes_nothing(file, root, context):
    said = await refused(context, PATCH.replace(" five", " fife"))
    assert said.startswith('"sub/a.txt": hunk 2 fits nowhere: line 5 of the file is "five", and not "fife"')
    assert file.read_text() == BEFORE and context.asked == [(Act.read, "sub/a.txt")] and context.intended == []


async def test_a_patch_makes_no_file_and_touches_nothing_of_git(file, root, context):
    assert await refused(context, path="new.txt") == '"new.txt" does not exist; write_file makes files'
    assert "makes or removes a file" in await refused(context, PATCH.replace("a/sub/a.txt", "/dev/null"))
    for path in (".git/config", "sub/.GIT/hooks/x"):
        assert "belongs to git" in await refused(context, path=path)
    assert "is a directory" in await refused(context, path="sub")
    assert "leads out of the workspace" in await refused(context, path="../secret/key.txt")
    (root / "odd").write_bytes(b"one\xff\n")
    assert '"odd" is no UTF-8 text (byte 3)' in await refused(context, path="odd")
    assert sorted(os.listdir(root)) == ["odd", "sub"] and file.read_text() == BEFORE


async def test_a_patch_that_comes_to_the_same_text_is_told_as_unchanged(file, context):
    seen = await run(context, "@@\n one\n-two\n+two\n")
    assert not seen.changed and seen.text.endswith("; unchanged") and context.intended[0][2] is False


async def test_the_same_call_run_again_after_its_process_ended_is_not_applied_twice(file, context):
    # Its context would fit again.
    patch = "@@\n five\n+six\n"
    await run(context, patch)
    once = file.read_text()
    context.noted = (digest(once.encode()), True)
    seen = await run(context, patch)
    assert seen.changed and file.read_text() == once == BEFORE + "six\n"
    # The control: a call of its own is.
    context.noted = None
    await run(context, patch)
    assert file.read_text() == BEFORE + "six\nsix\n"


async def test_a_patch_does_not_undo_what_somebody_wrote_meanwhile(file, context):
    def interfere() -> None:
        if context.asked[-1][0] is Act.write:
            file.write_text("theirs\n")

    context.meanwhile = interfere
    assert "was changed by somebody else meanwhile" in await refused(context)
    assert file.read_text() == "theirs\n"


@pytest.mark.parametrize("act", ["read", "write"])
async def test_a_patch_needs_both_rights_and_tells_nothing_of_what_may_not_be_read(file, context, act):
    policy = Policy.permissive().layer("op")
    context.policy = policy.deny_read("sub/*") if act == "read" else policy.deny_write("sub/*")
    said = []
    for patch in (PATCH, "@@\n-nothing\n+x\n") if act == "read" else (PATCH, PATCH):
        with pytest.raises(ActRefused) as caught:
            await run(context, patch)
        said.append(str(caught.value))
    assert said[0] == said[1] and f"{act} sub/a.txt" in said[0] and file.read_text() == BEFORE


async def test_a_file_too_large_to_be_patched_is_refused_and_named(file, context, monkeypatch):
    monkeypatch.setattr(edit_file, "MOST_BYTES", len(BEFORE))
    await run(context)
    assert "has more than" in await refused(context)
