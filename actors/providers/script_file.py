"""Scripts of a model that answers as told: the strict JSON format, and which answer comes next. Pure.

    [{"text": "done", "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
     {"when": "search", "calls": [["read_file", {"path": "a.txt"}]]}]

Answers come in the order of the script. A request whose goal holds the ``when``
of some answer gets those answers only, in their order; all other requests share
the answers without ``when``. So a child's answers are never taken by its
siblings. After the end comes an empty answer.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import attrs

from actors.agents.entry_text import clean, clean_value
from actors.agents.ports import CompletionRequest, ToolCall, UserTurn
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind

Check = Callable[[Any], Any]


@attrs.frozen
class ScriptedAnswer:
    """One answer as told.

    ``usage`` None is an endpoint that reports none. ``delay`` is in seconds. ``error`` is
    raised in the place of an answer, and carries the usage it reports; ``usage`` is then
    what it costs unseen. ``hang`` never answers. ``finish_reason`` None follows from the
    calls.
    """

    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = attrs.Factory(Usage)
    delay: float = 0.0
    error: ProviderError | None = None
    hang: bool = False
    when: str | None = None
    finish_reason: str | None = None


class Conditional(Protocol):
    """What an answer book holds: anything with a condition on the goal."""

    @property
    def when(self) -> str | None:
        """Give the text that must stand in the goal; None for answers that are for all others."""
        ...


A = TypeVar("A", bound=Conditional)


class AnswerBook(Generic[A]):
    """The answers not given yet. One answer is given once."""

    def __init__(self, answers: Sequence[A]) -> None:
        # A queue stays when it is empty: a goal keeps to its own answers after their end.
        self._queues: dict[str | None, deque[tuple[int, A]]] = {None: deque()}
        for place, answer in enumerate(answers):
            self._queues.setdefault(answer.when, deque()).append((place, answer))

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def peek(self, goal: str) -> A | None:
        """Give the answer that would come next for this goal, None after the end."""
        queue = self._next(goal)
        return queue[0][1] if queue else None

    def take(self, goal: str) -> A | None:
        """Give the next answer for this goal and strike it out; None after the end."""
        queue = self._next(goal)
        return queue.popleft()[1] if queue else None

    def _next(self, goal: str) -> deque[tuple[int, A]] | None:
        met = [queue for when, queue in self._queues.items() if when is not None and when in goal]
        waiting = [queue for queue in met or [self._queues[None]] if queue]
        return min(waiting, key=lambda queue: queue[0][0], default=None)


def goal_of(request: CompletionRequest) -> str:
    """Give the text a condition looks at: the first turn of the user."""
    return next((turn.text for turn in request.turns if isinstance(turn, UserTurn)), "")


# ── the strict reader ───────────────────────────────────────────────────────


def load_script(text: str, where: str, keys: Mapping[str, Check], build: Callable[..., A]) -> list[A]:
    """Read a script: a JSON list of objects whose keys are ``keys``, each with its check.

    Raises:
        ConfigError: with every problem found, each with its path inside ``where``.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise ConfigError((where, f"is no JSON: {error}")) from error
    if not isinstance(data, list):
        raise ConfigError((where, "must be a list of answers"))
    problems: list[tuple[str, str]] = []
    answers = [build(**_read_object(item, f"{where}[{place}]", keys, problems)) for place, item in enumerate(data)]
    if problems:
        raise ConfigError(*problems)
    return answers


def _read_object(raw: Any, path: str, keys: Mapping[str, Check], problems: list[tuple[str, str]]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        problems.append((path, "must be an object"))
        return {}
    values = {}
    for key, value in raw.items():
        if key not in keys:
            problems.append((f"{path}.{key}", f"is unknown; known are {', '.join(sorted(keys))}"))
            continue
        try:
            values[key] = keys[key](value)
        except ConfigError as error:
            problems.extend((f"{path}.{key}{inner}", text) for inner, text in error.problems)
        except (TypeError, ValueError) as error:
            problems.append((f"{path}.{key}", str(error)))
    return values


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return data


# ── checks, one for each kind of value ──────────────────────────────────────


def text_value(value: Any) -> str:
    """Take a text."""
    if not isinstance(value, str):
        raise TypeError(f"must be a text, not {value!r}")
    return clean(value)


def text_or_null(value: Any) -> str | None:
    """Take a text or null."""
    return None if value is None else text_value(value)


def flag(value: Any) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {value!r}")
    return value


def seconds(value: Any) -> float:
    """Take a finite number of seconds from 0."""
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise TypeError(f"must be seconds from 0, not {value!r}")
    return float(value)


def count(value: Any) -> int:
    """Take a whole number from 0."""
    if type(value) is not int or value < 0:
        raise TypeError(f"must be a whole number from 0, not {value!r}")
    return value


def condition(value: Any) -> str | None:
    """Take the text a goal must hold; an empty one would match all."""
    if value == "":
        raise ValueError("must not be empty: leave it out for an answer to any other goal")
    return text_or_null(value)


def usage_or_null(value: Any) -> Usage | None:
    """Take a usage object; null means that none is reported."""
    if value is None:
        return None
    problems: list[tuple[str, str]] = []
    fields = _read_object(value, "", {field.name: count for field in attrs.fields(Usage)}, problems)
    if problems:
        raise ConfigError(*problems)
    return Usage(**fields)


def call_pairs(value: Any) -> tuple[ToolCall, ...]:
    """Take a list of pairs of a tool's name and its arguments; a text stands for itself, broken or not."""
    if not isinstance(value, list | tuple):
        raise TypeError("must be a list of [tool, arguments]")
    return tuple(_call(pair, place) for place, pair in enumerate(value))


def _call(pair: Any, place: int) -> ToolCall:
    if isinstance(pair, ToolCall):
        return pair
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
        raise ConfigError((f"[{place}]", "must be [tool, arguments]"))
    name, arguments = pair
    if isinstance(arguments, str):
        return ToolCall(name, arguments)
    if not isinstance(arguments, Mapping):
        raise ConfigError((f"[{place}]", "the arguments must be an object"))
    try:
        return ToolCall(name, json.dumps(clean_value(dict(arguments)), ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError((f"[{place}]", f"the arguments are no JSON: {error}")) from error


def error_or_null(value: Any) -> ProviderError | None:
    """Take an error to raise: an object with ``kind``, and ``message``, ``status``, ``retry_after``, ``usage``."""
    if value is None:
        return None
    problems: list[tuple[str, str]] = []
    fields = _read_object(value, "", _ERROR_KEYS, problems)
    if not problems and "kind" not in fields:
        problems.append((".kind", "is missing"))
    if problems:
        raise ConfigError(*problems)
    return ProviderError(fields.pop("kind"), fields.pop("message", "scripted"), **fields)


def _error_kind(value: Any) -> ProviderErrorKind:
    try:
        return ProviderErrorKind(value)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(ProviderErrorKind)}, not {value!r}") from None


_ERROR_KEYS: Final[Mapping[str, Check]] = {
    "kind": _error_kind,
    "message": text_value,
    "status": count,
    "retry_after": seconds,
    "usage": usage_or_null,
}

ANSWER_KEYS: Final[Mapping[str, Check]] = {
    "text": text_or_null,
    "calls": call_pairs,
    "usage": usage_or_null,
    "delay": seconds,
    "error": error_or_null,
    "hang": flag,
    "when": condition,
    "finish_reason": text_or_null,
}
