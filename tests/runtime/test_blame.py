"""Idea 16: an end says in one line where it began, who passed it on, and what went into it."""

from typing import Any

import attrs
import pytest
import trio

from actors.errors import ChildFailed, RestartsExhausted, StartFailed
from actors.runtime.exits import MOST_CHARS, Exhausted, Exit, FailedToStart, Reason
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Report
from actors.runtime.specs import ChildSpec
from actors.runtime.supervise import supervise

LEAF = Exit("top/db/reader", Reason.error, 1.0, cause=ValueError("no such table"))


def gave_up(cause: Exit, *path: str, tried: tuple[int, ...] = (), refusal: str | None = None) -> Exit:
    gone = Exhausted(cause, (cause.path, *path), refusal, tried)
    return Exit(path[-1], Reason.restarts_exhausted, 2.0, cause=cause.cause, payload=gone)


def no_start(path: str, end: Exit) -> Exit:
    return Exit(path, Reason.shutdown, 2.0, payload=FailedToStart("x", end))


def failed(path: str, below: Exit) -> Exit:
    return Exit(path, Reason.error, 2.0, cause=ChildFailed(below))


ENDS = {
    "an error": LEAF,
    "without a text": attrs.evolve(LEAF, cause=ValueError()),
    "killed": Exit("top/a", Reason.killed, 1.0, asked_at=0.0),
    "killed after a request": Exit("top/a", Reason.killed, 1.0, payload="the\nshift is over", asked_at=0.0),
    "still there": Exit("top/a", Reason.killed, 1.0, asked_at=0.0, left=False),
    "clean": Exit("top/a", Reason.normal, 1.0),
    "lost": Exit("top/a", Reason.shutdown, 1.0, lost=OSError("flush failed")),
    "gave up": gave_up(LEAF, "top/db", "top", tried=(1, 2)),
    "gave up at once": gave_up(LEAF, "top/db", tried=(0,)),
    "not said how often": gave_up(LEAF, "top/db", "top"),
    "no money": gave_up(LEAF, "top", tried=(3,), refusal="12 of 12 tokens are used"),
    "with its cost": gave_up(attrs.evolve(LEAF, spent="1,200 tokens (0.03 dollars)"), "top", tried=(1,)),
    "no start": no_start("top", no_start("top/db", LEAF)),
    "gave up in a start": no_start("top", gave_up(LEAF, "top/db", tried=(1,))),
    "no start, until it gave up": gave_up(no_start("top/db", LEAF), "top", tried=(4,)),
    "through parents": failed("root", failed("root/1.1", attrs.evolve(LEAF, path="root/1.1/2.1"))),
    "an agent that began again": Exit(
        "root/1.1", Reason.error, 3.0, cause=RestartsExhausted(attrs.evolve(LEAF, path="root/1.1"), ("root/1.1",)),
        spent="7 tokens (0.00 dollars)",
    ),
    "lines": Exit("a", Reason.error, 1.0, cause=ValueError("one\n  two\r\n\tthree")),
}  # fmt: skip

GOLDEN = """\
an error: top/db/reader: ValueError: no such table
without a text: top/db/reader: ValueError
killed: top/a: killed
killed after a request: top/a: killed (the shift is over)
still there: top/a: killed; its task did not end
clean: top/a: normal
lost: top/a: shutdown; an error was raised while it was stopped: OSError: flush failed
gave up: top/db/reader: ValueError: no such table; passed on by top/db (after 1 restart), top (after 2 restarts)
gave up at once: top/db/reader: ValueError: no such table; passed on by top/db (after 0 restarts)
not said how often: top/db/reader: ValueError: no such table; passed on by top/db, top
no money: top/db/reader: ValueError: no such table; passed on by top (after 3 restarts); no further restart was allowed: 12 of 12 tokens are used
with its cost: top/db/reader: ValueError: no such table; passed on by top (after 1 restart); 1,200 tokens (0.03 dollars) spent on it
no start: top/db/reader: ValueError: no such table; passed on by top/db (it could not start), top (it could not start)
gave up in a start: top/db/reader: ValueError: no such table; passed on by top/db (after 1 restart), top (it could not start)
no start, until it gave up: top/db/reader: ValueError: no such table; passed on by top/db (it could not start), top (after 4 restarts)
through parents: root/1.1/2.1: ValueError: no such table; passed on by root
an agent that began again: root/1.1: ValueError: no such table; 7 tokens (0.00 dollars) spent on it
lines: a: ValueError: one two three
"""


def test_every_kind_of_end_is_one_line():
    assert "".join(f"{name}: {end.blame()}\n" for name, end in ENDS.items()) == GOLDEN


@pytest.mark.parametrize("name", [name for name, end in ENDS.items() if not end.clean])
def test_the_error_of_a_child_that_failed_is_the_line_of_its_leaf(name: str):
    error = ChildFailed(ENDS[name])
    assert str(error) == error.leaf.blame()
    assert str(ChildFailed(failed("root", ENDS[name]))) == str(error)


def test_the_line_stays_short_however_much_there_is_to_tell():
    leaf = attrs.evolve(LEAF, cause=ValueError("x" * 10_000))
    path = tuple(f"top/{n}" for n in range(2_000))
    line = gave_up(leaf, *path, tried=(1,) * 2_000).blame()
    assert len(line) < MOST_CHARS + 300 and "\n" not in line
    assert "top/2 (after 1 restart), 1994 more, top/1997 (after 1 restart)" in line


async def fails() -> None:
    raise ValueError("no such table")


def fails_to_start(*, task_status: Any) -> Any:
    return fails()


async def test_the_error_of_a_tree_that_gave_up_is_the_line(autojump_clock):
    reader = ChildSpec("reader", fails)
    inner = ChildSpec("db", supervise, ([reader], {"intensity": 1}), type="supervisor")
    with pytest.raises(RestartsExhausted) as gone:
        async with open_supervisor([inner], {"intensity": 2}, on_report=lambda _path, _report: None) as top:
            await trio.sleep_forever()
    line = (
        "top/db/reader: ValueError: no such table; passed on by top/db (after 1 restart), top (after 2 restarts)"
    )
    assert str(gone.value) == f"restarts exhausted: {line}"
    assert top.exit is not None and top.exit.blame() == line


async def test_a_log_line_of_a_supervisor_that_gave_up_names_the_leaf(autojump_clock, caplog):
    inner = ChildSpec("db", supervise, ([ChildSpec("reader", fails)], {"intensity": 0}), type="supervisor")
    with pytest.raises(RestartsExhausted):
        async with open_supervisor([inner], {"intensity": 0}):
            await trio.sleep_forever()
    [last] = [r.getMessage() for r in caplog.records if r.getMessage().startswith("top: restarts exhausted")]
    assert "child 'db': top/db/reader: ValueError: no such table; passed on by top/db (after 0 restarts)" in last


async def test_a_start_that_fails_below_hundreds_of_supervisors_says_so_in_one_line():
    reports: list[Report] = []

    def chain(levels: int) -> Any:
        if not levels:
            return supervise([ChildSpec("leaf", fails_to_start)])
        return supervise([ChildSpec("below", chain, (levels - 1,), type="supervisor")])

    tree = open_supervisor(chain(600).specs, on_report=lambda _path, report: reports.append(report))
    with pytest.raises(StartFailed) as not_started:
        async with tree:
            pass
    text = str(not_started.value)
    assert "leaf: ValueError: no such table; passed on by" in text and text.endswith("top (it could not start)")
    assert "595 more" in text
    # The whole nest can be written as well, and is as short.
    assert len(str(not_started.value.exit)) < len(text) + 200
