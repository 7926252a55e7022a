"""The command that checks a task file, and what a run of it would meet on this machine. Nothing is started."""

from __future__ import annotations

import json
import sys
from typing import Final

import trio

from actors.assembly.boundary_check import problems_here
from actors.assembly.building import policy_of
from actors.assembly.task_document import Problems
from actors.assembly.task_file import Task, checked_task
from actors.assembly.task_notes import inside_note
from actors.cli.notices import Notices
from actors.cli.quoting import printable
from actors.tools.protected import WorkspaceFiles

# What the reading of a task file warns of stands in its notes.
OF_TASKS: Final = "actors.task"


def validate(file: str, overrides: tuple[str, ...], as_json: bool, strict: bool) -> int:
    """Tell every problem of a task file; ``strict`` makes one of each warning."""
    # Of a warning that is a problem here, that is enough.
    with Notices(untold=OF_TASKS if strict else None):
        task, problems = checked_task(file, overrides)
    notes: Problems = []
    if task is not None:
        problems, notes = trio.run(_here, task)
        if strict:
            problems += task.notes
    if strict:
        problems, notes = [*problems, *notes], []
    for path, text in notes:
        print(f"warning: {path}: {text}", file=sys.stderr)
    inside = None if task is None else inside_note(task.source, task.contract, policy_of(task))
    if inside is not None:
        # Nothing is wrong with it, so it is no problem for anybody, and `run` says nothing of it.
        print(f"note: {printable(inside)}", file=sys.stderr)
    if as_json:
        print(json.dumps([{"path": path, "problem": text} for path, text in problems]))
    else:
        for path, text in problems:
            print(f"{path}: {text}" if path else text, file=sys.stderr)
        if not problems:
            print(f"{file}: no problems")
    return 2 if problems else 0


async def _here(task: Task) -> tuple[Problems, Problems]:
    problems, notes = await problems_here(task.contract, policy_of(task), WorkspaceFiles())
    return list(problems), list(notes)
