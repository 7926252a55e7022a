"""Programs that run other programs: what a command really runs, as far as its arguments tell. Pure.

A rule for `exec` sees a program and its arguments. ``env rm x`` is the program
``env``, and what happens is ``rm x``. So a command of this class is looked into:
what it runs is judged too (`exec_judging.py`), and what cannot be told is
*opaque*: code of another language, a file that an agent may have written, a
configuration that names a command.

What would be got wrong:

- Names are judged by the last part, in small letters, without a version and
  without what makers put around one: ``/usr/bin/python3.12`` is ``python``, and so
  is ``python3.12-dbg``. A program that is named by a path outside the directories
  of the system is of this class whatever it is called: an agent may have written
  it, or copied a shell there.
- An option that is not known is taken to be dangerous, never skipped: skipped,
  its value would be taken for the inner program.
- What is guessed (`inner_commands.py`) only ever closes: it is looked at for denies, and
  the command stays opaque.
- A list of names is never complete. What a program does that is on no list is
  bound by the sandbox and by nothing else, and docs/ say so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from actors.agents.inner_commands import (
    MOST_BEFORE,
    Argv,
    Wrapping,
    commands_in,
    possible_commands,
    possible_texts,
    read_text,
    words_of,
)
from actors.agents.risky_names import (
    BUILDERS,
    COMPILERS,
    EDITORS,
    ELSEWHERE,
    LANGUAGES,
    MAKES,
    PACKAGERS,
    REMOTE,
    RUNNERS,
    SHELLS,
    TAKES_COMMAND,
)
from actors.agents.shell_line import MOST_CHARACTERS, MOST_COMMANDS
from actors.agents.told_programs import TOLD, compiler, find, find_in, git, is_told, names_in, sed, told_behind


def program_name(program: str) -> str:
    """Give the name by which a program is known here: no directory, no suffix, no version, in small letters."""
    name = program.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
    if name in _KINDS or len(name) > _LONGEST_NAME:
        # Of a longer one there is no program, and looking for its version would take long.
        return name
    if _LOADER.fullmatch(name):
        return "ld.so"
    plain = _VERSION.sub("", name) or name
    native = _CROSS.sub("", name)
    spelled = (plain, native, _VERSION.sub("", native), _VARIANT.sub("", native), _BUILT.sub("", native))
    return next((each for each in spelled if each in _KINDS), plain)


_LONGEST_NAME: Final = 255
_VERSION: Final = re.compile(r"[-_.]?\d[\d.]*$")
# ld-linux.so.2, ld-musl-x86_64.so.1, ld64.so.2
_LOADER: Final = re.compile(r"ld(?:64|[-_.][\w.+-]*)?\.so(?:\.[\d.]+)?")
# x86_64-linux-gnu-gcc
_CROSS: Final = re.compile(r"^[a-z0-9_]+(?:-[a-z0-9_]+)?-linux-(?:gnu|musl)[a-z0-9]*-")
# bash-static, vim.basic
_VARIANT: Final = re.compile(r"[-.](?:static|dbg|debug|basic|tiny|nox|gtk\d?|huge|sysv|tcp)$")
# python3.12-dbg, perl5.36-x86_64-linux-gnu
_BUILT: Final = re.compile(r"(?<=[a-z])[-_.]?\d.*$")


def wrapping_of(argv: Sequence[str]) -> Wrapping | None:
    """Tell what a command runs besides itself; None when nothing tells that it runs anything."""
    argv = tuple(argv)
    known = _KINDS.get(program_name(argv[0]))
    found = None if known is None else known(argv)
    if not _elsewhere(argv[0]):
        return found
    if found is None:
        found = Wrapping("is a program outside the system's own directories, which an agent may have written", 1)
    return attrs.evolve(found, opaque=True)


_SYSTEM: Final = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/")


def _elsewhere(program: str) -> bool:
    if "/" not in program:
        return False
    return ".." in program.split("/") or not program.startswith(_SYSTEM)


def _opaque(why: str, named: int) -> Callable[[Argv], Wrapping]:
    return lambda argv: Wrapping(why, min(named, len(argv)), opaque=True)


def _searched(why: str, named: int) -> Callable[[Argv], Wrapping]:
    """Judge what runs a command that stands somewhere behind its own arguments, or in one of them."""
    return lambda argv: Wrapping(why, min(named, len(argv)), guessed=possible_commands(argv[1:]), opaque=True)


def _watch(argv: Argv) -> Wrapping:
    """Judge `watch`: it makes one line for a shell of all that follows its options."""
    lines = [" ".join(words) for words in possible_commands(argv[1:])[:MOST_COMMANDS]]
    told = tuple(dict.fromkeys(command for line in lines for command in commands_in(line)))
    return Wrapping("runs programs again and again", min(2, len(argv)), guessed=told[:MOST_COMMANDS], opaque=True)


# ── prefixes: env, nice, timeout ... ────────────────────────────────────────


@attrs.frozen
class _Prefix:
    """A program that runs the command which follows its own arguments.

    ``flags`` and ``valued`` are its options, each as written; a long one of
    ``valued`` may also carry its value after ``=``. So many ``operands`` come
    before the command. ``feeds``: the command gets more arguments than are seen.
    ``alone``: without a command it runs a shell.
    """

    why: str = "runs another program"
    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    operands: int = 0
    feeds: bool = False
    alone: bool = False

    def __call__(self, argv: Argv) -> Wrapping | None:
        """Look for the command."""
        at = 1
        while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
            size = self._size(argv[at])
            if size is None:
                why = f"{self.why}, with an option ({argv[at][:40]}) that is not known here"
                return Wrapping(why, at + 1, guessed=possible_commands(argv[at:]), opaque=True)
            at += size
        if at < len(argv) and argv[at] == "--":
            at += 1
        at += self.operands
        if at >= len(argv):
            # It runs nothing, or what it runs by itself.
            return Wrapping(self.why, len(argv), opaque=True) if self.feeds or self.operands or self.alone else None
        if "=" in argv[at]:
            return Wrapping(f"{self.why} with other variables", at + 1, inner=_after_variables(argv[at:]), opaque=True)
        return Wrapping(self.why, at + 1, inner=(argv[at:],), opaque=self.feeds)

    def _size(self, option: str) -> int | None:
        """Say how many arguments an option takes up with itself; None when it is not known."""
        if option in self.flags:
            return 1
        if option in self.valued:
            return 2
        name = option.partition("=")[0]
        if name != option and name in self.valued:
            return 1
        # A value may follow a short option without a blank, and small flags may stand together.
        if not option.startswith("--") and option[:2] in self.valued:
            return 1
        if not option.startswith("--") and all(f"-{letter}" in self.flags for letter in option[1:]):
            return 1
        return None


def _after_variables(argv: Argv) -> tuple[Argv, ...]:
    begin = next((place for place, word in enumerate(argv) if "=" not in word), len(argv))
    return (argv[begin:],) if begin < len(argv) else ()


_PREFIXES: Final[Mapping[str, _Prefix]] = {
    "nice": _Prefix(valued=names_in("-n --adjustment")),
    "nohup": _Prefix(),
    "setsid": _Prefix(flags=names_in("-c -f -w --ctty --fork --wait")),
    "stdbuf": _Prefix(valued=names_in("-i -o -e --input --output --error")),
    "ionice": _Prefix(flags=names_in("-t --ignore"), valued=names_in("-c -n --class --classdata")),
    "timeout": _Prefix(
        flags=names_in("-v --verbose --foreground --preserve-status"),
        valued=names_in("-k -s --kill-after --signal"),
        operands=1,
    ),
    "time": _Prefix(
        flags=names_in("-p -v -a -q --portability --verbose --append --quiet"),
        valued=names_in("-f -o --format --output"),
    ),
    "command": _Prefix(flags=names_in("-p")),
    "exec": _Prefix(),
    "builtin": _Prefix(),
    "unbuffer": _Prefix(flags=names_in("-p")),
    "fakeroot": _Prefix(alone=True),
    "catchsegv": _Prefix(),
    **dict.fromkeys(("linux32", "linux64", "i386", "x86_64", "uname26"), _Prefix(alone=True)),
    "choom": _Prefix(valued=names_in("-n --adjust")),
    "uclampset": _Prefix(flags=names_in("-a -R"), valued=names_in("-m -M")),
    "runcon": _Prefix(operands=1),
    "dbus-run-session": _Prefix(),
    "chronic": _Prefix(),
    "ifne": _Prefix(flags=names_in("-n")),
    "gosu": _Prefix(why="runs another program as another user", operands=1),
    "su-exec": _Prefix(why="runs another program as another user", operands=1),
    "setarch": _Prefix(operands=1),
    "taskset": _Prefix(flags=names_in("-a --all-tasks"), operands=1),
    "chrt": _Prefix(flags=names_in("-b -f -i -o -r"), operands=1),
    "prlimit": _Prefix(),
    "chroot": _Prefix(why="runs another program in another root", operands=1),
    # What it writes to with -o may be a command; it is not listed, so it is opaque.
    "strace": _Prefix(flags=names_in("-f -ff -c -C -q -qq -v -x -y"), valued=names_in("-e -s -p -O")),
    "ltrace": _Prefix(flags=names_in("-f -c -S"), valued=names_in("-e -o -s")),
    "sudo": _Prefix(
        why="runs another program as another user",
        flags=names_in("-n -E -H -S -k -b --non-interactive --preserve-env --set-home --stdin"),
        valued=names_in("-u -g -h -p -C -r -t --user --group --prompt"),
    ),
    "doas": _Prefix(why="runs another program as another user", flags=names_in("-n"), valued=names_in("-u")),
    "xargs": _Prefix(
        why="runs another program, with arguments that it reads",
        # The last two take a value only behind "=", and stand below for that.
        flags=names_in(
            "-0 -r -t -x -p --null --no-run-if-empty --verbose --exit --interactive --open-tty --replace --max-lines"
        ),
        valued=names_in(
            "-n -P -I -L -d -a -E -s --max-args --max-procs --max-lines --replace --delimiter --arg-file --max-chars"
        ),
        feeds=True,
    ),
    **dict.fromkeys(("busybox", "toybox", "sbase-box", "ubase-box"), _Prefix(why="is many programs in one")),
}
_MANY: Final = _Prefix(why="is many programs in one")


def _coreutils(argv: Argv) -> Wrapping | None:
    """Judge what is all of coreutils: an option names the program, or the first argument does."""
    name, sign, program = "".join(argv[1:2]).partition("=")
    if not (sign and program and name.startswith("--")):
        return _MANY(argv)
    # Of a script its own path stands between.
    scripts = ((program, *argv[3:]),) if name.endswith("-shebang") else ()
    return Wrapping("is many programs in one", 2, inner=((program, *argv[2:]),), guessed=scripts)


_ENV: Final = _Prefix(
    flags=names_in("-i -0 -v --ignore-environment --null --debug"), valued=names_in("-u --unset -C --chdir -a --argv0")
)
# Alone, behind flags, or with the text in the same word.
_SPLIT: Final = re.compile(r"-[i0v]*S")
_SPLIT_LONG: Final = "--split-string"


def _split_option(word: str) -> tuple[bool, str]:
    """Tell whether this option of `env` splits a text, and give what of the text stands in the same word."""
    if word.startswith("--"):
        name, sign, text = word.partition("=")
        # No other long option begins with an s, so one letter of it is enough.
        return len(name) > 2 and _SPLIT_LONG.startswith(name), sign and sign + text
    found = _SPLIT.match(word)
    return found is not None, word[found.end() :] if found else ""


def _env(argv: Argv) -> Wrapping | None:
    """Judge `env`: of -S the words stand in one text, and take its place."""
    words, named = argv, 0
    for _ in range(MOST_COMMANDS):
        at = 1
        while at < len(words) and words[at].startswith("-") and words[at] != "--":
            if _split_option(words[at])[0]:
                break
            at += _ENV._size(words[at]) or len(words)
        else:
            break
        text, after = _split_option(words[at])[1], at + 1
        if not text:
            text, after = " ".join(words[after : after + 1]), after + 1
        text = text.removeprefix("=") if words[at].startswith("--") else text
        named = named or after
        split = words_of(text)
        if split is None:
            why = "runs another program, which a text names that cannot be read here"
            guessed = (*commands_in(text), *possible_commands(words[after:]))
            return Wrapping(why, min(named, len(argv)), guessed=guessed, opaque=True)
        # Split words are read as arguments of env, options too.
        words = (*words[:at], *split, *words[after:])
    else:
        return Wrapping("runs another program", min(named, len(argv)), opaque=True)
    if named and len(words) == 1:
        # A text of nothing: what it prints is no command.
        return Wrapping("runs another program", min(named, len(argv)), opaque=True)
    wrapping = _ENV(words)
    if named and wrapping is not None:
        return attrs.evolve(wrapping, named=min(named, len(argv)))
    return wrapping


# ── shells ──────────────────────────────────────────────────────────────────

# They read a line of our language as we do; others have quotes and expansions of their own.
_READ_ALIKE: Final = ("sh", "bash", "rbash", "dash", "ash", "ksh", "mksh")
_SHELL_FLAGS: Final = names_in("--login --posix --norc --noprofile --restricted --verbose")


def _shell(argv: Argv) -> Wrapping:
    """Look for the line of ``sh -c``. Anything else is a script, or reads one."""
    commands, at, told = False, 1, list[str]()
    while at < len(argv) and argv[at][:1] in ("-", "+") and argv[at] not in ("-", "--"):
        option = argv[at]
        if option.startswith("--"):
            if option not in _SHELL_FLAGS:
                why = f"is a shell, with an option ({option[:40]}) not known here"
                return Wrapping(why, at + 1, guessed=possible_texts(argv[at:]), opaque=True)
        elif not option[1:].isalpha():
            why = "is a shell, with options that are not known here"
            return Wrapping(why, at + 1, guessed=possible_texts(argv[at:]), opaque=True)
        else:
            commands = commands or (option[0] == "-" and "c" in option)
            # fish -C
            told += argv[at + 1 : at + 2] if "C" in option else ()
            # The value of -o stands after it.
            at += option.count("o") + option.count("O")
        at += 1
    if at < len(argv) and argv[at] in ("-", "--"):
        at += 1
    if not commands or at >= len(argv):
        why = "is a shell that reads what to do from elsewhere"
        return Wrapping(why, min(at + 1, len(argv)), guessed=possible_texts(told), opaque=True)
    read = read_text(argv[at])
    if read is None:
        why = "is a shell, with a line that cannot be read here"
        return Wrapping(why, at, guessed=commands_in(argv[at]), opaque=True)
    alike = program_name(argv[0]) in _READ_ALIKE
    return Wrapping("is a shell", at, read, opaque=not alike)


# ── other languages ─────────────────────────────────────────────────────────

# Nothing else: `python -v` reads a program, and `node version` runs a file of that name.
_HARMLESS: Final = ("--version",)


def _language(argv: Argv) -> Wrapping | None:
    """Judge an interpreter: all it does is arbitrary code, but to say which version it is."""
    if len(argv) == 2 and argv[1] in _HARMLESS:
        return None
    named = 1
    while named < len(argv) and argv[named].startswith("-") and argv[named] not in ("-c", "-e", "-m", "-E"):
        named += 1
    # `-m` runs the module that follows, and a script is one by itself; code needs no more than its option.
    named += 2 if named < len(argv) and argv[named] == "-m" else 1
    # Of debuggers and data bases: !rm x, shell rm x, .system rm x
    texts = [found[1] for word in argv[1:MOST_COMMANDS] if (found := _ESCAPE.match(word))]
    return Wrapping("runs code of another language", min(named, len(argv)), guessed=possible_texts(texts), opaque=True)


_ESCAPE: Final = re.compile(r"[.\\]?(?:!|(?:shell|system)\s)\s*(.{1,4096})", re.DOTALL)


# ── all of them ─────────────────────────────────────────────────────────────


def _package(argv: Argv) -> Wrapping | None:
    if len(argv) == 2 and argv[1] in _HARMLESS:
        return None
    # `npm run build`: the script is the third word.
    guessed = _behind_verbs(argv, _EXECUTES) + _behind_options(argv)
    return Wrapping("runs scripts of the project", min(3, len(argv)), guessed=guessed, opaque=True)


def _builder(argv: Argv) -> Wrapping | None:
    if len(argv) == 2 and argv[1] in _HARMLESS:
        return None
    guessed = _behind_verbs(argv, _EXECUTES_TOO) + _behind_options(argv)
    return Wrapping("runs what files of the project say", min(2, len(argv)), guessed=guessed, opaque=True)


def _make(argv: Argv) -> Wrapping | None:
    """Judge `make`: what follows its options is nearly always a target or a file; SHELL=... is a program."""
    found = _builder(argv)
    guessed = possible_texts([word for word in argv[1:] if "=" in word])
    return None if found is None else attrs.evolve(found, guessed=guessed)


# Behind these words a command stands; `run` of a package manager is followed by a script.
_EXECUTES: Final = ("exec", "x", "dlx", "explore")
_EXECUTES_TOO: Final = (*_EXECUTES, "run", "cmd", "shell")


def _behind_verbs(argv: Argv, verbs: Sequence[str]) -> tuple[Argv, ...]:
    place = next((place for place, word in enumerate(argv[1:], 2) if word in verbs), len(argv))
    return possible_commands(argv[place:])


def _behind_options(argv: Argv) -> tuple[Argv, ...]:
    """Guess the commands that options name: in their own word, in the next one, or in all that follow.

    A single word behind an option that is not known for that is nearly always a target, a file or a package.
    """
    places = [place for place, word in enumerate(argv[1:], 1) if word.startswith("-")][:MOST_COMMANDS]
    known = [place for place in places if argv[place].partition("=")[0] in _NAMES_COMMAND]
    told = {place: argv[place : place + 2] for place in places}
    texts = [word for at, words in told.items() for word in words if at in known or " " in word]
    rest = [tuple(argv[place + 1 :]) for place in known[:MOST_BEFORE] if place + 1 < len(argv)]
    return tuple(dict.fromkeys((*possible_texts(texts), *(words for words in rest if words[0][:1] not in ("", "-")))))


_NAMES_COMMAND: Final = names_in(
    "-exec --exec -toolexec -vettool --vettool --call --command --shell --script-shell --shell-command --cmd --eval -E"
)


def _editor(argv: Argv) -> Wrapping:
    texts = list[str]()
    for place, word in enumerate(argv[1:], 1):
        # vi -c ':!rm x', less '+!rm x'
        texts += word.split("!")[1 : MOST_COMMANDS] if len(word) <= MOST_CHARACTERS else ()
        # man -P 'rm x'
        if is_told(word, _EDITOR_TOLD, _EDITOR_TOLD_LONG):
            texts += told_behind(argv[place : place + 2], _EDITOR_TOLD)
    told = possible_texts(texts)
    return Wrapping("lets whoever uses it run other programs", min(2, len(argv)), guessed=told, opaque=True)


_EDITOR_TOLD: Final = names_in("P H c e")
_EDITOR_TOLD_LONG: Final = names_in("--pager --html --cmd --command --eval --execute")


def _socat(argv: Argv) -> Wrapping:
    """Judge `socat`: EXEC:command,options and SYSTEM:line are addresses, and two may be joined to one."""
    texts = [text for word in argv[1:] if len(word) <= MOST_CHARACTERS for text in _ADDRESSES.split(word)]
    return Wrapping("runs programs", min(2, len(argv)), guessed=possible_texts(texts), opaque=True)


_ADDRESSES: Final = re.compile(r"[:,\"']|!!")


def _remote(argv: Argv) -> Wrapping:
    """Judge what runs a program elsewhere, which is none of ours; a proxy that it names is one here."""
    places = [place for place, word in enumerate(argv[1:], 1) if is_told(word, _PROXY, frozenset())]
    texts = [text for place in places[:MOST_COMMANDS] for text in told_behind(argv[place : place + 2], _PROXY)]
    # -o 'ProxyCommand rm x', with a blank in place of the sign
    texts += [text.partition(" ")[2] for text in texts]
    return Wrapping("runs programs elsewhere", min(2, len(argv)), guessed=possible_texts(texts), opaque=True)


_PROXY: Final = names_in("o S")


_Kind = Callable[[Argv], Wrapping | None]
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(LANGUAGES, _language),
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(BUILDERS, _builder),
    **dict.fromkeys(MAKES, _make),
    **dict.fromkeys(PACKAGERS, _package),
    **dict.fromkeys(TAKES_COMMAND, _searched("runs programs of the project", 2)),
    **dict.fromkeys(ELSEWHERE, _searched("runs programs later or under other rights", 2)),
    **dict.fromkeys(REMOTE, _remote),
    **dict.fromkeys(RUNNERS, _opaque("runs code of the project", 1)),
    **dict.fromkeys(COMPILERS, compiler),
    **dict.fromkeys(EDITORS, _editor),
    **_PREFIXES,
    **TOLD,
    **dict.fromkeys(("coreutils", "uu-coreutils", "uu_coreutils", "uutils"), _coreutils),
    "socat": _socat,
    **dict.fromkeys(("cross-env", "cross-env-shell", "bear"), _Prefix()),
    "env": _env,
    "watch": _watch,
    "find": find,
    "gfind": find,
    "fd": find_in,
    "fdfind": find_in,
    "sed": sed,
    "gsed": sed,
    "git": git,
}
# A test walks them: each name must be the one that `program_name` gives.
RISKY_NAMES: Final = frozenset(_KINDS)
