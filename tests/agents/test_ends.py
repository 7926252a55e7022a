"""The ends of agents: when they are, and why a block was left."""

from typing import Any

import pytest
import trio
import trio.testing

from actors.agents.rows import RunFinished
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.errors import Halted
from actors.store.store import MemoryStore

LIMITS = Containment(max_total_agents=10, max_concurrent=4, max_depth=4, max_total_tokens=1000)


class Unsayable(Exception):
    """An error whose texts raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Slow(MemoryStore):
    """Takes 2 seconds to write an end; at ``broken`` it raises what is no error of a store."""

    broken = False

    async def append(self, *rows: Any) -> None:
        if any(isinstance(row, RunFinished) for row in rows):
            await trio.sleep(2)
            if self.broken:
                raise LookupError("a fault of the store's own")
        await super().append(*rows)


async def spawns(agent: Any) -> Any:
    handle = await agent.spawn(returns)
    return await handle.exit(), trio.current_time()


async def returns(agent: Any) -> int:
    return 1


async def test_an_end_has_the_time_at_which_it_was_written_down(autojump_clock):
    async with open_tree(LIMITS, store=Slow()) as tree:
        end, seen_at = await tree.run(spawns)
    assert (end.clean, end.ended_at, seen_at) == (True, 2.0, 2.0)


async def test_an_error_in_writing_an_end_down_is_in_the_end(autojump_clock):
    store = Slow()
    store.broken = True
    async with open_tree(LIMITS, store=store) as tree:
        end, _ = await tree.run(spawns)
    assert end.clean and str(end.lost) == "a fault of the store's own"


async def test_an_error_whose_text_cannot_be_had_leaves_the_block_of_a_tree_as_itself():
    async def waits(agent: Any) -> None:
        await trio.sleep_forever()

    async def run(tree: Any) -> None:
        with pytest.raises(Halted):
            await tree.run(waits)

    async with trio.open_nursery() as nursery:
        with pytest.raises(Unsayable):
            async with open_tree(LIMITS) as tree:
                nursery.start_soon(run, tree)
                await trio.testing.wait_all_tasks_blocked()
                raise Unsayable
    assert tree.ledger.halted is not None and tree.root.exit is not None
