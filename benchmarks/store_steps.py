"""Whole steps of 1,000 agents into one file, beside bare executemany of the same rows.

A whole step is what a step of the LLM loop leaves: its reservation, which is
awaited before the request, its answer, which is awaited before the calls, and
the step, which is awaited before the next. So each agent waits three times a
step, and every row is in the file when it goes on.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trio

from actors.store.store import Store
from benchmarks.bills import Bill, Clock, take_turns
from benchmarks.harness import Figure, Gate, rounds_of
from benchmarks.store_rows import TREE, Step, bare_bill, batches, count, real_step, steps_of

BATCH = 500
LEAST = Gate("value", ">=", 8_000)
# Ours may cost 2.5 times the bare cost: 0.4 of the bare rate.
DEAREST = Gate("ratio", "<=", 1 / 0.4)


async def _agent(store: Store, steps: list[Step]) -> None:
    for step in steps:
        for left in step:
            if left.awaited:
                await store.commit(*left.rows)
            else:
                await store.append(*left.rows)


async def _ours(agents: list[list[Step]]) -> Bill:
    with tempfile.TemporaryDirectory() as folder:
        async with Store.open(Path(folder) / "runs.db") as store:
            await store.take(TREE)
            clock = Clock()
            async with trio.open_nursery() as nursery:
                for steps in agents:
                    nursery.start_soon(_agent, store, steps)
            await store.commit()
            bill = clock.bill(sum(map(len, agents)))
            assert store.select("SELECT count(*) FROM steps") == [(bill.n,)]
            assert store.writer.fault is None and not store.writer.lost
    return bill


def _bare(agents: list[list[Step]]) -> Bill:
    # Step by step, as they would come from agents that go on beside each other.
    together = [step for steps in zip(*agents, strict=True) for step in steps]
    return bare_bill(batches(together, BATCH), len(together))


def measured(n: int, steps: int, rounds: int) -> tuple[Bill, Bill, int]:
    """Give the bills of ours and of the bare arm, and the rows of a step."""
    pattern = trio.run(real_step)
    agents = [list(steps_of(pattern, agent, steps)) for agent in range(n)]
    ours, bare = take_turns(rounds, partial(trio.run, _ours, agents), partial(_bare, agents))
    return ours, bare, count(pattern)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure whole steps by the second, and what one costs in wall and CPU time."""
    n, steps = (100, 3) if quick else (1_000, 10)
    ours, bare, rows = measured(n, steps, rounds_of(quick))
    method = (
        f"{n} agents, {steps} whole steps each of {rows} rows and 3 commits, synchronous=NORMAL;"
        f" baseline: the same rows by bare executemany, {BATCH} steps a transaction"
    )
    rate, bare_rate = ours.n / ours.wall, bare.n / bare.wall
    yield Figure("store_steps", rate, "steps/s", bare_rate, ours.wall / bare.wall, ours.n, method, LEAST)
    for name, place in (("store_steps_wall", 0), ("store_steps_cpu", 1)):
        mine, theirs = ours.each[place], bare.each[place]
        yield Figure(name, mine, "us", theirs, mine / theirs, ours.n, f"{name[12:]} time of one; {method}", DEAREST)
