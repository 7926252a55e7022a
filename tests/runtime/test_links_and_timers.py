"""What reaches an actor of one's own beside messages of others: ends of those it watches, and ticks of its timers."""

from typing import Any

import pytest
import trio

from actors.runtime.exits import Reason
from actors.runtime.links import Down, Linked
from actors.runtime.specs import ChildSpec
from actors.testing.behaviours import Hears, HearsEnds

# ── monitors and links ──────────────────────────────────────────────────────


async def test_a_monitor_brings_exactly_one_down_and_none_after_demonitor(autojump_clock, bench):
    async with bench(ChildSpec("hears", Hears), ChildSpec("counter", Hears)) as b:
        hears, counter = await b.ref("hears"), await b.ref("counter")
        await hears.ask(lambda me: me.me.monitor(counter) and None)
        gone = await hears.ask(lambda me: me.me.monitor(counter))
        gone.demonitor()
        counter.tell(ValueError("x"))
        await trio.sleep(1)
        (down,) = (await hears.get_state())["heard"]
        assert isinstance(down, Down) and down.ref is counter and down.exit.reason is Reason.error
        await hears.ask(lambda me: me.me.monitor(counter) and None)
        await trio.sleep(1)
        assert [each.exit.reason for each in (await hears.get_state())["heard"]] == [Reason.error, Reason.noproc]


@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_link_ends_the_other_side_with_the_same_reason(autojump_clock, bench, first: str):
    async with bench(
        ChildSpec("a", Hears, restart="temporary"), ChildSpec("b", Hears, restart="temporary")
    ) as b:
        refs = {"a": await b.ref("a"), "b": await b.ref("b")}
        await refs["a"].ask(lambda me: me.me.link(refs["b"]))

        def crash(_me: Any) -> None:
            raise KeyError("x")

        refs[first].tell(crash)
        await trio.sleep(1)
        for ref in refs.values():
            assert ref.exit.reason is Reason.error
            assert isinstance(ref.exit.cause, KeyError)


async def test_a_normal_end_ends_no_link_and_leaves_nothing_behind(autojump_clock, bench):
    async with bench(
        ChildSpec("a", Hears, restart="temporary"), ChildSpec("b", Hears, restart="temporary")
    ) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        other.tell(lambda me: me.me.stop())
        await trio.sleep(1)
        assert other.exit.reason is Reason.normal and one.exit is None
        assert not one._actor.links and not one._actor.watchers


async def test_an_actor_that_traps_ends_hears_of_them(autojump_clock, bench):
    async with bench(ChildSpec("a", HearsEnds), ChildSpec("b", Hears)) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        other.tell(ValueError("x"))
        await trio.sleep(1)
        (linked,) = (await one.get_state())["heard"]
        assert isinstance(linked, Linked) and linked.exit.reason is Reason.error and one.exit is None


async def test_unlinked_ends_reach_nobody(autojump_clock, bench):
    async with bench(ChildSpec("a", Hears), ChildSpec("b", Hears)) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        await one.ask(lambda me: me.me.unlink(other))
        other.tell(ValueError("x"))
        await trio.sleep(1)
        assert one.exit is None and not one._actor.watchers


async def test_a_task_that_is_linked_ends_with_the_same_reason(autojump_clock, bench):
    async with bench(
        ChildSpec("a", Hears, restart="temporary"), ChildSpec("t", trio.sleep_forever, restart="temporary")
    ) as b:
        one, task = await b.ref("a"), await b.ref("t")
        one._actor.behaviour.me.link(task)
        one.tell(KeyError("x"))
        await trio.sleep(1)
        assert task.exit.reason is Reason.error and isinstance(task.exit.cause, KeyError)


# ── timers ──────────────────────────────────────────────────────────────────


async def test_timers_tick_once_or_again_and_stop_when_cancelled(autojump_clock, bench):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        began = trio.current_time()
        await ref.ask(lambda me: me.me.send_after(2, "once") and None)
        every = await ref.ask(lambda me: me.me.send_every(3, "again"))
        await trio.sleep_until(began + 10.5)
        every.cancel()
        await trio.sleep(100)
        assert (await ref.get_state())["heard"] == ["once", "again", "again", "again"]
        assert not ref._actor._timers


async def test_a_timer_dies_with_its_incarnation(autojump_clock, bench):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        await ref.ask(lambda me: me.me.send_every(3, "again") and None)

        def crash(_me: Any) -> None:
            raise KeyError("x")

        ref.tell(crash)
        await trio.sleep(20)
        assert (await (await b.ref("hears")).get_state())["heard"] == []
        assert len(b.tree.host.deadlines) == 0


async def test_ticks_that_were_slept_through_are_counted_and_not_made_up_for(mock_clock, bench):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        timer = ref._actor.behaviour.me.send_every(0.5, "tick")
        mock_clock.jump(1000.25)
        await trio.testing.wait_all_tasks_blocked()
        assert ((await ref.get_state())["heard"], timer.late) == (["tick"], 1999)
        mock_clock.jump(0.25)
        await trio.testing.wait_all_tasks_blocked()
        assert len((await ref.get_state())["heard"]) == 2
