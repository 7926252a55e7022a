"""Who may spend how much, and who has spent what.

Money and tokens are held before a call is made and settled after it, so two
agents under one ceiling never count on the same token. At all times
``spent + reserved <= ceiling``; what was billed beyond it is kept apart as
overrun, so ``spent + overrun`` is everything that was ever drawn or settled.

All of this is synchronous and belongs to one actor (`ledger.py`), which answers
one message at a time: no lock, and nothing half done between two. Keep it so:
the first ``await`` in here would open a gap. ``now`` is an argument.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import attrs

from actors.containment.amounts import LARGEST, exact, whole
from actors.containment.limits import Containment
from actors.errors import AgentCap, BudgetExceeded, BudgetExhausted, DepthCap, SpawnRefusal, ToolCallCap
from actors.halts import Halt, HaltKind


class Draw(Enum):
    """The answer to a draw."""

    # Within the ceiling; go on.
    ok = "ok"
    # It would cross, or the tree is latched: not added, the whole tree stops, nobody gets another step.
    halted = "halted"


class Wait(Enum):
    """The answer to a reservation that must wait for others to settle."""

    wait = "wait"


WAIT: Final = Wait.wait
PER_MILLION: Final = 1_000_000


@attrs.frozen
class Quote:
    """The worst case of one call, and how far it may be cut down.

    A reservation holds the prompt and as much output as fits under ceiling minus
    spent, at least ``minimal_output``. Rates are microdollars per million tokens;
    ``fixed_microdollars`` is what the call costs whatever it says.
    """

    prompt_tokens: int = attrs.field(validator=exact)
    output_tokens: int = attrs.field(default=0, validator=exact)
    minimal_output: int = attrs.field(default=0, validator=exact)
    prompt_rate: int = attrs.field(default=0, validator=exact)
    output_rate: int = attrs.field(default=0, validator=exact)
    fixed_microdollars: int = attrs.field(default=0, validator=exact)
    priced: bool = True

    @property
    def minimal_tokens(self) -> int:
        """Count the least tokens that the call makes sense with."""
        return self.prompt_tokens + min(self.minimal_output, self.output_tokens)

    def microdollars(self, output_tokens: int) -> int:
        """Price the call with so much output, rounded up to a whole microdollar."""
        exact = self.prompt_tokens * self.prompt_rate + output_tokens * self.output_rate
        return self.fixed_microdollars + -(-exact // PER_MILLION)

    def affordable_output(self, microdollars: int) -> int:
        """Give the most output whose price is at most ``microdollars``; negative when not even the prompt is."""
        room = (microdollars - self.fixed_microdollars) * PER_MILLION - self.prompt_tokens * self.prompt_rate
        if room < 0:
            return -1
        return self.output_tokens if self.output_rate == 0 else min(room // self.output_rate, self.output_tokens)


@attrs.frozen
class Reservation:
    """What is held for one call until it is settled. ``output_tokens`` is what the call may say at most."""

    id: int
    by: str
    tokens: int
    microdollars: int
    output_tokens: int = 0
    priced: bool = True


@attrs.frozen
class Settlement:
    """What became of a reservation. ``estimated`` marks usage that nobody reported."""

    draw: Draw
    tokens: int
    microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    estimated: bool


@attrs.frozen
class LedgerSnapshot:
    """All totals at one moment, as plain numbers."""

    spent_tokens: int
    spent_microdollars: int
    reserved_tokens: int
    reserved_microdollars: int
    overrun_tokens: int
    overrun_microdollars: int
    agents: int
    calls: int
    tool_calls: int
    unpriced_calls: int
    remaining_tokens: int
    refusals: dict[str, int]
    halt: Halt | None


class LedgerState:
    """The arithmetic of one tree. Everything is sync; a refused change changes nothing."""

    def __init__(self, containment: Containment) -> None:
        self.containment = containment
        self.spent_tokens = 0
        self.spent_microdollars = 0
        self.reserved_tokens = 0
        self.reserved_microdollars = 0
        self.overrun_tokens = 0
        self.overrun_microdollars = 0
        self.agents = 1
        self.calls = 0
        self.tool_calls = 0
        self.unpriced_calls = 0
        self.halt: Halt | None = None
        self.refusals: Counter[str] = Counter()
        self._open: dict[int, Reservation] = {}
        # Tokens held by each agent that holds any.
        self._held: Counter[str] = Counter()
        self._next = 1

    @classmethod
    def from_state(
        cls,
        containment: Containment,
        spent_tokens: int,
        agents: int,
        *,
        spent_microdollars: int = 0,
        overrun_tokens: int = 0,
        overrun_microdollars: int = 0,
        calls: int = 0,
        tool_calls: int = 0,
        unpriced_calls: int = 0,
        refusals: Mapping[str, int] | None = None,
        reservations: Iterable[tuple[int, int]] = (),
        halt: Halt | None = None,
    ) -> "LedgerState":
        """Restore from durable totals.

        ``reservations`` are the (tokens, microdollars) that were open: they are
        charged in full, because what became of them is unknown. Spent above the
        ceiling is legal (a tighter containment): it is kept, never clipped.
        """
        state = cls(containment)
        state.spent_tokens = whole("spent_tokens", spent_tokens)
        state.spent_microdollars = whole("spent_microdollars", spent_microdollars)
        state.overrun_tokens = whole("overrun_tokens", overrun_tokens)
        state.overrun_microdollars = whole("overrun_microdollars", overrun_microdollars)
        state.calls = whole("calls", calls)
        state.tool_calls = whole("tool_calls", tool_calls)
        state.unpriced_calls = whole("unpriced_calls", unpriced_calls)
        for cap, count in (refusals or {}).items():
            state.refusals[cap] = whole(f"refusals of {cap}", count)
        state.agents = max(whole("agents", agents), 1)
        state.halt = halt
        for tokens, money in reservations:
            state.spent_tokens = _sum(state.spent_tokens, whole("tokens", tokens))
            state.spent_microdollars = _sum(state.spent_microdollars, whole("microdollars", money))
        return state

    # ── reading ─────────────────────────────────────────────────────────────

    @property
    def remaining_tokens(self) -> int:
        """Give ceiling minus spent minus reserved, never below 0."""
        return max(self.containment.max_total_tokens - self.spent_tokens - self.reserved_tokens, 0)

    def effective_token_budget(self, own: int | None) -> int:
        """Give the smaller of ``own`` and what the tree has left. None is unlimited, 0 is 0."""
        if own is None:
            return self.remaining_tokens
        return min(whole("own", own), self.remaining_tokens)

    @property
    def open_reservations(self) -> tuple[Reservation, ...]:
        """List what is held, oldest first."""
        return tuple(self._open.values())

    def held_by(self, path: str) -> int:
        """Count the tokens that one agent holds in open reservations."""
        return self._held.get(path, 0)

    def snapshot(self) -> LedgerSnapshot:
        """Give all totals at this moment."""
        return LedgerSnapshot(
            self.spent_tokens,
            self.spent_microdollars,
            self.reserved_tokens,
            self.reserved_microdollars,
            self.overrun_tokens,
            self.overrun_microdollars,
            self.agents,
            self.calls,
            self.tool_calls,
            self.unpriced_calls,
            self.remaining_tokens,
            dict(self.refusals),
            self.halt,
        )

    # ── spending ────────────────────────────────────────────────────────────

    def draw_tokens(self, tokens: int, microdollars: int = 0, *, by: str = "root", now: float = 0.0) -> Draw:
        """Draw plain spend: it was billed already, and now it is counted.

        ``halted`` leaves ``spent_tokens`` as it was, keeps the whole amount as
        overrun, and latches the tree. Exactly reaching the ceiling is ok.
        """
        whole("tokens", tokens)
        whole("microdollars", microdollars)
        crossing = self._crossing(tokens, microdollars)
        if self.halt is None and crossing is None:
            self._add(tokens, microdollars)
            return Draw.ok
        self._overrun(tokens, microdollars)
        if crossing is not None:
            self.latch(self._ceiling_halt(crossing, tokens, microdollars, by, now))
        return Draw.halted

    def reserve(
        self,
        quote: Quote,
        *,
        by: str = "root",
        now: float = 0.0,
        own_tokens: int | None = None,
        behind_others: bool = False,
    ) -> Reservation | Wait | Draw:
        """Hold the worst case of a call, before it is sent.

        ``own_tokens`` is what the agent's own cap leaves. ``behind_others`` says that somebody
        came first and waits.

        Returns the reservation; `WAIT` when it fits under ceiling minus spent but
        not beside what others hold, or when the last admitted calls are still open;
        ``Draw.halted`` when the tree is latched, or not even the minimal request
        fits: then it is latched, and nothing is sent or billed.

        Raises:
            BudgetExceeded: the minimal request does not fit ``own_tokens``; nothing latches.
        """
        if self.halt is not None:
            return Draw.halted
        if own_tokens is not None:
            # What the agent holds already is spent as far as its own cap is concerned.
            own_tokens = max(own_tokens - self.held_by(by), 0)
            if quote.minimal_tokens > own_tokens:
                raise BudgetExceeded("tokens", own_tokens, 0, quote.minimal_tokens)
        limit = self.containment.max_total_calls
        if limit is not None and self.calls >= limit:
            if self._open:
                # The calls that were admitted are paid for: their answers are waited for before the tree is stopped.
                return WAIT
            self.latch(Halt(HaltKind.calls, by, now, limit=limit, used=self.calls, requested=1))
            return Draw.halted
        output = self._output_under(quote, own_tokens)
        if output is None:
            self.latch(self._no_room(quote, by, now))
            return Draw.halted
        tokens, money = quote.prompt_tokens + output, quote.microdollars(output)
        if behind_others or self._crossing(tokens, money) is not None:
            return WAIT
        return self._hold(quote, output, by)

    def settle(
        self, reservation: Reservation, tokens: int | None, microdollars: int = 0, *, now: float = 0.0
    ) -> Settlement:
        """Close a reservation with what the call used; None when nobody knows.

        Unknown usage is charged at the reservation and marked estimated. Usage up
        to the reserved amount always fits, also after the latch. Usage above it
        fits only if free room is left; else all of it goes to overrun and the tree
        halts.

        Raises:
            ValueError: this reservation is not open; nothing changed.
        """
        if self._open.get(reservation.id) is not reservation:
            raise ValueError(f"reservation {reservation.id} is not open: it was settled before, or never made here")
        estimated = tokens is None
        # Both sums are tried before anything changes.
        used = reservation.tokens if tokens is None else whole("tokens", tokens)
        money = reservation.microdollars if tokens is None else whole("microdollars", microdollars)
        _sum(self.spent_tokens + self.overrun_tokens, used)
        _sum(self.spent_microdollars + self.overrun_microdollars, money)
        del self._open[reservation.id]
        self._held[reservation.by] -= reservation.tokens
        if not self._held[reservation.by]:
            del self._held[reservation.by]
        self.reserved_tokens -= reservation.tokens
        self.reserved_microdollars -= reservation.microdollars
        within = used <= reservation.tokens and money <= reservation.microdollars
        crossing = None if within else self._crossing(used, money)
        if crossing is None:
            self._add(used, money)
            return Settlement(Draw.ok if self.halt is None else Draw.halted, used, money, 0, 0, estimated)
        self._overrun(used, money)
        self.latch(self._ceiling_halt(crossing, used, money, reservation.by, now))
        return Settlement(Draw.halted, 0, 0, used, money, estimated)

    # ── existing, calling tools, stopping ───────────────────────────────────

    def register_agent(self, depth: int) -> SpawnRefusal | None:
        """Count one more agent at ``depth``, or say why not. A refusal counts nothing.

        Open reservations alone refuse nobody; a latched tree refuses everybody.
        """
        refusal = self._why_not(whole("depth", depth))
        if refusal is None:
            self.agents += 1
        else:
            self.refusals[refusal.cap] += 1
        return refusal

    def _why_not(self, depth: int) -> SpawnRefusal | None:
        limits = self.containment
        if depth > limits.max_depth:
            return DepthCap(limits.max_depth, depth)
        if self.halt is not None:
            return BudgetExhausted(halt=self.halt)
        if self.spent_tokens >= limits.max_total_tokens:
            return BudgetExhausted(ceiling=limits.max_total_tokens, used=self.spent_tokens)
        # Money that is used up refuses no spawn by itself: a free model may still be called. A priced call latches.
        if self.agents >= limits.max_total_agents:
            return AgentCap(limits.max_total_agents, used=self.agents)
        return None

    def admit_tool_calls(self, count: int) -> tuple[int, ToolCallCap | None]:
        """Admit the first of ``count`` tool calls of one answer, in call order.

        Returns how many may run, and the refusal for the rest. It never latches.
        """
        whole("count", count)
        limit = self.containment.max_total_tool_calls
        admitted = count if limit is None else min(count, max(limit - self.tool_calls, 0))
        self.tool_calls = _sum(self.tool_calls, admitted)
        if admitted == count:
            return admitted, None
        assert limit is not None
        self.refusals["tool_calls"] += count - admitted
        return admitted, ToolCallCap(limit, self.tool_calls)

    def count_refusal(self, cap: str) -> None:
        """Count a refusal that was decided elsewhere, such as an unknown price."""
        self.refusals[cap] += 1

    def latch(self, halt: Halt) -> bool:
        """Stop the tree: no later draw, reserve or spawn succeeds. The first halt stands; tell whether this is it."""
        if self.halt is not None:
            return False
        self.halt = halt
        return True

    # ── arithmetic ──────────────────────────────────────────────────────────

    def _crossing(self, tokens: int, microdollars: int) -> HaltKind | None:
        """Name the ceiling that so much more would cross."""
        if self.spent_tokens + self.reserved_tokens + tokens > self.containment.max_total_tokens:
            return HaltKind.tokens
        cost = self.containment.max_total_cost
        if cost is not None and self.spent_microdollars + self.reserved_microdollars + microdollars > cost:
            return HaltKind.cost
        return None

    def _output_under(self, quote: Quote, own_tokens: int | None) -> int | None:
        """Give how much output fits under ceiling minus spent; None when not even the minimal request does."""
        output = quote.output_tokens
        room = self.containment.max_total_tokens - self.spent_tokens - quote.prompt_tokens
        output = min(output, room)
        if own_tokens is not None:
            output = min(output, own_tokens - quote.prompt_tokens)
        cost = self.containment.max_total_cost
        if cost is not None:
            output = min(output, quote.affordable_output(cost - self.spent_microdollars))
        nothing_left = self.spent_tokens >= self.containment.max_total_tokens
        return None if output < min(quote.minimal_output, quote.output_tokens) or nothing_left else output

    def _hold(self, quote: Quote, output: int, by: str) -> Reservation:
        money = quote.microdollars(output)
        held = Reservation(self._next, by, quote.prompt_tokens + output, money, output, quote.priced)
        self._next += 1
        self._open[held.id] = held
        self._held[by] += held.tokens
        self.reserved_tokens += held.tokens
        self.reserved_microdollars += held.microdollars
        self.calls = _sum(self.calls, 1)
        if not quote.priced:
            self.unpriced_calls += 1
        return held

    def _no_room(self, quote: Quote, by: str, now: float) -> Halt:
        tokens = quote.minimal_tokens
        money = quote.microdollars(min(quote.minimal_output, quote.output_tokens))
        left = self.containment.max_total_tokens - self.spent_tokens
        kind = HaltKind.tokens if tokens > left or left <= 0 else HaltKind.cost
        return self._ceiling_halt(kind, tokens, money, by, now)

    def _ceiling_halt(self, kind: HaltKind, tokens: int, money: int, by: str, now: float) -> Halt:
        if kind is HaltKind.tokens:
            limit, used, asked = self.containment.max_total_tokens, self.spent_tokens, tokens
        else:
            limit, used, asked = self.containment.max_total_cost or 0, self.spent_microdollars, money
        return Halt(kind, by, now, limit=limit, used=used, requested=asked)

    def _add(self, tokens: int, microdollars: int) -> None:
        spent, money = _sum(self.spent_tokens, tokens), _sum(self.spent_microdollars, microdollars)
        self.spent_tokens, self.spent_microdollars = spent, money

    def _overrun(self, tokens: int, microdollars: int) -> None:
        over, money = _sum(self.overrun_tokens, tokens), _sum(self.overrun_microdollars, microdollars)
        self.overrun_tokens, self.overrun_microdollars = over, money


def fixed(tokens: int, microdollars: int = 0) -> Quote:
    """Quote a call whose worst case is known and cannot be cut down."""
    return Quote(whole("tokens", tokens), fixed_microdollars=whole("microdollars", microdollars))


def _sum(total: int, more: int) -> int:
    """Add to a counter.

    Raises:
        OverflowError: it would pass 63 bits, the most that the store keeps; nothing was added.
    """
    if total + more > LARGEST:
        raise OverflowError(f"a counter of the ledger would pass {LARGEST}")
    return total + more

