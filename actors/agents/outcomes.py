"""How an agent ended, in the words that people and scripts read.

An outcome says what happened; a terminal (`terminals.py`) is the closed fact
that is stored. One table holds what follows from each word, so that a new word
cannot be half known. Callers must expect new words.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
import msgspec

from actors.agents.strict_json import (
    Field,
    Need,
    carriable,
    identifier,
    number,
    read_object,
    string,
    truth,
    whole_number,
    word,
)
from actors.containment.amounts import LARGEST, exact
from actors.halts import Halt, HaltKind

MESSAGE_CHARS: Final = 2_000


class FailureCode(StrEnum):
    """Why a run could not go on."""

    provider_recovery_exhausted = "provider_recovery_exhausted"
    output_recovery_exhausted = "output_recovery_exhausted"
    host_effect_failed = "host_effect_failed"
    resource_exhausted = "resource_exhausted"
    # Bugs of this package only; what a behaviour of the user's raises is host_effect_failed.
    invariant_violated = "invariant_violated"


class OutcomeKind(StrEnum):
    """The words. They are stored and printed; do not rename one."""

    success = "success"
    finished = "finished"
    step_cap_reached = "step_cap_reached"
    time_budget_exceeded = "time_budget_exceeded"
    cost_budget_exceeded = "cost_budget_exceeded"
    budget_ceiling_reached = "budget_ceiling_reached"
    stalled = "stalled"
    escalated = "escalated"
    failed = "failed"
    refused = "refused"
    denied = "denied"
    cancelled = "cancelled"
    interrupted = "interrupted"
    plan_rejected = "plan_rejected"
    awaiting_approval = "awaiting_approval"
    awaiting_answer = "awaiting_answer"
    awaiting_plan = "awaiting_plan"
    awaiting_recovery = "awaiting_recovery"


class After(StrEnum):
    """What may come after an outcome."""

    final = "final"
    # A resume with a larger cap goes on.
    larger_cap = "larger_cap"
    # A pause: it goes on by the id of what it waits for, or by a resume.
    paused = "paused"


@attrs.frozen
class Row:
    """What follows from one word. ``exit`` is the exit code of the command line."""

    after: After
    exit: int
    success: bool = False


TABLE: Final[Mapping[OutcomeKind, Row]] = {
    OutcomeKind.success: Row(After.final, 0, success=True),
    OutcomeKind.finished: Row(After.final, 0, success=True),
    OutcomeKind.step_cap_reached: Row(After.larger_cap, 3),
    OutcomeKind.time_budget_exceeded: Row(After.larger_cap, 3),
    OutcomeKind.cost_budget_exceeded: Row(After.larger_cap, 3),
    OutcomeKind.budget_ceiling_reached: Row(After.final, 3),
    OutcomeKind.stalled: Row(After.final, 6),
    OutcomeKind.escalated: Row(After.final, 1),
    OutcomeKind.failed: Row(After.final, 1),
    OutcomeKind.refused: Row(After.final, 4),
    OutcomeKind.denied: Row(After.final, 4),
    OutcomeKind.cancelled: Row(After.final, 1),
    OutcomeKind.interrupted: Row(After.paused, 130),
    OutcomeKind.plan_rejected: Row(After.final, 4),
    OutcomeKind.awaiting_approval: Row(After.paused, 5),
    OutcomeKind.awaiting_answer: Row(After.paused, 5),
    OutcomeKind.awaiting_plan: Row(After.paused, 5),
    OutcomeKind.awaiting_recovery: Row(After.paused, 5),
}


def _bounded(text: str) -> str:
    # The cause is anybody's text: an exception may name a file whose name no encoding can carry.
    return carriable(text[:MESSAGE_CHARS])


@attrs.frozen
class Outcome:
    """One end, or pause. ``steps`` are completed ones; spend is the agent's own.

    ``ceiling`` names which ceiling of the tree was reached; ``retryable`` whether an
    escalated run may be tried again; ``request`` is the id of what a pause waits
    for; ``message`` is the cause, bounded.
    """

    kind: OutcomeKind
    steps: int = attrs.field(default=0, validator=exact)
    spent_tokens: int = attrs.field(default=0, validator=exact)
    overrun_tokens: int = attrs.field(default=0, validator=exact)
    spent_microdollars: int = attrs.field(default=0, validator=exact)
    ceiling: HaltKind | None = None
    retryable: bool | None = None
    halt: Halt | None = None
    message: str = attrs.field(default="", converter=_bounded)
    failure_code: FailureCode | None = None
    request: str | None = None

    @property
    def success(self) -> bool:
        """Whether the work was done: its criterion passed, or it finished without one."""
        return TABLE[self.kind].success

    @property
    def is_pause(self) -> bool:
        """Whether it waits, and goes on under its id."""
        return TABLE[self.kind].after is After.paused

    @property
    def is_final(self) -> bool:
        """Whether nothing but a reopening goes on from it."""
        return TABLE[self.kind].after is After.final

    def to_json(self) -> dict[str, Any]:
        """Give the plain form; what is absent is left out."""
        plain = {name: _plain(getattr(self, name)) for name in _NAMES if getattr(self, name) is not None}
        if not self.message:
            del plain["message"]
        return plain

    def text(self) -> str:
        """Give the plain form as JSON text, as it is stored."""
        return msgspec.json.encode(self.to_json()).decode()

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Outcome":
        """Read the plain form strictly: every word that is written has a way back.

        Raises:
            CodecRefused: an unknown key or word, or a value that is not exactly right; names the place.
        """
        return cls(**read_object(plain, "outcome", _FIELDS))


_NAMES: Final = tuple(field.name for field in attrs.fields(Outcome))


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Halt):
        facts = attrs.asdict(value, recurse=False).items()
        return {name: _plain(fact) for name, fact in facts if fact is not None}
    return carriable(value) if isinstance(value, str) else value


def _read_halt(value: Any, at: str) -> Halt:
    return Halt(**read_object(value, at, _HALT_FIELDS))


_OPTIONAL: Final = Need.optional
_AMOUNT: Final = whole_number(LARGEST)
_HALT_FIELDS: Final = (
    Field("kind", word(HaltKind)),
    Field("by", string, _OPTIONAL),
    Field("at", number, _OPTIONAL),
    Field("path", string, _OPTIONAL),
    Field("reason", string, _OPTIONAL),
    Field("limit", number, _OPTIONAL),
    Field("used", number, _OPTIONAL),
    Field("requested", number, _OPTIONAL),
)
_FIELDS: Final = (
    Field("kind", word(OutcomeKind)),
    Field("steps", _AMOUNT, _OPTIONAL),
    Field("spent_tokens", _AMOUNT, _OPTIONAL),
    Field("overrun_tokens", _AMOUNT, _OPTIONAL),
    Field("spent_microdollars", _AMOUNT, _OPTIONAL),
    Field("ceiling", word(HaltKind), _OPTIONAL),
    Field("retryable", truth, _OPTIONAL),
    Field("halt", _read_halt, _OPTIONAL),
    Field("message", string, _OPTIONAL),
    Field("failure_code", word(FailureCode), _OPTIONAL),
    Field("request", identifier, _OPTIONAL),
)


def exit_code(outcome: Outcome, *, signal: int | None = None) -> int:
    """Give the exit code of the command line. ``signal`` is the one that interrupted the run, if one did."""
    if outcome.kind is OutcomeKind.interrupted and signal is not None:
        return 128 + signal
    return TABLE[outcome.kind].exit
