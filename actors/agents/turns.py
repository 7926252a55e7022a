"""The loop of one agent as a table. Pure.

An agent asks a model, commits the answer, runs its calls, commits the step,
and judges. The answer is committed before any of its calls runs, so that a
paid answer is never paid again; the step is committed after them.
"""

from collections.abc import Mapping
from enum import Enum

import attrs

from actors.agents.outcomes import OutcomeKind


class Phase(Enum):
    """Where an agent is in its step."""

    ready = "ready"
    asking = "asking"
    backing_off = "backing_off"
    answered = "answered"
    calling = "calling"
    spawning = "spawning"
    committed = "committed"
    judging = "judging"
    ended = "ended"


class Event(Enum):
    """What moves it on."""

    ask = "ask"
    failed_for_now = "failed_for_now"
    wait_over = "wait_over"
    answer_stored = "answer_stored"
    calls_begin = "calls_begin"
    calls_over = "calls_over"
    step_stored = "step_stored"
    judge = "judge"
    go_on = "go_on"
    end = "end"


TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.ready: {Event.ask: Phase.asking, Event.end: Phase.ended},
    Phase.asking: {
        # Each attempt is a reservation of its own; none is held while the agent waits to try again.
        Event.failed_for_now: Phase.backing_off,
        Event.answer_stored: Phase.answered,
        Event.end: Phase.ended,
    },
    Phase.backing_off: {Event.wait_over: Phase.asking, Event.end: Phase.ended},
    Phase.answered: {Event.calls_begin: Phase.calling},
    # The other calls of an answer run first, in order; then its spawns, beside each other.
    Phase.calling: {Event.calls_over: Phase.spawning},
    Phase.spawning: {Event.step_stored: Phase.committed},
    Phase.committed: {Event.judge: Phase.judging, Event.end: Phase.ended},
    Phase.judging: {Event.go_on: Phase.ready, Event.end: Phase.ended},
    Phase.ended: {},
}


def advance(phase: Phase, event: Event) -> Phase:
    """Take one step in the table.

    Raises:
        AssertionError: the table has no such move: a bug of the loop.
    """
    following = TRANSITIONS[phase]
    assert event in following, f"{event.value} cannot happen while {phase.value}"
    return following[event]


@attrs.frozen
class StepFacts:
    """What is known when a step has been committed.

    ``quiet`` is an answer without a call. ``paused_by_provider`` is a quiet answer
    that says the model only paused, or was cut off.
    """

    quiet: bool
    has_criterion: bool
    stalled: bool = False
    denied: bool = False
    tree_halted: bool = False
    own_tokens_over: bool = False
    paused_by_provider: bool = False


def after_step(facts: StepFacts) -> OutcomeKind | None:
    """Decide whether a committed step ends the agent before its criterion is looked at.

    The order is fixed: a step that finished the work and crossed a ceiling reports
    the ceiling. A halt of the tree is no outcome of this table: the agent is cut.
    """
    if facts.stalled:
        return OutcomeKind.stalled
    if facts.denied:
        return OutcomeKind.denied
    if facts.tree_halted:
        return OutcomeKind.budget_ceiling_reached
    if facts.own_tokens_over:
        return OutcomeKind.cost_budget_exceeded
    if facts.quiet and not facts.has_criterion and not facts.paused_by_provider:
        return OutcomeKind.finished
    return None


# Words of endpoints for an answer that is not whole: the model paused, or was cut at its output limit.
UNFINISHED = frozenset({"pause_turn", "length", "max_tokens"})
