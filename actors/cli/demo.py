"""`actors demo`: a real tree, a real endpoint over HTTP, and nothing to set up.

The root has a small book written: one child for each chapter, and one more
than the tree may hold, which is refused. Each child writes its file; the root
reads the reports, writes the table of contents, and a command that the
operator wrote checks the work.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Approver
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.running import RunResult, run_tree
from actors.cli.again import command
from actors.cli.live import Progress
from actors.cli.running import Shown, Watch, run_stoppable, watched
from actors.containment.limits import Containment
from actors.containment.prices import PriceTable
from actors.providers.openai_chat import OpenAIChat
from actors.store.store import Store
from actors.testing.model_script import Answer, SaidCall
from actors.testing.model_server import open_model_server

MODEL = "demo-model"
# Agents at work at a time.
AT_ONCE = 3
# So many writers take as long as a model may; all of them together a few seconds.
UNHURRIED = 10
TITLES = ("tides", "winds", "stars", "stones", "rivers", "forests", "deserts", "ice", "birds", "maps")

CHECK = """import pathlib, sys
book = pathlib.Path("contents.md").read_text().split()
missing = [name for name in book if not pathlib.Path(f"chapters/{name}.md").is_file()]
print(f"{len(book)} chapters, {len(missing)} missing")
sys.exit(1 if missing or not book else 0)
"""


def chapters(count: int, seed: int) -> list[str]:
    """Choose the names of the chapters."""
    names = [TITLES[n % len(TITLES)] + (f"-{n // len(TITLES) + 1}" if n >= len(TITLES) else "") for n in range(count)]
    random.Random(seed).shuffle(names)
    return names


def author(names: list[str], seed: int, pace: float | None = None) -> Callable[[Mapping[str, Any], int], Answer]:
    """Make the model: what it answers follows from what it is asked, as with any model.

    An answer takes about ``pace`` seconds; None is as fast as it can be followed at all.
    """
    chance = random.Random(seed)
    wanted = [*names, "appendix"]
    # Many writers answer faster, so that the whole takes as long as with a few.
    slowness = min(1.0, UNHURRIED / len(names))

    def answer(body: Mapping[str, Any], _number: int) -> Answer:
        goal = next(str(message["content"]) for message in body["messages"] if message["role"] == "user")
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        drawn = chance.random()
        delay = slowness * (0.1 + 0.4 * drawn) if pace is None else pace * (0.5 + drawn)
        if goal.startswith("Write the chapter"):
            return _chapter(goal.split("'")[1], turns, delay)
        return _editor(names, wanted, turns, delay)

    return answer


def _chapter(name: str, turns: int, delay: float) -> Answer:
    if turns == 0:
        text = f"# {name}\n\nEverything about {name}, on one page.\n"
        return _calls(delay, ("write_file", {"path": f"chapters/{name}.md", "content": text}))
    return Answer(text=f"The chapter about {name} is written.", delay=delay)


def _editor(names: list[str], wanted: list[str], turns: int, delay: float) -> Answer:
    if turns == 0:
        return _calls(
            delay,
            *(
                (
                    "spawn_agent",
                    {
                        "goal": f"Write the chapter '{name}' into chapters/{name}.md.",
                        "verify_file": f"chapters/{name}.md",
                        "verify_contains": f"# {name}",
                    },
                )
                for name in wanted
            ),
        )
    if turns == 1:
        return _calls(delay, ("write_file", {"path": "contents.md", "content": "\n".join(names) + "\n"}))
    return Answer(text="The book is whole.", delay=delay)


def _calls(delay: float, *calls: tuple[str, dict[str, Any]]) -> Answer:
    return Answer(calls=tuple(SaidCall(name, json.dumps(arguments)) for name, arguments in calls), delay=delay)


def run_demo(agents: int, seed: int, pace: float | None, store_path: str | None, shown: Shown) -> int:
    """Run the demo with ``agents`` writers and return the exit code.

    With a ``pace`` it lasts long enough to be looked at from elsewhere, and says how.
    """
    folder = Path(tempfile.mkdtemp(prefix="actors-demo-"))

    async def work(watch: Watch) -> int:
        workspace = folder / "workspace"
        workspace.mkdir()
        (workspace / "check.py").write_text(CHECK)
        return await _demo(agents, seed, pace, workspace, store_path or str(folder / "runs.db"), watch)

    def clear() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    try:
        return run_stoppable(shown, work, clear)
    finally:
        clear()


def seconds_for(agents: int, pace: float) -> float:
    """Give the time that the demo may take: what its answers take one after another, and a minute for the rest."""
    answers = 3 + 2 * math.ceil(agents / AT_ONCE)
    return 60 + 1.5 * pace * answers


def _tell_how_to_look(progress: Progress, tree: Tree, store_path: str) -> None:
    look = command("show", "--live", tree.run_id, "--store", os.path.abspath(store_path))
    progress.say(f"run {tree.run_id}: to look at it live, copy this line into a second terminal\n{look}")


async def _demo(agents: int, seed: int, pace: float | None, workspace: Path, store_path: str, watch: Watch) -> int:
    names = chapters(agents, seed)
    contract = TaskContract.workspace(
        f"Have a book of {agents} chapters written in chapters/, with its contents in contents.md.", workspace
    ).with_verification(Verification.command([sys.executable, "check.py"]))
    # The root and one writer for each chapter: the appendix does not fit.
    seconds = seconds_for(agents, pace or 0)
    limits = Containment(agents + 1, AT_ONCE, 1, 600_000, max_total_cost=500_000, max_total_duration=seconds)
    prices = PriceTable.from_dict({MODEL: {"input": "0.15", "output": "0.60"}})
    async with open_model_server(author(names, seed, pace)) as server, Store.open(store_path) as store:
        provider = OpenAIChat(server.base_url, api_key="", model=MODEL, name="loopback")

        async def start(progress: Progress, _terminal: Approver, on_open: Callable[[Tree], None]) -> RunResult:
            def opened(tree: Tree) -> None:
                on_open(tree)
                if pace is not None:
                    _tell_how_to_look(progress, tree, store_path)

            return await run_tree(
                contract,
                provider,
                store,
                # Its check is a command, and what only a default asks about binds none: this leaves nothing to be said.
                Policy.default().layer("demo").allow_write("*"),
                ApproveAll(),
                limits,
                observer=progress,
                prices=prices,
                on_open=opened,
            )

        try:
            return await watched(watch, store, start)
        finally:
            await provider.aclose()
