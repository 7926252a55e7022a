"""autogen-core's side of `peers`: an agent is an object that one asyncio loop calls. Import it only if it is there.

Its loggers are left as an application finds them. A tell is a published message,
as nothing else is sent without an answer; a spawn is the making of the object.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
from autogen_core import (
    AgentId,
    BaseAgent,
    MessageContext,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    try_get_known_serializers_for_type,
)
from pydantic import BaseModel

from benchmarks.bills import Bill, Clock, Job

NAME = "autogen"
ACTOR = "autogen-core: an object called by one asyncio loop"
BURST = 64
KIND = "counter"
TOPIC = TopicId("told", "one")


class _Number(BaseModel):
    number: int


@attrs.define
class _Until:
    """Set once so many messages were seen."""

    last: int
    seen: int = 0
    over: asyncio.Event = attrs.Factory(asyncio.Event)


class _Counter(BaseAgent):
    def __init__(self, until: _Until) -> None:
        super().__init__("counts what it is told")
        self._until = until

    async def on_message_impl(self, message: Any, ctx: MessageContext) -> Any:
        self._until.seen += 1
        if self._until.seen == self._until.last:
            self._until.over.set()
        return message


async def _runtime(until: _Until) -> SingleThreadedAgentRuntime:
    runtime = SingleThreadedAgentRuntime()
    await _Counter.register(runtime, KIND, partial(_Counter, until))
    await runtime.add_subscription(TypeSubscription(TOPIC.type, KIND))
    runtime.add_message_serializer(try_get_known_serializers_for_type(_Number))
    runtime.start()
    return runtime


async def _told(n: int, burst: int) -> Bill:
    until = _Until(n)
    runtime = await _runtime(until)
    clock = Clock()
    for number in range(n):
        await runtime.publish_message(_Number(number=number), TOPIC)
        if not number % burst:
            await asyncio.sleep(0)
    await until.over.wait()
    bill = clock.bill(n)
    await runtime.stop_when_idle()
    return bill


async def _asked(n: int, timeout: float | None) -> Bill:
    runtime = await _runtime(_Until(n))
    to = AgentId(KIND, "one")
    clock = Clock()
    for number in range(n):
        answer = await asyncio.wait_for(runtime.send_message(_Number(number=number), to), timeout)
        assert answer.number == number
    bill = clock.bill(n)
    await runtime.stop_when_idle()
    return bill


async def _made(runtime: SingleThreadedAgentRuntime, first: int, n: int) -> None:
    for number in range(first, first + n):
        await runtime.get(KIND, str(number), lazy=False)


async def _spawned(alive: int, n: int) -> Bill:
    runtime = await _runtime(_Until(-1))
    await _made(runtime, 0, alive)
    clock = Clock()
    await _made(runtime, alive, n)
    bill = clock.bill(n)
    await runtime.stop_when_idle()
    return bill


async def _stopped(n: int) -> Bill:
    runtime = await _runtime(_Until(-1))
    await _made(runtime, 0, n)
    clock = Clock()
    await runtime.close()
    return clock.bill(n)


def _job(arm: Callable[..., Awaitable[Bill]], small: tuple[Any, ...], large: tuple[Any, ...]) -> Job:
    return lambda quick: asyncio.run(arm(*(small if quick else large)))  # type: ignore[arg-type]


JOBS: dict[str, Job] = {
    "tell": _job(_told, (200, 1), (2_000, 1)),
    "tell_bursts": _job(_told, (640, BURST), (6_400, BURST)),
    "ask": _job(_asked, (200, None), (2_000, None)),
    "ask_timed": _job(_asked, (200, 60.0), (2_000, 60.0)),
    "spawn": _job(_spawned, (50, 20), (1_000, 200)),
    "stop": _job(_stopped, (50,), (1_000,)),
}
