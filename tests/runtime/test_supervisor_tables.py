"""INV-9: nothing grows with children that have ended."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.runtime.behaviour import Behaviour
from actors.runtime.plan import Word
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
