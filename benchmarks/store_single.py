"""One agent alone that waits for each of its commits, beside bare sqlite3 transactions of the same rows.

The bare arm does in one thread what has to be done: BEGIN IMMEDIATE, a
statement for each kind of row, COMMIT. Ours hands rows to the writer and is
woken when they stand. At FULL every commit waits for the disk; at NORMAL none
does, so there the difference is ours alone.
"""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from actors.agents.rows import Row
from actors.store.row_codec import arrange
from actors.store.store import Store
from benchmarks.bills import Bill, Clock, take_turns
from benchmarks.harness import Figure, Gate, rounds_of
from benchmarks.store_rows import TREE, Step, bare_bill, real_step, steps_of

FULL_GATE = Gate("ratio", "<=", 2.5)


@attrs.frozen
class Commit:
    """What one commit writes: its own rows, and those that were left before it."""

    before: tuple[Row, ...]
    rows: tuple[Row, ...]


def commits_of(steps: Sequence[Step]) -> list[Commit]:
    """Give the commits of steps, in order; what is left after the last is left out."""
    found: list[Commit] = []
    waiting: list[Row] = []
    for step in steps:
        for left in step:
            if left.awaited:
                found.append(Commit(tuple(waiting), left.rows))
                waiting = []
            else:
                waiting.extend(left.rows)
    return found


async def _ours(commits: list[Commit], synchronous: str) -> Bill:
    with tempfile.TemporaryDirectory() as folder:
        async with Store.open(Path(folder) / "runs.db", synchronous=synchronous) as store:
            await store.take(TREE)
            clock = Clock()
            for commit in commits:
                if commit.before:
                    await store.append(*commit.before)
                await store.commit(*commit.rows)
            bill = clock.bill(len(commits))
            assert store.writer.transactions >= bill.n
    return bill


def _bare(commits: list[Commit], synchronous: str) -> Bill:
    # Sorted before the clock runs.
    statements = [arrange((commit.before, commit.rows)) for commit in commits]
    return bare_bill(statements, len(commits), synchronous)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure one commit at FULL, and at NORMAL, in wall and in CPU time."""
    pattern = trio.run(real_step)
    commits = commits_of(list(steps_of(pattern, 0, 10 if quick else 200)))
    for synchronous, gate in (("FULL", FULL_GATE), ("NORMAL", None)):
        arms = partial(trio.run, _ours, commits, synchronous), partial(_bare, commits, synchronous)
        ours, bare = take_turns(rounds_of(quick), *arms)
        for place, part in enumerate(("wall", "cpu")):
            mine, theirs = ours.each[place], bare.each[place]
            name = f"store_single_{synchronous.lower()}_{part}"
            method = (
                f"{part} time of a commit of one agent alone, {len(commits)} in turn, synchronous={synchronous};"
                " baseline: the same rows in bare transactions"
            )
            yield Figure(name, mine, "us", theirs, mine / theirs, ours.n, method, gate if part == "wall" else None)
