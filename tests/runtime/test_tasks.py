"""Tasks beside an actor and ordered streams, under a dynamic supervisor."""

from typing import Any

import pytest
import trio

from actors.errors import ChildFailed, ChildRefused
from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Reason
from actors.runtime.links import Down
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.supervisor import supervise
from actors.runtime.tasks import start_task, stream


def workers(**flags: Any) -> ChildSpec:
    return ChildSpec("workers", supervise, ((), {"dynamic": True, **flags}), type="supervisor")


async def work(seconds: float) -> float:
    await trio.sleep(seconds)
    if seconds == 13:
        raise KeyError(seconds)
    return seconds * 10


class Boss(Behaviour):
    """Starts a task when told to, and keeps what it hears of it."""

    async def init(self) -> None:
        self.heard: list[Any] = []

    async def receive(self, message: Any, call: Call | None) -> Any:
        if isinstance(message, Down):
            self.heard.append(message)
            return None
        return await message(self)


async def pool_of(top: Any) -> Any:
    return (await top.which_child("workers")).ref


async def boss_of(top: Any) -> Any:
    return (await top.which_child("boss")).ref


async def test_a_task_gives_its_result_once_and_leaves_nothing(autojump_clock):
    async with open_supervisor([workers()]) as top:
        pool = await pool_of(top)
        task = await start_task(pool, work, 3)
        assert await task.result(timeout=5) == 30
        assert (await pool.count_children()).specs == 0
        failed = await start_task(pool, work, 13)
        with pytest.raises(ChildFailed) as caught:
            await failed.result()
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("linked", [True, False])
async def test_I19_a_linked_task_ends_with_its_caller_and_an_unlinked_one_does_not(autojump_clock, linked: bool):
    async with open_supervisor([workers(), ChildSpec("boss", Boss, restart="temporary")]) as top:
        pool, boss = await pool_of(top), await boss_of(top)

        async def begin(me: Boss) -> Any:
            return await start_task(pool, work, 100, linked=linked)

        task = await boss.ask(begin)
        await boss.stop()
        await trio.sleep(1)
        assert (task.ref.exit is not None) is linked
        if linked:
            assert task.ref.exit.reason is Reason.shutdown


@pytest.mark.parametrize("linked", [True, False])
async def test_I19_a_task_that_crashes_ends_its_linked_caller_or_leaves_one_down(autojump_clock, linked: bool):
    async with open_supervisor([workers(), ChildSpec("boss", Boss, restart="temporary")]) as top:
        pool, boss = await pool_of(top), await boss_of(top)

        async def begin(me: Boss) -> Any:
            return await start_task(pool, work, 13, linked=linked)

        task = await boss.ask(begin)
        await trio.sleep(20)
        if linked:
            assert boss.exit.reason is Reason.error and isinstance(boss.exit.cause, KeyError)
        else:
            (down,) = (await boss.get_state())["heard"]
            assert down.ref is task.ref and down.exit.reason is Reason.error


async def test_I20_an_await_that_timed_out_leaves_no_stray_reply_and_no_stray_down(autojump_clock):
    async with open_supervisor([workers(), ChildSpec("boss", Boss)]) as top:
        pool, boss = await pool_of(top), await boss_of(top)

        async def begin(me: Boss) -> Any:
            task = await start_task(pool, work, 5, linked=False)
            with pytest.raises(trio.TooSlowError):
                await task.result(timeout=0)
            return task

        task = await boss.ask(begin)
        await trio.sleep(20)
        assert task.ref.exit.reason is Reason.normal
        assert (await boss.get_state())["heard"] == []


async def test_a_stream_gives_results_in_order_and_runs_no_more_than_it_may(autojump_clock):
    running = peak = 0

    async def item(seconds: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await trio.sleep(seconds)
        running -= 1
        return seconds

    async with open_supervisor([workers()]) as top:
        pool = await pool_of(top)
        async with stream(pool, item, [5, 1, 3, 2, 4], most=2) as results:
            assert [done.value async for done in results] == [5, 1, 3, 2, 4]
        assert peak == 2
        assert (await pool.count_children()).specs == 0


async def test_I22_a_slow_item_is_killed_alone_and_the_others_keep_their_order(autojump_clock):
    async with open_supervisor([workers()]) as top:
        pool = await pool_of(top)
        async with stream(pool, work, [1, 50, 2, 13], most=4, timeout=14, on_timeout="kill") as results:
            done = [each async for each in results]
        assert [(each.ok, each.value, each.timed_out) for each in done] == [
            (True, 10, False),
            (False, None, True),
            (True, 20, False),
            (False, None, False),
        ]
        assert [each.exit.reason for each in done[1::2]] == [Reason.killed, Reason.error]


async def test_a_stream_that_is_to_fail_stops_what_runs(autojump_clock):
    async with open_supervisor([workers()]) as top:
        pool = await pool_of(top)
        with pytest.raises(trio.TooSlowError, match="took longer than 2 s"):
            async with stream(pool, work, [1, 50, 60], most=3, timeout=2) as results:
                async for _ in results:
                    pass
        assert (await pool.count_children()).active == 0


async def test_leaving_a_stream_early_stops_what_runs(autojump_clock):
    async with open_supervisor([workers()]) as top:
        pool = await pool_of(top)
        async with stream(pool, work, [1, 50, 60], most=3) as results:
            async for done in results:
                assert done.value == 10
                break
        assert (await pool.count_children()).active == 0
        assert trio.current_time() < 100_000_000


async def test_meeting_max_children_is_a_clear_error_that_stops_those_begun(autojump_clock):
    async with open_supervisor([workers(max_children=2)]) as top:
        pool = await pool_of(top)
        with pytest.raises(ChildRefused, match="workers started nothing: max_children"):
            async with stream(pool, work, [10, 20, 30], most=3) as results:
                async for _ in results:
                    raise AssertionError("nothing comes of it")
        assert (await pool.count_children()).active == 0
