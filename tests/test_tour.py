"""The task files of the tour do what the tour says, run as people run them."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from actors.agents.outcomes import TABLE, OutcomeKind
from actors.agents.policy import Effect, Policy, operator_policy
from actors.agents.ports import Act
from actors.assembly.task_file import validate_task
from actors.errors import RETRYABLE, ProviderErrorKind
from actors.providers.script_file import ANSWER_KEYS, ScriptedAnswer, load_script
from actors.testing.model_script import read_answers

TOUR = (Path(__file__).parent.parent / "docs" / "tour.md").read_text(encoding="utf-8")
PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TOUR, re.DOTALL)


TASK, OPERATOR, MODEL, FORBIDDEN = blocks("toml")
SCRIPT, ANSWERS = blocks("json")
[SHOWN] = blocks("text")


def actors(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Through pipes: nobody can be asked.
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "80"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    (tmp_path / "script.json").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def plain(text: str) -> list[str]:
    """Give the lines without the run's id and the blanks that fill a table."""
    return [re.sub(r"^(run +)\w+$", r"\1ID", line.rstrip()) for line in text.strip().splitlines()]


def test_the_task_of_the_tour_runs_and_prints_what_is_shown(folder: Path) -> None:
    done = actors("run", "task.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert plain(done.stdout) == plain(SHOWN)
    assert (folder / "hello.txt").read_text() == "hello, tree"
    [run] = json.loads(actors("list", "--json", cwd=folder).stdout)
    # Any beginning of the id names the run.
    assert actors("show", run["run_id"][:3], cwd=folder).returncode == 0


def test_without_approve_every_write_through_a_pipe_is_refused_and_rules_open_it(folder: Path) -> None:
    (folder / "task.toml").write_text(TASK.partition("[run]")[0])
    done = actors("run", "task.toml", cwd=folder)
    assert "refused write hello.txt" in done.stderr
    # The model read the refusal; it was not the end of the run.
    assert (done.returncode, (folder / "hello.txt").exists()) == (3, False)
    (folder / "task.toml").write_text(TASK.partition("[run]")[0] + OPERATOR)
    assert actors("run", "task.toml", cwd=folder).returncode == 0


def test_the_rules_of_the_tour_do_what_is_said() -> None:
    policy = operator_policy(tomllib.loads(OPERATOR)["policy"])
    said = [(Act.exec, "pytest"), (Act.exec, "pytest -q tests/a.py"), (Act.write, "a"), (Act.exec, "rm")]
    assert [policy.explain(*asked).effect for asked in said] == [*[Effect.allow] * 3, Effect.ask]
    assert policy.explain(Act.write, "secrets/a").effect is Effect.deny


def test_the_defaults_of_the_tour_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ((?:`(?:read|write|exec|net|spawn)`(?:, )?)+) \| (allow|ask|deny)", TOUR, re.MULTILINE)
    told = {act: effect for acts, effect in rows for act in re.findall(r"\w+", acts)}
    assert told == {act.value: Policy.default().defaults.of(act).value for act in Act}
    secrets = [
        re.sub(r"\*", "a", glob) for glob in re.findall(r"`([^`]+)`", TOUR.partition("look like secrets")[2])[:5]
    ]
    assert all(
        Policy.default().explain(act, name).effect is Effect.deny for act in (Act.read, Act.write) for name in secrets
    )


def test_every_key_of_a_script_is_told() -> None:
    told = TOUR.partition("An answer may have")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", told)) == set(ANSWER_KEYS)


def test_what_is_told_of_a_scripted_answer_is_read() -> None:
    told = TOUR.partition("| key | value |")[2].partition("\n\n")[0]
    usage, error = re.findall(r"`(\{.*?\})`", told)
    [answer] = load_script(f'[{{"usage": {usage}, "error": {error}}}]', "told", ANSWER_KEYS, ScriptedAnswer)
    assert answer.usage is not None and answer.usage.prompt_tokens == 100
    assert answer.error is not None and answer.error.retry_after == 1
    again, never = (set(re.findall(r"`(\w+)`", part)) for part in told.partition("Tried again:")[2].split("; not:"))
    assert again == set(RETRYABLE) and again | never == set(ProviderErrorKind)


def test_the_task_with_a_model_is_one_and_its_server_speaks_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    file = tmp_path / "task.toml"
    file.write_text(MODEL, encoding="utf-8")
    assert validate_task(file) == []
    lines = "\n".join(line for line in MODEL.splitlines() if not line.startswith("base_url"))
    file.write_text(lines.replace('"compatible"', '"openai"'), encoding="utf-8")
    assert [path for path, _text in validate_task(file)] == ["provider.api_key"]
    first, second = read_answers(ANSWERS, "answers.json")
    assert first.status == 429 and second.prompt_tokens == 100


def test_the_model_server_of_the_tour_answers_a_run_and_ends_with_its_input(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text(ANSWERS, encoding="utf-8")
    [command] = re.findall(r"^\.venv/bin/python (-m actors\.testing\.model_server .*) --port 8080$", TOUR, re.MULTILINE)
    pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *command.split()], cwd=tmp_path, **pipe) as server:
        url = json.loads(server.stdout.readline())["url"]  # type: ignore[union-attr]
        provider = f'[provider]\nkind = "compatible"\nmodel = "m"\nbase_url = "{url}"\n'
        (tmp_path / "task.toml").write_text(re.sub(r"\[provider\]\n.*?\n\n", provider, TASK, flags=re.DOTALL))
        done = actors("run", "task.toml", "--set", "contract.retry.base=0.1", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tree"]["calls"] == 2
        # Exit 4: the tour's rule, for the port that this server has.
        rule = f"[policy]\n{FORBIDDEN}".replace("8080", url.rpartition(":")[2].partition("/")[0])
        (tmp_path / "task.toml").write_text((tmp_path / "task.toml").read_text() + rule)
        refused = actors("run", "task.toml", "--json", cwd=tmp_path)
        assert (refused.returncode, json.loads(refused.stdout)["outcome"]["kind"]) == (4, "refused")
        server.stdin.close()  # type: ignore[union-attr]
        assert server.wait(timeout=20) == 0


def test_a_default_that_denies_the_net_lets_the_model_through_and_an_ask_that_nobody_answers_does_not(
    folder: Path,
) -> None:
    gone = ["provider={ kind='compatible', model='m', base_url='http://127.0.0.1:9/v1' }", "contract.max_retries=0"]
    sets = [flag for each in gone for flag in ("--set", each)]
    denied = actors("run", "task.toml", *sets, "--set", "policy.defaults.net=deny", cwd=folder)
    asked = "policy.layers=[{ name='o', rules=[{ act='net', effect='ask', glob='*' }] }]"
    refused = actors("run", "task.toml", *sets, "--set", asked, "--set", "run.approve=deny", cwd=folder)
    assert (denied.returncode, refused.returncode) == (1, 4)


def test_the_table_of_outcomes_is_that_of_the_code() -> None:
    table = TOUR.partition("| outcome |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| ([\d, ]+) \|$", table, re.MULTILINE)
    told = {word: [int(code) for code in codes.split(",")] for word, _meaning, codes in rows}
    assert len(rows) == len(told)
    assert list(told) and set(told) == set(OutcomeKind)
    for kind, row in TABLE.items():
        also = [143, 129] if kind is OutcomeKind.interrupted else []
        assert told[kind] == [row.exit, *also], kind


# ── stop and go on ──────────────────────────────────────────────────────────

RESUME, INBOX, REOPEN = [block.splitlines() for block in blocks("sh") if "actors resume" in block or "reopen" in block]


def in_tour(line: str, folder: Path, **names: str) -> subprocess.CompletedProcess[str]:
    words = [names.get(word, word) for word in line.split()]
    assert words[0] == "actors"
    return actors(*words[1:], cwd=folder)


def newest(folder: Path) -> str:
    return str(json.loads(actors("list", "--json", cwd=folder).stdout)[0]["run_id"])


def test_what_waits_in_the_tour_is_answered_and_goes_on_as_it_says(folder: Path) -> None:
    paused, shown, approved, went_on = INBOX
    assert in_tour(paused, folder).returncode == 5
    run = newest(folder)
    told = in_tour(shown, folder)
    question = told.stdout.split()[0]
    assert told.returncode == 0 and f"approve '{question}'" in told.stdout
    # Only the run's part of an id may be shortened.
    assert re.fullmatch(r"vk(.*)", re.findall(r"`(vk/\S+)`", TOUR)[0])[1] == question.removeprefix(run)  # type: ignore[index]
    assert in_tour(approved, folder, ID=question.removeprefix(f"{run}/")).returncode == 2
    assert in_tour(approved, folder, ID=question.replace(run, run[:2])).returncode == 0
    done = in_tour(went_on, folder, RUN=run)
    assert done.returncode == 0 and (folder / "hello.txt").read_text() == "hello, tree", done.stderr
    # Once more, as the first block has it: its end is told.
    assert [went_on] == RESUME and in_tour(went_on, folder, RUN=run).returncode == 0


def test_a_run_of_the_tour_that_reached_a_ceiling_is_reopened_as_it_says(folder: Path) -> None:
    ended, again = REOPEN
    assert in_tour(ended, folder).returncode == 3
    run = newest(folder)
    done = in_tour(again, folder, RUN=run)
    assert done.returncode == 0 and (folder / "hello.txt").exists(), done.stderr
    new = json.loads(actors("show", newest(folder), "--json", cwd=folder).stdout)
    assert new["reopened_from"] == run and new["tree"]["spent_tokens"] >= 210
