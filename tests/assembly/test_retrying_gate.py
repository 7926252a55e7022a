"""Only an attempt that errored is made again, and only the criterion is: the model is asked nothing."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.assembly.reopening import reopen
from actors.assembly.resuming import resume_from_stored_policy
from actors.assembly.retrying_gate import GateResult, retry_gate
from actors.assembly.running import run_tree, run_with
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind, RunConflict, StoreError
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.audit import audit
from actors.store.audit_findings import Verdict
from actors.store.store import Store
from actors.testing.dying_store import Death, open_dying_store
from actors.testing.goal_model import GoalModel, call, spawn

LOOK = call("list_dir", path=".")
REVIEW = Verification.review("kind?")
LIMITS = Containment(10, 4, 2, 100_000)
UNREADABLE = ScriptedAnswer(text="hm", usage=Usage(100, 20))
YES = ScriptedAnswer(text='{"verdict": "yes"}', usage=Usage(30, 3))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def judge(*answers: ScriptedAnswer, model: str = "judge-1") -> Scripted:
    return Scripted(answers, name="judge", model=model)


async def ended(store: Store, work: Path, verify: Verification, reviewer: Any = None, **more: Any) -> str:
    """Run one step and give the id; its step cap ends it."""
    contract = TaskContract.workspace("go", work, verify, **more).with_max_steps(1)
    model = Scripted([ScriptedAnswer(calls=(LOOK,), usage=Usage(10, 5))])
    result = await run_with(contract, model, store, Policy.permissive(), ApproveAll(), reviewer=reviewer)
    assert result.outcome.kind in (OutcomeKind.step_cap_reached, OutcomeKind.success)
    return result.run_id


def checked(store: Store, run_id: str) -> None:
    found = audit(store, run_id)
    assert found.verdict is Verdict.ok, [str(each) for each in (*found.violations, *found.missing)]


async def test_a_check_that_could_not_be_made_is_made_again_on_the_files_of_now(tmp_path: Path, work: Path) -> None:
    async with Store.open(tmp_path / "runs.db") as store:
        run_id = await ended(store, work, Verification.command(["./made.sh"]))
        terminal = store.terminal(run_id)
        again = await retry_gate(run_id, store)
        assert (again.verdict, again.step) == ("errored", 1), "nothing has changed"
        (work / "made.sh").write_text("#!/bin/sh\necho fine\n")
        (work / "made.sh").chmod(0o755)
        assert await retry_gate(run_id, store) == GateResult(run_id, 1, "command", "passed", "exit code 0\nfine\n")
        assert [gate.verdict for gate in store.gate_attempts(run_id)] == ["errored", "errored", "passed"]
        assert len(store.provider_calls(run_id)) == 1 and len(store.steps(run_id)) == 1
        # The run keeps its end: there is one.
        assert store.terminal(run_id) == terminal and store.run(run_id).outcome == "step_cap_reached"  # type: ignore[union-attr]
        told = [json.loads(each.event) for each in store.trace(run_id)]
        assert [each["verdict"] for each in told if each["kind"] == "gate" and each.get("again")] == ["errored", "passed"]
        checked(store, run_id)


@pytest.mark.parametrize(("argv", "verdict"), [(["true"], "passed"), (["false"], "failed")])
async def test_a_verdict_that_was_reached_stands(work: Path, argv: list[str], verdict: str) -> None:
    store = Store.memory()
    run_id = await ended(store, work, Verification.command(argv))
    with pytest.raises(ConfigError, match=f"was judged at step 1: {verdict}; only an attempt that errored"):
        await retry_gate(run_id, store)
    assert len(store.gate_attempts(run_id)) == 1


async def test_what_was_never_judged_cannot_be_judged_again(work: Path) -> None:
    store = Store.memory()
    run_id = await ended(store, work, Verification.none())
    with pytest.raises(ConfigError, match="was never judged"):
        await retry_gate(run_id, store)
    with pytest.raises(ConfigError, match="no run begins with 'nobody'"):
        await retry_gate("nobody", store)
    with pytest.raises(ConfigError, match=f"there is no run {run_id}/9.9"):
        await retry_gate(f"{run_id[:5]}/9.9", store)


async def test_the_judge_is_still_the_one_of_the_start(work: Path) -> None:
    """An attempt that errored because the tests were changed does not pass by being made again."""
    store = Store.memory()
    (work / "tests.sh").write_text("exit 1\n")
    contract = TaskContract.workspace(
        "go", work, Verification.command(["sh", "tests.sh"], protect=["tests.sh"])
    ).with_max_steps(1)
    model = Scripted([[call("write_file", path="tests.sh", content="exit 0\n")]])
    result = await run_with(contract, model, store, Policy.permissive(), ApproveAll())
    assert (await retry_gate(result.run_id, store)).verdict == "errored"
    (work / "tests.sh").write_text("exit 1\n")
    assert (await retry_gate(result.run_id, store)).verdict == "failed", "the operator put it back"


@pytest.mark.parametrize("place", ["outside", "work"])
@pytest.mark.parametrize("way", ["retry", "reopen"])
async def test_a_program_that_was_missing_is_installed_by_the_operator(
    tmp_path: Path, work: Path, monkeypatch: Any, place: str, way: str
) -> None:
    """Outside the workspace, where the worker has no hand in it; inside it could be the worker's."""
    tools = tmp_path / "tools" if place == "outside" else work / "bin"
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    async with Store.open(tmp_path / "runs.db") as store:
        run_id = await ended(store, work, Verification.command(["no-such-judge"]))
        assert [gate.verdict for gate in store.gate_attempts(run_id)] == ["errored"]
        tools.mkdir()
        (tools / "no-such-judge").write_text("#!/bin/sh\nexit 0\n")
        (tools / "no-such-judge").chmod(0o755)
        if way == "retry":
            again = await retry_gate(run_id[:6], store)
        else:
            contract = TaskContract.workspace("go", work, Verification.command(["no-such-judge"])).with_max_steps(2)
            model = Scripted([ScriptedAnswer(calls=(LOOK,))])
            new_id = (await reopen(run_id, model, store, approver=ApproveAll(), contract=contract)).run_id
            again = store.gate_attempts(new_id)[-1]  # type: ignore[assignment]
        assert again.verdict == ("passed" if place == "outside" else "errored"), again.detail
        assert place == "outside" or "program no-such-judge (changed)" in again.detail


async def test_a_childs_check_is_made_again_by_the_childs_own_rights(work: Path) -> None:
    store = Store.memory()
    verify = {"kind": "command", "argv": ["touch", "made"]}
    answers = [
        ScriptedAnswer(when="the root", calls=(spawn("the child", verify=verify, max_steps=1),)),
        ScriptedAnswer(when="the child", calls=(LOOK,)),
    ]
    contract = TaskContract.workspace("the root", work, Verification.none())
    policy = Policy.permissive().layer("o").deny_exec("touch*")
    result = await run_tree(contract, Scripted(answers), store, policy, ApproveAll(), LIMITS)
    [child] = store.children(result.run_id)
    assert (await retry_gate(child, store)).verdict == "errored" and not (work / "made").exists()
    short = child.replace(result.run_id, result.run_id[:4])
    assert short != child and (await retry_gate(short, store)).run_id == child


class Stops(GoalModel):
    """Never answers the second question."""

    async def complete(self, request: Any) -> Any:
        if len(request.turns) > 1:
            await trio.sleep_forever()
        return await super().complete(request)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_run_that_goes_on_begins_with_the_new_verdict(
    tmp_path: Path, work: Path, asked: bool, again: bool
) -> None:
    """Whether the model was asked for the next step or not, when its process ended."""
    file, tree, answers = tmp_path / "runs.db", [], {"go": [[LOOK], [LOOK], [LOOK]]}
    death = Death(when=lambda rows: not asked and any(type(row).__name__ == "Reserved" and row.step == 2 for row in rows))
    contract = TaskContract.workspace("go", work, Verification.command(["./made.sh"])).with_max_steps(2)
    try:
        async with open_dying_store(file, death) as store:
            with trio.move_on_after(1):
                await run_with(contract, Stops(answers), store, Policy.permissive(), ApproveAll(), on_open=tree.append)
    except StoreError:
        pass
    assert death.dead is not asked
    run_id, model = tree[0].run_id, GoalModel(answers)
    async with Store.open(file) as store:
        if again:
            (work / "made.sh").write_text("#!/bin/sh\n")
            (work / "made.sh").chmod(0o755)
            assert (await retry_gate(run_id, store)).verdict == "passed"
        result = await resume_from_stored_policy(run_id, model, store, ApproveAll())
        ends = OutcomeKind.success if again else OutcomeKind.step_cap_reached
        assert result.outcome.kind is ends and len(model.requests) == int(not again)
        checked(store, run_id)


async def test_nobody_tries_again_while_a_process_drives_the_run(work: Path) -> None:
    store = Store.memory()
    run_id = await ended(store, work, Verification.command(["./made.sh"]))
    store.driven.add(run_id)
    with pytest.raises(RunConflict):
        await retry_gate(run_id, store)
    store.driven.discard(run_id)
    await retry_gate(run_id, store)
    assert store.driven == set()


# ── reviews ─────────────────────────────────────────────────────────────────


async def test_a_review_is_made_again_and_paid_for_and_the_books_still_close(tmp_path: Path, work: Path) -> None:
    async with Store.open(tmp_path / "runs.db") as store:
        run_id = await ended(store, work, REVIEW, judge(UNREADABLE))
        before = store.run(run_id)
        assert before is not None and before.spent_tokens == 135
        reviewer = judge(YES)
        again = await retry_gate(run_id, store, reviewer=reviewer)
        assert (again.phase, again.verdict, reviewer.calls) == ("review", "passed", 1)
        after, ledger = store.run(run_id), store.ledger(run_id)
        assert after is not None and after.spent_tokens == 168
        assert ledger is not None and (ledger.spent_tokens, ledger.calls, ledger.reserved_tokens) == (168, 3, 0)
        assert [each.purpose for each in store.provider_calls(run_id)] == [None, "review", "review"]
        told = [json.loads(each.event)["kind"] for each in store.trace(run_id)]
        assert told[-2:] == ["reviewed", "gate"]
        checked(store, run_id)


@pytest.mark.parametrize(
    ("reviewer", "told"),
    [
        (None, "is missing"),
        (judge(YES, model="configured-model"), "is the model of the run itself"),
        (judge(YES, model="x/configured-model"), "is the model of the run itself"),
    ],
)
async def test_who_did_the_work_does_not_review_it_the_second_time_either(work: Path, reviewer: Any, told: str) -> None:
    store = Store.memory()
    run_id = await ended(store, work, REVIEW, judge(UNREADABLE))
    with pytest.raises(ConfigError, match=told):
        await retry_gate(run_id, store, reviewer=reviewer)
    assert len(store.gate_attempts(run_id)) == 1


@pytest.mark.parametrize(("rule", "host"), [("judge.example", "judge.example:443"), ("judge.*", "judge.example:443"), ("x", "y:1")])
async def test_a_host_that_the_policy_denies_by_a_rule_is_asked_nothing(work: Path, rule: str, host: str) -> None:
    """As when the run began: a default of deny does not keep the reviewer from it, a rule does."""

    class Elsewhere(Scripted):
        endpoint = host  # type: ignore[assignment]

    store = Store.memory()
    contract = TaskContract.workspace("go", work, REVIEW).with_max_steps(1)
    policy = Policy.default().layer("o").deny_net(rule)
    model = Scripted([ScriptedAnswer(calls=(LOOK,))])
    result = await run_with(contract, model, store, policy, ApproveAll(), reviewer=judge(UNREADABLE))
    reviewer = Elsewhere([YES], name="judge", model="judge-1")
    if rule == "x":
        assert (await retry_gate(result.run_id, store, reviewer=reviewer)).verdict == "passed", "the control"
        return
    with pytest.raises(ConfigError, match=f"judge.example:443 may not be reached: the rule {re.escape(repr(rule))} of o denies it"):
        await retry_gate(result.run_id, store, reviewer=reviewer)
    assert reviewer.calls == 0 and len(store.gate_attempts(result.run_id)) == 1


async def test_what_stood_around_the_command_is_written_down_again(work: Path) -> None:
    store = Store.memory()
    run_id = await ended(store, work, Verification.command(["./made.sh"]))
    before = store.select("SELECT step, ordinal, mode, backend, net, not_held FROM sandbox_events")
    await retry_gate(run_id, store)
    after = store.select("SELECT step, ordinal, mode, backend, net, not_held FROM sandbox_events")
    assert len(before) == 1 and after == before * 2
    told = [each for each in (json.loads(row.event) for row in store.trace(run_id)) if each["kind"] == "sandbox"]
    assert [each.get("again", False) for each in told] == [False, True]
    checked(store, run_id)


async def test_a_review_that_fails_again_is_errored_and_charged(work: Path) -> None:
    store = Store.memory()
    run_id = await ended(store, work, REVIEW, judge(UNREADABLE))
    busy = ScriptedAnswer(error=ProviderError(ProviderErrorKind.server, "busy", status=503))
    again = await retry_gate(run_id, store, reviewer=judge(busy))
    assert again.verdict == "errored" and "busy" in again.detail
    checked(store, run_id)


@pytest.mark.parametrize(("tokens", "verdict"), [(135, "errored"), (400, "passed")])
async def test_what_the_ceilings_leave_is_all_there_is(work: Path, tokens: int, verdict: str) -> None:
    store, reviewer = Store.memory(), judge(YES)
    contract = TaskContract.workspace("go", work, REVIEW).with_max_steps(1)
    model = Scripted([ScriptedAnswer(calls=(LOOK,), usage=Usage(10, 5))])
    given = (contract, model, store, Policy.permissive(), ApproveAll(), Containment(1, 1, 0, tokens))
    result = await run_tree(*given, reviewer=judge(UNREADABLE))
    again = await retry_gate(result.run_id, store, reviewer=reviewer)
    assert again.verdict == verdict and reviewer.calls == int(verdict == "passed")
    checked(store, result.run_id)


async def test_nothing_is_spent_in_the_name_of_a_run_that_a_ceiling_stopped(work: Path) -> None:
    store, reviewer = Store.memory(), judge(YES)
    contract = TaskContract.workspace("go", work, REVIEW).with_max_steps(5)
    model = Scripted([ScriptedAnswer(calls=(LOOK,), usage=Usage(10, 5))] * 3)
    given = (contract, model, store, Policy.permissive(), ApproveAll(), Containment(1, 1, 0, 140))
    result = await run_tree(*given, reviewer=judge(UNREADABLE, UNREADABLE))
    assert result.outcome.kind is OutcomeKind.budget_ceiling_reached
    again = await retry_gate(result.run_id, store, reviewer=reviewer)
    assert again.verdict == "errored" and "was stopped (tokens)" in again.detail and reviewer.calls == 0
    checked(store, result.run_id)


async def test_a_second_try_that_is_stopped_or_killed_is_charged_in_full_once(tmp_path: Path, work: Path) -> None:
    file = tmp_path / "runs.db"
    async with Store.open(file) as store:
        run_id = await ended(store, work, REVIEW, judge(UNREADABLE))
        hangs = judge(ScriptedAnswer(hang=True, usage=Usage(40, 2)))
        with trio.move_on_after(0.2) as scope:
            await retry_gate(run_id, store, reviewer=hangs)
        assert scope.cancelled_caught and hangs.calls == 1
        assert store.run(run_id).spent_tokens == 135 + 42  # type: ignore[union-attr]
        checked(store, run_id)
    # The process ends when the answer has come and nothing of it stands.
    death = Death(when=lambda rows: any(type(row).__name__ == "GateTried" for row in rows))
    with pytest.raises(StoreError):
        async with open_dying_store(file, death) as store:
            await retry_gate(run_id, store, reviewer=judge(YES))
    async with Store.open(file) as store:
        assert (await retry_gate(run_id, store, reviewer=judge(YES))).verdict == "passed"
        assert store.run(run_id).spent_tokens == 135 + 42 + 33 + 33  # type: ignore[union-attr]
        checked(store, run_id)
