"""The one end fact of a run: four shapes, and nothing else. Pure.

A terminal carries no clock, no effect id, no money, no path and no text of an
endpoint or an exception: those are in the outcome, in events and rows. Usage
stands in ``usage`` only, and a parent's includes all below it. A record that
could not be read back cannot be made. `terminal_for` maps every outcome to its
terminal.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import attrs

from actors.agents.outcomes import FailureCode, Outcome, OutcomeKind
from actors.agents.strict_json import (
    U32_MAX,
    U64_MAX,
    as_read,
    carriable,
    identifier,
    opaque,
    string,
    whole_number,
)
from actors.halts import HaltKind

# Encoded, one character takes 6 bytes at most: the terminal stays below the bound of its codec (1 MiB).
MESSAGE_CHARS: Final = 150_000


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


_U64: Final = as_read(whole_number(U64_MAX))
_U32: Final = as_read(whole_number(U32_MAX))
_TEXT: Final = as_read(string)
_ID: Final = as_read(identifier)
_IDS: Final = attrs.validators.deep_iterable(_ID)
_optional: Final = attrs.validators.optional


@attrs.frozen
class UsageReport:
    """Tokens and turns of a run with all below it. ``cached_input_tokens`` is None when nobody counted it."""

    input_tokens: int = attrs.field(default=0, validator=_U64)
    output_tokens: int = attrs.field(default=0, validator=_U64)
    turns: int = attrs.field(default=0, validator=_U32)
    cached_input_tokens: int | None = attrs.field(default=None, validator=_optional(_U64))

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

    call_id: str = attrs.field(validator=_ID)
    name: str = attrs.field(validator=_TEXT)
    arguments: Any = attrs.field(default=None, validator=as_read(opaque))


@attrs.frozen
class ProviderMessage:
    """The last message of a run."""

    role: Role
    content: str = attrs.field(validator=_TEXT)
    tool_calls: tuple[MessageCall, ...] = attrs.field(default=(), converter=tuple)
    tool_call_id: str | None = attrs.field(default=None, validator=_optional(_ID))
    tokens: int | None = attrs.field(default=None, validator=_optional(_U32))


@attrs.frozen
class PaceDecision:
    """What a paced agent decided at its end."""

    action: PaceAction
    reason: str = attrs.field(validator=_TEXT)
    delay_ms: int | None = attrs.field(default=None, validator=_optional(_U64))
    coerced_from: str | None = attrs.field(default=None, validator=_optional(_TEXT))


@attrs.frozen
class LoopResult:
    """How an agent-shaped run finished."""

    termination: TerminationReason
    turns_used: int = attrs.field(validator=_U32)
    final_message: ProviderMessage | None = None
    pace_decision: PaceDecision | None = None


@attrs.frozen
class WorkflowOutcome:
    """How a workflow drained."""

    workflow_id: str = attrs.field(validator=_ID)
    status: WorkflowStatus
    completed_nodes: tuple[str, ...] = attrs.field(default=(), converter=tuple, validator=_IDS)
    failed_nodes: tuple[str, ...] = attrs.field(default=(), converter=tuple, validator=_IDS)


@attrs.frozen
class KernelFailure:
    """Why a run could not go on. ``message`` is in words of this package; the cause itself is in the outcome."""

    code: FailureCode
    message: str = attrs.field(default="", validator=_TEXT)


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
# Whose halt cancelled a run. A spent ceiling has no row: it ends a run as a reached ceiling does.
_CANCELLED_BY: Final[Mapping[HaltKind, CancellationReason]] = {
    HaltKind.duration: CancellationReason.deadline,
    HaltKind.cancel: CancellationReason.user,
    HaltKind.interrupt: CancellationReason.host_shutdown,
    HaltKind.policy: CancellationReason.user,
    # From above, by the parent: for the run itself that is its user.
    HaltKind.parent: CancellationReason.user,
    HaltKind.restarts_exhausted: CancellationReason.user,
    HaltKind.lease_lost: CancellationReason.lease_lost,
}
_FAILED_WITH: Final[Mapping[FailureCode, str]] = {
    FailureCode.provider_recovery_exhausted: "call_provider: every provider failed",
    FailureCode.output_recovery_exhausted: "no acceptable output after the allowed retries",
    FailureCode.host_effect_failed: "the behaviour raised",
    FailureCode.resource_exhausted: "",
    FailureCode.invariant_violated: "internal error",
}


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
        ceiling = outcome.ceiling or (outcome.halt and outcome.halt.kind)
        if ceiling is not HaltKind.duration:
            return _loop_end(TerminationReason.token_budget, outcome, usage, final_message)
        if at_root:
            return _loop_end(TerminationReason.deadline, outcome, usage, final_message)
        # For a child the tree's clock is a deadline from above.
        return CancelledTerminal(CancellationReason.deadline, usage)
    if kind is OutcomeKind.cancelled:
        by = HaltKind.cancel if outcome.halt is None else outcome.halt.kind
        if by in _CANCELLED_BY:
            return CancelledTerminal(_CANCELLED_BY[by], usage)
        return _loop_end(TerminationReason.token_budget, outcome, usage, final_message)
    if kind in _HUMAN_NO:
        return CancelledTerminal(CancellationReason.user, usage)
    if kind is OutcomeKind.interrupted:
        return None if durable else CancelledTerminal(CancellationReason.host_shutdown, usage)
    if outcome.is_pause:
        return None
    return FailedTerminal(_failure(outcome), usage)


def _loop_end(
    reason: TerminationReason, outcome: Outcome, usage: UsageReport, final_message: str | None
) -> AgentTerminal:
    said = None if final_message is None else ProviderMessage(Role.assistant, _capped(final_message))
    return AgentTerminal(LoopResult(reason, min(outcome.steps, U32_MAX), said), usage)


def _capped(text: str) -> str:
    """Keep a last message within the bounds of the codec; the row of the run holds all of it."""
    left = len(text) - MESSAGE_CHARS
    return carriable(text if left <= 0 else f"{text[:MESSAGE_CHARS]} ... ({left} more characters)")


def _failure(outcome: Outcome) -> KernelFailure:
    assert outcome.kind in (OutcomeKind.escalated, OutcomeKind.failed), f"no terminal for {outcome.kind}"
    code = outcome.failure_code or FailureCode.host_effect_failed
    if code is FailureCode.host_effect_failed and outcome.kind is OutcomeKind.escalated:
        # Retryable and yet given up: its retries are used up.
        how = "transport_exhausted" if outcome.retryable else "failed for good"
        return KernelFailure(code, f"call_provider: {how}")
    return KernelFailure(code, _FAILED_WITH[code])
