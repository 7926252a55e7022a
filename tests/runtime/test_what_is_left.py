"""What an ended actor leaves behind, what a look inside counts, and messages to names that nobody has just now."""

from typing import Any

import pytest
import trio

from actors.errors import ActorGone, GoneReason, RestartsExhausted
from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.dead_letters import Cause
from actors.runtime.exits import Reason
from actors.runtime.links import Down
from actors.runtime.named import Named
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.supervisor import supervise
from actors.runtime.tasks import start_task


class Target(Behaviour):
    def receive(self, message: Any, call: Call | None) -> Any:
        if message == "stop":
            self.me.stop()


class Watcher(Behaviour):
    async def init(self) -> None:
        self.heard: list[Any] = []
        self.monitors = [self.me.monitor(self.me.whereis("target")) for _ in range(2)]

    async def receive(self, message: Any, call: Call | None) -> Any:
        if isinstance(message, Down):
            self.heard.append(message)
        elif message == "die":
            raise ValueError("x")
        elif message == "call one off":
            self.monitors[0].demonitor()
        elif message == "start a task":
            await start_task(self.me.whereis("pool"), trio.sleep_forever, linked=False)
        else:
            self.me.stop()


def pool() -> ChildSpec:
    return ChildSpec("pool", supervise, ((), {"dynamic": True}), type="supervisor", name="pool")


async def ref_of(top: Any, id: str) -> Any:
    return (await top.which_child(id)).ref


@pytest.mark.parametrize("how", ["end", "die", "call one off"])
async def test_a_watcher_that_has_ended_is_kept_by_nobody_it_watched(how, autojump_clock):
    specs = [ChildSpec("target", Target, name="target"), pool()]
    async with open_supervisor(specs, on_report=lambda *_: None) as top:
        target, workers = await ref_of(top, "target"), await ref_of(top, "pool")
        for _ in range(5):
            watcher = (await workers.start_child(ChildSpec("w", Watcher, restart="temporary"))).ref
            watcher.tell(how)
            watcher.tell("end")
        await trio.sleep(0.1)
        assert (await workers.count_children()).active == 0
        assert not target._actor.watchers


async def test_a_task_keeps_nothing_of_a_caller_that_has_ended(autojump_clock):
    specs = [ChildSpec("target", Target, name="target"), pool(), ChildSpec("w", Watcher, restart="temporary")]
    async with open_supervisor(specs, on_report=lambda *_: None) as top:
        watcher = await ref_of(top, "w")
        watcher.tell("start a task")
        watcher.tell("end")
        await trio.sleep(0.1)
        [task] = [line.ref for line in await (await ref_of(top, "pool")).list_children()]
        assert watcher.exit is not None
        assert task.exit is None
        assert not task.child.watchers


async def test_a_watcher_keeps_no_monitor_that_has_told_or_was_called_off(autojump_clock):
    specs = [ChildSpec("target", Target, name="target", restart="temporary"), ChildSpec("w", Watcher)]
    async with open_supervisor(specs, on_report=lambda *_: None) as top:
        watcher = await ref_of(top, "w")
        watcher.tell("call one off")
        (await ref_of(top, "target")).tell("stop")
        await trio.sleep(0.1)
        state = await watcher.get_state()
        assert [down.exit.reason for down in state["heard"]] == [Reason.normal]
        assert not watcher._actor.watchers


async def test_two_that_were_linked_keep_nothing_of_each_other(autojump_clock):
    class Ties(Watcher):
        async def init(self) -> None:
            self.me.link(self.me.whereis("target"))

    specs = [ChildSpec("target", Target, name="target"), ChildSpec("w", Ties, restart="temporary")]
    async with open_supervisor(specs, on_report=lambda *_: None) as top:
        target, ties = await ref_of(top, "target"), await ref_of(top, "w")
        ties.tell("end")
        await trio.sleep(0.1)
        assert ties.exit is not None
        assert target.exit is None
        assert not target._actor.watchers
        assert not target._actor.links
        assert not ties._actor.links


# ── looking inside ──────────────────────────────────────────────────────────


async def test_statistics_count_the_restarts_of_the_child_and_keep_them_at_the_end(autojump_clock):
    class Dies(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            raise ValueError("x")

    template = ChildSpec("workers", supervise, ((), {"dynamic": True, "intensity": 9}), type="supervisor")
    async with open_supervisor([ChildSpec("a", Dies), template], {"intensity": 9}, on_report=lambda *_: None) as top:
        workers = await ref_of(top, "workers")
        await workers.start_child(ChildSpec("x", Dies, restart="permanent"))

        async def living() -> list[Any]:
            return [await ref_of(top, "a"), (await workers.list_children())[0].ref]

        for restarts in range(3):
            refs = await living()
            assert [ref.statistics().restarts for ref in refs] == [restarts, restarts]
            for ref in refs:
                ref.tell("die")
            await trio.sleep(0.1)
            assert [ref.statistics().restarts for ref in refs] == [restarts, restarts]


# ── names ───────────────────────────────────────────────────────────────────


async def test_a_send_to_a_name_between_two_incarnations_is_a_dead_letter(autojump_clock):
    class Dies(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            raise ValueError("x")

    flags = {"intensity": 9, "backoff": {"minimum": 1, "maximum": 1}}
    tree = open_supervisor([ChildSpec("t", Dies, name="t")], flags, on_report=lambda *_: None)
    async with tree:
        name = Named(tree.host, "t")
        name.tell("die")
        await trio.sleep(0.05)
        name.tell("one")
        await name.send("two")
        letters = [(letter.message, letter.cause) for letter in tree.host.dead_letters.take_all()]
        assert letters == [("one", Cause.noproc), ("two", Cause.noproc)]


async def test_a_send_to_nobody_that_is_cancelled_leaves_nothing(autojump_clock):
    tree = open_supervisor([])
    async with tree:
        with trio.CancelScope() as scope:
            scope.cancel()
            await Named(tree.host, "nobody").send("lost")
        assert tree.host.dead_letters.statistics().total == 0
        await Named(tree.host, "nobody").send("lost")
        assert tree.host.dead_letters.statistics().total == 1


# ── what has ended although its task has not left ───────────────────────────


class Stays(Behaviour):
    """Does not leave when it is killed, and goes on doing things."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
            self.me.monitor(message)
            self.me.link(message)
            self.timer = self.me.send_every(1, "tick")
            self.task = (await start_task(self.me.whereis("pool"), trio.sleep_forever)).ref
            await trio.sleep(5)


@pytest.mark.filterwarnings("ignore")
async def test_an_actor_that_was_given_up_watches_ties_and_ticks_nothing_any_more(autojump_clock):
    specs = [ChildSpec("target", Target, name="target"), pool(), ChildSpec("s", Stays, grace=0)]
    tree = open_supervisor(specs, on_report=lambda *_: None)
    async with tree as top:
        target, stays = await ref_of(top, "target"), await ref_of(top, "s")
        stays.tell(target)
        await trio.sleep(0.1)
        await top.terminate_child("s")
        assert stays.exit is not None and not stays.exit.left
        before = tree.host.dead_letters.statistics().total
        await trio.sleep(6)
        assert target.exit is None
        assert not target._actor.watchers and not target._actor.links and not stays._actor.links
        task = stays._actor.behaviour.task
        assert task.exit is not None
        # One tick finds it ended, and is the last.
        assert tree.host.dead_letters.statistics().total == before + 1
        assert not stays._actor._timers


async def test_statistics_count_the_restart_that_made_an_incarnation_which_dies_as_soon_as_it_is_ready(autojump_clock):
    ended: list[int] = []

    class DiesAtOnce(Behaviour):
        async def init(self) -> None:
            self.me.ref.tell("die")

        def receive(self, message: Any, call: Call | None) -> Any:
            raise ValueError("x")

        async def terminate(self, exit: Any) -> None:
            ended.append(self.me.ref.statistics().restarts)

    tree = open_supervisor([ChildSpec("a", DiesAtOnce, restart="transient")], {"intensity": 2}, on_report=lambda *_: None)
    with pytest.raises(RestartsExhausted):
        async with tree:
            await trio.sleep(1)
    assert ended == [0, 1, 2]


async def test_a_name_that_the_next_incarnation_does_not_take_is_waited_for_no_more(stage, autojump_clock):
    made = 0

    class Dies(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            raise ValueError("x")

    def start() -> Any:
        nonlocal made
        made += 1
        # The second kind knows nothing of names.
        return Dies() if made == 1 else stage.spec("t").start()

    async with stage.open([ChildSpec("t", start, name="n")]) as top:
        (await ref_of(top, "t")).tell("die")
        await trio.testing.wait_all_tasks_blocked()
        assert made == 2
        with trio.fail_after(5), pytest.raises(ActorGone) as caught:
            await Named(stage.tree.host, "n", patient=True).ask("x")
        assert caught.value.reason is GoneReason.noproc
