"""Programs of ours that are handed a text stand behind the boundary, and apart from the workspace whose text it is."""

import ast
import json
import os
import socket
import sys
import time
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.errors import ToolFailed
from actors.testing.machines import Machine
from actors.tools import compiling, sandbox, sandbox_places, search
from actors.tools.sandbox import detect
from actors.tools.sandbox_plan import Capabilities
from actors.tools.search import Grep
from actors.tools.verifying import Verdict, evaluate

WRITE, READ, FULL = ExecSandbox.workspace_write, ExecSandbox.read_only, ExecSandbox.full_access
BACKENDS = ["bubblewrap", "namespaces", "users", "rules"]
GENEROUS = Policy.permissive()

# As if a hole in a parser let a text do what it wants.
HOSTILE = """
import errno, json, os, socket, sys
sys.stdin.buffer.read()
def tries(what):
    try:
        what()
    except OSError as error:
        return "not"
    return "did"
def writes(path):
    return tries(lambda: open(path, "a").write("x"))
def reaches(port):
    socket.create_connection(("127.0.0.1", port), 1).close()
found = {
    "reads": tries(lambda: open(ROOT + "/a.py").read()),
    "writes": writes(ROOT + "/planted"),
    "outside": writes(OUTSIDE + "/planted"),
    "network": tries(lambda: reaches(PORT)),
    "signals": tries(lambda: os.kill(RUNTIME, 0)),
    "temporary": writes(os.environ.get("TMPDIR", "/nowhere") + "/mine"),
    "key": "did" if "SOME_API_KEY" in os.environ else "not",
}
"""
DONE = dict.fromkeys(("reads", "writes", "outside", "network", "signals"), "did")
HELD = {**dict.fromkeys(DONE, "not"), "temporary": "did", "key": "not"}




@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def hostile(root: Path, outside: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    (root / "a.py").write_text("x = 1\n")
    monkeypatch.setenv("SOME_API_KEY", "canary-canary")
    facts = {"ROOT": str(root), "OUTSIDE": str(outside), "PORT": port, "RUNTIME": os.getpid()}
    return "".join(f"{name} = {value!r}\n" for name, value in facts.items()) + HOSTILE


async def compiles(root: Path, confinement: Confinement, *files: str) -> Verdict:
    return await evaluate(
        Verification.each_compiles(files or ["a.py"]),
        root=str(root),
        file=None,
        exec_timeout=20.0,
        may_read=lambda _: True,
        may_exec=lambda _: True,
        confinement=confinement,
    )


async def found_by_checker(root, code, monkeypatch, confinement) -> dict[str, str]:
    monkeypatch.setattr(compiling, "_PYTHON", code + "\nprint(json.dumps(found))\nsys.exit(1)\n")
    verdict = await compiles(root, confinement)
    assert verdict.verdict == "failed", verdict
    return json.loads(verdict.detail.partition("(python): ")[2])


async def found_by_searcher(context, code, monkeypatch, confinement) -> dict[str, str]:
    monkeypatch.setattr(search, "_WORKER", code + "\nprint(json.dumps([1, 0, [json.dumps(found)]]))\n")
    context.confinement = confinement
    return json.loads((await Grep().run({"pattern": "x"}, context)).text)


@pytest.mark.parametrize("can", BACKENDS, indirect=True)
@pytest.mark.parametrize("mode", [WRITE, READ, None])
async def test_a_checker_reads_and_reaches_nothing_but_what_it_is_handed(root, hostile, can, mode, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    found = await found_by_checker(root, hostile, monkeypatch, Confinement(mode, GENEROUS))
    # Landlock lets signals through before its version 6.
    assert {**found, "signals": "not"} == HELD and not (root / "planted").exists()


@pytest.mark.parametrize("can", BACKENDS, indirect=True)
@pytest.mark.parametrize("mode", [WRITE, READ, None])
async def test_the_searcher_reads_and_reaches_nothing_but_what_it_is_handed(context, root, hostile, can, mode, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    found = await found_by_searcher(context, hostile, monkeypatch, Confinement(mode, GENEROUS))
    assert {**found, "signals": "not"} == HELD and not (root / "planted").exists()


async def test_control_without_a_boundary_both_do_all_of_it(context, root, hostile, monkeypatch):
    for found in (
        await found_by_checker(root, hostile, monkeypatch, Confinement(FULL)),
        await found_by_searcher(context, hostile, monkeypatch, Confinement(FULL)),
    ):
        assert {name: found[name] for name in DONE} == DONE and found["key"] == "not"
    assert (root / "planted").read_text() == "xx"


@pytest.mark.parametrize("can", BACKENDS, indirect=True)
async def test_the_real_ones_work_behind_each_boundary(context, root, can, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    for name, text in {"a.py": "x = 1\n", "b.sh": "echo\n", "c.bash": "x=(1)\n", "bad.py": "x = \n", "bad.sh": "if\n"}.items():
        (root / name).write_text(text)
    around = Confinement(WRITE, Policy.default())
    assert (await compiles(root, around, "a.py", "b.sh", "c.bash")).verdict == "passed"
    for bad in ("bad.py", "bad.sh"):
        assert (await compiles(root, around, bad)).verdict == "failed"
    context.confinement = around
    assert (await Grep().run({"pattern": "x ?= ?1"}, context)).text == "a.py:1: x = 1"


@pytest.mark.parametrize("can", BACKENDS[:2], indirect=True)
async def test_what_applied_to_a_check_is_recorded_once_and_as_what_it_was(root, can, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    rows = []

    async def record(applied: SandboxApplied) -> None:
        rows.append((applied.mode, applied.backend, applied.net))

    (root / "a.py").write_text("x = 1\n")
    (root / "b.py").write_text("x = 1\n")
    await compiles(root, Confinement(WRITE, GENEROUS, record=record), "a.py", "b.py")
    backend = "bubblewrap" if can.bubblewrap else "landlock"
    assert rows == [(READ, backend, "denied")]
    await compiles(root, Confinement(FULL, record=record))
    assert rows[1:] == [(FULL, "none", "not_held")]


async def test_where_a_named_boundary_cannot_be_held_nothing_is_started(context, root, hostile, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", Machine(Capabilities()))
    monkeypatch.setattr(compiling, "_PYTHON", hostile)
    monkeypatch.setattr(search, "_WORKER", hostile)
    verdict = await compiles(root, Confinement(WRITE))
    assert verdict.verdict == "errored" and "cannot be held here" in verdict.detail
    context.confinement = Confinement(READ)
    with pytest.raises(ToolFailed, match="cannot be held here"):
        await Grep().run({"pattern": "x"}, context)
    assert not (root / "planted").exists()
    # The control: one that nobody named is held as far as it goes, which is not at all here.
    await compiles(root, Confinement())
    assert (root / "planted").exists()


async def test_a_cap_that_ends_a_program_is_named_and_never_a_verdict(context, root, monkeypatch):
    (root / "a.py").write_text("x = 1\n")
    around = Confinement(caps=ExecCaps(wall_seconds=0.3))
    monkeypatch.setattr(compiling, "_PYTHON", "import time; time.sleep(30)")
    began = time.monotonic()
    verdict = await compiles(root, around)
    assert verdict.verdict == "errored" and "the cap wall_seconds" in verdict.detail
    monkeypatch.setattr(search, "_WORKER", "import time; time.sleep(30)")
    context.confinement = around
    with pytest.raises(ToolFailed, match="reached the cap wall_seconds"):
        await Grep().run({"pattern": "x"}, context)
    assert time.monotonic() - began < 15


async def test_an_interpreter_in_the_workspace_is_not_the_one_that_looks(context, root, monkeypatch):
    """A virtual environment often lies there, and whoever works there can write it."""
    own = root / "venv" / "python"
    own.parent.mkdir()
    own.write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own))
    (root / "a.py").write_text("x = \n")
    assert (await compiles(root, Confinement(FULL))).verdict == "failed"
    assert (await Grep().run({"pattern": "x ="}, context)).text == "a.py:1: x = "
    assert not (root / "ran").exists()


@pytest.mark.parametrize("can", BACKENDS, indirect=True)
async def test_a_workspace_that_holds_the_private_directory_is_hidden_all_the_same(root, can, monkeypatch):
    (root / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(root / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(root / "tmp"))
    monkeypatch.setattr(sandbox, "detect", Machine(can))
    (root / "a.py").write_text("x = 1\n")
    assert (await compiles(root, Confinement(WRITE, GENEROUS))).verdict == "passed"
    assert list((root / "tmp").iterdir()) == []


def test_nothing_of_the_workspace_needs_to_be_looked_through_for_it(root):
    """Its files are hidden whole, however many rules and entries there are."""
    policy = Policy.default().layer("op").deny_read("*.txt").deny_write("*")
    can = attrs.evolve(detect(), bubblewrap="/usr/bin/bwrap")
    plan = trio.run(sandbox_places.planned, Confinement(WRITE, policy, apart_from=str(root)), "/", can)
    assert str(root) in plan.grants.hidden and plan.grants.writable == () and plan.grants.protected == ()
    assert not [path for path in plan.grants.hidden if path.startswith(f"{root}/")]


def test_nothing_of_this_package_starts_a_program_beside_the_boundary():
    """Whoever adds a third kind of program sees this fail, and puts it behind the boundary."""
    package = Path(sandbox.__file__).parents[1]
    starts: dict[str, set[str]] = {"run": set(), "start": set(), "spawns": set()}
    for file in package.rglob("*.py"):
        name = str(file.relative_to(package))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "actors.tools.process":
                for each in node.names:
                    starts.get(each.name, set()).add(name)
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.endswith(("open_process", "run_process", "subprocess.run", "Popen", "os.system", "posix_spawn")):
                starts["spawns"].add(name)
    assert starts["run"] == {"tools/sandbox.py"} and starts["start"] == {"tools/pipelines.py"}
    # What makes and looks at a repository for the explorer of crash points; no agent is there.
    of_tests = {"testing/crash_account.py", "testing/crash_scenarios.py"}
    # The probe of the boundary itself, and a look at the process table, which reads nothing of a workspace.
    assert starts["spawns"] - of_tests == {"tools/process.py", "tools/sandbox.py", "store/owners.py"}
