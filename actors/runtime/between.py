"""What is kept of a child between two incarnations: its name, and the messages that it left unread.

A child asks its supervisor, in the step of its end, whether it is most likely
started again. Then its name is marked and its messages stay with it, here, until
it is known what follows: the next incarnation takes both, or both are let go.
"""

from collections.abc import Hashable
from typing import Any

from actors.runtime.child import Child
from actors.runtime.exits import Exit
from actors.runtime.plan import Plan
from actors.runtime.registry import Registry
from actors.runtime.specs import ChildSpec


class KeepsName:
    """What a child does that may have a name, which waits for its next incarnation."""

    __slots__ = ()

    name: str | None
    host: Any
    parent: Child | None

    def give_back_name(self, ref: Any, exit: Exit) -> None:
        """Free the name at the end; mark it, in the same step, if the supervisor is to start the child again."""
        if self.name is None:
            return
        self.host.registry.unregister(self.name, ref)
        if self.may_come_back(exit):
            self.host.registry.restarting(self.name, self.parent)

    def may_come_back(self, exit: Exit) -> bool:
        """Whether a supervisor is most likely to start the child again; asked in the step of its end."""
        brings_back = getattr(self.parent, "brings_back", None)
        return brings_back is not None and bool(brings_back(self, exit))

    @property
    def returns(self) -> bool:
        """Whether the name waits for the next incarnation."""
        return self.name is not None and self.host.registry.is_restarting(self.name)

    def let_go(self) -> None:
        """Let nobody wait for the name: there is no next incarnation."""
        if self.name is not None:
            self.host.registry.forget(self.name)


class Between:
    """The ended incarnations of one supervisor's children that left something, until it is known what follows."""

    def __init__(self, plan: Plan, registry: Registry[Any]) -> None:
        self._plan = plan
        self._registry = registry
        self._left: dict[Hashable, Child] = {}

    def __len__(self) -> int:
        return len(self._left)

    def keep(self, key: Hashable, child: Child) -> None:
        """Keep an incarnation that left something; one that was never ready left it to the one before it."""
        if child.returns:
            self._left.setdefault(key, child)

    def hand_on(self, key: Hashable, child: Child) -> None:
        """Tell what the former incarnation left to the next one, which is about to start."""
        former = self._left.get(key)
        if former is not None:
            former.followed_by(child)

    def ready(self, key: Hashable, spec: ChildSpec, child: Child) -> None:
        """Forget the former incarnation: ``child``, the next one, is ready, and has taken what it takes."""
        former = self._left.pop(key, None)
        if former is None:
            return
        name = getattr(former, "name", None)
        if name is not None and (name != spec.name or child.exit is None):
            # A new spec gave it another name, or this kind takes none: nobody takes the old one.
            self._registry.forget(name)
        drop_messages = getattr(former, "drop_messages", None)
        if drop_messages is not None:
            # Messages that are left now are such as this kind cannot take.
            drop_messages()

    def sweep(self) -> None:
        """Let go what was kept for an incarnation that does not come."""
        for key in list(self._left):
            if not self._plan.comes_back(key):
                self._left.pop(key).let_go()

    def drop_all(self) -> None:
        """Let everything go: nothing is started any more."""
        for former in self._left.values():
            former.let_go()
        self._left.clear()
