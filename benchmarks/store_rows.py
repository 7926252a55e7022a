"""The rows that one whole step of a real run leaves, call by call, and the same rows by bare sqlite3.

A scripted agent runs once, over a store that listens. What it left for its
second step is the pattern; every agent and step of a benchmark gets it with
ids of its own.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.loop import Job, work_on
from actors.agents.policy import Policy
from actors.agents.ports import ToolCall
from actors.agents.rows import LiveEnded, LiveSeen, Reserved, Row
from actors.agents.services import Services
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.connections import connect_writer
from actors.store.row_codec import Statement, arrange
from actors.store.store import MemoryStore
from actors.tools.toolbox import builtin_tools
from actors.tools.verifying import evaluate
from benchmarks.bills import Bill, Clock

TREE: Final = "benchmark"
# The first step may leave what no later one does.
MEASURED: Final = 2
SAID: Final = "I shall look into the file before I say anything about it."
CONTENT: Final = "\n".join(f"line {number} of the file that is read" for number in range(20))


@attrs.frozen
class Left:
    """The rows of one call to a store. ``awaited``: it was a commit."""

    rows: tuple[Row, ...]
    awaited: bool


Step = tuple[Left, ...]


class _Listening(MemoryStore):
    """A store that says it is durable, so that the agent commits, and keeps what was left and how."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Left] = []

    def append_nowait(self, *rows: Row) -> None:
        """Keep the rows. `append` comes through here too."""
        self.heard.append(Left(rows, awaited=False))
        super().append_nowait(*rows)

    async def commit(self, *rows: Row) -> None:
        """Keep the rows. Cancellation: they are kept, and may not be written."""
        self.heard.append(Left(rows, awaited=True))
        await super().commit(*rows)


async def real_step() -> Step:
    """Run an agent that reads a file in each step, and give what it left for one of them."""
    store = _Listening()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_text(CONTENT, encoding="utf-8")
        call = ToolCall("read_file", json.dumps({"path": "a.txt"}))
        answers = [ScriptedAnswer(SAID, (call,), Usage(1_000, 50)) for _ in range(MEASURED + 1)]
        services = Services(Scripted(answers), ApproveAll(), builtin_tools(), evaluate, PriceTable())
        job = Job(TaskContract.workspace("read a file", folder), Policy.permissive(), services, in_tree=False)
        async with open_tree(Containment(1, 1, 0, UNLIMITED), store=store) as tree:
            await tree.run_root(work_on, (job,), job.limits(), job.about())
    # A row that shows the tree alive comes by the clock, and belongs to no step.
    heard = [left for left in store.heard if not any(isinstance(row, LiveSeen | LiveEnded) for row in left.rows)]
    begins = [place for place, left in enumerate(heard) for row in left.rows if isinstance(row, Reserved)]
    step = tuple(heard[begins[MEASURED - 1] : begins[MEASURED]])
    assert sum(left.awaited for left in step) >= 3, "a reservation, an answer and a step are each awaited"
    return step


def count(step: Step) -> int:
    """Count the rows of a step."""
    return sum(len(left.rows) for left in step)


def steps_of(pattern: Step, agent: int, steps: int) -> Iterator[Step]:
    """Give the steps of one agent: the pattern with its own ids."""
    for number in range(1, steps + 1):
        held = agent * steps + number
        own = {"tree_id": TREE, "run_id": f"{TREE}/{agent}", "step": number, "reservation": held}
        yield tuple(Left(tuple(_with(row, own) for row in left.rows), left.awaited) for left in pattern)


def _with(row: Any, own: dict[str, Any]) -> Any:
    named = {field.name for field in attrs.fields(type(row))}
    return attrs.evolve(row, **{name: value for name, value in own.items() if name in named})


def batches(steps: Sequence[Step], size: int) -> list[list[Statement]]:
    """Sort the rows of so many steps at a time into long statements, before any clock runs."""
    chunks = (steps[start : start + size] for start in range(0, len(steps), size))
    return [arrange(left.rows for step in chunk for left in step) for chunk in chunks]


def write_bare(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Write statements in one transaction, as nobody can faster."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements:
        connection.executemany(statement.sql, statement.rows)
    connection.execute("COMMIT")


def bare_bill(transactions: Iterable[Iterable[Statement]], n: int, synchronous: str = "NORMAL") -> Bill:
    """Write transactions into a new file, and give the bill for ``n`` operations."""
    with tempfile.TemporaryDirectory() as folder:
        connection = connect_writer(Path(folder) / "runs.db", synchronous)
        clock = Clock()
        for statements in transactions:
            write_bare(connection, statements)
        bill = clock.bill(n)
        connection.close()
    return bill
