"""Programs that run another one only where an option or a script says so: find, tar, sed, git, compilers. Pure.

As in `risky_programs.py`, an option that may say so is taken for one that does, and what
it names is guessed: such a command is opaque, and what is found in it can only be denied
or asked about.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from actors.agents.inner_commands import Argv, Wrapping, commands_in, possible_commands, possible_texts
from actors.agents.risky_names import COMPILERS_TOLD
from actors.agents.shell_line import MOST_CHARACTERS, MOST_COMMANDS


def names_in(text: str) -> frozenset[str]:
    """Give the words of a text."""
    return frozenset(text.split())


def find(argv: Argv) -> Wrapping | None:
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


def find_in(argv: Argv) -> Wrapping | None:
    """Judge `fd`: all after -x is a command."""
    for at, word in enumerate(argv[1:], 1):
        if is_told(word, names_in("x X"), names_in("--exec --exec-batch")):
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
        found: dict[int, str] = {}
        for at, word in enumerate(argv[1:], 1):
            if at == 1 and self.bundle and not word.startswith("-"):
                word = f"-{word}"
            if is_told(word, self.short, self.long):
                found[at] = word
                if len(found) >= MOST_COMMANDS:
                    break
        if not found:
            return None
        first, word = next(iter(found.items()))
        # Its value stands in the word, or in the next one; behind letters without a dash, later.
        texts = [text for at in found for text in told_behind(argv[at : at + (4 if self.bundle else 2)], self.short)]
        told = possible_texts(texts)
        return Wrapping(f"is told to run another program ({word[:40]})", first + 1, guessed=told, opaque=True)


def told_behind(argv: Sequence[str], short: frozenset[str]) -> Iterator[str]:
    """Give what may name a command: these arguments, and what stands in the first one behind each such letter."""
    yield from argv
    for place, letter in enumerate(argv[0][1:MOST_COMMANDS], 2):
        if letter in short:
            yield argv[0][place:]


def is_told(word: str, short: frozenset[str], long: frozenset[str]) -> bool:
    if word.startswith("--"):
        name = word.partition("=")[0]
        # Long options may be shortened, to one letter where no other begins with it (git ls-remote --u=...).
        return len(name) > 2 and any(each.startswith(name) for each in long)
    # Short ones may stand together, or hold their value; better one too many.
    return word.startswith("-") and any(letter in word[1:] for letter in short)


TOLD: Final[Mapping[str, _Told]] = {
    "tar": _Told(
        # T: the lines of a list of files may be options.
        names_in("I F T"),
        names_in(
            "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script --rsh-command "
            "--rmt-command --files-from"
        ),
        bundle=True,
    ),
    "bsdtar": _Told(names_in("I"), names_in("--use-compress-program"), bundle=True),
    "rsync": _Told(names_in("e"), names_in("--rsh --rsync-path")),
    "sort": _Told(frozenset(), names_in("--compress-program")),
    "zip": _Told(names_in("T"), names_in("--unzip-command")),
    "split": _Told(frozenset(), names_in("--filter")),
    "wget": _Told(names_in("e"), names_in("--use-askpass --execute --config")),
    "rg": _Told(frozenset(), names_in("--pre --hostname-bin")),
    "install": _Told(names_in("s"), names_in("--strip-program")),
    "diff3": _Told(frozenset(), names_in("--diff-program")),
    "sdiff": _Told(names_in("o"), names_in("--diff-program --output")),
    "cpio": _Told(frozenset(), names_in("--rsh-command")),
    "patch": _Told(names_in("e"), names_in("--ed")),
    "fzf": _Told(frozenset(), names_in("--preview --bind --become")),
    "ag": _Told(frozenset(), names_in("--pager")),
    "ack": _Told(frozenset(), names_in("--pager --ackrc")),
    "bat": _Told(frozenset(), names_in("--pager")),
}


def compiler(argv: Argv) -> Wrapping | None:
    """Judge a compiler or linker: some options load code, name another program, or hold more options."""
    for at, word in enumerate(argv[1:], 2):
        if word.startswith(COMPILERS_TOLD):
            # -wrapper gdb,--args
            words = tuple("".join(argv[at : at + 1]).split(",")) if word == "-wrapper" else ()
            guessed = (words,) if words[:1] not in ((), ("",)) else ()
            return Wrapping(f"is told to run another program ({word[:40]})", at, opaque=True, guessed=guessed)
    return None


# One command of print, delete or substitute, without the flag that runs what comes out.
_ADDRESS: Final = r"(?:\d+|\$|/[^/\\\n]*/)?(?:,(?:\d+|\$|/[^/\\\n]*/))?"
_SED_SAFE: Final = re.compile(rf"{_ADDRESS}(?:[pd=]|s([/|#,:@])(?:(?!\1)[^\\\n])*\1(?:(?!\1)[^\\\n])*\1[gpiI0-9]*)")

_SED_RUNS: Final = re.compile(r"(?:^|[;\n{}/$0-9!IM])[ \t]*e[ \t]*([^\n]{1,4096})")
# With the flag e what is put in is run, together with what stood around it.
_SED_PUTS: Final = re.compile(r"s([/|#,:@])(?:(?!\1)[^\n]){0,200}\1((?:(?!\1)[^\n]){1,200})\1[gpiIm0-9]*e")
_SED_OPTION: Final = re.compile(r"-[nErsuz]+|-i|--quiet|--silent|--regexp-extended|--in-place")
_SED_SCRIPT: Final = re.compile(r"-[nErsuz]*e(.*)|--e[a-z]*(?:=(.*))?", re.DOTALL)


def sed(argv: Argv) -> Wrapping | None:
    """Judge sed: its scripts may run commands and write files, unless it is told not to."""
    scripts, at, given = list[str](), 1, False
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "--"):
        word = argv[at]
        if word == "--sandbox":
            # Only where it is an option: elsewhere it may be the name of a file.
            return None
        script = _SED_SCRIPT.fullmatch(word)
        if script is not None:
            given, told = True, script[1] or script[2]
            at += not told
            scripts += [told] if told else argv[at : at + 1]
        elif _SED_OPTION.fullmatch(word) is None:
            break
        at += 1
    if at < len(argv) and not given:
        scripts.append(argv[at])
    # An option that is not known, or one behind the script.
    late = any(word.startswith("-") and word != "-" for word in argv[at:])
    if not late and scripts and all(_SED_SAFE.fullmatch(script) for script in scripts):
        return None
    if late:
        scripts += argv[at:]
    told = tuple(command for text in _sed_runs(scripts[:MOST_COMMANDS]) for command in commands_in(text))
    why = "may be told by its script to run other programs"
    return Wrapping(why, min(at + 1, len(argv)), guessed=told[:MOST_COMMANDS], opaque=True)


def _sed_runs(scripts: Sequence[str]) -> list[str]:
    """Give the texts that scripts seem to run."""
    found: list[str] = []
    for script in scripts:
        if len(script) <= MOST_CHARACTERS:
            # In one word with its option, perhaps.
            for text in (script, script[2:]) if script.startswith("-") else (script,):
                found += [*_SED_RUNS.findall(text), *(put[1] for put in _SED_PUTS.findall(text))]
    return found[:MOST_COMMANDS]


# ── git ─────────────────────────────────────────────────────────────────────

# What a subcommand that is not here runs cannot be told: it may be an alias, or a program of that name.
_GIT_SAFE: Final = names_in(
    "add am apply archive blame branch cat-file check-attr check-ignore check-ref-format checkout cherry cherry-pick "
    "clean commit count-objects describe diff diff-files diff-index diff-tree fetch format-patch for-each-ref fsck gc "
    "grep hash-object init log ls-files ls-tree merge merge-base mv name-rev notes pull push range-diff rebase "
    "reflog remote reset restore rev-list rev-parse revert rm shortlog show show-branch show-ref sparse-checkout stash "
    "status switch symbolic-ref tag verify-commit verify-tag version whatchanged worktree write-tree clone ls-remote"
)
_GIT_TOLD: Final = names_in(
    "--upload-pack --receive-pack --exec --extcmd --open-files-in-pager --ext-diff --textconv --config --config-env "
    "--template --strategy --editor --edit-description --edit-todo --interactive --tool"
)
_GIT_GLOBAL: Final = names_in(
    "--no-pager -P --no-replace-objects --literal-pathspecs --no-optional-locks --version -v -h"
)
_GIT_SHORT: Final[Mapping[str, str]] = {
    "rebase": "xi", "grep": "O", "clone": "uc", "difftool": "x", "merge": "se", "pull": "se", "cherry-pick": "sSe",
    "revert": "e", "add": "eip", "stash": "p", "reset": "p", "restore": "p", "checkout": "p",
}  # fmt: skip
# What has no message is asked about it, in an editor.
_GIT_MESSAGE: Final[Mapping[str, frozenset[str]]] = {
    "commit": names_in("--message --file --reuse-message --fixup --squash --no-edit --dry-run --short --porcelain"),
    "tag": names_in("--message --file"),
    "notes": names_in("--message --file --reuse-message"),
}
# Short ones that need a value, which may follow in the same word.
_GIT_VALUED: Final[Mapping[str, str]] = {"commit": "mFCctuS", "tag": "mFu", "notes": "mFCc"}


def git(argv: Argv) -> Wrapping | None:
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
    found: dict[int, str] = {}
    told: tuple[Argv, ...] = ()
    for place, word in enumerate(argv[at + 1 :], at + 1):
        # -Xtheirs: its value is a word of git's own.
        letters = frozenset[str]() if word.startswith("-X") else short
        if is_told(word, letters, _GIT_TOLD) or "ext::" in word or word.startswith("fd::"):
            # ext::sh -c rm%20x is written with "% " for a blank.
            transport = word.partition("::")[2].replace("% ", " ")
            told += possible_texts([*told_behind(argv[place : place + 2], short), transport])
            found[place] = word
            if len(found) >= MOST_COMMANDS:
                break
    if found:
        place, word = next(iter(found.items()))
        told = told[:MOST_COMMANDS]
        return Wrapping(f"is told to run another program ({word[:40]})", place + 1, guessed=told, opaque=True)
    if _opens_editor(argv[at], argv[at + 1 :]):
        return Wrapping("opens an editor, which lets whoever uses it run other programs", at + 1, opaque=True)
    return None


def _opens_editor(what: str, words: Argv) -> bool:
    """Tell whether a subcommand of git asks for a text in an editor, as far as its options tell."""
    if what not in _GIT_MESSAGE:
        return False
    letters, long = "", list[str]()
    for word in words[: words.index("--")] if "--" in words else words:
        if word.startswith("--"):
            long.append(word.partition("=")[0])
        elif word.startswith("-"):
            # Up to the first that takes the rest of the word as its value.
            found = re.match(rf"[^{_GIT_VALUED[what]}]*.?", word[1:])
            letters += found[0] if found else ""
    if "c" in letters or ("e" in letters and what != "notes"):
        return True
    if what == "notes":
        verb = next((word for word in words if not word.startswith("-")), "list")
        if verb not in ("add", "append", "edit"):
            return False
    elif what == "tag" and not any(letter in "asu" for letter in letters) and "--annotate" not in long:
        return False
    given = any(letter in "mFC" for letter in letters)
    return not given and not any(each.startswith(name) for name in long if len(name) > 3 for each in _GIT_MESSAGE[what])


def _configured(argv: Argv) -> tuple[Argv, ...]:
    """Give the commands that settings on the line of git name: of each -c, and what the last of them may call."""
    settings = [argv[place + 1] for place, word in enumerate(argv[:-1]) if word == "-c" and place < MOST_COMMANDS]
    return possible_texts([each for each in settings if "=" in each])
