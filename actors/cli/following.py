"""`actors show --live`: a run of another process, from the row that it keeps in the store.

Nothing is asked of that process, so it cannot be disturbed. One that is gone is known
by its lease, at once on the machine it ran on; one that hangs is seen by the age of its row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final

import attrs
from rich.console import Console, Group
from rich.live import Live

from actors.agents.snapshots import AgentView, TreeSnapshot, decode_snapshot
from actors.assembly.reporting import OLD_SECONDS, lost_runs
from actors.cli import interrupts
from actors.cli.live_picture import ECHO_CHARS, live_picture
from actors.cli.phrases import PAUSES, brief_time
from actors.cli.pictures import MOST_ROWS, console
from actors.cli.redrawing import Redrawing
from actors.cli.viewing import draw, reading
from actors.errors import ConfigError
from actors.store.readers import Reader

REFRESH_SECONDS: Final = 1.0
# A run that is silent for so long is followed no further.
GONE_SECONDS: Final = 60.0
# How long the first row of a run that has only begun is waited for.
PATIENCE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.1
ENDLESS_ROWS: Final = MOST_ROWS + 10


@attrs.frozen
class Seen:
    """What a live run last showed of itself; ``age`` is in seconds."""

    snapshot: TreeSnapshot
    taken_at: str
    age: float


def show_live(run: str, store: str, as_json: bool) -> int:
    """Draw a run that is live until it ends, and then its end; or print one snapshot as JSON.

    Gives exit code 1 for a run whose process is gone, or seems to be.

    Raises:
        ConfigError: there is no such run, or it is not live.
    """
    with reading(store) as reader:
        tree_id = reader.resolve(run)
        first = _first(reader, tree_id)
        if as_json:
            print(json.dumps(as_object(first)))
            return 0
        out = console()
        try:
            _follow(reader, tree_id, first, out)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return interrupts.STOPPED
        draw(reader, tree_id, out)
        if _ended(reader, tree_id) is not None:
            return 0
        lost = bool(lost_runs(reader, tree_id))
    text = "has no end, and its process is gone"
    silent = f"was not heard of for {GONE_SECONDS:g} s: its process seems to be gone"
    print(f"{tree_id} {text if lost else silent}", file=sys.stderr)
    return 1


def _first(reader: Reader, tree_id: str) -> Seen:
    """Give what is there, waiting a little for a run that has only begun."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        ended = _ended(reader, tree_id)
        if ended is not None:
            how = "is paused" if ended in PAUSES else "has ended"
            raise ConfigError(("run", f"{tree_id} is not live, it {how} ({ended}): leave out --live to see it"))
        seen = _look(reader, tree_id)
        if seen is not None:
            return seen
        lost = bool(lost_runs(reader, tree_id))
        if lost or time.monotonic() >= deadline:
            gone = "and its process is gone" if lost else "and shows nothing of itself, so its process is likely gone"
            raise ConfigError(("run", f"{tree_id} has no end {gone}: leave out --live to see it"))
        time.sleep(PAUSE_SECONDS)


def _ended(reader: Reader, tree_id: str) -> str | None:
    root = reader.run(tree_id)
    assert root is not None, "the caller resolved the id"
    return None if root.status in ("running", "draining") else root.outcome or root.status


def _look(reader: Reader, tree_id: str) -> Seen | None:
    row = reader.live(tree_id)
    if row is None:
        return None
    try:
        snapshot = decode_snapshot(row.snapshot)
    except ValueError as error:
        text = "runs under another version of actors: use that one to look at it"
        raise ConfigError(("run", f"{tree_id} {text}")) from error
    return Seen(snapshot, row.taken_at, max(reader.age(row.taken_at) or 0.0, 0.0))


def _seen_until_the_end(reader: Reader, tree_id: str, seen: Seen) -> Iterator[Seen]:
    """Give what is seen of a run, once a second, until it has ended, its process is gone, or it is silent for long."""
    while _ended(reader, tree_id) is None:
        # A run at its end takes its row away; then the last one is as old as it is.
        seen = _look(reader, tree_id) or attrs.evolve(seen, age=reader.age(seen.taken_at) or 0.0)
        yield seen
        if seen.age > GONE_SECONDS or lost_runs(reader, tree_id):
            return
        time.sleep(REFRESH_SECONDS)


def _follow(reader: Reader, tree_id: str, first: Seen, out: Console) -> None:
    able = sys.stdout.isatty() and not out.is_dumb_terminal
    live = Live(console=out, auto_refresh=False, transient=True) if able else None
    redrawing = Redrawing(out)
    taken_at = ""
    with interrupts.raised(), live or nullcontext():
        for seen in _seen_until_the_end(reader, tree_id, first):
            if live is not None:
                width, height = out.size
                redrawing.draw(live, _picture(seen, width - ECHO_CHARS, height))
            elif seen.taken_at != taken_at:
                # Where no picture can be drawn over another, only news is printed.
                taken_at = seen.taken_at
                out.print(Group(_picture(seen, out.width, ENDLESS_ROWS), ""))
                sys.stdout.flush()
        redrawing.settle()


def _picture(seen: Seen, width: int, height: int) -> Group:
    """Draw what is seen: an old one as it stood, saying so, and another one with the time that has passed."""
    snapshot, age = seen.snapshot, seen.age
    if age > OLD_SECONDS:
        return live_picture(snapshot, width, height, [f"as of {brief_time(age)} ago: its process may be gone"])
    left = None if snapshot.seconds_left is None else max(snapshot.seconds_left - age, 0.0)
    return live_picture(attrs.evolve(snapshot, now=snapshot.now + age, seconds_left=left), width, height)


# ── as JSON ─────────────────────────────────────────────────────────────────────


def as_object(seen: Seen) -> dict[str, Any]:
    """Give a snapshot as plain data; times are spans in seconds, as the clock behind them is of another process."""
    snapshot = seen.snapshot
    ledger = attrs.asdict(snapshot.ledger)
    halt = ledger.pop("halt")
    return {
        "run_id": snapshot.run_id,
        "taken_at": seen.taken_at,
        "age_seconds": round(seen.age, 3),
        "seconds_left": snapshot.seconds_left,
        "max_concurrent": snapshot.max_concurrent,
        "peak_working": snapshot.peak_working,
        "total": attrs.asdict(snapshot.total),
        "tiers": {depth: attrs.asdict(tally) for depth, tally in snapshot.tiers.items()},
        "ledger": ledger,
        "halt": None if halt is None else {"kind": halt["kind"], "by": halt["by"], "path": halt["path"]},
        "agents": [_agent_object(agent, snapshot.now) for agent in snapshot.agents],
        "more": snapshot.more,
    }


def _agent_object(agent: AgentView, now: float) -> dict[str, Any]:
    told = attrs.asdict(agent)
    since, deadline, restart_at = (told.pop(name) for name in ("since", "deadline", "restart_at"))
    return {
        **told,
        "state_seconds": _distance(now, since),
        "seconds_left": _distance(deadline, now),
        "restart_in_seconds": _distance(restart_at, now),
    }


def _distance(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else round(max(later - earlier, 0.0), 3)
