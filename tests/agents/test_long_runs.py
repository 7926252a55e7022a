"""A step late in a run costs what an early one costs, and going on with a run costs what its length is."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.agents.approvals import ApproveAll
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, Estimate, ResultsTurn, ToolCall
from actors.agents.routing import Routing
from actors.agents.tree import Tree
from actors.assembly.resuming import resume_tree_from_stored_policy
from actors.assembly.running import run_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.halts import HaltKind
from actors.providers.estimates import Drift
from actors.store.store import Store
from actors.testing.effort import Calls, count_calls

EARLY, LATE, COUNTED = 150, 700, 20


class Reads:
    """A model that has a file read again and again; the runtime estimates its requests.

    It counts the calls of some steps early in the run, and of as many late in it.
    """

    name = "reads"
    default_model = "local"
    endpoint = None

    def __init__(self) -> None:
        self.asked = 0
        self.last = CompletionRequest("", ())
        self.counted: list[Calls] = []
        self._count = ExitStack()

    async def complete(self, request: CompletionRequest) -> Completion:
        await trio.lowlevel.checkpoint()
        self.asked, self.last = self.asked + 1, request
        if self.asked in (EARLY, LATE):
            self.counted.append(self._count.enter_context(count_calls()))
        if self.asked in (EARLY + COUNTED, LATE + COUNTED):
            self._count.close()
        call = ToolCall("read_file", json.dumps({"path": "a.txt"}))
        return Completion("I look again.", (call,), Usage(100, 10), "local", "tool_calls")


class Estimates(Reads):
    """The same with an estimate of its own, as the providers for endpoints make it."""

    def __init__(self) -> None:
        super().__init__()
        self._drift = Drift()

    def estimate(self, request: CompletionRequest) -> Estimate:
        return self._drift.estimate(request)


@pytest.mark.parametrize("made", [Reads, Estimates])
async def test_a_late_step_calls_no_more_than_an_early_one(
    made: Callable[[], Reads], tmp_path: Path, mock_clock: MockClock
) -> None:
    # No time passes: what a tree does once a second is not counted. And what a request may carry of results is
    # full after a hundred of these.
    (tmp_path / "a.txt").write_text("a line of the file\n" * 60, encoding="utf-8")
    model, steps = made(), LATE + COUNTED
    contract = attrs.evolve(
        TaskContract.workspace("read on", tmp_path),
        max_steps=steps,
        stall=StallPolicy(window=0),
        routing=Routing(downshift_under=1_000, downshift_to="small"),
    )
    limits = Containment(1, 1, 0, UNLIMITED)
    result = await run_tree(contract, model, Store.memory(), Policy.permissive(), ApproveAll(), limits)
    assert (result.outcome.kind, result.outcome.steps) == (OutcomeKind.step_cap_reached, steps)
    assert len(model.last.turns) == 2 * steps - 1
    shortened = [turn for turn in model.last.turns if isinstance(turn, ResultsTurn) and "left out" in turn.texts[0]]
    assert len(shortened) > LATE - EARLY
    early, late = (counted.made for counted in model.counted)
    # Threads and the collector move it by some hundredths; a single call for each older result would by a half.
    assert late < 1.25 * early, f"{COUNTED} steps after {EARLY} made {early} calls, and after {LATE} {late}"


class StopsAt(Reads):
    """The same, until it has the tree stopped instead of an answer; and what is called until it is asked first."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.tree: Tree | None = None

    async def complete(self, request: CompletionRequest) -> Completion:
        if self.asked == self.steps:
            self._count.close()
            assert self.tree is not None
            self.tree.halt_nowait(HaltKind.interrupt)
            await trio.sleep_forever()
        return await super().complete(request)

    def begin(self, tree: Tree) -> None:
        self.tree = tree


async def calls_to_go_on(folder: Path, steps: int) -> int:
    """Count the calls of a resume, up to its first question, of a run that was stopped after so many steps."""
    contract = attrs.evolve(TaskContract.workspace("read on", folder), max_steps=1_000, stall=StallPolicy(window=0))
    async with Store.open(folder / f"{steps}.db") as store:
        before, after = StopsAt(steps), StopsAt(0)
        limits, options = Containment(1, 1, 0, UNLIMITED), {"on_open": before.begin}
        run = await run_tree(contract, before, store, Policy.permissive(), ApproveAll(), limits, **options)
        assert (run.outcome.kind, run.outcome.steps) == (OutcomeKind.interrupted, steps)
        after.counted.append(after._count.enter_context(count_calls()))
        again = await resume_tree_from_stored_policy(run.run_id, after, store, ApproveAll(), on_open=after.begin)
        assert (again.outcome.kind, again.outcome.steps) == (OutcomeKind.interrupted, steps)
        return after.counted[0].made


async def test_going_on_with_a_run_of_twice_the_steps_calls_twice_as_much(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a line of the file\n" * 60, encoding="utf-8")
    few, more, most = [await calls_to_go_on(tmp_path, steps) for steps in (100, 200, 400)]
    # A single look at all steps for each of them would double it.
    assert most - more < 1.4 * 2 * (more - few), (few, more, most)
