"""One agent: a supervised task with a slot, an account and a path.

A behaviour is any async function whose first argument is its `Agent`. Through
it the behaviour spawns children, draws on the ledger, and says when it only
waits. It never sees the tree's other agents.

The order of an agent's life: registered with the ledger and started in one step
-> takes a slot -> its row -> works -> gives the slot back -> its children end ->
its end is stored -> its end is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import trio

from actors.agents.about import UNLIMITED, About, AgentLimits
from actors.agents.agent_ledger import AgentLedger
from actors.agents.background import Background, background_of
from actors.agents.child_handle import ChildHandle
from actors.agents.incarnations import Incarnations
from actors.agents.live_states import WaitFor
from actors.agents.outcomes import Outcome
from actors.agents.past import PastAgent
from actors.agents.recording import settled_row
from actors.agents.restarting import Former, RestartPolicy
from actors.agents.rows import AgentEvent, RunResumed, RunStarted, RunStatus
from actors.agents.terminal_slot import TerminalSlot
from actors.agents.waiting import Waiting
from actors.containment.ledger_state import Reservation
from actors.containment.limits import dollars
from actors.containment.slots import DONE, FRESH, QUEUED, WORKING
from actors.containment.usage import Usage
from actors.errors import DepthCap, Halted, LeafSpawn, SpawnRefusal, Stopping, StoreError
from actors.halts import Halt, HaltKind
from actors.ids import agent_run_id, child_path
from actors.runtime.child import Child
from actors.runtime.exits import Exit, Reason

if TYPE_CHECKING:
    from actors.agents.tree import Tree

R = TypeVar("R")
# An async function of its agent and whatever else.
Behaviour = Callable[..., Awaitable[R]]


# An agent that is told to stop waits so long at most for rows that are on their way.
COMMIT_SECONDS = 5.0
# Children that are taken in again between two turns of the loop.
ADOPTED_AT_ONCE = 64
# By itself, as in `slots.py`.
FOR_CHILD: Final = WaitFor.child


class Agent(Child):
    """What a behaviour is given. One for each agent; it is the borrower of its slot.

    Attributes:
        path: where it hangs: ``root``, ``root/3`` and so on.
        depth: 0 for the root.
        limits: its own limits, already narrowed.
    """

    __slots__ = ("_about", "_args", "_behaviour", "_spawned", "_timer", "_waits", "background", "behind", "below", "commit", "depth", "estimated", "former", "held", "latest_wait", "limits", "outcome", "over", "own_microdollars", "own_overrun", "own_tokens", "past", "paused_below", "place", "said", "seat", "shield", "since", "started_at", "steps", "terminal", "tree", "usage")  # noqa: E501

    def __init__(
        self,
        tree: Tree,
        path: str,
        depth: int,
        parent: Agent | None,
        behaviour: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        limits: AgentLimits,
        about: About | None = None,
    ) -> None:
        deepest = tree.limits.max_depth if limits.max_depth is None else limits.max_depth
        super().__init__(path, parent, tree.host, may_parent=not limits.leaf and depth < deepest)
        self.tree = tree
        self.depth = depth
        self.limits = limits
        self.seat = FRESH
        self._behaviour = behaviour
        self._args = args
        self._about = about
        self._spawned = 0
        self._waits = 0
        # The wait that began last, and since when it does what it does: for whoever looks at the tree.
        self.latest_wait: Waiting | None = None
        self.since = self.tree.now()
        self._timer: Any = None
        self.started_at: float | None = None
        # The shield under which it stands in line to go on, and who waits for that.
        self.shield: trio.CancelScope | None = None
        self.behind: trio.Event | None = None
        # The shield under which its rows are committed.
        self.commit: trio.CancelScope | None = None
        # What it did in a process that is gone; its loop takes it up.
        self.past: PastAgent | None = None
        # Where it was made: step and ordinal of the call, for rows. Zero for a plain spawn.
        self.place = (0, 0)
        self.own_tokens = 0
        self.own_microdollars = 0
        self.own_overrun = 0
        # Usage as endpoints reported it: its own, and that of all that has ended below it.
        self.usage: Usage | None = None
        self.below: tuple[Usage | None, int] | None = None
        self.estimated = False
        # Completed steps of an agent that works in steps.
        self.steps = 0
        # Whether its work is over; nothing is reserved in its name then.
        self.over = False
        # Whether a child of it was only interrupted, and goes on later.
        self.paused_below = False
        # Reservations that are open, so that an end closes them.
        self.held: dict[int, Reservation] | None = None
        # How the incarnation before this one ended; None in the first.
        self.former: Former | None = None
        # Children it went on without; None while there was none.
        self.background: Background | None = None
        self.outcome: Outcome | None = None
        self.terminal: TerminalSlot | None = None
        self.said: str | None = None

    # ── what a behaviour uses ───────────────────────────────────────────────

    @property
    def ledger(self) -> AgentLedger:
        """Give the ledger as this agent sees it."""
        return AgentLedger(self)

    @property
    def run_id(self) -> str:
        """Name this agent's run in the store."""
        return agent_run_id(self.tree.run_id, self.path)

    @property
    def holds_slot(self) -> bool:
        """Whether it is at work."""
        return self.seat is WORKING

    @property
    def waits_for_children(self) -> bool:
        """Whether it does nothing until a child ends, however long that takes."""
        wait = self.latest_wait
        return self.over or (wait is not None and wait.what is FOR_CHILD and wait.until is None)

    @property
    def incarnation(self) -> int:
        """Number the running incarnation, from 1."""
        return 1 if self.former is None else self.former.incarnation + 1

    @property
    def about(self) -> About:
        """Say what the agent is for; a plain function's goal is its name."""
        return self._about or About(goal=getattr(self._behaviour, "__qualname__", repr(self._behaviour)))

    async def spawn(
        self,
        behaviour: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        limits: AgentLimits | None = None,
        detached: bool = False,
        restart: RestartPolicy | None = None,
    ) -> ChildHandle[R]:
        """Start a child, and return its handle at once.

        ``behaviour`` is called with the child's own `Agent` and ``args``. The child
        waits for a slot by itself, after all who come back to theirs. ``detached``:
        nobody will wait for it, and `collect` gives it when it has ended. ``restart``
        lets it begin again, under the same path and handle, and see its `former`;
        without it an agent is temporary.

        Checkpoint: always.
        Cancellation: no child was made and nothing was counted.

        Raises:
            SpawnRefusal: agents, depth or budget say no, or this agent is a leaf.
            Stopping: this agent is being stopped, and the tree is not.
        """
        if restart is not None:
            behaviour = Incarnations(behaviour, restart)
        child = await self.spawn_agent(behaviour, args, limits or UNLIMITED)
        if detached:
            background_of(self).let_go(child, None)
        return ChildHandle(child)

    def collect(self) -> list[ChildHandle[Any]]:
        """Take the children that it went on without and that have ended since, in the order of their spawns."""
        if self.background is None:
            return []
        ended = self.background.collect(self.steps)
        # Whoever collects reads them; only what nobody collected is stored with the end.
        self.background.stored()
        # What a process that is gone left unread belongs to the loop of an agent that asks a model.
        return [ChildHandle(child) for child in ended if isinstance(child, Agent)]

    async def drain(self) -> list[ChildHandle[Any]]:
        """Wait until no child runs, without a slot, and `collect`. An end does this by itself.

        Checkpoint: only if a child lives.
        Cancellation: no child is disturbed, and nothing was collected.
        """
        if self.children:
            async with self.waiting(WaitFor.child):
                while self.children:
                    await next(reversed(self.children)).wait_ended()
        return self.collect()

    def waiting(self, what: WaitFor = WaitFor.other, until: float | None = None) -> Waiting:
        """Give the slot back for as long as the block, and take it again before going on.

        ``what`` it waits for, and ``until`` when (on trio's clock), is shown to whoever looks at the tree.
        Several tasks of one behaviour may use it: the first gives the slot back,
        the last takes it again.

        Cancellation: the block is left without the slot, on the way out.

        Raises:
            WouldDeadlock: from the end of the block: whoever holds a slot waits for this
                agent, perhaps through others. It gets none and cannot go on: its work is cancelled.
        """
        return Waiting(self, what, until)

    async def await_end_of(self, child: Child) -> Exit:
        """Wait for the end of ``child`` without a slot, and give it.

        Checkpoint: only if it still lives.
        Cancellation: it is not disturbed.

        Raises:
            WouldDeadlock: it waits for this agent, perhaps through others.
        """
        alone = self.task is trio.lowlevel.current_task()
        if alone:
            self.host.waits.check(self, child, what="the end of", lends=True)
            self.awaits = child
        wait = Waiting(self, FOR_CHILD)
        wait.begin()
        try:
            end = await child.wait_ended()
        finally:
            if alone:
                self.awaits = None
            if not wait.end_nowait():
                await wait.end_in_line()
        if self.scope.cancel_called:
            await wait.leave_cut()
        return end

    # ── spawning ────────────────────────────────────────────────────────────

    async def spawn_agent(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        limits: AgentLimits,
        *,
        place: tuple[int, int] | None = None,
        about: About | None = None,
    ) -> Agent:
        """Start a child and return it; ``place`` is the (step, ordinal) of the call that asked for it.

        Cancellation: no child was made and nothing was counted.
        """
        if not isinstance(limits, AgentLimits):
            raise TypeError(f"limits must be AgentLimits, not {limits!r}")
        # Asked only of an agent that has limits of its own; the tree's are the ledger's to judge.
        refusal = None if self.limits is UNLIMITED else self._refuses()
        child: Agent | None = None

        spawner = trio.lowlevel.current_task()
        counted = place is not None and self.tree.was_counted(self.path, place)

        def begin() -> None:
            nonlocal child
            if trio.lowlevel.current_task() is spawner:
                child = self._make(behaviour, args, limits, place, about)
            else:
                # The ledger's task admits it, and the child is to see the context of its spawner, which is parked.
                child = spawner.context.run(self._make, behaviour, args, limits, place, about)

        if refusal is None and counted:
            # A process before this one counted it, and did not write down that it had made it.
            await trio.lowlevel.checkpoint()
            begin()
        elif refusal is None:
            refusal = await self.tree.ledger.register_agent(self.depth + 1, begin)
        else:
            await trio.lowlevel.checkpoint()
            self.tree.ledger.state.count_refusal(refusal.cap)
        if refusal is not None:
            await self.tree.refused(self, refusal, 0 if place is None else place[0])
            raise refusal
        assert child is not None
        return child

    async def adopt_agent(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        limits: AgentLimits,
        *,
        place: tuple[int, int],
        about: About,
    ) -> Agent:
        """Start again a child that a process before this one made and did not see end; it was counted then.

        Checkpoint: once in `ADOPTED_AT_ONCE` children.
        Cancellation: no child was started.
        """
        if self._spawned % ADOPTED_AT_ONCE == 0:
            # One by one, ten thousand of them would turn the loop as often, and share no transaction.
            await trio.lowlevel.checkpoint()
        return self._make(behaviour, args, limits, place, about)

    def _refuses(self) -> SpawnRefusal | None:
        """Say no for what this agent alone knows."""
        if self.limits.leaf:
            return LeafSpawn(self.path)
        own = self.limits.max_depth
        if own is not None and own < self.tree.limits.max_depth and self.depth + 1 > own:
            return DepthCap(own, self.depth + 1)
        return None

    def _make(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        limits: AgentLimits,
        place: tuple[int, int] | None,
        about: About | None,
    ) -> Agent:
        if self._stop_at is not None or self.exit is not None:
            raise Stopping(f"{self.path} is being stopped and starts nothing")
        ordinal = str(self._spawned + 1) if place is None else f"{place[0]}.{place[1]}"
        if limits.max_depth is not None or self.limits.max_depth is not None:
            limits = self._narrowed(limits)
        child = Agent(
            self.tree, child_path(self.path, ordinal), self.depth + 1, self, behaviour, args, limits, about
        )
        if place is not None:
            child.place = place
            if self.tree.past is not None:
                child.remember(self.tree.past.agent(child.path))
        self._spawned += 1
        self.start_child(child)
        # Its place in line is that of this call, whenever its task first runs.
        self.tree.slots.line_up(child)
        return child

    def remember(self, past: PastAgent | None) -> None:
        """Take up what this agent did in a process that is gone. Before its task runs."""
        if past is None:
            return
        self.past = past
        self.steps = past.last_step
        self.own_tokens, self.own_microdollars = past.own_tokens, past.own_microdollars
        self.own_overrun, self.estimated = past.own_overrun, past.estimated
        self.usage, self.said = past.usage, past.said
        for each in past.children:
            if each.end is not None and each.reported:
                self.add_below(each.end.usage, each.end.turns)

    def _narrowed(self, limits: AgentLimits) -> AgentLimits:
        """Give a child's limits with the least depth that it, this agent and the tree allow."""
        tree_deepest = self.tree.limits.max_depth
        asked = (tree_deepest, self.limits.max_depth, limits.max_depth)
        deepest = min(depth for depth in asked if depth is not None)
        if deepest == (tree_deepest if limits.max_depth is None else limits.max_depth):
            return limits
        return attrs.evolve(limits, max_depth=deepest)

    # ── its life ────────────────────────────────────────────────────────────

    async def work(self) -> Any:
        """Take a slot, be recorded, and run the behaviour.

        Cancellation: the agent ends as ``shutdown``.
        """
        if self._stop_at is not None:
            # Told to stop before it ever ran: the scope is cancelled, and this raises.
            await trio.lowlevel.checkpoint()
        if self.limits.max_duration is not None:
            # The time in which no process drove it counts too.
            at = self._start_time() + self.limits.max_duration
            self._timer = self.host.deadlines.at(at, self._out_of_time)
            if at <= trio.current_time():
                # It was over before this process began: nothing more is paid for. One that is new has no start row yet.
                self.started_at = None if self.past is None else self._start_time()
                self._out_of_time()
                await trio.sleep_forever()
        if self.seat is not WORKING:
            await self.tree.slots.wait_turn(self)
            self.since = self.tree.now()
        elif self.tree.was_queued(self):
            self.tree.dropped_from_queue(self)
        if self.tree.ledger.halted is not None:
            # Its turn came between the halt and its own stop: it begins nothing.
            self.tree.slots.give_back(self)
            await trio.sleep_forever()
        if self.tree.recorder is not None:
            self.started_at = self._start_time()
            await self._record_start()
        return await self._behaviour(self, *self._args)

    def _start_time(self) -> float:
        """Give when it started, on trio's clock; ask before its work begins. A process before this one may have."""
        return trio.current_time() - (0.0 if self.past is None else self.past.age)

    async def _record_start(self) -> None:
        recorder = self.tree.recorder
        assert recorder is not None
        if self.past is not None:
            await recorder.append(RunResumed(self.run_id, self.steps))
            await recorder.emit(self, "resumed", step=self.steps)
            return
        rows = self.start_rows()
        await recorder.append(*rows)
        await recorder.emit(self, "started", goal=rows[0].goal)

    def start_rows(self) -> list[Any]:
        """Give the rows of the start. Whoever spawned for a call writes of the spawn itself."""
        if self.past is not None:
            return []
        start = self.start_row()
        rows: list[Any] = [start]
        if start.parent_run_id is not None and self._about is None:
            rows.append(AgentEvent(start.parent_run_id, 0, "spawn", start.goal, start.run_id))
        return rows

    def start_row(self) -> RunStarted:
        """Give the row of the start."""
        about = self.about
        return RunStarted(
            self.run_id,
            self.tree.run_id,
            self.path,
            self.depth,
            self.parent.run_id if isinstance(self.parent, Agent) else None,
            about.goal,
            about.file,
            about.provider,
            about.model,
            about.contract,
            None if self.parent is not None else self.tree.limits.to_json(),
            about.policy,
            about.root,
            about.opening,
            about.entry,
            about.reopened_from,
            about.task,
        )

    def _out_of_time(self) -> None:
        """End this agent with all below it: its own time is over."""
        halt = Halt(
            HaltKind.duration,
            "timer",
            trio.current_time(),
            self.path,
            "own time budget",
            limit=self.limits.max_duration,
            used=self.limits.max_duration,
        )
        self.tree.stop_below(self, halt)

    def cut(self) -> None:
        """Cancel the work, also while it stands in line for its slot."""
        super().cut()
        if self.shield is not None:
            self.shield.cancel()
        if self.commit is not None:
            self.commit.deadline = trio.current_time() + COMMIT_SECONDS

    @contextmanager
    def committing_shield(self) -> Iterator[trio.CancelScope]:
        """Shield a commit: without a bound while nobody stops the agent, from its stop on for `COMMIT_SECONDS`."""
        with trio.CancelScope(shield=True) as shield:
            if self.scope.cancel_called:
                shield.deadline = trio.current_time() + COMMIT_SECONDS
            self.commit = shield
            try:
                yield shield
            finally:
                self.commit = None

    def is_echo(self, error: BaseException) -> bool:
        """Tell whether a behaviour let through that a child of it was halted, while it is being halted itself."""
        if isinstance(error, BaseExceptionGroup):
            return error.split(Halted)[1] is None
        return isinstance(error, Halted)

    def resting(self) -> None:
        """Give the slot back and close what is held: the work is over, children may still run."""
        self.over = True
        if self.held:
            self.close_held()
        if not self.children:
            self._leave()
            return
        self.since = self.tree.now()
        if self.seat is WORKING:
            self.tree.slots.give_back(self)
            if self.tree.recorder is not None:
                decided = None if self.outcome is None else self.outcome.text()
                self.tree.recorder.append_nowait(RunStatus(self.run_id, "draining", decided))

    def close_held(self) -> None:
        """Close what is held for calls that nobody will answer any more."""
        for reservation in list((self.held or {}).values()):
            # Whether its request was billed is unknown, so it is charged in full.
            settlement = self.ledger.settle_nowait(reservation, None)
            if self.tree.recorder is not None:
                self.tree.recorder.append_nowait(settled_row(self.run_id, reservation, settlement))

    def _exit(self, reason: Reason, raised: BaseException | None, lost: BaseException | None) -> Exit:
        end = super()._exit(reason, raised, lost)
        tokens = self.own_tokens + self.own_overrun
        if end.clean or not (tokens or self.own_microdollars):
            return end
        # In words, because the runtime knows no money: whoever reads the end is told what it cost.
        return attrs.evolve(end, spent=f"{tokens:,} tokens ({dollars(self.own_microdollars)} dollars)")

    def ended(self, exit: Exit) -> None:
        """Give back whatever is still held, and hand usage up."""
        if self.seat is not DONE:
            self._leave()
        if self._timer is not None:
            self._timer.cancel()
        if self.parent is None:
            self.tree.root_over()
        if self.usage is None and self.below is None and not self.steps:
            return
        if isinstance(self.parent, Agent):
            self.parent.add_below(*self.total_usage())

    def _leave(self) -> None:
        was_queued = self.seat is QUEUED
        self.tree.slots.leave(self)
        if was_queued:
            self.tree.dropped_from_queue(self)

    def must_close(self) -> bool:
        """Tell whether somebody writes the end down."""
        return self.tree.recorder is not None

    async def closing(self, exit: Exit) -> None:
        """Store the end.

        Cancellation: the row is missing, and a resume sees the agent as unfinished.
        """
        if self.tree.recorder is None:
            return
        if self.parent is None:
            # What is stored now is how the run ended; no later halt comes beside it.
            self.tree.root_over()
        if self.background is not None and not self.paused_below and not self.tree.pauses(exit):
            # Whoever goes on finds the children's own ends.
            self.background.store_rest()
        try:
            await self.tree.recorder.finished(self, exit)
        except StoreError as error:
            # The end is told all the same; the run says that it was not stored.
            self.tree.store_failed(error)
        if self.terminal is not None and self.terminal.get() is None and isinstance(self.parent, Agent):
            self.parent.paused_below = True

    # ── accounts ────────────────────────────────────────────────────────────

    def add_usage(self, usage: Usage) -> None:
        """Count what an endpoint reported for a call of this agent."""
        self.usage = _both(self.usage, usage)

    def add_below(self, usage: Usage | None, turns: int) -> None:
        """Count what a child that has ended used, with all below it."""
        have, had_turns = self.below or (None, 0)
        self.below = (_both(have, usage), had_turns + turns)

    def total_usage(self) -> tuple[Usage | None, int]:
        """Give the usage and turns of this agent and of all that has ended below it; None when there was no call."""
        below, below_turns = self.below or (None, 0)
        return _both(self.usage, below), self.steps + below_turns


def _both(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return one + other
