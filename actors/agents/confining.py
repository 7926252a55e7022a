"""Which boundary stands around the commands of an agent, and where it is written down what really applied."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.policy import Policy
from actors.agents.ports import RunStore
from actors.agents.rows import SandboxUsed

if TYPE_CHECKING:
    from actors.agents.loop import Loop


def sandbox_recorder(
    loop: Loop, step: int, ordinal: int | None, turn: Callable[[], Awaitable[None]] | None = None
) -> Callable[[SandboxApplied], Awaitable[None]]:
    """Give what leaves the row and the event of one command; ``ordinal`` None is a check.

    ``turn`` is awaited before: rows stand in the order of the calls.
    """

    async def record(applied: SandboxApplied) -> None:
        """Leave them. Cancellation: both were left or none."""
        if turn is not None:
            await turn()
        agent, recorder = loop.agent, loop.recorder
        await recorder.append(
            sandbox_row(agent.run_id, step, ordinal, applied),
            recorder.event(agent.path, agent.depth, "sandbox", sandbox_facts(step, ordinal, applied)),
        )

    return record


def sandbox_row(run_id: str, step: int, ordinal: int | None, applied: SandboxApplied) -> SandboxUsed:
    """Give the row of what stood around one command."""
    held_not = json.dumps(applied.not_held)
    return SandboxUsed(run_id, step, ordinal, applied.mode, applied.backend, applied.net, held_not)


def sandbox_facts(step: int, ordinal: int | None, applied: SandboxApplied) -> dict[str, Any]:
    """Give what the event of it says."""
    return {
        "step": step,
        "ordinal": ordinal,
        "mode": applied.mode,
        "backend": applied.backend,
        "net": applied.net,
        "not_held": list(applied.not_held),
    }


def confinement_of(
    loop: Loop, policy: Policy, step: int, ordinal: int, turn: Callable[[], Awaitable[None]] | None = None
) -> Confinement:
    """Give what is to stand around the commands of one call; ``turn`` as in `sandbox_recorder`."""
    contract = loop.contract
    record, hidden = sandbox_recorder(loop, step, ordinal, turn), files_of(loop.recorder.store)
    return Confinement(contract.exec_sandbox, policy, contract.exec_caps, record, hidden=hidden)


def files_of(store: RunStore) -> tuple[str, ...]:
    """Name the files of a store, which commands have nothing to do with; nothing for one that is in memory.

    A directory that is named as runs are kept by default is theirs whole.
    """
    file = os.path.realpath(getattr(store, "file", ""))
    if not os.path.isfile(file):
        return ()
    place = os.path.dirname(file)
    # SQLite keeps what is newest beside the file, as long as it is open.
    return (place,) if os.path.basename(place) == ".actors" else (file, f"{file}-wal", f"{file}-shm")
