"""`actors inbox`, `approve`, `deny` and `recover`: what waits for a human, and the answer, from any process."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs
import trio

from actors.agents.remembered import Remembered
from actors.agents.rewriting import parsed
from actors.assembly.inbox import (
    Awaits,
    Verdict,
    Waiting,
    answered_runs,
    decide,
    decided_before,
    find,
    hunk_of,
    recover,
    waiting,
)
from actors.assembly.recovering import Recovery
from actors.cli.again import command
from actors.cli.ending import unusable
from actors.cli.next_steps import FEW, answers_to
from actors.cli.phrases import brief_time, counted
from actors.cli.pictures import ENDLESS
from actors.cli.quoting import asks, content_title, hunk_title, printable, quoted
from actors.cli.viewing import reading
from actors.errors import ConfigError, StoreError
from actors.store.readers import Reader
from actors.store.store import Store

T = TypeVar("T")
_OPTIONS: Final = {"remember": "--remember", "arguments": "--arguments"}

# Told once below all questions.
HINT: Final = (
    "approve also takes --remember GLOB (what fits is not asked about again in that run)"
    " and --arguments JSON (the call runs with these)"
)

LOST: Final = 1
# Lines and characters of a text of a model that are shown; --json has all that is kept.
SHOWN_LINES: Final = 12
SHOWN_CHARS: Final = 800


def inbox(store_path: str, as_json: bool) -> int:
    """List what waits for a human in all runs of a store, oldest first."""
    with reading(store_path) as reader:
        found = waiting(reader)
        if as_json:
            print(json.dumps([{**attrs.asdict(each), "hunk": hunk_of(reader, each)} for each in found]))
            return 0
        for each in found:
            print("\n".join((*_told(reader, each), "")))
        if any(each.kind is Awaits.approval for each in found):
            print(HINT)
        answered = answered_runs(reader)
        for run_id in answered[:FEW]:
            print(f"{run_id} has its answers, and goes on with: {command('resume', run_id, '--store', reader.file)}")
        if len(answered) > FEW:
            print(f"{counted(len(answered) - FEW, 'more run')} likewise: {command('list', '--store', reader.file)}")
        if not found and not answered:
            print("nothing waits for you")
    return 0


def _told(reader: Reader, each: Waiting) -> Iterator[str]:
    seconds = reader.age(each.since)
    age = "an unknown time" if seconds is None else brief_time(seconds)
    state = "its run is live" if each.live else "its run is paused"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else ENDLESS
    if each.kind is Awaits.approval:
        rule = "" if each.layer is None else f", rule {each.rule!r} of layer {each.layer!r}"
        yield f"{each.id}  {asks(each.path, each.act, each.tool)} (for {age}; {state}{rule})"
        yield from quoted(printable(each.target), width)
        hunk = (hunk_of(reader, each) or "").removesuffix("\n")
        if hunk:
            yield hunk_title(hunk)
            yield from _excerpt(hunk, width)
        elif each.content:
            yield content_title(each.act, each.tool, each.content)
            yield from _excerpt(each.content, width)
    else:
        yield f"{each.id}  {each.path} called {printable(each.tool)} ({age} ago), and nobody knows whether it was done"
        yield from _excerpt(each.arguments, width)
    yield from (f"  {line}" for line in answers_to(each, reader.file))


def _excerpt(text: str, width: int) -> Iterator[str]:
    part = "\n".join(text[:SHOWN_CHARS].split("\n")[:SHOWN_LINES])
    yield from quoted(part, width)
    if len(part) < len(text):
        yield f"... {len(text) - len(part):,} more characters; --json has them"


# ── deciding ────────────────────────────────────────────────────────────────


def answer(
    prefix: str,
    approved: bool,
    reason: str,
    store_path: str,
    as_json: bool,
    remember: tuple[str, ...] = (),
    arguments: str | None = None,
) -> int:
    """Approve or deny what waits under an id; exit code 1 when somebody has decided before.

    ``remember`` are globs: with a yes, the act that was asked for is allowed for what fits them.
    ``arguments`` are JSON: with a yes, the call runs with them in place of its own.
    """
    wanted = None if arguments is None else _arguments(arguments)
    with reading(store_path) as reader:
        try:
            found = find(reader, prefix, Awaits.approval)
        except ConfigError:
            before = decided_before(reader, prefix)
            if before is None:
                raise
            return _tell_verdict(before[0].request_id, before[0].tree_id, before[1], as_json)
    rules = tuple(_rule(found.act, glob) for glob in remember)
    try:
        verdict = _write(store_path, lambda store: decide(store, found.id, approved, reason, rules, wanted))
    except ConfigError as error:
        # As they are called here.
        raise ConfigError(*((_OPTIONS.get(place, place), printable(text)) for place, text in error.problems)) from None
    code = _tell_verdict(found.id, found.run_id, verdict, as_json)
    if not as_json and verdict.won:
        _tell_next(found, store_path)
    return code


def _rule(act: str, glob: str) -> Remembered:
    try:
        return Remembered(act, glob)
    except ValueError as error:
        raise ConfigError(("--remember", str(error))) from None


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        return parsed(text)
    except ValueError as error:
        raise ConfigError(("--arguments", str(error))) from None


def _tell_verdict(request_id: str, run_id: str, verdict: Verdict, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"id": request_id, "run_id": run_id, **attrs.asdict(verdict)}))
    elif verdict.won:
        print(f"{verdict.decision} {request_id}" + (" with other arguments" if verdict.arguments is not None else ""))
        for rule in verdict.remembered:
            print(f"  from now on {rule.act} {printable(rule.glob)} is not asked about again in this run")
    else:
        text = f"{request_id} was {verdict.decision} before, by {verdict.by} at {verdict.at}; that stands"
        print(f"error: {text}", file=sys.stderr)
    return 0 if verdict.won else LOST


def recover_call(prefix: str, make: Callable[[str], Recovery], store_path: str, as_json: bool) -> int:
    """Decide what is to become of a call; ``make`` gives the recovery for its id."""
    with reading(store_path) as reader:
        found = find(reader, prefix, Awaits.recovery)
    recovery = make(found.id)
    _write(store_path, lambda store: recover(store, found.run_id, recovery))
    word = type(recovery).__name__.lower()
    if as_json:
        print(json.dumps({"id": found.id, "run_id": found.run_id, "recovery": word}))
    else:
        print(f"{word} {found.id}")
        _tell_next(found, store_path)
    return 0


def _tell_next(found: Waiting, store_path: str) -> None:
    """Say how the run goes on, and what else of it waits."""
    with reading(store_path) as reader:
        more = len(waiting(reader, found.run_id))
    if more:
        print(f"{counted(more, 'other decision')} of this run wait{'s' if more == 1 else ''}: ", end="")
        print(command("inbox", "--store", store_path))
    if found.live:
        print("its run is live, and goes on by itself")
    else:
        print(f"its run goes on with: {command('resume', found.run_id, '--store', store_path)}")


def _write(store_path: str, work: Callable[[Store], Awaitable[T]]) -> T:
    async def main() -> T:
        try:
            async with Store.open(store_path) as store:
                return await work(store)
        except StoreError as error:
            raise unusable(store_path, error) from error

    return trio.run(main)
