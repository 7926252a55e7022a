"""A slot holds the first terminal it is offered, and no other ever after."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.outcomes import FailureCode
from actors.agents.terminal_slot import TerminalSlot
from actors.agents.terminals import (
    AgentTerminal,
    CancellationReason,
    CancelledTerminal,
    FailedTerminal,
    KernelFailure,
    LoopResult,
    Terminal,
    TerminationReason,
    UsageReport,
    WorkflowOutcome,
    WorkflowStatus,
    WorkflowTerminal,
)
from actors.errors import Refused, TerminalAlreadyCommitted

USAGE = UsageReport(1, 2, 3)
FOUR: list[Terminal] = [
    AgentTerminal(LoopResult(TerminationReason.completed, 3), USAGE),
    WorkflowTerminal(WorkflowOutcome("w", WorkflowStatus.failed), USAGE),
    CancelledTerminal(CancellationReason.user, USAGE),
    FailedTerminal(KernelFailure(FailureCode.host_effect_failed), USAGE),
]


def test_an_empty_slot_holds_nothing() -> None:
    slot = TerminalSlot.empty()
    assert slot.is_committed is False
    assert slot.get() is None


@pytest.mark.parametrize("first", FOUR)
def test_the_first_terminal_is_taken_and_given_back(first: Terminal) -> None:
    slot = TerminalSlot.empty()
    assert slot.commit(first) is first
    assert slot.is_committed is True
    assert slot.get() is first


@pytest.mark.parametrize("first", FOUR)
@pytest.mark.parametrize("later", FOUR)
def test_a_later_terminal_is_refused_also_an_identical_one(first: Terminal, later: Terminal) -> None:
    slot = TerminalSlot.empty()
    slot.commit(first)
    with pytest.raises(TerminalAlreadyCommitted) as caught:
        slot.commit(later)
    assert caught.value.committed is first
    assert caught.value.rejected is later
    assert first.kind in str(caught.value)
    assert isinstance(caught.value, Refused)
    assert slot.get() is first


@pytest.mark.parametrize("later", FOUR)
def test_the_slot_of_a_restored_run_refuses_what_is_derived_again(later: Terminal) -> None:
    slot = TerminalSlot.holding(FOUR[2])
    assert slot.is_committed
    with pytest.raises(TerminalAlreadyCommitted):
        slot.commit(later)
    assert slot.get() is FOUR[2]


@given(st.lists(st.sampled_from(FOUR), min_size=1, max_size=8))
def test_a_slot_offered_many_terminals_in_any_order_keeps_the_first(offered: list[Terminal]) -> None:
    slot = TerminalSlot.empty()
    refused = 0
    for terminal in offered:
        try:
            slot.commit(terminal)
        except TerminalAlreadyCommitted:
            refused += 1
    assert slot.get() is offered[0]
    assert refused == len(offered) - 1
