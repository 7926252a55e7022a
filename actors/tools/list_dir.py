"""The tool `list_dir`: one level of a directory, with the true total when not all of it is shown."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import trio

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.output import clean
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
        names = []
        with workspace.directory(relative) as descriptor, failing(relative), os.scandir(descriptor) as entries:
            for entry in entries:
                names.append(marked(entry))
                if len(names) % _SLICE == 0:
                    await trio.lowlevel.checkpoint()
        names.sort()
        return Observation(ObservationKind.find, relative, _text(relative, names))


def marked(entry: "os.DirEntry[str]") -> str:
    """Write the name of an entry with the mark of its kind, on one line."""
    name = clean(entry.name).replace("\n", "?").replace("\r", "?")
    if entry.is_symlink():
        return f"{name}@"
    return f"{name}/" if entry.is_dir(follow_symlinks=False) else name


def _text(relative: str, names: list[str]) -> str:
    if not names:
        return f"[{shown(relative)} is an empty directory]"
    lines = "\n".join(names[:MOST_SHOWN])
    if len(names) <= MOST_SHOWN:
        return lines
    return f"{lines}\n[{MOST_SHOWN} of {len(names)} entries shown; find looks for names]"
