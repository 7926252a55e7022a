"""A coroutine as a supervised child."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import attrs

from actors.runtime.actor import waiting_for
from actors.runtime.between import KeepsName
from actors.runtime.child import Child, Owner
from actors.runtime.exits import Exit


@attrs.frozen(eq=False)
class TaskRef:
    """The handle of one incarnation of a task."""

    _task: Task

    @property
    def child(self) -> Child:
        """Give the child behind it."""
        return self._task

    @property
    def path(self) -> str:
        """Name the task."""
        return self._task.path

    @property
    def exit(self) -> Exit | None:
        """Give the recorded end, None while it lives."""
        return self._task.exit

    async def wait(self) -> Exit:
        """Wait for the end, and give it.

        Cancellation: the task is not disturbed.

        Raises:
            WouldDeadlock: the task waits for the one who awaits it, perhaps through others.
        """
        with waiting_for(self._task, "the end of"):
            return await self._task.wait_ended()


class Task(KeepsName, Child):
    """A child whose work is one coroutine. Its ``name`` is registered while it runs."""

    __slots__ = ("_coroutine", "name", "ref", "says_ready")

    def __init__(
        self,
        path: str,
        parent: Child | None,
        host: Owner,
        coroutine: Coroutine[Any, Any, Any],
        *,
        says_ready: bool,
        name: str | None = None,
    ) -> None:
        super().__init__(path, parent, host, may_parent=False)
        self._coroutine: Coroutine[Any, Any, Any] | None = coroutine
        self.name = name
        # Whether the function tells by itself when it is ready, as trio's own convention has it.
        self.says_ready = says_ready
        self.ref = TaskRef(self)

    def work(self) -> Coroutine[Any, Any, Any]:
        """Take the name, and give the coroutine to be run: no coroutine of ours stands around it.

        Cancellation: the child ends as ``shutdown``.
        """
        if self.name is not None:
            self.host.registry.register(self.name, self.ref)
        coroutine, self._coroutine = self._coroutine, None
        assert coroutine is not None, "a task runs once"
        if not self.says_ready:
            self.mark_ready()
        return coroutine

    def ended(self, exit: Exit) -> None:
        """Free the name, and close a coroutine that never ran, so that Python does not complain of it."""
        if self.name is not None:
            self.give_back_name(self.ref, exit)
        if self._coroutine is not None:
            self._coroutine.close()
