"""What the end of a child asks for. Pure: facts in, a verdict out.

Agents are temporary: a turn is not idempotent, and running it again costs
money. Strategies and restart intensity have their place here.
"""

from enum import StrEnum

from actors.runtime.exits import Reason


class Restart(StrEnum):
    """How long a child is meant to live."""

    permanent = "permanent"
    transient = "transient"
    temporary = "temporary"


class Verdict(StrEnum):
    """What becomes of a child that has ended."""

    restart = "restart"
    # Its spec stays, and it can be started by hand.
    keep = "keep"
    forget = "forget"


ABNORMAL = frozenset(Reason) - {Reason.normal, Reason.shutdown}

VERDICTS: dict[Restart, dict[bool, Verdict]] = {
    # restart type: {ended clean: verdict}
    Restart.permanent: {True: Verdict.restart, False: Verdict.restart},
    Restart.transient: {True: Verdict.keep, False: Verdict.restart},
    Restart.temporary: {True: Verdict.forget, False: Verdict.forget},
}


def verdict(restart: Restart, reason: Reason) -> Verdict:
    """Decide what the end of one child asks for; only the class of the reason counts."""
    return VERDICTS[restart][reason not in ABNORMAL]
