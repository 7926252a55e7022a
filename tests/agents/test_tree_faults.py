"""Faults that were found by breaking the tree, each as a test."""

from typing import Any

import pytest
import trio

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.agents.unrecorded import Unrecorded
from actors.assembly.trees import open_tree as recorded_tree
from actors.containment.ledger_state import Draw
from actors.containment.limits import Containment
from actors.errors import (
    ActorsError,
    ChildFailed,
    ConfigError,
    Halted,
    Stopping,
    StoreError,
    StoreErrorKind,
)
from actors.halts import HaltKind
from actors.runtime.exits import Reason
from actors.store.store import Store


def limits(concurrent: int = 64, tokens: int = 10**6, **more: Any) -> Containment:
    return Containment(1000, concurrent, 4, tokens, **more)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class UnspeakableBase(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Bench:
    """Counts who works at one time, from the outside."""

    def __init__(self) -> None:
        self.at_work: set[str] = set()
        self.peak = 0

    async def work(self, name: str, seconds: float) -> None:
        self.at_work.add(name)
        self.peak = max(self.peak, len(self.at_work))
        await trio.sleep(seconds)
        self.at_work.discard(name)


class Failing(Unrecorded):
    """A store of somebody else's, whose ways to write fail from some moment on."""

    def __init__(self, *ways: str) -> None:
        self.ways = ways

    def _fail(self, way: str) -> None:
        if way in self.ways:
            raise StoreError(StoreErrorKind.full, "theirs", "no room")

    async def append(self, *rows: Any) -> None:
        self._fail("append")

    def append_nowait(self, *rows: Any) -> None:
        self._fail("append_nowait")

    async def commit(self, *rows: Any) -> None:
        self._fail("commit")


async def test_an_exception_without_a_text_is_an_end_like_any_other(autojump_clock: trio.testing.MockClock) -> None:
    async def leaf(_agent: Agent) -> None:
        raise Unspeakable

    async def root(agent: Agent) -> str:
        exit = await (await agent.spawn(leaf)).exit()
        assert exit.reason is Reason.error and "cannot be had" in str(exit)
        return "went on"

    with trio.fail_after(5):
        async with recorded_tree(limits()) as tree:
            assert await tree.run(root) == "went on"
    assert tree.leaks().empty


async def test_a_fatal_exception_without_a_text_surfaces_too(autojump_clock: trio.testing.MockClock) -> None:
    async def root(_agent: Agent) -> None:
        raise UnspeakableBase

    with trio.fail_after(5), pytest.raises(UnspeakableBase):
        async with recorded_tree(limits()) as tree:
            await tree.run(root)


@pytest.mark.parametrize("ways", [("append_nowait",), ("commit",), ("append",), ("append_nowait", "append", "commit")])
async def test_a_store_that_fails_hangs_nobody_and_is_told_at_the_end(
    ways: tuple[str, ...], autojump_clock: trio.testing.MockClock
) -> None:
    async def leaf(_agent: Agent) -> None:
        await trio.sleep(1)

    async def root(agent: Agent) -> int:
        for _ in range(3):
            await agent.spawn(leaf)
        return 7

    with trio.fail_after(100), pytest.raises((StoreError, ChildFailed)):
        async with open_tree(limits(concurrent=2), store=Failing(*ways)) as tree:
            await tree.run(root)
    assert tree.leaks().empty


async def test_a_tree_that_is_halted_before_it_runs_starts_nobody() -> None:
    async def root(_agent: Agent) -> None:
        raise AssertionError("it ran")

    async with open_tree(limits()) as tree:
        receipt = await tree.halt(reason="never mind")
        assert receipt.stopped == ()
        with pytest.raises(Halted, match="never mind"):
            await tree.run(root)


async def test_a_tree_is_run_and_halted_inside_its_block_only() -> None:
    async def root(_agent: Agent) -> int:
        return 1

    tree = open_tree(limits())
    with pytest.raises(ActorsError, match="inside its block"):
        await tree.run(root)
    with pytest.raises(ActorsError, match="inside its block"):
        await tree.halt()
    async with tree:
        await tree.run(root)
    assert (await tree.halt()).complete
    other = open_tree(limits())
    async with other:
        pass
    with pytest.raises(ActorsError, match="inside its block"):
        await other.run(root)


async def test_a_local_timeout_around_a_wait_puts_nobody_to_work_without_a_slot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()

    async def leaf(agent: Agent) -> None:
        await bench.work(agent.path, 0.5)

    async def root(agent: Agent) -> None:
        children = [await agent.spawn(leaf) for _ in range(3)]
        with trio.move_on_after(0.1):
            await children[0].result()
        await bench.work("root", 0.2)
        for child in children:
            await child.result()

    async with open_tree(limits(concurrent=1)) as tree:
        await tree.run(root)
    assert bench.peak == tree.slots.peak_working == 1


async def test_several_waits_of_one_behaviour_never_work_without_its_slot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bench = Bench()

    async def leaf(agent: Agent) -> None:
        await bench.work(agent.path, 0.5)

    async def root(agent: Agent) -> None:
        children = [await agent.spawn(leaf) for _ in range(2)]

        async def long_wait() -> None:
            async with agent.waiting():
                await trio.sleep(0.1)

        async def late_wait() -> None:
            await trio.sleep(0.2)
            async with agent.waiting():
                await trio.sleep(0.05)
            await bench.work("root", 0.2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(long_wait)
            nursery.start_soon(late_wait)
        for child in children:
            await child.result()

    async with open_tree(limits(concurrent=1)) as tree:
        await tree.run(root)
    assert bench.peak == 1 and tree.leaks().empty


async def test_an_agent_that_stands_in_line_can_be_stopped(autojump_clock: trio.testing.MockClock) -> None:
    async def busy(_agent: Agent) -> None:
        await trio.sleep(1000)

    async def waits(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep(1)

    async def root(agent: Agent) -> float:
        async with agent.waiting():
            waiter = await agent.spawn(waits)
            await trio.sleep(0.5)
            await agent.spawn(busy)
            await trio.sleep(1)
            receipt = await waiter.stop("enough")
            assert receipt.complete
            return trio.current_time()

    async with open_tree(limits(concurrent=1, max_total_duration=50)) as tree:
        # The root's work is over at 1.5 s; its other child is cut by the ceiling while the root waits for it.
        assert await tree.run(root) == 1.5
        assert trio.current_time() == 50
    assert tree.receipt is not None and tree.receipt.complete and tree.leaks().empty


async def test_a_child_that_was_stopped_in_the_queue_can_be_listed(autojump_clock: trio.testing.MockClock) -> None:
    store = Store.memory()

    async def leaf(_agent: Agent) -> None:
        raise AssertionError("it ran")

    async def root(agent: Agent) -> None:
        child = await agent.spawn(leaf)
        await trio.sleep(1)
        await child.stop("no")

    async with recorded_tree(limits(concurrent=1), store=store) as tree:
        await tree.run(root)
    agents = store.agents(tree.run_id)
    assert [(agent.path, agent.outcome) for agent in agents] == [("root", "finished"), ("root/1", "cancelled")]
    assert all(store.terminal(agent.run_id) for agent in agents)


@pytest.mark.parametrize("leaf", [True, False])
async def test_a_stray_cancelled_is_the_end_of_its_child_alone(leaf: bool) -> None:
    async def stray(_agent: Agent) -> None:
        kept: BaseException | None = None
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                kept = cancelled
                raise
        assert kept is not None
        raise kept

    async def sibling(_agent: Agent) -> str:
        await trio.lowlevel.checkpoint()
        return "fine"

    async def root(agent: Agent) -> str:
        bad = await agent.spawn(stray, limits=AgentLimits(leaf=leaf))
        good = await agent.spawn(sibling)
        assert (await bad.exit()).reason is Reason.error
        return await good.result()

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == "fine"


async def test_a_halt_that_comes_back_through_an_own_nursery_is_still_the_halt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def leaf(agent: Agent) -> None:
        await trio.sleep(0.05)
        assert await agent.ledger.draw_tokens(2_000) is Draw.halted
        await trio.sleep(5)

    async def root(agent: Agent) -> None:
        children = [await agent.spawn(leaf) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for child in children:
                nursery.start_soon(child.result)

    with pytest.raises(Halted) as caught:
        async with open_tree(limits(tokens=1_000)) as tree:
            await tree.run(root)
    assert caught.value.halt.kind is HaltKind.tokens


def test_every_public_name_can_be_imported() -> None:
    import actors

    for name in actors.__all__:
        assert getattr(actors, name) is not None
    with pytest.raises(AttributeError):
        actors.nothing  # noqa: B018


@pytest.mark.parametrize("value", [10**400, {"secs": 10**400, "nanos": 0}])
def test_a_duration_beyond_all_clocks_is_a_config_error(value: Any) -> None:
    plain = {"max_total_agents": 1, "max_concurrent": 1, "max_depth": 1, "max_total_tokens": 1}
    with pytest.raises(ConfigError):
        Containment.from_dict({**plain, "max_total_duration": value})


# ── handles in other hands ──────────────────────────────────────────────────


async def test_a_sibling_that_awaits_a_handle_gives_back_its_own_slot(autojump_clock):
    async def slow(_agent: Agent) -> str:
        await trio.sleep(1)
        return "slow"

    async def waiter(agent: Agent, box: list[Any]) -> tuple[str, bool]:
        said = await box[0].result()
        return said, agent.holds_slot

    async def root(agent: Agent) -> tuple[str, bool]:
        box: list[Any] = []
        child = await agent.spawn(waiter, box)
        box.append(await agent.spawn(slow))
        return await child.result()

    async with open_tree(limits(concurrent=1, max_total_duration=60)) as tree:
        assert await tree.run(root) == ("slow", True)
    assert tree.slots.peak_working == 1


async def test_a_task_outside_that_awaits_handles_lends_out_nobodys_slot(autojump_clock):
    bench = Bench()
    ends: list[Reason] = []

    async def busy(agent: Agent) -> None:
        await bench.work(agent.path, 1)

    async def root(agent: Agent, send: trio.MemorySendChannel[Any]) -> None:
        for _ in range(3):
            send.send_nowait(await agent.spawn(busy))
        await bench.work("root", 4)
        assert agent.holds_slot

    async def report(receive: trio.MemoryReceiveChannel[Any]) -> None:
        ends.extend([(await handle.exit()).reason async for handle in receive])

    send, receive = trio.open_memory_channel[Any](9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report, receive)
        async with open_tree(limits(concurrent=1)) as tree:
            await tree.run(root, send)
        send.close()
    assert bench.peak == tree.slots.peak_working == 1
    assert ends == [Reason.normal] * 3


async def test_nobody_spawns_below_an_agent_whose_work_is_over_and_the_ledger_lives_on(autojump_clock):
    refusals: list[str] = []

    async def leaf(_agent: Agent) -> int:
        return 1

    async def child_that_stays(_agent: Agent) -> None:
        await trio.sleep(5)

    async def ender(agent: Agent, box: list[Agent], turns: int) -> None:
        box.append(agent)
        await agent.spawn(child_that_stays)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()

    async def prober(agent: Agent, box: list[Agent]) -> None:
        while not box:
            await trio.lowlevel.checkpoint()
        with pytest.raises(Stopping, match="is ending"):
            while True:
                await box[0].spawn(leaf)
                await trio.lowlevel.checkpoint()
        refusals.append(agent.path)
        assert await agent.ledger.draw_tokens(1) is Draw.ok

    async def root(agent: Agent, turns: int) -> None:
        box: list[Agent] = []
        children = [await agent.spawn(ender, box, turns), await agent.spawn(prober, box)]
        for child in children:
            assert (await child.exit()).reason is Reason.normal

    for turns in range(8):
        async with open_tree(limits()) as tree:
            await tree.run(root, turns)
        assert tree.leaks().empty
        assert tree.ledger.agents == tree.slots.total().done
    assert len(refusals) == 8


async def test_an_agent_that_asks_for_its_own_stop_is_told_at_once(autojump_clock):
    async def below(agent: Agent, box: list[Any]) -> float:
        began = trio.current_time()
        with pytest.raises(ActorsError, match=r"root/1/1 cannot wait for the stop of root/1, which is its own stop"):
            await box[0].stop()
        return trio.current_time() - began

    async def middle(agent: Agent, box: list[Any]) -> float:
        await trio.sleep(1)
        with pytest.raises(ActorsError, match=r"root/1 cannot wait for the stop of root/1, which is its own stop"):
            await box[0].stop()
        return await (await agent.spawn(below, box)).result()

    async def root(agent: Agent) -> float:
        box: list[Any] = []
        child = await agent.spawn(middle, box)
        box.append(child)
        return await child.result()

    async with open_tree(limits()) as tree:
        assert await tree.run(root) == 0


# ── halts at the edges ──────────────────────────────────────────────────────


async def test_no_halt_comes_after_the_end_of_the_root(autojump_clock):
    store = Store.memory()
    tree = recorded_tree(limits(max_total_duration=10), store=store)

    async def root(_agent: Agent) -> str:
        return "done"

    async with tree:
        assert await tree.run(root) == "done"
        assert not tree.halt_nowait()
        await trio.sleep(20)
        assert tree.ledger.halted is None
        assert (await tree.halt()).not_ended == ()
    assert not tree.halt_nowait()
    run = store.run(tree.run_id)
    assert run is not None
    assert (run.status, run.outcome) == ("completed", "finished")
    assert store.select("SELECT count(*) FROM halts") == [(0,)]


async def test_agents_that_get_their_turn_after_a_halt_begin_nothing(autojump_clock):
    begun: list[str] = []

    class SlowHalt(Unrecorded):
        async def commit(self, *rows: Any) -> None:
            await trio.sleep(0.5)

    async def drawing(agent: Agent) -> None:
        begun.append(agent.path)
        await trio.sleep(1 + len(begun) / 100)
        await agent.ledger.draw_tokens(100)

    async def root(agent: Agent) -> None:
        for _ in range(50):
            await agent.spawn(drawing)
        async with agent.waiting():
            await trio.sleep(10)

    tree = open_tree(limits(concurrent=8, tokens=350), store=SlowHalt())
    with pytest.raises(Halted):
        async with tree:
            await tree.run(root)
    # Three draws fit and each let one more begin; the fourth latched.
    assert len(begun) == 8 + 3
    assert tree.slots.total().done == 51
    assert tree.leaks().empty


# ── stopped on the way back ─────────────────────────────────────────────────


async def test_an_agent_that_is_stopped_while_it_comes_back_from_a_child_goes_on_with_nothing(autojump_clock):
    went_on: list[str] = []

    async def quick(_agent: Agent) -> None:
        await trio.sleep(1)

    async def hog(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep(0.5)
        await trio.sleep(20)

    async def parent(agent: Agent) -> None:
        await (await agent.spawn(quick)).exit()
        went_on.append(agent.path)

    async def root(agent: Agent) -> None:
        await agent.spawn(hog)
        handle = await agent.spawn(parent)
        async with agent.waiting():
            await trio.sleep(5)
            # The hog holds the one slot; the parent's wait is over, and it stands in line.
            await handle.stop()

    async with open_tree(limits(concurrent=1)) as tree:
        await tree.run(root)
    assert went_on == [] and tree.leaks().empty
