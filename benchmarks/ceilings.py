"""Whether any ceiling is ever passed, whatever the fan-out.

What was reached is counted by the agents themselves, and compared with the
ceiling and with the ledger's own books. The baseline is what people write
without a ledger: raw tasks that look at a shared counter, make their call, and
add to the counter after it. The lag of the duration ceiling is in `lags.py`.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio

from actors.agents.agent import Agent
from actors.agents.tree import Tree, open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.ledger_state import Draw
from actors.containment.limits import Containment
from actors.errors import AgentCap, DepthCap
from benchmarks import lags
from benchmarks.harness import Figure, Gate

FAN_OUTS = (10, 100, 1_000, 10_000)
EXACT = Gate("value", "==", 0)
DEPTH = 2
PARENTS = 10


async def _all_at_once(tree: Tree, n: int, client: Callable[[Agent], Awaitable[None]]) -> None:
    """Run ``n`` leaves whose clients begin together; a halt may end them."""
    go = trio.Event()

    async def leaf(agent: Agent) -> None:
        async with agent.waiting():
            await go.wait()
        await client(agent)

    async def root(agent: Agent) -> None:
        children = [await agent.spawn(leaf) for _ in range(n)]
        go.set()
        for child in children:
            await child.exit()

    async with tree:
        await tree.run_root(root, ())
    assert tree.leaks().empty


async def _drawn_tokens(n: int) -> tuple[int, int]:
    """Draw 7 tokens twice in each of ``n`` agents, under a ceiling for half of it."""
    ceiling = 7 * n + 3
    granted = 0
    tree = open_tree(Containment(n + 1, n + 1, 1, ceiling))

    async def client(agent: Agent) -> None:
        nonlocal granted
        for _ in range(2):
            if await agent.ledger.draw_tokens(7) is Draw.halted:
                return
            granted += 7

    await _all_at_once(tree, n, client)
    assert granted == tree.ledger.spent_tokens
    return granted, ceiling


async def _reserved(n: int, limits: Containment, tokens: int, microdollars: int) -> tuple[int, int, int]:
    """Reserve and settle twice in each agent; give the most tokens, money and calls that ever counted."""
    tree = open_tree(limits)
    calls = peak_tokens = peak_money = spent = 0
    books = tree.ledger

    async def client(agent: Agent) -> None:
        nonlocal calls, peak_tokens, peak_money, spent
        for _ in range(2):
            held = await agent.ledger.reserve(tokens, microdollars)
            if isinstance(held, Draw):
                return
            calls += 1
            peak_tokens = max(peak_tokens, books.spent_tokens + books.reserved_tokens)
            peak_money = max(peak_money, books.spent_microdollars + books.reserved_microdollars)
            await trio.lowlevel.checkpoint()
            spent += tokens - 1
            agent.ledger.settle_nowait(held, tokens - 1, max(microdollars - 1, 0))

    await _all_at_once(tree, n, client)
    # A call that the halt cut is charged in full, so the books hold what was settled and at most that more.
    assert spent <= books.spent_tokens <= spent + calls * tokens
    return max(peak_tokens, books.spent_tokens), max(peak_money, books.spent_microdollars), calls


async def _reserved_tokens(n: int) -> tuple[int, int]:
    ceiling = 10 * n + 3
    reached, _, _ = await _reserved(n, Containment(n + 1, n + 1, 1, ceiling), 10, 0)
    return reached, ceiling


async def _money(n: int) -> tuple[int, int]:
    ceiling = 10 * n + 3
    limits = Containment(n + 1, n + 1, 1, UNLIMITED, max_total_cost=ceiling)
    _, reached, _ = await _reserved(n, limits, 1, 10)
    return reached, ceiling


async def _calls(n: int) -> tuple[int, int]:
    limits = Containment(n + 1, n + 1, 1, UNLIMITED, max_total_calls=n)
    _, _, reached = await _reserved(n, limits, 10, 0)
    return reached, n


async def _agents(n: int) -> tuple[int, int]:
    """Spawn from ten parents at once, twice as many as may exist."""
    ceiling = n // 2 + PARENTS
    existed = 0

    async def node(agent: Agent, children: int) -> None:
        nonlocal existed
        existed += 1
        for _ in range(children):
            try:
                await agent.spawn(node, 0)
            except AgentCap:
                continue

    async def root(agent: Agent) -> None:
        nonlocal existed
        existed += 1
        for _ in range(PARENTS):
            await agent.spawn(node, n // PARENTS)

    async with open_tree(Containment(ceiling, n + 1, 2, UNLIMITED)) as tree:
        await tree.run(root)
    assert existed == tree.ledger.agents
    return existed, ceiling


async def _depth(n: int) -> tuple[int, int]:
    """Go down from each of ``n`` children until somebody says no."""
    deepest = 0

    async def node(agent: Agent) -> None:
        nonlocal deepest
        deepest = max(deepest, agent.depth)
        try:
            await agent.spawn(node)
        except DepthCap:
            return

    async def root(agent: Agent) -> None:
        for _ in range(n):
            await agent.spawn(node)

    async with open_tree(Containment(DEPTH * n + 1, 64, DEPTH, UNLIMITED)) as tree:
        await tree.run(root)
    return deepest, DEPTH


async def _working(n: int) -> tuple[int, int]:
    """Let ``n`` leaves work under a cap, and count those between their first line and their last."""
    cap = min(n // 2, 64)
    working = peak = 0

    async def leaf(_agent: Agent) -> None:
        nonlocal working, peak
        working += 1
        peak = max(peak, working)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        working -= 1

    async def root(agent: Agent) -> None:
        nonlocal working
        working += 1
        children = [await agent.spawn(leaf) for _ in range(n)]
        working -= 1
        async with agent.waiting():
            for child in children:
                await child.result()

    async with open_tree(Containment(n + 1, cap, 1, UNLIMITED)) as tree:
        await tree.run(root)
    assert peak <= tree.slots.peak_working
    return peak, cap


async def _unguarded(n: int, each: int, ceiling: int) -> int:
    """Look, call, add: the overshoot of ``n`` raw tasks that take ``each`` twice."""
    total = 0

    async def client() -> None:
        nonlocal total
        for _ in range(2):
            if total + each > ceiling:
                return
            await trio.lowlevel.checkpoint()
            total += each

    async with trio.open_nursery() as nursery:
        for _ in range(n):
            nursery.start_soon(client)
    return max(total - ceiling, 0)


Axis = Callable[[int], Awaitable[tuple[int, int]]]
# Name, what is measured, its unit, and how much one step of a client takes; depth has no unguarded twin.
AXES: tuple[tuple[str, Axis, str, int], ...] = (
    ("tokens_drawn", _drawn_tokens, "tokens", 7),
    ("tokens_reserved", _reserved_tokens, "tokens", 10),
    ("money", _money, "microdollars", 10),
    ("calls", _calls, "calls", 1),
    ("agents", _agents, "agents", 1),
    ("depth", _depth, "levels", 0),
    ("working", _working, "agents", 1),
)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure the overshoot of each ceiling at each fan-out, then the lag of the duration ceiling."""
    for name, axis, unit, each in AXES:
        for n in FAN_OUTS[:2] if quick else FAN_OUTS:
            reached, ceiling = trio.run(axis, n)
            over = max(reached - ceiling, 0)
            bare = trio.run(partial(_unguarded, n, each, ceiling)) if each else None
            ratio = over / bare if bare else None
            method = f"overshoot: reached {reached} under {ceiling}; baseline: raw tasks that look, call, then add"
            yield Figure(f"ceilings_{name}_{n}", over, unit, bare, ratio, n, method, EXACT)
    yield from lags.figures(quick)
