"""Running a command in the workspace."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from actors.agents.ports import Act, Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.process import Finished, Status, run


class ExecArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `exec` takes."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1, description="the program and its arguments, one text each")]


class Exec:
    """Runs one program with arguments; no shell stands between.

    The policy is asked twice: about the program, and about the whole line. A rule
    may deny either; a deny of one is a deny.
    """

    read_only = False
    spec = spec_for("exec", "Run a program in the workspace. There is no shell.", ExecArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Run. Cancellation: every process of the command is gone."""
        argv = taken(ExecArguments, arguments, self.spec).argv
        if not argv[0] or any("\x00" in part for part in argv):
            raise ToolFailed("argv must begin with a program, and hold no NUL")
        line = shlex.join(argv)
        await context.authorise(Act.exec, argv[0])
        if line != argv[0]:
            await context.authorise(Act.exec, line)
        finished = await run(argv, cwd=context.root, timeout=context.exec_timeout)
        context.report_leaked(finished.leaked)
        # Whether a command changed files is not known; it is taken to be work.
        return Observation(ObservationKind.tool, line, described(finished, context.exec_timeout), changed=True)


def described(finished: Finished, timeout: float) -> str:
    """Say how a command ended, and what it printed."""
    if finished.status in (Status.not_found, Status.not_started):
        return finished.output
    endings = {
        Status.exited: f"exit code {finished.code}",
        Status.signalled: f"ended by signal {finished.code}",
        Status.timed_out: f"timed out after {timeout:g} s and was killed",
    }
    printed = finished.output or "(it printed nothing)"
    return f"[{endings[finished.status]}]\n{printed}"
