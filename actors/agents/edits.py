"""What a call changes in a file, told in lines. Pure.

It is known before the write, and counts only with the call's result: a process may
end in between, and the call, run again, finds its own work and no text from before.
So it is noted with what the write is about to make (`WriteIntended`), and becomes
a row of its own (`Edited`) in the transaction of the result: both stand, or neither.
"""

from collections.abc import Callable
from typing import Final

import attrs

# A longer hunk is not kept; its lines are counted all the same.
MOST_HUNK_CHARS: Final = 64 * 1024


# What a check says of a file that was just written stands behind its write, between these.
_NOTE: Final = "\n[it "
_COMPILES: Final = "compiles"


def with_check(text: str, said: str | None) -> str:
    """Put what a check says of a file behind what its write came to; None is that it compiles."""
    return f"{text}{_NOTE}{_COMPILES if said is None else said}]"


def unsound(text: str) -> str | None:
    """Give what a check had to say of a file in what a write came to; None where it compiles, or none looked."""
    _, found, said = text.partition(_NOTE)
    return said.removesuffix("]") if found and said != f"{_COMPILES}]" else None


@attrs.frozen
class Edit:
    """How the lines of one file change.

    Figures that are None are not known: the file was too large to be looked at.
    ``hunk`` is a unified diff without names, None when it is not kept: too long, no
    text, or text that the agent may not read.
    """

    lines_added: int | None = None
    lines_removed: int | None = None
    hunk: str | None = None

    def uncited(self) -> "Edit":
        """Give it without what the lines say."""
        return attrs.evolve(self, hunk=None)

    def without_secrets(self, hide: Callable[[str], str]) -> "Edit":
        """Give it without the credentials that ``hide`` takes out; one that held line ends leaves no diff behind."""
        if self.hunk is None:
            return self
        hunk = hide(self.hunk)
        return attrs.evolve(self, hunk=hunk if hunk.count("\n") == self.hunk.count("\n") else None)


@attrs.frozen
class Intent:
    """What a call meant to make of a file: the digest of its bytes afterwards, and whether others stood there."""

    after: str
    changes: bool
    edit: Edit = Edit()
