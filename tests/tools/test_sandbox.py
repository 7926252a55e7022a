"""A command cannot do what its boundary denies; each attack works where there is no boundary.

Run once for every backend that this machine has: with namespaces, with rules alone
(landlock and a filter), and with bubblewrap. How a command behind one ends, and what is
said of it, stands in `test_sandbox_ends.py`.
"""

import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Policy
from actors.tools.call_filter import MACHINES
from actors.tools.process import Finished, Status
from actors.tools.sandbox import run_confined
from actors.tools.sandbox_plan import SHARED_MEMORY_BYTES

READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
everywhere = pytest.mark.parametrize("can", ["namespaces", "users", "rules", "bubblewrap"], indirect=True)
covering = pytest.mark.parametrize("can", ["namespaces", "users", "bubblewrap"], indirect=True)
FREE = Confinement(FULL)
# The operator who lets the network in, and denies some files.
OPERATOR = Policy.default().layer("operator")


def under(mode: ExecSandbox | None = WRITE, policy: Policy = OPERATOR, **more) -> Confinement:
    return Confinement(mode, policy, **more)


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def printed(argv: list[str], **options) -> str:
    """Run something as anybody would, and give what it printed."""
    return subprocess.run(argv, capture_output=True, text=True, check=True, **options).stdout


def state(place: Path) -> list[tuple[str, str, int]]:
    return sorted(
        (each.name, each.read_text() if each.is_file() else "", each.lstat().st_mode) for each in place.iterdir()
    )


# ── writing outside ─────────────────────────────────────────────────────────

WRITES = {
    "by its absolute path": "open('{out}/made', 'w').write('x')",
    "by dots": "open('../outside/made', 'w').write('x')",
    "through a link made inside": "os.symlink('{out}', 'link'); open('link/made', 'w').write('x')",
    "through a link to the file": "os.symlink('{out}/victim', 'link'); open('link', 'w').write('x')",
    "through the root of its own process": "open('/proc/self/root{out}/made', 'w').write('x')",
    "through the directory of its own process": "open('/proc/self/cwd/../outside/made', 'w').write('x')",
    "through an opened directory": "d = os.open('..', os.O_RDONLY); open(os.open('outside/made', os.O_CREAT | os.O_WRONLY, dir_fd=d), 'w').write('x')",
    "after going there": "os.chdir('{out}'); open('made', 'w').write('x')",
    "through a hard link": "os.link('{out}/victim', 'mine'); open('mine', 'w').write('x')",
    "by moving a file out": "open('mine', 'w').write('x'); os.rename('mine', '{out}/made')",
    "by linking a file out": "open('mine', 'w').write('x'); os.link('mine', '{out}/made')",
    "by taking a file away": "os.unlink('{out}/victim')",
    "by moving a file in": "os.rename('{out}/victim', 'mine')",
    "by emptying a file": "os.truncate('{out}/victim', 0)",
    "by emptying a file as it opens": "os.open('{out}/victim', os.O_RDONLY | os.O_TRUNC)",
    "by adding to a file": "open('{out}/victim', 'a').write('x')",
    "by making a directory": "os.mkdir('{out}/made')",
    "by making a link": "os.symlink('x', '{out}/made')",
    "by making a pipe": "os.mkfifo('{out}/made')",
    "by a local socket": "import socket; socket.socket(socket.AF_UNIX).bind('{out}/made')",
    "from a child that left the session": "os.fork() or (os.setsid(), os.fork() or open('{out}/made', 'w').write('x')); time.sleep(0.2)",
    "through a directory opened as a handle": "d = os.open('{out}', os.O_PATH); open(f'/proc/self/fd/{{d}}/made', 'w').write('x')",
    "by another program": "subprocess.run(['cp', '/dev/null', '{out}/victim'])",
    "by way of the temporary directory": "os.symlink('{out}', os.environ['TMPDIR'] + '/link'); open(os.environ['TMPDIR'] + '/link/made', 'w').write('x')",
}
# Where nothing is mounted read-only, only opening is bound.
METADATA = {
    "by taking its rights away": "os.chmod('{out}/victim', 0)",
    "by giving it other rights": "os.chmod('{out}/victim', 0o4777)",
}
# What takes rights that only an administrator has.
ADMINISTRATION = {
    "by mounting the world writable again": "subprocess.run('mount -o remount,bind,rw / ; mount -o remount,rw / ; touch {out}/made', shell=True)",
    "by mounting the place elsewhere": "subprocess.run('mkdir -p m && mount --bind {out} m && mount -o remount,bind,rw m ; touch m/made', shell=True)",
    "from a namespace of its own": "subprocess.run('unshare -m sh -c \"mount -o remount,bind,rw / ; touch {out}/made\"', shell=True)",
    "from a namespace of another user": "subprocess.run('unshare -Urm sh -c \"mount -o remount,bind,rw / ; touch {out}/made\"', shell=True)",
    "in the namespace of another process": "subprocess.run('nsenter -t 1 -m touch {out}/made', shell=True)",
    "through the root of another process": "[open(f'/proc/{{n}}/root{out}/made', 'w').write('x') for n in os.listdir('/proc') if n.isdigit() and int(n) != os.getpid() and os.access(f'/proc/{{n}}/root{out}', os.F_OK)]",
    "by another root directory": "os.chroot('{out}'); open('/made', 'w').write('x')",
}
PRELUDE = "import os, sys, time\ntry:\n    import subprocess\nexcept ImportError:\n    pass\n"


async def write_attack(python, attack: str, root: Path, outside: Path, confinement: Confinement, can=None) -> Finished:
    return await python(PRELUDE + attack.format(out=outside), root, confinement, can)


@pytest.mark.parametrize("attack", (WRITES | METADATA).values(), ids=WRITES | METADATA)
async def test_without_a_boundary_the_attack_changes_what_lies_outside(attack, root, outside, monkeypatch, python):
    monkeypatch.setenv("TMPDIR", str(root))
    before = state(outside)
    await write_attack(python, attack, root, outside, FREE)
    assert state(outside) != before


@everywhere
@pytest.mark.parametrize("attack", WRITES.values(), ids=WRITES)
async def test_nothing_is_written_outside_the_workspace(attack, can, root, outside, python):
    before = state(outside)
    done = await write_attack(python, attack, root, outside, under(), can)
    assert state(outside) == before
    assert done.status is Status.exited, done


@covering
@pytest.mark.parametrize("attack", METADATA.values(), ids=METADATA)
async def test_nothing_outside_is_given_other_rights(attack, can, root, outside, python):
    before = state(outside)
    await write_attack(python, attack, root, outside, under(), can)
    assert state(outside) == before


@everywhere
@pytest.mark.parametrize("attack", ADMINISTRATION.values(), ids=ADMINISTRATION)
async def test_who_is_root_is_no_administrator_of_the_machine(attack, can, root, outside, python):
    before = state(outside)
    await write_attack(python, attack, root, outside, under(), can)
    assert state(outside) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of an administrator to show that they work")
async def test_without_a_boundary_an_administrator_may_do_that(root, outside, python):
    before = state(outside)
    for name in ("from a namespace of its own", "by another root directory"):
        await write_attack(python, ADMINISTRATION[name], root, outside, FREE)
    assert state(outside) != before


@everywhere
async def test_what_is_granted_can_be_done(can, root, shell):
    line = "echo a > a && mkdir -p d && mv a d/b && echo t > $TMPDIR/t && cat $TMPDIR/t > /dev/null && ls / && cat d/b"
    done = await shell(line, root, under(), can)
    assert (done.status, done.code) == (Status.exited, 0), done.output
    assert (root / "d" / "b").read_text() == "a\n"
    assert done.output.endswith("a\n")


@everywhere
async def test_reading_only_leaves_the_workspace_as_it_is_and_has_a_place_for_what_is_temporary(can, root, shell):
    (root / "kept").write_text("as it was")
    for line in ("echo x > kept", "rm kept", "echo x > new", "mkdir new", "mv kept other"):
        done = await shell(line, root, under(READ_ONLY), can)
        assert done.code != 0, line
    assert [(each.name, each.read_text()) for each in root.iterdir()] == [("kept", "as it was")]
    done = await shell('cat kept && echo x > "$TMPDIR/t" && cat "$TMPDIR/t"', root, under(READ_ONLY), can)
    assert (done.code, done.output) == (0, "as it wasx\n")


@everywhere
async def test_the_private_directory_is_gone_after_the_command_and_not_the_next_ones(can, root, shell):
    seen = [(await shell('echo x > "$TMPDIR/t"; echo $TMPDIR', root, under(), can)).output.strip() for _ in range(2)]
    assert len(set(seen)) == 2
    assert not any(is_there(place) for place in seen)


@everywhere
async def test_a_granted_place_that_does_not_exist_breaks_nothing_and_one_that_does_can_be_written(can, root, outside, shell):
    policy = OPERATOR.allow_write(f"{outside}/*").allow_write("/no/such/place/*").deny_read("/no/such/secret")
    done = await shell(f"echo x > {outside}/made", root, under(policy=policy), can)
    assert (done.code, (outside / "made").read_text()) == (0, "x\n"), done.output


@everywhere
async def test_a_policy_that_denies_all_writing_makes_the_workspace_read_only(can, root, shell):
    child = OPERATOR.contain(Policy.permissive().layer("child").deny_write("*"))
    done = await shell("echo x > new", root, under(policy=child), can)
    assert done.code != 0
    assert os.listdir(root) == []


# ── reading what is denied ──────────────────────────────────────────────────

READS = {
    "by its path": "print(open('{at}').read())",
    "through the root of its own process": "print(open('/proc/self/root{at}').read())",
    "through a link": "os.symlink('{at}', os.environ['TMPDIR'] + '/l'); print(open(os.environ['TMPDIR'] + '/l').read())",
    "through a hard link": "os.link('{at}', 'mine'); print(open('mine').read())",
    "through its directory": "d = os.open(os.path.dirname('{at}'), os.O_PATH); print(open(os.open(os.path.basename('{at}'), os.O_RDONLY, dir_fd=d)).read())",
    "by another program": "subprocess.run(['cat', '{at}'])",
    "after moving it": "os.rename('{at}', 'moved'); print(open('moved').read())",
    "after uncovering it": "subprocess.run('umount {at}; umount {dir}; cat {at}', shell=True)",
    "by running it": "subprocess.run(['sh', '{at}'])",
}
reads = pytest.mark.parametrize("attack", READS.values(), ids=READS)


async def read_attack(python, attack: str, at: Path, root: Path, confinement: Confinement, can=None) -> str:
    code = PRELUDE + attack.format(at=at, dir=at.parent)
    return (await python(code, root, confinement, can)).output


@reads
async def test_without_a_boundary_the_secret_is_read(attack, root, monkeypatch, python):
    monkeypatch.setenv("TMPDIR", str(root))
    assert "canary" in await read_attack(python, attack, root.parent / "secret" / "key.txt", root, FREE)


@everywhere
@reads
async def test_a_denied_file_outside_the_workspace_is_not_read(attack, can, root, python):
    at = root.parent / "secret" / "key.txt"
    for denied in (str(at), f"{at.parent}/*"):
        assert "canary" not in await read_attack(python, attack, at, root, under(policy=OPERATOR.deny_read(denied)), can)
        assert at.read_text() == "canary\n"


@covering
@reads
async def test_a_denied_file_inside_the_workspace_is_not_read(attack, can, root, python):
    for name in (".env", "deep/server.pem", "vault/a"):
        at = root / name
        at.parent.mkdir(exist_ok=True)
        at.write_text("canary\n")
        assert "canary" not in await read_attack(python, attack, at, root, under(policy=OPERATOR.deny_read("vault/*")), can)
        assert at.read_text() == "canary\n"


@pytest.mark.parametrize("can", ["rules"], indirect=True)
async def test_what_rules_alone_cannot_hide_is_said(can, root, shell):
    (root / ".env").write_text("canary\n")
    (root / "tests").mkdir()
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    await shell("true", root, under(policy=OPERATOR.deny_write("tests/*"), record=record), can)
    assert {f"read of {root}/.env", f"write of {root}/tests"} <= set(told[0].not_held)


@covering
async def test_a_file_that_may_not_be_written_is_not_written_by_a_command_either(can, root, shell):
    (root / "tests").mkdir()
    for name in ("tests/check.py", "a.lock"):
        (root / name).write_text("as it was")
    policy = OPERATOR.deny_write("tests/*").deny_write("*.lock")
    for line in ("echo x > tests/check.py", "rm -f tests/check.py", "mv tests t", "echo x > tests/new", "echo x > a.lock"):
        await shell(line, root, under(policy=policy), can)
    assert [(root / name).read_text() for name in ("tests/check.py", "a.lock")] == ["as it was"] * 2
    assert os.listdir(root / "tests") == ["check.py"]


@everywhere
async def test_keys_in_the_home_directory_are_not_read(can, root, monkeypatch, shell):
    home = root.parent / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("canary")
    (home / ".netrc").write_text("canary")
    (home / "notes").write_text("a note")
    monkeypatch.setenv("HOME", str(home))
    line = "cat ~/.ssh/id; cat ~/.netrc; cat ~/notes"
    assert "canary" in (await shell(line, root, FREE)).output
    done = await shell(line, root, under(), can)
    assert "canary" not in done.output
    assert "a note" in done.output


# ── the process that runs us ────────────────────────────────────────────────

SPYING = {
    "the environment of every process": """
        for n in os.listdir('/proc'):
            try:
                print(open(f'/proc/{n}/environ').read())
            except OSError:
                pass
    """,
    "the files that every process holds open": """
        for n in os.listdir('/proc'):
            try:
                for each in os.listdir(f'/proc/{n}/fd') if n.isdigit() and int(n) != os.getpid() else ():
                    if 'key.txt' in os.readlink(f'/proc/{n}/fd/{each}'):
                        print(open(f'/proc/{n}/fd/{each}').read())
            except OSError:
                pass
    """,
}


@pytest.mark.parametrize("spying", SPYING)
@pytest.mark.parametrize("confined", [False, True])
async def test_the_process_that_runs_it_is_not_looked_into(spying, confined, root):
    """In a process of its own, since what it was started with is what can be read of it."""
    code = f"""
        import asyncio, sys, trio
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from actors.agents.confinement import Confinement
        from actors.agents.contract import ExecSandbox
        from actors.agents.policy import Policy
        from actors.tools.sandbox import run_confined
        held = open({str(root.parent / "secret" / "key.txt")!r})
        attack = {"import os" + chr(10) + textwrap.dedent(SPYING[spying])!r}
        policy = Policy.default().layer('o').deny_read({str(root.parent / "secret") + "/*"!r})
        confinement = Confinement(ExecSandbox.workspace_write, policy) if {confined} else Confinement(ExecSandbox.full_access)
        done = trio.run(lambda: run_confined(
            [sys.executable, '-I', '-S', '-c', attack], cwd={str(root)!r}, timeout=20, confinement=confinement))
        print(done.output)
    """
    done = await trio.run_process(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "MODEL_API_KEY": "canary"},
        capture_stdout=True,
    )
    assert ("canary" in done.stdout.decode()) is not confined


@everywhere
async def test_no_descriptor_of_ours_is_there(can, root, python):
    held = os.open(root.parent / "secret" / "key.txt", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        look = f"import os; print(os.read({held}, 9))"
        assert "canary" in printed([sys.executable, "-c", look], close_fds=False)
        code = """
            import os
            for each in range(3, 256):
                try:
                    os.fstat(each)
                    print(each, os.readlink(f"/proc/self/fd/{each}"))
                except OSError:
                    pass
        """
        done = await python(code, root, under(), can)
        assert (done.code, done.output) == (0, "")
    finally:
        os.close(held)


@everywhere
async def test_nothing_of_our_environment_is_there_but_an_allow_list(can, root, monkeypatch):
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "/canary.so")
    assert printed(["env"]).count("canary") == 6
    done = await run_confined(["env"], cwd=str(root), timeout=20, confinement=under(), capabilities=can)
    plain = await run_confined(["env"], cwd=str(root), timeout=20, confinement=FREE)
    assert "canary" not in done.output

    def names(text: str) -> set[str]:
        return {line.split("=")[0] for line in text.splitlines()}

    assert names(done.output) | {"TMPDIR"} == names(plain.output) | {"TMPDIR"}
    assert "TMPDIR" in names(done.output)


@everywhere
async def test_processes_outside_are_not_ended(can, root, python):
    victim = await trio.lowlevel.open_process(["sleep", "60"], start_new_session=True)
    attack = f"import os; os.kill({victim.pid}, 9)"
    try:
        await python(attack, root, under(), can)
        assert victim.poll() is None
        await python(attack, root, FREE)
        with trio.fail_after(5):
            assert await victim.wait() == -signal.SIGKILL
    finally:
        victim.kill()
        await victim.wait()


@everywhere
async def test_a_command_has_no_right_that_only_an_administrator_needs(can, root, shell):
    kept = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
    done = await shell("grep -E '^Cap(Eff|Prm|Bnd|Amb|Inh)' /proc/self/status", root, under(), can)
    held = {line.split(":")[0]: int(line.split()[1], 16) for line in done.output.splitlines()}
    assert len(held) == 5
    # Whoever has none to begin with cannot drop them from the bound, and gains nothing from it either.
    bound = held.pop("CapBnd")
    if os.geteuid() != 0:
        bound = 0
    assert not any(rights & ~kept for rights in (bound, *held.values())), done.output


@covering
async def test_processes_outside_are_not_seen(can, root, marker, python):
    outside = await trio.lowlevel.open_process(["sleep", marker.text])
    # Split, so that whoever looks does not find itself.
    look = f"""
        import os
        def line(number):
            try:
                return open(f"/proc/{{number}}/cmdline").read()
            except OSError:
                return ""  # it ended meanwhile
        seen = [line(n) for n in os.listdir("/proc") if n.isdigit()]
        print(sum("{marker.text[:4]}" "{marker.text[4:]}" in each for each in seen), os.path.exists(f"/proc/{{os.getpid()}}"))
    """
    try:
        assert (await python(look, root, FREE)).output == "1 True\n"
        assert (await python(look, root, under(), can)).output == "0 True\n"
    finally:
        outside.kill()
        await outside.wait()


# ── the network ─────────────────────────────────────────────────────────────

CONNECT = "import _socket; s = _socket.socket(_socket.{family}, _socket.{kind}); s.connect({to!r}); s.send(b'out')"


class Listener:
    """Somebody on this machine, whom nobody inside may reach."""

    def __init__(self, family: int, kind: int, at) -> None:
        self._socket = socket.socket(family, kind)
        self._socket.bind(at)
        if kind == socket.SOCK_STREAM:
            self._socket.listen()
        self._socket.settimeout(0.3)
        self._kind = kind
        self.at = self._socket.getsockname()

    def heard(self) -> bool:
        try:
            if self._kind == socket.SOCK_STREAM:
                self._socket.accept()[0].close()
            else:
                self._socket.recv(9)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


LISTENERS = {
    "TCP": ("AF_INET", "SOCK_STREAM", ("127.0.0.1", 0)),
    "TCP over IPv6": ("AF_INET6", "SOCK_STREAM", ("::1", 0)),
    "UDP": ("AF_INET", "SOCK_DGRAM", ("127.0.0.1", 0)),
    "an abstract local socket": ("AF_UNIX", "SOCK_STREAM", b"\0actors-test-%d" % os.getpid()),
}


@everywhere
@pytest.mark.parametrize(("family", "kind", "at"), LISTENERS.values(), ids=LISTENERS)
async def test_nobody_is_reached_unless_the_policy_grants_the_network(family, kind, at, can, root, python):
    try:
        listener = Listener(getattr(socket, family), getattr(socket, kind), at)
    except OSError:
        pytest.skip("this machine has no such network")
    try:
        code = CONNECT.format(family=family, kind=kind, to=listener.at)
        await python(code, root, under(), can)
        assert not listener.heard()
        done = await python(code, root, FREE)
        assert done.code == 0, done.output
        assert listener.heard()
        if family != "AF_UNIX":
            done = await python(code, root, under(policy=OPERATOR.allow_net("*")), can)
            assert done.code == 0, done.output
            assert listener.heard()
    finally:
        listener.close()


@everywhere
async def test_no_socket_is_made_that_knows_no_namespaces(can, root, python):
    """One to the host of a virtual machine leads there from every namespace of the network."""
    code = """
        import _socket
        made = []
        for family in range(64):
            for kind in (1, 2, 3, 5):
                try:
                    _socket.socket(family, kind).close()
                except OSError:
                    continue
                made.append(family)
        print(*sorted(set(made)))
    """
    free = (await python(code, root, FREE)).output.split()
    held = (await python(code, root, under(), can)).output.split()
    assert set(held) <= {"1", "2", "10", "16"}
    assert set(free) - set(held), "this machine makes no other sockets anyway"


@everywhere
@pytest.mark.parametrize("net", ["closed", "open"])
async def test_no_key_that_the_kernel_keeps_is_reached(net, can, root, python):
    """Keyrings are the user's: no namespace of mounts, processes or the network parts them."""
    numbers = MACHINES[platform.machine()].keys
    code = f"""
        import ctypes
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        add, ask, control = {numbers!r}
        # A key for this process alone; one that there is not; the list of those of the user.
        made = call(add, b"user", b"canary", b"x", ctypes.c_long(1), ctypes.c_long(-2)), ctypes.get_errno()
        asked = call(ask, b"user", b"no such canary", None, ctypes.c_long(0)), ctypes.get_errno()
        listed = call(control, ctypes.c_long(0), ctypes.c_long(-4), ctypes.c_long(1)), ctypes.get_errno()
        print(made[0] > 0, made[1] == asked[1] == listed[1] == 13, listed[0] > 0)
    """
    free = (await python(code, root, FREE)).output
    if free != "True False True\n":
        pytest.skip(f"this machine gives nobody a key: {free}")
    policy = OPERATOR.allow_net("*") if net == "open" else OPERATOR
    assert (await python(code, root, under(policy=policy), can)).output == "False True False\n"


@covering
async def test_memory_that_commands_share_has_a_size(can, root, python):
    code = """
        import os
        def most(path):
            try:
                found = os.statvfs(path)
                open(path + "/canary", "w").close()
            except OSError as error:
                return error.strerror
            return found.f_blocks * found.f_frsize
        print(most("/dev/shm"))
        print(most("/dev"))
        open("/dev/null", "w").write("x")
    """
    done = await python(code, root, under(), can)
    assert done.output.splitlines()[0] == str(SHARED_MEMORY_BYTES) == str(64 * 1024 * 1024), done.output
    # What is no device, and none of the shared, cannot be put there.
    assert done.output.splitlines()[1:] in (["Read-only file system"], ["Permission denied"])


@covering
async def test_processes_inside_reach_each_other(can, root, python):
    code = """
        import _socket, os
        server = _socket.socket(); server.bind(("127.0.0.1", 0)); server.listen(1)
        if not os.fork():
            client = _socket.socket(); client.connect(server.getsockname()); client.send(b"inside"); os._exit(0)
        fd, _ = server._accept(); print(os.read(fd, 9))
    """
    done = await python(code, root, under(), can)
    assert done.output == "b'inside'\n"
