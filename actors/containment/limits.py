"""The boundary of a tree: set once, at the root, and never raised from inside.

In files and JSON money is a text in dollars ("1.50"), because a bare number
would pass through a binary float or be read in the wrong unit; in Python it is
whole microdollars. Token ceilings load up to 2**64 - 1, which means unlimited.
"""

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import attrs
import cattrs

from actors.containment.amounts import LARGEST, UNLIMITED, whole
from actors.errors import ConfigError, kind_word, unknown_key

MICRODOLLARS: Final = 1_000_000
_ALIAS: Final = "max_concurrent_agents"


def _count(_self: Any, field: Any, value: Any) -> None:
    whole(field.name, value)


def _tokens(_self: Any, field: Any, value: Any) -> None:
    whole(field.name, value, most=UNLIMITED)


def _seconds(_self: Any, field: Any, value: Any) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{field.name} must be a finite number of seconds, not {value!r}")
    if value < 0:
        raise ValueError(f"{field.name} must not be negative, and is {value}")


def _at_least_one(value: int) -> int:
    return 1 if type(value) is int and value == 0 else value


def _as_float(value: Any) -> Any:
    """Write whole seconds as a float, so that one duration has one text. Anything else is for the validator."""
    if type(value) is not int:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf


@attrs.frozen
class Containment:
    """What a whole tree may use together. Frozen, compared by value.

    ``max_concurrent`` counts working agents, the root among them; 0 is read as 1.
    ``max_depth``: the root is at depth 0. ``max_total_cost`` is in microdollars.
    ``max_total_duration`` is in seconds from the root's stored start, downtime
    included. ``max_total_calls`` counts every attempt at a model.
    ``max_total_tool_calls`` counts failed calls too; it refuses and does not stop
    the tree. None means no ceiling, 0 is a real zero.

    Example::

        Containment(max_total_agents=12, max_concurrent=4, max_depth=2, max_total_tokens=200_000)
    """

    max_total_agents: int = attrs.field(validator=_count)
    max_concurrent: int = attrs.field(validator=_count, converter=_at_least_one)
    max_depth: int = attrs.field(validator=_count)
    max_total_tokens: int = attrs.field(validator=_tokens)
    max_total_cost: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    max_total_duration: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(_seconds), converter=_as_float
    )
    max_total_calls: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    max_total_tool_calls: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form of files and JSON: money as a dollar text, what is None left out."""
        plain = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        if self.max_total_cost is not None:
            plain["max_total_cost"] = dollars(self.max_total_cost)
        return {name: value for name, value in plain.items() if value is not None}

    def to_json(self) -> str:
        """Give the JSON form; the same value always gives the same text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, plain: object, at: str = "containment") -> "Containment":
        """Read the plain form strictly.

        Raises:
            ConfigError: every problem with the path of its key below ``at``.
        """
        return _read(plain, at)

    @classmethod
    def from_json(cls, text: str, at: str = "containment") -> "Containment":
        """Read the JSON form strictly; repeated keys and NaN are refused.

        Raises:
            ConfigError: every problem with the path of its key.
        """
        try:
            plain = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ConfigError((at, f"is no JSON: {error}")) from None
        return _read(plain, at)


def dollars(microdollars: int) -> str:
    """Write microdollars as an exact dollar text: ``"1.50"``."""
    whole_part, rest = divmod(microdollars, MICRODOLLARS)
    cents = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{whole_part}.{cents}"


def microdollars(text: object) -> int:
    """Read an exact dollar text as whole microdollars.

    Raises:
        ValueError: it is no text, no plain decimal, negative, or finer than a microdollar.
    """
    if not isinstance(text, str):
        raise ValueError(f'must be dollars as text, such as "1.50", not {text!r}')
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f'must be dollars as text, such as "1.50", not {text!r}') from None
    plain = all(letter in "0123456789." for letter in text)
    if not plain or not amount.is_finite():
        raise ValueError(f'must be a plain decimal of dollars, such as "1.50", not {text!r}')
    scaled = amount * MICRODOLLARS
    if scaled != scaled.to_integral_value():
        raise ValueError(f"is finer than a microdollar: {text!r}")
    if scaled > LARGEST:
        raise ValueError(f"is too large: {text!r}")
    return int(scaled)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return seen


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number here")


def _as_int(value: object, _type: object) -> int:
    if type(value) is not int:
        raise TypeError(f"must be a whole number, not {value!r}")
    return value


def _as_seconds(value: object, _type: object) -> float:
    """Read seconds; also the stored form of another system, ``{"secs": 3600, "nanos": 0}``."""
    if isinstance(value, Mapping):
        if set(value) != {"secs", "nanos"}:
            raise TypeError("must be seconds, or an object with exactly secs and nanos")
        return _as_int(value["secs"], int) + _as_int(value["nanos"], int) / 1e9
    if type(value) not in (int, float):
        raise TypeError(f"must be a number of seconds, not {value!r}")
    return float(value)  # type: ignore[arg-type]


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook(int, _as_int)
    converter.register_structure_hook(float, _as_seconds)
    return converter


_CONVERTER: Final = _converter()


def _read(plain: object, at: str) -> Containment:
    if not isinstance(plain, Mapping):
        raise ConfigError((at, f"must be a table, not {kind_word(plain)}"))
    known = {field.name for field in attrs.fields(Containment)}
    problems = [(f"{at}.{key}", unknown_key(key, known)) for key in plain if key not in known | {_ALIAS}]
    values = {key: value for key, value in plain.items() if key in known}
    if _ALIAS in plain:
        if plain.get("max_concurrent", plain[_ALIAS]) != plain[_ALIAS]:
            problems.append((f"{at}.{_ALIAS}", "differs from max_concurrent, which is the same limit; keep one"))
        values["max_concurrent"] = plain[_ALIAS]
    for field in attrs.fields(Containment):
        problems.extend(_problems_of(field, values, at))
    if problems:
        raise ConfigError(*problems)
    return _CONVERTER.structure({**values, **_money(values)}, Containment)


def _money(values: Mapping[str, Any]) -> dict[str, Any]:
    cost = values.get("max_total_cost")
    return {} if cost is None else {"max_total_cost": microdollars(cost)}


def _whole_number(value: object) -> object:
    return _as_int(value, int)


def _duration(value: object) -> object:
    return _as_seconds(value, float)


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "max_total_cost": microdollars,
    "max_total_duration": _duration,
}


def _problems_of(field: Any, values: dict[str, Any], at: str) -> list[tuple[str, str]]:
    """Judge one field alone, so that all problems are told and not only the first."""
    place = f"{at}.{field.name}"
    optional = field.default is None
    if field.name not in values:
        return [] if optional else [(place, "is required")]
    value = values[field.name]
    if value is None:
        return [] if optional else [(place, "must not be null")]
    try:
        reader = _READERS.get(field.name, _whole_number)
        field.validator(None, field, reader(value))
    except (TypeError, ValueError, OverflowError) as error:
        return [(place, str(error).removeprefix(field.name).strip())]
    return []
