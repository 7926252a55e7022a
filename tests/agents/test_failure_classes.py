"""What an error means for whoever ended with it: one row of the table for each class."""

import pytest

from actors.agents.failure_classes import ANSWERS, PROVIDER_CLASSES, Answer, FailureClass, judge, leaf_of
from actors.errors import (
    AgentCap,
    BudgetExceeded,
    ChildFailed,
    DepthCap,
    MailboxFull,
    ProviderError,
    ProviderErrorKind,
    RestartsExhausted,
    StoreError,
    StoreErrorKind,
    ToolCallCap,
)
from actors.runtime.exits import Exit, Reason

K = ProviderErrorKind


def failed(cause: BaseException, path: str = "root/1") -> ChildFailed:
    return ChildFailed(Exit(path, Reason.error, 0.0, cause=cause, raised=cause))


def test_every_class_has_an_answer_and_every_kind_of_provider_error_a_class() -> None:
    assert set(ANSWERS) == set(FailureClass) and set(PROVIDER_CLASSES) == set(ProviderErrorKind)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ProviderError(K.rate_limited, "slow down"), Answer.wait_as_told),
        (ProviderError(K.auth, "no such key"), Answer.halt_tree),
        (ProviderError(K.context_overflow, "too long"), Answer.never_again),
        (ProviderError(K.request, "bad request"), Answer.never_again),
        (ProviderError(K.unknown_price, "m"), Answer.never_again),
        (ProviderError(K.server, "500"), Answer.restart),
        (ProviderError(K.transport, "reset"), Answer.restart),
        (ProviderError(K.timeout, "late"), Answer.restart),
        (ProviderError(K.malformed, "{"), Answer.restart),
        (StoreError(StoreErrorKind.full, "runs.db", "disk full"), Answer.never_again),
        (AgentCap(3), Answer.never_again),
        (DepthCap(1, 2), Answer.never_again),
        (BudgetExceeded("tokens", 1, 1, 1), Answer.never_again),
        (ToolCallCap(1, 1), Answer.never_again),
        # A full mailbox is emptied again; that it was not awaited is a bug.
        (MailboxFull("full"), Answer.restart_unless_same),
        (ValueError("x"), Answer.restart_unless_same),
        (AssertionError(), Answer.restart_unless_same),
    ],
)
def test_the_class_of_an_error_decides_what_follows(error: Exception, answer: Answer) -> None:
    assert judge(error).answer is answer


@pytest.mark.parametrize("depth", [1, 3])
def test_an_error_that_climbed_through_parents_is_judged_by_what_began_it(depth: int) -> None:
    error: Exception = ProviderError(K.auth, "no such key")
    for _ in range(depth):
        error = failed(error)
    assert judge(error).kind is FailureClass.refused_key
    assert judge(ExceptionGroup("one", [error])).kind is FailureClass.refused_key
    gone = RestartsExhausted(Exit("root/1", Reason.error, 0.0, cause=error), ("root/1",))
    assert judge(gone).kind is FailureClass.refused_key


def test_a_child_that_failed_without_a_cause_is_a_bug_of_whoever_let_it_through() -> None:
    error = ChildFailed(Exit("root/1", Reason.killed, 0.0))
    assert leaf_of(error) is error and judge(error).kind is FailureClass.bug


def test_a_rate_limit_says_how_long_to_wait() -> None:
    assert judge(ProviderError(K.rate_limited, "slow down", retry_after=5.0)).wait == 5.0
    assert judge(ProviderError(K.rate_limited, "slow down")).wait is None
    assert judge(ValueError("x")).wait is None


def test_errors_are_the_same_by_type_and_text() -> None:
    assert judge(ValueError("x")).signature == judge(failed(ValueError("x"))).signature
    assert judge(ValueError("x")).signature != judge(ValueError("y")).signature
    assert judge(ValueError("x")).signature != judge(KeyError("x")).signature
    assert judge(KeyError("x")).text == "KeyError: 'x'"


def test_a_text_that_cannot_be_had_does_not_stop_the_judge() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert "cannot be had" in judge(Odd()).text
