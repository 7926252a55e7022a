"""Bytes for each live idle agent, beside a raw task with a scope and a nursery.

Counted by tracemalloc: every block that Python allocated between the moment
before the first spawn and the moment when all are idle, divided by their number.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import trio

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.halts import HaltKind
from benchmarks.harness import Figure, Gate, bytes_per_shell, interleave, rounds_of

KIB_6 = 6 * 1024
METHOD = "tracemalloc, all blocks from before the first spawn until all are idle; baseline: task, scope, nursery"


async def _idle(agent: Agent) -> None:
    async with agent.waiting():
        await trio.sleep_forever()


async def _agents(n: int, depth: int) -> float:
    async with open_tree(Containment(n + 1, n + 1, depth, UNLIMITED)) as tree:

        async def root(agent: Agent) -> float:
            gc.collect()
            tracemalloc.start()
            for _ in range(n):
                await agent.spawn(_idle)
            while tree.slots.total().waiting < n:
                await trio.lowlevel.checkpoint()
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            measured.append(used / n)
            tree.halt_nowait(HaltKind.cancel, reason="measured")
            await trio.sleep_forever()
            return 0.0

        measured: list[float] = []
        await tree.run_root(root, ())
    return measured[0]


async def _shell(up: Callable[[], None]) -> None:
    """Be what an actor is made of: a task with a scope and a nursery."""
    with trio.CancelScope():
        async with trio.open_nursery():
            up()
            await trio.sleep_forever()


async def _raw(n: int) -> float:
    return await bytes_per_shell(n, _shell)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure leaves, and agents that may have children."""
    n = 500 if quick else 10_000
    # Counts of bytes hardly vary, and a round costs seconds.
    rounds = 1 if quick else rounds_of(quick)
    leaf, parent, raw = interleave(rounds, partial(_agents, n, 1), partial(_agents, n, 2), partial(_raw, n))
    gate = Gate("value", "<=", KIB_6)
    yield Figure("memory_leaf", leaf, "bytes", raw, leaf / raw, n, f"idle leaf agents; {METHOD}", gate)
    yield Figure("memory_parent", parent, "bytes", raw, parent / raw, n, f"idle agents that may spawn; {METHOD}")
