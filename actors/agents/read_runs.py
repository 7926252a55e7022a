"""Which calls of an answer may run beside each other: the longest runs of calls that only read. Pure.

Whatever may change something ends a run, so a read never sees a write that the
model asked for after it, and sees every write that it asked for before. A
read-only call that is not simply run again after a crash ends one too: it is
written down before it starts, and that is done one by one.

The policy is not asked here. A call tells what it is about when it acts, by the
real target, and is judged then and only then: a guess made before could be
another judgement. What a run does when the policy does not simply allow is in
`reading_beside.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from actors.agents.call_journal import is_replayable
from actors.agents.ports import Tool, ToolCall

# Nothing runs beside anything.
NO_RUNS: Final[Mapping[int, range]] = {}


def only_reads(tool: Tool | None) -> bool:
    """Tell whether calls of a tool may run beside others of such tools."""
    return tool is not None and tool.read_only and is_replayable(tool)


def read_runs(calls: Sequence[ToolCall], tools: Mapping[str, Tool], *, admitted: int, most: int) -> Mapping[int, range]:
    """Give the runs of two and more reads among the first ``admitted`` calls, by the place where each begins.

    ``most`` reads may run at a time; with one there are no runs.
    """
    if most < 2:
        return NO_RUNS
    runs: dict[int, range] = {}
    begin = 0
    last = min(admitted, len(calls))
    for place in range(last + 1):
        if place < last and only_reads(tools.get(calls[place].name)):
            continue
        if place - begin > 1:
            runs[begin] = range(begin, place)
        begin = place + 1
    return runs
