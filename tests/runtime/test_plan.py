"""The pure supervisor, beside a model of OTP that is too simple to be wrong; replay; and what is kept of the gone."""

import random

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.runtime.exits import Exit, Reason
from actors.runtime.plan import Answer, Finish, Note, Plan, Report, Start, Status, Stop, Why, Word
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, Flags

ENDS = [Reason.normal, Reason.shutdown, Reason.error, Reason.killed]


def nothing():
    raise AssertionError("a plan starts nothing")


def spec(id, restart="permanent", **more):
    return ChildSpec(id, nothing, restart=Restart(restart), **more)


@attrs.define
class Drive:
    """Carry a plan's orders out in no time, as the shell does; starts fail as ``fails`` says."""

    plan: Plan
    fails: object
    now: float = 0.0
    # Who runs, in the order of the last starts; every order; every event with what came of it.
    runs: dict = attrs.field(factory=dict)
    log: list = attrs.field(factory=list)
    journal: list = attrs.field(factory=list)
    notes: list = attrs.field(factory=list)
    decided: list = attrs.field(factory=list)
    finished: object = None
    made: int = 0

    def event(self, name, *args):
        """Tell the plan something, and note what it orders: the journal."""
        given = getattr(self.plan, name)(*args)
        self.journal.append((name, args, given if not isinstance(given, list) else list(given)))
        return given

    def carry(self, orders):
        left = list(orders)
        while left:
            order = left.pop(0)
            assert self.finished is None, "nothing comes after the end"
            self.log.append(order)
            if isinstance(order, Start):
                assert not self.plan.stopping, "no start after the stop"
                failed = self.start(order)
                left = left if failed is None else list(failed)
            elif isinstance(order, Stop):
                for key in order.keys:
                    if key in self.runs:
                        self.runs.pop(key)
                        left[:0] = self.event("stopped", key, Exit(str(key), Reason.shutdown, self.now))
            elif isinstance(order, Note):
                self.notes.append(order)
            elif isinstance(order, Finish):
                self.finished = order

    def start(self, order):
        if order.key not in self.plan.children:
            return None
        assert order.key not in self.runs, "nobody is started twice"
        run = self.event("begins", order.key)
        if self.fails(order.key):
            end = Exit(str(order.key), Reason.error, self.now, cause=None)
            return self.event("start_failed", order.key, order.why, end, self.now)
        self.made += 1
        self.event("started", order.key, order.why, ("ref", self.made), self.now)
        self.runs[order.key] = run
        return None

    def ends(self, key, reason):
        run = self.runs.pop(key)
        self.carry(self.event("ended", key, run, Exit(str(key), reason, self.now), self.now))

    def ask(self, name, *args):
        answer = self.event(name, *args)
        if isinstance(answer, Start):
            before = answer.key
            failed = self.start(answer)
            self.log.append(answer)
            return Word.ok if failed is None else (self.carry(failed), Word.error)[1] if before else None
        if isinstance(answer, Stop):
            self.carry([answer])
            return Word.ok
        assert isinstance(answer, Answer)
        return answer.word


class Model:
    """OTP in the words of its manual: a list of children, and a list of the times of restarts."""

    def __init__(self, strategy, intensity, period, children):
        self.strategy, self.intensity, self.period = strategy, intensity, period
        # [id, restart type, whether it runs]
        self.children = [[id, restart, True] for id, restart in children]
        self.times = []
        self.alive = True

    def row(self, id):
        return next((row for row in self.children if row[0] == id), None)

    def ended(self, id, clean, now):
        row = self.row(id)
        row[2] = False
        if row[1] == "temporary":
            self.children.remove(row)
            return
        if row[1] == "transient" and clean:
            return
        self.times = [now] + [t for t in self.times if now - t <= self.period]
        if len(self.times) > self.intensity:
            self.alive = False
            return
        place = self.children.index(row)
        group = {"one_for_one": [row], "one_for_all": self.children, "rest_for_one": self.children[place:]}[self.strategy]
        for each in list(group):
            if each is not row and each[1] == "temporary":
                self.children.remove(each)
            else:
                each[2] = True


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["end", "end", "end", "terminate", "restart", "delete", "add", "wait"]),
        st.integers(0, 5),
        st.sampled_from(ENDS),
        st.sampled_from(["permanent", "transient", "temporary"]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    strategy=st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
    intensity=st.integers(0, 4),
    period=st.sampled_from([1.0, 2.0, 5.0]),
    restarts=st.lists(st.sampled_from(["permanent", "transient", "temporary"]), max_size=5),
    events=EVENTS,
)
def test_the_plan_does_what_otp_does(strategy, intensity, period, restarts, events):
    children = list(enumerate(restarts))
    flags = Flags(strategy, intensity, period)
    drive = Drive(Plan("s", flags, [spec(id, restart) for id, restart in children]), lambda key: False)
    model = Model(strategy, intensity, period, children)
    drive.carry(drive.event("boot"))
    now = 0.0
    decided = []
    for kind, which, reason, restart in events:
        if not model.alive:
            break
        row = model.row(which)
        if kind == "wait":
            now += which / 2
        elif kind == "end" and row is not None and row[2]:
            drive.now = now
            before = drive.plan.window
            drive.ends(which, reason)
            model.ended(which, reason in (Reason.normal, Reason.shutdown), now)
            if drive.plan.window is not before and model.alive:
                decided.append(now)
        elif kind == "terminate":
            expected = "not_found" if row is None else "ok"
            assert drive.ask("terminate_child", which) == expected
            if row is not None:
                row[2] = False
                if row[1] == "temporary":
                    model.children.remove(row)
        elif kind == "restart":
            expected = "not_found" if row is None else "running" if row[2] else "ok"
            assert drive.ask("restart_child", which) == expected
            if row is not None:
                row[2] = True
        elif kind == "delete":
            expected = "not_found" if row is None else "running" if row[2] else "ok"
            assert drive.ask("delete_child", which) == expected
            if row is not None and not row[2]:
                model.children.remove(row)
        elif kind == "add":
            expected = "ok" if row is None else "already_started" if row[2] else "already_present"
            assert drive.ask("start_child", spec(which, restart)) == expected
            if row is None:
                model.children.append([which, restart, True])
        assert (drive.finished is None) is model.alive
        if model.alive:
            kept = [(k.key, str(k.spec.restart), k.status is Status.live) for k in drive.plan.children.values()]
            assert kept == [tuple(row) for row in model.children]
            assert set(drive.runs) == {row[0] for row in model.children if row[2]}
    # INV-7: in no window are there more restarts than the intensity allows.
    for index, at in enumerate(decided):
        assert sum(at - before <= period for before in decided[: index + 1]) <= intensity
    if not model.alive:
        assert drive.finished.reason is Reason.restarts_exhausted and drive.runs == {}


def random_run(seed, intensity=6):
    """Drive a plan at random, with starts that fail, notes that come late, stops and requests."""
    chance = random.Random(seed)
    flags = Flags(
        chance.choice(["one_for_one", "one_for_all", "rest_for_one"]),
        intensity,
        chance.choice([1.0, 5.0]),
        backoff=chance.choice([None, {"minimum": 1, "maximum": 4, "jitter": 0.5}]),
    )
    specs = [spec(n, chance.choice(list(Restart))) for n in range(chance.randrange(6))]
    drawn = []

    def jitter():
        drawn.append(chance.random())
        return drawn[-1]

    drive = Drive(Plan("s", flags, specs, chance=jitter), lambda key: chance.random() < 0.2)
    drive.carry(drive.event("boot"))
    for _ in range(30):
        if drive.finished is not None:
            break
        drive.now += chance.choice([0.0, 0.5, 2.0])
        what = chance.randrange(8)
        if what <= 3 and drive.runs:
            drive.ends(chance.choice(list(drive.runs)), chance.choice(ENDS))
        elif what == 4 and drive.notes:
            note = drive.notes.pop(chance.randrange(len(drive.notes)))
            drive.carry(drive.event("note_due", note.key, note.token))
        elif what == 5:
            drive.ask(chance.choice(["terminate_child", "restart_child", "delete_child"]), chance.randrange(8))
        elif what == 6:
            drive.ask("start_child", spec(chance.randrange(8), chance.choice(list(Restart))))
        elif what == 7 and chance.random() < 0.1:
            drive.carry(drive.event("stop", "enough"))
    return flags, specs, drawn, drive


def test_a_recorded_run_gives_the_same_orders_when_it_is_replayed():
    for seed in range(1000):
        flags, specs, drawn, drive = random_run(seed)
        again = Plan("s", flags, specs, chance=iter([*drawn, 0.0]).__next__)
        for name, args, given_before in drive.journal:
            assert getattr(again, name)(*args) == given_before
        assert again.listed() == drive.plan.listed() and again.window == drive.plan.window


@pytest.mark.parametrize("seed", range(0, 1000, 50))
def test_group_stops_go_in_reverse_and_group_starts_in_order(seed):
    for each in range(seed, seed + 50):
        _, _, _, drive = random_run(each, intensity=50)
        order = []
        for name, _args, orders in drive.journal:
            order = list(drive.plan.children) if name == "boot" else order
            if name not in ("ended", "note_due", "start_failed") or not isinstance(orders, list):
                continue
            stops = [key for o in orders if isinstance(o, Stop) for key in o.keys]
            starts = [o.key for o in orders if isinstance(o, Start)]
            # Ids are numbers, but order is that of insertion, which the stops show in reverse.
            both = [key for key in starts if key in stops]
            assert [key for key in reversed(stops) if key in starts] == both
            kinds = [type(o) for o in orders]
            assert Start not in kinds[: kinds.index(Stop)] if Stop in kinds and Start in kinds else True
            if any(isinstance(o, Finish) for o in orders):
                assert not starts and isinstance(orders[-1], Finish)


def test_each_start_is_answered_once_and_nothing_starts_after_the_stop():
    for seed in range(300):
        _, _, _, drive = random_run(seed)
        names = [name for name, _, _ in drive.journal]
        assert names.count("begins") == names.count("started") + names.count("start_failed")
        if drive.finished is not None:
            assert drive.runs == {} and drive.plan.stopping


def test_a_note_for_a_child_that_is_no_longer_restarting_is_dropped():
    plan = Plan("s", Flags(intensity=9, backoff={"minimum": 1, "maximum": 1}), [spec("a")])
    drive = Drive(plan, lambda key: False)
    drive.carry(drive.event("boot"))
    drive.ends("a", Reason.error)
    [note] = drive.notes
    assert plan.note_due("a", note.token + 1) == []
    assert plan.terminate_child("a").word is Word.ok
    assert plan.note_due("a", note.token) == [] and plan.note_due("z", 1) == []
    assert plan.voided == ["a"]


def test_the_end_of_what_is_no_child_any_more_does_nothing():
    plan = Plan("s", Flags(), [spec("a")])
    end = Exit("a", Reason.error, 0.0)
    assert plan.ended("z", 1, end, 0.0) == []
    plan.begins("a")
    plan.started("a", Why.boot, "ref", 0.0)
    # A former incarnation.
    assert plan.ended("a", 0, end, 0.0) == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_kept_of_children_that_were_dropped(dynamic):
    plan = Plan("s", Flags(dynamic=dynamic, intensity=9))
    drive = Drive(plan, lambda key: False)
    for n in range(200):
        assert drive.ask("start_child", spec(n, "temporary")) == Word.ok
        key = next(iter(drive.runs))
        drive.ends(key, ENDS[n % 4])
    assert plan.children == {} and plan._by_ref == {} and plan.window.entries == () and plan.voided == []


def test_a_report_of_giving_up_comes_before_the_stops_and_the_end_last():
    plan = Plan("s", Flags(intensity=0), [spec("a"), spec("b"), spec("c")])
    drive = Drive(plan, lambda key: False)
    drive.carry(drive.event("boot"))
    drive.log.clear()
    drive.ends("b", Reason.error)
    assert [type(order) for order in drive.log] == [Report, Report, Stop, Stop, Finish]
    assert [order.keys for order in drive.log if isinstance(order, Stop)] == [("c",), ("a",)]
