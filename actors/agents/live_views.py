"""Looking at a live tree: its nodes as views, and the row that other processes read.

Everything is read in one step and nothing is asked of anybody, so an actor that
hangs is seen like any other.

The row is a courtesy: it is written at most once a second by one task that
waits for the store alone. A slow store makes it rarer and holds nobody, and a
failing one ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors.agents.agent import Agent
from actors.agents.live_states import LiveState, WaitFor, actor_state, agent_state
from actors.agents.rows import LiveEnded, LiveSeen
from actors.agents.snapshots import (
    GOAL_CHARS,
    MOST_AGENTS,
    MOST_PATH_CHARS,
    AgentView,
    MailboxView,
    TreeSnapshot,
    encode_snapshot,
)
from actors.containment.slots import Seat, Tally
from actors.errors import StoreError
from actors.ids import depth_of
from actors.runtime.actor import Actor
from actors.runtime.child import Child
from actors.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from actors.agents.tree import Tree

log = logging.getLogger("actors.live")

# A run that is over sooner leaves no row and pays for none.
FIRST_SECONDS: Final = 0.1
LIVE_SECONDS: Final = 1.0
# A tree in which nothing changes is written so often: a reader takes an old row for a process that is gone.
BEAT_SECONDS: Final = 3.0


@attrs.define
class Looked:
    """The views that fit, the tally of their agents, and whether there were more."""

    views: list[AgentView] = attrs.field(factory=list)
    shown: Tally = attrs.field(factory=Tally)
    cut: bool = False


def look(root: Child, most: int | None = None) -> Looked:
    """Show the live nodes, a parent before its children; ``most`` of them, and the rest costs no time."""
    looked, chars, seats = Looked(), 0, dict.fromkeys(Seat, 0)
    for node, deadline in _from_the_top(root):
        chars += len(node.path)
        if most is not None and (len(looked.views) >= most or chars > MOST_PATH_CHARS):
            looked.cut = True
            break
        looked.views.append(_view(node, deadline))
        looked.views += _restarts(node, deadline)
        if isinstance(node, Agent):
            seats[node.seat] += 1
    waiting = seats[Seat.waiting] + seats[Seat.returning]
    looked.shown = Tally(seats[Seat.working], waiting, seats[Seat.queued], seats[Seat.done])
    return looked


def _from_the_top(root: Child) -> Iterator[tuple[Child, float | None]]:
    """Walk without touching what is not asked for, each node with the nearest deadline on its path."""
    stack: list[tuple[Iterator[Child], float | None]] = [(iter((root,)), None)]
    while stack:
        nodes, above = stack[-1]
        node = next(nodes, None)
        if node is None:
            stack.pop()
            continue
        timer = node._timer if isinstance(node, Agent) else None
        own = above if timer is None or not timer.live else timer.at
        deadline = own if above is None or own is None else min(own, above)
        yield node, deadline
        if node.children:
            stack.append((iter(node.children), deadline))


def _view(node: Child, deadline: float | None) -> AgentView:
    if not isinstance(node, Agent):
        return _other_view(node, deadline)
    wait = node.latest_wait
    waits_for = WaitFor.other if wait is None else wait.what
    state = agent_state(node.seat, waits_for, begun=node.task is not None, over=node.over, stopping=node.stopping)
    return AgentView(
        node.path,
        node.depth,
        state.value,
        node.steps,
        node.own_tokens,
        node.about.goal[:GOAL_CHARS],
        node.own_microdollars,
        node.since if node._stop_at is None else node._stop_at,
        deadline,
        restart_at=wait.until if wait is not None and state is LiveState.restart else None,
    )


def _other_view(node: Child, deadline: float | None) -> AgentView:
    """Show a node that is no agent: it holds no slot and spends nothing."""
    mailbox = node.mailbox if isinstance(node, Actor) else None
    begun = node.task is not None
    state = actor_state(begun=begun, idle=mailbox is not None and mailbox.idle, stopping=node.stopping)
    counts = None if mailbox is None else mailbox.statistics()
    return AgentView(
        node.path,
        depth_of(node.path),
        state.value,
        0,
        0,
        type(node).__name__.lower(),
        since=node._stop_at,
        deadline=deadline,
        mailbox=None if counts is None else MailboxView(counts.length, counts.peak),
    )


def _restarts(node: Child, deadline: float | None) -> Iterator[AgentView]:
    """Show the children that a supervisor starts again later: they have no task now."""
    due = node.restarts_due() if isinstance(node, Supervisor) else {}
    for path, at in due.items():
        yield AgentView(
            path, depth_of(path), LiveState.restart.value, 0, 0, "", since=None, deadline=deadline, restart_at=at
        )


# ── the row ─────────────────────────────────────────────────────────────────────


async def keep_live_row(tree: Tree) -> None:
    """Write the row of a live tree while something changes, and take it away at the end.

    Cancellation: the row goes with the next commit.
    """
    assert tree.recorder is not None
    store, row = tree.recorder.store, _Row(tree)
    pause = FIRST_SECONDS
    try:
        while True:
            await trio.sleep(pause)
            pause = LIVE_SECONDS
            seen = row.next(trio.current_time())
            if seen is not None:
                # Waited for, so that at most one is on its way, however slow the store is.
                await store.commit(seen)
    except (StoreError, OverflowError) as error:
        # The run hears of its store by itself; nobody runs for the sake of being looked at.
        log.info("the live row is written no more: %s", error)
    finally:
        row.end(store)


class _Row:
    """What was last written of a tree, and when."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._last: TreeSnapshot | None = None
        self._at = 0.0

    def next(self, now: float) -> LiveSeen | None:
        """Give the row that is to be written; None while nothing has changed, or nothing lives."""
        tree = self._tree
        if tree.root is None or tree.root.exit is not None:
            return None
        snapshot = tree.snapshot(MOST_AGENTS)
        timeless = snapshot.timeless()
        if timeless == self._last and now - self._at < BEAT_SECONDS - LIVE_SECONDS / 2:
            return None
        self._last, self._at = timeless, now
        return LiveSeen(tree.run_id, encode_snapshot(snapshot))

    def end(self, store: Any) -> None:
        """Have the row taken away if there may be one."""
        if self._last is None:
            return
        try:
            store.append_nowait(LiveEnded(self._tree.run_id))
        except StoreError as error:
            log.info("the live row was left: %s", error)
