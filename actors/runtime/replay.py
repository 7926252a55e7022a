"""The decisions of supervisors, made again from a journal. Pure.

    for step in replay(records):
        print(step)

The same inputs give the same decisions. So a journal from production shows, at
one's desk, each decision with the plan's state around it; and a journal from an
older version shows what a newer one would have decided otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import attrs

from actors.runtime.journal import EVENTS, HALTED, Began, Happened, Record, said_of
from actors.runtime.plan import Plan


@attrs.frozen(eq=False)
class Step:
    """One event, decided again.

    ``given`` is what the plan gave: orders, an answer, or None. ``plan`` is the plan
    after it, which the next step changes.
    """

    record: Happened
    given: Any
    plan: Plan

    @property
    def said(self) -> tuple[str, ...]:
        """Say the decision in words."""
        return said_of(self.given)

    @property
    def same(self) -> bool:
        """Whether it was decided so in the first place."""
        return self.said == self.record.said

    def __str__(self) -> str:
        """Say it in one line."""
        record = self.record
        args = ", ".join(str(each) for each in record.args)
        line = f"{record.at:g} s {record.path} {record.event}({args}) -> {'; '.join(self.said) or 'nothing'}"
        return line if self.same else f"{line} [it was: {'; '.join(record.said) or 'nothing'}]"


def replay(records: Iterable[Record]) -> Iterator[Step]:
    """Decide again on each event of the journals of any number of supervisors, in the order of the records.

    Raises:
        ValueError: the record in which a supervisor begins is missing.
    """
    plans: dict[int, _Again] = {}
    for record in records:
        if isinstance(record, Began):
            plans[record.number] = _Again(record)
        elif record.number in plans:
            yield plans[record.number].decide(record)
        else:
            raise ValueError(f"the records of {record.path} begin in the middle; a replay needs them from its start on")


class _Again:
    """A plan that is told what it was told before, by chance and permission as well."""

    def __init__(self, began: Began) -> None:
        self._chances: deque[float] = deque()
        self._permissions: deque[str | None] = deque()
        self._plan = Plan(began.path, began.flags, began.specs, chance=self._chance, may_restart=self._permission)

    def decide(self, record: Happened) -> Step:
        """Take one event."""
        # What was left over belonged to that event alone.
        self._chances, self._permissions = deque(record.chances), deque(record.permissions)
        given = None
        if record.event == HALTED:
            self._plan.stopping = True
        elif record.event in EVENTS:
            given = getattr(self._plan, record.event)(*record.args)
        else:
            raise ValueError(f"{record.path}: no event is called {record.event!r}")
        # There are no waits here that a void note would end.
        self._plan.voided.clear()
        return Step(record, given, self._plan)

    def _chance(self) -> float:
        return self._chances.popleft() if self._chances else 0.0

    def _permission(self, _id: Hashable, _now: float) -> str | None:
        return self._permissions.popleft() if self._permissions else None
