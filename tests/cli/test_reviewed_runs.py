"""A task file names who reviews; the run, and whoever goes on with it from its id alone, is reviewed by that one."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.assembly.stored_task import Means
from actors.assembly.task_file import read_task, validate_task
from actors.errors import ConfigError

TASK = """
[contract]
goal = "write kindly"
root = "."
max_steps = 9
[contract.verify]
kind = "review"
rubric = "is it kind?"
[provider]
kind = "scripted"
script = "script.json"
[policy.defaults]
write = "allow"
[reviewer]
kind = "scripted"
script = "judge.json"
model = "judge-1"
"""
NO, YES = ({"text": json.dumps({"verdict": verdict})} for verdict in ("no", "yes"))


def writes(path: str) -> dict[str, Any]:
    return {"calls": [["write_file", {"path": path, "content": "x"}]]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "script.json").write_text(json.dumps([writes("a"), {**writes("b"), "delay": 30}, writes("c")]))
    (tmp_path / "judge.json").write_text(json.dumps([NO, YES]))
    return tmp_path


def problems(folder: Path, *overrides: str) -> list[str]:
    return [place for place, _text in validate_task(folder / "task.toml", overrides)]


def test_a_reviewed_task_is_read_and_its_means_come_back(folder: Path) -> None:
    task = read_task(folder / "task.toml")
    assert task.reviewer is not None and task.reviewer.script == str(folder / "judge.json")
    means = Means(task.provider, task.prices, task.run, task.reviewer)
    again = Means.from_dict(json.loads(means.text()))
    assert again.reviewer == task.reviewer and again.text() == means.text()
    assert "reviewer" not in Means(task.provider).to_dict()
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("overrides", "places"),
    [
        (['reviewer.model="configured-model"'], ["reviewer.model"]),
        (['reviewer.model="x/configured-model"'], ["reviewer.model"]),
        (['agents.a.model="judge-1"'], ["reviewer.model"]),
        (['reviewer.kind="carrier-pigeon"'], ["reviewer.kind"]),
        (['reviewer.script="absent.json"'], ["reviewer.script"]),
        (["reviewer.surplus=1"], ["reviewer.surplus"]),
        (['reviewer={ kind = "compatible", base_url = "http://127.0.0.1:1/v1" }'], ["reviewer.model"]),
        # What is allowed, or is no review at all, needs no other.
        (['reviewer.model="configured-model"', "contract.verify.allow_self_review=true"], []),
    ],
)
def test_who_cannot_review_is_told_by_the_key(folder: Path, overrides: list[str], places: list[str]) -> None:
    assert problems(folder, *overrides) == places


def test_a_review_without_a_reviewer_is_told_and_a_replay_is_reviewed_by_no_connection(folder: Path) -> None:
    plain = TASK.partition("[reviewer]")[0]
    (folder / "task.toml").write_text(plain)
    assert problems(folder) == ["reviewer"]
    assert problems(folder, "contract.verify.allow_self_review=true") == []
    (folder / "runs.jsonl").write_text("")
    (folder / "task.toml").write_text(TASK)
    replay = f'provider={{ kind = "replay", file = "{folder / "runs.jsonl"}" }}'
    real = 'reviewer={ kind = "compatible", base_url = "http://127.0.0.1:1/v1", model = "j" }'
    with pytest.raises(ConfigError, match="a replay opens no connection, and compatible does") as refused:
        read_task(folder / "task.toml", (replay, real))
    assert [place for place, _text in refused.value.problems] == ["reviewer.kind"]


def test_a_cost_ceiling_needs_the_reviewers_price(folder: Path) -> None:
    tree = "containment={ max_total_agents = 1, max_concurrent = 1, max_depth = 0, max_total_tokens = 9, " 'max_total_cost = "1" }'
    price = 'prices={ "configured-model" = { input = "1", output = "1" } }'
    assert problems(folder, tree, price) == ["reviewer.model"]


def test_a_run_is_reviewed_and_goes_on_from_its_id_with_the_same_reviewer(folder: Path, place: Any) -> None:
    running = place.begun("run", "task.toml", "--quiet")
    try:
        place.wait_until("SELECT run_id FROM reservations WHERE step = 2")
    finally:
        running.kill()
        running.communicate()
    # A script goes on behind what it has answered: the second verdict is the reviewer's second one.
    (folder / "script.json").write_text(json.dumps([writes("a"), writes("b"), writes("c")]))
    (run_id,) = [each["run_id"] for each in json.loads(place.actors("list", "--json").stdout)]
    done = place.actors("resume", run_id, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["outcome"]["kind"] == "success" and told["outcome"]["steps"] == 2
    assert place.actors("trace", "--check", run_id).returncode == 0
