"""Asking a person on the terminal. Only "y" is a yes.

What is asked about is a model's text. It stands behind a margin, and says how
much of it is not shown: so it can neither fake a question nor hide behind one.

A yes is a yes to what stood on the screen when it was typed. What was typed on
a terminal before that is thrown away, whole lines and half ones.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import threading

import trio

from actors.agents.ports import Approval, ApprovalRequest
from actors.cli.live import Progress
from actors.cli.quoting import asks, content_title, hunk_title, printable, quoted

SHOWN_CHARS = 500
SHOWN_LINES = 15
# How long a question that is over may still be looked after.
LOOK_SECONDS = 0.1
# More than any terminal holds in one line.
LINE_BYTES = 65_536
HELP = """y  allow this one act
n  do not allow it; the agent is told so, and goes on (so does an empty line, and every other word)
s  show all of it, and ask again
"""


class AskOnTerminal:
    """The approver of a run that a person sits in front of. One question at a time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._turn = trio.Lock()
        # Held by the thread that asks. One whose question is over may look a moment longer than the turn.
        self._reading = threading.Lock()

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Ask, and wait for a line.

        Cancellation: nothing was decided, and what was typed is forgotten.
        """
        async with self._turn:
            self._progress.pause()
            over, line = threading.Event(), None
            try:
                line = await trio.to_thread.run_sync(self._ask, request, over, abandon_on_cancel=True)
            finally:
                # Another process may have decided: whoever is asked next must find nobody else reading.
                over.set()
                if line is None:
                    # Half a yes to this question must wait for nobody, also not for the next program.
                    _forget_typed()
                    # The cursor still stands behind the question.
                    sys.stderr.write("\n")
                self._progress.go_on()
        approved = line.strip().lower() == "y"
        return Approval(approved, "" if approved else "the operator said no")

    def _ask(self, request: ApprovalRequest, over: threading.Event) -> str:
        with self._reading:
            return "" if over.is_set() else _ask(request, over)


def _ask(request: ApprovalRequest, over: threading.Event) -> str:
    """Ask until there is an answer that decides, or the question is over."""
    whole = False
    while True:
        hidden = _show(request, whole=whole)
        if not _forget_typed():
            return ""
        sys.stderr.write("Allow it? [y]es, [N]o, " + ("[s]how all, " if hidden else "") + "[?] ")
        sys.stderr.flush()
        answer = _line(over)
        match answer.strip().lower():
            case "s":
                whole = True
            case "?":
                sys.stderr.write(HELP)
            case _:
                return answer


def _line(over: threading.Event) -> str:
    try:
        if sys.stdin.isatty():
            return _typed(sys.stdin.fileno(), over)
        while not over.is_set():
            if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
                return sys.stdin.readline()
        return ""
    except (OSError, ValueError):
        # The terminal has gone away; nobody has said yes.
        return ""


def _typed(terminal: int, over: threading.Event) -> str:
    """Read a line past the buffer of `sys.stdin`, which would keep it from being forgotten."""
    typed = b""
    while not typed.endswith(b"\n"):
        # A terminal hands out one line at a time, and less than one after Ctrl-D.
        ready = select.select([terminal], [], [], LOOK_SECONDS)[0]
        if over.is_set():
            return ""
        if ready:
            part = os.read(terminal, LINE_BYTES)
            if not part:
                break
            typed += part
    return typed.decode(errors="replace")


def _forget_typed() -> bool:
    """Throw away what was typed and not read, also a line without its end; tell whether nothing of it is left."""
    try:
        if sys.stdin.isatty() and _is_in_front(sys.stdin.fileno()):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        return True
    except (OSError, ValueError, termios.error):
        # As when it is read: the terminal has gone away.
        return False


def _is_in_front(terminal: int) -> bool:
    """Tell whether what is typed is for us. A process in the background is stopped as a whole when it flushes."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        # It is not the terminal of our session, which has nothing in its background.
        return True


def _show(request: ApprovalRequest, *, whole: bool) -> bool:
    """Write what is asked for, and tell whether something of it was left out."""
    where = f" (rule {request.rule!r} of layer {request.layer!r})" if request.layer else ""
    width = shutil.get_terminal_size().columns
    target = printable(request.target)
    lines = ["", f"{asks(request.path, request.act, request.tool)}{where}:", *_part(target, width, whole)]
    # The change says what a whole new file hides: where it is another one.
    hunk = (request.hunk or "").removesuffix("\n")
    below = hunk or request.content
    if hunk:
        lines += [hunk_title(hunk), *_part(hunk, width, whole)]
    elif request.content:
        lines += [content_title(request.act, request.tool, request.content), *_part(request.content, width, whole)]
    sys.stderr.write("\n".join(lines) + "\n")
    return not whole and any(_first(text) != text for text in (target, below))


def _part(text: str, width: int, whole: bool) -> list[str]:
    first = text if whole else _first(text)
    left = len(text) - len(first)
    more = [f"... {left:,} more characters are not shown; s shows them"] if left else []
    return quoted(first, width) + more


def _first(text: str) -> str:
    """Give as much as leaves the question and what it is about on one screen."""
    return "\n".join(text[:SHOWN_CHARS].split("\n")[:SHOWN_LINES])
