"""An agent that asked for it begins again: as often as its budget, its errors and the ledger let it, and no more."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
import trio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.failure_classes import FailureClass, judge
from actors.agents.restarting import BeginAgain, Former, History, RestartPolicy, SetAside, Why, plan
from actors.agents.tree import open_tree
from actors.containment.limits import Containment
from actors.errors import ChildFailed, Halted, ProviderError, ProviderErrorKind, RestartsExhausted
from actors.halts import HaltKind
from actors.runtime.exits import Reason
from actors.runtime.restart import Restart
from actors.runtime.specs import Backoff, Budget
from actors.store.store import Store

LIMITS = Containment(100, 1, 4, 1_000)
NOTHING = History()
OFTEN = RestartPolicy(budget=Budget(10, 60.0))


class Told:
    """What an observer heard."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def event(self, event: Mapping[str, Any]) -> None:
        self.seen.append(dict(event))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.seen if event["kind"] in kinds]


def failing(*errors: Exception | None, log: list[Any] | None = None) -> Callable[[Agent], Any]:
    """Give a behaviour that raises one after the other, and then returns."""
    left = list(errors)

    async def behaviour(agent: Agent) -> str:
        if log is not None:
            log.append((trio.current_time(), agent.incarnation, agent.former))
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return "well"

    return behaviour


# ── the plan ────────────────────────────────────────────────────────────────


def decide(error: Exception | None, policy: RestartPolicy = OFTEN, history: History = NOTHING, **more: Any) -> Any:
    facts = {"may_spend": True, "ran_for": 0.0, "now": 0.0, "chance": 0.0, **more}
    return plan(policy, history, None if error is None else judge(error), **facts)


def limited(wait: float | None) -> ProviderError:
    return ProviderError(ProviderErrorKind.rate_limited, "slow down", retry_after=wait)


def test_a_rate_limit_waits_as_told_and_is_no_crash() -> None:
    history = History()
    for wait in (5.0, 0.0, 7.5):
        following = decide(limited(wait), RestartPolicy(budget=Budget(0, 1.0)), history)
        assert isinstance(following, BeginAgain) and following.wait == wait
        history = following.history
        assert (history.window.entries, history.seen) == ((), ())
    untold = decide(limited(None), OFTEN, history)
    assert untold.wait == 8.0


def test_a_context_that_is_too_long_is_never_tried_again() -> None:
    error = ProviderError(ProviderErrorKind.context_overflow, "too long")
    assert decide(error) == SetAside(Why.hopeless)


def test_a_refused_key_halts_also_when_nothing_could_be_spent() -> None:
    error = ProviderError(ProviderErrorKind.auth, "no such key")
    assert decide(error) == decide(error, may_spend=False) == SetAside(Why.halt_tree)


def test_the_same_error_twice_is_poison_also_with_another_between() -> None:
    history = decide(ValueError("a")).history
    assert decide(ValueError("a"), history=history) == SetAside(Why.poison)
    history = decide(ValueError("b"), history=history).history
    assert decide(ValueError("a"), history=history) == SetAside(Why.poison)


def test_an_endpoint_that_fails_again_is_no_poison() -> None:
    error = ProviderError(ProviderErrorKind.server, "500")
    history = decide(error).history
    assert isinstance(decide(error, history=history), BeginAgain)


@pytest.mark.parametrize(
    ("restart", "error", "again"),
    [
        (Restart.temporary, ValueError("x"), False),
        (Restart.temporary, None, False),
        (Restart.transient, ValueError("x"), True),
        (Restart.transient, None, False),
        (Restart.permanent, ValueError("x"), True),
        (Restart.permanent, None, True),
    ],
)
def test_only_what_was_asked_for_begins_again(restart: Restart, error: Exception | None, again: bool) -> None:
    assert isinstance(decide(error, RestartPolicy(restart)), BeginAgain) is again


def test_nothing_begins_again_without_money() -> None:
    assert decide(ValueError("x"), may_spend=False) == SetAside(Why.no_money)
    assert decide(limited(1.0), may_spend=False) == SetAside(Why.no_money)


@given(st.integers(0, 3), st.integers(1, 5), st.lists(st.integers(0, 4), max_size=30))
def test_INV7_restarts_in_any_window_are_within_the_intensity(intensity: int, period: int, gaps: list[int]) -> None:
    policy = RestartPolicy(budget=Budget(intensity, float(period)))
    history, now = History(), 0.0
    begun: list[float] = []
    for number, gap in enumerate(gaps):
        now += gap
        following = decide(ValueError(str(number)), policy, history, now=now)
        if isinstance(following, SetAside):
            assert following.why is Why.exhausted
            break
        history = following.history
        begun.append(now)
    assert all(sum(1 for at in begun if start <= at <= start + period) <= intensity for start in begun)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="sometimes"):
        RestartPolicy("sometimes")
    with pytest.raises(TypeError):
        RestartPolicy(budget=3)  # type: ignore[arg-type]


# ── in a tree ───────────────────────────────────────────────────────────────


async def test_an_agent_is_temporary_unless_it_asks() -> None:
    async def root(agent: Agent) -> None:
        child = await agent.spawn(failing(ValueError("x")))
        with pytest.raises(ChildFailed):
            await child.result()
        with pytest.raises(TypeError, match="RestartPolicy"):
            await agent.spawn(failing(), restart=Restart.transient)  # type: ignore[arg-type]

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
    assert tree.ledger.agents == 2


async def test_the_next_incarnation_is_told_how_the_former_ended(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    store, told = Store.memory(), Told()

    async def behaviour(agent: Agent, name: str) -> str:
        log.append((trio.current_time() - began, agent.incarnation, agent.former))
        await trio.sleep(1)
        await agent.ledger.draw_tokens(10 * agent.incarnation)
        if agent.incarnation < 3:
            raise ValueError(f"{name} {agent.incarnation}")
        return f"{name} well"

    async def root(agent: Agent) -> str:
        waits = RestartPolicy(backoff=Backoff(2.0, 60.0))
        child = await agent.spawn(behaviour, "it", restart=waits)
        return await child.result()

    began = trio.current_time()
    async with open_tree(LIMITS, store=store, observer=told) as tree:
        assert await tree.run(root) == "it well"
    first = Former(Reason.error, "ValueError: it 1", FailureClass.bug, 1, 10, 0, 0, began + 1)
    second = Former(Reason.error, "ValueError: it 2", FailureClass.bug, 2, 20, 0, 0, began + 4)
    assert log == [(0.0, 1, None), (3.0, 2, first), (8.0, 3, second)]
    # One agent, one path, one run, one terminal; the incarnations are rows beside it.
    assert tree.ledger.agents == 2 and tree.ledger.spent_tokens == 60
    assert store.select("select path, outcome, spent_tokens from runs order by path") == [
        ("root", "finished", 0),
        ("root/1", "finished", 60),
    ]
    rows = store.select("select detail, tokens from agent_events where kind = 'restart'")
    assert rows == [
        ("root/1 incarnation 2 after 2 s: ValueError: it 1", 10),
        ("root/1 incarnation 3 after 4 s: ValueError: it 2", 20),
    ]
    events = [(event["path"], event["incarnation"], event["wait"], event["failure"]) for event in told.of("restarted")]
    assert events == [("root/1", 2, 2.0, "bug"), ("root/1", 3, 4.0, "bug")]


async def test_poison_is_set_aside_with_its_own_error() -> None:
    told = Told()

    async def root(agent: Agent) -> None:
        log: list[Any] = []
        child = await agent.spawn(failing(ValueError("x"), ValueError("x"), log=log), restart=OFTEN)
        end = await child.exit()
        assert str(end.cause) == "x" and isinstance(end.cause, ValueError)
        assert len(log) == 2

    async with open_tree(LIMITS, observer=told) as tree:
        await tree.run(root)
    [event] = told.of("not_restarted")
    assert (event["why"], event["incarnation"], event["cause"]) == ("poison", 2, "ValueError: x")


async def test_a_used_up_budget_says_so_and_keeps_the_last_error() -> None:
    async def root(agent: Agent) -> None:
        errors = [ValueError(str(number)) for number in range(9)]
        child = await agent.spawn(failing(*errors), restart=RestartPolicy(budget=Budget(2, 60.0)))
        end = await child.exit()
        assert end.reason is Reason.error and isinstance(end.cause, RestartsExhausted)
        assert end.cause.__cause__ is errors[2] and "restarts exhausted" in str(end)
        assert child.outcome is not None and "restarts exhausted" in child.outcome.message

    async with open_tree(LIMITS, observer=Told()) as tree:
        await tree.run(root)


async def test_a_refused_key_halts_the_whole_tree(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    error = ProviderError(ProviderErrorKind.auth, "no such key")

    async def root(agent: Agent) -> None:
        await agent.spawn(_sleeps, limits=AgentLimits())
        child = await agent.spawn(failing(error, log=log), restart=OFTEN)
        await child.exit()
        async with agent.waiting():
            await trio.sleep_forever()

    async with open_tree(Containment(10, 5, 4, 100)) as tree:
        with pytest.raises(Halted, match="refused key"):
            await tree.run(root)
    halt = tree.ledger.halted
    assert halt is not None and (halt.kind, halt.by) == (HaltKind.policy, "root/2")
    assert len(log) == 1 and tree.leaks().empty


async def _sleeps(agent: Agent) -> None:
    await trio.sleep_forever()


async def test_a_rate_limit_holds_no_slot_and_counts_no_restart(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    began = trio.current_time()

    async def beside(agent: Agent) -> float:
        return trio.current_time() - began

    async def root(agent: Agent) -> None:
        none = RestartPolicy(budget=Budget(0, 60.0))
        child = await agent.spawn(failing(limited(5.0), limited(5.0), log=log), restart=none)
        other = await agent.spawn(beside)
        assert await other.result() == 0.0
        assert await child.result() == "well"

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
    assert [at - began for at, _incarnation, _former in log] == [0.0, 5.0, 10.0]


@pytest.mark.parametrize("when", ["before", "in the wait", "at its end"])
async def test_INV6_nothing_begins_again_after_a_halt(autojump_clock: trio.testing.MockClock, when: str) -> None:
    halts: list[Any] = []
    store = Store.memory()
    delay = {"before": 0.0, "in the wait": 1.0, "at its end": 2.0}[when]

    async def behaviour(agent: Agent) -> None:
        def enough() -> None:
            agent.tree.halt_nowait(reason="enough")

        halts.append(agent.tree.ledger.halted)
        if delay:
            agent.host.deadlines.at(trio.current_time() + delay, enough)
        else:
            enough()
        raise ValueError(str(agent.incarnation))

    async def root(agent: Agent) -> None:
        await agent.spawn(behaviour, restart=RestartPolicy(backoff=Backoff(2.0, 2.0)))
        async with agent.waiting():
            await trio.sleep_forever()

    async with open_tree(LIMITS, store=store) as tree:
        with pytest.raises(Halted, match="enough"):
            await tree.run(root)
    # At the end of the wait either may come first; nothing begins after the halt stands.
    assert all(halt is None for halt in halts) and len(halts) <= (2 if when == "at its end" else 1)
    [(count,)] = store.select("select count(*) from agent_events where kind = 'restart'")
    assert count == len(halts) - 1 and tree.leaks().empty


@pytest.mark.parametrize("whose", ["tree", "own"])
async def test_a_restart_needs_something_left_to_spend(whose: str) -> None:
    told = Told()

    async def behaviour(agent: Agent) -> None:
        await agent.ledger.draw_tokens(100)
        raise ValueError("x")

    async def root(agent: Agent) -> None:
        limits = AgentLimits(max_tokens=100) if whose == "own" else AgentLimits()
        child = await agent.spawn(behaviour, limits=limits, restart=OFTEN)
        assert isinstance((await child.exit()).cause, ValueError)

    most = 100 if whose == "tree" else 1_000
    async with open_tree(Containment(10, 1, 4, most), observer=told) as tree:
        await tree.run(root)
    [event] = told.of("not_restarted")
    assert event["why"] == "no_money" and tree.ledger.spent_tokens == 100


async def test_what_the_former_held_is_closed_before_the_next_begins(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []

    async def behaviour(agent: Agent) -> None:
        log.append((agent.tree.ledger.reserved_tokens, len(agent.children or ()), agent.incarnation))
        if agent.incarnation == 1:
            await agent.ledger.reserve(50)
            await agent.spawn(_parent)
            await trio.sleep(1)
            raise ValueError("x")

    async def _parent(agent: Agent) -> None:
        await agent.spawn(_sleeps)
        await trio.sleep_forever()

    async def root(agent: Agent) -> None:
        child = await agent.spawn(behaviour, restart=OFTEN)
        await child.result()
        former = None if not log else log[-1]
        assert former == (0, 0, 2)

    async with open_tree(Containment(10, 5, 4, 100)) as tree:
        await tree.run(root)
        assert tree.leaks().empty
    # Nobody knows what the call would have cost, so it is charged in full.
    assert tree.ledger.spent_tokens == 50 and log[0] == (0, 0, 1)


async def test_who_looks_at_the_tree_sees_when_it_begins_again(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()

    async def root(agent: Agent) -> None:
        child = await agent.spawn(failing(ValueError("x")), restart=RestartPolicy(backoff=Backoff(5.0, 5.0)))
        async with agent.waiting():
            await trio.sleep(1)
        [view] = [view for view in agent.tree.snapshot().agents if view.path == child.path]
        assert (view.state, view.restart_at) == ("restart", began + 5)
        assert await child.result() == "well"

    async with open_tree(LIMITS) as tree:
        await tree.run(root)


async def test_a_stop_cuts_the_wait_short(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()

    async def root(agent: Agent) -> None:
        child = await agent.spawn(failing(ValueError("x")), restart=RestartPolicy(backoff=Backoff(500.0, 500.0)))
        async with agent.waiting():
            await trio.sleep(1)
        assert (await child.stop()).complete
        assert (await child.exit()).reason is Reason.shutdown

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
    assert trio.current_time() - began == 1


async def test_an_agent_that_is_stopped_while_it_stands_in_line_begins_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log: list[Any] = []

    async def root(agent: Agent) -> None:
        policy = RestartPolicy(backoff=Backoff(2.0, 2.0))
        child = await agent.spawn(failing(ValueError("x"), log=log), restart=policy)
        async with agent.waiting():
            await trio.sleep(1)
        # The only slot is held here while the wait of the child ends.
        await trio.sleep(5)
        await child.stop()
        assert (await child.exit()).reason is Reason.shutdown

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
    assert len(log) == 1


async def test_a_permanent_agent_begins_again_after_a_plain_return_until_it_is_stopped(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log: list[Any] = []

    async def turn(agent: Agent) -> None:
        log.append(agent.former)
        await trio.sleep(10)

    async def root(agent: Agent) -> None:
        policy = RestartPolicy(Restart.permanent, Budget(2, 15.0))
        child = await agent.spawn(turn, restart=policy)
        async with agent.waiting():
            await trio.sleep(35)
        await child.stop()

    async with open_tree(Containment(10, 2, 4, 100)) as tree:
        await tree.run(root)
    assert len(log) == 4
    assert log[1] is not None and (log[1].reason, log[1].cause, log[1].failure) == (Reason.normal, "", None)


async def test_what_is_no_exception_is_never_begun_again() -> None:
    log: list[Any] = []

    async def behaviour(agent: Agent) -> None:
        log.append(agent.incarnation)
        raise KeyboardInterrupt

    async def root(agent: Agent) -> None:
        await agent.spawn(behaviour, restart=OFTEN)
        async with agent.waiting():
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        async with open_tree(LIMITS) as tree:
            await tree.run(root)
    assert log == [1]


async def test_the_end_of_an_agent_that_failed_says_in_one_line_where_it_began_and_what_it_cost() -> None:
    async def leaf(agent: Agent) -> None:
        await agent.ledger.draw_tokens(20, 1_500)
        raise ValueError(f"broke {agent.incarnation}")

    async def middle(agent: Agent) -> None:
        child = await agent.spawn(leaf, restart=RestartPolicy(budget=Budget(1, 60.0)))
        await child.result()

    async def root(agent: Agent) -> None:
        child = await agent.spawn(middle)
        with pytest.raises(ChildFailed) as failed:
            await child.result()
        # Both incarnations of the leaf are paid; who only passed it on spent nothing.
        line = "root/1/1: ValueError: broke 2; passed on by root/1; 40 tokens (0.003 dollars) spent on it"
        assert failed.value.exit.blame() == line

    async with open_tree(LIMITS) as tree:
        await tree.run(root)
