"""Trees and tables for people. The facts come from a store or a snapshot; nothing is decided here."""

from __future__ import annotations

import json

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches

from actors.agents.tree import TreeSnapshot
from actors.assembly.reporting import run_report
from actors.containment.limits import dollars
from actors.store.readers import Reader
from actors.store.records import RunRecord

# Rows of a tree on a screen; more than that nobody reads.
MOST_ROWS = 60
GOAL_CHARS = 60

GOOD = {"success", "finished"}
WAITS = {"awaiting_approval", "awaiting_answer", "awaiting_plan", "awaiting_recovery", "interrupted"}


def _mark(outcome: str | None, status: str) -> tuple[str, str]:
    """Give a mark and a colour; the mark alone tells it too, for a screen without colours."""
    if outcome is None:
        return ("…", "cyan") if status in ("running", "draining") else ("?", "yellow")
    if outcome in GOOD:
        return "✓", "green"
    return ("‖", "yellow") if outcome in WAITS else ("✗", "red")


def shortened(text: str, limit: int = GOAL_CHARS) -> str:
    """Fit a text into one line of a tree."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _agent_line(agent: RunRecord, refused: list[str]) -> Text:
    mark, colour = _mark(agent.outcome, agent.status)
    # A line that is too long for the screen is cut, never wrapped: the shape of the tree is what people look at.
    line = Text.assemble((f"{mark} ", colour), (agent.path, "bold"), " ", no_wrap=True, overflow="ellipsis")
    line.append(agent.outcome or agent.status, colour)
    if agent.steps is not None:
        line.append(f"  {_steps(agent.steps)}  {(agent.spent_tokens or 0):,} tokens", "dim")
    line.append(f"  {shortened(agent.goal)}")
    if agent.error:
        line.append(f"\n  {shortened(agent.error, 100)}", "red")
    for cap in refused:
        line.append(f"\n  ✗ one more spawn was refused by the ceiling on {cap}", "yellow")
    return line


def tree_picture(reader: Reader, tree_id: str) -> RenderableType:
    """Draw the tree of a run, from its store."""
    agents = reader.agents(tree_id)
    branches: dict[str, Branches] = {}
    root: Branches | None = None
    for agent in agents[:MOST_ROWS]:
        refused = [event.detail for event in reader.agent_events(agent.run_id) if event.kind == "spawn_refused"]
        line = _agent_line(agent, refused)
        parent = branches.get(agent.path.rpartition("/")[0])
        if parent is None:
            root = branches[agent.path] = Branches(line, guide_style="dim")
        else:
            branches[agent.path] = parent.add(line)
    if root is None:
        return Text("no agent has started")
    if len(agents) > MOST_ROWS:
        root.add(Text(f"… and {len(agents) - MOST_ROWS} more agents", "dim"))
    return root


def summary_table(reader: Reader, tree_id: str) -> Table:
    """Draw the one table at the end of a run."""
    report = run_report(reader, tree_id)
    tree, outcome = report["tree"], report["outcome"] or {}
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    kind = outcome.get("kind", report["status"])
    mark, colour = _mark(outcome.get("kind"), report["status"])
    table.add_row("run", tree_id)
    table.add_row("ended", Text(f"{mark} {kind}", colour))
    if outcome.get("message"):
        table.add_row("why", shortened(outcome["message"], 200))
    if "spent_tokens" in tree:
        overrun = f" + {tree['overrun_tokens']:,} overrun" if tree["overrun_tokens"] else ""
        peak, tools = tree["peak_working"], tree["tool_calls"]
        table.add_row("agents", f"{tree['agents']}" + ("" if peak is None else f" ({peak} at work at once)"))
        table.add_row("calls", f"{tree['calls']} to the model" + ("" if tools is None else f", {tools} to tools"))
        estimated = " (partly estimated)" if report["usage"]["estimated"] else ""
        table.add_row("tokens", f"{tree['spent_tokens']:,}{overrun}{estimated}")
        if tree["spent_microdollars"]:
            table.add_row("money", f"${dollars(tree['spent_microdollars'])}")
        if tree["refusals"]:
            table.add_row("refused", ", ".join(f"{count} by {cap}" for cap, count in sorted(tree["refusals"].items())))
    if report["resumable"]:
        table.add_row("", "the run stopped and can be resumed")
    table.add_row("store", report["store"])
    return table


def live_picture(snapshot: TreeSnapshot, limit_tokens: int, limit_cost: int | None) -> RenderableType:
    """Draw a tree that is running: a line of figures, and the agents with their state."""
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
    rows: list[RenderableType] = [Text("  ".join(figures), "bold")]
    for agent in snapshot.agents[:MOST_ROWS]:
        colour = {"working": "green", "waiting": "cyan", "returning": "cyan", "stopping": "red"}.get(agent.state, "dim")
        line = Text("  " * agent.depth).append(f"{agent.path} ", "bold").append(f"{agent.state:<9}", colour)
        line.append(f" step {agent.steps}  {agent.spent_tokens:,} tokens  ", "dim").append(shortened(agent.goal, 50))
        rows.append(line)
    if len(snapshot.agents) > MOST_ROWS:
        rows.append(Text(f"… and {len(snapshot.agents) - MOST_ROWS} more agents", "dim"))
    return Group(*rows)


def _of(limit: int) -> str:
    # The largest ceiling means that there is none.
    return "" if limit >= 2**63 else f" of {limit:,}"


def event_line(event: str) -> str | None:
    """Say one event in a line for a log that people follow; None for what would only be noise."""
    told = json.loads(event)
    words = {
        "spawned": lambda e: f"spawned {e.get('child', '')}: {shortened(e.get('goal', ''))}",
        "spawn_refused": lambda e: f"spawn refused: {e.get('text', '')}",
        "refused": lambda e: f"refused {e.get('act', '')} {shortened(str(e.get('target', e.get('text', ''))))}",
        "retry": lambda e: f"tries again in {e.get('seconds', 0):.1f} s ({e.get('why', '')})",
        "step": lambda e: f"step {e.get('step')}: {', '.join(e.get('calls', [])) or 'no call'}",
        "halted": lambda e: f"halted: {e.get('halt')} by {e.get('by')}",
        "finished": lambda e: f"ended: {e.get('outcome')} after {_steps(e.get('steps', 0))}",
    }
    say = words.get(told["kind"])
    return None if say is None else f"{told['path']}: {say(told)}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def console(*, stderr: bool = False) -> Console:
    """Make a console that honours NO_COLOR, FORCE_COLOR and a pipe."""
    return Console(stderr=stderr, highlight=False, soft_wrap=False)
