"""One run from the command line: signals become halts, a person sees the tree, and the end is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import trio

from actors.agents.outcomes import exit_code
from actors.agents.ports import Approver, Provider
from actors.agents.tree import Leaks, Tree
from actors.assembly.building import approver_of, policy_of, provider_of
from actors.assembly.reporting import run_report
from actors.assembly.running import RunResult, run_tree, run_with
from actors.assembly.task_file import Task
from actors.cli.approving import AskOnTerminal
from actors.cli.live import Progress
from actors.cli.pictures import console, summary_table, tree_picture
from actors.errors import ConfigError, StoreError
from actors.halts import HaltKind
from actors.store.store import Store

# After the second signal nothing is waited for longer than this.
HARD_STOP_SECONDS = 1.0


@attrs.define
class Signals:
    """What signals have come: the first one stops in order, the second at once."""

    first: int | None = None


@attrs.frozen
class Shown:
    """How a person or a script wants to see the run."""

    json: bool = False
    stream_json: bool = False
    quiet: bool = False
    # False for a demo whose store goes with it.
    kept: bool = True


def run_task(task: Task, store_path: str, shown: Shown) -> int:
    """Run a task and return the exit code."""
    return trio.run(_run_task, task, store_path, shown)


async def _run_task(task: Task, store_path: str, shown: Shown) -> int:
    provider = provider_of(task.provider)
    async with AsyncExitStack() as stack:
        close = getattr(provider, "aclose", None)
        if close is not None:
            stack.push_async_callback(close)
        try:
            store = await stack.enter_async_context(Store.open(store_path))
        except StoreError as error:
            # Nothing was started: it is the name of the file that is wrong.
            raise ConfigError((store_path, str(error).removeprefix(f"{store_path}: "))) from error
        return await watched(store, shown, _starter(task, provider, store))


Start = Callable[[Progress, Approver, Callable[[Tree], None]], Any]


def _starter(task: Task, provider: Provider, store: Store) -> Start:
    async def start(progress: Progress, terminal: Approver, on_open: Callable[[Tree], None]) -> RunResult:
        # A person can only be asked where there is one.
        mode = task.run.approve or ("ask" if sys.stdin.isatty() and sys.stderr.isatty() else "deny")
        options: dict[str, Any] = {
            "observer": progress,
            "prices": task.prices,
            "cleanup_allowance": task.run.cleanup_allowance,
            "on_open": on_open,
        }
        arguments = (task.contract, provider, store, policy_of(task), approver_of(mode, terminal))
        if task.containment is None:
            return await run_with(*arguments, **options)
        return await run_tree(*arguments, task.containment, **options)

    return start


async def watched(store: Store, shown: Shown, start: Start) -> int:
    """Start a run, show it, turn signals into halts, and tell how it ended; return the exit code.

    Cancellation: the run is halted as an interrupt.
    """
    progress = Progress(quiet=shown.quiet or shown.json, stream=shown.stream_json)
    signals = Signals()
    async with _signals_halt(progress, signals), progress.shown():
        result: RunResult = await start(progress, AskOnTerminal(progress), lambda tree: _attach(progress, tree))
    tell(store, result, shown)
    return exit_code(result.outcome, signal=signals.first)


def _attach(progress: Progress, tree: Tree) -> None:
    progress.tree = tree


@asynccontextmanager
async def _signals_halt(progress: Progress, signals: Signals) -> AsyncIterator[None]:
    """Turn the first SIGINT or SIGTERM into an orderly halt, and the second into an end at once."""
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as arrived:
            nursery.start_soon(_listen, arrived, progress, signals)
            yield
        nursery.cancel_scope.cancel()


async def _listen(arrived: AsyncIterator[int], progress: Progress, signals: Signals) -> None:
    async for number in arrived:
        name = signal.Signals(number).name
        if signals.first is None:
            signals.first = number
            progress.say(f"{name}: stopping in order; once more stops at once")
            if progress.tree is None:
                os._exit(128 + number)
            progress.tree.halt_nowait(HaltKind.interrupt, by="operator", reason=name)
        else:
            progress.say(f"{name} again: stopping at once")
            await _stop_hard(progress, 128 + signals.first)


async def _stop_hard(progress: Progress, code: int) -> None:
    """Cut everything now; whoever has not left within a second is left behind by the end of the process."""
    tree = progress.tree
    if tree is not None and tree.root is not None:
        tree.root.order_kill()
        with trio.move_on_after(HARD_STOP_SECONDS):
            # Tools kill their process groups on the way out.
            await tree.root.wait_ended()
    progress.pause()
    os._exit(code)


def tell(store: Store, result: RunResult, shown: Shown) -> None:
    """Print the end: one JSON object, or the tree and one table."""
    report = run_report(store, result.run_id, leaks_as_json(result.leaks))
    if shown.json:
        print(json.dumps(report))
    elif shown.stream_json:
        print(json.dumps({"kind": "result", **report}))
    else:
        out = console()
        out.print(tree_picture(store, result.run_id))
        out.print()
        out.print(summary_table(store, result.run_id))
        if not shown.kept:
            out.print("Nothing of this run is kept; give --store FILE to look at it later.", style="dim")
        if result.said:
            out.print()
            out.print(result.said, markup=False)
    if not result.leaks.empty:
        console(stderr=True).print(f"still held after the end: {result.leaks}", style="red", markup=False)


def leaks_as_json(leaks: Leaks) -> dict[str, list[Any]]:
    """Give the leaks as plain data."""
    return {name: list(value) for name, value in attrs.asdict(leaks, recurse=False).items()}
