"""What an audit found: what it looked at, what cannot be true, and what it could not know. Pure.

A check that found nothing wrong has still to say how much it looked at, and rows
that an older version wrote may lack what a check needs: that is neither right
nor wrong, and is told as such.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

# So many violations are told one by one; the rest is counted.
MOST_TOLD: Final = 1_000


class Check(StrEnum):
    """The checks, in the order in which they are told. The words are printed; do not rename one."""

    status = "status"
    terminals = "terminals"
    outcomes = "outcomes"
    steps = "steps"
    answers = "answers"
    checkpoints = "checkpoints"
    results = "results"
    ordinals = "ordinals"
    digests = "digests"
    edits = "edits"
    reservations = "reservations"
    attempts = "attempts"
    conservation = "conservation"
    ceilings = "ceilings"
    family = "family"
    spawns = "spawns"
    halt = "halt"
    queue = "queue"
    lease = "lease"
    effects = "effects"
    approvals = "approvals"
    rows = "rows"


class Verdict(StrEnum):
    """What an audit comes to. One violation outweighs all that is not known."""

    ok = "ok"
    violated = "violated"
    unknown = "not enough evidence"


class TreeState(StrEnum):
    """How a tree stands in its file. Some things must hold only once it has ended."""

    ended = "ended"
    paused = "paused"
    # Live, or its process was killed: the file alone cannot tell.
    running = "running"


@attrs.frozen
class Violation:
    """One thing that cannot be true. ``text`` names the row and the figures."""

    check: Check
    run_id: str
    text: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.check}: {self.run_id}: {self.text}"


@attrs.frozen
class Missing:
    """Facts that a check needs and the file does not have."""

    check: Check
    rows: int
    text: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.check}: {self.rows} {self.text}"


@attrs.frozen
class Audit:
    """The whole of one audit.

    ``checked`` counts what each check looked at. ``violations`` holds the first
    `MOST_TOLD` of them, ``violated`` counts all.
    """

    tree_id: str
    state: TreeState
    agents: int
    checked: Mapping[Check, int]
    violations: tuple[Violation, ...]
    violated: int
    missing: tuple[Missing, ...]

    @property
    def verdict(self) -> Verdict:
        """Say what it comes to."""
        if self.violated:
            return Verdict.violated
        return Verdict.unknown if self.missing else Verdict.ok


class Findings:
    """What is gathered while an audit goes on."""

    def __init__(self) -> None:
        self.checked: Counter[Check] = Counter()
        self.violations: list[Violation] = []
        self.violated = 0
        self._missing: Counter[tuple[Check, str]] = Counter()

    def looked(self, check: Check, rows: int = 1) -> None:
        """Count what a check looked at."""
        self.checked[check] += rows

    def wrong(self, check: Check, run_id: str, text: str) -> None:
        """Note something that cannot be true."""
        self.violated += 1
        if len(self.violations) < MOST_TOLD:
            self.violations.append(Violation(check, run_id, text))

    def expect(self, true: bool, check: Check, run_id: str, text: str) -> None:
        """Look at one thing, and note it when it does not hold."""
        self.checked[check] += 1
        if not true:
            self.wrong(check, run_id, text)

    def missing(self, check: Check, text: str, rows: int = 1) -> None:
        """Note facts that are not there, and that an older version did not write."""
        self._missing[check, text] += rows

    def audit(self, tree_id: str, state: TreeState, agents: int) -> Audit:
        """Give the whole."""
        told = {check: self.checked[check] for check in Check}
        missing = tuple(Missing(check, rows, text) for (check, text), rows in sorted(self._missing.items()))
        return Audit(tree_id, state, agents, told, tuple(self.violations), self.violated, missing)
