"""Trees of agents with one fault at each checkpoint: the invariants hold."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import (
    Completion,
    CompletionRequest,
    Observation,
    ObservationKind,
    ToolContext,
    ToolSpec,
)
from actors.agents.tree import Tree, open_tree
from actors.assembly.running import run_tree
from actors.containment.ledger_state import Reservation
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import Halted, Refused
from actors.halts import HaltKind
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.checkpoint_fuzz import Fuzz, Scenario, fuzz
from actors.testing.tree_invariants import TreeWatch

# Every n-th step; 1 is all of them.
STRIDE = int(os.environ.get("ACTORS_FUZZ_STRIDE", "1"))


def opened(f: Fuzz, tree: Tree, store: Store | None = None) -> Tree:
    f.watch(TreeWatch(tree, store), host=tree.host)
    return tree


async def one_slot_three_deep(f: Fuzz) -> None:
    async def node(agent: Agent, depth: int) -> int:
        await f.point()
        if depth == 3:
            return 1
        children = [await agent.spawn(node, depth + 1) for _ in range(2)]
        return sum([await child.result() for child in children])

    async with opened(f, open_tree(Containment(100, 1, 3, 1000))) as tree:
        assert await tree.run(node, 1) == 4


async def reservations_stand_in_line(f: Fuzz) -> None:
    async def caller(agent: Agent, number: int) -> int:
        await f.point()
        held = await agent.ledger.reserve(40)
        if not isinstance(held, Reservation):
            return 0
        await trio.sleep(1)
        await f.point()
        # One of them says nothing of its use.
        settled = await agent.ledger.settle(held, None if number == 2 else 5)
        await agent.ledger.draw_tokens(1)
        return settled.tokens

    async def root(agent: Agent) -> int:
        children = [await agent.spawn(caller, number) for number in range(4)]
        return sum([await child.result() for child in children])

    async with opened(f, open_tree(Containment(100, 3, 2, 100))) as tree:
        spent = await tree.run(root)
        assert spent == tree.ledger.spent_tokens - 4 == 55 or f.faults


async def a_child_is_spawned_in_finally(f: Fuzz) -> None:
    async def cleaner(_agent: Agent) -> str:
        await f.point()
        return "clean"

    async def worker(agent: Agent) -> str:
        try:
            await f.point()
            await trio.sleep(1)
            return "done"
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                await agent.spawn(cleaner)
                await f.point()

    async def root(agent: Agent) -> list[str]:
        try:
            children = [await agent.spawn(worker) for _ in range(2)]
            return [await child.result() for child in children]
        finally:
            await f.point()
            child = await agent.spawn(cleaner)
            await child.exit()

    async with opened(f, open_tree(Containment(100, 2, 3, 1000))) as tree:
        assert await tree.run(root) == ["done", "done"]


async def waiting_blocks_under_local_timeouts(f: Fuzz) -> None:
    async def wait_twice(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep(0.5)
        with trio.move_on_after(0.25):
            async with agent.waiting():
                await trio.sleep(1)
        await f.point()

    async def worker(agent: Agent, number: int) -> int:
        await f.point()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_twice, agent)
            nursery.start_soon(wait_twice, agent)
        return number

    async def root(agent: Agent) -> list[int]:
        children = [await agent.spawn(worker, number) for number in range(3)]
        async with agent.waiting():
            await trio.sleep(0.3)
        await f.point()
        return [await child.result() for child in children]

    async with opened(f, open_tree(Containment(100, 1, 2, 1000))) as tree:
        assert await tree.run(root) == [0, 1, 2]


async def all_is_written_down(f: Fuzz) -> None:
    store = Store.memory()

    async def leaf(agent: Agent) -> None:
        held = await agent.ledger.reserve(10)
        await f.point()
        if isinstance(held, Reservation):
            await agent.ledger.settle(held, 10)

    async def middle(agent: Agent) -> None:
        children = [await agent.spawn(leaf, limits=AgentLimits(leaf=True)) for _ in range(2)]
        await f.point()
        for child in children:
            f.saw(await child.exit())

    async def root(agent: Agent) -> None:
        for child in [await agent.spawn(middle) for _ in range(2)]:
            f.saw(await child.exit())

    async with opened(f, open_tree(Containment(100, 2, 3, 1000), store=store), store) as tree:
        await tree.run(root)


async def children_are_stopped_and_run_out_of_time(f: Fuzz) -> None:
    async def slow(_agent: Agent) -> None:
        try:
            await f.point()
            await trio.sleep(100)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
                await f.point()

    async def branch(agent: Agent) -> None:
        await agent.spawn(slow)
        await f.point()
        await (await agent.spawn(slow)).result()

    async def root(agent: Agent) -> None:
        late = await agent.spawn(branch, limits=AgentLimits(max_duration=2))
        stopped = await agent.spawn(branch)
        await trio.sleep(1)
        await stopped.stop("enough")
        await f.point()
        try:
            await late.result()
        except Halted as halted:
            assert halted.halt.kind in (HaltKind.duration, HaltKind.cancel, HaltKind.parent)

    async with opened(f, open_tree(Containment(100, 4, 3, 1000, max_total_duration=20))) as tree:
        await tree.run(root)


async def a_ceiling_ends_it(f: Fuzz) -> None:
    async def spender(agent: Agent) -> None:
        for _ in range(3):
            await f.point()
            await agent.ledger.draw_tokens(10)
            await trio.sleep(1)

    async def root(agent: Agent) -> None:
        for _ in range(6):
            try:
                await agent.spawn(spender)
            except Refused as refusal:
                f.saw(refusal)
        await f.point()

    try:
        async with opened(f, open_tree(Containment(4, 2, 3, 75))) as tree:
            await tree.run(root)
    except Halted as halted:
        assert halted.halt.kind is HaltKind.tokens or f.faults


def say(*calls: Any, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, usage=more.pop("usage", Usage(60, 40)), **more)


def ask_child(goal: str) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}})


class Stumbling(Scripted):
    """A scripted model that may fail or be slow before it answers and after it."""

    fuzz: Fuzz

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer, with a point on each side. Cancellation: as `Scripted`."""
        await self.fuzz.point()
        answer = await super().complete(request)
        await self.fuzz.point()
        return answer


@attrs.frozen
class Probe:
    """A tool that may fail or be slow."""

    fuzz: Fuzz
    name: str = "probe"
    read_only: bool = True

    @property
    def spec(self) -> ToolSpec:
        """Say what it takes."""
        return ToolSpec(self.name, "look", {"type": "object"})

    async def run(self, _arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        """Look. Cancellation: nothing changed."""
        await self.fuzz.point()
        return Observation(ObservationKind.tool, "probe", "seen", False)


async def agents_with_a_scripted_model(f: Fuzz) -> None:
    with TemporaryDirectory() as name:
        provider = Stumbling([
            say(ask_child("slow"), ask_child("quick"), ("probe", {})),
            say(when="slow", text="slow report", delay=3),
            say(when="quick", text="quick report", delay=1),
            say(text="done"),
        ])  # fmt: skip
        provider.fuzz = f
        store = Store.memory()
        result = await run_tree(
            TaskContract.workspace("the root's goal", Path(name)), provider, store, Policy.permissive(), ApproveAll(),
            Containment(20, 2, 3, 100_000), tools=(Probe(f),), on_open=lambda tree: opened(f, tree, store) and None,
        )  # fmt: skip
        assert result.leaks.empty
        assert result.said == "done" or f.faults


SCENARIOS: list[Scenario] = [
    one_slot_three_deep,
    reservations_stand_in_line,
    a_child_is_spawned_in_finally,
    waiting_blocks_under_local_timeouts,
    all_is_written_down,
    children_are_stopped_and_run_out_of_time,
    a_ceiling_ends_it,
    agents_with_a_scripted_model,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_invariants_hold_with_a_fault_at_each_checkpoint(scenario: Scenario) -> None:
    report = fuzz(scenario, stride=STRIDE)
    print(report.steps, report.points, report.runs)
    assert report.points and report.runs > 50
    assert not report.broken, str(report)
