"""A model without a memory: what it answers depends on the goal and on how many turns it has had.

    GoalModel({"root": [[call("write_file", path="a", content="1")], "done"]})

So it survives its process: whoever resumes a run with another one of it gets the
answers that the first would have given. It refuses a conversation that no real
endpoint takes, as strict servers do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from actors.agents.ports import (
    AssistantTurn,
    Completion,
    CompletionRequest,
    Estimate,
    ResultsTurn,
    ToolCall,
    UserTurn,
)
from actors.containment.usage import Usage

# One answer: a text, the calls of a turn, an answer whole, or what fails.
Told = str | Sequence[tuple[str, Mapping[str, Any]]] | Completion | Exception


def call(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Write one call."""
    return tool, arguments


def spawn(goal: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """Write a call that starts a sub-agent without a criterion."""
    return "spawn_agent", {"goal": goal, "verify": {"kind": "none"}, **more}


@attrs.define
class GoalModel:
    """See the file's docstring. A goal is found by the beginning of the first turn, the longest that fits.

    ``before`` is awaited with each request before it is answered. ``requests`` are all
    that came, ``billed`` the tokens of those that were answered.
    """

    answers: Mapping[str, Sequence[Told]]
    before: Callable[[CompletionRequest], Awaitable[None]] | None = None
    usage: Usage | None = Usage(10, 5)
    requests: list[CompletionRequest] = attrs.Factory(list)
    billed: int = 0
    name: str = "goal-model"
    default_model: str = "m"
    endpoint: None = None

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Say what a request costs at most."""
        return Estimate(10, 5)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer by goal and turn.

        Cancellation: it was not billed.
        """
        insist_on_order(request)
        self.requests.append(request)
        if self.before is not None:
            await self.before(request)
        await trio.lowlevel.checkpoint()
        goal, turn = place_of(request, self.answers)
        told = self.answers[goal][turn]
        if isinstance(told, Exception):
            raise told
        self.billed += 0 if self.usage is None else self.usage.tokens
        if isinstance(told, Completion):
            return told
        if isinstance(told, str):
            return Completion(told, (), self.usage, "m", "stop")
        calls = tuple(ToolCall(tool, json.dumps(arguments)) for tool, arguments in told)
        return Completion(None, calls, self.usage, "m", "tool_calls")


def place_of(request: CompletionRequest, goals: Iterable[str]) -> tuple[str, int]:
    """Find which of the goals a request is about, and how often it was answered before: all that a model needs."""
    first = request.turns[0]
    assert isinstance(first, UserTurn), "a conversation begins with the task"
    goal = max((goal for goal in goals if first.text.startswith(goal)), key=len)
    return goal, sum(isinstance(turn, AssistantTurn) for turn in request.turns)


def without_figures(text: str) -> str:
    """Leave out what a child drew: its report tells it, and it may hold an estimate of a call that was cut."""
    return re.sub(r"\d+ tokens", "N tokens", text)


def insist_on_order(request: CompletionRequest) -> None:
    """Refuse what strict endpoints refuse: two turns of one side in a row, or a call without its one result."""
    pairs = zip(request.turns, request.turns[1:], strict=False)
    for place, (turn, following) in enumerate(pairs):
        if isinstance(turn, AssistantTurn):
            results = len(following.texts) if isinstance(following, ResultsTurn) else 0
            assert results == len(turn.calls), f"turn {place} has {len(turn.calls)} calls and {results} results"
            assert not isinstance(following, AssistantTurn), f"two answers in a row at {place}"
        else:
            assert isinstance(following, AssistantTurn), f"two questions in a row at {place}"
    assert not isinstance(request.turns[-1], AssistantTurn), "nothing is asked"
