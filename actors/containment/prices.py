"""What a model's tokens cost. Pure.

Prices are dollar texts per million tokens, kept as whole microdollars per
million tokens; each call is rounded up to a whole microdollar. A model that is
not in the table has no price: unknown is not free, and a true zero is written
as "0".
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from actors.containment.ledger_state import PER_MILLION, Quote
from actors.containment.limits import dollars, microdollars
from actors.containment.usage import Usage
from actors.errors import ConfigError, unknown_key


class OnUnknownPrice(StrEnum):
    """What happens to a call whose model has no price while a cost ceiling stands."""

    refuse = "refuse"
    # Such calls are counted, and only the token ceiling binds them.
    tokens_only = "tokens_only"


@attrs.frozen
class Tier:
    """Rates from a prompt length on; they price the whole request. Microdollars per million tokens."""

    floor: int
    input: int
    output: int
    cached_input: int | None = None


@attrs.frozen
class Price:
    """The rates of one model. ``request`` is microdollars for each server-side tool request."""

    tiers: tuple[Tier, ...]
    request: int = 0

    def tier(self, prompt_tokens: int) -> Tier:
        """Find the tier with the highest floor that the prompt reaches."""
        return max((tier for tier in self.tiers if tier.floor <= prompt_tokens), key=lambda tier: tier.floor)

    def cost(self, usage: Usage) -> int:
        """Price one call in microdollars, rounded up."""
        tier = self.tier(usage.prompt_tokens)
        cached_rate = tier.input if tier.cached_input is None else tier.cached_input
        cached = min(usage.cache_read_tokens, usage.prompt_tokens)
        # What a total names beyond prompt and completion was said by the model too.
        said = usage.tokens - usage.prompt_tokens
        exact = (usage.prompt_tokens - cached) * tier.input + cached * cached_rate + said * tier.output
        return -(-exact // PER_MILLION) + usage.server_tool_requests * self.request

    def quote(self, prompt_tokens: int, output_tokens: int, minimal_output: int) -> Quote:
        """Quote the worst case: nothing cached, the dearest tier that such a prompt can reach."""
        reached = [tier for tier in self.tiers if tier.floor <= prompt_tokens]
        dearest_in = max(tier.input for tier in reached)
        dearest_out = max(tier.output for tier in reached)
        return Quote(prompt_tokens, output_tokens, minimal_output, dearest_in, dearest_out)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form that a file has."""
        base, *tiers = self.tiers
        plain: dict[str, Any] = _rates_of(base)
        if self.request:
            plain["request"] = dollars(self.request)
        if tiers:
            plain["tiers"] = [{"floor": tier.floor, **_rates_of(tier)} for tier in tiers]
        return plain


class PriceTable:
    """The prices an operator gave, by model name.

    Example::

        PriceTable.from_dict({"gpt-5.6": {"input": "0.15", "output": "0.60"}})
    """

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        self._prices = dict(prices or {})

    def __len__(self) -> int:
        return len(self._prices)

    def get(self, model: str | None) -> Price | None:
        """Find the price of a model, None when it is unknown."""
        return None if model is None else self._prices.get(model)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form that a file has; `from_dict` reads it back."""
        return {name: price.to_dict() for name, price in self._prices.items()}

    @classmethod
    def from_dict(cls, plain: object, at: str = "prices") -> "PriceTable":
        """Read the ``[prices]`` part of a task file strictly.

        Raises:
            ConfigError: every problem with the path of its key.
        """
        if not isinstance(plain, Mapping):
            raise ConfigError((at, "must be a table of models"))
        problems: list[tuple[str, str]] = []
        prices = {str(name): _price(entry, f'{at}."{name}"', problems) for name, entry in plain.items()}
        if problems:
            raise ConfigError(*problems)
        return cls({name: price for name, price in prices.items() if price is not None})


_RATES = ("input", "output", "cached_input")


def _rates_of(tier: Tier) -> dict[str, str]:
    rates = {name: getattr(tier, name) for name in _RATES}
    return {name: dollars(rate) for name, rate in rates.items() if rate is not None}


def _price(entry: object, at: str, problems: list[tuple[str, str]]) -> Price | None:
    if not isinstance(entry, Mapping):
        problems.append((at, "must be a table with input and output"))
        return None
    known = (*_RATES, "request", "tiers")
    problems.extend((f"{at}.{key}", unknown_key(key, known)) for key in sorted(set(entry) - set(known), key=str))
    base = _tier(entry, at, 0, problems)
    tiers = [base] if base is not None else []
    listed = entry.get("tiers", [])
    if not isinstance(listed, list):
        problems.append((f"{at}.tiers", "must be a list of tables with floor, input and output"))
        return None
    for number, plain in enumerate(listed):
        place = f"{at}.tiers[{number}]"
        if not isinstance(plain, Mapping) or type(plain.get("floor")) is not int or plain["floor"] < 1:
            problems.append((f"{place}.floor", "must be a prompt length in tokens, at least 1"))
            continue
        rates = (*_RATES, "floor")
        problems.extend((f"{place}.{key}", unknown_key(key, rates)) for key in sorted(set(plain) - set(rates), key=str))
        tier = _tier(plain, place, plain["floor"], problems)
        tiers += [tier] if tier is not None else []
    request = _rate(entry, "request", at, problems) or 0
    return Price(tuple(tiers), request) if tiers else None


def _tier(plain: Mapping[str, Any], at: str, floor: int, problems: list[tuple[str, str]]) -> Tier | None:
    rates = {name: _rate(plain, name, at, problems) for name in _RATES}
    missing = [name for name in ("input", "output") if name not in plain]
    wanted = 'is required: dollars per million tokens as text, such as "0.15"'
    problems.extend((f"{at}.{name}", wanted) for name in missing)
    if rates["input"] is None or rates["output"] is None:
        return None
    return Tier(floor, rates["input"], rates["output"], rates["cached_input"])


def _rate(plain: Mapping[str, Any], name: str, at: str, problems: list[tuple[str, str]]) -> int | None:
    if name not in plain:
        return None
    try:
        return microdollars(plain[name])
    except ValueError as error:
        problems.append((f"{at}.{name}", str(error)))
        return None
