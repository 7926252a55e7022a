from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio

from actors.agents.rows import EventSeen, Row, RunFinished, RunStarted
from actors.errors import ConfigError
from actors.store.store import Store, open_reader


def root(tree: str, goal: str = "goal") -> RunStarted:
    return RunStarted(tree, tree, "root", 0, None, goal)


def child(tree: str, place: str) -> RunStarted:
    path = f"root/{place}"
    parent = tree + path.rpartition("/")[0][len("root") :]
    return RunStarted(f"{tree}/{place}", tree, path, path.count("/"), parent, f"goal of {place}")


def holding(*rows: Row) -> Store:
    store = Store.memory()
    store.append_nowait(*rows)
    return store


def test_runs_are_the_roots_newest_first():
    store = holding(root("aa", "first"), child("aa", "1.1"), root("bb", "second"), root("cc", "third"))
    store.append_nowait(RunFinished("bb", "failed", "failed", "{}", "{}", False, *[0] * 7, False, 1))
    assert [(run.run_id, run.status, run.outcome, run.goal) for run in store.runs()] == [
        ("cc", "running", None, "third"),
        ("bb", "failed", "failed", "second"),
        ("aa", "running", None, "first"),
    ]
    assert [run.run_id for run in store.runs(limit=1)] == ["cc"]


def test_stamps_are_utc_with_milliseconds_by_the_clock_of_the_database():
    store = holding(root("aa"))
    stamp = store.runs()[0].started_at
    assert datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ")
    assert len(stamp) == len("2026-01-01T00:00:00.000Z")
    started = store.tree_started("aa")
    assert started == datetime.fromisoformat(stamp).astimezone(UTC).timestamp()
    assert 0 <= store.now() - started < 60
    assert abs(store.now() - datetime.now(UTC).timestamp()) < 5
    assert store.tree_started("zz") is None


def test_a_prefix_means_the_one_tree_that_it_begins():
    store = holding(root("abc"), root("abd"), root("xyz"), child("xyz", "3.1"), child("xyz", "3.10"))
    assert store.resolve("x") == "xyz"
    assert store.resolve("abd") == "abd"
    assert store.resolve("xyz/3.1") == "xyz"
    assert store.resolve("xyz/3") == "xyz"


def test_a_whole_id_means_itself_although_it_begins_another():
    assert holding(root("ab"), root("abc")).resolve("ab") == "ab"


@pytest.mark.parametrize("prefix", ["q", "", "xyz/9", "abcd", "\udcff", "a\0", "%", "_bc"])
def test_a_prefix_that_begins_nothing_is_refused(prefix: str):
    store = holding(root("abc"), root("xyz"))
    with pytest.raises(ConfigError, match="no run begins with"):
        store.resolve(prefix)


def test_an_ambiguous_prefix_names_what_it_could_mean_within_bounds():
    store = holding(*(root(f"a{number:02}") for number in range(20)), root("ab1"), root("ab2"))
    with pytest.raises(ConfigError, match=r"\(ab1, ab2\): give more of it"):
        store.resolve("ab")
    with pytest.raises(ConfigError, match=r"a00, a01, .*, a07 and more") as raised:
        store.resolve("a")
    assert "a08" not in str(raised.value)


def test_agents_stand_below_their_parents_in_the_order_of_their_calls():
    places = ["10.1", "2.10", "2.2", "2.2/1.1", "9.1", "2.2/1.1/7", "name"]
    store = holding(root("aa"), root("bb"), *(child("aa", place) for place in reversed(places)))
    agents = store.agents("aa")
    assert [agent.path for agent in agents] == [
        "root",
        "root/2.2",
        "root/2.2/1.1",
        "root/2.2/1.1/7",
        "root/2.10",
        "root/9.1",
        "root/10.1",
        "root/name",
    ]
    assert [(agent.parent, agent.depth) for agent in agents[:3]] == [(None, 0), ("root", 1), ("root/2.2", 2)]
    assert store.children("aa") == ["aa/2.2", "aa/2.10", "aa/9.1", "aa/10.1", "aa/name"]
    assert store.children("aa/2.2") == ["aa/2.2/1.1"]
    assert store.children("aa/9.1") == []


def test_an_unknown_id_gives_nothing():
    store = holding(root("aa"))
    assert store.agents("zz") == store.children("zz") == store.steps("zz") == store.trace("zz") == []
    assert store.run("zz") is store.halt("zz") is store.ledger("zz") is store.terminal("zz") is None
    assert store.outcome("zz") is store.policy("zz") is None


def test_a_trace_goes_on_after_the_last_event_that_was_seen():
    store = holding(*(EventSeen(tree, tree, f"{tree}{n}") for n in range(5) for tree in ("aa", "bb")))
    first = store.trace("aa", limit=2)
    assert [seen.event for seen in first] == ["aa0", "aa1"]
    assert [seen.event for seen in store.trace("aa", after=first[-1].sequence)] == ["aa2", "aa3", "aa4"]
    last = store.trace("aa")[-1].sequence
    assert store.trace("aa", after=last) == []
    store.append_nowait(EventSeen("aa", "aa/1", "new"))
    assert [(seen.run_id, seen.event) for seen in store.trace("aa", after=last)] == [("aa/1", "new")]


async def test_a_run_can_be_read_while_it_is_live(tmp_path: Path):
    path = tmp_path / "runs.db"
    seen: list[str] = []
    async with Store.open(path) as store:
        await store.commit(root("aa"))
        with open_reader(path) as reader:
            after = 0

            async def agent(number: int) -> None:
                for step in range(20):
                    await store.commit(EventSeen("aa", "aa", f"{number}.{step}"))

            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(agent, number)
                while len(seen) < 100:
                    for event in reader.trace("aa", after=after):
                        seen.append(event.event)
                        after = event.sequence
                    assert reader.runs()[0].status == "running"
                    await trio.sleep(0.001)
            assert len(set(seen)) == len(seen) == 100
            assert seen == [event.event for event in store.trace("aa")]
