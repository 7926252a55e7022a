"""The tool `patch_file`: a unified diff of one file, of which all hunks are applied or none.

How a diff is read is in `hunks.py`; how the file is read and written, and what is
refused, is the same as for `edit_file`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from actors.agents.ports import Observation, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.edit_file import change_text
from actors.tools.hunks import applied, parsed


class PatchFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `patch_file` takes."""

    path: Annotated[str, msgspec.Meta(description="the file, relative to the workspace; it must exist")]
    patch: Annotated[str, msgspec.Meta(min_length=1, description="its unified diff; a bare @@ may head a hunk")]


class PatchFile:
    """Patches files. See the file's docstring."""

    spec = spec_for(
        "patch_file",
        "Apply a unified diff to one text file, all of it or nothing. Each hunk must fit in exactly one place.",
        PatchFileArguments,
    )
    read_only = False
    recovery = "replayable"
    notes_writes = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Patch, or leave the file as it is.

        Cancellation: nothing was written.
        """
        asked = taken(PatchFileArguments, arguments, self.spec)

        def change(text: str, relative: str) -> str:
            return applied(text, parsed(asked.patch, (asked.path, relative)))

        return await change_text(asked.path, change, context)
