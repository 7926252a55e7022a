"""What a model sends to a tool, judged against the one record that also makes the schema. Pure.

A tool's arguments are a frozen `msgspec.Struct`; its JSON Schema and the check
are derived from it, so they cannot differ. Nothing is guessed: ``"10"`` is no
number. Only a null for what may be left out counts as left out, since some
models write every key.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from actors.agents.entry_text import bounded, clean
from actors.agents.ports import ToolSpec
from actors.errors import ToolFailed

A = TypeVar("A", bound=msgspec.Struct)


def spec_for(name: str, description: str, kind: type[msgspec.Struct]) -> ToolSpec:
    """Describe a tool with the schema of its arguments."""
    _, components = msgspec.json.schema_components([kind])
    schema = dict(components[kind.__name__])
    properties = {key: _plain(each, components) for key, each in schema["properties"].items()}
    return ToolSpec(
        name,
        description,
        {
            "type": "object",
            "properties": properties,
            "required": list(schema.get("required", [])),
            "additionalProperties": False,
        },
    )


def _plain(schema: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Write out what is only named, and drop the null that an optional argument may also be: leave the key out."""
    if "$ref" in schema:
        schema = {**components[schema["$ref"].rpartition("/")[2]], **schema}
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        schema = {**choices[0], **{key: value for key, value in schema.items() if key not in ("anyOf", "default")}}
    plain = {key: value for key, value in schema.items() if key not in ("title", "$ref")}
    if "items" in plain:
        plain["items"] = _plain(plain["items"], components)
    if "properties" in plain:
        plain["properties"] = {key: _plain(each, components) for key, each in plain["properties"].items()}
        plain["additionalProperties"] = False
        # What was said of the record is said to whoever reads the source.
        plain.pop("description", None)
    return plain


def taken(kind: type[A], arguments: Mapping[str, Any], spec: ToolSpec) -> A:
    """Read the arguments of one call.

    Raises:
        ToolFailed: something is missing, unknown or of the wrong type; says what, and what is wanted.
    """
    try:
        return msgspec.convert(dict(arguments), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        wanted = ", ".join(_signature(spec))
        raise ToolFailed(f"{spec.name}: {bounded(clean(str(error)), 300)}. It takes: {wanted}") from None


def _signature(spec: ToolSpec) -> list[str]:
    required = spec.parameters["required"]
    return [
        f"{name} ({schema.get('type', 'any')}{'' if name in required else ', optional'})"
        for name, schema in spec.parameters["properties"].items()
    ]
