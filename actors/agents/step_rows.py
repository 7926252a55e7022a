"""The rows of an attempt, an answer and a step. Pure: facts in, rows out."""

import json
from collections.abc import Sequence
from typing import Any

import attrs

from actors.agents.edits import unsound
from actors.agents.entry_text import bounded
from actors.agents.model_input import token_columns
from actors.agents.ports import Completion, Observation, ObservationKind
from actors.agents.rewriting import came_to
from actors.agents.rows import AgentEvent, AnswerGiven, AttemptMade, Observed, Settled, StepDone
from actors.agents.step_digest import step_digest
from actors.containment.ledger_state import Settlement
from actors.containment.usage import Usage

# Failed calls that an event of a step tells of, and how much of each.
MOST_FAILED = 10
FAILED_CHARS = 300


def calls_text(answer: Completion) -> str:
    """Write the calls of an answer in one line."""
    return ";".join(f"{call.name}:{call.arguments}" for call in answer.calls)


def attempt_row(
    run_id: str,
    step: int,
    attempt: int,
    usage: Usage | None,
    seconds: float,
    *,
    provider: str,
    asked: str | None,
    completion: Completion | None = None,
    failure: str | None = None,
    detail: str | None = None,
) -> AttemptMade:
    """Give the row of one attempt that took so many seconds."""
    first = None if completion is None else completion.first_token_seconds
    return AttemptMade(
        run_id=run_id,
        step=step,
        attempt=attempt,
        provider=provider,
        asked=asked,
        served=None if completion is None else completion.model,
        **token_columns(usage),
        latency_ms=round(seconds * 1000),
        first_token_ms=None if first is None else round(first * 1000),
        finish_reason=None if completion is None else completion.finish_reason,
        failure=failure,
        detail=detail,
    )


def lost_rows(
    run_id: str, step: int, attempt: int, reservation: int, tokens: int, microdollars: int, purpose: str | None = None
) -> list[Any]:
    """Give the rows of a call whose process is gone: nobody knows whether it was billed, so it is charged in full.

    A reservation of no attempt (0) was held for something else.
    """
    closing = [
        Settled(run_id, reservation, tokens, microdollars, 0, 0, True),
        AgentEvent(run_id, step, "budget_draw", "estimated", None, tokens, None),
    ]
    if not attempt:
        return closing
    why = "its process ended before the answer was stored"
    made = attempt_row(run_id, step, attempt, None, 0.0, provider="", asked=None, failure="lost", detail=why)
    return [attrs.evolve(made, purpose=purpose), *closing]


def draw_row(run_id: str, step: int, settlement: Settlement, remaining: int) -> AgentEvent:
    """Give the row of what a call drew."""
    drawn = settlement.tokens + settlement.overrun_tokens
    detail = "estimated" if settlement.estimated else "settled"
    if settlement.overrun_tokens:
        detail = "overrun"
    return AgentEvent(run_id, step, "budget_draw", detail, None, drawn, remaining)


def stored_calls(answer: Completion) -> str:
    """Write the calls of an answer as they are stored: JSON."""
    return json.dumps([[call.name, call.arguments] for call in answer.calls]) if answer.calls else "[]"


def answer_row(run_id: str, step: int, answer: Completion, admitted: int) -> AnswerGiven:
    """Give the row of an answer, with its calls as they were asked for, and how many of them may run."""
    return AnswerGiven(run_id, step, answer.text, stored_calls(answer), answer.finish_reason, admitted)


def observed_rows(run_id: str, step: int, seen: Sequence[Observation], before: int = 0) -> list[Observed]:
    """Give the rows of observations, behind so many that the step has already."""
    return [
        Observed(run_id, step, ordinal, each.kind, each.target, each.text, each.changed)
        for ordinal, each in enumerate(seen, before + 1)
    ]


def step_rows(
    run_id: str,
    step: int,
    answer: Completion,
    late: Sequence[Observation],
    seen: Sequence[Observation],
    used: int,
    remaining: int,
    digest: str | None = None,
) -> list[Any]:
    """Give the rows of a completed step: the step, and what its calls gave, in order.

    ``late`` was written with the answer; the text of the step holds it all the same.
    """
    decision = ", ".join(call.name for call in answer.calls) or "(no tool call)"
    result = "\n\n".join(each.text for each in (*late, *seen))
    done = StepDone(run_id, step, decision, result, calls_text(answer), used, remaining, digest)
    return [done, *observed_rows(run_id, step, seen, len(late))]


def digest_of(
    previous: str | None, run_id: str, step: int, answer: Completion, used: int, seen: Sequence[Observation]
) -> str:
    """Link a step to the one before it."""
    facts = [(each.kind, each.target, each.text, each.changed) for each in seen]
    return step_digest(previous, run_id, step, answer.text, stored_calls(answer), answer.finish_reason, used, facts)


def step_facts(step: int, answer: Completion, seen: Sequence[Observation], used: int) -> dict[str, Any]:
    """Give what the event of a step tells: its calls, which of them failed and why, which files do not compile."""
    facts: dict[str, Any] = {"step": step, "calls": [call.name for call in answer.calls], "tokens": used}
    failed = [each for each in seen if each.kind is ObservationKind.error]
    if failed:
        facts["failed"] = [
            {"tool": each.target, "text": bounded(came_to(each.text), FAILED_CHARS)} for each in failed[:MOST_FAILED]
        ]
    checked = [(each.target, unsound(came_to(each.text))) for each in seen if each.kind is ObservationKind.write]
    if any(said is not None for _, said in checked):
        facts["unsound"] = [
            {"path": path, "text": bounded(said, FAILED_CHARS)} for path, said in checked if said is not None
        ][:MOST_FAILED]
    return facts
