"""How a task ended, as a value.

An exception never leaves a child's task: it becomes one `Exit`, which the
supervisor reads. The class of the reason alone (clean or abnormal) decides
about a restart.
"""

from enum import StrEnum

import attrs
import trio


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
    swallowed. Times are seconds on trio's clock; ``asked_at`` is None for what
    ended by itself. ``left`` is False for a task that did not end although it
    was cancelled: it is recorded as killed, and named.
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

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        return self.reason in CLEAN

    def __str__(self) -> str:
        """Say it in one line."""
        text = f"{self.path} ended: {self.reason}"
        if self.cause is not None:
            said = text_of(self.cause)
            text += f" ({type(self.cause).__name__}: {said})" if said else f" ({type(self.cause).__name__})"
        elif self.payload is not None:
            text += f" ({self.payload})"
        if self.lost is not None:
            text += f"; an error was raised while it was stopped: {type(self.lost).__name__}: {text_of(self.lost)}"
        return text if self.left else text + "; its task did not end"


def text_of(error: BaseException) -> str:
    """Give the text of an exception, whatever its own ``__str__`` does."""
    try:
        return str(error)
    except Exception as fault:
        return f"<its text cannot be had: {type(fault).__name__}>"


def without_cancelled(error: BaseException) -> BaseException | None:
    """Split ``Cancelled`` off an exception; None when nothing else is in it."""
    if isinstance(error, trio.Cancelled):
        return None
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return error


def root_cause(error: BaseException) -> BaseException:
    """Find the one error inside groups of one member; a group of several stays a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def panic_in(error: BaseException) -> BaseException:
    """Find, in whatever groups, the error that is no ``Exception`` and made ``error`` none."""
    while isinstance(error, BaseExceptionGroup):
        error = next(member for member in error.exceptions if not isinstance(member, Exception))
    return error


def swallowed_by(cancelled: BaseException) -> BaseException | None:
    """Find a real error in the context of a ``Cancelled``: it was raised first, and replaced.

    What only steers control flow is no error: a ``WouldBlock`` that was being
    handled when the cancel came tells nobody anything.
    """
    seen: set[int] = set()
    context = cancelled.__context__
    while context is not None and id(context) not in seen:
        seen.add(id(context))
        real = without_cancelled(context)
        if real is not None and isinstance(real, Exception) and not isinstance(real, _CONTROL_FLOW):
            return root_cause(real)
        context = context.__context__
    return None


_CONTROL_FLOW = (trio.WouldBlock, trio.EndOfChannel, trio.TooSlowError, StopIteration, StopAsyncIteration)
