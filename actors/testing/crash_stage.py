"""What a scenario of the crash-point explorer is made of, and what stands around it while it runs.

    async def start(stage: Stage) -> RunResult:
        return await run_tree(my_contract(stage.workspace), stage.model, stage.store, ..., tools=stage.tools)

    MINE = Scenario("mine", start, answers={"write the file": [Say(calls=(call("write_file", ...),)), Say("done")]})

A scenario must do the same whenever it is begun: its tools and its model may not
remember anything but in files, because the process that remembers is killed.
The model is such a one: what it answers depends on the request alone, and it
notes each request in a file before it answers. That file is its own count.

A *crash point* is where the process may end: before and after each COMMIT of
the store, before and after each call of a tool, and between a request and its
answer. ``stage.points.reach("...")`` adds one.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.ports import (
    Act,
    Approver,
    Completion,
    CompletionRequest,
    Estimate,
    Observation,
    ObservationKind,
    Tool,
    ToolCall,
    ToolContext,
    ToolSpec,
)
from actors.assembly.recovering import Completed, Recovery, Retry
from actors.assembly.resuming import Decision
from actors.assembly.running import RunResult
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.store.records import ApprovalRecord, AttemptRecord
from actors.store.store import Store
from actors.testing.faulty_store import WatchedConnection
from actors.testing.goal_model import place_of, without_figures
from actors.tools.toolbox import builtin_tools

COMPLETION_TOKENS: Final = 5
# More than is ever used, so that what was only estimated can be told from what was counted.
ESTIMATED_COMPLETION: Final = 50
POLL_SECONDS: Final = 0.002


# ── crash points ────────────────────────────────────────────────────────────


class Points:
    """Counts the crash points of one process, and ends it at the one it was told. ``at`` None: at none.

    The name of that one is left in ``trail``, since the process can tell no more.
    """

    def __init__(self, at: int | None, trail: Path) -> None:
        self.at = at
        self.reached = 0
        self._trail = trail

    def reach(self, name: str) -> None:
        """Come to a crash point. Safe in any thread."""
        self.reached += 1
        if self.reached == self.at:
            self._trail.write_text(f"{self.reached}: {name}")
            os.kill(os.getpid(), signal.SIGKILL)


class CrashingConnection(WatchedConnection):
    """A connection with a crash point before and after each COMMIT."""

    def __init__(self, inner: sqlite3.Connection, points: Points) -> None:
        super().__init__(inner)
        self._points = points
        self._last = ""

    def before(self, sql: str) -> None:
        """Come to a statement."""
        if sql == "COMMIT":
            self._points.reach(f"before the commit of {self._last}")
        else:
            self._note(sql)

    def after(self, sql: str) -> None:
        """Leave a statement; nobody who waits for a COMMIT was told yet."""
        if sql == "COMMIT":
            self._points.reach(f"after the commit of {self._last}")
            self._last = ""

    def _note(self, sql: str) -> None:
        words = sql.split(None, 4)
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            table = words[1] if words[0] == "UPDATE" else words[2] if words[1] in ("INTO", "FROM") else words[4]
            self._last = f"{self._last}, {table.partition('(')[0].strip()}".removeprefix(", ")


# ── the model ───────────────────────────────────────────────────────────────


def call(tool: str, **arguments: Any) -> ToolCall:
    """Make a call of a tool."""
    return ToolCall(tool, json.dumps(arguments))


@attrs.frozen
class Say:
    """One answer of the model.

    ``fails_first``: the first time it is asked this, it fails so; the bill is then nothing.
    ``when`` holds the answer back until it is true of the workspace: a way to make an order certain.
    """

    text: str | None = None
    calls: tuple[ToolCall, ...] = ()
    fails_first: ProviderErrorKind | None = None
    when: Callable[[Path], bool] | None = None


class StatelessModel:
    """A model without a memory of its own: it answers by the goal and by how much it has said before.

    ``answers`` are by goal, the longest that the task begins with. Each request is one
    line in a file, written before the answer: key, goal and turn, and the bill.
    """

    name = "stateless"
    default_model = "stateless"
    endpoint = None

    def __init__(self, answers: Mapping[str, Sequence[Say]], stage: Stage) -> None:
        self._answers = answers
        self._stage = stage

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give the worst case: more than is ever used."""
        return Estimate(_prompt_tokens(request), ESTIMATED_COMPLETION)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Note the request, and answer it.

        Cancellation: it was noted, and is billed.

        Raises:
            ProviderError: it is told to fail.
        """
        goal, turn = place_of(request, self._answers)
        say = self._answers[goal][turn]
        key = f"{goal[:40]} {turn + 1} {self._digest(request)}"
        fails = say.fails_first is not None and not self._stage.requests()[key]
        usage = Usage(_prompt_tokens(request), COMPLETION_TOKENS)
        self._stage.note_request(key, 0 if fails else usage.tokens)
        self._stage.points.reach(f"between request and answer: {key}")
        await trio.lowlevel.checkpoint()
        if fails:
            assert say.fails_first is not None
            raise ProviderError(say.fails_first, "as it was told", usage=Usage(0, 0))
        # A file of another process, perhaps: there is nothing to be woken by.
        while say.when is not None and not say.when(self._stage.workspace):  # noqa: ASYNC110
            await trio.sleep(POLL_SECONDS)
        return Completion(say.text, say.calls, usage, self.default_model, "tool_calls" if say.calls else "stop")

    def _digest(self, request: CompletionRequest) -> str:
        text = without_figures(repr(request)).replace(str(self._stage.folder), "")
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _prompt_tokens(request: CompletionRequest) -> int:
    return 10 * len(request.turns)


# ── tools ───────────────────────────────────────────────────────────────────


class Watched:
    """A tool with a crash point before and after its work."""

    def __init__(self, inner: Tool, points: Points) -> None:
        self._inner = inner
        self._points = points
        self.spec = inner.spec
        self.read_only = inner.read_only
        self.recovery = getattr(inner, "recovery", None)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Do the work of the tool.

        Cancellation: as the tool's.
        """
        self._points.reach(f"before the tool {self.spec.name}, {context.key.partition('#')[2]}")
        seen = await self._inner.run(arguments, context)
        self._points.reach(f"after the tool {self.spec.name}, {context.key.partition('#')[2]}")
        return seen


class Send:
    """The tool `send`: an effect that nobody can look at afterwards, but for the operator. One line in a file.

    ``asks``: an act that it asks the policy for before it does anything.
    """

    spec = ToolSpec(
        "send", "Send a text.", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    )
    read_only = False

    def __init__(self, stage: Stage, asks: Act | None = None) -> None:
        self._stage = stage
        self._asks = asks

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Send it.

        Cancellation: it was not sent.
        """
        if self._asks is not None:
            await context.authorise(self._asks, "send")
        self._stage.points.reach("between intent and effect")
        self._stage.note_effect(context.key)
        self._stage.points.reach("between effect and result")
        return Observation(ObservationKind.tool, "send", SENT, changed=True)


SENT: Final = "sent"


# ── one run ─────────────────────────────────────────────────────────────────


@attrs.define
class Stage:
    """What a scenario is given. ``folder`` lives as long as the run, over all its processes.

    ``workspace`` is empty at first; whatever is in ``folder`` beside it is not compared.
    """

    folder: Path
    points: Points
    store: Store = attrs.field(init=False)
    model: StatelessModel = attrs.field(init=False)
    tools: tuple[Tool, ...] = attrs.field(init=False)
    approver: Approver = attrs.field(init=False)

    @property
    def workspace(self) -> Path:
        """Give the directory that agents work in."""
        return self.folder / "workspace"

    def note_request(self, key: str, tokens: int) -> None:
        """Write a request into the model's own file."""
        _append(self.folder / "requests", f"{key}\t{tokens}")

    def requests(self) -> Counter[str]:
        """Count the requests that arrived, by key."""
        return Counter(line.partition("\t")[0] for line in _lines(self.folder / "requests"))

    def billed(self) -> int:
        """Count the tokens that the model has billed."""
        return sum(int(line.partition("\t")[2]) for line in _lines(self.folder / "requests"))

    def note_effect(self, key: str) -> None:
        """Do an effect: one line in a file. ``key`` is the call's idempotency key."""
        _append(self.folder / "effects", _place(key))

    def effects(self) -> Counter[str]:
        """Count the effects, by the place of the call: the agent's path, step and ordinal."""
        return Counter(_lines(self.folder / "effects"))

    def was_done(self, key: str) -> bool:
        """Tell whether the effect of a call was done: what an operator would find out."""
        return _place(key) in self.effects()


def _place(key: str) -> str:
    """Make the key of a call the same in all runs: without the tree's random id."""
    run_id, _, rest = key.partition("#")
    return f"root{run_id[len(run_id.partition('/')[0]) :]}#{rest}"


def _append(file: Path, line: str) -> None:
    # One write at the end of the file: whole or not at all, whoever is killed.
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def approve(stage: Stage, asked: ApprovalRecord) -> Decision:
    """Decide every question with yes."""
    return Decision(asked.request_id, approved=True)


def recover_by_effects(stage: Stage, attempt: AttemptRecord) -> Recovery:
    """Say what became of an open call, by looking whether its effect was done: the operator knows the truth."""
    return Completed(attempt.key, SENT) if stage.was_done(attempt.key) else Retry(attempt.key)


def watched_builtins(stage: Stage) -> tuple[Tool, ...]:
    """Give the built-in tools, each with a crash point before and after its work."""
    return tuple(Watched(tool, stage.points) for tool in builtin_tools())


def approve_all(stage: Stage) -> Approver:
    """Give an approver that says yes at once."""
    return ApproveAll()


@attrs.frozen
class Scenario:
    """One run that can be begun again and again. ``start`` begins it; the explorer goes on with it.

    ``decide`` and ``recover`` are the operator: what is answered to a question that was
    put off, and to a call of which nobody knows whether it was done. ``beside`` runs
    beside each process of the run and is cancelled at its end.
    """

    name: str
    start: Callable[[Stage], Awaitable[RunResult]]
    answers: Mapping[str, Sequence[Say]]
    tools: Callable[[Stage], tuple[Tool, ...]] = watched_builtins
    approver: Callable[[Stage], Approver] = approve_all
    decide: Callable[[Stage, ApprovalRecord], Decision] = approve
    recover: Callable[[Stage, AttemptRecord], Recovery] = recover_by_effects
    beside: Callable[[Stage], Awaitable[None]] | None = None
