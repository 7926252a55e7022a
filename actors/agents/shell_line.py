"""The small language of the tool `shell`: what a line may hold, and what it means. Pure.

Pipelines, ``&&``, ``||`` and ``;``; words, plain or in quotes; ``>``, ``>>``,
``<``, ``2>`` and ``2>&1``. Nothing is expanded, ever.

What would be got wrong:

- It is a list of what is allowed. A character that is not on it is refused where
  it stands, with what to write instead; nothing is passed on because it looks
  harmless. So a line that is accepted here means to /bin/sh what it means here,
  and a test holds the two against each other.
- Judging comes before running, so the whole line is read before anything of it
  is used: a line with one bad character at its end runs nothing.
- Words that a shell would take for itself (``cd``, ``export``, ``if``, ``X=1``)
  are refused where a program must stand: run as programs they would do nothing,
  or something else.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import attrs

from actors.agents.entry_text import is_seen
from actors.errors import ToolFailed

MOST_CHARACTERS: Final = 8_192
MOST_COMMANDS: Final = 30


class Join(StrEnum):
    """How a pipeline follows the one before it; the first one follows with ``;``."""

    then = ";"
    if_passed = "&&"
    if_failed = "||"


class Stream(StrEnum):
    """Which way a redirection goes."""

    read = "<"
    write = ">"
    append = ">>"
    errors = "2>"
    errors_to_output = "2>&1"


@attrs.frozen
class Redirect:
    """One redirection; ``target`` is empty for ``2>&1``. They apply in the order in which they stand."""

    stream: Stream
    target: str = ""


@attrs.frozen
class Command:
    """One program with its arguments. ``argv`` is never empty, and so is its first word."""

    argv: tuple[str, ...]
    redirects: tuple[Redirect, ...] = ()


@attrs.frozen
class Pipeline:
    """Commands of which each reads what the one before it prints."""

    join: Join
    commands: tuple[Command, ...]


@attrs.frozen
class Line:
    """A whole line, as it was written and as it was read."""

    text: str
    pipelines: tuple[Pipeline, ...]

    @property
    def commands(self) -> Iterator[Command]:
        """Give every command, from left to right."""
        for pipeline in self.pipelines:
            yield from pipeline.commands


class LineRefused(ToolFailed):
    """A line that is not of this language. ``position`` counts characters from 1; nothing was run."""

    def __init__(self, position: int, why: str) -> None:
        self.position = position
        self.why = why
        super().__init__(f"line refused at character {position}: {why}")


def read_line(text: str) -> Line:
    """Read a line whole.

    Example::

        read_line("git log --oneline | head -3 > last.txt")

    Raises:
        LineRefused: it is not of this language; says where, and what to write instead.
    """
    if len(text) > MOST_CHARACTERS:
        raise LineRefused(MOST_CHARACTERS + 1, f"the line has {len(text)} characters; at most {MOST_CHARACTERS} may be")
    return Line(text, tuple(_Reader(_tokens(text), len(text) + 1).pipelines()))


# ── characters to tokens ────────────────────────────────────────────────────


@attrs.frozen
class _Token:
    """A word or an operator, and where it begins. ``plain``: no part of it was quoted."""

    at: int
    text: str
    operator: bool
    plain: bool = True


_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=@%+^")
# Longest first.
_OPERATORS: Final = ("2>&1", "&&", "||", ">>", "2>", "|", ";", ">", "<")
_BLANKS: Final = " \t"
_QUOTE_IT: Final = "put it in single quotes to mean the character itself"
_WHY: Final = {
    "\n": "a new line; join the parts with && or ;",
    "\r": "a new line; join the parts with && or ;",
    "\x00": "a NUL; no argument can hold one",
    "$": f"$ stands for a variable or a substitution, and nothing is expanded here; write the value, or {_QUOTE_IT}",
    "`": f"a backtick starts a substitution, and nothing is expanded here; {_QUOTE_IT}",
    "*": f"* is a pattern, and nothing is expanded here; name the files, or {_QUOTE_IT}",
    "?": f"? is a pattern, and nothing is expanded here; name the files, or {_QUOTE_IT}",
    "[": f"[ is a pattern, and nothing is expanded here; name the files (and write test for [), or {_QUOTE_IT}",
    "]": f"] belongs to a pattern, and nothing is expanded here; {_QUOTE_IT}",
    "~": f"~ stands for a directory, and nothing is expanded here; write the path, or {_QUOTE_IT}",
    "{": f"braces are expanded by shells, and nothing is here (only {{}} may stand); {_QUOTE_IT}",
    "}": f"braces are expanded by shells, and nothing is here (only {{}} may stand); {_QUOTE_IT}",
    "#": f"# starts a comment; {_QUOTE_IT}",
    "!": f"! negates or recalls; {_QUOTE_IT}",
    "(": f"parentheses start another shell; write the parts with && and ;, or {_QUOTE_IT}",
    ")": f"parentheses belong to another shell; {_QUOTE_IT}",
    "\\": "a backslash; put the word in single quotes, and leave the backslash out where it only protects",
    "&": "& runs in the background; use shell_start for that, && to join commands, and 2>&1 for errors",
}
_IN_QUOTES: Final = {
    "$": 'in "..." a $ is expanded by shells, and nothing is here; use single quotes',
    "`": 'in "..." a backtick is expanded by shells, and nothing is here; use single quotes',
    "\\": 'in "..." a backslash has a meaning of its own; use single quotes',
    "!": 'in "..." a ! may recall an earlier line; use single quotes',
}


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
            continue
        operator = next((each for each in _OPERATORS if text.startswith(each, at)), None)
        if operator is None:
            word, end = _word(text, at)
            yield word
        else:
            end = at + len(operator)
            _judge_operator(text, at, end, operator)
            yield _Token(at + 1, operator, operator=True)
        at = end


def _judge_operator(text: str, at: int, end: int, operator: str) -> None:
    """Refuse the longer operators of shells that begin like ours."""
    after = text[end : end + 1]
    if operator == "2>&1":
        # "2>&12" is another number, "2>&1x" a bad one.
        if after and after not in _BLANKS + ";|&":
            raise LineRefused(at + 1, "2>&1 must stand alone; put a blank after it")
    elif operator == "|" and after == "&":
        raise LineRefused(end + 1, "|& is not of this language; write 2>&1 |")
    elif operator == "<" and after in ("<", "(", "&", ">"):
        why = "only a file may stand after <: no text in place, no substitution, no number of a stream"
        raise LineRefused(end + 1, f"{why}; write a file first, and read that")
    elif operator in (">", ">>", "2>") and after in (">", "&", "|", "(", "<"):
        why = "only a file may stand after a redirection; of streams only 2>&1 can be joined"
        raise LineRefused(end + 1, f"{why}, and errors are appended to no file: write >> file 2>&1")


def _word(text: str, at: int) -> tuple[_Token, int]:
    begin, parts, plain = at, [], True
    while at < len(text):
        letter = text[at]
        if letter in "'\"":
            part, at = _quoted(text, at)
            parts.append(part)
            plain = False
        elif letter in _PLAIN:
            parts.append(letter)
            at += 1
        elif text.startswith("{}", at):
            parts.append("{}")
            at += 2
        elif letter in _BLANKS or letter in "|;<>" or text.startswith("&&", at):
            break
        else:
            raise LineRefused(at + 1, _why(letter))
    word = _Token(begin + 1, "".join(parts), operator=False, plain=plain)
    if at < len(text) and text[at] in "<>" and plain and word.text.isdigit():
        why = "a number before a redirection names a stream, and only 2> is one here; write > for 1>"
        raise LineRefused(begin + 1, why)
    return word, at


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    end = text.find(quote, at + 1)
    if end < 0:
        raise LineRefused(at + 1, f"this {quote} is never closed; add the second one")
    inner = text[at + 1 : end]
    for place, letter in enumerate(inner, at + 2):
        if quote == '"' and letter in _IN_QUOTES:
            raise LineRefused(place, _IN_QUOTES[letter])
        if letter != "\t" and not is_seen(letter):
            raise LineRefused(place, _WHY.get(letter, _unprintable(letter)))
    return inner, end + 1


def _why(letter: str) -> str:
    known = _WHY.get(letter)
    if known is not None:
        return known
    if is_seen(letter):
        return f"{letter} may stand only in quotes; put the word in single quotes"
    return _unprintable(letter)


def _unprintable(letter: str) -> str:
    # Whoever approves a line must see all of it: no control character, and nothing that turns the direction.
    return f"the character U+{ord(letter):04X} cannot be seen; leave it out, or use exec"


# ── tokens to commands ──────────────────────────────────────────────────────

_RESERVED: Final = frozenset({
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "select",
    "function", "coproc", "time", "{", "}", "!", "[[", "]]",
})  # fmt: skip
# What changes the shell itself. A program of that name does not exist, or does something else.
_OF_THE_SHELL: Final = frozenset({
    ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command", "compgen", "complete", "compopt",
    "continue", "declare", "dirs", "disown", "enable", "eval", "exec", "exit", "export", "fc", "fg", "getopts",
    "hash", "history", "jobs", "let", "local", "logout", "mapfile", "popd", "pushd", "read", "readarray", "readonly",
    "return", "set", "shift", "shopt", "source", "suspend", "times", "trap", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "wait",
})  # fmt: skip
_REMEDIES: Final = {
    "cd": "each command starts in the workspace; write paths from there, or give the program its own option (git -C)",
    ":": "write true",
    "exec": "write the program itself",
    "command": "write the program itself",
    "time": "write the program itself; the result of a call tells no time",
    "!": "join with || what is to run when it fails",
}
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=", re.DOTALL)
_REDIRECTS: Final = frozenset(stream.value for stream in Stream)


class _Reader:
    """Reads tokens from left to right, one ahead."""

    def __init__(self, tokens: Iterator[_Token], end: int) -> None:
        # Read whole first: a bad character at the end is named before a word too few at the start.
        self._tokens = list(tokens)
        self._place = 0
        self._end = end
        self._count = 0

    def _next(self) -> _Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _takes(self, *operators: str) -> _Token | None:
        token = self._next()
        if token is None or not token.operator or token.text not in operators:
            return None
        self._place += 1
        return token

    def pipelines(self) -> Iterator[Pipeline]:
        """Read the whole line."""
        join = Join.then
        while True:
            yield Pipeline(join, tuple(self._pipeline()))
            token = self._takes(*Join)
            if token is None:
                assert self._next() is None, "every operator is a join, a pipe or a redirection"
                return
            join = Join(token.text)
            if join is Join.then and self._next() is None:
                # A last ; ends the line and joins nothing.
                return

    def _pipeline(self) -> Iterator[Command]:
        yield self._command()
        while self._takes("|") is not None:
            yield self._command()

    def _command(self) -> Command:
        words: list[_Token] = []
        redirects: list[Redirect] = []
        first = self._next()
        while (token := self._next()) is not None:
            if not token.operator:
                words.append(token)
                self._place += 1
            elif token.text in _REDIRECTS:
                redirects.append(self._redirect())
            else:
                break
        if not words:
            at = self._end if first is None else first.at
            missing = "a redirection needs a program" if redirects else "a program is missing here"
            raise LineRefused(at, f"{missing}; name one")
        _judge_program(words[0])
        self._count += 1
        if self._count > MOST_COMMANDS:
            raise LineRefused(words[0].at, f"more than {MOST_COMMANDS} commands; use several calls")
        return Command(tuple(word.text for word in words), tuple(redirects))

    def _redirect(self) -> Redirect:
        token = self._takes(*_REDIRECTS)
        assert token is not None
        stream = Stream(token.text)
        if stream is Stream.errors_to_output:
            return Redirect(stream)
        target = self._next()
        if target is None or target.operator or not target.text:
            raise LineRefused(self._end if target is None else target.at, f"a file must follow {token.text}; name it")
        self._place += 1
        return Redirect(stream, target.text)


def _judge_program(word: _Token) -> None:
    name = word.text
    if not name.strip():
        raise LineRefused(word.at, "the name of a program is empty; name one")
    if _ASSIGNMENT.match(name):
        raise LineRefused(word.at, f"this sets a variable for the command; write env {name[:40]} and the program")
    if name in _RESERVED:
        remedy = _REMEDIES.get(name, "use && and ||, or a script")
        raise LineRefused(word.at, f"{name} is a word of the shell's language and no program; {remedy}")
    if name in _OF_THE_SHELL:
        remedy = _REMEDIES.get(name, "there is no shell whose state it could change")
        raise LineRefused(word.at, f"{name} belongs to a shell and is no program; {remedy}")
