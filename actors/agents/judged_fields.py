"""Records whose fields are judged the same way in a constructor and in a file. Pure.

A judge takes a value and says what is wrong with it, or None. A constructor
raises the first thing that is wrong, as a ValueError that names the field; a
reader collects everything, as a `ConfigError` with the path of each key.

No judge converts a text to a number or a bool to an int: ``"12"`` and ``True``
are mistakes, and a guess would hide them.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeVar

import attrs

from actors.containment.amounts import LARGEST
from actors.errors import ConfigError, kind_word, unknown_key

Judge = Callable[[Any], str | None]
Reader = Callable[[object, str], Any]
T = TypeVar("T")

NOT_YET: Final = "is not supported by this version yet; remove it"
# What no file and no request can carry.
_UNSENDABLE: Final = re.compile("[\ud800-\udfff\x00]")


def judged(
    judge: Judge,
    default: Any = attrs.NOTHING,
    *,
    converter: Callable[[Any], Any] | None = None,
    read: Reader | None = None,
    live: bool = False,
    kw_only: bool = False,
) -> Any:
    """Make a field. ``read`` reads its plain form; ``live`` is an object of this process, which has none."""
    return attrs.field(
        default=default,
        validator=fits,
        converter=converter,
        kw_only=kw_only,
        metadata=judging(judge, read, live),
    )


def judging(judge: Judge, read: Reader | None = None, live: bool = False) -> dict[str, Any]:
    """Give the metadata of a field that is written out with ``attrs.field(validator=fits, ...)``.

    For required fields of public records: a type checker sees through `attrs.field` only.
    """
    return {"judge": judge, "read": read, "live": live}


def fits(_self: object, field: Any, value: Any) -> None:
    """Validate a field by its judge."""
    problem = field.metadata["judge"](value)
    if problem:
        raise ValueError(f"{field.name} {problem}")


# ── judges ──────────────────────────────────────────────────────────────────


def text_problem(value: object) -> str | None:
    """Judge a text that may be empty."""
    if not isinstance(value, str):
        return f"must be a text, not {kind_word(value)}"
    if _UNSENDABLE.search(value):
        return "holds a NUL or half a character, which nothing can carry; remove it"
    return None


def filled_problem(value: object) -> str | None:
    """Judge a text that must hold something."""
    return text_problem(value) or (None if value else "must not be empty")


def said_problem(value: object) -> str | None:
    """Judge a text that must hold more than blanks."""
    problem = text_problem(value)
    if problem:
        return problem
    return None if str(value).strip() else "must not be blank"


def word_problem(value: object) -> str | None:
    """Judge a short text on one line."""
    problem = said_problem(value)
    if problem:
        return problem
    if len(str(value)) > 200 or not str(value).isprintable():
        return "must be 1 to 200 printable characters"
    return None


def flag_problem(value: object) -> str | None:
    """Judge a bool."""
    return None if type(value) is bool else f"must be true or false, not {value!r}"


def whole_number(least: int = 0, most: int = LARGEST) -> Judge:
    """Judge an exact int from ``least`` to ``most``; a bool is none."""

    def judge(value: object) -> str | None:
        if type(value) is not int:
            return f"must be a whole number, not {value!r}"
        if value < least:
            return f"must be at least {least}, and is {value}"
        return None if value <= most else f"must be at most {most}, and is {value}"

    return judge


def seconds_problem(value: object) -> str | None:
    """Judge a finite number of seconds, from 0 on."""
    if type(value) is not float or not math.isfinite(value):
        return f"must be a finite number of seconds, not {value!r}"
    return None if value >= 0 else f"must not be negative, and is {value:g}"


def positive_seconds_problem(value: object) -> str | None:
    """Judge a finite number of seconds above 0."""
    return seconds_problem(value) or (None if value else "must be more than 0 seconds")


def optional(judge: Judge) -> Judge:
    """Judge None, or what ``judge`` judges."""
    return lambda value: None if value is None else judge(value)


def one_of(kind: type[StrEnum]) -> Judge:
    """Judge a member of an enum."""
    names = ", ".join(kind)
    return lambda value: None if isinstance(value, kind) else f"must be one of {names}, not {value!r}"


def instance_of(kind: type) -> Judge:
    """Judge a record of one class."""
    return lambda value: None if isinstance(value, kind) else f"must be {kind.__name__}, not {kind_word(value)}"


def each(judge: Judge, *, least: int = 0, most: int | None = None) -> Judge:
    """Judge a tuple by each of its items; names the place of the first wrong one."""

    def problem(value: object) -> str | None:
        if not isinstance(value, tuple):
            remedy = '; write ["...", "..."]' if isinstance(value, str) else ""
            return f"must be a list, not {kind_word(value)}{remedy}"
        if len(value) < least:
            return "must not be empty"
        if most is not None and len(value) > most:
            return f"has {len(value)} items; keep at most {most}"
        wrong = ((place, judge(item)) for place, item in enumerate(value))
        return next((f"item {place} {text}" for place, text in wrong if text), None)

    return problem


def anything(_value: object) -> None:
    """Judge nothing: an object of this process, which has its own shape."""


# ── converters: a value that does not fit is left for the judge ─────────────


def as_tuple(value: Any) -> Any:
    """Make a list a tuple. A text is no list of letters."""
    return tuple(value) if isinstance(value, list) else value


def as_float(value: Any) -> Any:
    """Make a whole number a float."""
    try:
        return float(value) if type(value) is int else value
    except OverflowError:
        return value


def as_member(kind: type[StrEnum]) -> Callable[[Any], Any]:
    """Make the text of an enum its member."""
    members = {member.value: member for member in kind}
    return lambda value: members.get(value, value) if isinstance(value, str) else value


# ── plain form ──────────────────────────────────────────────────────────────


def as_table(plain: object, at: str) -> Mapping[str, Any]:
    """Give ``plain`` if it is a table.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(plain, Mapping):
        return plain
    remedy = f"; write [{at}]" if isinstance(plain, list) and at.isalpha() else ""
    raise ConfigError((at, f"must be a table, not {kind_word(plain)}{remedy}"))


def read_record(cls: type[T], plain: object, at: str, found: Iterable[tuple[str, str]] = ()) -> T:
    """Read the plain form of a record of judged fields. ``at`` is the path of this table.

    ``found`` are problems that the caller has found; they are reported with the others.

    Raises:
        ConfigError: every problem with the path of its key.
    """
    table = as_table(plain, at)
    fields: dict[str, Any] = {field.name: field for field in attrs.fields(cls)}  # type: ignore[arg-type]
    problems = [*found, *((f"{at}.{key}", unknown_key(key, fields)) for key in table if key not in fields)]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            try:
                values[name] = _read_value(field, table[name], f"{at}.{name}")
            except ConfigError as error:
                problems.extend(error.problems)
        elif field.default is attrs.NOTHING:
            problems.append((f"{at}.{name}", "is required"))
    if problems:
        raise ConfigError(*problems)
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError((at, str(error))) from None


def _read_value(field: Any, plain: Any, at: str) -> Any:
    if field.metadata["live"]:
        if plain not in (None, [], {}):
            raise ConfigError((at, NOT_YET))
        return field.default
    read = field.metadata["read"]
    if read is not None:
        return read(plain, at)
    value = plain if field.converter is None else field.converter(plain)
    problem = field.metadata["judge"](value)
    if problem:
        raise ConfigError((at, problem))
    return value


_AS_IT_IS: Final = frozenset({str, int, float, bool, type(None)})


@lru_cache(maxsize=64)
def _written(kind: type[Any]) -> tuple[tuple[str, bool], ...]:
    """Give the fields of a record class, and which of them are objects of the process."""
    return tuple((field.name, field.metadata["live"]) for field in attrs.fields(kind))


def plain_record(record: Any, at: str) -> dict[str, Any]:
    """Give the plain form of a record of judged fields, every field written out.

    Raises:
        ConfigError: it holds objects of this process, which no file can hold.
    """
    plain: dict[str, Any] = {}
    problems = []
    for name, live in _written(type(record)):  # type: ignore[arg-type]  # a class is hashable
        value = getattr(record, name)
        if not live:
            plain[name] = value if type(value) in _AS_IT_IS else _plain(value, f"{at}.{name}")
        elif value is not None and value != ():
            problems.append((f"{at}.{name}", "is an object of this process and cannot be written down"))
    if problems:
        raise ConfigError(*problems)
    return plain


def _plain(value: Any, at: str) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if hasattr(value, "__fspath__"):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item, at) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return dict(_plain_part(value, at)) if attrs.has(type(value)) else value


# Frozen parts of records, such as the back-off that every contract of a tree shares, with their plain form.
_PARTS: Final[dict[int, tuple[Any, dict[str, Any]]]] = {}
_MOST_PARTS: Final = 256


def _plain_part(part: Any, at: str) -> dict[str, Any]:
    """Give the plain form of a frozen part; it is made once, as contracts of one tree share their parts."""
    known = _PARTS.get(id(part))
    # The part is kept beside its form, so its id cannot come to mean another one.
    if known is not None and known[0] is part:
        return known[1]
    plain = plain_record(part, at)
    if len(_PARTS) >= _MOST_PARTS:
        _PARTS.clear()
    _PARTS[id(part)] = (part, plain)
    return plain
