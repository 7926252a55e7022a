"""What a person may do next with a run that stopped: the commands, as they are typed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from actors.assembly.child_trees import ChildTree, TreeState, child_trees
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


def how_to_fetch(reader: Reader, run_id: str, states: Mapping[str, TreeState] | None = None) -> list[str]:
    """Say of each work tree of a child what is there, and below it the command that fetches what is committed.

    ``states`` are those that somebody looked at, by the path of the agent.
    """
    found = child_trees(reader.agents(run_id), states or {})
    lines = []
    for each in found[:FEW]:
        if os.path.isdir(each.path):
            lines += [what_is_there(each), *([f"  {each.fetch}"] if _can_fetch(each) else [])]
        else:
            lines.append(f"The work tree of {each.agent} in {each.path}, on the branch {each.branch}, is gone")
    if len(found) > FEW:
        again = command("show", "--json", run_id, "--store", reader.file)
        lines.append(f"{counted(len(found) - FEW, 'more work tree')}: {again}")
    return [printable(line) for line in lines]


def what_is_there(tree: ChildTree) -> str:
    """Say what is committed in a work tree, and what would be lost with it."""
    who, place, state = tree.agent, tree.path, tree.state
    fetched = _can_fetch(tree)
    if state is None:
        text = f"What {who} committed is on the branch {tree.branch} in {place}; commit or copy what is not committed"
        text += " before you remove it"
    elif state.elsewhere and not state.commits:
        text = f"What {who} committed in {place} is not on the branch {tree.branch}, which is all that is fetched;"
        text += " bring it there, or copy it with what is not committed, before you remove it"
    elif state.commits:
        text = f"The work of {who} is on the branch {tree.branch} in {place}: {counted(state.commits, 'commit')}"
        text += ", and changes that are not committed: copy those before you remove it" if state.uncommitted else ""
    elif state.uncommitted:
        text = f"{who} committed nothing: its files are in {place}, changed and not committed; copy them before you"
        text += " remove it"
    else:
        text = f"{who} committed nothing, and left nothing in {place} that git would tell of"
    if state is not None and state.elsewhere and state.commits:
        text += f"; commits of it are there too that are not on the branch {tree.branch}"
    if not tree.ended:
        text += "; it has not ended, so this may be half of it"
    return f"{text}. It is fetched with:" if fetched else text


def _can_fetch(tree: ChildTree) -> bool:
    return tree.state is None or tree.state.commits > 0


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
