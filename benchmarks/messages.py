"""Tell and ask between an actor and one sender, beside raw memory channels."""

from collections.abc import Iterator
from functools import partial

import trio

from actors.runtime.actor import Actor, Call
from actors.runtime.host import Host
from benchmarks.harness import Figure, Gate, cpu, interleave, per_operation, rounds_of

BURST = 64


class _Counter:
    """An actor that counts what it is told, and sets an event at the last."""

    def __init__(self, host: Host, last: int) -> None:
        self.seen = 0
        self.last = last
        self.over = trio.Event()
        actor: Actor[int] = Actor("counter", None, host, self._receive)
        host.nursery.start_soon(actor._main)
        self.ref = actor.ref

    def _receive(self, message: int, _call: Call | None) -> int:
        self.seen += 1
        if self.seen == self.last:
            self.over.set()
        return message


async def _told(n: int, burst: int) -> float:
    async with Host(lambda *_: None) as host:
        counter = _Counter(host, n)
        await trio.lowlevel.checkpoint()
        began = cpu()
        tell = counter.ref.tell
        for _ in range(n // burst):
            for number in range(burst):
                tell(number)
            await trio.lowlevel.checkpoint()
        await counter.over.wait()
        spent = cpu() - began
        await counter.ref.stop()
    return spent


async def _channel(n: int) -> float:
    async def reader(receive: trio.MemoryReceiveChannel[int]) -> None:
        seen = 0
        async for _ in receive:
            seen += 1
        assert seen == n

    send, receive = trio.open_memory_channel[int](64)
    began = cpu()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, receive)
        async with send:
            for number in range(n):
                await send.send(number)
    return cpu() - began


async def _channel_batches(n: int) -> float:
    async def reader(receive: trio.MemoryReceiveChannel[int]) -> None:
        seen = 0
        while seen < n:
            await receive.receive()
            seen += 1
            try:
                while True:
                    receive.receive_nowait()
                    seen += 1
            except trio.WouldBlock:
                pass

    # Room for two bursts and more: reader and sender take turns in either order.
    send, receive = trio.open_memory_channel[int](4 * BURST)
    began = cpu()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, receive)
        for _ in range(n // BURST):
            for number in range(BURST):
                send.send_nowait(number)
            await trio.lowlevel.checkpoint()
    return cpu() - began


async def _asked(n: int, timeout: float | None) -> float:
    async with Host(lambda *_: None) as host:
        counter = _Counter(host, n)
        await trio.lowlevel.checkpoint()
        began = cpu()
        for number in range(n):
            assert await counter.ref.ask(number, timeout) == number
        spent = cpu() - began
        await counter.ref.stop()
    return spent


async def _called(n: int, timeout: float | None) -> float:
    requests, to_do = trio.open_memory_channel[int](0)
    answers, answered = trio.open_memory_channel[int](0)

    async def server() -> None:
        async for number in to_do:
            await answers.send(number)

    began = cpu()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server)
        async with requests:
            for number in range(n):
                if timeout is None:
                    await requests.send(number)
                    assert await answered.receive() == number
                else:
                    with trio.fail_after(timeout):
                        await requests.send(number)
                        assert await answered.receive() == number
    return cpu() - began


def figures(quick: bool) -> Iterator[Figure]:
    """Measure tell one by one, tell in bursts, ask, and ask with a deadline."""
    rounds = rounds_of(quick)
    n = 1_280 if quick else 20_480
    ours, raw = interleave(rounds, partial(_told, n, 1), partial(_channel, n))
    method = "one sender, a checkpoint after each; baseline: memory channel of 64, per message"
    yield per_operation("tell", ours, raw, n, method, Gate("ratio", "<=", 1.8))
    many = n * 5
    ours, raw = interleave(rounds, partial(_told, many, BURST), partial(_channel_batches, many))
    method = "a checkpoint after each 64; baseline: send_nowait, drained by receive_nowait, batches of 64"
    yield per_operation("tell_bursts_of_64", ours, raw, many, method, Gate("ratio", "<=", 1.5))
    method = "one caller, one after another; baseline: call and reply over two channels of capacity 0"
    ours, raw = interleave(rounds, partial(_asked, n, None), partial(_called, n, None))
    yield per_operation("ask", ours, raw, n, method, Gate("ratio", "<=", 1.5))
    ours, raw = interleave(rounds, partial(_asked, n, 60.0), partial(_called, n, 60.0))
    yield per_operation("ask_with_deadline", ours, raw, n, f"{method}, under fail_after", Gate("ratio", "<=", 1.5))
