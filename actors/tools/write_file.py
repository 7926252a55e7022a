"""The tool `write_file`: a file whole, new or in place of the old one, all or nothing."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from actors.agents.edits import Edit
from actors.agents.platform_names import fold_target
from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.line_changes import MOST_BYTES, edit_of
from actors.tools.paths import Workspace, failing, shown
from actors.tools.protected import text_at
from actors.tools.whole_files import digest, holds, opened, read_bytes, replace_bytes
from actors.tools.write_check import write_check


class WriteFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `write_file` takes."""

    path: Annotated[str, msgspec.Meta(description="the file, relative to the workspace; missing directories are made")]
    content: Annotated[str, msgspec.Meta(description="the whole new content")]


def as_bytes(content: str) -> bytes:
    """Encode what is to be written.

    Raises:
        ToolFailed: a lone surrogate is in it; nothing was written.
    """
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"content holds a character that no file can have, at {error.start}") from None


def judge_place(relative: str) -> None:
    """Refuse what belongs to git: its configuration and its hooks name programs, which the next `git` would run.

    That `git` may be one that a rule allows, or the operator's own, outside of any boundary.

    Raises:
        ToolFailed: the path lies in a repository's own directory; nobody was asked.
    """
    if ".git" in fold_target(relative).lower().split("/"):
        raise ToolFailed(f"{shown(relative)} belongs to git itself and is not written as a file; have git change it")


def written(relative: str, data: bytes, changed: bool) -> Observation:
    """Tell what a write came to."""
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    size = f"{len(data)} byte{'' if len(data) == 1 else 's'}, {lines} line{'' if lines == 1 else 's'}"
    unchanged = f"{shown(relative)} has this content already ({size}); unchanged"
    said = f"wrote {shown(relative)} ({size})" if changed else unchanged
    return Observation(ObservationKind.write, relative, said, changed=changed)


def present(workspace: Workspace, relative: str, data: bytes) -> bool:
    """Tell whether a file holds this already; what cannot be looked at is told by the write itself."""
    try:
        return holds(workspace, relative, data)
    except ToolFailed:
        return False


def edit_at(workspace: Workspace, relative: str, data: bytes, *, may_cite: bool) -> Edit:
    """Tell how the lines of a file change when it becomes ``data``; what cannot be looked at is not known.

    Without ``may_cite`` the lines that stand there now are counted, and none is told.
    """
    try:
        with opened(workspace, relative) as descriptor:
            if descriptor is None:
                return edit_of(None, data)
            before = read_bytes(descriptor, MOST_BYTES)
    except ToolFailed:
        return Edit()
    if before is None:
        return Edit()
    edit = edit_of(before, data)
    return edit if may_cite else edit.uncited()


class WriteFile:
    """Writes files. See the file's docstring."""

    spec = spec_for("write_file", "Write a file whole. It replaces what was there.", WriteFileArguments)
    read_only = False
    recovery = "replayable"
    notes_writes = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Write; content that is there already is reported as unchanged.

        Cancellation: nothing was written. Once it is allowed, it is done in one step; a check that follows is gone.
        """
        asked = taken(WriteFileArguments, arguments, self.spec)
        data = as_bytes(asked.content)
        workspace = Workspace(context.root)
        relative = workspace.resolve(asked.path)
        judge_place(relative)
        await context.authorise(Act.write, relative, content=asked.content)
        check = await write_check(context, relative)
        # A call that is run again, because its process ended, says what it did then.
        await context.touch(relative, lambda: text_at(workspace, relative))
        edit = edit_at(workspace, relative, data, may_cite=context.may_read(relative))
        changes = not present(workspace, relative, data)
        ours = await context.intend(relative, digest(data), changes=changes, edit=edit)
        with failing(relative), workspace.parent(relative, create=True) as (above, name):
            changed = replace_bytes(above, name, data, workspace.between, key=context.key)
        seen = written(relative, data, changed or ours)
        return seen if check is None else await check.told(seen, data)
