"""What a child of a supervisor costs among 100,000, by what it costs among 1,000; and a late step, by an early one."""

import gc
import statistics
from collections.abc import Iterator

import attrs
import trio
import trio.testing

from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec
from benchmarks import growth_steps
from benchmarks.harness import Figure, Gate, begin, cpu, rounds_of

LOOKS = 1_000


async def _idle() -> None:
    await trio.sleep_forever()


@attrs.frozen
class _Costs:
    """CPU seconds, each by one child or by one look."""

    stop: float
    count: float
    which: float


async def _costs(n: int) -> _Costs:
    specs = [ChildSpec(number, _idle) for number in range(n)]
    # The allowance bounds the whole stop, which must not be cut.
    async with open_supervisor(specs, cleanup_allowance=600.0) as top:
        await trio.testing.wait_all_tasks_blocked()
        began = begin()
        for number in range(LOOKS):
            line = await top.which_child(number * n // LOOKS)
            assert line is not None
        which = cpu() - began
        began = begin()
        counted = await top.count_children()
        count = cpu() - began
        assert counted.active == counted.specs == n
        began = begin()
        receipt = await top.stop("measured")
        stop = cpu() - began
        assert receipt.complete and len(receipt.stopped) == n + 1
    return _Costs(stop / n, count / n, which / LOOKS)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure static children, which are stopped one by one in reverse order; then the steps of one long agent."""
    few, many = (200, 2_000) if quick else (1_000, 100_000)
    measured: dict[int, list[_Costs]] = {few: [], many: []}
    # They take turns, so that a slow moment of the machine meets both; the first turn only warms up.
    for turn in range(rounds_of(quick) + 1):
        for n, costs in measured.items():
            gc.collect()
            cost = trio.run(_costs, n)
            if turn:
                costs.append(cost)
    for name, what in (("stop", "child, in reverse, one by one"), ("count", "child"), ("which", "which_child")):
        small, large = (statistics.median(getattr(cost, name) for cost in measured[n]) for n in (few, many))
        method = f"CPU a {what}; {many:,} static children; baseline: the same of {few:,}"
        # Whether the cost of all grows with their number alone.
        gate = Gate("ratio", "<=", 1.5) if name == "stop" else None
        yield Figure(f"supervisor_{name}_growth", large * 1e6, "us", small * 1e6, large / small, many, method, gate)
    yield from growth_steps.figures(quick)
