"""The loop of one LLM agent: what is committed when, in which order, and how it ends."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll, DenyAll
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    Act,
    Approval,
    ApprovalRequest,
    Approver,
    Observation,
    ObservationKind,
    Provider,
    ResultsTurn,
    ToolCall,
    ToolContext,
    ToolSpec,
    UserTurn,
)
from actors.agents.rows import AnswerGiven, AttemptMade, Observed, RunFinished, Settled, StepDone
from actors.agents.services import Services
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.errors import ConfigError
from actors.providers.openai_chat import OpenAIChat
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import MemoryStore, Store
from actors.testing.model_script import Answer, SaidCall
from actors.testing.model_server import open_model_server
from actors.tools.verifying import evaluate

LIMITS = Containment(100, 100, 4, 10**9)
# Within what the decoder of JSON takes, at the default limit of recursion.
DEEP = 900
Work = Callable[[Mapping[str, Any], ToolContext], Awaitable[Observation]]


def seen(text: str, *, changed: bool = False) -> Observation:
    return Observation(ObservationKind.tool, "probe", text, changed)


async def echo(arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
    return seen(f"seen {dict(arguments)}")


@attrs.frozen
class Fake:
    """A tool that keeps the order in which it was called."""

    work: Work = echo
    name: str = "probe"
    log: list[Any] = attrs.Factory(list)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "look", {"type": "object"})

    @property
    def read_only(self) -> bool:
        return True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        self.log.append(dict(arguments))
        return await self.work(arguments, context)


class Batches(MemoryStore):
    """A store that keeps which rows were committed together; taken for one that outlives the process."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[str, ...]] = []

    async def commit(self, *rows: Any) -> None:
        self.commits.append(tuple(type(row).__name__ for row in rows))
        await super().commit(*rows)


def task(root: Path, **fields: Any) -> TaskContract:
    return TaskContract.workspace("the root's goal", root, **fields)


def say(*calls: Any, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, usage=more.pop("usage", Usage(60, 40)), **more)


def probe(n: int = 0) -> tuple[str, dict[str, Any]]:
    return ("probe", {"n": n})


def spawn(goal: str) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}})


@attrs.frozen
class Ran:
    store: Store
    tree: Tree
    result: RunResult

    @property
    def kind(self) -> OutcomeKind:
        return self.result.outcome.kind

    def texts(self) -> list[str]:
        return [each.text for each in self.store.observations(self.result.run_id)]


async def run(
    contract: TaskContract,
    provider: Provider,
    *tools: Fake,
    store: Store | None = None,
    policy: Policy | None = None,
    approver: Approver | None = None,
    limits: Containment = LIMITS,
    on_open: Callable[[Tree], None] | None = None,
) -> Ran:
    trees: list[Tree] = []
    kept = Store.memory() if store is None else store

    def opened(tree: Tree) -> None:
        trees.append(tree)
        if on_open is not None:
            on_open(tree)

    result = await run_tree(
        contract, provider, kept, policy or Policy.permissive(), approver or ApproveAll(), limits,
        tools=tools or (Fake(),), on_open=opened,
    )  # fmt: skip
    ran = Ran(kept, trees[0], result)
    ledger = ran.tree.ledger.snapshot()
    assert result.leaks.empty and ran.tree.slots.out == 0
    assert (ledger.reserved_tokens, ledger.reserved_microdollars) == (0, 0)
    if isinstance(provider, Scripted):
        assert ledger.spent_tokens + ledger.overrun_tokens == provider.billed_tokens
    return ran


# ── what is committed when ──────────────────────────────────────────────────


async def test_the_answer_stands_in_the_store_before_any_of_its_calls_runs(tmp_path: Path) -> None:
    store = Store.memory()
    found: list[Any] = []

    async def look(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        [root] = store.runs()
        turns, steps = store.turns(root.run_id), store.steps(root.run_id)
        calls = store.provider_calls(root.run_id)
        held = store.reservations(root.run_id)
        said = [event.detail for event in store.agent_events(root.run_id) if event.kind == "said"]
        found.append((len(turns), turns[-1].text, len(steps), len(calls), [each.state for each in held], said))
        return seen("ok")

    provider = Scripted([say(probe(), text="first"), say(probe(), text="second"), say(text="done")])
    await run(task(tmp_path), provider, Fake(look), store=store)
    assert found == [
        (1, "first", 0, 1, ["settled"], ["first"]),
        (2, "second", 1, 2, ["settled", "settled"], ["first", "second"]),
    ]


async def test_an_answer_is_one_transaction_and_a_step_is_one_transaction(tmp_path: Path) -> None:
    store = Batches()
    await run(task(tmp_path), Scripted([say(probe(1), probe(2)), say(text="done")]), store=store)
    answers = [batch for batch in store.commits if AnswerGiven.__name__ in batch]
    steps = [batch for batch in store.commits if StepDone.__name__ in batch]
    assert len(answers) == len(steps) == 2
    assert all({AttemptMade.__name__, Settled.__name__} <= set(batch) for batch in answers)
    assert [batch.count(Observed.__name__) for batch in steps] == [2, 1]
    order = [name for batch in store.commits for name in batch if name in ("Reserved", "AnswerGiven", "StepDone")]
    assert order == ["Reserved", "AnswerGiven", "StepDone"] * 2
    assert RunFinished.__name__ in store.commits[-1]


async def test_turns_steps_and_observations_agree(tmp_path: Path) -> None:
    provider = Scripted([say(probe(1), probe(2), text="a"), say(probe(3), text=""), say(text="done")])
    ran = await run(task(tmp_path), provider)
    run_id = ran.result.run_id
    turns, steps = ran.store.turns(run_id), ran.store.steps(run_id)
    assert [turn.step for turn in turns] == [step.step for step in steps] == [1, 2, 3]
    assert [turn.text for turn in turns] == ["a", "", "done"]
    assert json.loads(turns[0].calls) == [["probe", '{"n": 1}'], ["probe", '{"n": 2}']]
    assert [(each.step, each.ordinal) for each in ran.store.observations(run_id)] == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert [step.tokens for step in steps] == [100, 100, 100]
    assert steps[0].result == "seen {'n': 1}\n\nseen {'n': 2}"
    assert [each.step for each in ran.store.checkpoints(run_id)] == [1, 2, 3]
    record = ran.store.run(run_id)
    assert record is not None and (record.steps, record.spent_tokens, record.said) == (3, 300, "done")


async def test_results_of_children_fold_in_call_order_and_other_calls_run_first(
    tmp_path: Path, autojump_clock: Any
) -> None:
    tool = Fake()
    provider = Scripted([
        say(spawn("slow"), probe(1), spawn("middle"), probe(2), spawn("quick")),
        *(say(when=name, text=f"{name} report", delay=delay) for name, delay in (("slow", 3), ("middle", 2), ("quick", 1))),
        say(text="done"),
    ])  # fmt: skip
    began = trio.current_time()
    ran = await run(task(tmp_path), provider, tool)
    assert trio.current_time() - began == 3.0
    assert tool.log == [{"n": 1}, {"n": 2}]
    results = provider.requests[-1].turns[-1]
    assert isinstance(results, ResultsTurn)
    words = ("slow report", "seen {'n': 1}", "middle report", "seen {'n': 2}", "quick report")
    assert len(results.texts) == 5
    assert all(word in text for word, text in zip(words, results.texts, strict=True))
    assert ran.texts()[:5] == list(results.texts)
    order = [json.loads(event.event)["path"] for event in ran.store.trace(ran.result.run_id) if '"finished"' in event.event]
    assert order == ["root/1.5", "root/1.3", "root/1.1", "root"]


async def test_calls_beside_spawns_run_before_any_child_is_asked_for(tmp_path: Path) -> None:
    provider = Scripted([say(spawn("child"), probe(1)), say(when="child", text="x"), say(text="done")])
    asked: list[int] = []

    async def look(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        asked.append(provider.calls)
        await trio.testing.wait_all_tasks_blocked()
        asked.append(provider.calls)
        return seen("ok")

    await run(task(tmp_path), provider, Fake(look))
    assert asked == [1, 1] and provider.calls == 3


# ── what models send ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{not json", "no JSON"),
        ('{"n": 1', "no JSON"),
        ('{"n": 1} and more', "no JSON"),
        ('{"n": NaN}', "no JSON"),
        ("[1, 2]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("7", "must be a JSON object"),
        ("[" * 100_000, "no JSON"),
        ("9" * 5_000, "no JSON"),
    ],
)
async def test_arguments_that_are_no_object_run_nothing(tmp_path: Path, arguments: str, words: str) -> None:
    tool = Fake()
    provider = Scripted([say(ToolCall("probe", arguments), probe(5)), say(text="done")])
    ran = await run(task(tmp_path), provider, tool)
    assert tool.log == [{"n": 5}]
    first = ran.store.observations(ran.result.run_id)[0]
    assert first.kind == "error" and words in first.text and "Wanted:" in first.text
    assert ran.kind is OutcomeKind.finished


@pytest.mark.parametrize("arguments", ['{"n": 1e999}', '{"path": "a", "path": "b"}'])
async def test_arguments_with_an_infinite_number_or_a_key_twice_run_nothing(tmp_path: Path, arguments: str) -> None:
    tool = Fake()
    await run(task(tmp_path), Scripted([say(ToolCall("probe", arguments)), say(text="done")]), tool)
    assert tool.log == []


@pytest.mark.parametrize("arguments", ["{bad", "[]", "{}", '{"goal": "x"}', '{"goal": "x", "allow_write": ["*"]}'])
async def test_a_spawn_that_cannot_be_read_makes_no_child_and_counts_nobody(tmp_path: Path, arguments: str) -> None:
    provider = Scripted([say(ToolCall("spawn_agent", arguments)), say(text="done")])
    ran = await run(task(tmp_path), provider)
    assert ran.store.children(ran.result.run_id) == [] and ran.tree.ledger.agents == 1
    assert ran.store.observations(ran.result.run_id)[0].kind == "error"
    assert ran.kind is OutcomeKind.finished


async def test_an_unknown_tool_is_an_error_that_names_the_tools(tmp_path: Path) -> None:
    tool = Fake()
    ran = await run(task(tmp_path), Scripted([say(("Probe", {})), say(text="done")]), tool)
    assert tool.log == []
    assert "no tool 'Probe'" in ran.texts()[0] and "probe, spawn_agent" in ran.texts()[0]


async def test_lone_surrogates_and_nuls_are_stored_and_sent_on(tmp_path: Path) -> None:
    tool = Fake()
    call = ToolCall("probe", '{"n": "a\\ud83d", "m": "\\u0000", "ok": "\\ud83d\\ude00"}')
    provider = Scripted([say(call, ToolCall("pro\ud83dbe", "{}"), text="half \ud83d"), say(text="done")])
    ran = await run(task(tmp_path), provider, tool)
    assert tool.log == [{"n": "a\ufffd", "m": "\ufffd", "ok": "\U0001f600"}]
    assert ran.store.turns(ran.result.run_id)[0].text == "half \ufffd"
    for turn in provider.requests[-1].turns:
        repr(turn).encode()
    assert "no tool" in ran.texts()[1]


async def test_what_a_tool_gives_is_made_safe_and_bounded(tmp_path: Path) -> None:
    async def long(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        return Observation(ObservationKind.read, "a\x00b", "\ud83d" + "x" * 1_000_000)

    ran = await run(task(tmp_path), Scripted([say(probe()), say(text="done")]), Fake(long))
    [first, *_] = ran.store.observations(ran.result.run_id)
    assert (first.target, first.text[0]) == ("a\ufffdb", "\ufffd")
    assert len(first.text) < 13_000 and "left out" in first.text


@pytest.mark.parametrize("stream", [False, True])
async def test_three_calls_with_one_id_and_two_without_are_five_calls(tmp_path: Path, stream: bool) -> None:
    calls = tuple(
        SaidCall("probe", json.dumps({"n": n}), id=name) for n, name in enumerate(["same", "same", "same", "", ""])
    )
    tool = Fake()
    async with open_model_server([Answer(calls=calls), Answer(text="done")], strict=True) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m", stream=stream) as provider:
            ran = await run(task(tmp_path), provider, tool)
        assert server.refused == []
        assert ran.tree.ledger.spent_tokens == server.billed_tokens
    assert tool.log == [{"n": n} for n in range(5)]
    assert ran.texts()[:5] == [f"seen {{'n': {n}}}" for n in range(5)]


async def test_broken_arguments_over_http_are_an_error_for_the_model(tmp_path: Path) -> None:
    tool = Fake()
    calls = (SaidCall("probe", "{broken"), SaidCall("no_such", "{}"), SaidCall("probe", "[1]"))
    async with open_model_server([Answer(calls=calls), Answer(text="done")], strict=True) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, tool)
        assert (server.refused, server.calls) == ([], 2)
    assert tool.log == []
    assert [each.kind for each in ran.store.observations(ran.result.run_id)][:3] == ["error"] * 3


async def test_lone_surrogates_over_http_are_replaced_and_the_conversation_goes_on(tmp_path: Path) -> None:
    tool = Fake()
    function = '{"name": "probe", "arguments": "{\\"n\\": \\"a\\\\ud83d\\"}"}'
    message = f'{{"role": "assistant", "content": "half \\ud83d", "tool_calls": [{{"id": "", "function": {function}}}]}}'
    body = f'{{"choices": [{{"message": {message}}}], "usage": {{"prompt_tokens": 60, "completion_tokens": 40}}}}'
    first = Answer(body=body, prompt_tokens=60, completion_tokens=40)
    async with open_model_server([first, Answer(text="done")], strict=True) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, tool)
        assert (server.refused, server.calls) == ([], 2)
        assert ran.tree.ledger.spent_tokens == server.billed_tokens
    assert tool.log == [{"n": "a\ufffd"}]
    assert ran.store.turns(ran.result.run_id)[0].text == "half \ufffd"


# ── tools and gates that say no ─────────────────────────────────────────────


async def test_AB94_a_tool_that_raises_is_an_error_for_the_model(tmp_path: Path) -> None:
    async def broken(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        raise RuntimeError("the disk is on fire")

    ran = await run(task(tmp_path), Scripted([say(probe(), text="a"), say(text="done")]), Fake(broken))
    assert ran.kind is OutcomeKind.finished
    assert "RuntimeError: the disk is on fire" in ran.texts()[0]


async def write(_arguments: Mapping[str, Any], context: ToolContext) -> Observation:
    await context.authorise(Act.write, "a.txt", content="secret content")
    return seen("written", changed=True)


async def test_an_approver_that_denies_is_read_by_the_model_and_is_a_row(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("house").ask_write("*")
    provider = Scripted([say(probe()), say(text="done")])
    ran = await run(task(tmp_path), provider, Fake(write), policy=policy, approver=DenyAll("not on a Friday"))
    assert ran.kind is OutcomeKind.finished and "not on a Friday" in ran.texts()[0]
    [row] = ran.store.events(ran.result.run_id)
    assert (row.kind, row.act, row.target, row.rule, row.layer) == ("refusal", "write", "a.txt", "*", "house")
    assert (row.decision, row.source) == ("denied", "approver")


async def test_the_slot_is_given_back_while_an_approver_thinks(tmp_path: Path) -> None:
    trees: list[Tree] = []
    slots: list[int] = []

    class Thinks:
        async def decide(self, request: ApprovalRequest) -> Approval:
            slots.append(trees[0].slots.out)
            assert (request.act, request.target, request.path) == (Act.write, "a.txt", "root")
            assert request.content == "secret content"
            await trio.testing.wait_all_tasks_blocked()
            return Approval(True)

    policy = Policy.permissive().layer("house").ask_write("*")
    provider = Scripted([say(probe()), say(text="done")])
    ran = await run(
        task(tmp_path), provider, Fake(write), policy=policy, approver=Thinks(), on_open=trees.append
    )
    assert slots == [0] and ran.texts()[0] == "written"
    [row] = ran.store.events(ran.result.run_id)
    assert (row.kind, row.decision) == ("decision", "approved")
    assert not any("secret content" in event.event for event in ran.store.trace(ran.result.run_id))


async def test_AB35_a_spawn_goes_through_the_policy_and_a_denied_one_counts_nobody(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("house").ask_spawn("*")
    provider = Scripted([say(spawn("child")), say(text="done")])
    ran = await run(task(tmp_path), provider, policy=policy, approver=DenyAll())
    assert ran.store.children(ran.result.run_id) == [] and ran.tree.ledger.agents == 1
    [row] = ran.store.events(ran.result.run_id)
    assert (row.act, row.target, row.kind) == ("spawn", "agent", "refusal")


async def test_a_denied_net_refuses_the_run_before_any_call(tmp_path: Path) -> None:
    async with open_model_server([Answer(text="done")]) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            policy = Policy.permissive().layer("house").deny_net("*")
            ran = await run(task(tmp_path), provider, policy=policy)
        assert server.calls == 0
    assert (ran.kind, ran.result.outcome.steps, ran.tree.ledger.snapshot().calls) == (OutcomeKind.refused, 0, 0)
    [row] = ran.store.events(ran.result.run_id)
    assert (row.act, row.layer, row.kind) == ("net", "house", "refusal")
    terminal = ran.store.terminal(ran.result.run_id)
    assert terminal is not None and json.loads(terminal)["kind"] == "cancelled"


async def test_a_human_who_denies_the_net_refuses_the_run(tmp_path: Path) -> None:
    async with open_model_server([Answer(text="done")]) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            policy = Policy.permissive().layer("house").ask_net("*")
            ran = await run(task(tmp_path), provider, policy=policy, approver=DenyAll())
        assert (server.calls, ran.kind) == (0, OutcomeKind.refused)


async def test_deny_by_default_still_reaches_the_provider(tmp_path: Path) -> None:
    async with open_model_server([Answer(text="done")]) as server:
        async with OpenAIChat(server.base_url, api_key="", model="m") as provider:
            ran = await run(task(tmp_path), provider, policy=Policy.default())
        assert (server.calls, ran.kind) == (1, OutcomeKind.finished)


async def test_AB94_a_tool_that_raises_an_error_of_this_package_is_an_error_for_the_model(tmp_path: Path) -> None:
    async def broken(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        raise ConfigError(("tool.key", "cannot be used"))

    ran = await run(task(tmp_path), Scripted([say(probe(), text="a"), say(text="done")]), Fake(broken))
    assert ran.kind is OutcomeKind.finished


async def test_a_tool_that_returns_nothing_shifts_no_result_to_another_call(tmp_path: Path) -> None:
    async def nothing(arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        return None if arguments["n"] == 0 else await echo(arguments, context)  # type: ignore[return-value]

    provider = Scripted([say(probe(0), probe(1)), say(text="done")])
    await run(task(tmp_path), provider, Fake(nothing))
    results = provider.requests[-1].turns[-1]
    assert isinstance(results, ResultsTurn) and len(results.texts) == 2
    assert results.texts[1] == "seen {'n': 1}"


class Broken:
    """An approver that fails."""

    async def decide(self, request: ApprovalRequest) -> Approval:
        raise RuntimeError("the approver is down")


async def test_an_approver_that_fails_lets_no_act_through_and_the_run_goes_on(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("house").ask_write("*")
    provider = Scripted([say(probe()), say(text="done")])
    ran = await run(task(tmp_path), provider, Fake(write), policy=policy, approver=Broken())
    assert ran.kind is OutcomeKind.finished and "the approver is down" in ran.texts()[0]


async def test_an_approver_that_fails_at_a_spawn_does_not_fail_the_parent(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("house").ask_spawn("*")
    ran = await run(task(tmp_path), Scripted([say(spawn("child")), say(text="done")]), policy=policy, approver=Broken())
    assert ran.kind is OutcomeKind.finished and ran.store.children(ran.result.run_id) == []


async def test_a_spawn_with_deeply_nested_arguments_is_an_error_for_the_model(tmp_path: Path) -> None:
    """The decoder takes the depth, and cleaning what it gave does not."""
    arguments = '{"goal": "child", "verify": ' + "[" * DEEP + "]" * DEEP + "}"
    json.loads(arguments)
    ran = await run(task(tmp_path), Scripted([say(ToolCall("spawn_agent", arguments)), say(text="done")]))
    assert ran.kind is OutcomeKind.finished


# ── ends ────────────────────────────────────────────────────────────────────


async def test_repeating_one_call_gets_a_note_and_then_stalls(tmp_path: Path) -> None:
    provider = Scripted([say(probe()) for _ in range(20)])
    ran = await run(task(tmp_path, max_steps=20), provider)
    assert (ran.kind, ran.result.outcome.steps) == (OutcomeKind.stalled, 6)
    notes = [
        text
        for turn in provider.requests[-1].turns
        if isinstance(turn, ResultsTurn)
        for text in turn.texts
        if "Plan anew" in text
    ]
    assert len(notes) == 1 and 'probe:{"n": 0}' in notes[0]
    terminal = ran.store.terminal(ran.result.run_id)
    assert terminal is not None and json.loads(terminal)["result"]["termination"] == "no_progress"


async def test_varied_exploration_never_stalls(tmp_path: Path) -> None:
    provider = Scripted([say(probe(n)) for n in range(20)])
    ran = await run(task(tmp_path, max_steps=20), provider)
    assert (ran.kind, ran.result.outcome.steps) == (OutcomeKind.step_cap_reached, 20)


async def test_a_window_of_zero_lets_an_agent_repeat_itself(tmp_path: Path) -> None:
    provider = Scripted([say(probe()) for _ in range(9)])
    ran = await run(task(tmp_path, max_steps=9, stall=StallPolicy(0)), provider)
    assert (ran.kind, ran.result.outcome.steps) == (OutcomeKind.step_cap_reached, 9)


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_line17_the_step_cap_sends_no_last_call(tmp_path: Path, steps: int) -> None:
    provider = Scripted([say(probe(n), text=f"working {n}") for n in range(9)])
    ran = await run(task(tmp_path, max_steps=steps), provider)
    assert (ran.kind, ran.result.outcome.steps, provider.calls) == (OutcomeKind.step_cap_reached, steps, steps)
    terminal = ran.store.terminal(ran.result.run_id)
    assert terminal is not None and json.loads(terminal)["result"]["termination"] == "max_turns"


async def test_AB23_a_child_cut_by_its_step_cap_names_it_and_its_text_is_partial(tmp_path: Path) -> None:
    call = ("spawn_agent", {"goal": "child", "verify": {"kind": "none"}, "max_steps": 2})
    answers = [say(call), *(say(probe(n), when="child", text=f"at {n}") for n in range(5)), say(text="done")]
    ran = await run(task(tmp_path), Scripted(answers))
    assert "root/1.1 ended: step_cap_reached after 2 steps, 200 tokens" in ran.texts()[0]
    assert "It said (partial):\nat 1" in ran.texts()[0]


async def test_a_quiet_turn_does_not_end_a_run_with_a_criterion(tmp_path: Path) -> None:
    async def touch(_arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        (tmp_path / "a.txt").write_text("ok")
        return seen("written", changed=True)

    contract = task(tmp_path, verify=Verification.workspace_file_contains("a.txt", "ok"))
    provider = Scripted([say(text="I am done"), say(probe()), say(text="never asked")])
    ran = await run(contract, provider, Fake(touch))
    assert (ran.kind, ran.result.outcome.steps, provider.calls) == (OutcomeKind.success, 2, 2)
    asked = provider.requests[1].turns[-1]
    assert isinstance(asked, UserTurn) and "does not count as done" in asked.text
    assert [gate.verdict for gate in ran.store.gate_attempts(ran.result.run_id)] == ["failed", "passed"]
    assert ran.texts()[0] == "I am done"


@pytest.mark.parametrize("reason", ["pause_turn", "length", "max_tokens"])
async def test_an_answer_that_is_not_whole_does_not_finish_a_run(tmp_path: Path, reason: str) -> None:
    provider = Scripted([say(text="half", finish_reason=reason), say(text="whole")])
    ran = await run(task(tmp_path), provider)
    assert (ran.kind, ran.result.said, provider.calls) == (OutcomeKind.finished, "whole", 2)


async def test_a_child_that_never_says_anything_is_reported_so(tmp_path: Path) -> None:
    ran = await run(task(tmp_path), Scripted([say(spawn("child")), say(when="child"), say(text="done")]))
    assert "It said nothing." in ran.texts()[0]


async def test_a_role_of_nobody_and_equal_states_give_equal_requests(tmp_path: Path) -> None:
    """Nothing in a request holds a run id or a clock: two runs ask in the same bytes."""
    script = [say(spawn("child"), probe(1)), say(when="child", text="x"), say(text="done")]
    first, second = Scripted(script), Scripted(script)
    ran = await run(task(tmp_path), first)
    await run(task(tmp_path), second)
    assert first.requests == second.requests
    assert ran.result.run_id not in repr(first.requests)


def test_the_text_of_a_contract_is_its_own_also_when_much_of_it_is_shared(tmp_path: Path) -> None:
    services = Services(Scripted(()), ApproveAll(), (), evaluate, PriceTable())
    parent = task(tmp_path)
    child = parent.for_child("child", Verification.workspace_file_contains("a", "b"), 3)
    other = attrs.evolve(child, max_retries=9)
    for contract in (parent, child, other, child, parent):
        assert json.loads(services.contract_text(contract)) == json.loads(json.dumps(contract.to_dict()))
    for policy in (Policy.default(), Policy.permissive(), Policy.default()):
        assert services.policy_text(policy) == policy.to_json()


class Counting:
    """An approver that says yes, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request.target)
        return Approval(True, "")


async def test_one_act_seen_in_two_ways_is_asked_about_once_and_with_all_of_it(tmp_path: Path) -> None:
    async def remove(arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        await context.authorise(Act.exec, "rm", "rm -r build")
        return await echo(arguments, context)

    approver = Counting()
    policy = Policy.permissive().layer("house").ask_exec("*")
    ran = await run(
        task(tmp_path), Scripted([say(probe()), say(text="done")]), Fake(remove), policy=policy, approver=approver
    )
    assert ran.kind is OutcomeKind.finished and approver.asked == ["rm -r build"]


async def test_one_act_seen_in_two_ways_is_denied_when_either_is(tmp_path: Path) -> None:
    async def remove(arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        await context.authorise(Act.exec, "rm", "rm -r build")
        raise AssertionError("never allowed")

    approver = Counting()
    policy = Policy.permissive().layer("house").ask_exec("*").deny_exec("rm -r *")
    ran = await run(
        task(tmp_path), Scripted([say(probe()), say(text="done")]), Fake(remove), policy=policy, approver=approver
    )
    assert approver.asked == [] and "denied by policy" in ran.texts()[0]
