"""What is written, as records: one class for each table, in the words of the columns.

A store maps each class to its table and adds the time stamps from its own
clock. ``run_id`` is the agent's run id (`actors.ids.agent_run_id`). Nothing here
holds a credential, a search prompt or the body of a message.
"""

import attrs


@attrs.frozen
class RunStarted:
    """An agent begins: a row in ``runs`` with status running and started_at now.

    ``contract`` is JSON (None for a plain function), ``containment`` JSON and only
    on the root, ``policy`` JSON and goes to ``run_policies`` when given.
    """

    run_id: str
    tree_id: str
    path: str
    depth: int
    parent_run_id: str | None
    goal: str
    file: str | None = None
    provider: str | None = None
    model: str | None = None
    contract: str | None = None
    containment: str | None = None
    policy: str | None = None
    root: str | None = None


@attrs.frozen
class RunStatus:
    """An agent's status changes: running, paused, draining."""

    run_id: str
    status: str


@attrs.frozen
class RunFinished:
    """An agent has ended: outcome, terminal and usage in one row; the terminal slot is unique in the store.

    ``status`` is completed or failed; for an interrupted run ``status`` is paused and
    ``terminal`` None, so that it can be resumed. ``outcome`` is the kind, ``detail``
    its JSON, ``terminal`` the wire form as JSON.
    """

    run_id: str
    status: str
    outcome: str
    detail: str
    terminal: str | None
    success: bool
    steps: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    spent_tokens: int
    spent_microdollars: int
    overrun_tokens: int
    estimated: bool
    duration_ms: int
    said: str | None = None
    error: str | None = None


@attrs.frozen
class AttemptMade:
    """One attempt at a provider, failed ones too: a row in ``provider_calls``.

    ``asked`` is the model asked for (None: the provider's own), ``served`` the one that
    answered. Token fields are None when unknown. ``failure`` is an error kind.
    """

    run_id: str
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
    detail: str | None = None


@attrs.frozen
class Reserved:
    """A reservation is held: it stands before the request leaves. State open."""

    run_id: str
    step: int
    attempt: int
    reservation: int
    tokens: int
    microdollars: int


@attrs.frozen
class Settled:
    """A reservation is closed: settled with what was used, or estimated at what was held."""

    run_id: str
    reservation: int
    tokens: int
    microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    estimated: bool


@attrs.frozen
class AnswerGiven:
    """The assistant turn of a step: a row in ``step_turns``; null text is not empty text.

    ``calls`` is JSON: a list of [name, arguments text].
    """

    run_id: str
    step: int
    text: str | None
    calls: str
    finish_reason: str | None


@attrs.frozen
class StepDone:
    """A step is whole: rows in ``steps`` and ``checkpoint_events``.

    ``result`` is this step's observations in full, ``tool_call`` "name:args" joined.
    """

    run_id: str
    step: int
    decision: str
    result: str
    tool_call: str
    tokens: int
    remaining_tokens: int | None = None


@attrs.frozen
class Observed:
    """One observation of a step, in call order: a row in ``ledger_observations``."""

    run_id: str
    step: int
    ordinal: int
    kind: str
    target: str
    text: str


@attrs.frozen
class PolicyEvent:
    """A refusal or a decision: a row in ``policy_events``. Never holds contents."""

    run_id: str
    step: int
    kind: str
    act: str
    target: str
    rule: str | None
    layer: str | None
    decision: str | None = None
    source: str | None = None


@attrs.frozen
class AgentEvent:
    """Something between agents: a row in ``agent_events``.

    ``kind`` is spawn, spawn_refused, spawn_args, budget_draw, said or restart.
    """

    run_id: str
    step: int
    kind: str
    detail: str
    child_run_id: str | None = None
    tokens: int | None = None
    remaining: int | None = None


@attrs.frozen
class Spawned:
    """A child was made by a call: a row in ``spawns``; unique on (parent, step, ordinal)."""

    parent_run_id: str
    step: int
    ordinal: int
    child_run_id: str
    goal: str
    definition: str | None
    arguments: str


@attrs.frozen
class QueueEntered:
    """A child waits for a slot: a row in ``agent_queue``, only when it really waits."""

    parent_run_id: str
    step: int
    ordinal: int
    goal: str
    depth: int


@attrs.frozen
class QueueLeft:
    """A queued child was admitted or dropped: its row in ``agent_queue`` goes."""

    parent_run_id: str
    step: int
    ordinal: int


@attrs.frozen
class GateTried:
    """One evaluation of a criterion: a row in ``gate_attempts``; verdict passed, failed or errored."""

    run_id: str
    step: int
    phase: str
    verdict: str
    detail: str


@attrs.frozen
class TreeHalted:
    """The first halt of a tree: a row in ``halts``; a second one for the same tree is ignored."""

    tree_id: str
    kind: str
    by: str
    path: str
    reason: str
    limit: float | None
    used: float | None
    requested: float | None


@attrs.frozen
class LedgerTotals:
    """The tree's totals at its end or at a commit: the row of the tree in ``ledger``, replaced."""

    tree_id: str
    spent_tokens: int
    spent_microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    reserved_tokens: int
    reserved_microdollars: int
    agents: int
    calls: int
    tool_calls: int
    unpriced_calls: int = 0
    peak_working: int = 0
    refusals: str = "{}"


@attrs.frozen
class EventSeen:
    """One event for people who watch: a row in ``run_events``. ``event`` is JSON."""

    tree_id: str
    run_id: str
    event: str


@attrs.frozen
class LiveSeen:
    """A live tree at one moment: the row of the tree in ``live``, replaced. ``snapshot`` is JSON."""

    tree_id: str
    snapshot: str


@attrs.frozen
class LiveEnded:
    """A tree is live no more: its row in ``live`` goes."""

    tree_id: str


Row = (
    RunStarted
    | RunStatus
    | RunFinished
    | AttemptMade
    | Reserved
    | Settled
    | AnswerGiven
    | StepDone
    | Observed
    | PolicyEvent
    | AgentEvent
    | Spawned
    | QueueEntered
    | QueueLeft
    | GateTried
    | TreeHalted
    | LedgerTotals
    | EventSeen
    | LiveSeen
    | LiveEnded
)
