"""Whether a run can be held to its boundary and its check here, found out before anything is started."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

from actors.agents.contract import TaskContract
from actors.agents.judging import Pins
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act, JudgedFiles
from actors.agents.verification import CommandPasses, EachCompiles, Verification
from actors.errors import ConfigError, ToolFailed
from actors.tools.compiling import CHECKERS, PYTHON, checker_of, ending_of
from actors.tools.named_files import Places, files_outside, named_files, unresolved
from actors.tools.paths import Workspace
from actors.tools.sandbox import sandbox_problem

log = logging.getLogger("actors.task")

ERRORED_EACH: Final = "until that changes, the check is errored after each step"


def check_boundary(contract: TaskContract, policy: Policy) -> None:
    """Refuse a run whose commands could not be kept where it says.

    Raises:
        ConfigError: the boundary cannot be held; names the key and the remedy.
    """
    root = os.path.realpath(contract.root or contract.file.parent)
    problem = sandbox_problem(contract.exec_sandbox, policy, root)
    if problem is not None:
        raise ConfigError(("contract.exec_sandbox", problem))


async def check_criterion(contract: TaskContract, policy: Policy, files: JudgedFiles) -> Places:
    """Refuse a check that could never be made, or that protects nothing; give what is to be told of one that can.

    Cancellation: nothing is left open.

    Raises:
        ConfigError: every problem, with the path of its key.
    """
    verify, root = contract.verify, str(contract.root or contract.file.parent)
    never = [*_outside(contract), *_uncompiled(verify)]
    if never:
        raise ConfigError(*never)
    # More than can be looked at before each check is told now, and not when the work is done.
    pins = await files.pin(verify, root)
    if pins.useless:
        raise ConfigError(*(("contract.verify.protect", each) for each in pins.useless.values()))
    notes = [("contract.verify.protect", f"{each} is not there, and must not be made") for each in pins.to_come]
    if isinstance(verify, CommandPasses) and (said := _missing(verify.argv[0], root, pins)) is not None:
        notes.append(("contract.verify.argv", said))
    notes += _unread(contract, policy)
    if isinstance(verify, EachCompiles) and (said := _without_checker(verify.files, root)) is not None:
        notes.append(("contract.verify.files", f"{said}: {ERRORED_EACH}"))
    return tuple(notes)


async def told_before(contract: TaskContract, policy: Policy, files: JudgedFiles) -> None:
    """Check a criterion as `check_criterion` does, and log what is to be told of it.

    Cancellation: nothing is left open.

    Raises:
        ConfigError: as `check_criterion`.
    """
    for place, text in await check_criterion(contract, policy, files):
        log.warning("%s: %s", place, text)


async def problems_here(contract: TaskContract, policy: Policy, files: JudgedFiles) -> tuple[Places, Places]:
    """Give what a run would be refused for on this machine, and what would be told before it starts.

    Cancellation: nothing is left open.
    """
    problems: list[tuple[str, str]] = []
    notes: Places = ()
    try:
        check_boundary(contract, policy)
    except ConfigError as error:
        problems += error.problems
    try:
        notes = await check_criterion(contract, policy, files)
    except ConfigError as error:
        problems += error.problems
    return tuple(problems), notes


def _missing(program: str, root: str, pins: Pins) -> str | None:
    """Say that the program of a check is not there or is none, None when it can be started."""
    if "/" in program:
        place = os.path.join(root, program)
        if not os.path.isfile(place):
            return f"there is no {program}: {ERRORED_EACH}"
        return None if os.access(place, os.X_OK) else f"{program} may not be executed: {ERRORED_EACH}"
    pin = pins.programs.get(f"program {program}")
    if pin is None or not pin.is_missing:
        return None
    return f"there is no program {program} in PATH: {ERRORED_EACH}"


def _uncompiled(verify: Verification) -> list[tuple[str, str]]:
    """Find files that nothing here can compile, by their endings."""
    if not isinstance(verify, EachCompiles):
        return []
    known = (*PYTHON, *CHECKERS)
    text = f"nothing here compiles it; what can be is {' '.join(known)}"
    return [
        (f"contract.verify.files[{place}]", f"{file}: {text}")
        for place, file in enumerate(verify.files)
        if ending_of(file) not in known
    ]


def _without_checker(files: Sequence[str], root: str) -> str | None:
    """Say of the first kind of files whose checker may not judge them why that is; None when there is none."""
    for ending in sorted(set(map(ending_of, files))):
        try:
            checker_of(ending, root)
        except ToolFailed as error:
            return str(error)
    return None


def _named(contract: TaskContract) -> Places:
    """Give the files of the workspace that a check names, with their keys."""
    return () if contract.root is None else _keyed(named_files(contract.verify))


def _outside(contract: TaskContract) -> Places:
    return () if contract.root is None else _keyed(files_outside(contract.verify, str(contract.root)))


def _keyed(places: Places) -> Places:
    return tuple((f"contract.{key}", text) for key, text in places)


def _unread(contract: TaskContract, policy: Policy) -> list[tuple[str, str]]:
    """Find files that a check names and that it may not read."""
    root = str(contract.root)
    found = [(key, file) for key, file in _named(contract) if not unresolved(root, file)]
    denied = [each for each in found if _effect(policy, root, each[1]) is not Effect.allow]
    return [(key, f"the policy does not let {file} be read: {ERRORED_EACH}") for key, file in denied]


def _effect(policy: Policy, root: str, file: str) -> Effect:
    return policy.explain(Act.read, Workspace(root).resolve(file)).effect
