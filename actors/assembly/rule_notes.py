"""The rules of a task file held against its workspace: what is sound as a rule, and surely is not what was meant."""

from __future__ import annotations

import os
from collections.abc import Iterator

from actors.agents.policy import Policy, Rule, stricter
from actors.agents.ports import Act

Problems = list[tuple[str, str]]
_FILES = (Act.read, Act.write)


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
