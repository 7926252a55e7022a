"""Slots in the wait-for graph: a cycle through a slot is told to whoever closes it, and nothing else is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from actors.agents.agent import Agent
from actors.agents.child_handle import ChildHandle
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.errors import ActorGone, ChildFailed, WouldDeadlock
from actors.runtime.actor import Actor, Call, Ref
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.wait_graph import WaitGraph


def limits(concurrent: int = 1, tokens: int = 1_000) -> Containment:
    return Containment(100, concurrent, 4, tokens)


async def told(wait: Callable[[], Awaitable[Any]]) -> Any:
    """Give what a wait gives, or the cycle that it would have closed."""
    try:
        return await wait()
    except WouldDeadlock as error:
        return error.cycle


async def awaits_it(handle: ChildHandle[Any], _call: Call | None) -> Any:
    return await told(handle.result)


def clerk(agent: Agent, receive: Any = awaits_it, name: str = "clerk") -> Ref[Any]:
    """Start an actor that holds no slot and waits for whatever it is given."""
    actor: Actor[Any] = Actor(f"root/{name}", agent, agent.host, receive)
    agent.start_child(actor)
    return actor.ref


async def quick(agent: Agent) -> str:
    return f"{agent.path} is done"


async def settle_later(agent: Agent, held: Any) -> None:
    """Be another task of an agent, in which it settles what it holds."""
    await trio.sleep(5)
    await agent.ledger.settle(held, 1)


async def run(root: Callable[[Agent], Awaitable[Any]], concurrent: int = 1, tokens: int = 1_000) -> Any:
    """Run a tree, and see that its waits leave nothing behind."""

    async def with_clerks(agent: Agent) -> Any:
        try:
            return await root(agent)
        finally:
            for child in list(agent.children or ()):
                if isinstance(child, Actor):
                    child.request_stop("the root is done")

    tree = open_tree(limits(concurrent, tokens))
    with trio.fail_after(1_000):
        async with tree:
            value = await tree.run(with_clerks)
    assert len(tree.host.waits) == 0 and tree.leaks().empty
    return value


# ── cycles ──────────────────────────────────────────────────────────────────


async def test_the_one_who_waits_for_an_agent_without_a_slot_is_told_that_the_holder_waits_for_it(autojump_clock):
    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        assert child.queued
        # The slot is held through the ask, and the child that the clerk waits for needs it.
        cycle = await clerk(agent).ask(child)
        assert (await child.result(), agent.holds_slot) == ("root/1 is done", True)
        return cycle

    assert await run(root) == ("root/clerk", "root/1", "root", "root/clerk")


async def test_the_holder_that_asks_is_told_when_the_other_waits_already_and_may_go_on(autojump_clock):
    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        waits = clerk(agent)
        waits.tell(child)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(WouldDeadlock) as caught:
            await waits.ask(child)
        assert str(caught.value).endswith(
            "(root waits for an answer from root/clerk; root/clerk waits for the end of root/1;"
            " root/1 waits for a slot held by root)"
        )
        # Nothing of the ask was left, and with the slot lent everybody goes on.
        async with agent.waiting():
            assert await waits.ask(child) == "root/1 is done"
        return caught.value.cycle

    assert await run(root) == ("root", "root/clerk", "root/1", "root")


@pytest.mark.parametrize("catches", [False, True])
async def test_an_agent_that_comes_back_to_a_slot_nobody_can_ever_free_is_told_and_works_no_more(
    autojump_clock, catches: bool
):
    seen: list[Any] = []

    async def child(agent: Agent) -> str:
        try:
            async with agent.waiting():
                await trio.sleep(5)
        except WouldDeadlock as error:
            seen.append((trio.current_time() - began, error.cycle))
            if not catches:
                raise
        assert not agent.holds_slot
        await trio.lowlevel.checkpoint()
        seen.append("went on without a slot")
        return "no"

    async def awaits(handle: ChildHandle[Any], _call: Call | None) -> Any:
        end = await handle.exit()
        return "error" if end.cause is not None else str(end.reason)

    async def root(agent: Agent) -> Any:
        handle = await agent.spawn(child)
        async with agent.waiting():
            await trio.sleep(1)
        return await clerk(agent, awaits).ask(handle)

    began = trio.current_time()
    assert await run(root) == ("shutdown" if catches else "error")
    assert seen == [(5.0, ("root/1", "root", "root/clerk", "root/1"))]


@pytest.mark.parametrize("other_works", [True, False])
async def test_it_is_a_deadlock_only_if_every_holder_leads_back(autojump_clock, other_works: bool):
    late: list[ChildHandle[Any]] = []

    async def other(agent: Agent, waits: Ref[Any]) -> Any:
        await trio.sleep(1)
        if other_works:
            return await trio.sleep(10)
        return await waits.ask(late[0])

    async def root(agent: Agent) -> Any:
        other_holds = await agent.spawn(other, clerk(agent, name="two"))
        assert not other_holds.queued
        # Both slots are held: by the root, and by the one that asks its own clerk, or works.
        late.append(await agent.spawn(quick))
        await trio.sleep(2)
        answer = await clerk(agent, name="one").ask(late[0])
        await other_holds.exit()
        return answer

    if other_works:
        assert await run(root, concurrent=2) == "root/2 is done"
    else:
        assert await run(root, concurrent=2) == ("root/one", "root/2", "root", "root/one")


async def test_a_cycle_over_two_trees_of_one_run_is_found(autojump_clock):
    class Waits(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            return await told(message.result)

    async with open_supervisor([ChildSpec("waits", Waits)]) as top:
        waits = (await top.which_child("waits")).ref

        async def root(agent: Agent) -> Any:
            return await waits.ask(await agent.spawn(quick))

        assert await run(root) == ("top/waits", "root/1", "root", "top/waits")


# ── no cycles ───────────────────────────────────────────────────────────────


async def test_a_holder_that_lends_its_slot_while_it_asks_closes_no_cycle(autojump_clock):
    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        waits = clerk(agent)
        async with agent.waiting():
            return await waits.ask(child)

    assert await run(root) == "root/1 is done"


async def test_a_holder_whose_other_task_may_lend_the_slot_closes_no_cycle(autojump_clock):
    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)

        async def lends() -> None:
            await trio.sleep(3)
            async with agent.waiting():
                await child.exit()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lends)
            return await clerk(agent).ask(child)

    assert await run(root) == "root/1 is done"


async def test_an_agent_with_a_slot_is_waited_for_while_another_stands_in_line(autojump_clock):
    async def slow(agent: Agent) -> str:
        await trio.sleep(5)
        return "slow"

    async def root(agent: Agent) -> Any:
        first, second = await agent.spawn(slow), await agent.spawn(quick)
        assert (first.queued, second.queued) == (False, True)
        # The second waits for a slot, and the first one, which works, will give its own back.
        return await clerk(agent).ask(second)

    assert await run(root, concurrent=2) == "root/2 is done"


async def test_a_child_that_was_stopped_in_line_leads_nowhere(autojump_clock):
    async def awaits_end(handle: ChildHandle[Any], _call: Call | None) -> Any:
        return await told(handle.exit)

    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        child._child.order_stop("not needed")
        # Its task has not run since, and it is no more in line than it will ever be.
        return await clerk(agent, awaits_end).ask(child)

    assert (await run(root)).reason == "shutdown"


async def test_a_wait_for_a_slot_that_was_granted_or_cancelled_leaves_no_mark(autojump_clock):
    children: list[Agent] = []

    async def root(agent: Agent) -> None:
        made = [await agent.spawn(quick) for _ in range(3)]
        children.extend(handle._child for handle in made)
        slots = agent.tree.slots
        assert [child.awaits for child in children] == [slots] * 3
        await made[1].stop()
        assert [child.awaits for child in children] == [slots, None, slots]
        slots.give_back(agent)
        # Granted in this step; its task has not run.
        assert [child.awaits for child in children] == [None, None, slots]
        await slots.take_again(agent)
        await agent.drain()
        assert agent.awaits is None

    await run(root)
    assert [child.awaits for child in children] == [None] * 3


async def test_a_wait_that_ran_out_of_time_leaves_nothing_that_would_refuse_a_later_one(autojump_clock):
    async def awaits_a_while(handle: ChildHandle[Any], _call: Call | None) -> Any:
        with trio.move_on_after(2):
            return await told(handle.result)
        return "too slow"

    async def awaits_long(handle: ChildHandle[Any], _call: Call | None) -> Any:
        await trio.sleep(1)
        return await told(handle.result)

    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        waits, late = clerk(agent, awaits_a_while), clerk(agent, awaits_long, "late")
        waits.tell(child)
        await trio.sleep(0.5)
        with pytest.raises(WouldDeadlock):
            await waits.ask(child)
        # The clerk waits no more; asked again it is the one that is told.
        await trio.sleep(2)
        cycle = await waits.ask(child)
        with pytest.raises(trio.TooSlowError):
            await late.ask(child, timeout=0.5)
        # The ask is over when the other begins to wait, so nothing is closed.
        await trio.sleep(2)
        assert [wait.waiter.path for wait in agent.host.waits.waits_of(late._actor)] == ["root/late"]  # type: ignore[attr-defined]
        await child.result()
        return cycle

    assert await run(root) == ("root/clerk", "root/1", "root", "root/clerk")


async def test_whoever_was_granted_money_and_has_not_run_yet_waits_for_nobody(autojump_clock):
    async def needs(agent: Agent) -> str:
        held = await agent.ledger.reserve(60)
        await agent.ledger.settle(held, 1)  # type: ignore[arg-type]
        return "served"

    async def root(agent: Agent) -> str:
        first, second = await agent.ledger.reserve(60), await agent.ledger.reserve(40)
        child = await agent.spawn(needs)
        await trio.sleep(1)
        await agent.ledger.settle(first, 0)  # type: ignore[arg-type]
        # It has what it wanted in this very step, though something is held here still.
        assert await child.result() == "served"
        await agent.ledger.settle(second, 1)  # type: ignore[arg-type]
        return "done"

    tree = open_tree(limits(4, tokens=100))
    async with tree:
        assert await tree.run(root) == "done"
    assert tree.ledger.spent_tokens == 2 and len(tree.host.waits) == 0


async def test_whoever_holds_money_in_another_task_may_settle_it_there(autojump_clock):
    async def needs(agent: Agent) -> str:
        held = await agent.ledger.reserve(60)
        await agent.ledger.settle(held, 1)  # type: ignore[arg-type]
        return "served"

    async def root(agent: Agent) -> str:
        held = await agent.ledger.reserve(60)
        child = await agent.spawn(needs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(settle_later, agent, held)
            return await child.result()

    tree = open_tree(limits(4, tokens=100))
    async with tree:
        assert await tree.run(root) == "served"
    assert tree.ledger.spent_tokens == 2 and len(tree.host.waits) == 0


async def test_an_agent_whose_other_task_will_settle_waits_for_its_own_money(autojump_clock):
    async def root(agent: Agent) -> float:
        began = trio.current_time()
        first = await agent.ledger.reserve(60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(settle_later, agent, first)
            second = await agent.ledger.reserve(60)
            waited = trio.current_time() - began
            await agent.ledger.settle(second, 1)  # type: ignore[arg-type]
        return waited

    assert await run(root, tokens=100) == 5


async def test_an_uncontended_slot_is_taken_and_given_back_without_a_look_at_the_graph(autojump_clock, monkeypatch):
    looks: list[str] = []

    async def root(agent: Agent) -> list[bool]:
        for name in ("begin", "check", "end"):
            monkeypatch.setattr(WaitGraph, name, lambda *_args, name=name, **_more: looks.append(name))
        held: list[bool] = []
        for _ in range(3):
            async with agent.waiting():
                await trio.lowlevel.checkpoint()
                held.append(agent.holds_slot)
            held.append(agent.holds_slot)
        monkeypatch.undo()
        return held

    assert await run(root) == [False, True] * 3
    assert looks == []


async def test_an_agent_that_fails_for_a_cycle_names_it_to_whoever_awaits_it(autojump_clock):
    async def child(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep(5)

    async def awaits(handle: ChildHandle[Any], _call: Call | None) -> Any:
        try:
            await handle.result()
        except ChildFailed as failed:
            return str(failed.__cause__)

    async def root(agent: Agent) -> Any:
        handle = await agent.spawn(child)
        async with agent.waiting():
            await trio.sleep(1)
        return await clerk(agent, awaits).ask(handle)

    assert "root/1 waits for a slot held by root;" in await run(root)


async def test_an_actor_that_ends_of_the_cycle_tells_the_holder_that_asked_it(autojump_clock):
    async def lets_it_through(handle: ChildHandle[Any], _call: Call | None) -> Any:
        return await handle.result()

    async def root(agent: Agent) -> Any:
        child = await agent.spawn(quick)
        with pytest.raises(ActorGone) as gone:
            await clerk(agent, lets_it_through).ask(child)
        assert isinstance(gone.value.__cause__, WouldDeadlock)
        return await child.result()

    assert await run(root) == "root/1 is done"


async def test_an_agent_that_lends_its_slot_by_its_wait_is_no_holder_in_that_wait(autojump_clock):
    async def asks(agent: Agent, waits: Ref[Any], late: list[ChildHandle[Any]]) -> Any:
        await trio.sleep(1)
        return await waits.ask(late[0])

    async def root(agent: Agent) -> Any:
        late: list[ChildHandle[Any]] = []
        holds = await agent.spawn(asks, clerk(agent), late)
        late.append(await agent.spawn(quick))
        await trio.sleep(2)
        # The other holder waits for the one in line, and the slot of this one comes back by this very wait.
        return await holds.result()

    assert await run(root, concurrent=2) == "root/2 is done"


async def test_an_agent_that_stands_in_line_for_money_is_no_holder_of_a_slot(autojump_clock):
    async def holds_money(agent: Agent, waits: Ref[Any], late: list[ChildHandle[Any]]) -> Any:
        held = await agent.ledger.reserve(60)
        await trio.sleep(1)
        answer = await waits.ask(late[0])
        await agent.ledger.settle(held, 1)  # type: ignore[arg-type]
        return answer

    async def root(agent: Agent) -> Any:
        late: list[ChildHandle[Any]] = []
        holds = await agent.spawn(holds_money, clerk(agent), late)
        late.append(await agent.spawn(quick))
        await trio.sleep(2)
        # Money comes when the clerk has answered, for which the last child needs the slot that this wait lends.
        held = await agent.ledger.reserve(60)
        await agent.ledger.settle(held, 1)  # type: ignore[arg-type]
        return await holds.result()

    assert await run(root, concurrent=2, tokens=100) == "root/2 is done"
