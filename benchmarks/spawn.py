"""Spawn, run and end of contained leaves, beside raw trio's task with a nursery of its own.

A leaf is at max depth, registers with the ledger, takes a slot and has its end
recorded; the raw child opens a nursery, and its end is awaited too.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from actors.agents.agent import Agent
from actors.agents.ports import RunStore
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.store.store import Store
from benchmarks.harness import Arm, Figure, Gate, cpu, interleave, per_operation, rounds_of

GATE = Gate("ratio", "<=", 2.0)

InTree = Callable[[Agent, int], Awaitable[None]]
InNursery = Callable[[trio.Nursery, int], Awaitable[None]]


async def _leaf(_agent: Agent, number: int) -> int:
    return number


class _Shell:
    """A raw task's end: a slot for its value, and an event."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.value = -1

    async def run(self, number: int) -> None:
        async with trio.open_nursery():
            self.value = number
        self.ended.set()


async def _spawn_one(agent: Agent, n: int) -> None:
    for number in range(n):
        child = await agent.spawn(_leaf, number)
        assert await child.result() == number


async def _spawn_fan(agent: Agent, n: int) -> None:
    children = [await agent.spawn(_leaf, number) for number in range(n)]
    for number, child in enumerate(children):
        assert await child.result() == number


async def _raw_one(nursery: trio.Nursery, n: int) -> None:
    for number in range(n):
        shell = _Shell()
        nursery.start_soon(shell.run, number)
        await shell.ended.wait()
        assert shell.value == number


async def _raw_fan(nursery: trio.Nursery, n: int) -> None:
    shells = [_Shell() for _ in range(n)]
    for number, shell in enumerate(shells):
        nursery.start_soon(shell.run, number)
    for number, shell in enumerate(shells):
        await shell.ended.wait()
        assert shell.value == number


async def _in_tree(form: InTree, n: int, store: RunStore | None = None) -> float:
    limits = Containment(n + 1, 64, 1, UNLIMITED)
    async with open_tree(limits, store=store) as tree:

        async def root(agent: Agent) -> float:
            began = cpu()
            await form(agent, n)
            if store is not None:
                # What is left for the writer's thread belongs to the bill.
                await store.commit()
            return cpu() - began

        return await tree.run(root)


async def _in_file(form: InTree, n: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with Store.open(Path(folder) / "runs.db") as store:
            return await _in_tree(form, n, store)


async def _in_nursery(form: InNursery, n: int) -> float:
    async with trio.open_nursery() as nursery:
        began = cpu()
        await form(nursery, n)
        return cpu() - began


def figures(quick: bool) -> Iterator[Figure]:
    """Measure both forms, each without a store and with a file."""
    forms = (
        ("spawn_one", 200 if quick else 2000, _spawn_one, _raw_one, "one after another"),
        ("spawn_fan", 200 if quick else 1000, _spawn_fan, _raw_fan, "all spawned, then all results awaited"),
    )
    for name, n, ours, raw, how in forms:
        arms: list[Arm] = [partial(_in_tree, ours, n), partial(_in_nursery, raw, n), partial(_in_file, ours, n)]
        plain, bare, filed = interleave(rounds_of(quick), *arms)
        method = f"{how}; contained leaves against raw trio tasks with a nursery each, ends awaited"
        yield per_operation(name, plain, bare, n, method, GATE)
        yield per_operation(f"{name}_file_store", filed, bare, n, f"{method}; recorded in a file, writer included")
