"""What a tree has counted is counted on by whoever goes on with it: nothing begins at nothing, nothing twice."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.contract import OnUnknownPrice, TaskContract
from actors.agents.rows import AnswerGiven, StepDone
from actors.agents.verification import Verification
from actors.assembly.reopening import reopen
from actors.containment.limits import Containment
from actors.halts import HaltKind
from actors.store.store import Store
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench

LOOK = call("list_dir", path=".")
ANSWERS: dict[str, Any] = {
    "root": [[spawn("one"), spawn("two"), spawn("three")], [LOOK, LOOK, LOOK], [LOOK], "done"],
    "one": ["one done"],
}


def bench_in(folder: Path, answers: Any = None) -> Bench:
    """One that refuses two spawns of three, and two of its calls of tools, and knows no price."""
    bench = Bench(
        folder,
        ANSWERS if answers is None else answers,
        limits=Containment(2, 2, 1, 100_000, max_total_cost=1_000_000, max_total_tool_calls=5),
    )
    task = TaskContract.workspace("root", bench.work, Verification.none()).with_max_steps(9)
    bench.contract = task.with_on_unknown_price(OnUnknownPrice.tokens_only)
    return bench


def figures(bench: Bench) -> tuple[dict[str, int], int, int, int]:
    [refusals] = bench.sql("select refusals from ledger where tree_id = ?", bench.run_id)
    return (
        json.loads(refusals),
        *(
            bench.sql(f"select {name} from ledger where tree_id = ?", bench.run_id)[0]
            for name in ("unpriced_calls", "calls", "peak_working")
        ),
    )


async def test_refusals_and_calls_without_a_price_count_on_wherever_the_process_ended(tmp_path: Path) -> None:
    whole = bench_in(tmp_path / "whole")
    await whole.begin()
    refusals, unpriced, calls, peak = figures(whole)
    assert (refusals, unpriced, peak) == ({"agents": 2, "tool_calls": 2}, calls, 2)
    for at in range(1, 60):
        for after in (False, True):
            bench, death = bench_in(tmp_path / f"{at}{after}"), Death(at, after=after)
            await bench.begin(death=death)
            if not death.dead or not bench.stands:
                continue
            await bench.go_on()
            got, unpriced, calls, _ = figures(bench)
            assert (got, unpriced) == (refusals, calls), (at, after)
        if not death.dead:
            break
    assert at > 10


async def test_a_file_that_did_not_mark_calls_without_a_price_keeps_their_number_as_it_was_told(tmp_path: Path) -> None:
    async def stop(request: Any) -> None:
        if len(request.turns) == 5 and not bench.models[1:]:
            assert bench.tree is not None
            bench.tree.halt_nowait(HaltKind.interrupt)

    bench = bench_in(tmp_path)
    bench.before = stop
    await bench.begin()
    _, before, _, _ = figures(bench)
    assert before > 1
    bench.sql("update reservations set priced = null")
    await bench.go_on()
    _, unpriced, calls, _ = figures(bench)
    assert (unpriced, calls) == (before + len(bench.models[1].requests), unpriced)


PARALLEL: dict[str, Any] = {
    "root": [[spawn("a"), spawn("b")], [LOOK], "done"],
    "a": [[LOOK], "a done"],
    "b": [[LOOK], "b done"],
}


@pytest.mark.parametrize("kind", [HaltKind.interrupt, HaltKind.cancel])
async def test_the_most_that_worked_at_once_is_kept(tmp_path: Path, kind: HaltKind) -> None:
    async def hold(request: Any) -> None:
        await trio.sleep(0.01)
        if len(request.turns) == 3 and request.turns[0].text.startswith("root") and not bench.models[1:]:
            assert bench.tree is not None
            bench.tree.halt_nowait(kind)

    bench = Bench(tmp_path, PARALLEL, before=hold, limits=Containment(5, 3, 1, 100_000))
    death = Death(when=holds(StepDone, lambda row: row.step == 2))
    await bench.begin(death=death if kind is HaltKind.interrupt else None)
    if kind is HaltKind.cancel:
        # As if the process had ended after the halt stood and the totals, before the ends of the agents.
        bench.sql("delete from terminals")
        bench.sql("delete from run_outcomes")
        bench.sql("update runs set status = 'running', outcome = null, finished_at = null")
    bench.sql("insert or replace into ledger(tree_id, peak_working, refusals) values (?, 7, '{}')", bench.run_id)
    await bench.go_on()
    assert figures(bench)[3] == 7


async def test_a_run_that_is_reopened_goes_on_counting_calls_without_a_price(tmp_path: Path) -> None:
    async def stop(request: Any) -> None:
        if len(request.turns) == 5:
            assert bench.tree is not None
            bench.tree.halt_nowait(HaltKind.cancel)
            await trio.sleep_forever()

    bench = bench_in(tmp_path)
    bench.before = stop
    await bench.begin()
    _, before, calls, _ = figures(bench)
    assert before == calls > 1
    model = GoalModel(ANSWERS)
    async with Store.open(bench.file) as store:
        again = await reopen(bench.run_id, model, store, approver=bench.approver)
    bench.run_id = again.run_id
    _, unpriced, calls, _ = figures(bench)
    assert unpriced == calls == before + len(model.requests)


async def test_a_file_without_the_mark_of_a_price_is_gone_on_with(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: row.step == 2)))
    bench.sql("alter table reservations drop column priced")
    await bench.go_on()
    assert figures(bench)[0] == {"agents": 2, "tool_calls": 2}
