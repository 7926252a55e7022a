"""The provider over real HTTP: every way an endpoint can fail ends in one typed error, in time, with an empty pool."""

import gc
import json
import random
import socket
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio

from actors.agents.ports import Completion, CompletionRequest, Provider, ToolCall, ToolSpec, UserTurn
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.lanes import Lanes
from actors.providers.openai_chat import OpenAIChat, Timeouts
from actors.testing.model_script import Answer, Fault, SaidCall
from actors.testing.model_server import ModelServer, open_model_server

CANARY = "sk-canary-0123456789"
REQUEST = CompletionRequest("be brief", (UserTurn("go"),), (ToolSpec("t", "does", {"type": "object"}),))
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


def provider_of(server: ModelServer, **options: Any) -> OpenAIChat:
    return OpenAIChat(base_url=server.base_url, api_key=CANARY, **options)


async def failure_of(provider: OpenAIChat) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.complete(REQUEST)
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert_idle(provider)
    return caught.value


def assert_idle(provider: OpenAIChat) -> None:
    assert (provider.lanes.in_use, provider.lanes.waiting) == (0, 0)
    for client in provider.lanes.clients:
        pool = client._transport._pool  # type: ignore[attr-defined]
        assert all(connection.is_idle() or connection.is_closed() for connection in pool.connections)
        assert not pool._requests


async def until_idle(server: ModelServer) -> None:
    # The server notices a closed connection a moment later; it has no event for that.
    while server.working:
        await trio.sleep(0.01)


@both
async def test_text_calls_and_usage_come_back(stream):
    calls = (SaidCall("a", '{"x": 1}', ""), SaidCall("b", "{}", "x"), SaidCall("c", '{"y":', "x"))
    answer = Answer(text="hello, you", calls=calls, prompt_tokens=40, completion_tokens=9, cached_tokens=30)
    async with open_model_server([answer]) as server, provider_of(server, stream=stream, model="m") as provider:
        completion = await provider.complete(REQUEST)
        assert_idle(provider)
    assert completion.text == "hello, you"
    assert completion.calls == (ToolCall("a", '{"x": 1}'), ToolCall("b", "{}"), ToolCall("c", '{"y":'))
    assert completion.usage == Usage(40, 9, 49, cache_read_tokens=30)
    assert (completion.model, completion.finish_reason) == ("m", "tool_calls")
    assert (completion.first_token_seconds is not None) is stream


@both
async def test_the_body_and_the_key_arrive_and_the_connection_is_used_again(stream):
    async with open_model_server([]) as server, provider_of(server, stream=stream) as provider:
        for _ in range(3):
            await provider.complete(REQUEST)
        assert server.connections == 1
    assert server.headers[0]["authorization"] == f"Bearer {CANARY}"
    assert server.requests[0]["messages"][-1] == {"role": "user", "content": "go"}
    assert server.requests[0]["tools"][0]["function"]["name"] == "t"
    assert ("stream" in server.requests[0]) is stream


async def test_key_and_address_come_from_the_environment(monkeypatch):
    async with open_model_server([]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", f" {CANARY}\n")
        async with OpenAIChat() as provider:
            assert isinstance(provider, Provider)
            assert provider.endpoint == f"127.0.0.1:{server.port}"
            await provider.complete(REQUEST)
        async with OpenAIChat(api_key="") as provider:
            await provider.complete(REQUEST)
    assert server.headers[0]["authorization"] == f"Bearer {CANARY}"
    assert "authorization" not in server.headers[1]


@both
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(status=401, text=f"no: {CANARY}"), ProviderErrorKind.auth),
        (Answer(status=429, headers=(("retry-after", "7"),)), ProviderErrorKind.rate_limited),
        (Answer(status=500), ProviderErrorKind.server),
        (Answer(status=400, text="maximum context length is 10"), ProviderErrorKind.context_overflow),
        (Answer(status=400, text="what?"), ProviderErrorKind.request),
        (Answer(fault=Fault.drop), ProviderErrorKind.transport),
        (Answer(text="a long answer", fault=Fault.cut), ProviderErrorKind.transport),
        (Answer(fault=Fault.malformed), ProviderErrorKind.malformed),
        (Answer(fault=Fault.wrong_content), ProviderErrorKind.malformed),
        (Answer(body=f"<html>{CANARY}", headers=(("content-type", "text/html"),)), ProviderErrorKind.malformed),
        (Answer(body=""), ProviderErrorKind.malformed),
    ],
    ids=lambda value: str(value.fault if isinstance(value, Answer) else value),
)
async def test_each_fault_is_one_error_of_its_kind_and_one_call(answer, kind, stream):
    async with open_model_server([answer]) as server, provider_of(server, stream=stream) as provider:
        error = await failure_of(provider)
        assert error.kind is kind
        assert provider.endpoint in str(error)
        assert server.calls == 1
        assert (await provider.complete(REQUEST)).text in ("", None)
    if answer.status == 429:
        assert (error.status, error.retry_after) == (429, 7.0)


async def test_what_was_refused_cost_nothing_and_what_broke_off_is_unknown():
    answers = [Answer(status=429), Answer(text="abcd", fault=Fault.cut), Answer(status=502)]
    async with open_model_server(answers) as server, provider_of(server) as provider:
        assert (await failure_of(provider)).usage == Usage()
        assert (await failure_of(provider)).usage is None
        assert (await failure_of(provider)).usage is None


@pytest.mark.parametrize(
    "body",
    [
        'data: {"choices": [{"delta": {"content": "half"}}]}\n\n',
        'data: {"choices": [{"delta": {"content": "all"}, "finish_reason": "stop"}]}\n\n',
        "data: {nonsense\n\n",
        ": only a comment\n\n",
        "",
    ],
)
async def test_a_stream_that_is_not_whole_is_malformed(body):
    answer = Answer(body=body, headers=(("content-type", "text/event-stream"),))
    async with open_model_server([answer]) as server, provider_of(server, stream=True) as provider:
        assert (await failure_of(provider)).kind is ProviderErrorKind.malformed


async def test_a_stream_that_ends_in_good_order_without_its_end_is_malformed():
    async with (
        open_model_server([Answer(text="half a sentence", fault=Fault.no_end)]) as server,
        provider_of(server, stream=True) as provider,
    ):
        assert (await failure_of(provider)).kind is ProviderErrorKind.malformed


@both
@pytest.mark.parametrize(
    ("answer", "limits", "says"),
    [
        (Answer(fault=Fault.hang), Timeouts(first_byte=0.1), "no answer began"),
        (Answer(text="abcdefgh", fault=Fault.stall), Timeouts(idle=0.1), "the answer stopped"),
        (Answer(text="a", fault=Fault.trickle, piece_delay=0.05), Timeouts(idle=0.5, total=0.25), "no whole answer"),
        (Answer(fault=Fault.hang), Timeouts(total=0.1), "no whole answer"),
    ],
    ids=["hang", "stall", "trickle", "total"],
)
async def test_silence_of_every_kind_ends_in_a_timeout(answer, limits, says, stream):
    async with open_model_server([answer]) as server, provider_of(server, stream=stream, timeouts=limits) as provider:
        with trio.fail_after(2):
            error = await failure_of(provider)
            assert error.kind is ProviderErrorKind.timeout
            assert says in str(error)
            assert error.usage is None
            await until_idle(server)
            assert (await provider.complete(REQUEST)).finish_reason == "stop"


@pytest.mark.parametrize("held", [True, False], ids=["held open", "broken off"])
async def test_after_its_end_mark_it_does_not_matter_how_a_stream_ends(held):
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            request = b""
            while not request.endswith(b"}"):
                request += await stream.receive_some()
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            event = b'data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
            await stream.send_all(b"%x\r\n%s\r\n" % (len(event), event))
            if held:
                await stream.receive_some()

    async with raw_server(serve) as url, OpenAIChat(base_url=url, stream=True) as provider:
        with trio.fail_after(2):
            assert (await provider.complete(REQUEST)).text == "x"
        assert_idle(provider)


async def test_a_call_cancelled_while_its_request_goes_out_leaves_nothing_to_complain_about():
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    async with raw_server(serve) as url, OpenAIChat(base_url=url) as provider:
        with trio.move_on_after(0.1) as scope:
            await provider.complete(CompletionRequest("", (UserTurn("x" * 20_000_000),)))
        assert scope.cancelled_caught
        assert_idle(provider)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
            await trio.lowlevel.checkpoint()
        assert [str(warning.message) for warning in caught] == []


async def test_an_error_whose_body_never_ends_is_still_that_error(monkeypatch):
    monkeypatch.setattr("actors.providers.openai_chat.ERROR_BODY_SECONDS", 0.1)

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 401 No\r\ncontent-length: 1000\r\n\r\nwrong key")
            await stream.receive_some()

    async with raw_server(serve) as url, OpenAIChat(base_url=url) as provider:
        with trio.fail_after(2):
            error = await failure_of(provider)
    assert (error.kind, error.status) == (ProviderErrorKind.auth, 401)
    assert "wrong key" in str(error)


@both
async def test_an_answer_without_end_is_cut_at_the_cap(monkeypatch, stream):
    monkeypatch.setattr("actors.providers.openai_chat.MOST_ANSWER_BYTES", 1000)
    async with (
        open_model_server([Answer(text="x" * 200_000)]) as server,
        provider_of(server, stream=stream) as provider,
    ):
        error = await failure_of(provider)
    assert error.kind is ProviderErrorKind.malformed
    assert "longer than 1000 bytes" in str(error)


async def test_redirects_are_not_followed_not_even_by_a_clients_own_wish():
    async with open_model_server([]) as target:
        moved = Answer(status=307, headers=(("location", target.base_url + "/chat/completions"),))
        async with open_model_server([moved, moved]) as server, httpx.AsyncClient(follow_redirects=True) as client:
            for provider in (provider_of(server), provider_of(server, client=client)):
                error = await failure_of(provider)
                assert (error.kind, error.status) == (ProviderErrorKind.request, 307)
                await provider.aclose()
        assert target.calls == 0
        assert not target.headers


async def test_a_client_of_ours_and_one_of_the_caller_send_the_same_request():
    async with open_model_server([Answer(text="a"), Answer(text="b")]) as server, httpx.AsyncClient() as client:
        for provider in (provider_of(server), provider_of(server, client=client)):
            async with provider:
                await provider.complete(REQUEST)
        ours, theirs = server.headers
        assert ours == theirs
        assert {"host", "user-agent", "accept-encoding", "content-length", "authorization"} <= set(ours)


async def test_a_proxy_named_by_the_environment_is_used(monkeypatch):
    async with open_model_server([]) as server:
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        # A reserved name that stands nowhere: only what was asked in its place can have answered.
        async with OpenAIChat(base_url="http://model.invalid/v1", api_key=CANARY) as provider:
            error = await failure_of(provider)
        assert (error.kind, error.status) == (ProviderErrorKind.request, 404)
        assert "model.invalid:80: HTTP 404: there is only POST" in str(error)


async def test_nobody_listening_is_a_transport_error_that_names_the_place_and_cost_nothing():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        async with OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1") as provider:
            error = await failure_of(provider)
    assert error.kind is ProviderErrorKind.transport
    assert f"127.0.0.1:{port}" in str(error)
    assert error.usage == Usage()


async def test_something_that_speaks_no_http_is_a_transport_error():
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"SSH-2.0-what\r\n\r\n")

    async with raw_server(serve) as url, OpenAIChat(base_url=url) as provider:
        assert (await failure_of(provider)).kind is ProviderErrorKind.transport


async def test_usage_that_is_missing_or_cannot_be_is_unknown():
    answers = [
        Answer(report_usage=False),
        Answer(usage=None),
        Answer(usage={"prompt_tokens": -1, "completion_tokens": 5}),
        Answer(usage={"prompt_tokens": 0, "completion_tokens": 0}),
    ]
    async with open_model_server(answers) as server, provider_of(server) as provider:
        usages = [(await provider.complete(REQUEST)).usage for _ in answers]
    assert usages == [None, None, None, Usage()]


async def test_an_estimate_learns_from_what_was_reported():
    answers = [Answer(prompt_tokens=100), Answer(prompt_tokens=1), Answer(report_usage=False)]
    async with open_model_server(answers) as server, provider_of(server) as provider:
        before = provider.estimate(REQUEST)
        assert before.prompt_tokens < 100
        for _ in answers:
            await provider.complete(REQUEST)
            assert provider.estimate(REQUEST).prompt_tokens == 100
        assert provider.estimate(REQUEST).output_tokens == REQUEST.max_output_tokens


async def test_500_calls_at_once_never_open_more_connections_than_the_lanes_hold():
    answer = Answer(text="x", delay=0.002, prompt_tokens=10, completion_tokens=1)
    done: list[Completion] = []
    most = 0

    def script(_body: dict[str, Any], _number: int) -> Answer:
        nonlocal most
        most = max(most, server.connections)
        return answer

    async with open_model_server(script) as server, provider_of(server, lanes=20) as provider:

        async def one() -> None:
            done.append(await provider.complete(REQUEST))

        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(one)
        assert_idle(provider)
        assert len(provider.lanes.clients) == 4
    assert len(done) == server.calls == 500
    assert 1 < server.peak <= 20
    assert most <= 20
    assert server.billed_tokens == 500 * 11 == sum(completion.usage.tokens for completion in done if completion.usage)


@both
async def test_cancelling_at_random_points_leaves_the_pool_empty_and_usable(stream):
    chance = random.Random(7)
    answer = Answer(text="x" * 40, delay=0.001, piece_delay=0.001)
    async with (
        open_model_server(lambda _body, _number: answer) as server,
        provider_of(server, stream=stream, lanes=6) as provider,
    ):

        async def one() -> None:
            with trio.move_on_after(chance.uniform(0, 0.15)):
                await provider.complete(REQUEST)

        async with trio.open_nursery() as nursery:
            for _ in range(120):
                nursery.start_soon(one)
        assert_idle(provider)
        with trio.fail_after(3):
            assert (await provider.complete(REQUEST)).text == "x" * 40
            await until_idle(server)
        assert server.connections <= 6


async def test_two_providers_may_share_lanes_and_neither_closes_them():
    async with open_model_server([]) as server:
        lanes = Lanes(2)
        for model in ("a", "b"):
            async with provider_of(server, lanes=lanes, model=model) as provider:
                await provider.complete(REQUEST)
        assert server.connections == 1
        await lanes.aclose()
    assert [request["model"] for request in server.requests] == ["a", "b"]


async def test_the_key_is_in_no_text_of_the_provider(caplog):
    caplog.set_level("DEBUG")
    async with open_model_server([Answer(status=401, text=f"bad key {CANARY}")]) as server:
        async with provider_of(server, model="m") as provider:
            error = await failure_of(provider)
            assert CANARY not in repr(provider) + repr(provider.lanes) + repr(vars(error)) + caplog.text
            assert "bad key [key]" in str(error)
            assert error.__cause__ is None
            assert error.__context__ is None


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_repeats_the_key_or_another_credential_is_given_without_it(monkeypatch, stream):
    monkeypatch.setenv("OTHER_TOKEN", "canary-of-somebody-else")
    said = Answer(text=f"you are {CANARY}", calls=(SaidCall("probe", json.dumps({"a": f"{CANARY} canary-of-somebody-else"})),))
    async with open_model_server([said]) as server:
        async with provider_of(server, stream=stream) as provider:
            completion = await provider.complete(REQUEST)
    assert completion.text == "you are [key]"
    assert json.loads(completion.calls[0].arguments) == {"a": "[key] [key]"}


async def test_a_client_that_fails_with_the_key_in_its_text_is_told_by_its_class_only():
    class Client(httpx.AsyncClient):
        async def send(self, *_: object, **__: object) -> httpx.Response:
            raise RuntimeError(f"no way to send {CANARY}")

    async with Client() as client:
        async with OpenAIChat(base_url="http://model.invalid/v1", api_key=CANARY, client=client) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.complete(REQUEST)
    told = "".join(traceback.format_exception(caught.value))
    assert "RuntimeError" in str(caught.value) and CANARY not in told


@pytest.mark.parametrize("key", ["k", "[key]", "ey", "abcdefgh12"])
async def test_an_odd_key_is_hidden_without_going_round_in_circles(key):
    async with open_model_server([Answer(status=400, body=f"<{key}|{key}{key}>")]) as server:
        async with OpenAIChat(base_url=server.base_url, api_key=key) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.complete(REQUEST)
            assert caught.value.message.endswith("<[key]|[key][key]>")


async def test_a_key_that_repeats_itself_leaves_no_end_of_it():
    key = "a" * 10
    async with open_model_server([Answer(status=400, body=f"<{key}|{key}{key}>")]) as server:
        async with OpenAIChat(base_url=server.base_url, api_key=key) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.complete(REQUEST)
            assert caught.value.message.endswith("<[key]|[key]>")


@pytest.mark.parametrize("filler", range(280, 306))
async def test_a_key_at_the_edge_of_a_cut_text_is_hidden_too(filler):
    async with open_model_server([Answer(status=400, body="x" * filler + CANARY + "y" * 50)]) as server:
        async with provider_of(server) as provider:
            error = await failure_of(provider)
            assert CANARY[:8] not in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"base_url": "127.0.0.1:80"}, "provider.base_url: is no address"),
        ({"base_url": "ftp://a/v1"}, "provider.base_url: is no address"),
        ({"base_url": "http://"}, "provider.base_url: is no address"),
        ({"base_url": "http://a:99999/"}, "provider.base_url: is no address"),
        ({"base_url": "http://a b/"}, "provider.base_url: is no address"),
        ({"base_url": f"http://me:{CANARY}@a/v1"}, "provider.base_url: holds a user"),
        ({"base_url": f"http://a/v1?key={CANARY}"}, "provider.base_url: must end with its path"),
        ({"base_url": "http://a/v1", "api_key": f"{CANARY}\nx: y"}, "provider.api_key: holds spaces"),
        ({"base_url": "http://a/v1", "api_key": f"{CANARY}é"}, "provider.api_key: holds spaces"),
        ({}, "provider.api_key: no key is given: set OPENAI_API_KEY"),
    ],
)
def test_an_address_or_a_key_that_cannot_be_used_is_refused_without_showing_it(options, says):
    with pytest.raises(ConfigError) as caught:
        OpenAIChat(**options)
    assert says in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, float("inf"), float("nan"), True, "5", None])
def test_a_time_limit_that_is_none_is_refused(bad):
    with pytest.raises(ConfigError, match=r"timeouts\.total: must be seconds above 0"):
        Timeouts(total=bad)


def test_the_vendors_own_address_is_the_default_and_takes_its_headers(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    provider = OpenAIChat(model="m")
    assert provider.endpoint == "api.openai.com:443"
    assert provider._headers["openai-organization"] == "org"
    assert provider._limit_field == "max_completion_tokens"
    assert repr(provider) == "OpenAIChat(name='openai', endpoint='api.openai.com:443', model='m')"
    assert OpenAIChat(base_url="http://[::1]:8080/v1").endpoint == "[::1]:8080"
    assert OpenAIChat(base_url="http://b\xfccher.example/v1").endpoint == "xn--bcher-kva.example:80"


class raw_server:
    """A socket that answers with bytes of the test's own."""

    def __init__(self, serve: Callable[[trio.SocketStream], Any]) -> None:
        self._serve = serve
        self._scope = trio.CancelScope()
        self._nursery = trio.open_nursery()

    async def __aenter__(self) -> str:
        nursery = await self._nursery.__aenter__()
        self._scope = nursery.cancel_scope
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, self._serve, listeners)
        return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"

    async def __aexit__(self, *error: Any) -> bool | None:
        self._scope.cancel()
        return await self._nursery.__aexit__(*error)
