"""The task files that the page of checks shows are read and run as it says."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import DenyAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.verification import CriterionKind, Verification
from actors.assembly.boundary_check import check_criterion
from actors.assembly.building import policy_of
from actors.assembly.provider_spec import provider_of
from actors.assembly.run_settings import RunSettings
from actors.assembly.running import run_with
from actors.assembly.task_file import read_task
from actors.store.store import Store
from actors.tools.protected import WorkspaceFiles

PAGE = (Path(__file__).parent.parent / "docs" / "checks.md").read_text(encoding="utf-8")


def block(language: str, holding: str) -> str:
    [found] = [each for each in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if holding in each]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(block("toml", "greeting.txt"), encoding="utf-8")
    (tmp_path / "script.json").write_text(block("json", "write_file"), encoding="utf-8")
    return tmp_path


async def test_the_task_of_one_file_runs_from_its_file(folder: Path) -> None:
    task, store = read_task(folder / "task.toml"), Store.memory()
    # Nobody is asked: the one file is the operator's choice.
    assert task.policy is None and task.run == RunSettings()
    result = await run_with(task.contract, provider_of(task.provider), store, policy_of(task), DenyAll())
    assert (result.outcome.kind, result.outcome.steps) == ("success", 2)
    assert (folder / "greeting.txt").read_text() == "hello, Ada"
    assert [gate.verdict for gate in store.gate_attempts(result.run_id)] == ["failed", "passed"]


async def test_the_globs_of_the_page_are_taken_where_there_are_tests(tmp_path: Path) -> None:
    table: dict[str, Any] = tomllib.loads(block("toml", "protect"))["contract"]["verify"]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    contract = TaskContract.workspace("g", tmp_path, Verification.from_dict({**table, "argv": ["true"]}))
    notes = await check_criterion(contract, Policy.default(), WorkspaceFiles())
    assert [text.partition(" is not")[0] for _place, text in notes] == ["conftest.py", "pytest.ini"]


def test_every_kind_of_check_is_told() -> None:
    table = PAGE.partition("| `kind` |")[2].partition("\n\n")[0]
    told = {kind for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)}
    assert told == {kind.value for kind in CriterionKind} - {"document_contains"}


def test_the_verdict_of_the_page_is_one() -> None:
    assert json.loads(block("json", '"verdict"'))["verdict"] == "yes"
