"""Trees of plain functions, recorded."""

from typing import Literal

from actors.agents.ports import Observer, RunStore
from actors.agents.tree import Tree
from actors.agents.tree import open_tree as _open_tree
from actors.containment.limits import Containment
from actors.containment.lines import QueueOrder
from actors.store.store import Store


def open_tree(
    limits: Containment,
    *,
    store: RunStore | None = None,
    observer: Observer | None = None,
    cleanup_allowance: float = 5.0,
    queue_order: QueueOrder | Literal["fifo", "fair"] = QueueOrder.fifo,
) -> Tree:
    """Open a tree of plain functions under ``limits``. Use it as ``async with open_tree(limits) as tree``.

    ``store`` is a `Store`; without one the tree is recorded in memory.
    ``cleanup_allowance`` is in seconds: how long everything together may take to
    close its accounts once it is halted. ``queue_order`` says who gets a slot next
    of those that have never started: the first that was spawned, or parents in turn.
    """
    return _open_tree(
        limits,
        store=Store.memory() if store is None else store,
        observer=observer,
        cleanup_allowance=cleanup_allowance,
        queue_order=queue_order,
    )
