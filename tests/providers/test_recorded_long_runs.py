"""The recording of a long run grows with its steps and not with their square, and says what it said before."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.fitting import Fitting
from actors.agents.growing import Growing
from actors.agents.ports import AssistantTurn, CompletionRequest, ResultsTurn, ToolCall, ToolSpec, Turn, UserTurn
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.exchange_codec import Start, decode_line, encode_line, fingerprint, linked
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted

TOOLS = (ToolSpec("look", "look at it", {"type": "object"}),)


def say(text: str, **fields: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text=text, usage=Usage(1, 1), **fields)


def conversation(steps: int, goal: str = "go", budget: int = 3_000) -> Iterator[CompletionRequest]:
    """Ask as an agent does: what it reads grows, and older results become stubs."""
    read = Fitting([UserTurn(goal)], budget)
    for step in range(steps):
        yield CompletionRequest("system", read.turns(), TOOLS, "m", 100, None, read.sent)
        read.append(AssistantTurn(f"{goal} {step}", (ToolCall("look", f'{{"at": {step}}}'),)))
        read.append(ResultsTurn((f"{step} " + "x" * 500,)))


def plain(request: CompletionRequest) -> CompletionRequest:
    return attrs.evolve(request, grown=None)


async def record(file: Path, requests: Sequence[CompletionRequest], answers: Scripted, **options: Any) -> None:
    async with RecordingProvider(answers, file, **options) as provider:
        for request in requests:
            provider.estimate(request)
            try:
                await provider.complete(request)
            except ProviderError:
                continue


async def test_two_recorders_of_one_run_know_what_each_of_them_has_written(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.jsonl", tmp_path / "outer.jsonl"
    answers = Scripted([say("x"), say("y"), say("z")])
    async with RecordingProvider(RecordingProvider(answers, inner), outer) as provider:
        for request in conversation(3):
            await provider.complete(request)
    for file in (inner, outer):
        async with ReplayProvider(file) as replay:
            assert [(await replay.complete(request)).text for request in conversation(3)] == ["x", "y", "z"]


async def recorded(file: Path, steps: int, *, known: bool) -> None:
    async with RecordingProvider(Scripted([say(f"answer {step}") for step in range(2 * steps)]), file) as provider:
        # Two agents take turns.
        for pair in zip(conversation(steps), conversation(steps, "walk"), strict=True):
            for request in pair:
                await provider.complete(request if known else plain(request))


# ── what a request is known by ──────────────────────────────────────────────


def digest(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def key_of(request: CompletionRequest) -> str:
    """Work a key out as the first format did: over everything, each time."""
    turns = []
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            turns.append(digest({"user": turn.text}))
        elif isinstance(turn, AssistantTurn):
            turns.append(digest({"assistant": turn.text, "calls": [[call.name, call.arguments] for call in turn.calls]}))
        else:
            turns.append(digest({"results": turn.texts}))
    tools = digest([[tool.name, tool.description, dict(tool.parameters)] for tool in request.tools])
    effort = [] if request.effort is None else [request.effort]
    content = digest([digest(request.system), tools, turns, request.model, *effort])
    return digest([content, request.max_output_tokens])[:32]


TURNS: st.SearchStrategy[Turn] = st.one_of(
    st.builds(UserTurn, st.text(max_size=3)),
    st.builds(AssistantTurn, st.none() | st.text(max_size=3), st.just((ToolCall("look"),))),
    st.builds(ResultsTurn, st.lists(st.text(max_size=3), max_size=2).map(tuple)),
)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 4), TURNS, st.booleans()), max_size=10),
    st.none() | st.sampled_from(["m", 'of "us"', "\u00e9"]),
    st.none() | st.just("high"),
)
def test_a_key_that_is_worked_out_on_the_way_is_the_key_of_the_whole(
    changes: list[tuple[int | None, Turn, bool]], model: str | None, effort: str | None
) -> None:
    grown: Growing[Turn] = Growing()
    for place, turn, asked in [*changes, (None, UserTurn("last"), True)]:
        if place is not None and place < len(grown):
            grown.put(place, turn)
        else:
            grown.append(turn)
        if asked:
            request = CompletionRequest("s", grown.items(), TOOLS, model, 9, effort, grown)
            assert linked(request, "keeper").key == fingerprint(plain(request)).key == key_of(request)
            assert fingerprint(request) == fingerprint(plain(request))


# ── what is written ─────────────────────────────────────────────────────────


async def test_a_late_line_is_no_longer_than_an_early_one(tmp_path: Path) -> None:
    await recorded(tmp_path / "run.jsonl", 120, known=True)
    lines = (tmp_path / "run.jsonl").read_bytes().splitlines()[1:]
    assert len(lines) == 240
    early, late = (sum(map(len, part)) for part in (lines[40:80], lines[-40:]))
    # Numbers get longer by a digit.
    assert late < 1.1 * early
    assert early < 40 * 1_000


async def test_what_is_only_counted_is_read_as_if_it_had_been_written(tmp_path: Path) -> None:
    short, long = tmp_path / "short.jsonl", tmp_path / "long.jsonl"
    await recorded(short, 30, known=True)
    await recorded(long, 30, known=False)
    assert short.stat().st_size < 0.75 * long.stat().st_size
    requests = list(conversation(30))
    other = [
        attrs.evolve(
            plain(request), turns=(*request.turns[:place], UserTurn("something else"), *request.turns[place + 1 :])
        )
        for request, place in ((requests[12], 7), (requests[29], 58), (requests[29], 3), (requests[5], 0))
    ]
    messages: list[list[str]] = []
    for file in (short, long):
        async with ReplayProvider(file) as provider:
            told = []
            for request in other:
                with pytest.raises(ProviderError) as caught:
                    await provider.complete(request)
                told.append(caught.value.message.removeprefix(str(file)))
            messages.append(told)
            for step, request in enumerate(conversation(30)):
                assert (await provider.complete(request)).text == f"answer {2 * step}"
    assert messages[0] == messages[1]
    assert "turn 8 of 25 differs" in messages[0][0] and "turn 59 of 59 differs" in messages[0][1]


async def test_a_question_that_failed_and_is_asked_again_is_written_and_answered_twice(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    [request] = conversation(1)
    down = ProviderError(ProviderErrorKind.server, "down")
    await record(file, [request, request], Scripted([ScriptedAnswer(error=down), say("now")]))
    async with ReplayProvider(file) as provider:
        with pytest.raises(ProviderError, match="down"):
            await provider.complete(request)
        assert (await provider.complete(request)).text == "now"


async def test_turns_of_a_question_that_was_never_written_are_not_counted(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    file = tmp_path / "run.jsonl"
    async with RecordingProvider(Scripted([say("cut", delay=10), say("one"), say("two")]), file) as provider:
        requests = conversation(3)
        with trio.move_on_after(1):
            await provider.complete(next(requests))
        for request in requests:
            await provider.complete(request)
    async with ReplayProvider(file) as replay:
        _, *asked = conversation(3)
        assert [(await replay.complete(request)).text for request in asked] == ["one", "two"]


async def test_a_process_that_goes_on_counts_no_turns_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    for goal, going_on in (("go", False), ("walk", True)):
        async with RecordingProvider(Scripted([say("a"), say("b")]), file, going_on=going_on) as provider:
            for request in conversation(2, goal):
                await provider.complete(request)
    counted = [json.loads(line)["request"].get("same", 0) for line in file.read_bytes().splitlines() if b'"key"' in line]
    assert counted == [0, 1, 0, 1]
    async with ReplayProvider(file) as replay:
        for goal in ("go", "walk"):
            assert [(await replay.complete(request)).text for request in conversation(2, goal)] == ["a", "b"]
    # Its own second question is the very one that says so; that of the process before is not meant.
    head, _, tail = file.read_text().rpartition('"after":1')
    file.write_text(f'{head}"after":2{tail}')
    with pytest.raises(ConfigError, match=r"line 6.*no exchange 2 with 1 turns stands before it"):
        ReplayProvider(file)


@pytest.mark.parametrize(("after", "same"), [(9, 1), (1, 2), (2, 1)])
async def test_a_line_that_counts_what_does_not_stand_before_it_is_refused(
    tmp_path: Path, after: int, same: int
) -> None:
    file = tmp_path / "run.jsonl"
    async with RecordingProvider(Scripted([say("a"), say("b")]), file) as provider:
        for request in conversation(2):
            await provider.complete(request)
    text = file.read_text()
    assert '"after":1,"same":1' in text
    file.write_text(text.replace('"after":1,"same":1', f'"after":{after},"same":{same}'))
    with pytest.raises(ConfigError, match=f"line 3.*no exchange {after} with {same} turns stands before it"):
        ReplayProvider(file)


async def test_a_file_of_the_first_format_is_read_and_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    first, second = conversation(2)
    await record(file, [plain(first)], Scripted([say("a")]))
    # Nothing else was changed in a line whose request has all its turns.
    file.write_bytes(file.read_bytes().replace(b'"format":2', b'"format":1'))
    assert isinstance(decode_line(file.read_bytes().splitlines()[0]), Start)
    assert encode_line(Start("p", None, "1")).startswith(b'{"line":"start","format":2')
    await record(file, [second], Scripted([say("b")]), going_on=True)
    async with ReplayProvider(file) as provider:
        assert [(await provider.complete(request)).text for request in conversation(2)] == ["a", "b"]
