"""What an approval made a run remember is not asked about again: by no agent of the tree, in no process, past no deny."""

import logging
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Act, Approval, ApprovalRequest, Defer
from actors.agents.remembered import MOST_REMEMBERED, Remembered
from actors.assembly.inbox import decide
from actors.assembly.resuming import resume_tree_from_stored_policy
from actors.assembly.running import RunResult
from actors.containment.limits import Containment
from actors.store.store import Store, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench

TXT = Remembered(Act.write, "*.txt")
# A program that leaves one line in a file, each time it is run.
MARK = [sys.executable, "-c", "open('marks', 'a').write('x\\n')"]


@attrs.define
class Answers:
    """An approver that gives one answer after the other, the last for ever, and keeps what it was asked."""

    says: list[Approval | Defer]
    asked: list[str] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        self.asked.append(f"{request.path} {request.act} {request.target}")
        await trio.lowlevel.checkpoint()
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]


def yes(*rules: Remembered) -> Approval:
    return Approval(True, remember=rules)


def write(name: str) -> tuple[str, dict[str, Any]]:
    return call("write_file", path=name, content="1")


def ask_writes() -> Policy:
    return Policy.permissive().layer("operator").ask_write("*")


def ended(ran: RunResult | None) -> RunResult:
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    return ran


def names(bench: Bench) -> set[str]:
    return {str(each.relative_to(bench.work)) for each in bench.work.rglob("*") if each.is_file()}


def decisions(bench: Bench) -> list[str]:
    return bench.sql(
        "select printf('%s %s: %s of %s by %s', substr(run_id, length(?) + 1), target, rule, layer, source)"
        " from policy_events where kind = 'decision' order by id",
        bench.run_id,
    )


# ── in the whole tree ───────────────────────────────────────────────────────


async def test_what_a_child_was_allowed_for_good_nobody_else_of_the_tree_is_asked_about(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        {
            "root": [[spawn("first")], [spawn("second")], [write("root.txt")], "done"],
            "first": [[write("a.txt")], [spawn("below")], [write("b.txt")], "done"],
            "below": [[write("deep/c.txt")], "done"],
            "second": [[write("d.txt")], "done"],
        },
        ask_writes(),
    )
    approver = Answers([yes(TXT), Approval(False, "nobody is to be asked again")])
    ran = ended(await bench.begin(approver))
    assert approver.asked == ["root/1.1 write a.txt"]
    assert names(bench) == {"a.txt", "b.txt", "deep/c.txt", "d.txt", "root.txt"}
    assert ran.remembered == (TXT,)
    assert decisions(bench) == [
        "/1.1 a.txt: * of operator by approver",
        "/1.1/2.1 deep/c.txt: *.txt of remembered by remembered",
        "/1.1 b.txt: *.txt of remembered by remembered",
        "/2.1 d.txt: *.txt of remembered by remembered",
        " root.txt: *.txt of remembered by remembered",
    ]
    bench.check()


async def test_what_no_rule_fits_is_asked_about_as_before_and_a_yes_alone_remembers_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], [write("b.md")], [write("b.md")], "done"]}, ask_writes())
    approver = Answers([yes(TXT), Approval(True)])
    ended(await bench.begin(approver))
    assert approver.asked == ["root write a.txt", "root write b.md", "root write b.md"]


async def test_rules_that_come_with_a_no_are_not_remembered(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], [write("a.txt")], "done"]}, ask_writes())
    approver = Answers([Approval(False, "no", (TXT,))])
    ran = ended(await bench.begin(approver))
    assert len(approver.asked) == 2 and ran.remembered == () and not names(bench)


async def test_commands_are_matched_by_the_program_and_the_whole_line(tmp_path: Path) -> None:
    turns = [[call("exec", argv=["touch", name])] for name in ("a", "b", "c")]
    turns += [[call("shell", line="touch d && touch e")], [call("exec", argv=["env", "touch", "f"])]]
    bench = Bench(tmp_path, {"root": [*turns, "done"]}, Policy.permissive().layer("operator").ask_exec("*"))
    approver = Answers([yes(Remembered(Act.exec, "touch*")), Approval(False, "no")])
    ended(await bench.begin(approver))
    assert approver.asked == ["root exec touch a", "root exec env touch f"]
    assert names(bench) == {"a", "b", "c", "d", "e"}


async def test_a_broad_rule_lets_no_other_program_hide_inside(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, {"root": [[call("exec", argv=MARK)], [call("exec", argv=MARK)], "done"]}, Policy.default()
    )
    approver = Answers([yes(Remembered(Act.exec, "*"))])
    ended(await bench.begin(approver))
    assert len(approver.asked) == 2


async def test_searches_see_what_may_be_read_by_a_remembered_rule(tmp_path: Path) -> None:
    turns = [[call("grep", pattern="need")], [call("read_file", path="a.md")], [call("grep", pattern="need")], "done"]
    bench = Bench(tmp_path, {"root": turns}, Policy.permissive().layer("operator").ask_read("*.md"))
    for name in ("a.md", "b.md"):
        (bench.work / name).write_text("needle")
    approver = Answers([yes(Remembered(Act.read, "*.md"))])
    ended(await bench.begin(approver))
    assert approver.asked == ["root read a.md"]
    told = bench.told("root")
    assert "b.md:" not in told[0] and "b.md" in told[2]


# ── never past a deny ───────────────────────────────────────────────────────


async def test_a_deny_that_a_child_was_given_holds_and_so_do_secrets_and_what_is_denied_by_default(
    tmp_path: Path,
) -> None:
    tries = ["secret.txt", ".env", "x.pem", ".actors/runs.db", "open.txt"]
    bench = Bench(
        tmp_path,
        {
            "root": [[write("a.txt")], [spawn("child", deny_write=["secret*"])], [write("secret.txt")], "done"],
            "child": [[write(name) for name in tries], "done"],
        },
        Policy.default(),
    )
    approver = Answers([yes(Remembered(Act.write, "*"), Remembered(Act.net, "*"))])
    ended(await bench.begin(approver))
    assert approver.asked == ["root write a.txt"]
    assert names(bench) == {"a.txt", "open.txt", "secret.txt"}
    assert [("denied by policy" in text) for text in bench.told("child")] == [True] * 4 + [False]


async def test_an_ask_that_a_child_was_given_is_answered_too_and_its_default_of_deny_is_not(tmp_path: Path) -> None:
    allowed = Policy.permissive().layer("operator").ask_write("a*")
    deny = Policy.from_dict({"defaults": {"write": "deny"}, "layers": [{"name": "n", "rules": []}]})
    child = allowed.contain(deny.layer("child").ask_write("*.txt"))
    assert child.explain(Act.write, "a.txt").effect == "ask" and child.explain(Act.write, "b.txt").effect == "deny"
    bench = Bench(tmp_path, {"root": [[write("a.txt")], [write("a.txt")], [write("b.txt")], "done"]}, child)
    approver = Answers([yes(Remembered(Act.write, "*"))])
    ended(await bench.begin(approver))
    assert approver.asked == ["root write a.txt"] and names(bench) == {"a.txt"}


# ── in every process ────────────────────────────────────────────────────────

TWO: dict[str, Any] = {
    "root": [[spawn("child")], [write("c.txt")], "done"],
    "child": [[write("a.txt")], [write("b.txt")], "x"],
}


@pytest.mark.parametrize("at", range(3, 16))
async def test_whoever_goes_on_remembers_what_stood_when_the_process_ended(tmp_path: Path, at: int) -> None:
    bench = Bench(tmp_path, TWO, ask_writes())
    first, death = Answers([yes(TXT)]), Death(at=at)
    ran = await bench.begin(first, death)
    if not death.dead:
        pytest.skip("it had ended before")
    if not bench.stands:
        return
    stood = [each for each in bench.questions(all=True) if each.decision]
    second = Answers([yes(TXT)])
    ran = ended(await bench.go_on(second))
    assert len(second.asked) == (0 if stood else 1)
    assert names(bench) == {"a.txt", "b.txt", "c.txt"} and ran.remembered == (TXT,)
    bench.check()


async def test_a_decision_of_another_process_brings_rules_along_and_its_call_is_run_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_approval and ran.remembered == ()
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        verdict = await decide(store, row.request_id, True, "", (TXT,))
    assert verdict.won
    approver = Answers([Approval(False, "not asked")])
    ran = ended(await bench.go_on(approver))
    assert approver.asked == [] and names(bench) == {"a.txt", "b.txt", "c.txt"} and ran.remembered == (TXT,)
    [row] = bench.questions(all=True)
    assert row.applied_at is not None, "the question that was asked was answered by its own row"
    # Its end is told again with the same rules.
    async with Store.open(bench.file) as store:
        again = await resume_tree_from_stored_policy(bench.run_id, GoalModel({}), store, approver)
    assert again.remembered == (TXT,)
    bench.check()


async def test_a_decision_of_another_process_counts_while_the_tree_lives(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes())

    class Never:
        asked = 0

        async def decide(self, request: ApprovalRequest) -> Approval:
            self.asked += 1
            async with Store.open(bench.file) as store:
                await decide(store, bench.questions()[0].request_id, True, "", (TXT,))
            await trio.sleep_forever()
            raise AssertionError("unreachable")

    approver = Never()
    ran = ended(await bench.begin(approver))
    assert approver.asked == 1 and ran.remembered == (TXT,) and names(bench) == {"a.txt", "b.txt", "c.txt"}


async def test_a_decision_that_comes_with_a_resume_brings_rules_along(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    await bench.begin()
    [row] = bench.questions()
    approver = Answers([Approval(False, "not asked")])
    ran = ended(await bench.decide(row.request_id, True, approver=approver, remember=(TXT,)))
    assert approver.asked == [] and ran.remembered == (TXT,)


async def test_a_policy_that_denies_by_now_beats_what_was_remembered_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    await bench.begin()
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        await decide(store, row.request_id, True, "", (TXT,))
    policy = ask_writes().layer("new").deny_write("b*").deny_write("c*")
    ended(await bench.go_on(Answers([Approval(True)]), policy=policy))
    assert names(bench) == {"a.txt"}


async def test_a_question_that_was_asked_keeps_its_own_answer(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        {
            "root": [[spawn("one"), spawn("two")], "done"],
            "one": [[write("a.txt")], "x"],
            "two": [[write("b.txt")], "x"],
        },
        ask_writes(),
        Answers([Defer()]),
        limits=Containment(20, 1, 4, 100_000),
    )
    await bench.begin()
    rows = {row.target: row.request_id for row in bench.questions()}
    assert set(rows) == {"a.txt", "b.txt"}
    async with Store.open(bench.file) as store:
        await decide(store, rows["a.txt"], True, "", (TXT,))
    # The other one is parked on its own question, which nobody has answered.
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.request == rows["b.txt"] and ran.remembered == (TXT,)
    ended(await bench.decide(rows["b.txt"], False, "not you"))
    assert names(bench) == {"a.txt"}
    bench.check()


# ── what cannot be remembered ───────────────────────────────────────────────


async def test_a_malformed_rule_of_an_approver_allows_nothing(tmp_path: Path) -> None:
    class Slips:
        async def decide(self, request: ApprovalRequest) -> Approval:
            await trio.lowlevel.checkpoint()
            return Approval(True, remember=(Remembered(Act.write, "src/"),))

    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask_writes())
    ran = ended(await bench.begin(Slips()))
    assert ran.remembered == () and not names(bench)
    assert "no path ends in a slash" in bench.told("root")[0]
    [row] = bench.questions(all=True)
    assert (row.decision, row.decided_by, row.remembered) == ("denied", "runtime", None)


async def test_more_rules_than_a_run_remembers_are_asked_about_again_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], [write("z.txt")], "done"]}, ask_writes())
    rules = tuple(Remembered(Act.write, f"f{number}") for number in range(MOST_REMEMBERED))
    approver = Answers([yes(*rules, TXT)])
    with caplog.at_level(logging.WARNING):
        ran = ended(await bench.begin(approver))
    assert len(approver.asked) == 2 and ran.remembered == rules
    assert any("not remembered" in text and "*.txt" in text for text in caplog.messages)


async def test_a_stored_rule_that_cannot_be_read_is_asked_about_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    await bench.begin()
    bench.sql("update pending_approvals set decision = 'approved', remembered = '[{', decided_at = asked_at")
    approver = Answers([Approval(True)])
    ran = ended(await bench.go_on(approver))
    assert len(approver.asked) == 2 and ran.remembered == ()


async def test_a_file_of_before_there_were_remembered_rules_is_read_as_without(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    await bench.begin()
    bench.sql("alter table pending_approvals drop column remembered")
    with open_reader(bench.file) as reader:
        [row] = reader.approvals(bench.run_id)
        assert row.remembered is None and reader.remembered(bench.run_id) == []
        state = reader.approval(row.request_id)
        assert state is not None and state.deferred and state.remembered is None
    ran = ended(await bench.decide(row.request_id, True, approver=Answers([Approval(True)]), remember=(TXT,)))
    assert ran.remembered == (TXT,)


async def test_a_stored_no_remembers_nothing_whatever_else_its_row_holds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TWO, ask_writes(), Answers([Defer()]))
    await bench.begin()
    bench.sql(
        "update pending_approvals set decision = 'denied', reason = 'no', decided_by = 'operator', decided_at = asked_at,"
        ' remembered = \'[{"act": "write", "glob": "*"}]\''
    )
    with open_reader(bench.file) as reader:
        assert reader.remembered(bench.run_id) == []
    approver = Answers([Approval(False, "no")])
    ran = ended(await bench.go_on(approver))
    assert len(approver.asked) == 2 and ran.remembered == () and not names(bench)
