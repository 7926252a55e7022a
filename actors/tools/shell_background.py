"""The tools `shell_start`, `shell_poll` and `shell_kill`: a line that runs while the agent does something else.

It is judged as `shell` judges. It has no time-out; it ends with its agent.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Any

import msgspec

from actors.agents.ports import Observation, ObservationKind, ToolContext
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for, taken
from actors.tools.handles import MOST_LIVE, WINDOW_BYTES, Handle, Handles
from actors.tools.output import clean, whole_characters
from actors.tools.paths import Workspace
from actors.tools.pipelines import LineRun
from actors.tools.sandbox import boundary
from actors.tools.shell import LANGUAGE, ShellArguments, admitted
from actors.tools.walking import note_changes

ORPHANED = (
    "the process that started it has ended: if the command had not ended by then it is orphaned. It is not watched, "
    "nothing was signalled, and what it printed is gone; start it again if it is needed"
)


class PollArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `shell_poll` takes."""

    handle: Annotated[str, msgspec.Meta(description="the handle that shell_start gave")]
    cursor: Annotated[
        int, msgspec.Meta(ge=0, description="where to read on: the next cursor of the last poll; 0 for the start")
    ] = 0


class KillArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `shell_kill` takes."""

    handle: Annotated[str, msgspec.Meta(description="the handle that shell_start gave")]


class ShellStart:
    """Starts a line in the background.

    Nobody can tell from outside whether it was started, nor whether it should be
    started twice, so a call that was cut off by the end of its process is put to the
    operator: it is indeterminate.
    """

    read_only = False
    recovery = "indeterminate"
    spec = spec_for(
        "shell_start",
        f"Start a line of commands in the background, and get a handle; at most {MOST_LIVE} at once. {LANGUAGE}",
        ShellArguments,
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Start the line, behind the boundary of the agent.

        Cancellation: it was started or not; if so it ends with the agent.
        """
        text = taken(ShellArguments, arguments, self.spec).line
        belongings = context.belongings
        handles = Handles.of(belongings)
        # Before anybody is asked for what would be refused.
        handles.judge_room()
        workspace = Workspace(context.root)
        may = await admitted(text, context, workspace)
        # Nobody sees what it changes, and whoever reviews is told so.
        await note_changes(context, None, None)
        confinement = context.confinement
        async with AsyncExitStack() as opened:
            around = await opened.enter_async_context(boundary(confinement, workspace.root))
            # Perhaps others were started while somebody was asked.
            handles.judge_room()
            handle = Handle(
                context.key.rpartition("#")[2],
                lambda sink: LineRun(may.line, workspace, may.files, sink, around),
                opened.pop_all(),
                confinement.caps.wall_seconds,
            )
        handles.start(handle, belongings)
        await handle.wait_begun()
        said = f"[started in the background; handle {handle.name}]\nshell_poll reads it, shell_kill ends it."
        # Nobody looks what it does while it runs: it is taken to be work.
        return Observation(ObservationKind.tool, text, said, changed=True)


class ShellPoll:
    """Reads what a command in the background printed."""

    read_only = True
    recovery = "replayable"
    spec = spec_for("shell_poll", "Read what a command in the background printed, and how it stands.", PollArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Read a window from the cursor on.

        Cancellation: nothing was changed; it is safe to read again.
        """
        asked = taken(PollArguments, arguments, self.spec)
        handle = Handles.of(context.belongings).find(asked.handle, context.belongings)
        if handle is None:
            return Observation(ObservationKind.tool, asked.handle, f"[handle {asked.handle}: orphaned]\n{ORPHANED}.")
        return Observation(ObservationKind.tool, asked.handle, window(handle, asked.cursor))


def window(handle: Handle, cursor: int) -> str:
    """Write what a command printed from ``cursor`` on, with the gap before it and the place of the next read.

    Raises:
        ToolFailed: the cursor lies behind the end.
    """
    ring = handle.ring
    if cursor > ring.end:
        raise ToolFailed(f"cursor {cursor} lies behind the end of what was printed, which is {ring.end}")
    begin = max(cursor, ring.begin)
    data = ring.read(begin, WINDOW_BYTES)
    # A character that is cut by the end of the window belongs to the next one, unless nothing follows.
    ending = handle.look()
    if begin + len(data) < ring.end or ending is None:
        data = whole_characters(data) or data
    state = "runs" if ending is None else str(ending)
    after = begin + len(data)
    lines = [f"[handle {handle.name}: {state}; next cursor {after}; printed {ring.end} bytes]"]
    if begin > cursor:
        lines.append(f"[... {begin - cursor} bytes from cursor {cursor} on are no longer kept ...]")
    return "\n".join([*lines, clean(data) if data else "(nothing new)"])


class ShellKill:
    """Ends a command in the background, with every process below it."""

    read_only = False
    recovery = "replayable"
    spec = spec_for("shell_kill", "End a command in the background, with all that it started.", KillArguments)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """End it, and wait until nothing of it is left.

        Cancellation: it dies all the same.
        """
        asked = taken(KillArguments, arguments, self.spec)
        handle = Handles.of(context.belongings).find(asked.handle, context.belongings)
        if handle is None:
            return Observation(ObservationKind.tool, asked.handle, f"[handle {asked.handle}: orphaned]\n{ORPHANED}.")
        before = handle.look()
        await handle.kill()
        context.report_leaked(handle.leaked)
        said = str(handle.ending) if before is None else f"{before} before this call; nothing was killed"
        return Observation(ObservationKind.tool, asked.handle, f"[handle {handle.name}: {said}]")
