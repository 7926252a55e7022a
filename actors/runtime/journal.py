"""A supervisor's inputs, written down as they come. Pure.

    records = []
    async with open_supervisor(specs, journal=records.append) as top: ...

A supervisor decides by a plan that only its inputs move, so its inputs are the
whole story: one `Began` (flags and specs), then one `Happened` for each event,
with its time and with what chance and the permission to restart said. `replay.py`
makes the same decisions again from them.

A record holds nothing that lives: errors are kept as their texts, a ref as the
child's key, and of a spec neither its function nor its arguments. So records may
be kept for long, and pickled if the ids can be. Nothing stands between a
supervisor and its plan unless a journal was asked for.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Hashable
from copy import copy
from functools import partial
from typing import Any, Final, cast

import attrs

from actors.runtime.exits import Exhausted, Exit, Noted, text_of
from actors.runtime.plan import Answer, Finish, Note, Plan, Report, Start, Stop
from actors.runtime.specs import ChildSpec, Flags

log = logging.getLogger("actors.supervisor")

# What the text of an error or of a payload is cut to.
MOST_CHARS: Final = 200

# The methods of a plan that are events.
EVENTS: Final = frozenset({
    "boot", "begins", "started", "ignored", "cut", "start_failed", "ended", "note_due", "stop", "stopped",
    "start_child", "terminate_child", "restart_child", "delete_child", "reconfigure",
})  # fmt: skip
# A halt asks the plan nothing; it only forbids all that would follow.
HALTED: Final = "halted"

# Tells the incarnations of one path apart, also when one callable keeps the journals of several trees.
_NUMBERS = itertools.count(1)

MayRestart = Callable[[Hashable, float], str | None]


# ── the records ─────────────────────────────────────────────────────────────


@attrs.frozen
class Began:
    """A supervisor begins, and this is what it knows. Each incarnation has a ``number`` of its own in this process."""

    path: str
    number: int
    at: float
    flags: Flags
    specs: tuple[ChildSpec, ...]


@attrs.frozen
class Happened:
    """One event of a supervisor, as its plan was told it. Times are seconds on trio's clock.

    ``event`` and ``args`` are a method of `Plan` and its arguments, or ``halted``.
    ``chances`` and ``permissions`` are what was drawn and what was allowed on the way;
    ``said`` is the decision, in words.
    """

    path: str
    number: int
    at: float
    event: str
    args: tuple[Any, ...]
    chances: tuple[float, ...]
    permissions: tuple[str | None, ...]
    said: tuple[str, ...]


Record = Began | Happened
Journal = Callable[[Record], None]


@attrs.frozen
class Handle:
    """What stands for the ref of a child: its key."""

    key: Hashable


@attrs.frozen
class Nobody:
    """What stands for something that is no child: the name of its type."""

    type: str


def not_started() -> None:
    """Stand for the ``start`` of a spec: a replay starts nothing."""


def said_of(given: Any) -> tuple[str, ...]:
    """Say in words what a plan gave: a line for each order, or the answer."""
    if given is None:
        return ()
    return tuple(_said(each) for each in (given if isinstance(given, list) else [given]))


def _said(order: Any) -> str:
    match order:
        case Start(key, why):
            return f"start {key!r}: {why}"
        case Stop(keys):
            return f"stop {', '.join(map(repr, keys))}"
        case Report(topic, child, _, detail):
            return f"report {child!r}: {topic}" + (f", {detail}" if detail else "")
        case Note(key, _, seconds):
            return f"try {key!r} again in {seconds!r} s"
        case Finish(reason):
            return f"finish: {reason}"
        case Answer(word):
            return f"answer: {word}"
        case run:
            return f"incarnation {run}"


# ── writing them ────────────────────────────────────────────────────────────


def plan_of(
    path: str,
    flags: Flags,
    specs: tuple[ChildSpec, ...],
    *,
    chance: Callable[[], float],
    may_restart: MayRestart | None,
    journal: Journal | None,
    clock: Callable[[], float],
) -> Plan:
    """Make the plan of a supervisor; with a journal, one that tells of each event when it has decided."""
    if journal is None:
        more = {} if may_restart is None else {"may_restart": may_restart}
        return Plan(path, flags, specs, chance=chance, **more)
    # It has every member of a plan, as it hands on what it does not write down.
    return cast(Plan, _Journaled(path, flags, specs, chance, may_restart, journal, clock))


class _Journaled:
    """A plan whose events are written down; what the plan does inside an event is its own affair."""

    def __init__(
        self,
        path: str,
        flags: Flags,
        specs: tuple[ChildSpec, ...],
        chance: Callable[[], float],
        may_restart: MayRestart | None,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        self._chance, self._may_restart, self._journal, self._clock = chance, may_restart, journal, clock
        self._number = next(_NUMBERS)
        self._chances: list[float] = []
        self._permissions: list[str | None] = []
        self._plan = Plan(path, flags, specs, chance=self._drawn, may_restart=self._allowed)
        self._write(Began(path, self._number, clock(), flags, tuple(map(_bare, specs))))

    def __getattr__(self, name: str) -> Any:
        return partial(self._event, name) if name in EVENTS else getattr(self._plan, name)

    @property
    def stopping(self) -> bool:
        return self._plan.stopping

    @stopping.setter
    def stopping(self, value: bool) -> None:
        assert value, "nothing that stops goes on"
        if not self._plan.stopping:
            self._plan.stopping = True
            self._happened(HALTED, (), None)

    def _event(self, name: str, *args: Any) -> Any:
        # What is kept is looked up before the event, which may forget the child.
        kept = self._kept(name, args)
        given = getattr(self._plan, name)(*args)
        self._happened(name, kept, given)
        return given

    def _kept(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give what is kept of the arguments: all that a decision depends on."""
        match name:
            case "started":
                key, why, _ref, now = args
                return key, why, Handle(key), now
            case "stop":
                return tuple(_beginning(payload) for payload in args)
            case "start_child":
                spec, more = args
                return None if spec is None else _bare(spec), (None,) * len(more)
            case "terminate_child" | "restart_child" | "delete_child":
                return (self._which(args[0]),)
            case "reconfigure":
                return args[0], tuple(map(_bare, args[1]))
            case _:
                return tuple(bare_exit(each) if type(each) is Exit else each for each in args)

    def _which(self, which: Any) -> Hashable:
        found = self._plan._found(which)
        if found is None:
            return Nobody(type(which).__name__)
        return Handle(found.key) if self._plan.flags.dynamic else found.key

    def _drawn(self) -> float:
        self._chances.append(self._chance())
        return self._chances[-1]

    def _allowed(self, id: Hashable, now: float) -> str | None:
        self._permissions.append(None if self._may_restart is None else self._may_restart(id, now))
        return self._permissions[-1]

    def _happened(self, event: str, args: tuple[Any, ...], given: Any) -> None:
        drawn, allowed = tuple(self._chances), tuple(self._permissions)
        self._chances.clear()
        self._permissions.clear()
        at, path = self._clock(), self._plan.path
        self._write(Happened(path, self._number, at, event, args, drawn, allowed, said_of(given)))

    def _write(self, record: Record) -> None:
        try:
            self._journal(record)
        except Exception:
            log.exception("%s: whoever keeps the journal failed", self._plan.path)


def _bare(spec: ChildSpec) -> ChildSpec:
    # Everything in it was checked when it was made. Whether there were arguments counts; what they were does not.
    bare = copy(spec)
    object.__setattr__(bare, "start", not_started)
    object.__setattr__(bare, "args", (None,) * len(spec.args))
    return bare


def bare_exit(end: Exit) -> Exit:
    """Give an end whose errors and payload are texts, so that it keeps nothing alive."""
    cause, payload = _bare_error(end.cause), end.payload
    if isinstance(payload, Exhausted):
        payload = attrs.evolve(payload, cause=bare_exit(payload.cause))
    elif payload is not None:
        payload = _beginning(payload)
    return attrs.evolve(end, cause=cause, raised=cause, lost=_bare_error(end.lost), payload=payload)


def _bare_error(error: BaseException | None) -> Noted | None:
    return None if error is None else Noted(type(error).__name__, text_of(error)[:MOST_CHARS])


def _beginning(payload: object) -> str | None:
    return None if payload is None else text_of(payload)[:MOST_CHARS]
