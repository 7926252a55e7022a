"""What must stand around a command, and which backend can hold it. Pure: facts in, a plan out.

What would be got wrong:

- A boundary that was asked for by name holds whole or nothing is started. One
  that nobody named is held as far as can be, and the plan says how far.
- Landlock grants and cannot take back: who may read a directory may read all of
  it. So "all but these" is written as every neighbour on the way to them, and
  inside a writable directory it cannot be written at all; that takes a mount.
- A backend that cannot keep the network away is not chosen where the policy
  does. Landlock knows TCP only, so it never counts for that by itself: a network
  namespace does, or a filter that lets no socket be made but a local one.
- Read-only by landlock does not bind ``chmod`` and its like; read-only mounts do.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import attrs

from actors.agents.contract import ExecCaps, ExecSandbox
from actors.tools.sandbox_grants import Grants, is_below

# Below this, a file outside could be emptied.
LEAST_LANDLOCK: Final = 3
# Who may speak to one of these may do anything; they are files, and no rule for files binds a connection to them.
SOCKET_PLACES: Final = (
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/dbus",
    "/run/user",
    "/run/systemd/private",
    "/run/snapd.socket",
    "/run/libvirt",
)
_ALONE: Final = "landlock alone cannot hide a file where commands may write"
_OPEN_IT: Final = "install Python where this user may run it, or let it be read and run there"
_REMEDY: Final = 'install bubblewrap, or write exec_sandbox = "full_access" to run commands without a boundary'
SHARED_MEMORY_BYTES: Final = 64 * 1024 * 1024
MEMORY: Final = "the size of /dev and /dev/shm (bubblewrap is older than 0.7)"
KEYRINGS: Final = "keys that the kernel keeps for the user"
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# What a command of root keeps under bubblewrap; the launcher keeps the same by number.
KEPT_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")


class Backend(StrEnum):
    """What holds a boundary; stored values, the best first."""

    bubblewrap = "bubblewrap"
    landlock = "landlock"
    none = "none"


class Net(StrEnum):
    """What a command may do on the network; stored values."""

    open = "open"
    denied = "denied"
    # The policy denies it, and nothing here could.
    not_held = "not_held"


@attrs.frozen
class Capabilities:
    """What this machine can do, each found out by doing it once.

    ``landlock`` is the version, 0 without. ``users`` tells that namespaces are
    made in one of users: always, unless we are root and have the right to make others.
    ``sizes``: bubblewrap can bound what is held in memory (from 0.7). ``closed`` is the Python that every
    boundary begins with, where it may not be run as this user.
    """

    bubblewrap: str | None = None
    landlock: int = 0
    namespaces: bool = False
    seccomp: bool = False
    root: bool = False
    users: bool = False
    sizes: bool = True
    closed: str | None = None


@attrs.frozen
class Plan:
    """What will stand around a command. With a ``problem`` nothing may be started."""

    mode: ExecSandbox
    backend: Backend
    net: Net
    grants: Grants
    namespaces: bool = False
    not_held: tuple[str, ...] = ()
    problem: str | None = None


# ── which backend ───────────────────────────────────────────────────────────


def plan_sandbox(
    mode: ExecSandbox | None, grants: Grants, can: Capabilities, *, unfit: Sequence[str] = ()
) -> Plan:
    """Choose the best backend that holds what is asked for; ``mode`` None was not asked for by name.

    ``unfit`` says why what this machine has holds nothing for these grants.
    """
    asked = ExecSandbox.workspace_write if mode is None else mode
    if asked is ExecSandbox.full_access:
        return Plan(asked, Backend.none, Net.open if grants.net else Net.not_held, grants)
    if asked is ExecSandbox.read_only:
        grants = attrs.evolve(grants, writable=(), unbound=(), held=())
    net = Net.open if grants.net else Net.denied
    if can.bubblewrap is not None:
        sized = () if can.sizes else (MEMORY,)
        return Plan(asked, Backend.bubblewrap, net, grants, True, (*_not_held_in_namespaces(grants, can), *sized))
    if can.landlock >= LEAST_LANDLOCK and (grants.net or can.namespaces or can.seccomp):
        plan = Plan(asked, Backend.landlock, net, grants, can.namespaces, _not_held(grants, can))
        if can.namespaces or mode is None or not (grants.closed and grants.writable):
            return plan
        # It grants a directory whole or not at all, and here only some of it may be read.
        problem = f"{asked} cannot be held here: the policy lets nothing be read but what a rule opens, and {_ALONE}"
        return attrs.evolve(plan, problem=f"{problem}; {_REMEDY}")
    missing = "; ".join((*unfit, _missing(can)))
    net = Net.open if grants.net else Net.not_held
    everything = (f"{asked}: {missing}",)
    if mode is None:
        return Plan(asked, Backend.none, net, grants, not_held=everything)
    remedy = _REMEDY if can.closed is None else _OPEN_IT
    problem = f"{asked} cannot be held here: {missing}; {remedy}"
    return Plan(asked, Backend.none, net, grants, not_held=everything, problem=problem)


def _missing(can: Capabilities) -> str:
    if can.closed is not None:
        return f"{can.closed}, which starts what stands around a command, may not be run by this user"
    if can.landlock >= LEAST_LANDLOCK:
        return "the policy denies the network, and landlock alone cannot"
    if can.landlock:
        return f"bubblewrap does not work, and landlock has version {can.landlock}, and {LEAST_LANDLOCK} is needed"
    return "neither bubblewrap nor landlock works"


def _not_held(grants: Grants, can: Capabilities) -> tuple[str, ...]:
    if can.namespaces:
        return _not_held_in_namespaces(grants, can)
    inside = [path for path in grants.hidden if any(is_below(path, root) for root in grants.writable)]
    said = [*(f"read of {path}" for path in inside), *(f"write of {path}" for path in grants.protected)]
    more = [f"and {len(said) - 20} more"] if len(said) > 20 else []
    always = ("chmod and its like outside the workspace", "sockets of services under /run")
    return (*grants.unbound, *said[:20], *more, *always, *([] if can.seccomp else [KEYRINGS]))


def _not_held_in_namespaces(grants: Grants, can: Capabilities) -> tuple[str, ...]:
    if can.seccomp:
        return grants.unbound
    return (*grants.unbound, *([] if grants.net else ["sockets to the host of a virtual machine"]), KEYRINGS)


# ── bubblewrap ──────────────────────────────────────────────────────────────


def bubblewrap_options(
    plan: Plan, can: Capabilities, *, cwd: str, temporary: str, is_directory: Callable[[str], bool]
) -> list[str]:
    """Write the options that bubblewrap is given. Places that do not exist are passed over.

    Later mounts lie over earlier ones: first all, read-only; then what may be
    written, and held; then what may not after all; then what may not be seen. What it starts is
    the first process of its namespace. It is not told to die with its parent: it
    would take the thread that started it for that.
    """
    line = ["--as-pid-1", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    # Inside of one, root has no rights over the files of others.
    line += ["--unshare-user-try"] if can.users else []
    line += ["--unshare-net"] if plan.net is Net.denied else []
    line += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # Both are memory, which nobody else may run out of.
    shared = ["--perms", "1777", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    line += shared if can.sizes else []
    for path in (*plan.grants.writable, temporary):
        line += ["--bind-try", path, path]
    for path in plan.grants.held:
        # A place where something is mounted cannot be moved.
        line += ["--bind-try", path, path]
    for path in plan.grants.protected:
        line += ["--ro-bind-try", path, path]
    for path in plan.grants.hidden:
        line += ["--tmpfs", path, "--remount-ro", path] if is_directory(path) else ["--ro-bind-try", "/dev/null", path]
    line += ["--cap-drop", "ALL"]
    if can.root:
        # The last one is for who drops the others from what can ever be had again, and then itself.
        line += [word for name in (*KEPT_CAPABILITIES, "SETPCAP") for word in ("--cap-add", f"CAP_{name}")]
    return [*line, "--chdir", cwd]


# ── landlock ────────────────────────────────────────────────────────────────

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
READS: Final = EXECUTE | READ_FILE | READ_DIR
# No devices: whoever makes the device of a disk reads the disk.
WRITES: Final = (
    READS
    | WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE
)
OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
SCOPED: Final = 3


@attrs.frozen
class Rule:
    """What may be done below a path."""

    path: str
    access: int


def handled(version: int) -> tuple[int, ...]:
    """Give what landlock of a version is to deny where no rule grants it: files, TCP (never), signals and sockets."""
    bits = 16 if version >= 5 else 15 if version >= 3 else 14 if version == 2 else 13
    # The kernel reads as many numbers as it knows.
    files = (1 << bits) - 1
    return (files, 0, SCOPED) if version >= 6 else (files, 0) if version >= 4 else (files,)


def landlock_rules(
    plan: Plan, temporary: str, version: int, names_in: Callable[[str], Iterable[str]]
) -> tuple[Rule, ...]:
    """Write what may be read, and what written, as grants; ``names_in`` lists a directory, nothing when it cannot."""
    known = handled(version)[0]
    closed = () if plan.namespaces else plan.grants.hidden
    shut = ("/dev", *closed, *(() if plan.namespaces else ("/run/user", "/run/docker.sock")))
    # Names may be listed everywhere: they are no contents, and programs look where they are.
    rules = [Rule("/", READ_DIR), *(Rule(path, READS) for path in _open_below("/", frozenset(shut), names_in))]
    rules += [Rule(path, READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) for path in DEVICES]
    rules += [Rule("/dev/shm", WRITES)] if plan.namespaces else []
    rules += [Rule(path, WRITES) for path in (*plan.grants.writable, temporary)]
    return tuple(Rule(rule.path, rule.access & known) for rule in rules)


def _open_below(place: str, shut: frozenset[str], names_in: Callable[[str], Iterable[str]]) -> list[str]:
    found: list[str] = []
    for name in names_in(place):
        path = f"{place.rstrip('/')}/{name}"
        if path in shut:
            continue
        if any(each.startswith(path + "/") for each in shut):
            found += _open_below(path, shut, names_in)
        else:
            found.append(path)
    return found


# ── limits ──────────────────────────────────────────────────────────────────


def limits_of(caps: ExecCaps) -> tuple[tuple[str, int, int], ...]:
    """Give the limits of each process: name, soft, hard. CPU time has a signal before its hard end."""
    limits = []
    if caps.cpu_seconds is not None:
        limits.append(("RLIMIT_CPU", caps.cpu_seconds, caps.cpu_seconds + 1))
    if caps.memory_bytes is not None:
        limits.append(("RLIMIT_DATA", caps.memory_bytes, caps.memory_bytes))
    if caps.open_files is not None:
        limits.append(("RLIMIT_NOFILE", caps.open_files, caps.open_files))
    return tuple(limits)
