"""What the agents of a tree that ask a model share: ports, tools, prices, and texts that they would write alike."""

import random
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import attrs
import msgspec

from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import Approver, JudgedFiles, Provider, Tool, ToolSpec, Verifier
from actors.agents.retrying import RateGate
from actors.agents.roster import Agents
from actors.agents.spawning import NAME as SPAWN
from actors.agents.spawning import spawn_spec
from actors.agents.worktrees import Worktrees
from actors.containment.prices import PriceTable

# What a child's contract has from its parent's.
SHARED = attrgetter(
    *(field.name for field in attrs.fields(TaskContract) if field.name not in ("goal", "verify", "max_steps"))
)
# Texts of policies that a tree remembers.
MOST_POLICIES = 64


def tool_names_problem(tools: Sequence[Tool]) -> str | None:
    """Say which name of a tool means two things, None when each means one: the last of two would win in silence."""
    names = [tool.spec.name for tool in tools]
    if SPAWN in names:
        return f"{SPAWN} is the runtime's own; give your tool another name"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"two tools are called {twice[0]!r}; give one of them another name" if twice else None


@attrs.frozen
class Services:
    """What the whole tree shares. ``chance`` gives the jitter of back-offs, from 0 to 1.

    ``files`` looks at what checks depend on, and at what was changed; ``reviewer`` None: nobody reviews.
    ``worktrees`` makes work trees for children; None: there are none.
    """

    provider: Provider
    approver: Approver
    tools: tuple[Tool, ...]
    verify: Verifier
    prices: PriceTable
    pace: RateGate = attrs.Factory(RateGate)
    chance: Callable[[], float] = random.random
    files: JudgedFiles | None = None
    reviewer: Provider | None = None
    worktrees: Worktrees | None = None
    _template: list[tuple[TaskContract, dict[str, Any]]] = attrs.field(factory=list, init=False, eq=False)
    _policies: dict[int, tuple[Policy, str]] = attrs.field(factory=dict, init=False, eq=False)
    _offers: dict[int, tuple[Agents | None, tuple[ToolSpec, ...]]] = attrs.field(factory=dict, init=False, eq=False)

    def contract_text(self, contract: TaskContract) -> str:
        """Write a contract as JSON. Contracts of one tree differ in little, and what they share is written once."""
        if self._template:
            first, plain = self._template[0]
            if SHARED(first) == SHARED(contract):
                own = {"goal": contract.goal, "verify": contract.verify.to_dict(), "max_steps": contract.max_steps}
                return msgspec.json.encode({**plain, **own}).decode()
        plain = contract.to_dict()
        self._template[:] = [(contract, plain)]
        return msgspec.json.encode(plain).decode()

    def policy_text(self, policy: Policy) -> str:
        """Write a policy as JSON; agents that are not narrowed share one, and its text."""
        known = self._policies.get(id(policy))
        if known is None or known[0] is not policy:
            if len(self._policies) >= MOST_POLICIES:
                self._policies.clear()
            known = self._policies[id(policy)] = (policy, policy.to_json())
        return known[1]

    def offered(self, roster: Agents | None, only: frozenset[str] | None = None) -> tuple[ToolSpec, ...]:
        """Give what a model is offered, with `spawn_agent` for a ``roster``; all agents of a tree share the tuple.

        ``only`` keeps the tools of these names.
        """
        if only is not None:
            return tuple(spec for spec in self.offered(roster) if spec.name in only)
        known = self._offers.get(id(roster))
        # The roster is kept beside its offer, so its id cannot come to mean another one.
        if known is None or known[0] is not roster:
            specs = tuple(tool.spec for tool in self.tools)
            known = (roster, specs if roster is None else (*specs, spawn_spec(roster)))
            self._offers[id(roster)] = known
        return known[1]
