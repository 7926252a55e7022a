"""The scenarios that the crash-point explorer comes with: small runs, each with another thing that must not be lost.

What an agent reads may not depend on who of two was faster, or two runs could not
be compared. So whoever works beside somebody waits, where it matters, for a file
that the other one writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors.agents.contract import RetryPolicy, TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Act, ApprovalRequest, Approver, Defer, Observation, Tool, ToolCall, ToolContext
from actors.agents.verification import Verification
from actors.assembly.resuming import Decision
from actors.assembly.running import RunResult, run_tree, run_with
from actors.containment.limits import Containment
from actors.errors import ProviderErrorKind
from actors.store.records import ApprovalRecord
from actors.testing.crash_stage import POLL_SECONDS, Say, Scenario, Send, Stage, call, watched_builtins

LIMITS: Final = Containment(50, 8, 4, 1_000_000)
STEPS: Final = 12


def write(path: str, content: str) -> Say:
    """Let the model write a file."""
    return Say(calls=(call("write_file", path=path, content=content),))


def spawn(goal: str, *, needs: str | None = None, wait: bool = True) -> ToolCall:
    """Let the model start a child. ``needs``: it is done when this file holds "done"; None: when it says so."""
    if needs is None:
        return call("spawn_agent", goal=goal, verify={"kind": "none"}, wait=wait)
    return call("spawn_agent", goal=goal, verify_file=needs, verify_contains="done", wait=wait)


def _contract(stage: Stage, verify: Verification) -> TaskContract:
    return TaskContract.workspace("root", stage.workspace, verify).with_max_steps(STEPS)


async def _tree(
    stage: Stage, verify: Verification, *, policy: Policy | None = None, limits: Containment = LIMITS
) -> RunResult:
    contract = _contract(stage, verify).with_retry_policy(RetryPolicy(0.02, 0.05))
    given = Policy.permissive() if policy is None else policy
    return await run_tree(contract, stage.model, stage.store, given, stage.approver, limits, tools=stage.tools)


# ── one agent ───────────────────────────────────────────────────────────────

_DONE: Final = Verification.workspace_file_contains("b.txt", "two")

_SINGLE: Final = {
    "root": (
        write("a.txt", "one"),
        Say(
            "And now both.",
            (
                call("edit_file", path="a.txt", search="one", replace="one and one"),
                call("read_file", path="a.txt"),
                call("edit_file", path="missing.txt", search="a", replace="b"),
                # Applied again, it would still fit, and add its line once more.
                call("patch_file", path="a.txt", patch="@@ -1 +1,2 @@\n one and one\n+two\n"),
                call("todo_write", items=[{"text": "both", "status": "done"}]),
            ),
        ),
        Say(calls=(call("read_file", path="a.txt"), call("grep", pattern="one"))),
        write("b.txt", "two"),
    ),
}


async def _start_single(stage: Stage) -> RunResult:
    contract, policy = _contract(stage, _DONE), Policy.permissive()
    return await run_with(contract, stage.model, stage.store, policy, stage.approver, tools=stage.tools)


# ── many ────────────────────────────────────────────────────────────────────

FAN: Final = 20
_FAN_GOALS: Final = tuple(f"child {number:02}" for number in range(1, FAN + 1))

_FAN: Final = {
    "root": (Say(calls=tuple(spawn(goal) for goal in _FAN_GOALS)), write("b.txt", "two")),
    **{goal: (write(f"{goal}.txt", goal), Say(f"{goal} is done")) for goal in _FAN_GOALS},
}


async def _start_tree(stage: Stage) -> RunResult:
    return await _tree(stage, _DONE)


# ── deep, and beside ────────────────────────────────────────────────────────


def _when(name: str) -> Callable[[Path], bool]:
    def there(workspace: Path) -> bool:
        return (workspace / name).exists()

    return there


_NESTED: Final = {
    "root": (
        Say(calls=(write("a.txt", "one").calls[0], spawn("beside", wait=False), spawn("first"))),
        # Two equal goals are two children.
        Say(calls=(call("read_file", path="a.txt"), spawn("twin"), spawn("twin"))),
        write("b.txt", "two"),
    ),
    "twin": (Say(calls=(call("read_file", path="a.txt"),)), Say("the twin is done")),
    # Its report comes when its parent asks no more: so it is in nobody's request.
    "beside": (Say(calls=(call("read_file", path="a.txt"),), when=_when("b.txt")), Say("beside is done")),
    "first": (Say(calls=(spawn("second", needs="second.txt"),)), Say("first is done")),
    "second": (Say(calls=(spawn("third", wait=False),)), write("second.txt", "done")),
    "third": (
        Say(calls=(write("third.txt", "3").calls[0],), when=_when("second.txt")),
        Say("third is done"),
    ),
}


# ── a human ─────────────────────────────────────────────────────────────────


class PutOff:
    """Whoever is asked answers later."""

    async def decide(self, request: ApprovalRequest) -> Defer:
        """Put it off.

        Cancellation: nothing was decided.
        """
        await trio.lowlevel.checkpoint()
        return Defer()


def _put_off(stage: Stage) -> Approver:
    return PutOff()


# Whoever decides changes these calls: the effect that nobody can look at, and a file.
_CHANGED: Final[Mapping[str, Mapping[str, str]]] = {
    "send": {"text": "something else"},
    "asked.txt": {"path": "changed.txt", "content": "no"},
}


def _decide(stage: Stage, asked: ApprovalRecord) -> Decision:
    yes, modified = asked.target != "no.txt", _CHANGED.get(asked.target)
    return Decision(asked.request_id, approved=yes, reason="not this one", modified=modified)


_APPROVAL: Final = {
    "root": (
        Say(calls=(spawn("asks"), spawn("works"))),
        Say(calls=(write("a.txt", "one").calls[0], write("no.txt", "no").calls[0], call("send", text="it"))),
        write("b.txt", "two"),
    ),
    "asks": (write("asked.txt", "yes"), Say("asked and done")),
    "works": (
        write("plain.txt", "plain"),
        # Whoever reads beside others and has to ask is parked too, and those after it are read again.
        Say(
            calls=(
                call("read_file", path="plain.txt"),
                call("read_file", path="read.txt"),
                call("read_file", path="plain.txt"),
            )
        ),
        Say("worked and done"),
    ),
}


async def _start_asking(stage: Stage) -> RunResult:
    asks = Policy.permissive().layer("operator").ask_write("asked.txt").ask_write("no.txt").ask_read("read.txt")
    policy = asks.ask_exec("send")
    return await _tree(stage, _DONE, policy=policy)


def _asking_tools(stage: Stage) -> tuple[Tool, ...]:
    return (*watched_builtins(stage), Send(stage, asks=Act.exec))


# ── a criterion ─────────────────────────────────────────────────────────────

# Tells that it has begun and waits a little until it may go on: so it can be killed in the middle.
_CHECK: Final = """
: > "../begun.$$"
for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    test -e "../go.$$" && break
    sleep 0.05
done
grep -q two b.txt
"""

_VERIFYING: Final = {"root": (write("a.txt", "one"), write("b.txt", "one"), write("b.txt", "two"))}


async def _start_verifying(stage: Stage) -> RunResult:
    return await _tree(stage, Verification.command(["sh", "-c", _CHECK]))


async def _watch_checks(stage: Stage) -> None:
    """Come to a crash point in the middle of each check.

    Cancellation: nothing was changed.
    """
    seen = {file.name for file in stage.folder.glob("begun.*")}
    while True:
        for file in sorted(stage.folder.glob("begun.*")):
            if file.name not in seen:
                seen.add(file.name)
                stage.points.reach("in the middle of a check")
                (stage.folder / file.name.replace("begun", "go")).touch()
        await trio.sleep(POLL_SECONDS)


# ── effects that nobody can look at ─────────────────────────────────────────

_SENDING: Final = {
    "root": (
        Say(calls=(call("send", text="1"), write("a.txt", "one").calls[0], call("send", text="2"), spawn("sends"))),
        # Reads beside each other, between two effects.
        Say(
            calls=(
                call("send", text="3"),
                call("read_file", path="a.txt"),
                call("find", name_glob="*"),
                call("read_file", path="missing.txt"),
            )
        ),
        Say(calls=(write("b.txt", "two").calls[0], call("send", text="4"))),
    ),
    "sends": (Say(calls=(call("send", text="5"), call("send", text="6"))), Say("sent")),
}


def _sending_tools(stage: Stage) -> tuple[Tool, ...]:
    return (*watched_builtins(stage), Send(stage))


# ── a backlog, and a back-off ───────────────────────────────────────────────

_BACKLOG_GOALS: Final = tuple(f"queued {number}" for number in range(1, 7))

_BACKLOG: Final = {
    "root": (Say(calls=tuple(spawn(goal) for goal in _BACKLOG_GOALS)), write("b.txt", "two")),
    **{goal: (write(f"{goal}.txt", goal), Say(f"{goal} is done")) for goal in _BACKLOG_GOALS},
}


async def _start_backlog(stage: Stage) -> RunResult:
    return await _tree(stage, _DONE, limits=attrs.evolve(LIMITS, max_concurrent=2))


_LIMITED: Final = ProviderErrorKind.rate_limited
_BACKOFF: Final = {
    "root": (
        attrs.evolve(write("a.txt", "one"), fails_first=_LIMITED),
        Say(calls=(spawn("limited"), spawn("also limited"))),
        attrs.evolve(write("b.txt", "two"), fails_first=_LIMITED),
    ),
    "limited": (Say("limited is done", fails_first=_LIMITED),),
    "also limited": (Say("also limited is done", fails_first=_LIMITED),),
}


# ── commits ─────────────────────────────────────────────────────────────────

_COMMITTING: Final = {
    "root": (
        Say(calls=(write("a.txt", "one").calls[0], call("git_add", paths=["."]), call("git_commit", message="first"))),
        Say(
            calls=(
                write("b.txt", "two").calls[0],
                call("git_add", paths=["b.txt"]),
                # The same words: only what was noted before tells the two apart.
                call("git_commit", message="first"),
                call("git_branch", name="made"),
                call("git_status"),
            )
        ),
    ),
}


class Nameless:
    """A tool whose result names no commit: commits are named after the time at which they were made, too."""

    def __init__(self, inner: Tool) -> None:
        self._inner = inner
        self.spec = inner.spec
        self.read_only = inner.read_only
        self.recovery = getattr(inner, "recovery", None)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Do the work of the tool.

        Cancellation: as the tool's.
        """
        seen = await self._inner.run(arguments, context)
        return attrs.evolve(seen, text=re.sub(r"\b[0-9a-f]{12}\b", "#", seen.text))


def _committing_tools(stage: Stage) -> tuple[Tool, ...]:
    return tuple(Nameless(tool) for tool in watched_builtins(stage))


async def _start_committing(stage: Stage) -> RunResult:
    # Once more does no harm.
    await trio.run_process(["git", "init", "--quiet", "--initial-branch=main", str(stage.workspace)])
    # It is done before it is committed: so the gate is what lies in git.
    return await _tree(stage, Verification.workspace_file_contains(".git/logs/refs/heads/made", "made"))


SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario("single", _start_single, _SINGLE),
        Scenario("fan", _start_tree, _FAN),
        Scenario("nested", _start_tree, _NESTED),
        Scenario("approval", _start_asking, _APPROVAL, _asking_tools, _put_off, _decide),
        Scenario("verification", _start_verifying, _VERIFYING, beside=_watch_checks),
        Scenario("effects", _start_tree, _SENDING, _sending_tools),
        Scenario("backlog", _start_backlog, _BACKLOG),
        Scenario("backoff", _start_tree, _BACKOFF),
        Scenario("commits", _start_committing, _COMMITTING, _committing_tools),
    )
}
