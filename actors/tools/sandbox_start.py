"""A program of its own, which stands between us and a command: it sets the boundary up, starts it, and waits.

It runs alone, with ``python -I -S``, from code that `sandbox.py` compiled once. The
runtime has threads, so none of this may happen between its fork and its exec; and
it is paid for by every command, so this imports nothing but what is built in (``os``
and ``ctypes`` would take longer than all the rest).

Three processes, when there are namespaces: the *watcher* (this one; outside, so
that it can always end what is inside), the *first* of a new process namespace
(it reaps, and when it ends the kernel ends all others), and the *command*.

Bubblewrap makes the namespaces itself and starts this program inside; here is then
the first and the command, and the first watches too.

- Whoever dies takes all below with it: the runtime holds a pipe whose end the
  watcher sees, and the first dies with the watcher. A command never learns of it.
- Nothing is half set up: a step that fails is written to the status pipe, and
  the command is not started.
- The watcher ends as the command did, by the same signal where it was one. The first
  cannot: no signal of its own ends it, and bubblewrap tells codes only. So it writes
  the end to the status pipe.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]  # `signal` loads what is not needed
import errno
import marshal
import posix
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, NoReturn, TypeAlias

    # What `sandbox.py` wrote down; see `_record` there.
    Plan: TypeAlias = dict[str, Any]

# What a command of root keeps: to work with files of others, and to become others. No devices, modules or mounts.
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 10)
LAST_CAPABILITY = 63

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 38, 47
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
CAPSET_VERSION = 0x20080522
KIND, DIRECTORY, LINK = 0o170000, 0o040000, 0o120000
ROUND_MILLISECONDS = 25
NOT_SET_UP, NOT_RUN, NOT_FOUND = 125, 126, 127


class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # as `ctypes.c_long` is made
    """A whole number, as wide as an address."""

    _type_ = "l"


class Int(_ctypes._SimpleCData):  # type: ignore[type-arg]
    """A whole number as functions of C return it. Read as a wider one, a failure is no failure."""

    _type_ = "i"


class Text(_ctypes._SimpleCData):  # type: ignore[type-arg]
    """The address of a text."""

    _type_ = "z"


class Function(_ctypes.CFuncPtr):
    """A function of the C library that leaves its error where it can be read."""

    _flags_ = 1 | 8
    _restype_ = Int


class Kernel:
    """The calls of the kernel that Python does not offer. Every failure is an OSError that names the call."""

    def __init__(self) -> None:
        self._library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is all that is loaded
        self._known: dict[str, Any] = {}

    def call(self, name: str, *arguments: int | bytes | None, shown: str = "") -> int:
        """Call a function; texts are passed by their address, and None as no address."""
        function = self._known.get(name)
        if function is None:
            function = self._known[name] = Function(_ctypes.dlsym(self._library, name))
        # A plain int would be passed as 32 bits.
        done: int = function(*(Long(each) if isinstance(each, int) else each for each in arguments))
        if done < 0:
            number = _ctypes.get_errno()
            raise OSError(number, f"{shown or name}: {posix.strerror(number)}")
        return done

    def syscall(self, name: str, number: int, *arguments: int | bytes | None) -> int:
        """Call the kernel by number."""
        return self.call("syscall", number, *arguments, shown=name)

    def mount(self, source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
        """Mount something."""
        self.call("mount", source, target, kind, flags, options, shown=f"mount on {target.decode('utf-8', 'replace')}")

    def change_mount(self, path: bytes, add: int, remove: int) -> None:
        """Change a mount, and all below it."""
        attributes = u64(add, remove, 0, 0)
        self.syscall("mount_setattr", SYS_MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE, attributes, len(attributes))


def u64(*numbers: int) -> bytes:
    """Write numbers as the kernel reads them."""
    return b"".join(number.to_bytes(8, sys.byteorder) for number in numbers)


def u32(*numbers: int) -> bytes:
    """Write shorter numbers as the kernel reads them."""
    return b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)


# ── the steps ───────────────────────────────────────────────────────────────


def new_namespaces(kernel: Kernel, plan: Plan) -> None:
    """Leave the namespaces of this process; the next child is the first in the new one of processes."""
    # Mounts stay: what is mounted for the command is not for us, who look its processes up.
    flags = CLONE_NEWIPC | CLONE_NEWPID | (CLONE_NEWNET if plan["no_net"] else 0)
    if not plan["new_user"]:
        kernel.call("unshare", flags)
        return
    user, group = posix.getuid(), posix.getgid()
    kernel.call("unshare", CLONE_NEWUSER | flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def set_mounts(kernel: Kernel, plan: Plan) -> None:
    """Make all read-only but what may be written, and cover what is hidden."""
    kernel.call("unshare", CLONE_NEWNS)
    kernel.mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    for path in plan["writable"]:
        # A mount of its own, so that it can stay writable.
        kernel.mount(path, path, None, MS_BIND | MS_REC)
    kernel.change_mount(b"/", MS_RDONLY, 0)
    for path in plan["writable"]:
        kernel.change_mount(path, 0, MS_RDONLY)
    for path in plan["held"]:
        # A place where something is mounted cannot be moved.
        kernel.mount(path, path, None, MS_BIND | MS_REC)
    for path in plan["protected"]:
        kernel.mount(path, path, None, MS_BIND | MS_REC)
        kernel.change_mount(path, MS_RDONLY, 0)
    for path in plan["hidden"]:
        if posix.stat(path).st_mode & KIND == DIRECTORY:
            kernel.mount(b"none", path, b"tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, b"size=4k,mode=0")
        else:
            kernel.mount(b"/dev/null", path, None, MS_BIND)
            # No devices on it: opening it fails, where it would read as an empty file.
            kernel.change_mount(path, MS_RDONLY | MS_NODEV, 0)
    # Of the new namespace, or its processes would see all others.
    kernel.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if plan["shared_memory"]:
        kernel.mount(b"none", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, plan["shared_memory"])


def loopback_up(kernel: Kernel) -> None:
    """Let the processes inside reach each other; nobody else is on this loopback."""
    handle = kernel.call("socket", 2, 2 | posix.O_CLOEXEC, 0)
    # Set the flags of an interface: up and running.
    kernel.call("ioctl", handle, 0x8914, b"lo".ljust(16, b"\0") + (0x41).to_bytes(2, sys.byteorder) + bytes(22))
    posix.close(handle)


def restrict_files(kernel: Kernel, plan: Plan) -> None:
    """Let files be used as the rules say, and no others; what a command starts is bound likewise."""
    attributes = u64(*plan["handled"])
    ruleset = kernel.syscall("landlock_create_ruleset", SYS_LANDLOCK_CREATE, attributes, len(attributes), 0)
    for path, access, of_file in plan["rules"]:
        try:
            handle = posix.open(path, posix.O_PATH | posix.O_CLOEXEC | posix.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                continue
            raise
        kind = posix.fstat(handle).st_mode & KIND
        # A link is no file here: where it leads is judged by itself.
        allowed = 0 if kind == LINK else access if kind == DIRECTORY else access & of_file
        if allowed:
            rule = u64(allowed) + u32(handle)
            kernel.syscall("landlock_add_rule", SYS_LANDLOCK_ADD, ruleset, 1, rule, 0)
        posix.close(handle)
    kernel.syscall("landlock_restrict_self", SYS_LANDLOCK_RESTRICT, ruleset, 0)
    posix.close(ruleset)


def drop_capabilities(kernel: Kernel) -> None:
    """Give up for good what only an administrator needs; a root inside is then no root of the machine."""
    for number in range(LAST_CAPABILITY + 1):
        if number not in KEPT_CAPABILITIES:
            try:
                kernel.call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    # There are no more.
                    break
                if error.errno != errno.EPERM:
                    raise
    kernel.call("prctl", PR_CAP_AMBIENT, 4, 0, 0, 0)
    kept = sum(1 << number for number in KEPT_CAPABILITIES) if posix.geteuid() == 0 else 0
    # Root of a container may have none of them.
    kept &= held_capabilities()
    # Effective, permitted, inheritable; and the same for the numbers from 32 on.
    kernel.call("capset", u32(CAPSET_VERSION, 0), u32(kept, kept, 0, 0, 0, 0))


def held_capabilities() -> int:
    """Give the rights that this process may use, as bits."""
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"CapPrm:"):
                return int(line.split()[1], 16)
    return 0


def filter_calls(kernel: Kernel, program: bytes) -> None:
    """Refuse the system calls that the filter names; what a command starts is bound likewise."""
    # A record of the number of steps, and the address where they stand: what a Text holds is that address.
    address = bytes(Text(program))
    kernel.call("prctl", PR_SET_SECCOMP, 2, u64(len(program) // 8) + address, 0, 0)


def set_limits(limits: tuple[tuple[str, int, int], ...]) -> None:
    """Set limits of this process; none is raised."""
    import resource

    for name, soft, hard in limits:
        kind = getattr(resource, name)
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


# ── what is said ────────────────────────────────────────────────────────────


def say(status: int, *words: str) -> None:
    """Write one line to whoever wants the command."""
    posix.write(status, "\0".join(words).encode("utf-8", "replace").replace(b"\n", b" ")[:1000] + b"\n")


def fail(status: int, stage: str, error: Exception, text: str = "") -> NoReturn:
    """Say why the command is not started, and end."""
    number = getattr(error, "errno", None) or 0
    text += getattr(error, "strerror", None) or str(error)
    say(status, stage, str(number), text)
    # Whoever does not read the status sees it there, and by the code, as of a shell.
    posix.write(2, f"[not started: {text}]\n".encode("utf-8", "replace"))
    posix._exit(NOT_SET_UP if stage == "setup" else NOT_FOUND if number == errno.ENOENT else NOT_RUN)


# ── the processes ───────────────────────────────────────────────────────────


def become(plan: Plan, status: int) -> NoReturn:
    """Be the command. Returns only by ending."""
    if plan["limits"]:
        try:
            set_limits(plan["limits"])
        except (OSError, ValueError, AttributeError) as error:
            # This system may have no such limit.
            fail(status, "setup", error, "a limit cannot be set: ")
    # Python ignores these, and what is ignored stays so in what it becomes.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    if not plan["argv"]:
        # Somebody only wants to know whether this could be set up.
        posix._exit(0)
    problem: Exception = OSError(errno.ENOENT, posix.strerror(errno.ENOENT))
    # Python adds to its environment by itself.
    env = {name: value for name, value in posix.environ.items() if name not in plan["not_ours"]}
    for program in plan["programs"]:
        try:
            posix.execve(program, plan["argv"], env)
        except OSError as error:
            # One that is there and cannot be run says more than one that is missing elsewhere, or in a closed place.
            if len(plan["programs"]) == 1 or (error.errno not in (errno.ENOENT, errno.ENOTDIR) and is_there(program)):
                problem = error
        except ValueError as error:
            problem = error
    fail(status, "exec", problem)


def is_there(path: bytes) -> bool:
    """Tell whether something lies at a path, as far as we may look."""
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def first(plan: Plan, status: int, ended: int) -> NoReturn:
    """Be the first process of the namespace: start the command, reap, and end with it."""
    confine(plan, status)
    stand_alone()
    child = posix.fork()
    if not child:
        become(plan, status)
    posix.close(status)
    while True:
        gone, code = posix.wait()
        if gone == child:
            posix.write(ended, u32(code))
            posix._exit(0)


def stand_alone() -> None:
    """Let no signal end the first process but that of whoever started it: what is ignored or has no handler never does.

    What was ignored before stays so for the command.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def inside(plan: Plan, lifeline: int, status: int) -> NoReturn:
    """Be the first process of a namespace that bubblewrap made: start the command, reap, watch, and end with it."""
    say(status, "begun")
    try:
        kernel = Kernel()
        # Bubblewrap is not told to: it would end with the thread that started it.
        kernel.call("prctl", PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
        # The command sees this process, and must not reach the pipe that tells how the command ended.
        kernel.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
        stand_alone()
        drop_capabilities(kernel)
        if plan["filter"]:
            filter_calls(kernel, plan["filter"])
        # Somebody below has ended: a byte comes out of the pipe.
        heard, rung = posix.pipe()
        posix.set_blocking(rung, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
        child = posix.fork()
    except OSError as error:
        fail(status, "setup", error)
    if not child:
        become(plan, status)
    code = watch_inside(child, plan, heard, lifeline, status)
    say(status, "ended", str(code))
    posix._exit(posix.WEXITSTATUS(code) if posix.WIFEXITED(code) else 128 + posix.WTERMSIG(code))


def watch_inside(child: int, plan: Plan, heard: int, lifeline: int, status: int) -> int:
    """Reap until the command is reaped, and give how it ended; whoever is left ends with this process."""
    poll = select.poll()
    poll.register(heard, select.POLLIN)
    poll.register(lifeline, 0)
    most = plan["memory"]
    while True:
        seen = dict(poll.poll(ROUND_MILLISECONDS if most else None))
        if lifeline in seen:
            posix._exit(NOT_SET_UP)
        if heard in seen:
            posix.read(heard, 4096)
        # Never none to wait for: the command is ours until it is reaped.
        while (gone := posix.waitpid(-1, posix.WNOHANG))[0]:
            if gone[0] == child:
                return gone[1]
        if most and memory_of(posix.getpid()) > most:
            say(status, "hit", "0", "memory_bytes")
            return int(_signal.SIGKILL)


def confine(plan: Plan, status: int) -> None:
    """Put this process, and all that it will start, behind the boundary."""
    try:
        kernel = Kernel()
        if plan["namespaces"]:
            set_mounts(kernel, plan)
            if plan["no_net"]:
                loopback_up(kernel)
        # What lies over the directory we were in is only seen from a new walk to it.
        posix.chdir(plan["cwd"])
        kernel.call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        drop_capabilities(kernel)
        restrict_files(kernel, plan)
        if plan["filter"]:
            filter_calls(kernel, plan["filter"])
        if plan["namespaces"]:
            kernel.call("prctl", PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
            # The command sees this process, and must not reach the pipe that tells how the command ended.
            kernel.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    except OSError as error:
        fail(status, "setup", error)


def watch(child: int, plan: Plan, lifeline: int, status: int) -> None:
    """Wait for the command, or for the end of whoever wants it."""
    poll = select.poll()
    handle = posix.pidfd_open(child)
    poll.register(handle, select.POLLIN)
    poll.register(lifeline, 0)
    most = plan["memory"]
    while True:
        seen = dict(poll.poll(ROUND_MILLISECONDS if most else None))
        if handle in seen:
            return
        if lifeline in seen:
            end(child)
            return
        if most and memory_of(child) > most:
            say(status, "hit", "0", "memory_bytes")
            end(child)
            return


def below(number: int) -> list[int]:
    """Find who descends from a process; itself first."""
    found = [number]
    for each in found:
        try:
            for task in posix.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += map(int, file.read().split())
        except OSError:
            continue
    return found


def memory_of(number: int) -> int:
    """Add up what all of a command hold for themselves; what they share with files is not counted."""
    total = 0
    for each in below(number):
        try:
            with open(f"/proc/{each}/statm") as file:
                fields = file.read().split()
            total += (int(fields[1]) - int(fields[2])) * PAGE
        except (OSError, ValueError, IndexError):
            continue
    return total


def end(child: int) -> None:
    """Kill a process and all that descend from it."""
    for number in reversed(below(child)):
        try:
            posix.kill(number, _signal.SIGKILL)
        except OSError:
            continue


def main(file: BinaryIO) -> None:
    """Start the command that is written in ``file``, and end as it does."""
    status, lifeline = map(int, sys.argv[2:4])
    for handle in (status, lifeline):
        posix.set_inheritable(handle, False)
    plan: Plan = marshal.load(file)
    file.close()
    if plan["inside"]:
        inside(plan, lifeline, status)
    try:
        if plan["namespaces"]:
            new_namespaces(Kernel(), plan)
        told, ended = posix.pipe()
        child = posix.fork()
    except OSError as error:
        fail(status, "setup", error)
    if not child:
        posix.close(lifeline)
        if plan["namespaces"]:
            posix.close(told)
            first(plan, status, ended)
        if plan["restricts"]:
            confine(plan, status)
        become(plan, status)
    posix.close(ended)
    watch(child, plan, lifeline, status)
    code = posix.waitpid(child, 0)[1]
    if plan["namespaces"] and code == 0:
        code = int.from_bytes(posix.read(told, 4), sys.byteorder)
    finish(code)


def finish(code: int) -> NoReturn:
    """End as the command did."""
    if posix.WIFEXITED(code):
        posix._exit(posix.WEXITSTATUS(code))
    import resource

    number = posix.WTERMSIG(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
    posix.kill(posix.getpid(), number)
    posix._exit(128 + number)


PAGE = posix.sysconf("SC_PAGE_SIZE")

if __name__ == "__main__":
    main(globals()["plan_file"])
