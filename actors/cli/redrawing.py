"""A picture that is drawn over the one before, also when the terminal was made narrower in between.

Rich takes away as many rows as it drew lines. A terminal that was made narrower has
folded them into more, and what is left of the old picture would stand above the new
one for good. So the rows that folding added are taken away first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

_WHOLE_LINE: Final = 2
# What a terminal does with a line that is longer than it is wide.
CUT: Final = "\x1b[?7l"
FOLD: Final = "\x1b[?7h"


class Redrawing:
    """Draws on one console. One picture stands there at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # The lines that stand there, in cells, and how wide the terminal was when they came.
        self._lines: Sequence[int] = ()
        self._width = 0

    def draw(self, live: Live, picture: Group) -> None:
        """Draw over what stands there."""
        self.settle()
        # A terminal may be narrower already than it says. Lines that it cuts instead of folding them add no rows
        # to those that we will come to know of.
        self._console.file.write(CUT)
        live.update(picture, refresh=True)
        self._console.file.write(FOLD)
        self._console.file.flush()
        self._lines = [line.cell_len for line in picture.renderables if isinstance(line, Text)]
        self._width = self._console.width

    def settle(self) -> None:
        """Take away the rows by which what stands there has grown. Before anybody else moves the cursor, too."""
        width, height = self._console.size
        more = min(folded_rows(self._lines, width), height) - len(self._lines)
        if width < self._width and more > 0 and folds(os.environ):
            line = ((ControlType.ERASE_IN_LINE, _WHOLE_LINE), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*line * more))
        self._width = width

    def gone(self) -> None:
        """Hear that nothing stands there any more."""
        self._lines = ()


def folded_rows(lines: Sequence[int], width: int) -> int:
    """Count the rows of lines of so many cells on a terminal of ``width``."""
    return sum(max(-(-cells // max(width, 1)), 1) for cells in lines)


def folds(environment: Mapping[str, str]) -> bool:
    """Tell whether a terminal folds again what it shows when it is made narrower: nearly all do, and tmux for them."""
    if environment.get("TMUX"):
        return True
    cuts = environment.get("XTERM_VERSION") or environment.get("STY") or environment.get("TERM") == "linux"
    return not cuts
