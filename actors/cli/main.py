"""The commands, and how each of them ends.

A user's mistake is one line for each problem, with its place and its remedy,
on standard error, and exit code 2. A traceback is only ever a bug of ours.
"""

from __future__ import annotations

from actors.cli import interrupts

# From here on: loading what follows takes long enough to be interrupted.
interrupts.stop_at_once()

import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402

import click  # noqa: E402

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


@cli.command("show")
@click.argument("run_id", metavar="RUN")
@_store
@click.option("--live", is_flag=True, help="Draw a run that is live in another process, until it ends or Ctrl-C.")
@_json
def show_run(run_id: str, store: str, live: bool, as_json: bool) -> int:
    """Show the tree of a run: who there was, how each ended, what it cost, what was refused.

    RUN is a run id or any unique prefix of one.

    With --live, what each agent does now and for how long, what it spent, and the time it has left; with --json
    as well, one such snapshot.

    With --json, "usage" and "tree" of the run are of the whole tree; "usage" of an agent is its own alone,
    "subtree_usage" its own with that of all below it.
    """
    if live:
        from actors.cli.following import show_live

        return show_live(run_id, store, as_json)

    from actors.cli.viewing import show

    return show(run_id, store, as_json)


@cli.command("list")
@_store
@_json
def list_all(store: str, as_json: bool) -> int:
    """List the runs in a store, newest first; whole lines in a pipe."""
    from actors.cli.viewing import list_runs

    return list_runs(store, as_json)


@cli.command("trace")
@click.argument("run_id", metavar="RUN")
@_store
@_json
def trace_run(run_id: str, store: str, as_json: bool) -> int:
    """Print the events of a run, also while it is live.

    RUN is a run id or any unique prefix of one.
    """
    from actors.cli.viewing import trace

    return trace(run_id, store, as_json)


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
    except BaseException as error:
        from actors.cli.ending import told

        known = told(error)
        if known is None:
            raise
        code[0] = known


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    interrupts.stop_at_once()
    from actors.cli.streams import Streams

    with Streams() as streams:
        with _ends() as code:
            answer = cli.main(arguments, prog_name="actors", standalone_mode=False)
            code[0] = answer if isinstance(answer, int) else 0
        code[0] = streams.judged(code[0])
    interrupts.nothing_left()
    sys.exit(code[0])


interrupts.give_back()
