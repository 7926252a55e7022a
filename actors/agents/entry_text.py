"""Text that comes in from outside, made safe and bounded at one place. Pure.

A lone surrogate breaks every later encoding of whatever holds it, and a NUL
ends a text early for half of the world; both become U+FFFD when they enter.
"""

import re
from typing import Any, Final

_BAD: Final = re.compile("[\ud800-\udfff\x00]")
# Letters and marks to Python, and nothing, or a blank, to the eye. U+FE0E and U+FE0F stand in honest pictures.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0d\U000e0100-\U000e01ef]"
)


def clean(text: str) -> str:
    """Join escaped surrogate pairs, and replace what no encoding can carry by U+FFFD."""
    if not _BAD.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


def is_seen(text: str) -> bool:
    """Tell whether all of a text can be seen by whoever reads it: nothing controls, turns a line, or takes no room."""
    return text.isprintable() and _UNSEEN.search(text) is None


def clean_value(value: Any) -> Any:
    """Clean every text in a decoded JSON value, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [clean_value(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_value(item) for key, item in value.items()}
    return value


def bounded(text: str, limit: int) -> str:
    """Keep head and tail within ``limit`` characters, and say how many were left out between them."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"
