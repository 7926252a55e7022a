"""What waits for a human, and the answer from another process."""

import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.ports import Act, ApprovalRequest
from actors.agents.rows import ApprovalAsked, RunStarted
from actors.cli.approving import _show as show_question
from actors.cli.inbox import inbox as show_inbox
from actors.store.store import Store

PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]
BASE = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 5
[contract.verify]
kind = "workspace_file_contains"
file = "out.txt"
needle = "ok"
[containment]
max_total_agents = 4
max_concurrent = 4
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[run]
approve = "defer"
"""
USAGE = {"prompt_tokens": 100, "completion_tokens": 20}


def write(path: str, content: str = "x") -> list[Any]:
    return ["write_file", {"path": path, "content": content}]


def answer(*calls: list[Any], **more: Any) -> dict[str, Any]:
    return {"calls": list(calls), "usage": USAGE, **more}


def task(place: Any, script: Any, text: str = BASE) -> Any:
    return place.holding(text, script)


def inbox(place: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place.actors("inbox", "--json").stdout)
    return found


# Somebody is asked, and nobody has answered.
ASKED = "SELECT request_id FROM pending_approvals WHERE decision IS NULL AND coalesce(deferred, 2) > 0"
SCRIPT = [answer(write("a.txt")), answer(write("out.txt", "ok"))]


def test_a_question_that_is_put_off_is_exit_5_and_tells_the_commands_that_answer_and_go_on(tmp_path: Path, place: Any) -> None:
    paused = task(place, SCRIPT).actors("run", "task.toml", "--quiet")
    assert paused.returncode == 5
    [waits] = inbox(place)
    run, question = waits["run_id"], waits["id"]
    assert (waits["kind"], waits["path"], waits["act"], waits["target"], waits["live"]) == (
        "approval", "root", "write", "a.txt", False,
    )  # fmt: skip
    assert waits["tool"] == "write_file" and json.loads(waits["arguments"])["path"] == "a.txt"
    for command in (f"actors approve '{question}'", f"actors deny '{question}'", f"actors resume {run}"):
        assert command in paused.stdout, paused.stdout
        assert command in place.actors("show", run).stdout
    report = json.loads(place.actors("show", run, "--json").stdout)
    assert (report["outcome"]["kind"], report["waiting"], report["resumable"]) == ("awaiting_approval", [question], True)
    # Nobody has decided: it waits on, and nothing is asked again.
    again = json.loads(place.actors("resume", run, "--json").stdout)
    assert (again["outcome"]["kind"], again["tree"]["calls"]) == ("awaiting_approval", 1)
    approved = place.actors("approve", question.replace(run, run[:3]))
    assert approved.returncode == 0 and f"actors resume {run}" in approved.stdout and not (tmp_path / "a.txt").exists()
    assert inbox(place) == []
    assert place.actors("inbox").stdout.startswith(f"{run} has its answers, and goes on with: actors resume {run}")
    went_on = place.actors("resume", run, "--json")
    assert went_on.returncode == 5 and (tmp_path / "a.txt").read_text() == "x"
    [second] = inbox(place)
    assert place.actors("approve", second["id"]).returncode == 0
    done = place.actors("resume", run, "--json")
    assert (done.returncode, json.loads(done.stdout)["tree"]["calls"]) == (0, 2)
    assert place.actors("trace", "--check", run).returncode == 0


def test_a_no_is_read_by_the_agent_with_its_reason(tmp_path: Path, place: Any) -> None:
    task(place, [SCRIPT[0], {"text": "then not"}]).actors("run", "task.toml", "--set", "contract.max_steps=2")
    [waits] = inbox(place)
    denied = place.actors("deny", waits["id"], "--reason", "not on a Friday", "--json")
    assert json.loads(denied.stdout)["won"] and denied.returncode == 0
    done = place.actors("resume", waits["run_id"])
    assert done.returncode == 3 and not (tmp_path / "a.txt").exists()
    # Somebody was asked, and said no: no setting has to be mended.
    assert "refused write a.txt" in done.stderr and "run.approve" not in done.stderr
    connection = sqlite3.connect(tmp_path / ".actors" / "runs.db")
    [(text,)] = connection.execute("SELECT text FROM ledger_observations WHERE step = 1").fetchall()
    connection.close()
    assert "not on a Friday" in text


def test_a_yes_with_a_rule_ends_the_questions_that_fit_it(tmp_path: Path, place: Any) -> None:
    task(place, SCRIPT).actors("run", "task.toml", "--quiet")
    [waits] = inbox(place)
    slip = place.actors("approve", waits["id"], "--remember", "src/")
    assert slip.returncode == 2 and "--remember" in slip.stderr and "no path ends in a slash" in slip.stderr
    other = place.actors("approve", waits["id"], "--remember", "secrets/*")
    assert other.returncode == 2 and "--remember: 'secrets/*' does not cover what is asked for" in other.stderr
    assert "asked again about write a.txt; write a rule that fits it" in other.stderr
    typo = place.actors("approve", waits["id"], "--remember", "a[.txt")
    assert typo.returncode == 2 and "no wildcard here" in typo.stderr
    assert [each["id"] for each in inbox(place)] == [waits["id"]], "nothing was decided"
    approved = place.actors("approve", waits["id"], "--remember", "*.md", "--remember", "*.txt")
    assert approved.returncode == 0
    assert "from now on write *.txt is not asked about again in this run" in approved.stdout
    done = place.actors("resume", waits["run_id"], "--json")
    assert done.returncode == 0 and inbox(place) == []
    assert {"a.txt", "out.txt"} <= {each.name for each in tmp_path.iterdir()}
    traced = place.actors("trace", waits["run_id"]).stdout
    assert "the answer to write a.txt is yes, given from elsewhere by the operator" in traced
    [line] = [line for line in traced.splitlines() if "not asked about write out.txt: the rule '*.txt' is remembered" in line]
    assert "root: step 2: write_file" in line
    assert place.actors("trace", "--check", waits["run_id"]).returncode == 0


def test_a_yes_with_other_arguments_runs_those_and_what_is_no_call_decides_nothing(tmp_path: Path, place: Any) -> None:
    task(place, SCRIPT).actors("run", "task.toml", "--quiet")
    [waits] = inbox(place)
    for slip, why in (
        ("{", "no JSON"),
        ("[]", "must be a JSON object"),
        ("", "must be a JSON object"),
        ('{"path": "b.txt", "path": "c.txt", "content": "x"}', "a key stands twice"),
        ('{"path": "b.txt"}', "these are no arguments for write_file: 'content' is missing"),
        ('{"path": "b.txt", "content": "x", "mode": 7}', "there is no 'mode'"),
        ('{"path": ".env", "content": "x"}', "error: --arguments: write .env is denied by rule '.env' of layer 'builtin'"),
    ):
        told = place.actors("approve", waits["id"], "--arguments", slip)
        assert told.returncode == 2 and why in told.stderr and "Traceback" not in told.stderr, told.stderr
        assert len(told.stderr.splitlines()) == 1, told.stderr
    assert [each["id"] for each in inbox(place)] == [waits["id"]], "nothing was decided"
    told = place.actors("approve", waits["id"], "--arguments", '{"path": "b.txt", "content": "y"}')
    assert told.returncode == 0 and told.stdout.startswith(f"approved {waits['id']} with other arguments\n")
    late = json.loads(place.actors("approve", waits["id"], "--json").stdout)
    assert not late["won"] and json.loads(late["arguments"]) == {"path": "b.txt", "content": "y"}
    went_on = place.actors("resume", waits["run_id"])
    assert went_on.returncode == 5 and (tmp_path / "b.txt").read_text() == "y" and not (tmp_path / "a.txt").exists()
    assert place.actors("trace", "--check", waits["run_id"]).returncode == 0


def test_of_many_who_decide_at_once_one_wins_and_the_others_are_told_who_did(place: Any) -> None:
    task(place, SCRIPT).actors("run", "task.toml", "--quiet")
    [waits] = inbox(place)
    words = ("approve", "deny", "approve", "deny")
    running = [place.begun(word, waits["id"]) for word in words]
    ends = [(each.communicate(timeout=60), each.returncode) for each in running]
    assert sorted(code for _, code in ends) == [0, 1, 1, 1]
    [(winner, _)] = [end for end, code in ends if code == 0]
    decision = winner.split()[0]
    for (_, told), code in ends:
        assert code == 0 or f"was {decision} before, by operator" in told
    late = place.actors("approve", waits["id"], "--json")
    assert (late.returncode, json.loads(late.stdout)["won"], json.loads(late.stdout)["decision"]) == (1, False, decision)


def test_a_live_run_hears_the_answer_within_a_second(tmp_path: Path, place: Any) -> None:
    ask = {"goal": "hang about", "verify": {"kind": "none"}, "wait": False}
    script = [
        answer(["spawn_agent", ask]),
        answer(write("out.txt", "ok")),
        {"when": "hang about", "delay": 4, "usage": USAGE},
    ]
    running = task(place, script).begun("run", "task.toml", "--json")
    question = place.wait_until(ASKED)
    [waits] = inbox(place)
    assert (waits["id"], waits["live"]) == (question, True)
    told = place.actors("approve", question)
    assert told.returncode == 0 and "goes on by itself" in told.stdout and "resume" not in told.stdout
    out, err = running.communicate(timeout=20)
    assert (running.returncode, json.loads(out)["outcome"]["kind"]) == (0, "success"), err
    # By the clock of the store, so that it does not matter how long the processes of this test took to begin.
    connection = sqlite3.connect(tmp_path / ".actors" / "runs.db")
    heard = "SELECT at FROM run_events WHERE event LIKE '%approval_decided%'"
    sql = f"SELECT (julianday(({heard})) - julianday(decided_at)) * 86400 FROM pending_approvals"
    [(seconds,)] = connection.execute(sql).fetchall()
    connection.close()
    assert 0 <= seconds < 5


def on_terminal(folder: Path) -> tuple[int, int]:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(sys.executable, [*PROGRAM, "run", "task.toml"], {**os.environ, "CI": "1", "TERM": "xterm"})
    return child, terminal


def read_until(terminal: int, words: bytes, times: int) -> bytes:
    seen = b""
    while seen.count(words) < times:
        assert select.select([terminal], [], [], 20)[0], seen
        seen += os.read(terminal, 65536)
    return seen


def test_what_is_asked_on_a_terminal_may_be_answered_elsewhere_and_the_next_answer_is_not_lost(tmp_path: Path, place: Any) -> None:
    task(place, SCRIPT, BASE.replace('approve = "defer"', 'approve = "ask"'))
    child, terminal = on_terminal(tmp_path)
    read_until(terminal, b"[?] ", 1)
    assert place.actors("approve", place.wait_until(ASKED)).returncode == 0
    told = read_until(terminal, b"[?] ", 1)
    assert b"the answer to write a.txt is yes, given from elsewhere" in told
    os.write(terminal, b"y\n")
    seen = b""
    while True:
        try:
            got = os.read(terminal, 65536)
        except OSError:
            break
        if not got:
            break
        seen += got
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, seen
    assert (tmp_path / "a.txt").exists() and (tmp_path / "out.txt").read_text() == "ok"


def test_a_command_is_covered_by_rules_for_the_program_and_the_line(place: Any) -> None:
    task(place, [answer(["exec", {"argv": ["cat", "task.toml"]}])]).actors("run", "task.toml", "--quiet")
    [waits] = inbox(place)
    half = place.actors("approve", waits["id"], "--remember", "cat *")
    assert half.returncode == 2 and "asked again about exec cat;" in half.stderr, half.stderr
    whole = place.actors("approve", waits["id"], "--json", "--remember", "cat *", "--remember", "cat")
    assert whole.returncode == 0
    assert json.loads(whole.stdout)["remembered"] == [{"act": "exec", "glob": "cat *"}, {"act": "exec", "glob": "cat"}]


def test_of_a_redirection_the_question_shows_the_line_and_says_so(place: Any) -> None:
    text = BASE + '[policy.defaults]\nexec = "allow"\n'
    task(place, [answer(["shell", {"line": "echo hello > a.txt"}])], text).actors("run", "task.toml", "--quiet")
    told = place.actors("inbox").stdout
    assert "the line that would write it, 18 characters:\n  │ echo hello > a.txt" in told and "content," not in told


def test_on_a_terminal_too_a_redirection_shows_its_line(tmp_path: Path, place: Any) -> None:
    text = BASE.replace('approve = "defer"', 'approve = "ask"') + '[policy.defaults]\nexec = "allow"\n'
    task(place, [answer(["shell", {"line": "echo hello > a.txt"}])], text)
    child, terminal = on_terminal(tmp_path)
    told = read_until(terminal, b"[?] ", 1)
    os.write(terminal, b"n\n")
    read_until(terminal, b"agents", 1)
    os.close(terminal)
    os.waitpid(child, 0)
    assert b"the line that would write it, 18 characters:" in told and b"content," not in told


def test_what_a_model_wants_to_write_stands_behind_a_margin(place: Any) -> None:
    fake = "\x1b[2J\nnothing waits for you\n" * 40
    task(place, [answer(write("a.txt", fake))]).actors("run", "task.toml", "--quiet")
    told = place.actors("inbox").stdout
    assert "\x1b" not in told and re.search(r"^nothing waits", told, re.MULTILINE) is None
    assert "more characters; --json has them" in told


def test_a_question_names_its_tool_and_shows_the_change_and_not_the_whole_new_file(
    tmp_path: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.txt"
    file.write_text("".join(f"line {number}\n" for number in range(300)))
    edit = ["edit_file", {"path": "long.txt", "search": "line 250\n", "replace": "another\n"}]
    task(place, [answer(edit)]).actors("run", "task.toml", "--quiet")
    told = place.actors("inbox").stdout
    assert "root asks to write with edit_file (for " in told
    assert "\nthe change, +1 -1 lines:\n  │ @@ -248,7 +248,7 @@\n" in told and "  │ -line 250\n  │ +another\n" in told
    assert "line 9\n" not in told and "content," not in told
    [waits] = inbox(place)
    assert waits["content"].startswith("line 0") and "-line 250" in waits["hunk"]
    # As somebody in front of the terminal is asked.
    hunk = "@@ -1,1 +1,1 @@\n-a\n+b\n"
    assert not show_question(ApprovalRequest(Act.write, "a", "b\n", "g", "root", tool="patch_file", hunk=hunk), whole=False)
    seen = capsys.readouterr().err
    assert seen.endswith("root asks to write with patch_file:\n  │ a\nthe change, +1 -1 lines:\n  │ @@ -1,1 +1,1 @@\n  │ -a\n  │ +b\n")
    why = ApprovalRequest(Act.exec, "check", "a look whether a.py compiles", "g", "root", tool="write_file")
    assert not show_question(why, whole=False)
    assert capsys.readouterr().err.endswith("  │ check\nfor:\n  │ a look whether a.py compiles\n")


def test_the_inbox_names_once_what_a_yes_may_bring_along_and_only_where_one_may_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "runs.db")

    async def asked(*names: str) -> None:
        async with Store.open(file) as store:
            for name in names:
                place = (name, name, 1, 1, 1, "write", "a.txt", "x", "write_file", "{}", "g", None, None)
                await store.commit(RunStarted(name, name, "root", 0, None, "g"), ApprovalAsked(f"{name}#1.1.1", *place))

    trio.run(asked)
    show_inbox(file, False)
    assert capsys.readouterr().out == "nothing waits for you\n"
    trio.run(asked, "a", "b")
    show_inbox(file, False)
    lines = capsys.readouterr().out.splitlines()
    [hint] = [line for line in lines if "--remember" in line]
    assert "--arguments JSON" in hint and lines[-1] == hint and len([line for line in lines if "asks to write" in line]) == 2
    show_inbox(file, True)
    assert "--remember" not in capsys.readouterr().out


# ── a call of which nobody knows whether it was done ────────────────────────

CHARGES = """
import sys, trio
from pathlib import Path
from actors import ApproveAll, Policy, Scripted, Store, TaskContract, Verification
from actors.agents.ports import Observation, ObservationKind, ToolSpec
from actors.assembly.running import run_with
from actors.assembly.provider_spec import ProviderKind, ProviderSpec
from actors.assembly.stored_task import Means

class Charge:
    name = "charge"
    read_only = False
    spec = ToolSpec("charge", "Charge.", {"type": "object", "properties": {}})
    async def run(self, arguments, context):
        with open("charged", "a") as file:
            file.write("x")
        await trio.sleep_forever()

async def main():
    means = Means(ProviderSpec(ProviderKind.scripted, script=str(Path("script.json").resolve())))
    contract = TaskContract.workspace("charge", Path.cwd(), Verification.none()).with_max_steps(4)
    async with Store.open(".actors/runs.db") as store:
        provider = Scripted.from_file("script.json")
        await run_with(
            contract, provider, store, Policy.permissive(), ApproveAll(), tools=(Charge(),), task=means.text()
        )
trio.run(main)
"""


def charged(place: Any) -> str:
    (place.folder / "script.json").write_text(json.dumps([answer(["charge", {}]), {"text": "all is charged"}]))
    running = subprocess.Popen([sys.executable, "-c", CHARGES], cwd=place.folder)
    for _ in range(400):
        time.sleep(0.025)
        if (place.folder / "charged").exists():
            break
    assert inbox(place) == []
    running.send_signal(signal.SIGKILL)
    running.wait(timeout=20)
    [waits] = inbox(place)
    assert (waits["kind"], waits["tool"]) == ("recovery", "charge")
    return str(waits["id"])


def test_a_call_that_a_kill_cut_waits_for_the_operators_word_and_is_not_made_again(tmp_path: Path, place: Any) -> None:
    call = charged(place)
    run = call.partition("#")[0]
    paused = place.actors("resume", run)
    assert paused.returncode == 5 and f"actors recover '{call}'" in paused.stdout
    told = json.loads(place.actors("resume", run, "--json").stdout)
    assert (told["outcome"]["kind"], told["waiting"], told["resumable"]) == ("awaiting_recovery", [call], True)
    both = [place.begun("recover", call, *how) for how in (("--completed", "charged once"), ("--completed", "no"))]
    ends = [(each.communicate(timeout=60), each.returncode) for each in both]
    assert sorted(code for _, code in ends) == [0, 2], ends
    done = place.actors("resume", run, "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]["kind"]) == (0, "finished"), done.stderr
    assert (tmp_path / "charged").read_text() == "x"


def test_a_call_that_is_given_up_ends_its_agent_as_denied(place: Any) -> None:
    call = charged(place)
    assert place.actors("recover", call, "--abort").returncode == 0
    done = place.actors("resume", call.partition("#")[0], "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]["kind"]) == (4, "denied")
