"""The commands that look at runs: `show`, `list` and `trace`. They read a store, also while its runs are live."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs
from rich.console import Console

from actors.agents.ports import RunSummary
from actors.assembly.reporting import check_detail, failed_calls, root_steps, show_report
from actors.cli.phrases import phrase
from actors.cli.pictures import console, run_list, summary_table, tree_picture
from actors.errors import ConfigError, StoreError
from actors.store.readers import Reader
from actors.store.records import EventRecord
from actors.store.store import open_reader

# Events that are read at once.
PAGE: Final = 1_000


def show(run: str, store: str, as_json: bool) -> int:
    """Show the tree of a run and one table."""
    with reading(store) as reader:
        tree_id = reader.resolve(run)
        if as_json:
            print(json.dumps(show_report(reader, tree_id)))
        else:
            draw(reader, tree_id, console())
    return 0


def draw(reader: Reader, tree_id: str, out: Console) -> None:
    """Draw the tree of a run and one table."""
    out.print(tree_picture(reader, tree_id))
    out.print()
    out.print(summary_table(reader, tree_id))


def list_runs(store: str, as_json: bool) -> int:
    """List the runs, newest first: cut to the width of a terminal, and whole anywhere else."""
    with reading(store) as reader:
        runs: list[RunSummary] = reader.runs()
        steps = root_steps(reader)
    if as_json:
        print(json.dumps([attrs.asdict(each) for each in runs]))
        return 0
    width = console().width if sys.stdout.isatty() else None
    for line in run_list(runs, steps, width) if runs else ["no runs yet"]:
        print(line)
    return 0


def trace(run: str, store: str, as_json: bool) -> int:
    """Print the events of a run in the order of writing."""
    with reading(store) as reader:
        tree_id = reader.resolve(run)
        for record in _events(reader, tree_id):
            told = json.loads(record.event)
            if as_json:
                print(json.dumps({"sequence": record.sequence, "at": record.at, **told}))
            else:
                print(f"{record.at} {phrase(_completed(reader, told))}")
    return 0


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
        # The kind is a word for programs; people are told in the text itself.
        text = str(error).removeprefix(f"{error.file}: ")
        raise ConfigError((store, text)) from error


def _events(reader: Reader, tree_id: str) -> Iterator[EventRecord]:
    after = 0
    while page := reader.trace(tree_id, after, PAGE):
        yield from page
        after = page[-1].sequence


def _completed(reader: Reader, told: dict[str, Any]) -> dict[str, Any]:
    """Add to an event what only other rows tell: why a criterion could not be checked, which calls failed."""
    if told["kind"] == "gate" and "detail" not in told:
        return {**told, "detail": check_detail(reader, told["run_id"], told["step"])}
    if told["kind"] == "step" and "failed" not in told:
        return {**told, "failed": [attrs.asdict(call) for call in failed_calls(reader, told["run_id"], told["step"])]}
    return told
