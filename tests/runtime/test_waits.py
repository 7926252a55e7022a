"""Waits of actors in the wait-for graph: they leave it in the step that ends them, and only an actor's own task enters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from actors.errors import ActorGone, WouldDeadlock
from actors.runtime.actor import LATER, Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Report
from actors.runtime.specs import ChildSpec
from actors.runtime.supervise import supervise
from actors.runtime.tasks import start_task, stream


class Doer(Behaviour):
    """Does what it is sent: an async function of the behaviour."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        return await message(self)


@asynccontextmanager
async def doers(*names: str, mailbox: int = 1024) -> AsyncIterator[Any]:
    """Run doers, and see that no wait is left when all is still."""
    specs = [ChildSpec(name, Doer, mailbox=mailbox) for name in names]
    pool = ChildSpec("pool", supervise, ((), {"dynamic": True}), type="supervisor")
    tree = open_supervisor([pool, *specs])
    # A cycle that is not found would wait for ever.
    with trio.fail_after(1_000):
        async with tree as top:
            yield top, *[(await top.which_child(name)).ref for name in ("pool", *names)]
            await trio.testing.wait_all_tasks_blocked()
            assert len(tree.host.waits) == 0


async def hello(_me: Doer) -> str:
    return "hello"


async def sleeps(_me: Doer) -> None:
    await trio.sleep(1)


async def cycle_of(wait: Any) -> Any:
    try:
        return await wait
    except WouldDeadlock as error:
        return error.cycle


# ── a wait that is over is out of the graph before its task runs ────────────


@pytest.mark.parametrize(
    ("wait", "mailbox"),
    [(lambda b: b.ask(hello), 1024), (lambda b: b.send(hello), 1), (lambda b: b.get_state(), 1024)],
    ids=["was answered", "found room", "has looked inside"],
)
async def test_whoever_waits_no_more_may_be_asked_before_it_runs(autojump_clock, wait: Any, mailbox: int):
    seen: list[Any] = []
    async with doers("a", "b", mailbox=mailbox) as (_, _, a, b):

        async def asks_a(_me: Doer) -> None:
            # What a waited for came in this very step, and a has not run since.
            seen.append(await cycle_of(a.ask(hello)))

        async def waits_for_b(_me: Doer) -> None:
            await wait(b)

        b.tell(sleeps)
        await trio.testing.wait_all_tasks_blocked()
        # In every case b takes it in the step in which the wait of a ends.
        before = mailbox == 1
        if before:
            b.tell(asks_a)
        a.tell(waits_for_b)
        await trio.testing.wait_all_tasks_blocked()
        if not before:
            b.tell(asks_a)
        await trio.sleep(3)
    assert seen == ["hello"]


async def test_whoever_was_answered_later_by_the_call_may_be_asked_in_the_same_step(autojump_clock):
    calls: list[Call] = []

    class Keeps(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            if call is not None:
                calls.append(call)
                return LATER
            calls[0].answer("late")
            return seen.append(await cycle_of(message.ask(hello)))

    seen: list[Any] = []
    async with doers("a") as (top, pool, a):
        keeps = (await pool.start_child(ChildSpec("keeps", Keeps))).ref

        async def asks(_me: Doer) -> Any:
            return await keeps.ask("x")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.ask, asks)
            await trio.testing.wait_all_tasks_blocked()
            keeps.tell(a)
        await trio.testing.wait_all_tasks_blocked()
    assert seen == ["hello"] and top.path == "top"


# ── no edge ─────────────────────────────────────────────────────────────────


async def test_concurrent_asks_that_form_no_cycle_are_all_answered(autojump_clock):
    async with doers("a", "b", "c", "d") as (_, _, *refs):

        async def slow(_me: Doer) -> int:
            await trio.sleep(1)
            return 1

        def through(*below: Any) -> Any:
            async def asks(_me: Doer) -> int:
                return 1 + (await below[0].ask(through(*below[1:]) if below[1:] else slow))

            return asks

        a, b, c, d = refs
        answers: list[int] = []

        async def ask(ref: Any, message: Any) -> None:
            answers.append(await ref.ask(message))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, a, through(b, d))
                nursery.start_soon(ask, a, through(c, d))
                nursery.start_soon(ask, b, through(c))
                nursery.start_soon(ask, b, through(d))
        assert sorted(answers) == [2] * 6 + [3] * 6


async def test_a_task_outside_any_handling_adds_no_edge(autojump_clock):
    async with doers("a", "b") as (_, _, a, b):
        gate = trio.Event()

        async def asks_a(_me: Doer) -> Any:
            return await cycle_of(a.ask(hello))

        async with trio.open_nursery() as nursery:
            asked: list[Any] = []

            async def spins_off(me: Doer) -> None:
                async def beside() -> None:
                    asked.append(await b.ask(asks_a))
                    gate.set()

                # Not of this handling: a may answer meanwhile, so b that asks a closes nothing.
                nursery.start_soon(beside)

            await a.ask(spins_off)
            await gate.wait()
        assert asked == ["hello"]


@pytest.mark.parametrize("how", ["timeout", "cancel", "stopped"])
async def test_an_ask_that_was_given_up_leaves_no_edge(autojump_clock, how: str):
    async with doers("a", "b") as (top, _, a, b):

        async def sleeps_long(_me: Doer) -> None:
            await trio.sleep(10)

        async def gives_up(_me: Doer) -> None:
            if how == "timeout":
                with pytest.raises(trio.TooSlowError):
                    await b.ask(sleeps_long, timeout=1)
            elif how == "cancel":
                with trio.move_on_after(1):
                    await b.ask(sleeps_long)
            else:
                await b.ask(sleeps_long)

        async def asks_a(_me: Doer) -> Any:
            return await cycle_of(a.ask(hello))

        a.tell(gives_up)
        await trio.sleep(0.5)
        assert [wait.what for wait in a._actor.host.waits.waits_of(a._actor)] == ["an answer from"]
        if how == "stopped":
            await top.restart_child("a") if (await top.terminate_child("a")).ok else None
            a = (await top.which_child("a")).ref
        await trio.sleep(1)
        assert len(b._actor.host.waits) == 0
        assert await b.ask(asks_a) == "hello"


# ── tasks, streams ──────────────────────────────────────────────────────────


async def test_a_behaviour_that_awaits_the_result_of_a_task_that_asks_it_back_is_told(autojump_clock):
    async with doers("boss") as (_, pool, boss):
        began = trio.current_time()

        async def asks_back(seconds: float) -> Any:
            await trio.sleep(seconds)
            return await cycle_of(boss.ask(hello))

        async def awaits_at_once(_me: Doer) -> Any:
            return await (await start_task(pool, asks_back, 1.0)).result()

        async def awaits_later(_me: Doer) -> Any:
            task = await start_task(pool, asks_back, 0.0)
            await trio.sleep(1)
            # A timeout excuses nothing.
            cycle = await cycle_of(task.result(timeout=60))
            task.ref.child.order_kill()
            return cycle

        path = (await boss.ask(awaits_at_once))[1]
        assert path == "top/boss" and trio.current_time() == began + 1
        cycle = await boss.ask(awaits_later)
        assert cycle[0] == cycle[2] == "top/boss" and cycle[1].startswith("top/pool/")
        assert trio.current_time() == began + 2


async def test_a_task_that_is_awaited_and_asks_somebody_else_is_no_cycle(autojump_clock):
    async with doers("boss", "other") as (_, pool, boss, other):

        async def asks_other() -> Any:
            return await other.ask(hello)

        async def awaits(_me: Doer) -> Any:
            task = await start_task(pool, asks_other)
            return await task.result()

        assert await boss.ask(awaits) == "hello"


async def test_a_result_that_did_not_come_in_time_leaves_no_edge(autojump_clock):
    async with doers("boss") as (_, pool, boss):

        answers: list[Any] = []

        async def asks_late() -> None:
            await trio.sleep(3)
            answers.append(await cycle_of(boss.ask(hello)))

        async def gives_up(_me: Doer) -> str:
            task = await start_task(pool, asks_late)
            with pytest.raises(trio.TooSlowError):
                await task.result(timeout=1)
            return "gave up"

        assert await boss.ask(gives_up) == "gave up"
        await trio.sleep(5)
        assert answers == ["hello"]


@pytest.mark.parametrize("item_first", [True, False])
async def test_a_stream_whose_item_asks_its_reader_closes_a_cycle_that_is_named(autojump_clock, item_first: bool):
    async with doers("boss") as (_, pool, boss):

        async def asks_back(_number: int) -> Any:
            await trio.sleep(0 if item_first else 2)
            return await cycle_of(boss.ask(hello))

        async def reads(_me: Doer) -> Any:
            async with stream(pool, asks_back, [1], most=1) as results:
                await results._fill()
                await trio.sleep(1)
                return await cycle_of(anext(results))

        answer = await boss.ask(reads)
        cycle = answer if item_first else answer.value
        assert cycle == (
            ("top/boss", "top/pool/1", "top/boss") if item_first else ("top/pool/1", "top/boss", "top/pool/1")
        )


async def test_whoever_waits_by_the_ref_of_a_task_that_asks_it_back_is_told(autojump_clock):
    async with doers("boss") as (_, pool, boss):

        async def asks_back() -> Any:
            await trio.sleep(1)
            return await cycle_of(boss.ask(hello))

        async def waits(_me: Doer) -> Any:
            task = await start_task(pool, asks_back)
            await task.ref.wait()
            return task.ref.child.value

        assert (await boss.ask(waits))[1] == "top/boss"


# ── cycles ──────────────────────────────────────────────────────────────────


class Asks(Behaviour):
    """Asks whom it is told to ask."""

    async def receive(self, message: Any, call: Call | None) -> Any:
        path: list[Any] = list(message)
        if not path:
            return "end"
        return await path[0].ask(path[1:], timeout=1000)


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
async def test_N16_an_ask_that_would_close_a_cycle_raises_at_once_and_names_it(autojump_clock, names: str):
    reports: list[Report] = []
    specs = [ChildSpec(name, Asks, restart="temporary") for name in "abc"]
    async with open_supervisor(specs, on_report=lambda _path, report: reports.append(report)) as top:
        refs = {name: (await top.which_child(name)).ref for name in "abc"}
        began = trio.current_time()
        with pytest.raises(ActorGone):
            await refs["a"].ask([refs[name] for name in [*names[1:], "a"]], timeout=5000)
        assert trio.current_time() == began
        # Who is told first, the asker or the supervisor, is not promised.
        await trio.testing.wait_all_tasks_blocked()
        cause = reports[0].end.cause
        assert isinstance(cause, WouldDeadlock)
        assert cause.cycle[0] == cause.cycle[-1] and len(cause.cycle) == len(names) + 1
        # Nobody waits any more, so nothing is left in the graph.
        await trio.sleep(1)
        assert len(refs["a"]._actor.host.waits) == 0


async def test_a_chain_of_asks_that_closes_no_cycle_is_answered(autojump_clock, bench):
    async with bench(*(ChildSpec(name, Asks) for name in "abc")) as b:
        refs = [await b.ref(name) for name in "abc"]
        assert await refs[0].ask([refs[1], refs[2]]) == "end"
        assert len(b.tree.host.waits) == 0


async def test_a_send_to_the_full_mailbox_of_who_waits_for_the_sender_raises(autojump_clock, bench):
    class Sends(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            await trio.sleep(1)
            await asks.send("x")

    async with bench(ChildSpec("asks", Asks, mailbox=1), ChildSpec("sends", Sends, restart="temporary")) as b:
        asks, sends = await b.ref("asks"), await b.ref("sends")
        asks.tell([sends])
        await trio.testing.wait_all_tasks_blocked()
        asks.tell([])
        await trio.sleep(2)
        assert isinstance(sends.exit.cause, WouldDeadlock)
        assert "room in the mailbox of top/asks" in str(sends.exit.cause)


async def test_an_init_that_asks_the_supervisor_that_waits_for_it_is_told_of_the_cycle(autojump_clock, bench):
    class AsksUp(Behaviour):
        async def init(self) -> None:
            await b.top.count_children()

    async with bench() as b:
        began = trio.current_time()
        answer = await b.top.start_child(ChildSpec("up", AsksUp))
        assert answer.word == "error" and trio.current_time() == began
        assert answer.reason.cause.cycle == ("top/up", "top", "top/up")
        assert (await b.top.count_children()).specs == 0


async def test_a_child_that_waits_for_its_own_end_is_told_and_nothing_is_stopped(autojump_clock, bench):
    class EndsItself(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            try:
                await b.top.terminate_child("self")
            except WouldDeadlock as error:
                return error.cycle

    async with bench(ChildSpec("self", EndsItself)) as b:
        ref = await b.ref("self")
        assert await ref.ask("end") == ("top", "top/self", "top")
        assert ref.exit is None and len(b.tree.host.waits) == 0


class LooksAtItself(Behaviour):
    async def receive(self, message: Any, call: Call | None) -> Any:
        return await self.me.ref.get_state()  # type: ignore[attr-defined]


async def test_an_actor_that_looks_inside_itself_is_refused_and_the_run_goes_on(autojump_clock, bench):
    async with bench(ChildSpec("self", LooksAtItself, restart="temporary")) as b:
        ref = await b.ref("self")
        with pytest.raises(ActorGone):
            await ref.ask("x")
        await trio.sleep(1)
        assert isinstance(ref.exit.cause, WouldDeadlock)


async def test_an_awaited_stop_that_closes_a_cycle_is_refused_at_once(autojump_clock, bench):
    class Stops(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            try:
                await message.stop()
            except WouldDeadlock as error:
                return error.cycle

    class AsksBack(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            return await stops.ask(self.me.ref)

    async with bench(ChildSpec("stops", Stops), ChildSpec("back", AsksBack)) as b:
        stops, back = await b.ref("stops"), await b.ref("back")
        began = trio.current_time()
        assert await back.ask("x") == ("top/stops", "top/back", "top/stops")
        assert trio.current_time() == began and back.exit is None


# ── stash, after the last message ───────────────────────────────────────────


@pytest.mark.parametrize("how", ["normal", "raises"])
async def test_stash_called_from_terminate_is_refused_and_brings_no_message_to_the_next_incarnation(
    autojump_clock, how: str
):
    refused: list[str] = []
    handled: list[Any] = []

    class StashesAtTheEnd(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            handled.append(message)
            await trio.sleep(1)
            if message == "raises":
                # The message at fault is still in work when terminate runs.
                raise ValueError(message)
            if message == "normal":
                self.me.stop()

        async def terminate(self, exit: Any) -> None:
            with pytest.raises(RuntimeError) as caught:
                self.me.stash()
            refused.append(str(caught.value))

    tree = open_supervisor([ChildSpec("s", StashesAtTheEnd, messages="keep")])
    async with tree as top:
        ref = (await top.which_child("s")).ref
        ref.tell(how)
        ref.tell("after it")
        await trio.sleep(1.5)
        assert ref.exit is not None and ref.statistics().stashed == 0
        assert refused == ["no message is in work"]
        await trio.sleep(5)
        assert handled == [how, "after it"]
        assert len(tree.host.dead_letters) == 0
