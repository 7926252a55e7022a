"""A question to a human outlives the process that asked: it is answered once, and the call that asked runs once."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Act, Approval, ApprovalRequest, Defer
from actors.agents.questions import LOOK_SECONDS
from actors.agents.rows import ApprovalDecided
from actors.assembly.inbox import decide
from actors.assembly.running import RunResult
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.halts import HaltKind
from actors.store.leases import tree_of
from actors.store.records import ApprovalRecord
from actors.store.store import Store, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench, finished

# A program that leaves one line in a file, each time it is run.
MARK = [sys.executable, "-c", "open('marks', 'a').write('x\\n')"]


def ask(*acts: Act) -> Policy:
    policy = Policy.permissive().layer("operator")
    for act in acts:
        policy = {Act.write: policy.ask_write, Act.exec: policy.ask_exec, Act.read: policy.ask_read}[act]("*")
    return policy


@attrs.define
class Asked:
    """An approver that says the same to everybody, or what a function says, and keeps what it was asked."""

    says: Approval | Defer | Callable[[ApprovalRequest], Any] = attrs.Factory(Defer)
    requests: list[ApprovalRequest] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        said = self.says(request) if callable(self.says) else self.says
        if isinstance(said, Approval | Defer):
            return said
        await said
        raise AssertionError("nobody answers")


WRITE = call("write_file", path="a.txt", content="1")


def marks(bench: Bench) -> int:
    place = bench.work / "marks"
    return len(place.read_text().splitlines()) if place.exists() else 0


def parked_on(ran: RunResult | None) -> str:
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_approval and ran.terminal is None
    assert ran.outcome.request is not None
    return ran.outcome.request


# ── the question stands before it is asked ──────────────────────────────────


async def test_the_question_stands_in_the_file_with_its_whole_call_before_anybody_is_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    seen: list[ApprovalRecord] = []

    def look(request: ApprovalRequest) -> Approval:
        seen.extend(bench.questions())
        return Approval(True)

    ran = await bench.begin(Asked(look))
    assert finished(ran)
    [row] = seen
    assert (row.act, row.target, row.content, row.tool, row.decision) == ("write", "a.txt", "1", "write_file", None)
    assert '"a.txt"' in row.arguments and row.goal == "root"
    [row] = bench.questions(all=True)
    assert (row.decision, row.decided_by) == ("approved", "approver")
    bench.check()


async def test_a_process_that_ends_while_it_asks_asks_again_and_it_is_the_same_question(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    death = Death()

    def end(request: ApprovalRequest) -> Approval:
        death.dead = True
        return Approval(True)

    assert await bench.begin(Asked(end), death) is None
    [before] = bench.questions()
    approver = Asked(Approval(True))
    ran = await bench.go_on(approver)
    assert finished(ran)
    assert len(approver.requests) == 1 and (bench.work / "a.txt").read_text() == "1"
    [row] = bench.questions(all=True)
    assert row.request_id == before.request_id and row.decision == "approved"
    bench.check()


# ── the first answer is the one that counts ─────────────────────────────────


async def test_whoever_decides_in_another_process_first_is_heard_and_the_approver_is_let_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    let_go = trio.Event()

    async def think() -> None:
        try:
            async with Store.open(bench.file) as other:
                [row] = other.approvals(bench.run_id)
                await other.commit(ApprovalDecided(row.request_id, "denied", "not on a Friday", "attached"))
            await trio.sleep_forever()
        finally:
            let_go.set()

    with trio.fail_after(10):
        ran = await bench.begin(Asked(lambda _: think()))
    assert finished(ran)
    assert let_go.is_set() and not (bench.work / "a.txt").exists()
    assert "not on a Friday" in bench.told()[0]
    [row] = bench.questions(all=True)
    assert (row.decision, row.decided_by) == ("denied", "attached")


async def test_of_two_that_decide_the_first_write_wins_and_the_agent_acts_on_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())

    async def overtaken() -> Approval:
        async with Store.open(bench.file) as other:
            [row] = other.approvals(bench.run_id)
            assert await other.decide(ApprovalDecided(row.request_id, "denied", "I was first", "attached"))
            assert not await other.decide(ApprovalDecided(row.request_id, "approved", "I was second", "attached"))
        return Approval(True)

    class Late:
        async def decide(self, request: ApprovalRequest) -> Approval | Defer:
            with trio.CancelScope(shield=True) as scope:
                answer = await overtaken()
            assert not scope.cancelled_caught
            return answer

    ran = await bench.begin(Late())
    assert finished(ran)
    assert not (bench.work / "a.txt").exists() and "I was first" in bench.told()[0]


async def test_an_operator_who_comes_second_is_told_so_and_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    await bench.begin()
    [row] = bench.questions()
    async with Store.open(bench.file) as other:
        await other.commit(ApprovalDecided(row.request_id, "denied", "first", "attached"))
    asked = len(bench.models)
    with pytest.raises(ConfigError, match="was decided before"):
        await bench.decide(row.request_id, True)
    assert not bench.models[asked].requests
    [kept] = bench.questions(all=True)
    assert (kept.decision, kept.reason) == ("denied", "first")
    ran = await bench.go_on()
    assert finished(ran) and not (bench.work / "a.txt").exists()


# ── a decision on resume ────────────────────────────────────────────────────

CALLS = {
    "exec": (Act.exec, call("exec", argv=MARK)),
    "write_file": (Act.write, call("write_file", path="a.txt", content="new")),
    "edit_file": (Act.write, call("edit_file", path="a.txt", search="old", replace="new")),
}


@pytest.mark.parametrize("tool", CALLS)
async def test_an_approved_call_is_run_as_it_was_asked_for_once_and_the_model_is_told(
    tmp_path: Path, tool: str
) -> None:
    act, asked = CALLS[tool]
    bench = Bench(tmp_path, {"root": [[asked], "done"]}, ask(act), Asked())
    (bench.work / "a.txt").write_text("old")
    parked = await bench.begin()
    assert parked is not None and parked_on(parked) and parked.terminal is None
    [row] = bench.questions()
    assert parked_on(parked) == row.request_id and row.deferred
    assert (bench.work / "a.txt").read_text() == "old" and marks(bench) == 0
    approver = Asked()
    ran = await bench.decide(row.request_id, True, approver=approver)
    assert finished(ran) and not approver.requests
    if tool == "exec":
        assert marks(bench) == 1 and "exit code 0" in bench.told()[0]
    else:
        assert (bench.work / "a.txt").read_text() == "new" and "wrote" in bench.told()[0]
    assert sorted(each.name for each in bench.work.iterdir()) == (["a.txt", "marks"] if tool == "exec" else ["a.txt"])
    assert bench.sql("select count(*) from pending_approvals where applied_at is not null") == [1]
    bench.check()


async def test_a_rule_that_denies_by_now_beats_an_approval(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    await bench.begin()
    [row] = bench.questions()
    now = ask(Act.write).layer("later").deny_write("a.txt")
    ran = await bench.decide(row.request_id, True, policy=now)
    assert finished(ran)
    assert not (bench.work / "a.txt").exists() and "denied by policy" in bench.told()[0]


async def test_a_rule_that_comes_while_the_question_is_open_does_not_make_its_answer_one_to_another(
    tmp_path: Path,
) -> None:
    """Editing asks about reading and about writing: who allowed the first has not allowed the second."""
    edit = call("edit_file", path="a.txt", search="old", replace="new")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.read, Act.write), Asked())
    (bench.work / "a.txt").write_text("old")
    await bench.begin()
    [row] = bench.questions()
    assert row.act == "read"
    ran = await bench.decide(row.request_id, True, policy=ask(Act.write))
    assert parked_on(ran)
    assert (bench.work / "a.txt").read_text() == "old"
    [write] = bench.questions()
    assert write.act == "write" and write.request_id != row.request_id
    ran = await bench.decide(write.request_id, True)
    assert finished(ran) and (bench.work / "a.txt").read_text() == "new"
    bench.check()


async def test_what_was_approved_is_what_is_written_and_other_bytes_are_asked_about_again(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", search="old", replace="new")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.write), Asked())
    (bench.work / "a.txt").write_text("old")
    await bench.begin()
    [row] = bench.questions()
    (bench.work / "a.txt").write_text("nobody has seen this: old")
    ran = await bench.decide(row.request_id, True)
    assert parked_on(ran)
    assert (bench.work / "a.txt").read_text() == "nobody has seen this: old"
    [again] = bench.questions()
    assert again.content == "nobody has seen this: new"


async def test_a_human_who_says_no_is_read_by_the_model(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    await bench.begin()
    [row] = bench.questions()
    ran = await bench.decide(row.request_id, False, "use b.txt")
    assert finished(ran) and not bench.questions()
    assert "use b.txt" in bench.told()[0] and not (bench.work / "a.txt").exists()
    bench.check()


async def test_the_same_decision_counts_once_and_is_refused_alike_each_later_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[call("exec", argv=MARK)], [call("exec", argv=MARK)], "done"]}, ask(Act.exec), Asked())
    await bench.begin()
    [row] = bench.questions()
    parked = await bench.decide(row.request_id, True)
    assert parked_on(parked) and marks(bench) == 1
    texts = []
    for _ in range(2):
        with pytest.raises(ConfigError) as refused:
            await bench.decide(row.request_id, True)
        texts.append(str(refused.value))
    assert texts[0] == texts[1] and "was decided before" in texts[0] and marks(bench) == 1
    [second] = bench.questions()
    ran = await bench.decide(second.request_id, True)
    assert finished(ran) and marks(bench) == 2
    for request in (row.request_id, second.request_id):
        with pytest.raises(ConfigError, match="has ended"):
            await bench.decide(request, True)
    assert marks(bench) == 2
    bench.check()


async def test_a_decision_that_stood_when_its_process_ended_is_acted_on_by_a_plain_resume(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[call("exec", argv=MARK)], "done"]}, ask(Act.exec), Asked())
    await bench.begin()
    [row] = bench.questions()
    death = Death(when=lambda rows: any(isinstance(each, ApprovalDecided) for each in rows), after=True)
    assert await bench.decide(row.request_id, True, death=death) is None
    assert marks(bench) == 0
    ran = await bench.go_on()
    assert finished(ran) and marks(bench) == 1


async def test_a_question_of_another_run_and_one_that_nobody_asked_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    await bench.begin()
    [foreign], first = bench.questions(), bench.run_id
    await bench.begin()
    assert bench.run_id != first
    for request in (foreign.request_id, "nobody#1.1.1"):
        with pytest.raises(ConfigError, match="is no question of this run"):
            await bench.decide(request, True)
    assert [row.decision for row in bench.questions()] == [None]


# ── parked ──────────────────────────────────────────────────────────────────


async def test_a_parked_agent_stays_parked_over_resumes_and_nobody_is_asked_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    await bench.begin()
    [row] = bench.questions()
    for _ in range(3):
        approver = Asked(Approval(True))
        ran = await bench.go_on(approver)
        assert parked_on(ran) == row.request_id
        assert not approver.requests and not bench.models[-1].requests
    assert [each.decision for each in bench.questions()] == [None]
    assert not (bench.work / "a.txt").exists()
    bench.check()


async def test_a_parked_agent_holds_no_slot_and_its_siblings_end_before_the_tree_waits(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("asks"), spawn("works"), spawn("asks too")], "done"],
        "asks": [[WRITE], "asked"],
        "asks too": [[call("write_file", path="b.txt", content="2")], "asked too"],
        "works": [[call("read_file", path="c.txt")] for _ in range(3)] + ["worked"],
    }
    bench = Bench(tmp_path, answers, ask(Act.write), Asked())
    (bench.work / "c.txt").write_text("c")
    bench.limits = Containment(20, 1, 4, 100_000)
    parked = await bench.begin()
    assert parked is not None and parked_on(parked)
    ids = [row.request_id for row in bench.questions()]
    assert len(ids) == 2 and all(each in parked.outcome.message for each in ids)
    with open_reader(bench.file) as reader:
        status = {each.goal: (each.status, each.outcome) for each in reader.agents(bench.run_id)}
    assert status["works"] == ("completed", "finished")
    assert status["asks"] == status["asks too"] == ("paused", "awaiting_approval")
    bench.check()
    # One of them goes on by its own decision, and the other stays where it is.
    ran = await bench.decide(ids[1], True)
    assert parked_on(ran) == ids[0]
    assert ran is not None and ids[1] not in ran.outcome.message
    ran = await bench.decide(ids[0], False, "no")
    assert finished(ran)
    assert [name.name for name in bench.work.glob("[ab].txt")] in (["a.txt"], ["b.txt"])
    # Each was told once, and the one that only worked was asked nothing again.
    assert sum("works" in repr(m.requests[0].turns[0]) for m in bench.models[1:] for m in [m] if m.requests) == 0
    bench.check()


async def test_two_children_of_one_definition_that_park_are_told_apart(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("twin"), spawn("twin")], "done"],
        "twin": [[call("exec", argv=MARK)], "marked"],
    }
    bench = Bench(tmp_path, answers, ask(Act.exec), Asked())
    await bench.begin()
    first, second = bench.questions()
    assert first.request_id != second.request_id and first.goal == second.goal == "twin"
    ran = await bench.decide(second.request_id, False, "not you")
    assert parked_on(ran) == first.request_id and marks(bench) == 0
    ran = await bench.decide(first.request_id, True)
    assert finished(ran) and marks(bench) == 1
    decided = {row.request_id: row.decision for row in bench.questions(all=True)}
    assert decided == {first.request_id: "approved", second.request_id: "denied"}
    bench.check()


async def test_a_child_at_depth_three_parks_and_goes_on_by_its_own_decision(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("one")], "done"],
        "one": [[spawn("two")], "one done"],
        "two": [[spawn("three")], "two done"],
        "three": [[call("exec", argv=MARK)], "three done"],
    }
    bench = Bench(tmp_path, answers, ask(Act.exec), Asked())
    parked = await bench.begin()
    [row] = bench.questions()
    assert row.run_id.count("/") == 3 and parked_on(parked) == row.request_id
    ran = await bench.decide(row.request_id, True)
    assert finished(ran) and marks(bench) == 1
    # Nobody above is asked anything but what comes after the report.
    assert [len(request.turns) for request in bench.models[-1].requests] == [3, 3, 3, 3]
    bench.check()


async def test_a_parked_child_that_nobody_waits_for_does_not_hold_up_its_parent(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("asks", wait=False)], [call("read_file", path="c.txt")], "done"],
        "asks": [[call("exec", argv=MARK)], "marked"],
    }
    bench = Bench(tmp_path, answers, ask(Act.exec), Asked())
    (bench.work / "c.txt").write_text("c")
    parked = await bench.begin()
    assert parked is not None and parked_on(parked)
    assert len([r for r in bench.models[0].requests if "root" in repr(r.turns[0])]) == 3
    with open_reader(bench.file) as reader:
        root = reader.run(bench.run_id)
    assert root is not None and root.said == "done"
    [row] = bench.questions()
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_approval
    ran = await bench.decide(row.request_id, True)
    assert finished(ran) and marks(bench) == 1 and ran is not None and ran.said == "done"
    # The root's work was over: it was asked nothing again.
    assert all("root" not in repr(r.turns[0])[:40] for model in bench.models[1:] for r in model.requests)
    bench.check()


async def test_a_decision_that_is_made_while_the_tree_lives_wakes_the_parked_agent(tmp_path: Path) -> None:
    gate = trio.Event()

    async def hold(request: Any) -> None:
        if request.turns[0].text.startswith("works"):
            await gate.wait()

    answers: dict[str, Any] = {
        "root": [[spawn("asks"), spawn("works")], "done"],
        "asks": [[call("exec", argv=MARK)], "marked"],
        "works": ["worked"],
    }
    bench = Bench(tmp_path, answers, ask(Act.exec), Asked(), before=hold)

    async def operator() -> None:
        while not bench.file.exists() or not bench.run_id:
            await trio.sleep(0.02)
        async with Store.open(bench.file) as other:
            while not [row for row in other.approvals(bench.run_id) if row.deferred]:
                await trio.sleep(0.02)
            [row] = other.approvals(bench.run_id)
            await other.commit(ApprovalDecided(row.request_id, "approved", "", "attached"))
            while marks(bench) == 0:
                await trio.sleep(0.02)
        gate.set()

    ran: RunResult | None = None
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operator)
            ran = await bench.begin()
    assert finished(ran) and marks(bench) == 1
    bench.check()


async def test_more_pending_questions_than_a_line_can_name_are_all_in_the_list(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn(f"asks {n}") for n in range(7)], "done"],
        **{f"asks {n}": [[call("write_file", path=f"{n}.txt", content="1")], "asked"] for n in range(7)},
    }
    bench = Bench(tmp_path, answers, ask(Act.write), Asked())
    ran = await bench.begin()
    ids = [row.request_id for row in bench.questions()]
    assert len(ids) == 7 and parked_on(ran) == min(ids)
    assert ran is not None and "and 2 more" in ran.outcome.message
    # Decided all at once by somebody else, and then it is one plain resume.
    async with Store.open(bench.file) as other:
        for each in ids:
            assert await other.decide(ApprovalDecided(each, "approved", "", "attached"))
    assert finished(await bench.go_on()) and len(list(bench.work.glob("*.txt"))) == 7
    bench.check()


# ── questions that nobody can answer any more ───────────────────────────────


async def test_an_approver_that_fails_leaves_no_question_open(tmp_path: Path) -> None:
    class Broken:
        async def decide(self, request: ApprovalRequest) -> Approval:
            raise RuntimeError("the approver is down")

    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write))
    assert finished(await bench.begin(Broken()))
    assert not bench.questions() and not (bench.work / "a.txt").exists()
    [row] = bench.questions(all=True)
    assert (row.decision, row.decided_by) == ("denied", "runtime") and "the approver is down" in bench.told()[0]
    bench.check()


async def test_the_question_of_an_agent_that_was_stopped_for_good_is_open_no_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write))

    async def stop() -> None:
        assert bench.tree is not None
        bench.tree.halt_nowait(HaltKind.cancel)
        await trio.sleep_forever()

    ran = await bench.begin(Asked(lambda _: stop()))
    assert ran is not None and ran.outcome.kind is OutcomeKind.cancelled
    assert not bench.questions()
    [row] = bench.questions(all=True)
    with pytest.raises(ConfigError, match="has ended"):
        await bench.decide(row.request_id, True)
    bench.check()


async def test_what_was_approved_meets_the_policy_of_the_child_that_asked_and_not_only_the_roots(
    tmp_path: Path,
) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("child", deny_write=["secret*"])], "done"],
        "child": [
            [call("write_file", path="open.txt", content="1"), call("write_file", path="secret.txt", content="1")],
            "child done",
        ],
    }
    bench = Bench(tmp_path, answers, ask(Act.write), Asked())
    request = parked_on(await bench.begin())
    assert finished(await bench.decide(request, True))
    assert [each.name for each in bench.work.iterdir()] == ["open.txt"] and len(bench.questions(all=True)) == 1
    assert "denied by policy" in bench.told("child")[1]
    bench.check()


@pytest.mark.parametrize("request_id", ["abc#3.1.1", "abc/3.1#2.1.1", "abc/3.1/2.1#2.1.1"])
def test_a_decision_belongs_to_the_tree_whose_agent_asked(request_id: str) -> None:
    assert tree_of(ApprovalDecided(request_id, "approved", "", "operator")) == "abc"


async def test_a_question_that_has_its_answer_pauses_nobody(tmp_path: Path) -> None:
    """It is decided while a sibling works, which ends before the one that asked has looked."""

    async def hold(request: Any) -> None:
        if request.turns[0].text.startswith("works"):
            while not (rows := bench.questions()) or not rows[0].deferred:
                await trio.sleep(0.01)
            # Just behind a look of the agent's own.
            await trio.sleep(LOOK_SECONDS + 0.02)
            assert bench.store is not None
            await bench.store.decide(ApprovalDecided(rows[0].request_id, "approved", "", "operator"))

    answers: dict[str, Any] = {
        "root": [[spawn("asks"), spawn("works")], "done"],
        "asks": [[WRITE], "wrote"],
        "works": ["worked"],
    }
    bench = Bench(tmp_path, answers, ask(Act.write), Asked(), before=hold)
    with trio.fail_after(20):
        ran = await bench.begin()
    assert finished(ran) and (bench.work / "a.txt").read_text() == "1"
    bench.check()


@pytest.mark.parametrize("way", ["resume", "inbox"])
async def test_an_operators_reason_is_safe_and_bounded_like_an_approvers(tmp_path: Path, way: str) -> None:
    bench = Bench(tmp_path, {"root": [[WRITE], "done"]}, ask(Act.write), Asked())
    request = parked_on(await bench.begin())
    reason = "no \udcff" + "x" * 100_000
    if way == "resume":
        assert finished(await bench.decide(request, False, reason))
    else:
        async with Store.open(bench.file) as store:
            verdict = await decide(store, request, False, reason)
            assert verdict.won
        assert finished(await bench.go_on())
    [row] = bench.questions(all=True)
    assert row.reason is not None and row.reason.startswith("no \ufffdx") and len(row.reason) < 3_000
    assert "no \ufffdx" in bench.told()[0]
    bench.check()


# ── two questions in one step ───────────────────────────────────────────────


async def test_what_a_step_did_before_and_between_two_questions_is_done_once(tmp_path: Path) -> None:
    calls = [
        call("exec", argv=MARK),
        call("write_file", path="a.txt", content="1"),
        call("exec", argv=MARK),
        call("write_file", path="b.txt", content="2"),
    ]
    # Not for all files: what a rule asks about is closed to commands.
    policy = Policy.permissive().layer("operator").ask_write("*.txt")
    bench = Bench(tmp_path, {"root": [calls, "done"]}, policy, Asked())
    await bench.begin()
    assert marks(bench) == 1
    await bench.go_on()
    [first] = bench.questions()
    ran = await bench.decide(first.request_id, True)
    assert parked_on(ran) and marks(bench) == 2
    await bench.go_on()
    [second] = bench.questions()
    assert (first.target, second.target) == ("a.txt", "b.txt")
    ran = await bench.decide(second.request_id, True)
    assert finished(ran) and marks(bench) == 2
    assert len(bench.told()) == 4 and sum(len(m.requests) for m in bench.models) == 2
    bench.check()


async def test_a_process_may_end_at_any_commit_of_a_run_with_two_questions(tmp_path: Path) -> None:
    """The effects are files, which say by themselves what was done; the model is asked each thing once."""
    calls = [WRITE, call("write_file", path="b.txt", content="2")]
    answers = {"root": [[spawn("child")], "done"], "child": [calls, [call("read_file", path="b.txt")], "child done"]}
    for after in (False, True):
        for at in range(1, 40):
            bench = Bench(tmp_path / f"{after}{at}", answers, ask(Act.write), Asked())
            bench.folder.mkdir()
            death = Death(at, after=after)
            yes = Asked(Approval(True))
            ran = await bench.begin(yes, death)
            if not death.dead:
                break
            if not bench.stands:
                continue
            ran = await bench.go_on(yes)
            assert finished(ran), (after, at, ran)
            assert {each.name: each.read_text() for each in bench.work.iterdir()} == {"a.txt": "1", "b.txt": "2"}
            assert [row.decision for row in bench.questions(all=True)] == ["approved", "approved"]
            # The model's own count, or above it by what is marked as estimated.
            [spent] = bench.sql("select sum(used_tokens) from reservations")
            [estimated] = bench.sql("select coalesce(sum(used_tokens), 0) from reservations where state = 'estimated'")
            assert spent - estimated <= bench.billed <= spent
            bench.check()
        assert at > 10
