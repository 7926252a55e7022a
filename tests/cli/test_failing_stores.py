"""A store that fails below the command line: one line that names the file and what it is about, and an exit code."""

from typing import Any

import pytest

from actors.cli.main import main
from actors.store import writer as writer_file
from actors.store.store import Store
from actors.testing.faulty_store import FaultKind, Faults, Where, damage, open_faulty_store

SCRIPT: list[dict[str, Any]] = [{"calls": [["write_file", {"path": "a.txt", "content": "a.txt"}]]}, {"text": "done"}]
TASK = """
[contract]
goal = "write a.txt"
root = "."
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[policy.defaults]
write = "allow"
"""


@pytest.fixture(autouse=True)
def in_the_folder(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place.holding(TASK, SCRIPT)
    monkeypatch.chdir(place.folder)
    # A file that is held is given up soon.
    monkeypatch.setattr(writer_file, "BUSY_SECONDS", 0.05)


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_the_command_says_one_line_and_exits_1(
    kind: FaultKind, at: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Faults(kind, at, Where.commit)
    monkeypatch.setattr(Store, "open", staticmethod(lambda path, **_options: open_faulty_store(path, faults)))
    code = command("run", "task.toml", "--quiet", "--store", "runs.db")
    told = capsys.readouterr().err.splitlines()
    assert faults.hits and code == 1
    assert [line for line in told if line.startswith("error: ")] == [f"error: runs.db: {faults.error()}"]
    assert not any("Traceback" in line for line in told)


def test_a_damaged_file_is_one_line_for_whoever_runs_or_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("run", "task.toml", "--quiet", "--store", "runs.db") == 0
    damage("runs.db", "runs")
    capsys.readouterr()
    assert command("run", "task.toml", "--quiet", "--store", "runs.db") == 1
    ran = capsys.readouterr().err.splitlines()
    # Nothing was started: it is the file that was named.
    assert command("list", "--store", "runs.db") == 2
    listed = capsys.readouterr().err.splitlines()
    line = "error: runs.db: database disk image is malformed"
    assert [each for each in ran if each.startswith("error: ")] == [line]
    assert listed == [line]
