"""The tool `shell`: a line of commands in the small language of `shell_line.py`, without a shell.

The whole line is judged before anything of it runs: every program with its
arguments, and every file that a redirection names. What a command reads and
writes by itself is bound by the sandbox and not by the rules for files, as with `exec`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import attrs
import msgspec

from actors.agents.contract import ExecSandbox
from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.agents.shell_line import MOST_CHARACTERS, MOST_COMMANDS, Line, Stream, read_line
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.exec import MOST_LOOKED_AT, described
from actors.tools.paths import Workspace, shown
from actors.tools.pipelines import NOWHERE, run_line
from actors.tools.walking import marks, note_changes
from actors.tools.write_file import judge_place

LANGUAGE = (
    "Commands joined by | && || and ;, words plain or in quotes, and the redirections > >> < 2> and 2>&1. Nothing is "
    "expanded: no variables, no patterns, no substitution, no background. Every command starts in the workspace. "
    f"At most {MOST_COMMANDS} commands and {MOST_CHARACTERS} characters."
)


class ShellArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `shell` and `shell_start` take."""

    line: Annotated[str, msgspec.Meta(description="the line, for example: git log --oneline | head -5 > last.txt")]


@attrs.frozen
class Placed:
    """A line, and where in the workspace the files are that its redirections name. Not judged yet."""

    line: Line
    files: Mapping[str, str]
    reads: Sequence[str]
    writes: Sequence[str]


def placed(text: str, workspace: Workspace, mode: ExecSandbox | None) -> Placed:
    """Read a line and find its files.

    Raises:
        ToolFailed: it is not of the language, a path leads out of the workspace or belongs to git, or a file would
            be written where commands may write none.
    """
    line = read_line(text)
    files: dict[str, str] = {}
    reads: list[str] = []
    writes: list[str] = []
    for command in line.commands:
        for redirect in command.redirects:
            if redirect.stream is Stream.errors_to_output or redirect.target == NOWHERE:
                continue
            relative = files[redirect.target] = workspace.resolve(redirect.target)
            if redirect.stream is Stream.read:
                reads.append(relative)
            else:
                judge_place(relative)
                writes.append(relative)
    if writes and mode is ExecSandbox.read_only:
        # We would open the file, and no sandbox stands around us.
        raise ToolFailed(f"commands may not write here; leave the redirection to {shown(writes[0])} out")
    return Placed(line, files, reads, writes)


@attrs.frozen
class Admitted:
    """A line that may run, and the judged path of each file that its redirections name."""

    line: Line
    files: Mapping[str, str]


async def admitted(text: str, context: ToolContext, workspace: Workspace) -> Admitted:
    """Read a line and have all of it judged.

    Cancellation: nothing was decided.

    Raises:
        ToolFailed: as `placed`; nobody was asked.
        ActRefused: something in it is not allowed; nothing of it ran.
    """
    found = placed(text, workspace, context.confinement.mode)
    commands: Sequence[Sequence[str]] = [command.argv for command in found.line.commands]
    await context.authorise_commands(commands, text, reads=found.reads, writes=found.writes)
    return Admitted(found.line, found.files)


class Shell:
    """Runs a line. See the file's docstring. A call that is run again, because its process ended, is as with `exec`."""

    read_only = False
    recovery = "replayable"
    spec = spec_for("shell", f"Run a line of commands in the workspace, to its end. {LANGUAGE}", ShellArguments)

    def __init__(self, most_looked_at: int = MOST_LOOKED_AT) -> None:
        self._most = most_looked_at

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Run the line to its end or to the time-out, which is one for all of it.

        Cancellation: every process of the line is gone; what it did until then is done.
        """
        text = taken(ShellArguments, arguments, self.spec).line
        workspace = Workspace(context.root)
        may = await admitted(text, context, workspace)
        before = await marks(workspace, self._most)
        finished = await run_line(
            may.line, workspace, may.files, timeout=context.exec_timeout, confinement=context.confinement
        )
        context.report_leaked(finished.leaked)
        after = await marks(workspace, self._most)
        changed = before is None or before != after
        await note_changes(context, before, after)
        return Observation(ObservationKind.tool, text, described(finished, context.exec_timeout), changed=changed)
