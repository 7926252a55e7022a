"""The sink of dead letters: it counts all, keeps few, and never fails whoever puts."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runtime.dead_letters import Cause, DeadLetter, DeadLetters


def letter(number: object = 0, cause: Cause = Cause.noproc, sender: str | None = None) -> DeadLetter:
    return DeadLetter("root/1", sender, number, cause, 2.5)


def test_a_letter_tells_target_sender_cause_time_and_cost() -> None:
    full = DeadLetter("root/1", "root/2", "a secret", Cause.unread, 2.5, cost=300)
    assert (full.target, full.sender, full.message, full.cause, full.at, full.cost) == (
        "root/1", "root/2", "a secret", "unread", 2.5, 300,
    )  # fmt: skip
    assert str(full) == "str from root/2 to root/1: unread, cost 300"
    assert str(letter()) == "int to root/1: noproc"


def test_the_ring_keeps_the_newest_and_the_counters_keep_all() -> None:
    sink = DeadLetters(ring=2)
    for number, cause in enumerate((Cause.noproc, Cause.unread, Cause.noproc, Cause.late_tick)):
        sink.put(letter(number, cause))
    before = sink.statistics()
    assert [one.message for one in sink.take_all()] == [2, 3]
    assert (before.total, before.held, before.overwritten) == (4, 2, 2)
    assert before.by_cause == {"noproc": 2, "unread": 1, "late_tick": 1}
    after = sink.statistics()
    assert (after.total, after.held, after.overwritten) == (4, 0, 2)
    assert sink.take_all() == () and len(sink) == 0


def test_statistics_are_a_picture_that_does_not_change() -> None:
    sink = DeadLetters()
    sink.put(letter())
    taken = sink.statistics()
    sink.put(letter())
    assert taken.total == 1 and taken.by_cause == {"noproc": 1}
    with pytest.raises(TypeError):
        taken.by_cause["noproc"] = 9  # type: ignore[index]


def test_the_hook_hears_of_each_letter_in_order() -> None:
    heard: list[object] = []
    sink = DeadLetters(on_letter=lambda one: heard.append(one.message))
    for number in range(3):
        sink.put(letter(number))
    assert heard == [0, 1, 2]


def test_a_hook_that_fails_is_switched_off_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    def hook(one: DeadLetter) -> None:
        heard.append(one.message)
        raise KeyError("broken")

    sink = DeadLetters(on_letter=hook)
    with caplog.at_level(logging.ERROR, "actors.dead_letters"):
        for number in range(3):
            sink.put(letter(number))
    assert heard == [0] and sink.on_letter is None
    assert [one.message for one in sink.take_all()] == [0, 1, 2]
    assert sink.statistics().hook_failures == 1
    assert [record.message for record in caplog.records] == ["the dead letter hook failed and is switched off"]
    sink.on_letter = lambda one: heard.append(one.message)
    sink.put(letter(3))
    assert heard == [0, 3]


def test_not_even_a_log_that_fails_reaches_whoever_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise OSError("disk full")

    def hook(one: DeadLetter) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(logging.getLogger("actors.dead_letters"), "error", broken)
    sink = DeadLetters(on_letter=hook)
    sink.put(letter())
    assert sink.statistics().hook_failures == 1 and sink.statistics().total == 1


def test_a_hook_that_makes_dead_letters_itself_is_not_called_for_them() -> None:
    heard: list[object] = []

    def hook(one: DeadLetter) -> None:
        heard.append(one.message)
        sink.put(letter(f"made of {one.message}"))

    sink = DeadLetters(on_letter=hook)
    sink.put(letter(1))
    sink.put(letter(2))
    assert heard == [1, 2]
    assert [one.message for one in sink.take_all()] == [1, "made of 1", 2, "made of 2"]
    assert sink.statistics().hook_failures == 0


def test_a_hook_that_puts_another_in_its_place_and_fails_leaves_the_other() -> None:
    heard: list[object] = []

    def hook(one: DeadLetter) -> None:
        sink.on_letter = lambda one: heard.append(one.message)
        raise KeyError("broken")

    sink = DeadLetters(on_letter=hook)
    sink.put(letter(1))
    sink.put(letter(2))
    assert heard == [2] and sink.statistics().hook_failures == 1


def test_an_order_to_end_the_program_goes_through_and_the_letter_is_kept() -> None:
    def hook(one: DeadLetter) -> None:
        raise KeyboardInterrupt

    sink = DeadLetters(on_letter=hook)
    with pytest.raises(KeyboardInterrupt):
        sink.put(letter(1))
    assert [one.message for one in sink.take_all()] == [1]
    assert sink.statistics().hook_failures == 0 and sink.on_letter is hook


@pytest.mark.parametrize("ring", [0, -1, True, 2.0])
def test_the_ring_is_always_bounded(ring: object) -> None:
    with pytest.raises(ValueError, match="ring of at least 1"):
        DeadLetters(ring)  # type: ignore[arg-type]


@given(st.integers(1, 4), st.lists(st.one_of(st.sampled_from(Cause), st.none()), max_size=20))
def test_every_letter_is_held_taken_or_overwritten(ring: int, steps: list[Cause | None]) -> None:
    sink = DeadLetters(ring)
    kept: list[DeadLetter] = []
    taken = overwritten = 0
    for number, cause in enumerate(steps):
        if cause is None:
            got = sink.take_all()
            assert list(got) == kept
            taken += len(got)
            kept = []
        else:
            kept.append(letter(number, cause))
            sink.put(kept[-1])
            overwritten += len(kept) > ring
            kept = kept[-ring:]
        now = sink.statistics()
        assert now.total == sum(now.by_cause.values()) == now.held + taken + now.overwritten
        assert (now.held, now.overwritten) == (len(kept), overwritten)
    assert sink.statistics().by_cause == {cause: steps.count(cause) for cause in steps if cause is not None}
