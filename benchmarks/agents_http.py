"""One tree of LLM agents over loopback HTTP, beside the bare httpx calls they make.

Each agent asks once and ends with the echo. The bare arm sends the same bodies
through the same kind of lanes and decodes the answers. Only the CPU of this
process counts; the server is another one. Connections are open before the clock
starts, on both sides.
"""

import gc
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trio

from actors.agents.agent import Agent
from actors.agents.approvals import ApproveAll
from actors.agents.child_handle import ChildHandle
from actors.agents.contract import TaskContract
from actors.agents.loop import Job, work_on
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Completion, CompletionRequest, Provider
from actors.agents.services import Services
from actors.agents.tree import open_tree
from actors.agents.verification import Verification
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.providers.chat_wire import encode_request
from actors.providers.lanes import Lanes
from actors.providers.openai_chat import OpenAIChat
from actors.store.store import Store
from benchmarks.endpoint import model_server
from benchmarks.harness import Figure, Gate, begin, cpu, interleave, per_operation, rounds_of

CONNECTIONS = 100
MODEL = "local"
# What an application with many live agents would set; the library itself never touches the collector.
RARE_COLLECTIONS = (50_000, 20, 20)


class _Listening:
    """A provider that keeps the bodies of what is asked, for the bare arm."""

    name = "listening"
    default_model = MODEL

    def __init__(self, inner: OpenAIChat) -> None:
        self._inner = inner
        self.bodies: list[bytes] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.bodies.append(encode_request(request, model=MODEL))
        return await self._inner.complete(request)


def _services(provider: Provider) -> Services:
    from actors.tools.toolbox import builtin_tools
    from actors.tools.verifying import evaluate

    return Services(provider, ApproveAll(), builtin_tools(), evaluate, PriceTable())


async def _tree(n: int, provider: Provider, root_folder: str, store: Store) -> None:
    """Run one tree of ``n`` LLM agents; each must finish and say its goal back."""
    services, policy = _services(provider), Policy.permissive()

    async def root(agent: Agent) -> None:
        children = []
        parent = TaskContract.workspace("have hello said", root_folder)
        for number in range(n):
            # A child's contract is its parent's with another goal, as spawn_agent makes it.
            goal = f"say hello to number {number}"
            job = Job(parent.for_child(goal, Verification.none(), parent.max_steps), policy, services)
            child = await agent.spawn_agent(work_on, (job,), job.limits(), about=job.about())
            children.append((f"number {number}", ChildHandle[str](child)))
        for goal, handle in children:
            said = await handle.result()
            assert handle.outcome is not None and handle.outcome.kind is OutcomeKind.finished
            assert goal in said

    async with open_tree(Containment(n + 1, n + 1, 1, UNLIMITED), store=store) as tree:
        await tree.run(root)
    await store.commit()
    assert tree.leaks().empty


async def _bare(bodies: list[bytes], url: str, lanes: Lanes) -> None:
    headers = {"content-type": "application/json"}

    async def call(body: bytes) -> None:
        async with lanes.lease() as client:
            response = await client.post(f"{url}/chat/completions", content=body, headers=headers)
        assert response.json()["choices"]

    async with trio.open_nursery() as nursery:
        for body in bodies:
            nursery.start_soon(call, body)


async def _warm(bodies: list[bytes], url: str) -> Lanes:
    lanes = Lanes(CONNECTIONS)
    await _bare((bodies * CONNECTIONS)[:CONNECTIONS], url, lanes)
    return lanes


async def _agents(bodies: list[bytes], url: str, folder: str, *, in_file: bool) -> float:
    lanes = await _warm(bodies, url)
    async with OpenAIChat(url, "", MODEL, lanes=lanes) as provider:
        if in_file:
            with tempfile.TemporaryDirectory() as fresh:
                async with Store.open(Path(fresh) / "runs.db") as store:
                    began = begin()
                    await _tree(len(bodies), provider, folder, store)
                    spent = cpu() - began
        else:
            began = begin()
            await _tree(len(bodies), provider, folder, Store.memory())
            spent = cpu() - began
    await lanes.aclose()
    return spent


async def _calls(bodies: list[bytes], url: str) -> float:
    lanes = await _warm(bodies, url)
    began = begin()
    await _bare(bodies, url, lanes)
    spent = cpu() - began
    await lanes.aclose()
    return spent


async def _listen(n: int, url: str, folder: str) -> list[bytes]:
    async with OpenAIChat(url, "", MODEL, lanes=CONNECTIONS) as inner:
        provider = _Listening(inner)
        await _tree(n, provider, folder, Store.memory())
    return provider.bodies


def figures(quick: bool) -> Iterator[Figure]:
    """Measure with a store in memory, and with one in a file."""
    n = 50 if quick else 1_000
    with tempfile.TemporaryDirectory() as folder, model_server("--echo") as url:
        bodies = trio.run(_listen, n, url, folder)
        assert len(bodies) == n
        arms = (
            partial(_agents, bodies, url, folder, in_file=False),
            partial(_agents, bodies, url, folder, in_file=True),
            partial(_calls, bodies, url),
        )
        memory, filed, bare = interleave(rounds_of(quick), *arms)
        thresholds = gc.get_threshold()
        gc.set_threshold(*RARE_COLLECTIONS)
        try:
            tuned, bare_tuned = interleave(rounds_of(quick), arms[0], arms[2])
        finally:
            gc.set_threshold(*thresholds)
    method = f"LLM agents of one tree, one call each; baseline: the same bodies by httpx, {CONNECTIONS} lanes' places"
    gate = Gate("ratio", "<=", 1.5)
    yield per_operation("agents_http", memory, bare, n, f"{method}; store in memory", gate)
    yield per_operation("agents_http_file_store", filed, bare, n, f"{method}; store in a file, writer included")
    rare = f"{method}; store in memory; gc.set_threshold{RARE_COLLECTIONS} in both arms"
    yield per_operation("agents_http_rare_gc", tuned, bare_tuned, n, rare, gate)
