"""The rules of a task file held against its workspace: what is sound as a rule, and surely is not what was meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from actors.agents.contract import TaskContract
from actors.agents.exec_judging import judge_command
from actors.agents.policy import Effect, Policy, Rule, stricter
from actors.agents.ports import Act
from actors.assembly.run_settings import ApproveMode
from actors.tools.write_check import CHECK

Problems = list[tuple[str, str]]
_FILES = (Act.read, Act.write)
# What rules must allow for the git tools to commit, and how they ask.
COMMITTING: Final = ("git", "git add -- *", "git commit -m *")
_ADD: Final = (["git", "add", "--", "file"], "git add")
_COMMIT: Final = (["git", "commit", "-m", "message"], "git commit")


def rule_problems(policy: Policy, root: str) -> Problems:
    """List rules that name files of the workspace by a path from the top of the machine, which matches none of them."""
    problems: Problems = []
    tops = dict.fromkeys((os.path.abspath(root), os.path.realpath(root)))
    for place, rule in _file_rules(policy):
        inside = next((rule.glob[len(top) + 1 :] for top in tops if rule.glob.startswith(f"{top}/")), None)
        if inside is not None or rule.glob in tops:
            text = "can match nothing: what is in the workspace is judged by its path below contract.root"
            problems.append((place, f"{text}; write {inside or '.'}"))
    return problems


def rule_notes(policy: Policy, root: str) -> Problems:
    """List rules that are likely to say less than they were written for."""
    notes: Problems = []
    name = os.path.basename(os.path.realpath(root))
    for place, rule in _file_rules(policy):
        glob = rule.glob
        if glob.startswith(f"{name}/") and not os.path.lexists(f"{root}/{name}"):
            inside = glob[len(name) + 1 :]
            notes.append((place, f"{glob} is below {name} in the workspace, which has none; {inside} is without it"))
        elif _is_folder(glob, root) and _says_less(policy, rule):
            notes.append((place, f"{glob} is a directory, and what is in it has no such rule; write {glob}/* for that"))
    return notes


def unchecked_notes(contract: TaskContract, policy: Policy, approve: ApproveMode | None) -> Problems:
    """Say that nothing which is written will be checked, where the contract wants it and the policy does not let it."""
    if not contract.check_writes:
        return []
    effect = policy.explain(Act.exec, CHECK).effect
    if effect is Effect.deny:
        why = f"the policy denies exec {CHECK!r}"
    elif effect is Effect.ask and approve is ApproveMode.deny:
        why = f'no rule allows exec {CHECK!r}, and run.approve = "deny"'
    else:
        return []
    return [("contract.check_writes", f"nothing will be checked: {why}; allow it by a rule, or remove the key")]


def uncommitted_notes(
    contract: TaskContract, policy: Policy, approve: ApproveMode | None, place_of: Callable[[str, str], str]
) -> Problems:
    """Say of agents that get a work tree that the policy lets nobody commit there.

    A rule for some messages lets those be committed, whichever they are. ``place_of`` gives where a key stands.
    """
    wanting = [agent.name for agent in contract.agents if agent.worktree]
    if not wanting:
        return []
    for argv, some in (_ADD, _COMMIT):
        program, line = judge_command(policy, argv)[:2]
        refused = _refused(program.decision.effect, approve) or (
            None if _has_rule(policy, some) else _refused(line.decision.effect, approve)
        )
        if refused is not None:
            text = f"can commit nothing in its work tree: {refused} {some!r}; allow exec {', '.join(COMMITTING)}"
            return [(place_of(name, "worktree"), f"{name} {text}, or its work is in files only") for name in wanting]
    return []


def _refused(effect: Effect, approve: ApproveMode | None) -> str | None:
    if effect is Effect.deny:
        return "the policy denies exec"
    nobody = effect is Effect.ask and approve is ApproveMode.deny
    return 'run.approve = "deny", and no rule allows exec' if nobody else None


def _has_rule(policy: Policy, beginning: str) -> bool:
    rules = [rule for layer in policy.layers for rule in layer.rules]
    return any(
        rule.act is Act.exec and rule.effect is not Effect.deny and rule.glob.startswith(beginning) for rule in rules
    )


def _file_rules(policy: Policy) -> Iterator[tuple[str, Rule]]:
    written = [layer for layer in policy.layers if layer not in Policy.default().layers]
    for at, layer in enumerate(written):
        for number, rule in enumerate(layer.rules):
            if rule.act in _FILES:
                yield f"policy.layers[{at}].rules[{number}].glob", rule


def _is_folder(glob: str, root: str) -> bool:
    return not any(letter in glob for letter in "*?") and glob != "." and os.path.isdir(os.path.join(root, glob))


def _says_less(policy: Policy, rule: Rule) -> bool:
    """Tell whether something in a directory may get more than the rule gives its name."""
    inside = policy.explain(rule.act, f"{rule.glob}/a file in it").effect
    return inside is not stricter(inside, rule.effect)
