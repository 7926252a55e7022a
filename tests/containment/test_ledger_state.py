"""The arithmetic of the ledger, beside a model too simple to be wrong."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from actors.containment.ledger_state import WAIT, Draw, LedgerState, Quote, Reservation, fixed
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.errors import AgentCap, BudgetExceeded, BudgetExhausted, DepthCap, ToolCallCap
from actors.halts import Halt, HaltKind


def held(state: LedgerState, tokens: int, money: int = 0) -> Reservation:
    got = state.reserve(fixed(tokens, money))
    assert isinstance(got, Reservation)
    return got


def test_C2_the_agent_cap_counts_the_root_and_depth_is_refused_first() -> None:
    state = LedgerState(Containment(2, 2, 1, 1_000))
    assert state.register_agent(1) is None
    refusal = state.register_agent(1)
    assert refusal == AgentCap(max=2)
    assert str(refusal) == "agent cap reached (2 agents)"
    assert refusal is not None and refusal.cap == "agents"
    assert DepthCap(1, 2).cap == "depth"
    assert state.register_agent(2) == DepthCap(1, 2)
    assert "2" in str(DepthCap(1, 2)) and "1" in str(DepthCap(1, 2))
    assert state.agents == 2
    assert state.refusals == {"agents": 1, "depth": 1}


def test_C3_a_draw_that_crosses_is_not_added_and_latches() -> None:
    state = LedgerState(Containment(4, 2, 1, 5_000))
    usage = Usage(prompt_tokens=4_000, completion_tokens=800)
    assert state.draw_tokens(usage.tokens) is Draw.ok
    assert state.draw_tokens(usage.tokens) is Draw.halted
    assert (state.spent_tokens, state.overrun_tokens) == (4_800, 4_800)
    assert state.halt is not None and state.halt.kind is HaltKind.tokens


def test_C4_one_budget_is_shared_by_all() -> None:
    state = LedgerState(Containment(10, 4, 3, 100))
    assert (state.effective_token_budget(500), state.effective_token_budget(20)) == (100, 20)
    assert state.draw_tokens(60, by="root/1") is Draw.ok
    assert state.draw_tokens(60) is Draw.halted
    assert (state.spent_tokens, state.overrun_tokens) == (60, 60)


def test_C5_children_inside_their_own_caps_cross_the_tree_together() -> None:
    state = LedgerState(Containment(10, 4, 3, 100))
    assert [state.draw_tokens(40) for _ in range(3)] == [Draw.ok, Draw.ok, Draw.halted]
    assert (state.spent_tokens, state.overrun_tokens) == (80, 40)


def test_C6_the_effective_budget_is_what_is_left() -> None:
    state = LedgerState(Containment(10, 4, 3, 100))
    assert state.effective_token_budget(500) == 100
    state.draw_tokens(70)
    assert state.remaining_tokens == 30
    assert [state.effective_token_budget(own) for own in (500, 10, None, 0)] == [30, 10, 30, 0]


def test_exactly_reaching_the_ceiling_is_ok_and_one_more_is_not() -> None:
    state = LedgerState(Containment(1, 1, 0, 100))
    assert state.draw_tokens(100) is Draw.ok
    assert state.draw_tokens(0) is Draw.ok
    assert state.draw_tokens(1) is Draw.halted
    assert state.draw_tokens(0) is Draw.halted


@pytest.mark.parametrize("amount", [-5, True, 1.0, "1", None, 2**63])
def test_an_amount_that_is_no_exact_count_changes_nothing(amount: Any) -> None:
    state = LedgerState(Containment(1, 1, 0, 100))
    before = state.snapshot()
    for call in (state.draw_tokens, state.register_agent, state.admit_tool_calls, fixed):
        with pytest.raises((TypeError, ValueError)):
            call(amount)
    assert state.snapshot() == before


def test_a_counter_stops_at_63_bits_with_an_error_and_nothing_added() -> None:
    state = LedgerState(Containment(1, 1, 0, 2**64 - 1))
    assert state.draw_tokens(2**63 - 1) is Draw.ok
    with pytest.raises(OverflowError):
        state.draw_tokens(1)
    assert state.spent_tokens == 2**63 - 1


def test_a_second_reservation_waits_for_room_and_the_third_is_halted() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    first = held(state, 60)
    assert state.reserve(fixed(60)) is WAIT
    assert state.halt is None
    state.settle(first, 60)
    assert state.reserve(fixed(60)) is Draw.halted
    assert state.halt is not None
    assert (state.halt.limit, state.halt.used, state.halt.requested) == (100, 60, 60)


def test_a_reservation_is_cut_down_to_what_is_left_but_not_below_the_minimal_request() -> None:
    state = LedgerState(Containment(9, 9, 1, 1_500))
    state.draw_tokens(1_000)
    got = state.reserve(Quote(100, 4_096, 1))
    assert isinstance(got, Reservation)
    assert (got.tokens, got.output_tokens) == (500, 400)
    state.settle(got, 500)
    assert state.reserve(Quote(100, 4_096, 1)) is Draw.halted


def test_an_own_cap_that_is_too_small_is_refused_and_latches_nothing() -> None:
    state = LedgerState(Containment(9, 9, 1, 1_500))
    with pytest.raises(BudgetExceeded):
        state.reserve(Quote(100, 4_096, 1), own_tokens=100)
    assert state.halt is None and state.reserved_tokens == 0
    got = state.reserve(Quote(100, 4_096, 1), own_tokens=150)
    assert isinstance(got, Reservation) and got.output_tokens == 50


def test_usage_up_to_the_reservation_fits_also_after_the_latch() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    got = held(state, 60)
    assert state.latch(Halt(HaltKind.cancel))
    settled = state.settle(got, 60)
    assert (settled.tokens, settled.overrun_tokens, settled.draw) == (60, 0, Draw.halted)
    assert (state.spent_tokens, state.reserved_tokens) == (60, 0)


def test_usage_above_the_reservation_goes_to_overrun_whole_when_there_is_no_room() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    got = held(state, 60)
    settled = state.settle(got, 101)
    assert (state.spent_tokens, state.overrun_tokens, settled.draw) == (0, 101, Draw.halted)
    assert state.halt is not None


def test_usage_above_the_reservation_is_added_while_there_is_room() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    got = held(state, 60)
    assert state.settle(got, 90).draw is Draw.ok
    assert (state.spent_tokens, state.overrun_tokens) == (90, 0)


def test_unknown_usage_is_charged_at_the_reservation_and_marked() -> None:
    state = LedgerState(Containment(9, 9, 1, 100, max_total_cost=10))
    settled = state.settle(held(state, 60, 7), None)
    assert settled.estimated
    assert (state.spent_tokens, state.spent_microdollars) == (60, 7)


def test_a_reservation_settles_exactly_once() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    got = held(state, 60)
    state.settle(got, 10)
    before = state.snapshot()
    with pytest.raises(ValueError, match="not open"):
        state.settle(got, 10)
    assert state.snapshot() == before


def test_a_ceiling_on_calls_latches_when_one_more_is_asked_for() -> None:
    state = LedgerState(Containment(9, 9, 1, 10_000, max_total_calls=3))
    for _ in range(3):
        state.settle(held(state, 10), 10)
    assert state.halt is None
    assert state.reserve(fixed(10)) is Draw.halted
    assert state.halt is not None and state.halt.kind is HaltKind.calls
    assert state.calls == 3


def test_a_batch_of_tool_calls_is_admitted_in_order_and_latches_nothing() -> None:
    state = LedgerState(Containment(9, 9, 1, 10_000, max_total_tool_calls=6))
    admitted, refusal = state.admit_tool_calls(8)
    assert admitted == 6
    assert refusal == ToolCallCap(6, 6)
    assert state.admit_tool_calls(1) == (0, ToolCallCap(6, 6))
    assert state.halt is None and state.tool_calls == 6


def test_money_halts_like_tokens() -> None:
    state = LedgerState(Containment(9, 9, 1, 10_000, max_total_cost=100))
    assert state.draw_tokens(1, 60) is Draw.ok
    assert state.draw_tokens(1, 60) is Draw.halted
    assert (state.spent_microdollars, state.overrun_microdollars) == (60, 60)
    assert state.halt is not None and state.halt.kind is HaltKind.cost


def test_a_free_call_is_let_through_when_the_money_is_used_up() -> None:
    state = LedgerState(Containment(9, 9, 1, 10_000, max_total_cost=100))
    state.draw_tokens(1, 100)
    assert isinstance(state.reserve(Quote(10, 10, 1)), Reservation)
    assert state.register_agent(1) is None
    assert state.reserve(Quote(10, 10, 1, 1_000_000, 1_000_000)) is Draw.halted


def test_a_latched_tree_refuses_every_draw_reserve_and_spawn() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    halt = Halt(HaltKind.duration, "timer")
    assert state.latch(halt)
    assert not state.latch(Halt(HaltKind.cancel))
    assert state.draw_tokens(1) is Draw.halted
    assert state.reserve(fixed(1)) is Draw.halted
    refusal = state.register_agent(1)
    assert refusal == BudgetExhausted()
    assert isinstance(refusal, BudgetExhausted) and refusal.halt is halt
    assert "duration" in str(refusal)
    assert state.halt is halt


def test_open_reservations_alone_refuse_no_spawn() -> None:
    state = LedgerState(Containment(9, 9, 1, 100))
    held(state, 100)
    assert state.remaining_tokens == 0
    assert state.register_agent(1) is None


def test_restored_totals_are_kept_also_above_a_tighter_ceiling() -> None:
    state = LedgerState.from_state(Containment(9, 9, 1, 100), 150, 0, reservations=[(20, 3)])
    assert (state.spent_tokens, state.spent_microdollars, state.agents) == (170, 3, 1)
    assert state.remaining_tokens == 0
    assert state.register_agent(1) == BudgetExhausted()
    assert state.draw_tokens(1) is Draw.halted
    assert state.spent_tokens == 170


class Machine(RuleBasedStateMachine):
    """Random histories against sums that are kept by hand."""

    open_ones: Bundle[Reservation] = Bundle("open_ones")

    def __init__(self) -> None:
        super().__init__()
        self.limits = Containment(3, 2, 2, 50, max_total_cost=40, max_total_calls=6)
        self.state = LedgerState(self.limits)
        self.billed = self.cost = 0
        self.latched = False

    small = st.integers(0, 30)

    @rule(tokens=small, money=small)
    def draw(self, tokens: int, money: int) -> None:
        fits = (
            not self.latched
            and self.state.spent_tokens + self.state.reserved_tokens + tokens <= 50
            and self.state.spent_microdollars + self.state.reserved_microdollars + money <= 40
        )
        assert (self.state.draw_tokens(tokens, money) is Draw.ok) == fits
        self.billed += tokens
        self.cost += money
        self.latched = self.latched or not fits

    @rule(target=open_ones, prompt=small, output=small, rate=st.integers(0, 2))
    def reserve(self, prompt: int, output: int, rate: int) -> Any:
        quote = Quote(prompt, output, 1, rate * 1_000_000, rate * 1_000_000)
        got = self.state.reserve(quote)
        if self.latched:
            assert got is Draw.halted
        if isinstance(got, Reservation):
            assert got.tokens == prompt + got.output_tokens
            assert min(1, output) <= got.output_tokens <= output
            return got
        return None

    @rule(reservation=consumes(open_ones), used=st.none() | small, money=small)
    def settle(self, reservation: Reservation | None, used: int | None, money: int) -> None:
        if reservation is None:
            return
        settled = self.state.settle(reservation, used, money)
        self.billed += reservation.tokens if used is None else used
        self.cost += reservation.microdollars if used is None else money
        assert settled.estimated == (used is None)
        assert not (settled.tokens and settled.overrun_tokens)

    @rule(depth=st.integers(0, 3))
    def register(self, depth: int) -> None:
        before = self.state.agents
        refusal = self.state.register_agent(depth)
        assert self.state.agents == before + (refusal is None)
        if self.latched:
            assert refusal is not None

    @rule(bad=st.sampled_from([-1, True, 0.5]))
    def nonsense(self, bad: Any) -> None:
        before = self.state.snapshot()
        with pytest.raises((TypeError, ValueError)):
            self.state.draw_tokens(bad)
        assert self.state.snapshot() == before

    @invariant()
    def conserved(self) -> None:
        state = self.state
        assert state.spent_tokens + state.reserved_tokens <= 50
        assert state.spent_microdollars + state.reserved_microdollars <= 40
        assert state.spent_tokens + state.overrun_tokens == self.billed
        assert state.spent_microdollars + state.overrun_microdollars == self.cost
        assert state.reserved_tokens == sum(held.tokens for held in state.open_reservations)
        assert state.calls <= 6 and state.agents <= 3
        assert not self.latched or state.halt is not None
        self.latched = state.halt is not None


Machine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
test_no_history_breaks_the_ledger = Machine.TestCase
