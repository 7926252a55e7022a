"""How a run looks: to a person on a terminal, in a pipe, and to a script."""

import io
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from rich.console import Console

from actors.agents.outcomes import Outcome, OutcomeKind
from actors.agents.rows import EventSeen, RunFinished, RunStarted
from actors.agents.snapshots import AgentView, TreeSnapshot
from actors.cli import viewing
from actors.cli.following import show_live
from actors.cli.live_picture import live_picture
from actors.cli.main import cli
from actors.cli.phrases import of_check, phrase, progress_line
from actors.cli.pictures import run_list, told_first
from actors.containment.amounts import UNLIMITED
from actors.containment.ledger_state import LedgerState
from actors.containment.limits import Containment
from actors.containment.slots import Tally
from actors.errors import ConfigError
from actors.store.records import RunSummary
from actors.store.store import Store

PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]
TASK = """
[contract]
goal = "write ok into out.txt"
root = "."
max_steps = 3
[contract.verify]
kind = "command"
argv = ["no-such-program-anywhere"]
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 2
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[[policy.layers]]
name = "operator"
rules = [{ act = "write", effect = "deny", glob = "secrets/*" }, { act = "spawn", effect = "allow", glob = "*" }]
"""
WRITES = [["write_file", {"path": path, "content": "x"}] for path in ("hello.txt", "secrets/a", "secrets/b")]
CHILD = ["spawn_agent", {"goal": "help", "verify": {"kind": "command", "argv": ["ls"]}, "max_steps": 1}]
SCRIPT = [
    {"calls": WRITES, "usage": {"prompt_tokens": 100, "completion_tokens": 20}},
    {"calls": [["conjure", {}]]},
    {"calls": [CHILD]},
    {"text": "done"},
]


@attrs.frozen
class Ran:
    """A run of `TASK` whose standard input is no terminal."""

    folder: Path
    run_id: str
    out: str
    progress: str

    def actors(self, *arguments: str) -> str:
        done = subprocess.run(
            [*PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("refused")
    write_task(folder)
    done = subprocess.run(
        [*PROGRAM, "run", "task.toml"], cwd=folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 3, done.stderr
    run_id = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("run "))
    return Ran(folder, run_id, done.stdout, done.stderr)


def write_task(folder: Path) -> None:
    (folder / "task.toml").write_text(TASK)
    (folder / "script.json").write_text(json.dumps(SCRIPT))


# ── what was refused ────────────────────────────────────────────────────────────


def test_progress_says_when_nobody_could_be_asked_and_names_the_setting_once(ran: Ran) -> None:
    [line] = [line for line in ran.progress.splitlines() if "run.approve" in line]
    assert "refused write hello.txt" in line and "nobody could be asked" in line
    [denied, _] = [line for line in ran.progress.splitlines() if "refused write secrets/" in line]
    assert "of layer 'operator'" in denied and "nobody" not in denied


def test_show_counts_what_was_denied_by_act_and_rule_and_names_targets(ran: Ran) -> None:
    for text in (ran.out, ran.actors("show", ran.run_id)):
        rows = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("denied")]
        assert rows[0].startswith("2 write: secrets/a, secrets/b (denied by rule ") and "'operator'" in rows[0]
        assert rows[1] == "1 write: hello.txt (asked about by the policy's default, not approved)"


def test_show_json_lists_what_was_denied_beside_the_refused_spawns(ran: Ran) -> None:
    tree = json.loads(ran.actors("show", ran.run_id, "--json"))["tree"]
    assert (tree["refusals"], tree["denials"]) == ({}, 3)
    assert [(each["path"], each["act"], each["target"]) for each in tree["denied"]] == [
        ("root", "write", "hello.txt"),
        ("root", "write", "secrets/a"),
        ("root", "write", "secrets/b"),
    ]
    assert [each["source"] for each in tree["denied"]] == ["approver", "policy", "policy"]
    assert tree["denied"][1]["layer"] == "operator" and tree["denied"][1]["rule"]


def test_trace_names_the_rule_and_layer_of_a_refusal(ran: Ran) -> None:
    lines = [line for line in ran.actors("trace", ran.run_id).splitlines() if "refused write secrets/a" in line]
    assert len(lines) == 1 and "denied by rule" in lines[0] and "of layer 'operator'" in lines[0]


# ── a criterion that cannot be checked ──────────────────────────────────────────


def test_a_criterion_that_cannot_run_is_told_in_progress_result_and_trace(ran: Ran) -> None:
    assert "root: step 1: the criterion could not be checked" in ran.progress
    [why] = [line for line in ran.out.splitlines() if line.startswith("why")]
    assert "allowed steps used; the criterion could not be checked" in why and "no-such-program-anywhere" in why
    traced = [line for line in ran.actors("trace", ran.run_id).splitlines() if "root: step" in line and "be checked" in line]
    assert len(traced) == 3 and all("no-such-program-anywhere" in line for line in traced)


def test_the_tree_names_a_child_whose_criterion_could_not_be_checked(ran: Ran) -> None:
    # A model's own command needs a rule, and there is none.
    [line] = [line for line in ran.out.splitlines() if "could not be checked" in line and not line.startswith("why")]
    assert "the policy does not allow ls" in line


# ── the trace ───────────────────────────────────────────────────────────────────


def test_a_trace_tells_the_list_of_what_is_to_be_done_at_the_step_that_noted_it(tmp_path: Path) -> None:
    write_task(tmp_path)
    notes = [["todo_write", {"items": [{"text": text, "status": status}]}] for text, status in (("a", "pending"), ("b\x1b", "done"))]
    script = [{"calls": notes}, {"calls": [["list_dir", {"path": "."}]]}, {"calls": [["todo_write", {"items": []}]]}]
    (tmp_path / "script.json").write_text(json.dumps(script))
    done = subprocess.run([*PROGRAM, "run", "task.toml", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    traced = Ran(tmp_path, json.loads(done.stdout)["run_id"], "", "").actors("trace", json.loads(done.stdout)["run_id"])
    said = [line.partition("root: ")[2] for line in traced.splitlines()]
    assert [line for line in said if re.match(r"step \d: (todo_write|list_dir)", line)] == [
        "step 1: todo_write, todo_write; to do: [x] b?",
        "step 2: list_dir",
        "step 3: todo_write; to do: [the list is empty]",
    ]


def test_every_line_of_a_trace_says_more_than_its_kind(ran: Ran) -> None:
    lines = [line.partition(" ")[2] for line in ran.actors("trace", ran.run_id).splitlines()]
    kinds = {json.loads(line)["kind"] for line in ran.actors("trace", ran.run_id, "--json").splitlines()}
    assert not {line.partition(": ")[2] for line in lines} & kinds
    assert "root: step 1: used 120 tokens, 9,880 left" in lines
    assert "root: step 1: asks to write hello.txt" in lines
    assert "root: step 1: the answer to write hello.txt is no, by the approver of its process" in lines
    assert "root: step 2: calls conjure" in lines


def test_a_step_says_which_of_its_calls_failed_and_why(ran: Ran) -> None:
    lines = ran.actors("trace", ran.run_id).splitlines()
    [first] = [line for line in lines if "root: step 1: write_file, write_file, write_file" in line]
    assert first.count("write_file failed: write ") == 3 and "secrets/a" in first
    [second] = [line for line in lines if "root: step 2: conjure;" in line]
    assert "conjure failed: there is no tool 'conjure'" in second


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "gate", "step": 2, "verdict": "passed"}, "step 2: the criterion passed"),
        ({"kind": "gate", "step": 2, "verdict": "failed", "detail": "exit code 1\n"}, "step 2: the criterion did not pass: exit code 1"),
        ({"kind": "spend_draw", "tokens": 1, "remaining": UNLIMITED - 1, "granted": True}, "used 1 token"),
        ({"kind": "spend_draw", "tokens": 9, "remaining": 0, "granted": False}, "asked for 9 tokens and was halted, 0 left"),
        (
            {"kind": "spend_draw", "step": 1, "tokens": 9, "remaining": 5, "overrun": 2, "estimated": True},
            "step 1: used 9 tokens and 2 over what was held (estimated), 5 left",
        ),
        (
            {"kind": "fleet", "tier": 1, "working": 2, "waiting": 0, "queued": 7, "done": 0, "tree_working": 3, "tree_queued": 7},
            "agents at depth 1: 2 working, 0 waiting, 7 queued, 0 done; in the whole tree 3 working, 7 queued",
        ),
        ({"kind": "approval_decided", "step": 4, "act": "net", "approved": True}, "step 4: the answer to net is yes"),
        (
            {"kind": "approval_decided", "step": 4, "act": "exec", "approved": True, "changed": ["argv", "x"]},
            "step 4: the answer to exec is yes, with another argv, x",
        ),
        ({"kind": "approval_decided", "act": "net", "by": "runtime"}, "the answer to net is no, as the approver failed"),
        ({"kind": "approval_decided", "act": "net", "by": "a\x1b"}, "the answer to net is no, by a\\x1b"),
        (
            {"kind": "approval_decided", "act": "net", "approved": True, "by": "operator"},
            "the answer to net is yes, given from elsewhere by the operator",
        ),
        (
            {"kind": "step", "step": 1, "calls": ["exec"], "remembered": [{"act": "exec", "target": "ls", "rule": "l*"}] * 5},
            "step 1: exec" + "; not asked about exec ls: the rule 'l*' is remembered" * 3 + "; 2 more not asked about",
        ),
        ({"kind": "refused", "step": 1, "axis": "tool_calls", "text": "no more"}, "step 1: refused: no more"),
        ({"kind": "halted", "halt": "cancel", "by": "operator", "reason": "enough"}, "halted: cancel by operator: enough"),
        ({"kind": "finished", "outcome": "success", "steps": 1}, "ended: success after 1 step"),
        ({"kind": "step", "step": 1, "calls": []}, "step 1: no call"),
        ({"kind": "eclipse", "run_id": "t", "depth": 0, "seconds": 4}, "eclipse (seconds 4)"),
        ({"kind": "eclipse"}, "eclipse"),
    ],
)
def test_each_kind_of_event_has_its_phrase_and_an_unknown_one_a_general_form(facts: dict[str, Any], words: str) -> None:
    assert phrase({"path": "root", **facts}) == f"root: {words}"


def test_what_a_model_wrote_cannot_drive_the_terminal_of_who_reads_a_trace() -> None:
    line = phrase({"path": "root", "kind": "tool_call", "tool": "a\x1b[2Jb\nroot: ended: success"})
    assert line.isprintable() and line.startswith("root: calls a")


def test_progress_tells_of_a_check_unless_it_passed() -> None:
    verdicts = ("passed", "failed", "errored")
    told = [progress_line({"path": "root", "kind": "gate", "step": 1, "verdict": verdict}) for verdict in verdicts]
    words = ("did not pass", "could not be checked")
    assert told == [None, *(f"root: step 1: the criterion {each}" for each in words)]


def test_of_a_long_reason_the_beginning_and_the_last_line_are_told() -> None:
    detail = "exit code 1\n" + "a line of dots\n" * 300 + "2 failed, 7 passed in 0.12s\n"
    assert of_check("failed", detail) == "the criterion did not pass: exit code 1 … 2 failed, 7 passed in 0.12s"
    assert len(of_check("failed", "x" * 5_000)) < 200 and len(of_check("errored", "x\n" * 5_000)) < 200


# ── the list ────────────────────────────────────────────────────────────────────

STAMP = "2026-01-02T03:04:05.678Z"
RUNS = [
    RunSummary("abcdefghjk", "completed", "budget_ceiling_reached", STAMP, "a goal\nof two lines, " + "long " * 40 + "end"),
    RunSummary("zzzzzzzzzz", "running", None, STAMP, "short"),
]
STEPS = {"abcdefghjk": 12}


@pytest.mark.parametrize("width", [60, 66, 80, 100, 200])
def test_a_list_cuts_only_time_and_goal_to_the_width_of_a_terminal(width: int) -> None:
    heading, first, second = run_list(RUNS, STEPS, {}, width)
    assert max(map(len, (heading, first, second))) <= width
    assert first.split()[:4] == ["abcdefghjk", "completed", "budget_ceiling_reached", "12"]
    assert second.split()[:4] == ["zzzzzzzzzz", "running", "-", "0"]
    assert heading.split()[:4] == ["run", "status", "outcome", "steps"]
    assert (STAMP[:19].replace("T", " ") in first) == (width >= 100) and ("01-02 03:04" in first) == (width >= 80)


def test_a_run_that_is_silent_is_listed_as_such_and_not_as_running() -> None:
    *_, second = run_list(RUNS, STEPS, {"zzzzzzzzzz": 130.0}, None)
    assert second.split()[:5] == ["zzzzzzzzzz", "silent", "2", "min", "-"]


def test_a_list_on_a_very_narrow_terminal_still_has_the_whole_id() -> None:
    _, first, _ = run_list(RUNS, STEPS, {}, 20)
    assert first.split() == ["abcdefghjk", "completed", "budget_ceiling_reached", "12"]


def test_a_list_in_a_pipe_is_whole_and_has_no_trailing_spaces(ran: Ran) -> None:
    lines = list(run_list(RUNS, STEPS, {}, None))
    assert lines[1].split()[4] == STAMP and lines[1].endswith("end") and "…" not in lines[1]
    assert [line.index(word) for line, word in zip(lines, ("goal", "a goal", "short"), strict=True)].count(lines[0].index("goal")) == 3
    listed = ran.actors("list").splitlines()
    assert listed == [line.rstrip() for line in listed]
    assert listed[1].split()[:4] == [ran.run_id, "completed", "step_cap_reached", "3"]


def test_no_line_of_show_is_cut_or_padded_in_a_pipe(ran: Ran) -> None:
    lines = ran.actors("show", ran.run_id).splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert max(map(len, lines)) > 100


# ── the picture of a live tree ──────────────────────────────────────────────────


def snapshot(*agents: AgentView) -> TreeSnapshot:
    limits = Containment(100, 3, 2, 400_000)
    return TreeSnapshot("t", agents, {}, Tally(), 0, 3, 3, LedgerState(limits).snapshot(), 59.0, limit_tokens=400_000)


def view(number: int, state: str, tokens: int = 0) -> AgentView:
    return AgentView(f"root/1.{number}", 1, state, number, tokens, "Write a chapter that has a very long name indeed, " * 3)


def drawn(picture: Any, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(picture)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 20), (40, 10), (25, 6), (20, 4), (14, 3)])
def test_a_live_tree_fits_the_screen(width: int, height: int) -> None:
    agents = [view(number, "waiting for slot") for number in range(1, 80)]
    lines = drawn(live_picture(snapshot(*agents), width, height), width)
    assert len(lines) < height and max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("root/")]
    assert lines[-1].startswith(f"… and {79 - len(rows)} more agents"[: width - 1])
    assert len(lines) == height - 1 and "working" in lines[0]


def test_a_line_that_could_be_shown_is_not_replaced_by_a_count_of_one() -> None:
    for count in range(1, 30):
        agents = [view(number, "waiting for slot") for number in range(1, count + 1)]
        lines = drawn(live_picture(snapshot(*agents), 120, 12), 120)
        assert not any("and 1 more" in line for line in lines)
        assert any("more agents" in line for line in lines) == (count > 10)


def test_who_works_stands_before_who_waits_and_who_is_queued_in_the_order_of_starting() -> None:
    states = ["waiting for child", "waiting for slot", "working", "waiting for human", "waiting for slot", "working"]
    agents = [view(number, state) for number, state in enumerate(states, 1)]
    lines = drawn(live_picture(snapshot(*agents), 100, 24), 100)[1:]
    assert [line.partition("  step")[0].rstrip() for line in lines] == [
        "root/1.3  working",
        "root/1.6  working",
        "root/1.4  waiting for human",
        "root/1.1  waiting for child",
        "root/1.2  waiting for slot",
        "root/1.5  waiting for slot",
    ]


def test_the_columns_of_a_live_tree_are_aligned() -> None:
    agents = [view(1, "working", 5), view(20, "waiting for slot", 1_234_567), view(300, "init", 80)]
    lines = drawn(live_picture(snapshot(*agents), 120, 24), 120)[1:]
    for word in (" step ", " tokens ", "Write"):
        assert len({line.index(word) for line in lines}) == 1, word


def on_a_terminal(folder: Path, **environment: str) -> str:
    """Run the task with standard error on a terminal, and standard input on none."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [*PROGRAM, "run", "task.toml"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "CI": "", "NO_COLOR": "1", **environment},
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65_536):
            seen += part
    except OSError:
        # Linux says so when the other side has closed a terminal.
        pass
    os.close(ours)
    assert done.wait(timeout=30) == 3
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path) -> None:
    write_task(tmp_path)
    seen = on_a_terminal(tmp_path, TERM="dumb", COLUMNS="400")
    assert "\x1b" not in seen
    assert "root: step 2: conjure; conjure failed: there is no tool" in seen and "root: ended: step_cap_reached" in seen
    # Its list of the tools there are is cut in that line, so it is said once where it stands whole.
    [where] = [line for line in seen.splitlines() if line.startswith("whole texts: actors trace --export ")]
    run = where.split()[5]
    export = subprocess.run([*PROGRAM, "trace", "--export", run], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "spawn_agent" not in seen.partition("there is no tool")[2].splitlines()[0]
    assert any("there is no tool 'conjure'" in line and "spawn_agent" in line for line in export.stdout.splitlines())


def test_above_a_live_picture_stands_what_a_person_can_mend_and_only_that(tmp_path: Path) -> None:
    write_task(tmp_path)
    seen = on_a_terminal(tmp_path, TERM="xterm", COLUMNS="400")
    assert "run.approve" in seen and "the criterion could not be checked" in seen
    assert "secrets/a" not in seen and "root: step 2: conjure" not in seen


# ── events as JSON ──────────────────────────────────────────────────────────────


def test_streamed_events_look_like_those_of_a_trace(tmp_path: Path) -> None:
    write_task(tmp_path)
    done = subprocess.run(
        [*PROGRAM, "run", "task.toml", "--stream-json"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines == [json.dumps(json.loads(line)) for line in lines]
    *events, result = map(json.loads, lines)
    assert result["kind"] == "result"
    traced = Ran(tmp_path, result["run_id"], "", "").actors("trace", result["run_id"], "--json").splitlines()
    assert traced == [json.dumps(json.loads(line)) for line in traced]
    for event, stored in zip(events, map(json.loads, traced), strict=True):
        assert list(event) == [key for key in stored if key != "sequence"]
        assert len(event["at"]) == len(stored["at"]) and event["at"].endswith("Z")
        assert event | {"at": 0} == {key: value for key, value in stored.items() if key != "sequence"} | {"at": 0}


# ── how a run stands that has no end ────────────────────────────────────────────


async def standing(file: Path, age: str, live_age: str | None, *rows: Any) -> str:
    """Make a store with one run that began so long ago and showed itself so long ago, and give the id."""
    async with Store.open(file) as store:
        await store.commit(RunStarted("abc", "abc", "root", 0, None, "g"), *rows)
    connection = sqlite3.connect(file)
    connection.execute(f"UPDATE runs SET started_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{age}')")
    if live_age is not None:
        seen = f"strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-{live_age}')"
        connection.execute(f"INSERT INTO live (tree_id, snapshot, taken_at) VALUES ('abc', '', {seen})")
    connection.commit()
    connection.close()
    return "abc"


@pytest.mark.parametrize(
    ("age", "live_age", "status", "state", "silent"),
    [
        ("2 seconds", None, "running", "… running", None),
        ("3 hours", "2 seconds", "running", "… running", None),
        ("3 hours", "130 seconds", "silent 2 min", "? running, but not heard of for 2 min: its process may be gone", 130),
        # Killed before it had shown itself.
        ("3 hours", None, "silent 3 h", "? running, but not heard of for 3 h: its process may be gone", 10_800),
    ],
)
async def test_a_run_whose_process_is_gone_is_told_from_a_live_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
    age: str, live_age: str | None, status: str, state: str, silent: int | None,
) -> None:  # fmt: skip
    file = str(tmp_path / "runs.db")
    run = await standing(Path(file), age, live_age)
    viewing.list_runs(file, False)
    assert capsys.readouterr().out.splitlines()[1].startswith(f"abc  {status}  -")
    viewing.show(run, file, False)
    picture, _, table = capsys.readouterr().out.partition("\n\n")
    assert picture == f"{state[0]} root running  g" and f"state   {state}\n" in table and "ended" not in table
    for look in (lambda: viewing.list_runs(file, True), lambda: viewing.show(run, file, True)):
        look()
        told = json.loads(capsys.readouterr().out)
        told = told[0] if isinstance(told, list) else told
        assert told["status"] == "running" and told["outcome"] is None
        assert told["silent_seconds"] == (None if silent is None else pytest.approx(silent, abs=5))


async def test_a_run_that_was_stopped_by_a_signal_is_paused_in_every_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "runs.db")
    detail = json.dumps(Outcome(OutcomeKind.interrupted).to_json())
    ended = RunFinished("abc", "paused", "interrupted", detail, None, False, 0, 0, 0, 0, 0, 0, 0, False, 10)
    told = {"kind": "finished", "run_id": "abc", "path": "root", "depth": 0, "outcome": "interrupted", "steps": 0}
    run = await standing(Path(file), "3 hours", None, ended, EventSeen("abc", "abc", json.dumps(told)))
    viewing.list_runs(file, False)
    assert capsys.readouterr().out.splitlines()[1].startswith("abc  paused  interrupted")
    viewing.show(run, file, False)
    shown = capsys.readouterr().out
    assert shown.startswith("‖ root interrupted") and "\npaused  ‖ interrupted\n" in shown and "ended" not in shown
    viewing.trace(run, file, False)
    assert "root: paused: interrupted after 0 steps" in capsys.readouterr().out
    viewing.list_runs(file, True)
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["status"], listed["outcome"], listed["silent_seconds"]) == ("paused", "interrupted", None)
    assert listed["steps"] == 0
    for as_json in (False, True):
        with pytest.raises(ConfigError, match=r"abc is not live, it is paused \(interrupted\): leave out --live"):
            show_live(run, file, as_json)


# ── which run, and which store ──────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["show", "trace"])
def test_the_help_says_that_the_beginning_of_an_id_is_enough(command: str) -> None:
    told = " ".join(cli.commands[command].get_help(cli.commands[command].make_context(command, [], resilient_parsing=True)).split())
    assert "any unique prefix" in told


@pytest.mark.parametrize("look", [viewing.show, viewing.trace])
async def test_an_ambiguous_beginning_is_one_line_that_names_the_candidates(tmp_path: Path, look: Any) -> None:
    file = tmp_path / "runs.db"
    async with Store.open(file) as store:
        await store.commit(*(RunStarted(run, run, "root", 0, None, "g") for run in ("abc2", "abc3", "xyz4")))
    with pytest.raises(ConfigError) as caught:
        look("abc", str(file), False)
    [(_, text)] = caught.value.problems
    assert "abc2, abc3" in text and "xyz4" not in text and "\n" not in text


def test_an_error_of_a_store_ends_in_words_for_people(tmp_path: Path) -> None:
    file = tmp_path / "garbage.db"
    file.write_bytes(b"not a database, but long enough to look like one" * 100)
    for wrong in (file, tmp_path):
        with pytest.raises(ConfigError) as caught:
            viewing.list_runs(str(wrong), False)
        [(place, text)] = caught.value.problems
        assert place == str(wrong) and not text.endswith(")") and str(wrong) not in text


@attrs.frozen
class Ended:
    """As much of a run's record as decides about its place in the picture."""

    path: str
    success: bool | None
    finished_at: str | None = "now"


def test_agents_that_failed_are_in_the_picture_before_all_others_with_all_above_them() -> None:
    agents = [Ended("root", True), *(Ended(f"root/{number}", True) for number in range(1, 60))]
    agents += [Ended("root/60", True), Ended("root/60/1", True), Ended("root/60/1/1", False), Ended("root/61", None, None)]
    shown, more = told_first(agents, 10)  # type: ignore[arg-type]
    assert [agent.path for agent in shown] == [
        "root",
        *(f"root/{number}" for number in range(1, 6)),
        *("root/60", "root/60/1", "root/60/1/1"),
    ]
    assert more == len(agents) - 9
    assert told_first(agents[:10], 10) == (agents[:10], 0)  # type: ignore[arg-type,comparison-overlap]
