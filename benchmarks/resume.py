"""Going on with a killed tree: from the call of `resume` until its last agent has asked its model again.

The root and its children were killed while every child was about to take its
next step: each child's history is read, put together, adopted and asked with.
The baseline reads the same rows by bare sqlite3, and does nothing with them.
"""

import gc
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, Estimate, Observation, ObservationKind, ToolCall
from actors.agents.rows import AttemptMade, Reserved, RunStarted, Settled, Spawned
from actors.agents.step_rows import answer_row, digest_of, observed_rows, step_rows
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.resuming import resume_tree_from_stored_policy
from actors.containment.limits import Containment
from actors.halts import HaltKind
from actors.store.store import Store
from benchmarks.harness import Figure, Gate, begin, cpu

TREE: Final = "benchmark"
SPAWN: Final = ToolCall("spawn_agent", json.dumps({"goal": "read", "verify": {"kind": "none"}, "max_steps": 50}))
LINES: Final = "\n".join(f"line {number} of the file" for number in range(20))
SEEN: Final = Observation(ObservationKind.read, "a.txt", LINES)
# As in the benchmark of a million agents: with the defaults the collector looks at a million live objects many times.
RARE: Final = (100_000, 1_000, 1_000)
CAP: Final = 64
AT_MOST: Final = Gate("value", "<=", 3.0)
LINEAR: Final = Gate("ratio", "<=", 1.5)


@attrs.define
class _Asked:
    """A model that counts who asks, and stops the tree when all have."""

    wanted: int
    opened: list[Tree] = attrs.Factory(list)
    began: float = 0.0
    spent: float = 0.0
    asked: int = 0
    name: str = "counting"
    default_model: str = "m"
    endpoint: None = None

    def estimate(self, _request: CompletionRequest) -> Estimate:
        """Give a small worst case."""
        return Estimate(100, 50)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer nothing. Cancellation: counted."""
        assert len(request.turns) > 1, "each goes on with its history"
        self.asked += 1
        if self.asked == self.wanted:
            self.spent = cpu() - self.began
            self.opened[0].halt_nowait(HaltKind.interrupt)
        await trio.sleep_forever()
        raise AssertionError("sleeping for ever has ended")


async def _killed(file: Path, folder: Path, agents: int, steps: int, cap: int | None = None) -> None:
    """Leave the file of a tree that was killed: one root that waits for ``agents``, each with so many steps."""
    contract = TaskContract.workspace("root", folder, Verification.none())
    limits = Containment(agents + 1, cap or agents + 1, 1, 10**12)
    calls = Completion(None, (SPAWN,) * agents, None, "m", "tool_calls")
    policy = Policy.permissive().to_json()
    async with Store.open(file) as store:
        plain = json.dumps(contract.to_dict())
        await store.commit(
            RunStarted(
                TREE, TREE, "root", 0, None, "root", None, "counting", None, plain, limits.to_json(), policy,
                str(folder), None, "tree"),
            answer_row(TREE, 1, calls, agents),
        )
        for number in range(1, agents + 1):
            await store.append(*_child(number, steps, plain, policy))


def _child(number: int, steps: int, contract: str, policy: str) -> Iterator[Any]:
    run_id = f"{TREE}/1.{number}"
    yield RunStarted(run_id, TREE, f"root/1.{number}", 1, TREE, "read", None, "counting", None, contract, None, policy)
    yield Spawned(TREE, 1, number, run_id, "read", None, SPAWN.arguments)
    digest = None
    for step in range(1, steps + 1):
        # Each time another file: who repeats itself is stalled, and asks nothing more.
        read = ToolCall("read_file", json.dumps({"path": f"{step}.txt"}))
        answer = Completion("I look again.", (read,), None, "m", "tool_calls")
        held = number * steps + step
        digest = digest_of(digest, run_id, step, answer, 150, (SEEN,))
        yield Reserved(run_id, step, 1, held, 150, 0)
        yield Settled(run_id, held, 150, 0, 0, 0, False)
        yield AttemptMade(run_id, step, 1, "counting", None, "m", 100, 50, 150, 0, 0, 0, 0, 1, None, "tool_calls", None)
        yield answer_row(run_id, step, answer, 1)
        yield from observed_rows(run_id, step, ())
        yield from step_rows(run_id, step, answer, (), (SEEN,), 150, 10**9, digest)


async def _resumed(file: Path, agents: int, cap: int | None = None) -> float:
    async with Store.open(file) as store:
        model = _Asked(agents if cap is None else -1)

        def opened(tree: Tree) -> None:
            model.opened.append(tree)
            if cap is not None:
                tree.host.services.start_soon(_stands, model, agents, cap)

        model.began = begin()
        await resume_tree_from_stored_policy(TREE, model, store, ApproveAll(), on_open=opened)
    assert model.asked == (agents if cap is None else cap)
    return model.spent


async def _stands(model: _Asked, agents: int, cap: int) -> None:
    """Stop the tree when all agents are there again, and as many have asked as may work at once."""
    tree = model.opened[0]
    while tree.slots.total().working + tree.slots.total().queued < agents or model.asked < cap:  # noqa: ASYNC110
        await trio.sleep(0.01)
    model.spent = cpu() - model.began
    tree.halt_nowait(HaltKind.interrupt)


def _read(file: Path) -> float:
    """Read the rows that a resume needs, by bare sqlite3."""
    connection = sqlite3.connect(file)
    began = begin()
    for table in ("runs", "step_turns", "steps", "ledger_observations", "reservations", "provider_calls", "spawns"):
        connection.execute(f"SELECT * FROM {table}").fetchall()
    spent = cpu() - began
    connection.close()
    return spent


def _measured(
    agents: int, steps: int, thresholds: tuple[int, int, int] = RARE, cap: int | None = None
) -> tuple[float, float]:
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        return _both(agents, steps, cap)
    finally:
        gc.set_threshold(*before)


def _both(agents: int, steps: int, cap: int | None) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        file, place = Path(folder) / "runs.db", Path(folder) / "work"
        place.mkdir()
        trio.run(_killed, file, place, agents, steps, cap)
        bare = _read(file)
        return trio.run(partial(_resumed, file, agents, cap)), bare


def figures(quick: bool) -> Iterator[Figure]:
    """Measure the time to go on with 10,000 agents and 100,000 steps, and whether it grows with them only."""
    agents, steps = (500, 10) if quick else (10_000, 10)
    fewer = agents // 10
    few, _ = _measured(fewer, steps)
    spent, bare = _measured(agents, steps)
    of_all, baseline = f"{agents} agents of {steps} steps", "baseline: reading their rows by bare sqlite3"
    asked = f"CPU from resume until {of_all} have asked again; {baseline}"
    method = f"{asked}; gc thresholds {RARE} set by the benchmark"
    yield Figure("resume_seconds", spent, "s", bare, spent / bare, agents, method, None if quick else AT_MOST)
    each, each_of_few = spent / agents * 1e6, few / fewer * 1e6
    method = f"the same for each agent; baseline: the same with {fewer} agents"
    gate = None if quick else LINEAR
    yield Figure("resume_growth", each, "us", each_of_few, each / each_of_few, agents, method, gate)
    spent, bare = _measured(agents, steps, RARE, CAP)
    there = f"CPU from resume until {of_all} are there and the {CAP} that may work at once have asked"
    method = f"{there}; {baseline}; gc thresholds {RARE} set by the benchmark"
    yield Figure("resume_seconds_capped", spent, "s", bare, spent / bare, agents, method, None if quick else AT_MOST)
    spent, bare = _measured(agents, steps, gc.get_threshold())
    method = f"{asked}; gc thresholds as Python sets them"
    yield Figure("resume_seconds_default_gc", spent, "s", bare, spent / bare, agents, method)
