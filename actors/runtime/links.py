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
    """One watch over something; exactly one `Down` comes of it, or none after ``demonitor``.

    ``known`` says that the actor started what it watches: if that has ended already,
    its true end is told, and not ``noproc``.
    """

    __slots__ = ("_actor", "_ref", "_target", "over")

    def __init__(self, actor: Actor[Any], ref: Any, *, known: bool = False) -> None:
        self._actor = actor
        self._ref = ref
        self._target = child_of(ref)
        # Whether it was called off: a message that lies in the mailbox is passed over then.
        self.over = False
        end = self._target.exit
        if end is not None:
            self._tell(end if known else Exit(self._target.path, Reason.noproc, trio.current_time()))
        elif actor.exit is None:
            # Nothing comes to an actor that has ended, so it watches nobody either: its own end calls this off.
            self._target.watch(self._tell)
            actor.watch(self._call_off)

    def _tell(self, exit: Exit) -> None:
        self._actor.unwatch(self._call_off)
        if self._actor.exit is None:
            self._actor.mailbox.put_system(Down(self._ref, exit, self))

    def demonitor(self) -> None:
        """Watch no longer: no message comes any more, not even one that is underway."""
        self.over = True
        self._target.unwatch(self._tell)
        self._actor.unwatch(self._call_off)

    def _call_off(self, _exit: Exit) -> None:
        self.demonitor()


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
    # What has ended, though its task has not left, is tied to nobody.
    if actor.exit is None:
        _tie(actor, target, ref, _heard)


def link_task(caller: Child, ref: Any) -> None:
    """Tie a task, which may have ended already, and whoever started it.

    The end of the task is heard as that of any link, so a normal one ends nobody. The
    end of the caller ends the task, also a normal one: nobody is left for its result.
    """
    task = child_of(ref)
    if task.exit is not None:
        caller.linked_end(task, ref, task.exit)
    elif caller.exit is not None:
        _end_task(task, caller, None, caller.exit)
    else:
        _tie(caller, task, ref, _end_task)


Hearing = Callable[[Child, Child, Any, Exit], None]


def _tie(actor: Child, target: Child, ref: Any, hear: Hearing) -> None:
    # Each side hears of the other's end: what the target's watcher does here, and the actor's watcher there.
    here = partial(_heard, actor, target, ref)
    there = partial(hear, target, actor, getattr(actor, "ref", actor))
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
        _forget(ended, here)
    if here.exit is None:
        here.linked_end(ended, ref, exit)


def _end_task(task: Child, caller: Child, ref: Any, exit: Exit) -> None:
    """Hear as a task that whoever started it has ended."""
    _heard(task, caller, ref, exit)
    if exit.reason is Reason.normal and task.exit is None:
        task.request_stop(f"{caller.path}, which started it, has ended")
