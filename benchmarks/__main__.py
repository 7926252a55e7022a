"""The command: ``python -m benchmarks [NAME ...] [--json] [--quick] [--list]``."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import (
    agents_http,
    boundary,
    ceilings,
    dead_actors,
    growth,
    halt,
    ledger,
    memory,
    messages,
    million,
    peers,
    resume,
    sandbox,
    slots,
    spawn,
    store_overhead,
    store_single,
    store_steps,
    supervision,
)
from benchmarks.harness import HEADER, Figure, report

BENCHMARKS: dict[str, Callable[[bool], Iterator[Figure]]] = {
    "ceilings": ceilings.figures,
    "spawn": spawn.figures,
    "memory": memory.figures,
    "messages": messages.figures,
    "ledger": ledger.figures,
    "slots": slots.figures,
    "sandbox": sandbox.figures,
    "halt": halt.figures,
    "supervision": supervision.figures,
    "growth": growth.figures,
    "dead_actors": dead_actors.figures,
    "agents_http": agents_http.figures,
    "boundary": boundary.figures,
    "store_steps": store_steps.figures,
    "store_single": store_single.figures,
    "store_overhead": store_overhead.figures,
    "resume": resume.figures,
    "peers": peers.figures,
    "million": million.figures,
}
# Not part of a run without names: minutes, and many GiB.
ONLY_WHEN_NAMED = frozenset({"million"})
SOME = f"which benchmarks; without any: all but {', '.join(ONLY_WHEN_NAMED)}"


def described(name: str) -> str:
    """Give a name with the first line of its module's docstring."""
    module: Any = sys.modules[BENCHMARKS[name].__module__]
    return f"{name:<{max(map(len, BENCHMARKS))}}  {module.__doc__.strip().splitlines()[0]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named, or all that are short; 2 when one is not known."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Figures of actors, each beside a baseline measured in the same run."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=SOME)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="small counts and few rounds: shows that it runs")
    parser.add_argument("--list", action="store_true", help="print each name with what it measures, and end")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(map(described, BENCHMARKS)))
        return 0
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    if not options.json:
        # At once, so that a pipe shows it before the first figure, which may take minutes.
        print(HEADER, flush=True)
    for name in options.names or [name for name in BENCHMARKS if name not in ONLY_WHEN_NAMED]:
        report(BENCHMARKS[name](options.quick), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
