"""Tasks and the actors that start them: what each hears of the other's end, and streams whose items do not end."""

from typing import Any

import pytest
import trio

from actors.errors import ChildRefused
from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Exit, Reason
from actors.runtime.links import Down, Linked
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.supervisor import supervise
from actors.runtime.tasks import start_task, stream


def pool_spec(**flags: Any) -> ChildSpec:
    return ChildSpec("pool", supervise, ((), {"dynamic": True, **flags}), type="supervisor", name="pool")


async def same(value: Any) -> Any:
    return value


async def fail(value: Any) -> None:
    raise KeyError(value)


async def slow_to_start(*, task_status: Any) -> None:
    await trio.sleep(0.05)
    task_status.started()
    await trio.sleep_forever()


class Caller(Behaviour):
    """Does what it is told with itself, and keeps what it hears of ends."""

    async def init(self) -> None:
        self.heard: list[Any] = []

    async def receive(self, message: Any, call: Call | None) -> Any:
        if isinstance(message, (Down, Linked)):
            self.heard.append(message)
            return None
        return await message(self)


class Trapping(Caller):
    trap_ends = True


def tree_with(caller: type[Behaviour], **flags: Any) -> SupervisionTree:
    specs = [pool_spec(**flags), ChildSpec("caller", caller, restart="temporary")]
    return open_supervisor(specs, {"intensity": 9}, on_report=lambda *_: None)


async def ref_of(top: Any, id: str) -> Any:
    return (await top.which_child(id)).ref


async def start_busily(top: Any, nursery: trio.Nursery) -> None:
    """Have the pool in the middle of a start, so that whatever is started now runs before its starter does."""
    nursery.start_soon((await ref_of(top, "pool")).start_child, ChildSpec("s", slow_to_start))
    await trio.sleep(0.01)


async def test_a_linked_task_that_ends_before_its_caller_goes_on_spares_the_caller(autojump_clock):
    async def result(me: Caller) -> Any:
        return await (await start_task(me.me.whereis("pool"), same, 7)).result()

    async with tree_with(Caller) as top, trio.open_nursery() as nursery:
        caller = await ref_of(top, "caller")
        await start_busily(top, nursery)
        assert await caller.ask(result) == 7
        await trio.sleep(0.1)
        assert caller.exit is None


async def test_a_linked_task_that_fails_before_its_caller_goes_on_ends_it_with_its_own_error(autojump_clock):
    async def start(me: Caller) -> Any:
        await start_task(me.me.whereis("pool"), fail, "x")
        await trio.sleep(1)

    async with tree_with(Caller) as top, trio.open_nursery() as nursery:
        caller = await ref_of(top, "caller")
        await start_busily(top, nursery)
        caller.tell(start)
        await trio.sleep(0.1)
        assert caller.exit.reason is Reason.error
        assert isinstance(caller.exit.cause, KeyError)


@pytest.mark.parametrize(("linked", "caller_kind"), [(True, Trapping), (False, Caller)], ids=["traps ends", "unlinked"])
async def test_a_caller_hears_the_true_end_of_a_task_that_ended_before_it_went_on(autojump_clock, linked, caller_kind):
    async def start(me: Caller) -> Any:
        for function in (same, fail):
            await start_task(me.me.whereis("pool"), function, 1, linked=linked)

    async with tree_with(caller_kind) as top, trio.open_nursery() as nursery:
        caller = await ref_of(top, "caller")
        await start_busily(top, nursery)
        caller.tell(start)
        await trio.sleep(0.2)
        heard = (await caller.get_state())["heard"]
        assert [message.exit.reason for message in heard] == [Reason.normal, Reason.error]
        assert isinstance(heard[1].exit.cause, KeyError)


async def never(*, task_status: Any) -> None:
    raise ValueError("no start")


async def test_a_task_that_does_not_start_is_told_as_a_refusal_and_nothing_else(autojump_clock):
    async def start(me: Caller) -> Any:
        with pytest.raises(ChildRefused):
            await start_task(me.me.whereis("pool"), never)
        return "told"

    async with tree_with(Caller) as top:
        caller = await ref_of(top, "caller")
        assert await caller.ask(start) == "told"
        await trio.sleep(0.1)
        assert caller.exit is None


async def ending_by(how: str) -> Exit:
    """Give the end of a task whose caller ends so."""

    async def start(me: Caller) -> Any:
        return (await start_task(me.me.whereis("pool"), trio.sleep_forever)).ref

    async def stop(me: Caller) -> None:
        me.me.stop()

    async def stop_as_shutdown(me: Caller) -> None:
        me.me.stop("enough", reason=Reason.shutdown)

    async def crash(me: Caller) -> None:
        raise ValueError("x")

    async with tree_with(Caller) as top:
        caller = await ref_of(top, "caller")
        task = await caller.ask(start)
        other = await start_task(await ref_of(top, "pool"), trio.sleep_forever)
        if how == "terminated":
            await top.terminate_child("caller")
        else:
            caller.tell({"normal": stop, "shutdown": stop_as_shutdown, "error": crash}[how])
        await trio.testing.wait_all_tasks_blocked()
        assert caller.exit is not None
        assert other.ref.exit is None, "a task of somebody else goes on"
        assert (await (await ref_of(top, "pool")).count_children()).active == 1
        assert task.exit is not None, f"the task outlives a caller that ended {how}"
        return task.exit


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("normal", Reason.shutdown),
        ("shutdown", Reason.shutdown),
        ("terminated", Reason.shutdown),
        ("error", Reason.error),
    ],
)
async def test_a_linked_task_ends_with_its_caller_however_that_one_ends(how, reason, autojump_clock):
    assert (await ending_by(how)).reason is reason


async def test_a_caller_keeps_nothing_of_linked_tasks_that_have_ended(autojump_clock):
    async def many(me: Caller) -> Any:
        for number in range(20):
            await (await start_task(me.me.whereis("pool"), same, number)).result()

    async with tree_with(Caller) as top:
        caller = await ref_of(top, "caller")
        await caller.ask(many)
        assert not caller._actor.links
        assert not caller._actor.watchers


async def test_the_end_of_a_caller_that_unlinked_its_task_spares_the_task(autojump_clock):
    async def start(me: Caller) -> Any:
        task = (await start_task(me.me.whereis("pool"), trio.sleep_forever)).ref
        me.me.unlink(task)
        return task

    async def stop(me: Caller) -> None:
        me.me.stop()

    async with tree_with(Caller) as top:
        caller = await ref_of(top, "caller")
        task = await caller.ask(start)
        caller.tell(stop)
        await trio.testing.wait_all_tasks_blocked()
        assert caller.exit is not None
        assert task.exit is None


# ── streams ─────────────────────────────────────────────────────────────────


async def stubborn_for(seconds: float) -> float:
    with trio.CancelScope(shield=seconds > 1):
        await trio.sleep(seconds)
    return seconds


@pytest.mark.parametrize("on_timeout", ["kill", "fail"])
async def test_a_stream_gives_up_an_item_that_does_not_end_when_killed(on_timeout, autojump_clock):
    async with open_supervisor([pool_spec()], on_report=lambda *_: None) as top:
        pool = await ref_of(top, "pool")
        began = trio.current_time()
        done: list[Any] = []
        too_slow = False
        try:
            async with stream(
                pool, stubborn_for, [0.1, 30.0, 0.1], most=3, timeout=0.2, on_timeout=on_timeout
            ) as results:
                async for each in results:
                    done.append(each)  # noqa: PERF401 - what came before the time-out counts too
        except trio.TooSlowError:
            too_slow = True
        # The time-out, and the second that a kill is waited for.
        assert trio.current_time() - began == pytest.approx(1.2)
        assert too_slow is (on_timeout == "fail")
        if on_timeout == "kill":
            assert [each.value for each in done] == [0.1, None, 0.1]
            assert done[1].timed_out and not done[1].ok
            assert done[1].exit.reason is Reason.killed and not done[1].exit.left


async def test_a_cancelled_look_at_a_stream_loses_no_item(autojump_clock):
    async with open_supervisor([pool_spec()], on_report=lambda *_: None) as top, trio.open_nursery() as nursery:
        await start_busily(top, nursery)
        async with stream(await ref_of(top, "pool"), same, [1, 2, 3], most=2) as results:
            with trio.move_on_after(0.01) as scope:
                await results.__anext__()
            assert scope.cancelled_caught
            assert [done.value async for done in results] == [1, 2, 3]


async def test_a_look_that_is_cancelled_while_an_item_runs_loses_no_item(autojump_clock):
    async with open_supervisor([pool_spec()], on_report=lambda *_: None) as top:
        async with stream(await ref_of(top, "pool"), stubborn_for, [0.5, 0.1, 0.2], most=1) as results:
            for _ in range(3):
                with trio.move_on_after(0.1):
                    await results.__anext__()
            assert [done.value async for done in results] == [0.5, 0.1, 0.2]
