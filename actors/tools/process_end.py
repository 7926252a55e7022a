"""The end of what was started: waiting for it, reading its last words, and leaving nothing behind.

One command and a line of them end alike, so both come here. The commands themselves
are reaped last: until then their numbers are taken, and killing their groups can hit
nobody else.

Output is read until the commands have ended and a short grace after it, never until
the end of the file: an orphan that holds the pipe must not hold the call.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import trio

from actors.tools.leftovers import KILL_SECONDS, descendants, end, has_proc, kill_all, kill_group, writers

# After the commands have ended, what is still in the pipe is read for so long.
GRACE_SECONDS: Final = 0.2


async def wait_unreaped(process: trio.Process) -> bool:
    """Wait until a process has ended; tell whether it is still to be reaped.

    Cancellation: it runs on, and is not reaped.
    """
    if sys.platform == "linux":
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            # An old kernel. Below, the number is free a moment too early; it would have to be given
            # to a new leader of a group within that moment for anybody to be hit.
            pass
        else:
            try:
                await trio.lowlevel.wait_readable(handle)
                return True
            finally:
                os.close(handle)
    await process.wait()
    return False


async def end_started(processes: Sequence[trio.Process], mark: str) -> tuple[int, ...]:
    """Kill processes and all that they started under ``mark``, and reap them; give the numbers of what did not die.

    Cancellation: not while shielded, and it is bounded.
    """
    leaders = frozenset(process.pid for process in processes)
    known = [below for leader in leaders for below in descendants(leader)]
    for leader in leaders:
        kill_group(leader)
    leaked: tuple[int, ...] = ()
    try:
        if leaders and has_proc():
            leaked = await end(leaders, mark, known)
    finally:
        with trio.move_on_after(KILL_SECONDS):
            for process in processes:
                await process.wait()
    return (*(process.pid for process in processes if process.returncode is None), *leaked)


class Printed:
    """What comes out of one pipe, given to ``sink`` as it comes. Who made the pipe closes it."""

    def __init__(self, pipe: trio.abc.ReceiveStream, sink: Callable[[bytes], object]) -> None:
        self._pipe = pipe
        self._sink = sink
        # The end of the output was seen: nobody can write to it any more.
        self._all_read = trio.Event()

    async def read(self) -> None:
        """Read to the end.

        Cancellation: what was read was given to the sink.
        """
        async for data in self._pipe:
            self._sink(bytes(data))
        self._all_read.set()

    async def wait_last_words(self) -> None:
        """Wait for whoever reads to come to the end, for a short grace.

        Cancellation: nothing changed.
        """
        with trio.move_on_after(GRACE_SECONDS):
            await self._all_read.wait()

    async def drain(self) -> tuple[int, ...]:
        """Read what was printed last, and end who still holds the pipe; give who would not let go.

        Cancellation: not while shielded, and it is bounded.
        """
        if not await self._read_on() and has_proc():
            name = f"pipe:[{os.fstat(self._pipe.fileno()).st_ino}]"  # type: ignore[attr-defined]
            with trio.move_on_after(KILL_SECONDS):
                kill_all(await writers(name))
                if not await self._read_on():
                    return tuple(await writers(name))
        return ()

    async def _read_on(self) -> bool:
        if not self._all_read.is_set():
            with trio.move_on_after(GRACE_SECONDS / 4):
                await self.read()
        return self._all_read.is_set()
