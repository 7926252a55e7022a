"""Crash anywhere, go on, and compare with the run that nobody cut.

    report = explore(scenario)              # killed at every crash point, one after another
    report = explore_often(scenario, 20, seed=7)    # killed again and again, at random points
    report = explore_faults(scenario)       # full, locked and failing disks at every statement
    assert report.ok, report

A run is killed by SIGKILL at its n-th crash point (see `crash_stage.py`), and a
new process goes on from the file, as an operator's program would: it answers
what waits for an answer. When the run has ended, its account must equal that of
the run that nobody cut (see `crash_account.py`). This is done for n = 1, 2, 3 ...
until a run comes to its end before its n-th point.

How tasks follow one another is partly up to threads, so two runs may not meet
the same points in the same order. A finding names the point; ``at`` runs it again.

    python -m actors.testing.crash_points [SCENARIO ...] [--every K] [--often N] [--faults]

A scenario is one of `crash_scenarios.py` by name, or ``module:name``. Forks, so
it needs a process without threads, and is for POSIX systems only.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from actors.errors import ActorsError, ConfigError
from actors.testing.crash_account import Account, differences
from actors.testing.crash_process import Told, Warm, timed
from actors.testing.crash_scenarios import SCENARIOS
from actors.testing.crash_stage import Scenario
from actors.testing.faulty_store import FaultKind, Faults

RUN_SECONDS: Final = 20.0
# So often one run is killed at most, when it is killed again and again.
MOST_CRASHES: Final = 8
KINDS: Final = (FaultKind.full, FaultKind.busy, FaultKind.io)


@attrs.frozen
class Finding:
    """One run that did not come to what it should. ``crashes`` names where it was cut."""

    scenario: str
    crashes: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        """Tell it in a few lines."""
        where = "; then at ".join(self.crashes) or "nowhere"
        return "\n".join((f"{self.scenario}, cut at {where}:", *(f"  {each}" for each in self.problems)))


@attrs.frozen
class Report:
    """What an exploration came to. ``runs`` that were cut, in ``processes``, in ``seconds``."""

    scenario: str
    runs: int
    crashes: int
    processes: int
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether something was cut, and every run came to what it should."""
        return self.runs > 0 and self.crashes > 0 and not self.findings

    def __str__(self) -> str:
        """Tell the figures in a line, and then the findings."""
        each = self.seconds / max(self.runs, 1) * 1000
        figures = (
            f"{self.scenario}: {self.runs} runs cut {self.crashes} times, {self.processes} processes, "
            f"{self.seconds:.1f} s ({each:.0f} ms a run), {len(self.findings)} findings"
        )
        return "\n".join((figures, *map(str, self.findings)))


class _Exploration:
    """One scenario in one warm parent: the run that nobody cuts, and then those that are."""

    def __init__(self, warm: Warm, scenario: Scenario, folder: Path) -> None:
        self.warm = warm
        self.scenario = scenario
        self.folder = folder
        self.runs = 0
        self.crashes = 0
        self.findings: list[Finding] = []
        told = self._whole()
        assert told.account is not None
        self.account: Account = told.account
        self.points = told.reached

    def _whole(self) -> Told:
        # Twice: the first shows what has to be imported, so that all later processes find it there.
        for name in ("first", "whole"):
            told = self.warm.process(self.scenario, self.warm.new_folder(f"{self.scenario.name}-{name}"))
            if told.account is None:
                raise ActorsError(f"{self.scenario.name} does not come to its end when nobody cuts it: {told.problem}")
            wrong = differences(told.account, told.account)
            if wrong:
                raise ActorsError(f"{self.scenario.name} is wrong when nobody cuts it: {'; '.join(wrong)}")
        return told

    def cut(self, crashes: Iterator[int]) -> bool:
        """Do one run: cut at these points, one for each process, and then to its end. Tell whether it was cut."""
        self.runs += 1
        folder = self.warm.new_folder(f"{self.scenario.name}-{self.runs}")
        trails: list[str] = []
        for at in itertools.chain(crashes, [None]):
            told = self.warm.process(self.scenario, folder, at)
            if not told.killed:
                break
            self.crashes += 1
            trails.append(told.trail)
        self._judge(told, folder, trails)
        return bool(trails)

    def fail(self, kind: FaultKind, at: int) -> bool:
        """Do one run whose store fails from its n-th statement on, until it is mended. Tell whether it failed."""
        self.runs += 1
        folder = self.warm.new_folder(f"{self.scenario.name}-{kind}-{at}")
        told = self.warm.process(self.scenario, folder, faults=Faults(kind, at))
        self.crashes += told.hits > 0
        self._judge(told, folder, [f"statement {at}, {kind}"])
        return told.hits > 0 or told.account is None

    def _judge(self, told: Told, folder: Path, trails: Sequence[str]) -> None:
        problems = [told.problem] if told.account is None else differences(self.account, told.account)
        if problems:
            self.findings.append(Finding(self.scenario.name, tuple(trails), (*problems, f"its files: {folder}")))
        else:
            shutil.rmtree(folder)

    def report(self, seconds: float) -> Report:
        """Give the whole."""
        found = tuple(self.findings)
        return Report(self.scenario.name, self.runs, self.crashes, self.warm.processes, seconds, found)


@contextmanager
def _exploring(scenario: Scenario, seconds: float) -> Iterator[_Exploration]:
    folder = Path(tempfile.mkdtemp(prefix="crash-points-"))
    kept = False
    try:
        with Warm(folder, seconds) as warm:
            exploration = _Exploration(warm, scenario, folder)
            yield exploration
            kept = bool(exploration.findings)
    finally:
        # What was found can be looked at.
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def explore(scenario: Scenario, *, every: int = 1, first: int = 1, seconds: float = RUN_SECONDS) -> Report:
    """Cut a scenario once at each crash point from ``first`` on, or at each ``every``-th, and compare.

    One process may take ``seconds``.

    Raises:
        ActorsError: the scenario is wrong when nobody cuts it, or this process has threads.
    """
    with timed() as took, _exploring(scenario, seconds) as exploration:
        for at in itertools.count(first, every):
            if not exploration.cut(iter([at])):
                break
    return exploration.report(took[0])


def explore_often(scenario: Scenario, runs: int, *, seed: int = 0, seconds: float = RUN_SECONDS) -> Report:
    """Cut each of ``runs`` runs again and again, at random points, and compare.

    Raises:
        ActorsError: as `explore`.
    """
    with timed() as took, _exploring(scenario, seconds) as exploration:
        for number in range(runs):
            # By its own seed, so that one run can be done again without those before it.
            chance = random.Random(f"{seed}.{number}")
            most = max(exploration.points // 2, 2)
            exploration.cut(chance.randint(1, most) for _ in range(chance.randint(2, MOST_CRASHES)))
    return exploration.report(took[0])


def explore_faults(
    scenario: Scenario, *, every: int = 1, kinds: Sequence[FaultKind] = KINDS, seconds: float = RUN_SECONDS
) -> Report:
    """Let the store fail from each statement on, or from each ``every``-th, take the cause away, and compare.

    Raises:
        ActorsError: as `explore`.
    """
    with timed() as took, _exploring(scenario, seconds) as exploration:
        for kind in kinds:
            for at in itertools.count(1, every):
                if not exploration.fail(kind, at):
                    break
    return exploration.report(took[0])


def run_once(scenario: Scenario, crashes: Sequence[int], *, seconds: float = RUN_SECONDS) -> Report:
    """Cut one run at these points, one for each process: how a finding is looked at again.

    Raises:
        ActorsError: as `explore`.
    """
    with timed() as took, _exploring(scenario, seconds) as exploration:
        exploration.cut(iter(crashes))
    return exploration.report(took[0])


# ── as a command ────────────────────────────────────────────────────────────


def find_scenario(name: str) -> Scenario:
    """Give a built-in scenario by its name, or one of a user's by ``module:name``.

    Raises:
        ConfigError: there is none.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        if name not in SCENARIOS:
            raise ConfigError(("SCENARIO", f"{name!r} is none of {', '.join(SCENARIOS)}; or give module:name"))
        return SCENARIOS[name]
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(("SCENARIO", f"{name} cannot be imported: {error}")) from error
    if not isinstance(found, Scenario):
        raise ConfigError(("SCENARIO", f"{name} is no Scenario, but a {type(found).__name__}"))
    return found


def _explored(scenario: Scenario, options: argparse.Namespace) -> Iterator[Report]:
    seconds = options.seconds
    if options.at:
        yield run_once(scenario, [int(at) for at in options.at.split(",")], seconds=seconds)
        return
    if options.faults:
        yield explore_faults(scenario, every=options.every, seconds=seconds)
        return
    if not options.only_often:
        yield explore(scenario, every=options.every, first=options.first, seconds=seconds)
    if options.often:
        yield explore_often(scenario, options.often, seed=options.seed, seconds=seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Explore, print what came of it, and give 1 when something was found; 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m actors.testing.crash_points",
        description="Kill runs at their crash points, go on with them, and compare with the run that nobody cut.",
    )
    parser.add_argument("scenario", nargs="*", help=f"one of {', '.join(SCENARIOS)}, or module:name; all without any")
    parser.add_argument("--every", type=int, default=1, help="only every K-th point (or statement)", metavar="K")
    parser.add_argument("--first", type=int, default=1, help="begin with this point", metavar="N")
    parser.add_argument("--often", type=int, default=0, help="then N runs that are killed again and again", metavar="N")
    parser.add_argument("--only-often", action="store_true", help="only those of --often")
    parser.add_argument("--seed", type=int, default=0, help="the seed of --often")
    parser.add_argument("--faults", action="store_true", help="let the store fail instead of killing the process")
    parser.add_argument("--at", help="only this run: points, one for each process (3,1,7)", metavar="N,N")
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="what one process may take")
    options = parser.parse_args(arguments)
    if options.only_often and options.often < 1:
        parser.error("--only-often needs --often N")
    if options.every < 1 or options.first < 1:
        parser.error("--every and --first are whole numbers from 1")
    try:
        scenarios = [find_scenario(name) for name in options.scenario or SCENARIOS]
        good = True
        for scenario in scenarios:
            for report in _explored(scenario, options):
                print(report, flush=True)
                good = good and report.ok
    except ActorsError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
