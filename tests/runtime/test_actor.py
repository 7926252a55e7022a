"""The actor: one message at a time, one answer for each ask, and no answer after the end."""

from typing import Any

import pytest
import trio

from actors.errors import ActorGone, GoneReason, MailboxFull
from actors.runtime.actor import LATER, Actor, Call
from actors.runtime.exits import Reason
from actors.runtime.host import Host
from actors.runtime.mailbox import Overflow


def start(host: Host, receive: Any, **options: Any) -> Actor[Any]:
    actor: Actor[Any] = Actor("a", None, host, receive, **options)
    host.nursery.start_soon(actor._main)
    return actor


def host() -> Host:
    return Host(lambda *_: None)


async def test_tells_are_handled_in_order_and_asks_are_answered() -> None:
    seen: list[int] = []

    def receive(message: int, call: Call | None) -> int:
        seen.append(message)
        return message * 2

    async with host() as h:
        ref = start(h, receive).ref
        for number in range(200):
            ref.tell(number)
        assert await ref.ask(200) == 400
        assert seen == list(range(201))
        assert (await ref.stop()).reason is Reason.shutdown


async def test_an_async_handler_answers_too() -> None:
    async def receive(message: int, call: Call | None) -> int:
        await trio.lowlevel.checkpoint()
        return message + 1

    async with host() as h:
        ref = start(h, receive).ref
        assert await ref.ask(1) == 2
        await ref.stop()


async def test_N2_a_late_answer_reaches_nobody_on_both_clocks(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[Call] = []

    def receive(message: object, call: Call | None) -> object:
        if message == "slow":
            assert call is not None
            calls.append(call)
            return LATER
        return message

    async with host() as h:
        ref = start(h, receive).ref
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await ref.ask("slow", timeout=3)
        assert trio.current_time() - began == 3
        assert calls[0].answer("late") is False
        assert await ref.ask("next", timeout=3) == "next"
        await ref.stop()


async def test_N3_the_caller_gets_the_crash_and_not_a_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async def receive(message: object, call: Call | None) -> object:
        await trio.sleep(1)
        raise KeyError("broken")

    async with host() as h:
        actor = start(h, receive)
        with pytest.raises(ActorGone) as caught:
            await actor.ref.ask("x", timeout=100)
        assert caught.value.reason is GoneReason.crashed
        assert isinstance(caught.value.__cause__, KeyError)
        assert actor.exit is not None and actor.exit.reason is Reason.error


async def test_N1_N5_a_dead_actor_is_gone_at_once_and_a_tell_is_a_dead_letter() -> None:
    async with host() as h:
        actor = start(h, lambda message, call: message)
        await actor.ref.stop()
        with pytest.raises(ActorGone) as caught:
            await actor.ref.ask(1, timeout=100)
        assert caught.value.reason is GoneReason.noproc
        actor.ref.tell(1)
        await actor.ref.send(1)
        assert actor.dead_letters == 2
        with pytest.raises(ActorGone):
            await actor.ref.stop()


async def test_N6_the_first_of_two_answers_counts() -> None:
    kept: list[Call] = []

    def receive(message: object, call: Call | None) -> object:
        assert call is not None
        kept.append(call)
        return LATER

    async with host() as h:
        actor = start(h, receive)

        async def answer_twice() -> None:
            await trio.testing.wait_all_tasks_blocked()
            assert kept[0].answer("first")
            assert not kept[0].answer("second")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_twice)
            assert await actor.ref.ask(1) == "first"
        await actor.ref.stop()


async def test_an_ask_that_is_cancelled_before_it_is_looked_at_is_not_handled() -> None:
    seen: list[object] = []

    async def receive(message: object, call: Call | None) -> None:
        seen.append(message)
        await gate.wait()

    gate = trio.Event()
    async with host() as h:
        ref = start(h, receive).ref
        ref.tell("first")
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.ask, "second")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        gate.set()
        await ref.ask("third")
        assert seen == ["first", "third"]
        await ref.stop()


async def test_an_ask_waits_for_room_within_its_one_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async def receive(message: object, call: Call | None) -> object:
        await trio.sleep(10)
        return message

    async with host() as h:
        actor = start(h, receive, bound=1)
        actor.ref.tell(1)
        await trio.testing.wait_all_tasks_blocked()
        actor.ref.tell(2)
        with pytest.raises(MailboxFull):
            actor.ref.tell(3)
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await actor.ref.ask(4, timeout=2)
        assert trio.current_time() - began == 2
        assert actor.mailbox.statistics().waiting == 0
        assert await actor.ref.ask(5, timeout=100) == 5
        await actor.ref.stop()


async def test_an_ask_that_is_dropped_is_told_so() -> None:
    gate = trio.Event()

    async def receive(message: object, call: Call | None) -> object:
        await gate.wait()
        return message

    async with host() as h:
        ref = start(h, receive, bound=1, overflow=Overflow.drop_newest).ref
        ref.tell(1)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(2)
        with pytest.raises(ActorGone) as caught:
            await ref.ask(3)
        assert caught.value.reason is GoneReason.dropped
        gate.set()
        await ref.stop()


async def test_INV8_every_open_ask_has_an_answer_when_the_actor_ends() -> None:
    async with host() as h:
        actor = start(h, lambda message, call: LATER)
        answers: list[GoneReason] = []

        async def ask() -> None:
            try:
                await actor.ref.ask(1)
            except ActorGone as gone:
                answers.append(gone.reason)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await actor.ref.stop()
        assert answers == [GoneReason.stopped] * 3


async def test_a_stop_goes_before_a_thousand_messages() -> None:
    seen: list[int] = []
    async with host() as h:
        actor = start(h, lambda message, call: seen.append(message))
        for number in range(1000):
            actor.ref.tell(number)
        await actor.ref.stop()
        assert len(seen) == 0
        assert actor.dead_letters == 1000
