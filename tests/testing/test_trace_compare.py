"""A run that is replayed leaves the trace of the recorded one; whatever makes two runs differ is told."""

# ruff: noqa: ASYNC240 - a test may wait for its own small files

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.loop_children import Children
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Observation, ObservationKind, Provider, ToolContext, ToolSpec
from actors.agents.tree import Tree
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer, call_pairs
from actors.providers.scripted import Scripted
from actors.store.schema import TABLES
from actors.store.store import MemoryStore, Store
from actors.testing import trace_compare
from actors.testing.trace_compare import differences, rows_of
from actors.tools.toolbox import builtin_tools

LIMITS = Containment(20, 4, 3, 10**6, max_total_tool_calls=100)


def say(*calls: tuple[str, Any], **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=call_pairs(calls), usage=Usage(60, 40), **more)


def spawn(goal: str) -> tuple[str, Any]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}})


def script() -> Scripted:
    """Ten agents at depth up to two: tools that work and fail, a refused path, an error that passes."""
    slow = ProviderError(ProviderErrorKind.rate_limited, "slow", status=429, retry_after=0.0, usage=Usage(1))
    chapters = [f"chapter {letter}" for letter in "abcdefg"]
    answers = [
        say(*(spawn(f"write {chapter}") for chapter in chapters), ("read_file", {"path": "no.txt"})),
        say(("search", {}), ("exec", {"argv": ["rm", "-r", "."]})),
        say(text="the book is whole"),
        # Chapter a has two children of its own.
        say(spawn("write section 1"), spawn("write section 2"), when="chapter a"),
        say(text="two sections", when="chapter a"),
        ScriptedAnswer(error=slow, when="chapter b"),
    ]
    for name in (*chapters[1:], "section 1", "section 2"):
        file = name.replace(" ", "-")
        answers += [
            say(("write_file", {"path": file, "content": name}), ("read_file", {"path": file}), when=name),
            say(text=f"wrote {name}", when=name),
        ]
    return Scripted(answers)


@attrs.frozen
class Ran:
    store: MemoryStore
    result: RunResult

    def against(self, other: "Ran") -> list[str]:
        return differences(self.store, self.result.run_id, other.store, other.result.run_id)


@attrs.define
class Names:
    """A tool that lets something of the process into what the model reads."""

    name: str = ""
    read_only: bool = True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("search", "look", {"type": "object"})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        return Observation(ObservationKind.tool, "search", f"found {self.name or 'nothing'}")


async def run(provider: Provider, folder: Path, *, leak: bool = False) -> Ran:
    folder.mkdir()
    store = MemoryStore()
    names = Names()
    tools = (*(tool for tool in builtin_tools() if tool.spec.name != "search"), names)

    def opened(tree: Tree) -> None:
        names.name = tree.run_id if leak else ""

    contract = TaskContract.workspace("write a book", folder)
    policy = Policy.permissive().layer("operator").deny_exec("*")
    result = await run_tree(contract, provider, store, policy, ApproveAll(), LIMITS, tools=tools, on_open=opened)
    return Ran(store, result)


async def record(tmp_path: Path, **options: Any) -> Ran:
    async with RecordingProvider(script(), tmp_path / "run.jsonl") as provider:
        return await run(provider, tmp_path / "recorded", **options)


async def replay(tmp_path: Path, name: str, **options: Any) -> tuple[Ran, int]:
    async with ReplayProvider(tmp_path / "run.jsonl") as provider:
        return await run(provider, tmp_path / name, **options), provider.left


# ── equal ───────────────────────────────────────────────────────────────────


async def test_a_replayed_tree_leaves_the_trace_of_the_recorded_one_every_time(tmp_path: Path) -> None:
    recorded = await record(tmp_path)
    assert recorded.result.outcome.kind is OutcomeKind.finished
    assert len(recorded.store.agents(recorded.result.run_id)) == 10
    assert len(recorded.store.agents(recorded.result.run_id)[-1].path.split("/")) <= 3
    former = recorded
    for number in range(5):
        replayed, left = await replay(tmp_path, f"replayed {number}")
        assert left == 0
        assert recorded.against(replayed) == []
        assert former.against(replayed) == []
        former = replayed
    # It was no empty comparison.
    compared = rows_of(recorded.store, recorded.result.run_id)
    assert sum(map(len, compared.values())) > 250
    tables = {table for _path, table in compared}
    assert {"runs", "steps", "step_turns", "ledger_observations", "provider_calls", "reservations"} <= tables
    assert {"spawns", "agent_events", "policy_events", "ledger", "terminals", "run_events"} <= tables


async def test_a_replay_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = await record(tmp_path)

    def no(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(f"socket.socket.{name}", no, raising=False)
    replayed, _left = await replay(tmp_path, "replayed")
    assert recorded.against(replayed) == []


# ── different ───────────────────────────────────────────────────────────────


async def test_a_run_id_in_what_a_model_reads_makes_a_replay_differ(tmp_path: Path) -> None:
    recorded = await record(tmp_path, leak=True)
    replayed, left = await replay(tmp_path, "replayed", leak=True)
    assert left > 0
    assert replayed.result.outcome.kind is OutcomeKind.escalated
    ids = recorded.result.run_id, replayed.result.run_id
    # The refusal shows it, as it is and as it was.
    said = replayed.result.outcome.message
    assert "turn 5 of 5 differs (results of calls), now " in said and all(f"found {id}" in said for id in ids)
    told = recorded.against(replayed)
    assert any(each.startswith("root: ledger_observations") and all(id in each for id in ids) for each in told), told


async def test_two_runs_that_nobody_recorded_differ_by_a_run_id_in_a_text_as_well(tmp_path: Path) -> None:
    one, other = await run(script(), tmp_path / "1", leak=True), await run(script(), tmp_path / "2", leak=True)
    told = one.against(other)
    assert told and all("found " in each for each in told), told
    assert (await run(script(), tmp_path / "3")).against(await run(script(), tmp_path / "4")) == []


async def test_children_that_fold_out_of_order_make_a_replay_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = await record(tmp_path)
    fold = Children.run

    async def turned(self: Children, work: Any, places: Sequence[int], results: list[Observation | None]) -> None:
        await fold(self, work, places, results)
        backwards = [results[place] for place in reversed(places)]
        for place, result in zip(places, backwards, strict=True):
            results[place] = result

    monkeypatch.setattr(Children, "run", turned)
    replayed, left = await replay(tmp_path, "replayed")
    assert left > 0
    told = recorded.against(replayed)
    assert any(each.startswith("root: ledger_observations 1, target: ") for each in told), told
    # Also where no model reads it any more: the rows alone tell.
    assert run_ends(await run(script(), tmp_path / "turned")) == run_ends(recorded)
    assert recorded.against(await run(script(), tmp_path / "turned again")) != []


def run_ends(ran: Ran) -> list[tuple[str, str | None]]:
    return [(agent.path, agent.outcome) for agent in ran.store.agents(ran.result.run_id)]


async def test_every_value_of_every_row_counts_but_the_few_that_are_left_out(tmp_path: Path) -> None:
    recorded = await record(tmp_path)
    replayed, _left = await replay(tmp_path, "replayed")
    changes = replayed.store._connection.execute
    ids = trace_compare.AGENT_IDS | trace_compare.OTHER_IDS | {"path", "at"}
    seen = set()
    for table in TABLES:
        for column in table.columns:
            if column in ids or (table.name, column) in trace_compare.LEFT_OUT or column.endswith(trace_compare.TIMES):
                continue
            changes("SAVEPOINT one")
            value = "'{\"other\": 1}'" if (table.name, column) in trace_compare.JSON_COLUMNS else "'other'"
            sql = f'UPDATE {table.name} SET "{column}" = {value} WHERE rowid = (SELECT max(rowid) FROM {table.name})'
            if changes(sql).rowcount:
                seen.add(table.name)
                told = recorded.against(replayed)
                assert len(told) == 1 and f"{table.name} " in told[0] and f", {column}: " in told[0], (column, told)
            changes("ROLLBACK TO one")
    assert len(seen) > 10
    assert recorded.against(replayed) == []


async def test_a_row_too_many_and_an_agent_too_few_are_told(tmp_path: Path) -> None:
    recorded = await record(tmp_path)
    replayed, _left = await replay(tmp_path, "replayed")
    replayed.store._connection.execute("DELETE FROM steps WHERE run_id LIKE '%/1.3' AND step = 2")
    assert recorded.against(replayed) == ["root/1.3: 2 rows of steps in the first, 1 in the second"]
    assert replayed.against(recorded) == ["root/1.3: 1 rows of steps in the first, 2 in the second"]
    replayed.store._connection.execute("DELETE FROM runs WHERE path = 'root/1.3'")
    assert "root/1.3: 1 rows of runs in the first, 0 in the second" in recorded.against(replayed)


async def test_trees_that_are_not_there_are_not_equal(tmp_path: Path) -> None:
    empty = Store.memory()
    assert differences(empty, "a", empty, "b") == ["a is not in :memory:", "b is not in :memory:"]
    recorded = await record(tmp_path)
    told = differences(recorded.store, recorded.result.run_id, empty, recorded.result.run_id)
    assert told == [f"{recorded.result.run_id} is not in :memory:"]


def test_what_is_left_out_is_in_the_schema() -> None:
    columns = {(table.name, column) for table in TABLES for column in table.columns}
    assert columns >= trace_compare.LEFT_OUT
    assert set(trace_compare.JSON_COLUMNS) <= columns
    assert {column for _table, column in columns} >= trace_compare.AGENT_IDS | trace_compare.OTHER_IDS
    assert {table.name for table in TABLES} >= trace_compare.LEFT_OUT_TABLES


def test_a_difference_is_shown_where_it_is() -> None:
    one, other = "a" * 500 + "b" + "c" * 500, "a" * 500 + "d" + "c" * 500
    shown = trace_compare._both(one, other)
    assert "ab" in shown and "ad" in shown and len(shown) < 300
    assert trace_compare._both(None, "null") == "null and 'null'"
