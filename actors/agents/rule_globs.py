"""How the globs of rules and what they are held against are spelled, act by act, and which are surely a slip. Pure.

What would be got wrong:

- A rule in the spelling of another language (``{a,b}``, ``~/x``, two blanks) matches
  nothing. As a deny that is a boundary nobody installed, so it is refused, with
  what to write instead.
- Only what can match nothing, or what nobody means, is refused: ``*;*`` is held
  against the arguments of ``sh -c``, and ``[`` is a program.
"""

import re
from collections.abc import Callable
from typing import Final

import attrs

from actors.agents.globs import (
    closing_names,
    exec_glob,
    exec_names,
    glob_problem,
    net_glob,
    net_glob_problem,
    net_names,
    path_glob,
    path_glob_problem,
    path_names,
    set_problem,
)
from actors.agents.ports import Act

# As `shlex.join` quotes an argument; a star may take in the quote that closes one.
_QUOTED: Final = re.compile(r"""'[^']*(?:'|\Z)|"'+\"""")
_BARE: Final = re.compile(r"[\w@%+=:,./*?\x00-]*", re.ASCII)
_OPERATORS: Final = frozenset("|&;<>")


def rule_glob_problem(act: Act, glob: object) -> str | None:
    """Say what is wrong with the glob of a rule and what to write instead, None when it is sound."""
    return glob_problem(glob) or SPELLINGS[act].problem(str(glob))


def _as_written(text: str) -> str:
    return text


def _only_itself(target: str) -> tuple[str, ...]:
    return (target,)


def _path_problem(glob: str) -> str | None:
    return path_glob_problem(path_glob(glob))


def _exec_problem(glob: str) -> str | None:
    """Look at a glob for programs and whole lines, whose arguments stand in single quotes where they need any."""
    # What is quoted means itself, blanks too.
    plain = _QUOTED.sub("\0", glob)
    program, blank, _ = plain.partition(" ")
    if "  " in plain:
        return "can match nothing, since one blank stands between two words of a line; write one"
    if not blank and program.endswith("/"):
        return f"can match nothing, since no program ends in a slash; write {glob.rstrip('/') or '*'}"
    if program.startswith(("~/", "$")):
        return "can match nothing, since ~ and variables mean nothing here; write the whole path of the program"
    if program != "[" and (problem := set_problem(program)) is not None:
        return problem
    if plain.startswith("*"):
        # Held against all that a line may hold, quotes too.
        return None
    return next((problem for word in plain.split(" ")[1:] if (problem := _word_problem(word)) is not None), None)


def _word_problem(word: str) -> str | None:
    """Look at one word of a line, after its program."""
    found = _BARE.match(word)
    assert found is not None, "it matches nothing too"
    before, rest = found[0], word[found.end() :]
    # A star takes in the quotes that what follows would stand in.
    if not rest or "*" in before:
        return None
    if rest[0] in _OPERATORS:
        return f"can match nothing, since {rest[0]} joins commands, and each is judged alone; write a rule for each"
    return (
        f"can match nothing, since a word with {rest[0]} stands in single quotes in a line; write it so, "
        f"or * for its first letter"
    )


@attrs.frozen
class Spelling:
    """How the globs and the targets of an act are brought to one spelling, and which globs could match no target."""

    glob: Callable[[str], str]
    names: Callable[[str], tuple[str, ...]]
    problem: Callable[[str], str | None]
    # What closes is held against more names than what opens; None for a target that is closed by itself.
    closed_by: Callable[[str], tuple[str, ...] | None] | None = None


_PATHS: Final = Spelling(path_glob, path_names, _path_problem, closing_names)
SPELLINGS: Final[dict[Act, Spelling]] = {
    Act.read: _PATHS,
    Act.write: _PATHS,
    Act.net: Spelling(net_glob, net_names, net_glob_problem),
    # A program is what the operator wrote, where the file system does not take other letters for the same.
    Act.exec: Spelling(exec_glob, exec_names, _exec_problem),
    # An agent is its name.
    Act.spawn: Spelling(_as_written, _only_itself, set_problem),
}
