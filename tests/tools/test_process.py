"""A command ends with everything it started, whatever that did to hide; its output is kept, bounded."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.tools.leftovers import MARK
from actors.tools.process import Status, environment, run

# What a command may leave behind. {m} is a length of sleep that is also the mark to look for.
HIDING = {
    "in the background": "sleep {m} & sleep 0.05",
    "in a session of its own": "setsid sleep {m} & sleep 0.05",
    "without a parent, deaf to the hang-up": "(nohup sleep {m} >/dev/null 2>&1 &); sleep 0.05",
    "in a session of its own, without a parent, saying nothing": "(setsid sleep {m} >/dev/null 2>&1 &); sleep 0.05",
    "holding the output": "sleep {m} & exit 0",
    "without our environment": "env -i sleep {m} >/dev/null & sleep 0.05",
    "without our environment, in a session of its own, holding the output": (
        "(env -i setsid sleep {m} &); sleep 0.05"
    ),
    "deaf to a polite request": "(trap '' TERM HUP INT; sleep {m}) & sleep 0.05",
}
needs_setsid = pytest.mark.skipif(shutil.which("setsid") is None, reason="needs the program setsid")


def shell(line: str) -> list[str]:
    return ["sh", "-c", line]


@needs_setsid
@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
async def test_nothing_outlives_a_command_that_ends(hiding, marker, root):
    control = subprocess.Popen(shell(hiding.format(m=marker.text)), start_new_session=True, stdout=subprocess.PIPE)
    await trio.sleep(0.1)
    assert marker.living(), "it does hide when nobody looks for it"
    done = await run(shell(f"echo said; {hiding.format(m=marker.text)}; exit 7"), cwd=str(root), timeout=5)
    mine = [line for line in marker.living() if f"exit 7" in line]
    kill_marked(marker)
    control.wait()
    control.stdout.close()
    assert mine == []
    assert (done.output, done.leaked) == ("said\n", ())
    assert done.status is Status.exited


def kill_marked(marker) -> None:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if marker.text.encode() in Path("/proc", name, "cmdline").read_bytes():
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
