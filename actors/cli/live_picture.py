"""The picture of a tree that is running. It fits the screen it is drawn on; nothing is decided here.

A run draws its own tree so, and `actors show --live` the tree of another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group
from rich.text import Text

from actors.agents.live_states import LiveState, state_words
from actors.agents.snapshots import AgentView, TreeSnapshot
from actors.cli.phrases import brief_time, shortened
from actors.cli.pictures import MOST_ROWS, that_fit
from actors.containment.limits import dollars

# Who works first, then whoever needs somebody, then who waits for what passes by itself.
ORDER: Final = {
    state.value: place
    for place, state in enumerate(
        (
            LiveState.working,
            LiveState.for_human,
            LiveState.for_money,
            LiveState.for_rate,
            LiveState.for_mailbox,
            LiveState.waiting,
            LiveState.for_child,
            LiveState.restart,
            LiveState.stopping,
            LiveState.for_slot,
            LiveState.init,
        )
    )
}
COLOURS: Final = {
    LiveState.working.value: "green",
    LiveState.for_human.value: "yellow",
    LiveState.restart.value: "red",
    LiveState.stopping.value: "red",
    LiveState.for_slot.value: "dim",
    LiveState.init.value: "dim",
}
PATH_CHARS: Final = 30
# A terminal writes ^C where the cursor stands: at the end of the last line, which must not be the edge.
ECHO_CHARS: Final = 2
GAP: Final = "  "
# On a narrow screen steps give way to the goal, and then money, in the order of `_cells`.
GIVING_WAY: Final = (3, 5)
LEAST_GOAL: Final = 16


def live_picture(snapshot: TreeSnapshot, width: int, height: int, notes: Sequence[str] = ()) -> Group:
    """Draw a tree that is running within a screen: figures, ``notes``, and the agents with their state."""
    # Whatever the height, there is room for one agent, or the count of all, and for the cursor.
    figures = _folded(_live_figures(snapshot), width)[: max(height - 2 - len(notes), 1)]
    lines = [Text(line, "bold") for line in figures]
    lines += [Text(note, "yellow") for note in notes]
    agents = sorted(snapshot.agents, key=lambda agent: ORDER.get(agent.state, len(ORDER)))
    # The last line of a screen stays free for the cursor; the count of those who are not shown takes one, too.
    rows = max(min(MOST_ROWS, height - 1 - len(lines)), 1)
    shown = agents[: rows - 1] if snapshot.more else that_fit(agents, rows)[0]
    unseen = len(agents) - len(shown)
    lines += _live_lines(shown, snapshot.now, width)
    if snapshot.more or unseen:
        lines.append(Text(_rest(unseen, snapshot.more), "dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines)


def _rest(unseen: int, more: dict[str, int]) -> str:
    """Say how many agents have no line; of those that nobody listed, what they do."""
    count = unseen + sum(more.values())
    if not more:
        return f"… and {count:,} more agents"
    states = ", ".join(f"{number:,} {state}" for state, number in more.items())
    return f"… and {count:,} more agents, of them {states}" if unseen else f"… and {count:,} more agents: {states}"


def _live_lines(agents: Sequence[AgentView], now: float, width: int) -> Iterator[Text]:
    digits = max((len(str(agent.steps)) for agent in agents), default=0)
    columns = [list(cells) for cells in zip(*(_cells(agent, now, digits) for agent in agents), strict=True)]
    # A column in which nobody has anything is left out.
    widths = [max(map(len, cells)) for cells in columns]
    for gives_way in GIVING_WAY:
        if agents and width - sum(each + len(GAP) for each in widths if each) < LEAST_GOAL:
            widths[gives_way] = 0
    for row, agent in enumerate(agents):
        path, state, *figures = (cells[row] for cells in columns)
        line = Text(f"{path:<{widths[0]}}", "bold", no_wrap=True)
        line.append(f"{GAP}{state:<{widths[1]}}", f"not bold {COLOURS.get(agent.state, 'cyan')}")
        for figure, room in zip(figures, widths[2:], strict=True):
            if room:
                line.append(f"{GAP}{figure:>{room}}", "not bold dim")
        for rest in (*_rare(agent, now), shortened(agent.goal)):
            if rest:
                line.append(f"{GAP}{rest}", "not bold")
        line.rstrip()
        yield line


def _cells(agent: AgentView, now: float, digits: int) -> tuple[str, ...]:
    """Give what stands in columns: path, state, for how long, steps, tokens, money."""
    until = None if agent.restart_at is None else agent.restart_at - now
    return (
        _tail(agent.path),
        state_words(agent.state, until),
        "" if agent.since is None else brief_time(now - agent.since),
        f"step {agent.steps:>{digits}}",
        f"{agent.spent_tokens:,} tokens" if agent.spent_tokens else "",
        f"${dollars(agent.spent_microdollars)}" if agent.spent_microdollars else "",
    )


def _rare(agent: AgentView, now: float) -> Iterator[str]:
    """Give what only few have, so that it is worth no column."""
    if agent.deadline is not None:
        yield f"{brief_time(agent.deadline - now)} left"
    if agent.mailbox is not None:
        yield f"mailbox {agent.mailbox.length:,} (peak {agent.mailbox.peak:,})"


def _tail(path: str) -> str:
    """Keep the end of a deep path: it is what tells it from others."""
    return path if len(path) <= PATH_CHARS else "…" + path[len(path) - PATH_CHARS + 1 :]


def _folded(parts: Sequence[str], width: int) -> list[str]:
    """Set parts into as few lines as hold them whole."""
    lines = [parts[0]]
    for part in parts[1:]:
        joined = f"{lines[-1]}{GAP}{part}"
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _live_figures(snapshot: TreeSnapshot) -> list[str]:
    ledger, total = snapshot.ledger, snapshot.total
    figures = [
        f"{total.working}/{snapshot.max_concurrent} working",
        f"{total.waiting} waiting",
        f"{total.queued} queued",
        f"{total.done} done",
        f"{ledger.spent_tokens:,}{_of(snapshot.limit_tokens)} tokens",
    ]
    if ledger.reserved_tokens:
        figures.append(f"{ledger.reserved_tokens:,} held")
    if snapshot.limit_microdollars is not None or ledger.spent_microdollars:
        ceiling = "" if snapshot.limit_microdollars is None else f" of ${dollars(snapshot.limit_microdollars)}"
        figures.append(f"${dollars(ledger.spent_microdollars)}{ceiling}")
    if snapshot.seconds_left is not None:
        figures.append(f"{snapshot.seconds_left:.0f} s left")
    if ledger.halt is not None:
        figures.append(f"stopping: {ledger.halt.kind}")
    return figures


def _of(limit: int) -> str:
    # The largest ceiling means that there is none.
    return "" if limit >= 2**63 else f" of {limit:,}"
