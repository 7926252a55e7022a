"""Reading a model's arguments strictly. Pure.

Models fill every property they are shown with a zero value, so an empty text
and 0 mean "not given" for what is optional.
"""

from collections.abc import Mapping
from typing import Any

from actors.errors import ToolFailed


def only(arguments: Mapping[str, Any], *names: str) -> None:
    """Refuse arguments that the tool does not have.

    Raises:
        ToolFailed: names the first one, and those there are.
    """
    for name in arguments:
        if name not in names:
            raise ToolFailed(f"there is no argument {name!r}; it takes {', '.join(names)}")


def text(arguments: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    """Read a required text.

    Raises:
        ToolFailed: it is missing, no text, or empty.
    """
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be a text")
    if not value and not empty:
        raise ToolFailed(f"{name} must not be empty")
    return value


def optional_text(arguments: Mapping[str, Any], name: str) -> str | None:
    """Read an optional text; empty is not given.

    Raises:
        ToolFailed: it is no text.
    """
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise ToolFailed(f"{name} must be a text")
    return value or None


def optional_count(arguments: Mapping[str, Any], name: str) -> int | None:
    """Read an optional whole number of at least 1; 0 is not given.

    Raises:
        ToolFailed: it is something else.
    """
    value = arguments.get(name)
    if value is None or (type(value) is int and value == 0):
        return None
    if type(value) is not int or value < 0:
        raise ToolFailed(f"{name} must be a whole number of at least 1")
    return value


def texts(arguments: Mapping[str, Any], name: str) -> list[str]:
    """Read a list of texts with at least one member.

    Raises:
        ToolFailed: it is something else.
    """
    value = arguments.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ToolFailed(f'{name} must be a list of texts, such as ["ls", "-l"]')
    if not value[0] or any("\x00" in item for item in value):
        raise ToolFailed(f"{name} must begin with a program, and must hold no NUL")
    return list(value)


def schema(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
