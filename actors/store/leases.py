"""Who may drive a tree, and which rows may be written for it. Pure.

A lease is one row for each tree. Whoever drives the tree holds it, and each
transaction looks whether the row still carries the name and the generation of
whoever writes: so a driver that was stopped for a while, and whose tree was
taken meanwhile, writes nothing when it wakes up.

That pair never comes back. The name is a new one for each opened store, and
the generation only grows: a release empties the name and keeps the row, so the
next taker counts on from it.

All is judged by the age of the last renewal on the database's clock. When that
clock is put forward by more than the lease's seconds, a healthy driver can be
taken over: it is fenced, its tree stops as ``lease_lost``, nothing is done
twice in the store. When it is put back, ages would be negative and count as
nought: a driver that hangs keeps its lease longer, by the jump. An owner that
is seen to be dead needs no clock.

A driver that is stopped in the middle of a transaction holds the lock of the
file, so nobody can take anything before it goes on or is killed. When it goes
on, that transaction stands: nobody came between.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from actors.agents.rows import Row
from actors.store.row_codec import WRITES

DEFAULT_TTL_SECONDS: Final = 30.0
# The first of these that a row has says which tree it belongs to.
_PLACES: Final = ("tree_id", "run_id", "parent_run_id", "request_id")


@attrs.frozen
class Owner:
    """One opened store in one process.

    ``name`` is unique to it. ``host`` is the machine, its boot and its process
    namespace, because a process id means something only within these.
    ``started`` is when the process started, in whatever words the system has;
    None when it cannot be known.
    """

    name: str
    host: str
    pid: int
    started: str | None = None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.split('/', 1)[0]}"


@attrs.frozen
class Sight:
    """What was seen of a process: whether it lives, and when it started if that can be known."""

    alive: bool
    started: str | None = None


@attrs.frozen
class Lease:
    """A row of ``run_leases``. ``owner`` is None when it was released; ``age_seconds`` is since the last renewal."""

    tree_id: str
    owner: Owner | None
    generation: int
    age_seconds: float
    ttl_seconds: float
    expires_at: str

    @property
    def lapsed(self) -> bool:
        """Whether it was not renewed in time."""
        return max(self.age_seconds, 0.0) >= self.ttl_seconds


class Claim(StrEnum):
    """How a lease stands to somebody who wants it. Only ``held`` is a refusal."""

    free = "free"
    ours = "ours"
    lapsed = "lapsed"
    dead = "dead"
    held = "held"


def judge(lease: Lease | None, us: Owner, *, dead: bool) -> Claim:
    """Decide whether ``us`` may take a lease; ``dead`` says that its owner is known to be gone."""
    if lease is None or lease.owner is None:
        return Claim.free
    if lease.owner.name == us.name:
        return Claim.ours
    if dead:
        return Claim.dead
    return Claim.lapsed if lease.lapsed else Claim.held


def next_generation(lease: Lease | None, claim: Claim) -> int:
    """Count on from what stands; only the owner itself keeps its generation."""
    if lease is None:
        return 1
    return lease.generation if claim is Claim.ours else lease.generation + 1


def carries(lease: Lease | None, us: Owner, generation: int) -> bool:
    """Tell whether a row still carries our name and generation: what makes a write ours to make."""
    return (
        lease is not None and lease.owner is not None and lease.owner.name == us.name and lease.generation == generation
    )


def same_process(owner: Owner, us: Owner) -> bool:
    """Tell whether a lease belongs to another store of this very process."""
    return (owner.host, owner.pid, owner.started) == (us.host, us.pid, us.started)


def gone(owner: Owner, us: Owner, sight: Sight | None) -> bool:
    """Tell whether the process of ``owner`` is known to have ended; what is not known counts as alive.

    ``sight`` is what is seen under its process id, None when nothing can be seen.
    """
    if sight is None or owner.host != us.host:
        return False
    if not sight.alive:
        return True
    # The same number, given to a later process.
    return None not in (owner.started, sight.started) and owner.started != sight.started


# ── whose row is it ─────────────────────────────────────────────────────────


def _place(row: type) -> str:
    names = {field.name for field in attrs.fields(row)}
    return next(name for name in _PLACES if name in names)


PLACE: Final[Mapping[type, str]] = {row: _place(row) for row in WRITES}


def tree_of(row: Row) -> str:
    """Name the tree of a row: the first part of its run id, or of a question's. Empty for what is no row of ours."""
    place = PLACE.get(type(row))
    if place is None:
        return ""
    text = getattr(row, place)
    # A question of a root has the place of its call behind the id, and no path.
    return text.split("/", 1)[0].split("#", 1)[0] if isinstance(text, str) else ""
