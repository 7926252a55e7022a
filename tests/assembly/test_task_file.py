"""A task file is read strictly and relative to itself, and every problem is told on a line of its own."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.acted_on import ACTED_ON, AGENT_ACTED_ON
from actors.agents.contract import TaskContract
from actors.agents.policy import Act, Effect
from actors.agents.ports import Completion, CompletionRequest, Estimate, UserTurn
from actors.agents.roster import AgentDef
from actors.agents.verification import SUPPORTED, CriterionKind, Verification
from actors.assembly.provider_spec import provider_of
from actors.assembly.run_settings import RunSettings
from actors.assembly.task_file import (
    MOST_LINE,
    SUPPORTED_PROVIDERS,
    ProviderKind,
    ProviderSpec,
    read_task,
    validate_task,
)
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.providers.exchange_codec import Exchange, Start, encode_line, fingerprint

WHOLE = """
[contract]
goal = "make the tests pass"
root = "work"
max_steps = 12
constraints = ["change no test"]
[contract.verify]
kind = "command"
argv = ["pytest", "-q"]
expect_exit = 0
[containment]
max_total_agents = 12
max_concurrent = 4
max_depth = 2
max_total_tokens = 200_000
max_total_cost = "1.50"
max_total_duration = 3600
max_total_calls = 200
max_total_tool_calls = 500
[provider]
kind = "compatible"
model = "compatible:small"
base_url = "http://127.0.0.1:8080/v1"
[policy.defaults]
net = "deny"
[[policy.layers]]
name = "operator"
rules = [{ act = "read", effect = "allow", glob = "*" }, { act = "write", effect = "deny", glob = "secrets/*" }]
[prices.small]
input = "0.15"
output = "0.60"
[prices.cheap]
input = "0.01"
output = "0.02"
[run]
cleanup_allowance = 7
approve = "deny"
[agents.searcher]
model = "cheap"
role = "You only read."
deny_write = true
"""


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Give the vendor's provider a key, and no address but its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "a-key-of-no-account")
        patch.delenv("OPENAI_BASE_URL", raising=False)
        yield


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    file = tmp_path / "task.toml"
    file.write_text(WHOLE)
    return file


def test_reads_a_whole_file(whole: Path) -> None:
    task = read_task(whole)
    assert task.contract.root == whole.parent / "work"
    assert task.contract.max_steps == 12
    assert task.containment == Containment(12, 4, 2, 200_000, 1_500_000, 3600.0, 200, 500)
    assert (task.provider.kind, task.provider.model) == ("compatible", "small")
    assert (task.run.cleanup_allowance, task.run.approve) == (7.0, "deny")
    searcher = task.contract.agents.get("searcher")
    assert searcher is not None and searcher.deny_write and searcher.model == "cheap"
    assert task.contract.verify == Verification.command(["pytest", "-q"])
    assert task.contract.constraints == ("change no test",)
    assert task.policy is not None
    decided = [task.policy.explain(act, at) for act, at in ((Act.write, "secrets/a"), (Act.read, "a"), (Act.net, "h"))]
    assert [decision.effect for decision in decided] == [Effect.deny, Effect.allow, Effect.deny]
    # The layer of secrets stands below what the operator wrote.
    assert task.policy.explain(Act.read, ".env").effect is Effect.deny
    assert len(task.prices) == 2
    assert task.source == whole


def test_an_override_is_a_toml_value_or_a_bare_text(whole: Path) -> None:
    task = read_task(
        whole, ["contract.max_steps=3", "contract.goal=other words", 'containment.max_total_cost="2"', "run.approve=all"]
    )
    assert (task.contract.max_steps, task.contract.goal) == (3, "other words")
    assert task.containment is not None and task.containment.max_total_cost == 2_000_000
    assert task.run.approve == "all"


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("agents.searcher.model=dear", "agents.searcher.model"),
        ("provider.model=dear", "provider.model"),
        ("provider.model=openai:gpt", "provider.model"),
        ("agents.searcher.effort=3", "agents.searcher.effort"),
        ("contract.verify.argv=[]", "contract.verify.argv"),
        ("prices.small.input=0.15", 'prices."small".input'),
        ("contract.agents.x.role=y", "contract.agents"),
        ("provider.base_url=", "provider.base_url"),
    ],
)
def test_a_problem_is_told_with_its_path(whole: Path, override: str, path: str) -> None:
    assert any(where.startswith(path) for where, _ in validate_task(whole, [override])), validate_task(whole, [override])


def test_all_problems_are_told_and_none_twice(whole: Path) -> None:
    problems = validate_task(whole, ["contract.x=1", "containment.y=1", "provider.z=1", "run.q=1", "w=1"])
    assert {path for path, _ in problems} == {"contract.x", "containment.y", "provider.z", "run.q", "w"}
    assert len(problems) == 5


def test_a_free_model_needs_no_price_when_the_operator_says_so(whole: Path) -> None:
    assert validate_task(whole, ["provider.model=dear", "contract.on_unknown_price=tokens_only"]) == []


def test_single_file_work_takes_no_policy_and_no_tree(tmp_path: Path) -> None:
    text = '[contract]\ngoal="g"\nfile="a.txt"\n[contract.verify]\nkind="file_contains"\ntext="x"\n'
    file = tmp_path / "task.toml"
    file.write_text(text + '[provider]\nkind="openai"\nmodel="m"\n')
    assert validate_task(file) == []
    assert read_task(file).contract.file == tmp_path / "a.txt"
    assert {path for path, _ in validate_task(file, ["contract.file=no/a.txt"])} == {"contract.file"}
    assert {path for path, _ in validate_task(file, ["contract.file=."])} == {"contract.file"}
    assert {path for path, _ in validate_task(file, ["policy.defaults.write=deny"])} == {"policy"}
    limits = ["max_total_agents=1", "max_concurrent=1", "max_depth=0", "max_total_tokens=1"]
    found = validate_task(file, [f"containment.{limit}" for limit in limits])
    assert {path for path, _ in found} == {"contract.root"}


@pytest.fixture
def least(tmp_path: Path) -> Path:
    file = tmp_path / "task.toml"
    file.write_text('[contract]\ngoal = "g"\nroot = "."\n[provider]\nkind = "openai"\nmodel = "m"\n')
    return file


def test_what_is_not_written_has_its_default(least: Path) -> None:
    task = read_task(least)
    assert task.contract == TaskContract.workspace("g", least.parent)
    assert task.provider == ProviderSpec(ProviderKind.openai, "m")
    assert (task.containment, task.policy, len(task.prices), task.run) == (None, None, 0, RunSettings(5.0, None))


def paths_of(file: Path, *overrides: str) -> list[str]:
    return [path for path, _text in validate_task(file, overrides)]


# ── paths ───────────────────────────────────────────────────────────────────


def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(
    least: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (least.parent / "work").mkdir()
    (least.parent / "answers.json").write_text("[]")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    task = read_task(least, ["contract.root=work", "provider.kind=scripted", "provider.script=answers.json"])
    assert task.contract.root == least.parent / "work"
    assert task.provider.script == str(least.parent / "answers.json")


def test_a_root_that_cannot_be_worked_in_is_told_by_its_key(least: Path) -> None:
    (least.parent / "circle").symlink_to(least.parent / "circle")
    assert validate_task(least, ["contract.root=nowhere"]) == [
        ("contract.root", f"{least.parent / 'nowhere'} is not a directory")
    ]
    for root in ("task.toml", "task.toml/below", "circle", "a" * 5_000, '"a\\u0000b"', '""', "3"):
        assert paths_of(least, f"contract.root={root}") == ["contract.root"], root


# ── providers and models ────────────────────────────────────────────────────

ASKED = CompletionRequest("s", (UserTurn("g"),))
RECORDING = encode_line(Start("openai", "m", "")) + encode_line(
    Exchange(1, fingerprint(ASKED), Estimate(1, 1), None, Completion("done"))
)


@pytest.mark.parametrize("kind", list(ProviderKind))
def test_a_kind_of_provider_works_or_says_that_it_does_not_yet(least: Path, kind: ProviderKind) -> None:
    (least.parent / "s.json").write_text("[]")
    (least.parent / "r.jsonl").write_bytes(RECORDING)
    more = {
        "compatible": ["provider.base_url=http://h/v1"],
        "scripted": ["provider.script=s.json"],
        # A table of its own: what is recorded has an address and a model already.
        "replay": ["provider={ kind = 'replay', file = 'r.jsonl' }"],
    }.get(kind, [])
    found = validate_task(least, [f"provider.kind={kind}", *more])
    if kind in SUPPORTED_PROVIDERS:
        assert found == []
    else:
        [(path, text)] = found
        assert path == "provider.kind"
        assert f"{kind} is not supported by this version yet" in text


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        (["provider.kind=compatible"], "provider.base_url"),
        (["provider.kind=scripted"], "provider.script"),
        (["provider.kind=scripted", "provider.script=no.json"], "provider.script"),
        (["provider.script=task.toml"], "provider.script"),
        (["provider.kind=scripted", "provider.script=task.toml", "provider.base_url=http://h"], "provider.base_url"),
        (["provider={ kind = 'replay' }"], "provider.file"),
        (["provider={ kind = 'replay', file = 'no.jsonl' }"], "provider.file"),
        # No recording.
        (["provider={ kind = 'replay', file = 'task.toml' }"], "provider.file"),
        (["provider={ kind = 'replay', file = 'task.toml', base_url = 'http://h' }"], "provider.base_url"),
        (["provider={ kind = 'replay', file = 'task.toml', model = 'm' }"], "provider.model"),
        (["provider.file=task.toml"], "provider.file"),
        (["provider.record=no/r.jsonl"], "provider.record"),
        # It holds something.
        (["provider.record=task.toml"], "provider.record"),
        (["provider.kind=other"], "provider.kind"),
        (["provider.model=openai:"], "provider.model"),
        (["provider.model=anthropic/x"], "provider.model"),
        (["agents.a.model=openai/"], "agents.a.model"),
        (["agents.a.model=anthropic:x"], "agents.a.model"),
    ],
)
def test_a_provider_that_cannot_be_made_is_told_by_its_key(least: Path, overrides: list[str], path: str) -> None:
    assert paths_of(least, *overrides) == [path]


@pytest.mark.parametrize("written", ["gpt-5.6", "openai:gpt-5.6", "openai/gpt-5.6"])
def test_a_model_may_be_written_with_its_provider(least: Path, written: str) -> None:
    task = read_task(least, [f"provider.model={written}", f"agents.a.model={written}"])
    [agent] = task.contract.agents
    assert (task.provider.model, agent.model) == ("gpt-5.6", "gpt-5.6")


def test_a_replay_takes_the_models_of_whichever_provider_was_recorded_and_looks_for_its_own_in_the_file(
    least: Path,
) -> None:
    (least.parent / "r.jsonl").write_bytes(RECORDING)
    replay = ["provider={ kind = 'replay', file = 'r.jsonl' }", "agents.a.model=anthropic:x"]
    ceiling = ["containment={ max_total_agents = 2, max_concurrent = 1, max_depth = 1, max_total_tokens = 9 }"]
    ceiling += ['containment.max_total_cost="1"', "prices.x={ input = '1', output = '1' }"]
    task = read_task(least, [*replay, *ceiling])
    assert [agent.model for agent in task.contract.agents] == ["x"]
    provider = provider_of(task.provider)
    assert (provider.name, getattr(provider, "default_model", None)) == ("openai", "m")


def test_looking_at_a_task_that_records_leaves_no_file_behind(least: Path) -> None:
    assert validate_task(least, ["provider.record=run.jsonl"]) == []
    assert not (least.parent / "run.jsonl").exists()
    assert read_task(least, ["provider.record=run.jsonl"]).provider.record == str(least.parent / "run.jsonl")


def test_the_model_of_a_gateway_may_begin_with_the_name_of_a_provider(least: Path) -> None:
    gateway = ["provider.kind=compatible", "provider.base_url=http://h/v1"]
    [(_path, text)] = validate_task(least, [*gateway, "provider.model=openai/gpt-5.6"])
    assert text.endswith("write compatible:openai/gpt-5.6")
    assert read_task(least, [*gateway, "provider.model=compatible:openai/gpt-5.6"]).provider.model == "openai/gpt-5.6"


def test_a_kind_that_is_none_is_answered_with_the_kinds_that_work_and_no_others(least: Path) -> None:
    [(path, text)] = validate_task(least, ["provider.kind=opnai"])
    assert (path, text) == ("provider.kind", "must be one of compatible, openai, replay, scripted, not 'opnai'")
    assert set(text.removeprefix("must be one of ").partition(", not")[0].split(", ")) == SUPPORTED_PROVIDERS


def test_a_missing_key_is_told_by_validate_as_a_run_tells_it(least: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    problem = ("provider.api_key", "no key is given: set OPENAI_API_KEY")
    assert validate_task(least) == [problem]
    # With everything else that is wrong, and not after it.
    assert paths_of(least, "contract.max_steps=-1") == ["contract.max_steps", "provider.api_key"]
    with pytest.raises(ConfigError) as refused:
        provider_of(read_task(least).provider)
    assert refused.value.problems == (problem,)
    # Another endpoint may want none.
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1")
    assert validate_task(least) == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["provider.base_url=nowhere"],
        ["provider.kind=compatible", "provider.base_url=http://user:word@h/v1"],
        ["provider.kind=scripted", "provider.script=broken.json"],
    ],
)
def test_what_no_provider_can_be_made_of_is_told_by_validate_as_a_run_tells_it(
    least: Path, overrides: list[str]
) -> None:
    (least.parent / "broken.json").write_text('[{"call": []}, {"calls": [["write_file"]]}]')
    with pytest.raises(ConfigError) as refused:
        provider_of(read_task(least, overrides).provider)
    assert validate_task(least, overrides) == list(refused.value.problems) != []


# ── prices ──────────────────────────────────────────────────────────────────

LIMITS = [f"containment.{key}=9" for key in ("max_total_agents", "max_concurrent", "max_depth", "max_total_tokens")]
CAPPED = [*LIMITS, 'containment.max_total_cost="1"']
PRICED = ['prices.m.input="1"', 'prices.m.output="1"']


@pytest.mark.parametrize(
    ("overrides", "paths"),
    [
        (LIMITS, []),
        (CAPPED, ["prices"]),
        ([*CAPPED, "contract.on_unknown_price=tokens_only"], []),
        ([*CAPPED, "prices={}"], ["provider.model"]),
        ([*CAPPED, *PRICED], []),
        ([*CAPPED, *PRICED, "agents.a.role=r"], []),
        ([*CAPPED, *PRICED, "agents.a.model=m", "agents.b.model=dear"], ["agents.b.model"]),
        ([*CAPPED, *PRICED, "contract.routing={ downshift_under = 9, downshift_to = 'm' }"], []),
        ([*CAPPED, *PRICED, "contract.routing={ downshift_under = 9, downshift_to = 'x' }"], ["contract.routing.downshift_to"]),
        ([*CAPPED, *PRICED, "provider={ kind = 'openai' }"], ["provider.model"]),
        # What a broken price would have said is not known, so nobody is told that it is missing.
        ([*CAPPED, *PRICED, "prices.m.input=1"], ['prices."m".input']),
        ([*LIMITS, "containment.max_total_cost=1.5"], ["containment.max_total_cost"]),
    ],
)
def test_a_cost_ceiling_needs_the_price_of_every_model(least: Path, overrides: list[str], paths: list[str]) -> None:
    assert paths_of(least, *overrides) == paths


def test_the_model_without_a_price_is_named_with_the_table_to_add(least: Path) -> None:
    [(_path, text)] = validate_task(least, [*CAPPED, *PRICED, "provider.model=gpt-5.6"])
    assert "add [prices.\"gpt-5.6\"]" in text


def test_models_are_named_also_where_no_price_is_written_at_all(least: Path) -> None:
    [(path, text)] = validate_task(least, [*CAPPED, "agents.a.model=dear", "agents.b.model=m"])
    assert path == "prices"
    assert text.startswith('no price is known for "m", "dear", and containment.max_total_cost is set')
    assert text.endswith('add [prices."m"], [prices."dear"]')


# ── problems ────────────────────────────────────────────────────────────────


def test_problems_of_all_tables_are_told_at_once(least: Path) -> None:
    found = paths_of(
        least,
        "contract.max_steps=-1",
        "contract.root=nowhere",
        "contract.agents.x.y=r",
        "containment.max_depth=true",
        "provider.kind=compatible",
        "provider.model=openai:x",
        "policy.defaults.net=maybe",
        "prices.m.input=1",
        "run.cleanup_allowance=-1",
        "run.approve=maybe",
        "agents.a.modle=x",
        "agnets.b.model=x",
    )
    assert sorted(found) == [
        "agents.a.modle",
        "agnets",
        "containment.max_concurrent",
        "containment.max_depth",
        "containment.max_total_agents",
        "containment.max_total_tokens",
        "contract.agents",
        "contract.max_steps",
        "contract.root",
        "policy.defaults.net",
        'prices."m".input',
        'prices."m".output',
        "provider.base_url",
        "provider.model",
        "run.approve",
        "run.cleanup_allowance",
    ]


def test_an_empty_file_is_told_what_it_needs(least: Path) -> None:
    least.write_text("")
    assert paths_of(least) == ["contract", "provider"]


def test_a_table_that_is_none_is_told_by_its_name(least: Path) -> None:
    tables = ("contract", "containment", "provider", "policy", "prices", "run", "agents")
    for table in tables:
        assert paths_of(least, f"{table}=[1]") == [table]


UNSUPPORTED = {
    "prompt": '{ kind = "preset", text = "careful" }',
    "instructions": '["use tabs"]',
    "conversational": "true",
    "context": "{ floor = 1 }",
    "compaction": "{ keep_recent = 1 }",
    "max_wait_secs": "3",
    "memory": "{ max_entries = 1 }",
    "lease_ttl": "10",
    "skills": "skills",
    "pause_scope": "tree",
    **dict.fromkeys(("mcp", "lsp", "plugins", "images"), '["x"]'),
    **dict.fromkeys(("browser", "tools", "responder", "plan_gate", "reviewer", "tool_hooks", "web"), '"x"'),
}


def test_every_field_of_a_contract_is_acted_on_or_tried_here() -> None:
    assert {field.name for field in attrs.fields(TaskContract)} == ACTED_ON | set(UNSUPPORTED)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_nothing_acts_on_is_refused_and_never_ignored(least: Path, name: str) -> None:
    [(path, text)] = validate_task(least, [f"contract.{name}={UNSUPPORTED[name]}"])
    assert path == f"contract.{name}"
    assert "is not supported by this version" in text


def test_every_field_of_a_named_agent_is_acted_on(least: Path) -> None:
    assert {field.name for field in attrs.fields(AgentDef)} == AGENT_ACTED_ON
    assert paths_of(least, "agents.a.worktree=1") == ["agents.a.worktree"]


def test_a_named_agent_that_keeps_a_tool_which_nobody_has_is_told_the_tools(least: Path) -> None:
    assert validate_task(least, ['agents.a.tools=["grep", "spawn_agent"]']) == []
    [(path, text)] = validate_task(least, ['agents.a.tools=["grpe"]'])
    assert path == "agents.a.tools" and "grpe" in text and "grep" in text


def test_a_criterion_that_nothing_evaluates_yet_is_refused(least: Path) -> None:
    [(path, text)] = validate_task(least, ['contract.verify={ kind = "document_contains", file = "a", needle = "b" }'])
    assert path == "contract.verify.kind" and "not supported by this version" in text


def test_a_criterion_that_is_none_is_answered_with_those_that_work_and_no_others(least: Path) -> None:
    for verify, said in (('{ kind = "revue" }', "'revue' is none"), ("{ kind = [1] }", "[1] is none"), ("{}", "is req")):
        [(path, text)] = validate_task(least, [f"contract.verify={verify}"])
        assert path == "contract.verify.kind" and text.startswith(said)
        offered = set(text.partition("write one of ")[2].split(", "))
        assert offered == SUPPORTED < set(CriterionKind)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("gaol={}", None),
        ("contract.gaol=g", "goal"),
        ("containment.max_dept=2", "max_depth"),
        ("containment.max_total_costs=2", "max_total_cost"),
        ("containment.zzz=2", None),
        ("prices.m.inputs=2", "input"),
        ("prices.m.tier=2", "tiers"),
        ("provider.modle=m", "model"),
        ("run.aprove=all", "approve"),
        ("contract.verify={ kind = 'command', argw = ['true'] }", "argv"),
    ],
)
def test_an_unknown_key_is_answered_with_the_one_that_may_have_been_meant(
    least: Path, override: str, meant: str | None
) -> None:
    found = dict(validate_task(least, [override]))
    [text] = [text for text in found.values() if text.startswith("unknown key")]
    if meant is None:
        assert text.startswith("unknown key; remove it, or write one of "), "few enough to be named"
    else:
        assert text == f"unknown key; did you mean {meant}?"


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("max_steps=3", "contract.max_steps"),
        ("contract.max_total_tokens=3", "containment.max_total_tokens"),
        ("containment.max_steps=3", "contract.max_steps"),
        ("verify.kind=none", "contract.verify"),
        ("write=allow", "policy.defaults.write"),
        ("contract.containment={}", "containment"),
        # A slip of the pen besides.
        ("max_step=3", "contract.max_steps"),
        ("file=a", "one of contract.file, contract.verify.file, provider.file, reviewer.file"),
        # Only tables that the file has are told, if there are any.
        ("deny_write=true", "agents.NAME.deny_write"),
        ("cached_input=1", "prices.MODEL.cached_input"),
    ],
)
def test_a_key_in_the_wrong_table_is_answered_with_the_places_where_it_is_known(
    least: Path, override: str, meant: str
) -> None:
    [(place, text)] = [each for each in validate_task(least, [override]) if each[1].startswith("unknown key")]
    assert override.startswith(place) and text == f"unknown key; did you mean {meant}?"


def test_a_key_of_named_agents_is_told_with_the_names_that_the_file_has(least: Path) -> None:
    prices = ['prices."m.1".input="1"', 'prices."m.1".output="1"']
    found = dict(validate_task(least, ["max_steps=3", "cached_input=1", "agents.a.role=r", *prices]))
    assert found == {
        "max_steps": "unknown key; did you mean one of contract.max_steps, agents.a.max_steps?",
        "cached_input": 'unknown key; did you mean prices."m.1".cached_input?',
    }
    many = validate_task(least, ["max_steps=3", *(f"agents.a{number}.role=r" for number in range(100))])
    assert len(many) == 1 and many[0][1].endswith(", agents.a4.max_steps, ...?")


def test_a_problem_is_one_line_whatever_the_file_holds(least: Path) -> None:
    with least.open("a") as text:
        text.write('["a\\nb\\u001b[31m"]\n')
    assert paths_of(least) == ["a\\nb\\x1b[31m"]
    [_surplus, (path, text)] = validate_task(least, ["provider.kind=" + "x" * 5_000])
    assert path == "provider.kind"
    assert len(text) == MOST_LINE


KEYS = st.sampled_from(
    [
        "contract", "contract.goal", "contract.root", "contract.file", "contract.verify", "contract.verify.kind",
        "contract.verify.argv", "contract.retry.max", "contract.agents", "contract.max_duration", "containment",
        "containment.max_total_cost", "containment.max_total_duration", "containment.max_total_tokens", "provider",
        "provider.kind", "provider.model", "provider.base_url", "provider.script", "policy", "policy.layers",
        "policy.defaults", "policy.defaults.net", "prices", "prices.m", "prices.m.input", "prices.m.tiers", "run",
        "run.approve", "run.cleanup_allowance", "agents", "agents.a", "agents.a.model", "agents.a.max_steps", "x",
    ]
)  # fmt: skip
VALUES = st.text(max_size=8) | st.sampled_from(
    [
        "{}", "[]", "[{}]", "[[1]]", "nan", "-inf", "1e400", "-1", "true", '"\\u0000"', "2020-01-01", "12:00:00",
        '"1.50"', '"1e99"', '"-1"', "{ secs = 1, nanos = 2 }", f"{{ secs = {2**64 - 1}, nanos = -1 }}", "openai:",
        "compatible:x", "scripted", '{ kind = "command", argv = [] }', "[{ name = 1, rules = [{ act = 1 }] }]",
        '[{ floor = 1, input = "1", output = 1 }]', str(2**64 - 1), "\ud800", "\x1b",
    ]
)  # fmt: skip


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6))
def test_whatever_is_set_there_is_a_task_or_a_list_of_lines(
    tmp_path_factory: pytest.TempPathFactory, sets: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text('[contract]\ngoal = "g"\nroot = "."\n[provider]\nkind = "openai"\nmodel = "m"\n')
    overrides = [f"{key}={value}" for key, value in sets]
    found = validate_task(file, overrides)
    assert all(f"{path}: {text}".isprintable() for path, text in found)
    if not found:
        assert read_task(file, overrides).contract.goal
