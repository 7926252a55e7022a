"""Names that lead to the incarnation that lives now.

A name belongs to one live actor. An actor gives it back before anyone is told
of its end, and a restart takes it again before the new incarnation is ready.
In between, the supervisor may mark the name, so that a caller can tell "comes
back" from "never was". The mark says nothing about who may take the name.

Nothing is kept of ended actors: an entry lives from `register` to `unregister`,
a mark until the name is taken again or forgotten, a waiting look-up until it
returns or is cancelled.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from actors.errors import AlreadyRegistered, NameRestarting

R = TypeVar("R")


class Registry(Generic[R]):
    """The names of one tree. ``R`` is the kind of ref they lead to; refs are told apart by identity."""

    def __init__(self) -> None:
        # In the order of registering.
        self._refs: dict[str, R] = {}
        # Marked names, and who brings each back.
        self._restarting: dict[str, Any] = {}
        # Tasks parked until the name is taken, each with what is called in the step that wakes it.
        self._waiting: dict[str, dict[trio.lowlevel.Task, Callable[[], None] | None]] = {}

    def register(self, name: str, ref: R) -> None:
        """Give ``name`` to ``ref``, clear its mark, and wake whoever waits for it.

        Raises:
            AlreadyRegistered: the name is taken, also if by ``ref`` itself. Nothing changed.
        """
        if name in self._refs:
            raise AlreadyRegistered(name, self._refs[name])
        self._refs[name] = ref
        self._restarting.pop(name, None)
        self._wake(name)

    def unregister(self, name: str, ref: R) -> None:
        """Free ``name`` if it still leads to ``ref``; else nothing happens. A mark stays."""
        if self._refs.get(name) is ref:
            del self._refs[name]

    def whereis(self, name: str) -> R | None:
        """Find who has ``name`` now; None when nobody has it and nobody is to come back.

        Raises:
            NameRestarting: nobody has it now, and it is marked.
        """
        ref = self._refs.get(name)
        if ref is None and name in self._restarting:
            raise NameRestarting(name)
        return ref

    def restarting(self, name: str, by: Any = None) -> None:
        """Mark ``name``: it will be taken again. Whoever marks it must `register` or `forget` it.

        ``by`` is who brings it back, for those that wait for it.

        A mark may come before or after the former incarnation's `unregister`; while
        somebody has the name, look-ups give that one.
        """
        self._restarting[name] = by

    def is_restarting(self, name: str) -> bool:
        """Whether ``name`` is marked: it will be taken again."""
        return name in self._restarting

    def forget(self, name: str) -> None:
        """Clear the mark: the name will not come back. Who has the name keeps it."""
        self._restarting.pop(name, None)
        # Whoever waits for its return looks again.
        self._wake(name)

    def names(self) -> tuple[str, ...]:
        """List the names that are taken, in the order of registering."""
        return tuple(self._refs)

    async def wait_for(self, name: str) -> R:
        """Wait until somebody has ``name``, and give who has it then.

        Waits for ever if nobody ever takes it, whether or not it is marked.

        Checkpoint: always.
        Cancellation: nothing is left behind.
        """
        await trio.lowlevel.checkpoint()
        # Whoever took the name may have lost it again before this task ran: then wait for the next.
        while name not in self._refs:
            await self._park(name)
        return self._refs[name]

    async def wait_back(self, name: str, stand: Callable[[Any], Callable[[], None] | None] | None = None) -> R | None:
        """Wait while ``name`` is between two incarnations; give who has it then, None when it does not come back.

        ``stand`` is told, before each wait, who brings the name back; what it gives is
        called in the step that ends that wait. What it raises goes through.

        Checkpoint: always.
        Cancellation: nothing is left behind.
        """
        await trio.lowlevel.checkpoint()
        while name not in self._refs and name in self._restarting:
            await self._park(name, None if stand is None else stand(self._restarting[name]))
        return self._refs.get(name)

    def _wake(self, name: str) -> None:
        for task, on_woken in self._waiting.pop(name, {}).items():
            if on_woken is not None:
                on_woken()
            trio.lowlevel.reschedule(task)

    async def _park(self, name: str, on_woken: Callable[[], None] | None = None) -> None:
        waiting = self._waiting.setdefault(name, {})
        task = trio.lowlevel.current_task()
        waiting[task] = on_woken

        def abort(_raise_cancel: Any) -> trio.lowlevel.Abort:
            if on_woken is not None:
                on_woken()
            del waiting[task]
            if not waiting:
                del self._waiting[name]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
