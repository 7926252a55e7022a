"""Running git where whoever works in a repository may have written its settings.

What would be got wrong:

- Settings name programs: hooks, filters of files, monitors, transports, signers. All of
  them are switched off, the filters by the names that the settings give them; and git
  runs behind the boundary of the agent that asks, like any other command of it.
- What is switched off for all transports can be switched on again for one of them by a
  setting of the repository; only a variable of the environment wins over both. An object
  that is missing may be fetched by any command, where a setting says from whom.
- What git complains of is not what it was asked for: where names are read from what it
  prints, its complaints must not stand among them.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from actors.agents.entry_text import bounded
from actors.errors import ToolFailed
from actors.tools.process import OUTPUT_BYTES, Finished, Status
from actors.tools.sandbox import Boundary, run_behind

MOST_FILTERS: Final = 64
SHOWN: Final = 500
_OFF: Final = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.sshCommand": "false",
    "gpg.program": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_FILTER: Final = re.compile(r"filter\.(?P<name>.*)\.(?:smudge|clean|process|required)", re.DOTALL)
# Stands for what is no text: as such a name cannot be given back to git.
_LOST: Final = "\ufffd"
_NOTHING: Final[Mapping[str, str]] = {}
# What only looks writes nothing, not even what git remembers of files.
READING: Final = {"GIT_OPTIONAL_LOCKS": "0"}


def _unheard(_processes: Sequence[int]) -> None:
    """Take the names of processes that did not die, where nobody keeps them."""


class Git:
    """Runs git behind a boundary, with everything off that settings could let it run."""

    def __init__(
        self, around: Boundary, root: str, timeout: float, leaked: Callable[[Sequence[int]], None] = _unheard
    ) -> None:
        self._around = around
        self._root = root
        self._timeout = timeout
        self._leaked = leaked

    async def run(
        self,
        *arguments: str,
        at: str | None,
        work_tree: str | None = None,
        off: Mapping[str, str] = _NOTHING,
        more: Mapping[str, str] = _NOTHING,
        stdin: bytes = b"",
        limit: int = OUTPUT_BYTES,
        stderr: int = subprocess.STDOUT,
    ) -> Finished:
        """Run it in the repository ``at``; None is in none. ``off`` are settings, ``more`` is for its environment.

        Cancellation: no process of it is left.
        """
        given = {
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
            **_as_environment({**_OFF, **off}),
            **more,
        }
        if at is not None:
            given |= {"GIT_DIR": at, "GIT_COMMON_DIR": at, "GIT_WORK_TREE": work_tree or self._root}
        argv = ["git", "--no-pager", *arguments]
        finished = await run_behind(
            self._around, argv, timeout=self._timeout, stdin=stdin, limit=limit, more=given, stderr=stderr
        )
        self._leaked(finished.leaked)
        return finished

    async def must(self, what: str, *arguments: str, at: str | None, **options: Any) -> Finished:
        """Run it as `run` does, where it has to go well.

        Cancellation: as `run`.

        Raises:
            ToolFailed: it did not; says ``what``.
        """
        finished = await self.run(*arguments, at=at, **options)
        if not went_well(finished):
            raise self.failed(what, finished)
        return finished

    async def lines(
        self, what: str, *arguments: str, at: str, more: Mapping[str, str] = _NOTHING, **options: Any
    ) -> Finished:
        """Run what changes nothing, and give what it prints without what it complains of.

        Cancellation: as `run`.

        Raises:
            ToolFailed: as `must`; with the complaint, for which it is run once more if it ended by itself.
        """
        given = {**READING, **more}
        finished = await self.run(*arguments, at=at, more=given, stderr=subprocess.DEVNULL, **options)
        if went_well(finished):
            return finished
        if finished.status is not Status.exited:
            # It would take as long once more, and has complained of nothing. What it has printed is names.
            raise self.failed(what, attrs.evolve(finished, output=""))
        loud = await self.run(*arguments, at=at, more=given, **options)
        raise self.failed(what, finished if went_well(loud) else loud)

    async def filters_off(self, at: str) -> dict[str, str]:
        """Give the settings that switch off the filters that the settings of a repository name.

        Cancellation: as `run`.

        Raises:
            ToolFailed: the settings cannot be read, or name too many, or one whose name is no text.
        """
        listed = await self.must("its settings cannot be read", "config", "--list", "--name-only", at=at)
        if listed.left_out:
            raise ToolFailed("its settings are too many to look through")
        # A name ends at LF and nowhere else: whatever else ends a line somewhere can stand in it.
        names = {found["name"] for line in listed.output.split("\n") if (found := _FILTER.fullmatch(line))}
        if any(_LOST in name for name in names):
            raise ToolFailed("its settings name a filter by what is no text")
        if len(names) > MOST_FILTERS:
            raise ToolFailed(f"its settings name more than {MOST_FILTERS} filters")
        off = {f"filter.{name}.{what}": "" for name in names for what in ("smudge", "clean", "process")}
        return off | {f"filter.{name}.required": "false" for name in names}

    def failed(self, what: str, finished: Finished) -> ToolFailed:
        """Say how it failed, without the place where the workspace lies."""
        told = bounded(finished.output.strip().replace(self._root, "."), SHOWN)
        how = "" if finished.status is Status.exited else f" ({finished.status})"
        return ToolFailed(f"{what}{how}: {told}" if told else f"{what}{how}")


def filter_names(off: Mapping[str, str]) -> set[str]:
    """Give the filters that `Git.filters_off` switches off."""
    return {found["name"] for key in off if (found := _FILTER.fullmatch(key))}


def went_well(finished: Finished) -> bool:
    """Tell whether git did what it was told."""
    return finished.status is Status.exited and finished.code == 0


def _as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Give settings as git takes them from its environment: they win over those of files."""
    more = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        more |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return more
