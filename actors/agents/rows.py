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
    # What the model is shown with its task, as it was at the start.
    opening: str | None = None
    # How a root was asked for: run or tree.
    entry: str | None = None
    # The run that a reopened one goes on from.
    reopened_from: str | None = None
    # What whoever goes on with a root needs besides: provider, prices and settings, as JSON. Never a credential.
    task: str | None = None


@attrs.frozen
class RunStatus:
    """An agent's status changes: running, paused, draining.

    ``decided`` is the outcome, as JSON, of an agent whose work is over and whose
    children still run: a resume must not decide it again.
    """

    run_id: str
    status: str
    decided: str | None = None


@attrs.frozen
class RunResumed:
    """An agent goes on after its process ended: its status is running, and a row in ``checkpoint_events`` says so.

    ``step`` is the last one that was committed.
    """

    run_id: str
    step: int
    detail: str | None = None


@attrs.frozen
class PolicyInForce:
    """Another policy is in force from now on: the row in ``run_policies`` is replaced."""

    run_id: str
    policy: str


@attrs.frozen
class HaltLifted:
    """A halt that only interrupted a tree is over: its row in ``halts`` goes."""

    tree_id: str


@attrs.frozen
class Inherited:
    """What a reopened tree has used already: the totals of the tree it goes on from. A row in ``inherited``.

    The root is the same agent and no second one: it is not among ``agents``. ``seconds`` is the time that was used,
    ``steps`` counts those of the root that were taken over.
    """

    tree_id: str
    from_tree_id: str
    spent_tokens: int
    spent_microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    agents: int
    calls: int
    tool_calls: int
    seconds: float | None = None
    steps: int | None = None


@attrs.frozen
class Drawn:
    """Plain spend of an agent: a row in ``draws``. What did not fit under the ceiling is overrun."""

    run_id: str
    tokens: int
    microdollars: int
    overrun_tokens: int
    overrun_microdollars: int


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
    answered. Token fields are None when unknown. ``failure`` is an error kind. ``purpose`` is
    review for a call that judges the work of a step, None for one that asks for the next.
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
    purpose: str | None = None


@attrs.frozen
class Reserved:
    """A reservation is held: it stands before the request leaves. State open.

    ``priced`` False: what the call costs is not known, and only its tokens count.
    """

    run_id: str
    step: int
    attempt: int
    reservation: int
    tokens: int
    microdollars: int
    priced: bool = True


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

    ``calls`` is JSON: a list of [name, arguments text]. ``admitted`` says how many of
    them, from the first on, the tree's ceiling on tool calls lets run.
    """

    run_id: str
    step: int
    text: str | None
    calls: str
    finish_reason: str | None
    admitted: int | None = None


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
    # Links the step to the one before it, so that a reader can tell whether a row was changed.
    digest: str | None = None


@attrs.frozen
class Observed:
    """One observation of a step, in call order: a row in ``ledger_observations``.

    Reports of children that ended in the background stand before those of the calls,
    and are written with the answer. ``changed``: bytes in the workspace changed.
    """

    run_id: str
    step: int
    ordinal: int
    kind: str
    target: str
    text: str
    changed: bool | None = None


@attrs.frozen
class CallDone:
    """The result of one call of a step that is not whole yet: a row in ``call_results``.

    It stands before something that may outlast the process, so that a resume does not run the call again.
    """

    run_id: str
    step: int
    ordinal: int
    kind: str
    target: str
    text: str
    changed: bool


@attrs.frozen
class WriteIntended:
    """A call is about to leave a file as ``after`` (a digest): a row in ``write_intents``; the first one counts.

    ``changes``: other bytes stood there. How its lines change is kept for `Edited`.
    """

    run_id: str
    step: int
    ordinal: int
    target: str
    after: str
    changes: bool
    lines_added: int | None = None
    lines_removed: int | None = None
    hunk: str | None = None


@attrs.frozen
class Edited:
    """A call changed a file: a row in ``edits``, in the transaction of the call's result; see `agents/edits.py`.

    ``hunk`` is a unified diff without names, None when it is not kept.
    """

    run_id: str
    step: int
    ordinal: int
    tool: str
    path: str
    lines_added: int | None
    lines_removed: int | None
    hunk: str | None


@attrs.frozen
class AttemptBegun:
    """A call whose effect cannot be inspected is about to run: a row in ``tool_attempts``, open.

    ``key`` is the idempotency key that the tool is offered. An attempt that is begun
    again by an operator's decision counts anew.
    """

    run_id: str
    step: int
    ordinal: int
    tool: str
    arguments: str
    key: str


@attrs.frozen
class AttemptClosed:
    """It is known what became of such a call. ``resolution`` is done, asking, retry, completed, aborted or lost."""

    run_id: str
    step: int
    ordinal: int
    resolution: str


@attrs.frozen
class ApprovalAsked:
    """Somebody is asked to allow an act: a row in ``pending_approvals``, before the question leaves.

    ``request_id`` is made from durable facts, so asking again is the same question.
    ``tool`` and ``arguments`` are the whole call. ``ordinal`` is the call's, ``nth`` counts the
    questions of one call.
    """

    request_id: str
    tree_id: str
    run_id: str
    step: int
    ordinal: int
    nth: int
    act: str
    target: str
    content: str
    tool: str
    arguments: str
    goal: str
    rule: str | None
    layer: str | None


@attrs.frozen
class ApprovalDeferred:
    """Whoever was asked will not answer now: the agent stays parked until the row is decided."""

    request_id: str


@attrs.frozen
class ApprovalDecided:
    """A decision. The first one counts; a later one changes nothing, and its author reads what stands.

    ``decision`` is approved or denied, ``by`` is approver, operator, attached,
    or runtime for an approver that failed. ``remembered`` are the rules that an approval brought
    along, and ``modified`` the arguments that run in place of the call's, as JSON (`agents/rewriting.py`).
    """

    request_id: str
    decision: str
    reason: str
    by: str
    remembered: str | None = None
    modified: str | None = None


@attrs.frozen
class ApprovalApplied:
    """The decided act is about to be done: claimed before the effect."""

    request_id: str


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
class SandboxUsed:
    """What really stood around one command: a row in ``sandbox_events``.

    ``ordinal`` is that of the call, None for a check. ``backend`` is bubblewrap, landlock or
    none, ``net`` open, denied or not_held; ``not_held`` is a JSON list of what else was not kept.
    """

    run_id: str
    step: int
    ordinal: int | None
    mode: str
    backend: str
    net: str
    not_held: str = "[]"


@attrs.frozen
class AgentEvent:
    """Something between agents: a row in ``agent_events``.

    ``kind`` is spawn, spawn_refused, spawn_args, budget_draw, said, routed or restart.
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
class Pinned:
    """What an agent's check depends on, as it stood at its start: a row in ``check_pins``; the first one counts.

    ``pins`` is JSON (`actors.agents.judging.Pins`).
    """

    run_id: str
    pins: str


@attrs.frozen
class SnapshotKept:
    """What a file held before an agent first changed it: a row in ``snapshots``; the first one counts.

    ``state`` is text, absent or unkept; ``before`` is the text, and of an unkept file the reason.
    """

    run_id: str
    step: int
    path: str
    before: str
    state: str


@attrs.frozen
class SpentLater:
    """An agent whose process is over spent something more, on a check that was made again: added to its figures."""

    run_id: str
    tokens: int
    microdollars: int
    overrun_tokens: int


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
    RunStarted | RunStatus | RunResumed | PolicyInForce | HaltLifted | Inherited | Drawn | CallDone | WriteIntended
    | Edited | AttemptBegun | AttemptClosed | ApprovalAsked | ApprovalDeferred | ApprovalDecided | ApprovalApplied
    | RunFinished | AttemptMade | Reserved | Settled | AnswerGiven | StepDone | Observed | PolicyEvent | SandboxUsed
    | AgentEvent | Spawned | QueueEntered | QueueLeft | GateTried | Pinned | SnapshotKept | SpentLater | TreeHalted
    | LedgerTotals | EventSeen | LiveSeen | LiveEnded
)  # fmt: skip
