"""Which boundary stands around the commands of an agent, and where it is written down what really applied."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.policy import Policy
from actors.agents.rows import SandboxUsed

if TYPE_CHECKING:
    from actors.agents.loop import Loop


def sandbox_recorder(loop: Loop, step: int, ordinal: int | None) -> Callable[[SandboxApplied], Awaitable[None]]:
    """Give what leaves the row and the event of one command; ``ordinal`` None is a check."""

    async def record(applied: SandboxApplied) -> None:
        agent, recorder = loop.agent, loop.recorder
        facts = {
            "step": step,
            "ordinal": ordinal,
            "mode": applied.mode,
            "backend": applied.backend,
            "net": applied.net,
            "not_held": list(applied.not_held),
        }
        held_not = json.dumps(applied.not_held)
        await recorder.append(
            SandboxUsed(agent.run_id, step, ordinal, applied.mode, applied.backend, applied.net, held_not),
            recorder.event(agent.path, agent.depth, "sandbox", facts),
        )

    return record


def confinement_of(loop: Loop, policy: Policy, step: int, ordinal: int) -> Confinement:
    """Give what is to stand around the commands of one call."""
    contract = loop.contract
    record = sandbox_recorder(loop, step, ordinal)
    return Confinement(contract.exec_sandbox, policy, contract.exec_caps, record)
