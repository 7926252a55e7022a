"""Text of a model on a person's terminal, so that it cannot be taken for a word of the program.

Every line of it stands behind a margin, also the second half of a long one:
what the program itself says begins at the edge.
"""

from __future__ import annotations

from rich.cells import chop_cells

MARGIN = "  │ "


def printable(text: str) -> str:
    """Escape line ends and what drives a terminal: the whole is one line."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def quoted(text: str, width: int) -> list[str]:
    """Give a text line by line, behind a margin and folded to ``width``; what drives a terminal is escaped."""
    room = max(width - len(MARGIN), 1)
    lines = [printable(line) for line in text.expandtabs().split("\n")]
    return [f"{MARGIN}{part}" for line in lines for part in chop_cells(line, room) or [""]]
