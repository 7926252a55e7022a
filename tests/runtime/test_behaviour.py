"""Actors of one's own: order of an end, names, monitors, links, timers, stash, looking inside, cycles."""

from collections.abc import Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio.lowlevel

from actors.errors import ActorGone, GoneReason, MailboxFull, NameRestarting, StartFailed, WouldDeadlock
from actors.runtime.actor import LATER, Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Exit, Reason
from actors.runtime.links import Down, Linked
from actors.runtime.named import Named
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.plan import Report
from actors.runtime.specs import Budget, ChildSpec
from actors.runtime.starting import IGNORE


class Bench:
    """A tree with its log and its reports."""

    def __init__(self, tree: SupervisionTree, top: Any, reports: list[Report]) -> None:
        self.tree, self.top, self.reports = tree, top, reports

    async def ref(self, id: str) -> Any:
        listed = await self.top.which_child(id)
        return listed.ref

    def named(self, name: str, **more: Any) -> Named:
        return Named(self.tree.host, name, **more)

    @property
    def letters(self) -> dict[str, int]:
        return dict(self.tree.host.dead_letters.statistics().by_cause)


@asynccontextmanager
async def bench(*specs: ChildSpec, intensity: int = 100, **flags: Any):
    reports: list[Report] = []
    tree = open_supervisor(
        specs, {"intensity": intensity, **flags}, on_report=lambda _path, report: reports.append(report)
    )
    async with tree as top:
        yield Bench(tree, top, reports)


class Counter(Behaviour):
    """Adds up; crashes on request."""

    async def init(self) -> Any:
        self.sum = 0
        return "ready"

    def receive(self, message: Any, call: Call | None) -> Any:
        if isinstance(message, Exception):
            raise message
        self.sum += message
        return self.sum


class Slow(Behaviour):
    """Each message takes so many seconds; keeps what it saw."""

    async def init(self) -> None:
        self.seen: list[Any] = []

    async def receive(self, message: Any, call: Call | None) -> Any:
        self.seen.append(message)
        if isinstance(message, Exception):
            raise message
        await trio.sleep(message if isinstance(message, (int, float)) else 0)
        return message


class Hears(Behaviour):
    """Keeps the messages it gets."""

    async def init(self) -> None:
        self.heard: list[Any] = []

    def receive(self, message: Any, call: Call | None) -> Any:
        if callable(message):
            return message(self)
        self.heard.append(message)
        return None


class HearsEnds(Hears):
    trap_ends = True


# ── asking ──────────────────────────────────────────────────────────────────


async def test_N1_a_dead_or_unknown_name_is_told_at_once(autojump_clock):
    async with bench() as b:
        with pytest.raises(ActorGone) as gone:
            await b.named("nobody").ask(1, timeout=100)
        assert gone.value.reason is GoneReason.noproc
        assert trio.current_time() == pytest.approx(trio.current_time())


async def test_N3_a_crash_is_the_answer_of_who_waits_and_not_a_timeout(autojump_clock):
    async with bench(ChildSpec("slow", Slow)) as b:
        ref = await b.ref("slow")
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone) as gone:
                    await ref.ask("later", timeout=1000)
                assert gone.value.reason is GoneReason.crashed
                assert isinstance(gone.value.__cause__, KeyError)
                assert trio.current_time() - began == 5

            began = trio.current_time()
            ref.tell(5)
            ref.tell(KeyError("x"))
            nursery.start_soon(ask)


async def test_N5_a_tell_to_a_dead_name_is_one_dead_letter_with_its_sender(autojump_clock):
    async with bench(ChildSpec("hears", Hears)) as b:
        b.named("nobody").tell("hello")
        ref = await b.ref("hears")
        await ref.ask(lambda me: b.named("nobody").tell("from inside"))
        letters = b.tree.host.dead_letters.take_all()
        assert [(letter.target, letter.sender, letter.message) for letter in letters] == [
            ("nobody", None, "hello"),
            # It was handled in the asker's step, and is the actor's own all the same.
            ("nobody", "top/hears", "from inside"),
        ]


async def test_N6_the_first_of_two_late_answers_counts(autojump_clock):
    class Later(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            self.call = call
            return LATER

    async with bench(ChildSpec("later", Later)) as b:
        ref = await b.ref("later")

        async def answer() -> None:
            await trio.sleep(3)
            call = ref._actor.behaviour.call
            assert call.answer("first")
            assert not call.answer("second")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            assert await ref.ask("x") == "first"


async def test_N8_stop_waits_for_the_end_and_a_bad_grace_changes_nothing(autojump_clock):
    async with bench(ChildSpec("slow", Slow, restart="temporary")) as b:
        ref = await b.ref("slow")
        with pytest.raises(ValueError, match="grace must be seconds"):
            await ref.stop(grace=-1)
        assert ref.exit is None
        ref.tell(2)
        await trio.testing.wait_all_tasks_blocked()
        end = await ref.stop("enough")
        assert (end.reason, end.payload, trio.current_time()) == (Reason.shutdown, "enough", end.ended_at)
        with pytest.raises(ActorGone, match="noproc"):
            await ref.stop()


async def test_an_actor_that_is_asked_to_stop_takes_no_ask(autojump_clock):
    async with bench(ChildSpec("slow", Slow, restart="temporary")) as b:
        ref = await b.ref("slow")
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.stop)
            await trio.sleep(1)
            with pytest.raises(ActorGone) as gone:
                await ref.ask("x")
            assert gone.value.reason is GoneReason.stopping


# ── the end ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "hook_runs"), [("normal", True), ("stopped", True), ("error", True), ("killed", False)]
)
async def test_N9_the_terminate_hook_runs_except_after_a_kill(autojump_clock, how: str, hook_runs: bool):
    ends: list[Exit] = []

    class Cleans(Behaviour):
        async def receive(self, message: Any, call: Call | None) -> Any:
            if message == "error":
                raise KeyError(message)
            if message == "killed":
                await trio.sleep_forever()
            self.me.stop()

        async def terminate(self, exit: Exit) -> None:
            await trio.sleep(1)
            ends.append(exit)

    async with bench(ChildSpec("cleans", Cleans, restart="temporary")) as b:
        ref = await b.ref("cleans")
        if how == "stopped":
            await ref.stop()
        elif how == "killed":
            ref.tell("killed")
            await trio.testing.wait_all_tasks_blocked()
            assert (await ref.stop(grace=1)).reason is Reason.killed
        else:
            ref.tell(how)
            await trio.sleep(5)
        assert bool(ends) is hook_runs
        assert ref.exit is not None
        if hook_runs:
            # The end is recorded after the hook, with the reason the hook was told.
            assert ref.exit.reason is ends[0].reason


async def test_a_terminate_hook_that_never_ends_is_cut(autojump_clock):
    class Stubborn(Behaviour):
        terminate_seconds = 3.0

        async def terminate(self, exit: Exit) -> None:
            await trio.sleep_forever()

    async with bench(ChildSpec("stubborn", Stubborn, restart="temporary")) as b:
        began = trio.current_time()
        end = await (await b.ref("stubborn")).stop()
        assert (end.reason, trio.current_time() - began) == (Reason.shutdown, 3.0)


async def test_N10_each_sender_is_heard_in_order(autojump_clock):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")

        async def send(name: str) -> None:
            for number in range(1000):
                await ref.send((name, number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, "a")
            nursery.start_soon(send, "b")
        heard = (await ref.get_state())["heard"]
        for name in "ab":
            assert [number for who, number in heard if who == name] == list(range(1000))


async def test_a_bad_return_ends_the_actor_as_such(autojump_clock):
    class Forgets(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            return LATER if message == "later" else Slow().init()

    async with bench(ChildSpec("forgets", Forgets)) as b:
        for message in ("later", "coroutine"):
            (await b.ref("forgets")).tell(message)
            await trio.sleep(1)
        assert [report.end.reason for report in b.reports] == [Reason.bad_return] * 2


# ── starting ────────────────────────────────────────────────────────────────


async def test_what_init_gives_goes_to_who_started_it_and_an_ignoring_init_is_no_error(autojump_clock):
    class Unwilling(Behaviour):
        async def init(self) -> Any:
            return IGNORE

    async with bench() as b:
        answer = await b.top.start_child(ChildSpec("counter", Counter))
        assert (answer.word, answer.extra) == ("ok", "ready")
        assert (await b.top.start_child(ChildSpec("unwilling", Unwilling))).word == "ignored"
        assert (await b.top.count_children()).active == 1
        assert not b.reports


async def test_an_init_that_raises_fails_the_start_and_leaves_no_name(autojump_clock):
    class Broken(Behaviour):
        async def init(self) -> Any:
            raise LookupError("no disk")

    async with bench() as b:
        answer = await b.top.start_child(ChildSpec("broken", Broken, name="broken"))
        assert (answer.word, repr(answer.reason.cause)) == ("error", "LookupError('no disk')")
        assert b.tree.host.registry.names() == ()
    with pytest.raises(StartFailed) as failed:
        async with open_supervisor([ChildSpec("broken", Broken)]):
            raise AssertionError("never entered")
    assert isinstance(failed.value.__cause__, LookupError)


# ── names ───────────────────────────────────────────────────────────────────


async def test_N15_users_of_a_name_reach_the_new_incarnation_and_users_of_the_old_ref_nobody(autojump_clock):
    async with bench(ChildSpec("counter", Counter, name="sum")) as b:
        old = await b.ref("counter")
        assert await b.named("sum").ask(5) == 5
        old.tell(ValueError("x"))
        await trio.sleep(1)
        assert await b.named("sum").ask(1) == 1
        with pytest.raises(ActorGone, match="noproc"):
            await old.ask(1)
        assert await b.ref("counter") is not old


async def test_between_two_incarnations_a_name_says_so_or_is_waited_for(autojump_clock):
    starts = 0

    class Flaky(Counter):
        async def init(self) -> Any:
            nonlocal starts
            starts += 1
            if starts == 2:
                await trio.sleep(5)
                raise LookupError("not yet")
            return await super().init()

    backoff = {"minimum": 10, "maximum": 10}
    async with bench(ChildSpec("flaky", Flaky, name="flaky"), backoff=backoff) as b:
        began = trio.current_time()
        (await b.ref("flaky")).tell(ValueError("x"))
        for at, reason in ((1, "restarting"), (12, "crashed"), (16, "restarting")):
            await trio.sleep_until(began + at)
            with pytest.raises(ActorGone) as gone:
                await b.named("flaky").ask(1)
            assert gone.value.reason == reason
        with pytest.raises(NameRestarting):
            b.tree.host.registry.whereis("flaky")
        with pytest.raises(trio.TooSlowError):
            await b.named("flaky", patient=True).ask(7, timeout=2)
        assert await b.named("flaky", patient=True).ask(7, timeout=60) == 7
        assert trio.current_time() == began + 25


async def test_a_child_that_is_given_up_leaves_no_mark_on_its_name(autojump_clock):
    starts = 0

    class Once(Counter):
        async def init(self) -> Any:
            nonlocal starts
            starts += 1
            if starts > 1:
                await trio.sleep(1)
                raise LookupError("gone for good")
            return await super().init()

    async with bench(ChildSpec("once", Once, name="once")) as b:
        (await b.ref("once")).tell(ValueError("x"))
        await trio.sleep(0.5)
        assert (await b.top.terminate_child("once")).ok
        assert b.tree.host.registry.whereis("once") is None


async def test_a_name_that_is_taken_fails_the_start_of_the_second(autojump_clock):
    async with bench(ChildSpec("one", Counter, name="sum")) as b:
        answer = await b.top.start_child(ChildSpec("two", Counter, name="sum"))
        assert not answer.ok
        assert (await b.top.count_children()).specs == 1
        assert await b.named("sum").ask(4) == 4


async def test_the_name_is_free_before_anybody_hears_of_the_end(autojump_clock):
    seen: list[Any] = []

    async with bench(ChildSpec("counter", Counter, name="sum", restart="temporary")) as b:
        ref = await b.ref("counter")
        ref._actor.watch(lambda _exit: seen.append(b.tree.host.registry.names()))
        await ref.stop()
    assert seen == [()]


# ── monitors and links ──────────────────────────────────────────────────────


async def test_a_monitor_brings_exactly_one_down_and_none_after_demonitor(autojump_clock):
    async with bench(ChildSpec("hears", Hears), ChildSpec("counter", Counter)) as b:
        hears, counter = await b.ref("hears"), await b.ref("counter")
        await hears.ask(lambda me: me.me.monitor(counter) and None)
        gone = await hears.ask(lambda me: me.me.monitor(counter))
        gone.demonitor()
        counter.tell(ValueError("x"))
        await trio.sleep(1)
        (down,) = (await hears.get_state())["heard"]
        assert isinstance(down, Down) and down.ref is counter and down.exit.reason is Reason.error
        await hears.ask(lambda me: me.me.monitor(counter) and None)
        await trio.sleep(1)
        assert [each.exit.reason for each in (await hears.get_state())["heard"]] == [Reason.error, Reason.noproc]


@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_link_ends_the_other_side_with_the_same_reason(autojump_clock, first: str):
    async with bench(
        ChildSpec("a", Hears, restart="temporary"), ChildSpec("b", Hears, restart="temporary")
    ) as b:
        refs = {"a": await b.ref("a"), "b": await b.ref("b")}
        await refs["a"].ask(lambda me: me.me.link(refs["b"]))

        def crash(_me: Any) -> None:
            raise KeyError("x")

        refs[first].tell(crash)
        await trio.sleep(1)
        for ref in refs.values():
            assert ref.exit.reason is Reason.error
            assert isinstance(ref.exit.cause, KeyError)


async def test_a_normal_end_ends_no_link_and_leaves_nothing_behind(autojump_clock):
    async with bench(
        ChildSpec("a", Hears, restart="temporary"), ChildSpec("b", Hears, restart="temporary")
    ) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        other.tell(lambda me: me.me.stop())
        await trio.sleep(1)
        assert other.exit.reason is Reason.normal and one.exit is None
        assert not one._actor.links and not one._actor.watchers


async def test_an_actor_that_traps_ends_hears_of_them(autojump_clock):
    async with bench(ChildSpec("a", HearsEnds), ChildSpec("b", Counter)) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        other.tell(ValueError("x"))
        await trio.sleep(1)
        (linked,) = (await one.get_state())["heard"]
        assert isinstance(linked, Linked) and linked.exit.reason is Reason.error and one.exit is None


async def test_unlinked_ends_reach_nobody(autojump_clock):
    async with bench(ChildSpec("a", Hears), ChildSpec("b", Counter)) as b:
        one, other = await b.ref("a"), await b.ref("b")
        await one.ask(lambda me: me.me.link(other))
        await one.ask(lambda me: me.me.unlink(other))
        other.tell(ValueError("x"))
        await trio.sleep(1)
        assert one.exit is None and not one._actor.watchers


# ── timers ──────────────────────────────────────────────────────────────────


async def test_timers_tick_once_or_again_and_stop_when_cancelled(autojump_clock):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        began = trio.current_time()
        await ref.ask(lambda me: me.me.send_after(2, "once") and None)
        every = await ref.ask(lambda me: me.me.send_every(3, "again"))
        await trio.sleep_until(began + 10.5)
        every.cancel()
        await trio.sleep(100)
        assert (await ref.get_state())["heard"] == ["once", "again", "again", "again"]
        assert not ref._actor._timers


async def test_a_timer_dies_with_its_incarnation(autojump_clock):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        await ref.ask(lambda me: me.me.send_every(3, "again") and None)

        def crash(_me: Any) -> None:
            raise KeyError("x")

        ref.tell(crash)
        await trio.sleep(20)
        assert (await (await b.ref("hears")).get_state())["heard"] == []
        assert len(b.tree.host.deadlines) == 0


async def test_a_tick_never_waits_and_there_is_at_most_one(autojump_clock):
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


# ── stash ───────────────────────────────────────────────────────────────────


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


async def test_stashed_messages_come_back_in_front_and_in_order_and_asks_are_answered(autojump_clock):
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


async def test_a_stash_counts_as_unread_at_the_end(autojump_clock):
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


# ── looking inside ──────────────────────────────────────────────────────────


async def test_N13_a_full_mailbox_delays_no_look_inside_and_a_suspended_actor_handles_nothing(autojump_clock):
    async with bench(ChildSpec("slow", Slow, mailbox=3, restart="temporary")) as b:
        ref = await b.ref("slow")
        await ref.suspend()
        for message in ("a", "b", "c"):
            ref.tell(message)
        with pytest.raises(MailboxFull):
            ref.tell("d")
        assert (await ref.get_state())["seen"] == []
        assert ref.statistics().state == "suspended"
        await ref.replace_state({"seen": ["new"]})
        await trio.sleep(5)
        assert ref.statistics().mailbox.length == 3
        await ref.resume()
        await trio.sleep(1)
        assert (await ref.get_state())["seen"] == ["new", "a", "b", "c"]
        await ref.suspend()
        ref.tell("e")
        assert (await ref.stop()).reason is Reason.shutdown
        assert b.letters == {"unread": 1}


async def test_a_look_inside_takes_a_timeout_and_the_actor_lives(autojump_clock):
    async with bench(ChildSpec("slow", Slow)) as b:
        ref = await b.ref("slow")
        ref.tell(10)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.TooSlowError):
            await ref.get_state(timeout=2)
        shown = ref.statistics()
        assert (shown.state, shown.message, trio.current_time() - shown.since) == ("working", 10, 2)
        await trio.sleep(20)
        assert (await ref.get_state())["seen"] == [10]


# ── restart and messages ────────────────────────────────────────────────────


async def test_kept_messages_reach_the_next_incarnation_in_order_and_asks_stay_open(autojump_clock):
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


async def test_kept_messages_are_dead_letters_at_the_final_end(autojump_clock):
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


async def test_a_chain_of_asks_that_closes_no_cycle_is_answered(autojump_clock):
    async with bench(*(ChildSpec(name, Asks) for name in "abc")) as b:
        refs = [await b.ref(name) for name in "abc"]
        assert await refs[0].ask([refs[1], refs[2]]) == "end"
        assert len(b.tree.host.waits) == 0


async def test_a_send_to_the_full_mailbox_of_who_waits_for_the_sender_raises(autojump_clock):
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


# ── lanes ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overflow", ["wait", "fail", "drop_newest", "drop_oldest"])
async def test_N17_no_policy_delays_or_drops_a_stop_or_a_down(autojump_clock, overflow: str):
    async with bench(
        ChildSpec("full", HearsEnds, mailbox=2, overflow=overflow, restart="temporary"), ChildSpec("c", Counter)
    ) as b:
        full, counter = await b.ref("full"), await b.ref("c")
        await full.ask(lambda me: me.me.monitor(counter) and None)
        await full.suspend()
        full.tell("a")
        full.tell("b")
        tell: Callable[[], None] = lambda: full.tell("c")  # noqa: E731
        if overflow in ("wait", "fail"):
            with pytest.raises(MailboxFull):
                tell()
        else:
            tell()
        counter.tell(ValueError("x"))
        await trio.sleep(1)
        heard = (await full.get_state())["heard"]
        assert [type(each) for each in heard] == [Down]
        await full.resume()
        await trio.sleep(1)
        left = {"drop_oldest": ["b", "c"]}.get(overflow, ["a", "b"])
        assert (await full.get_state())["heard"][1:] == left
        await full.suspend()
        full.tell("z")
        began = trio.current_time()
        assert (await full.stop()).reason is Reason.shutdown and trio.current_time() == began


# ── a child and its supervisor ──────────────────────────────────────────────


async def test_an_init_that_asks_the_supervisor_that_waits_for_it_is_told_of_the_cycle(autojump_clock):
    class AsksUp(Behaviour):
        async def init(self) -> None:
            await b.top.count_children()

    async with bench() as b:
        began = trio.current_time()
        answer = await b.top.start_child(ChildSpec("up", AsksUp))
        assert answer.word == "error" and trio.current_time() == began
        assert answer.reason.cause.cycle == ("top/up", "top", "top/up")
        assert (await b.top.count_children()).specs == 0


async def test_a_child_that_waits_for_its_own_end_is_told_and_nothing_is_stopped(autojump_clock):
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


# ── started in the asker's step ─────────────────────────────────────────────


async def test_what_is_ready_by_being_started_sees_the_context_of_its_supervisor_and_not_the_askers(autojump_clock):
    seen: list[str] = []
    place: ContextVar[str] = ContextVar("place")

    class Looks(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            return place.get()

    async def look() -> None:
        seen.append(place.get())

    place.set("supervisor")
    tree = open_supervisor((), {"dynamic": True})
    async with tree as top:
        place.set("asker")
        for start in (look, Looks):
            answer = await top.start_child(ChildSpec("x", start, restart="temporary"))
            assert answer.ok and answer.ref.path.startswith("top/")
        # Its task has not run yet, and it can be asked all the same.
        assert await answer.ref.ask("where") == "supervisor"
        assert (await top.count_children()).specs == 1
    assert seen == ["supervisor"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_siblings_keep_names_and_messages_while_their_group_waits_for_its_restart(autojump_clock, strategy: str):
    backoff = {"minimum": 10, "maximum": 10}
    specs = (ChildSpec("first", Counter), ChildSpec("slow", Slow, name="slow", messages="keep"))
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


# ── bad requests leave nothing ──────────────────────────────────────────────


class LooksAtItself(Behaviour):
    async def receive(self, message: Any, call: Call | None) -> Any:
        return await self.me.ref.get_state()  # type: ignore[attr-defined]


async def test_an_actor_that_looks_inside_itself_is_refused_and_the_run_goes_on(autojump_clock):
    async with bench(ChildSpec("self", LooksAtItself, restart="temporary")) as b:
        ref = await b.ref("self")
        with pytest.raises(ActorGone):
            await ref.ask("x")
        await trio.sleep(1)
        assert isinstance(ref.exit.cause, WouldDeadlock)


@pytest.mark.parametrize("timeout", ["5", -1, float("nan"), True])
async def test_a_bad_timeout_is_refused_before_anything_is_left(autojump_clock, timeout: Any):
    async with bench(ChildSpec("a", Slow, name="a"), ChildSpec("b", Slow)) as b:
        one, other = await b.ref("a"), await b.ref("b")
        for ask in (
            lambda: one.ask("for a", timeout=timeout),
            lambda: one.get_state(timeout=timeout),
            lambda: b.named("a").ask("for a", timeout=timeout),
            lambda: b.top.which_child("a", timeout=timeout),
        ):
            with pytest.raises(ValueError, match="timeout must be seconds"):
                await ask()
        assert await other.ask("for b") == "for b"
        with pytest.raises(trio.TooSlowError):
            await other.ask(30, timeout=1)
        assert (await one.get_state())["seen"] == []


async def test_a_state_that_is_none_replaces_nothing(autojump_clock):
    async with bench(ChildSpec("counter", Counter)) as b:
        ref = await b.ref("counter")
        for bad in (5, None):
            with pytest.raises(TypeError):
                await ref.replace_state(bad)
        await ref.replace_state({"sum": 40, "me": "mine"})
        assert await ref.ask(2) == 42


@pytest.mark.parametrize("gives", ["async generator", "future"])
async def test_what_nobody_awaits_is_a_bad_return(autojump_clock, gives: str):
    class Forgets(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            async def numbers() -> Any:
                yield 1

            class Awaitable:
                def __await__(self) -> Any:
                    return iter(())

            return numbers() if gives == "async generator" else Awaitable()

    async with bench(ChildSpec("forgets", Forgets)) as b:
        with pytest.raises(ActorGone):
            await (await b.ref("forgets")).ask("x")
        await trio.sleep(1)
        assert [report.end.reason for report in b.reports] == [Reason.bad_return]


# ── ticks ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
async def test_a_periodic_timer_outlives_a_tick_that_a_full_mailbox_dropped(autojump_clock, overflow: str):
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


async def test_a_tick_that_lies_in_the_mailbox_does_not_reach_the_next_incarnation(autojump_clock):
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


async def test_ticks_that_were_slept_through_are_counted_and_not_made_up_for(mock_clock):
    async with bench(ChildSpec("hears", Hears)) as b:
        ref = await b.ref("hears")
        timer = ref._actor.behaviour.me.send_every(0.5, "tick")
        mock_clock.jump(1000.25)
        await trio.testing.wait_all_tasks_blocked()
        assert ((await ref.get_state())["heard"], timer.late) == (["tick"], 1999)
        mock_clock.jump(0.25)
        await trio.testing.wait_all_tasks_blocked()
        assert len((await ref.get_state())["heard"]) == 2


# ── what is set aside, what is kept ─────────────────────────────────────────


async def test_a_message_that_was_set_aside_by_the_handling_that_failed_is_not_handled_again(autojump_clock):
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


async def test_asks_whose_callers_gave_up_do_not_fill_the_stash(autojump_clock, monkeypatch):
    monkeypatch.setattr("actors.runtime.behaviour.STASH_BOUND", 3)
    async with bench(ChildSpec("picky", Picky)) as b:
        ref = await b.ref("picky")
        for _ in range(10):
            with pytest.raises(trio.TooSlowError):
                await ref.ask("x", timeout=1)
        assert ref.exit is None


async def test_an_ask_in_line_for_room_is_kept_for_the_next_incarnation(autojump_clock):
    async with bench(ChildSpec("slow", Slow, messages="keep", mailbox=1)) as b:
        ref = await b.ref("slow")
        ref.tell(5)
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(KeyError("x"))
        assert await ref.ask("in line", timeout=60) == "in line"


async def test_a_transient_sibling_keeps_name_and_messages_over_a_group_restart(autojump_clock):
    specs = (ChildSpec("first", Counter), ChildSpec("slow", Slow, name="slow", messages="keep", restart="transient"))
    async with bench(*specs, strategy="one_for_all") as b:
        slow = await b.ref("slow")
        slow.tell(3)
        await trio.testing.wait_all_tasks_blocked()
        slow.tell("kept")
        (await b.ref("first")).tell(ValueError("x"))
        await trio.sleep(20)
        assert (await (await b.ref("slow")).get_state())["seen"] == ["kept"]
        assert b.letters == {}


async def test_whoever_waits_for_a_name_that_does_not_come_back_is_told(autojump_clock):
    backoff = {"minimum": 1000, "maximum": 1000}
    async with bench(ChildSpec("gone", Counter, name="gone"), backoff=backoff) as b:
        (await b.ref("gone")).tell(ValueError("x"))
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone) as gone:
                    await b.named("gone", patient=True).ask(1)
                assert gone.value.reason is GoneReason.noproc

            nursery.start_soon(ask)
            await trio.sleep(1)
            assert (await b.top.terminate_child("gone")).ok


# ── stops, links, senders ───────────────────────────────────────────────────


async def test_an_awaited_stop_that_closes_a_cycle_is_refused_at_once(autojump_clock):
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


async def test_whoever_asks_an_actor_that_is_ending_itself_is_told_at_once(autojump_clock):
    class Leaves(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            self.me.stop()

        async def terminate(self, exit: Exit) -> None:
            await trio.sleep(3)

    async with bench(ChildSpec("leaves", Leaves, restart="temporary")) as b:
        ref = await b.ref("leaves")
        ref.tell("go")
        await trio.sleep(1)
        with pytest.raises(ActorGone) as gone:
            await ref.ask("x")
        assert gone.value.reason is GoneReason.stopping
        await trio.sleep(5)
        assert (ref.exit.reason, ref.exit.asked_at) == (Reason.normal, None)


async def test_a_task_that_is_linked_ends_with_the_same_reason(autojump_clock):
    async with bench(
        ChildSpec("a", Counter, restart="temporary"), ChildSpec("t", trio.sleep_forever, restart="temporary")
    ) as b:
        one, task = await b.ref("a"), await b.ref("t")
        one._actor.behaviour.me.link(task)
        one.tell(KeyError("x"))
        await trio.sleep(1)
        assert task.exit.reason is Reason.error and isinstance(task.exit.cause, KeyError)


async def test_an_order_to_end_the_program_from_a_start_in_the_askers_step_ends_the_tree():
    class Quits(Behaviour):
        def __init__(self) -> None:
            raise SystemExit(7)

        def receive(self, message: Any, call: Call | None) -> Any:
            return message

    with pytest.raises(SystemExit) as quit_:
        async with open_supervisor((), {"dynamic": True}) as top:
            await top.start_child(ChildSpec("quits", Quits))
            await trio.sleep_forever()
    assert quit_.value.code == 7
