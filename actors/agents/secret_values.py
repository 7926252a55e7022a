"""The values of credentials, found by their names and taken out of every text. Pure.

What would be got wrong:

- Who names a credential is the environment: a variable with KEY, TOKEN, SECRET,
  PASSWORD and the like in its name, or a user with a password inside an address
  (``HTTPS_PROXY=http://me:secret@proxy``).
- Texts are cut before they come here, so every beginning of a value that is long
  enough is taken out too. And an error rarely quotes a value as it is: it stands
  there escaped for JSON, for an address, or with its line ends folded.
- Short values are left alone where only the environment named them: the words
  ``on`` and ``us`` are no secret, and stand in every text.
- This is the net below the rope. The rope is that no value is handed on: commands
  get an allow-list of variables, and a key goes into one header.
"""

import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Self

import attrs

# So many letters of a value tell too much; fewer tell nobody anything.
SHOWN: Final = 8
# A longer value is a document; its first part is looked for, and what is left of it stays.
MOST_VALUE: Final = 16_384
# After so many in one text the rest of it is left out.
MOST_FOUND: Final = 1_000
HIDDEN: Final = "[secret]"
_NAMES: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?:^|_)(?:PAT|PWD|AUTH|DSN)(?:_|$)")
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
    """Takes values out of texts: ``values`` whole and in every beginning of at least eight letters.

    ``own`` are values that are taken out however short they are. The cost is one
    search for each value, and nothing where there is none; a text that repeats one
    more than a thousand times ends there.

    Example::

        Redactor(("sk-live-0123456789",)).hide("bad key sk-live-0123...")   # "bad key [secret]..."
    """

    values: tuple[str, ...] = attrs.field(default=(), repr=False)
    own: tuple[str, ...] = attrs.field(default=(), repr=False)
    mark: str = HIDDEN
    # The spellings to look for, by how they begin; the longest beginning that stands in a text is taken out.
    _by_head: Mapping[str, tuple[str, ...]] = attrs.field(init=False, repr=False, eq=False)

    @_by_head.default
    def _spelled(self) -> Mapping[str, tuple[str, ...]]:
        table: dict[str, list[str]] = {}
        long = [each for value in self.values if len(value) >= SHOWN for each in _spellings(value[:MOST_VALUE])]
        long += [each for value in self.own if value for each in _spellings(value[:MOST_VALUE])]
        for each in dict.fromkeys(long):
            table.setdefault(each[:SHOWN], []).append(each)
        return {head: tuple(spelled) for head, spelled in table.items()}

    @classmethod
    def of(cls, environ: Mapping[str, str], *own: str, mark: str = HIDDEN) -> Self:
        """Take the credentials of an environment, and values that are the caller's own."""
        return cls(values_in(environ), tuple(each for each in own if each), mark)

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def hide(self, text: str) -> str:
        """Give the text without the values. One that holds none is given back as it is."""
        heads = [head for head in self._by_head if head in text]
        return self._hidden(text, heads) if heads else text

    def _hidden(self, text: str, heads: Iterable[str]) -> str:
        pieces: list[str] = []
        at = 0
        spans = self._spans(text, heads)
        for begin, end in spans[:MOST_FOUND]:
            if begin >= at:
                pieces += (text[at:begin], self.mark)
            at = max(at, end)
        # Who repeats a credential without end is not worth the time to look.
        return "".join(pieces) if len(spans) > MOST_FOUND else "".join((*pieces, text[at:]))

    def _spans(self, text: str, heads: Iterable[str]) -> list[tuple[int, int]]:
        spans = [
            (found.start(), found.start() + max(_shared(text, found.start(), each) for each in self._by_head[head]))
            for head in heads
            for found in islice(re.finditer(f"(?={re.escape(head)})", text), MOST_FOUND + 1)
        ]
        # At one place the longest first; what overlaps is taken out with it.
        return sorted(spans, key=lambda span: (span[0], -span[1]))


def _shared(text: str, at: int, value: str) -> int:
    """Count how many letters of a value stand at a place, which begins like it."""
    low, high = min(len(value), SHOWN), len(value)
    while low < high:
        middle = (low + high + 1) // 2
        if text.startswith(value[:middle], at):
            low = middle
        else:
            high = middle - 1
    return low


def _quoted(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode(errors="replace"))


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield " ".join(value.split())
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield "".join(letter if letter in _UNQUOTED else _quoted(letter) for letter in value)
