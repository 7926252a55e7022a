"""How long equal leaves take under idle parents, beside ceil(leaves / cap) times their length.

What it shows is that a parent that waits costs nobody a slot, and that no slot
lies idle while somebody stands in line.
"""

from collections.abc import Iterator
from functools import partial

import trio
import trio.testing

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from benchmarks.harness import Figure, Gate, interleave, rounds_of

PARENTS = 8
# By cap: leaves and seconds for each. With 64 at once the loop's own work must stay small beside the sleeping.
REAL = {1: (32, 0.02), 4: (96, 0.02), 64: (640, 0.1)}
QUICK = {1: (8, 0.02), 4: (16, 0.02), 64: (64, 0.05)}


async def _leaf(_agent: Agent, seconds: float) -> None:
    await trio.sleep(seconds)


async def _parent(agent: Agent, leaves: int, seconds: float) -> None:
    children = [await agent.spawn(_leaf, seconds) for _ in range(leaves)]
    for child in children:
        await child.result()


async def _root(agent: Agent, leaves: int, seconds: float) -> None:
    parents = [await agent.spawn(_parent, leaves // PARENTS, seconds) for _ in range(PARENTS)]
    for parent in parents:
        await parent.result()


async def _makespan(cap: int, leaves: int, seconds: float) -> float:
    async with open_tree(Containment(leaves + PARENTS + 1, cap, 2, UNLIMITED)) as tree:
        began = trio.current_time()
        await tree.run(_root, leaves, seconds)
        spent = trio.current_time() - began
    assert tree.slots.peak_working <= cap
    return spent


def figures(quick: bool) -> Iterator[Figure]:
    """Measure at cap 1, 4 and 64, on the real clock and on the mock clock."""
    for cap, (leaves, seconds) in (QUICK if quick else REAL).items():
        least = -(-leaves // cap) * seconds
        work = partial(_makespan, cap, leaves, seconds)
        [real] = interleave(1 if quick else rounds_of(quick), work)
        method = f"{leaves} leaves of {seconds * 1000:g} ms under {PARENTS} idle parents; baseline: ceil(leaves / cap)"
        gate = Gate("ratio", "<=", 1.05)
        yield Figure(f"slots_cap_{cap}", real, "s", least, real / least, leaves, f"{method} x length, wall time", gate)
        mock = trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))
        # Sums of floats, so the last digits are noise.
        ratio = round(mock / least, 9)
        exact = Gate("ratio", "==", 1.0)
        yield Figure(f"slots_cap_{cap}_mock", mock, "s", least, ratio, leaves, f"{method} x length, MockClock", exact)
