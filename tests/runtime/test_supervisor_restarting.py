"""Scenarios of intensity and escalation (C), strategies (D), and children stuck in restarting (J)."""

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from actors.errors import RestartsExhausted
from actors.runtime.exits import Reason
from actors.runtime.plan import Status, Word
from actors.runtime.specs import Backoff, Budget

MANY = {"intensity": 1000}


async def states(top):
    return {line.id: str(line.status) for line in reversed(await top.list_children())}


# ── C. intensity and escalation ─────────────────────────────────────────────


async def test_C1_the_fourth_crash_in_the_window_makes_it_give_up(stage, autojump_clock):
    errors = [ValueError(str(n)) for n in range(4)]
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open(stage.specs("ab"), {"intensity": 3, "period": 5}, name="s"):
            for error in errors:
                await stage.end("a", error)
                await trio.sleep(1)
            raise AssertionError("the body is cancelled")
    assert stage.log == [
        *["start(a)", "start(b)"],
        *["stop(a, error)", "start(a)"] * 3,
        *["stop(a, error)", "stop(b, shutdown)"],
    ]
    assert gone.value.end.cause is errors[3] and gone.value.__cause__ is errors[3]
    assert gone.value.path == ("s/a", "s")
    assert stage.tree.top.exit.reason is Reason.restarts_exhausted


async def test_C2_without_any_intensity_only_what_must_be_restarted_ends_it(stage):
    specs = [stage.spec("a"), stage.spec("b", "transient"), stage.spec("c", "temporary")]
    with pytest.raises(RestartsExhausted):
        async with stage.open(specs, {"intensity": 0}) as top:
            await stage.end("b", "normal")
            await stage.end("c", "error")
            assert top.exit is None and await states(top) == {"a": "live", "b": "idle"}
            await stage.end("a")
            await trio.sleep_forever()
    assert stage.new()[-1] == "stop(a, error)" and stage.attempts["a"] == 1


async def test_C3_the_budget_is_the_supervisors_and_not_the_childs(stage):
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open(stage.specs("abc"), {"intensity": 2}, name="s"):
            for id in "abc":
                await stage.end(id)
            await trio.sleep_forever()
    assert gone.value.path == ("s/c", "s")
    assert stage.log[3:] == [
        *["stop(a, error)", "start(a)", "stop(b, error)", "start(b)"],
        *["stop(c, error)", "stop(b, shutdown)", "stop(a, shutdown)"],
    ]


async def test_C4_the_window_slides(stage, autojump_clock):
    async with stage.open(stage.specs("a"), {"intensity": 1, "period": 1}) as top:
        for _ in range(100):
            await trio.sleep(2.1)
            await stage.end("a")
        assert top.exit is None and len(stage.tree.top.plan.window.entries) <= 2
    assert stage.attempts["a"] == 101


@pytest.mark.parametrize(("gap", "lives"), [(4.5, False), (5.0, False), (5.5, True)])
async def test_C5_the_edge_of_the_window_is_inside(stage, autojump_clock, gap, lives):
    tree = stage.open(stage.specs("a"), {"intensity": 1, "period": 5.0})
    with trio.CancelScope() as scope:
        try:
            async with tree as top:
                await stage.end("a")
                await trio.sleep(gap)
                await stage.end("a")
                assert lives and (await top.count_children()).active == 1
        except RestartsExhausted:
            assert not lives
        else:
            assert lives
    assert not scope.cancelled_caught


async def test_C8_each_failed_attempt_costs_one(stage):
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open(stage.specs("a"), {"intensity": 3}):
            stage.part("a").failures = 99
            await stage.end("a")
            await trio.sleep_forever()
    assert stage.log == ["start(a)", "stop(a, error)", "fail(a)", "fail(a)", "fail(a)"]
    assert gone.value.__cause__ is stage.part("a").error


async def test_C9_administration_costs_nothing(stage):
    async with stage.open(stage.specs("a"), {"intensity": 0}) as top:
        for _ in range(10):
            assert (await top.terminate_child("a")).ok and (await top.restart_child("a")).ok
        assert top.exit is None


@pytest.mark.parametrize("restart", ["permanent", "transient"])
async def test_C11_C12_a_supervisor_that_gave_up_is_restarted_with_a_fresh_budget(stage, restart):
    inner = stage.inner("inner", stage.specs("ab"), {"intensity": 0}, restart)
    async with stage.open([inner], {"intensity": 5}) as top:
        old = (await top.which_child("inner")).ref
        await old.start_child(stage.spec("z"))
        for spent in (1, 2):
            stage.new()
            await stage.end("a")
            new = (await top.which_child("inner")).ref
            assert new is not old and old.exit.reason is Reason.restarts_exhausted
            # What was added at run time is not remembered.
            assert await states(new) == {"a": "live", "b": "live"}
            assert len(stage.tree.top.plan.window.entries) == spent
            old = new
        assert stage.log == ["stop(a, error)", "stop(b, shutdown)", "start(a)", "start(b)"]


@pytest.mark.parametrize("how", ["stopped", "auto shutdown"])
async def test_C12_a_transient_supervisor_that_ended_clean_is_not_restarted(stage, how):
    flags = {"intensity": 0, "auto_shutdown": "any_significant"}
    inner = stage.inner("inner", [stage.spec("a", "temporary", significant=True)], flags, "transient")
    async with stage.open([inner], {"intensity": 5}) as top:
        ref = (await top.which_child("inner")).ref
        if how == "stopped":
            await ref.stop("enough")
        else:
            await stage.end("a", "normal")
        await wait_all_tasks_blocked()
        assert ref.exit.reason is Reason.shutdown
        assert await states(top) == {"inner": "idle"}
    assert stage.attempts["a"] == 1


async def test_C14_two_crashes_before_the_supervisor_runs_are_served_one_after_the_other(stage):
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open(stage.specs("ab"), {"intensity": 1}, name="s"):
            stage.tell_to_end("a")
            stage.tell_to_end("b")
            await trio.sleep_forever()
    first, second = [line[5] for line in stage.log[2:4]]
    assert {first, second} == {"a", "b"}
    # trio does not promise whose crash comes first; the first is restarted, and its new run is stopped.
    assert stage.log[2:] == [
        *[f"stop({first}, error)", f"stop({second}, error)"],
        *[f"start({first})", f"stop({first}, shutdown)"],
    ]
    assert gone.value.path == (f"s/{second}", "s")


async def test_C17_the_default_is_one_restart_in_five_seconds(stage, autojump_clock):
    with pytest.raises(RestartsExhausted):
        async with stage.open(stage.specs("a")) as top:
            await stage.end("a")
            assert (await top.count_children()).active == 1
            await trio.sleep(4)
            await stage.end("a")
            await trio.sleep_forever()
    assert stage.attempts["a"] == 2


async def test_C19_one_report_tells_that_it_gives_up(stage):
    with pytest.raises(RestartsExhausted):
        async with stage.open(stage.specs("ab"), {"intensity": 0, "period": 7}):
            await stage.end("a")
            await trio.sleep_forever()
    assert stage.topics == [("child ended", "a"), ("restarts exhausted", "a")]
    last = stage.reports[1][1]
    assert str(last.end.cause) == "x" and last.detail == "more than 0 in 7 s"


async def test_a_child_that_has_spent_its_own_budget_is_given_up_alone(stage):
    specs = [stage.spec("a", budget=Budget(1, 5)), stage.spec("b")]
    async with stage.open(specs, MANY) as top:
        await stage.end("a")
        await stage.end("a")
        assert await states(top) == {"a": "idle", "b": "live"}
    assert [topic for topic, _ in stage.topics].count("child given up") == 1
    assert stage.log == [
        *["start(a)", "start(b)", "stop(a, error)", "start(a)", "stop(a, error)"],
        *["stop(b, shutdown)"],
    ]


# ── D. strategies ───────────────────────────────────────────────────────────

ALL = {"strategy": "one_for_all", "intensity": 3}
REST = {"strategy": "rest_for_one", "intensity": 3}


async def refs(top):
    return {line.id: line.ref for line in await top.list_children()}


async def test_D1_one_for_one_touches_no_sibling(stage):
    async with stage.open(stage.specs("ab")) as top:
        before = await refs(top)
        await stage.end("a")
        after = await refs(top)
        assert after["b"] is before["b"] and after["a"] is not before["a"]


async def test_D2_one_for_all_stops_all_in_reverse_and_starts_all_in_order(stage):
    async with stage.open(stage.specs("abc"), ALL):
        stage.new()
        await stage.end("b")
        assert stage.log == [
            *["stop(b, error)", "stop(c, shutdown)", "stop(a, shutdown)"],
            *["start(a)", "start(b)", "start(c)"],
        ]


async def test_D3_rest_for_one_restarts_those_that_stand_after_it(stage):
    async with stage.open(stage.specs("abcd"), REST) as top:
        before = await refs(top)
        stage.new()
        await stage.end("b")
        assert stage.log == [
            *["stop(b, error)", "stop(d, shutdown)", "stop(c, shutdown)"],
            *["start(b)", "start(c)", "start(d)"],
        ]
        assert (await refs(top))["a"] is before["a"]


async def test_D4_rest_for_one_restarts_the_last_alone_and_with_the_first_all(stage):
    async with stage.open(stage.specs("abc"), REST):
        stage.new()
        await stage.end("c")
        assert stage.new() == ["stop(c, error)", "start(c)"]
        await stage.end("a")
        assert stage.new() == [
            *["stop(a, error)", "stop(c, shutdown)", "stop(b, shutdown)"],
            *["start(a)", "start(b)", "start(c)"],
        ]


async def test_D5_a_temporary_sibling_is_stopped_and_forgotten(stage):
    async with stage.open([stage.spec("q", "temporary"), *stage.specs("ab")], ALL) as top:
        stage.new()
        await stage.end("a")
        assert stage.log == ["stop(a, error)", "stop(b, shutdown)", "stop(q, shutdown)", "start(a)", "start(b)"]
        assert await states(top) == {"a": "live", "b": "live"}


async def test_D7_a_group_restart_revives_every_kept_spec(stage):
    async with stage.open([stage.spec("a"), stage.spec("t", "transient"), stage.spec("m")], ALL) as top:
        await stage.end("t", "normal")
        await top.terminate_child("m")
        stage.new()
        await stage.end("a")
        assert stage.log == ["stop(a, error)", "start(a)", "start(t)", "start(m)"]


async def test_D10_a_group_whose_start_fails_is_tried_again_from_the_first(stage):
    with pytest.raises(RestartsExhausted):
        async with stage.open(stage.specs("abc"), ALL):
            stage.new()
            stage.part("b").failures = 99
            await stage.end("a")
            await trio.sleep_forever()
    attempt = ["start(a)", "fail(b)", "stop(a, shutdown)"]
    assert stage.log == ["stop(a, error)", "stop(c, shutdown)", "stop(b, shutdown)", *attempt * 3]


async def test_D12_the_first_child_is_from_the_second_attempt(stage):
    async with stage.open(stage.specs("abc"), ALL) as top:
        stage.new()
        stage.part("b").failures = 1
        await stage.end("a")
        assert stage.log[3:] == ["start(a)", "fail(b)", "stop(a, shutdown)", "start(a)", "start(b)", "start(c)"]
        assert (await refs(top))["a"] is stage.live["a"]


async def test_D13_a_child_added_later_stands_last(stage):
    async with stage.open(stage.specs("ab"), REST) as top:
        await top.start_child(stage.spec("z"))
        stage.new()
        await stage.end("b")
        assert stage.log == ["stop(b, error)", "stop(z, shutdown)", "start(b)", "start(z)"]


@pytest.mark.parametrize("ids", [["ch7", "ch3", "ch10"], [3, "a", (1, 2), None, 2.5]])
async def test_D15_the_order_is_that_of_insertion(stage, ids):
    async with stage.open([stage.spec(id) for id in ids]):
        pass
    starts = [f"start({id})" for id in ids]
    assert stage.log == [*starts, *[f"stop({id}, shutdown)" for id in reversed(ids)]]


async def test_a_sibling_that_ends_by_itself_during_the_group_stop_is_restarted_once(stage, autojump_clock):
    stage.part("c").slow = 2
    async with stage.open(stage.specs("abc"), {**ALL, "intensity": 1}):
        stage.new()
        stage.tell_to_end("a")
        await trio.sleep(1)
        stage.tell_to_end("b")
        await trio.sleep(5)
        assert stage.log == [
            *["stop(a, error)", "stop(b, error)", "stop(c, shutdown)"],
            *["start(a)", "start(b)", "start(c)"],
        ]


async def test_a_strategy_applies_only_when_a_restart_is_needed(stage):
    specs = [*stage.specs("ab"), stage.spec("q", "temporary"), stage.spec("t", "transient")]
    async with stage.open(specs, ALL):
        stage.new()
        await stage.end("q")
        await stage.end("t", "shutdown")
        assert stage.log == ["stop(q, error)", "stop(t, shutdown)"]


# ── J. a child stuck in restarting ──────────────────────────────────────────


def stuck(stage, ids="ab", **flags):
    """Children of which a (or what the test ends) will fail after 30 ms from now on."""
    return stage.open(stage.specs(ids), {**MANY, **flags})


async def break_(stage, id):
    stage.part(id).init, stage.part(id).failures = 0.03, float("inf")
    await stage.end(id)
    await trio.sleep(0.1)


async def test_J1_G4_it_is_listed_as_restarting_and_is_not_active(stage, autojump_clock):
    async with stuck(stage) as top:
        await break_(stage, "a")
        assert await states(top) == {"a": "restarting", "b": "live"}
        assert (await top.which_child("a")).ref is None
        count = await top.count_children()
        assert (count.specs, count.active, count.workers) == (2, 1, 2)


async def test_J2_it_answers_restarting_and_already_present(stage, autojump_clock):
    async with stuck(stage) as top:
        await break_(stage, "a")
        assert (await top.restart_child("a")).word is Word.restarting
        assert (await top.delete_child("a")).word is Word.restarting
        assert (await top.start_child(stage.spec("a"))).word is Word.already_present


async def test_J5_terminate_ends_the_retries(stage, autojump_clock):
    async with stuck(stage) as top:
        await break_(stage, "a")
        assert (await top.terminate_child("a")).word is Word.ok
        tried = stage.attempts["a"]
        await trio.sleep(1)
        assert stage.attempts["a"] == tried and await states(top) == {"a": "idle", "b": "live"}
        stage.part("a").failures = 0
        assert (await top.restart_child("a")).word is Word.ok


async def test_J7_those_after_a_stuck_one_stay_stopped(stage, autojump_clock):
    async with stuck(stage, "abc", strategy="rest_for_one") as top:
        await break_(stage, "b")
        assert await states(top) == {"a": "live", "b": "restarting", "c": "idle"}
        count = await top.count_children()
        assert (count.specs, count.active) == (3, 1)
        await top.terminate_child("b")
        await trio.sleep(1)
        assert await states(top) == {"a": "live", "b": "idle", "c": "idle"}


WAITS = {"backoff": {"minimum": 60, "maximum": 600}}


@pytest.mark.parametrize("how", ["stop", "halt", "terminate"])
async def test_J9_a_wait_is_cut_short_and_leaves_no_entry(stage, autojump_clock, how):
    with trio.CancelScope() as outer:
        async with stuck(stage, **WAITS) as top:
            await stage.end("a")
            began = trio.current_time()
            assert await states(top) == {"a": "restarting", "b": "live"}
            assert len(stage.tree.host.deadlines) == 1 and len(stage.tree.top.restarts_due()) == 1
            if how == "halt":
                outer.cancel()
                await trio.lowlevel.checkpoint()
            elif how == "terminate":
                assert (await top.terminate_child("a")).ok
                assert await states(top) == {"a": "idle", "b": "live"}
                assert len(stage.tree.host.deadlines) == 0 and stage.tree.top.restarts_due() == {}
    assert trio.current_time() == began and len(stage.tree.host.deadlines) == 0
    assert stage.attempts["a"] == 1


async def test_J9_the_waits_grow_and_begin_anew_when_it_has_run_long_enough(stage, autojump_clock):
    backoff = Backoff(minimum=1, maximum=5, jitter=0.5, reset_after=100)
    async with stage.open(stage.specs("a"), {**MANY, "backoff": backoff}, chance=lambda: 1.0):
        waits = []
        for run in (0, 0, 0, 0, 100):
            await trio.sleep(run)
            ended = trio.current_time()
            await stage.end("a")
            await trio.sleep(50)
            waits.append(stage.started[-1][1] - ended)
            await trio.lowlevel.checkpoint()
            # The run so far counts; so end it at once the next time, as if it had just begun.
            stage.tree.top.plan.children["a"].since = trio.current_time()
        assert waits == [1.5, 3.0, 6.0, 7.5, 1.5]


async def test_with_a_backoff_the_siblings_stop_at_once_and_the_group_starts_after_the_wait(stage, autojump_clock):
    async with stage.open(stage.specs("ab"), {**ALL, **WAITS}):
        stage.new()
        await stage.end("a")
        assert stage.new() == ["stop(a, error)", "stop(b, shutdown)"]
        await trio.sleep(59)
        assert stage.log == []
        await trio.sleep(2)
        assert stage.log == ["start(a)", "start(b)"]


async def test_a_backoff_keeps_growing_when_siblings_share_the_restarts(stage, autojump_clock):
    flags = {"strategy": "one_for_all", **MANY, "backoff": {"minimum": 1, "maximum": 64}}
    async with stage.open(stage.specs("ab"), flags):
        for _ in range(3):
            for id in "ab":
                await stage.end(id)
                await trio.sleep(20)
        # Each has crashed three times in a row: 1, 2, 4.
        kept = stage.tree.top.plan.children
        assert (kept["a"].row, kept["b"].row) == (3, 3)


async def test_a_stop_gives_up_the_attempt_under_way(stage, autojump_clock):
    async with stage.open(stage.specs("ab"), MANY):
        stage.part("a").init = 1000
        await stage.end("a")
        began = trio.current_time()
    assert trio.current_time() == began
    assert stage.log == ["start(a)", "start(b)", "stop(a, error)", "stop(b, shutdown)"]


async def test_requests_are_served_while_a_child_fails_again_and_again_without_any_delay(stage):
    async with stage.open(stage.specs("ab"), {"intensity": 10**6}) as top:
        stage.part("a").failures = float("inf")
        stage.tell_to_end("a")
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert (await top.which_child("b")).status is Status.live
        assert (await top.terminate_child("a")).ok
        tried = stage.attempts["a"]
        await wait_all_tasks_blocked()
        assert stage.attempts["a"] == tried > 1


async def test_a_halt_asks_no_permission_and_gives_nothing_up(stage, autojump_clock):
    asked = []
    stage.part("b").slow = 1
    with trio.move_on_after(1):
        async with stage.open(stage.specs("ab"), {"intensity": 0}, may_restart=lambda id, now: asked.append(id)):
            await trio.sleep(1)
    assert asked == [] and stage.tree.top.exit.reason is Reason.shutdown
