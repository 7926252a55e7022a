"""A transcript that is folded again from what is stored is the one that was folded live."""

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.contract import StallPolicy
from actors.agents.ports import AssistantTurn, Completion, Observation, ObservationKind, ResultsTurn, ToolCall, UserTurn
from actors.agents.prompt import CUT, QUIET
from actors.agents.transcript import Transcript

LOOK = ToolCall("look")
REPORT = Observation(ObservationKind.child, "root/1.1", "a report", True)


def seen(text: str, *, changed: bool = False) -> Observation:
    return Observation(ObservationKind.tool, "look", text, changed)


def answer(calls: int, text: str | None = "text", finish: str = "stop") -> Completion:
    return Completion(text, (LOOK,) * calls, None, None, finish)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from(["stop", "length"]), st.sampled_from([None, "", "t"])),
    max_size=8,
)


@given(STEPS, st.integers(0, 8))
def test_going_on_from_any_step_gives_the_same_turns_the_same_window_and_the_same_patience(
    steps: list[tuple[int, bool, str, str | None]], cut: int
) -> None:
    live, again = Transcript(UserTurn("task"), StallPolicy()), Transcript(UserTurn("task"), StallPolicy())
    for number, (calls, late, finish, text) in enumerate(steps):
        reports = [REPORT] if late else []
        results = [seen(f"{number % 2}") for _ in range(calls)] or [seen("quiet")]
        told = answer(calls, text, finish)
        for transcript in (live, again):
            transcript.fold_late(reports)
        assert live.fold(told, reports, results) == again.fold(told, reports, results)
        assert live.unfinished(told) == again.unfinished(told)
        if number == cut:
            # Another process: what it knows are the steps, so it folds them again, in their order.
            again = Transcript(UserTurn("task"), StallPolicy())
            for before, (calls, late, finish, text) in enumerate(steps[: number + 1]):
                reports = [REPORT] if late else []
                again.fold_late(reports)
                told = answer(calls, text, finish)
                again.fold(told, reports, [seen(f"{before % 2}") for _ in range(calls)] or [seen("quiet")])
                again.unfinished(told)
    assert again.read.turns() == live.read.turns() and again.window == live.window


def test_a_report_that_comes_late_is_added_to_what_the_model_reads_last() -> None:
    transcript = Transcript(UserTurn("task"), None)
    transcript.fold_late([REPORT])
    assert transcript.read.turns() == (UserTurn("task\n\na report"),)
    transcript.fold(answer(2), [], [seen("one"), seen("two")])
    transcript.fold_late([REPORT, REPORT])
    assert transcript.read.turns()[-1] == ResultsTurn(("one", "two\n\na report\n\na report"))


def test_who_called_nothing_is_told_what_is_missing() -> None:
    transcript = Transcript(UserTurn("task"), None)
    transcript.fold(answer(0), [], [seen("quiet")])
    transcript.fold(answer(0, finish="length"), [], [seen("cut")])
    assert [turn for turn in transcript.read.turns() if isinstance(turn, UserTurn)][1:] == [UserTurn(QUIET), UserTurn(CUT)]
    assert sum(isinstance(turn, AssistantTurn) for turn in transcript.read.turns()) == 2


def test_a_cut_answer_is_asked_to_go_on_once_and_again_after_one_that_was_whole() -> None:
    transcript = Transcript(UserTurn("task"), None)
    cut, whole = answer(0, finish="length"), answer(1)
    assert [transcript.unfinished(each) for each in (cut, cut, whole, cut)] == [True, False, False, True]
