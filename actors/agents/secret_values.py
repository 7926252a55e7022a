"""The values of credentials, found by their names and taken out of every text. Pure.

What would be got wrong:

- Who names a credential is the environment: a variable with KEY, TOKEN, SECRET,
  PASSWORD and the like in its name, or a user with a password inside an address
  (``HTTPS_PROXY=http://me:secret@proxy``).
- Texts are cut before they come here, and whoever reads on from a place of its own
  choice (a cursor, a line number) chooses where a value is cut. So every beginning
  and every ending that is long enough is taken out too, and each line of a value
  that has several.
- An error rarely quotes a value as it is: it stands there escaped for JSON, for an
  address, for a page, in base 64 (a user with a password is sent so), or with its
  line ends folded.
- Short values are left alone where only the environment named them: the words
  ``on`` and ``us`` are no secret, and stand in every text.
- This is the net below the rope. The rope is that no value is handed on: commands
  get an allow-list of variables, and a key goes into one header.
"""

import base64
import html
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Self

import attrs

# So many letters of a value tell too much; fewer tell nobody anything.
SHOWN: Final = 8
# The ending of a value is more often a word that stands in honest texts than its beginning is.
SHOWN_LAST: Final = 12
# Of a value with several lines each one is looked for that is at least so long.
_LINE: Final = 16
# A longer value is a document; its first part is looked for, and what is left of it stays.
MOST_VALUE: Final = 16_384
# After so many in one text the rest of it is left out.
MOST_FOUND: Final = 1_000
HIDDEN: Final = "[secret]"
_NAMES: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|WEBHOOK|CONN(?:ECTION)?_?STR"
    r"|(?:^|_)(?:PAT|PWD|PSWD|PASS|AUTH|DSN|JWT|CREDS?|BEARER)(?:_|$)"
)
# Where a credential lies is no credential, and paths stand in honest messages.
_PLACES: Final = re.compile(r"_(?:FILE|PATH|DIR|SOCK)$|^(?:OLD)?PWD$")
_UNQUOTED: Final = frozenset(string.ascii_letters + string.digits + "-._~")
_USER: Final = re.compile(r"://([^\s/@]*:([^\s/@]+)|[^\s/@:]+)@")


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of the environment holds a credential, by its name."""
    upper = name.upper()
    return _NAMES.search(upper) is not None and _PLACES.search(upper) is None


def values_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the values of credentials in an environment that are long enough to be one."""
    found: list[str] = []
    for name, value in environ.items():
        if is_secret_name(name):
            found.append(value.strip())
        if "://" in value:
            found += [part for match in _USER.finditer(value) for part in match.groups() if part]
    return tuple(dict.fromkeys(each for each in found if len(each) >= SHOWN))


@attrs.frozen
class Redactor:
    """Takes values out of texts: ``values`` whole, in every beginning of at least eight letters, in every long ending.

    ``own`` are values that are taken out however short they are. The cost is some
    eight searches for each value, and nothing where there is none; a text that
    repeats one more than a thousand times ends there.

    Example::

        Redactor(("sk-live-0123456789",)).hide("bad key sk-live-0123...")   # "bad key [secret]..."
    """

    values: tuple[str, ...] = attrs.field(default=(), repr=False)
    own: tuple[str, ...] = attrs.field(default=(), repr=False)
    mark: str = HIDDEN
    # The spellings to look for, by how they begin; the longest beginning that stands in a text is taken out.
    _by_head: Mapping[str, tuple[str, ...]] = attrs.field(init=False, repr=False, eq=False)
    # And by how they end.
    _by_tail: Mapping[str, tuple[str, ...]] = attrs.field(init=False, repr=False, eq=False)

    @_by_head.default
    def _heads(self) -> Mapping[str, tuple[str, ...]]:
        return _grouped((each[:SHOWN], each) for each in self._spelled())

    @_by_tail.default
    def _tails(self) -> Mapping[str, tuple[str, ...]]:
        # What is shorter is taken out whole or not at all, by how it begins.
        return _grouped((each[-_ending(each) :], each) for each in self._spelled() if len(each) > SHOWN)

    def _spelled(self) -> Iterable[str]:
        values = [value for value in self.values if len(value) >= SHOWN]
        return dict.fromkeys(
            each
            for value in (*values, *self.own)
            for each in _spellings(value[:MOST_VALUE])
            # One that lost its blanks may be no more than a word.
            if each and len(each) >= min(SHOWN, len(value))
        )

    @classmethod
    def of(cls, environ: Mapping[str, str], *own: str, mark: str = HIDDEN) -> Self:
        """Take the credentials of an environment, and values that are the caller's own."""
        return cls(values_in(environ), tuple(each for each in own if each), mark)

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def hide(self, text: str) -> str:
        """Give the text without the values. One that holds none is given back as it is."""
        heads = [head for head in self._by_head if head in text]
        tails = [tail for tail in self._by_tail if tail in text]
        return self._hidden(text, heads, tails) if heads or tails else text

    def _hidden(self, text: str, heads: Iterable[str], tails: Iterable[str]) -> str:
        pieces: list[str] = []
        at = 0
        spans = self._spans(text, heads, tails)
        for begin, end in spans[:MOST_FOUND]:
            if begin >= at:
                pieces += (text[at:begin], self.mark)
            at = max(at, end)
        # Who repeats a credential without end is not worth the time to look.
        return "".join(pieces) if len(spans) > MOST_FOUND else "".join((*pieces, text[at:]))

    def _spans(self, text: str, heads: Iterable[str], tails: Iterable[str]) -> list[tuple[int, int]]:
        spans = {
            (at, at + max(_shared(text, at, each) for each in self._by_head[head]))
            for head in heads
            for at in _places(text, head)
        }
        for tail in tails:
            for at in _places(text, tail):
                end = at + len(tail)
                spans.add((end - max(_shared_last(text, end, each) for each in self._by_tail[tail]), end))
        # At one place the longest first; what overlaps is taken out with it.
        return sorted(spans, key=lambda span: (span[0], -span[1]))


def _grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for key, each in pairs:
        table.setdefault(key, []).append(each)
    return {key: tuple(spelled) for key, spelled in table.items()}


def _ending(value: str) -> int:
    """Count how many letters of an ending are as good as the value."""
    return min(SHOWN_LAST, max(SHOWN, len(value) * 3 // 4))


def _places(text: str, part: str) -> Iterator[int]:
    return (found.start() for found in islice(re.finditer(f"(?={re.escape(part)})", text), MOST_FOUND + 1))


def _shared(text: str, at: int, value: str) -> int:
    """Count how many letters of a value stand at a place, which begins like it."""
    return _longest(min(len(value), SHOWN), len(value), lambda size: text.startswith(value[:size], at))


def _shared_last(text: str, end: int, value: str) -> int:
    """Count how many letters of a value stand before a place, where it ends like it."""
    return _longest(_ending(value), min(len(value), end), lambda size: text.startswith(value[-size:], end - size))


def _longest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Give the largest size that holds: the lowest does, and where one holds so do all below it."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _quoted(value: str, form: str) -> str:
    return "".join(
        letter if letter in _UNQUOTED else "".join(form % byte for byte in letter.encode(errors="replace"))
        for letter in value
    )


def _in_base64(value: str) -> Iterator[str]:
    """Spell a value as it stands inside of what is encoded: by the place where it begins these are three ways."""
    data = value.encode(errors="replace")
    for before in range(3):
        # Only letters that nothing but the value decides.
        first, behind = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:behind]


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield " ".join(value.split())
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield html.escape(value)
    yield _quoted(value, "%%%02X")
    yield _quoted(value, "%%%02x")
    if len(value) >= SHOWN:
        yield from _in_base64(value)
    lines = value.splitlines()
    if len(lines) > 1:
        # Where such a line begins with dashes, it is the frame of a key and stands around honest ones too.
        yield from (line for line in map(str.strip, lines) if len(line) >= _LINE and not line.startswith("-----"))
