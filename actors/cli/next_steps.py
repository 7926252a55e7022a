"""What a person may do next with a run that stopped: the commands, as they are typed."""

from __future__ import annotations

import os
from typing import Final

from actors.assembly.child_trees import child_trees
from actors.assembly.inbox import Awaits, Waiting, waiting
from actors.cli.again import command
from actors.cli.phrases import counted, shortened
from actors.cli.quoting import printable
from actors.store.readers import Reader

# Things that one run waits for which are named at its end.
FEW: Final = 5


def answers_to(each: Waiting, store_path: str) -> list[str]:
    """Give the commands that answer."""
    if each.kind is Awaits.approval:
        return [
            command("approve", each.id, "--store", store_path),
            command("deny", each.id, "--store", store_path) + " --reason TEXT",
        ]
    again = command("recover", each.id, "--store", store_path)
    return [f"{again} --retry", f"{again} --completed TEXT", f"{again} --abort"]


def how_to_fetch(reader: Reader, run_id: str) -> list[str]:
    """Say of each work tree of a child where its work is, and the command that fetches it, as far as it is there."""
    found = child_trees(reader.agents(run_id))
    lines = []
    for each in found[:FEW]:
        where = f"The work of {each.agent} is on the branch {each.branch} in {each.path}"
        lines.append(f"{where}; fetch it with: {each.fetch}" if os.path.isdir(each.path) else f"{where}, which is gone")
    if len(found) > FEW:
        again = command("show", "--json", run_id, "--store", reader.file)
        lines.append(f"{counted(len(found) - FEW, 'more work tree')}: {again}")
    return [printable(line) for line in lines]


def how_to_go_on(reader: Reader, run_id: str) -> list[str]:
    """Say what a run that stopped waits for, and the command with which it goes on."""
    root = reader.run(run_id)
    if root is None or root.task is None:
        # A program of somebody's own started it; only that knows the model.
        look = command("show", run_id, "--store", reader.file)
        return [f"It was stopped. What it did is kept; look at it with: {look}"]
    found = waiting(reader, run_id)
    again = command("resume", run_id, "--store", reader.file)
    if not found:
        return [f"It was stopped. What it did is kept; it goes on with: {again}"]
    lines = ["It waits for you:"]
    for each in found[:FEW]:
        asks = each.kind is Awaits.approval
        what = f"asks to {each.act} {shortened(each.target)}" if asks else f"may have called {shortened(each.tool)}"
        lines += [f"{each.id}  {each.path} {what}", *(f"  {line}" for line in answers_to(each, reader.file))]
    if len(found) > FEW:
        lines.append(f"{len(found) - FEW:,} more: {command('inbox', '--store', reader.file)}")
    return [*lines, f"Then it goes on with: {again}"]
