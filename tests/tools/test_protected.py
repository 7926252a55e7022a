"""What a check depends on is noted at the start, and whatever is another by then is named."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from actors.agents.judging import Kept, Pins
from actors.agents.verification import Verification
from actors.errors import ConfigError
from actors.tools.paths import Workspace
from actors.tools.protected import MOST_TEXT, WorkspaceFiles, text_at
from actors.tools.verifying import evaluate

FILES = WorkspaceFiles()


def check(*globs: str, argv: tuple[str, ...] = ("true",)) -> Verification:
    return Verification.command(argv, protect=globs)


async def change(root: Path, criterion: Verification, meddle) -> str | None:
    """Note, let somebody meddle, and say what is told; the note goes through the store's text in between."""
    then = Pins.from_json((await FILES.pin(criterion, str(root))).to_json())
    assert then.change_to(await FILES.pin(criterion, str(root))) is None
    meddle()
    return then.change_to(await FILES.pin(criterion, str(root)))


@pytest.fixture
def work(root: Path) -> Path:
    (root / "tests" / "deep").mkdir(parents=True)
    (root / "tests" / "test_a.py").write_text("assert 1 == 2\n")
    (root / "tests" / "deep" / "test_b.py").write_text("assert 1 == 2\n")
    (root / "src.py").write_text("x = 1\n")
    return root


MEDDLING = {
    "a file is edited": (lambda r: (r / "tests/test_a.py").write_text("assert True\n"), "tests/test_a.py (changed)"),
    "to the same length and time": (lambda r: same_size(r / "tests/test_a.py"), "tests/test_a.py (changed)"),
    "a deep file is edited": (lambda r: (r / "tests/deep/test_b.py").write_text(""), "tests/deep/test_b.py (changed)"),
    "a file is deleted": (lambda r: (r / "tests/test_a.py").unlink(), "tests/test_a.py (deleted)"),
    "a file is emptied": (lambda r: (r / "tests/test_a.py").write_text(""), "tests/test_a.py (changed)"),
    "a file is renamed": (lambda r: (r / "tests/test_a.py").rename(r / "x.py"), "tests/test_a.py (deleted)"),
    "a new file is put beside": (lambda r: (r / "tests/conftest.py").write_text(""), "tests/conftest.py (new)"),
    "a new folder is put beside": (lambda r: copied(r), "tests/more/test_a.py (new)"),
    "byte code without a source": (lambda r: (r / "tests/json.pyc").write_bytes(b"x"), "tests/json.pyc (new)"),
    "a source among byte code": (lambda r: cached(r, "conftest.py"), "tests/__pycache__/conftest.py (new)"),
    "a file becomes a link": (lambda r: linked(r / "tests/test_a.py", r / "src.py"), "tests/test_a.py (changed)"),
    "a link to the same bytes": (lambda r: linked_same(r), "tests/test_a.py (changed)"),
    "a folder becomes a link": (lambda r: swapped(r), "tests/test_a.py (changed)"),
    "a file becomes a folder": (lambda r: folder(r / "tests/test_a.py"), "tests/test_a.py (deleted)"),
    "a file becomes a pipe": (lambda r: pipe(r / "tests/test_a.py"), "tests/test_a.py (changed)"),
}


def same_size(file: Path) -> None:
    before = file.stat()
    file.write_text("assert 1 == 1\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size


def copied(root: Path) -> None:
    (root / "tests/more").mkdir()
    shutil.copy(root / "tests/test_a.py", root / "tests/more/test_a.py")


def cached(root: Path, name: str) -> None:
    (root / "tests/__pycache__").mkdir()
    (root / "tests/__pycache__" / name).write_text("x")


def linked(file: Path, target: Path) -> None:
    file.unlink()
    os.symlink(target, file)


def linked_same(root: Path) -> None:
    shutil.copy(root / "tests/test_a.py", root / "same.py")
    linked(root / "tests/test_a.py", root / "same.py")


def swapped(root: Path) -> None:
    (root / "tests").rename(root / "old")
    (root / "mine").mkdir()
    (root / "mine/test_a.py").write_text("assert True\n")
    os.symlink("mine", root / "tests")


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("name", MEDDLING)
async def test_a_protected_file_that_is_another_is_named(work: Path, name: str) -> None:
    meddle, told = MEDDLING[name]
    said = await change(work, check("tests/*"), lambda: meddle(work))
    assert said is not None and told in said and said.startswith("what the check depends on is not as it was")


@pytest.mark.parametrize("name", MEDDLING)
async def test_the_control_without_protection_tells_nothing(work: Path, name: str) -> None:
    meddle, _told = MEDDLING[name]
    assert await change(work, check(), lambda: meddle(work)) is None


async def test_other_files_may_change_as_they_like(work: Path) -> None:
    def meddle() -> None:
        (work / "src.py").write_text("x = 2\n")
        (work / "new.py").write_text("")
        (work / "tests/test_a.py").touch()
        cached(work, "test_a.cpython-311.pyc")
        (work / ".git").mkdir()
        (work / ".git/tests").write_text("")

    assert await change(work, check("tests/*", "conftest.py"), meddle) is None


async def test_a_glob_that_matches_nothing_yet_matches_what_comes(work: Path) -> None:
    said = await change(work, check("conftest.py"), lambda: (work / "tests/deep/conftest.py").write_text("x"))
    assert said is not None and "tests/deep/conftest.py (new)" in said


@pytest.mark.parametrize(
    ("glob", "told"),
    [
        ("tests", '"tests" names a directory, and protects no file in it; write "tests/*"'),
        ("deep", '"deep" names a directory, and protects no file in it; write "deep/*"'),
        ("dee*", '"dee*" names a directory'),
        ("linked", '"linked" names a directory'),
        (".git", '".git" names a directory'),
        ("TESTS/*", '"TESTS/*" matches no file; correct it'),
        ("s?c.pyx", '"s?c.pyx" matches no file'),
        ("/etc/*", '"/etc/*" matches no file'),
        ("/etc/passwd", "there is no directory"),
        ("test/test_a.py", '"test/test_a.py" matches no file, and there is no directory "test"; correct it'),
        ("deep/conftest.py", 'there is no directory "deep"'),
        (".git/config", 'there is no directory ".git"'),
    ],
)
async def test_a_glob_that_protects_nothing_is_told_with_its_remedy(work: Path, glob: str, told: str) -> None:
    (work / "outside").mkdir()
    os.symlink("outside", work / "linked")
    (work / ".git").mkdir()
    (work / ".git/config").write_text("")
    pins = await FILES.pin(check("tests/*", glob), str(work))
    [why] = pins.useless.values()
    assert list(pins.useless) == [glob] and told in why and pins.to_come == ()


async def test_only_a_plain_path_may_be_of_a_file_that_must_not_come(work: Path) -> None:
    globs = ("src.py", "*.py", "tests/*", "tests/deep/*", "conftest.py", "tests/pytest.ini", "test_b.py")
    pins = await FILES.pin(check(*globs), str(work))
    assert (pins.useless, pins.to_come) == ({}, ("conftest.py", "tests/pytest.ini"))
    (work / "tests/pytest.ini").write_text("")
    assert (await FILES.pin(check(*globs), str(work))).to_come == ("conftest.py",)


async def test_what_a_protected_link_leads_to_counts(work: Path) -> None:
    os.symlink("impl.py", work / "conftest.py")
    (work / "impl.py").write_text("a")
    said = await change(work, check("conftest.py"), lambda: (work / "impl.py").write_text("b"))
    assert said is not None and "conftest.py (changed)" in said


async def test_files_behind_a_link_to_a_folder_are_found_and_circles_end(work: Path) -> None:
    (work / "tests").rename(work / "real")
    os.symlink("real", work / "tests")
    os.symlink("..", work / "real" / "up")
    os.symlink("/", work / "all")
    said = await change(work, check("tests/*"), lambda: (work / "real/test_a.py").write_text("assert True"))
    assert said is not None and "tests/test_a.py (changed)" in said


async def test_many_changes_are_named_in_part_and_counted(work: Path) -> None:
    said = await change(work, check("tests/*"), lambda: [(work / f"tests/n{n}.py").write_text("") for n in range(9)])
    assert said is not None and said.count("(new)") == 5 and said.endswith("and 4 more")


async def test_a_work_tree_that_became_a_link_is_looked_at_by_nobody(work: Path) -> None:
    (work / ".worktrees").mkdir()
    os.symlink("../tests", work / ".worktrees" / "child")
    tree = str(work / ".worktrees" / "child")
    assert FILES.text_of(tree, "test_a.py").state is Kept.unkept
    with pytest.raises(ConfigError, match="is a link by now"):
        await FILES.pin(check("*"), tree)
    assert FILES.text_of(str(work / "tests"), "test_a.py").state is Kept.text, "the control"


@pytest.mark.parametrize("globs", [("tests/*",), ("*",)])
async def test_names_that_look_alike_are_two_files(work: Path, globs: tuple[str, ...]) -> None:
    """No text can hold such a name, so it is written down cleaned; that must not make one note of two."""
    places = [work / "tests" / os.fsdecode(name) for name in (b"\xff.py", b"\xfe.py", "\ufffd.py".encode())]
    for place in places:
        place.write_bytes(b"old")
    for place in places:
        then = Pins.from_json((await FILES.pin(check(*globs), str(work))).to_json())
        place.write_bytes(b"new")
        said = then.change_to(await FILES.pin(check(*globs), str(work)))
        assert said is not None and said.count("(changed)") == 1


async def test_folders_nested_deeper_than_calls_may_be_are_looked_at(work: Path) -> None:
    def meddle() -> None:
        here = os.open(work / "tests", os.O_RDONLY)
        for _ in range(700):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("test_c.py", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)

    said = await change(work, check("tests/*"), meddle)
    assert said is not None and "test_c.py" in said


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (WorkspaceFiles(most_files=1), "more than 1 files are protected"),
        (WorkspaceFiles(most_bytes=20), "hold more than 20 bytes"),
        (WorkspaceFiles(most_seen=2), "more than 2 entries"),
    ],
)
async def test_more_than_can_be_looked_at_is_refused_and_told(work: Path, files: WorkspaceFiles, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        await files.pin(check("tests/*"), str(work))
    assert [place for place, _text in refused.value.problems] == ["contract.verify.protect"]


async def test_kinds_without_files_of_their_own_note_nothing(work: Path) -> None:
    assert await FILES.pin(Verification.workspace_file_contains("a", "b"), str(work)) == Pins("")


# ── the program ─────────────────────────────────────────────────────────────


def program(file: Path, text: str = "#!/bin/sh\nexit 0\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


async def passed(root: Path, criterion: Verification) -> bool:
    found = await evaluate(
        criterion, root=str(root), file=None, exec_timeout=20, may_read=lambda _: True, may_exec=lambda _: True
    )
    return found.verdict == "passed"


async def test_a_program_put_in_front_of_the_checks_own_is_named(root: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    criterion = check(argv=("false",))
    assert not await passed(root, criterion)
    said = await change(root, criterion, lambda: program(root / "bin" / "false"))
    assert said is not None and "program false (changed)" in said
    # The control: without a look at what is run, the check passes now.
    assert await passed(root, criterion)


@pytest.mark.parametrize("path", ["bin", ""])
async def test_a_program_in_a_place_that_is_relative_is_not_run(root: Path, monkeypatch, path: str) -> None:
    monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
    criterion = check(argv=("false",))
    assert await change(root, criterion, lambda: program(root / path / "false")) is None
    assert not await passed(root, criterion)


async def test_a_program_put_in_front_of_one_that_the_check_runs_is_named(root: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    criterion = check(argv=("sh", "-c", "false"))
    # A builtin is no program; env looks in PATH.
    criterion = check(argv=("env", "false"))
    said = await change(root, criterion, lambda: program(root / "bin" / "false"))
    assert said is not None and "bin/false (new)" in said
    assert await passed(root, criterion)


async def test_a_new_program_that_stands_before_no_other_is_work(root: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    assert await change(root, check(), lambda: program(root / "bin" / "a-tool-of-our-own")) is None


async def test_a_program_of_the_workspace_that_is_in_path_is_noted(root: Path, monkeypatch) -> None:
    program(root / "bin" / "judge", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    said = await change(root, check(argv=("judge",)), lambda: program(root / "bin" / "judge"))
    assert said is not None and "program judge (changed)" in said


async def test_a_program_that_was_missing_does_not_appear_unnoticed(root: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    criterion = check(argv=("no-such-judge",))
    said = await change(root, criterion, lambda: program(root / "bin" / "no-such-judge"))
    assert said is not None and "program no-such-judge (changed)" in said
    assert await passed(root, criterion), "the control"


async def test_a_program_that_was_missing_may_be_installed_outside_the_workspace(root: Path, monkeypatch) -> None:
    tools, mine = root.parent / "tools", root / "bin"
    monkeypatch.setenv("PATH", f"{mine}:{tools}:{os.environ['PATH']}")
    criterion = check(argv=("no-such-judge",))
    then = Pins.from_json((await FILES.pin(criterion, str(root))).to_json())
    program(tools / "no-such-judge")
    assert then.change_to(await FILES.pin(criterion, str(root))) is None
    assert await passed(root, criterion)
    # Neither one in front of it nor a link out there to one of the worker's is taken.
    program(mine / "no-such-judge")
    assert "program no-such-judge (changed)" in str(then.change_to(await FILES.pin(criterion, str(root))))
    (mine / "no-such-judge").rename(root / "judge")
    (tools / "no-such-judge").unlink()
    os.symlink(root / "judge", tools / "no-such-judge")
    assert "program no-such-judge (changed)" in str(then.change_to(await FILES.pin(criterion, str(root))))
    # Nor a link in here, wherever it leads.
    (tools / "no-such-judge").unlink()
    os.symlink("/bin/true", mine / "no-such-judge")
    assert "program no-such-judge (changed)" in str(then.change_to(await FILES.pin(criterion, str(root))))


async def test_a_program_that_was_there_is_not_replaced_by_one_outside(root: Path, monkeypatch) -> None:
    tools, more = root.parent / "tools", root.parent / "more"
    monkeypatch.setenv("PATH", f"{more}:{tools}:{os.environ['PATH']}")
    program(tools / "a-judge", "#!/bin/sh\nexit 1\n")
    said = await change(root, check(argv=("a-judge",)), lambda: program(more / "a-judge"))
    assert said is not None and "program a-judge (changed)" in said


async def test_what_an_older_version_noted_is_read(root: Path) -> None:
    noted = Pins.from_json('["of", {"a": ["d", false]}, {"program x": ["missing", true]}, null]')
    assert noted.programs["program x"].is_missing and not noted.programs["program x"].outside


async def test_a_program_named_by_its_path_is_noted_when_it_is_there(root: Path) -> None:
    program(root / "judge.sh", "#!/bin/sh\nexit 1\n")
    said = await change(root, check(argv=("./judge.sh",)), lambda: program(root / "judge.sh"))
    assert said is not None and "program ./judge.sh (changed)" in said


async def test_a_program_named_by_its_path_that_is_to_be_made_is_the_work(root: Path) -> None:
    assert await change(root, check(argv=("./made.sh",)), lambda: program(root / "made.sh")) is None


async def test_a_link_outside_that_leads_to_a_program_in_the_workspace_is_noted(root: Path, monkeypatch) -> None:
    program(root / "judge.sh", "#!/bin/sh\nexit 1\n")
    (root.parent / "bin").mkdir()
    os.symlink(root / "judge.sh", root.parent / "bin" / "judge")
    monkeypatch.setenv("PATH", f"{root.parent / 'bin'}:{os.environ['PATH']}")
    said = await change(root, check(argv=("judge",)), lambda: program(root / "judge.sh"))
    assert said is not None and "program judge (changed)" in said


async def test_what_the_first_line_of_the_program_names_is_noted(root: Path) -> None:
    program(root / "env" / "python", "#!/bin/sh\nexit 1\n")
    program(root / "judge", f"#!{root}/env/python\n")
    said = await change(root, check(argv=("./judge",)), lambda: program(root / "env" / "python"))
    assert said is not None and "env/python (changed)" in said


# ── byte code ───────────────────────────────────────────────────────────────


def poison(root: Path) -> None:
    """Put byte code of another source where Python looks for that of `judge.py`."""
    import py_compile

    real = root / "judge.py"
    source, times = real.read_bytes(), real.stat()
    real.write_bytes(b"ok = 1".ljust(len(source)))
    os.utime(real, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(real), doraise=True)
    real.write_bytes(source)
    os.utime(real, ns=(times.st_atime_ns, times.st_mtime_ns))


async def test_a_first_line_without_a_root_is_meant_from_the_workspace(root: Path, monkeypatch) -> None:
    """So the system finds it, which starts a check there."""
    (root / "bin").mkdir()
    program(root / "bin" / "interpreter", "#!/bin/sh\nexit 1\n")
    program(root / "check", "#!bin/interpreter\n")
    criterion = check(argv=("./check",))
    said = await change(root, criterion, lambda: program(root / "bin" / "interpreter", "#!/bin/sh\nexit 0\n"))
    assert said is not None and "bin/interpreter" in said


async def test_byte_code_that_somebody_left_is_not_what_a_protected_check_runs(root: Path) -> None:
    (root / "judge.py").write_text("raise SystemExit(1)\n")
    argv = (sys.executable, "-c", "import judge")
    poison(root)
    assert await passed(root, Verification.command(argv)), "the control: the poisoned byte code is run"
    assert not await passed(root, Verification.command(argv, protect=["judge.py"]))


async def test_a_protected_check_leaves_no_byte_code(root: Path) -> None:
    (root / "judge.py").write_text("x = 1\n")
    argv = (sys.executable, "-c", "import judge")
    assert await passed(root, Verification.command(argv, protect=["judge.py"]))
    assert not (root / "__pycache__").exists()
    assert await passed(root, Verification.command(argv)) and (root / "__pycache__").exists()


async def test_what_the_environment_of_the_runtime_says_to_python_does_not_reach_a_check(root: Path, monkeypatch) -> None:
    (root / "lib").mkdir()
    (root / "lib" / "sitecustomize.py").write_text("import os\nos._exit(0)\n")
    monkeypatch.setenv("PYTHONPATH", str(root / "lib"))
    argv = (sys.executable, "-c", "raise SystemExit(1)")
    assert not await passed(root, Verification.command(argv))
    # The control: with the variable, the check is over before it begins.
    with_it = ("env", f"PYTHONPATH={root / 'lib'}", *argv)
    assert await passed(root, Verification.command(with_it))


# ── texts for a reviewer ────────────────────────────────────────────────────


async def test_a_text_is_kept_or_it_is_said_why_not(root: Path) -> None:
    place = Workspace(str(root))
    (root / "a.txt").write_text("täxt")
    (root / "b.bin").write_bytes(b"\x00\x01")
    (root / "c.txt").write_bytes(b"\xe9")
    (root / "d.txt").write_bytes(b"x" * (MOST_TEXT + 1))
    (root / "e").mkdir()
    os.symlink("../secret/key.txt", root / "f")
    told = {name: text_at(place, name) for name in ("a.txt", "b.bin", "c.txt", "d.txt", "e", "f", "g")}
    assert (told["a.txt"].state, told["a.txt"].text) == (Kept.text, "täxt")
    assert told["g"].state is Kept.absent
    reasons = {name: told[name].text for name in ("b.bin", "c.txt", "d.txt", "e", "f")}
    assert all(told[name].state is Kept.unkept and reasons[name] for name in reasons)
    assert "canary" not in str(told) and "binary" in reasons["b.bin"] and "more than" in reasons["d.txt"]
