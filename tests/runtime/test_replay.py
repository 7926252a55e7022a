"""Idea 9: what a supervisor is told is written down, and the same is decided again from it."""

import gc
import pickle
import random
import weakref
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.errors import ActorGone, RestartsExhausted, Stopping
from actors.runtime.exits import Noted, Reason
from actors.runtime.journal import Began, Handle, Happened, Nobody, Record
from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.plan import Plan
from actors.runtime.replay import replay
from actors.runtime.specs import ChildSpec, Flags
from actors.runtime.supervise import supervise


class Troop:
    """Children that do what chance says, under a tree of three supervisors."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.records: list[Record] = []
        self.orders: dict[str, trio.Event] = {}
        self.failing = 0

    async def works(self, name: str, *, task_status: Any) -> None:
        if self.failing:
            self.failing -= 1
            raise ValueError("no start")
        order = self.orders[name] = trio.Event()
        task_status.started()
        await order.wait()
        if self.chance.random() < 0.7:
            raise ValueError(f"{name} broke")

    def spec(self, id: Any, restart: str, *args: Any, **more: Any) -> ChildSpec:
        return ChildSpec(id, self.works, (str(id), *args), restart=restart, **more)

    def tree(self) -> Any:
        draw, kinds = self.chance, ["permanent", "transient", "temporary"]
        strategy = draw.choice(["one_for_one", "one_for_all", "rest_for_one"])
        backoff = draw.choice([None, {"minimum": 0.5, "maximum": 2, "jitter": 0.5}])
        inner = [self.spec(f"i{n}", draw.choice(kinds)) for n in range(3)]
        outer = [self.spec(f"o{n}", draw.choice(kinds)) for n in range(2)]
        if draw.random() < 0.3:
            outer.append(self.spec("s", "transient", significant=True))
        template = self.spec("t", draw.choice(kinds))
        below = ChildSpec("in", supervise, (inner, {"strategy": strategy, "intensity": 2}), type="supervisor")
        pool = ChildSpec("pool", supervise, ([template], {"dynamic": True, "max_children": 3}), type="supervisor")
        end = "any_significant" if outer[-1].significant else "never"
        flags = {"strategy": strategy, "intensity": 6, "backoff": backoff, "auto_shutdown": end}
        return open_supervisor(
            [*outer, below, pool],
            flags,
            chance=draw.random,
            may_restart=lambda _id, _now: "no money" if draw.random() < 0.03 else None,
            on_report=lambda _path, _report: None,
            journal=self.records.append,
        )

    async def act(self, top: Any) -> None:
        draw, asked = self.chance, draw_from(self.chance, [*self.orders, "nobody"])
        self.failing = draw.choice([0, 0, 0, 1])
        live = {line.id: line.ref for line in await top.list_children()}
        under = [ref for ref in (live.get("in"), live.get("pool")) if ref is not None and ref.exit is None]
        where = draw.choice([top, *under])
        match draw.randrange(8):
            case 0 | 1 | 2 if asked in self.orders:
                self.orders[asked].set()
            case 3:
                which = (await where.list_children() or [None])[0]
                await where.terminate_child(which.ref if which is not None and where.path.endswith("pool") else asked)
            case 4:
                await where.restart_child(asked)
            case 5:
                await where.delete_child(asked)
            case 6 if where.path.endswith("pool"):
                await where.start_child(args=(object(),)) if draw.random() < 0.6 else await where.start_child(
                    self.spec("extra", "temporary", object())
                )
            case _:
                flags = await_flags(where)
                await where.reconfigure((), attrs.evolve(flags, intensity=draw.choice([1, 4])))
        await trio.sleep(draw.choice([0, 0.3, 1]))


def draw_from(chance: random.Random, names: list[str]) -> str:
    return chance.choice(sorted(names))


def await_flags(where: Any) -> Flags:
    return where.child.plan.flags


async def one_run(seed: int) -> tuple[list[Record], dict[str, Any]]:
    """Give the journal of a random run, and the plans at its end by their numbers."""
    troop = Troop(seed)
    plans: dict[int, Any] = {}
    tree = troop.tree()
    try:
        # Some runs are cut by a halt from outside, in the middle of whatever it is.
        with trio.move_on_after(troop.chance.choice([2, 8, 60])):
            async with tree as top:
                for _ in range(14):
                    await troop.act(top)
                    for node in tree.top.subtree():
                        if hasattr(node, "plan"):
                            plans[node.plan._number] = node.plan
    except (RestartsExhausted, ActorGone, Stopping):
        pass
    return troop.records, {number: plan._plan for number, plan in plans.items()}


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_journal_decides_the_same_again_also_after_it_was_stored(first):
    seen, ended = set(), 0
    for seed in range(first, first + 100):
        records, plans = trio.run(one_run, seed, clock=MockClock(autojump_threshold=0))
        again: dict[int, Plan] = {}
        for step in replay(pickle.loads(pickle.dumps(records))):
            assert step.same, str(step)
            seen.add(step.record.event)
            again[step.record.number] = step.plan
        for number, plan in plans.items():
            ended += 1
            assert [(line.id, line.status, line.restarts) for line in again[number].listed()] == [
                (line.id, line.status, line.restarts) for line in plan.listed()
            ]
            assert again[number].window == plan.window and again[number].stopping == plan.stopping
    # No event is left out of what the runs show.
    assert ended > 300 and {
        "boot", "begins", "started", "start_failed", "ended", "note_due", "stop", "stopped", "halted", "start_child",
        "terminate_child", "restart_child", "delete_child", "reconfigure",
    } <= seen  # fmt: skip


async def fails() -> None:
    raise ValueError("no such table")


async def test_a_step_tells_what_came_in_and_what_was_decided(autojump_clock):
    records: list[Record] = []
    with pytest.raises(RestartsExhausted):
        specs = [ChildSpec("a", trio.sleep_forever), ChildSpec("b", fails)]
        async with open_supervisor(specs, on_report=lambda _path, _report: None, journal=records.append):
            await trio.sleep_forever()
    assert isinstance(records[0], Began) and records[0].flags == Flags()
    lines = [str(step) for step in replay(records)]
    assert lines == [
        "0 s top boot() -> start 'a': boot; start 'b': boot",
        "0 s top begins(a) -> incarnation 1",
        "0 s top started(a, boot, Handle(key='a'), 0.0) -> nothing",
        "0 s top begins(b) -> incarnation 1",
        "0 s top started(b, boot, Handle(key='b'), 0.0) -> nothing",
        "0 s top ended(b, 1, top/b ended: error (ValueError: no such table), 0.0) -> "
        "report 'b': child ended; start 'b': restart",
        "0 s top begins(b) -> incarnation 2",
        "0 s top started(b, restart, Handle(key='b'), 0.0) -> nothing",
        "0 s top ended(b, 2, top/b ended: error (ValueError: no such table), 0.0) -> "
        "report 'b': child ended; report 'b': restarts exhausted, more than 1 in 5 s; stop 'a'; "
        "finish: restarts_exhausted",
        "0 s top stopped(a, top/a ended: shutdown) -> nothing",
    ]


async def test_a_decision_that_was_another_one_is_shown(autojump_clock):
    records: list[Record] = []
    async with open_supervisor([ChildSpec("a", trio.sleep_forever)], journal=records.append):
        pass
    changed = [attrs.evolve(each, said=("start 'b': boot",)) if getattr(each, "event", "") == "boot" else each for each in records]
    steps = list(replay(changed))
    assert [step.same for step in steps].count(False) == 1
    assert str(steps[0]).endswith("-> start 'a': boot [it was: start 'b': boot]")


async def test_a_record_keeps_nothing_that_lives():
    class Big:
        pass

    held: list[weakref.ref[Any]] = []
    records: list[Record] = []

    async def breaks(big: Any) -> None:
        local = Big()
        held.append(weakref.ref(local))
        raise ValueError("x")

    def start() -> Any:
        big = Big()
        held.append(weakref.ref(big))
        return ChildSpec("one", breaks, (big,), restart="temporary")

    flags = {"dynamic": True}
    async with open_supervisor((), flags, on_report=lambda _path, _report: None, journal=records.append) as top:
        ref = (await top.start_child(start())).ref
        held.append(weakref.ref(ref))
        await ref.wait()
        await wait_all_tasks_blocked()
        assert (await top.terminate_child(ref)).word == "not_found"
        del ref
        gc.collect()
        assert len(held) == 3 and [each() for each in held] == [None] * 3
    kept = [each for each in records if isinstance(each, Happened)]
    [end] = [each.args[2] for each in kept if each.event == "ended"]
    assert end.reason is Reason.error and end.cause == Noted("ValueError", "x")
    assert [each.args for each in kept if each.event == "terminate_child"] == [(Nobody("TaskRef"),)]
    assert [each.args[2] for each in kept if each.event == "started"] == [Handle(1)]


async def test_who_fails_to_keep_a_journal_stops_nobody(caplog):
    def full(record: Record) -> None:
        raise OSError("the disk is full")

    async with open_supervisor([ChildSpec("a", trio.sleep_forever)], journal=full) as top:
        assert (await top.count_children()).active == 1
    assert "the disk is full" in caplog.text


async def test_without_a_journal_nothing_stands_before_the_plan():
    tree = open_supervisor([ChildSpec("a", trio.sleep_forever)])
    async with tree:
        assert type(tree.top.plan) is Plan


async def test_a_journal_of_its_own_is_kept_apart_and_one_of_those_above_hears_all_else():
    mine: list[Record] = []
    every: list[Record] = []
    kept = ChildSpec("kept", lambda: supervise(journal=mine.append), type="supervisor")
    async with open_supervisor([kept, ChildSpec("b", supervise, type="supervisor")], journal=every.append):
        pass
    assert {each.path for each in mine} == {"top/kept"} and {each.path for each in every} == {"top", "top/b"}


async def test_records_without_their_beginning_are_refused():
    records: list[Record] = []
    async with open_supervisor(journal=records.append):
        pass
    with pytest.raises(ValueError, match="top begin in the middle"):
        list(replay(records[1:]))
    strange = attrs.evolve(records[1], event="plan")
    with pytest.raises(ValueError, match="no event is called 'plan'"):
        list(replay([records[0], strange]))


@pytest.mark.parametrize("own", [True, False])
async def test_whether_a_child_had_arguments_is_kept_as_decisions_hang_on_it(own):
    records: list[Record] = []

    async def waits(_order: trio.Event) -> None:
        await _order.wait()
        raise ValueError("x")

    def template(restart: str) -> ChildSpec:
        return ChildSpec("t", waits, () if own else (order,), restart=restart)

    flags = {"dynamic": True, "intensity": 5}
    order = trio.Event()
    tree = open_supervisor(
        [template("temporary")], flags, on_report=lambda _path, _report: None, journal=records.append
    )
    async with tree as top:
        await top.start_child(args=(order,) if own else ())
        # A temporary child that runs keeps nothing of its template, so the new one does not reach it.
        await top.reconfigure([template("permanent")])
        order.set()
        await wait_all_tasks_blocked()
    steps = list(replay(pickle.loads(pickle.dumps(records))))
    assert all(step.same for step in steps)
    assert [step.said for step in steps if step.record.event == "ended"] == [("report 't': child ended",)]
