"""A command behind a boundary ends as it would without one, and what is said of it is true.

Run once for every backend that this machine has, as in `test_sandbox.py`.
"""

import errno
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.verification import Verification
from actors.errors import ToolFailed
from actors.tools import sandbox, sandbox_places, sandbox_start
from actors.tools.exec import Exec, described
from actors.tools.process import Status
from actors.tools.sandbox import SandboxUnavailable, boundary, detect, run_confined, sandbox_problem
from actors.tools.sandbox_plan import Capabilities
from actors.tools.verifying import evaluate

READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
everywhere = pytest.mark.parametrize("can", ["namespaces", "users", "rules", "bubblewrap"], indirect=True)
covering = pytest.mark.parametrize("can", ["namespaces", "users", "bubblewrap"], indirect=True)
CAN = detect()
FREE = Confinement(FULL)
# The operator who lets the network in, and denies some files.
OPERATOR = Policy.default().layer("operator")


def under(mode: ExecSandbox | None = WRITE, policy: Policy = OPERATOR, **more) -> Confinement:
    return Confinement(mode, policy, **more)


def is_there(path: str) -> bool:
    return os.path.lexists(path)


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


@covering
@pytest.mark.parametrize("stay", [0.1, 60])
async def test_who_sheds_everything_is_ended_all_the_same(stay, can, root, marker, python):
    done = await python(SHEDDING.format(m=marker.text, stay=stay), root, under(), can, timeout=0.8)
    assert done.status is (Status.exited if stay < 1 else Status.timed_out)
    assert marker.living() == []
    assert done.leaked == ()


async def test_without_a_boundary_who_sheds_everything_lives_on(root, marker, python):
    await python(SHEDDING.format(m=marker.text, stay=0.1), root, FREE)
    try:
        assert marker.living() != []
    finally:
        end_all(marker)


@everywhere
@pytest.mark.parametrize("how", ["ends", "is cancelled", "times out"])
async def test_nothing_is_left_however_a_command_comes_to_its_end(how, can, root, marker, shell):
    line = f"(setsid sleep {marker.text} &) ; sleep {marker.text} & " + ("sleep 0.1" if how == "ends" else "wait")
    with trio.move_on_after(0.8 if how == "is cancelled" else 30):
        await shell(line, root, under(), can, timeout=0.8 if how == "times out" else 30)
    assert marker.living() == []


@everywhere
async def test_a_bomb_of_forks_ends_with_its_time(can, root, marker, python):
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
        with around.behind(["sh", "-c", f"setsid sleep {marker.text} & sleep {marker.text}"]) as (through, _):
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
async def test_each_end_reads_as_without_a_boundary(line, timeout, status, code, output, can, root, shell):
    done = await shell(line, root, under(), can, timeout)
    plain = await shell(line, root, FREE, None, timeout)
    assert (done.status, done.code, done.output) == (plain.status, plain.code, plain.output) == (status, code, output)


@everywhere
async def test_who_is_judged_cannot_say_how_its_judge_ended(can, root, shell):
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


@pytest.mark.parametrize(("there", "number"), [(False, errno.ENOENT), (True, errno.EACCES)])
def test_a_closed_place_of_the_path_has_no_program_behind_a_boundary_either(monkeypatch, tmp_path, there, number):
    class Ended(Exception):
        pass

    def ends(_status, stage, error, text=""):
        raise Ended(stage, error.errno)

    def refused(*_):
        # As for whoever may not look into one of the places; root may.
        raise PermissionError(errno.EACCES, "Permission denied")

    programs = [os.fsencode(tmp_path / place / "some-program") for place in ("a", "b")]
    if there:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "some-program").write_text("")
    monkeypatch.setattr(sandbox_start, "fail", ends)
    monkeypatch.setattr(sandbox_start.posix, "execve", refused)
    monkeypatch.setattr(sandbox_start._signal, "signal", lambda *_: None)
    plan = {"limits": (), "argv": [b"some-program"], "programs": programs, "not_ours": set()}
    with pytest.raises(Ended) as ended:
        sandbox_start.become(plan, -1)
    assert ended.value.args == ("exec", number)


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


@pytest.mark.parametrize("can", ["namespaces", "rules"], indirect=True)
async def test_a_boundary_that_cannot_be_set_up_starts_nothing_and_is_no_verdict(can, root, monkeypatch, shell):
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


@pytest.mark.parametrize("can", ["namespaces", "users"], indirect=True)
async def test_a_call_of_the_kernel_that_fails_is_never_passed_over(can, root, monkeypatch, shell):
    monkeypatch.setattr(sandbox_places, "existing", lambda grants, _root: attrs.evolve(grants, writable=("/no/such/place",)))
    done = await shell("touch made", root, under(), can)
    assert done.status is Status.not_started
    assert "mount on /no/such/place: No such file or directory" in done.output
    assert os.listdir(root) == []


@everywhere
async def test_a_filter_that_the_kernel_does_not_take_is_never_passed_over(can, root, monkeypatch, shell):
    """Some functions of C return their failure as a short number; read as a long one it looks like none."""
    monkeypatch.setattr(sandbox, "call_filter", lambda *_: bytes(8))
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


async def test_a_named_boundary_that_this_machine_has_not_starts_nothing(root, context, monkeypatch, shell):
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


async def test_what_really_applied_is_recorded_before_the_command_starts(root, monkeypatch, shell):
    told: list[SandboxApplied] = []

    async def record(applied: SandboxApplied) -> None:
        assert os.listdir(root) == []
        told.append(applied)

    nothing = Capabilities()
    for mode, can in ((None, nothing), (FULL, CAN)):
        await shell("touch made; rm made", root, under(mode, record=record), can)
    assert [(each.mode, each.backend, each.net) for each in told] == [
        (WRITE, "none", "not_held"),
        (FULL, "none", "not_held"),
    ]
    assert told[0].not_held == ("workspace_write: neither bubblewrap nor landlock works",)


@everywhere
async def test_a_boundary_that_held_is_recorded_as_such(can, root, shell):
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
        with around.behind(["sh", "-c", "echo $TMPDIR"]) as (one, _), around.behind(["true"]) as (other, _):
            assert one is not None
            assert other is not None
            assert one.env == other.env
            assert is_there(one.env["TMPDIR"])
    assert not is_there(one.env["TMPDIR"])
    async with boundary(FREE, str(root), can) as around, trio.open_nursery():
        with around.behind(["true"]) as (through, _):
            assert through is None


# ── caps ────────────────────────────────────────────────────────────────────

BOUNDARIES = [WRITE, FULL]


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_on_processor_time_ends_a_command_and_is_named(mode, root, python):
    done = await python("while True: pass", root, under(mode, caps=ExecCaps(cpu_seconds=1)))
    assert (done.status, done.code, done.hit) == (Status.signalled, signal.SIGXCPU, "cpu_seconds")


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_on_memory_counts_all_processes_of_a_command_together(mode, root, python):
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
async def test_a_cap_on_open_files_is_felt_and_never_reported_as_hit(mode, root, python):
    code = "import os\nfor _ in range(100): os.open('/dev/null', 0)"
    done = await python(code, root, under(mode, caps=ExecCaps(open_files=32)))
    assert done.code != 0
    assert "Too many open files" in done.output
    assert done.hit is None
    assert (await python(code, root, under(mode))).code == 0


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_what_a_command_makes_of_a_call_that_a_cap_fails_only_it_knows(mode, root, python):
    """As the table in the docs has it; whoever makes more of it seen changes that too."""
    code = """
        import os
        try:
            {call}
        except (OSError, MemoryError):
            pass
    """
    cases = (("bytearray(400_000_000)", ExecCaps(memory_bytes=150_000_000)), ("[os.open('/', 0) for _ in range(99)]", ExecCaps(open_files=32)))
    for call, caps in cases:
        done = await python(code.format(call=call), root, under(mode, caps=caps))
        assert (done.status, done.code, done.hit) == (Status.exited, 0, None)
    below = "import os, sys\nif not os.fork():\n    while True: pass\nsys.exit(os.wait()[1] == 0)"
    done = await python(below, root, under(mode, caps=ExecCaps(cpu_seconds=1)))
    assert (done.status, done.code, done.hit) == (Status.exited, 0, None)


@pytest.mark.skipif(not CAN.landlock, reason="needs landlock")
@pytest.mark.parametrize("mode", BOUNDARIES)
async def test_a_cap_that_cannot_be_set_starts_nothing(mode, root, monkeypatch, shell):
    monkeypatch.setattr(sandbox, "limits_of", lambda _caps: (("RLIMIT_OF_NOTHING", 1, 1),))
    done = await shell("touch made", root, under(mode, caps=ExecCaps(open_files=32)))
    assert done.status is Status.not_started
    assert "a limit cannot be set" in done.output
    assert os.listdir(root) == []


async def test_a_time_out_that_is_no_cap_is_not_reported_as_one(root, shell):
    done = await shell("sleep 9", root, under(FULL, caps=ExecCaps(wall_seconds=60)), timeout=0.1)
    assert (done.status, done.hit) == (Status.timed_out, None)


# ── what it costs ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("can", ["namespaces", "rules"], indirect=True)
async def test_no_descriptor_is_left_open(can, root, shell):
    await shell("true", root, under(), can)
    before = os.listdir("/proc/self/fd")
    for line in ("true", "exit 1", "sleep 9"):
        await shell(line, root, under(), can, timeout=0.3)
    assert os.listdir("/proc/self/fd") == before


def test_a_python_that_may_not_be_run_is_named(monkeypatch, tmp_path):
    closed = tmp_path / "python3"
    closed.write_text("")
    monkeypatch.setattr("actors.tools.sandbox.STARTER", str(closed))
    assert detect.__wrapped__().closed == str(closed)


def test_a_machine_is_asked_once():
    before = detect.cache_info()
    assert detect() is CAN
    after = detect.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)
    assert shutil.which("bwrap") is not None or CAN.bubblewrap is None
