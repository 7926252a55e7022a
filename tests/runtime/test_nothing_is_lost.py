"""Ends that are told whole: errors under a cancel and in clean-up, groups of any make, the time of the end."""

import logging
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ChildFailed, RestartsExhausted
from actors.runtime.behaviour import Behaviour
from actors.runtime.child import Child
from actors.runtime.exits import Exit, Reason, root_cause, swallowed_by, without_cancelled
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Topic
from actors.runtime.specs import ChildSpec
from actors.runtime.stops import How


async def ref_of(top: Any, id: str) -> Any:
    return (await top.which_child(id)).ref


async def cancelled() -> trio.Cancelled:
    """Give a `Cancelled`, which nobody can make."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as caught:
            made = caught
            raise
    return made


class Own(ExceptionGroup):
    """A group class of somebody's own, which no split can copy."""

    def derive(self, errors):
        raise TypeError("cannot be made without its other arguments")


class Panicking(BaseExceptionGroup):
    """A group that is no `Exception`, although all in it are."""


def nested(error: BaseException, levels: int, kind: type = BaseExceptionGroup) -> BaseException:
    for _ in range(levels):
        error = kind("g", [error])
    return error


# ── groups ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("levels", [1, 1500])
async def test_a_group_without_a_cancel_stays_itself(levels):
    group = nested(ValueError("x"), levels, Own)
    assert without_cancelled(group) is group
    assert str(root_cause(group)) == "x"


@pytest.mark.parametrize("kind", [BaseExceptionGroup, Own])
@pytest.mark.parametrize("levels", [1, 1500])
async def test_whatever_the_group_the_cancel_is_split_off(kind, levels):
    error, cancel = ValueError("x"), await cancelled()
    if kind is Own:
        kind = type("OwnBase", (BaseExceptionGroup,), {"derive": Own.derive})
    assert without_cancelled(nested(kind("g", [cancel, cancel]), levels, kind)) is None
    left = without_cancelled(nested(kind("g", [cancel, error]), levels, kind))
    assert root_cause(left) is error


async def test_a_group_that_can_be_split_keeps_its_shape():
    cancel = await cancelled()
    a, b = ValueError("a"), KeyError("b")
    left = without_cancelled(BaseExceptionGroup("out", [ExceptionGroup("in", [a, b]), cancel]))
    assert isinstance(left, ExceptionGroup) and left.message == "out"
    assert [each.message for each in left.exceptions] == ["in"] and left.exceptions[0].exceptions == (a, b)


@pytest.mark.parametrize("kind", [ExceptionGroup, Own])
@pytest.mark.parametrize("levels", [1, 1500])
async def test_a_group_that_cannot_be_split_ends_its_child_alone(kind, levels):
    group = nested(ValueError("x"), levels, kind)

    async def fail():
        raise group

    reports = []
    specs = [ChildSpec("sibling", trio.sleep_forever), ChildSpec("a", fail, restart="temporary")]
    async with open_supervisor(specs, on_report=lambda _, report: reports.append(report)) as top:
        await wait_all_tasks_blocked()
        assert [(line.id, str(line.status)) for line in await top.list_children()] == [("sibling", "live")]
    [report] = reports
    assert (report.child, report.end.reason, str(report.end.cause)) == ("a", Reason.error, "x")
    assert report.end.raised is group


async def test_a_mixed_group_that_cannot_be_split_is_an_error_without_the_cancel():
    own = type("OwnBase", (BaseExceptionGroup,), {"derive": Own.derive})

    async def fail():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancel:
            raise own("mixed", [cancel, ValueError("real")]) from None

    reports = []
    specs = [ChildSpec("a", fail, restart="temporary")]
    async with open_supervisor(specs, on_report=lambda _, report: reports.append(report)) as top:
        ref = await ref_of(top, "a")
    assert (ref.exit.reason, str(ref.exit.cause)) == (Reason.error, "real")
    assert [report.end for report in reports] == [ref.exit]


async def test_a_group_of_cancels_that_cannot_be_split_is_a_stop():
    own = type("OwnBase", (BaseExceptionGroup,), {"derive": Own.derive})

    async def stopped():
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancel:
            raise own("all", [cancel]) from None

    async with open_supervisor([ChildSpec("s", trio.sleep_forever), ChildSpec("a", stopped)]) as top:
        ref, sibling = await ref_of(top, "a"), await ref_of(top, "s")
        assert (await top.terminate_child("a")).ok
        assert sibling.exit is None
    assert ref.exit.reason is Reason.shutdown and ref.exit.cause is None


async def test_a_group_that_is_no_exception_ends_the_tree_as_itself():
    async def fail():
        raise Panicking("p", [ValueError("x")])

    with pytest.raises(Panicking):
        async with open_supervisor([ChildSpec("a", fail)], on_report=lambda *_: None):
            await trio.sleep_forever()


# ── errors under a cancel ───────────────────────────────────────────────────


async def test_an_error_lost_in_a_task_of_the_childs_own_is_reported():
    async def inner(text: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                raise ValueError(text)
            finally:
                await trio.sleep(1)

    async def work(*texts: str) -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
            outer.start_soon(trio.sleep_forever)
            for text in texts:
                nursery.start_soon(inner, text)

    reports = []
    specs = [ChildSpec("one", work, ("a",)), ChildSpec("two", work, ("b", "c"))]
    async with open_supervisor(specs, on_report=lambda _, report: reports.append(report)) as top:
        one, two = await ref_of(top, "one"), await ref_of(top, "two")
        await wait_all_tasks_blocked()
    assert str(one.exit.lost) == "a" and one.exit.reason is Reason.shutdown
    assert sorted(str(each) for each in two.exit.lost.exceptions) == ["b", "c"]
    assert [(report.topic, report.child) for report in reports] == [
        (Topic.unexpected_stop, "two"),
        (Topic.unexpected_stop, "one"),
    ]


async def test_the_search_for_a_lost_error_ends_in_circles_and_depths():
    cancel = await cancelled()
    deep = nested(cancel, 1500)
    cancel.__context__ = deep
    assert swallowed_by(deep) is None
    chain: BaseException = ValueError("first")
    for _ in range(5000):
        above = BaseExceptionGroup("g", [await cancelled()])
        above.__context__, chain = chain, above
    assert str(swallowed_by(chain)) == "first"


async def test_what_was_raised_first_and_what_steers_control_flow_stay_apart():
    one, two = await cancelled(), await cancelled()
    one.__context__ = trio.WouldBlock()
    assert swallowed_by(BaseExceptionGroup("g", [one, two])) is None
    two.__context__ = SystemExit(3)
    assert isinstance(swallowed_by(BaseExceptionGroup("g", [one, two])), SystemExit)
    same = ValueError("same")
    one.__context__ = two.__context__ = same
    assert swallowed_by(BaseExceptionGroup("g", [one, two])) is same


class Cleans(Behaviour):
    terminate_seconds = 0.5

    def __init__(self, how: str) -> None:
        self.how = how

    def receive(self, message: Any, call: Any) -> None:
        if message == "crash":
            raise KeyError("crashed")
        self.me.stop()

    async def terminate(self, exit: Exit) -> None:
        try:
            if "raise" in self.how:
                raise ValueError("in clean-up")
        finally:
            if "hang" in self.how:
                await trio.sleep_forever()


@pytest.mark.parametrize("how", ["raise", "raise and hang"])
@pytest.mark.parametrize("ends", ["stop", "end", "crash"])
async def test_an_error_of_a_terminate_hook_is_in_the_end_and_reported(how, ends, autojump_clock):
    reports = []
    specs = [ChildSpec("a", Cleans, (how,), restart="temporary")]
    async with open_supervisor(specs, on_report=lambda _, report: reports.append(report)) as top:
        ref = await ref_of(top, "a")
        if ends != "stop":
            ref.tell(ends)
            await trio.sleep(2)
    assert isinstance(ref.exit.lost, ValueError) and str(ref.exit.lost) == "in clean-up"
    assert ref.exit.reason is {"stop": Reason.shutdown, "end": Reason.normal, "crash": Reason.error}[ends]
    assert [report.end for report in reports] == [ref.exit]


async def test_a_terminate_hook_that_is_cut_by_its_own_time_is_reported(autojump_clock):
    reports = []
    async with open_supervisor([ChildSpec("a", Cleans, ("hang",))], on_report=lambda *it: reports.append(it[1])) as top:
        ref = await ref_of(top, "a")
    assert ref.exit.reason is Reason.shutdown
    assert isinstance(ref.exit.lost, trio.TooSlowError) and "terminate" in str(ref.exit.lost)
    assert [report.end for report in reports] == [ref.exit]


async def test_a_first_lost_error_stays_and_a_second_is_logged(autojump_clock, caplog):
    class Twice(Cleans):
        async def receive(self, message: Any, call: Any) -> None:
            try:
                raise LookupError("in work")
            finally:
                await trio.sleep_forever()

    for how in ("raise", "raise and hang"):
        caplog.clear()
        async with open_supervisor([ChildSpec("a", Twice, (how,), grace=1)], on_report=lambda *_: None) as top:
            ref = await ref_of(top, "a")
            ref.tell("work")
            await wait_all_tasks_blocked()
            ref._actor.order_stop("a halt")
            await ref._actor.wait_ended()
            assert str(ref.exit.lost) == "in work"
        assert "in clean-up" in caplog.text


async def test_a_panic_in_a_terminate_hook_ends_the_tree_and_is_in_the_end():
    class Panics(Behaviour):
        def receive(self, message: Any, call: Any) -> None:
            pass

        async def terminate(self, exit: Exit) -> None:
            raise SystemExit(4)

    with pytest.raises(SystemExit):
        async with open_supervisor([ChildSpec("a", Panics)], on_report=lambda *_: None) as top:
            ref = await ref_of(top, "a")
    assert isinstance(ref.exit.lost, SystemExit)


# ── the time and the kind of the end ────────────────────────────────────────


async def test_an_actor_that_is_killed_in_its_terminate_hook_is_recorded_as_killed(autojump_clock):
    class Slow(Cleans):
        terminate_seconds = 1000.0

    reports = []
    specs = [ChildSpec("slow", Slow, ("hang",), grace=0.25)]
    async with open_supervisor(specs, on_report=lambda _, report: reports.append(report)) as top:
        slow = await ref_of(top, "slow")
        receipt = await top.stop("enough")
    assert (slow.exit.reason, slow.exit.ended_at, slow.exit.asked_at) == (Reason.killed, 0.25, 0.0)
    assert [(line.path, line.how, line.ended_at) for line in receipt.stopped] == [
        ("top/slow", How.killed, 0.25),
        ("top", How.clean, 0.25),
    ]
    assert [report.end for report in reports] == [slow.exit]


async def test_a_crash_stays_a_crash_when_its_terminate_hook_is_killed(autojump_clock):
    class Slow(Cleans):
        terminate_seconds = 1000.0

    specs = [ChildSpec("slow", Slow, ("hang",), grace=0.25, restart="temporary")]
    async with open_supervisor(specs, on_report=lambda *_: None) as top:
        slow = await ref_of(top, "slow")
        slow.tell("crash")
        await trio.sleep(1)
    assert slow.exit.reason is Reason.error and isinstance(slow.exit.cause, KeyError)
    assert slow.exit.ended_at == 1.25


async def test_an_end_has_the_time_at_which_the_clean_up_was_over(autojump_clock):
    class Takes(Behaviour):
        def receive(self, message: Any, call: Any) -> None:
            self.me.stop("done")

        async def terminate(self, exit: Exit) -> None:
            await trio.sleep(2)

    async with open_supervisor([ChildSpec("a", Takes, restart="temporary")]) as top:
        ref = await ref_of(top, "a")
        ref.tell("end")
        await trio.sleep(1)
        assert ref.exit is None
        # A stop that comes during the clean-up of what ended by itself changes nothing of its end.
        await ref.stop("too late")
    assert (ref.exit.reason, ref.exit.payload, ref.exit.asked_at) == (Reason.normal, "done", None)
    assert ref.exit.ended_at == 2


async def test_what_is_given_up_in_its_clean_up_keeps_its_error_and_is_heard_of_when_it_leaves(autojump_clock, caplog):
    caplog.set_level(logging.WARNING)
    over = trio.Event()

    class Clings(Cleans):
        async def terminate(self, exit: Exit) -> None:
            with trio.CancelScope(shield=True):
                await over.wait()

    specs = [ChildSpec("a", Clings, ("",), grace=0.25, restart="temporary")]
    tree = open_supervisor(specs, on_report=lambda *_: None)
    async with tree as top:
        ref = await ref_of(top, "a")
        ref.tell("crash")
        await trio.sleep(1)
        assert (await ref.stop(grace=0.25)).left is False
        assert (ref.exit.reason, str(ref.exit.cause)) == (Reason.killed, "'crashed'")
        assert [node.path for node in tree.host.abandoned] == ["top/a"]
        over.set()
        await wait_all_tasks_blocked()
        assert not tree.host.abandoned
    assert "has left after it was recorded" in caplog.text


# ── texts that cannot be had ────────────────────────────────────────────────


class Unsayable(Exception):
    """An error whose texts raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


async def test_an_error_whose_text_cannot_be_had_leaves_the_block_as_itself():
    tree = open_supervisor([ChildSpec("a", trio.sleep_forever)])
    with pytest.raises(Unsayable):
        async with tree:
            raise Unsayable
    assert tree.halt is not None and "Unsayable" in tree.halt.reason
    assert tree.top.exit is not None


async def test_a_reason_whose_text_cannot_be_had_stops_all_the_same():
    why = Unsayable()
    specs = [ChildSpec("a", trio.sleep_forever), ChildSpec("b", trio.sleep_forever)]
    async with open_supervisor(specs) as top:
        a = await ref_of(top, "a")
        assert (await top.stop(why)).complete
    assert a.exit.payload is why and "text cannot be had" in str(a.exit)


async def test_a_start_that_gives_what_cannot_be_shown_fails_by_itself():
    odd: list[Any] = []

    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    async with open_supervisor([ChildSpec("s", trio.sleep_forever)]) as top:
        answer = await top.start_child(ChildSpec("odd", Odd))
        odd.append(answer.reason.reason)
        assert (await top.count_children()).active == 1
    assert odd == [Reason.bad_return]


async def test_a_supervisor_gives_up_for_an_error_whose_text_cannot_be_had():
    with pytest.raises(RestartsExhausted) as gone:
        async with open_supervisor(
            [ChildSpec("a", crash_with, (Unsayable(),))], {"intensity": 0}, on_report=lambda *_: None
        ):
            await trio.sleep_forever()
    assert isinstance(gone.value.__cause__, Unsayable)


async def crash_with(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


def test_a_child_is_no_larger_for_what_is_kept_of_its_clean_up():
    assert not hasattr(Child("a", None, None, may_parent=False), "_closing_as")  # type: ignore[arg-type]


# ── starts that nobody waits for any more ───────────────────────────────────


async def fails_when_it_is_given_up(*, task_status: Any) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("in its start")


@pytest.mark.parametrize("how", ["cancel", "timeout", "stop", "again"])
async def test_an_error_in_a_start_that_was_given_up_is_reported(how, autojump_clock):
    reports = []
    kept = ChildSpec("a", fails_when_it_is_given_up, start_timeout=None)
    async with open_supervisor([], on_report=lambda _, report: reports.append(report)) as top:
        if how == "again":
            await top.reconfigure([kept])
        call = top.start_child(kept, timeout=0.5 if how == "timeout" else None)
        if how == "again":
            call.close()
            call = top.restart_child("a")
        async with trio.open_nursery() as nursery:

            async def asks():
                try:
                    await call
                except trio.TooSlowError:
                    assert how == "timeout"

            nursery.start_soon(asks)
            await wait_all_tasks_blocked()
            if how == "stop":
                await top.stop()
            elif how != "timeout":
                nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        if how != "stop":
            assert (await top.which_child("a") is not None) is (how == "again")
    assert [(report.topic, str(report.end.cause)) for report in reports] == [(Topic.start_failed, "in its start")]


async def test_an_error_of_a_start_that_was_too_slow_is_kept_beside_that(autojump_clock):
    async with open_supervisor([]) as top:
        answer = await top.start_child(ChildSpec("a", fails_when_it_is_given_up, start_timeout=1))
    assert isinstance(answer.reason.cause, trio.TooSlowError)
    assert str(answer.reason.lost) == "in its start"


async def test_what_the_children_of_a_supervisor_that_fails_itself_raise_is_reported():
    async def fails_when_stopped() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while its supervisor failed")

    def no_permission(id: Any, now: float) -> None:
        raise LookupError("no ledger")

    reports = []
    with pytest.raises(ChildFailed) as failed:
        async with open_supervisor(
            [ChildSpec("a", fails_when_stopped), ChildSpec("b", crash_with, (KeyError("b"),))],
            may_restart=no_permission,
            on_report=lambda _, report: reports.append(report),
        ):
            await trio.sleep_forever()
    assert isinstance(failed.value.__cause__, LookupError)
    assert [str(report.end.cause) for report in reports] == ["while its supervisor failed"]
