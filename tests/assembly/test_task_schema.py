"""The schema and the reader of a task file know the same keys, and think alike of whole files."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.agents.acted_on import ACTED_ON, AGENT_ACTED_ON
from actors.agents.contract import TaskContract
from actors.agents.roster import AgentDef
from actors.agents.verification import SUPPORTED
from actors.assembly.provider_spec import ProviderSpec
from actors.assembly.run_settings import TABLES, RunSettings
from actors.assembly.task_document import read_document
from actors.assembly.task_file import validate_task
from actors.assembly.task_schema import task_schema
from actors.containment.limits import Containment

SCHEMA = task_schema()
# One file that uses every table.
TASK = """
[contract]
goal = "g"
root = "."
[contract.verify]
kind = "command"
argv = ["true"]
[containment]
max_total_agents = 1
max_concurrent = 1
max_depth = 1
max_total_tokens = 1
[provider]
kind = "openai"
model = "m"
[policy.defaults]
net = "deny"
[[policy.layers]]
name = "operator"
rules = [{ act = "read", effect = "allow", glob = "*" }]
[prices.m]
input = "0.15"
output = "0.60"
[run]
approve = "deny"
[agents.a]
role = "r"
"""
# The names that stand for any name, in the tables whose keys are free.
FREE = {"prices": "m", "agents": "a"}


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Give the vendor's provider a key, and no address but its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "a-key-of-no-account")
        patch.delenv("OPENAI_BASE_URL", raising=False)
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "task.toml"
    made.write_text(TASK)
    return made


# ── a judge of the part of JSON Schema that is used here ────────────────────

_TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": int | float,
}  # fmt: skip
_SAID = {"$schema", "title", "description"}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Judge a value. A keyword that is not known here fails the test instead of passing everything."""
    return all(_fits_word(value, word, wanted, schema) for word, wanted in schema.items() if word not in _SAID)


def _fits_word(value: Any, word: str, wanted: Any, schema: dict[str, Any]) -> bool:
    match word:
        case "type":
            is_bool = isinstance(value, bool)
            return isinstance(value, _TYPES[wanted]) and is_bool == (wanted == "boolean")
        case "enum":
            return value in wanted
        case "const":
            return bool(value == wanted)
        case "minimum":
            return not isinstance(value, int | float) or value >= wanted
        case "minLength":
            return not isinstance(value, str) or len(value) >= wanted
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "items":
            return not isinstance(value, list) or all(fits(item, wanted) for item in value)
        case "required":
            return not isinstance(value, dict) or all(key in value for key in wanted)
        case "properties":
            return not isinstance(value, dict) or all(fits(value[key], wanted[key]) for key in wanted if key in value)
        case "additionalProperties":
            rest = [value[key] for key in value if key not in schema.get("properties", {})] if isinstance(value, dict) else []
            return not rest if wanted is False else all(fits(item, wanted) for item in rest)
        case "oneOf":
            return sum(fits(value, each) for each in wanted) == 1
        case "not":
            return not fits(value, wanted)
    raise AssertionError(f"this judge does not know {word}")


# ── the same keys ───────────────────────────────────────────────────────────


def tables(schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Walk all tables of the schema that a dotted key can reach, but the variants of one."""
    if schema.get("type") != "object":
        return
    yield at, schema
    for key, below in schema.get("properties", {}).items():
        yield from tables(below, f"{at}.{key}" if at else key)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from tables(schema["additionalProperties"], f"{at}.{FREE[at]}")


KEYED = [(at, schema) for at, schema in tables(SCHEMA) if schema.get("additionalProperties") is False]


def test_every_table_is_walked() -> None:
    walked = {at for at, _schema in KEYED}
    assert walked >= {"", "contract", "containment", "provider", "policy", "policy.defaults", "run"}
    assert walked >= {"prices.m", "agents.a", "contract.retry", "contract.stall"}


@pytest.mark.parametrize(("at", "schema"), KEYED, ids=[at or "file" for at, _schema in KEYED])
def test_every_key_of_the_schema_is_read_and_no_other_key_is(file: Path, at: str, schema: dict[str, Any]) -> None:
    for key in [*schema["properties"], "surplus"]:
        place = f"{at}.{key}" if at else key
        # A value that nothing can be: whoever reads the key refuses it.
        found = validate_task(file, [f"{place}=[[1]]"])
        unknown = [text for _path, text in found if "unknown key" in text]
        assert found, place
        assert bool(unknown) == (key == "surplus"), (place, found)


@pytest.mark.parametrize(
    ("table", "record", "names"),
    [
        ("contract", TaskContract, ACTED_ON - {"agents"}),
        ("containment", Containment, None),
        ("provider", ProviderSpec, None),
        ("reviewer", ProviderSpec, None),
        ("run", RunSettings, None),
        ("agents", AgentDef, AGENT_ACTED_ON - {"name"}),
    ],
)
def test_every_field_of_a_record_that_is_acted_on_is_in_the_schema(
    table: str, record: type, names: frozenset[str] | None
) -> None:
    schema = SCHEMA["properties"][table]
    found = set(schema.get("properties") or schema["additionalProperties"]["properties"])
    assert found == (names or {field.name for field in attrs.fields(record)})
    assert tuple(SCHEMA["properties"]) == TABLES


VALUES = {"argv": ["x"], "expect_exit": 0, "text": "t", "file": "f", "needle": "n"}
VALUES |= {"protect": ["a"], "files": ["f"], "rubric": "r", "allow_self_review": True}
CRITERIA = SCHEMA["properties"]["contract"]["properties"]["verify"]["oneOf"]


@pytest.mark.parametrize("schema", CRITERIA, ids=lambda schema: schema["properties"]["kind"]["const"])
def test_a_criterion_has_the_keys_that_its_schema_names(file: Path, schema: dict[str, Any]) -> None:
    kind = schema["properties"]["kind"]["const"]
    table = {"kind": kind, **{key: VALUES[key] for key in schema["properties"] if key != "kind"}}
    assert fits(table, schema)

    def problems(changed: dict[str, Any]) -> list[str]:
        inline = ", ".join(f"{key} = {json.dumps(value)}" for key, value in changed.items())
        found = validate_task(file, [f"contract.verify={{ {inline} }}"])
        # Some kinds judge a single file only; that is another matter.
        return [path for path, _text in found if path != "contract.verify.kind"]

    assert problems(table) == []
    assert problems({**table, "surplus": 1}) == ["contract.verify.surplus"]
    for key in set(schema["required"]) - {"kind"}:
        assert problems({name: value for name, value in table.items() if name != key}) == [f"contract.verify.{key}"]


def test_every_criterion_that_is_evaluated_is_in_the_schema() -> None:
    assert {schema["properties"]["kind"]["const"] for schema in CRITERIA} == SUPPORTED


# ── the same verdict ────────────────────────────────────────────────────────

GOOD = [
    [],
    ["contract.max_duration=3", "contract.max_tokens=0", "contract.constraints=['c']"],
    ["contract.retry.max=5", "contract.stall={ window = 0 }", "contract.on_unknown_price=tokens_only"],
    ['containment.max_total_cost="1.5"', "containment.max_total_duration=0.5", "containment.max_total_calls=1"],
    ["provider.base_url=http://h/v1", "provider.record=run.jsonl"],
    ["policy.layers=[{ name = 'a', rules = [] }, { name = 'b', narrows = true, rules = [] }]"],
    ["policy.layers=[{ name = 'a', rules = [{ act = 'exec', effect = 'ask', pattern = 'make' }] }]"],
    ["prices.m.cached_input='0'", "prices.m.tiers=[{ floor = 9, input = '1', output = '2' }]", "prices.m.request='1'"],
    ["run.cleanup_allowance=7", "run.approve=all"],
    ["agents.b.model=m", "agents.b.max_steps=3", "agents.b.deny_write=true"],
]
BAD = [
    "x=1", "contract={}", "provider={}", "contract.goal=3", "contract.file=a", "contract.max_steps='3'",
    "contract.max_steps=-1", "contract.max_steps=1.5", "contract.max_steps=true", "contract.constraints=c",
    "contract.agents={ a = {} }", "contract.effort=3", "contract.retry={ bsae = 1 }", "contract.verify={}",
    "contract.verify.kind=review", "contract.verify.kind=nothing", "contract.verify.argv=make", "contract.on_unknown_price=x",
    "contract={ goal = 'g' }", "contract={ goal = 'g', file = 'f' }", "containment={}", "containment.max_total_cost=1.5",
    "containment.max_total_cost='-1'", "containment.max_depth=-1", "provider.kind=anthropic", "provider.kind=other",
    "provider.model=3", "policy.defaults.net=maybe", "policy.defaults.fly=deny", "policy.layers={}", "policy.x=1",
    "policy.layers=[{ rules = [] }]", "policy.layers=[{ name = 'a' }]", "policy.layers=[{ name = '', rules = [] }]",
    "policy.layers=[{ name = 'a', rules = [{ act = 'read', effect = 'deny' }] }]",
    "policy.layers=[{ name = 'a', rules = [{ act = 'read', effect = 'deny', glob = 'a', pattern = 'a' }] }]",
    "policy.layers=[{ name = 'a', rules = [{ act = 'read', effect = 'deny', blog = 'a' }] }]",
    "policy.layers=[{ name = 'a', rules = [], x = 1 }]", "prices.m.input=0.15", "prices.m.x='1'", "prices.n={}",
    "prices.m.tiers=[{ input = '1', output = '2' }]", "run.approve=maybe", "run.cleanup_allowance='5'", "run.x=1",
    "agents.a.allow_write=true", "agents.a.worktree=1", "agents.a.deny_write=1", "agents.a=1",
]  # fmt: skip


@pytest.mark.parametrize("overrides", GOOD, ids=lambda overrides: " ".join(overrides)[:40])
def test_what_is_read_fits_the_schema(file: Path, overrides: list[str]) -> None:
    assert validate_task(file, overrides) == []
    assert fits(read_document(file, overrides), SCHEMA)


@pytest.mark.parametrize("override", BAD)
def test_what_is_refused_for_its_shape_does_not_fit_the_schema(file: Path, override: str) -> None:
    assert validate_task(file, [override]) != []
    assert not fits(read_document(file, [override]), SCHEMA)


def test_work_on_one_file_fits_the_schema_without_a_root(file: Path) -> None:
    contract = "contract={ goal = 'g', file = 'f', verify = { kind = 'file_contains', text = 't' } }"
    assert fits(read_document(file, [contract]), SCHEMA)
    assert not fits(read_document(file, [contract.replace("file = 'f'", "file = 'f', root = '.'")]), SCHEMA)


def test_the_schema_is_json_and_names_its_draft() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert fits(tomllib.loads(TASK), SCHEMA)
