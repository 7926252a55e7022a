"""What writing it all down costs a run of 1,000 agents: a store in a file, beside one in memory.

Each agent reads a file and then says that it is done: two model calls, two
whole steps. Once over loopback HTTP, as a run is; once with answers that cost
nothing, so that little but the store and the loop is left. Only the CPU of this
process counts, of all its threads.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from actors.agents.agent import Agent
from actors.agents.approvals import ApproveAll
from actors.agents.child_handle import ChildHandle
from actors.agents.contract import TaskContract
from actors.agents.loop import Job, work_on
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, Provider, ResultsTurn, ToolCall
from actors.agents.services import Services
from actors.agents.tree import open_tree
from actors.agents.verification import Verification
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.providers.openai_chat import OpenAIChat
from actors.store.store import Store
from actors.testing.model_script import Answer, SaidCall
from actors.tools.toolbox import builtin_tools
from actors.tools.verifying import evaluate
from benchmarks.endpoint import model_server
from benchmarks.harness import Figure, Gate, begin, cpu, interleave, per_operation, rounds_of
from benchmarks.store_rows import CONTENT

CONNECTIONS = 100
STEPS = 2
CALL = ("read_file", json.dumps({"path": "a.txt"}))
# A quarter more than without a file.
AIM = Gate("ratio", "<=", 1.25)

Opened = Callable[[], AbstractAsyncContextManager[Provider]]


def reads_once(body: dict[str, Any], _number: int) -> Answer:
    """Answer as the model server: the first question with a call, the second with an end."""
    asked_before = any(message["role"] == "tool" for message in body["messages"])
    return Answer(text="done") if asked_before else Answer(calls=(SaidCall(*CALL),))


@asynccontextmanager
async def _over_http(url: str) -> AsyncIterator[Provider]:
    async with OpenAIChat(url, "", "local", lanes=CONNECTIONS) as provider:
        yield provider


class _Ready:
    """A provider that has each answer ready."""

    name = "ready"
    default_model = "local"

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer as `reads_once`. Cancellation: no answer was given."""
        await trio.lowlevel.checkpoint()
        if any(isinstance(turn, ResultsTurn) for turn in request.turns):
            return Completion("done", (), Usage(200, 5), "local", "stop")
        return Completion(None, (ToolCall(*CALL),), Usage(100, 10), "local", "tool_calls")


@asynccontextmanager
async def _at_no_cost() -> AsyncIterator[Provider]:
    yield _Ready()


async def _tree(n: int, provider: Provider, folder: str, store: Store) -> None:
    services, policy = Services(provider, ApproveAll(), builtin_tools(), evaluate, PriceTable()), Policy.permissive()

    async def root(agent: Agent) -> None:
        parent = TaskContract.workspace("have a file read", folder)
        handles = []
        for number in range(n):
            contract = parent.for_child(f"read it, number {number}", Verification.none(), parent.max_steps)
            job = Job(contract, policy, services)
            child = await agent.spawn_agent(work_on, (job,), job.limits(), about=job.about())
            handles.append(ChildHandle[str](child))
        for handle in handles:
            assert await handle.result() == "done"
            assert handle.outcome is not None and handle.outcome.kind is OutcomeKind.finished
            assert handle.outcome.steps == STEPS

    async with open_tree(Containment(n + 1, n + 1, 1, UNLIMITED), store=store) as tree:
        await tree.run(root)
    await store.commit()
    assert tree.leaks().empty


async def _measured(n: int, opened: Opened, folder: str, *, in_file: bool) -> float:
    async with opened() as provider:
        if not in_file:
            began = begin()
            await _tree(n, provider, folder, Store.memory())
            return cpu() - began
        with tempfile.TemporaryDirectory() as fresh:
            async with Store.open(Path(fresh) / "runs.db") as store:
                began = begin()
                await _tree(n, provider, folder, store)
                return cpu() - began


def figures(quick: bool) -> Iterator[Figure]:
    """Measure over HTTP, and with answers at no cost."""
    n = 50 if quick else 1_000
    with tempfile.TemporaryDirectory() as folder, model_server("--script", f"{__name__}:reads_once") as url:
        (Path(folder) / "a.txt").write_text(CONTENT, encoding="utf-8")
        for name, opened, gate in (
            ("store_overhead", partial(_over_http, url), AIM),
            ("store_overhead_no_model", _at_no_cost, None),
        ):
            in_file, in_memory = (partial(_measured, n, opened, folder, in_file=kept) for kept in (True, False))
            filed, bare = interleave(rounds_of(quick), in_file, in_memory)
            method = f"CPU of {n} LLM agents with {STEPS} steps each, store in a file; baseline: store in memory"
            yield per_operation(name, filed, bare, n, method, gate)
