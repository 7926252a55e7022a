"""The turn table of the loop: every phase has a row, and the order of the ends is fixed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.outcomes import OutcomeKind
from actors.agents.turns import TRANSITIONS, Event, Phase, StepFacts, advance, after_step

FLAG = st.booleans()
FACTS = st.builds(StepFacts, FLAG, FLAG, FLAG, FLAG, FLAG, FLAG, FLAG)


def test_every_phase_has_a_row() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_every_phase_is_reached_and_every_event_is_used() -> None:
    reached = {Phase.ready}
    frontier = [Phase.ready]
    while frontier:
        for following in TRANSITIONS[frontier.pop()].values():
            if following not in reached:
                reached.add(following)
                frontier.append(following)
    assert reached == set(Phase)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)


def test_nothing_follows_the_end() -> None:
    assert TRANSITIONS[Phase.ended] == {}


def test_an_answer_is_stored_before_any_of_its_calls() -> None:
    """The only way into calling leads through the stored answer."""
    ways_in = [(phase, event) for phase, row in TRANSITIONS.items() for event, to in row.items() if to is Phase.calling]
    assert ways_in == [(Phase.answered, Event.calls_begin)]
    stored = [(phase, event) for phase, row in TRANSITIONS.items() for event, to in row.items() if to is Phase.answered]
    assert stored == [(Phase.asking, Event.answer_stored)]


def test_spawns_come_after_the_other_calls() -> None:
    assert TRANSITIONS[Phase.calling] == {Event.calls_over: Phase.spawning}


def test_a_whole_step_comes_back_to_ready() -> None:
    phase = Phase.ready
    for event in (
        Event.ask,
        Event.failed_for_now,
        Event.wait_over,
        Event.answer_stored,
        Event.calls_begin,
        Event.calls_over,
        Event.step_stored,
        Event.judge,
        Event.go_on,
    ):
        phase = advance(phase, event)
    assert phase is Phase.ready


@given(st.sampled_from(Phase), st.sampled_from(Event))
def test_a_move_outside_the_table_is_a_bug(phase: Phase, event: Event) -> None:
    if event in TRANSITIONS[phase]:
        assert advance(phase, event) is TRANSITIONS[phase][event]
        return
    with pytest.raises(AssertionError, match=f"{event.value} cannot happen while {phase.value}"):
        advance(phase, event)


@given(FACTS)
def test_the_ends_of_a_step_have_one_order(facts: StepFacts) -> None:
    """A model that is too simple to be wrong: the first that applies, in the order of the specification."""
    wanted = [
        (facts.stalled, OutcomeKind.stalled),
        (facts.denied, OutcomeKind.denied),
        (facts.tree_halted, OutcomeKind.budget_ceiling_reached),
        (facts.own_tokens_over, OutcomeKind.cost_budget_exceeded),
        (facts.quiet and not facts.has_criterion and not facts.paused_by_provider, OutcomeKind.finished),
    ]
    assert after_step(facts) is next((kind for applies, kind in wanted if applies), None)


def test_a_step_that_finished_and_crossed_a_ceiling_reports_the_ceiling() -> None:
    facts = StepFacts(quiet=True, has_criterion=False, tree_halted=True)
    assert after_step(facts) is OutcomeKind.budget_ceiling_reached


def test_a_quiet_turn_never_ends_a_run_with_a_criterion() -> None:
    assert after_step(StepFacts(quiet=True, has_criterion=True)) is None


def test_a_pause_of_the_provider_never_ends_a_run_without_one() -> None:
    assert after_step(StepFacts(quiet=True, has_criterion=False, paused_by_provider=True)) is None
