"""What a run changed in files, as its store tells it: for each step, and summed up."""

from __future__ import annotations

from typing import Any, Final

import attrs

from actors.assembly.agent_usage import OF_TREE
from actors.store.readers import Reader

PATH_CHARS: Final = 500
# Files of one step that are named.
MOST: Final = 100


@attrs.frozen
class EditedFile:
    """A file that a call changed, and by how many lines; None is not known."""

    path: str
    added: int | None
    removed: int | None


def edited_in(reader: Reader, run_id: str, step: int) -> list[EditedFile]:
    """List the files that the calls of one step changed, in call order; none of a file that an older version wrote."""
    if not reader.columns("edits"):
        return []
    sql = f"SELECT substr(path, 1, {PATH_CHARS}), lines_added, lines_removed FROM edits WHERE run_id = ? AND step = ?"
    return [EditedFile(*row) for row in reader.select(f"{sql} ORDER BY ordinal, rowid LIMIT {MOST}", [run_id, step])]


def edit_sums(reader: Reader, tree_id: str) -> dict[str, Any] | None:
    """Sum up what the agents of a tree changed by their tools for files; None where nothing tells.

    What commands changed is not among it. A file that is changed twice, or by two agents in work trees of their
    own, counts for each root once.
    """
    if not reader.columns("edits"):
        return None
    files = "SELECT DISTINCT r.root, e.path FROM edits e JOIN runs r USING (run_id) WHERE r.tree_id = ?"
    sums = f"SELECT count(*), sum(lines_added), sum(lines_removed) FROM edits WHERE {OF_TREE}"
    [(count,)] = reader.select(f"SELECT count(*) FROM ({files})", [tree_id])
    [(edits, added, removed)] = reader.select(sums, [tree_id])
    return {"files": count, "edits": edits, "lines_added": added or 0, "lines_removed": removed or 0}
