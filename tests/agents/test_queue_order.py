"""Who gets the next slot: the first that was spawned, or parents in turn; and what can be done to whoever waits."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import pytest
import trio

from actors.agents.agent import Agent
from actors.agents.child_handle import ChildHandle
from actors.agents.outcomes import OutcomeKind
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.containment.lines import QueueOrder
from actors.halts import HaltKind
from actors.runtime.exits import Reason
from actors.store.store import Store

LIMITS = Containment(1_000, 1, 8, 10**9)


async def _note(agent: Agent, log: list[str]) -> None:
    log.append(agent.path)
    await trio.sleep(1)


@pytest.mark.parametrize("cap", [1, 3])
async def test_children_get_their_slots_in_the_order_of_their_spawns(
    autojump_clock: trio.testing.MockClock, cap: int
) -> None:
    log: list[str] = []

    async def root(agent: Agent) -> None:
        # No yield between the spawns but their own checkpoints: trio starts the tasks of one batch in any order.
        for child in [await agent.spawn(_note, log) for _ in range(60)]:
            await child.exit()

    async with open_tree(Containment(1_000, cap, 8, 10**9)) as tree:
        await tree.run(root)
    began = [log[start : start + cap] for start in range(0, 60, cap)]
    wanted = [f"root/{number}" for number in range(1, 61)]
    # Those of one batch have their slots at the same moment; which of their tasks runs first is the scheduler's.
    assert [sorted(batch) for batch in began] == [sorted(wanted[start : start + cap]) for start in range(0, 60, cap)]


async def _parents(order: QueueOrder | Literal["fifo", "fair"], log: list[str]) -> None:
    async def parent(agent: Agent, gate: trio.Event, done: trio.Event, children: int) -> None:
        async with agent.waiting():
            await gate.wait()
        held = [await agent.spawn(_note, log) for _ in range(children)]
        done.set()
        for child in held:
            await child.exit()

    async def root(agent: Agent) -> None:
        gates = [(trio.Event(), trio.Event()) for _ in range(2)]
        wide = await agent.spawn(parent, *gates[0], 4)
        narrow = await agent.spawn(parent, *gates[1], 2)
        async with agent.waiting():
            for gate, done in gates:
                gate.set()
                await done.wait()
        await wide.exit()
        await narrow.exit()

    async with open_tree(LIMITS, queue_order=order) as tree:
        await tree.run(root)


async def test_fifo_is_over_the_whole_tree(autojump_clock: trio.testing.MockClock) -> None:
    log: list[str] = []
    await _parents(QueueOrder.fifo, log)
    assert log == [*(f"root/1/{number}" for number in range(1, 5)), "root/2/1", "root/2/2"]


async def test_fair_lets_parents_take_turns(autojump_clock: trio.testing.MockClock) -> None:
    log: list[str] = []
    await _parents("fair", log)
    # root/1/1 was served before its parent had a rival; from then on they take turns.
    assert log == ["root/1/1", "root/1/2", "root/2/1", "root/1/3", "root/2/2", "root/1/4"]


async def test_a_queue_order_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="lifo"):
        open_tree(LIMITS, queue_order="lifo")  # type: ignore[arg-type]


async def _with_a_queued_child(
    store: Store, stop: Callable[[ChildHandle[None], ChildHandle[None]], Awaitable[None]]
) -> tuple[ChildHandle[None], list[str], list[dict[str, Any]]]:
    """Hold the only slot with one child, queue two behind it, and do something to them."""
    log: list[str] = []
    seen: list[dict[str, Any]] = []
    queued: list[ChildHandle[None]] = []

    class Watch:
        def event(self, event: Mapping[str, Any]) -> None:
            seen.append(dict(event))

    async def root(agent: Agent) -> None:
        async with agent.waiting():
            holder = await agent.spawn(_note, log)
            queued.extend([await agent.spawn(_note, log), await agent.spawn(_note, log)])
            await stop(queued[0], queued[1])
        for child in (holder, *queued):
            await child.exit()

    async with open_tree(LIMITS, store=store, observer=Watch()) as tree:
        await tree.run(root)
        assert tree.leaks().empty and tree.slots.queued == 0
    return queued[0], log, seen


async def test_a_queued_child_that_is_stopped_never_runs_and_leaves_the_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store.memory()

    async def stop(first: ChildHandle[None], _second: ChildHandle[None]) -> None:
        assert not first.done and first.queued
        receipt = await first.stop("not needed")
        assert receipt.complete and [line.path for line in receipt.stopped] == [first.path]
        assert not first.queued

    child, log, seen = await _with_a_queued_child(store, stop)
    assert log == ["root/1", "root/3"]
    end = await child.exit()
    assert end.reason is Reason.shutdown and "not needed" in str(end)
    assert child.outcome is not None and child.outcome.kind is OutcomeKind.cancelled
    assert child.outcome.halt is not None and child.outcome.halt.kind is HaltKind.parent
    # One row with the one terminal; nothing in the queue; no step and no spend.
    assert store.select("select count(*) from agent_queue") == [(0,)]
    [row] = store.select("select status, outcome, steps, spent_tokens from runs where run_id = ?", [child.run_id])
    assert row == ("completed", "cancelled", 0, 0)
    assert ("spawn", child.run_id) in store.select("select kind, child_run_id from agent_events")
    kinds = [event["kind"] for event in seen if event["path"] == child.path]
    assert kinds == ["finished"]
    fleets = [event for event in seen if event["kind"] == "fleet"]
    assert [event["queued"] for event in fleets] == [1, 2, 1, 0]
    assert {event["path"] for event in fleets} == {"root"}


async def test_a_queued_child_has_no_run_and_no_spend_but_a_row_in_the_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store.memory()

    async def look(first: ChildHandle[None], _second: ChildHandle[None]) -> None:
        assert store.select("select step, ordinal from agent_queue order by ordinal") == [(0, 2), (0, 3)]
        assert store.select("select count(*) from runs where run_id = ?", [first.run_id]) == [(0,)]

    await _with_a_queued_child(store, look)
    assert store.select("select count(*) from agent_queue") == [(0,)]


async def test_an_operator_can_let_a_queued_child_go_first(autojump_clock: trio.testing.MockClock) -> None:
    async def promote(_first: ChildHandle[None], second: ChildHandle[None]) -> None:
        assert second.promote()

    child, log, _seen = await _with_a_queued_child(Store.memory(), promote)
    assert log == ["root/1", "root/3", "root/2"]
    assert not child.promote()


async def test_a_child_that_is_stopped_between_its_grant_and_its_first_step_gives_the_slot_on() -> None:
    log: list[str] = []

    async def root(agent: Agent) -> None:
        async with agent.waiting():
            # It has its slot from the spawn on; its task has not run.
            first = await agent.spawn(_note, log)
            second = await agent.spawn(trio_nothing, log)
            await first.stop()
        await second.exit()

    async def trio_nothing(agent: Agent, log: list[str]) -> None:
        log.append(agent.path)

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
        assert tree.leaks().empty
    assert log[-1] == "root/2"


async def test_a_fleet_that_never_queues_writes_no_queue_rows() -> None:
    store = Store.memory()
    seen: list[str] = []

    class Watch:
        def event(self, event: Mapping[str, Any]) -> None:
            seen.append(event["kind"])

    async def child(_agent: Agent) -> None:
        return None

    async def root(agent: Agent) -> None:
        for held in [await agent.spawn(child) for _ in range(5)]:
            await held.exit()

    async with open_tree(Containment(10, 6, 2, 100), store=store, observer=Watch()) as tree:
        await tree.run(root)
    assert "fleet" not in seen


async def test_an_agent_that_is_stopped_while_it_waits_needs_no_slot_to_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()

    async def waits(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep_forever()

    async def root(agent: Agent) -> None:
        child = await agent.spawn(waits)
        async with agent.waiting():
            await trio.sleep(1)
        # The only slot is held by the one who asks.
        assert agent.holds_slot
        receipt = await child.stop()
        assert receipt.complete and (await child.exit()).reason is Reason.shutdown

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
    assert trio.current_time() - began == 1
