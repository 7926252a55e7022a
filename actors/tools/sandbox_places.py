"""Which places there are for the boundary of a command: what the policy names, and the files that it closes.

What would be got wrong:

- A look at the workspace ends somewhere. What was not looked at is not held, and is
  said; where the policy lets nothing be read but what a rule opens, a mode that was
  named is refused instead.
- Build directories and version control are looked at last, so that they do not
  use up the look for what people wrote; and never the objects of git: their
  names are numbers, and there are many.
- A place that does not exist breaks nothing. A link is no file of its own: where
  it leads is judged by itself.
"""

import os
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Final

import attrs
import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Policy
from actors.agents.worktrees import FOLDER
from actors.tools.sandbox_grants import MOST_COVERED, FileRules, Grants, all_above, ancestors, grants_of, is_below
from actors.tools.sandbox_plan import Backend, Capabilities, Plan, plan_sandbox
from actors.tools.walking import SKIPPED_DIRECTORIES

# So many entries of a workspace are looked at for what the policy closes.
MOST_LOOKED_AT: Final = 5_000
# What stands before every command. Not that of a virtual environment: those lie in workspaces, and whoever
# writes there could replace it, or tell it by `pyvenv.cfg` to load something else.
STARTER: Final = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable or "/")
_LIBRARY: Final = os.path.realpath(os.path.dirname(os.__file__))
_NO_RULES: Final = "full_access: no rule for files or the network binds a command"


def home_directory() -> str:
    """Give the real home directory of whoever runs us."""
    return os.path.realpath(os.path.expanduser("~"))


async def planned(confinement: Confinement, root: str, can: Capabilities) -> Plan:
    """Plan the boundary of one command in ``root``, for the places that exist now. ``root`` is a real path.

    Cancellation: nothing was started.
    """
    if confinement.apart_from is not None:
        return _apart(confinement, confinement.apart_from, can)
    planning = _planning(confinement, root, can)
    while True:
        try:
            next(planning)
        except StopIteration as done:
            plan: Plan = done.value
            return plan
        await trio.lowlevel.checkpoint()


def _planning(confinement: Confinement, root: str, can: Capabilities) -> Generator[None, None, Plan]:
    """Plan, and give way now and then: so that it is the same for a command and before all of them.

    Raises:
        OSError: the workspace cannot be listed.
    """
    grants = grants_of(confinement.policy, root, home_directory())
    own = confinement.hidden
    grants = attrs.evolve(grants, hidden=(*grants.hidden, *own), held=(*grants.held, *all_above(own)))
    look = Look(root, FileRules(confinement.policy))
    outside: tuple[str, ...] = ()
    if confinement.mode is not ExecSandbox.full_access and look.rules.exist:
        yield from look.steps()
        grants = look.added_to(grants)
        closed, outside = yield from _closed_above(root, look.rules)
        grants = attrs.evolve(grants, hidden=(*grants.hidden, *closed))
    plan = chosen(confinement.mode, existing(grants, root), root, can)
    if plan.mode is ExecSandbox.full_access and not confinement.policy.is_permissive:
        return attrs.evolve(plan, not_held=(*plan.not_held, _NO_RULES))
    if plan.backend is Backend.none:
        return plan
    if root == "/" and plan.grants.writable:
        return attrs.evolve(plan, problem="the workspace is the whole file system; give contract.root a directory")
    if confinement.mode is not None and plan.problem is None and (problem := look.problem) is not None:
        return attrs.evolve(plan, problem=f"{plan.mode} cannot be held here: {problem}")
    above = [f"read of {path}, in which the workspace lies" for path in grants.hidden if root.startswith(path + "/")]
    return attrs.evolve(plan, not_held=(*plan.not_held, *look.not_held, *outside, *above))


def _closed_above(root: str, rules: FileRules) -> Generator[None, None, tuple[list[str], tuple[str, ...]]]:
    """Give what is closed in the workspace that a work tree lies in, and what of it is not held; nothing for others.

    Whoever works in the tree has the rules of those who work above, and is no wider than they are.
    """
    workspace, folder = os.path.split(os.path.dirname(root))
    if folder != FOLDER:
        return [], ()
    look = Look(workspace, rules)
    try:
        yield from look.steps()
    except OSError:
        look.missed.append("denied files in the workspace above, which cannot be listed")
    places = grants_of(rules.policy, workspace, home_directory()).hidden
    return look.hidden_beside(root, places), look.not_held


def plan_problem(mode: ExecSandbox, policy: Policy, root: str, can: Capabilities) -> str | None:
    """Say why no command could be started in ``root`` under a mode that was named; None when one could."""
    plan = chosen(mode, existing(grants_of(policy, root, home_directory()), root), root, can)
    if plan.problem is not None or mode is ExecSandbox.full_access:
        return plan.problem
    planning = _planning(Confinement(mode, policy), root, can)
    try:
        while True:
            next(planning)
    except StopIteration as done:
        found: Plan = done.value
        return found.problem
    except OSError:
        # There is no workspace yet; said by whoever needs it.
        return None


def _apart(confinement: Confinement, workspace: str, can: Capabilities) -> Plan:
    """Plan the boundary of a program that is handed a text. What is hidden whole need not be looked through."""
    policy = confinement.policy
    grants = Grants((), (*grants_of(policy, workspace, home_directory()).hidden, *confinement.hidden, workspace))
    plan = chosen(confinement.mode, existing(grants, "/"), os.path.realpath(workspace), can)
    return plan if plan.mode is ExecSandbox.full_access else attrs.evolve(plan, mode=ExecSandbox.read_only)


def chosen(mode: ExecSandbox | None, grants: Grants, root: str, can: Capabilities) -> Plan:
    """Choose a backend, without those that commands could change, or that cannot start where these grants apply."""
    writable = (root, *grants.writable)
    unfit: list[str] = []
    if any(is_below(STARTER, place) for place in writable):
        unfit.append(f"{STARTER}, which starts commands, is where commands could change it")
        can = attrs.evolve(can, bubblewrap=None, landlock=0)
    if can.bubblewrap is not None and any(is_below(can.bubblewrap, place) for place in writable):
        unfit.append(f"{can.bubblewrap} is where commands could change it")
        can = attrs.evolve(can, bubblewrap=None)
    # Bubblewrap starts it inside; the others do before anything is hidden.
    unseen = [place for place in grants.hidden if is_below(STARTER, place) or is_below(_LIBRARY, place)]
    if can.bubblewrap is not None and unseen:
        unfit.append(f"the policy hides {unseen[0]}, where the Python is that starts commands")
        can = attrs.evolve(can, bubblewrap=None)
    return plan_sandbox(mode, grants, can, unfit=unfit)


# ── the files of a workspace ────────────────────────────────────────────────


@attrs.define
class Look:
    """One look at the files of a workspace, for what the policy closes. Names are relative to the root.

    ``hidden`` may not be read, ``protected`` not written; what lies in a named directory is
    not named again. ``missed`` says what was not looked at.
    """

    root: str
    rules: FileRules
    hidden: list[str] = attrs.Factory(list)
    protected: list[str] = attrs.Factory(list)
    missed: list[str] = attrs.Factory(list)
    _seen: int = 0
    # Directories that hold something which may be read, at any depth.
    _open: set[str] = attrs.Factory(set)

    def steps(self) -> Iterator[None]:
        """Look, and give way now and then.

        Raises:
            OSError: the workspace itself cannot be listed.
        """
        pending, later = deque([("", False)]), deque[tuple[str, bool]]()
        while pending or later:
            where = "" if pending else f" in {', '.join(sorted(SKIPPED_DIRECTORIES))}"
            here, shut = (pending or later).popleft()
            try:
                below = self._directory(here, shut)
            except OSError as error:
                if not here:
                    raise
                self._unlisted(here.rstrip("/"), error)
                continue
            if below is None:
                self.missed.append(f"denied files{where} beyond the first {MOST_LOOKED_AT:,} entries")
                break
            for name, is_shut in below:
                last = name.rstrip("/").rpartition("/")[2]
                (later if where or last in SKIPPED_DIRECTORIES else pending).append((name, is_shut))
            yield
        if self.rules.is_closed:
            self._widen()

    def _directory(self, here: str, shut: bool) -> list[tuple[str, bool]] | None:
        """Look at the entries of one directory, and give the directories in it; None when there are too many."""
        below: list[tuple[str, bool]] = []
        with os.scandir(f"{self.root}/{here}") as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > MOST_LOOKED_AT:
                    return None
                if not entry.is_symlink():
                    below += self._entry(here + entry.name, shut, entry.is_dir(follow_symlinks=False))
        return below

    def _entry(self, name: str, shut: bool, is_directory: bool) -> list[tuple[str, bool]]:
        rules = self.rules
        if not rules.readable(name, is_directory=is_directory) or (is_directory and not rules.may_open_in(name)):
            self.hidden.append(name)
            return []
        # As a whole where that is what a rule says, in work trees too: only so many places can be covered.
        if not shut and (not rules.writable(name) or (is_directory and rules.keeps_all_in(name))):
            self.protected.append(name)
            shut = True
        if not is_directory:
            self._opened(name)
            return []
        # Objects of git have numbers for names.
        return [] if name.endswith(".git/objects") else [(f"{name}/", shut)]

    def _opened(self, name: str) -> None:
        above = name.rpartition("/")[0]
        while above not in self._open:
            self._open.add(above)
            above = above.rpartition("/")[0]

    def _unlisted(self, here: str, error: OSError) -> None:
        # One that vanished holds nothing; in one that may not be listed, a name may be known.
        if isinstance(error, PermissionError):
            if self.rules.is_closed:
                self.hidden.append(here)
            else:
                self.missed.append(f"denied files in {here}, which cannot be listed")

    def _widen(self) -> None:
        """Name, for files that may not be read, the widest directory in which none may; so there are fewer."""
        wide = dict.fromkeys(self._widest(name) for name in self.hidden)
        self.hidden = [name for name in wide if not any(above in wide for above in ancestors(name))]

    def _widest(self, name: str) -> str:
        for above in ancestors(name):
            if above in self._open:
                break
            name = above
        return name

    def added_to(self, grants: Grants) -> Grants:
        """Add what was found to what the policy names."""
        hidden = self.hidden[:MOST_COVERED]
        protected = self.protected[: MOST_COVERED - len(hidden)]
        return attrs.evolve(
            grants,
            hidden=(*grants.hidden, *(f"{self.root}/{name}" for name in hidden)),
            protected=(*grants.protected, *(f"{self.root}/{name}" for name in protected)),
            held=(*grants.held, *(f"{self.root}/{name}" for name in self._held(hidden, protected))),
        )

    def hidden_beside(self, inner: str, places: Iterable[str]) -> list[str]:
        """Give what is closed here, ``places`` too, beside ``inner``: that has a look of its own."""
        found = (*places, *(f"{self.root}/{name}" for name in self.hidden[:MOST_COVERED]))
        return [path for path in found if not is_below(path, inner) and not is_below(inner, path)]

    def _held(self, hidden: Iterable[str], protected: Iterable[str]) -> tuple[str, ...]:
        rules = self.rules
        by_place = [name for name in hidden if not rules.is_hidden_anywhere(name)]
        return all_above([*by_place, *(name for name in protected if not rules.is_protected_anywhere(name))])

    @property
    def not_held(self) -> tuple[str, ...]:
        """What the plan does not hold of what was found, or was not looked at."""
        over = self._over
        return (*self.missed, *([] if over is None else [over]))

    @property
    def problem(self) -> str | None:
        """Why a mode that was named would not hold; None when it would, as far as was looked."""
        if self.rules.is_closed and self.missed:
            return f"the policy lets nothing be read but what a rule opens, and there are {self.missed[0]}"
        over = self._over
        return None if over is None else f"{over}; deny the directories that they lie in"

    @property
    def _over(self) -> str | None:
        count = len(self.hidden) + len(self.protected) + len(self._held(self.hidden, self.protected))
        if count <= MOST_COVERED:
            return None
        return f"{count:,} denied files and directories above them, and {MOST_COVERED:,} can be covered"


# ── what exists ─────────────────────────────────────────────────────────────


def existing(grants: Grants, root: str) -> Grants:
    """Keep the places that exist, where they really are. One that does not exist breaks nothing, and opens nothing."""
    writable, hidden, protected = (
        tuple(dict.fromkeys(os.path.realpath(path) for path in each if os.path.lexists(path)))
        for each in (grants.writable, grants.hidden, grants.protected)
    )
    hidden = _outermost(path for path in hidden if not (root + "/").startswith(path + "/"))
    closed = frozenset(hidden)
    protected = tuple(
        path
        for path in protected
        if path not in closed and any(path.startswith(place + "/") for place in writable)
    )
    writable = tuple(path for path in writable if path != "/" or root == "/")
    held = dict.fromkeys(os.path.realpath(path) for path in grants.held if os.path.isdir(path))
    above = sorted(
        path
        for path in held
        if any(path.startswith(place + "/") for place in writable)
        # What lies in a cover is out of reach, and a cover stays where it is.
        and path not in closed
        and not any(each in closed for each in ancestors(path))
    )
    return attrs.evolve(
        grants, writable=writable, hidden=hidden, protected=_outermost(protected), held=tuple(above)
    )


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: dict[str, None] = {}
    for path in sorted(paths):
        if os.path.exists(path) and not any(above in kept for above in ancestors(path)):
            kept[path] = None
    return tuple(kept)


def names_in(place: str) -> list[str]:
    """List a directory; nothing when it cannot be listed."""
    try:
        return os.listdir(place)
    except OSError:
        return []
