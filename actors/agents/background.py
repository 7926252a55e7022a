"""The children of an agent that it went on without, until somebody has read how they ended.

They are ordinary children in the parent's nursery: the parent's end waits for
them, and a halt reaches them. What is kept here is only who has not been
collected yet. Reports that nobody collected are stored with the parent's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import attrs

from actors.agents.entry_text import bounded, clean
from actors.agents.ports import Observation, ObservationKind
from actors.agents.prompt import ENTRY_CHARS
from actors.agents.rows import Observed
from actors.agents.spawning import report

if TYPE_CHECKING:
    from actors.agents.agent import Agent


class Background:
    """Who works on beside one agent. Made when its first child is let go."""

    __slots__ = ("_agent", "_open", "_places", "_running", "_taken")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._running: list[Agent | FormerChild] = []
        # Reports that were stored behind the agent's steps, by this incarnation or one before.
        self._places = 0
        # Collected by a step that is not stored yet.
        self._open: list[Agent | FormerChild] = []
        # Collected, and still held by somebody who might let it go once more.
        self._taken: WeakSet[Agent | FormerChild] = WeakSet()

    def let_go(self, child: Agent | FormerChild, after: float | None, step: int = 0) -> None:
        """Go on without a child; ``after`` so many seconds of waiting, or at once. A second call changes nothing."""
        if child in self._running or child in self._taken:
            return
        self._running.append(child)
        # Whoever was waited for by the clock comes late; the order is that of the spawns all the same.
        self._running.sort(key=_spawned_as)
        self._tell("child_detached", child, after=after, step=step)

    def collect(self, step: int = 0) -> list[Agent | FormerChild]:
        """Take those that have ended, in the order of their spawns."""
        ended = [child for child in self._running if child.exit is not None]
        if ended:
            self._running = [child for child in self._running if child.exit is None]
            self._open += ended
            self._taken.update(ended)
            for child in ended:
                self._tell("child_collected", child, step=step, outcome=_outcome(child))
        return ended

    def stored(self) -> None:
        """Hear that what was collected is written down."""
        self._open.clear()

    def give_back(self) -> None:
        """Let the next incarnation collect what none has read: also what a step took that was never stored."""
        self._taken.difference_update(self._open)
        self._running = sorted({*self._open, *self._running}, key=_spawned_as)
        self._open.clear()

    def store_rest(self) -> None:
        """Write the reports that no step of the agent holds: it ends, and so have they."""
        recorder = self._agent.tree.recorder
        if recorder is None:
            return
        drained, self._running = self._running, []
        whole = [child for child in (*self._open, *drained) if not _interrupted(child)]
        self._open = []
        # The step that would have come next: no stored step holds its places.
        run_id, step = self._agent.run_id, self._agent.steps + 1
        rows: list[Any] = [
            Observed(run_id, step, place, ObservationKind.child, child.path, observation_of(child).text, True)
            for place, child in enumerate(whole, self._places + 1)
        ]
        if rows:
            self._places += len(rows)
            recorder.append_nowait(*rows)
        for child in drained:
            if not _interrupted(child):
                self._tell("child_collected", child, step=step, outcome=_outcome(child), drained=True)

    def _tell(self, kind: str, child: Agent | FormerChild, **facts: Any) -> None:
        agent = self._agent
        recorder = agent.tree.recorder
        if recorder is not None:
            recorder.append_nowait(recorder.event(agent.path, agent.depth, kind, {"child": child.path, **facts}))


def background_of(agent: Agent) -> Background:
    """Give the agent's background; the first call makes it."""
    if agent.background is None:
        agent.background = Background(agent)
    return agent.background


@attrs.frozen(eq=False)
class FormerChild:
    """A child that had ended when its parent's process was gone: only its report is left to be read."""

    path: str
    outcome: str
    report: Observation

    @property
    def exit(self) -> FormerChild:
        """Tell that it has ended, as an agent does."""
        return self


def observation_of(child: Agent | FormerChild) -> Observation:
    """Give the report of a child that has ended, safe and bounded, as an observation of its parent."""
    if isinstance(child, FormerChild):
        return child.report
    exit, outcome = child.exit, child.outcome
    assert exit is not None
    error = (outcome.message if outcome is not None else "") or (str(exit) if exit.cause is not None else "")
    tokens = child.own_tokens + child.own_overrun
    return report_observation(
        child.path, child.about.goal, _outcome(child), child.steps, tokens, child.said, error or None
    )


def report_observation(
    path: str, goal: str, outcome: str, steps: int, tokens: int, said: str | None, error: str | None
) -> Observation:
    """Write a report as an observation; the same facts give the same bytes, whichever process knew the child."""
    text = report(path, goal, outcome, steps, tokens, said, error)
    return Observation(ObservationKind.child, path, bounded(clean(text), ENTRY_CHARS), changed=True)


def _outcome(child: Agent | FormerChild) -> str:
    if isinstance(child, FormerChild):
        return child.outcome
    assert child.exit is not None
    return child.exit.reason.value if child.outcome is None else child.outcome.kind.value


def _interrupted(child: Agent | FormerChild) -> bool:
    """Tell whether a child was stopped to go on later: it has no terminal, and a resume finds it again."""
    if isinstance(child, FormerChild):
        return False
    return child.terminal is not None and child.terminal.get() is None


def _spawned_as(child: Agent | FormerChild) -> tuple[int, ...]:
    """Give the place of a child among its siblings, as its path says it."""
    return tuple(int(number) for number in child.path.rpartition("/")[2].split("."))
