"""What a policy gives the commands of one workspace: where they write, what is closed to them. Pure.

What would be got wrong:

- Nobody is asked in the middle of a command. What a rule asks about is closed to
  commands as if it were denied; a default of ask is not, where it is about writing,
  or no command could work under the policy of those who said nothing. That is said.
- A default that does not let files be read turns it all round: then every file is
  closed that no rule opens, and a look that is not complete holds nothing.
- A rule names a path, and whoever moves a directory above that path leaves the rule
  behind. So what lies above is held in its place, unless the last part of the name
  is closed wherever it lies: nothing is moved into or out of what is held.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import attrs

from actors.agents.globs import GlobSet, closing_names, path_glob, path_names
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act

# In the home directory of whoever runs us; closed to commands under every policy that is not permissive.
SECRET_PLACES: Final = (
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".config/gcloud",
    ".config/gh",
    ".docker/config.json",
    ".local/share/keyrings",
    ".password-store",
)
# So many paths are covered in one start, each by a mount.
MOST_COVERED: Final = 1_000
ASKED_BY_DEFAULT: Final = "writes in the workspace that the policy asks about by default"
# What a command cannot be asked about is closed to it.
_CLOSING: Final = (Effect.deny, Effect.ask)
# The end of a glob for all that is in a place, and what is no letter of a name.
_INSIDE: Final = re.compile(r"(?:/\*\*)*/\*+\Z")
# What no glob can hold as a letter, and no two question marks fit both: only stars take in these two names.
_ANY_NAMES: Final = ("\x01", "\x01" * 300)
_WILD: Final = re.compile(r"[*?]")


@attrs.frozen
class Grants:
    """What a policy gives the commands of one workspace. All paths are absolute; they need not exist.

    ``writable`` excludes the private temporary directory, which every command
    has. ``hidden`` cannot be read, ``protected`` not written, though they lie where
    the rest can. ``held`` are directories that cannot be moved, since something in them is
    closed by where it lies. ``net`` is all of it or nothing. ``closed`` tells that nothing of
    the workspace may be read but what a rule opens. ``unbound`` names what of the policy
    is held by no backend, because commands could not work under it.
    """

    writable: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    net: bool = False
    closed: bool = False
    unbound: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


def grants_of(policy: Policy, root: str, home: str) -> Grants:
    """Say what a policy gives commands in ``root``, as far as it names places. Files are looked at elsewhere."""
    everything = _may_write_all(policy)
    writable = [root] if everything else []
    for glob in _globs(policy, Act.write, Effect.allow):
        place = _place(glob, root)
        # Only what says "all in it": a grant of a directory reaches everything below.
        if place is None or not _INSIDE.search(glob) or (everything and is_below(place, root)):
            continue
        if _may_write_in(policy, place, root):
            writable.append(place)
    hidden = [place for glob in _globs(policy, Act.read, *_CLOSING) if (place := _place(glob, root))]
    if not policy.is_permissive:
        hidden += [f"{home}/{name}" for name in SECRET_PLACES if not _is_opened(policy, f"{home}/{name}")]
    protected = [place for glob in _globs(policy, Act.write, *_CLOSING) if (place := _place(glob, root))]
    protected = [place for place in protected if place not in hidden]
    once = [tuple(dict.fromkeys(each)) for each in (writable, hidden, protected)]
    asked = everything and policy.defaults.write is Effect.ask and not _opens_all(policy, Act.write)
    return Grants(
        once[0],
        once[1],
        once[2],
        _net(policy),
        closed=policy.defaults.read is not Effect.allow and not _opens_all(policy, Act.read),
        unbound=(ASKED_BY_DEFAULT,) if asked else (),
        held=all_above((*once[1], *once[2])),
    )


def _globs(policy: Policy, act: Act, *effects: Effect) -> list[str]:
    return [
        rule.glob for layer in policy.layers for rule in layer.rules if rule.act is act and rule.effect in effects
    ]


def _is_all(glob: str) -> bool:
    return not glob.replace("**/", "").strip("*")


def _opens_all(policy: Policy, act: Act) -> bool:
    return any(map(_is_all, _globs(policy, act, Effect.allow)))


def _may_write_all(policy: Policy) -> bool:
    if any(map(_is_all, _globs(policy, Act.write, *_CLOSING))):
        return False
    return _opens_all(policy, Act.write) or policy.defaults.write is not Effect.deny


def _place(glob: str, root: str) -> str | None:
    """Give the one place that a glob names, itself or all that is in it; None for a pattern."""
    plain = _INSIDE.sub("", glob) or "/"
    if "*" in plain or "?" in plain or plain == "/":
        return None
    return posixpath.normpath(plain if plain.startswith("/") else f"{root}/{plain}")


def _may_write_in(policy: Policy, place: str, root: str) -> bool:
    shown = posixpath.relpath(place, root) if is_below(place, root) else place
    return policy.explain(Act.write, f"{shown}/x").effect is Effect.allow


def _is_opened(policy: Policy, place: str) -> bool:
    decision = policy.explain(Act.read, place)
    return decision.effect is Effect.allow and decision.rule is not None and not _is_all(decision.rule)


def _net(policy: Policy) -> bool:
    """Tell whether all of the network is granted. One host is not: nothing here can tell hosts apart."""
    if _globs(policy, Act.net, *_CLOSING):
        return False
    return policy.defaults.net is Effect.allow or _opens_all(policy, Act.net)


def is_below(path: str, root: str) -> bool:
    """Tell whether a path is a place or lies in it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def all_above(paths: Iterable[str]) -> tuple[str, ...]:
    """Name all directories above some paths, each once; of a relative path, not the one it starts from."""
    return tuple(dict.fromkeys(above for path in paths for above in ancestors(path)))


def ancestors(path: str) -> Iterator[str]:
    """Name the directories above a path, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


# ── the files of a workspace ────────────────────────────────────────────────


@attrs.frozen
class FileRules:
    """The rules of a policy for the files of a workspace, compiled for thousands of questions.

    ``readable`` and ``writable`` answer as `Policy.explain` does, with a yes where it says
    allow. Names are relative to the root.
    """

    policy: Policy

    @cached_property
    def _unread(self) -> GlobSet:
        return _set(_globs(self.policy, Act.read, *_CLOSING))

    @cached_property
    def _opened(self) -> GlobSet:
        return _set(_globs(self.policy, Act.read, Effect.allow))

    @cached_property
    def _unwritten(self) -> GlobSet:
        # Where nothing may be written, the whole workspace is read-only already.
        return _set([glob for glob in _globs(self.policy, Act.write, *_CLOSING) if not _is_all(glob)])

    @cached_property
    def is_closed(self) -> bool:
        """Whether nothing may be read but what a rule opens."""
        return self.policy.defaults.read is not Effect.allow

    @cached_property
    def exist(self) -> bool:
        """Whether any file could be closed to commands."""
        return self.is_closed or bool(self._unread.globs or self._unwritten.globs)

    def readable(self, name: str, *, is_directory: bool = False) -> bool:
        """Tell whether a file may be read. A directory is open unless a rule closes it: it holds only names."""
        if _closes(self._unread, name):
            return False
        return is_directory or not self.is_closed or _fits(self._opened, path_names(name))

    def writable(self, name: str) -> bool:
        """Tell whether no rule keeps a file from being written."""
        return not _closes(self._unwritten, name)

    def keeps_all_in(self, directory: str) -> bool:
        """Tell whether rules keep all in a directory, whatever it is called, from being written."""
        return all(_closes(self._unwritten, f"{directory}/{name}") for name in _ANY_NAMES)

    def is_hidden_anywhere(self, name: str) -> bool:
        """Tell whether what keeps a file from being read would do so wherever it lay."""
        return not self.is_closed and _fits(self._unread, path_names(name)[-1:])

    def is_protected_anywhere(self, name: str) -> bool:
        """Tell whether what keeps a file from being written would do so wherever it lay."""
        return _fits(self._unwritten, path_names(name)[-1:])

    def may_open_in(self, directory: str) -> bool:
        """Tell whether anything in a directory could be readable; never wrong with a no."""
        if not self.is_closed:
            return True
        inside = path_names(directory)[0] + "/"
        for glob in self._opened.globs:
            fixed = glob[: len(glob) if (wild := _WILD.search(glob)) is None else wild.start()]
            # One without a slash is held against the last part of a path, wherever that is.
            if "/" not in fixed or inside.startswith(fixed) or fixed.startswith(inside):
                return True
        return False


def _set(globs: Sequence[str]) -> GlobSet:
    return GlobSet(tuple(dict.fromkeys(map(path_glob, globs))))


def _closes(globs: GlobSet, name: str) -> bool:
    """Tell whether a rule closes a path: by a name that it has, or since it lies deeper than names are looked at."""
    if not globs.globs:
        return False
    names = closing_names(name)
    return names is None or globs.first(names) is not None


def _fits(globs: GlobSet, names: tuple[str, ...]) -> bool:
    return bool(globs.globs) and globs.first(names) is not None
