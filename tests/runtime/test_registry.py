"""Names: each leads to the one that lives now, and nothing is kept of those that ended."""

import gc
import weakref

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.errors import Refused
from actors.runtime.registry import AlreadyRegistered, NameRestarting, Registry


@attrs.frozen(eq=False)
class Ref:
    path: str


def empty(registry: Registry[Ref]) -> bool:
    return not (registry._refs or registry._restarting or registry._waiting)


def test_a_name_leads_to_its_ref_until_it_is_given_back() -> None:
    registry: Registry[Ref] = Registry()
    ref = Ref("root/1")
    assert registry.whereis("a") is None
    registry.register("b", Ref("root/2"))
    registry.register("a", ref)
    assert registry.whereis("a") is ref and registry.names() == ("b", "a")
    registry.unregister("a", ref)
    assert registry.whereis("a") is None and registry.names() == ("b",)


def test_A12_a_taken_name_is_refused_with_the_ref_that_has_it_and_nothing_is_left_behind() -> None:
    registry: Registry[Ref] = Registry()
    first = Ref("root/1")
    registry.register("a", first)
    for other in (Ref("root/2"), first):
        with pytest.raises(AlreadyRegistered) as caught:
            registry.register("a", other)
        assert caught.value.ref is first and caught.value.name == "a"
        assert str(caught.value) == "the name 'a' is taken by root/1"
    assert isinstance(caught.value, Refused)
    registry.unregister("a", first)
    assert empty(registry)


def test_a_late_unregister_does_not_take_the_name_from_the_next_incarnation() -> None:
    registry: Registry[Ref] = Registry()
    old, new = Ref("root/1"), Ref("root/1")
    registry.register("a", old)
    registry.unregister("a", old)
    registry.register("a", new)
    registry.unregister("a", old)
    registry.unregister("unknown", old)
    assert registry.whereis("a") is new


@pytest.mark.parametrize("marked_first", [True, False])
def test_N15_between_two_incarnations_a_marked_name_says_so_and_then_leads_to_the_new_one(marked_first: bool) -> None:
    registry: Registry[Ref] = Registry()
    old, new = Ref("root/1"), Ref("root/1")
    registry.register("a", old)
    if marked_first:
        registry.restarting("a")
        assert registry.whereis("a") is old
    registry.unregister("a", old)
    registry.restarting("a")
    with pytest.raises(NameRestarting) as caught:
        registry.whereis("a")
    assert isinstance(caught.value, Refused) and str(caught.value) == "'a' is restarting"
    assert caught.value.name == "a" and registry.names() == ()
    registry.register("a", new)
    assert registry.whereis("a") is new
    # The mark is gone for good, not only covered.
    registry.unregister("a", new)
    assert registry.whereis("a") is None and empty(registry)


def test_a_forgotten_name_is_unknown_again() -> None:
    registry: Registry[Ref] = Registry()
    registry.restarting("a")
    registry.forget("a")
    registry.forget("a")
    assert registry.whereis("a") is None and empty(registry)


async def test_a_waiting_look_up_is_woken_by_the_register_also_of_a_marked_name() -> None:
    registry: Registry[Ref] = Registry()
    ref = Ref("root/1")
    found: list[Ref] = []

    async def look_up(name: str) -> None:
        found.append(await registry.wait_for(name))

    registry.restarting("a")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(look_up, "a")
        nursery.start_soon(look_up, "b")
        await trio.testing.wait_all_tasks_blocked()
        registry.register("a", ref)
        await trio.testing.wait_all_tasks_blocked()
        assert found == [ref] * 3
        registry.register("b", ref)
    assert found == [ref] * 4
    assert await registry.wait_for("a") is ref
    registry.unregister("a", ref)
    registry.unregister("b", ref)
    assert empty(registry)


async def test_a_look_up_is_never_given_one_that_ended_before_it_ran() -> None:
    registry: Registry[Ref] = Registry()
    brief, lasting = Ref("root/1"), Ref("root/1")
    found: list[Ref] = []

    async def look_up() -> None:
        found.append(await registry.wait_for("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_up)
        await trio.testing.wait_all_tasks_blocked()
        registry.register("a", brief)
        registry.unregister("a", brief)
        await trio.testing.wait_all_tasks_blocked()
        assert found == []
        registry.register("a", lasting)
    assert found == [lasting]


async def test_a_cancelled_look_up_leaves_nothing_and_disturbs_no_other(autojump_clock: trio.testing.MockClock) -> None:
    registry: Registry[Ref] = Registry()
    ref = Ref("root/1")
    found: list[Ref] = []

    async def look_up() -> None:
        found.append(await registry.wait_for("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_up)
        with trio.move_on_after(3) as scope:
            await registry.wait_for("a")
        assert scope.cancelled_caught
        assert len(registry._waiting["a"]) == 1
        nursery.cancel_scope.cancel()
    assert found == [] and empty(registry)
    registry.register("a", ref)
    assert registry.whereis("a") is ref


async def test_a_look_up_is_a_checkpoint_also_when_the_name_is_taken() -> None:
    registry: Registry[Ref] = Registry()
    registry.register("a", Ref("root/1"))
    with trio.testing.assert_checkpoints():
        await registry.wait_for("a")


def test_nothing_grows_with_ended_actors() -> None:
    registry: Registry[Ref] = Registry()
    gone = []
    for number in range(1_000):
        ref = Ref(f"root/{number}")
        gone.append(weakref.ref(ref))
        registry.register(f"name {number % 7}", ref)
        registry.restarting(f"name {number % 7}")
        registry.unregister(f"name {number % 7}", ref)
        registry.forget(f"name {number % 7}")
    del ref
    gc.collect()
    assert empty(registry) and all(one() is None for one in gone)


class Names(RuleBasedStateMachine):
    """The registry beside a plain list of what happened: who has a name, and whether it is marked."""

    NAMES = st.sampled_from(["a", "b"])
    REFS = st.sampled_from([Ref("root/1"), Ref("root/2"), Ref("root/3")])

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[Ref] = Registry()
        self.has: list[tuple[str, Ref]] = []
        self.marked: list[str] = []

    def holder(self, name: str) -> Ref | None:
        return next((ref for taken, ref in self.has if taken == name), None)

    @rule(name=NAMES, ref=REFS)
    def register(self, name: str, ref: Ref) -> None:
        holder = self.holder(name)
        if holder is not None:
            with pytest.raises(AlreadyRegistered) as caught:
                self.registry.register(name, ref)
            assert caught.value.ref is holder
            return
        self.registry.register(name, ref)
        self.has.append((name, ref))
        self.marked = [one for one in self.marked if one != name]

    @rule(name=NAMES, ref=REFS)
    def unregister(self, name: str, ref: Ref) -> None:
        self.registry.unregister(name, ref)
        self.has = [entry for entry in self.has if entry != (name, ref)]

    @rule(name=NAMES)
    def mark(self, name: str) -> None:
        self.registry.restarting(name)
        self.marked.append(name)

    @rule(name=NAMES)
    def forget(self, name: str) -> None:
        self.registry.forget(name)
        self.marked = [one for one in self.marked if one != name]

    @invariant()
    def every_look_up_answers_as_the_model(self) -> None:
        assert self.registry.names() == tuple(name for name, _ in self.has)
        for name in ("a", "b"):
            if self.holder(name) is None and name in self.marked:
                with pytest.raises(NameRestarting):
                    self.registry.whereis(name)
            else:
                assert self.registry.whereis(name) is self.holder(name)


Names.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestNames = Names.TestCase
