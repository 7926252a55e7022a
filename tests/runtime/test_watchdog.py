"""The lag watchdog, against real busy loops: their lengths are real time, so only bounds far apart are asserted."""

import logging
import threading
import time
from typing import Any

import pytest
import trio

from actors.runtime.child import Child
from actors.runtime.host import Host
from actors.runtime.watchdog import JOIN_SECONDS, MOST_REPORTS, Lag, Watchdog, lag_watchdog


def burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Burner(Child):
    """Works in two steps: one that computes, and one that waits."""

    __slots__ = ("seconds",)

    async def work(self) -> None:
        await trio.sleep(0.01)
        burn(self.seconds)
        await trio.sleep(0.01)


async def run_burner(seconds: float, path: str = "root/7") -> None:
    async with Host(lambda *_: None) as host:
        burner = Burner(path, None, host, may_parent=False)
        burner.seconds = seconds
        host.nursery.start_soon(burner._main)
        await burner.wait_ended()


def named(watchdog: Watchdog) -> list[Lag]:
    return [lag for lag in watchdog.reports if lag.path is not None]


async def test_T15_the_actor_that_held_the_loop_is_named_once_with_where_it_was() -> None:
    async with lag_watchdog(limit=0.1, on_lag=lambda _lag: None) as watchdog:
        await run_burner(0.3)
    [lag] = named(watchdog)
    assert (lag.path, lag.over) == ("root/7", True)
    assert 0.29 < lag.seconds < 5
    assert " in burn" in lag.frames[0] and any(" in work" in frame for frame in lag.frames)
    assert not any("_run.py" in frame for frame in lag.frames)


async def test_each_stall_is_told_once_and_short_steps_never() -> None:
    async with lag_watchdog(limit=0.15, on_lag=lambda _lag: None) as watchdog:
        await run_burner(0.3, "root/1")
        await run_burner(0.01, "root/2")
        await run_burner(0.3, "root/3")
    assert [lag.path for lag in named(watchdog)] == ["root/1", "root/3"]
    assert watchdog.count == len(watchdog.reports)


async def test_a_stall_that_goes_on_is_told_before_its_end_and_not_again() -> None:
    told: list[tuple[float, Lag]] = []
    async with lag_watchdog(limit=0.03, on_lag=lambda lag: told.append((time.perf_counter(), lag))):
        await run_burner(0.8)
        ended = time.perf_counter()
    [(at, lag)] = [each for each in told if each[1].path is not None]
    assert at < ended and not lag.over and 0.29 < lag.seconds < 0.8
    assert "root/7 has been holding the loop" in str(lag)


async def test_a_task_of_nobody_is_named_by_its_task() -> None:
    async with lag_watchdog(limit=0.1, on_lag=lambda _lag: None) as watchdog:
        await trio.lowlevel.checkpoint()
        burn(0.25)
        await trio.lowlevel.checkpoint()
    [lag] = watchdog.reports
    assert lag.path is None and "test_a_task_of_nobody" in lag.task and "test_a_task_of_nobody" in str(lag)


async def test_a_loop_that_waits_for_the_world_is_no_stall() -> None:
    async with lag_watchdog(limit=0.1, on_lag=lambda _lag: None) as watchdog:
        await trio.sleep(0.4)
        await trio.to_thread.run_sync(time.sleep, 0.3)
    assert watchdog.reports == ()


async def test_by_default_a_warning_names_path_seconds_and_frames(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "actors.watchdog"):
        async with lag_watchdog():
            await run_burner(0.3)
    [line] = [record.getMessage() for record in caplog.records if "root/7" in record.getMessage()]
    assert "root/7 held the loop for 0." in line and " in burn" in line


async def test_the_thread_ends_with_the_block_also_on_cancel_and_on_error() -> None:
    async with lag_watchdog() as first:
        assert first.thread.is_alive() and first.thread.daemon
    with trio.move_on_after(0.05):
        async with lag_watchdog() as second:
            await trio.sleep_forever()
    with pytest.raises(KeyError):
        async with lag_watchdog() as third:
            raise KeyError
    assert not any(each.thread.is_alive() for each in (first, second, third))
    assert "actors lag watchdog" not in {thread.name for thread in threading.enumerate()}


async def test_a_stall_at_the_very_end_of_the_block_is_still_told() -> None:
    async with lag_watchdog(limit=0.1, on_lag=lambda _lag: None) as watchdog:
        await trio.lowlevel.checkpoint()
        burn(0.2)
    assert len(watchdog.reports) == 1


async def test_on_lag_that_raises_or_hangs_neither_ends_the_watch_nor_holds_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = threading.Event()

    def raises(_lag: Lag) -> None:
        raise ValueError("no")

    def hangs(_lag: Lag) -> None:
        gate.wait(5)

    async with lag_watchdog(limit=0.1, on_lag=raises) as watchdog:
        await run_burner(0.2, "root/1")
        await trio.sleep(0.1)
        await run_burner(0.2, "root/2")
    assert [lag.path for lag in named(watchdog)] == ["root/1", "root/2"]
    assert "on_lag failed" in caplog.text

    async with lag_watchdog(limit=0.1, on_lag=hangs) as watchdog:
        await run_burner(0.2)
        await trio.sleep(0.1)
        left = time.perf_counter()
    assert time.perf_counter() - left < JOIN_SECONDS + 1
    assert "on_lag has not returned" in caplog.text
    gate.set()
    await trio.to_thread.run_sync(watchdog.thread.join, 2)
    assert not watchdog.thread.is_alive()


async def test_reports_are_bounded() -> None:
    async with lag_watchdog(limit=0.0005, on_lag=lambda _lag: None) as watchdog:
        for _ in range(MOST_REPORTS + 50):
            burn(0.001)
            await trio.sleep(0.001)
    assert len(watchdog.reports) <= MOST_REPORTS < watchdog.count


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), True, "1"])
async def test_a_limit_that_is_no_time_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="limit must be a finite number"):
        async with lag_watchdog(limit=limit):
            pass
