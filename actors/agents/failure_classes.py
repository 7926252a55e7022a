"""What an error means for the agent that ended with it: whether it may begin again. Pure.

One table for everybody: the class of an error decides, never its text. What
waits is no crash and costs no restart; what would fail again for the same
reason is not tried again; what would fail everybody stops everybody. All the
rest is a bug, and a bug crashes.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from actors.errors import (
    BudgetExceeded,
    ChildFailed,
    ProviderError,
    ProviderErrorKind,
    RestartsExhausted,
    SpawnRefusal,
    StoreError,
    ToolCallCap,
)
from actors.runtime.exits import root_cause, text_of


class FailureClass(StrEnum):
    """What kind of failure an error is."""

    # The provider asked for a pause: wait as told, and count nothing.
    rate_limit = "rate_limit"
    # It may go well another time: begin again within the budget.
    passing = "passing"
    # The key is refused: it is refused to everybody in the tree.
    refused_key = "refused_key"
    # The same input can only fail so again: a context that is too long, a request that is wrong.
    hopeless = "hopeless"
    # A ceiling said no, and what is used up does not come back.
    used_up = "used_up"
    # What cannot be written down must not go on.
    unwritten = "unwritten"
    bug = "bug"


class Answer(StrEnum):
    """What follows from a class of failure."""

    wait_as_told = "wait_as_told"
    restart = "restart"
    # Once more; with the same error after the same input it is poison, and set aside.
    restart_unless_same = "restart_unless_same"
    never_again = "never_again"
    halt_tree = "halt_tree"


ANSWERS: Final[Mapping[FailureClass, Answer]] = {
    FailureClass.rate_limit: Answer.wait_as_told,
    FailureClass.passing: Answer.restart,
    FailureClass.refused_key: Answer.halt_tree,
    FailureClass.hopeless: Answer.never_again,
    FailureClass.used_up: Answer.never_again,
    FailureClass.unwritten: Answer.never_again,
    FailureClass.bug: Answer.restart_unless_same,
}

PROVIDER_CLASSES: Final[Mapping[ProviderErrorKind, FailureClass]] = {
    ProviderErrorKind.rate_limited: FailureClass.rate_limit,
    ProviderErrorKind.transport: FailureClass.passing,
    ProviderErrorKind.timeout: FailureClass.passing,
    ProviderErrorKind.malformed: FailureClass.passing,
    ProviderErrorKind.server: FailureClass.passing,
    ProviderErrorKind.auth: FailureClass.refused_key,
    ProviderErrorKind.context_overflow: FailureClass.hopeless,
    ProviderErrorKind.request: FailureClass.hopeless,
    ProviderErrorKind.unknown_price: FailureClass.hopeless,
}


@attrs.frozen
class Failure:
    """An error, judged. ``wait`` is what the provider asked for, in seconds; None when it named none.

    ``signature`` is equal for equal errors: what says that the same input failed the same way.
    """

    kind: FailureClass
    signature: tuple[str, str]
    text: str
    wait: float | None = None

    @property
    def answer(self) -> Answer:
        """Say what follows."""
        return ANSWERS[self.kind]


def judge(error: BaseException) -> Failure:
    """Judge an error by its class; one that climbed through parents is judged by what began it."""
    leaf = leaf_of(error)
    kind = _class_of(leaf)
    said = text_of(leaf)
    name = type(leaf).__name__
    wait = leaf.retry_after if isinstance(leaf, ProviderError) else None
    return Failure(kind, (f"{type(leaf).__module__}.{name}", said), f"{name}: {said}" if said else name, wait)


def leaf_of(error: BaseException) -> BaseException:
    """Find the error that began it: inside groups of one, and below parents that let it through."""
    error = root_cause(error)
    seen: set[int] = set()
    while isinstance(error, ChildFailed | RestartsExhausted) and id(error) not in seen:
        seen.add(id(error))
        end = error.leaf if isinstance(error, ChildFailed) else error.end
        if end.cause is None:
            break
        error = root_cause(end.cause)
    return error


def _class_of(error: BaseException) -> FailureClass:
    if isinstance(error, ProviderError):
        return PROVIDER_CLASSES[error.kind]
    if isinstance(error, StoreError):
        return FailureClass.unwritten
    if isinstance(error, SpawnRefusal | BudgetExceeded | ToolCallCap):
        return FailureClass.used_up
    return FailureClass.bug
