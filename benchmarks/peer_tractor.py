"""tractor's side of `peers`: an actor is a process, and a message a packet. Import it only if tractor is there.

The CPU of its processes is known once they have left, so it counts from the
first actor's start to the last one's end; the wall time is that of the job alone.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import tractor
import trio

from benchmarks.bills import Bill, Clock, Job

NAME = "tractor"
ACTOR = "a process for each actor; CPU from the start of the first to the end of the last"


async def echo(number: int) -> int:
    """Answer, in the actor's process."""
    return number


@tractor.context
async def count(ctx: tractor.Context, last: int) -> int:
    """Count what comes through a stream, in the actor's process; give the count at the last."""
    await ctx.started()
    seen = 0
    async with ctx.open_stream() as stream:
        async for _ in stream:
            seen += 1
            if seen == last:
                break
    return seen


@asynccontextmanager
async def _one() -> AsyncIterator[Any]:
    async with tractor.open_nursery() as nursery:
        portal = await nursery.start_actor("counter", enable_modules=[__name__])
        try:
            yield portal
        finally:
            await portal.cancel_actor()


async def _told(n: int) -> float:
    async with _one() as portal, portal.open_context(count, last=n) as (context, _):
        async with context.open_stream() as stream:
            began = time.perf_counter()
            for number in range(n):
                await stream.send(number)
            assert await context.wait_for_result() == n
            return time.perf_counter() - began


async def _asked(n: int, timeout: float | None) -> float:
    async with _one() as portal:
        began = time.perf_counter()
        for number in range(n):
            with trio.fail_after(float("inf") if timeout is None else timeout):
                assert await portal.run(echo, number=number) == number
        return time.perf_counter() - began


async def _started_and_stopped(n: int, *, stop: bool) -> float:
    async with tractor.open_nursery() as nursery:
        began = time.perf_counter()
        portals = [await nursery.start_actor(f"idle{number}", enable_modules=[__name__]) for number in range(n)]
        spent = time.perf_counter() - began
        began = time.perf_counter()
        for portal in reversed(portals):
            await portal.cancel_actor()
    # The nursery's end waits until each process has left.
    return time.perf_counter() - began if stop else spent


def _job(n: int, arm: Callable[[int], Awaitable[float]]) -> Job:
    def job(quick: bool) -> Bill:
        times = max(n // 20, 2) if quick else n
        clock = Clock()
        wall = trio.run(arm, times)
        return attrs.evolve(clock.bill(times), wall=wall)

    return job


JOBS: dict[str, Job] = {
    "tell": _job(2_000, _told),
    "tell_bursts": _job(2_000, _told),
    "ask": _job(1_000, lambda n: _asked(n, None)),
    "ask_timed": _job(1_000, lambda n: _asked(n, 60.0)),
    "spawn": _job(8, lambda n: _started_and_stopped(n, stop=False)),
    "stop": _job(8, lambda n: _started_and_stopped(n, stop=True)),
}
