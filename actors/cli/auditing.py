"""`actors trace --check` and `--export`: for a person who has only the file of a run.

Both read and change nothing, and ask no process, so they may be used while the run is live.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from actors.cli.quoting import printable
from actors.cli.viewing import reading
from actors.store.audit import audit
from actors.store.audit_findings import Audit, TreeState, Verdict
from actors.store.export import export

VIOLATED = 1
_STATES = {
    TreeState.ended: "ended",
    TreeState.paused: "paused",
    TreeState.running: "running, or its process was killed",
}


def check(run: str, store: str, as_json: bool) -> int:
    """Check a run from its file alone; give exit code 1 when something cannot be true.

    Raises:
        ConfigError: there is no such run, or the file cannot be read.
    """
    with reading(store) as reader:
        done = audit(reader, reader.resolve(run))
    if as_json:
        print(json.dumps(as_object(done)))
    else:
        for line in lines(done):
            print(line)
    return VIOLATED if done.verdict is Verdict.violated else 0


def export_run(run: str, store: str) -> int:
    """Print every row that the file holds of a run, one JSON object a line.

    Raises:
        ConfigError: there is no such run, or the file cannot be read.
    """
    with reading(store) as reader:
        for row in export(reader, reader.resolve(run)):
            # What only damage puts into a column is shown as Python writes it.
            sys.stdout.write(json.dumps(row, default=repr) + "\n")
    return 0


def lines(done: Audit) -> list[str]:
    """Give what a person reads: what was looked at, then what is wrong or not known, then the verdict."""
    told = [f"run       {done.tree_id}", f"state     {_STATES[done.state]}", f"agents    {done.agents}"]
    counts = [f"{check} {count}" for check, count in done.checked.items() if count]
    told += _wrapped("checked", counts)
    told += [f"violation {printable(str(each))}" for each in done.violations]
    if done.violated > len(done.violations):
        told.append(f"          and {done.violated - len(done.violations)} more")
    told += [f"missing   {each}" for each in done.missing]
    return [*told, _verdict(done)]


def _wrapped(title: str, words: list[str], width: int = 100) -> list[str]:
    """Give words as a paragraph behind a title."""
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + len(word) + 2 <= width:
            rows[-1] += f", {word}"
        else:
            rows.append(word)
    return [f"{title if place == 0 else '':<9} {row}" for place, row in enumerate(rows)]


def _verdict(done: Audit) -> str:
    if done.verdict is Verdict.violated:
        return f"{done.violated} violation{'' if done.violated == 1 else 's'}"
    if done.verdict is Verdict.unknown:
        checks = sorted({each.check.value for each in done.missing})
        return f"not enough evidence for {', '.join(checks)}; nothing is wrong with the rest"
    return "ok"


def as_object(done: Audit) -> dict[str, Any]:
    """Give an audit as plain data."""
    return {
        "run_id": done.tree_id,
        "state": done.state,
        "verdict": done.verdict,
        "agents": done.agents,
        "checked": {check.value: count for check, count in done.checked.items()},
        "violated": done.violated,
        "violations": [{"check": each.check, "run_id": each.run_id, "text": each.text} for each in done.violations],
        "missing": [{"check": each.check, "rows": each.rows, "text": each.text} for each in done.missing],
    }
