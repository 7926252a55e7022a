"""A criterion passes, fails, or could not be evaluated; and it is no way to look outside."""

import os
import shlex

import pytest
import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.ports import Verifier
from actors.agents.verification import Verification
from actors.tools import verifying
from actors.tools.process import Finished, Status
from actors.tools.sandbox import SandboxUnavailable
from actors.tools.verifying import TAIL_CHARS, Verdict, evaluate


async def judged(
    criterion, root, *, file=None, timeout=5.0, may_read=lambda _: True, may_exec=lambda _: True
) -> Verdict:
    verifier: Verifier = evaluate
    found = await verifier(
        criterion, root=str(root), file=file, exec_timeout=timeout, may_read=may_read, may_exec=may_exec
    )
    assert isinstance(found, Verdict)
    return found


async def test_a_file_of_the_workspace_contains_a_text_or_not(root):
    (root / "a.txt").write_text("one needle two")
    holds = Verification.workspace_file_contains("a.txt", "needle")
    assert await judged(holds, root) == Verdict("contains", "passed")
    missing = Verification.workspace_file_contains("a.txt", "thread")
    assert await judged(missing, root) == Verdict("contains", "failed", "the text is not there")
    absent = Verification.workspace_file_contains("b.txt", "needle")
    assert await judged(absent, root) == Verdict("contains", "failed", "the file does not exist")


@pytest.mark.parametrize("file", ["../secret/key.txt", "out/key.txt", "key", "/etc/passwd", "a\nb"])
async def test_a_criterion_is_no_oracle_about_what_lies_outside(root, file):
    os.symlink("../secret", root / "out")
    os.symlink("../secret/key.txt", root / "key")
    said = [await judged(Verification.workspace_file_contains(file, needle), root) for needle in ("canary", "nothing")]
    assert said[0] == said[1]
    assert said[0].verdict == "errored"


async def test_a_link_that_stays_inside_may_be_judged(root):
    (root / "a.txt").write_text("needle")
    os.symlink("a.txt", root / "link")
    assert (await judged(Verification.workspace_file_contains("link", "needle"), root)).verdict == "passed"


async def test_a_criterion_is_no_oracle_about_what_may_not_be_read(root):
    (root / "a.key").write_text("canary")
    os.symlink("a.key", root / "plain")
    asked = []

    def may_read(target: str) -> bool:
        asked.append(target)
        return not target.endswith(".key")

    said = [
        await judged(Verification.workspace_file_contains(file, needle), root, may_read=may_read)
        for file in ("a.key", "plain", "absent.key")
        for needle in ("canary", "nothing")
    ]
    assert set(said) == {Verdict("contains", "errored", "the policy does not let this file be read")}
    assert set(asked) == {"a.key", "absent.key"}, "the rule sees where the file really is"


async def test_the_one_file_contains_or_equals_a_text(root):
    file = str(root / "out.txt")
    equals, contains = Verification.file_equals("done\n"), Verification.file_contains("done")
    assert (await judged(contains, root, file=file)).detail == "the file does not exist"
    for content, verdicts in [
        ("done\n", ("passed", "passed")),
        ("done", ("failed", "passed")),
        ("", ("failed", "failed")),
    ]:
        (root / "out.txt").write_text(content)
        assert (
            (await judged(equals, root, file=file)).verdict,
            (await judged(contains, root, file=file)).verdict,
        ) == verdicts
    (root / "out.txt").write_text("")
    assert (await judged(Verification.file_equals(""), root, file=file)).verdict == "passed"
    assert (await judged(contains, root)).verdict == "errored"


async def test_bytes_are_compared_and_another_encoding_is_named(root):
    file = str(root / "out.txt")
    (root / "out.txt").write_bytes(b"caf\xe9")
    assert (await judged(Verification.file_equals("caf\ufffd"), root, file=file)).verdict == "failed"
    (root / "out.txt").write_text("caf\ufffd")
    assert (await judged(Verification.file_equals("caf\ufffd"), root, file=file)).verdict == "passed"
    (root / "out.txt").write_bytes("done".encode("utf-16"))
    assert await judged(Verification.file_contains("done"), root, file=file) == Verdict(
        "contains", "failed", "the file is UTF-16 text"
    )


async def test_the_operators_own_link_is_followed(root):
    (root / "real.txt").write_text("done")
    os.symlink("real.txt", root / "link.txt")
    assert (await judged(Verification.file_contains("done"), root, file=str(root / "link.txt"))).verdict == "passed"


async def test_a_directory_in_place_of_the_file_cannot_be_judged(root):
    assert (await judged(Verification.file_contains("x"), root, file=str(root))).verdict == "errored"


@pytest.mark.parametrize(
    ("line", "expected", "verdict", "detail"),
    [
        ("echo fine", 0, "passed", "exit code 0\nfine\n"),
        ("echo bad >&2; exit 1", 0, "failed", "exit code 1\nbad\n"),
        ("exit 3", 3, "passed", "exit code 3\n"),
        ("exit 0", 3, "failed", "exit code 0\n"),
        ("exit 127", 0, "failed", "exit code 127\n"),
        ("echo x; kill -KILL $$", 9, "failed", "ended by signal 9\nx\n"),
        ("echo x; kill -KILL $$", 137, "failed", "ended by signal 9\nx\n"),
        ("echo half; sleep 9", 0, "failed", "timed out after 0.15 s\nhalf\n"),
    ],
)
async def test_a_command_passes_by_its_exit_code_and_never_by_a_signal_or_a_time_out(
    root, line, expected, verdict, detail
):
    criterion = Verification.command(["sh", "-c", line], expected)
    assert await judged(criterion, root, timeout=0.15) == Verdict("command", verdict, detail)


async def test_AB150_a_boundary_that_cannot_be_held_says_nothing_of_the_work(root, monkeypatch):
    async def unavailable(argv, **_more):
        await trio.lowlevel.checkpoint()
        raise SandboxUnavailable("no boundary here")

    monkeypatch.setattr(verifying, "run_confined", unavailable)
    found = await judged(Verification.command(["true"]), root)
    assert (found.verdict, "no boundary here" in found.detail) == ("errored", True)


@pytest.mark.parametrize("expected", [0, 3, 137])
async def test_what_a_cap_ended_never_passes_although_it_exited_as_expected(root, monkeypatch, expected):
    async def capped(argv, **_more):
        await trio.lowlevel.checkpoint()
        return Finished(Status.exited, expected, "out", 0, 0.1, hit="cpu_seconds")

    criterion = Verification.command(["x"], expected)
    monkeypatch.setattr(verifying, "run_confined", capped)
    found = await judged(criterion, root)
    assert found.verdict == "failed" and "the cap cpu_seconds was reached" in found.detail


async def test_a_command_that_cannot_be_run_is_errored_and_not_failed(root):
    missing = await judged(Verification.command(["no-such-program"]), root)
    assert (missing.verdict, "is unavailable" in missing.detail) == ("errored", True)
    (root / "plain").write_text("")
    assert (await judged(Verification.command(["./plain"]), root)).verdict == "errored"


async def test_a_command_that_is_not_allowed_does_not_run(root):
    asked = []

    def may_exec(argv) -> bool:
        asked.append(shlex.join(argv))
        return False

    criterion = Verification.command(["touch", "made.txt"])
    assert await judged(criterion, root, may_exec=may_exec) == Verdict(
        "command", "errored", "refused: the policy does not allow touch made.txt"
    )
    assert (asked, os.listdir(root)) == (["touch made.txt"], [])
    assert (await judged(criterion, root)).verdict == "passed"
    assert os.listdir(root) == ["made.txt"]


async def test_the_tail_of_the_output_is_kept(root):
    line = "head -c 100000 /dev/zero | tr '\\0' x; echo the end"
    detail = (await judged(Verification.command(["sh", "-c", line]), root)).detail
    assert detail.endswith("xxxthe end\n")
    assert len(detail) == len("exit code 0\n") + TAIL_CHARS


async def test_no_criterion_never_passes(root):
    assert await judged(Verification.none(), root) == Verdict("none", "failed", "there is no criterion")


@pytest.mark.parametrize(
    ("criterion", "phase"),
    [
        (Verification.workspace_file_contains("a.py", "x"), "contains"),
        (Verification.each_compiles(["a.py"]), "compiles"),
        (Verification.command(["sh", "-c", "touch made"]), "command"),
    ],
)
async def test_a_work_tree_that_became_a_link_is_judged_by_nobody(root, criterion, phase):
    """Whoever works above may turn it into one; what lies behind it is not the agent's, and is not touched."""
    (root / "there").mkdir()
    (root / "there" / "a.py").write_text("x = 1\n")
    (root / ".worktrees").mkdir()
    tree = root / ".worktrees" / "child"
    os.symlink("../there", tree)
    got = await evaluate(
        criterion,
        root=str(tree),
        file=None,
        exec_timeout=5.0,
        may_read=lambda _: True,
        may_exec=lambda _: True,
        confinement=Confinement(ExecSandbox.full_access),
    )
    assert (got.phase, got.verdict) == (phase, "errored") and "is a link by now" in got.detail
    assert not (root / "there" / "made").exists()
    tree.unlink()
    (root / "there").rename(tree)
    assert (await judged(criterion, tree)).verdict == "passed", "the control: the tree itself"


async def test_a_criterion_that_nothing_evaluates_yet_is_errored(root):
    assert (await judged(Verification.document_contains("a.pdf", "x"), root)).verdict == "errored"


async def test_a_cancelled_check_leaves_no_process(root, marker):
    criterion = Verification.command(["sh", "-c", f"sleep {marker.text} & wait"])
    with trio.move_on_after(0.15) as scope:
        await judged(criterion, root, timeout=60)
    assert scope.cancelled_caught
    assert marker.living() == []
