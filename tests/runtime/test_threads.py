"""O11: a call that blocks a worker thread is waited for or abandoned, as it says, and what is abandoned is counted.

Real threads and the real clock, as a thread is what is waited for.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.runtime.exits import Reason
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.stops import AbandonedThread, How
from actors.runtime.threads import ThreadCounts, Threads, _Call, run_in_thread

NONE = ThreadCounts(0, (), 0, 0)


class Gate:
    """A blocking call that is over when the test says so."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.calls = 0

    def hold(self, value: Any = None) -> Any:
        self.calls += 1
        self.entered.set()
        assert self.open.wait(5), "nobody opened"
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


async def until(met: Callable[[], bool]) -> None:
    with trio.fail_after(5):
        while not met():
            await trio.sleep(0.002)


def counts(tree: SupervisionTree) -> ThreadCounts:
    return tree.host.threads.statistics()


@pytest.mark.parametrize("on_stop", ["wait", "abandon"])
async def test_O11_a_worker_thread_is_waited_for_or_abandoned_as_its_call_says(gate, on_stop):
    done = []

    def holds():
        # One that is waited for ends by itself, after its grace; one that is abandoned when the test lets it.
        gate.open.wait(5 if on_stop == "abandon" else 0.3)

    async def works():
        await run_in_thread(holds, on_stop=on_stop)
        done.append("a result")

    tree = open_supervisor([ChildSpec("a", works, grace=0.05)])
    async with tree as top:
        await until(lambda: counts(tree).running == 1)
        receipt = await top.stop()
    assert receipt.complete and receipt.stopped[0].path == "top/a"
    if on_stop == "abandon":
        assert receipt.stopped[0].how is How.clean and done == []
        [thread] = receipt.threads
        assert str(thread).endswith("holds, called by top/a")
        assert counts(tree) == ThreadCounts(0, receipt.threads, 1, 0)
        gate.open.set()
        await until(lambda: counts(tree) == ThreadCounts(0, (), 1, 1))
    else:
        assert receipt.threads == () and done == ["a result"]
        assert counts(tree) == NONE


@pytest.mark.parametrize("late", ["late", ValueError("late")])
async def test_what_an_abandoned_thread_brings_reaches_nobody(gate, late, caplog):
    got: list[Any] = []

    async def works():
        got.append(await run_in_thread(gate.hold, late, on_stop="abandon"))

    tree = open_supervisor([ChildSpec("a", works, restart="temporary")])
    async with tree as top:
        await until(gate.entered.is_set)
        ref = (await top.which_child("a")).ref
        assert (await top.terminate_child("a")).ok
        [thread] = counts(tree).going_on
        assert (thread.path, thread.function) == ("top/a", "Gate.hold") and thread.since <= trio.current_time()
        gate.open.set()
        await until(lambda: counts(tree).finished_late == 1)
        await wait_all_tasks_blocked(0.01)
        assert counts(tree) == ThreadCounts(0, (), 1, 1)
    assert got == [] and ref.exit.reason is Reason.shutdown and ref.exit.cause is None
    assert caplog.text == ""


async def test_a_result_and_an_error_come_as_those_of_any_call():
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divmod, 7, 0, on_stop="abandon")
    with pytest.raises(ValueError, match="forget"):
        await run_in_thread(divmod, 7, 0, on_stop="forget")


async def test_a_thread_that_had_not_begun_when_its_caller_left_never_runs(gate):
    other = Gate()
    limiter = trio.CapacityLimiter(1)

    async def works(it: Gate):
        await run_in_thread(it.hold, on_stop="abandon", limiter=limiter)

    tree = open_supervisor([ChildSpec("a", works, (gate,)), ChildSpec("b", works, (other,))])
    async with tree as top:
        await until(gate.entered.is_set)
        await wait_all_tasks_blocked(0.01)
        assert (await top.terminate_child("b")).ok
        assert counts(tree) == ThreadCounts(1, (), 0, 0)
        # An abandoned one still holds its place.
        assert (await top.terminate_child("a")).ok and limiter.borrowed_tokens == 1
        gate.open.set()
        await until(lambda: limiter.borrowed_tokens == 0)
    assert (gate.calls, other.calls) == (1, 0)
    assert counts(tree) == ThreadCounts(0, (), 1, 1)


async def test_a_thread_that_is_waited_for_and_outlasts_the_kill_is_named_by_its_actor(gate):
    leave = trio.Event()

    async def works():
        try:
            await run_in_thread(gate.hold)
        finally:
            leave.set()

    reports = []
    tree = open_supervisor(on_report=lambda _path, report: reports.append(report))
    async with tree as top:
        ref = (await top.start_child(ChildSpec("a", works, grace=0.01))).ref
        await until(gate.entered.is_set)
        await top.terminate_child("a")
        assert ref.exit.reason is Reason.killed and not ref.exit.left
        assert counts(tree) == ThreadCounts(1, (), 0, 0) and len(tree.host.abandoned) == 1
        gate.open.set()
        await leave.wait()
        await wait_all_tasks_blocked()
        assert counts(tree) == NONE and not tree.host.abandoned
    assert [report.child for report in reports] == ["a"]


async def test_the_receipt_names_the_threads_of_what_was_stopped_and_no_others(gate):
    async def works():
        await run_in_thread(gate.hold, on_stop="abandon")

    tree = open_supervisor([ChildSpec("a", works), ChildSpec("b", works)])
    async with tree as top:
        await until(lambda: counts(tree).running == 2)
        await top.terminate_child("a")
        assert [each.path for each in counts(tree).going_on] == ["top/a"]
        receipt = await top.stop()
        assert [each.path for each in receipt.threads] == ["top/b"]
        assert [each.path for each in counts(tree).going_on] == ["top/a", "top/b"]


async def test_a_halt_names_the_threads_that_its_agents_abandoned(gate):
    async def root(agent: Agent) -> None:
        await run_in_thread(gate.hold, on_stop="abandon")

    async with open_tree(Containment(3, 2, 1, 100)) as tree, trio.open_nursery() as nursery:

        async def run() -> None:
            await tree.run_root(root, ())

        nursery.start_soon(run)
        await until(gate.entered.is_set)
        receipt = await tree.halt()
        assert [str(each) for each in receipt.threads] == ["Gate.hold, called by root"]
        assert tree.host.threads.statistics().abandoned == 1


async def test_outside_of_a_tree_nothing_is_shown_and_the_policy_holds(gate):
    with trio.move_on_after(0.05) as scope:
        await run_in_thread(gate.hold, on_stop="abandon")
    assert scope.cancelled_caught and gate.calls == 1


async def test_a_thread_that_sees_the_cancel_itself_is_none_that_was_abandoned():
    entered = threading.Event()

    def looks() -> None:
        entered.set()
        while True:
            trio.from_thread.check_cancelled()
            time.sleep(0.002)

    async def works():
        await run_in_thread(looks)

    tree = open_supervisor([ChildSpec("a", works, restart="temporary")])
    async with tree as top:
        await until(entered.is_set)
        ref = (await top.which_child("a")).ref
        assert (await top.terminate_child("a")).ok and ref.exit.reason is Reason.shutdown
        assert counts(tree) == NONE


def test_between_a_cancel_and_its_thread_every_order_is_counted_right():
    threads = Threads()
    thread = AbandonedThread("a", "f", 0.0)
    too_late, in_time, beside = _Call(), _Call(), _Call()
    # Given up before the thread came to it: it does nothing.
    threads.give_up(too_late, thread)
    assert not threads.begin(too_late) and threads.statistics() == NONE
    # Done in the moment in which it was given up: nothing goes on.
    assert threads.begin(in_time)
    threads.end(in_time)
    threads.give_up(in_time, thread)
    assert threads.statistics() == NONE
    assert threads.begin(beside)
    threads.give_up(beside, thread)
    assert threads.statistics() == ThreadCounts(0, (thread,), 1, 0)
    threads.end(beside)
    assert threads.statistics() == ThreadCounts(0, (), 1, 1)
