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

from actors.agents.inner_commands import commands_in, possible_commands, possible_texts, read_text, words_of
from actors.agents.risky_names import (
    BUILDERS,
    COMPILERS,
    COMPILERS_TOLD,
    EDITORS,
    ELSEWHERE,
    LANGUAGES,
    PACKAGERS,
    REMOTE,
    RUNNERS,
    SHELLS,
    TAKES_COMMAND,
)
from actors.agents.shell_line import MOST_COMMANDS

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


def program_name(program: str) -> str:
    """Give the name by which a program is known here: no directory, no suffix, no version, in small letters."""
    name = program.replace("\\", "/").rpartition("/")[2].lower().removesuffix(".exe")
    if name in _KINDS or len(name) > _LONGEST_NAME:
        # Of a longer one there is no program, and looking for its version would take long.
        return name
    plain = _VERSION.sub("", name) or name
    native = _CROSS.sub("", name)
    spelled = (plain, native, _VERSION.sub("", native), _VARIANT.sub("", native), _BUILT.sub("", native))
    return next((each for each in spelled if each in _KINDS), plain)


_LONGEST_NAME: Final = 255
_VERSION: Final = re.compile(r"[-_.]?\d[\d.]*$")
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


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PREFIXES: Final[Mapping[str, _Prefix]] = {
    "nice": _Prefix(valued=_set("-n --adjustment")),
    "nohup": _Prefix(),
    "setsid": _Prefix(flags=_set("-c -f -w --ctty --fork --wait")),
    "stdbuf": _Prefix(valued=_set("-i -o -e --input --output --error")),
    "ionice": _Prefix(flags=_set("-t --ignore"), valued=_set("-c -n --class --classdata")),
    "timeout": _Prefix(
        flags=_set("-v --verbose --foreground --preserve-status"),
        valued=_set("-k -s --kill-after --signal"),
        operands=1,
    ),
    "time": _Prefix(
        flags=_set("-p -v -a -q --portability --verbose --append --quiet"), valued=_set("-f -o --format --output")
    ),
    "command": _Prefix(flags=_set("-p")),
    "exec": _Prefix(),
    "builtin": _Prefix(),
    "unbuffer": _Prefix(flags=_set("-p")),
    "fakeroot": _Prefix(alone=True),
    "catchsegv": _Prefix(),
    **dict.fromkeys(("linux32", "linux64", "i386", "x86_64", "uname26"), _Prefix(alone=True)),
    "choom": _Prefix(valued=_set("-n --adjust")),
    "uclampset": _Prefix(flags=_set("-a -R"), valued=_set("-m -M")),
    "runcon": _Prefix(operands=1),
    "dbus-run-session": _Prefix(),
    "chronic": _Prefix(),
    "ifne": _Prefix(flags=_set("-n")),
    "gosu": _Prefix(why="runs another program as another user", operands=1),
    "su-exec": _Prefix(why="runs another program as another user", operands=1),
    "setarch": _Prefix(operands=1),
    "taskset": _Prefix(flags=_set("-a --all-tasks"), operands=1),
    "chrt": _Prefix(flags=_set("-b -f -i -o -r"), operands=1),
    "prlimit": _Prefix(),
    "chroot": _Prefix(why="runs another program in another root", operands=1),
    # What it writes to with -o may be a command; it is not listed, so it is opaque.
    "strace": _Prefix(flags=_set("-f -ff -c -C -q -qq -v -x -y"), valued=_set("-e -s -p -O")),
    "ltrace": _Prefix(flags=_set("-f -c -S"), valued=_set("-e -o -s")),
    "sudo": _Prefix(
        why="runs another program as another user",
        flags=_set("-n -E -H -S -k -b --non-interactive --preserve-env --set-home --stdin"),
        valued=_set("-u -g -h -p -C -r -t --user --group --prompt"),
    ),
    "doas": _Prefix(why="runs another program as another user", flags=_set("-n"), valued=_set("-u")),
    "xargs": _Prefix(
        why="runs another program, with arguments that it reads",
        # The last two take a value only behind "=", and stand below for that.
        flags=_set(
            "-0 -r -t -x -p --null --no-run-if-empty --verbose --exit --interactive --open-tty --replace --max-lines"
        ),
        valued=_set(
            "-n -P -I -L -d -a -E -s --max-args --max-procs --max-lines --replace --delimiter --arg-file --max-chars"
        ),
        feeds=True,
    ),
    "busybox": _Prefix(why="is many programs in one"),
    "toybox": _Prefix(why="is many programs in one"),
}

_ENV: Final = _Prefix(
    flags=_set("-i -0 -v --ignore-environment --null --debug"), valued=_set("-u --unset -C --chdir -a --argv0")
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
_SHELL_FLAGS: Final = _set("--login --posix --norc --noprofile --restricted --verbose")


def _shell(argv: Argv) -> Wrapping:
    """Look for the line of ``sh -c``. Anything else is a script, or reads one."""
    commands, at = False, 1
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
            # The value of -o stands after it.
            at += option.count("o") + option.count("O")
        at += 1
    if at < len(argv) and argv[at] in ("-", "--"):
        at += 1
    if not commands or at >= len(argv):
        return Wrapping("is a shell that reads what to do from elsewhere", min(at + 1, len(argv)), opaque=True)
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
    return Wrapping("runs code of another language", min(named, len(argv)), opaque=True)


# ── programs that may be told to run others ─────────────────────────────────


def _find(argv: Argv) -> Wrapping | None:
    inner: list[Argv] = []
    at, named = 1, 0
    while at < len(argv):
        if argv[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((place for place in range(at + 1, len(argv)) if _ends_command(argv, place)), len(argv))
            if end == at + 1 or len(inner) >= MOST_COMMANDS:
                return Wrapping("runs another program", len(argv), tuple(inner), opaque=True)
            inner.append(argv[at + 1 : end])
            at, named = end, at + 2
        at += 1
    if not inner:
        return None
    # What takes the place of {} is not seen here.
    fed = any("{}" in word for command in inner for word in command)
    return Wrapping("runs another program on what it finds", named, tuple(inner), opaque=fed)


def _ends_command(argv: Argv, place: int) -> bool:
    # Only behind {} a + is the end: elsewhere it is an argument like others, and would hide what follows.
    return argv[place] == ";" or argv[place - 1 : place + 1] == ("{}", "+")


def _find_in(argv: Argv) -> Wrapping | None:
    """Judge `fd`: all after -x is a command."""
    for at, word in enumerate(argv[1:], 1):
        if _is_told(word, _set("x X"), _set("--exec --exec-batch")):
            plain = word in ("-x", "-X", "--exec", "--exec-batch")
            # In one word with its program, or behind other letters.
            inner = (argv[at + 1 :],) if plain and argv[at + 1 :] else ()
            guessed = () if inner else possible_commands(argv[at:])
            named = min(at + 2, len(argv))
            return Wrapping("runs another program on what it finds", named, inner, opaque=True, guessed=guessed)
    return None


@attrs.frozen
class _Told:
    """A program that runs another one only when one of these options says so."""

    short: frozenset[str]
    long: frozenset[str]
    # Whether the first argument is letters of options without a dash.
    bundle: bool = False

    def __call__(self, argv: Argv) -> Wrapping | None:
        """Look for such an option."""
        for at, word in enumerate(argv[1:], 1):
            if at == 1 and self.bundle and not word.startswith("-"):
                word = f"-{word}"
            if _is_told(word, self.short, self.long):
                # Its value stands in the word, or in the next one; behind letters without a dash, later.
                told = possible_texts(argv[at : at + (4 if self.bundle else 2)])
                return Wrapping(f"is told to run another program ({word[:40]})", at + 1, guessed=told, opaque=True)
        return None


def _is_told(word: str, short: frozenset[str], long: frozenset[str]) -> bool:
    if word.startswith("--"):
        name = word.partition("=")[0]
        # Long options may be shortened, to one letter where no other begins with it (git ls-remote --u=...).
        return len(name) > 2 and any(each.startswith(name) for each in long)
    # Short ones may stand together, or hold their value; better one too many.
    return word.startswith("-") and any(letter in word[1:] for letter in short)


_TOLD: Final[Mapping[str, _Told]] = {
    "tar": _Told(
        # T: the lines of a list of files may be options.
        _set("I F T"),
        _set(
            "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command "
            "--rmt-command --files-from"
        ),
        bundle=True,
    ),
    "bsdtar": _Told(_set("I"), _set("--use-compress-program"), bundle=True),
    "rsync": _Told(_set("e"), _set("--rsh --rsync-path")),
    "sort": _Told(frozenset(), _set("--compress-program")),
    "zip": _Told(_set("T"), _set("--unzip-command")),
    "split": _Told(frozenset(), _set("--filter")),
    "wget": _Told(_set("e"), _set("--use-askpass --execute --config")),
    "rg": _Told(frozenset(), _set("--pre --hostname-bin")),
    "install": _Told(_set("s"), _set("--strip-program")),
    "diff3": _Told(frozenset(), _set("--diff-program")),
    "sdiff": _Told(_set("o"), _set("--diff-program --output")),
    "cpio": _Told(frozenset(), _set("--rsh-command")),
    "patch": _Told(_set("e"), _set("--ed")),
    "fzf": _Told(frozenset(), _set("--preview --bind --become")),
    "ag": _Told(frozenset(), _set("--pager")),
    "ack": _Told(frozenset(), _set("--pager --ackrc")),
    "bat": _Told(frozenset(), _set("--pager")),
}


def _compiler(argv: Argv) -> Wrapping | None:
    """Judge a compiler or linker: some options load code, name another program, or hold more options."""
    for at, word in enumerate(argv[1:], 2):
        if word.startswith(COMPILERS_TOLD):
            return Wrapping(f"is told to run another program ({word[:40]})", at, opaque=True)
    return None


# One command of print, delete or substitute, without the flag that runs what comes out.
_ADDRESS: Final = r"(?:\d+|\$|/[^/\\\n]*/)?(?:,(?:\d+|\$|/[^/\\\n]*/))?"
_SED_SAFE: Final = re.compile(rf"{_ADDRESS}(?:[pd=]|s([/|#,:@])(?:(?!\1)[^\\\n])*\1(?:(?!\1)[^\\\n])*\1[gpiI0-9]*)")

_SED_RUNS: Final = re.compile(r"(?:^|[;\n{/$0-9!])[ \t]*e[ \t]+([^\n]{1,4096})")


def _sed(argv: Argv) -> Wrapping | None:
    """Judge sed: its scripts may run commands and write files, unless it is told not to."""
    scripts, at, given = [], 1, False
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "--"):
        word = argv[at]
        if word == "--sandbox":
            # Only where it is an option: elsewhere it may be the name of a file.
            return None
        if word in ("-e", "--expression") and at + 1 < len(argv):
            scripts.append(argv[at + 1])
            given, at = True, at + 1
        elif re.fullmatch(r"-[nErsuz]+|-i|--quiet|--silent|--regexp-extended|--in-place", word) is None:
            return Wrapping("may be told by its script to run other programs", at + 1, opaque=True)
        at += 1
    if at < len(argv) and not given:
        scripts.append(argv[at])
    # An option may stand behind the script too.
    late = any(word.startswith("-") and word != "-" for word in argv[at:])
    if not late and scripts and all(_SED_SAFE.fullmatch(script) for script in scripts):
        return None
    texts = [text for script in scripts[:MOST_COMMANDS] for text in _SED_RUNS.findall(script)]
    told = tuple(command for text in texts[:MOST_COMMANDS] for command in commands_in(text))
    why = "may be told by its script to run other programs"
    return Wrapping(why, min(at + 1, len(argv)), guessed=told[:MOST_COMMANDS], opaque=True)


# ── git ─────────────────────────────────────────────────────────────────────

# What a subcommand that is not here runs cannot be told: it may be an alias, or a program of that name.
_GIT_SAFE: Final = _set(
    "add am apply archive blame branch cat-file check-attr check-ignore check-ref-format checkout cherry cherry-pick "
    "clean commit count-objects describe diff diff-files diff-index diff-tree fetch format-patch for-each-ref fsck gc "
    "grep hash-object init log ls-files ls-tree merge merge-base mv name-rev notes pull push range-diff rebase "
    "reflog remote reset restore rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout stash "
    "status switch symbolic-ref tag verify-commit verify-tag version whatchanged worktree write-tree clone ls-remote"
)
_GIT_TOLD: Final = _set(
    "--upload-pack --receive-pack --exec --extcmd --open-files-in-pager --ext-diff --textconv --config --config-env "
    "--template --strategy --editor --tool"
)
_GIT_GLOBAL: Final = _set("--no-pager -P --no-replace-objects --literal-pathspecs --no-optional-locks --version -v -h")
_GIT_SHORT: Final[Mapping[str, str]] = {
    "rebase": "x", "grep": "O", "clone": "uc", "difftool": "x", "merge": "s", "pull": "s", "cherry-pick": "sS",
}  # fmt: skip


def _git(argv: Argv) -> Wrapping | None:
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] not in _GIT_GLOBAL:
            # -c, --exec-path, -C, --git-dir ...: a configuration names programs, and any directory may hold one.
            why = f"takes a configuration from elsewhere ({argv[at][:40]})"
            return Wrapping(why, min(at + 2, len(argv)), guessed=_configured(argv[at:]), opaque=True)
        at += 1
    if at >= len(argv):
        return None
    if argv[at] not in _GIT_SAFE:
        guessed = possible_commands(argv[at + 1 :])
        return Wrapping(f"may run a program by {argv[at][:40]!r}", min(at + 2, len(argv)), guessed=guessed, opaque=True)
    short = frozenset(_GIT_SHORT.get(argv[at], ""))
    for place, word in enumerate(argv[at + 1 :], at + 1):
        if _is_told(word, short, _GIT_TOLD) or "ext::" in word or word.startswith("fd::"):
            told = possible_texts(argv[place : place + 2])
            return Wrapping(f"is told to run another program ({word[:40]})", place + 1, guessed=told, opaque=True)
    return None


def _configured(argv: Argv) -> tuple[Argv, ...]:
    """Give the commands that settings on the line of git name: of each -c, and what the last of them may call."""
    settings = [argv[place + 1] for place, word in enumerate(argv[:-1]) if word == "-c" and place < MOST_COMMANDS]
    return possible_texts([each for each in settings if "=" in each])


# ── all of them ─────────────────────────────────────────────────────────────


def _package(argv: Argv) -> Wrapping | None:
    if len(argv) == 2 and argv[1] in _HARMLESS:
        return None
    # `npm run build`: the script is the third word.
    return Wrapping("runs scripts of the project", min(3, len(argv)), opaque=True)


def _builder(argv: Argv) -> Wrapping | None:
    if len(argv) == 2 and argv[1] in _HARMLESS:
        return None
    return Wrapping("runs what files of the project say", min(2, len(argv)), opaque=True)


def _editor(argv: Argv) -> Wrapping:
    # vi -c '!rm x'
    texts = possible_texts([word for word in argv[1:] if "!" in word])
    return Wrapping("lets whoever uses it run other programs", min(2, len(argv)), guessed=texts, opaque=True)


_Kind = Callable[[Argv], Wrapping | None]
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(LANGUAGES, _language),
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(BUILDERS, _builder),
    **dict.fromkeys(PACKAGERS, _package),
    **dict.fromkeys(TAKES_COMMAND, _searched("runs programs of the project", 2)),
    **dict.fromkeys(ELSEWHERE, _searched("runs programs later or under other rights", 2)),
    # What is run on another machine is none of ours.
    **dict.fromkeys(REMOTE, _opaque("runs programs elsewhere", 2)),
    **dict.fromkeys(RUNNERS, _opaque("runs code of the project", 1)),
    **dict.fromkeys(COMPILERS, _compiler),
    **dict.fromkeys(EDITORS, _editor),
    **_PREFIXES,
    **_TOLD,
    "env": _env,
    "watch": _watch,
    "find": _find,
    "gfind": _find,
    "fd": _find_in,
    "fdfind": _find_in,
    "sed": _sed,
    "gsed": _sed,
    "git": _git,
}
# A test walks them: each name must be the one that `program_name` gives.
RISKY_NAMES: Final = frozenset(_KINDS)
