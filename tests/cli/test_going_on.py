"""A run that was stopped or killed goes on from its id alone, in a process of its own."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]
BASE = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 9
[contract.verify]
kind = "workspace_file_contains"
file = "out.txt"
needle = "ok"
[containment]
max_total_agents = 4
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
max_total_cost = "1.00"
[provider]
kind = "scripted"
script = "script.json"
[policy.defaults]
write = "allow"
[prices.configured-model]
input = "1.00"
output = "1.00"
"""
USAGE = {"prompt_tokens": 100, "completion_tokens": 20}


def write(path: str, content: str = "x") -> list[Any]:
    return ["write_file", {"path": path, "content": content}]


def answer(*calls: list[Any], delay: float = 0.0) -> dict[str, Any]:
    return {"calls": list(calls), "usage": USAGE, "delay": delay}


# The second answer takes so long that whoever stops the run does it in the middle of that.
SLOW = [answer(write("a.txt")), answer(write("b.txt"), delay=2), answer(write("out.txt", "ok"))]


def task(place: Any, script: Any = SLOW) -> Any:
    return place.holding(BASE, script)


SECOND_ANSWER_UNDER_WAY = "SELECT run_id FROM reservations WHERE step = 2"


def report_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ── stopped, and on ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_a_run_that_is_stopped_in_an_answer_ends_by_a_resume_and_its_spend_goes_on(
    tmp_path: Path, place: Any, number: int, code: int
) -> None:
    running = task(place).begun("run", "task.toml", "--quiet")
    run = place.wait_until(SECOND_ANSWER_UNDER_WAY)
    running.send_signal(number)
    running.communicate(timeout=20)
    assert running.returncode == code
    shown = report_of(place.actors("show", run, "--json"))
    assert shown["resumable"] and shown["terminal"] is None
    [listed] = json.loads(place.actors("list", "--json").stdout)
    assert listed["resumable"]
    began = time.monotonic()
    again = place.actors("resume", run[:4], "--json")
    assert again.returncode == 0, again.stderr
    # Taking over a run of a process that is gone needs no waiting for its lease.
    assert time.monotonic() - began < 15
    report = report_of(again)
    assert report["run_id"] == run and report["outcome"]["kind"] == "success" and report["outcome"]["steps"] == 3
    # Three answers, and the one that was cut, in full: marked as estimated.
    assert report["tree"]["spent_tokens"] == 480 and report["tree"]["calls"] == 4 and report["usage"]["estimated"]
    assert report["usage"]["microdollars"] == 480 and report["leaks"]["tasks"] == []
    assert (tmp_path / "out.txt").read_text() == "ok"
    # The first step was not done again.
    assert place.rows("SELECT count(*) FROM step_turns WHERE step = 1") == [(1,)]
    assert place.actors("trace", "--check", run).returncode == 0


def test_a_run_that_is_stopped_again_and_again_comes_to_its_end(place: Any) -> None:
    script = [answer(write(f"{n}.txt"), delay=1) for n in range(3)] + [answer(write("out.txt", "ok"))]
    running = task(place, script).begun("run", "task.toml", "--quiet")
    run = ""
    for step, number in ((1, signal.SIGTERM), (2, signal.SIGKILL), (3, signal.SIGINT)):
        run = place.wait_until(f"SELECT run_id FROM reservations WHERE step = {step} AND state = 'open'")
        running.send_signal(number)
        running.communicate(timeout=20)
        if step < 3:
            running = place.begun("resume", run, "--quiet")
    done = place.actors("resume", run, "--json")
    report = report_of(done)
    assert (done.returncode, report["outcome"]["steps"], report["tree"]["spent_tokens"]) == (0, 4, 120 * 7)


def test_a_tree_goes_on_with_its_children(place: Any) -> None:
    ask = {"goal": "write it", "verify_file": "out.txt", "verify_contains": "ok"}
    script = [
        answer(["spawn_agent", ask]),
        {**answer(write("b.txt")), "when": "write it"},
        {**answer(write("out.txt", "ok"), delay=1), "when": "write it"},
    ]
    running = task(place, script).begun("run", "task.toml", "--quiet")
    child = place.wait_until("SELECT run_id FROM reservations WHERE step = 2 AND run_id LIKE '%/%'")
    running.kill()
    running.communicate(timeout=20)
    done = place.actors("resume", child, "--json")
    report = report_of(done)
    assert (done.returncode, report["tree"]["agents"], report["tree"]["spent_tokens"]) == (0, 2, 480), done.stderr


def test_a_second_driver_is_refused_in_a_line_that_names_the_first(place: Any) -> None:
    # It outlives all four commands, however slow the machine is.
    script = [answer(write("a.txt")), answer(write("b.txt"), delay=60), answer(write("out.txt", "ok"))]
    running = task(place, script).begun("run", "task.toml", "--quiet")
    run = place.wait_until(SECOND_ANSWER_UNDER_WAY)
    assert not report_of(place.actors("show", run, "--json"))["resumable"]
    for flags in ([], ["--json"]):
        refused = place.actors("resume", run, *flags)
        assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1)
        assert f"run {run} is driven by process {running.pid} on " in refused.stderr
    again = place.actors("reopen", run)
    assert again.returncode == 2 and "resume" in again.stderr
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 130


def test_a_killed_run_is_called_so_at_once_and_says_how_it_goes_on(place: Any) -> None:
    running = task(place).begun("run", "task.toml", "--quiet")
    run = place.wait_until(SECOND_ANSWER_UNDER_WAY)
    assert "running" in place.actors("list").stdout
    running.kill()
    running.communicate(timeout=20)
    assert "killed" in place.actors("list").stdout
    shown = place.actors("show", run).stdout
    assert "its process is gone" in shown and f"actors resume {run} --store .actors/runs.db" in shown


# ── what is told instead ────────────────────────────────────────────────────


def test_a_run_that_has_ended_is_reported_with_its_exit_code_and_asked_nothing(tmp_path: Path, place: Any) -> None:
    task(place, [answer(write("a.txt"))] * 3)
    ran = report_of(place.actors("run", "task.toml", "--json", "--set", "contract.max_steps=2"))
    before = place.rows("SELECT count(*) FROM run_events")
    # Not even what it would take to ask is needed.
    (tmp_path / "script.json").unlink()
    done = place.actors("resume", ran["run_id"], "--json")
    assert (done.returncode, done.stderr, report_of(done)) == (3, "", ran)
    told = place.actors("resume", ran["run_id"])
    assert told.returncode == 3 and f"actors reopen {ran['run_id']}" in told.stderr
    assert place.rows("SELECT count(*) FROM run_events") == before


PLAIN = """
import trio
from actors import Containment, Store, open_tree
async def root(agent):
    await trio.sleep_forever()
async def main():
    async with Store.open(".actors/runs.db") as store:
        with trio.move_on_after(0.3):
            async with open_tree(Containment(1, 1, 0, 10), store=store) as tree:
                await tree.run(root)
trio.run(main)
"""


def test_what_cannot_go_on_is_one_clear_line(tmp_path: Path, place: Any) -> None:
    task(place)
    nothing = place.actors("resume", "abc")
    assert nothing.returncode == 2 and "does not exist" in nothing.stderr and not (tmp_path / ".actors").exists()
    subprocess.run([sys.executable, "-c", PLAIN], cwd=tmp_path, check=True)
    [(run,)] = place.rows("SELECT run_id FROM runs")
    for arguments, words in (
        (("resume", "zzzz"), "no run begins with 'zzzz'"),
        (("resume", run), "functions of a program"),
        (("reopen", run), "no end yet"),
        (("approve", "zzzz#1.1.1"), "nothing waits under"),
        (("recover", "zzzz#1.1", "--retry"), "nothing waits under"),
        (("resume", run, "--task", "none.toml"), "functions of a program"),
    ):
        done = place.actors(*arguments)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), (arguments, done.stderr)
        assert words in done.stderr, done.stderr
    assert place.actors("recover", "x", "--retry", "--abort").returncode == 2


@pytest.mark.parametrize("command", ["resume", "reopen", "inbox", "approve"])
def test_a_store_that_is_none_or_newer_is_one_line(tmp_path: Path, place: Any, command: str) -> None:
    (tmp_path / "bad.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    connection = sqlite3.connect(tmp_path / "newer.db")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA application_id = 1633907810")
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    for name in ("bad.db", "newer.db"):
        done = place.actors(command, *([] if command == "inbox" else ["abc"]), "--store", name)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
        assert name in done.stderr and "Traceback" not in done.stderr


# ── what a resume works with ────────────────────────────────────────────────


def stopped(place: Any, *flags: str) -> str:
    running = place.begun("run", "task.toml", "--quiet", *flags)
    run = place.wait_until(SECOND_ANSWER_UNDER_WAY)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    return run


def test_no_key_is_stored_and_it_is_read_from_the_environment_again(tmp_path: Path, place: Any) -> None:
    task(place, [answer(write("a.txt"))])
    text = BASE.replace('kind = "scripted"\nscript = "script.json"', 'kind = "openai"\nmodel = "m"\n')
    text = text.replace("configured-model", "m").replace("max_steps = 9", "max_steps = 9\nmax_retries = 9")
    (tmp_path / "task.toml").write_text(text)
    environment = {**os.environ, "OPENAI_API_KEY": "sk-secret-of-mine", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    running = subprocess.Popen(
        [*PROGRAM, "run", "task.toml", "--quiet"], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    run = place.wait_until("SELECT run_id FROM provider_calls")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    [(stored,)] = place.rows("SELECT task FROM runs")
    assert json.loads(stored)["provider"] == {"kind": "openai", "model": "m"}
    assert not any(b"sk-secret" in file.read_bytes() for file in (tmp_path / ".actors").iterdir())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    done = subprocess.run(
        [*PROGRAM, "resume", run], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2 and "OPENAI_API_KEY" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_task_file_brings_a_provider_and_a_policy_and_never_a_wider_boundary(tmp_path: Path, place: Any) -> None:
    run = stopped(task(place))
    (tmp_path / "other.json").write_text(json.dumps([answer(write("never.txt"))] + SLOW[2:] * 2))
    other = BASE.replace("script.json", "other.json").replace("10_000", "99_000").replace("max_steps = 9", "max_steps = 99")
    other = other.replace('write = "allow"', 'write = "allow"\n[[policy.layers]]\nname = "late"\nrules = [RULE]')
    rule = '{ act = "write", effect = "deny", glob = "never*" }'
    (tmp_path / "other.toml").write_text(other.replace("RULE", rule))
    done = place.actors("resume", run, "--task", "other.toml")
    assert done.returncode == 0, done.stderr
    assert "these stay as they were" in done.stderr
    [(containment, contract)] = place.rows("SELECT containment, contract FROM runs")
    assert json.loads(containment)["max_total_tokens"] == 10_000 and json.loads(contract)["max_steps"] == 9
    [(policy,)] = place.rows("SELECT policy FROM run_policies")
    assert "late" in policy


def test_a_recording_is_gone_on_with(tmp_path: Path, place: Any) -> None:
    run = stopped(task(place), "--record", "run.jsonl")
    first = len((tmp_path / "run.jsonl").read_text().splitlines())
    assert place.actors("resume", run, "--quiet").returncode == 0
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) > first
