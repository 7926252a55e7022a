"""The fuzzer itself: it strikes where it says, runs alike each time, and sees what is planted."""

import trio

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.testing.checkpoint_fuzz import Fault, Fuzz, InjectedCrash, Kind, fuzz, run_once
from actors.testing.tree_invariants import TreeWatch


async def sound(f: Fuzz) -> None:
    async def leaf(_agent: Agent) -> None:
        await f.point()
        await trio.sleep(1)

    async def root(agent: Agent) -> None:
        for child in [await agent.spawn(leaf) for _ in range(3)]:
            await child.result()

    tree = open_tree(Containment(10, 2, 2, 100))
    f.watch(TreeWatch(tree), host=tree.host)
    async with tree:
        await tree.run(root)


def test_each_kind_is_tried_at_each_place() -> None:
    report = fuzz(sound)
    at_steps, at_points = 4 * report.steps, 3 * report.points
    assert (report.points, report.runs) == (3, 1 + at_steps + at_points)
    assert not report.broken, str(report)


def test_a_stride_leaves_out_steps_and_no_point() -> None:
    report = fuzz(sound, stride=5)
    assert report.runs < 1 + 4 * (report.steps // 5 + 1) + 3 * report.points + 1


def test_runs_of_one_seed_are_alike() -> None:
    def told(seed: int) -> list[str]:
        order: list[str] = []

        async def racing(_f: Fuzz) -> None:
            async def run(name: str) -> None:
                for _ in range(4):
                    order.append(name)
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                for name in "abcd":
                    nursery.start_soon(run, name)

        run_once(racing, seed=seed)
        return order

    assert told(1) == told(1)
    assert len({tuple(told(seed)) for seed in range(8)}) > 1


def test_a_crash_that_is_swallowed_is_called_lost() -> None:
    async def swallows(f: Fuzz) -> None:
        try:
            await f.point()
        except InjectedCrash:
            pass

    ran = run_once(swallows, Fault(Kind.crash, 1))
    assert ran.broken is not None
    assert "lost: InjectedCrash('1')" in str(ran.broken)


def test_a_parcel_that_nobody_handles_breaks_the_fifth_invariant() -> None:
    async def drops(f: Fuzz) -> None:
        first, second = f.parcel(), f.parcel()
        f.sent(first)
        f.sent(second)
        f.handled(second)
        f.handled(second)

    ran = run_once(drops)
    assert ran.broken is not None
    assert [what.partition(",")[0] for what in ran.broken.what] == [
        "INV-5 parcel 1 was sent 1 times",
        "INV-5 parcel 2 was sent 1 times",
    ]


def test_a_run_in_which_nobody_can_go_on_ends_and_says_where_tasks_wait() -> None:
    async def waits_for_nobody(_f: Fuzz) -> None:
        await trio.Event().wait()

    ran = run_once(waits_for_nobody)
    assert ran.broken is not None
    assert "no task can go on" in str(ran.broken) and "Event.wait" in str(ran.broken)


def test_a_run_that_turns_in_circles_ends() -> None:
    async def circles(_f: Fuzz) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    ran = run_once(circles)
    assert ran.broken is not None and "50000 steps" in str(ran.broken)


def test_a_stop_that_takes_too_long_breaks_the_tenth_invariant() -> None:
    async def lingers(_f: Fuzz) -> None:
        try:
            await trio.sleep(30)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(8)

    step = run_once(lingers).steps
    found = [run_once(lingers, Fault(Kind.cancel_host, at), stop_bound=5) for at in range(1, step + 1)]
    assert any(each.broken and "INV-10 the stop took 8 s" in str(each.broken) for each in found)


def test_a_reservation_that_stays_open_breaks_the_fourth_invariant() -> None:
    async def leaks(f: Fuzz) -> None:
        tree = open_tree(Containment(10, 2, 2, 100))
        f.watch(TreeWatch(tree))
        async with tree:
            await tree.ledger.reserve(40)

    ran = run_once(leaks)
    assert ran.broken is not None
    assert "INV-4 40 tokens are reserved after the end" in ran.broken.what
