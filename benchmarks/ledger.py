"""Draws on one ledger by many clients, beside the same clients' call and reply over channels."""

from collections.abc import Iterator
from functools import partial

import trio

from actors.containment.amounts import UNLIMITED
from actors.containment.ledger import open_ledger
from actors.containment.ledger_state import Draw
from actors.containment.limits import Containment
from benchmarks.harness import Figure, Gate, cpu, interleave, rounds_of

# By number of clients; 100 is what the issue names.
GATES = {100: Gate("value", ">=", 50_000)}


async def _draws(clients: int, each: int) -> float:
    async with open_ledger(Containment(1, 1, 0, UNLIMITED)) as ledger:

        async def client() -> None:
            for _ in range(each):
                assert await ledger.draw_tokens(3) is Draw.ok

        began = cpu()
        async with trio.open_nursery() as nursery:
            for _ in range(clients):
                nursery.start_soon(client)
        spent = cpu() - began
        assert ledger.spent_tokens == 3 * clients * each
    return spent


Request = tuple[int, "trio.MemorySendChannel[int]"]


async def _calls(clients: int, each: int) -> float:
    requests, to_do = trio.open_memory_channel[Request](64)
    total = 0

    async def server() -> None:
        nonlocal total
        async for tokens, reply in to_do:
            total += tokens
            reply.send_nowait(total)

    async def client() -> None:
        reply, replied = trio.open_memory_channel[int](1)
        for _ in range(each):
            await requests.send((3, reply))
            await replied.receive()

    began = cpu()
    async with trio.open_nursery() as outer:
        outer.start_soon(server)
        async with trio.open_nursery() as nursery:
            for _ in range(clients):
                nursery.start_soon(client)
        requests.close()
    spent = cpu() - began
    assert total == 3 * clients * each
    return spent


def figures(quick: bool) -> Iterator[Figure]:
    """Measure with 1, 100 and 10,000 clients."""
    for clients in (1, 100, 1_000 if quick else 10_000):
        n = max(clients, 2_000) if quick else 50_000
        each = n // clients
        ours, raw = interleave(rounds_of(quick), partial(_draws, clients, each), partial(_calls, clients, each))
        method = f"{clients} clients draw at once; baseline: as many clients call and get a reply over channels"
        name = f"ledger_{clients}_clients"
        yield Figure(name, n / ours, "draws/CPU s", n / raw, ours / raw, n, method, GATES.get(clients))
