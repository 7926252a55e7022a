"""The tree of plain functions: slots, ceilings, halts, ends."""

from typing import Any

import pytest
import trio

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.tree import Tree, open_tree
from actors.containment.ledger_state import Draw, Reservation
from actors.containment.limits import Containment
from actors.errors import (
    ActorsError,
    AgentCap,
    BudgetExceeded,
    BudgetExhausted,
    ChildFailed,
    DepthCap,
    Halted,
    LeafSpawn,
    SpawnRefusal,
)
from actors.halts import HaltKind
from actors.runtime.exits import Reason


def limits(agents: int = 1000, concurrent: int = 64, depth: int = 4, tokens: int = 10**9, **more: Any) -> Containment:
    return Containment(agents, concurrent, depth, tokens, **more)


async def value(_agent: Agent, result: object) -> object:
    return result


async def forever(agent: Agent) -> None:
    async with agent.waiting():
        await trio.sleep_forever()


async def test_results_stand_in_call_order(autojump_clock: trio.testing.MockClock) -> None:
    async def slow(_agent: Agent, number: int) -> int:
        await trio.sleep(10 - number)
        return number

    async def root(agent: Agent) -> list[int]:
        children = [await agent.spawn(slow, number) for number in range(5)]
        assert [child.path for child in children] == [f"root/{n}" for n in range(1, 6)]
        return [await child.result() for child in children]

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == [0, 1, 2, 3, 4]
    assert tree.leaks().empty


@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_O12_BR41_any_cap_finishes_at_depth_four(cap: int) -> None:
    peak = 0

    async def node(agent: Agent, depth: int) -> int:
        nonlocal peak
        peak = max(peak, agent.tree.slots.out)
        assert agent.tree.slots.out <= cap
        if depth == 4:
            return 1
        children = [await agent.spawn(node, depth + 1) for _ in range(3)]
        return sum([await child.result() for child in children])

    async with open_tree(limits(concurrent=cap)) as tree:
        assert await tree.run(node, 0) == 81
    assert peak <= cap and tree.slots.peak_working <= cap
    assert tree.slots.out == 0
    assert tree.slots.total().done == 121


async def test_AB36_two_slots_and_three_parents_with_two_children_each_finish() -> None:
    async def parent(agent: Agent) -> int:
        children = [await agent.spawn(value, 1) for _ in range(2)]
        return sum([int(str(await child.result())) for child in children])

    async def root(agent: Agent) -> int:
        parents = [await agent.spawn(parent) for _ in range(3)]
        return sum([await each.result() for each in parents])

    async with open_tree(limits(concurrent=2)) as tree:
        assert await tree.run(root) == 6


async def test_AB29_every_agent_spawns_five_and_twenty_exist() -> None:
    refused: list[SpawnRefusal] = []

    async def node(agent: Agent) -> None:
        for _ in range(5):
            try:
                await agent.spawn(node)
            except SpawnRefusal as refusal:
                refused.append(refusal)

    async with open_tree(limits(agents=20)) as tree:
        await tree.run(node)
        assert tree.ledger.agents == 20
        assert tree.slots.total().done == 20
    assert AgentCap(20) in refused
    assert {refusal.cap for refusal in refused} <= {"agents", "depth"}
    assert tree.ledger.snapshot().refusals["agents"] == sum(refusal.cap == "agents" for refusal in refused)


async def test_AB34_spawning_one_after_another_meets_the_cap_on_agents() -> None:
    async def root(agent: Agent) -> int:
        for made in range(1000):
            try:
                child = await agent.spawn(value, made)
            except AgentCap as refusal:
                assert (refusal.axis, refusal.limit, refusal.used, refusal.requested) == ("agents", 50, 50, 1)
                return made
            await child.result()
        return -1

    async with open_tree(limits(agents=50, concurrent=1)) as tree:
        assert await tree.run(root) == 49


async def test_depth_counts_from_the_root_and_a_refusal_leaves_everybody_running() -> None:
    async def node(agent: Agent) -> str:
        try:
            child = await agent.spawn(node)
        except DepthCap as refusal:
            assert refusal == DepthCap(2, 3)
            return agent.path
        return await child.result()

    async with open_tree(limits(depth=2)) as tree:
        assert await tree.run(node) == "root/1/1"
    assert tree.ledger.agents == 3


async def test_an_agents_own_limits_only_narrow() -> None:
    async def inner(agent: Agent) -> str:
        with pytest.raises(DepthCap) as caught:
            await agent.spawn(inner)
        return str(caught.value)

    async def middle(agent: Agent) -> str:
        child = await agent.spawn(inner, limits=AgentLimits(max_depth=99))
        return await child.result()

    async def leaf(agent: Agent) -> None:
        with pytest.raises(LeafSpawn):
            await agent.spawn(value, 1)

    async def root(agent: Agent) -> str:
        await (await agent.spawn(leaf, limits=AgentLimits(leaf=True))).result()
        return await (await agent.spawn(middle, limits=AgentLimits(max_depth=2))).result()

    async with open_tree(limits(depth=4)) as tree:
        assert "deepest allowed is 2" in await tree.run(root)


async def test_an_agents_own_token_cap_refuses_and_latches_nothing() -> None:
    async def child(agent: Agent) -> int:
        assert await agent.ledger.draw_tokens(60) is Draw.ok
        with pytest.raises(BudgetExceeded) as caught:
            await agent.ledger.draw_tokens(50)
        assert (caught.value.limit, caught.value.used, caught.value.requested) == (100, 60, 50)
        assert agent.ledger.effective_token_budget() == 40
        return agent.ledger.spent_tokens

    async def root(agent: Agent) -> int:
        return await (await agent.spawn(child, limits=AgentLimits(max_tokens=100))).result()

    async with open_tree(limits(tokens=1_000)) as tree:
        assert await tree.run(root) == 60
    assert tree.ledger.halted is None


async def test_own_time_ends_an_agent_with_all_below_it_and_nobody_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def child(agent: Agent) -> None:
        await agent.spawn(forever)
        await trio.sleep_forever()

    async def root(agent: Agent) -> float:
        handle = await agent.spawn(child, limits=AgentLimits(max_duration=5))
        exit = await handle.exit()
        assert exit.reason is Reason.shutdown
        with pytest.raises(Halted) as caught:
            await handle.result()
        assert caught.value.halt.kind is HaltKind.duration
        return trio.current_time()

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == 5
    assert tree.ledger.halted is None and tree.leaks().empty


async def test_the_duration_ceiling_cuts_a_hung_agent_exactly(autojump_clock: trio.testing.MockClock) -> None:
    async def root(agent: Agent) -> None:
        await agent.spawn(forever)
        await trio.sleep_forever()

    with pytest.raises(Halted) as caught:
        async with open_tree(limits(max_total_duration=7.5)) as tree:
            await tree.run(root)
    assert trio.current_time() == 7.5
    assert caught.value.halt.kind is HaltKind.duration
    assert tree.leaks().empty and tree.receipt is not None and tree.receipt.complete


async def test_a_token_ceiling_stops_the_whole_tree_and_admits_nobody_after(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def spender(agent: Agent) -> None:
        while await agent.ledger.draw_tokens(30) is Draw.ok:
            await trio.sleep(1)
        with pytest.raises(BudgetExhausted):
            await agent.spawn(value, 1)
        assert await agent.ledger.reserve(1) is Draw.halted
        await trio.sleep_forever()

    async def root(agent: Agent) -> None:
        for _ in range(3):
            await agent.spawn(spender)
        await trio.sleep_forever()

    with pytest.raises(Halted) as caught:
        async with open_tree(limits(tokens=100)) as tree:
            await tree.run(root)
    assert caught.value.halt.kind is HaltKind.tokens
    assert tree.ledger.spent_tokens == 90 and tree.ledger.overrun_tokens > 0
    assert tree.leaks().empty


async def test_AB80_a_failing_child_touches_no_sibling_and_the_cause_is_kept() -> None:
    async def bad(_agent: Agent) -> None:
        raise ValueError("no good")

    async def root(agent: Agent) -> list[object]:
        children = [await agent.spawn(value, 1), await agent.spawn(bad), await agent.spawn(value, 3)]
        with pytest.raises(ChildFailed) as caught:
            await children[1].result()
        assert isinstance(caught.value.__cause__, ValueError)
        assert "root/2" in str(caught.value) and "no good" in str(caught.value)
        return [await children[0].result(), await children[2].result()]

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == [1, 3]


async def test_the_cause_climbs_through_a_deep_chain_in_one_short_line() -> None:
    async def node(agent: Agent, depth: int) -> None:
        if depth == 300:
            raise ValueError("leaf")
        await (await agent.spawn(node, depth + 1)).result()

    async with open_tree(limits(depth=300)) as tree:
        with pytest.raises(ChildFailed) as caught:
            await tree.run(node, 0)
    assert isinstance(caught.value.leaf.cause, ValueError)
    assert str(caught.value) == f"{caught.value.leaf.path}: ValueError: leaf"


async def test_BR64_a_parent_ends_after_its_children_also_when_it_fails(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slow(_agent: Agent) -> None:
        await trio.sleep(5)

    async def root(agent: Agent) -> None:
        await agent.spawn(slow)
        raise KeyError("early")

    async with open_tree(limits()) as tree:
        with pytest.raises(ChildFailed):
            await tree.run(root)
        assert trio.current_time() == 5
        assert tree.slots.total().done == 2


async def test_a_waiting_agent_holds_no_slot_and_several_waits_give_it_back_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def nap(agent: Agent, seconds: float) -> None:
        async with agent.waiting():
            await trio.sleep(seconds)

    async def root(agent: Agent) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nap, agent, 1)
            nursery.start_soon(nap, agent, 3)
            await trio.sleep(0.5)
            assert agent.tree.slots.out == 0
            await trio.sleep(1)
            assert agent.tree.slots.out == 0
        assert agent.tree.slots.out == 1
        return agent.tree.slots.out

    async with open_tree(limits(concurrent=1)) as tree:
        assert await tree.run(root) == 1


async def test_O14_a_stopped_agent_gives_back_slot_and_reservation() -> None:
    started = trio.Event()

    async def holder(agent: Agent) -> None:
        held = await agent.ledger.reserve(40)
        assert isinstance(held, Reservation)
        started.set()
        await trio.sleep_forever()

    async def root(agent: Agent) -> int:
        handle = await agent.spawn(holder)
        async with agent.waiting():
            await started.wait()
        assert agent.ledger.reserved_tokens == 40
        receipt = await handle.stop("enough")
        assert receipt.complete
        return agent.ledger.reserved_tokens

    async with open_tree(limits(tokens=100)) as tree:
        assert await tree.run(root) == 0
    # Whether the call was billed is unknown, so it is charged in full.
    assert tree.ledger.spent_tokens == 40 and tree.leaks().empty


async def halted_tree(depth: int, fan: int) -> tuple[Tree, Any]:
    async def node(agent: Agent, level: int) -> None:
        if level < depth:
            for _ in range(fan):
                await agent.spawn(node, level + 1)
        async with agent.waiting():
            await trio.sleep_forever()

    tree = open_tree(limits(agents=20_000, depth=3_000))
    async with trio.open_nursery() as nursery:
        async with tree:

            async def run() -> None:
                with pytest.raises(Halted):
                    await tree.run(node, 0)

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked(0.01)
            receipt = await tree.halt(reason="test")
    return tree, receipt


async def test_K6_every_end_is_recorded_when_a_wide_tree_is_halted() -> None:
    tree, receipt = await halted_tree(1, 3_000)
    assert len(receipt.stopped) == 3_001 and receipt.complete and tree.leaks().empty


async def test_K5_a_chain_of_two_thousand_is_halted() -> None:
    tree, receipt = await halted_tree(2_000, 1)
    assert len(receipt.stopped) == 2_001 and receipt.complete and tree.leaks().empty
    depths = [line.path.count("/") for line in receipt.stopped]
    ends = [line.ended_at for line in receipt.stopped]
    assert depths == sorted(depths, reverse=True)
    assert all(first <= later for first, later in zip(ends, ends[1:], strict=False))


async def chain(agent: Agent, left: int, at_the_end: Any) -> None:
    if left:
        await (await agent.spawn(chain, left - 1, at_the_end)).result()
    await at_the_end(agent)


async def test_an_outside_cancel_at_depth_a_thousand_is_an_orderly_halt() -> None:
    ready = trio.Event()

    async def hang(agent: Agent) -> None:
        ready.set()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with open_tree(limits(agents=5_000, depth=3_000)) as tree:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await ready.wait()
                    scope.cancel()

                nursery.start_soon(cancel)
                await tree.run(chain, 1_000, hang)
    assert scope.cancelled_caught
    assert tree.ledger.halted is not None
    assert (tree.ledger.halted.kind, tree.ledger.halted.by) == (HaltKind.interrupt, "host")
    assert tree.receipt is not None and len(tree.receipt.stopped) == 1_001
    assert tree.receipt.complete and tree.leaks().empty


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_is_no_exception_surfaces_as_itself_from_any_depth(error: type[BaseException]) -> None:
    async def interrupt(_agent: Agent) -> None:
        raise error("leaf")

    with pytest.raises(error, match="leaf") as caught:
        async with open_tree(limits(agents=5_000, depth=3_000)) as tree:
            await tree.run(chain, 1_500, interrupt)
    assert not isinstance(caught.value, BaseExceptionGroup)
    assert tree.ledger.halted is not None and tree.ledger.halted.kind is HaltKind.interrupt
    assert tree.leaks().empty


async def test_E14_an_agent_cannot_wait_for_the_stop_of_its_own_tree_but_may_ask_for_it() -> None:
    async def root(agent: Agent) -> None:
        with pytest.raises(ActorsError, match="halt_nowait"):
            await agent.tree.halt()
        assert agent.tree.ledger.halted is None
        assert agent.tree.halt_nowait(by=agent.path, reason="done here")
        assert not agent.tree.halt_nowait(by=agent.path)
        await trio.sleep_forever()

    with pytest.raises(Halted, match="done here"):
        async with open_tree(limits()) as tree:
            await tree.run(root)
    assert tree.leaks().empty


async def test_INV6_nothing_starts_after_the_halt(autojump_clock: trio.testing.MockClock) -> None:
    started: list[float] = []

    async def work(_agent: Agent) -> None:
        started.append(trio.current_time())
        await trio.sleep(1)

    async def root(agent: Agent) -> None:
        for _ in range(20):
            await agent.spawn(work)
        await trio.sleep_forever()

    with pytest.raises(Halted):
        async with open_tree(limits(concurrent=3, max_total_duration=3.5)) as tree:
            await tree.run(root)
    assert max(started) <= 3.5
    assert tree.slots.total().done == 21 and tree.leaks().empty


async def test_a_stubborn_agent_is_named_and_the_tree_says_so(autojump_clock: trio.testing.MockClock) -> None:
    async def stubborn(_agent: Agent) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async def root(agent: Agent) -> None:
        await agent.spawn(stubborn)
        await trio.sleep_forever()

    tree = open_tree(limits(max_total_duration=1), cleanup_allowance=2)
    async with tree:
        with pytest.raises(Halted):
            await tree.run(root)
        assert trio.current_time() == 4
        assert tree.receipt is not None
        assert set(tree.receipt.not_ended) == {"root/1", "root"}
        assert set(tree.leaks().tasks) == {"root/1", "root"}
    assert trio.current_time() == 60
    assert tree.leaks().empty


async def test_leaving_the_block_with_an_error_halts_the_tree_and_keeps_the_error() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            async with open_tree(limits()) as tree:

                async def run() -> None:
                    with pytest.raises(Halted):
                        await tree.run(forever)

                nursery.start_soon(run)
                await trio.testing.wait_all_tasks_blocked()
                raise OSError("mine")
    assert isinstance(caught.value.exceptions[0], OSError)
    assert tree.leaks().empty


async def test_a_tree_runs_once() -> None:
    async with open_tree(limits()) as tree:
        await tree.run(value, 1)
        with pytest.raises(ActorsError, match="once"):
            await tree.run(value, 1)


async def test_a_snapshot_shows_who_works_and_who_waits() -> None:
    ready = trio.Event()

    async def root(agent: Agent) -> None:
        for _ in range(3):
            await agent.spawn(forever)
        async with agent.waiting():
            await trio.testing.wait_all_tasks_blocked()
            ready.set()
            await trio.sleep_forever()

    async with open_tree(limits(concurrent=2)) as tree:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with pytest.raises(Halted):
                    await tree.run(root)

            nursery.start_soon(run)
            await ready.wait()
            shown = tree.snapshot()
            assert [agent.path for agent in shown.agents] == ["root", "root/1", "root/2", "root/3"]
            assert {agent.state for agent in shown.agents} == {"waiting"}
            assert shown.tiers[1].waiting == 3 and shown.slots_out == 0
            await tree.halt()


@pytest.mark.parametrize("count", [10_000])
async def test_AB3_ten_thousand_agents_draw_at_once_and_never_pass_the_ceiling(count: int) -> None:
    granted = 0
    gate = trio.Event()

    async def draw(agent: Agent) -> None:
        nonlocal granted
        async with agent.waiting():
            await gate.wait()
        if await agent.ledger.draw_tokens(1) is Draw.ok:
            granted += 1
        assert agent.ledger.spent_tokens <= 6_000

    async def root(agent: Agent) -> None:
        for _ in range(count):
            await agent.spawn(draw)
        gate.set()
        async with agent.waiting():
            await trio.sleep_forever()

    with pytest.raises(Halted):
        async with open_tree(limits(agents=20_000, depth=1, tokens=6_000)) as tree:
            await tree.run(root)
    assert granted == tree.ledger.spent_tokens == 6_000
    assert tree.leaks().empty
