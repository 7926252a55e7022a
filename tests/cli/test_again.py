"""Commands that are printed to be copied."""

from pathlib import Path

import pytest

from actors.cli.again import command


def script(folder: Path) -> Path:
    folder.mkdir()
    file = folder / "actors"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_a_command_leads_to_this_program_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = script(tmp_path / "my bin"), script(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("sys.argv", ["my bin/actors", "demo"])
    assert command("show", "abc", "--store", "a b") == f"'{ours}' show abc --store 'a b'"
    # Another one of that name is not meant.
    monkeypatch.setenv("PATH", str(other.parent))
    assert command("list") == f"'{ours}' list"
    monkeypatch.setenv("PATH", str(ours.parent))
    assert command("list") == "actors list"


@pytest.mark.parametrize("called", ["-c", "", "/somewhere/python", "/nowhere/actors"])
def test_called_in_another_way_it_goes_by_its_name(monkeypatch: pytest.MonkeyPatch, called: str) -> None:
    monkeypatch.setattr("sys.argv", [called])
    assert command("list") == "actors list"
