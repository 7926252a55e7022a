"""How a child comes back to the parent that asked for it. Pure.

A parent waits for its child, waits for so many seconds and then goes on beside
it, or goes on at once. Going on never touches the child: it works until it ends,
and its report is folded in at a later step. The operator may narrow the ways,
and then the model is told so.
"""

from enum import StrEnum
from typing import Final

import attrs


class Way(StrEnum):
    """The ways a child comes back."""

    # The parent's step stays open until the child ends.
    wait = "wait"
    # The parent goes on at once.
    detach = "detach"
    # The parent waits for so many seconds, then goes on.
    clock = "clock"


@attrs.frozen
class ComeBack:
    """The way that was decided. ``after`` is in seconds and set for a clock only; ``note`` is for the model."""

    way: Way = Way.wait
    after: float | None = None
    note: str = ""


WAITED = "Note: this run lets no sub-agent work on beside its parent, so it was waited for."


def decide(*, wait: bool, after: float | None, ceiling: float | None, detached_spawns: bool) -> ComeBack:
    """Decide the way from what was asked and what the operator allows.

    ``ceiling`` is the operator's clock: the default, and the most that may be asked.
    It does not touch a detached child. With ``detached_spawns`` off everything is waited for.
    """
    if not detached_spawns:
        # Whoever asked for nothing else gets what was asked for.
        return ComeBack(note="" if wait and after is None else WAITED)
    if not wait:
        return ComeBack(Way.detach)
    if ceiling is None:
        return ComeBack() if after is None else ComeBack(Way.clock, after)
    if after is None or after <= ceiling:
        return ComeBack(Way.clock, ceiling if after is None else after)
    return ComeBack(Way.clock, ceiling, f"Note: this run waits {ceiling:g} s at most for a sub-agent, not {after:g} s.")


def works_on(path: str, goal: str, back: ComeBack) -> str:
    """Write what the parent's model reads of a child that works on beside it."""
    how = "works" if back.after is None else f"has not ended after {back.after:g} s and works on"
    lines = [f"Sub-agent {path} {how} {_BESIDE}", f"Goal: {goal}"]
    return "\n".join([*lines, back.note] if back.note else lines)


_BESIDE: Final = "in the background; its report comes with a later step."


def only_says_works_on(path: str, text: str) -> bool:
    """Tell the words of `works_on` from a report. An older version stored both as one kind of observation."""
    first = text.partition("\n")[0]
    return first.startswith(f"Sub-agent {path} ") and first.endswith(_BESIDE)
