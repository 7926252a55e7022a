"""Another model that takes over is one line, for people who follow a run and in its trace."""

from typing import Any

import pytest

from actors.cli.phrases import phrase, progress_line


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (
            {"step": 4, "from": "m", "to": "strong", "why": "escalated", "non_passes": 3, "bytes": 9_000},
            "root: step 4: asks strong instead of m, after 3 checks that did not pass",
        ),
        (
            {"step": 1, "from": None, "to": "small", "why": "downshifted", "non_passes": 0, "bytes": 1_234},
            "root: step 1: asks small instead of the provider's own model, for a request of 1,234 bytes",
        ),
        (
            {"step": 2, "from": "small", "to": "m", "why": "own", "non_passes": 1, "bytes": 30_000},
            "root: step 2: asks m instead of small, its own again",
        ),
        ({"to": "a\nb" * 50}, "root: asks a b" + "a b" * 18 + "a … instead of the provider's own model, its own again"),
    ],
)
def test_a_change_of_the_model_is_told_with_its_reason(facts: dict[str, Any], line: str) -> None:
    told = {"kind": "routed", "path": "root", **facts}
    assert phrase(told) == progress_line(told) == line
