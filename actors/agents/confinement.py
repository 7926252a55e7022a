"""What stands around the commands of one agent: which boundary was asked for, and what really applied.

A boundary that is asked for by name must hold, or no command is started. One that
nobody named is held as far as this machine can, and what held is written down.
"""

from collections.abc import Awaitable, Callable

import attrs

from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy


@attrs.frozen
class SandboxApplied:
    """What really stood around one command.

    ``backend`` is bubblewrap, landlock or none; ``net`` is open (it was granted),
    denied (it was held), or not_held (it should have been denied, and was not).
    ``not_held`` names what else of the policy the command was not bound by.
    """

    mode: ExecSandbox
    backend: str
    net: str
    not_held: tuple[str, ...] = ()


async def unrecorded(_applied: SandboxApplied) -> None:
    """Record nothing.

    Cancellation: never.
    """
    return


@attrs.frozen
class Confinement:
    """What is to stand around a command. ``mode`` None was not asked for by name.

    ``record`` writes down what applied, before the command starts. ``apart_from`` is a
    workspace that the command has nothing to do with, because it is handed a text:
    nothing of it is there, nothing can be written, and there is no network. ``hidden``
    are files of the run itself: no command reads or writes them, whatever the policy says.
    """

    mode: ExecSandbox | None = None
    policy: Policy = attrs.Factory(Policy.permissive)
    caps: ExecCaps = attrs.Factory(ExecCaps)
    record: Callable[[SandboxApplied], Awaitable[None]] = unrecorded
    apart_from: str | None = None
    hidden: tuple[str, ...] = ()
