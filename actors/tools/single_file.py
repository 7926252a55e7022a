"""The one tool of single-file work: it writes the one file, and takes no path."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from actors.agents.entry_text import bounded, clean
from actors.agents.ports import Observation, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.paths import Workspace, failing
from actors.tools.whole_files import replace_bytes
from actors.tools.write_file import as_bytes, written

# What a model is shown of the file with its task.
SHOWN_CHARS: Final = 12_000
MOST_READ_CHARS: Final = 10_000_000


class SingleFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tool takes: no path, since there is one file."""

    content: Annotated[str, msgspec.Meta(description="the whole new content")]


class SingleFile:
    """Writes the one file of a contract, whole.

    The file is the operator's choice, and where a link of his leads is his choice
    too; the model names none. No policy governs it.
    """

    read_only = False

    def __init__(self, file: Path) -> None:
        self._file = file
        self.spec = spec_for("write_file", f"Write the whole of {file.name}.", SingleFileArguments)

    def shown(self) -> str:
        """Tell a model what the file reads now, bounded; a file that is not there reads empty."""
        try:
            with open(self._file, encoding="utf-8", errors="replace") as file:
                text = file.read(MOST_READ_CHARS)
        except FileNotFoundError:
            return f"{self._file.name} does not exist yet."
        except OSError as error:
            return f"{self._file.name} cannot be read: {error.strerror}."
        return f"{self._file.name} now reads:\n{bounded(clean(text), SHOWN_CHARS)}"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Write; content that is there already is reported as unchanged.

        Cancellation: there is nothing in it that could be cancelled.
        """
        data = as_bytes(taken(SingleFileArguments, arguments, self.spec).content)
        return written(self._file.name, data, self._replace(data))

    def _replace(self, data: bytes) -> bool:
        file = Path(os.path.realpath(self._file))
        workspace = Workspace(str(file.parent))
        with failing(file.name), workspace.parent(file.name) as (above, last):
            return replace_bytes(above, last, data, workspace.between)
