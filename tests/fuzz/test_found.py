"""What the checkpoint fuzzer found, each as small as it gets."""

import pytest
import trio

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.errors import ActorsError
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Exit
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec, ChildType, Flags
from actors.runtime.supervise import supervise
from actors.runtime.tasks import stream
from actors.testing.checkpoint_fuzz import Fault, Fuzz, InjectedPanic, Kind, run_once
from actors.testing.tree_invariants import SupervisionWatch


async def sleeper() -> None:
    await trio.sleep_forever()


async def two_sleepers(f: Fuzz) -> None:
    tree = open_supervisor([ChildSpec("a", sleeper), ChildSpec("b", sleeper)])
    f.watch(SupervisionWatch(tree))
    async with tree:
        await trio.sleep(1)


def broken_by(kind: Kind) -> list[str]:
    """Give what a fault breaks, at whichever step."""
    last = run_once(two_sleepers).steps
    ran = [run_once(two_sleepers, Fault(kind, at)) for at in range(1, last + 1)]
    return [what for each in ran if each.broken for what in each.broken.what]


def test_a_cancel_in_the_step_in_which_the_block_opens_leaves_no_open_scope() -> None:
    assert not [what for what in broken_by(Kind.cancel_host) if "stack corrupted" in what]


def test_a_cancel_in_the_step_in_which_the_tree_has_ended_is_only_a_cancel() -> None:
    async def opens_and_ends(f: Fuzz) -> None:
        async with open_supervisor([]) as top:
            await top.stop()

    last = run_once(opens_and_ends).steps
    ran = [run_once(opens_and_ends, Fault(Kind.cancel_host, at)) for at in range(1, last + 1)]
    assert [str(each.broken) for each in ran if each.broken] == []


def test_O18_nothing_starts_between_a_halt_and_the_stop_that_follows() -> None:
    assert not [what for what in broken_by(Kind.cancel_host) + broken_by(Kind.halt) if what.startswith("INV-6")]


async def test_O3_a_panic_in_a_nursery_of_the_behaviour_comes_out_as_itself() -> None:
    async def panics() -> None:
        raise InjectedPanic("deep")

    async def root(_agent: Agent) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(panics)

    with pytest.raises(InjectedPanic, match="deep"):
        async with open_tree(Containment(2, 1, 1, 10)) as tree:
            await tree.run(root)


class Panicking(Behaviour):
    """Panics when it cleans up."""

    async def terminate(self, exit: Exit) -> None:
        raise InjectedPanic("in terminate")


def test_O3_a_panic_in_terminate_ends_the_tree_and_comes_out_as_itself() -> None:
    raised: list[BaseException] = []

    async def closes(_f: Fuzz) -> None:
        try:
            async with open_supervisor([ChildSpec("p", Panicking)]):
                await trio.sleep(1)
        except InjectedPanic as panic:
            raised.append(panic)

    ran = run_once(closes)
    assert ran.broken is None, str(ran.broken)
    assert [str(panic) for panic in raised] == ["in terminate"]


def test_a_body_that_fails_beside_its_own_cancel_leaves_the_tree_ended() -> None:
    class Panics(Behaviour):
        def receive(self, message: object, call: object) -> None:
            raise InjectedPanic("now")

    async def fails_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ActorsError("while it was cancelled")

    raised: list[BaseException] = []

    async def fails_beside_it(f: Fuzz) -> None:
        tree = open_supervisor([ChildSpec("p", Panics), ChildSpec("a", sleeper)])
        f.watch(SupervisionWatch(tree))
        try:
            async with tree as top:
                listed = await top.which_child("p")
                assert listed is not None
                listed.ref.tell("go")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fails_late)
                    nursery.start_soon(sleeper)
        except InjectedPanic as panic:
            raised.append(panic)

    ran = run_once(fails_beside_it)
    assert ran.broken is None, str(ran.broken)
    assert [str(panic) for panic in raised] == ["now"]


def test_O5_what_a_task_raises_that_left_after_it_was_given_up_is_logged() -> None:
    async def stubborn(f: Fuzz) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
            await f.point()

    async def gives_up(f: Fuzz) -> None:
        tree = open_supervisor([ChildSpec("s", stubborn, (f,), grace=0.5)], Flags(), on_report=f.report)
        f.watch(SupervisionWatch(tree))
        async with tree:
            await trio.sleep(1)

    ran = run_once(gives_up, Fault(Kind.crash, 1), stop_bound=20)
    assert ran.struck
    assert ran.broken is None, str(ran.broken)


async def test_E16_a_halt_during_an_ordered_stop_names_those_that_were_asked_before(autojump_clock: object) -> None:
    async def stubborn(seconds: float) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)

    tree = open_supervisor([ChildSpec("s", stubborn, (20.0,), grace=50.0)], cleanup_allowance=5.0)
    with trio.move_on_after(2):
        async with tree:
            await trio.sleep(1)
    assert tree.halt is not None and tree.receipt is not None
    assert "top/s" in tree.receipt.not_ended


async def test_O3_a_panic_comes_out_also_when_the_embedder_cancels_the_tree() -> None:
    async def panics(_agent: Agent) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise InjectedPanic("on the way out")

    with pytest.raises(InjectedPanic, match="on the way out"), trio.CancelScope() as scope:
        async with open_tree(Containment(2, 1, 1, 10)) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.run, panics)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()


async def test_O5_the_bodys_own_error_does_not_give_way_to_the_embedders_cancel() -> None:
    with pytest.raises(ActorsError, match="of the body"), trio.CancelScope() as scope:
        async with open_supervisor([ChildSpec("a", sleeper)]):
            scope.cancel()
            raise ActorsError("of the body")


class Keeping(Behaviour):
    """Keeps what it is told, one at a time, while the gate is open."""

    def __init__(self, gate: trio.Event, told: list[object]) -> None:
        self.gate = gate
        self.told = told

    async def receive(self, message: object, call: object) -> None:
        await self.gate.wait()
        self.told.append(message)


async def test_a_group_restart_keeps_names_and_messages_of_the_siblings_as_well(autojump_clock: object) -> None:
    gate, crash = trio.Event(), trio.Event()
    told: list[object] = []
    left = ["planned"]

    async def crashes_once() -> None:
        await crash.wait()
        if left:
            raise ValueError(left.pop())
        gate.set()
        await trio.sleep_forever()

    specs = [ChildSpec("a", Keeping, (gate, told), name="a", messages="keep"), ChildSpec("b", crashes_once)]
    tree = open_supervisor(specs, Flags(strategy="one_for_all"), on_report=lambda _path, _report: None)
    async with tree as top:
        listed = await top.which_child("a")
        assert listed is not None
        listed.ref.tell("in work, so it is lost with the incarnation")
        listed.ref.tell("kept")
        await trio.testing.wait_all_tasks_blocked()
        crash.set()
        # The message in work outlasts the grace.
        await trio.sleep(10)
        assert told == ["kept"]
        await top.terminate_child("a")
        # Stopped by hand, it does not come back: the name is nobody's.
        assert tree.host.registry.whereis("a") is None


async def test_a_stream_that_is_left_leaves_no_deadline() -> None:
    async def item(_number: int) -> None:
        await trio.lowlevel.checkpoint()

    pool = supervise((), Flags(dynamic=True))
    tree = open_supervisor([ChildSpec("pool", lambda: pool, type=ChildType.supervisor)])
    async with tree as top:
        [listed] = await top.list_children()
        async with stream(listed.ref, item, range(4), most=4, timeout=60.0) as results:
            async for _done in results:
                await trio.testing.wait_all_tasks_blocked()
                break
        assert len(tree.host.deadlines) == 0
