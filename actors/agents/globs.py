"""Globs of a policy: ``*`` is any run of characters, slashes too, ``?`` is one, and all else means itself. Pure.

One thing more, because all globs elsewhere have it: ``**/`` where a part begins is
any number of directories, none too. ``**/x`` is ``x`` and ``a/b/x``, and not ``ax``.

What would be got wrong:

- ``[`` is a plain character here, so `fnmatch` is no substitute. Whoever writes it
  means a set of letters nearly always, so rules for paths may not hold it.
- A match takes time linear in the target. A naive translation of ``*a*a*a*b``
  tries every way to share the letters out among the stars; here each piece
  between two stars is taken at the first place where it fits and never again.
- A glob that can match nothing is refused and not kept: in a deny it would be
  a boundary that nobody installed.
"""

import ipaddress
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import attrs

from actors.agents.platform_names import HERE, Platform, fold_case, fold_glob, fold_target
from actors.errors import kind_word

MOST_CHARACTERS: Final = 4_096
# In small letters. An address has no longer number; of a long text none would be made without need.
_NUMBER: Final = re.compile(r"0[0-7]{0,12}|[1-9][0-9]{0,9}|0x[0-9a-f]{1,12}")
# One host, and a port with a wildcard. Without a dot it may be the beginning of an IPv6 address.
_ANY_PORT: Final = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^:*?\[\]]*\.[^:*?\[\]]*)):(?P<port>[0-9*?]+)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Brackets around an IPv6 address, or around the beginning of one.
_SIX: Final = re.compile(r"\[[0-9a-f:.*?]+(?:%[\w.-]+)?\](?::[0-9*?]+)?")
MOST_PORT: Final = 65_535
# Where work trees lie in a workspace: each is one more copy of what is committed of it.
TREES: Final = ".worktrees"
# So many are looked at that lie in each other. Each is a name more to be held against all rules.
MOST_TREES: Final = 8
_STARS: Final = re.compile(r"(?:\A|(?<=/))\*{2,}/|\*+")
# At the beginning of a part, which a piece after ``**/`` must be.
_PART: Final = "(?<![^/])"
_HOME: Final = re.compile(r"~(?:\Z|[\w.-]*/)")
_VARIABLE: Final = re.compile(r"\$\w+(?:\Z|/)")


def glob_problem(glob: object) -> str | None:
    """Say what is wrong with a glob and what to do about it, None when it is sound."""
    if not isinstance(glob, str):
        return f"must be a text, not {kind_word(glob)}"
    if not glob:
        return 'must not be empty; write "*" for everything'
    if len(glob) > MOST_CHARACTERS:
        return f"has {len(glob)} characters; shorten it to at most {MOST_CHARACTERS}"
    if _CONTROL.search(glob):
        return "holds a control character; remove it, or write ? in its place"
    if glob != glob.strip():
        return "begins or ends with a blank; remove it, or write ? in its place"
    if glob.startswith("!"):
        return "begins with !, which turns nothing round here; write a rule of the other effect, or ? in its place"
    return None


def set_problem(glob: str) -> str | None:
    """Say why a glob that looks like one of another language is none of ours, None when it does not."""
    found = next((letter for letter in glob if letter in "[{"), None)
    if found is None:
        return None
    return f"holds {found}, which is no wildcard here; write a rule for each that is meant, or ? for {found} itself"


def path_glob_problem(glob: str) -> str | None:
    """Say why a sound glob could never match a resolved path, None when it could."""
    if glob == ".":
        return None
    parts = glob.split("/")
    if "." in parts or ".." in parts:
        return "can match nothing, since paths are resolved before they are judged; write it without . and .. parts"
    if len(parts) > 1 and not parts[-1] and glob != "/":
        return f"can match nothing, since no path ends in a slash; write {glob.rstrip('/')}/* for what is inside"
    if "" in parts[1:-1]:
        return "can match nothing, since no path has two slashes in a row; write one"
    if _HOME.match(glob) or _VARIABLE.match(glob):
        return f"can match nothing, since {glob[0]} means itself here; write the whole path, or ? for {glob[0]} itself"
    return set_problem(glob)


def net_glob_problem(glob: str) -> str | None:
    """Say why a sound glob could never match ``host:port``, None when it could."""
    if not glob.isascii():
        return "can match nothing, since hosts are judged in their ASCII form; write xn--..."
    if any(letter in "/@\\" or letter.isspace() for letter in glob):
        return "can match nothing, since a net target is host:port; write the host, or host:port, alone"
    _, port = _host_and_port(glob.lower())
    # Of a text without end no number is made.
    if port is not None and (len(port) > 5 or int(port) > MOST_PORT):
        return f"can match nothing, since no port is over {MOST_PORT}; write another, or none"
    return None if _SIX.fullmatch(glob.lower()) else set_problem(glob)


def translate(glob: str) -> str:
    """Translate a glob to a regular expression to be used with ``match`` and ``DOTALL``.

    It holds no capturing group. It says by itself where the target must end.
    """
    stars = list(_STARS.finditer(glob))
    if not stars:
        return _literal(glob) + r"\Z"
    starts = [0, *(star.end() for star in stars)]
    head, *middle, tail = [
        ("" if at == 0 or glob[at - 1] != "/" else _PART) + _literal(glob[at:end])
        for at, end in zip(starts, [*(star.start() for star in stars), len(glob)], strict=True)
    ]
    pieces = [head, *(f"(?>.*?{piece})" for piece in middle)]
    if tail:
        # Run to the end at once and look back for the tail; at least its length, so that it overlaps nothing before.
        pieces.append(rf".{{{len(glob) - starts[-1]},}}+(?<={tail})\Z")
    return "".join(pieces)


def _literal(piece: str) -> str:
    return "".join("." if letter == "?" else re.escape(letter) for letter in piece)


@attrs.frozen
class GlobSet:
    """Several globs as one regular expression, compiled at the first use and kept.

    Example::

        GlobSet(("*.pem", ".env")).first(["conf/.env", ".env"])   # 1
    """

    globs: tuple[str, ...]

    @cached_property
    def _compiled(self) -> "re.Pattern[str]":
        return re.compile("|".join(f"({translate(glob)})" for glob in self.globs), re.DOTALL)

    def first(self, names: Iterable[str]) -> int | None:
        """Give the place of the first glob that matches any of ``names``, None when none does."""
        # Alternatives are tried in order and each knows its own end, so the group that matched is the first that can.
        found = (self._compiled.match(name) for name in names)
        return min((match.lastindex - 1 for match in found if match and match.lastindex), default=None)


def path_glob(glob: str, *, platform: Platform = HERE) -> str:
    """Give a path glob in the spelling that `path_names` uses for targets."""
    return fold_glob(glob, platform)


def path_names(target: str, *, platform: Platform = HERE) -> tuple[str, ...]:
    """Give the names by which a rule may call a path: the whole of it, and its last part.

    On unix a backslash is a letter of a name, so two different files never
    answer to one name because of it.
    """
    whole = fold_target(target, platform)
    last = whole.rpartition("/")[2]
    return (whole, last) if last and last != whole else (whole,)


def closing_names(target: str, *, platform: Platform = HERE) -> tuple[str, ...] | None:
    """Give the names by which a rule may close a path: in a work tree, also in those in it, what it is called there.

    None where it lies in more work trees than are looked at: such a path is closed.
    """
    names = path_names(target, platform=platform)
    inside, left = names[0], MOST_TREES
    while inside.startswith(f"{TREES}/"):
        if not left:
            return None
        left -= 1
        inside = inside.split("/", 2)[2] if inside.count("/") > 1 else ""
        if inside:
            names = (*names, inside)
    return names


def exec_glob(glob: str, *, platform: Platform = HERE) -> str:
    """Give a glob of commands in the spelling that `exec_names` has among those of a target."""
    if platform is Platform.unix:
        return glob
    found = _PROGRAM.match(glob)
    assert found is not None, "it matches nothing too"
    program, rest = found[0], glob[found.end() :]
    folded = fold_case(program, platform)
    # A wildcard behind it may take in the end of the name.
    return (folded if rest[:1] in ("*", "?") else _without_ending(folded, platform)) + rest


def exec_names(target: str, *, platform: Platform = HERE) -> tuple[str, ...]:
    """Give the names by which a rule may call a command: as it is written, and as the file system finds the program.

    Only the program is one for it; in arguments capitals stay what they are.
    """
    if platform is Platform.unix:
        return (target,)
    program, blank, rest = target.partition(" ")
    folded = fold_case(program, platform)
    spelled = (program, folded, _without_ending(folded, platform))
    return tuple(dict.fromkeys(f"{each}{blank}{rest}" for each in spelled))


# Up to the first wildcard, or the first argument.
_PROGRAM: Final = re.compile(r"[^*? ]*")
_ENDINGS: Final = (".exe", ".com", ".bat", ".cmd")


def _without_ending(program: str, platform: Platform) -> str:
    if platform is not Platform.windows:
        return program
    plain = program.replace("\\", "/")
    return next((plain.removesuffix(each) for each in _ENDINGS if plain.endswith(each) and plain != each), plain)


def net_glob(glob: str) -> str:
    """Give a net glob in the spelling that `net_names` uses for targets."""
    text = glob.lower()
    host, port = _host_and_port(text)
    if port is None and (found := _ANY_PORT.fullmatch(text)):
        host, port = found["six"] or found["name"], found["port"]
    if "*" not in host and "?" not in host:
        host = _host(host)
    return host if port is None else _joined(host, port)


def net_names(target: str) -> tuple[str, ...]:
    """Give the names by which a rule may call a ``host:port``: with the port, and the host alone.

    Hosts have no case, no final dot, and an address has one spelling. This
    is no path: nothing of it is resolved or cut at a slash.
    """
    host, port = _host_and_port(target.lower())
    host = _host(host)
    return (host,) if port is None else (_joined(host, port), host)


def _host_and_port(text: str) -> tuple[str, str | None]:
    """Split at the port. A bare IPv6 address has none: with a port it stands in brackets."""
    if text.startswith("[") and "]" in text:
        host, _, rest = text[1:].partition("]")
        if not rest:
            return host, None
        if rest.startswith(":") and _is_port(rest[1:]):
            return host, _port(rest[1:])
        return text, None
    host, colon, port = text.rpartition(":")
    if colon and ":" not in host and _is_port(port):
        return host, _port(port)
    return text, None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _port(port: str) -> str:
    return port.lstrip("0") or "0"


def _host(host: str) -> str:
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            return host
        return str(address.ipv4_mapped or address)
    bare = host[:-1] if host.endswith(".") else host
    return _ipv4(bare) or bare


def _ipv4(host: str) -> str | None:
    """Read an address as systems do: one to four numbers, octal, hexadecimal, the last one for all that is left."""
    parts = host.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    numbers = [int(each, 16 if each[1:2] == "x" else 8 if each[0] == "0" else 10) for each in parts]
    room = 256 ** (5 - len(parts))
    if any(number > 255 for number in numbers[:-1]) or numbers[-1] >= room:
        return None
    whole = numbers[-1] + sum(number << (24 - 8 * place) for place, number in enumerate(numbers[:-1]))
    return str(ipaddress.IPv4Address(whole))


def _joined(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
