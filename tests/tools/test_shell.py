"""A line is judged whole before anything runs, means what it means to a shell, and leaves nothing behind."""

import os
import subprocess
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, ObservationKind
from actors.agents.shell_line import LineRefused, read_line
from actors.errors import ToolFailed
from actors.tools.paths import Workspace
from actors.tools.pipelines import run_line
from actors.tools.process import Status
from actors.tools.sandbox import sandbox_problem
from actors.tools.shell import Shell


def in_a_shell(line, place):
    done = subprocess.run(["sh", "-c", line], cwd=place, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


OPEN = Confinement(ExecSandbox.full_access)


async def text(line, context):
    return (await Shell().run({"line": line}, context)).text


# ── what it does ────────────────────────────────────────────────────────────


async def test_a_line_runs_in_the_workspace_and_tells_its_end_and_output(root, context):
    seen = await Shell().run({"line": "printf 'b\\na\\n' | sort > out; cat out && pwd"}, context)
    assert (seen.kind, seen.target) == (ObservationKind.tool, "printf 'b\\na\\n' | sort > out; cat out && pwd")
    assert seen.text == f"[exit code 0]\na\nb\n{root}\n"
    assert seen.changed and (root / "out").read_text() == "a\nb\n"
    assert not (await Shell().run({"line": "cat out | sort"}, context)).changed


@pytest.mark.parametrize(
    ("line", "code", "printed"),
    [
        ("false || echo a", 0, "a"),
        ("false && echo a", 1, ""),
        ("true || echo a", 0, ""),
        ("false && echo a || echo b", 0, "b"),
        ("true || echo a && echo b", 0, "b"),
        ("false; echo a", 0, "a"),
        ("echo a; false", 1, "a"),
        ("false | true", 0, ""),
        ("true | false", 1, ""),
        ("nothing-of-that-name || echo no", 0, "is unavailable*no"),
        ("nothing-of-that-name", 127, "is unavailable"),
        ("nothing-of-that-name 2> e || cat e", 0, "is unavailable"),
        ("nothing-of-that-name 2>/dev/null", 127, ""),
        ("nothing-of-that-name 2>&1 | cat", 0, "is unavailable"),
        ("./ || echo no", 0, "cannot be started*no"),
        ("cat < missing || echo no", 0, "no such file*no"),
        ("echo a > missing/x || echo no", 0, "no such file*no"),
        ("echo a > . || echo no", 0, "directory*no"),
        ("yes | head -n 1", 0, "y"),
        ("cat < /dev/null", 0, ""),
        ("ls missing 2> /dev/null", 2, ""),
    ],
)
async def test_each_end_of_a_part_leads_where_a_shell_would_go(context, line, code, printed):
    head, _, rest = (await text(line, context)).partition("\n")
    assert head == f"[exit code {code}]"
    rest = "" if rest == "(it printed nothing)" else rest
    at = 0
    for piece in printed.split("*"):
        assert piece in rest[at:]
        at = rest.index(piece, at) + len(piece)
    assert printed or not rest


async def test_a_signal_that_ends_the_last_command_is_told(context):
    assert await text("sh -c 'kill -9 $$'", context) == "[ended by signal 9]\n(it printed nothing)"
    assert await text("sh -c 'kill -9 $$' || echo b", context) == "[exit code 0]\nb\n"


@pytest.mark.parametrize("line", ["echo $HOME", "ls *", "ls &", "cat <<x", "echo 'a", "| ls", "ls\nid"])
async def test_a_line_that_is_not_of_the_language_runs_nothing_and_asks_nobody(root, context, line):
    with pytest.raises(LineRefused):
        await Shell().run({"line": f"touch made; {line}"}, context)
    assert context.asked == [] and list(root.iterdir()) == []


# ── judged before the first process ─────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        "touch made; rm x",
        "touch made && rm x",
        "false && rm x; touch made",
        "touch made | rm x",
        "touch made; env rm x",
        "touch made; sh -c 'ls; rm x'",
        "touch made; find . -exec rm x ';'",
        "touch made; /bin/rm x",
        "touch made; cat < secret.txt",
        "touch made; echo a > locked/x",
        "touch made; echo a >> locked/x",
        "touch made; ls 2> locked/x",
        "touch made; cat < sub/../secret.txt",
        "touch made; cat < link",
        "echo a > made > locked/x",
    ],
)
async def test_a_deny_of_any_part_is_a_deny_of_the_line_and_nothing_runs(root, context, line):
    (root / "sub").mkdir()
    (root / "locked").mkdir()
    (root / "secret.txt").write_text("canary")
    (root / "link").symlink_to("secret.txt")
    before = sorted(os.listdir(root))
    context.policy = Policy.permissive().layer("op").deny_exec("rm*").deny_read("secret.txt").deny_write("locked/*")
    with pytest.raises(ActRefused) as refused:
        await Shell().run({"line": line}, context)
    assert refused.value.refusal.layer == "op" and "canary" not in str(refused.value)
    assert sorted(os.listdir(root)) == before and list((root / "locked").iterdir()) == []
    # The control: without the rule the first part runs.
    context.policy = Policy.permissive()
    await Shell().run({"line": line}, context)
    assert sorted(os.listdir(root)) != before or list((root / "locked").iterdir())


async def test_the_policy_is_asked_for_every_program_and_every_file(root, context):
    (root / "in").write_text("x")
    await text("sort -r < in | cat 2>&1 >> out; ls 2> /dev/null > sub/../o2", context)
    assert context.lines == ["sort -r < in | cat 2>&1 >> out; ls 2> /dev/null > sub/../o2"]
    assert context.asked == [
        (Act.exec, "sort"), (Act.exec, "sort -r"), (Act.exec, "cat"), (Act.exec, "ls"),
        (Act.read, "in"), (Act.write, "out"), (Act.write, "o2"),
    ]  # fmt: skip


@pytest.mark.parametrize("target", ["../x", "/etc/passwd", "../secret/key.txt", "out/../../x", "/dev/zero", "/dev/null/x", "away", "away/key.txt"])
@pytest.mark.parametrize("operator", ["<", ">", ">>", "2>"])
async def test_a_redirection_leads_nowhere_outside_the_workspace(root, context, target, operator):
    (root / "away").symlink_to("../secret")
    if target == "away":
        (root / "away").unlink()
        (root / "away").symlink_to("../secret/key.txt")
    with pytest.raises(ToolFailed, match="leads out of the workspace"):
        await Shell().run({"line": f"touch made; cat {operator} {target}"}, context)
    assert context.asked == [] and not (root / "made").exists()
    # The control: a shell goes there.
    if target == "../secret/key.txt":
        assert in_a_shell(f"cat < {target}", root) == "canary\n"


@pytest.mark.parametrize(
    "line",
    [
        "ln -s ../secret/key.txt here; cat < here",
        "ln -s ../secret/key.txt here; echo bad > here",
        "ln -s ../secret/key.txt here; echo bad >> here",
        "ln -s ../secret here; cat < here/key.txt",
        "ln -s ../secret here; echo bad > here/key.txt",
        "ln ../secret/key.txt here; echo bad > here",
        "ln ../secret/key.txt here; echo bad >> here",
        "mkfifo here; cat < here",
        "mkfifo here; echo bad > here",
        "mkdir here; echo bad > here",
    ],
)
async def test_what_a_command_made_of_a_path_after_it_was_judged_is_not_followed(root, context, line):
    seen = await text(line, context)
    assert seen.startswith("[exit code 1]") and "canary" not in seen
    assert (root.parent / "secret" / "key.txt").read_text() == "canary\n"
    if line.startswith("ln"):
        # The control: a shell follows it.
        (root / "here").unlink()
        assert "canary" in in_a_shell(line, root) or "bad" in (root.parent / "secret" / "key.txt").read_text()


@pytest.mark.parametrize("made", [lambda path: os.mkfifo(path), lambda path: os.link(path.parent.parent / "secret" / "key.txt", path)])
@pytest.mark.parametrize("operator", [">", ">>", "2>"])
async def test_what_comes_to_stand_where_a_file_is_about_to_be_made_is_not_opened(root, made, operator):
    line = read_line(f"echo bad {operator} new")
    workspace = Workspace(str(root), lambda name: made(root / name) if name == "new" else None)
    finished = await run_line(line, workspace, {"new": "new"}, timeout=5, confinement=OPEN)
    assert finished.code == 1 and "exists" in finished.output
    assert (root.parent / "secret" / "key.txt").read_text() == "canary\n"


# ── behind a boundary ───────────────────────────────────────────────────────


@pytest.mark.parametrize("line", ["echo a > f", "echo a >> f", "ls missing 2> f", "true && echo a > f"])
async def test_where_commands_may_write_nothing_no_redirection_writes_for_them(root, context, line):
    context.confinement = Confinement(ExecSandbox.read_only)
    with pytest.raises(ToolFailed, match="commands may not write here"):
        await text(line, context)
    assert list(root.iterdir()) == [] and context.asked == []


needs_a_sandbox = pytest.mark.skipif(
    sandbox_problem(ExecSandbox.workspace_write, Policy.default(), "/srv") is not None, reason="no sandbox can be had here"
)


@needs_a_sandbox
async def test_every_command_of_a_line_is_behind_the_boundary(root, context):
    """The control is full_access, as in all other tests of this file."""
    line = f"cat ../secret/key.txt; sh -c 'echo bad > ../secret/key.txt' || echo no | sh -c 'echo worse >> {root.parent}/secret/key.txt'"
    records = []

    async def record(applied):
        records.append(applied)

    context.confinement = Confinement(ExecSandbox.workspace_write, Policy.default(), record=record)
    assert (await text(line, context)).startswith("[exit code ")
    assert (root.parent / "secret" / "key.txt").read_text() == "canary\n"
    assert [applied.mode for applied in records] == [ExecSandbox.workspace_write], "recorded once for the line"
    context.confinement = Confinement(ExecSandbox.full_access)
    await text(line, context)
    assert (root.parent / "secret" / "key.txt").read_text() != "canary\n"


@needs_a_sandbox
@pytest.mark.parametrize(
    ("line", "code", "printed"),
    [
        ("printf 'b\\na\\n' | sort > out; cat out && false", 1, "a\nb\n"),
        ("nothing-of-that-name || echo no", 0, "is unavailable"),
        ("nothing-of-that-name 2> e || cat e", 0, "is unavailable"),
        ("nothing-of-that-name 2>/dev/null", 127, "(it printed nothing)"),
        ("nothing-of-that-name 2>&1 | cat", 0, "is unavailable"),
        ("true | nothing-of-that-name", 127, "is unavailable"),
        ("yes | head -n 1", 0, "y"),
    ],
)
async def test_a_line_comes_to_the_same_behind_a_boundary(context, line, code, printed):
    for mode in (ExecSandbox.workspace_write, ExecSandbox.full_access):
        context.confinement = Confinement(mode, Policy.default())
        head, _, rest = (await text(line, context)).partition("\n")
        assert head == f"[exit code {code}]" and printed in rest, mode


@needs_a_sandbox
async def test_behind_a_boundary_a_time_out_leaves_nothing_and_no_descriptor(context, marker):
    context.confinement = Confinement(ExecSandbox.workspace_write, Policy.default())
    await text("true", context)
    before = len(os.listdir("/proc/self/fd"))
    context.exec_timeout = 0.5
    for line in (f"sleep {marker.text} | sleep {marker.text} 2>&1 | cat", f"sh -c 'setsid sleep {marker.text} & sleep {marker.text}'"):
        assert "timed out" in await text(line, context)
        assert marker.living() == [] and context.leaked == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_the_cap_on_wall_time_is_for_the_whole_line_and_is_named(context):
    context.confinement = Confinement(ExecSandbox.full_access, caps=ExecCaps(wall_seconds=0.4))
    assert "; the cap wall_seconds was reached]\nfirst" in await text("echo first; sleep 0.3; sleep 0.3", context)


# ── ends ────────────────────────────────────────────────────────────────────


async def test_one_time_out_is_for_the_whole_line_and_what_was_printed_is_kept(context):
    context.exec_timeout = 0.6
    began = trio.current_time()
    seen = await text("echo first; sleep 0.4; echo second; sleep 0.4; echo third", context)
    assert seen == "[timed out after 0.6 s and was killed; what it had printed follows]\nfirst\nsecond\n"
    assert trio.current_time() - began < 3


@pytest.mark.parametrize(
    "line",
    [
        "sh -c 'sleep {} & sleep {}'",
        "sleep {} | sleep {}",
        "sh -c 'setsid sleep {} & sleep {}' | cat",
        "env -i sleep {}; true",
        "true && sh -c '(sleep {} &) ; sleep {}'",
        # Left its parent, its session and the output: only the mark is left.
        "sh -c '(setsid sleep {} > /dev/null 2>&1 &)'; sleep {}",
    ],
)
async def test_a_time_out_or_a_cancel_leaves_no_process_of_any_depth(context, marker, line):
    line = line.replace("{}", marker.text)
    context.exec_timeout = 0.3
    assert "timed out" in await text(line, context)
    assert marker.living() == [] and context.leaked == []
    context.exec_timeout = 60
    with trio.move_on_after(0.3) as scope:
        await text(line, context)
    assert scope.cancelled_caught and marker.living() == []


@pytest.mark.parametrize("how", ["sleep {} &", "setsid sleep {} &", "(setsid sleep {} &);", "nohup sleep {} 2>&1 &"])
async def test_an_orphan_that_holds_the_output_does_not_hold_the_call(context, marker, how):
    began = trio.current_time()
    seen = await text(f"sh -c '{how.replace('{}', marker.text)} echo done'", context)
    assert "[exit code 0]" in seen and "done" in seen
    assert trio.current_time() - began < 3
    assert marker.living() == [] and context.leaked == []


async def test_what_is_printed_is_bounded(root):
    line = read_line("yes | head -c 3000000")
    finished = await run_line(line, Workspace(str(root)), {}, timeout=20, limit=10_000, confinement=OPEN)
    assert finished.status is Status.exited and len(finished.output) < 10_200
    assert finished.left_out == 3_000_000 - 10_000 and "bytes left out" in finished.output


async def test_no_descriptor_is_left_open(context):
    def open_now():
        return len(os.listdir("/proc/self/fd"))

    await text("true", context)
    before = open_now()
    for line in ["echo a | cat | cat > f; cat < f", "nothing | nothing | cat", "cat < missing | cat", "cat | cat > no/x"]:
        await text(line, context)
    with trio.move_on_after(0.1):
        await text("sleep 5 | sleep 5", context)
    assert open_now() == before


# ── against the shell ───────────────────────────────────────────────────────

COMMANDS = st.sampled_from(["true", "false", "echo a", "printf 'b c'", "cat", "cat < in", "ls missing", "sh -c 'echo o; echo e >&2'", "head -c 2 < in"])
REDIRECTS = st.sampled_from(["", "", "", " > f", " >> f", " 2> e", " 2>&1", " > f 2>&1", " 2>&1 > f", " 2> /dev/null", " > f > g"])
# Commands beside each other share no file that one of them writes, and read all they are given: what comes of
# anything else differs from run to run.
STAGES = st.lists(st.sampled_from([" | cat", " 2>&1 | cat", " 2> /dev/null | cat", " | sh -c 'cat; exit 3'"]), max_size=2).map("".join)
PARTS = st.tuples(COMMANDS, STAGES, REDIRECTS).map("".join)
JOINS = st.sampled_from([" && ", " || ", "; "])
LINES = st.lists(st.tuples(PARTS, JOINS).map("".join), max_size=4).flatmap(lambda head: PARTS.map(lambda last: "".join(head) + last))


@given(LINES)
@settings(max_examples=60, deadline=None)
def test_a_line_comes_to_what_it_comes_to_in_a_shell(tmp_path_factory, line):
    ours: Path = tmp_path_factory.mktemp("ours")
    theirs: Path = tmp_path_factory.mktemp("theirs")
    for place in (ours, theirs):
        (place / "in").write_text("from in\n")
    read = read_line(line)
    files = {redirect.target: redirect.target for command in read.commands for redirect in command.redirects}
    finished = trio.run(lambda: run_line(read, Workspace(str(ours)), files, timeout=20, confinement=OPEN))
    done = subprocess.run(
        ["sh", "-c", line], cwd=theirs, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert finished.code == done.returncode
    # Programs beside each other print in no order, and into each other's lines.
    assert sorted(finished.output) == sorted(done.stdout)
    assert contents(ours) == contents(theirs)


def contents(place: Path) -> dict[str, list[str]]:
    return {path.name: sorted(path.read_text()) for path in place.iterdir()}
