"""Going in circles is seen, and exploring never is."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.stall import Signature, StallState, StallVerdict, look


def verdicts(steps: Sequence[Signature], window: int = 3, max_replans: int = 1) -> list[StallVerdict]:
    state = StallState()
    seen = []
    for step in steps:
        seen.append(look(state, step, window=window, max_replans=max_replans))
        state = seen[-1].state
    return seen


def words(seen: Sequence[StallVerdict]) -> list[str]:
    return ["stalled" if each.stalled else "note" if each.note else "-" for each in seen]


SAME = Signature("read:a", False)
CHANGES = Signature("write:a", True)


def test_a_repeated_step_gets_one_note_and_then_is_stalled() -> None:
    assert words(verdicts([SAME] * 6)) == ["-", "-", "note", "-", "-", "stalled"]


def test_the_same_call_is_a_circle_even_if_files_change() -> None:
    assert words(verdicts([CHANGES] * 6)) == ["-", "-", "note", "-", "-", "stalled"]


def test_a_pair_without_progress_is_a_circle_once_one_of_it_repeats() -> None:
    steps = [Signature("a", False), Signature("b", False), Signature("a", False)]
    assert words(verdicts(steps)) == ["-", "-", "note"]


def test_progress_between_repeats_is_no_circle() -> None:
    steps = [Signature("test", False), Signature("edit", True)] * 10
    assert set(words(verdicts(steps))) == {"-"}


def test_no_replans_allowed_is_stalled_at_once() -> None:
    assert words(verdicts([SAME] * 3, max_replans=0)) == ["-", "-", "stalled"]


def test_the_note_lists_what_was_tried_and_is_bounded() -> None:
    steps = [Signature("read:" + "x" * 10_000, False)] * 3
    note = verdicts(steps)[-1].note
    assert note is not None and "- read:xxx" in note and len(note) < 400


@given(st.lists(st.booleans(), max_size=30), st.integers(2, 6), st.integers(0, 2))
def test_varied_exploration_is_never_flagged(changes: list[bool], window: int, replans: int) -> None:
    steps = [Signature(f"call {place}", changed) for place, changed in enumerate(changes)]
    assert set(words(verdicts(steps, window, replans))) <= {"-"}


def test_a_window_of_one_does_not_flag_exploration() -> None:
    assert set(words(verdicts([Signature(f"call {n}", True) for n in range(4)], window=1))) == {"-"}


@given(st.lists(st.builds(Signature, st.sampled_from(["", "a", "b"]), st.booleans()), max_size=30), st.integers(0, 3))
def test_a_window_of_zero_switches_it_off(steps: list[Signature], replans: int) -> None:
    assert set(words(verdicts(steps, 0, replans))) <= {"-"}


@given(st.lists(st.builds(Signature, st.sampled_from(["", "a", "b"]), st.booleans()), max_size=40), st.integers(2, 4))
def test_the_memory_never_grows_past_the_window(steps: list[Signature], window: int) -> None:
    for each in verdicts(steps, window, 3):
        assert len(each.state.recent) <= window
        assert each.state.replans <= 3


@given(st.integers(1, 12))
def test_steps_without_a_call_are_no_repeated_call(count: int) -> None:
    assert set(words(verdicts([Signature("", False)] * count))) == {"-"}
