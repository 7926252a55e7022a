"""Commands that stand inside of another one's arguments: as one text, or as the words behind its options. Pure.

What would be got wrong:

- A text that our language reads is read whole, and means what it means to a shell.
  One that it does not read (``cd a && rm x &``) is cut where a shell begins a new
  command, and what can be read of it is taken. That is never all of it, so whoever
  asks must call such a command opaque besides: found here, it can only be let do less.
- `possible_commands` guesses. An argument that is the value of an option looks like a
  program there, so a deny may hold for too much (a file that is called as a denied
  program is), and never for too little because of a guess.
- All of it is bounded: a model writes these arguments, and a command may stand in a
  command.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from actors.agents.shell_line import MOST_CHARACTERS, MOST_COMMANDS, LineRefused, read_line

Argv = tuple[str, ...]


@attrs.frozen
class Wrapping:
    """What a command runs besides itself.

    ``inner`` are the commands it runs, as far as they can be told; ``opaque``: it
    may run more than these, perhaps those of ``guessed``, of which only what a rule
    closes counts. A rule that is meant for exactly this spells the first
    ``named`` arguments out. ``why`` completes "asks, because it ...".
    """

    why: str
    named: int
    inner: tuple[Argv, ...] = ()
    opaque: bool = False
    guessed: tuple[Argv, ...] = ()


# Longer ones are not guessed about: they ask, as all do that cannot be seen through.
MOST_GUESSED_CHARACTERS: Final = 32_768
MOST_GUESSED_WORDS: Final = 256
# So many words that are no options may stand before a command: a file to lock, a user, a process.
MOST_BEFORE: Final = 3
_CUTS: Final = re.compile(r"[\n\r;&|(){}`]|\$\(")
# What may stand before a program, and is none itself.
_BEFORE: Final = re.compile(
    r"""(?:(?:if|then|else|elif|while|until|do|!|coproc|(?:builtin|eval|time(?:[ \t]+-p)?|command(?:[ \t]+-[pvV]+)?"""
    r"""|exec(?:[ \t]+-(?:[cl]+|[cl]*a[ \t]*[^\s'"]+))*)(?:[ \t]+--)?"""
    r"""|[A-Za-z_]\w*(?:\[[^][\s'"]*+\])?\+?=(?:[^\s'"]|'[^']*+'|"[^"]*+")*+)[ \t]+)*"""
)
# What runs later, or at once, as one text.
_LATER: Final = re.compile(r"""\b(?:trap|eval)[ \t]+(?:--[ \t]+)?(?:'([^'\n]{1,4096})'|"([^"\n]{1,4096})")""")
_WORDS: Final = re.compile(r"""(?:(?:[\w./,:=@%+^-]|'[^']*+'|"[^"$`\\]*+")++[ \t]*+)++""", re.ASCII)
# Nothing runs inside of these; a double quote may hold a substitution.
_QUOTED: Final = re.compile(r"""'[^'\n]*+'|"[^"$`\\\n]*+\"""")
_REDIRECTED: Final = re.compile(r"""\d{0,2}[<>]{1,3}[&|]?[ \t]*(?:[^\s;&|<>()'"]|'[^'\n]*+'|"[^"\n]*+")++""")
_HARD: Final = re.compile(r"[\\$#\v\f]")


def read_text(text: str) -> tuple[Argv, ...] | None:
    """Give the commands of a text, where our language reads it as a shell does; None where it does not."""
    try:
        return tuple(command.argv for command in read_line(text).commands)
    except LineRefused:
        return None


def commands_in(text: str) -> tuple[Argv, ...]:
    """Give the commands of a text, as far as they can be read."""
    whole = read_text(text)
    if whole is not None:
        return whole
    if len(text) > MOST_CHARACTERS:
        return ()
    found: list[Argv] = []
    for one, other in _LATER.findall(text)[:MOST_COMMANDS]:
        found += read_text(one or other) or ()
    for piece in _CUTS.split(_REDIRECTED.sub(" ", _QUOTED.sub(_without_cuts, text))):
        bare = piece.strip()
        found += read_text(_beginning(bare[_matched(bare) :].removeprefix("\\"))) or ()
        if len(found) >= MOST_COMMANDS:
            break
    return tuple(found[:MOST_COMMANDS])


def _without_cuts(quoted: "re.Match[str]") -> str:
    return _CUTS.sub("?", quoted[0])


def _matched(piece: str) -> int:
    found = _BEFORE.match(piece)
    return found.end() if found else 0


def _beginning(piece: str) -> str:
    """Give the words of a command up to the first that is expanded, or that is not read here for another reason."""
    found = _WORDS.match(piece)
    if found is None:
        return ""
    words = found[0]
    if found.end() < len(piece) and words[-1] not in " \t":
        # The last one goes on.
        words = words.rpartition(" ")[0]
    return words


def words_of(text: str) -> Argv | None:
    """Split a text as ``env -S`` does; None where it holds what is expanded, escaped or left out there."""
    if len(text) > MOST_CHARACTERS or _HARD.search(text):
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return None


def possible_commands(words: Sequence[str]) -> tuple[Argv, ...]:
    """Guess which commands stand in arguments whose meaning is not known: in one of them, or from one of them on."""
    if len(words) > MOST_GUESSED_WORDS or sum(map(len, words)) > MOST_GUESSED_CHARACTERS:
        return ()
    plain = [place for place, word in enumerate(words) if word and not word.startswith("-")]
    rest = [tuple(words[place:]) for place in plain[:MOST_BEFORE]]
    return tuple(dict.fromkeys((*rest, *possible_texts(words))))[: 2 * MOST_COMMANDS]


def possible_texts(words: Sequence[str]) -> tuple[Argv, ...]:
    """Guess which commands stand in single arguments, or in the values that are written with their options."""
    found: dict[Argv, None] = {}
    for word in words[:MOST_GUESSED_WORDS]:
        for text in _texts(word):
            found.update(dict.fromkeys(commands_in(text)))
            if len(found) >= MOST_COMMANDS:
                return tuple(found)[:MOST_COMMANDS]
    return tuple(found)


def _texts(word: str) -> Iterator[str]:
    """Give what of one argument may be a command: behind its letters, and behind each of two signs of equality."""
    if len(word) > MOST_CHARACTERS:
        return
    if not word.startswith("-"):
        yield word.lstrip("!|")
    elif not word.startswith("--"):
        yield word[2:]
    name, _, value = word.partition("=")
    # An alias of git is a program only behind "!".
    if not (name.startswith("alias.") and not value.startswith("!")):
        yield value.lstrip("!|")
        yield value.partition("=")[2]
