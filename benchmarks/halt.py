"""Ordered stop of many live agents, beside leaf-first stops written by hand in raw trio."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio

from actors.agents.agent import Agent
from actors.agents.tree import Tree, open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.halts import HaltKind
from benchmarks.harness import Figure, Gate, begin, cpu, interleave, per_operation, rounds_of
from benchmarks.raw_stops import stop_chain, stop_wide


async def _idle(agent: Agent) -> None:
    async with agent.waiting():
        await trio.sleep_forever()


async def _stop(tree: Tree, root: Callable[[Agent], Awaitable[None]], live: int) -> float:
    """Run ``root`` until so many agents wait, then stop the tree and give the CPU seconds of it."""
    async with tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.run_root, root, ())
        while tree.slots.total().waiting < live:
            await trio.lowlevel.checkpoint()
        began = begin()
        receipt = await tree.halt(HaltKind.cancel, reason="measured")
        spent = cpu() - began
    assert receipt.complete and len(receipt.stopped) == live
    return spent


async def _wide(n: int) -> float:
    async def root(agent: Agent) -> None:
        for _ in range(n):
            await agent.spawn(_idle)
        await _idle(agent)

    return await _stop(open_tree(Containment(n + 1, n + 1, 1, UNLIMITED), cleanup_allowance=60), root, n + 1)


async def _deep(n: int) -> float:
    async def node(agent: Agent) -> None:
        if agent.depth < n - 1:
            child = await agent.spawn(node)
            await child.result()
        else:
            await _idle(agent)

    return await _stop(open_tree(Containment(n, n, n, UNLIMITED), cleanup_allowance=60), node, n)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure a wide tree and a chain."""
    rounds = rounds_of(quick)
    n = 500 if quick else 10_000
    ours, raw = interleave(rounds, partial(_wide, n), partial(stop_wide, n))
    method = "tree.halt of idle leaves, ends recorded, until its receipt; baseline: leaf-first stop of plain tasks"
    yield per_operation("halt_wide", ours, raw, n, f"{method} with a scope each, one nursery", Gate("ratio", "<=", 2.4))
    n = 200 if quick else 2_000
    ours, raw = interleave(rounds, partial(_deep, n), partial(stop_chain, n))
    method = "tree.halt of a chain until its receipt; baseline: leaf-first stop of nested nurseries"
    yield per_operation("halt_chain", ours, raw, n, f"{method} with a scope each", Gate("ratio", "<=", 2.5))
