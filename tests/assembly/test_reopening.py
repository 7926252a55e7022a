"""A run that ended short of its goal goes on as a new run, which has taken over all that it used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import CompletionRequest, Observation, ObservationKind, ResultsTurn, ToolSpec, UserTurn
from actors.agents.verification import Verification
from actors.assembly.recovering import Completed
from actors.assembly.reopening import reopen
from actors.assembly.running import RunResult
from actors.containment.limits import Containment
from actors.errors import ConfigError, RunConflict
from actors.halts import HaltKind
from actors.store.store import FileStore, Store, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench

WRITES = [[call("write_file", path=f"{n}.txt", content=f"{n}")] for n in range(5)]
LIMITS = Containment(20, 4, 4, 100_000)


def task(bench: Bench, steps: int = 9, **fields: Any) -> TaskContract:
    made = TaskContract.workspace("root", bench.work, Verification.none(), **fields)
    return made.with_max_steps(steps)


async def reopened(bench: Bench, run_id: str = "", death: Death | None = None, **changes: Any) -> RunResult | None:
    old = run_id or bench.run_id

    async def work(store: FileStore, model: GoalModel, **options: Any) -> RunResult:
        return await reopen(old, model, store, approver=ApproveAll(), **changes, **options)

    return await bench._process(work, death)


def turns(bench: Bench) -> list[Any]:
    return [(each.system, each.turns, each.tools) for each in bench.requests("root")]


async def capped(folder: Path, steps: int = 2) -> Bench:
    bench = Bench(folder, {"root": [*WRITES, "done"]})
    bench.contract = task(bench, steps)
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.step_cap_reached
    return bench


async def test_it_asks_what_a_run_with_the_larger_cap_would_have_asked_and_nothing_again(tmp_path: Path) -> None:
    whole = Bench(tmp_path / "whole", {"root": [*WRITES, "done"]})
    whole.contract = task(whole)
    assert (await whole.begin()) is not None
    bench = await capped(tmp_path / "cut")
    old = bench.run_id
    ran = await reopened(bench, contract=task(bench))
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and ran.run_id != old
    assert ran.outcome.steps == 6 and len(bench.requests("root")) == 6
    told = [(system, str(turns).replace(str(bench.work), ""), tools) for system, turns, tools in turns(bench)]
    assert told == [(system, str(turns).replace(str(whole.work), ""), tools) for system, turns, tools in turns(whole)]
    with open_reader(bench.file) as reader:
        before, after = reader.run(old), reader.run(ran.run_id)
        assert before is not None and after is not None
        assert (before.outcome, before.steps) == ("step_cap_reached", 2) and after.reopened_from == old
        totals = reader.ledger(ran.run_id)
        assert totals is not None
        assert (totals.spent_tokens, totals.calls, totals.tool_calls, totals.agents) == (bench.billed, 6, 5, 1)
    bench.check()
    bench.run_id = old
    bench.check()


async def test_the_cap_that_ended_it_must_be_larger(tmp_path: Path) -> None:
    bench = await capped(tmp_path)
    for contract in (None, task(bench, 2)):
        with pytest.raises(ConfigError, match=r"contract\.max_steps: ended the run at 2"):
            await reopened(bench, contract=contract)
    with pytest.raises(ConfigError, match="max_total_tokens: 30 of 20 are used"):
        await reopened(bench, contract=task(bench), containment=attrs.evolve(LIMITS, max_total_tokens=20))
    with pytest.raises(ConfigError, match=r"contract\.goal: cannot change"):
        await reopened(bench, contract=attrs.evolve(task(bench), goal="something else"))
    assert bench.sql("SELECT count(*) FROM runs") == [1]


async def test_what_was_used_counts_against_every_ceiling(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [*WRITES, "done"]}, limits=attrs.evolve(LIMITS, max_total_tokens=35))
    bench.contract = task(bench)
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.budget_ceiling_reached
    with pytest.raises(ConfigError, match=r"containment\.max_total_tokens: ended the run at 35"):
        await reopened(bench)
    ran = await reopened(bench, containment=attrs.evolve(LIMITS, max_total_tokens=65))
    # Four answers of 15 in all: two before, and two more.
    assert ran is not None and ran.outcome.kind is OutcomeKind.budget_ceiling_reached and ran.outcome.steps == 4
    assert ran.outcome.halt is not None and ran.outcome.halt.limit == 65
    bench.check()
    ran = await reopened(bench, containment=LIMITS)
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and bench.billed == 90
    assert bench.sql("SELECT spent_tokens FROM ledger WHERE tree_id = ?", bench.run_id) == [90]
    bench.check()


async def test_time_that_was_used_counts(tmp_path: Path) -> None:
    bench = await capped(tmp_path)
    bench.sql("UPDATE runs SET duration_ms = 5000")
    bench.sql("UPDATE run_outcomes SET duration_ms = 5000")
    with pytest.raises(ConfigError, match=r"max_total_duration: 5\.0 of 4\.0 are used"):
        await reopened(bench, contract=task(bench), containment=attrs.evolve(LIMITS, max_total_duration=4.0))
    hang = Bench(bench.folder, {"root": [*WRITES, "done"]}, run_id=bench.run_id)

    async def wait(request: CompletionRequest) -> None:
        await trio.sleep_forever()

    hang.before = wait
    began = trio.current_time()
    limits = attrs.evolve(LIMITS, max_total_duration=5.5)
    ran = await reopened(hang, contract=task(bench), containment=limits)
    assert ran is not None and ran.outcome.kind is OutcomeKind.budget_ceiling_reached
    assert trio.current_time() - began < 3


async def test_an_own_cap_counts_what_the_root_used(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [*WRITES, "done"]})
    bench.contract = attrs.evolve(task(bench), max_tokens=35)
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.cost_budget_exceeded
    ran = await reopened(bench, contract=attrs.evolve(task(bench), max_tokens=65))
    assert ran is not None and ran.outcome.kind is OutcomeKind.cost_budget_exceeded and bench.billed == 60
    bench.check()


async def test_only_a_run_that_ended_short_of_its_goal_is_reopened_and_only_once(tmp_path: Path) -> None:
    bench = await capped(tmp_path)
    old = bench.run_id
    cut = await reopened(bench, death=Death(at=4), contract=task(bench))
    assert cut is None
    [new] = bench.sql("SELECT run_id FROM runs WHERE reopened_from = ?", old)
    with pytest.raises(ConfigError, match=f"was reopened as {new}, which has its counters: resume that one"):
        await reopened(bench, old, contract=task(bench))
    with pytest.raises(ConfigError, match="has no end yet: resume it"):
        await reopened(bench, new)
    bench.run_id = new
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    with pytest.raises(ConfigError, match="has reached its goal"):
        await reopened(bench, new)
    with pytest.raises(ConfigError, match="reopen that one"):
        await reopened(bench, old, contract=task(bench))


async def test_of_two_that_reopen_a_run_at_once_one_does(tmp_path: Path) -> None:
    bench = await capped(tmp_path)
    old, ends = bench.run_id, list[Any]()

    async def one(store: Store) -> None:
        try:
            ends.append(await reopen(old, GoalModel(bench.answers), store, approver=ApproveAll(), contract=task(bench)))
        except (ConfigError, RunConflict) as error:
            ends.append(error)

    async with Store.open(bench.file) as first, Store.open(bench.file) as second:
        async with trio.open_nursery() as nursery:
            for store in (first, second, first):
                nursery.start_soon(one, store)
    assert sorted(isinstance(each, RunResult) for each in ends) == [False, False, True]
    assert bench.sql("SELECT count(*) FROM runs WHERE reopened_from = ?", old) == [1]


async def test_a_reopened_run_that_is_killed_anywhere_goes_on_by_a_resume(tmp_path: Path) -> None:
    for at in range(1, 40):
        bench = await capped(tmp_path / str(at))
        old = bench.run_id
        ran = await reopened(bench, death=Death(at=at), contract=task(bench))
        if ran is not None:
            break
        begun = bench.sql("SELECT run_id FROM runs WHERE reopened_from = ?", old)
        if begun:
            bench.run_id = begun[0]
            ran = await bench.go_on()
        else:
            ran = await reopened(bench, old, contract=task(bench))
        assert ran is not None and ran.outcome.kind is OutcomeKind.finished and ran.outcome.steps == 6, at
        assert sorted(each.name for each in bench.work.iterdir()) == [f"{n}.txt" for n in range(5)], at
        bench.check()
    assert at > 8


# ── trees ───────────────────────────────────────────────────────────────────


def cancelling(bench: Bench, when: Callable[[CompletionRequest], bool]) -> None:
    """Cancel the tree when a request comes that ``when`` picks, and answer no more."""

    async def before(request: CompletionRequest) -> None:
        assert bench.tree is not None
        if when(request):
            bench.tree.halt_nowait(HaltKind.cancel)
        if bench.tree.ledger.halted is not None:
            await trio.sleep_forever()

    bench.before = before


def asks(goal: str, turns: int = 1) -> Callable[[CompletionRequest], bool]:
    def picks(request: CompletionRequest) -> bool:
        first = request.turns[0]
        assert isinstance(first, UserTurn)
        return first.text.startswith(goal) and len(request.turns) >= turns

    return picks


async def test_an_answer_that_was_paid_for_is_not_asked_again_and_its_children_are_reported(tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {"root": [[WRITES[0][0], spawn("quick"), spawn("slow")], "done"], "quick": ["quick done"], "slow": ["never"]}
    bench = Bench(tmp_path, answers)
    cancelling(bench, asks("slow"))
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.cancelled and ran.outcome.steps == 1
    bench.check()
    old, bench.before = bench.run_id, None
    ran = await reopened(bench)
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and ran.outcome.steps == 2
    # The root's first answer, and the second; no child again.
    assert [len(each.requests) for each in bench.models] == [3, 1]
    told = bench.told()
    # The cancel may come before the quick one has its answer: then that is what is reported of it.
    assert "quick done" in told[1] or "cancelled" in told[1]
    assert "cancelled" in told[2] and (bench.work / "0.txt").read_text() == "0"
    assert set(bench.agents()) == {"root"}
    totals = bench.sql("SELECT agents FROM ledger ORDER BY at")
    assert totals == [3, 3]
    bench.check()
    bench.run_id = old
    bench.check()


async def test_a_report_that_nobody_had_read_is_read_and_one_that_was_read_is_not_told_twice(tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {
        "root": [[spawn("one", wait=False)], [spawn("two")], WRITES[0], WRITES[1], [spawn("three", wait=False)], "done"],
        "one": ["one is done"],
        "two": ["two is done"],
        "three": ["three is done"],
    }
    bench = Bench(tmp_path, answers)
    bench.contract = task(bench, 5)
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.step_cap_reached
    ran = await reopened(bench, contract=task(bench))
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished, ran
    last = bench.requests("root")[-1].turns
    texts = "\n".join(str(turn) for turn in last)
    assert [texts.count(f"{name} is done") for name in ("one", "two", "three")] == [1, 1, 1]
    bench.check()


async def test_circles_of_the_old_run_do_not_end_the_new_one_at_once(tmp_path: Path) -> None:
    same = [call("read_file", path="none.txt")]
    bench = Bench(tmp_path, {"root": [*[same] * 12, WRITES[0], "done"]})
    bench.contract = task(bench, 30)
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.stalled
    done = ran.outcome.steps
    bench.answers = {"root": [*[same] * (done + 2), WRITES[0], "done"]}
    ran = await reopened(bench)
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and ran.outcome.steps == done + 4
    bench.check()


@attrs.frozen
class Charge:
    """A tool whose effect cannot be looked up, and which is cut in the middle."""

    done: list[str]
    read_only: bool = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("charge", "charge", {"type": "object", "properties": {}})

    async def run(self, arguments: Any, context: Any) -> Observation:
        self.done.append(context.key)
        await trio.sleep_forever()
        raise AssertionError


async def test_a_call_whose_fate_is_unknown_waits_for_the_operator_in_the_new_run_too(tmp_path: Path) -> None:
    done: list[str] = []
    bench = Bench(tmp_path, {"root": [[call("charge")], "done"]}, tools=(Charge(done),))

    async def cancel() -> None:
        with trio.fail_after(10):
            while not done:
                await trio.sleep(0.01)
        assert bench.tree is not None
        bench.tree.halt_nowait(HaltKind.cancel)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.cancelled
    old = bench.run_id
    ran = await reopened(bench)
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_recovery and len(done) == 1
    [bench.run_id] = bench.sql("SELECT run_id FROM runs WHERE reopened_from = ?", old)
    [attempt] = bench.open_attempts()
    ran = await bench.recover(Completed(attempt.key, "charged once"))
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and len(done) == 1
    assert bench.told() == ["charged once"]
    assert isinstance(bench.requests("root")[-1].turns[-1], ResultsTurn)


async def test_a_policy_that_is_given_counts_and_the_old_one_stands_else(tmp_path: Path) -> None:
    bench = await capped(tmp_path)
    bench.policy = Policy.permissive()
    denying = Policy.permissive().layer("late").deny_write("*")
    ran = await reopened(bench, contract=task(bench), policy=denying)
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert sorted(each.name for each in bench.work.iterdir()) == ["0.txt", "1.txt"]
    assert ObservationKind.error in bench.sql("SELECT kind FROM ledger_observations WHERE run_id = ?", bench.run_id)
