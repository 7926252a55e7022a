"""One process drives a tree, and in it one task: whoever put the mark takes it away, and nobody else does."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.outcomes import OutcomeKind
from actors.agents.ports import CompletionRequest
from actors.agents.rows import AttemptBegun
from actors.assembly.inbox import recover
from actors.assembly.recovering import Abort
from actors.assembly.resuming import resume_tree_from_stored_policy
from actors.errors import RunConflict, StoreError
from actors.halts import HaltKind
from actors.store.store import Store
from actors.testing.goal_model import GoalModel, call
from actors.testing.resume_bench import Bench

ANSWERS: dict[str, Any] = {
    "root": [[call("list_dir", path=".")], [call("write_file", path="a.txt", content="1")], "done"]
}


async def interrupted(folder: Path) -> Bench:
    """Leave a run that was interrupted at its second request."""
    bench = Bench(folder, ANSWERS)

    async def stop(request: CompletionRequest) -> None:
        assert bench.tree is not None
        if len(request.turns) > 1:
            bench.tree.halt_nowait(HaltKind.interrupt)
            await trio.sleep_forever()

    bench.before = stop
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.interrupted
    bench.before = None
    return bench


async def test_of_many_tasks_that_go_on_with_a_run_one_drives_at_a_time(tmp_path: Path) -> None:
    bench = await interrupted(tmp_path)
    driving: set[str] = set()
    most = 0
    ended: list[str] = []

    async with Store.open(bench.file) as store:

        async def driver(name: str) -> None:
            trees: list[Any] = []

            async def before(request: CompletionRequest) -> None:
                nonlocal most
                driving.add(name)
                most = max(most, len(driving))
                await trio.sleep(0.05)
                driving.discard(name)
                if name == "A":
                    trees[0].halt_nowait(HaltKind.interrupt)
                    await trio.sleep_forever()

            while True:
                try:
                    ran = await resume_tree_from_stored_policy(
                        bench.run_id, GoalModel(ANSWERS, before), store, ApproveAll(), on_open=trees.append
                    )
                except RunConflict:
                    await trio.lowlevel.checkpoint()
                else:
                    ended.append(ran.outcome.kind)
                    return

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver, "A")
                await trio.sleep(0.02)
                nursery.start_soon(driver, "B")
                nursery.start_soon(driver, "C")
        assert not store.driven
    assert most == 1 and sorted(ended) == ["finished", "finished", "interrupted"]
    bench.check()


async def test_a_resume_leaves_no_mark_and_no_lease(tmp_path: Path) -> None:
    bench = await interrupted(tmp_path)
    async with Store.open(bench.file) as store, Store.open(bench.file) as other:
        await resume_tree_from_stored_policy(bench.run_id, GoalModel(ANSWERS), store, ApproveAll())
        assert not store.driven
        await other.take(bench.run_id)
        await other.release(bench.run_id)


async def test_a_call_of_a_run_that_this_process_drives_is_not_recovered_beside_it(tmp_path: Path) -> None:
    """Within one store the lease would be given twice, and given back under the one who drives."""
    bench = await interrupted(tmp_path)
    key = f"{bench.run_id}#2.1"
    async with Store.open(bench.file) as store:
        await store.commit(AttemptBegun(bench.run_id, 2, 1, "pay", "{}", key))
        store.driven.add(bench.run_id)
        await store.take(bench.run_id)
        with pytest.raises(RunConflict, match="this very process"):
            await recover(store, bench.run_id, Abort(key))
        assert bench.run_id in store.driven and len(store.open_attempts(bench.run_id)) == 1
        async with Store.open(bench.file) as other:
            with pytest.raises(RunConflict):
                await other.take(bench.run_id)
        await store.release(bench.run_id)
        store.driven.discard(bench.run_id)
        await recover(store, bench.run_id, Abort(key))
        assert not store.open_attempts(bench.run_id) and not store.driven


async def test_a_past_that_cannot_be_read_is_an_error_at_once_and_no_agent_is_left_of_it(tmp_path: Path) -> None:
    bench = await interrupted(tmp_path)
    bench.sql("update ledger_observations set kind = 'bogus'")
    with trio.fail_after(3):
        with pytest.raises(StoreError, match="what is stored of root cannot be read"):
            await bench.go_on()
    assert bench.tree is not None and bench.tree.leaks().empty and bench.tree.root is None
