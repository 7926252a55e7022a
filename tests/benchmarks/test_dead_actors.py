"""What looks for growing tables finds them, wherever they hang."""

from collections import deque

import attrs
import trio

from actors.runtime.open_supervisor import open_supervisor
from actors.runtime.restart import Restart
from actors.runtime.specs import ChildSpec, Flags
from benchmarks.dead_actors import _grown, sizes


class Hidden:
    __slots__ = ("names", "ring")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.ring: deque[int] = deque(maxlen=8)

    def hear(self) -> None:
        """Be held as a bound method."""


@attrs.define
class Top:
    by_path: dict[str, list[int]] = attrs.Factory(dict)
    hook: object = None


# Only objects of the packages that are looked at are gone into; these stand for one.
Hidden.__module__ = Top.__module__ = "benchmarks.fake"


def test_every_kind_of_table_is_counted_by_the_field_that_holds_it() -> None:
    hidden = Hidden()
    hidden.names |= {"a", "b"}
    top = Top({"x": [1, 2, 3], "y": [4]}, hidden.hear)
    # Lists within a dict count with it; a ring counts as full.
    assert sizes(top) == {"Top.by_path": 2 + 3 + 1, "Hidden.names": 2, "Hidden.ring": 8}


def test_a_table_that_is_reached_twice_is_counted_once() -> None:
    shared = [1, 2]
    assert sizes(Top({"x": shared, "y": shared})) == {"Top.by_path": 2 + 2}


async def test_a_supervisor_that_forgot_nothing_would_be_found_out() -> None:
    async def child() -> None:
        """End at once."""

    tree = open_supervisor((), Flags(dynamic=True))
    async with tree as top:

        async def once(number: int) -> None:
            answer = await top.start_child(ChildSpec("child", child, restart=Restart.temporary))
            await answer.ref.wait()
            if number >= 30:
                kept[number] = answer.ref

        kept = tree.host.abandoned
        grown = await _grown(tree, once, 50)
        kept.clear()
        assert grown.tables == {"Host.abandoned": 20}
        clean = await _grown(tree, once=lambda number: once(0), n=50)
        assert clean.tables == {} and clean.entries == 0


async def test_trio_s_own_tables_are_reached_from_a_tree() -> None:
    tree = open_supervisor()
    async with tree, trio.open_nursery() as nursery:
        before = sizes(tree)
        for _ in range(7):
            nursery.start_soon(trio.sleep_forever)
        await trio.lowlevel.checkpoint()
        after = sizes(tree)
        nursery.cancel_scope.cancel()
    grown = {name: size - before.get(name, 0) for name, size in after.items()}
    assert grown["Runner.tasks"] == 7
    assert grown["Nursery._children"] == 7


async def test_a_table_that_only_swings_has_not_grown_and_one_that_grows_beside_it_has() -> None:
    top = Top()

    async def once(number: int) -> None:
        # Three entries in every fourth round, and at the end of all that are counted.
        top.by_path["swings"] = [0] * 3 if number >= 10 and number % 4 == 3 else []
        if grows:
            top.by_path.setdefault("grows", []).append(number)
        await trio.lowlevel.checkpoint()

    grows = False
    assert (await _grown(top, once, 100)).tables == {}
    grows = True
    # One more of the look that showed what only swings.
    assert (await _grown(top, once, 100)).tables == {"Top.by_path": 90 + 1}
