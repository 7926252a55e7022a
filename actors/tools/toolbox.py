"""The built-in tools. Their names are derived from this registry and from nothing else."""

from actors.agents.ports import Tool
from actors.tools.edit_file import EditFile
from actors.tools.exec import Exec
from actors.tools.list_dir import ListDir
from actors.tools.read_file import ReadFile
from actors.tools.search import Find, Grep
from actors.tools.shell import Shell
from actors.tools.shell_background import ShellKill, ShellPoll, ShellStart
from actors.tools.write_file import WriteFile


def builtin_tools() -> tuple[Tool, ...]:
    """Make the tools of a workspace."""
    files = (ReadFile(), WriteFile(), EditFile(), ListDir(), Find(), Grep())
    return (*files, Exec(), Shell(), ShellStart(), ShellPoll(), ShellKill())


def tool_names() -> frozenset[str]:
    """Give the names that no other tool may take."""
    return frozenset(tool.spec.name for tool in builtin_tools())
