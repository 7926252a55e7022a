"""Asks that are open while their target goes, or changes: each has one answer, and no table keeps one."""

from typing import Any

import pytest
import trio

from actors.errors import ActorGone, GoneReason, WouldDeadlock
from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.named import Named
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.specs import ChildSpec

QUICK = {"intensity": 9}
PATIENT = {"intensity": 9, "backoff": {"minimum": 0.1, "maximum": 0.1}}


class Works(Behaviour):
    """Takes a moment for each message, and dies when told to."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        await trio.sleep(0.02)
        if message == "die":
            raise ValueError("x")
        return message


class Busy(Behaviour):
    async def receive(self, message: Any, call: Call | None) -> Any:
        await trio.sleep_forever()


async def plain() -> None:
    await trio.sleep_forever()


def tree_of(*specs: ChildSpec, flags: Any = QUICK) -> SupervisionTree:
    return open_supervisor(specs, flags, on_report=lambda *_: None)


async def ref_of(top: Any, id: str) -> Any:
    return (await top.which_child(id)).ref


async def full(top: Any) -> Any:
    """Give an actor that is busy for good, with a full mailbox."""
    busy = await ref_of(top, "busy")
    busy.tell("in work")
    await trio.sleep(0.01)
    busy.tell("waits")
    return busy


# ── dropped ─────────────────────────────────────────────────────────────────


async def test_an_ask_that_is_dropped_at_once_stays_in_no_table(autojump_clock):
    async with tree_of(ChildSpec("busy", Busy, mailbox=1, overflow="drop_newest", grace=0)) as top:
        busy = await full(top)
        for timeout in (None, 5):
            with pytest.raises(ActorGone) as caught:
                await busy.ask("x", timeout)
            assert caught.value.reason is GoneReason.dropped
        assert not busy._actor._calls
        assert not top._child.host.waits
        assert busy.statistics().mailbox.dropped == 2


async def test_an_ask_that_is_dropped_and_cancelled_in_one_turn_ends_as_one_of_both(autojump_clock):
    told = 0
    async with tree_of(ChildSpec("busy", Busy, mailbox=1, overflow="drop_newest", grace=0)) as top:
        busy = await full(top)
        for _ in range(50):
            scope = trio.CancelScope()

            async def asker(scope=scope):
                nonlocal told
                with scope:
                    try:
                        await busy.ask("x")
                    except ActorGone:
                        told += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(asker)
                nursery.start_soon(_cancel, scope)
        assert 0 < told <= 50


async def _cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


async def test_an_ask_that_is_pushed_out_by_a_newer_one_is_told_so(autojump_clock):
    async with tree_of(ChildSpec("busy", Busy, mailbox=1, overflow="drop_oldest", grace=0)) as top:
        busy = await full(top)
        told: list[Any] = []

        async def ask(number: int) -> None:
            try:
                await busy.ask(number, 1)
            except (ActorGone, trio.TooSlowError) as error:
                told.append((number, getattr(error, "reason", "late")))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
        assert sorted(reason for _, reason in told) == [GoneReason.dropped, GoneReason.dropped, "late"]
        assert not busy._actor._calls


# ── kept ────────────────────────────────────────────────────────────────────


class Asks(Behaviour):
    """Asks b when told to go."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        if message == "go":
            return await self.me.whereis("b").ask("question")
        return "answer"


class AsksBack(Behaviour):
    """Dies of one message, and asks the asker back for the other."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        if message == "die":
            await trio.sleep(0.02)
            raise ValueError("x")
        return await self.me.whereis("a").ask("back")


class AsksBackInInit(AsksBack):
    began = 0

    async def init(self) -> None:
        type(self).began += 1
        if type(self).began > 1:
            await self.me.whereis("a").ask("back")


@pytest.mark.parametrize("flags", [QUICK, PATIENT])
async def test_a_kept_ask_that_the_next_incarnation_sends_back_closes_a_cycle_that_is_told(flags, autojump_clock):
    specs = [ChildSpec("a", Asks, name="a", grace=0), ChildSpec("b", AsksBack, name="b", messages="keep", grace=0)]
    async with tree_of(*specs, flags=flags) as top:
        a, b = await ref_of(top, "a"), await ref_of(top, "b")
        b.tell("die")
        with trio.fail_after(5), pytest.raises(ActorGone) as caught:
            await a.ask("go")
        assert _has_deadlock(caught.value)


async def test_an_init_that_asks_whoever_waits_for_it_is_told_of_the_cycle(autojump_clock):
    AsksBackInInit.began = 0
    specs = [
        ChildSpec("a", Asks, name="a", grace=0),
        ChildSpec("b", AsksBackInInit, name="b", messages="keep", grace=0),
    ]
    reports: list[Any] = []
    tree = open_supervisor(specs, {"intensity": 1}, on_report=lambda _path, report: reports.append(report))
    with trio.fail_after(5):
        try:
            async with tree as top:
                a, b = await ref_of(top, "a"), await ref_of(top, "b")
                b.tell("die")
                await a.ask("go")
        except Exception:
            pass
    assert any(_has_deadlock(report.end.cause) for report in reports if report.child == "b")


def _has_deadlock(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, WouldDeadlock):
            return True
        error = error.__cause__
    return False


async def test_a_kept_ask_is_answered_by_the_next_incarnation_and_leaves_no_edge(autojump_clock):
    class AsksWorks(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            return await self.me.whereis("works").ask(message)

    specs = [ChildSpec("works", Works, name="works", messages="keep"), ChildSpec("asks", AsksWorks)]
    async with tree_of(*specs, flags=PATIENT) as top:
        works, asks = await ref_of(top, "works"), await ref_of(top, "asks")
        works.tell("die")
        assert await asks.ask("kept") == "kept"
        assert len(top._child.host.waits) == 0
        assert not (await ref_of(top, "works"))._actor._calls


async def test_kept_asks_that_were_given_up_stay_in_no_table_and_are_not_handled(autojump_clock):
    handled: list[Any] = []

    class Notes(Works):
        async def receive(self, message: Any, call: Call | None) -> Any:
            handled.append(message)
            return await super().receive(message, call)

    async with tree_of(ChildSpec("t", Notes, messages="keep"), flags=PATIENT) as top:
        ref = await ref_of(top, "t")
        ref.tell("die")

        async def ask() -> None:
            with trio.move_on_after(0.05):
                await ref.ask("x")

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask)
        await trio.sleep(0.3)
        after = await ref_of(top, "t")
        assert after is not ref
        assert not after._actor._calls
        assert after.statistics().mailbox.length == 0
        assert handled == ["die"]


async def test_kept_messages_that_the_next_incarnation_cannot_take_are_dead_letters(autojump_clock):
    made = 0

    def start() -> Any:
        nonlocal made
        made += 1
        return Works() if made == 1 else plain()

    for flags in (QUICK, PATIENT):
        for name in (None, "t"):
            made = 0
            tree = tree_of(ChildSpec("t", start, messages="keep", name=name), flags=flags)
            async with tree as top:
                ref = await ref_of(top, "t")
                ref.tell("die")
                ref.tell("kept")
                with trio.fail_after(5), pytest.raises(ActorGone):
                    await ref.ask("kept too")
                letters = [letter.message for letter in tree.host.dead_letters.take_all()]
                assert letters == ["kept", "kept too"]
                await trio.sleep(0.2)
                assert (name is None) or tree.host.registry.whereis("t") is (await ref_of(top, "t"))


async def test_an_incarnation_that_dies_in_the_step_in_which_it_is_ready_keeps_what_it_took_over(autojump_clock):
    class DiesAtOnce(Works):
        made = 0

        async def init(self) -> None:
            type(self).made += 1
            if type(self).made == 2:
                self.me.send_after(0, "die")

    async with tree_of(ChildSpec("t", DiesAtOnce, messages="keep", name="t"), flags=PATIENT) as top:
        ref = await ref_of(top, "t")
        ref.tell("die")
        with trio.fail_after(5):
            assert await ref.ask("kept") == "kept"


async def test_a_wait_for_a_name_to_come_back_closes_a_cycle_that_is_told(autojump_clock):
    """The supervisor that would bring it back waits for an init that asks whoever waits for the name."""

    class Patient(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            return await Named(tree.host, "b", patient=True).ask("x") if message == "go" else "answer"

    class AsksInInit(Behaviour):
        async def init(self) -> None:
            try:
                await self.me.whereis("a").ask("x")
            except WouldDeadlock as error:
                told.append(error.cycle)

    told: list[Any] = []
    specs = [ChildSpec("a", Patient, name="a", grace=0), ChildSpec("b", Works, name="b")]
    tree = tree_of(*specs, flags=PATIENT)
    async with tree as top:
        a = await ref_of(top, "a")
        (await ref_of(top, "b")).tell("die")
        await trio.sleep(0.05)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                assert await a.ask("go") == "x"

            with trio.fail_after(5):
                nursery.start_soon(ask)
                await trio.sleep(0.01)
                assert (await top.start_child(ChildSpec("c", AsksInInit))).ok
        assert told == [("top/c", "top/a", "top", "top/c")]
        assert not len(tree.host.waits)


class AsksItsSupervisor(Behaviour):
    """Asks the one that starts it, in its first message, which is there before it is ready."""

    async def init(self) -> None:
        self.me.ref.tell("x")

    async def receive(self, message: Any, call: Call | None) -> Any:
        seen.append([line.id for line in await supervisors[0].list_children()])


supervisors: list[Any] = []
seen: list[Any] = []


async def says_ready_and_asks(*, task_status: Any) -> None:
    task_status.started()
    seen.append([line.id for line in await supervisors[0].list_children()])
    await trio.sleep_forever()


@pytest.mark.parametrize("start", [AsksItsSupervisor, says_ready_and_asks])
async def test_a_child_may_ask_its_supervisor_in_the_very_step_in_which_it_is_ready(start, autojump_clock):
    seen.clear()
    async with tree_of(flags={"intensity": 0}) as top:
        supervisors[:] = [top]
        assert (await top.start_child(ChildSpec("c", start))).ok
        await trio.sleep(1)
        assert seen == [["c"]]


async def test_an_answer_that_goes_to_the_asker_by_way_of_its_turn_leaves_no_edge_to_the_supervisor(autojump_clock):
    """The kept ask leads to the next incarnation, and no longer to the supervisor, once that one has it."""
    specs = [ChildSpec("a", Asks, name="a", grace=0), ChildSpec("b", Works, name="b", messages="keep")]
    tree = tree_of(*specs, flags=PATIENT)
    async with tree as top, trio.open_nursery() as nursery:
        a, b = await ref_of(top, "a"), await ref_of(top, "b")
        b.tell("die")
        nursery.start_soon(a.ask, "go")
        await trio.sleep(0.05)
        assert [wait.targets for wait in tree.host.waits.waits_of(a._actor)] == [(top._child,)]
        await trio.sleep(0.08)
        after = await ref_of(top, "b")
        assert after is not b
        assert [wait.targets for wait in tree.host.waits.waits_of(a._actor)] == [(after._actor,)]


async def test_a_patient_wait_that_is_cancelled_leaves_no_edge(autojump_clock):
    tree = tree_of(ChildSpec("t", Works, name="t"), ChildSpec("a", Gives, name="a"), flags=PATIENT)
    async with tree as top:
        (await ref_of(top, "t")).tell("die")
        await trio.sleep(0.05)
        assert await (await ref_of(top, "a")).ask(tree.host) == "given up"
        assert not len(tree.host.waits)


class Gives(Behaviour):
    """Gives up a patient wait."""

    async def receive(self, host: Any, call: Call | None) -> Any:
        with trio.move_on_after(0.01):
            return await Named(host, "t", patient=True).ask("x")
        return "given up"


async def test_an_end_that_closes_a_cycle_of_a_kept_ask_is_told_to_the_asker(autojump_clock):
    """Asked for the return of b by its supervisor, which waits for the init of c, which waits for a."""

    class AsksInInit(Behaviour):
        async def init(self) -> None:
            await self.me.whereis("a").ask("x")

    specs = [ChildSpec("a", Asks, name="a", grace=0), ChildSpec("b", Works, name="b", messages="keep")]
    tree = tree_of(*specs, flags=PATIENT)
    async with tree as top, trio.open_nursery() as nursery:
        a, b = await ref_of(top, "a"), await ref_of(top, "b")
        told: list[Any] = []

        async def ask() -> None:
            try:
                await a.ask("go")
            except ActorGone as gone:
                told.append(_has_deadlock(gone))

        b.tell("die")
        nursery.start_soon(ask)
        await trio.sleep(0.01)
        with trio.fail_after(5):
            # Begun while b still works on the message it dies of.
            answer = await top.start_child(ChildSpec("c", AsksInInit))
        assert told == [True]
        assert not answer.ok
        # What b never answers, and what a never looked at, as it ended of that.
        assert [letter.message for letter in tree.host.dead_letters.take_all()] == ["question", "x"]
