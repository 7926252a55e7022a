"""A yes that changes the call: what the approver wrote runs once, in every process, past no deny, and the model is told."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    Act,
    Approval,
    ApprovalRequest,
    Defer,
    Observation,
    ObservationKind,
    ToolContext,
    ToolSpec,
)
from actors.agents.remembered import Remembered
from actors.agents.rows import CallDone
from actors.agents.verification import Verification
from actors.assembly.inbox import decide
from actors.assembly.recovering import Abort, Completed, Retry
from actors.assembly.running import RunResult, run_with
from actors.errors import ConfigError, ToolFailed
from actors.store.store import Store, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import GoalModel, call, spawn
from actors.testing.resume_bench import Bench, finished

# What the model reads of a call that was changed.
CHANGED = "[whoever approves changed this call before it ran: "


@attrs.define
class Says:
    """An approver that says what a function, or a list one after the other, says; it keeps what it was asked."""

    says: Callable[[ApprovalRequest], Approval | Defer] | list[Approval | Defer]
    asked: list[str] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        self.asked.append(f"{request.path} {request.act} {request.target}")
        await trio.lowlevel.checkpoint()
        if callable(self.says):
            return self.says(request)
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]


def instead(**arguments: Any) -> Approval:
    return Approval(True, modified=arguments)


def write(name: str, content: str = "1") -> tuple[str, dict[str, Any]]:
    return call("write_file", path=name, content=content)


def ask(*acts: Act) -> Policy:
    policy = Policy.permissive().layer("operator")
    for act in acts:
        policy = {
            Act.write: policy.ask_write, Act.exec: policy.ask_exec, Act.read: policy.ask_read, Act.spawn: policy.ask_spawn,
        }[act]("*")  # fmt: skip
    return policy


def done(ran: RunResult | None) -> RunResult:
    assert finished(ran) and ran is not None
    return ran


def names(bench: Bench) -> set[str]:
    return {str(each.relative_to(bench.work)) for each in bench.work.rglob("*") if each.is_file()}


# ── what runs ───────────────────────────────────────────────────────────────


async def test_what_the_approver_wrote_runs_in_place_of_what_the_model_asked_for_and_the_model_reads_it(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))
    approver = Says([instead(path="b.txt", content="2"), Approval(False, "asked twice")])
    done(await bench.begin(approver))
    assert approver.asked == ["root write a.txt"], "a target that the approver chose is not asked about again"
    assert names(bench) == {"b.txt"} and (bench.work / "b.txt").read_text() == "2"
    [text] = bench.told()
    assert text.startswith(CHANGED) and 'path is "b.txt", and was "a.txt"' in text and 'content is "2", and was "1"' in text
    assert text.endswith('wrote "b.txt" (1 byte, 1 line)')
    [row] = bench.questions(all=True)
    assert (row.target, row.decision, row.applied_at is not None) == ("a.txt", "approved", True)
    assert row.modified is not None and json.loads(row.modified) == {"path": "b.txt", "content": "2"}
    # Nobody allowed what was asked for.
    assert bench.sql("select target from policy_events where kind = 'decision'") == ["b.txt"]
    bench.check()


async def test_arguments_that_are_the_same_change_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))
    done(await bench.begin(Says([instead(content="1", path="a.txt")])))
    assert names(bench) == {"a.txt"} and CHANGED not in bench.told()[0]
    [row] = bench.questions(all=True)
    assert row.modified is None


async def test_a_store_in_memory_changes_calls_too(tmp_path: Path) -> None:
    model = GoalModel({"root": [[write("a.txt")], "done"]})
    task = TaskContract.workspace("root", tmp_path, Verification.none()).with_max_steps(3)
    async with Store.memory() as store:
        ran = await run_with(task, model, store, ask(Act.write), Says([instead(path="b.txt", content="1")]))
    assert ran.outcome.kind is OutcomeKind.finished
    assert os.listdir(tmp_path) == ["b.txt"] and CHANGED in repr(model.requests[-1])


async def test_commands_and_lines_are_changed_and_judged_whole(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("operator").ask_exec("*").deny_exec("rm*").deny_write("no*")
    calls = [
        call("exec", argv=["touch", "a"]),
        call("shell", line="touch b"),
        call("exec", argv=["touch", "c"]),
        call("shell", line="touch d"),
        call("shell", line="touch e"),
    ]
    says: dict[str, Approval] = {
        "touch a": instead(argv=["touch", "a2"]),
        "touch b": instead(line="touch b2 && echo x > b3"),
        "touch c": instead(argv=["env", "rm", "-r", "."]),
        "touch d": instead(line="touch d2 && rm -r ."),
        "touch e": instead(line="echo x > no.txt"),
    }
    bench = Bench(tmp_path, {"root": [calls, "done"]}, policy)
    approver = Says(lambda request: says[request.target])
    done(await bench.begin(approver))
    assert len(approver.asked) == 5 and names(bench) == {"a2", "b2", "b3"}
    told = bench.told()
    assert [("denied by policy" in text, text.startswith(CHANGED)) for text in told] == [
        (False, True), (False, True), (True, True), (True, True), (True, True),
    ]  # fmt: skip
    bench.check()


async def test_a_changed_line_asks_for_the_files_that_it_is_joined_with(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[call("shell", line="echo x")], "done"]}, ask(Act.write, Act.exec))
    approver = Says([instead(line="echo x > f"), Approval(False, "not that file")])
    done(await bench.begin(approver))
    assert approver.asked == ["root exec echo x", "root write f"] and not names(bench)
    assert CHANGED in bench.told()[0] and "not that file" in bench.told()[0]


# ── past no deny ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "target", ["secret.txt", ".env", "x.pem", ".actors/runs.db", "../out.txt", "link/out.txt", "/etc/out.txt"]
)
async def test_a_changed_target_crosses_no_deny_no_secret_and_no_root(tmp_path: Path, target: str) -> None:
    bench = Bench(
        tmp_path,
        {"root": [[spawn("child", deny_write=["secret*"])], "done"], "child": [[write("a.txt")], "done"]},
        Policy.default(),
    )
    (bench.work / "link").symlink_to(tmp_path)
    approver = Says([instead(path=target, content="x")])
    done(await bench.begin(approver))
    assert approver.asked == ["root/1.1 write a.txt"] and not names(bench)
    assert not (tmp_path / "out.txt").exists()
    assert bench.told("child")[0].startswith(CHANGED)
    # The control: without the change the same yes lets it be written.
    plain = Bench(tmp_path / "plain", bench.answers, Policy.default())
    done(await plain.begin(Says([Approval(True)])))
    assert names(plain) == {"a.txt"}


async def test_a_rule_that_denies_by_now_beats_the_arguments_that_were_approved(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await bench.begin()
    [row] = bench.questions()
    policy = ask(Act.write).layer("new").deny_write("b.txt")
    ran = await bench.decide(row.request_id, True, modified={"path": "b.txt", "content": "2"}, policy=policy)
    done(ran)
    assert not names(bench) and "denied by policy" in bench.told()[0] and bench.told()[0].startswith(CHANGED)


async def test_a_yes_to_other_arguments_is_none_to_an_act_of_another_kind(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", search="1", replace="2")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.read, Act.write))
    for name in ("a.txt", "b.txt"):
        (bench.work / name).write_text("1")
    approver = Says([instead(path="b.txt", search="1", replace="2"), Approval(False, "read, and no more")])
    done(await bench.begin(approver))
    assert approver.asked == ["root read a.txt", "root write b.txt"]
    assert (bench.work / "b.txt").read_text() == "1"


async def test_what_was_answered_before_the_change_and_is_the_same_is_not_asked_again(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", search="1", replace="2")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.read, Act.write))
    (bench.work / "a.txt").write_text("1")
    approver = Says([Approval(True), instead(path="a.txt", search="1", replace="3"), Approval(False, "no more")])
    done(await bench.begin(approver))
    assert approver.asked == ["root read a.txt", "root write a.txt"]
    assert (bench.work / "a.txt").read_text() == "3"
    bench.check()


async def test_another_file_is_asked_about_for_reading_when_the_write_was_moved_to_it(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", search="1", replace="2")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.read, Act.write))
    for name in ("a.txt", "b.txt"):
        (bench.work / name).write_text("1")
    approver = Says([Approval(True), instead(path="b.txt", search="1", replace="3"), Approval(False, "not b")])
    done(await bench.begin(approver))
    assert approver.asked == ["root read a.txt", "root write a.txt", "root read b.txt"]
    assert {(bench.work / name).read_text() for name in ("a.txt", "b.txt")} == {"1"}


async def test_an_approver_that_changes_every_question_comes_to_an_end(tmp_path: Path) -> None:
    edit = call("edit_file", path="a.txt", search="1", replace="2")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, ask(Act.read, Act.write))
    (bench.work / "a.txt").write_text("1")
    turn = iter(range(3, 99))
    approver = Says(lambda _: instead(path="a.txt", search="1", replace=str(next(turn))))
    with trio.fail_after(20):
        done(await bench.begin(approver))
    assert len(approver.asked) == 2 and (bench.work / "a.txt").read_text() == "4"


# ── spawns ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wait", [True, False])
async def test_a_changed_spawn_makes_the_child_that_was_written_and_says_so(tmp_path: Path, wait: bool) -> None:
    asked = call("spawn_agent", goal="wide", verify={"kind": "none"}, wait=wait)
    bench = Bench(
        tmp_path,
        {"root": [[asked], [call("list_dir", path=".")], "done"], "wide": ["no"], "narrow": [[write("n.txt")], "x"]},
        ask(Act.spawn),
    )
    done(await bench.begin(Says([instead(goal="narrow", verify={"kind": "none"}, wait=wait)])))
    assert names(bench) == {"n.txt"} and not bench.requests("wide")
    assert bench.told()[0].startswith(CHANGED) and 'goal is "narrow", and was "wide"' in bench.told()[0]
    [arguments] = bench.sql("select arguments from spawns")
    assert json.loads(arguments)["goal"] == "narrow"
    bench.check()


@pytest.mark.parametrize("at", range(3, 16))
async def test_a_changed_spawn_is_the_same_child_whenever_the_process_ends(tmp_path: Path, at: int) -> None:
    narrow = {"goal": "narrow", "verify": {"kind": "none"}}
    answers = {"root": [[spawn("wide")], "done"], "wide": ["no"], "narrow": [[write("n.txt")], "x"]}
    bench = Bench(tmp_path, answers, ask(Act.spawn))
    death = Death(at=at)
    await bench.begin(Says([Approval(True, modified=narrow)]), death)
    if not death.dead:
        pytest.skip("it had ended before")
    if not bench.stands:
        return
    decided = [each for each in bench.questions(all=True) if each.decision]
    second = Says([Approval(True, modified=narrow)])
    done(await bench.go_on(second))
    assert len(second.asked) == (0 if decided else 1)
    assert names(bench) == {"n.txt"} and not bench.requests("wide")
    assert bench.told()[0].startswith(CHANGED) and set(bench.agents()) == {"root", "root/1.1"}
    bench.check()


# ── in every process ────────────────────────────────────────────────────────


async def test_a_decision_that_comes_with_a_resume_changes_the_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await bench.begin()
    [row] = bench.questions()
    approver = Says([Approval(False, "not asked")])
    done(await bench.decide(row.request_id, True, modified={"path": "b.txt", "content": "2"}, approver=approver))
    assert approver.asked == [] and names(bench) == {"b.txt"} and bench.told()[0].startswith(CHANGED)
    [row] = bench.questions(all=True)
    assert row.applied_at is not None
    bench.check()
    # Whose it was stands in the trace, once.
    answers = bench.sql("SELECT event FROM run_events WHERE json_extract(event, '$.kind') = 'approval_decided'")
    [told] = [json.loads(event) for event in answers]
    assert (told["approved"], told["by"], told["changed"]) == (True, "operator", ["content", "path"])


async def test_a_decision_of_another_process_changes_the_call_of_a_live_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))

    class Never:
        async def decide(self, request: ApprovalRequest) -> Approval:
            async with Store.open(bench.file) as store:
                [row] = bench.questions()
                rules = (Remembered(Act.write, "*.md"),)
                verdict = await decide(store, row.request_id, True, "", rules, {"path": "b.txt", "content": "2"})
            assert verdict.won and json.loads(verdict.arguments or "") == {"path": "b.txt", "content": "2"}
            await trio.sleep_forever()
            raise AssertionError("unreachable")

    with trio.fail_after(20):
        ran = done(await bench.begin(Never()))
    assert names(bench) == {"b.txt"} and ran.remembered == (Remembered(Act.write, "*.md"),)


@pytest.mark.parametrize("at", range(3, 14))
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
async def test_wherever_the_process_ends_the_changed_call_is_done_once(tmp_path: Path, tool: str, at: int) -> None:
    # The edit leaves nothing of what the model looked for, and the write stands in another file.
    asked, changed, left = {
        "write_file": (write("a.txt"), {"path": "b.txt", "content": "2"}, {"a.txt": "1", "b.txt": "2"}),
        "edit_file": (
            call("edit_file", path="a.txt", search="1", replace="2"),
            {"path": "a.txt", "search": "1", "replace": "3"},
            {"a.txt": "3"},
        ),
    }[tool]  # fmt: skip
    bench = Bench(tmp_path, {"root": [[asked], "done"]}, ask(Act.write))
    (bench.work / "a.txt").write_text("1")
    death = Death(at=at)
    await bench.begin(Says([Approval(True, modified=changed)]), death)
    if not death.dead:
        pytest.skip("it had ended before")
    if not bench.stands:
        return
    decided = [each for each in bench.questions(all=True) if each.decision]
    second = Says([Approval(True, modified=changed)])
    done(await bench.go_on(second))
    assert len(second.asked) == (0 if decided else 1)
    # Told once; and again only by whoever cannot know that it was told.
    told = bench.sql("SELECT id FROM run_events WHERE json_extract(event, '$.kind') = 'approval_decided'")
    assert len(told) in ((1,) if any(each.applied_at for each in decided) else (1, 2))
    assert {name: (bench.work / name).read_text() for name in names(bench)} == left
    [text] = bench.told()
    assert text.startswith(CHANGED) and "wrote " in text
    bench.check()


# ── effects that nobody can look at ─────────────────────────────────────────


class Pay:
    """An effect that nobody can look at afterwards. ``late``: it asks once more when it has acted."""

    spec = ToolSpec(
        "pay", "", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    )
    read_only = False

    def __init__(self, late: bool = False) -> None:
        self.paid: list[str] = []
        self._late = late

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        await context.authorise(Act.exec, f"pay {arguments['to']}")
        self.paid.append(arguments["to"])
        if self._late:
            await context.authorise(Act.exec, f"tell {arguments['to']}")
        return Observation(ObservationKind.tool, "pay", f"paid {arguments['to']}", changed=True)


async def test_the_journal_holds_the_arguments_that_ran(tmp_path: Path) -> None:
    pay = Pay()
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), tools=(pay,))
    done(await bench.begin(Says([instead(to="b")])))
    assert pay.paid == ["b"]
    assert bench.sql("select arguments from tool_attempts") == ['{"to": "b"}']
    # What the model asked for is kept as it asked.
    assert '"a"' in bench.sql("select calls from step_turns where step = 1")[0].replace("\\", "")
    bench.check()


@pytest.mark.parametrize("at", range(3, 14))
async def test_an_effect_that_was_changed_is_done_once_wherever_the_process_ends(tmp_path: Path, at: int) -> None:
    pay = Pay()
    changes = Says([instead(to="b")])
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), changes, tools=(pay,))
    death = Death(at=at)
    await bench.begin(None, death)
    if not death.dead:
        pytest.skip("it had ended before")
    if not bench.stands:
        return
    paid = list(pay.paid)
    ran = await bench.go_on()
    if ran is not None and ran.outcome.kind is OutcomeKind.awaiting_recovery:
        [attempt] = bench.open_attempts()
        # What an operator reads is what may have been done.
        assert not paid or json.loads(attempt.arguments) == {"to": "b"}
        pay.paid.clear()
        ran = await bench.recover(Retry(attempt.key))
    else:
        assert not (paid and pay.paid != paid), "what was paid is not paid again"
    done(ran)
    assert pay.paid == ["b"] and bench.told()[0].startswith(CHANGED)
    bench.check()


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("word", [Completed, Abort])
async def test_what_an_operator_says_of_a_changed_call_that_was_cut_says_that_it_was_changed(
    tmp_path: Path, word: type[Completed | Abort], changed: bool
) -> None:
    says = Says([instead(to="b") if changed else Approval(True)])
    pay = Pay()
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), says, tools=(pay,))
    await bench.begin(None, Death(when=lambda rows: any(isinstance(row, CallDone) for row in rows)))
    await bench.go_on()
    [attempt] = bench.open_attempts()
    assert json.loads(attempt.arguments) == {"to": "b" if changed else "a"}
    ran = await bench.recover(Completed(attempt.key, "it was paid") if word is Completed else Abort(attempt.key))
    assert ran is not None and ran.terminal is not None
    [text] = bench.sql("select text from ledger_observations where step = 1")
    assert text.startswith(CHANGED) is changed
    assert text.endswith("it was paid" if word is Completed else "nobody knows whether it was done")
    assert len(pay.paid) == 1


async def test_a_call_that_may_have_acted_is_not_changed_any_more(tmp_path: Path) -> None:
    pay = Pay(late=True)
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), tools=(pay,))
    done(await bench.begin(Says([Approval(True), instead(to="b")])))
    assert pay.paid == ["a"] and "too late" in bench.told()[0] and CHANGED not in bench.told()[0]


@pytest.mark.parametrize("how", ["fails", "goes on", "asks again"])
async def test_a_tool_that_keeps_the_news_to_itself_does_nothing_unsaid(tmp_path: Path, how: str) -> None:
    class Swallows(Pay):
        read_only = False
        recovery = "replayable"

        async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
            try:
                await context.authorise(Act.exec, f"pay {arguments['to']}")
            except Exception as error:
                if how == "fails":
                    raise ToolFailed("something went wrong") from error
                if how == "asks again":
                    await context.authorise(Act.read, "a.txt")
            self.paid.append(arguments["to"])
            return Observation(ObservationKind.tool, "pay", "paid")

    tool = Swallows()
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), tools=(tool,))
    done(await bench.begin(Says([instead(to="b")])))
    [text] = bench.told()
    assert text.startswith(CHANGED)
    if how == "goes on":
        assert tool.paid == ["a"] and "it went on with arguments that its approver had changed" in text
    else:
        assert tool.paid == ["b"] and text.endswith("paid")


# ── what is no change ───────────────────────────────────────────────────────

BAD: list[tuple[Any, str]] = [
    ({"path": "b.txt"}, "'content' is missing"),
    ({"path": "b.txt", "content": "1", "mode": "x"}, "there is no 'mode'"),
    ({"path": 7, "content": "1"}, "'path' must be of type string"),
    ({"path": "b.txt", "content": None}, "'content' must be of type string"),
    ({}, "'path' is missing"),
    (["b.txt"], "must be a JSON object"),
    ("b.txt", "must be a JSON object"),
    ({"path": "b.txt", "content": float("nan")}, "no JSON"),
    ({"path": "b.txt", "content": b"1"}, "no JSON"),
    ({"path": "b.txt", "content": "1" * 1_000_001}, "characters; at most"),
]


@pytest.mark.parametrize(("modified", "why"), BAD)
async def test_an_approver_that_writes_what_is_no_call_lets_nothing_run(tmp_path: Path, modified: Any, why: str) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))
    done(await bench.begin(Says([Approval(True, modified=modified)])))
    assert not names(bench) and why in bench.told()[0]
    [row] = bench.questions(all=True)
    assert (row.decision, row.decided_by, row.modified) == ("denied", "runtime", None)


@pytest.mark.parametrize(("modified", "why"), BAD)
async def test_an_operator_who_writes_what_is_no_call_has_decided_nothing(tmp_path: Path, modified: Any, why: str) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await bench.begin()
    [row] = bench.questions()
    with pytest.raises(ConfigError) as refused:
        await bench.decide(row.request_id, True, modified=modified)
    assert why in str(refused.value) and "\n" not in str(refused.value)
    async with Store.open(bench.file) as store:
        with pytest.raises(ConfigError):
            await decide(store, row.request_id, True, "", (), modified)
    assert [each.request_id for each in bench.questions()] == [row.request_id]


async def test_a_tool_of_the_program_judges_what_was_written_for_it(tmp_path: Path) -> None:
    pay = Pay()
    bench = Bench(tmp_path, {"root": [[call("pay", to="a")], "done"]}, ask(Act.exec), Says([Defer()]), tools=(pay,))
    await bench.begin()
    [row] = bench.questions()
    with pytest.raises(ConfigError, match="'to' must be of type string"):
        await bench.decide(row.request_id, True, modified={"to": 1})
    # Who does not know the tool sees only that it is an object; the model is told what the tool makes of it.
    async with Store.open(bench.file) as store:
        assert (await decide(store, row.request_id, True, "", (), {"from": "b"})).won
    done(await bench.go_on())
    assert not pay.paid and bench.told()[0].startswith(CHANGED) and "KeyError" in bench.told()[0]


async def test_arguments_that_come_with_a_no_change_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))
    done(await bench.begin(Says([Approval(False, "no", modified={"path": "b.txt", "content": "1"})])))
    assert not names(bench) and CHANGED not in bench.told()[0]
    [row] = bench.questions(all=True)
    assert (row.decision, row.modified) == ("denied", None)


@pytest.mark.parametrize("stored", ["{", "", "[]", "7", '{"path": "b.txt", "path": "c.txt"}', "x'7b7d'"])
async def test_stored_arguments_that_cannot_be_read_let_nothing_run(tmp_path: Path, stored: str) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await bench.begin()
    value = stored if stored.startswith("x'") else f"'{stored}'"
    bench.sql(f"update pending_approvals set decision = 'approved', modified = {value}, decided_at = asked_at")
    done(await bench.go_on(Says([Approval(True)])))
    assert not names(bench) and "cannot be read" in bench.told()[0]


async def test_a_credential_in_changed_arguments_is_refused_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-0123456789-zyx"
    monkeypatch.setitem(os.environ, "SERVICE_API_KEY", canary)
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write))
    done(await bench.begin(Says([instead(path="a.txt", content=f"key {canary}")])))
    assert not names(bench) and "the value of a credential" in bench.told()[0]
    for file in bench.folder.glob("runs.db*"):
        assert canary.encode() not in file.read_bytes()
    later = Bench(tmp_path / "later", {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await later.begin()
    [row] = later.questions()
    with pytest.raises(ConfigError, match="credential") as refused:
        await later.decide(row.request_id, True, modified={"path": "a.txt", "content": canary})
    assert canary not in str(refused.value)


async def test_a_credential_in_a_reason_is_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-0123456789-zyx"
    monkeypatch.setitem(os.environ, "SERVICE_API_KEY", canary)
    bench = Bench(tmp_path, {"root": [[write("a.txt")], [write("b.txt")], "done"]}, ask(Act.write))
    assert await bench.begin(Says([Approval(False, f"not with {canary}"), Defer()])) is not None
    [row] = bench.questions()
    done(await bench.decide(row.request_id, False, f"nor with {canary}"))
    assert ["[secret]" in text and canary not in text for text in bench.told()] == [True, True]
    for file in bench.folder.glob("runs.db*"):
        assert canary.encode() not in file.read_bytes()


# ── older files ─────────────────────────────────────────────────────────────


async def test_a_file_of_before_calls_could_be_changed_is_read_as_unchanged_and_gone_on_with(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[write("a.txt")], "done"]}, ask(Act.write), Says([Defer()]))
    await bench.begin()
    bench.sql("alter table pending_approvals drop column modified")
    with open_reader(bench.file) as reader:
        [row] = reader.approvals(bench.run_id)
        state = reader.approval(row.request_id)
        assert row.modified is None and state is not None and state.modified is None
    done(await bench.decide(row.request_id, True, modified={"path": "b.txt", "content": "2"}))
    assert names(bench) == {"b.txt"}
    bench.check()


