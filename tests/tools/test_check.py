"""The files changed last are looked at in each language that has a checker; what is not looked at is counted."""

import os
import shutil

import pytest

from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, ObservationKind
from actors.errors import ToolFailed
from actors.tools import check, compiling
from actors.tools.check import Check


async def checked(context) -> list[str]:
    return (await Check().run({}, context)).text.splitlines()


async def test_what_does_not_compile_is_named_and_what_does_is_counted(root, context):
    (root / "sub").mkdir()
    (root / "good.py").write_text("x = 1\n")
    (root / "sub" / "bad.py").write_text("x = \n")
    (root / "notes.txt").write_text("x = \n")
    seen = await Check().run({}, context)
    assert (seen.kind, seen.target, seen.changed) == (ObservationKind.tool, "check", False)
    head, found = seen.text.splitlines()
    assert head == "[2 files looked at: 1 compile, 1 do not, 0 are unknown]"
    assert found.startswith('"sub/bad.py" does not compile (python): SyntaxError')
    (root / "sub" / "bad.py").write_text("x = 2\n")
    assert await checked(context) == ["[2 files compile]"]


async def test_nothing_of_the_files_is_run(root, context):
    (root / "a.py").write_text(f"open({str(root / 'ran')!r}, 'w')\n")
    (root / "a.sh").write_text(f"touch {root / 'ran'}\n")
    assert await checked(context) == ["[2 files compile]"]
    assert not (root / "ran").exists()


async def test_each_program_is_asked_about_once_and_one_that_is_refused_is_left_out(root, context):
    for name in ("a.sh", "b.sh", "c.py", "d.bash"):
        (root / name).write_text("x=1\n")
    assert await checked(context) == ["[4 files compile]"]
    assert context.asked[0] == (Act.exec, "check")
    assert sorted(context.asked[1:]) == [(Act.exec, each) for each in ("bash", "bash -n", "sh", "sh -n")]
    # Neither is asked about as a program that could run others: told to parse its input, it does not.
    context.policy = Policy.permissive().layer("op").allow_exec("*")
    assert await checked(context) == ["[4 files compile]"]
    context.policy = Policy.permissive().layer("op").deny_exec("bash")
    assert await checked(context) == [
        "[3 files compile]",
        "[1 files .bash were not looked at: bash -n is refused: denied by policy]",
    ]


@pytest.mark.parametrize("policy", [Policy.permissive().layer("op").deny_exec("check"), Policy.default()])
async def test_without_the_right_to_run_it_nothing_is_looked_at(root, context, policy):
    (root / "bad.py").write_text("x = \n")
    context.policy = policy
    with pytest.raises(ActRefused) as caught:
        await Check().run({}, context)
    assert (caught.value.refusal.act, caught.value.refusal.target) == (Act.exec, "check")


async def test_it_says_when_there_is_no_checker(root, context, monkeypatch):
    (root / "a.rs").write_text("fn main() {}")
    told = await checked(context)
    assert told[0] == "[no file was looked at]" and told[1].startswith("[there is no checker for what is here; ")
    (root / "a.lua").write_text("x = 1")
    (root / "b.sh").write_text("x=1")
    known = shutil.which
    monkeypatch.setattr(compiling.shutil, "which", lambda name, path: None if name == "luac" else known(name, path=path))
    assert await checked(context) == ["[1 files compile]", "[1 files .lua were not looked at: luac is unavailable]"]
    assert "luac" not in repr(context.asked), "nobody is asked about what is not there"


async def test_a_checker_in_the_workspace_is_not_used(root, context, monkeypatch):
    (root / "bin").mkdir()
    (root / "bin" / "luac").write_text("#!/bin/sh\nexit 0\n")
    (root / "bin" / "luac").chmod(0o755)
    (root / "a.lua").write_text("no lua (")
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert "luac lies in the workspace, and would judge itself" in (await checked(context))[1]


async def test_the_files_changed_last_are_looked_at_first_and_the_rest_is_counted(root, context, monkeypatch):
    monkeypatch.setattr(check, "MOST_FILES", 2)
    for name in ("b.py", "a.py", "c.py", "d.py"):
        (root / name).write_text(f"{name} = \n")
        # The disk tells times apart only now and then.
        os.utime(root / name, ns=(10**9, 10**9))
        while (root / name).stat().st_ctime_ns == (root / "b.py").stat().st_ctime_ns and name != "b.py":
            os.utime(root / name, ns=(10**9, 10**9))
    order = sorted(root.iterdir(), key=lambda file: (-file.stat().st_ctime_ns, file.name))
    told = await checked(context)
    assert [line.split(" ")[0] for line in told[1:3]] == [f'"{file.name}"' for file in order[:2]]
    assert told[3] == "[2 more files were not looked at: they were changed before these]"


async def test_what_may_not_be_read_is_counted_and_links_are_not_followed(root, context):
    for name in ("private.py", "open.py"):
        (root / name).write_text("x = \n")
    (root / "out.py").symlink_to("../secret/key.txt")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "a.py").write_text("x = \n")
    context.policy = Policy.permissive().layer("op").deny_read("private.py")
    told = await checked(context)
    assert told[0] == "[1 files looked at: 0 compile, 1 do not, 0 are unknown]" and told[1].startswith('"open.py"')
    assert told[2:] == ["[1 files were left out: the policy does not let them be read]"]


async def test_all_together_take_no_longer_than_one_command_may(root, context, monkeypatch, tmp_path, marker):
    """A checker that does not end is ended, and what it was for is not called looked at."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "luac").write_text(f"#!/bin/sh\nsleep {marker.text}\n")
    (tmp_path / "bin" / "luac").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("a.lua", "b.lua", "c.lua"):
        (root / name).write_text("x = 1\n")
    context.exec_timeout = 0.5
    told = await checked(context)
    # Whichever of two clocks is first: that of the checker, or that of the whole.
    assert any("files were not looked at: the 0.5 s are over" in line for line in told), told
    assert "compile]" not in told[0] and marker.living() == [] and context.leaked == []


async def test_it_takes_nothing(context):
    with pytest.raises(ToolFailed, match="unknown field `path`"):
        await Check().run({"path": "a.py"}, context)


async def test_an_odd_name_is_no_accident(root, context):
    (root / "two\nlines.py").write_text("x = \n")
    (root / os.fsdecode(b"\xff.py")).write_text("x = \n")
    told = await checked(context)
    assert told[0].startswith("[2 files looked at: 0 compile") and len(told) == 3
