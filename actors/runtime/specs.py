"""What a supervisor is told: its flags, and a spec for each child.

Both may be written as records or as plain mappings, from a file say, with the
words of the enums for their members. One table of checks per record serves
both, so a record that exists is a good one, and nothing is checked again
later. All faults are found before anything is raised: each names child, field
and value, and says what to do.

What only a pair of records can show (a significant child under a supervisor
that never shuts down by itself) is looked at where both are known: `read_spec`.
"""

import difflib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import copy
from enum import Enum, StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from actors.errors import ConfigError, unknown_key
from actors.runtime.restart import Restart

R = TypeVar("R", bound=attrs.AttrsInstance)


class Strategy(StrEnum):
    """Which siblings share a restart."""

    one_for_one = "one_for_one"
    one_for_all = "one_for_all"
    # Those that stand after it.
    rest_for_one = "rest_for_one"


class ChildType(StrEnum):
    """What a child is; a supervisor gets all the time it wants to stop its own children."""

    worker = "worker"
    supervisor = "supervisor"


class AutoShutdown(StrEnum):
    """Whether a supervisor ends when its significant children have ended by themselves."""

    never = "never"
    any_significant = "any_significant"
    all_significant = "all_significant"


class OnRestart(StrEnum):
    """What becomes of the unread messages of a child that is restarted."""

    # They become dead letters, and pending asks get an error.
    discard = "discard"
    # They move to the next incarnation, in order.
    keep = "keep"


class Brutal(Enum):
    """The grace of a child that is killed without being asked first."""

    brutal = "brutal"


BRUTAL: Final = Brutal.brutal
# Seconds between the stop request and the cancel; `math.inf` for ever.
Grace: TypeAlias = float | Brutal

WORKER_GRACE: Final = 5.0
OVERFLOWS: Final = ("wait", "fail", "drop_newest", "drop_oldest")


# ── records ─────────────────────────────────────────────────────────────────


@attrs.frozen
class Budget:
    """How many restarts are allowed within ``period`` seconds."""

    intensity: int
    period: float

    def __attrs_post_init__(self) -> None:
        _check(self, _BUDGET, "budget")


@attrs.frozen
class Backoff:
    """How long restarts in a row of one child wait, in seconds.

    The first waits ``minimum``, each next one twice as long, none longer than
    ``maximum``. A random share of ``jitter`` (0.5 is half the wait) comes on top.
    A child that has run for ``reset_after`` begins a new row.
    """

    minimum: float
    maximum: float
    jitter: float = 0.0
    reset_after: float = 60.0

    def __attrs_post_init__(self) -> None:
        _check(self, _BACKOFF, "backoff")


def _grace_of(spec: "ChildSpec") -> Grace:
    return math.inf if spec.type == ChildType.supervisor else WORKER_GRACE


@attrs.frozen
class ChildSpec:
    """One child: what starts it, and what its supervisor does when it ends.

    ``start`` may be a tuple of a callable and its arguments; they then stand in
    ``args``. ``grace`` is by default 5 seconds for a worker, and for ever for a
    supervisor. ``budget`` is the child's own, besides the supervisor's. ``name`` is
    registered for each incarnation. ``start_timeout`` bounds each start, in
    seconds. ``mailbox`` is the bound of the user lane, ``overflow`` its policy.

    >>> ChildSpec("db", connect, ("db.example", 5432), restart=Restart.transient, grace=BRUTAL)
    """

    id: Hashable
    start: Callable[..., Any]
    args: tuple[Any, ...] = ()
    restart: Restart = Restart.permanent
    # Before the grace, whose default looks at it.
    type: ChildType = attrs.field(default=ChildType.worker, kw_only=True)
    grace: Grace = attrs.field(default=attrs.Factory(_grace_of, takes_self=True), kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    budget: Budget | None = attrs.field(default=None, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)
    start_timeout: float | None = attrs.field(default=None, kw_only=True)
    messages: OnRestart = attrs.field(default=OnRestart.discard, kw_only=True)
    mailbox: int = attrs.field(default=1024, kw_only=True)
    overflow: str = attrs.field(default="wait", kw_only=True)

    def __attrs_post_init__(self) -> None:
        _check(self, _SPEC, f"child[{shown(self.id)}]")


@attrs.frozen
class Flags:
    """What a supervisor does when children end: at most ``intensity`` restarts within ``period`` seconds.

    A ``dynamic`` supervisor starts children of one kind at run time, by the same
    spec as often as asked; ``max_children`` bounds those that are live or restarting.
    """

    strategy: Strategy = Strategy.one_for_one
    intensity: int = 1
    period: float = 5.0
    auto_shutdown: AutoShutdown = AutoShutdown.never
    max_children: int | None = None
    backoff: Backoff | None = None
    dynamic: bool = False

    def __attrs_post_init__(self) -> None:
        _check(self, _FLAGS, "flags")


# ── reading ─────────────────────────────────────────────────────────────────


def read_flags(plain: Flags | Mapping[str, Any] | None, at: str = "flags") -> Flags:
    """Read the flags of a supervisor; None are the defaults. ``at`` is their path in messages.

    Raises:
        ConfigError: every fault with the path of its key.
    """
    flags, faults = _read(_FLAGS, {} if plain is None else plain, at)
    if flags is None:
        raise ConfigError(*faults)
    return flags


def read_spec(plain: ChildSpec | Mapping[str, Any], at: str, flags: Flags) -> ChildSpec:
    """Read the spec of one child for a supervisor with these flags.

    Raises:
        ConfigError: every fault with the path of its key.
    """
    spec, faults = _read_under(plain, at, flags)
    if spec is None or faults:
        raise ConfigError(*faults)
    return spec


def check_specs(
    specs: object, flags: Flags | Mapping[str, Any] | None = None, at: str = "children"
) -> tuple[ChildSpec, ...]:
    """Read a list of specs, in its order, and start nothing.

    Children of a dynamic supervisor have no ids of their own, so theirs may repeat.

    Raises:
        ConfigError: every fault of the flags and of all specs, or ``specs`` is no list.
    """
    read, faults = _read(_FLAGS, {} if flags is None else flags, "flags")
    if not isinstance(specs, list | tuple):
        raise ConfigError(*faults, (at, f"{shown(specs)} is no list; give one of specs, in the order of starting"))
    known: list[ChildSpec] = []
    first: dict[Hashable, int] = {}
    for index, plain in enumerate(specs):
        place = f"{at}[{index}]"
        where = _place(plain, place, at)
        if where is not None and not (read is not None and read.dynamic):
            before = first.setdefault(_given_id(plain), index)
            if before != index:
                text = f"{shown(_given_id(plain))} is the id of {at}[{before}] already; give each child its own"
                faults.append((f"{place}.id", text))
                where = None
        spec, wrong = _read_under(plain, where or place, read)
        faults += wrong
        if spec is not None:
            known.append(spec)
    if faults:
        raise ConfigError(*faults)
    return tuple(known)


def with_more(spec: ChildSpec, args: tuple[Any, ...]) -> ChildSpec:
    """Give a spec with more arguments behind its own."""
    return _with_args(spec, (*spec.args, *args)) if args else spec


def without_args(spec: ChildSpec) -> ChildSpec:
    """Give a spec that keeps none of its arguments."""
    return _with_args(spec, ())


def _with_args(spec: ChildSpec, args: tuple[Any, ...]) -> ChildSpec:
    # Everything in it was checked when it was made, and a start should not pay for that again.
    changed = copy(spec)
    object.__setattr__(changed, "args", args)
    return changed


def warnings_of(spec: ChildSpec, flags: Flags) -> tuple[str, ...]:
    """Say why a child might be restarted for ever: its restarts can be too slow to use up the budget.

    Nothing for a temporary child: it is never restarted.
    """
    if spec.restart is Restart.temporary:
        return ()
    budgets: list[tuple[str, Budget | Flags]] = [("the supervisor's budget", flags)]
    if spec.budget is not None:
        budgets.append(("its own budget", spec.budget))
    slow: list[tuple[str, str, float]] = []
    if not isinstance(spec.grace, Brutal):
        slow.append(("grace", "stopping", spec.grace))
    if flags.backoff is not None:
        slow.append(("backoff.minimum", "waiting", flags.backoff.minimum))
    return tuple(
        f"child {shown(spec.id)}: {doing} may take so long that {whose} never runs out and the child is restarted for "
        f"ever: {key} {seconds:g} s is not below {budget.period:g} s / {budget.intensity}; "
        f"lower {key} or the intensity, or make the period longer"
        for whose, budget in budgets
        for key, doing, seconds in slow
        if budget.intensity > 0 and seconds >= _spacing(budget)
    )


def _spacing(budget: Budget | Flags) -> float:
    try:
        return budget.period / budget.intensity
    except OverflowError:
        return 0.0


def _read_under(plain: object, at: str, flags: Flags | None) -> tuple[ChildSpec | None, list[tuple[str, str]]]:
    """Read one spec; with faulty flags (None) only what the spec itself shows is looked at."""
    spec, faults = _read(_SPEC, plain, at)
    # A faulty spec may be significant too, and then all of it must be said at once.
    significant = spec.significant if spec is not None else isinstance(plain, Mapping) and plain.get("significant")
    if significant is True and flags is not None and flags.auto_shutdown is AutoShutdown.never:
        text = (
            "True means nothing while the supervisor's auto_shutdown is never; set that to any_significant or "
            "all_significant, or leave this out"
        )
        faults.append((f"{at}.significant", text))
    return spec, faults


def _given_id(plain: object) -> Any:
    return plain.get("id") if isinstance(plain, Mapping) else getattr(plain, "id", None)


def _place(plain: object, place: str, at: str) -> str | None:
    """Name a child by its id; None when it has none that can be used."""
    if not isinstance(plain, ChildSpec) and not (isinstance(plain, Mapping) and "id" in plain):
        return None
    try:
        _usable_id(_given_id(plain))
    except ConfigError:
        return None
    return f"{at}[{shown(_given_id(plain))}]"


# ── the checks ──────────────────────────────────────────────────────────────

# Takes what was given, gives what is kept, or raises ConfigError with paths below the field.
Check: TypeAlias = Callable[[Any], Any]


@attrs.frozen
class _Table(Generic[R]):
    """How one record is checked: each field alone, then ``together`` on those that are good.

    ``together`` gets all fields by name, may put them right, and yields (field,
    what is wrong). A field that is faulty is not there.
    """

    record: type[R]
    # What to write instead, when something else stands there.
    called: str
    checks: Mapping[str, Check]
    together: Callable[[dict[str, Any]], Iterable[tuple[str, str]]]


def _check(record: Any, table: _Table[Any], at: str) -> None:
    """Check a record that was just made, and put plain words right."""
    kept, faults = _judged(table, {key: getattr(record, key) for key in table.checks})
    if faults:
        raise ConfigError(*((_below(at, path), text) for path, text in faults))
    for key, value in kept.items():
        object.__setattr__(record, key, value)


def _read(table: _Table[R], plain: object, at: str) -> tuple[R | None, list[tuple[str, str]]]:
    """Give the record, or None and every fault."""
    if isinstance(plain, table.record):
        return plain, []
    if not isinstance(plain, Mapping):
        return None, [(at, text) for _, text in _fault(plain, table.called).problems]
    faults = [(_odd(at, key), unknown_key(key, table.checks)) for key in plain if key not in table.checks]
    known = {key: plain[key] for key in table.checks if key in plain}
    absent = {field.name: field.default for field in attrs.fields(table.record) if field.name not in known}
    faults += [(_below(at, key), "missing; it has no default") for key in absent if absent[key] is attrs.NOTHING]
    defaults = {key: value for key, value in absent.items() if _is_plain(value)}
    _, wrong = _judged(table, defaults | known)
    faults += [(_below(at, path), text) for path, text in wrong]
    return (None, faults) if faults else (table.record(**known), [])


def _is_plain(default: object) -> bool:
    return default is not attrs.NOTHING and not isinstance(default, attrs.Factory)  # type: ignore[arg-type]


def _judged(table: _Table[Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Give the good fields as they are kept, and (path, text) for each fault."""
    kept: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    for key, value in given.items():
        try:
            kept[key] = table.checks[key](value)
        except ConfigError as wrong:
            faults += [(_below(key, path), text) for path, text in wrong.problems]
    return kept, [*faults, *table.together(kept)]


def _below(at: str, path: str) -> str:
    return f"{at}.{path}" if at and path else at or path


def _odd(at: str, key: object) -> str:
    """Give the path of a key that may be anything."""
    return _below(at, key) if isinstance(key, str) and key else f"{at}[{shown(key)}]"


def shown(value: object) -> str:
    """Give the text of a value for people: short, on one line, whatever its own ``__repr__`` does."""
    try:
        text = " ".join(repr(value).split())
    except Exception as fault:
        return f"<a {type(value).__name__} whose text cannot be had: {type(fault).__name__}>"
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def _fault(value: object, remedy: str) -> ConfigError:
    return ConfigError(("", f"{shown(value)} cannot be used; give {remedy}"))


def _usable_id(value: Any) -> Any:
    try:
        hash(value)
    except Exception:
        raise _fault(value, "what can be hashed, for example a text, a number or a tuple of them") from None
    return value


def _usable_start(value: Any) -> Any:
    if callable(value) or (isinstance(value, tuple) and value and callable(value[0])):
        return value
    raise _fault(value, "the function itself, not what a call of it returns, or a tuple of it and its arguments")


def _usable_args(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    raise _fault(value, "a tuple of arguments, also when there is only one")


def _usable_name(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    raise _fault(value, "a text that is not empty, or None for no name")


def _usable_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _fault(value, "True or False")


def _usable_grace(value: Any) -> Grace:
    if isinstance(value, Brutal):
        return value
    if isinstance(value, str) and value in _GRACE_WORDS:
        return _GRACE_WORDS[value]
    kept: float = _GRACE_SECONDS(value)
    return kept


def _seconds(fits: Callable[[float], bool], remedy: str) -> Check:
    def check(value: Any) -> float:
        # No comparison holds for what is not a number, so that is refused as well.
        if isinstance(value, bool) or not isinstance(value, int | float) or not fits(value):
            raise _fault(value, remedy)
        try:
            return float(value)
        except OverflowError:
            raise _fault(value, remedy) from None

    return check


def _whole(least: int, remedy: str) -> Check:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _fault(value, remedy)
        return value

    return check


def _word(words: Iterable[str], kind: Callable[[str], Any] = str) -> Check:
    known = [str(word) for word in words]

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in known:
            return kind(value)
        near = difflib.get_close_matches(value, known, 1) if isinstance(value, str) else []
        meant = f"; did you mean {near[0]}?" if near else ""
        raise _fault(value, f"one of {', '.join(known)}{meant}")

    return check


def _none_or(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _nested(table: _Table[Any]) -> Check:
    def check(value: Any) -> Any:
        record, faults = _read(table, value, "")
        if record is None:
            raise ConfigError(*faults)
        return record

    return check


# ── what only several fields together show ──────────────────────────────────


def _together_in_backoff(kept: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if "minimum" in kept and "maximum" in kept and kept["maximum"] < kept["minimum"]:
        yield "maximum", f"{kept['maximum']:g} is below the minimum of {kept['minimum']:g}; give at least that"


def _together_in_spec(kept: dict[str, Any]) -> Iterable[tuple[str, str]]:
    start = kept.get("start")
    if start is not None and not callable(start):
        if kept.get("args"):
            yield "args", f"{shown(kept['args'])} comes on top of arguments in start; write all of them in one place"
        kept["start"], kept["args"] = start[0], start[1:]
    if kept.get("significant") and kept.get("restart") is Restart.permanent:
        text = "True cannot be for a permanent child, which is restarted whenever it ends"
        yield "significant", f"{text}; make it transient or temporary, or leave this out"


def _together_in_flags(kept: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if kept.get("dynamic") is False and kept.get("max_children") is not None:
        yield "max_children", f"{kept['max_children']} is for a dynamic supervisor only; set dynamic, or leave this out"
    if not kept.get("dynamic"):
        return
    if kept.get("strategy") not in (None, Strategy.one_for_one):
        yield "strategy", f"{kept['strategy']} cannot be for a dynamic supervisor; it has one_for_one only"
    if kept.get("auto_shutdown") not in (None, AutoShutdown.never):
        yield "auto_shutdown", f"{kept['auto_shutdown']} cannot be for a dynamic supervisor; it has never only"


_INTENSITY = _whole(0, "a whole number of restarts, 0 or more")
_GRACE_WORDS: Final[Mapping[str, Grace]] = {"infinity": math.inf, "brutal": BRUTAL}
_GRACE_SECONDS = _seconds(lambda x: x >= 0, "seconds of 0 or more, infinity, or brutal")
_PERIOD = _seconds(lambda x: 0 < x < math.inf, "seconds over 0 and below infinity")

_BUDGET = _Table(
    Budget,
    "a Budget, or a mapping with intensity and period",
    {"intensity": _INTENSITY, "period": _PERIOD},
    lambda kept: (),
)
_BACKOFF = _Table(
    Backoff,
    "a Backoff, or a mapping with minimum and maximum",
    {
        "minimum": _PERIOD,
        "maximum": _PERIOD,
        "jitter": _seconds(lambda x: 0 <= x < math.inf, "a share of 0 or more, for example 0.5 for half the wait"),
        "reset_after": _seconds(lambda x: x > 0, "seconds over 0"),
    },
    _together_in_backoff,
)
_SPEC = _Table(
    ChildSpec,
    "a ChildSpec, or a mapping with id and start",
    {
        "id": _usable_id,
        "start": _usable_start,
        "args": _usable_args,
        "restart": _word(Restart, Restart),
        "type": _word(ChildType, ChildType),
        "grace": _usable_grace,
        "significant": _usable_bool,
        "budget": _none_or(_nested(_BUDGET)),
        "name": _usable_name,
        "start_timeout": _none_or(_seconds(lambda x: 0 < x < math.inf, "seconds over 0, or None for no limit")),
        "messages": _word(OnRestart, OnRestart),
        "mailbox": _whole(1, "a whole number of messages, 1 or more"),
        "overflow": _word(OVERFLOWS),
    },
    _together_in_spec,
)
_FLAGS = _Table(
    Flags,
    "Flags, or a mapping of them",
    {
        "strategy": _word(Strategy, Strategy),
        "intensity": _INTENSITY,
        "period": _PERIOD,
        "auto_shutdown": _word(AutoShutdown, AutoShutdown),
        "max_children": _none_or(_whole(0, "a whole number of children, 0 or more, or None for any number")),
        "backoff": _none_or(_nested(_BACKOFF)),
        "dynamic": _usable_bool,
    },
    _together_in_flags,
)
