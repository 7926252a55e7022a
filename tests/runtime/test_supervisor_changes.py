"""A supervisor that changes while something is under way: its flags, its specs, and who asks it back."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ConfigError, WouldDeadlock
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Word
from actors.runtime.specs import AutoShutdown, ChildSpec
from actors.runtime.supervisor import supervise

WAITS = {"intensity": 9, "backoff": {"minimum": 1, "maximum": 1}}


async def states(top):
    return {line.id: str(line.status) for line in reversed(await top.list_children())}


# ── who asks a supervisor that has just started it ──────────────────────────


async def test_a_child_that_is_ready_may_ask_the_supervisor_that_waited_for_it():
    answers: dict[str, Any] = {}
    tree: Any = None

    async def asks(who: str) -> None:
        answers[who] = (await tree.host.registry.whereis("inner").count_children()).specs

    async def function() -> None:
        await asks("function")
        await trio.sleep_forever()

    async def says(*, task_status: Any) -> None:
        task_status.started()
        await asks("started")
        await trio.sleep_forever()

    class First(Behaviour):
        async def init(self) -> None:
            self.me.ref.tell("begin")

        async def receive(self, message: Any, call: Any) -> None:
            await asks("first message")

    specs = [ChildSpec("f", function), ChildSpec("s", says), ChildSpec("w", First)]
    tree = open_supervisor([ChildSpec("inner", supervise, (specs,), type="supervisor", name="inner")])
    async with tree as top:
        await wait_all_tasks_blocked()
        assert answers == {"function": 3, "started": 3, "first message": 3}
        inner = (await top.which_child("inner")).ref
        # The same below a start by hand, and after a restart by hand.
        answers.clear()
        assert (await inner.terminate_child("s")).ok and (await inner.restart_child("s")).ok
        assert (await inner.start_child(ChildSpec("g", function))).ok
        await wait_all_tasks_blocked()
        assert answers == {"started": 3, "function": 4}
        assert len(tree.host.waits) == 0


async def test_a_child_that_is_not_ready_is_still_refused():
    refused = []
    tree: Any = None

    async def asks_too_soon(*, task_status: Any) -> None:
        try:
            await tree.host.registry.whereis("inner").count_children()
        except WouldDeadlock as error:
            refused.append(error)
        task_status.started()
        await trio.sleep_forever()

    specs = [ChildSpec("s", asks_too_soon)]
    tree = open_supervisor([ChildSpec("inner", supervise, (specs,), type="supervisor", name="inner")])
    async with tree:
        assert len(refused) == 1 and "the start of" in str(refused[0])


# ── a group restart that waits ──────────────────────────────────────────────


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_group_that_waits_is_started_whole_when_the_strategy_changes(stage, autojump_clock, strategy):
    async with stage.open(stage.specs("abc"), {**WAITS, "strategy": strategy}) as top:
        await stage.end("b")
        await top.reconfigure(flags={**WAITS, "strategy": "one_for_one"})
        assert (await states(top))["c"] == "idle"
        await trio.sleep(2)
        assert await states(top) == {"a": "live", "b": "live", "c": "live"}
        # From the next crash on the new one applies.
        stage.new()
        await stage.end("b")
        await trio.sleep(2)
        assert stage.new() == ["stop(b, error)", "start(b)"]


@pytest.mark.parametrize("backoff", [None, WAITS["backoff"]])
async def test_a_group_whose_attempt_fails_is_started_whole_when_the_strategy_changes(stage, autojump_clock, backoff):
    flags = {"intensity": 99, "backoff": backoff}
    async with stage.open(stage.specs("abc"), {**flags, "strategy": "one_for_all"}) as top:
        stage.new()
        stage.part("b").init, stage.part("b").failures = 1, 2
        stage.tell_to_end("a")
        await trio.sleep(0.5 if backoff is None else 1.5)
        async with trio.open_nursery() as nursery:
            # Asked while an attempt is under way; served before the next one.
            nursery.start_soon(top.reconfigure, (), {**flags, "strategy": "one_for_one"})
        await trio.sleep(9)
        assert await states(top) == {"a": "live", "b": "live", "c": "live"}
    # What was revived by the failed attempt ends no more: the next one begins at the child that failed.
    log = [line for line in stage.new() if "shutdown" not in line or "c" in line]
    assert log.count("start(a)") <= 2 and log.count("fail(b)") == 2
    assert log[-3:] == ["start(b)", "start(c)", "stop(c, shutdown)"]


async def test_one_that_waits_alone_ends_nobody_when_the_strategy_becomes_wider(stage, autojump_clock):
    async with stage.open(stage.specs("ab"), {**WAITS, "strategy": "one_for_one"}) as top:
        await stage.end("a")
        await top.reconfigure(flags={**WAITS, "strategy": "one_for_all"})
        stage.new()
        await trio.sleep(2)
        assert stage.new() == ["start(a)"]
        await stage.end("a")
        await trio.sleep(2)
        assert stage.new() == ["stop(a, error)", "stop(b, shutdown)", "start(a)", "start(b)"]


async def test_a_name_waits_for_a_group_that_is_started_although_the_strategy_changed(autojump_clock):
    class Named(Behaviour):
        def receive(self, message: Any, call: Any) -> Any:
            if message == "crash":
                raise ValueError("x")
            return "here"

    specs = [ChildSpec("a", Named, name="a"), ChildSpec("b", Named, name="b")]
    tree = open_supervisor(specs, {**WAITS, "strategy": "one_for_all"}, on_report=lambda *_: None)
    async with tree as top:
        (await top.which_child("a")).ref.tell("crash")
        await wait_all_tasks_blocked()
        await top.reconfigure(flags={**WAITS, "strategy": "one_for_one"})
        assert tree.host.registry.is_restarting("b")
        await trio.sleep(2)
        assert await tree.host.registry.whereis("b").ask("?") == "here"


# ── two changes in one queue ────────────────────────────────────────────────


async def busy_for_a_second(*, task_status: Any) -> None:
    await trio.sleep(1)
    task_status.started()
    await trio.sleep_forever()


async def queued(top: Any, *calls: Any) -> list[Any]:
    """Leave calls in the queue of a supervisor that is busy, one after the other; give what came of each."""
    came: dict[int, Any] = {}

    async def one(place: int, call: Any) -> None:
        try:
            came[place] = (await call()).word
        except Exception as error:
            came[place] = type(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(top.start_child, ChildSpec("busy", busy_for_a_second))
        await wait_all_tasks_blocked()
        for place, call in enumerate(calls):
            nursery.start_soon(one, place, call)
            await wait_all_tasks_blocked()
    return [came[place] for place in range(len(calls))]


ANY = {"auto_shutdown": "any_significant"}
SIGNIFICANT = ChildSpec("sig", trio.sleep_forever, restart="transient", significant=True)


@pytest.mark.parametrize("first", ["child", "flags"])
async def test_what_fitted_when_it_was_asked_is_judged_again_when_it_is_done(autojump_clock, first):
    async with open_supervisor([], ANY) as top:

        async def child():
            return await top.start_child(SIGNIFICANT)

        async def never():
            return await top.reconfigure([], {"auto_shutdown": "never"})

        calls = [child, never] if first == "child" else [never, child]
        assert await queued(top, *calls) == [Word.ok, ConfigError]
        mode = (await top.count_children()).specs, top._supervisor.plan.flags.auto_shutdown
        assert mode == ((2, AutoShutdown.any_significant) if first == "child" else (1, AutoShutdown.never))


async def test_new_specs_leave_flags_as_they_are_when_they_are_taken(autojump_clock):
    async with open_supervisor([], {"intensity": 1}) as top:

        async def flags():
            return await top.reconfigure([], {"intensity": 7})

        async def specs():
            return await top.reconfigure([ChildSpec("a", trio.sleep_forever)])

        assert await queued(top, flags, specs) == [Word.ok, Word.ok]
        assert top._supervisor.plan.flags.intensity == 7


async def test_new_specs_are_judged_by_the_flags_they_come_under(autojump_clock):
    async with open_supervisor([], ANY) as top:

        async def never():
            return await top.reconfigure([], {"auto_shutdown": "never"})

        async def specs():
            return await top.reconfigure([SIGNIFICANT, ChildSpec("other", trio.sleep_forever)])

        assert await queued(top, never, specs) == [Word.ok, ConfigError]
        assert await top.which_child("other") is None


# ── how long a child ran ────────────────────────────────────────────────────


async def test_what_a_child_ran_for_does_not_count_how_long_its_supervisor_was_busy(stage, autojump_clock):
    backoff = {"minimum": 4, "maximum": 100, "reset_after": 60}
    flags = {"intensity": 9, "period": 1000, "backoff": backoff}
    async with stage.open(stage.specs("a"), flags) as top:
        await stage.end("a")
        await trio.sleep(4.5)
        stage.part("slow").init = 100
        async with trio.open_nursery() as nursery:
            nursery.start_soon(top.start_child, stage.spec("slow"))
            await trio.sleep(1)
            stage.tell_to_end("a")
        await trio.sleep(20)
    # Ended at 5.5, looked at at 104.5, and the second in a row all the same: after 8 s.
    assert [at for id, at, _ in stage.started if id == "a"] == [0, 4, 112.5]


async def test_a_start_that_ignores_in_a_changed_group_leaves_the_others_started(stage, autojump_clock):
    async with stage.open(stage.specs("abc"), {**WAITS, "strategy": "one_for_all"}) as top:
        await stage.end("a")
        await top.reconfigure(flags={**WAITS, "strategy": "one_for_one"})
        stage.part("b").ignores = 1
        await trio.sleep(2)
        assert await states(top) == {"a": "live", "b": "idle", "c": "live"}


async def test_in_a_changed_group_each_one_runs_before_the_next_is_started(autojump_clock):
    log: list[str] = []
    crash = trio.Event()

    def start(id: str) -> Any:
        log.append(f"{id} is started")
        return run(id)

    async def run(id: str) -> None:
        log.append(f"{id} runs")
        if log.count("a runs") == 1:
            await crash.wait()
            if id == "a":
                raise ValueError("x")
        await trio.sleep_forever()

    specs = [ChildSpec(id, start, (id,)) for id in "ab"]
    async with open_supervisor(specs, {**WAITS, "strategy": "one_for_all"}, on_report=lambda *_: None) as top:
        await wait_all_tasks_blocked()
        crash.set()
        await wait_all_tasks_blocked()
        await top.reconfigure(flags={**WAITS, "strategy": "one_for_one"})
        await trio.sleep(2)
    assert log == ["a is started", "a runs", "b is started", "b runs"] * 2
