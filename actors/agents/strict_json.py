"""Reading JSON that must be exactly right. Pure.

Size and depth are judged on the raw bytes before anything is parsed, repeated
keys and non-finite numbers are refused, and every refusal has a typed kind:
prose is for people, kinds are for programs.
"""

import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from actors.errors import Refused

MOST_BYTES: Final = 1 << 20
MOST_DEPTH: Final = 64
MOST_ENTRIES: Final = 1024
U64_MAX: Final = 2**64 - 1
U32_MAX: Final = 2**32 - 1
MOST_ID_BYTES: Final = 256
# More digits than any number here may have, and few enough for Python to read.
_MOST_DIGITS: Final = 40


class RefusalKind(StrEnum):
    """Why a document is refused."""

    input_too_large = "input_too_large"
    depth_exceeded = "depth_exceeded"
    collection_too_large = "collection_too_large"
    malformed_json = "malformed_json"
    unknown_field = "unknown_field"
    unknown_variant = "unknown_variant"
    missing_field = "missing_field"
    invalid_scalar = "invalid_scalar"
    type_mismatch = "type_mismatch"
    # Well formed, but not allowed; hosts handle it differently.
    policy_violation = "policy_violation"


class CodecRefused(Refused):
    """A document is not what it must be. ``path`` names the place, ``kind`` why."""

    def __init__(self, kind: RefusalKind, path: str, message: str) -> None:
        self.kind = kind
        self.path = path
        super().__init__(f"{path or 'document'}: {message} ({kind})")


def parse(text: str | bytes, *, most_bytes: int = MOST_BYTES) -> Any:
    """Parse a document within its bounds.

    Raises:
        CodecRefused: too large, too deep, too many entries, or no plain JSON.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > most_bytes:
        raise CodecRefused(RefusalKind.input_too_large, "", f"{len(raw)} bytes, at most {most_bytes}")
    _scan(raw)
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer
        )
    except CodecRefused:
        raise
    except (ValueError, RecursionError) as error:
        raise CodecRefused(RefusalKind.malformed_json, "", str(error)) from None


def _scan(raw: bytes) -> None:
    """Judge depth and entries on the bytes, in one pass; strings are stepped over."""
    entries: list[int] = []
    in_string = escaped = False
    for byte in raw:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"{[":
            entries.append(1)
            if len(entries) > MOST_DEPTH:
                raise CodecRefused(RefusalKind.depth_exceeded, "", f"nested deeper than {MOST_DEPTH}")
        elif byte in b"}]":
            if entries:
                entries.pop()
        elif byte == 0x2C and entries:
            entries[-1] += 1
            if entries[-1] > MOST_ENTRIES:
                raise CodecRefused(
                    RefusalKind.collection_too_large, "", f"more than {MOST_ENTRIES} entries in one container"
                )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise CodecRefused(RefusalKind.malformed_json, "", "a key stands twice in one object")
    return table


def _no_constant(word: str) -> Any:
    raise CodecRefused(RefusalKind.malformed_json, "", f"{word} is no number here")


def _integer(digits: str) -> int:
    # Python refuses to read thousands of digits. The first 40 are past every range
    # already, so the field refuses the number, with its own kind and place.
    return int(digits[:_MOST_DIGITS])


# ── fields ──────────────────────────────────────────────────────────────────

Read = Callable[[Any, str], Any]


class Need(StrEnum):
    """Whether a field must stand."""

    required = "required"
    # May be left out, or null, which is the same.
    optional = "optional"
    # Left out when empty; null is refused.
    omitted_when_empty = "omitted_when_empty"


@attrs.frozen
class Field:
    """One field of a record: its name, how its value is read, and whether it must stand."""

    name: str
    read: Read
    need: Need = Need.required


def read_object(value: Any, at: str, fields: tuple[Field, ...], tags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read an object's fields in order; ``tags`` are keys that the caller has read.

    The order of verdicts is fixed: an object, unknown fields, missing fields, then
    the fields, depth first. Absent fields are left out of the result.

    Raises:
        CodecRefused: the first verdict.
    """
    table = as_object(value, at)
    known = {field.name for field in fields} | set(tags)
    for key in table:
        if key not in known:
            raise CodecRefused(RefusalKind.unknown_field, _at(at, key), "unknown field")
    for field in fields:
        if field.need is Need.required and field.name not in table:
            raise CodecRefused(RefusalKind.missing_field, _at(at, field.name), "is required")
    found: dict[str, Any] = {}
    for field in fields:
        if field.name not in table or (table[field.name] is None and field.need is Need.optional):
            continue
        found[field.name] = field.read(table[field.name], _at(at, field.name))
    return found


def _at(at: str, key: str) -> str:
    # A key may hold anything; it is shown so that it can be printed.
    shown = key.encode("unicode_escape").decode("ascii")[:80]
    return f"{at}.{shown}" if at else shown


def as_object(value: Any, at: str) -> Mapping[str, Any]:
    """Read an object; an array in its place is refused.

    Raises:
        CodecRefused: type_mismatch.
    """
    if not isinstance(value, Mapping):
        raise CodecRefused(RefusalKind.type_mismatch, at, "must be an object")
    return value


def read_tag(table: Mapping[str, Any], at: str) -> str:
    """Read the ``kind`` of a variant.

    Raises:
        CodecRefused: missing_field or type_mismatch.
    """
    place = _at(at, "kind")
    if "kind" not in table:
        raise CodecRefused(RefusalKind.missing_field, place, "is required")
    if not isinstance(table["kind"], str):
        raise CodecRefused(RefusalKind.type_mismatch, place, "must be a text")
    return str(table["kind"])


def string(value: Any, at: str) -> str:
    """Read a text that every encoding can carry."""
    if not isinstance(value, str):
        raise CodecRefused(RefusalKind.type_mismatch, at, "must be a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CodecRefused(RefusalKind.invalid_scalar, at, "holds a lone surrogate") from None
    return value


def identifier(value: Any, at: str) -> str:
    """Read an id: 1 to 256 bytes, without control characters."""
    text = string(value, at)
    bad = not text or len(text.encode()) > MOST_ID_BYTES or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)
    if bad:
        raise CodecRefused(RefusalKind.invalid_scalar, at, "must be 1 to 256 bytes without control characters")
    return text


def u64_text(value: Any, at: str) -> int:
    """Read a whole number up to 2**64 - 1, written as a text. A number in its place is a wrong scalar."""
    if value is None or isinstance(value, list | dict):
        raise CodecRefused(RefusalKind.type_mismatch, at, "must be a whole number as text")
    plain = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20
    if not plain or (value != "0" and value[0] == "0") or int(value) > U64_MAX:
        raise CodecRefused(RefusalKind.invalid_scalar, at, 'must be a whole number up to 2^64-1 as text, such as "12"')
    return int(value)


def whole_number(most: int) -> Read:
    """Read a whole number from 0 to ``most``, written as a number. True is no number, and 1.0 is not whole."""

    def read(value: Any, at: str) -> int:
        if type(value) is not int:
            raise CodecRefused(RefusalKind.type_mismatch, at, "must be a whole number")
        if not 0 <= value <= most:
            raise CodecRefused(RefusalKind.invalid_scalar, at, f"must be from 0 to {most}")
        return value

    return read


u32: Final = whole_number(U32_MAX)


def number(value: Any, at: str) -> int | float:
    """Read a finite number, whole or not. True is no number."""
    if type(value) is not int and type(value) is not float:
        raise CodecRefused(RefusalKind.type_mismatch, at, "must be a number")
    if type(value) is float and not math.isfinite(value):
        raise CodecRefused(RefusalKind.invalid_scalar, at, "must be finite")
    return value


def truth(value: Any, at: str) -> bool:
    """Read true or false; 0 and 1 are neither."""
    if type(value) is not bool:
        raise CodecRefused(RefusalKind.type_mismatch, at, "must be true or false")
    return value


def word(kind: type[StrEnum]) -> Read:
    """Read one word of an enum."""

    def read(value: Any, at: str) -> Any:
        if not isinstance(value, str):
            raise CodecRefused(RefusalKind.type_mismatch, at, "must be a text")
        try:
            return kind(value)
        except ValueError:
            raise CodecRefused(RefusalKind.unknown_variant, at, f"must be one of {', '.join(kind)}") from None

    return read


def many(read: Read) -> Read:
    """Read a list."""

    def read_all(value: Any, at: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise CodecRefused(RefusalKind.type_mismatch, at, "must be a list")
        return tuple(read(item, f"{at}[{place}]") for place, item in enumerate(value))

    return read_all


def opaque(value: Any, at: str) -> Any:
    """Take any JSON as it is, if every reader can carry it: no lone surrogate, no number beyond 64 bits or infinite."""
    if isinstance(value, str):
        return string(value, at)
    if isinstance(value, list):
        return [opaque(item, f"{at}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, dict):
        return {string(key, at): opaque(item, _at(at, key)) for key, item in value.items()}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and not -(2**63) <= value <= U64_MAX:
        raise CodecRefused(RefusalKind.invalid_scalar, at, "must fit into 64 bits")
    return number(value, at)


def carriable(text: str) -> str:
    """Give the text with ``?`` for every lone surrogate: what no encoding can carry would break its writer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def as_read(read: Read) -> Callable[[object, Any, Any], None]:
    """Make a validator for a field of a record, so that what can be made can be written and read again."""

    def validate(_instance: object, field: Any, value: object) -> None:
        try:
            read(value, field.name)
        except CodecRefused as refused:
            raise ValueError(str(refused)) from None

    return validate
