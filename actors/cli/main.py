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
from typing import Any  # noqa: E402

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
@click.option(
    "--pace",
    type=click.FloatRange(0, 30),
    metavar="SECONDS",
    help="How long an answer takes, about; 3 leaves time to look at the run from a second terminal, and says how.",
)
@click.option("--store", default=None, help="Keep the run in this file; it is thrown away else.")
@_json
@_quiet
def demo(agents: int, seed: int, pace: float | None, store: str | None, as_json: bool, quiet: bool) -> int:
    """Run a real tree on an embedded model, over HTTP. Needs no key and no network."""
    from actors.cli.demo import run_demo
    from actors.cli.running import Shown

    return run_demo(agents, seed, pace, store, Shown(json=as_json, quiet=quiet, kept=store is not None))


@cli.command()
@click.argument("task")
@_store
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the task.")
@click.option("--record", metavar="FILE", help="Write all that the model is asked and answers to a new file.")
@click.option("--replay", metavar="FILE", help="Answer from such a file: no model, no connection.")
@_json
@click.option("--stream-json", is_flag=True, help="Print every event as a JSON line, and the result as the last.")
@_quiet
def run(
    task: str,
    store: str,
    overrides: tuple[str, ...],
    record: str | None,
    replay: str | None,
    as_json: bool,
    stream_json: bool,
    quiet: bool,
) -> int:
    """Run the task in TASK.toml: a tree when it has [containment], one agent else."""
    from actors.assembly.provider_spec import recording_overrides
    from actors.assembly.task_file import read_task
    from actors.cli.notices import Notices
    from actors.cli.running import run_task

    shown = _shown(as_json, stream_json, quiet)
    overrides += recording_overrides(record, replay)
    with Notices():
        read = read_task(task, overrides)
    return run_task(read, store, shown)


_task = click.option(
    "--task", metavar="TASK.toml", help="Take provider, prices, settings and policy from this file, if it has them."
)
_stream = click.option(
    "--stream-json", is_flag=True, help="Print every event as a JSON line, and the result as the last."
)
_record = click.option(
    "--record", metavar="FILE", help="Write all that the model is asked and answers to a file, or go on in it."
)


@cli.command()
@click.argument("run_id", metavar="RUN")
@_store
@_task
@_record
@_json
@_stream
@_quiet
def resume(
    run_id: str, store: str, task: str | None, record: str | None, as_json: bool, stream_json: bool, quiet: bool
) -> int:
    """Go on with a run that was stopped or killed, or that waited for a decision; under its own id.

    Contract, boundary and policy are those it was started with; --task may bring another policy. Keys come from
    the environment. Of a run that has ended, the end is told, and nothing is asked.

    RUN is a run id or any unique prefix of one.
    """
    from actors.cli.going_on import Given, resume_run

    return resume_run(run_id, store, Given(task, (), record), _shown(as_json, stream_json, quiet))


@cli.command()
@click.argument("run_id", metavar="RUN")
@_store
@_task
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value: contract.max_steps=20.")
@_record
@_json
@_stream
@_quiet
def reopen(
    run_id: str,
    store: str,
    task: str | None,
    overrides: tuple[str, ...],
    record: str | None,
    as_json: bool,
    stream_json: bool,
    quiet: bool,
) -> int:
    """Go on from a run that has ended short of its goal, as a new run which takes over all that it used.

    The old run stays as it is. Contract and boundary are the old ones but for what --set changes; what was
    used counts against them.

    RUN is a run id or any unique prefix of one.
    """
    from actors.cli.going_on import Given, reopen_run

    return reopen_run(run_id, store, Given(task, overrides, record), _shown(as_json, stream_json, quiet))


def _shown(as_json: bool, stream_json: bool, quiet: bool) -> Any:
    from actors.cli.running import Shown

    if as_json and stream_json:
        raise click.UsageError("--json and --stream-json exclude each other")
    return Shown(as_json, stream_json, quiet)


@cli.command()
@_store
@_json
def inbox(store: str, as_json: bool) -> int:
    """List what waits for you: acts to be allowed, and calls of which nobody knows whether they were done."""
    from actors.cli import inbox

    return inbox.inbox(store, as_json)


@cli.command()
@click.argument("question", metavar="ID")
@click.option(
    "--remember",
    multiple=True,
    metavar="GLOB",
    help="Do not ask again about acts of this kind that fit, in this run, any agent. Never beats a deny.",
)
@click.option(
    "--arguments",
    metavar="JSON",
    help="Run the call with these arguments, all of them, in place of its own. The policy judges it anew.",
)
@_store
@_json
def approve(question: str, remember: tuple[str, ...], arguments: str | None, store: str, as_json: bool) -> int:
    """Allow the one act that an agent waits for. A live run goes on at once; a paused one by `actors resume`.

    ID is as `actors inbox` shows it; its run may be shortened. Exit code 1: somebody has decided before.
    """
    from actors.cli import inbox

    return inbox.answer(question, True, "", store, as_json, remember, arguments)


@cli.command()
@click.argument("question", metavar="ID")
@click.option("--reason", default="the operator said no", show_default=True, help="The agent reads it.")
@_store
@_json
def deny(question: str, reason: str, store: str, as_json: bool) -> int:
    """Refuse the one act that an agent waits for; it reads the reason, and goes on without.

    ID is as `actors inbox` shows it; its run may be shortened. Exit code 1: somebody has decided before.
    """
    from actors.cli import inbox

    return inbox.answer(question, False, reason, store, as_json)


@cli.command()
@click.argument("call", metavar="ID")
@click.option("--retry", is_flag=True, help="It was not done: run it again.")
@click.option("--completed", metavar="TEXT", help="It was done: the agent reads this as its result.")
@click.option("--abort", is_flag=True, help="Give it up: the agent ends as denied.")
@_store
@_json
def recover(call: str, retry: bool, completed: str | None, abort: bool, store: str, as_json: bool) -> int:
    """Say what became of a call that was running when its process was killed, and cannot be looked up.

    ID is as `actors inbox` shows it; its run may be shortened.
    """
    from actors.assembly.recovering import Abort, Completed, Retry
    from actors.cli import inbox

    if retry + abort + (completed is not None) != 1:
        raise click.UsageError("give one of --retry, --completed TEXT and --abort")

    def make(key: str) -> Any:
        return Completed(key, completed) if completed is not None else Retry(key) if retry else Abort(key)

    return inbox.recover_call(call, make, store, as_json)


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
@click.option("--check", is_flag=True, help="Check the run from its file alone: exit code 1 if something is wrong.")
@click.option("--export", is_flag=True, help="Print all rows of the run, each as one JSON object.")
def trace_run(run_id: str, store: str, as_json: bool, check: bool, export: bool) -> int:
    """Print the events of a run, also while it is live.

    RUN is a run id or any unique prefix of one.
    """
    if check and export:
        raise click.UsageError("--check and --export exclude each other")
    if check or export:
        from actors.cli import auditing

        return auditing.check(run_id, store, as_json) if check else auditing.export_run(run_id, store)

    from actors.cli.viewing import trace

    return trace(run_id, store, as_json)


@cli.command()
@click.argument("file")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the task.")
@click.option("--strict", is_flag=True, help="A warning counts as a problem.")
@_json
def validate(file: str, overrides: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Check a task file, and tell all problems and not only the first: also what this machine cannot do."""
    from actors.cli.validating import validate

    return validate(file, overrides, as_json, strict)


@cli.command()
@click.argument("task")
@click.argument("kind", metavar="read|write|exec|shell|net|spawn")
@click.argument("target")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the task.")
@_json
def explain(task: str, kind: str, target: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Tell what the policy of a task says about one act, part by part, and which rule decides. Nothing is run.

    TARGET is a path in the workspace, a command or a line of the tool shell in quotes, HOST:PORT, or the name of
    an agent. Exit code 0: allowed, 4: denied, 5: somebody is asked.
    """
    from actors.assembly.task_file import read_task
    from actors.cli.explaining import KINDS, explain
    from actors.cli.notices import Notices

    if kind not in KINDS:
        raise click.UsageError(f"{kind!r} is nothing that is judged; write one of {', '.join(KINDS)}")
    with Notices():
        read = read_task(task, overrides)
    return explain(read, kind, target, as_json)


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
