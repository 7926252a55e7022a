"""The commands that look at runs: `show`, `list` and `trace`. They read a store, also while its runs are live."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
import trio
from rich.console import Console

from actors.assembly.child_trees import TreeState, child_trees
from actors.assembly.edited_files import edited_in
from actors.assembly.reporting import (
    check_detail,
    failed_calls,
    is_resumable,
    lost_runs,
    noted_todo,
    remembered_acts,
    root_steps,
    show_report,
    silences,
)
from actors.cli.ending import unusable
from actors.cli.next_steps import how_to_fetch, how_to_go_on
from actors.cli.phrases import phrase
from actors.cli.pictures import console, run_list, summary_table, tree_picture
from actors.cli.streams import unheard
from actors.errors import StoreError
from actors.store.readers import Reader
from actors.store.records import EventRecord, RunSummary
from actors.store.storage_errors import readable
from actors.store.store import open_reader

# Events that are read at once, and printed before more are read.
PAGE: Final = 100
# What is told of a value that is none.
UNKNOWN: Final = "unknown"


def show(run: str, store: str, as_json: bool) -> int:
    """Show the tree of a run and one table."""
    with reading(store) as reader:
        tree_id = reader.resolve(run)
        with readable(reader.file, f"run {tree_id}"):
            if as_json:
                print(json.dumps(show_report(reader, tree_id, looked_at(reader, tree_id))))
            else:
                draw(reader, tree_id, console())
    return 0


def draw(reader: Reader, tree_id: str, out: Console) -> None:
    """Draw the tree of a run and one table; of a run that can go on, say how."""
    out.print(tree_picture(reader, tree_id))
    out.print()
    out.print(summary_table(reader, tree_id))
    for line in how_to_fetch(reader, tree_id, looked_at(reader, tree_id)):
        out.print(line, markup=False, soft_wrap=True)
    root = reader.run(tree_id)
    if root is not None and is_resumable(reader, root):
        for line in how_to_go_on(reader, tree_id):
            out.print(line, markup=False, soft_wrap=True)


def looked_at(reader: Reader, tree_id: str) -> dict[str, TreeState]:
    """Look at the work trees of the children of a run; nothing is loaded or started for one that has none."""
    trees = child_trees(reader.agents(tree_id))
    if not trees:
        return {}
    from actors.assembly.tree_states import tree_states

    return trio.run(tree_states, trees)


def list_runs(store: str, as_json: bool) -> int:
    """List the runs, newest first: cut to the width of a terminal, and whole anywhere else."""
    with reading(store) as reader:
        runs = [_as_text(each) for each in reader.runs()]
        steps, silent, lost = root_steps(reader), silences(reader), lost_runs(reader)
        if as_json:
            roots = {each.run_id: reader.run(each.run_id) for each in runs}
            able = {run_id for run_id, root in roots.items() if root is not None and is_resumable(reader, root)}
            listed = [
                {
                    **attrs.asdict(each),
                    "steps": steps.get(each.run_id),
                    "silent_seconds": silent.get(each.run_id),
                    "killed": each.run_id in lost,
                    "resumable": each.run_id in able,
                }
                for each in runs
            ]
            print(json.dumps(listed))
            return 0
    width = console().width if sys.stdout.isatty() else None
    for line in run_list(runs, steps, silent, width, lost) if runs else ["no runs yet"]:
        print(line)
    return 0


def _as_text(run: RunSummary) -> RunSummary:
    """Put a word where one damaged value would keep all runs from being listed."""
    facts = {name: UNKNOWN for name, value in attrs.asdict(run).items() if not isinstance(value, str | None)}
    return attrs.evolve(run, **facts)


def trace(run: str, store: str, as_json: bool) -> int:
    """Print the events of a run in the order of writing, for as long as somebody reads what is printed."""
    with reading(store) as reader:
        tree_id = reader.resolve(run)
        for page in _pages(reader, tree_id):
            for record in page:
                with readable(reader.file, f"event {record.sequence}"):
                    line = _line(reader, record, as_json)
                print(line)
            sys.stdout.flush()
            if unheard():
                break
    return 0


def _line(reader: Reader, record: EventRecord, as_json: bool) -> str:
    told = json.loads(record.event)
    if as_json:
        return json.dumps({"sequence": record.sequence, "at": record.at, **told})
    return f"{record.at} {phrase(_completed(reader, told))}"


@contextmanager
def reading(store: str) -> Iterator[Reader]:
    """Open a store to be looked at; one that is none is the user's mistake.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open_reader(store) as reader:
            yield reader
    except StoreError as error:
        raise unusable(store, error) from error


def _pages(reader: Reader, tree_id: str) -> Iterator[list[EventRecord]]:
    after = 0
    while page := reader.trace(tree_id, after, PAGE):
        yield page
        after = page[-1].sequence


def _completed(reader: Reader, told: dict[str, Any]) -> dict[str, Any]:
    """Add to an event what only other rows tell: why a criterion could not be checked, what a step came to."""
    if told["kind"] == "gate" and "detail" not in told:
        return {**told, "detail": check_detail(reader, told["run_id"], told["step"])}
    if told["kind"] == "step":
        edited = edited_in(reader, told["run_id"], told["step"])
        known = remembered_acts(reader, told["run_id"], told["step"])
        told = {**told, "edited": list(map(attrs.asdict, edited)), "remembered": list(map(attrs.asdict, known))}
    if told["kind"] == "step" and "failed" not in told:
        place = told["run_id"], told["step"]
        failed = [attrs.asdict(call) for call in failed_calls(reader, *place)]
        return {**told, "failed": failed, "noted": noted_todo(reader, *place)}
    return told
