"""Ceilings of a tree of LLM agents, to the token: the ledger against the count of whoever answers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Observation, ObservationKind, Provider, ToolCall, ToolContext, ToolSpec
from actors.agents.roster import AgentDef, Agents
from actors.agents.tree import Tree
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.prices import OnUnknownPrice, PriceTable
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind, ToolFailed
from actors.halts import HaltKind
from actors.providers.openai_chat import OpenAIChat, Timeouts
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.readers import Reader
from actors.store.store import Store
from actors.testing.model_script import Answer, Fault, SaidCall
from actors.testing.model_server import open_model_server

HUNDRED = Usage(60, 40)
THOUSAND = Usage(600, 400)


@attrs.frozen
class Probe:
    """A tool that does what it is told, and keeps what it was asked."""

    log: list[Any] = attrs.Factory(list)
    fails: bool = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("probe", "look", {"type": "object"})

    @property
    def read_only(self) -> bool:
        return True

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        self.log.append(arguments)
        await trio.lowlevel.checkpoint()
        if self.fails:
            raise ToolFailed("no luck")
        return Observation(ObservationKind.tool, "probe", f"seen {dict(arguments)}")


@attrs.frozen
class Ran:
    """A run with everything that can be asked about it."""

    store: Reader
    tree: Tree
    result: RunResult

    @property
    def spent(self) -> int:
        return self.tree.ledger.spent_tokens

    @property
    def kind(self) -> OutcomeKind:
        return self.result.outcome.kind

    def runs(self) -> list[str]:
        return [run.run_id for run in self.store.agents(self.result.run_id)]

    def reservations(self) -> list[Any]:
        return [held for run in self.runs() for held in self.store.reservations(run)]

    def attempts(self) -> list[Any]:
        return [call for run in self.runs() for call in self.store.provider_calls(run)]


def limits(tokens: int = 10**9, **more: Any) -> Containment:
    plain = {"max_total_agents": 100, "max_concurrent": 100, "max_depth": 4, "max_total_tokens": tokens}
    return Containment(**{**plain, **more})


def task(root: Path, **fields: Any) -> TaskContract:
    return TaskContract.workspace("the root's goal", root, **fields)


def spawn(goal: str = "child", agent: str = "", **more: Any) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}, "agent": agent, **more})


def say(
    *calls: tuple[str, Any] | ToolCall, when: str | None = None, usage: Usage | None = HUNDRED, **more: Any
) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, when=when, usage=usage, **more)  # type: ignore[arg-type]


async def run(
    contract: TaskContract,
    provider: Provider,
    bounds: Containment,
    *,
    policy: Policy | None = None,
    on_open: Callable[[Tree], None] | None = None,
    **options: Any,
) -> Ran:
    trees: list[Tree] = []
    store = Store.memory()

    def opened(tree: Tree) -> None:
        trees.append(tree)
        if on_open is not None:
            on_open(tree)

    options.setdefault("tools", (Probe(),))
    result = await run_tree(
        contract, provider, store, policy or Policy.permissive(), ApproveAll(), bounds, on_open=opened, **options
    )
    ran = Ran(store, trees[0], result)
    check_accounts(ran)
    return ran


def check_accounts(ran: Ran) -> None:
    """Look at what must hold after every run: nothing is held, rows and ledger agree, one terminal for each agent."""
    tree, ledger, bounds = ran.tree, ran.tree.ledger.snapshot(), ran.tree.limits
    assert tree.leaks().empty and ran.result.leaks.empty
    assert (ledger.reserved_tokens, ledger.reserved_microdollars, tree.slots.out) == (0, 0, 0)
    assert ledger.spent_tokens <= bounds.max_total_tokens
    assert bounds.max_total_cost is None or ledger.spent_microdollars <= bounds.max_total_cost
    row = ran.store.ledger(ran.result.run_id)
    assert row is not None
    assert (row.spent_tokens, row.overrun_tokens) == (ledger.spent_tokens, ledger.overrun_tokens)
    assert (row.calls, row.reserved_tokens) == (ledger.calls, 0)
    held = ran.reservations()
    assert {each.state for each in held} <= {"settled", "estimated"}
    assert sum(each.used_tokens for each in held) == ledger.spent_tokens
    assert sum(each.overrun_tokens for each in held) == ledger.overrun_tokens
    assert len(held) == len(ran.attempts()) == ledger.calls
    for agent in ran.store.agents(ran.result.run_id):
        assert agent.outcome is not None and ran.store.terminal(agent.run_id) is not None
    assert sum(agent.spent_tokens or 0 for agent in ran.store.agents(ran.result.run_id)) == ledger.spent_tokens


def children_first(body: dict[str, Any]) -> bool:
    return "child" in body["messages"][1]["content"]


def fan_out(count: int) -> tuple[SaidCall, ...]:
    arguments = json.dumps(spawn()[1])
    return tuple(SaidCall("spawn_agent", arguments) for _ in range(count))


# ── lines 1 to 5: who is bound ──────────────────────────────────────────────


async def test_AB3_AB11_line1_line4_ten_siblings_of_1000_under_1500_pay_for_one(
    tmp_path: Path, autojump_clock: Any
) -> None:
    children = [say(when="child", usage=THOUSAND, delay=1, text="done") for _ in range(10)]
    provider = Scripted([say(*[spawn()] * 10, usage=Usage()), *children])
    ran = await run(task(tmp_path), provider, limits(1_500))
    assert (ran.spent, provider.billed_tokens, provider.calls) == (1_000, 1_000, 2)
    assert ran.kind is OutcomeKind.budget_ceiling_reached and ran.result.outcome.ceiling is HaltKind.tokens
    # The one that was paid is not thrown away: its step stands, although the tree was latched meanwhile.
    [paid] = [agent for agent in ran.store.agents(ran.result.run_id) if agent.spent_tokens]
    assert (paid.said, paid.steps, paid.outcome) == ("done", 1, "budget_ceiling_reached")


@pytest.mark.parametrize("ceiling", [1_500, 2_500, 4_000, 9_999])
async def test_line1_ten_siblings_over_http_never_pass_the_ceiling_by_the_endpoints_count(
    tmp_path: Path, ceiling: int
) -> None:
    def script(body: dict[str, Any], _number: int) -> Answer:
        if children_first(body):
            return Answer(text="x", prompt_tokens=100, completion_tokens=900, delay=0.01)
        return Answer(calls=fan_out(10), prompt_tokens=0, completion_tokens=0)

    async with open_model_server(script, strict=True) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, limits(ceiling), tools=())
        assert server.refused == []
        assert ran.spent == server.billed_tokens <= ceiling
        assert server.calls == ran.tree.ledger.snapshot().calls
        assert server.calls >= 2
    assert ran.tree.ledger.overrun_tokens == 0
    assert ran.kind is OutcomeKind.budget_ceiling_reached


async def test_an_endpoint_that_ignores_the_output_limit_is_recorded_as_overrun(tmp_path: Path) -> None:
    answers = [Answer(text="x", prompt_tokens=100, completion_tokens=5_000, ignore_max_tokens=True)]
    async with open_model_server(answers) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, limits(2_000), tools=())
        assert (ran.spent, ran.tree.ledger.overrun_tokens) == (0, 5_100)
        assert server.billed_tokens == ran.spent + ran.tree.ledger.overrun_tokens
    assert ran.result.halt is not None and ran.result.halt.kind is HaltKind.tokens
    assert [each.state for each in ran.reservations()] == ["settled"]
    assert ran.result.outcome.overrun_tokens == 5_100


async def test_line3_a_child_of_a_child_is_bound_by_the_root(tmp_path: Path) -> None:
    """Each agent spawns one below it and calls for ever: nobody has limits of its own."""
    script = [say(spawn("level one")), *(say(("probe", {"n": n})) for n in range(99))]
    script += [say(spawn("deep two"), when="level one"), *(say(("probe", {"n": n}), when="deep") for n in range(99))]
    provider = Scripted(script)
    ran = await run(task(tmp_path, max_steps=99), provider, limits(1_000))
    assert (ran.spent, provider.billed_tokens, provider.calls) == (1_000, 1_000, 10)
    assert [run.depth for run in ran.store.agents(ran.result.run_id)] == [0, 1, 2]


async def test_line5_a_child_cannot_ask_for_more_than_its_definition_allows(tmp_path: Path) -> None:
    roster = Agents().with_agent(AgentDef("small").with_max_steps(1))
    answers = [say(spawn(agent="small", max_steps=50), spawn(max_tokens=10**9))]
    answers += [say(("probe", {"n": n}), when="child") for n in range(9)]
    provider = Scripted(answers)
    ran = await run(task(tmp_path, agents=roster), provider, limits())
    [child] = ran.store.children(ran.result.run_id)
    record = ran.store.run(child)
    assert record is not None and (record.outcome, record.steps) == ("step_cap_reached", 1)
    assert "no argument 'max_tokens'" in ran.store.observations(ran.result.run_id)[1].text
    assert ran.spent == provider.billed_tokens


# ── line 6: exactly at the ceiling ──────────────────────────────────────────


async def test_line6_two_calls_of_100_fit_200_and_a_third_is_not_sent(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {"n": n})) for n in range(9)])
    ran = await run(task(tmp_path), provider, limits(200))
    assert (provider.calls, ran.spent, provider.billed_tokens) == (2, 200, 200)
    assert (ran.kind, ran.result.outcome.steps) == (OutcomeKind.budget_ceiling_reached, 2)
    assert ran.tree.ledger.overrun_tokens == 0


async def test_a_run_that_ends_exactly_at_the_ceiling_is_finished_and_not_halted(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {})), say(text="done")])
    ran = await run(task(tmp_path), provider, limits(200))
    assert (ran.kind, ran.spent, ran.result.halt) == (OutcomeKind.finished, 200, None)


async def test_a_ceiling_of_zero_sends_nothing(tmp_path: Path) -> None:
    provider = Scripted([say(text="done")])
    ran = await run(task(tmp_path), provider, limits(0))
    assert (provider.calls, ran.spent, ran.kind) == (0, 0, OutcomeKind.budget_ceiling_reached)


# ── calls ───────────────────────────────────────────────────────────────────


async def test_three_calls_and_ten_children_make_exactly_three_requests(tmp_path: Path) -> None:
    def script(body: dict[str, Any], _number: int) -> Answer:
        return Answer(text="done", delay=0.02) if children_first(body) else Answer(calls=fan_out(10))

    async with open_model_server(script) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, limits(max_total_calls=3), tools=())
        assert server.calls == ran.tree.ledger.snapshot().calls == 3
    assert ran.result.outcome.ceiling is HaltKind.calls
    # Those that were cut are charged in full: never less than the endpoint counts.
    assert ran.spent >= server.billed_tokens


async def test_the_calls_that_a_ceiling_admitted_are_answered_and_not_thrown_away(
    tmp_path: Path, autojump_clock: Any
) -> None:
    provider = Scripted([say(*[spawn()] * 10), *[say(when="child", text="done", delay=1) for _ in range(10)]])
    ran = await run(task(tmp_path), provider, limits(max_total_calls=3))
    assert provider.calls == 3
    assert [agent.said for agent in ran.store.agents(ran.result.run_id) if agent.spent_tokens][1:] == ["done"] * 2


async def test_line7_two_529_then_success_are_three_attempts_each_held_and_settled(
    tmp_path: Path, autojump_clock: Any
) -> None:
    busy = ProviderError(ProviderErrorKind.server, "overloaded", status=529)
    provider = Scripted([say(error=busy), say(error=busy), say(text="done")])
    ran = await run(task(tmp_path), provider, limits())
    assert ran.kind is OutcomeKind.finished
    assert [(call.step, call.attempt, call.failure) for call in ran.attempts()] == [
        (1, 1, "server"),
        (1, 2, "server"),
        (1, 3, None),
    ]
    assert [(held.attempt, held.state) for held in ran.reservations()] == [
        (1, "estimated"),
        (2, "estimated"),
        (3, "settled"),
    ]
    assert ran.spent == provider.billed_tokens == 300
    assert ran.tree.ledger.snapshot().calls == provider.calls == 3


async def test_line7_retries_count_against_the_ceiling_on_calls(tmp_path: Path, autojump_clock: Any) -> None:
    busy = ProviderError(ProviderErrorKind.server, "overloaded", status=529)
    provider = Scripted([say(error=busy)] * 9)
    ran = await run(task(tmp_path, max_retries=8), provider, limits(max_total_calls=2))
    assert provider.calls == 2 and ran.result.outcome.ceiling is HaltKind.calls


async def test_a_failed_attempt_that_reported_usage_is_charged_exactly(tmp_path: Path, autojump_clock: Any) -> None:
    told = ProviderError(ProviderErrorKind.malformed, "no completion", usage=Usage(10, 5))
    provider = Scripted([ScriptedAnswer(error=told), say(text="done")])
    ran = await run(task(tmp_path), provider, limits())
    assert ran.spent == provider.billed_tokens == 115
    assert [held.state for held in ran.reservations()] == ["settled", "settled"]


async def test_AB1_line2_a_cap_of_six_runs_six_of_eight_calls_of_one_answer(tmp_path: Path) -> None:
    probe = Probe()
    provider = Scripted([say(*(("probe", {"n": n}) for n in range(8))), say(text="done")])
    ran = await run(task(tmp_path), provider, limits(max_total_tool_calls=6), tools=(probe,))
    assert probe.log == [{"n": n} for n in range(6)]
    seen = ran.store.observations(ran.result.run_id)[:8]
    assert [each.kind for each in seen] == ["tool"] * 6 + ["error"] * 2
    assert all("not run" in each.text and "6" in each.text for each in seen[6:])
    assert ran.tree.ledger.snapshot().tool_calls == 6
    assert ran.kind is OutcomeKind.finished and ran.spent == provider.billed_tokens


async def test_line18_failed_tools_count(tmp_path: Path) -> None:
    probe = Probe(fails=True)
    provider = Scripted([say(("probe", {"n": n})) for n in range(20)])
    ran = await run(task(tmp_path), provider, limits(max_total_tool_calls=2), tools=(probe,))
    assert len(probe.log) == 2 == ran.tree.ledger.snapshot().tool_calls


async def test_AB1_spawns_count_as_tool_calls_too(tmp_path: Path) -> None:
    provider = Scripted([say(*[spawn()] * 8), say(text="done")])
    ran = await run(task(tmp_path), provider, limits(max_total_tool_calls=6))
    assert len(ran.store.children(ran.result.run_id)) == 6


# ── agents and depth ────────────────────────────────────────────────────────


async def test_AB29_every_agent_spawns_five_and_twenty_exist(tmp_path: Path) -> None:
    answers = [say(*[spawn("child")] * 5), *(say(*[spawn("child")] * 5, when="child") for _ in range(60))]
    ran = await run(task(tmp_path), Scripted(answers), limits(max_total_agents=20, max_depth=9))
    assert len(ran.runs()) == 20 == ran.tree.ledger.agents
    refused = [event for run in ran.runs() for event in ran.store.agent_events(run) if event.kind == "spawn_refused"]
    assert refused and {event.detail for event in refused} == {"agents"}


async def test_AB31_depth_three_refuses_level_four_and_the_model_is_told_to_adapt(tmp_path: Path) -> None:
    answers = [say(spawn("child")), *(say(spawn("child"), when="child") for _ in range(3))]
    ran = await run(task(tmp_path), Scripted(answers), limits(max_depth=3))
    agents = ran.store.agents(ran.result.run_id)
    assert [agent.depth for agent in agents] == [0, 1, 2, 3]
    [seen, *_] = ran.store.observations(agents[-1].run_id)
    assert seen.kind == "error" and "no sub-agent was started" in seen.text and "Adapt" in seen.text
    assert ran.kind is OutcomeKind.finished


async def test_AB34_spawns_one_after_another_meet_the_cap_on_agents(tmp_path: Path) -> None:
    provider = Scripted([say(spawn(f"child {n}")) for n in range(30)])
    ran = await run(task(tmp_path, max_steps=30), provider, limits(max_total_agents=4, max_concurrent=1))
    assert len(ran.runs()) == 4


# ── lines 9 to 13: what nobody counted ──────────────────────────────────────


class Watch(Scripted):
    """A scripted provider that notes when it was asked."""

    times: list[float]

    async def complete(self, request: Any) -> Any:
        self.times = [*getattr(self, "times", []), trio.current_time()]
        return await super().complete(request)


async def test_a_hung_call_of_the_root_is_cut_exactly_at_the_duration_ceiling(
    tmp_path: Path, autojump_clock: Any
) -> None:
    provider = Scripted([say(hang=True)])
    began = trio.current_time()
    ran = await run(task(tmp_path), provider, limits(max_total_duration=10))
    assert trio.current_time() - began == 10.0
    assert ran.result.outcome.ceiling is HaltKind.duration
    assert (ran.spent, provider.billed_tokens) == (100, 100)
    assert [held.state for held in ran.reservations()] == ["estimated"]
    assert [call.failure for call in ran.attempts()] == ["cancelled"]
    assert reasons(ran) == {"root": ("agent", "deadline")}


def reasons(ran: Ran) -> dict[str, tuple[str, str]]:
    told = {}
    for agent in ran.store.agents(ran.result.run_id):
        text = ran.store.terminal(agent.run_id)
        assert text is not None
        plain = json.loads(text)
        why = plain["result"]["termination"] if plain["kind"] == "agent" else plain.get("reason") or plain["failure"]
        told[agent.path] = (plain["kind"], why)
    return told


async def test_line10_a_hung_call_of_a_child_is_cut_and_the_deadline_is_from_above(
    tmp_path: Path, autojump_clock: Any
) -> None:
    provider = Scripted([say(spawn()), say(hang=True, when="child")])
    ran = await run(task(tmp_path), provider, limits(max_total_duration=7.5))
    assert reasons(ran) == {"root": ("agent", "deadline"), "root/1.1": ("cancelled", "deadline")}
    assert ran.spent == provider.billed_tokens == 200


async def test_line10_a_cancel_in_flight_is_charged_in_full_and_marked(tmp_path: Path, autojump_clock: Any) -> None:
    provider = Scripted([say(spawn()), say(hang=True, when="child")])
    trees: list[Tree] = []
    store = Store.memory()
    with trio.move_on_after(3) as scope:
        await run_tree(
            task(tmp_path), provider, store, Policy.permissive(), ApproveAll(), limits(), on_open=trees.append
        )
    assert scope.cancelled_caught
    [tree] = trees
    assert tree.leaks().empty
    assert (tree.ledger.spent_tokens, tree.ledger.reserved_tokens) == (provider.billed_tokens, 0) == (200, 0)
    agents = store.agents(tree.run_id)
    assert [agent.outcome for agent in agents] == ["interrupted", "interrupted"]
    assert [agent.estimated for agent in agents] == [False, True]
    assert {held.state for held in store.reservations(agents[1].run_id)} == {"estimated"}


async def over_http(tmp_path: Path, answers: Sequence[Answer], *, bounds: Containment | None = None) -> tuple[Ran, int]:
    async with open_model_server(answers) as server:
        patience = Timeouts(idle=0.3, total=0.3)
        async with OpenAIChat(server.base_url, api_key="", model="m", timeouts=patience) as provider:
            ran = await run(task(tmp_path, max_retries=0), provider, bounds or limits(), tools=())
        return ran, server.billed_tokens


async def test_line11_a_timeout_in_flight_is_charged_in_full_and_marked(tmp_path: Path) -> None:
    ran, billed = await over_http(tmp_path, [Answer(text="never", fault=Fault.hang)])
    [held] = ran.reservations()
    assert (held.state, held.used_tokens) == ("estimated", held.tokens)
    assert ran.spent == held.tokens >= billed > 0
    assert (ran.kind, ran.result.outcome.retryable) == (OutcomeKind.escalated, True)
    assert [call.failure for call in ran.attempts()] == ["timeout"]


@pytest.mark.parametrize("fault", [Fault.cut, Fault.stall])
async def test_line9_an_answer_that_breaks_off_is_charged_in_full_and_marked(tmp_path: Path, fault: Fault) -> None:
    ran, billed = await over_http(tmp_path, [Answer(text="half of it", fault=fault)])
    [held] = ran.reservations()
    assert (held.state, ran.spent) == ("estimated", held.tokens)
    assert ran.spent >= billed > 0


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -5, "completion_tokens": 10},
        {"prompt_tokens": 10, "completion_tokens": 10**40},
        {"prompt_tokens": "10", "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 1.5, "completion_tokens": 1},
        "many",
        [1],
    ],
)
async def test_line12_line13_usage_that_cannot_be_is_unknown_and_charged_in_full(tmp_path: Path, usage: Any) -> None:
    ran, billed = await over_http(tmp_path, [Answer(text="done", usage=usage)])
    assert ran.kind is OutcomeKind.finished
    [held] = ran.reservations()
    assert (held.state, ran.spent) == ("estimated", held.tokens)
    assert ran.spent >= billed > 0
    root = ran.store.run(ran.result.run_id)
    assert root is not None and root.estimated


async def test_line12_usage_left_out_is_charged_in_full(tmp_path: Path) -> None:
    ran, billed = await over_http(tmp_path, [Answer(text="done", report_usage=False)])
    [held] = ran.reservations()
    assert (held.state, ran.spent) == ("estimated", held.tokens) and ran.spent >= billed > 0


async def test_AB50_only_the_answer_without_usage_is_estimated(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        return Answer(calls=(SaidCall("no_such"),), report_usage=number != 2) if number < 4 else Answer(text="done")

    async with open_model_server(script) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, limits(), tools=())
    assert [held.state for held in ran.reservations()] == ["settled", "estimated", "settled", "settled"]


# ── money ───────────────────────────────────────────────────────────────────

# One token costs one microdollar.
PRICES = PriceTable.from_dict({"configured-model": {"input": "1", "output": "1"}, "free": {"input": "0", "output": "0"}})


async def test_a_cost_ceiling_halts_like_one_on_tokens(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {"n": n})) for n in range(9)])
    ran = await run(task(tmp_path), provider, limits(max_total_cost=250), prices=PRICES)
    assert (provider.calls, ran.spent, ran.tree.ledger.spent_microdollars) == (2, 200, 200)
    assert ran.result.outcome.ceiling is HaltKind.cost
    assert reasons(ran) == {"root": ("agent", "token_budget")}


@pytest.mark.parametrize(
    ("prices", "words"), [(PriceTable(), "add [prices]"), (PriceTable({"other": PRICES.get("free")}), "is missing")]  # type: ignore[dict-item]
)
async def test_AB17_line14_an_unknown_price_is_refused_before_the_first_call(
    tmp_path: Path, prices: PriceTable, words: str
) -> None:
    provider, store = Scripted([say(text="done")]), Store.memory()
    with pytest.raises(ConfigError, match="prices") as refused:
        await run_tree(
            task(tmp_path), provider, store, Policy.permissive(), ApproveAll(), limits(max_total_cost=9), prices=prices
        )
    assert words in str(refused.value)
    assert provider.calls == 0 and store.runs() == []


async def test_AB17_a_child_on_a_model_without_a_price_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    roster = Agents().with_agent(AgentDef("dear").with_model("unknown-model"))
    provider = Scripted([say(spawn(agent="dear")), say(text="done")])
    ran = await run(task(tmp_path, agents=roster), provider, limits(max_total_cost=10**6), prices=PRICES)
    [seen, *_] = ran.store.observations(ran.result.run_id)
    assert "unknown-model" in seen.text and "price" in seen.text and seen.kind == "error"
    assert ran.tree.ledger.snapshot().refusals == {"price": 1}
    assert ran.store.children(ran.result.run_id) == [] and ran.tree.ledger.agents == 1
    assert (ran.kind, provider.calls) == (OutcomeKind.finished, 2)


async def test_AB17_the_refusal_of_a_model_without_a_price_is_a_row_of_the_parent(tmp_path: Path) -> None:
    roster = Agents().with_agent(AgentDef("dear").with_model("unknown-model"))
    provider = Scripted([say(spawn(agent="dear")), say(text="done")])
    ran = await run(task(tmp_path, agents=roster), provider, limits(max_total_cost=10**6), prices=PRICES)
    events = [event for event in ran.store.agent_events(ran.result.run_id) if event.kind == "spawn_refused"]
    assert [event.detail for event in events] == ["price"]


async def test_AB19_a_model_that_costs_nothing_may_run_when_the_money_is_gone(tmp_path: Path) -> None:
    roster = Agents().with_agent(AgentDef("local").with_model("free"))
    answers = [say(spawn(agent="local")), say(("probe", {}), when="child"), say(text="done", when="child")]
    provider = Scripted([*answers, say(text="never sent")])
    ran = await run(task(tmp_path, agents=roster), provider, limits(max_total_cost=100), prices=PRICES)
    [child] = ran.store.children(ran.result.run_id)
    record = ran.store.run(child)
    assert record is not None and (record.outcome, record.steps, record.spent_microdollars) == ("finished", 2, 0)
    assert (ran.spent, ran.tree.ledger.spent_microdollars) == (300, 100)
    assert ran.result.outcome.ceiling is HaltKind.cost


async def test_AB19_the_ceiling_on_tokens_still_binds_what_is_free(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {"n": n})) for n in range(9)], model="free")
    ran = await run(task(tmp_path), provider, limits(300, max_total_cost=0), prices=PRICES)
    assert (provider.calls, ran.spent, ran.result.outcome.ceiling) == (3, 300, HaltKind.tokens)


async def test_unknown_prices_may_be_counted_by_tokens_only(tmp_path: Path) -> None:
    provider = Scripted([say(text="done")])
    contract = task(tmp_path, on_unknown_price=OnUnknownPrice.tokens_only)
    ran = await run(contract, provider, limits(max_total_cost=1))
    assert (ran.kind, ran.spent, ran.tree.ledger.snapshot().unpriced_calls) == (OutcomeKind.finished, 100, 1)


# ── what is the agent's own ─────────────────────────────────────────────────


async def test_an_own_token_cap_ends_that_agent_and_latches_nothing(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {"n": n})) for n in range(9)])
    ran = await run(task(tmp_path, max_tokens=150), provider, limits())
    assert (ran.kind, ran.spent, provider.calls) == (OutcomeKind.cost_budget_exceeded, 100, 1)
    assert ran.result.halt is None and reasons(ran) == {"root": ("agent", "token_budget")}


async def test_line6_a_run_that_ends_exactly_at_its_own_cap_is_finished(tmp_path: Path) -> None:
    ran = await run(task(tmp_path, max_tokens=100), Scripted([say(text="done")]), limits())
    assert ran.kind is OutcomeKind.finished


async def test_AB9_a_child_at_its_own_cap_reports_partially_and_the_parent_goes_on(tmp_path: Path) -> None:
    answers = [say(spawn(), usage=Usage()), *(say(("probe", {"n": n}), when="child", text="half") for n in range(9))]
    provider = Scripted([*answers, say(text="done", usage=Usage())])
    ran = await run(task(tmp_path, max_tokens=250), provider, limits())
    [seen, *_] = ran.store.observations(ran.result.run_id)
    assert "cost_budget_exceeded after 2 steps, 200 tokens" in seen.text
    assert "It said (partial):\nhalf" in seen.text
    assert (ran.kind, ran.spent, provider.billed_tokens) == (OutcomeKind.finished, 200, 200)


async def test_AB9_AB21_the_refusal_of_an_own_cap_names_the_real_limit_and_use(tmp_path: Path) -> None:
    provider = Scripted([say(("probe", {"n": n})) for n in range(9)])
    ran = await run(task(tmp_path, max_tokens=250), provider, limits())
    assert "200 of 250 used" in ran.result.outcome.message


async def test_an_own_time_budget_cuts_a_hung_call_exactly_and_latches_nothing(
    tmp_path: Path, autojump_clock: Any
) -> None:
    provider, began = Scripted([say(hang=True)]), trio.current_time()
    ran = await run(task(tmp_path, max_duration=4), provider, limits())
    assert trio.current_time() - began == 4.0
    assert (ran.kind, ran.result.halt, ran.spent) == (OutcomeKind.time_budget_exceeded, None, 100)
    assert reasons(ran) == {"root": ("agent", "deadline")}


async def test_a_time_budget_of_nothing_ends_before_the_start_and_is_stored(tmp_path: Path) -> None:
    provider = Scripted([say(text="done")])
    ran = await run(task(tmp_path, max_duration=0), provider, limits())
    assert (ran.kind, ran.result.outcome.steps, provider.requests) == (OutcomeKind.time_budget_exceeded, 0, [])
    assert ran.store.run(ran.result.run_id).outcome == "time_budget_exceeded"


async def test_AB81_a_stuck_child_has_a_deadline_of_its_own_and_the_others_results_return(
    tmp_path: Path, autojump_clock: Any
) -> None:
    """The operator's time budget binds each agent from its own start."""
    answers = [say(spawn("child a"), spawn("stuck"), delay=1), say(text="found", when="child a", delay=2)]
    provider = Scripted([*answers, say(hang=True, when="stuck"), say(text="done")])
    ran = await run(task(tmp_path, max_duration=5), provider, limits())
    first = ran.store.run(ran.store.children(ran.result.run_id)[0])
    assert first is not None and (first.outcome, first.said) == ("finished", "found")
    # The root's own time is over first: it started first.
    assert ran.kind is OutcomeKind.time_budget_exceeded
    assert reasons(ran)["root/1.2"] == ("cancelled", "deadline")
