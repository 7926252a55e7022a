"""The one place for a terminal: the first commit stands, and every later one is refused. Pure."""

from actors.agents.terminals import Terminal
from actors.errors import TerminalAlreadyCommitted


class TerminalSlot:
    """Holds at most one terminal, for one run. A restored run gets its slot refilled."""

    __slots__ = ("_terminal",)

    def __init__(self, terminal: Terminal | None = None) -> None:
        self._terminal = terminal

    @classmethod
    def empty(cls) -> "TerminalSlot":
        """Make a slot that holds nothing."""
        return cls()

    @classmethod
    def holding(cls, terminal: Terminal) -> "TerminalSlot":
        """Make a slot that is filled already: that of a restored run."""
        return cls(terminal)

    @property
    def is_committed(self) -> bool:
        """Whether a terminal stands."""
        return self._terminal is not None

    def get(self) -> Terminal | None:
        """Give the terminal that stands, None while there is none."""
        return self._terminal

    def commit(self, terminal: Terminal) -> Terminal:
        """Put the terminal in, and return it.

        Raises:
            TerminalAlreadyCommitted: one stands already, even an equal one; nothing changed.
        """
        if self._terminal is not None:
            raise TerminalAlreadyCommitted(self._terminal, terminal)
        self._terminal = terminal
        return terminal
