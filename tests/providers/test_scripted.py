"""A scripted model answers in order, by goal, on trio's clock, and counts its own bill."""

import json

import pytest
import trio

from actors.agents.ports import AssistantTurn, CompletionRequest, Provider, ToolCall, UserTurn
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted


def ask(goal: str = "go", model: str | None = None) -> CompletionRequest:
    return CompletionRequest("system", (UserTurn(goal), AssistantTurn("a"), UserTurn("more")), model=model)


async def test_answers_come_in_order_and_an_empty_one_after_the_end():
    provider = Scripted([[("write_file", {"path": "a", "content": "é"})], ScriptedAnswer(text="done")])
    first, second, third = [await provider.complete(ask()) for _ in range(3)]
    assert first.calls == (ToolCall("write_file", '{"path": "a", "content": "é"}'),)
    assert (first.text, first.finish_reason, first.usage) == (None, "tool_calls", Usage())
    assert (second.text, second.calls, second.finish_reason) == ("done", (), "stop")
    assert (third.text, third.calls) == (None, ())
    assert provider.requests == [ask()] * 3
    assert provider.calls == 3


async def test_the_model_asked_for_serves_else_the_configured_one():
    provider = Scripted()
    assert isinstance(provider, Provider)
    assert (await provider.complete(ask(model="cheap"))).model == "cheap"
    assert (await provider.complete(ask())).model == "configured-model"
    assert (provider.default_model, provider.endpoint, provider.name) == ("configured-model", None, "scripted")


async def test_goals_get_their_own_answers_in_order_and_share_the_others():
    provider = Scripted(
        [
            ScriptedAnswer(text="root 1"),
            ScriptedAnswer(text="a 1", when="child a"),
            ScriptedAnswer(text="ab", when="child"),
            ScriptedAnswer(text="root 2"),
            ScriptedAnswer(text="a 2", when="child a"),
        ]
    )
    goals = ["child a", "top", "child a", "child b", "child a", "child a", "top"]
    said = [(await provider.complete(ask(goal))).text for goal in goals]
    assert said == ["a 1", "root 1", "ab", None, "a 2", None, "root 2"]


async def test_answers_given_by_their_calls_share_usage_and_delay(autojump_clock):
    provider = Scripted([[], ScriptedAnswer(text="own"), []], usage=Usage(10, 2), delay=5.0)
    usages = [(await provider.complete(ask())).usage for _ in range(4)]
    assert usages == [Usage(10, 2), Usage(), Usage(10, 2), Usage()]
    assert trio.current_time() == 10.0


async def test_an_estimate_is_the_total_of_the_answer_to_come():
    usage = Usage(prompt_tokens=70, completion_tokens=20, total_tokens=100)
    provider = Scripted([ScriptedAnswer(usage=usage), ScriptedAnswer(usage=None), []])
    assert provider.estimate(ask()).tokens == usage.tokens == 100
    assert (await provider.complete(ask())).usage == usage
    assert provider.estimate(ask()).tokens > 4096
    assert (await provider.complete(ask())).usage is None
    assert provider.estimate(ask()).tokens == 0
    assert provider.billed_tokens == 100


async def test_errors_are_raised_as_scripted_with_what_they_cost():
    error = ProviderError(ProviderErrorKind.rate_limited, "slow", status=429, retry_after=2.0, usage=Usage(5, 1))
    provider = Scripted([ScriptedAnswer(error=error), ScriptedAnswer(error=error, usage=Usage(9))])
    assert provider.estimate(ask()).tokens == 6
    with pytest.raises(ProviderError) as caught:
        await provider.complete(ask())
    raised = caught.value
    assert (raised.kind, raised.status, raised.retry_after, raised.usage) == (error.kind, 429, 2.0, Usage(5, 1))
    assert raised is not error
    assert provider.billed_tokens == 6


async def test_an_error_without_usage_may_cost_something_unseen():
    error = ProviderError(ProviderErrorKind.timeout, "slow")
    provider = Scripted([ScriptedAnswer(error=error, usage=Usage(30, 10))])
    assert provider.estimate(ask()).tokens == 40
    with pytest.raises(ProviderError) as caught:
        await provider.complete(ask())
    assert caught.value.usage is None
    assert provider.billed_tokens == 40


async def test_a_delay_passes_on_the_virtual_clock_and_a_hang_never_ends(autojump_clock):
    usage = Usage(3, 1)
    provider = Scripted([ScriptedAnswer(text="late", delay=3600.0), ScriptedAnswer(hang=True, usage=usage)])
    assert (await provider.complete(ask())).text == "late"
    assert trio.current_time() == 3600.0
    with trio.move_on_after(50) as scope:
        await provider.complete(ask())
    assert scope.cancelled_caught
    assert trio.current_time() == 3650.0
    assert (provider.working, provider.peak, provider.billed_tokens) == (0, 1, 4)


async def test_answers_follow_the_order_of_the_calls_and_not_of_the_delays(autojump_clock):
    provider = Scripted([ScriptedAnswer(text=str(place), delay=9.0 - place) for place in range(5)])
    said: dict[int, str | None] = {}

    async def one(place: int) -> None:
        await trio.sleep(place / 10)
        said[place] = (await provider.complete(ask())).text

    async with trio.open_nursery() as nursery:
        for place in range(5):
            nursery.start_soon(one, place)
    assert said == {place: str(place) for place in range(5)}
    assert provider.peak == 5


def test_calls_that_are_none_are_refused_with_their_place():
    with pytest.raises(ConfigError, match=r"answers\[1\]\.calls\[0\]: must be \[tool, arguments\]"):
        Scripted([[], [("a",)]])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"answers\[0\].*the arguments are no JSON"):
        Scripted([[("a", {"x": float("nan")})]])


# ── script files ────────────────────────────────────────────────────────────


async def test_a_script_file_says_all_that_an_answer_can_be(tmp_path):
    file = tmp_path / "script.json"
    script = [
        {"text": "hi", "calls": [["read", {"path": "a"}], ["raw", "{"]], "usage": {"prompt_tokens": 4}},
        {"text": None, "usage": None, "delay": 0, "finish_reason": "length", "hang": False},
        {"when": "search", "text": "found"},
        {"error": {"kind": "server", "message": "down", "status": 503, "retry_after": 1, "usage": None}},
    ]
    file.write_text(json.dumps(script))
    provider = Scripted.from_file(file, model="m")
    first = await provider.complete(ask())
    assert first.calls == (ToolCall("read", '{"path": "a"}'), ToolCall("raw", "{"))
    assert (first.text, first.usage, first.model) == ("hi", Usage(4), "m")
    second = await provider.complete(ask())
    assert (second.usage, second.finish_reason) == (None, "length")
    assert (await provider.complete(ask("please search"))).text == "found"
    with pytest.raises(ProviderError, match="down") as caught:
        await provider.complete(ask())
    assert (caught.value.status, caught.value.retry_after) == (503, 1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("{}", "must be a list of answers"),
        ("[5]", "[0]: must be an object"),
        ('[{"txt": "a"}]', "[0].txt: is unknown; known are calls, delay, error"),
        ('[{}, {"text": 5}]', "[1].text: must be a text"),
        ('[{"calls": {}}]', "[0].calls: must be a list"),
        ('[{"calls": [["a"]]}]', "[0].calls[0]: must be [tool, arguments]"),
        ('[{"calls": [["a", 5]]}]', "[0].calls[0]: the arguments must be an object"),
        ('[{"usage": {"tokens": 1}}]', "[0].usage.tokens: is unknown"),
        ('[{"usage": {"prompt_tokens": true}}]', "[0].usage.prompt_tokens: must be a whole number"),
        ('[{"usage": {"prompt_tokens": -1}}]', "[0].usage.prompt_tokens: must be a whole number"),
        ('[{"delay": -1}]', "[0].delay: must be seconds"),
        ('[{"delay": true}]', "[0].delay: must be seconds"),
        ('[{"delay": NaN}]', "NaN is no JSON number"),
        ('[{"text": "a", "text": "b"}]', "the key 'text' stands twice"),
        ('[{"when": ""}]', "[0].when: must not be empty"),
        ('[{"hang": 1}]', "[0].hang: must be true or false"),
        ('[{"error": {"kind": "odd"}}]', "[0].error.kind: must be one of transport"),
        ('[{"error": {"message": "a"}}]', "[0].error.kind: is missing"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_a_script_that_is_wrong_is_refused_with_its_place(tmp_path, text, says):
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Scripted.from_file(file)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(file))


def test_all_problems_of_a_script_are_told_at_once(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('[{"a": 1, "delay": "x"}, {"usage": {"b": 1, "c": 2}}]')
    with pytest.raises(ConfigError) as caught:
        Scripted.from_file(file)
    paths = [path.removeprefix(str(file)) for path, _ in caught.value.problems]
    assert paths == ["[0].a", "[0].delay", "[1].usage.b", "[1].usage.c"]


def test_a_script_that_is_missing_or_no_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Scripted.from_file(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        Scripted.from_file(tmp_path / "binary.json")
