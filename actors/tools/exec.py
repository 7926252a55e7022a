"""The tool `exec`: one program with its arguments, without a shell.

What a command reads and writes inside the workspace is not bound by the rules
for files one by one; the rules for `exec` are, and the sandbox that stands around it.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.paths import Workspace
from actors.tools.process import Finished, Status
from actors.tools.sandbox import run_confined
from actors.tools.walking import marks, note_changes

# Two walks over so many take some 50 ms beside a command.
MOST_LOOKED_AT: Final = 5_000


class ExecArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `exec` takes."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1, description="the program and its arguments, one text each")]


class Exec:
    """Runs one program with arguments; no shell stands between.

    The policy judges the program, the whole of it, and what it runs besides itself
    (`actors.agents.exec_judging`): a deny of one is a deny. A human is asked once.

    In a workspace of more than ``most_looked_at`` entries nobody looks whether a
    command changed something: it is taken to be work.
    """

    read_only = False
    recovery = "replayable"
    spec = spec_for("exec", "Run a program in the workspace. There is no shell.", ExecArguments)

    def __init__(self, most_looked_at: int = MOST_LOOKED_AT) -> None:
        self._most = most_looked_at

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Run the program to its end or to the time-out.

        Cancellation: every process of the command is gone; what it did until then is done.
        """
        argv = taken(ExecArguments, arguments, self.spec).argv
        runnable(argv)
        line = shlex.join(argv)
        await context.authorise_commands([argv], line)
        workspace = Workspace(context.root)
        before = await marks(workspace, self._most)
        finished = await run_confined(
            argv, cwd=workspace.root, timeout=context.exec_timeout, confinement=context.confinement
        )
        context.report_leaked(finished.leaked)
        after = await marks(workspace, self._most)
        changed = before is None or before != after
        await note_changes(context, before, after)
        # Others may write here meanwhile; what did not start changed nothing.
        changed = changed and finished.status not in _NOT_RUN
        return Observation(ObservationKind.tool, line, described(finished, context.exec_timeout), changed=changed)


def runnable(argv: Sequence[str]) -> None:
    """Refuse what can name no program, before anybody is asked.

    Raises:
        ToolFailed: it begins with no program, or holds a NUL.
    """
    if not argv[0].strip() or any("\x00" in part for part in argv):
        raise ToolFailed("exec: argv must begin with a program, and hold no NUL")


_NOT_RUN: Final = (Status.not_found, Status.not_started)


def described(finished: Finished, timeout: float) -> str:
    """Say how a command ended, and what it printed."""
    if finished.status in _NOT_RUN:
        return finished.output
    # A cap on its time may have ended it long before the time that commands have.
    after = round(finished.seconds, 1) if finished.hit == "wall_seconds" else timeout
    endings = {
        Status.exited: f"exit code {finished.code}",
        Status.signalled: f"ended by signal {finished.code}",
        Status.timed_out: f"timed out after {after:g} s and was killed; what it had printed follows",
    }
    hit = "" if finished.hit is None else f"; the cap {finished.hit} was reached"
    return f"[{endings[finished.status]}{hit}]\n{finished.output or '(it printed nothing)'}"
