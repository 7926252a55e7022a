"""All rows of one tree, read page by page: as much memory for a million rows as for a thousand.

A file that only an older version wrote may lack tables and columns, and a reader
adds none: what is not there reads as if nothing had been written to it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from actors.store.readers import Reader
from actors.store.schema import TABLES, Table

PAGE: Final = 500
# Below every whole number that SQLite keeps, and below every text.
LOWEST: Final = -(2**63)

BY_NAME: Final = {table.name: table for table in TABLES}

_TREE: Final = "tree_id"
_AGENT: Final = ("run_id", "parent_run_id")

Row = tuple[Any, ...]


class TreeRows:
    """The rows of one tree in one store."""

    def __init__(self, reader: Reader, tree_id: str) -> None:
        self.reader = reader
        self.tree_id = tree_id
        self._queries: dict[tuple[str, tuple[str, ...]], tuple[str, int]] = {}

    def has(self, table: str) -> bool:
        """Tell whether the file has a table."""
        return bool(self.reader.columns(table))

    def run_ids(self) -> Iterator[str]:
        """Give the run ids of the agents, in the order of writing."""
        for row in self.of_tree("runs", ("run_id",)):
            yield row[0]

    def of_tree(self, table: str, names: tuple[str, ...]) -> Iterator[Row]:
        """Give some columns of all rows of a table, agent by agent in the order of writing; what is missing is None."""
        if _owner(BY_NAME[table]) == _TREE:
            yield from self._paged(table, names, self.tree_id)
        else:
            for run_id in self.run_ids():
                yield from self._paged(table, names, run_id)

    def of_agent(self, table: str, names: tuple[str, ...], run_id: str) -> Iterator[Row]:
        """Give some columns of one agent's rows, by their key; what is missing is None."""
        assert _owner(BY_NAME[table]) != _TREE, f"the rows of {table} belong to the whole tree"
        return self._paged(table, names, run_id)

    def _paged(self, table: str, names: tuple[str, ...], whose: str) -> Iterator[Row]:
        if not self.has(table):
            return
        sql, keys = self._query(table, names)
        wide = len(names)
        after: Row = (LOWEST,) * keys
        while True:
            page = self.reader.select(sql, (whose, *after))
            for row in page:
                yield row[:wide]
            if len(page) < PAGE:
                return
            after = page[-1][wide:]

    def _query(self, table: str, names: tuple[str, ...]) -> tuple[str, int]:
        """Give the query for one page, and by how many columns it is ordered."""
        found = self._queries.get((table, names))
        if found is None:
            shape, have = BY_NAME[table], self.reader.columns(table)
            keys = _order(shape)
            chosen = ", ".join(f'"{name}"' if name in have else "NULL" for name in names)
            order, marks = ", ".join(keys), ", ".join("?" for _ in keys)
            sql = (
                f"SELECT {chosen}, {order} FROM {table} WHERE {_owner(shape)} = ?"
                f" AND ({order}) > ({marks}) ORDER BY {order} LIMIT {PAGE}"
            )
            found = self._queries[table, names] = (sql, len(keys))
        return found


def _owner(table: Table) -> str:
    """Name the column that says to whom a row belongs: to the tree, or else to one agent."""
    return next(name for name in (_TREE, *_AGENT) if name in table.columns)


def _order(table: Table) -> tuple[str, ...]:
    """Name the columns that put the rows of one owner in order, so that an index serves them."""
    if table.key == ("id",):
        return table.key
    rest = tuple(name for name in table.key if name != _owner(table))
    # A key that does not begin with the owner is in no index behind it; every index ends in the row's number.
    return rest if rest and rest != table.key else ("rowid",)


@contextmanager
def one_moment(reader: Reader) -> Iterator[None]:
    """Read everything as it stood at one moment, although a run goes on; the block must not wait for anybody."""
    reader.select("BEGIN")
    try:
        yield
    finally:
        reader.select("COMMIT")
