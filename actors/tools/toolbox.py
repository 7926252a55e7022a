"""The built-in tools. Their names are derived from this registry and from nothing else."""

import os
from os import PathLike

from actors.agents.ports import Tool
from actors.tools.check import Check
from actors.tools.edit_file import EditFile
from actors.tools.exec import Exec
from actors.tools.git_change import GitAdd, GitBranch, GitCommit
from actors.tools.git_look import GitDiff, GitLog, GitStatus
from actors.tools.list_dir import ListDir
from actors.tools.patch_file import PatchFile
from actors.tools.read_file import ReadFile
from actors.tools.search import Find, Grep
from actors.tools.shell import Shell
from actors.tools.shell_background import ShellKill, ShellPoll, ShellStart
from actors.tools.todo_write import TodoWrite
from actors.tools.write_file import WriteFile


def builtin_tools() -> tuple[Tool, ...]:
    """Make all tools."""
    files = (ReadFile(), WriteFile(), EditFile(), PatchFile(), ListDir(), Find(), Grep())
    git = (GitStatus(), GitDiff(), GitLog(), GitAdd(), GitCommit(), GitBranch())
    return (*files, Exec(), Shell(), ShellStart(), ShellPoll(), ShellKill(), Check(), TodoWrite(), *git)


def tools_for(root: str | PathLike[str]) -> tuple[Tool, ...]:
    """Make the tools of a workspace: those of git only for one that holds a repository.

    Every agent pays for the description of each tool with every request.
    """
    tools = builtin_tools()
    if os.path.lexists(os.path.join(root, ".git")):
        return tools
    return tuple(tool for tool in tools if not tool.spec.name.startswith("git_"))


def tool_names() -> frozenset[str]:
    """Give the names that no other tool may take."""
    return frozenset(tool.spec.name for tool in builtin_tools())
