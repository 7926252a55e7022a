"""What a judge is told by the store: the first of everything, and of the right agents."""

import sqlite3
from pathlib import Path

import attrs

from actors.agents.judging import FileText, Kept
from actors.agents.rows import Pinned, RunFinished, RunStarted, SnapshotKept, SpentLater
from actors.store.store import Store, open_reader

ROOT = RunStarted("t", "t", "root", 0, None, "g", root="/w")
CHILD = attrs.evolve(ROOT, run_id="t/1.1", path="root/1.1", depth=1, parent_run_id="t")
ELSEWHERE = attrs.evolve(CHILD, run_id="t/1.2", path="root/1.2", root="/tree")
ANOTHER = attrs.evolve(ROOT, run_id="t2", tree_id="t2")


def kept(run_id: str, path: str, before: str, state: str = "text") -> SnapshotKept:
    return SnapshotKept(run_id, 1, path, before, state)


def test_what_a_check_depends_on_is_what_was_noted_first() -> None:
    store = Store.memory()
    store.append_nowait(Pinned("t", "first"), Pinned("t", "second"), Pinned("t/1.1", "child"))
    assert (store.pins("t"), store.pins("t/1.1"), store.pins("t2")) == ("first", "child", None)


def test_what_a_file_held_is_what_it_held_first_whoever_of_the_agents_changed_it() -> None:
    store = Store.memory()
    store.append_nowait(
        ROOT, CHILD, ELSEWHERE, ANOTHER,
        kept("t/1.1", "a", "old"), kept("t/1.1", "a", "never"), kept("t", "a", "newer"), kept("t", "b", "", "absent"),
        kept("t/1.1", "b", "made"), kept("t/1.2", "c", "of another workspace"), kept("t2", "d", "of another tree"),
    )  # fmt: skip
    old, absent, made = FileText(Kept.text, "old"), FileText(Kept.absent), FileText(Kept.text, "made")
    assert store.files_before("t") == {"a": old, "b": absent}
    assert store.files_before("t/1.1") == {"a": old, "b": made}
    assert list(store.files_before("t/1.2")) == ["c"] and list(store.files_before("t2")) == ["d"]
    assert store.has_snapshot("t", "a") and not store.has_snapshot("t", "c")


def test_what_is_spent_later_is_added_to_the_figures_of_the_agent_and_to_none_that_it_has_not() -> None:
    store = Store.memory()
    end = RunFinished("t", "completed", "success", "{}", None, True, 1, 0, 0, 0, 30, 4, 5, False, 1)
    store.append_nowait(ROOT, CHILD, end)
    store.append_nowait(SpentLater("t", 10, 20, 30), SpentLater("t/1.1", 10, 20, 30))
    run, child, outcome = store.run("t"), store.run("t/1.1"), store.outcome("t")
    assert run is not None and (run.spent_tokens, run.spent_microdollars, run.overrun_tokens) == (40, 24, 35)
    assert child is not None and child.spent_tokens is None
    assert outcome is not None and outcome.tokens == 40


async def test_a_file_of_an_older_version_knows_nothing_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with Store.open(file) as store:
        await store.commit(ROOT)
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("DROP TABLE check_pins")
        connection.execute("DROP TABLE snapshots")
        connection.execute("ALTER TABLE provider_calls DROP COLUMN purpose")
    connection.close()
    with open_reader(file) as reader:
        assert reader.pins("t") is None and reader.files_before("t") == {} and not reader.has_snapshot("t", "a")
        assert not reader.knows("provider_calls", "purpose") and reader.provider_calls("t") == []
    async with Store.open(file) as store:
        await store.commit(Pinned("t", "x"), kept("t", "a", "y"))
        assert store.pins("t") == "x" and store.has_snapshot("t", "a") and store.knows("provider_calls", "purpose")
