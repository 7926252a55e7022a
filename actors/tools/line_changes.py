"""How the lines of a file change from one content to another. Pure.

What would be got wrong:

- Comparing lines takes the square of their number and more where many of them are
  alike, and whoever writes the file chooses that. So what is equal at both ends is set
  aside first, by bytes, and the rest is compared within a fixed effort; where that is
  used up, what is left counts as replaced. The result is a right diff then, and no
  short one.
- A line ends at LF and nowhere else, as for `hunks.py`, which can read what is made
  here, up to the number of hunks and the lines that it takes.
- Figures are of bytes, so they are known of every file; a hunk is text, and only of text.
"""

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Final, Literal

from actors.agents.edits import MOST_HUNK_CHARS, Edit

# A larger file is not looked at.
MOST_BYTES: Final = 8 * 1024 * 1024
# Between what is equal at both ends. More lines are not compared: they are replaced. Some 50 ms, on the event loop.
MOST_LINES: Final = 20_000
# Pairs of lines that are looked at, all together: some 30 ms.
MOST_EFFORT: Final = 300_000
CONTEXT: Final = 3
_UNENDED: Final = b"\n\\ No newline at end of file\n"

Lines = Sequence[bytes]
Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


def edit_of(before: bytes | None, after: bytes) -> Edit:
    """Tell how a file changes; ``before`` None is a file that is not there."""
    old, new = before or b"", after
    if max(len(old), len(new)) > MOST_BYTES:
        return Edit()
    if old == new:
        return Edit(0, 0, "")
    head, tail = _equal_ends(old, new)
    middles = old[head : len(old) - tail], new[head : len(new) - tail]
    counts = [each.count(b"\n") + (not each.endswith(b"\n") and bool(each)) for each in middles]
    if max(counts) > MOST_LINES:
        return Edit(counts[1], counts[0])
    above, below = _last_lines(old[:head]), _first_lines(old[len(old) - tail :])
    matcher = _Matcher(_lines(middles[0]), _lines(middles[1]), len(above), len(below))
    changes = [each for each in matcher.get_opcodes() if each[0] != "equal"]
    added = sum(stop - begin for _, _, _, begin, stop in changes)
    removed = sum(end - first for _, first, end, _, _ in changes)
    around, other = ([*above, *_lines(each), *below] for each in middles)
    return Edit(added, removed, _hunk(matcher, around, other, old.count(b"\n", 0, head) - len(above)))


# ── lines ───────────────────────────────────────────────────────────────────


def _equal_ends(old: bytes, new: bytes) -> tuple[int, int]:
    """Count the bytes of the whole lines that are equal at the beginning, and of those at the end."""
    most = min(len(old), len(new))
    head = old.rfind(b"\n", 0, _equal(old, new, most)) + 1
    # Whatever stands behind the first line end of what is equal is whole lines.
    tail = _equal(old[::-1], new[::-1], most - head)
    line_end = old.find(b"\n", len(old) - tail)
    return head, 0 if line_end < 0 else len(old) - line_end - 1


def _equal(old: bytes, new: bytes, most: int) -> int:
    """Count the bytes that are equal from the beginning on, by halves: each byte is compared about twice."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            most = middle - 1
    return low


def _lines(data: bytes) -> list[bytes]:
    """Split at line ends, which stay; only the last line may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _last_lines(data: bytes) -> list[bytes]:
    start = len(data)
    for _ in range(CONTEXT):
        start = data.rfind(b"\n", 0, max(start - 1, 0)) + 1
    return _lines(data[start:])


def _first_lines(data: bytes) -> list[bytes]:
    end = 0
    for _ in range(CONTEXT):
        # Behind the last line end, whatever is left is the last line.
        end = data.find(b"\n", end) + 1 or len(data)
    return _lines(data[:end])


# ── comparing ───────────────────────────────────────────────────────────────


class _Matcher(SequenceMatcher[bytes]):
    """Compares lines within `MOST_EFFORT`; so many equal ones stand above them, and below."""

    def __init__(self, old: Lines, new: Lines, above: int, below: int) -> None:
        self._old, self._sizes, self._ends = old, (len(old), len(new)), (above, below)
        self._left = MOST_EFFORT
        # Lines of which a long text is full are no place to begin with: they go with what stands around them.
        super().__init__(None, old, new, autojunk=True)
        # What looking for the lines up to each one costs: how often it stands on the other side, and itself.
        places: dict[bytes, list[int]] = self.b2j  # type: ignore[attr-defined]  # what the search itself goes by
        self._costs = [0, *accumulate(1 + len(places.get(line, ())) for line in old)]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Find it as the base does; nothing once that would cost more than is left."""
        cost = self._costs[len(self._old) if ahi is None else ahi] - self._costs[alo]
        if cost > self._left:
            return Match(alo, blo, 0)
        self._left -= cost
        return super().find_longest_match(alo, ahi, blo, bhi)

    def get_opcodes(self) -> list[Opcode]:
        """Give the changes, of the lines with those above and below."""
        (old, new), (above, below) = self._sizes, self._ends
        middle = super().get_opcodes()
        old, new = old + above, new + above
        parts: list[Opcode] = [("equal", 0, above, 0, above)]
        for tag, first, end, begin, stop in middle:
            parts.append((tag, first + above, end + above, begin + above, stop + above))
        parts.append(("equal", old, old + below, new, new + below))
        return _joined(parts)


def _joined(parts: Sequence[Opcode]) -> list[Opcode]:
    """Make one of equal lines that follow on equal lines: what is around a change is counted in lines."""
    joined: list[Opcode] = []
    for part in parts:
        if joined and joined[-1][0] == part[0] == "equal":
            before = joined.pop()
            part = ("equal", before[1], part[2], before[3], part[4])
        if part[1] < part[2] or part[3] < part[4]:
            joined.append(part)
    return joined


# ── writing ─────────────────────────────────────────────────────────────────


def _hunk(matcher: _Matcher, old: Lines, new: Lines, skipped: int) -> str | None:
    """Write the changes as a unified diff; None where they are no text, or too long."""
    parts: list[str] = []
    size = 0
    try:
        for line in _written(matcher, old, new, skipped):
            text = line.decode()
            size += len(text)
            if size > MOST_HUNK_CHARS or "\0" in text:
                return None
            parts.append(text)
    except UnicodeDecodeError:
        return None
    return "".join(parts)


def _written(matcher: _Matcher, old: Lines, new: Lines, skipped: int) -> Iterator[bytes]:
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        places = _range(skipped, first[1], last[2]), _range(skipped, first[3], last[4])
        yield "@@ -{} +{} @@\n".format(*places).encode()
        for tag, start, end, begin, stop in group:
            if tag == "equal":
                yield from _marked(b" ", old[start:end])
                continue
            yield from _marked(b"-", old[start:end])
            yield from _marked(b"+", new[begin:stop])


def _marked(mark: bytes, lines: Lines) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield _UNENDED


def _range(skipped: int, start: int, end: int) -> str:
    """Write where lines stand: from the first one on, or behind which one where there are none."""
    count, start = end - start, start + skipped
    return f"{start + 1 if count else start},{count}"
