"""One fault at the n-th checkpoint, for each n, and then all invariants.

    async def two_children(fuzz: Fuzz) -> None:
        tree = open_tree(Containment(10, 1, 2, 1_000))
        fuzz.watch(TreeWatch(tree))
        async with tree:
            await tree.run(root, fuzz)          # its agents call ``await fuzz.point()``

    report = fuzz(two_children)                 # some hundred runs, each a `trio.run`
    assert not report.broken, report

A scenario is run once without a fault to count its steps and points; then once
for each fault and each place. A *step* is what a task does between two
checkpoints: before the n-th one the host's scope is cancelled, one node's scope
is cancelled, one agent is stopped, or the tree is halted. A *point* is a line of
the scenario's own code, ``await fuzz.point()``: there it crashes, panics (raises
what is no `Exception`) or sleeps a second.

Runs are repeatable: the clock is virtual and jumps whenever all tasks wait, and
trio's scheduler is seeded. A failure names the fault; `run_once` repeats it.

A scenario must stay on the loop: with a thread, a process or a socket that it
waits for, the clock would jump over it.
"""

from __future__ import annotations

import gc
import logging
import math
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final

import attrs
import trio

from actors.errors import ActorsError
from actors.runtime.child import CURRENT
from actors.runtime.exits import Exit
from actors.runtime.host import KILL_WAIT, Host
from actors.testing.tree_invariants import Watch

# What a delay lasts, in seconds of the virtual clock.
DELAY: Final = 1.0
# A run that takes more steps than this turns in circles.
MOST_STEPS: Final = 50_000


class Kind(StrEnum):
    """What goes wrong."""

    cancel_host = "cancel_host"
    cancel_node = "cancel_node"
    stop_node = "stop_node"
    halt = "halt"
    crash = "crash"
    panic = "panic"
    delay = "delay"


# Those that strike between two steps; the others strike where the scenario calls `point`.
AT_STEPS: Final = (Kind.cancel_host, Kind.cancel_node, Kind.stop_node, Kind.halt)
AT_POINTS: Final = (Kind.crash, Kind.panic, Kind.delay)


@attrs.frozen
class Fault:
    """One fault: at the ``at``-th step or point, counted from 1."""

    kind: Kind
    at: int


class InjectedCrash(Exception):
    """The fault ``crash``."""


class InjectedPanic(BaseException):
    """The fault ``panic``: it must end the whole tree, and come out of it as itself."""


class Stuck(Exception):
    """No task can go on and no deadline is set, or it takes far too long. The text shows where each task waits."""


@attrs.frozen
class Parcel:
    """A message that is counted: each one sent is handled once, or is one dead letter."""

    number: int


class Fuzz:
    """What one run of a scenario is given."""

    def __init__(self, faults: tuple[Fault, ...], clock: JumpingClock) -> None:
        self.faults = faults
        self.watches: list[Watch] = []
        self.hosts: list[Host] = []
        self.points = 0
        # What was raised at a point, and whether that was in a child of a watched tree.
        self.raised: list[tuple[BaseException, bool]] = []
        # When the first fault struck.
        self.struck_at: float | None = None
        self._clock = clock
        self._known: list[BaseException | Exit] = []
        self._sent: list[int] = []
        self._handled: list[int] = []
        self._made = 0

    def watch(self, *watches: Watch, host: Host | None = None) -> None:
        """Look at these at each step and at the end; ``host`` is where parcels become dead letters."""
        self.watches += watches
        if host is not None:
            self.hosts.append(host)

    # ── faults of the scenario's own code ───────────────────────────────────

    async def point(self) -> None:
        """Be one place where the scenario may crash, panic or be slow.

        Checkpoint: always.
        Cancellation: as any checkpoint.
        """
        if self._due(Kind.delay):
            await trio.sleep(DELAY)
        await trio.lowlevel.checkpoint()

    def point_nowait(self) -> None:
        """Be one place where the scenario may crash or panic: for sync code."""
        self._due(Kind.delay)

    def _due(self, kind: Kind) -> bool:
        self.points += 1
        for fault in self.faults:
            if fault.at == self.points and fault.kind in AT_POINTS:
                self.strike()
                if fault.kind is kind:
                    return True
                error = InjectedCrash(str(fault.at)) if fault.kind is Kind.crash else InjectedPanic(str(fault.at))
                self.raised.append((error, CURRENT.get() is not None))
                raise error
        return False

    def strike(self) -> None:
        """Note when the first fault came."""
        if self.struck_at is None:
            self.struck_at = self._clock.now

    # ── what the scenario knows ─────────────────────────────────────────────

    def saw(self, *known: BaseException | Exit) -> None:
        """Tell of errors that the scenario caught: they are not lost."""
        self._known += known

    def report(self, _path: str, report: Any) -> None:
        """Take a supervisor's report: hand it over as ``on_report``."""
        self._known.append(report.end)

    def known(self) -> list[BaseException | Exit]:
        """Give every error and end that was told to anybody."""
        return [*self._known, *(end for watch in self.watches for end in watch.ends())]

    # ── messages ────────────────────────────────────────────────────────────

    def parcel(self) -> Parcel:
        """Make a message. Tell `sent` when it was left, and `handled` first thing where it is handled."""
        self._made += 1
        return Parcel(self._made)

    def sent(self, parcel: Parcel) -> None:
        """Note that a parcel was left with a mailbox."""
        self._sent.append(parcel.number)

    def handled(self, message: object) -> None:
        """Note that a message is in work; whatever is no parcel is not counted."""
        if isinstance(message, Parcel):
            self._handled.append(message.number)

    def messages(self) -> Iterator[str]:
        """Say which parcels were lost, doubled, or handled without having been sent."""
        letters = [letter for host in self.hosts for letter in host.dead_letters.take_all()]
        dead = [letter.message.number for letter in letters if isinstance(letter.message, Parcel)]
        came = Counter(self._handled) + Counter(dead)
        for number in sorted(set(self._sent) | set(came)):
            sent = self._sent.count(number)
            if came[number] != sent:
                where = f"handled {self._handled.count(number)} times and {dead.count(number)} times a dead letter"
                yield f"INV-5 parcel {number} was sent {sent} times, {where}"


Scenario = Callable[[Fuzz], Awaitable[object]]


@attrs.frozen
class Broken:
    """What one run broke. Repeat it with ``run_once(scenario, *faults, seed=seed)``."""

    faults: tuple[Fault, ...]
    seed: int
    what: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in a few lines."""
        when = ", ".join(f"{fault.kind} at {fault.at}" for fault in self.faults) or "no fault"
        return f"{when} (seed {self.seed}):\n    " + "\n    ".join(self.what)


@attrs.frozen
class Ran:
    """One run: its steps and points, and what was broken."""

    steps: int
    points: int
    struck: bool
    broken: Broken | None


@attrs.frozen
class Report:
    """All runs of one scenario."""

    name: str
    steps: int
    points: int
    runs: int
    broken: tuple[Broken, ...]

    def __str__(self) -> str:
        """Say what was broken, the first few runs in full."""
        head = f"{self.name}: {len(self.broken)} of {self.runs} runs broke something"
        return "\n".join([head, *(str(each) for each in self.broken[:8])])


# ── one run ─────────────────────────────────────────────────────────────────


class JumpingClock(trio.abc.Clock):
    """A clock that jumps to the next deadline in the very moment in which all tasks wait.

    It stands in the place of `trio.testing.MockClock` because it must also end a run
    in which nobody will ever wake up: trio would wait for ever.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.limit = math.inf
        self.stuck: Callable[[], str | None] = lambda: None
        # Whether trio itself is winding up, which it does over a real socket.
        self.over = False

    def start_clock(self) -> None:
        """Do nothing; it began at 0."""

    def current_time(self) -> float:
        """Give the time; end a run that turns in circles, asked by trio's own loop."""
        why = self.stuck()
        if why is not None:
            try:
                trio.lowlevel.current_task()
            except RuntimeError:
                raise Stuck(f"{why}\n{where_tasks_wait()}") from None
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump: trio asks only when no task can run."""
        if self.over:
            return 1.0
        if deadline > self.limit:
            why = "no task can go on" if math.isinf(deadline) else f"it is not over at {self.limit:g} s"
            raise Stuck(f"{why}\n{where_tasks_wait()}")
        self.now = max(self.now, deadline)
        return 0.0


def where_tasks_wait() -> str:
    """Show each task of the run with the innermost line it waits in."""
    lines = []
    root = trio.lowlevel.current_root_task()
    stack = [] if root is None else [(root, 0)]
    while stack:
        task, depth = stack.pop()
        frames = list(task.iter_await_frames())
        shown = [f"{frame.f_code.co_qualname}:{line}" for frame, line in frames[-3:]]
        lines.append(f"{'  ' * depth}{task.name}: {' > '.join(shown)}")
        stack.extend((child, depth + 1) for nursery in task.child_nurseries for child in nursery.child_tasks)
    return "\n".join(lines)


class _Needle(trio.abc.Instrument):
    """Counts steps, strikes before the n-th, and lets the watches look."""

    def __init__(self, fuzz: Fuzz, scope: trio.CancelScope) -> None:
        self._fuzz = fuzz
        self._scope = scope
        self._faults = {fault.at: fault.kind for fault in fuzz.faults if fault.kind in AT_STEPS}
        self.steps = 0
        self.broken: dict[str, None] = {}
        self.over = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count, look, strike. An instrument must not raise: trio would switch it off."""
        if self.over:
            return
        self.steps += 1
        try:
            self.look()
            kind = self._faults.get(self.steps)
            if kind is not None and self._strike(kind):
                self._fuzz.strike()
                self.look()
        except Exception as error:
            self.broken[f"the watch failed: {error!r}"] = None

    def look(self) -> None:
        """Let the watches look."""
        for watch in self._fuzz.watches:
            for what in watch.step():
                self.broken[what] = None

    def _strike(self, kind: Kind) -> bool:
        watches = self._fuzz.watches
        if kind is Kind.cancel_host:
            self._scope.cancel(reason="fuzz")
            return True
        if kind is Kind.halt:
            halted = [watch.halt() for watch in watches]
            return any(halted)
        nodes = [(watch, node) for watch in watches for node in watch.live()]
        if not nodes:
            return False
        # Which one is chance, but the same for the same n.
        watch, node = nodes[self.steps % len(nodes)]
        if kind is Kind.stop_node:
            return watch.stop_node(node)
        node.scope.cancel(reason="fuzz")
        return True


class _Logs(logging.Handler):
    """Takes the runtime's log in a run: an error that is logged, as itself or with its text, is not lost."""

    def __init__(self, fuzz: Fuzz) -> None:
        super().__init__()
        self._fuzz = fuzz

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record, or those whose text it holds: credentials are taken out of some."""
        if record.exc_info and record.exc_info[1] is not None:
            self._fuzz.saw(record.exc_info[1])
        text = record.getMessage()
        for error, _inside in self._fuzz.raised:
            # The number of its checkpoint is in it, so no other error has the same line.
            if f"{type(error).__name__}: {error}\n" in f"{text}\n":
                self._fuzz.saw(error)


def run_once(scenario: Scenario, *faults: Fault, seed: int = 0, bound: float = 60.0, stop_bound: float = 10.0) -> Ran:
    """Run a scenario once, with these faults.

    ``bound`` is how many virtual seconds it may take in all; ``stop_bound`` how many
    after the host's scope was cancelled or the tree halted: the clean-up allowance and
    what its stubborn tasks need. The kill wait comes on top.
    """
    ran = _run(scenario, faults, seed, bound, stop_bound)
    if ran.broken is not None and any(what.startswith(("Stuck", "TrioInternalError")) for what in ran.broken.what):
        _sweep()
    return ran


def _sweep() -> None:
    """Let go of the coroutines of a run that was torn down; what they complain of is no news."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _run(scenario: Scenario, faults: tuple[Fault, ...], seed: int, bound: float, stop_bound: float) -> Ran:
    clock = JumpingClock()
    clock.limit = bound
    fuzz = Fuzz(faults, clock)
    scope = trio.CancelScope()
    needle = _Needle(fuzz, scope)
    clock.stuck = lambda: f"{MOST_STEPS} steps" if needle.steps > MOST_STEPS else None
    raised: list[BaseException] = []

    async def main() -> None:
        try:
            with scope:
                await scenario(fuzz)
        except BaseException as error:
            raised.append(error)
        needle.over = clock.over = True
        needle.look()
        broken = [what for watch in fuzz.watches for what in watch.after()]
        needle.broken |= dict.fromkeys([*broken, *fuzz.messages(), *_too_long(fuzz, clock.now, stop_bound)])

    with _logged(fuzz), _seeded(seed):
        try:
            trio.run(main, clock=clock, instruments=[needle])
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            cause = error.__cause__ if isinstance(error.__cause__, Stuck) else error
            needle.broken[f"{type(cause).__name__}: {cause}"] = None
    if not any("Stuck" in what for what in needle.broken):
        needle.broken |= dict.fromkeys(_wrongly_raised(fuzz, raised))
        needle.broken |= dict.fromkeys(_lost(fuzz, raised))
    broken = Broken(faults, seed, tuple(needle.broken)) if needle.broken else None
    return Ran(needle.steps, fuzz.points, fuzz.struck_at is not None, broken)


def _too_long(fuzz: Fuzz, now: float, stop_bound: float) -> Iterator[str]:
    ending = any(fault.kind in (Kind.cancel_host, Kind.halt) for fault in fuzz.faults)
    if ending and fuzz.struck_at is not None and now - fuzz.struck_at > stop_bound + KILL_WAIT:
        yield f"INV-10 the stop took {now - fuzz.struck_at:g} s, of {stop_bound:g} s and the kill wait"


def _wrongly_raised(fuzz: Fuzz, raised: list[BaseException]) -> Iterator[str]:
    """Say which error may not come out: any without a fault, and what is no refusal or injected fault."""
    for error in raised:
        for leaf in _leaves(error):
            fair = isinstance(leaf, (ActorsError, InjectedCrash, InjectedPanic, trio.TooSlowError))
            if not fuzz.faults or not fair:
                yield f"the scenario raised {leaf!r}{_at(leaf)}"
    # The first of several stands for all.
    panics = [error for error, inside in fuzz.raised if inside and isinstance(error, InjectedPanic)]
    if panics and not any(panic in raised for panic in panics):
        yield f"the panic did not come out as itself: {raised!r}"


def _at(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _lost(fuzz: Fuzz, raised: list[BaseException]) -> Iterator[str]:
    """Say which injected errors nobody can find any more: in no end, no report, no log, and not raised."""
    known = _reachable([*fuzz.known(), *raised])
    for error, _inside in fuzz.raised:
        if id(error) not in known:
            yield f"lost: {error!r} is in no recorded end, in no report, and was not raised"


def _reachable(start: Iterable[object]) -> set[int]:
    found: set[int] = set()
    stack = list(start)
    while stack:
        each = stack.pop()
        if each is None or id(each) in found:
            continue
        found.add(id(each))
        if isinstance(each, Exit):
            stack += [each.cause, each.raised, each.lost, each.payload]
        elif isinstance(each, BaseException):
            stack += [each.__cause__, each.__context__]
            if isinstance(each, BaseExceptionGroup):
                stack += each.exceptions
        else:
            # What comes with an end: why a supervisor gave up, or could not start.
            stack += [getattr(each, "cause", None), getattr(each, "end", None)]
    return found


@contextmanager
def _logged(fuzz: Fuzz) -> Iterator[None]:
    log, handler = logging.getLogger("actors"), _Logs(fuzz)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Make trio's scheduler repeatable: the one place that touches what trio keeps to itself.

    trio shuffles each batch of runnable tasks with a generator of its own, and offers a
    deterministic order to Hypothesis only, through this very switch and generator.
    """
    run = vars(__import__("trio._core._run", fromlist=["_run"]))
    chance, switch = run["_r"], run["_ALLOW_DETERMINISTIC_SCHEDULING"]
    state = chance.getstate()
    run["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    chance.seed(seed)
    try:
        yield
    finally:
        run["_ALLOW_DETERMINISTIC_SCHEDULING"] = switch
        chance.setstate(state)


# ── all runs ────────────────────────────────────────────────────────────────


def fuzz(
    scenario: Scenario,
    kinds: Iterable[Kind] = tuple(Kind),
    *,
    stride: int = 1,
    seed: int = 0,
    bound: float = 60.0,
    stop_bound: float = 10.0,
) -> Report:
    """Run a scenario without a fault, then once for each kind and place; only each ``stride``-th place of a kind.

    Points are few, so all of them are tried whatever the stride. Bounds are those of `run_once`.
    """
    name = getattr(scenario, "__name__", repr(scenario))
    plain = run_once(scenario, seed=seed, bound=bound, stop_bound=stop_bound)
    ran = [plain]
    # A tree that breaks without a fault tells nothing with one.
    for number, kind in enumerate(() if plain.broken else kinds):
        at_steps = kind in AT_STEPS
        last = plain.steps if at_steps else plain.points
        # Kinds begin at different places, so that together they miss few.
        for at in range(1 + number % stride if at_steps else 1, last + 1, stride if at_steps else 1):
            ran += [run_once(scenario, Fault(kind, at), seed=seed, bound=bound, stop_bound=stop_bound)]
    broken = tuple(each.broken for each in ran if each.broken is not None)
    return Report(name, plain.steps, plain.points, len(ran), broken)
