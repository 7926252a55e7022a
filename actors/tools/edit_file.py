"""The tool `edit_file`: one passage, which must stand in the file exactly once, becomes another.

The file is read and written in two moments with the approver between them;
if somebody else wrote it meanwhile, nothing is done. `change_text` is how any
tool makes a new text of the one that is there.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from actors.agents.ports import Act, Observation, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.line_changes import MOST_BYTES, edit_of
from actors.tools.paths import Workspace, failing, shown
from actors.tools.protected import text_at
from actors.tools.whole_files import digest, opened, read_bytes, replace_bytes
from actors.tools.write_check import WriteCheck, write_check
from actors.tools.write_file import as_bytes, judge_place, written


class EditFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `edit_file` takes."""

    path: Annotated[str, msgspec.Meta(description="the file, relative to the workspace; it must exist")]
    search: Annotated[str, msgspec.Meta(min_length=1, description="the passage to replace; it must occur exactly once")]
    replace: Annotated[str, msgspec.Meta(description="what stands there afterwards")]


def edited(text: str, search: str, replace: str) -> str:
    """Replace the one passage.

    Raises:
        ToolFailed: it is not there, or more than once, overlapping ones included.
    """
    if not search:
        raise ToolFailed("search must not be empty")
    first = text.find(search)
    if first < 0:
        hint = "; the lines of this file end in CR LF" if "\r\n" in text and "\n" in search else ""
        raise ToolFailed(f"search does not occur in the file{hint}; read the file, and copy the passage exactly")
    if text.find(search, first + 1) >= 0:
        raise ToolFailed("search occurs more than once in the file; take more of the lines around it")
    return text[:first] + replace + text[first + len(search) :]


class EditFile:
    """Edits files. See the file's docstring."""

    spec = spec_for(
        "edit_file", "Replace one passage of a text file. The passage must occur exactly once.", EditFileArguments
    )
    read_only = False
    recovery = "replayable"
    notes_writes = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Edit, or leave the file as it is.

        Asks for reading too: whether a passage occurs tells what is in a file.

        Cancellation: nothing was written.
        """
        asked = taken(EditFileArguments, arguments, self.spec)
        return await change_text(asked.path, lambda text, _: edited(text, asked.search, asked.replace), context)


async def change_text(path: str, change: Callable[[str, str], str], context: ToolContext) -> Observation:
    """Make a new text of the one in a file; ``change`` is given the text and the file's resolved path.

    Asks for reading and for writing; what ``change`` raises leaves the file as it is.

    Cancellation: nothing was written; or it was, and a check that follows is gone.

    Raises:
        ToolFailed: there is no such text, it is git's own, it was changed meanwhile, or ``change`` failed.
        ActRefused: as `ToolContext.authorise`.
    """
    workspace = Workspace(context.root)
    relative = workspace.resolve(path)
    judge_place(relative)
    await context.authorise(Act.read, relative)
    with opened(workspace, relative) as descriptor, failing(relative):
        if descriptor is None:
            raise ToolFailed(f"{shown(relative)} does not exist; write_file makes files")
        before = read_bytes(descriptor, MOST_BYTES)
    if before is None:
        raise ToolFailed(f"{shown(relative)} has more than {MOST_BYTES} bytes; edit it with exec")
    if context.wrote(relative, digest(before)):
        # Run again because its process ended: it was done then, and nobody has touched the file since.
        return await _checked(await write_check(context, relative), written(relative, before, changed=True), before)
    try:
        text = change(before.decode(), relative)
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{shown(relative)} is no UTF-8 text (byte {error.start}); edit it with exec") from None
    except ToolFailed as error:
        raise ToolFailed(f"{shown(relative)}: {error}") from None
    data = as_bytes(text)
    edit = edit_of(before, data)
    await context.authorise(Act.write, relative, content=text, edit=edit)
    check = await write_check(context, relative)
    await context.touch(relative, lambda: text_at(workspace, relative))
    await context.intend(relative, digest(data), changes=data != before, edit=edit)
    with failing(relative), workspace.parent(relative) as (above, name):
        changed = replace_bytes(above, name, data, workspace.between, key=context.key, expected=before)
    return await _checked(check, written(relative, data, changed), data)


async def _checked(check: WriteCheck | None, seen: Observation, data: bytes) -> Observation:
    """Give what an edit came to, with what is said of it, if somebody is to say something.

    Cancellation: the file is written.
    """
    return seen if check is None else await check.told(seen, data)
