"""Slots: the cap is the cap at every instant, and whoever comes back goes first."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.containment.slots import MOVES, Seat, Slots, Tally


@attrs.define(eq=False)
class Worker:
    depth: int = 0
    seat: Seat = Seat.fresh
    awaits: Any = None


async def test_a_slot_is_granted_in_the_order_of_coming(autojump_clock: trio.testing.MockClock) -> None:
    slots = Slots(1)
    log: list[str] = []

    async def work(name: str, delay: float) -> None:
        worker = Worker()
        await trio.sleep(delay)
        await slots.enter(worker)
        log.append(f"{trio.current_time() - began:g}s {name}")
        await trio.sleep(10)
        slots.leave(worker)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for delay, name in enumerate("abc"):
            nursery.start_soon(work, name, float(delay))
    assert log == ["0s a", "10s b", "20s c"]
    assert slots.total() == Tally(done=3)
    assert slots.out == 0


async def test_an_agent_that_comes_back_goes_before_one_that_never_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slots = Slots(1)
    log: list[str] = []
    parent, fresh = Worker(), Worker(1)

    async def child_that_waits_long() -> None:
        await slots.enter(fresh)
        log.append("fresh")
        slots.leave(fresh)

    await slots.enter(parent)
    slots.give_back(parent)
    other = Worker(1)
    await slots.enter(other)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(child_that_waits_long)
        await trio.sleep(1)
        assert slots.queued == 1

        async def comes_back() -> None:
            await slots.take_again(parent)
            log.append("parent")
            slots.leave(parent)

        nursery.start_soon(comes_back)
        await trio.sleep(1)
        slots.leave(other)
    assert log == ["parent", "fresh"]


async def test_a_cancelled_wait_is_out_of_the_line_and_holds_nothing(autojump_clock: trio.testing.MockClock) -> None:
    slots = Slots(1)
    holder, queued, returning = Worker(), Worker(), Worker()
    await slots.enter(holder)
    with trio.move_on_after(1):
        await slots.enter(queued)
    assert queued.seat is Seat.queued and slots.queued == 0
    slots.leave(queued)
    slots.leave(holder)
    await slots.enter(returning)
    slots.give_back(returning)
    blocker = Worker()
    await slots.enter(blocker)
    with trio.move_on_after(1):
        await slots.take_again(returning)
    assert returning.seat is Seat.waiting
    slots.leave(blocker)
    slots.leave(returning)
    assert slots.out == 0 and slots.total() == Tally(done=4)


async def test_a_grant_and_a_cancel_in_one_step_leak_nothing() -> None:
    slots = Slots(1)
    holder, waiter = Worker(), Worker()
    await slots.enter(holder)

    async def wait() -> None:
        with scope:
            await slots.enter(waiter)
            await trio.sleep_forever()
        slots.leave(waiter)

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        slots.leave(holder)
        scope.cancel()
    assert slots.out == 0


async def test_BR14_taking_twice_is_an_error_and_not_a_wait() -> None:
    slots = Slots(1)
    worker = Worker()
    await slots.enter(worker)
    with pytest.raises(AssertionError):
        await slots.enter(worker)
    with pytest.raises(AssertionError):
        await slots.take_again(Worker())


def test_every_seat_has_a_row() -> None:
    assert set(MOVES) == set(Seat)


steps = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["enter", "back", "again", "leave", "cancel"])))


@given(st.integers(1, 3), steps)
@settings(max_examples=300, deadline=None)
def test_BR38_no_schedule_passes_the_cap_or_leaks(cap: int, schedule: list[tuple[int, str]]) -> None:
    async def main() -> None:
        slots = Slots(cap)
        workers = [Worker(depth=number % 3) for number in range(8)]
        scopes: list[trio.CancelScope | None] = [None] * 8
        peak = 0

        async def guarded(number: int, take: Callable[[Worker], object]) -> None:
            scope = scopes[number] = trio.CancelScope()
            with scope:
                await take(workers[number])  # type: ignore[misc]
            scopes[number] = None

        async with trio.open_nursery() as nursery:
            for number, act in schedule:
                worker = workers[number]
                if act == "enter" and worker.seat is Seat.fresh:
                    nursery.start_soon(guarded, number, slots.enter)
                elif act == "back" and worker.seat is Seat.working:
                    slots.give_back(worker)
                elif act == "again" and worker.seat is Seat.waiting:
                    nursery.start_soon(guarded, number, slots.take_again)
                elif act == "leave" and scopes[number] is None:
                    slots.leave(worker)
                elif act == "cancel" and (scope := scopes[number]) is not None:
                    scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                working = sum(each.seat is Seat.working for each in workers)
                assert working == slots.out <= cap
                waits = slots.queued + sum(each.seat is Seat.returning for each in workers)
                assert not waits or slots.out == cap
                peak = max(peak, working)
            nursery.cancel_scope.cancel()
        for worker in workers:
            slots.leave(worker)
        assert slots.out == 0 and slots.peak_working == peak
        assert slots.total().working == slots.total().waiting == slots.total().queued == 0

    trio.run(main)


async def test_a_place_in_line_is_taken_before_the_task_runs_and_a_later_one_overtakes_nobody() -> None:
    slots = Slots(1)
    holder, first, second = Worker(), Worker(), Worker()
    assert slots.line_up(holder)
    assert not slots.line_up(first)
    assert not slots.line_up(second)
    # Granted before any task of it has come to wait.
    slots.leave(holder)
    assert first.seat is Seat.working and second.seat is Seat.queued
    await slots.wait_turn(first)
    slots.leave(first)
    await slots.wait_turn(second)
    slots.leave(second)
    assert slots.out == 0 and slots.queued == 0


async def test_an_agent_that_leaves_the_line_before_its_task_runs_is_never_served() -> None:
    slots = Slots(1)
    holder, first, second = Worker(), Worker(), Worker()
    for worker in (holder, first, second):
        slots.line_up(worker)
    slots.leave(first)
    assert slots.queued == 1
    slots.leave(holder)
    assert first.seat is Seat.done and second.seat is Seat.working


async def test_a_promoted_agent_goes_before_the_queued_and_after_those_who_come_back() -> None:
    slots = Slots(1)
    parent, holder, first, second = Worker(), Worker(), Worker(), Worker()
    slots.line_up(parent)
    slots.give_back(parent)
    for worker in (holder, first, second):
        slots.line_up(worker)
    assert slots.promote(second) and not slots.promote(holder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slots.take_again, parent)
        await trio.testing.wait_all_tasks_blocked()
        slots.leave(holder)
        assert parent.seat is Seat.working
        slots.leave(parent)
    assert second.seat is Seat.working and first.seat is Seat.queued


async def test_whoever_stands_in_line_is_marked_until_the_step_that_grants_a_slot() -> None:
    slots = Slots(1)
    holder, back, fresh = Worker(), Worker(), Worker()
    await slots.enter(back)
    assert (slots.awaits, back.awaits) == ((back,), None)
    slots.give_back(back)
    assert slots.awaits is None
    assert slots.line_up(holder)
    assert not slots.line_up(fresh)

    async def come_back() -> None:
        slots.mark(back)
        await slots.take_again(back)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        await trio.testing.wait_all_tasks_blocked()
        assert (slots.awaits, back.awaits, fresh.awaits) == ((holder,), slots, slots)
        slots.leave(holder)
        # Its task has not run since.
        assert (slots.awaits, back.awaits, fresh.awaits) == ((back,), None, slots)
    slots.leave(fresh)
    assert fresh.awaits is None
    back.awaits = "the end of a child"
    slots.unmark(back)
    assert back.awaits == "the end of a child"
