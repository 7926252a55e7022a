"""A halt stops its tree whatever its reason holds, and whatever happens while its row is written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.agent import Agent
from actors.agents.recording import Recorder
from actors.agents.rows import EventSeen, Row
from actors.agents.tree import Tree, open_tree
from actors.containment.limits import Containment
from actors.errors import ActorsError, ChildFailed, Halted
from actors.store.store import MemoryStore, Store

LIMITS = Containment(3, 2, 1, 1000)
# As the name of a file with a byte of no encoding, from os.listdir.
ODD = os.fsdecode(b"a\xff") + "\x00"


class Hears:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, event: Any) -> None:
        self.events.append(event)


async def forever(agent: Agent) -> None:
    await trio.sleep_forever()


async def run_quietly(tree: Tree) -> None:
    try:
        await tree.run(forever)
    except ActorsError:
        pass


async def halted(store: Store, end: Callable[[Tree], Any], observer: Any = None) -> Tree:
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, open_tree(LIMITS, store=store, observer=observer) as tree:
            nursery.start_soon(run_quietly, tree)
            await trio.testing.wait_all_tasks_blocked()
            end(tree)
    return tree


async def test_a_halt_whose_reason_no_encoding_can_carry_stops_the_tree_and_is_told(tmp_path: Path) -> None:
    hears = Hears()
    async with Store.open(tmp_path / "runs.db") as store:
        tree = await halted(store, lambda tree: tree.halt_nowait(by=ODD, reason=ODD), hears)
        assert tree.halt_stored and tree.leaks().empty
        halt = store.halt(tree.run_id)
        assert halt is not None and halt.reason == "a\ufffd\ufffd" == halt.by
    [told] = [event for event in hears.events if event["kind"] == "halted"]
    assert told["reason"] == "a\ufffd\ufffd"


async def test_an_error_of_the_block_whose_text_no_encoding_can_carry_stops_the_tree() -> None:
    async def run() -> None:
        async with trio.open_nursery() as outer, open_tree(LIMITS, store=Store.memory()) as tree:
            outer.start_soon(run_quietly, tree)
            await trio.testing.wait_all_tasks_blocked()
            raise RuntimeError(ODD)

    with trio.fail_after(5), pytest.RaisesGroup(RuntimeError):
        await run()


async def test_an_agent_that_fails_with_such_a_text_has_an_end(tmp_path: Path) -> None:
    async def fails(agent: Agent) -> None:
        raise ValueError(ODD)

    async with Store.open(tmp_path / "runs.db") as store:
        with trio.fail_after(5), pytest.raises(ChildFailed):
            async with open_tree(LIMITS, store=store) as tree:
                await tree.run(fails)
        record = store.run(tree.run_id)
    assert record is not None and record.status == "failed" and "a\ufffd" in (record.detail or "")


async def test_an_event_with_such_a_text_anywhere_in_it_is_a_row_and_is_told_as_it_is_written() -> None:
    hears = Hears()
    recorder = Recorder(Store.memory(), hears, "t", False)
    row = recorder.event("root", 0, "x", {"a": [{ODD: ODD}], "b": 1})
    assert isinstance(row, EventSeen) and "\ufffd" in row.event
    assert hears.events[0]["a"] == [{"a\ufffd\ufffd": "a\ufffd\ufffd"}]


async def test_whatever_keeps_the_row_of_a_halt_from_being_written_the_tree_is_stopped() -> None:
    class Breaks(MemoryStore):
        async def commit(self, *rows: Row) -> None:
            if any(type(row).__name__ == "TreeHalted" for row in rows):
                raise KeyError("a bug")
            await super().commit(*rows)

    tree = await halted(Breaks(), lambda tree: tree.halt_nowait(reason="enough"))
    assert tree.halt_stored is False and tree.leaks().empty
    assert tree.receipt is not None and not tree.receipt.not_ended


async def test_such_a_halt_is_what_the_agent_is_told() -> None:
    async with open_tree(LIMITS, store=Store.memory()) as tree:
        async with trio.open_nursery() as nursery:
            seen: list[str] = []

            async def run() -> None:
                with pytest.raises(Halted) as caught:
                    await tree.run(forever)
                seen.append(str(caught.value))

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            tree.halt_nowait(reason=ODD)
    assert "a\ufffd" in seen[0]
