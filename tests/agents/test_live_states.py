"""The word for what a node does: every combination has one, and every word is reached."""

import itertools

import pytest

from actors.agents.live_states import SEATS, WAITS, LiveState, WaitFor, actor_state, agent_state, state_words
from actors.containment.slots import Seat

WORDS = [
    "init",
    "working",
    "waiting",
    "waiting for child",
    "waiting for slot",
    "waiting for mailbox",
    "waiting for human",
    "waiting for money",
    "waiting for rate",
    "restart",
    "stopping",
]


def test_the_words_are_those_that_scripts_read() -> None:
    assert [state.value for state in LiveState] == WORDS


def test_every_seat_and_every_wait_has_a_word() -> None:
    assert set(SEATS) == set(Seat) and set(WAITS) == set(WaitFor)
    flags = [True, False]
    reached = {
        agent_state(seat, wait, begun=begun, over=over, stopping=stopping)
        for seat, wait, begun, over, stopping in itertools.product(Seat, WaitFor, flags, flags, flags)
    }
    assert reached == set(LiveState)


@pytest.mark.parametrize(
    ("seat", "wait", "facts", "word"),
    [
        (Seat.fresh, WaitFor.other, {"begun": False}, "init"),
        (Seat.working, WaitFor.other, {"begun": False}, "init"),
        (Seat.working, WaitFor.child, {}, "working"),
        (Seat.queued, WaitFor.other, {"begun": False}, "waiting for slot"),
        (Seat.returning, WaitFor.child, {}, "waiting for slot"),
        (Seat.waiting, WaitFor.human, {}, "waiting for human"),
        (Seat.waiting, WaitFor.money, {}, "waiting for money"),
        (Seat.waiting, WaitFor.other, {}, "waiting"),
        (Seat.waiting, WaitFor.other, {"over": True}, "waiting for child"),
        (Seat.done, WaitFor.other, {"over": True}, "waiting for child"),
        (Seat.waiting, WaitFor.child, {"stopping": True}, "stopping"),
        (Seat.done, WaitFor.child, {"stopping": True, "over": True}, "stopping"),
    ],
)
def test_what_an_agent_does_follows_from_its_facts(seat: Seat, wait: WaitFor, facts: dict[str, bool], word: str) -> None:
    assert agent_state(seat, wait, **{"begun": True, "over": False, "stopping": False, **facts}) == word


def test_an_actor_without_work_waits_for_its_mailbox() -> None:
    assert actor_state(begun=False, idle=False, stopping=False) == "init"
    assert actor_state(begun=True, idle=True, stopping=False) == "waiting for mailbox"
    assert actor_state(begun=True, idle=False, stopping=False) == "working"
    assert actor_state(begun=True, idle=True, stopping=True) == "stopping"


def test_a_restart_says_in_how_many_seconds() -> None:
    assert state_words("restart", 3.24) == "restart in 3.2 s"
    assert state_words("restart", -1.0) == "restart in 0.0 s"
    assert state_words("restart") == "restart" and state_words("working", 3.0) == "working"
