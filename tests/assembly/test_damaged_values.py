"""One damaged value of a run is told by its place, before anything is written; other runs are listed as if it were not."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import DeferAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.rows import AnswerGiven
from actors.agents.verification import Verification
from actors.assembly.reopening import reopen
from actors.cli.auditing import check
from actors.cli.going_on import Given, resume_run
from actors.cli.inbox import inbox
from actors.cli.running import Shown
from actors.cli.viewing import list_runs, show
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.store.store import Store
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench

LOOK = call("list_dir", path=".")
ANSWERS: dict[str, Any] = {"root": [[LOOK], [LOOK], "done"]}


async def killed(folder: Path) -> Bench:
    bench = Bench(folder, ANSWERS)
    await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: row.step == 2)))
    return bench


# No decoder of JSON goes so deep.
DEEP = "[" * 100_000
DAMAGES = {
    "contract": "update runs set contract = '{'",
    "contract ": f"update runs set contract = '{DEEP}'",
    "containment": "update runs set containment = null",
    "containment ": "update runs set containment = '{'",
    "containment  ": f"update runs set containment = '{DEEP}'",
    "run_policies": "update run_policies set policy = '{'",
    "run_policies ": f"update run_policies set policy = '{DEEP}'",
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


@pytest.mark.parametrize("text", ["{", DEEP, "[" * 900 + "]" * 900], ids=["cut", "deep", "deep and closed"])
async def test_after_an_answer_that_cannot_be_read_nothing_is_asked(tmp_path: Path, text: str) -> None:
    bench = await killed(tmp_path)
    bench.sql("update step_turns set calls = ?", text)
    with pytest.raises(StoreError) as refused:
        await bench.go_on()
    assert refused.value.kind is StoreErrorKind.corrupt and bench.models[1].requests == []
    assert check(bench.run_id, str(bench.file), False) == 1


@pytest.mark.parametrize(
    "text", ["{", DEEP, "[]", "{}", '{"name": "author", "allow_write": true}'], ids=["cut", "deep", "list", "empty", "wide"]
)
async def test_a_child_whose_definition_cannot_be_read_is_not_lost_and_nothing_is_asked(tmp_path: Path, text: str) -> None:
    answers = {"root": [[spawn("write", agent="author")], "done"], "write": [[LOOK], "done"]}
    contract = TaskContract.workspace("root", tmp_path, Verification.none()).with_max_steps(9)
    bench = Bench(tmp_path, answers, contract=contract.with_agents(Agents((AgentDef("author"),))))
    await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: "/" in row.run_id)))
    assert bench.sql("select definition from spawns") == ['{"name": "author"}']
    bench.sql("update spawns set definition = ?", text)
    with pytest.raises((StoreError, ConfigError), match=r"root/1\.1"):
        await bench.go_on()
    assert bench.models[1].requests == []


async def test_an_outcome_that_cannot_be_read_is_a_finding_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, ANSWERS)
    await bench.begin()
    bench.sql("update runs set detail = ?", DEEP)
    assert check(bench.run_id, str(bench.file), False) == 1
    assert "its outcome cannot be read" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=f"the end of {bench.run_id}"):
        resume_run(bench.run_id, str(bench.file), Given(), Shown())


@pytest.mark.parametrize("text", ["{", DEEP, "7"], ids=["cut", "deep", "number"])
@pytest.mark.parametrize("admitted", ["admitted", "null"])
async def test_a_run_whose_answers_cannot_be_read_is_not_reopened_and_nothing_is_written(
    tmp_path: Path, admitted: str, text: str
) -> None:
    bench = Bench(tmp_path, ANSWERS)
    bench.contract = TaskContract.workspace("root", bench.work, Verification.none()).with_max_steps(2)
    await bench.begin()
    bench.sql(f"update step_turns set admitted = {admitted}, calls = ?", text)
    model = GoalModel(ANSWERS)
    more = bench.contract.with_max_steps(9)
    async with Store.open(bench.file) as store:
        with pytest.raises(StoreError, match=f"the answers of {bench.run_id} cannot be read"):
            await reopen(bench.run_id, model, store, approver=bench.approver, contract=more)
    assert bench.sql("select run_id from runs") == [bench.run_id] and model.requests == []


@pytest.mark.parametrize("text", ["{", DEEP], ids=["cut", "deep"])
@pytest.mark.parametrize("column", ["contract", "task"])
async def test_whoever_looks_at_a_run_or_goes_on_with_it_reads_one_line(
    tmp_path: Path, column: str, text: str
) -> None:
    bench = await killed(tmp_path)
    bench.sql(f"update runs set {column} = ?", text)
    assert list_runs(str(bench.file), False) == 0
    assert check(bench.run_id, str(bench.file), False) == 0
    with pytest.raises((StoreError, ConfigError), match=bench.run_id):
        resume_run(bench.run_id, str(bench.file), Given(), Shown())


@pytest.mark.parametrize("path", ["'{'", "x'ff00'"])
async def test_a_damaged_copy_of_a_childs_path_does_not_end_the_run_as_failed(tmp_path: Path, path: str) -> None:
    answers = {"root": [[spawn("write")], [LOOK], "done"], "write": [[LOOK], "done"]}
    bench = Bench(tmp_path, answers)
    await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: row.run_id == bench.run_id and row.step == 2)))
    bench.sql(f"update runs set path = {path} where parent_run_id is not null")
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind == "finished", ran


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


@pytest.mark.parametrize("column", ["request_id", "act", "target", "content", "tool", "arguments", "asked_at", "layer"])
@pytest.mark.parametrize("as_json", [False, True])
async def test_a_question_that_cannot_be_read_is_one_line_that_names_its_run(
    tmp_path: Path, column: str, as_json: bool
) -> None:
    answers = {"root": [[call("write_file", path="a.txt", content="x")], "done"]}
    bench = Bench(tmp_path, answers, Policy.permissive().layer("mine").ask_write("*"), DeferAll())
    await bench.begin()
    assert inbox(str(bench.file), as_json) == 0
    bench.sql(f"update pending_approvals set {column} = x'ff00'")
    with pytest.raises(ConfigError, match=f"what waits in {bench.run_id} cannot be read") as refused:
        inbox(str(bench.file), as_json)
    assert "\n" not in str(refused.value)


async def test_what_cannot_be_shown_of_a_run_is_one_line_that_names_it(tmp_path: Path) -> None:
    bench = await killed(tmp_path)
    bench.sql("update runs set goal = x'ff00'")
    with pytest.raises(ConfigError, match=f"run {bench.run_id} cannot be read"):
        show(bench.run_id, str(bench.file), True)
