"""The ledger actor: atomic without a lock, exact under any fan-out."""

import pytest
import trio

from actors.containment.ledger import Ledger, open_ledger
from actors.containment.ledger_state import Draw, Quote, Reservation
from actors.containment.limits import Containment
from actors.errors import AgentCap, BudgetExceeded
from actors.halts import Halt, HaltKind


async def test_C7_racing_draws_never_overspend_and_sum_exactly() -> None:
    granted = 0
    async with open_ledger(Containment(10_000, 64, 3, 1_000)) as ledger:

        async def draw_100_times() -> None:
            nonlocal granted
            for _ in range(100):
                if await ledger.draw_tokens(10) is Draw.ok:
                    granted += 10

        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(draw_100_times)
        assert granted == ledger.spent_tokens == 1_000
        assert ledger.spent_tokens + ledger.overrun_tokens == 64_000


async def test_C10_racing_draws_from_worker_threads_sum_exactly() -> None:
    async with open_ledger(Containment(10_000, 64, 3, 1_000)) as ledger:

        def draw_100_times() -> int:
            return sum(10 for _ in range(100) if trio.from_thread.run(ledger.draw_tokens, 10) is Draw.ok)

        granted: list[int] = []

        async def in_a_thread() -> None:
            granted.append(await trio.to_thread.run_sync(draw_100_times, limiter=trio.CapacityLimiter(64)))

        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(in_a_thread)
        assert sum(granted) == ledger.spent_tokens == 1_000
        assert ledger.spent_tokens + ledger.overrun_tokens == 64_000


async def test_ten_thousand_at_once_never_pass_the_ceiling() -> None:
    async with open_ledger(Containment(10_001, 64, 3, 5_000)) as ledger:
        granted = 0
        most = 0

        async def once() -> None:
            nonlocal granted, most
            if await ledger.draw_tokens(1) is Draw.ok:
                granted += 1
            most = max(most, ledger.spent_tokens)

        async with trio.open_nursery() as nursery:
            for _ in range(10_000):
                nursery.start_soon(once)
        assert granted == ledger.spent_tokens == most == 5_000
        assert ledger.overrun_tokens == 5_000


async def test_AB11_of_many_that_reserve_in_one_instant_one_is_admitted(autojump_clock: trio.testing.MockClock) -> None:
    got: list[object] = []
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:

        async def reserve() -> None:
            held = await ledger.reserve(60)
            got.append(held)
            if isinstance(held, Reservation):
                await trio.sleep(1)
                await ledger.settle(held, 60)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(reserve)
        assert sum(isinstance(held, Reservation) for held in got) == 1
        assert got[1:] == [Draw.halted] * 4
        assert (ledger.spent_tokens, ledger.reserved_tokens) == (60, 0)


async def test_reservations_wait_first_come_first_served(autojump_clock: trio.testing.MockClock) -> None:
    order: list[int] = []
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:

        async def call(number: int, tokens: int) -> None:
            await trio.sleep(number / 1000)
            held = await ledger.reserve(tokens)
            assert isinstance(held, Reservation)
            order.append(number)
            await trio.sleep(1)
            await ledger.settle(held, 0)

        async with trio.open_nursery() as nursery:
            # The third fits beside the first, and still does not pass the second.
            for number, tokens in enumerate([80, 90, 20]):
                nursery.start_soon(call, number, tokens)
    assert order == [0, 1, 2]


async def test_a_cancelled_wait_holds_nothing_and_lets_the_next_one_in(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:
        first = await ledger.reserve(80)
        assert isinstance(first, Reservation)
        got: list[object] = []

        async def small() -> None:
            await trio.sleep(0.5)
            got.append(await ledger.reserve(20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(small)
            with trio.move_on_after(1) as scope:
                await ledger.reserve(90)
        assert scope.cancelled_caught
        assert isinstance(got[0], Reservation)
        assert ledger.reserved_tokens == 100


async def test_a_draw_that_is_cancelled_before_it_is_looked_at_is_not_made() -> None:
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ledger.draw_tokens(10)
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
        assert ledger.spent_tokens == 0


async def test_a_halt_answers_everybody_who_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:
        heard: list[Halt] = []
        ledger.subscribe(heard.append)
        assert isinstance(await ledger.reserve(80), Reservation)
        got: list[object] = []

        async def waits() -> None:
            got.append(await ledger.reserve(90))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits)
            nursery.start_soon(waits)
            await trio.sleep(1)
            assert await ledger.halt(Halt(HaltKind.cancel))
            assert not await ledger.halt(Halt(HaltKind.duration))
        assert got == [Draw.halted, Draw.halted]
        assert [halt.kind for halt in heard] == [HaltKind.cancel]


async def test_a_bad_request_is_its_callers_error_and_not_the_end_of_the_ledger() -> None:
    async with open_ledger(Containment(9, 9, 1, 100)) as ledger:
        with pytest.raises(ValueError):
            await ledger.draw_tokens(-1)
        with pytest.raises(BudgetExceeded):
            await ledger.reserve(Quote(50, 50, 1), own_left=lambda: 10)
        held = await ledger.reserve(10)
        assert isinstance(held, Reservation)
        await ledger.settle(held, 5)
        with pytest.raises(ValueError, match="not open"):
            await ledger.settle(held, 5)
        assert await ledger.draw_tokens(1) is Draw.ok
        assert ledger.spent_tokens == 6


async def test_registering_begins_in_the_step_that_counts() -> None:
    async with open_ledger(Containment(2, 9, 1, 100)) as ledger:
        seen: list[int] = []
        assert await ledger.register_agent(1, lambda: seen.append(ledger.agents)) is None
        assert await ledger.register_agent(1, lambda: seen.append(-1)) == AgentCap(2)
        assert seen == [2]


async def test_a_start_that_fails_counts_nobody() -> None:
    def cannot() -> None:
        raise ValueError("cannot start")

    async with open_ledger(Containment(2, 9, 1, 100)) as ledger:
        with pytest.raises(ValueError, match="cannot start"):
            await ledger.register_agent(1, cannot)
        assert ledger.agents == 1


async def test_a_restored_ledger_tells_the_same_truth() -> None:
    restored = Ledger.from_state(Containment(9, 9, 1, 100), 40, 3, overrun_tokens=7)
    assert (restored.spent_tokens, restored.overrun_tokens, restored.agents) == (40, 7, 3)
