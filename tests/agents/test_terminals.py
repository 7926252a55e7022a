"""Every outcome has its terminal, usage adds up within its range, and no record is made that cannot be written."""

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.outcomes import FailureCode, Outcome, OutcomeKind
from actors.agents.strict_json import U32_MAX, U64_MAX
from actors.agents.terminal_codec import decode_terminal, encode_terminal
from actors.agents.terminals import (
    MESSAGE_CHARS,
    AgentTerminal,
    CancellationReason,
    CancelledTerminal,
    FailedTerminal,
    KernelFailure,
    LoopResult,
    MessageCall,
    PaceAction,
    PaceDecision,
    ProviderMessage,
    Role,
    Terminal,
    TerminationReason,
    UsageReport,
    WorkflowOutcome,
    WorkflowStatus,
    terminal_for,
)
from actors.halts import Halt, HaltKind

USAGE = UsageReport(10, 20, 3, 4)


def mapped(
    kind: OutcomeKind, *, root: bool = True, durable: bool = True, said: str | None = "said", **more: Any
) -> Terminal | None:
    outcome = Outcome(kind, steps=2, **more)
    return terminal_for(outcome, at_root=root, usage=USAGE, final_message=said, durable=durable)


def agent(reason: TerminationReason) -> AgentTerminal:
    return AgentTerminal(LoopResult(reason, 2, ProviderMessage(Role.assistant, "said")), USAGE)


def cancelled(reason: CancellationReason) -> CancelledTerminal:
    return CancelledTerminal(reason, USAGE)


LOOP_ENDS = {
    OutcomeKind.success: TerminationReason.completed,
    OutcomeKind.finished: TerminationReason.completed,
    OutcomeKind.step_cap_reached: TerminationReason.max_turns,
    OutcomeKind.time_budget_exceeded: TerminationReason.deadline,
    OutcomeKind.cost_budget_exceeded: TerminationReason.token_budget,
    OutcomeKind.stalled: TerminationReason.no_progress,
}


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize(("kind", "reason"), LOOP_ENDS.items())
def test_an_end_of_an_agents_own_is_its_termination(kind: OutcomeKind, reason: TerminationReason, root: bool) -> None:
    assert mapped(kind, root=root) == agent(reason)


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("ceiling", [HaltKind.tokens, HaltKind.cost, HaltKind.calls])
def test_a_spent_ceiling_of_the_tree_is_token_budget_everywhere(ceiling: HaltKind, root: bool) -> None:
    expected = agent(TerminationReason.token_budget)
    assert mapped(OutcomeKind.budget_ceiling_reached, root=root, ceiling=ceiling) == expected
    assert mapped(OutcomeKind.cancelled, root=root, halt=Halt(ceiling)) == expected


@pytest.mark.parametrize("named", [{"ceiling": HaltKind.duration}, {"halt": Halt(HaltKind.duration)}])
def test_the_trees_clock_is_the_roots_deadline_and_a_deadline_from_above_below_it(named: dict[str, Any]) -> None:
    at_root = mapped(OutcomeKind.budget_ceiling_reached, root=True, **named)
    below = mapped(OutcomeKind.budget_ceiling_reached, root=False, **named)
    assert at_root == agent(TerminationReason.deadline)
    assert below == cancelled(CancellationReason.deadline)


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize(
    ("halt", "reason"),
    [
        (None, "user"),
        (HaltKind.cancel, "user"),
        (HaltKind.parent, "user"),
        (HaltKind.policy, "user"),
        (HaltKind.restarts_exhausted, "user"),
        (HaltKind.duration, "deadline"),
        (HaltKind.lease_lost, "lease_lost"),
        (HaltKind.interrupt, "host_shutdown"),
    ],
)
def test_a_cancel_says_who(halt: HaltKind | None, reason: str, root: bool) -> None:
    more = {} if halt is None else {"halt": Halt(halt)}
    assert mapped(OutcomeKind.cancelled, root=root, **more) == cancelled(CancellationReason(reason))


@pytest.mark.parametrize("kind", [OutcomeKind.denied, OutcomeKind.refused, OutcomeKind.plan_rejected])
def test_a_humans_no_is_a_cancel_by_the_user(kind: OutcomeKind) -> None:
    assert mapped(kind) == cancelled(CancellationReason.user)


@pytest.mark.parametrize(
    ("kind", "more", "code", "message"),
    [
        (OutcomeKind.escalated, {"retryable": True}, "host_effect_failed", "call_provider: transport_exhausted"),
        (OutcomeKind.escalated, {"retryable": False}, "host_effect_failed", "call_provider: failed for good"),
        (OutcomeKind.failed, {}, "host_effect_failed", "the behaviour raised"),
        (
            OutcomeKind.escalated,
            {"failure_code": FailureCode.provider_recovery_exhausted},
            "provider_recovery_exhausted",
            "call_provider: every provider failed",
        ),
        (
            OutcomeKind.failed,
            {"failure_code": FailureCode.invariant_violated},
            "invariant_violated",
            "internal error",
        ),
        (OutcomeKind.failed, {"failure_code": FailureCode.resource_exhausted}, "resource_exhausted", ""),
    ],
)
def test_what_could_not_go_on_has_a_code_and_words_of_ours(
    kind: OutcomeKind, more: dict[str, Any], code: str, message: str
) -> None:
    assert mapped(kind, **more) == FailedTerminal(KernelFailure(FailureCode(code), message), USAGE)


def test_no_text_of_an_endpoint_or_an_exception_gets_into_a_terminal() -> None:
    for kind, code in itertools.product(OutcomeKind, (None, *FailureCode)):
        terminal = mapped(kind, durable=False, message="HTTP 500 at /home/me", failure_code=code)
        assert terminal is None or "/home/me" not in encode_terminal(terminal)


@pytest.mark.parametrize(
    "kind",
    [
        OutcomeKind.awaiting_approval,
        OutcomeKind.awaiting_answer,
        OutcomeKind.awaiting_plan,
        OutcomeKind.awaiting_recovery,
    ],
)
@pytest.mark.parametrize("durable", [True, False])
def test_who_waits_for_a_human_has_no_terminal(kind: OutcomeKind, durable: bool) -> None:
    assert mapped(kind, durable=durable) is None


def test_an_interrupted_run_keeps_its_slot_empty_only_when_it_can_be_resumed() -> None:
    halt = Halt(HaltKind.interrupt)
    assert mapped(OutcomeKind.interrupted, durable=True, halt=halt) is None
    assert mapped(OutcomeKind.interrupted, durable=False, halt=halt) == cancelled(CancellationReason.host_shutdown)


def test_the_map_is_total_and_its_terminals_can_be_written() -> None:
    halts = (None, *HaltKind)
    switches = (True, False)
    for kind, halt, ceiling, root, durable in itertools.product(OutcomeKind, halts, halts, switches, switches):
        told = None if halt is None else Halt(halt)
        terminal = mapped(kind, root=root, durable=durable, halt=told, ceiling=ceiling)
        empty = Outcome(kind).is_pause and (durable or kind is not OutcomeKind.interrupted)
        assert (terminal is None) == empty, (kind, halt, ceiling, root, durable)
        if terminal is not None:
            assert terminal.usage is USAGE
            assert decode_terminal(encode_terminal(terminal)) == terminal


def test_an_agent_that_said_nothing_has_no_last_message() -> None:
    silent, empty = mapped(OutcomeKind.finished, said=None), mapped(OutcomeKind.finished, said="")
    assert isinstance(silent, AgentTerminal) and silent.result.final_message is None
    assert isinstance(empty, AgentTerminal) and empty.result.final_message == ProviderMessage(Role.assistant, "")


@pytest.mark.parametrize("character", ["a", '"', "\x01", "\N{GRINNING FACE}", "\ud800"])
def test_the_longest_last_message_still_fits_the_codec(character: str) -> None:
    terminal = mapped(OutcomeKind.finished, said=character * (MESSAGE_CHARS + 5))
    assert isinstance(terminal, AgentTerminal) and terminal.result.final_message is not None
    assert terminal.result.final_message.content.endswith(" ... (5 more characters)")
    assert decode_terminal(encode_terminal(terminal)) == terminal


def test_more_steps_than_a_terminal_can_count_are_held_at_its_maximum() -> None:
    outcome = Outcome(OutcomeKind.step_cap_reached, steps=U32_MAX + 1)
    terminal = terminal_for(outcome, at_root=True, usage=USAGE, final_message=None, durable=True)
    assert terminal == AgentTerminal(LoopResult(TerminationReason.max_turns, U32_MAX), USAGE)


def test_a_person_and_an_error_are_no_reasons_to_finish() -> None:
    assert [reason.value for reason in TerminationReason] == [
        "completed",
        "max_turns",
        "token_budget",
        "deadline",
        "context_overflow",
        "no_progress",
        "milestone_exceeded",
    ]


# ── usage ───────────────────────────────────────────────────────────────────

u64 = st.integers(0, U64_MAX) | st.integers(U64_MAX - 2, U64_MAX)
u32 = st.integers(0, U32_MAX) | st.integers(U32_MAX - 2, U32_MAX)
usages = st.builds(UsageReport, u64, u64, u32, st.none() | u64)


def test_a_fresh_usage_is_all_zeros_without_a_cached_count() -> None:
    fresh = UsageReport()
    assert (fresh.input_tokens, fresh.output_tokens, fresh.turns, fresh.cached_input_tokens) == (0, 0, 0, None)


@given(usages, usages)
def test_a_sum_past_a_range_is_held_at_its_maximum_and_says_so(one: UsageReport, other: UsageReport) -> None:
    total, held = one.plus(other)
    past = False
    for field in attrs.fields(UsageReport):
        exact = (getattr(one, field.name) or 0) + (getattr(other, field.name) or 0)
        most = U32_MAX if field.name == "turns" else U64_MAX
        past = past or exact > most
        assert (getattr(total, field.name) or 0) == min(exact, most)
    assert held is past


@given(usages, usages)
def test_a_cached_count_is_absent_only_when_nobody_counted(one: UsageReport, other: UsageReport) -> None:
    nobody = one.cached_input_tokens is None and other.cached_input_tokens is None
    assert (one.plus(other)[0].cached_input_tokens is None) == nobody
    assert one.plus(other) == other.plus(one)


# ── records ─────────────────────────────────────────────────────────────────

LONG = "\N{GREEK SMALL LETTER ALPHA}" * 129


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("input_tokens", lambda: UsageReport(-1)),
        ("output_tokens", lambda: UsageReport(0, U64_MAX + 1)),
        ("turns", lambda: UsageReport(0, 0, True)),
        ("cached_input_tokens", lambda: UsageReport(0, 0, 0, 1.0)),
        ("turns_used", lambda: LoopResult(TerminationReason.completed, U32_MAX + 1)),
        ("tokens", lambda: ProviderMessage(Role.user, "", tokens=-1)),
        ("tool_call_id", lambda: ProviderMessage(Role.user, "", tool_call_id="")),
        ("content", lambda: ProviderMessage(Role.user, "\ud800")),
        ("call_id", lambda: MessageCall("a\n", "read")),
        ("name", lambda: MessageCall("a", "\udfff")),
        ("arguments", lambda: MessageCall("a", "read", {"x": float("nan")})),
        ("arguments", lambda: MessageCall("a", "read", [object()])),
        ("delay_ms", lambda: PaceDecision(PaceAction.sleep, "", -1)),
        ("reason", lambda: PaceDecision(PaceAction.sleep, None)),
        ("coerced_from", lambda: PaceDecision(PaceAction.sleep, "", coerced_from=1)),
        ("workflow_id", lambda: WorkflowOutcome(LONG, WorkflowStatus.completed)),
        ("completed_nodes", lambda: WorkflowOutcome("w", WorkflowStatus.completed, ("",))),
        ("failed_nodes", lambda: WorkflowOutcome("w", WorkflowStatus.completed, (), ("\x7f",))),
        ("message", lambda: KernelFailure(FailureCode.resource_exhausted, "\ud800")),
    ],
)
def test_a_record_that_could_not_be_read_back_is_not_made(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=field):
        make()
