"""What fails is named where people and models look, and takes nobody with it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    CompletionRequest,
    Observation,
    ObservationKind,
    Provider,
    ResultsTurn,
    ToolContext,
    ToolSpec,
    UserTurn,
)
from actors.agents.roster import AgentDef, Agents
from actors.agents.tree import Tree
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.halts import HaltKind
from actors.providers.openai_chat import OpenAIChat
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.records import RunRecord
from actors.store.store import Store
from actors.testing.model_script import Answer, SaidCall
from actors.testing.model_server import open_model_server

LIMITS = Containment(100, 100, 4, 10**9)
NOT_FOUND = ProviderError(ProviderErrorKind.request, "no model named gone", status=404)


@attrs.frozen
class Hangs:
    """A tool that never returns, and says whether it was stopped."""

    log: list[str] = attrs.Factory(list)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("hang", "hang", {"type": "object"})

    @property
    def read_only(self) -> bool:
        return True

    async def run(self, _arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        self.log.append("began")
        try:
            await trio.sleep_forever()
        finally:
            self.log.append("stopped")
        return Observation(ObservationKind.tool, "hang", "never")


class Timed(Scripted):
    """A scripted provider that keeps when and for which goal it was asked."""

    def __init__(self, answers: list[ScriptedAnswer]) -> None:
        super().__init__(answers)
        self.asked: list[tuple[float, str]] = []

    async def complete(self, request: CompletionRequest) -> Any:
        first = request.turns[0]
        assert isinstance(first, UserTurn)
        self.asked.append((trio.current_time(), first.text))
        return await super().complete(request)


class Buggy(Scripted):
    """A provider with a bug: it raises what no provider may."""

    async def complete(self, request: CompletionRequest) -> Any:
        completion = await super().complete(request)
        if completion.text == "bug":
            raise ZeroDivisionError("a bug in the provider")
        return completion


def task(root: Path, **fields: Any) -> TaskContract:
    return TaskContract.workspace("the root's goal", root, **fields)


def say(*calls: Any, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, usage=more.pop("usage", Usage(60, 40)), **more)


def spawn(goal: str = "child", agent: str = "") -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}, "agent": agent})


@attrs.frozen
class Ran:
    store: Store
    tree: Tree
    result: RunResult

    @property
    def kind(self) -> OutcomeKind:
        return self.result.outcome.kind

    def agents(self) -> dict[str, RunRecord]:
        return {agent.path: agent for agent in self.store.agents(self.result.run_id)}

    def terminal(self, path: str = "root") -> dict[str, Any]:
        text = self.store.terminal(self.agents()[path].run_id)
        assert text is not None
        plain: dict[str, Any] = json.loads(text)
        return plain

    def events(self, kind: str) -> list[dict[str, Any]]:
        told = [json.loads(event.event) for event in self.store.trace(self.result.run_id)]
        return [event for event in told if event["kind"] == kind]


async def run(contract: TaskContract, provider: Provider, *tools: Any, limits: Containment = LIMITS) -> Ran:
    trees: list[Tree] = []
    store = Store.memory()
    result = await run_tree(
        contract, provider, store, Policy.permissive(), ApproveAll(), limits, tools=tools, on_open=trees.append
    )
    return checked(Ran(store, trees[0], result), provider)


def checked(ran: Ran, provider: Provider) -> Ran:
    """Look at what must hold after every run."""
    ledger = ran.tree.ledger.snapshot()
    assert ran.tree.leaks().empty and ran.tree.slots.out == 0
    assert (ledger.reserved_tokens, ledger.reserved_microdollars) == (0, 0)
    if isinstance(provider, Scripted):
        assert ledger.spent_tokens + ledger.overrun_tokens == provider.billed_tokens
        assert ledger.calls == provider.calls
    ended = [event["path"] for event in ran.events("finished")]
    assert sorted(ended) == sorted(ran.agents())
    return ran


# ── a model that is not there ───────────────────────────────────────────────


async def a_child_without_a_model(root: Path) -> tuple[Ran, Scripted]:
    roster = Agents().with_agent(AgentDef("lost").with_model("gone"))
    provider = Scripted([say(spawn(agent="lost")), say(when="child", error=NOT_FOUND), say(text="did it myself")])
    return await run(task(root, agents=roster), provider), provider


async def test_AB75_a_child_whose_model_is_not_there_failed_and_the_run_goes_on(tmp_path: Path) -> None:
    ran, provider = await a_child_without_a_model(tmp_path)
    terminal = ran.terminal("root/1.1")
    assert (terminal["kind"], terminal["failure"]["code"]) == ("failed", "host_effect_failed")
    # A terminal holds no text of a vendor (terminals-and-workflows 2.10): the cause stands beside it.
    assert "gone" not in json.dumps(terminal)
    assert (ran.kind, ran.result.said, provider.calls) == (OutcomeKind.finished, "did it myself", 3)
    assert ran.agents()["root/1.1"].outcome == "escalated"


async def test_AB77_the_cause_stands_in_the_parents_next_request_and_in_the_store(tmp_path: Path) -> None:
    ran, provider = await a_child_without_a_model(tmp_path)
    results = provider.requests[-1].turns[-1]
    assert isinstance(results, ResultsTurn) and "no model named gone" in results.texts[0]
    child = ran.agents()["root/1.1"]
    assert child.detail is not None and "no model named gone" in child.detail
    [call] = ran.store.provider_calls(child.run_id)
    assert (call.asked, call.failure) == ("gone", "request") and "no model named gone" in (call.detail or "")


async def test_AB77_the_cause_stands_in_the_trace(tmp_path: Path) -> None:
    ran, _ = await a_child_without_a_model(tmp_path)
    told = [event.event for event in ran.store.trace(ran.result.run_id)]
    assert any("no model named gone" in event for event in told)


async def test_AB75_over_http_the_status_reaches_the_parent_and_bills_nothing(tmp_path: Path) -> None:
    arguments = json.dumps(spawn()[1])

    def script(body: dict[str, Any], number: int) -> Answer:
        if "child" in body["messages"][1]["content"]:
            return Answer(status=404, text="no model named gone")
        return Answer(calls=(SaidCall("spawn_agent", arguments),)) if number == 1 else Answer(text="done")

    async with open_model_server(script, strict=True) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider)
        assert (server.calls, server.refused) == (3, [])
        told = json.dumps(server.requests[-1]["messages"])
    assert "no model named gone" in told and "404" in told
    assert ran.kind is OutcomeKind.finished
    assert ran.tree.ledger.spent_tokens >= server.billed_tokens


@pytest.mark.parametrize(("status", "calls"), [(401, 1), (403, 1), (404, 1), (500, 3), (529, 3), (429, 3)])
async def test_what_is_final_is_asked_once_and_what_may_pass_three_times(
    tmp_path: Path, status: int, calls: int
) -> None:
    no_wait = (("retry-after", "0"),)
    async with open_model_server([Answer(status=status, text="no", headers=no_wait)] * 9) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider)
        assert server.calls == calls == ran.tree.ledger.snapshot().calls
    assert (ran.kind, ran.result.outcome.retryable) == (OutcomeKind.escalated, calls > 1)
    assert ran.terminal()["failure"]["code"] == "host_effect_failed"
    attempts = ran.store.provider_calls(ran.result.run_id)
    assert [call.attempt for call in attempts] == list(range(1, calls + 1))
    assert len(ran.store.reservations(ran.result.run_id)) == calls


async def test_no_retry_is_made_past_the_agents_own_time(tmp_path: Path, autojump_clock: Any) -> None:
    slow = ProviderError(ProviderErrorKind.rate_limited, "later", status=429, retry_after=60)
    provider, began = Timed([say(error=slow), say(text="never")]), trio.current_time()
    ran = await run(task(tmp_path, max_duration=10), provider)
    assert (ran.kind, ran.result.outcome.retryable, provider.calls) == (OutcomeKind.escalated, True, 1)
    assert trio.current_time() == began


# ── one 429 slows all ───────────────────────────────────────────────────────


async def test_AB8_one_429_slows_its_siblings(tmp_path: Path, autojump_clock: Any) -> None:
    limited = ProviderError(ProviderErrorKind.rate_limited, "slow down", status=429, retry_after=30)
    step: tuple[str, dict[str, Any]] = ("no_such_tool", {})
    provider = Timed([
        say(*[spawn(f"child {n}") for n in range(3)]),
        say(when="child 0", error=limited, delay=1), say(when="child 0", text="zero"),
        say(step, when="child 1", delay=2), say(when="child 1", text="one"),
        say(step, when="child 2", delay=3), say(when="child 2", text="two"),
        say(text="done"),
    ])  # fmt: skip
    began = trio.current_time()
    ran = await run(task(tmp_path), provider)
    times = sorted(round(at - began, 6) for at, _goal in provider.asked)
    # The 429 came at second 1: nobody asks again before second 31.
    assert times[:4] == [0, 0, 0, 0] and len(times) == 8
    assert all(at >= 31 for at in times[4:])
    assert [agent.outcome for agent in ran.agents().values()] == ["finished"] * 4


async def test_the_wait_for_a_429_holds_no_slot_and_no_reservation(tmp_path: Path, autojump_clock: Any) -> None:
    limited = ProviderError(ProviderErrorKind.rate_limited, "slow down", status=429, retry_after=30)
    provider, trees, store = Scripted([say(error=limited), say(text="done")]), list[Tree](), Store.memory()
    seen: list[tuple[int, int]] = []

    async def look() -> None:
        await trio.sleep(15)
        seen.append((trees[0].slots.out, trees[0].ledger.reserved_tokens))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        result = await run_tree(
            task(tmp_path), provider, store, Policy.permissive(), ApproveAll(), LIMITS, tools=(), on_open=trees.append
        )
    assert seen == [(0, 0)]
    assert checked(Ran(store, trees[0], result), provider).kind is OutcomeKind.finished


# ── one that fails among others ─────────────────────────────────────────────


async def test_AB80_a_failing_child_takes_no_sibling_with_it(tmp_path: Path, autojump_clock: Any) -> None:
    provider = Scripted([
        say(spawn("child a"), spawn("child b"), spawn("child c")),
        say(when="child a", text="quick", delay=0.5),
        say(when="child b", error=NOT_FOUND, delay=1),
        say(when="child c", text="slow", delay=9),
        say(text="done"),
    ])  # fmt: skip
    ran = await run(task(tmp_path), provider)
    assert [agent.outcome for agent in ran.agents().values()] == ["finished", "finished", "escalated", "finished"]
    first, second, third, _ = [each.text for each in ran.store.observations(ran.result.run_id)]
    assert "quick" in first and "no model named gone" in second and "slow" in third


async def test_AB79_a_child_that_worked_and_then_died_returns_what_it_found(tmp_path: Path) -> None:
    provider = Scripted([
        say(spawn()),
        say(("no_such_tool", {}), when="child", text="found half of it"),
        say(when="child", error=NOT_FOUND),
        say(text="done"),
    ])  # fmt: skip
    ran = await run(task(tmp_path), provider)
    text = ran.store.observations(ran.result.run_id)[0].text
    assert "found half of it" in text and "(partial)" in text and "no model named gone" in text
    assert "escalated after 1 steps" in text


async def test_a_bug_of_a_provider_fails_its_agent_only_and_is_charged_in_full(tmp_path: Path) -> None:
    provider = Buggy([say(spawn()), say(when="child", text="bug"), say(text="done")])
    ran = await run(task(tmp_path), provider)
    child = ran.agents()["root/1.1"]
    assert (ran.kind, child.outcome, child.estimated) == (OutcomeKind.finished, "failed", True)
    assert ran.terminal("root/1.1")["failure"]["code"] == "host_effect_failed"
    assert "a bug in the provider" in ran.store.observations(ran.result.run_id)[0].text
    assert [held.state for held in ran.store.reservations(child.run_id)] == ["estimated"]


async def test_a_bug_at_the_root_ends_the_run_as_failed(tmp_path: Path) -> None:
    ran = await run(task(tmp_path), Buggy([say(text="bug")]))
    assert (ran.kind, ran.result.halt) == (OutcomeKind.failed, None)
    assert "a bug in the provider" in ran.result.outcome.message


# ── cancelled ───────────────────────────────────────────────────────────────


async def cancelled_after(seconds: float, contract: TaskContract, provider: Provider, *tools: Any) -> Ran:
    trees, store = list[Tree](), Store.memory()

    async def cancel() -> None:
        await trio.sleep(seconds)
        receipt = await trees[0].halt(reason="enough")
        assert receipt is not None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        result = await run_tree(
            contract, provider, store, Policy.permissive(), ApproveAll(), LIMITS, tools=tools, on_open=trees.append
        )
    return checked(Ran(store, trees[0], result), provider)


async def test_a_cancelled_root_with_three_generations_ends_deepest_first_with_one_terminal_each(
    tmp_path: Path, autojump_clock: Any
) -> None:
    provider = Scripted([
        say(spawn("first level")),
        say(spawn("second level"), when="first level"),
        say(spawn("third level"), when="second level"),
        say(hang=True, when="third level"),
    ])  # fmt: skip
    began = trio.current_time()
    ran = await cancelled_after(5, task(tmp_path), provider)
    assert trio.current_time() - began == 5.0
    paths = ["root/1.1/1.1/1.1", "root/1.1/1.1", "root/1.1", "root"]
    assert [event["path"] for event in ran.events("finished")] == paths
    terminals = [ran.terminal(path) for path in paths]
    assert [terminal["kind"] for terminal in terminals] == ["cancelled"] * 4
    assert [terminal["reason"] for terminal in terminals] == ["user"] * 4
    # What endpoints reported, summed up: three answers of 100; the one that was cut reported nothing.
    told = terminals[-1]["usage"]
    assert (told["input_tokens"], told["output_tokens"]) == ("180", "120")
    assert (ran.kind, ran.tree.ledger.spent_tokens) == (OutcomeKind.cancelled, 400)
    assert ran.result.halt is not None and ran.result.halt.kind is HaltKind.cancel


async def test_AB83_tools_of_the_whole_tree_are_stopped_with_it(tmp_path: Path, autojump_clock: Any) -> None:
    tool = Hangs()
    provider = Scripted([say(spawn(), spawn("other")), say(("hang", {}), when="child"), say(("hang", {}), when="other")])
    ran = await cancelled_after(2, task(tmp_path), provider, tool)
    assert tool.log == ["began", "began", "stopped", "stopped"]
    assert [agent.outcome for agent in ran.agents().values()] == ["cancelled"] * 3
    # The answers were paid and stand; their steps do not.
    child = ran.agents()["root/1.1"]
    assert len(ran.store.turns(child.run_id)) == 1 and ran.store.steps(child.run_id) == []


async def test_a_call_that_is_cut_is_marked_and_counted_at_what_was_held(
    tmp_path: Path, autojump_clock: Any
) -> None:
    ran = await cancelled_after(1, task(tmp_path), Scripted([say(hang=True)]))
    [call] = ran.store.provider_calls(ran.result.run_id)
    [held] = ran.store.reservations(ran.result.run_id)
    assert (call.failure, call.prompt_tokens, call.latency_ms) == ("cancelled", None, 1_000)
    assert (held.state, held.used_tokens) == ("estimated", 100)
