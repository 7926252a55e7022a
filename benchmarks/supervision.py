"""Supervised children: start, memory, restart, ordered stop, a chain, administration, a halt; each beside raw trio."""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import trio
import trio.testing

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import SupervisionTree, open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, ChildType, Flags
from actors.runtime.supervise import Supervise, supervise
from benchmarks import latencies
from benchmarks.harness import Arm, Figure, Gate, begin, bytes_per_shell, cpu, interleave, per_operation, rounds_of
from benchmarks.raw_stops import stop_chain, stop_wide

KIB_8 = 8 * 1024
DYNAMIC = Flags(dynamic=True)
# A window that forgets at once: a supervisor's own bookkeeping then stays as small as in real use.
RESTLESS = Flags(intensity=1_000, period=0.001)


async def _idle() -> None:
    await trio.sleep_forever()


class _Echo(Behaviour):
    def receive(self, message: Any, _call: Any) -> Any:
        return message


IDLE = ChildSpec("idle", _idle, restart=Restart.temporary)
ACTOR = ChildSpec("echo", _Echo, restart=Restart.temporary)


def _dynamic() -> SupervisionTree:
    # The allowance bounds the end of the block, which is not measured.
    return open_supervisor((), DYNAMIC, cleanup_allowance=600.0)


# ── start, with many alive ──────────────────────────────────────────────────


async def _started(alive: int, n: int, spec: ChildSpec = IDLE) -> float:
    async with _dynamic() as top:
        for _ in range(alive):
            await top.start_child(spec)
        began = begin()
        for _ in range(n):
            answer = await top.start_child(spec)
            assert answer.ok
        spent = cpu() - began
        assert (await top.count_children()).active == alive + n
    return spent


async def _spawned(alive: int, n: int) -> float:
    most = alive + n + 1

    async def idle(agent: Agent) -> None:
        async with agent.waiting():
            await trio.sleep_forever()

    async def root(agent: Agent) -> float:
        for _ in range(alive):
            await agent.spawn(idle)
        while tree.slots.total().waiting < alive:
            await trio.lowlevel.checkpoint()
        began = begin()
        for _ in range(n):
            await agent.spawn(idle)
        while tree.slots.total().waiting < alive + n:
            await trio.lowlevel.checkpoint()
        measured.append(cpu() - began)
        tree.halt_nowait(reason="measured")
        await trio.sleep_forever()
        return 0.0

    measured: list[float] = []
    async with open_tree(Containment(most, most, 1, UNLIMITED), cleanup_allowance=600.0) as tree:
        await tree.run_root(root, ())
    return measured[0]


async def _plain_tasks(alive: int, n: int) -> float:
    waiting = 0

    async def plain() -> None:
        nonlocal waiting
        waiting += 1
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(alive):
            nursery.start_soon(plain)
        while waiting < alive:
            await trio.lowlevel.checkpoint()
        began = begin()
        for _ in range(n):
            nursery.start_soon(plain)
        while waiting < alive + n:
            await trio.lowlevel.checkpoint()
        spent = cpu() - began
        nursery.cancel_scope.cancel()
    return spent


async def _plain_starts(alive: int, n: int) -> float:
    async def plain(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(alive):
            await nursery.start(plain)
        began = begin()
        for _ in range(n):
            await nursery.start(plain)
        spent = cpu() - began
        nursery.cancel_scope.cancel()
    return spent


# ── memory ──────────────────────────────────────────────────────────────────


async def _bytes_of_children(n: int, spec: ChildSpec) -> float:
    async with _dynamic() as top:
        await top.start_child(spec)
        gc.collect()
        tracemalloc.start()
        for _ in range(n):
            await top.start_child(spec)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return used / n


async def _bytes_of_shells(n: int) -> float:
    senders: list[Any] = []

    async def shell(up: Callable[[], None]) -> None:
        send, receive = trio.open_memory_channel[int](64)
        senders.append(send)
        with trio.CancelScope():
            async with trio.open_nursery():
                up()
                await receive.receive()

    return await bytes_per_shell(n, shell)


# ── crash to restarted ──────────────────────────────────────────────────────


class _Crashes:
    """A child that says that it is up, waits for its order, and breaks; and the driver of it."""

    def __init__(self) -> None:
        self._child: trio.lowlevel.Task | None = None
        self._driver: trio.lowlevel.Task | None = None
        self.up = 0

    async def broken(self) -> None:
        self.up += 1
        if self._driver is not None:
            driver, self._driver = self._driver, None
            trio.lowlevel.reschedule(driver)
        self._child = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
        raise ValueError("broken")

    async def drive(self, n: int) -> float:
        """Break it so many times; each time wait until the next one is up."""
        while self._child is None:
            await trio.lowlevel.checkpoint()
        began = begin()
        for _ in range(n):
            child, self._child = self._child, None
            trio.lowlevel.reschedule(child)
            self._driver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        spent = cpu() - began
        assert self.up == n + 1
        return spent


async def _restarted(n: int) -> float:
    crashes = _Crashes()
    heard = 0

    def hear(_path: str, _report: Any) -> None:
        nonlocal heard
        heard += 1

    spec = ChildSpec("broken", crashes.broken)
    async with open_supervisor((spec,), RESTLESS, on_report=hear):
        spent = await crashes.drive(n)
    assert heard == n
    return spent


async def _raised_and_started(n: int) -> float:
    crashes = _Crashes()

    async def plain() -> None:
        try:
            await crashes.broken()
        except ValueError:
            nursery.start_soon(plain)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(plain)
        spent = await crashes.drive(n)
        nursery.cancel_scope.cancel()
    return spent


# ── stops ───────────────────────────────────────────────────────────────────


async def _stopped(tree: SupervisionTree, grow: Callable[[Any], Awaitable[None]], live: int) -> float:
    before = trio.lowlevel.current_statistics().tasks_living
    async with tree as top:
        await grow(top)
        assert trio.lowlevel.current_statistics().tasks_living >= before + live
        await trio.testing.wait_all_tasks_blocked()
        began = begin()
        await top.stop("measured")
        spent = cpu() - began
    assert top.exit is not None and top.exit.clean
    return spent


async def _stop_dynamic(n: int) -> float:
    async def grow(top: Any) -> None:
        for _ in range(n):
            await top.start_child(IDLE)

    return await _stopped(_dynamic(), grow, n)


async def _grown(_top: Any) -> None:
    """Do nothing: all children were started from their specs."""


async def _stop_static(n: int) -> float:
    specs = [ChildSpec(number, _idle) for number in range(n)]
    return await _stopped(open_supervisor(specs, cleanup_allowance=600.0), _grown, n)


def _chain(levels: int) -> Supervise:
    if not levels:
        return supervise()
    return supervise([ChildSpec("below", _chain, (levels - 1,), type=ChildType.supervisor)])


async def _stop_chain(n: int) -> float:
    specs = _chain(n - 1).specs
    return await _stopped(open_supervisor(specs, cleanup_allowance=600.0), _grown, n)


async def _halt_chain(n: int) -> float:
    """Cut the same chain leaf first, as a halt does."""
    tree = open_supervisor(_chain(n - 1).specs, cleanup_allowance=600.0)
    async with tree as top:
        await trio.testing.wait_all_tasks_blocked()
        began = begin()
        receipt = await tree.host.wind_down(tree.top, "measured", 600.0)
        spent = cpu() - began
        assert receipt.complete and len(receipt.stopped) == n
        assert top.exit is not None
    return spent


# ── figures ─────────────────────────────────────────────────────────────────


def _starts(quick: bool) -> Iterator[Figure]:
    alive, n = (500, 200) if quick else (10_000, 2_000)
    actors = partial(_started, spec=ACTOR)
    arms: list[Arm] = [partial(arm, alive, n) for arm in (_started, actors, _spawned, _plain_tasks, _plain_starts)]
    started, acting, spawned, raw, ready = interleave(rounds_of(quick), *arms)
    gate = Gate("ratio", "<=", 6.5)
    method = f"{alive:,} alive; baseline: start_soon of plain tasks until they wait, as many alive"
    how = "start_child until it is ready"
    yield per_operation("supervisor_start_task", started, raw, n, f"{how}, a task; {method}", gate)
    yield per_operation("supervisor_start_actor", acting, raw, n, f"{how}, an actor; {method}", gate)
    of_agents = f"spawn of leaf agents until they wait; {method}"
    yield per_operation("agent_spawn_many_alive", spawned, raw, n, of_agents, gate)
    # What start_child does that start_soon does not: it is back when the child is ready.
    of_starts = f"start_child of a task; {alive:,} alive; baseline: nursery.start, as many alive"
    yield per_operation("supervisor_start_ready", started, ready, n, of_starts)


def _memory(quick: bool) -> Iterator[Figure]:
    n = 500 if quick else 10_000
    # Counts of bytes hardly vary, and a round costs seconds.
    rounds = 1 if quick else rounds_of(quick)
    arms = partial(_bytes_of_children, n, IDLE), partial(_bytes_of_children, n, ACTOR), partial(_bytes_of_shells, n)
    task, actor, shell = interleave(rounds, *arms)
    for name, held in (("task", task), ("actor", actor)):
        method = f"an idle {name} of a dynamic supervisor, tracemalloc; baseline: task, scope, nursery, channel"
        ratio = held / shell
        yield Figure(f"supervised_{name}_memory", held, "bytes", shell, ratio, n, method, Gate("ratio", "<=", 1.3))
        yield Figure(f"supervised_{name}_bytes", held, "bytes", shell, ratio, n, method, Gate("value", "<=", KIB_8))


def _restarts(quick: bool) -> Iterator[Figure]:
    n = 200 if quick else 5_000
    ours, raw = interleave(rounds_of(quick), partial(_restarted, n), partial(_raised_and_started, n))
    method = "a permanent child is told to break, until the next one is up; reports are heard and counted"
    baseline = "baseline: a task that raises and catches, then start_soon of the next, driven alike"
    yield per_operation("supervisor_restart", ours, raw, n, f"{method}; {baseline}", Gate("ratio", "<=", 4.5))


def _stops(quick: bool) -> Iterator[Figure]:
    rounds = rounds_of(quick)
    n = 500 if quick else 10_000
    dynamic, static, raw = interleave(
        rounds, partial(_stop_dynamic, n), partial(_stop_static, n), partial(stop_wide, n)
    )
    gate = Gate("ratio", "<=", 2.4)
    method = "top.stop() until its end; baseline: leaf-first stop of plain tasks with a scope each, one nursery"
    yield per_operation("supervisor_stop_dynamic", dynamic, raw, n, f"{method}; all asked in one step", gate)
    yield per_operation("supervisor_stop_static", static, raw, n, f"{method}; in reverse, one by one", gate)
    n = 200 if quick else 2_000
    stopped, halted, raw = interleave(rounds, partial(_stop_chain, n), partial(_halt_chain, n), partial(stop_chain, n))
    gate = Gate("ratio", "<=", 2.5)
    method = "baseline: leaf-first stop of nested nurseries with a scope each"
    by_stop, by_halt = f"top.stop() of a chain of supervisors; {method}", f"a halt of the same chain; {method}"
    yield per_operation("supervisor_stop_chain", stopped, raw, n, by_stop, gate)
    yield per_operation("supervisor_halt_chain", halted, raw, n, by_halt, gate)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure what a supervisor costs, and how soon it answers."""
    yield from _starts(quick)
    yield from _memory(quick)
    yield from _restarts(quick)
    yield from _stops(quick)
    yield from latencies.figures(quick)
