"""`actors trace --check` and `--export`: what people and scripts get, and the exit codes."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from actors.cli.auditing import lines
from actors.store.audit_findings import MOST_TOLD, Check, Findings, TreeState

TASK = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 4
[contract.verify]
kind = "none"
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
"""
SPAWN = ["spawn_agent", {"goal": "read it", "verify": {"kind": "none"}}]
SCRIPT = [{"calls": [SPAWN]}, {"text": "I have read it"}, {"text": "done"}]


@pytest.fixture
def run_id(place: Any) -> str:
    done = place.holding(TASK, SCRIPT).actors("run", "task.toml", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["run_id"])


def tamper(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / ".actors" / "runs.db")
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


def test_a_true_run_is_told_ok_with_exit_code_0(place: Any, run_id: str) -> None:
    done = place.actors("trace", "--check", run_id[:5])
    told = done.stdout.splitlines()
    assert (done.returncode, done.stderr, told[-1]) == (0, "", "ok")
    assert told[:3] == [f"run       {run_id}", "state     ended", "agents    2"]
    assert "terminals 2" in done.stdout and "digests 3" in done.stdout


def test_a_violation_is_one_line_with_run_row_and_figures_and_exit_code_1(place: Any, run_id: str) -> None:
    tamper(place.folder, "DELETE FROM ledger_observations WHERE step = 1 AND kind = 'child'")
    tamper(place.folder, "UPDATE steps SET digest = NULL")
    done = place.actors("trace", "--check", run_id)
    told = done.stdout.splitlines()
    assert (done.returncode, told[-1]) == (1, "1 violation")
    assert f"violation results: {run_id}: step 1 has 0 results for 1 calls" in told
    assert "missing   digests: 3 steps have no digest" in told


def test_what_is_not_known_is_told_apart_from_ok(place: Any, run_id: str) -> None:
    tamper(place.folder, "UPDATE steps SET digest = NULL")
    done = place.actors("trace", "--check", run_id)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "not enough evidence for digests; nothing is wrong with the rest"


def test_json_is_one_object_with_the_same_exit_code(place: Any, run_id: str) -> None:
    done = place.actors("trace", "--check", run_id, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["verdict"], told["violations"], told["missing"]) == (0, "ok", [], [])
    assert (told["run_id"], told["state"], told["agents"], told["checked"]["answers"]) == (run_id, "ended", 2, 3)
    tamper(place.folder, "DELETE FROM terminals WHERE run_id LIKE '%/1.1'")
    done = place.actors("trace", "--check", run_id, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["verdict"], told["violated"]) == (1, "violated", 1)
    [violation] = told["violations"]
    assert (violation["check"], violation["run_id"]) == ("terminals", f"{run_id}/1.1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--check", "zzz"], "no run begins with"),
        (["--check", "zzz", "--store", "none.db"], "does not exist"),
        (["--check", "--export", "zzz"], "exclude each other"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exit_code_2(
    place: Any, run_id: str, arguments: list[str], text: str
) -> None:
    done = place.actors("trace", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr and "Traceback" not in done.stderr


def test_an_export_is_one_object_a_line_and_holds_the_whole_run(place: Any, run_id: str) -> None:
    done = place.actors("trace", run_id, "--export")
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and all(set(each) == {"table", "row"} for each in rows)
    assert [each["row"]["path"] for each in rows if each["table"] == "runs"] == ["root", "root/1.1"]
    assert [each["row"]["text"] for each in rows if each["table"] == "step_turns"][-1] == "I have read it"
    assert {"terminals", "steps", "ledger_observations", "reservations", "ledger"} <= {each["table"] for each in rows}


def test_what_drives_a_terminal_is_escaped_in_a_violation_and_endless_lists_are_cut() -> None:
    findings = Findings()
    for number in range(MOST_TOLD + 5):
        findings.wrong(Check.effects, "abc", f"\x1b[2J\n{number}")
    told = lines(findings.audit("abc", TreeState.paused, 1))
    assert told[3] == "violation effects: abc: \\x1b[2J\\n0"
    assert told[-2:] == ["          and 5 more", f"{MOST_TOLD + 5} violations"]
