"""Where a key stands that is not known where it was written: ``max_steps`` is ``contract.max_steps``.

Whoever reads a table knows its own keys alone, and suggests one of them that is
spelled alike. A key that is right and stands in the wrong table is found here,
among all keys of the schema.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from actors.assembly.task_schema import task_schema
from actors.errors import unknown_key

Parts = tuple[str, ...]

# Tables whose keys are names of the user's own, and how such a name is called where there is none yet.
FREE: Final = {"agents": "NAME", "prices": "MODEL"}
# So alike are only slips of the pen.
ALIKE: Final = 0.8
# More than these nobody reads.
FEW: Final = 6
_UNKNOWN: Final = "unknown key"
_REMOVE: Final = unknown_key("", ())


def with_places(problem: tuple[str, str], document: Mapping[str, Any]) -> tuple[str, str]:
    """Add to a problem with an unknown key where that key is known; other problems stay as they are."""
    place, text = problem
    if not text.startswith(_UNKNOWN):
        return problem
    key = place.rpartition(".")[2]
    paths = list(_paths(task_schema(), ()))
    names = {path[-1] for path in paths}
    if key not in names and text.startswith(_REMOVE):
        # Nothing in its own table is like it; perhaps something in another is.
        key = next(iter(difflib.get_close_matches(key, names, 1, ALIKE)), key)
    found = _written([path for path in paths if path[-1] == key], document)
    if not found:
        return problem
    if place in found:
        # The table has keys of its own for each kind, and this is one of another kind.
        kinds = " or ".join(f'"{kind}"' for kind in _kinds_with(place.split(".")))
        return (place, f"is for kind = {kinds} only; remove it, or write that kind") if kinds else problem
    more = ", ..." if len(found) > FEW else ""
    meant = found[0] if len(found) == 1 else f"one of {', '.join(found[:FEW])}{more}"
    return (place, f"{_UNKNOWN}; did you mean {meant}?")


def _kinds_with(path: list[str]) -> list[str]:
    """List the kinds of a table that have the last key of a path."""
    *tables, key = path
    schema: Mapping[str, Any] = task_schema()
    for name in tables:
        schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
    choices = [choice.get("properties", {}) for choice in schema.get("oneOf", ())]
    return [choice["kind"]["const"] for choice in choices if key in choice and "const" in choice.get("kind", {})]


def _paths(schema: Mapping[str, Any], above: Parts) -> Iterator[Parts]:
    """Give the path of every key that a table may have; the part that a user names is empty."""
    for choice in schema.get("oneOf", ()):
        yield from _paths(choice, above)
    for name, below in schema.get("properties", {}).items():
        yield (*above, name)
        yield from _paths(below, (*above, name))
    free = schema.get("additionalProperties")
    if isinstance(free, Mapping):
        yield from _paths(free, (*above, ""))


def _written(paths: list[Parts], document: Mapping[str, Any]) -> list[str]:
    """Write paths as a file of these names does; tables that it has not are only for a key that nothing else has."""
    named = [full for path in paths for full in _named(path, document)]
    chosen = named or [(path[0], FREE[path[0]], *path[2:]) for path in paths]
    return list(dict.fromkeys(".".join(map(_part, path)) for path in chosen))


def _named(path: Parts, document: Mapping[str, Any]) -> list[Parts]:
    if "" not in path:
        return [path]
    table = document.get(path[0])
    return [(path[0], str(name), *path[2:]) for name in table] if isinstance(table, Mapping) else []


def _part(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
