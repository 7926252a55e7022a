"""A model endpoint on the loopback: the OpenAI chat format over real HTTP/1.1, answering as told.

    async with open_model_server([Answer(text="hello")]) as server:
        provider = OpenAIChat(base_url=server.base_url)

As a process of its own: ``python -m actors.testing.model_server --echo``. It
prints one JSON line with its address, and ends when its standard input ends
or on SIGTERM. ``GET /stats`` gives its counts.

It listens on 127.0.0.1 only. A client that goes away in the middle of a wait is
noticed: what the server counts as working is what is really connected.
"""

import argparse
import importlib
import json
import math
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import h11
import msgspec
import trio

from actors.errors import ConfigError
from actors.providers.script_file import AnswerBook
from actors.testing.model_script import Answer, Fault, Reply, conversation_problem, make_reply, read_answers

Script = Callable[[dict[str, Any], int], Answer] | Sequence[Answer]

MOST_REQUEST_BYTES: Final = 32 * 1024 * 1024
MOST_CONNECTIONS: Final = 8192
RECEIVE_BYTES: Final = 65536
KEPT_REQUESTS: Final = 1000


class ModelServer:
    """The endpoint's side of what happened: its own counts, and the last requests.

    ``billed_tokens`` counts every answer with status 200 in full, also when the client
    never saw it (`model_script`). ``peak`` is the most requests that were open at once.
    """

    def __init__(self, script: Script, *, strict: bool = False, keep: int = KEPT_REQUESTS) -> None:
        self._choose = script if callable(script) else _in_order(script)
        self._strict = strict
        self.port = 0
        self.calls = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.working = 0
        self.peak = 0
        self.connections = 0
        self.refused: list[str] = []
        self.requests: deque[dict[str, Any]] = deque(maxlen=keep)
        self.headers: deque[dict[str, str]] = deque(maxlen=keep)

    @property
    def base_url(self) -> str:
        """Give the address for a client."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def billed_tokens(self) -> int:
        """Count all tokens billed so far."""
        return self.prompt_tokens + self.completion_tokens

    def stats(self) -> dict[str, int]:
        """Give the counts as plain data."""
        return {
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "billed_tokens": self.billed_tokens,
            "working": self.working,
            "peak": self.peak,
            "connections": self.connections,
            "refused": len(self.refused),
        }

    async def serve(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Serve until cancelled.

        Cancellation: every connection is closed.
        """
        await trio.serve_listeners(self._connected, list(listeners))

    async def _connected(self, stream: trio.SocketStream) -> None:
        async with stream:
            if self.connections >= MOST_CONNECTIONS:
                return
            self.connections += 1
            try:
                await _Connection(self, stream).run()
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
                # The client went away or speaks no HTTP: its own affair.
                pass
            finally:
                self.connections -= 1

    def answer(self, raw: bytes) -> tuple[Answer, Reply]:
        """Choose and bill the answer to one request body."""
        self.calls += 1
        try:
            body = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            return self._refuse(f"the body is no JSON object: {error}")
        self.requests.append(body)
        problem = conversation_problem(body.get("messages")) if self._strict else None
        if problem is not None:
            return self._refuse(problem)
        answer = self._choose(body, self.calls)
        reply = make_reply(answer, body, len(raw), self.calls)
        self.prompt_tokens += reply.bill.prompt_tokens
        self.completion_tokens += reply.bill.completion_tokens
        return answer, reply

    def _refuse(self, problem: str) -> tuple[Answer, Reply]:
        # Bounded by the test that reads it: the first ones say what is wrong.
        if len(self.refused) < KEPT_REQUESTS:
            self.refused.append(problem)
        answer = Answer(status=400, text=problem)
        return answer, make_reply(answer, {}, 0, self.calls)


class _Gone(Exception):
    """The client closed its side while its answer was waited for."""


class _Connection:
    """One connection with keep-alive: a request, its answer, and so on."""

    def __init__(self, server: ModelServer, stream: trio.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        """Answer the requests of one connection until it closes.

        Cancellation: the answer in work is cut off.
        """
        while True:
            event = await self._next()
            if not isinstance(event, h11.Request):
                return
            body = await self._read_body()
            if body is None:
                return
            try:
                await self._respond(event, body)
            except _Gone:
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _next(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))

    async def _read_body(self) -> bytes | None:
        """Read a whole request body; None when it is too long or breaks off."""
        pieces: list[bytes] = []
        size = 0
        while True:
            event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                return b"".join(pieces)
            if not isinstance(event, h11.Data) or size + len(event.data) > MOST_REQUEST_BYTES:
                return None
            size += len(event.data)
            pieces.append(bytes(event.data))

    async def _respond(self, request: h11.Request, body: bytes) -> None:
        target = request.target.split(b"?")[0]
        if request.method == b"POST" and target == b"/v1/chat/completions":
            await self._complete(request, body)
        elif request.method == b"GET" and target == b"/stats":
            await self._send_whole(200, msgspec.json.encode(self._server.stats()))
        else:
            await self._send_whole(404, b'{"error": {"message": "there is only POST /v1/chat/completions here"}}')

    async def _complete(self, request: h11.Request, body: bytes) -> None:
        server = self._server
        server.headers.append({name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers})
        server.working += 1
        server.peak = max(server.peak, server.working)
        try:
            answer, reply = server.answer(body)
            if answer.delay:
                await self._while_connected(answer.delay)
            await self._send_reply(answer, reply)
        finally:
            server.working -= 1

    async def _send_reply(self, answer: Answer, reply: Reply) -> None:
        if answer.fault is Fault.hang:
            await self._while_connected(math.inf)
        if answer.fault is Fault.drop:
            raise _Gone
        head = self._http.send(_head(reply))
        assert head is not None
        if answer.fault in (Fault.stall, Fault.cut):
            await self._stream.send_all(head + self._data(reply.pieces[: reply.half]))
            if answer.fault is Fault.stall:
                await self._while_connected(math.inf)
            raise _Gone
        if answer.fault is Fault.trickle:
            await self._stream.send_all(head)
            await self._send_slowly(tuple(bytes([byte]) for byte in b"".join(reply.pieces)), answer.piece_delay)
        elif answer.piece_delay:
            await self._stream.send_all(head)
            await self._send_slowly(reply.pieces, answer.piece_delay)
        else:
            # All in one packet: under load the number of system calls is the cost.
            await self._stream.send_all(head + self._data(reply.pieces) + self._end())

    async def _send_slowly(self, pieces: Sequence[bytes], delay: float) -> None:
        for piece in pieces:
            await self._stream.send_all(self._data((piece,)))
            await self._while_connected(delay)
        await self._stream.send_all(self._end())

    def _data(self, pieces: Sequence[bytes]) -> bytes:
        return b"".join(self._http.send(h11.Data(data=piece)) or b"" for piece in pieces if piece)

    def _end(self) -> bytes:
        return self._http.send(h11.EndOfMessage()) or b""

    async def _send(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")

    async def _send_whole(self, status: int, body: bytes) -> None:
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        head = self._http.send(h11.Response(status_code=status, headers=headers)) or b""
        await self._stream.send_all(head + self._data((body,)) + self._end())

    async def _while_connected(self, seconds: float) -> None:
        """Wait, and raise `_Gone` as soon as the client closes its side.

        Cancellation: nothing is left behind.
        """
        gone = False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal gone
                try:
                    # A client that sends more while it waits is pipelining; what it sends is for later.
                    while data := await self._stream.receive_some(RECEIVE_BYTES):
                        self._http.receive_data(data)
                except trio.BrokenResourceError:
                    pass
                gone = True
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()
        if gone:
            raise _Gone


def _head(reply: Reply) -> h11.Response:
    headers = list(reply.headers)
    if reply.chunked:
        headers.append(("transfer-encoding", "chunked"))
    else:
        headers.append(("content-length", str(sum(map(len, reply.pieces)))))
    return h11.Response(status_code=reply.status, headers=headers)


def _in_order(answers: Sequence[Answer]) -> Callable[[dict[str, Any], int], Answer]:
    """Give each answer once, by its condition on the goal; after the end an empty one."""
    book = AnswerBook(answers)
    return lambda body, _number: book.take(next(_user_texts(body), "")) or Answer(text="")


def _user_texts(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str):
            yield message["content"]


@asynccontextmanager
async def open_model_server(
    script: Script, *, port: int = 0, strict: bool = False, keep: int = KEPT_REQUESTS
) -> AsyncGenerator[ModelServer, None]:
    """Serve a script on the loopback while the block runs.

    ``script`` is a list of answers, given once each, or a function of the request's body
    and the call's number from 1. An error raised by that function ends the block.
    ``strict`` refuses conversations that do not pair or alternate. ``keep`` is how many
    requests are kept.

    Cancellation: the port and every connection are closed.
    """
    server = ModelServer(script, strict=strict, keep=keep)
    listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    server.port = int(listeners[0].socket.getsockname()[1])
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listeners)
        try:
            yield server
        except Exception as error:
            # Raised after the nursery, which would wrap it in a group.
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


# ── as a process of its own ─────────────────────────────────────────────────


def _echo(options: argparse.Namespace) -> Callable[[dict[str, Any], int], Answer]:
    def answer(body: dict[str, Any], _number: int) -> Answer:
        return Answer(
            text=(list(_user_texts(body)) or [""])[-1],
            prompt_tokens=options.prompt_tokens,
            completion_tokens=options.completion_tokens,
            delay=options.delay,
        )

    return answer


def _load(options: argparse.Namespace) -> Script:
    """Find the script that the command line names.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    if options.script is None:
        return _echo(options)
    module, colon, name = options.script.partition(":")
    if colon and not options.script.endswith(".json"):
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(("--script", f"{options.script} cannot be imported: {error}")) from error
        if not callable(found):
            raise ConfigError(("--script", f"{options.script} is no function of (body, number)"))
        return found  # type: ignore[no-any-return]
    try:
        text = Path(options.script).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(("--script", f"cannot be read: {error}")) from error
    return read_answers(text, options.script)


async def _serve_process(script: Script, options: argparse.Namespace) -> None:
    """Serve until standard input ends or a signal comes."""
    async with open_model_server(script, port=options.port, strict=options.strict) as server:
        print(json.dumps({"url": server.base_url, "pid": os.getpid()}), flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_signal, nursery.cancel_scope)
            # Abandoned at a signal: a read of a quiet pipe cannot be interrupted, and the process ends anyway.
            await trio.to_thread.run_sync(_read_to_end, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()


async def _wait_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


def _read_to_end() -> None:
    while os.read(0, 4096):
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server as a process; 2 when the command line or the script cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m actors.testing.model_server", description="A model endpoint on the loopback, answering as told."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", help="FILE.json, or module:function of (body, number); without it: --echo")
    parser.add_argument("--echo", action="store_true", help="answer with the last text of the user")
    parser.add_argument("--prompt-tokens", type=int, help="bill so many for each prompt (echo)")
    parser.add_argument("--completion-tokens", type=int, help="bill so many for each answer (echo)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer (echo)")
    parser.add_argument("--strict", action="store_true", help="refuse conversations that do not pair or alternate")
    options = parser.parse_args(arguments)
    if options.echo == (options.script is not None):
        parser.error("give --script or --echo, one of them")
    try:
        script = _load(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    trio.run(_serve_process, script, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
