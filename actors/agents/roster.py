"""Agents that have a name: what a child may be asked to be. Pure.

A definition narrows and never widens. It has two denies and no allow, and will
never have one: it is written by operators and picked by models, and a model
must not be able to pick more than its own agent has. A definition that is
silent about something leaves what the parent's policy says. Its ``tools`` are
those of the parent's that it keeps: a name that the parent has not gives nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from actors.errors import ConfigError, kind_word

MOST_ROLE: Final = 16_384
MOST_WORD: Final = 200
MOST_STEPS: Final = 1_000_000
MOST_TOOLS: Final = 200
# Of tools, in the catalogue.
FEW_TOOLS: Final = 8
# Of a role, in the catalogue: every request of an agent that may spawn carries all of them.
CATALOGUE_CHARACTERS: Final = 160
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOOL: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def _named(_self: object, _field: object, value: Any) -> None:
    problem = name_problem(value)
    if problem:
        raise ValueError(f"the name of an agent {problem}")


def name_problem(name: object) -> str | None:
    """Say what is wrong with the name of an agent, None when it is sound."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return "must be 1 to 64 letters, digits, - or _"


def _role_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {kind_word(value)}"
    if len(value) > MOST_ROLE:
        return f"has {len(value)} characters; shorten it to at most {MOST_ROLE}"
    # It becomes part of every request, and no request can carry half a character.
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value):
        return "holds a character that cannot be sent; remove it"
    return None


def _word_problem(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        return f"must be a text, not {kind_word(value)}"
    if not value.strip() or len(value) > MOST_WORD or not value.isprintable():
        return f"must be 1 to {MOST_WORD} printable characters; leave it out for the parent's own"
    return None


def _steps_problem(value: object) -> str | None:
    if value is None:
        return None
    if type(value) is not int:
        return f"must be a whole number, not {value!r}"
    if not 1 <= value <= MOST_STEPS:
        return f"must be from 1 to {MOST_STEPS}, and is {value}"
    return None


def _flag_problem(value: object) -> str | None:
    return None if type(value) is bool else f"must be true or false, not {value!r}"


def _tools_problem(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return f'must be a list of names of tools, such as ["grep"], not {kind_word(value)}'
    if len(value) > MOST_TOOLS:
        return f"has {len(value)} names; keep at most {MOST_TOOLS}"
    wrong = next((each for each in value if not (isinstance(each, str) and _TOOL.fullmatch(each))), None)
    return None if wrong is None else f"must hold names of tools, and no {str(wrong)[:80]!r}"


_PROBLEMS: Final = {
    "role": _role_problem,
    "description": _role_problem,
    "model": _word_problem,
    "max_steps": _steps_problem,
    "effort": _word_problem,
    "deny_write": _flag_problem,
    "deny_net": _flag_problem,
    "worktree": _flag_problem,
    "tools": _tools_problem,
}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _sound(_self: object, field: Any, value: Any) -> None:
    problem = _PROBLEMS[field.name](value)
    if problem:
        raise ValueError(f"{field.name} of an agent {problem}")


@attrs.frozen
class AgentDef:
    """What one named agent is. Frozen; every ``with_`` method returns a changed copy.

    ``role`` stands before the system text and replaces nothing of it. ``model``
    and ``effort`` are requests; None is what the parent uses. ``max_steps`` beats
    what a call asks for. ``deny_write`` and ``deny_net`` deny everything of their
    kind. ``worktree`` gives the agent a work tree of its own. ``tools`` are the only
    ones it keeps of its parent's, `spawn_agent` among them or not; None keeps all.
    ``description`` says to models when to pick it, in place of how the role begins.

    Raises:
        ValueError: a field cannot be used; the text names it.

    Example::

        AgentDef("searcher").with_role("You only read.").with_model("cheap").with_deny_write()
    """

    name: str = attrs.field(validator=_named)
    role: str = attrs.field(default="", validator=_sound)
    model: str | None = attrs.field(default=None, validator=_sound)
    max_steps: int | None = attrs.field(default=None, validator=_sound)
    effort: str | None = attrs.field(default=None, validator=_sound)
    deny_write: bool = attrs.field(default=False, validator=_sound)
    deny_net: bool = attrs.field(default=False, validator=_sound)
    worktree: bool = attrs.field(default=False, validator=_sound)
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=_as_tuple, validator=_sound)
    description: str = attrs.field(default="", validator=_sound)

    def with_role(self, role: str) -> "AgentDef":
        """Put a role before the system text."""
        return attrs.evolve(self, role=role)

    def with_model(self, model: str) -> "AgentDef":
        """Ask for a model of its own."""
        return attrs.evolve(self, model=model)

    def with_max_steps(self, max_steps: int) -> "AgentDef":
        """Cap the steps, whatever a call asks for."""
        return attrs.evolve(self, max_steps=max_steps)

    def with_effort(self, effort: str) -> "AgentDef":
        """Ask for an effort of its own."""
        return attrs.evolve(self, effort=effort)

    def with_deny_write(self) -> "AgentDef":
        """Deny every write."""
        return attrs.evolve(self, deny_write=True)

    def with_deny_net(self) -> "AgentDef":
        """Deny every connection."""
        return attrs.evolve(self, deny_net=True)

    def with_worktree(self) -> "AgentDef":
        """Give it a work tree of its own."""
        return attrs.evolve(self, worktree=True)

    def with_tools(self, *names: str) -> "AgentDef":
        """Keep only these of the parent's tools."""
        return attrs.evolve(self, tools=names)

    def with_description(self, description: str) -> "AgentDef":
        """Say when to pick it."""
        return attrs.evolve(self, description=description)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form, without the name, which is the key it stands under; what is not set is left out."""
        fields = (field for field in attrs.fields(type(self)) if field.name != "name")
        plain = {field.name: value for field in fields if (value := getattr(self, field.name)) != field.default}
        return plain if self.tools is None else {**plain, "tools": list(self.tools)}

    @classmethod
    def from_dict(cls, name: str, plain: object, at: str) -> "AgentDef":
        """Read the plain form strictly. ``at`` is the path of this table.

        Raises:
            ConfigError: every problem with the path of its key.
        """
        problems = _problems_of(name, plain, at)
        if problems or not isinstance(plain, Mapping):
            raise ConfigError(*problems)
        return cls(name, **plain)


def _problems_of(name: object, plain: object, at: str) -> list[tuple[str, str]]:
    wrong = name_problem(name)
    problems = [] if wrong is None else [(at, f"the name of an agent {wrong}")]
    if not isinstance(plain, Mapping):
        return [*problems, (at, f"must be a table, not {kind_word(plain)}")]
    for key, value in plain.items():
        judge = _PROBLEMS.get(key)
        text = _unknown(key) if judge is None else "must not be null; leave it out" if value is None else judge(value)
        if text:
            problems.append((f"{at}.{key}", text))
    return problems


def _unknown(key: object) -> str:
    if str(key).startswith("allow"):
        return "unknown key; a definition can only narrow: allow it in [policy], for the whole tree"
    return f"unknown key; remove it, or write one of {', '.join(_PROBLEMS)}"


def _by_name(definitions: tuple[AgentDef, ...]) -> tuple[AgentDef, ...]:
    """Sort by name; of two under one name the later stays."""
    return tuple(definition for _name, definition in sorted({one.name: one for one in definitions}.items()))


@attrs.frozen
class Agents:
    """The roster of a tree: definitions by name, sorted. Frozen, compared by value.

    Names are case-sensitive: ``Searcher`` is not ``searcher``.
    """

    definitions: tuple[AgentDef, ...] = attrs.field(default=(), converter=_by_name)

    def with_agent(self, definition: AgentDef) -> "Agents":
        """Register a definition; one under the same name is replaced."""
        return Agents((*self.definitions, definition))

    def get(self, name: str) -> AgentDef | None:
        """Give the definition of exactly this name, None when there is none."""
        return next((definition for definition in self.definitions if definition.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Give the names, sorted."""
        return tuple(definition.name for definition in self.definitions)

    def __len__(self) -> int:
        return len(self.definitions)

    def __iter__(self) -> Iterator[AgentDef]:
        return iter(self.definitions)

    def catalogue(self) -> str:
        """List the agents for a model, one a line: the name, how its role begins, and what it may not."""
        return "\n".join(_line(definition) for definition in self.definitions)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form: a table for each name."""
        return {definition.name: definition.to_dict() for definition in self.definitions}

    @classmethod
    def from_dict(cls, plain: object, at: str = "agents") -> "Agents":
        """Read the plain form strictly.

        Raises:
            ConfigError: every problem of every definition, with the path of its key.
        """
        if not isinstance(plain, Mapping):
            text = f"must be a table with one table for each agent, not {kind_word(plain)}; write [{at}.NAME]"
            raise ConfigError((at, text))
        problems = [problem for name, table in plain.items() for problem in _problems_of(name, table, f"{at}.{name}")]
        if problems:
            raise ConfigError(*problems)
        return cls(tuple(AgentDef.from_dict(name, table, f"{at}.{name}") for name, table in plain.items()))


def _line(definition: AgentDef) -> str:
    role = " ".join((definition.description or definition.role).split())
    if len(role) > CATALOGUE_CHARACTERS:
        role = role[: CATALOGUE_CHARACTERS - 3].rstrip() + "..."
    limits = [
        text
        for holds, text in (
            (definition.deny_write, "may not write"),
            (definition.deny_net, "may not use the net"),
            (definition.max_steps is not None, f"at most {definition.max_steps} steps"),
            (definition.worktree, "works in a work tree of its own"),
            (definition.tools is not None, _only(definition.tools or ())),
        )
        if holds
    ]
    return f"- {definition.name}" + (f": {role}" if role else "") + (f" ({', '.join(limits)})" if limits else "")


def _only(tools: tuple[str, ...]) -> str:
    if not tools:
        return "no tools"
    more = f" and {len(tools) - FEW_TOOLS} more" if len(tools) > FEW_TOOLS else ""
    return f"only {', '.join(tools[:FEW_TOOLS])}{more}"
