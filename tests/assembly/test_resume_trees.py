"""A tree whose process ended anywhere goes on whole: nobody is lost, made twice, counted twice or asked twice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.ports import (
    Completion,
    CompletionRequest,
)
from actors.agents.rows import AnswerGiven, Reserved, RunFinished, TreeHalted
from actors.agents.verification import Verification
from actors.assembly.resuming import resume
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind, RunConflict
from actors.halts import HaltKind
from actors.store.store import Store
from actors.testing.dying_store import Death, holds, holds_step
from actors.testing.goal_model import GoalModel, call, spawn, without_figures
from actors.testing.resume_bench import Bench, finished

LOOK = call("list_dir", path=".")






def plain(requests: Sequence[CompletionRequest]) -> list[str]:
    return [repr(request) for request in requests]


# ── nobody is lost and nobody is made twice ─────────────────────────────────


async def test_a_child_that_works_beside_is_taken_in_again_before_its_parent_asks_anything(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[spawn("beside", wait=False)], [LOOK], "done"], "beside": [[LOOK], "found it"]}
    order: list[str] = []

    async def note(request: Any) -> None:
        alive = [] if bench.tree is None or bench.tree.root is None else list(bench.tree.root.children or ())
        order.append(f"{request.turns[0].text.split()[0]} {len(alive)}")

    bench = Bench(tmp_path, answers, before=note)
    # The root's second answer does not stand; its child was made in the first step, which does.
    assert await bench.begin(death=Death(when=holds(AnswerGiven, lambda row: row.step == 2 and "/" not in row.run_id))) is None
    order.clear()
    ran = await bench.go_on()
    assert finished(ran)
    assert next(each for each in order if each.startswith("root")) == "root 1"
    assert set(bench.agents()) == {"root", "root/1.1"}
    assert bench.agents()["root/1.1"].said == "found it"
    bench.check()


async def test_the_report_of_a_child_that_ended_unread_is_read_once(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[spawn("beside", wait=False)], [LOOK], [LOOK], "done"], "beside": ["found it"]}
    gate = trio.Event()

    async def hold(request: Any) -> None:
        if request.turns[0].text.startswith("root") and len(request.turns) > 1 and not gate.is_set():
            # The child ends while the root's second question is out, and then the process does.
            assert bench.tree is not None and bench.tree.root is not None
            while bench.tree.root.children:
                await trio.sleep(0.01)
            assert bench.store is not None
            await bench.store.commit()
            bench.kill()
            gate.set()
            await trio.sleep_forever()

    bench = Bench(tmp_path, answers, before=hold)
    assert await bench.begin(death=Death()) is None
    assert {path: each.status for path, each in bench.agents().items()}["root/1.1"] == "completed"
    asked = len(bench.requests("beside"))
    ran = await bench.go_on()
    assert finished(ran) and len(bench.requests("beside")) == asked
    last = bench.requests("root")[-1]
    assert repr(last).count("found it") == 1
    rows = bench.sql("select text from ledger_observations where kind = 'child'")
    assert len(rows) == 1 and "found it" in rows[0]
    bench.check()


async def test_two_equal_goals_of_one_step_are_two_children_over_any_restart(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[spawn("twin"), spawn("twin")], "done"], "twin": [[LOOK], "twin done"]}
    for at in range(1, 30):
        for after in (False, True):
            bench = Bench(tmp_path / f"{at}{after}", answers, limits=Containment(3, 3, 1, 100_000))
            bench.work.mkdir(exist_ok=True)
            death = Death(at, after=after)
            await bench.begin(death=death)
            if not death.dead:
                break
            if not bench.stands:
                continue
            assert finished(await bench.go_on()), (at, after)
            assert set(bench.agents()) == {"root", "root/1.1", "root/1.2"}
            assert bench.sql("select agents from ledger") == [3], (at, after)
            assert bench.told() == [text for text in bench.told() if "twin done" in text] and len(bench.told()) == 2
            bench.check()
        if not death.dead:
            break
    assert at > 5


@pytest.mark.parametrize("wait", [True, False])
async def test_a_queued_child_is_queued_again_and_counted_once_although_the_cap_is_reached(
    tmp_path: Path, wait: bool
) -> None:
    more = {} if wait else {"wait": False}
    answers: dict[str, Any] = {
        "root": [[spawn("a", **more), spawn("b", **more), spawn("c", **more)], [LOOK], "done"],
        "a": [[LOOK], "a done"], "b": [[LOOK], "b done"], "c": [[LOOK], "c done"],
    }  # fmt: skip
    for keep, after in ((False, True), (True, False)):
        for at in range(1, 60):
            bench = Bench(tmp_path / f"{wait}{keep}{after}{at}", answers, limits=Containment(4, 1, 1, 100_000))
            bench.work.mkdir(exist_ok=True)
            death = Death(at, after=after, keep_appended=keep)
            await bench.begin(death=death)
            if not death.dead:
                break
            if not bench.stands:
                continue
            where = (keep, after, at)
            bench.check()
            ran = await bench.go_on()
            assert finished(ran), (where, ran)
            assert set(bench.agents()) == {"root", "root/1.1", "root/1.2", "root/1.3"}, where
            assert {each.outcome for each in bench.agents().values()} == {"finished"}, where
            assert bench.sql("select agents from ledger") == [4], where
            assert bench.sql("select count(*) from agent_queue") == [0], where
            assert bench.sql("select refusals from ledger") == ["{}"], where
            bench.check()
        assert at > 10


async def test_a_child_that_was_only_queued_when_its_parents_step_stood_is_not_forgotten(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[spawn("beside", wait=False)], [LOOK], "done"], "beside": ["found it"]}
    bench = Bench(tmp_path, answers, limits=Containment(2, 1, 1, 100_000))
    await bench.begin(death=Death(when=holds_step("", 1), after=True))
    assert bench.sql("select count(*) from agent_queue") == [1] and set(bench.agents()) == {"root"}
    assert finished(await bench.go_on())
    assert bench.agents()["root/1.1"].said == "found it"
    assert bench.sql("select agents from ledger") == [2]
    bench.check()


async def test_a_child_whose_start_stands_and_whose_spawn_does_not_is_the_same_child_and_counted_once(
    tmp_path: Path,
) -> None:
    """The two rows are written by two tasks; nothing says that they land together."""
    answers: dict[str, Any] = {"root": [[spawn("a")], "done"], "a": [[LOOK], "a done"]}
    bench = Bench(tmp_path, answers, limits=Containment(2, 2, 1, 100_000))
    await bench.begin(death=Death(when=holds(Reserved, lambda row: "/" in row.run_id), after=True))
    assert set(bench.agents()) == {"root", "root/1.1"}
    bench.sql("delete from spawns")
    assert finished(await bench.go_on())
    assert bench.agents()["root/1.1"].said == "a done" and bench.sql("select agents from ledger") == [2]
    bench.check()


# ── the drain ───────────────────────────────────────────────────────────────


NESTED: dict[str, Any] = {
    "root": [[spawn("one", wait=False)], "root done"],
    "one": [[spawn("two", wait=False)], "one done"],
    "two": [[LOOK], [LOOK], "two done"],
}


@pytest.mark.parametrize("how", ["killed", "interrupted"])
async def test_parents_that_only_wait_for_their_children_go_on_waiting_and_ask_nothing(
    tmp_path: Path, how: str
) -> None:
    async def hold(request: Any) -> None:
        tree = bench.tree
        if request.turns[0].text.startswith("two") and len(request.turns) == 3 and len(bench.models) == 1:
            assert tree is not None and tree.root is not None
            while not all(each.over for each in tree.root.subtree() if not each.path.endswith("1.1/1.1")):  # type: ignore[attr-defined]
                await trio.sleep(0.01)
            if how == "killed":
                assert bench.store is not None
                await bench.store.commit()
                bench.kill()
            else:
                tree.halt_nowait(HaltKind.interrupt)
            await trio.sleep_forever()

    bench = Bench(tmp_path, NESTED, before=hold)
    ran = await bench.begin(death=Death() if how == "killed" else None)
    if how == "interrupted":
        assert ran is not None and ran.outcome.kind is OutcomeKind.interrupted and ran.terminal is None
        bench.check()
    before = {goal: len(bench.requests(goal)) for goal in NESTED}
    ran = await bench.go_on()
    assert finished(ran) and ran is not None and ran.said == "root done"
    assert {path: each.said for path, each in bench.agents().items()} == {
        "root": "root done", "root/1.1": "one done", "root/1.1/1.1": "two done",
    }  # fmt: skip
    after = {goal: len(bench.requests(goal)) for goal in NESTED}
    assert (after["root"], after["one"]) == (before["root"], before["one"]) and after["two"] > before["two"]
    # Reports that nobody was left to read stand with the parent that waited.
    assert len(bench.sql("select text from ledger_observations where kind = 'child'")) == 2
    bench.check()


async def test_a_nested_tree_may_be_cut_at_any_commit_several_times(tmp_path: Path) -> None:
    whole = Bench(tmp_path / "whole", NESTED)
    whole.work.mkdir(exist_ok=True)
    assert finished(await whole.begin())
    for at in range(1, 14):
        for after in (False, True):
            bench = Bench(tmp_path / f"{at}{after}", NESTED)
            bench.work.mkdir(exist_ok=True)
            ran = await bench.begin(death=Death(at, after=after))
            if not bench.stands:
                continue
            bench.check()
            crashes = 1
            while ran is None:
                # Each process comes a little further, and then ends too.
                crashes += 1
                ran = await bench.go_on(death=Death(2 + crashes, after=after) if crashes < 4 else None)
            assert finished(ran), (at, after, ran)
            assert {p: e.said for p, e in bench.agents().items()} == {p: e.said for p, e in whole.agents().items()}
            for goal in NESTED:
                wanted = {without_figures(each) for each in plain(whole.requests(goal))}
                got = {without_figures(each) for each in plain(bench.requests(goal))}
                assert got == wanted, (at, after, goal)
            [spent] = bench.sql("select sum(used_tokens) from reservations")
            [sure] = bench.sql("select sum(used_tokens) from reservations where state = 'settled'")
            assert sure <= bench.billed <= spent and bench.sql("select reserved_tokens from ledger") == [0]
            bench.check()


# ── time ────────────────────────────────────────────────────────────────────


async def test_the_time_in_which_nobody_drove_a_tree_counts(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, {"root": [[LOOK], "done"]}, limits=Containment(2, 2, 1, 100_000, max_total_duration=3_600.0)
    )
    await bench.begin(death=Death(when=holds_step("", 1), after=True))
    bench.sql("update runs set started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3601 seconds')")
    with trio.fail_after(10):
        ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.budget_ceiling_reached
    assert ran.outcome.ceiling is HaltKind.duration
    assert not bench.models[-1].requests and bench.sql("select count(*) from reservations") == [1]
    bench.check()


async def test_an_agents_own_time_counts_so_too_and_ends_only_that_agent(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[spawn("slow")], "done"], "slow": [[LOOK], "slow done"]}
    contract = TaskContract.workspace("root", tmp_path, Verification.none()).with_time_budget(3_600.0)
    bench = Bench(tmp_path, answers, contract=contract)
    await bench.begin(death=Death(when=holds_step("/1.1", 1), after=True))
    bench.sql(
        "update runs set started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3601 seconds') where depth = 1"
    )
    asked = len(bench.requests("slow"))
    with trio.fail_after(10):
        ran = await bench.go_on()
    assert len(bench.requests("slow")) == asked
    assert bench.sql("select count(*) from reservations where run_id like '%/1.1'") == [1]
    assert finished(ran) and bench.agents()["root/1.1"].outcome == "time_budget_exceeded"


# ── halts ───────────────────────────────────────────────────────────────────


async def test_a_tree_that_a_ceiling_had_halted_is_closed_with_one_end_for_each(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("a"), spawn("b")], "done"],
        "a": [[LOOK] for _ in range(8)], "b": [[LOOK] for _ in range(8)],
    }  # fmt: skip
    bench = Bench(tmp_path, answers, limits=Containment(3, 3, 1, 70))
    assert await bench.begin(death=Death(when=holds(TreeHalted), after=True)) is None
    assert bench.sql("select count(*) from terminals") == [0] and bench.sql("select kind from halts") == ["tokens"]
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.budget_ceiling_reached and ran.terminal is not None
    assert not bench.models[-1].requests
    assert bench.sql("select count(*) from terminals") == [3]
    assert {each.outcome for each in bench.agents().values()} == {"budget_ceiling_reached"}
    bench.check()
    again = await bench.go_on()
    assert again is not None and (again.outcome, again.terminal) == (ran.outcome, ran.terminal)
    assert bench.sql("select count(*) from terminals") == [3]


# ── what is restored ────────────────────────────────────────────────────────


async def test_the_stall_window_goes_on_where_it_was(tmp_path: Path) -> None:
    def answers() -> dict[str, Any]:
        return {"root": [[LOOK] for _ in range(20)]}

    (tmp_path / "empty").mkdir()
    contract = TaskContract.workspace("root", tmp_path / "empty", Verification.none()).with_max_steps(19)
    whole = Bench(tmp_path / "whole", answers(), contract=contract)
    whole.work.mkdir(exist_ok=True)
    straight = await whole.begin()
    assert straight is not None and straight.outcome.kind is OutcomeKind.stalled
    for number in range(1, straight.outcome.steps + 1):
        bench = Bench(tmp_path / str(number), answers(), contract=contract)
        bench.work.mkdir(exist_ok=True)
        assert await bench.begin(death=Death(when=holds_step("", number), after=True)) is None
        ran = await bench.go_on()
        assert ran is not None and ran.outcome.kind is OutcomeKind.stalled
        assert ran.outcome.steps == straight.outcome.steps, number
        assert plain(bench.requests("root")) == plain(whole.requests("root")), number


async def test_an_answer_that_was_cut_is_asked_to_go_on_as_often_as_without_the_restart(tmp_path: Path) -> None:
    cut = Completion("half of", (), Usage(10, 5), "m", "length")
    answers: dict[str, Any] = {"root": [cut, cut, "never asked for"]}
    for after in (False, True):
        for at in range(2, 9):
            bench = Bench(tmp_path / f"{at}{after}", answers)
            bench.work.mkdir(exist_ok=True)
            death = Death(at, after=after)
            await bench.begin(death=death)
            if not death.dead or not bench.stands:
                continue
            ran = await bench.go_on()
            assert finished(ran) and ran is not None and ran.outcome.steps == 2, (at, after)
            assert len(set(plain(bench.requests("root")))) == 2
            bench.check()


async def test_a_verdict_that_stands_is_not_reached_a_second_time(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # The criterion leaves a mark each time it is looked at.
    argv = ("sh", "-c", "echo x >> verdicts; test -e b.txt")
    contract = TaskContract.workspace("root", work, Verification.command(argv)).with_max_steps(9)
    write = call("write_file", path="b.txt", content="1")
    for kind, number in ((RunFinished, 2), (Reserved, 2)):
        for name in ("verdicts", "b.txt"):
            (work / name).unlink(missing_ok=True)
        bench = Bench(tmp_path, {"root": [[LOOK], [write], "done"]}, contract=contract)
        seen = holds(kind, (lambda row: row.step == 2) if kind is Reserved else (lambda _: True))
        # What was left for the next commit has been written: the verdict stands.
        assert await bench.begin(death=Death(when=seen, keep_appended=True)) is None
        ran = await bench.go_on()
        assert ran is not None and ran.outcome.kind is OutcomeKind.success
        assert len((work / "verdicts").read_text().split()) == number, kind
        assert bench.sql("select verdict from gate_attempts where run_id = ?", bench.run_id) == ["failed", "passed"]
        bench.check()


async def test_a_restart_after_a_back_off_goes_on_with_the_next_attempt_of_the_same_step(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[LOOK], "done"]})
    fails = [True]

    async def fail(request: Any) -> None:
        if fails and len(request.turns) == 3:
            raise ProviderError(ProviderErrorKind.server, "busy")

    bench.before = fail
    contract = TaskContract.workspace("root", bench.work, Verification.none()).with_max_steps(9)
    bench.contract = contract
    # The second attempt of step 2 is never reserved: the process ends in the back-off.
    late = holds(Reserved, lambda row: (row.step, row.attempt) == (2, 2))
    with trio.fail_after(20):
        assert await bench.begin(death=Death(when=late)) is None
        assert bench.sql("select max(step) from steps") == [1]
        fails.clear()
        ran = await bench.go_on()
    assert finished(ran) and ran is not None and ran.outcome.steps == 2
    assert bench.sql("select step * 10 + attempt from provider_calls order by id") == [11, 21, 22]
    bench.check()


# ── three crashes, and an end ───────────────────────────────────────────────


async def test_a_run_that_was_resumed_is_resumed_again_and_its_history_can_be_read(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"root": [[call("write_file", path=f"{n}", content="x")] for n in range(5)] + ["done"]}
    bench = Bench(tmp_path, answers)
    ran = await bench.begin(death=Death(when=holds_step("", 1), after=True))
    for number in (2, 3, 4):
        assert ran is None
        ran = await bench.go_on(death=Death(when=holds_step("", number), after=number % 2 == 0))
    ran = await bench.go_on()
    assert finished(ran) and len(list(bench.work.iterdir())) == 5
    assert bench.sql("select count(*) from checkpoint_events where kind = 'resume'") == [4]
    assert bench.sql("select count(*) from steps") == [6]
    assert len(set(plain(bench.requests("root")))) == len(bench.requests("root")) == 6
    assert bench.sql("select count(*) from terminals") == [1]
    bench.check()


async def test_two_resumes_at_once_are_one_and_the_other_writes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[LOOK], "done"]})
    await bench.begin(death=Death(when=holds_step("", 1), after=True))
    refused: list[str] = []

    async def meddle(request: Any) -> None:
        tables = "select count(*) from run_events", "select count(*) from reservations", "select count(*) from checkpoint_events"
        async with Store.open(bench.file) as other:
            before = [other.select(sql) for sql in tables]
            with pytest.raises(RunConflict) as conflict:
                await resume(bench.run_id, GoalModel(bench.answers), other)
            refused.append(str(conflict.value))
            assert [other.select(sql) for sql in tables] == before

    bench.before = meddle
    assert finished(await bench.go_on()) and len(refused) == 1 and "is driven by process" in refused[0]
    bench.check()
