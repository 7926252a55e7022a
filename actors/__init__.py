"""Trees of agents on trio, under one containment boundary that nobody inside the tree can raise.

Start with `open_tree` for plain async functions, or `run_tree` for a task
contract against a model. Names are loaded when they are first used, so that
importing `actors.runtime` alone loads neither httpx nor sqlite3.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Containment": "actors.containment.limits",
    "Ledger": "actors.containment.ledger",
    "LedgerState": "actors.containment.ledger_state",
    "open_ledger": "actors.containment.ledger",
    "Draw": "actors.containment.ledger_state",
    "Usage": "actors.containment.usage",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'actors' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
