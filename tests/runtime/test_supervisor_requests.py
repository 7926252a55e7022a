"""Scenarios of administration (F), listing (G), dynamic supervisors (I), validation (L) and changes (M)."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ActorGone, ConfigError, GoneReason, RestartsExhausted
from actors.runtime.exits import Reason
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Count, Status, Word
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, ChildType, check_specs, read_flags, warnings_of
from actors.runtime.starting import IGNORE
from actors.runtime.supervise import supervise
from actors.testing.effort import count_calls

MANY = {"intensity": 1000}
DYNAMIC = {"dynamic": True, "intensity": 1000}


async def forever():
    await trio.sleep_forever()


# ── F. administration ───────────────────────────────────────────────────────


async def test_F1_F2_the_id_of_a_kept_child_is_taken(stage):
    async with stage.open(stage.specs("a")) as top:
        answer = await top.start_child(stage.spec("a"))
        assert (answer.word, answer.ref, answer.ok) == (Word.already_started, stage.live["a"], False)
        await top.terminate_child("a")
        assert (await top.start_child(stage.spec("a"))).word is Word.already_present
    assert stage.attempts["a"] == 1


async def test_F3_a_terminated_child_is_kept_without_a_ref(stage):
    async with stage.open(stage.specs("a")) as top:
        assert (await top.terminate_child("a")).word is Word.ok
        assert (await top.which_child("a")).ref is None
        assert await top.count_children() == Count(specs=1, active=0, supervisors=0, workers=1)
        # Once more is the same.
        assert (await top.terminate_child("a")).word is Word.ok
    assert stage.log == ["start(a)", "stop(a, shutdown)"]


@pytest.mark.parametrize("id", ["z", None, ["not hashable"]])
async def test_F5_an_unknown_id_is_not_found(stage, id):
    async with stage.open(stage.specs("a")) as top:
        for call in (top.terminate_child(id), top.restart_child(id), top.delete_child(id)):
            assert (await call).word is Word.not_found
        # A ref is no id.
        assert (await top.terminate_child(stage.live["a"])).word is Word.not_found
        assert await top.which_child(id) is None and await top.get_spec(id) is None


async def test_F6_restart_child_starts_what_does_not_run_in_its_place(stage):
    async with stage.open(stage.specs("abc")) as top:
        assert (await top.restart_child("b")).word is Word.running
        assert (await top.delete_child("b")).word is Word.running
        old = stage.live["b"]
        await top.terminate_child("b")
        answer = await top.restart_child("b")
        assert answer.word is Word.ok and answer.ref is stage.live["b"] is not old
        assert [line.id for line in await top.list_children()] == ["c", "b", "a"]


async def test_F8_a_terminated_temporary_child_is_gone(stage):
    async with stage.open([stage.spec("a", "temporary")]) as top:
        assert (await top.terminate_child("a")).ok
        assert await top.list_children() == []


async def test_F10_a_dead_supervisor_answers_noproc_at_once(stage, autojump_clock):
    async with stage.open() as top:
        await top.stop()
        calls = [
            top.start_child(stage.spec("a"), timeout=99),
            top.terminate_child("a", timeout=99),
            top.list_children(timeout=99),
            top.count_children(),
            top.reconfigure(),
        ]
        for call in calls:
            with pytest.raises(ActorGone) as gone:
                await call
            assert gone.value.reason is GoneReason.noproc
        assert trio.current_time() == 0


async def test_F11_a_start_child_that_fails_leaves_nothing_and_costs_nothing(stage):
    stage.part("a").failures = 99
    async with stage.open((), {"intensity": 0}) as top:
        answer = await top.start_child(stage.spec("a"))
        assert answer.word is Word.error and answer.reason.cause is stage.part("a").error
        assert await top.list_children() == [] and stage.attempts["a"] == 1
        # A restart by hand that fails keeps the spec, and is not tried again either.
        stage.part("a").failures = 0
        await top.start_child(stage.spec("a"))
        await top.terminate_child("a")
        stage.part("a").failures = 99
        assert (await top.restart_child("a")).word is Word.error
        await wait_all_tasks_blocked()
        assert (await top.which_child("a")).status is Status.idle and stage.attempts["a"] == 3
        assert top.exit is None


async def test_F11_a_name_that_is_held_outside_is_answered_with_who_has_it(stage):
    async with stage.open() as top:
        inner = (await top.start_child(stage.inner("inner", [ChildSpec("x", forever, name="n")]))).ref
        held = (await inner.which_child("x")).ref
        answer = await top.start_child(ChildSpec("y", forever, name="n"))
        assert (answer.word, answer.ref) == (Word.already_started, held)
        assert await top.which_child("y") is None


@pytest.mark.parametrize(("restart", "kept"), [("permanent", True), ("transient", True), ("temporary", False)])
async def test_F13_a_start_child_that_ignores_is_kept_unless_it_is_temporary(stage, restart, kept):
    stage.part("a").ignores = 2
    async with stage.open() as top:
        answer = await top.start_child(stage.spec("a", restart))
        assert (answer.word, answer.ref) == (Word.ignored, None)
        assert (await top.which_child("a") is not None) is kept
        if kept:
            assert (await top.restart_child("a")).word is Word.ignored
            assert (await top.restart_child("a")).word is Word.ok


async def test_F16_an_unknown_message_is_logged_and_dropped(stage, caplog):
    async with stage.open(stage.specs("a")) as top:
        stage.tree.top.ref.tell("nonsense")
        with pytest.raises(TypeError, match="nonsense"):
            await stage.tree.top.ref.ask("nonsense too")
        assert (await top.count_children()).active == 1
    assert "nonsense" in caplog.text and "nonsense too" in caplog.text


async def test_F18_get_spec_shows_the_defaults():
    async with open_supervisor([{"id": "a", "start": forever}]) as top:
        spec = await top.get_spec("a")
        assert (spec.restart, spec.grace, spec.significant, spec.type) == (Restart.permanent, 5.0, False, "worker")
        await top.start_child({"id": "s", "start": supervise, "type": "supervisor"})
        spec = await top.get_spec("s")
        assert (spec.grace, spec.type) == (float("inf"), ChildType.supervisor)


# ── G. listing and counting ─────────────────────────────────────────────────


async def test_G1_specs_are_counted_live_or_not(stage):
    stage.part("ignores").ignores = 1
    specs = [stage.spec("runs"), stage.spec("stopped"), stage.spec("ignores"), stage.inner("up", ()), stage.inner("down", ())]
    async with stage.open(specs) as top:
        await top.terminate_child("stopped")
        await top.terminate_child("down")
        assert await top.count_children() == Count(specs=5, active=2, supervisors=2, workers=3)


async def test_G2_the_list_is_newest_first_each_time(stage):
    async with stage.open(stage.specs("abc")) as top:
        for _ in range(3):
            assert [line.id for line in await top.list_children()] == ["c", "b", "a"]
        await stage.end("b")
        assert [line.id for line in await top.list_children()] == ["c", "b", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False])
async def test_G7_ten_times_the_children_take_about_ten_times_the_work_to_stop(dynamic):
    async def work(count):
        async with open_supervisor((), {"dynamic": dynamic}, cleanup_allowance=60) as top:
            for number in range(count):
                await top.start_child(ChildSpec(number, forever))
            with count_calls() as calls:
                await top.stop()
            return calls.made

    few, many = await work(500), await work(5000)
    assert 9 * few < many < 11 * few


# ── I. dynamic supervisors ──────────────────────────────────────────────────


async def test_I1_the_same_spec_may_be_started_many_times(stage):
    async with stage.open((), DYNAMIC) as top:
        refs = [(await top.start_child(stage.spec("a"))).ref for _ in range(3)]
        assert len(set(refs)) == 3
        assert await top.count_children() == Count(specs=3, active=3, supervisors=0, workers=3)


async def test_I2_at_the_limit_it_says_so_at_once(stage):
    async with stage.open((), {**DYNAMIC, "max_children": 0}) as top:
        assert (await top.start_child(stage.spec("a"))).word is Word.max_children
    assert stage.log == []


async def test_I3_a_child_that_waits_for_its_restart_still_counts(stage, autojump_clock):
    flags = {**DYNAMIC, "max_children": 1, "backoff": {"minimum": 9, "maximum": 9}}
    async with stage.open((), flags) as top:
        old = (await top.start_child(stage.spec("a"))).ref
        await stage.end("a")
        assert (await top.start_child(stage.spec("b"))).word is Word.max_children
        # Its old ref leads to it meanwhile.
        assert (await top.which_child(old)).status is Status.restarting
        assert (await top.terminate_child(old)).word is Word.ok
        assert (await top.start_child(stage.spec("b"))).word is Word.ok


async def test_I5_extra_arguments_stand_before_the_childs_own(stage):
    async with stage.open((), DYNAMIC, extra=(1, 2)) as top:
        spec = ChildSpec("a", stage.spec("a").start, (3,))
        await top.start_child(spec)
        await stage.end("a")
        assert [args for _, _, args in stage.started] == [(1, 2, 3), (1, 2, 3)]


async def test_I6_whatever_a_start_gives_besides_a_ref_is_answered_and_not_stored(stage):
    def leaves():
        raise ValueError("no")

    stage.part("a").failures = 1
    async with stage.open((), DYNAMIC) as top:
        for start, word in [(lambda: IGNORE, Word.ignored), (lambda: 7, Word.error), (leaves, Word.error)]:
            assert (await top.start_child(ChildSpec("x", start))).word is word
        assert (await top.start_child(stage.spec("a"))).word is Word.error
        assert await top.list_children() == [] and stage.tree.top.plan._by_ref == {}


@pytest.mark.parametrize("how", ["ignore", "clean"])
async def test_I7_a_child_that_does_not_come_back_is_dropped(stage, how):
    async with stage.open((), DYNAMIC) as top:
        await top.start_child(stage.spec("a", "permanent" if how == "ignore" else "transient"))
        stage.part("a").ignores = 1
        await stage.end("a", "error" if how == "ignore" else "normal")
        assert await top.count_children() == Count(0, 0, 0, 0)
        assert stage.tree.top.plan._by_ref == {}


@pytest.mark.parametrize(("intensity", "lives"), [(2, True), (1, False)])
async def test_I10_a_restart_that_fails_once_costs_two(stage, intensity, lives):
    try:
        async with stage.open((), {"dynamic": True, "intensity": intensity}) as top:
            old = (await top.start_child(stage.spec("a"))).ref
            stage.part("a").failures = 1
            await stage.end("a")
            [line] = await top.list_children()
            assert line.ref is stage.live["a"] is not old
    except (RestartsExhausted, ActorGone):
        assert not lives
    else:
        assert lives


async def test_I12_terminate_takes_a_ref_once(stage, autojump_clock):
    stage.part("b").stubborn = True
    async with stage.open((), DYNAMIC) as top:
        a = (await top.start_child(stage.spec("a"))).ref
        b = (await top.start_child(stage.spec("b", grace=1))).ref
        assert (await top.terminate_child(a)).word is Word.ok and a.exit.reason is Reason.shutdown
        assert (await top.terminate_child(a)).word is Word.not_found
        assert (await top.terminate_child(top)).word is Word.not_found and top.exit is None
        assert (await top.terminate_child("b")).word is Word.not_found
        assert (await top.terminate_child(b)).word is Word.ok and b.exit.reason is Reason.killed


async def test_I14_restart_and_delete_are_refused(stage):
    async with stage.open((), DYNAMIC) as top:
        ref = (await top.start_child(stage.spec("a"))).ref
        assert (await top.restart_child(ref)).word is Word.refused
        assert (await top.delete_child(ref)).word is Word.refused
        assert ref.exit is None


async def test_I15_another_strategy_is_rejected(stage):
    with pytest.raises(ConfigError, match="strategy"):
        stage.open((), {"dynamic": True, "strategy": "one_for_all"})


async def test_I17_L14_a_faulty_spec_is_rejected_in_the_caller(stage):
    async with stage.open(stage.specs("a")) as top:
        before = stage.tree.top.mailbox.statistics()
        for faulty in FAULTY:
            with pytest.raises(ConfigError):
                await top.start_child(faulty)
        assert stage.tree.top.mailbox.statistics() == before
        assert [line.id for line in await top.list_children()] == ["a"]


async def test_a_template_is_started_on_request_with_more_arguments(stage):
    template = ChildSpec("a", stage.spec("a").start, (1,))
    async with stage.open([template], DYNAMIC, extra=(0,)) as top:
        assert stage.log == []
        await top.start_child(args=(2,))
        await top.start_child()
        await stage.end("a")
        assert [args for _, _, args in stage.started] == [(0, 1, 2), (0, 1), (0, 1)]
        # It may be replaced, and not added to; children of it follow from their next use.
        with pytest.raises(ConfigError):
            await top.reconfigure([template, template])
        await top.reconfigure([ChildSpec("a", stage.spec("a").start, (7,))])
        await stage.end("a")
        assert stage.started[-1][2] == (0, 7)
    with pytest.raises(ConfigError):
        stage.open([template, template], DYNAMIC)


async def test_a_supervisor_without_a_template_says_so(stage):
    async with stage.open((), DYNAMIC) as top:
        with pytest.raises(ConfigError, match="no template"):
            await top.start_child(args=(1,))


# ── L. validation ───────────────────────────────────────────────────────────

FAULTY = [
    {"start": forever},
    {"id": "x"},
    {"id": "x", "start": forever, "restart": "sometimes"},
    {"id": "x", "start": forever, "grace": -1},
    {"id": "x", "start": forever, "grace": "soon"},
    {"id": "x", "start": forever, "restrat": "temporary"},
    {"id": ["x"], "start": forever},
    7,
]


@pytest.mark.parametrize(
    ("faulty", "path"),
    list(zip(FAULTY, ["id", "start", "restart", "grace", "grace", "restrat", "id", ""], strict=True)),
    ids=["L1", "L2", "L4", "L5-negative", "L5-word", "L12", "unhashable", "no-spec"],
)
def test_L1_to_L12_each_fault_has_its_own_error(stage, faulty, path):
    with pytest.raises(ConfigError) as wrong:
        stage.open([faulty])
    [(where, text)] = wrong.value.problems
    assert where.startswith("children[") and where.endswith(path) and text


@pytest.mark.parametrize(
    "flags",
    [
        {"strategy": "one_for_none"},
        {"intensity": -1},
        {"intensity": 1.5},
        {"intensity": float("inf")},
        {"period": 0},
        {"period": float("inf")},
        {"intnsity": 3},
    ],
)
def test_L9_L12_faulty_flags_are_rejected_with_their_path(stage, flags):
    with pytest.raises(ConfigError) as wrong:
        stage.open((), flags)
    [(path, _)] = wrong.value.problems
    assert path == f"flags.{next(iter(flags))}"


def test_L8_duplicate_ids_are_rejected(stage):
    with pytest.raises(ConfigError, match="id"):
        stage.open(stage.specs("aa"))


def test_L15_a_grace_that_outlasts_the_budget_is_warned_of(stage):
    flags = read_flags({"intensity": 2, "period": 10})
    [spec] = check_specs([stage.spec("a", grace=5)], flags)
    [warning] = warnings_of(spec, flags)
    assert "restarted for ever" in warning and "grace" in warning
    assert warnings_of(stage.spec("a", grace=4.9), flags) == ()


# ── M. changing a running supervisor ────────────────────────────────────────


async def test_M1_new_flags_apply_from_the_next_crash(stage):
    async with stage.open(stage.specs("ab"), {"intensity": 0}) as top:
        stage.new()
        assert (await top.reconfigure(flags={"intensity": 5, "strategy": "one_for_all"})).word is Word.ok
        assert stage.log == []
        await stage.end("a")
        assert stage.log == ["stop(a, error)", "stop(b, shutdown)", "start(a)", "start(b)"]


async def test_M2_M3_new_specs_are_added_and_missing_ones_run_on(stage):
    async with stage.open(stage.specs("a")) as top:
        await top.reconfigure([stage.spec("b")])
        assert [(line.id, line.status) for line in await top.list_children()] == [("b", "idle"), ("a", "live")]
        assert stage.log == ["start(a)"]
        assert (await top.restart_child("b")).word is Word.ok


async def test_M5_any_fault_leaves_the_old_configuration_whole(stage):
    flags = {"auto_shutdown": "any_significant"}
    async with stage.open([stage.spec("a", "transient", significant=True)], flags) as top:
        plan = stage.tree.top.plan
        before = (plan.flags, [kept.spec for kept in plan.children.values()])
        bad = [
            ([stage.spec("b"), {"id": "c"}], None),
            ([stage.spec("b")], {"intensity": -1}),
            ([stage.spec("b")], {"dynamic": True}),
            # The child that is kept is significant.
            ([stage.spec("b")], {"auto_shutdown": "never"}),
        ]
        for specs, new in bad:
            with pytest.raises(ConfigError):
                await top.reconfigure(specs, new)
            assert (plan.flags, [kept.spec for kept in plan.children.values()]) == before


async def test_M_a_changed_spec_applies_from_its_next_use(stage):
    async with stage.open(stage.specs("a"), MANY) as top:
        await top.reconfigure([ChildSpec("a", stage.spec("a").start, (2,), "temporary")])
        assert stage.live["a"].exit is None and stage.started[-1][2] == ()
        await stage.end("a")
        assert await top.list_children() == []


async def test_M_after_the_limit_is_lowered_existing_children_stay(stage):
    async with stage.open((), {**DYNAMIC, "max_children": 3}) as top:
        for _ in range(3):
            await top.start_child(stage.spec("a"))
        await top.reconfigure(flags={**DYNAMIC, "max_children": 1})
        assert (await top.count_children()).active == 3
        assert (await top.start_child(stage.spec("a"))).word is Word.max_children
