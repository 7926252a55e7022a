"""Who drives a tree, for somebody who only looks.

The lease says it. Its row outlives a process that was killed, so whoever is
named there is looked for on this machine; on another one only time tells.
"""

import os
from enum import StrEnum

import attrs

from actors.store import owners
from actors.store.fence import READ_LEASE, lease_of
from actors.store.leases import Claim, Owner, judge
from actors.store.readers import Reader


class Driving(StrEnum):
    """How a tree is driven. All but ``live`` and ``unknown`` may be gone on with at once."""

    live = "live"
    # Its process ended without a word, or has not been heard of for longer than its lease lasts.
    gone = "gone"
    # Whoever drove it gave its lease back.
    nobody = "nobody"
    # There never was a lease: an older version wrote it, or no process has begun it.
    unknown = "unknown"


@attrs.frozen
class Driver:
    """How a tree is driven, and by whom; ``who`` is empty when nobody is named."""

    driving: Driving
    who: str = ""


def driver_of(reader: Reader, tree_id: str) -> Driver:
    """Tell who drives a tree, or drove it.

    Raises:
        StoreError: the file cannot be read.
    """
    rows = reader.select(READ_LEASE, (tree_id,)) if reader.columns("run_leases") else []
    if not rows:
        return Driver(Driving.unknown)
    lease = lease_of(tree_id, rows[0])
    if lease.owner is None:
        return Driver(Driving.nobody)
    us = _us()
    held = judge(lease, us, dead=owners.is_dead(lease.owner, us)) is Claim.held
    return Driver(Driving.live if held else Driving.gone, str(lease.owner))


def _us() -> Owner:
    # Without the name of an open store: this process only looks.
    pid = os.getpid()
    sight = owners.look_at(pid)
    return Owner("", owners.this_host(), pid, None if sight is None else sight.started)
