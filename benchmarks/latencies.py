"""How soon a supervisor answers while 1,000 children work, and how soon 1,000 actors see a halt. Wall time.

A child works as an agent does: it waits 0.1 s for something outside, then
computes for about 20 us. A thousand of them keep the loop busy with some
10,000 turns a second; what is measured is how long a request lies behind them.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import trio
import trio.testing

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, Flags
from benchmarks.harness import Figure, Gate, interleave, rounds_of

WAIT = 0.1
# Between two requests, so that each meets another moment of the loop.
PAUSE = 0.0017
wall = time.perf_counter


async def _working(number: int) -> None:
    # Not all in the same step: spread over the first wait.
    await trio.sleep(WAIT * (number % 97) / 97)
    while True:
        await trio.sleep(WAIT)
        sum(range(700))


async def _latencies(times: int, ask: Callable[[], Awaitable[Any]]) -> list[float]:
    await trio.sleep(2 * WAIT)
    seen = []
    for _ in range(times):
        await trio.sleep(PAUSE)
        began = wall()
        await ask()
        seen.append(wall() - began)
    return seen


def _p99(seen: list[float]) -> float:
    return statistics.quantiles(seen, n=100)[98]


async def _admin(children: int, times: int, request: str, of: Callable[[list[float]], float]) -> float:
    async with open_supervisor((), Flags(dynamic=True), cleanup_allowance=60.0) as top:
        for number in range(children):
            answer = await top.start_child(ChildSpec("w", _working, (number,), restart=Restart.temporary))
        asks: dict[str, Callable[[], Awaitable[Any]]] = {
            "which": partial(top.which_child, answer.ref),
            "count": top.count_children,
        }
        seen = await _latencies(times, asks[request])
        assert (await top.count_children()).active == children
    return of(seen)


async def _raw_admin(children: int, times: int, of: Callable[[list[float]], float]) -> float:
    requests, to_do = trio.open_memory_channel[int](0)
    answers, answered = trio.open_memory_channel[int](0)

    async def server() -> None:
        async for number in to_do:
            await answers.send(number)

    async def ask() -> None:
        await requests.send(1)
        await answered.receive()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server)
        for number in range(children):
            nursery.start_soon(_working, number)
        seen = await _latencies(times, ask)
        nursery.cancel_scope.cancel()
    return of(seen)


class _Witness:
    """When the last of many saw its cancel, counted from the order."""

    def __init__(self) -> None:
        self.live = 0
        self.last = 0.0

    async def wait(self) -> None:
        self.live += 1
        try:
            await trio.sleep_forever()
        finally:
            self.live -= 1
            self.last = wall()

    async def wait_as_agent(self, agent: Agent) -> None:
        async with agent.waiting():
            await self.wait()


async def _halt_supervised(n: int) -> float:
    """Cancel the scope around the tree, as an embedder or Ctrl-C does."""
    witness = _Witness()
    with trio.CancelScope() as outer:
        async with open_supervisor((), Flags(dynamic=True), cleanup_allowance=60.0) as top:
            for _ in range(n):
                await top.start_child(ChildSpec("w", witness.wait, restart=Restart.temporary))
            await trio.testing.wait_all_tasks_blocked()
            assert witness.live == n
            began = wall()
            outer.cancel()
            await trio.sleep_forever()
    assert not witness.live
    return witness.last - began


async def _halt_agents(n: int) -> float:
    witness = _Witness()

    async def root(agent: Agent) -> None:
        for _ in range(n):
            await agent.spawn(witness.wait_as_agent)
        await witness.wait()

    async with open_tree(Containment(n + 1, n + 1, 1, UNLIMITED), cleanup_allowance=60.0) as tree:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.run_root, root, ())
            await trio.testing.wait_all_tasks_blocked()
            assert witness.live == n + 1
            began = wall()
            tree.halt_nowait(reason="measured")
    assert not witness.live
    return witness.last - began


async def _halt_raw(n: int) -> float:
    witness = _Witness()
    async with trio.open_nursery() as nursery:
        for _ in range(n):
            nursery.start_soon(witness.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert witness.live == n
        began = wall()
        nursery.cancel_scope.cancel()
    return witness.last - began


def _answers(quick: bool) -> Iterator[Figure]:
    children, times = (100, 50) if quick else (1_000, 500)
    of: dict[str, Callable[[list[float]], float]] = {"median": statistics.median, "p99": _p99}
    for word, pick in of.items():
        which, count, raw = interleave(
            1 if quick else rounds_of(quick),
            partial(_admin, children, times, "which", pick),
            partial(_admin, children, times, "count", pick),
            partial(_raw_admin, children, times, pick),
        )
        method = f"{word} of {times} requests, wall, while {children} children work; baseline: call and reply, channels"
        for name, value in (("which_child", which), ("count_children", count)):
            gate = Gate("value", "<=", 1.0)
            yield Figure(f"admin_{name}_{word}", value * 1e3, "ms", raw * 1e3, value / raw, times, method, gate)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure answers and halts; their gates are aims."""
    yield from _answers(quick)
    n = 200 if quick else 1_000
    supervised, agents, raw = interleave(
        rounds_of(quick), partial(_halt_supervised, n), partial(_halt_agents, n), partial(_halt_raw, n)
    )
    gate = Gate("value", "<=", 50.0)
    method = "wall from the halt until the last has seen it; baseline: cancel of one scope over plain tasks"
    for name, value in (("supervised", supervised), ("agents", agents)):
        yield Figure(f"halt_seen_{name}", value * 1e3, "ms", raw * 1e3, value / raw, n, method, gate)
