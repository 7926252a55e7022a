"""The jobs that other actor libraries of Python do too, side by side: pykka, autogen-core, tractor.

Each is there if it is installed (the extra ``bench``), and is skipped with a line
on stderr if not. They are not the same thing: pykka gives each actor a thread,
tractor a process, autogen-core calls objects from one asyncio loop. So wall and
CPU are two figures, and CPU counts every thread and every process.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import trio
import trio.testing

from actors.runtime.actor import Call
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, Flags
from benchmarks.bills import Bill, Clock, Job, take_turns
from benchmarks.harness import Figure, rounds_of

# By the name on a package index: the module that is imported, and the one with its jobs.
PEERS = {
    "pykka": ("pykka", "benchmarks.peer_pykka"),
    "autogen-core": ("autogen_core", "benchmarks.peer_autogen"),
    "tractor": ("tractor", "benchmarks.peer_tractor"),
}
BURST = 64


class _Counter(Behaviour):
    """The actor of ours: counts, answers, breaks when told to."""

    def __init__(self, last: int) -> None:
        self._seen = 0
        self._last = last
        self.over = trio.Event()

    def receive(self, message: Any, call: Call | None) -> Any:
        if message is None:
            raise ValueError("broken")
        self._seen += 1
        if self._seen == self._last:
            self.over.set()
        return message


def _dynamic() -> SupervisionTree:
    return open_supervisor((), Flags(dynamic=True), cleanup_allowance=60.0)


def _spec(last: int = -1) -> ChildSpec:
    return ChildSpec("counter", _Counter, (last,), restart=Restart.temporary)


async def _told(n: int, burst: int) -> Bill:
    counter = _Counter(n)
    async with _dynamic() as top:
        answer = await top.start_child(ChildSpec("counter", lambda: counter, restart=Restart.temporary))
        tell = answer.ref.tell
        clock = Clock()
        for _ in range(n // burst):
            for number in range(burst):
                tell(number)
            await trio.lowlevel.checkpoint()
        await counter.over.wait()
        return clock.bill(n)


async def _asked(n: int, timeout: float | None) -> Bill:
    async with _dynamic() as top:
        ref = (await top.start_child(_spec())).ref
        clock = Clock()
        for number in range(n):
            assert await ref.ask(number, timeout) == number
        return clock.bill(n)


async def _spawned(alive: int, n: int) -> Bill:
    async with _dynamic() as top:
        for _ in range(alive):
            await top.start_child(_spec())
        clock = Clock()
        for _ in range(n):
            await top.start_child(_spec())
        return clock.bill(n)


async def _restarted(n: int) -> Bill:
    flags = Flags(intensity=1_000, period=0.001)
    spec = ChildSpec("counter", _Counter, (-1,), name="counter")
    tree = open_supervisor((spec,), flags, on_report=lambda _path, _report: None)
    async with tree as top:
        clock = Clock()
        for _ in range(n):
            ref = await tree.host.registry.wait_for("counter")
            ref.tell(None)
            # Its name is free once it has ended, and taken again by the next one.
            while ref.exit is None:
                await trio.lowlevel.checkpoint()
        await tree.host.registry.wait_for("counter")
        bill = clock.bill(n)
        line = await top.which_child("counter")
        assert line is not None and line.restarts >= n - 1
    return bill


async def _stopped(n: int) -> Bill:
    async with _dynamic() as top:
        for _ in range(n):
            await top.start_child(_spec())
        await trio.testing.wait_all_tasks_blocked()
        clock = Clock()
        await top.stop("measured")
        return clock.bill(n)


def _job(arm: Callable[..., Any], small: Sequence[Any], large: Sequence[Any]) -> Job:
    return lambda quick: trio.run(arm, *(small if quick else large))


JOBS: dict[str, Job] = {
    "tell": _job(_told, (640, 1), (20_480, 1)),
    "tell_bursts": _job(_told, (1_280, BURST), (102_400, BURST)),
    "ask": _job(_asked, (200, None), (20_000, None)),
    "ask_timed": _job(_asked, (200, 60.0), (20_000, 60.0)),
    "spawn": _job(_spawned, (200, 100), (10_000, 2_000)),
    "stop": _job(_stopped, (200,), (10_000,)),
}
WHAT = {
    "tell": "a message, one by one; ours lets others run after each",
    "tell_bursts": f"a message, in bursts of {BURST}",
    "ask": "call and answer",
    "ask_timed": "call and answer with a deadline",
    "spawn": "a start with 10,000 alive, 1,000 of a peer's (none of tractor's)",
    "stop": "an ordered stop of all, for each",
}


def present() -> list[ModuleType]:
    """Import the jobs of each peer that can be; say of the others why not."""
    found = []
    for name, (module, jobs) in PEERS.items():
        try:
            importlib.import_module(module)
        except Exception as error:
            # Also one that is installed and does not go with this Python or this trio.
            print(f"peers: {name} is skipped: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            found.append(importlib.import_module(jobs))
    return found


def _measured(quick: bool, *jobs: Job) -> list[Bill]:
    return take_turns(rounds_of(quick), *(partial(job, quick) for job in jobs))


def figures(quick: bool) -> Iterator[Figure]:
    """Measure ours beside each peer, wall and CPU."""
    peers = present()
    for job, ours in JOBS.items():
        bills = _measured(quick, ours, *(peer.JOBS[job] for peer in peers))
        mine = bills[0]
        what = WHAT[job]
        for part, kind in enumerate(("wall", "cpu")):
            if not peers:
                yield Figure(f"peers_{job}_{kind}", mine.each[part], "us", None, None, mine.n, f"{what}; {kind}")
            for peer, bill in zip(peers, bills[1:], strict=True):
                method = f"{what}; {kind}; baseline: {peer.NAME} ({peer.ACTOR}), n={bill.n:,}"
                value, theirs = mine.each[part], bill.each[part]
                yield Figure(f"peers_{job}_{peer.NAME}_{kind}", value, "us", theirs, value / theirs, mine.n, method)
    [again] = _measured(quick, _job(_restarted, (50,), (2_000,)))
    method = "a named actor is told to break, until the next one has its name; no peer restarts an actor"
    yield Figure("peers_restart_wall", again.each[0], "us", None, None, again.n, f"{method}; wall")
    yield Figure("peers_restart_cpu", again.each[1], "us", None, None, again.n, f"{method}; cpu")
