"""Ends, names and machines that are seldom met, behind every boundary that this machine has.

What bubblewrap and landlock do of themselves differs in all of these; what a caller reads must not.
"""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.shell_line import read_line
from actors.tools import sandbox, sandbox_places
from actors.tools.paths import Workspace
from actors.tools.pipelines import run_line
from actors.tools.process import Status
from actors.tools.sandbox import boundary, detect, run_confined, sandbox_problem
from actors.tools.sandbox_plan import Capabilities

WRITE, FULL = ExecSandbox.workspace_write, ExecSandbox.full_access
everywhere = pytest.mark.parametrize("can", ["namespaces", "users", "rules", "bubblewrap"], indirect=True)
covering = pytest.mark.parametrize("can", ["namespaces", "users", "bubblewrap"], indirect=True)
with_bubblewrap = pytest.mark.parametrize("can", ["bubblewrap"], indirect=True)
FREE = Confinement(FULL)
OPERATOR = Policy.default().layer("operator")


def under(mode: ExecSandbox | None = WRITE, policy: Policy = OPERATOR, **more) -> Confinement:
    return Confinement(mode, policy, **more)


def names_in(place: Path | str) -> list[str]:
    return sorted(os.listdir(place))


# ── how it ends ─────────────────────────────────────────────────────────────


@everywhere
async def test_a_code_is_never_taken_for_a_signal_nor_a_signal_for_a_code(can, root, shell):
    for code in (1, 2, 125, 126, 127, 128, 129, 137, 143, 192, 193, 255):
        done = await shell(f"exit {code}", root, under(), can)
        assert (done.status, done.code) == (Status.exited, code)
    for number in (1, 2, 3, 6, 9, 11, 13, 14, 15, 24, 31, 34, 64):
        done = await shell(f"kill -{number} $$", root, under(), can)
        assert (done.status, done.code) == (Status.signalled, number)


@everywhere
async def test_what_cannot_be_started_is_told_as_without_a_boundary(can, root):
    (root / "lost.sh").write_text("#!/no/such/interpreter\n")
    (root / "no-line.sh").write_text("exit 0\n")
    (root / "not-ours").write_text("#!/bin/sh\n")
    for name in ("lost.sh", "no-line.sh"):
        (root / name).chmod(0o755)
    for argv in (["./lost.sh"], ["./no-line.sh"], ["./not-ours"], ["."], ["no\0name"], ["true", "a\0b"]):
        ends = [
            await run_confined(argv, cwd=str(root), timeout=20, confinement=each, capabilities=given)
            for each, given in ((under(), can), (FREE, None))
        ]
        assert ends[0].status in (Status.not_found, Status.not_started), argv
        assert [(each.status, each.code, each.output) for each in ends] == [
            (ends[1].status, None, ends[1].output)
        ] * 2, argv


@everywhere
async def test_a_command_may_have_more_words_than_a_backend_takes_options(can, root):
    many = ["x"] * 20_000
    done = await run_confined(
        ["sh", "-c", "echo $#", "sh", *many], cwd=str(root), timeout=20, confinement=under(), capabilities=can
    )
    assert (done.code, done.output) == (0, "20000\n")


@covering
async def test_a_command_cannot_end_stop_or_speak_for_what_stands_before_it(can, root, marker, python):
    code = f"""
        import os, signal
        for number in range(1, 65):
            if number not in (signal.SIGCHLD,):
                try:
                    os.kill(1, number)
                except OSError:
                    pass
        for each in range(3, 64):
            try:
                os.write(os.open(f"/proc/1/fd/{{each}}", os.O_WRONLY | os.O_NONBLOCK), b"\\nhit\\0" + b"0\\0forged\\n")
            except OSError:
                pass
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "{marker.text}")
        os._exit(7)
    """
    done = await python(code, root, under(), can)
    assert (done.status, done.code, done.hit) == (Status.exited, 7, None), done.output
    assert marker.living() == []


@everywhere
async def test_orphans_of_a_command_do_not_keep_it_from_ending_and_a_stopped_one_ends_with_its_time(
    can, root, marker, shell
):
    done = await shell("for each in 1 2 3 4 5 6; do (true &) ; done; sleep 0.1; echo well", root, under(), can)
    assert (done.code, done.output) == (0, "well\n")
    done = await shell("kill -STOP $$", root, under(), can, timeout=0.5)
    assert done.status is Status.timed_out
    done = await shell("(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo on", root, under(), can)
    assert (done.code, done.output) == (0, "on\n")


@covering
async def test_a_cap_on_memory_counts_those_that_lost_their_parent(can, root, marker, python):
    code = """
        import os, time
        for _ in range(4):
            if not os.fork():
                if not os.fork():
                    os.setsid()
                    kept = b"x" * 50_000_000
                    time.sleep(60)
                os._exit(0)
            os.wait()
        time.sleep(60)
    """
    done = await python(code, root, under(caps=ExecCaps(memory_bytes=150_000_000)), can)
    assert (done.status, done.code, done.hit) == (Status.signalled, signal.SIGKILL, "memory_bytes")


# ── where it runs ───────────────────────────────────────────────────────────

ODD = ("a b", "new\nline", "-bind", "quote'\"", "däß", os.fsdecode(b"not\xffutf-8"), "*", "$HOME", "x" * 255)


@everywhere
@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
async def test_a_workspace_may_have_any_name(name, can, root, outside, shell):
    inside = root / name
    inside.mkdir()
    (inside / ".env").write_text("canary")
    (inside / name).mkdir()
    policy = OPERATOR.deny_write(f"{name.replace('$', '?')}/*") if name.isprintable() and name.isascii() and "*" not in name else OPERATOR
    done = await shell("echo made > made; cat made; cat .env; echo x > ../beside", inside, under(policy=policy), can)
    assert done.output.startswith("made\n")
    assert (inside / "made").read_text() == "made\n"
    assert not (root / "beside").exists()
    if can.namespaces or can.bubblewrap:
        assert "canary" not in done.output


@everywhere
async def test_a_workspace_that_is_a_link_is_the_place_it_leads_to(can, root, outside, shell):
    (root.parent / "link").symlink_to(root)
    done = await shell("echo made > made; pwd -P; echo x > ../outside/made", root.parent / "link", under(), can)
    assert done.output.splitlines()[0] == str(root)
    assert (names_in(root), names_in(outside)) == (["made"], ["victim"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only an administrator works with the files of others")
@pytest.mark.parametrize("can", ["namespaces", "rules", "bubblewrap"], indirect=True)
async def test_root_works_with_the_files_of_others_in_the_workspace_as_without_a_boundary(can, root, shell):
    (root / "theirs").write_text("theirs\n")
    (root / "theirs").chmod(0o600)
    os.chown(root / "theirs", 1234, 1234)
    for confinement, given in ((FREE, None), (under(), can)):
        done = await shell("cat theirs && echo more >> theirs && stat -c %u theirs && chown 99 theirs", root, confinement, given)
        assert (done.code, done.output.splitlines()[-1]) == (0, "1234"), done.output
        assert (root / "theirs").stat().st_uid == 99
        os.chown(root / "theirs", 1234, 1234)


# ── which machine it is ─────────────────────────────────────────────────────


def program(place: Path, text: str) -> str:
    place.mkdir(parents=True, exist_ok=True)
    at = place / "bwrap"
    at.write_text(f"#!/bin/sh\n{text}\n")
    at.chmod(0o755)
    return str(at)


@pytest.fixture
def fresh(monkeypatch):
    """A machine that is asked anew, with nothing where the system keeps its programs."""
    monkeypatch.setattr(sandbox, "SYSTEM_PLACES", ())
    return detect.__wrapped__


def test_a_bubblewrap_that_does_not_work_is_passed_over_for_the_next(fresh, tmp_path, monkeypatch):
    ours = detect()
    said = tmp_path / "asked"
    for text in (f"echo $@ >> {said}; exit 1", f"echo >> {said}; exit 0", f"echo >> {said}; kill -9 $$"):
        program(tmp_path / "broken", text)
        monkeypatch.setenv("PATH", f"{tmp_path}/broken")
        assert fresh() == attrs.evolve(ours, bubblewrap=None)
        assert said.exists()
        said.unlink()
        if ours.bubblewrap is not None:
            monkeypatch.setenv("PATH", f"{tmp_path}/broken:{os.path.dirname(ours.bubblewrap)}")
            assert fresh() == ours


def test_a_bubblewrap_is_never_looked_for_where_we_stand(fresh, root, monkeypatch):
    ran = root / "ran"
    program(root, f"touch {ran}")
    monkeypatch.chdir(root)
    for path in (".", "", ":", f"../{root.name}"):
        monkeypatch.setenv("PATH", path)
        assert fresh().bubblewrap is None
    assert not ran.exists()


def test_a_machine_whose_calls_we_do_not_know_is_never_said_to_filter_them(monkeypatch):
    ours = detect()
    monkeypatch.setattr("platform.machine", lambda: "other")
    assert detect.__wrapped__() == attrs.evolve(ours, seccomp=False)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and a way to drop its rights")
def test_root_without_the_rights_of_root_is_held_by_what_is_left():
    """As in a container."""
    code = "from actors.tools.sandbox import detect; can = detect(); print(can.root, can.landlock, can.seccomp)"
    for dropped in ("-sys_admin", "-all"):
        done = subprocess.run(
            ["setpriv", f"--bounding-set={dropped}", "--inh-caps=-all", sys.executable, "-c", code],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        ours = detect()
        assert done.stdout.split() == ["True", str(ours.landlock), str(ours.seccomp)]


@pytest.mark.skipif(detect().bubblewrap is None, reason="bubblewrap is not installed here, or does not work")
def test_the_one_of_the_system_goes_before_what_others_put_in_the_path(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    program(tmp_path / "early", f"touch {ran}; exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}/early:{os.environ['PATH']}")
    assert detect.__wrapped__().bubblewrap == detect().bubblewrap
    assert not ran.exists()


async def test_a_bubblewrap_that_commands_can_write_holds_nothing(root, outside, shell):
    ran = outside / "ran"
    planted = program(root / "bin", f"touch {ran}; exit 0")
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    can = Capabilities(bubblewrap=planted)
    policy = OPERATOR.allow_write(f"{root}/bin/*")
    for place, each in ((root, OPERATOR), (outside, policy)):
        assert sandbox_problem(WRITE, each, str(place)) is None
        with pytest.raises(sandbox.SandboxUnavailable, match="commands could change"):
            await shell("true", place, under(WRITE, each), can)
        await shell("true", place, under(None, each, record=record), can)
    assert [each.backend for each in told] == ["none", "none"]
    assert not ran.exists()


def test_what_starts_commands_is_not_what_lies_in_a_workspace(root, monkeypatch):
    """A virtual environment does, often, and its settings say where its Python loads from."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "env"], check=True)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(os.path.isdir, sys.path)])
    code = "import sys; from actors.tools.sandbox_places import STARTER; print(sys.executable, STARTER, sep='\\n')"
    done = subprocess.run(
        [root / "env/bin/python", "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    ran, starter = done.stdout.splitlines()
    assert ran.startswith(f"{root}/") and not starter.startswith(f"{root}/")
    assert sandbox_problem(WRITE, OPERATOR, str(root)) is None or not detect().landlock
    monkeypatch.setattr(sandbox_places, "STARTER", f"{root}/python/bin/python3")
    problem = sandbox_problem(WRITE, OPERATOR, str(root))
    assert problem is not None
    assert f"{root}/python/bin/python3, which starts commands, is where commands could change it" in problem


@with_bubblewrap
async def test_where_the_policy_hides_what_starts_commands_the_next_backend_stands_in(can, root, shell):
    policy = OPERATOR.deny_read(f"{os.path.dirname(os.path.dirname(sandbox_places.STARTER))}/*")
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    if can.landlock and (can.namespaces or can.seccomp):
        done = await shell("echo well", root, under(policy=policy, record=record), can)
        assert ([each.backend for each in told], done.output) == (["landlock"], "well\n")
    with pytest.raises(sandbox.SandboxUnavailable, match="hides"):
        await shell("echo well", root, under(policy=policy), attrs.evolve(can, landlock=0))


@with_bubblewrap
async def test_behind_a_boundary_another_one_is_held_or_said_not_to_be(can, root, outside):
    """Whatever works in there; what was granted to the outer command is all that the inner one can have."""
    code = f"""
        import sys, trio
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from actors.agents.confinement import Confinement
        from actors.agents.contract import ExecSandbox
        from actors.agents.policy import Policy
        from actors.tools.sandbox import run_confined
        async def record(applied):
            print(applied.backend, flush=True)
        done = trio.run(lambda: run_confined(
            ["sh", "-c", "echo x > {outside}/made; echo x > made; echo ended"], cwd={str(root)!r}, timeout=20,
            confinement=Confinement(None, Policy.default(), record=record)))
        print(done.output)
    """
    done = await run_confined(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=str(root), timeout=40, confinement=under(), capabilities=can
    )
    assert done.output.splitlines()[0] in ("bubblewrap", "landlock", "none"), done.output
    assert "ended" in done.output.splitlines()
    assert (names_in(root), names_in(outside)) == (["made"], ["victim"])


@with_bubblewrap
async def test_a_place_that_bubblewrap_cannot_mount_starts_nothing_and_is_no_verdict(can, root, monkeypatch, shell):
    monkeypatch.setattr(sandbox, "bubblewrap_options", lambda *_, **__: ["--ro-bind", "/no/such/place", "/"])
    done = await shell("touch made", root, under(), can)
    assert done.status is Status.not_started
    assert "the sandbox could not be set up" in done.output
    assert "/no/such/place" in done.output
    assert names_in(root) == []


@with_bubblewrap
async def test_no_descriptor_is_left_open_by_bubblewrap_either(can, root, shell):
    await shell("true", root, under(), can)
    before = names_in("/proc/self/fd")
    for line in ("true", "exit 1", "sleep 9"):
        await shell(line, root, under(), can, timeout=0.3)
    assert names_in("/proc/self/fd") == before


@with_bubblewrap
async def test_a_command_of_bubblewrap_ends_when_whoever_wants_it_lets_go(can, root, marker):
    """As when the runtime is killed: nobody holds the other end of its pipe any more."""
    with trio.fail_after(20):
        async with boundary(under(), str(root), can) as around:
            with around.behind(["sh", "-c", f"setsid sleep {marker.text} & sleep {marker.text}"]) as (through, _):
                assert through is not None
                started = await trio.lowlevel.open_process(through.argv, pass_fds=through.pass_fds)
                while len(marker.living()) < 3:
                    await trio.sleep(0.02)
        assert await started.wait() != 0
        while marker.living():
            await trio.sleep(0.02)
    assert shutil.which("sleep")


# ── lines of commands ───────────────────────────────────────────────────────


@everywhere
@pytest.mark.parametrize(
    ("text", "status", "code", "printed"),
    [
        ("printf 'b\\na\\n' | sort > out; cat out", Status.exited, 0, "a\nb\n"),
        ("sh -c 'exit 137' || echo $?", Status.exited, 0, "$?\n"),
        ("sh -c 'exit 137'", Status.exited, 137, ""),
        ("sh -c 'kill -9 $$'", Status.signalled, 9, ""),
        ("no-such-program 2> missing || cat missing", Status.exited, 0, '"no-such-program" is unavailable'),
        ("./lost.sh", Status.exited, 127, '"./lost.sh" is unavailable'),
        ("./not-ours || echo no", Status.exited, 0, '"./not-ours" cannot be started: Permission denied\nno\n'),
        ("no-such-program | cat; echo on", Status.exited, 0, "on\n"),
        ("yes | head -c 3", Status.exited, 0, "y\ny"),
        ("sh -c 'echo bad > ../outside/made' ; echo on", Status.exited, 0, "on\n"),
    ],
)
async def test_a_line_ends_behind_a_boundary_as_without_one(
    text, status, code, printed, can, root, outside, monkeypatch
):
    (root / "lost.sh").write_text("#!/no/such/interpreter\n")
    (root / "lost.sh").chmod(0o755)
    (root / "not-ours").write_text("#!/bin/sh\n")
    monkeypatch.setattr(sandbox, "_capabilities", Asked(can))
    line = read_line(text.replace("$?", "'$?'"))
    files = {name: name for name in ("out", "missing")}
    done = await run_line(line, Workspace(str(root)), files, timeout=20, confinement=under())
    assert (done.status, done.code) == (status, code), done.output
    assert printed in done.output
    assert names_in(outside) == ["victim"]


class Asked:
    """A machine that was asked before, and can do what is said."""

    def __init__(self, can: Capabilities) -> None:
        self._can = can

    async def __call__(self) -> Capabilities:
        return self._can
