import logging
import sqlite3
import threading
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.rows import (
    ApprovalAsked,
    ApprovalDecided,
    EventSeen,
    Observed,
    Row,
    RunFinished,
    RunStarted,
    RunStatus,
    StepDone,
)
from actors.errors import StoreError, StoreErrorKind
from actors.store import writer as writer_file
from actors.store.batch import Order
from actors.store.connections import connect_writer
from actors.store.store import FileStore, Store, open_reader
from actors.store.writer import BOUND

ROOT = RunStarted("t", "t", "root", 0, None, "goal")
END = RunFinished("t", "completed", "success", "{}", '{"kind":"first"}', True, *[0] * 7, False, 1)


def event(text: object) -> EventSeen:
    return EventSeen("t", "t", str(text))


def asked(request_id: str) -> list[Row]:
    return [
        ApprovalAsked(request_id, "t", "t", 1, 1, 1, "write", "a.txt", "", "write_file", "{}", "goal", None, None)
    ]


def texts(store: Store) -> list[str]:
    return [seen.event for seen in store.trace("t")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def test_many_that_commit_at_once_share_few_transactions(path: Path):
    async def agent(number: int) -> None:
        for step in range(5):
            await store.commit(event(f"{number}.{step}"))

    async with Store.open(path) as store:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(agent, number)
        assert store.writer.transactions <= 20
        found = texts(store)
    assert len(found) == len(set(found)) == 1000
    for number in (0, 99, 199):
        assert [text for text in found if text.split(".")[0] == str(number)] == [f"{number}.{n}" for n in range(5)]


async def test_what_was_appended_stands_when_a_later_commit_does_and_in_order(path: Path):
    async with Store.open(path) as store:
        for number in range(3000):
            await store.append(event(number))
        store.append_nowait(event(3000))
        await store.commit(event(3001))
        assert texts(store) == [str(number) for number in range(3002)]


async def test_a_commit_without_rows_waits_for_what_was_appended(path: Path):
    async with Store.open(path) as store:
        await store.append(event("a"), event("b"))
        await store.commit()
        assert texts(store) == ["a", "b"]


async def test_what_is_appended_is_written_soon_without_any_commit(path: Path):
    async with Store.open(path) as store:
        await store.append(event("a"))
        with trio.fail_after(5):
            while texts(store) != ["a"]:
                await trio.sleep(0.005)
        assert texts(store) == ["a"]


async def test_leaving_the_block_writes_what_was_left(path: Path):
    async with Store.open(path) as store:
        await store.append(event("a"))
    with open_reader(path) as reader:
        assert [seen.event for seen in reader.trace("t")] == ["a"]


async def test_leaving_the_block_by_an_error_or_a_cancel_writes_what_was_left(path: Path):
    with pytest.raises(KeyError, match="mine"):
        async with Store.open(path) as store:
            await store.append(event("error"))
            raise KeyError("mine")
    with trio.CancelScope() as scope:
        async with Store.open(path) as store:
            await store.append(event("cancel"))
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    with open_reader(path) as reader:
        assert [seen.event for seen in reader.trace("t")] == ["error", "cancel"]


async def test_an_outer_cancel_does_not_stop_commits_under_a_shield(path: Path):
    with trio.CancelScope() as scope:
        async with Store.open(path) as store:
            scope.cancel()
            with trio.CancelScope(shield=True):
                await store.commit(event("last words"))
                assert texts(store) == ["last words"]
    assert store.writer.transactions == 1


async def test_a_cancelled_committer_leaves_all_of_its_rows_or_none(path: Path):
    async with Store.open(path) as store:
        for number in range(40):
            with trio.move_on_after(number * 0.00005):
                await store.commit(*(event(number) for _ in range(5)))
        await store.commit()
        found = texts(store)
    assert found
    assert {found.count(text) for text in found} == {5}


@pytest.mark.parametrize("opened", [True, False], ids=["file", "memory"])
async def test_a_broken_constraint_concerns_only_whoever_broke_it(path: Path, opened: bool, caplog):
    caplog.set_level(logging.CRITICAL)
    outcomes: dict[int, str] = {}

    async def agent(number: int) -> None:
        step = StepDone("t", number % 10, f"by {number}", "", "", 1)
        try:
            await store.commit(Observed("t", number, 0, "tool", "before", ""), step, event(number))
        except StoreError as error:
            assert error.kind is StoreErrorKind.constraint
            outcomes[number] = "refused"
        else:
            outcomes[number] = "written"

    async with Store.open(path) if opened else Store.memory() as store:
        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(agent, number)
            await store.append(event("appended"))
        written = sorted(number for number, outcome in outcomes.items() if outcome == "written")
        assert len(outcomes) == 30
        assert len(written) == 10
        assert sorted(texts(store)) == sorted(["appended", *(str(number) for number in written)])
        assert sorted(step.decision for step in store.steps("t")) == sorted(f"by {number}" for number in written)
        assert sorted(seen.step for seen in store.observations("t")) == written


@pytest.mark.parametrize("opened", [True, False], ids=["file", "memory"])
async def test_a_run_has_one_terminal_and_a_second_changes_nothing(path: Path, opened: bool):
    async with Store.open(path) if opened else Store.memory() as store:
        await store.commit(ROOT, END)
        before = store.run("t"), store.outcome("t"), store.terminal("t")
        second = attrs.evolve(END, outcome="failed", status="failed", terminal='{"kind":"second"}')
        with pytest.raises(StoreError, match=r"terminals|run_outcomes") as raised:
            await store.commit(RunStatus("t", "draining"), second, event("late"))
        assert raised.value.kind is StoreErrorKind.constraint
        assert isinstance(raised.value.__cause__, sqlite3.IntegrityError)
        assert (store.run("t"), store.outcome("t"), store.terminal("t")) == before
        assert store.terminal("t") == '{"kind":"first"}'
        assert texts(store) == []


async def test_two_ends_at_once_give_one_terminal(path: Path):
    taken: list[str] = []

    async def end(name: str) -> None:
        try:
            await store.commit(attrs.evolve(END, terminal=name))
            taken.append(name)
        except StoreError:
            pass

    async with Store.open(path) as store:
        await store.commit(ROOT)
        async with trio.open_nursery() as nursery:
            for name in "abcdef":
                nursery.start_soon(end, name)
        assert taken == [store.terminal("t")]


@pytest.mark.parametrize("opened", [True, False], ids=["file", "memory"])
async def test_appended_rows_that_cannot_be_written_are_counted_named_and_harm_no_others(path, opened, caplog):
    async with Store.open(path) if opened else Store.memory() as store:
        await store.append(ROOT)
        await store.append(attrs.evolve(ROOT, goal="again"), event("with it"))
        await store.append(event("other"))
        await store.commit()
        assert texts(store) == ["other"]
        assert store.runs()[0].goal == "goal"
        assert (store.writer if isinstance(store, FileStore) else store).lost == 2
    assert "RunStarted, EventSeen" in caplog.text
    assert "again" not in caplog.text


async def test_what_is_no_row_is_refused_to_its_caller_alone(path: Path):
    async with Store.open(path) as store:
        with pytest.raises(StoreError):
            await store.commit(event("with it"), "junk")  # type: ignore[arg-type]
        await store.commit(event("after"))
        assert texts(store) == ["after"]


async def test_an_append_waits_while_the_queue_is_full_and_a_nowait_does_not(path: Path):
    async with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await store.append(event("first"))
        # Let the writer take it, and wait for the lock.
        await trio.sleep(0.1)
        await store.append(*(event(number) for number in range(BOUND)))
        with trio.move_on_after(0.05) as waited:
            await store.append(event("too many"))
        assert waited.cancelled_caught
        store.append_nowait(event("nowait"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, event("patient"))
            await trio.sleep(0.01)
            other.execute("ROLLBACK")
            other.close()
        await store.commit()
        found = texts(store)
    assert found == ["first", *(str(number) for number in range(BOUND)), "nowait", "patient"]


async def test_a_lock_of_another_process_is_waited_for(path: Path):
    async with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.commit, event("waited"))
            await trio.sleep(0.3)
            assert texts(store) == []
            other.execute("ROLLBACK")
            other.close()
        assert texts(store) == ["waited"]


async def test_a_lock_that_stays_is_a_busy_error_and_appended_rows_come_later(path: Path, monkeypatch, caplog):
    monkeypatch.setattr(writer_file, "BUSY_SECONDS", 0.3)
    async with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await store.append(event("appended"))
        with pytest.raises(StoreError) as raised:
            await store.commit(event("committed"))
        assert raised.value.kind is StoreErrorKind.busy
        other.execute("ROLLBACK")
        other.close()
        await store.commit(event("tried again"))
        assert texts(store) == ["appended", "tried again"]
    assert "held by another process" in caplog.text


async def test_a_full_disk_leaves_no_half_rows_and_fails_everyone_who_waits(path: Path, caplog):
    failures: list[StoreError] = []

    async def agent(number: int) -> None:
        rows: list[Row] = [Observed("t", number, n, "tool", "x", "y" * 2_000) for n in range(20)]
        try:
            await store.commit(*rows, event(number))
        except StoreError as error:
            failures.append(error)

    with pytest.raises(StoreError) as left:
        async with Store.open(path) as store:
            await store.commit(ROOT)
            pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
            store._connection.execute(f"PRAGMA max_page_count = {pages + 30}")
            await store.append(event("appended"))
            async with trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(agent, number)
            await store.append(event("later"))
            with pytest.raises(StoreError):
                await store.commit(event("later"))
            assert store.writer.lost == 2
    assert left.value.kind is StoreErrorKind.full
    assert {error.kind for error in failures} == {StoreErrorKind.full}
    assert len(failures) == 50
    assert str(path) in str(failures[0])
    assert "nothing more is written" in caplog.text
    with open_reader(path) as reader:
        assert [summary.run_id for summary in reader.runs()] == ["t"]
        assert reader.trace("t") == []
        assert reader.observations("t") == []


async def test_what_fits_before_the_disk_is_full_stands_whole(path: Path, caplog):
    caplog.set_level(logging.CRITICAL)
    written: list[int] = []
    with pytest.raises(StoreError):
        async with Store.open(path) as store:
            pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
            store._connection.execute(f"PRAGMA max_page_count = {pages + 60}")
            for number in range(1_000):
                await store.commit(*(Observed("t", number, n, "tool", "x", "y" * 2_000) for n in range(4)))
                written.append(number)
    assert 0 < len(written) < 1_000
    with open_reader(path) as reader:
        assert [seen.step for seen in reader.observations("t")] == [number for number in written for _ in range(4)]


async def test_a_writer_that_crashes_leaves_nobody_waiting(path: Path, monkeypatch, caplog):
    async def crash(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(writer_file.Writer, "_together", crash)
    monkeypatch.setattr(writer_file, "concerns_rows", lambda _: False)
    refused = []

    async def agent() -> None:
        try:
            await store.commit(event("x"))
        except StoreError as error:
            refused.append(str(error))

    with pytest.raises(StoreError, match="a bug"):
        async with Store.open(path) as store:
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(agent)
                await agent()
    assert len(refused) == 11
    assert all("RuntimeError: a bug" in text for text in refused)
    assert "the writer crashed" in caplog.text


async def test_closing_is_bounded_while_another_process_holds_the_file(path: Path, monkeypatch, caplog):
    monkeypatch.setattr(writer_file, "CLOSE_SECONDS", 0.1)
    started = trio.current_time()
    with pytest.raises(StoreError) as raised:
        async with Store.open(path) as store:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            await store.append(event("never"))
    other.close()
    assert raised.value.kind is StoreErrorKind.busy
    assert trio.current_time() - started < 5
    assert store.writer.lost == 1
    assert "nothing more is written" in caplog.text


async def test_closing_waits_for_a_lock_that_is_given_back_in_time(path: Path):
    async def give_back() -> None:
        await trio.sleep(0.2)
        other.close()

    other = sqlite3.connect(path, isolation_level=None)
    async with trio.open_nursery() as nursery:
        async with Store.open(path) as store:
            other.execute("BEGIN IMMEDIATE")
            await store.append(event("late"))
            nursery.start_soon(give_back)
    assert store.writer.lost == 0
    with open_reader(path) as reader:
        assert [seen.event for seen in reader.trace("t")] == ["late"]


async def test_an_order_behind_rows_that_wait_for_a_lock_is_refused_and_may_be_tried_again(path: Path, monkeypatch):
    monkeypatch.setattr(writer_file, "BUSY_SECONDS", 0.05)
    async with Store.open(path) as store:
        await store.take("t")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await store.append(event("before"))
        with trio.fail_after(5), pytest.raises(StoreError) as raised:
            await store.renew("t")
        assert raised.value.kind is StoreErrorKind.busy
        other.close()
        await store.renew("t")
        assert (texts(store), store.lease_lost("t"), store.writer.lost) == (["before"], False, 0)


async def test_an_order_whose_own_values_are_at_fault_fails_alone(path: Path):
    async with Store.open(path) as store:
        with pytest.raises(StoreError):
            await store.take("t\udcff")
        with pytest.raises(StoreError):
            await store.writer.obey(Order(_half_done, lambda _: None))
        await store.commit(event("after"))
        assert texts(store) == ["after"] and store.writer.fault is None


def _half_done(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO run_events (tree_id, run_id, event) VALUES ('t', 't', 'half')")
    return connection.execute("SELECT ?", ("\udcff",)).rowcount


async def test_a_decision_with_half_a_character_is_written_mended(path: Path):
    for store in (Store.open(path), Store.memory()):
        async with store:
            await store.commit(*asked("t#1.1.1"))
            assert await store.decide(ApprovalDecided("t#1.1.1", "denied", "no \udcff", "operator"))
            state = store.approval("t#1.1.1")
            assert state is not None and state.decision == "denied" and state.reason == "no \ufffd"


async def test_commits_around_orders_each_stand_when_they_return(path: Path):
    async def commit(number: int) -> None:
        await store.commit(event(number))
        assert str(number) in texts(store)
        returned.append(number)

    returned: list[int] = []
    async with Store.open(path) as store:
        await store.take("t")
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(commit, number)
                if number % 7 == 0:
                    nursery.start_soon(store.take, "t")
                if number % 11 == 0:
                    nursery.start_soon(store.renew, "t")
        assert sorted(returned) == list(range(60)) and len(texts(store)) == 60


async def test_a_reader_in_the_way_of_a_checkpoint_fails_no_commit_and_loses_nothing(path: Path):
    async with Store.open(path) as store:
        await store.commit(event("seen"))
        # The checkpoint follows each commit, and none gets past what the reader sees.
        store._connection.execute("PRAGMA wal_autocheckpoint = 1")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM run_events").fetchall() == [(1,)]
        for number in range(200):
            await store.append(event(f"appended {number}"))
            await store.commit(event(f"committed {number}"))
        _, log, moved = store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert moved < log
        assert reader.execute("SELECT count(*) FROM run_events").fetchall() == [(1,)]
        assert len(texts(store)) == 401
        busy, _, _ = store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 1
        await store.commit(event("behind one that failed"))
        reader.close()
        await store.commit(event("last"))
        assert (store.writer.fault, store.writer.lost) == (None, 0)
    with open_reader(path) as again:
        assert len(again.trace("t")) == 403
        assert again.select("PRAGMA integrity_check") == [("ok",)]


async def test_another_process_that_checkpoints_all_the_time_fails_no_commit(path: Path):
    def checkpoint() -> int:
        other = sqlite3.connect(path, isolation_level=None)
        done = 0
        while not ended.is_set():
            # Takes every lock there is, for a moment each.
            done += 1 - int(other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        other.close()
        return done

    async def count() -> None:
        done.append(await trio.to_thread.run_sync(checkpoint))

    ended, done = threading.Event(), list[int]()
    async with Store.open(path) as store, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for number in range(300):
            await store.commit(event(number))
        ended.set()
    assert done[0] > 5
    with open_reader(path) as reader:
        assert [seen.event for seen in reader.trace("t")] == [str(number) for number in range(300)]


async def test_a_writer_waits_for_a_lock_without_holding_up_the_loop_and_its_caller_can_leave(path: Path):
    async with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        turns = 0
        with trio.move_on_after(0.3) as waited:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.commit, event("x"))
                while True:
                    await trio.sleep(0.001)
                    turns += 1
        assert waited.cancelled_caught and turns > 50
        other.close()
        await store.commit(event("y"))
        assert texts(store) == ["x", "y"]


async def test_a_store_writes_through_what_connect_gives(path: Path):
    opened: list[tuple[Path, str, int]] = []

    def connect(file: Path, synchronous: str) -> sqlite3.Connection:
        opened.append((file, synchronous, threading.get_ident()))
        return made[0]

    made = [connect_writer(path, "FULL")]
    async with Store.open(path, synchronous="FULL", connect=connect) as store:
        await store.commit(event("x"))
        assert store._connection is made[0] and texts(store) == ["x"]
    assert [each[:2] for each in opened] == [(path, "FULL")]
    assert opened[0][2] != threading.get_ident()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")


async def test_a_memory_store_writes_within_the_call_and_needs_no_block():
    store = Store.memory()
    await store.append(event("a"))
    store.append_nowait(event("b"))
    await store.commit(event("c"))
    assert texts(store) == ["a", "b", "c"]
    async with store:
        await store.append(event("d"))
    assert texts(store) == ["a", "b", "c", "d"]
    assert (store.durable, FileStore.durable) == (False, True)


async def test_a_memory_store_takes_many_rows_in_order():
    store = Store.memory()
    for number in range(5_000):
        await store.append(event(number))
    assert texts(store) == [str(number) for number in range(5_000)]
