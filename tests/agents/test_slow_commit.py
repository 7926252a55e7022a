"""A store that is slow to commit an answer: only an agent that is told to stop may give up on it."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.rows import AnswerGiven
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.errors import StoreError, StoreErrorKind
from actors.halts import HaltKind
from actors.providers.scripted import Scripted
from actors.store.store import MemoryStore


class Slow(MemoryStore):
    """Takes 7 seconds to commit an answer; ``begun`` and ``ended`` are when, None for one that was cut."""

    durable = True

    def __init__(self, error: StoreError | None = None) -> None:
        super().__init__()
        self.begun = trio.Event()
        self.ended: float | None = None
        self.cut: float | None = None
        self._error = error

    async def commit(self, *rows: Any) -> None:
        if any(isinstance(row, AnswerGiven) for row in rows):
            self.begun.set()
            try:
                await trio.sleep(7)
            except trio.Cancelled:
                self.cut = trio.current_time()
                raise
            if self._error is not None:
                raise self._error
            self.ended = trio.current_time()
        await super().commit(*rows)


async def run(folder: Path, store: Slow, stop_after: float | None = None) -> Any:
    """Run one agent that ends with its first answer, and halt it so long after it has begun to commit that.

    Gives what came of it: a result, or the error of the store.
    """
    opened: list[Tree] = []
    contract = TaskContract.workspace(
        "write", folder, Verification.workspace_file_contains("x.txt", "ok")
    ).with_max_steps(1)
    results: list[RunResult | StoreError] = []

    async def stop() -> None:
        await store.begun.wait()
        assert stop_after is not None
        await trio.sleep(stop_after)
        opened[0].halt_nowait(HaltKind.interrupt)

    async with trio.open_nursery() as nursery:
        if stop_after is not None:
            nursery.start_soon(stop)
        try:
            results.append(
                await run_tree(
                    contract,
                    Scripted([[("write_file", {"path": "x.txt", "content": "ok"})]]),
                    store,
                    Policy.permissive(),
                    ApproveAll(),
                    Containment(2, 1, 1, 100_000),
                    cleanup_allowance=30.0,
                    on_open=opened.append,
                )
            )
        except StoreError as error:
            results.append(error)
    return results[0]


async def test_an_agent_that_nobody_stops_waits_for_its_commit(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = Slow()
    result = await run(tmp_path, store)
    assert result.outcome.kind is OutcomeKind.success and store.ended == trio.current_time()
    assert [turn.step for turn in store.turns(result.run_id)] == [1]


@pytest.mark.parametrize("stop_after", [3.0, 6.5])
async def test_an_answer_stands_when_its_commit_ends_within_five_seconds_of_the_stop(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, stop_after: float
) -> None:
    store = Slow()
    result = await run(tmp_path, store, stop_after)
    assert result.outcome.kind is OutcomeKind.interrupted and store.cut is None
    assert [turn.step for turn in store.turns(result.run_id)] == [1]
    # What the answer asked for is not begun any more.
    assert not (tmp_path / "x.txt").exists()


async def test_a_stop_waits_for_a_commit_for_five_seconds_at_most(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = Slow()
    began = trio.current_time()
    result = await run(tmp_path, store, 1.0)
    assert store.cut == began + 6.0 and trio.current_time() == began + 6.0
    assert isinstance(result, StoreError) and "did not commit within 5 s" in str(result)
    # Nothing was written after that either: no end, and so no terminal.
    assert store.select("select text from step_turns") == store.select("select terminal from terminals") == []


async def test_a_store_that_fails_is_told_as_it_is(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    store = Slow(StoreError(StoreErrorKind.full, "a.db", "is full"))
    result = await run(tmp_path, store)
    assert isinstance(result, StoreError) and str(result) == "a.db: is full"
    # The run has no end: it goes on when there is room again.
    assert store.select("select status, outcome from runs") == [("running", None)]
    assert store.select("select terminal from terminals") == []
