"""A tree at one moment, as records, and as the text that goes into the store. Pure.

Times are on trio's clock of the process that took the snapshot, where they mean
nothing to anybody else; only their distance from ``now`` does. So whatever
stays as it is keeps its figures, and two snapshots of an unchanged tree differ
in ``now`` and ``seconds_left`` alone.
"""

from typing import Final

import attrs
import msgspec

from actors.agents.live_states import LiveState
from actors.containment.amounts import UNLIMITED
from actors.containment.ledger_state import LedgerSnapshot
from actors.containment.slots import Tally

# Agents that are shown to other processes one by one; the rest is counted.
MOST_AGENTS: Final = 2_000
# And of all their paths together: in a deep chain they are what grows.
MOST_PATH_CHARS: Final = 500_000
GOAL_CHARS: Final = 200


@attrs.frozen
class MailboxView:
    """The user lane of a mailbox: messages in it now, and the most there ever were."""

    length: int
    peak: int


@attrs.frozen
class AgentView:
    """One live node of a tree.

    ``state`` is a word of `LiveState`, ``since`` when it came into it (None: unknown), ``deadline``
    when its own time budget, or that of an agent above it, is over (None when no agent's is).
    What was spent is its own, without its children's. ``goal`` is cut. ``restart_at`` is set
    for one that has ended and is started again then.
    """

    path: str
    depth: int
    state: str
    steps: int
    spent_tokens: int
    goal: str
    spent_microdollars: int = 0
    since: float | None = None
    deadline: float | None = None
    mailbox: MailboxView | None = None
    restart_at: float | None = None


@attrs.frozen
class TreeSnapshot:
    """A tree at one moment.

    ``tiers`` maps a depth to its tally; ``seconds_left`` is None without a ceiling.
    ``more`` counts the agents that are not in ``agents``, by a word of `LiveState`; it is
    empty unless the snapshot was bounded.
    """

    run_id: str
    agents: tuple[AgentView, ...]
    tiers: dict[int, Tally]
    total: Tally
    slots_out: int
    max_concurrent: int
    peak_working: int
    ledger: LedgerSnapshot
    seconds_left: float | None
    now: float = 0.0
    more: dict[str, int] = attrs.field(factory=dict)
    limit_tokens: int = UNLIMITED
    limit_microdollars: int | None = None

    def timeless(self) -> "TreeSnapshot":
        """Give it without the time it was taken at, to be compared."""
        return attrs.evolve(self, now=0.0, seconds_left=None)


def left_out(total: Tally, shown: Tally) -> dict[str, int]:
    """Count by state the agents of a tree that are not shown, from the tallies of all and of those that are."""
    rest = {
        LiveState.working: total.working - shown.working,
        LiveState.waiting: total.waiting - shown.waiting,
        LiveState.for_slot: total.queued - shown.queued,
    }
    return {state.value: count for state, count in rest.items() if count > 0}


def encode_snapshot(snapshot: TreeSnapshot) -> str:
    """Write a snapshot as JSON."""
    return msgspec.json.encode(snapshot).decode()


def decode_snapshot(text: str) -> TreeSnapshot:
    """Read what `encode_snapshot` wrote.

    Raises:
        ValueError: it is none; another version may have written it.
    """
    try:
        return msgspec.json.decode(text, type=TreeSnapshot)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not a snapshot of this version: {error}") from error
