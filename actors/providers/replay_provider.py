"""A provider that answers from a recording, without a model and without a socket.

Each recorded answer is given once. Equal requests get theirs in the order in which they were asked for when they
were recorded; between different requests no order is kept, so agents that work at the same time may come in any.
A request that is not in the recording is refused, and told what it is most like: the run has left the recorded
one, and nothing after that would mean anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs
import trio

from actors.agents.entry_text import clean
from actors.agents.ports import Completion, CompletionRequest, Estimate
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.closing import Closing
from actors.providers.estimates import raw_prompt_tokens
from actors.providers.exchange_codec import (
    BadLine,
    Exchange,
    Fingerprint,
    closest,
    decode_line,
    first_other_turn,
    linked,
    text_of,
    what_differs,
)
from actors.providers.replay_index import read_index

SHOWN_CHARS: Final = 120
REMEDY: Final = "undo what changed the request, or record the run again"


class ReplayProvider(Closing):
    """Answer from the file that a `RecordingProvider` wrote.

        ReplayProvider("run.jsonl")

    It goes by the name and the model of the provider that was recorded, estimates as that one did, and opens no
    connection. Errors are replayed as well; the wait after one is the caller's own, and is waited again.

    Raises:
        ConfigError: the file is no whole recording; names the line.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._index = read_index(self._path)
        self._file: int | None = None

    def __repr__(self) -> str:
        return f"ReplayProvider({str(self._path)!r}, {self.left} of {len(self._index)} answers left)"

    @property
    def name(self) -> str:
        """Name the provider that was recorded."""
        return self._index.start.provider

    @property
    def default_model(self) -> str | None:
        """Give the model that the recorded provider was configured with."""
        return self._index.start.model

    @property
    def takes_effort(self) -> bool:
        """Say that ``effort`` is part of what an answer is found by."""
        return True

    @property
    def endpoint(self) -> None:
        """Say that no connection is opened."""
        return

    @property
    def left(self) -> int:
        """Count the recorded answers that were not given yet: 0 when a run was replayed whole."""
        return self._index.left

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give what the recorded provider said of this request; a guess for one that will be refused."""
        number = self._index.estimated(linked(request).key)
        if number is not None:
            try:
                return self._read(number).estimate
            except (OSError, BadLine):
                # The request itself says what is wrong with the file.
                pass
        return Estimate(raw_prompt_tokens(request), request.max_output_tokens)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Give the next recorded answer to this request.

        Checkpoint: always.
        Cancellation: the answer is used up.

        Raises:
            ProviderError: as recorded; or of kind request, when the recording has no answer left for this request.
        """
        # Taken before the first await, so answers go out in the order the calls came in.
        came = self._came(request)
        await trio.lowlevel.checkpoint()
        if isinstance(came, ProviderError):
            raise came
        return came

    async def aclose(self) -> None:
        """Close the file.

        Cancellation: it is closed all the same.
        """
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # ── inside ──────────────────────────────────────────────────────────────

    def _came(self, request: CompletionRequest) -> Completion | ProviderError:
        asked = linked(request)
        number = self._index.take(asked.key)
        try:
            if number is None:
                return self._refused(self._why(asked.whole(), request))
            exchange = self._read(number)
        except (OSError, BadLine) as error:
            return self._refused(f"cannot be read any more: {error}")
        if exchange.request.key != asked.key:
            return self._refused("was changed while it was replayed")
        return exchange.came

    def _read(self, number: int) -> Exchange:
        """Read an exchange; a line is read from the system's cache faster than a thread would be found.

        Raises:
            OSError: the file cannot be read.
            BadLine: it was changed.
        """
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        line = os.pread(self._file, self._index.lengths[number], self._index.places[number])
        exchange = decode_line(line)
        if not isinstance(exchange, Exchange):
            raise BadLine("it was changed")
        return exchange

    def _refused(self, why: str) -> ProviderError:
        # Nothing was sent, so nothing is charged.
        return ProviderError(ProviderErrorKind.request, f"{self._path}: {why}", usage=Usage())

    def _why(self, asked: Fingerprint, request: CompletionRequest) -> str:
        """Say what is wrong with a request that the recording has no answer for."""
        if self._index.knows(asked.key):
            return f"all recorded answers to request {asked.key} were given already; {REMEDY}"
        task = asked.turns[0] if asked.turns else ""
        known: dict[int, tuple[str, ...]] = {}
        found = closest(asked, ((number, self._whole(number, known)) for number in self._index.alike(task)))
        assert found is not None, "a recording holds an exchange"
        number, other = found
        parts = "; ".join(what_differs(asked, other))
        seen = self._shown(asked, other, request)
        line = self._index.lines[number]
        return f"has no answer to request {asked.key}; it is most like that of line {line}: {parts}{seen}; {REMEDY}"

    def _whole(self, number: int, known: dict[int, tuple[str, ...]]) -> Fingerprint:
        """Read a request with all its turns; ``known`` fills with those of each that was read."""
        request, base = self._read(number).request, self._index.bases[number]
        if base >= 0:
            # It stands before, and has the same task: where all of a task are read in order, it is known.
            before = known[base] if base in known else self._whole(base, known).turns
            request = attrs.evolve(request, turns=(*before[: request.same], *request.turns), after=0, same=0)
        known[number] = request.turns
        return request

    def _shown(self, asked: Fingerprint, other: Fingerprint, request: CompletionRequest) -> str:
        """Show the beginning of the first turn that differs, as it is now and as it was."""
        place = first_other_turn(asked, other)
        if place >= len(request.turns):
            return ""
        shown = f", now {_short(text_of(request.turns[place]))}"
        # Of a recorded request only its last turn is known in words.
        return shown + (f", then {_short(other.shown)}" if place == len(other.turns) - 1 else "")


def _short(text: str) -> str:
    text = clean(text)
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
