"""Nothing grows with the dead: 100,000 actors, one after another, leave every table as it was.

Tables are found, not listed: whatever dict, list, set or deque can be reached
from the tree through objects of this package and of trio: also the sets of
tasks, children and deadlines of trio itself. So a table that is new is looked at
as well.
"""

import gc
import itertools
import types
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import attrs
import trio
import trio.testing

from actors.agents.agent import Agent
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.errors import ChildFailed
from actors.runtime.behaviour import Behaviour
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, Flags
from benchmarks.harness import Figure, Gate, resident_bytes

# The allocator's own unrest; it does not grow with the number.
NOISE = 4 << 20
LOOKS = 100
TABLES = (dict, list, set, deque)


@attrs.frozen
class Grown:
    """What is left after so many have ended: entries by table, and bytes."""

    tables: dict[str, int]
    bytes: int

    @property
    def entries(self) -> int:
        """Add up the growth."""
        return sum(self.tables.values())


def sizes(top: Any) -> dict[str, int]:
    """Give the length of each table that can be reached from ``top``, by the class and field that holds it."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("top", top)]
    while stack:
        name, thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, TABLES):
            # A ring counts as full: it is bounded, and fills.
            ring = thing.maxlen if isinstance(thing, deque) else None
            found[name] = found.get(name, 0) + (len(thing) if ring is None else ring)
        stack += [(held, each) for held, each in _held(name, thing) if _looked_at(each)]
    return found


def _held(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Give what a thing holds, each with the name that its table would have."""
    if isinstance(thing, dict):
        yield from ((name, each) for pair in list(thing.items()) for each in pair)
    elif isinstance(thing, (list, set, deque, tuple, frozenset)):
        yield from ((name, each) for each in list(thing))
    elif isinstance(thing, types.MethodType):
        yield name, thing.__self__
    else:
        of = type(thing).__name__
        slots = [kind.__dict__.get("__slots__", ()) for kind in type(thing).__mro__]
        names = [*itertools.chain.from_iterable((each,) if isinstance(each, str) else each for each in slots)]
        fields = [(each, getattr(thing, each, None)) for each in names]
        yield from ((f"{of}.{field}", value) for field, value in (*fields, *getattr(thing, "__dict__", {}).items()))


def _looked_at(thing: Any) -> bool:
    if isinstance(thing, (*TABLES, tuple, frozenset, types.MethodType)):
        return True
    return type(thing).__module__.split(".")[0] in ("actors", "trio", "benchmarks")


async def _grown(top: Any, once: Callable[[int], Awaitable[None]], n: int) -> Grown:
    """Do it ``n`` times, and give what grew since the first tenth of them.

    The size a table had is the largest in the last `LOOKS` rounds of that tenth:
    the heap of timeouts, for one, is swept now and then. For the same reason a table
    that is larger at the end is looked at some rounds longer: what swings comes back.
    """
    warm = n // 10
    tables: dict[str, int] = {}
    for number in range(warm):
        await once(number)
        if number >= warm - LOOKS:
            tables = {**tables, **{name: max(size, tables.get(name, 0)) for name, size in sizes(top).items()}}
    held = await _settled()
    for number in range(warm, n):
        await once(number)
    holds = await _settled()
    grown = _larger(sizes(top), tables)
    for number in range(n, n + LOOKS):
        if not grown:
            break
        await once(number)
        still = _larger(sizes(top), tables)
        grown = {name: min(size, still[name]) for name, size in grown.items() if name in still}
    return Grown(grown, holds - held)


def _larger(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: more for name, size in now.items() if (more := size - before.get(name, 0)) > 0}


async def _settled() -> int:
    """Let whoever still tidies up do it now, and give the memory then."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    gc.collect()
    return resident_bytes()


# ── who dies ────────────────────────────────────────────────────────────────


async def _agents(n: int) -> Grown:
    """Let leaf agents return, raise, or be stopped."""

    async def leaf(_agent: Agent, number: int) -> int:
        if number % 3 == 1:
            raise ValueError("broken")
        if number % 3 == 2:
            await trio.sleep_forever()
        return number

    async def root(agent: Agent) -> Grown:
        async def once(number: int) -> None:
            child = await agent.spawn(leaf, number)
            if number % 3 == 2:
                await child.stop()
                return
            with suppress(ChildFailed):
                assert await child.result() == number

        return await _grown(tree, once, n)

    async with open_tree(Containment(n + LOOKS + 1, 4, 1, UNLIMITED)) as tree:
        return await tree.run(root)


async def _supervised(n: int) -> Grown:
    """Let children of a dynamic supervisor return, raise, or be stopped."""

    async def child(number: int) -> None:
        if number % 3 == 1:
            raise ValueError("broken")
        if number % 3 == 2:
            await trio.sleep_forever()

    tree = open_supervisor((), Flags(dynamic=True), on_report=lambda _path, _report: None)
    async with tree as top:

        async def once(number: int) -> None:
            answer = await top.start_child(ChildSpec("child", child, (number,), restart=Restart.temporary))
            if number % 3 == 2:
                assert (await top.terminate_child(answer.ref)).ok
            else:
                await answer.ref.wait()

        return await _grown(tree, once, n)


class _Worker(Behaviour):
    """An actor with a name and a timer, which dies with messages unread."""

    async def init(self) -> None:
        self.me.send_after(3600.0, "too late")

    async def receive(self, message: Any, _call: Any) -> Any:
        if message == "break":
            raise ValueError("broken")
        return message


async def _restarted(n: int) -> Grown:
    """Let one named actor be restarted; each incarnation is found by name, asked with a deadline, and broken."""
    flags = Flags(intensity=1_000, period=0.001)
    tree = open_supervisor((ChildSpec("worker", _Worker, name="worker"),), flags, on_report=lambda *_: None)
    async with tree:

        async def once(_number: int) -> None:
            ref = await tree.host.registry.wait_for("worker")
            assert await ref.ask("hello", 60.0) == "hello"
            ref.tell("break")
            ref.tell("never read")
            while ref.exit is None:
                await trio.lowlevel.checkpoint()
            # The next one is up, so that each look finds one alive.
            assert await tree.host.registry.wait_for("worker") is not ref

        return await _grown(tree, once, n)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure agents, children of a supervisor, and incarnations of one named actor."""
    n = 1_000 if quick else 100_000
    kinds = (("agents", _agents), ("supervised", _supervised), ("restarted", _restarted))
    for name, arm in kinds:
        grown = trio.run(arm, n)
        told = ", ".join(f"{table} +{size}" for table, size in grown.tables.items()) or "none"
        method = f"one after another; entries that tables gained in the last nine tenths: {told}"
        yield Figure(f"dead_{name}_tables", grown.entries, "entries", None, None, n, method, Gate("value", "==", 0))
        method = "resident memory gained in the last nine tenths; may be below zero"
        yield Figure(f"dead_{name}_rss", grown.bytes, "bytes", None, None, n, method, Gate("value", "<=", NOISE))
