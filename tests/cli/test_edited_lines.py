"""What a step changed in files, as a line of a trace tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.agents.contract import TaskContract
from actors.agents.verification import Verification
from actors.assembly.running import run
from actors.cli.phrases import is_cut, phrase
from actors.cli.viewing import trace
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench, finished


async def test_a_trace_names_the_files_that_a_step_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = [call("write_file", path="f.txt", content="a\nb\n"), call("edit_file", path="f.txt", search="b", replace="c\nd")]
    bench = Bench(tmp_path, {"root": [[*first, call("nope")], [call("read_file", path="f.txt")], "done"]})
    assert finished(await bench.begin())
    assert trace(bench.run_id, str(bench.file), as_json=False) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if ": step 1: " in line or ": step 2: " in line]
    [one] = [line for line in lines if "write_file, edit_file, nope" in line]
    assert "write_file, edit_file, nope (+2 -0 f.txt) (+2 -1 f.txt); nope failed" in one
    assert not [line for line in lines if "step 2" in line and "(+" in line]


def test_a_line_names_a_few_files_and_counts_the_rest_and_tells_what_is_not_known() -> None:
    edited = [{"path": f"{name}\x1b[2J", "added": None, "removed": 1_234} for name in "abcde"]
    line = phrase({"kind": "step", "path": "root", "step": 1, "calls": ["a"], "edited": edited})
    assert line.count("(+? -1,234 ") == 3 and line.endswith(" and 2 more files changed") and "\x1b" not in line


def test_what_does_not_compile_and_what_a_review_came_to_stand_in_words() -> None:
    files = [{"path": f"{name}.py\x1b", "text": "does not compile (python): SyntaxError: line 1"} for name in "abcd"]
    event = {"kind": "step", "path": "root", "step": 1, "calls": ["write_file"], "unsound": files}
    line = phrase(event)
    assert "; a.py\\x1b does not compile (python): SyntaxError: line 1; " in line and line.endswith("; 1 more do not either")
    assert is_cut(event) and not is_cut({**event, "unsound": files[:1]})
    review = {"kind": "reviewed", "path": "root", "step": 1, "verdict": "failed", "reviewer": "scripted", "changes": 1}
    assert phrase(review) == "root: step 1: scripted reviewed 1 changed file and does not pass it"


async def test_that_a_written_file_does_not_compile_is_told_with_its_step(tmp_path: Path) -> None:
    writes = [call("write_file", path="a.py", content="def f(:\n"), call("write_file", path="b.py", content="x = 1\n")]
    told: list[Any] = []
    async with Store.open(str(tmp_path / "runs.db")) as store:
        task = TaskContract.workspace("go", tmp_path, Verification.none(), max_steps=3, check_writes=True)
        ran = await run(task, Scripted([writes, []]), store)
        told = [json.loads(each.event) for each in store.trace(ran.run_id, 0, 100)]
    [step] = [each for each in told if each["kind"] == "step" and each["step"] == 1]
    [one] = step["unsound"]
    assert one["path"] == "a.py" and one["text"].startswith("does not compile (python): SyntaxError")
