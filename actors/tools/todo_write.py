"""The tool `todo_write`: the model's own list of what is to be done, replaced whole each time.

It is inert: nothing reads it but whoever reads the conversation or the trace. It is
kept as every call is, so a resume has it, and there is no second copy to differ.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import trio.lowlevel

from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.output import one_line

NAME: Final = "todo_write"
MOST_ITEMS: Final = 64
MOST_CHARACTERS: Final = 200


class TodoStatus(StrEnum):
    """How an item stands."""

    pending = "pending"
    in_progress = "in_progress"
    done = "done"


_MARKS: Final = {TodoStatus.pending: "[ ]", TodoStatus.in_progress: "[>]", TodoStatus.done: "[x]"}


class TodoItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to be done."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_CHARACTERS)]
    status: TodoStatus


class TodoWriteArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `todo_write` takes."""

    items: Annotated[list[TodoItem], msgspec.Meta(max_length=MOST_ITEMS, description="the whole list")]


class TodoWrite:
    """Notes the list. See the file's docstring."""

    spec = spec_for(NAME, "Note your list of steps. It replaces the last one.", TodoWriteArguments)
    read_only = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Note it; nothing else happens.

        Cancellation: nothing happened.
        """
        items = taken(TodoWriteArguments, arguments, self.spec).items
        await trio.lowlevel.checkpoint()
        return Observation(ObservationKind.tool, NAME, listed(items))


def listed(items: list[TodoItem]) -> str:
    """Write a list, one item a line."""
    return "\n".join(f"{_MARKS[item.status]} {one_line(item.text)}" for item in items) or "[the list is empty]"
