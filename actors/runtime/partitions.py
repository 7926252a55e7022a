"""One kind of supervisor several times, and a key that leads to the same one each time.

    SPEC = ChildSpec("shards", partitioned, (8, lambda number: supervise([], {"dynamic": True})), type="supervisor")

    shards = Partitions((await top.which_child("shards")).ref, 8)
    await (await shards.of(user)).start_child(...)

It spreads the load of starting and stopping, which one loop would serve one
after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from actors.errors import ActorGone, GoneReason
from actors.runtime.specs import ChildSpec, ChildType
from actors.runtime.supervise import Supervise, supervise
from actors.runtime.supervisor_ref import SupervisorRef


def partition_of(key: object, count: int) -> int:
    """Give the number of the partition of a key: whole numbers by their size, others by a hash that never changes.

    What is no number, text or bytes is told apart by its ``repr``, so that should show its value.

    Raises:
        ValueError: there is no partition.
    """
    if count < 1:
        raise ValueError(f"{key!r} has no partition: there are {count}")
    if isinstance(key, int):
        return abs(key) % count
    written = key if isinstance(key, bytes) else (key if isinstance(key, str) else repr(key)).encode()
    return int.from_bytes(hashlib.blake2b(written, digest_size=8).digest(), "big") % count


def partitioned(count: int, make: Callable[[int], Supervise]) -> Supervise:
    """Describe ``count`` supervisors side by side; ``make(number)`` describes each, from 0 on."""
    if type(count) is not int or count < 1:
        raise ValueError(f"count must be a whole number from 1 on, not {count!r}")
    return supervise([ChildSpec(number, make, (number,), type=ChildType.supervisor) for number in range(count)])


class Partitions:
    """The way from a key to its partition. ``count`` is how many are in use now."""

    def __init__(self, supervisor: SupervisorRef, count: int) -> None:
        self._supervisor = supervisor
        self._most = self.count = count

    async def of(self, key: object) -> SupervisorRef:
        """Give the supervisor that the key leads to.

        Cancellation: nothing changed.

        Raises:
            ValueError: no partition is in use.
            ActorGone: it is being restarted just now.
        """
        number = partition_of(key, self.count)
        line = await self._supervisor.which_child(number)
        if line is None or line.ref is None:
            raise ActorGone(GoneReason.restarting, f"{self._supervisor.path}/{number}")
        ref: SupervisorRef = line.ref
        return ref

    async def resize(self, count: int) -> None:
        """Use fewer, or as many again as there were at the start. Those that are not used are stopped.

        Cancellation: keys lead to the new number; some may not be stopped, or started again, yet.

        Raises:
            ValueError: more than at the start, or no number of partitions; nothing changed.
        """
        if type(count) is not int or not 0 <= count <= self._most:
            raise ValueError(f"count must be a whole number from 0 to {self._most}, not {count!r}")
        self.count = count
        for number in range(self._most):
            await self._use(number, number < count)

    async def _use(self, number: int, used: bool) -> Any:
        if used:
            return await self._supervisor.restart_child(number)
        return await self._supervisor.terminate_child(number)
