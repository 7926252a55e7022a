"""A command of this program as it is typed into another terminal, which may be in another folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

NAME = "actors"


def command(*arguments: str) -> str:
    """Write the command that calls this program again: by its name alone where the name leads to it."""
    return shlex.join([_program(sys.argv[0]), *arguments])


def _program(called: str) -> str:
    # Whoever calls it in another way (from Python, say) has installed it all the same.
    if os.path.basename(called) != NAME or not os.path.isfile(called):
        return NAME
    found = shutil.which(NAME)
    return NAME if found is not None and os.path.samefile(found, called) else os.path.abspath(called)
