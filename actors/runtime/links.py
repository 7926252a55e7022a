"""Monitors and links: hearing of an end, and ending together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import trio

from actors.runtime.actor import Actor
from actors.runtime.child import Child
from actors.runtime.exits import Exit, Reason


@attrs.frozen
class Down:
    """A monitor's message: what it watched has ended. ``reason`` is ``noproc`` if it had ended before."""

    ref: Any
    exit: Exit
    _monitor: Monitor | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def void(self) -> bool:
        """Whether nobody wants to hear of it any more."""
        return self._monitor is not None and self._monitor.over


@attrs.frozen
class Linked:
    """A link's message, for an actor that asked for ends as messages."""

    ref: Any
    exit: Exit


class Monitor:
    """One watch over something; exactly one `Down` comes of it, or none after ``demonitor``."""

    __slots__ = ("_actor", "_ref", "_target", "over")

    def __init__(self, actor: Actor[Any], ref: Any) -> None:
        self._actor = actor
        self._ref = ref
        self._target = child_of(ref)
        # Whether it was called off: a message that lies in the mailbox is passed over then.
        self.over = False
        if self._target.exit is None:
            self._target.watch(self._tell)
        else:
            self._tell(Exit(self._target.path, Reason.noproc, trio.current_time()))

    def _tell(self, exit: Exit) -> None:
        if self._actor.exit is None:
            self._actor.mailbox.put_system(Down(self._ref, exit, self))

    def demonitor(self) -> None:
        """Watch no longer: no message comes any more, not even one that is underway."""
        self.over = True
        self._target.unwatch(self._tell)


def child_of(ref: Any) -> Child:
    """Give the child behind a ref of any kind."""
    for name in ("_actor", "_task", "_supervisor"):
        child = getattr(ref, name, None)
        if isinstance(child, Child):
            return child
    raise TypeError(f"{ref!r} is no ref")


def link(actor: Child, ref: Any) -> None:
    """Tie a child of any kind and whatever stands behind ``ref``; see `Me.link`."""
    target = child_of(ref)
    if target is actor or (actor.links is not None and target in actor.links):
        return
    if target.exit is not None:
        actor.linked_end(target, ref, attrs.evolve(target.exit, reason=Reason.noproc))
        return
    # Each side hears of the other's end: what the target's watcher does here, and the actor's watcher there.
    here = partial(_heard, actor, target, ref)
    there = partial(_heard, target, actor, getattr(actor, "ref", actor))
    target.watch(here)
    actor.watch(there)
    _remember(actor, target, (here, there))
    _remember(target, actor, (there, here))


def unlink(actor: Child, ref: Any) -> None:
    """Untie an actor and whatever stands behind ``ref``."""
    target = child_of(ref)
    pair = _forget(actor, target)
    if pair is None:
        return
    target.unwatch(pair[0])
    actor.unwatch(pair[1])
    _forget(target, actor)


Pair = tuple[Callable[[Exit], None], Callable[[Exit], None]]


def _remember(child: Child, other: Child, pair: Pair) -> None:
    child.links = child.links or {}
    child.links[other] = pair


def _forget(child: Child, other: Child) -> Pair | None:
    pair = None if child.links is None else child.links.pop(other, None)
    if not child.links:
        child.links = None
    return pair


def _heard(here: Child, ended: Child, ref: Any, exit: Exit) -> None:
    """Hear on one side that the other one has ended."""
    pair = _forget(here, ended)
    if pair is not None:
        here.unwatch(pair[1])
    if here.exit is None:
        here.linked_end(ended, ref, exit)
