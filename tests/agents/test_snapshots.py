"""What a snapshot of a live tree shows: what each node waits for, since when, and within which bounds."""

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import pytest
import trio

from actors.agents.about import AgentLimits
from actors.agents.agent import Agent
from actors.agents.live_states import WaitFor
from actors.agents.live_views import look
from actors.agents.restarting import RestartPolicy
from actors.agents.snapshots import (
    MOST_PATH_CHARS,
    AgentView,
    MailboxView,
    TreeSnapshot,
    decode_snapshot,
    encode_snapshot,
    left_out,
)
from actors.agents.tree import Tree, open_tree
from actors.containment.ledger_state import LedgerState, Reservation
from actors.containment.limits import Containment
from actors.containment.slots import Tally
from actors.errors import Halted
from actors.halts import Halt, HaltKind
from actors.runtime.actor import Actor
from actors.runtime.specs import Backoff
from actors.runtime.supervise import supervise
from actors.runtime.supervisor import Supervisor


def limits(concurrent: int = 3, tokens: int = 1_000, agents: int = 50) -> Containment:
    return Containment(agents, concurrent, 3, tokens)


async def idle(_agent: Agent) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def running(containment: Containment, root: Callable[[Agent], Awaitable[Any]]) -> Any:
    """Give a tree whose tasks have all come to rest."""
    async with open_tree(containment) as tree:
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                with suppress(Halted):
                    await tree.run(root)

            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            yield tree
            await tree.halt()


def by_path(tree: Tree) -> dict[str, AgentView]:
    return {view.path: view for view in tree.snapshot().agents}


# ── what each waits for ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", list(WaitFor))
async def test_an_agent_says_what_it_waits_for_and_since_when(autojump_clock: Any, what: WaitFor) -> None:
    async def root(agent: Agent) -> None:
        await trio.sleep(5)
        async with agent.waiting(what):
            await trio.sleep(10)
        await trio.sleep_forever()

    word = {WaitFor.other: "waiting", WaitFor.restart: "restart"}.get(what, f"waiting for {what}")
    start = trio.current_time()
    async with running(limits(), root) as tree:
        assert (by_path(tree)["root"].state, by_path(tree)["root"].since) == ("working", start)
        await trio.sleep(7)
        assert (by_path(tree)["root"].state, by_path(tree)["root"].since) == (word, start + 5)
        await trio.sleep(10)
        assert (by_path(tree)["root"].state, by_path(tree)["root"].since) == ("working", start + 15)


async def test_who_waits_for_a_child_a_slot_and_money_says_so(autojump_clock: Any) -> None:
    async def holder(agent: Agent) -> None:
        await agent.ledger.reserve(900)
        async with agent.waiting():
            await trio.sleep_forever()

    async def poor(agent: Agent) -> None:
        await agent.ledger.reserve(900)

    async def root(agent: Agent) -> None:
        for behaviour in (holder, poor):
            await agent.spawn(behaviour)
            async with agent.waiting():
                await trio.sleep(1)
        handle = await agent.spawn(idle)
        await agent.spawn(idle)
        await handle.exit()

    async with running(limits(concurrent=1), root) as tree:
        await trio.sleep(5)
        assert {path: view.state for path, view in by_path(tree).items()} == {
            "root": "waiting for child",
            "root/1": "waiting",
            "root/2": "waiting for money",
            "root/3": "working",
            "root/4": "waiting for slot",
        }


async def test_an_agent_whose_work_is_over_waits_for_its_children(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        await agent.spawn(idle)

    async with running(limits(), root) as tree:
        assert by_path(tree)["root"].state == "waiting for child"


async def test_an_agent_that_is_told_to_stop_says_so_since_then(autojump_clock: Any) -> None:
    async def slow(_agent: Agent) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async def root(agent: Agent) -> None:
        await agent.spawn(slow)
        async with agent.waiting():
            await trio.sleep_forever()

    async with running(limits(), root) as tree:
        await trio.sleep(3)
        told = trio.current_time()
        tree.halt_nowait()
        await trio.sleep(1)
        assert {(view.state, view.since) for view in by_path(tree).values()} == {("stopping", told)}


async def test_of_several_waits_of_one_agent_one_that_still_lasts_is_shown(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        async def wait(what: WaitFor, start: float, end: float) -> None:
            await trio.sleep(start)
            async with agent.waiting(what):
                await trio.sleep(end - start)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, WaitFor.child, 0, 40)
            nursery.start_soon(wait, WaitFor.human, 10, 20)
            nursery.start_soon(wait, WaitFor.rate, 15, 30)

    async with running(limits(), root) as tree:
        seen = []
        for _ in range(4):
            await trio.sleep(9)
            seen.append(by_path(tree)["root"].state)
        # At 9, 18, 27 and 36 s.
        assert seen == ["waiting for child", "waiting for rate", "waiting for rate", "waiting for child"]


# ── deadlines, spend, mailboxes, restarts ───────────────────────────────────────


async def test_a_deadline_is_the_nearest_on_the_path(autojump_clock: Any) -> None:
    async def child(agent: Agent) -> None:
        await agent.spawn(idle, limits=AgentLimits(max_duration=50))
        await agent.spawn(idle)
        await trio.sleep_forever()

    async def root(agent: Agent) -> None:
        await agent.spawn(child, limits=AgentLimits(max_duration=20))
        await agent.spawn(idle, limits=AgentLimits(max_duration=50))
        await trio.sleep_forever()

    now = trio.current_time()
    async with running(limits(concurrent=9), root) as tree:
        assert {path: view.deadline for path, view in by_path(tree).items()} == {
            "root": None,
            "root/1": now + 20,
            "root/1/1": now + 20,
            "root/1/2": now + 20,
            "root/2": now + 50,
        }


async def test_spend_is_the_agents_own_and_a_goal_is_cut(autojump_clock: Any) -> None:
    async def child(agent: Agent) -> None:
        held = await agent.ledger.reserve(100)
        assert isinstance(held, Reservation)
        await agent.ledger.settle(held, 30, 0)
        await trio.sleep_forever()

    child.__qualname__ = "g" * 5_000

    async def root(agent: Agent) -> None:
        await agent.spawn(child)
        await agent.ledger.draw_tokens(7)
        await trio.sleep_forever()

    async with running(limits(), root) as tree:
        views = by_path(tree)
        assert (views["root"].spent_tokens, views["root/1"].spent_tokens) == (7, 30)
        assert views["root/1"].goal == "g" * 200


async def test_an_actor_below_an_agent_is_shown_with_its_mailbox(autojump_clock: Any) -> None:
    gate = trio.Event()

    async def receive(_message: Any, _call: Any) -> None:
        await gate.wait()

    async def root(agent: Agent) -> None:
        actor: Actor[str] = Actor("root/clerk", agent, agent.host, receive)
        agent.start_child(actor)
        await trio.testing.wait_all_tasks_blocked()
        assert [view.state for view in look(agent).views] == ["working", "waiting for mailbox"]
        for message in ("a", "b", "c"):
            actor.ref.tell(message)
        await trio.sleep_forever()

    async with running(limits(), root) as tree:
        await trio.testing.wait_all_tasks_blocked()
        view = by_path(tree)["root/clerk"]
        assert (view.state, view.mailbox, view.depth, view.goal) == ("working", MailboxView(2, 3), 1, "actor")
        gate.set()


async def test_a_child_that_is_started_again_later_says_in_how_many_seconds(autojump_clock: Any) -> None:
    async def crash() -> None:
        raise ValueError("no")

    async def root(agent: Agent) -> None:
        flags = {"backoff": {"minimum": 4.0, "maximum": 4.0}, "intensity": 9, "period": 60.0}
        made = supervise([{"id": "worker", "start": crash}], flags, on_report=lambda *_: None)
        agent.start_child(Supervisor("root/top", agent, agent.host, made))
        await trio.sleep_forever()

    async with running(limits(), root) as tree:
        await trio.sleep(1)
        snapshot = tree.snapshot()
        [worker] = [view for view in snapshot.agents if view.path == "root/top/worker"]
        assert worker.state == "restart" and worker.restart_at is not None
        assert 0 < worker.restart_at - snapshot.now <= 4


async def test_an_agent_that_begins_again_later_says_in_how_many_seconds(autojump_clock: Any) -> None:
    async def crash(_agent: Agent) -> None:
        raise ValueError("no")

    async def root(agent: Agent) -> None:
        await agent.spawn(crash, restart=RestartPolicy(backoff=Backoff(minimum=4.0, maximum=4.0)))
        await trio.sleep_forever()

    async with running(limits(), root) as tree:
        await trio.sleep(1)
        snapshot = tree.snapshot()
        [child] = [view for view in snapshot.agents if view.path == "root/1"]
        assert child.state == "restart" and child.restart_at is not None
        assert 0 < child.restart_at - snapshot.now <= 4


# ── bounds ──────────────────────────────────────────────────────────────────────


async def test_a_bounded_snapshot_counts_the_rest_by_state(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        for _ in range(20):
            await agent.spawn(idle)
        async with agent.waiting():
            await trio.sleep_forever()

    async with running(limits(concurrent=5), root) as tree:
        whole, bounded = tree.snapshot(), tree.snapshot(4)
        assert len(whole.agents) == 21 and whole.more == {}
        assert [view.path for view in bounded.agents] == ["root", "root/1", "root/2", "root/3"]
        assert bounded.more == {"working": 2, "waiting for slot": 15}
        assert tree.snapshot(21).more == {} and tree.snapshot(1).more == {"working": 5, "waiting for slot": 15}


async def test_paths_of_a_deep_chain_are_bounded_together(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        for number in range(30):
            child = Actor(f"root/{number}" + "x" * (MOST_PATH_CHARS // 10), agent, agent.host, lambda *_: None)
            agent.start_child(child)
        await trio.sleep_forever()

    async with running(limits(), root) as tree:
        views = tree.snapshot(2_000).agents
        assert 5 < len(views) < 12
        assert len(tree.snapshot().agents) == 31


def test_what_is_left_out_is_never_below_zero() -> None:
    assert left_out(Tally(1, 5, 3, 9), Tally(2, 2, 3, 0)) == {"waiting": 3}


# ── as text ─────────────────────────────────────────────────────────────────────


def full() -> TreeSnapshot:
    ledger = attrs.evolve(
        LedgerState(limits()).snapshot(), refusals={"depth": 2}, halt=Halt(HaltKind.cost, limit=1.5, used=2)
    )
    views = (
        AgentView("root", 0, "working", 3, 2**62, "goal \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")),
        AgentView("root/1", 1, "restart", 0, 0, "", 5, 1.5, 9.25, MailboxView(1, 2), 7.5),
    )
    return TreeSnapshot("run", views, {0: Tally(1, 0, 0, 0), 1: Tally()}, Tally(1), 1, 3, 2, ledger, 4.5, 3.25, {"working": 3})


def test_a_snapshot_comes_back_from_its_text() -> None:
    assert decode_snapshot(encode_snapshot(full())) == full()


def test_what_is_no_snapshot_is_refused_as_a_value() -> None:
    for text in ("", "{}", '{"run_id": 3}', "[1]", '{"x":' + "[" * 100_000):
        with pytest.raises(ValueError, match="not a snapshot of this version"):
            decode_snapshot(text)


async def test_two_snapshots_of_a_tree_in_which_nothing_changed_differ_in_time_alone(autojump_clock: Any) -> None:
    async def root(agent: Agent) -> None:
        await agent.spawn(idle, limits=AgentLimits(max_duration=500))
        await trio.sleep(50)
        await agent.spawn(idle)
        await trio.sleep_forever()

    containment = Containment(50, 9, 3, 1_000, max_total_duration=900)
    async with running(containment, root) as tree:
        first = tree.snapshot()
        await trio.sleep(10)
        second = tree.snapshot()
        assert first != second and first.timeless() == second.timeless()
        await trio.sleep(100)
        assert tree.snapshot().timeless() != second.timeless()
