"""What each agent of a tree used, from its store: its own alone, and with all below it."""

from __future__ import annotations

from typing import Final

import attrs

from actors.store.readers import Reader
from actors.store.records import RunRecord

OF_TREE: Final = "run_id IN (SELECT run_id FROM runs WHERE tree_id = ?)"
# Statuses in which an agent's row holds no figures yet, or those of before it was resumed.
LIVE: Final = ("running", "draining")


@attrs.frozen
class Used:
    """What was used, in one scope."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    spent_tokens: int = 0
    microdollars: int = 0
    estimated: bool = False

    def plus(self, other: Used) -> Used:
        """Add both up; one estimate makes the sum one."""
        return Used(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.spent_tokens + other.spent_tokens,
            self.microdollars + other.microdollars,
            self.estimated or other.estimated,
        )


def own_usage(reader: Reader, tree_id: str, agents: list[RunRecord]) -> dict[str, Used]:
    """Give what each agent used by itself, by path; of a live one what it has written so far."""
    so_far = _own_so_far(reader, tree_id) if any(agent.status in LIVE for agent in agents) else {}
    counts = {agent.path: _counts(agent) for agent in agents}
    for agent in agents:
        # The tokens in an agent's row hold what all below it used too: each child's are taken out of its parent's.
        if agent.parent in counts:
            pairs = zip(counts[agent.parent], _counts(agent), strict=True)
            counts[agent.parent] = [mine - below for mine, below in pairs]
    return {
        agent.path: so_far.get(agent.run_id, Used()) if agent.status in LIVE else _ended(agent, counts[agent.path])
        for agent in agents
    }


def with_descendants(agents: list[RunRecord], own: dict[str, Used]) -> dict[str, Used]:
    """Give what each agent used with all below it, by path. ``agents`` has parents before their children."""
    whole = dict(own)
    # From the end, each sum is whole before it is handed up.
    for agent in reversed(agents):
        if agent.parent in whole:
            whole[agent.parent] = whole[agent.parent].plus(whole[agent.path])
    return whole


def _counts(agent: RunRecord) -> list[int]:
    return [agent.input_tokens or 0, agent.output_tokens or 0, agent.cached_input_tokens or 0]


def _ended(agent: RunRecord, counts: list[int]) -> Used:
    # Below zero only where the row of an end is missing; nobody used less than nothing.
    given, made, cached = (max(count, 0) for count in counts)
    spent, money = agent.spent_tokens or 0, agent.spent_microdollars or 0
    return Used(given, made, cached, spent, money, bool(agent.estimated))


def _own_so_far(reader: Reader, tree_id: str) -> dict[str, Used]:
    tokens = "sum(prompt_tokens), sum(completion_tokens), sum(cache_read_tokens)"
    calls = reader.select(f"SELECT run_id, {tokens} FROM provider_calls WHERE {OF_TREE} GROUP BY run_id", [tree_id])
    sums = "sum(used_tokens), sum(used_microdollars), max(state = 'estimated')"
    held = reader.select(f"SELECT run_id, {sums} FROM reservations WHERE {OF_TREE} GROUP BY run_id", [tree_id])
    used = {run_id: Used(given or 0, made or 0, cached or 0) for run_id, given, made, cached in calls}
    for run_id, spent, money, estimated in held:
        settled = Used(spent_tokens=spent or 0, microdollars=money or 0, estimated=bool(estimated))
        used[run_id] = used.get(run_id, Used()).plus(settled)
    return used
