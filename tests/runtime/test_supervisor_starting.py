"""Scenarios of starting (A), and of which ends are restarted (B)."""

import logging

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ConfigError, RestartsExhausted, StartFailed
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Reason
from actors.runtime.links import child_of
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Count, FailedToStart, Status, Word
from actors.runtime.specs import ChildSpec
from actors.runtime.starting import IGNORE
from actors.runtime.supervise import supervise

MANY = {"intensity": 1000}


async def forever():
    await trio.sleep_forever()


# ── A. starting ─────────────────────────────────────────────────────────────


async def test_A1_a_supervisor_without_children_starts_and_ends_as_shutdown():
    async with open_supervisor() as top:
        assert await top.list_children() == []
    assert top.exit.reason is Reason.shutdown


async def test_A2_children_start_in_order_and_each_init_ends_before_the_next_begins(stage, autojump_clock):
    for id in "abc":
        stage.part(id).init = 1
    async with stage.open(stage.specs("abc")):
        assert stage.log == ["start(a)", "start(b)", "start(c)"]
        assert [at for _, at, _ in stage.started] == [1, 2, 3]
        # The starter got control only after the last.
        assert trio.current_time() == 3


async def test_A3_a_start_that_decides_to_ignore_starts_nothing_and_is_no_error(stage):
    async with stage.open() as top:
        answer = await top.start_child({"id": "inner", "start": lambda: IGNORE, "type": "supervisor"})
        assert (answer.word, answer.ref, answer.ok) == (Word.ignored, None, True)
    assert stage.reports == [] and stage.log == []


@pytest.mark.parametrize("given", [ValueError("no config"), 7, None, "IGNORE"])
async def test_A5_a_start_that_raises_or_gives_nonsense_fails_and_leaves_no_name(stage, given):
    def config():
        if isinstance(given, Exception):
            raise given
        return given

    async with stage.open() as top:
        answer = await top.start_child(ChildSpec("inner", config, type="supervisor", name="inner"))
        assert answer.word is Word.error
        if isinstance(given, Exception):
            assert answer.reason.cause is given
        else:
            assert answer.reason.reason is Reason.bad_return and repr(given) in str(answer.reason)
        assert stage.tree.host.registry.names() == ()
        assert await top.list_children() == []


async def test_A6_a_start_that_fails_rolls_back_in_reverse_and_later_ones_never_start(stage):
    stage.part("c").failures = 1
    with pytest.raises(StartFailed) as failed:
        async with stage.open(stage.specs("abcd")):
            raise AssertionError("never entered")
    assert stage.log == ["start(a)", "start(b)", "fail(c)", "stop(b, shutdown)", "stop(a, shutdown)"]
    end = failed.value.exit
    assert end.reason is Reason.shutdown and isinstance(end.payload, FailedToStart)
    assert (end.payload.id, end.payload.end.reason) == ("c", Reason.error)
    assert failed.value.__cause__ is stage.part("c").error


async def test_A7_a_start_that_raises_by_itself_is_rolled_back_alike(stage):
    def broken():
        raise KeyError("c")

    with pytest.raises(StartFailed) as failed:
        async with stage.open([*stage.specs("ab"), ChildSpec("c", broken), stage.spec("d")]):
            raise AssertionError("never entered")
    assert stage.log == ["start(a)", "start(b)", "stop(b, shutdown)", "stop(a, shutdown)"]
    assert isinstance(failed.value.__cause__, KeyError)
    assert isinstance(failed.value.exit.payload.end.cause, KeyError)


async def test_A7_the_cause_of_a_failed_start_is_found_through_nested_supervisors(stage):
    stage.part("leaf").failures = 1
    inner = stage.inner("inner", [stage.spec("leaf")])
    with pytest.raises(StartFailed) as failed:
        async with stage.open([stage.inner("outer", [inner])]):
            raise AssertionError("never entered")
    assert failed.value.__cause__ is stage.part("leaf").error


async def test_A9_a_permanent_child_that_ignores_is_kept_without_a_ref(stage):
    stage.part("a").ignores = 1
    async with stage.open(stage.specs("a")) as top:
        line = await top.which_child("a")
        assert (line.ref, line.status) == (None, Status.idle)
        assert await top.count_children() == Count(specs=1, active=0, supervisors=0, workers=1)


async def test_a_coroutine_that_asks_for_task_status_may_ignore_as_well(stage):
    async def start(*, task_status):
        return IGNORE

    async with stage.open([ChildSpec("a", start)]) as top:
        assert (await top.which_child("a")).status is Status.idle
    assert stage.reports == []


async def test_A12_a_name_in_use_is_answered_with_who_has_it(stage):
    async with stage.open() as top:
        first = await top.start_child(ChildSpec("first", supervise, type="supervisor", name="n"))
        assert first.word is Word.ok
        second = await top.start_child(ChildSpec("second", supervise, type="supervisor", name="n"))
        assert (second.word, second.ref) == (Word.already_started, first.ref)
        assert await top.which_child("second") is None and first.ref.exit is None
        assert stage.tree.host.registry.whereis("n") is first.ref
        await top.terminate_child("first")
        assert stage.tree.host.registry.names() == ()


async def test_a_start_that_takes_too_long_fails_and_leaves_nothing(stage, autojump_clock):
    stage.part("a").init = 60
    async with stage.open() as top:
        answer = await top.start_child(stage.spec("a", start_timeout=2))
        assert answer.word is Word.error and isinstance(answer.reason.cause, trio.TooSlowError)
        assert trio.current_time() == 2
        assert await top.list_children() == [] and len(stage.tree.top._of) == 0
    assert stage.log == []


@pytest.mark.parametrize("how", ["timeout", "cancel"])
@pytest.mark.parametrize("kind", ["player", "supervisor", "behaviour"])
async def test_a_start_child_that_is_given_up_leaves_no_child_no_spec_and_no_name(stage, autojump_clock, how, kind):
    class Slow(Behaviour):
        async def init(self):
            await trio.sleep(60)

    stage.part("a").init = 60
    specs = {
        "player": stage.spec("a"),
        "supervisor": stage.inner("a", stage.specs("ba"), name="n"),
        "behaviour": ChildSpec("a", Slow, name="n"),
    }
    async with stage.open() as top:
        if how == "timeout":
            with pytest.raises(trio.TooSlowError):
                await top.start_child(specs[kind], timeout=2)
        else:
            with trio.move_on_after(2) as scope:
                await top.start_child(specs[kind])
            assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert trio.current_time() == 2
        assert await top.list_children() == []
        assert stage.tree.host.registry.names() == () and not stage.tree.top.children
        stage.part("a").init = 0
        stage.log.clear()
        assert (await top.start_child(stage.spec("a"))).word is Word.ok
        assert stage.log == ["start(a)"]
    assert stage.reports == []


async def test_a_restart_child_that_is_given_up_keeps_the_spec(stage, autojump_clock):
    async with stage.open(stage.specs("a")) as top:
        await top.terminate_child("a")
        stage.part("a").init = 60
        with pytest.raises(trio.TooSlowError):
            await top.restart_child("a", timeout=2)
        assert (await top.which_child("a")).status is Status.idle
        stage.part("a").init = 0
        assert (await top.restart_child("a")).word is Word.ok


async def test_the_extra_value_of_a_start_goes_to_who_called_for_it(stage):
    stage.part("a").extra = 8080
    async with stage.open() as top:
        assert (await top.start_child(stage.spec("a"))).extra == 8080
        await top.terminate_child("a")
        assert (await top.restart_child("a")).extra == 8080


async def test_all_faults_of_flags_and_specs_are_said_at_once_and_nothing_starts(stage):
    with pytest.raises(ConfigError) as wrong:
        stage.open([{"id": "a"}, stage.spec("b"), stage.spec("b")], {"intensity": -1})
    assert {path for path, _ in wrong.value.problems} == {"flags.intensity", "children['a'].start", "children[2].id"}
    assert stage.log == []


async def test_a_child_that_may_be_restarted_for_ever_is_warned_of_once(stage, caplog):
    caplog.set_level(logging.DEBUG, logger="actors.supervisor")
    async with stage.open([stage.spec("a", grace=9), stage.spec("b", grace=1)]) as top:
        await stage.end("a")
        await top.start_child(stage.spec("c", grace=7))
    warned = [record.getMessage() for record in caplog.records if "restarted for ever" in record.getMessage()]
    assert [text[:9] for text in warned] == ["child 'a'", "child 'c'"]


# ── B. which ends are restarted ─────────────────────────────────────────────

RESTARTED = {
    "permanent": {"normal", "shutdown", "shutdown(x)", "error", "killed"},
    "transient": {"error", "killed"},
    "temporary": set(),
}
CASES = [
    (f"B{5 * row + column}", restart, how)
    for row, restart in enumerate(RESTARTED)
    for column, how in enumerate(["normal", "shutdown", "shutdown(x)", "error", "killed"], 1)
]


@pytest.mark.parametrize(("restart", "how"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_B1_to_B15_type_and_reason_decide_about_a_restart(stage, restart, how):
    async with stage.open([stage.spec("a", restart)], MANY) as top:
        old = (await top.which_child("a")).ref
        await stage.end("a", how)
        line = await top.which_child("a")
        if how in RESTARTED[restart]:
            assert line.ref is not old and line.ref is not None and line.status is Status.live
            assert (await top.count_children()).active == 1
        elif restart == "transient":
            assert (line.ref, line.status) == (None, Status.idle)
        else:
            assert line is None
    again = ["start(a)", "stop(a, shutdown)"] if how in RESTARTED[restart] else []
    assert stage.log == ["start(a)", f"stop(a, {how.removesuffix('(x)')})", *again]


@pytest.mark.parametrize("kind", ["task", "behaviour", "supervisor"])
async def test_B4_the_name_leads_to_the_new_incarnation(stage, kind):
    class Idle(Behaviour):
        def receive(self, message, call):
            raise message

    async def task():
        await trio.sleep_forever()

    start = {"task": task, "behaviour": Idle, "supervisor": supervise}[kind]
    async with stage.open([ChildSpec("a", start, name="n")], MANY) as top:
        registry = stage.tree.host.registry
        old = registry.whereis("n")
        assert old is (await top.which_child("a")).ref
        # It ends without its supervisor having asked.
        child_of(old).order_kill()
        await wait_all_tasks_blocked()
        new = registry.whereis("n")
        assert new is (await top.which_child("a")).ref and new is not old and new.exit is None
    assert registry.names() == ()


async def test_B16_a_transient_child_that_ended_clean_is_kept_and_can_be_started_stopped_and_deleted(stage):
    async with stage.open([stage.spec("a", "transient")]) as top:
        await stage.end("a", "normal")
        assert (await top.start_child(stage.spec("a"))).word is Word.already_present
        assert (await top.restart_child("a")).word is Word.ok
        assert (await top.terminate_child("a")).word is Word.ok
        assert (await top.delete_child("a")).word is Word.ok
        assert await top.which_child("a") is None
    assert stage.log == ["start(a)", "stop(a, normal)", "start(a)", "stop(a, shutdown)"]


async def test_B19_each_abnormal_end_gives_exactly_one_report_and_a_clean_one_none(stage):
    specs = [stage.spec(restart, restart) for restart in RESTARTED]
    async with stage.open(specs, MANY, name="s") as top:
        for restart in RESTARTED:
            await stage.end(restart, "error")
        assert [(path, report.child) for path, report in stage.reports] == [("s", restart) for restart in RESTARTED]
        assert all(report.end.cause.args == ("x",) for _, report in stage.reports)
        stage.reports.clear()
        await stage.end("transient", "normal")
        await top.start_child(stage.spec("temporary", "temporary"))
        await stage.end("temporary", "shutdown")
        assert stage.reports == []
        # The clean end of a permanent child is reported as well.
        await stage.end("permanent", "normal")
        assert stage.topics == [("child ended", "permanent")]


async def test_a_report_that_cannot_be_heard_harms_nobody(caplog):
    def deaf(_path, _report):
        raise RuntimeError("deaf")

    async def crash():
        raise ValueError("x")

    async with open_supervisor([ChildSpec("a", forever)], on_report=deaf) as top:
        answer = await top.start_child(ChildSpec("b", crash, restart="temporary"))
        assert answer.word is Word.ok
        await wait_all_tasks_blocked()
        assert (await top.count_children()).active == 1
    assert "whoever hears reports failed" in caplog.text


async def test_the_arguments_of_a_temporary_child_are_not_kept_once_it_runs(stage):
    async with stage.open() as top:
        await top.start_child(ChildSpec("a", stage.spec("a").start, ("secret",), restart="temporary"))
        await top.start_child(ChildSpec("b", stage.spec("b").start, ("kept",)))
        assert stage.live["a"].args == ("secret",)
        assert (await top.get_spec("a")).args == () and (await top.get_spec("b")).args == ("kept",)


async def test_the_root_error_says_which_refusal_ended_it(stage):
    with pytest.raises(RestartsExhausted) as gone:
        async with stage.open(stage.specs("ab"), MANY, may_restart=lambda id, now: "no money left"):
            await stage.end("a")
            await trio.sleep_forever()
    assert "; no further restart was allowed: no money left" in str(gone.value)
    assert stage.log == ["start(a)", "start(b)", "stop(a, error)", "stop(b, shutdown)"]
