"""What one agent is asked to do, and what it may use for it. Pure: paths are values here and none is opened.

What would be got wrong:

- A contract without a root is a single-file contract: one file, one tool, no
  policy. With a root it is a workspace contract, and ``file`` is unused.
- Every field can be written and read; not every one is acted on yet.
  `acted_on.py` names those that are set and would be ignored, so that a
  run is refused and never silently weaker than it was asked to be.
- Constraints are guidance for a model. The boundary is the policy.
"""

# Fields are made by functions that call `attrs.field`, which the linter takes for calls in defaults.

import copy
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any, Final

import attrs

from actors.agents.judged_fields import (
    anything,
    as_float,
    as_member,
    as_table,
    as_tuple,
    each,
    fits,
    flag_problem,
    instance_of,
    judged,
    judging,
    one_of,
    optional,
    plain_record,
    positive_seconds_problem,
    read_record,
    said_problem,
    seconds_problem,
    text_problem,
    whole_number,
    word_problem,
)
from actors.agents.roster import Agents
from actors.agents.routing import Routing
from actors.agents.verification import CriterionKind, Verification
from actors.containment.lines import QueueOrder
from actors.containment.prices import OnUnknownPrice
from actors.errors import kind_word

DEFAULT_EXEC_TIMEOUT: Final = 900.0
# The most skills that one directory may hold.
MAX_SKILLS: Final = 64
SINGLE_FILE_STEPS: Final = 8
WORKSPACE_STEPS: Final = 12


# ── the parts ───────────────────────────────────────────────────────────────


@attrs.frozen
class RetryPolicy:
    """How long to wait before a model is asked again, in seconds: ``base``, doubled each time, at most ``max``."""

    base: float = judged(seconds_problem, 0.5, converter=as_float)
    max: float = judged(seconds_problem, 30.0, converter=as_float)


@attrs.frozen
class StallPolicy:
    """When an agent goes in circles: after ``window`` steps (0: never).

    It is told to plan anew ``max_replans`` times before it is stalled.
    """

    window: int = judged(whole_number(), 3)
    max_replans: int = judged(whole_number(), 1)


def _share_problem(value: object) -> str | None:
    # A NaN is in no range.
    fits = type(value) is float and 0 < value <= 1
    return None if fits else f"must be a share above 0, at most 1, not {value!r}"


@attrs.frozen
class ContextBudget:
    """What one request carries of observations, in tokens.

    At most ``max_tokens``, and ``share`` of what is left; at least ``floor``.
    """

    max_tokens: int = judged(whole_number(), 24_000)
    share: float = judged(_share_problem, 0.5, converter=as_float)
    floor: int = judged(whole_number(), 2_000)


def _never_is_one(value: Any) -> Any:
    share = as_float(value)
    # NaN, negative, and all of it or more: never. One spelling, so that equal meanings are equal and JSON can hold it.
    return share if type(share) is not float or 0 <= share < 1 else 1.0


def _number_problem(value: object) -> str | None:
    return None if type(value) is float else f"must be a number, not {value!r}"


@attrs.frozen
class Compaction:
    """When old observations are summed up: at this share of the budget; from 1, below 0, or NaN is never (1.0)."""

    at_share: float = judged(_number_problem, 0.8, converter=_never_is_one)
    keep_recent: int = judged(whole_number(), 8)


@attrs.frozen
class MemoryCaps:
    """How much an agent may note down for good."""

    max_entries: int = judged(whole_number(), 64)
    max_chars: int = judged(whole_number(), 16_000)

    @property
    def max_entry_chars(self) -> int:
        """Give the most characters of one entry: an eighth of all."""
        return self.max_chars // 8


# What git takes away at both ends of a name or an address.
_IDENT_ENDS: Final = " .,:;<>\"\\'"


def _ident_problem(value: object) -> str | None:
    problem = word_problem(value)
    if problem:
        return problem
    if any(each in str(value) for each in "<>"):
        return f"must not hold < or >, which stand around the address in a commit, and is {value!r}"
    return None if str(value).strip(_IDENT_ENDS) else f"must hold more than marks, and is {value!r}"


@attrs.frozen
class Identity:
    """Who commits. The default can belong to nobody: a human must not be blamed for what an agent did."""

    name: str = judged(_ident_problem, "agent")
    email: str = judged(_ident_problem, "agent@actors.invalid")


class PromptKind(StrEnum):
    """What a prompt does to the built-in framing; stored values."""

    builtin = "builtin"
    append = "append"
    replace = "replace"  # type: ignore[assignment]  # shadows str.replace, which nobody calls on a kind
    preset = "preset"


PRESETS: Final = ("concise", "careful")


@attrs.frozen
class Prompt:
    """The framing of the loop: the built-in one, more text for it, other text, or a preset by its name in ``text``."""

    kind: PromptKind = judged(one_of(PromptKind), PromptKind.builtin, converter=as_member(PromptKind))
    text: str = judged(text_problem, "")

    def __attrs_post_init__(self) -> None:
        if self.kind is PromptKind.builtin and self.text:
            raise ValueError("text must be empty for the builtin prompt; use append or replace")
        if self.kind is PromptKind.preset and self.text not in PRESETS:
            raise ValueError(f"text must name a preset, one of {', '.join(PRESETS)}, not {self.text!r}")
        if self.kind in (PromptKind.append, PromptKind.replace) and not self.text.strip():
            raise ValueError(f"text must not be blank for the prompt {self.kind}")


class ExecSandbox(StrEnum):
    """What a command may do to files; stored values."""

    read_only = "read_only"
    workspace_write = "workspace_write"
    full_access = "full_access"


@attrs.frozen
class ExecCaps:
    """What one command may use at most; None is no cap. A cap that cannot be set fails the start.

    ``cpu_seconds`` and ``open_files`` are of each process, ``memory_bytes`` of all
    processes of the command together, ``wall_seconds`` beside ``exec_timeout``: the smaller counts.
    What ends the command is seen, and named; a call inside it that fails is not.
    """

    cpu_seconds: int | None = judged(optional(whole_number(1)), None)
    memory_bytes: int | None = judged(optional(whole_number(1)), None)
    open_files: int | None = judged(optional(whole_number(1)), None)
    wall_seconds: float | None = judged(optional(positive_seconds_problem), None, converter=as_float)


class PauseScope(StrEnum):
    """Who stops when an agent waits for a human; stored values."""

    agent = "agent"
    tree = "tree"


# ── the fields ──────────────────────────────────────────────────────────────


def _as_path(value: str | PurePath) -> Path:
    # An empty text would become the current directory; what is no path is left for the judge.
    is_path = isinstance(value, str) or hasattr(value, "__fspath__")
    return Path(value) if is_path and value != "" else value  # type: ignore[return-value]


def _as_path_or_none(value: str | PurePath | None) -> Path | None:
    return None if value is None else _as_path(value)


def _path_problem(value: object) -> str | None:
    if isinstance(value, Path):
        return text_problem(str(value))
    return "must not be empty" if value == "" else f"must be a path, not {kind_word(value)}"


_MAYBE_PATH: Final = judging(optional(_path_problem))
_READS_CRITERION: Final = judging(instance_of(Verification), Verification.from_dict)


def _part(default: Any) -> Any:
    """Make a field that holds a part, which reads itself."""
    cls = type(default)

    def read(plain: object, at: str) -> Any:
        own = getattr(cls, "from_dict", None)
        return read_record(cls, plain, at) if own is None else own(plain, at)

    return judged(instance_of(cls), default, read=read, kw_only=True)


def _choice(default: StrEnum) -> Any:
    kind = type(default)
    return judged(one_of(kind), default, converter=as_member(kind), kw_only=True)


def _texts() -> Any:
    return judged(each(said_problem), (), converter=as_tuple, kw_only=True)


def _count(default: Any, least: int = 0) -> Any:
    judge = whole_number(least)
    return judged(optional(judge) if default is None else judge, default, kw_only=True)


def _seconds(default: Any = None, judge: Any = seconds_problem) -> Any:
    return judged(optional(judge) if default is None else judge, default, converter=as_float, kw_only=True)


def _live() -> Any:
    return judged(anything, None, live=True, kw_only=True)


def _lives() -> Any:
    return judged(each(anything), (), converter=as_tuple, live=True, kw_only=True)


def _read_routing(plain: object, at: str) -> Routing | None:
    return None if plain is None else read_record(Routing, plain, at)


def _at_least_one(value: Any) -> Any:
    return 1 if type(value) is int and value == 0 else value


@attrs.frozen
class TaskContract:
    """What one agent is asked to do. Frozen; every ``with_`` method returns a changed copy.

    Durations are in seconds. None is no bound. ``max_steps``, ``max_duration`` and
    ``max_tokens`` are three separate stops, each with an outcome of its own.
    Objects of this process (``responder``, ``tools`` and such) have no plain form.

    Raises:
        ValueError: a field cannot be used; the text names it.

    Example::

        TaskContract.workspace("make the tests pass", "repo", Verification.command(["pytest", "-q"]))
        TaskContract("say hello", "hello.txt", Verification.file_contains("hello"))
    """

    goal: str = attrs.field(validator=fits, metadata=judging(said_problem))
    file: Path = attrs.field(converter=_as_path, validator=fits, metadata=judging(_path_problem))
    verify: Verification = attrs.field(validator=fits, metadata=_READS_CRITERION)
    root: Path | None = attrs.field(
        default=None, kw_only=True, converter=_as_path_or_none, validator=fits, metadata=_MAYBE_PATH
    )
    constraints: tuple[str, ...] = _texts()
    prompt: Prompt = _part(Prompt())
    instructions: tuple[str, ...] = _texts()
    conversational: bool | None = judged(optional(flag_problem), None, kw_only=True)
    max_steps: int = _count(
        attrs.Factory(lambda self: SINGLE_FILE_STEPS if self.root is None else WORKSPACE_STEPS, takes_self=True)
    )
    max_duration: float | None = _seconds()
    max_tokens: int | None = _count(None)
    max_output_tokens: int = _count(4_096, least=1)
    max_retries: int = _count(2)
    retry: RetryPolicy = _part(RetryPolicy())
    stall: StallPolicy = _part(StallPolicy())
    context: ContextBudget = _part(ContextBudget())
    compaction: Compaction = _part(Compaction())
    max_read_chars: int | None = _count(None, least=1)
    max_wait_secs: float | None = _seconds()
    memory: MemoryCaps = _part(MemoryCaps())
    exec_timeout: float = _seconds(DEFAULT_EXEC_TIMEOUT, positive_seconds_problem)
    lease_ttl: float = _seconds(2 * DEFAULT_EXEC_TIMEOUT, positive_seconds_problem)
    spawn_background_after: float | None = _seconds()
    detached_spawns: bool = judged(flag_problem, True, kw_only=True)
    # None is workspace_write as far as this machine can hold it; what is named is held, or nothing starts.
    exec_sandbox: ExecSandbox | None = judged(
        optional(one_of(ExecSandbox)), None, converter=as_member(ExecSandbox), kw_only=True
    )
    exec_caps: ExecCaps = _part(ExecCaps())
    mcp: tuple[object, ...] = _lives()
    lsp: tuple[object, ...] = _lives()
    browser: object | None = _live()
    tools: object | None = _live()
    skills: Path | None = judged(optional(_path_problem), None, converter=_as_path_or_none, kw_only=True)
    plugins: tuple[object, ...] = _lives()
    agents: Agents = _part(Agents())
    responder: object | None = _live()
    plan_gate: object | None = _live()
    reviewer: object | None = _live()
    tool_hooks: object | None = _live()
    routing: Routing | None = judged(
        optional(instance_of(Routing)), None, read=_read_routing, kw_only=True
    )
    effort: str | None = judged(optional(word_problem), None, kw_only=True)
    web: object | None = _live()
    images: tuple[object, ...] = _lives()
    commit_identity: Identity = _part(Identity())
    # Whether a file that an agent wrote is looked at by the checker of its language, and it reads what that says.
    check_writes: bool = judged(flag_problem, False, kw_only=True)
    # 0 is read as 1: one after the other.
    max_parallel_reads: int = judged(whole_number(1), 10, converter=_at_least_one, kw_only=True)
    pause_scope: PauseScope = _choice(PauseScope.agent)
    queue_order: QueueOrder = _choice(QueueOrder.fifo)
    on_unknown_price: OnUnknownPrice = _choice(OnUnknownPrice.refuse)

    def __attrs_post_init__(self) -> None:
        # A workspace has no one file: the field follows the root, also when the root is changed.
        if self.root is not None:
            object.__setattr__(self, "file", self.root)

    @classmethod
    def workspace(
        cls, goal: str, root: str | PurePath, verify: Verification | None = None, **fields: Any
    ) -> "TaskContract":
        """Make a workspace contract; without a criterion the run ends when the model stops calling tools."""
        path = _as_path(root)
        return cls(goal, path, Verification.none() if verify is None else verify, root=path, **fields)

    def for_child(self, goal: str, verify: Verification, max_steps: int) -> "TaskContract":
        """Give a child's contract: this one, every knob as it is, with another goal, criterion and step cap.

        Raises:
            ValueError: one of the three cannot be used; the text names it.
        """
        changed: dict[str, Any] = {"goal": goal, "verify": verify, "max_steps": max_steps}
        for name, value in changed.items():
            fits(self, getattr(attrs.fields(TaskContract), name), value)
        # The rest was judged when this contract was made, and judging it again for each child takes its time.
        child = copy.copy(self)
        for name, value in changed.items():
            object.__setattr__(child, name, value)
        return child

    @property
    def is_single_file(self) -> bool:
        """Whether there is one file and no workspace."""
        return self.root is None

    # ── builders ────────────────────────────────────────────────────────────

    def with_constraint(self, text: str) -> "TaskContract":
        """Add a constraint, which the model reads as it is."""
        return attrs.evolve(self, constraints=(*self.constraints, text))

    def with_instruction(self, text: str) -> "TaskContract":
        """Add guidance of the repository."""
        return attrs.evolve(self, instructions=(*self.instructions, text))

    def with_prompt(self, prompt: Prompt) -> "TaskContract":
        """Change the framing."""
        return attrs.evolve(self, prompt=prompt)

    def with_verification(self, verify: Verification) -> "TaskContract":
        """Set the criterion, which decides about success."""
        return attrs.evolve(self, verify=verify)

    def with_conversational(self, conversational: bool | None) -> "TaskContract":
        """Say whether a turn of a session may answer in place of a run."""
        return attrs.evolve(self, conversational=conversational)

    def with_max_steps(self, steps: int) -> "TaskContract":
        """Cap the steps."""
        return attrs.evolve(self, max_steps=steps)

    def with_time_budget(self, seconds: float | None) -> "TaskContract":
        """Cap the time."""
        return attrs.evolve(self, max_duration=seconds)

    def with_token_budget(self, tokens: int | None) -> "TaskContract":
        """Cap the sum over all completions of this agent."""
        return attrs.evolve(self, max_tokens=tokens)

    def with_max_output_tokens(self, tokens: int) -> "TaskContract":
        """Cap the output of one call."""
        return attrs.evolve(self, max_output_tokens=tokens)

    def with_max_retries(self, retries: int) -> "TaskContract":
        """Set how often a call is tried again before its error escalates."""
        return attrs.evolve(self, max_retries=retries)

    def with_retry_policy(self, policy: RetryPolicy) -> "TaskContract":
        """Set the back-off."""
        return attrs.evolve(self, retry=policy)

    def with_stall_policy(self, policy: StallPolicy) -> "TaskContract":
        """Set when the agent goes in circles; a window of 0 switches this off."""
        return attrs.evolve(self, stall=policy)

    def with_context_budget(self, budget: ContextBudget) -> "TaskContract":
        """Set what one request carries."""
        return attrs.evolve(self, context=budget)

    def with_compaction(self, compaction: Compaction) -> "TaskContract":
        """Set when old observations are summed up."""
        return attrs.evolve(self, compaction=compaction)

    def with_max_read_chars(self, characters: int | None) -> "TaskContract":
        """Cap what one read returns."""
        return attrs.evolve(self, max_read_chars=characters)

    def with_max_wait(self, seconds: float | None) -> "TaskContract":
        """Cap one wait for the mailbox."""
        return attrs.evolve(self, max_wait_secs=seconds)

    def with_memory_caps(self, caps: MemoryCaps) -> "TaskContract":
        """Cap what is noted down for good."""
        return attrs.evolve(self, memory=caps)

    def with_exec_timeout(self, seconds: float) -> "TaskContract":
        """Cap one command."""
        return attrs.evolve(self, exec_timeout=seconds)

    def with_lease_ttl(self, seconds: float) -> "TaskContract":
        """Set how long a lease holds without being renewed."""
        return attrs.evolve(self, lease_ttl=seconds)

    def with_spawn_background_after(self, seconds: float | None) -> "TaskContract":
        """Set after how long a parent goes on beside its child."""
        return attrs.evolve(self, spawn_background_after=seconds)

    def with_detached_spawns(self, allowed: bool) -> "TaskContract":
        """Say whether a parent may go on without waiting for a child."""
        return attrs.evolve(self, detached_spawns=allowed)

    def with_exec_sandbox(self, sandbox: ExecSandbox | None) -> "TaskContract":
        """Set what commands may do to files. A mode that is named must hold, or the run is refused."""
        return attrs.evolve(self, exec_sandbox=sandbox)

    def with_exec_caps(self, caps: ExecCaps) -> "TaskContract":
        """Cap what one command may use."""
        return attrs.evolve(self, exec_caps=caps)

    def with_mcp(self, servers: Sequence[object]) -> "TaskContract":
        """Set the MCP servers. Listing one grants nothing."""
        return attrs.evolve(self, mcp=tuple(servers))

    def with_lsp(self, servers: Sequence[object]) -> "TaskContract":
        """Set the language servers."""
        return attrs.evolve(self, lsp=tuple(servers))

    def with_browser(self, browser: object | None) -> "TaskContract":
        """Set the browser."""
        return attrs.evolve(self, browser=browser)

    def with_tools(self, toolbox: object | None) -> "TaskContract":
        """Set tools of the program's own."""
        return attrs.evolve(self, tools=toolbox)

    def with_skills(self, directory: str | PurePath | None) -> "TaskContract":
        """Set the directory of skills. It grants nothing."""
        return attrs.evolve(self, skills=_as_path_or_none(directory))

    def with_plugins(self, plugins: Sequence[object]) -> "TaskContract":
        """Set the plugins."""
        return attrs.evolve(self, plugins=tuple(plugins))

    def with_agents(self, roster: Agents) -> "TaskContract":
        """Set the named agents. It grants nothing, and does nothing outside a tree."""
        return attrs.evolve(self, agents=roster)

    def with_responder(self, responder: object | None) -> "TaskContract":
        """Set who answers questions, for the whole tree. An answer authorises nothing."""
        return attrs.evolve(self, responder=responder)

    def with_plan_gate(self, gate: object | None) -> "TaskContract":
        """Set who judges a plan before anything is changed."""
        return attrs.evolve(self, plan_gate=gate)

    def with_reviewer(self, reviewer: object | None) -> "TaskContract":
        """Set who reviews."""
        return attrs.evolve(self, reviewer=reviewer)

    def with_tool_hooks(self, hooks: object | None) -> "TaskContract":
        """Set what runs before a tool does."""
        return attrs.evolve(self, tool_hooks=hooks)

    def with_routing(self, routing: Routing | None) -> "TaskContract":
        """Set when another model takes over."""
        return attrs.evolve(self, routing=routing)

    def with_effort(self, effort: str | None) -> "TaskContract":
        """Ask for an effort."""
        return attrs.evolve(self, effort=effort)

    def with_web(self, web: object | None) -> "TaskContract":
        """Set what the provider may do on the web."""
        return attrs.evolve(self, web=web)

    def with_images(self, images: Sequence[object]) -> "TaskContract":
        """Add images, which every request shows."""
        return attrs.evolve(self, images=(*self.images, *images))

    def with_commit_identity(self, name: str, email: str) -> "TaskContract":
        """Set who commits."""
        return attrs.evolve(self, commit_identity=Identity(name, email))

    def with_check_writes(self, check: bool) -> "TaskContract":
        """Say whether a file that was written is looked at by the checker of its language."""
        return attrs.evolve(self, check_writes=check)

    def with_max_parallel_reads(self, reads: int) -> "TaskContract":
        """Cap the reads beside each other; 1 is one after the other."""
        return attrs.evolve(self, max_parallel_reads=reads)

    def with_pause_scope(self, scope: PauseScope) -> "TaskContract":
        """Set who stops when an agent waits for a human."""
        return attrs.evolve(self, pause_scope=scope)

    def with_queue_order(self, order: QueueOrder) -> "TaskContract":
        """Set in which order waiting children get a slot."""
        return attrs.evolve(self, queue_order=order)

    def with_on_unknown_price(self, what: OnUnknownPrice) -> "TaskContract":
        """Set what happens to a call without a known price under a cost ceiling."""
        return attrs.evolve(self, on_unknown_price=what)

    # ── plain form ──────────────────────────────────────────────────────────

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form of files and JSON, with every default written out: a later default changes no old run.

        Raises:
            ConfigError: it holds objects of this process.
        """
        return plain_record(self, "contract")

    @classmethod
    def from_dict(cls, plain: object, at: str = "contract") -> "TaskContract":
        """Read the plain form strictly. With a ``root`` there is no ``file``, and ``verify`` may be left out.

        Raises:
            ConfigError: every problem with the path of its key below ``at``.
        """
        table = dict(as_table(plain, at))
        found = []
        if table.get("root") is not None:
            if table.get("file", table["root"]) != table["root"]:
                found.append((f"{at}.file", "a contract with a root has no file; remove one of them"))
            table.pop("file", None)
        elif "file" not in table:
            found.append((f"{at}.root", "is required; or write file, for work on one file"))
        if "file" not in table:
            table = {"verify": {"kind": CriterionKind.none.value}, **table}
        # A workspace puts its root there, and without either there is a problem already.
        table.setdefault("file", "unused")
        return read_record(cls, table, at, found)
