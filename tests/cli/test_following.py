"""`actors show --live`: the picture of a tree in each state, and looking at the run of another process."""

import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

from actors.agents.live_states import LiveState
from actors.agents.rows import LiveSeen, RunStarted
from actors.agents.snapshots import AgentView, MailboxView, TreeSnapshot, encode_snapshot
from actors.cli import following
from actors.cli.following import show_live
from actors.cli.live_picture import live_picture
from actors.cli.phrases import brief_time
from actors.cli.viewing import list_runs
from actors.cli.viewing import show as show_run
from actors.containment.ledger_state import LedgerState
from actors.containment.limits import Containment
from actors.containment.slots import Tally
from actors.errors import ConfigError
from actors.store.store import Store

PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]

# ── the picture of one tree in each state ───────────────────────────────────────

GOLDEN = """\
2/4 working  6 waiting  1 queued  0 done  12,300 of 400,000 tokens  500 held  $0.0042 of $0.50  58 s left
root/2   working                 3 s  step  7  9,300 tokens   $0.003  29 s left  write the code
root/6   waiting for human      10 s  step  1                         may it push?
root/5   waiting for money       1 s  step  2                         the third chapter
root/7   waiting for rate       12 s  step  1                         the fourth chapter
root/9   waiting for mailbox     0 s  step  0                         mailbox 0 (peak 17)  clerk
root/8   waiting                 4 s  step  0                         a function of somebody's
root     waiting for child    20 min  step 12  3,000 tokens  $0.0012  have a book written
root/10  restart in 3.2 s             step  0
root/4   stopping                0 s  step  0                         the second chapter
root/3   waiting for slot        2 h  step  0                         the first chapter
root/11  init                    0 s  step  0                         an appendix
"""


def one_in_each_state() -> TreeSnapshot:
    now = 10_000.0

    def view(number: int, state: LiveState, goal: str, seconds: float | None, **more: Any) -> AgentView:
        path = f"root/{number}" if number else "root"
        since = None if seconds is None else now - seconds
        return AgentView(path, min(number, 1), state.value, more.pop("steps", 0), more.pop("tokens", 0), goal, since=since, **more)

    views = (
        view(0, LiveState.for_child, "have a book written", 1_234, steps=12, tokens=3_000, spent_microdollars=1_200),
        view(2, LiveState.working, "write the code", 3.9, steps=7, tokens=9_300, spent_microdollars=3_000, deadline=now + 29.5),
        view(3, LiveState.for_slot, "the first chapter", 7_230),
        view(4, LiveState.stopping, "the second chapter", 0.2),
        view(5, LiveState.for_money, "the third chapter", 1, steps=2),
        view(6, LiveState.for_human, "may it push?", 10, steps=1),
        view(7, LiveState.for_rate, "the fourth chapter", 12, steps=1),
        view(8, LiveState.waiting, "a function of somebody's", 4),
        view(9, LiveState.for_mailbox, "clerk", 0, mailbox=MailboxView(0, 17)),
        view(10, LiveState.restart, "", None, restart_at=now + 3.2),
        view(11, LiveState.init, "an appendix", 0),
    )
    ledger = attrs.evolve(
        LedgerState(Containment(100, 4, 2, 400_000)).snapshot(),
        spent_tokens=12_300,
        reserved_tokens=500,
        spent_microdollars=4_200,
    )
    return TreeSnapshot(
        "abcdefghjk", views, {}, Tally(2, 6, 1, 0), 2, 4, 4, ledger, 58.4, now, {}, 400_000, 500_000
    )


def drawn(picture: Any, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(picture)
    return out.getvalue()


def test_the_picture_of_a_tree_in_each_state_is_as_written_down() -> None:
    snapshot = one_in_each_state()
    assert {view.state for view in snapshot.agents} == {state.value for state in LiveState}
    assert drawn(live_picture(snapshot, 140, 40), 140) == GOLDEN


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10), (40, 8)])
def test_a_narrow_screen_keeps_path_and_state_and_loses_steps_first(width: int, height: int) -> None:
    lines = drawn(live_picture(one_in_each_state(), width, height), width).splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    assert any(line.split()[:2] == ["root/2", "working"] for line in lines)
    assert " step " not in "".join(lines)


def test_agents_that_the_snapshot_left_out_are_counted_by_state() -> None:
    snapshot = attrs.evolve(one_in_each_state(), more={"working": 3, "waiting for slot": 88_000})
    lines = drawn(live_picture(snapshot, 120, 40), 120).splitlines()
    assert lines[-1] == "… and 88,003 more agents: 3 working, 88,000 waiting for slot"
    short = drawn(live_picture(snapshot, 120, 8), 120).splitlines()
    assert len(short) == 7 and short[-1] == "… and 88,009 more agents, of them 3 working, 88,000 waiting for slot"


def test_times_are_brief() -> None:
    assert [brief_time(each) for each in (-1, 0.9, 59.9, 60, 3_599, 3_600, 90_000)] == [
        "0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "25 h",
    ]  # fmt: skip


# ── a store with a run that looks live ──────────────────────────────────────────

RUN = "abcdefghjk"


async def written(file: Path, *rows: Any) -> None:
    async with Store.open(file) as store:
        await store.commit(RunStarted(RUN, RUN, "root", 0, None, "have a book written"), *rows)


def aged(file: Path, seconds: int) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE live SET taken_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?)", (f"-{seconds} seconds",))
    connection.close()


async def test_json_is_one_snapshot_whose_times_are_spans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.db"
    await written(file, LiveSeen(RUN, encode_snapshot(one_in_each_state())))
    assert following.show_live(RUN[:4], str(file), True) == 0
    [line] = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["run_id"], told["total"]["working"], told["ledger"]["spent_tokens"]) == (RUN, 2, 12_300)
    assert 0 <= told["age_seconds"] < 5 and told["seconds_left"] == 58.4
    by_path = {agent["path"]: agent for agent in told["agents"]}
    assert by_path["root/2"] == {
        "path": "root/2", "depth": 1, "state": "working", "steps": 7, "spent_tokens": 9_300, "goal": "write the code",
        "spent_microdollars": 3_000, "mailbox": None, "state_seconds": 3.9, "seconds_left": 29.5,
        "restart_in_seconds": None,
    }  # fmt: skip
    assert by_path["root/9"]["mailbox"] == {"length": 0, "peak": 17}
    assert (by_path["root/10"]["state_seconds"], by_path["root/10"]["restart_in_seconds"]) == (None, 3.2)


async def test_a_row_of_a_process_that_may_be_gone_says_how_old_it_is(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    await written(file, LiveSeen(RUN, encode_snapshot(one_in_each_state())))
    aged(file, 75)
    async with Store.open(file) as store:
        seen = following._look(store, RUN)
    assert seen is not None and 74 < seen.age < 80
    lines = drawn(following._picture(seen, 140, 40), 140).splitlines()
    assert lines[1] == "as of 1 min ago: its process may be gone"
    # It stands still: nobody knows what went on since.
    assert [lines[0], *lines[2:]] == GOLDEN.splitlines()
    fresh = attrs.evolve(seen, age=2.0)
    lines = drawn(following._picture(fresh, 140, 40), 140).splitlines()
    assert lines[0].endswith("56 s left") and "root/2   working                 5 s" in lines[1] and "ago" not in lines[1]


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_run_that_is_not_live_says_so_in_one_line(tmp_path: Path, monkeypatch: Any, as_json: bool) -> None:
    monkeypatch.setattr(following, "PATIENCE_SECONDS", 0.2)
    file = tmp_path / "runs.db"
    await written(file)
    with pytest.raises(ConfigError) as caught:
        following.show_live(RUN, str(file), as_json)
    [(place, text)] = caught.value.problems
    assert place == "run" and "its process is likely gone" in text and "\n" not in text


async def test_a_row_of_another_version_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    await written(file, LiveSeen(RUN, '{"run_id": "abcdefghjk"}'))
    with pytest.raises(ConfigError, match="runs under another version of actors"):
        following.show_live(RUN, str(file), True)


async def test_a_file_of_a_version_without_the_table_has_no_live_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(following, "PATIENCE_SECONDS", 0.2)
    file = tmp_path / "runs.db"
    await written(file)
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE live")
    connection.close()
    with pytest.raises(ConfigError, match="shows nothing of itself"):
        following.show_live(RUN, str(file), True)


# ── beside a real run ───────────────────────────────────────────────────────────

HANGS = """
[contract]
goal = "wait for a model"
root = "."
max_steps = 3
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Give a run that hangs until it is stopped."""
    (tmp_path / "task.toml").write_text(HANGS)
    (tmp_path / "script.json").write_text(json.dumps([{"hang": True}]))
    process = subprocess.Popen(
        [*PROGRAM, "run", "task.toml", "--quiet"], cwd=tmp_path, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_id_of(folder: Path) -> str:
    """Wait until the run has shown itself, and give its id."""
    for _ in range(200):
        time.sleep(0.05)
        try:
            connection = sqlite3.connect(f"file:{folder / '.actors' / 'runs.db'}?mode=ro", uri=True)
            found = connection.execute("SELECT tree_id FROM live").fetchall()
            connection.close()
        except sqlite3.Error:
            continue
        if found:
            return str(found[0][0])
    raise AssertionError("the run did not show itself")


def show(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*PROGRAM, "show", "--live", *arguments], cwd=folder, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_in_a_pipe_each_new_picture_is_printed_until_the_run_ends(tmp_path: Path, live: "subprocess.Popen[str]") -> None:
    looking = show(tmp_path, run_id_of(tmp_path))
    assert looking.stdout is not None
    first = [looking.stdout.readline() for _ in range(3)]
    assert first[0].startswith("1/2 working") and first[1].startswith("root  working") and first[2] == "\n"
    live.send_signal(signal.SIGTERM)
    live.communicate(timeout=20)
    out, errors = looking.communicate(timeout=20)
    assert looking.returncode == 0 and errors == ""
    assert "root interrupted" in out and "\x1b" not in out
    # It ended: from now on it is not live.
    later = show(tmp_path, run_id_of_ended(tmp_path))
    out, errors = later.communicate(timeout=20)
    assert (later.returncode, out) == (2, "") and "is not live, it is paused (interrupted)" in errors


def run_id_of_ended(folder: Path) -> str:
    connection = sqlite3.connect(folder / ".actors" / "runs.db")
    [(found,)] = connection.execute("SELECT run_id FROM runs WHERE parent_run_id IS NULL").fetchall()
    assert connection.execute("SELECT count(*) FROM live").fetchall() == [(0,)]
    connection.close()
    return str(found)


def test_ctrl_c_ends_the_look_and_not_the_run_and_gives_the_cursor_back(
    tmp_path: Path, live: "subprocess.Popen[str]"
) -> None:
    run_id = run_id_of(tmp_path)
    ours, theirs = pty.openpty()
    looking = subprocess.Popen(
        [*PROGRAM, "show", "--live", run_id], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while b"wait for a model" not in seen:
        assert select.select([ours], [], [], 20)[0], seen
        seen += os.read(ours, 65_536)
    looking.send_signal(signal.SIGINT)
    try:
        while select.select([ours], [], [], 20)[0] and (part := os.read(ours, 65_536)):
            seen += part
    except OSError:
        # Linux says so when the other side has closed a terminal.
        pass
    os.close(ours)
    assert looking.wait(timeout=20) == 130
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l") and seen.rstrip().endswith(b"stopped")
    assert live.poll() is None


def killed_without_a_lease(folder: Path, live: "subprocess.Popen[str]") -> str:
    """Kill a run that looks as an older version wrote it, so that only its silence tells of its end."""
    run_id = run_id_of(folder)
    live.kill()
    live.communicate(timeout=20)
    with sqlite3.connect(folder / ".actors" / "runs.db") as connection:
        connection.execute("DELETE FROM run_leases")
    connection.close()
    return run_id


def test_a_run_that_is_silent_says_that_its_process_may_be_gone(tmp_path: Path, live: "subprocess.Popen[str]") -> None:
    run_id = killed_without_a_lease(tmp_path, live)
    aged(tmp_path / ".actors" / "runs.db", 30)
    looking = show(tmp_path, run_id)
    assert looking.stdout is not None
    assert "its process may be gone" in [looking.stdout.readline() for _ in range(2)][1]
    looking.send_signal(signal.SIGINT)
    _, errors = looking.communicate(timeout=20)
    assert looking.returncode == 130 and errors == "stopped\n"


def test_a_run_that_is_silent_for_long_is_followed_no_further(
    tmp_path: Path, live: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = killed_without_a_lease(tmp_path, live)
    monkeypatch.setattr("actors.cli.following.GONE_SECONDS", 0.5)
    assert show_live(run_id, str(tmp_path / ".actors" / "runs.db"), as_json=False) == 1
    told = capsys.readouterr()
    assert "root  working" in told.out and f"{run_id} was not heard of for 0.5 s" in told.err


def test_a_run_whose_process_was_killed_says_so_at_once_and_how_it_goes_on(
    tmp_path: Path, live: "subprocess.Popen[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / ".actors" / "runs.db")
    run_id = run_id_of(tmp_path)

    def killed() -> list[bool]:
        list_runs(store, True)
        [listed] = json.loads(capsys.readouterr().out)
        show_run(run_id, store, True)
        shown = json.loads(capsys.readouterr().out)
        assert [listed["status"], shown["status"]] == ["running", "running"]
        return [listed["killed"], shown["killed"]]

    assert killed() == [False, False]
    live.kill()
    live.communicate(timeout=20)
    assert killed() == [True, True]
    began = time.monotonic()
    assert show_live(run_id, store, as_json=False) == 1
    assert time.monotonic() - began < following.GONE_SECONDS / 2
    told = capsys.readouterr()
    assert told.err == f"{run_id} has no end, and its process is gone\n"
    assert "root  working" in told.out and f"it goes on with: actors resume {run_id}" in told.out
    # One that never showed itself is not waited for, either.
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM live")
    connection.close()
    with pytest.raises(ConfigError, match="has no end and its process is gone"):
        show_live(run_id, store, as_json=False)
