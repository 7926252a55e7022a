"""Leaf-first stops written by hand in raw trio: the baselines of whatever stops many.

Arms only, no figures. Each gives the CPU seconds from the first cancel until the
last task has left.
"""

import trio
import trio.testing

from benchmarks.harness import begin, cpu


async def stop_wide(n: int) -> float:
    """Stop plain tasks with a scope each, all in one nursery."""
    scopes: list[trio.CancelScope] = []
    live = n
    over = trio.Event()

    async def plain() -> None:
        nonlocal live
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await trio.sleep_forever()
        live -= 1
        if not live:
            over.set()

    async with trio.open_nursery() as nursery:
        for _ in range(n):
            nursery.start_soon(plain)
        await trio.testing.wait_all_tasks_blocked()
        began = begin()
        for scope in reversed(scopes):
            scope.cancel()
        await over.wait()
        return cpu() - began


async def stop_chain(n: int) -> float:
    """Stop nested nurseries: the scope of each level is cancelled when its child has ended."""
    scopes: list[trio.CancelScope] = []
    ends = [trio.Event() for _ in range(n)]

    async def level(depth: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            async with trio.open_nursery() as nursery:
                if depth < n - 1:
                    nursery.start_soon(level, depth + 1)
                await trio.sleep_forever()
        ends[depth].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(level, 0)
        while len(scopes) < n:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        began = begin()
        for scope, end in zip(reversed(scopes), reversed(ends), strict=True):
            scope.cancel()
            await end.wait()
        return cpu() - began
