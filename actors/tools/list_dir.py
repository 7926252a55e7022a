"""The tool `list_dir`: one level of a directory, with the true total when not all of it is shown.

What the policy does not let be read is not named, only counted.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import trio

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.output import clean, one_line
from actors.tools.paths import Workspace, failing, shown

MOST_SHOWN: Final = 200
_SLICE: Final = 1_000


class ListDirArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `list_dir` takes."""

    path: Annotated[str, msgspec.Meta(description="the directory; the workspace itself when left out")] | None = None


class ListDir:
    """Lists directories. See the file's docstring."""

    spec = spec_for("list_dir", "List one directory, not what is below it.", ListDirArguments)
    read_only = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """List; directories end in a slash, links in ``@`` and are not followed.

        Cancellation: nothing is left open.
        """
        asked = taken(ListDirArguments, arguments, self.spec)
        workspace = Workspace(context.root)
        relative = workspace.resolve("." if asked.path is None else asked.path)
        await context.authorise(Act.read, relative)
        names: list[str] = []
        kept_out = 0
        with workspace.directory(relative) as descriptor, failing(relative), os.scandir(descriptor) as entries:
            for entry in entries:
                if context.may_read(clean(entry.name if relative == "." else f"{relative}/{entry.name}")):
                    names.append(marked(entry))
                else:
                    kept_out += 1
                if (len(names) + kept_out) % _SLICE == 0:
                    await trio.lowlevel.checkpoint()
        names.sort()
        return Observation(ObservationKind.find, relative, _text(relative, names, kept_out))


def marked(entry: "os.DirEntry[str]") -> str:
    """Write the name of an entry with the mark of its kind, on one line."""
    name = one_line(entry.name)
    if entry.is_symlink():
        return f"{name}@"
    return f"{name}/" if entry.is_dir(follow_symlinks=False) else name


def _text(relative: str, names: list[str], kept_out: int) -> str:
    lines = names[:MOST_SHOWN]
    if len(names) > MOST_SHOWN:
        lines.append(f"[{MOST_SHOWN} of {len(names)} entries shown; find looks for names]")
    if kept_out:
        lines.append(f"[{kept_out} entries were left out: the policy does not let them be read]")
    return "\n".join(lines) or f"[{shown(relative)} is an empty directory]"
