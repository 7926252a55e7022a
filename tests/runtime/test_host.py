"""The shelter: an outside cancel becomes an orderly stop, and what does not stop is named."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from actors.errors import Stopping
from actors.runtime.child import Child
from actors.runtime.exits import Reason
from actors.runtime.host import Host
from actors.runtime.stops import How

Log = list[str]


class Node(Child):
    """A child that runs a function of itself."""

    __slots__ = ("body", "log")

    def __init__(
        self,
        path: str,
        parent: Child | None,
        host: Host,
        body: Callable[["Node"], Awaitable[Any]],
        log: Log | None = None,
    ) -> None:
        super().__init__(path, parent, host, may_parent=True)
        self.body = body
        self.log: Log = [] if log is None else log

    async def work(self) -> Any:
        return await self.body(self)

    def ended(self, exit: Any) -> None:
        self.log.append(f"{trio.current_time():g}s {self.path} {exit.reason}")

    def spawn(self, name: str, body: Callable[["Node"], Awaitable[Any]]) -> "Node":
        child = Node(f"{self.path}/{name}", self, self.host, body, self.log)  # type: ignore[arg-type]
        self.start_child(child)
        return child


def quiet_host() -> Host:
    return Host(lambda *_: None)


async def forever(_node: Node) -> None:
    await trio.sleep_forever()


def root_of(host: Host, body: Callable[[Node], Awaitable[Any]]) -> Node:
    root = Node("root", None, host, body)
    host.nursery.start_soon(root._main)
    return root


async def test_a_crash_touches_no_sibling_and_becomes_one_exit() -> None:
    async def crash(_node: Node) -> None:
        raise ValueError("x")

    async def body(node: Node) -> str:
        bad, good = node.spawn("bad", crash), node.spawn("good", forever)
        assert str((await bad.wait_ended()).cause) == "x"
        assert good.exit is None
        good.order_stop("enough")
        return str((await good.wait_ended()).reason)

    async with quiet_host() as host:
        root = root_of(host, body)
        await root.wait_ended()
        assert root.value == "shutdown"


async def test_a_parent_ends_after_its_children_and_then_in_its_own_right(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def nap(_node: Node) -> None:
        await trio.sleep(3)

    async def body(node: Node) -> int:
        node.spawn("a", nap)
        return 7

    async with quiet_host() as host:
        root = root_of(host, body)
        exit = await root.wait_ended()
        assert (exit.reason, root.value) == (Reason.normal, 7)
        assert root.log == ["3s root/a normal", "3s root normal"]


async def test_stopping_is_leaf_first_and_the_receipt_names_everyone(autojump_clock: trio.testing.MockClock) -> None:
    async def slow_to_clean(_node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async def middle(node: Node) -> None:
        node.spawn("leaf", slow_to_clean)
        await trio.sleep_forever()

    async def body(node: Node) -> None:
        node.spawn("middle", middle)
        node.spawn("quick", forever)
        await trio.sleep_forever()

    async with quiet_host() as host:
        root = root_of(host, body)
        await trio.sleep(1)
        receipt = await host.wind_down(root, "why", 5.0)
        assert root.log == [
            "1s root/quick shutdown",
            "3s root/middle/leaf shutdown",
            "3s root/middle shutdown",
            "3s root shutdown",
        ]
        assert receipt.complete and {line.how for line in receipt.stopped} == {How.clean}
        assert root.exit is not None and root.exit.payload == "why" and root.exit.asked_at == 1


async def test_O9_a_child_that_swallows_its_cancel_is_named(autojump_clock: trio.testing.MockClock) -> None:
    let_go = False

    async def stubborn(_node: Node) -> None:
        while not let_go:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(100)

    async def body(node: Node) -> None:
        node.spawn("stubborn", stubborn)
        await trio.sleep_forever()

    async with quiet_host() as host:
        root = root_of(host, body)
        await trio.sleep(1)
        receipt = await host.wind_down(root, "why", 5.0)
        assert trio.current_time() == 7
        assert set(receipt.not_ended) == {"root/stubborn", "root"}
        assert root.log == ["7s root/stubborn killed", "7s root killed"]
        let_go = True
    assert host.abandoned == {}
    assert root.exit is not None and not root.exit.left


async def test_a_hot_loop_that_swallows_its_cancel_is_named_also_on_a_clock_that_stands() -> None:
    let_go = False

    async def hot(_node: Node) -> None:
        while not let_go:
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                continue

    async def main() -> None:
        nonlocal let_go
        async with quiet_host() as host:
            root = root_of(host, hot)
            await trio.lowlevel.checkpoint()
            receipt = await host.wind_down(root, "why", 0.0)
            assert receipt.not_ended == ("root",)
            let_go = True

    with trio.CancelScope(shield=True):
        await main()


async def test_an_outside_cancel_is_told_by_the_sentinel_and_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    told: list[tuple[str, str]] = []
    root: Node | None = None

    def outside(by: str, why: str, error: BaseException | None) -> None:
        told.append((by, why))
        assert root is not None
        root.order_stop(why)

    with trio.move_on_after(2) as scope:
        async with Host(outside) as host:
            root = root_of(host, forever)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == 2
    assert told[0][0] == "host"
    assert root is not None and root.exit is not None and root.exit.reason is Reason.shutdown


async def test_nothing_starts_in_what_is_ending() -> None:
    async def body(node: Node) -> None:
        await trio.sleep_forever()

    async with quiet_host() as host:
        root = root_of(host, body)
        await trio.testing.wait_all_tasks_blocked()
        root.order_stop("why")
        with pytest.raises(Stopping):
            root.spawn("late", forever)
        await root.wait_ended()
        with pytest.raises(Stopping):
            root.spawn("later", forever)


async def test_a_stop_before_the_first_step_is_not_lost() -> None:
    began = []

    async def body(node: Node) -> None:
        await trio.lowlevel.checkpoint()
        began.append(1)

    async with quiet_host() as host:
        root = root_of(host, body)
        root.order_stop("why")
        exit = await root.wait_ended()
        assert exit.reason is Reason.shutdown and began == []


async def test_BR3_a_real_error_that_a_cancel_swallowed_is_in_the_exit() -> None:
    async def body(_node: Node) -> None:
        try:
            raise KeyError("real")
        finally:
            await trio.sleep_forever()

    async with quiet_host() as host:
        root = root_of(host, body)
        await trio.testing.wait_all_tasks_blocked()
        root.order_stop("why")
        exit = await root.wait_ended()
        assert exit.reason is Reason.shutdown
        assert isinstance(exit.lost, KeyError) and "real" in str(exit)


async def test_a_group_with_a_cancel_in_it_is_an_error_without_it() -> None:
    async def body(_node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise OSError("disk")

    async with quiet_host() as host:
        exit = await root_of(host, body).wait_ended()
        assert exit.reason is Reason.error
        assert isinstance(exit.cause, OSError) and isinstance(exit.raised, BaseExceptionGroup)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_is_no_exception_is_kept_for_the_host(error: type[BaseException]) -> None:
    told: list[str] = []

    async def body(_node: Node) -> None:
        raise error("now")

    host = Host(lambda by, why, raised: told.append(by))
    async with host:
        exit = await root_of(host, body).wait_ended()
        assert exit.reason is Reason.error
    assert isinstance(host.fatal, error) and told == ["root"]


async def test_ten_thousand_that_come_and_go_leave_nothing() -> None:
    async def brief(_node: Node) -> None:
        return None

    async def body(node: Node) -> int:
        for number in range(10_000):
            await node.spawn(str(number), brief).wait_ended()
        return len(node.children or ())

    async with quiet_host() as host:
        root = root_of(host, body)
        await root.wait_ended()
        assert root.value == 0 and len(host.deadlines) == 0
