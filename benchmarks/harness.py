"""What a figure is, and how it is measured.

An arm is an async function that does one round and returns what it measured,
most often the CPU seconds of the part that counts: making and closing the
arena around it is not charged to either side. Arms of one figure take turns,
so that a slow moment of the machine meets all of them.
"""

from __future__ import annotations

import gc
import json
import operator
import os
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import attrs
import trio

Arm = Callable[[], Awaitable[float]]

cpu = time.process_time

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@attrs.frozen
class Gate:
    """What a figure must keep: ``of`` (ratio or value), compared by ``sign`` with ``bound``."""

    of: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.bound:g}"

    def met(self, figure: Figure) -> bool:
        """Tell whether the figure keeps it; a figure without the number does not."""
        number: float | None = getattr(figure, self.of)
        return number is not None and _COMPARE[self.sign](number, self.bound)


@attrs.frozen
class Figure:
    """One line of output.

    ``ratio`` is ours by the baseline's, both measured in the same run, and by CPU
    time unless ``method`` says otherwise; for a rate too it is cost by cost, so
    lower is better. ``n`` counts the operations of one round.
    """

    name: str
    value: float
    unit: str
    baseline: float | None
    ratio: float | None
    n: int
    method: str
    gate: Gate | None = None

    @property
    def met(self) -> bool | None:
        """Whether the gate is kept; None without one."""
        return None if self.gate is None else self.gate.met(self)

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form of the JSON line."""
        plain = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        return {**plain, "gate": None if self.gate is None else str(self.gate), "met": self.met}

    def to_json(self) -> str:
        """Give the JSON line."""
        return json.dumps(self.to_dict())

    def line(self) -> str:
        """Give the line for a human."""
        baseline = "-" if self.baseline is None else f"{self.baseline:,.4g}"
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        word = {None: "", True: "met", False: "MISSED"}[self.met]
        gate = "" if self.gate is None else str(self.gate)
        value = f"{self.value:,.4g}"
        return f"{self.name:<32} {value:>12} {self.unit:<14} {baseline:>12} {ratio:>6}  {gate:<16} {word:<6} n={self.n}"


HEADER: Final = f"{'name':<32} {'value':>12} {'unit':<14} {'baseline':>12} {'ratio':>6}  {'gate':<16} {'kept':<6} n"


def begin() -> float:
    """Give the CPU seconds so far, once all that lives counts as old, as in a program that has run for a while.

    Otherwise whether a full collection falls into the measured part is a matter of chance,
    and one over 10,000 live tasks costs more than the part itself.
    """
    gc.collect()
    return cpu()


async def bytes_per_shell(n: int, shell: Callable[[Callable[[], None]], Awaitable[None]]) -> float:
    """Give the traced bytes of one of ``n`` raw tasks that are up: each calls what it is given, and waits."""
    live = 0

    def up() -> None:
        nonlocal live
        live += 1

    async with trio.open_nursery() as nursery:
        gc.collect()
        tracemalloc.start()
        for _ in range(n):
            nursery.start_soon(shell, up)
        while live < n:
            await trio.lowlevel.checkpoint()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        nursery.cancel_scope.cancel()
    return used / n


def resident_bytes() -> int:
    """Give the memory that this process holds now. Linux only."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rounds_of(quick: bool) -> int:
    """Say how many rounds a median is of."""
    return QUICK_ROUNDS if quick else ROUNDS


def interleave(rounds: int, *arms: Arm) -> list[float]:
    """Run the arms in turn, each in a loop of its own, and give the median of each; the first turn only warms up."""
    measured: list[list[float]] = [[] for _ in arms]
    for turn in range(rounds + 1):
        for arm, seen in zip(arms, measured, strict=True):
            gc.collect()
            value = trio.run(arm)
            if turn:
                seen.append(value)
    return [statistics.median(seen) for seen in measured]


def per_operation(
    name: str, ours: float, baseline: float, n: int, method: str, gate: Gate | None = None
) -> Figure:
    """Make a figure of microseconds for each operation from CPU seconds for all."""
    return Figure(name, ours / n * 1e6, "us", baseline / n * 1e6, ours / baseline, n, method, gate)


def report(figures: Iterable[Figure], as_json: bool) -> None:
    """Print figures as they come."""
    for figure in figures:
        print(figure.to_json() if as_json else figure.line(), flush=True)
