"""Many small connection pools behind one gate, in the place of a large pool.

The cost of an httpx pool grows with the square of what queues in it: 500
calls at once in one pool burn seconds of CPU. So nobody queues in a pool. One
limiter admits as many calls as there are connections, first come first
served, and an admitted call takes the least loaded lane, which always has a
connection free: the lanes hold as many together as the gate lets in. A limiter
for each lane instead would let a call wait behind a slow one while other lanes
idle.

Requests go straight to the transport of a client. What the client would add
costs a fifth of a call (cookies, redirects, authentication, hooks), and none of
it is wanted here. Only where the environment names a proxy does the client
send, since it alone knows which address goes past the proxy.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from urllib.request import getproxies

import attrs
import httpx
import trio

from actors.errors import ConfigError

MOST_CONNECTIONS: Final = 4096
MOST_PER_LANE: Final = 10
DEFAULT_CONNECTIONS: Final = 100
DEFAULT_PER_LANE: Final = 5
# Idle connections are dropped before usual servers do it, so that a call seldom meets one just closed.
KEEPALIVE_SECONDS: Final = 4.0


@attrs.define(eq=False)
class _Lane:
    size: int
    client: httpx.AsyncClient | None = None
    in_use: int = 0


class Lanes:
    """HTTP clients for calls that run beside each other, at most ``connections`` of them.

    With ``client``, a client of the caller, there is one lane: that client, behind
    the gate, and closing it stays the caller's business. Clients of our own are made
    when a lane is first used.
    """

    def __init__(
        self,
        connections: int = DEFAULT_CONNECTIONS,
        *,
        per_lane: int = DEFAULT_PER_LANE,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        _check("lanes.connections", connections, MOST_CONNECTIONS)
        _check("lanes.per_lane", per_lane, MOST_PER_LANE)
        self._foreign = client
        self._gate = trio.CapacityLimiter(connections)
        self._lanes = [_Lane(connections, client)] if client is not None else _divide(connections, per_lane)
        self._tls: ssl.SSLContext | None = None
        self._direct: dict[httpx.AsyncClient, httpx.AsyncHTTPTransport] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"Lanes({self.in_use} of {self.capacity} in use, {self.waiting} waiting, {len(self._lanes)} lanes)"

    @property
    def capacity(self) -> int:
        """Count how many calls may run at once."""
        return int(self._gate.total_tokens)

    @property
    def in_use(self) -> int:
        """Count the calls that run now."""
        return self._gate.borrowed_tokens

    @property
    def waiting(self) -> int:
        """Count the calls that wait for the gate."""
        return self._gate.statistics().tasks_waiting

    @property
    def clients(self) -> tuple[httpx.AsyncClient, ...]:
        """Give the clients made so far, or the caller's own."""
        return tuple(lane.client for lane in self._lanes if lane.client is not None)

    @asynccontextmanager
    async def lease(self) -> AsyncGenerator[httpx.AsyncClient, None]:
        """Hold a connection's place in the least loaded lane for one call.

        Close the response before leaving. Waiting is bounded by the calls in front,
        each of which has a deadline of its own.

        Cancellation: while waiting, nothing was taken; inside, the place is given back.

        Raises:
            trio.ClosedResourceError: the lanes are closed.
        """
        # Not the task but the call borrows: one task may hold several through a nursery of its own making.
        call = object()
        await self._gate.acquire_on_behalf_of(call)
        try:
            if self._closed:
                raise trio.ClosedResourceError("the lanes are closed")
            lane = min(self._lanes, key=_load)
            assert lane.in_use < lane.size, "the gate lets in as many as the lanes hold"
            if lane.client is None:
                lane.client = self._make_client(lane.size)
            lane.in_use += 1
            try:
                yield lane.client
            finally:
                lane.in_use -= 1
        finally:
            self._gate.release_on_behalf_of(call)

    def goes_direct(self, client: httpx.AsyncClient) -> bool:
        """Whether requests of a leased ``client`` pass it by, so that nothing of it is added to them."""
        return client in self._direct

    async def send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        """Send a request in the place of a leased ``client``, and give the response with its body unread.

        Redirects are not followed. Close the response before leaving the lease.

        Cancellation: the connection is closed; whether the request arrived is unknown.

        Raises:
            httpx.TransportError: as the client raises it; a caller's own client may raise more.
        """
        direct = self._direct.get(client)
        if direct is None:
            return await client.send(request, stream=True, follow_redirects=False)
        return await direct.handle_async_request(request)

    def _make_client(self, size: int) -> httpx.AsyncClient:
        # Reading the certificates takes 20 ms, so all lanes share one context.
        self._tls = self._tls or httpx.create_ssl_context()
        limits = httpx.Limits(
            max_connections=size, max_keepalive_connections=size, keepalive_expiry=KEEPALIVE_SECONDS
        )
        if getproxies():
            return httpx.AsyncClient(verify=self._tls, follow_redirects=False, limits=limits)
        transport = httpx.AsyncHTTPTransport(verify=self._tls, limits=limits)
        client = httpx.AsyncClient(transport=transport, follow_redirects=False)
        self._direct[client] = transport
        return client

    async def aclose(self) -> None:
        """Close the clients made here; a caller's own client stays open. Later leases fail.

        Cancellation: connections are closed all the same, without waiting for the other side.
        """
        self._closed = True
        if self._foreign is not None:
            return
        end = trio.current_time() + 1.0
        for client in self.clients:
            with trio.CancelScope(shield=True, deadline=end):
                await client.aclose()


def _load(lane: _Lane) -> float:
    return lane.in_use / lane.size


def _divide(connections: int, per_lane: int) -> list[_Lane]:
    """Divide the connections over as few lanes as may be, as evenly as may be."""
    lanes = -(-connections // per_lane)
    small, larger = divmod(connections, lanes)
    return [_Lane(small + (place < larger)) for place in range(lanes)]


def _check(path: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError((path, f"must be a whole number from 1 to {most}, not {value!r}"))
