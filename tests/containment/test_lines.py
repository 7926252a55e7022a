"""The lines before the slots, each beside a model too simple to be wrong."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from actors.containment.lines import LINES, FairLine, FifoLine, QueueOrder


@attrs.frozen
class Waiter:
    name: int
    parent: int


STEPS = st.lists(st.tuples(st.sampled_from(["add", "serve", "discard", "promote"]), st.integers(0, 9)), max_size=40)


@given(STEPS)
def test_first_come_first_served_whatever_leaves_or_is_promoted(steps: list[tuple[str, int]]) -> None:
    line, model = FifoLine(), []  # type: FifoLine, list[Waiter]
    for number, (what, which) in enumerate(steps):
        if what == "add":
            waiter = Waiter(number, which % 3)
            line.add(waiter)
            model.append(waiter)
        elif model and what == "serve":
            assert line.head() == model[0]
            line.served(model.pop(0))
        elif model:
            waiter = model.pop(which % len(model))
            if what == "promote":
                assert line.promote(waiter)
                model.insert(0, waiter)
            else:
                assert line.discard(waiter) and not line.discard(waiter) and not line.promote(waiter)
        assert line.size == len(model)


@given(STEPS)
def test_parents_take_turns_whatever_leaves_or_is_promoted(steps: list[tuple[str, int]]) -> None:
    line = FairLine()
    promoted: list[Waiter] = []
    turns: list[list[Waiter]] = []
    for number, (what, which) in enumerate(steps):
        there = [*promoted, *(waiter for turn in turns for waiter in turn)]
        if what == "add":
            waiter = Waiter(number, which % 3)
            line.add(waiter)
            own = next((turn for turn in turns if turn[0].parent == waiter.parent), None)
            if own is None:
                turns.append([waiter])
            else:
                own.append(waiter)
        elif there and what == "serve":
            assert line.head() == there[0]
            line.served(there[0])
            if promoted:
                promoted.pop(0)
            else:
                turns[0].pop(0)
                turns.append(turns.pop(0))
        elif there:
            waiter = there[which % len(there)]
            for held in (promoted, *turns):
                if waiter in held:
                    held.remove(waiter)
            if what == "promote":
                assert line.promote(waiter)
                promoted.insert(0, waiter)
            else:
                assert line.discard(waiter) and not line.discard(waiter) and not line.promote(waiter)
        turns = [turn for turn in turns if turn]
        assert line.size == len(promoted) + sum(map(len, turns))


def test_nothing_is_kept_of_a_parent_whose_children_have_left() -> None:
    line = FairLine()
    for number in range(100):
        waiter = Waiter(number, number)
        line.add(waiter)
        assert line.discard(waiter)
    assert not line._turns and not line.size


def test_every_order_has_a_line() -> None:
    assert set(LINES) == set(QueueOrder)
