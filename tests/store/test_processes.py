"""Several processes on one file, and one that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from actors.agents.rows import EventSeen, Observed
from actors.store.store import Store, open_reader

WRITER = """
import sys, trio
from actors.agents.rows import EventSeen, Observed
from actors.store.store import Store, open_reader

path, name, count, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    async with Store.open(path) as store:
        for number in range(count):
            batch = [Observed(name, number, n, "tool", "x", "y" * 100) for n in range(rows)]
            await store.append(EventSeen("left", name, str(number)))
            await store.commit(*batch, EventSeen("t", name, str(number)))
            print(number, flush=True)

trio.run(main)
"""


def writer(path: Path, name: str, count: int, rows: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count), str(rows)], stdout=subprocess.PIPE
    )


async def test_two_writers_and_a_reader_share_a_file_and_lose_nothing(tmp_path: Path):
    path = tmp_path / "runs.db"
    other = writer(path, "other", 500, 1)
    try:
        async with Store.open(path) as store:
            with open_reader(path) as reader:
                for number in range(500):
                    await store.commit(
                        Observed("mine", number, 0, "tool", "x", "y"), EventSeen("t", "mine", str(number))
                    )
                    if number % 50 == 0:
                        mine = [seen.event for seen in reader.trace("t") if seen.run_id == "mine"]
                        assert mine == [str(n) for n in range(number + 1)]
                out, _ = await trio.to_thread.run_sync(other.communicate)
                assert other.returncode == 0
                assert len(out.split()) == 500
                events = reader.trace("t")
                assert len(events) == 1_000
                for name in ("mine", "other"):
                    assert [seen.event for seen in events if seen.run_id == name] == [str(n) for n in range(500)]
                    assert len(reader.observations(name)) == 500
    finally:
        other.kill()
        other.wait()


async def test_many_processes_can_make_the_same_file_at_once(tmp_path: Path):
    path = tmp_path / "runs.db"
    writers = [writer(path, f"p{number}", 3, 1) for number in range(4)]
    try:
        for process in writers:
            await trio.to_thread.run_sync(process.communicate)
        assert [process.returncode for process in writers] == [0] * 4
    finally:
        for process in writers:
            process.kill()
            process.wait()
    with open_reader(path) as reader:
        assert len(reader.trace("t")) == 12


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_killed_process_leaves_whole_commits_and_all_that_it_was_told_of(tmp_path: Path, after: int):
    path = tmp_path / "runs.db"
    process = writer(path, "w", 100_000, 25)
    told = -1
    try:
        assert process.stdout is not None
        for _ in range(after):
            told = int(process.stdout.readline())
        # Somewhere in the middle of a commit.
        time.sleep(0.0003 * after)
        os.kill(process.pid, signal.SIGKILL)
        told = max([told, *(int(line) for line in process.stdout.read().split(b"\n")[:-1])])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    with open_reader(path) as reader:
        events = [int(seen.event) for seen in reader.trace("t")]
        assert events == list(range(len(events)))
        assert len(events) >= told + 1
        places = [(seen.step, seen.ordinal) for seen in reader.observations("w")]
        assert places == [(number, ordinal) for number in events for ordinal in range(25)]
        # What was appended before a commit stands with it, or earlier.
        assert len(reader.trace("left")) >= len(events)
        assert reader.select("PRAGMA integrity_check") == [("ok",)]

    async def go_on() -> list[str]:
        async with Store.open(path) as store:
            await store.commit(EventSeen("t", "again", "more"))
            return [seen.event for seen in store.trace("t")]

    assert trio.run(go_on)[-1] == "more"


LOOK = """
import sys
from actors.store.store import open_reader
with open_reader(sys.argv[1]) as reader:
    print(len(reader.trace("t")))
"""


async def test_another_process_that_only_looks_takes_no_log_from_below_a_live_store(tmp_path: Path):
    path, log = tmp_path / "runs.db", tmp_path / "runs.db-wal"
    async with Store.open(path) as store:
        await store.commit(EventSeen("t", "r", "1"))
        # Reading opens a second connection of this process; what opens and closes the file by other means than
        # SQLite's own drops the locks of all of them.
        assert len(store.trace("t")) == 1
        with open_reader(path) as reader:
            assert len(reader.trace("t")) == 1
        before = log.stat().st_ino
        looked = subprocess.run(  # noqa: ASYNC221
            [sys.executable, "-c", LOOK, str(path)], check=True, capture_output=True, text=True, timeout=30
        )
        assert looked.stdout == "1\n" and log.stat().st_ino == before
        await store.commit(EventSeen("t", "r", "2"))
        with open_reader(path) as reader:
            assert len(reader.trace("t")) == 2
