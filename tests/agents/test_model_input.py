"""Whatever a model sends: each call has one clear result, nothing runs by accident, and no character breaks anything.

Each case is run in a store on disk, cut while the model thinks about the
results, and resumed: what was not run before is not run then either.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.approvals import ApproveAll
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.model_input import MOST_ARGUMENTS, MOST_NAME, clean_call, read_arguments
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import (
    Completion,
    CompletionRequest,
    Estimate,
    Observation,
    ObservationKind,
    ResultsTurn,
    ToolCall,
    ToolContext,
    ToolSpec,
)
from actors.agents.tree import Tree
from actors.assembly.resuming import resume
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import ConfigError, ToolFailed
from actors.providers.exchange_codec import Exchange, decode_line, encode_line, fingerprint
from actors.store.store import Store

LIMITS = Containment(10, 4, 2, 10**9)
MB = 1_000_000
GOOD = ToolCall("probe", '{"n": 1}')


@attrs.define
class Model:
    """Answers with the calls once, stops its caller at the second request, and says a last word at the third."""

    calls: tuple[ToolCall, ...]
    text: str | None = None
    stop: Any = None
    requests: list[CompletionRequest] = attrs.Factory(list)
    name: str = "model"
    endpoint: None = None
    default_model: str = "m"

    def estimate(self, request: CompletionRequest) -> Estimate:
        return Estimate(10, 5)

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        if len(self.requests) == 1:
            return Completion(self.text, self.calls, Usage(10, 5), "m", "tool_calls")
        if len(self.requests) == 2 and self.stop is not None:
            self.stop()
            await trio.sleep_forever()
        return Completion("done", (), Usage(10, 5), "m", "stop")


class Probe:
    spec = ToolSpec("probe", "look", {"type": "object"})
    read_only = True

    def __init__(self) -> None:
        self.log: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        self.log.append(arguments)
        return Observation(ObservationKind.tool, "probe", f"seen {json.dumps(arguments)[:200]}")


@attrs.frozen
class Told:
    """What came of the calls of one answer: before the cut, and after a resume."""

    results: list[str]
    ran: list[Mapping[str, Any]]
    again: ResultsTurn
    folder: Path
    run_id: str


async def told(folder: Path, *calls: ToolCall, text: str | None = None) -> Told:
    """Run an answer with these calls, cut the run, resume it to its end, and check what must always hold."""
    work = folder / "work"
    work.mkdir()
    (folder / ".actors").mkdir()
    tool, model, trees = Probe(), Model(calls, text), list[Tree]()
    contract = TaskContract.workspace("look", work, stall=StallPolicy(window=0))
    options: dict[str, Any] = {"tools": (tool,)}
    async with Store.open(folder / ".actors" / "runs.db") as store:
        with trio.CancelScope() as scope:
            model.stop = scope.cancel
            await run_tree(contract, model, store, Policy.permissive(), ApproveAll(), LIMITS, on_open=trees.append, **options)
        run_id = trees[0].run_id
        rows = store.observations(run_id)
        before = model.requests[1].turns[-1]
        ran = list(tool.log)
    async with Store.open(folder / ".actors" / "runs.db") as store:
        result = await resume(run_id, model, store, **options)
        assert result.outcome.kind is OutcomeKind.finished and result.leaks.empty
        assert tool.log == ran, "a resume ran what was not run, or ran it again"
        assert [each.step for each in store.observations(run_id)] == [1] * len(calls) + [2]
    again = model.requests[2].turns[-1]
    assert isinstance(before, ResultsTurn) and isinstance(again, ResultsTurn)
    assert before.texts == again.texts and len(again.texts) == len(calls) == len(rows)
    assert model.requests[1].turns == model.requests[2].turns
    return Told([each.text for each in rows], ran, again, folder, run_id)


NESTED = "[" * 100_000 + "]" * 100_000
BAD = {
    "malformed": '{"n":',
    "trailing comma": '{"n": 1,}',
    "single quotes": "{'n': 1}",
    "a comment": '{"n": 1 /* one */}',
    "no quotes": "{n: 1}",
    "two objects": '{"n": 1}{"n": 2}',
    "a fence": '```json\n{"n": 1}\n```',
    "words around it": 'Here it is: {"n": 1}',
    "only blanks": "   ",
    "a mark at its start": '\ufeff{"n": 1}',
    "a list": '[{"n": 1}]',
    "a text": '"{\\"n\\": 1}"',
    "a number": "1",
    "null": "null",
    "truncated text": '{"n": 1, "content": "half of a sen',
    "truncated escape": '{"n": 1, "content": "\\u12',
    "raw control character": '{"n": "a\nb"}',
    "bad escape": '{"n": "\\x41"}',
    "deep lists": NESTED,
    "deep objects": '{"n":' * 100_000 + "1" + "}" * 100_000,
    "deep and cut": '{"n":' * 100_000,
    "not a number": '{"n": NaN}',
    "infinite": '{"n": -Infinity}',
    "too large a number": '{"n": 1e999}',
    "endless digits": '{"n": ' + "9" * 100_000 + "}",
    "a key twice": '{"n": 1, "n": 2}',
    "a key twice, deep inside": '{"n": [{"a": {"b": 1, "b": 2}}]}',
    "a key twice, once escaped": '{"n": 1, "\\u006e": 2}',
    "keys that become one": '{"a\\ud800": 1, "a\\udfff": 2}',
    "keys that become one by NUL": '{"a\\u0000": 1, "a\ufffd": 2}',
    "10 MB of text": json.dumps({"n": "x" * (10 * MB)}),
    "10 MB of blanks": '{"n": 1' + " " * (10 * MB) + "}",
    "10 MB of keys": json.dumps({f"{n:07}": 1 for n in range(700_000)}),
    "a little too much": json.dumps({"n": "x" * MOST_ARGUMENTS}),
    "a NUL between": '{"n": 1}\x00',
    "a lone surrogate between": '{"n": 1}\ud800',
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD.keys())
async def test_bad_arguments_run_nothing_and_say_what_is_wrong(tmp_path: Path, arguments: str) -> None:
    seen = await told(tmp_path, ToolCall("probe", arguments), GOOD)
    assert seen.ran == [{"n": 1}]
    assert seen.results[0].startswith("[probe failed]") or "the arguments of probe" in seen.results[0]
    assert len(seen.results[0]) < 12_100 and seen.results[1] == 'seen {"n": 1}'
    # What was not run is not kept in full either.
    assert sum(file.stat().st_size for file in (tmp_path / ".actors").iterdir()) < 8 * MB


async def test_arguments_of_the_largest_size_run(tmp_path: Path) -> None:
    content = "x" * (MOST_ARGUMENTS - 20)
    seen = await told(tmp_path, ToolCall("probe", json.dumps({"n": content})))
    assert seen.ran == [{"n": content}]


ODD = {
    "NUL": "\\u0000",
    "lone high": "\\ud800",
    "lone low": "\\udfff",
    "swapped halves": "\\ude00\\ud83d",
    "escape": "\\u001b[2J\\u001b]0;title\\u0007",
    "bell": "\\u0007",
    "line separators": "\\u2028\\u2029\\u0085",
    "right to left": "\\u202e gpj.exe \\u202c",
    "no character": "\\uffff\\ufffe",
    "byte order": "\\ufeff",
    "combining": "e" + "\\u0301" * 500,
    "wide": "\\ud83d\\udc68\\u200d\\ud83d\\udc69",
    "surrogate escape": "\\udc80\\udcff",
    "carriage return": "\\r\\n\\r",
    "markup": "[bold red]x[/] [link=file:///etc/passwd]y[/link]",
    "format": "%s %d {0} {x!r} \\\\ \\\"",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_an_odd_character_anywhere_breaks_nothing(tmp_path: Path, odd: str) -> None:
    """In the arguments, a tool's name, the text, a target: through store, digest, trace, JSON lines and a terminal."""
    plain = json.loads(f'"{odd}"')
    calls = (
        ToolCall("probe", f'{{"n": "{odd}", "{odd}": 1}}'),
        ToolCall(plain, "{}"),
        ToolCall("probe", f"{plain} is no JSON"),
        ToolCall("spawn_agent", json.dumps({"goal": plain or "x", "verify": {"kind": "none"}, "agent": plain})),
    )
    seen = await told(tmp_path, *calls, text=f"I say {plain}")
    assert len(seen.ran) == 1 and "\x00" not in json.dumps(seen.ran, ensure_ascii=False)
    for text in seen.results:
        assert text.encode().decode() == text
    views = [["trace"], ["trace", "--json"], ["trace", "--export"], ["trace", "--check"], ["show"], ["show", "--json"]]
    shown = shown_in_c(tmp_path, [[command, seen.run_id, *flags] for command, *flags in views])
    for arguments, out in zip(views, shown, strict=True):
        # A terminal is told nothing but text: no escape sequence of the model's.
        assert out and not any(byte in out for byte in (b"\x1b", b"\x07", b"\x00", b"\r")), arguments
        if arguments[-1] in ("--json", "--export"):
            for line in out.splitlines():
                json.loads(line)


SEVERAL = """
import json, sys
from actors.cli.main import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
    print("=====", flush=True)
"""


def shown_in_c(folder: Path, commands: list[list[str]]) -> list[bytes]:
    """Run commands where only ASCII can be shown, and Python does not help itself to more; give what each printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    environ |= {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(commands)],
        cwd=folder, env=environ, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.split(b"=====\n")[:-1]


async def test_calls_that_cannot_be_told_apart_are_all_run_and_all_answered(tmp_path: Path) -> None:
    # Ids are not even carried: the place of a call in its answer is its identity.
    seen = await told(tmp_path, GOOD, GOOD, ToolCall("probe", "{"), GOOD)
    assert seen.ran == [{"n": 1}] * 3
    assert [text.startswith("seen") for text in seen.results] == [True, True, False, True]


@pytest.mark.parametrize("name", ["", " ", "Probe", "probe ", "probe\x00", "probe\ud800", "pro\u200bbe", "рrobe", "x" * (10 * MB), "probe\nprobe", "../probe", "functions.probe"])
async def test_a_name_that_is_nearly_a_tools_runs_nothing(tmp_path: Path, name: str) -> None:
    seen = await told(tmp_path, ToolCall(name, '{"n": 1}'))
    assert seen.ran == [] and "there is no tool" in seen.results[0]
    assert len(seen.results[0]) < 2_000


@pytest.mark.parametrize("names", [("probe", "probe"), ("probe", "spawn_agent")])
async def test_AB121_a_tools_name_that_means_two_things_is_refused_before_anything_starts(tmp_path: Path, names: tuple[str, str]) -> None:
    tools = tuple(Probe() for _ in names)
    for tool, name in zip(tools, names, strict=True):
        tool.spec = ToolSpec(name, "look", {"type": "object"})
    model = Model((GOOD,))
    with pytest.raises(ConfigError, match=r"tools: .*another name"):
        await run_tree(TaskContract.workspace("g", tmp_path), model, None, Policy.permissive(), ApproveAll(), LIMITS, tools=tools)
    assert model.requests == []


async def test_ten_megabytes_of_text_end_no_run(tmp_path: Path) -> None:
    seen = await told(tmp_path, GOOD, text="x" * (10 * MB))
    assert seen.ran == [{"n": 1}]


ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=30) | st.sampled_from([each for each in BAD.values() if len(each) < 1_000])
SPEC = ToolSpec("probe", "look", {"type": "object"})


@given(ANY_TEXT)
def test_any_text_is_an_object_or_one_error(text: str) -> None:
    call = clean_call(ToolCall(text, text))
    assert clean_call(call) == call
    try:
        value = read_arguments(call, SPEC)
    except ToolFailed as error:
        assert str(error).encode()
        return
    assert isinstance(value, dict)
    msgspec.json.encode(value)
    if text:
        assert value == json.loads(call.arguments)


@given(st.integers(0, 3_000), st.sampled_from([" ", "x", "\\n", "[", '"', "{}", ","]))
def test_what_was_cut_is_never_json(offset: int, filling: str) -> None:
    for before, after in (('{"n": 1', "}"), ('{"n": "', '"}'), ('{"n": [', "]}"), ("", "")):
        text = before + " " * offset + filling * (MOST_ARGUMENTS // len(filling) + 1) + after
        call = clean_call(ToolCall("probe", text))
        assert len(call.arguments) < 2_200
        with pytest.raises(ToolFailed, match="are too long: at most 1000000 characters"):
            read_arguments(call, SPEC)


def test_a_name_is_cut_too() -> None:
    assert len(clean_call(ToolCall("x" * MB)).name) < MOST_NAME + 60


@given(ANY_TEXT)
def test_a_recording_carries_any_text(text: str) -> None:
    call = clean_call(ToolCall(text, text))
    request = CompletionRequest("", (), (), None, 10)
    exchange = Exchange(1, fingerprint(request), Estimate(1, 1), None, Completion(clean_call(ToolCall(text)).name, (call,)))
    line = encode_line(exchange)
    assert line.count(b"\n") == 1
    found = decode_line(line.rstrip(b"\n"))
    assert isinstance(found, Exchange) and found.came == exchange.came
