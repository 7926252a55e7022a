"""The named agents that a workspace brings along in files.

Whoever wrote these files may not be whoever runs them: they are read as an agent
would be let read them. No link is followed, nothing outside the workspace is
opened, and what the policy does not let be read outright is not read; else a link
to a key would make the key a role, and send it.
"""

from __future__ import annotations

import os
from typing import Final

import attrs

from actors.agents.agent_files import AgentFile, Problem, read_agent_file, read_foreign_agent
from actors.agents.entry_text import clean
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.errors import ConfigError, ToolFailed
from actors.tools.paths import Workspace
from actors.tools.whole_files import opened, read_bytes

OWN: Final = ".actors/agents"
FOREIGN: Final = ".claude/agents"
MOST_FILES: Final = 64
MOST_BYTES: Final = 128 * 1024
MOST_LISTED: Final = 1_000


@attrs.frozen
class Found:
    """The agents that were found, by name, and what is to be told about them."""

    files: tuple[AgentFile, ...] = ()
    notes: tuple[Problem, ...] = ()


def find_agents(root: str, policy: Policy) -> Found:
    """Read the named agents of a workspace. Of two under one name ours stays, and never the other tool's.

    Raises:
        ConfigError: every problem of our own files, with its path and line.
    """
    finding = _Finding(Workspace(root), policy)
    finding.own()
    if finding.problems:
        raise ConfigError(*finding.problems)
    finding.foreign()
    found = sorted(finding.found.values(), key=lambda each: each.definition.name)
    return Found(tuple(found), tuple(finding.notes))


class _Finding:
    """One look into a workspace, and what it came to."""

    def __init__(self, workspace: Workspace, policy: Policy) -> None:
        self._workspace = workspace
        self._policy = policy
        # Our own folder is kept from agents by a built-in layer, so that none of them can write what its children
        # will be. That is no secret from whoever starts the run: there the operator's own rules decide.
        kept = tuple(layer for layer in policy.layers if layer not in Policy.default().layers)
        self._operators = attrs.evolve(policy, layers=kept)
        self.found: dict[str, AgentFile] = {}
        self.notes: list[Problem] = []
        self.problems: list[Problem] = []

    def own(self) -> None:
        """Read our own files; whatever hinders that is a problem."""
        for path in self._paths(OWN, self.problems):
            text = self._text(path, self.problems)
            if text is None:
                continue
            try:
                read = read_agent_file(text, clean(path), os.path.basename(path).removesuffix(".md"))
            except ConfigError as error:
                self.problems += error.problems
                continue
            self._keep(read, self.problems, "rename one of them")

    def foreign(self) -> None:
        """Read the files of the other tool; whatever hinders that is told."""
        ours = set(self.found)
        for path in self._paths(FOREIGN, self.notes):
            text = self._text(path, self.notes)
            if text is None:
                continue
            read, notes = read_foreign_agent(text, clean(path))
            self.notes += notes
            # Whoever has an agent of this name beside the other tool's wants that one here.
            if read is not None and read.definition.name not in ours:
                self._keep(read, self.notes, "this one is left out")

    def _keep(self, read: AgentFile, told: list[Problem], remedy: str) -> None:
        name = read.definition.name
        other = self.found.get(name)
        if other is None:
            self.found[name] = read
        else:
            told.append((read.place("name"), f"the agent {name} stands in {other.path} as well; {remedy}"))

    def _paths(self, folder: str, told: list[Problem]) -> list[str]:
        try:
            names = self._names(folder)
        except FileNotFoundError:
            return []
        except (OSError, ToolFailed) as error:
            if self._is_there(folder):
                told.append((folder, f"cannot be looked into, and links are not followed: {clean(str(error))}"))
            return []
        if len(names) > MOST_FILES:
            told.append((folder, f"holds more than {MOST_FILES} agents; only the first {MOST_FILES} would be read"))
        return [f"{folder}/{name}" for name in names[:MOST_FILES]]

    def _names(self, folder: str) -> list[str]:
        """List the Markdown files of a folder, without following a link on the way to it."""
        found: list[str] = []
        with self._workspace.directory(folder) as descriptor, os.scandir(descriptor) as entries:
            for seen, entry in enumerate(entries):
                if seen >= MOST_LISTED:
                    raise ToolFailed(f"it holds more than {MOST_LISTED} entries")
                is_file = not entry.is_dir(follow_symlinks=False)
                if is_file and entry.name.endswith(".md") and not entry.name.startswith("."):
                    found.append(entry.name)
        return sorted(found)

    def _is_there(self, folder: str) -> bool:
        return os.path.lexists(f"{self._workspace.root}/{folder}")

    def _text(self, path: str, told: list[Problem]) -> str | None:
        shown_path = clean(path)
        policy = self._operators if path.startswith(f"{OWN}/") else self._policy
        if policy.explain(Act.read, shown_path).effect is not Effect.allow:
            self.notes.append((shown_path, "is left out: the policy does not let it be read"))
            return None
        try:
            with opened(self._workspace, path) as descriptor:
                raw = None if descriptor is None else read_bytes(descriptor, MOST_BYTES)
        except ToolFailed as error:
            told.append((shown_path, f"cannot be read, and links are not followed: {error}"))
            return None
        if raw is None:
            told.append((shown_path, f"is longer than {MOST_BYTES // 1024} KiB, or gone"))
            return None
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            told.append((f"{shown_path}:{line}", "is not UTF-8; save it as UTF-8"))
            return None
