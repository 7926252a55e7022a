"""Reads of one answer beside each other: nobody who looks at the run can tell, but by the time it took."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.agents.approvals import ApproveAll
from actors.agents.confinement import SandboxApplied
from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.judging import FileText, Kept
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    Act,
    Approval,
    ApprovalRequest,
    Observation,
    ObservationKind,
    ToolCall,
    ToolContext,
    ToolSpec,
)
from actors.agents.remembered import Remembered
from actors.agents.rows import LiveSeen
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import StoreError, StoreErrorKind, ToolFailed
from actors.halts import HaltKind
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import MemoryStore, open_reader
from actors.testing.dying_store import Death
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench, finished
from actors.testing.trace_compare import differences
from actors.tools.toolbox import builtin_tools

LIMITS = Containment(20, 4, 4, 10**6)
POLICY = Policy.permissive().layer("o").deny_read("denied").ask_read("asked*").ask_write("asked*")


class Odd(BaseException):
    """What is nobody's failure."""


@attrs.define
class World:
    """What reads look at and writes change, and who is at it."""

    writes: list[str] = attrs.Factory(list)
    running: int = 0
    peak: int = 0
    begun: list[Any] = attrs.Factory(list)
    ended: list[Any] = attrs.Factory(list)
    asked_among: list[int] = attrs.Factory(list)
    marks: list[tuple[str, float]] = attrs.Factory(list)
    lock: trio.Lock = attrs.Factory(trio.Lock)


@attrs.frozen
class Fake:
    """A tool that works as its calls say."""

    world: World
    name: str = "look"
    read_only: bool = True
    recovery: str | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "work", {"type": "object"})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        world, tag = self.world, arguments.get("tag", len(self.world.begun))
        world.running += 1
        world.peak = max(world.peak, world.running)
        world.begun.append(tag)
        try:
            return await self._work(arguments, context)
        finally:
            world.running -= 1
            world.ended.append(tag)

    async def _work(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        for each in arguments.get("does", ["sleep"]):
            word, _, what = each.partition(" ")
            await getattr(self, f"_{word}")(what, context)
        if not self.read_only:
            self.world.writes.append(self.name)
        text = f"{sorted(arguments)} saw {len(self.world.writes)} may {context.may_read('asked 2')}"
        return Observation(ObservationKind.tool, self.name, text + arguments.get("adds", ""), not self.read_only)

    async def _mark(self, what: str, _context: ToolContext) -> None:
        self.world.marks.append((what, trio.current_time()))

    async def _touch(self, what: str, context: ToolContext) -> None:
        await context.touch(what, lambda: FileText(Kept.absent))

    async def _shielded(self, what: str, context: ToolContext) -> None:
        with trio.CancelScope(shield=True):
            await context.authorise(Act.read, what)

    async def _odd(self, what: str, _context: ToolContext) -> None:
        raise Odd(what)

    async def _lingers(self, what: str, _context: ToolContext) -> None:
        try:
            await trio.sleep_forever() if self.world.asked_among == [] else None
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(float(what))

    async def _lock(self, what: str, context: ToolContext) -> None:
        word, _, rest = what.partition(" ")
        async with self.world.lock:
            await getattr(self, f"_{word}")(rest, context)

    async def _sleep(self, what: str, _context: ToolContext) -> None:
        await trio.sleep(float(what or 1))

    async def _read(self, what: str, context: ToolContext) -> None:
        await context.authorise(Act.read, what)

    async def _several(self, what: str, context: ToolContext) -> None:
        await context.authorise(Act.read, "a", what)

    async def _write(self, what: str, context: ToolContext) -> None:
        await context.authorise(Act.write, what)
        self.world.writes.append(what)

    async def _spawn(self, what: str, context: ToolContext) -> None:
        await context.authorise(Act.spawn, what)

    async def _commands(self, what: str, context: ToolContext) -> None:
        await context.authorise_commands([["cat", what]], f"cat {what}", reads=[what])

    async def _command(self, what: str, context: ToolContext) -> None:
        await context.confinement.record(SandboxApplied(ExecSandbox.read_only, what, "denied"))

    async def _intend(self, what: str, context: ToolContext) -> None:
        await context.intend(what, "digest", changes=True)

    async def _fail(self, what: str, _context: ToolContext) -> None:
        raise ToolFailed(f"failed {what}")

    async def _bug(self, what: str, _context: ToolContext) -> None:
        raise ValueError(what)

    async def _store(self, what: str, _context: ToolContext) -> None:
        raise StoreError(StoreErrorKind.busy, "elsewhere", what)


@attrs.frozen
class Answers:
    """An approver with whom the world goes on meanwhile. It denies what ends in 1, and remembers what ends in 2."""

    world: World

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.world.asked_among.append(self.world.running)
        await trio.sleep(100)
        self.world.writes.append("meanwhile")
        if request.target.endswith("1"):
            return Approval(False, "no")
        if request.target.endswith("3") and request.tool == "look":
            return Approval(True, modified={"does": ["sleep 2", "read asked 3", "read a"]})
        rules = (Remembered(Act.read, "asked 2"),) if request.target.endswith("2") else ()
        return Approval(True, remember=rules)


class Rows(MemoryStore):
    """A store that keeps every row in the order in which it came, and which were committed together."""

    def __init__(self, durable: bool) -> None:
        super().__init__()
        self.durable = durable
        self.rows: list[str] = []

    def _keep(self, rows: Sequence[Any], *around: str) -> None:
        # How the tree looks from time to time is no part of what happened.
        kept = [repr(row) for row in rows if not isinstance(row, LiveSeen)]
        self.rows += [*around[:1], *kept, *around[1:]] if kept else []

    def append_nowait(self, *rows: Any) -> None:
        self._keep(rows)
        super().append_nowait(*rows)

    async def commit(self, *rows: Any) -> None:
        self._keep(rows, "commit", "committed")
        await super().commit(*rows)


@attrs.define
class Watcher:
    events: list[Mapping[str, Any]] = attrs.Factory(list)

    def event(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)


@attrs.frozen
class Ran:
    world: World
    store: Rows
    result: RunResult
    model: Scripted
    seconds: float
    events: list[Mapping[str, Any]]

    def told(self) -> dict[str, Any]:
        """Give all that anybody can know of the run, without how long it took."""
        return {
            "rows": self._plain("\n".join(self.store.rows)).split("\n"),
            "events": [self._plain(repr(each)) for each in self.events],
            "requests": [repr(each) for each in self.model.requests],
            "outcome": self._plain(repr(self.result.outcome)),
            "remembered": self.result.remembered,
            "billed": self.model.billed_tokens,
            "writes": self.world.writes,
            "order": [each for each in self.world.ended if each == "w"],
        }

    def _plain(self, text: str) -> str:
        text = re.sub(r"(seconds|duration_ms)=[\d.e-]+", "time", text)
        return re.sub(r'"max_parallel_reads":\d+', "most", text)


def assert_same(one: Ran, other: Ran) -> None:
    mine, theirs = one.told(), other.told()
    for name, told in mine.items():
        if isinstance(told, list):
            for place, pair in enumerate(zip(told, theirs[name], strict=False)):
                assert pair[0] == pair[1], f"{name} {place}"
        assert told == theirs[name], name


async def ran(
    answers: Sequence[Any], most: int = 10, *, durable: bool = True, limits: Containment = LIMITS,
    on_open: Callable[[Tree], None] | None = None, more: Sequence[Any] = (), **fields: Any,
) -> Ran:  # fmt: skip
    world, watcher, store = World(), Watcher(), Rows(durable)
    tools = (
        Fake(world), Fake(world, "put", False), Fake(world, "again", False, "replayable"), Fake(world, "unsure", True, "no"),
    )  # fmt: skip
    model = Scripted([ScriptedAnswer(calls=tuple(map(made, each)), usage=Usage(6, 4)) for each in answers] + list(more))
    contract = TaskContract.workspace("go", Path(__file__).parent, Verification.none(), max_parallel_reads=most, **fields)
    began = trio.current_time()
    # One name for all: it is in the digests of the steps.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("actors.agents.tree.new_run_id", lambda: "tree")
        result = await run_tree(
            contract, model, store, POLICY, Answers(world), limits, tools=tools, observer=watcher, on_open=on_open
        )
    assert world.running == 0 and len(world.begun) == len(world.ended)
    assert result.leaks.empty and max(world.asked_among, default=1) == 1
    return Ran(world, store, result, model, trio.current_time() - began, watcher.events)


def made(each: tuple[str, Mapping[str, Any]]) -> ToolCall:
    return ToolCall(each[0], json.dumps(each[1]))


def look(*does: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "look", {"does": list(does) or ["sleep"], **more}


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(work, clock=MockClock(autojump_threshold=0))


# ── the same as one after the other ─────────────────────────────────────────

WORDS = st.sampled_from([
    "sleep 0", "sleep 1", "sleep 5", "read a", "read denied", "read asked 0", "read asked 1", "read asked 2",
    "read asked 3", "several b", "several denied", "several asked 2", "write b", "write asked 0", "commands a",
    "commands denied", "commands asked 2", "command bubblewrap", "intend x", "touch x", "shielded denied", "fail it", "bug it",
    "lock read a", "lock read denied", "lock read asked 2", "lock commands a",
])  # fmt: skip
READ = st.tuples(st.just("look"), st.builds(lambda does: {"does": does}, st.lists(WORDS, max_size=3)))
CALL = READ | READ | READ | st.sampled_from(
    [("put", {}), ("again", {"does": ["read asked 2"]}), ("unsure", {}), ("nobody", {}), ("look", ["no", "object"]), ("look", {})]
)


AGAIN: Any = ("again", {"does": ["sleep 1"]})
SLOW: Any = ("look", {"does": ["sleep 5"]})


@settings(max_examples=60, deadline=None)
# What was done and noted by nobody stands before the next read, and a note of a read before what it does.
@example([[AGAIN, SLOW, SLOW]], 2, True, False)
@example([[SLOW, ("look", {"does": ["intend x"]}), SLOW]], 3, True, False)
# What a tool gives is made safe and bounded.
@example([[("look", {"adds": "\ud800" + "x" * 50_000}), SLOW]], 3, True, False)
@given(st.lists(st.lists(CALL, max_size=7), min_size=1, max_size=2), st.integers(2, 4), st.booleans(), st.booleans())
def test_everything_that_is_told_of_a_run_is_the_same_as_one_by_one(
    answers: list[Any], most: int, durable: bool, capped: bool
) -> None:
    limits = attrs.evolve(LIMITS, max_total_tool_calls=5) if capped else LIMITS

    async def both() -> None:
        serial = await ran(answers, 1, durable=durable, limits=limits)
        beside = await ran(answers, most, durable=durable, limits=limits)
        assert_same(serial, beside)
        assert serial.world.peak <= 1 and beside.world.peak <= most
        assert beside.seconds <= serial.seconds

    run(both)


async def test_results_stand_in_the_order_of_the_calls_whichever_came_first(autojump_clock: MockClock) -> None:
    reads = [look(f"sleep {seconds}", **{f"n{seconds}": 1}) for seconds in (5, 3, 1, 4)]
    beside, serial = await ran([reads]), await ran([reads], 1)
    assert (beside.seconds, serial.seconds) == (5, 13)
    assert_same(serial, beside)
    seen = [each.text for each in beside.store.observations(beside.result.run_id)][:4]
    assert [re.findall(r"n\d", text) for text in seen] == [["n5"], ["n3"], ["n1"], ["n4"]]


@pytest.mark.parametrize(("most", "peak"), [(0, 1), (1, 1), (2, 2), (3, 3), (10, 7), (10**9, 7)])
async def test_no_more_than_the_contract_says_run_at_a_time(autojump_clock: MockClock, most: int, peak: int) -> None:
    beside = await ran([[look(f"sleep {1 + place % 3}", tag=place) for place in range(7)]], most)
    assert beside.world.peak == peak
    assert beside.world.begun == list(range(7)), "they begin in the order of the calls"


async def test_a_read_sees_the_writes_before_it_and_none_after_it(autojump_clock: MockClock) -> None:
    beside = await ran([[look(), look(), ("put", {"tag": "w"}), look(), look("sleep 0")]])
    seen = [each.text for each in beside.store.observations(beside.result.run_id)][:5]
    assert [re.findall(r"saw (\d)", text)[0] for text in seen] == ["0", "0", "1", "1", "1"]
    assert beside.world.begun.index("w") == 2 and beside.world.ended.index("w") == 2


async def test_one_call_in_an_answer_is_run_as_ever(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("an answer of one call has no runs to look for")

    monkeypatch.setattr("actors.agents.loop.runs_of", never)
    alone = await ran([[look()], [("put", {})], []])
    assert alone.result.outcome.kind is OutcomeKind.finished and len(alone.world.begun) == 2


# ── what has to be asked, or written ────────────────────────────────────────


async def test_a_question_is_asked_alone_and_what_came_after_it_is_read_again(autojump_clock: MockClock) -> None:
    reads = [look("sleep 9", tag=0), look("sleep 1", "read asked 2", tag=1), look("sleep 1", tag=2), look("sleep 50", tag=3)]
    beside = await ran([reads])
    seen = [each.text for each in beside.store.observations(beside.result.run_id)][:4]
    assert [re.findall(r"saw (\d) may (\w+)", text)[0] for text in seen] == [("0", "False"), *[("1", "True")] * 3]
    assert beside.world.asked_among == [1]
    # It gave way to the slow one before it, and the others with it; each is read again, one by one.
    assert beside.world.begun == [0, 1, 2, 3, 1, 2, 3] and beside.seconds == 9 + 1 + 100 + 1 + 50


async def test_a_question_in_its_turn_waits_until_what_came_after_it_is_gone(autojump_clock: MockClock) -> None:
    reads = [look("sleep 1", tag=0), look("sleep 2", "read asked 2", tag=1), look("lingers 5", tag=2), look("sleep 1", tag=3)]
    beside = await ran([reads])
    assert beside.world.asked_among == [1]
    assert beside.world.begun == [0, 1, 2, 3, 2, 3] and beside.seconds == 2 + 5 + 100 + 5 + 1


@pytest.mark.parametrize("does", ["read denied", "commands a", "read asked 2", "write b", "command bubblewrap"])
async def test_reads_that_share_a_lock_never_wait_for_each_other(autojump_clock: MockClock, does: str) -> None:
    reads = [look("sleep 2", "lock read a"), look(f"lock {does}"), look("lock read a")]
    beside, serial = await ran([reads]), await ran([reads], 1)
    assert_same(serial, beside)
    assert beside.seconds <= serial.seconds


async def test_what_is_refused_is_told_in_its_turn_and_gives_way_to_those_before_it(autojump_clock: MockClock) -> None:
    reads = [look("sleep 9", tag=0), look("sleep 9", tag=1), look("sleep 1", "read denied", tag=2), look("sleep 9", tag=3)]
    beside, serial = await ran([reads]), await ran([reads], 1)
    assert_same(serial, beside)
    assert beside.world.begun == [0, 1, 2, 3, 2, 3] and beside.seconds == 9 + 1 + 9
    first = await ran([[reads[2], *reads[:2]]])
    assert (first.world.begun, first.seconds) == ([2, 0, 1], 9), "one whose turn it is cuts nobody off"


async def test_the_row_of_a_command_stands_before_it_starts_and_in_the_order_of_the_calls(autojump_clock: MockClock) -> None:
    reads = [look("sleep 9"), look("command first", "sleep 1"), look("command second", "sleep 1")]
    beside, serial = await ran([reads]), await ran([reads], 1)
    assert_same(serial, beside)
    assert re.findall(r"SandboxUsed.*?backend='(\w+)'", "\n".join(beside.store.rows)) == ["first", "second"]


async def test_a_command_is_let_start_in_its_turn(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    beside = await ran([[look("sleep 9"), look("commands a", "mark first"), look("commands a", "mark second"), look("mark read")]])
    assert [(what, at - began) for what, at in beside.world.marks] == [("first", 9), ("second", 9), ("read", 9)]


@pytest.mark.parametrize("does", ["write b", "intend b", "touch b", "spawn b"])
async def test_a_read_that_is_none_has_nobody_beside_it(autojump_clock: MockClock, does: str) -> None:
    beside = await ran([[look("sleep 9", tag=0), look("sleep 10", does, "mark x", tag=1), look("mark y", tag=2)]])
    assert beside.world.begun == [0, 1, 2, 2]
    assert [what for what, _ in beside.world.marks] == ["y", "x", "y"]
    first = await ran([[look(does, "mark x", tag=1), look("sleep 1", "mark y", tag=2)]])
    assert first.world.begun == [1, 2, 2]


# ── how it ends ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", [1, 10])
async def test_a_run_that_is_halted_leaves_no_read_behind(autojump_clock: MockClock, most: int) -> None:
    trees: list[Tree] = []

    async def stop(_arguments: Mapping[str, Any]) -> None:
        await trio.sleep(3)
        trees[0].halt_nowait(HaltKind.interrupt)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop, {})
        cut = await ran([[look("sleep 1", tag=0), *[look("sleep 60", tag=place) for place in range(1, 30)]]], most, on_open=trees.append)
    assert cut.result.outcome.kind is not OutcomeKind.finished
    assert cut.seconds == 3 and len(cut.world.begun) == (2 if most == 1 else 11)
    assert not cut.store.steps(cut.result.run_id)


async def test_an_agent_whose_time_is_over_leaves_no_read_behind(autojump_clock: MockClock) -> None:
    cut = await ran([[look("sleep 60")] * 20], max_duration=7.0)
    assert cut.result.outcome.kind is OutcomeKind.time_budget_exceeded and cut.seconds == 7


@pytest.mark.parametrize("place", [0, 1, 3])
async def test_a_failing_store_ends_the_run_as_it_ends_a_serial_one(autojump_clock: MockClock, place: int) -> None:
    reads = [look(f"sleep {9 - place}", tag=place) for place in range(4)]
    reads[place] = look("store broke", tag=place)
    beside, serial = await ran([reads]), await ran([reads], 1)
    assert beside.result.outcome.kind is serial.result.outcome.kind is not OutcomeKind.finished
    assert_same(serial, beside)


@pytest.mark.parametrize("first", ["read asked 0", "sleep 60", "store broke"])
async def test_a_tool_that_cannot_be_cut_while_it_asks_holds_nobody_up(autojump_clock: MockClock, first: str) -> None:
    calls = [look("sleep 1", first, tag=0), look("shielded denied", "mark x", tag=1)]
    beside = await ran([calls], max_duration=200.0 if first == "read asked 0" else 30.0)
    # Its turn never came, so nothing was told of it; after a question it is run again.
    refused = [each for each in beside.events if each["kind"] == "refused"]
    assert len(refused) == (first == "read asked 0") and not beside.world.marks


@pytest.mark.parametrize("most", [1, 10])
async def test_what_is_nobodys_failure_comes_out_as_it_is(autojump_clock: MockClock, most: int) -> None:
    with pytest.raises(Odd, match="it"):
        await ran([[look("sleep 1"), look("odd it"), look("sleep 60")]], most)


async def test_the_reads_of_a_child_run_beside_each_other_under_its_one_slot(autojump_clock: MockClock) -> None:
    child = ScriptedAnswer(calls=tuple(made(look("sleep 5")) for _ in range(4)), usage=Usage(6, 4), when="below")
    asks = [("spawn_agent", {"goal": "below", "verify": {"kind": "none"}})]
    one = attrs.evolve(LIMITS, max_concurrent=1)
    beside = await ran([asks], more=[child, ScriptedAnswer(text="ok", when="below")], limits=one)
    assert beside.world.peak == 4 and beside.seconds == 5
    assert beside.store.ledger(beside.result.run_id).peak_working == 1  # type: ignore[union-attr]


# ── a process that ends in the middle ───────────────────────────────────────


@attrs.define
class Reads:
    """Reads of which the second never ends in the first process, which ends then."""

    bench: Bench | None = None
    begun: list[str] = attrs.Factory(list)
    charged: list[str] = attrs.Factory(list)
    running: int = 0
    peaks: list[int] = attrs.Factory(list)
    spec = ToolSpec("read", "read", {"type": "object"})
    read_only = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        self.begun.append(arguments["n"])
        assert self.bench is not None
        if arguments["n"] == "2" and len(self.bench.models) == 1:
            self.bench.kill()
            await trio.sleep_forever()
        self.running += 1
        self.peaks.append(self.running)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        self.running -= 1
        return Observation(ObservationKind.tool, "read", f"read {arguments['n']} of {self.charged}")


@attrs.frozen
class Charge:
    reads: Reads
    spec = ToolSpec("charge", "charge", {"type": "object"})
    read_only = False

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        self.reads.charged.append(arguments["who"])
        return Observation(ObservationKind.tool, "charge", "charged", True)


async def test_a_process_that_ends_in_a_run_of_reads_leaves_none_and_each_is_read_anew(tmp_path: Path) -> None:
    calls = [call("charge", who="a"), *[call("read", n=n) for n in "123"], call("charge", who="b"), spawn("below")]
    answers = {"root": [calls, "done"], "below": [[call("read", n="4"), call("read", n="5")], "done"]}
    reads = Reads()
    bench = Bench(tmp_path, answers, tools=(reads, Charge(reads)))
    reads.bench = bench
    assert await bench.begin(death=Death()) is None
    assert reads.charged == ["a"] and reads.begun == ["1", "2", "3"]
    reads.running, reads.peaks = 0, []
    assert finished(await bench.go_on())
    assert reads.charged == ["a", "b"], "nothing is done twice"
    assert reads.begun[3:] == ["1", "2", "3", "4", "5"]
    assert reads.peaks == [1, 1, 1, 1, 2], "what was begun before is read one by one, and what is new is not"
    told = bench.told()
    assert told[:5] == ["charged", *[f"read {n} of ['a']" for n in "123"], "charged"]
    bench.check()


async def test_the_built_in_reads_leave_in_a_file_what_they_leave_one_by_one(tmp_path: Path) -> None:
    reads = [
        call("read_file", path="a.txt"), call("git_status"), call("grep", pattern="o"), call("find", name_glob="*.txt"),
        call("read_file", path=".env"), call("list_dir"), call("git_log"), call("read_file", path="../a.txt"),
        call("read_file", path=7), call("grep", pattern="("), call("todo_write", items=[]), call("read_file", path="none"),
    ]  # fmt: skip
    answers = {"root": [[call("write_file", path="a.txt", content="one\n"), *reads, call("write_file", path="b", content="")], "done"]}
    benches = []
    for most in (1, 10):
        work = tmp_path / str(most) / "work"
        work.mkdir(parents=True)
        await trio.run_process(["git", "init", "--quiet", "--initial-branch=main", str(work)])
        (work / ".env").write_text("KEY=1")
        contract = TaskContract.workspace("root", work, Verification.none(), max_parallel_reads=most)
        policy = Policy.permissive().layer("o").deny_read(".env")
        benches.append(Bench(work.parent, answers, policy, tools=builtin_tools(), contract=contract))
        assert finished(await benches[-1].begin())
        benches[-1].check()
    serial, beside = benches
    assert serial.told() == beside.told() and "one" in beside.told()[1]
    with open_reader(serial.file) as one, open_reader(beside.file) as other:
        differ = differences(one, serial.run_id, other, beside.run_id)
    # The contract says how many.
    assert len(differ) == 1 and "contract" in differ[0], differ


@pytest.mark.parametrize(("first", "then"), [(1, 10), (10, 1)])
async def test_a_recording_is_replayed_with_another_number_at_a_time(tmp_path: Path, first: int, then: int) -> None:
    (tmp_path / "a.txt").write_text("one")
    reads = [("read_file", {"path": "a.txt"}), ("find", {"name_glob": "a*"}), ("read_file", {"path": "none"})]
    told = []
    for most, store in ((first, MemoryStore()), (then, MemoryStore())):
        file = tmp_path / "run.jsonl"
        model = ReplayProvider(file) if told else RecordingProvider(Scripted([reads, reads, []]), file)
        contract = TaskContract.workspace("go", tmp_path, Verification.none(), max_parallel_reads=most)
        async with model:
            result = await run_tree(contract, model, store, Policy.permissive(), ApproveAll(), LIMITS)
        assert result.outcome.kind is OutcomeKind.finished
        told.append((store, result.run_id))
    differ = differences(*told[0], *told[1])
    assert len(differ) == 1 and "max_parallel_reads" in differ[0], differ
