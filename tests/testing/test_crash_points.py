"""Crash anywhere and go on: the short form, and what the explorer finds when something is wrong.

The long form is every point of every scenario, and many crashes in one run:
``ACTORS_EXPLORE=all``, or ``python -m actors.testing.crash_points --often 100``.
The explorer forks, and so it has a process of its own here.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.testing.crash_account import Account, differences
from actors.testing.crash_scenarios import SCENARIOS

ALL = os.environ.get("ACTORS_EXPLORE") == "all"
# Every k-th point: all of the small ones.
EVERY = {
    "single": 1,
    "fan": 16,
    "nested": 10,
    "approval": 16,
    "verification": 7,
    "effects": 1,
    "backlog": 12,
    "backoff": 10,
    "commits": 7,
}
SECONDS = 600


def explore(*arguments: str, path: Path | None = None) -> tuple[int, str]:
    paths = [str(each) for each in [path] if each] + sys.path
    command = [sys.executable, "-m", "actors.testing.crash_points", *arguments]
    # What is found keeps its files; here some of it is meant to be found.
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": folder}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_scenario_has_its_place_in_the_short_form() -> None:
    assert set(EVERY) == set(SCENARIOS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_that_is_killed_at_a_crash_point_ends_as_if_it_had_not_been(name: str) -> None:
    code, told = explore(name, "--every", "1" if ALL else str(EVERY[name]))
    assert code == 0, told
    assert ", 0 findings" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS if ALL else ["fan", "nested", "effects"])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(name: str) -> None:
    code, told = explore(name, "--only-often", "--often", "100" if ALL else "5", "--seed", "11")
    assert code == 0, told
    assert int(re.findall(r"runs cut (\d+) times", told)[0]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS if ALL else ["single", "nested"])
def test_a_run_whose_store_fails_at_a_statement_goes_on_when_the_cause_is_gone(name: str) -> None:
    code, told = explore(name, "--faults", "--every", "3" if ALL else "90" if name == "nested" else "30")
    assert code == 0, told
    assert ", 0 findings" in told


# ── what is wrong is found ──────────────────────────────────────────────────

WRONG = """
import time
import attrs
import trio
from actors.testing.crash_scenarios import SCENARIOS
from actors.testing.crash_stage import Scenario, Send, watched_builtins

class SaysItCanBeRepeated(Send):
    recovery = "replayable"

def tools(stage):
    return (*watched_builtins(stage), SaysItCanBeRepeated(stage))

TWICE = attrs.evolve(SCENARIOS["effects"], name="twice", tools=tools)

async def hang_when_resumed(stage):
    mark = stage.folder / "mark"
    if mark.exists():
        time.sleep(60)
    mark.touch()

HANGS = attrs.evolve(SCENARIOS["single"], name="hangs", beside=hang_when_resumed)

class Forgets:
    spec, read_only = Send.spec, False
    def __init__(self):
        self.sent = 0
    async def run(self, arguments, context):
        self.sent += 1
        return attrs.evolve(await STAGES[0].run(arguments, context), text=f"sent {self.sent}")

STAGES = []
def forgetting(stage):
    STAGES[:] = [Send(stage)]
    return (*watched_builtins(stage), Forgets())

FORGETS = attrs.evolve(SCENARIOS["effects"], name="forgets", tools=forgetting)

async def raises(stage):
    raise RuntimeError("no such luck")

NEVER_ENDS = attrs.evolve(SCENARIOS["single"], name="never", start=raises)
NOTHING = 7
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def test_an_effect_that_is_done_twice_is_found(wrong: Path) -> None:
    code, told = explore("wrong:TWICE", "--every", "4", path=wrong)
    assert code == 1
    assert "done 2 times instead of 1" in told


def test_a_tool_that_remembers_in_memory_is_found(wrong: Path) -> None:
    code, told = explore("wrong:FORGETS", "--every", "7", path=wrong)
    assert code == 1
    assert re.search(r"result: 'tool send sent 1 True' instead of 'tool send sent \d True'", told), told


def test_a_process_that_hangs_is_killed_and_found_with_its_stack(wrong: Path) -> None:
    code, told = explore("wrong:HANGS", "--at", "6", "--seconds", "2", path=wrong)
    assert code == 1
    assert "it hung for 2 s and was killed" in told and "in hang_when_resumed" in told


def test_a_scenario_that_is_wrong_when_nobody_cuts_it_is_refused(wrong: Path) -> None:
    code, told = explore("wrong:NEVER_ENDS", path=wrong)
    assert code == 2
    assert "never does not come to its end when nobody cuts it" in told and "no such luck" in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nope", "'nope' is none of single, fan"),
        ("wrong:NOTHING", "is no Scenario, but a int"),
        ("wrong:MISSING", "cannot be imported"),
        ("no_such_module:X", "cannot be imported"),
    ],
)
def test_what_is_no_scenario_is_refused_by_name(wrong: Path, name: str, said: str) -> None:
    code, told = explore(name, path=wrong)
    assert code == 2
    assert said in told


ORPHANS = """
import threading
from actors.errors import ActorsError
from actors.testing.crash_points import explore, run_once
from actors.testing.crash_process import _children
from actors.testing.crash_scenarios import SCENARIOS

for at in range(13, 22):
    report = run_once(SCENARIOS["verification"], [at])
    if not report.crashes or report.findings:
        print(report)
    assert not _children(), at

event = threading.Event()
threading.Thread(target=event.wait, daemon=True).start()
try:
    explore(SCENARIOS["single"])
except ActorsError as error:
    print(error)
"""


def test_no_command_of_a_killed_process_is_left_and_threads_are_refused() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the explorer forks, and this process has threads: run it in one of its own\n"


def test_the_scenario_of_the_docs_can_be_explored(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "crash-points.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_scenarios.py").write_text(example)
    code, told = explore("my_scenarios:MINE", "--every", "4", path=tmp_path)
    assert code == 0, told


# ── comparing ───────────────────────────────────────────────────────────────

WHOLE = Account({"root end": "done"}, {"root#1.1": 1}, {"root 1 a": 1, "root 2 b": 2}, 300, 300, 0, 0, ())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"told": {"root end": "failed"}}, ["root end: 'failed' instead of 'done'"]),
        ({"told": {}}, ["root end: nothing instead of 'done'"]),
        ({"effects": {}}, ["effect root#1.1: done 0 times instead of 1"]),
        ({"effects": {"root#1.1": 2}}, ["effect root#1.1: done 2 times instead of 1"]),
        ({"requests": {"root 1 a": 1, "root 2 b": 1}}, ["request root 2 b: sent 1 times instead of 2"]),
        (
            {"requests": {**WHOLE.requests, "other": 1}, "lost": 1},
            ["request other: sent 1 times instead of 0"],
        ),
        (
            {"requests": {"root 1 a": 2, "root 2 b": 2}},
            ["1 requests were sent again, and 0 attempts are marked as lost"],
        ),
        # Sent again, and charged in full for both.
        ({"requests": {"root 1 a": 2, "root 2 b": 2}, "lost": 1, "billed": 400, "estimated": 140}, []),
        # It never arrived, and was charged all the same.
        ({"lost": 1, "estimated": 140}, []),
        ({"billed": 301}, ["the model billed 301 tokens; counted are 300, and 0 estimated"]),
        ({"billed": 299}, ["the model billed 299 tokens; counted are 300, and 0 estimated"]),
        ({"wrong": ("leaks: some",)}, ["leaks: some"]),
    ],
)
def test_two_accounts_differ_in_all_but_what_was_lost_and_marked(changes: dict[str, Any], said: list[str]) -> None:
    assert differences(WHOLE, attrs.evolve(WHOLE, **changes)) == said
