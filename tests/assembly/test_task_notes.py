"""What of a task file comes to nothing is told before the run, with its key: zeros, and work trees without a repository."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.assembly.building import policy_of
from actors.assembly.provider_spec import provider_of
from actors.assembly.running import run_tree
from actors.assembly.task_file import checked_task, read_task
from actors.assembly.task_notes import inside_note

TASK = """
[contract]
goal = "go"
root = "work"
max_steps = 2
[containment]
max_total_agents = 3
max_concurrent = 1
max_depth = 1
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "script.json").write_text('[{"text": "done", "usage": {"prompt_tokens": 1}}]')
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


def notes(file: Path, *overrides: str) -> dict[str, str]:
    task, problems = checked_task(file, overrides)
    assert task is not None and problems == []
    return dict(task.notes)


ZEROS = [
    "contract.max_steps", "contract.max_duration", "contract.max_tokens",
    "containment.max_total_tokens", "containment.max_total_calls", "containment.max_total_duration",
]  # fmt: skip
ELSE = [
    "contract.stall.window", "contract.max_retries", "containment.max_depth", "containment.max_total_agents",
    "containment.max_concurrent", "containment.max_total_tool_calls", "run.cleanup_allowance",
]  # fmt: skip


@pytest.mark.parametrize("key", [*ZEROS, *ELSE])
async def test_a_zero_is_told_exactly_where_nothing_gets_done_under_it(file: Path, key: str) -> None:
    told = notes(file, f"{key}=0")
    assert list(told) == ([key] if key in ZEROS else [])
    task = read_task(file, [f"{key}=0"])
    assert task.containment is not None
    arguments: Any = (task.contract, provider_of(task.provider), None, policy_of(task), ApproveAll(), task.containment)
    ran = await run_tree(*arguments, cleanup_allowance=task.run.cleanup_allowance)
    assert (ran.outcome.kind == "finished") == (key not in ZEROS), "the run says the same"


def test_without_zeros_nothing_is_told(file: Path) -> None:
    assert notes(file) == {}


AGENT = "[agents.author]\nrole = \"x\"\nworktree = true\n[agents.reader]\nrole = \"y\"\n"


def test_a_work_tree_that_cannot_be_made_is_told_by_the_place_that_wants_it(file: Path) -> None:
    file.write_text(TASK + AGENT)
    assert notes(file) == {
        "agents.author.worktree": "author can never be started: the workspace is not the top of a git repository"
    }
    own = file.parent / "work" / ".actors" / "agents" / "author.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\nworktree: true\n---\nYou write.\n")
    file.write_text(TASK)
    [(place, text)] = notes(file).items()
    assert place.endswith("author.md:2") and "not the top of a git repository" in text
    subprocess.run(["git", "init", "-q", str(file.parent / "work")], check=True)
    assert notes(file) == {}
    assert "lets none be made" in notes(file, "contract.exec_sandbox='read_only'").popitem()[1]


def test_agents_that_nobody_starts_are_told(file: Path) -> None:
    file.write_text(TASK + '[agents.reader]\nrole = "y"\n')
    assert notes(file) == {}
    [(place, text)] = notes(file, "containment.max_depth=0").items()
    assert place == "containment.max_depth" and "nobody can start reader" in text
    for few in (0, 1):
        [(place, text)] = notes(file, f"containment.max_total_agents={few}").items()
        assert place == "containment.max_total_agents" and text.startswith(f"is {few}, the root among them, so nobody can")
    assert notes(file, "containment.max_total_agents=2") == {}
    alone = TASK[: TASK.index("[containment]")] + TASK[TASK.index("[provider]") :]
    file.write_text(alone + '[agents.reader]\nrole = "y"\n')
    [(place, text)] = notes(file).items()
    assert place == "agents.reader" and "without [containment]" in text


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy.default(), "agents may read and write it, if whoever is asked says yes"),
        (Policy.permissive(), "agents may read and write it, and the next run"),
        (Policy.default().layer("mine").deny_write("task.toml"), "agents may read it, and"),
        (Policy.default().layer("mine").deny_write("task.toml").deny_read("task.toml"), None),
    ],
)
def test_a_task_file_in_reach_of_its_agents_is_told_with_what_they_may_do(file: Path, policy: Policy, words: str | None) -> None:
    there = TaskContract.workspace("go", file.parent, Verification.none())
    told = inside_note(file, there, policy)
    assert told is None if words is None else told is not None and words in told and "contract.root" in told
    assert inside_note(file, TaskContract.workspace("go", file.parent / "work", Verification.none()), policy) is None
    assert inside_note(file, TaskContract("go", file.parent / "out.txt", Verification.none()), policy) is None


GIT = '{{ act = "exec", effect = "allow", glob = "{}" }}'
RULES: list[tuple[list[str], str, bool]] = [
    ([], "deny", True),
    ([], "ask", False),
    (["git", "git add -- *", "git commit -m *"], "deny", False),
    (["git", "git add *", "git commit -m 'fix *'"], "deny", False),
    (["git", "git add *"], "deny", True),
    (["git add *", "git commit *"], "deny", True),
]


@pytest.mark.parametrize(("globs", "approve", "told"), RULES)
def test_a_work_tree_in_which_nobody_may_commit_is_told(file: Path, globs: list[str], approve: str, told: bool) -> None:
    for command in (["init", "-q"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=file.parent / "work", check=True)
    layer = '[[policy.layers]]\nname = "o"\nrules = [' + ",".join(GIT.format(each) for each in globs) + "]\n"
    file.write_text(TASK + AGENT + layer + f'[run]\napprove = "{approve}"\n')
    said = notes(file)
    assert list(said) == (["agents.author.worktree"] if told else [])
    assert all("author can commit nothing in its work tree" in each and "git commit -m *" in each for each in said.values())
