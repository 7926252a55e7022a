"""What a store gives of a tree that goes on after its process ended: as it was committed, and nothing else. Pure.

An agent's history is its committed steps, and perhaps an answer that was paid
for and whose calls did not all run. A store hands these records out
(`Past`); the loop begins where they end.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs

from actors.agents.outcomes import Outcome
from actors.agents.ports import Completion, Observation, ObservationKind, ToolCall
from actors.agents.roster import AgentDef
from actors.containment.usage import Usage


@attrs.frozen
class PastStep:
    """A committed step. ``late`` are reports of children that ended in the background, read before its answer.

    ``gate`` is the verdict on its criterion, None when none was reached. ``denied``: the
    operator gave one of its calls up.
    """

    step: int
    text: str | None
    calls: tuple[ToolCall, ...]
    finish_reason: str | None
    late: tuple[Observation, ...]
    seen: tuple[Observation, ...]
    gate: str | None = None
    digest: str | None = None
    denied: bool = False

    @property
    def answer(self) -> Completion:
        """Give the answer again."""
        return Completion(self.text, self.calls, None, None, self.finish_reason)


@attrs.frozen
class PastAnswer:
    """An answer that stands while its step does not. ``results`` are those of its calls that must not be run again.

    ``results`` is keyed by the ordinal of the call, from 1. ``admitted``: so many of the
    calls, from the first on, may run. ``aborted`` are calls that the operator gave up.
    """

    step: int
    text: str | None
    calls: tuple[ToolCall, ...]
    finish_reason: str | None
    late: tuple[Observation, ...]
    admitted: int
    results: Mapping[int, Observation] = attrs.Factory(dict)
    aborted: frozenset[int] = frozenset()

    @property
    def answer(self) -> Completion:
        """Give the answer again."""
        return Completion(self.text, self.calls, None, None, self.finish_reason)


@attrs.frozen
class PastEnd:
    """How a child ended: what its report says, and what it used with all below it."""

    outcome: str
    steps: int
    tokens: int
    said: str | None
    error: str | None
    usage: Usage | None
    turns: int


@attrs.frozen
class PastChild:
    """A child that a call made. ``step`` and ``ordinal`` are the call's; ``end`` is None while it can go on.

    ``definition`` is the named agent as it was then; ``reported``: a committed step of
    the parent holds its report.
    """

    step: int
    ordinal: int
    path: str
    goal: str
    definition: AgentDef | None
    arguments: str
    end: PastEnd | None
    reported: bool


@attrs.frozen
class PastAgent:
    """One agent as it was committed. ``age`` is the seconds since it started, by the database's clock.

    ``attempts`` counts what was sent for the step that comes next, and ``step_tokens``
    what that drew. ``decided`` is the outcome of an agent that only waited for its
    children. Usage is as endpoints reported it. ``taken_over`` counts the first of the steps
    that a run before this one did, which this one reopened: they were judged there.
    """

    path: str
    age: float
    steps: tuple[PastStep, ...] = ()
    pending: PastAnswer | None = None
    children: tuple[PastChild, ...] = ()
    attempts: int = 0
    step_tokens: int = 0
    own_tokens: int = 0
    own_microdollars: int = 0
    own_overrun: int = 0
    estimated: bool = False
    usage: Usage | None = None
    said: str | None = None
    decided: Outcome | None = None
    taken_over: int = 0
    # The model that it was last told to be asked, empty for the provider's own; None when it was always its own.
    routed: str | None = None

    @property
    def non_passes(self) -> int:
        """Count the checks that did not pass, one after the other until now, of steps that the work went on from.

        A run that reopened another counts anew: its checks may be others.
        """
        count = 0
        for each in reversed(self.steps if self.judged else self.steps[:-1]):
            if each.gate in (None, "passed"):
                break
            count += 1
        return count

    @property
    def judged(self) -> bool:
        """Whether the last step was judged, and the work went on: what came after it tells.

        A check that was made again and has passed ends the work all the same, if nothing was answered since.
        """
        if self.pending is None and self.steps and self.steps[-1].gate == "passed":
            return False
        return self.pending is not None or self.attempts > 0 or self.last_step == self.taken_over

    @property
    def last_step(self) -> int:
        """Number the last committed step; 0 before the first."""
        return self.steps[-1].step if self.steps else 0

    def calls_run(self) -> Iterator[tuple[str, int, int]]:
        """Give each call that was run and did not fail: tool, step, ordinal."""
        for each in self.steps:
            yield from _run(each.step, each.calls, dict(enumerate(each.seen, 1)))
        if self.pending is not None:
            yield from _run(self.pending.step, self.pending.calls, self.pending.results)


def _run(step: int, calls: tuple[ToolCall, ...], seen: Mapping[int, Observation]) -> Iterator[tuple[str, int, int]]:
    for ordinal, call in enumerate(calls, 1):
        if ordinal in seen and seen[ordinal].kind is not ObservationKind.error:
            yield call.name, step, ordinal


class Past(Protocol):
    """A tree's history, read once when it goes on."""

    @property
    def backlog(self) -> frozenset[tuple[str, int, int]]:
        """Give the children that were counted and still waited for their first slot: (parent's path, step, ordinal)."""
        ...

    def began(self, path: str) -> bool:
        """Tell whether an agent began, and nobody has taken its history yet."""
        ...

    def agent(self, path: str) -> PastAgent | None:
        """Give one agent's history, None when it never began. Whoever asks takes it: a second call gives None."""
        ...
