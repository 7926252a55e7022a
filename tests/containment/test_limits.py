"""Containment: strict, stable, and never read in the wrong unit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.containment.limits import Containment, dollars, microdollars
from actors.errors import ConfigError

PLAIN: dict[str, Any] = {"max_total_agents": 12, "max_concurrent": 4, "max_depth": 2, "max_total_tokens": 200_000}


def problems(plain: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        Containment.from_dict(plain)
    return dict(caught.value.problems)


def test_C1_reads_back_what_it_wrote() -> None:
    limits = Containment(12, 4, 2, 200_000)
    assert limits.max_total_tokens == 200_000
    assert limits.max_total_cost is None
    assert Containment.from_json(limits.to_json()) == limits


def test_C8_keeps_cost_and_duration() -> None:
    limits = Containment(10, 4, 3, 100, max_total_cost=500, max_total_duration=3600)
    assert '"max_total_cost": "0.0005"' in limits.to_json()
    assert Containment.from_json(limits.to_json()) == limits


def test_C9_reads_the_stored_forms_of_another_system() -> None:
    limits = Containment.from_dict(
        {
            "max_total_agents": 1,
            "max_concurrent_agents": 3,
            "max_depth": 1,
            "max_total_tokens": 2**64 - 1,
            "max_total_cost": None,
            "max_total_duration": {"secs": 3600, "nanos": 0},
        }
    )
    assert limits.max_total_duration == 3600.0
    assert limits.max_total_cost is None
    assert limits.max_total_tokens == 2**64 - 1
    assert limits.max_concurrent == 3


def test_a_cap_of_no_workers_is_read_as_one() -> None:
    assert Containment(1, 0, 0, 0).max_concurrent == 1


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"max_depht": 3}, "containment.max_depht", "unknown key"),
        ({"max_depth": -1}, "containment.max_depth", "negative"),
        ({"max_depth": True}, "containment.max_depth", "whole number"),
        ({"max_depth": "2"}, "containment.max_depth", "whole number"),
        ({"max_depth": 2.0}, "containment.max_depth", "whole number"),
        ({"max_depth": None}, "containment.max_depth", "null"),
        ({"max_total_tokens": 2**64}, "containment.max_total_tokens", "too large"),
        ({"max_total_cost": 1.5}, "containment.max_total_cost", '"1.50"'),
        ({"max_total_cost": 2}, "containment.max_total_cost", '"1.50"'),
        ({"max_total_cost": "-1"}, "containment.max_total_cost", "decimal"),
        ({"max_total_cost": "1e3"}, "containment.max_total_cost", "decimal"),
        ({"max_total_cost": "NaN"}, "containment.max_total_cost", "decimal"),
        ({"max_total_cost": "0.0000001"}, "containment.max_total_cost", "finer"),
        ({"max_total_duration": float("inf")}, "containment.max_total_duration", "finite"),
        ({"max_total_duration": -1}, "containment.max_total_duration", "negative"),
        ({"max_total_duration": {"secs": 1}}, "containment.max_total_duration", "secs and nanos"),
        ({"max_total_calls": 1.5}, "containment.max_total_calls", "whole number"),
        ({"max_concurrent_agents": 5}, "containment.max_concurrent_agents", "differs"),
    ],
)
def test_refuses_bad_input_with_the_path_of_the_key(change: dict[str, Any], path: str, says: str) -> None:
    assert says in problems({**PLAIN, **change})[path]


def test_tells_all_problems_at_once() -> None:
    assert set(problems({"max_depth": -1, "x": 1})) == {
        "containment.x",
        "containment.max_depth",
        "containment.max_total_agents",
        "containment.max_concurrent",
        "containment.max_total_tokens",
    }


@pytest.mark.parametrize("text", ['{"max_depth": 1, "max_depth": 2}', '{"max_depth": NaN}', "[1]", "{"])
def test_refuses_json_that_is_not_plain(text: str) -> None:
    with pytest.raises(ConfigError):
        Containment.from_json(text)


@pytest.mark.parametrize("value", [True, 1.0, "1", -1])
def test_python_values_are_exact_too(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Containment(1, 1, 1, value)  # type: ignore[arg-type]


@given(st.integers(0, 2**63 - 1))
def test_money_survives_its_text(amount: int) -> None:
    assert microdollars(dollars(amount)) == amount


amounts = st.integers(0, 10**9)
optional = st.none() | amounts


any_containment = st.builds(
    Containment, amounts, amounts, amounts, st.integers(0, 2**64 - 1), optional, optional, optional, optional
)


@given(any_containment)
def test_any_containment_survives_json(limits: Containment) -> None:
    again = Containment.from_json(limits.to_json())
    assert again == limits
    assert again.to_json() == limits.to_json()
