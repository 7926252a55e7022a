"""The text of a task file becomes plain data: TOML, and single values set over it.

Whatever the file holds, the answer is a table or a `ConfigError`. The parser
alone does not promise that: numbers of thousands of digits and deep nesting
leave it as other errors, and a name may lead to a device that never ends. So a
document that is handed on is short and shallow, and every whole number in it
fits into 64 bits; nobody after this needs to fear any of it.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from actors.errors import ConfigError

Problems = list[tuple[str, str]]

MOST_BYTES: Final = 4 * 1024**2
# No key of a task file lies deeper than half of this.
MOST_DEPTH: Final = 16
LEAST_NUMBER: Final = -(2**63)
# A token ceiling of 2**64 - 1 means unlimited.
LARGEST_NUMBER: Final = 2**64 - 1

# A key as TOML has it: bare or quoted parts between dots.
_PART: Final = r"""[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*'"""
_ASSIGNMENT: Final = re.compile(rf"\s*(?P<key>(?:{_PART})(?:\s*\.\s*(?:{_PART}))*)\s*=(?P<value>.*)", re.DOTALL)


def read_document(source: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a file and set the overrides, which are ``KEY=VALUE``, over what it says.

    Raises:
        ConfigError: the file is no readable TOML, or as `overridden`.
    """
    return overridden(_parse(source), overrides)


def overridden(document: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set values, which are ``KEY=VALUE``, over those of a document, in place, and give it.

    Raises:
        ConfigError: every override that cannot be set, and every value that is too deep or too large for any key.
    """
    problems = [problem for text in overrides if (problem := _override(document, text)) is not None]
    problems += _absurdities(document)
    if problems:
        raise ConfigError(*problems)
    return document


def _parse(source: Path) -> dict[str, Any]:
    place = str(source)
    raw = _bytes(source)
    try:
        # Some editors begin a file with a byte order mark.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError((place, f"is not UTF-8 (at line {line}); save it as UTF-8")) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError((place, f"is no TOML: {error}")) from None
    except RecursionError:
        raise ConfigError((place, "is nested too deep")) from None
    except ValueError:
        # The parser hands digits to int(), which takes thousands of them for an attack.
        raise ConfigError((place, "holds a number that is too large")) from None


def _bytes(source: Path) -> bytes:
    place = str(source)
    try:
        # Without waiting: opening a pipe would last until somebody writes into it.
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError((place, "is a pipe or a device; name a task file"))
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError((place, "there is no such file")) from None
    except IsADirectoryError:
        raise ConfigError((place, "is a directory; name a task file")) from None
    except OSError as error:
        raise ConfigError((place, f"cannot be read: {error.strerror}")) from None
    except ValueError:
        raise ConfigError((place, "is no path of a file")) from None
    if len(raw) > MOST_BYTES:
        raise ConfigError((place, f"is longer than {MOST_BYTES // 1024**2} MiB, so it is no task file"))
    return raw


# ── single values ───────────────────────────────────────────────────────────


def _override(document: dict[str, Any], text: str) -> tuple[str, str] | None:
    """Set one value, and say what hinders that. A key that nobody knows is refused when the document is read."""
    found = _ASSIGNMENT.fullmatch(text)
    if found is None:
        return (f"--set {text}", 'must be KEY=VALUE, such as contract.max_steps=3 or prices."some.model".input="0.15"')
    parts = [part.strip("\"'") for part in re.findall(_PART, found["key"])]
    table = document
    for depth, part in enumerate(parts[:-1], 1):
        below = table.setdefault(part, {})
        if not isinstance(below, dict):
            return (f"--set {found['key']}", f"{'.'.join(parts[:depth])} is not a table")
        table = below
    table[parts[-1]] = _value(found["value"])
    return None


def _value(raw: str) -> Any:
    """Read a TOML value; what is none is a text: ``--set provider.model=small``."""
    try:
        read = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):
        return raw
    # Text with line ends in it may happen to be more than one statement.
    return read["value"] if len(read) == 1 else raw


# ── what no key has ─────────────────────────────────────────────────────────


def _absurdities(document: Mapping[str, Any]) -> Problems:
    """Find what is too deep or too large, without recursion: dotted keys nest as deep as they like."""
    problems: Problems = []
    waiting: list[tuple[str, Any, int]] = [("", document, 0)]
    while waiting:
        place, value, depth = waiting.pop()
        if isinstance(value, dict | list) and depth > MOST_DEPTH:
            problems.append((place, "is nested too deep"))
        elif isinstance(value, dict):
            waiting += [(f"{place}.{key}" if place else key, below, depth + 1) for key, below in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{place}[{number}]", below, depth + 1) for number, below in enumerate(value)]
        elif isinstance(value, int) and not LEAST_NUMBER <= value <= LARGEST_NUMBER:
            problems.append((place, "is too large a number"))
    return problems
