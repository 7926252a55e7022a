"""Every error of this package, as one tree.

    ActorsError
    ├── ConfigError             bad input; names the place and the remedy. Nothing was started
    ├── Halted                  the tree was stopped before there was a result; carries the Halt
    ├── ChildFailed             a child ended abnormally; carries its Exit
    ├── RestartsExhausted       a supervision tree gave up; carries the leaf's end and the path upwards
    ├── StartFailed             a supervision tree could not start; carries the supervisor's Exit
    ├── WouldDeadlock           a wait that could never end; names the cycle, and was not begun
    ├── Refused                 the runtime said no, and nothing changed
    │   ├── SpawnRefusal        no child was made; a value with axis, limit, used, requested
    │   │   ├── AgentCap  DepthCap  BudgetExhausted  UnknownPrice  LeafSpawn
    │   ├── BudgetExceeded      an agent's own cap, not the tree's: nothing latches
    │   ├── ToolCallCap         the tree's ceiling on tool calls
    │   ├── ChildRefused        a supervisor did not start a child
    │   ├── MailboxFull  MailboxClosed  Stopping  AlreadyRegistered  NameRestarting
    │   └── TerminalAlreadyCommitted
    ├── ActorGone               an ask cannot be answered: ``noproc``, crashed, or stopped first
    ├── ProviderError           a model call failed; typed, with status and retry_after
    ├── StoreError              the store failed; typed, names the file
    ├── RunConflict             another process drives the run; names it. Nothing was written
    └── ToolFailed              a tool could not do its work; the model reads the text

``Refused`` means that the caller may go on. Refusals of a spawn compare by
value: two of one kind with equal listed fields are equal, whatever was used
or left at the time.
"""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.halts import Halt

if TYPE_CHECKING:
    pass


class ActorsError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(ActorsError):
    """Some input cannot be used. Nothing was started and nothing was written.

    ``problems`` is a tuple of (path of the key, what is wrong and what to do),
    all that were found and not only the first.
    """

    def __init__(self, *problems: tuple[str, str]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{path}: {text}" if path else text for path, text in problems))


def unknown_key(key: object, known: Iterable[str]) -> str:
    """Say that a key is unknown, and which one may have been meant."""
    names = list(known)
    near = difflib.get_close_matches(str(key), names, 1)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    few = f", or write one of {', '.join(names)}" if 0 < len(names) <= MOST_NAMED else ""
    return f"unknown key; remove it{few}"


def kind_word(value: object) -> str:
    """Say what kind of value stands somewhere, in the words of whoever wrote the file."""
    if value is None:
        return "nothing"
    return next((word for kind, word in _KINDS if isinstance(value, kind)), type(value).__name__)


# In this order: True is an int too.
_KINDS: Final = (
    (str, "a text"), (bool, "true or false"), (int | float, "a number"), (Mapping, "a table"), (list | tuple, "a list"),
)  # fmt: skip
# More keys than these are looked up in the documentation.
MOST_NAMED: Final = 12


class Halted(ActorsError):
    """The tree was stopped before this work had a result."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        super().__init__(str(halt))


class ChildFailed(ActorsError):
    """A child ended abnormally. ``exit`` is its recorded end; the original exception is the cause.

    ``leaf`` is the end that began it: the same one, or far below when failures
    climbed through several parents.
    """

    def __init__(self, exit: Any) -> None:
        self.exit = exit
        cause = exit.cause
        # The text names the leaf only: naming every level would make it grow with the depth, at every level.
        self.leaf: Any = cause.leaf if isinstance(cause, ChildFailed) else exit
        super().__init__(self.leaf.blame())


class RestartsExhausted(ActorsError):
    """The top supervisor gave up. ``end`` is the leaf's Exit that was one too many, ``path`` runs from it upwards.

    The original exception is the ``__cause__``. ``blame`` is the one line that says it, by default made of the two.
    """

    def __init__(self, end: Any, path: tuple[str, ...], blame: str | None = None) -> None:
        self.end = end
        self.path = path
        if blame is None:
            blame = f"{end} (through {' <- '.join(path)})"
        super().__init__(f"restarts exhausted: {blame}")


class StartFailed(ActorsError):
    """A supervision tree could not start. ``exit`` is its supervisor's recorded end."""

    def __init__(self, exit: Any) -> None:
        self.exit = exit
        super().__init__(exit.blame())


class WouldDeadlock(ActorsError):
    """This wait could never end. It was not begun, and nothing changed.

    ``cycle`` names the nodes from the waiter on and ends with the one it comes
    back to: ``("a", "b", "a")``, and ``("a", "a")`` for a wait for oneself. It
    comes back to the waiter, unless the waiter would only have joined others
    that were stuck before: ``("a", "b", "c", "b")``.
    """

    def __init__(self, cycle: tuple[str, ...], links: tuple[str, ...]) -> None:
        self.cycle = cycle
        super().__init__(f"this wait could never end: {_few(cycle, ' -> ')} ({_few(links, '; ')})")


class Refused(ActorsError):
    """The runtime said no, and nothing changed."""


@attrs.frozen(auto_exc=False)
class SpawnRefusal(Refused):
    """No child was made: nothing was counted, queued or stored for it.

    Every refusal has ``cap`` (the short label of the trace), ``axis``, ``limit``,
    ``used`` and ``requested``; what does not apply is None.
    """

    @property
    def cap(self) -> str:
        """Give the short label that rows and counters use."""
        raise NotImplementedError

    @property
    def axis(self) -> str:
        """Name the ceiling that said no."""
        return self.cap

    @property
    def limit(self) -> int | None:
        """Give the ceiling, in the unit of the axis."""
        return None

    @property
    def requested(self) -> int | None:
        """Give what was asked for, in the unit of the axis."""
        return None

    @property
    def remaining(self) -> int | None:
        """Give what is left, in the unit of the axis; never negative."""
        return None

    def facts(self) -> dict[str, Any]:
        """Give the refusal as plain data, for rows and for scripts."""
        return {
            "axis": self.axis,
            "limit": self.limit,
            "used": getattr(self, "used", None),
            "requested": self.requested,
            "remaining": self.remaining,
            "text": str(self),
        }


@attrs.frozen(auto_exc=False)
class AgentCap(SpawnRefusal):
    """As many agents have existed as may ever exist in this tree."""

    max: int
    used: int | None = attrs.field(default=None, eq=False)

    @property
    def cap(self) -> str:
        return "agents"

    @property
    def limit(self) -> int:
        return self.max

    @property
    def requested(self) -> int:
        return 1

    @property
    def remaining(self) -> int:
        return 0 if self.used is None else max(self.max - self.used, 0)

    def __str__(self) -> str:
        return f"agent cap reached ({self.max} agents)"


@attrs.frozen(auto_exc=False)
class DepthCap(SpawnRefusal):
    """The child would hang deeper than the tree may grow."""

    max: int
    requested_depth: int

    @property
    def cap(self) -> str:
        return "depth"

    @property
    def limit(self) -> int:
        return self.max

    @property
    def used(self) -> int:
        return self.requested_depth - 1

    @property
    def requested(self) -> int:
        return self.requested_depth

    @property
    def remaining(self) -> int:
        return 0

    def __str__(self) -> str:
        return f"depth cap reached (depth {self.requested_depth} asked, deepest allowed is {self.max})"


@attrs.frozen(auto_exc=False)
class BudgetExhausted(SpawnRefusal):
    """Nothing is left to spend, or the tree is already being stopped.

    ``halt`` is the latching halt when there is one.
    """

    halt: Halt | None = attrs.field(default=None, eq=False)
    ceiling: int | None = attrs.field(default=None, eq=False)
    used: int | None = attrs.field(default=None, eq=False)
    unit: str = attrs.field(default="tokens", eq=False)

    @property
    def cap(self) -> str:
        return "budget"

    @property
    def limit(self) -> int | None:
        return self.ceiling

    @property
    def remaining(self) -> int:
        return 0

    def __str__(self) -> str:
        if self.halt is not None:
            return f"no child can start, the tree is stopping: {self.halt}"
        if self.ceiling is None:
            return "budget exhausted: nothing of the tree's budget is left"
        return f"budget exhausted ({self.used} of {self.ceiling} {self.unit} used)"


@attrs.frozen(auto_exc=False)
class UnknownPrice(SpawnRefusal):
    """A cost ceiling stands, and the price of this model is not known."""

    model: str

    @property
    def cap(self) -> str:
        return "price"

    def __str__(self) -> str:
        return f"no price is known for model {self.model!r}, and a cost ceiling is set: add [prices.{self.model!r}]"


@attrs.frozen(auto_exc=False)
class LeafSpawn(SpawnRefusal):
    """An agent that was declared a leaf asked for a child."""

    path: str

    @property
    def cap(self) -> str:
        return "leaf"

    def __str__(self) -> str:
        return f"{self.path} was spawned as a leaf and can have no children"


@attrs.frozen(auto_exc=False)
class BudgetExceeded(Refused):
    """An agent's own cap does not allow this. Nothing was drawn and nothing latches."""

    axis: str
    limit: int
    used: int
    requested: int

    @property
    def remaining(self) -> int:
        """Give what is left of the agent's own cap; never negative."""
        return max(self.limit - self.used, 0)

    def __str__(self) -> str:
        return f"own {self.axis} budget exceeded: {self.used} of {self.limit} used, {self.requested} more asked"


@attrs.frozen(auto_exc=False)
class ToolCallCap(Refused):
    """The tree's ceiling on tool calls is reached. It refuses; it does not stop the tree."""

    max: int
    used: int = attrs.field(eq=False)

    axis = "tool_calls"
    cap = "tool_calls"

    @property
    def limit(self) -> int:
        """Give the ceiling, in calls."""
        return self.max

    @property
    def requested(self) -> int:
        """Give what was asked for: one call."""
        return 1

    @property
    def remaining(self) -> int:
        """Give how many calls are left; never negative."""
        return max(self.max - self.used, 0)

    def __str__(self) -> str:
        return f"tool call cap reached ({self.used} of {self.max} calls used)"


class ChildRefused(Refused):
    """A supervisor did not start a child. ``word`` is its answer, ``reason`` what came with it."""

    def __init__(self, supervisor: str, word: str, reason: Any = None) -> None:
        self.word = word
        self.reason = reason
        super().__init__(f"{supervisor} started nothing: {word}" + (f" ({reason})" if reason is not None else ""))


class MailboxFull(Refused):
    """The mailbox holds as many messages as it may. The message was not left."""


class MailboxClosed(Refused):
    """The actor has ended or is ending. The message was not left."""


class Stopping(Refused):
    """What was asked to start something is ending. Nothing was started."""


class AlreadyRegistered(Refused):
    """The name belongs to another live actor, ``ref``. Nothing was registered."""

    def __init__(self, name: str, ref: Any) -> None:
        self.name = name
        self.ref = ref
        super().__init__(f"the name {name!r} is taken by {getattr(ref, 'path', ref)}")


class NameRestarting(Refused):
    """The actor of this name has ended and is being started again. Ask again later, or `Registry.wait_for` it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is restarting")


class TerminalAlreadyCommitted(Refused):
    """A terminal stands already, and there is only ever one.

    ``committed`` is the one that stands, ``rejected`` the one that came later.
    """

    def __init__(self, committed: Any, rejected: Any) -> None:
        self.committed = committed
        self.rejected = rejected
        super().__init__(f"this slot already holds a terminal ({committed.kind}); the later one was not taken")


class GoneReason(StrEnum):
    """Why an ask cannot be answered."""

    noproc = "noproc"
    crashed = "crashed"
    stopped = "stopped"
    dropped = "dropped"
    # Told to stop, and still at its last message.
    stopping = "stopping"
    # Between two incarnations, asked by name.
    restarting = "restarting"


class ActorGone(ActorsError):
    """An ask will never be answered. The cause of a crash is chained.

    ``exit`` is the recorded end of the actor, None when there never was one.
    """

    def __init__(self, reason: GoneReason, target: str, exit: Any = None) -> None:
        self.reason = reason
        self.target = target
        self.exit = exit
        super().__init__(f"{target}: {reason}" + (f" ({exit})" if exit is not None else ""))


class ProviderErrorKind(StrEnum):
    """What went wrong with a model call; it decides whether a retry makes sense."""

    transport = "transport"
    timeout = "timeout"
    malformed = "malformed"
    rate_limited = "rate_limited"
    server = "server"
    auth = "auth"
    request = "request"
    context_overflow = "context_overflow"
    unknown_price = "unknown_price"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in RETRYABLE


RETRYABLE = frozenset(
    {
        ProviderErrorKind.transport,
        ProviderErrorKind.timeout,
        ProviderErrorKind.malformed,
        ProviderErrorKind.rate_limited,
        ProviderErrorKind.server,
    }
)


class ProviderError(ActorsError):
    """A model call failed.

    ``retry_after`` is in seconds, None when the endpoint named none. ``usage`` is
    what a failed attempt reported, None when it is unknown: unknown is charged at
    the reservation.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        usage: Any = None,
    ) -> None:
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.usage = usage
        super().__init__(f"{kind}: {message}")

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind.retryable


class StoreErrorKind(StrEnum):
    """What went wrong in the store. Only ``busy`` may be tried again."""

    busy = "busy"
    constraint = "constraint"
    corrupt = "corrupt"
    full = "full"
    # The lease of the run was lost: another process drives it now. Only this run's rows are refused.
    fenced = "fenced"
    format = "format"  # type: ignore[assignment]  # shadows str.format, which nobody calls on a kind
    other = "other"


class StoreError(ActorsError):
    """The store failed. ``file`` names it; the library's own error is the cause."""

    def __init__(self, kind: StoreErrorKind, file: str, message: str) -> None:
        self.kind = kind
        self.file = file
        super().__init__(f"{file}: {message}")


class RunConflict(ActorsError):
    """Somebody else drives this run. Nothing was written.

    ``owner`` says who, with process and host; ``expires_at`` is when its lease
    lapses unless it is renewed, by the store's clock (UTC); None for this very process.
    """

    def __init__(self, run: str, owner: str, expires_at: str | None) -> None:
        self.run = run
        self.owner = owner
        self.expires_at = expires_at
        if expires_at is None:
            super().__init__(f"run {run} is driven by {owner}: wait until it ends")
            return
        super().__init__(
            f"run {run} is driven by {owner}; its lease lapses at {expires_at} unless renewed:"
            " wait until it ends, or stop that process and try again"
        )


class ToolFailed(ActorsError):
    """A tool could not do its work. The model reads the text as an observation; the run goes on."""


def _few(words: tuple[str, ...], between: str) -> str:
    if len(words) > 9:
        words = (*words[:6], f"... {len(words) - 8} more ...", *words[-2:])
    return between.join(words)
