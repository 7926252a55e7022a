"""What the store benchmarks write is what a real step writes, the same on both sides."""

import itertools
from pathlib import Path
from typing import Any

import trio

from actors.agents.rows import AnswerGiven, AttemptMade, EventSeen, Observed, Reserved, Settled, StepDone
from actors.store.connections import connect_writer
from actors.store.schema import TABLES
from actors.store.store import Store, open_reader
from benchmarks.store_rows import Step, batches, count, real_step, steps_of, write_bare
from benchmarks.store_single import commits_of

STAMPS = {"at", "reserved_at", "settled_at"}


def content(path: Path) -> dict[str, list[Any]]:
    """Give all rows of a file, without stamps and counted keys."""
    found = {}
    with open_reader(path) as reader:
        for table in TABLES:
            columns = ", ".join(f'"{name}"' for name in table.columns if name not in STAMPS | {"id"})
            found[table.name] = sorted(reader.select(f"SELECT {columns} FROM {table.name}"), key=repr)
    return {name: rows for name, rows in found.items() if rows}


async def test_a_real_step_is_a_reservation_an_answer_and_a_step_each_awaited() -> None:
    step = await real_step()
    awaited = [{type(row) for row in left.rows} for left in step if left.awaited]
    assert awaited[0] == {Reserved}
    assert awaited[1] >= {AttemptMade, Settled, AnswerGiven, EventSeen}
    assert awaited[2] >= {StepDone, Observed, EventSeen}
    assert count(step) == sum(len(left.rows) for left in step) >= 11


async def test_both_sides_write_the_same_rows(tmp_path: Path) -> None:
    pattern = await real_step()
    agents = [list(steps_of(pattern, agent, 3)) for agent in range(4)]

    async def agent(steps: list[Step]) -> None:
        for left in itertools.chain(*steps):
            await (store.commit if left.awaited else store.append)(*left.rows)

    async with Store.open(tmp_path / "ours.db") as store, trio.open_nursery() as nursery:
        for steps in agents:
            nursery.start_soon(agent, steps)
    connection = connect_writer(tmp_path / "bare.db")
    for batch in batches([step for steps in agents for step in steps], 5):
        write_bare(connection, batch)
    connection.close()
    ours = content(tmp_path / "ours.db")
    assert ours == content(tmp_path / "bare.db")
    assert len(ours["steps"]) == 12 and len(ours["reservations"]) == 12


async def test_no_row_is_lost_between_the_commits_of_one_agent() -> None:
    pattern = await real_step()
    commits = commits_of(list(steps_of(pattern, 0, 4)))
    written = sum(len(commit.before) + len(commit.rows) for commit in commits)
    # What is left behind the last commit belongs to none.
    behind = list(itertools.takewhile(lambda left: not left.awaited, reversed(pattern)))
    assert written == 4 * count(pattern) - sum(len(left.rows) for left in behind)
    assert len(commits) == 4 * sum(left.awaited for left in pattern)
