"""What a late step of one long agent costs, by what an early one costs in the same run."""

import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, ToolCall
from actors.assembly.running import run_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.store.store import Store
from benchmarks.harness import Figure, Gate, begin, cpu, rounds_of

CALL = ToolCall("read_file", json.dumps({"path": "a.txt"}))
# What a request may carry of results is full after a hundred of them.
CONTENT = "a line of the file\n" * 50
# As long as each step looked at every turn of the run it was 6, and more in a longer one.
FLAT = Gate("ratio", "<=", 1.25)


@attrs.define
class _Reads:
    """A model that reads a file until it has done so many steps, and notes the CPU seconds of the first and the last.

    It says nothing of what a request may cost: the runtime counts that, from all turns.
    """

    steps: int
    looked: int
    asked: int = 0
    at: list[float] = attrs.Factory(list)
    name: str = "reads"
    default_model: str = "local"
    endpoint: None = None

    async def complete(self, _request: CompletionRequest) -> Completion:
        """Answer with a call, and at the end without. Cancellation: counted."""
        await trio.lowlevel.checkpoint()
        if self.asked in (0, self.looked, self.steps - 1 - self.looked, self.steps - 1):
            self.at.append(cpu())
        self.asked += 1
        if self.asked == self.steps:
            return Completion("done", (), Usage(100, 5), "local", "stop")
        return Completion(None, (CALL,), Usage(100, 10), "local", "tool_calls")


def _contract(root: Path, steps: int) -> TaskContract:
    root.mkdir()
    (root / "a.txt").write_text(CONTENT, encoding="utf-8")
    # Who only repeats itself would be stopped.
    return attrs.evolve(TaskContract.workspace("read on", root), max_steps=steps, stall=StallPolicy(window=0))


@asynccontextmanager
async def _store(folder: Path, *, in_file: bool) -> AsyncIterator[Store]:
    if not in_file:
        yield Store.memory()
        return
    async with Store.open(folder / "runs.db") as store:
        yield store


async def _run(steps: int, looked: int, in_file: bool) -> tuple[float, float]:
    """Give the CPU seconds of the first and of the last steps of a run."""
    model = _Reads(steps, looked)
    with tempfile.TemporaryDirectory() as folder:
        contract = _contract(Path(folder, "work"), steps)
        async with _store(Path(folder), in_file=in_file) as store:
            begin()
            limits = Containment(1, 1, 0, UNLIMITED)
            result = await run_tree(contract, model, store, Policy.permissive(), ApproveAll(), limits)
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.finished, steps)
    return model.at[1] - model.at[0], model.at[3] - model.at[2]


def figures(quick: bool) -> Iterator[Figure]:
    """Measure one agent, its store in memory and in a file."""
    steps, looked = (200, 50) if quick else (3_000, 300)
    for name, in_file in (("long_agent_step", False), ("long_agent_step_in_file", True)):
        # The first run only warms up.
        runs = [trio.run(_run, steps, looked, in_file) for _ in range(rounds_of(quick) + 1)][1:]
        early, late = (statistics.median(costs) / looked * 1e6 for costs in zip(*runs, strict=True))
        ratio = statistics.median(after / before for before, after in runs)
        method = f"CPU a step, of the last {looked} of {steps:,} steps of one agent; baseline: the first {looked}"
        yield Figure(f"{name}_growth", late, "us", early, ratio, steps, method, FLAT)
