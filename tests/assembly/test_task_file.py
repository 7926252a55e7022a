"""Task files: strict, relative to themselves, and their schema made from the records that read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.assembly.task_file import read_task, validate_task
from actors.assembly.task_schema import task_schema
from actors.containment.limits import Containment
from actors.errors import ConfigError

WHOLE = """
[contract]
goal = "make the tests pass"
root = "work"
max_steps = 12
constraints = ["change no test"]
[contract.verify]
kind = "command"
argv = ["pytest", "-q"]
expect_exit = 0
[containment]
max_total_agents = 12
max_concurrent = 4
max_depth = 2
max_total_tokens = 200_000
max_total_cost = "1.50"
max_total_duration = 3600
max_total_calls = 200
max_total_tool_calls = 500
[provider]
kind = "compatible"
model = "compatible:small"
base_url = "http://127.0.0.1:8080/v1"
[policy.defaults]
net = "deny"
[[policy.layers]]
name = "operator"
rules = [{ act = "read", effect = "allow", glob = "*" }, { act = "write", effect = "deny", glob = "secrets/*" }]
[prices.small]
input = "0.15"
output = "0.60"
[prices.cheap]
input = "0.01"
output = "0.02"
[run]
cleanup_allowance = 7
approve = "deny"
[agents.searcher]
model = "cheap"
role = "You only read."
deny_write = true
"""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    file = tmp_path / "task.toml"
    file.write_text(WHOLE)
    return file


def test_reads_a_whole_file(whole: Path) -> None:
    task = read_task(whole)
    assert task.contract.root == whole.parent / "work"
    assert task.contract.max_steps == 12
    assert task.containment == Containment(12, 4, 2, 200_000, 1_500_000, 3600.0, 200, 500)
    assert (task.provider.kind, task.provider.model) == ("compatible", "small")
    assert (task.run.cleanup_allowance, task.run.approve) == (7.0, "deny")
    searcher = task.contract.agents.get("searcher")
    assert searcher is not None and searcher.deny_write and searcher.model == "cheap"
    assert task.policy is not None and task.policy.explain  # the operator's layers stand above the built-in one
    assert len(task.prices) == 2


def test_an_override_is_a_toml_value_or_a_bare_text(whole: Path) -> None:
    task = read_task(
        whole, ["contract.max_steps=3", "contract.goal=other words", 'containment.max_total_cost="2"', "run.approve=all"]
    )
    assert (task.contract.max_steps, task.contract.goal) == (3, "other words")
    assert task.containment is not None and task.containment.max_total_cost == 2_000_000
    assert task.run.approve == "all"


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("agents.searcher.model=dear", "agents.searcher.model"),
        ("provider.model=dear", "provider.model"),
        ("provider.model=openai:gpt", "provider.model"),
        ("agents.searcher.effort=high", "agents.searcher.effort"),
        ("contract.verify.argv=[]", "contract.verify.argv"),
        ("prices.small.input=0.15", 'prices."small".input'),
        ("contract.agents.x.role=y", "contract.agents"),
        ("provider.base_url=", "provider.base_url"),
    ],
)
def test_a_problem_is_told_with_its_path(whole: Path, override: str, path: str) -> None:
    assert any(where.startswith(path) for where, _ in validate_task(whole, [override])), validate_task(whole, [override])


def test_all_problems_are_told_and_none_twice(whole: Path) -> None:
    problems = validate_task(whole, ["contract.x=1", "containment.y=1", "provider.z=1", "run.q=1", "w=1"])
    assert {path for path, _ in problems} == {"contract.x", "containment.y", "provider.z", "run.q", "w"}
    assert len(problems) == 5


def test_a_free_model_needs_no_price_when_the_operator_says_so(whole: Path) -> None:
    assert validate_task(whole, ["provider.model=dear", "contract.on_unknown_price=tokens_only"]) == []


def test_single_file_work_takes_no_policy_and_no_tree(tmp_path: Path) -> None:
    text = '[contract]\ngoal="g"\nfile="a.txt"\n[contract.verify]\nkind="file_contains"\ntext="x"\n'
    file = tmp_path / "task.toml"
    file.write_text(text + '[provider]\nkind="openai"\nmodel="m"\n')
    assert validate_task(file) == []
    assert read_task(file).contract.file == tmp_path / "a.txt"
    assert {path for path, _ in validate_task(file, ["policy.defaults.write=deny"])} == {"policy"}
    limits = ["max_total_agents=1", "max_concurrent=1", "max_depth=0", "max_total_tokens=1"]
    found = validate_task(file, [f"containment.{limit}" for limit in limits])
    assert {path for path, _ in found} == {"contract.root"}


def test_the_schema_knows_every_key_of_the_whole_example_and_no_other(whole: Path) -> None:
    import tomllib

    schema = task_schema()
    json.dumps(schema)
    unknown = list(_unknown(tomllib.loads(WHOLE), schema, ""))
    assert unknown == []
    assert list(_unknown({"contract": {"max_step": 1}}, schema, "")) == ["contract.max_step"]


def _unknown(value: Any, schema: dict[str, Any], at: str) -> Any:
    """Walk a document and its schema together, and name keys that the schema does not have."""
    if "oneOf" in schema:
        schema = next(each for each in schema["oneOf"] if each["properties"]["kind"]["const"] == value["kind"])
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, schema.get("items", {}), at)
    if not isinstance(value, dict):
        return
    for key, below in value.items():
        place = f"{at}.{key}" if at else key
        known = schema.get("properties", {}).get(key)
        if known is None and isinstance(schema.get("additionalProperties"), dict):
            known = schema["additionalProperties"]
        if known is None:
            yield place
        else:
            yield from _unknown(below, known, place)


def test_every_key_that_the_schema_names_is_read(whole: Path) -> None:
    for key, schema in task_schema()["properties"]["containment"]["properties"].items():
        override = f"containment.{key}=" + ('"3"' if schema["type"] == "string" else "3")
        assert validate_task(whole, [override]) == [], key
    for key in task_schema()["properties"]["contract"]["properties"]:
        with pytest.raises(ConfigError) as caught:
            read_task(whole, [f"contract.{key}=[[1]]"])
        # A value that nothing can be proves that somebody reads the key, and that it is known.
        assert all("unknown key" not in text for _, text in caught.value.problems), key
