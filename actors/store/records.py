"""What is read back, as records. The fields are the columns, in the columns' words.

Stamps are text, UTC with milliseconds. JSON stays text: whoever wants to know
what is in it knows its codec.
"""

from typing import Any

import attrs


def _figure(value: float | None) -> float | int | None:
    """Give whole figures as whole numbers: tokens, calls and money are."""
    return int(value) if value is not None and value.is_integer() else value


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


@attrs.frozen
class RunSummary:
    """One line of a list of runs."""

    run_id: str
    status: str
    outcome: str | None
    started_at: str
    goal: str


@attrs.frozen
class RunRecord:
    """One agent's run: how it began, also what a resume needs, and how it ended. Without an end that is None."""

    run_id: str
    tree_id: str
    path: str
    depth: int
    parent_run_id: str | None
    goal: str
    file: str | None
    provider: str | None
    model: str | None
    contract: str | None
    containment: str | None
    root: str | None
    status: str
    outcome: str | None
    detail: str | None
    success: bool | None = attrs.field(converter=_flag)
    steps: int | None
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    spent_tokens: int | None
    spent_microdollars: int | None
    overrun_tokens: int | None
    estimated: bool | None = attrs.field(converter=_flag)
    duration_ms: int | None
    said: str | None
    error: str | None
    started_at: str
    finished_at: str | None
    decided: str | None = None
    opening: str | None = None
    entry: str | None = None
    reopened_from: str | None = None
    task: str | None = None

    @property
    def parent(self) -> str | None:
        """Give the path of the parent; None for the root."""
        return self.path.rpartition("/")[0] or None


@attrs.frozen
class OutcomeRecord:
    """How a run really ended; a paused one has none."""

    outcome: str
    success: bool = attrs.field(converter=bool)
    steps: int
    tokens: int
    duration_ms: int
    finished_at: str


@attrs.frozen
class ProviderCallRecord:
    """One attempt at a provider: the model asked for, and the one that served."""

    step: int
    attempt: int
    provider: str
    asked: str | None
    served: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    total_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    server_tool_requests: int | None
    latency_ms: int
    first_token_ms: int | None
    finish_reason: str | None
    failure: str | None
    detail: str | None
    purpose: str | None
    at: str

    @property
    def model(self) -> str | None:
        """Name the model of the call: the one that served, else the one asked for."""
        return self.served or self.asked


@attrs.frozen
class ReservationRecord:
    """One reservation: what was held, and what was used once it is no longer open."""

    step: int
    attempt: int
    reservation: int
    tokens: int
    microdollars: int
    state: str
    used_tokens: int | None
    used_microdollars: int | None
    overrun_tokens: int | None
    overrun_microdollars: int | None
    reserved_at: str
    settled_at: str | None


@attrs.frozen
class TurnRecord:
    """The assistant turn of a step. ``text`` None is not empty text."""

    step: int
    text: str | None
    calls: str
    finish_reason: str | None
    at: str
    admitted: int | None = None


@attrs.frozen
class StepRecord:
    """A whole step."""

    step: int
    decision: str
    result: str
    tool_call: str
    tokens: int
    remaining_tokens: int | None
    at: str
    digest: str | None = None


@attrs.frozen
class CheckpointRecord:
    """A mark between steps: a checkpoint, a resume, a skipped one."""

    step: int
    kind: str
    detail: str | None
    at: str


@attrs.frozen
class ObservationRecord:
    """One observation of a step."""

    step: int
    ordinal: int
    kind: str
    target: str
    text: str
    changed: bool | None = attrs.field(default=None, converter=_flag)


@attrs.frozen
class PolicyRecord:
    """A refusal or a decision of the policy."""

    step: int
    kind: str
    act: str
    target: str
    rule: str | None
    layer: str | None
    decision: str | None
    source: str | None
    at: str


@attrs.frozen
class AgentEventRecord:
    """Something between agents."""

    step: int
    kind: str
    detail: str
    child_run_id: str | None
    tokens: int | None
    remaining: int | None
    at: str


@attrs.frozen
class SpawnRecord:
    """A child that was made by a call."""

    step: int
    ordinal: int
    child_run_id: str
    goal: str
    definition: str | None
    arguments: str
    at: str


@attrs.frozen
class QueueRecord:
    """A child that waits for its first slot."""

    step: int
    ordinal: int
    goal: str
    depth: int
    queued_at: str


@attrs.frozen
class EditRecord:
    """A file that a call changed. ``hunk`` is a unified diff without names; what is None was not kept."""

    step: int
    ordinal: int
    tool: str
    path: str
    lines_added: int | None
    lines_removed: int | None
    hunk: str | None
    at: str


@attrs.frozen
class GateRecord:
    """One evaluation of a criterion."""

    step: int
    phase: str
    verdict: str
    detail: str
    at: str


@attrs.frozen
class HaltRecord:
    """The first halt of a tree."""

    kind: str
    by: str
    path: str
    reason: str
    limit: float | int | None = attrs.field(converter=_figure)
    used: float | int | None = attrs.field(converter=_figure)
    requested: float | int | None = attrs.field(converter=_figure)
    at: str


@attrs.frozen
class LedgerRecord:
    """The totals of a tree as last written. ``refusals`` is JSON: how many of each kind."""

    spent_tokens: int
    spent_microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    reserved_tokens: int
    reserved_microdollars: int
    agents: int
    calls: int
    tool_calls: int
    unpriced_calls: int
    peak_working: int
    refusals: str
    at: str


@attrs.frozen
class EventRecord:
    """One event of a tree. ``sequence`` grows with the order of writing; ``event`` is JSON."""

    sequence: int
    run_id: str
    event: str
    at: str


@attrs.frozen
class LiveRecord:
    """A live tree as it was last written. ``snapshot`` is JSON."""

    snapshot: str
    taken_at: str


@attrs.frozen
class ApprovalRecord:
    """A question to a human: what is to be allowed, by whom asked, and what became of it.

    ``decision`` is approved or denied, None while nobody decided.
    """

    request_id: str
    tree_id: str
    run_id: str
    step: int
    ordinal: int
    act: str
    target: str
    content: str
    tool: str
    arguments: str
    goal: str
    rule: str | None
    layer: str | None
    deferred: bool = attrs.field(converter=bool)
    decision: str | None
    reason: str | None
    decided_by: str | None
    asked_at: str
    decided_at: str | None
    applied_at: str | None
    remembered: str | None
    modified: str | None
    nth: int


@attrs.frozen
class AttemptRecord:
    """A call whose effect cannot be inspected. ``resolution`` None: nobody knows whether it was done."""

    run_id: str
    step: int
    ordinal: int
    tool: str
    arguments: str
    key: str
    attempt: int
    started_at: str
    completed_at: str | None
    resolution: str | None
