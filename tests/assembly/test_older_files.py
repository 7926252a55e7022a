"""A file that only an older version wrote is gone on with: it lacks columns, and told of some things in other words."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.outcomes import OutcomeKind
from actors.agents.rows import AnswerGiven
from actors.assembly.reopening import reopen
from actors.assembly.stored_task import answered_goals
from actors.halts import HaltKind
from actors.store.store import Store, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench

LOOK = call("list_dir", path=".")
ANSWERS: dict[str, Any] = {
    "root": [[spawn("beside", wait=False)], [LOOK], [LOOK], "done"],
    "beside": [[LOOK], "found it"],
}


def as_an_older_version_wrote_it(bench: Bench) -> None:
    """Store the notice of a child that works on beside as a child's, which only a report is now."""
    bench.sql("update ledger_observations set kind = 'child' where text like 'Sub-agent % works in the background;%'")
    assert bench.sql("select count(*) from ledger_observations where kind = 'child' and text like '%background%'") == [1]
    bench.sql("update steps set digest = null")


async def test_a_child_that_an_older_version_only_told_of_is_taken_in_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ANSWERS)
    await bench.begin(death=Death(when=lambda rows: any(_answers(row, 2) for row in rows)))
    as_an_older_version_wrote_it(bench)
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert {path: each.status for path, each in bench.agents().items()} == {"root": "completed", "root/1.1": "completed"}
    assert repr(bench.requests("root")[-1]).count("found it") == 1


def _answers(row: Any, step: int) -> bool:
    return isinstance(row, AnswerGiven) and row.step == step and "/" not in row.run_id


async def test_a_report_of_an_ended_child_that_an_older_version_had_not_told_is_told_once(tmp_path: Path) -> None:
    async def hold(request: Any) -> None:
        if request.turns[0].text.startswith("root") and len(request.turns) > 1 and bench.models[1:] == []:
            assert bench.store is not None and bench.tree is not None and bench.tree.root is not None
            while bench.tree.root.children:
                await trio.sleep(0.01)
            await bench.store.commit()
            bench.kill()
            await trio.sleep_forever()

    bench = Bench(tmp_path, ANSWERS, before=hold)
    await bench.begin(death=Death())
    assert bench.agents()["root/1.1"].status == "completed"
    as_an_older_version_wrote_it(bench)
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert repr(bench.requests("root")[-1]).count("found it") == 1


@pytest.mark.parametrize("wait", [True, False])
async def test_a_report_that_an_older_version_had_told_is_not_told_again(tmp_path: Path, wait: bool) -> None:
    more = {} if wait else {"wait": False}
    answers = {"root": [[spawn("beside", **more)], [LOOK], [LOOK], [LOOK], "done"], "beside": ["found it"]}

    async def later(request: Any) -> None:
        if request.turns[0].text.startswith("root") and len(request.turns) > 1:
            await trio.sleep(0.05)

    bench = Bench(tmp_path, answers, before=later)
    await bench.begin(death=Death(when=lambda rows: any(_answers(row, 4) for row in rows)))
    assert bench.agents()["root/1.1"].status == "completed"
    if not wait:
        as_an_older_version_wrote_it(bench)
    bench.sql("update steps set digest = null")
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert repr(bench.requests("root")[-1]).count("found it") == 1


async def test_the_answers_so_far_are_counted_in_a_file_without_the_newer_columns(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[LOOK], [LOOK], "done"]})
    await bench.begin(death=Death(when=lambda rows: any(_answers(row, 2) for row in rows), after=True))
    connection = sqlite3.connect(bench.file)
    with connection:
        for column in ("opening", "reopened_from", "task"):
            connection.execute(f"alter table runs drop column {column}")
    connection.close()
    with open_reader(bench.file) as reader:
        assert [goal[:4] for goal in answered_goals(reader, bench.run_id)] == ["root", "root"]


async def test_a_run_of_an_older_version_that_has_ended_is_reopened_with_the_report_that_nobody_read(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, {"root": [[spawn("beside", wait=False)], [LOOK], "done"], "beside": ["found it"]})

    async def cap(request: Any) -> None:
        if request.turns[0].text.startswith("root") and len(request.turns) > 1:
            assert bench.tree is not None and bench.tree.root is not None
            while bench.tree.root.children:
                await trio.sleep(0.01)
            bench.tree.halt_nowait(HaltKind.cancel)
            await trio.sleep_forever()

    bench.before = cap
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.cancelled
    bench.sql("delete from ledger_observations where text like '%found it%'")
    as_an_older_version_wrote_it(bench)
    model = GoalModel(bench.answers)
    async with Store.open(bench.file) as store:
        again = await reopen(bench.run_id, model, store, approver=bench.approver)
    assert again.outcome.kind is OutcomeKind.finished
    assert repr(model.requests[-1]).count("found it") == 1
