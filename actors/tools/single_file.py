"""The one tool of single-file work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.agents.ports import Observation, ToolContext, ToolSpec
from actors.tools.arguments import TEXT, only, schema, text
from actors.tools.files import put
from actors.tools.paths import Located


class SingleFile:
    """Writes the one file of a contract, whole. The file is the operator's choice; the model names none."""

    read_only = False

    def __init__(self, file: Path) -> None:
        self._place = Located(str(file.parent.resolve()), file.name)
        self.spec = ToolSpec("write_file", f"Write the whole of {file.name}.", schema({"content": TEXT}))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Write. Cancellation: the file is as it was, or whole and new."""
        only(arguments, "content")
        return put(self._place, text(arguments, "content", empty=True))
