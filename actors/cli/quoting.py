"""Text of a model on a person's terminal, so that it cannot be taken for a word of the program.

Every line of it stands behind a margin, also the second half of a long one:
what the program itself says begins at the edge.
"""

from __future__ import annotations

from rich.cells import chop_cells

from actors.agents.entry_text import is_seen

MARGIN = "  │ "
# Of a redirection only the line is known; nobody knows yet what will stand in the file.
_SHELLS = frozenset({"shell", "shell_start"})


def printable(text: str) -> str:
    """Escape line ends, what drives a terminal, and what nobody would see: the whole is one line."""
    if is_seen(text):
        return text
    return "".join(letter if is_seen(letter) else ascii(letter)[1:-1] for letter in text)


def asks(path: str, act: str, tool: str) -> str:
    """Say who asks for what, and with which tool."""
    return f"{path} asks to {act}" + (f" with {printable(tool)}" if tool and tool != act else "")


def content_title(act: str, tool: str, content: str) -> str:
    """Say what stands below a question: what a file is to hold, why it is asked, or the line behind it."""
    if act == "exec":
        return "for:"
    if tool in _SHELLS:
        return f"the line that would {act} it, {len(content):,} characters:"
    return f"content, {len(content):,} characters:"


def hunk_title(hunk: str) -> str:
    """Say what stands below a question in place of a whole file."""
    lines = hunk.split("\n")
    added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
    return f"the change, +{added:,} -{removed:,} lines:"


def quoted(text: str, width: int) -> list[str]:
    """Give a text line by line, behind a margin and folded to ``width``; what drives a terminal is escaped."""
    room = max(width - len(MARGIN), 1)
    lines = [printable(line) for line in text.expandtabs().split("\n")]
    return [f"{MARGIN}{part}" for line in lines for part in chop_cells(line, room) or [""]]
