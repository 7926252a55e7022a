"""The one tool of single-file work: it writes the one file, and takes no path."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from actors.agents.edits import Edit
from actors.agents.entry_text import bounded, clean
from actors.agents.judging import FileText
from actors.agents.ports import Observation, ToolContext
from actors.tools.arguments import spec_for, taken
from actors.tools.paths import Workspace, failing
from actors.tools.protected import text_at
from actors.tools.whole_files import digest, replace_bytes
from actors.tools.write_file import as_bytes, edit_at, present, written

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
    recovery = "replayable"
    notes_writes = True

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

        Cancellation: nothing was written. Once it is noted, it is done in one step.
        """
        data = as_bytes(taken(SingleFileArguments, arguments, self.spec).content)
        # A call that is run again, because its process ended, says what it did then.
        await context.touch(*self._before())
        edit = self._edit(data)
        ours = await context.intend(self._file.name, digest(data), changes=not self._holds(data), edit=edit)
        return written(self._file.name, data, self._replace(data, context.key) or ours)

    def _holds(self, data: bytes) -> bool:
        file = Path(os.path.realpath(self._file))
        return present(Workspace(str(file.parent)), file.name, data)

    def _edit(self, data: bytes) -> Edit:
        file = Path(os.path.realpath(self._file))
        return edit_at(Workspace(str(file.parent)), file.name, data, may_cite=True)

    def _before(self) -> tuple[str, Callable[[], FileText]]:
        file = Path(os.path.realpath(self._file))
        return file.name, lambda: text_at(Workspace(str(file.parent)), file.name)

    def _replace(self, data: bytes, key: str) -> bool:
        file = Path(os.path.realpath(self._file))
        workspace = Workspace(str(file.parent))
        with failing(file.name), workspace.parent(file.name) as (above, last):
            return replace_bytes(above, last, data, workspace.between, key=key)
