"""What a step changed in files, as a line of a trace tells it."""

from pathlib import Path

import pytest

from actors.cli.phrases import phrase
from actors.cli.viewing import trace
from actors.testing.goal_model import call
from actors.testing.resume_bench import Bench, finished


async def test_a_trace_names_the_files_that_a_step_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = [call("write_file", path="f.txt", content="a\nb\n"), call("edit_file", path="f.txt", search="b", replace="c\nd")]
    bench = Bench(tmp_path, {"root": [[*first, call("nope")], [call("read_file", path="f.txt")], "done"]})
    assert finished(await bench.begin())
    assert trace(bench.run_id, str(bench.file), as_json=False) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if ": step 1: " in line or ": step 2: " in line]
    [one] = [line for line in lines if "write_file, edit_file, nope" in line]
    assert "; (+2 -0 f.txt); (+2 -1 f.txt); nope failed" in one
    assert not [line for line in lines if "step 2" in line and "(+" in line]


def test_a_line_names_a_few_files_and_counts_the_rest_and_tells_what_is_not_known() -> None:
    edited = [{"path": f"{name}\x1b[2J", "added": None, "removed": 1_234} for name in "abcde"]
    line = phrase({"kind": "step", "path": "root", "step": 1, "calls": ["a"], "edited": edited})
    assert line.count("(+? -1,234 ") == 3 and line.endswith("; 2 more files changed") and "\x1b" not in line
