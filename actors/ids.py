"""Names that stay put: run ids and the paths of agents.

A path says where an agent hangs in its tree: ``root``, ``root/3.1`` (the first
spawn call of the root's third step) or, for plain functions, ``root/7`` (the
seventh spawn). It is made from durable facts only, so the same run has the
same paths when it is replayed; a prompt may show it. A run id may not.
"""

import secrets
from typing import Final

ROOT: Final = "root"
_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"


def new_run_id() -> str:
    """Make a short random run id: 10 characters without look-alikes, about 49 bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(10))


def child_path(parent: str, ordinal: str) -> str:
    """Name the child that ``parent`` made as its ``ordinal`` (``"3.1"``, or ``"7"`` for a plain spawn)."""
    return f"{parent}/{ordinal}"


def agent_run_id(tree: str, path: str) -> str:
    """Give the run id of one agent of a tree; the root's is the tree's own id."""
    return tree if path == ROOT else tree + path[len(ROOT) :]


def depth_of(path: str) -> int:
    """Count how deep a path lies; the root is at depth 0."""
    return path.count("/")
