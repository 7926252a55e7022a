"""Everything that a file holds of one tree, as plain objects, for a person who has only the file.

One object for each row, table by table as `schema.py` lists them; within a table
agent by agent in the order in which they were written, and each agent's rows by
their key. The same file gives the same lines. Of a live tree each page is as it
stood when it was read: a tree that goes on is whole only once it has ended.
"""

from collections.abc import Iterator
from typing import Any

from actors.store.readers import Reader
from actors.store.schema import TABLES
from actors.store.tree_rows import TreeRows


def export(reader: Reader, tree_id: str) -> Iterator[dict[str, Any]]:
    """Give each row of a tree as ``{"table": name, "row": {column: value}}``.

    Raises:
        StoreError: the file cannot be read.
    """
    rows = TreeRows(reader, tree_id)
    for table in TABLES:
        names = tuple(name for name in table.columns if name in reader.columns(table.name))
        for values in rows.of_tree(table.name, names):
            yield {"table": table.name, "row": dict(zip(names, values, strict=True))}
