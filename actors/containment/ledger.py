"""The ledger actor, and the handle everybody holds.

What only reads is sync on the handle: the state lives on the same thread. What
changes is a message and its answer. The actor never waits, not even for the
store: it answers, and the caller writes its row.

A change whose caller is cancelled before the actor looks at it is not made at
all; once it is made, its answer always arrives, because trio does not cancel a
task that is already awake. So a cancelled call on this handle means: not done.

`latch` alone is sync: a sentinel and a timer must close admission in the step
in which they fire. It runs on the loop's thread between two messages, so it is
one more message in all but the way it travels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from actors.containment.amounts import whole
from actors.containment.ledger_state import (
    WAIT,
    Draw,
    LedgerSnapshot,
    LedgerState,
    Quote,
    Reservation,
    Settlement,
    fixed,
)
from actors.containment.limits import Containment
from actors.containment.rows import LedgerRows
from actors.containment.usage import Usage
from actors.errors import Refused, SpawnRefusal, ToolCallCap
from actors.halts import Halt
from actors.runtime.actor import LATER, Actor, Call
from actors.runtime.child import Child
from actors.runtime.host import Host

# One ask for each agent at most waits here, and agents are limited; so the bound is never what refuses.
MAILBOX_BOUND = 1 << 30


@attrs.define(slots=True, eq=False)
class _DrawTokens:
    tokens: int
    microdollars: int
    by: str


@attrs.define(slots=True, eq=False)
class _Reserve:
    quote: Quote
    by: str
    own_left: Callable[[], int | None] | None
    on_wait: Callable[[Call], None] | None


@attrs.define(slots=True, eq=False)
class _Settle:
    reservation: Reservation
    tokens: int | None
    microdollars: int


@attrs.define(slots=True, eq=False)
class _Register:
    depth: int
    begin: Callable[[], None] | None


@attrs.define(slots=True, eq=False)
class _AdmitTools:
    count: int


class Ledger:
    """One per tree: the handle of the ledger actor.

    Example::

        async with open_ledger(Containment(10, 4, 3, 1_000)) as ledger:
            if await ledger.draw_tokens(120) is Draw.halted:
                ...
    """

    def __init__(self, containment: Containment, state: LedgerState | None = None) -> None:
        self.state = LedgerState(containment) if state is None else state
        self.rows: LedgerRows | None = None
        self._on_halt: list[Callable[[Halt], None]] = []
        # Reservations that wait for room: first come, first served.
        self._line: deque[tuple[_Reserve, Call]] = deque()
        self._actor: Actor[Any]

    @classmethod
    def from_state(cls, containment: Containment, spent_tokens: int, agents: int, **more: Any) -> Ledger:
        """Restore from durable totals; takes what `LedgerState.from_state` takes."""
        return cls(containment, LedgerState.from_state(containment, spent_tokens, agents, **more))

    def start(self, host: Host, nursery: trio.Nursery, path: str = "ledger") -> Child:
        """Run the actor in ``nursery``; it ends with it."""
        self._actor = Actor(path, None, host, self._receive, bound=MAILBOX_BOUND)
        nursery.start_soon(self._actor._main, name=path)
        return self._actor

    def subscribe(self, on_halt: Callable[[Halt], None]) -> None:
        """Call ``on_halt`` in the step in which the tree latches. It must not raise."""
        self._on_halt.append(on_halt)

    # ── reading: sync ───────────────────────────────────────────────────────

    @property
    def containment(self) -> Containment:
        """Give the boundary."""
        return self.state.containment

    @property
    def spent_tokens(self) -> int:
        """Count settled tokens; never above the ceiling."""
        return self.state.spent_tokens

    @property
    def spent_microdollars(self) -> int:
        """Count settled money."""
        return self.state.spent_microdollars

    @property
    def reserved_tokens(self) -> int:
        """Count tokens held by open reservations."""
        return self.state.reserved_tokens

    @property
    def reserved_microdollars(self) -> int:
        """Count money held by open reservations."""
        return self.state.reserved_microdollars

    @property
    def overrun_tokens(self) -> int:
        """Count tokens that were billed and did not fit under the ceiling."""
        return self.state.overrun_tokens

    @property
    def overrun_microdollars(self) -> int:
        """Count money that was billed and did not fit under the ceiling."""
        return self.state.overrun_microdollars

    @property
    def remaining_tokens(self) -> int:
        """Give ceiling minus spent minus reserved, never below 0."""
        return self.state.remaining_tokens

    @property
    def agents(self) -> int:
        """Count the agents that ever existed; the root is one."""
        return self.state.agents

    @property
    def halted(self) -> Halt | None:
        """Give the latching halt."""
        return self.state.halt

    def effective_token_budget(self, own: int | None) -> int:
        """Give the smaller of ``own`` and what the tree has left; None is unlimited."""
        return self.state.effective_token_budget(own)

    def snapshot(self) -> LedgerSnapshot:
        """Give all totals at this moment."""
        return self.state.snapshot()

    # ── changing: a message and its answer ──────────────────────────────────

    async def draw_tokens(self, tokens: int, microdollars: int = 0, *, by: str = "root") -> Draw:
        """Draw plain spend; ``halted`` means it did not fit and the whole tree is being stopped.

        Checkpoint: always.
        Cancellation: nothing was drawn.
        """
        whole("tokens", tokens)
        whole("microdollars", microdollars)
        draw: Draw = await self._actor.ref.ask(_DrawTokens(tokens, microdollars, by))
        if self.rows is not None:
            # The draw stands; a cancel must not come between it and the caller's own account.
            with trio.CancelScope(shield=True):
                await self.rows.drawn(by, tokens, microdollars, draw, self.remaining_tokens)
        return draw

    async def reserve(
        self,
        tokens: int | Quote,
        microdollars: int = 0,
        *,
        by: str = "root",
        own_left: Callable[[], int | None] | None = None,
        note: object = None,
        on_wait: Callable[[Call], None] | None = None,
    ) -> Reservation | Draw:
        """Hold the worst case of one call, waiting in line while others hold what is left.

        ``own_left`` gives what the agent's own cap leaves of its spend; it is asked when
        the reservation is decided, not when the wait begins. ``on_wait`` is called in
        the step in which the wait begins, if there is one: whoever waits holds no slot.

        Returns the reservation, its row written, or ``Draw.halted``: nothing was
        held, and nothing may be sent.

        Checkpoint: always.
        Cancellation: nothing is held.

        Raises:
            BudgetExceeded: the minimal request does not fit ``own_left``; nothing latches.
        """
        quote = tokens if isinstance(tokens, Quote) else fixed(tokens, microdollars)
        held: Reservation | Draw = await self._actor.ref.ask(_Reserve(quote, by, own_left, on_wait))
        if isinstance(held, Draw) or self.rows is None:
            return held
        try:
            await self.rows.reserved(held, note)
        except BaseException:
            # Nothing was sent, so nothing was used.
            self._settled(_Settle(held, 0, 0))
            raise
        return held

    async def settle(
        self, reservation: Reservation, usage: Usage | int | None, microdollars: int = 0
    ) -> Settlement:
        """Close a reservation with what was used; None when nobody knows: then it is charged in full.

        Checkpoint: always.
        Cancellation: the reservation is still open.

        Raises:
            ValueError: the reservation is not open; nothing changed.
        """
        tokens = _used(reservation, usage)
        settlement: Settlement = await self._actor.ref.ask(_Settle(reservation, tokens, microdollars))
        return settlement

    def settle_nowait(self, reservation: Reservation, usage: Usage | int | None, microdollars: int = 0) -> Settlement:
        """Close a reservation in the running step: for clean-up, where a second cancel must not come between."""
        tokens = _used(reservation, usage)
        return self._settled(_Settle(reservation, tokens, microdollars))

    async def register_agent(self, depth: int, begin: Callable[[], None] | None = None) -> SpawnRefusal | None:
        """Count one more agent, or return why not.

        ``begin`` runs in the same step as the count, so that no halt comes between
        the right to exist and the start.

        Checkpoint: always.
        Cancellation: nothing was counted and nothing began.
        """
        refusal: SpawnRefusal | None = await self._actor.ref.ask(_Register(depth, begin))
        return refusal

    async def admit_tool_calls(self, count: int) -> tuple[int, ToolCallCap | None]:
        """Admit the first of ``count`` tool calls; return how many may run and the refusal for the rest.

        Cancellation: nothing was counted.
        """
        admitted: tuple[int, ToolCallCap | None] = await self._actor.ref.ask(_AdmitTools(count))
        return admitted

    def admit_tool_calls_nowait(self, count: int) -> int:
        """Admit the first of ``count`` tool calls in the running step; return how many may run."""
        return self.state.admit_tool_calls(count)[0]

    async def halt(self, halt: Halt) -> bool:
        """Stop the tree; tell whether this halt is the first, which is the one that stands.

        Cancellation: not latched.
        """
        first: bool = await self._actor.ref.ask(halt)
        return first

    def latch(self, halt: Halt) -> bool:
        """Stop the tree in the running step; tell whether this halt is the first."""
        if not self.state.latch(halt):
            return False
        self._halt_all()
        return True

    # ── the actor ───────────────────────────────────────────────────────────

    def _receive(self, message: Any, call: Call | None) -> Any:
        try:
            return _HANDLERS[type(message)](self, message, call)
        except Exception as error:
            # A bad request is its caller's error, never the end of the ledger: each handler changes all or nothing.
            if call is None:
                raise
            call.fail(error)
            return LATER

    def _drawn(self, message: _DrawTokens, _call: Call | None = None) -> Draw:
        state = self.state
        was = state.halt
        draw = state.draw_tokens(message.tokens, message.microdollars, by=message.by, now=trio.current_time())
        if was is not state.halt:
            self._halt_all()
        return draw

    def _reserved(self, message: _Reserve, call: Call | None) -> Any:
        answer = self._try(message, behind_others=bool(self._line))
        if answer is not WAIT:
            return answer
        assert call is not None
        if message.on_wait is not None:
            # It may refuse to wait; then nobody stands in line.
            message.on_wait(call)
        entry = (message, call)
        self._line.append(entry)

        def leave() -> None:
            if entry in self._line:
                self._line.remove(entry)
                # Whoever stood behind may fit now.
                self._serve_line()

        call.on_abort = leave
        return LATER

    def _try(self, message: _Reserve, *, behind_others: bool) -> Any:
        was = self.state.halt
        answer = self.state.reserve(
            message.quote,
            by=message.by,
            now=trio.current_time(),
            own_tokens=None if message.own_left is None else message.own_left(),
            behind_others=behind_others,
        )
        if was is not self.state.halt:
            self._halt_all()
        return answer

    def _settled(self, message: _Settle, _call: Call | None = None) -> Settlement:
        was = self.state.halt
        settlement = self.state.settle(
            message.reservation, message.tokens, message.microdollars, now=trio.current_time()
        )
        if was is not self.state.halt:
            self._halt_all()
        else:
            self._serve_line()
        return settlement

    def _serve_line(self) -> None:
        while self._line:
            message, call = self._line[0]
            try:
                answer = self._try(message, behind_others=False)
            except Refused as refusal:
                self._line.popleft()
                call.fail(refusal)
                continue
            if answer is WAIT:
                return
            # A halt has emptied the line already, and answered this call.
            if self._line and self._line[0][1] is call:
                self._line.popleft()
                call.answer(answer)

    def _registered(self, message: _Register, _call: Call | None = None) -> SpawnRefusal | None:
        refusal = self.state.register_agent(message.depth)
        if refusal is None and message.begin is not None:
            try:
                message.begin()
            except BaseException:
                # It never existed; nobody saw the count between the two lines.
                self.state.agents -= 1
                raise
        return refusal

    def _admitted(self, message: _AdmitTools, _call: Call | None = None) -> tuple[int, ToolCallCap | None]:
        return self.state.admit_tool_calls(message.count)

    def _latched(self, message: Halt, _call: Call | None = None) -> bool:
        return self.latch(message)

    def _halt_all(self) -> None:
        assert self.state.halt is not None
        while self._line:
            self._line.popleft()[1].answer(Draw.halted)
        for on_halt in self._on_halt:
            on_halt(self.state.halt)


def _used(reservation: object, usage: Usage | int | None) -> int | None:
    if not isinstance(reservation, Reservation):
        raise TypeError(f"what is settled is a reservation, not {reservation!r}; look at the answer of reserve first")
    return usage.tokens if isinstance(usage, Usage) else usage


_HANDLERS: dict[type, Callable[[Ledger, Any, Call | None], Any]] = {
    _DrawTokens: Ledger._drawn,
    _Reserve: Ledger._reserved,
    _Settle: Ledger._settled,
    _Register: Ledger._registered,
    _AdmitTools: Ledger._admitted,
    Halt: Ledger._latched,
}


@asynccontextmanager
async def open_ledger(containment: Containment, state: LedgerState | None = None) -> AsyncIterator[Ledger]:
    """Run a ledger outside a tree, for as long as the block.

    Cancellation: what was drawn stands in the state; open calls are cancelled with their callers.
    """
    ledger = Ledger(containment, state)
    host = Host(lambda _by, _reason, _error: None)
    async with host:
        ledger.start(host, host.services)
        yield ledger
