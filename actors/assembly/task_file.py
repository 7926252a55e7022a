"""A task file becomes a task: read strictly, every problem told with the path of its key.

Paths in the file are relative to the file. Nothing is opened but the file
itself, and nothing is started.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from actors.agents.contract import TaskContract, unsupported_fields
from actors.agents.judged_fields import (
    as_float,
    as_member,
    as_table,
    judged,
    one_of,
    optional,
    read_record,
    said_problem,
    seconds_problem,
    unknown_key,
)
from actors.agents.policy import Policy, operator_policy
from actors.agents.roster import Agents
from actors.containment.limits import Containment
from actors.containment.prices import OnUnknownPrice, PriceTable
from actors.errors import ConfigError
from actors.providers.model_names import split_model

T = TypeVar("T")
Problems = list[tuple[str, str]]

NOT_YET: Final = "is not supported by this version yet"


class ProviderKind(StrEnum):
    """Where answers come from."""

    openai = "openai"
    anthropic = "anthropic"
    openrouter = "openrouter"
    compatible = "compatible"
    scripted = "scripted"
    replay = "replay"


SUPPORTED_PROVIDERS: Final = frozenset({ProviderKind.openai, ProviderKind.compatible, ProviderKind.scripted})


class ApproveMode(StrEnum):
    """Who answers where the policy says ask."""

    ask = "ask"
    all = "all"
    deny = "deny"


@attrs.frozen
class ProviderSpec:
    """The ``[provider]`` table."""

    kind: ProviderKind = judged(one_of(ProviderKind), converter=as_member(ProviderKind))
    model: str | None = judged(optional(said_problem), None)
    base_url: str | None = judged(optional(said_problem), None)
    script: str | None = judged(optional(said_problem), None)


@attrs.frozen
class RunSettings:
    """The ``[run]`` table. ``approve`` None asks on a terminal and denies elsewhere."""

    cleanup_allowance: float = judged(seconds_problem, 5.0, converter=as_float)
    approve: ApproveMode | None = judged(optional(one_of(ApproveMode)), None, converter=as_member(ApproveMode))


@attrs.frozen
class Task:
    """A whole task file. ``containment`` None runs one agent; ``policy`` None is the default policy."""

    source: Path
    contract: TaskContract
    provider: ProviderSpec
    containment: Containment | None = None
    policy: Policy | None = None
    prices: PriceTable = attrs.Factory(PriceTable)
    run: RunSettings = attrs.Factory(RunSettings)


TABLES: Final = ("contract", "containment", "provider", "policy", "prices", "run", "agents")


def read_task(path: str | Path, overrides: Sequence[str] = ()) -> Task:
    """Read a task file; ``overrides`` are ``key.path=value`` with a TOML value, or a bare text.

    Raises:
        ConfigError: every problem, with the path of its key.
    """
    source = Path(path)
    document = _parse(source)
    _override(document, overrides)
    return _Reading(source, document).task()


def validate_task(path: str | Path, overrides: Sequence[str] = ()) -> Problems:
    """List every problem of a task file; empty when it can be run."""
    try:
        read_task(path, overrides)
    except ConfigError as error:
        return list(error.problems)
    return []


def _parse(source: Path) -> dict[str, Any]:
    place = str(source)
    try:
        return tomllib.loads(source.read_bytes().decode())
    except FileNotFoundError:
        raise ConfigError((place, "there is no such file")) from None
    except IsADirectoryError:
        raise ConfigError((place, "is a directory; name a task file")) from None
    except OSError as error:
        raise ConfigError((place, f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise ConfigError((place, f"is not UTF-8 (at byte {error.start})")) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError((place, f"is no TOML: {error}")) from None


def _override(document: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set single values. A key that nobody knows is refused when the document is read."""
    for text in overrides:
        key, equals, raw = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError((f"--set {text}", "must be KEY=VALUE, such as contract.max_steps=3"))
        table = document
        for part in parts[:-1]:
            below = table.setdefault(part, {})
            if not isinstance(below, dict):
                raise ConfigError((f"--set {key}", f"{part} is not a table"))
            table = below
        table[parts[-1]] = _value(raw)


def _value(raw: str) -> Any:
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        # A bare word is a text: --set provider.model=small
        return raw


class _Reading:
    """One reading of one document: collects problems, so that all are told at once."""

    def __init__(self, source: Path, document: Mapping[str, Any]) -> None:
        self._source = source
        self._document = document
        self._problems: Problems = []

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
        policy = self._read("policy", operator_policy)
        prices = self._read("prices", PriceTable.from_dict) or PriceTable()
        run = self._read("run", lambda plain, at: read_record(RunSettings, plain, at)) or RunSettings()
        if contract is not None:
            self._check_contract(contract, containment, policy)
            self._check_prices(contract, containment, provider, prices)
        if self._problems or contract is None or provider is None:
            raise ConfigError(*dict.fromkeys(self._problems))
        return Task(self._source, contract, provider, containment, policy, prices, run)

    def _read(self, name: str, read: Callable[[Any, str], T]) -> T | None:
        if name not in self._document:
            return None
        try:
            return read(self._document[name], name)
        except ConfigError as error:
            self._problems += error.problems
            return None

    def _placed(self, path: str) -> str:
        return str((self._source.parent / path).resolve())

    def _contract(self, plain: Any, at: str) -> TaskContract:
        table = dict(as_table(plain, at))
        for key in ("root", "file"):
            if isinstance(table.get(key), str) and table[key]:
                table[key] = self._placed(table[key])
        contract = TaskContract.from_dict(table, at)
        roster = self._read("agents", Agents.from_dict)
        if roster is None:
            return contract
        if len(contract.agents):
            raise ConfigError((f"{at}.agents", "named agents stand in [agents.NAME]; remove one of the two"))
        return contract.with_agents(roster)

    def _provider(self, plain: Any, at: str) -> ProviderSpec:
        spec = read_record(ProviderSpec, plain, at)
        problems = _provider_problems(spec, at)
        if problems:
            raise ConfigError(*problems)
        if spec.script is not None:
            spec = attrs.evolve(spec, script=self._placed(spec.script))
        if spec.model is not None:
            named = split_model(spec.model)
            if named.provider is not None and named.provider != spec.kind:
                raise ConfigError((f"{at}.model", f"names the provider {named.provider}, and {at}.kind is {spec.kind}"))
            spec = attrs.evolve(spec, model=named.model)
        return spec

    def _check_contract(
        self, contract: TaskContract, containment: Containment | None, policy: Policy | None
    ) -> None:
        self._problems += [
            (f"agents.{path.removeprefix('contract.agents.')}" if path.startswith("contract.agents.") else path, text)
            for path, text in unsupported_fields(contract)
        ]
        if contract.root is not None and not contract.root.is_dir():
            self._problems.append(("contract.root", f"{contract.root} is not a directory"))
        if contract.is_single_file:
            if containment is not None:
                self._problems.append(("contract.root", "is required for a tree: remove [containment], or give a root"))
            if policy is not None and not policy.is_permissive:
                self._problems.append(("policy", "single-file work enforces no policy; give contract.root, or drop it"))
            if not contract.file.parent.is_dir():
                self._problems.append(("contract.file", f"{contract.file.parent} is not a directory"))

    def _check_prices(
        self,
        contract: TaskContract,
        containment: Containment | None,
        provider: ProviderSpec | None,
        prices: PriceTable,
    ) -> None:
        if containment is None or containment.max_total_cost is None:
            return
        if contract.on_unknown_price != OnUnknownPrice.refuse or provider is None:
            return
        if not len(prices) and "prices" not in self._document:
            self._problems.append(("prices", "a cost ceiling needs the price of every model: add [prices.\"MODEL\"]"))
            return
        models = {"provider.model": provider.model or ("configured-model" if provider.kind == "scripted" else None)}
        models |= {f"agents.{agent.name}.model": agent.model for agent in contract.agents if agent.model is not None}
        for place, model in models.items():
            if model is None:
                self._problems.append((place, "is required: a cost ceiling needs to know the model's price"))
            elif prices.get(model) is None:
                text = f"no price is known for {model!r}, and containment.max_total_cost is set; add [prices.{model!r}]"
                self._problems.append((place, text.replace("'", '"')))


def _provider_problems(spec: ProviderSpec, at: str) -> Problems:
    problems: Problems = []
    if spec.kind not in SUPPORTED_PROVIDERS:
        known = ", ".join(sorted(SUPPORTED_PROVIDERS))
        return [(f"{at}.kind", f"{spec.kind} {NOT_YET}; use one of {known}")]
    if spec.kind is ProviderKind.compatible and spec.base_url is None:
        problems.append((f"{at}.base_url", "is required for a compatible endpoint"))
    if spec.kind is ProviderKind.scripted:
        if spec.script is None:
            problems.append((f"{at}.script", "is required: the JSON file with the answers"))
        if spec.base_url is not None:
            problems.append((f"{at}.base_url", "a scripted provider opens no connection; remove it"))
    elif spec.script is not None:
        problems.append((f"{at}.script", "is for kind = \"scripted\" only; remove it"))
    return problems
