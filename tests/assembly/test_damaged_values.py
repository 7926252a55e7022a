"""One damaged value of a run is told by its place, before anything is written; other runs are listed as if it were not."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.agents.rows import AnswerGiven
from actors.assembly.reopening import reopen
from actors.cli.viewing import list_runs, show
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.store.store import Store
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import GoalModel, call
from actors.testing.resume_bench import Bench

LOOK = call("list_dir", path=".")
ANSWERS: dict[str, Any] = {"root": [[LOOK], [LOOK], "done"]}


async def killed(folder: Path) -> Bench:
    bench = Bench(folder, ANSWERS)
    await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: row.step == 2)))
    return bench


DAMAGES = {
    "contract": "update runs set contract = '{'",
    "containment": "update runs set containment = null",
    "halt": "insert or replace into halts(tree_id, kind, \"by\", path, reason) select run_id, 'bogus', 'x', 'root', 'r' from runs",
    "reservations": "update reservations set tokens = 'many', used_tokens = 'x'",
    "reservations ": "update reservations set tokens = -5",
    "start": "update runs set started_at = 'never'",
    "end": "update runs set status = 'completed'",
}


@pytest.mark.parametrize("place", DAMAGES)
async def test_a_run_with_a_damaged_value_is_not_gone_on_with_and_says_where_it_is(tmp_path: Path, place: str) -> None:
    bench = await killed(tmp_path)
    bench.sql(DAMAGES[place])
    count = "select count(*) from reservations where state = 'open'"
    before = bench.sql(count)
    with pytest.raises((StoreError, ConfigError)) as refused:
        await bench.go_on()
    assert place.strip() in str(refused.value) and bench.run_id in str(refused.value)
    if isinstance(refused.value, StoreError):
        assert refused.value.kind is StoreErrorKind.corrupt
    assert bench.sql(count) == before and bench.models[1].requests == []


async def test_a_lease_that_names_no_process_only_runs_out(tmp_path: Path) -> None:
    bench = await killed(tmp_path)
    bench.sql("update run_leases set owner = 'x', host = 'there', pid = 'x', renewed_at = '2000-01-01T00:00:00.000Z'")
    ran = await bench.go_on()
    assert ran is not None and ran.terminal is not None


async def test_an_end_without_its_detail_is_not_reopened(tmp_path: Path) -> None:
    bench = await killed(tmp_path)
    bench.sql("update runs set status = 'completed'")
    async with Store.open(bench.file) as store:
        with pytest.raises(StoreError, match="the end of"):
            await reopen(bench.run_id, GoalModel(ANSWERS), store, approver=bench.approver)


@pytest.mark.parametrize(
    "damage",
    [
        "update runs set started_at = 'never' where run_id = ?",
        "update runs set goal = x'ff00' where run_id = ?",
        "update runs set status = x'ff00' where run_id = ?",
        "update run_leases set pid = 'x', ttl_seconds = 'y', generation = 'z' where tree_id = ?",
    ],
)
async def test_the_other_runs_of_a_file_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    bench = await killed(tmp_path)
    damaged = bench.run_id
    await bench.begin()
    bench.sql(damage, damaged)
    assert list_runs(str(bench.file), False) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"run", damaged, bench.run_id}
    assert list_runs(str(bench.file), True) == 0
    assert {each["run_id"] for each in json.loads(capsys.readouterr().out)} == {damaged, bench.run_id}


async def test_what_cannot_be_shown_of_a_run_is_one_line_that_names_it(tmp_path: Path) -> None:
    bench = await killed(tmp_path)
    bench.sql("update runs set goal = x'ff00'")
    with pytest.raises(ConfigError, match=f"run {bench.run_id} cannot be read"):
        show(bench.run_id, str(bench.file), True)
