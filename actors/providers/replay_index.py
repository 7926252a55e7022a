"""Where each exchange of a recording stands: the file read once, strictly, and only places kept.

An index of 100,000 exchanges takes some tens of megabytes, however long the answers are.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from actors.errors import ConfigError
from actors.providers.exchange_codec import BadLine, Exchange, Start, decode_line
from actors.providers.recording_file import MOST_LINE, one_series, own_version

log = logging.getLogger("actors.providers")

# Requests of one task that an unknown one is compared with.
MOST_COMPARED: Final = 2_000
# Of one process, so many requests at most; the order over several is one number.
_SESSION: Final = 1 << 40


@attrs.define
class ReplayIndex:
    """The places of all exchanges by number, in the order of the lines, and which numbers answer a key.

    ``start`` is what the first line says. A key's numbers stand in the order in which the requests were made.
    """

    start: Start
    places: array[int] = attrs.Factory(lambda: array("q"))
    lengths: array[int] = attrs.Factory(lambda: array("q"))
    lines: array[int] = attrs.Factory(lambda: array("q"))
    # Which exchange has the first turns of each, -1 for none, how many turns each has, and which is its first.
    bases: array[int] = attrs.Factory(lambda: array("q"))
    _counts: array[int] = attrs.Factory(lambda: array("q"))
    _tasks: list[str] = attrs.Factory(list)
    # Of the process whose lines are read.
    _asked: dict[int, int] = attrs.Factory(dict)
    _orders: array[int] = attrs.Factory(lambda: array("q"))
    _given: bytearray = attrs.Factory(bytearray)
    # Most keys have one exchange: a number alone is a fifth of a queue.
    _by_key: dict[bytes, int | deque[int]] = attrs.Factory(dict)
    # Only for requests that were estimated under another key than they were made.
    _by_estimate: dict[bytes, list[int]] = attrs.Factory(dict)
    _by_task: dict[str, array[int]] = attrs.Factory(dict)

    def __len__(self) -> int:
        return len(self.places)

    def add(self, exchange: Exchange, session: int, place: int, length: int, line: int) -> None:
        """Take in the exchange of one line.

        Raises:
            BadLine: it counts turns of an exchange that has not so many, or does not stand before it.
        """
        number, request = len(self.places), exchange.request
        base = self._asked.get(request.after, -1) if request.same else -1
        if request.same and (base < 0 or self._counts[base] < request.same):
            raise BadLine(f"no exchange {request.after} with {request.same} turns stands before it")
        self.bases.append(base)
        self._counts.append(request.same + len(request.turns))
        self._asked[exchange.asked] = number
        self.places.append(place)
        self.lengths.append(length)
        self.lines.append(line)
        self._orders.append(session * _SESSION + exchange.asked)
        self._given.append(False)
        key = bytes.fromhex(request.key)
        known = self._by_key.get(key)
        if known is None:
            self._by_key[key] = number
        elif isinstance(known, int):
            self._by_key[key] = deque((known, number))
        else:
            known.append(number)
        if exchange.estimated_as is not None:
            self._by_estimate.setdefault(bytes.fromhex(exchange.estimated_as), []).append(number)
        first = request.turns[0] if request.turns else ""
        task = first if base < 0 else self._tasks[base]
        self._tasks.append(task)
        self._by_task.setdefault(task, array("q")).append(number)

    def begin(self) -> None:
        """Take in the exchanges of another process from now on: they count anew."""
        self._asked.clear()

    def sort(self) -> None:
        """Put the exchanges of each key into the order in which they were asked for."""
        for key, numbers in self._by_key.items():
            if not isinstance(numbers, int):
                self._by_key[key] = deque(sorted(numbers, key=self._orders.__getitem__))

    def take(self, key: str) -> int | None:
        """Give the next exchange of a key and strike it out; None when there is none left."""
        number = self._next(key)
        if number is not None:
            self._given[number] = True
        return number

    def estimated(self, key: str) -> int | None:
        """Give the exchange that a request of this key would come to; None when none is left."""
        number = self._next(key)
        if number is not None:
            return number
        numbers = self._by_estimate.get(bytes.fromhex(key), ())
        return next((number for number in numbers if not self._given[number]), None)

    def _next(self, key: str) -> int | None:
        known = self._by_key.get(bytes.fromhex(key))
        if isinstance(known, int):
            return None if self._given[known] else known
        while known and self._given[known[0]]:
            known.popleft()
        return known[0] if known else None

    def knows(self, key: str) -> bool:
        """Tell whether the recording has the key at all."""
        return bytes.fromhex(key) in self._by_key

    @property
    def left(self) -> int:
        """Count the exchanges that were not given yet."""
        return self._given.count(False)

    def alike(self, task: str) -> Iterable[int]:
        """Give exchanges to compare an unknown request with: those of its task, else the first of all."""
        return self._by_task.get(task, range(len(self)))[:MOST_COMPARED]


def read_index(path: Path) -> ReplayIndex:
    """Read a recording whole, and check every line. A last line that was cut is left out with a warning.

    Raises:
        ConfigError: it cannot be read, or a line is none of a recording; names the line.
    """
    index: ReplayIndex | None = None
    session = 0
    try:
        for number, place, length, line in _lines(path):
            if isinstance(line, Start):
                index = _begun(index, line, path, number)
                index.begin()
                session += 1
            elif index is None:
                raise _wrong(path, number, "stands before the start of the recording")
            else:
                _add(index, line, session, place, length, path, number)
    except OSError as error:
        raise ConfigError((str(path), f"cannot be read: {error.strerror or error}")) from error
    if index is None or not len(index):
        raise ConfigError((str(path), "holds no exchange: record a run into it first"))
    index.sort()
    return index


def _add(index: ReplayIndex, line: Exchange, session: int, place: int, length: int, path: Path, number: int) -> None:
    try:
        index.add(line, session, place, length, number)
    except BadLine as error:
        raise _wrong(path, number, f"is no line of a recording: {error}") from None


def _lines(path: Path) -> Iterator[tuple[int, int, int, Start | Exchange]]:
    """Give number, place, length and content of each line."""
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            try:
                yield number, place, len(line), decode_line(line)
            except BadLine as error:
                whole = line.endswith(b"\n") or len(line) >= MOST_LINE
                if whole or number == 1:
                    raise _wrong(path, number, f"is no line of a recording: {error}") from None
                log.warning("%s: line %d, the last one, was cut off and is left out", path, number)
            place += len(line)


def _begun(index: ReplayIndex | None, start: Start, path: Path, number: int) -> ReplayIndex:
    if not one_series(start.version, own_version()):
        text = f"was recorded by version {start.version}, and this is {own_version()}: record the run again"
        raise _wrong(path, number, text)
    if index is None:
        return ReplayIndex(start)
    if (start.provider, start.model) != (index.start.provider, index.start.model):
        raise _wrong(path, number, "begins the recording of another provider or model: one file holds one")
    return index


def _wrong(path: Path, number: int, text: str) -> ConfigError:
    return ConfigError((f"{path}, line {number}", text))
