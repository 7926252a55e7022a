"""Which work trees the children of a run have, from its rows: where each lies, its branch, and how it is fetched."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from actors.agents.end_rows import ENDED
from actors.agents.worktrees import FOLDER, WorktreePlace
from actors.store.records import RunRecord

# Runs nothing that the child's own settings name.
FETCH: Final = ("fetch", "--no-tags")


@attrs.frozen
class TreeState:
    """What is in a work tree: ``commits`` on its branch since it was made, and whether anything is there besides.

    ``elsewhere``: it has commits that are not on its branch, which is all that is fetched.
    """

    commits: int
    uncommitted: bool
    elsewhere: bool = False


@attrs.frozen
class ChildTree:
    """The work tree of one agent: ``path`` is where it lies, ``above`` the workspace whose repository it came from.

    ``ended``: nothing more comes from its agent. ``state`` None: nobody looked, or nobody could.
    """

    agent: str
    path: str
    branch: str
    above: str
    ended: bool = True
    state: TreeState | None = None

    @property
    def fetch(self) -> str:
        """Write the command that brings its branch into the repository above, from wherever it is typed."""
        place = self.path[len(self.above) + 1 :]
        return shlex.join(["git", "-C", self.above, *FETCH, place, f"{self.branch}:{self.branch}"])

    def as_object(self) -> dict[str, Any]:
        """Give it as plain data, as it stands in a report."""
        state = self.state
        return {
            "path": self.path,
            "branch": self.branch,
            "fetch": self.fetch,
            "ended": self.ended,
            "commits": None if state is None else state.commits,
            "uncommitted": None if state is None else state.uncommitted,
            "elsewhere": None if state is None else state.elsewhere,
        }


_UNSEEN: Final[Mapping[str, TreeState]] = {}


def child_trees(agents: Iterable[RunRecord], states: Mapping[str, TreeState] = _UNSEEN) -> list[ChildTree]:
    """Give the work trees of the agents of a run; one whose children work in it too is told once, of who got it.

    ``states`` are those that somebody looked at, by the path of the agent.
    """
    roots: dict[str, str | None] = {}
    found = []
    for agent in agents:
        roots[agent.path] = agent.root
        above = roots.get(agent.parent or "")
        if agent.root is None or above is None or agent.root == above:
            continue
        folder, _, name = agent.root.rpartition("/")
        if folder.endswith(f"/{FOLDER}"):
            top = folder[: -len(FOLDER) - 1]
            facts = agent.status in ENDED, states.get(agent.path)
            found.append(ChildTree(agent.path, agent.root, WorktreePlace(name).branch, top, *facts))
    return found
