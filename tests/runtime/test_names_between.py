"""Rows N15 and 2.2: a name between two incarnations says `restarting`, for tasks, supervisors and behaviours alike."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ActorGone, GoneReason, NameRestarting
from actors.runtime.behaviour import Behaviour
from actors.runtime.links import child_of
from actors.runtime.named import Named
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.starting import IGNORE
from actors.runtime.supervise import supervise

SLOW = {"intensity": 9, "period": 100, "backoff": {"minimum": 10, "maximum": 10}}
QUICK = {"intensity": 9}


class Idle(Behaviour):
    def receive(self, message: Any, call: Any) -> Any:
        return message


async def idle() -> None:
    await trio.sleep_forever()


async def ready_late(*, task_status: Any) -> None:
    await trio.sleep(5)
    task_status.started()
    await trio.sleep_forever()


STARTS = {"task": idle, "task that says ready": ready_late, "supervisor": supervise, "behaviour": Idle}
kinds = pytest.mark.parametrize("kind", STARTS)


def spec(kind: str, id: str = "a", **more: Any) -> ChildSpec:
    return ChildSpec(id, STARTS[kind], name=more.pop("name", "n"), **more)


def tree(*specs: ChildSpec, flags: Any) -> SupervisionTree:
    return open_supervisor(specs, flags, on_report=lambda _path, _report: None)


async def break_down(it: SupervisionTree, name: str = "n") -> Any:
    """End who has the name, without its supervisor having asked; give its ref."""
    old = it.host.registry.whereis(name)
    child_of(old).order_kill()
    await wait_all_tasks_blocked()
    return old


@kinds
async def test_N15_between_two_incarnations_users_of_a_name_are_told_or_wait(kind, autojump_clock):
    it = tree(spec(kind), flags=SLOW)
    async with it:
        began = trio.current_time()
        old = await break_down(it)
        with pytest.raises(NameRestarting):
            it.host.registry.whereis("n")
        with pytest.raises(ActorGone) as gone:
            await Named(it.host, "n").ref()
        assert gone.value.reason == GoneReason.restarting
        with pytest.raises(trio.TooSlowError):
            await Named(it.host, "n", patient=True).ref(timeout=2)
        new = await Named(it.host, "n", patient=True).ref(timeout=60)
        assert trio.current_time() == began + 10
        assert new is not old and new.exit is None and old.exit is not None
        await trio.sleep(20)
        assert await Named(it.host, "n").ref() is new
    assert it.host.registry.names() == () and not it.host.registry.is_restarting("n")


@kinds
async def test_the_mark_is_there_in_the_step_of_the_end(kind, autojump_clock):
    it = tree(spec(kind), flags=SLOW)
    seen = []
    async with it:
        child_of(it.host.registry.whereis("n")).watch(
            lambda _exit: seen.append((it.host.registry.names(), it.host.registry.is_restarting("n")))
        )
        await break_down(it)
    assert seen == [((), True)]


@kinds
@pytest.mark.parametrize("how", ["temporary", "terminated", "terminated while it waits", "given up", "stopped"])
async def test_a_name_that_does_not_come_back_is_nobodys(kind, how, autojump_clock):
    restart = "temporary" if how == "temporary" else "permanent"
    it = tree(spec(kind, restart=restart), flags={**SLOW, "intensity": 0 if how == "given up" else 9})
    waited = []

    async def wait() -> None:
        waited.append(await it.host.registry.wait_back("n"))

    try:
        async with it as top, trio.open_nursery() as nursery:
            if how == "terminated":
                await top.terminate_child("a")
            elif how == "stopped":
                await top.stop()
            else:
                await break_down(it)
                nursery.start_soon(wait)
                await wait_all_tasks_blocked()
                if how == "terminated while it waits":
                    assert waited == [] and (await top.terminate_child("a")).ok
                await wait_all_tasks_blocked()
                assert waited == [None]
            assert it.host.registry.whereis("n") is None
    except* Exception:
        assert how == "given up"
    assert not it.host.registry.is_restarting("n")


@kinds
async def test_a_group_restart_marks_the_names_of_those_it_stops(kind, autojump_clock):
    it = tree(spec(kind, "a", name="one"), spec(kind, "b", name="two"), flags={**SLOW, "strategy": "one_for_all"})
    async with it:
        old = it.host.registry.whereis("one")
        await break_down(it, "two")
        for name in ("one", "two"):
            with pytest.raises(NameRestarting):
                it.host.registry.whereis(name)
        new = await Named(it.host, "one", patient=True).ref(timeout=60)
        assert new is not old and (await Named(it.host, "two", patient=True).ref(timeout=60)).exit is None


@pytest.mark.parametrize("kind", ["task", "supervisor"])
async def test_an_attempt_that_ends_clean_leaves_the_name_between_incarnations(kind, autojump_clock):
    tries: list[float] = []

    def late() -> bool:
        tries.append(trio.current_time())
        return len(tries) in (2, 3)

    async def ends_before_it_is_ready(*, task_status: Any) -> None:
        if not late():
            task_status.started()
            await trio.sleep_forever()

    async def broken(*, task_status: Any) -> None:
        raise ValueError("not yet")

    def cannot_start_its_child() -> Any:
        return supervise([ChildSpec("x", broken)] if late() else [])

    # Once it runs, a clean end would not bring a transient child back; a start that fails is tried again.
    start = {"task": ends_before_it_is_ready, "supervisor": cannot_start_its_child}[kind]
    it = tree(ChildSpec("a", start, name="n", restart="transient"), flags=SLOW)
    async with it:
        began = trio.current_time()
        await break_down(it)
        for at in (5, 15, 25):
            await trio.sleep_until(began + at)
            with pytest.raises(NameRestarting):
                it.host.registry.whereis("n")
        new = await Named(it.host, "n", patient=True).ref(timeout=600)
        assert new.exit is None and [at - began for at in tries] == [0, 10, 20, 30]


async def test_a_name_that_a_new_spec_took_away_is_no_longer_waited_for(autojump_clock):
    for kind in STARTS:
        it = tree(spec(kind), flags=SLOW)
        async with it as top:
            await break_down(it)
            assert (await top.reconfigure([spec(kind, name="m")])).ok
            await trio.sleep(20)
            assert it.host.registry.whereis("m") is (await top.which_child("a")).ref
            assert it.host.registry.whereis("n") is None and it.host.registry.names() == ("m",)


async def test_a_start_that_ignores_gives_the_name_back_for_good(autojump_clock):
    starts = iter([idle, lambda: IGNORE])

    def start() -> Any:
        return next(starts)()

    it = tree(ChildSpec("a", start, name="n"), flags=SLOW)
    async with it:
        await break_down(it)
        assert it.host.registry.is_restarting("n")
        await trio.sleep(11)
        assert it.host.registry.whereis("n") is None


async def test_a_supervisor_is_administered_by_its_name(autojump_clock):
    it = tree(spec("supervisor"), flags=QUICK)
    async with it:
        pool = Named(it.host, "n", patient=True)
        assert (await (await pool.ref()).start_child(ChildSpec("x", idle))).ok
        await break_down(it)
        # What was added at run time is gone with the old incarnation.
        assert (await (await pool.ref(timeout=1)).count_children()).specs == 0
    with pytest.raises(ActorGone, match="noproc"):
        await Named(it.host, "n").ref()


@pytest.mark.parametrize("kind", ["task", "supervisor"])
async def test_what_takes_no_messages_says_so_by_its_name(kind, autojump_clock):
    it = tree(spec(kind), flags=QUICK)
    async with it:
        named = Named(it.host, "n", patient=True)
        with pytest.raises(TypeError, match=r"'n' names top/a, which takes no messages; use its handle"):
            named.tell("hello")
        for leave in (named.send, named.ask):
            with pytest.raises(TypeError, match=r"'n' names top/a, which takes no messages; use its handle"):
                await leave("hello")
        assert (await named.ref()).exit is None and len(it.host.dead_letters) == 0
