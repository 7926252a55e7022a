"""A list of steps is taken whole or refused, is written back as it stands, and touches nothing."""

import pytest

from actors.agents.ports import ObservationKind
from actors.errors import ToolFailed
from actors.tools.todo_write import MOST_CHARACTERS, MOST_ITEMS, TodoWrite


def items(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"items": [{"text": text, "status": status} for text, status in pairs]}


async def test_the_whole_list_is_written_back_and_nothing_is_asked_or_changed(root, context):
    asked = items(("read it", "done"), ("mend it", "in_progress"), ("test it", "pending"))
    seen = await TodoWrite().run(asked, context)
    assert (seen.kind, seen.target, seen.changed) == (ObservationKind.tool, "todo_write", False)
    assert seen.text == "[x] read it\n[>] mend it\n[ ] test it"
    assert context.asked == [] and list(root.iterdir()) == []


async def test_a_list_may_be_empty_and_as_long_as_is_said(context):
    assert (await TodoWrite().run(items(), context)).text == "[the list is empty]"
    longest = items(*[("é" * MOST_CHARACTERS, "pending")] * MOST_ITEMS)
    assert len((await TodoWrite().run(longest, context)).text.splitlines()) == MOST_ITEMS


async def test_an_item_stays_one_line_whatever_it_holds(context):
    seen = await TodoWrite().run(items(("a\n[x] b\x1b[2J\u2028c", "pending")), context)
    assert seen.text == "[ ] a?[x] b?[2J?c"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (items(*[("a", "pending")] * (MOST_ITEMS + 1)), "length <= 64"),
        (items(("a", "done"), ("x" * (MOST_CHARACTERS + 1), "done")), "length <= 200 - at `$.items[1].text`"),
        (items(("", "done")), "length >= 1 - at `$.items[0].text`"),
        (items(("a", "finished")), "Invalid enum value 'finished' - at `$.items[0].status`"),
        ({"items": [{"text": "a"}]}, "missing required field `status`"),
        ({"items": [{"text": "a", "status": "done", "by": "me"}]}, "unknown field `by`"),
        ({"items": "a"}, "Expected `array`, got `str`"),
        ({"items": None}, "got `null`"),
        ({}, "It takes: items (array)"),
    ],
)
async def test_what_is_no_such_list_is_refused_whole(context, arguments, said):
    with pytest.raises(ToolFailed) as caught:
        await TodoWrite().run(arguments, context)
    assert said in str(caught.value)


def test_the_schema_says_what_an_item_is_without_naming_another_place():
    item = TodoWrite.spec.parameters["properties"]["items"]["items"]
    assert item["required"] == ["text", "status"] and item["additionalProperties"] is False
    assert item["properties"]["text"] == {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS}
    assert sorted(item["properties"]["status"]["enum"]) == ["done", "in_progress", "pending"]
    assert "$ref" not in repr(TodoWrite.spec.parameters)
