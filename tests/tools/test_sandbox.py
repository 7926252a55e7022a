"""A command cannot do what its boundary denies; each attack works where there is no boundary.

Run once for every backend that this machine has: with namespaces, with rules alone
(landlock and a filter), and with bubblewrap.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.errors import ToolFailed
from actors.tools import sandbox
from actors.tools.exec import Exec, described
from actors.tools.process import Finished, Status
from actors.tools.sandbox import SandboxUnavailable, boundary, detect, run_confined, sandbox_problem
from actors.tools.sandbox_plan import Capabilities
from actors.tools.verifying import evaluate

READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
CAN = detect()
BACKENDS = {
    "namespaces": attrs.evolve(CAN, bubblewrap=None) if CAN.landlock and CAN.namespaces else None,
    "users": attrs.evolve(CAN, bubblewrap=None, root=False) if CAN.landlock and CAN.namespaces else None,
    "rules": attrs.evolve(CAN, bubblewrap=None, namespaces=False) if CAN.landlock and CAN.seccomp else None,
    "bubblewrap": CAN if CAN.bubblewrap else None,
}
WHY = {
    "namespaces": "needs landlock, and the right to make namespaces",
    "users": "needs landlock, and the right to make namespaces",
    "rules": "needs landlock, and a machine whose system calls we know",
    "bubblewrap": "bubblewrap is not installed here, or does not work",
}


def having(*names: str):
    return pytest.mark.parametrize(
        "can",
        [
            pytest.param(BACKENDS[name], id=name, marks=pytest.mark.skipif(BACKENDS[name] is None, reason=WHY[name]))
            for name in names
        ],
    )


everywhere = having(*BACKENDS)
covering = having("namespaces", "users", "bubblewrap")
FREE = Confinement(FULL)
# The operator who lets the network in, and denies some files.
OPERATOR = Policy.default().layer("operator")


def under(mode: ExecSandbox | None = WRITE, policy: Policy = OPERATOR, **more) -> Confinement:
    return Confinement(mode, policy, **more)


async def python(code: str, root: Path, confinement: Confinement, can=None, timeout=20.0) -> Finished:
    program = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]
    return await run_confined(program, cwd=str(root), timeout=timeout, confinement=confinement, capabilities=can)


async def shell(line: str, root: Path, confinement: Confinement, can=None, timeout=20.0) -> Finished:
    return await run_confined(
        ["sh", "-c", line], cwd=str(root), timeout=timeout, confinement=confinement, capabilities=can
    )


@pytest.fixture
def outside(root: Path) -> Path:
    """A directory beside the workspace, with a file that must stay as it is."""
    beside = root.parent / "outside"
    beside.mkdir()
    (beside / "victim").write_text("as it was")
    (beside / "victim").chmod(0o644)
    return beside


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def printed(argv: list[str], **options) -> str:
    """Run something as anybody would, and give what it printed."""
    return subprocess.run(argv, capture_output=True, text=True, check=True, **options).stdout


def end_all(marker) -> None:
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and marker.text.encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


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


async def write_attack(attack: str, root: Path, outside: Path, confinement: Confinement, can=None) -> Finished:
    return await python(PRELUDE + attack.format(out=outside), root, confinement, can)


@pytest.mark.parametrize("attack", (WRITES | METADATA).values(), ids=WRITES | METADATA)
async def test_without_a_boundary_the_attack_changes_what_lies_outside(attack, root, outside, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(root))
    before = state(outside)
    await write_attack(attack, root, outside, FREE)
    assert state(outside) != before


@everywhere
@pytest.mark.parametrize("attack", WRITES.values(), ids=WRITES)
async def test_nothing_is_written_outside_the_workspace(attack, can, root, outside):
    before = state(outside)
    done = await write_attack(attack, root, outside, under(), can)
    assert state(outside) == before
    assert done.status is Status.exited, done


@covering
@pytest.mark.parametrize("attack", METADATA.values(), ids=METADATA)
async def test_nothing_outside_is_given_other_rights(attack, can, root, outside):
    before = state(outside)
    await write_attack(attack, root, outside, under(), can)
    assert state(outside) == before


@everywhere
@pytest.mark.parametrize("attack", ADMINISTRATION.values(), ids=ADMINISTRATION)
async def test_who_is_root_is_no_administrator_of_the_machine(attack, can, root, outside):
    before = state(outside)
    await write_attack(attack, root, outside, under(), can)
    assert state(outside) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights of an administrator to show that they work")
async def test_without_a_boundary_an_administrator_may_do_that(root, outside):
    before = state(outside)
    for name in ("from a namespace of its own", "by another root directory"):
        await write_attack(ADMINISTRATION[name], root, outside, FREE)
    assert state(outside) != before


@everywhere
async def test_what_is_granted_can_be_done(can, root):
    line = "echo a > a && mkdir -p d && mv a d/b && echo t > $TMPDIR/t && cat $TMPDIR/t > /dev/null && ls / && cat d/b"
    done = await shell(line, root, under(), can)
    assert (done.status, done.code) == (Status.exited, 0), done.output
    assert (root / "d" / "b").read_text() == "a\n"
    assert done.output.endswith("a\n")


@everywhere
async def test_reading_only_leaves_the_workspace_as_it_is_and_has_a_place_for_what_is_temporary(can, root):
    (root / "kept").write_text("as it was")
    for line in ("echo x > kept", "rm kept", "echo x > new", "mkdir new", "mv kept other"):
        done = await shell(line, root, under(READ_ONLY), can)
        assert done.code != 0, line
    assert [(each.name, each.read_text()) for each in root.iterdir()] == [("kept", "as it was")]
    done = await shell('cat kept && echo x > "$TMPDIR/t" && cat "$TMPDIR/t"', root, under(READ_ONLY), can)
    assert (done.code, done.output) == (0, "as it wasx\n")


@everywhere
async def test_the_private_directory_is_gone_after_the_command_and_not_the_next_ones(can, root):
    seen = [(await shell('echo x > "$TMPDIR/t"; echo $TMPDIR', root, under(), can)).output.strip() for _ in range(2)]
    assert len(set(seen)) == 2
    assert not any(is_there(place) for place in seen)


@everywhere
async def test_a_granted_place_that_does_not_exist_breaks_nothing_and_one_that_does_can_be_written(can, root, outside):
    policy = OPERATOR.allow_write(f"{outside}/*").allow_write("/no/such/place/*").deny_read("/no/such/secret")
    done = await shell(f"echo x > {outside}/made", root, under(policy=policy), can)
    assert (done.code, (outside / "made").read_text()) == (0, "x\n"), done.output


@everywhere
async def test_a_policy_that_denies_all_writing_makes_the_workspace_read_only(can, root):
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


async def read_attack(attack: str, at: Path, root: Path, confinement: Confinement, can=None) -> str:
    code = PRELUDE + attack.format(at=at, dir=at.parent)
    return (await python(code, root, confinement, can)).output


@reads
async def test_without_a_boundary_the_secret_is_read(attack, root, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(root))
    assert "canary" in await read_attack(attack, root.parent / "secret" / "key.txt", root, FREE)


@everywhere
@reads
async def test_a_denied_file_outside_the_workspace_is_not_read(attack, can, root):
    at = root.parent / "secret" / "key.txt"
    for denied in (str(at), f"{at.parent}/*"):
        assert "canary" not in await read_attack(attack, at, root, under(policy=OPERATOR.deny_read(denied)), can)
        assert at.read_text() == "canary\n"


@covering
@reads
async def test_a_denied_file_inside_the_workspace_is_not_read(attack, can, root):
    for name in (".env", "deep/server.pem", "vault/a"):
        at = root / name
        at.parent.mkdir(exist_ok=True)
        at.write_text("canary\n")
        assert "canary" not in await read_attack(attack, at, root, under(policy=OPERATOR.deny_read("vault/*")), can)
        assert at.read_text() == "canary\n"


@having("rules")
async def test_what_rules_alone_cannot_hide_is_said(can, root):
    (root / ".env").write_text("canary\n")
    (root / "tests").mkdir()
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    await shell("true", root, under(policy=OPERATOR.deny_write("tests/*"), record=record), can)
    assert {f"read of {root}/.env", f"write of {root}/tests"} <= set(told[0].not_held)


@covering
async def test_a_file_that_may_not_be_written_is_not_written_by_a_command_either(can, root):
    (root / "tests").mkdir()
    for name in ("tests/check.py", "a.lock"):
        (root / name).write_text("as it was")
    policy = OPERATOR.deny_write("tests/*").deny_write("*.lock")
    for line in ("echo x > tests/check.py", "rm -f tests/check.py", "mv tests t", "echo x > tests/new", "echo x > a.lock"):
        await shell(line, root, under(policy=policy), can)
    assert [(root / name).read_text() for name in ("tests/check.py", "a.lock")] == ["as it was"] * 2
    assert os.listdir(root / "tests") == ["check.py"]


@everywhere
async def test_keys_in_the_home_directory_are_not_read(can, root, monkeypatch):
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
async def test_no_descriptor_of_ours_is_there(can, root):
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
async def test_processes_outside_are_not_ended(can, root):
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
async def test_a_command_has_no_right_that_only_an_administrator_needs(can, root):
    kept = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
    done = await shell("grep -E '^Cap(Eff|Prm|Bnd|Amb|Inh)' /proc/self/status", root, under(), can)
    held = {line.split(":")[0]: int(line.split()[1], 16) for line in done.output.splitlines()}
    assert len(held) == 5
    # Whoever has none to begin with cannot drop them from the bound, and gains nothing from it either.
    bound = held.pop("CapBnd") if os.geteuid() == 0 else 0
    assert not any(rights & ~kept for rights in (bound, *held.values())), done.output


@covering
async def test_processes_outside_are_not_seen(can, root, marker):
    outside = await trio.lowlevel.open_process(["sleep", marker.text])
    # Split, so that whoever looks does not find itself.
    look = f"""
        import os
        seen = [open(f"/proc/{{n}}/cmdline").read() for n in os.listdir("/proc") if n.isdigit()]
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
async def test_nobody_is_reached_unless_the_policy_grants_the_network(family, kind, at, can, root):
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


@covering
async def test_processes_inside_reach_each_other(can, root):
    code = """
        import _socket, os
        server = _socket.socket(); server.bind(("127.0.0.1", 0)); server.listen(1)
        if not os.fork():
            client = _socket.socket(); client.connect(server.getsockname()); client.send(b"inside"); os._exit(0)
        fd, _ = server._accept(); print(os.read(fd, 9))
    """
    done = await python(code, root, under(), can)
    assert done.output == "b'inside'\n"


# ── what is left behind ─────────────────────────────────────────────────────

# Leaves its group, its session, its parent, its environment and its output, all at once.
SHEDDING = """
    import os, sys
    if not os.fork():
        os.setsid()
        if not os.fork():
            null = os.open("/dev/null", os.O_RDWR)
            for each in range(3):
                os.dup2(null, each)
            os.execve("/bin/sh", ["sh", "-c", "sleep {m}; true"], {{"PATH": os.environ["PATH"]}})
        os._exit(0)
    os.wait()
    import time
    time.sleep({stay})
"""


@having("namespaces", "users", "bubblewrap")
@pytest.mark.parametrize("stay", [0.1, 60])
async def test_who_sheds_everything_is_ended_all_the_same(stay, can, root, marker):
    done = await python(SHEDDING.format(m=marker.text, stay=stay), root, under(), can, timeout=0.8)
    assert done.status is (Status.exited if stay < 1 else Status.timed_out)
    assert marker.living() == []
    assert done.leaked == ()


async def test_without_a_boundary_who_sheds_everything_lives_on(root, marker):
    await python(SHEDDING.format(m=marker.text, stay=0.1), root, FREE)
    try:
        assert marker.living() != []
    finally:
        end_all(marker)


@everywhere
@pytest.mark.parametrize("how", ["ends", "is cancelled", "times out"])
async def test_nothing_is_left_however_a_command_comes_to_its_end(how, can, root, marker):
    line = f"(setsid sleep {marker.text} &) ; sleep {marker.text} & " + ("sleep 0.1" if how == "ends" else "wait")
    with trio.move_on_after(0.8 if how == "is cancelled" else 30):
        await shell(line, root, under(), can, timeout=0.8 if how == "times out" else 30)
    assert marker.living() == []


@everywhere
async def test_a_bomb_of_forks_ends_with_its_time(can, root, marker):
    """Bounded, so that a failing test harms nobody."""
    code = f"""
        import os, time
        for _ in range(60):
            if not os.fork():
                os.setsid()
                os.execv("/bin/sleep", ["sleep", "{marker.text}"])
        time.sleep(60)
    """
    done = await python(code, root, under(caps=ExecCaps(wall_seconds=1.0)), can)
    assert (done.status, done.hit) == (Status.timed_out, "wall_seconds")
    # The model reads the time that it had, and not the one that commands have.
    assert "after 900 s" not in described(done, 900.0) and "the cap wall_seconds was reached" in described(done, 900.0)
    assert marker.living() == []


@everywhere
async def test_a_command_ends_when_the_process_that_runs_it_is_killed(can, root, marker):
    code = f"""
        import sys, trio
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from actors.agents.confinement import Confinement
        from actors.agents.contract import ExecSandbox
        from actors.agents.policy import Policy
        from actors.tools.sandbox import run_confined
        from actors.tools.sandbox_plan import Capabilities
        can = Capabilities{attrs.astuple(can)!r}
        trio.run(lambda: run_confined(
            ["sh", "-c", "touch started; sleep {marker.text} & wait"], cwd={str(root)!r}, timeout=60,
            confinement=Confinement(ExecSandbox.workspace_write, Policy.default()), capabilities=can))
    """
    # Its private directory is left behind: nobody is there to take it away.
    env = {**os.environ, "TMPDIR": str(root.parent)}
    process = await trio.lowlevel.open_process([sys.executable, "-c", textwrap.dedent(code)], env=env)
    with trio.fail_after(20):
        while not (root / "started").exists():
            await trio.sleep(0.02)
        assert marker.living() != []
        process.kill()
        await process.wait()
        while marker.living():
            await trio.sleep(0.02)


@covering
async def test_all_of_a_command_ends_with_the_program_that_stands_before_it(can, root, marker):
    async with boundary(under(), str(root), can) as around:
        with around.starting(["sh", "-c", f"setsid sleep {marker.text} & sleep {marker.text}"]) as through:
            assert through is not None
            watcher = await trio.lowlevel.open_process(through.argv, pass_fds=through.pass_fds)
            with trio.fail_after(20):
                while len(marker.living()) < 3:
                    await trio.sleep(0.02)
                watcher.kill()
                await watcher.wait()
                while marker.living():
                    await trio.sleep(0.02)


# ── how it ends, and what is said ───────────────────────────────────────────


@everywhere
@pytest.mark.parametrize(
    ("line", "timeout", "status", "code", "output"),
    [
        ("echo out; echo err >&2", 20, Status.exited, 0, "out\nerr\n"),
        ("exit 3", 20, Status.exited, 3, ""),
        ("exit 127", 20, Status.exited, 127, ""),
        ("kill -KILL $$", 20, Status.signalled, 9, ""),
        ("kill -TERM $$", 20, Status.signalled, 15, ""),
        ("kill -PIPE $$", 20, Status.signalled, 13, ""),
        ("echo half; sleep 9", 0.6, Status.timed_out, None, "half\n"),
    ],
)
async def test_each_end_reads_as_without_a_boundary(line, timeout, status, code, output, can, root):
    done = await shell(line, root, under(), can, timeout)
    plain = await shell(line, root, FREE, None, timeout)
    assert (done.status, done.code, done.output) == (plain.status, plain.code, plain.output) == (status, code, output)


@everywhere
async def test_who_is_judged_cannot_say_how_its_judge_ended(can, root):
    code = """
        import os, signal
        for process in filter(str.isdigit, os.listdir("/proc")):
            if int(process) == os.getpid():
                continue
            try:
                for each in os.listdir(f"/proc/{process}/fd"):
                    if int(each) > 2:
                        handle = os.open(f"/proc/{process}/fd/{each}", os.O_WRONLY | os.O_NONBLOCK)
                        os.write(handle, bytes(4))
            except OSError:
                continue
    """
    line = f"{sys.executable} -I -S -c '{textwrap.dedent(code)}'; exit 3"
    done = await shell(line, root, under(), can)
    assert (done.status, done.code) == (Status.exited, 3)


@everywhere
async def test_a_missing_program_reads_the_same_with_a_boundary_or_without(can, root):
    (root / "plain.txt").write_text("no program")
    (root / "lost.sh").write_text("#!/no/such/interpreter\n")
    (root / "lost.sh").chmod(0o755)
    for program in ("no-such-program", "./plain.txt", "./no/such/program", "a\0b"):
        ends = [
            await run_confined([program], cwd=str(root), timeout=20, confinement=each, capabilities=given)
            for each, given in ((under(), can), (FREE, None))
        ]
        assert [(each.status, each.code, each.output) for each in ends] == [
            (ends[1].status, None, ends[1].output)
        ] * 2, program
    gone = [
        await run_confined(["true"], cwd=str(root / "gone"), timeout=20, confinement=each) for each in (under(), FREE)
    ]
    assert gone[0].output == gone[1].output


@everywhere
async def test_what_is_fed_arrives(can, root):
    done = await run_confined(
        ["cat"], cwd=str(root), timeout=20, confinement=under(), stdin=b"fed\n" * 50_000, limit=100, capabilities=can
    )
    assert done.left_out == 200_000 - 100


@having("namespaces", "rules")
async def test_a_boundary_that_cannot_be_set_up_starts_nothing_and_is_no_verdict(can, root, monkeypatch):
    # A right that no kernel knows.
    monkeypatch.setattr(sandbox, "handled", lambda _version: (1 << 60,))
    done = await shell("touch made", root, under(), can)
    assert done.status is Status.not_started
    assert "the sandbox could not be set up (landlock_create_ruleset: Invalid argument)" in done.output
    assert os.listdir(root) == []
    monkeypatch.setattr(sandbox, "detect", FakeDetect(can))
    got = await checked(Verification.command(["touch", "made"]), root, under())
    assert (got.verdict, "could not be set up" in got.detail) == ("errored", True)
    assert os.listdir(root) == []


@having("namespaces", "users")
async def test_a_call_of_the_kernel_that_fails_is_never_passed_over(can, root, monkeypatch):
    monkeypatch.setattr(sandbox, "_existing", lambda grants, _root: attrs.evolve(grants, writable=("/no/such/place",)))
    done = await shell("touch made", root, under(), can)
    assert done.status is Status.not_started
    assert "mount on /no/such/place: No such file or directory" in done.output
    assert os.listdir(root) == []


@having("rules")
async def test_a_filter_that_the_kernel_does_not_take_is_never_passed_over(can, root, monkeypatch):
    """Some functions of C return their failure as a short number; read as a long one it looks like none."""
    monkeypatch.setattr(sandbox, "socket_filter", lambda _machine: bytes(8))
    done = await shell("touch made", root, under(), can)
    assert done.status is Status.not_started
    assert "prctl: Invalid argument" in done.output
    assert os.listdir(root) == []


class FakeDetect:
    """A machine that can do what is said, and has been asked before."""

    currsize = 1

    def __init__(self, can: Capabilities) -> None:
        self._can = can

    def __call__(self) -> Capabilities:
        return self._can

    def cache_info(self) -> "FakeDetect":
        return self


async def checked(criterion, root: Path, confinement: Confinement):
    return await evaluate(
        criterion, root=str(root), file=None, exec_timeout=20, may_read=lambda _: True, may_exec=lambda _: True,
        confinement=confinement,
    )  # fmt: skip


async def test_a_named_boundary_that_this_machine_has_not_starts_nothing(root, context, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", FakeDetect(Capabilities()))
    for mode in (READ_ONLY, WRITE):
        problem = sandbox_problem(mode, OPERATOR, str(root))
        assert problem is not None
        assert 'exec_sandbox = "full_access"' in problem
        with pytest.raises(SandboxUnavailable):
            await shell("touch made", root, under(mode))
        context.confinement = under(mode)
        with pytest.raises(ToolFailed, match="cannot be held here"):
            await Exec().run({"argv": ["touch", "made"]}, context)
        got = await checked(Verification.command(["touch", "made"]), root, under(mode))
        assert (got.verdict, "cannot be held here" in got.detail) == ("errored", True)
    assert os.listdir(root) == []
    assert sandbox_problem(None, OPERATOR, str(root)) is sandbox_problem(FULL, OPERATOR, str(root)) is None


async def test_what_really_applied_is_recorded_before_the_command_starts(root, monkeypatch):
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        assert os.listdir(root) == []
        told.append(applied)

    nothing = Capabilities()
    for mode, can in ((None, nothing), (FULL, CAN)):
        await shell("touch made; rm made", root, under(mode, record=record), can)
    assert [(each.mode, each.backend, each.net) for each in told] == [
        (WRITE, "none", "not_held"),
        (FULL, "none", "open"),
    ]
    assert told[0].not_held == ("workspace_write: neither bubblewrap nor landlock works",)


@everywhere
async def test_a_boundary_that_held_is_recorded_as_such(can, root):
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    for policy in (OPERATOR, OPERATOR.allow_net("*")):
        await shell("true", root, under(None, policy, record=record), can)
    backend = "bubblewrap" if can.bubblewrap else "landlock"
    assert [(each.mode, each.backend, each.net) for each in told] == [(WRITE, backend, "denied"), (WRITE, backend, "open")]


@everywhere
async def test_the_check_of_a_criterion_is_behind_the_same_boundary(can, root, outside, monkeypatch):
    monkeypatch.setattr(sandbox, "detect", FakeDetect(can))
    before = state(outside)
    criterion = Verification.command(["sh", "-c", f"echo x > {outside}/made"])
    assert (await checked(criterion, root, under())).verdict == "failed"
    assert state(outside) == before
    assert (await checked(criterion, root, FREE)).verdict == "passed"
    assert state(outside) != before
    assert (await checked(Verification.command(["sh", "-c", "echo x > made"]), root, under())).verdict == "passed"


@everywhere
async def test_several_commands_stand_behind_one_boundary(can, root):
    async with boundary(under(), str(root), can) as around:
        with around.starting(["sh", "-c", "echo $TMPDIR"]) as one, around.starting(["true"]) as other:
            assert one is not None
            assert other is not None
            assert one.env == other.env
            assert is_there(one.env["TMPDIR"])
    assert not is_there(one.env["TMPDIR"])
    async with boundary(FREE, str(root), can) as around, trio.open_nursery():
        with around.starting(["true"]) as through:
            assert through is None


# ── caps ────────────────────────────────────────────────────────────────────

BOUNDARIES = [WRITE, FULL]


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_on_processor_time_ends_a_command_and_is_named(mode, root):
    done = await python("while True: pass", root, under(mode, caps=ExecCaps(cpu_seconds=1)))
    assert (done.status, done.code, done.hit) == (Status.signalled, signal.SIGXCPU, "cpu_seconds")


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_on_memory_counts_all_processes_of_a_command_together(mode, root):
    """None of them alone holds too much."""
    code = """
        import os, time
        for _ in range(4):
            if not os.fork():
                kept = b"x" * 50_000_000
                time.sleep(60)
        time.sleep(60)
    """
    done = await python(code, root, under(mode, caps=ExecCaps(memory_bytes=150_000_000)))
    assert (done.status, done.code, done.hit) == (Status.signalled, signal.SIGKILL, "memory_bytes")
    free = await python("kept = b'x' * 50_000_000", root, under(mode, caps=ExecCaps(memory_bytes=150_000_000)))
    assert (free.code, free.hit) == (0, None)
    alone = await python("kept = b'x' * 200_000_000", root, under(mode, caps=ExecCaps(memory_bytes=150_000_000)))
    assert alone.code != 0
    assert "MemoryError" in alone.output or alone.hit == "memory_bytes"


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_on_open_files_is_felt_and_never_reported_as_hit(mode, root):
    code = "import os\nfor _ in range(100): os.open('/dev/null', 0)"
    done = await python(code, root, under(mode, caps=ExecCaps(open_files=32)))
    assert done.code != 0
    assert "Too many open files" in done.output
    assert done.hit is None
    assert (await python(code, root, under(mode))).code == 0


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_that_cannot_be_set_starts_nothing(mode, root, monkeypatch):
    monkeypatch.setattr(sandbox, "limits_of", lambda _caps: (("RLIMIT_OF_NOTHING", 1, 1),))
    done = await shell("touch made", root, under(mode, caps=ExecCaps(open_files=32)))
    assert done.status is Status.not_started
    assert "a limit cannot be set" in done.output
    assert os.listdir(root) == []


async def test_a_time_out_that_is_no_cap_is_not_reported_as_one(root):
    done = await shell("sleep 9", root, under(FULL, caps=ExecCaps(wall_seconds=60)), timeout=0.1)
    assert (done.status, done.hit) == (Status.timed_out, None)


# ── what it costs ───────────────────────────────────────────────────────────


@having("namespaces", "rules")
async def test_no_descriptor_is_left_open(can, root):
    await shell("true", root, under(), can)
    before = os.listdir("/proc/self/fd")
    for line in ("true", "exit 1", "sleep 9"):
        await shell(line, root, under(), can, timeout=0.3)
    assert os.listdir("/proc/self/fd") == before


def test_a_machine_is_asked_once():
    began = time.perf_counter()
    assert detect() is CAN
    assert time.perf_counter() - began < 1
    assert shutil.which("bwrap") is not None or CAN.bubblewrap is None
