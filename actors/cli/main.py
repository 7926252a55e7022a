"""The commands, and how each of them ends.

A user's mistake is one line for each problem, with its place and its remedy,
on standard error, and exit code 2. A traceback is only ever a bug of ours.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from actors.errors import ActorsError, ConfigError, StoreError

DEFAULT_STORE = "./.actors/runs.db"

_store = click.option("--store", default=DEFAULT_STORE, show_default=True, help="The file that keeps the runs.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
_quiet = click.option("--quiet", is_flag=True, help="No progress on standard error.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="actor-trees", prog_name="actors")
def cli() -> None:
    """Run trees of agents under ceilings that nobody inside can raise."""


@cli.command()
@click.option("--agents", default=5, show_default=True, type=click.IntRange(1, 200), help="How many writers.")
@click.option("--seed", default=1, show_default=True, help="The order of chapters and the speed of answers.")
@click.option("--store", default=None, help="Keep the run in this file; it is thrown away else.")
@_json
@_quiet
def demo(agents: int, seed: int, store: str | None, as_json: bool, quiet: bool) -> int:
    """Run a real tree on an embedded model, over HTTP. Needs no key and no network."""
    from actors.cli.demo import run_demo
    from actors.cli.running import Shown

    return run_demo(agents, seed, store, Shown(json=as_json, quiet=quiet, kept=store is not None))


@cli.command()
@click.argument("task")
@_store
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the task.")
@_json
@click.option("--stream-json", is_flag=True, help="Print every event as a JSON line, and the result as the last.")
@_quiet
def run(task: str, store: str, overrides: tuple[str, ...], as_json: bool, stream_json: bool, quiet: bool) -> int:
    """Run the task in TASK.toml: a tree when it has [containment], one agent else."""
    from actors.assembly.task_file import read_task
    from actors.cli.running import Shown, run_task

    if as_json and stream_json:
        raise click.UsageError("--json and --stream-json exclude each other")

    return run_task(read_task(task, overrides), store, Shown(as_json, stream_json, quiet))


@cli.command()
@click.argument("run_id", metavar="RUN")
@_store
@_json
def show(run_id: str, store: str, as_json: bool) -> int:
    """Show the tree of a run: who there was, how each ended, what it cost, what was refused."""
    from actors.assembly.reporting import show_report
    from actors.cli.pictures import console, summary_table, tree_picture

    with _reader(store) as reader:
        tree_id = reader.resolve(run_id)
        if as_json:
            print(json.dumps(show_report(reader, tree_id)))
            return 0
        out = console()
        out.print(tree_picture(reader, tree_id))
        out.print()
        out.print(summary_table(reader, tree_id))
    return 0


@cli.command("list")
@_store
@_json
def list_runs(store: str, as_json: bool) -> int:
    """List the runs in a store, newest first."""
    import attrs
    from rich.table import Table

    from actors.cli.pictures import console, shortened

    with _reader(store) as reader:
        runs = reader.runs()
    if as_json:
        print(json.dumps([attrs.asdict(each) for each in runs]))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("run", "status", "outcome", "started", "goal"):
        table.add_column(heading, no_wrap=True)
    for each in runs:
        table.add_row(each.run_id, each.status, each.outcome or "", each.started_at, shortened(each.goal, 50))
    console().print(table if runs else "no runs yet")
    return 0


@cli.command()
@click.argument("run_id", metavar="RUN")
@_store
@_json
def trace(run_id: str, store: str, as_json: bool) -> int:
    """Print the events of a run, also while it is live."""
    from actors.cli.pictures import event_line

    with _reader(store) as reader:
        tree_id = reader.resolve(run_id)
        for record in _all_events(reader, tree_id):
            if as_json:
                print(json.dumps({"sequence": record.sequence, "at": record.at, **json.loads(record.event)}))
                continue
            told = json.loads(record.event)
            print(f"{record.at} {event_line(record.event) or told['path'] + ': ' + told['kind']}")
    return 0


@contextmanager
def _reader(store: str) -> Iterator[Any]:
    """Open a store to be looked at; one that is none is the user's mistake."""
    from actors.store.store import open_reader

    try:
        with open_reader(store) as reader:
            yield reader
    except StoreError as error:
        raise ConfigError((store, str(error).removeprefix(f"{store}: "))) from error


def _all_events(reader: Any, tree_id: str) -> Iterator[Any]:
    after = 0
    while page := reader.trace(tree_id, after):
        yield from page
        after = page[-1].sequence


@cli.command()
@click.argument("file")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the task.")
@_json
def validate(file: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a task file, and tell all problems and not only the first."""
    from actors.assembly.task_file import validate_task

    problems = validate_task(file, overrides)
    if as_json:
        print(json.dumps([{"path": path, "problem": text} for path, text in problems]))
    else:
        for path, text in problems:
            print(f"{path}: {text}" if path else text, file=sys.stderr)
        if not problems:
            print(f"{file}: no problems")
    return 2 if problems else 0


@cli.command()
@click.argument("what", type=click.Choice(["task"]))
def schema(what: str) -> int:
    """Print the JSON Schema of a task file."""
    from actors.assembly.task_schema import task_schema

    print(json.dumps(task_schema(), indent=2))
    return 0


@contextmanager
def _ends() -> Iterator[list[int]]:
    """Turn every known way to fail into a line and an exit code."""
    code = [0]
    try:
        yield code
    except ConfigError as error:
        for path, text in error.problems:
            click.echo(f"error: {path}: {text}" if path else f"error: {text}", err=True)
        code[0] = 2
    except (StoreError, ActorsError) as error:
        click.echo(f"error: {error}", err=True)
        code[0] = 1
    except click.ClickException as error:
        error.show()
        code[0] = 2
    except click.Abort:
        code[0] = 130
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        code[0] = 130
    except BrokenPipeError:
        # Whoever read our output has enough; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows a question mark; it never ends the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with _ends() as code:
        answer = cli.main(arguments, prog_name="actors", standalone_mode=False)
        code[0] = answer if isinstance(answer, int) else 0
        sys.stdout.flush()
    sys.exit(code[0])

