"""What a run would be let do, told part by part before there is a run; and refusals that say which part it was."""

import json
from typing import Any

import pytest

TASK = """
[contract]
goal = "look"
root = "work"
max_steps = 3
[provider]
kind = "scripted"
script = "script.json"
[[policy.layers]]
name = "mine"
rules = [
  { act = "exec", effect = "allow", glob = "cat *" },
  { act = "exec", effect = "deny", glob = "rm*" },
  { act = "read", effect = "deny", glob = "**/creds.json" },
]
"""


@pytest.fixture
def task(place: Any) -> Any:
    (place.folder / "work").mkdir()
    return place.holding(TASK, [{"text": "done"}])


def explained(task: Any, *what: str) -> tuple[int, str, list[tuple[str, str, str | None]]]:
    done = task.actors("explain", "task.toml", *what, "--json")
    assert done.stderr == ""
    told = json.loads(done.stdout)
    parts = [(part["effect"], f"{part['act']} {part['target']}", part["rule"]) for part in told["parts"]]
    return done.returncode, told["effect"], parts


@pytest.mark.parametrize(
    ("what", "code", "effect", "parts"),
    [
        (("read", "creds.json"), 4, "deny", [("deny", "read creds.json", "**/creds.json")]),
        (("read", "a/../b/creds.json"), 4, "deny", [("deny", "read b/creds.json", "**/creds.json")]),
        (("read", "a.txt"), 0, "allow", [("allow", "read a.txt", None)]),
        (("write", "a.txt"), 5, "ask", [("ask", "write a.txt", None)]),
        (("read", ".env"), 4, "deny", [("deny", "read .env", ".env")]),
        (("exec", "cat a.txt"), 5, "ask", [("ask", "exec cat", None), ("allow", "exec cat a.txt", "cat *")]),
        (("net", "example.org:443"), 4, "deny", [("deny", "net example.org:443", None)]),
        (("spawn", "agent"), 0, "allow", [("allow", "spawn agent", None)]),
    ],
)
def test_each_act_is_explained_with_its_rule_and_its_exit_code(task, what, code, effect, parts):
    assert explained(task, *what) == (code, effect, parts)


def test_each_part_of_a_line_is_judged_and_what_runs_inside_and_its_files(task):
    code, effect, parts = explained(task, "shell", "cat a | env rm b > c/../out.txt")
    assert (code, effect) == (4, "deny")
    assert ("deny", "exec rm b", "rm*") in parts and ("ask", "write out.txt", None) in parts
    assert ("ask", "exec cat", None) in parts
    assert not (task.folder / "work" / "out.txt").exists()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (("read", "../task.toml"), "leads out of the workspace"),
        (("write", ".git/config"), "belongs to git"),
        (("shell", "ls $HOME"), "nothing is expanded"),
    ],
)
def test_what_no_rule_could_allow_says_why(task, what, why):
    done = task.actors("explain", "task.toml", *what)
    assert done.returncode == 4 and done.stdout.startswith("deny\n") and why in done.stdout


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (("eat", "x"), "'eat' is nothing that is judged; write one of read, write"),
        (("exec", ""), "target: is empty"),
        (("exec", "a 'b"), "target: cannot be read as a command"),
    ],
)
def test_what_cannot_be_judged_is_bad_usage(task, what, text):
    done = task.actors("explain", "task.toml", *what)
    assert done.returncode == 2 and text in done.stderr and done.stdout == ""


def test_an_ask_says_who_answers(task):
    assert task.actors("explain", "task.toml", "write", "x").stdout.startswith("ask (on a terminal; elsewhere the")
    set_ = ("--set", 'run.approve="defer"')
    assert task.actors("explain", "task.toml", "write", "x", *set_).stdout.startswith('ask (run.approve = "defer")')


def test_what_is_explained_is_what_a_run_does(task):
    calls = [["exec", {"argv": ["cat", "a.txt"]}], ["exec", {"argv": ["env", "rm", "x"]}]]
    script = [{"calls": [call]} for call in calls]
    done = task.holding(TASK + '[run]\napprove = "deny"\n', script).actors("run", "task.toml")
    assert "refused exec cat a.txt (cat: asked about by the policy's default, not approved)" in done.stderr
    assert 'run.approve = "deny" says no to whatever is asked' in done.stderr and "terminal" not in done.stderr
    assert "refused exec rm, which env rm x would run, (denied by rule 'rm*' of layer 'mine')" in done.stderr


# ── what is surely not meant ────────────────────────────────────────────────


def test_a_rule_that_says_less_than_it_seems_to_is_a_warning_and_one_that_matches_nothing_a_problem(task):
    (task.folder / "work" / "conf").mkdir()
    rules = """
[[policy.layers]]
name = "more"
rules = [{ act = "read", effect = "deny", glob = "conf" }, { act = "read", effect = "deny", glob = "work/x" }%s]
"""
    task.holding(TASK + rules % "", [])
    done = task.actors("validate", "task.toml")
    assert done.returncode == 0 and done.stdout == "task.toml: no problems\n"
    first, second = done.stderr.splitlines()
    assert first.startswith("warning: policy.layers[1].rules[0].glob: conf is a directory") and "write conf/*" in first
    assert second.startswith("warning: policy.layers[1].rules[1].glob: work/x is below work in the workspace")
    assert task.actors("validate", "task.toml", "--strict").returncode == 2
    inside = f'{task.folder}/work/secrets/*'
    task.holding(TASK + rules % f', {{ act = "read", effect = "deny", glob = "{inside}" }}', [])
    done = task.actors("validate", "task.toml")
    assert done.returncode == 2 and "below contract.root; write secrets/*" in done.stderr
    task.holding(TASK + rules % ', { act = "read", effect = "deny", glob = "conf/*" }', [])
    assert "conf is a directory" not in task.actors("validate", "task.toml").stderr


def test_a_key_of_another_kind_is_not_proposed_in_its_own_place(task):
    done = task.actors("validate", "task.toml", "--set", "contract.verify={kind='none', needle='x'}")
    assert done.returncode == 2
    assert 'contract.verify.needle: is for kind = "workspace_file_contains" only' in done.stderr
