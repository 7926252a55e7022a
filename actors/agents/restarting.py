"""Whether an agent that has ended may begin again, and after which wait. Pure.

Nobody begins again who has not asked for it: a turn is not idempotent, and
running it again costs money. Whoever asks is given what the ledger, the class
of its error and its own budget leave, in this order.
"""

from enum import StrEnum
from typing import Final

import attrs

from actors.agents.failure_classes import Answer, Failure, FailureClass
from actors.runtime.exits import Reason
from actors.runtime.restart import Restart, Verdict, Window, delay_before, next_in_row, verdict
from actors.runtime.specs import Backoff, Budget


@attrs.frozen
class RestartPolicy:
    """When an agent begins again, asked for at its spawn: `Agent.spawn` with ``restart``.

    A transient agent does so after an error, a permanent one after every end of its
    own. ``budget`` bounds how often. Waits before it grow by ``backoff``; None
    begins again at once. A wait for a rate limit is as long as the provider asked
    for, and counts nowhere.
    """

    restart: Restart = attrs.field(default=Restart.transient, converter=Restart)
    budget: Budget = attrs.field(default=Budget(3, 60.0), validator=attrs.validators.instance_of(Budget))
    backoff: Backoff | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Backoff))
    )


@attrs.frozen
class Former:
    """What an incarnation is told of the one before it.

    ``cause`` is the error in one line, empty after a plain return; ``failure`` its class.
    ``incarnation`` is the number of the one that ended, from 1: so often has the agent
    begun. The spend is that of the one incarnation. ``ended_at`` is on trio's clock.
    """

    reason: Reason
    cause: str
    failure: FailureClass | None
    incarnation: int
    spent_tokens: int
    overrun_tokens: int
    spent_microdollars: int
    ended_at: float


class Why(StrEnum):
    """Why an agent does not begin again; stored values."""

    not_asked = "not_asked"
    # The tree is halted, or nothing is left to spend: for it, or for anybody.
    no_money = "no_money"
    halt_tree = "halt_tree"
    hopeless = "hopeless"
    # The same input failed the same way twice.
    poison = "poison"
    exhausted = "exhausted"


# How the waits for a rate limit grow when the provider names none.
RATE_WAITS: Final = Backoff(1.0, 60.0)
# So many errors are remembered; more of them different from each other are no poison.
MOST_SIGNATURES: Final = 32


@attrs.frozen
class History:
    """What is remembered over the incarnations of one agent."""

    window: Window = Window()
    in_row: int = 0
    rate_waits: int = 0
    seen: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class BeginAgain:
    """Begin again after ``wait`` seconds."""

    wait: float
    history: History


@attrs.frozen
class SetAside:
    """It has ended for good."""

    why: Why


def plan(
    policy: RestartPolicy,
    history: History,
    failure: Failure | None,
    *,
    may_spend: bool,
    ran_for: float,
    now: float,
    chance: float,
) -> BeginAgain | SetAside:
    """Decide what follows from the end of one incarnation; ``failure`` None is a plain return.

    ``may_spend``: the tree is not halted, and there is something left to spend.
    """
    reason = Reason.normal if failure is None else Reason.error
    if verdict(policy.restart, reason) is not Verdict.restart:
        return SetAside(Why.not_asked)
    if failure is not None and failure.answer is Answer.halt_tree:
        return SetAside(Why.halt_tree)
    if not may_spend:
        return SetAside(Why.no_money)
    if failure is not None:
        if failure.answer is Answer.never_again:
            return SetAside(Why.hopeless)
        if failure.answer is Answer.restart_unless_same and failure.signature in history.seen:
            return SetAside(Why.poison)
        if failure.answer is Answer.wait_as_told:
            return _wait_as_told(history, failure, chance)
    window, allowed = history.window.spend(now, policy.budget.intensity, policy.budget.period)
    if not allowed:
        return SetAside(Why.exhausted)
    in_row = next_in_row(history.in_row, ran_for, policy.backoff)
    seen = history.seen if failure is None else (failure.signature, *history.seen)[:MOST_SIGNATURES]
    return BeginAgain(delay_before(in_row, policy.backoff, chance), History(window, in_row, 0, seen))


def _wait_as_told(history: History, failure: Failure, chance: float) -> BeginAgain:
    waits = history.rate_waits + 1
    told = failure.wait
    wait = delay_before(waits, RATE_WAITS, chance) if told is None else max(told, 0.0)
    return BeginAgain(wait, attrs.evolve(history, rate_waits=waits))
