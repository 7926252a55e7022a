"""What an agent needs of the world, as protocols and the records that cross them.

Providers, tools and stores are written against this file and never against
each other. Everything that crosses is frozen.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import attrs

from actors.agents.belongings import Belongings
from actors.agents.edits import Edit, Intent
from actors.agents.growing import Growing
from actors.agents.judging import FileText, Pins
from actors.agents.rows import Row
from actors.agents.verification import Verification
from actors.containment.amounts import exact
from actors.containment.usage import Usage
from actors.errors import Refused

if TYPE_CHECKING:
    from actors.agents.confinement import Confinement
    from actors.agents.contract import Identity
    from actors.agents.remembered import Remembered

# ── what a model is asked, and what it answers ──────────────────────────────


@attrs.frozen
class ToolSpec:
    """A tool as the model sees it. ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@attrs.frozen
class ToolCall:
    """One call in an answer. ``arguments`` is the model's own text, not yet parsed.

    Its identity is its place in the answer: ids that models send repeat, are
    empty, or collide, so they are neither stored nor trusted.
    """

    name: str
    arguments: str = "{}"


@attrs.frozen
class UserTurn:
    """Text from the runtime to the model."""

    text: str


@attrs.frozen
class AssistantTurn:
    """What the model said. ``text`` None and empty are different facts."""

    text: str | None
    calls: tuple[ToolCall, ...] = ()


@attrs.frozen
class ResultsTurn:
    """The results of the calls of the assistant turn before it, one for each, in call order."""

    texts: tuple[str, ...]


Turn = UserTurn | AssistantTurn | ResultsTurn


@attrs.frozen
class CompletionRequest:
    """One question to a model.

    ``model`` None asks for whatever the provider is configured with.
    ``max_output_tokens`` is already clamped to what may be spent. ``effort`` is how hard the model is to think, in
    the endpoint's own words; None leaves that to it. ``grown`` knows sums over these turns (`growing.added_up`).
    """

    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    model: str | None = None
    max_output_tokens: int = 4096
    effort: str | None = None
    grown: Growing[Turn] | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Completion:
    """One answer.

    ``usage`` is None when the endpoint reported none. ``model`` is the model that
    served, None when it did not say. ``finish_reason`` is verbatim.
    ``first_token_seconds`` is None when it was not measured.
    """

    text: str | None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    finish_reason: str | None = None
    first_token_seconds: float | None = None


@attrs.frozen
class Estimate:
    """The worst case of a request in tokens.

    ``minimal_output`` is the least output the request makes sense with; a request
    that cannot have it is not sent.
    """

    prompt_tokens: int = attrs.field(validator=exact)
    output_tokens: int = attrs.field(validator=exact)
    minimal_output: int = attrs.field(default=1, validator=exact)

    @property
    def tokens(self) -> int:
        """Count what a reservation must hold."""
        return self.prompt_tokens + self.output_tokens

    @property
    def minimal(self) -> int:
        """Count the least that must fit for the request to be sent at all."""
        return self.prompt_tokens + min(self.minimal_output, self.output_tokens)


@runtime_checkable
class Provider(Protocol):
    """A source of completions.

    Besides ``name`` and ``complete`` a provider may offer ``estimate(request) -> Estimate`` (its own worst case),
    ``default_model`` (the model it is configured with, str or None), ``endpoint`` (``host:port`` for the net policy,
    None when it opens no connection), ``takes_effort`` (whether it can send ``effort``; without it a run that asks
    for one is refused), ``served_by`` and ``aclose()``.
    """

    @property
    def name(self) -> str:
        """Name the provider in rows and messages."""
        ...

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer one request.

        Cancellation: whether the call was billed is unknown; the caller charges
        its reservation.

        Raises:
            ProviderError: typed; never anything else for what an endpoint did.
        """
        ...


# ── tools ───────────────────────────────────────────────────────────────────


class ObservationKind(StrEnum):
    """What an observation is about; stored values, do not rename one. ``child`` is the runtime's own."""

    read = "read"
    grep = "grep"
    find = "find"  # type: ignore[assignment]  # shadows str.find, which nobody calls on a kind
    write = "write"
    tool = "tool"
    child = "child"
    message = "message"
    error = "error"


@attrs.frozen
class Observation:
    """What a call gave. ``text`` is not yet capped; the loop caps it at one place.

    ``target`` is what it was about (a path, a pattern, a program). ``changed`` says
    whether bytes in the workspace changed: only that is progress.
    """

    kind: ObservationKind
    target: str
    text: str
    changed: bool = False


class Act(StrEnum):
    """The acts a policy governs; stored values."""

    read = "read"
    write = "write"
    exec = "exec"
    net = "net"
    spawn = "spawn"


class ToolContext(Protocol):
    """What a tool may use while it runs. One per call."""

    @property
    def root(self) -> str:
        """Give the absolute, resolved workspace directory."""
        ...

    @property
    def exec_timeout(self) -> float:
        """Give the seconds that one command may take."""
        ...

    @property
    def confinement(self) -> "Confinement":
        """Give what is to stand around every command of this call."""
        ...

    @property
    def max_read_chars(self) -> int | None:
        """Give the most characters one read may return, None for the built-in ceiling."""
        ...

    @property
    def check_writes(self) -> bool:
        """Tell whether a file that was written is to be looked at by the checker of its language."""
        ...

    @property
    def commit_identity(self) -> "Identity":
        """Give who commits."""
        ...

    async def authorise(self, act: Act, target: str, *more: str, content: str = "", edit: Edit | None = None) -> None:
        """Ask the policy, and the approver where it says ask: ``edit`` is how lines change.

        Cancellation: nothing was decided.

        Raises:
            ActRefused: denied; the row and the event are written already. Let it
                pass: the loop makes the observation.
            CallRewritten: the approver changed the call. Let it pass: it is begun again.
        """
        ...

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> None:
        """Ask the policy for commands and for the files that they are joined with, all before any of them runs.

        ``reads`` and ``writes`` are resolved paths. A deny of one is a deny of all. The
        approver is asked once about the commands, as ``line``, and once about each file.

        Cancellation: nothing was decided.

        Raises:
            ActRefused: as `authorise`.
        """
        ...

    @property
    def belongings(self) -> Belongings:
        """Give what tools keep for this agent from one call to the next."""
        ...

    @property
    def key(self) -> str:
        """Give an idempotency key: made from durable facts, the same whenever this very call is run."""
        ...

    async def intend(self, target: str, after: str, *, changes: bool, edit: Edit | None = None) -> bool:
        """Note what a write is about to make of ``target``, before it is done.

        ``after`` is a digest of the bytes that will stand there, ``changes`` whether others
        stand there now. ``edit`` is how lines change then, kept with a result that says so.
        Tells whether a process that is gone noted the same and would have
        changed something: then what stands there may be this call's own work.

        Cancellation: nothing may be written.
        """
        ...

    def wrote(self, target: str, now: str) -> bool:
        """Tell whether this call, run by a process that is gone, left exactly ``now`` (a digest) at ``target``."""
        ...

    async def touch(self, target: str, look: Callable[[], FileText]) -> None:
        """Keep what a file holds before this agent first changes it, for whoever reviews the work.

        ``look`` reads it; it is called only when that is not known yet, and somebody may review.

        Cancellation: nothing may be written.
        """
        ...

    def report_leaked(self, processes: Sequence[int]) -> None:
        """Name processes that did not die in time; the leak report of the tree lists them."""
        ...

    def may_read(self, target: str) -> bool:
        """Tell whether ``target`` may be read without asking; ask counts as no, unless a rule is remembered for it."""
        ...


class Tool(Protocol):
    """Something a model can call.

    Calls of ``read_only`` tools run beside each other, and one may be cut and begun again. A
    tool asks ``context.authorise`` for each act with the real target (a path after it was
    resolved, relative to the root), before it does anything.

    A tool may say what is to be done with a call of which nobody knows whether it ran, because the process ended:
    ``recovery`` is ``replayable`` (run it again) or ``indeterminate`` (a human decides). Without it, what is
    ``read_only`` is replayable and all else is not. A call that was cut while it asked is begun again from its start,
    so an indeterminate tool asks for everything in its first question: once it was let go on it is taken to have
    acted, also while it asks again, and a human decides.

    ``notes_writes`` True says that it does nothing before `ToolContext.intend`; the results of
    the calls before it then stand with what it notes, and need no transaction of their own.
    """

    @property
    def spec(self) -> ToolSpec:
        """Describe the tool to the model."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether the tool changes nothing."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Do the work for one call; ``arguments`` is a decoded JSON object.

        Cancellation: every process it started is gone when this returns or raises.

        Raises:
            ToolFailed: bad arguments or a failure of the work; an observation.
            ActRefused: from ``context.authorise``.
        """
        ...


class GateVerdict(Protocol):
    """What a criterion came to: ``verdict`` is passed, failed or errored; errored is not failed."""

    @property
    def phase(self) -> str:
        """Name what was evaluated: command, contains, none."""
        ...

    @property
    def verdict(self) -> str:
        """Give passed, failed or errored."""
        ...

    @property
    def detail(self) -> str:
        """Say what was seen, bounded."""
        ...


class Verifier(Protocol):
    """Evaluates a criterion. It is no part of the worker, and the worker cannot change it."""

    async def __call__(
        self,
        criterion: Verification,
        *,
        root: str,
        file: str | None,
        exec_timeout: float,
        may_read: Callable[[str], bool],
        may_exec: Callable[[Sequence[str]], bool],
        confinement: "Confinement",
    ) -> GateVerdict:
        """Look whether the criterion holds; a command of it runs behind what ``confinement`` says.

        Cancellation: nothing was decided, and every process it started is gone.
        """
        ...


class JudgedFiles(Protocol):
    """Looks at the files of a workspace for a judge."""

    async def pin(self, criterion: Verification, root: str) -> Pins:
        """Look at what a check depends on.

        Cancellation: nothing was kept.

        Raises:
            ConfigError: it is more than can be looked at before each evaluation.
        """
        ...

    def text_of(self, root: str, path: str) -> FileText:
        """Read a file of a workspace, as far as it is text and not too long."""
        ...


@attrs.frozen
class Refusal:
    """Why the policy said no: the act, what it was about, and which rule of which layer decided.

    ``rule`` and ``layer`` are None when the default for the act decided.
    """

    act: Act
    target: str
    rule: str | None = None
    layer: str | None = None
    reason: str = "denied by policy"

    def __str__(self) -> str:
        where = f" (rule {self.rule!r} of layer {self.layer!r})" if self.layer is not None else " (default)"
        return f"{self.act} {self.target}: {self.reason}{where}"


class ActRefused(Refused):
    """The policy, or a human, did not allow an act. Nothing was done."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


# ── approvals ───────────────────────────────────────────────────────────────


@attrs.frozen
class ApprovalRequest:
    """What to allow. ``content`` is what a file is to hold, of a ``shell`` its line; ``hunk`` how it changes."""

    act: Act
    target: str
    content: str
    goal: str
    path: str
    rule: str | None = None
    layer: str | None = None
    tool: str = ""
    hunk: str | None = None


@attrs.frozen
class Approval:
    """The answer: approved, or denied with a reason that the model reads.

    With an approval, ``remember`` are rules for the rest of the run, in the whole tree: what they
    match is not asked about again. No rule can allow what the policy of an agent denies. ``modified``
    are all the arguments that the call is to run with in place of its own, judged anew by the policy.
    """

    approved: bool
    reason: str = ""
    remember: "tuple[Remembered, ...]" = ()
    modified: Mapping[str, Any] | None = attrs.field(default=None, hash=False)


@attrs.frozen
class Defer:
    """No answer now. The question stays in the store, and its agent is parked until somebody decides it."""


class Approver(Protocol):
    """Who is asked where the policy says ask."""

    async def decide(self, request: ApprovalRequest) -> Approval | Defer:
        """Answer one request, or put it off; may take for ever.

        Cancellation: nothing was decided, and the act is not done.
        """
        ...


@attrs.frozen
class ApprovalState:
    """How a question stands. ``decision`` is approved or denied, None while it is open; ``by`` says who decided.

    ``act``, ``target`` and ``content`` are what it is an answer to, and to nothing else. ``remembered`` are rules and
    ``modified`` arguments that came with it, as stored; ``nth`` counts the questions of a call, ``applied``: acted on.
    """

    deferred: bool
    decision: str | None
    reason: str
    by: str | None
    act: str = ""
    target: str = ""
    content: str = ""
    remembered: str | None = None
    modified: str | None = None
    nth: int = 0
    applied: bool = False


# ── records ─────────────────────────────────────────────────────────────────


class RunStore(Protocol):
    """Where everything is written. One per tree; its reads are its own business.

    ``append`` is for what may ride the next commit, ``commit`` for what must stand
    before the caller goes on. Rows of one call land in one transaction, in order,
    and after all rows appended before. ``driven`` are the trees that this process
    drives through it.
    """

    driven: set[str]

    async def append(self, *rows: Row) -> None:
        """Leave rows for the next commit, waiting only while the queue is full.

        Cancellation: either all rows were left or none.
        """
        ...

    def append_nowait(self, *rows: Row) -> None:
        """Leave rows for the next commit, in the running step.

        For rows whose number the containment bounds (a start, an end, a place in
        the queue): they are taken even when the queue is full.
        """
        ...

    async def commit(self, *rows: Row) -> None:
        """Write rows in one transaction and wait until it stands.

        Cancellation: the rows are written or not, all or none; shield it when it
        matters.

        Raises:
            StoreError: nothing of this call was written.
        """
        ...

    def approval(self, request_id: str) -> ApprovalState | None:
        """Tell how a question stands; None when it was never asked."""
        ...

    def answers(self, run_id: str, step: int, ordinal: int) -> Sequence[ApprovalState]:
        """Give how the questions of one call stand, in order."""
        ...

    def write_intent(self, run_id: str, step: int, ordinal: int, target: str) -> Intent | None:
        """Give what a call meant to make of a file; None when it noted nothing."""
        ...

    def pins(self, run_id: str) -> str | None:
        """Give what an agent's check depends on, as it stood at the agent's start; None when nothing was noted."""
        ...

    def models(self, run_id: str) -> list[str | None]:
        """Name the models that worked in the tree of an agent, reviews left out; None for one without a name."""
        ...

    def has_snapshot(self, run_id: str, path: str) -> bool:
        """Tell whether it is known what a file held before an agent first changed it."""
        ...

    def files_before(self, run_id: str) -> Mapping[str, FileText]:
        """Give what the files of its workspace held before an agent, or one below it, first changed them."""
        ...

    async def take(self, tree_id: str) -> int:
        """Become the one process that drives a tree; give the generation of the lease.

        Cancellation: it may be held; `release` gives it back.

        Raises:
            RunConflict: another one does, and it lives; nothing was written.
        """
        ...

    async def renew(self, tree_id: str) -> None:
        """Say that this process lives and still drives a tree.

        Cancellation: it was said or not.

        Raises:
            StoreError: of kind fenced: it does not any more. Or the store failed.
        """
        ...

    async def release(self, tree_id: str) -> None:
        """Drive a tree no more. Does nothing for one that another process drives by now.

        Cancellation: shield it.
        """
        ...


class Observer(Protocol):
    """Who hears what happens. Called in order for one agent; must not block."""

    def event(self, event: "Mapping[str, Any]") -> None:
        """Take one event: flat data with ``kind``, ``path`` and ``depth``."""
        ...
