"""The terminal and the row of an agent that has ended, whether it ran here or only its rows are known. Pure."""

from typing import Final, Protocol

from actors.agents.outcomes import Outcome, OutcomeKind
from actors.agents.rows import RunFinished
from actors.agents.terminal_codec import encode_terminal
from actors.agents.terminals import Terminal, UsageReport, terminal_for
from actors.containment.usage import Usage

# What the row of a run reads that has its end. One that was paused has none, and can be gone on with.
ENDED: Final = ("completed", "failed")
# Outcomes after which a run's row reads failed; a pause leaves it resumable.
_FAILED = frozenset({OutcomeKind.failed, OutcomeKind.escalated})


class Account(Protocol):
    """What an agent has drawn by itself, and what it said last."""

    @property
    def own_tokens(self) -> int:
        """Give the tokens that were granted."""
        ...

    @property
    def own_microdollars(self) -> int:
        """Give the money that was granted."""
        ...

    @property
    def own_overrun(self) -> int:
        """Give the tokens beyond that."""
        ...

    @property
    def estimated(self) -> bool:
        """Whether a part of it is a worst case."""
        ...

    @property
    def said(self) -> str | None:
        """Give its last text."""
        ...


def end_terminal(
    outcome: Outcome, usage: Usage, turns: int, said: str | None, *, at_root: bool, durable: bool
) -> Terminal | None:
    """Give the terminal of an end, None for a pause; ``usage`` and ``turns`` are those of all below it too."""
    report = UsageReport(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        turns=turns,
        cached_input_tokens=usage.cache_read_tokens or None,
    )
    return terminal_for(outcome, at_root=at_root, usage=report, final_message=said, durable=durable)


def finished_row(
    run_id: str,
    account: Account,
    outcome: Outcome,
    terminal: Terminal | None,
    *,
    steps: int,
    usage: Usage,
    seconds: float,
    error: str | None = None,
) -> RunFinished:
    """Give the row of an end; without a terminal it reads as a pause."""
    ended = "failed" if outcome.kind in _FAILED else "completed"
    return RunFinished(
        run_id,
        "paused" if terminal is None else ended,
        outcome.kind.value,
        outcome.text(),
        None if terminal is None else encode_terminal(terminal),
        outcome.success,
        steps,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cache_read_tokens,
        account.own_tokens,
        account.own_microdollars,
        account.own_overrun,
        account.estimated,
        round(seconds * 1000),
        account.said,
        error,
    )
