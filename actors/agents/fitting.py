"""Which of its turns an agent's model reads whole, kept from request to request. Pure.

The newest results stay whole within a budget of characters, and older ones are
shortened to stubs. Every call keeps its result: only the text gets shorter. The
first turn and the model's own turns are kept.

From the newest results back there are three parts:

    stubs only | by what is left | whole

The last begins at the newest result that does not fit with all behind it, and
that place only moves on. In the middle a result is whole if what is left has
room for it, so one may come back whole when a newer one has become a stub. Each
takes at least a character of what is left: the part is bounded by the budget,
and never by the run. So a request costs what changed, and the copy of the list.
"""

from collections.abc import Iterable
from typing import Final

from actors.agents.growing import Growing
from actors.agents.ports import ResultsTurn, Turn

# Characters of observations that one request carries; 24,000 tokens of about 4 characters.
TRANSCRIPT_CHARS: Final = 96_000
STUB_CHARS: Final = 200


class Fitting:
    """The turns of one agent as its model reads them. ``budget`` is in characters of results."""

    def __init__(self, first: Iterable[Turn] = (), budget: int = TRANSCRIPT_CHARS) -> None:
        # What the model reads, and sums over it.
        self.sent: Growing[Turn] = Growing()
        self._budget = budget
        self._last: Turn | None = None
        # Of each turn that has results with text: its place among all turns, itself, its size, its stub once made.
        self._places: list[int] = []
        self._wholes: list[ResultsTurn] = []
        self._sizes: list[int] = []
        self._stubs: list[ResultsTurn | None] = []
        # Those from `_whole` on are whole, and take `_inside`; those before `_middle` are stubs.
        self._whole = 0
        self._middle = 0
        self._inside = 0
        for turn in first:
            self.append(turn)

    @property
    def last(self) -> Turn:
        """Give the last turn, whole."""
        assert self._last is not None, "there is always a first turn"
        return self._last

    def append(self, turn: Turn) -> None:
        """Add a turn."""
        self._last = turn
        self.sent.append(turn)
        self._count(turn)

    def put_last(self, turn: Turn) -> None:
        """Put a turn in the place of the last one, which it only lengthens."""
        place = len(self.sent) - 1
        if self._places and self._places[-1] == place:
            self._forget_last(_chars(turn))
        self._last = turn
        self.sent.put(place, turn)
        self._count(turn)

    def _forget_last(self, size_now: int) -> None:
        was = self._sizes.pop()
        # Otherwise what was a stub might have to become whole again, and the last part would move back.
        assert size_now >= was, "a turn only gets longer"
        for kept in (self._places, self._wholes, self._stubs):
            kept.pop()
        if self._whole > len(self._places):
            self._whole -= 1
            self._middle = min(self._middle, self._whole)
        else:
            self._inside -= was

    def _count(self, turn: Turn) -> None:
        size = _chars(turn)
        if size:
            assert isinstance(turn, ResultsTurn), "only results have a size"
            self._places.append(len(self.sent) - 1)
            self._wholes.append(turn)
            self._sizes.append(size)
            self._stubs.append(None)
            self._inside += size

    def turns(self) -> tuple[Turn, ...]:
        """Give what the model reads: the newest results whole within the budget, older ones as stubs."""
        if self._whole or self._inside > self._budget:
            self._shorten()
        return self.sent.items()

    def _shorten(self) -> None:
        while self._inside > self._budget:
            self._inside -= self._sizes[self._whole]
            self._whole += 1
        left, place = self._budget - self._inside, self._whole
        while left and place:
            place -= 1
            whole = self._sizes[place] <= left
            turn = self._wholes[place] if whole else self._stub(place)
            left = max(left - _chars(turn), 0)
            self.sent.put(self._places[place], turn)
        # What was judged by what was left before, and is not any more.
        for older in range(self._middle, place):
            self.sent.put(self._places[older], self._stub(older))
        self._middle = place

    def _stub(self, place: int) -> ResultsTurn:
        made = self._stubs[place]
        if made is None:
            whole = self._wholes[place]
            texts = tuple(map(_stub, whole.texts))
            made = self._stubs[place] = whole if texts == whole.texts else ResultsTurn(texts)
        return made


def _chars(turn: Turn) -> int:
    """Count what may be shortened."""
    return sum(map(len, turn.texts)) if isinstance(turn, ResultsTurn) else 0


def _stub(text: str) -> str:
    if len(text) <= STUB_CHARS:
        return text
    left_out = len(text) - STUB_CHARS
    return f"{text[:STUB_CHARS]}\n[{left_out} more characters of this older result left out; ask again if needed]"
