"""A slip is answered with its place and what to write, in the words of whoever made it and not in those of Python."""

from pathlib import Path

import pytest

from actors.agents.ports import Act
from actors.agents.rows import ApprovalAsked, RunStarted
from actors.assembly.explaining import explain_act
from actors.assembly.inbox import Awaits, find
from actors.assembly.task_file import read_task, validate_task
from actors.cli.going_on import OF_FILES, Given, reopen_run
from actors.cli.running import Shown
from actors.errors import ConfigError, kind_word
from actors.store.store import Store

TASK = """
[contract]
goal = "go"
root = "work"
[provider]
kind = "scripted"
script = "script.json"
"""
LAYER = '[[policy.layers]]\nname = "o"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "script.json").write_text("[]")
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


@pytest.mark.parametrize(
    ("more", "place", "text"),
    [
        ('[contract.verify]\nkind = "command"\nargv = "pytest -q"', "contract.verify.argv",
         'must be a list, not a text; write ["...", "..."]'),
        ("[policy.layers]\nname = 'o'", "policy.layers", "must be a list, not a table; write [[policy.layers]] above it"),
        (f"{LAYER}rules = {{act = 'read', effect = 'deny', glob = '*'}}", "policy.layers[0].rules",
         "must be a list, not a table; write [ ] around it"),
        (f"{LAYER}rules = ['x']", "policy.layers[0].rules[0]", "must be a table, not a text"),
        ("[[run]]\napprove = 'deny'", "run", "must be a table, not a list; write [run]"),
        ("[[agents]]\nrole = 'x'", "agents",
         "must be a table with one table for each agent, not a list; write [agents.NAME]"),
        ("[agents.a]\ntools = 'grep'", "agents.a.tools", 'must be a list of names of tools, such as ["grep"], not a text'),
        ("[contract.exec_caps]\ncpu = 1", "contract.exec_caps.cpu",
         "unknown key; remove it, or write one of cpu_seconds, memory_bytes, open_files, wall_seconds"),
    ],
)  # fmt: skip
def test_a_slip_in_a_task_file_names_what_to_write(file: Path, more: str, place: str, text: str) -> None:
    file.write_text(f"{TASK}\n{more}\n")
    assert validate_task(file) == [(place, text)]


def test_kinds_of_values_have_the_words_of_files() -> None:
    values = (None, "", True, 1, 1.5, {}, [], object())
    assert [kind_word(each) for each in values] == [
        "nothing", "a text", "true or false", "a number", "a number", "a table", "a list", "object",
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["https://example.org", "example.org", "example.org/x:1", ""])
def test_a_host_that_is_none_is_not_judged_as_one(file: Path, target: str) -> None:
    with pytest.raises(ConfigError, match=r"is no HOST:PORT; write it as example\.org:443"):
        explain_act(read_task(file), Act.net, target)


async def test_an_id_that_waits_for_another_answer_names_the_commands_that_give_it() -> None:
    store = Store.memory()
    await store.commit(
        RunStarted("r", "r", "root", 0, None, "g"),
        ApprovalAsked("r#1.1.1", "r", "r", 1, 1, 1, "write", "a", "", "write_file", "{}", "g", None, None),
    )
    with pytest.raises(ConfigError, match="it is a question; use `actors approve` or `actors deny`"):
        find(store, "r#1.1.1", Awaits.recovery)
    with pytest.raises(ConfigError, match=r"nothing waits under 'x#1\.1\.1'"):
        find(store, "x#1.1.1", Awaits.recovery)


@pytest.mark.parametrize(
    ("override", "place", "text"),
    [
        ("policy.defaults.write=allow", "policy", OF_FILES),
        ("contract.root=nowhere", "contract.root", "cannot change"),
        ("agents.a.role=x", "agents", "unknown key"),
    ],
)
def test_what_a_reopening_cannot_set_is_told_as_that(
    file: Path, capfd: pytest.CaptureFixture[str], override: str, place: str, text: str
) -> None:
    from actors.cli.running import run_task

    store = str(file.parent / "runs.db")
    run_task(read_task(file, ["contract.max_steps=0"]), store, Shown(json=True))
    [run] = [line.split('"')[3] for line in capfd.readouterr().out.splitlines() if '"run_id"' in line]
    with pytest.raises(ConfigError) as told:
        reopen_run(run, store, Given(overrides=(override,)), Shown(quiet=True))
    [(at, said)] = told.value.problems
    assert at == place and said.startswith(text)
