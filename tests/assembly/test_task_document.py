"""Whatever a task file holds, the answer is plain data or one clear line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.assembly.task_document import LARGEST_NUMBER, MOST_DEPTH, read_document
from actors.errors import ConfigError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents") / "task.toml"


def problems_of(file: Path, *overrides: str) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as refused:
        read_document(file, overrides)
    return list(refused.value.problems)


# ── the file ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
def test_files_of_every_editor_are_read(file: Path, mark: bytes, ends: bytes) -> None:
    file.write_bytes(mark + ends.join([b"[contract]", 'goal = "größer"'.encode(), b""]))
    assert read_document(file) == {"contract": {"goal": "größer"}}


def test_a_file_that_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert problems_of(tmp_path / "no.toml") == [(str(tmp_path / "no.toml"), "there is no such file")]
    assert problems_of(tmp_path) == [(str(tmp_path), "is a directory; name a task file")]
    assert problems_of(tmp_path / "a" / "b") == [(str(tmp_path / "a" / "b"), "cannot be read: Not a directory")]
    assert problems_of(Path("a\0b")) == [("a\0b", "is no path of a file")]
    assert problems_of(tmp_path / ("a" * 300))[0][1].startswith("cannot be read: ")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a = 1\n[contract\n", "is no TOML: Expected ']' at the end of a table declaration (at line 2, column 10)"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = 1\nb = 2\ngoal = '\xfc'\n", "is not UTF-8 (at line 3); save it as UTF-8"),
        (b"a = " + b"9" * 5_000, "holds a number that is too large"),
        (b"a = " + b"[" * 5_000 + b"]" * 5_000, "is nested too deep"),
    ],
    ids=["broken", "twice", "not UTF-8", "digits", "deep"],
)
def test_text_that_is_no_usable_toml_is_one_clear_line_about_the_file(file: Path, raw: bytes, said: str) -> None:
    file.write_bytes(raw)
    [(place, text)] = problems_of(file)
    assert place == str(file)
    assert said in text


def test_every_absurd_value_is_told_by_its_key(file: Path) -> None:
    deep = ".".join(["a"] * 2_000)
    file.write_text(
        f"{deep} = 1\nlarge = [1, {{ x = {LARGEST_NUMBER + 1} }}]\nsmall = -{2**63 + 1}\n"
        f"least = -{2**63}\nlargest = {LARGEST_NUMBER}\n"
    )
    assert sorted(problems_of(file)) == [
        (".".join(["a"] * (MOST_DEPTH + 1)), "is nested too deep"),
        ("large[1].x", "is too large a number"),
        ("small", "is too large a number"),
    ]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | st.text("[]{}=.\"'#\n0a", max_size=60).map(str.encode))
def test_any_bytes_give_a_table_or_a_config_error(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    try:
        assert isinstance(read_document(file), dict)
    except ConfigError as error:
        assert error.problems


# ── single values ───────────────────────────────────────────────────────────


def overridden(file: Path, *overrides: str) -> dict[str, Any]:
    file.write_text("[contract]\nmax_steps = 1\n")
    return read_document(file, overrides)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("contract.max_steps=3", {"contract": {"max_steps": 3}}),
        (" contract . max_steps = 3", {"contract": {"max_steps": 3}}),
        ('contract.max_steps="3"', {"contract": {"max_steps": "3"}}),
        ("contract.goal=fix issue #3", {"contract": {"max_steps": 1, "goal": "fix issue #3"}}),
        ("contract.goal=a=b", {"contract": {"max_steps": 1, "goal": "a=b"}}),
        ("contract.goal=", {"contract": {"max_steps": 1, "goal": ""}}),
        ("contract.goal=3\nmore=4", {"contract": {"max_steps": 1, "goal": "3\nmore=4"}}),
        ("contract.goal=3\n[more]", {"contract": {"max_steps": 1, "goal": "3\n[more]"}}),
        ("contract.goal=" + "[" * 5_000, {"contract": {"max_steps": 1, "goal": "[" * 5_000}}),
        ("contract.goal=" + "9" * 5_000, {"contract": {"max_steps": 1, "goal": "9" * 5_000}}),
        ("run.approve=all", {"contract": {"max_steps": 1}, "run": {"approve": "all"}}),
        ('contract={ goal = "x" }', {"contract": {"goal": "x"}}),
        ('prices."gpt-5.6".input="1"', {"contract": {"max_steps": 1}, "prices": {"gpt-5.6": {"input": "1"}}}),
        ("prices.'a=b'.input='1'", {"contract": {"max_steps": 1}, "prices": {"a=b": {"input": "1"}}}),
    ],
)
def test_an_override_is_a_toml_key_with_a_toml_value_or_a_bare_text(
    file: Path, override: str, expected: dict[str, Any]
) -> None:
    assert overridden(file, override) == expected


def test_the_later_of_two_overrides_holds(file: Path) -> None:
    assert overridden(file, "contract.max_steps=3", "contract.max_steps=4")["contract"] == {"max_steps": 4}


def test_every_override_that_cannot_be_set_is_told(file: Path) -> None:
    bad = ["", "x", "=3", "a..b=1", "a.=1", ".a=1", 'a."b=1', "a b=1", "a\n.b c=1"]
    with pytest.raises(ConfigError) as refused:
        overridden(file, *bad, "contract.max_steps.x=1", "contract.max_tokens=" + "9" * 30)
    places = [place for place, _text in refused.value.problems]
    assert places == [*(f"--set {text}" for text in bad), "--set contract.max_steps.x", "contract.max_tokens"]
    assert all("KEY=VALUE" in text for _place, text in refused.value.problems[: len(bad)])


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_override_gives_a_table_or_a_config_error(file: Path, key: str, value: str) -> None:
    try:
        assert "contract" in overridden(file, f"{key}={value}", f"contract.{key}={value}", f"contract.goal={value}")
    except ConfigError as error:
        assert error.problems
