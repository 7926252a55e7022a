"""Messages that nobody has read yet: set aside, kept for the next incarnation, and ticks among them."""

from typing import Any

import pytest
import trio

from actors.errors import ActorGone, GoneReason
from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.specs import Budget, ChildSpec
from actors.testing.behaviours import Slow

# ── set aside ───────────────────────────────────────────────────────────────


class Picky(Behaviour):
    """Sets everything aside until it is opened."""

    async def init(self) -> None:
        self.open = False
        self.heard: list[Any] = []

    async def receive(self, message: Any, call: Call | None) -> Any:
        if message == "open":
            self.open = True
            self.me.unstash_all()
        elif message == "crash":
            raise KeyError(message)
        elif not self.open:
            self.me.stash()
        else:
            self.heard.append(message)
            return len(self.heard)
        return None


async def test_stashed_messages_come_back_in_front_and_in_order_and_asks_are_answered(autojump_clock, bench):
    async with bench(ChildSpec("picky", Picky)) as b:
        ref = await b.ref("picky")
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                answers.append(await ref.ask("asked"))

            ref.tell("a")
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            for message in ("b", "open", "c"):
                ref.tell(message)
        assert (await ref.get_state())["heard"] == ["a", "asked", "b", "c"]
        assert answers == [2]


async def test_a_stash_counts_as_unread_at_the_end(autojump_clock, bench):
    async with bench(ChildSpec("picky", Picky)) as b:
        ref = await b.ref("picky")
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone):
                    await ref.ask("asked")

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            ref.tell("a")
            ref.tell("crash")
        await trio.sleep(1)
        assert b.letters == {"unread": 2}


async def test_a_message_that_was_set_aside_by_the_handling_that_failed_is_not_handled_again(autojump_clock, bench):
    class Faulty(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            if message == "bad":
                self.me.stash()
                with pytest.raises(RuntimeError, match="set aside already"):
                    self.me.stash()
                raise KeyError(message)
            return message

    async with bench(ChildSpec("faulty", Faulty, messages="keep", name="faulty")) as b:
        ref = await b.ref("faulty")
        ref.tell("bad")
        await trio.sleep(1)
        assert await b.named("faulty").ask("good") == "good"
        assert len(b.reports) == 1 and b.letters == {"unread": 1}


async def test_asks_whose_callers_gave_up_do_not_fill_the_stash(autojump_clock, bench, monkeypatch):
    monkeypatch.setattr("actors.runtime.behaviour.STASH_BOUND", 3)
    async with bench(ChildSpec("picky", Picky)) as b:
        ref = await b.ref("picky")
        for _ in range(10):
            with pytest.raises(trio.TooSlowError):
                await ref.ask("x", timeout=1)
        assert ref.exit is None


# ── kept for the next incarnation ───────────────────────────────────────────


async def test_kept_messages_reach_the_next_incarnation_in_order_and_asks_stay_open(autojump_clock, bench):
    async with bench(ChildSpec("slow", Slow, messages="keep")) as b:
        ref = await b.ref("slow")
        ref.tell(1)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(KeyError("x"))
        ref.tell("a")
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def ask() -> None:
                answers.append(await ref.ask("asked", timeout=60))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            ref.tell("b")
        assert answers == ["asked"]
        await trio.sleep(1)
        assert (await (await b.ref("slow")).get_state())["seen"] == ["a", "asked", "b"]
        assert b.letters == {}


async def test_kept_messages_are_dead_letters_at_the_final_end(autojump_clock, bench):
    starts = 0

    class Once(Slow):
        async def init(self) -> None:
            nonlocal starts
            starts += 1
            if starts > 1:
                raise LookupError("no more")
            await super().init()

    async with bench(ChildSpec("keeper", Slow), ChildSpec("once", Once, messages="keep", budget=Budget(1, 5))) as b:
        ref = await b.ref("once")
        ref.tell(1)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(KeyError("x"))
        ref.tell("a")
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone):
                    await ref.ask("asked", timeout=600)

            nursery.start_soon(ask)
        assert b.letters == {"unread": 2}


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_siblings_keep_names_and_messages_while_their_group_waits_for_its_restart(autojump_clock, bench, strategy: str):
    backoff = {"minimum": 10, "maximum": 10}
    specs = (ChildSpec("first", Slow), ChildSpec("slow", Slow, name="slow", messages="keep"))
    async with bench(*specs, strategy=strategy, backoff=backoff) as b:
        began = trio.current_time()
        slow = await b.ref("slow")
        slow.tell(60)
        await trio.testing.wait_all_tasks_blocked()
        slow.tell("kept")
        (await b.ref("first")).tell(ValueError("x"))
        # The message in work outlasts the grace; then the group waits.
        await trio.sleep_until(began + 12)
        with pytest.raises(ActorGone) as gone:
            await b.named("slow").ask("now")
        assert gone.value.reason is GoneReason.restarting
        await trio.sleep_until(began + 30)
        assert (await (await b.ref("slow")).get_state())["seen"] == ["kept"]
        assert b.letters == {}


async def test_an_ask_in_line_for_room_is_kept_for_the_next_incarnation(autojump_clock, bench):
    async with bench(ChildSpec("slow", Slow, messages="keep", mailbox=1)) as b:
        ref = await b.ref("slow")
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(KeyError("x"))
        assert await ref.ask("in line", timeout=60) == "in line"


async def test_a_transient_sibling_keeps_name_and_messages_over_a_group_restart(autojump_clock, bench):
    specs = (ChildSpec("first", Slow), ChildSpec("slow", Slow, name="slow", messages="keep", restart="transient"))
    async with bench(*specs, strategy="one_for_all") as b:
        slow = await b.ref("slow")
        slow.tell(3)
        await trio.testing.wait_all_tasks_blocked()
        slow.tell("kept")
        (await b.ref("first")).tell(ValueError("x"))
        await trio.sleep(20)
        assert (await (await b.ref("slow")).get_state())["seen"] == ["kept"]
        assert b.letters == {}


# ── ticks ───────────────────────────────────────────────────────────────────


async def test_a_tick_never_waits_and_there_is_at_most_one(autojump_clock, bench):
    async with bench(ChildSpec("slow", Slow, mailbox=1)) as b:
        ref = await b.ref("slow")
        timer = ref._actor.behaviour.me.send_every(1, 0)
        ref.tell(10)
        await trio.sleep(9.5)
        assert timer.late == 8
        assert len(ref._actor.mailbox) == 1
        await trio.sleep(1)
        other = ref._actor.behaviour.me.send_after(1, "full")
        timer.cancel()
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(0)
        await trio.sleep(2)
        assert other.late == 1
        assert b.letters == {"late_tick": 1}


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
async def test_a_periodic_timer_outlives_a_tick_that_a_full_mailbox_dropped(autojump_clock, bench, overflow: str):
    async with bench(ChildSpec("slow", Slow, mailbox=1, overflow=overflow)) as b:
        ref = await b.ref("slow")
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell("in the way")
        timer = ref._actor.behaviour.me.send_every(1, "tick")
        await trio.sleep(2.5)
        # It has filled the mailbox or was dropped; one more message pushes it out or finds no room.
        ref.tell("more")
        await trio.sleep(10)
        assert timer.late >= 1
        assert (await ref.get_state())["seen"].count("tick") >= 5
        assert all(letter.message in ("tick", "in the way", "more") for letter in b.tree.host.dead_letters.take_all())


async def test_a_tick_that_lies_in_the_mailbox_does_not_reach_the_next_incarnation(autojump_clock, bench):
    async with bench(ChildSpec("slow", Slow, messages="keep")) as b:
        ref = await b.ref("slow")
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(KeyError("x"))
        ref._actor.behaviour.me.send_after(1, "tick")
        await trio.sleep(2)
        ref.tell("kept")
        await trio.sleep(10)
        assert (await (await b.ref("slow")).get_state())["seen"] == ["kept"]
