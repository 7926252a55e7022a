"""A run is recorded and replayed from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.store.store import open_reader
from actors.testing.trace_compare import differences

TASK = """
[contract]
goal = "write hello.txt"
root = "work"
retry = { base = 0.01 }
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 1
max_total_tokens = 100_000
[provider]
kind = "scripted"
script = "script.json"
[run]
approve = "all"
"""
SCRIPT = [
    {"calls": [["write_file", {"path": "hello.txt", "content": "hi"}]], "usage": {"prompt_tokens": 9}},
    {"error": {"kind": "server", "message": "down", "status": 503}},
    {"text": "written", "usage": {"prompt_tokens": 20, "completion_tokens": 2}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "work").mkdir()
    (tmp_path / "task" / "task.toml").write_text(TASK)
    (tmp_path / "task" / "script.json").write_text(json.dumps(SCRIPT))
    return tmp_path


def test_a_recorded_run_is_replayed_without_its_script_and_leaves_the_same_trace(folder: Path, place: Any) -> None:
    recorded = place.actors("run", "task/task.toml", "--json", "--record", "run.jsonl")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    # A flag names a file from where we are, a key one from where the task is.
    assert len((folder / "run.jsonl").read_text().splitlines()) == 4
    (folder / "task" / "work" / "hello.txt").unlink()
    (folder / "task" / "script.json").unlink()
    replayed = place.actors("run", "task/task.toml", "--json", "--replay", "run.jsonl")
    assert (replayed.returncode, replayed.stderr) == (0, "")
    assert (folder / "task" / "work" / "hello.txt").read_text() == "hi"
    ids = [json.loads(each.stdout)["run_id"] for each in (recorded, replayed)]
    with open_reader(folder / ".actors" / "runs.db") as store:
        assert differences(store, ids[0], store, ids[1]) == []


def test_a_second_recording_into_one_file_is_refused_before_anything_starts(folder: Path, place: Any) -> None:
    assert place.actors("run", "task/task.toml", "--quiet", "--set", "provider.record=r.jsonl").returncode == 0
    held = (folder / "task" / "r.jsonl").read_bytes()
    again = place.actors("run", "task/task.toml", "--quiet", "--set", "provider.record=r.jsonl")
    assert again.returncode == 2
    assert again.stderr.startswith("error: provider.record: ") and "holds something already" in again.stderr
    assert (folder / "task" / "r.jsonl").read_bytes() == held


def test_a_replay_of_other_work_is_escalated_and_says_what_differs(folder: Path, place: Any) -> None:
    assert place.actors("run", "task/task.toml", "--quiet", "--record", "r.jsonl").returncode == 0
    other = place.actors("run", "task/task.toml", "--json", "--replay", "r.jsonl", "--set", "contract.goal=other")
    report = json.loads(other.stdout)
    assert (other.returncode, report["outcome"]["kind"]) == (1, "escalated")
    assert "line 2: turn 1 of 1 differs (the runtime's text), now 'other'" in report["outcome"]["message"]


def test_a_recording_that_is_none_is_one_line_and_exit_2(folder: Path, place: Any) -> None:
    (folder / "r.jsonl").write_text("{}\n")
    done = place.actors("run", "task/task.toml", "--replay", "r.jsonl")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: provider.file: ") and "r.jsonl, line 1: is no line of a recording" in line


def test_a_provider_that_cannot_be_made_ends_the_run_in_a_line(folder: Path) -> None:
    # It fails before the first turn of the loop, and so before anybody listens for signals.
    sets = ["--set", "provider={ kind = 'openai', model = 'm' }", "--set", "run.approve=deny"]
    env = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, "-c", "from actors.cli.main import main; main()", "run", "task/task.toml", *sets],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )
    assert (done.returncode, done.stderr) == (2, "error: provider.api_key: no key is given: set OPENAI_API_KEY\n")
