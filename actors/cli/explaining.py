"""`actors explain`: what a run of a task would be let do, part by part. Nothing is run."""

from __future__ import annotations

import json
from typing import Final

import attrs

from actors.agents.policy import Effect
from actors.agents.ports import Act
from actors.assembly.explaining import Explained, effect_of_all, explain_act
from actors.assembly.task_file import Task
from actors.cli.quoting import printable

SHELL: Final = "shell"
KINDS: Final = (*(act.value for act in Act), SHELL)
# As a run ends that needed it: denied, or waiting for a human.
CODES: Final = {Effect.allow: 0, Effect.deny: 4, Effect.ask: 5}


def explain(task: Task, kind: str, target: str, as_json: bool) -> int:
    """Tell what is judged of an act and which rule decides it; return the exit code."""
    parts = explain_act(task, Act.exec if kind == SHELL else Act(kind), target, shell=kind == SHELL)
    effect = effect_of_all(parts)
    if as_json:
        print(json.dumps({"effect": effect, "parts": [attrs.asdict(part) for part in parts]}))
        return CODES[effect]
    print(_overall(effect, task))
    for part in parts:
        print(f"  {part.effect.value:5}  {part.act} {printable(part.target)}  ({_why(part)})")
    return CODES[effect]


def _overall(effect: Effect, task: Task) -> str:
    if effect is not Effect.ask:
        return effect.value
    if task.run.approve is None:
        return "ask (on a terminal; elsewhere the answer is no)"
    return f'ask (run.approve = "{task.run.approve}")'


def _why(part: Explained) -> str:
    if part.why is not None:
        return printable(part.why)
    if part.layer is None:
        return "the policy's default"
    return f"rule {part.rule!r} of layer {part.layer!r}"
