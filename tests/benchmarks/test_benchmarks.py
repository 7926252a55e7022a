"""Every benchmark runs, small, and says what its line must say."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.harness import Figure, Gate

KEYS = {"name", "value", "unit", "baseline", "ratio", "n", "method", "gate", "met"}


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.skipif(not os.path.exists("/bin/sh"), reason="needs /bin/sh for the command that is cut")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_prints_one_json_object_a_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--quick", "--json"]) == 0
    figures = lines(capsys)
    assert figures
    for figure in figures:
        assert set(figure) == KEYS
        assert isinstance(figure["name"], str) and figure["method"] and figure["unit"]
        assert isinstance(figure["value"], (int, float)) and figure["value"] >= 0
        assert type(figure["n"]) is int and figure["n"] > 0
        assert (figure["gate"] is None) == (figure["met"] is None)
    # Figures of time depend on the machine; those that are exact must be so everywhere.
    exact = [figure for figure in figures if figure["gate"] is not None and "==" in figure["gate"]]
    assert [figure["name"] for figure in exact if not figure["met"]] == []
    assert bool(exact) == (name in ("ceilings", "slots", "dead_actors", "million"))


def test_ceilings_are_reached_and_not_only_approached(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ceilings", "--quick", "--json"])
    by_name = {figure["name"]: figure for figure in lines(capsys)}
    for axis in ("calls", "agents", "depth", "working"):
        method = by_name[f"ceilings_{axis}_100"]["method"]
        _, _, rest = method.partition("reached ")
        reached, _, ceiling = rest.partition(" under ")
        assert reached == ceiling.partition(";")[0], method


def test_the_list_names_them_all_and_says_of_each_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in listed] == list(BENCHMARKS)
    assert all(len(told) > 20 for _, told in listed)
    assert dict(listed)["spawn"] == "Spawn, run and end of contained leaves, beside raw trio's task with a nursery of its own."


def test_the_columns_have_headings_also_when_names_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "ledger", "memory"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "value", "unit", "baseline", "ratio", "gate", "kept", "n"]
    # Each row begins its figures where the heading says so.
    assert rows and all(row[:32].strip() == row.split()[0] for row in rows)
    assert all(row.index("n=") == heading.index(" n") + 1 for row in rows)


def test_a_run_without_names_leaves_out_what_takes_minutes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stand_in(name: str) -> Callable[[bool], Iterator[Figure]]:
        return lambda _quick: iter([Figure(name, 1.0, "us", None, None, 1, "m")])

    for name in BENCHMARKS:
        monkeypatch.setitem(BENCHMARKS, name, stand_in(name))
    assert main(["--json"]) == 0
    assert [line["name"] for line in lines(capsys)] == [name for name in BENCHMARKS if name != "million"]
    assert main(["--json", "million"]) == 0
    assert [line["name"] for line in lines(capsys)] == ["million"]


def test_an_unknown_name_is_refused_and_the_known_ones_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["spwan"])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "'spwan'" in told and "spawn" in told


def test_a_gate_is_kept_or_missed_by_the_number_it_names() -> None:
    def figure(value: float, ratio: float | None, gate: Gate | None) -> Figure:
        return Figure("a", value, "us", 1.0, ratio, 1, "m", gate)

    assert figure(9.0, 2.0, Gate("ratio", "<=", 2.0)).met is True
    assert figure(1.0, 2.1, Gate("ratio", "<=", 2.0)).met is False
    assert figure(5.0, None, Gate("value", ">=", 5.0)).met is True
    assert figure(5.0, None, Gate("ratio", "<=", 5.0)).met is False
    assert figure(5.0, 1.0, None).met is None
    assert "MISSED" in figure(1.0, 2.1, Gate("ratio", "<=", 2.0)).line()
