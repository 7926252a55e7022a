"""Trees and tables for people. The facts come from a store or a snapshot; nothing is decided here.

On a terminal every line fits its width. What is no terminal has no edge: there
nothing is cut or wrapped, and no line ends in spaces.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text
from rich.tree import Tree as Branches

from actors.assembly.reporting import (
    DeniedGroup,
    LastCheck,
    denied_groups,
    denied_what_commands_may,
    last_checks,
    lost_runs,
    run_report,
    silences,
)
from actors.cli.phrases import PAUSES, brief_time, counted, of_check, reason_of, shortened, silence, unheld
from actors.containment.limits import dollars
from actors.store.readers import Reader
from actors.store.records import RunRecord, RunSummary

# Rows of a tree on a screen; more than that nobody reads.
MOST_ROWS: Final = 60
# Groups of denied acts in the table, and of what commands were not held by.
MOST_GROUPS: Final = 8
# The width where there is no edge.
ENDLESS: Final = 100_000

GOOD = {"success", "finished"}


def _mark(outcome: str | None, silent: bool) -> tuple[str, str]:
    """Give a mark and a colour; the mark alone tells it too, for a screen without colours."""
    if outcome is None:
        return ("?", "yellow") if silent else ("…", "cyan")
    if outcome in GOOD:
        return "✓", "green"
    return ("‖", "yellow") if outcome in PAUSES else ("✗", "red")


def _agent_line(agent: RunRecord, refused: Sequence[str], check: LastCheck | None, silent: bool) -> Text:
    mark, colour = _mark(agent.outcome, silent)
    # A line that is too long for the screen is cut, never wrapped: the shape of the tree is what people look at.
    line = Text.assemble((f"{mark} ", colour), (agent.path, "bold"), " ", no_wrap=True, overflow="ellipsis")
    line.append(agent.outcome or agent.status, colour)
    if agent.steps is not None:
        line.append(f"  {counted(agent.steps, 'step')}  {counted(agent.spent_tokens or 0, 'token')}", "dim")
    line.append(f"  {shortened(agent.goal)}")
    if agent.error:
        line.append(f"\n  {shortened(agent.error, 100)}", "red")
    if check is not None and _counts(check, agent.outcome):
        line.append(f"\n  ✗ {of_check(check.verdict, check.detail)}", "yellow")
    for cap, times in Counter(refused).items():
        spawns = "one more spawn was" if times == 1 else f"{times} more spawns were"
        line.append(f"\n  ✗ {spawns} refused by the ceiling on {cap}", "yellow")
    return line


def _counts(check: LastCheck, outcome: str | None) -> bool:
    """Tell whether a check is a reason: it could not be made, or did not pass and nothing is done about it any more."""
    return check.verdict == "errored" or (check.verdict == "failed" and outcome is not None and outcome not in GOOD)


def tree_picture(reader: Reader, tree_id: str) -> RenderableType:
    """Draw the tree of a run, from its store."""
    agents, checks = reader.agents(tree_id), last_checks(reader, tree_id)
    silent = bool(silences(reader, tree_id) or lost_runs(reader, tree_id))
    branches: dict[str, Branches] = {}
    root: Branches | None = None
    shown, more = told_first(agents, MOST_ROWS)
    for agent in shown:
        refused = [event.detail for event in reader.agent_events(agent.run_id) if event.kind == "spawn_refused"]
        # Of the root the table says it, as a reason of its end.
        check = checks.get(agent.run_id) if agent.depth else None
        line = _agent_line(agent, refused, check, silent)
        parent = branches.get(agent.path.rpartition("/")[0])
        if parent is None:
            root = branches[agent.path] = Branches(line, guide_style="dim")
        else:
            branches[agent.path] = parent.add(line)
    if root is None:
        return Text("no agent has started")
    if more:
        root.add(Text(f"… and {more} more agents; --json has all", "dim"))
    return root


def told_first(agents: Sequence[RunRecord], rows: int) -> tuple[Sequence[RunRecord], int]:
    """Give those for which there is a row, in their order: before all others those that failed, with all above them."""
    if len(agents) <= rows:
        return agents, 0
    by_path = {agent.path: agent for agent in agents}
    chosen: dict[str, RunRecord] = {}
    for agent in sorted(agents, key=lambda each: each.finished_at is None or bool(each.success)):
        names = agent.path.split("/")
        above = ("/".join(names[:count]) for count in range(1, len(names) + 1))
        line = {path: by_path[path] for path in above if path in by_path and path not in chosen}
        if len(chosen) + len(line) <= rows - 1:
            chosen |= line
    return [agent for agent in agents if agent.path in chosen], len(agents) - len(chosen)


def that_fit(agents: Sequence[Any], rows: int) -> tuple[Sequence[Any], int]:
    """Give those for which there is a row, and how many are left: none or at least two, as one has its own row."""
    if len(agents) <= rows:
        return agents, 0
    return agents[: max(rows - 1, 0)], len(agents) - max(rows - 1, 0)


@attrs.frozen
class Facts:
    """A table of two columns: what, and how it is. A long text goes on below itself."""

    rows: tuple[tuple[str, Text], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw it: a cell is not padded, so no line ends in spaces."""
        column = max(len(name) for name, _ in self.rows) + 2
        for name, value in self.rows:
            lines = value.wrap(console, max(options.max_width - column, 1)) or [Text()]
            for place, line in enumerate(lines):
                line.rstrip()
                start = Text(f"{name if place == 0 else '':<{column}}", "dim")
                yield Text.assemble(start, line) if line else Text(name, "dim")


def summary_table(reader: Reader, tree_id: str) -> Facts:
    """Draw the one table at the end of a run."""
    report = run_report(reader, tree_id)
    outcome = report["outcome"] or {}
    rows = [("run", Text(tree_id)), _state(outcome.get("kind"), report)]
    rows += [(name, Text(report[key])) for name, key in _NEIGHBOURS if report[key]]
    why = _why(outcome, last_checks(reader, tree_id).get(tree_id))
    if why:
        rows.append(("why", Text(why)))
    rows += [(name, Text(text)) for name, text in _figures(report)]
    rows += [("denied", Text(text)) for text in _denied(denied_groups(reader, tree_id))]
    asks = bool(report["not_held"]) and denied_what_commands_may(reader, tree_id)
    lacking = dict.fromkeys(text for each in report["not_held"] if (text := unheld(each, asks=asks)) is not None)
    rows += [("boundary", Text(text, "yellow")) for text in list(lacking)[:MOST_GROUPS]]
    return Facts((*rows, ("store", Text(report["store"]))))


# Other runs that a run is about.
_NEIGHBOURS: Final = (("reopens", "reopened_from"), ("reopened as", "reopened_as"))


def _state(outcome: str | None, report: Mapping[str, Any]) -> tuple[str, Text]:
    """Say how a run stands: its end, or that it has none yet."""
    status, silent_seconds, lost = report["status"], report["silent_seconds"], report["killed"]
    mark, colour = _mark(outcome, lost or silent_seconds is not None)
    if outcome is not None:
        return ("paused" if outcome in PAUSES else "ended"), Text(f"{mark} {outcome}", colour)
    if lost:
        return "state", Text(f"{mark} {status}, and its process is gone", colour)
    rest = "" if silent_seconds is None else f", but {silence(silent_seconds)}"
    return "state", Text(f"{mark} {status}{rest}", colour)


def _why(outcome: Mapping[str, Any], check: LastCheck | None) -> str:
    said = [shortened(outcome["message"], 200)] if outcome.get("message") else []
    if check is not None and _counts(check, outcome.get("kind")):
        said.append(of_check(check.verdict, check.detail))
    return "; ".join(said)


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    tree = report["tree"]
    overrun = f" + {tree['overrun_tokens']:,} overrun" if tree["overrun_tokens"] else ""
    peak, tools = tree["peak_working"], tree["tool_calls"]
    yield "agents", f"{tree['agents']}" + ("" if peak is None else f" ({peak} at work at once)")
    yield "calls", f"{tree['calls']} to the model" + ("" if tools is None else f", {tools} to tools")
    estimated = " (partly estimated)" if report["usage"]["estimated"] else ""
    yield "tokens", f"{tree['spent_tokens']:,}{overrun}{estimated}"
    if tree["spent_microdollars"]:
        yield "money", f"${dollars(tree['spent_microdollars'])}"
    if tree["refusals"]:
        refusals = sorted(tree["refusals"].items())
        yield "refused", ", ".join(f"{counted(count, 'spawn')} by the ceiling on {cap}" for cap, count in refusals)


def _denied(groups: Sequence[DeniedGroup]) -> Iterator[str]:
    for group in groups[:MOST_GROUPS]:
        targets = ", ".join(shortened(target) for target in group.targets)
        more = ", …" if group.count > len(group.targets) else ""
        yield f"{group.count:,} {group.act}: {targets}{more} ({reason_of(group.rule, group.layer, group.source)})"
    if len(groups) > MOST_GROUPS:
        yield f"{sum(group.count for group in groups[MOST_GROUPS:]):,} more, for other reasons"


# ── the list ────────────────────────────────────────────────────────────────────

GAP: Final = "  "
LEAST_GOAL: Final = 12
# What of a stamp is shown on a terminal: as much as leaves that room for the goals, or nothing of it.
STAMPS: Final = (slice(0, 19), slice(5, 16), slice(0, 0))


def run_list(
    runs: Sequence[RunSummary],
    steps: Mapping[str, int],
    silent: Mapping[str, float],
    width: int | None,
    lost: Iterable[str] = (),
) -> Iterator[str]:
    """Write runs as lines of ``width`` characters; None is no edge. Only the time and the goal ever give way.

    ``silent`` has, in seconds, for how long runs were not heard of that may be gone; ``lost`` are known to be.
    """
    words = {run_id: f"silent {brief_time(seconds)}" for run_id, seconds in silent.items()}
    words |= dict.fromkeys(lost, "killed")
    runs = [attrs.evolve(run, status=words.get(run.run_id, run.status)) for run in runs]
    goals = [Text(each) for each in ("goal", *(shortened(run.goal, ENDLESS) for run in runs))]
    starts, room = _starts(runs, steps, [run.started_at for run in runs]), ENDLESS
    if width is not None:
        for stamp in STAMPS:
            starts = _starts(runs, steps, [run.started_at[stamp].replace("T", " ") for run in runs])
            room = max(width - len(starts[0]), 0)
            if room >= LEAST_GOAL:
                break
    for start, goal in zip(starts, goals, strict=True):
        goal.truncate(room, overflow="ellipsis")
        yield (start + goal.plain if room else start).rstrip()


def _starts(runs: Sequence[RunSummary], steps: Mapping[str, int], stamps: Sequence[str]) -> list[str]:
    """Align all columns before the goal. A column without a cell is left out; an outcome that is not yet is a dash."""
    columns = {
        "run": [run.run_id for run in runs],
        "status": [run.status for run in runs],
        "outcome": [run.outcome or "-" for run in runs],
        "steps": [str(steps.get(run.run_id, 0)) for run in runs],
        "started": list(stamps),
    }
    lines = [""] * (len(runs) + 1)
    for heading, cells in columns.items():
        if any(cells):
            size = max(map(len, (heading, *cells)))
            lines = [f"{line}{cell:<{size}}{GAP}" for line, cell in zip(lines, (heading, *cells), strict=True)]
    return lines


def console(*, stderr: bool = False) -> Console:
    """Make a console that honours NO_COLOR and FORCE_COLOR, and has no edge where there is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else ENDLESS
    forced, off = os.environ.get("FORCE_COLOR", ""), bool(os.environ.get("NO_COLOR"))
    # Left alone, rich takes "0" for a yes, an empty text for a no, and lets NO_COLOR take the colours only.
    off = off or forced == "0"
    terminal = None if forced and not off else stream.isatty()
    return Console(
        stderr=stderr, width=width, no_color=off, force_terminal=terminal, highlight=False, soft_wrap=False
    )
