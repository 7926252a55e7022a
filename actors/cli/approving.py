"""Asking a person on the terminal. Only "y" is a yes."""

from __future__ import annotations

import sys

import trio

from actors.agents.ports import Approval, ApprovalRequest
from actors.cli.live import Progress

SHOWN_CHARS = 500


class AskOnTerminal:
    """The approver of a run that a person sits in front of. One question at a time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._turn = trio.Lock()

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Ask, and wait for a line.

        Cancellation: nothing was decided; the line that is typed later goes nowhere.
        """
        async with self._turn:
            self._progress.pause()
            try:
                line = await trio.to_thread.run_sync(_ask, request, abandon_on_cancel=True)
            finally:
                self._progress.go_on()
        approved = line.strip().lower() == "y"
        return Approval(approved, "" if approved else "the operator said no")


def _ask(request: ApprovalRequest) -> str:
    where = f" (rule {request.rule!r} of layer {request.layer!r})" if request.layer else ""
    sys.stderr.write(f"\n{request.path} asks to {request.act}: {_printable(request.target)}{where}\n")
    if request.content:
        sys.stderr.write(f"{_printable(request.content[:SHOWN_CHARS])}\n")
    sys.stderr.write("Allow it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline()


def _printable(text: str) -> str:
    """Take control characters out: what a model wrote must not move the cursor of the person who decides."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
