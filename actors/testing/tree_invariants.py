"""What must hold of a tree at each step and after it: the invariants of supervision, asked of live objects.

A *watch* looks at one tree between two steps of its tasks and says what is
broken. It reads and never changes anything, so a run with watches goes like one
without. `checkpoint_fuzz` asks after each step; a test of your own may ask
whenever it likes.

    INV-1 one recorded end each          INV-6 no start after a recorded halt
    INV-2 children end before parents    INV-7 restarts in a window <= intensity
    INV-3 working <= max_concurrent      INV-8 no ask is open at its callee's end
    INV-4 settled + reserved <= ceiling  INV-9 tables are empty at the end

INV-5 (messages) and INV-10 (times of stops) need to know what was sent and when
the fault came; they are asked by `checkpoint_fuzz`.

The tables that are looked at are private: nothing else tells how large they
are. They are named in this file only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import trio

from actors.agents.agent import Agent
from actors.agents.tree import Tree
from actors.halts import Halt, HaltKind
from actors.runtime.actor import Actor
from actors.runtime.behaviour import BehaviourActor
from actors.runtime.child import Child
from actors.runtime.exits import Exit
from actors.runtime.host import Host
from actors.runtime.open_supervisor import SupervisionTree
from actors.runtime.specs import OnRestart
from actors.runtime.supervisor import Supervisor
from actors.store.store import Store


class Watch(ABC):
    """Looks at one thing of a scenario. ``step`` is called between two steps, ``after`` when the scenario is over."""

    @abstractmethod
    def step(self) -> Iterator[str]:
        """Say what is broken now; each line begins with the invariant's name."""

    @abstractmethod
    def after(self) -> Iterator[str]:
        """Say what is broken at the end."""

    def live(self) -> list[Child]:
        """List the nodes that live and whose own scope may be cancelled."""
        return []

    def halt(self) -> bool:
        """Halt what is watched, in sync code; tell whether there was anything to halt."""
        return False

    def stop_node(self, node: Child) -> bool:
        """Stop one live node with all below it, from sync code; tell whether that is possible here."""
        return False

    def ends(self) -> Iterator[Exit]:
        """Give all recorded ends."""
        return iter(())


class Family:
    """All nodes that a tree ever had, as seen by looking at each step.

    A node that starts and ends between two looks would be missed; none does, since
    a child takes a step of its own.
    """

    def __init__(self, top: Callable[[], Child | None], host: Host, *, may_grow: bool = False) -> None:
        self._top = top
        self._host = host
        # Whether by-hand starts after a stop are none of our business.
        self._may_grow = may_grow
        self.seen: dict[Child, Exit | None] = {}
        self._living: dict[Child, None] = {}
        self._halted = False
        # Restarts that each supervisor decided: the newest entry of its window when last looked at, and all times.
        self._windows: dict[Supervisor, list[float]] = {}
        # When each place below a supervisor was filled.
        self._filled: dict[tuple[Child, str], list[float]] = {}

    def look(self, halted: bool) -> Iterator[str]:
        """Take in what happened since the last look."""
        top = self._top()
        if top is not None:
            for node in top.from_the_top():
                if node not in self.seen:
                    yield from self._new(node)
        for node in list(self._living):
            if node.exit is not None:
                yield from self._ended(node)
        self._halted = halted

    def _new(self, node: Child) -> Iterator[str]:
        self.seen[node] = None
        self._living[node] = None
        if self._halted:
            yield f"INV-6 {node.path} was started after the halt was recorded"
        if isinstance(node.parent, Supervisor):
            yield from self._restarted(node.parent, node)

    def _restarted(self, supervisor: Supervisor, node: Child) -> Iterator[str]:
        flags = supervisor.plan.flags
        if flags.dynamic or self._may_grow:
            return
        now = trio.current_time()
        filled = self._filled.setdefault((supervisor, node.path), [])
        filled.append(now)
        # The first start is none. Each decision starts one place once, so no place is refilled more often.
        recent = [at for at in filled[1:] if now - at <= flags.period]
        if len(recent) > flags.intensity:
            yield f"INV-7 {node.path} was restarted {len(recent)} times within {flags.period:g} s"

    def _ended(self, node: Child) -> Iterator[str]:
        self.seen[node] = node.exit
        del self._living[node]
        for child in self.seen:
            if child.parent is node and child.exit is None:
                yield f"INV-2 {node.path} has a recorded end, and its child {child.path} has none"
        kept = isinstance(node, BehaviourActor) and node.spec.messages is OnRestart.keep
        if isinstance(node, Actor) and node._calls and not kept:
            yield f"INV-8 {node.path} has a recorded end, and {len(node._calls)} asks are open"

    def after(self) -> Iterator[str]:
        """Say what is broken when everything should be over."""
        yield from self.look(self._halted)
        for node, end in self.seen.items():
            if end is None or node.exit is None:
                yield f"INV-1 {node.path} has no recorded end"
            elif node.exit is not end:
                yield f"INV-1 {node.path} has two recorded ends: {end}; {node.exit}"
            elif end.path != node.path:
                yield f"INV-1 {node.path} ended as {end.path}"
            yield from self._left_by(node)
        if self._host.abandoned:
            yield f"INV-9 abandoned tasks are kept: {[node.path for node in self._host.abandoned]}"
        yield from self._left_by_all()

    def _left_by_all(self) -> Iterator[str]:
        host = self._host
        if len(host.deadlines):
            yield f"INV-9 {len(host.deadlines)} deadlines are still set"
        if host.registry.names() or host.registry._restarting or host.registry._waiting:
            yield f"INV-9 names are still taken, marked or waited for: {host.registry.names()}"
        if len(host.waits):
            yield f"INV-9 {len(host.waits)} waits stand in the graph"

    def _left_by(self, node: Child) -> Iterator[str]:
        if node.children:
            yield f"INV-9 {node.path} still lists children"
        if isinstance(node, Actor) and len(node.mailbox):
            yield f"INV-9 {node.path} keeps {len(node.mailbox)} messages"
        if isinstance(node, BehaviourActor) and (node.stash or node.carried):
            yield f"INV-9 {node.path} keeps messages that it set aside, or that nobody took over"

    def live(self) -> list[Child]:
        """List those that live; supervisors are stopped by their owners only."""
        return [node for node in self._living if not isinstance(node, Supervisor)]


class TreeWatch(Watch):
    """Watches a tree of agents; with its ``store`` also what is written down."""

    def __init__(self, tree: Tree, store: Store | None = None) -> None:
        self.tree = tree
        self._store = store
        self.family = Family(lambda: tree.root, tree.host)

    def step(self) -> Iterator[str]:
        """Look at the nodes, the slots and the ledger."""
        tree, limits, state = self.tree, self.tree.limits, self.tree.ledger.state
        yield from self.family.look(state.halt is not None)
        working = sum(agent.holds_slot for agent in self.family.live() if isinstance(agent, Agent))
        if tree.slots.out > limits.max_concurrent or working > limits.max_concurrent:
            yield f"INV-3 {working} agents work with {tree.slots.out} slots, of {limits.max_concurrent}"
        if working != tree.slots.out:
            yield f"INV-3 {working} agents work, and {tree.slots.out} slots are out"
        if state.spent_tokens + state.reserved_tokens > limits.max_total_tokens:
            yield f"INV-4 {state.spent_tokens} spent + {state.reserved_tokens} reserved > {limits.max_total_tokens}"
        cost = limits.max_total_cost
        if cost is not None and state.spent_microdollars + state.reserved_microdollars > cost:
            yield f"INV-4 {state.spent_microdollars} + {state.reserved_microdollars} microdollars > {cost}"
        if state.agents > limits.max_total_agents:
            yield f"INV-4 {state.agents} agents of {limits.max_total_agents}"

    def after(self) -> Iterator[str]:
        """Look at what is left."""
        yield from self.family.after()
        tree, state = self.tree, self.tree.ledger.state
        if not tree.leaks().empty:
            yield f"INV-9 {tree.leaks()}"
        if tree.slots.out:
            yield f"INV-3 {tree.slots.out} slots are out after the end"
        if state.reserved_tokens or state.reserved_microdollars:
            yield f"INV-4 {state.reserved_tokens} tokens are reserved after the end"
        if tree.slots.queued or tree.slots._returning or tree.ledger._line or state._held:
            yield "INV-9 somebody still stands in a line"
        agents = [node for node in self.family.seen if isinstance(node, Agent)]
        total = tree.slots.total()
        if tree.root is not None and (total.working, total.waiting, total.queued) != (0, 0, 0):
            yield f"INV-9 the tally says {total} after the end"
        if len(agents) > state.agents:
            yield f"INV-4 {len(agents)} agents existed, {state.agents} were counted"
        spent = sum(agent.own_tokens for agent in agents)
        if spent != state.spent_tokens:
            yield f"INV-4 the agents spent {spent} tokens, the ledger has {state.spent_tokens}"
        if self._store is not None:
            for agent in agents:
                yield from self._written(agent, self._store)

    def _written(self, agent: Agent, store: Store) -> Iterator[str]:
        record = store.run(agent.run_id)
        if record is None:
            yield f"INV-1 {agent.path} has no row"
        elif record.finished_at is None:
            yield f"INV-1 the row of {agent.path} has no end"
        if agent.outcome is None:
            yield f"INV-1 {agent.path} has no outcome"
        for held in store.reservations(agent.run_id):
            if held.state == "open":
                yield f"INV-4 reservation {held.reservation} of {agent.path} is stored as open"

    def live(self) -> list[Child]:
        """List the live agents."""
        return self.family.live()

    def halt(self) -> bool:
        """Halt the tree."""
        return self.tree.halt_nowait(HaltKind.cancel, by="fuzz", reason="at a checkpoint")

    def stop_node(self, node: Child) -> bool:
        """Stop one agent and all below it, as its parent may."""
        if not isinstance(node, Agent) or node.parent is None:
            return False
        now = trio.current_time()
        self.tree.stop_below(node, Halt(HaltKind.parent, node.parent.path, now, node.path, "fuzz"))
        return True

    def ends(self) -> Iterator[Exit]:
        """Give all recorded ends."""
        return (end for end in self.family.seen.values() if end is not None)


class SupervisionWatch(Watch):
    """Watches a supervision tree. ``by_hand``: places are refilled by requests too, so restarts are not counted."""

    def __init__(self, tree: SupervisionTree, *, by_hand: bool = False) -> None:
        self.tree = tree
        self.family = Family(lambda: tree.top, tree.host, may_grow=by_hand)

    def step(self) -> Iterator[str]:
        """Look at the nodes and their restarts."""
        yield from self.family.look(self.tree.halt is not None)

    def after(self) -> Iterator[str]:
        """Look at what is left."""
        if not hasattr(self.tree.host, "services"):
            # It was never opened: the top is made with the block.
            return
        yield from self.family.after()
        receipt = self.tree.receipt
        if receipt is not None:
            named = set(receipt.not_ended)
            for node, end in self.family.seen.items():
                # Whoever was given up before, by a supervisor's own stop, is named in that stop's report.
                given_up = end is not None and not end.left and end.ended_at > receipt.asked_at
                if given_up and node.path not in named:
                    yield f"INV-10 {node.path} did not end, and the receipt does not name it"

    def live(self) -> list[Child]:
        """List the live nodes that are no supervisors."""
        return self.family.live()

    def halt(self) -> bool:
        """Halt the tree, as a cancel from outside does."""
        tree = self.tree
        if tree.halt is not None or tree.top.exit is not None or not hasattr(tree.host, "services"):
            return False
        tree._latch(HaltKind.cancel, "fuzz", "at a checkpoint")
        return True

    def ends(self) -> Iterator[Exit]:
        """Give all recorded ends."""
        return (end for end in self.family.seen.values() if end is not None)


class ActorWatch(Watch):
    """Watches actors that a scenario made by itself, under a `Host` of its own."""

    def __init__(self, host: Host, *actors: Actor[Any]) -> None:
        self._actors = actors
        self._host = host
        self._families = [Family(lambda top=top: top, host) for top in actors]  # type: ignore[misc]

    def step(self) -> Iterator[str]:
        """Look at each actor."""
        for family in self._families:
            yield from family.look(False)

    def after(self) -> Iterator[str]:
        """Look at what is left."""
        for family in self._families:
            yield from family.after()

    def live(self) -> list[Child]:
        """List the live actors."""
        return [node for family in self._families for node in family.live()]

    def ends(self) -> Iterator[Exit]:
        """Give all recorded ends."""
        return (end for family in self._families for end in family.seen.values() if end is not None)
