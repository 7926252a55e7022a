"""What the ``start`` of a child spec may say besides giving work to run.

    def start():
        return IGNORE                       # does not want to run; the spec is kept

    async def serve(*, task_status):        # trio's convention: tells by itself when it is ready
        socket = await listen()
        task_status.started(socket)         # goes to whoever called `start_child`
        ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

from actors.runtime.child import Child


class Ignore:
    """The mark of a start that does not want to run: `IGNORE`."""

    def __repr__(self) -> str:
        return "IGNORE"


IGNORE: Final = Ignore()


class TaskStatus:
    """What a function that asks for ``task_status`` is given; ``started`` tells that it is ready."""

    def __init__(self) -> None:
        self.child: Child | None = None

    def started(self, value: Any = None) -> None:
        """Tell that the function is ready; ``value`` goes to whoever started it."""
        assert self.child is not None
        self.child.mark_ready(value)


def wants_status(start: Callable[..., Any]) -> bool:
    """Whether a start follows trio's convention and tells by itself when it is ready.

    Nothing is remembered of ``start``: a cache would keep what its closure holds.
    """
    if isinstance(start, functools.partial):
        return "task_status" not in start.keywords and wants_status(start.func)
    code = getattr(start, "__code__", None)
    if code is not None and not hasattr(start, "__wrapped__"):
        return "task_status" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if inspect.isclass(start):
        return False
    try:
        return "task_status" in inspect.signature(start).parameters
    except (TypeError, ValueError):
        return False


def starts_ready(start: Callable[..., Any]) -> bool:
    """Whether what a start makes is ready by being started; cheap, and never wrongly true.

    An async function is that, unless it tells by itself, and so is a class of actors
    without an ``init`` of its own.
    """
    if inspect.isclass(start):
        needs_no_init = getattr(start, "needs_no_init", None)
        return needs_no_init is not None and bool(needs_no_init())
    code = getattr(start, "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_COROUTINE) and not wants_status(start)
