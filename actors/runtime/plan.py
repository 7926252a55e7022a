"""What a supervisor decides. Pure: an event and the time in, orders out.

The trio shell (`supervisor.py`) carries the orders out one after the other and
tells what came of each. An order that fails (a start) is answered with new
orders, which take the place of all that were left.

    end of a child ->  [Report, Stop(c), Stop(b), Start(b), Start(c)]
    start of b failed -> [Report, Note(b)]        (try again when the note comes back)
    too many restarts -> [Report, Stop(...), Finish]

Nothing here knows a task: a child is its key and the number of its incarnation.
The same events give the same orders, so a recorded history can be replayed.
The semantics are those of OTP's supervisors, with one deviation a reader would
stumble on: whoever gives up ends abnormally and names the leaf that began it.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Any, Final

import attrs

from actors.errors import ConfigError
from actors.runtime.exits import Exhausted as Exhausted
from actors.runtime.exits import Exit, Reason
from actors.runtime.exits import FailedToStart as FailedToStart
from actors.runtime.restart import Restart, Verdict, Window, delay_before, next_in_row, verdict
from actors.runtime.specs import (
    AutoShutdown,
    Brutal,
    ChildSpec,
    ChildType,
    Flags,
    Strategy,
    check_specs,
    read_spec,
    with_more,
    without_args,
)

Key = Hashable


class Status(StrEnum):
    """What a child is to its supervisor."""

    live = "live"
    # Its end was decided to be a restart that has not succeeded yet.
    restarting = "restarting"
    # Its spec is kept: it ended, was stopped, or said `ignore`.
    idle = "idle"


class Why(StrEnum):
    """Why a child is started; it decides what a failure means."""

    boot = "boot"
    restart = "restart"
    by_hand = "by_hand"
    again_by_hand = "again_by_hand"


class Word(StrEnum):
    """The answers to requests."""

    ok = "ok"
    ignored = "ignored"
    already_started = "already_started"
    already_present = "already_present"
    not_found = "not_found"
    running = "running"
    restarting = "restarting"
    stopping = "stopping"
    max_children = "max_children"
    refused = "refused"
    error = "error"


@attrs.frozen
class Answer:
    """The answer to a request: a word, and what belongs to it."""

    word: Word
    ref: Any = None
    extra: Any = None
    reason: Any = None

    @property
    def ok(self) -> bool:
        """Whether what was asked for is so now."""
        return self.word in (Word.ok, Word.ignored)


class Topic(StrEnum):
    """What a report is about."""

    child_ended = "child ended"
    start_failed = "start failed"
    unexpected_stop = "unexpected end while it was stopped"
    child_given_up = "child given up"
    restarts_exhausted = "restarts exhausted"


@attrs.frozen
class Report:
    """One error record: which child, how it ended, what became of it."""

    topic: Topic
    child: Key
    end: Exit
    detail: str = ""


@attrs.frozen
class Start:
    """Start a child, and tell what came of it."""

    key: Key
    why: Why = Why.restart


@attrs.frozen
class Stop:
    """Stop these children: one has its own grace; several are asked in the same step."""

    keys: tuple[Key, ...]


@attrs.frozen
class Note:
    """Come back after so many seconds; 0 means behind whatever waits already."""

    key: Key
    token: int
    seconds: float


@attrs.frozen
class Finish:
    """End the supervisor so."""

    reason: Reason
    payload: Any = None


Order = Report | Start | Stop | Note | Finish


_UNSPENT: Final = Window()


@attrs.define(eq=False)
class Kept:
    """One child: its spec, and what is known of it."""

    key: Key
    spec: ChildSpec
    # Arguments behind those of the template; None for a child with a spec of its own.
    more: tuple[Any, ...] | None = None
    status: Status = Status.idle
    # The incarnation that lives, or lived last. Grows by one with each start.
    run: int = 0
    ref: Any = None
    since: float = 0.0
    # How far the restart reaches that is under way: as it was when that was decided, whatever the flags say now.
    strategy: Strategy = Strategy.one_for_one
    # Restarts in a row, for the back-off.
    row: int = 0
    restarts: int = 0
    window: Window = _UNSPENT
    token: int = 0


@attrs.frozen
class Listed:
    """One line of a listing."""

    id: Key
    ref: Any
    status: Status
    type: ChildType
    restarts: int


@attrs.frozen
class Count:
    """Children by kind; ``active`` ones live, the others count kept specs."""

    specs: int
    active: int
    supervisors: int
    workers: int


def _never_asked(_key: Key, _now: float) -> str | None:
    return None


class Plan:
    """The state of one supervisor. Methods are events; they change the state and give orders.

    ``may_restart(id, now)`` gives None, or the reason why there is no money for a
    restart. ``chance`` gives the jitter, from 0 to 1.
    """

    def __init__(
        self,
        path: str,
        flags: Flags,
        specs: Iterable[ChildSpec] = (),
        *,
        may_restart: Callable[[Key, float], str | None] = _never_asked,
        chance: Callable[[], float] = float,
    ) -> None:
        self.path = path
        self.flags = flags
        self.children: dict[Key, Kept] = {}
        self.window = Window()
        # Whether it is ending, or halted: nothing is started or restarted any more.
        self.stopping = False
        # How far the restart reaches whose starts were ordered last.
        self.reach = Strategy.one_for_one
        self._may_restart = may_restart
        self._chance = chance
        self._made = 0
        self._by_ref: dict[Any, Key] = {}
        # Whose notes have no use any more; the shell cancels their waits, and empties it.
        self.voided: list[Key] = []
        self.template: ChildSpec | None = None
        for spec in specs:
            if flags.dynamic:
                self.template = spec
            else:
                self._add(spec)

    # ── starting ────────────────────────────────────────────────────────────

    def boot(self) -> list[Order]:
        """Start all children in order."""
        return [Start(key, Why.boot) for key in self.children]

    def begins(self, key: Key) -> int:
        """Note that a start begins; give the number of the incarnation."""
        kept = self.children[key]
        kept.run += 1
        return kept.run

    def started(self, key: Key, why: Why, ref: Any, now: float) -> None:
        """Note that a child is ready."""
        kept = self.children[key]
        self._by_ref.pop(kept.ref, None)
        self._void(kept)
        kept.status, kept.ref, kept.since = Status.live, ref, now
        if kept.spec.restart is Restart.temporary and kept.spec.args:
            # It is never started again, so nothing keeps what it was started with.
            kept.spec, kept.more = without_args(kept.spec), None
        if why is Why.restart:
            kept.restarts += 1
        if self.flags.dynamic:
            self._by_ref[ref] = key

    def ignored(self, key: Key) -> None:
        """Note that a child does not want to run."""
        self._settle(self.children[key])

    def cut(self, key: Key, end: Exit, why: Why = Why.boot) -> list[Order]:
        """Note a start that was given up by who asked, or because everything stops; an error of its own is reported."""
        kept = self.children[key]
        if why is Why.by_hand:
            self._drop(kept)
        else:
            self._settle(kept)
        real = end.lost is not None or end.reason not in (Reason.normal, Reason.shutdown, Reason.killed)
        return [Report(Topic.start_failed, kept.spec.id, end)] if real else []

    def start_failed(self, key: Key, why: Why, end: Exit, now: float) -> list[Order]:
        """Decide what follows a failed start; the orders replace all that were left."""
        kept = self.children[key]
        if why is Why.boot:
            self._rest(kept)
            self.stopping = True
            return [*self._stops(), Finish(Reason.shutdown, FailedToStart(kept.spec.id, end))]
        if why is Why.by_hand:
            self._drop(kept)
            return []
        if why is Why.again_by_hand:
            self._rest(kept)
            return []
        report = Report(Topic.start_failed, kept.spec.id, end)
        return [report, *self._restart(kept, end, now, attempt_failed=True)]

    # ── ends ────────────────────────────────────────────────────────────────

    def ended(self, key: Key, run: int, end: Exit, now: float) -> list[Order]:
        """Decide what follows the end of a child that ended by itself."""
        kept = self.children.get(key)
        if kept is None or kept.run != run or kept.status is not Status.live:
            # A group stop consumed it, or it is no child any more.
            return []
        if self.stopping:
            return self.stopped(key, end)
        kept.status = Status.idle
        decided = verdict(kept.spec.restart, end.reason)
        orders: list[Order] = []
        if not end.clean or decided is Verdict.restart or end.lost is not None:
            orders.append(Report(Topic.child_ended, kept.spec.id, end))
        if decided is Verdict.restart:
            return orders + self._restart(kept, end, now)
        self._settle(kept)
        if kept.spec.significant and self._closes():
            self.stopping = True
            orders += [*self._stops(), Finish(Reason.shutdown)]
        return orders

    def _closes(self) -> bool:
        if self.flags.auto_shutdown is AutoShutdown.any_significant:
            return True
        awake = (each.spec.significant and each.status is not Status.idle for each in self.children.values())
        return self.flags.auto_shutdown is AutoShutdown.all_significant and not any(awake)

    # ── restarting ──────────────────────────────────────────────────────────

    def _restart(self, kept: Kept, end: Exit, now: float, *, attempt_failed: bool = False) -> list[Order]:
        refusal = self._may_restart(kept.spec.id, now)
        if refusal is not None:
            return self._give_up(kept, end, refusal, refusal)
        budget = kept.spec.budget
        if budget is not None:
            kept.window, within = kept.window.spend(now, budget.intensity, budget.period)
            if not within:
                self._settle(kept)
                detail = f"more than {budget.intensity} restarts of its own in {budget.period:g} s"
                return [Report(Topic.child_given_up, kept.spec.id, end, detail)]
        self.window, within = self.window.spend(now, self.flags.intensity, self.flags.period)
        if not within:
            return self._give_up(kept, end, f"more than {self.flags.intensity} in {self.flags.period:g} s")
        # Not until now: how long this supervisor was busy is not the child's merit.
        ran_for = 0.0 if attempt_failed else end.ended_at - kept.since
        kept.row = next_in_row(kept.row, ran_for, self.flags.backoff)
        delay = delay_before(kept.row, self.flags.backoff, self._chance())
        self._void(kept)
        kept.status = Status.restarting
        kept.strategy = self.flags.strategy
        if attempt_failed and self.reach is not Strategy.one_for_one is kept.strategy:
            # The rest of the group still lies where the restart under way has stopped it.
            kept.strategy = Strategy.rest_for_one
        stops = self._group_stops(kept)
        if attempt_failed or delay > 0:
            return [*stops, Note(kept.key, kept.token, delay)]
        return stops + self._group_starts(kept)

    def note_due(self, key: Key, token: int) -> list[Order]:
        """Try again; a note for a child that is no longer restarting is dropped."""
        kept = self.children.get(key)
        if self.stopping or kept is None or kept.status is not Status.restarting or kept.token != token:
            return []
        return self._group_stops(kept) + self._group_starts(kept)

    def _group(self, kept: Kept) -> list[Kept]:
        if kept.strategy is Strategy.one_for_one:
            return [kept]
        every = list(self.children.values())
        if kept.strategy is Strategy.one_for_all:
            return every
        return every[every.index(kept) :]

    def _group_stops(self, kept: Kept) -> list[Order]:
        others = [each for each in self._group(kept) if each is not kept]
        for each in others:
            if each.status is Status.restarting:
                # Its own retries end: the group start revives it.
                self._rest(each)
        return [Stop((each.key,)) for each in reversed(others) if each.status is Status.live]

    def _group_starts(self, kept: Kept) -> list[Order]:
        self.reach = kept.strategy
        # Temporary ones that the group stop ends are not started again; no other temporary one is without a ref.
        group = (each for each in self._group(kept) if each is kept or each.spec.restart is not Restart.temporary)
        return [Start(each.key) for each in group]

    def _give_up(self, kept: Kept, end: Exit, detail: str, refusal: str | None = None) -> list[Order]:
        self.stopping = True
        self._rest(kept)
        tried = max(kept.run - 1, 0)
        gone = Exhausted(end, (end.path, self.path), refusal, (tried,))
        if isinstance(end.payload, Exhausted) and end.reason is Reason.restarts_exhausted:
            # One root cause, taken over and never nested.
            below = end.payload
            gone = Exhausted(below.cause, (*below.path, self.path), refusal or below.refusal, (*below.tried, tried))
        report = Report(Topic.restarts_exhausted, kept.spec.id, end, detail)
        return [report, *self._stops(), Finish(Reason.restarts_exhausted, gone)]

    # ── stopping ────────────────────────────────────────────────────────────

    def stop(self, payload: Any = None) -> list[Order]:
        """Stop all children and end."""
        self.stopping = True
        return [*self._stops(), Finish(Reason.shutdown, payload)]

    def _stops(self) -> list[Order]:
        live = [each.key for each in self.children.values() if each.status is Status.live]
        for each in self.children.values():
            if each.status is Status.restarting:
                self._rest(each)
        if self.flags.dynamic:
            return [Stop(tuple(live))] if live else []
        return [Stop((key,)) for key in reversed(live)]

    def stopped(self, key: Key, end: Exit) -> list[Order]:
        """Note the end of a child that was told to stop; what was not expected is reported."""
        kept = self.children.get(key)
        if kept is None:
            return []
        spec = kept.spec
        self._settle(kept)
        expected = end.reason is Reason.shutdown
        expected = expected or (end.reason is Reason.normal and spec.restart is not Restart.permanent)
        expected = expected or (end.reason is Reason.killed and spec.grace is Brutal.brutal)
        return [] if expected and end.lost is None and end.left else [Report(Topic.unexpected_stop, spec.id, end)]

    # ── requests ────────────────────────────────────────────────────────────

    def start_child(self, spec: ChildSpec | None, args: tuple[Any, ...] = ()) -> Answer | Start:
        """Answer a request for a new child, or order its start; without a spec by the template and ``args``.

        Raises:
            ConfigError: it does not fit the flags as they are now; nothing changed.
        """
        if self.stopping:
            return Answer(Word.stopping)
        if spec is not None and spec.significant:
            # The flags may have changed since it was asked for.
            read_spec(spec, "child", self.flags)
        if self.flags.dynamic:
            most = self.flags.max_children
            if most is not None and len(self.children) >= most:
                return Answer(Word.max_children)
            return Start(self._add_alike(args).key if spec is None else self._add(spec).key, Why.by_hand)
        assert spec is not None, "only a dynamic supervisor has a template"
        kept = self.children.get(spec.id)
        if kept is None:
            return Start(self._add(spec).key, Why.by_hand)
        if kept.status is Status.live:
            return Answer(Word.already_started, kept.ref)
        return Answer(Word.already_present)

    def terminate_child(self, which: Any) -> Answer | Stop:
        """Answer a request to stop a child, or order its stop."""
        kept = self._found(which)
        if kept is None:
            return Answer(Word.not_found)
        if kept.status is Status.live:
            return Stop((kept.key,))
        kept.row = 0
        self._settle(kept)
        return Answer(Word.ok)

    def restart_child(self, id: Key) -> Answer | Start:
        """Answer a request to start a kept child again, or order its start."""
        answer = self._by_hand(id)
        return Start(id, Why.again_by_hand) if answer is None else answer

    def delete_child(self, id: Key) -> Answer:
        """Forget the spec of a child that does not run."""
        answer = self._by_hand(id)
        if answer is not None:
            return answer
        self._drop(self.children[id])
        return Answer(Word.ok)

    def _by_hand(self, id: Key) -> Answer | None:
        if self.flags.dynamic:
            return Answer(Word.refused, reason="children of a dynamic supervisor have no ids")
        if self.stopping:
            return Answer(Word.stopping)
        kept = self._found(id)
        if kept is None:
            return Answer(Word.not_found)
        words = {Status.live: Word.running, Status.restarting: Word.restarting}
        return Answer(words[kept.status]) if kept.status in words else None

    def misfits(self, flags: Flags, specs: tuple[ChildSpec, ...]) -> list[tuple[str, str]]:
        """Say what does not fit this supervisor in flags and specs that are good in themselves."""
        faults = []
        if flags.dynamic != self.flags.dynamic:
            faults.append(("flags.dynamic", f"{flags.dynamic} cannot be set while it runs; leave it as it was"))
        if flags.dynamic and len(specs) > 1:
            faults.append(("children", f"{len(specs)} are given, and a dynamic supervisor has one template; give one"))
        if flags.auto_shutdown is AutoShutdown.never:
            given = {spec.id for spec in specs}
            held = [kept.spec.id for kept in self.children.values() if kept.spec.significant]
            text = "never cannot be while the child {!r} is significant; give it a new spec, or leave this as it was"
            faults += [("flags.auto_shutdown", text.format(id)) for id in held if id not in given]
        return faults

    def reconfigure(self, flags: Flags | None, specs: tuple[ChildSpec, ...]) -> Answer:
        """Take new flags, or keep those that are, and take specs; they apply from their next use. What runs goes on.

        Raises:
            ConfigError: something does not fit as things are now, whatever fitted when it was asked; nothing changed.
        """
        flags = self.flags if flags is None else flags
        check_specs(specs, flags)
        faults = self.misfits(flags, specs)
        if faults:
            raise ConfigError(*faults)
        self.flags = flags
        for spec in specs:
            if flags.dynamic:
                self._retemplate(spec)
            elif spec.id in self.children:
                self.children[spec.id].spec = spec
            else:
                self._add(spec)
        return Answer(Word.ok)

    def _retemplate(self, spec: ChildSpec) -> None:
        self.template = spec
        for each in self.children.values():
            if each.more is not None:
                each.spec = with_more(spec, each.more)

    # ── looking ─────────────────────────────────────────────────────────────

    def which(self, id: Any) -> Listed | None:
        """Give one line of the listing."""
        kept = self._found(id)
        return None if kept is None else self._line(kept)

    def listed(self) -> list[Listed]:
        """List the children, newest first."""
        return [self._line(kept) for kept in reversed(self.children.values())]

    def count(self) -> Count:
        """Count the children by kind."""
        kept = self.children.values()
        supervisors = sum(each.spec.type is ChildType.supervisor for each in kept)
        active = sum(each.status is Status.live for each in kept)
        return Count(len(kept), active, supervisors, len(kept) - supervisors)

    def _line(self, kept: Kept) -> Listed:
        ref = kept.ref if kept.status is Status.live else None
        return Listed(kept.spec.id, ref, kept.status, kept.spec.type, kept.restarts)

    # ── the table ───────────────────────────────────────────────────────────

    def spec_of(self, id: Any) -> ChildSpec | None:
        """Give a kept spec, None for what is no child."""
        kept = self._found(id)
        return None if kept is None else kept.spec

    def comes_back(self, key: Key) -> bool:
        """Whether a child that has ended is to be started again: by itself, or with the group of another one."""
        kept = self.children.get(key)
        if kept is None or self.stopping:
            return False
        return any(kept in self._group(each) for each in self.children.values() if each.status is Status.restarting)

    def _found(self, which: Any) -> Kept | None:
        try:
            key = self._by_ref.get(which) if self.flags.dynamic else which
            return self.children.get(key)
        except TypeError:
            # What cannot be hashed is nobody's id.
            return None

    def _add(self, spec: ChildSpec) -> Kept:
        self._made += 1
        key = self._made if self.flags.dynamic else spec.id
        kept = self.children[key] = Kept(key, spec)
        return kept

    def _add_alike(self, args: tuple[Any, ...]) -> Kept:
        assert self.template is not None, "asked for only where there is one"
        kept = self._add(with_more(self.template, args))
        kept.more = args
        return kept

    def _settle(self, kept: Kept) -> None:
        """Keep the spec of a child that does not run any more, or forget it: it may never be started again."""
        if self.flags.dynamic or kept.spec.restart is Restart.temporary:
            self._drop(kept)
        else:
            self._rest(kept)

    def _void(self, kept: Kept) -> None:
        """Let a note that is under way find nothing to do."""
        if kept.status is Status.restarting:
            self.voided.append(kept.key)
        kept.token += 1

    def _rest(self, kept: Kept) -> None:
        self._void(kept)
        kept.status = Status.idle

    def _drop(self, kept: Kept) -> None:
        self._void(kept)
        kept.status = Status.idle
        self._by_ref.pop(kept.ref, None)
        self.children.pop(kept.key, None)
