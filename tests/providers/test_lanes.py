"""As many calls as there are connections, spread evenly, and none lost when one is cancelled."""

import random

import httpx
import pytest
import trio

from actors.errors import ConfigError
from actors.providers.lanes import Lanes


async def test_no_more_calls_run_than_there_are_connections_and_lanes_fill_evenly(autojump_clock):
    lanes = Lanes(7, per_lane=3)
    peak = 0
    loads: dict[httpx.AsyncClient, int] = {}
    highest: dict[httpx.AsyncClient, int] = {}

    async def call() -> None:
        nonlocal peak
        async with lanes.lease() as client:
            loads[client] = loads.get(client, 0) + 1
            highest[client] = max(highest.get(client, 0), loads[client])
            peak = max(peak, sum(loads.values()))
            await trio.sleep(1)
            loads[client] -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(call)
    assert peak == lanes.capacity == 7
    assert sorted(highest.values()) == [2, 2, 3]
    assert trio.current_time() == 5.0
    assert (lanes.in_use, lanes.waiting) == (0, 0)
    await lanes.aclose()


async def test_one_call_after_the_other_uses_one_client():
    lanes = Lanes(20, per_lane=5)
    for _ in range(3):
        async with lanes.lease():
            assert lanes.in_use == 1
    assert len(lanes.clients) == 1
    await lanes.aclose()


async def test_a_slow_call_holds_nobody_up_while_another_connection_is_free(autojump_clock):
    lanes = Lanes(2, per_lane=1)
    ends: list[float] = []

    async def call(seconds: float) -> None:
        async with lanes.lease():
            await trio.sleep(seconds)
        ends.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, 100)
        await trio.sleep(0.5)
        for _ in range(5):
            nursery.start_soon(call, 1)
    assert ends == [1.5, 2.5, 3.5, 4.5, 5.5, 100.0]
    await lanes.aclose()


async def test_cancelled_calls_leave_the_lanes_empty(autojump_clock):
    lanes = Lanes(4, per_lane=2)
    chance = random.Random(1)

    async def call() -> None:
        with trio.move_on_after(chance.uniform(0, 3)):
            async with lanes.lease():
                await trio.sleep(chance.uniform(0, 3))

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(call)
    assert (lanes.in_use, lanes.waiting) == (0, 0)
    assert all(lane.in_use == 0 for lane in lanes._lanes)
    await lanes.aclose()


async def test_a_client_of_the_caller_is_used_behind_the_gate_and_stays_open():
    async with httpx.AsyncClient() as client:
        lanes = Lanes(3, client=client)
        async with lanes.lease() as first, lanes.lease() as second:
            assert first is second is client
        await lanes.aclose()
        assert not client.is_closed


async def test_closed_lanes_close_their_clients_and_take_no_call():
    lanes = Lanes(2)
    async with lanes.lease() as client:
        pass
    await lanes.aclose()
    assert client.is_closed
    with pytest.raises(trio.ClosedResourceError):
        async with lanes.lease():
            pass
    assert lanes.in_use == 0


@pytest.mark.parametrize("bad", [0, -1, 4097, True, 1.0, None])
def test_a_number_of_connections_that_cannot_be_is_refused(bad):
    with pytest.raises(ConfigError, match=r"lanes\.connections: must be a whole number from 1 to 4096"):
        Lanes(bad)


def test_a_lane_stays_small():
    with pytest.raises(ConfigError, match=r"lanes\.per_lane: must be a whole number from 1 to 10"):
        Lanes(100, per_lane=11)
