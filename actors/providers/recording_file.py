"""What the recorder and the replay both ask of a recording's file, and of themselves."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "actor-trees"
# More than an answer can be; a file without line ends is none of ours.
MOST_LINE: Final = 64 * 1024 * 1024
STEP: Final = 1 << 16


def own_version() -> str:
    """Give the version of this package; empty when it runs from sources that were never installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def one_series(one: str, other: str) -> bool:
    """Tell whether two versions are of one minor series, in which prompts stay as they are; unknown ones may be."""
    return "" in (one, other) or one.split(".")[:2] == other.split(".")[:2]


def first_line(path: Path) -> bytes:
    """Read the first line of a file."""
    with path.open("rb") as file:
        return file.readline(MOST_LINE)


def whole_end(file: int, size: int) -> int:
    """Give the place behind the last line that has its end; 0 when none has."""
    end = size
    while end > 0:
        begin = max(end - STEP, 0)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
