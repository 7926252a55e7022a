"""What a task file asks for that surely comes to nothing: it is sound, it runs, and it is not what was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from actors.agents.contract import ExecSandbox, TaskContract
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.containment.limits import Containment
from actors.errors import ToolFailed

Problems = list[tuple[str, str]]

# Fewer leave no room for a child.
ROOT_AND_ONE: Final = 2
# Whatever is none of these is a real zero too, and something runs under it.
_NO_ANSWER: Final = {
    "contract.max_steps": "no step is taken",
    "contract.max_duration": "every agent is over when it begins",
    "contract.max_tokens": "no answer that costs a token fits",
    "containment.max_total_tokens": "no model is asked",
    "containment.max_total_calls": "no model is asked",
    "containment.max_total_duration": "the run is over when it begins",
}


def task_notes(
    contract: TaskContract, containment: Containment | None, place_of: Callable[[str, str], str]
) -> Problems:
    """List limits under which nothing can run, work trees that cannot be made, and agents that nobody starts.

    ``place_of`` gives where a key of a named agent stands.
    """
    return [
        *_zeros(contract, containment),
        *_without_trees(contract, containment, place_of),
        *_nobody_starts(contract, containment),
    ]


def inside_note(source: Path, contract: TaskContract, policy: Policy) -> str | None:
    """Say that a task file lies where its agents work, as far as they may do something with it; None if not."""
    if contract.root is None:
        return None
    try:
        inside = source.resolve().relative_to(Path(contract.root).resolve())
    except (OSError, ValueError, RuntimeError):
        return None
    name = inside.as_posix()
    effects = {act: policy.explain(act, name).effect for act in (Act.read, Act.write)}
    may = [act.value for act, effect in effects.items() if effect is not Effect.deny]
    if not may:
        return None
    asked = "" if effects[Act(may[-1])] is Effect.allow else ", if whoever is asked says yes"
    return (
        f"{name} lies in the workspace, so agents may {' and '.join(may)} it{asked}, and the next run is by what stands"
        f" in it then; keep it outside of contract.root, or deny both in [policy]"
    )


def _zeros(contract: TaskContract, containment: Containment | None) -> Problems:
    tables = {"contract": contract, "containment": containment}
    notes = []
    for key, comes_to in _NO_ANSWER.items():
        table, _, name = key.partition(".")
        if tables[table] is not None and getattr(tables[table], name) == 0:
            notes.append((key, f"is 0, so {comes_to}; give more, or remove it"))
    return notes


def _without_trees(
    contract: TaskContract, containment: Containment | None, place_of: Callable[[str, str], str]
) -> Problems:
    wanting = [agent.name for agent in contract.agents if agent.worktree]
    if not wanting or containment is None or contract.root is None:
        return []
    # Loaded for whoever wants them.
    from actors.tools.git_repository import whole_repository
    from actors.tools.paths import Workspace

    why = ""
    if contract.exec_sandbox is ExecSandbox.read_only:
        why = f'contract.exec_sandbox = "{ExecSandbox.read_only}" lets none be made'
    else:
        try:
            whole_repository(Workspace(str(contract.root)))
        except ToolFailed as error:
            why = str(error)
    return [(place_of(name, "worktree"), f"{name} can never be started: {why}") for name in wanting] if why else []


def _nobody_starts(contract: TaskContract, containment: Containment | None) -> Problems:
    names = [agent.name for agent in contract.agents]
    if not names:
        return []
    if containment is None:
        text = "nobody can start it: without [containment] one agent works alone"
        return [(f"agents.{name}", text) for name in names]
    if containment.max_depth == 0:
        text = f"is 0, so nobody can start {', '.join(names)}; give more, or remove them"
        return [("containment.max_depth", text)]
    if containment.max_total_agents < ROOT_AND_ONE:
        text = f"is {containment.max_total_agents}, the root among them, so nobody can start {', '.join(names)}"
        return [("containment.max_total_agents", f"{text}; give more, or remove them")]
    return []
