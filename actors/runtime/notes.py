"""The notes that a supervisor leaves itself: try this child again, now or later."""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial

import attrs
import trio

from actors.runtime.deadlines import Deadlines, Entry
from actors.runtime.plan import Note, Plan


@attrs.frozen(eq=False)
class _Later:
    """A note that waits for its time."""

    token: int
    at: float
    entry: Entry


class Notes:
    """Those that are due, in their order, and those that wait; a child has one at a time."""

    def __init__(self, plan: Plan, deadlines: Deadlines, wake: Callable[[], None]) -> None:
        self._plan = plan
        self._deadlines = deadlines
        # Called when one that waited is due.
        self._wake = wake
        self._due: deque[tuple[Hashable, int]] = deque()
        self._later: dict[Hashable, _Later] = {}

    def __bool__(self) -> bool:
        """Whether one is due."""
        return bool(self._due)

    def __len__(self) -> int:
        return len(self._due) + len(self._later)

    def leave(self, note: Note) -> None:
        """Leave a note, in the place of one that waits for the same child."""
        if note.seconds <= 0:
            self._due.append((note.key, note.token))
            return
        before = self._later.get(note.key)
        if before is not None:
            before.entry.cancel()
        at = trio.current_time() + note.seconds
        self._later[note.key] = _Later(note.token, at, self._deadlines.at(at, partial(self._arrived, note)))

    def _arrived(self, note: Note) -> None:
        del self._later[note.key]
        self._due.append((note.key, note.token))
        self._wake()

    def take(self) -> tuple[Hashable, int]:
        """Take the next one that is due: a key and its token."""
        return self._due.popleft()

    def times(self) -> dict[Hashable, float]:
        """Give the times of those that wait."""
        return {key: later.at for key, later in self._later.items()}

    def sweep(self) -> None:
        """Drop those that the plan has made void."""
        for key in self._plan.voided:
            later = self._later.get(key)
            kept = self._plan.children.get(key)
            if later is not None and (kept is None or kept.token != later.token):
                later.entry.cancel()
                del self._later[key]
        self._plan.voided.clear()

    def drop_all(self) -> None:
        """Drop those that wait: nothing is tried any more."""
        for later in self._later.values():
            later.entry.cancel()
        self._later.clear()
