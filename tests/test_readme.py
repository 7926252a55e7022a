"""What the README and the docs show runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        found += [(f"{page.name}-{number}", block) for number, block in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize(("name", "code"), examples(), ids=[name for name, _ in examples()])
def test_every_python_example_runs(name: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    # What an example says that it prints, it prints: each line, and nothing else. After "..." comes what differs by machine.
    if promised := re.findall(r"#> (.*)", code):
        printed = done.stdout.splitlines()
        cut = [
            line[: len(said) - 3] + "..." if said.endswith("...") else line
            for line, said in zip(printed, promised, strict=False)
        ]
        assert cut + printed[len(promised) :] == promised


def test_the_embedding_example_counts_right(tmp_path: Path) -> None:
    [code] = [block for name, block in examples() if name == "README.md-1"]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "104\n"
    assert len([line for line in code.splitlines() if line.strip()]) <= 24


def test_every_link_to_a_file_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_exit_codes_of_the_readme_are_those_of_the_code() -> None:
    from actors.agents.outcomes import TABLE

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in row.split(",")}
    assert {row.exit for row in TABLE.values()} <= listed
