"""What one agent spent, by the rows of its reservations and draws, and whether each was closed as it must be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import attrs

from actors.store.audit_findings import Check, Findings
from actors.store.audit_steps import as_whole
from actors.store.tree_rows import TreeRows

CLOSED: Final = frozenset({"settled", "estimated"})
_HELD: Final = (
    "step",
    "attempt",
    "reservation",
    "tokens",
    "state",
    "used_tokens",
    "used_microdollars",
    "overrun_tokens",
    "overrun_microdollars",
    "settled_at",
)
_DRAWN: Final = ("tokens", "microdollars", "overrun_tokens", "overrun_microdollars")


_TOLD: Final = ("prompt_tokens", "completion_tokens", "total_tokens")


def _total(told: Sequence[object]) -> int | None:
    """Give what an endpoint reported for an attempt, as it is charged; None when it reported nothing.

    Raises:
        Unreadable: a figure is none.
    """
    if told[0] is None:
        return None
    prompt, completion, total = (as_whole(figure or 0) for figure in told)
    return max(total, prompt + completion)


@attrs.frozen
class Spend:
    """What was spent, and what was billed and did not fit."""

    tokens: int = 0
    microdollars: int = 0
    overrun_tokens: int = 0
    overrun_microdollars: int = 0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.tokens + other.tokens,
            self.microdollars + other.microdollars,
            self.overrun_tokens + other.overrun_tokens,
            self.overrun_microdollars + other.overrun_microdollars,
        )

    @property
    def without_money_over(self) -> Spend:
        """Leave out the money that did not fit: an agent's row has no column for it."""
        return attrs.evolve(self, overrun_microdollars=0)

    def __str__(self) -> str:
        """Say the figures; what is 0 and rare is left out."""
        said = f"{self.tokens} tokens and {self.microdollars} microdollars"
        if self.overrun_tokens or self.overrun_microdollars:
            said += f" (overrun {self.overrun_tokens} and {self.overrun_microdollars})"
        return said


@attrs.frozen
class SpendOfOne:
    """What the rows of one agent come to."""

    spend: Spend
    reservations: int
    draws: int


def judge_spend(findings: Findings, rows: TreeRows, run_id: str, *, tree_ended: bool) -> SpendOfOne:
    """Add up what one agent spent, and look at each of its reservations and attempts.

    Raises:
        Unreadable: a figure is none.
    """
    held: Counter[tuple[object, object]] = Counter()
    # What the attempts must have used by their reservations; None of one whose usage nobody reported. A review of a
    # step counts its attempts anew, so several may have one number.
    due: defaultdict[tuple[object, object], list[int | None]] = defaultdict(list)
    sums, reservations, draws = [0, 0, 0, 0], 0, 0
    for step, attempt, number, tokens, state, *used, settled_at in rows.of_agent("reservations", _HELD, run_id):
        reservations += 1
        held[step, attempt] += 1
        if state in CLOSED and settled_at is not None and None not in used:
            for place, figure in enumerate(used):
                sums[place] += as_whole(figure)
            due[step, attempt].append(None if state == "estimated" else used[0] + used[2])
            continue
        which = f"reservation {number} (attempt {attempt} of step {step}, {tokens} tokens)"
        if state != "open" or settled_at is not None or used != [None] * 4:
            text = f"{which} is {state}, settled at {settled_at} with {used[0]} tokens"
            findings.wrong(Check.reservations, run_id, text)
        elif tree_ended:
            findings.wrong(Check.reservations, run_id, f"{which} is open, and the tree has ended")
    findings.looked(Check.reservations, reservations)
    attempts = 0
    for step, attempt, *told in rows.of_agent("provider_calls", ("step", "attempt", *_TOLD), run_id):
        attempts += 1
        held[step, attempt] -= 1
        charges, total = due[step, attempt], _total(told)
        if total in charges:
            charges.remove(total)
        elif None in charges:
            charges.remove(None)
        elif charges:
            charged = charges.pop(0)
            if total is not None:
                which = f"attempt {attempt} of step {step}"
                text = f"{which} used {total} tokens, and its reservation was charged {charged}"
                findings.wrong(Check.attempts, run_id, text)
        if held[step, attempt] < 0:
            findings.wrong(Check.attempts, run_id, f"attempt {attempt} of step {step} has no reservation of its own")
    for (step, attempt), left in held.items():
        # One that was taken back before anything was sent used nothing, and made no attempt.
        if left > 0 and any(due[step, attempt]):
            findings.wrong(Check.attempts, run_id, f"attempt {attempt} of step {step} was paid for, and has no row")
    findings.looked(Check.attempts, attempts)
    for figures in rows.of_agent("draws", _DRAWN, run_id):
        draws += 1
        for place, figure in enumerate(figures):
            sums[place] += as_whole(figure)
    return SpendOfOne(Spend(*sums), reservations, draws)
