"""The tree: one root agent under one containment boundary, and everything that stops it.

    async with open_tree(limits) as tree:
        value = await tree.run(behaviour, *args)

A halt latches and closes admission in one sync step. A warden task then has its
row stored, for at most a second, and stops the agents leaf first, within the
clean-up allowance. What does not stop is named, and the tree says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import TracebackType
from typing import Any, Literal, TypeVar

import attrs
import trio

from actors.agents.about import UNLIMITED, About, AgentLimits
from actors.agents.agent import Agent
from actors.agents.child_handle import result_of
from actors.agents.entry_text import clean
from actors.agents.leasing import claim, give_back
from actors.agents.live_views import Looked, keep_live_row, look
from actors.agents.past import Past
from actors.agents.ports import Observer, RunStore
from actors.agents.queue_rows import left_queue_row, queue_rows
from actors.agents.recording import Recorder, of_the_store, totals_row
from actors.agents.remembered import Memory
from actors.agents.rows import LedgerTotals
from actors.agents.snapshots import TreeSnapshot, left_out
from actors.agents.unrecorded import Unrecorded
from actors.containment.ledger import Ledger
from actors.containment.ledger_state import LedgerState
from actors.containment.limits import Containment
from actors.containment.lines import QueueOrder
from actors.containment.slots import Slots
from actors.errors import ActorsError, Halted, SpawnRefusal, StoreError, StoreErrorKind
from actors.halts import RESUMABLE, Halt, HaltKind
from actors.ids import ROOT, child_path, new_run_id
from actors.runtime.exits import Exit, Reason, named
from actors.runtime.host import Host
from actors.runtime.stops import StopReceipt

R = TypeVar("R")
log = logging.getLogger("actors.tree")

# A failing store delays no halt for longer.
HALT_ROW_SECONDS = 1.0
# How often a lease of 30 s is renewed.
LEASE_SECONDS = 10.0
# How often it is looked whether everybody waits for a human, while somebody does.
PARKED_SECONDS = 0.1
SHOWN_REQUESTS = 5


@attrs.frozen
class Leaks:
    """What a finished tree still holds: always empty, and tested so."""

    tasks: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    reservations: tuple[int, ...] = ()
    processes: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing leaked."""
        return not (self.tasks or self.slots or self.reservations or self.processes)


class Life(StrEnum):
    """Whether the block of a tree was entered and left."""

    new = "new"
    open = "open"
    closed = "closed"


class Tree:
    """One run of one tree. Make it with `open_tree`, and call `run` once.

    Leaving the block ends the tree: what still runs is halted. It waits for the
    clean-up allowance and a kill wait of a second at most, except for a task that
    swallows its cancel, which is named in the log.
    """

    def __init__(
        self,
        limits: Containment,
        store: RunStore | None,
        observer: Observer | None,
        cleanup_allowance: float,
        state: LedgerState | None = None,
        run_id: str | None = None,
        queue_order: QueueOrder = QueueOrder.fifo,
    ) -> None:
        if not math.isfinite(cleanup_allowance) or cleanup_allowance < 0:
            raise ValueError(f"cleanup_allowance must be a finite number of seconds, not {cleanup_allowance!r}")
        self.limits = limits
        self.run_id = new_run_id() if run_id is None else run_id
        self.cleanup_allowance = cleanup_allowance
        self.ledger = Ledger(limits, state)
        self.slots = Slots(limits.max_concurrent, QueueOrder(queue_order))
        self.host = Host(self._outside)
        self.recorder: Recorder | None = None
        if store is not None or observer is not None:
            durable = bool(getattr(store, "durable", False))
            self.recorder = Recorder(store or Unrecorded(), observer, self.run_id, durable)
        # As `trio.current_time`, three calls shorter: each wait of an agent asks for it.
        self.now: Callable[[], float] = trio.current_time
        self.root: Agent | None = None
        self.receipt: StopReceipt | None = None
        self.halt_stored: bool | None = None
        # The first error of the store while ends were written; the embedder is told at the end.
        self.store_error: StoreError | None = None
        # What a process that is gone knew of this tree, and the halt it had recorded.
        self.past: Past | None = None
        # Agents whose question was put off, and the questions; and those for which the whole tree was paused.
        self.parked: dict[Agent, str] = {}
        self.paused_for: dict[str, str] = {}
        # What is not asked about again, anywhere in the tree.
        self.remembered = Memory()
        self._leased = False
        # Process ids that tools could not end; a tool runner adds them.
        self.leaked_processes: list[int] = []
        # Agents with open reservations: who waits for room waits for any of them.
        self.holders: dict[Agent, None] = {}
        self._state = Life.new
        # Whether the end of the root is decided: no halt comes after it.
        self._over = False
        self._halted = trio.Event()
        self._wound_down = trio.Event()
        self._timer: Any = None
        self._deadline: float | None = None

    # ── the embedder's side ─────────────────────────────────────────────────

    async def run(self, behaviour: Callable[..., Awaitable[R]], /, *args: Any) -> R:
        """Run the root agent and return what its behaviour returned. Once per tree.

        Cancellation: the tree is halted as an interrupt, and the block's end waits for it.

        Raises:
            Halted: a halt stopped the root before it had a result.
            ChildFailed: the root's behaviour raised; the original exception is the cause.
        """
        root = await self.run_root(behaviour, args)
        assert root.exit is not None
        value: R = result_of(root, root.exit)
        return value

    async def run_root(
        self,
        behaviour: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        limits: AgentLimits = UNLIMITED,
        about: About | None = None,
        past: Past | None = None,
    ) -> Agent:
        """Run the root agent to its end and return it; ``past`` is what the tree did in a process that is gone.

        Time counts from the root's first start, also while no process drove it.

        Cancellation: as `run`.
        """
        if self.root is not None:
            raise ActorsError("a tree runs once; open another")
        if self._state is not Life.open:
            raise ActorsError(f"the tree is {self._state}; run it inside its block")
        if self.ledger.halted is not None:
            raise Halted(self.ledger.halted)
        # What cannot be read is an error before there is a root that somebody would have to stop.
        history = None if past is None else past.agent(ROOT)
        await self._take_lease(past)
        self.past = past
        self.root = Agent(self, ROOT, 0, None, behaviour, args, limits, about)
        self.root.remember(history)
        self.slots.line_up(self.root)
        duration = self.limits.max_total_duration
        if duration is not None:
            self._deadline = trio.current_time() + duration - (0.0 if history is None else history.age)
            self._timer = self.host.deadlines.at(self._deadline, self._out_of_time)
            if self._deadline <= trio.current_time():
                # It was over before this process began: nothing more is paid for.
                self._out_of_time()
        self.host.nursery.start_soon(self.root._main, name=ROOT)
        try:
            await self.root.wait_ended()
            if self._halted.is_set():
                await self._wound_down.wait()
        except trio.Cancelled:
            self._latch(HaltKind.interrupt, "host", "the task that ran the tree was cancelled")
            raise
        return self.root

    def halt_nowait(self, kind: HaltKind = HaltKind.cancel, *, by: str = "operator", reason: str = "") -> bool:
        """Latch a halt in the running step; what follows goes on by itself. Tell whether it is the first.

        False also when the root has ended: then the run has its end. Anybody may ask, also an agent of the tree.
        """
        return self._latch(kind, by, reason)

    async def halt(
        self, kind: HaltKind = HaltKind.cancel, *, by: str = "operator", reason: str = ""
    ) -> StopReceipt:
        """Stop the whole tree, leaf first, and say how each agent ended.

        Cancellation: the halt goes on.

        Raises:
            ActorsError: called from inside the tree, which would wait for itself. Nothing was halted.
        """
        if self._state is Life.new:
            raise ActorsError("the tree is new; halt it inside its block")
        if self._state is Life.closed:
            now = trio.current_time()
            return self.receipt or StopReceipt(now, now)
        if self.host.shelters(trio.lowlevel.current_task()):
            raise ActorsError("an agent cannot wait for the stop of its own tree; use halt_nowait")
        self._latch(kind, by, reason)
        if not self._halted.is_set():
            # The root has ended by itself, or does so in this moment: there is nothing left to stop.
            if self.root is not None:
                await self.root.wait_ended()
            now = trio.current_time()
            return StopReceipt(now, now)
        await self._wound_down.wait()
        assert self.receipt is not None
        return self.receipt

    def snapshot(self, most: int | None = None) -> TreeSnapshot:
        """Show the tree as it is at this moment; of more than ``most`` agents the rest is only counted.

        Cost grows with the agents that are shown.
        """
        live = Looked() if self.root is None or self.root.exit is not None else look(self.root, most)
        now, total = trio.current_time(), self.slots.total()
        left = None if self._deadline is None else max(self._deadline - now, 0.0)
        return TreeSnapshot(
            self.run_id,
            tuple(live.views),
            self.slots.tallies(),
            total,
            self.slots.out,
            self.limits.max_concurrent,
            self.slots.peak_working,
            self.ledger.snapshot(),
            left,
            now,
            left_out(total, live.shown) if live.cut else {},
            self.limits.max_total_tokens,
            self.limits.max_total_cost,
        )

    def leaks(self) -> Leaks:
        """List what is still held. After the run it must be empty."""
        live = [] if self.root is None or self.root.exit is not None else list(self.root.subtree())
        return Leaks(
            tuple(node.path for node in (*live, *self.host.abandoned)),
            tuple(sorted(str(getattr(agent, "path", agent)) for agent in self.slots.limiter.statistics().borrowers)),
            tuple(held.id for held in self.ledger.state.open_reservations),
            tuple(self.leaked_processes),
        )

    # ── what agents need ────────────────────────────────────────────────────

    async def refused(self, agent: Agent, refusal: SpawnRefusal, step: int) -> None:
        """Write a refused spawn down.

        Cancellation: the refusal stands.
        """
        if self.recorder is not None:
            await self.recorder.refused(agent, refusal, step)

    def store_failed(self, error: StoreError) -> None:
        """Note that the store failed, and stop the tree so that it can be resumed: nothing more would be recorded."""
        if self.store_error is None:
            self.store_error = error
        fenced = error.kind is StoreErrorKind.fenced
        self._latch(HaltKind.lease_lost if fenced else HaltKind.interrupt, "store", str(error))

    def was_counted(self, parent: str, place: tuple[int, int]) -> bool:
        """Tell whether a child of this place was counted by a process before this one."""
        past = self.past
        if past is None:
            return False
        step, ordinal = place
        return (parent, step, ordinal) in past.backlog or past.began(child_path(parent, f"{step}.{ordinal}"))

    def was_queued(self, agent: Agent) -> bool:
        """Tell whether an agent still waited for its first slot when a process before this one ended."""
        past, parent = self.past, agent.parent
        return past is not None and parent is not None and (parent.path, *agent.place) in past.backlog

    def pauses(self, exit: Exit) -> bool:
        """Tell whether an agent that ends so was only interrupted, in a store that outlives the process."""
        recorder = self.recorder
        if recorder is None or not recorder.durable or exit.reason is Reason.normal:
            return False
        return of_the_store(exit.cause) or (isinstance(exit.payload, Halt) and exit.payload.kind in RESUMABLE)

    @contextmanager
    def parking(self, agent: Agent, request_id: str) -> Iterator[None]:
        """Count an agent as parked for as long as the block: it waits for a human who has put it off."""
        self.parked[agent] = request_id
        if len(self.parked) == 1:
            self.host.services.start_soon(self._watch_parked)
        try:
            yield
        finally:
            del self.parked[agent]

    async def _watch_parked(self) -> None:
        """Pause the tree when nobody is left who could do anything before a human decides."""
        while self.parked and not self._over:
            if self.ledger.halted is None and self._all_parked() and not self._answer_is_in():
                self.paused_for = {agent.path: request for agent, request in self.parked.items()}
                ids = ", ".join(sorted(self.paused_for.values())[:SHOWN_REQUESTS])
                more = len(self.paused_for) - SHOWN_REQUESTS
                told = f"waits for a decision on {ids}" + (f" and {more} more" if more > 0 else "")
                self._latch(HaltKind.interrupt, "human", told)
                return
            await trio.sleep(PARKED_SECONDS)

    def _all_parked(self) -> bool:
        total = self.slots.total()
        if total.working or total.queued or self.root is None:
            return False
        return all(
            isinstance(node, Agent) and (node in self.parked or node.waits_for_children)
            for node in self.root.subtree()
            if node.exit is None
        )

    def _answer_is_in(self) -> bool:
        """Tell whether a question has its answer, which its agent has not seen yet."""
        assert self.recorder is not None
        try:
            states = [self.recorder.store.approval(request) for request in self.parked.values()]
        except StoreError as error:
            # They read them too, and end by it; a resume finds the answer.
            log.warning("the open questions cannot be read: %s", error)
            return False
        return any(state is not None and state.decision is not None for state in states)

    def stop_below(self, top: Agent, halt: Halt) -> None:
        """Stop one agent and all below it, in the background, bounded by the allowance."""
        if top.exit is None and not top.stopping:
            self.host.services.start_soon(self._wind_down, top, halt)

    async def stop_and_wait(self, top: Agent, halt: Halt) -> StopReceipt:
        """Stop one agent and all below it, and say how each ended.

        Cancellation: the stop goes on, as it is shielded.
        """
        return await self.host.wind_down(top, halt, self.cleanup_allowance)

    async def _wind_down(self, top: Agent, halt: Halt) -> None:
        await self.host.wind_down(top, halt, self.cleanup_allowance)

    def totals_row(self) -> LedgerTotals:
        """Give the tree's totals as a row."""
        return totals_row(self.run_id, self.ledger.snapshot(), self.slots.peak_working)

    # ── stopping ────────────────────────────────────────────────────────────

    def _outside(self, by: str, reason: str, _error: BaseException | None) -> None:
        self._latch(HaltKind.interrupt, by, reason)

    def _out_of_time(self) -> None:
        limit = self.limits.max_total_duration
        self.ledger.latch(
            Halt(HaltKind.duration, "timer", trio.current_time(), ROOT, "", limit=limit, used=limit)
        )

    def root_over(self) -> None:
        """Hear that the root's end is decided, and is being stored: a halt after it would contradict it."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _latched(self, _halt: Halt) -> None:
        if not self._over:
            self._halted.set()

    def _latch(self, kind: HaltKind, by: str, reason: str) -> bool:
        if self._over:
            return False
        return self.ledger.latch(Halt(kind, clean(by), trio.current_time(), ROOT, clean(reason)))

    async def _warden(self) -> None:
        """Carry out the first halt: its row, then the stop, leaf first."""
        await self._halted.wait()
        halt = self.ledger.halted
        assert halt is not None
        self.halt_stored = await self._store_halt(halt)
        if self.root is None or self.root.exit is not None:
            now = trio.current_time()
            self.receipt = StopReceipt(now, now)
        else:
            self.receipt = await self.host.wind_down(self.root, halt, self.cleanup_allowance)
        for path in self.receipt.not_ended:
            log.warning("%s did not end and is still running; it swallows its cancel or shields itself", path)
        self._wound_down.set()

    async def _store_halt(self, halt: Halt) -> bool:
        if self.recorder is None:
            return False
        try:
            with trio.fail_after(HALT_ROW_SECONDS):
                await self.recorder.halted(halt)
        except (StoreError, trio.TooSlowError) as error:
            log.warning("the halt could not be stored: %s", error)
            return False
        except Exception:
            # A bug of ours or of the store: nothing stands between a halt and the stop.
            log.exception("the halt could not be stored")
            return False
        return True

    # ── life ────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Tree:
        await self.host.open()
        self.now = trio.lowlevel.current_clock().current_time
        self._state = Life.open
        self.ledger.start(self.host, self.host.services)
        self.ledger.subscribe(self._latched)
        if self.recorder is not None:
            self.recorder.on_failure = self.store_failed
            self.ledger.rows = self.recorder
            self.slots.on_queue = self._queued
            self.slots.on_admit = self._admitted
            if self.recorder.durable:
                # Only another process needs the row; this one has `snapshot`.
                self.host.services.start_soon(keep_live_row, self)
        self.host.services.start_soon(self._warden)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.root is not None and self.root.exit is None:
            outside = error is None or not isinstance(error, Exception)
            why = "the block was left" if error is None else named(error)
            self._latch(HaltKind.interrupt if outside else HaltKind.cancel, "host", why)
        try:
            await self.host.close(self._finish, error)
        finally:
            self._state = Life.closed
            if self._leased:
                assert self.recorder is not None
                await give_back(self.recorder.store, self.run_id)
        if self.host.fatal is not None and self.host.fatal is not error:
            raise self.host.fatal
        if self.store_error is not None and error is None:
            # Everything ran, and not all of it was written down: the embedder must know.
            raise self.store_error

    async def _take_lease(self, past: Past | None) -> None:
        """Become the one process that drives this tree, and keep saying so. Whoever goes on with one holds it already.

        Raises:
            RunConflict: another one does.
        """
        if self.recorder is None or not self.recorder.durable:
            return
        store = self.recorder.store
        if past is None:
            claim(store, self.run_id)
            # Also when the wait is cut: it may be held all the same. Who goes on with a tree gives back what it took.
            self._leased = True
        await store.take(self.run_id)
        self.host.services.start_soon(self._keep_lease, self.recorder)

    async def _keep_lease(self, recorder: Recorder) -> None:
        while recorder.failed is None:
            await trio.sleep(LEASE_SECONDS)
            try:
                await recorder.store.renew(self.run_id)
            except StoreError as error:
                # Held by another process for a moment: the lease outlasts several tries.
                if error.kind is not StoreErrorKind.busy:
                    recorder.fail(error)

    async def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._halted.is_set():
            await self._wound_down.wait()

    # ── the queue, visible ──────────────────────────────────────────────────

    def _queued(self, agent: Agent) -> None:
        assert self.recorder is not None
        if agent.parent is not None:
            self.recorder.queued(queue_rows(agent), agent, self._fleet(agent))

    def _admitted(self, agent: Agent) -> None:
        assert self.recorder is not None
        if agent.parent is not None:
            self.recorder.left_queue(left_queue_row(agent), agent, self._fleet(agent))

    def dropped_from_queue(self, agent: Agent) -> None:
        """Note an agent that was stopped before it had a slot."""
        if self.recorder is not None and agent.parent is not None:
            self.recorder.left_queue(left_queue_row(agent), agent, self._fleet(agent))

    def _fleet(self, agent: Agent) -> dict[str, int]:
        tally, total = self.slots.tally(agent.depth), self.slots.total()
        return {
            "working": tally.working,
            "waiting": tally.waiting,
            "queued": tally.queued,
            "done": tally.done,
            "tree_working": total.working,
            "tree_queued": total.queued,
        }


def open_tree(
    limits: Containment,
    *,
    store: RunStore | None = None,
    observer: Observer | None = None,
    cleanup_allowance: float = 5.0,
    queue_order: QueueOrder | Literal["fifo", "fair"] = QueueOrder.fifo,
) -> Tree:
    """Open a tree under ``limits``. Use it as ``async with open_tree(limits) as tree``.

    ``store`` None records nothing; `actors.open_tree` gives a store in memory.
    ``cleanup_allowance`` is in seconds: how long everything together may take to
    close its accounts once it is halted. ``queue_order`` says who gets a slot next
    of those that have never started: the first that was spawned, or parents in turn.
    """
    return Tree(limits, store, observer, cleanup_allowance, queue_order=QueueOrder(queue_order))

