"""Whatever the disk does: one clear error, nothing half written, nobody hangs, and no end that did not happen.

A small tree is run once for each write it makes, and meets a fault there.
"""

import contextlib
import faulthandler
import itertools
import json
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, ToolCall
from actors.agents.tree import Tree
from actors.assembly.resuming import resume_tree_from_stored_policy
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.halts import HaltKind
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store import writer as writer_file
from actors.store.audit import audit
from actors.store.audit_findings import Verdict
from actors.store.store import FileStore, Store, open_reader
from actors.testing.faulty_store import (
    FaultKind,
    Faults,
    Where,
    damage,
    held,
    open_faulty_store,
    open_small_store,
)
from actors.testing.goal_model import GoalModel, without_figures

SECONDS = 10
WORDS = {
    FaultKind.full: "database or disk is full",
    FaultKind.busy: "database is locked",
    FaultKind.io: "disk I/O error",
    FaultKind.corrupt: "database disk image is malformed",
}
KINDS = {kind: StoreErrorKind(kind) if kind is not FaultKind.io else StoreErrorKind.other for kind in FaultKind}


def say(text: str | None, *calls: tuple[str, dict[str, Any]], when: str | None = None) -> ScriptedAnswer:
    made = tuple(ToolCall(name, json.dumps(arguments)) for name, arguments in calls)
    return ScriptedAnswer(text, made, Usage(60, 40), when=when)


def write(name: str) -> tuple[str, dict[str, Any]]:
    return ("write_file", {"path": name, "content": name})


# More than fits on a page, so that a file that may not grow is full soon.
LONG = "said at length; " * 500
SPAWN = ("spawn_agent", {"goal": "child", "verify": {"kind": "none"}, "agent": ""})


def script() -> list[ScriptedAnswer]:
    return [
        say(f"first {LONG}", write("a.txt"), SPAWN),
        say(None, ("read_file", {"path": "a.txt"})),
        say("done"),
        say(None, write("b.txt"), when="child"),
        say(f"the child is done {LONG}", when="child"),
    ]


@contextmanager
def in_time() -> Iterator[None]:
    """Break whatever hangs under a shield, where no cancel reaches it.

    That leaves trio's loop half done in this thread, and all tests after it would fail
    for no fault of theirs: so there are none.
    """

    def broken(_number: int, _frame: object) -> None:
        faulthandler.dump_traceback()
        pytest.exit("a run did not end, not even when it was cancelled", returncode=1)

    before = signal.signal(signal.SIGALRM, broken)
    signal.alarm(SECONDS + 5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@attrs.frozen
class Ran:
    """What became of one run."""

    path: Path
    tree: Tree
    provider: Scripted | GoalModel
    result: RunResult | None
    error: BaseException | None


class AsksLate(Scripted):
    """A provider in whose ``at``-th call something happens to the file."""

    def __init__(self, at: int, what: Any) -> None:
        super().__init__(script())
        self._at, self._what = at, what

    async def complete(self, request: CompletionRequest) -> Completion:
        if self.calls + 1 == self._at:
            self._what()
        return await super().complete(request)


def run_in(store: FileStore, path: Path, provider: Scripted | GoalModel | None = None) -> Ran:
    """Run the small tree, within a time that is too long for a test and short for a hang."""
    root = path.parent / "workspace"
    root.mkdir(exist_ok=True)
    provider = Scripted(script()) if provider is None else provider
    trees: list[Tree] = []
    contract = TaskContract.workspace("the goal of root", root)

    async def run() -> RunResult:
        with trio.fail_after(SECONDS):
            async with store:
                return await run_tree(
                    contract,
                    provider,
                    store,
                    Policy.permissive(),
                    ApproveAll(),
                    Containment(10, 10, 3, 10**6),
                    on_open=trees.append,
                )

    result: RunResult | None = None
    error: BaseException | None = None
    try:
        with in_time():
            result = trio.run(run)
    except BaseException as raised:
        error = raised
    return Ran(path, trees[0], provider, result, error)


def faulty(path: Path, faults: Faults) -> Ran:
    return run_in(open_faulty_store(path, faults), path)


@pytest.fixture(autouse=True)
def quiet_and_impatient(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL)
    # Long enough that somebody else's short lock is waited for, short enough for a test.
    monkeypatch.setattr(writer_file, "BUSY_SECONDS", 0.05)


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Path]:
    """Give the file of a new folder each time."""

    def give() -> Iterator[Path]:
        for number in itertools.count():
            folder = tmp_path / str(number)
            folder.mkdir()
            yield folder / "runs.db"

    return give()


# ── what must hold of the file ──────────────────────────────────────────────

# What a commit writes together: whoever has the first has all others.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    # A step: its observations (one for each call at least) and its event of the checkpoint.
    "SELECT run_id, step FROM steps": (
        "SELECT run_id, step FROM ledger_observations",
        "SELECT run_id, step FROM checkpoint_events WHERE kind = 'checkpoint'",
        "SELECT run_id, json_extract(event, '$.step') FROM run_events WHERE json_extract(event, '$.kind') = 'step'",
        "SELECT run_id, step FROM step_turns",
    ),
    # An answer: its attempt, its settlement, what it drew, and its event.
    "SELECT run_id, step FROM step_turns": (
        "SELECT run_id, step FROM provider_calls WHERE failure IS NULL",
        "SELECT run_id, step FROM reservations WHERE state = 'settled'",
        "SELECT run_id, step FROM agent_events WHERE kind = 'budget_draw'",
        "SELECT run_id, json_extract(event, '$.step') FROM run_events WHERE json_extract(event, '$.kind') = 'spend_draw'",
    ),
}


def nothing_half(path: Path, *, resumed: bool = False) -> None:
    """Look whether each commit is in the file whole or not at all, and the file in order.

    A run that was ``resumed`` may have calls that were never answered.
    """
    with open_reader(path) as reader:
        assert reader.select("PRAGMA integrity_check") == [("ok",)]
        for first, others in TOGETHER.items():
            for other in others:
                # Both ways for what only this commit writes.
                assert reader.select(f"{first} EXCEPT {other}") == [], other
        points = "SELECT run_id, step FROM checkpoint_events WHERE kind = 'checkpoint'"
        for alone in (points, "SELECT run_id, step FROM ledger_observations"):
            assert reader.select(f"{alone} EXCEPT SELECT run_id, step FROM steps") == []
        answered = " WHERE failure IS NULL" if resumed else ""
        attempts = f"SELECT run_id, step FROM provider_calls{answered} EXCEPT SELECT run_id, step FROM step_turns"
        assert reader.select(attempts) == []
        ended = "SELECT run_id FROM runs WHERE outcome IS NOT NULL"
        assert reader.select(f"{ended} EXCEPT SELECT run_id FROM terminals") == []


def resumable(ran: Ran) -> bool:
    """Look whether a resume finds all it needs: no agent has an end that is only the store's, and nobody drives it.

    Tell whether there is anything to go on with: a run whose first rows were not written never was.
    """
    with open_reader(ran.path) as reader:
        agents = reader.select("SELECT path, status, outcome FROM runs")
        halts = reader.select("SELECT kind FROM halts")
    assert all(outcome in (None, "finished") for _, _, outcome in agents), agents
    assert all(status in ("running", "paused") for _, status, outcome in agents if outcome is None), agents
    assert halts in ([], [(HaltKind.interrupt,)])
    return any(path == "root" and outcome is None for path, _, outcome in agents)


def ended(ran: Ran) -> bool:
    """Tell whether the end of the whole run stands in the file."""
    with open_reader(ran.path) as reader:
        return reader.select("SELECT outcome FROM runs WHERE path = 'root'") == [("finished",)]


def stopped_for_the_store(ran: Ran, kind: StoreErrorKind, words: str) -> None:
    """Look how a run ended whose store failed: told in one line, with no end that did not happen."""
    assert ran.result is None
    assert isinstance(ran.error, StoreError), ran.error
    assert ran.error.kind is kind
    assert str(ran.error).startswith(f"{ran.path}: ") and "\n" not in str(ran.error)
    assert words in str(ran.error)
    assert ran.tree.leaks().empty
    root = ran.tree.root
    if root is not None and root.exit is not None:
        assert root.outcome is not None
        assert root.outcome.kind in (OutcomeKind.interrupted, OutcomeKind.finished)
        assert root.terminal is None or root.terminal.get() is None or root.outcome.kind is OutcomeKind.finished
    assert children() - BEFORE == set()


def children() -> set[int]:
    """Give the processes that this one has begun and not reaped."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, task.read_text().split()))
    return found


# Whatever other tests of this session have left.
BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def _only_our_own_children() -> None:
    BEFORE.clear()
    BEFORE.update(children())


def failing_at_each(kind: FaultKind, where: Where, paths: Iterator[Path]) -> Iterator[Ran]:
    """Run the tree once for each of its writes, which fails there. The cause is gone when a run is given."""
    for at in itertools.count(1):
        faults = Faults(kind, at, where)
        ran = faulty(next(paths), faults)
        if not faults.hits:
            return
        yield ran


# ── faults at each write ────────────────────────────────────────────────────


def test_a_run_without_a_fault_is_what_it_is_without_the_kit(paths: Iterator[Path]) -> None:
    faults = Faults()
    ran = faulty(next(paths), faults)
    assert ran.error is None and ran.result is not None and ran.result.outcome.kind is OutcomeKind.finished
    assert faults.seen > 50 and faults.hits == 0
    nothing_half(ran.path)
    with open_reader(ran.path) as reader:
        assert reader.select("SELECT path, status, steps FROM runs ORDER BY path") == [
            ("root", "completed", 3),
            ("root/1.2", "completed", 2),
        ]


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("where", [Where.begin, Where.rows, Where.commit])
def test_a_fault_at_any_write_stops_the_run_and_leaves_only_whole_commits(
    kind: FaultKind, where: Where, paths: Iterator[Path]
) -> None:
    met = going_on = 0
    for ran in failing_at_each(kind, where, paths):
        met += 1
        nothing_half(ran.path)
        if kind is FaultKind.busy and ended(ran):
            # All that was missing was to give the lease back, and that lapses by itself.
            assert ran.error is None and ran.result is not None and ran.tree.leaks().empty
            continue
        stopped_for_the_store(ran, KINDS[kind], WORDS[kind])
        going_on += resumable(ran)
    # A run without a fault has as many writes.
    assert met > 10 and going_on > 5


@pytest.mark.parametrize("kind", [FaultKind.full, FaultKind.io, FaultKind.corrupt])
def test_a_fault_that_goes_away_by_itself_is_a_fault_all_the_same(kind: FaultKind, paths: Iterator[Path]) -> None:
    for at in range(4, 40, 5):
        faults = Faults(kind, at, Where.rows, times=1)
        ran = faulty(next(paths), faults)
        assert faults.hits == 1
        stopped_for_the_store(ran, KINDS[kind], WORDS[kind])
        nothing_half(ran.path)
        resumable(ran)


def test_a_lock_that_is_given_back_in_time_is_noticed_by_nobody(paths: Iterator[Path]) -> None:
    for at in range(1, 16, 2):
        faults = Faults(FaultKind.busy, at, Where.begin, times=2)
        ran = faulty(next(paths), faults)
        assert faults.hits == 2 and ran.error is None and ran.result is not None
        assert ran.result.outcome.kind is OutcomeKind.finished
        nothing_half(ran.path)


def test_a_lock_that_is_given_back_too_late_ends_nobody(paths: Iterator[Path]) -> None:
    stopped = 0
    for at in range(1, 16):
        faults = Faults(FaultKind.busy, at, Where.commit, times=1)
        ran = faulty(next(paths), faults)
        assert faults.hits == 1
        nothing_half(ran.path)
        if ran.error is None:
            # It hit rows for which nobody waited, and they were written later.
            assert ran.result is not None and ran.result.outcome.kind is OutcomeKind.finished
            continue
        stopped += 1
        stopped_for_the_store(ran, StoreErrorKind.busy, WORDS[FaultKind.busy])
        resumable(ran)
    assert stopped > 5


def test_nobody_is_asked_anything_once_the_store_has_failed(paths: Iterator[Path]) -> None:
    counted = Faults(FaultKind.full, None, Where.commit)
    whole = faulty(next(paths), counted)
    for at in range(1, counted.seen + 1):
        ran = faulty(next(paths), Faults(FaultKind.full, at, Where.commit))
        with open_reader(ran.path) as reader:
            [(reserved,)] = reader.select("SELECT count(*) FROM reservations")
        # No request left without its reservation in the file.
        assert isinstance(ran.provider, Scripted) and isinstance(whole.provider, Scripted)
        assert ran.provider.calls == reserved <= whole.provider.calls


# ── the run resumes when the cause is gone ──────────────────────────────────

GOALS: Mapping[str, Sequence[Any]] = {
    "the goal of root": [[write("a.txt"), SPAWN], [("read_file", {"path": "a.txt"})], "done"],
    "child": [[write("b.txt")], f"the child is done {LONG}"],
}


def undisturbed(path: Path) -> Ran:
    """Run the tree of `GOALS` without a fault."""
    return run_in(Store.open(path), path, GoalModel(GOALS))


def what_was_done(ran: Ran, result: RunResult | None) -> list[Any]:
    """Give all of a run that a fault on its way may not change: its end, its agents, what they saw, and the files."""
    assert result is not None
    with open_reader(ran.path) as reader:
        agents = reader.select("SELECT path, status, outcome, steps, said FROM runs ORDER BY path")
        seen = reader.select(
            "SELECT path, step, ordinal, kind, target, text, changed FROM ledger_observations JOIN runs USING (run_id)"
            " ORDER BY path, step, ordinal"
        )
    # What is told of a child's spend may hold an estimate, and the id of a run is its own.
    told = without_figures(repr(seen)).replace(result.run_id, "ID")
    files = {each.name: each.read_text() for each in (ran.path.parent / "workspace").iterdir()}
    return [result.outcome.kind, result.said, agents, told, files]


def spent(path: Path) -> tuple[int, int]:
    """Give the tokens of the whole tree, and those of them for calls of which nobody knows whether they were billed."""
    with open_reader(path) as reader:
        [(tokens,)] = reader.select("SELECT spent_tokens FROM ledger")
        [(lost,)] = reader.select("SELECT coalesce(sum(used_tokens), 0) FROM reservations WHERE state = 'estimated'")
        return int(tokens), int(lost)


def gone_on_with(ran: Ran, store: FileStore | None = None) -> tuple[RunResult, GoalModel]:
    """Resume a run from its file alone, with another store and another model."""
    model = GoalModel(GOALS)

    async def again() -> RunResult:
        with trio.fail_after(SECONDS):
            async with store or Store.open(ran.path) as opened:
                return await resume_tree_from_stored_policy(ran.tree.run_id, model, opened, ApproveAll())

    with in_time():
        return trio.run(again), model


def goes_on_as_if_nothing_had_been(ran: Ran, whole: Ran) -> bool:
    """Go on with a run that its store stopped, and compare it with one that was not.

    Tell whether there was anything to go on with: a run whose first rows were not written never was.
    """
    assert whole.result is not None and isinstance(ran.provider, GoalModel)
    with open_reader(ran.path) as reader:
        begun = reader.run(ran.tree.run_id) is not None
    if not begun:
        assert ran.provider.requests == []
        with pytest.raises(ConfigError, match="there is no run"):
            gone_on_with(ran)
        return False
    result, model = gone_on_with(ran)
    assert what_was_done(ran, result) == what_was_done(whole, whole.result)
    assert result.leaks.empty
    nothing_half(ran.path, resumed=True)
    with open_reader(ran.path) as reader:
        found = audit(reader, ran.tree.run_id)
    assert found.verdict is Verdict.ok, [str(each) for each in (*found.violations, *found.missing)]
    # What may have been billed and was not answered is charged on top, and marked; nothing is free.
    tokens, lost = spent(ran.path)
    assert (tokens - lost, 0) == spent(whole.path)
    assert ran.provider.billed + model.billed <= tokens
    return True


@pytest.mark.parametrize("kind", [FaultKind.full, FaultKind.io, FaultKind.busy])
@pytest.mark.parametrize(("where", "every"), [(Where.begin, 1), (Where.rows, 4), (Where.commit, 1)])
def test_a_run_goes_on_where_its_store_failed_when_the_cause_is_gone(
    kind: FaultKind, where: Where, every: int, paths: Iterator[Path]
) -> None:
    whole = undisturbed(next(paths))
    lost, resumed = set[int](), 0
    for at in itertools.count(1, every):
        path, faults = next(paths), Faults(kind, at, where)
        model = GoalModel(GOALS)
        ran = run_in(open_faulty_store(path, faults), path, model)
        if not faults.hits:
            break
        resumed += goes_on_as_if_nothing_had_been(ran, whole)
        if model.requests:
            lost.add(spent(path)[1])
    # Some were cut within a call, others between two.
    assert resumed > 10 and len(lost) > 1


@pytest.mark.parametrize("pages", range(0, 8, 2))
def test_a_run_goes_on_when_there_is_room_again(pages: int, paths: Iterator[Path]) -> None:
    whole, path = undisturbed(next(paths)), next(paths)
    ran = run_in(open_small_store(path, pages), path, GoalModel(GOALS))
    stopped_for_the_store(ran, StoreErrorKind.full, WORDS[FaultKind.full])
    # Without a page more, not even its first rows may have found room.
    assert goes_on_as_if_nothing_had_been(ran, whole) or pages == 0


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_run_goes_on_when_the_file_is_free_again(at: int, paths: Iterator[Path]) -> None:
    whole, path = undisturbed(next(paths)), next(paths)
    model = GoalModel(GOALS)
    with ExitStack() as locks:

        async def take(_request: CompletionRequest) -> None:
            if len(model.requests) == at:
                locks.enter_context(held(path))

        model.before = take
        ran = run_in(Store.open(path), path, model)
    stopped_for_the_store(ran, StoreErrorKind.busy, WORDS[FaultKind.busy])
    assert goes_on_as_if_nothing_had_been(ran, whole)


def test_a_run_whose_store_fails_again_and_again_comes_to_its_end_at_last(paths: Iterator[Path]) -> None:
    whole, path = undisturbed(next(paths)), next(paths)
    ran = run_in(open_faulty_store(path, Faults(FaultKind.io, 5, Where.commit)), path, GoalModel(GOALS))
    stopped_for_the_store(ran, StoreErrorKind.other, WORDS[FaultKind.io])
    failed = 0
    for at in range(1, 9):
        try:
            gone_on_with(ran, open_faulty_store(path, Faults(FaultKind.io, at, Where.commit)))
        except StoreError as error:
            assert WORDS[FaultKind.io] in str(error)
            failed += 1
        resumable(ran)
    assert failed > 5
    assert goes_on_as_if_nothing_had_been(ran, whole)


# ── the same for real ───────────────────────────────────────────────────────


def test_a_file_that_may_not_grow_is_full(paths: Iterator[Path]) -> None:
    stopped = 0
    for pages in range(0, 14, 2):
        path = next(paths)
        ran = run_in(open_small_store(path, pages), path)
        nothing_half(path)
        if ran.error is None:
            continue
        stopped += 1
        stopped_for_the_store(ran, StoreErrorKind.full, WORDS[FaultKind.full])
        resumable(ran)
    assert stopped > 3


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_file_that_another_program_holds_stops_the_run_which_then_ends(at: int, paths: Iterator[Path]) -> None:
    path = next(paths)
    lock: AbstractContextManager[None] = nullcontext()

    def take() -> None:
        nonlocal lock
        lock = held(path)
        lock.__enter__()

    ran = run_in(Store.open(path), path, AsksLate(at, take))
    lock.__exit__(None, None, None)
    stopped_for_the_store(ran, StoreErrorKind.busy, WORDS[FaultKind.busy])
    nothing_half(path)
    assert resumable(ran)


@pytest.mark.parametrize("table", ["runs", "reservations", "run_events", "steps", "ledger_observations"])
def test_a_damaged_page_is_told_and_stops_the_run(table: str, paths: Iterator[Path]) -> None:
    path = next(paths)
    assert run_in(Store.open(path), path).error is None
    damage(path, table)
    ran = run_in(Store.open(path), path)
    stopped_for_the_store(ran, StoreErrorKind.corrupt, "malformed")


def test_damage_needs_a_table_that_is_there(paths: Iterator[Path]) -> None:
    path = next(paths)
    assert run_in(Store.open(path), path).error is None
    with pytest.raises(LookupError, match="no table nowhere"):
        damage(path, "nowhere")


# ── others of the tree ──────────────────────────────────────────────────────


def test_a_command_of_a_sibling_is_ended_when_the_store_fails(paths: Iterator[Path]) -> None:
    path = next(paths)
    faults = Faults(FaultKind.full, None, Where.begin)
    answers = [
        say(None, ("spawn_agent", {**SPAWN[1], "goal": "sleeper"}), ("spawn_agent", {**SPAWN[1], "goal": "writer"})),
        say(None, ("exec", {"program": "sleep", "args": ["600"]}), when="sleeper"),
        say(None, write("c.txt"), when="writer"),
    ]

    class FailsLate(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            answer = await super().complete(request)
            if any(call.name == "write_file" for call in answer.calls):
                # By now the sibling's command runs.
                await trio.sleep(0.5)
                faults.at = 1
            return answer

    ran = run_in(open_faulty_store(path, faults), path, FailsLate(answers))
    assert faults.hits
    stopped_for_the_store(ran, StoreErrorKind.full, WORDS[FaultKind.full])
    resumable(ran)
