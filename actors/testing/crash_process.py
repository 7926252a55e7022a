"""One process of a run: forked from a warm parent, killed at a crash point or come to the run's end.

The parent has everything imported and runs no event loop, so a fork costs some
milliseconds where a new interpreter costs some hundred. It has no threads
either: a fork copies only the thread that forks.

A process that does not end in time is killed by its own number, and so are the
commands that it leaves behind when it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors.agents.ports import Tool
from actors.assembly.resuming import resume_from_stored_policy, resume_with_decision, resume_with_recovery
from actors.assembly.running import RunResult
from actors.errors import ActorsError, StoreError
from actors.store.connections import connect_writer
from actors.store.store import FileStore, Store
from actors.testing.crash_account import Account, account_of
from actors.testing.crash_stage import CrashingConnection, Points, Scenario, Stage, StatelessModel
from actors.testing.faulty_store import Faults, open_faulty_store, open_prepared_store
from actors.tools import whole_files

# A run that is resumed more often than this without a crash goes in circles.
MOST_ROUNDS: Final = 60
PR_SET_CHILD_SUBREAPER: Final = 36
WAIT_PAUSE: Final = 0.001
LOG_CHARS: Final = 3_000
# The stacks are written this much before the process is killed.
DUMP_SECONDS: Final = 1.0


@attrs.frozen
class Told:
    """What one process came to. ``killed``: at its crash point, whose name is ``trail``.

    ``account`` is None unless the run came to its end; then ``problem`` says why not.
    ``reached`` counts the crash points (or statements, when faults were injected) that
    were met. ``hits`` counts the faults that struck.
    """

    killed: bool = False
    trail: str = ""
    account: Account | None = None
    problem: str = ""
    reached: int = 0
    hits: int = 0
    modules: tuple[str, ...] = ()


# ── in the child ────────────────────────────────────────────────────────────


async def _come_to_the_end(scenario: Scenario, stage: Stage) -> RunResult:
    """Begin a run or go on with it, be its operator, until it has ended.

    Cancellation: it can be gone on with.
    """
    for _ in range(MOST_ROUNDS):
        result = await _once(scenario, stage)
        if result.terminal is not None:
            return result
    raise ActorsError(f"it was resumed {MOST_ROUNDS} times and has not ended: {result}")


async def _once(scenario: Scenario, stage: Stage) -> RunResult:
    store = stage.store
    runs = store.runs(1)
    if not runs:
        return await scenario.start(stage)
    run_id = runs[0].run_id
    more: dict[str, Any] = {"tools": stage.tools}
    with_all = (stage.model, store, stage.approver)
    attempts = store.open_attempts(run_id)
    if attempts:
        return await resume_with_recovery(run_id, scenario.recover(stage, attempts[0]), *with_all, **more)
    asked = store.approvals(run_id)
    if asked:
        return await resume_with_decision(run_id, scenario.decide(stage, asked[0]), *with_all, **more)
    return await resume_from_stored_policy(run_id, *with_all, **more)


async def _in_store(scenario: Scenario, stage: Stage, store: FileStore) -> Account:
    stage.store = store
    async with store, trio.open_nursery() as nursery:
        if scenario.beside is not None:
            nursery.start_soon(scenario.beside, stage)
        failed: Exception | None = None
        try:
            result = await _come_to_the_end(scenario, stage)
        except Exception as error:
            # Through the nursery it would come out in a group.
            failed = error
        nursery.cancel_scope.cancel()
        if failed is None:
            return account_of(stage, store, result)
    raise failed


def _crashing_store(stage: Stage) -> FileStore:
    return open_prepared_store(stage.folder / STORE, lambda inner: CrashingConnection(inner, stage.points))


async def _run(scenario: Scenario, stage: Stage, faults: Faults | None) -> Account:
    if faults is None:
        return await _in_store(scenario, stage, _crashing_store(stage))
    try:
        return await _in_store(scenario, stage, open_faulty_store(stage.folder / STORE, faults))
    except StoreError:
        if not faults.hits:
            raise
    # The cause is gone.
    faults.mend()
    return await _in_store(scenario, stage, Store.open(stage.folder / STORE))


def _child(scenario: Scenario, folder: Path, at: int | None, faults: Faults | None, known: frozenset[str]) -> Told:
    points = Points(at, folder / TRAIL)
    stage = Stage(folder, points)
    tools: tuple[Tool, ...] = scenario.tools(stage)
    stage.tools, stage.approver = tools, scenario.approver(stage)
    stage.model = StatelessModel(scenario.answers, stage)
    if faults is not None:
        _be_impatient()
    _watch_renames(points)
    account, problem = None, ""
    try:
        account = trio.run(_run, scenario, stage, faults)
    except Exception:
        problem = traceback.format_exc()
    reached = points.reached if faults is None else faults.seen
    new = tuple(sorted(set(sys.modules) - known))
    return Told(False, "", account, problem, reached, 0 if faults is None else faults.hits, new)


def _watch_renames(points: Points) -> None:
    """Put a crash point between the bytes of a file and the rename that makes them visible."""
    write = whole_files._write_all

    def watched(descriptor: int, data: bytes) -> None:
        write(descriptor, data)
        points.reach("between the bytes of a file and its name")

    whole_files._write_all = watched


def _be_impatient() -> None:
    """Wait for a file that is held as long as a test can bear. This process is ours alone."""
    for module, name, seconds in PATIENCE:
        found = importlib.import_module(module)
        assert hasattr(found, name), f"{module} has no {name} any more"
        setattr(found, name, seconds)


# What waits for a file that another program holds, and how long it does so here.
PATIENCE: Final = (
    ("actors.store.writer", "BUSY_SECONDS", 0.1),
    ("actors.store.writer", "CLOSE_SECONDS", 0.2),
    ("actors.agents.leasing", "RELEASE_SECONDS", 0.2),
)
STORE: Final = "runs.db"
TRAIL: Final = "trail"
TOLD: Final = "told"
LOG: Final = "log"


# ── in the parent ───────────────────────────────────────────────────────────


class Warm:
    """The parent: what every process is forked from. Use it within its block, in a process without threads."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        # So many were forked.
        self.processes = 0

    def __enter__(self) -> Warm:
        if threading.active_count() > 1:
            raise ActorsError("the explorer forks, and this process has threads: run it in one of its own")
        template = self.folder / "template"
        template.mkdir()
        # Made once: making the tables costs more than a whole run.
        connect_writer(template / STORE).close()
        _adopt_orphans(True)
        gc.collect()
        gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()
        _adopt_orphans(False)

    def new_folder(self, name: str) -> Path:
        """Make the folder of a new run: an empty workspace and an empty store."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "workspace").mkdir()
        shutil.copyfile(self.folder / "template" / STORE, folder / STORE)
        return folder

    def process(self, scenario: Scenario, folder: Path, at: int | None = None, faults: Faults | None = None) -> Told:
        """Go on with the run in ``folder`` in a new process, until crash point ``at`` or to its end."""
        before = _children()
        self.processes += 1
        for name in (TRAIL, TOLD):
            (folder / name).unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            _be_child(scenario, folder, at, faults, self.seconds)
        killed = _wait(pid, self.seconds)
        told = self._heard(folder, killed)
        left = self._end_orphans(before)
        if left and told.account is not None:
            # It ended in order, and should have ended these itself.
            wrong = (*told.account.wrong, f"leaks: {left} processes that it had started")
            return attrs.evolve(told, account=attrs.evolve(told.account, wrong=wrong))
        return told

    def _heard(self, folder: Path, status: int | None) -> Told:
        trail = folder / TRAIL
        if trail.exists():
            return Told(killed=True, trail=trail.read_text())
        told = folder / TOLD
        if status is None:
            return Told(problem=f"it hung for {self.seconds:g} s and was killed:\n{_tail(folder / LOG)}")
        if not told.exists():
            return Told(problem=f"its process ended by itself ({status}):\n{_tail(folder / LOG)}")
        plain = json.loads(told.read_text())
        account = plain.pop("account")
        if account is not None:
            account = Account(**{**account, "wrong": tuple(account["wrong"])})
        told_all = Told(**{**plain, "account": account, "modules": tuple(plain["modules"])})
        for name in told_all.modules:
            # What one process had to import the next ones have already.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if told_all.problem:
            return attrs.evolve(told_all, problem=f"{told_all.problem}\n{_tail(folder / LOG)}")
        return told_all

    def _end_orphans(self, before: frozenset[int]) -> int:
        """End what a process has left behind, which is ours to reap by now, and count what still ran."""
        left = 0
        # What such a command has started comes to us when it is gone.
        while orphans := _children() - before:
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    # One that has ended was only waiting for somebody to reap it: the first process of a sandbox
                    # outlives its parent by a moment.
                    if os.waitpid(pid, os.WNOHANG)[0] == pid:
                        continue
                    left += 1
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        return left


def _be_child(scenario: Scenario, folder: Path, at: int | None, faults: Faults | None, seconds: float) -> None:
    """Be the new process; never returns."""
    code = 1
    try:
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.dump_traceback_later(max(seconds - DUMP_SECONDS, seconds / 2), file=log)
        told = _child(scenario, folder, at, faults, frozenset(sys.modules))
        faulthandler.cancel_dump_traceback_later()
        (folder / f"{TOLD}.new").write_text(json.dumps(attrs.asdict(told)))
        os.replace(folder / f"{TOLD}.new", folder / TOLD)
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        # Not by `sys.exit`: what is above on the stack belongs to the parent.
        os._exit(code)


def _wait(pid: int, seconds: float) -> int | None:
    """Wait for a process, and reap it. None: it did not end in time and was killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(WAIT_PAUSE)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _adopt_orphans(adopt: bool) -> None:
    """Become the parent of what a killed process leaves behind, where the system can do that."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _children() -> frozenset[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return frozenset()
    return frozenset(map(int, text.split()))


def _tail(file: Path) -> str:
    return file.read_text(errors="replace")[-LOG_CHARS:] if file.exists() else ""


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """Measure a block; the one member is its seconds."""
    began = time.monotonic()
    seconds = [0.0]
    try:
        yield seconds
    finally:
        seconds[0] = time.monotonic() - began
