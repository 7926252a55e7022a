"""What a model is told. Pure.

The framing stands first, a role before it, the operator's constraints after it,
our own ending last. Nothing in here holds a run
id or a clock: the same state gives the same bytes. Agents are named by path.
"""

import attrs

from actors.agents.ports import UserTurn

# The most that one observation may take of what a request carries of them (`fitting.TRANSCRIPT_CHARS`).
ENTRY_CHARS = 12_000

_FRAMING = """You work on a task in a workspace, by calling tools. Work in small steps and check what you did.
Every path is relative to the workspace. A refused or failed call is answered with the reason: read it, and adapt."""

_TREE = """You may spawn sub-agents with spawn_agent, each for one self-contained part of the task. A sub-agent sees
only the goal you write, works in the same workspace, and its report comes back to you. A spawn may be refused by a
ceiling of the tree (agents, depth, budget): then do that part yourself."""

_SINGLE = "You work on one file. The only tool writes it whole."


@attrs.frozen
class Framing:
    """What the system text is made of."""

    role: str = ""
    tree: bool = False
    single_file: bool = False
    constraints: tuple[str, ...] = ()


def system_text(framing: Framing) -> str:
    """Write the system text. Equal framings give equal bytes."""
    parts = [framing.role] if framing.role else []
    parts.append(_SINGLE if framing.single_file else _FRAMING)
    if framing.tree:
        parts.append(_TREE)
    if framing.constraints:
        parts.append("Constraints:\n" + "\n".join(f"- {text}" for text in framing.constraints))
    parts.append("When the task is done, answer with a short report and call no tool.")
    return "\n\n".join(parts)


def first_turn(goal: str, criterion: str, opening: str = "") -> UserTurn:
    """Write the task as the first turn; ``opening`` is what the model is shown with it."""
    ending = f"\n\nThe task counts as done when: {criterion}" if criterion else ""
    return UserTurn(f"{goal}{ending}" + (f"\n\n{opening}" if opening else ""))


QUIET = "No tool was called, and the task does not count as done yet. Go on, or say what keeps you from it."
CUT = "Your answer was cut off. Go on where it stopped."
