"""The model server as a process of its own, so that its CPU time is not on our bill."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from actors.testing.model_script import Answer, Fault

ROOT: Final = Path(__file__).resolve().parent.parent
END_SECONDS: Final = 10


@contextmanager
def model_server(*options: str) -> Iterator[str]:
    """Run the server for the block and give its address; it has ended when the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "actors.testing.model_server", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        # It ends with its standard input.
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def hang(_body: dict[str, Any], _number: int) -> Answer:
    """Take every request and answer none."""
    return Answer(fault=Fault.hang)
