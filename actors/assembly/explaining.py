"""What the policy of a task says about one act: read and judged as in a run, and nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import attrs

from actors.agents.entry_text import clean
from actors.agents.exec_judging import judge_command
from actors.agents.policy import Decision, Effect, Policy, stricter
from actors.agents.ports import Act
from actors.agents.reviewing import opened_to
from actors.assembly.building import policy_of
from actors.assembly.provider_spec import provider_of
from actors.assembly.task_file import Task
from actors.errors import ConfigError, ToolFailed
from actors.tools.exec import runnable
from actors.tools.paths import Workspace
from actors.tools.shell import placed
from actors.tools.write_file import judge_place

# As everything asks that connects: never an address with a scheme or a path.
_HOST_AND_PORT: Final = re.compile(r"[^/\s]+:[0-9]+")


@attrs.frozen
class Explained:
    """One thing that is judged, and what is said of it. ``rule`` and ``layer`` are None where a default decides.

    ``why`` says what no rule of a policy could allow, and that nothing else was judged then.
    """

    act: Act
    target: str
    effect: Effect
    rule: str | None = None
    layer: str | None = None
    why: str | None = None


def effect_of_all(parts: tuple[Explained, ...]) -> Effect:
    """Give what becomes of the whole: its strictest part."""
    effect = Effect.allow
    for part in parts:
        effect = stricter(effect, part.effect)
    return effect


def explain_act(task: Task, act: Act, target: str, *, shell: bool = False) -> tuple[Explained, ...]:
    """Judge one act of the root agent: each part of it, as a run of the task would.

    For ``exec`` the target is a program with its arguments, quoted as for a shell, or
    with ``shell`` a line of the tool of that name.

    Raises:
        ConfigError: the task is under no policy, or the target cannot be read.
    """
    if task.contract.is_single_file:
        raise ConfigError(("contract.file", "work on a single file is under no policy; there is nothing to explain"))
    policy, workspace = policy_of(task), Workspace(str(task.contract.root))
    try:
        if act is Act.exec:
            judge = _line if shell else _command
            return tuple(judge(task, policy, workspace, target))
        if act in (Act.read, Act.write):
            return (_file(policy, workspace, act, target),)
    except ToolFailed as error:
        return (Explained(act, clean(target), Effect.deny, why=str(error)),)
    if act is Act.net and _HOST_AND_PORT.fullmatch(target) is None:
        raise ConfigError(("target", f"{clean(target)} is no HOST:PORT; write it as example.org:443"))
    return (_told(act, target, _opened(task, policy, act, target).explain(act, target)),)


def _told(act: Act, target: str, decision: Decision) -> Explained:
    return Explained(act, clean(target), decision.effect, decision.rule, decision.layer)


def _file(policy: Policy, workspace: Workspace, act: Act, path: str) -> Explained:
    relative = workspace.resolve(path)
    if act is Act.write:
        judge_place(relative)
    return _told(act, relative, policy.explain(act, relative))


def _command(task: Task, policy: Policy, workspace: Workspace, target: str) -> Iterator[Explained]:
    try:
        argv = shlex.split(target)
    except ValueError as error:
        raise ConfigError(("target", f"cannot be read as a command: {error}")) from None
    if not argv:
        raise ConfigError(("target", "is empty; write a program, and its arguments if there are any"))
    runnable(argv)
    for each in judge_command(policy, argv):
        yield _told(Act.exec, each.target, each.decision)


def _line(task: Task, policy: Policy, workspace: Workspace, target: str) -> Iterator[Explained]:
    line = placed(target, workspace, task.contract.exec_sandbox)
    for command in line.line.commands:
        for each in judge_command(policy, command.argv):
            yield _told(Act.exec, each.target, each.decision)
    for act, files in ((Act.read, line.reads), (Act.write, line.writes)):
        for relative in dict.fromkeys(files):
            yield _told(act, relative, policy.explain(act, relative))


def _opened(task: Task, policy: Policy, act: Act, target: str) -> Policy:
    """Give the policy for one host: no default keeps the model of the task from being reached."""
    if act is not Act.net:
        return policy
    for spec in (task.provider, task.reviewer):
        with suppress(ConfigError):
            # Without its key it cannot be made; then it is judged as any other host.
            if spec is not None and getattr(provider_of(spec), "endpoint", None) == target:
                return opened_to(policy, target)
    return policy
