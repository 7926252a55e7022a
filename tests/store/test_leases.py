import math
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.rows import ApprovalApplied, EventSeen, LiveEnded, Observed, QueueLeft
from actors.errors import ConfigError, RunConflict, StoreError, StoreErrorKind
from actors.store import owners
from actors.store.fence import READ_LEASE, lease_of
from actors.store.leases import (
    PLACE,
    Claim,
    Lease,
    Owner,
    Sight,
    carries,
    gone,
    judge,
    next_generation,
    same_process,
    tree_of,
)
from actors.store.row_codec import WRITES
from actors.store.store import FileStore, Store

US = Owner("us", "here/boot/1", 100, "5")
THEM = Owner("them", "here/boot/1", 200, "7")


def lease(owner: Owner | None = THEM, age: float = 1.0, generation: int = 4) -> Lease:
    return Lease("t", owner, generation, age, 30.0, "2030-01-01T00:00:00.000Z")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def row(path: Path, tree: str = "t") -> tuple[object, ...]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT owner, pid, generation FROM run_leases WHERE tree_id = ?", (tree,))
        return tuple(found.fetchone() or ())
    finally:
        connection.close()


def age(path: Path, change: str, tree: str = "t") -> None:
    """Let a lease be renewed at another time, as another process would see it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(
            "UPDATE run_leases SET renewed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?) WHERE tree_id = ?",
            (change, tree),
        )
    finally:
        connection.close()


# ── judging ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("found", "dead", "claim", "generation"),
    [
        (None, False, Claim.free, 1),
        (lease(None), False, Claim.free, 5),
        (lease(US), False, Claim.ours, 4),
        (lease(US, age=99), False, Claim.ours, 4),
        (lease(age=29.9), False, Claim.held, 5),
        (lease(age=30.0), False, Claim.lapsed, 5),
        (lease(age=math.inf), False, Claim.lapsed, 5),
        (lease(), True, Claim.dead, 5),
    ],
)
def test_a_lease_is_judged_and_its_generation_counts_on_but_for_its_owner(
    found: Lease | None, dead: bool, claim: Claim, generation: int
):
    assert judge(found, US, dead=dead) is claim
    assert next_generation(found, claim) == generation


def test_a_clock_that_was_put_back_makes_a_lease_new_and_one_put_forward_makes_it_lapse():
    assert judge(lease(age=-3600), US, dead=False) is Claim.held
    assert judge(lease(age=3600), US, dead=False) is Claim.lapsed
    assert not attrs.evolve(lease(age=-3600), ttl_seconds=0.001).lapsed


@pytest.mark.parametrize(
    ("owner", "sight", "ended"),
    [
        (THEM, Sight(alive=False), True),
        (THEM, Sight(alive=True, started="7"), False),
        # Its number belongs to a later process.
        (THEM, Sight(alive=True, started="9"), True),
        # What is not known counts as alive.
        (THEM, Sight(alive=True, started=None), False),
        (attrs.evolve(THEM, started=None), Sight(alive=True, started="9"), False),
        (THEM, None, False),
        # A process id says nothing of another machine, another boot, another container.
        (attrs.evolve(THEM, host="there/boot/1"), Sight(alive=False), False),
        (attrs.evolve(THEM, host="here/later/1"), Sight(alive=False), False),
        (attrs.evolve(THEM, host="here/boot/2"), Sight(alive=False), False),
    ],
)
def test_only_a_process_that_is_known_to_have_ended_is_gone(owner: Owner, sight: Sight | None, ended: bool):
    assert gone(owner, US, sight) is ended


def test_a_row_carries_a_write_only_with_both_name_and_generation():
    assert carries(lease(US), US, 4)
    assert not carries(lease(US), US, 3)
    assert not carries(lease(THEM), US, 4)
    assert not carries(lease(None), US, 4)
    assert not carries(None, US, 4)


def test_two_stores_of_one_process_are_told_from_two_processes():
    assert same_process(attrs.evolve(US, name="other"), US)
    assert not same_process(attrs.evolve(US, started="6"), US)
    assert not same_process(THEM, US)


def test_every_row_names_its_tree():
    assert set(PLACE) == set(WRITES)
    assert tree_of(EventSeen("tree", "tree/3.1", "x")) == "tree"
    assert tree_of(Observed("tree/3.1/2.1", 1, 0, "tool", "x", "y")) == "tree"
    assert tree_of(Observed("tree", 1, 0, "tool", "x", "y")) == "tree"
    assert tree_of(QueueLeft("tree/1.1", 1, 1)) == "tree"
    assert tree_of(LiveEnded("tree")) == "tree"
    assert tree_of(ApprovalApplied("tree/1.1/2.1.0")) == "tree"
    assert tree_of("no row") == ""  # type: ignore[arg-type]


# ── who we are ──────────────────────────────────────────────────────────────


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_is_seen_alive_then_ended_before_and_after_it_was_waited_for(child: subprocess.Popen[bytes]):
    alive = owners.look_at(child.pid)
    assert alive is not None and alive.alive
    child.kill()
    # Ended and not yet waited for: its number still exists.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ended = owners.look_at(child.pid)
    assert ended is not None and not ended.alive
    child.wait()
    assert owners.look_at(child.pid) == Sight(alive=False)


def test_two_processes_started_at_two_times_and_we_see_ourselves(child: subprocess.Popen[bytes]):
    mine, its = owners.look_at(os.getpid()), owners.look_at(child.pid)
    assert mine is not None and its is not None
    assert mine.alive and mine.started is not None and mine == owners.look_at(os.getpid())
    assert mine.started != its.started


def test_a_stat_line_is_read_behind_the_last_bracket_of_the_name():
    rest = " ".join(str(number) for number in range(4, 53))
    assert owners.sight_of_stat(f"7 (a) (Z b) S {rest}") == Sight(True, "22")
    assert owners.sight_of_stat(f"7 (python) Z {rest}") == Sight(False, "22")
    assert owners.sight_of_stat(f"7 (python) T {rest}") == Sight(True, "22")
    assert owners.sight_of_stat("") is None
    assert owners.sight_of_stat("7 (cut off) S 1 2") is None


def test_what_ps_says_is_read_too():
    assert owners.sight_of_ps("Ss+  Mon Jan  5 10:00:00 2026\n") == Sight(True, "Mon Jan 5 10:00:00 2026")
    assert owners.sight_of_ps("Z    Mon Jan  5 10:00:00 2026\n") == Sight(False, "Mon Jan 5 10:00:00 2026")
    assert owners.sight_of_ps("") is None


@pytest.mark.skipif(shutil.which("ps") is None, reason="this system has no ps")
def test_without_proc_a_process_is_seen_through_ps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, child: subprocess.Popen[bytes]
):
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    seen = owners.look_at(child.pid)
    assert seen is not None and seen.alive and seen.started
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert owners.look_at(child.pid) == seen
    monkeypatch.setenv("PATH", "")
    assert owners.look_at(child.pid) == Sight(alive=True)


def test_each_opened_store_is_an_owner_of_its_own_until_it_is_left():
    one, two = owners.enter(), owners.enter()
    try:
        assert one.name != two.name
        assert same_process(one, two)
        assert not owners.is_dead(one, two)
    finally:
        owners.leave(one)
        owners.leave(two)
    assert owners.is_dead(one, two)


def test_an_owner_of_another_machine_is_never_called_dead(child: subprocess.Popen[bytes]):
    us = owners.enter()
    owners.leave(us)
    child.kill()
    child.wait()
    dead = Owner("x", us.host, child.pid, "1")
    assert owners.is_dead(dead, us)
    assert not owners.is_dead(attrs.evolve(dead, host="elsewhere/1/2"), us)


# ── taking, renewing, releasing ─────────────────────────────────────────────


async def test_a_lease_that_is_held_is_refused_by_name_and_nothing_is_written(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        assert await first.take("t") == 1
        before = first.select("SELECT * FROM run_leases")
        with pytest.raises(RunConflict) as refused:
            await second.take("t")
        assert second.select("SELECT * FROM run_leases") == before
        assert refused.value.run == "t"
        text = str(refused.value)
        assert f"process {os.getpid()} on {owners.this_host().split('/')[0]}" in text
        assert refused.value.expires_at in text and "\n" not in text and "stop that process" in text
        renewed, expires = second.select(
            "SELECT julianday(renewed_at), julianday(?) FROM run_leases", (refused.value.expires_at,)
        )[0]
        assert (expires - renewed) * 86400 == pytest.approx(30.0, abs=0.01)


async def test_the_owner_may_take_again_and_keeps_its_generation(path: Path):
    async with Store.open(path) as store:
        assert await store.take("t") == 1
        assert await store.take("t", ttl_seconds=5) == 1
        assert store.select("SELECT ttl_seconds FROM run_leases") == [(5.0,)]


async def test_generations_only_grow_over_releases_lapses_and_closed_stores(path: Path):
    async with Store.open(path) as store:
        assert await store.take("t") == 1
        await store.release("t")
        assert row(path) == ("", None, 1)
        assert await store.take("t") == 2
    assert row(path) == ("", None, 2)
    async with Store.open(path) as store, Store.open(path) as other:
        assert await store.take("t") == 3
        age(path, "-31 seconds")
        assert await other.take("t") == 4
        await other.release("t")
        assert row(path) == ("", None, 4)


async def test_a_lease_lapses_by_the_clock_of_the_database_to_the_millisecond_of_its_ttl(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        await first.take("t", ttl_seconds=20)
        age(path, "-19 seconds")
        with pytest.raises(RunConflict):
            await second.take("t")
        await first.renew("t")
        with pytest.raises(RunConflict):
            await second.take("t")
        age(path, "+1 hours")
        with pytest.raises(RunConflict):
            await second.take("t")
        age(path, "-20 seconds")
        assert await second.take("t") == 2


async def test_the_age_of_a_lease_is_exact_to_the_millisecond(path: Path):
    async with Store.open(path) as store:
        await store.take("t")
        query = READ_LEASE.replace("'now'", "'2030-01-01T00:00:10.000Z'")
        for milliseconds in range(0, 1_000, 13):
            # As days these differ by some microseconds too little, half of the time.
            renewed = f"2029-12-31T23:59:59.{milliseconds:03}Z"
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE run_leases SET renewed_at = ?", (renewed,))
            connection.close()
            found = lease_of("t", store.select(query, ("t",))[0])
            assert found.age_seconds == (11_000 - milliseconds) / 1_000


async def test_renewing_what_lapsed_and_was_not_taken_keeps_it(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        await first.take("t", ttl_seconds=20)
        age(path, "-3600 seconds")
        await first.renew("t")
        with pytest.raises(RunConflict):
            await second.take("t")


async def test_renewing_what_was_taken_or_never_held_raises_fenced(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        with pytest.raises(StoreError, match="take it first") as never:
            await first.renew("t")
        assert never.value.kind is StoreErrorKind.fenced
        assert not first.lease_lost("t")
        await first.take("t")
        age(path, "-31 seconds")
        await second.take("t")
        for _ in range(2):
            with pytest.raises(StoreError, match="lost to process") as lost:
                await first.renew("t")
            assert lost.value.kind is StoreErrorKind.fenced
        assert first.lease_lost("t")
        assert not second.lease_lost("t")


async def test_a_store_that_failed_and_was_left_holds_nothing(path: Path):
    failing = Store.open(path)
    with pytest.raises(StoreError):
        async with failing:
            await failing.take("t")
            failing._connection.execute("PRAGMA query_only = ON")
            await failing.commit(EventSeen("t", "t", "x"))
    name, pid, generation = row(path)
    assert name != "" and (pid, generation) == (os.getpid(), 1)
    async with Store.open(path) as store:
        assert await store.take("t") == 2


async def test_releasing_what_is_not_held_changes_nothing(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        await second.release("t")
        assert row(path) == ()
        await first.take("t")
        before = row(path)
        await second.release("t")
        assert row(path) == before


async def test_leases_of_two_trees_do_not_touch_each_other(path: Path):
    async with Store.open(path) as first, Store.open(path) as second:
        assert await first.take("t") == 1
        assert await second.take("u") == 1
        with pytest.raises(RunConflict):
            await second.take("t")
        await first.release("t")
        assert await second.take("t") == 2
        await second.renew("u")


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
async def test_a_lease_needs_some_seconds(path: Path, seconds: float):
    async with Store.open(path) as store:
        with pytest.raises(ConfigError, match="ttl_seconds: must be more than 0"):
            await store.take("t", ttl_seconds=seconds)


async def test_a_take_that_is_cancelled_can_be_released(path: Path):
    async with Store.open(path) as store:
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.take("t")
        await store.release("t")
        assert row(path) in [(), ("", None, 1)]
        async with Store.open(path) as other:
            await other.take("t")


async def test_a_store_in_memory_has_leases_that_do_nothing():
    async with Store.memory() as store:
        assert await store.take("t") == 0
        await store.renew("t")
        await store.release("t")
        assert not store.lease_lost("t")
        assert store.select("SELECT * FROM run_leases") == []


# ── two stores, any order ───────────────────────────────────────────────────


@attrs.define
class Model:
    """One lease, two stores, as simply as it can be said."""

    holder: int | None = None
    lapsed: bool = False
    generation: int = 0
    # What each store believes: held, lost, or nothing.
    believes: dict[int, str] = attrs.field(factory=lambda: {0: "", 1: ""})
    released: dict[int, bool] = attrs.field(factory=lambda: {0: True, 1: True})
    written: list[str] = attrs.field(factory=list)

    def may_write(self, who: int) -> bool:
        """A store that never took, or gave back, is fenced by nothing; one that lost is for good."""
        self.look(who)
        return self.believes[who] != "lost"

    def look(self, who: int) -> None:
        if self.believes[who] == "held" and self.holder != who:
            self.believes[who] = "lost"

    def take(self, who: int) -> str:
        self.look(who)
        if self.believes[who] == "lost" and not self.released[who]:
            return "fenced"
        if self.holder not in (None, who) and not self.lapsed:
            return "conflict"
        if self.holder != who:
            self.generation += 1
        self.holder, self.lapsed = who, False
        self.believes[who], self.released[who] = "held", False
        return str(self.generation)

    def release(self, who: int) -> None:
        self.look(who)
        if self.believes[who] == "held":
            self.holder, self.believes[who] = None, ""
        self.released[who] = True

    def renew(self, who: int) -> str:
        self.look(who)
        if self.believes[who] != "held":
            return "fenced"
        self.lapsed = False
        return "ok"


async def said(action: object) -> str:
    try:
        answer = await action  # type: ignore[misc]
    except RunConflict:
        return "conflict"
    except StoreError as error:
        return error.kind.value
    return "ok" if answer is None else str(answer)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["take", "release", "renew", "commit", "append"]), st.sampled_from([0, 1])),
        st.just(("lapse", 0)),
    ),
    max_size=25,
)


async def play(path: Path, steps: list[tuple[str, int]]) -> tuple[list[str], list[str]]:
    """Play the steps on two stores and on the model, and give what each has written at the end."""
    model = Model()
    async with Store.open(path) as first, Store.open(path) as second:
        stores: list[FileStore] = [first, second]
        for number, (what, who) in enumerate(steps):
            store, event = stores[who], EventSeen("t", "t/1", f"{who}.{number}")
            if what == "lapse":
                age(path, "-31 seconds")
                model.lapsed = True
            elif what == "take":
                assert await said(store.take("t")) == model.take(who)
            elif what == "renew":
                assert await said(store.renew("t")) == model.renew(who)
            elif what == "release":
                assert await said(store.release("t")) == "ok"
                model.release(who)
            elif what == "commit":
                # A plain embedder, without a lease, and another tree pass always.
                may = model.may_write(who)
                assert await said(store.commit(event)) == ("ok" if may else "fenced")
                assert await said(store.commit(EventSeen("u", "u", "x"))) == "ok"
                model.written += [event.event] * may
            else:
                may, lost = model.may_write(who), store.writer.lost
                await store.append(event)
                await store.commit()
                assert store.writer.lost == lost + (not may)
                model.written += [event.event] * may
            assert [seen.event for seen in first.trace("t")] == model.written
            if model.holder is not None:
                others = store.select("SELECT owner, generation FROM run_leases WHERE tree_id = 't'")
                assert others == [(stores[model.holder]._owner.name, model.generation)]
        assert first.lease_lost("t") == (model.believes[0] == "lost")
        return [seen.event for seen in second.trace("t")], model.written


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_two_stores_do_only_the_holder_writes_after_a_take_over(steps: list[tuple[str, int]]):
    with TemporaryDirectory() as folder:
        written, expected = trio.run(play, Path(folder) / "runs.db", steps)
    assert written == expected
