"""Asking another model whether the work is done: paid for like any call, and written down with its verdict.

The last attempt's rows are not written here but handed back: they stand in one
transaction with the verdict, so that what was paid for is never asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from actors.agents.entry_text import bounded, clean
from actors.agents.gatekeeper import CallContext
from actors.agents.live_states import WaitFor
from actors.agents.model_cost import cost_of
from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, Completion, CompletionRequest, Provider
from actors.agents.recording import settled_row
from actors.agents.rows import AttemptMade
from actors.agents.step_rows import attempt_row, draw_row
from actors.containment.ledger_state import Draw, Reservation
from actors.containment.usage import Usage
from actors.errors import BudgetExceeded, ProviderError

if TYPE_CHECKING:
    from actors.agents.loop import Loop

REVIEW = "review"


@attrs.frozen
class Paid:
    """An answer, or why there is none, and the rows of what it cost. ``halted``: it did not fit under the ceiling."""

    answer: Completion | None
    why: str = ""
    rows: Sequence[Any] = ()
    halted: bool = False


class Payer(Protocol):
    """Who pays for a review."""

    async def ask(self, reviewer: Provider, request: CompletionRequest) -> Paid:
        """Ask the reviewer.

        Cancellation: whether it was billed is unknown; it is charged in full.
        """
        ...


def review_row(
    run_id: str, step: int, attempt: int, reviewer: Provider, usage: Usage | None, seconds: float, **more: Any
) -> AttemptMade:
    """Give the row of one attempt at a reviewer."""
    row = attempt_row(run_id, step, attempt, usage, seconds, provider=reviewer.name, asked=None, **more)
    return attrs.evolve(row, purpose=REVIEW)


def cleaned(answer: Completion) -> Completion:
    """Give an answer whose text every store can hold."""
    return attrs.evolve(answer, text=None if answer.text is None else clean(answer.text))


class LoopPayer:
    """The agent whose work is reviewed pays, from the tree's budget and its own."""

    def __init__(self, loop: Loop, step: int) -> None:
        self._loop = loop
        self._step = step

    async def ask(self, reviewer: Provider, request: CompletionRequest) -> Paid:
        """Ask, as often as the contract lets a call be tried.

        Cancellation: what was sent is charged in full and marked estimated.
        """
        loop, attempt = self._loop, 0
        while True:
            attempt += 1
            await loop.keep_pace(reviewer)
            paid, error = await self._attempt(reviewer, request, attempt)
            delay = None if error is None else loop.delay_before_retry(reviewer, error, attempt)
            if error is None or delay is None or paid.halted:
                return paid
            await loop.stand(*paid.rows)
            await loop.recorder.emit(
                loop.agent, "retry", step=self._step, attempt=attempt, seconds=delay, why=error.kind, purpose=REVIEW
            )
            async with loop.agent.waiting(WaitFor.rate):
                await trio.sleep(delay)

    async def _attempt(
        self, reviewer: Provider, request: CompletionRequest, attempt: int
    ) -> tuple[Paid, ProviderError | None]:
        loop = self._loop
        try:
            held, request = await loop.hold(reviewer, request, self._step, attempt)
        except BudgetExceeded as refusal:
            return Paid(None, f"the review cannot be paid for: {refusal}"), None
        began = trio.current_time()
        try:
            answer = cleaned(await reviewer.complete(request))
        except ProviderError as raised:
            error = loop.recorder.without_secrets(raised)
            usage = error.usage if isinstance(error.usage, Usage) else None
            more = {"failure": error.kind, "detail": bounded(str(error), 500)}
            paid = self._bill(held, attempt, reviewer, usage, None, began, **more)
            return attrs.evolve(paid, why=f"the reviewer failed: {bounded(str(error), 500)}"), error
        except Exception as error:
            # A bug of a reviewer says nothing about the work, nor about the one who did it.
            text = loop.recorder.redactor.hide(f"{type(error).__name__}: {bounded(clean(str(error)), 500)}")
            paid = self._bill(held, attempt, reviewer, None, None, began, failure="error", detail=text)
            return attrs.evolve(paid, why=f"the reviewer failed: {text}"), None
        except BaseException as error:
            # Whether it was billed is unknown, so it is charged in full.
            failure = "cancelled" if isinstance(error, trio.Cancelled) else "error"
            lost = self._bill(
                held, attempt, reviewer, None, None, began, failure=failure, detail=type(error).__name__
            )
            loop.recorder.append_nowait(*lost.rows)
            raise
        return self._bill(held, attempt, reviewer, answer.usage, answer, began, completion=answer), None

    def _bill(
        self,
        held: Reservation,
        attempt: int,
        reviewer: Provider,
        usage: Usage | None,
        answer: Completion | None,
        began: float,
        **more: Any,
    ) -> Paid:
        """Settle in the running step, and give the rows of it."""
        agent = self._loop.agent
        cost = cost_of(reviewer, usage, None if answer is None else answer.model, self._loop.services.prices)
        settlement = agent.ledger.settle_nowait(held, usage, cost)
        remaining = agent.ledger.remaining_tokens
        seconds = trio.current_time() - began
        rows = (
            review_row(agent.run_id, self._step, attempt, reviewer, usage, seconds, **more),
            settled_row(agent.run_id, held, settlement),
            draw_row(agent.run_id, self._step, settlement, remaining),
            self._loop.recorder.event(
                agent.path,
                agent.depth,
                "spend_draw",
                {"step": self._step, "tokens": settlement.tokens, "remaining": remaining, "purpose": REVIEW},
            ),
        )
        return Paid(answer, "", rows, settlement.draw is Draw.halted)


async def refused_endpoints(loop: Loop) -> str | None:
    """Ask the policy for the hosts of the provider and of the reviewer, once, before anything is sent.

    Gives the first refusal, None when both may be reached. A layer that allows a host is
    merged in, so that deny-by-default still reaches the model; an explicit deny still wins.

    Cancellation: nothing was decided.
    """
    asked = (loop.services.provider, loop.services.reviewer)
    for endpoint in dict.fromkeys(getattr(each, "endpoint", None) for each in asked):
        refused = None if endpoint is None else await _refused_endpoint(loop, endpoint)
        if refused is not None:
            return refused
    return None


async def _refused_endpoint(loop: Loop, endpoint: str) -> str | None:
    try:
        await CallContext(loop, 0, opened_to(loop.job.policy, endpoint)).authorise(Act.net, endpoint)
    except ActRefused as error:
        return str(error)
    return None


def opened_to(policy: Policy, endpoint: str) -> Policy:
    """Give a policy whose default does not keep a model from being reached; every deny and ask of it still counts."""
    return policy.merge(Policy.permissive().layer("provider").allow_net(endpoint))
