"""That commands ran without a boundary, or without all of it, is told wherever a run is looked at."""

import json
import sys

import pytest

from actors.agents.contract import ExecSandbox
from actors.agents.rows import PolicyEvent, RunStarted, SandboxUsed
from actors.assembly.provider_spec import ProviderKind, ProviderSpec
from actors.assembly.reporting import run_report
from actors.assembly.run_settings import RunSettings
from actors.assembly.stored_task import Means
from actors.cli.live import Progress
from actors.cli.phrases import phrase, unheld
from actors.cli.pictures import summary_table
from actors.cli.running import options_of
from actors.store.store import Store

# The command line on a machine that holds nothing.
BARE = """
import functools
from actors.tools import sandbox
from actors.tools.sandbox_plan import Capabilities
sandbox.detect = functools.cache(lambda: Capabilities())
from actors.cli.main import main
main()
"""
TASK = """
[contract]
goal = "run something"
root = "work"
max_steps = 3
{mode}
[containment]
max_total_agents = 1
max_concurrent = 1
max_depth = 1
max_total_tokens = 10_000
[provider]
kind = "scripted"
script = "script.json"
[policy.defaults]
exec = "allow"
write = "{write}"
"""
SCRIPT = [{"calls": [["exec", {"argv": ["true"]}]]}, {"calls": [["exec", {"argv": ["true"]}]]}, {"text": "done"}]
ALONE = "commands run without a boundary: workspace_write: neither bubblewrap nor landlock works; the network is open to them"


@pytest.fixture
def made(place, monkeypatch):
    """A task whose commands run in such a machine, or in this one."""

    def made(mode: str = "", write: str = "allow", bare: bool = True):
        (place.folder / "work").mkdir()
        if bare:
            monkeypatch.setattr(sys.modules[type(place).__module__], "PROGRAM", [sys.executable, "-c", BARE])
        return place.holding(TASK.format(mode=mode, write=write), SCRIPT)

    return made


def test_it_is_said_once_as_it_happens_and_again_at_the_end_and_to_whoever_looks_later(made):
    place = made()
    done = place.actors("run", "task.toml")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"warning: {ALONE}") == 1
    assert f"boundary {ALONE}" in " ".join(done.stdout.split())
    run = place.rows("SELECT run_id FROM runs")[0][0]
    assert ALONE in place.actors("show", run).stdout
    trace = place.actors("trace", run).stdout
    assert trace.count("a command stands behind workspace_write by none") == 2
    assert "the network open, though the policy denies it; not held: workspace_write: neither" in trace


@pytest.mark.parametrize("way", ["run", "show"])
def test_json_has_it_too(made, way):
    place = made()
    done = place.actors("run", "task.toml", "--json")
    assert done.stderr == ""
    text = done.stdout if way == "run" else place.actors("show", json.loads(done.stdout)["run_id"], "--json").stdout
    nothing = "workspace_write: neither bubblewrap nor landlock works"
    assert json.loads(text)["not_held"] == [
        {"mode": "workspace_write", "backend": "none", "net": "not_held", "not_held": [nothing], "commands": 2}
    ]


def test_full_access_is_told_as_what_it_is(made):
    done = made('exec_sandbox = "full_access"', bare=False).actors("run", "task.toml")
    said = "commands run without a boundary: full_access: no rule for files or the network binds a command"
    assert done.stderr.count(f"warning: {said}") == 1 and said in done.stdout


def test_of_commands_that_were_held_nothing_is_told():
    facts = {"mode": "workspace_write", "backend": "bubblewrap", "net": "denied", "not_held": []}
    assert unheld(facts) is None
    assert unheld({**facts, "not_held": ["a", "b"]}) == "commands run behind bubblewrap, which does not hold: a; b"
    assert unheld({**facts, "backend": "none", "net": "open", "mode": "full_access"}) == (
        "commands run without a boundary: full_access"
    )


def test_a_trace_has_all_of_it_and_no_letter_that_moves_a_cursor():
    many = [f"read of /srv/task/{number}\x1b[2J/.env" for number in range(40)]
    told = {"kind": "sandbox", "path": "root", "step": 2, "ordinal": None, "mode": "workspace_write"}
    line = phrase({**told, "backend": "landlock", "net": "denied", "not_held": many})
    assert line.startswith("root: step 2: a check stands behind workspace_write by landlock, the network closed; not held: ")
    assert line.count("/.env") == 40 and "\x1b" not in line


async def test_a_table_stays_a_table_however_many_kinds_there_are():
    store = Store.memory()
    await store.commit(RunStarted("r", "r", "root", 0, None, "goal"))
    for number in range(50):
        said = json.dumps([f"read of /srv/task/{number}"])
        await store.commit(SandboxUsed("r", number, 1, ExecSandbox.workspace_write, "landlock", "denied", said))
    rows = [name for name, _ in summary_table(store, "r").rows]
    assert rows.count("boundary") == 8


# ── what a default asks about ───────────────────────────────────────────────

WRITES = "writes in the workspace that the policy asks about by default"
HELD = {"kind": "sandbox", "mode": "workspace_write", "backend": "bubblewrap", "net": "denied", "not_held": [WRITES]}


@pytest.mark.parametrize(
    ("approve", "terminal", "ordinal", "warned"),
    [
        (None, False, 1, True),
        ("deny", True, 1, True),
        (None, True, 1, False),
        ("ask", False, 1, False),
        ("all", False, 1, False),
        ("defer", False, 1, False),
        # The command of a check: the operator wrote it.
        (None, False, None, False),
    ],
)
def test_writes_that_a_default_asks_about_are_news_only_where_nobody_is_asked(
    monkeypatch, capsys, approve, terminal, ordinal, warned
):
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setenv("CI", "1")
    progress = Progress(quiet=False)
    options_of(Means(ProviderSpec(ProviderKind.scripted), run=RunSettings(approve=approve)), progress, lambda _tree: None)
    for _twice in range(2):
        progress.event({**HELD, "ordinal": ordinal})
    # Whatever else is not held is told all the same.
    progress.event({**HELD, "ordinal": ordinal, "not_held": [WRITES, "read of a"]})
    lines = capsys.readouterr().err.splitlines()
    remedy = '; nobody is asked in this run, so set policy.defaults.write to "allow" or "deny"'
    behind = "warning: commands run behind bubblewrap, which does not hold: "
    assert lines == (
        [f"{behind}{WRITES}{remedy}", f"{behind}{WRITES}; read of a{remedy}"] if warned else [f"{behind}read of a"]
    )


@pytest.mark.parametrize(("rule", "ordinal", "told"), [(None, 1, True), ("*.txt", 1, False), (None, None, False)])
async def test_a_table_tells_it_where_the_same_was_denied_to_a_tool(rule, ordinal, told):
    store = Store.memory()
    await store.commit(RunStarted("r", "r", "root", 0, None, "goal"))
    held = SandboxUsed("r", 1, ordinal, ExecSandbox.workspace_write, "bubblewrap", "denied", json.dumps([WRITES]))
    await store.commit(held)
    assert "boundary" not in [name for name, _ in summary_table(store, "r").rows]
    await store.commit(PolicyEvent("r", 1, "refusal", "write", "a.txt", rule, rule, "denied", "approver"))
    assert ("boundary" in [name for name, _ in summary_table(store, "r").rows]) == told
    assert run_report(store, "r")["not_held"], "the report has it in any case"
