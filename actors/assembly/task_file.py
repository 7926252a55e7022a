"""A task file becomes a task: read strictly, every problem told with the path of its key.

Paths in the file are relative to the file. Reading opens only the file itself, and
starts nothing. `validate_task` also makes the provider, as a run would: a key that
is missing, or a script that is none, is told there too, and still nothing is sent.
Checks that need two tables are made when both could be read.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from actors.agents.acted_on import unsupported_fields
from actors.agents.agent_files import AgentFile
from actors.agents.contract import TaskContract
from actors.agents.judged_fields import as_table, read_record
from actors.agents.policy import Policy, operator_policy
from actors.agents.roster import AgentDef, Agents
from actors.agents.spawning import NAME as SPAWN
from actors.agents.verification import CriterionKind
from actors.assembly.finding_agents import Found, find_agents
from actors.assembly.provider_spec import (
    PATHS,
    SUPPORTED_PROVIDERS,
    ProviderKind,
    ProviderSpec,
    model_of,
    provider_of,
)
from actors.assembly.reviewer_spec import review_problems
from actors.assembly.rule_notes import rule_notes, rule_problems, unchecked_notes, uncommitted_notes
from actors.assembly.run_settings import TABLES, RunSettings
from actors.assembly.task_document import Problems, read_document
from actors.assembly.task_keys import with_places
from actors.assembly.task_notes import task_notes
from actors.containment.limits import Containment
from actors.containment.prices import OnUnknownPrice, PriceTable
from actors.errors import ConfigError, unknown_key
from actors.providers.model_names import split_model

T = TypeVar("T")
log = logging.getLogger("actors.task")

NOT_YET: Final = "is not supported by this version yet"
MOST_LINE: Final = 400


@attrs.frozen
class Task:
    """A whole task file. ``containment`` None runs one agent; ``policy`` None is the default policy.

    ``reviewer`` is who judges where the criterion is a review. ``notes`` tell what is not done
    of files that the workspace brings along, and what a rule may not say: a place and a text each; they are logged.
    """

    source: Path
    contract: TaskContract
    provider: ProviderSpec
    containment: Containment | None = None
    policy: Policy | None = None
    prices: PriceTable = attrs.Factory(PriceTable)
    run: RunSettings = attrs.Factory(RunSettings)
    reviewer: ProviderSpec | None = None
    notes: tuple[tuple[str, str], ...] = ()


def read_task(path: str | Path, overrides: Sequence[str] = ()) -> Task:
    """Read a task file; ``overrides`` are ``key.path=value`` with a TOML value, or a bare text.

    Raises:
        ConfigError: every problem, each on one line, with the path of its key.
    """
    return _read_task(path, overrides, makes_provider=False)


def _read_task(path: str | Path, overrides: Sequence[str], *, makes_provider: bool) -> Task:
    source = Path(path)
    document: Mapping[str, Any] = {}
    try:
        document = read_document(source, overrides)
        return _Reading(source, document, makes_provider).task()
    except ConfigError as error:
        found = (with_places(problem, document) for problem in error.problems)
        raise ConfigError(*dict.fromkeys((_line(place), _line(text)) for place, text in found)) from None


def validate_task(path: str | Path, overrides: Sequence[str] = ()) -> Problems:
    """List every problem of a task file; empty when it can be run from here, with this environment."""
    return checked_task(path, overrides)[1]


def checked_task(path: str | Path, overrides: Sequence[str] = ()) -> tuple[Task | None, Problems]:
    """Give what `validate_task` lists, and the task when that is nothing."""
    try:
        return _read_task(path, overrides, makes_provider=True), []
    except ConfigError as error:
        return None, list(error.problems)


def _line(text: str) -> str:
    """Give a text as one printable line: keys and values of a file may hold line ends and what drives a terminal."""
    plain = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return plain if len(plain) <= MOST_LINE else f"{plain[: MOST_LINE - 80]}...{plain[-77:]}"


class _Reading:
    """One reading of one document: collects problems, so that all are told at once."""

    def __init__(self, source: Path, document: Mapping[str, Any], makes_provider: bool) -> None:
        self._source = source
        self._document = document
        self._makes_provider = makes_provider
        self._problems: Problems = []
        # Agents that stand in a file of their own.
        self._places: dict[str, AgentFile] = {}

    def task(self) -> Task:
        """Read everything.

        Raises:
            ConfigError: every problem.
        """
        self._problems += [(key, unknown_key(key, TABLES)) for key in self._document if key not in TABLES]
        missing = [name for name in ("contract", "provider") if name not in self._document]
        self._problems += [(name, f"is required: write a [{name}] table") for name in missing]
        contract = self._read("contract", self._contract)
        containment = self._read("containment", Containment.from_dict)
        provider = self._read("provider", self._provider)
        reviewer = self._read("reviewer", self._provider)
        policy = self._read("policy", operator_policy)
        prices = self._read("prices", PriceTable.from_dict)
        run = self._read("run", lambda plain, at: read_record(RunSettings, plain, at))
        roster = self._read("agents", lambda plain, at: self._roster(plain, at, provider))
        if contract is not None and roster is not None:
            contract = contract.with_agents(roster)
        if contract is not None and provider is not None:
            contract = self._routed(contract, provider)
        settings = run or RunSettings()
        found = Found()
        if contract is not None and containment is not None and settings.agents_from_files:
            found = self._found(contract, policy or Policy.default())
            contract = contract.with_agents(self._merged(contract.agents, found, provider))
        if contract is not None:
            self._check_contract(contract, containment, policy)
            self._check_prices(contract, containment, provider, prices, reviewer)
            self._problems += review_problems(contract, provider, reviewer, "reviewer" in self._document)
            if contract.root is not None and policy is not None:
                self._problems += rule_problems(policy, str(contract.root))
        if self._problems or contract is None or provider is None:
            raise ConfigError(*self._problems)
        ruled = rule_notes(policy, str(contract.root)) if contract.root is not None and policy is not None else []
        empty = task_notes(contract, containment, self._place_of)
        asked = contract, policy or Policy.default(), settings.approve
        empty += unchecked_notes(*asked)
        if containment is not None:
            empty += uncommitted_notes(*asked, self._place_of)
        notes = tuple((_line(place), _line(text)) for place, text in (*empty, *ruled, *found.notes))
        for place, text in notes:
            log.warning("%s: %s", place, text)
        return Task(
            self._source, contract, provider, containment, policy, prices or PriceTable(), settings, reviewer, notes
        )

    def _read(self, name: str, read: Callable[[Any, str], T]) -> T | None:
        if name not in self._document:
            return None
        try:
            return read(self._document[name], name)
        except ConfigError as error:
            self._problems += error.problems
            return None

    def _placed(self, path: str) -> str:
        joined = self._source.parent / path
        try:
            return str(joined.resolve())
        except (OSError, ValueError, RuntimeError):
            # A NUL, or links in a circle: whoever judges the path says so, with its key.
            return str(joined)

    # ── the tables that are more than a record ──────────────────────────────

    def _contract(self, plain: Any, at: str) -> TaskContract:
        table = dict(as_table(plain, at))
        found: Problems = []
        if table.get("agents"):
            found.append((f"{at}.agents", "named agents stand in tables of their own; write [agents.NAME]"))
            del table["agents"]
        for key in ("root", "file"):
            if isinstance(table.get(key), str) and table[key]:
                table[key] = self._placed(table[key])
        try:
            contract = TaskContract.from_dict(table, at)
        except ConfigError as error:
            found += error.problems
        told = {place for place, _text in found}
        found += [problem for problem in _place_problems(table, at) if problem[0] not in told]
        if found:
            raise ConfigError(*found)
        return contract

    def _provider(self, plain: Any, at: str) -> ProviderSpec:
        spec = read_record(ProviderSpec, plain, at)
        placed: dict[str, Any] = {key: self._placed(path) for key in PATHS if (path := getattr(spec, key))}
        spec = attrs.evolve(spec, **placed)
        problems = _provider_problems(spec, at)
        try:
            model = None if spec.model is None else _own_model(spec.model, spec.kind, f"{at}.model")
        except ConfigError as error:
            problems += error.problems
        if not problems and self._makes_provider:
            try:
                # As a run does. Nothing is opened but a script.
                provider_of(spec)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        return attrs.evolve(spec, model=model)

    def _roster(self, plain: Any, at: str, provider: ProviderSpec | None) -> Agents:
        roster = Agents.from_dict(plain, at)
        if provider is None:
            return roster
        problems: Problems = []
        for agent in roster:
            try:
                roster = roster.with_agent(_with_own_model(agent, provider.kind, f"{at}.{agent.name}.model"))
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(*problems)
        return roster

    def _routed(self, contract: TaskContract, provider: ProviderSpec) -> TaskContract:
        """Give the other models that may be asked without the provider in front of their names."""
        if contract.routing is None:
            return contract
        own: dict[str, Any] = {}
        for field, model in contract.routing.models.items():
            try:
                own[field] = _own_model(model, provider.kind, f"contract.routing.{field}")
            except ConfigError as error:
                self._problems += error.problems
        return contract.with_routing(attrs.evolve(contract.routing, **own))

    def _found(self, contract: TaskContract, policy: Policy) -> Found:
        """Read the named agents that the workspace brings along, as far as the policy lets them be read."""
        root = contract.root
        if root is None or not os.path.isdir(root):
            return Found()
        try:
            return find_agents(str(root), policy)
        except ConfigError as error:
            self._problems += error.problems
            return Found()

    def _merged(self, roster: Agents, found: Found, provider: ProviderSpec | None) -> Agents:
        """Add the agents that were found to those of the operator, who wins."""
        for file in found.files:
            agent = file.definition
            if roster.get(agent.name) is not None:
                continue
            self._places[agent.name] = file
            try:
                if provider is not None:
                    agent = _with_own_model(agent, provider.kind, file.place("model"))
            except ConfigError as error:
                self._problems += error.problems
            roster = roster.with_agent(agent)
        return roster

    def _place_of(self, agent: str, key: str) -> str:
        file = self._places.get(agent)
        return f"agents.{agent}.{key}" if file is None else file.place(key)

    # ── checks between tables ───────────────────────────────────────────────

    def _check_contract(self, contract: TaskContract, containment: Containment | None, policy: Policy | None) -> None:
        # In a file the roster is a table of its own.
        self._problems += [(self._placed_key(place), text) for place, text in unsupported_fields(contract)]
        for agent in contract.agents:
            if text := _tools_problem(agent.tools or ()):
                self._problems.append((self._place_of(agent.name, "tools"), text))
        alone = containment is None and contract.verify.kind is CriterionKind.none
        if alone and contract.routing is not None and contract.routing.escalate_after is not None:
            text = "counts checks, and none is made: give contract.verify a kind, or remove it"
            self._problems.append(("contract.routing.escalate_after", text))
        if contract.is_single_file:
            if containment is not None:
                self._problems.append(("contract.root", "is required for a tree: remove [containment], or give a root"))
            if policy is not None and not policy.is_permissive:
                self._problems.append(("policy", "single-file work enforces no policy; give contract.root, or drop it"))

    def _placed_key(self, place: str) -> str:
        if not place.startswith("contract.agents."):
            return place
        _, _, name, key = place.split(".", 3)
        return self._place_of(name, key)

    def _check_prices(
        self,
        contract: TaskContract,
        containment: Containment | None,
        provider: ProviderSpec | None,
        prices: PriceTable | None,
        reviewer: ProviderSpec | None,
    ) -> None:
        if containment is None or containment.max_total_cost is None:
            return
        if contract.on_unknown_price is not OnUnknownPrice.refuse:
            return
        models: dict[str, str | None] = {}
        # What a replay answers as stands in its file; the run looks there.
        if provider is not None and provider.kind is not ProviderKind.replay:
            models["provider.model"] = model_of(provider)
        if reviewer is not None and reviewer.kind is not ProviderKind.replay:
            models["reviewer.model"] = model_of(reviewer)
        named_agents = [agent for agent in contract.agents if agent.model is not None]
        models |= {self._place_of(agent.name, "model"): agent.model for agent in named_agents}
        if contract.routing is not None:
            models |= {f"contract.routing.{field}": model for field, model in contract.routing.models.items()}
        nameless = [place for place, model in models.items() if model is None]
        self._problems += [(place, "is required: a cost ceiling needs to know the model's price") for place in nameless]
        if "prices" not in self._document:
            named = [_quoted(model) for model in dict.fromkeys(models.values()) if model is not None] or ['"MODEL"']
            tables = ", ".join(f"[prices.{name}]" for name in named)
            text = f"no price is known for {', '.join(named)}, and containment.max_total_cost is set; add {tables}"
            self._problems.append(("prices", text))
        elif prices is not None:
            for place, model in models.items():
                if model is not None and prices.get(model) is None:
                    name = _quoted(model)
                    text = f"no price is known for {name}, and containment.max_total_cost is set; add [prices.{name}]"
                    self._problems.append((place, text))


def _tools_problem(names: Sequence[str]) -> str | None:
    if not names:
        return None
    # Loaded for whoever names tools: most files can be checked without a single one.
    from actors.tools.toolbox import tool_names

    known = tool_names() | {SPAWN}
    unknown = [name for name in names if name not in known]
    return f"there is no tool {', '.join(unknown)}; the tools are {', '.join(sorted(known))}" if unknown else None


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _place_problems(table: Mapping[str, Any], at: str) -> Problems:
    """Look whether a root is a directory, and whether a file may stand where it is said to. Opens nothing."""
    root, file = table.get("root"), table.get("file")
    # These answer False where the methods of Path raise: a name that is too long, a part that may not be searched.
    if isinstance(root, str):
        return [] if os.path.isdir(root) else [(f"{at}.root", f"{root} is not a directory")]
    if not isinstance(file, str):
        return []
    if os.path.isdir(file):
        return [(f"{at}.file", f"{file} is a directory; name a file, or write root for a workspace")]
    above = os.path.dirname(file)
    return [] if os.path.isdir(above) else [(f"{at}.file", f"{above} is not a directory")]


def _own_model(text: str, kind: ProviderKind, at: str) -> str:
    """Give the name of a model without the provider in front of it, which must be the one of this task.

    Raises:
        ConfigError: no model is named, or the model of another provider.
    """
    try:
        named = split_model(text)
    except ConfigError as error:
        raise ConfigError(*((at, said) for _place, said in error.problems)) from None
    # A replay goes by the name of the provider that was recorded.
    if named.provider is not None and named.provider != kind and kind is not ProviderKind.replay:
        # At a gateway the name of the model itself may begin like this.
        other = f"names the provider {named.provider}, and provider.kind is {kind}"
        raise ConfigError((at, f"{other}; if this is the model's own name, write {kind}:{text}"))
    return named.model


def _with_own_model(agent: AgentDef, kind: ProviderKind, at: str) -> AgentDef:
    return agent if agent.model is None else agent.with_model(_own_model(agent.model, kind, at))


def _provider_problems(spec: ProviderSpec, at: str) -> Problems:
    problems: Problems = []
    if spec.kind not in SUPPORTED_PROVIDERS:
        known = ", ".join(sorted(SUPPORTED_PROVIDERS))
        return [(f"{at}.kind", f"{spec.kind} {NOT_YET}; use one of {known}")]
    if spec.kind is ProviderKind.compatible and spec.base_url is None:
        problems.append((f"{at}.base_url", "is required for a compatible endpoint"))
    if spec.kind is ProviderKind.scripted:
        problems += _file_problems(spec.script, f"{at}.script", "the JSON file with the answers")
        if spec.base_url is not None:
            problems.append((f"{at}.base_url", "a scripted provider opens no connection; remove it"))
    elif spec.script is not None:
        problems.append((f"{at}.script", 'is for kind = "scripted" only; remove it'))
    return problems + _replay_problems(spec, at)


def _replay_problems(spec: ProviderSpec, at: str) -> Problems:
    if spec.kind is not ProviderKind.replay:
        return [] if spec.file is None else [(f"{at}.file", 'is for kind = "replay" only; remove it')]
    problems = _file_problems(spec.file, f"{at}.file", "the file that a run was recorded into")
    if spec.base_url is not None:
        problems.append((f"{at}.base_url", "a replay opens no connection; remove it"))
    if spec.model is not None:
        problems.append((f"{at}.model", "a replay answers as the model that was recorded; remove it"))
    return problems


def _file_problems(path: str | None, at: str, what: str) -> Problems:
    if path is None:
        return [(at, f"is required: {what}")]
    return [] if os.path.isfile(path) else [(at, f"{path} is not a file")]
