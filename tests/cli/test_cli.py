"""The command line, run as people run it: a process of its own, its exit code, its two streams."""

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
max_steps = 4
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
"""
SPAWN = ["spawn_agent", {"goal": "write it", "verify_file": "out.txt", "verify_contains": "ok"}]
WRITE = ["write_file", {"path": "out.txt", "content": "ok"}]
USAGE = {"prompt_tokens": 100, "completion_tokens": 20}
SCRIPT = [{"calls": [SPAWN], "usage": USAGE}, {"calls": [WRITE], "usage": USAGE}]


def actors(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
        stdin=subprocess.DEVNULL,
    )


def task(folder: Path, text: str = BASE, script: Any = SCRIPT) -> Path:
    (folder / "task.toml").write_text(text)
    (folder / "script.json").write_text(json.dumps(script))
    return folder


def test_a_tree_runs_from_a_file_and_can_be_looked_at(tmp_path: Path) -> None:
    done = actors("run", "task.toml", "--json", cwd=task(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["outcome"]["kind"] == "success"
    assert report["terminal"]["result"]["termination"] == "completed"
    assert report["tree"]["agents"] == 2 and report["tree"]["spent_tokens"] == 240
    assert report["usage"]["input_tokens"] == 200 and report["usage"]["turns"] == 2
    assert report["leaks"] == {"tasks": [], "slots": [], "reservations": [], "processes": []}
    assert report["halt"] is None and report["resumable"] is False
    assert (tmp_path / "out.txt").read_text() == "ok"

    run = report["run_id"]
    shown = json.loads(actors("show", run[:4], "--json", cwd=tmp_path).stdout)
    assert {key: shown[key] for key in report if key != "leaks"} == {
        key: value for key, value in report.items() if key != "leaks"
    }
    # What a process still held is not known once it is gone.
    assert shown["leaks"] is None
    assert [agent["path"] for agent in shown["agents"]] == ["root", "root/1.1"]
    listed = json.loads(actors("list", "--json", cwd=tmp_path).stdout)
    assert [(each["run_id"], each["outcome"]) for each in listed] == [(run, "success")]
    events = [json.loads(line) for line in actors("trace", run, "--json", cwd=tmp_path).stdout.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "started" and kinds[-1] == "finished"
    assert {"spawned", "step", "tool_call", "spend_draw", "gate"} <= set(kinds)


def test_people_see_a_tree_and_one_table(tmp_path: Path) -> None:
    done = actors("run", "task.toml", cwd=task(tmp_path))
    assert "root/1.1 success" in done.stdout and "240" in done.stdout
    assert "spawned root/1.1" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert actors("run", "task.toml", "--quiet", cwd=tmp_path).stderr == ""


def test_every_event_can_be_streamed(tmp_path: Path) -> None:
    done = actors("run", "task.toml", "--stream-json", "--quiet", cwd=task(tmp_path))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["kind"] == "started" and lines[-1]["kind"] == "result"


def test_without_containment_one_agent_runs(tmp_path: Path) -> None:
    lines = BASE.splitlines()
    begin, end = lines.index("[containment]"), lines.index("[provider]")
    done = actors(
        "run", "task.toml", "--json", cwd=task(tmp_path, "\n".join(lines[:begin] + lines[end:]), [{"calls": [WRITE]}])
    )
    assert json.loads(done.stdout)["tree"]["agents"] == 1


@pytest.mark.parametrize(
    ("overrides", "code", "kind"),
    [
        (["contract.max_steps=1"], 3, "step_cap_reached"),
        (["containment.max_total_tokens=50"], 3, "budget_ceiling_reached"),
        (["containment.max_total_calls=1"], 3, "budget_ceiling_reached"),
        (["contract.max_tokens=30"], 3, "cost_budget_exceeded"),
    ],
)
def test_a_ceiling_is_exit_3_and_names_the_figures(
    tmp_path: Path, overrides: list[str], code: int, kind: str
) -> None:
    flags = [flag for each in overrides for flag in ("--set", each)]
    script = [{"calls": [["list_dir", {}]], "usage": USAGE}] * 6
    done = actors("run", "task.toml", "--json", *flags, cwd=task(tmp_path, script=script))
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"]["kind"]) == (code, kind)
    limit = overrides[0].partition("=")[2]
    assert limit in report["outcome"]["message"]
    assert report["tree"]["spent_tokens"] <= 10_000 and report["tree"]["reserved_tokens"] == 0


def test_a_duration_ceiling_ends_a_hung_model_call(tmp_path: Path) -> None:
    began = time.monotonic()
    done = actors(
        "run",
        "task.toml",
        "--json",
        "--set",
        "containment.max_total_duration=0.3",
        cwd=task(tmp_path, script=[{"hang": True, "usage": USAGE}]),
    )
    report = json.loads(done.stdout)
    assert done.returncode == 3 and report["halt"]["kind"] == "duration"
    assert report["terminal"]["result"]["termination"] == "deadline"
    assert report["usage"]["estimated"] and report["tree"]["spent_tokens"] > 0
    assert time.monotonic() - began < 10


CONFIG_FAULTS = [
    (["--set", "containment.max_depht=1"], "containment.max_depht"),
    (["--set", "contract.max_step=1"], "contract.max_step"),
    (["--set", "nonsense.x=1"], "nonsense"),
    (["--set", "contract.max_steps=true"], "contract.max_steps"),
    (["--set", "contract.max_steps=-1"], "contract.max_steps"),
    (["--set", "containment.max_total_tokens=1.5"], "containment.max_total_tokens"),
    (["--set", "containment.max_total_duration=nan"], "containment.max_total_duration"),
    (["--set", "containment.max_total_cost=1.5"], "containment.max_total_cost"),
    (["--set", 'containment.max_total_cost="1.50"'], "prices"),
    (["--set", "contract.root=nowhere"], "contract.root"),
    (["--set", "contract.root=task.toml"], "contract.root"),
    (["--set", "contract.effort=3"], "contract.effort"),
    (["--set", "contract.verify.kind=review"], "contract.verify"),
    (["--set", "provider.kind=anthropic"], "provider.kind"),
    (["--set", "provider.script=missing.json"], "missing.json"),
    (["--set", "policy.defaults.write=maybe"], "policy.defaults.write"),
    (["--set", "agents.a.allow_write=true"], "agents.a.allow_write"),
    (["--set", "agents.a.worktree=1"], "worktree"),
    (["--set", "run.approve=perhaps"], "run.approve"),
    (["--set", "run.cleanup_allowance=-1"], "run.cleanup_allowance"),
    (["--set", "bad"], "KEY=VALUE"),
]


@pytest.mark.parametrize(("flags", "place"), CONFIG_FAULTS, ids=[flags[1] for flags, _ in CONFIG_FAULTS])
def test_bad_config_is_exit_2_with_the_place_and_starts_nothing(tmp_path: Path, flags: list[str], place: str) -> None:
    done = actors("run", "task.toml", *flags, cwd=task(tmp_path))
    assert done.returncode == 2, done.stderr
    assert place in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(line.startswith("error: ") for line in done.stderr.splitlines())
    assert not (tmp_path / ".actors").exists()


@pytest.mark.parametrize("text", ["", "[contract", "\udcff", "[contract]\n[provider]\n"])
def test_a_file_that_is_no_task_is_exit_2(tmp_path: Path, text: str) -> None:
    (tmp_path / "task.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    for command in ("run", "validate"):
        done = actors(command, "task.toml", cwd=tmp_path)
        assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr


def test_a_missing_file_a_directory_and_a_missing_store_are_told_in_a_line(tmp_path: Path) -> None:
    for arguments in (["run", "none.toml"], ["run", "."], ["show", "abc"], ["list"], ["trace", "abc"]):
        done = actors(*arguments, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, arguments
    assert list(tmp_path.iterdir()) == []


def test_bad_usage_is_exit_2(tmp_path: Path) -> None:
    for arguments in (["fly"], ["run"], ["run", "task.toml", "--wrong"], ["demo", "--agents", "0"]):
        assert actors(*arguments, cwd=tmp_path).returncode == 2


def test_an_unknown_run_and_an_ambiguous_prefix_name_what_there_is(tmp_path: Path) -> None:
    task(tmp_path)
    runs = [json.loads(actors("run", "task.toml", "--json", cwd=tmp_path).stdout)["run_id"] for _ in range(2)]
    done = actors("show", "zz0", cwd=tmp_path)
    assert done.returncode == 2 and "zz0" in done.stderr
    done = actors("show", "", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert actors("show", runs[0], cwd=tmp_path).returncode == 0


def test_a_store_that_is_no_store_is_told_with_its_file(tmp_path: Path) -> None:
    task(tmp_path)
    (tmp_path / "garbage.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    done = actors("run", "task.toml", "--store", "garbage.db", cwd=tmp_path)
    assert done.returncode in (1, 2) and "garbage.db" in done.stderr and "Traceback" not in done.stderr
    done = actors("run", "task.toml", "--store", ".", cwd=tmp_path)
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:1"])
def test_an_unreachable_endpoint_is_exit_1_in_a_line(tmp_path: Path, url: str) -> None:
    done = actors(
        "run",
        "task.toml",
        "--json",
        *("--set", "provider.kind=compatible", "--set", f"provider.base_url={url}", "--set", "contract.max_retries=0"),
        cwd=task(tmp_path, BASE.replace('script = "script.json"', 'model = "m"')),
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"]["kind"]) == (1, "escalated")
    assert report["terminal"]["failure"]["code"] == "host_effect_failed"
    assert "Traceback" not in done.stderr
    # Nothing was sent, so nothing was spent.
    assert report["tree"]["spent_tokens"] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_O22_one_signal_stops_in_order_and_leaves_a_resumable_run(tmp_path: Path, number: int, code: int) -> None:
    task(tmp_path, script=[{"calls": [SPAWN], "usage": USAGE}, {"hang": True, "usage": USAGE}])
    running = subprocess.Popen(
        [*PROGRAM, "run", "task.toml", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_agents(tmp_path / ".actors" / "runs.db", 2)
    running.send_signal(number)
    out, err = running.communicate(timeout=20)
    assert running.returncode == code, err
    report = json.loads(out)
    assert report["outcome"]["kind"] == "interrupted" and report["resumable"]
    assert report["terminal"] is None and report["halt"]["kind"] == "interrupt"
    shown = json.loads(actors("show", report["run_id"], "--json", cwd=tmp_path).stdout)
    assert {agent["status"] for agent in shown["agents"]} == {"paused"}
    # The root's step waits for its child: it stays open, so that a resume finds the child again.
    assert shown["agents"][0]["steps"] == 0


def test_O22_a_second_signal_is_immediate(tmp_path: Path) -> None:
    stubborn = [sys.executable, "-c", "import time; time.sleep(60)"]
    text = BASE.replace('write = "allow"', 'write = "allow"\nexec = "allow"')
    task(tmp_path, text, [{"calls": [["exec", {"argv": stubborn}]], "usage": USAGE}])
    running = subprocess.Popen(
        [*PROGRAM, "run", "task.toml"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_agents(tmp_path / ".actors" / "runs.db", 1)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = running.communicate(timeout=20)
    assert running.returncode == 130 and time.monotonic() - began < 15
    assert "SIGINT" in err


def wait_for_agents(store: Path, count: int) -> None:
    for _ in range(200):
        time.sleep(0.05)
        try:
            with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
                [(found,)] = connection.execute("SELECT count(*) FROM runs").fetchall()
            connection.close()
        except sqlite3.Error:
            continue
        if found >= count:
            return
    raise AssertionError("the run did not start")


def test_a_killed_run_is_shown_with_what_it_had_written(tmp_path: Path) -> None:
    task(tmp_path, script=[{"calls": [SPAWN], "usage": USAGE}, {"hang": True, "usage": USAGE}])
    running = subprocess.Popen(
        [*PROGRAM, "run", "task.toml", "--quiet"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for_agents(tmp_path / ".actors" / "runs.db", 2)
    time.sleep(0.3)
    running.kill()
    running.wait()
    [run] = json.loads(actors("list", "--json", cwd=tmp_path).stdout)
    shown = json.loads(actors("show", run["run_id"], "--json", cwd=tmp_path).stdout)
    assert shown["tree"]["spent_tokens"] == 120 and shown["tree"]["reserved_tokens"] > 0
    assert shown["usage"]["input_tokens"] == 100 and shown["tree"]["peak_working"] is None
    assert (shown["outcome"], shown["terminal"], shown["status"]) == (None, None, "running")
    assert "root" in actors("show", run["run_id"], cwd=tmp_path).stdout


def test_validate_tells_all_problems_and_schema_is_json(tmp_path: Path) -> None:
    task(tmp_path)
    assert actors("validate", "task.toml", cwd=tmp_path).returncode == 0
    done = actors(
        "validate", "task.toml", "--json", "--set", "contract.x=1", "--set", "containment.max_depth=-1", cwd=tmp_path
    )
    assert done.returncode == 2
    assert {each["path"] for each in json.loads(done.stdout)} == {"contract.x", "containment.max_depth"}
    schema = json.loads(actors("schema", "task", cwd=tmp_path).stdout)
    tables = {"contract", "containment", "provider", "policy", "prices", "run", "agents", "reviewer"}
    assert set(schema["properties"]) == tables


def test_the_demo_shows_a_whole_tree(tmp_path: Path) -> None:
    done = actors("demo", "--json", "--agents", "4", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"]["kind"]) == (0, "success")
    assert report["tree"]["agents"] == 5 and report["tree"]["refusals"] == {"agents": 1}
    assert report["tree"]["spent_microdollars"] > 0 and not report["usage"]["estimated"]
    assert list(tmp_path.iterdir()) == []


def test_a_colour_is_only_there_when_it_is_asked_for(tmp_path: Path) -> None:
    task(tmp_path)
    actors("run", "task.toml", "--quiet", cwd=tmp_path)
    assert "\x1b" not in actors("list", cwd=tmp_path).stdout
    assert "\x1b" in actors("run", "task.toml", "--quiet", cwd=tmp_path, FORCE_COLOR="1", CI="", NO_COLOR="").stdout
    assert "\x1b[3" not in actors("run", "task.toml", "--quiet", cwd=tmp_path, NO_COLOR="1").stdout


def test_odd_characters_crash_nothing_under_a_poor_locale(tmp_path: Path) -> None:
    task(tmp_path, script=[{"calls": [["write_file", {"path": "out.txt", "content": "ok \u2713"}]]}])
    done = actors("run", "task.toml", cwd=tmp_path, LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
