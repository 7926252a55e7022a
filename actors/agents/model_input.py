"""What goes to a model and comes from it, judged. Pure.

Nothing that a model sends runs on a guess: its arguments are a strict JSON
object or an error that it reads. What is larger than any honest call is cut
where it enters, so that it is neither kept nor sent again; what was cut is no
JSON any more, and runs nothing.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from actors.agents.entry_text import bounded, clean, clean_value
from actors.agents.growing import added_up
from actors.agents.ports import Completion, CompletionRequest, Estimate, Provider, ToolCall, ToolSpec, Turn
from actors.containment.usage import Usage
from actors.errors import ToolFailed

# Characters of the arguments of one call, and of the name of a tool. Models stop far below.
MOST_ARGUMENTS: Final = 1_000_000
MOST_NAME: Final = 200
_KEPT_OF_A_CUT: Final = 2_000


def estimate_of(provider: Provider, request: CompletionRequest) -> Estimate:
    """Give the provider's own worst case of a request, or a careful guess: a token for three bytes."""
    own = getattr(provider, "estimate", None)
    if own is not None:
        estimate: Estimate = own(request)
        return estimate
    size = len(request.system.encode()) + added_up(_size, request.turns, request.grown)
    size += sum(len(repr(spec).encode()) for spec in request.tools)
    return Estimate(size // 3 + 8 * (len(request.turns) + 1), request.max_output_tokens)


def _size(turn: Turn) -> int:
    return len(repr(turn).encode())


def read_arguments(call: ToolCall, spec: ToolSpec) -> Mapping[str, Any]:
    """Decode a model's argument text strictly.

    Raises:
        ToolFailed: it is no JSON object; says where, and what is wanted. Nothing runs on a guess.
    """
    try:
        value = json.loads(
            call.arguments or "{}",
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repeats,
        )
        cleaned = clean_value(value)
    except (ValueError, RecursionError) as error:
        why = f"are no JSON: {error}. Wanted: {json.dumps(spec.parameters)}"
        if f"{_KEPT_OF_A_CUT} are kept" in call.arguments:
            why = f"are too long: at most {MOST_ARGUMENTS} characters are taken. Do it in smaller pieces"
        raise ToolFailed(f"the arguments of {call.name} {why}") from None
    if not isinstance(cleaned, dict):
        wanted = json.dumps(spec.parameters)
        raise ToolFailed(f"the arguments of {call.name} must be a JSON object. Wanted: {wanted}")
    return cleaned


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    # Two keys that differ only in what no encoding can carry would become one key with two values.
    if len({clean(key) for key in table}) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return table


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def clean_call(call: ToolCall) -> ToolCall:
    """Make a call safe to keep and to send again. One that is larger than any honest one is cut."""
    name, arguments = bounded(clean(call.name), MOST_NAME), call.arguments
    if len(arguments) > MOST_ARGUMENTS:
        # No JSON, wherever the cut falls: a line end in a text, and words outside of one.
        note = f"[... {len(arguments)} characters, too many; the first {_KEPT_OF_A_CUT} are kept ...]"
        arguments = f"{arguments[:_KEPT_OF_A_CUT]}\n{note}"
    return ToolCall(name, clean(arguments))


def clean_answer(answer: Completion, hide: Callable[[str], str]) -> Completion:
    """Make an answer safe to keep, to act on and to send again, whoever gave it.

    ``hide`` takes the values of credentials out: what a model repeats of one must neither be stored nor run.
    """
    text = None if answer.text is None else hide(clean(answer.text))
    served = None if answer.model is None else hide(answer.model)
    calls = tuple(_hidden(clean_call(call), hide) for call in answer.calls)
    if (text, served, calls) == (answer.text, answer.model, answer.calls):
        return answer
    return attrs.evolve(answer, text=text, model=served, calls=calls)


def _hidden(call: ToolCall, hide: Callable[[str], str]) -> ToolCall:
    name, arguments = hide(call.name), hide(call.arguments)
    return call if (name, arguments) == (call.name, call.arguments) else ToolCall(name, arguments)


def token_columns(usage: Usage | None) -> Any:
    """Give the token columns of an attempt; all None when nobody reported any."""
    return {field.name: None if usage is None else getattr(usage, field.name) for field in attrs.fields(Usage)}
