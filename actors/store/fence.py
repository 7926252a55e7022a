"""The leases that one store holds, and the look at them inside each of its transactions.

The look comes first in a transaction that has the write lock already: what it
sees cannot change until the commit. It is one small query, whatever the number
of rows: whose they are matters only to a store that has lost a lease. A store
that holds several looks at them when another connection has written, which is
one query to see.

A tree whose lease was lost is closed to this store. Its rows are left out,
those of other trees are written. That stays so after the lost driver's
`release`, until the store has taken the tree again; before the release it
cannot, or rows of the old driver would pass as the new one's.

All of it belongs to the writer's task.
"""

import json
import logging
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from actors.errors import ConfigError, RunConflict, StoreErrorKind
from actors.store import owners
from actors.store.batch import Item, Order, trees_of
from actors.store.leases import Claim, Lease, Owner, carries, judge, next_generation
from actors.store.row_codec import NOW
from actors.store.storage_errors import Fault

log = logging.getLogger("actors.store")

N = TypeVar("N", int, float)

READ_LEASE: Final = (
    # To the millisecond, as both times are: a difference of days alone falls short by some microseconds.
    "SELECT owner, host, pid, process_started, generation,"
    " round((julianday('now') - julianday(renewed_at)) * 86400, 3),"
    " ttl_seconds, strftime('%Y-%m-%dT%H:%M:%fZ', renewed_at, ttl_seconds || ' seconds')"
    " FROM run_leases WHERE tree_id = ?"
)
_TAKE: Final = (
    "INSERT INTO run_leases"
    " (owner, host, pid, process_started, generation, ttl_seconds, tree_id, acquired_at, renewed_at)"
    f" VALUES (?, ?, ?, ?, ?, ?, ?, {NOW}, {NOW})"
    " ON CONFLICT (tree_id) DO UPDATE SET owner = excluded.owner, host = excluded.host, pid = excluded.pid,"
    " process_started = excluded.process_started, generation = excluded.generation,"
    " ttl_seconds = excluded.ttl_seconds, renewed_at = excluded.renewed_at,"
    " acquired_at = CASE run_leases.owner WHEN excluded.owner THEN run_leases.acquired_at ELSE excluded.acquired_at END"
)
_MINE: Final = " WHERE tree_id = ? AND owner = ? AND generation = ?"
_RENEW: Final = f"UPDATE run_leases SET renewed_at = {NOW}{_MINE}"
# The row stays for its generation.
_RELEASE: Final = f"UPDATE run_leases SET owner = '', host = NULL, pid = NULL, process_started = NULL{_MINE}"
_ONE: Final = f"SELECT 1 FROM run_leases{_MINE}"
_ALL: Final = (
    "SELECT tree_id, generation FROM run_leases WHERE owner = ? AND tree_id IN (SELECT value FROM json_each(?))"
)


class Fence:
    """What one store holds and has lost. ``owner`` is who it is."""

    def __init__(self, owner: Owner, file: str) -> None:
        self.owner = owner
        self._file = file
        self._held: dict[str, int] = {}
        self._lost: dict[str, Fault] = {}
        # Lost ones whose driver here has not released them yet.
        self._undone: set[str] = set()
        # Where the file stood when all leases were looked at.
        self._version: int | None = None

    @property
    def held(self) -> tuple[str, ...]:
        """Name the trees whose leases are held, as far as is known."""
        return tuple(self._held)

    def lost(self, tree_id: str) -> bool:
        """Whether the lease of a tree was held, is not any more, and was not taken again."""
        return tree_id in self._lost

    # ── inside a transaction with rows ──────────────────────────────────────

    def look(self, connection: sqlite3.Connection, items: Sequence[Item]) -> list[tuple[Item, Fault]]:
        """Give the items that may not be written; all others may, in this transaction."""
        if len(self._held) == 1:
            self._look_at_one(connection)
        elif self._held:
            self._look_at_all(connection)
        if not self._lost:
            return []
        refused = []
        for item in items:
            fault = next((self._lost[tree] for tree in trees_of(item) if tree in self._lost), None)
            if fault is not None:
                refused.append((item, fault))
        return refused

    def _look_at_one(self, connection: sqlite3.Connection) -> None:
        ((tree, generation),) = self._held.items()
        if connection.execute(_ONE, (tree, self.owner.name, generation)).fetchone() is None:
            self._lose(connection, tree)

    def _look_at_all(self, connection: sqlite3.Connection) -> None:
        # Moves when another connection has committed, and only then can a lease have been taken.
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        found = dict(connection.execute(_ALL, (self.owner.name, json.dumps(list(self._held)))).fetchall())
        for tree, generation in list(self._held.items()):
            if found.get(tree) != generation:
                self._lose(connection, tree)
        self._version = version

    def _lose(self, connection: sqlite3.Connection, tree: str) -> None:
        """Note a loss. It stands whatever becomes of this transaction: another one has committed it."""
        lease = _read(connection, tree)
        who = "nobody" if lease is None or lease.owner is None else str(lease.owner)
        text = f"the lease of run {tree} was lost to {who}: nothing more of this run is written from here"
        self._held.pop(tree, None)
        self._lost[tree] = Fault(StoreErrorKind.fenced, self._file, text)
        self._undone.add(tree)
        log.error("%s: %s", self._file, text)

    # ── orders ──────────────────────────────────────────────────────────────

    def taking(self, tree_id: str, ttl_seconds: float) -> Order:
        """Order to take a lease."""
        if not 0 < ttl_seconds < float("inf"):
            raise ConfigError(("ttl_seconds", f"must be more than 0 seconds, not {ttl_seconds}: 30 is usual"))
        return Order(
            lambda connection: self._take(connection, tree_id, ttl_seconds),
            lambda generation: self._taken(tree_id, generation),
        )

    def renewing(self, tree_id: str) -> Order:
        """Order to renew a lease."""
        return Order(lambda connection: self._renew(connection, tree_id), lambda generation: None)

    def releasing(self, *tree_ids: str) -> Order:
        """Order to give leases back."""
        return Order(lambda connection: self._release(connection, tree_ids), lambda count: self._released(tree_ids))

    def _take(self, connection: sqlite3.Connection, tree: str, ttl: float) -> int:
        lease = _read(connection, tree)
        us = self.owner
        held = self._held.get(tree)
        if held is not None and not carries(lease, us, held):
            self._lose(connection, tree)
        if tree in self._undone:
            text = f"the lease of run {tree} was lost, and what drove it here has not ended: release it, then take it"
            raise Fault(StoreErrorKind.fenced, self._file, text).error()
        claim = judge(lease, us, dead=lease is not None and self._dead(lease))
        if claim is Claim.held:
            assert lease is not None
            raise RunConflict(tree, str(lease.owner), lease.expires_at)
        generation = next_generation(lease, claim)
        connection.execute(_TAKE, (us.name, us.host, us.pid, us.started, generation, ttl, tree))
        return generation

    def _taken(self, tree: str, generation: int) -> None:
        self._held[tree] = generation
        self._lost.pop(tree, None)

    def _dead(self, lease: Lease) -> bool:
        # Only where it matters: looking may cost a process.
        owner = lease.owner
        return owner is not None and owner.name != self.owner.name and owners.is_dead(owner, self.owner)

    def _renew(self, connection: sqlite3.Connection, tree: str) -> int:
        generation = self._held.get(tree)
        if generation is not None:
            if connection.execute(_RENEW, (tree, self.owner.name, generation)).rowcount:
                return generation
            self._lose(connection, tree)
        fault = self._lost.get(tree)
        if fault is None:
            fault = Fault(StoreErrorKind.fenced, self._file, f"no lease of run {tree} is held here: take it first")
        raise fault.error()

    def _release(self, connection: sqlite3.Connection, trees: Sequence[str]) -> int:
        for tree in trees:
            generation = self._held.get(tree)
            if generation is None:
                continue
            if not connection.execute(_RELEASE, (tree, self.owner.name, generation)).rowcount:
                # Rows that come later must not pass as those of a tree that nobody ever took.
                self._lose(connection, tree)
        return len(trees)

    def _released(self, trees: Sequence[str]) -> None:
        for tree in trees:
            self._held.pop(tree, None)
            self._undone.discard(tree)


def _read(connection: sqlite3.Connection, tree: str) -> Lease | None:
    row: tuple[Any, ...] | None = connection.execute(READ_LEASE, (tree,)).fetchone()
    return None if row is None else lease_of(tree, row)


def lease_of(tree: str, row: tuple[Any, ...]) -> Lease:
    """Give the lease of a tree from what `READ_LEASE` finds."""
    name, host, pid, started, generation, age, ttl, expires = row
    # What nobody can read is no reason to keep a tree for ever: without a process id only time tells, and without a
    # time it has run out.
    owner = Owner(str(name), str(host or ""), _number(pid, 0), started) if name else None
    age, ttl = _number(age, float("inf")), _number(ttl, 0.0)
    return Lease(tree, owner, _number(generation, 0), age, ttl, expires or "an unknown time")


def _number(value: Any, otherwise: N) -> N:
    return value if type(value) in (int, type(otherwise)) else otherwise
