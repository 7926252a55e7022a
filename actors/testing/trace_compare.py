"""Whether two runs did the same: all that is stored of them, compared row by row.

    assert differences(store, recorded.run_id, store, replayed.run_id) == []

Everything counts, in every table of the schema, but what two equal runs cannot have in common: ids, which are
random (rows are matched by the agent's path); times and how long something took; where the workspace lies and where
answers come from; and figures that say who of several agents was first (`SHARED`), as the tree's remainder after a
draw does.

Texts are compared as they are. A run id that found its way into a prompt, an observation or a report differs from run
to run and is told, and so is a report that stands in another call's place. That is the point: rows in which ids were
replaced would look equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from actors.store.export import export
from actors.store.readers import Reader

Row = Mapping[str, Any]
# Rows by path of the agent and name of the table.
Rows = dict[tuple[str, str], list[Row]]

# Of now, and of the process that drives: nothing that the run did.
LEFT_OUT_TABLES: Final = frozenset({"live", "run_leases"})
# Run ids of agents are their tree's id and their path; the path is compared.
AGENT_IDS: Final = frozenset({"run_id", "parent_run_id", "child_run_id"})
OTHER_IDS: Final = frozenset({"id", "tree_id", "from_tree_id", "reopened_from", "request_id"})
# Digests and keys that are made from a run id.
MADE_OF_IDS: Final = frozenset({("steps", "digest"), ("tool_attempts", "key")})
PLACES: Final = frozenset({("runs", "root"), ("runs", "file"), ("runs", "task")})
# What agents that work at the same time share: it tells which of them came first, which trio does not promise.
SHARED: Final = frozenset(
    {
        ("steps", "remaining_tokens"),
        ("agent_events", "remaining"),
        ("ledger", "peak_working"),
        ("reservations", "reservation"),
    }
)
LEFT_OUT: Final = MADE_OF_IDS | PLACES | SHARED
TIMES: Final = ("_at", "_ms")
# The same inside of columns that hold JSON.
JSON_COLUMNS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("runs", "contract"): frozenset({"root", "file"}),
    ("runs", "detail"): frozenset({"at", "request"}),
    ("runs", "decided"): frozenset({"at", "request"}),
    ("run_events", "event"): frozenset({"run_id", "child_run_id", "request", "request_id", "remaining", "seconds"}),
}
# How many wait and work at that moment, whoever they are.
SHARED_EVENTS: Final = frozenset({"fleet"})
AROUND: Final = 30
MOST_SHOWN: Final = 120


def differences(store_a: Reader, tree_a: str, store_b: Reader, tree_b: str) -> list[str]:
    """List what differs between two stored trees, a line for each value; empty when they did the same.

    A tree that is not in its store differs from every other; two such trees are told as well.
    """
    one, other = rows_of(store_a, tree_a), rows_of(store_b, tree_b)
    missing = [
        f"{tree} is not in {store.file}"
        for store, tree in ((store_a, tree_a), (store_b, tree_b))
        if not store.agents(tree)
    ]
    return missing or list(_compared(one, other))


def rows_of(store: Reader, tree_id: str) -> Rows:
    """Read all rows of a tree that are compared, by agent and table, each as its columns that count."""
    found: Rows = {}
    for each in export(store, tree_id):
        table = each["table"]
        if table in LEFT_OUT_TABLES:
            continue
        row = {name: _read(table, name, value, tree_id) for name, value in each["row"].items()}
        path = row.get("run_id") or row.get("parent_run_id") or "root"
        counted = {name: value for name, value in row.items() if _counts(table, name)}
        if counted.get("event", {}).get("kind") not in SHARED_EVENTS:
            found.setdefault((path, table), []).append(counted)
    return found


def _counts(table: str, column: str) -> bool:
    if column in OTHER_IDS or column == "at" or column.endswith(TIMES):
        return False
    return (table, column) not in LEFT_OUT


def _read(table: str, column: str, value: Any, tree_id: str) -> Any:
    if column in AGENT_IDS and isinstance(value, str):
        return f"root{value.removeprefix(tree_id)}" if value.startswith(tree_id) else value
    without = JSON_COLUMNS.get((table, column))
    if without is None or value is None:
        return value
    return _without(json.loads(value), without)


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, names) for key, inner in value.items() if key not in names}
    return [_without(inner, names) for inner in value] if isinstance(value, list) else value


# ── comparing ───────────────────────────────────────────────────────────────


def _compared(one: Rows, other: Rows) -> Iterator[str]:
    for path, table in sorted(one.keys() | other.keys()):
        mine, theirs = one.get((path, table), []), other.get((path, table), [])
        if len(mine) != len(theirs):
            yield f"{path}: {len(mine)} rows of {table} in the first, {len(theirs)} in the second"
        for number, (row, twin) in enumerate(zip(mine, theirs, strict=False), 1):
            for column in sorted(row.keys() | twin.keys()):
                if row.get(column) != twin.get(column):
                    yield f"{path}: {table} {number}, {column}: {_both(row.get(column), twin.get(column))}"


def _both(one: Any, other: Any) -> str:
    """Show two values from a little before the place where they part."""
    pairs = zip(_text(one), _text(other), strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), 0)
    begin = max(same - AROUND, 0)
    return f"{_part(one, begin)} and {_part(other, begin)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _part(value: Any, begin: int) -> str:
    text = _text(value)
    shown = text[begin : begin + MOST_SHOWN]
    # No value is not the word for it.
    quoted = repr(shown) if isinstance(value, str) else shown
    return f"{'...' if begin else ''}{quoted}{'...' if begin + MOST_SHOWN < len(text) else ''}"
