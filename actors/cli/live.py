"""The tree while it runs, on standard error.

On a terminal it is a picture that is drawn ten times a second; elsewhere, and
under CI, it is one line for each event that people care about.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from rich.live import Live

from actors.agents.tree import Tree
from actors.cli.pictures import console, event_line, live_picture

REFRESH_SECONDS = 0.1


class Progress:
    """Shows a run to a person. It is the run's observer; attach the tree when it is open.

    ``stream`` prints every event as a JSON line on standard output instead.
    """

    def __init__(self, *, quiet: bool, stream: bool = False) -> None:
        self._console = console(stderr=True)
        self._quiet = quiet
        self._stream = stream
        self._drawn = not quiet and self._console.is_terminal and not os.environ.get("CI")
        self._live: Live | None = None
        self.tree: Tree | None = None

    def event(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        if not self._stream and (self._quiet or self._drawn):
            return
        text = msgspec.json.encode(event).decode()
        if self._stream:
            print(text, flush=True)
        elif (line := event_line(text)) is not None:
            self._console.print(line, markup=False)

    def say(self, text: str) -> None:
        """Tell the person something, above the picture."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def pause(self) -> None:
        """Take the picture away while a person is asked."""
        if self._live is not None:
            self._live.stop()

    def go_on(self) -> None:
        """Draw again."""
        if self._live is not None:
            self._live.start()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Draw the tree for as long as the block.

        Cancellation: the picture is taken away.
        """
        if not self._drawn:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._draw)
                yield
                nursery.cancel_scope.cancel()
        self._live = None

    async def _draw(self) -> None:
        while True:
            await trio.sleep(REFRESH_SECONDS)
            if self.tree is not None and self._live is not None and self._live.is_started:
                limits = self.tree.limits
                picture = live_picture(self.tree.snapshot(), limits.max_total_tokens, limits.max_total_cost)
                self._live.update(picture, refresh=True)
