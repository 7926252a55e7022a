"""The files that the page of the boundary shows are read as it says."""

import re
import shlex
import tomllib
from pathlib import Path

import attrs
import pytest

from actors.agents.call_journal import is_replayable
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.exec_judging import may_run
from actors.agents.policy import Effect, Layer, Policy, Rule
from actors.agents.ports import Act
from actors.agents.roster import AgentDef
from actors.agents.rule_globs import rule_glob_problem
from actors.assembly.explaining import effect_of_all, explain_act
from actors.assembly.task_file import read_task, validate_task
from actors.tools.toolbox import builtin_tools

CODE = re.compile(r"`([^`]*)`")
PAGE = (Path(__file__).parent.parent / "docs" / "boundary.md").read_text(encoding="utf-8")
[TASK] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
[AGENT] = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    agents = tmp_path / "work" / ".actors" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text(AGENT, encoding="utf-8")
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    return tmp_path / "task.toml"


def test_the_task_and_the_agent_of_the_page_are_read(task_file: Path) -> None:
    # Whether the boundary can be held is a matter of the machine, and told when a run starts.
    assert validate_task(task_file) == []
    contract = read_task(task_file).contract
    assert contract.exec_sandbox is ExecSandbox.workspace_write
    assert None not in attrs.astuple(contract.exec_caps)
    assert contract.agents.names == ("fixer", "reader")
    reader = contract.agents.get("reader")
    assert (
        reader is not None and reader.deny_write and reader.max_steps == 8 and reader.role.startswith("You only read")
    )
    assert read_task(task_file, ["run.agents_from_files=false"]).contract.agents.names == ("fixer",)


def test_the_agent_of_the_page_may_commit_in_its_work_tree(task_file: Path) -> None:
    policy = read_task(task_file).policy
    assert policy is not None
    wanted = (["git", "add", "--", "a.py"], ["git", "commit", "-m", "Mend it"])
    assert [may_run(policy, argv) for argv in wanted] == [True, True]
    assert not may_run(policy, ["git", "-c", "alias.x=!sh", "x"])


def test_a_key_that_allows_is_refused_with_file_and_line(task_file: Path) -> None:
    (task_file.parent / "work/.actors/agents/reader.md").write_text(
        AGENT.replace("deny_write: true", "allow_net: true")
    )
    assert [place for place, _text in validate_task(task_file)] == [".actors/agents/reader.md:4"]


def test_the_rules_of_the_page_keep_tests_and_agents_from_being_written(task_file: Path) -> None:
    policy = read_task(task_file).policy
    assert policy is not None
    asked = [(Act.write, "src/a.py"), (Act.write, "tests/a.py"), (Act.write, ".actors/agents/reader.md")]
    assert [policy.explain(*each).effect for each in asked] == [Effect.allow, Effect.deny, Effect.deny]
    assert policy.explain(Act.exec, "pytest -q").effect is Effect.allow


def test_every_mode_cap_tool_and_key_is_told() -> None:
    modes = re.findall(r"^\| `(\w+)` \| ", PAGE.partition("a command may write")[2].partition("\n\n")[0], re.MULTILINE)
    assert set(modes) == {mode.value for mode in ExecSandbox}
    assert set(tomllib.loads(TASK)["contract"]["exec_caps"]) == {field.name for field in attrs.fields(ExecCaps)}
    table = PAGE.partition("| key | does |")[2].partition("\n\n")[0]
    keys = {
        key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert keys == {field.name for field in attrs.fields(AgentDef)}
    tools = {tool.spec.name: tool for tool in builtin_tools() if tool.spec.name.startswith(("exec", "shell"))}
    rows = dict(re.findall(r"^\| `(exec|shell\w*) \{.*?\}` \|.*\| (.+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == set(tools)
    for name, told in rows.items():
        assert is_replayable(tools[name]) is ("recover" not in told), name


def test_the_tools_of_git_are_told_with_their_arguments() -> None:
    table = PAGE.partition("| tool | arguments | judged as exec |")[2].partition("\n\n")[0]
    told = {cells[1].strip(" `"): set(re.findall(r"`(\w+)`", cells[2])) for cells in map(_cells, table.splitlines()[2:])}
    tools = [tool.spec for tool in builtin_tools() if tool.spec.name.startswith("git_")]
    assert told == {spec.name: set(spec.parameters["properties"]) for spec in tools}


def _cells(line: str) -> list[str]:
    return line.split("|")


def rows(after: str) -> list[list[list[str]]]:
    """Give what stands in code of each cell of the first table after some words; an empty act is that of above."""
    table = PAGE.partition(after)[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|---")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[[text.replace("\\|", "|") for text in CODE.findall(cell)] for cell in row] for row in cells]


def test_the_globs_of_the_page_fit_what_it_says_and_nothing_else() -> None:
    acts: list[str] = []
    seen = set()
    for written, [glob], fits, does_not in rows("| act | glob | fits | does not |"):
        acts = written or acts
        for act in map(Act, acts):
            policy = Policy.permissive().merge(Policy((Layer("l", (Rule(act, Effect.deny, glob),)),)))
            told = [policy.explain(act, target).layer == "l" for target in (*fits, *does_not)]
            assert told == [True] * len(fits) + [False] * len(does_not), (act, glob)
            seen.add(act)
    assert seen == set(Act)


def test_the_globs_that_the_page_says_are_refused_are() -> None:
    count = 0
    for acts, globs in rows("| act | refused |"):
        for act in map(Act, acts):
            for glob in globs:
                assert glob == "/" or rule_glob_problem(act, glob), (act, glob)
                count += 1
    assert count > 20


@pytest.mark.parametrize(
    ("kind", "target", "effect"),
    [
        (kind, shlex.split(rest)[0], effect)
        for (kind, rest), effect in zip(
            re.findall(r"^actors explain task.toml (\w+) (.*)$", PAGE, re.MULTILINE),
            (Effect.allow, Effect.ask, Effect.allow),
            strict=True,
        )
    ],
)
def test_what_the_page_explains_is_explained(task_file: Path, kind: str, target: str, effect: Effect) -> None:
    act = Act.exec if kind == "shell" else Act(kind)
    assert effect_of_all(explain_act(read_task(task_file), act, target, shell=kind == "shell")) is effect


def test_the_tools_for_files_take_what_the_page_says() -> None:
    tools = {tool.spec.name: tool.spec.parameters["properties"].keys() for tool in builtin_tools()}
    told = rows("| tool | arguments | acts |")
    assert {tool: set(arguments) for [tool], arguments, _ in told} == {tool: set(tools[tool]) for [tool], _, _ in told}
    assert len(told) == 9
