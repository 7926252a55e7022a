"""What was typed before a question stood on the terminal, and is no answer to it."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

MAIN = "from actors.cli.main import main; main()"
PROGRAM = [sys.executable, "-c", MAIN]
TASK = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 3
[contract.verify]
kind = "workspace_file_contains"
file = "out.txt"
needle = "ok"
[containment]
max_total_agents = 2
max_concurrent = 2
max_depth = 1
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[run]
approve = "ask"
"""
PROMPT = b"[?] "
ASKED = "SELECT request_id FROM pending_approvals WHERE decision IS NULL"


def answer(tool: str, delay: float = 0, **arguments: Any) -> dict[str, Any]:
    return {"calls": [[tool, arguments]], "delay": delay, "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


def write(path: str, content: str = "ok", delay: float = 0) -> dict[str, Any]:
    return answer("write_file", delay, path=path, content=content)


@attrs.define
class Terminal:
    """A terminal with a program on it. All waiting ends after 20 seconds."""

    child: int
    screen: int
    seen: bytes = b""
    _read: int = 0

    @classmethod
    def of(cls, folder: Path, argv: list[str]) -> "Terminal":
        child, screen = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, {**os.environ, "CI": "1", "TERM": "xterm"})
        return cls(child, screen)

    def wait_for(self, words: bytes) -> None:
        """Read on until ``words`` have come after what was waited for before."""
        while (found := self.seen.find(words, self._read)) < 0:
            assert select.select([self.screen], [], [], 20)[0], self.seen
            self.seen += os.read(self.screen, 65536)
        self._read = found + len(words)

    def type(self, text: str) -> None:
        """Type, and wait for the echo: then the kernel has all of it."""
        os.write(self.screen, text.encode())
        self.wait_for(text.encode().replace(b"\n", b"\r\n"))

    def end(self) -> int:
        """Read what comes until the program ends, and give its exit code."""
        try:
            while True:
                assert select.select([self.screen], [], [], 20)[0], self.seen
                if not (got := os.read(self.screen, 65536)):
                    break
                self.seen += got
        except OSError:
            # Linux says so when the other side has closed a terminal.
            pass
        os.close(self.screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def begun(place: Any, script: list[Any]) -> Terminal:
    place.holding(TASK, script)
    return Terminal.of(place.folder, [*PROGRAM, "run", "task.toml"])


def test_lines_typed_at_one_question_do_not_answer_the_next_ones(tmp_path: Path, place: Any) -> None:
    terminal = begun(place, [write("a.txt"), write("b.txt", delay=0.5), write("out.txt")])
    terminal.wait_for(PROMPT)
    terminal.type("y\ny\ny\n")
    for _ in range(2):
        terminal.wait_for(PROMPT)
        terminal.type("n\n")
    assert terminal.end() == 3, terminal.seen
    assert terminal.seen.count(PROMPT) == 3
    assert (tmp_path / "a.txt").exists() and not (tmp_path / "b.txt").exists() and not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(("typed", "then"), [("y\n", "n\n"), ("y", "\n"), ("y\ny", "\n")])
def test_what_is_typed_while_the_model_thinks_allows_nothing(tmp_path: Path, place: Any, typed: str, then: str) -> None:
    terminal = begun(place, [answer("exec", 2, argv=["touch", "made"]), {"text": "then not"}, {"text": "then not"}])
    place.wait_until("SELECT run_id FROM runs")
    terminal.type(typed)
    assert PROMPT not in terminal.seen
    terminal.wait_for(PROMPT)
    os.write(terminal.screen, then.encode())
    assert terminal.end() == 3, terminal.seen
    assert b"refused exec" in terminal.seen and not (tmp_path / "made").exists()


def test_half_a_line_at_a_question_that_is_answered_elsewhere_is_no_part_of_the_next_answer(
    tmp_path: Path, place: Any
) -> None:
    terminal = begun(place, [write("a.txt"), write("out.txt"), {"text": "then not"}])
    terminal.wait_for(PROMPT)
    terminal.type("y")
    assert place.actors("approve", place.wait_until(ASKED)).returncode == 0
    terminal.wait_for(PROMPT)
    os.write(terminal.screen, b"\n")
    assert terminal.end() == 3, terminal.seen
    assert (tmp_path / "a.txt").exists() and not (tmp_path / "out.txt").exists()


def test_half_a_line_at_a_question_that_is_answered_elsewhere_is_not_left_to_the_next_program(
    tmp_path: Path, place: Any
) -> None:
    place.holding(TASK, [write("out.txt")])
    program = f"{sys.executable} -c '{MAIN}' run task.toml; printf 'next: '; read -r line; printf '<%s>' \"$line\""
    terminal = Terminal.of(tmp_path, ["bash", "-c", program])
    terminal.wait_for(PROMPT)
    terminal.type("y")
    assert place.actors("approve", place.wait_until(ASKED)).returncode == 0
    terminal.wait_for(b"next: ")
    terminal.type("z\n")
    terminal.wait_for(b"<")
    assert terminal.end() == 0 and terminal.seen.endswith(b"<z>"), terminal.seen


def test_a_yes_typed_before_all_of_it_was_shown_is_no_yes(tmp_path: Path, place: Any) -> None:
    terminal = begun(place, [write("out.txt", "line\n" * 400 + "ok"), {"text": "then not"}, {"text": "then not"}])
    terminal.wait_for(PROMPT)
    os.write(terminal.screen, b"s\ny\n")
    terminal.wait_for(PROMPT)
    os.write(terminal.screen, b"n\n")
    assert terminal.end() == 3, terminal.seen
    assert not (tmp_path / "out.txt").exists()


def test_an_end_of_file_in_a_line_is_no_end_of_the_line_and_holds_nobody_up(tmp_path: Path, place: Any) -> None:
    terminal = begun(place, [write("a.txt"), write("out.txt")])
    terminal.wait_for(PROMPT)
    terminal.type("y")
    os.write(terminal.screen, b"\x04")
    assert place.actors("approve", place.wait_until(ASKED)).returncode == 0
    terminal.wait_for(PROMPT)
    os.write(terminal.screen, b"y\n")
    assert terminal.end() == 0, terminal.seen
    assert (tmp_path / "out.txt").exists()


def test_a_run_in_the_background_of_a_terminal_is_not_stopped_by_its_question(tmp_path: Path, place: Any) -> None:
    place.holding(TASK, [write("out.txt")])
    program = f"set -m; {sys.executable} -c '{MAIN}' run task.toml & wait $!; exit $?"
    terminal = Terminal.of(tmp_path, ["bash", "-c", program])
    terminal.wait_for(PROMPT)
    assert place.actors("approve", place.wait_until(ASKED)).returncode == 0
    assert terminal.end() == 0, terminal.seen
    assert (tmp_path / "out.txt").exists()


def test_lines_in_a_pipe_answer_one_question_after_the_other(tmp_path: Path, place: Any) -> None:
    place.holding(TASK, [write("a.txt"), write("out.txt")])
    done = subprocess.run(
        [*PROGRAM, "run", "task.toml"], cwd=tmp_path, input="y\ny\n", capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.txt").exists() and (tmp_path / "out.txt").exists()
