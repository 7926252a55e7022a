"""Amounts are exact whole numbers: never a bool, never a float, never negative.

A negative draw would raise a ceiling, and ``True`` is an int to Python; so the
type is tested exactly, at the door and nowhere else.
"""

from typing import Any, Final

LARGEST: Final = 2**63 - 1
UNLIMITED: Final = 2**64 - 1


def whole(name: str, value: object, *, most: int = LARGEST) -> int:
    """Return ``value`` if it is an exact int from 0 to ``most``.

    Raises:
        TypeError: it is no int, or it is a bool.
        ValueError: it is negative or too large.
    """
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, and is {value}")
    if value > most:
        raise ValueError(f"{name} is too large: {value}, at most {most}")
    return value


def exact(_instance: object, attribute: Any, value: Any) -> None:
    """Validate a field of a record as `whole` does."""
    whole(attribute.name, value)
