"""What it costs to start a command behind a boundary, beside the same command without one.

A whole command that does nothing, from the call to the end: start, end, and the
look for what was left behind. Both arms pay for the last two, so the difference is
the boundary. One with and one without take turns, so that a slow moment of the
machine meets both. Wall time is what an agent waits for, and means little while
somebody else uses the processors; the processor time of all that took part is
told beside it.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator

import attrs
import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Policy
from actors.tools.sandbox import detect, run_confined
from actors.tools.sandbox_plan import Capabilities
from benchmarks.bills import Bill, Clock
from benchmarks.harness import Figure, Gate

# The aim for one start, in milliseconds beyond one without a boundary.
MOST_MORE = 15.0
FREE = Confinement(ExecSandbox.full_access)
HELD = Confinement(ExecSandbox.workspace_write, Policy.default())


async def _one(confinement: Confinement, can: Capabilities, root: str) -> Bill:
    clock = Clock()
    done = await run_confined(["true"], cwd=root, timeout=30, confinement=confinement, capabilities=can)
    bill = clock.bill(1)
    assert done.code == 0, done.output
    return bill


async def _turns(can: Capabilities, root: str, n: int) -> tuple[list[Bill], list[Bill]]:
    plain, behind = [], []
    for turn in range(n + 1):
        pair = await _one(FREE, can, root), await _one(HELD, can, root)
        # The first turn only warms up.
        if turn:
            plain.append(pair[0])
            behind.append(pair[1])
    return plain, behind


def _backends() -> Iterator[tuple[str, Capabilities]]:
    can = detect()
    if can.bubblewrap:
        yield "bubblewrap", can
    if can.landlock and can.namespaces:
        yield "landlock_namespaces", attrs.evolve(can, bubblewrap=None)
    if can.landlock and can.seccomp:
        yield "landlock_rules", attrs.evolve(can, bubblewrap=None, namespaces=False)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure every backend that this machine has; the gates are aims for a machine that does nothing else."""
    n = 5 if quick else 150
    root = os.path.realpath(tempfile.mkdtemp(prefix="actors-bench-"))
    gate = Gate("value", "<=", MOST_MORE)
    try:
        for name, can in _backends():
            plain, behind = trio.run(_turns, can, root, n)
            for what in ("wall", "cpu"):
                # Processor time is counted in ticks that are longer than a command: a mean of many, not a median.
                middle = statistics.median if what == "wall" else statistics.fmean
                less, more = (middle(getattr(bill, what) for bill in bills) for bills in (plain, behind))
                method = f"{what} of a command that does nothing, with a boundary less without; baseline: without"
                figure = f"sandbox_{name}_{what}"
                yield Figure(figure, (more - less) * 1e3, "ms more", less * 1e3, more / less, n, method, gate)
    finally:
        shutil.rmtree(root, ignore_errors=True)
