"""Another model takes over where the operator said so: in every agent, paid at its own price, told once, also after a kill."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import RetryPolicy, StallPolicy, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest
from actors.agents.roster import AgentDef, Agents
from actors.agents.routing import Routing, request_bytes
from actors.agents.verification import Verification
from actors.assembly.reopening import reopen
from actors.assembly.running import RunResult, run_tree, run_with
from actors.assembly.task_file import read_task, validate_task
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.dying_store import Death
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench

LOOK = call("list_dir", path=".")
NEVER = Verification.workspace_file_contains("done.txt", "done")
UP = Routing(escalate_after=2, escalate_to="strong")
LIMITS = Containment(10, 4, 2, 10**6)


def contract_of(tmp_path: Path, routing: Routing | None = UP, steps: int = 4, **more: Any) -> TaskContract:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    # Looking again and again is what these agents do; nobody is to call it a stall.
    return TaskContract.workspace(
        "root", work, NEVER, max_steps=steps, routing=routing, stall=StallPolicy(0), **more
    )


async def alone(contract: TaskContract, model: Any, store: Store) -> RunResult:
    return await run_with(contract, model, store, Policy.permissive(), ApproveAll())


def told(store: Any, run_id: str) -> list[dict[str, Any]]:
    """Give the events of one agent that tell of another model, without what every event has."""
    events = [json.loads(each.event) for each in store.trace(run_id.partition("/")[0])]
    common = ("kind", "run_id", "path", "depth")
    return [
        {key: value for key, value in each.items() if key not in common}
        for each in events
        if each["kind"] == "routed" and each["run_id"] == run_id
    ]


def asked(store: Any, run_id: str) -> list[str | None]:
    return [each.asked for each in store.provider_calls(run_id)]


# ── when ────────────────────────────────────────────────────────────────────


async def test_after_so_many_checks_in_a_row_the_stronger_model_is_asked_and_it_is_told_once(tmp_path: Path) -> None:
    store, model = Store.memory(), Scripted([[LOOK]] * 5)
    result = await alone(contract_of(tmp_path, steps=5), model, store)
    assert asked(store, result.run_id) == [None, None, "strong", "strong", "strong"]
    assert [request.model for request in model.requests] == asked(store, result.run_id)
    [event] = told(store, result.run_id)
    assert event.pop("bytes") == request_bytes(model.requests[2])
    assert event == {"step": 3, "from": "configured-model", "to": "strong", "why": "escalated", "non_passes": 2}


async def test_a_check_that_passes_asks_nobody_else(tmp_path: Path) -> None:
    store = Store.memory()
    model = Scripted([[LOOK], [call("write_file", path="done.txt", content="done")]])
    result = await alone(contract_of(tmp_path, Routing(escalate_after=2, escalate_to="strong")), model, store)
    assert result.outcome.kind is OutcomeKind.success
    assert asked(store, result.run_id) == [None, None] and told(store, result.run_id) == []


async def test_a_check_that_could_not_be_made_counts_as_none_that_passed(tmp_path: Path) -> None:
    store, contract = Store.memory(), contract_of(tmp_path, Routing(escalate_after=1, escalate_to="strong"), 2)
    contract = contract.with_verification(Verification.command(["/nowhere/at/all"]))
    result = await alone(contract, Scripted([[LOOK]] * 2), store)
    assert {gate.verdict for gate in store.gate_attempts(result.run_id)} == {"errored"}
    assert asked(store, result.run_id) == [None, "strong"]


async def test_small_requests_go_to_the_cheaper_model_until_they_grow(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "long.txt").write_text("x" * 5_000)
    READ = call("read_file", path="long.txt")
    plain = Scripted([[READ]] * 3)
    await alone(contract_of(tmp_path, None, 3), plain, Store.memory())
    sizes = [request_bytes(request) for request in plain.requests]
    store, model = Store.memory(), Scripted([[READ]] * 3)
    down = Routing(downshift_under=sizes[1], downshift_to="small")
    result = await alone(contract_of(tmp_path, down, 3), model, store)
    assert asked(store, result.run_id) == ["small", None, None]
    assert [(each["step"], each["from"], each["to"], each["why"], each["bytes"]) for each in told(store, result.run_id)] == [
        (1, "configured-model", "small", "downshifted", sizes[0]),
        (2, "small", "configured-model", "own", sizes[1]),
    ]


async def test_of_two_that_apply_the_stronger_model_is_asked(tmp_path: Path) -> None:
    both = Routing(escalate_after=1, escalate_to="strong", downshift_under=10**6, downshift_to="small")
    store = Store.memory()
    result = await alone(contract_of(tmp_path, both, 3), Scripted([[LOOK]] * 3), store)
    assert asked(store, result.run_id) == ["small", "strong", "strong"]
    assert [(each["from"], each["to"]) for each in told(store, result.run_id)] == [
        ("configured-model", "small"), ("small", "strong"),
    ]  # fmt: skip


async def test_the_runs_own_model_by_its_name_is_no_change(tmp_path: Path) -> None:
    store = Store.memory()
    same = Routing(downshift_under=10**6, downshift_to="configured-model")
    result = await alone(contract_of(tmp_path, same, 1), Scripted([[LOOK]]), store)
    assert told(store, result.run_id) == []


async def test_a_try_again_goes_to_the_same_model_and_is_not_told_again(tmp_path: Path) -> None:
    fails = ScriptedAnswer(error=ProviderError(ProviderErrorKind.server, "no"))
    store = Store.memory()
    contract = contract_of(tmp_path, Routing(escalate_after=1, escalate_to="strong"), 2, retry=RetryPolicy(0, 0))
    result = await alone(contract, Scripted([[LOOK], fails, [LOOK]]), store)
    assert asked(store, result.run_id) == [None, "strong", "strong"] and len(told(store, result.run_id)) == 1


async def test_an_agent_without_a_criterion_never_escalates(tmp_path: Path) -> None:
    store, contract = Store.memory(), contract_of(tmp_path, Routing(escalate_after=1, escalate_to="strong"), 3)
    result = await alone(contract.with_verification(Verification.none()), Scripted([[LOOK]] * 3), store)
    assert asked(store, result.run_id) == [None] * 3


# ── everybody, and at which price ───────────────────────────────────────────


async def test_every_agent_is_routed_by_its_own_checks_whatever_model_its_definition_names(tmp_path: Path) -> None:
    verify = {"kind": "workspace_file_contains", "file": "x", "needle": "y"}
    child = call("spawn_agent", goal="child", verify=verify, agent="a", max_steps=4)
    script = [
        ScriptedAnswer(calls=(child,), when="root"),
        *[ScriptedAnswer(calls=(LOOK,), when="root")] * 1,
        *[ScriptedAnswer(calls=(LOOK,), when="child")] * 4,
    ]
    contract = contract_of(tmp_path, steps=2, agents=Agents((AgentDef("a").with_model("of-a"),)))
    store = Store.memory()
    result = await run_tree(contract, Scripted(script), store, Policy.permissive(), ApproveAll(), LIMITS)
    [below] = store.children(result.run_id)
    assert asked(store, below) == ["of-a", "of-a", "strong", "strong"]
    assert [(each["from"], each["to"]) for each in told(store, below)] == [("of-a", "strong")]
    # The checks of the child are none of its parent's.
    assert asked(store, result.run_id) == [None, None] and told(store, result.run_id) == []


class Nameless(Scripted):
    """Does not say which model served, as some endpoints do not."""

    async def complete(self, request: CompletionRequest) -> Completion:
        return attrs.evolve(await super().complete(request), model=None)


@pytest.mark.parametrize("kind", [Scripted, Nameless])
async def test_what_is_asked_is_held_and_paid_at_the_price_of_the_model_that_is_asked(
    tmp_path: Path, kind: type[Scripted]
) -> None:
    cheap, dear = {"input": "1", "output": "1"}, {"input": "100", "output": "100"}
    table = PriceTable.from_dict({"configured-model": cheap, "strong": dear})
    limits = Containment(10, 4, 2, 10**6, max_total_cost=10**6)
    usage, store = Usage(1_000, 1_000), Store.memory()
    contract = contract_of(tmp_path, Routing(escalate_after=1, escalate_to="strong"), 2)
    model = kind([ScriptedAnswer(calls=(LOOK,), usage=usage)] * 2)
    result = await run_tree(contract, model, store, Policy.permissive(), ApproveAll(), limits, prices=table)
    paid = store.select("SELECT microdollars, used_microdollars FROM reservations ORDER BY id", ())
    assert [tuple(each) for each in paid] == [(2_000, 2_000), (200_000, 200_000)]
    assert result.run_id


@pytest.mark.parametrize(("known", "missing"), [(["configured-model"], ["strong"]), (["configured-model", "strong"], [])])
async def test_a_cost_ceiling_needs_the_price_of_the_other_model_before_anything_is_asked(
    tmp_path: Path, known: list[str], missing: list[str]
) -> None:
    table = PriceTable.from_dict({name: {"input": "1", "output": "1"} for name in known})
    limits, model = Containment(10, 4, 2, 10**6, max_total_cost=10**6), Scripted([[LOOK]] * 9)
    run = run_tree(contract_of(tmp_path), model, Store.memory(), Policy.permissive(), ApproveAll(), limits, prices=table)
    if missing:
        with pytest.raises(ConfigError) as refused:
            await run
        assert [path for path, _text in refused.value.problems] == [f'prices."{each}"' for each in missing]
        assert model.calls == 0
    else:
        await run
        assert model.calls == 4


@pytest.mark.parametrize("field", ["escalate", "downshift"])
async def test_a_reviewer_that_may_be_asked_for_the_work_itself_is_refused(tmp_path: Path, field: str) -> None:
    own = {"escalate": "escalate_after", "downshift": "downshift_under"}[field]
    routing = Routing(**{own: 5, f"{field}_to": "vendor/Judge-1"})
    contract = contract_of(tmp_path, routing).with_verification(Verification.review("kind?"))
    model, reviewer = Scripted([[LOOK]]), Scripted([], name="judge", model="judge-1")
    with pytest.raises(ConfigError, match="is the model of the run itself, vendor/Judge-1"):
        await run_tree(contract, model, Store.memory(), Policy.permissive(), ApproveAll(), LIMITS, reviewer=reviewer)
    assert model.calls == 0


# ── over a restart ──────────────────────────────────────────────────────────


UNTIL = 60


async def test_a_kill_at_any_commit_changes_no_model_and_tells_of_a_change_once(tmp_path: Path) -> None:
    routing = Routing(escalate_after=2, escalate_to="strong", downshift_under=10**6, downshift_to="small")
    verify = {"kind": "workspace_file_contains", "file": "x", "needle": "y"}
    answers: dict[str, Any] = {
        "root": [[LOOK], [call("spawn_agent", goal="child", verify=verify, max_steps=3)], [LOOK]],
        "child": [[LOOK]] * 3,
    }
    deaths = 0
    for keep in (False, True):
        for at in range(1, UNTIL):
            folder = tmp_path / f"{at}-{keep}"
            folder.mkdir()
            bench = Bench(folder, answers, contract=contract_of(folder, routing, 3))
            death = Death(at=at, keep_appended=keep)
            ran = await bench.begin(death=death)
            if ran is None and not bench.stands:
                continue
            if not death.dead:
                break
            deaths += 1
            assert await bench.go_on() is not None
            for goal in answers:
                seen = {(len(each.turns), each.model) for each in bench.requests(goal)}
                assert [model for _turns, model in sorted(seen)] == ["small", "small", "strong"], (goal, at)
            kept = [json.loads(each) for each in bench.sql("SELECT event FROM run_events ORDER BY id")]
            routed = sorted((each["path"], each["step"], each["to"]) for each in kept if each["kind"] == "routed")
            assert routed == [(path, *to) for path in ("root", "root/2.1") for to in ((1, "small"), (3, "strong"))], at
            bench.check()
        else:
            raise AssertionError("a run that is never killed was never reached")
    assert deaths > 30


async def test_a_run_that_is_reopened_counts_its_own_checks(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "runs.db") as store:
        contract = contract_of(tmp_path, Routing(escalate_after=2, escalate_to="strong"), 2)
        first = await run_tree(contract, Scripted([[LOOK]] * 2), store, Policy.permissive(), ApproveAll(), LIMITS)
        more = contract.with_max_steps(5)
        again = await reopen(
            first.run_id, Scripted([[LOOK]] * 3), store, approver=ApproveAll(), contract=more
        )
        assert again.run_id is not None
        assert asked(store, first.run_id) == [None, None]
        assert asked(store, again.run_id) == [None, None, "strong"]


async def test_a_recorded_run_is_replayed_with_the_same_models(tmp_path: Path) -> None:
    file, contract = tmp_path / "run.jsonl", contract_of(tmp_path)
    async with RecordingProvider(Scripted([[LOOK]] * 4), file) as recording:
        first = await alone(contract, recording, one := Store.memory())
    async with ReplayProvider(file) as replaying:
        again = await alone(contract, replaying, two := Store.memory())
        assert replaying.left == 0
    assert asked(two, again.run_id) == asked(one, first.run_id) == [None, None, "strong", "strong"]
    assert told(two, again.run_id) == told(one, first.run_id)


# ── the task file ───────────────────────────────────────────────────────────


TASK = """
[contract]
goal = "g"
root = "."
[contract.verify]
kind = "workspace_file_contains"
file = "a"
needle = "b"
[contract.routing]
escalate_after = 3
escalate_to = "openai:strong"
downshift_under = 20_000
downshift_to = "small"
[provider]
kind = "openai"
model = "m"
"""


def file_of(tmp_path: Path) -> Path:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    return path


def test_a_task_file_says_it_all(tmp_path: Path) -> None:
    expected = Routing(escalate_after=3, escalate_to="strong", downshift_under=20_000, downshift_to="small")
    assert read_task(file_of(tmp_path)).contract.routing == expected


@pytest.mark.parametrize(
    ("overrides", "path", "text"),
    [
        (['contract.routing.escalate_to="openrouter:x"'], "contract.routing.escalate_to", "names the provider openrouter"),
        (["contract.routing.downshift_under=0"], "contract.routing.downshift_under", "must be at least 1"),
        (["contract.routing={}"], "contract.routing", "says nothing"),
        (["contract.routing={ escalate_after = 2 }"], "contract.routing", "go together"),
        (['contract.verify={ kind = "none" }'], "contract.routing.escalate_after", "counts checks, and none is made"),
        (['contract.routing={ provider = "x" }'], "contract.routing.provider", "unknown key"),
        (
            ['contract.verify={ kind = "review", rubric = "r" }', 'reviewer={ kind = "openai", model = "strong" }'],
            "reviewer.model",
            "which does the work (contract.routing.escalate_to)",
        ),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], path: str, text: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert validate_task(file_of(tmp_path)) == []
    [(at, said)] = validate_task(file_of(tmp_path), overrides)
    assert at == path and text in said


def test_a_tree_may_escalate_although_its_root_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    limits = [f"containment.{key}=9" for key in ("max_total_agents", "max_concurrent", "max_depth", "max_total_tokens")]
    assert validate_task(file_of(tmp_path), ['contract.verify={ kind = "none" }', *limits]) == []
