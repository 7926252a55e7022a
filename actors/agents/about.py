"""What an agent is for, and what it may use at most: two records that stand before it does. Pure."""

import math

import attrs

from actors.containment.amounts import whole


@attrs.frozen
class AgentLimits:
    """What one agent may use; it can only narrow what the tree and its ancestors allow.

    ``max_tokens`` bounds the agent's own spend, not its children's.
    ``max_duration`` (seconds from its start) ends it with all below it.
    ``max_depth`` is absolute, as in `Containment`. A ``leaf`` can have no children
    and costs half as much.
    """

    max_tokens: int | None = None
    max_duration: float | None = None
    max_depth: int | None = None
    leaf: bool = False

    def __attrs_post_init__(self) -> None:
        for name in ("max_tokens", "max_depth"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        seconds = self.max_duration
        if seconds is not None and (type(seconds) not in (int, float) or not math.isfinite(seconds) or seconds < 0):
            raise ValueError(f"max_duration must be a finite number of seconds from 0 on, not {seconds!r}")


UNLIMITED = AgentLimits()


@attrs.frozen
class About:
    """What the store is told of an agent when it starts. A plain function has only a goal: its name."""

    goal: str
    file: str | None = None
    provider: str | None = None
    model: str | None = None
    contract: str | None = None
    policy: str | None = None
    root: str | None = None
    opening: str | None = None
    entry: str | None = None
    reopened_from: str | None = None
    task: str | None = None
