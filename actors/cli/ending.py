"""How every known way to fail ends: its lines on standard error, and its exit code.

Errors may come in groups, because whatever fails under a nursery does; what is
in the group decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from actors.cli.interrupts import STOPPED
from actors.errors import ActorsError, ConfigError, RunConflict, StoreError


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Give the errors in a group, at any depth; of an error that is none, itself."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(each.exceptions)
        else:
            yield each


def told(error: BaseException) -> int | None:
    """Tell an error in lines and give its exit code; None, and no word, for what only a bug of ours raises."""
    found = list(leaves(error))
    if any(isinstance(each, KeyboardInterrupt | click.Abort) for each in found):
        click.echo("stopped", err=True)
        return STOPPED
    if not all(isinstance(each, ActorsError | click.ClickException) for each in found):
        return None
    for each in found:
        if isinstance(each, click.ClickException):
            each.show()
    # One failure of a store reaches several tasks; it is told once.
    for line in dict.fromkeys(line for each in found for line in _lines(each)):
        click.echo(line, err=True)
    # Nothing was started: also when another process drives the run.
    return 2 if all(isinstance(each, ConfigError | RunConflict | click.ClickException) for each in found) else 1


def unusable(store: str, error: StoreError) -> ConfigError:
    """Tell of a store that cannot be opened or read: it is the name of the file that is wrong."""
    # The kind is a word for programs, and the file is named already; people are told in the text itself.
    return ConfigError((store, str(error).removeprefix(f"{error.file}: ")))


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, click.ClickException):
        return []
    if isinstance(error, ConfigError):
        return [f"error: {path}: {text}" if path else f"error: {text}" for path, text in error.problems]
    return [f"error: {error}"]
