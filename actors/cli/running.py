"""One run from the command line: signals become halts, a person sees the tree, and the end is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import attrs
import trio

from actors.agents.outcomes import OutcomeKind, exit_code
from actors.agents.ports import Approver, Provider
from actors.agents.recording import Recorder, ending
from actors.agents.tree import Leaks, Tree
from actors.assembly.building import approver_of, policy_of
from actors.assembly.child_trees import TreeState, child_trees
from actors.assembly.provider_spec import provider_of
from actors.assembly.reporting import run_report
from actors.assembly.run_settings import ApproveMode, RunSettings
from actors.assembly.running import RunResult, run_tree, run_with
from actors.assembly.stored_task import Means
from actors.assembly.task_file import Task
from actors.assembly.tree_states import tree_states
from actors.cli.approving import AskOnTerminal
from actors.cli.ending import leaves, unusable
from actors.cli.live import Progress
from actors.cli.next_steps import how_to_fetch, how_to_go_on
from actors.cli.notices import Notices
from actors.cli.pictures import console, summary_table, tree_picture
from actors.cli.quoting import quoted
from actors.errors import StoreError
from actors.halts import HaltKind
from actors.store.readers import Reader
from actors.store.store import Store

# After the second signal nothing is waited for longer than this.
HARD_STOP_SECONDS = 1.0


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@attrs.frozen
class Shown:
    """How a person or a script wants to see the run."""

    json: bool = False
    stream_json: bool = False
    quiet: bool = False
    # False for a demo whose store goes with it.
    kept: bool = True


@attrs.define
class Watch:
    """One command that runs a tree, and who sees it. ``first`` is the first signal that came."""

    progress: Progress
    shown: Shown
    first: int | None = None
    # What is still done when everything is left behind at once.
    at_hard_stop: Callable[[], None] = lambda: None


# Starts or goes on with a run: shown where, asking whom, and told of the tree when it is open.
Start = Callable[[Progress, Approver, Callable[[Tree], None]], Any]


def run_task(task: Task, store_path: str, shown: Shown) -> int:
    """Run a task and return the exit code."""
    return run_stoppable(shown, lambda watch: _run_task(task, store_path, watch))


async def _run_task(task: Task, store_path: str, watch: Watch) -> int:
    provider = provider_of(task.provider)
    reviewer = None if task.reviewer is None else provider_of(task.reviewer)
    models = (provider, reviewer)
    return await with_store(models, store_path, watch, lambda store: _starter(task, provider, reviewer, store))


async def with_store(
    models: tuple[Provider | None, ...], store_path: str, watch: Watch, starter: Callable[[Store], Start]
) -> int:
    """Open the store, do what ``starter`` makes of it, and close the models after it; return the exit code.

    Cancellation: as `watched`.

    Raises:
        ConfigError: the store cannot be used; nothing was started.
        StoreError: as `watched`.
    """
    async with AsyncExitStack() as stack:
        for model in models:
            close = getattr(model, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
        try:
            store = await stack.enter_async_context(Store.open(store_path))
        except StoreError as error:
            raise unusable(store_path, error) from error
        return await watched(watch, store, starter(store))


def _starter(task: Task, provider: Provider, reviewer: Provider | None, store: Store) -> Start:
    async def start(progress: Progress, terminal: Approver, on_open: Callable[[Tree], None]) -> RunResult:
        means = Means(task.provider, task.prices, task.run, task.reviewer)
        options = {**options_of(means, progress, on_open), "task": means.text(), "reviewer": reviewer}
        arguments = (task.contract, provider, store, policy_of(task), approver_for(task.run, terminal))
        if task.containment is None:
            return await run_with(*arguments, **options)
        return await run_tree(*arguments, task.containment, **options)

    return start


def options_of(means: Means, progress: Progress, on_open: Callable[[Tree], None]) -> dict[str, Any]:
    """Give the options of a run that is shown to somebody, to whom is told who answers what is asked."""
    progress.approve = means.run.approve
    progress.asks_nobody = approve_mode(means.run) == ApproveMode.deny
    return {
        "observer": progress,
        "prices": means.prices,
        "cleanup_allowance": means.run.cleanup_allowance,
        "on_open": on_open,
    }


def approver_for(settings: RunSettings, terminal: Approver) -> Approver:
    """Give who is asked."""
    return approver_of(approve_mode(settings), terminal)


def approve_mode(settings: RunSettings) -> ApproveMode:
    """Say who is asked: a person can only be asked where there is one."""
    there = sys.stdin.isatty() and sys.stderr.isatty()
    return settings.approve or (ApproveMode.ask if there else ApproveMode.deny)


async def watched(watch: Watch, store: Store, start: Start) -> int:
    """Start a run, show it, and tell how it ended; return the exit code.

    Cancellation: the run is halted as an interrupt.

    Raises:
        StoreError: the end could not be stored; whoever reads JSON was told what is known.
    """
    progress = watch.progress
    progress.store = store.file if watch.shown.kept else None
    # A store that was being opened when a signal came was opened all the same; the tree is not.
    await trio.lowlevel.checkpoint()
    try:
        async with progress.shown():
            result: RunResult = await start(progress, AskOnTerminal(progress), lambda tree: _attach(progress, tree))
    except Exception as error:
        lost = next((each for each in leaves(error) if isinstance(each, StoreError)), None)
        if lost is not None and progress.tree is not None:
            await _tell_lost(progress.tree, store, lost, watch.shown)
        raise
    tell(store, result, watch.shown, await tree_states(child_trees(store.agents(result.run_id))))
    return exit_code(result.outcome, signal=watch.first)


def _attach(progress: Progress, tree: Tree) -> None:
    progress.tree = tree


# ── signals ─────────────────────────────────────────────────────────────────


def run_stoppable(
    shown: Shown, work: Callable[[Watch], Awaitable[int]], at_hard_stop: Callable[[], None] = lambda: None
) -> int:
    """Run ``work`` in trio and return its exit code. Signals stop it in order, whenever they come.

    The first SIGINT, SIGTERM or SIGHUP halts the tree, or takes back what was
    prepared when there is none yet; the second ends the process within about a
    second, after ``at_hard_stop``. None of them raises anything anywhere.
    """
    watch = Watch(Progress(quiet=shown.quiet or shown.json, stream=shown.stream_json), shown, at_hard_stop=at_hard_stop)
    # A run under nohup outlives its terminal.
    numbers = [each for each in STOPPING if each != signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN]

    def note(number: int, _frame: object) -> None:
        if watch.first is None:
            watch.first = number

    # Trio hears signals only while its loop turns; before and after it they are noted.
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        with Notices():
            return trio.run(_stoppable, watch, numbers, work)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _stoppable(watch: Watch, numbers: list[signal.Signals], work: Callable[[Watch], Awaitable[int]]) -> int:
    code: int | None = None
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(*numbers) as arrived:
            if watch.first is not None:
                return 128 + watch.first
            # It listens before the work begins: work that fails at once would be over before it ever did.
            await nursery.start(_listen, arrived, watch, nursery.cancel_scope)
            try:
                code = await work(watch)
            except Exception as error:
                # Raised in here it would come out in a group.
                failed = error
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if code is None:
        assert watch.first is not None, "only a signal cancels the work"
        return 128 + watch.first
    return code


async def _listen(
    arrived: AsyncIterator[int],
    watch: Watch,
    everything: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    progress = watch.progress
    task_status.started()
    async for number in arrived:
        name = signal.Signals(number).name
        if watch.first is None:
            watch.first = number
            if progress.tree is None:
                progress.say(f"{name}: stopping before the start")
                everything.cancel()
            else:
                progress.say(f"{name}: stopping in order; once more stops at once")
                progress.tree.halt_nowait(HaltKind.interrupt, by="operator", reason=name)
        else:
            progress.say(f"{name} again: stopping at once")
            await _stop_hard(watch, 128 + watch.first)


async def _stop_hard(watch: Watch, code: int) -> None:
    """Cut everything now; whoever has not left within a second is left behind by the end of the process."""
    tree = watch.progress.tree
    if tree is not None and tree.root is not None:
        tree.root.order_kill()
        with trio.move_on_after(HARD_STOP_SECONDS):
            # Tools kill their process groups on the way out.
            await tree.root.wait_ended()
    watch.progress.pause()
    watch.at_hard_stop()
    os._exit(code)


# ── the end ─────────────────────────────────────────────────────────────────


def tell(store: Reader, result: RunResult, shown: Shown, states: Mapping[str, TreeState]) -> None:
    """Print the end: one JSON object, or the tree and one table. ``states`` are those of the children's work trees."""
    report = run_report(store, result.run_id, leaks_as_json(result.leaks), states)
    # What a resume found before it drove anything is in no row.
    report["outcome"] = result.outcome.to_json()
    # Nobody goes on from a store that is thrown away.
    resumable = report["resumable"] = report["resumable"] and shown.kept
    if shown.json or shown.stream_json:
        _print_report(report, shown)
    else:
        out = console()
        out.print(tree_picture(store, result.run_id))
        out.print()
        out.print(summary_table(store, result.run_id))
        if result.said:
            out.print()
            out.print("the last that root said:", style="dim")
            out.print("\n".join(quoted(result.said, out.width)), markup=False, soft_wrap=True)
        for line in how_to_fetch(store, result.run_id, states) if shown.kept else ():
            out.print(line, markup=False, soft_wrap=True)
        if not shown.kept:
            out.print("Nothing of this run is kept; give --store FILE to look at it later.", style="dim")
        elif resumable:
            for line in how_to_go_on(store, result.run_id):
                out.print(line, markup=False, soft_wrap=True)
    # A signal that ends everything at once must find this told.
    sys.stdout.flush()
    if not result.leaks.empty:
        console(stderr=True).print(f"still held after the end: {result.leaks}", style="red", markup=False)


def _print_report(report: dict[str, Any], shown: Shown) -> None:
    print(json.dumps(report if shown.json else {"kind": "result", **report}))


async def _tell_lost(tree: Tree, store: Store, error: StoreError, shown: Shown) -> None:
    """Print, for whoever reads JSON, the end of a run that the store could not take. It is known only in here.

    Cancellation: nothing was printed.
    """
    root = tree.root
    if root is None or root.exit is None or not (shown.json or shown.stream_json):
        return
    memory = Store.memory()
    if root.started_at is not None:
        memory.append_nowait(root.start_row())
    await Recorder(memory, None, tree.run_id, durable=False).finished(root, root.exit)
    report = run_report(memory, tree.run_id, leaks_as_json(tree.leaks()))
    report["usage"]["turns"] = root.total_usage()[1]
    # What stands in the file is a beginning of the run, so it goes on once the cause is gone; if anything stands.
    begun = False
    with suppress(StoreError):
        begun = store.run(tree.run_id) is not None
    outcome = ending(root, OutcomeKind.interrupted, message=str(error))
    report |= {"status": "paused", "outcome": outcome.to_json(), "terminal": None, "resumable": begun}
    _print_report(report | {"store": store.file}, shown)


def leaks_as_json(leaks: Leaks) -> dict[str, list[Any]]:
    """Give the leaks as plain data."""
    return {name: list(value) for name, value in attrs.asdict(leaks, recurse=False).items()}
