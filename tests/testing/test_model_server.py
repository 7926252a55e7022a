"""The loopback endpoint, as a client of any make sees it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

from actors.testing.model_script import Answer, Fault
from actors.testing.model_server import main, open_model_server

ASK = {"messages": [{"role": "user", "content": "go"}]}


async def ask(client: httpx.AsyncClient, url: str, body: Any = ASK) -> httpx.Response:
    return await client.post(url + "/chat/completions", json=body)


async def test_a_list_answers_by_goal_in_order_and_then_empty():
    script = [Answer(text="one"), Answer(text="for a", when="child a")]
    async with open_model_server(script) as server, httpx.AsyncClient() as client:
        goals = ["go", "child a", "go"]
        bodies = [{"messages": [{"role": "user", "content": goal}]} for goal in goals]
        answers = [(await ask(client, server.base_url, body)).json() for body in bodies]
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == ["one", "for a", ""]
    assert list(server.requests) == bodies


async def test_a_function_sees_body_and_number_and_the_server_keeps_its_own_count():
    def script(body: dict[str, Any], number: int) -> Answer:
        return Answer(text=f"{body['model']}{number}", prompt_tokens=10 * number, completion_tokens=1)

    async with open_model_server(script, keep=2) as server, httpx.AsyncClient() as client:
        for _ in range(3):
            answer = (await ask(client, server.base_url, ASK | {"model": "m"})).json()
        stats = (await client.get(server.base_url.removesuffix("/v1") + "/stats")).json()
        assert stats == server.stats()
    assert answer["choices"][0]["message"]["content"] == "m3"
    assert (server.calls, server.billed_tokens, server.peak, len(server.requests)) == (3, 63, 1, 2)
    assert stats["connections"] == 1


async def test_a_strict_server_refuses_and_says_why():
    async with open_model_server([], strict=True) as server, httpx.AsyncClient() as client:
        bad = await ask(client, server.base_url, {"messages": [ASK["messages"][0]] * 2})
        good = await ask(client, server.base_url)
    assert bad.status_code == 400
    assert "user cannot follow user" in bad.json()["error"]["message"]
    assert good.status_code == 200
    assert server.refused == ["messages[1]: user cannot follow user"]


async def test_other_requests_get_an_error_and_the_connection_goes_on():
    async with open_model_server([]) as server, httpx.AsyncClient() as client:
        assert (await client.get(server.base_url)).status_code == 404
        assert (await client.post(server.base_url + "/chat/completions", content=b"{")).status_code == 400
        assert (await ask(client, server.base_url)).status_code == 200
        assert server.connections == 1


async def test_a_client_that_waits_for_leave_to_send_gets_it():
    async with open_model_server([Answer(text="x")]) as server:
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            body = json.dumps(ASK).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {len(body)}"
            )
            await stream.send_all(head.encode() + b"\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
            await stream.send_all(body)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("answer", [Answer(delay=60), Answer(fault=Fault.hang), Answer(text="abcd", fault=Fault.stall)])
async def test_a_client_that_goes_away_is_noticed(answer):
    async with open_model_server([answer]) as server, httpx.AsyncClient() as client:
        with trio.move_on_after(0.1) as scope:
            await ask(client, server.base_url)
        assert scope.cancelled_caught
        with trio.fail_after(1):
            while server.working or server.connections:
                await trio.sleep(0.005)
    assert (server.calls, server.peak) == (1, 1)


async def test_nonsense_on_the_wire_ends_its_connection_only():
    async with open_model_server([]) as server:
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            await stream.send_all(b"SSH-2.0-what\r\n\r\n")
            with trio.fail_after(1):
                assert await stream.receive_some() == b""
        async with httpx.AsyncClient() as client:
            assert (await ask(client, server.base_url)).status_code == 200


async def test_an_error_in_the_block_comes_out_as_it_is():
    with pytest.raises(LookupError, match="mine"):
        async with open_model_server([]):
            raise LookupError("mine")


async def test_the_port_is_free_again_after_the_block():
    async with open_model_server([]) as server:
        port = server.port
    with pytest.raises(OSError):
        await trio.open_tcp_stream("127.0.0.1", port)


# ── as a process ────────────────────────────────────────────────────────────


@asynccontextmanager
async def running(*arguments: str) -> AsyncGenerator[tuple[trio.Process, str], None]:
    command = [sys.executable, "-m", "actors.testing.model_server", *arguments]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        with trio.fail_after(20):
            assert process.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                piece = await process.stdout.receive_some()
                assert piece, "the server ended before it told its address"
                line += piece
            hello = json.loads(line)
            assert hello["pid"] == process.pid
            yield process, hello["url"]
    finally:
        process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


async def test_a_process_echoes_and_ends_with_its_standard_input():
    async with running("--echo", "--prompt-tokens", "7", "--completion-tokens", "2") as (process, url):
        async with httpx.AsyncClient() as client:
            answer = (await ask(client, url)).json()
            stats = (await client.get(url.removesuffix("/v1") + "/stats")).json()
        assert answer["choices"][0]["message"]["content"] == "go"
        assert answer["usage"]["total_tokens"] == stats["billed_tokens"] == 9
        assert process.stdin is not None
        await process.stdin.aclose()
        assert await process.wait() == 0


async def test_a_process_serves_a_script_file_and_ends_on_a_signal(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('[{"text": "told"}]')
    async with running("--script", str(file), "--strict") as (process, url):
        async with httpx.AsyncClient() as client:
            assert (await ask(client, url)).json()["choices"][0]["message"]["content"] == "told"
        os.kill(process.pid, signal.SIGTERM)
        assert await process.wait() == 0


def test_a_script_that_cannot_be_used_is_one_line_and_exit_2(tmp_path, capsys):
    assert main(["--script", str(tmp_path / "none.json")]) == 2
    assert main(["--script", "no.such.module:answers"]) == 2
    assert main(["--script", "actors.testing.model_script:TEXT_PIECES"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["--script"] * 3


@pytest.mark.parametrize("arguments", [[], ["--echo", "--script", "x.json"]])
def test_one_way_to_answer_must_be_given(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "--script or --echo" in capsys.readouterr().err
