"""What a node of a live tree does, in one word. Pure.

The words are printed, stored and read by scripts; do not rename one. A wait says
what it is for, because a tree that stands still is understood by what its
agents wait for.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from actors.containment.slots import Seat


class WaitFor(StrEnum):
    """What an agent waits for while it holds no slot."""

    other = "other"
    child = "child"
    slot = "slot"
    mailbox = "mailbox"
    human = "human"
    # Others hold what is left of the tree's budget.
    money = "money"
    # A provider asked to be left alone for a while, or failed and is asked again later.
    rate = "rate"
    # It begins again after a failure; the wait says when.
    restart = "restart"


class LiveState(StrEnum):
    """What a node does now."""

    # Made; its own code has not begun.
    init = "init"
    working = "working"
    waiting = "waiting"
    for_child = "waiting for child"
    for_slot = "waiting for slot"
    for_mailbox = "waiting for mailbox"
    for_human = "waiting for human"
    for_money = "waiting for money"
    for_rate = "waiting for rate"
    # It has failed or ended, and begins again in a moment.
    restart = "restart"
    stopping = "stopping"


WAITS: Final[Mapping[WaitFor, LiveState]] = {
    WaitFor.other: LiveState.waiting,
    WaitFor.child: LiveState.for_child,
    WaitFor.slot: LiveState.for_slot,
    WaitFor.mailbox: LiveState.for_mailbox,
    WaitFor.human: LiveState.for_human,
    WaitFor.money: LiveState.for_money,
    WaitFor.rate: LiveState.for_rate,
    WaitFor.restart: LiveState.restart,
}

SEATS: Final[Mapping[Seat, LiveState]] = {
    Seat.fresh: LiveState.init,
    Seat.queued: LiveState.for_slot,
    Seat.working: LiveState.working,
    # What for is said by the wait itself.
    Seat.waiting: LiveState.waiting,
    Seat.returning: LiveState.for_slot,
    # Out of the table of slots and still alive: its own work is over, and its children's is not.
    Seat.done: LiveState.for_child,
}


def agent_state(seat: Seat, waits_for: WaitFor, *, begun: bool, over: bool, stopping: bool) -> LiveState:
    """Say what an agent does.

    ``begun`` tells whether its task runs, ``over`` whether its own work has ended, which it
    outlives only while its children run.
    """
    if stopping:
        return LiveState.stopping
    if over:
        return LiveState.for_child
    if seat is Seat.waiting:
        return WAITS[waits_for]
    if seat is Seat.working and not begun:
        # It was given a slot in the step that freed one, before its task ran.
        return LiveState.init
    return SEATS[seat]


def actor_state(*, begun: bool, idle: bool, stopping: bool) -> LiveState:
    """Say what an actor that needs no slot does; ``idle`` tells whether it is parked at an empty mailbox."""
    if stopping:
        return LiveState.stopping
    if not begun:
        return LiveState.init
    return LiveState.for_mailbox if idle else LiveState.working


def state_words(state: str, until_restart: float | None = None) -> str:
    """Say a state to people; ``until_restart`` is in seconds, for a node that is started again."""
    if state == LiveState.restart and until_restart is not None:
        return f"restart in {max(until_restart, 0.0):.1f} s"
    return state
