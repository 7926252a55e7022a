"""The tree while it runs, on standard error.

On a terminal it is a picture that is drawn ten times a second, with a line above
it for what needs a person; elsewhere, on a terminal that cannot move its cursor
and under CI, it is one line for each event that people care about.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import trio
from rich.live import Live

from actors.agents.snapshots import MOST_AGENTS
from actors.agents.tree import Tree
from actors.assembly.run_settings import ApproveMode
from actors.cli.again import command
from actors.cli.live_picture import ECHO_CHARS, live_picture
from actors.cli.phrases import is_cut, phrase, progress_line, unheld
from actors.cli.pictures import console
from actors.cli.redrawing import Redrawing
from actors.tools.sandbox_grants import ASKED_BY_DEFAULT

REFRESH_SECONDS = 0.1
WRITE_REMEDY = 'nobody is asked in this run, so set policy.defaults.write to "allow" or "deny"'


class Progress:
    """Shows a run to a person. It is the run's observer; attach the tree when it is open.

    ``stream`` prints every event as a JSON line on standard output instead.
    """

    def __init__(self, *, quiet: bool, stream: bool = False) -> None:
        self._console = console(stderr=True)
        self._quiet = quiet
        self._stream = stream
        # A colour may be forced on a pipe; a picture that moves may not.
        able = sys.stderr.isatty() and not self._console.is_dumb_terminal and not os.environ.get("CI")
        self._drawn = not quiet and able and not (stream and sys.stdout.isatty())
        self._live: Live | None = None
        self._redrawing = Redrawing(self._console)
        self._asked = self._paused = False
        self._told: set[str] = set()
        # Acts that somebody decided from another process, by agent, step and act.
        self._decided: set[tuple[Any, ...]] = set()
        # What the task says of who is asked; None when it says nothing.
        self.approve: ApproveMode | None = None
        # Whether no to everything is the answer, because of that or because there is no terminal.
        self.asks_nobody = False
        self.tree: Tree | None = None
        # The file in which the run can be looked up later; None for one that is thrown away.
        self.store: str | None = None

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        if self._stream:
            # As `trace --json` writes it; its sequence is known only once its row is written.
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            print(json.dumps({"at": at, **msgspec.to_builtins(event)}), flush=True)
        elif not self._quiet:
            self._follow(event)

    def _follow(self, event: Mapping[str, Any]) -> None:
        if event.get("kind") == "approval_decided" and event.get("by") == "operator":
            self._decided.add(_act_of(event))
            self.say(phrase(event))
            return
        if event.get("kind") == "sandbox":
            # Each command has such an event; what people must know is told once.
            self._warn(event)
            return
        line, remedy = progress_line(event), self._remedy(event)
        if line is None:
            return
        if self._drawn:
            # Beside a picture only what a person can mend is told, and once.
            wrong = event.get("unsound") or (event["kind"] == "gate" and event.get("verdict") == "errored")
            if not (remedy or wrong) or not self._is_news(line):
                return
            self.say(line + remedy)
        else:
            self._console.print(line + (remedy if self._is_news(remedy) else ""), markup=False)
        if self.tree is not None and self.store is not None and is_cut(event):
            whole = f"whole texts: {command('trace', '--export', self.tree.run_id, '--store', self.store)}"
            if self._is_news(whole):
                self.say(whole)

    def _warn(self, event: Mapping[str, Any]) -> None:
        # The command of a check is the operator's own, and whoever can be asked has allowed each of the others.
        asks = self.asks_nobody and event.get("ordinal") is not None
        lacking = unheld(event, asks=asks)
        if lacking is None or not self._is_news(lacking):
            return
        remedy = f"; {WRITE_REMEDY}" if asks and ASKED_BY_DEFAULT in event.get("not_held", ()) else ""
        self.say(f"warning: {lacking}{remedy}")

    def _is_news(self, text: str) -> bool:
        news = text not in self._told
        self._told.add(text)
        return news

    def _remedy(self, event: Mapping[str, Any]) -> str:
        """Say what to do about an act that was denied although no person was asked."""
        if event.get("kind") != "refused" or event.get("source") != "approver" or self._asked:
            return ""
        if _act_of(event) in self._decided:
            return ""
        if self.approve == ApproveMode.deny:
            return '; run.approve = "deny" says no to whatever is asked'
        remedy = 'set run.approve to "all" or "defer", or allow it in [policy]'
        return f"; nobody could be asked without a terminal: {remedy}"

    def say(self, text: str) -> None:
        """Tell the person something, above the picture. The terminal folds it, so that it can be copied whole."""
        if not self._quiet:
            self._redrawing.settle()
            self._console.print(text, markup=False, soft_wrap=True)

    def pause(self) -> None:
        """Take the picture away while a person is asked."""
        self._asked = self._paused = True
        self._take_away()

    def _take_away(self) -> None:
        if self._live is not None:
            self._redrawing.settle()
            self._live.stop()
            self._redrawing.gone()
            self._live = None

    def go_on(self) -> None:
        """Draw again, below whatever was written meanwhile."""
        self._paused = False

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Draw the tree for as long as the block.

        Cancellation: the picture is taken away.
        """
        if not self._drawn:
            yield
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._draw)
                yield
                nursery.cancel_scope.cancel()
        finally:
            self._take_away()

    async def _draw(self) -> None:
        while True:
            await trio.sleep(REFRESH_SECONDS)
            if self.tree is None or self._paused:
                continue
            if self._live is None:
                # A new one each time: one that was stopped believes that its picture still stands above the cursor,
                # where by now a question and its answer stand, and would draw over them.
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            snapshot = self.tree.snapshot(MOST_AGENTS)
            width, height = self._console.size
            self._redrawing.draw(self._live, live_picture(snapshot, width - ECHO_CHARS, height))


def _act_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(event.get(key) for key in ("path", "step", "act"))
