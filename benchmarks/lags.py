"""How late the duration ceiling ends a tree: sleeping agents, a hung model call, a command with a grandchild.

Wall time from the moment of the ceiling until everything has ended and the
tree's end is known; the worst of all rounds, because one late stop is a late
stop. The baseline does the same work under `trio.move_on_after`.
"""

import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import trio

from actors.agents.agent import Agent
from actors.agents.ports import CompletionRequest, UserTurn
from actors.agents.tree import open_tree
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.halts import HaltKind
from actors.providers.openai_chat import OpenAIChat
from benchmarks.endpoint import model_server
from benchmarks.harness import Arm, Figure, Gate, rounds_of

SECONDS = 0.3
AIM = Gate("value", "<=", 100)
# A command with a grandchild; both ids go into a file, to look for them later.
SCRIPT = 'sleep 60 & echo $! > "$0"; echo $$ >> "$0"; wait'


async def _lag_of_tree(work: Callable[[Agent], Awaitable[object]], agents: int = 0) -> float:
    """Run ``work`` in the root, or in so many leaves, until the ceiling; give milliseconds."""

    async def root(agent: Agent) -> None:
        if agents:
            children = [await agent.spawn(work) for _ in range(agents)]
            await children[0].exit()
        else:
            await work(agent)

    limits = Containment(agents + 1, agents + 1, 1, UNLIMITED, max_total_duration=SECONDS)
    async with open_tree(limits) as tree:
        began = trio.current_time()
        await tree.run_root(root, ())
        late = trio.current_time() - began - SECONDS
        assert tree.ledger.halted is not None and tree.ledger.halted.kind is HaltKind.duration
    assert tree.leaks().empty
    return late * 1000


async def _lag_of_raw(work: Callable[[], Awaitable[object]], tasks: int = 1) -> float:
    began = trio.current_time()
    with trio.move_on_after(SECONDS) as scope:
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(work)
    assert scope.cancelled_caught
    return (trio.current_time() - began - SECONDS) * 1000


async def _sleep(_agent: Agent) -> None:
    await trio.sleep_forever()


async def _hung_call(url: str) -> float:
    async with OpenAIChat(url, "", "local") as provider:

        async def ask(_agent: Agent) -> None:
            await provider.complete(CompletionRequest("", (UserTurn("hello"),)))

        return await _lag_of_tree(ask)


async def _hung_raw_call(url: str) -> float:
    async with httpx.AsyncClient(timeout=None) as client:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        return await _lag_of_raw(partial(client.post, f"{url}/chat/completions", json=body))


def _alive(file: Path) -> int:
    """Count the processes of `SCRIPT` that still run; one that is dead and not reaped does not."""
    numbers = file.read_text().split()
    assert len(numbers) == 2, "the command did not get as far as starting its child"
    count = 0
    for number in numbers:
        try:
            os.kill(int(number), 0)
            state = Path(f"/proc/{number}/stat")
            count += not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
        except (ProcessLookupError, FileNotFoundError):
            continue
    return count


async def _command(folder: str, survivors: list[int]) -> float:
    from actors.tools.process import run

    file = Path(folder) / "ids"
    argv = ["/bin/sh", "-c", SCRIPT, str(file)]
    late = await _lag_of_tree(lambda _agent: run(argv, cwd=folder, timeout=60.0))
    survivors.append(_alive(file))
    return late


async def _raw_command(folder: str) -> float:
    async def kill_all(process: trio.Process) -> None:
        os.killpg(process.pid, signal.SIGKILL)

    argv = ["/bin/sh", "-c", SCRIPT, str(Path(folder) / "raw-ids")]
    return await _lag_of_raw(partial(trio.run_process, argv, start_new_session=True, deliver_cancel=kill_all))


def _worst(rounds: int, name: str, method: str, ours: Arm, raw: Arm, n: int = 1) -> Figure:
    """Take turns, and keep the worst of each side."""
    pairs = [(trio.run(ours), trio.run(raw)) for _ in range(rounds)]
    late, bare = (max(side) for side in zip(*pairs, strict=True))
    method = f"worst of {rounds}: wall time from the ceiling until all has ended; {method} under move_on_after"
    return Figure(f"ceilings_lag_{name}", late, "ms", bare, late / bare, n, method, AIM)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure the lag for sleeping agents, a hung model call over loopback HTTP, and a command."""
    rounds = 1 if quick else rounds_of(quick)
    one = partial(_lag_of_tree, _sleep), partial(_lag_of_raw, trio.sleep_forever)
    yield _worst(rounds, "sleep", "one sleeping agent; baseline: a sleeping task", *one)
    n = 100 if quick else 1_000
    many = partial(_lag_of_tree, _sleep, n), partial(_lag_of_raw, trio.sleep_forever, n)
    yield _worst(rounds, f"sleep_{n}", "so many sleeping leaves; baseline: sleeping tasks", *many, n=n)
    with model_server("--script", "benchmarks.endpoint:hang") as url:
        call = partial(_hung_call, url), partial(_hung_raw_call, url)
        yield _worst(rounds, "hung_model_call", "a call that is never answered; baseline: by httpx", *call)
    survivors: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        command = partial(_command, folder, survivors), partial(_raw_command, folder)
        method = "a command with a grandchild, all gone; baseline: its process group killed"
        yield _worst(rounds, "exec", method, *command)
    left = Gate("value", "==", 0)
    method = "processes of the command and its grandchild that run after the tree's end"
    yield Figure("ceilings_exec_survivors", sum(survivors), "processes", None, None, rounds, method, left)
