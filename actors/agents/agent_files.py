"""Named agents in Markdown files: the keys above, the role below. Pure.

Such a file belongs to the project that is worked on, and may have come with a
clone of it. So it can do what a definition can, and a definition only narrows:
there is no key that allows anything, and no text of a role gives a right. Its model
is a request like any other, and costs what the ceilings let it cost.

Our own files are read strictly: a key that nobody knows is a narrowing that nobody
installed. Files of another tool are read as far as their meaning is ours; what is
left of them is told, and one that cannot be read is left out, so that a project
that was made for that tool can be worked on.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from actors.agents.front_matter import FrontMatter, Value, read_front_matter
from actors.agents.roster import MOST_ROLE, AgentDef, name_problem
from actors.errors import ConfigError, unknown_key

Problem = tuple[str, str]

KEYS: Final = tuple(field.name for field in attrs.fields(AgentDef) if field.name != "role")
FOREIGN_KEYS: Final = ("name", "description", "model", "maxTurns", "tools")
# Names that the other tool has for whatever model it has of a kind; no endpoint knows them.
FOREIGN_MODELS: Final = frozenset({"inherit", "default", "sonnet", "opus", "haiku", "opusplan", "best"})
_SHELL: Final = ("exec", "shell", "shell_start", "shell_poll", "shell_kill")
FOREIGN_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "Read": ("read_file",),
    "Grep": ("grep",),
    "Glob": ("find",),
    "LS": ("list_dir",),
    "Write": ("write_file",),
    "Edit": ("edit_file",),
    "MultiEdit": ("edit_file",),
    "Bash": _SHELL,
    "BashOutput": ("shell_poll",),
    "KillBash": ("shell_kill",),
    "KillShell": ("shell_kill",),
    "TodoWrite": ("todo_write",),
    "Task": ("spawn_agent",),
    "Agent": ("spawn_agent",),
}


@attrs.frozen
class AgentFile:
    """A definition and where it stands: the path of its file, and the line of each of its keys."""

    definition: AgentDef
    path: str
    lines: Mapping[str, int] = attrs.Factory(dict)

    def place(self, key: str) -> str:
        """Give the place of a key for a message."""
        return f"{self.path}:{self.lines.get(key, 1)}"


def read_agent_file(text: str, path: str, stem: str) -> AgentFile:
    """Read a file of ours. ``stem`` is its name, which is the agent's where none is given.

    Raises:
        ConfigError: every problem at ``PATH:LINE``.
    """
    front = read_front_matter(text, path)
    problems = [(f"{path}:{front.lines[key]}", _unknown(key)) for key in front.values if key not in KEYS]
    table = {key: value for key, value in front.values.items() if key in KEYS}
    name = table.pop("name", stem)
    wrong = name_problem(name)
    if wrong is not None:
        shown = "the name of the file" if "name" not in front.values else "the name of an agent"
        problems.append((f"{path}:{front.lines.get('name', 1)}", f"{shown} {wrong}"))
    found = _defined("agent" if wrong else name, table, front, path, problems)
    if found is None or problems:
        raise ConfigError(*problems)
    return AgentFile(found, path, front.lines)


def _defined(
    name: Any, table: dict[str, Value], front: FrontMatter, path: str, problems: list[Problem]
) -> AgentDef | None:
    """Make the definition, or add to ``problems`` why it cannot be made."""
    plain: dict[str, Any] = {**table, "role": front.body.strip()}
    if isinstance(plain.get("tools"), str):
        plain["tools"] = _listed(plain["tools"])
    if "description" in plain:
        plain["description"] = _text(plain["description"])
    try:
        return AgentDef.from_dict(name, plain, path)
    except ConfigError as error:
        for place, text in error.problems:
            key = place.removeprefix(f"{path}.")
            # The role is the text below the last key.
            line = front.lines.get(key) or max(front.lines.values(), default=0) + 1
            problems.append((f"{path}:{line}", f"{key} {text}"))
    return None


def _listed(text: str) -> list[str]:
    return [part for each in text.split(",") if (part := each.strip())]


def _text(value: Value) -> Value:
    return value.strip() if isinstance(value, str) else value


def _unknown(key: str) -> str:
    if key.lower().startswith("allow"):
        return f"{key} is an unknown key; a definition can only narrow: allow it in the task file, for the whole tree"
    if key == "role":
        return "role is an unknown key; the role is the text below the lines of ---"
    return f"{key}: {unknown_key(key, KEYS)}"


# ── files of another tool ───────────────────────────────────────────────────


def read_foreign_agent(text: str, path: str) -> tuple[AgentFile | None, list[Problem]]:
    """Read a file of ``.claude/agents``: the agent, None when it cannot be one here, and all that is not done.

    Never raises: what is wrong with it is told and the agent is left out, which nobody can pick then.
    """
    notes: list[Problem] = []
    try:
        front = read_front_matter(text, path, loose=True)
    except ConfigError as error:
        return None, [(place, f"{why}; this agent is left out") for place, why in error.problems]
    at = {key: f"{path}:{line}" for key, line in front.lines.items()}
    others = [key for key in front.values if key not in FOREIGN_KEYS]
    notes += [(at[key], f"{key} is not acted on here; the agent works without it") for key in others]
    name = front.values.get("name")
    wrong = name_problem(name)
    if wrong is not None:
        return None, [*notes, (at.get("name", f"{path}:1"), f"the name of an agent {wrong}; this agent is left out")]
    plain = _foreign_fields(front, at, notes)
    problems: list[Problem] = []
    if len(front.body.strip()) > MOST_ROLE:
        problems.append((f"{path}:1", f"has a text of more than {MOST_ROLE} characters"))
    else:
        found = _defined(name, plain, front, path, problems)
        if found is not None:
            return AgentFile(found, path, front.lines), notes
    return None, [*notes, *((place, f"{why}; this agent is left out") for place, why in problems)]


def _foreign_fields(front: FrontMatter, at: Mapping[str, str], notes: list[Problem]) -> dict[str, Value]:
    plain: dict[str, Value] = {}
    values = front.values
    if values.get("description") is not None:
        plain["description"] = values["description"]
    if values.get("maxTurns") is not None:
        plain["max_steps"] = values["maxTurns"]
    model = values.get("model")
    if isinstance(model, str) and model.lower() in FOREIGN_MODELS:
        if model.lower() != "inherit":
            notes.append((at["model"], f"{model} is no name of a model here; the agent asks for the run's own"))
    elif model is not None:
        plain["model"] = model
    if "tools" in values:
        tools = _foreign_tools(values["tools"], at["tools"], notes)
        if tools is not None:
            plain["tools"] = tools
    return plain


def _foreign_tools(value: Value, place: str, notes: list[Problem]) -> Value:
    """Translate names of tools. One without a tool here, or with a condition, gives none: never more than is said."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = tuple(_named(value))
    if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
        return value
    if "*" in value:
        return None
    ours: list[str] = []
    for each in value:
        known = FOREIGN_TOOLS.get(str(each))
        if known is None:
            notes.append((place, f"{str(each)[:80]!r} is no tool here; the agent works without it"))
        ours += known or ()
    return tuple(dict.fromkeys(ours))


def _named(text: str) -> list[str]:
    """Split at the commas that stand in no brackets: a condition may hold some."""
    return [part for each in re.findall(r"(?:[^,(]|\([^)]*\)?)+", text) if (part := each.strip())]
