"""`actors validate` tells what `actors run` would be refused for on this machine, and what it would be told."""

import json
from pathlib import Path

import pytest

from actors.cli import validating
from actors.cli.main import cli

TASK = """
[contract]
goal = "go"
root = "work"
max_steps = 1
[contract.verify]
VERIFY
[provider]
kind = "scripted"
script = "script.json"
"""
CONTAINS = 'kind = "workspace_file_contains"\nfile = "FILE"\nneedle = "ok"'
COMMAND = 'kind = "command"\nargv = ["PROGRAM"]\nprotect = GLOBS'


@pytest.fixture
def place(place):  # type: ignore[no-untyped-def]
    (place.folder / "work" / "tests").mkdir(parents=True)
    (place.folder / "work" / "tests" / "a.py").write_text("")
    return place


def command(program: str = "true", globs: str = '["tests/*"]') -> str:
    return COMMAND.replace("PROGRAM", program).replace("GLOBS", globs)


@pytest.mark.parametrize(
    ("verify", "told"),
    [
        (CONTAINS.replace("FILE", "../x"), 'contract.verify.file: "../x" leads out of the workspace'),
        (command(globs='["tests"]'), 'contract.verify.protect: "tests" names a directory'),
        (command(globs='["tests/*", "TESTS/*"]'), 'contract.verify.protect: "TESTS/*" matches no file'),
    ],
)
def test_what_run_refuses_validate_tells_in_the_same_words(place, verify: str, told: str) -> None:  # type: ignore[no-untyped-def]
    place.holding(TASK.replace("VERIFY", verify), [])
    checked, ran = place.actors("validate", "task.toml"), place.actors("run", "task.toml")
    assert (checked.returncode, ran.returncode) == (2, 2)
    assert checked.stderr.startswith(told) and f"error: {checked.stderr}" == ran.stderr
    assert checked.stdout == "" and place.actors("validate", "task.toml", "--json").stdout.startswith('[{"path": "contract.verify.')


def test_a_warning_is_told_by_both_and_is_a_problem_only_where_that_is_asked(place) -> None:  # type: ignore[no-untyped-def]
    place.holding(TASK.replace("VERIFY", command("no-such-judge")), [])
    checked, ran = place.actors("validate", "task.toml"), place.actors("run", "task.toml")
    told = "contract.verify.argv: there is no program no-such-judge in PATH: until that changes, the check is errored"
    assert checked.returncode == 0 and checked.stdout == "task.toml: no problems\n"
    assert checked.stderr.startswith(f"warning: {told}") and len(checked.stderr.splitlines()) == 1
    assert ran.stderr.count(told) == 1 and ran.returncode == 3
    strict = place.actors("validate", "task.toml", "--strict", "--json")
    assert strict.returncode == 2 and [each["path"] for each in json.loads(strict.stdout)] == ["contract.verify.argv"]


def test_where_a_warning_is_a_problem_it_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "script.json").write_text("[]")
    text = '[contract]\ngoal = "g"\nroot = "work"\nmax_steps = 0\n[provider]\nkind = "scripted"\nscript = "script.json"\n'
    (tmp_path / "task.toml").write_text(text)
    for strict, code in ((False, 0), (True, 2)):
        assert validating.validate(str(tmp_path / "task.toml"), (), False, strict) == code
        [line] = [line for line in capsys.readouterr().err.splitlines() if "max_steps" in line]
        assert line.startswith("contract.max_steps: is 0" if strict else "warning: contract.max_steps: is 0")


def test_a_criterion_that_fails_is_told_in_progress_and_at_the_end(place) -> None:  # type: ignore[no-untyped-def]
    verify = 'kind = "command"\nargv = ["sh", "-c", "for n in $(seq 200); do echo dots; done; echo 2 failed; exit 4"]'
    place.holding(TASK.replace("VERIFY", verify), [{"calls": [["list_dir", {"path": "."}]]}])
    ran = place.actors("run", "task.toml")
    words = "the criterion did not pass: exit code 4 … 2 failed"
    assert f"root: step 1: {words}" in ran.stderr.splitlines()
    [why] = [line for line in ran.stdout.splitlines() if line.startswith("why")]
    assert why.endswith(f"allowed steps used; {words}")
    [run] = json.loads(place.actors("list", "--json").stdout)
    assert words in place.actors("show", run["run_id"]).stdout


def test_a_mode_that_this_machine_cannot_have_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "work").mkdir()
    (tmp_path / "script.json").write_text("[]")
    text = TASK.replace("VERIFY", 'kind = "none"').replace("max_steps = 1", 'max_steps = 1\nexec_sandbox = "read_only"')
    (tmp_path / "task.toml").write_text(text)
    from actors.assembly import boundary_check

    monkeypatch.setattr(boundary_check, "sandbox_problem", lambda *_given: "cannot be held here")
    assert validating.validate(str(tmp_path / "task.toml"), (), False, False) == 2
    assert capsys.readouterr().err == "contract.exec_sandbox: cannot be held here\n"
    assert "--strict" in {option for each in cli.commands["validate"].params for option in each.opts}


def test_a_task_file_inside_its_workspace_is_a_note_and_never_a_problem(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "script.json").write_text("[]")
    (tmp_path / "task.toml").write_text(TASK.replace("VERIFY", 'kind = "none"').replace('"work"', '"."'))
    assert validating.validate(str(tmp_path / "task.toml"), (), False, True) == 0
    told = capsys.readouterr()
    assert told.err.startswith("note: task.toml lies in the workspace") and len(told.err.splitlines()) == 1
    assert told.out.endswith("no problems\n")
