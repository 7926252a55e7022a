"""The row that lets another process look at a live tree: how often, for how long, and at whose cost."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.agent import Agent
from actors.agents.live_states import WaitFor
from actors.agents.live_views import BEAT_SECONDS
from actors.agents.rows import LiveEnded, LiveSeen
from actors.agents.snapshots import MOST_AGENTS, decode_snapshot
from actors.agents.tree import open_tree
from actors.agents.unrecorded import Unrecorded
from actors.containment.limits import Containment
from actors.errors import StoreError, StoreErrorKind
from actors.store.store import Store

LIMITS = Containment(5_000, 3, 2, 1_000)


class Kept(Unrecorded):
    """A store that outlives the process as far as a tree can tell; each commit takes ``seconds`` or fails."""

    durable = True

    def __init__(self, seconds: float = 0.0, failing: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.failing = failing
        self.rows: list[tuple[float, Any]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def append(self, *rows: Any) -> None:
        self.append_nowait(*rows)

    def append_nowait(self, *rows: Any) -> None:
        self.rows += [(trio.current_time(), row) for row in rows]

    async def commit(self, *rows: Any) -> None:
        live = [row for row in rows if isinstance(row, LiveSeen)]
        self.at_once += len(live)
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if live and self.failing:
                raise StoreError(StoreErrorKind.full, "runs.db", "the disk is full")
            if live:
                await trio.sleep(self.seconds)
            self.append_nowait(*rows)
        finally:
            self.at_once -= len(live)

    def live(self) -> list[tuple[float, Any]]:
        return [(at, row) for at, row in self.rows if isinstance(row, LiveSeen | LiveEnded)]


async def run(store: Kept, root: Callable[[Agent], Awaitable[Any]], limits: Containment = LIMITS) -> float:
    """Run a tree and say how long it took."""
    start = trio.current_time()
    async with open_tree(limits, store=store) as tree:
        await tree.run(root)
    return trio.current_time() - start


async def test_the_row_is_written_at_most_once_a_second_while_something_changes(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        for _ in range(100):
            await trio.sleep(0.1)
            await agent.ledger.draw_tokens(1)

    store = Kept()
    await run(store, root)
    *seen, (_, last) = store.live()
    times = [at for at, _ in seen]
    assert 9 <= len(times) <= 11 and min(b - a for a, b in zip(times, times[1:], strict=False)) > 0.999
    assert isinstance(last, LiveEnded)
    spent = [decode_snapshot(row.snapshot).agents[0].spent_tokens for _, row in seen]
    assert spent == sorted(set(spent))


async def test_while_nothing_changes_there_is_only_a_beat(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        async with agent.waiting(WaitFor.human):
            await trio.sleep(31)

    store = Kept()
    await run(store, root)
    *seen, _ = store.live()
    times = [at for at, _ in seen]
    assert {round(b - a, 6) for a, b in zip(times, times[1:], strict=False)} == {BEAT_SECONDS}
    assert decode_snapshot(seen[-1][1].snapshot).agents[0].state == "waiting for human"


async def test_a_run_that_is_over_at_once_leaves_no_row(autojump_clock: Any) -> None:
    async def root(_agent: Agent) -> None:
        await trio.sleep(0.05)

    store = Kept()
    await run(store, root)
    assert store.live() == []


async def test_a_slow_store_holds_no_tree_and_has_one_row_at_a_time(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        for _ in range(50):
            await trio.sleep(0.1)
            await agent.ledger.draw_tokens(1)

    store = Kept(seconds=60.0)
    assert await run(store, root) == pytest.approx(5.0)
    assert store.most_at_once == 1
    assert [type(row) for _, row in store.live()] == [LiveEnded]


async def test_a_failing_store_ends_the_row_and_not_the_run(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        await trio.sleep(5)
        await agent.ledger.draw_tokens(1)

    store = Kept(failing=True)
    assert await run(store, root) == pytest.approx(5.0)
    assert [type(row) for _, row in store.live()] == [LiveEnded]


async def test_of_a_large_tree_the_row_lists_some_and_counts_the_rest(autojump_clock: Any) -> None:
    async def idle(_agent: Agent) -> None:
        await trio.sleep(3)

    async def root(agent: Agent) -> None:
        for _ in range(4_000):
            await agent.spawn(idle)
        async with agent.waiting():
            await trio.sleep(2)
        agent.tree.halt_nowait()
        await trio.sleep_forever()

    store = Kept()
    with pytest.raises(Exception, match="cancel"):
        await run(store, root)
    snapshot = decode_snapshot(store.live()[0][1].snapshot)
    assert len(snapshot.agents) == MOST_AGENTS
    assert snapshot.more == {"waiting for slot": 4_001 - MOST_AGENTS}
    assert len(store.live()[0][1].snapshot) < 1_000_000


async def test_a_tree_in_memory_writes_no_row(autojump_clock: Any) -> None:
    async def root(_agent: Agent) -> None:
        await trio.sleep(5)

    store = Store.memory()
    async with open_tree(LIMITS, store=store) as tree:
        await tree.run(root)
    assert store.select("SELECT * FROM live") == [] and store.live(tree.run_id) is None


async def test_the_row_can_be_read_while_the_run_is_live_and_is_gone_after_it(tmp_path: Path) -> None:
    async def root(agent: Agent) -> None:
        async with agent.waiting(WaitFor.mailbox):
            await trio.sleep(0.6)

    async with Store.open(tmp_path / "runs.db") as store:
        async with open_tree(LIMITS, store=store) as tree:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tree.run, root)
                with trio.fail_after(5):
                    while (record := store.live(tree.run_id)) is None:
                        await trio.sleep(0.02)
        await store.commit()
        assert store.live(tree.run_id) is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.taken_at)
    snapshot = decode_snapshot(record.snapshot)
    assert (snapshot.run_id, snapshot.agents[0].state) == (tree.run_id, "waiting for mailbox")
