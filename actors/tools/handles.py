"""Commands in the background: what they printed, how they ended, and that none outlives its agent.

What would be got wrong:

- A handle is named by the call that started it (step and ordinal), so it means
  the same in every process. A process that went on for one that is gone does not
  have the command: such a handle is orphaned, and nobody is signalled by a number
  that may be somebody else's by now.
- The first ending wins: what had ended by itself was not killed, though somebody
  asked for that a moment later, and the other way round.
- What is printed is bounded while it runs. A window that begins before what is
  kept says how much is missing.
"""

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Final

import attrs
import trio

from actors.agents.belongings import Belongings
from actors.agents.prompt import ENTRY_CHARS
from actors.errors import ToolFailed
from actors.tools.output import clean
from actors.tools.pipelines import LineRun

MOST_LIVE: Final = 8
# With those that have ended; the oldest of these is forgotten first.
MOST_KEPT: Final = 32
# All of it must go into one entry of a transcript: what the loop cut out would lie behind the next cursor.
WINDOW_BYTES: Final = min(16_384, ENTRY_CHARS - 400)
RING_BYTES: Final = 262_144


class Ring:
    """The last bytes of a stream, by their place in it.

    Example::

        ring = Ring(4)
        ring.feed(b"abcdef")
        ring.begin, ring.end, ring.read(0, 10)   # 2, 6, b"cdef"
    """

    def __init__(self, limit: int = RING_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.end = 0

    @property
    def begin(self) -> int:
        """Give the place of the first byte that is kept."""
        return self.end - len(self._kept)

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        self.end += len(data)
        self._kept += data[-self._limit :]
        del self._kept[: max(len(self._kept) - self._limit, 0)]

    def read(self, place: int, most: int) -> bytes:
        """Give at most so many bytes from a place on, or from the first that is kept."""
        at = max(place - self.begin, 0)
        return bytes(self._kept[at : at + most])


class EndKind(StrEnum):
    """How a command in the background ended."""

    ended = "ended"
    killed = "killed"
    failed = "failed"


@attrs.frozen
class Ending:
    """How it ended; ``code`` as `LineRun.code`, None when it was ended by us."""

    kind: EndKind
    code: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        if self.kind is EndKind.killed:
            return f"killed: {self.detail}" if self.detail else "killed"
        if self.kind is EndKind.failed:
            return f"failed: {self.detail}"
        assert self.code is not None
        return f"ended with exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"


class Handle:
    """One command in the background.

    Attributes:
        ending: how it ended, None while it runs.
        over: set when nothing of it is left.
        leaked: processes that would not die, once it is over.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[bytes], None]], LineRun],
        behind: AsyncExitStack,
        wall_seconds: float | None = None,
    ) -> None:
        self.name = name
        self.ring = Ring()
        self.ending: Ending | None = None
        self.over = trio.Event()
        self.leaked: tuple[int, ...] = ()
        self._scope = trio.CancelScope()
        self._running = make(self.ring.feed)
        # What its commands are behind; left when nothing of it is left.
        self._behind = behind
        self._wall_seconds = math.inf if wall_seconds is None else wall_seconds

    async def watch(self) -> None:
        """Run the line to its end. The one task of a handle.

        Cancellation: all of it is gone, as when it is killed.
        """
        try:
            with self._scope, trio.move_on_after(self._wall_seconds) as wall:
                await self._running.run()
            self.look()
            if wall.cancelled_caught:
                self._end(Ending(EndKind.killed, None, "the cap wall_seconds was reached"))
        except Exception as error:
            # A fault of ours is the end of this command, and of nothing else.
            self._end(Ending(EndKind.failed, None, f"{type(error).__name__}: {error}"))
        finally:
            self._end(Ending(EndKind.killed))
            with trio.CancelScope(shield=True):
                try:
                    self.leaked = await self._running.end()
                    await self._behind.aclose()
                finally:
                    self.over.set()

    def look(self) -> Ending | None:
        """Give how it ended, None while it runs."""
        if self._running.code is not None:
            self._end(Ending(EndKind.ended, self._running.code))
        return self.ending

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending

    async def wait_begun(self) -> None:
        """Wait until its first programs were started, or could not be.

        Cancellation: it runs all the same.
        """
        await self._running.begun.wait()

    async def kill(self) -> None:
        """End all of it, and wait until nothing is left. What has ended already keeps its ending.

        Cancellation: it dies all the same.
        """
        self.look()
        self._end(Ending(EndKind.killed))
        self._scope.cancel()
        await self.over.wait()


class Handles:
    """The commands that one agent has in the background. Kept by its `Belongings`."""

    def __init__(self) -> None:
        self._all: dict[str, Handle] = {}

    @classmethod
    def of(cls, belongings: Belongings) -> "Handles":
        """Give those of an agent."""
        return belongings.keep(cls, cls)

    @property
    def live(self) -> list[str]:
        """Name those of which something is left."""
        return [name for name, handle in self._all.items() if not handle.over.is_set()]

    def judge_room(self) -> None:
        """Refuse one too many.

        Raises:
            ToolFailed: so many run already.
        """
        live = self.live
        if len(live) >= MOST_LIVE:
            names = ", ".join(live)
            raise ToolFailed(f"{MOST_LIVE} commands run in the background, and no more may; end one of {names} first")

    def start(self, handle: Handle, belongings: Belongings) -> None:
        """Start a command, and forget the oldest that are over where there are many."""
        self.judge_room()
        for name in [name for name, each in self._all.items() if each.over.is_set()]:
            if len(self._all) < MOST_KEPT:
                break
            del self._all[name]
        self._all[handle.name] = handle
        belongings.start_soon(handle.watch)

    def find(self, name: str, belongings: Belongings) -> Handle | None:
        """Give a handle; None for one of a process that is gone.

        Raises:
            ToolFailed: there is no such handle.
        """
        handle = self._all.get(name)
        if handle is not None:
            return handle
        step, _, ordinal = name.partition(".")
        digits = (step + ordinal).isascii() and step.isdigit() and ordinal.isdigit() and len(name) < 20
        if digits and belongings.ran_before("shell_start", int(step), int(ordinal)):
            return None
        known = ", ".join(self._all) or "none"
        raise ToolFailed(f"there is no handle {clean(name)[:40]!r}; the handles are: {known}")

    async def give_up(self) -> tuple[int, ...]:
        """Kill all, beside each other; give the numbers of processes that would not die.

        Cancellation: called under a shield; each end is bounded.
        """
        async with trio.open_nursery() as nursery:
            for handle in self._all.values():
                nursery.start_soon(handle.kill)
        return tuple(number for handle in self._all.values() for number in handle.leaked)
