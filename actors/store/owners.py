"""Who we are, and whether somebody else still lives, as far as this machine can tell.

A process id is used again, so it is kept with the time at which the process
started. Neither means anything on another machine, after a restart of this
one, or in another container: the host names all three. What cannot be seen
counts as alive; then only the lease's time decides.

These look at files under ``/proc`` (microseconds). Where there are none, they
run ``ps`` (milliseconds). On Windows nothing is seen.
"""

import os
import secrets
import socket
import subprocess
from pathlib import Path
from typing import Final

from actors.store.leases import Owner, Sight, gone, same_process

_PROC: Final = Path("/proc")
# Zombie and dead: the process has ended, and only its number is still there.
_ENDED: Final = "ZXx"
# The 22nd field of a stat line, counted from behind the name.
_STATE, _STARTED = 0, 19

# The stores that are open in this process. A process that lives may have closed the store that held the lease.
_open: set[str] = set()


def enter() -> Owner:
    """Make a new owner for a store that is being opened here. Not kept over a fork: it asks the system each time."""
    pid = os.getpid()
    sight = look_at(pid)
    owner = Owner(f"{pid}-{secrets.token_hex(8)}", this_host(), pid, sight.started if sight else None)
    _open.add(owner.name)
    return owner


def leave(owner: Owner) -> None:
    """Note that the store of ``owner`` is closed: it writes nothing more."""
    _open.discard(owner.name)


def is_dead(owner: Owner, us: Owner) -> bool:
    """Tell whether ``owner`` is known to write nothing more: its process ended, or its store was closed here."""
    if same_process(owner, us):
        return owner.name not in _open
    return owner.host == us.host and gone(owner, us, look_at(owner.pid))


def this_host() -> str:
    """Name this machine, this boot of it, and the namespace of its process ids."""
    boot = _read(_PROC / "sys/kernel/random/boot_id")
    try:
        namespace = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        namespace = ""
    return "/".join((socket.gethostname(), boot, namespace.removeprefix("pid:").strip("[]")))


def look_at(pid: int) -> Sight | None:
    """See whether a process of this machine lives; None when that cannot be seen."""
    if os.name != "posix" or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Sight(alive=False)
    except OSError:
        pass  # It is somebody else's, and lives.
    # Only one of the two, or their different words for one time would look like two processes.
    seen = sight_of_stat(_read(_PROC / str(pid) / "stat")) if (_PROC / "self/stat").exists() else _ask_ps(pid)
    return seen or Sight(alive=True)


def sight_of_stat(line: str) -> Sight | None:
    """Read a line of ``/proc/<pid>/stat``; None when it is none."""
    # The name stands in brackets and may hold anything, brackets too.
    fields = line.rpartition(")")[2].split()
    if len(fields) <= _STARTED:
        return None
    return Sight(fields[_STATE] not in _ENDED, fields[_STARTED])


def _ask_ps(pid: int) -> Sight | None:
    # In one language and one zone: the words are compared with those that another process got.
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return sight_of_ps(done.stdout)


def sight_of_ps(line: str) -> Sight | None:
    """Read what ``ps`` says of state and start; None when it says nothing."""
    state, _, started = line.strip().partition(" ")
    return Sight(state[0] not in _ENDED, " ".join(started.split())) if started else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
