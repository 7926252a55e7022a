"""Actors with asks, messages and timers in flight, and one fault at each checkpoint: the invariants hold."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
import trio

from actors.errors import ActorGone, ActorsError, MailboxFull, RestartsExhausted
from actors.runtime.actor import LATER, Actor, Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.exits import Exit
from actors.runtime.host import Host
from actors.runtime.mailbox import Overflow
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.specs import ChildSpec, ChildType, Flags
from actors.runtime.supervise import supervise
from actors.runtime.tasks import start_task, stream
from actors.testing.checkpoint_fuzz import Fuzz, Parcel, Scenario, fuzz
from actors.testing.tree_invariants import ActorWatch, SupervisionWatch

# Every n-th step; 1 is all of them.
STRIDE = int(os.environ.get("ACTORS_FUZZ_STRIDE", "1"))


def opened(f: Fuzz, specs: Iterable[ChildSpec], **flags: Any) -> SupervisionTree:
    tree = open_supervisor(specs, Flags(**flags), on_report=f.report)
    f.watch(SupervisionWatch(tree, by_hand=True), host=tree.host)
    return tree


async def asked(f: Fuzz, ref: Any, message: Any, timeout: float | None = None) -> Any:
    """Ask, and give what came of it in words."""
    try:
        return await ref.ask(message, timeout)
    except ActorGone as gone:
        f.saw(gone)
        return f"gone: {gone.reason}"
    except trio.TooSlowError:
        return "too slow"


def tell(f: Fuzz, ref: Any) -> None:
    parcel = f.parcel()
    try:
        ref.tell(parcel)
    except MailboxFull:
        return
    f.sent(parcel)


async def send(f: Fuzz, ref: Any) -> None:
    parcel = f.parcel()
    await ref.send(parcel)
    f.sent(parcel)


async def ref_of(top: Any, id: str) -> Any:
    listed = await top.which_child(id)
    return None if listed is None else listed.ref


async def asks_of_plain_actors(f: Fuzz) -> None:
    host = Host(lambda _by, _reason, _error: None)

    async def slow(message: Any, _call: Call | None) -> Any:
        await f.point()
        await trio.sleep(1)
        return message

    kept: list[Call] = []

    def later(message: Any, call: Call | None) -> Any:
        f.handled(message)
        if call is None:
            f.point_nowait()
            while kept:
                kept.pop().answer("late")
            return None
        kept.append(call)
        return LATER

    one = Actor("one", None, host, slow, bound=2)
    two = Actor("two", None, host, later, bound=2, overflow=Overflow.drop_oldest)
    f.watch(ActorWatch(host, one, two), host=host)
    async with host:
        host.nursery.start_soon(one._main)
        host.nursery.start_soon(two._main)
        try:
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(asked, f, one.ref, number, 2.5 if number % 2 else None)
                    nursery.start_soon(asked, f, two.ref, number)
                await trio.sleep(1.5)
                for _ in range(4):
                    tell(f, two.ref)
                await f.point()
        finally:
            with trio.CancelScope(shield=True):
                for actor in (one, two):
                    if actor.exit is None:
                        actor.order_stop("over")
                        f.saw(await actor.wait_ended())
    if host.fatal is not None:
        raise host.fatal


class Counter(Behaviour):
    """Counts parcels; asks its peer; sets some aside."""

    def __init__(self, f: Fuzz, peer: str | None = None) -> None:
        self.f = f
        self.peer = peer
        self.count = 0
        self.ready = True

    async def init(self) -> Any:
        await self.f.point()
        self.me.send_every(0.5, "tick")
        return "extra"

    async def receive(self, message: Any, call: Call | None) -> Any:
        self.f.handled(message)
        await self.f.point()
        if message == "tick":
            return None
        if isinstance(message, Parcel):
            self.count += 1
        elif message == "crash":
            raise ValueError("planned")
        return self.count

    async def terminate(self, exit: Exit) -> None:
        await trio.sleep(0.25)
        await self.f.point()


class Stashing(Behaviour):
    """Sets its parcels aside until it is told to go on."""

    def __init__(self, f: Fuzz) -> None:
        self.f = f
        self.open = False

    def receive(self, message: Any, call: Call | None) -> Any:
        if message == "open":
            self.open = True
            self.me.unstash_all()
        elif not self.open:
            self.me.stash()
            self.f.point_nowait()
        else:
            self.f.handled(message)
        return "done"


async def behaviours_with_messages_in_flight(f: Fuzz) -> None:
    specs = [
        ChildSpec("a", Counter, (f,), name="a", mailbox=3),
        ChildSpec("b", Counter, (f,), name="b", mailbox=3, overflow="drop_oldest"),
    ]
    async with opened(f, specs, intensity=9) as top:
        async with trio.open_nursery() as nursery:
            for id in ("a", "b"):
                ref = await ref_of(top, id)
                if ref is None:
                    continue
                for _ in range(5):
                    tell(f, ref)
                nursery.start_soon(send, f, ref)
                nursery.start_soon(asked, f, ref, "count", 0.75)
                nursery.start_soon(asked, f, ref, "crash")
                nursery.start_soon(asked, f, ref, "count")
            await f.point()
        await trio.sleep(1)
        await f.point()


async def kept_messages_meet_the_next_incarnation(f: Fuzz) -> None:
    spec = ChildSpec("a", Counter, (f,), name="a", mailbox=4, messages="keep")
    try:
        async with opened(f, [spec], intensity=2, backoff={"minimum": 0.5, "maximum": 2.0}) as top:
            ref = await ref_of(top, "a")
            if ref is None:
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked, f, ref, "crash")
                nursery.start_soon(asked, f, ref, "count", 3.0)
                nursery.start_soon(asked, f, ref, "count")
                await trio.lowlevel.checkpoint()
                tell(f, ref)
                nursery.start_soon(send, f, ref)
                await trio.sleep(0.25)
                await f.point()
            await trio.sleep(1)
    except RestartsExhausted as exhausted:
        f.saw(exhausted)


async def a_stash_is_put_back_or_dies(f: Fuzz) -> None:
    spec = ChildSpec("s", Stashing, (f,), mailbox=8)
    async with opened(f, [spec], intensity=2) as top:
        ref = await ref_of(top, "s")
        if ref is None:
            return
        for _ in range(3):
            tell(f, ref)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, f, ref, "first", 2.0)
            nursery.start_soon(asked, f, ref, "second")
            await trio.sleep(1)
            await f.point()
            ref.tell("open")
            tell(f, ref)


class Watcher(Behaviour):
    """Watches and links to whatever it is given, and asks it."""

    trap_ends = True

    def __init__(self, f: Fuzz) -> None:
        self.f = f

    async def receive(self, message: Any, call: Call | None) -> Any:
        await self.f.point()
        if isinstance(message, tuple):
            word, ref = message
            if word == "watch":
                self.me.monitor(ref)
                self.me.link(ref)
            elif word == "ask":
                return await asked(self.f, ref, "count", 2.0)
        return None


async def monitors_links_and_a_look_inside(f: Fuzz) -> None:
    specs = [ChildSpec("w", Watcher, (f,)), ChildSpec("v", Watcher, (f,)), ChildSpec("a", Counter, (f,), name="a")]
    async with opened(f, specs, intensity=9) as top:
        w, v, a = [await ref_of(top, id) for id in ("w", "v", "a")]
        if None in (w, v, a):
            return
        for message in (("watch", a), ("watch", v)):
            await asked(f, w, message)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, f, w, ("ask", a))
            nursery.start_soon(asked, f, v, ("ask", a))
            try:
                await a.suspend(1.0)
                tell(f, a)
                await trio.sleep(0.5)
                await a.resume(1.0)
                await a.get_state(1.0)
            except (ActorsError, trio.TooSlowError) as error:
                f.saw(error)
        f.saw(await a.stop()) if a.exit is None else None
        await trio.sleep(0.5)


async def group_restarts_with_names_and_kept_messages(f: Fuzz) -> None:
    specs = [
        ChildSpec("a", Counter, (f,), name="a", mailbox=4, messages="keep"),
        ChildSpec("b", Counter, (f,), name="b"),
        ChildSpec("c", Counter, (f,), name="c", messages="keep"),
    ]
    try:
        async with opened(f, specs, strategy="one_for_all", intensity=3) as top:
            a, b, c = [await ref_of(top, id) for id in ("a", "b", "c")]
            if None in (a, b, c):
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked, f, b, "crash")
                for ref in (a, c):
                    tell(f, ref)
                    nursery.start_soon(asked, f, ref, "count", 1.0)
                    tell(f, ref)
                await trio.sleep(0.75)
                await f.point()
            await top.terminate_child("a")
            await top.restart_child("a")
            await top.terminate_child("c")
            await trio.sleep(0.5)
    except RestartsExhausted as exhausted:
        f.saw(exhausted)


async def tasks_and_streams_beside_actors(f: Fuzz) -> None:
    async def item(seconds: float) -> float:
        await f.point()
        await trio.sleep(seconds)
        return seconds

    pool = supervise((), Flags(dynamic=True, max_children=3))
    async with opened(f, [ChildSpec("pool", lambda: pool, type=ChildType.supervisor)], intensity=2) as top:
        workers = await ref_of(top, "pool")
        try:
            task = await start_task(workers, item, 0.5)
            async with stream(workers, item, (0.25, 9.0, 0.5, 0.25), most=2, timeout=2.0, on_timeout="kill") as results:
                async for done in results:
                    f.saw(*[each for each in (getattr(done, "exit", None),) if each is not None])
                    await f.point()
            await task.result(1.0)
        except (ActorsError, trio.TooSlowError) as error:
            f.saw(error)


SCENARIOS: list[Scenario] = [
    asks_of_plain_actors,
    behaviours_with_messages_in_flight,
    kept_messages_meet_the_next_incarnation,
    a_stash_is_put_back_or_dies,
    monitors_links_and_a_look_inside,
    group_restarts_with_names_and_kept_messages,
    tasks_and_streams_beside_actors,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_invariants_hold_with_a_fault_at_each_checkpoint(scenario: Scenario) -> None:
    report = fuzz(scenario, stride=STRIDE)
    assert report.points and report.runs > 50
    assert not report.broken, str(report)
