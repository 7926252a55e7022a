"""The mailbox: bounded, in order, and never deaf to the system lane."""

import pytest
import trio

from actors.errors import MailboxClosed, MailboxFull
from actors.runtime.mailbox import NOTHING, Mailbox, Overflow


def drained(box: Mailbox[object]) -> list[object]:
    taken = []
    while (message := box.take()) is not NOTHING:
        taken.append(message)
    return taken


def test_the_system_lane_is_looked_at_before_every_message() -> None:
    box: Mailbox[object] = Mailbox(2)
    box.put_nowait(1)
    box.put_nowait(2)
    box.put_system("stop")
    assert box.take() == "stop"
    assert box.take() == 1
    box.put_system("halt")
    assert drained(box) == ["halt", 2]


@pytest.mark.parametrize(
    ("policy", "left", "dropped"),
    [(Overflow.drop_newest, [1, 2], [3]), (Overflow.drop_oldest, [2, 3], [1])],
)
def test_a_full_mailbox_drops_as_its_policy_says(policy: Overflow, left: list[int], dropped: list[int]) -> None:
    lost: list[object] = []
    box: Mailbox[object] = Mailbox(2, policy, lost.append)
    for message in (1, 2, 3):
        box.put_nowait(message)
    assert drained(box) == left and lost == dropped
    assert box.statistics().dropped == 1


@pytest.mark.parametrize("policy", [Overflow.wait, Overflow.fail])
async def test_a_full_mailbox_refuses_what_cannot_wait(policy: Overflow) -> None:
    box: Mailbox[object] = Mailbox(1, policy)
    box.put_nowait(1)
    with pytest.raises(MailboxFull):
        box.put_nowait(2)
    box.put_system("stop")
    assert drained(box) == ["stop", 1]


async def test_a_sender_waits_for_room_in_the_order_of_coming() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.put_nowait(0)
    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(box.put, number)
            await trio.testing.wait_all_tasks_blocked()
        got = [await box.get() for _ in range(4)]
    assert got == [0, 1, 2, 3]


async def test_a_cancelled_send_has_left_nothing() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.put_nowait(0)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(box.put, 1)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert [box.take(), box.take()] == [0, NOTHING]


async def test_a_cancelled_receive_has_taken_nothing() -> None:
    box: Mailbox[int] = Mailbox(4)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                await box.get()

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            box.put_nowait(7)
            scope.cancel()
    assert scope.cancelled_caught is False or box.take() == 7


async def test_a_second_reader_is_an_error() -> None:
    box: Mailbox[int] = Mailbox(4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.get)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="one reader"):
            await box.get()
        box.put_nowait(1)


async def test_closing_gives_back_what_was_not_read_and_wakes_senders() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.put_nowait(1)
    refused = []

    async def send() -> None:
        with pytest.raises(MailboxClosed):
            await box.put(2)
        refused.append(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert box.close() == [1]
    assert refused == [2]
    with pytest.raises(MailboxClosed):
        box.put_nowait(3)
    with pytest.raises(MailboxClosed):
        box.put_system(3)


@pytest.mark.parametrize("bound", [0, -1, True, 1.5])
def test_a_mailbox_is_always_bounded(bound: object) -> None:
    with pytest.raises(ValueError):
        Mailbox(bound)  # type: ignore[arg-type]
