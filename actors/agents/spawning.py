"""What a model may say when it asks for a child, and what the child is told to be. Pure.

Models fill every property they are shown with a zero value, so an empty text,
an empty list and 0 mean "not given". No argument grants anything: all of them
narrow.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Provider, ToolSpec
from actors.agents.review_text import self_review_problem
from actors.agents.roster import AgentDef, Agents
from actors.agents.verification import CriterionKind, Review, Verification
from actors.errors import ConfigError, ToolFailed

NAME = "spawn_agent"
DEFAULT_MAX_STEPS = 12
MOST_STEPS = 10_000
# A year: nobody means more.
MOST_SECONDS = 31_536_000

SINGLE_FILE = frozenset({CriterionKind.file_contains, CriterionKind.file_equals})
_STRINGS = {"type": "array", "items": {"type": "string"}}
_PROPERTIES: dict[str, Any] = {
    "goal": {"type": "string", "description": "What the sub-agent is to do. It sees nothing else."},
    "verify_file": {"type": "string", "description": "The sub-agent is done when this file ..."},
    "verify_contains": {"type": "string", "description": "... contains this text."},
    "verify": {
        "type": "object",
        "description": 'Another criterion instead: {"kind": "none"}, or {"kind": "command", "argv": [...]}.',
    },
    "agent": {"type": "string", "description": "The name of a named agent."},
    "deny_write": {**_STRINGS, "description": "Globs the sub-agent may not write."},
    "deny_net": {**_STRINGS, "description": "Hosts the sub-agent may not reach."},
    "max_steps": {"type": "integer", "minimum": 1, "description": "The most steps it may take."},
    "wait": {
        "type": "boolean",
        "default": True,
        "description": "false: go on at once; its report comes with a later step.",
    },
    "background_after_secs": {
        "type": "integer",
        "minimum": 1,
        "description": "Wait so many seconds at most, then go on while it works.",
    },
}


def spawn_spec(roster: Agents) -> ToolSpec:
    """Describe the tool; the roster's catalogue is part of the description."""
    named = f" Named agents:\n{roster.catalogue()}" if len(roster) else ""
    return ToolSpec(
        NAME,
        "Start a sub-agent for one self-contained part of the task. You get its report when it ends." + named,
        {"type": "object", "properties": _PROPERTIES, "required": ["goal"], "additionalProperties": False},
    )


@attrs.frozen
class SpawnAsk:
    """One request for a child, read and checked."""

    goal: str
    verify: Verification
    definition: AgentDef | None = None
    deny_write: tuple[str, ...] = ()
    deny_net: tuple[str, ...] = ()
    max_steps: int | None = None
    wait: bool = True
    # In seconds.
    background_after: int | None = None


def read_spawn(arguments: Mapping[str, Any], roster: Agents) -> SpawnAsk:
    """Read a model's arguments.

    Raises:
        ToolFailed: one line that the model can act on; nothing was counted.
    """
    unknown = sorted(set(arguments) - set(_PROPERTIES))
    if unknown:
        raise ToolFailed(f"spawn_agent has no argument {unknown[0]!r}; it takes {', '.join(_PROPERTIES)}")
    goal = _text(arguments, "goal")
    if not goal.strip():
        raise ToolFailed("spawn_agent needs a goal: say what the sub-agent is to do")
    verify = _criterion(arguments)
    steps = arguments.get("max_steps") or None
    if steps is not None and (type(steps) is not int or not 1 <= steps <= MOST_STEPS):
        raise ToolFailed(f"max_steps must be a whole number from 1 to {MOST_STEPS}")
    wait, after = _way(arguments)
    return SpawnAsk(
        goal,
        verify,
        _definition(_text(arguments, "agent"), roster),
        _globs(arguments, "deny_write"),
        _globs(arguments, "deny_net"),
        steps,
        wait,
        after,
    )


def _way(arguments: Mapping[str, Any]) -> tuple[bool, int | None]:
    """Read whether to wait, and how long. Only a plain false detaches; a clock of 0 is not given."""
    wait, after = arguments.get("wait"), arguments.get("background_after_secs") or None
    if wait is None or wait == "" or wait == [] or (wait == 0 and wait is not False):
        wait = True
    if type(wait) is not bool:
        raise ToolFailed("wait must be true or false")
    if after is not None and (type(after) is not int or not 1 <= after <= MOST_SECONDS):
        raise ToolFailed(f"background_after_secs must be a whole number from 1 to {MOST_SECONDS}")
    if not wait and after is not None:
        raise ToolFailed(
            "conflict: wait=false goes on at once, and background_after_secs waits first; give one of the two"
        )
    return wait, after


def _definition(name: str, roster: Agents) -> AgentDef | None:
    if not name:
        return None
    definition = roster.get(name)
    if definition is None:
        known = ", ".join(roster.names) or "none"
        raise ToolFailed(f"no agent named {name!r}; known agents: {known}")
    return definition


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be a text, not {type(value).__name__}")
    return value


def _globs(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = arguments.get(name) or []
    if not isinstance(value, list) or not all(isinstance(glob, str) and glob for glob in value):
        raise ToolFailed(f"{name} must be a list of texts")
    return tuple(value)


def _criterion(arguments: Mapping[str, Any]) -> Verification:
    file, needle, other = _text(arguments, "verify_file"), _text(arguments, "verify_contains"), arguments.get("verify")
    if other and not isinstance(other, Mapping):
        raise ToolFailed('verify must be an object such as {"kind": "none"}')
    if other and (file or needle):
        raise ToolFailed("give either verify, or verify_file with verify_contains, not both")
    if not other and (not file or not needle):
        raise ToolFailed(
            "spawn_agent needs a criterion: verify_file with a verify_contains that is not empty, "
            'or verify, which may be {"kind": "none"}'
        )
    try:
        if other:
            criterion = Verification.from_dict(dict(other), "verify")
            # A child works in a workspace: what is judged on one file alone cannot be judged there.
            if not criterion.is_supported or criterion.kind in SINGLE_FILE:
                raise ToolFailed(f"verify of kind {other.get('kind')!r} is not supported")
            if isinstance(criterion, Review) and criterion.allow_self_review:
                raise ToolFailed("verify.allow_self_review is the operator's to give; leave it out")
            return criterion
        return Verification.workspace_file_contains(file, needle)
    except (ConfigError, ValueError, TypeError) as error:
        raise ToolFailed(str(error)) from None


def check_review(ask: SpawnAsk, reviewer: Provider | None, provider: Provider) -> None:
    """Look whether a child that asks for a review can have one.

    Raises:
        ToolFailed: nobody reviews, or only the one that does the work; nothing was counted.
    """
    if not isinstance(ask.verify, Review):
        return
    if reviewer is None:
        raise ToolFailed("verify of kind 'review' is not supported here: the operator named no reviewer")
    model = ask.definition.model if ask.definition is not None and ask.definition.model else None
    own = model or getattr(provider, "default_model", None)
    if self_review_problem(reviewer, provider, (own,)) is not None:
        raise ToolFailed("verify of kind 'review' is not supported here: the reviewer is the model of the work itself")


def child_contract(parent: TaskContract, ask: SpawnAsk) -> TaskContract:
    """Give the child's contract: the parent's, with every knob of the operator, and the goal and criterion asked for.

    The definition's step cap beats the call's: the operator outranks the model. Its
    effort holds for the child and all below it.
    """
    defined = None if ask.definition is None else ask.definition.max_steps
    steps = defined or ask.max_steps or DEFAULT_MAX_STEPS
    child = parent.for_child(ask.goal, ask.verify, steps)
    effort = None if ask.definition is None else ask.definition.effort
    return child if effort in (None, child.effort) else child.with_effort(effort)


def child_tools(parent: frozenset[str] | None, ask: SpawnAsk) -> frozenset[str] | None:
    """Give the names of the tools that a child keeps, None for all: those of its parent that its definition names."""
    named = None if ask.definition is None else ask.definition.tools
    if named is None:
        return parent
    return frozenset(named) if parent is None else parent & frozenset(named)


def child_policy(parent: Policy, ask: SpawnAsk) -> Policy:
    """Give the child's policy: the parent's, narrowed by the definition and the call. Only denies are added.

    Raises:
        ToolFailed: a glob is malformed.
    """
    definition = ask.definition
    narrowed = definition is not None and (definition.deny_write or definition.deny_net)
    if not (narrowed or ask.deny_write or ask.deny_net):
        # The very same one, and its text is written once.
        return parent
    overlay = Policy.permissive().layer("child")
    try:
        if definition is not None and definition.deny_write:
            overlay = overlay.deny_write("*")
        if definition is not None and definition.deny_net:
            overlay = overlay.deny_net("*")
        for glob in ask.deny_write:
            overlay = overlay.deny_write(glob)
        for glob in ask.deny_net:
            overlay = overlay.deny_net(glob)
    except (ConfigError, ValueError) as error:
        raise ToolFailed(str(error)) from None
    return parent.contain(overlay)


def report(path: str, goal: str, outcome: str, steps: int, tokens: int, said: str | None, error: str | None) -> str:
    """Write what the parent's model reads of a child that has ended. A cut is named; findings are never dropped."""
    lines = [f"Sub-agent {path} ended: {outcome} after {steps} steps, {tokens} tokens.", f"Goal: {goal}"]
    if error:
        lines.append(f"Cause: {error}")
    if said:
        partial = "" if outcome in ("success", "finished") else " (partial)"
        lines.append(f"It said{partial}:\n{said}")
    else:
        lines.append("It said nothing.")
    return "\n".join(lines)
