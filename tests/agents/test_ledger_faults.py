"""Faults of holding, settling and waiting for money, found by breaking the tree, each as a test."""

from typing import Any

import pytest
import trio

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.assembly.trees import open_tree as recorded_tree
from actors.containment.ledger_state import Draw, Quote, Reservation
from actors.containment.limits import Containment
from actors.errors import BudgetExceeded, Stopping, WouldDeadlock
from actors.store.store import Store


def limits(concurrent: int = 64, tokens: int = 10**6, **more: Any) -> Containment:
    return Containment(1000, concurrent, 4, tokens, **more)


# ── what is held ────────────────────────────────────────────────────────────


async def test_an_own_cap_counts_what_is_held_and_is_asked_when_it_is_decided(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refused = 0

    async def parallel(agent: Agent) -> int:
        nonlocal refused

        async def one() -> None:
            nonlocal refused
            try:
                held = await agent.ledger.reserve(60)
            except BudgetExceeded as refusal:
                assert refusal.limit == 100
                refused += 1
                return
            assert isinstance(held, Reservation)
            await trio.sleep(1)
            await agent.ledger.settle(held, 60)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)
        return agent.own_tokens

    async def beside(agent: Agent) -> int:
        held = await agent.ledger.reserve(90)
        assert isinstance(held, Reservation)
        with pytest.raises(BudgetExceeded):
            await agent.ledger.draw_tokens(20)
        await agent.ledger.settle(held, 90)
        return agent.own_tokens

    async def root(agent: Agent) -> list[int]:
        cap = AgentLimits(max_tokens=100)
        return [await (await agent.spawn(each, limits=cap)).result() for each in (parallel, beside)]

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == [60, 90]
    assert refused == 4


async def test_what_is_held_at_an_end_is_charged_in_the_rows_too(autojump_clock: trio.testing.MockClock) -> None:
    store = Store.memory()

    async def child(agent: Agent) -> None:
        assert isinstance(await agent.ledger.reserve(50), Reservation)

    async def root(agent: Agent) -> None:
        held = await agent.ledger.reserve(100)
        assert isinstance(held, Reservation)
        other = await agent.ledger.reserve(30)
        assert isinstance(other, Reservation)
        await agent.ledger.settle(other, 20)
        await (await agent.spawn(child)).result()

    async with recorded_tree(limits(), store=store) as tree:
        await tree.run(root)
    ledger = store.ledger(tree.run_id)
    assert ledger is not None and (ledger.spent_tokens, ledger.reserved_tokens) == (170, 0)
    agents = store.agents(tree.run_id)
    assert [agent.spent_tokens for agent in agents] == [120, 50]
    states = [(held.tokens, held.state) for agent in agents for held in store.reservations(agent.run_id)]
    assert states == [(100, "estimated"), (30, "settled"), (50, "estimated")]


async def test_nothing_is_reserved_in_the_name_of_an_agent_that_has_ended(autojump_clock):
    async def gone(agent: Agent, box: list[Agent]) -> None:
        box.append(agent)

    async def root(agent: Agent) -> None:
        box: list[Agent] = []
        await (await agent.spawn(gone, box)).exit()
        with pytest.raises(Stopping, match=r"the work of root/1 is over"):
            await box[0].ledger.reserve(60)
        # What was billed is billed, whoever reports it.
        assert await box[0].ledger.draw_tokens(3) is Draw.ok

    async with open_tree(limits(tokens=100)) as tree:
        await tree.run(root)
    assert tree.leaks().empty
    assert (tree.ledger.spent_tokens, tree.ledger.reserved_tokens) == (3, 0)


async def test_a_reservation_that_waits_in_the_name_of_an_agent_ends_with_its_work(autojump_clock):
    async def holder(agent: Agent) -> None:
        held = await agent.ledger.reserve(80)
        await trio.sleep(5)
        await agent.ledger.settle(held, 10)  # type: ignore[arg-type]

    async def short(agent: Agent, box: list[Agent]) -> None:
        box.append(agent)
        await trio.sleep(1)

    async def root(agent: Agent) -> None:
        box: list[Agent] = []
        await agent.spawn(holder)
        child = await agent.spawn(short, box)
        await trio.sleep(0.5)
        with pytest.raises(Stopping, match=r"the work of root/2 is over"):
            await box[0].ledger.reserve(60)
        assert trio.current_time() - began == 5
        await child.exit()

    began = trio.current_time()
    async with open_tree(limits(tokens=100)) as tree:
        await tree.run(root)
    assert tree.leaks().empty
    assert tree.ledger.spent_tokens == 10


# ── bad requests ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "quote",
    [
        {"prompt_tokens": -500},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": True},
        {"prompt_tokens": 1, "output_tokens": -1},
        {"prompt_tokens": 1, "output_tokens": 9, "minimal_output": -4},
        {"prompt_tokens": 1, "prompt_rate": -1},
        {"prompt_tokens": 1, "fixed_microdollars": -1},
    ],
)
def test_a_quote_that_would_raise_a_ceiling_cannot_be_made(quote: dict[str, Any]):
    with pytest.raises((ValueError, TypeError), match="must"):
        Quote(**quote)


async def test_a_slip_in_a_call_of_the_ledger_is_the_callers_and_the_ledger_lives_on():
    async def leaf(_agent: Agent) -> None:
        pass

    async def root(agent: Agent) -> None:
        with pytest.raises(TypeError, match="look at the answer of reserve first"):
            await agent.ledger.settle(Draw.halted, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="limits must be AgentLimits"):
            await agent.spawn(leaf, limits={"max_tokens": 5})  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await agent.ledger.reserve("much")  # type: ignore[arg-type]
        assert await agent.ledger.draw_tokens(1) is Draw.ok
        await (await agent.spawn(leaf)).exit()

    async with open_tree(limits()) as tree:
        await tree.run(root)
    assert (tree.ledger.spent_tokens, tree.ledger.agents) == (1, 2)


# ── waits that could never end ──────────────────────────────────────────────


async def test_an_agent_that_reserves_twice_more_than_there_is_is_told_at_once(autojump_clock):
    async def root(agent: Agent) -> None:
        first = await agent.ledger.reserve(60)
        with pytest.raises(WouldDeadlock, match=r"root waits for what is held of the budget by root"):
            await agent.ledger.reserve(60)
        assert agent.holds_slot
        await agent.ledger.settle(first, 10)  # type: ignore[arg-type]
        second = await agent.ledger.reserve(60)
        await agent.ledger.settle(second, 10)  # type: ignore[arg-type]

    async with open_tree(limits(tokens=100)) as tree:
        await tree.run(root)
    assert (tree.ledger.spent_tokens, tree.leaks().empty, tree.holders, len(tree.host.waits)) == (20, True, {}, 0)


@pytest.mark.parametrize("parent_first", [True, False])
async def test_a_parent_that_holds_and_awaits_a_child_that_needs_it_closes_a_cycle_that_is_named(
    autojump_clock, parent_first: bool
):
    cycles: list[Any] = []

    async def child(agent: Agent) -> str:
        await trio.sleep(1 if parent_first else 0)
        try:
            held = await agent.ledger.reserve(60)
        except WouldDeadlock as error:
            cycles.append(error.cycle)
            return "told"
        await agent.ledger.settle(held, 5)  # type: ignore[arg-type]
        return "served"

    async def root(agent: Agent) -> str:
        held = await agent.ledger.reserve(60)
        handle = await agent.spawn(child)
        if not parent_first:
            await trio.sleep(1)
        try:
            return await handle.result()
        except WouldDeadlock as error:
            cycles.append(error.cycle)
        await agent.ledger.settle(held, 10)  # type: ignore[arg-type]
        return await handle.result()

    async with open_tree(limits(tokens=100)) as tree:
        # Whoever makes the call that would close it is told, and can do something about it.
        assert await tree.run(root) == ("told" if parent_first else "served")
    assert cycles == [("root/1", "root", "root/1") if parent_first else ("root", "root/1", "root")]
    assert len(tree.host.waits) == 0 and tree.leaks().empty


async def test_a_holder_that_still_works_is_no_deadlock(autojump_clock):
    async def works(agent: Agent, seconds: float) -> None:
        held = await agent.ledger.reserve(50)
        await trio.sleep(seconds)
        await agent.ledger.settle(held, 10)  # type: ignore[arg-type]

    async def root(agent: Agent) -> None:
        children = [await agent.spawn(works, seconds) for seconds in (5, 9)]
        await trio.sleep(1)
        late = await agent.spawn(works, 1)
        await late.result()
        for child in children:
            await child.result()

    async with open_tree(limits(tokens=100)) as tree:
        await tree.run(root)
    assert tree.ledger.spent_tokens == 30
