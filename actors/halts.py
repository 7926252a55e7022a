"""Why a whole tree stops: one value, latched once, carried by everything it ends.

A halt stands beside the errors because refusals and exits carry it. It is a
fact, not an exception: whoever must stop is stopped by its supervisor, and
reads the halt afterwards.
"""

from enum import StrEnum

import attrs


class HaltKind(StrEnum):
    """What made the tree stop. These words are stored and printed; do not rename one."""

    tokens = "tokens"
    cost = "cost"
    calls = "calls"
    duration = "duration"
    cancel = "cancel"
    # Ctrl-C, SIGTERM, or the scope of the embedding application was cancelled.
    interrupt = "interrupt"
    policy = "policy"
    # A parent stopped this subtree; the rest of the tree goes on.
    parent = "parent"
    restarts_exhausted = "restarts_exhausted"
    lease_lost = "lease_lost"

    @property
    def is_ceiling(self) -> bool:
        """Whether a ceiling of the containment was reached."""
        return self in CEILINGS


UNITS = {
    HaltKind.tokens: "tokens",
    HaltKind.cost: "microdollars",
    HaltKind.calls: "model calls",
    HaltKind.duration: "seconds",
}
CEILINGS = frozenset(UNITS)
# What only interrupts: the run has no terminal, and goes on under its id.
RESUMABLE = frozenset({HaltKind.interrupt, HaltKind.lease_lost})


@attrs.frozen
class Halt:
    """The first reason to stop, with who, when and the figures.

    ``by`` is the agent's path, or ``operator``, ``host`` or ``timer``. ``at`` is
    in seconds on trio's clock. ``path`` names the top of what is stopped:
    ``root`` for a whole tree. ``limit``, ``used`` and ``requested`` are in the
    unit of the ceiling (tokens, microdollars, calls, seconds), None when the
    halt has no figures.
    """

    kind: HaltKind
    by: str = "operator"
    at: float = 0.0
    path: str = "root"
    reason: str = ""
    limit: int | float | None = None
    used: int | float | None = None
    requested: int | float | None = None

    def __str__(self) -> str:
        """Say it in one line that names limit, use and request."""
        unit = UNITS.get(self.kind)
        if unit and self.limit is not None:
            asked = "" if self.requested is None else f", {self.requested} more asked"
            return f"{self.kind} ceiling reached: {self.used} of {self.limit} {unit} used{asked} (by {self.by})"
        text = f"{self.kind} by {self.by}"
        return f"{text}: {self.reason}" if self.reason else text
