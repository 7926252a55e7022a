"""The command as a process among others: signals, its streams, a disk that is full, a terminal."""

import contextlib
import json
import os
import pty
import re
import resource
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

MAIN = "from actors.cli.main import main; main()"
PROGRAM = [sys.executable, "-c", MAIN]
BASE = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 60
[contract.verify]
kind = "workspace_file_contains"
file = "out.txt"
needle = "ok"
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[policy.defaults]
write = "allow"
exec = "allow"
"""
WRITE = ["write_file", {"path": "out.txt", "content": "ok"}]
HANG = [{"hang": True}]


def task(folder: Path, script: Any, text: str = BASE) -> Path:
    (folder / "task.toml").write_text(text)
    (folder / "script.json").write_text(json.dumps(script))
    return folder


def begun(folder: Path, *arguments: str, program: list[str] = PROGRAM, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*program, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


def shell(folder: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash, in which ``actors`` is the program."""
    text = f"actors() {{ {sys.executable} -c '{MAIN}' \"$@\"; }}; {line}"
    return subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=60)


def wait_for_agent(folder: Path) -> None:
    for _ in range(200):
        time.sleep(0.05)
        try:
            connection = sqlite3.connect(f"file:{folder / '.actors' / 'runs.db'}?mode=ro", uri=True)
            [(found,)] = connection.execute("SELECT count(*) FROM runs").fetchall()
            connection.close()
        except sqlite3.Error:
            continue
        if found:
            return
    raise AssertionError("the run did not start")


# ── a disk that is full ─────────────────────────────────────────────────────


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400 * 1024, 400 * 1024))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@pytest.mark.parametrize("flag", ["--json", "--stream-json"])
def test_a_store_that_cannot_grow_is_a_line_exit_1_and_a_json_object(tmp_path: Path, flag: str) -> None:
    said = {"text": "x" * 4_000, "calls": [["write_file", {"path": "a.txt", "content": "y" * 4_000}]]}
    script = [{**said, "calls": [[name, {**told, "path": f"{n}.txt"}] for name, told in said["calls"]]} for n in range(59)]
    running = begun(task(tmp_path, script), "run", "task.toml", flag, "--quiet", preexec_fn=small_files)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1 and "Traceback" not in err
    assert [line.startswith("error: .actors/runs.db: ") for line in err.splitlines()].count(True) == 1
    report = json.loads(out.splitlines()[-1])
    assert report["outcome"]["kind"] == "interrupted" and "runs.db" in report["outcome"]["message"]
    assert (report["status"], report["terminal"], report["resumable"]) == ("paused", None, True)
    assert report["store"] == ".actors/runs.db" and report["tree"]["agents"] == 1
    # With room again it goes on.
    again = shell(tmp_path, f"actors resume {report['run_id']} --json --quiet")
    went_on = json.loads(again.stdout)
    assert (again.returncode, again.stderr) == (3, "") and went_on["outcome"]["kind"] == "step_cap_reached"
    assert shell(tmp_path, f"actors trace --check {report['run_id']}").returncode == 0


def test_a_run_of_which_no_row_stands_is_not_called_resumable(tmp_path: Path) -> None:
    def tiny_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    told = set()
    for size in range(300 * 1024, 400 * 1024, 12 * 1024):
        folder = tmp_path / str(size)
        folder.mkdir()
        script = [{"calls": [["write_file", {"path": "a.txt", "content": "y" * 4_000}]]}] * 30
        running = begun(task(folder, script), "run", "task.toml", "--json", "--quiet", preexec_fn=tiny_files)
        out, _ = running.communicate(timeout=60)
        if not out:
            continue
        report = json.loads(out.splitlines()[-1])
        there = shell(folder, f"actors show {report['run_id']} --json").returncode == 0
        assert report["resumable"] is there, size
        told.add(there)
    assert False in told


def test_a_store_that_cannot_grow_is_one_line_for_people_and_no_line_of_a_logger(tmp_path: Path) -> None:
    script = [{"text": "x" * 4_000, "calls": [["write_file", {"path": f"{n}.txt", "content": "y" * 4_000}]]} for n in range(59)]
    for flag in ("--quiet", "--stream-json"):
        running = begun(task(tmp_path, script), "run", "task.toml", flag, preexec_fn=small_files)
        _, err = running.communicate(timeout=60)
        assert (running.returncode, err) == (1, "error: .actors/runs.db: disk I/O error\n"), flag
        for file in (tmp_path / ".actors").iterdir():
            file.unlink()


def test_a_store_that_cannot_be_made_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "xyz").write_bytes(b"not a database, but long enough to look like one" * 100)
    done = shell(task(tmp_path, HANG), "actors run task.toml --store ./xyz")
    assert done.returncode == 2 and done.stderr.startswith("error: ./xyz: ") and done.stderr.count("xyz") == 1


# ── signals ─────────────────────────────────────────────────────────────────

INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from actors.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["json", "click", "actors.cli.streams", "trio", "httpx", "actors.cli.demo"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(tmp_path: Path, module: str) -> None:
    running = begun(tmp_path, "demo", program=[sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module)])
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out, err) == (130, "", "stopped\n")


RAISES = """
from actors.cli import main as program
import actors.cli.demo
def run_demo(*rest):
    raise BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [{raised}])])
actors.cli.demo.run_demo = run_demo
from actors.errors import *
program.main()
"""


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        ("KeyboardInterrupt()", 130, "stopped"),
        ("ConfigError(('contract.goal', 'is empty'))", 2, "error: contract.goal: is empty"),
        ("StoreError(StoreErrorKind.full, 'a.db', 'is full')", 1, "error: a.db: is full"),
        ("ConfigError(('', 'a')), ActorsError('b')", 1, "error: a\nerror: b"),
        ("ActorsError('b'), ActorsError('b')", 1, "error: b"),
    ],
)
def test_errors_in_groups_end_as_they_do_alone(tmp_path: Path, raised: str, code: int, line: str) -> None:
    running = begun(tmp_path, "demo", program=[sys.executable, "-c", RAISES.format(raised=raised)])
    _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (code, f"{line}\n")


def test_a_bug_in_a_group_is_still_a_traceback(tmp_path: Path) -> None:
    running = begun(tmp_path, "demo", program=[sys.executable, "-c", RAISES.format(raised="KeyError('ours')")])
    _, err = running.communicate(timeout=20)
    assert running.returncode == 1 and "Traceback" in err and "ours" in err


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.05])
def test_two_ctrl_c_soon_after_each_other_leave_no_traceback(tmp_path: Path, gap: float) -> None:
    running = begun(task(tmp_path, HANG), "run", "task.toml", "--json", "--quiet")
    wait_for_agent(tmp_path)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(gap)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (130, "")
    assert not out or json.loads(out)["outcome"]["kind"] == "interrupted"


def test_a_signal_before_the_tree_is_open_takes_back_what_was_prepared(tmp_path: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        early = f"""
import os, signal
from actors.store.store import FileStore
opening = FileStore.__aenter__
async def enter(self):
    os.kill(os.getpid(), {int(number)})
    return await opening(self)
FileStore.__aenter__ = enter
{MAIN}
"""
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        running = begun(tmp_path, "demo", program=[sys.executable, "-c", early], env=environment)
        out, err = running.communicate(timeout=20)
        assert (running.returncode, out, len(err.splitlines())) == (code, "", 1), err
        assert list(tmp_path.iterdir()) == []


def carrying(mark: str) -> list[int]:
    """Find the processes that have ``mark`` in their arguments; inside a sandbox a process has another number."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdecimal() and mark.encode() in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks into /proc")
def test_a_hangup_stops_in_order_and_ends_what_was_executed(tmp_path: Path) -> None:
    mark = f"mark-{os.urandom(8).hex()}"
    stubborn = f"trap '' TERM INT HUP; : {mark}; echo here > pid; sleep 70; sleep 70"
    running = begun(
        task(tmp_path, [{"calls": [["exec", {"argv": ["bash", "-c", stubborn]}]]}]), "run", "task.toml", "--json"
    )
    for _ in range(200):
        time.sleep(0.05)
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            break
    assert carrying(mark)
    running.send_signal(signal.SIGHUP)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 129, err
    assert json.loads(out)["outcome"]["kind"] == "interrupted"
    assert carrying(mark) == []


def test_under_nohup_a_hangup_changes_nothing(tmp_path: Path) -> None:
    script = [{"calls": [["exec", {"argv": ["bash", "-c", "touch there; sleep 1"]}]]}, {"calls": [WRITE]}]
    running = begun(
        task(tmp_path, script), "run", "task.toml", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    for _ in range(200):
        time.sleep(0.05)
        if (tmp_path / "there").exists():
            break
    running.send_signal(signal.SIGHUP)
    _, err = running.communicate(timeout=20)
    assert running.returncode == 0, err


# ── what a stopped run says ─────────────────────────────────────────────────


def test_a_stopped_run_says_how_it_goes_on(tmp_path: Path) -> None:
    running = begun(task(tmp_path, HANG), "run", "task.toml", "--quiet")
    wait_for_agent(tmp_path)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=20)
    command = out.splitlines()[-1].partition("actors ")[2]
    assert command.startswith("resume ")
    shown = shell(tmp_path, f"actors {command.replace('resume', 'show')} --json")
    report = json.loads(shown.stdout)
    assert shown.returncode == 0 and report["resumable"] and report["outcome"]["kind"] == "interrupted"


@pytest.mark.parametrize("kept", [False, True])
def test_a_stopped_demo_promises_only_what_is_kept(tmp_path: Path, kept: bool) -> None:
    flags = ["--store", "demo.db"] if kept else []
    for form in ([], ["--json"]):
        running = begun(tmp_path, "demo", *flags, *form)
        if form:
            time.sleep(1.2)
        else:
            assert running.stderr is not None and running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
        assert running.returncode == 130, err
        if form:
            assert json.loads(out)["resumable"] is kept
        else:
            assert ("actors show" in out) is kept and ("Nothing of this run is kept" in out) is not kept
            assert "resume" not in out


def test_a_demo_at_a_pace_says_first_how_to_look_at_it_live(tmp_path: Path) -> None:
    running = begun(tmp_path, "demo", "--pace", "10")
    assert running.stderr is not None
    first, look = running.stderr.readline(), running.stderr.readline()
    run_id = first.removeprefix("run ").partition(":")[0]
    assert first == f"run {run_id}: to look at it live, copy this line into a second terminal\n"
    assert look.startswith(f"actors show --live {run_id} --store /")
    # From another folder, too.
    seen = shell(Path("/"), f"{look.strip()} --json")
    assert seen.returncode == 0, seen.stderr
    report = json.loads(seen.stdout)
    assert report["run_id"] == run_id and report["agents"][0]["state"] == "working"
    # Room for all answers one after another: 3 of the root, 2 of each writer, 3 of them at a time.
    assert report["seconds_left"] == pytest.approx(60 + 15 * 7, abs=10)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 130


def test_a_demo_without_a_pace_ends_as_fast_as_ever_and_one_for_a_script_says_nothing(tmp_path: Path) -> None:
    assert "--live" not in shell(tmp_path, "actors demo --agents 1").stderr
    for flag in ("--quiet", "--json"):
        assert shell(tmp_path, f"actors demo --agents 1 --pace 0 {flag}").stderr == ""
    assert shell(tmp_path, "actors demo --pace 31").returncode == 2


@pytest.mark.slow
def test_the_largest_demo_ends_well(tmp_path: Path) -> None:
    running = begun(tmp_path, "demo", "--agents", "200", "--json")
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 0 and json.loads(out)["tree"]["agents"] == 201


# ── streams ─────────────────────────────────────────────────────────────────


def test_a_closed_stream_ends_no_command(tmp_path: Path) -> None:
    task(tmp_path, [{"calls": [WRITE]}] * 3)
    # A store must not take the number of a stream that is closed: it would be written over.
    for line, code in (
        ("actors run task.toml --quiet --json >&-", 0),
        ("actors run task.toml <&- >&- 2>&-", 0),
        ("actors list >&-", 0),
        ("actors validate nope.toml 2>&-", 2),
        ("actors show zzz 2>&-", 2),
        ("actors run task.toml --set contract.goal=1 2>&-", 2),
    ):
        done = shell(tmp_path, line)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", ""), line
    assert [each["outcome"] for each in json.loads(shell(tmp_path, "actors list --json").stdout)] == ["success"] * 2


def test_a_reader_that_has_gone_ends_no_command(tmp_path: Path) -> None:
    task(tmp_path, [{"calls": [WRITE]}] * 3)
    for line, code in (
        ("run task.toml --quiet", 0),
        ("run task.toml --quiet --json", 0),
        ("run task.toml --quiet --stream-json", 0),
        ("list", 0),
        # Its task file lies in the workspace, which is noted.
        ("validate task.toml 2>/dev/null", 0),
        ("validate task.toml --json --set contract.x=1", 2),
        ("schema task", 0),
    ):
        done = shell(tmp_path, f"actors {line} | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (code, ""), line


def test_a_trace_ends_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    task(tmp_path, [{"calls": [WRITE]}] * 3)
    assert shell(tmp_path, "actors run task.toml --quiet").returncode == 0
    connection = sqlite3.connect(tmp_path / ".actors" / "runs.db")
    [(run,)] = connection.execute("SELECT run_id FROM runs").fetchall()
    event = json.dumps({"kind": "tool_call", "run_id": run, "path": "root", "depth": 0, "step": 1, "tool": "x" * 50})
    connection.executemany("INSERT INTO run_events (tree_id, run_id, event, at) VALUES (?, ?, ?, '')", [(run, run, event)] * 20_000)
    # Whoever came as far as this would fail.
    connection.execute("INSERT INTO run_events (tree_id, run_id, event, at) VALUES (?, ?, 'no event', '')", (run, run))
    connection.commit()
    connection.close()
    for flags in ("", "--json"):
        done = shell(tmp_path, f"actors trace {run} {flags} | head -1; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, ""), flags
    done = shell(tmp_path, f"actors trace {run} > /dev/null")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_result_that_could_not_be_written_is_exit_1_with_a_line(tmp_path: Path) -> None:
    task(tmp_path, [{"calls": [WRITE]}] * 3)
    for line, code in (
        ("run task.toml --quiet --json", 1),
        ("run task.toml --quiet", 1),
        ("list", 1),
        ("schema task", 1),
        ("validate task.toml --json --set contract.x=1", 2),
    ):
        done = shell(tmp_path, f"actors {line} >/dev/full")
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), (line, done.stderr)
        assert done.stderr.startswith("error: standard output: ")
    assert [each["outcome"] for each in json.loads(shell(tmp_path, "actors list --json").stdout)] == ["success"] * 2


# ── colours and files ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
    ids=str,
)
def test_colours_follow_the_conventions(tmp_path: Path, environment: dict[str, str], coloured: bool) -> None:
    clear = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    running = begun(
        task(tmp_path, [{"calls": [WRITE]}]), "run", "task.toml", env={**clear, "TERM": "xterm", **environment}
    )
    out, err = running.communicate(timeout=20)
    assert running.returncode == 0 and ("\x1b" in out + err) is coloured


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe", ".", "large.toml", "none.toml"])
def test_what_is_no_task_file_is_told_at_once_in_a_line(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large.toml", "wb") as file:
        file.truncate(5 * 1024**2)
    for command in ("validate", "run"):
        running = begun(tmp_path, command, name)
        _, err = running.communicate(timeout=20)
        assert (running.returncode, len(err.splitlines())) == (2, 1), err
        assert name in err and "Traceback" not in err


# ── on a terminal ───────────────────────────────────────────────────────────


def on_terminal(folder: Path, *answers: str) -> tuple[int, str]:
    """Run the task on a terminal of its own, and answer each question with the next of ``answers``."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(sys.executable, [*PROGRAM, "run", "task.toml"], {**os.environ, "CI": "1", "TERM": "xterm"})
    seen, since, waiting, deadline = b"", 0, list(answers), time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            got = os.read(terminal, 65536)
        except OSError:
            break
        if not got:
            break
        seen += got
        if waiting and seen.find(b"[?] ", since) >= 0:
            since = len(seen)
            os.write(terminal, waiting.pop(0).encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen.decode(errors="replace").replace("\r\n", "\n")


ASKS = BASE.replace('write = "allow"', 'write = "ask"')


@pytest.mark.parametrize("follows", [False, True])
def test_a_picture_leaves_room_for_the_echo_of_ctrl_c_on_its_last_line(tmp_path: Path, follows: bool) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    ours, theirs = pty.openpty()
    beside = subprocess.PIPE if follows else theirs
    running = begun(tmp_path, "demo", "--pace", "10", stderr=beside, env=environment)
    looking = running
    if follows:
        assert running.stderr is not None and running.stderr.readline()
        arguments = shlex.split(running.stderr.readline())[1:]
        looking = begun(tmp_path, *arguments, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen, last = b"", None
    while last is None:
        assert select.select([ours], [], [], 20)[0], seen
        seen += os.read(ours, 65_536)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="ignore"))
        last = re.search(r"root {2}[^\r\n]*…", plain)
    assert len(last[0]) == 78
    for process in {running, looking}:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    os.close(ours)


def test_a_question_tells_what_it_hides_and_shows_it_when_asked(tmp_path: Path) -> None:
    content = "# harmless\n" * 100 + "ok, and the end of it\n"
    task(tmp_path, [{"calls": [["write_file", {"path": "out.txt", "content": content}]]}], ASKS)
    code, seen = on_terminal(tmp_path, "?\n", "s\n", "y\n")
    first, _, rest = seen.partition("[?] ")
    second, _, third = rest.partition("[?] ")
    assert f"content, {len(content):,} characters" in first and "the end of it" not in first
    assert "more characters are not shown" in first and "[s]how all" in first
    assert "allow this one act" in second and "the end of it" not in second
    assert "the end of it" in third and "not shown" not in third
    assert code == 0 and (tmp_path / "out.txt").read_text() == content


def test_a_model_cannot_fake_a_question_or_a_word_of_the_program(tmp_path: Path) -> None:
    fake = "\n\n\x1b[2Jroot asks to write:\nrun  fake\nAllow it? [y]es, [N]o, [?]"
    calls = [["exec", {"argv": ["rm", fake]}], ["write_file", {"path": "out.txt", "content": f"x{fake}"}]]
    text = ASKS.replace('exec = "allow"', 'exec = "ask"')
    code, seen = on_terminal(task(tmp_path, [{"text": f"Done.{fake}", "calls": calls}, *HANG], text), "n\n", "\x03")
    assert code == 130
    edges = [line for line in seen.splitlines() if line.startswith(("root asks to", "Allow it?", "run  fake"))]
    assert [line.split(":")[0].split("?")[0] for line in edges] == [
        # One question about one command, with the whole of it.
        *("root asks to exec", "Allow it"),
        *("root asks to write with write_file", "Allow it"),
    ]
    # A command is one line, whatever is in it; the margin stands before the second half of a long one too.
    assert "  │ rm '\\n\\n\\x1b[2Jroot asks to write:\\nrun  fake\\nAllow it" in seen and "\x1b[2J" not in seen
    assert "the last that root said:\n  │ Done.\n" in seen.replace("\x1b[0m", "").replace("\x1b[2m", "")


@pytest.mark.parametrize("answer", ["\n", "n\n", "yes!\n", "\x04"])
def test_whatever_is_no_yes_is_a_no(tmp_path: Path, answer: str) -> None:
    code, seen = on_terminal(task(tmp_path, [{"calls": [WRITE]}, {"text": "no"}], ASKS.replace("60", "1")), answer)
    assert code == 3 and not (tmp_path / "out.txt").exists(), seen
