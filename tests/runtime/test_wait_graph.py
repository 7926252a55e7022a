"""The wait-for graph: what could never end is refused, and nothing else is."""

from collections.abc import Callable, Iterable
from itertools import pairwise, permutations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.runtime.wait_graph import SHOWN, Wait, WaitGraph, WouldDeadlock


def ask(graph: WaitGraph, waiter: object, *targets: object, alone: bool = True) -> Wait:
    return graph.begin(waiter, targets, what="an answer from", any_of=False, alone=alone)


def slot(graph: WaitGraph, waiter: object, *holders: object) -> Wait:
    return graph.begin(waiter, holders, what="a slot held by", any_of=True)


def refused(begin: Callable[..., Wait], *args: object) -> WouldDeadlock:
    with pytest.raises(WouldDeadlock) as caught:
        begin(*args)
    return caught.value


# ── by hand ─────────────────────────────────────────────────────────────────


def test_N16_an_actor_that_asks_itself_is_refused_and_named() -> None:
    graph = WaitGraph()
    error = refused(ask, graph, "a", "a")
    assert error.cycle == ("a", "a")
    assert str(error) == "this wait could never end: a -> a (a waits for an answer from a)"
    assert len(graph) == 0


def test_N16_a_to_b_to_a_is_refused_and_names_what_each_waits_for() -> None:
    graph = WaitGraph()
    first = ask(graph, "a", "b")
    error = refused(slot, graph, "b", "a")
    assert error.cycle == ("b", "a", "b")
    assert str(error) == (
        "this wait could never end: b -> a -> b (b waits for a slot held by a; a waits for an answer from b)"
    )
    assert graph.waits_of("a") == (first,) and graph.waits_of("b") == ()


def test_a_chain_is_no_cycle_until_its_end_asks_its_beginning() -> None:
    graph = WaitGraph()
    for waiter, target in pairwise("abcd"):
        ask(graph, waiter, target)
    assert refused(ask, graph, "d", "a").cycle == ("d", "a", "b", "c", "d")
    assert refused(ask, graph, "d", "c").cycle == ("d", "c", "d")
    assert ask(graph, "d", "e").targets == ("e",)


def test_one_holder_that_works_is_enough() -> None:
    graph = WaitGraph()
    ask(graph, "holder 1", "a")
    wait = slot(graph, "a", "holder 1", "holder 2")
    assert graph.waits_of("a") == (wait,)


def test_when_every_holder_waits_for_the_waiter_it_is_a_deadlock() -> None:
    graph = WaitGraph()
    ask(graph, "holder 1", "a")
    ask(graph, "holder 2", "b")
    ask(graph, "b", "a")
    error = refused(slot, graph, "a", "holder 1", "holder 2")
    assert error.cycle == ("a", "holder 1", "a")
    assert "a waits for a slot held by holder 1 (or 1 more)" in str(error)


def test_the_wait_of_the_last_working_holder_is_the_one_refused() -> None:
    graph = WaitGraph()
    ask(graph, "holder 1", "a")
    slot(graph, "a", "holder 1", "holder 2")
    assert refused(ask, graph, "holder 2", "a").cycle == ("holder 2", "a", "holder 2")


def test_a_waiter_that_holds_a_slot_itself_does_not_count_as_one_who_can_free_it() -> None:
    graph = WaitGraph()
    assert refused(slot, graph, "a", "a").cycle == ("a", "a")
    assert slot(graph, "a", "a", "b").targets == ("a", "b")


def test_a_circle_that_a_third_holder_can_open_is_no_deadlock() -> None:
    graph = WaitGraph()
    slot(graph, "a", "b", "free")
    slot(graph, "b", "a", "free")
    wait = slot(graph, "free", "a", "outsider")
    assert refused(ask, graph, "outsider", "a").cycle == ("outsider", "a", "free", "outsider")
    graph.end(wait)
    ask(graph, "outsider", "a")


def test_a_full_mailbox_makes_its_owner_the_one_waited_for() -> None:
    graph = WaitGraph()
    graph.begin("sender", ["owner"], what="room in the mailbox of", any_of=False)
    error = refused(ask, graph, "owner", "sender")
    assert error.cycle == ("owner", "sender", "owner")
    assert "sender waits for room in the mailbox of owner" in str(error)


def test_a_wait_for_all_of_several_is_refused_when_one_of_them_leads_back() -> None:
    graph = WaitGraph()
    ask(graph, "c", "a")
    error = refused(ask, graph, "a", "b", "c", "d")
    assert error.cycle == ("a", "c", "a")
    assert "a waits for an answer from c (and 2 more)" in str(error)


def test_a_node_whose_other_task_still_works_closes_no_cycle() -> None:
    graph = WaitGraph()
    ask(graph, "supervisor", "child", alone=False)
    ask(graph, "child", "supervisor")
    ask(graph, "supervisor", "supervisor", alone=False)
    assert len(graph) == 3


def test_a_wait_that_becomes_alone_is_refused_then() -> None:
    graph = WaitGraph()
    aside = ask(graph, "a", "b", alone=False)
    ask(graph, "b", "a")
    graph.end(aside)
    assert refused(ask, graph, "a", "b").cycle == ("a", "b", "a")


def test_with_two_waits_that_block_it_a_node_needs_both_to_end() -> None:
    graph = WaitGraph()
    ask(graph, "a", "b")
    slot(graph, "a", "c", "d")
    assert refused(ask, graph, "b", "a").cycle == ("b", "a", "b")
    ask(graph, "c", "a")
    assert refused(ask, graph, "d", "a").cycle == ("d", "a", "d")


def test_a_wait_that_is_sure_to_end_is_no_part_of_the_cycle_that_is_named() -> None:
    graph = WaitGraph()
    slot(graph, "a", "free", "new")
    ask(graph, "a", "b")
    ask(graph, "b", "new")
    assert refused(ask, graph, "new", "a").cycle == ("new", "a", "b", "new")


def test_a_wait_for_the_outside_is_never_refused_and_may_always_end() -> None:
    graph = WaitGraph()
    human = graph.begin("a", (), what="an approval by", any_of=True)
    assert human.targets == ()
    ask(graph, "b", "a")
    assert graph.explain("b") == "b waits for an answer from a, which waits for an approval by somebody outside"


def test_a_live_set_of_holders_is_read_at_each_walk() -> None:
    holders = ["b"]
    graph = WaitGraph()
    wait = graph.begin("a", lambda: holders, what="a slot held by", any_of=True)
    holders[:] = ["c", "c"]
    assert wait.targets == ("c",)
    # The former holder may wait for whom it kept waiting; the one that holds the slot now may not.
    ended = ask(graph, "b", "a")
    assert refused(ask, graph, "c", "a").cycle == ("c", "a", "c")
    graph.end(ended)
    holders.clear()
    ask(graph, "c", "a")


def test_joining_others_that_are_stuck_is_refused_and_their_circle_is_named() -> None:
    holders = ["b", "free"]
    graph = WaitGraph()
    graph.begin("a", lambda: holders, what="a part of the budget held by", any_of=True)
    ask(graph, "b", "a")
    # Nobody makes a call here that could be refused.
    holders.remove("free")
    assert refused(ask, graph, "new", "a").cycle == ("new", "a", "b", "a")


def test_ending_a_wait_twice_is_ending_it_once() -> None:
    graph = WaitGraph()
    first, second = ask(graph, "a", "b", alone=False), ask(graph, "a", "b", alone=False)
    graph.end(first)
    graph.end(first)
    assert graph.waits_of("a") == (second,)
    graph.end(second)
    graph.end(first)
    assert graph.waits_of("a") == () and len(graph) == 0


def test_nothing_is_kept_of_waits_that_have_ended() -> None:
    graph = WaitGraph()
    for number in range(100):
        graph.end(ask(graph, number, number + 1))
    assert graph._waits == {}


def test_a_target_named_twice_is_one_target() -> None:
    graph = WaitGraph()
    assert ask(graph, "a", "b", "b").targets == ("b",)
    assert graph.explain("a") == "a waits for an answer from b"


def test_a_target_that_cannot_be_listed_leaves_nothing_behind() -> None:
    def broken() -> Iterable[str]:
        yield "b"
        raise KeyError("broken")

    graph = WaitGraph()
    with pytest.raises(KeyError):
        graph.begin("a", broken(), what="an answer from", any_of=False)
    assert len(graph) == 0


def test_explain_follows_the_waits_to_one_who_tells_why() -> None:
    graph = WaitGraph()
    slot(graph, "root/1", "root/2")
    ask(graph, "root/2", "root/3", "root/4")
    ask(graph, "root/4", "root/5", alone=False)
    ask(graph, "root/4", "root/6")
    assert graph.explain("root/1") == (
        "root/1 waits for a slot held by root/2, which waits for an answer from root/4 (and 1 more),"
        " which waits for an answer from root/6"
    )
    assert graph.explain("root/6") == "root/6 waits for nobody"


def test_explain_ends_also_in_a_circle() -> None:
    graph = WaitGraph()
    ask(graph, "a", "b", alone=False)
    ask(graph, "b", "a")
    assert graph.explain("a") == "a waits for an answer from b, which waits for an answer from a"


def test_names_are_made_by_the_given_function() -> None:
    graph = WaitGraph(lambda node: f"node {node}")
    ask(graph, 1, 2)
    assert refused(ask, graph, 2, 1).cycle == ("node 2", "node 1", "node 2")
    assert graph.explain(1) == "node 1 waits for an answer from node 2"


# ── against a model too simple to be wrong ──────────────────────────────────

NODES = range(4)


@attrs.frozen
class Fact:
    """One wait as the model sees it."""

    waiter: int
    targets: frozenset[int]
    any_of: bool
    alone: bool

    def ends_after(self, done: set[int]) -> bool:
        if not self.targets:
            return True
        return bool(self.targets & done) if self.any_of else self.targets <= done


def can_go_on(node: int, facts: list[Fact]) -> bool:
    """Try every order in which the nodes could finish one after the other."""
    for order in permutations(NODES):
        done: set[int] = set()
        for one in order:
            if not all(fact.ends_after(done) for fact in facts if fact.waiter == one and fact.alone):
                break
            done.add(one)
        if node in done:
            return True
    return False


FACTS = st.builds(
    Fact,
    st.sampled_from(NODES),
    st.frozensets(st.sampled_from(NODES), max_size=3),
    st.booleans(),
    # Mostly alone: the others never matter.
    st.sampled_from([True, True, True, False]),
)


def begin(graph: WaitGraph, fact: Fact) -> Wait:
    return graph.begin(fact.waiter, sorted(fact.targets), what="it", any_of=fact.any_of, alone=fact.alone)


def check_cycle(cycle: tuple[str, ...], facts: list[Fact], waiter: int) -> None:
    assert cycle[0] == cycle[-1] == str(waiter)
    assert len(set(cycle)) == len(cycle) - 1
    for one, other in pairwise(map(int, cycle)):
        assert any(fact.waiter == one and fact.alone and other in fact.targets for fact in facts)
        assert not can_go_on(one, facts)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(FACTS, FACTS, FACTS, st.integers(0, 9)), min_size=2, max_size=16))
def test_a_wait_is_refused_exactly_when_no_order_of_finishing_frees_its_waiter(steps: list[Fact | int]) -> None:
    graph = WaitGraph()
    standing: dict[Wait, Fact] = {}
    for step in steps:
        if isinstance(step, int):
            if standing:
                wait = list(standing)[step % len(standing)]
                graph.end(wait)
                del standing[wait]
            continue
        facts = [*standing.values(), step]
        try:
            wait = begin(graph, step)
        except WouldDeadlock as error:
            assert step.alone and not can_go_on(step.waiter, facts)
            check_cycle(error.cycle, facts, step.waiter)
        else:
            assert not step.alone or can_go_on(step.waiter, facts)
            standing[wait] = step
        assert {wait for node in NODES for wait in graph.waits_of(node)} == set(standing)
        assert len(graph) == len(standing)
    assert all(can_go_on(node, list(standing.values())) for node in NODES)


# ── limits: marks, holders, and who works beside its wait ───────────────────

LIMIT = "limit"


@attrs.define
class Marked:
    """What stands beside the entries of a graph: marks, one limit, and nodes with tasks of their own."""

    awaits: dict[object, object] = attrs.Factory(dict)
    holders: frozenset[int] = frozenset()
    beside: frozenset[int] = frozenset()

    def graph(self) -> WaitGraph:
        return WaitGraph(str, self.standing, lambda node: node in self.beside)

    def standing(self, node: object) -> Wait | None:
        if node == LIMIT:
            return Wait(LIMIT, "", True, True, tuple(sorted(self.holders))) if self.holders else None
        target = self.awaits.get(node)
        if target is None:
            return None
        return Wait(node, "a slot held by" if target == LIMIT else "the end of", False, True, (target,))


@attrs.frozen
class Step:
    """A wait that begins, by an entry or by a mark."""

    waiter: int
    targets: frozenset[object]
    any_of: bool
    lends: bool
    by_mark: bool = False


def free(wait: Step, marked: Marked, done: set[int], lender: int | None) -> bool:
    """Tell whether a wait ends once all of ``done`` have finished."""

    def ends(target: object) -> bool:
        if target == LIMIT:
            return not marked.holders or bool(marked.holders & (done | marked.beside | {lender}))
        return target in done or (wait.any_of and target in marked.beside)

    return not wait.targets or (any if wait.any_of else all)(ends(target) for target in wait.targets)


def may_begin(new: Step, standing: list[Step], marked: Marked) -> bool:
    """Try every order in which the nodes could finish, with only the new wait for its waiter."""
    marks = [Step(node, frozenset({to}), False, False) for node, to in marked.awaits.items()]  # type: ignore[arg-type]
    lender = new.waiter if new.lends else None
    for order in permutations(NODES):
        done: set[int] = set()
        for one in order:
            waits = [new] if one == new.waiter else [wait for wait in standing + marks if wait.waiter == one]
            if not all(free(wait, marked, done, lender) for wait in waits):
                break
            done.add(one)
        if new.waiter in done:
            return True
    return False


def linked(one: int, other: int, waits: list[Step], marked: Marked) -> bool:
    to = [target for wait in waits if wait.waiter == one for target in wait.targets]
    to.append(marked.awaits.get(one))
    return other in to or (LIMIT in to and other in marked.holders)


NODE = st.sampled_from(NODES)
FEW = st.frozensets(NODE, max_size=3)
TARGETS = st.one_of(FEW, FEW, st.just(frozenset({LIMIT})))
ONE_TARGET = st.one_of(NODE, st.just(LIMIT)).map(lambda target: frozenset({target}))
OPERATIONS = st.one_of(
    st.builds(Step, NODE, TARGETS, st.booleans(), st.booleans()),
    st.builds(Step, NODE, ONE_TARGET, st.just(False), st.booleans(), st.just(True)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("unmark"), NODE),
    st.tuples(st.just("holders"), FEW),
    st.tuples(st.just("beside"), st.frozensets(NODE, max_size=1)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, min_size=3, max_size=20))
def test_with_limits_a_wait_is_refused_exactly_when_no_order_of_finishing_frees_its_waiter(steps: list[object]) -> None:
    marked = Marked()
    graph = marked.graph()
    standing: dict[Wait, Step] = {}
    for step in steps:
        match step:
            case ("end", int(number)):
                if standing:
                    wait = list(standing)[number % len(standing)]
                    graph.end(wait)
                    del standing[wait]
            case ("unmark", int(node)):
                marked.awaits.pop(node, None)
            case ("holders", frozenset() as holders):
                marked.holders = holders
            case ("beside", frozenset() as beside):
                marked.beside = beside
            case Step(by_mark=True):
                [target] = step.targets
                # A mark closes a cycle only with an entry in it.
                fine = not standing or may_begin(step, list(standing.values()), marked)
                try:
                    graph.check(step.waiter, target, what="it", lends=step.lends)
                except WouldDeadlock as error:
                    assert not fine
                    check_names(error.cycle, step, standing, marked)
                else:
                    assert fine
                    marked.awaits[step.waiter] = target
            case Step():
                fine = may_begin(step, list(standing.values()), marked)
                targets = sorted(step.targets, key=str)
                try:
                    wait = graph.begin(step.waiter, targets, what="it", any_of=step.any_of, lends=step.lends)
                except WouldDeadlock as error:
                    assert not fine
                    check_names(error.cycle, step, standing, marked)
                else:
                    assert fine
                    standing[wait] = step
        assert len(graph) == len(standing)
    for wait in standing:
        graph.end(wait)
    assert len(graph) == 0


def check_names(cycle: tuple[str, ...], step: Step, standing: dict[Wait, Step], marked: Marked) -> None:
    assert cycle[0] == str(step.waiter) and LIMIT not in cycle
    assert cycle[-1] in cycle[:-1] and len(set(cycle)) == len(cycle) - 1
    for one, other in pairwise(map(int, cycle)):
        assert linked(one, other, [step] if one == step.waiter else list(standing.values()), marked)


def test_a_cycle_through_a_limit_names_its_holder_and_not_the_limit() -> None:
    marked = Marked({1: LIMIT}, frozenset({0}))
    graph = marked.graph()
    ask(graph, "clerk", 1)
    error = refused(ask, graph, 0, "clerk")
    assert error.cycle == ("0", "clerk", "1", "0")
    assert "clerk waits for an answer from 1; 1 waits for a slot held by 0)" in str(error)
    marked.holders = frozenset({0, 2})
    ask(graph, 2, "clerk")
    assert "1 waits for a slot held by 0 (or 1 more))" in str(refused(ask, graph, 0, "clerk"))


def test_joining_others_that_are_stuck_on_a_limit_names_a_holder_twice_and_never_the_limit() -> None:
    marked = Marked({1: LIMIT, 2: LIMIT}, frozenset({0}))
    graph = marked.graph()
    marked.beside = frozenset({0})
    # Its other task could have given the slot back; then that one ended.
    ask(graph, 0, 1)
    marked.beside = frozenset()
    assert refused(ask, graph, 3, 2).cycle == ("3", "2", "0", "1", "0")


def test_a_limit_with_one_holder_at_work_is_looked_at_no_further() -> None:
    class Holders(Marked):
        asked = 0

        def standing(self, node: object) -> Wait | None:
            self.asked += 1
            return super().standing(node)

    marked = Holders({1: LIMIT}, frozenset(range(2, 1_000)))
    graph = marked.graph()
    ask(graph, "a", "b")
    marked.asked = 0
    graph.check(0, LIMIT, what="a slot held by")
    assert 0 < marked.asked < 10


# ── the cost ────────────────────────────────────────────────────────────────


class Counted:
    """A node that counts how often the graph looks it up."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        Counted.looks += 1
        return self.number

    def __str__(self) -> str:
        return str(self.number)


def looks_of(work: Callable[[], object]) -> int:
    before = Counted.looks
    work()
    return Counted.looks - before


def chain(length: int) -> tuple[WaitGraph, list[Counted]]:
    graph = WaitGraph()
    nodes = [Counted(number) for number in range(length)]
    for waiter, target in pairwise(nodes):
        ask(graph, waiter, target)
    return graph, nodes


def test_a_cycle_through_100_000_is_found_whole_and_told_in_a_short_text() -> None:
    graph, nodes = chain(100_000)
    error = refused(ask, graph, nodes[-1], nodes[0])
    assert len(error.cycle) == 100_001 and error.cycle[:3] == ("99999", "0", "1")
    assert f"-> 4 -> ... {100_001 - SHOWN} more ... -> 99998 -> 99999 (" in str(error)
    assert len(str(error)) < 1_000
    assert graph.explain(nodes[0]).endswith("an answer from 8, and so on")


def test_the_cost_of_a_walk_grows_with_what_it_reaches_and_no_faster() -> None:
    def cost(length: int) -> int:
        graph, nodes = chain(length)
        return looks_of(lambda: refused(ask, graph, nodes[-1], nodes[0]))

    small, large = cost(1_000), cost(4_000)
    assert 0 < small < 1_000 * 40
    assert large <= small * 4 + 100


def test_the_cost_of_a_walk_over_many_holders_grows_with_the_edges_and_no_faster() -> None:
    def cost(width: int) -> int:
        graph = WaitGraph()
        last = Counted(0)
        holders = [Counted(number) for number in range(1, width)]
        waiters = [Counted(-number) for number in range(2, 12)]
        for waiter in waiters:
            slot(graph, waiter, last, *holders)
        for holder in holders:
            slot(graph, holder, *waiters)
        return looks_of(lambda: refused(slot, graph, last, *waiters))

    small, large = cost(100), cost(400)
    assert large <= small * 4 + 400


def test_a_wait_for_one_who_works_costs_the_same_in_any_graph() -> None:
    def cost(length: int) -> int:
        graph, nodes = chain(length)
        return looks_of(lambda: ask(graph, nodes[-1], Counted(-7)))

    assert cost(10) == cost(10_000) < 10


def test_a_wait_for_any_of_several_costs_no_walk_while_one_of_them_works() -> None:
    graph, nodes = chain(10_000)
    assert looks_of(lambda: slot(graph, nodes[-1], nodes[0], Counted(-7))) < 20


def test_what_the_targets_do_not_reach_costs_nothing() -> None:
    graph, nodes = chain(10_000)
    other = [Counted(-number) for number in range(2, 6)]
    for waiter, target in pairwise(other):
        ask(graph, waiter, target)
    assert looks_of(lambda: refused(ask, graph, other[-1], other[0])) < 200
    assert len(graph.waits_of(nodes[0])) == 1
