"""What a driver may still write when its tree was taken over: within one process, and between several."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.agents.rows import AgentEvent, EventSeen, LiveEnded, LiveSeen, Observed, Row, RunStarted, Spawned
from actors.errors import RunConflict, StoreError, StoreErrorKind
from actors.store import writer as writer_file
from actors.store.store import FileStore, Store, open_reader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def event(text: object, tree: str = "t") -> EventSeen:
    return EventSeen(tree, tree, str(text))


def texts(store: Store, tree: str = "t") -> list[str]:
    return [seen.event for seen in store.trace(tree)]


def lapse(path: Path, *trees: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for tree in trees:
            connection.execute(
                "UPDATE run_leases SET renewed_at = '2001-01-01T00:00:00.000Z' WHERE tree_id = ?", (tree,)
            )
    finally:
        connection.close()


async def refused(store: Store, *rows: Row) -> str:
    with pytest.raises(StoreError) as error:
        await store.commit(*rows)
    assert error.value.kind is StoreErrorKind.fenced
    assert error.value.file == store.file
    return str(error.value)


@asynccontextmanager
async def taken_over(path: Path, *trees: str, also: tuple[str, ...] = ()) -> AsyncIterator[tuple[FileStore, FileStore]]:
    """Give a store that has lost ``trees`` without knowing it, and holds ``also``, and the one that took them."""
    async with Store.open(path) as old, Store.open(path) as new:
        for tree in (*trees, *also):
            await old.take(tree)
        lapse(path, *trees)
        for tree in trees:
            assert await new.take(tree) == 2
        yield old, new


# ── one process ─────────────────────────────────────────────────────────────


async def test_a_superseded_driver_writes_nothing_of_its_tree_and_all_of_others(path: Path):
    async with taken_over(path, "t") as (old, new):
        assert not old.lease_lost("t")
        await old.append(event("old"), event("old"))
        await old.append(event("else", "u"))
        await new.commit(event("new"))
        text = await refused(old, event("old"))
        assert f"the lease of run t was lost to process {os.getpid()} on " in text and "\n" not in text
        assert old.lease_lost("t")
        assert old.writer.lost == 2
        await old.commit(event("later", "u"))
        await refused(old, event("old"))
        await new.commit(event("newer"))
        assert texts(new) == ["new", "newer"]
        assert texts(new, "u") == ["else", "later"]


@pytest.mark.parametrize(
    "row",
    [
        RunStarted("t/3.1", "t", "root/3.1", 1, "t", "goal"),
        Observed("t/3.1/2.1", 1, 0, "tool", "x", "y"),
        AgentEvent("t/3.1", 1, "said", "x"),
        Spawned("t/3.1", 1, 1, "t/3.1/1.1", "goal", None, "{}"),
        LiveSeen("t", "{}"),
        LiveEnded("t"),
    ],
)
async def test_rows_of_children_and_of_the_whole_tree_are_fenced_like_the_root_s(path: Path, row: Row):
    async with taken_over(path, "t") as (old, new):
        assert "the lease of run t was lost" in await refused(old, row)
        await new.commit(row)
        assert (old.lease_lost("t"), new.lease_lost("t")) == (True, False)


async def test_of_several_leases_only_the_lost_one_closes(path: Path):
    async with taken_over(path, "t", also=("u", "v")) as (old, new):
        await old.append(event("u", "u"))
        await old.append(event("t"))
        await old.commit(event("v", "v"))
        assert (old.lease_lost("t"), old.lease_lost("u"), old.lease_lost("v")) == (True, False, False)
        assert (texts(new), texts(new, "u"), texts(new, "v")) == ([], ["u"], ["v"])
        assert old.writer.lost == 1
        for tree in ("u", "v"):
            await old.renew(tree)


async def test_what_was_written_together_for_two_trees_is_refused_whole(path: Path):
    async with taken_over(path, "t", also=("u",)) as (old, new):
        await refused(old, event("a", "u"), event("b"))
        assert texts(new, "u") == []


async def test_a_row_that_cannot_be_written_opens_no_way_past_the_fence(path: Path):
    async with taken_over(path, "t", also=("u",)) as (old, new):
        await old.append(event("old"))
        await old.append(RunStarted("u", "u", "root", 0, None, None))  # type: ignore[arg-type]
        await old.commit(event("good", "u"))
        assert (texts(new), texts(new, "u")) == ([], ["good"])
        assert old.writer.lost == 2
        assert old.writer.fault is None


async def test_many_commits_of_two_trees_at_once_each_get_their_own_answer(path: Path):
    answers: list[str] = []

    async def commit(store: Store, tree: str, number: int) -> None:
        try:
            await store.commit(event(number, tree))
            answers.append(f"{tree} ok")
        except StoreError as error:
            answers.append(f"{tree} {error.kind}")

    async with taken_over(path, "t", also=("u",)) as (old, new):
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(commit, old, "tu"[number % 2], number)
        assert sorted(answers) == ["t fenced"] * 25 + ["u ok"] * 25
        assert (len(texts(new)), len(texts(new, "u"))) == (0, 25)


async def test_who_holds_no_lease_writes_as_ever_also_beside_a_holder(path: Path):
    async with Store.open(path) as holder, Store.open(path) as plain:
        await holder.take("t")
        await plain.commit(event("plain"))
        await holder.commit(event("held"))
        assert texts(plain) == ["plain", "held"]


async def test_a_lost_tree_stays_closed_until_it_was_released_and_taken_again(path: Path):
    async with taken_over(path, "t") as (old, new):
        await new.release("t")
        # Free now: but what drove it here may still be writing.
        with pytest.raises(StoreError, match="release it, then take it") as early:
            await old.take("t")
        assert early.value.kind is StoreErrorKind.fenced
        await refused(old, event("old"))
        await old.release("t")
        await refused(old, event("old"))
        assert await old.take("t") == 3
        assert not old.lease_lost("t")
        await old.commit(event("again"))
        assert texts(new) == ["again"]


async def test_releasing_a_lease_that_was_lost_unseen_does_not_open_the_tree(path: Path):
    async with taken_over(path, "t") as (old, new):
        await old.release("t")
        assert old.lease_lost("t")
        await refused(old, event("old"))
        await new.commit(event("new"))
        assert texts(new) == ["new"]


async def test_a_lease_whose_row_was_deleted_is_lost(path: Path):
    async with Store.open(path) as store:
        await store.take("t")
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM run_leases")
        connection.close()
        assert "lost to nobody" in await refused(store, event("x"))


async def test_a_release_comes_after_the_rows_left_before_it(path: Path):
    async with Store.open(path) as old, Store.open(path) as new:
        await old.take("t")
        for number in range(2_000):
            old.append_nowait(event(number))
        await old.release("t")
        assert len(texts(new)) == 2_000
        assert await new.take("t") == 2
        assert old.writer.lost == 0


async def test_orders_and_rows_are_carried_out_in_the_order_in_which_they_were_left(path: Path):
    async with Store.open(path) as store:
        await store.take("t")
        store.append_nowait(event("a"))
        store.writer.leave(store.writer.fence.releasing("t"))
        store.append_nowait(event("b"))
        store.append_nowait(event("c"))
        store.writer.leave(store.writer.fence.taking("t", 30.0))
        before = store.writer.transactions
        await store.commit(event("d"))
        assert store.writer.transactions == before + 3
        assert texts(store) == ["a", "b", "c", "d"]
        assert store.select("SELECT generation FROM run_leases") == [(2,)]


async def test_a_lease_is_missed_also_by_a_store_that_holds_many_and_looked_a_moment_ago(path: Path):
    trees = [f"t{number}" for number in range(8)]
    async with Store.open(path) as old, Store.open(path) as new:
        for tree in trees:
            await old.take(tree)
        for number, tree in enumerate(trees[:-1]):
            await old.commit(event("looked", trees[-1]))
            lapse(path, tree)
            await new.take(tree)
            await old.commit(event("kept", trees[-1]))
            assert [old.lease_lost(each) for each in trees] == [n <= number for n in range(8)]
            await refused(old, event("x", tree))
        assert texts(new, trees[-1]) == ["looked", "kept"] * 7


async def test_leaving_the_block_in_any_way_writes_what_was_left_and_releases(path: Path):
    with trio.CancelScope() as scope:
        async with Store.open(path) as store:
            await store.take("t")
            await store.take("u")
            await store.append(event("a"))
            scope.cancel()
            await trio.lowlevel.checkpoint()
    with pytest.raises(ValueError, match="mine"):
        async with Store.open(path) as store:
            assert await store.take("t") == 2
            await store.append(event("b"))
            raise ValueError("mine")
    with open_reader(path) as reader:
        assert [seen.event for seen in reader.trace("t")] == ["a", "b"]
        found = reader.select("SELECT tree_id, owner, generation FROM run_leases ORDER BY tree_id")
        assert found == [("t", "", 2), ("u", "", 1)]


async def test_the_fence_is_one_query_inside_each_transaction_and_none_without_a_lease(path: Path):
    heard: list[str] = []

    def hear(sql: str) -> None:
        word = sql.split()[0]
        heard.append("look" if "run_leases WHERE" in sql or "data_version" in sql else word)

    async with Store.open(path) as store:
        store._connection.set_trace_callback(hear)
        await store.commit(event("a"), event("b"))
        assert heard == ["BEGIN", "INSERT", "INSERT", "COMMIT"]
        for trees in ("t", "u", "v"):
            await store.take(trees)
            # With several leases the first look is a whole one; later ones see that nobody else has written.
            await store.commit(event("first"))
            heard.clear()
            await store.commit(event("a"), event("b", "u"))
            assert heard == ["BEGIN", "look", "INSERT", "INSERT", "COMMIT"]
        store._connection.set_trace_callback(None)


async def test_a_locked_file_delays_a_renewal_and_breaks_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer_file, "BUSY_SECONDS", 0.05)
    async with Store.open(path) as store:
        await store.take("t")
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StoreError) as busy:
                await store.renew("t")
            assert busy.value.kind is StoreErrorKind.busy
            with pytest.raises(StoreError) as busy:
                await store.take("u")
            assert busy.value.kind is StoreErrorKind.busy
        finally:
            locker.close()
        await store.renew("t")
        await store.commit(event("a"))
        assert not store.lease_lost("t") and texts(store) == ["a"]


async def test_after_it_has_failed_a_store_says_so_to_whoever_takes_renews_or_releases(path: Path):
    store = Store.open(path)
    with pytest.raises(StoreError):
        async with store:
            await store.take("t")
            store._connection.execute("PRAGMA query_only = ON")
            for action in (store.renew, store.take, store.release):
                with pytest.raises(StoreError, match="readonly"):
                    await action("t")
            raise store.writer.fault.error() if store.writer.fault else AssertionError("it has not failed")
    with pytest.raises(StoreError, match=r"closed|readonly"):
        await store.renew("t")


# ── several processes ───────────────────────────────────────────────────────

WORKER = """
import os, signal, sys, trio
from actors.agents.rows import EventSeen
from actors.errors import RunConflict, StoreError
from actors.store.store import Store

path, ttl = sys.argv[1], float(sys.argv[2])

async def main():
    async with Store.open(path) as store, trio.open_nursery() as nursery:
        held = trio.Lock()

        async def heartbeat():
            while not store.lease_lost("t"):
                await trio.sleep(ttl / 3)
                async with held:
                    try:
                        await store.renew("t")
                    except StoreError:
                        pass

        async def hammer():
            number = 0
            while True:
                await store.commit(EventSeen("t", "t", f"old {number}"))
                number += 1

        async def do(word):
            if word == "take":
                answer = await store.take("t", ttl_seconds=ttl)
                nursery.start_soon(heartbeat)
                return answer
            if word == "hammer":
                nursery.start_soon(hammer)
            if word in ("commit", "other"):
                tree = "t" if word == "commit" else "u"
                await store.commit(EventSeen(tree, tree, "old"))
            if word == "renew":
                await store.renew("t")
            if word == "stop":
                # Not in the middle of a transaction: it would hold the file as long as it sleeps.
                async with held:
                    store.append_nowait(EventSeen("t", "t", "old, left before it was stopped"))
                    print("stopping", flush=True)
                    os.kill(os.getpid(), signal.SIGSTOP)
            if word == "lost":
                return f"{store.lease_lost('t')} {store.writer.lost}"
            if word == "vanish":
                os._exit(3)
            return "ok"

        while word := (await trio.to_thread.run_sync(sys.stdin.readline)).strip():
            try:
                print(await do(word), flush=True)
            except RunConflict as error:
                print("conflict", error, flush=True)
            except StoreError as error:
                print(error.kind, flush=True)
        nursery.cancel_scope.cancel()

trio.run(main)
"""


class Worker:
    """Another process with the store open, that does what it is told."""

    def __init__(self, path: Path, ttl: float = 30.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    async def answer(self) -> str:
        assert self.process.stdout is not None
        with trio.fail_after(30):
            return (await trio.to_thread.run_sync(self.process.stdout.readline, abandon_on_cancel=True)).strip()

    async def ask(self, word: str) -> str:
        self.say(word)
        return await self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@asynccontextmanager
async def worker(path: Path, ttl: float = 30.0) -> AsyncIterator[Worker]:
    made = Worker(path, ttl)
    try:
        yield made
    finally:
        made.end()


needs_signals = pytest.mark.skipif(os.name != "posix", reason="this system has no SIGKILL and SIGSTOP")


@needs_signals
async def test_a_second_process_is_refused_by_name_while_the_first_drives(path: Path):
    async with worker(path) as first, Store.open(path) as second:
        assert await first.ask("take") == "1"
        before = second.select("SELECT owner, generation, pid FROM run_leases")
        assert before[0][1:] == (1, first.pid)
        assert await first.ask("hammer") == "ok"
        asked = time.monotonic()
        with pytest.raises(RunConflict, match=f"run t is driven by process {first.pid} on "):
            await second.take("t")
        assert time.monotonic() - asked < 5
        assert second.select("SELECT owner, generation, pid FROM run_leases") == before
        assert await first.ask("commit") == "ok"
        assert all(text.startswith("old") for text in texts(second))


@needs_signals
async def test_of_several_processes_that_want_one_tree_at_once_one_gets_it(path: Path):
    async with Store.open(path):
        pass
    async with worker(path) as one, worker(path) as two, worker(path) as three:
        workers = (one, two, three)
        for each in workers:
            # All are up before any is told to take.
            assert await each.ask("lost") == "False 0"
        for each in workers:
            each.say("take")
        answers = [await each.answer() for each in workers]
        assert answers.count("1") == 1
        winner = workers[answers.index("1")]
        for answer in answers:
            assert answer == "1" or answer.startswith(f"conflict run t is driven by process {winner.pid} on ")


@needs_signals
@pytest.mark.parametrize("waited_for", [True, False])
async def test_a_killed_owner_is_taken_over_without_waiting_for_its_lease(path: Path, waited_for: bool):
    async with worker(path) as first, Store.open(path) as second:
        assert await first.ask("take") == "1"
        assert await first.ask("hammer") == "ok"
        while not texts(second):
            await trio.sleep(0.001)
        killed = time.monotonic()
        os.kill(first.pid, signal.SIGKILL)
        if waited_for:
            first.process.wait()
        else:
            # Ended, but its number is still there.
            await trio.to_thread.run_sync(os.waitid, os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        assert await second.take("t") == 2
        # Its lease would hold for 30 s.
        assert time.monotonic() - killed < 15
        before = texts(second)
        await second.commit(event("new"))
        assert texts(second) == [*before, "new"]


@needs_signals
async def test_an_owner_that_ended_without_a_word_is_taken_over_at_once(path: Path):
    async with worker(path) as first, Store.open(path) as second:
        assert await first.ask("take") == "1"
        first.say("vanish")
        assert first.process.wait(10) == 3
        assert await second.take("t") == 2


@needs_signals
async def test_a_stopped_owner_is_taken_over_when_its_time_is_up_and_writes_nothing_when_it_wakes(path: Path):
    async with worker(path, ttl=0.5) as first, Store.open(path) as second:
        assert await first.ask("take") == "1"
        assert await first.ask("commit") == "ok"
        # Longer than the lease: it is renewed meanwhile, so this is refused all along.
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            with pytest.raises(RunConflict):
                await second.take("t")
            await trio.sleep(0.05)
        assert await first.ask("stop") == "stopping"
        stopped = time.monotonic()
        while True:
            try:
                assert await second.take("t") == 2
                break
            except RunConflict:
                assert time.monotonic() - stopped < 20
                await trio.sleep(0.02)
        await second.commit(event("new"))
        os.kill(first.pid, signal.SIGCONT)
        assert await first.answer() == "ok"
        assert [await first.ask(word) for word in ("commit", "renew", "commit")] == ["fenced"] * 3
        assert await first.ask("other") == "ok"
        assert await first.ask("lost") == "True 1"
        first.say("")
        assert await trio.to_thread.run_sync(first.process.wait) == 0
        # Also when it left its block it released nothing that was not its own.
        await second.renew("t")
        await second.commit(event("newer"))
        assert texts(second) == ["old", "new", "newer"]
        assert texts(second, "u") == ["old"]
