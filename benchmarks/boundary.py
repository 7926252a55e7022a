"""What the boundary costs: one decision among 100 rules, beside fnmatch rule by rule; and an agent without rules.

A decision must cost the same for a path that was made to hurt as for any other
of its length, and no more than its length for a longer one. An agent without
rules asks a policy that has none; the other arm's tool does not ask at all.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from operator import sub
from pathlib import Path
from typing import Any, Final

import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import StallPolicy, TaskContract
from actors.agents.globs import MOST_CHARACTERS
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Act, Observation, ObservationKind, ToolCall, ToolContext, ToolSpec
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from benchmarks.harness import Figure, Gate, begin, cpu, rounds_of

RULES: Final = 100
DECISION: Final = Gate("value", "<=", 20.0)
# No more than eight times the time for eight times the length, and a tenth for the clock.
LINEAR: Final = Gate("ratio", "<=", 1.1)
FREE: Final = Gate("ratio", "<=", 1.02)
SHORT: Final = MOST_CHARACTERS // 8
TARGET: Final = "services/billing/src/handlers/invoices/monthly_report.py"
LIMITS: Final = Containment(2, 1, 1, 10**12)


def operators_policy() -> Policy:
    """Give a policy of 100 rules for one act, as for a large repository; none of them fits what is asked."""
    policy = Policy.permissive().layer("secrets")
    for number in range(40):
        policy = policy.deny_read(f"services/team{number}/secrets/*" if number % 2 else f"*.private{number}")
    policy = policy.layer("review")
    for number in range(30):
        policy = policy.ask_read(f"vendor{number}/*/generated/*")
    policy = policy.layer("open")
    for number in range(30):
        policy = policy.allow_read(f"services/*/src/part{number}/*")
    return policy


def hostile_policy() -> Policy:
    """Give 100 rules of many stars, each of which nearly fits a long run of one letter."""
    policy = Policy.permissive().layer("hostile")
    for number in range(RULES):
        policy = policy.deny_read(f"*a*a{number}b*c")
    return policy


def _one_by_one(policy: Policy, target: str) -> object:
    """Do what a first version would: every rule in turn, the strictest that fits."""
    names = (target, target.rpartition("/")[2])
    found = [
        rule.effect
        for layer in policy.layers
        for rule in layer.rules
        if rule.act is Act.read and any(fnmatchcase(name, rule.glob) for name in names)
    ]
    return max(found, default=None)


def _each(job: Callable[[], object], n: int, rounds: int) -> float:
    """Give the microseconds of one call: the median of the rounds."""
    job()
    measured = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(n):
            job()
        measured.append((time.process_time() - began) / n * 1e6)
    return statistics.median(measured)


class _Look:
    """A tool that does nothing; it asks the policy first, or not."""

    read_only = True
    spec = ToolSpec("look", "look", {"type": "object"})

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        """Look.

        Cancellation: nothing was done.
        """
        if self._asks:
            await context.authorise(Act.read, TARGET)
        return Observation(ObservationKind.tool, "look", "seen")


async def _agent(root: Path, steps: int, *, asks: bool) -> float:
    """Run one agent of so many steps, each with one call, and give the CPU seconds."""
    answers = [ScriptedAnswer(calls=(ToolCall("look", f'{{"n": {number}}}'),)) for number in range(steps)]
    provider = Scripted([*answers, ScriptedAnswer(text="done")])
    contract = TaskContract.workspace("look", root, max_steps=steps + 1, stall=StallPolicy(window=0))
    began = begin()
    result = await run_tree(
        contract, provider, None, Policy.permissive(), ApproveAll(), LIMITS, tools=(_Look(asks=asks),)
    )
    spent = cpu() - began
    assert result.outcome.kind is OutcomeKind.finished and result.outcome.steps == steps + 1
    return spent


def _agents(steps: int, pairs: int) -> tuple[float, float]:
    """Give the CPU seconds of an agent whose tool asks, and of one whose tool does not, in turn.

    What one costs over the other is the median of the differences within each pair: both of a pair ran in the
    same moment of a machine whose pace changes.
    """
    asking: list[float] = []
    silent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(pairs + 1):
            # Each goes first as often as the other: what comes second finds a warmer machine.
            for asks in (True, False) if turn % 2 else (False, True):
                spent = trio.run(partial(_agent, Path(folder), steps, asks=asks))
                if turn:
                    (asking if asks else silent).append(spent)
    plain = statistics.median(silent)
    return plain + statistics.median(map(sub, asking, silent)), plain


def figures(quick: bool) -> Iterator[Figure]:
    """Measure a decision, its growth with the length of a path, and an agent without rules."""
    rounds, n = rounds_of(quick), 50 if quick else 2_000
    policy = operators_policy()
    ours = _each(partial(policy.explain, Act.read, TARGET), n, rounds)
    naive = _each(partial(_one_by_one, policy, TARGET), n, rounds)
    method = f"CPU time of a decision among {RULES} rules for reading a path; baseline: fnmatch of each rule"
    yield Figure("policy_decision", ours, "us", naive, ours / naive, n, method, DECISION)
    for name, policy, letter in (("policy_long", operators_policy(), "s"), ("policy_hostile", hostile_policy(), "a")):
        few = 3 if quick else 30
        short, long = (
            _each(partial(policy.explain, Act.read, letter * size), few, rounds)
            for size in (SHORT, MOST_CHARACTERS)
        )
        method = f"CPU time for a path of {MOST_CHARACTERS} characters; baseline: eight times that of {SHORT}"
        yield Figure(name, long, "us", 8 * short, long / (8 * short), few, method, LINEAR)
    steps, pairs = (50, 4) if quick else (400, 120)
    asking, silent = _agents(steps, pairs)
    method = f"CPU time of a step under a policy without rules, {steps} steps; baseline: the same, nobody is asked"
    yield Figure(
        "agent_without_rules", asking / steps * 1e6, "us", silent / steps * 1e6, asking / silent, steps, method, FREE
    )
