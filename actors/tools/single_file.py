"""The one tool of single-file work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from actors.agents.ports import Observation, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.paths import Workspace, failing
from actors.tools.whole_files import replace_bytes
from actors.tools.write_file import as_bytes, written


class SingleFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tool takes: no path, since there is one file."""

    content: Annotated[str, msgspec.Meta(description="the whole new content")]


class SingleFile:
    """Writes the one file of a contract, whole. The file is the operator's choice; the model names none."""

    read_only = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self.spec = spec_for("write_file", f"Write the whole of {file.name}.", SingleFileArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Write. Cancellation: the file is as it was, or whole and new."""
        data = as_bytes(taken(SingleFileArguments, arguments, self.spec).content)
        workspace = Workspace(str(self._file.parent))
        name = self._file.name
        with failing(name), workspace.parent(name, create=True) as (above, last):
            changed = replace_bytes(above, last, data, workspace.between)
        return written(name, data, changed)
