"""When an agent goes in circles. Pure.

Two signals: ``window`` steps without a change of any byte, a repeated set of
calls among them; or the same calls ``window`` times in a row, even if files
changed. Varied exploration is never flagged: it repeats nothing.
"""

import attrs


@attrs.frozen
class Signature:
    """What a step did: its calls joined, and whether bytes changed. A step without a call has an empty one."""

    calls: str
    changed: bool


@attrs.frozen
class StallState:
    """The last steps, and how often the agent was told to plan anew."""

    recent: tuple[Signature, ...] = ()
    replans: int = 0


@attrs.frozen
class StallVerdict:
    """What follows: the new state, a note for the model (or None), and whether the agent is stalled."""

    state: StallState
    note: str | None = None
    stalled: bool = False


def look(state: StallState, step: Signature, *, window: int, max_replans: int) -> StallVerdict:
    """Look at one more step. ``window`` 0 switches the detector off."""
    if window == 0:
        return StallVerdict(state)
    recent = (*state.recent, step)[-max(window, 2) :]
    if not _stuck(recent, window):
        return StallVerdict(StallState(recent, state.replans))
    if state.replans >= max_replans:
        return StallVerdict(StallState(recent, state.replans), stalled=True)
    tried = sorted({seen.calls for seen in recent if seen.calls})
    # The window begins anew: the next note needs as many steps again.
    return StallVerdict(StallState((), state.replans + 1), note=_note(tried))


def _stuck(recent: tuple[Signature, ...], window: int) -> bool:
    # Nothing repeats in one step: a window of 1 looks at two.
    if len(recent) < max(window, 2):
        return False
    # A step without a call repeats nothing; its number is bounded by the step cap.
    calls = [seen.calls for seen in recent if seen.calls]
    same = len(calls) == len(recent) and len(set(calls)) == 1
    repeated = len(set(calls)) < len(calls)
    return same or (repeated and not any(seen.changed for seen in recent))


def _note(tried: list[str]) -> str:
    lines = "\n".join(f"- {calls[:200]}" for calls in tried[:10])
    return f"You are repeating yourself without progress. You tried:\n{lines}\nPlan anew, and do something else."
