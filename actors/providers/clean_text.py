"""Make text from outside safe to store and to send. Pure.

A lone surrogate is legal in a Python string and in no encoding: it comes in
with a model's ``\\ud800`` and breaks whatever writes it later, far away from
where it came in. So it is replaced at the door.
"""

from typing import Any


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD; leave all other text as it is."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_tree(value: Any) -> Any:
    """Clean every text in plain JSON data, keys too."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_tree(key): clean_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_tree(item) for item in value]
    return value
