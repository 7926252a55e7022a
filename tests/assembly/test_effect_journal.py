"""A call whose effect cannot be inspected is never done twice by itself: what nobody knows, a human says."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.agent import Agent
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
from actors.agents.rows import ApprovalApplied, AttemptBegun, AttemptClosed, Row, RunFinished, StepDone
from actors.assembly.recovering import Abort, Completed, Retry
from actors.assembly.running import RunResult
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.halts import Halt, HaltKind
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench, finished
from actors.tools.toolbox import builtin_tools


@attrs.define
class Charge:
    """A tool whose effect only its own list tells: who was charged, and under which key.

    ``inside`` is called when it has been done, ``outside`` before; ``asks`` asks the policy first.
    """

    name: str = "charge"
    recovery: str | None = None
    read_only: bool = False
    asks: bool = False
    text: str = "charged"
    done: list[str] = attrs.Factory(list)
    keys: list[str] = attrs.Factory(list)
    outside: Callable[[], Any] | None = None
    inside: Callable[[], Any] | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "Charge somebody.", {"type": "object", "properties": {"who": {"type": "string"}}})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        if self.asks:
            await context.authorise(Act.exec, self.name)
        self.keys.append(context.key)
        if self.outside is not None:
            await _ended(self.outside)
        self.done.append(arguments["who"])
        if self.inside is not None:
            await _ended(self.inside)
        return Observation(ObservationKind.tool, self.name, f"{self.text} {arguments['who']}", changed=True)


async def _ended(end: Callable[[], Any]) -> None:
    end()
    await trio.sleep_forever()


@attrs.define
class Puts:
    """An approver that says the same to everybody."""

    says: Approval | Defer = attrs.Factory(Defer)
    requests: list[ApprovalRequest] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        return self.says


PAY = call("charge", who="Ann")
# The same at the root, and two levels down.
ALONE: dict[str, Any] = {"root": [[call("list_dir", path="."), PAY], "done"]}
NESTED: dict[str, Any] = {
    "root": [[spawn("one")], "done"],
    "one": [[spawn("two")], "one done"],
    "two": [[call("list_dir", path="."), PAY], "two done"],
}
TREES = {"root": (ALONE, "root"), "depth 2": (NESTED, "two")}


def bench_of(folder: Path, tool: Charge, tree: str = "root", **more: Any) -> Bench:
    return Bench(folder, TREES[tree][0], tools=(*builtin_tools(), tool), **more)


def closes(resolution: str) -> Callable[[Sequence[Row]], bool]:
    return holds(AttemptClosed, lambda row: row.resolution == resolution)


def paused(ran: RunResult | None) -> str:
    assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_recovery and ran.terminal is None
    assert ran.outcome.request is not None
    return ran.outcome.request


# ── where the process ended ─────────────────────────────────────────────────


@pytest.mark.parametrize("tree", TREES)
async def test_killed_before_the_intent_stands_the_call_is_simply_run(tmp_path: Path, tree: str) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    assert await bench.begin(death=Death(when=holds(AttemptBegun))) is None
    assert not tool.done and not bench.open_attempts()
    assert finished(await bench.go_on()) and tool.done == ["Ann"]
    assert bench.told(TREES[tree][1])[-1] == "charged Ann"
    bench.check()


@pytest.mark.parametrize("tree", TREES)
async def test_killed_between_intent_and_effect_nothing_is_run_before_a_human_has_said_so(
    tmp_path: Path, tree: str
) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    assert await bench.begin(death=Death(when=holds(AttemptBegun), after=True)) is None
    for _ in range(3):
        key = paused(await bench.go_on())
        assert not bench.models[-1].requests and not tool.done
        [row] = bench.open_attempts()
        assert row.key == key and row.tool == "charge"
        bench.check()
    assert finished(await bench.recover(Retry(key))) and tool.done == ["Ann"]
    bench.check()


@pytest.mark.parametrize("tree", TREES)
async def test_killed_between_effect_and_its_record_what_the_human_knows_is_what_the_model_reads(
    tmp_path: Path, tree: str
) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    assert await bench.begin(death=Death(when=closes("done"))) is None
    assert tool.done == ["Ann"]
    key = paused(await bench.go_on())
    assert finished(await bench.recover(Completed(key, "Ann was charged: the bank says so")))
    assert tool.done == ["Ann"] and not bench.open_attempts()
    assert bench.told(TREES[tree][1])[-1] == "Ann was charged: the bank says so"
    bench.check()


@pytest.mark.parametrize("tree", TREES)
async def test_killed_inside_the_call_it_is_the_same(tmp_path: Path, tree: str) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    tool.inside = bench.kill
    assert await bench.begin(death=Death()) is None
    tool.inside = None
    key = paused(await bench.go_on())
    assert tool.done == ["Ann"]
    assert finished(await bench.recover(Completed(key, "done"))) and tool.done == ["Ann"]
    bench.check()


@pytest.mark.parametrize("tree", TREES)
async def test_killed_after_the_record_stands_the_tool_is_not_called_again_and_its_text_is_read(
    tmp_path: Path, tree: str
) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    assert await bench.begin(death=Death(when=closes("done"), after=True)) is None
    assert not bench.open_attempts()
    assert finished(await bench.go_on()) and tool.done == ["Ann"]
    assert bench.told(TREES[tree][1])[-1] == "charged Ann"
    bench.check()


@pytest.mark.parametrize("tree", TREES)
async def test_a_call_that_is_given_up_ends_its_agent_as_denied_and_nobody_else(tmp_path: Path, tree: str) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool, tree)
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    key = paused(await bench.go_on())
    ran = await bench.recover(Abort(key))
    assert ran is not None and not tool.done
    outcomes = {path: each.outcome for path, each in bench.agents().items()}
    if tree == "root":
        assert outcomes == {"root": "denied"} and ran.outcome.kind is OutcomeKind.denied
    else:
        assert outcomes == {"root": "finished", "root/1.1": "finished", "root/1.1/1.1": "denied"}
    bench.check()


async def test_a_call_that_was_given_up_stays_so_when_the_process_ends_before_its_agent_has(tmp_path: Path) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool)
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    key = paused(await bench.go_on())
    assert await bench.recover(Abort(key), death=Death(when=holds(RunFinished))) is None
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.denied and not tool.done
    assert len(bench.requests("root")) == 1
    bench.check()


async def test_whoever_only_waited_for_a_child_does_nothing_again_when_that_childs_call_is_recovered(
    tmp_path: Path,
) -> None:
    """Recovery pauses the tree; what the root had decided before must survive that."""
    tool = Charge()
    answers = {"root": [[spawn("pays", wait=False)], "done"], "pays": [[PAY], "paid"]}
    bench = Bench(tmp_path, answers, tools=(*builtin_tools(), tool))
    release = trio.Event()

    async def hold(request: Any) -> None:
        if request.turns[0].text.startswith("pays") and len(request.turns) == 1:
            await release.wait()

    async def watch() -> None:
        while bench.tree is None or bench.tree.root is None or not bench.tree.root.over:
            await trio.sleep(0.01)
        release.set()

    bench.before = hold
    tool.inside = bench.kill
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        assert await bench.begin(death=Death()) is None
    tool.inside, bench.before = None, None
    assert bench.agents()["root"].status == "draining"
    key = paused(await bench.go_on())
    ran = await bench.recover(Completed(key, "paid"))
    assert finished(ran) and ran is not None and ran.said == "done" and tool.done == ["Ann"]
    assert len(bench.requests("root")) == 2
    bench.check()


async def test_two_open_calls_are_asked_about_one_after_the_other_the_oldest_first(tmp_path: Path) -> None:
    tool = Charge()
    answers = {"root": [[spawn("a"), spawn("b")], "done"], "a": [[PAY], "a"], "b": [[call("charge", who="Bob")], "b"]}
    bench = Bench(tmp_path, answers, tools=(*builtin_tools(), tool))

    def last() -> None:
        if len(tool.done) == 2:
            bench.kill()

    tool.inside = last
    assert await bench.begin(death=Death()) is None
    tool.inside = None
    first, second = bench.open_attempts()
    ran = await bench.go_on()
    assert paused(ran) == first.key and ran is not None and "2 calls" in ran.outcome.message
    assert paused(await bench.recover(Completed(first.key, "one"))) == second.key
    assert finished(await bench.recover(Completed(second.key, "two")))
    assert sorted(tool.done) == ["Ann", "Bob"]
    bench.check()


# ── who writes, and who does not ────────────────────────────────────────────


@pytest.mark.parametrize("more", [{"read_only": True}, {"recovery": "replayable"}])
async def test_what_only_reads_and_what_may_be_run_again_writes_no_row(tmp_path: Path, more: dict[str, Any]) -> None:
    bench = bench_of(tmp_path, Charge(**more))
    assert finished(await bench.begin())
    assert bench.sql("select count(*) from tool_attempts") == [0]


async def test_what_only_reads_can_still_ask_for_a_human(tmp_path: Path) -> None:
    tool = Charge(read_only=True, recovery="indeterminate")
    bench = bench_of(tmp_path, tool)
    await bench.begin(death=Death(when=closes("done")))
    assert paused(await bench.go_on())


async def test_the_builtin_tools_write_no_row(tmp_path: Path) -> None:
    calls = [
        call("write_file", path="a", content="1"),
        call("edit_file", path="a", search="1", replace="2"),
        call("exec", argv=["true"]),
        call("read_file", path="a"),
        call("search", pattern="2"),
        call("list_dir", path="."),
    ]
    bench = Bench(tmp_path, {"root": [calls, "done"]})
    assert finished(await bench.begin())
    assert bench.sql("select count(*) from tool_attempts") == [0]


async def test_the_key_of_a_call_is_the_same_in_every_process_and_another_for_every_call(tmp_path: Path) -> None:
    tool = Charge()
    answers: dict[str, Any] = {"root": [[PAY, PAY], [spawn("child")], "done"], "child": [[PAY, PAY], "paid"]}
    bench = Bench(tmp_path, answers, tools=(*builtin_tools(), tool))
    tool.outside = bench.kill
    await bench.begin(death=Death())
    key = paused(await bench.go_on())
    assert await bench.recover(Retry(key), Death()) is None
    assert paused(await bench.go_on()) == key
    tool.outside = None
    assert finished(await bench.recover(Retry(key)))
    assert tool.keys[:3] == [key] * 3 and len(set(tool.keys)) == 4 and len(tool.done) == 4
    assert bench.sql("select attempt from tool_attempts order by key") [0] == 3
    bench.check()


# ── who may decide, and when ────────────────────────────────────────────────


async def test_a_decision_on_a_call_that_is_closed_foreign_or_unknown_is_refused(tmp_path: Path) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool)
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    foreign = paused(await bench.go_on())
    first = bench.run_id
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    key = paused(await bench.go_on())
    for bad in (foreign, "nobody#1.1", ""):
        for kind in (Retry, Abort):
            with pytest.raises(ConfigError, match="no call of"):
                await bench.recover(kind(bad))
    assert [row.key for row in bench.open_attempts()] == [key] and not tool.done
    assert finished(await bench.recover(Retry(key)))
    with pytest.raises(ConfigError, match="has ended"):
        await bench.recover(Retry(key))
    bench.run_id = first
    assert finished(await bench.recover(Completed(foreign, "x"))) and tool.done == ["Ann"]


async def test_a_second_decision_on_one_call_is_refused_while_the_run_goes_on(tmp_path: Path) -> None:
    tool = Charge()
    bench = bench_of(tmp_path, tool)
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    key = paused(await bench.go_on())
    assert await bench.recover(Completed(key, "paid"), Death(when=closes("completed"), after=True)) is None
    with pytest.raises(ConfigError, match="no call of"):
        await bench.recover(Retry(key))
    assert finished(await bench.go_on()) and not tool.done and bench.told()[-1] == "paid"


async def test_what_a_human_tells_of_a_call_is_safe_and_bounded_like_any_result(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, Charge())
    await bench.begin(death=Death(when=holds(AttemptBegun), after=True))
    key = paused(await bench.go_on())
    assert finished(await bench.recover(Completed(key, "\ud800\x00" + "x" * 1_000_000)))
    told = bench.told()[-1]
    assert told.startswith("\ufffd\ufffd") and "characters left out" in told and len(told) < 100_000
    bench.check()


# ── a call that asks first ──────────────────────────────────────────────────


def asking(folder: Path, tool: Charge) -> Bench:
    return bench_of(folder, tool, policy=Policy.permissive().layer("operator").ask_exec("*"), approver=Puts())


async def test_a_call_that_waits_for_an_answer_is_not_open_over_any_number_of_resumes(tmp_path: Path) -> None:
    tool = Charge(asks=True)
    bench = asking(tmp_path, tool)
    for ran in (await bench.begin(), await bench.go_on(), await bench.go_on()):
        assert ran is not None and ran.outcome.kind is OutcomeKind.awaiting_approval
        assert not bench.open_attempts() and not tool.keys
        bench.check()
    [row] = bench.questions()
    assert finished(await bench.decide(row.request_id, True)) and tool.done == ["Ann"]
    bench.check()


async def test_a_process_that_ends_while_such_a_call_asks_leaves_nothing_open(tmp_path: Path) -> None:
    tool = Charge(asks=True)
    bench = asking(tmp_path, tool)

    class Ends:
        async def decide(self, request: ApprovalRequest) -> Approval:
            bench.kill()
            await trio.sleep_forever()
            raise AssertionError

    assert await bench.begin(Ends(), Death()) is None
    for _ in range(2):
        assert not bench.open_attempts()
        assert await bench.go_on(Ends(), Death()) is None
    assert not bench.open_attempts()
    assert finished(await bench.go_on(Puts(Approval(True)))) and tool.done == ["Ann"]
    bench.check()


async def test_a_call_that_was_allowed_is_open_from_the_moment_it_may_be_done(tmp_path: Path) -> None:
    tool = Charge(asks=True)
    bench = asking(tmp_path, tool)
    await bench.begin()
    [row] = bench.questions()
    assert await bench.decide(row.request_id, True, death=Death(when=holds(ApprovalApplied), after=True)) is None
    assert not tool.done
    key = paused(await bench.go_on())
    assert finished(await bench.recover(Completed(key, "paid"))) and not tool.done
    bench.check()


async def test_a_call_that_was_allowed_at_once_is_open_while_it_is_done(tmp_path: Path) -> None:
    tool = Charge(asks=True)
    bench = asking(tmp_path, tool)
    tool.inside = bench.kill
    assert await bench.begin(Puts(Approval(True)), Death()) is None
    assert tool.done == ["Ann"]
    key = paused(await bench.go_on())
    assert finished(await bench.recover(Completed(key, "paid"))) and tool.done == ["Ann"]
    bench.check()


async def test_a_call_that_a_human_denied_is_closed_and_never_run(tmp_path: Path) -> None:
    tool = Charge(asks=True)
    bench = asking(tmp_path, tool)
    await bench.begin()
    [row] = bench.questions()
    assert finished(await bench.decide(row.request_id, False, "no money"))
    assert not tool.done and not bench.open_attempts() and "no money" in bench.told()[-1]
    bench.check()


# ── ends ────────────────────────────────────────────────────────────────────


async def test_an_agent_that_ends_for_good_in_the_middle_of_a_call_leaves_none_that_waits_for_a_human(
    tmp_path: Path,
) -> None:
    """Its child's time is over while the call runs; nobody will read what became of it."""
    tool = Charge()
    answers: dict[str, Any] = {"root": [[spawn("slow")], [call("list_dir", path=".")], "done"], "slow": [[PAY], "paid"]}
    bench = Bench(tmp_path, answers, tools=(*builtin_tools(), tool))

    def stop() -> None:
        assert bench.tree is not None and bench.tree.root is not None
        child = next(iter(bench.tree.root.children or ()))
        assert isinstance(child, Agent)
        bench.tree.stop_below(child, Halt(HaltKind.duration, "timer", trio.current_time(), child.path, "over"))

    tool.inside = stop
    death = Death(when=holds(StepDone, lambda row: row.step == 2))
    assert await bench.begin(death=death) is None
    assert bench.agents()["root/1.1"].status == "completed"
    assert not bench.open_attempts()
    bench.check()
    assert finished(await bench.go_on())
    bench.check()


async def test_a_process_may_end_at_any_commit_and_no_call_is_done_twice_by_itself(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "root": [[spawn("child"), spawn("beside", wait=False), PAY], [call("list_dir", path=".")], "done"],
        "child": [[call("charge", who="Bob"), call("charge", who="Cid")], "child done"],
        "beside": [[call("charge", who="Dan")], "beside done"],
    }
    for after, keep in ((False, False), (True, True)):
        for at in range(1, 80):
            tool = Charge()
            folder = tmp_path / f"{after}{keep}{at}"
            folder.mkdir()
            bench = Bench(folder, answers, tools=(*builtin_tools(), tool), limits=Containment(3, 2, 3, 100_000))
            death = Death(at, after=after, keep_appended=keep)
            ran = await bench.begin(death=death)
            if not death.dead:
                break
            if not bench.stands:
                continue
            # What a killed process leaves is the beginning of a true story.
            bench.check()
            ran = await bench.go_on()
            # The human looks, and says what is true.
            while ran is not None and ran.outcome.kind is OutcomeKind.awaiting_recovery:
                row = next(each for each in bench.open_attempts() if each.key == ran.outcome.request)
                who = row.arguments.split('"')[3]
                told = Completed(row.key, f"charged {who}") if who in tool.done else Retry(row.key)
                ran = await bench.recover(told)
            where = (after, keep, at)
            assert finished(ran), (where, ran)
            assert sorted(tool.done) == ["Ann", "Bob", "Cid", "Dan"], (where, tool.done)
            assert len(set(tool.keys)) == 4
            assert bench.told("child") == ["charged Bob", "charged Cid"], where
            [spent] = bench.sql("select sum(used_tokens) from reservations")
            [sure] = bench.sql("select sum(used_tokens) from reservations where state = 'settled'")
            assert sure <= bench.billed <= spent, where
            assert bench.sql("select agents from ledger") == bench.sql("select count(*) from runs") == [3], where
            bench.check()
        assert at > 15
