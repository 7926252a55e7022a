"""A call whose arguments the approver changed: what runs in place of what the model asked for. Pure.

The approver chose what runs, so his yes covers it: what asks for the same kind
of act is not asked about again. It covers no deny: the policy judges the call
anew, as if the model had asked for it so.

What would be got wrong:

- The tool is in the middle of the call when the answer comes. It is left by an
  exception (`CallRewritten`), and begun again from its start.
- A process that goes on begins with the arguments that the answer made, and not
  with the model's: what stands in a file by now may be the work of those.
- An answer that cannot be read is no answer to what the model asked for. It
  lets nothing run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from actors.agents.entry_text import bounded, clean
from actors.agents.model_input import MOST_ARGUMENTS, read_arguments
from actors.agents.ports import ApprovalState, Observation, ToolCall, ToolSpec
from actors.agents.secret_values import Redactor
from actors.errors import ToolFailed

# What the model reads of one value, of how many of them, and of all.
VALUE_CHARS: Final = 300
MOST_VALUES: Final = 12
TOLD_CHARS: Final = 3_000
# Around that.
CHANGED: Final = "[whoever approves changed this call before it ran: "
CAME_TO: Final = ". What follows is of the changed call]"
# Of a list, so many values are looked at, which is more than any tool takes.
MOST_LOOKED_AT: Final = 10_000


class CallRewritten(Exception):
    """The approver changed the arguments of a call: whoever runs it begins it again. Nothing was done."""


class Rewriting:
    """One call, as the answers to its questions made it."""

    def __init__(self, asked: ToolCall) -> None:
        self.call = asked
        self._asked = asked
        # Whether the call was changed, and whoever runs it has not begun again.
        self.pending = False
        # The last answer that changed the call, and what it was before.
        self.last: tuple[ApprovalState, ToolCall] | None = None
        self._acts: set[str] = set()
        self._answered: set[tuple[str, str, str]] = set()

    def begin(self) -> ToolCall:
        """Give the call as it stands; whoever asks begins it."""
        self.pending = False
        return self.call

    def hear(self, answers: Iterable[ApprovalState]) -> int:
        """Take the answers of this call's questions, in order; give the number of the last that changed it, or 0.

        What was said after that one was said of another call, and its questions are found again.
        """
        heard = list(answers)
        last = max((each.nth for each in heard if rewritten(self.call, each) is not None), default=0)
        for each in heard:
            if each.nth > last or each.decision != "approved":
                continue
            self._answered.add((each.act, each.target, each.content))
            call = rewritten(self.call, each)
            if call is not None:
                self.last, self.call = (each, self.call), call
                self._acts.add(each.act)
        return last

    def covers(self, act: str, target: str, content: str) -> bool:
        """Tell whether what asks was answered: the very same, or an act of the kind for which the call was changed."""
        return act in self._acts or (act, target, content) in self._answered

    def telling(self, seen: Observation) -> Observation:
        """Give what a call came to with the news of what was changed in it, if anything was."""
        if self._asked == self.call:
            return seen
        return attrs.evolve(seen, text=f"{difference(self._asked, self.call)}\n{seen.text}")


def rewritten(call: ToolCall, answer: ApprovalState) -> ToolCall | None:
    """Give what an answer makes of a call; None when it lets the call as it is, cannot be read, or is about no call."""
    if not call.name or answer.decision != "approved" or answer.modified is None:
        return None
    try:
        _read(answer.modified, "it")
    except ValueError:
        return None
    return ToolCall(call.name, answer.modified)


def changed_keys(before: str, after: str) -> list[str]:
    """Name the arguments that differ, sorted; both are arguments as they are stored."""
    old, new = _read(before or "{}", "it"), _read(after, "it")
    return sorted(key for key in old.keys() | new.keys() if _shown(old, key) != _shown(new, key))


def difference(asked: ToolCall, ran: ToolCall) -> str:
    """Tell the model what was changed in its call; bounded."""
    old, new = _read(asked.arguments or "{}", "it"), _read(ran.arguments, "it")
    keys = changed_keys(asked.arguments, ran.arguments)
    changes = [_change(key, _shown(old, key), _shown(new, key)) for key in keys[:MOST_VALUES]]
    if len(keys) > MOST_VALUES:
        changes.append(f"and {len(keys) - MOST_VALUES} more")
    text = "; ".join(changes)
    return f"{CHANGED}{bounded(text, TOLD_CHARS)}{CAME_TO}"


def came_to(text: str) -> str:
    """Give what a call came to without the news of what was changed in it."""
    if not text.startswith(CHANGED):
        return text
    told, _, rest = text.partition(f"{CAME_TO}\n")
    return rest or told


def _change(key: str, old: str | None, new: str | None) -> str:
    name = bounded(key, 80)
    if new is None:
        return f"{name} is left out, and was {bounded(old or '', VALUE_CHARS)}"
    if old is None:
        return f"{name} is {bounded(new, VALUE_CHARS)}, and was not given"
    return f"{name} is {bounded(new, VALUE_CHARS)}, and was {bounded(old, VALUE_CHARS)}"


def _shown(table: Mapping[str, Any], key: str) -> str | None:
    # As JSON, so that true is not 1.
    return json.dumps(table[key], ensure_ascii=False, sort_keys=True) if key in table else None


# ── what may be stored ──────────────────────────────────────────────────────


def to_text(modified: Mapping[str, Any], call: ToolCall, spec: ToolSpec | None, redactor: Redactor) -> str | None:
    """Write the arguments that are to run as they are stored with a decision; None when they are those of the call.

    ``spec`` is the tool's, None when nobody here knows the tool: it judges them itself when it is called.

    Raises:
        ValueError: they are none, or none for this tool; one line that says why.
    """
    if not call.name:
        raise ValueError("this question is about no call of a tool: there are no arguments to change")
    if not isinstance(modified, Mapping):
        raise ValueError(f"the arguments must be a JSON object, not {type(modified).__name__}")
    try:
        text = clean(json.dumps(dict(modified), ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"the arguments are no JSON: {error}") from None
    if len(text) > MOST_ARGUMENTS:
        raise ValueError(f"the arguments have {len(text)} characters; at most {MOST_ARGUMENTS} are taken")
    plain = _read(text, call.name)
    wrong = None if spec is None else mistake(plain, spec.parameters)
    if wrong is not None:
        raise ValueError(f"these are no arguments for {call.name}: {bounded(wrong, 300)}")
    if redactor.hide(text) != text:
        raise ValueError("the arguments hold the value of a credential, which would be stored; leave it out")
    return text if changed_keys(call.arguments, text) else None


def parsed(text: str) -> Mapping[str, Any]:
    """Read arguments that somebody wrote: strictly, as a model's are.

    Raises:
        ValueError: they are no JSON object; one line.
    """
    return _read(text, "the call")


def _read(text: str, name: str) -> Mapping[str, Any]:
    if not isinstance(text, str) or not text.strip():
        # From a model that is a call without arguments; here nobody means that.
        raise ValueError(f"the arguments of {name} must be a JSON object: {{}} for none")
    try:
        return read_arguments(ToolCall(name, text), _ANY)
    except ToolFailed as error:
        raise ValueError(str(error).partition(" Wanted: ")[0].rstrip(".")) from None


_ANY: Final = ToolSpec("", "", {"type": "object"})


# ── what a schema says of a value ───────────────────────────────────────────

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def mistake(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Say what of a tool's arguments its schema does not let be; None when nothing is found.

    Looks at names, types, lengths and choices: what tools here use. The tool itself is the last judge.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    missing = [name for name in required if name not in arguments]
    if missing:
        return f"{missing[0]!r} is missing"
    if schema.get("additionalProperties") is False:
        unknown = [name for name in arguments if name not in properties]
        if unknown:
            return f"there is no {unknown[0]!r}; it takes {', '.join(properties)}"
    for name, value in arguments.items():
        # Null counts as left out, where that may be.
        wrong = None if value is None and name not in required else _wrong(value, properties.get(name, {}), name)
        if wrong is not None:
            return wrong
    return None


def _wrong(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    kind = schema.get("type")
    known = _TYPES.get(kind) if isinstance(kind, str) else None
    # A bool is an int for Python, and none for a schema.
    if known is not None and (not isinstance(value, known) or (type(value) is bool and bool not in known)):
        return f"{place!r} must be of type {kind}"
    choices = schema.get("enum")
    if choices is not None and value not in choices:
        return f"{place!r} must be one of {choices}"
    if isinstance(value, str | list) and (short := _length(value, schema, place)) is not None:
        return short
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _size(value, schema, place)
    if isinstance(value, list):
        found = (_wrong(each, schema.get("items", {}), f"{place}[{at}]") for at, each in _numbered(value))
        return next((each for each in found if each is not None), None)
    return None


def _numbered(values: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    return enumerate(values[:MOST_LOOKED_AT])


def _length(value: str | list[Any], schema: Mapping[str, Any], place: str) -> str | None:
    least, most = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
    if len(value) < schema.get(least, 0):
        return f"{place!r} must have at least {schema[least]}, and has {len(value)}"
    if most in schema and len(value) > schema[most]:
        return f"{place!r} may have at most {schema[most]}, and has {len(value)}"
    return None


def _size(value: float, schema: Mapping[str, Any], place: str) -> str | None:
    if "minimum" in schema and value < schema["minimum"]:
        return f"{place!r} must be at least {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        return f"{place!r} must be at most {schema['maximum']}"
    return None
