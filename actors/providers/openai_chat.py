"""Any endpoint that speaks the OpenAI chat format, over HTTP.

What a reader would get wrong: the time limits are one scope whose deadline
moves. The client's own read timeout starts again with each byte, so one byte
every 50 s would never end; and in an answer that is not streamed the first byte
comes with the last, after minutes of a healthy model's thinking.

The key leaves this file in one header and nowhere else: it is taken out of
every text an endpoint sends back, and so are the other credentials of the
environment. That holds for answers too: an endpoint was told the key, and what
it says is stored and shown.
"""

import codecs
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, Self, cast
from urllib.parse import SplitResult, urlsplit

import attrs
import httpx
import trio
from httpx_sse import EventSource

from actors.agents.ports import Completion, CompletionRequest, Estimate, ToolCall
from actors.agents.secret_values import Redactor
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.chat_stream import StreamDecoder
from actors.providers.chat_wire import decode_completion, encode_request, malformed
from actors.providers.closing import Closing
from actors.providers.estimates import Drift, raw_prompt_tokens
from actors.providers.http_errors import classify_exception, one_line, response_error, was_never_sent
from actors.providers.lanes import Lanes

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
MOST_ANSWER_BYTES: Final = 32 * 1024 * 1024
MOST_ERROR_BYTES: Final = 64 * 1024
# After the end mark of a stream the connection is worth this wait, to be used again.
AFTER_END_SECONDS: Final = 0.25
ERROR_BODY_SECONDS: Final = 5.0
FIRST_STREAM_BYTE_SECONDS: Final = 120.0


def _positive(_instance: object, attribute: Any, value: object) -> None:
    if value is None and attribute.name == "first_byte":
        return
    if type(value) not in (int, float) or not 0 < cast(float, value) < float("inf"):
        raise ConfigError((f"timeouts.{attribute.name}", f"must be seconds above 0, not {value!r}"))


@attrs.frozen
class Timeouts:
    """Seconds that one call may take, from the moment it has a connection's place.

    ``first_byte`` bounds the wait for the first byte of the answer, ``idle`` each
    silence after it, ``total`` everything. ``first_byte`` None is 120 s for a stream,
    and ``total`` for an answer in one piece.
    """

    connect: float = attrs.field(default=15.0, validator=_positive)
    first_byte: float | None = attrs.field(default=None, validator=_positive)
    idle: float = attrs.field(default=300.0, validator=_positive)
    total: float = attrs.field(default=600.0, validator=_positive)


class OpenAIChat(Closing):
    """A provider for one endpoint; many calls may run beside each other.

        async with OpenAIChat(base_url="http://127.0.0.1:8080/v1", model="local") as provider:
            completion = await provider.complete(request)

    Without ``base_url`` and ``api_key`` the environment gives them
    (``OPENAI_BASE_URL``, ``OPENAI_API_KEY``); ``api_key=""`` sends none. ``lanes`` is
    how many calls may be open at once, or lanes shared with other providers, which
    then stay open here. ``client`` is a client of your own, which stays open too.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        *,
        name: str = "openai",
        lanes: Lanes | int | None = None,
        timeouts: Timeouts | None = None,
        client: httpx.AsyncClient | None = None,
        stream: bool = False,
    ) -> None:
        """Raise ConfigError for an address or a key that cannot be used. Opens nothing."""
        self._name = name
        self._model = model
        self._stream = stream
        self._timeouts = timeouts or Timeouts()
        # Only connecting is left to the client; reading and writing stand under our own deadline.
        self._http_timeout = httpx.Timeout(None, connect=self._timeouts.connect).as_dict()
        address = base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
        parts = _split_address(address)
        self._url = httpx.URL(address.rstrip("/") + "/chat/completions")
        self._endpoint = _endpoint(self._url)
        vendor = parts.hostname == "api.openai.com"
        self._key = _checked_key(api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", ""))
        if vendor and not self._key:
            raise ConfigError(("provider.api_key", "no key is given: set OPENAI_API_KEY"))
        self._headers = _headers(self._key, vendor)
        self._redactor = Redactor.of(os.environ, self._key, mark="[key]")
        self._sent: httpx.Headers | None = None
        # The vendor's newer models refuse the old field; most other servers know only that.
        self._limit_field = "max_completion_tokens" if vendor else "max_tokens"
        if isinstance(lanes, Lanes):
            if client is not None:
                raise ConfigError(("provider.client", "give lanes or a client, not both"))
            self._lanes, self._own = lanes, False
        else:
            self._lanes, self._own = Lanes(client=client) if lanes is None else Lanes(lanes, client=client), True
        self._drift = Drift()

    def __repr__(self) -> str:
        return f"OpenAIChat(name={self._name!r}, endpoint={self._endpoint!r}, model={self._model!r})"

    @property
    def name(self) -> str:
        """Name the provider in rows and messages."""
        return self._name

    @property
    def default_model(self) -> str | None:
        """Give the model asked for when a request names none."""
        return self._model

    @property
    def takes_effort(self) -> bool:
        """Say that ``effort`` is sent, as ``reasoning_effort``."""
        return True

    @property
    def endpoint(self) -> str:
        """Give ``host:port`` for the net policy."""
        return self._endpoint

    @property
    def lanes(self) -> Lanes:
        """Give the lanes, to look at."""
        return self._lanes

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give the worst case of a request: its bytes / 3 and margins, raised by the drift seen so far."""
        return self._drift.estimate(request)

    async def aclose(self) -> None:
        """Close the connections that are our own.

        Cancellation: they are closed all the same.
        """
        if self._own:
            await self._lanes.aclose()

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask the endpoint once; waits first while all lanes are full.

        Checkpoint: always.
        Cancellation: whether the call was billed is unknown; its connection is closed
        and its place given back. While waiting for a lane, nothing was sent.

        Raises:
            ProviderError: typed; its text never holds the key.
            trio.ClosedResourceError: the provider was closed.
        """
        body = encode_request(request, model=self._model, limit_field=self._limit_field, stream=self._stream)
        async with self._lanes.lease() as client:
            completion = await _Exchange(self, client, body).run()
        if completion.usage is not None:
            self._drift.note(raw_prompt_tokens(request), completion.usage.prompt_tokens)
        return self._without_keys(completion) if self._redactor else completion

    def _request(self, client: httpx.AsyncClient, body: bytes) -> httpx.Request:
        """Make the request, with a body that can be dropped half-sent."""
        if not self._lanes.goes_direct(client):
            request = client.build_request(
                "POST", self._url, content=body, headers=self._headers, extensions={"timeout": self._http_timeout}
            )
            # A client of another library has stream classes of its own, and keeps them.
            if isinstance(request.stream, httpx.AsyncByteStream):
                request.stream = _Body(body)
            return request
        if self._sent is None:
            # What a client of ours says of itself is the same for all calls.
            self._sent = httpx.Headers([*client.headers.multi_items(), *self._headers.items()])
            self._sent["host"] = self._url.netloc.decode("ascii")
        headers = self._sent.copy()
        headers["content-length"] = str(len(body))
        extensions = {"timeout": self._http_timeout}
        return httpx.Request("POST", self._url, headers=headers, stream=_Body(body), extensions=extensions)

    def _without_keys(self, completion: Completion) -> Completion:
        """Take credentials out of an answer."""
        hide = self._redactor.hide
        text = None if completion.text is None else hide(completion.text)
        calls = tuple(ToolCall(hide(call.name), hide(call.arguments)) for call in completion.calls)
        served = None if completion.model is None else hide(completion.model)
        if (text, calls, served) == (completion.text, completion.calls, completion.model):
            return completion
        return attrs.evolve(completion, text=text, calls=calls, model=served)


class _Exchange:
    """One call: the request out, the answer in, under one moving deadline.

    Reading never stops between two chunks: the client's generators would be left
    to the garbage collector. A failure found in the middle is kept, and the deadline
    pulled in, so that reading ends by itself or is cancelled from the inside.
    """

    def __init__(self, provider: OpenAIChat, client: httpx.AsyncClient, body: bytes) -> None:
        self._provider = provider
        self._client = client
        self._body = body
        self._decoder = StreamDecoder()
        self._failure: ProviderError | None = None
        self._received = 0
        self._first_token: float | None = None
        self._began = trio.current_time()
        self._end = self._began + provider._timeouts.total
        self._scope = trio.CancelScope()

    async def run(self) -> Completion:
        """Send the request and read the answer.

        Cancellation: the connection is closed; whether the call was billed is unknown.
        """
        limits = self._provider._timeouts
        default = FIRST_STREAM_BYTE_SECONDS if self._provider._stream else limits.total
        self._allow(default if limits.first_byte is None else limits.first_byte)
        completion: Completion | None = None
        try:
            with self._scope:
                completion = await self._ask()
        except ProviderError as error:
            self._failure = self._failure or error
        except Exception as error:
            # A client of the caller's own has errors of its own classes, so nothing narrower can be caught.
            self._failure = self._failure or self._wire_failure(error)
        if self._failure is None and completion is None:
            completion = self._conclude()
        if self._failure is not None:
            # Raised outside the handlers: the library's error carries the request, and so the key.
            raise self._placed(self._failure)
        assert completion is not None
        return completion

    def _wire_failure(self, error: Exception) -> ProviderError | None:
        """Make the typed error for one of the client; None when the answer was whole already."""
        kind = classify_exception(error)
        if kind is None:
            said = str(error)
            if self._provider._redactor.hide(said) == said:
                raise error
            # Kept from the caller whole: whoever prints an error prints what it came from as well.
            text = f"the client failed with {type(error).__name__}, and its text held a credential"
            return ProviderError(ProviderErrorKind.request, text)
        if self._decoder.done:
            return None
        text = one_line(f"{type(error).__name__}: {error}") if str(error) else type(error).__name__
        return ProviderError(kind, text, usage=Usage() if was_never_sent(error) else None)

    def _allow(self, seconds: float) -> None:
        self._scope.deadline = min(trio.current_time() + seconds, self._end)

    def _fail(self, error: ProviderError, seconds: float) -> None:
        """Keep the first failure, and read on for so long at most."""
        self._failure = self._failure or error
        self._allow(seconds)

    def _late(self) -> ProviderError:
        now = trio.current_time()
        if now >= self._end:
            text = f"no whole answer within {self._provider._timeouts.total:g} s"
        elif self._received:
            text = f"the answer stopped for {self._provider._timeouts.idle:g} s"
        else:
            text = f"no answer began within {now - self._began:.3g} s"
        return ProviderError(ProviderErrorKind.timeout, text)

    def _placed(self, error: ProviderError) -> ProviderError:
        """Name the endpoint, hide the key, and add the usage seen: the pure parts know none of them."""
        text = self._provider._redactor.hide(f"{self._provider._endpoint}: {error.message}")
        usage = error.usage or self._decoder.usage
        return ProviderError(error.kind, text, status=error.status, retry_after=error.retry_after, usage=usage)

    async def _ask(self) -> Completion | None:
        provider = self._provider
        request = provider._request(self._client, self._body)
        response = await provider._lanes.send(self._client, request)
        try:
            if response.status_code // 100 != 2:
                await self._read_refusal(response)
                return None
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read_stream(response)
                return None if self._failure else self._finish()
            body = b"".join([chunk async for chunk in self._chunks(response)])
            return None if self._failure else decode_completion(body)
        finally:
            await response.aclose()

    async def _read_refusal(self, response: httpx.Response) -> None:
        """Read what an error response says; one that says it slowly or badly is still that error."""
        status, headers = response.status_code, response.headers
        self._fail(response_error(status, headers, b"", time.time()), ERROR_BODY_SECONDS)
        body = b""
        async for chunk in response.aiter_bytes():
            if len(body) < MOST_ERROR_BYTES:
                body = (body + chunk)[:MOST_ERROR_BYTES]
                self._failure = response_error(status, headers, body, time.time())
            else:
                self._allow(0)

    async def _chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body, moving the deadline with each chunk and counting against the cap."""
        async for chunk in response.aiter_bytes():
            self._received += len(chunk)
            if self._received > MOST_ANSWER_BYTES:
                self._fail(malformed(f"the answer is longer than {MOST_ANSWER_BYTES} bytes"), 0)
            elif self._failure is None and not self._decoder.done:
                self._allow(self._provider._timeouts.idle)
                yield chunk

    async def _read_stream(self, response: httpx.Response) -> None:
        watched = _Watched(response.headers, self._chunks(response))
        async for event in EventSource(cast(httpx.Response, watched)).aiter_sse():
            if self._failure is not None or self._decoder.done:
                continue
            try:
                if self._decoder.feed(event.data):
                    # Reading on to the real end lets the connection be used again; it is not worth a long wait.
                    self._allow(AFTER_END_SECONDS)
            except ProviderError as error:
                self._fail(error, AFTER_END_SECONDS)
            if self._first_token is None and self._decoder.started:
                self._first_token = trio.current_time() - self._began

    def _conclude(self) -> Completion | None:
        """Look at what there is when reading ended without a result: after its end mark a stream is whole."""
        if not self._decoder.done:
            self._failure = self._late()
            return None
        try:
            return self._finish()
        except ProviderError as error:
            self._failure = error
            return None

    def _finish(self) -> Completion:
        return attrs.evolve(self._decoder.finish(), first_token_seconds=self._first_token)


class _Body(httpx.AsyncByteStream):
    """A request's body that can be dropped half-sent.

    The client's own is a generator; one that a cancelled call leaves behind makes trio
    complain when it is collected.
    """

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data, self._data = self._data, None
        if data is None:
            raise StopAsyncIteration
        return data


class _Watched:
    """A response as the event reader sees it, whose bytes come past our deadline and our cap."""

    def __init__(self, headers: httpx.Headers, chunks: AsyncIterator[bytes]) -> None:
        self.headers = headers
        self._chunks = chunks

    async def aiter_text(self) -> AsyncGenerator[str, None]:
        """Yield the text of the body, as the event reader asks for it.

        Cancellation: what was not read is lost with the response.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in self._chunks:
            if text := decoder.decode(chunk):
                yield text


def _split_address(address: str) -> SplitResult:
    """Take an address apart.

    Raises:
        ConfigError: it is none, or it holds what would be logged with it.
    """
    try:
        parts = urlsplit(address)
        # The splitter drops line ends by itself, so the text is looked at as it came.
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and address.isprintable() and " " not in address
        httpx.URL(address)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise ConfigError(("provider.base_url", "is no address: write http://host:port/v1 or https://host/v1"))
    if parts.username is not None or parts.password is not None:
        # Clients log addresses; and the text itself is left out of this message for the same reason.
        raise ConfigError(("provider.base_url", "holds a user or a password: put the key into OPENAI_API_KEY"))
    if parts.query or parts.fragment:
        raise ConfigError(("provider.base_url", "must end with its path, without ? or #"))
    return parts


def _endpoint(url: httpx.URL) -> str:
    # As it is connected to: a host in other letters has a name of its own in ASCII.
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _checked_key(key: str) -> str:
    key = key.strip()
    if not key.isascii() or any(char.isspace() or not char.isprintable() for char in key):
        # An HTTP library would name the bad header, and the key with it.
        raise ConfigError(("provider.api_key", "holds spaces or unprintable characters; look at OPENAI_API_KEY"))
    return key


def _headers(key: str, vendor: bool) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    if vendor:
        for header, variable in (("openai-organization", "OPENAI_ORG_ID"), ("openai-project", "OPENAI_PROJECT_ID")):
            if value := os.environ.get(variable, "").strip():
                headers[header] = value
    return headers
