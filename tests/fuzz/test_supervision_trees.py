"""Trees of supervised tasks with one fault at each checkpoint: the invariants hold."""

import math
import os
from collections.abc import Iterable
from typing import Any

import pytest
import trio

from actors.errors import ActorGone, ActorsError, RestartsExhausted, StartFailed
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import BRUTAL, Backoff, Budget, ChildSpec, ChildType, Flags
from actors.runtime.starting import IGNORE
from actors.runtime.supervise import supervise
from actors.testing.checkpoint_fuzz import Fuzz, Scenario, fuzz
from actors.testing.tree_invariants import SupervisionWatch

# Every n-th step; 1 is all of them.
STRIDE = int(os.environ.get("ACTORS_FUZZ_STRIDE", "1"))


def opened(f: Fuzz, specs: Iterable[ChildSpec], by_hand: bool = False, **flags: Any) -> SupervisionTree:
    tree = open_supervisor(specs, Flags(**flags), on_report=f.report, chance=lambda: 0.5)
    f.watch(SupervisionWatch(tree, by_hand=by_hand), host=tree.host)
    return tree


async def works(f: Fuzz) -> None:
    await f.point()
    await trio.sleep_forever()


def crashes_after(f: Fuzz, seconds: float, times: int) -> Any:
    """Give a start whose first incarnations crash."""
    left = [times]

    async def work() -> None:
        await f.point()
        if not left[0]:
            await trio.sleep_forever()
        await trio.sleep(seconds)
        left[0] -= 1
        raise ValueError("planned")

    return work


def starts_slowly(f: Fuzz, failures: int) -> Any:
    """Give a start that gets ready after a while, and fails some times before its second success."""
    started = [0]

    async def work(task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        started[0] += 1
        await trio.sleep(0.25)
        await f.point()
        if 1 < started[0] <= 1 + failures:
            raise ValueError("it does not start")
        task_status.started(started[0])
        await f.point()
        await trio.sleep_forever()

    return work


async def one_for_all_with_a_crasher(f: Fuzz) -> None:
    specs = [
        ChildSpec("a", works, (f,)),
        ChildSpec("b", crashes_after(f, 1, 2)),
        ChildSpec("t", works, (f,), restart=Restart.temporary),
        ChildSpec("c", starts_slowly(f, 0)),
    ]
    async with opened(f, specs, strategy="one_for_all", intensity=3, period=5.0) as top:
        await trio.sleep(4)
        await f.point()
        await top.count_children()


async def rest_for_one_whose_starts_fail(f: Fuzz) -> None:
    specs = [
        ChildSpec("a", works, (f,)),
        ChildSpec("b", crashes_after(f, 1, 1)),
        ChildSpec("c", starts_slowly(f, 2)),
        ChildSpec("d", works, (f,)),
    ]
    async with opened(f, specs, strategy="rest_for_one", intensity=4, period=5.0):
        await trio.sleep(4)
        await f.point()


async def backoff_and_own_budgets(f: Fuzz) -> None:
    specs = [
        ChildSpec("a", crashes_after(f, 0.5, 3)),
        ChildSpec("b", crashes_after(f, 0.25, 9), budget=Budget(2, 10.0)),
        ChildSpec("c", works, (f,)),
    ]
    flags = {"intensity": 20, "period": 30.0, "backoff": Backoff(1.0, 4.0, 0.5)}
    async with opened(f, specs, **flags) as top:
        await trio.sleep(2)
        await f.point()
        await top.terminate_child("a")
        await top.restart_child("a")
        await trio.sleep(1.5)


async def nested_transient_supervisors(f: Fuzz) -> None:
    inner = supervise([ChildSpec("x", crashes_after(f, 0.5, 2)), ChildSpec("y", works, (f,))], Flags(intensity=0))
    middle = supervise(
        [ChildSpec("inner", lambda: inner, restart=Restart.transient, type=ChildType.supervisor)], Flags(intensity=3)
    )
    specs = [
        ChildSpec("middle", lambda: middle, type=ChildType.supervisor),
        ChildSpec("z", works, (f,)),
    ]
    async with opened(f, specs, intensity=2):
        await trio.sleep(3)
        await f.point()


async def giving_up_climbs_to_the_top(f: Fuzz) -> None:
    inner = supervise([ChildSpec("x", crashes_after(f, 0.5, 99)), ChildSpec("y", works, (f,))], Flags(intensity=0))
    specs = [ChildSpec("s", works, (f,)), ChildSpec("inner", lambda: inner, type=ChildType.supervisor)]
    try:
        async with opened(f, specs, intensity=1):
            await trio.sleep(20)
            await f.point()
    except RestartsExhausted as exhausted:
        f.saw(exhausted)
        assert f.faults or str(exhausted.__cause__) == "planned"


async def dynamic_children_under_requests(f: Fuzz) -> None:
    async def short(seconds: float) -> None:
        await f.point()
        await trio.sleep(seconds)

    template = ChildSpec("job", short, restart=Restart.transient, grace=1.0)
    pool = supervise([template], Flags(strategy="one_for_one", dynamic=True, max_children=2, intensity=5))
    specs = [ChildSpec("pool", lambda: pool, type=ChildType.supervisor)]
    async with opened(f, specs, by_hand=True, intensity=2) as top:
        listed = await top.which_child("pool")
        assert listed is not None
        try:
            answers = [await listed.ref.start_child(args=(seconds,)) for seconds in (1.0, 5.0, 5.0)]
            await f.point()
            await listed.ref.terminate_child(answers[1].ref)
            await trio.sleep(2)
            await listed.ref.start_child(args=(9.0,))
            await f.point()
        except ActorGone as gone:
            f.saw(gone)


async def an_ordered_stop_of_stubborn_children(f: Fuzz) -> None:
    async def stubborn(seconds: float) -> None:
        try:
            await f.point()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
                await f.point()

    specs = [
        ChildSpec("obeys", works, (f,)),
        ChildSpec("late", stubborn, (0.5,), grace=1.0),
        ChildSpec("too late", stubborn, (1.5,), grace=1.0),
        ChildSpec("never", stubborn, (4.0,), grace=0.5),
        ChildSpec("brutal", stubborn, (0.25,), grace=BRUTAL),
        ChildSpec("patient", stubborn, (1.0,), grace=math.inf),
    ]
    async with opened(f, specs, intensity=3):
        await trio.sleep(1)
        await f.point()


async def significant_children_close_it(f: Fuzz) -> None:
    async def ends(seconds: float) -> None:
        await f.point()
        await trio.sleep(seconds)

    inner = supervise(
        [ChildSpec("c", ends, (1.0,), restart=Restart.transient, significant=True), ChildSpec("d", works, (f,))],
        Flags(auto_shutdown="any_significant"),
    )
    specs = [
        ChildSpec("a", ends, (2.0,), restart=Restart.temporary, significant=True),
        ChildSpec(
            "inner", lambda: inner, restart=Restart.transient, significant=True, type=ChildType.supervisor
        ),
        ChildSpec("e", works, (f,)),
    ]
    async with opened(f, specs, auto_shutdown="all_significant", intensity=2) as top:
        await trio.sleep(1.5)
        try:
            await top.count_children()
        except ActorGone as gone:
            f.saw(gone)
        await top.wait()


async def administration_while_children_crash(f: Fuzz) -> None:
    async def ask(top: Any, calls: Iterable[Any]) -> None:
        for call in calls:
            try:
                with trio.move_on_after(0.4):
                    await call(top)
            except (ActorsError, trio.TooSlowError) as gone:
                f.saw(gone)
            await f.point()

    specs = [
        ChildSpec("a", crashes_after(f, 0.3, 4)),
        ChildSpec("b", starts_slowly(f, 1)),
        ChildSpec("i", lambda: IGNORE),
    ]
    async with opened(f, specs, by_hand=True, strategy="rest_for_one", intensity=9) as top:
        async with trio.open_nursery() as nursery:
            slow = ChildSpec("n", starts_slowly(f, 0))
            first = [
                lambda top: top.start_child(slow, timeout=0.1),
                lambda top: top.start_child(slow),
                lambda top: top.restart_child("n"),
                lambda top: top.terminate_child("a"),
            ]
            second = [
                lambda top: top.terminate_child("b"),
                lambda top: top.restart_child("b", timeout=0.2),
                lambda top: top.delete_child("b"),
                lambda top: top.list_children(),
                lambda top: top.restart_child("a"),
            ]
            nursery.start_soon(ask, top, first)
            nursery.start_soon(ask, top, second)
        await trio.sleep(1)


async def a_start_fails_and_what_stood_is_rolled_back(f: Fuzz) -> None:
    async def fails(task_status: trio.TaskStatus[None]) -> None:
        await f.point()
        raise OSError("no such port")

    async def never(task_status: trio.TaskStatus[None]) -> None:
        await f.point()
        await trio.sleep_forever()

    for bad in (ChildSpec("bad", fails), ChildSpec("slow", never, start_timeout=2.0)):
        try:
            async with opened(f, [ChildSpec("a", works, (f,)), ChildSpec("b", starts_slowly(f, 0)), bad]):
                raise AssertionError("it must not open")
        except StartFailed as failed:
            f.saw(failed)


SCENARIOS: list[Scenario] = [
    one_for_all_with_a_crasher,
    rest_for_one_whose_starts_fail,
    backoff_and_own_budgets,
    nested_transient_supervisors,
    giving_up_climbs_to_the_top,
    dynamic_children_under_requests,
    an_ordered_stop_of_stubborn_children,
    significant_children_close_it,
    administration_while_children_crash,
    a_start_fails_and_what_stood_is_rolled_back,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_invariants_hold_with_a_fault_at_each_checkpoint(scenario: Scenario) -> None:
    report = fuzz(scenario, stride=STRIDE)
    assert report.points and report.runs > 50
    assert not report.broken, str(report)
