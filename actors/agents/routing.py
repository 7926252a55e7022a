"""Which model an agent asks: a stronger one after checks that did not pass, a cheaper one for small requests. Pure.

The operator says so once, and it holds for every agent of the tree, whatever model
its definition names; nobody inside can change it. Of two that apply the stronger one
is asked. A check that could not be made is none that passed: it counts.
"""

import json
from enum import StrEnum
from typing import Final

import attrs

from actors.agents.growing import added_up
from actors.agents.judged_fields import judged, optional, whole_number, word_problem
from actors.agents.per_turn import PerTurn
from actors.agents.ports import AssistantTurn, CompletionRequest, ResultsTurn, ToolSpec, Turn, UserTurn

_PAIRS: Final = (("escalate_after", "escalate_to"), ("downshift_under", "downshift_to"))


@attrs.frozen
class Routing:
    """When which other model is asked, at the run's own provider.

    ``escalate_to`` is asked once so many checks in a row did not pass, until the agent
    ends. ``downshift_to`` is asked for each request of fewer bytes: its system text,
    its turns and its tools as UTF-8.
    """

    escalate_after: int | None = judged(optional(whole_number(1)), None, kw_only=True)
    escalate_to: str | None = judged(optional(word_problem), None, kw_only=True)
    downshift_under: int | None = judged(optional(whole_number(1)), None, kw_only=True)
    downshift_to: str | None = judged(optional(word_problem), None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for when, model in _PAIRS:
            if (getattr(self, when) is None) != (getattr(self, model) is None):
                raise ValueError(f"{when} and {model} go together: write both, or none of them")
        if not self.models:
            raise ValueError("says nothing: write escalate_after and escalate_to, or downshift_under and downshift_to")

    @property
    def models(self) -> dict[str, str]:
        """Give the models that may be asked, by the field that names them."""
        named = {field: getattr(self, field) for _when, field in _PAIRS}
        return {field: model for field, model in named.items() if model is not None}


class Why(StrEnum):
    """Why a model is asked; values of events."""

    escalated = "escalated"
    downshifted = "downshifted"
    # Neither applies, or not any more: the agent's own.
    own = "own"


@attrs.frozen
class Route:
    """The model to ask, None for the provider's own, and why."""

    model: str | None
    why: Why


def route(routing: Routing, request: CompletionRequest, non_passes: int) -> Route:
    """Decide which model gets a request that was made for the agent's own one.

    ``non_passes`` counts the checks that did not pass, one after the other, until now.
    """
    if routing.escalate_after is not None and non_passes >= routing.escalate_after:
        return Route(routing.escalate_to, Why.escalated)
    if routing.downshift_under is not None and request_bytes(request) < routing.downshift_under:
        return Route(routing.downshift_to, Why.downshifted)
    return Route(request.model, Why.own)


def request_bytes(request: CompletionRequest) -> int:
    """Count the bytes of what a model reads of a request, whatever an endpoint wraps around it."""
    of_turns = added_up(_turn_bytes, request.turns, request.grown)
    return _bytes(request.system) + of_turns + sum(_of_tool.each(request.tools))


def _bytes(text: str) -> int:
    # A size must not fail where sending would say what is wrong.
    return len(text.encode("utf-8", "replace"))


def _turn_bytes(turn: Turn) -> int:
    match turn:
        case UserTurn(text):
            return _bytes(text)
        case AssistantTurn(text, calls):
            return _bytes(text or "") + sum(_bytes(call.name) + _bytes(call.arguments) for call in calls)
        case ResultsTurn(texts):
            return sum(map(_bytes, texts))


def _tool_bytes(tool: ToolSpec) -> int:
    return _bytes(tool.name) + _bytes(tool.description) + _bytes(json.dumps(tool.parameters, ensure_ascii=False))


_of_tool: Final[PerTurn[ToolSpec, int]] = PerTurn(_tool_bytes)
