"""A command ends with everything it started, whatever that did to hide; its output is kept, bounded."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.tools.process import Status, environment, not_started, run

# What a command may leave behind. {m} is a length of sleep that is also the mark to look for.
HIDING = {
    "in the background": "sleep {m} & sleep 0.05",
    "in a session of its own": "setsid sleep {m} & sleep 0.05",
    "without a parent, deaf to the hang-up": "(nohup sleep {m} >/dev/null 2>&1 &); sleep 0.05",
    "without a parent, in a session of its own, silent": "(setsid sleep {m} >/dev/null 2>&1 &); sleep 0.05",
    "holding the output": "sleep {m} & exit 0",
    "without its environment": "env -i sleep {m} >/dev/null & sleep 0.05",
    "without its environment, in a session of its own, holding the output": "(env -i setsid sleep {m} &); sleep 0.05",
    "deaf to a polite request": "(trap '' TERM HUP INT; sleep {m}) & sleep 0.05",
}
hides = pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
needs_setsid = pytest.mark.skipif(shutil.which("setsid") is None, reason="needs the program setsid")


def shell(line: str) -> list[str]:
    return ["sh", "-c", line]


@needs_setsid
@hides
def test_what_hides_outlives_a_command_that_nobody_looks_after(hiding, marker, root):
    subprocess.run(shell(hiding.format(m=marker.text)), start_new_session=True, stdout=subprocess.DEVNULL, check=False)
    try:
        assert len(marker.living()) >= 1
    finally:
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and marker.text.encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue


@needs_setsid
@hides
async def test_nothing_outlives_a_command_that_ends(hiding, marker, root):
    done = await run(shell(f"echo said; {hiding.format(m=marker.text)}"), cwd=str(root), timeout=5)
    assert marker.living() == []
    assert (done.status, done.code, done.output, done.leaked) == (Status.exited, 0, "said\n", ())


@needs_setsid
@hides
async def test_nothing_outlives_a_command_that_times_out_and_what_it_printed_is_kept(hiding, marker, root):
    line = f"echo said; {hiding.replace('exit 0', 'true').format(m=marker.text)}; wait; sleep {marker.text}"
    done = await run(shell(line), cwd=str(root), timeout=0.25)
    assert marker.living() == []
    assert (done.status, done.code, done.output, done.leaked) == (Status.timed_out, None, "said\n", ())


@needs_setsid
@hides
async def test_nothing_outlives_a_command_that_is_cancelled(hiding, marker, root):
    with trio.move_on_after(0.25) as scope:
        await run(shell(f"{hiding.replace('exit 0', 'true').format(m=marker.text)}; wait"), cwd=str(root), timeout=60)
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert marker.living() == []


@needs_setsid
async def test_who_descends_from_a_command_is_found_whatever_it_sheds(marker, root):
    line = f"env -i setsid sleep {marker.text} >/dev/null 2>&1 & sleep {marker.text}"
    done = await run(shell(line), cwd=str(root), timeout=0.25)
    assert done.status is Status.timed_out
    assert marker.living() == []


def inner(root: Path, marker) -> list[str]:
    """Write a command that is this very runtime, running a command of its own."""
    code = f"""
import sys, trio
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from actors.tools.process import run
trio.run(lambda: run(["sh", "-c", "touch started; sleep {marker.text}"], cwd={str(root)!r}, timeout=60))
"""
    return [sys.executable, "-c", code]


async def test_a_command_inside_a_command_dies_with_the_outer_one(marker, root):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run(inner(root, marker), cwd=str(root), timeout=60))
        with trio.fail_after(10):
            while not (root / "started").exists():
                await trio.sleep(0.02)
        # SIGKILL gives the inner one no chance to clean up.
        nursery.cancel_scope.cancel()
    assert marker.living() == []


async def test_a_command_inside_a_command_that_lost_its_parent_dies_too(marker, root):
    line = '"$@" >/dev/null 2>&1 & while ! [ -e started ]; do sleep 0.02; done'
    done = await run(["sh", "-c", line, "sh", *inner(root, marker)], cwd=str(root), timeout=10)
    assert done.status is Status.exited
    assert marker.living() == []


async def test_a_timed_out_command_does_no_work_afterwards(root):
    done = await run(shell("(sleep 0.4; echo late > late.txt) & sleep 60"), cwd=str(root), timeout=0.1)
    assert done.status is Status.timed_out
    await trio.sleep(0.5)
    assert not (root / "late.txt").exists()


async def test_it_does_the_same_work_when_there_is_time(root):
    await run(shell("(sleep 0.05; echo late > late.txt) & wait"), cwd=str(root), timeout=5)
    assert (root / "late.txt").exists()


async def test_an_orphan_that_holds_the_output_does_not_hold_the_call(marker, root):
    done = await run(shell(f"sleep {marker.text} & echo said"), cwd=str(root), timeout=30)
    assert done.seconds < 15
    assert done.output == "said\n"


def children() -> set[str]:
    """Give our own children, the dead ones too."""
    stats = [(place.name, place / "stat") for place in Path("/proc").iterdir() if place.name.isdigit()]
    own = str(os.getpid())
    return {name for name, stat in stats if stat.exists() and stat.read_text().rpartition(")")[2].split()[1] == own}


async def test_no_dead_process_is_left_to_reap(marker, root):
    before = children()
    await run(shell("true & sleep 60 & exit 0"), cwd=str(root), timeout=5)
    await run(["sleep", marker.text], cwd=str(root), timeout=0.05)
    assert children() == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs a Linux kernel")
def test_orphans_that_fall_to_us_are_reaped(root):
    """As process 1 of a container, or as a subreaper, we are the new parent of every orphan."""
    code = """
import ctypes, os, sys, trio
from actors.tools.process import run
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
trio.run(lambda: run(["sh", "-c", "(sleep 0.01 &); (sleep 60 &); exit 0"], cwd="/", timeout=5))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none is left")
"""
    path = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path, **environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("none is left\n", "")


async def test_many_commands_end_at_once(marker, root):
    ends = []

    async def one(place: int) -> None:
        done = await run(shell(f"echo {place}; sleep {marker.text} & sleep {marker.text}"), cwd=str(root), timeout=0.3)
        ends.append((done.status, done.output))

    async with trio.open_nursery() as nursery:
        for place in range(20):
            nursery.start_soon(one, place)
    assert sorted(ends) == sorted((Status.timed_out, f"{place}\n") for place in range(20))
    assert marker.living() == []


@pytest.mark.parametrize(
    ("line", "timeout", "status", "code"),
    [
        ("exit 0", 5, Status.exited, 0),
        ("exit 3", 5, Status.exited, 3),
        ("exit 127", 5, Status.exited, 127),
        ("kill -KILL $$", 5, Status.signalled, 9),
        ("sleep 5", 0.05, Status.timed_out, None),
    ],
)
async def test_each_end_has_a_status_of_its_own(line, timeout, status, code, root):
    done = await run(shell(line), cwd=str(root), timeout=timeout)
    assert (done.status, done.code) == (status, code)


async def test_last_words_that_come_late_do_not_make_an_end_a_time_out(marker, root):
    done = await run(shell(f"sleep {marker.text} & exit 4"), cwd=str(root), timeout=0.1)
    assert (done.status, done.code) == (Status.exited, 4)


async def test_a_program_that_is_missing_is_told_from_one_that_cannot_start(root):
    (root / "plain.txt").write_text("no program")
    (root / "lost.sh").write_text("#!/no/such/interpreter\n")
    (root / "lost.sh").chmod(0o755)
    missing = await run(["no-such-program"], cwd=str(root), timeout=5)
    assert (missing.status, missing.code) == (Status.not_found, None)
    assert missing.output.startswith('"no-such-program" is unavailable')
    assert (await run(["./lost.sh"], cwd=str(root), timeout=5)).status is Status.not_found
    denied = await run(["./plain.txt"], cwd=str(root), timeout=5)
    assert (denied.status, denied.output) == (Status.not_started, '"./plain.txt" cannot be started: Permission denied')
    nul = await run(["echo", "a\0b"], cwd=str(root), timeout=5)
    assert (nul.status, nul.output) == (Status.not_started, '"echo" cannot be started: embedded null byte')
    gone = await run(["echo"], cwd=str(root / "gone"), timeout=5)
    assert (gone.status, "the directory it should run in is gone" in gone.output) == (Status.not_started, True)


async def test_both_outputs_are_read_in_order_and_what_is_fed_arrives(root):
    done = await run(shell("cat; echo err >&2; echo out"), cwd=str(root), timeout=5, stdin=b"fed\n" * 50_000)
    assert done.output[-len("fed\nerr\nout\n") :] == "fed\nerr\nout\n"


async def test_a_command_that_reads_nothing_may_be_fed(root):
    done = await run(["true"], cwd=str(root), timeout=5, stdin=b"x" * 1_000_000)
    assert (done.status, done.code) == (Status.exited, 0)


async def test_endless_output_is_bounded_and_the_gap_is_named(root):
    line = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last"
    done = await run(shell(line), cwd=str(root), timeout=5, limit=100)
    assert done.left_out == 5_000_011 - 100
    assert done.output.startswith("first\nxxx")
    assert done.output.endswith("xxxlast\n")
    assert f"[... {done.left_out} bytes left out ...]" in done.output


async def test_bytes_that_are_no_text_are_replaced(root):
    done = await run(shell(r"printf 'a\227b\000c'"), cwd=str(root), timeout=5)
    assert done.output == "a\ufffdb\ufffdc"


async def test_a_command_inherits_an_allow_list_and_no_key(root, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "canary-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-2")
    monkeypatch.setenv("LC_MONETARY", "C")
    # So keys are sent through a login that lets only such names in.
    monkeypatch.setenv("LC_API_KEY", "canary-3")
    done = await run(["env"], cwd=str(root), timeout=5)
    names = {line.split("=")[0] for line in done.output.splitlines()}
    assert "canary" not in done.output
    assert {"PATH", "LC_MONETARY"} <= names
    assert names - set(environment()) <= {"ACTORS_COMMAND", "PWD", "SHLVL", "_"}


@pytest.mark.parametrize("place", ["", ".", "bin", "./bin", "..//bin"])
async def test_a_plain_name_never_means_a_program_of_the_workspace(root, monkeypatch, place):
    for folder in (root, root / "bin", root.parent / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "id").write_text("#!/bin/sh\necho planted\n")
        (folder / "id").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}:{place}")
    done = await run(["id", "-u"], cwd=str(root), timeout=5)
    assert done.output == f"{os.getuid()}\n"
    # Nor what a command starts by a plain name, nor where nothing else is left.
    assert "planted" not in (await run(shell("id -u"), cwd=str(root), timeout=5)).output
    monkeypatch.setenv("PATH", place)
    assert "PATH" not in environment()
    assert (await run(["id", "-u"], cwd=str(root), timeout=5)).output == f"{os.getuid()}\n"
    # The control: as it is, such a PATH finds it.
    started = await trio.run_process(["id", "-u"], cwd=root, env={"PATH": place}, capture_stdout=True)
    assert started.stdout == b"planted\n"


async def test_a_command_cannot_read_from_the_terminal(root):
    done = await run(shell("read line || echo nothing"), cwd=str(root), timeout=5)
    assert done.output == "nothing\n"


def test_a_place_of_the_path_that_is_closed_to_us_has_no_program(root, monkeypatch):
    monkeypatch.setenv("PATH", str(root))
    refused = PermissionError(13, "Permission denied")
    assert not_started("some-program", str(root), refused).status is Status.not_found
    assert not_started("./some-program", str(root), refused).status is Status.not_started
    (root / "some-program").write_text("one that is there, and may not be run\n")
    told = not_started("some-program", str(root), refused)
    assert told.status is Status.not_started and "Permission denied" in told.output
