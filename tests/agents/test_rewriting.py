"""What may stand in place of a call's arguments, what of it an answer covers, and what the model reads of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.model_input import MOST_ARGUMENTS
from actors.agents.ports import ApprovalState, Completion, Observation, ObservationKind, ToolCall, ToolSpec
from actors.agents.rewriting import (
    MOST_VALUES,
    TOLD_CHARS,
    Rewriting,
    came_to,
    changed_keys,
    difference,
    mistake,
    parsed,
    rewritten,
    to_text,
)
from actors.agents.roster import Agents
from actors.agents.secret_values import Redactor
from actors.agents.spawning import spawn_spec
from actors.agents.step_rows import step_facts
from actors.tools.toolbox import builtin_tools

CALL = ToolCall("write_file", '{"path": "a.txt", "content": "1"}')
NONE = Redactor()


def yes(nth: int, target: str, modified: str | None = None, act: str = "write", content: str = "") -> ApprovalState:
    return ApprovalState(False, "approved", "", "operator", act, target, content, None, modified, nth)


def no(nth: int, target: str, modified: str | None = None) -> ApprovalState:
    return ApprovalState(False, "denied", "", "operator", "write", target, "", None, modified, nth)


# ── what an answer covers ───────────────────────────────────────────────────


def test_an_answer_that_changes_nothing_covers_nothing_and_is_no_news() -> None:
    call = Rewriting(CALL)
    assert call.hear([yes(1, "a.txt"), no(2, "b.txt", '{"path": "c"}')]) == 0
    assert call.begin() is CALL and not call.covers("write", "a.txt", "")
    seen = Observation(ObservationKind.write, "a.txt", "wrote it")
    assert call.telling(seen) is seen


def test_a_change_covers_its_kind_of_act_and_what_was_answered_before_it_and_not_what_came_later() -> None:
    call = Rewriting(CALL)
    answers = [
        yes(1, "a.txt", act="read"),
        yes(3, "a.txt", '{"path": "b.txt", "content": "2"}'),
        yes(4, "b.txt", act="exec"),
        no(2, "never"),
    ]
    assert call.hear(answers) == 3
    assert call.begin() == ToolCall("write_file", '{"path": "b.txt", "content": "2"}')
    assert call.covers("write", "anything", "at all") and call.covers("read", "a.txt", "")
    assert not call.covers("read", "b.txt", "") and not call.covers("read", "a.txt", "x")
    assert not call.covers("exec", "b.txt", ""), "what was said of the changed call is found by its own row"


def test_of_several_changes_the_last_is_what_runs() -> None:
    call = Rewriting(CALL)
    assert call.hear([yes(1, "a.txt", '{"n": 1}', act="read"), yes(2, "b.txt", '{"n": 2}')]) == 2
    assert call.call.arguments == '{"n": 2}' and call.covers("read", "c", "") and call.covers("write", "c", "")


@pytest.mark.parametrize("stored", ["", " ", "{", "[]", "null", '{"a": 1, "a": 2}', '{"a": NaN}', b"{}", 7])
def test_what_cannot_be_read_changes_nothing(stored: Any) -> None:
    call = Rewriting(CALL)
    assert call.hear([yes(1, "a.txt", stored)]) == 0 and call.call is CALL
    assert rewritten(CALL, yes(1, "a.txt", stored)) is None
    assert rewritten(CALL, yes(1, "a.txt", "{}")) == ToolCall("write_file", "{}")


# ── what may be stored ──────────────────────────────────────────────────────

SPECS = {spec.name: spec for spec in (spawn_spec(Agents()), *(tool.spec for tool in builtin_tools()))}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "a", "content": ""}),
        ("read_file", {"path": "a", "max_chars": None}),
        ("exec", {"argv": ["ls", "-l"]}),
        ("shell", {"line": "ls | wc"}),
        ("shell_poll", {"handle": "1", "cursor": 0}),
        ("spawn_agent", {"goal": "x", "verify": {"kind": "none"}, "deny_write": ["a"], "max_steps": 3, "wait": False}),
    ],
)
def test_what_a_tool_takes_is_taken(tool: str, arguments: Mapping[str, Any]) -> None:
    properties = SPECS[tool].parameters["properties"]
    wanted = {key: value for key, value in arguments.items() if key in properties}
    assert mistake(wanted, SPECS[tool].parameters) is None
    text = to_text(wanted, ToolCall(tool, '{"other": 1}'), SPECS[tool], NONE)
    assert text is not None and json.loads(text) == wanted


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("write_file", {"path": "a", "content": True}, "'content' must be of type string"),
        ("exec", {"argv": "ls"}, "'argv' must be of type array"),
        ("exec", {"argv": []}, "'argv' must have at least 1, and has 0"),
        ("exec", {"argv": ["ls", 7]}, "'argv[1]' must be of type string"),
        ("edit_file", {"path": "a", "search": "", "replace": "b"}, "'search' must have at least 1"),
        ("spawn_agent", {"goal": "x", "max_steps": 0}, "'max_steps' must be at least 1"),
        ("spawn_agent", {"goal": "x", "max_steps": True}, "'max_steps' must be of type integer"),
        ("spawn_agent", {"goal": "x", "wait": 1}, "'wait' must be of type boolean"),
        ("spawn_agent", {"verify": {}}, "'goal' is missing"),
    ],
)
def test_what_a_tool_does_not_take_is_named(tool: str, arguments: Mapping[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match="these are no arguments for") as refused:
        to_text(arguments, ToolCall(tool, "{}"), SPECS[tool], NONE)
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_choices_and_bounds_of_other_tools_are_looked_at() -> None:
    schema = {"properties": {"a": {"enum": ["x"]}, "b": {"type": "number", "maximum": 2}, "c": {"maxLength": 1}}}
    found = [mistake(each, schema) for each in ({"a": "y"}, {"b": 2.5}, {"c": "xx"}, {"a": "x", "b": 2, "c": "x", "d": 1})]
    assert found == ["'a' must be one of ['x']", "'b' must be at most 2", "'c' may have at most 1, and has 2", None]


def test_a_question_of_no_call_has_no_arguments_to_change() -> None:
    with pytest.raises(ValueError, match="about no call of a tool"):
        to_text({}, ToolCall("", ""), None, NONE)
    assert rewritten(ToolCall("", ""), yes(1, "host:443", "{}", act="net")) is None


def test_true_is_not_one_and_the_order_of_keys_is_nothing() -> None:
    call = ToolCall("x", '{"a": 1, "b": 2}')
    assert to_text({"b": 2, "a": 1}, call, None, NONE) is None
    assert to_text({"b": 2, "a": True}, call, None, NONE) == '{"b": 2, "a": true}'
    assert to_text({}, ToolCall("x", ""), None, NONE) is None


def test_half_a_character_and_too_much_are_no_trouble() -> None:
    assert to_text({"a": "\ud800"}, ToolCall("x", "{}"), None, NONE) == '{"a": "\ufffd"}'
    with pytest.raises(ValueError, match="at most"):
        to_text({"a": "x" * MOST_ARGUMENTS}, ToolCall("x", "{}"), None, NONE)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="no JSON"):
        to_text({"a": deep}, ToolCall("x", "{}"), None, NONE)


def test_a_credential_is_not_taken_however_it_is_spelled() -> None:
    redactor = Redactor(('canary"0123456789',))
    for value in ('canary"0123456789', 'x canary"0123456789 y'):
        with pytest.raises(ValueError, match="credential") as refused:
            to_text({"a": value}, ToolCall("x", "{}"), None, redactor)
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize("text", ["", " ", "{", "7", "null", '"x"', '{"a": 1, "a": 1}', '{"a": 1e999}'])
def test_what_an_operator_types_is_an_object_or_one_line_of_error(text: str) -> None:
    with pytest.raises(ValueError, match="arguments of the call") as refused:
        parsed(text)
    assert "\n" not in str(refused.value)


# ── what the model reads ────────────────────────────────────────────────────


def test_what_is_told_names_each_change() -> None:
    ran = ToolCall("write_file", '{"path": "b.txt", "mode": true}')
    assert changed_keys(CALL.arguments, ran.arguments) == ["content", "mode", "path"]
    assert difference(CALL, ran) == (
        "[whoever approves changed this call before it ran: content is left out, and was \"1\"; mode is true, and was not "
        'given; path is "b.txt", and was "a.txt". What follows is of the changed call]'
    )


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, max_size=3))
TABLES = st.dictionaries(st.text(), JSON, max_size=2 * MOST_VALUES)


@given(TABLES, TABLES)
def test_what_is_told_is_bounded_and_never_silent(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    call = ToolCall("x", json.dumps(before))
    try:
        text = to_text(after, call, None, NONE)
    except ValueError:
        # Two keys that differ only in half characters.
        return
    if text is None:
        return
    told = difference(call, ToolCall("x", text))
    assert told.startswith("[whoever approves changed this call") and len(told) <= TOLD_CHARS + 100
    assert changed_keys(call.arguments, text)


def test_a_tool_of_any_schema_can_be_looked_at() -> None:
    spec = ToolSpec("x", "", {})
    assert to_text({"a": [1, {"b": None}]}, ToolCall("x", "{}"), spec, NONE) == '{"a": [1, {"b": null}]}'


def test_of_a_changed_call_that_failed_an_event_tells_why_and_not_what_was_changed() -> None:
    ran = ToolCall("x", json.dumps({"patch": "garbage" * 100}))
    news = difference(ToolCall("x", "{}"), ran)
    assert came_to(f"{news}\nit fits nowhere\n") == "it fits nowhere\n" and came_to("it fits") == "it fits"
    assert came_to(news) == news
    failed = Observation(ObservationKind.error, "x", f"{news}\nit fits nowhere")
    facts = step_facts(1, Completion("", (ran,)), [failed], 0)
    assert facts["failed"] == [{"tool": "x", "text": "it fits nowhere"}]
