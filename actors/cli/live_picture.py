"""The picture of a tree that is running. It fits the screen it is drawn on; nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from actors.agents.tree import AgentView, TreeSnapshot
from actors.cli.phrases import shortened
from actors.cli.pictures import MOST_ROWS, that_fit
from actors.containment.limits import dollars

ORDER: Final = {
    state: place
    for place, state in enumerate(("working", "returning", "waiting", "stopping", "draining", "queued", "fresh"))
}
COLOURS: Final = {"working": "green", "waiting": "cyan", "returning": "cyan", "stopping": "red"}
PATH_CHARS: Final = 30


def live_picture(
    snapshot: TreeSnapshot, limit_tokens: int, limit_cost: int | None, width: int, height: int
) -> RenderableType:
    """Draw a tree that is running within a screen: figures, and the agents with their state, who works first."""
    lines = [Text(line, "bold") for line in _folded(_live_figures(snapshot, limit_tokens, limit_cost), width)]
    # Whoever is no longer in the table of slots, but lives, waits for its children's ends.
    agents = [attrs.evolve(each, state="draining") if each.state == "done" else each for each in snapshot.agents]
    agents.sort(key=lambda agent: ORDER.get(agent.state, len(ORDER)))
    # The last line of a screen stays free for the cursor.
    shown, more = that_fit(agents, max(min(MOST_ROWS, height - 1 - len(lines)), 1))
    lines += _live_lines(shown)
    if more:
        lines.append(Text(f"… and {more} more agents", "dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines)


def _live_lines(agents: Sequence[AgentView]) -> Iterator[Text]:
    paths = [_tail(agent.path) for agent in agents]
    tokens = [f"{agent.spent_tokens:,}" for agent in agents]
    column = max(map(len, paths), default=0)
    numbers = max(map(len, tokens), default=0)
    steps = max((len(str(agent.steps)) for agent in agents), default=0)
    for agent, path, spent in zip(agents, paths, tokens, strict=True):
        line = Text(f"{path:<{column}}", "bold", no_wrap=True)
        line.append(f"  {agent.state:<9}", f"not bold {COLOURS.get(agent.state, 'dim')}")
        line.append(f"  step {agent.steps:>{steps}}  {spent:>{numbers}} tokens", "not bold dim")
        yield line.append(f"  {shortened(agent.goal)}", "not bold")


def _tail(path: str) -> str:
    """Keep the end of a deep path: it is what tells it from others."""
    return path if len(path) <= PATH_CHARS else "…" + path[len(path) - PATH_CHARS + 1 :]


def _folded(parts: Sequence[str], width: int) -> list[str]:
    """Set parts into as few lines as hold them whole."""
    lines = [parts[0]]
    for part in parts[1:]:
        joined = f"{lines[-1]}  {part}"
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _live_figures(snapshot: TreeSnapshot, limit_tokens: int, limit_cost: int | None) -> list[str]:
    ledger, total = snapshot.ledger, snapshot.total
    figures = [
        f"{total.working}/{snapshot.max_concurrent} working",
        f"{total.waiting} waiting",
        f"{total.queued} queued",
        f"{total.done} done",
        f"{ledger.spent_tokens:,}{_of(limit_tokens)} tokens",
    ]
    if ledger.reserved_tokens:
        figures.append(f"{ledger.reserved_tokens:,} held")
    if limit_cost is not None or ledger.spent_microdollars:
        ceiling = "" if limit_cost is None else f" of ${dollars(limit_cost)}"
        figures.append(f"${dollars(ledger.spent_microdollars)}{ceiling}")
    if snapshot.seconds_left is not None:
        figures.append(f"{snapshot.seconds_left:.0f} s left")
    if ledger.halt is not None:
        figures.append(f"stopping: {ledger.halt.kind}")
    return figures


def _of(limit: int) -> str:
    # The largest ceiling means that there is none.
    return "" if limit >= 2**63 else f" of {limit:,}"
