"""What goes to a model and comes from it, judged. Pure.

Nothing that a model sends runs on a guess: its arguments are a strict JSON
object or an error that it reads.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import attrs

from actors.agents.entry_text import clean, clean_value
from actors.agents.ports import CompletionRequest, Estimate, Provider, ToolCall, ToolSpec
from actors.containment.usage import Usage
from actors.errors import ToolFailed


def estimate_of(provider: Provider, request: CompletionRequest) -> Estimate:
    """Give the provider's own worst case of a request, or a careful guess: a token for three bytes."""
    own = getattr(provider, "estimate", None)
    if own is not None:
        estimate: Estimate = own(request)
        return estimate
    size = len(request.system.encode()) + sum(len(repr(turn).encode()) for turn in request.turns)
    size += sum(len(repr(spec).encode()) for spec in request.tools)
    return Estimate(size // 3 + 8 * (len(request.turns) + 1), request.max_output_tokens)


def read_arguments(call: ToolCall, spec: ToolSpec) -> Mapping[str, Any]:
    """Decode a model's argument text strictly.

    Raises:
        ToolFailed: it is no JSON object; says where, and what is wanted. Nothing runs on a guess.
    """
    wanted = json.dumps(spec.parameters)
    try:
        value = json.loads(
            call.arguments or "{}",
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repeats,
        )
        cleaned = clean_value(value)
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"the arguments of {call.name} are no JSON: {error}. Wanted: {wanted}") from None
    if not isinstance(cleaned, dict):
        raise ToolFailed(f"the arguments of {call.name} must be a JSON object. Wanted: {wanted}")
    return cleaned


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return table


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def clean_call(call: ToolCall) -> ToolCall:
    return ToolCall(clean(call.name), clean(call.arguments))


def token_columns(usage: Usage | None) -> Any:
    """Give the token columns of an attempt; all None when nobody reported any."""
    return {field.name: None if usage is None else getattr(usage, field.name) for field in attrs.fields(Usage)}
