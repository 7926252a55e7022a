"""The one end fact of a run: four shapes, and nothing else. Pure.

A terminal carries no clock, no effect id, no money and no vendor text: those
are in events and rows. Usage stands in ``usage`` only, and a parent's includes
all below it. `terminal_for` maps every outcome to its terminal.
"""

from enum import StrEnum
from typing import Any, ClassVar, Final

import attrs

from actors.agents.outcomes import FailureCode, Outcome, OutcomeKind
from actors.halts import HaltKind

U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1


class TerminationReason(StrEnum):
    """Why an agent-shaped run finished. A person's abort and an error are no reasons: they have shapes of their own."""

    completed = "completed"
    max_turns = "max_turns"
    token_budget = "token_budget"
    deadline = "deadline"
    context_overflow = "context_overflow"
    no_progress = "no_progress"
    milestone_exceeded = "milestone_exceeded"


class CancellationReason(StrEnum):
    """Who or what cancelled."""

    user = "user"
    deadline = "deadline"
    lease_lost = "lease_lost"
    host_shutdown = "host_shutdown"


class PaceAction(StrEnum):
    """What a paced agent does next."""

    go_on = "continue"
    sleep = "sleep"
    stop = "stop"


class WorkflowStatus(StrEnum):
    """How a workflow drained."""

    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


class Role(StrEnum):
    """Who said a message."""

    system = "system"
    user = "user"
    assistant = "assistant"
    tool = "tool"


def _bounded_int(most: int) -> Any:
    def validate(_instance: object, field: Any, value: object) -> None:
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"{field.name} must be a whole number from 0 to {most}, not {value!r}")

    return validate


@attrs.frozen
class UsageReport:
    """Tokens and turns of a run with all below it. ``cached_input_tokens`` is None when nobody counted it."""

    input_tokens: int = attrs.field(default=0, validator=_bounded_int(U64_MAX))
    output_tokens: int = attrs.field(default=0, validator=_bounded_int(U64_MAX))
    turns: int = attrs.field(default=0, validator=_bounded_int(U32_MAX))
    cached_input_tokens: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(_bounded_int(U64_MAX))
    )

    def plus(self, other: "UsageReport") -> tuple["UsageReport", bool]:
        """Add two reports; a sum past a field's range is held at its maximum. Tell whether one was."""
        cached = None
        if self.cached_input_tokens is not None or other.cached_input_tokens is not None:
            cached = (self.cached_input_tokens or 0) + (other.cached_input_tokens or 0)
        sums = (self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)
        turns = self.turns + other.turns
        held = max(*sums, cached or 0) > U64_MAX or turns > U32_MAX
        report = UsageReport(
            min(sums[0], U64_MAX),
            min(sums[1], U64_MAX),
            min(turns, U32_MAX),
            None if cached is None else min(cached, U64_MAX),
        )
        return report, held


@attrs.frozen
class MessageCall:
    """One tool call of a message. ``arguments`` is opaque JSON, None when absent."""

    call_id: str
    name: str
    arguments: Any = None


@attrs.frozen
class ProviderMessage:
    """The last message of a run."""

    role: Role
    content: str
    tool_calls: tuple[MessageCall, ...] = ()
    tool_call_id: str | None = None
    tokens: int | None = None


@attrs.frozen
class PaceDecision:
    """What a paced agent decided at its end."""

    action: PaceAction
    reason: str
    delay_ms: int | None = None
    coerced_from: str | None = None


@attrs.frozen
class LoopResult:
    """How an agent-shaped run finished."""

    termination: TerminationReason
    turns_used: int
    final_message: ProviderMessage | None = None
    pace_decision: PaceDecision | None = None


@attrs.frozen
class WorkflowOutcome:
    """How a workflow drained."""

    workflow_id: str
    status: WorkflowStatus
    completed_nodes: tuple[str, ...] = ()
    failed_nodes: tuple[str, ...] = ()


@attrs.frozen
class KernelFailure:
    """Why a run could not go on."""

    code: FailureCode
    message: str = ""


@attrs.frozen
class AgentTerminal:
    """An agent-shaped run finished, for whatever reason of its loop."""

    kind: ClassVar[str] = "agent"
    result: LoopResult
    usage: UsageReport


@attrs.frozen
class WorkflowTerminal:
    """A workflow drained."""

    kind: ClassVar[str] = "workflow"
    outcome: WorkflowOutcome
    usage: UsageReport


@attrs.frozen
class CancelledTerminal:
    """Cancelled by the host or from above."""

    kind: ClassVar[str] = "cancelled"
    reason: CancellationReason
    usage: UsageReport


@attrs.frozen
class FailedTerminal:
    """It could not go on."""

    kind: ClassVar[str] = "failed"
    failure: KernelFailure
    usage: UsageReport


Terminal = AgentTerminal | WorkflowTerminal | CancelledTerminal | FailedTerminal

# Outcomes that are the end of an agent's own loop.
_LOOP_ENDS: Final = {
    OutcomeKind.success: TerminationReason.completed,
    OutcomeKind.finished: TerminationReason.completed,
    OutcomeKind.step_cap_reached: TerminationReason.max_turns,
    OutcomeKind.time_budget_exceeded: TerminationReason.deadline,
    OutcomeKind.cost_budget_exceeded: TerminationReason.token_budget,
    OutcomeKind.stalled: TerminationReason.no_progress,
}
_HUMAN_NO: Final = frozenset({OutcomeKind.refused, OutcomeKind.denied, OutcomeKind.plan_rejected})


def terminal_for(
    outcome: Outcome, *, at_root: bool, usage: UsageReport, final_message: str | None, durable: bool
) -> Terminal | None:
    """Map an outcome to its terminal. Total: every outcome has an answer.

    None means that the slot stays empty: the run waits for a human, or was
    interrupted and can be resumed because its store is ``durable``.
    """
    kind = outcome.kind
    if kind in _LOOP_ENDS:
        return _loop_end(_LOOP_ENDS[kind], outcome, usage, final_message)
    if kind is OutcomeKind.budget_ceiling_reached:
        return _ceiling(outcome, at_root, usage, final_message)
    if kind in _HUMAN_NO:
        return CancelledTerminal(CancellationReason.user, usage)
    if kind is OutcomeKind.cancelled:
        return CancelledTerminal(_cancelled_by(outcome), usage)
    if kind is OutcomeKind.interrupted:
        return None if durable else CancelledTerminal(CancellationReason.host_shutdown, usage)
    if outcome.is_pause:
        return None
    assert kind in (OutcomeKind.escalated, OutcomeKind.failed), f"no terminal for {kind}"
    code = outcome.failure_code or FailureCode.host_effect_failed
    return FailedTerminal(KernelFailure(code, outcome.message), usage)


def _loop_end(
    reason: TerminationReason, outcome: Outcome, usage: UsageReport, final_message: str | None
) -> AgentTerminal:
    said = None if final_message is None else ProviderMessage(Role.assistant, final_message)
    return AgentTerminal(LoopResult(reason, min(outcome.steps, U32_MAX), said), usage)


def _ceiling(outcome: Outcome, at_root: bool, usage: UsageReport, final_message: str | None) -> Terminal:
    if outcome.ceiling is HaltKind.duration:
        if not at_root:
            # For a child the tree's clock is a deadline from above.
            return CancelledTerminal(CancellationReason.deadline, usage)
        return _loop_end(TerminationReason.deadline, outcome, usage, final_message)
    return _loop_end(TerminationReason.token_budget, outcome, usage, final_message)


def _cancelled_by(outcome: Outcome) -> CancellationReason:
    kind = None if outcome.halt is None else outcome.halt.kind
    if kind is HaltKind.duration:
        return CancellationReason.deadline
    if kind is HaltKind.lease_lost:
        return CancellationReason.lease_lost
    return CancellationReason.user
