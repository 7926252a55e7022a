"""A supervisor, described: what its children are, and what it does when they end."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import attrs

from actors.errors import ConfigError
from actors.runtime.journal import Journal, plan_of
from actors.runtime.plan import Plan, Report
from actors.runtime.specs import ChildSpec, Flags, check_specs, read_flags, warnings_of

log = logging.getLogger("actors.supervisor")


@attrs.frozen(eq=False)
class Supervise:
    """A supervisor as a child: what the ``start`` of its spec returns.

    ``specs`` and ``flags`` were checked when this was made, so a fault is found before
    anything starts. A ``start`` is called at each start of the supervisor, so it can
    decide anew each time, and may give `IGNORE` as well.
    """

    specs: tuple[ChildSpec, ...]
    flags: Flags
    extra: tuple[Any, ...] = ()
    may_restart: Callable[[Hashable, float], str | None] | None = None
    chance: Callable[[], float] = random.random
    on_report: Callable[[str, Report], None] | None = None
    journal: Journal | None = None

    def below(self, above: Supervise) -> Supervise:
        """Give the same, heard by whoever hears the supervisor above, unless it has listeners of its own."""
        hears = above.on_report if self.on_report is None else self.on_report
        keeps = above.journal if self.journal is None else self.journal
        return attrs.evolve(self, on_report=hears, journal=keeps)


def planned(path: str, supervise: Supervise, clock: Callable[[], float]) -> Plan:
    """Make the plan of one incarnation."""
    return plan_of(
        path,
        supervise.flags,
        supervise.specs,
        chance=supervise.chance,
        may_restart=supervise.may_restart,
        journal=supervise.journal,
        clock=clock,
    )


def supervise(
    specs: Iterable[ChildSpec | Mapping[str, Any]] = (),
    flags: Flags | Mapping[str, Any] | None = None,
    *,
    extra: tuple[Any, ...] = (),
    may_restart: Callable[[Hashable, float], str | None] | None = None,
    chance: Callable[[], float] = random.random,
    on_report: Callable[[str, Report], None] | None = None,
    journal: Journal | None = None,
) -> Supervise:
    """Describe a supervisor: children in the order of starting, and flags.

    A dynamic supervisor starts none of them by itself: it takes one spec at most, the
    template of the children that ``start_child(args=...)`` starts. ``extra`` are
    arguments that stand before each child's own. ``may_restart(id, now)`` gives a reason
    against a restart, or None. ``on_report`` hears of each report with the path of the
    supervisor; without it they are logged. ``journal`` is called with a record of each
    thing that the supervisor, or one below it, is told and decides on; see `replay`.

    Raises:
        ConfigError: every fault of every spec and flag, with its place.
    """
    # The raw flags go in, so that their faults are told together with those of the specs.
    known = check_specs(specs, flags)
    read = read_flags(flags)
    if read.dynamic and len(known) > 1:
        raise ConfigError(("children", f"{len(known)} are given, and a dynamic supervisor has one template; give one"))
    warn_of(known, read)
    return Supervise(known, read, extra, may_restart, chance, on_report, journal)


def warn_of(specs: Iterable[ChildSpec], flags: Flags) -> None:
    """Log why children might be restarted for ever, for whoever looks: the defaults are such a case."""
    if log.isEnabledFor(logging.DEBUG):
        for spec in specs:
            for warning in warnings_of(spec, flags):
                log.debug("%s", warning)
