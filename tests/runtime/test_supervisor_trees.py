"""Scenarios of trees (K), and of trio (O)."""

import time

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ActorsError, ChildFailed, RestartsExhausted
from actors.halts import Halt
from actors.runtime.exits import Reason
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Topic, Word
from actors.runtime.specs import ChildSpec
from actors.runtime.supervise import supervise
from actors.testing.effort import count_calls

MANY = {"intensity": 1000}


async def forever():
    await trio.sleep_forever()


async def ids(top):
    return [line.id for line in reversed(await top.list_children())]


# ── K. trees ────────────────────────────────────────────────────────────────


async def test_K1_children_added_at_run_time_are_not_remembered(stage):
    inners = [stage.inner("inner1", stage.specs("12")), stage.inner("inner2", (), {"intensity": 2})]
    async with stage.open(inners, {"strategy": "one_for_all"}) as top:
        inner2 = (await top.which_child("inner2")).ref
        for id in "34":
            await inner2.start_child(stage.spec(id))
        stage.new()
        await stage.end("4")
        assert stage.new() == ["stop(4, error)", "start(4)"]
        stage.part("3").failures = 99
        await stage.end("3")
        assert stage.log == [
            *["stop(3, error)", "fail(3)", "stop(4, shutdown)", "stop(2, shutdown)", "stop(1, shutdown)"],
            *["start(1)", "start(2)"],
        ]
        assert await ids((await top.which_child("inner1")).ref) == ["1", "2"]
        assert await ids((await top.which_child("inner2")).ref) == []


async def test_K4_the_root_error_has_the_leafs_exception_and_the_whole_path(stage):
    error = ValueError("x")
    inner = stage.inner("inner", [stage.spec("leaf")], {"intensity": 0})
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open([inner], {"intensity": 2}, name="root"):
            for _ in range(3):
                await stage.end("leaf", error)
            await trio.sleep_forever()
    assert gone.value.__cause__ is error
    assert gone.value.path == ("root/inner/leaf", "root/inner", "root")


@pytest.mark.parametrize("how", ["stop", "halt"])
async def test_K5_a_chain_of_2000_supervisors_ends_without_recursion(autojump_clock, how):
    def link(left):
        return supervise([ChildSpec("s", link, (left - 1,), type="supervisor")] if left else [ChildSpec("leaf", forever)])

    tree = open_supervisor([ChildSpec("s", link, (1998,), type="supervisor")], name="r", cleanup_allowance=60)
    with trio.CancelScope() as outer:
        async with tree:
            nodes = list(tree.top.subtree())
            if how == "halt":
                outer.cancel()
                await trio.lowlevel.checkpoint()
    assert len(nodes) == 2001
    assert all(node.exit is not None and node.exit.reason is Reason.shutdown and node.exit.left for node in nodes)
    assert tree.receipt.complete and len(tree.receipt.stopped) == 2001


@pytest.mark.slow
async def test_K6_10000_idle_children_stop_with_little_work_each_and_leave_nothing():
    async with open_supervisor((), {"dynamic": True}, cleanup_allowance=60) as top:
        for _ in range(10_000):
            await top.start_child(ChildSpec("a", forever))
        supervisor = top.child
        nodes = list(supervisor.subtree())
        with count_calls() as calls:
            await top.stop()
    assert all(node.exit.reason is Reason.shutdown for node in nodes) and len(nodes) == 10_001
    assert not supervisor.children and calls.made < 250 * 10_000


# ── O. trio ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", ["before ready", "just after ready", "later"])
async def test_O1_a_raise_cancels_no_sibling_no_supervisor_and_no_starter(stage, when):
    async def bad(*, task_status):
        if when == "before ready":
            raise ValueError("x")
        task_status.started()
        if when == "later":
            await trio.lowlevel.checkpoint()
        raise ValueError("x")

    async with stage.open(stage.specs("a")) as top:
        answer = await top.start_child(ChildSpec("bad", bad, restart="temporary"))
        assert answer.word is (Word.error if when == "before ready" else Word.ok)
        await wait_all_tasks_blocked()
        assert await ids(top) == ["a"] and stage.live["a"].exit is None and top.exit is None
    assert stage.log == ["start(a)", "stop(a, shutdown)"]


async def test_O3_a_cancel_from_outside_is_no_crash_and_goes_on(stage, autojump_clock):
    with trio.move_on_after(1) as scope:
        async with stage.open(stage.specs("ab"), {"intensity": 0}):
            await trio.sleep_forever()
    assert scope.cancelled_caught and stage.reports == []
    assert {end.reason for _, _, end in stage.ends} == {Reason.shutdown} and stage.attempts["a"] == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_O3_what_is_no_exception_ends_the_tree_and_surfaces_as_itself(stage, kind):
    error = kind("now")
    inner = stage.inner("inner", [stage.spec("deep")])
    with pytest.raises(kind) as raised:
        async with stage.open([stage.spec("a"), inner], MANY):
            stage.tell_to_end("deep", error)
            await trio.sleep_forever()
    assert raised.value is error
    assert stage.attempts == {"a": 1, "deep": 1} and stage.live["a"].exit.reason is Reason.shutdown


async def test_O3_what_a_start_raises_that_is_no_exception_surfaces_as_well(stage):
    def start():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        async with stage.open(stage.specs("a")) as top:
            await top.start_child(ChildSpec("b", start))
    assert stage.live["a"].exit is not None


@pytest.mark.parametrize("how", ["halt", "stop"])
async def test_O5_a_real_error_in_the_instant_of_the_stop_is_recorded_and_reported(stage, autojump_clock, how):
    async def bad():
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            try:
                raise ValueError("real")
            finally:
                # The new Cancelled replaces the error.
                await trio.sleep(1)

    ends = []
    with trio.CancelScope() as scope:
        async with stage.open([ChildSpec("bad", bad)]) as top:
            (await top.which_child("bad")).ref.child.watch(ends.append)
            if how == "halt":
                scope.cancel()
                await trio.lowlevel.checkpoint()
    [end] = ends
    assert str(end.lost) == "real" and end.reason is Reason.shutdown
    assert [(report.child, report.end) for _, report in stage.reports] == [("bad", end)]


async def test_O5_an_error_raised_during_a_halt_is_reported(stage, autojump_clock):
    async def bad():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("real")

    with trio.CancelScope() as scope:
        async with stage.open([stage.inner("inner", [ChildSpec("bad", bad)], MANY)]):
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert [(path, report.topic, str(report.end.cause)) for path, report in stage.reports] == [
        ("top/inner", Topic.unexpected_stop, "real")
    ]


async def test_O6_a_start_into_what_is_ending_fails_at_once(stage, autojump_clock):
    async def never(*, task_status):
        await trio.sleep_forever()

    words = []

    async def start():
        words.append((await top.start_child(ChildSpec("n", never))).word)

    stage.part("a").slow = 3
    async with stage.open(stage.specs("a")) as top, trio.open_nursery() as nursery:
        # One is under way when the stop comes, one comes after it.
        nursery.start_soon(start)
        await wait_all_tasks_blocked()
        top.ask_to_stop()
        await start()
        await wait_all_tasks_blocked()
        assert words == [Word.stopping] * 2 and trio.current_time() == 0
    assert top.exit.reason is Reason.shutdown


async def test_O8_only_trios_clock_counts(stage, mock_clock, monkeypatch):
    with pytest.raises(RestartsExhausted):
        async with stage.open(stage.specs("a"), {"intensity": 1, "period": 5}) as top:
            for _ in range(3):
                await stage.end("a")
                mock_clock.jump(3600 * 5)
            await stage.end("a")
            assert top.exit is None
            # The wall clock jumps alone: for trio both crashes are in one window.
            monkeypatch.setattr(time, "time", lambda: 1e12)
            await stage.end("a")
            await trio.sleep_forever()
    assert stage.attempts["a"] == 5


async def test_O9_a_child_that_swallows_its_cancel_is_named_also_below_a_patient_supervisor():
    leave = trio.Event()
    let_go = False

    async def stubborn():
        while not let_go:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                # Hot: it gets the same again at each await.
                with trio.CancelScope(shield=True):
                    await trio.sleep(0.01)
        leave.set()

    reports = []
    async with open_supervisor(on_report=lambda path, it: reports.append(it)) as top:
        inner = (await top.start_child(ChildSpec("inner", supervise, type="supervisor"))).ref
        ref = (await inner.start_child(ChildSpec("s", stubborn, grace=0.05))).ref
        began = time.monotonic()
        # It comes at all: the child goes on until it is let go, below.
        receipt = await inner.stop()
        took = time.monotonic() - began
        # The child may go now, so that a test that fails does not wait for it.
        let_go = True
        await leave.wait()
    assert took >= 1
    assert receipt.not_ended == ("top/inner/s", "top/inner") and not receipt.complete
    assert ref.exit.reason is Reason.killed and not ref.exit.left
    assert inner.exit.reason is Reason.shutdown and not inner.exit.left
    # The second, because nobody above asked the permanent supervisor to stop.
    assert [report.child for report in reports] == ["s", "inner"]


async def test_O16_each_child_sees_the_reason_of_the_halt_and_each_end_has_it(stage, autojump_clock):
    seen = []

    async def listens():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            seen.append(cancelled.reason)
            raise

    with trio.CancelScope() as scope:
        async with stage.open([stage.inner("inner", [ChildSpec("a", listens)]), ChildSpec("b", listens)]):
            nodes = list(stage.tree.top.subtree())
            await wait_all_tasks_blocked()
            scope.cancel(reason="the lights go out")
            await trio.lowlevel.checkpoint()
    assert len(seen) == 2 and all("the lights go out" in reason for reason in seen)
    assert {node.exit.payload for node in nodes} == {stage.tree.halt} and isinstance(stage.tree.halt, Halt)


async def test_O18_no_child_starts_after_the_ceiling_in_the_middle_of_a_group_restart(stage, autojump_clock):
    for id in "abc":
        stage.part(id).init = 1
    with trio.move_on_after(4.5):
        async with stage.open(stage.specs("abc"), {"strategy": "one_for_all", **MANY}):
            stage.new()
            stage.tell_to_end("b")
            await trio.sleep_forever()
    # The crash comes at 3 s, a is back at 4 s, and b is cut while it gets ready.
    assert stage.log == ["stop(b, error)", "stop(c, shutdown)", "stop(a, shutdown)", "start(a)", "stop(a, shutdown)"]
    assert stage.attempts["c"] == 1 and trio.current_time() == 4.5


async def test_a_supervisor_that_fails_itself_ends_after_its_children(stage):
    def broken(_id, _now):
        raise RuntimeError("permission is broken")

    with pytest.raises(ChildFailed) as failed:
        async with stage.open(stage.specs("ab"), MANY, may_restart=broken):
            await stage.end("a")
            await trio.sleep_forever()
    assert str(failed.value.__cause__) == "permission is broken"
    assert stage.log[2:] == ["stop(a, error)", "stop(b, shutdown)"]


async def test_a_child_that_asks_its_supervisor_while_it_starts_is_told_of_the_cycle(stage):
    async def asks(*, task_status):
        await tops[0].list_children()
        task_status.started()

    tops = []
    async with stage.open() as top:
        tops.append(top)
        with trio.fail_after(5):
            answer = await top.start_child(ChildSpec("a", asks))
        assert answer.word is Word.error and isinstance(answer.reason.cause, ActorsError)


async def _raises_when_it_is_cut(*, task_status):
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("real")


async def test_a_real_error_of_a_start_that_a_halt_cuts_is_reported(stage, autojump_clock):
    with trio.move_on_after(1):
        async with stage.open([stage.spec("a"), ChildSpec("bad", _raises_when_it_is_cut)]):
            raise AssertionError("never entered")
    assert [(report.topic, str(report.end.cause)) for _, report in stage.reports] == [(Topic.start_failed, "real")]
    assert stage.log == ["start(a)", "stop(a, shutdown)"]


async def test_a_supervisor_that_is_cut_alone_gives_nothing_up(stage):
    async def bad():
        await _raises_when_it_is_cut(task_status=None)

    inner = stage.inner("inner", [ChildSpec("bad", bad)], {"intensity": 0}, "temporary")
    async with stage.open([inner]) as top:
        ref = (await top.which_child("inner")).ref
        await wait_all_tasks_blocked()
        # As a link does it.
        ref.child.order_stop("cut")
        assert (await ref.wait()).reason is Reason.shutdown
        assert [report.topic for _, report in stage.reports] == [Topic.unexpected_stop]


async def test_a_start_that_is_given_up_is_not_waited_for_until_its_grace(stage, autojump_clock):
    stage.part("a").init, stage.part("a").stubborn = 60, True
    async with stage.open() as top:
        with pytest.raises(trio.TooSlowError):
            await top.start_child(stage.spec("a"), timeout=2)
        await wait_all_tasks_blocked()
        assert not top.child.children and trio.current_time() == 2


async def test_a_caller_that_gives_up_in_the_moment_of_readiness_leaves_no_child(stage):
    async def start(*, task_status):
        task_status.started()
        scope.cancel()
        await trio.sleep_forever()

    async with stage.open() as top:
        with trio.CancelScope() as scope:
            await top.start_child(ChildSpec("a", start))
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert await ids(top) == [] and not top.child.children


async def test_a_supervisor_that_is_stopped_while_it_starts_was_never_ready(stage):
    def start():
        stage.live["a"].parent.request_stop("enough")
        return stage.spec("b").start()

    async with stage.open() as top:
        answer = await top.start_child(stage.inner("inner", [stage.spec("a"), ChildSpec("b", start), stage.spec("c")]))
        assert answer.word is Word.error and answer.reason.payload == "enough"
        assert await ids(top) == []
    assert stage.log == ["start(a)", "start(b)", "stop(b, shutdown)", "stop(a, shutdown)"]
