"""What each platform takes for one file, and which names are none of ours on it. Pure; tested for all of them anywhere.

What would be got wrong:

- One file answers to many names. Windows drops dots and blanks at the end of a
  name, knows short names beside long ones (``PROGRA~1``), opens streams behind a
  colon (``.env::$DATA``) and devices in every directory (``NUL.txt``). macOS does
  not tell ``é`` in one character from ``é`` in two, nor capitals from small
  letters. A rule that denies one spelling must hold for all of them.
- So there are two means, and both are needed. Spellings that honest work uses are
  *folded* into one, in rules and in targets. Spellings that only hide what is
  meant are *refused*: they are never needed, and no folding knows them all.
- On unix a name is its bytes. A backslash and a colon are letters there, and two
  names that look alike are two files.
"""

import re
import sys
import unicodedata
from enum import StrEnum
from typing import Final


class Platform(StrEnum):
    """Which rules names follow."""

    unix = "unix"
    macos = "macos"
    windows = "windows"


def platform_of(name: str) -> Platform:
    """Give the platform for what `sys.platform` says."""
    return {"win32": Platform.windows, "cygwin": Platform.windows, "darwin": Platform.macos}.get(name, Platform.unix)


# Constant for a process, so a decision stays a function of its arguments.
HERE: Final = platform_of(sys.platform)

_DEVICE: Final = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?:[. :].*)?", re.IGNORECASE
)
_WILD: Final = re.compile(r"[*?]")
_SHORT: Final = re.compile(r"[^.~]{1,6}~[0-9]{1,6}(?:\.[^.]{0,3})?")
_NEVER: Final = frozenset('<>"|?*')
# Left out by file systems of macOS when they compare names, and invisible.
_IGNORED: Final = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_DRIVE: Final = re.compile(r"[A-Za-z]:")


def fold_case(text: str, platform: Platform = HERE) -> str:
    """Give the spelling that all names of one file share as far as letters go; for rules and targets alike."""
    if platform is Platform.unix:
        return text
    # Twice: small letters of composed characters may be composed in turn.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())


def fold_glob(glob: str, platform: Platform = HERE) -> str:
    """Give a path glob in the spelling that `fold_target` gives to targets.

    A part with a wildcard keeps its end: without it the rule would mean more files.
    """
    folded = fold_case(glob, platform)
    if platform is not Platform.windows:
        return folded
    return "/".join(part if _WILD.search(part) else _bare(part) for part in _plain(folded).split("/"))


def fold_target(path: str, platform: Platform = HERE) -> str:
    """Give the one spelling of a path by which rules know it."""
    folded = fold_case(path, platform)
    if platform is not Platform.windows:
        return folded
    return "/".join(_bare(part) for part in _plain(folded).split("/"))


def _plain(path: str) -> str:
    """Fold the separators and verbatim prefixes of Windows."""
    plain = path.replace("\\", "/")
    if plain.startswith(("//?/unc/", "//./unc/")):
        return "//" + plain[8:]
    return plain.removeprefix("//?/").removeprefix("//./")


def _bare(name: str) -> str:
    """Leave out what Windows leaves out of a name: the stream behind a colon, and dots and blanks at the end."""
    if _DRIVE.fullmatch(name) or name in (".", ".."):
        return name
    return name.partition(":")[0].rstrip(". ") if name.strip(". ") else name


def name_problem(name: str, platform: Platform = HERE) -> str | None:
    """Say why one name of a path is none that a tool may use here, None when it may."""
    if platform is Platform.windows:
        return _windows_problem(name)
    if platform is Platform.macos and _IGNORED.search(name):
        return "holds an invisible character that some file systems leave out"
    return None


def _windows_problem(name: str) -> str | None:
    if _DEVICE.fullmatch(name):
        return "is the name of a device"
    if ":" in name:
        return "holds a colon, which names a drive or a stream"
    if name != name.rstrip(". "):
        return "ends in a dot or a blank, which the system leaves out"
    if _SHORT.fullmatch(name):
        return "is of the form of a short name, which another file may have"
    if any(letter in _NEVER or letter < " " for letter in name):
        return "holds a character that no file name can have"
    return None


def path_problem(path: str, platform: Platform = HERE) -> str | None:
    """Say why a path that was asked for may not be used here, before anything is looked up; None when it may.

    Of a path from the root of a drive only the rest is judged by names: whether it
    lies in the workspace is told by walking it.
    """
    names = [path]
    if platform is Platform.windows:
        plain = path.replace("\\", "/")
        if plain.startswith(("//?/", "//./")):
            return "begins with a verbatim prefix; write the plain path"
        if plain.startswith("//"):
            return "names a share of another machine"
        if _DRIVE.match(plain) and plain[2:3] != "/":
            return "is relative to the current directory of a drive"
        if _DRIVE.match(plain):
            plain = plain[2:]
        names = plain.split("/")
    else:
        names = path.split("/")
    for name in names:
        problem = None if name in ("", ".", "..") else name_problem(name, platform)
        if problem is not None:
            return problem
    return None
