"""One heap for all timeouts."""

import trio

from actors.runtime.deadlines import Deadlines


async def test_fires_in_order_at_the_exact_time(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines()
    log: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        deadlines.at(5, lambda: log.append(f"{trio.current_time():g} late"))
        dropped = deadlines.at(2, lambda: log.append("never"))
        await trio.sleep(1)
        deadlines.at(3, lambda: log.append(f"{trio.current_time():g} soon"))
        deadlines.at(0, lambda: log.append(f"{trio.current_time():g} past"))
        dropped.cancel()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert log == ["1 past", "3 soon", "5 late"]


async def test_what_was_cancelled_does_not_pile_up(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines()
    for _ in range(10_000):
        deadlines.at(1e6, lambda: None).cancel()
    assert len(deadlines) == 0
    assert len(deadlines._heap) <= 130
