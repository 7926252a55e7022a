"""Prices: whole microdollars, rounded up; unknown is not free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.containment.prices import PriceTable
from actors.containment.usage import Usage
from actors.errors import ConfigError

TABLE = PriceTable.from_dict(
    {
        "m": {"input": "0.15", "output": "0.60", "cached_input": "0.05"},
        "long": {"input": "1", "output": "2", "tiers": [{"floor": 1000, "input": "3", "output": "4"}]},
        "local": {"input": "0", "output": "0"},
        "tools": {"input": "0", "output": "0", "request": "0.01"},
    }
)


def cost(model: str, usage: Usage) -> int:
    price = TABLE.get(model)
    assert price is not None
    return price.cost(usage)


def test_prices_a_call_and_rounds_up() -> None:
    assert cost("m", Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)) == 750_000
    assert cost("m", Usage(prompt_tokens=1)) == 1
    assert cost("local", Usage(prompt_tokens=10**6)) == 0


def test_cached_tokens_are_part_of_the_prompt_and_cheaper() -> None:
    assert cost("m", Usage(prompt_tokens=1_000_000, cache_read_tokens=1_000_000)) == 50_000


def test_the_highest_floor_reached_prices_the_whole_request() -> None:
    assert cost("long", Usage(prompt_tokens=999_000_000)) == 3 * 999 * 1_000_000
    assert cost("long", Usage(prompt_tokens=999)) == 999


def test_server_side_requests_are_billed_each() -> None:
    assert cost("tools", Usage(server_tool_requests=3)) == 30_000


def test_an_unknown_model_has_no_price() -> None:
    assert TABLE.get("other") is None
    assert TABLE.get(None) is None


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"m": {"input": 0.15, "output": "1"}}, 'prices."m".input'),
        ({"m": {"output": "1"}}, 'prices."m".input'),
        ({"m": {"input": "1", "output": "-1"}}, 'prices."m".output'),
        ({"m": {"input": "1", "output": "1", "x": "1"}}, 'prices."m".x'),
        ({"m": 3}, 'prices."m"'),
        ({"m": {"input": "1", "output": "1", "tiers": [{"floor": 0}]}}, 'prices."m".tiers[0].floor'),
    ],
)
def test_refuses_a_bad_table_with_the_path(plain: object, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PriceTable.from_dict(plain)
    assert path in dict(caught.value.problems)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_quote_is_never_below_what_the_call_can_cost(prompt: int, output: int, cached: int) -> None:
    for model in ("m", "long"):
        price = TABLE.get(model)
        assert price is not None
        usage = Usage(prompt_tokens=prompt, completion_tokens=output, cache_read_tokens=min(cached, prompt))
        assert price.quote(prompt, output, 1).microdollars(output) >= price.cost(usage)


@given(st.integers(0, 10**5), st.integers(1, 10**4), st.integers(0, 10**6))
def test_affordable_output_is_the_most_that_fits(prompt: int, output: int, money: int) -> None:
    price = TABLE.get("m")
    assert price is not None
    quote = price.quote(prompt, output, 1)
    most = quote.affordable_output(money)
    if most >= 0:
        assert quote.microdollars(most) <= money
    if most < output:
        assert quote.microdollars(most + 1) > money
