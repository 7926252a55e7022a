"""How a task ended, as a value.

An exception never leaves a child's task: it becomes one `Exit`, which the
supervisor reads. The class of the reason alone (clean or abnormal) decides
about a restart.
"""

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Final

import attrs
import trio

from actors.errors import ChildFailed, RestartsExhausted

# A line for people stays one line: of a long text its beginning is shown, of a long path its two ends.
MOST_CHARS: Final = 300
MOST_NAMES: Final = 3


class Reason(StrEnum):
    """Why something ended."""

    normal = "normal"
    # Stopped by its supervisor or by a halt, or it ended itself so.
    shutdown = "shutdown"
    # The grace or the clean-up allowance ran out.
    killed = "killed"
    error = "error"
    bad_return = "bad_return"
    restarts_exhausted = "restarts_exhausted"
    noproc = "noproc"


CLEAN = frozenset({Reason.normal, Reason.shutdown})


@attrs.frozen
class Exit:
    """The one record of how something ended.

    ``cause`` is the root error for people; ``raised`` is what was raised, whole
    (a group, say), and differs from ``cause`` only then. ``payload`` is what came
    with a shutdown: the halt. ``lost`` is a real error that a cancel had
    swallowed, or one of the clean-up. Times are seconds on trio's clock; ``asked_at`` is None for what
    ended by itself. ``left`` is False for a task that did not end although it
    was cancelled: it is recorded as killed, and named. ``spent`` says what went
    into it, where somebody counts that.
    """

    path: str
    reason: Reason
    ended_at: float
    cause: BaseException | None = None
    raised: BaseException | None = None
    payload: object = None
    lost: BaseException | None = None
    asked_at: float | None = None
    left: bool = True
    spent: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return self.reason in CLEAN

    def __str__(self) -> str:
        """Say it in one line."""
        text = f"{self.path} ended: {self.reason}"
        if self.cause is not None:
            text += f" ({named(self.cause)})"
        elif self.payload is not None:
            text += f" ({text_of(self.payload)})"
        if self.lost is not None:
            text += f"; an error was raised while it was stopped: {named(self.lost)}"
        return text if self.left else text + "; its task did not end"

    def blame(self) -> str:
        """Say in one line where it began: the leaf, its error, who gave up after how many restarts, and the cost.

        The line is short however deep the tree and however long the error are.
        """
        leaf, passed = _leaf_of(self)
        why = "" if leaf.payload is None else f" ({_one_line(text_of(leaf.payload))})"
        said = f"{leaf.reason}{why}" if leaf.cause is None else _one_line(named(leaf.cause))
        parts = [f"{leaf.path}: {said}"]
        if leaf.lost is not None:
            parts.append(f"an error was raised while it was stopped: {_one_line(named(leaf.lost))}")
        if passed:
            parts.append(f"passed on by {_few(passed)}")
        refusal = self.payload.refusal if isinstance(self.payload, Exhausted) else None
        if refusal is not None:
            parts.append(f"no further restart was allowed: {_one_line(refusal)}")
        if leaf.spent is not None:
            parts.append(f"{leaf.spent} spent on it")
        return "; ".join(parts if leaf.left else [*parts, "its task did not end"])


@attrs.frozen
class Exhausted:
    """Why a supervisor gave up: the end that was one too many, and the path from that leaf upwards."""

    cause: Exit
    path: tuple[str, ...]
    # Why a restart was refused, when it was not the budget of restarts that ran out.
    refusal: str | None = None
    # How often each supervisor of the path had started again what failed below it.
    tried: tuple[int, ...] = ()

    def __str__(self) -> str:
        why = "" if self.refusal is None else f"{self.refusal}; "
        return f"restarts exhausted: {why}{self.cause} (through {_few(self.path, ' <- ')})"


@attrs.frozen
class FailedToStart:
    """What a supervisor ends with that could not start a child."""

    id: Hashable
    end: Exit

    def __str__(self) -> str:
        # The leaf alone: naming every level would make the text, and its making, as deep as the tree.
        return f"child {self.id!r} failed to start: {self.end.blame()}"


def _leaf_of(end: Exit) -> tuple[Exit, list[str]]:
    """Find the end that began it, and whom it went through on its way up, each with what it did about it."""
    passed: list[str] = []
    while True:
        payload, cause = end.payload, end.cause
        if isinstance(payload, FailedToStart):
            passed.append(f"{end.path} (it could not start)")
            end = payload.end
        elif isinstance(payload, Exhausted):
            passed += reversed(_gave_up(payload))
            end = payload.cause
        elif isinstance(cause, ChildFailed) and isinstance(cause.leaf, Exit):
            passed.append(end.path)
            end = cause.leaf
        elif isinstance(cause, RestartsExhausted) and isinstance(cause.end, Exit):
            passed += [path for path in reversed(cause.path) if path != cause.end.path]
            # An agent that began again counts all its incarnations as one.
            end = cause.end if end.path != cause.end.path else attrs.evolve(cause.end, spent=end.spent)
        else:
            return end, passed[::-1]


def _gave_up(gone: Exhausted) -> list[str]:
    supervisors = gone.path[1:]
    if len(gone.tried) != len(supervisors):
        return list(supervisors)
    return [
        f"{path} (after {tried} restart{'' if tried == 1 else 's'})"
        for path, tried in zip(supervisors, gone.tried, strict=True)
    ]


def _few(names: Sequence[str], between: str = ", ") -> str:
    if len(names) <= 2 * MOST_NAMES:
        return between.join(names)
    left = len(names) - 2 * MOST_NAMES
    return between.join([*names[:MOST_NAMES], f"{left} more", *names[-MOST_NAMES:]])


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_CHARS else line[: MOST_CHARS - 3] + "..."


def text_of(error: object) -> str:
    """Give the text of an exception, or of a payload, whatever its own ``__str__`` does."""
    try:
        return str(error)
    except Exception as fault:
        return f"<its text cannot be had: {type(fault).__name__}>"


def named(error: BaseException) -> str:
    """Give the kind of an exception and its text."""
    kind = error.kind if isinstance(error, Noted) else type(error).__name__
    said = text_of(error)
    return f"{kind}: {said}" if said else kind


@attrs.frozen(auto_exc=False)
class Noted(Exception):
    """What is kept of an error in place of the error: its kind and its text, without the frames that it held."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def without_cancelled(error: BaseException) -> BaseException | None:
    """Split ``Cancelled`` off an exception; None when nothing else is in it, itself when none is in it.

    Never raises, however deep a group is and whatever its class does: one that cannot be
    split gives its errors in a plain group.
    """
    if isinstance(error, trio.Cancelled):
        return None
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = errors_in(error)
    real = [each for each in leaves if not isinstance(each, trio.Cancelled)]
    if len(real) == len(leaves):
        # A split would make a copy, and of a class that it does not know.
        return error
    if not real:
        return None
    try:
        return BaseExceptionGroup.split(error, trio.Cancelled)[1]
    except BaseException:
        # It recurses, and calls code of the group's own. Nothing of that is what was raised.
        return BaseExceptionGroup(error.message, real)


def first_of(error: BaseException) -> BaseException:
    """Find the first error inside groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def errors_in(error: BaseException) -> list[BaseException]:
    """Give what is in groups of groups, in its order, without recursion."""
    found: list[BaseException] = []
    stack = [error]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(reversed(error.exceptions))
        else:
            found.append(error)
    return found


def root_cause(error: BaseException) -> BaseException:
    """Find the one error inside groups of one member; a group of several stays a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def panic_in(error: BaseException) -> BaseException:
    """Find, in whatever groups, the error that is no ``Exception`` and made ``error`` none."""
    while isinstance(error, BaseExceptionGroup):
        member = next((member for member in error.exceptions if not isinstance(member, Exception)), None)
        if member is None:
            # The class of the group itself is none.
            break
        error = member
    return error


def swallowed_by(cancelled: BaseException) -> BaseException | None:
    """Find a real error in the contexts of a ``Cancelled``, or of those in a group: it was raised first, and replaced.

    Several of them, of several tasks, come in a group.

    What only steers control flow is no error: a ``WouldBlock`` that was being
    handled when the cancel came tells nobody anything.
    """
    # By identity: an exception may compare as it likes.
    found: dict[int, BaseException] = {}
    seen: set[int] = set()
    stack = [cancelled]
    while stack:
        error = stack.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        if error is not cancelled:
            real = without_cancelled(error)
            real = None if real is None else root_cause(real)
            if real is not None and not isinstance(real, _CONTROL_FLOW):
                found[id(real)] = real
                continue
        if error.__context__ is not None:
            stack.append(error.__context__)
        if isinstance(error, BaseExceptionGroup):
            stack.extend(reversed(error.exceptions))
    if len(found) > 1:
        return BaseExceptionGroup("raised while it was stopped", list(found.values()))
    return next(iter(found.values()), None)


_CONTROL_FLOW = (
    *(trio.WouldBlock, trio.EndOfChannel, trio.TooSlowError),
    *(StopIteration, StopAsyncIteration, GeneratorExit),
)
