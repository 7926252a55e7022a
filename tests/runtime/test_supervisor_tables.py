"""INV-9: nothing grows with children that have ended; and a real run can be replayed."""

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.errors import ActorGone, RestartsExhausted, Stopping
from actors.runtime import supervisor as shell
from actors.runtime.behaviour import Behaviour
from actors.runtime.plan import Plan, Word
from actors.runtime.specs import ChildSpec

MANY = {"intensity": 10**6}


async def forever():
    await trio.sleep_forever()


async def at_once():
    return


async def crash():
    raise ValueError("x")


class Named(Behaviour):
    async def init(self):
        self.me.send_after(1000, "tick")


def sizes(tree):
    """Count what every table of the tree holds."""
    top, host = tree.top, tree.host
    plan = top.plan
    return {
        "plan": (len(plan.children), len(plan._by_ref), len(plan.window.entries), len(plan.voided)),
        "shell": (len(top._of), len(top._by_key), len(top._notes), len(top._between)),
        "children": len(top.children or ()),
        "mailbox": len(top.mailbox),
        "asks": len(top._calls),
        "heap": len(host.deadlines._heap) <= 64,
        "deadlines": len(host.deadlines),
        "names": host.registry.names(),
        "abandoned": len(host.abandoned),
        "waits": len(host.waits),
        "tasks": len(host.nursery.child_tasks),
    }


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("start", [at_once, crash, forever, Named])
async def test_2000_children_started_and_ended_leave_all_tables_at_their_size(stage, start, dynamic):
    async with stage.open((), {"dynamic": dynamic, **MANY}) as top:
        before = sizes(stage.tree)
        for number in range(2000):
            answer = await top.start_child(
                ChildSpec(number, start, restart="temporary", name=f"n{number}", start_timeout=100), timeout=100
            )
            assert answer.word is Word.ok
            if start in (forever, Named):
                assert (await top.terminate_child(answer.ref if dynamic else number)).ok
            else:
                await answer.ref.wait()
        await wait_all_tasks_blocked()
        assert sizes(stage.tree) == before


async def test_static_children_that_are_deleted_leave_nothing(stage):
    async with stage.open((), MANY) as top:
        before = sizes(stage.tree)
        for number in range(500):
            await top.start_child(stage.spec(number, "transient"))
            await stage.end(number, "normal")
            assert (await top.delete_child(number)).ok
        assert sizes(stage.tree) == before


async def test_children_that_failed_to_start_or_wait_for_their_restart_leave_nothing(stage, autojump_clock):
    flags = {**MANY, "backoff": {"minimum": 500, "maximum": 500}}
    async with stage.open((), flags) as top:
        before = sizes(stage.tree)
        for _number in range(200):
            await top.start_child(ChildSpec("bad", crash_before))
            await top.start_child(stage.spec("a"))
            await stage.end("a")
            await top.terminate_child("a")
            await top.delete_child("a")
        after = sizes(stage.tree)
        # What stands in the window is bounded by the intensity, and leaves it at the next decision.
        assert after.pop("plan")[2] <= 200 and before.pop("plan")
        assert after == before


async def crash_before(*, task_status):
    raise ValueError("x")


class Journal(Plan):
    """A plan that notes each event and what came of it."""

    made: list = []  # noqa: RUF012

    def __init__(self, path, flags, specs=(), **more):
        super().__init__(path, flags, specs, **more)
        self.first, self.events = (path, flags, tuple(specs)), []
        Journal.made.append(self)


def _noted(name):
    def method(self, *args):
        given = getattr(Plan, name)(self, *args)
        self.events.append((name, args, given))
        return given

    return method


EVENTS = ["boot", "begins", "started", "ignored", "cut", "start_failed", "ended", "note_due", "stop", "stopped"]
EVENTS += ["start_child", "terminate_child", "restart_child", "delete_child"]
for _name in EVENTS:
    setattr(Journal, _name, _noted(_name))


def test_a_run_through_the_shell_can_be_replayed(monkeypatch):
    monkeypatch.setattr(shell, "Plan", Journal)
    replayed = 0
    for seed in range(100):
        Journal.made.clear()
        trio.run(one_run, seed, clock=trio.testing.MockClock(autojump_threshold=0))
        for plan in Journal.made:
            again = Journal(*plan.first)
            for name, args, given in list(plan.events):
                # Ends and reports are compared by value; the order of events is the journal's.
                assert getattr(again, name)(*args) == given
                replayed += 1
            assert again.listed() == plan.listed()
            Journal.made.remove(again)
    assert replayed > 1000


async def one_run(seed):
    import importlib.util
    from pathlib import Path

    found = importlib.util.spec_from_file_location("stage_of_one_run", Path(__file__).with_name("conftest.py"))
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    stage, chance = module.Stage(), random.Random(seed)
    strategy = chance.choice(["one_for_one", "one_for_all", "rest_for_one"])
    specs = [stage.spec(n, chance.choice(["permanent", "transient", "temporary"])) for n in range(4)]
    try:
        async with stage.open(specs, {"strategy": strategy, "intensity": 4}) as top:
            for _ in range(12):
                id = chance.randrange(5)
                what = chance.randrange(6)
                stage.part(id).failures = chance.choice([0, 0, 1])
                if what <= 2 and id in stage.live:
                    await stage.end(id, chance.choice(["normal", "error", "shutdown"]))
                elif what == 3:
                    await top.terminate_child(id)
                elif what == 4:
                    await top.restart_child(id)
                else:
                    await top.start_child(stage.spec(id))
                await trio.sleep(1)
    except (RestartsExhausted, ActorGone, Stopping):
        pass
