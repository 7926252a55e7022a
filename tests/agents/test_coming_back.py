"""The ways a child comes back: waited for, let go at once or by the clock, collected in spawn order, drained at the end."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.agent import Agent
from actors.agents.approvals import ApproveAll
from actors.agents.coming_back import ComeBack, Way, decide
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Observation, ObservationKind, ResultsTurn, ToolContext, ToolSpec
from actors.agents.restarting import RestartPolicy
from actors.agents.tree import Tree, open_tree
from actors.assembly.running import RunResult, run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.halts import HaltKind
from actors.ids import agent_run_id
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.runtime.specs import Budget
from actors.store.store import MemoryStore, Store

LIMITS = Containment(100, 1, 4, 10**9)


@attrs.frozen
class Probe:
    """A tool that only looks."""

    spec = ToolSpec("probe", "look", {"type": "object"})
    read_only = True

    async def run(self, arguments: Mapping[str, Any], _context: ToolContext) -> Observation:
        return Observation(ObservationKind.tool, "probe", f"seen {arguments['n']}")


@attrs.define
class Told:
    """What an observer heard, with the seconds since the beginning."""

    seen: list[dict[str, Any]] = attrs.Factory(list)
    began: float = attrs.Factory(trio.current_time)

    def event(self, event: Mapping[str, Any]) -> None:
        self.seen.append({**event, "at": trio.current_time() - self.began})

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.seen if event["kind"] in kinds]


@attrs.frozen
class Ran:
    result: RunResult
    told: Told
    store: Store
    tree: Tree
    provider: Scripted

    def read(self, request: int) -> tuple[str, ...]:
        """Give what the last turn of one of the root's requests holds."""
        asked = [each for each in self.provider.requests if "the root's goal" in str(each.turns[0])]
        last = asked[request].turns[-1]
        assert isinstance(last, ResultsTurn)
        return last.texts


def say(*calls: Any, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=calls, usage=more.pop("usage", Usage(60, 40)), **more)


def probe(n: int = 0) -> tuple[str, dict[str, Any]]:
    return ("probe", {"n": n})


def spawn(goal: str, **how: Any) -> tuple[str, dict[str, Any]]:
    return ("spawn_agent", {"goal": goal, "verify": {"kind": "none"}, **how})


def child(name: str, delay: float) -> ScriptedAnswer:
    return say(when=name, text=f"{name} report", delay=delay)


async def run(path: Path, answers: list[ScriptedAnswer], limits: Containment = LIMITS, **fields: Any) -> Ran:
    provider, told, store, trees = Scripted(answers), Told(), Store.memory(), []  # type: Any, Told, Store, list[Tree]
    contract = TaskContract.workspace("the root's goal", path, **fields)
    result = await run_tree(
        contract, provider, store, Policy.permissive(), ApproveAll(), limits,
        tools=(Probe(),), observer=told, on_open=trees.append,
    )  # fmt: skip
    assert result.leaks.empty and trees[0].slots.out == 0
    return Ran(result, told, store, trees[0], provider)


# ── what is decided ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "allowed", "way", "after", "noted"),
    [
        ((True, None), (None, True), Way.wait, None, False),
        ((False, None), (None, True), Way.detach, None, False),
        ((True, 5), (None, True), Way.clock, 5, False),
        # The operator's clock is the default and a ceiling, and no matter of a detached child.
        ((True, None), (3.0, True), Way.clock, 3.0, False),
        ((True, 2), (3.0, True), Way.clock, 2, False),
        ((True, 9), (3.0, True), Way.clock, 3.0, True),
        ((False, None), (3.0, True), Way.detach, None, False),
        ((True, None), (None, False), Way.wait, None, False),
        ((False, None), (None, False), Way.wait, None, True),
        ((True, 5), (3.0, False), Way.wait, None, True),
        # What nobody asked for needs no note.
        ((True, None), (3.0, False), Way.wait, None, False),
    ],
)
def test_the_way_is_what_was_asked_within_what_is_allowed(
    asked: tuple[bool, float | None], allowed: tuple[float | None, bool], way: Way, after: float | None, noted: bool
) -> None:
    back = decide(wait=asked[0], after=asked[1], ceiling=allowed[0], detached_spawns=allowed[1])
    assert (back.way, back.after, bool(back.note)) == (way, after, noted)


@given(st.booleans(), st.none() | st.integers(1, 9), st.none() | st.integers(0, 9), st.booleans())
def test_what_is_decided_is_never_looser_than_the_operators(
    wait: bool, after: int | None, ceiling: int | None, detached: bool
) -> None:
    back = decide(wait=wait, after=after, ceiling=ceiling, detached_spawns=detached)
    assert isinstance(back, ComeBack) and (back.after is not None) == (back.way is Way.clock)
    assert detached or back.way is Way.wait
    assert back.after is None or ceiling is None or back.after <= ceiling


# ── in the loop ─────────────────────────────────────────────────────────────


async def test_a_detached_child_works_beside_its_parent_and_is_read_at_a_later_step(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(
        tmp_path,
        [
            say(spawn("helper", wait=False), probe(1)),
            child("helper", 5),
            say(probe(2), delay=3),
            say(probe(3), delay=4),
            say(text="done", delay=1),
        ],
        limits=Containment(100, 2, 4, 10**9),
    )
    assert ran.result.outcome.kind is OutcomeKind.finished
    detached, other = ran.read(1)
    assert "Sub-agent root/1.1 works in the background" in detached and "Goal: helper" in detached
    assert other == "seen 1"
    # Not ended when step 3 was asked for, ended when step 4 was.
    assert ran.read(2) == ("seen 2",)
    [text] = ran.read(3)
    assert text.startswith("seen 3\n\nSub-agent root/1.1 ended: finished after 1 steps, 100 tokens.")
    assert "helper report" in text
    [gone, back] = ran.told.of("child_detached", "child_collected")
    assert (gone["child"], gone["after"], gone["path"], gone["at"]) == ("root/1.1", None, "root", 0.0)
    assert (back["kind"], back["step"], back["outcome"], back["at"]) == ("child_collected", 4, "finished", 7.0)
    # It is part of the step that read it.
    seen = [(each.step, each.kind, each.target) for each in ran.store.observations(ran.result.run_id)]
    assert seen[-2:] == [(4, "child", "root/1.1"), (4, "message", "")]
    arguments = ran.store.select("select detail from agent_events where kind = 'spawn_args'")
    assert json.loads(arguments[0][0]) == spawn("helper", wait=False)[1]


async def test_detached_reports_are_read_in_the_order_of_the_spawns_among_those_ready(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(
        tmp_path,
        [
            say(spawn("one", wait=False), spawn("two", background_after_secs=1), spawn("three", wait=False)),
            child("one", 4),
            child("two", 3),
            child("three", 2),
            say(probe(1), delay=10),
            say(text="done"),
        ],
        limits=Containment(100, 9, 4, 10**9),
    )
    [text] = ran.read(2)
    assert text.index("one report") < text.index("two report") < text.index("three report")
    assert [event["child"] for event in ran.told.of("child_collected")] == ["root/1.1", "root/1.2", "root/1.3"]
    assert [event["after"] for event in ran.told.of("child_detached")] == [None, 1, None]


async def test_the_clock_lets_the_parent_go_on_and_never_touches_the_child(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(
        tmp_path,
        [say(spawn("slow", background_after_secs=2)), child("slow", 6), say(probe(1), delay=9), say(text="done")],
        limits=Containment(100, 2, 4, 10**9),
    )
    [text] = ran.read(1)
    assert "root/1.1 has not ended after 2 s and works on in the background" in text
    [gone] = ran.told.of("child_detached")
    assert (gone["after"], gone["at"]) == (2, 2.0)
    ends = [(event["path"], event["outcome"], event["at"]) for event in ran.told.of("finished")]
    assert ends == [("root/1.1", "finished", 6.0), ("root", "finished", 11.0)]
    assert "slow report" in ran.read(2)[0]


async def test_a_child_that_beats_its_clock_is_an_ordinary_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clocked = await run(tmp_path, [say(spawn("kid-a", background_after_secs=9)), child("kid-a", 2), say(text="done")])
    waited = await run(tmp_path, [say(spawn("kid-a")), child("kid-a", 2), say(text="done")])
    assert clocked.read(1) == waited.read(1)
    assert not clocked.told.of("child_detached", "child_collected")
    kinds = [[event["kind"] for event in ran.told.seen] for ran in (clocked, waited)]
    assert kinds[0] == kinds[1]


async def test_the_operators_clock_is_the_default_and_a_ceiling_that_is_told(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(
        tmp_path,
        [
            say(spawn("kid-a"), spawn("kid-b", background_after_secs=60)),
            child("kid-a", 5),
            child("kid-b", 5),
            say(text="done", delay=9),
        ],
        limits=Containment(100, 3, 4, 10**9),
        spawn_background_after=2.0,
    )
    assert [event["at"] for event in ran.told.of("child_detached")] == [2.0, 2.0]
    first, second = ran.read(1)
    assert "Note" not in first and "waits 2 s at most for a sub-agent, not 60 s" in second


async def test_without_detached_spawns_everything_is_waited_for_and_the_model_is_told(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(
        tmp_path,
        [
            say(spawn("kid-a", wait=False), spawn("kid-b", background_after_secs=1), spawn("kid-c")),
            *(child(f"kid-{name}", 5) for name in "abc"),
            say(text="done"),
        ],
        limits=Containment(100, 9, 4, 10**9),
        detached_spawns=False,
    )
    texts = ran.read(1)
    assert all(f"kid-{name} report" in text for name, text in zip("abc", texts, strict=True))
    assert ["so it was waited for" in text for text in texts] == [True, True, False]
    assert not ran.told.of("child_detached")


@pytest.mark.parametrize("seconds", [1, 60])
async def test_a_conflict_of_ways_names_both_and_costs_nothing(tmp_path: Path, seconds: int) -> None:
    ran = await run(tmp_path, [say(spawn("kid-a", wait=False, background_after_secs=seconds)), say(text="done")])
    [text] = ran.read(1)
    assert "conflict" in text and "wait=false" in text and "background_after_secs" in text
    assert ran.tree.ledger.agents == 1
    assert ran.store.select("select count(*) from spawns") == [(0,)]


@pytest.mark.parametrize("zeros", [{"wait": None, "background_after_secs": 0}, {"wait": 0}, {"wait": ""}])
async def test_zeros_are_no_clock_and_detach_nobody(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, zeros: dict[str, Any]
) -> None:
    ran = await run(tmp_path, [say(spawn("kid-a", **zeros)), child("kid-a", 5), say(text="done")])
    assert "kid-a report" in ran.read(1)[0] and not ran.told.of("child_detached")


@pytest.mark.parametrize("way", [{"wait": "no"}, {"wait": 1}, {"background_after_secs": 1.5}, {"background_after_secs": -1}])
async def test_a_way_that_cannot_be_read_makes_no_child(tmp_path: Path, way: dict[str, Any]) -> None:
    ran = await run(tmp_path, [say(spawn("kid-a", **way)), say(text="done")])
    assert ran.tree.ledger.agents == 1
    assert next(iter(way)) in ran.read(1)[0]


@pytest.mark.parametrize("ending", ["success", "step cap", "error"])
async def test_an_end_waits_for_running_children_and_stores_their_reports(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, ending: str
) -> None:
    last = {
        "success": say(text="done"),
        "step cap": say(probe(1)),
        "error": ScriptedAnswer(error=ProviderError(ProviderErrorKind.auth, "refused")),
    }[ending]
    ran = await run(tmp_path, [say(spawn("late", wait=False)), child("late", 5), last], max_steps=2)
    run_id = ran.result.run_id
    # With one slot: a parent that only waits for its children holds none.
    assert [(event["path"], event["at"]) for event in ran.told.of("finished")] == [("root/1.1", 5.0), ("root", 5.0)]
    [back] = ran.told.of("child_collected")
    assert back["drained"] is True and back["outcome"] == "finished"
    [report] = [each for each in ran.store.observations(run_id) if each.kind == "child" and "ended" in each.text]
    assert "late report" in report.text
    assert report.step == ran.result.outcome.steps + 1
    assert ran.store.select("select count(*) from runs where status in ('running', 'draining')") == [(0,)]


async def test_until_its_children_ended_the_parents_run_is_draining(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[Any] = []
    stores: list[Store] = []

    class Look(Told):
        def event(self, event: Mapping[str, Any]) -> None:
            if event["kind"] == "finished" and event["path"] == "root/1.1":
                seen.extend(stores[0].select("select path, status from runs"))

    store = Store.memory()
    stores.append(store)
    await run_tree(
        TaskContract.workspace("the root's goal", tmp_path),
        Scripted([say(spawn("late", wait=False)), child("late", 5), say(text="done")]),
        store, Policy.permissive(), ApproveAll(), LIMITS, observer=Look(),
    )  # fmt: skip
    assert ("root", "draining") in seen


async def test_a_report_that_was_read_by_a_step_that_never_stood_is_stored_with_the_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    refused = ScriptedAnswer(error=ProviderError(ProviderErrorKind.auth, "refused"))
    ran = await run(
        tmp_path,
        [say(spawn("quick", wait=False)), child("quick", 1), say(probe(1), delay=5), refused],
        limits=Containment(100, 2, 4, 10**9),
    )
    assert ran.result.outcome.kind is OutcomeKind.escalated
    reports = [each for each in ran.store.observations(ran.result.run_id) if "quick report" in each.text]
    assert [each.step for each in reports] == [3]
    [back] = ran.told.of("child_collected")
    assert "drained" not in back


async def test_AB7_a_detached_child_stays_in_the_trees_ledger_and_is_halted_with_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    spend = [say(probe(n), when="greedy", delay=1) for n in range(50)]
    ran = await run(
        tmp_path,
        [say(spawn("greedy", wait=False, max_steps=50)), *spend, say(text="done")],
        limits=Containment(100, 2, 4, 1_000),
        stall=StallPolicy(window=0),
    )
    assert ran.tree.ledger.halted is not None and ran.tree.ledger.halted.kind is HaltKind.tokens
    assert ran.tree.ledger.spent_tokens <= 1_000
    [end] = [event for event in ran.told.of("finished") if event["path"] == "root/1.1"]
    assert end["outcome"] == "budget_ceiling_reached"


async def test_a_detached_child_that_is_interrupted_is_not_reported_as_ended(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    class Kept(MemoryStore):
        """A store that is taken for one that outlives the process."""

        durable = True

    told, store = Told(), Kept()

    def interrupt(tree: Tree) -> None:
        def now() -> None:
            tree.halt_nowait(HaltKind.interrupt)

        tree.host.deadlines.at(trio.current_time() + 2, now)

    result = await run_tree(
        TaskContract.workspace("the root's goal", tmp_path),
        Scripted([say(spawn("quick", wait=False), spawn("long", wait=False)), child("quick", 1), child("long", 9),
                  say(text="done", delay=9)]),
        store, Policy.permissive(), ApproveAll(), Containment(100, 3, 4, 10**9),
        observer=told, on_open=interrupt,
    )  # fmt: skip
    assert result.outcome.kind is OutcomeKind.interrupted
    # Nobody has read a report, so none is stored: a resume finds the end of the one, and the other goes on.
    assert told.of("child_collected") == []
    assert [each.target for each in store.observations(result.run_id) if "ended" in each.text] == []
    assert store.terminal(f"{result.run_id}/1.1") is not None
    assert store.select("select path from runs where status = 'paused' order by path") == [("root",), ("root/1.2",)]


# ── in Python ───────────────────────────────────────────────────────────────


async def _sleep(agent: Agent, seconds: float) -> float:
    await trio.sleep(seconds)
    return seconds


async def test_a_wait_with_a_bound_lets_the_child_work_on(autojump_clock: trio.testing.MockClock) -> None:
    told = Told()

    async def root(agent: Agent) -> None:
        slow = await agent.spawn(_sleep, 5)
        quick = await agent.spawn(_sleep, 1)
        end = await quick.exit_within(2)
        assert end is not None and end.clean
        began = trio.current_time()
        assert await slow.exit_within(2) is None
        assert trio.current_time() - began == 2 and agent.holds_slot
        assert agent.collect() == []
        assert [each.path for each in await agent.drain()] == ["root/1"]
        assert await slow.result() == 5 and agent.holds_slot
        with pytest.raises(ValueError, match="seconds"):
            await slow.exit_within(-1)

    async with open_tree(Containment(10, 3, 2, 100), observer=told) as tree:
        await tree.run(root)
    assert [(event["kind"], event["child"]) for event in told.of("child_detached", "child_collected")] == [
        ("child_detached", "root/1"),
        ("child_collected", "root/1"),
    ]


async def test_detached_children_are_collected_once_in_the_order_of_their_spawns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def root(agent: Agent) -> list[list[str]]:
        await agent.spawn(_sleep, 3, detached=True)
        plain = await agent.spawn(_sleep, 1)
        await agent.spawn(_sleep, 2, detached=True)
        last = await agent.spawn(_sleep, 9)
        last.detach()
        last.detach()
        seen = []
        for _ in range(3):
            async with agent.waiting():
                await trio.sleep(4)
            seen.append([child.path for child in agent.collect()])
        assert plain.done
        return seen

    async with open_tree(Containment(10, 5, 2, 100)) as tree:
        assert await tree.run(root) == [["root/1", "root/3"], [], ["root/4"]]


async def test_what_nobody_collected_is_stored_with_the_end(autojump_clock: trio.testing.MockClock) -> None:
    store = Store.memory()

    async def root(agent: Agent) -> None:
        await agent.spawn(_sleep, 3, detached=True)
        await agent.spawn(_sleep, 1, detached=True)
        await agent.spawn(_sleep, 1)

    async with open_tree(Containment(10, 5, 2, 100), store=store) as tree:
        await tree.run(root)
    assert [each.target for each in store.observations(agent_run_id(tree.run_id, "root"))] == ["root/1", "root/2"]


async def test_reports_of_all_incarnations_are_stored_each_in_a_place_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store.memory()

    async def begins_again(agent: Agent) -> None:
        for _ in range(agent.incarnation):
            await agent.spawn(_sleep, 1, detached=True)
        async with agent.waiting():
            await trio.sleep(2)
        if agent.incarnation < 3:
            raise ValueError(f"broke {agent.incarnation}")

    async def root(agent: Agent) -> None:
        child = await agent.spawn(begins_again, restart=RestartPolicy(budget=Budget(5, 60.0)))
        await child.result()

    async with open_tree(Containment(20, 9, 3, 100), store=store) as tree:
        await tree.run(root)
    seen = store.observations(agent_run_id(tree.run_id, "root/1"))
    # One, two and three children, of the first, the second and the last incarnation, in the order of their spawns.
    assert [(each.ordinal, each.target) for each in seen] == [(n, f"root/1/{n}") for n in range(1, 7)]


async def answer(_agent: Agent) -> int:
    return 42


async def test_a_child_that_was_collected_is_not_collected_again(autojump_clock: trio.testing.MockClock) -> None:
    async def parent(agent: Agent) -> tuple[list[str], list[str]]:
        handle = await agent.spawn(answer, detached=True)
        await handle.exit()
        first = [each.path for each in agent.collect()]
        handle.detach()
        return first, [each.path for each in agent.collect()]

    async with open_tree(Containment(100, 8, 4, 1000)) as tree:
        assert await tree.run(parent) == (["root/1"], [])


async def test_detaching_twice_and_late_collects_once(autojump_clock: trio.testing.MockClock) -> None:
    async def parent(agent: Agent) -> tuple[list[str], list[str]]:
        handle = await agent.spawn(answer)
        handle.detach()
        handle.detach()
        await handle.exit()
        first = [each.path for each in agent.collect()]
        assert await handle.exit_within(1) is not None
        handle.detach()
        return first, [each.path for each in agent.collect()]

    async with open_tree(Containment(100, 8, 4, 1000)) as tree:
        assert await tree.run(parent) == (["root/1"], [])


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_result_that_nobody_collected_outlives_the_restart_of_its_parent(
    autojump_clock: trio.testing.MockClock, recorded: bool
) -> None:
    async def parent(agent: Agent) -> list[int]:
        if agent.former is None:
            child = await agent.spawn(answer, detached=True)
            await child.exit()
            raise ValueError("once")
        return [await each.result() for each in agent.collect()]

    async def root(agent: Agent) -> list[int]:
        child = await agent.spawn(parent, restart=RestartPolicy())
        return await child.result()

    async with open_tree(Containment(100, 8, 4, 1000), store=MemoryStore() if recorded else None) as tree:
        assert await tree.run(root) == [42]
