"""The audit: a true run is ok, and each kind of tampering is seen by the check that is there for it."""

import json
import shutil
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Observation, ObservationKind, ToolContext, ToolSpec
from actors.assembly.running import run_tree
from actors.assembly.trees import open_tree
from actors.containment.ledger_state import Draw
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import Halted
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.audit import audit
from actors.store.audit_findings import Audit, Check, TreeState, Verdict
from actors.store.export import export
from actors.store.store import Store, open_reader
from actors.store.tree_rows import PAGE
from actors.tools.toolbox import builtin_tools

GOAL = "the root's goal"


def say(*calls: Any, when: str = GOAL, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, when=when, usage=Usage(60, 40), **more)


def spawn(goal: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}, **more})


READ = ("read_file", {"path": "a.txt"})
WRITE = ("write_file", {"path": "a.txt", "content": "x"})
PAY = ("pay", {})
ANSWERS = [
    say(PAY, WRITE),
    say(spawn("one"), spawn("two", wait=False), READ),
    say(text="done"),
    say(READ, READ, when="one"),
    say(text="one is done", when="one"),
    say(text="two is done", when="two"),
]


@attrs.frozen
class Pay:
    """A tool of which nobody can see afterwards what it did."""

    name: str = "pay"
    read_only: bool = False
    spec: ToolSpec = ToolSpec("pay", "Pay somebody.", {"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        await trio.lowlevel.checkpoint()
        return Observation(ObservationKind.tool, "pay", "paid", changed=True)


TOOLS = (*builtin_tools(), Pay())


@attrs.frozen
class Kept:
    """A tree in a file. ``path`` may be changed; the audit looks at what it holds."""

    path: Path
    tree_id: str

    def audit(self) -> Audit:
        with open_reader(self.path) as reader:
            return audit(reader, self.tree_id)

    def sql(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            for statement in statements:
                changed = connection.execute(statement.replace("ROOT", self.tree_id)).rowcount
                assert changed != 0, f"nothing changed: {statement}"
        connection.close()

    def copy(self, folder: Path) -> "Kept":
        return Kept(Path(shutil.copy(self.path, folder)), self.tree_id)


def llm_tree(folder: Path, answers: list[ScriptedAnswer], seconds: float = 60.0, **limits: Any) -> Kept:
    """Run a tree of models into a file; a run that is cut after ``seconds`` is interrupted, as by Ctrl-C."""
    ids: list[str] = []

    async def main() -> None:
        async with Store.open(folder / "runs.db") as store:
            with trio.move_on_after(seconds):
                await run_tree(
                    TaskContract.workspace(GOAL, folder),
                    Scripted(answers),
                    store,
                    Policy.permissive(),
                    ApproveAll(),
                    Containment(**{**BOUNDS, **limits}),
                    on_open=lambda tree: ids.append(tree.run_id),
                    tools=TOOLS,
                )

    trio.run(main)
    return Kept(folder / "runs.db", ids[0])


BOUNDS: dict[str, Any] = {
    "max_total_agents": 3,
    "max_concurrent": 3,
    "max_depth": 2,
    "max_total_tokens": 5_000,
    "max_total_calls": 6,
    "max_total_tool_calls": 9,
}


def plain_tree(folder: Path, tokens: int = 1_050) -> Kept:
    """Run a tree of functions that draw, into a file."""
    ids: list[str] = []

    async def leaf(agent: Any) -> None:
        await agent.ledger.draw_tokens(100, 7)

    async def root(agent: Any) -> None:
        await agent.ledger.draw_tokens(50)
        for _ in range(3):
            await (await agent.spawn(leaf)).result()
        if await agent.ledger.draw_tokens(700) is Draw.halted:
            await trio.sleep_forever()

    async def main() -> None:
        async with Store.open(folder / "runs.db") as store:
            async with open_tree(Containment(10, 4, 3, tokens), store=store) as tree:
                ids.append(tree.run_id)
                try:
                    await tree.run(root)
                except Halted:
                    assert tokens < 1_050

    trio.run(main)
    return Kept(folder / "runs.db", ids[0])


@pytest.fixture(scope="module")
def true_run(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return llm_tree(tmp_path_factory.mktemp("true"), ANSWERS)


@pytest.fixture
def kept(true_run: Kept, tmp_path: Path) -> Kept:
    return true_run.copy(tmp_path)


# ── what is true ────────────────────────────────────────────────────────────────


def test_a_true_run_is_ok_and_the_audit_tells_how_much_it_looked_at(kept: Kept) -> None:
    done = kept.audit()
    assert (done.verdict, done.violations, done.missing) == (Verdict.ok, (), ())
    assert (done.state, done.agents) == (TreeState.ended, 3)
    by_agent = (Check.terminals, Check.outcomes, Check.family)
    by_step = (Check.answers, Check.checkpoints, Check.attempts)
    assert [done.checked[check] for check in (*by_agent, *by_step)] == [3, 3, 3, 6, 6, 6]
    # 2 and 3 calls of the root and its quiet answer, 2 of a child and two quiet answers.
    assert (done.checked[Check.digests], done.checked[Check.results]) == (6, 2 + 3 + 1 + 2 + 1 + 1)
    # The one call that cannot be looked at afterwards.
    assert done.checked[Check.effects] == 1


def test_an_audit_writes_nothing(kept: Kept) -> None:
    before = kept.path.read_bytes()
    kept.audit()
    assert kept.path.read_bytes() == before


def test_a_run_that_was_interrupted_is_ok_and_has_no_terminal_to_ask_for(tmp_path: Path) -> None:
    answers = [*ANSWERS[:3], say(READ, when="one"), say(hang=True, when="one"), say(hang=True, when="two")]
    kept = llm_tree(tmp_path, answers, seconds=0.5)
    done = kept.audit()
    assert (done.verdict, done.violations, done.missing) == (Verdict.ok, (), ())
    assert (done.state, done.agents, done.checked[Check.terminals]) == (TreeState.paused, 3, 3)


def test_a_run_whose_process_was_killed_is_asked_only_for_what_holds_at_any_time(kept: Kept) -> None:
    # What a kill leaves: no ends, an open call, an answer without its step, children that wait.
    kept.sql(
        "UPDATE runs SET status = 'running', outcome = NULL, steps = NULL, finished_at = NULL, spent_tokens = NULL",
        "DELETE FROM terminals",
        "DELETE FROM run_outcomes",
        "DELETE FROM ledger",
        "DELETE FROM steps WHERE run_id = 'ROOT' AND step = 3",
        "DELETE FROM checkpoint_events WHERE run_id = 'ROOT' AND step = 3",
        "DELETE FROM ledger_observations WHERE run_id = 'ROOT' AND step = 3 AND kind = 'message'",
        "UPDATE reservations SET state = 'open', used_tokens = NULL, used_microdollars = NULL, overrun_tokens = NULL,"
        " overrun_microdollars = NULL, settled_at = NULL WHERE run_id = 'ROOT' AND step = 3",
        "INSERT INTO agent_queue (parent_run_id, step, ordinal, goal, depth) VALUES ('ROOT', 2, 2, 'two', 1)",
    )
    done = kept.audit()
    assert (done.verdict, done.violations, done.state) == (Verdict.ok, (), TreeState.running)


def test_a_live_run_is_ok_at_every_moment_one_looks(tmp_path: Path) -> None:
    seen: Counter[tuple[Verdict, TreeState]] = Counter()
    wrong: list[str] = []

    async def main() -> None:
        answers = [
            attrs.evolve(each, delay=0.02) for each in (say(*[spawn(f"child {n}") for n in range(9)]), say(text="done"))
        ]
        children = [say(READ, when="child", delay=0.01), say(text="x", when="child")]
        ids: list[str] = []
        async with Store.open(tmp_path / "runs.db") as store, trio.open_nursery() as nursery:

            async def look() -> None:
                while True:
                    await trio.sleep(0.002)
                    if ids and store.run(ids[0]) is not None:
                        done = audit(store, ids[0])
                        seen[done.verdict, done.state] += 1
                        wrong.extend(map(str, done.violations))

            nursery.start_soon(look)
            await run_tree(
                TaskContract.workspace(GOAL, tmp_path),
                Scripted([*answers, *children * 9]),
                store,
                Policy.permissive(),
                ApproveAll(),
                Containment(20, 4, 2, 100_000),
                on_open=lambda tree: ids.append(tree.run_id),
            )
            await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert wrong == []
    assert seen[Verdict.ok, TreeState.running] > 3 and seen[Verdict.ok, TreeState.ended] > 0


@pytest.mark.parametrize("tokens", [1_050, 1_049])
def test_a_tree_of_functions_that_draw_is_ok_also_when_a_draw_did_not_fit(tmp_path: Path, tokens: int) -> None:
    kept = plain_tree(tmp_path, tokens)
    done = kept.audit()
    assert (done.verdict, done.violations, done.missing) == (Verdict.ok, (), ())
    assert (done.agents, done.checked[Check.spawns], done.checked[Check.halt] > 0) == (4, 0, tokens == 1_049)


def test_a_store_in_memory_can_be_audited_too(tmp_path: Path) -> None:
    store = Store.memory()

    async def main() -> str:
        bounds = Containment(**BOUNDS)
        contract = TaskContract.workspace(GOAL, tmp_path)
        policy = Policy.permissive()
        got = await run_tree(contract, Scripted(ANSWERS), store, policy, ApproveAll(), bounds, tools=TOOLS)
        return got.run_id

    done = audit(store, trio.run(main))
    assert (done.verdict, done.violations) == (Verdict.ok, ())


# ── what is not ─────────────────────────────────────────────────────────────────

TAMPERINGS = [
    (Check(each["check"]), each["text"], each["sql"])
    for each in tomllib.loads(Path(__file__).with_name("tamperings.toml").read_text(encoding="utf-8"))["tampering"]
]


@pytest.mark.parametrize(("check", "text", "statements"), TAMPERINGS)
def test_what_was_tampered_with_is_told_by_its_own_check_with_the_figures(
    kept: Kept, check: Check, text: str, statements: list[str]
) -> None:
    kept.sql(*statements)
    done = kept.audit()
    told = [str(each) for each in done.violations]
    assert done.verdict is Verdict.violated
    assert any(
        line.startswith(f"{check}: {kept.tree_id}") and text.replace("ROOT", kept.tree_id) in line for line in told
    ), told


def test_every_check_is_seen_to_fail() -> None:
    assert {check for check, _, _ in TAMPERINGS} == set(Check)


def test_a_draw_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    kept = plain_tree(tmp_path)
    kept.sql("DELETE FROM draws WHERE run_id = 'ROOT/2'")
    told = [str(each) for each in kept.audit().violations]
    assert told == [
        f"conservation: {kept.tree_id}/2: it used 100 tokens and 7 microdollars by its row in runs,"
        " and 0 tokens and 0 microdollars by 0 reservations and 0 draws",
        f"conservation: {kept.tree_id}: ledger tells 1050 tokens and 21 microdollars,"
        " and reservations and draws come to 950 tokens and 14 microdollars",
    ]


def test_a_paused_run_is_held_to_its_totals_too(tmp_path: Path) -> None:
    kept = llm_tree(tmp_path, [*ANSWERS[:2], say(hang=True, when="one")], seconds=0.3)
    assert kept.audit().verdict is Verdict.ok
    kept.sql(
        "UPDATE ledger SET spent_tokens = spent_tokens + 1",
        "INSERT INTO terminals (run_id, terminal, at) VALUES ('ROOT', '{}', 't')",
    )
    told = Counter(each.check for each in kept.audit().violations)
    assert told[Check.conservation] == 2 and told[Check.terminals] == 2


# ── what cannot be known ────────────────────────────────────────────────────────


def test_steps_without_digests_are_no_violation_and_not_ok_either(kept: Kept) -> None:
    kept.sql("UPDATE steps SET digest = NULL")
    done = kept.audit()
    assert (done.verdict, done.violations) == (Verdict.unknown, ())
    assert [str(each) for each in done.missing] == ["digests: 6 steps have no digest"]


def test_a_run_that_goes_on_under_a_newer_version_has_a_chain_from_there(kept: Kept) -> None:
    kept.sql("UPDATE steps SET digest = NULL WHERE run_id = 'ROOT/2.1'")
    done = kept.audit()
    assert (done.verdict, [each.rows for each in done.missing]) == (Verdict.unknown, [2])


def test_a_file_of_an_older_version_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    kept = plain_tree(tmp_path)
    tables = ("draws", "inherited", "run_leases", "call_results", "tool_attempts", "pending_approvals")
    kept.sql(*(f"DROP TABLE {name}" for name in tables), "ALTER TABLE steps DROP COLUMN digest")
    done = kept.audit()
    assert (done.verdict, done.violations) == (Verdict.unknown, ())
    assert [str(each) for each in done.missing] == ["conservation: 5 draws have no rows of their own"]
    # What it has is still held against each other.
    kept.sql("UPDATE ledger SET spent_tokens = 1")
    assert [each.check for each in kept.audit().violations] == [Check.conservation]


def test_a_boundary_that_this_version_cannot_read_is_told(kept: Kept) -> None:
    kept.sql("UPDATE runs SET containment = '{\"max_total_moons\": 1}' WHERE path = 'root'")
    done = kept.audit()
    assert (done.verdict, [each.check for each in done.missing]) == (Verdict.unknown, [Check.ceilings])


def test_a_violation_outweighs_what_is_not_known(kept: Kept) -> None:
    kept.sql("UPDATE steps SET digest = NULL", "DELETE FROM terminals WHERE run_id = 'ROOT'")
    assert kept.audit().verdict is Verdict.violated


# ── reopened trees ──────────────────────────────────────────────────────────────


def test_what_a_reopened_tree_inherited_counts_and_may_lie_above_a_tighter_ceiling(kept: Kept) -> None:
    kept.sql(
        "INSERT INTO inherited (tree_id, from_tree_id, spent_tokens, agents, calls) VALUES ('ROOT', 'old', 6000, 9, 90)",
        "UPDATE ledger SET spent_tokens = 6000, agents = 9, calls = 90",
        "UPDATE reservations SET used_tokens = 0",
        "UPDATE provider_calls SET prompt_tokens = 0, completion_tokens = 0, total_tokens = 0",
        "UPDATE runs SET spent_tokens = 0, input_tokens = 0",
        "UPDATE run_outcomes SET tokens = 0",
    )
    done = kept.audit()
    assert (done.verdict, done.violations) == (Verdict.ok, ())


# ── long runs, and other trees ──────────────────────────────────────────────────


def test_steps_are_read_in_pages_without_losing_one_at_their_edges(tmp_path: Path) -> None:
    steps = 2 * PAGE + 1
    answers = [say(READ) for _ in range(steps - 1)] + [say(text="done")]
    (tmp_path / "a.txt").write_text("x")
    ids: list[str] = []

    async def main() -> None:
        contract = attrs.evolve(TaskContract.workspace(GOAL, tmp_path, max_steps=steps), stall=_patient(steps))
        async with Store.open(tmp_path / "runs.db") as store:
            got = await run_tree(
                contract, Scripted(answers), store, Policy.permissive(), ApproveAll(), Containment(1, 1, 0, 10**9)
            )
            ids.append(got.run_id)

    trio.run(main)
    kept = Kept(tmp_path / "runs.db", ids[0])
    done = kept.audit()
    assert (done.verdict, done.violations) == (Verdict.ok, ())
    assert done.checked[Check.digests] == done.checked[Check.answers] == steps
    kept.sql(f"UPDATE ledger_observations SET text = 'y' WHERE step = {PAGE + 1}")
    assert [str(each).split(" has ")[0] for each in kept.audit().violations] == [f"digests: {ids[0]}: step {PAGE + 1}"]


def _patient(steps: int) -> Any:
    from actors.agents.contract import StallPolicy

    return StallPolicy(window=steps + 1, max_replans=0)


def test_other_trees_of_the_file_are_left_out(tmp_path: Path) -> None:
    first = llm_tree(tmp_path, ANSWERS)
    second = llm_tree(tmp_path, ANSWERS)
    second.sql("DELETE FROM terminals WHERE run_id = 'ROOT/2.1'")
    assert (first.audit().verdict, second.audit().verdict) == (Verdict.ok, Verdict.violated)


# ── export ──────────────────────────────────────────────────────────────────────


def exported(kept: Kept) -> list[dict[str, Any]]:
    with open_reader(kept.path) as reader:
        return list(export(reader, kept.tree_id))


def test_an_export_holds_every_row_of_the_tree_and_none_of_another(tmp_path: Path) -> None:
    first = llm_tree(tmp_path, ANSWERS)
    whole = {table: count for table, count in counted(first).items() if count}
    assert Counter(each["table"] for each in exported(first)) == whole
    llm_tree(tmp_path, ANSWERS)
    assert Counter(each["table"] for each in exported(first)) == whole


def counted(kept: Kept) -> dict[str, int]:
    connection = sqlite3.connect(kept.path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    connection.close()
    return {name: count for name, count in counts.items() if not name.startswith("sqlite_")}


def test_an_export_has_each_column_as_it_stands_and_the_same_order_each_time(kept: Kept) -> None:
    rows = exported(kept)
    assert rows == exported(kept)
    assert [each["row"]["step"] for each in rows if each["table"] == "steps"][:3] == [1, 2, 3]
    connection = sqlite3.connect(kept.path)
    connection.row_factory = sqlite3.Row
    [true] = connection.execute("SELECT * FROM runs WHERE path = 'root'").fetchall()
    connection.close()
    assert rows[0] == {"table": "runs", "row": dict(true)}
    assert json.loads(json.dumps(rows)) == rows


# ── the guide ───────────────────────────────────────────────────────────────────


def test_the_guide_tells_every_check_in_order() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    table = guide.split("| check | what must hold |")[1].split("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == list(Check)
