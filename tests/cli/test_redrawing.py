"""One picture over the other leaves nothing of the first: not on a terminal that folds it, nor on one that is narrower than it said."""

import io
import re
import sys
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from actors.agents.snapshots import AgentView, TreeSnapshot
from actors.cli import redrawing
from actors.cli.live import Progress
from actors.cli.redrawing import CUT, FOLD, Redrawing, folded_rows, folds
from actors.containment.ledger_state import LedgerState
from actors.containment.limits import Containment
from actors.containment.slots import Tally

SHOWN = "\x1b[?25h"
UP, ERASE = "\x1b[1A", "\x1b[2K"


def picture(*lines: str) -> Group:
    return Group(*(Text(line, no_wrap=True) for line in lines))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> tuple[Console, io.StringIO]:
    monkeypatch.setattr(redrawing, "folds", lambda _environment: True)
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=20, height=20, legacy_windows=False), out


def frame(console: Console, out: io.StringIO, drawing: Redrawing, live: Live, *lines: str) -> str:
    start = len(out.getvalue())
    drawing.draw(live, picture(*lines))
    return out.getvalue()[start:]


def test_of_a_picture_that_was_folded_every_row_is_taken_away(screen: tuple[Console, io.StringIO]) -> None:
    console, out = screen
    drawing = Redrawing(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        frame(console, out, drawing, live, "x" * 18, "漢" * 9, "short")
        same = frame(console, out, drawing, live, "x" * 18, "漢" * 9, "short")
        assert (same.count(UP), same.count(ERASE)) == (2, 3)
        console.size = ConsoleDimensions(8, 20)
        # 3 rows, 3 and 1.
        narrow = frame(console, out, drawing, live, "x" * 6)
        assert (narrow.count(UP), narrow.count(ERASE)) == (6, 7)
        console.size = ConsoleDimensions(30, 20)
        wide = frame(console, out, drawing, live, "x" * 6)
        assert (wide.count(UP), wide.count(ERASE)) == (0, 1), "what was not folded has not grown"


def test_no_line_is_folded_while_a_picture_is_drawn_and_every_line_else_is(screen: tuple[Console, io.StringIO]) -> None:
    console, out = screen
    drawing = Redrawing(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        drawn = frame(console, out, drawing, live, "one", "two")
        assert drawn.startswith(CUT) and drawn.endswith(FOLD) and "one" in drawn
        drawing.settle()
        live.stop()
        drawing.gone()
    assert out.getvalue().count(CUT) == out.getvalue().count(FOLD) == 1


def test_a_picture_that_was_folded_is_settled_once_and_no_higher_than_the_screen(screen: tuple[Console, io.StringIO]) -> None:
    console, out = screen
    drawing = Redrawing(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        frame(console, out, drawing, live, "x" * 18, "y" * 18)
        console.size = ConsoleDimensions(4, 6)
        ups = []
        for _ in range(2):
            before = len(out.getvalue())
            drawing.settle()
            ups.append(out.getvalue()[before:].count(UP))
        # Ten rows, of which six are on the screen, and two that Rich knows of.
        assert ups == [4, 0]


def test_what_is_gone_is_not_taken_away_again(screen: tuple[Console, io.StringIO]) -> None:
    console, out = screen
    drawing = Redrawing(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        frame(console, out, drawing, live, "x" * 18)
    drawing.gone()
    console.size = ConsoleDimensions(4, 20)
    before = out.getvalue()
    drawing.settle()
    assert out.getvalue() == before


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 40))
def test_rows_are_counted_as_text_folds(lines: list[int], width: int) -> None:
    rows = [part for cells in lines for part in ([("x" * cells)[at : at + width] for at in range(0, cells, width)] or [""])]
    assert folded_rows(lines, width) == len(rows)


@pytest.mark.parametrize(
    ("environment", "so"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "tmux", "TMUX": "/tmp/x", "XTERM_VERSION": "XTerm(390)"}, True),
        ({"TERM": "screen", "STY": "1.x"}, False),
        ({"TERM": "linux"}, False),
        ({}, True),
    ],
)
def test_who_folds_is_known_by_what_the_terminal_says_of_itself(environment: dict[str, str], so: bool) -> None:
    assert folds(environment) is so


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Still:
    """A tree in which nothing moves."""

    def snapshot(self, _most: int) -> TreeSnapshot:
        agents = [AgentView(f"root/1.{number}", 1, "working", 1, 0, "goal") for number in range(4)]
        return TreeSnapshot("t", tuple(agents), {}, Tally(), 0, 3, 3, LedgerState(Containment(9, 3, 2, 400)).snapshot(), 59.0)


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "CI": "", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return terminal


async def test_a_question_and_its_answer_stay_where_they_stand(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    terminal = terminal_of(monkeypatch)
    progress: Any = Progress(quiet=False)
    progress.tree = Still()
    async with progress.shown():
        for number in range(3):
            await trio.sleep(0.35)
            progress.pause()
            terminal.write(f"QUESTION {number}\n")
            progress.go_on()
        # Two at once: no picture comes between them.
        progress.pause()
        terminal.write("QUESTION 3\n")
        progress.go_on()
        await trio.sleep(0.35)
    before, *after = re.split(r"QUESTION \d\n", terminal.getvalue())
    assert before.count(UP) > 0 and "root/1.3" in before, "the picture is drawn over itself"
    assert [text.partition("working")[0].count(UP) for text in after] == [0, 0, 0, 0]
    assert [text.partition("working")[0].count(ERASE) for text in after] == [0, 0, 0, 0]
    assert ["root/1.3" in text for text in after] == [True, True, False, True] and after[2] == ""
    # In the end the picture is taken away.
    assert after[-1].endswith(f"{UP}{ERASE}")


async def test_a_question_stays_on_a_terminal_that_is_made_narrower_meanwhile(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    terminal = terminal_of(monkeypatch)
    progress: Any = Progress(quiet=False)
    progress.tree = Still()
    async with progress.shown():
        await trio.sleep(0.35)
        progress.pause()
        terminal.write("QUESTION 0\n")
        progress._console.size = ConsoleDimensions(20, 24)
        progress.go_on()
        await trio.sleep(0.35)
    _, after = re.split(r"QUESTION \d\n", terminal.getvalue())
    assert "root/1" in after and after.partition("root/1")[0].count(UP) == 0


async def test_that_a_file_does_not_compile_is_told_beside_a_picture_too(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    terminal = terminal_of(monkeypatch)
    progress: Any = Progress(quiet=False)
    progress.tree = Still()
    step = {"kind": "step", "path": "root", "step": 1, "calls": ["write_file"]}
    async with progress.shown():
        progress.event(step)
        progress.event({**step, "step": 2, "unsound": [{"path": "a.py", "text": "does not compile"}]})
    assert "a.py does not compile" in terminal.getvalue() and "step 1" not in terminal.getvalue()
