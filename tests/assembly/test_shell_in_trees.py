"""Lines and background commands inside of runs: asked once, recorded, ended with their agent, orphaned by a resume."""

import os
import secrets
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import RISKY_LAYER, Policy
from actors.agents.ports import Act, Approval, ApprovalRequest, CompletionRequest
from actors.agents.rows import AttemptBegun, StepDone
from actors.assembly.recovering import Retry
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench


@attrs.define
class Asked:
    """Answers yes but for what is in ``no``, and keeps what it was asked."""

    no: tuple[str, ...] = ()
    requests: list[ApprovalRequest] = attrs.Factory(list)

    async def decide(self, request: ApprovalRequest) -> Approval:
        self.requests.append(request)
        return Approval(request.target not in self.no, "not that")


@pytest.fixture
def length() -> str:
    """A length of sleep that nobody else sleeps."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs /proc to see which processes live")
    return f"600.{secrets.randbelow(10**12):012d}"


def living(length: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if length.encode() in line:
            found.append(line.replace(b"\0", b" ").decode())
    return found


# ── judging ─────────────────────────────────────────────────────────────────


async def test_a_human_is_asked_once_for_the_commands_and_once_for_each_file(tmp_path: Path) -> None:
    line = "touch a; touch b | cat > out; cat < in >> out"
    policy = Policy.permissive().layer("op").ask_exec("touch*").ask_exec("cat").ask_write("out").ask_read("in")
    bench = Bench(tmp_path, {"root": [[call("shell", line=line)], "done"]}, policy)
    (bench.work / "in").write_text("x")
    asked = Asked()
    ran = await bench.begin(asked)
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert [(each.act, each.target) for each in asked.requests] == [(Act.exec, line), (Act.read, "in"), (Act.write, "out")]
    assert sorted(path.name for path in bench.work.iterdir()) == ["a", "b", "in", "out"]
    bench.check()


@pytest.mark.parametrize("no", ["out", "line"])
async def test_one_no_is_a_no_to_the_line(tmp_path: Path, no: str) -> None:
    line = "touch a; cat > out"
    policy = Policy.permissive().layer("op").ask_exec("touch*").ask_write("out")
    bench = Bench(tmp_path, {"root": [[call("shell", line=line)], "done"]}, policy)
    await bench.begin(Asked((line if no == "line" else no,)))
    assert list(bench.work.iterdir()) == []
    assert "not that" in bench.told()[0]


async def test_where_a_part_is_denied_nobody_is_asked_for_the_others(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("op").ask_exec("touch*").ask_write("out").deny_exec("rm")
    bench = Bench(tmp_path, {"root": [[call("shell", line="touch a > out; env rm x")], "done"]}, policy)
    asked = Asked()
    await bench.begin(asked)
    assert asked.requests == [] and list(bench.work.iterdir()) == []
    assert "exec rm: denied by policy (rule 'rm' of layer 'op')" in bench.told()[0]
    assert bench.sql("SELECT target FROM policy_events WHERE rule = 'rm' AND layer = 'op'") == ["rm"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec", {"argv": ["python", "-c", "open('made', 'w')"]}),
        ("shell", {"line": "python -c 'open(\"made\", \"w\")'"}),
        ("shell_start", {"line": "python -c 'open(\"made\", \"w\")'"}),
    ],
)
async def test_the_class_of_wrappers_asks_in_every_tool_and_is_named_in_the_record(tmp_path: Path, tool: str, arguments: dict) -> None:
    policy = Policy.permissive().layer("op").allow_exec("*")
    bench = Bench(tmp_path, {"root": [[call(tool, **arguments)], "done"]}, policy)
    asked = Asked()
    await bench.begin(asked)
    assert [each.layer for each in asked.requests] == [RISKY_LAYER]
    assert "runs code of another language" in str(asked.requests[0].rule)
    assert bench.sql("SELECT layer FROM policy_events WHERE decision = 'approved'") == [RISKY_LAYER]


# ── background ──────────────────────────────────────────────────────────────


async def test_what_runs_in_the_background_ends_with_its_agent_and_nothing_leaks(tmp_path: Path, length: str) -> None:
    lines = [f"sh -c 'setsid sleep {length} & sleep {length}'", f"sleep {length} | sleep {length}"]
    seen: list[int] = []

    async def look(request: CompletionRequest) -> None:
        if request.turns[0].text.startswith("c") and len(request.turns) == 3:  # type: ignore[union-attr]
            with trio.fail_after(10):
                while len(living(length)) < 4:
                    await trio.sleep(0.01)
        seen.append(len(living(length)))

    answers = {
        "root": [[spawn("c")], "done"],
        "c": [[call("shell_start", line=line) for line in lines], [call("shell_poll", handle="1.2")], "c"],
    }
    bench = Bench(tmp_path, answers, before=look)
    ran = await bench.begin()
    assert ran is not None and ran.leaks.empty and ran.outcome.kind is OutcomeKind.finished
    assert max(seen) >= 4, "the control: they ran"
    # After the child's own end, and not only after the tree's.
    assert seen[-1] == 0 and living(length) == []
    bench.check()


async def test_a_stop_from_outside_ends_them_too(tmp_path: Path, length: str) -> None:
    line = f"sh -c 'setsid sleep {length} & sleep {length}'"
    answers = {"root": [[call("shell_start", line=line)], [call("exec", argv=["sleep", length])], "done"]}
    bench = Bench(tmp_path, answers)
    with trio.move_on_after(30) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.begin)
            while len([each for each in living(length) if each.startswith("sleep")]) < 3:
                await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert living(length) == []
    assert bench.tree is not None and bench.tree.leaks().empty


async def test_after_a_resume_a_handle_is_orphaned_and_says_so(tmp_path: Path) -> None:
    poll = [call("shell_poll", handle="1.1"), call("shell_kill", handle="1.1"), call("shell_poll", handle="1.2")]
    answers = {"root": [[call("shell_start", line="sleep 60")], [call("list_dir")], poll, "done"]}
    bench = Bench(tmp_path, answers)
    second_step = Death(when=holds(StepDone, lambda row: row.step == 2))
    assert await bench.begin(death=second_step) is None
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    polled, killed, unknown = bench.told()[-3:]
    assert "[handle 1.1: orphaned]" in polled and "[handle 1.1: orphaned]" in killed
    assert "there is no handle '1.2'" in unknown
    bench.check()


async def test_a_start_that_nobody_saw_come_back_is_put_to_the_operator(tmp_path: Path) -> None:
    answers = {"root": [[call("shell_start", line="sh -c 'echo x >> started'")], "done"]}
    bench = Bench(tmp_path, answers)
    seen = []

    def result_of_the_start(rows) -> bool:
        seen.extend(rows)
        return any(isinstance(row, AttemptBegun) for row in seen) and not any(isinstance(row, AttemptBegun) for row in rows)

    assert await bench.begin(death=Death(when=result_of_the_start)) is None
    ran = await bench.go_on()
    assert ran is not None and ran.terminal is None, "it waits"
    [attempt] = bench.open_attempts()
    assert attempt.tool == "shell_start"
    before = (bench.work / "started").read_text() if (bench.work / "started").exists() else ""
    ran = await bench.recover(Retry(attempt.key))
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished
    assert "handle 1.1" in bench.told()[0] and len(before) <= 2
    bench.check()


async def test_a_line_whose_process_ended_in_the_middle_is_run_again_like_exec(tmp_path: Path) -> None:
    answers = {"root": [[call("shell", line="echo x > made; cat made")], "done"]}
    bench = Bench(tmp_path, answers)
    assert await bench.begin(death=Death(when=holds(StepDone))) is None
    ran = await bench.go_on()
    assert ran is not None and ran.outcome.kind is OutcomeKind.finished and bench.open_attempts() == []
    assert bench.told() == ["[exit code 0]\nx\n"]
    bench.check()
