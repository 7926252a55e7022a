"""Actors of one's own: asks, the order of an end, starts, names, lanes, looking inside."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio.lowlevel

from actors.errors import ActorGone, GoneReason, MailboxFull, NameRestarting, StartFailed
from actors.runtime.actor import LATER, Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Exit, Reason
from actors.runtime.links import Down
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.specs import ChildSpec
from actors.runtime.starting import IGNORE
from actors.testing.behaviours import Hears, HearsEnds, Slow


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








# ── asking ──────────────────────────────────────────────────────────────────


async def test_N1_a_dead_or_unknown_name_is_told_at_once(autojump_clock, bench):
    async with bench() as b:
        began = trio.current_time()
        with pytest.raises(ActorGone) as gone:
            await b.named("nobody").ask(1, timeout=100)
        assert gone.value.reason is GoneReason.noproc
        assert trio.current_time() == began


async def test_N3_a_crash_is_the_answer_of_who_waits_and_not_a_timeout(autojump_clock, bench):
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


async def test_N5_a_tell_to_a_dead_name_is_one_dead_letter_with_its_sender(autojump_clock, bench):
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


async def test_N6_the_first_of_two_late_answers_counts(autojump_clock, bench):
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


async def test_N8_stop_waits_for_the_end_and_a_bad_grace_changes_nothing(autojump_clock, bench):
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


async def test_an_actor_that_is_asked_to_stop_takes_no_ask(autojump_clock, bench):
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
async def test_N9_the_terminate_hook_runs_except_after_a_kill(autojump_clock, bench, how: str, hook_runs: bool):
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


async def test_a_terminate_hook_that_never_ends_is_cut(autojump_clock, bench):
    class Stubborn(Behaviour):
        terminate_seconds = 3.0

        async def terminate(self, exit: Exit) -> None:
            await trio.sleep_forever()

    async with bench(ChildSpec("stubborn", Stubborn, restart="temporary")) as b:
        began = trio.current_time()
        end = await (await b.ref("stubborn")).stop()
        assert (end.reason, trio.current_time() - began) == (Reason.shutdown, 3.0)


async def test_N10_each_sender_is_heard_in_order(autojump_clock, bench):
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


async def test_a_bad_return_ends_the_actor_as_such(autojump_clock, bench):
    class Forgets(Behaviour):
        def receive(self, message: Any, call: Call | None) -> Any:
            return LATER if message == "later" else Slow().init()

    async with bench(ChildSpec("forgets", Forgets)) as b:
        for message in ("later", "coroutine"):
            (await b.ref("forgets")).tell(message)
            await trio.sleep(1)
        assert [report.end.reason for report in b.reports] == [Reason.bad_return] * 2


# ── starting ────────────────────────────────────────────────────────────────


async def test_what_init_gives_goes_to_who_started_it_and_an_ignoring_init_is_no_error(autojump_clock, bench):
    class Unwilling(Behaviour):
        async def init(self) -> Any:
            return IGNORE

    async with bench() as b:
        answer = await b.top.start_child(ChildSpec("counter", Counter))
        assert (answer.word, answer.extra) == ("ok", "ready")
        assert (await b.top.start_child(ChildSpec("unwilling", Unwilling))).word == "ignored"
        assert (await b.top.count_children()).active == 1
        assert not b.reports


async def test_an_init_that_raises_fails_the_start_and_leaves_no_name(autojump_clock, bench):
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


async def test_N15_users_of_a_name_reach_the_new_incarnation_and_users_of_the_old_ref_nobody(autojump_clock, bench):
    async with bench(ChildSpec("counter", Counter, name="sum")) as b:
        old = await b.ref("counter")
        assert await b.named("sum").ask(5) == 5
        old.tell(ValueError("x"))
        await trio.sleep(1)
        assert await b.named("sum").ask(1) == 1
        with pytest.raises(ActorGone, match="noproc"):
            await old.ask(1)
        assert await b.ref("counter") is not old


async def test_between_two_incarnations_a_name_says_so_or_is_waited_for(autojump_clock, bench):
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


async def test_a_child_that_is_given_up_leaves_no_mark_on_its_name(autojump_clock, bench):
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


async def test_a_name_that_is_taken_fails_the_start_of_the_second(autojump_clock, bench):
    async with bench(ChildSpec("one", Counter, name="sum")) as b:
        answer = await b.top.start_child(ChildSpec("two", Counter, name="sum"))
        assert not answer.ok
        assert (await b.top.count_children()).specs == 1
        assert await b.named("sum").ask(4) == 4


async def test_the_name_is_free_before_anybody_hears_of_the_end(autojump_clock, bench):
    seen: list[Any] = []

    async with bench(ChildSpec("counter", Counter, name="sum", restart="temporary")) as b:
        ref = await b.ref("counter")
        ref._actor.watch(lambda _exit: seen.append(b.tree.host.registry.names()))
        await ref.stop()
    assert seen == [()]


async def test_whoever_waits_for_a_name_that_does_not_come_back_is_told(autojump_clock, bench):
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


# ── looking inside ──────────────────────────────────────────────────────────


async def test_N13_a_full_mailbox_delays_no_look_inside_and_a_suspended_actor_handles_nothing(autojump_clock, bench):
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


async def test_a_look_inside_takes_a_timeout_and_the_actor_lives(autojump_clock, bench):
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


# ── lanes ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("overflow", ["wait", "fail", "drop_newest", "drop_oldest"])
async def test_N17_no_policy_delays_or_drops_a_stop_or_a_down(autojump_clock, bench, overflow: str):
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


# ── bad requests leave nothing ──────────────────────────────────────────────


@pytest.mark.parametrize("timeout", ["5", -1, float("nan"), True])
async def test_a_bad_timeout_is_refused_before_anything_is_left(autojump_clock, bench, timeout: Any):
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


async def test_a_state_that_is_none_replaces_nothing(autojump_clock, bench):
    async with bench(ChildSpec("counter", Counter)) as b:
        ref = await b.ref("counter")
        for bad in (5, None):
            with pytest.raises(TypeError):
                await ref.replace_state(bad)
        await ref.replace_state({"sum": 40, "me": "mine"})
        assert await ref.ask(2) == 42


@pytest.mark.parametrize("gives", ["async generator", "future"])
async def test_what_nobody_awaits_is_a_bad_return(autojump_clock, bench, gives: str):
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


# ── stops ───────────────────────────────────────────────────────────────────


async def test_whoever_asks_an_actor_that_is_ending_itself_is_told_at_once(autojump_clock, bench):
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
