"""The head of a Markdown file: a few keys between two lines of ``---``, read strictly. Pure.

What is read is a small part of YAML, by the rules of YAML 1.2: keys with plain or
quoted texts, numbers, true and false, null, lists of these, and texts of several
lines after ``|`` or ``>``. So ``on`` and ``yes`` are texts, ``12:30`` is a text and
``010`` is ten. Nothing refers to anything else: anchors, aliases, tags, tables in
tables and a key that stands twice are refused, each with its line, and what a
file can cost is bounded by its length.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

import attrs

from actors.errors import ConfigError

Scalar = str | int | float | bool | None
Value = Scalar | tuple[Scalar, ...]

MOST_HEAD: Final = 16_384
MOST_KEYS: Final = 64
MOST_ITEMS: Final = 256
MOST_DIGITS: Final = 18

_FENCE: Final = re.compile(r"---[ \t]*")
_END: Final = re.compile(r"(?:---|\.\.\.)[ \t]*")
_KEY: Final = re.compile(r"(?P<key>[A-Za-z_][A-Za-z0-9_.-]{0,63})[ ]*:(?:[ \t]+(?P<value>.*))?", re.DOTALL)
_ITEM: Final = re.compile(r"(?P<indent>[ ]*)-(?:[ \t]+(?P<value>.*))?", re.DOTALL)
_BLOCK: Final = re.compile(r"(?P<kind>[|>])(?P<chomp>[+-]?)[ \t]*(?:#.*)?")
# Line ends have been taken away; a tab is allowed, and judged where it stands.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")
_INT: Final = re.compile(r"[-+]?[0-9]+")
_OTHER_INT: Final = re.compile(r"0o[0-7]+|0x[0-9A-Fa-f]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS: Final = {**dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False)}
_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX: Final = {"x": 2, "u": 4, "U": 8}
_SPECIAL: Final = {
    "&": "an anchor", "*": "an alias", "!": "a tag", "{": "a table in a table", "%": "a directive",
    "@": "a reserved sign", "`": "a reserved sign", "}": "a stray }", "]": "a stray ]", ",": "a stray comma",
}  # fmt: skip


@attrs.frozen
class FrontMatter:
    """What stands above the text of a file, with the line of each key, and the text below it."""

    values: Mapping[str, Value]
    lines: Mapping[str, int]
    body: str


def read_front_matter(text: str, at: str, *, loose: bool = False) -> FrontMatter:
    """Split a file into its head and its text; a file without a head is all text.

    ``loose`` takes ``key: a text: with colons`` for a text, as files of other tools have it.

    Raises:
        ConfigError: what cannot be read, at ``PATH:LINE``.
    """
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    if not _FENCE.fullmatch(lines[0]):
        return FrontMatter({}, {}, "\n".join(lines))
    size = 0
    for place, line in enumerate(lines[1:], 1):
        if _END.fullmatch(line):
            reading = _Reading(lines[1:place], at, loose)
            reading.read()
            return FrontMatter(reading.values, reading.lines, "\n".join(lines[place + 1 :]))
        size += len(line) + 1
        if size > MOST_HEAD:
            raise ConfigError((f"{at}:1", f"begins with more than {MOST_HEAD} characters between the lines of ---"))
    raise ConfigError((f"{at}:1", "opens with --- and never closes; write --- below the keys"))


class _Reading:
    """One reading of the lines between the fences."""

    def __init__(self, lines: list[str], at: str, loose: bool) -> None:
        self._lines = lines
        self._at = at
        self._loose = loose
        self._next = 0
        self.values: dict[str, Value] = {}
        self.lines: dict[str, int] = {}

    def read(self) -> None:
        """Read all lines.

        Raises:
            ConfigError: the first that cannot be read.
        """
        for place, line in enumerate(self._lines):
            if _CONTROL.search(line):
                raise self._wrong(place, "holds a control character; remove it")
        while self._next < len(self._lines):
            place, line = self._next, self._lines[self._next]
            self._next += 1
            if not _is_blank(line):
                self._key(place, line)

    def _wrong(self, place: int, text: str) -> ConfigError:
        # Lines are counted from 1, and the first is the fence.
        return ConfigError((f"{self._at}:{place + 2}", text))

    def _key(self, place: int, line: str) -> None:
        if line[0] in " \t":
            raise self._wrong(place, "is indented; tables in tables and continued lines are not read, write | for them")
        found = _KEY.fullmatch(line)
        if found is None:
            raise self._wrong(place, "is no `key: value`")
        key, raw = found["key"], (found["value"] or "").strip(" \t")
        if key in self.values:
            raise self._wrong(place, f"{key} stands twice, first in line {self.lines[key]}; keep one")
        if len(self.values) >= MOST_KEYS:
            raise self._wrong(place, f"is one key more than {MOST_KEYS}")
        self.lines[key] = place + 2
        self.values[key] = self._value(place, raw)

    def _value(self, place: int, raw: str) -> Value:
        block = _BLOCK.fullmatch(raw)
        if block is not None:
            return self._block(block["kind"], block["chomp"])
        if not raw or raw.startswith("#"):
            return self._items()
        if raw[0] == "[":
            return self._flow(place, raw)
        return self._scalar(place, raw)

    # ── lists ───────────────────────────────────────────────────────────────

    def _items(self) -> Value:
        """Read the ``- item`` lines that follow; none of them is null."""
        items: list[Scalar] = []
        indent: str | None = None
        while self._next < len(self._lines):
            place, line = self._next, self._lines[self._next]
            found = None if _is_blank(line) else _ITEM.fullmatch(line)
            if found is None and not _is_blank(line):
                break
            self._next += 1
            if found is None:
                continue
            if indent is not None and found["indent"] != indent:
                raise self._wrong(place, "is indented otherwise than the item above; lists in lists are not read")
            indent = found["indent"]
            items.append(self._item(place, (found["value"] or "").strip(" \t")))
            if len(items) > MOST_ITEMS:
                raise self._wrong(place, f"is one item more than {MOST_ITEMS}")
        return None if indent is None else tuple(items)

    def _item(self, place: int, raw: str) -> Scalar:
        if raw[:1] in ("[", "|", ">") or raw == "-" or raw.startswith("- "):
            raise self._wrong(place, "an item must be a plain value; lists and long texts in lists are not read")
        return self._scalar(place, raw)

    def _flow(self, place: int, raw: str) -> tuple[Scalar, ...]:
        items: list[Scalar] = []
        rest = raw[1:].lstrip(" \t")
        while not rest.startswith("]"):
            if not rest or rest[0] == "#":
                raise self._wrong(place, "a list must end with ] in its own line")
            item, rest = self._flow_item(place, rest)
            items.append(item)
            if len(items) > MOST_ITEMS:
                raise self._wrong(place, f"has more than {MOST_ITEMS} items")
            rest = rest.lstrip(" \t")
            if rest.startswith(","):
                rest = rest[1:].lstrip(" \t")
            elif not rest.startswith("]"):
                raise self._wrong(place, "items of a list are parted by commas, and the list ends with ]")
        self._no_more(place, rest[1:])
        return tuple(items)

    def _flow_item(self, place: int, rest: str) -> tuple[Scalar, str]:
        if rest[0] in "'\"":
            return self._quoted(place, rest)
        if rest[0] == "[":
            raise self._wrong(place, "lists in lists are not read")
        end = re.search(r"[,\[\]{}]", rest)
        if end is None:
            raise self._wrong(place, "a list must end with ] in its own line")
        return self._scalar(place, rest[: end.start()].rstrip(" \t")), rest[end.start() :]

    # ── single values ───────────────────────────────────────────────────────

    def _scalar(self, place: int, raw: str) -> Scalar:
        if raw[:1] in ("'", '"'):
            text, rest = self._quoted(place, raw)
            self._no_more(place, rest)
            return text
        if raw[:1] in _SPECIAL:
            raise self._wrong(place, f"{_SPECIAL[raw[0]]} is not read; put the text in quotes if it is one")
        plain = re.split(r"(?:^|[ \t])#", raw, maxsplit=1)[0].rstrip(" \t")
        if plain[:1] in ("|", ">", "?", "-") and (len(plain) == 1 or plain[1] in " \t" or plain[0] in "|>"):
            raise self._wrong(place, "is no plain value; put the text in quotes if it is one")
        if not self._loose and re.search(r":(?:[ \t]|$)", plain):
            raise self._wrong(place, "holds a colon with a blank after it; put the text in quotes")
        return self._resolved(place, plain)

    def _resolved(self, place: int, plain: str) -> Scalar:
        if plain in _NULLS:
            return None
        if plain in _WORDS:
            return _WORDS[plain]
        if _INT.fullmatch(plain) or _OTHER_INT.fullmatch(plain):
            if len(plain) > MOST_DIGITS:
                raise self._wrong(place, f"is a number of more than {MOST_DIGITS} digits")
            return int(plain, 0) if _OTHER_INT.fullmatch(plain) else int(plain)
        if _NO_NUMBER.fullmatch(plain):
            raise self._wrong(place, "must be a finite number; put it in quotes if it is a text")
        if _FLOAT.fullmatch(plain):
            number = float(plain)
            if not math.isfinite(number):
                raise self._wrong(place, "is too large a number")
            return number
        return plain

    def _quoted(self, place: int, raw: str) -> tuple[str, str]:
        return self._single(place, raw) if raw[0] == "'" else self._double(place, raw)

    def _single(self, place: int, raw: str) -> tuple[str, str]:
        found = re.match(r"'((?:[^']|'')*+)'(?!')", raw)
        if found is None:
            raise self._wrong(place, "a quoted text must end in its own line")
        return found[1].replace("''", "'"), raw[found.end() :]

    def _double(self, place: int, raw: str) -> tuple[str, str]:
        parts: list[str] = []
        at = 1
        while at < len(raw):
            letter = raw[at]
            if letter == '"':
                return "".join(parts), raw[at + 1 :]
            if letter != "\\":
                parts.append(letter)
                at += 1
                continue
            meant, at = self._escape(place, raw, at + 1)
            parts.append(meant)
        raise self._wrong(place, "a quoted text must end in its own line")

    def _escape(self, place: int, raw: str, at: int) -> tuple[str, int]:
        sign = raw[at : at + 1]
        if sign in _ESCAPES:
            return _ESCAPES[sign], at + 1
        digits = raw[at + 1 : at + 1 + _HEX.get(sign, 0)]
        if sign in _HEX and re.fullmatch(rf"[0-9A-Fa-f]{{{_HEX[sign]}}}", digits):
            number = int(digits, 16)
            if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                return chr(number), at + 1 + len(digits)
        raise self._wrong(place, f"\\{sign} is no escape; write \\\\ for a backslash")

    def _no_more(self, place: int, rest: str) -> None:
        if rest.strip(" \t") and not re.match(r"[ \t]+#", rest):
            raise self._wrong(place, "has something after its value")

    # ── texts of several lines ──────────────────────────────────────────────

    def _block(self, kind: str, chomp: str) -> str:
        taken: list[str] = []
        indent = 0
        while self._next < len(self._lines):
            line = self._lines[self._next]
            if line.strip(" "):
                own = len(line) - len(line.lstrip(" "))
                if not own:
                    break
                indent = indent or own
                if own < indent:
                    raise self._wrong(self._next, "is indented less than the line that the text begins with")
            taken.append(line[indent:] if indent else "")
            self._next += 1
        text = "\n".join(taken) if kind == "|" else _folded(taken)
        bare = text.rstrip("\n")
        if chomp == "-" or not bare:
            return bare
        return f"{bare}\n" if chomp == "" else f"{text}\n"


def _folded(lines: list[str]) -> str:
    """Join lines by blanks; an empty line ends a line, and a line that is indented further stays one."""
    text = ""
    for place, line in enumerate(lines):
        before = lines[place - 1] if place else ""
        if not line:
            text += "\n"
        elif not place or not before:
            # The line end of the text before an empty line is folded away with it.
            text += line
        elif line[0] in " \t" or before[:1] in (" ", "\t"):
            text += f"\n{line}"
        else:
            text += f" {line}"
    return text


def _is_blank(line: str) -> bool:
    bare = line.strip(" \t")
    return not bare or bare[0] == "#"
