"""The JSON Schema of a task file, made from the records that read it, so that the two cannot drift."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import attrs

from actors.agents.acted_on import ACTED_ON, AGENT_ACTED_ON
from actors.agents.contract import TaskContract
from actors.agents.ports import Act
from actors.agents.roster import AgentDef, Agents
from actors.agents.verification import (
    CommandPasses,
    EachCompiles,
    FileContains,
    FileEquals,
    NoCriterion,
    Review,
    Verification,
    WorkspaceFileContains,
)
from actors.assembly.provider_spec import SUPPORTED_PROVIDERS, ProviderSpec
from actors.assembly.run_settings import TABLES, RunSettings
from actors.containment.limits import Containment

Schema = dict[str, Any]
DOLLARS: Final[Schema] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,6})?$", "description": "US dollars as text"}
_CRITERIA: Final = (
    CommandPasses, FileContains, FileEquals, WorkspaceFileContains, EachCompiles, Review, NoCriterion,
)  # fmt: skip


def task_schema() -> Schema:
    """Give the schema of a task file, draft 2020-12."""
    properties = {
        "contract": _contract(),
        "containment": _containment(),
        "provider": _provider(),
        "policy": _policy(),
        "prices": {"type": "object", "additionalProperties": _price()},
        "run": _record(RunSettings),
        "agents": {"type": "object", "additionalProperties": _record(AgentDef, AGENT_ACTED_ON - {"name"})},
        "reviewer": _provider(),
    }
    assert tuple(properties) == TABLES
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A task for actors",
        "type": "object",
        "properties": properties,
        "required": ["contract", "provider"],
        "additionalProperties": False,
    }


def _record(kind: type, only: Iterable[str] | None = None, loose: Iterable[str] = ()) -> Schema:
    """Describe an attrs class; ``loose`` fields are required in Python and not in a file."""
    hints = typing.get_type_hints(kind)
    fields = [field for field in attrs.fields(kind) if only is None or field.name in only]
    required = [field.name for field in fields if field.default is attrs.NOTHING and field.name not in loose]
    schema: Schema = {
        "type": "object",
        "properties": {field.name: _of(hints[field.name]) for field in fields},
        "additionalProperties": False,
    }
    return {**schema, "required": required} if required else schema


def _contract() -> Schema:
    schema = _record(TaskContract, ACTED_ON - {"agents"}, loose={"verify", "file"})
    workspace: Schema = {"required": ["root"], "not": {"required": ["file"]}}
    one_file: Schema = {"required": ["file", "verify"], "not": {"required": ["root"]}}
    return {**schema, "oneOf": [workspace, one_file]}


_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
    bool: {"type": "boolean"},
    Path: {"type": "string"},
}


def _of(hint: Any) -> Schema:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if get_origin(hint) in (types.UnionType, typing.Union):
        # A TOML file has no null: what may be None is left out.
        [kept] = [each for each in get_args(hint) if each is not type(None)]
        return _of(kept)
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _of(get_args(hint)[0])}
    if hint is Verification:
        return {"oneOf": [_criterion(each) for each in _CRITERIA]}
    if hint is Agents:
        return {"type": "object"}
    if issubclass(hint, StrEnum):
        return {"enum": [member.value for member in hint]}
    return _record(hint)


def _criterion(kind: type[Verification]) -> Schema:
    schema = _record(kind)
    schema["properties"] = {"kind": {"const": kind.kind.value}, **schema["properties"]}
    schema["required"] = ["kind", *schema.get("required", [])]
    return schema


def _containment() -> Schema:
    schema = _record(Containment)
    schema["properties"]["max_total_cost"] = DOLLARS
    return schema


def _provider() -> Schema:
    schema = _record(ProviderSpec)
    schema["properties"]["kind"] = {"enum": sorted(SUPPORTED_PROVIDERS)}
    return schema


def _policy() -> Schema:
    effect: Schema = {"enum": ["allow", "ask", "deny"]}
    acts = [act.value for act in Act]
    words: Schema = {"act": {"enum": acts}, "effect": effect}
    glob: Schema = {"type": "string"}
    # ``pattern`` is what another system calls it; one of the two must stand.
    rule: Schema = {
        "oneOf": [
            {
                "type": "object",
                "properties": {**words, name: glob},
                "required": ["act", "effect", name],
                "additionalProperties": False,
            }
            for name in ("glob", "pattern")
        ]
    }
    layer: Schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "rules": {"type": "array", "items": rule},
            "narrows": {"type": "boolean"},
        },
        "required": ["name", "rules"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "defaults": {"type": "object", "properties": dict.fromkeys(acts, effect), "additionalProperties": False},
            "layers": {"type": "array", "items": layer},
        },
        "additionalProperties": False,
    }


def _price() -> Schema:
    rates: Schema = {"input": DOLLARS, "output": DOLLARS, "cached_input": DOLLARS}
    tier: Schema = {
        "type": "object",
        "properties": {"floor": {"type": "integer", "minimum": 1}, **rates},
        "required": ["floor", "input", "output"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {**rates, "request": DOLLARS, "tiers": {"type": "array", "items": tier}},
        "required": ["input", "output"],
        "additionalProperties": False,
    }
