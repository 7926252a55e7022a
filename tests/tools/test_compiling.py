"""A file compiles, does not, or could not be looked at; and nothing of it is run."""

import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
import trio

from actors.agents.verification import Verification
from actors.tools import compiling
from actors.tools.verifying import Verdict, evaluate


async def judged(root, *files, timeout=20.0, may_read=lambda _: True, may_exec=lambda _: True) -> Verdict:
    return await evaluate(
        Verification.each_compiles(files),
        root=str(root),
        file=None,
        exec_timeout=timeout,
        may_read=may_read,
        may_exec=may_exec,
    )


@pytest.mark.parametrize(
    ("source", "verdict", "said"),
    [
        (b"x = 1\n", "passed", ""),
        (b"", "passed", ""),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "passed", ""),
        (b"async def f():\n    return [await g async for g in h()]\n", "passed", ""),
        (b"x = \n", "failed", "SyntaxError"),
        (b"return 1\n", "failed", "SyntaxError"),
        (b"x = '\xe9'\n", "failed", "SyntaxError"),
        (b"a\0b", "failed", "null bytes"),
        (b"(" * 100_000, "failed", "too many nested parentheses"),
        # What the compiler itself cannot bear says nothing of the work.
        (b"-" * 3_000_000 + b"1", "errored", "MemoryError"),
        (b"x = " + b"+".join([b"1"] * 200_000), "errored", "RecursionError"),
    ],
    ids=range(11),
)
async def test_python_compiles_or_does_not(root, source, verdict, said):
    (root / "a.py").write_bytes(source)
    found = await judged(root, "a.py")
    assert (found.phase, found.verdict) == ("compiles", verdict) and said in found.detail


async def test_nothing_of_a_file_is_run_and_nothing_beside_it_is_imported(root, monkeypatch):
    """A look that imported the file, or let Python look around, would leave marks."""
    for name in ("a.py", "sitecustomize.py", "usercustomize.py"):
        (root / name).write_text(f"open({str(root / 'ran')!r}, 'a').write({name!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("PYTHONSTARTUP", str(root / "a.py"))
    assert (await judged(root, "a.py")).verdict == "passed"
    assert not (root / "ran").exists()
    # The control: a Python that may look around imports what PYTHONPATH names, and runs what it is given.
    await trio.run_process([sys.executable, str(root / "a.py")])
    assert {"sitecustomize.py", "a.py"} <= set((root / "ran").read_text().replace("py", "py ").split())


@pytest.mark.parametrize("source", ['x = "\\d"\n', "# coding: latin-1\nx = 1\n", "x = 1 is 1\n", "x = \n", "# coding: cp037\n"])
async def test_no_module_of_the_workspace_stands_in_for_one_of_pythons_own(root, source):
    for name in ("warnings", "linecache", "tokenize", "traceback", "codecs", "re", "os", "token", "contextlib", "io"):
        (root / f"{name}.py").write_text(f"open({str(root / 'ran')!r}, 'a').write({name!r})\n")
    (root / "encodings").mkdir()
    (root / "encodings" / "cp037.py").write_text(f"open({str(root / 'ran')!r}, 'a')\n")
    (root / "a.py").write_text(source)
    assert (await judged(root, "a.py")).verdict in ("passed", "failed")
    assert not (root / "ran").exists()


async def test_python_looks_neither_at_its_environment_nor_at_any_site(root, monkeypatch):
    told = "import sys; print(sys.flags.isolated, sys.flags.no_site, sys.flags.ignore_environment); sys.exit(1)"
    monkeypatch.setattr(compiling, "_PYTHON", told)
    (root / "a.py").write_text("x = 1")
    assert (await judged(root, "a.py")).detail.endswith("(python): 1 1 1")


async def test_a_coding_that_a_file_names_is_not_looked_for_in_the_workspace(root):
    (root / "evil.py").write_text(f"open({str(root / 'ran')!r}, 'w')\n")
    (root / "a.py").write_text("# coding: evil\nx = 1\n")
    assert (await judged(root, "a.py")).verdict == "failed"
    assert not (root / "ran").exists()


async def test_every_file_must_compile_and_what_is_known_to_fail_fails(root):
    (root / "good.py").write_text("x = 1")
    (root / "bad.py").write_text("x = ")
    (root / "odd.xyz").write_text("")
    assert (await judged(root, "good.py", "bad.py")).verdict == "failed"
    assert (await judged(root, "good.py", "odd.xyz")).verdict == "errored"
    both = await judged(root, "odd.xyz", "bad.py", "good.py")
    assert both.verdict == "failed" and "odd.xyz" in both.detail and "good.py" not in both.detail
    absent = await judged(root, "absent.py")
    assert (absent.verdict, absent.detail) == ("failed", '"absent.py" does not exist')


@pytest.mark.parametrize("file", ["../secret/key.txt", "out/key.py", "key.py", "/etc/passwd"])
async def test_it_is_no_oracle_about_what_lies_outside(root, file):
    (root.parent / "secret" / "key.py").write_text("x = 1")
    os.symlink("../secret", root / "out")
    os.symlink("../secret/key.py", root / "key.py")
    assert (await judged(root, file)).verdict == "errored"


async def test_it_is_no_oracle_about_what_may_not_be_read(root):
    (root / "a.py").write_text("x = ")
    (root / "b.py").write_text("x = 1")
    said = {(await judged(root, name, may_read=lambda _: False)).verdict for name in ("a.py", "b.py", "absent.py")}
    assert said == {"errored"}


async def test_a_look_that_does_not_end_is_errored_and_leaves_no_process(root, monkeypatch, marker):
    monkeypatch.setattr(compiling, "_PYTHON", f"import time; time.sleep({marker.text})")
    (root / "a.py").write_text("x = 1")
    found = await judged(root, "a.py", timeout=0.3)
    assert found.verdict == "errored" and "no answer after 0.3 s" in found.detail
    assert marker.living() == []


async def test_a_look_that_dies_is_errored(root, monkeypatch):
    monkeypatch.setattr(compiling, "_PYTHON", "import os; os.kill(os.getpid(), 9)")
    (root / "a.py").write_text("x = 1")
    found = await judged(root, "a.py")
    assert found.verdict == "errored" and "signal 9" in found.detail


OTHERS = [
    ("sh", "a.sh", "if true; then echo; fi\n", "if true; then\n"),
    ("bash", "a.bash", "x=(1 2)\n", "x=(\n"),
    ("node", "a.js", "let x = 1; with (x) {}", "let x = ;"),
    ("node", "b.js", 'import x from "y"; export default x', "import from"),
    ("node", "a.mjs", 'import x from "y"; await x', "import"),
    ("node", "a.cjs", "const a = require('x')", 'import x from "y"'),
    ("ruby", "a.rb", "x = 1", "def"),
    ("php", "a.php", "<?php $x = 1;", "<?php $x = ;"),
    ("luac", "a.lua", "x = 1", "x ="),
    ("gofmt", "a.go", "package a\n", "package a\nfunc {"),
]


@pytest.mark.parametrize(("program", "name", "good", "bad"), OTHERS, ids=[each[1] for each in OTHERS])
async def test_another_language_is_looked_at_by_its_own_checker(root, program, name, good, bad):
    (root / name).write_text(good)
    found = await judged(root, name)
    if shutil.which(program) is None:
        assert found.verdict == "errored" and f"{program} is unavailable" in found.detail
        return
    assert found.verdict == "passed", found.detail
    (root / name).write_text(bad)
    failed = await judged(root, name)
    assert failed.verdict == "failed" and "does not compile" in failed.detail


def test_every_checker_has_a_test():
    assert {Path(name).suffix for _, name, _, _ in OTHERS} == set(compiling.CHECKERS)


async def test_nothing_of_a_script_is_run(root):
    (root / "a.sh").write_text("echo x > ran\n")
    (root / "a.bash").write_text("$(echo x > ran)\n")
    assert (await judged(root, "a.sh", "a.bash")).verdict == "passed"
    assert not (root / "ran").exists()


async def test_a_missing_checker_is_errored_and_never_passed(root, monkeypatch):
    (root / "a.sh").write_text("echo\n")
    monkeypatch.setenv("PATH", str(root / "nowhere"))
    found = await judged(root, "a.sh")
    assert (found.verdict, found.detail) == ("errored", '"a.sh" cannot be looked at: sh is unavailable')


async def test_a_checker_must_be_allowed_where_the_criterion_is_a_models(root):
    (root / "a.sh").write_text("echo\n")
    asked = []

    def may_exec(argv):
        asked.append(tuple(argv))
        return False

    found = await judged(root, "a.sh", may_exec=may_exec)
    assert found.verdict == "errored" and "the policy does not allow sh -n" in found.detail
    assert asked == [("sh", "-n")]


@pytest.mark.parametrize("in_path", ["absolute", "relative", "linked"])
async def test_a_checker_that_lies_in_the_workspace_judges_nothing(root, monkeypatch, in_path):
    (root / "bin").mkdir()
    own = root / "bin" / "sh"
    own.write_text("#!/bin/true\n")
    own.chmod(0o755)
    (root / "a.sh").write_text("if\n")
    outside = root.parent / "tools"
    outside.mkdir()
    os.symlink(own, outside / "sh")
    place = {"absolute": str(root / "bin"), "relative": "bin", "linked": str(outside)}[in_path]
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.chdir(root)
    found = await judged(root, "a.sh")
    assert found.verdict == ("failed" if in_path == "relative" else "errored"), found.detail
    # The control: whoever goes by PATH alone is told that it compiles.
    assert shutil.which("sh") is not None and os.stat(own).st_mode & stat.S_IXUSR
    run = await trio.run_process(["sh", "-n", str(root / "a.sh")], check=False)
    assert run.returncode == 0
