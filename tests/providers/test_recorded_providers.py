"""What one provider was asked and answered stands in a file, line by line, and another one answers from it."""

# ruff: noqa: ASYNC240 - a test may wait for its own small files

import errno
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from actors.agents.ports import AssistantTurn, Completion, CompletionRequest, Estimate, Provider, ResultsTurn, UserTurn
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.exchange_codec import Exchange, Start, encode_line, fingerprint
from actors.providers.openai_chat import OpenAIChat
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.testing.model_script import Answer
from actors.testing.model_server import open_model_server


def ask(goal: str = "go", *more: str, **fields: Any) -> CompletionRequest:
    turns = [turn for text in more for turn in (AssistantTurn(text), ResultsTurn((f"seen {text}",)))]
    return CompletionRequest("system", (UserTurn(goal), *turns), **fields)


def say(text: str | None = "ok", **fields: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text=text, usage=fields.pop("usage", Usage(10, 2)), **fields)


async def came(provider: Provider, request: CompletionRequest) -> Completion | tuple[Any, ...]:
    try:
        return await provider.complete(request)
    except ProviderError as error:
        return error.kind, error.message, error.status, error.retry_after, error.usage


async def recorded(file: Path, script: Scripted, *requests: CompletionRequest) -> list[Any]:
    async with RecordingProvider(script, file) as provider:
        return [await came(provider, request) for request in requests]


async def refusal(provider: Provider, request: CompletionRequest) -> str:
    with pytest.raises(ProviderError) as caught:
        await provider.complete(request)
    error = caught.value
    # Nothing was sent, so it is free; and asking again changes nothing.
    assert (error.kind, error.retryable, error.usage) == (ProviderErrorKind.request, False, Usage())
    return error.message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# ── recorded and replayed ───────────────────────────────────────────────────


async def test_answers_and_errors_are_replayed_as_they_came(file: Path) -> None:
    limited = ProviderError(ProviderErrorKind.rate_limited, "slow", status=429, retry_after=2.5, usage=Usage(1))
    broken = ProviderError(ProviderErrorKind.server, "down", status=503)
    answers = [
        ScriptedAnswer(error=limited),
        ScriptedAnswer(error=broken),
        say(None, calls=(("probe", {"a": 1}),), usage=None),
        say("", finish_reason="length"),
    ]
    requests = [ask(), ask(), ask(), ask("go", "x", model="other")]
    first = await recorded(file, Scripted(answers), *requests)
    assert first[0] == ("rate_limited", "slow", 429, 2.5, Usage(1))
    assert [each.text for each in first[2:]] == [None, ""]
    for _ in range(2):
        async with ReplayProvider(file) as provider:
            assert provider.left == 4
            assert [await came(provider, request) for request in requests] == first
            assert provider.left == 0


async def test_a_replay_goes_by_the_name_and_model_of_the_recorded_provider_and_has_no_endpoint(file: Path) -> None:
    await recorded(file, Scripted([say()], name="mine", model="m-1"), ask())
    async with ReplayProvider(file) as provider:
        assert isinstance(provider, Provider)
        assert (provider.name, provider.default_model, provider.endpoint) == ("mine", "m-1", None)
        assert repr(provider) == f"ReplayProvider({str(file)!r}, 1 of 1 answers left)"


async def test_a_recording_provider_is_seen_as_the_one_it_records(file: Path) -> None:
    async with OpenAIChat("http://127.0.0.1:9/v1", model="m", name="x", api_key="k") as inner:
        provider = RecordingProvider(inner, file)
        assert isinstance(provider, Provider)
        assert (provider.name, provider.default_model, provider.endpoint) == ("x", "m", "127.0.0.1:9")
        assert provider.estimate(ask()) == inner.estimate(ask())


async def test_equal_requests_are_answered_in_the_order_they_were_asked_in_not_answered_in(
    file: Path, autojump_clock: trio.testing.MockClock
) -> None:
    script = Scripted([say("first", delay=5), say("second", delay=1), say("third", delay=3)])
    async with RecordingProvider(script, file) as provider, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(provider.complete, ask())
            await trio.testing.wait_all_tasks_blocked()
    places = [file.read_text().index(f'"{word}"') for word in ("second", "third", "first")]
    assert places == sorted(places)
    async with ReplayProvider(file) as replay:
        assert [(await replay.complete(ask())).text for _ in range(3)] == ["first", "second", "third"]


async def test_different_requests_may_come_in_any_order(file: Path) -> None:
    goals = [f"goal {number}" for number in range(20)]
    await recorded(file, Scripted([say(f"to {goal}", when=f"{goal}") for goal in reversed(goals)]), *map(ask, goals))
    async with ReplayProvider(file) as provider:
        for goal in sorted(goals, reverse=True):
            assert (await provider.complete(ask(goal))).text == f"to {goal}"


async def test_a_cancelled_replay_has_used_its_answer_up(file: Path) -> None:
    await recorded(file, Scripted([say("one"), say("two")]), ask(), ask())
    async with ReplayProvider(file) as provider:
        with trio.CancelScope() as scope:
            scope.cancel()
            await provider.complete(ask())
        assert scope.cancelled_caught
        assert (await provider.complete(ask())).text == "two"


# ── estimates ───────────────────────────────────────────────────────────────


async def test_a_replay_estimates_what_the_recorded_provider_did_also_for_a_request_that_was_clamped_since(
    file: Path,
) -> None:
    class Odd(Scripted):
        def estimate(self, request: CompletionRequest) -> Estimate:
            return Estimate(700 + self.calls, request.max_output_tokens + 1, 7)

    clamped = ask(max_output_tokens=50)
    async with RecordingProvider(Odd([say("a"), say("b")]), file) as provider:
        estimates = [provider.estimate(ask()), provider.estimate(ask("other"))]
        await provider.complete(clamped)
        await provider.complete(ask("other"))
    async with ReplayProvider(file) as replay:
        assert [replay.estimate(ask()), replay.estimate(ask("other"))] == estimates
        assert estimates[0] == Estimate(700, 4097, 7)
        assert (await replay.complete(clamped)).text == "a"
        # An answer that was given tells nothing of the next request, and a guess is no refusal.
        assert replay.estimate(ask()) != estimates[0]
        assert replay.estimate(ask()).output_tokens == 4096


async def test_a_provider_without_an_estimate_is_recorded_with_the_one_that_the_loop_would_make(file: Path) -> None:
    class Plain:
        name = "plain"

        async def complete(self, request: CompletionRequest) -> Completion:
            await trio.lowlevel.checkpoint()
            return Completion("x")

    async with RecordingProvider(Plain(), file) as provider:
        told = provider.estimate(ask())
        await provider.complete(ask())
        assert (provider.default_model, provider.endpoint) == (None, None)
    async with ReplayProvider(file) as replay:
        assert replay.estimate(ask()) == told


# ── refused ─────────────────────────────────────────────────────────────────


async def test_an_unknown_request_is_refused_with_its_digest_and_what_it_is_most_like(file: Path) -> None:
    await recorded(file, Scripted([say()] * 3), ask(), ask("go", "x"), ask("go", "x", "y"))
    async with ReplayProvider(file) as provider:
        other = ask("go", "x", "z")
        text = await refusal(provider, other)
        assert text.startswith(f"{file}: has no answer to request {fingerprint(other).key}; it is most like that of ")
        assert "line 4: turn 4 of 5 differs (the model's own turn), now 'z'" in text
        assert text.endswith("undo what changed the request, or record the run again")
        text = await refusal(provider, ask("go", "w"))
        assert "line 3: turn 2 of 3 differs" in text
        text = await refusal(provider, ask("new goal"))
        assert "line 2: turn 1 of 1 differs (the runtime's text), now 'new goal', then 'go'; undo" in text
        text = await refusal(provider, attrs.evolve(ask(), system="other"))
        assert "line 2: the system text differs; undo" in text
        text = await refusal(provider, ask(max_output_tokens=9))
        assert "line 2: max_output_tokens is 9 and not 4096; undo" in text
        # A refused request uses nothing up.
        assert provider.left == 3


async def test_a_request_whose_answers_are_used_up_is_refused(file: Path) -> None:
    await recorded(file, Scripted([say("a"), say("b")]), ask(), ask())
    async with ReplayProvider(file) as provider:
        assert [(await provider.complete(ask())).text for _ in range(2)] == ["a", "b"]
        text = await refusal(provider, ask())
        assert text.startswith(f"{file}: all recorded answers to request {fingerprint(ask()).key} were given already")


async def test_a_recording_that_is_changed_while_it_is_replayed_is_noticed(file: Path) -> None:
    await recorded(file, Scripted([say("aa"), say("bb")]), ask("aa"), ask("bb"))
    start, one, two = file.read_bytes().splitlines(keepends=True)
    assert len(one) == len(two)
    async with ReplayProvider(file) as provider:
        file.write_bytes(start + two + one)
        assert "was changed while it was replayed" in await refusal(provider, ask("aa"))
        file.write_bytes(start + one[:50])
        assert "cannot be read any more" in await refusal(provider, ask("bb"))
        # Neither is an estimate more than a guess, and it raises nothing.
        assert provider.estimate(ask("aa")).output_tokens == 4096


# ── the file ────────────────────────────────────────────────────────────────

START = encode_line(Start("scripted", "configured-model", ""))


def line(goal: str, text: str = "ok", asked: int = 1) -> bytes:
    return encode_line(Exchange(asked, fingerprint(ask(goal)), Estimate(1, 1), None, Completion(text)))


def problem(file: Path) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        ReplayProvider(file)
    [found] = caught.value.problems
    return found


async def test_a_last_line_that_was_cut_is_left_out_with_a_warning(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = START + line("a") + line("b")
    file.write_bytes(whole[:-30])
    async with ReplayProvider(file) as provider:
        assert provider.left == 1
    assert caplog.messages == [f"{file}: line 3, the last one, was cut off and is left out"]
    caplog.clear()
    # Only its end is missing.
    file.write_bytes(whole[:-1])
    async with ReplayProvider(file) as provider:
        assert provider.left == 2
    assert caplog.messages == []


def test_a_broken_line_is_refused_with_its_number(file: Path) -> None:
    file.write_bytes(START + line("a") + line("b")[:-30] + b"\n" + line("c"))
    place, text = problem(file)
    assert place == f"{file}, line 3" and text.startswith("is no line of a recording: ")
    # A whole last line is not a cut one.
    file.write_bytes(START + line("a") + b"{}\n")
    assert problem(file)[0] == f"{file}, line 3"
    # Blank lines are none of ours either.
    file.write_bytes(START + b"\n" + line("a"))
    assert problem(file)[0] == f"{file}, line 2"


@pytest.mark.parametrize(
    ("content", "place", "text"),
    [
        (b"", "", "holds no exchange: record a run into it first"),
        (START, "", "holds no exchange"),
        (b"[provider]", ", line 1", "is no line of a recording"),
        (line("a"), ", line 1", "stands before the start of the recording"),
        (START + line("a") + encode_line(Start("other", None, "")), ", line 3", "of another provider or model"),
        (START.replace(b'"format":2', b'"format":9') + line("a"), ", line 1", "format 9 is not known to this version"),
    ],
    ids=range(6),
)
def test_what_is_no_recording_is_refused(file: Path, content: bytes, place: str, text: str) -> None:
    file.write_bytes(content)
    found = problem(file)
    assert found[0] == f"{file}{place}" and text in found[1]


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    assert problem(file) == (str(file), "cannot be read: No such file or directory")


def test_a_recording_of_another_minor_series_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.providers.replay_index.own_version", lambda: "0.3.1")
    file.write_bytes(encode_line(Start("scripted", None, "0.2.9")) + line("a"))
    assert problem(file) == (
        f"{file}, line 1",
        "was recorded by version 0.2.9, and this is 0.3.1: record the run again",
    )
    file.write_bytes(encode_line(Start("scripted", None, "0.3.9")) + line("a"))
    assert ReplayProvider(file).left == 1


async def test_the_file_is_begun_at_the_first_request_for_its_owner_alone(file: Path) -> None:
    async with RecordingProvider(Scripted([say()]), file) as provider:
        provider.estimate(ask())
        assert not file.exists()
        await provider.complete(ask())
        # Whoever looks meanwhile sees whole lines.
        assert len(file.read_bytes().splitlines()) == 2
        assert file.stat().st_mode & 0o777 == 0o600


async def test_a_recording_is_never_mixed_with_another_one_and_a_resumed_run_goes_on_in_its_own(file: Path) -> None:
    await recorded(file, Scripted([say("a")]), ask())
    with pytest.raises(ConfigError, match="holds something already: remove it, or name another file"):
        RecordingProvider(Scripted(), file)
    with pytest.raises(ConfigError, match="is no recording of scripted with model other"):
        RecordingProvider(Scripted(model="other"), file, going_on=True)
    # The process was killed within its last line.
    with file.open("ab") as cut:
        cut.write(line("b")[:40])
    async with RecordingProvider(Scripted([say("b")]), file, going_on=True) as provider:
        await provider.complete(ask())
    async with ReplayProvider(file) as replay:
        assert [(await replay.complete(ask())).text for _ in range(2)] == ["a", "b"]


async def test_a_file_is_written_by_one_at_a_time(file: Path) -> None:
    async with RecordingProvider(Scripted([say()]), file) as first:
        await first.complete(ask())
        script = Scripted([say()])
        async with RecordingProvider(script, file, going_on=True) as second:
            assert "is written by another process" in await refusal(second, ask())
        # Nothing was sent that could not be kept.
        assert script.calls == 0


@pytest.mark.parametrize("place", ["no/run.jsonl", "."])
def test_a_place_that_cannot_hold_a_recording_is_refused_before_anything_starts(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError):
        RecordingProvider(Scripted(), tmp_path / place)


async def test_a_full_disk_loses_no_answer_and_lets_no_request_out(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    write = os.write

    def writes(descriptor: int, data: bytes) -> int:
        # The half that still fits.
        return write(descriptor, data[: len(data) // 2] if full else data)

    monkeypatch.setattr("actors.providers.recording_provider.os.write", writes)
    script = Scripted([say("a"), say("b"), say("c")])
    async with RecordingProvider(script, file) as provider:
        assert (await provider.complete(ask())).text == "a"
        full = True
        # Its answer is paid: the agent gets it.
        assert (await provider.complete(ask())).text == "b"
        assert "an answer is not recorded yet" in caplog.text
        text = await refusal(provider, ask())
        assert os.strerror(errno.ENOSPC) in text and str(file) in text
        assert script.calls == 2
        assert file.read_bytes().endswith(b"\n")
        full = False
        assert (await provider.complete(ask())).text == "c"
    async with ReplayProvider(file) as replay:
        assert [(await replay.complete(ask())).text for _ in range(3)] == ["a", "b", "c"]


async def test_a_cancelled_call_leaves_no_line(file: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with RecordingProvider(Scripted([say("a", delay=5), say("b")]), file) as provider:
        with trio.move_on_after(1):
            await provider.complete(ask())
        await provider.complete(ask())
    async with ReplayProvider(file) as replay:
        assert replay.left == 1
        assert (await replay.complete(ask())).text == "b"


KILLED = """
import sys, trio
from actors.agents.ports import CompletionRequest, UserTurn
from actors.providers.recording_provider import RecordingProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted

async def main():
    provider = RecordingProvider(Scripted([ScriptedAnswer(text="x" * 5000)] * 10**5), sys.argv[1])
    for number in range(10**5):
        await provider.complete(CompletionRequest("s", (UserTurn(str(number)),)))
        print(number, flush=True)

trio.run(main)
"""


def test_what_was_answered_before_a_kill_is_in_the_file(file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
        told = 50 + len(process.stdout.read().splitlines())
    # At most the answer that was on its way out of the process when it was killed.
    assert told <= ReplayProvider(file).left <= told + 1


# ── secrets ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
async def test_no_key_is_in_a_recording_also_when_the_endpoint_sends_it_back(file: Path, stream: bool) -> None:
    key = "sk-CANARY-0123456789"
    script = [
        Answer(text=f"bad key {key}", status=400),
        Answer(text="fine"),
    ]
    async with open_model_server(script) as server:
        inner = OpenAIChat(server.base_url, model="m", api_key=key, stream=stream)
        async with RecordingProvider(inner, file) as provider:
            first = [await came(provider, ask()) for _ in range(2)]
    async with ReplayProvider(file) as replay:
        assert [await came(replay, ask()) for _ in range(2)] == first
    content = file.read_text()
    assert "CANARY" not in content and "uthorization" not in content
    assert "bad key [key]" in content


# ── size ────────────────────────────────────────────────────────────────────

MANY = 20_000


async def test_an_index_holds_places_and_no_answers(file: Path) -> None:
    pattern, answer = line("goal"), b"x" * 1000
    key = fingerprint(ask("goal")).key.encode()
    first, last = ask("first"), ask("last")
    with file.open("wb") as out:
        out.write(START + line("first"))
        for number in range(MANY):
            out.write(pattern.replace(key, b"%032x" % number).replace(b'"ok"', b'"' + answer + b'"'))
        out.write(line("last"))
    assert file.stat().st_size > 1_000 * MANY
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        provider = ReplayProvider(file)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 350 * MANY, (held - before, peak - before)
    assert provider.left == MANY + 2
    async with provider:
        assert (await provider.complete(last)).text == (await provider.complete(first)).text == "ok"
        assert "it is most like that of line" in await refusal(provider, ask("goal", "more"))
