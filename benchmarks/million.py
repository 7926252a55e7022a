"""1,000,000 live agents in one process, and what one of them costs as their number grows. Minutes; only when named.

Contained leaves of one `open_tree` under one root, all waiting. Each size is
measured in a process of its own, so that no memory of a former one is used
again; the raw arm has as many tasks with a scope each, asleep in one nursery.

The garbage collector: both arms set `RARE` before they begin, because each
collection of an older generation walks millions of live objects. An application
with very many live agents would do the same; the library never touches it.
"""

import gc
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from benchmarks.harness import Figure, Gate, begin, cpu, per_operation, resident_bytes

GIB = 1 << 30
# Young objects are looked at once for each 100,000 new ones, and what survives that practically never again.
RARE = (100_000, 1_000, 1_000)
# Sizes with the rounds of each; a million takes a minute, and is alone in its process.
SIZES = {10_000: 5, 100_000: 3, 1_000_000: 1}
QUICK = {2_000: 1, 20_000: 1}


@attrs.frozen
class Run:
    """One arm at one size: CPU seconds, bytes, and what was left afterwards."""

    spawn: float
    stop: float
    resident: int
    peak: int
    leaks: int = 0


async def _idle(agent: Agent) -> None:
    async with agent.waiting():
        await trio.sleep_forever()


async def _agents(n: int) -> Run:
    before = resident_bytes()
    tree = open_tree(Containment(n + 1, n + 1, 1, UNLIMITED), cleanup_allowance=3600.0)

    async def root(agent: Agent) -> None:
        for _ in range(n):
            await agent.spawn(_idle)
        await _idle(agent)

    async with tree, trio.open_nursery() as nursery:
        began = begin()
        nursery.start_soon(tree.run_root, root, ())
        while tree.slots.total().waiting < n + 1:
            await trio.lowlevel.checkpoint()
        spawned = cpu() - began
        resident = resident_bytes() - before
        began = cpu()
        receipt = await tree.halt(reason="measured")
        stopped = cpu() - began
    assert receipt.complete and len(receipt.stopped) == n + 1 and tree.ledger.agents == n + 1
    # The root first among those that are left: leaf first means that it left last.
    assert receipt.stopped[-1].path == "root"
    left = tree.leaks()
    leaks = len(left.tasks) + len(left.slots) + len(left.reservations) + len(left.processes)
    return Run(spawned, stopped, resident, _peak(), leaks)


async def _tasks(n: int) -> Run:
    before = resident_bytes()
    scopes: list[trio.CancelScope] = []
    live = 0
    over = trio.Event()

    async def plain() -> None:
        nonlocal live
        with trio.CancelScope() as scope:
            scopes.append(scope)
            live += 1
            await trio.sleep_forever()
        live -= 1
        if not live:
            over.set()

    async with trio.open_nursery() as nursery:
        began = begin()
        for number in range(n):
            nursery.start_soon(plain)
            if not number % 64:
                await trio.lowlevel.checkpoint()
        while live < n:
            await trio.lowlevel.checkpoint()
        spawned = cpu() - began
        resident = resident_bytes() - before
        began = cpu()
        for scope in reversed(scopes):
            scope.cancel()
        await over.wait()
        stopped = cpu() - began
    return Run(spawned, stopped, resident, _peak())


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


ARMS: Final[dict[str, Callable[[int], Awaitable[Run]]]] = {"agents": _agents, "tasks": _tasks}


def _alone(arm: str, n: int) -> Run:
    """Run an arm in a fresh process. A pool of `multiprocessing` would leave a helper of its own in this one."""
    command = [sys.executable, "-m", "benchmarks.million", arm, str(n)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True)
    return Run(**json.loads(done.stdout))


def _measure(arm: str, n: int, rounds: int) -> Run:
    """Run an arm in fresh processes; give the median of each number, and the worst of peak and leaks."""
    runs = [_alone(arm, n) for _ in range(rounds)]
    middle = partial(_middle, runs)
    return Run(
        middle("spawn"),
        middle("stop"),
        int(middle("resident")),
        max(run.peak for run in runs),
        max(run.leaks for run in runs),
    )


def _middle(runs: list[Run], name: str) -> float:
    return statistics.median(getattr(run, name) for run in runs)


def _growth(name: str, small: int, large: int, runs: dict[int, Run], gate: Gate | None) -> Iterator[Figure]:
    """Compare what one of many costs with what one of few does."""
    cost = {n: (runs[n].spawn + runs[n].stop) / n * 1e6 for n in (small, large)}
    method = f"CPU of spawn and halt of one, {large:,} alive; baseline: {small:,} alive"
    yield Figure(f"{name}_cost_growth", cost[large], "us", cost[small], cost[large] / cost[small], large, method, gate)
    held = {n: runs[n].resident / n for n in (small, large)}
    method = f"resident memory of one, {large:,} alive; baseline: {small:,} alive"
    ratio = held[large] / held[small]
    yield Figure(f"{name}_rss_growth", held[large], "bytes", held[small], ratio, large, method, gate)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure both arms at each size, then compare the largest with the smallest."""
    sizes = QUICK if quick else SIZES
    agents: dict[int, Run] = {}
    tasks: dict[int, Run] = {}
    settings = f"gc.set_threshold{RARE} in both arms; a process for each"
    for n, rounds in sizes.items():
        ours, raw = agents[n], tasks[n] = _measure("agents", n, rounds), _measure("tasks", n, rounds)
        method = f"leaf agents until all wait; baseline: tasks with a scope each, asleep; {settings}"
        yield per_operation(f"million_spawn_{n}", ours.spawn, raw.spawn, n, method)
        held, bare = ours.resident / n, raw.resident / n
        yield Figure(f"million_rss_{n}", held, "bytes", bare, held / bare, n, f"resident memory; {method}")
        method = f"tree.halt, leaf first, until its receipt; baseline: leaf-first cancel of the tasks; {settings}"
        yield per_operation(f"million_halt_{n}", ours.stop, raw.stop, n, method)
    small, large = min(sizes), max(sizes)
    yield from _growth("million", small, large, agents, Gate("ratio", "<=", 1.5))
    yield from _growth("million_raw", small, large, tasks, None)
    most = agents[large]
    peak, bare = most.peak / GIB, tasks[large].peak / GIB
    method = f"highest resident memory of the process, the halt and its receipt included; {settings}"
    yield Figure("million_peak", peak, "GiB", bare, peak / bare, large, method, Gate("value", "<=", 10.0))
    leaks = max(run.leaks for run in agents.values())
    method = "tasks, slots, reservations and processes in tree.leaks() after the halt, all sizes"
    yield Figure("million_leaks", leaks, "entries", None, None, large, method, Gate("value", "==", 0))


if __name__ == "__main__":
    gc.set_threshold(*RARE)
    print(json.dumps(attrs.asdict(trio.run(ARMS[sys.argv[1]], int(sys.argv[2])))))
