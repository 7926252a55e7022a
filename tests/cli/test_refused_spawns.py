"""Spawns that a ceiling refused are counted where a run is looked at, and not listed one after the other."""

from typing import Any

TASK = """
[contract]
goal = "have it done"
root = "."
[containment]
max_total_agents = 2
max_concurrent = 1
max_depth = 1
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
"""
SPAWN = ["spawn_agent", {"goal": "do it", "verify": {"kind": "none"}}]


def test_one_line_counts_the_spawns_that_a_ceiling_refused(place: Any) -> None:
    place.holding(TASK, [{"calls": [SPAWN] * 4}, {"text": "done"}, {"text": "done"}])
    done = place.actors("run", "task.toml")
    looked = place.actors("show", place.rows("SELECT run_id FROM runs WHERE parent_run_id IS NULL")[0][0])
    for shown in (done.stdout, looked.stdout):
        assert shown.count("refused by the ceiling on agents") == 1, shown
        assert "✗ 3 more spawns were refused by the ceiling on agents" in shown and "one more spawn" not in shown
