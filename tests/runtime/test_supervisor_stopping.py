"""Scenarios of stopping children (E), and of significant ones (H)."""

import math

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ActorGone, ActorsError, ConfigError
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Reason
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Word
from actors.runtime.specs import BRUTAL, ChildSpec
from actors.runtime.stops import How

MANY = {"intensity": 1000}
DYNAMIC = {"dynamic": True}


async def test_E1_static_children_are_stopped_one_at_a_time_in_reverse(stage, autojump_clock):
    for id in "abc":
        stage.part(id).slow = 1
    async with stage.open(stage.specs("abc")):
        stage.new()
    assert stage.log == ["stop(c, shutdown)", "stop(b, shutdown)", "stop(a, shutdown)"]
    # The next is asked only after the former has ended.
    assert stage.asked == [("c", 0), ("b", 1), ("a", 2)]


async def test_E2_who_does_not_obey_is_killed_after_exactly_its_grace(stage, autojump_clock):
    stage.part("b").stubborn = True
    async with stage.open([stage.spec("a"), stage.spec("b", grace=1)]):
        pass
    assert [(id, at, end.reason) for id, at, end in stage.ends] == [("b", 1, "killed"), ("a", 1, "shutdown")]


@pytest.mark.parametrize(("dynamic", "seconds"), [(False, 0.6), (True, 0.2)])
async def test_E3_graces_add_up_below_a_static_supervisor_only(stage, autojump_clock, dynamic, seconds):
    async with stage.open((), {"dynamic": dynamic}) as top:
        for id in "abc":
            stage.part(id).stubborn = True
            assert (await top.start_child(stage.spec(id, grace=0.2))).ok
        await top.stop()
    assert trio.current_time() == pytest.approx(seconds)
    assert {end.reason for _, _, end in stage.ends} == {Reason.killed}


async def test_E4_a_brutal_stop_asks_nobody_and_runs_no_hook(autojump_clock):
    ran = []

    class Hooked(Behaviour):
        async def terminate(self, exit):
            ran.append(exit)
            await trio.sleep(100)

    reports = []
    spec = ChildSpec("a", Hooked, grace=BRUTAL)
    async with open_supervisor([spec], on_report=lambda path, it: reports.append(it)) as top:
        ref = (await top.which_child("a")).ref
        await top.terminate_child("a")
        assert (ref.exit.reason, ref.exit.left) == (Reason.killed, True)
    assert ran == [] and reports == [] and trio.current_time() == 0


async def test_E4_a_brutal_end_is_recorded_when_the_task_has_left(autojump_clock):
    left = []

    async def slow():
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            left.append(trio.current_time())

    async with open_supervisor([ChildSpec("a", slow, grace=BRUTAL)]) as top:
        ref = (await top.which_child("a")).ref
        await trio.testing.wait_all_tasks_blocked()
        await top.terminate_child("a")
        assert left == [0.5] and ref.exit.ended_at == 0.5


async def test_E5_with_a_grace_of_nothing_it_is_asked_and_killed_at_once(stage, autojump_clock):
    stage.part("a").stubborn = True
    async with stage.open([stage.spec("a", grace=0)]):
        pass
    assert stage.asked == [("a", 0)]
    assert [(at, end.reason) for _, at, end in stage.ends] == [(0, Reason.killed)]


async def test_E7_a_nested_supervisor_finishes_its_subtree_first(stage):
    inner = stage.inner("inner", stage.specs("ab"))
    async with stage.open([stage.inner("outer", [inner, stage.spec("z")])]) as top:
        outer = (await top.which_child("outer")).ref
        ref = (await outer.which_child("inner")).ref
        stage.new()
        for each, name in ((ref, "inner"), (outer, "outer")):
            each.child.watch(lambda exit, name=name: stage.log.append(f"stop({name}, {exit.reason})"))
        receipt = await top.stop("enough")
    assert stage.log == [
        *["stop(z, shutdown)", "stop(b, shutdown)", "stop(a, shutdown)"],
        *["stop(inner, shutdown)", "stop(outer, shutdown)"],
    ]
    assert ref.exit.payload == "enough" and ref.exit.asked_at is not None
    # Each child hears why, down to the leaf.
    assert {end.payload for _, _, end in stage.ends} == {"enough"}
    assert receipt.complete and receipt.stopped[-1].path == "top" and len(receipt.stopped) == 6


@pytest.mark.parametrize("how", ["normal", "shutdown", "shutdown(x)", "error"])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_E8_ends_during_a_stop_keep_their_reasons_and_restart_nothing(stage, autojump_clock, restart, how):
    stage.part("z").slow = 2
    async with trio.open_nursery() as nursery:
        async with stage.open([stage.spec("a", restart), stage.spec("z")], MANY) as top:
            nursery.start_soon(top.stop)
            await trio.sleep(1)
            await stage.end("a", how)
            assert top.exit is None
    assert stage.log == ["start(a)", "start(z)", f"stop(a, {how.removesuffix('(x)')})", "stop(z, shutdown)"]
    assert top.exit.reason is Reason.shutdown
    # What was not expected is reported.
    expected = how.startswith("shutdown") or (how == "normal" and restart != "permanent")
    assert [child for _, child in stage.topics] == ([] if expected else ["a"])


async def test_E12_dynamic_children_are_all_asked_in_the_same_instant(stage, autojump_clock):
    graces = {"for ever": math.inf, "second": 1.0, "milli": 0.001, "brutal": BRUTAL}
    async with stage.open((), DYNAMIC, cleanup_allowance=50) as top:
        for id, grace in graces.items():
            stage.part(id).stubborn = True
            await top.start_child(stage.spec(id, grace=grace))
        stage.parts["for ever"].stubborn, stage.parts["for ever"].slow = False, 30
        await top.stop()
    assert stage.asked == [("for ever", 0), ("second", 0), ("milli", 0)]
    ends = {id: (at, str(end.reason)) for id, at, end in stage.ends}
    assert ends == {"brutal": (0, "killed"), "milli": (0.001, "killed"), "second": (1, "killed"), "for ever": (30, "shutdown")}


async def test_E14_a_stop_from_inside_is_refused_and_nothing_is_stopped(stage):
    refused = []

    async def descendant():
        with pytest.raises(ActorsError) as caught:
            await tops[0].stop()
        refused.append(str(caught.value))
        await trio.sleep_forever()

    tops = []
    async with stage.open() as top:
        tops.append(top)
        await top.start_child(stage.inner("inner", [ChildSpec("d", descendant)]))
        await wait_all_tasks_blocked()
        assert len(refused) == 1 and "own stop" in refused[0]
        assert top.exit is None and (await top.count_children()).active == 1


async def test_E14_asking_for_it_without_waiting_is_allowed(stage):
    async def descendant():
        tops[0].ask_to_stop("from inside")
        await trio.sleep_forever()

    tops = []
    async with stage.open() as top:
        tops.append(top)
        await top.start_child(ChildSpec("d", descendant))
        assert (await top.wait()).payload == "from inside"


async def test_E16_an_infinite_grace_ends_with_the_allowance_and_is_named(autojump_clock):
    class Slow(Behaviour):
        terminate_seconds = 200

        async def terminate(self, exit):
            await trio.sleep(100)

    tree = open_supervisor([ChildSpec("a", Slow, grace=math.inf)], cleanup_allowance=5)
    with trio.move_on_after(10):
        async with tree:
            await trio.sleep_forever()
    assert trio.current_time() == 15
    assert [(line.path, line.how) for line in tree.receipt.stopped] == [("top/a", How.killed), ("top", How.killed)]


async def test_E16_leaving_the_block_is_bounded_by_the_allowance_as_well(stage, autojump_clock):
    stage.part("a").slow = 100
    async with stage.open([stage.spec("a", grace=math.inf)], cleanup_allowance=5):
        pass
    assert trio.current_time() == 5
    assert next((line.path, line.how) for line in stage.tree.receipt.stopped) == ("top/a", How.killed)


async def test_two_stops_at_once_both_return_and_stop_once(stage, autojump_clock):
    stage.part("a").slow = 2
    async with stage.open(stage.specs("a")) as top:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(top.stop)
            nursery.start_soon(top.stop)
        assert trio.current_time() == 2 and stage.asked == [("a", 0)]
        with pytest.raises(ActorGone):
            await top.stop()


async def test_during_a_stop_every_request_is_answered_stopping_at_once(stage, autojump_clock):
    stage.part("a").slow = 2
    stage.part("b").init = 1
    answers = []

    async def waits(top):
        # Sent while the supervisor is busy, and not looked at before the stop.
        answers.append(await top.terminate_child("a"))

    async with stage.open(stage.specs("a")) as top, trio.open_nursery() as nursery:
        nursery.start_soon(top.start_child, stage.spec("b"))
        await trio.sleep(0.5)
        nursery.start_soon(waits, top)
        await wait_all_tasks_blocked()
        top.ask_to_stop()
        await trio.sleep(0.1)
        assert [answer.word for answer in answers] == [Word.stopping]
        for call in (top.start_child(stage.spec("z")), top.terminate_child("a"), top.restart_child("a")):
            assert (await call).word is Word.stopping
        with pytest.raises(ActorsError):
            await top.list_children()
        assert trio.current_time() == 0.6
    assert stage.log == ["start(a)", "stop(a, shutdown)"]


async def test_a_wrong_grace_is_refused_and_nothing_is_stopped(stage):
    async with stage.open(stage.specs("a")) as top:
        for grace in (-1, math.nan, True, "1"):
            with pytest.raises(ValueError, match="grace"):
                await top.stop(grace=grace)
        assert top.exit is None and stage.asked == []


# ── H. significant children ─────────────────────────────────────────────────

ANY, EVERY = {"auto_shutdown": "any_significant"}, {"auto_shutdown": "all_significant"}


@pytest.mark.parametrize("mode", ["never", "any_significant", "all_significant"])
@pytest.mark.parametrize("how", ["normal", "error"])
async def test_H1_who_is_not_significant_ends_nothing_else(stage, mode, how):
    specs = [stage.spec("a"), stage.spec("t", "temporary"), stage.spec("r", "transient")]
    async with stage.open(specs, {"auto_shutdown": mode, **MANY}) as top:
        await stage.end("t", how)
        await stage.end("r", how)
        assert top.exit is None and stage.live["a"].exit is None


async def test_H2_the_clean_end_of_a_significant_child_shuts_down(stage):
    async with stage.open([stage.spec("a"), stage.spec("s", "transient", significant=True), stage.spec("b")], ANY) as top:
        stage.new()
        await stage.end("s", "normal")
        assert top.exit.reason is Reason.shutdown and top.exit.payload is None
    assert stage.log == ["stop(s, normal)", "stop(b, shutdown)", "stop(a, shutdown)"]


async def test_H3_its_crash_restarts_it(stage):
    async with stage.open([stage.spec("a"), stage.spec("s", "transient", significant=True)], ANY) as top:
        stage.new()
        await stage.end("s", "error")
        assert top.exit is None and stage.new() == ["stop(s, error)", "start(s)"]


async def test_H6_all_significant_waits_for_the_last(stage):
    specs = [stage.spec(id, "temporary", significant=True) for id in "ab"]
    async with stage.open([*specs, stage.spec("c")], EVERY) as top:
        await stage.end("a", "error")
        assert top.exit is None
        await stage.end("b", "normal")
        assert top.exit.reason is Reason.shutdown
    assert stage.log[3:] == ["stop(a, error)", "stop(b, normal)", "stop(c, shutdown)"]


async def test_H6_one_that_was_stopped_by_hand_triggers_nothing_and_holds_nothing_open(stage):
    specs = [stage.spec(id, "transient", significant=True) for id in "ab"]
    async with stage.open(specs, EVERY) as top:
        await top.terminate_child("a")
        assert top.exit is None
        await stage.end("b", "normal")
        assert top.exit.reason is Reason.shutdown


async def test_a_group_stop_of_a_significant_child_triggers_nothing(stage):
    specs = [stage.spec("a"), stage.spec("s", "temporary", significant=True)]
    async with stage.open(specs, {**ANY, "strategy": "one_for_all"}) as top:
        await stage.end("a")
        assert top.exit is None


async def test_H9_H10_H13_bad_combinations_are_rejected(stage):
    significant = stage.spec("s", "transient", significant=True)
    with pytest.raises(ConfigError):
        stage.open([significant])
    async with stage.open() as top:
        with pytest.raises(ConfigError):
            await top.start_child(significant)
    with pytest.raises(ConfigError):
        stage.spec("s", "permanent", significant=True)
    with pytest.raises(ConfigError):
        stage.open((), {**DYNAMIC, **ANY})


async def test_H11_auto_shutdown_climbs_through_significance(stage):
    b = stage.inner("B", [stage.spec("C", "transient", significant=True)], ANY, "transient", significant=True)
    async with stage.open([stage.inner("A", [b, stage.spec("z")], ANY, "transient")]) as top:
        a = (await top.which_child("A")).ref
        inner = (await a.which_child("B")).ref
        await stage.end("C", "normal")
        assert inner.exit.reason is Reason.shutdown and a.exit.reason is Reason.shutdown
        assert top.exit is None
    assert stage.log == ["start(C)", "start(z)", "stop(C, normal)", "stop(z, shutdown)"]
